# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Train a classifier with and without a memory, and score both on a domain that neither has seen.

The script trains on all domains but one, selects on held-out rows of the same domains, and tests on the domain left
out. With no arguments it runs offline: it generates reviews and starts from a small untrained encoder.

    python examples/unseen_domain.py
    python examples/unseen_domain.py --data reviews.csv --label stars --domain shop --target books \\
        --backbone FacebookAI/roberta-base --memory_slots 1024 --memory_key_size 256 --learning_rate 2e-5
"""

from dataclasses import dataclass, field

import transformers
from small_encoder import make_small_encoder
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    pipeline,
    set_seed,
)

from hf_memaug import (
    ModelCardCallback,
    RobertaWithKVMemoryForSequenceClassification,
    RunGuard,
    leave_one_domain_out,
    load_domains,
)
from hf_memaug.data import generated_reviews
from hf_memaug.evaluation import classification_scores, paired_t_test, score_table


@dataclass
class ScriptArguments:
    data: str | None = field(default=None, metadata={"help": "CSV, JSON lines or Parquet; generated reviews if unset"})
    text: str = field(default="text", metadata={"help": "Column with the text."})
    label: str = field(default="label", metadata={"help": "Column with the label."})
    domain: str = field(default="domain", metadata={"help": "Column with the domain."})
    target: str | None = field(default=None, metadata={"help": "Domain to leave out (the last one if unset)."})
    backbone: str | None = field(default=None, metadata={"help": "A RoBERTa checkpoint; a small encoder if unset."})
    memory_slots: int = field(default=128, metadata={"help": "Slots of the memory."})
    memory_key_size: int = field(default=32, metadata={"help": "Width of a key."})
    seeds: int = field(default=3, metadata={"help": "Runs of each method."})


def main() -> None:
    parser = HfArgumentParser((ScriptArguments, TrainingArguments), description=__doc__)
    parser.set_defaults(
        output_dir="runs/unseen_domain",
        learning_rate=1e-3,
        num_train_epochs=6,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=128,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="eval_sources_macro_f1",
        report_to=[],
    )
    script, args = parser.parse_args_into_dataclasses()
    # The memory and the head are missing from the backbone, which transformers reports at every load.
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

    # 1. Data: one domain is left out of training and selection.
    if script.data:
        rows = load_domains(script.data, text=script.text, label=script.label, domain=script.domain)
    else:
        rows = generated_reviews()
    target = script.target or rows.domains[-1]
    split = leave_one_domain_out(rows, target)
    print(split.summary())
    backbone = script.backbone or make_small_encoder(split.train["text"], f"{args.output_dir}/encoder")
    tokenizer = AutoTokenizer.from_pretrained(backbone)
    train, dev, test = (part.tokenize(tokenizer) for part in (split.train, split.dev, split.test))

    # 2. Train each method with each seed.
    labels = {"id2label": dict(enumerate(rows.label_names))}
    scores: dict[str, dict[str, list[float]]] = {"plain": {}, "+memory": {}}
    output_dir = args.output_dir
    for seed in range(script.seeds):
        for method in scores:
            set_seed(seed)
            if method == "plain":
                model = AutoModelForSequenceClassification.from_pretrained(backbone, **labels)
            else:
                sizes = {"memory_slots": script.memory_slots, "memory_key_size": script.memory_key_size}
                model = RobertaWithKVMemoryForSequenceClassification.from_backbone(backbone, **sizes, **labels)
            args.output_dir, args.seed = f"{output_dir}/{method.strip('+')}-{seed}", seed
            trainer = Trainer(
                model,
                args,
                train_dataset=train,
                eval_dataset={"sources": dev},  # selection sees the source domains only
                data_collator=DataCollatorWithPadding(tokenizer),
                processing_class=tokenizer,
                compute_metrics=classification_scores,
                callbacks=[RunGuard(), ModelCardCallback()],
            )
            trainer.train()
            for domain, part in {**dev.by_domain(), f"{target} (unseen)": test}.items():
                scores[method].setdefault(domain, []).append(trainer.predict(part).metrics["test_macro_f1"])

    # 3. Compare, save, and predict with a pipeline.
    print("\nmacro-F1 in points, mean ± standard deviation over seeds")
    print(score_table(scores))
    if script.seeds > 2:
        found = paired_t_test(*(scores[method][f"{target} (unseen)"] for method in ("+memory", "plain")))
        print(f"+memory - plain on {target}: {100 * found.difference:+.1f} points (p = {found.p_value:.2f})")
    trainer.save_model(f"{output_dir}/checkpoint")
    classify = pipeline("text-classification", model=f"{output_dir}/checkpoint")
    for text in split.test["text"][:3]:
        print(classify(text, truncation=True)[0], text[:80])


if __name__ == "__main__":
    main()
