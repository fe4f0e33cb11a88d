# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
What experts cost: ViT-S/16 with six experts in two of its twelve layers, beside the same ViT, in one run.

By arithmetic the floor is about 1.10: two of twelve feed-forward networks are computed twice. `experts_64` is a
training step with 64 experts over one with six. On a GPU, `train_kernels` is the time of all kernels, copies and fills
of a step, forward, backward and AdamW: what the GPU does, whatever the host; `train_launches` is how many they are.

    python benchmarks/gmoe.py --compile --graphs --output docs/results/benchmarks/gmoe_h200.json     # on a GPU
    python benchmarks/gmoe.py --output docs/results/benchmarks/gmoe_cpu.json                # on a CPU
"""

import argparse

from record import write_result
from timing import compare, compare_kernels, inference, peak, training_step

AGAINST = "ViTForImageClassification"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, help="images (default: 160 on a GPU, 8 on a CPU)")
    parser.add_argument("--rounds", type=int, help="pairs of measurements (default: 15 on a GPU, 8 on a CPU)")
    parser.add_argument("--compile", action="store_true", help="also time both under torch.compile")
    parser.add_argument("--graphs", action="store_true", help="also time both as CUDA graphs (on a GPU)")
    parser.add_argument("--experts", default=None, help="experts_implementation (default: the library's own)")
    parser.add_argument("--small", action="store_true", help="a tiny transformer, to see that it runs")
    parser.add_argument("--output", help="write the JSON here as well")
    return parser.parse_args()


def make_models(options: argparse.Namespace, device: str, num_experts: int = 6):
    """Both with the same weights: the experts are copies."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    from hf_memaug import ViTGMoEForImageClassification

    sizes = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
    if options.small:
        sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "image_size": 64}
    torch.manual_seed(0)
    plain = ViTForImageClassification(ViTConfig(**sizes)).to(device)
    chosen = {"experts_implementation": options.experts} if options.experts else {}
    return plain, ViTGMoEForImageClassification.from_vit(plain, num_experts=num_experts, **chosen)


def main() -> None:
    options = parse_arguments()
    import torch

    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device == "cuda"
    name = torch.cuda.get_device_name() if on_gpu else f"CPU, {torch.get_num_threads()} threads"
    batch, rounds = options.batch or (160 if on_gpu else 8), options.rounds or (15 if on_gpu else 8)
    repeats = 10 if on_gpu else 1
    size = 64 if options.small else 224
    inputs = {"pixel_values": torch.randn(batch, 3, size, size, device=device)}
    labels = torch.randint(0, 2, (batch,), device=device)
    precision = "bf16 autocast" if on_gpu else "fp32"
    setting = f"{'tiny ViT' if options.small else 'ViT-S/16'}, {size} x {size}, batch {batch}, {precision}"

    def autocast():
        return torch.autocast(device, dtype=torch.bfloat16, enabled=on_gpu)

    rows = []
    if on_gpu:
        # Each by itself: two models in memory would hide what one needs.
        peaks = []
        for place in (0, 1):
            model = make_models(options, device)[place]
            torch.cuda.empty_cache()
            peaks.append(peak(training_step(model, inputs, labels, autocast)))
            del model
        row = {"what": "train_memory", "value": round(peaks[1], 3), "unit": "GiB"}
        rows.append({**row, "against": f"{AGAINST} {peaks[0]:.2f} GiB", "ratio": round(peaks[1] / peaks[0], 4)})
        print(f"train_memory {peaks[1]:.2f} GiB, ratio {peaks[1] / peaks[0]:.3f}", flush=True)
    ways = ["", *(["_compiled"] if options.compile else []), *(["_graphed"] if options.graphs and on_gpu else [])]
    for suffix in ways:
        pair = make_models(options, device)
        graphed = suffix == "_graphed"
        if suffix == "_compiled":
            pair = [torch.compile(model) for model in pair]
        steps = [training_step(model, inputs, labels, autocast, graphed) for model in pair]
        rows.append(compare(f"train{suffix}", AGAINST, *steps, device, rounds, repeats))
        steps = [inference(model, inputs, autocast, graphed) for model in pair]
        # A forward is a third of a step: three times the measurements in the same time.
        rows.append(compare(f"infer{suffix}", AGAINST, *steps, device, 3 * rounds, repeats))
        # After each: what was measured stays, also where the rest is broken off.
        write_result("gmoe", name, setting, rows, options.output)
    few, many = (make_models(options, device, count)[1] for count in (6, 64))
    steps = [training_step(model, inputs, labels, autocast) for model in (few, many)]
    rows.append(compare("experts_64", "6 experts", *steps, device, rounds, repeats))
    write_result("gmoe", name, setting, rows, options.output)
    if on_gpu:
        # Last: what has been profiled may be slower afterwards.
        steps = [training_step(model, inputs, labels, autocast) for model in make_models(options, device)]
        rows += compare_kernels("train", AGAINST, *steps)
        write_result("gmoe", name, setting, rows, options.output)


if __name__ == "__main__":
    main()
