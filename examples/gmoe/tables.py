# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
GMoE's tables on images of several domains, each left out in turn (DomainBed's protocol: 80/20 splits, selection on what
is held out of the domains that are trained on). What has run already is not run again.

    python examples/gmoe/tables.py table1 --backbone vit=FOLDER               # ViT and GMoE with ERM
    python examples/gmoe/tables.py algorithms --backbone vit=FOLDER           # both with CORAL, Fish and SWAD
    python examples/gmoe/tables.py table13 --backbone vit=FOLDER              # where the experts are, and which router
    python examples/gmoe/tables.py single_source --backbone vit=FOLDER        # trained on one domain (section 5.3)
    python examples/gmoe/tables.py single_source --data rotated_mnist:FOLDER  # the same with small fresh models
    python examples/gmoe/tables.py tune --backbone vit=FOLDER                 # the learning rate, on the sources
    python examples/gmoe/tables.py mnist --data rotated_mnist:FOLDER          # all algorithms, small fresh models
"""

import argparse
import sys
from pathlib import Path
from statistics import fmean

from job import MODELS, SMALL, Job

sys.path.insert(0, str(Path(__file__).parents[1]))  # run_lines.py

from run_lines import keep_runs, read_runs, run_in_processes

EVERY = ["erm", "irm", "vrex", "group_dro", "mixup", "dann", "coral", "mmd", "mldg", "fish", "fishr", "swad"]
# A table: its models, its algorithms, and whether they are trained on one domain.
TABLES = {
    "table1": (["vit", "gmoe"], ["erm"], False),
    "algorithms": (["vit", "gmoe"], ["coral", "fish", "swad"], False),
    "table13": (["gmoe", "gmoe-every-two", "gmoe-linear"], ["erm"], False),
    "single_source": (["vit", "gmoe"], ["erm"], True),
    "tune": (["vit", "gmoe"], ["erm"], False),
    "mnist": (["vit", "gmoe"], EVERY, False),
}
# Domains, and what a job has beside its defaults. With a colour to go by, a small model learns the digits late.
MNIST = {
    "rotated_mnist": (
        ["0", "15", "30", "45", "60", "75"],
        {"learning_rate": 1e-3, "steps": 500, "anneal_steps": 125, "rows": 2000},
    ),
    "coloured_mnist": (
        ["+80%", "+90%", "-90%"],
        {"learning_rate": 3e-4, "steps": 1500, "eval_steps": 300, "anneal_steps": 375, "rows": 5000},
    ),
}
RATES = [3e-5, 5e-5, 1e-4]
DEFAULT_RATE = 5e-5
# Rates are chosen on other splits than those that tables are made on.
TUNING_SEEDS = 1000
_loaded: dict = {}


def rate_of(done: dict[Job, dict], backbone: str, target: str, model: str) -> float:
    """What `tune` found best for this model on the sources of this target alone."""
    kind = "vit" if model == "vit" else "gmoe"
    scores: dict[float, list[float]] = {}
    for job, result in done.items():
        is_tuning = job.seed >= TUNING_SEEDS and not job.single_source
        if is_tuning and (job.backbone, job.target, job.model, job.algorithm) == (backbone, target, kind, "erm"):
            scores.setdefault(job.learning_rate, []).append(result["validation"])
    return max(scores, key=lambda rate: fmean(scores[rate])) if scores else DEFAULT_RATE


def make_jobs(options, names: list[str], done: dict[Job, dict]) -> list[Job]:
    models, algorithms, single = TABLES[options.table]
    first = TUNING_SEEDS if options.table == "tune" else 0
    rates = options.rates if options.table == "tune" else [options.learning_rate]
    digits = MNIST.get(data_name(options.data))
    own = {"augment": False, "size": 28, **digits[1]} if digits else {}
    own_rate = own.get("learning_rate")
    given = {name: getattr(options, name) for name in ("size", "steps", "eval_steps")}
    settings = {**own, **{name: value for name, value in given.items() if value is not None}, "single_source": single}
    return [
        Job(
            data_name(options.data),
            options.name,
            target,
            model,
            algorithm,
            seed,
            **{**settings, "learning_rate": rate or own_rate or rate_of(done, options.name, target, model)},
        )
        for seed in range(first, first + options.seeds)
        for target in options.targets or names
        for algorithm in options.algorithms or algorithms
        for model in options.models or models
        for rate in rates
    ]


def data_name(data: str) -> str:
    """`pacs` of `FOLDER/pacs` or `pacs.npz`, and `rotated_mnist` of `rotated_mnist:FOLDER`."""
    kind, colon, _ = data.partition(":")
    return kind if colon and kind in MNIST else Path(data).stem


def work(job: Job, data: str, backbone: str, device: str | None) -> dict:
    """In a process of its own, which reads the images once."""
    from experiment import run

    if not _loaded:
        import torch
        from pixels import Pixels
        from transformers import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        torch.set_float32_matmul_precision("high")
        torch.set_num_threads(1)
        _loaded["pixels"] = Pixels.read(data, job.size, job.rows)
    return run(job, _loaded["pixels"], backbone, device)


def read_record(options) -> dict[Job, dict]:
    return {Job(**result["job"]): result for result in read_runs(options.record)}


def run_jobs(jobs: list[Job], options) -> dict[Job, dict]:
    done = read_record(options)
    todo = [job for job in jobs if job not in done]
    print(f"{len(jobs) - len(todo)} of {len(jobs)} models are in {options.record} already.", flush=True)
    if not todo:
        return done
    for job, result, progress in run_in_processes(
        todo, work, (options.data, options.backbone, options.device), options.jobs, options.record
    ):
        done[job] = result
        score = fmean(done[job]["target"].values())
        print(
            f"{progress} {job.method} {'with' if job.single_source else 'without'} {job.target}, seed {job.seed}, "
            f"rate {job.learning_rate:g}: sources {done[job]['validation']:.1f}, target {score:.1f} "
            f"(step {done[job]['step']}, {done[job]['seconds']:.0f} s)",
            flush=True,
        )
    return done


def rows_of(job: Job, result: dict, tuning: bool) -> list[dict]:
    same = {"method": job.method, "data": job.data, "backbone": job.backbone, "seed": job.seed}
    if tuning:
        name = f"{job.method}, rate {job.learning_rate:g}"
        return [{**same, "method": name, "target": job.target, "metric": "validation", "value": result["validation"]}]
    prefix = f"{job.target} > " if job.single_source else ""
    scores = {**result["target"], **(result["source"] if job.single_source else {})}
    return [
        {**same, "target": f"{prefix}{name}", "metric": "accuracy", "value": round(value, 4)}
        for name, value in scores.items()
    ]


def domains_of(data: str) -> list[str]:
    if data_name(data) in MNIST:
        return MNIST[data_name(data)][0]
    names = sorted(file.stem for file in Path(data).glob("*.parquet"))
    if not names:
        import numpy as np

        names = sorted(set(np.load(data)["domains"].tolist()))
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=list(TABLES))
    parser.add_argument("--backbone", help="name=folder of a ViT (of `mnist`: a small one of random weights)")
    parser.add_argument(
        "--data",
        default="../shared/data/pacs",
        help="a folder with a Parquet file for each domain, what pixels.py made of one, or rotated_mnist or "
        "coloured_mnist with :FOLDER (default: %(default)s)",
    )
    parser.add_argument("--size", type=int, help="height and width of the images (default: 64; of `mnist`, 28)")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), help="default: those of the table")
    parser.add_argument("--algorithms", nargs="+", help="default: those of the table")
    parser.add_argument("--targets", nargs="+", help="domains to leave out (default: each)")
    parser.add_argument("--seeds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--steps", type=int, help="default: 1000; of `mnist`, 500 or 1500")
    parser.add_argument("--eval-steps", type=int, help="default: 100; of coloured MNIST, 300")
    parser.add_argument(
        "--learning-rate",
        type=float,
        help=f"of all but `tune` (default: what `tune` found for the target on its sources, else {DEFAULT_RATE}; of "
        "`mnist`, 1e-3 or 3e-4)",
    )
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="of `tune` (default: %(default)s)")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: a GPU where there is one")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time on the device (default: %(default)s)")
    parser.add_argument("--record", type=Path, default="runs/gmoe/runs.jsonl", help="default: %(default)s")
    parser.add_argument("--output", type=Path, default="docs/results/gmoe", help="default: %(default)s")
    options = parser.parse_args()
    names = domains_of(options.data)
    unknown = set(options.targets or ()) - set(names)
    if unknown:
        parser.error(f"--targets {sorted(unknown)[0]} is no domain of {options.data}: there are {', '.join(names)}")
    of_digits = data_name(options.data) in MNIST
    if options.table != "single_source" and (options.table == "mnist") != of_digits:
        parser.error(f"`mnist` is the table of --data {' and '.join(f'{name}:FOLDER' for name in MNIST)}")
    if of_digits and options.backbone is None:
        options.backbone = f"{SMALL}={SMALL}"
    options.name, _, options.backbone = (options.backbone or "").partition("=")
    if not options.backbone:
        parser.error("--backbone is a name and a folder, such as vit-s8-64=FOLDER")
    jobs = make_jobs(options, names, read_record(options))
    done = run_jobs(jobs, options)
    from hf_memaug.reporting.results import write_results

    tuning = options.table == "tune"
    # For each target by itself: what is held out of it must not choose its own rate.
    for model, target in dict.fromkeys((job.model, job.target) for job in jobs) if tuning else ():
        rate = rate_of({job: done[job] for job in jobs}, options.name, target, model)
        print(f"{model} without {target}: rate {rate:g} is the best on what is held out of the sources")
    rows = [row for job in jobs for row in rows_of(job, done[job], tuning)]
    path = options.output / f"{options.table}.json"
    command = "python " + " ".join(sys.argv)
    write_results(
        path, table=options.table, command=command, rows=rows, made_with=[done[job]["made_with"] for job in jobs]
    )
    keep_runs(options.output / f"{options.table}_runs.jsonl", [done[job] for job in jobs])
    print(f"wrote {path} ({len(rows)} rows); python -m hf_memaug.reporting.results {path} --baseline vit")


if __name__ == "__main__":
    main()
