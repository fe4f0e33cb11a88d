# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
What a memory bank costs a recurrent layer: forward and backward pass of a bidirectional LSTM that reads its bank at
each step, beside `nn.LSTM` of the same size, in one run.

By arithmetic a layer of 300 units with 500 slots takes about 1.9 times as many multiplications, with 2500 slots 3.6
times as many. `infer` is the forward pass alone, with 500 slots, beside that of `nn.LSTM`.

    python benchmarks/memory_rnn.py --output docs/results/benchmarks/memory_rnn_cpu.json     # on a CPU
    python benchmarks/memory_rnn.py --output docs/results/benchmarks/memory_rnn_h200.json    # on a GPU
"""

import argparse

from record import write_result
from timing import compare

AGAINST = "nn.LSTM"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32, help="texts (default: 32)")
    parser.add_argument("--steps", type=int, default=50, help="words of a text (default: 50)")
    parser.add_argument("--size", type=int, default=300, help="units, and numbers of a word vector (default: 300)")
    parser.add_argument("--slots", type=int, nargs="+", default=[500, 2500], help="slots (default: 500 2500)")
    parser.add_argument("--rounds", type=int, default=20, help="pairs of measurements (default: 20)")
    parser.add_argument("--threads", type=int, help="of the CPU (default: all)")
    parser.add_argument("--output", help="write the JSON here as well")
    return parser.parse_args()


def make_layer(options: argparse.Namespace, slots: int, device: str):
    """Started as the models start it."""
    from hf_memaug import MemoryRNNConfig, MemoryRNNModel

    sizes = {"hidden_size": options.size, "embedding_size": options.size, "vocab_size": 10}
    return MemoryRNNModel(MemoryRNNConfig(memory_slots=[slots], **sizes)).layer.to(device)


def both_passes(layer, words):
    """A function that takes the gradients of all weights, and of the words."""

    def step():
        for parameter in layer.parameters():
            parameter.grad = None
        words.grad = None
        layer(words)[0].sum().backward()

    return step


def forward(layer, words):
    """A function that reads the words, and learns nothing."""
    import torch

    def step():
        with torch.inference_mode():
            layer(words)

    return step


def main() -> None:
    options = parse_arguments()
    import torch

    if options.threads:
        torch.set_num_threads(options.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device == "cuda"
    name = torch.cuda.get_device_name() if on_gpu else f"CPU, {torch.get_num_threads()} threads"
    repeats = 5 if on_gpu else 1
    torch.manual_seed(0)
    words = torch.randn(options.batch, options.steps, options.size, device=device, requires_grad=True)
    plain = torch.nn.LSTM(options.size, options.size, bidirectional=True, batch_first=True).to(device)
    setting = f"{options.size} units, both directions, {options.batch} texts of {options.steps} words, fp32"
    rows = []
    for slots in options.slots:
        layer = make_layer(options, slots, device)
        steps = [both_passes(one, words) for one in (plain, layer)]
        rows.append(compare(f"slots_{slots}", AGAINST, *steps, device, options.rounds, repeats))
        if slots == options.slots[0]:
            steps = [forward(one, words) for one in (plain, layer)]
            rows.append(compare("infer", AGAINST, *steps, device, 2 * options.rounds, repeats))
        # After each: what was measured stays, also where the rest is broken off.
        write_result("memory_rnn", name, setting, rows, options.output)


if __name__ == "__main__":
    main()
