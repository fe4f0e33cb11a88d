# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
G-MAP on your own data: a domain encoder that reads the memory of a frozen general one, beside the domain encoder alone.

Trains both on the same rows for the same steps, over seeds, chooses each checkpoint on dev rows, and scores test rows.
With no arguments it needs no network: the data and a small encoder are made on the spot, so small that it shows only
how it goes.

    python examples/gmap/train.py
    python examples/gmap/train.py --train chemprot.train.jsonl --dev chemprot.dev.jsonl --test chemprot.test.jsonl \\
        --general FacebookAI/roberta-base --domain allenai/biomed_roberta_base --learning-rate 4e-5 --epochs 10 \\
        --seeds 5
    python examples/gmap/train.py --strategy gated --memory-layers 9 --cached

Where test texts are also in the training rows, the score without those stands beside the plain one.
`examples/gmap/pretrain.py` makes a domain encoder. Left in the output folder: `domain/` and `gmap/`, the checkpoints of
the first seed with tokenizer and card, and `scores.json`.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # small_encoder.py

METHODS = ("domain", "gmap")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = parser.add_argument_group("data")
    data.add_argument("--train", type=Path, help="CSV, TSV, JSON lines (also .gz) or Parquet; generated if left out")
    data.add_argument("--dev", type=Path, help="rows to choose a checkpoint on")
    data.add_argument("--test", type=Path, help="rows to score")
    data.add_argument("--text", default="text", help="column of the text (default: text)")
    data.add_argument("--label", default="label", help="column of the label (default: label)")
    model = parser.add_argument_group("model")
    model.add_argument("--general", help="the frozen encoder; a small untrained one if left out")
    model.add_argument("--domain", help="the encoder that reads it (default: the same as --general)")
    model.add_argument("--strategy", default="chunk_gated", choices=["single", "multiple", "gated", "chunk_gated"])
    model.add_argument(
        "--fusion", default="memory_attention", choices=["memory_attention", "cross_attention", "gate_attention"]
    )
    model.add_argument("--memory-layers", type=int, nargs="+", help="layers that read, from 1 (default: by the depth)")
    model.add_argument("--cached", action="store_true", help="keep the general encoder's states on disk")
    training = parser.add_argument_group("training")
    training.add_argument("--epochs", type=float, default=3, help="default: %(default)s")
    training.add_argument("--learning-rate", type=float, default=5e-4, help="default: 5e-4, for the small encoder")
    training.add_argument("--batch-size", type=int, default=32, help="default: %(default)s")
    training.add_argument("--max-length", type=int, default=256, help="tokens kept of a text (default: %(default)s)")
    training.add_argument("--seeds", type=int, default=2, help="default: %(default)s")
    training.add_argument("--output", type=Path, default="runs/gmap", help="default: %(default)s")
    options = parser.parse_args()
    if len({options.train is None, options.dev is None, options.test is None}) > 1:
        parser.error("give --train, --dev and --test, or none of them")
    return options


def load_rows(options):
    """(train, dev, test) and the names of the labels."""
    from hf_memaug.data import DomainDataset, generated_reviews
    from hf_memaug.data.readers import read_table

    if options.train is None:
        rows = generated_reviews(rows_per_domain=160).shuffle(0)
        parts = [rows.select(range(first, len(rows), 4)) for first in (0, 1, 2)]
        return parts, rows.label_names
    tables = [read_table(path) for path in (options.train, options.dev, options.test)]
    for path, table in zip((options.train, options.dev, options.test), tables, strict=True):
        for name in (options.text, options.label):
            if name not in table:
                raise SystemExit(f"{path} has no column `{name}`; it has {sorted(table)}. Set --text and --label.")
    names = sorted({str(label) for label in tables[0][options.label]})
    parts = []
    for path, table in zip((options.train, options.dev, options.test), tables, strict=True):
        unknown = sorted({str(label) for label in table[options.label]} - set(names))
        if unknown:
            raise SystemExit(f"{path} has the label {unknown[0]!r}, which no training row has.")
        labels = [names.index(str(label)) for label in table[options.label]]
        columns = {"text": table[options.text], "label": labels, "domain": ["all"] * len(labels)}
        parts.append(DomainDataset(columns, label_names=names))
    return parts, names


def train(method: str, seed: int, parts, kept, names, tokenizer, options) -> dict:
    """Scores of one model; `kept` are the test rows whose text is not among the training rows."""
    import torch
    from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments, set_seed

    from hf_memaug import GeneralStatesCollator, GMAPForSequenceClassification, RunGuard, cache_general_states
    from hf_memaug.data.collators import PaddingCollator
    from hf_memaug.evaluation import classification_scores, macro_f1

    labels = {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}
    set_seed(seed)
    if method == "domain":
        model = AutoModelForSequenceClassification.from_pretrained(options.domain, dtype="float32", **labels)
    else:
        model = GMAPForSequenceClassification.from_general_and_domain(
            options.general,
            options.domain,
            strategy=options.strategy,
            fusion=options.fusion,
            memory_layers=options.memory_layers,
            classifier_layers=2,  # as the plain model has
            dtype="float32",
            **labels,
        )
    rows, collator = dict(zip(("train", "dev", "test"), parts, strict=True)), PaddingCollator(tokenizer)
    if method == "gmap" and options.cached:
        collator = GeneralStatesCollator(collator)
        model.to("cuda" if torch.cuda.is_available() else "cpu")
        rows = {name: cache_general_states(model, part, options.output / "cache" / name) for name, part in rows.items()}
    trainer = Trainer(
        model,
        TrainingArguments(
            str(options.output / method),
            num_train_epochs=options.epochs,
            learning_rate=options.learning_rate,
            per_device_train_batch_size=options.batch_size,
            per_device_eval_batch_size=128,
            warmup_steps=0.06,
            weight_decay=0.01,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            load_best_model_at_end=True,
            metric_for_best_model="eval_macro_f1",
            bf16=torch.cuda.is_available(),
            dataloader_pin_memory=torch.cuda.is_available(),
            report_to=[],
            seed=seed,
        ),
        train_dataset=rows["train"],
        eval_dataset=rows["dev"],
        data_collator=collator,
        processing_class=tokenizer,
        compute_metrics=classification_scores,
        callbacks=[RunGuard()],
    )
    trainer.train()
    predicted = trainer.predict(rows["test"])
    scores = predicted.metrics
    if seed == 0:
        trainer.save_model()
        trainer.create_model_card()
    found = {"dev_macro_f1": trainer.state.best_metric, "macro_f1": scores["test_macro_f1"]}
    if len(kept) < len(parts[2]):
        guesses = predicted.predictions.argmax(-1)[kept]
        found["macro_f1_unseen_texts"] = macro_f1(guesses, predicted.label_ids[kept], num_labels=len(names))
    return {"method": method, "seed": seed, **found}


def main() -> None:
    options = parse_arguments()
    from small_encoder import make_small_encoder
    from transformers import AutoTokenizer

    from hf_memaug.data import find_overlap
    from hf_memaug.evaluation import paired_t_test, score_table

    parts, names = load_rows(options)
    if options.general is None:
        options.general = make_small_encoder(parts[0]["text"], options.output / "encoder")
    options.domain = options.domain or options.general
    tokenizer = AutoTokenizer.from_pretrained(options.domain)
    length = min(options.max_length, tokenizer.model_max_length)
    parts = [part.tokenize(tokenizer, length) for part in parts]
    seen = {row for row, _ in find_overlap(parts[2], parts[0])}
    kept = [row for row in range(len(parts[2])) if row not in seen]
    results = []
    for seed in range(options.seeds):
        for method in METHODS:
            results.append(train(method, seed, parts, kept, names, tokenizer, options))
            (options.output / "scores.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    columns = {"dev": "dev_macro_f1", "test": "macro_f1", "test, unseen texts": "macro_f1_unseen_texts"}
    columns = {part: name for part, name in columns.items() if name in results[0]}
    scores = {
        method: {
            part: [100 * one[name] for one in results if one["method"] == method] for part, name in columns.items()
        }
        for method in METHODS
    }
    print("\n" + score_table(scores, points=False, style="text", header="macro-F1"))
    if options.seeds > 1:
        test = paired_t_test(scores["gmap"]["test"], scores["domain"]["test"])
        print(f"gmap - domain on test: {test.difference:+.2f} (p = {test.p_value:.3f}, {options.seeds} seeds)")
    print(f"wrote {options.output}")


if __name__ == "__main__":
    main()
