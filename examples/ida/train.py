# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
One model that takes in domain after domain, by several strategies beside each other.

For each strategy the same model is trained on one domain after another, each time without the rows of the others, and
scored on all of them: the matrix R, and what is read off it (ACC, BWT, FWT, forgetting). With no arguments it needs no
network: the data and a small encoder, whose words are those of the first domain, are made on the spot.

    python examples/ida/train.py
    python examples/ida/train.py --strategies f ewc in_domain multi_task --domains films books hotels
    python examples/ida/train.py --strategies ewc --options '{"fisher_weight": 1e4, "fisher": "empirical"}'
    python examples/ida/train.py --data reviews.csv --label stars --domain shop --learning-rate 2e-5 --epochs 3 \\
        --checkpoint FacebookAI/roberta-base --output runs/reviews
    python examples/ida/train.py --resume          # the run was killed: go on where it stood
    python examples/ida/train.py --data next.csv --checkpoint runs/reviews/f --strategies f --output runs/next

The last line adds domains to a model that was trained before: its matrix comes with it. `f+m`, `f+v`, `f+h` and what is
made of them need a model that grows, such as a memory RNN, as `--checkpoint`.

Left in the output folder, for each strategy: weights, tokenizer and model card, ready to load or push; the matrix, as
`continual.json`; `continual_matrix.png` and `continual_curves.png`, which are drawn anew after each domain; `_stages/`,
the weights after each domain.
"""

import argparse
import contextlib
import io
import json
import math
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # small_encoder.py

DEFAULT_STRATEGIES = ["f", "ewc", "lwf", "replay"]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = parser.add_argument_group("data")
    data.add_argument("--data", help="CSV, TSV, JSON lines (also .gz) or Parquet; generated reviews if left out")
    data.add_argument("--text", default="text", help="column of the text (default: text)")
    data.add_argument("--label", default="label", help="column of the label (default: label)")
    data.add_argument("--labels", nargs="+", help="the names of the labels in their order (default: as they come)")
    data.add_argument("--domain", default="domain", help="column of the domain (default: domain)")
    data.add_argument("--domains", nargs="+", help="the domains in the order of their training (default: as they come)")
    model = parser.add_argument_group("model")
    model.add_argument(
        "--checkpoint",
        help="a classifier, or an encoder that gets a fresh head, from a folder or the hub; if left out, a small "
        "untrained encoder with a memory is made",
    )
    model.add_argument("--max-length", type=int, help="tokens kept of a text (default: as many as the model takes)")
    training = parser.add_argument_group("training")
    training.add_argument("--strategies", nargs="+", default=DEFAULT_STRATEGIES, help="default: %(default)s")
    training.add_argument("--options", type=json.loads, help="options of the strategy, as JSON (for one strategy)")
    training.add_argument("--epochs", type=float, default=8, help="passes over each domain (default: 8)")
    training.add_argument("--learning-rate", type=float, default=1e-3, help="default: 1e-3, for the small encoder")
    training.add_argument("--batch-size", type=int, default=32, help="default: 32")
    training.add_argument("--metric", default="accuracy", choices=["accuracy", "f1"], help="default: %(default)s")
    training.add_argument("--seed", type=int, default=0, help="default: 0")
    training.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run in the output folder: what is done already is not done again. Give the same arguments",
    )
    training.add_argument("--output", type=Path, default="runs/ida", help="default: %(default)s")
    options = parser.parse_args()
    if options.options and len(options.strategies) > 1:
        parser.error("--options are those of one strategy: give one with --strategies")
    return options


def make_model(checkpoint: str | None, small_encoder: str | None, label_names: list[str], seed: int):
    from transformers import AutoModelForSequenceClassification, set_seed

    from hf_memaug import RobertaWithKVMemoryForSequenceClassification

    labels = dict(enumerate(label_names))
    names = {"id2label": labels, "label2id": {name: index for index, name in labels.items()}}
    set_seed(seed)
    if checkpoint is not None:
        return AutoModelForSequenceClassification.from_pretrained(checkpoint, **names)
    sizes = {"memory_slots": 128, "memory_key_size": 32}
    return RobertaWithKVMemoryForSequenceClassification.from_backbone(small_encoder, **sizes, **names)


def make_arguments(strategy: str, domains: list[str], options):
    import torch

    from hf_memaug import ContinualTrainingArguments

    return ContinualTrainingArguments(
        output_dir=str(options.output / strategy),
        strategy=strategy,
        strategy_kwargs=options.options,
        domains=domains,
        matrix_metric=options.metric,
        max_length=options.max_length,
        num_train_epochs=options.epochs,
        learning_rate=options.learning_rate,
        per_device_train_batch_size=options.batch_size,
        per_device_eval_batch_size=128,
        save_strategy="epoch",
        save_total_limit=1,
        logging_strategy="epoch",
        dataloader_pin_memory=torch.cuda.is_available(),
        disable_tqdm=False,
        report_to=[],
        seed=options.seed,
    )


def make_trainer(arguments, train, test, encoder: str | None, options):
    from transformers import AutoTokenizer

    from hf_memaug import ContinualTrainer
    from hf_memaug.reporting.continual_plots import ContinualPlots

    checkpoint = options.checkpoint
    # What a strategy remembers lies beside the weights; the matrix is in the configuration as well.
    has_record = checkpoint is not None and (Path(checkpoint) / "continual.json").is_file()
    return ContinualTrainer(
        make_model(checkpoint, encoder, next(iter(train.values())).label_names, options.seed),
        arguments,
        train_dataset=train,
        test_dataset=test,
        processing_class=AutoTokenizer.from_pretrained(checkpoint or encoder),
        callbacks=[ContinualPlots()],
        history=checkpoint if has_record else None,
    )


def main() -> None:
    options = parse_arguments()
    from small_encoder import make_small_encoder
    from transformers import logging

    from hf_memaug.data import generated_reviews, load_domains, split_domains
    from hf_memaug.evaluation import DEFINITIONS, score_table

    # The head and the memory are meant to be missing from what is loaded.
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if options.data:
        columns = {"text": options.text, "label": options.label, "domain": options.domain}
        rows = load_domains(options.data, **columns, labels=options.labels)
    else:
        rows = generated_reviews()
    order = options.domains or rows.domains
    parts = {name: split_domains(rows.domain(name))[name] for name in order}
    train, test = ({name: part[side] for name, part in parts.items()} for side in (0, 1))
    print("\nIn this order: " + ", ".join(f"{n} ({len(train[n])} rows, {len(test[n])} to score)" for n in order))

    # Words of later domains are not known when the first one is trained.
    encoder = None
    if options.checkpoint is None:
        encoder = make_small_encoder(train[order[0]]["text"], options.output / "encoder")
    # All at once: a name that is wrong is refused before the first is trained.
    arguments = {strategy: make_arguments(strategy, order, options) for strategy in options.strategies}
    summary = {}
    for strategy, one in arguments.items():
        if not options.resume:
            shutil.rmtree(one.output_dir, ignore_errors=True)
        trainer = make_trainer(one, train, test, encoder, options)
        begun = (Path(one.output_dir) / "continual.json").is_file()
        # The bars go to stderr; the figures come in tables.
        with contextlib.redirect_stdout(io.StringIO()):
            trainer.train(resume_from_checkpoint=options.resume and begun)
            trainer.save_model()
            trainer.create_model_card()
        print(f"\n{strategy}: {options.metric} in points\n{trainer.record.table()}", flush=True)
        figures = {name: value for name, value in trainer.figures().items() if value is not None}
        # A domain of an earlier run has no score where there are no rows of it.
        final = {name: None if math.isnan(score) else score for name, score in trainer.record.final_scores().items()}
        summary[strategy] = {**final, **figures}

    columns = [*trainer.record.trained, *(name for name in DEFINITIONS if any(name in row for row in summary.values()))]
    print("\nAt the end, in points (* the best)")
    print(score_table(summary, columns=columns, lower_is_better={"forgetting"} & set(columns)))
    for name in columns:
        if name in DEFINITIONS:
            print(f"{name}: {DEFINITIONS[name]}")
    print("One seed proves nothing: repeat it with --seed 1, 2, ... and an --output for each.")
    print(
        f"\nSaved {', '.join(str(options.output / strategy) for strategy in summary)}: weights, card, matrix, figures."
    )
    print("Killed on the way? The same command with --resume goes on in the domain that was broken off.")


if __name__ == "__main__":
    main()
