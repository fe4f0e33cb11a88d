# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
What the memory costs: the same RoBERTa with and without it, in one run, and the time to import the library.

Both models are timed in turns, so that a change of the machine's clock meets both alike. The ratio is that of the
fastest measurements: what else a machine does can only add to them. The median ratio of neighbours stands beside it.

    python benchmarks/kv_memory.py                     # this machine: CPU, or the GPU if there is one
    python benchmarks/kv_memory.py --output docs/results/benchmarks/kv_memory_cpu.json
"""

import argparse
import statistics
import subprocess
import sys

from record import write_result
from timing import compare, inference, training_step, workload

AGAINST = "RobertaForSequenceClassification"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="cpu or cuda (default: cuda if there is one)")
    parser.add_argument("--batch", type=int, help="rows (default: 32 on a GPU, 4 on a CPU)")
    parser.add_argument("--length", type=int, help="tokens a row (default: 256 on a GPU, 128 on a CPU)")
    parser.add_argument(
        "--rounds", type=int, help="pairs of measurements of a training step (default: 30 on a GPU, 20 on a CPU)"
    )
    parser.add_argument("--compile", action="store_true", help="also time both under torch.compile with CUDA graphs")
    parser.add_argument("--output", help="write the JSON here as well")
    return parser.parse_args()


def make_models(device: str):
    """
    RoBERTa-base's shape with random weights, a classifier on top, without and with a memory of the paper's size.

    Both hold the same encoder, tensor for tensor: where weights happen to lie in the memory of a machine alone can make
    a difference of several per cent.
    """
    import torch
    from transformers import RobertaConfig, RobertaForSequenceClassification

    from hf_memaug import RobertaWithKVMemoryConfig, RobertaWithKVMemoryForSequenceClassification

    torch.manual_seed(0)
    plain = RobertaForSequenceClassification(RobertaConfig(max_position_embeddings=514))
    memory = RobertaWithKVMemoryForSequenceClassification(RobertaWithKVMemoryConfig(max_position_embeddings=514))
    plain.roberta.embeddings, plain.roberta.encoder = memory.roberta.embeddings, memory.roberta.encoder
    return plain.to(device), memory.to(device)


def import_cost(rounds: int = 7) -> dict:
    """Seconds of `import hf_memaug` in a fresh process that has imported transformers."""
    code = "import transformers, time; t = time.perf_counter(); import hf_memaug; print(time.perf_counter() - t)"
    found = [float(subprocess.check_output([sys.executable, "-c", code], text=True)) for _ in range(rounds)]
    total = "import time; t = time.perf_counter(); import transformers; print(time.perf_counter() - t)"
    theirs = [float(subprocess.check_output([sys.executable, "-c", total], text=True)) for _ in range(3)]
    median, base = statistics.median(found), statistics.median(theirs)
    print(f"{'import':16} {1000 * median:9.2f} ms   over import transformers ({1000 * base:.0f} ms)", flush=True)
    return {
        "what": "import",
        "value": round(median, 4),
        "unit": "s over import transformers",
        "against": "import transformers",
        "ratio": round((base + median) / base, 4),
    }


def main() -> None:
    options = parse_arguments()
    import torch

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = device == "cuda"
    batch, length = options.batch or (32 if on_gpu else 4), options.length or (256 if on_gpu else 128)
    rounds, repeats = options.rounds or (30 if on_gpu else 20), 10 if on_gpu else 1
    name, inputs, labels, autocast = workload(batch, length, device)
    precision = "bf16 autocast" if on_gpu else "fp32"
    print(f"{name}, RoBERTa-base shape, batch {batch} x {length}, {precision}")

    rows = []
    for suffix in ("", "_compiled") if options.compile else ("",):
        plain, memory = make_models(device)
        if suffix:
            # With CUDA graphs: at this size a GPU waits for Python between the kernels otherwise.
            plain, memory = (torch.compile(model, mode="reduce-overhead") for model in (plain, memory))
        pair = [training_step(model, inputs, labels, autocast) for model in (plain, memory)]
        rows.append(compare(f"train{suffix}", AGAINST, *pair, device, rounds, repeats))
        pair = [inference(model, inputs, autocast) for model in (plain, memory)]
        # A forward is a third of a step: three times the measurements in the same time.
        rows.append(compare(f"infer{suffix}", AGAINST, *pair, device, 3 * rounds, repeats))
    rows.append(import_cost())

    setting = f"RoBERTa-base shape, batch {batch} x {length}, {precision}"
    write_result("kv_memory", name, setting, rows, options.output)


if __name__ == "__main__":
    main()
