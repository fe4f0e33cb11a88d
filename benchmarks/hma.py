# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
What HMA costs: the read of its real memory, and a training step of a ViT with HMA beside the same ViT.

`read` is forward and backward pass of the read, beside attention over the queue repeated for each row, as the paper
writes it (section 4.2). `queue_...` and `batch_...` say how time and memory grow with the queue and the batch. `train`
and `train_no_momentum` are training steps with and without momentum encoder.

    python benchmarks/hma.py --output docs/results/benchmarks/hma_h200.json     # on a GPU
    python benchmarks/hma.py --output docs/results/benchmarks/hma_cpu.json      # on a CPU
"""

import argparse

from record import write_result
from timing import compare, compare_kernels, peak, training_step


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, help="rows of a read (default: 512 on a GPU, 32 on a CPU)")
    parser.add_argument("--queue", type=int, help="rows of the memory (default: 2048 on a GPU, 256 on a CPU)")
    parser.add_argument("--images", type=int, help="images of a step (default: 160 on a GPU, 8 on a CPU)")
    parser.add_argument("--rounds", type=int, help="pairs of measurements (default: 15 on a GPU, 6 on a CPU)")
    parser.add_argument("--small", action="store_true", help="a tiny transformer, to see that it runs")
    parser.add_argument("--output", help="write the JSON here as well")
    return parser.parse_args()


def reads(batch: int, queue: int, width: int, device: str, autocast):
    """
    A read by the library, and one over the queue repeated for each row, with the same weights.
    """
    import torch
    from torch.nn import functional as F

    from hf_memaug.layers.datapoint_reader import DatapointReader

    torch.manual_seed(0)
    reader = DatapointReader(width, 4, 4 * width).to(device)
    parameters = list(reader.parameters())
    rows, slots = torch.randn(batch, width, device=device), torch.randn(queue, width, device=device)
    filled = torch.ones(queue, dtype=torch.bool, device=device)

    def ours():
        with autocast():
            found = reader(rows, slots, filled)[0]
        return torch.autograd.grad(found.sum(), parameters)

    def repeated():
        with autocast():
            normed = reader.norm(rows)
            seen = torch.cat([slots.expand(batch, -1, -1), rows[:, None]], dim=1)  # C^1_aug, (batch, 1 + queue, width)
            seen = reader.norm(seen)
            query, keys, values = (
                projection(one).unflatten(-1, (4, -1)).transpose(1, 2)
                for projection, one in (
                    (reader.query_projection, normed[:, None]),
                    (reader.key_projection, seen),
                    (reader.value_projection, seen),
                )
            )
            weights = (query @ keys.transpose(-1, -2) * (width // 4) ** -0.5).softmax(dim=-1)
            found = rows + (weights @ values).flatten(1)
            inner = F.gelu(reader.up_projection(reader.feed_forward_norm(found)))
            found = found + reader.down_projection(inner)
        return torch.autograd.grad(found.sum(), parameters)

    return ours, repeated


def vit_step(options, device: str, images: int, autocast, **kwargs):
    """One training step; without `kwargs`, of the backbone and a linear head."""
    import torch
    from transformers import ViTConfig, ViTModel

    from hf_memaug import HMAForImageClassification

    sizes = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
    if options.small:
        sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "image_size": 64}
    torch.manual_seed(0)
    vit = ViTModel(ViTConfig(**sizes), add_pooling_layer=False).to(device)
    kwargs = kwargs or {"augmentation": "none"}
    model = HMAForImageClassification.from_backbone(vit, num_labels=10, real_memory_size=4 * images, **kwargs)
    size = 64 if options.small else 224
    inputs = {"pixel_values": torch.randn(images, 3, size, size, device=device)}
    return training_step(model, inputs, torch.randint(0, 10, (images,), device=device), autocast)


def main() -> None:
    options = parse_arguments()
    import torch

    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device == "cuda"
    name = torch.cuda.get_device_name() if on_gpu else f"CPU, {torch.get_num_threads()} threads"
    batch, queue = options.batch or (512 if on_gpu else 32), options.queue or (2048 if on_gpu else 256)
    images, rounds = options.images or (160 if on_gpu else 8), options.rounds or (15 if on_gpu else 6)
    repeats, width = 5 if on_gpu else 1, 40 if options.small else 832
    backbone, precision = "tiny ViT" if options.small else "ViT-S/16", "bf16 autocast" if on_gpu else "fp32"
    setting = f"read: batch {batch}, queue {queue}, width {width}; {backbone}, batch {images}; {precision}"

    def autocast():
        return torch.autocast(device, dtype=torch.bfloat16, enabled=on_gpu)

    rows, against = [], "the queue repeated for each row"
    ours, repeated = reads(batch, queue, width, device, autocast)
    rows.append(compare("read", against, repeated, ours, device, rounds, repeats))
    if on_gpu:
        rows.append(memory_row("read_memory", against, peak(repeated, beside=True), peak(ours, beside=True)))
    for what, larger in ((f"queue_{32 * queue}", (batch, 32 * queue)), (f"batch_{8 * batch}", (8 * batch, queue))):
        grown = reads(*larger, width, device, autocast)[0]
        linear = f"batch {batch}, queue {queue} (linear: {larger[0] * larger[1] // (batch * queue)})"
        rows.append(compare(what, linear, ours, grown, device, rounds, repeats))
        if on_gpu:
            rows.append(memory_row(f"{what}_memory", linear, peak(ours, beside=True), peak(grown, beside=True)))
    write_result("hma", name, setting, rows, options.output)
    plain = vit_step(options, device, images, autocast)
    for what, momentum in (("train_no_momentum", "none"), ("train", "copy")):
        step = vit_step(options, device, images, autocast, momentum_encoder=momentum)
        against = "the backbone and a linear head"
        rows.append(compare(what, against, plain, step, device, rounds, repeats))
        rows += compare_kernels(what, against, plain, step) if on_gpu else []
        write_result("hma", name, setting, rows, options.output)


def memory_row(what: str, against: str, theirs: float, ours: float) -> dict:
    print(f"{what:16} {ours:9.3f} GiB   ratio {ours / theirs:.4f}", flush=True)
    same = {"what": what, "value": round(ours, 4), "unit": "GiB"}
    return {**same, "against": f"{against} {theirs:.3f} GiB", "ratio": round(ours / theirs, 5)}


if __name__ == "__main__":
    main()
