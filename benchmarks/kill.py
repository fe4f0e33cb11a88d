# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
What `kill -9` costs a job, and what it costs to have it cost no more: BERTs of several sizes with AdamW, each trained
with and without `Snapshots`, in turns.

`lost` is the longest time that a kill could have taken back in the run: from the moment that a state was whole until
the next one was. `steps_lost` is the most steps that were trained in it, the one under way counted in: 1 is the least.
`saved` is the part of the steps that were saved, `interval` the mean time between two saves, `stall` what a save keeps
training waiting, and `train` a step with saves over one without. The first two saves, for which the files are made, are
in none of them but `saved`.

    python benchmarks/kill.py --output docs/results/benchmarks/kill_cpu.json
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from record import write_result

SIZES = {
    "small": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128},
    "medium": {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024},
    "base": {},
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES), help="(default: all)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run, about (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="pairs of runs (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=2, help="rows (default: %(default)s)")
    parser.add_argument(
        "--share", type=float, help="`save_share` of the runs; 1: after every step (default: the command's)"
    )
    parser.add_argument("--output", help="write the JSON here as well")
    return parser.parse_args()


def make_trainer(size: str, steps: int, batch: int, share: float | None, folder: str, callbacks: list):
    from transformers import BertConfig, BertForSequenceClassification, PrinterCallback, set_seed

    from hf_memaug.data import generated_reviews
    from hf_memaug.runs.small_models import small_model
    from hf_memaug.training import DomainTrainer, DomainTrainingArguments

    rows = generated_reviews(rows_per_domain=40)
    tokenizer = small_model(rows)[1]
    set_seed(0)
    config = BertConfig(vocab_size=len(tokenizer) if size == "small" else 30522, **SIZES[size])
    arguments = DomainTrainingArguments(
        folder,
        max_steps=steps,
        per_device_train_batch_size=batch,
        save_strategy="no",
        save_share=share,
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = DomainTrainer(
        BertForSequenceClassification(config),
        arguments,
        train_dataset=rows.tokenize(tokenizer, 32),
        processing_class=tokenizer,
        callbacks=callbacks,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def watched():
    """`Snapshots` that notes when states were whole."""
    from hf_memaug.training.snapshots import Snapshots

    class Watched(Snapshots):
        def __init__(self):
            super().__init__()
            self.whole, self.stalls, self.bytes = [], [], 0

        def on_train_begin(self, args, state, control, **kwargs):
            super().on_train_begin(args, state, control, **kwargs)
            # Nothing in advance: a short run is to show what a long one has.
            self._spare = 0.0

        def _save(self, trainer):
            start = time.monotonic()
            spent = super()._save(trainer)
            self.whole.append((time.monotonic(), trainer.state.global_step))
            self.stalls.append(self.whole[-1][0] - start - spent)
            return spent

        def on_train_end(self, args, state, control, **kwargs):
            self.bytes = max((file.stat().st_size for file in self._files.folder.glob("state-*")), default=0)
            super().on_train_end(args, state, control, **kwargs)

    return Watched()


def run(size: str, steps: int, batch: int, saves: bool, share: float | None = None) -> tuple[float, object]:
    """Seconds of a step, and what was noted of the saves."""
    from transformers import TrainerCallback

    times = []

    class Clock(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            times.append(time.monotonic())

    snapshots = watched() if saves else None
    with tempfile.TemporaryDirectory() as folder:
        callbacks = [Clock(), *([snapshots] if saves else [])]
        trainer = make_trainer(size, steps, batch, share if saves else None, str(Path(folder) / "run"), callbacks)
        trainer.train()
    # Without the first two, which warm up.
    return (times[-1] - times[2]) / (len(times) - 3), snapshots


def main() -> None:
    options = parse_arguments()
    import torch
    from transformers import logging

    logging.set_verbosity_error()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"
    rows = []
    for size in options.sizes:
        before = len(rows)
        warm = run(size, 8, options.batch, False)[0]
        steps = max(12, round(options.seconds / warm))
        pairs, noted = [], []
        for number in range(options.rounds):
            # In turns, so that a machine that grows busier counts for both.
            order = (True, False) if number % 2 else (False, True)
            found = {saves: run(size, steps, options.batch, saves, options.share) for saves in order}
            pairs.append((found[True][0], found[False][0]))
            noted.append(found[True][1])
        # Without the first two, for which the files are made.
        gaps = [
            (after[0] - before[0], after[1] - before[1])
            for one in noted
            for before, after in zip(one.whole[2:], one.whole[3:], strict=False)
        ]
        stalls = [stall for one in noted for stall in one.stalls[2:]]
        with_saves, without = (statistics.median(pair[place] for pair in pairs) for place in (0, 1))
        figures = {
            "checkpoint": (noted[0].bytes / 1e6, "MB"),
            "saved": (100 * statistics.mean(len(one.whole) / steps for one in noted), "%"),
            "stall": (1e3 * statistics.median(stalls), "ms") if stalls else None,
            "interval": (statistics.mean(gap[0] for gap in gaps), "s") if gaps else None,
            "lost": (max(gap[0] for gap in gaps), "s") if gaps else None,
            "steps_lost": (max(gap[1] for gap in gaps), "steps") if gaps else None,
        }
        for what, figure in figures.items():
            if figure is not None:
                rows.append(
                    {"what": f"{size}_{what}", "value": figure[0], "unit": figure[1], "against": "", "ratio": None}
                )
        rows.append(
            {
                "what": f"{size}_train",
                "value": 1e3 * with_saves,
                "unit": "ms",
                "against": "the same without saves",
                "ratio": min(pair[0] for pair in pairs) / min(pair[1] for pair in pairs),
                "median_ratio": statistics.median(a / b for a, b in pairs),
            }
        )
        for row in rows[before:]:
            ratio = f"  ratio {row['ratio']:.3f}, median {row['median_ratio']:.3f}" if row["ratio"] else ""
            print(f"{row['what']:>20}  {row['value']:10.3f} {row['unit']}{ratio}", flush=True)
    setting = (
        f"BERT with AdamW, batches of {options.batch} rows of at most 32 tokens, {os.cpu_count()} cores, "
        f"{options.rounds} pairs of runs of about {options.seconds:.0f} s"
    )
    if options.share is not None:
        setting += f", save_share {options.share:g}"
    write_result("kill", device, setting, rows, options.output)


if __name__ == "__main__":
    main()
