# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
Tables 1, 2 and 3 of MIL: leave-one-domain-out and cross-dataset macro-F1. One command a table; what has run already is
not run again, so that a command that was broken off can be given again.

    python examples/mil/tables.py table1 --backbone minilm=FOLDER --backbone roberta-30m=FOLDER --workers 8
    python examples/mil/tables.py table2 --backbone minilm=FOLDER --methods erm mil --seeds 5
    python examples/mil/tables.py table3 --backbone minilm=FOLDER

Every method is given the same optimizer steps: those without meta-training train that much longer. The checkpoint is
chosen on the source domains' dev rows. The
memory's rate was chosen on vader4 by examples/mil/tune.py; the penalties of IRM, Deep CORAL and DANN still have their
defaults.
"""

import argparse
import sys
from pathlib import Path

from experiment import CROSS, METHODS, Job, backbone_paths, load_data, rows_of
from jobs import add_run_options, run_jobs

sys.path.insert(0, str(Path(__file__).parents[1]))  # run_lines.py

from run_lines import keep_runs

COMPARED = ["erm", "mil", "+memory", "dann", "coral", "irm"]
TABLES = {
    "table1": (["amazon"], COMPARED),
    "table2": (["mnli5"], COMPARED),
    "table3": (["amazon", "mnli5"], ["erm", "+memory", "+ffn", "+self-attention+ffn", "mil"]),
}
# The rate was chosen on vader4 by examples/mil/tune.py; half of its episodes, for the cost.
SETTINGS = {"memory_learning_rate": 1e-4, "episodes": 15}
# One pass over the source domains of a target, in batches of 32, and how many there are.
STEPS_A_PASS = {"amazon": 150, "mnli5": 325}
PASSES = 3
# The task loss may teach a memory faster than the game between domains.
OF_METHOD = {"+memory": {"memory_learning_rate": 1e-3}}


def settings_of(data: str, method: str, passes: int | None = None) -> dict:
    """What a job of the tables has that is not a job's own default."""
    return {"steps": (passes or PASSES) * STEPS_A_PASS.get(data, 0), **SETTINGS, **OF_METHOD.get(method, {})}


def make_jobs(options, backbones: dict[str, str]) -> list[Job]:
    """Seed by seed, so that what is there after a break is complete for the seeds it has."""
    data_sets, methods = TABLES[options.table]
    jobs = []
    for head in options.heads:
        for backbone in backbones:
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                for data in options.sets or data_sets:
                    domains = load_data(options.data, data, "train").domains
                    targets = [*domains, "cross"] if options.table != "table3" else list(domains)
                    if options.cross is not None:
                        targets = [target for target in targets if (target == "cross") == options.cross]
                    for method in options.methods or methods:
                        own = settings_of(data, method, options.passes)
                        for name in ("memory_learning_rate", "memory_key_initializer_range"):
                            if getattr(options, name) is not None:
                                own[name] = getattr(options, name)
                        jobs += [Job(data, target, method, backbone, seed, head, **own) for target in targets]
    return jobs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=list(TABLES))
    parser.add_argument("--data", default="../shared/data", help="folder of the data sets (default: %(default)s)")
    parser.add_argument("--backbone", action="append", required=True, help="name=folder of an encoder; may be repeated")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), help="default: all of the table")
    parser.add_argument("--sets", nargs="+", choices=list(CROSS), help="default: those of the table")
    parser.add_argument("--heads", nargs="+", default=["fine-tuning"], choices=["fine-tuning", "prompting"])
    columns = parser.add_mutually_exclusive_group()
    columns.add_argument(
        "--no-cross", dest="cross", action="store_const", const=False, help="leave the cross-dataset columns out"
    )
    columns.add_argument(
        "--only-cross", dest="cross", action="store_const", const=True, help="leave all other columns out"
    )
    parser.add_argument("--seeds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them (default: %(default)s)")
    parser.add_argument(
        "--memory-learning-rate", type=float, help="of all methods (default: 1e-3 for +memory, 1e-4 for the others)"
    )
    parser.add_argument(
        "--memory-key-initializer-range", type=float, help="standard deviation of fresh keys (default: the model's)"
    )
    parser.add_argument(
        "--passes",
        type=int,
        default=PASSES,
        help="over the sources, beside the steps of meta-training, which other methods train on (default: %(default)s)",
    )
    add_run_options(parser)
    parser.add_argument("--record", type=Path, help="raw results, one line a job (default: runs/mil/TABLE.jsonl)")
    parser.add_argument(
        "--diagnose", action="store_true", help="measure the distance between domains in all runs, for figure 4"
    )
    parser.add_argument("--features", help="folder for the features of the runs with seed 0, for figures 3 and 4")
    parser.add_argument("--output", type=Path, help="default: docs/results/mil")
    options = parser.parse_args()
    if options.passes < 1:
        parser.error("--passes is at least 1")
    for name in ("passes", "memory_learning_rate", "memory_key_initializer_range"):
        if getattr(options, name) != parser.get_default(name) and options.output is None:
            parser.error(f"--{name.replace('_', '-')} makes another table: say with --output where its rows go")
    options.output = options.output or Path("docs/results/mil")

    from hf_memaug.reporting.results import write_results

    backbones = backbone_paths(options.backbone)
    record = options.record or Path("runs/mil") / f"{options.table}.jsonl"
    jobs = make_jobs(options, backbones)
    if not jobs:
        parser.error("table3 has no cross-dataset columns: leave --only-cross out")
    results = run_jobs(options, jobs, backbones, record, diagnose=options.diagnose, features=options.features)
    rows = [row for result in results for row in rows_of(result)]
    path = options.output / f"{options.table}.json"
    made_with = [result["made_with"] for result in results]
    command = "python " + " ".join(sys.argv)
    write_results(path, table=options.table, command=command, rows=rows, made_with=made_with)
    # What else is said of a run: its score on dev rows, when that was best, and what the memory did to the features.
    kept = ("job", "dev", "best_step", "diagnostics")
    keep_runs(options.output / f"{options.table}_runs.jsonl", [{name: one[name] for name in kept} for one in results])
    print(f"wrote {path} ({len(rows)} rows); python -m hf_memaug.reporting.results {path} makes the table")


if __name__ == "__main__":
    main()
