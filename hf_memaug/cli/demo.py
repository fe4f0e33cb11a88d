# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-memaug demo`: a comparison on generated reviews with a small untrained encoder."""

import dataclasses

from hf_memaug.cli.compare import compare
from hf_memaug.cli.recipes import Resolved
from hf_memaug_cli.options import CompareOptions

METHODS = ["erm", "+memory", "mil", "hma"]
# For an untrained encoder of two layers.
SETTINGS = {
    "learning_rate": 1e-3,
    "num_train_epochs": 4.0,
    "per_device_train_batch_size": 32,
    "episodes": 10,
    "episode_steps": 10,
    "memory_slots": 128,
    "memory_key_size": 32,
    "real_memory_size": 128,
}


def demo(call) -> int:
    options = call.options
    compared = CompareOptions(
        data="generated_reviews",
        methods=METHODS,
        target=["films"],
        seeds=options.seeds,
        output=options.output or "runs/demo",
        jobs=options.jobs,
        quiet=options.quiet,
        json=options.json,
    )
    if not (options.quiet or options.json):
        print(
            "Trains on generated reviews of books, kitchens, phones and hotels, and tests on films.\n"
            "The encoder is small and untrained: the scores show how the command works, not how good a method is.\n"
        )
    return compare(dataclasses.replace(call, command="compare", resolved=Resolved(compared, dict(SETTINGS))))
