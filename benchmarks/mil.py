# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
What a step of MIL's meta-training costs beside a step of plain training on the same batch.

RoBERTa-base's shape with random weights, 32 x 256 tokens of the source domains and as many of the meta-target, bf16.
Both are the library's own trainers, timed over whole steps: data, clipping, optimizer and all. The floor of
`first_order` is 5/3: one training step (a forward and a backward pass of twice its cost) and a forward pass over both
batches.

    python benchmarks/mil.py --output docs/results/benchmarks/mil.json     # on a GPU
    python benchmarks/mil.py --small                                       # anywhere, to see that it runs
"""

import argparse
import statistics
import tempfile
import time
from types import SimpleNamespace

from record import write_result


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a tiny encoder and short rows")
    parser.add_argument("--steps", type=int, default=30, help="steps of one measurement (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each (default: %(default)s)")
    parser.add_argument("--output", help="write the JSON here as well")
    return parser.parse_args()


def make_rows(length: int, count: int = 960):
    """Random tokens, all rows of one length, in four domains."""
    import random

    from hf_memaug.data import DomainDataset

    generator = random.Random(0)
    return DomainDataset(
        {
            "input_ids": [[0] + [generator.randrange(5, 1000) for _ in range(length - 1)] for _ in range(count)],
            "attention_mask": [[1] * length for _ in range(count)],
            "labels": [generator.randrange(2) for _ in range(count)],
            "domain": ["abcd"[row % 4] for row in range(count)],
        }
    )


def make_model(kind: str, device):
    import torch

    from hf_memaug import (
        BertWithKVMemoryConfig,
        BertWithKVMemoryForSequenceClassification,
        RobertaWithKVMemoryConfig,
        RobertaWithKVMemoryForSequenceClassification,
    )

    torch.manual_seed(0)
    if kind == "minilm":
        sizes = {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}
        return BertWithKVMemoryForSequenceClassification(BertWithKVMemoryConfig(**sizes)).to(device)
    sizes = {"max_position_embeddings": 514}
    if kind == "small":
        sizes |= {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    return RobertaWithKVMemoryForSequenceClassification(RobertaWithKVMemoryConfig(**sizes)).to(device)


def measure(what: str, model, rows, options, graphs: bool) -> tuple[float, float]:
    """Seconds of a step, the fastest of the rounds, and the peak of the device's memory in bytes."""
    import torch
    from transformers import TrainerCallback

    from hf_memaug import BilevelTrainer, BilevelTrainingArguments, DomainTrainer, DomainTrainingArguments
    from hf_memaug.data.collators import PaddingCollator

    on_gpu = torch.cuda.is_available()
    warm_up, steps = 10, options.steps
    total = warm_up + options.rounds * steps

    class Clock(TrainerCallback):
        def __init__(self):
            self.marks = []

        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step >= warm_up and (state.global_step - warm_up) % steps == 0:
                if on_gpu:
                    torch.cuda.synchronize()
                self.marks.append(time.perf_counter())

    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        common = {
            "output_dir": folder,
            "per_device_train_batch_size": 4 if options.small else 32,
            "max_steps": total,
            "bf16": on_gpu,
            "cuda_graphs": graphs,
            "save_strategy": "no",
            "logging_strategy": "no",
            "logging_nan_inf_filter": False,
            "report_to": [],
            "disable_tqdm": True,
        }
        # The collator that a tokenizer brings.
        tokenizer = SimpleNamespace(pad_token_id=1, pad_token_type_id=0, padding_side="right")
        given = {"train_dataset": rows, "callbacks": [clock], "data_collator": PaddingCollator(tokenizer)}
        if what == "erm":
            model.freeze_memory()  # the same parameters learn in both
            arguments = DomainTrainingArguments(**common)
            trainer = DomainTrainer(model=model, args=arguments, **given)
        else:
            arguments = BilevelTrainingArguments(**common, episodes=total, episode_steps=1, hypergradient=what)
            trainer = BilevelTrainer(model=model, args=arguments, **given)
        if on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        trainer.train() if what == "erm" else trainer.meta_train()
    rounds = [(after - before) / steps for before, after in zip(clock.marks, clock.marks[1:], strict=False)]
    peak = torch.cuda.max_memory_allocated() if on_gpu else 0
    print(
        f"  {what}{' with CUDA graphs' if graphs else ''}: {1000 * min(rounds):.2f} ms (median "
        f"{1000 * statistics.median(rounds):.2f}), {peak / 2**30:.2f} GiB",
        flush=True,
    )
    return min(rounds), peak


def main() -> None:
    options = parse_arguments()
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_float32_matmul_precision("high")
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    kind, length = ("small", 16) if options.small else ("roberta-base", 256)
    rows, found = make_rows(length), {}
    result_rows = []

    def add(what, value, unit, against=None, ratio=None):
        result_rows.append({"what": what, "value": value, "unit": unit, "against": against, "ratio": ratio})

    for graphs in (False, True) if on_gpu else (False,):
        for what in ("erm", "first_order", "exact"):
            found[what, graphs] = measure(what, make_model(kind, device), rows, options, graphs)
    for (what, graphs), (seconds, peak) in found.items():
        if what == "erm":
            continue
        against, against_peak = found["erm", graphs]
        suffix = "_graphs" if graphs else ""
        add(f"{what}{suffix}", 1000 * seconds, "ms", f"erm {1000 * against:.2f} ms", seconds / against)
        if not graphs and against_peak:
            add(f"{what}_memory", peak / 2**30, "GiB", f"erm {against_peak / 2**30:.2f} GiB", peak / against_peak)
    if on_gpu and not options.small:
        for graphs in (False, True):
            seconds, _ = measure("erm", make_model("minilm", device), rows, options, graphs)
            add(f"minilm_erm{'_graphs' if graphs else ''}", 1 / seconds, "steps/s")
    for row in result_rows:
        ratio = f"  {row['ratio']:.3f} of {row['against']}" if row["ratio"] else ""
        print(f"{row['what']:>22} {row['value']:9.2f} {row['unit']}{ratio}")
    setting = f"{kind} shape, batch 32 x {length} of the sources and as many of the meta-target, bf16"
    write_result("mil", torch.cuda.get_device_name() if on_gpu else "CPU", setting, result_rows, options.output)


if __name__ == "__main__":
    main()
