# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
MIL on your own data: a classifier for a domain that it has never seen, beside the plain encoder with the same budget.

Trains MIL (a memory learned across the source domains, then a classifier that reads it) and ERM (the plain encoder, for
as many optimizer steps as both phases of MIL) on all domains but one, selects on held-out rows of the domains trained
on, and scores the domain left out. With no arguments it needs no network: the data and a small encoder are made on the
spot.

    python examples/mil/train.py
    python examples/mil/train.py --target films --hypergradient exact
    python examples/mil/train.py --data reviews.csv --label stars --domain shop --target books \\
        --backbone FacebookAI/roberta-base --learning-rate 2e-5 --memory-learning-rate 1e-4 --episodes 30 \\
        --episode-steps 20 --epochs 3 --output runs/reviews
    python examples/mil/train.py --resume          # the run was killed: go on where it stood

Left in the output folder: `erm/` and `mil/`, the latter with weights, tokenizer and model card, ready to load or push;
`mil/meta_train/`, the learned memory; `meta_training.png`, how it was learned.
"""

import argparse
import contextlib
import io
import math
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # small_encoder.py


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = parser.add_argument_group("data")
    data.add_argument("--data", help="CSV, TSV, JSON lines (also .gz) or Parquet; generated reviews if left out")
    data.add_argument("--text", default="text", help="column of the text (default: text)")
    data.add_argument("--label", default="label", help="column of the label (default: label)")
    data.add_argument("--domain", default="domain", help="column of the domain (default: domain)")
    data.add_argument("--target", help="the domain to leave out (default: the last one)")
    model = parser.add_argument_group("model")
    model.add_argument(
        "--backbone",
        help="a RoBERTa or BERT checkpoint, whose memory gets the paper's sizes (1024 slots, keys of 256); "
        "if left out, a small untrained encoder is made, with 128 slots and keys of 32",
    )
    model.add_argument("--max-length", type=int, help="tokens kept of a text (default: as many as the encoder takes)")
    memory = parser.add_argument_group("meta-training (the memory)")
    memory.add_argument("--episodes", type=int, default=20, help="draws of a meta-target (default: %(default)s)")
    memory.add_argument("--episode-steps", type=int, default=10, help="T, steps of the memory in each (default: 10)")
    memory.add_argument("--inner-steps", type=int, default=1, help="L, steps of the encoder before each (default: 1)")
    memory.add_argument(
        "--hypergradient",
        default="first_order",
        choices=["first_order", "exact"],
        help="exact also differentiates through the encoder's update, and is slower (default: %(default)s)",
    )
    memory.add_argument("--memory-learning-rate", type=float, default=1e-3, help="default: 1e-3")
    training = parser.add_argument_group("training")
    training.add_argument("--epochs", type=float, default=6, help="passes of the meta-test over the data (default: 6)")
    training.add_argument("--learning-rate", type=float, default=1e-3, help="default: 1e-3, for the small encoder")
    training.add_argument("--batch-size", type=int, default=32, help="default: 32")
    training.add_argument("--seed", type=int, default=0, help="default: 0")
    training.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run in the output folder: what is done already is not done again, and whichever phase was "
        "broken off continues from its last checkpoint. Give the same arguments. Without it, the folder's erm/ and "
        "mil/ are made anew",
    )
    training.add_argument("--output", type=Path, default="runs/mil", help="default: %(default)s")
    return parser.parse_args()


def make_trainer(method: str, encoder: str, split, tokenizer, options):
    """A trainer of MIL or ERM. Both choose their checkpoint by the mean macro-F1 of the source domains' dev rows."""
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification, set_seed

    from hf_memaug import BilevelTrainer, BilevelTrainingArguments, DomainTrainer, DomainTrainingArguments
    from hf_memaug.registry import family_on

    labels = dict(enumerate(split.train.label_names))
    names = {"id2label": labels, "label2id": {name: index for index, name in labels.items()}}
    train_rows, dev_rows = (part.tokenize(tokenizer, options.max_length) for part in (split.train, split.dev))
    steps = math.ceil(options.epochs * math.ceil(len(train_rows) / options.batch_size))
    meta_steps = options.episodes * options.episode_steps * options.inner_steps
    common = {
        "output_dir": str(options.output / method),
        # Steps of the memory's phase are given to the other method as well.
        "max_steps": steps if method == "mil" else steps + meta_steps,
        "learning_rate": options.learning_rate,
        "per_device_train_batch_size": options.batch_size,
        "per_device_eval_batch_size": 128,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "logging_strategy": "epoch",
        "save_total_limit": 2,  # the best and the last, to resume from
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_f1",
        "dataloader_pin_memory": torch.cuda.is_available(),
        "disable_tqdm": False,
        "report_to": [],
        "seed": options.seed,
    }
    given = {"train_dataset": train_rows, "eval_dataset": dev_rows, "processing_class": tokenizer}
    set_seed(options.seed)
    if method == "erm":
        model = AutoModelForSequenceClassification.from_pretrained(encoder, **names)
        return DomainTrainer(model, DomainTrainingArguments(**common), **given)
    family = family_on(AutoConfig.from_pretrained(encoder).model_type)
    model_class = family.load(family.models["AutoModelForSequenceClassification"][0])
    sizes = {} if options.backbone else {"memory_slots": 128, "memory_key_size": 32}
    arguments = BilevelTrainingArguments(
        **common,
        episodes=options.episodes,
        episode_steps=options.episode_steps,
        inner_steps=options.inner_steps,
        hypergradient=options.hypergradient,
        memory_learning_rate=options.memory_learning_rate,
    )
    return BilevelTrainer(model_class.from_backbone(encoder, **sizes, **names), arguments, **given)


def train(trainer, resume: bool) -> None:
    from hf_memaug.training import last_complete_checkpoint

    if trainer.method_name == "mil":
        checkpoint = resume  # it finds the phase and the checkpoint by itself
    else:
        checkpoint = last_complete_checkpoint(trainer.args.output_dir) if resume else None
    # The bars go to stderr; the figures come in one table at the end.
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.train(resume_from_checkpoint=checkpoint)


def main() -> None:
    options = parse_arguments()
    import torch
    from small_encoder import make_small_encoder
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, logging

    from hf_memaug import record_run
    from hf_memaug.data import generated_reviews, leave_one_domain_out, load_domains
    from hf_memaug.evaluation import score_table
    from hf_memaug.registry import family_on
    from hf_memaug.reporting.plots import plot_meta_training

    # Half of what is loaded is meant to be missing: the memory and the head are new.
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if options.data:
        rows = load_domains(options.data, text=options.text, label=options.label, domain=options.domain)
    else:
        rows = generated_reviews()
    target = options.target or rows.domains[-1]
    split = leave_one_domain_out(rows, target)
    print(f"\n{split.summary()}\n")

    encoder = options.backbone or make_small_encoder(split.train["text"], options.output / "encoder")
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    family_on(AutoConfig.from_pretrained(encoder).model_type)  # refuses other encoders before anything is trained
    test_rows = split.test.tokenize(tokenizer, options.max_length)
    unseen = f"{target} (unseen)"
    scores = {"erm": {}, "mil": {}}
    # MIL first: it asks more of the data, and what it refuses is then refused before anything is trained.
    for method in ("mil", "erm"):
        if not options.resume:
            shutil.rmtree(options.output / method, ignore_errors=True)
        trainer = make_trainer(method, encoder, split, tokenizer, options)
        before = f"{trainer.args.meta_steps} steps for the memory, then " if method == "mil" else ""
        print(f"{method}: {before}{trainer.args.max_steps} steps for encoder and head", flush=True)
        train(trainer, options.resume)
        metrics = {**trainer.predict(trainer.eval_dataset).metrics, **trainer.predict(test_rows).metrics}
        for domain in (*split.sources, target):
            scores[method][unseen if domain == target else domain] = metrics[f"test_{domain}_f1"]
        if method == "mil":
            mil = trainer

    print("\nmacro-F1 in points: dev rows of the domains trained on, all rows of the unseen one (* the better)")
    print(score_table(scores))
    print(
        f"{unseen}: mil - erm = {100 * (scores['mil'][unseen] - scores['erm'][unseen]):+.1f} points. One seed proves "
        "nothing, either way:\nrepeat it with --seed 1, 2, ... and an --output for each. examples/mil/tables.py does "
        "so on the paper's data, with a paired test."
    )

    figure = {"domain": target, "split": "test", "metric": "macro_f1", "seed": options.seed}
    record_run(
        mil.model,
        data=Path(options.data).name if options.data else "generated reviews",
        domains=split.sources,
        left_out=target,
        method="mil",
        scores=[{**figure, "value": 100 * scores["mil"][unseen]}],
    )
    checkpoint = mil.args.output_dir
    mil.save_model()
    mil.create_model_card()

    reloaded = AutoModelForSequenceClassification.from_pretrained(checkpoint)
    inputs = tokenizer(split.test["text"][:8], padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        same = torch.equal(reloaded.eval()(**inputs).logits, mil.model.eval().cpu()(**inputs).logits)
    print(f"\nSaved {checkpoint} (weights, tokenizer, model card). Loaded again, same output to the bit: {same}")
    print(f"The memory alone: {mil.meta_folder / 'memory.safetensors'}")
    try:
        print(f"How it was learned: {plot_meta_training(mil.meta_log, options.output / 'meta_training.png')}")
    except ImportError as error:
        print(f"No figure of the meta-training: {error}")
    print("Killed on the way? The same command with --resume goes on in whichever phase was broken off.")


if __name__ == "__main__":
    main()
