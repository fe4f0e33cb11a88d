# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
Tables 1 to 5 of G-MAP, what reading in pre-training does for the tasks (after its section 4.4), and the curves of its
Figures 4 and 6. One command each; what has run already is not run again, so that a command that was broken off can be
given again, and a model that stands in two tables is trained once.

    python examples/gmap/encoders.py --backbone minilm=FOLDER     # first: the general and the domain encoders
    python examples/gmap/tables.py table1 --encoders runs/gmap/encoders/minilm
    python examples/gmap/tables.py table1 --sets chemprot acl_arc scierc --methods dapt gmap
    python examples/gmap/tables.py figure4

All methods have the same head, learning rate, epochs and batches. The rate was chosen on dev rows, for DAPT
(`tables.py tune`); each run keeps the epoch that is best on dev rows.
"""

import argparse
import dataclasses
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from experiment import CHOSEN, DATA, METHODS, Job, encoders_digest, logits_file

from hf_memaug.training.layer_search import candidate_layers

sys.path.insert(0, str(Path(__file__).parents[1]))  # run_lines.py

from run_lines import free_memory, keep_runs, read_runs

CLASSIFICATION = [name for name, data in DATA.items() if data.task == "classification"]
SPANS = [name for name in DATA if name not in CLASSIFICATION]
STRATEGIES = ["gmap-single", "gmap-multiple", "gmap-gated", "gmap"]
TABLES = {
    "tune": (CHOSEN, ["dapt"]),
    "table1": (CLASSIFICATION, ["fine-tuning", "dapt", "logits-fusion", "ensemble", *STRATEGIES]),
    "table2": (CLASSIFICATION, ["tapt", "dapt+tapt", "gmap*"]),
    "table3": (SPANS, ["fine-tuning", "dapt", "gmap"]),
    "table4": (CHOSEN, ["dapt", "gmap-unfrozen", "gmap"]),
    "table5": (CHOSEN, ["gmap-cross-attention", "gmap-gate-attention", "gmap"]),
    "section44": (CHOSEN, ["dapt-further", "gmap-pretrained"]),
    "figure4": (CHOSEN, ["gmap"]),
    "figure6": (CHOSEN, ["gmap-single", "gmap-gated"]),
}
RATES = [5e-5, 1e-4, 2e-4]
# Both backbones have six.
DEPTH = 6
LAYERS = {
    figure: [tuple(layers) for layers in candidate_layers(strategy, DEPTH)]
    for figure, strategy in (("figure4", "chunk_gated"), ("figure6", "single"))
}


def make_jobs(options) -> list[Job]:
    sets, methods = TABLES[options.table]
    chosen = options.methods or methods
    # An ensemble is not trained: it is made of these two.
    chosen = list(dict.fromkeys(n for m in chosen for n in (("fine-tuning", "dapt") if m == "ensemble" else (m,))))
    rates = options.rates if options.table == "tune" else [options.learning_rate]
    return [
        Job(data, method, options.encoders.name, seed, rate, DATA[data].epochs, memory_layers=layers)
        for data in options.sets or sets
        for method in chosen
        for rate in rates
        for layers in LAYERS.get(options.table, [None])
        for seed in range(options.seeds)
    ]


def read_record(record: Path) -> dict[Job, dict]:
    found = {}
    for result in read_runs(record):
        layers = result["job"]["memory_layers"]
        found[Job(**{**result["job"], "memory_layers": tuple(layers) if layers else None})] = result
    return found


def run_jobs(jobs: list[Job], options) -> dict[Job, dict]:
    """Those of one setting on top of each other; returns all results that there are."""
    done = read_record(options.record)
    digests = {job: encoders_digest(str(options.encoders), job) for job in jobs}
    for job, digest in digests.items():
        if digest and job in done and done[job].get("encoders", digest) != digest:
            raise SystemExit(
                f"{options.record} holds models of other encoders of the name {options.encoders.name}, such as "
                f"{job.data} {title(job)}. Choose another --record, or another name for the encoders."
            )
    todo = [job for job in jobs if job not in done]
    print(f"{len(jobs) - len(todo)} of {len(jobs)} models are in {options.record} already.", flush=True)
    if not todo:
        return done
    import torch
    from together import Together
    from transformers import logging

    from hf_memaug.reporting.results import here

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_float32_matmul_precision("high")
    groups = defaultdict(list)
    for job in todo:
        groups[dataclasses.replace(job, seed=0)].append(job)
    options.record.parent.mkdir(parents=True, exist_ok=True)
    begin = time.time()
    for number, group in enumerate(groups.values(), start=1):
        results = Together(group, options.data, str(options.encoders)).run(options.record.parent / "logits")
        with open(options.record, "a", encoding="utf-8") as file:
            for job, result in zip(group, results, strict=True):
                done[job] = {**result, "encoders": digests[job], "made_with": here()}
                file.write(json.dumps(done[job]) + "\n")
        job, left = group[0], (time.time() - begin) / number * (len(groups) - number)
        print(
            f"[{number}/{len(groups)}, {left / 60:.0f} min left] {job.data} {title(job)} rate {job.learning_rate}: "
            f"dev {fmean(r['dev'] for r in results):.1f}, test {fmean(r['scores']['f1'] for r in results):.1f}, "
            f"{len(results)} seeds, {sum(r['seconds'] for r in results):.0f} s",
            flush=True,
        )
        free_memory()
    return done


def ensemble_rows(jobs: list[Job], options) -> list[dict]:
    """Scores of the mean probabilities of the fine-tuned general encoder and of DAPT's, seed by seed."""
    import numpy as np
    import torch
    from experiment import encoder_folder, prepared
    from fusion import ensemble

    rows = []
    for job in jobs:
        if job.method != "dapt":
            continue
        both = [job, dataclasses.replace(job, method="fine-tuning")]
        files = [logits_file(options.record.parent / "logits", one) for one in both]
        missing = [str(file) for file in files if not file.is_file()]
        if missing:
            raise SystemExit(f"An ensemble needs {missing[0]}, which is not there: train that model again.")
        task = prepared(options.data, job.data, encoder_folder(str(options.encoders), "general", job.data))
        mixed = ensemble([torch.from_numpy(np.load(file)) for file in files]).numpy()
        rows += rows_of(dataclasses.replace(job, method="ensemble"), task.scores("test", mixed))
    return rows


def title(job: Job) -> str:
    return job.method + (f" @ {','.join(map(str, job.memory_layers))}" if job.memory_layers else "")


def rows_of(job: Job, scores: dict[str, float]) -> list[dict]:
    same = {
        "method": title(job),
        "data": DATA[job.data].task,
        "target": job.data,
        "backbone": job.backbone,
        "seed": job.seed,
    }
    return [{**same, "metric": metric, "value": round(value, 4)} for metric, value in scores.items()]


def tuning_rows(done: dict[Job, dict], jobs: list[Job]) -> list[dict]:
    """The dev scores of each method and rate; prints their means over sets and seeds."""
    for method, rate in dict.fromkeys((job.method, job.learning_rate) for job in jobs):
        some = [done[job]["dev"] for job in jobs if (job.method, job.learning_rate) == (method, rate)]
        print(f"{method}, rate {rate:g}: dev {fmean(some):.2f}")
    return [
        {**row, "method": f"{job.method}, rate {job.learning_rate:g}"}
        for job in jobs
        for row in rows_of(job, {"dev_f1": done[job]["dev"]})
    ]


def say_choice(done: dict[Job, dict], jobs: list[Job]) -> None:
    """For each set, test scores of the layers that are best on dev rows, beside those of the paper's layers."""
    from transformers import BertConfig

    from hf_memaug import GMAPConfig
    from hf_memaug.evaluation.statistics import paired_t_test

    encoder = BertConfig(num_hidden_layers=DEPTH)
    for data, method in dict.fromkeys((job.data, job.method) for job in jobs):
        found = defaultdict(list)
        for job in jobs:
            if (job.data, job.method) == (data, method):
                found[job.memory_layers].append(done[job])
        best = max(found, key=lambda layers: fmean(result["dev"] for result in found[layers]))
        default = tuple(GMAPConfig(general=encoder, domain=encoder, **METHODS[method][1]).augmented_layers)
        scores = {layers: [result["scores"]["f1"] for result in found[layers]] for layers in (best, default)}
        line = f"{data}, {method}: dev rows choose {list(best)}, test {fmean(scores[best]):.1f}"
        if best != default:
            line += f"; by default {list(default)}, {fmean(scores[default]):.1f}"
            if len(scores[best]) > 1:
                line += f" (p = {paired_t_test(scores[best], scores[default]).p_value:.3f})"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=list(TABLES))
    parser.add_argument("--data", default="../shared/data", help="folder of the data sets (default: %(default)s)")
    parser.add_argument(
        "--encoders",
        type=Path,
        default="runs/gmap/encoders/minilm",
        help="folder of one backbone's encoders, made by encoders.py (default: %(default)s)",
    )
    parser.add_argument("--sets", nargs="+", choices=list(DATA), help="default: those of the table")
    parser.add_argument("--methods", nargs="+", choices=[*METHODS, "ensemble"], help="default: those of the table")
    parser.add_argument("--seeds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--learning-rate", type=float, help="of all but `tune` (default: 1e-4)")
    parser.add_argument("--rates", type=float, nargs="+", help=f"of `tune` (default: {RATES})")
    parser.add_argument(
        "--record",
        type=Path,
        default="runs/gmap/runs.jsonl",
        help="raw results, one line a model (default: %(default)s)",
    )
    parser.add_argument("--output", type=Path, default="docs/results/gmap", help="default: %(default)s")
    options = parser.parse_args()
    if (options.learning_rate if options.table == "tune" else options.rates) is not None:
        parser.error("`tune` takes --rates, everything else --learning-rate")
    options.rates, options.learning_rate = options.rates or RATES, options.learning_rate or 1e-4
    methods, sets = options.methods or TABLES[options.table][1], options.sets or TABLES[options.table][0]
    if {"ensemble", "logits-fusion"} & set(methods) and set(sets) - set(CLASSIFICATION):
        parser.error("ensemble and logits-fusion classify texts: choose --sets that do, or leave them out")
    if options.table in LAYERS and not all(method.startswith("gmap") for method in methods):
        parser.error(f"{options.table} compares layers that read the memory: choose --methods that have one")
    jobs = make_jobs(options)
    done = run_jobs(jobs, options)
    from hf_memaug.reporting.results import write_results

    if options.table == "tune":
        rows = tuning_rows(done, jobs)
    else:
        rows = [row for job in jobs for row in rows_of(job, done[job]["scores"])]
    if options.table in LAYERS:
        say_choice(done, jobs)
    if "ensemble" in methods:
        rows += ensemble_rows(jobs, options)
    path = options.output / f"{options.table}.json"
    command = "python " + " ".join(sys.argv)
    write_results(
        path, table=options.table, command=command, rows=rows, made_with=[done[job]["made_with"] for job in jobs]
    )
    kept = ("job", "dev", "best_step", "log")
    runs = [{name: done[job][name] for name in kept} for job in jobs]
    keep_runs(options.output / f"{options.table}_runs.jsonl", runs)
    print(f"wrote {path} ({len(rows)} rows); python -m hf_memaug.reporting.results {path} --baseline dapt")


if __name__ == "__main__":
    main()
