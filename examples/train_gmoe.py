# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Train GMoE: a vision transformer whose last layers have sparse experts, tested on a domain that it has not seen.

With no arguments the script runs offline, on rotated digits and a small untrained ViT. The data is a folder of images
`domain/class/*.jpg`. To compare GMoE with ViT and other algorithms by DomainBed's protocol, use
`hf-memaug sweep --recipe examples/recipes/gmoe_pacs.yaml`.

    python examples/train_gmoe.py
    python examples/train_gmoe.py --algorithm fish --router linear
    python examples/train_gmoe.py --data PACS --target sketch --backbone facebook/deit-small-patch16-224 \\
        --learning_rate 5e-5 --max_steps 5000 --augment_images true --bf16 true
"""

from dataclasses import dataclass, field

from transformers import (
    AutoImageProcessor,
    HfArgumentParser,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
    set_seed,
)

from hf_memaug import (
    DomainTrainer,
    DomainTrainingArguments,
    ViTGMoEForImageClassification,
    leave_one_domain_out,
    load_domains,
)
from hf_memaug.data import generated_digits
from hf_memaug.evaluation import score_table


@dataclass
class ScriptArguments:
    data: str | None = field(default=None, metadata={"help": "Folder of images domain/class/*; digits if unset."})
    target: str | None = field(default=None, metadata={"help": "Domain to leave out (the last one if unset)."})
    backbone: str | None = field(default=None, metadata={"help": "A ViT checkpoint; a small untrained one if unset."})
    num_experts: int = field(default=6, metadata={"help": "Experts of a layer."})
    moe_placement: str = field(default="last_two", metadata={"help": "Layers with experts: last_two or every_two."})
    router: str = field(default="cosine", metadata={"help": "cosine or linear."})


def main() -> None:
    parser = HfArgumentParser((ScriptArguments, DomainTrainingArguments), description=__doc__)
    parser.set_defaults(
        output_dir="runs/gmoe",
        learning_rate=1e-3,
        num_train_epochs=3,
        per_device_train_batch_size=96,
        per_device_eval_batch_size=128,
        lr_scheduler_type="constant",
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="eval_accuracy",  # mean over the source domains
        report_to=[],
    )
    script, args = parser.parse_args_into_dataclasses()

    # 1. Data: one domain is left out of training and selection.
    rows = load_domains(script.data) if script.data else generated_digits()
    target = script.target or rows.domains[-1]
    split = leave_one_domain_out(rows, target)
    print(split.summary())

    # 2. Model: every expert starts as a copy of the backbone's feed-forward network.
    labels = {"id2label": dict(enumerate(rows.label_names))}
    experts = {"num_experts": script.num_experts, "moe_placement": script.moe_placement, "router": script.router}
    set_seed(args.seed)
    if script.backbone:
        processor = AutoImageProcessor.from_pretrained(script.backbone)
        backbone = script.backbone
    else:
        processor = ViTImageProcessor(size={"height": 32, "width": 32})
        sizes = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 128}
        backbone = ViTForImageClassification(ViTConfig(image_size=32, patch_size=8, **sizes, **labels))
    model = ViTGMoEForImageClassification.from_vit(backbone, **experts, **labels)

    # 3. Train on batches with equal shares of the source domains, and score the unseen domain.
    trainer = DomainTrainer(model, args, train_dataset=split.train, eval_dataset=split.dev, processing_class=processor)
    trainer.train()
    metrics = trainer.predict(split.dev).metrics | trainer.predict(split.test).metrics
    print(f"\naccuracy in points: dev rows of the source domains, all rows of {target} (unseen)")
    print(score_table({"gmoe": {domain: metrics[f"test_{domain}_accuracy"] for domain in (*split.sources, target)}}))
    trainer.save_model()


if __name__ == "__main__":
    main()
