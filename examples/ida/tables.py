# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
The tables of progressive memory banks (IDA): models that take in one domain after another, by each strategy of the
paper. What has run already is not run again. Table 3 and Figure 4 are drawn as well.

    python examples/ida/tables.py table2 --vectors glove.6B.300d.txt --device cuda   # fiction, then government
    python examples/ida/tables.py table4 --vectors glove.6B.300d.txt --device cuda   # five genres of MultiNLI
    python examples/ida/tables.py table3 --vectors glove.6B.300d.txt --device cuda   # R of f+m+v, from the same models
    python examples/ida/tables.py figure4 --device cuda                              # new slots of each domain
    python examples/ida/tables.py amazon --backbones FOLDER --device cuda            # pretrained, with a memory
    python examples/ida/tables.py vader4 --backbones FOLDER --device cuda
    python examples/ida/tables.py table4 --strategies ewc --options '{"fisher_weight": 100}' '{"fisher_weight": 10}'

Each domain's best epoch is chosen by dev rows of that domain, and what is reported is of other rows. The tests of what
grows a memory against the other lines lie beside the table, in `TABLE_tests.json`, but where settings are tried.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from statistics import fmean

from experiment import ALONE, MEMORY_RNN, Job, run

sys.path.insert(0, str(Path(__file__).parents[1]))  # run_lines.py

from run_lines import keep_runs, read_runs, run_in_processes

GENRES = ["fiction", "government", "slate", "telephone", "travel"]
# What a line of Table 2 is called, and what trains it. Other lines are called as their strategies, with a memory.
TRAINED_ALONE = {
    f"{architecture} {name}": (architecture, name) for architecture in ("rnn", "rnn+mem") for name in ALONE
}
GROWING = ["f", "f+m", "f+v", "f+m+v", "f+h", "f+h+v"]
STRATEGIES = [*GROWING, "ewc", "progressive", "replay", "lwf", "in_domain", "multi_task"]
LINES = [*TRAINED_ALONE, "multi_task", "f", "f+m", "f+m+v", "f+h", "f+h+v", "ewc", "progressive"]
GENRE_LINES = ["in_domain", "multi_task", "f+v", "f+m+v", "ewc", "progressive"]
PRETRAINED_LINES = ["f", "f+m", "ewc", "lwf", "replay"]
PRETRAINED = {"learning_rate": 5e-5, "memory_learning_rate": 1e-3, "epochs": 3}
# A table: its data, their order, its lines, its backbone, and what a job has beside its defaults.
TABLES = {
    "table2": ("mnli5", GENRES[:2], LINES, MEMORY_RNN, {}),
    "table3": ("mnli5", GENRES, ["f+m+v"], MEMORY_RNN, {}),
    "table4": ("mnli5", GENRES, GENRE_LINES, MEMORY_RNN, {}),
    "figure4": ("mnli5", GENRES[:2], ["f+m+v"], MEMORY_RNN, {}),
    "amazon": (
        "amazon",
        ["books", "dvd", "electronics", "kitchen"],
        PRETRAINED_LINES,
        "minilm",
        {**PRETRAINED, "max_length": 192},
    ),
    "vader4": (
        "vader4",
        ["tweets", "movie", "product", "nyt"],
        PRETRAINED_LINES,
        "minilm",
        {**PRETRAINED, "max_length": 48},
    ),
}
NEW_SLOTS = [0, 100, 300, 500, 1000]
# Settings of which a command takes several, each a line of the table.
SEVERAL = ("options", "key_range", "learning_rate")
# The paper's test: accuracies on so many rows, drawn so many times.
DRAWS, DRAWN_ROWS = 10, 200


def make_jobs(options) -> list[Job]:
    data, domains, lines, backbone, kwargs = TABLES[options.table]
    given = {field.name: getattr(options, field.name, None) for field in fields(Job)}
    given = {name: value for name, value in given.items() if value is not None and name not in SEVERAL}
    jobs = []
    for seed in range(options.seeds):
        for place in options.backbones or [backbone]:
            for line in options.strategies or lines:
                architecture, strategy = TRAINED_ALONE.get(line, ("rnn+mem", line))
                # A pretrained encoder has settings of its own, and a network from scratch those of the paper.
                own = kwargs if place != MEMORY_RNN else {n: v for n, v in kwargs.items() if n not in PRETRAINED}
                job = Job(
                    data=data,
                    strategy=strategy,
                    architecture=architecture if place == MEMORY_RNN else "encoder+mem",
                    backbone=place,
                    seed=seed,
                    **{**own, "domains": domains, **given},
                )
                for one in _each_of_several(job, options):
                    jobs += (
                        [_with_new_slots(one, slots) for slots in NEW_SLOTS] if options.table == "figure4" else [one]
                    )
    return jobs


def _each_of_several(job: Job, options) -> list[Job]:
    values = (getattr(options, name) or [getattr(job, name)] for name in SEVERAL)
    return [replace(job, **dict(zip(SEVERAL, some, strict=True))) for some in product(*values)]


def _with_new_slots(job: Job, slots: int) -> Job:
    """Figure 4. Without new slots, `f+m+v` is `f+v`."""
    return replace(job, slots=slots) if slots else replace(job, strategy="f+v")


def work(job: Job, folder: str, device: str) -> dict:
    import torch
    from transformers import logging

    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return run(job, folder, device)


def run_jobs(jobs: list[Job], options) -> dict[Job, dict]:
    done = {Job(**result["job"]): result for result in read_runs(options.record)}
    todo = [job for job in dict.fromkeys(jobs) if job not in done]
    print(f"{len(jobs) - len(todo)} of {len(jobs)} models are in {options.record} already.", flush=True)
    if not todo:
        return done
    for place in sorted({Path(options.folder) / "data" / job.data for job in todo}):
        if not place.is_dir():
            sys.exit(f"There is no `{place}`: give the folder whose `data/` has that set with --folder.")
    for path in sorted({job.vectors for job in todo if job.vectors}):
        if not Path(path).is_file():
            sys.exit(f"There is no `{path}`: give a text file of word vectors with --vectors, or leave it out.")
    for job, result, progress in run_in_processes(
        todo, work, (options.folder, options.device), options.jobs, options.record
    ):
        done[job] = result
        scores = ", ".join(f"{name} {value:.1f}" for name, value in done[job]["final"].items())
        print(
            f"{progress} {line_of(job)} on {job.backbone}, {job.data}, "
            f"seed {job.seed}: {scores} ({done[job]['seconds']:.0f} s)",
            flush=True,
        )
    return done


def line_of(job: Job) -> str:
    return f"{job.architecture} {job.strategy}" if job.strategy in ALONE else job.strategy


def rows_of(job: Job, result: dict, table: str) -> Iterator[dict]:
    same = {"data": job.data, "backbone": job.backbone, "seed": job.seed}
    method = line_of(job)
    if job.options:
        same["options"] = job.options
        method += f", {job.options}"
    if job.learning_rate != (Job.learning_rate if job.backbone == MEMORY_RNN else PRETRAINED["learning_rate"]):
        same["learning_rate"] = job.learning_rate
        method += f", rate {job.learning_rate:g}"
    if job.key_range is not None:
        same["key_range"] = job.key_range
        method += f", keys {job.key_range}"
    if table == "figure4":
        same["slots"] = job.slots if job.strategy == "f+m+v" else 0
        method += f", {same['slots']} slots"
    lines = {method: result["final"]}
    if table == "table3":
        lines = {f"{method}, after {stage}": scores for stage, scores in result["matrix"].items()}
    for name, scores in lines.items():
        for target, value in scores.items():
            yield {"method": name, **same, "target": target, "metric": "accuracy", "value": round(value, 4)}
    # To choose settings by, such as the weight of EWC.
    for target, value in result.get("dev", {}).items():
        yield {"method": method, **same, "target": target, "metric": "dev accuracy", "value": round(value, 4)}
    # A model of one domain alone has nothing to forget, and its ACC would be of another kind.
    for metric, value in result["figures"].items() if job.strategy not in ALONE else ():
        if value is not None:
            yield {"method": method, **same, "target": "all", "metric": metric, "value": round(value, 4)}


def draw(table: str, jobs: list[Job], done: dict[Job, dict], path: Path) -> None:
    """Figure 4 as curves, a line for each domain; Table 3 as a map of R, the mean over seeds."""
    from hf_memaug.reporting.continual_plots import plot_matrix
    from hf_memaug.reporting.plots import plot_curve
    from hf_memaug.training.continual.record import ContinualRecord

    if table == "figure4":
        curves = {}
        for row in (row for job in jobs for row in rows_of(job, done[job], table) if row["metric"] == "accuracy"):
            curves.setdefault(row["target"], {}).setdefault(row["slots"], []).append(row["value"])
        plot_curve(curves, path, "new slots for the second domain", "accuracy at the end, in points")
    elif table == "table3":
        matrices = [done[job]["matrix"] for job in jobs]
        stages = []
        for name in jobs[0].domains:
            scores = {domain: fmean(one[name][domain] / 100 for one in matrices) for domain in jobs[0].domains}
            stages.append({"domains": [name], "strategy": jobs[0].strategy, "scores": scores})
        plot_matrix(ContinualRecord(stages=stages), path)


def drawn_accuracies(right: dict[int, str], other: dict[int, str]) -> tuple[list[float], list[float]]:
    """Accuracies of two strategies on the same rows, drawn with replacement from those of all seeds (section 4)."""
    import numpy as np

    draw = np.random.default_rng(0)
    seeds = sorted(set(right) & set(other))
    a, b = (np.array(list("".join(one[seed] for seed in seeds)), dtype=float) for one in (right, other))
    chosen = [draw.integers(0, len(a), DRAWN_ROWS) for _ in range(DRAWS)]
    return [100 * a[rows].mean() for rows in chosen], [100 * b[rows].mean() for rows in chosen]


def compare(jobs: list[Job], done: dict[Job, dict], method: str, baseline: str) -> dict:
    """A line against another: over seeds, and by the test of the paper for each domain."""
    from hf_memaug.evaluation.statistics import paired_t_test, wilcoxon

    of = {name: {job.seed: done[job] for job in jobs if line_of(job) == name} for name in (method, baseline)}
    seeds = sorted(set(of[method]) & set(of[baseline]))
    means = [[fmean(of[name][seed]["final"].values()) for seed in seeds] for name in (method, baseline)]
    found = {"method": method, "baseline": baseline, "backbone": jobs[0].backbone, "seeds": seeds}
    found["difference"] = round(fmean(means[0]) - fmean(means[1]), 4)
    if len(seeds) > 1:
        found["t_test"] = round(paired_t_test(*means).p_value, 4)
        found["wilcoxon"] = round(wilcoxon(*means, alternative="greater").p_value, 4)
    found["drawn"] = {}
    for domain in done[jobs[0]]["final"]:
        right = [{seed: of[name][seed]["right"][domain] for seed in seeds} for name in (method, baseline)]
        drawn = drawn_accuracies(*right)
        p_value = wilcoxon(*drawn, alternative="greater").p_value
        found["drawn"][domain] = {
            "difference": round(fmean(drawn[0]) - fmean(drawn[1]), 4),
            "wilcoxon": round(p_value, 4),
        }
    return found


def say(found: dict) -> Iterator[str]:
    yield (
        f"{found['method']} − {found['baseline']} on {found['backbone']}, mean over domains: "
        f"{found['difference']:+.2f} over {len(found['seeds'])} seeds"
    )
    if "t_test" in found:
        yield (
            f"  over seeds: paired t-test p = {found['t_test']:.3f}; one-tailed Wilcoxon p = {found['wilcoxon']:.3f}"
        )
    for domain, one in found["drawn"].items():
        yield (
            f"  {domain}: {one['difference']:+.2f}, one-tailed Wilcoxon of {DRAWS} draws of {DRAWN_ROWS} rows "
            f"p = {one['wilcoxon']:.3f}"
        )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=list(TABLES))
    parser.add_argument(
        "--folder", default="../shared", help="with sets in `data/`, and encoders in `weights/` (default: %(default)s)"
    )
    parser.add_argument(
        "--strategies",
        nargs="+",
        choices=[*TRAINED_ALONE, *STRATEGIES],
        metavar="STRATEGY",
        help="lines of the table, or other strategies of ContinualTrainer (default: the table's)",
    )
    parser.add_argument(
        "--backbones", nargs="+", help=f"`{MEMORY_RNN}`, or folders in `weights/` (default: the table's)"
    )
    parser.add_argument("--seeds", type=int, default=5, help="default: %(default)s")
    job = parser.add_argument_group("of all jobs (default: the table's own)")
    job.add_argument("--domains", nargs="+", help="in the order of their training")
    job.add_argument("--vectors", help="a text file of word vectors, such as GloVe's (default: random ones)")
    for name in ("learning_rate", "key_range"):
        job.add_argument(f"--{name.replace('_', '-')}", type=float, nargs="+", help="several are lines each")
    for name in ("epochs", "memory_learning_rate"):
        job.add_argument(f"--{name.replace('_', '-')}", type=float)
    for name in ("batch_size", "first_slots", "slots", "hidden_size", "max_words", "max_length"):
        job.add_argument(f"--{name.replace('_', '-')}", type=int)
    job.add_argument("--rows", type=int, help="the most training rows of a domain (default: all)")
    job.add_argument("--options", nargs="+", help="of the strategy, as JSON (for one strategy); several are lines each")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time (default: %(default)s)")
    parser.add_argument("--record", type=Path, default="runs/ida/runs.jsonl", help="default: %(default)s")
    parser.add_argument("--output", type=Path, default="docs/results/ida", help="default: %(default)s")
    options = parser.parse_args()
    if options.options and len(options.strategies or ()) != 1:
        parser.error("--options are those of one strategy: give one with --strategies")
    if options.table in ("table3", "figure4") and options.strategies:
        parser.error(f"{options.table} is of f+m+v: leave --strategies out")
    if options.key_range is not None and {*(options.backbones or TABLES[options.table][3:4])} != {MEMORY_RNN}:
        parser.error(f"--key-range is for keys of a {MEMORY_RNN}: leave it out, or give that with --backbones")
    options.has_several = any(len(getattr(options, name) or []) > 1 for name in SEVERAL)
    if options.table in ("table3", "figure4") and options.has_several:
        parser.error(f"{options.table} has one line: give one --learning-rate and one --key-range")
    if options.table == "figure4" and options.slots is not None:
        parser.error("figure4 says the slots itself: leave --slots out")
    return options


def main() -> None:
    options = parse_arguments()
    jobs = make_jobs(options)
    done = run_jobs(jobs, options)
    from hf_memaug.reporting.results import write_results

    rows = [row for job in jobs for row in rows_of(job, done[job], options.table)]
    path = options.output / f"{options.table}.json"
    write_results(
        path,
        table=options.table,
        command="python " + " ".join(sys.argv),
        rows=rows,
        made_with=[done[job]["made_with"] for job in jobs],
    )
    keep_runs(options.output / f"{options.table}_runs.jsonl", [done[job] for job in jobs])
    print(f"wrote {path} ({len(rows)} rows); python -m hf_memaug.reporting.results {path} --baseline LINE")
    tests, places = [], list(dict.fromkeys(job.backbone for job in jobs))
    for place in places:
        chosen = [job for job in jobs if job.backbone == place]
        name = f"{path.stem}.png" if len(places) == 1 else f"{path.stem}_{Path(place).name}.png"
        draw(options.table, chosen, done, path.with_name(name))
        if options.table == "figure4" or options.has_several:
            continue  # these have no two lines to compare
        lines = list(dict.fromkeys(map(line_of, chosen)))
        # As the paper does, what grows a memory against every other line.
        method = next((name for name in ("f+m+v", "f+m") if name in lines), None)
        tests += [compare(chosen, done, method, other) for other in lines if method and other != method]
    if tests:
        content = {
            "command": "python " + " ".join(sys.argv),
            "draws": DRAWS,
            "rows_of_a_draw": DRAWN_ROWS,
            "tests": tests,
        }
        tests_at = path.with_name(f"{path.stem}_tests.json")
        tests_at.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print("\n".join(line for found in tests for line in say(found)))
        print("Draws of rows know nothing of other seeds: the p-values over seeds are those to go by.")
        print(f"wrote {tests_at}")


if __name__ == "__main__":
    main()
