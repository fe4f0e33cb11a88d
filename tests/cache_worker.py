# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""One of several processes that build a cache of general states at once: a module of its own, which each can import."""

import os
import time

import torch
from families import gmap_config

from hf_memaug import GMAPModel, cache_general_states


def model_and_rows(seed: int):
    torch.manual_seed(seed)
    return GMAPModel(gmap_config("gmap")).eval(), [{"input_ids": [2, *range(11, 15 + row)]} for row in range(5)]


def slowly(function):
    """So that both processes are between looking and naming at the same time."""

    def later(*args):
        time.sleep(0.2)
        return function(*args)

    return later


def build(folder, seed: int, barrier, said) -> None:
    """Says "whole", or what went wrong."""
    try:
        os.replace = slowly(os.replace)
        model, rows = model_and_rows(seed)
        barrier.wait(timeout=120)
        cached = cache_general_states(model, rows, folder, progress=False)
        for row in cached:
            expected = torch.cat(model.general_states(input_ids=torch.tensor([row["input_ids"]])))
            torch.testing.assert_close(row["general_hidden_states"].float(), expected, rtol=0, atol=5e-3)
        said.put("whole")
    except Exception as error:
        said.put(repr(error))
