# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Adapt a trained classifier to a new domain by writing labelled rows to its memory, without training.

The script trains a classifier on all domains but one, scores the domain left out, writes some of its rows, scores
again, erases them, and scores again. With no arguments it runs offline: it trains a small vision transformer on digits
of several angles, and the new domain is an angle that it has not seen.

    python examples/write_a_domain.py
    python examples/write_a_domain.py --data PACS --target sketch --backbone facebook/deit-small-patch16-224 \\
        --learning_rate 5e-5 --max_steps 700 --rows 128
"""

import time
from dataclasses import dataclass, field

import torch
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    HfArgumentParser,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorPil,
    set_seed,
)
from transformers.utils import logging

from hf_memaug import (
    DomainTrainer,
    DomainTrainingArguments,
    WritableMemoryForImageClassification,
    leave_one_domain_out,
    load_domains,
)
from hf_memaug.data import generated_digits


@dataclass
class ScriptArguments:
    data: str | None = field(default=None, metadata={"help": "Folder of images domain/class/*; digits if unset."})
    target: str | None = field(default=None, metadata={"help": "Domain to leave out (the last one if unset)."})
    backbone: str | None = field(default=None, metadata={"help": "An image encoder; a small untrained one if unset."})
    rows: int = field(default=64, metadata={"help": "Labelled rows of the new domain to write."})


def main() -> None:
    parser = HfArgumentParser((ScriptArguments, DomainTrainingArguments), description=__doc__)
    parser.set_defaults(output_dir="runs/write_a_domain", learning_rate=1e-3, num_train_epochs=10, report_to=[])
    parser.set_defaults(per_device_train_batch_size=64, save_strategy="no", logging_strategy="no", disable_tqdm=True)
    parser.set_defaults(dataloader_pin_memory=torch.cuda.is_available())
    script, args = parser.parse_args_into_dataclasses()
    logging.set_verbosity_error()
    set_seed(args.seed)

    # 1. Train on the old domains.
    rows = load_domains(script.data) if script.data else generated_digits()
    target = script.target or rows.domains[-1]
    split = leave_one_domain_out(rows, target)
    names = dict(enumerate(rows.label_names))
    labels = {"id2label": names, "label2id": {name: label for label, name in names.items()}}
    if script.backbone:
        processor = AutoImageProcessor.from_pretrained(script.backbone)
        classifier = AutoModelForImageClassification.from_pretrained(script.backbone, **labels)
    else:
        processor = ViTImageProcessorPil(size={"height": 32, "width": 32})
        sizes = {"hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 192}
        classifier = ViTForImageClassification(ViTConfig(image_size=32, patch_size=8, **sizes, **labels))
    print(f"Training a classifier on {', '.join(split.sources)} ...", flush=True)
    DomainTrainer(classifier, args, train_dataset=split.train, processing_class=processor).train()

    # 2. Write rows of the new domain. Half of the dev rows guard the old domains, the others are scored.
    new, dev = split.test.shuffle(args.seed), split.dev.shuffle(args.seed)
    written, test = new.select(range(script.rows)), new.select(range(script.rows, len(new)))
    guard, old = dev.select(range(len(dev) // 2)), dev.select(range(len(dev) // 2, len(dev)))
    model = WritableMemoryForImageClassification.from_classifier(classifier)
    trainer = DomainTrainer(model, args, eval_dataset=old, processing_class=processor)

    def show(what: str) -> None:
        scores = [100 * trainer.predict(part).metrics["test_accuracy"] for part in (test, old)]
        print(f"{what:36}{scores[0]:12.1f}{scores[1]:14.1f}", flush=True)

    print(f"\n{'accuracy in %':36}{target + ' (new)':>12}{'old domains':>14}")
    show("the classifier")
    begin = time.perf_counter()
    entry = model.write(written, domain=target, image_processor=processor, guard=guard)
    show(f"{entry['rows']} rows of {target} written in {time.perf_counter() - begin:.1f} s")
    model.erase(target)
    show(f"{target} erased")
    model.write(written, domain=target, image_processor=processor)
    model.save_pretrained(f"{args.output_dir}/checkpoint")
    processor.save_pretrained(f"{args.output_dir}/checkpoint")
    print(f"\nThe model with these rows is in {args.output_dir}/checkpoint. See what was written with")
    print(f"hf-memaug memory {args.output_dir}/checkpoint")


if __name__ == "__main__":
    main()
