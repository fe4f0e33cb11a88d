# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
What was tried before the tables were made, on vader4, which is in no table (without its films, which are in sst2). The
dev rows of amazon and mnli5 are test rows of their other targets: a setting for all targets must not be chosen on them.

    python examples/mil/tune.py --round 3 --backbone minilm=FOLDER --together 12 --seeds 4
    python -m hf_memaug.reporting.results docs/results/mil/tuning.json
"""

import argparse
import dataclasses
import sys
from pathlib import Path

from experiment import CROSS, METHODS, Job, backbone_paths
from jobs import add_run_options, run_jobs

# Round 1 asked what matters at all. It found that the memory outgrows the features (norm 200 and more beside 12) and
# attends to single slots. Round 2 asked for rates and weights that keep it within bounds. Round 3 gives every method of
# the tables its turn, and MIL one change at a time. Round 4 asks whether an encoder that learns slowly, and so keeps
# more of what tells domains apart, leaves more to the memory. Round 5 asks for the exact hyper-gradient and for the
# mean of all tokens, which `--together` has not: use `--workers`. Round 6 asks for keys of other sizes, which decide
# how many slots a fresh memory reads (figures.py keys).
ROUNDS = {
    1: {
        "erm": [{"learning_rate": rate} for rate in (2e-5, 5e-5, 1e-4, 2e-4)],
        "+memory": [{}],
        "mil-fresh": [{}, {"memory_initializer_range": 8.0}],
        "mil": [
            {},
            {"memory_initializer_range": 4.0},
            {"memory_initializer_range": 8.0},
            {"memory_learning_rate": 1e-2},
            {"memory_learning_rate": 1e-4},
            {"memory_weight": 0.3},
            {"memory_weight": 0.8},
            {"inner_steps": 2, "episode_steps": 10},
            {"discriminator_learning_rate": 1e-2},
            {"discriminator_hidden_size": 0},
            {"hypergradient": "exact"},
        ],
    },
    2: {
        "erm": [{}, {"learning_rate": 1e-4}],
        "mil-fresh": [{"memory_weight": 0.8}, {"memory_weight": 0.8, "memory_initializer_range": 8.0}],
        "mil": [
            {},
            {"memory_weight": 0.8},
            {"memory_weight": 0.95},
            {"memory_learning_rate": 1e-4},
            {"memory_learning_rate": 1e-4, "memory_weight": 0.8},
            {"memory_learning_rate": 3e-5, "memory_weight": 0.8},
            {"memory_learning_rate": 1e-4, "memory_weight": 0.8, "memory_initializer_range": 8.0},
            {"learning_rate": 1e-4, "memory_weight": 0.8},
        ],
    },
    3: {
        "erm": [{}, {"learning_rate": 2e-5}, {"learning_rate": 1e-4}, {"train_rows": 50}],
        "mil": [
            *({"memory_learning_rate": rate} for rate in (1e-4, 1e-3, 3e-5)),
            {"memory_learning_rate": 1e-4, "memory_weight": 0.2},
            {"memory_learning_rate": 1e-4, "memory_weight": 0.8},
            {"memory_learning_rate": 1e-4, "memory_initializer_range": 0.25},
            {"memory_learning_rate": 1e-4, "memory_initializer_range": 4.0},
            {"memory_learning_rate": 1e-4, "train_rows": 50},
            # L, T and the number of episodes, with as many inner steps as before, and with twice as many.
            {"memory_learning_rate": 1e-4, "inner_steps": 5, "episode_steps": 20, "episodes": 6},
            {"memory_learning_rate": 1e-4, "episode_steps": 5, "episodes": 120},
            {"memory_learning_rate": 1e-4, "episodes": 60},
            # A discriminator that learns faster, and a linear one.
            {"memory_learning_rate": 1e-4, "discriminator_learning_rate": 1e-2},
            {"memory_learning_rate": 1e-4, "discriminator_hidden_size": 0},
        ],
        "mil-fresh": [{}, {"train_rows": 50}],
        "+memory": [{"memory_learning_rate": rate} for rate in (1e-3, 1e-4)],
        "dann": [{"penalty_weight": weight} for weight in (0.01, 0.1, 1.0)],
        "coral": [{"penalty_weight": weight} for weight in (1.0, 100.0)],
        "irm": [{"penalty_weight": weight} for weight in (0.1, 1.0, 10.0)],
    },
    4: {
        "mil": [
            {"learning_rate": 2e-5, "memory_learning_rate": 1e-4},
            {"learning_rate": 2e-5, "memory_learning_rate": 1e-3},
        ],
        "erm": [{"learning_rate": 1e-5}],
        "mil-fresh": [{"learning_rate": 2e-5}],
    },
    5: {
        "mil": [
            {"memory_learning_rate": 1e-4, "hypergradient": "exact"},
            {"memory_learning_rate": 1e-4},
            {"memory_learning_rate": 1e-4, "pooling": "mean"},
        ],
        "erm": [{}, {"pooling": "mean"}],
    },
    6: {
        "erm": [{}],
        "mil-fresh": [{"memory_key_initializer_range": size} for size in (1 / 64, None, 1 / 4, 1.0)],
        "mil": [
            {"memory_learning_rate": rate, "memory_key_initializer_range": size}
            for rate in (1e-4, 1e-3)
            for size in (1 / 64, None, 1 / 4, 1.0)
        ],
    },
}


DEFAULTS = {field.name: field.default for field in dataclasses.fields(Job)}
NAMED = ("data", "target", "method", "backbone", "seed", "head", "train_rows")


def rows_of(result: dict) -> list[dict]:
    """The scores on the unseen domain and on the sources' dev rows; a setting is part of the method's name."""
    job = result["job"]
    changed = [
        f"{name} {value}" if isinstance(value, str) else f"{name} {value:g}"
        for name, value in job.items()
        if name not in NAMED and value != DEFAULTS[name]
    ]
    few = f", {job['train_rows']} rows a domain" if job["train_rows"] else ""
    shared = {name: job[name] for name in ("target", "backbone", "head", "seed")}
    shared |= {"method": ", ".join([job["method"], *changed]), "data": job["data"] + few}
    scores = {"dev_macro_f1": result["dev"]}
    if job["target"] in result["scores"]:
        scores["macro_f1"] = result["scores"][job["target"]]
    return [{**shared, "metric": metric, "value": round(value, 4)} for metric, value in scores.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="../shared/data", help="folder of the data sets (default: %(default)s)")
    parser.add_argument("--backbone", required=True, help="name=folder of the encoder")
    parser.add_argument("--sets", nargs="+", default=["vader4=nyt", "vader4=tweets", "vader4=product"])
    parser.add_argument("--round", type=int, default=1, choices=list(ROUNDS), help="default: %(default)s")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), help="default: all of the round")
    parser.add_argument("--seeds", type=int, default=2, help="default: %(default)s")
    parser.add_argument(
        "--head", default="fine-tuning", choices=["fine-tuning", "prompting"], help="default: %(default)s"
    )
    parser.add_argument("--learning-rate", type=float, default=5e-5, help="of all but ERM (default: %(default)s)")
    add_run_options(parser)
    parser.add_argument("--diagnose", action="store_true", help="also measure norms and the distance between domains")
    parser.add_argument("--record", type=Path, default=Path("runs/tune.jsonl"), help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=Path("docs/results/mil"), help="default: %(default)s")
    options = parser.parse_args()
    backbones = backbone_paths([options.backbone])
    (backbone,) = backbones
    results = []
    sets = [entry.partition("=") for entry in options.sets]
    # A target of the tables is never scored here.
    for scored in (True, False):
        jobs = [
            Job(
                data,
                target,
                method,
                backbone,
                seed,
                options.head,
                **{"learning_rate": options.learning_rate, **setting},
            )
            for method, settings in ROUNDS[options.round].items()
            if method in (options.methods or METHODS)
            for setting in settings
            for data, _, target in sets
            for seed in range(options.seeds)
            if (data not in CROSS) is scored
        ]
        results += run_jobs(options, jobs, backbones, options.record, score_target=scored, diagnose=options.diagnose)

    from hf_memaug.reporting.results import write_results

    write_results(
        options.output / "tuning.json",
        table="tuning",
        command="python " + " ".join(sys.argv),
        rows=[row for result in results for row in rows_of(result)],
        made_with=[result["made_with"] for result in results],
    )


if __name__ == "__main__":
    main()
