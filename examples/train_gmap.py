# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Train G-MAP: a domain encoder that reads the memory of a frozen general encoder.

With no arguments the script runs offline, on generated reviews and a small untrained encoder in both roles.
`examples/pretrain_gmap.py` makes a domain encoder. To compare G-MAP with fine-tuning and DAPT, use
`hf-memaug compare --recipe examples/recipes/gmap_chemprot.yaml`.

    python examples/train_gmap.py
    python examples/train_gmap.py --strategy gated --memory_layers 2
    python examples/train_gmap.py --data chemprot --general FacebookAI/roberta-base \\
        --domain allenai/biomed_roberta_base --learning_rate 4e-5 --num_train_epochs 10
"""

from dataclasses import dataclass, field

from small_encoder import make_small_encoder
from transformers import AutoTokenizer, DataCollatorWithPadding, HfArgumentParser, Trainer, TrainingArguments, set_seed

from hf_memaug import GMAPForSequenceClassification, ModelCardCallback, RunGuard, load_domains
from hf_memaug.data import check_overlap, generated_reviews
from hf_memaug.evaluation import classification_scores


@dataclass
class ScriptArguments:
    data: str | None = field(
        default=None,
        metadata={"help": "Folder with train, dev and test files (CSV, JSON lines, Parquet); generated if unset."},
    )
    text: str = field(default="text", metadata={"help": "Column with the text."})
    label: str = field(default="label", metadata={"help": "Column with the label."})
    max_length: int = field(default=126, metadata={"help": "Longest text in tokens."})
    general: str | None = field(default=None, metadata={"help": "The frozen encoder; a small one if unset."})
    domain: str | None = field(default=None, metadata={"help": "The encoder that reads it (`general` if unset)."})
    strategy: str = field(
        default="chunk_gated", metadata={"help": "Layers to read: single, multiple, gated or chunk_gated."}
    )
    fusion: str = field(
        default="memory_attention", metadata={"help": "memory_attention, cross_attention or gate_attention."}
    )
    memory_layers: list[int] | None = field(default=None, metadata={"help": "Layers that read, counted from 1."})


def main() -> None:
    parser = HfArgumentParser((ScriptArguments, TrainingArguments), description=__doc__)
    parser.set_defaults(
        output_dir="runs/gmap",
        learning_rate=1e-3,
        num_train_epochs=6,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=128,
        warmup_steps=0.06,
        weight_decay=0.01,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="eval_macro_f1",
        report_to=[],
    )
    script, args = parser.parse_args_into_dataclasses()

    # 1. Data: no test row may be a training row.
    if script.data:
        columns = {"text": script.text, "label": script.label, "domain": None}
        train = load_domains(script.data, split="train", **columns)
        dev, test = (load_domains(script.data, split=s, labels=train.label_names, **columns) for s in ("dev", "test"))
    else:
        rows = generated_reviews(rows_per_domain=160).shuffle(0)
        train, dev, test = (rows.select(range(start, len(rows), 3)) for start in range(3))
    check_overlap(train, test)

    # 2. Model: two encoders with one vocabulary.
    general = script.general or make_small_encoder(train["text"], f"{args.output_dir}/encoder")
    domain = script.domain or general
    tokenizer = AutoTokenizer.from_pretrained(domain)
    train, dev, test = (part.tokenize(tokenizer, script.max_length) for part in (train, dev, test))
    set_seed(args.seed)
    model = GMAPForSequenceClassification.from_general_and_domain(
        general,
        domain,
        strategy=script.strategy,
        fusion=script.fusion,
        memory_layers=script.memory_layers,
        id2label=dict(enumerate(train.label_names)),
    )

    # 3. Train the domain encoder; the general encoder is frozen.
    trainer = Trainer(
        model,
        args,
        train_dataset=train,
        eval_dataset=dev,
        data_collator=DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
        compute_metrics=classification_scores,
        callbacks=[RunGuard(), ModelCardCallback()],
    )
    trainer.train()
    metrics = trainer.predict(test).metrics
    print(f"test macro-F1 {100 * metrics['test_macro_f1']:.1f}, accuracy {100 * metrics['test_accuracy']:.1f}")
    trainer.save_model()


if __name__ == "__main__":
    main()
