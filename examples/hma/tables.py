# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
HMA's tables: backbones with and without its memories, and its ablations. What has run already is not run again. With
`--tune`, other seeds than those of the table try some settings; a table then takes, for each method, what was best on
dev rows.

    python examples/hma/tables.py bace --methods backbone hma --seeds 10       # Table 3: molecules, split by scaffolds
    python examples/hma/tables.py coloured --backbones mlp                     # Figure 2: coloured MNIST
    python examples/hma/tables.py graphs                                       # Table 4: PROTEINS and IMDB-BINARY
    python examples/hma/tables.py size_shift                                   # Table 6: small graphs to large ones
    python examples/hma/tables.py size_shift_imdb                              # the same of IMDB-BINARY
    python examples/hma/tables.py memory_sizes                                 # Figure 5, on BACE
    python examples/hma/tables.py images --device cuda                         # Table 1 form: CIFAR-10, PACS by domain
    python examples/hma/tables.py head_tuning --device cuda                    # Table 2 form: a frozen backbone
    python examples/hma/tables.py text --backbones FOLDER --device cuda        # amazon, each domain left out
    python examples/hma/tables.py bace --tune                                  # the settings, on dev rows
    python examples/hma/tables.py head_tuning --tune --head-learning-rate 1e-2 # one more rate
"""

import argparse
import itertools
import sys
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean

from job import Job

sys.path.insert(0, str(Path(__file__).parents[1]))  # run_lines.py

from run_lines import keep_runs, read_runs, run_in_processes

METHODS = ["backbone", "param", "rma", "abd", "abd+rma", "abd+syn", "hma"]
PROMPTS = ["prompt-p", "prompt-a"]
# Tables of vision transformers, which take prompt tokens.
WITH_PROMPTS = {
    "images": [*METHODS, *PROMPTS],
    "head_tuning": ["backbone", "param", "hma", *PROMPTS, *(f"{name}+hma" for name in PROMPTS)],
}
SHIFTS = ["0.2/0.1", "0.15/0.08", "0.1/0.06", "0.05/0.04", "0/0.02"]
FOLDS = [str(fold) for fold in range(10)]
GRAPHS = {"learning_rate": 1e-3, "batch_size": 32, "epochs": 30, "evaluations": 30, "real_memory_size": 64}
PRETRAINED = {
    "learning_rate": 5e-5,
    "head_learning_rate": 3e-4,
    "batch_size": 64,
    "epochs": 5,
    "evaluations": 10,
    "real_memory_size": 128,
}
HEAD_TUNING = {**PRETRAINED, "learning_rate": 1e-3, "tuning": "head"}
DOMAINS = {"cifar10": [""], "pacs": ["art_painting", "cartoon", "photo", "sketch"]}
# A table: its data, their settings, its backbones, and what a job has beside its defaults.
TABLES = {
    "bace": (["bace"], [""], ["gcn-3x64", "gcn-v-3x64", "gin-3x64", "gin-v-3x64"], GRAPHS),
    "coloured": (
        ["coloured_mnist"],
        [f"{size}/{shift}" for size in (14, 28) for shift in SHIFTS],
        ["mlp", "cnn"],
        {"learning_rate": 3e-4, "batch_size": 128, "epochs": 4, "evaluations": 8, "real_memory_size": 256},
    ),
    "graphs": (["proteins", "imdb-binary"], FOLDS, ["gin-3x64"], GRAPHS),
    "size_shift": (["proteins_size"], ["size"], ["gin-3x64"], GRAPHS),
    "size_shift_imdb": (["imdb-binary_size"], ["size"], ["gin-3x64"], GRAPHS),
    "images": (["cifar10", "pacs"], None, ["vit-s8-64"], PRETRAINED),
    "head_tuning": (["cifar10", "pacs"], None, ["vit-s8-64"], HEAD_TUNING),
    "text": (["amazon"], ["books", "dvd", "electronics", "kitchen"], ["minilm"], PRETRAINED),
    "memory_sizes": (["bace"], [""], ["gin-3x64"], GRAPHS),
}
SIZES = {"real_memory_size": [0, 32, 64, 128], "synthetic_slots": [0, 4, 8, 16, 32]}
# What `--tune` tries, as many settings for each method. A momentum encoder that starts from random weights and follows
# too slowly fills the real memory with what nobody reads as it was meant.
FEW_RATES = [3e-4, 1e-3, 3e-3]
GRIDS = {
    "hma": {"learning_rate": FEW_RATES, "momentum": [0.9, 0.999]},
    "rma": {"learning_rate": FEW_RATES, "momentum": [0.9, 0.999]},
    "abd+rma": {"learning_rate": FEW_RATES, "momentum": [0.9, 0.999]},
    "abd+syn": {"learning_rate": FEW_RATES, "synthetic_slots": [8, 32]},
}
RATES = {"learning_rate": [2e-4, 3e-4, 6e-4, 1e-3, 2e-3, 3e-3]}
# Over a frozen backbone: of what is fresh, the head and the memories.
HEAD_RATES = {"head_learning_rate": [3e-4, 1e-3, 3e-3]}
TUNED = ("learning_rate", "head_learning_rate", "momentum", "synthetic_slots")
TUNING_SEEDS = 1000


def make_jobs(options, done: dict[Job, dict]) -> list[Job]:
    data, settings, backbones, kwargs = TABLES[options.table]
    kwargs = {**kwargs, **{name: value for name, value in vars(options.job).items() if value is not None}}
    first = TUNING_SEEDS if options.tune else 0
    jobs = [
        Job(name, setting, backbone, method, seed, **kwargs)
        for seed in range(first, first + options.seeds)
        for name in options.data or data
        for setting in options.settings or settings or DOMAINS[name]
        for backbone in options.backbones or backbones
        for method in options.methods or WITH_PROMPTS.get(options.table, METHODS)
    ]
    if options.table == "memory_sizes":
        return [_sized(job, *sizes) for job in jobs for sizes in itertools.product(*SIZES.values())]
    free = [name for name in TUNED if getattr(options.job, name) is None]
    if options.tune:
        return [candidate for job in jobs for candidate in _candidates(job, free)]
    return [_tuned(job, done, free) for job in jobs]


def _grid(job: Job) -> dict[str, list]:
    return HEAD_RATES if job.tuning == "head" else GRIDS.get(job.method, RATES)


def _candidates(job: Job, free: list[str] | tuple[str, ...] = TUNED) -> list[Job]:
    """What is not free was given, and is tried as it is."""
    grid = {name: values for name, values in _grid(job).items() if name in free}
    return [replace(job, **dict(zip(grid, values, strict=True))) for values in itertools.product(*grid.values())]


def _tuned(job: Job, done: dict[Job, dict], free: list[str]) -> Job:
    """
    With what `--tune` found best for a job that differs in these fields alone, on dev rows. Of the same setting: dev
    rows of one fold are test rows of another. Of the same seeds: some may have been broken off.
    """
    found: dict[tuple, dict[int, float]] = {}
    for other, result in done.items():
        given = {name: getattr(other, name) for name in free}
        if other.seed >= TUNING_SEEDS and replace(job, seed=other.seed, **given) == other:
            found.setdefault(tuple(given.values()), {})[other.seed] = result["dev"]
    seeds = set.intersection(*map(set, found.values())) if found else set()
    if not seeds:
        return job
    best = max(found, key=lambda values: fmean(found[values][seed] for seed in seeds))
    return replace(job, **dict(zip(free, best, strict=True)))


def _sized(job: Job, real_memory_size: int, synthetic_slots: int) -> Job:
    """Figure 5: none of one of them is another row of the tables."""
    method = {
        (True, True): "hma",
        (True, False): "abd+rma",
        (False, True): "abd+syn",
        (False, False): "abd",
    }[bool(real_memory_size), bool(synthetic_slots)]
    sizes = {"real_memory_size": real_memory_size or 32, "synthetic_slots": synthetic_slots or 8}
    return replace(job, method=method, **sizes)


def work(job: Job, folder: str, device: str) -> dict:
    import torch
    from experiment import run
    from transformers import logging

    torch.set_num_threads(1)
    logging.set_verbosity_error()
    return run(job, folder, device)


def run_jobs(jobs: list[Job], options) -> dict[Job, dict]:
    done = read_record(options.record)
    todo = [job for job in dict.fromkeys(jobs) if job not in done]
    print(f"{len(jobs) - len(todo)} of {len(jobs)} models are in {options.record} already.", flush=True)
    if not todo:
        return done
    for job, result, progress in run_in_processes(
        todo, work, (options.folder, options.device), options.jobs, options.record
    ):
        done[job] = result
        tests = ", ".join(f"{name} {value:.1f}" for name, value in done[job]["scores"]["batch"].items())
        print(
            f"{progress} {job.method} on {job.backbone}, {job.data} "
            f"{job.setting}, seed {job.seed}: dev {done[job]['dev']:.1f}, {tests} ({done[job]['seconds']:.0f} s)",
            flush=True,
        )
    return done


def read_record(record: Path) -> dict[Job, dict]:
    return {Job(**result["job"]): result for result in read_runs(record)}


def rows_of(job: Job, result: dict, table: str, tuning: bool) -> list[dict]:
    same = {"method": job.method, "data": job.data, "backbone": job.backbone, "seed": job.seed}
    same["metric"] = result["metric"]
    if tuning:
        name = f"{job.method}, " + ", ".join(f"{key} {getattr(job, key):g}" for key in _grid(job))
        return [{**same, "method": name, "target": job.setting or "dev", "metric": "dev", "value": result["dev"]}]
    if table == "memory_sizes":
        real = job.real_memory_size if "rma" in job.method or job.method == "hma" else 0
        slots = job.synthetic_slots if "syn" in job.method or job.method == "hma" else 0
        same |= {"real_memory_size": real, "synthetic_slots": slots}
    rows = []
    for inference, scores in result["scores"].items():
        if inference == "independent" and table == "memory_sizes":
            continue  # Figure 5 is of rows that read each other
        if inference == "independent" and not ("abd" in job.method or "hma" in job.method):
            continue  # rows are read one by one in any case
        method = job.method if inference == "batch" else f"{job.method}, independent"
        for name, value in scores.items():
            target = " ".join(part for part in (job.setting, name if len(scores) > 1 else "") if part) or name
            rows.append({**same, "method": method, "target": target, "value": round(value, 4)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=list(TABLES))
    parser.add_argument(
        "--folder", default="../shared", help="with sets in `data/`, and encoders in `weights/` (default: %(default)s)"
    )
    every = list(dict.fromkeys([*METHODS, *(name for names in WITH_PROMPTS.values() for name in names)]))
    parser.add_argument("--methods", nargs="+", choices=every, help="default: those of the table")
    parser.add_argument(
        "--backbones",
        nargs="+",
        help="a network with its layers and width, `mlp` or `cnn`, or a folder in `weights/` (default: the table's)",
    )
    parser.add_argument("--data", nargs="+", help="sets of the table (default: all)")
    parser.add_argument("--settings", nargs="+", help="folds, domains, or size/p1/p2 of coloured MNIST (default: all)")
    parser.add_argument("--seeds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--tune", action="store_true", help="try settings, or one given, on other seeds and dev rows")
    job = parser.add_argument_group("of all jobs (default: what --tune found best, else the table's own)")
    for name in ("learning_rate", "head_learning_rate", "epochs", "momentum", "initializer_range"):
        job.add_argument(f"--{name.replace('_', '-')}", type=float)
    for name in ("batch_size", "real_memory_size", "synthetic_slots", "evaluations", "prompt_tokens"):
        job.add_argument(f"--{name.replace('_', '-')}", type=int)
    job.add_argument("--momentum-encoder", choices=["copy", "none"])
    parser.add_argument("--device", default="cpu", help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time (default: %(default)s)")
    parser.add_argument("--record", type=Path, default="runs/hma/runs.jsonl", help="default: %(default)s")
    parser.add_argument("--output", type=Path, default="docs/results/hma", help="default: %(default)s")
    options = parser.parse_args()
    unknown = [name for name in options.data or () if name not in TABLES[options.table][0]]
    if unknown:
        parser.error(f"--data {unknown[0]} is no set of {options.table}: {', '.join(TABLES[options.table][0])}")
    fields = [name for name in list(asdict(Job("", "", "", "", 0)))[5:] if hasattr(options, name)]
    options.job = argparse.Namespace(**{name: getattr(options, name) for name in fields})
    if options.table == "memory_sizes":
        options.methods = ["hma"]
    jobs = make_jobs(options, read_record(options.record))
    done = run_jobs(jobs, options)
    from hf_memaug.reporting.results import write_results

    name = f"{options.table}_tuning" if options.tune else options.table
    rows = [row for job in jobs for row in rows_of(job, done[job], options.table, options.tune)]
    path = options.output / f"{name}.json"
    write_results(
        path,
        table=name,
        command="python " + " ".join(sys.argv),
        rows=rows,
        made_with=[done[job]["made_with"] for job in jobs],
    )
    keep_runs(options.output / f"{name}_runs.jsonl", [done[job] for job in jobs])
    print(f"wrote {path} ({len(rows)} rows); python -m hf_memaug.reporting.results {path} --baseline backbone")


if __name__ == "__main__":
    main()
