# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
What grouped experts and CUDA graphs buy: a training step and a forward pass of the families that use them, beside the
plain model, also under `torch.compile` (`..._compiled`).

`ratio` is the median over turns in one process, against `plain`.

    python benchmarks/kernels.py --output docs/results/benchmarks/kernels_h200.json
"""

import argparse
import statistics
from functools import partial

from record import write_result
from timing import inference, seconds, training_step

ROUNDS, REPEATS = 8, 5


def gmoe(small: bool, device: str, implementation: str = "grouped_experts"):
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    from hf_memaug import ViTGMoEForImageClassification

    sizes = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
    if small:
        sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "image_size": 64}
    batch, side = (4, 64) if small else (160, 224)
    vit = ViTForImageClassification(ViTConfig(**sizes)).to(device)
    model = ViTGMoEForImageClassification.from_vit(vit, num_experts=6, experts_implementation=implementation)
    return model, {"pixel_values": torch.randn(batch, 3, side, side, device=device)}


def memory_rnn(small: bool, device: str, slots: int):
    import torch

    from hf_memaug import MemoryRNNConfig, MemoryRNNForSequenceClassification

    size, words = (16, 5) if small else (300, 50)
    config = MemoryRNNConfig(memory_slots=[slots], hidden_size=size, embedding_size=size, vocab_size=10000)
    inputs = {"input_ids": torch.randint(4, 10000, (32, words), device=device)}
    return MemoryRNNForSequenceClassification(config).to(device), inputs


def encoder(small: bool, device: str, family: str):
    """Of MiniLM's size, where a GPU waits for Python between the kernels."""
    import torch
    from transformers import BertConfig

    from hf_memaug import (
        BertWithKVMemoryConfig,
        BertWithKVMemoryForSequenceClassification,
        GMAPConfig,
        GMAPForSequenceClassification,
    )

    sizes = {"hidden_size": 384, "intermediate_size": 1536}
    if small:
        sizes = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2}
    if family == "gmap":
        model = GMAPForSequenceClassification(GMAPConfig(general=BertConfig(**sizes), domain=BertConfig(**sizes)))
    else:
        model = BertWithKVMemoryForSequenceClassification(BertWithKVMemoryConfig(**sizes))
    shape = (2, 8) if small else (32, 128)
    return model.to(device), {"input_ids": torch.randint(1000, 30000, shape, device=device)}


# For each case its variants: how the model is built, whether it is a CUDA graph, and whether it is compiled.
PLAIN_AND_GRAPHS = {"": ({}, False, False), "_graphs": ({}, True, False), "_compiled": ({}, False, True)}
EXPERTS = {
    "plain": ({"implementation": "eager"}, False, False),
    "grouped_mm": ({"implementation": "grouped_mm"}, False, False),
    "grouped_mm_compiled": ({"implementation": "grouped_mm"}, False, True),
    **{f"grouped_experts{name}": variant for name, variant in PLAIN_AND_GRAPHS.items()},
}
OTHERS = {f"plain{name}": variant for name, variant in PLAIN_AND_GRAPHS.items()}
CASES = {
    "gmoe": (gmoe, EXPERTS),
    "rnn_500": (partial(memory_rnn, slots=500), OTHERS),
    "kv_minilm": (partial(encoder, family="kv"), OTHERS),
    "gmap_minilm": (partial(encoder, family="gmap"), OTHERS),
}


def measure(case: str, device: str, options: argparse.Namespace) -> list[dict]:
    import torch

    make, variants = CASES[case]
    on_gpu, repeats = device == "cuda", 1 if options.small else REPEATS

    def autocast():
        # The recurrent cell computes in float32 anyway.
        return torch.autocast(device, dtype=torch.bfloat16, enabled=on_gpu and not case.startswith("rnn"))

    steps = {"train": {}, "infer": {}}
    for name, (kwargs, graphed, compiled) in variants.items():
        if (graphed and not on_gpu) or (compiled and options.no_compile):
            continue
        torch.manual_seed(0)
        model, inputs = make(options.small, device, **kwargs)
        model = torch.compile(model) if compiled else model
        batch = len(next(iter(inputs.values())))
        labels = torch.randint(0, 2, (batch,), device=device)
        steps["train"][name] = training_step(model, inputs, labels, autocast, graphed)
        steps["infer"][name] = inference(model, inputs, autocast, graphed)
    rows = []
    for phase, by_name in steps.items():
        times = {name: [] for name in by_name}
        for turn in range(-1, 2 if options.small else ROUNDS):
            for name, step in by_name.items():
                taken = seconds(step, device, repeats)
                if turn >= 0:  # the first turn warms up
                    times[name].append(taken)
        for name, ours in times.items():
            ratio = statistics.median(a / b for a, b in zip(ours, times["plain"], strict=True))
            value = round(1000 * statistics.median(ours), 3)
            row = {"what": f"{case}_{phase}_{name}", "value": value, "unit": "ms", "against": "plain"}
            rows.append({**row, "ratio": round(ratio, 4)})
            print(f"{row['what']:40} {value:9.2f} ms   ratio {ratio:.3f}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="cases (default: all)")
    parser.add_argument("--no-compile", action="store_true", help="skip `torch.compile`")
    parser.add_argument("--small", action="store_true", help="tiny models, to see that it runs")
    parser.add_argument("--output", help="write the JSON here as well")
    options = parser.parse_args()
    import torch

    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    rows = []
    for case in options.only:
        rows += measure(case, device, options)
        write_result("kernels", name, "bf16 autocast; memory RNN in TF32", rows, options.output)


if __name__ == "__main__":
    main()
