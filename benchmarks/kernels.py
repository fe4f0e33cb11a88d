# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
What each kernel buys: a training step and a forward pass of the family that uses it, with the kernel (`kernels`),
without it (`plain`), and without it under `torch.compile` (`..._compiled`) and CUDA graphs (`..._graphs`).

All variants of a case are timed in turns in one process. `ratio` is the median over the turns against `plain`. The row
without a variant compares the kernels with the fastest variant that does without them.

    python benchmarks/kernels.py --output docs/results/benchmarks/kernels_h200.json
    python benchmarks/kernels.py --only gmoe hma_head --no-compile
"""

import argparse
import contextlib
import json
import signal
import statistics
import time
from functools import partial
from unittest import mock

from record import write_result
from timing import seconds

ROUNDS, COMPILE_SECONDS = 8, 90


class Variant:
    """
    Args:
        kwargs: what the case's model is built with.
        patches: attributes of modules, replaced while a step runs.
        graphs: record the step as a CUDA graph.
        compiled: the mode of `torch.compile`.
    """

    def __init__(self, name: str, kwargs=None, patches=None, graphs=False, compiled: str | None = None):
        self.name, self.kwargs, self.patches = name, kwargs or {}, patches or {}
        self.graphs, self.compiled = graphs, compiled

    @contextlib.contextmanager
    def active(self):
        with contextlib.ExitStack() as stack:
            for target, value in self.patches.items():
                stack.enter_context(mock.patch(target, value))
            yield


def variants(kernels: dict[str, dict], plain: dict[str, dict], compile_too: bool, cuda: bool):
    """Every way as it is and under CUDA graphs; the plain ones also under `torch.compile`."""
    found = [Variant(name, **how) for name, how in {**kernels, **plain}.items()]
    # One expert after the other waits for the GPU: it can be neither recorded nor compiled as a whole.
    whole = {name: how for name, how in plain.items() if "eager" not in how.get("kwargs", {}).values()}
    if cuda:
        found += [Variant(f"{name}_graphs", **how, graphs=True) for name, how in {**kernels, **whole}.items()]
    if compile_too:
        found += [Variant(f"{name}_compiled", **how, compiled="default") for name, how in whole.items()]
        if cuda and not kernels:
            name, how = next(iter(plain.items()))
            found.append(Variant(f"{name}_compiled_graphs", **how, compiled="reduce-overhead"))
    return found


def steps_of(variant: Variant, build, inputs, autocast):
    """A training step and a forward pass of one variant."""
    import torch

    from hf_memaug.kernels.cuda_graphs import GraphedFunction

    torch.manual_seed(0)
    with variant.active():
        model = build(**variant.kwargs)
    run = torch.compile(model, mode=variant.compiled) if variant.compiled else model
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=1e-6, fused=True)

    def both_passes(given):
        for parameter in learned:
            parameter.grad = None
        with autocast():
            loss = run(**given).loss
        loss.backward()
        if hasattr(model, "update_memory"):
            model.update_memory()
        return [parameter.grad for parameter in learned]

    def forward(given):
        with torch.no_grad(), autocast():
            return run(**given).logits

    unlabelled = {name: value for name, value in inputs.items() if name != "labels"}
    passes, read = (GraphedFunction(one) if variant.graphs else one for one in (both_passes, forward))

    def train():
        model.train()
        with variant.active():
            for parameter, gradient in zip(learned, passes(inputs), strict=True):
                parameter.grad = gradient
            optimizer.step()

    def infer():
        model.eval()
        with variant.active():
            read(unlabelled)

    return train, infer


def gmoe(small, device):
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    from hf_memaug import ViTGMoEForImageClassification

    sizes = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
    if small:
        sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "image_size": 64}
    batch, side = (4, 64) if small else (160, 224)

    def build(implementation):
        vit = ViTForImageClassification(ViTConfig(**sizes)).to(device)
        return ViTGMoEForImageClassification.from_vit(vit, num_experts=6, experts_implementation=implementation)

    def way(implementation, **more):
        return {"kwargs": {"implementation": implementation}, **more}

    no_routing = {"hf_memaug.modeling.modeling_vit_gmoe.can_fuse_routing": lambda *a: False}
    kernels = {"kernels": way("fused_experts"), "kernels_no_routing": way("fused_experts", patches=no_routing)}
    plain = {"plain": way("eager"), "grouped_experts": way("grouped_experts"), "grouped_mm": way("grouped_mm")}
    inputs = {"pixel_values": torch.randn(batch, 3, side, side, device=device)}
    return build, {**inputs, "labels": torch.randint(0, 2, (batch,), device=device)}, kernels, plain


def hma(small, device, head: bool):
    import torch
    from transformers import ViTConfig, ViTModel

    import hf_memaug.modeling.modeling_hma_head as module
    from hf_memaug import HMAConfig, HMAForImageClassification, HMAHead

    width, batch, queue = (32, 4, 64) if small else (384, 512 if head else 160, 2048)
    settings = {"num_labels": 10, "real_memory_size": queue}

    def build():
        if head:
            return HMAHead(HMAConfig(feature_size=width, **settings)).to(device)
        heads, side = (2, 64) if small else (6, 224)
        vit = ViTConfig(hidden_size=width, num_attention_heads=heads, intermediate_size=4 * width, image_size=side)
        return HMAForImageClassification.from_backbone(ViTModel(vit, add_pooling_layer=False).to(device), **settings)

    name = module.__name__
    kernels = {}
    if hasattr(module, "can_fuse"):
        kernels = {"kernels": {}, "kernels_slots": {"patches": {f"{name}.read_rows_fused": None}}}
        plain = {"plain": {"patches": {f"{name}.can_fuse": lambda *a: False}}}
    else:
        plain = {"plain": {}}
    side = 64 if small else 224
    inputs = {"features": torch.randn(batch, width, device=device)}
    if not head:
        inputs = {"pixel_values": torch.randn(batch, 3, side, side, device=device)}
    return build, {**inputs, "labels": torch.randint(0, 10, (batch,), device=device)}, kernels, plain


def memory_rnn(small, device, slots: int, cell: str = "lstm"):
    import torch

    from hf_memaug import MemoryRNNConfig, MemoryRNNForSequenceClassification

    size, words = (16, 5) if small else (300, 50)
    config = {"hidden_size": size, "embedding_size": size, "vocab_size": 10000, "cell": cell}

    def build():
        return MemoryRNNForSequenceClassification(MemoryRNNConfig(memory_slots=[slots], **config)).to(device)

    inputs = {"input_ids": torch.randint(4, 10000, (32, words), device=device)}
    plain = {"plain": {"patches": {"hf_memaug.modeling.modeling_memory_rnn.arithmetic_for": lambda *a: None}}}
    return build, {**inputs, "labels": torch.randint(0, 2, (32,), device=device)}, {"kernels": {}}, plain


def encoder(small, device, family: str, minilm: bool):
    """KV memory or G-MAP: their only kernel is the CUDA graph."""
    import torch
    from transformers import BertConfig

    from hf_memaug import (
        BertWithKVMemoryConfig,
        BertWithKVMemoryForSequenceClassification,
        GMAPConfig,
        GMAPForSequenceClassification,
    )

    sizes = {"hidden_size": 384, "intermediate_size": 1536} if minilm else {}
    if small:
        sizes = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2}

    def build():
        if family == "gmap":
            return GMAPForSequenceClassification(GMAPConfig(general=BertConfig(**sizes), domain=BertConfig(**sizes)))
        return BertWithKVMemoryForSequenceClassification(BertWithKVMemoryConfig(**sizes))

    batch, length = (2, 8) if small else (32, 128)
    inputs = {"input_ids": torch.randint(1000, 30000, (batch, length), device=device)}
    labels = torch.randint(0, 2, (batch,), device=device)
    return lambda: build().to(device), {**inputs, "labels": labels}, {}, {"plain": {}}


CASES = {
    "gmoe": gmoe,
    "rnn_500": partial(memory_rnn, slots=500),
    "kv_minilm": partial(encoder, family="kv", minilm=True),
    "gmap_minilm": partial(encoder, family="gmap", minilm=True),
    "hma_head": partial(hma, head=True),
    "hma_vit": partial(hma, head=False),
    "rnn_2500": partial(memory_rnn, slots=2500),
    "rnn_gru_500": partial(memory_rnn, slots=500, cell="gru"),
    "gmap_bert": partial(encoder, family="gmap", minilm=False),
    "kv_bert": partial(encoder, family="kv", minilm=False),
}
# A compiler takes a minute for each of these, and tells nothing new of the others.
COMPILED = ("gmoe", "rnn_500", "kv_minilm", "gmap_minilm", "hma_head")


@contextlib.contextmanager
def at_most(limit: float):
    def stop(*_):
        raise TimeoutError(f"took more than {limit:.0f} s")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(limit, 0.1))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def measure(case: str, options, device: str, left) -> list[dict]:
    import torch

    build, inputs, kernels, plain = CASES[case](options.small, device)
    bf16 = not case.startswith("rnn")  # the kernels of the recurrent cell are for float32

    def autocast():
        return torch.autocast(device, dtype=torch.bfloat16, enabled=bf16 and device == "cuda")

    rows, ready = [], {"train": {}, "infer": {}}
    for variant in variants(kernels, plain, case in COMPILED and not options.no_compile, device == "cuda"):
        try:
            with at_most(min(COMPILE_SECONDS, left())):
                pair = dict(zip(("train", "infer"), steps_of(variant, build, inputs, autocast), strict=True))
                for phase, step in pair.items():
                    seconds(step, device, 3)
                    ready[phase][variant.name] = step
        except Exception as error:
            rows.append({"what": f"{case}_{variant.name}", "error": f"{type(error).__name__}: {error}"[:300]})
            print(json.dumps(rows[-1]), flush=True)
    for phase, steps in ready.items():
        times = {name: [] for name in steps}
        for turn in range(2 if options.small else ROUNDS):
            for name in list(steps)[:: 1 if turn % 2 else -1]:
                times[name].append(seconds(steps[name], device, 1 if options.small else 5))

        def row(what, name, against, times=times):
            ratio = statistics.median(a / b for a, b in zip(times[name], times[against], strict=True))
            value = round(1000 * statistics.median(times[name]), 3)
            rows.append({"what": what, "value": value, "unit": "ms", "against": against, "ratio": round(ratio, 4)})
            print(json.dumps(rows[-1]), flush=True)

        for name in times:
            row(f"{case}_{phase}_{name}", name, "plain")
        medians = {name: statistics.median(values) for name, values in times.items()}
        with_kernels = [name for name in medians if name.startswith("kernels" if kernels else "plain_graphs")]
        others = [name for name in medians if name not in with_kernels]
        if with_kernels and others:
            row(f"{case}_{phase}", min(with_kernels, key=medians.get), min(others, key=medians.get))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="cases (default: all)")
    parser.add_argument("--no-compile", action="store_true", help="leave `torch.compile` out")
    parser.add_argument("--seconds", type=float, default=520, help="skip what is left after this many (default: 520)")
    parser.add_argument("--small", action="store_true", help="tiny models, to see that it runs")
    parser.add_argument("--output", help="write the JSON here as well")
    options = parser.parse_args()
    import torch

    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    end, rows = time.monotonic() + options.seconds, []
    for case in options.only:
        try:
            rows += measure(case, options, device, lambda: end - time.monotonic())
        except Exception as error:
            rows.append({"what": case, "error": f"{type(error).__name__}: {error}"[:300]})
            print(json.dumps(rows[-1]), flush=True)
        if device == "cuda":
            torch.cuda.empty_cache()
        # After each case: what was measured stays.
        write_result("kernels", name, "bf16 autocast; memory RNN in TF32", rows, options.output)


if __name__ == "__main__":
    main()
