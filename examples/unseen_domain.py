# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
How well does a classifier do on a domain it has never seen, without and with a memory?

Trains the plain encoder and the memory-augmented one on all domains but one, selects on held-out rows of the domains
trained on, and scores the domain left out. With no arguments it needs no network: the data and a small encoder are made
on the spot.

    python examples/unseen_domain.py
    python examples/unseen_domain.py --target films --seeds 5
    python examples/unseen_domain.py --data reviews.csv --label stars --domain shop --target books \\
        --backbone FacebookAI/roberta-base --memory-slots 1024 --memory-key-size 256 --learning-rate 2e-5 --epochs 3
"""

import argparse
import shutil
from pathlib import Path


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = parser.add_argument_group("data")
    data.add_argument("--data", help="CSV, TSV, JSON lines (also .gz) or Parquet; generated reviews if left out")
    data.add_argument("--text", default="text", help="column of the text (default: text)")
    data.add_argument("--label", default="label", help="column of the label (default: label)")
    data.add_argument("--domain", default="domain", help="column of the domain (default: domain)")
    data.add_argument("--target", help="the domain to leave out (default: the last one)")
    model = parser.add_argument_group("model")
    model.add_argument("--backbone", help="a RoBERTa or BERT checkpoint; a small untrained one is made if left out")
    model.add_argument("--memory-slots", type=int, default=128, help="slots of the memory (default: 128)")
    model.add_argument("--memory-key-size", type=int, default=32, help="width of a key (default: 32)")
    training = parser.add_argument_group("training")
    training.add_argument("--seeds", type=int, default=3, help="runs of each method (default: 3)")
    training.add_argument("--epochs", type=float, default=6, help="passes over the data (default: 6)")
    training.add_argument("--learning-rate", type=float, default=1e-3, help="default: 1e-3, for the small encoder")
    training.add_argument("--batch-size", type=int, default=32, help="default: 32")
    training.add_argument("--max-length", type=int, default=126, help="tokens kept of a text (default: 126)")
    training.add_argument("--output", default="runs/unseen_domain", help="where checkpoints go (default: %(default)s)")
    return parser.parse_args()


def train(method: str, seed: int, encoder: str, split, tokenizer, options):
    """One run. Returns the model that did best on the source domains' held-out rows, and its scores per domain."""
    import torch
    from transformers import (
        AutoConfig,
        AutoModelForSequenceClassification,
        DataCollatorWithPadding,
        ProgressCallback,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    from hf_memaug import RunGuard
    from hf_memaug.evaluation import classification_scores
    from hf_memaug.registry import family_on

    class Bar(ProgressCallback):
        """The bar alone: the figures come in one table at the end."""

        def on_log(self, args, state, control, logs=None, **kwargs):
            pass

    set_seed(seed)
    labels = dict(enumerate(split.train.label_names))
    names = {"id2label": labels, "label2id": {name: index for index, name in labels.items()}}
    if method == "+memory":
        family = family_on(AutoConfig.from_pretrained(encoder).model_type)
        model_class = family.load(family.models["AutoModelForSequenceClassification"][0])
        model = model_class.from_backbone(
            encoder, memory_slots=options.memory_slots, memory_key_size=options.memory_key_size, **names
        )
    else:
        model = AutoModelForSequenceClassification.from_pretrained(encoder, **names)

    train_rows = split.train.tokenize(tokenizer, options.max_length)
    dev_rows = split.dev.tokenize(tokenizer, options.max_length)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=f"{options.output}/{method.strip('+')}-{seed}",
            num_train_epochs=options.epochs,
            learning_rate=options.learning_rate,
            per_device_train_batch_size=options.batch_size,
            per_device_eval_batch_size=128,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            load_best_model_at_end=True,
            # Selection sees the source domains only.
            metric_for_best_model="eval_sources_macro_f1",
            logging_strategy="no",
            disable_tqdm=False,
            dataloader_pin_memory=torch.cuda.is_available(),
            report_to=[],
            seed=seed,
        ),
        train_dataset=train_rows,
        eval_dataset={"sources": dev_rows},
        data_collator=DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
        compute_metrics=classification_scores,
        callbacks=[RunGuard()],
    )
    trainer.remove_callback(ProgressCallback)
    trainer.add_callback(Bar())
    trainer.train()
    parts = {**dev_rows.by_domain(), split.target: split.test.tokenize(tokenizer, options.max_length)}
    return trainer, {domain: trainer.predict(rows).metrics["test_macro_f1"] for domain, rows in parts.items()}


def main() -> None:
    options = parse_arguments()
    import torch
    from small_encoder import make_small_encoder
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, logging, pipeline

    import hf_memaug  # registers the models with the Auto classes
    from hf_memaug.data import generated_reviews, leave_one_domain_out, load_domains
    from hf_memaug.evaluation import paired_t_test, score_table
    from hf_memaug.registry import family_on

    # Half of what is loaded is meant to be missing: the memory and the head are new.
    logging.set_verbosity_error()
    if options.data:
        rows = load_domains(options.data, text=options.text, label=options.label, domain=options.domain)
    else:
        rows = generated_reviews()
    target = options.target or rows.domains[-1]
    split = leave_one_domain_out(rows, target)
    print(f"\n{split.summary()}\n")

    output = Path(options.output)
    encoder = options.backbone or make_small_encoder(split.train["text"], output / "encoder")
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    family_on(AutoConfig.from_pretrained(encoder).model_type)  # refuses other encoders before anything is trained
    scores, best = {"plain": {}, "+memory": {}}, None
    for seed in range(options.seeds):
        for method in scores:
            print(f"{method}, seed {seed + 1} of {options.seeds}", flush=True)
            trainer, found = train(method, seed, encoder, split, tokenizer, options)
            for domain, score in found.items():
                name = f"{domain} (unseen)" if domain == target else domain
                scores[method].setdefault(name, []).append(score)
            if method == "+memory" and (best is None or trainer.state.best_metric > best.state.best_metric):
                best = trainer

    print("\nmacro-F1 in points, mean ± standard deviation over the seeds")
    print(score_table(scores))
    unseen = f"{target} (unseen)"
    if options.seeds > 1:
        test = paired_t_test(scores["+memory"][unseen], scores["plain"][unseen])
        print(
            f"+memory - plain on {unseen}: {100 * test.difference:+.1f} points (paired t-test, p = {test.p_value:.2f})"
        )
        if test.p_value > 0.05:
            print(
                "Not significant, as in the paper's tables: there, too, '+ memory' alone does not help significantly."
            )

    checkpoint = output / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    figures = [
        {"domain": domain.removesuffix(" (unseen)"), "metric": "macro_f1", "value": 100 * value, "seed": seed}
        | {"split": "test" if domain == unseen else "dev"}
        for domain, values in scores["+memory"].items()
        for seed, value in enumerate(values)
    ]
    hf_memaug.record_run(
        best.model,
        data=options.data or "generated reviews",
        domains=split.sources,
        left_out=target,
        method="+memory",
        scores=figures,
    )
    best.args.output_dir = str(checkpoint)
    best.save_model()
    best.create_model_card()

    reloaded = AutoModelForSequenceClassification.from_pretrained(checkpoint)
    inputs = tokenizer(split.test["text"][:8], padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        same = torch.equal(reloaded.eval()(**inputs).logits, best.model.eval().cpu()(**inputs).logits)
    print(f"\nSaved {checkpoint} (weights, tokenizer, model card). Loaded again, same output to the bit: {same}")
    classify = pipeline("text-classification", model=str(checkpoint))
    for text in split.test["text"][:3]:
        answer = classify(text, truncation=True)[0]
        print(f"  {answer['label']:>8} {answer['score']:.2f}  {text[:90]}")


if __name__ == "__main__":
    main()
