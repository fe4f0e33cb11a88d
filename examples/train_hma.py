# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Train HMA: a real and a synthetic memory on the feature of any backbone, for text, images or graphs.

With no other arguments the script runs offline, on generated data and a small untrained backbone. Graphs need
`pip install hf_memaug[graph]`. To compare HMA with the plain backbone, use
`hf-memaug compare --recipe examples/recipes/hma_bace.yaml`.

    python examples/train_hma.py --kind text
    python examples/train_hma.py --kind image
    python examples/train_hma.py --kind graph
    python examples/train_hma.py --kind text --data reviews.csv --target books \\
        --backbone FacebookAI/roberta-base --learning_rate 2e-5 --real_memory_size 512
"""

from dataclasses import dataclass, field

from small_encoder import make_small_encoder
from transformers import (
    AutoImageProcessor,
    AutoTokenizer,
    HfArgumentParser,
    ViTConfig,
    ViTImageProcessor,
    ViTModel,
    set_seed,
)

from hf_memaug import (
    DomainTrainer,
    DomainTrainingArguments,
    HMAForGraphClassification,
    HMAForImageClassification,
    HMAForSequenceClassification,
    leave_one_domain_out,
    load_domains,
)
from hf_memaug.data import generated_digits, generated_graphs, generated_reviews, load_graphs
from hf_memaug.evaluation import score_table


@dataclass
class ScriptArguments:
    kind: str = field(default="text", metadata={"help": "text, image or graph."})
    data: str | None = field(default=None, metadata={"help": "Rows of that kind; generated if unset."})
    target: str | None = field(default=None, metadata={"help": "Domain to leave out (the last one if unset)."})
    backbone: str | None = field(default=None, metadata={"help": "A checkpoint; a small untrained one if unset."})
    augmentation: str = field(default="hma", metadata={"help": "hma, or an ablation: none, param, rma, abd, ..."})
    real_memory_size: int = field(default=128, metadata={"help": "Rows that the real memory holds."})
    synthetic_slots: int = field(default=8, metadata={"help": "Learned slots of each class."})


def text_model(script, args, rows, split, memory):
    backbone = script.backbone or make_small_encoder(split.train["text"], f"{args.output_dir}/encoder")
    return HMAForSequenceClassification.from_backbone(backbone, **memory), AutoTokenizer.from_pretrained(backbone)


def image_model(script, args, rows, split, memory):
    if script.backbone:
        processor = AutoImageProcessor.from_pretrained(script.backbone)
        return HMAForImageClassification.from_backbone(script.backbone, **memory), processor
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    vit = ViTModel(ViTConfig(image_size=32, patch_size=8, **sizes), add_pooling_layer=False)
    return HMAForImageClassification.from_backbone(vit, **memory), ViTImageProcessor(size={"height": 32, "width": 32})


def graph_model(script, args, rows, split, memory):
    from hf_memaug import GraphNetworkConfig, GraphNetworkModel
    from hf_memaug.data import feature_sizes

    if script.backbone:
        network = GraphNetworkModel.from_pretrained(script.backbone)
    else:
        sizes = {"network": "gin", "num_hidden_layers": 3, "hidden_size": 64}
        network = GraphNetworkModel(GraphNetworkConfig(**sizes, **feature_sizes(rows)._asdict()))
    return HMAForGraphClassification.from_backbone(network, **memory), None


KINDS = {
    "text": (generated_reviews, load_domains, text_model),
    "image": (generated_digits, load_domains, image_model),
    "graph": (generated_graphs, load_graphs, graph_model),
}


def main() -> None:
    parser = HfArgumentParser((ScriptArguments, DomainTrainingArguments), description=__doc__)
    parser.set_defaults(
        output_dir="runs/hma",
        learning_rate=1e-3,
        num_train_epochs=5,
        per_device_train_batch_size=64,
        per_device_eval_batch_size=128,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="eval_f1",  # mean macro-F1 over the source domains
        report_to=[],
    )
    script, args = parser.parse_args_into_dataclasses()
    generate, load, make_model = KINDS[script.kind]

    # 1. Data: one domain is left out of training and selection.
    rows = load(script.data) if script.data else generate()
    target = script.target or rows.domains[-1]
    split = leave_one_domain_out(rows, target)
    print(split.summary())

    # 2. Model: the backbone, the two memories and a linear head.
    memory = {
        "augmentation": script.augmentation,
        "real_memory_size": script.real_memory_size,
        "synthetic_slots": script.synthetic_slots,
        "id2label": dict(enumerate(rows.label_names)),
    }
    set_seed(args.seed)
    model, processor = make_model(script, args, rows, split, memory)
    train, dev, test = split.train, split.dev, split.test
    if script.kind == "text":
        train, dev, test = (part.tokenize(processor) for part in (train, dev, test))

    # 3. Train: the trainer writes each batch to the real memory after the optimizer's step.
    trainer = DomainTrainer(model, args, train_dataset=train, eval_dataset=dev, processing_class=processor)
    trainer.train()
    metrics = trainer.predict(dev).metrics | trainer.predict(test).metrics
    print(f"\nmacro-F1 in points: dev rows of the source domains, all rows of {target} (unseen)")
    print(score_table({"hma": {domain: metrics[f"test_{domain}_f1"] for domain in (*split.sources, target)}}))
    trainer.save_model()


if __name__ == "__main__":
    main()
