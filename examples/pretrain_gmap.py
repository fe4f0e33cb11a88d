# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Pre-train a domain encoder for G-MAP by masked language modelling on the text of a domain (DAPT) or a task (TAPT).

With no arguments the script runs offline, on generated reviews and a small untrained encoder. With `--general` the
model reads the memory of a frozen general encoder while it is pre-trained (section 4.4 of the paper).
`hf-memaug pretrain` does the same and has more options, such as streaming and further corpora to measure.

    python examples/pretrain_gmap.py
    python examples/pretrain_gmap.py --backbone FacebookAI/roberta-base --corpus biomed.jsonl.gz \\
        --learning_rate 1e-4 --num_train_epochs 5 --output_dir runs/biomed-roberta
    python examples/train_gmap.py --general FacebookAI/roberta-base --domain runs/biomed-roberta --data chemprot
"""

from dataclasses import dataclass, field

from small_encoder import make_small_encoder
from transformers import AutoModelForMaskedLM, AutoTokenizer, HfArgumentParser, TrainingArguments, set_seed

from hf_memaug import GMAPForMaskedLM, RunGuard
from hf_memaug.data.corpus import HeldOutTexts, PackedTexts, WholeWordMasking
from hf_memaug.evaluation import masked_lm_loss
from hf_memaug.training import MaskedLMTrainer


@dataclass
class ScriptArguments:
    corpus: list[str] | None = field(
        default=None, metadata={"help": "Text files or JSON lines, also .gz; generated reviews if unset."}
    )
    text: str = field(default="text", metadata={"help": "Column of JSON lines with the text."})
    backbone: str | None = field(default=None, metadata={"help": "RoBERTa or BERT; a small encoder if unset."})
    general: str | None = field(default=None, metadata={"help": "Frozen encoder whose memory is read."})
    length: int = field(default=126, metadata={"help": "Tokens of a row."})
    held_out: int = field(default=20, metadata={"help": "Every N-th text is held out to measure the loss."})


def main() -> None:
    parser = HfArgumentParser((ScriptArguments, TrainingArguments), description=__doc__)
    parser.set_defaults(
        output_dir="runs/pretrained",
        learning_rate=5e-4,
        num_train_epochs=3,
        per_device_train_batch_size=32,
        warmup_steps=0.06,
        weight_decay=0.01,
        remove_unused_columns=False,  # the collator needs `word_ids`
        report_to=[],
    )
    script, args = parser.parse_args_into_dataclasses()

    # 1. Data: whole texts, packed into rows without padding.
    texts = {
        held_out: HeldOutTexts(script.corpus, script.text, script.held_out, held_out) for held_out in (False, True)
    }
    backbone = script.backbone or make_small_encoder(texts[False], f"{args.output_dir}/encoder")
    tokenizer = AutoTokenizer.from_pretrained(backbone)
    train, held_out = (list(PackedTexts(texts[one], tokenizer, script.length, keep_rest=one)) for one in (False, True))

    # 2. Model.
    set_seed(args.seed)
    if script.general:
        model = GMAPForMaskedLM.from_general_and_domain(script.general, backbone)
    else:
        model = AutoModelForMaskedLM.from_pretrained(backbone)

    # 3. Train, and measure the loss on the same masks before and after.
    trainer = MaskedLMTrainer(
        model,
        args,
        train_dataset=train,
        data_collator=WholeWordMasking(tokenizer),
        processing_class=tokenizer,
        callbacks=[RunGuard()],
    )
    before = masked_lm_loss(model, held_out, WholeWordMasking(tokenizer, seed=0))
    trainer.train()
    after = masked_lm_loss(model, held_out, WholeWordMasking(tokenizer, seed=0))
    print(f"masked-LM loss on held-out texts: {before:.3f} before, {after:.3f} after")
    trainer.save_model()


if __name__ == "__main__":
    main()
