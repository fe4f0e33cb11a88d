# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
What a memory bank costs a recurrent layer: forward and backward pass of a bidirectional LSTM that reads its bank at
each step, beside `nn.LSTM` of the same size, in one run.

By arithmetic a layer of 300 units with 500 slots takes about 1.9 times as many multiplications, with 2500 slots 3.6
times as many. `infer` is the forward pass alone, with 500 slots, beside that of `nn.LSTM`. `..._graphed`, on a GPU, has
both recorded as CUDA graphs, which is how `DomainTrainer(cuda_graphs=True)` trains, and `..._graphed_eager` ours alone.
Products there are in TF32, which is what cuDNN takes for `nn.LSTM` unless told otherwise. `domains_20` is
the layer after 20 domains beside itself after one; `generate` is how many words an encoder-decoder says in a second
with four beams.

    python benchmarks/memory_rnn.py --output docs/results/benchmarks/memory_rnn_cpu.json     # on a CPU
    python benchmarks/memory_rnn.py --output docs/results/benchmarks/memory_rnn_h200.json    # on a GPU
"""

import argparse

from record import write_result
from timing import compare, seconds

AGAINST = "nn.LSTM"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32, help="texts (default: 32)")
    parser.add_argument("--steps", type=int, default=50, help="words of a text (default: 50)")
    parser.add_argument("--size", type=int, default=300, help="units, and numbers of a word vector (default: 300)")
    parser.add_argument("--slots", type=int, nargs="+", default=[500, 2500], help="slots (default: 500 2500)")
    parser.add_argument("--rounds", type=int, default=20, help="pairs of measurements (default: 20)")
    parser.add_argument("--cells", type=int, default=1024, help="units of the encoder-decoder (default: 1024)")
    parser.add_argument(
        "--precision",
        choices=["high", "highest"],
        default="high",
        help="of our products on a GPU: TF32, as cuDNN's (high, the default), or fp32 (highest)",
    )
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


def graphed(layer, words):
    """The same, recorded once and replayed."""
    from hf_memaug.kernels.cuda_graphs import GraphedFunction

    # The recording holds on to the words of its own: their gradient is taken as well.
    run = GraphedFunction(lambda inputs: _gradients(layer, inputs["words"]))
    return lambda: run({"words": words.detach()})


def _gradients(layer, words):
    import torch

    words = words.detach().requires_grad_()
    return torch.autograd.grad(layer(words)[0].sum(), [words, *layer.parameters()], allow_unused=True)


def words_a_second(options: argparse.Namespace, device: str, beams: int) -> float:
    """Of an encoder-decoder as in the paper's appendix C, for as many texts at once."""
    import torch

    from hf_memaug import MemoryRNNConfig, MemoryRNNForConditionalGeneration

    sizes = {"hidden_size": options.cells, "embedding_size": options.size, "memory_slots": [500], "vocab_size": 10000}
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 2}
    model = MemoryRNNForConditionalGeneration(MemoryRNNConfig(cell="gru", **sizes, **ids)).to(device).eval()
    texts = torch.randint(4, 10000, (options.batch, options.steps), device=device)

    def step():
        length = {"min_new_tokens": options.steps, "max_new_tokens": options.steps}
        model.generate(input_ids=texts, attention_mask=torch.ones_like(texts), num_beams=beams, **length)

    seconds(step, device, 1)
    return options.batch * options.steps / min(seconds(step, device, 1) for _ in range(3))


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

    torch.set_float32_matmul_precision(options.precision)
    if options.threads:
        torch.set_num_threads(options.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device == "cuda"
    name = torch.cuda.get_device_name() if on_gpu else f"CPU, {torch.get_num_threads()} threads"
    repeats = 5 if on_gpu else 1
    torch.manual_seed(0)
    words = torch.randn(options.batch, options.steps, options.size, device=device, requires_grad=True)
    plain = torch.nn.LSTM(options.size, options.size, bidirectional=True, batch_first=True).to(device)
    precision = "TF32" if on_gpu and options.precision == "high" else "fp32"
    setting = f"{options.size} units, both directions, {options.batch} texts of {options.steps} words, {precision}"
    rows = []
    for slots in options.slots:
        layer = make_layer(options, slots, device)
        steps = [both_passes(one, words) for one in (plain, layer)]
        rows.append(compare(f"slots_{slots}", AGAINST, *steps, device, options.rounds, repeats))
        if slots == options.slots[0]:
            steps = [forward(one, words) for one in (plain, layer)]
            rows.append(compare("infer", AGAINST, *steps, device, 2 * options.rounds, repeats))
        if on_gpu:
            steps = [graphed(one, words) for one in (plain, layer)]
            rows.append(compare(f"slots_{slots}_graphed", AGAINST, *steps, device, options.rounds, repeats))
            # cuDNN's own call has next to nothing between its launches: a graph of ours beside that one, too.
            steps = [both_passes(plain, words), graphed(layer, words)]
            what = f"slots_{slots}_graphed_eager"
            rows.append(compare(what, f"{AGAINST}, not recorded", *steps, device, options.rounds, repeats))
        # After each: what was measured stays, also where the rest is broken off.
        write_result("memory_rnn", name, setting, rows, options.output)
    few, many = 300, 300 + 19 * 500
    steps = [both_passes(make_layer(options, slots, device), words) for slots in (few, many)]
    against = f"one domain, {few} slots (as many slots: {many / few:.1f})"
    rows.append(compare("domains_20", against, *steps, device, max(3, options.rounds // 4), repeats))
    write_result("memory_rnn", name, setting, rows, options.output)
    greedy, beams = (words_a_second(options, device, beams) for beams in (1, 4))
    print(f"generate         {beams:9.0f} words/s with 4 beams, {greedy:.0f} without", flush=True)
    row = {"what": "generate", "value": round(beams), "unit": "words/s"}
    rows.append({**row, "against": f"greedy {greedy:.0f} words/s", "ratio": round(beams / greedy, 4)})
    write_result("memory_rnn", name, setting, rows, options.output)


if __name__ == "__main__":
    main()
