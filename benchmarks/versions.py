# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
This version against another one: a training step and a forward pass of each family, in turns, in one run.

    git worktree add ../before v0.1.0
    python benchmarks/versions.py ../before --output docs/results/benchmarks/versions_h200.json

Each version has a process of its own. The parent asks them for one measurement after the other.
"""

import argparse
import os
import statistics
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

ROUNDS, REPEATS = 12, 10
# `..._graphs`: as a CUDA graph, without the time of the host.
FAMILIES = ("kv_memory", "gmap", "gmoe", "memory_rnn")
CASES = (
    *(f"{family}_{phase}{way}" for family in FAMILIES for way in ("", "_graphs") for phase in ("train", "infer")),
    *("gmoe_train_grouped", "gmoe_infer_grouped", "hma_train", "erm_trainer", "mil_trainer"),
)


def make_case(name: str, small: bool, device: str):
    """A function without arguments that makes one step, or, for a trainer, that returns the seconds of a step."""
    import gmap
    import hma
    import kernels
    import kv_memory
    import mil
    import torch
    from timing import inference, training_step, workload

    family, _, way = name.partition("_train")
    if way == "er":
        family = name.removesuffix("_trainer")
        options = SimpleNamespace(small=small, steps=10, rounds=2)
        kind, length = ("small", 16) if small else ("minilm", 128)
        what = {"erm": "erm", "mil": "first_order"}[family]
        rows = mil.make_rows(length)
        return lambda: mil.measure(what, mil.make_model(kind, device), rows, options, graphs=False)[0]
    trains = "_train" in name
    family = family.partition("_infer")[0]
    _, inputs, labels, autocast = workload(*((4, 16) if small else (32, 256)), device)
    if family == "hma":
        return hma.vit_step(
            SimpleNamespace(small=small), device, 8 if small else 160, autocast, momentum_encoder="copy"
        )
    if family == "kv_memory":
        model = kv_memory.make_models(device)[1]
    elif family == "gmap":
        model = gmap.make_models(small, device)[1]
    elif family == "gmoe":
        grouped = {"implementation": "grouped_experts"} if "grouped" in name else {"implementation": None}
        model, inputs = kernels.gmoe(small, device, **grouped)
    else:
        model, inputs = kernels.memory_rnn(small, device, 500)
        autocast = nullcontext
    graphed = name.endswith("_graphs") and device == "cuda"
    if graphed:
        inputs.pop("attention_mask", None)  # models look at a mask, which a graph cannot
    if not trains:
        return inference(model, inputs, autocast, graphed)
    labels = torch.randint(0, 2, (len(next(iter(inputs.values()))),), device=device)
    return training_step(model, inputs, labels, autocast, graphed)


def serve(small: bool) -> None:
    """Measures what the lines of stdin name, with the version that is imported."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what trainers print
    import torch
    import transformers
    from timing import seconds

    transformers.logging.set_verbosity_error()
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    last = step = None
    for line in sys.stdin:
        name = line.strip()
        if name != last:
            last = step = None
            if device == "cuda":
                torch.cuda.empty_cache()
            torch.manual_seed(0)
            last, step = name, make_case(name, small, device)
            if not name.endswith("_trainer"):
                seconds(step, device, 5)
        found = step() if name.endswith("_trainer") else seconds(step, device, 1 if small else REPEATS)
        out.write(f"{1000 * found}\n")
        out.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", nargs="?", help="the folder of the other version")
    parser.add_argument("--cases", nargs="+", default=CASES, help="default: all")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="pairs of measurements (default: %(default)s)")
    parser.add_argument("--small", action="store_true", help="tiny models, to see that it runs")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--output", help="write the JSON here as well")
    options = parser.parse_args()
    if options.serve:
        return serve(options.small)
    import torch
    from record import write_result

    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    command = [sys.executable, __file__, "--serve", *(["--small"] if options.small else [])]
    workers = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.path.abspath(tree)},
        )
        for tree in (here, options.other)
    ]
    rows = []
    for case in options.cases:
        times: list[list[float]] = [[], []]
        rounds = 3 if case.endswith("_trainer") else options.rounds
        for turn in range(rounds):
            for index in (0, 1) if turn % 2 else (1, 0):
                workers[index].stdin.write(f"{case}\n")
                workers[index].stdin.flush()
                times[index].append(float(workers[index].stdout.readline()))
        ours, theirs = (min(found) for found in times)
        neighbours = [one / other for one, other in zip(*times, strict=True)]
        row = {"what": case, "value": round(ours, 3), "unit": "ms", "against": f"the other version {theirs:.3f} ms"}
        row |= {"ratio": round(ours / theirs, 4), "median_ratio": round(statistics.median(neighbours), 4)}
        rows.append(row)
        print(f"{case:24} {ours:9.3f} ms   ratio {row['ratio']:.3f}   median {row['median_ratio']:.3f}", flush=True)
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
        write_result("versions", device, "the shapes of the other benchmarks", rows, options.output)
    for worker in workers:
        worker.stdin.close()
        worker.wait()


if __name__ == "__main__":
    main()
