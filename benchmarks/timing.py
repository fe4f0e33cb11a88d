# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Two models against each other, in one run."""

import statistics
import time


def training_step(model, inputs, labels, autocast):
    """A function that makes one step of AdamW."""
    import torch

    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=1e-6, fused=True)
    model.train()

    def step():
        with autocast():
            loss = model(**inputs, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def inference(model, inputs, autocast):
    """A function that makes one forward pass."""
    import torch

    model.eval()

    def step():
        with torch.inference_mode(), autocast():
            model(**inputs)

    return step


def seconds(step, device: str, repeats: int) -> float:
    """Of one call, the mean of `repeats`."""
    import torch

    if device == "cuda":
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(repeats):
            step()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1000 / repeats
    begin = time.perf_counter()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - begin) / repeats


def compare(what: str, against: str, plain, memory, device: str, rounds: int, repeats: int) -> dict:
    """Times two steps in turns: a row of a benchmark, with the ratio of the second to the first."""
    for step in (plain, memory):
        seconds(step, device, 3)
    times = {plain: [], memory: []}
    for turn in range(rounds):
        # Whoever is second finds a warmer machine, so they take turns.
        for step in (plain, memory) if turn % 2 else (memory, plain):
            times[step].append(seconds(step, device, repeats))
    neighbours = [ours / theirs for ours, theirs in zip(times[memory], times[plain], strict=True)]
    row = {
        "what": what,
        "value": round(1000 * min(times[memory]), 3),
        "unit": "ms",
        "against": against,
        "ratio": round(min(times[memory]) / min(times[plain]), 4),
        "median_ratio": round(statistics.median(neighbours), 4),
        "rounds": rounds,
    }
    print(f"{what:16} {row['value']:9.2f} ms   ratio {row['ratio']:.3f}   median {row['median_ratio']:.3f}", flush=True)
    return row
