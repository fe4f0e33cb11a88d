# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
What growth itself costs: a model of one domain grows, and before it is trained any further it is scored on that domain
again. New slots of the memory, and as many parameters in hidden units (IDA, Theorem 1), for several numbers of slots;
and the share of the attention that goes to the new slots, which the theorem assumes to be half at most.

    python examples/ida/disturbance.py --vectors glove.6B.50d.txt
    python examples/ida/disturbance.py --slots 50 500 --seeds 3 --domain government --folder ../shared
"""

import argparse
import contextlib
import copy
import io
import sys
import tempfile
from pathlib import Path

NEW_SLOTS = [1, 10, 50, 100, 300, 500, 1000]
# Rows whose attention is looked at.
LOOKED_AT = 256


def new_share(model, trainer, rows) -> float:
    """Of the attention of all words, both directions, the part that slots of the last domain get."""
    import torch

    newest = (model.slot_domains() == len(model.config.memory_slots) - 1).to(model.device)
    shares, words = 0.0, 0
    for start in range(0, min(len(rows), LOOKED_AT), 64):
        batch = trainer.data_collator([rows[row] for row in range(start, min(start + 64, len(rows), LOOKED_AT))])
        batch = {name: value.to(model.device) for name, value in batch.items() if name not in ("labels", "domain_ids")}
        with torch.no_grad():
            weights = model(**batch, output_memory_weights=True).memory_weights
        # The first step of a direction, and padding, read nothing: their weights are zeros.
        reads = weights.sum(-1) > 0
        shares += float(weights[..., newest].sum(-1)[reads].sum())
        words += int(reads.sum())
    return shares / words


def grown(model, slots: int, kind: str, seed: int):
    import torch

    model = copy.deepcopy(model)
    torch.manual_seed(10_000 + seed)
    model.grow_memory(slots) if kind == "m" else model.grow_hidden(model.units_for(slots))
    return model.eval()


def run(options, seed: int) -> list[dict]:
    """The rows of one seed: the trained model, and what it is after each growth."""
    from experiment import MEMORY_RNN, Job, load_parts, right_answers, train

    job = Job(
        data=options.set,
        domains=(options.domain,),
        strategy="f",
        architecture="rnn+mem",
        backbone=MEMORY_RNN,
        seed=seed,
        epochs=options.epochs,
        hidden_size=options.hidden_size,
        first_slots=options.first_slots,
        vectors=options.vectors,
    )
    parts = load_parts(job, options.folder)
    quiet = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as output,
        contextlib.redirect_stdout(quiet),
        contextlib.redirect_stderr(quiet),
    ):
        trainer = train(job, parts, [options.domain], "f", options.folder, options.device, output)
        test = parts["test"][options.domain]
        tokenized = test.tokenize(trainer.processing_class, job.max_length)
        same = {"data": options.set, "target": options.domain, "backbone": MEMORY_RNN, "seed": seed}

        def score(model, method: str, slots: int, share: float | None = None) -> list[dict]:
            trainer._set_model(model)
            answers = right_answers(trainer, test)
            found = {"accuracy": 100 * answers.count("1") / len(answers)}
            if share is not None:
                found["attention to new slots"] = 100 * share
            return [
                {"method": method, **same, "slots": slots, "metric": metric, "value": round(value, 4)}
                for metric, value in found.items()
            ]

        trained = copy.deepcopy(trainer.model).eval()
        rows = score(trained, "as trained", 0)
        for slots in options.slots:
            model = grown(trained, slots, "m", seed)
            rows += score(model, f"m, {slots} slots", slots, new_share(model, trainer, tokenized))
            rows += score(grown(trained, slots, "h", seed), f"h, as {slots} slots", slots)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default="../shared", help="with sets in `data/` (default: %(default)s)")
    parser.add_argument("--set", default="mnli5", help="a folder in `data/` (default: %(default)s)")
    parser.add_argument("--domain", default="fiction", help="default: %(default)s")
    parser.add_argument("--vectors", help="a text file of word vectors, such as GloVe's (default: random ones)")
    parser.add_argument("--slots", type=int, nargs="+", default=NEW_SLOTS, help="new ones (default: %(default)s)")
    parser.add_argument("--first-slots", type=int, default=300, help="before them (default: %(default)s)")
    parser.add_argument("--hidden-size", type=int, default=300, help="default: %(default)s")
    parser.add_argument("--epochs", type=float, default=10, help="default: %(default)s")
    parser.add_argument("--seeds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="default: %(default)s")
    parser.add_argument("--output", type=Path, default="docs/results/ida/disturbance.json", help="default: %(default)s")
    options = parser.parse_args()
    from transformers import logging

    from hf_memaug.reporting.results import write_results

    logging.set_verbosity_error()
    rows = []
    for seed in range(options.seeds):
        found = run(options, seed)
        rows += found
        said = ", ".join(f"{row['method']} {row['value']:.1f}" for row in found if row["metric"] == "accuracy")
        print(f"[{seed + 1}/{options.seeds}] {said}", flush=True)
        # After each seed, so that a run that is broken off has told something.
        write_results(options.output, table="disturbance", command="python " + " ".join(sys.argv), rows=rows)
    print(f"wrote {options.output}; python -m hf_memaug.reporting.results {options.output} --baseline 'as trained'")


if __name__ == "__main__":
    main()
