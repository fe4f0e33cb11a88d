# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Train one model on domain after domain (IDA's setting), each time without the rows of the other domains.

With no arguments the script runs offline, on generated reviews and a small encoder with a memory. All arguments of
`ContinualTrainingArguments` are options. To compare strategies over seeds, use
`hf-memaug continual --recipe examples/recipes/ida_mnli5.yaml`.

    python examples/train_continual.py
    python examples/train_continual.py --strategy f+m --strategy_kwargs '{"slots": 64}'
    python examples/train_continual.py --data reviews.csv --label stars --domain shop --strategy lwf \\
        --backbone FacebookAI/roberta-base --learning_rate 2e-5 --output_dir runs/reviews
    python examples/train_continual.py --data later.csv --checkpoint runs/reviews --output_dir runs/later

The last command adds domains to a model that was trained before. To resume an interrupted run, rerun the same command
with `--resume`.
"""

from dataclasses import dataclass, field

import transformers
from small_encoder import make_small_encoder
from transformers import AutoModelForSequenceClassification, AutoTokenizer, HfArgumentParser, set_seed

from hf_memaug import (
    ContinualTrainer,
    ContinualTrainingArguments,
    RobertaWithKVMemoryForSequenceClassification,
    load_domains,
)
from hf_memaug.data import generated_reviews, split_domains


@dataclass
class ScriptArguments:
    data: str | None = field(default=None, metadata={"help": "CSV, JSON lines or Parquet; generated reviews if unset"})
    text: str = field(default="text", metadata={"help": "Column with the text."})
    label: str = field(default="label", metadata={"help": "Column with the label."})
    domain: str = field(default="domain", metadata={"help": "Column with the domain."})
    backbone: str | None = field(default=None, metadata={"help": "A RoBERTa checkpoint; a small encoder if unset."})
    checkpoint: str | None = field(default=None, metadata={"help": "A model of an earlier run, instead."})
    resume: bool = field(default=False, metadata={"help": "Resume the run in `output_dir`."})


def main() -> None:
    parser = HfArgumentParser((ScriptArguments, ContinualTrainingArguments), description=__doc__)
    parser.set_defaults(
        output_dir="runs/continual",
        learning_rate=1e-3,
        num_train_epochs=4,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=128,
        save_strategy="epoch",
        save_total_limit=1,
        report_to=[],
    )
    script, args = parser.parse_args_into_dataclasses()
    # The memory and the head are missing from the backbone, which transformers reports.
    transformers.logging.set_verbosity_error()

    # 1. Data: the domains in the order of their training, a fifth of each to score.
    if script.data:
        rows = load_domains(script.data, text=script.text, label=script.label, domain=script.domain)
    else:
        rows = generated_reviews()
    args.domains = args.domains or rows.domains
    parts = split_domains(rows)

    # 2. Model: words of later domains are unknown when training starts.
    labels = {"id2label": dict(enumerate(rows.label_names))}
    set_seed(args.seed)
    if script.checkpoint:
        backbone = script.checkpoint
        model = AutoModelForSequenceClassification.from_pretrained(backbone)
    else:
        first = parts[args.domains[0]].inside["text"]
        backbone = script.backbone or make_small_encoder(first, f"{args.output_dir}-encoder")
        sizes = {} if script.backbone else {"memory_slots": 128, "memory_key_size": 32}
        model = RobertaWithKVMemoryForSequenceClassification.from_backbone(backbone, **sizes, **labels)

    # 3. Train on each domain in turn. R[i, j] is the score on domain j after training on domain i.
    trainer = ContinualTrainer(
        model,
        args,
        train_dataset={name: parts[name].inside for name in args.domains},
        test_dataset={name: parts[name].out for name in args.domains},
        processing_class=AutoTokenizer.from_pretrained(backbone),
    )
    trainer.train(resume_from_checkpoint=script.resume)
    trainer.save_model()
    print(trainer.record.table())
    print({name: round(100 * value, 2) for name, value in trainer.figures().items() if value is not None})


if __name__ == "__main__":
    main()
