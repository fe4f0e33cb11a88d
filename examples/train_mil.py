# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Train MIL: learn a memory across the source domains, then a classifier that reads it, and score a domain left out.

With no arguments the script runs offline, on generated reviews and a small untrained encoder. All arguments of
`BilevelTrainingArguments` are options. To compare MIL with other methods over seeds, use `hf-memaug compare`.

    python examples/train_mil.py
    python examples/train_mil.py --target films --hypergradient exact
    python examples/train_mil.py --data reviews.csv --label stars --domain shop --target books \\
        --backbone FacebookAI/roberta-base --memory_slots 1024 --memory_key_size 256 --learning_rate 2e-5 \\
        --memory_learning_rate 1e-4 --episodes 30 --episode_steps 20 --num_train_epochs 3

To resume an interrupted run, rerun the same command with `--resume`.
"""

from dataclasses import dataclass, field

import transformers
from small_encoder import make_small_encoder
from transformers import AutoTokenizer, HfArgumentParser, pipeline, set_seed

from hf_memaug import (
    BilevelTrainer,
    BilevelTrainingArguments,
    RobertaWithKVMemoryForSequenceClassification,
    leave_one_domain_out,
    load_domains,
    record_run,
)
from hf_memaug.data import generated_reviews
from hf_memaug.evaluation import score_table


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
    resume: bool = field(default=False, metadata={"help": "Resume the run in `output_dir` from its last checkpoint."})


def main() -> None:
    parser = HfArgumentParser((ScriptArguments, BilevelTrainingArguments), description=__doc__)
    parser.set_defaults(
        output_dir="runs/mil",
        learning_rate=1e-3,
        num_train_epochs=4,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=128,
        episodes=10,
        episode_steps=10,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_f1",  # mean macro-F1 over the source domains
        report_to=[],
    )
    script, args = parser.parse_args_into_dataclasses()
    # The memory and the head are missing from the backbone, which transformers reports.
    transformers.logging.set_verbosity_error()

    # 1. Data: one domain is left out of training and selection.
    if script.data:
        rows = load_domains(script.data, text=script.text, label=script.label, domain=script.domain)
    else:
        rows = generated_reviews()
    target = script.target or rows.domains[-1]
    split = leave_one_domain_out(rows, target)
    print(split.summary())

    # 2. Model: the backbone with a new memory and a new head.
    backbone = script.backbone or make_small_encoder(split.train["text"], f"{args.output_dir}/encoder")
    tokenizer = AutoTokenizer.from_pretrained(backbone)
    train, dev, test = (part.tokenize(tokenizer) for part in (split.train, split.dev, split.test))
    set_seed(args.seed)
    model = RobertaWithKVMemoryForSequenceClassification.from_backbone(
        backbone,
        id2label=dict(enumerate(rows.label_names)),
        memory_slots=script.memory_slots,
        memory_key_size=script.memory_key_size,
    )

    # 3. Train: the memory first, then encoder and head with the memory frozen.
    trainer = BilevelTrainer(model, args, train_dataset=train, eval_dataset=dev, processing_class=tokenizer)
    trainer.train(resume_from_checkpoint=script.resume)

    # 4. Score every domain, and save the model with its card.
    metrics = trainer.predict(dev).metrics | trainer.predict(test).metrics
    scores = {domain: metrics[f"test_{domain}_f1"] for domain in (*split.sources, target)}
    print(f"\nmacro-F1 in points: dev rows of the source domains, all rows of {target} (unseen)")
    print(score_table({"mil": scores}))
    unseen = {"domain": target, "split": "test", "metric": "macro_f1", "seed": args.seed, "value": 100 * scores[target]}
    data = script.data or "generated reviews"
    record_run(trainer.model, data=data, domains=split.sources, left_out=target, method="mil", scores=[unseen])
    trainer.save_model()
    trainer.create_model_card()

    classify = pipeline("text-classification", model=args.output_dir)
    for text in split.test["text"][:3]:
        print(classify(text, truncation=True)[0], text[:80])


if __name__ == "__main__":
    main()
