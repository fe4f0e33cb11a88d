# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Two models against each other, in one run: `compare` by the clock, `compare_kernels` by what a GPU does, whatever the
host that launches it.
"""

import statistics
import time


def workload(batch: int, length: int, device: str):
    """What both models are given, and the precision: the device's name, inputs, labels, and an autocast."""
    import torch

    on_gpu = device == "cuda"
    name = torch.cuda.get_device_name() if on_gpu else f"CPU, {torch.get_num_threads()} threads"
    inputs = {
        "input_ids": torch.randint(5, 50000, (batch, length), device=device),
        "attention_mask": torch.ones(batch, length, dtype=torch.long, device=device),
    }
    labels = torch.randint(0, 2, (batch,), device=device)
    return name, inputs, labels, lambda: torch.autocast(device, dtype=torch.bfloat16, enabled=on_gpu)


def training_step(model, inputs, labels, autocast, graphed: bool = False):
    """A function that makes one step of AdamW; `graphed`: forward and backward pass as a CUDA graph."""
    import torch

    from hf_memaug.kernels.cuda_graphs import GraphedFunction

    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=1e-6, fused=True)
    model.train()

    def both_passes(inputs):
        for parameter in learned:
            parameter.grad = None
        with autocast():
            loss = model(**inputs).loss
        loss.backward()
        return [parameter.grad for parameter in learned]

    run = GraphedFunction(both_passes) if graphed else both_passes

    def step():
        for parameter, gradient in zip(learned, run({**inputs, "labels": labels}), strict=True):
            parameter.grad = gradient
        optimizer.step()
        if hasattr(model, "update_memory"):
            model.update_memory()

    return step


def inference(model, inputs, autocast, graphed: bool = False):
    """A function that makes one forward pass."""
    import torch

    from hf_memaug.kernels.cuda_graphs import GraphedFunction

    model.eval()

    def forward(inputs):
        with torch.no_grad() if graphed else torch.inference_mode(), autocast():
            return model(**inputs).logits

    run = GraphedFunction(forward) if graphed else forward
    return lambda: run(inputs)


def peak(step, beside: bool = False) -> float:
    """
    GiB that a step needs at most, with all that lies on the GPU; `beside`: beside what lay there before it, which may
    belong to another step.
    """
    import torch

    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    resident = torch.cuda.memory_allocated() if beside else 0
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - resident) / 2**30


def kernels(step, repeats: int = 5) -> tuple[float, float]:
    """Of one call: milliseconds of what it lets the GPU do, kernels, copies and fills, and how many these are."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(repeats):
            step()
        torch.cuda.synchronize()
    # Ranges with a name span what is launched in them, and are no launches.
    found = [
        event.time_range.elapsed_us()
        for event in profiler.events()
        if event.device_type == torch.autograd.DeviceType.CUDA and not getattr(event, "is_user_annotation", False)
    ]
    if not found:
        raise RuntimeError("The profiler saw no kernel: it needs CUPTI, and a GPU that no other process profiles.")
    return sum(found) / 1000 / repeats, len(found) / repeats


def compare_kernels(what: str, against: str, plain, memory) -> list[dict]:
    """Two rows of a benchmark on a GPU: what it does in two steps, and how many launches that takes."""
    rows = []
    for name, unit, theirs, ours in zip(
        ("kernels", "launches"), ("ms", "launches"), kernels(plain), kernels(memory), strict=True
    ):
        ratio = round(ours / theirs, 4)
        row = {"what": f"{what}_{name}", "value": round(ours, 3), "unit": unit}
        rows.append({**row, "against": f"{against} {theirs:.2f} {unit}", "ratio": ratio})
        print(f"{what}_{name} {ours:.2f} {unit}, ratio {ratio:.3f}", flush=True)
    return rows


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
