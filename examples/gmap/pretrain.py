# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
Further pre-training by masked language modelling: on the text of a domain (DAPT), on the text of a task (TAPT), or both
after each other. The result is a domain encoder for G-MAP, ready for `from_general_and_domain`. With no arguments it
needs no network: texts and a small encoder are made on the spot.

    python examples/gmap/pretrain.py
    python examples/gmap/pretrain.py --backbone FacebookAI/roberta-base --corpus biomed.jsonl.gz --also general.txt \\
        --learning-rate 1e-4 --epochs 5 --output runs/biomed-roberta
    python examples/gmap/pretrain.py --backbone runs/biomed-roberta --corpus chemprot.train.jsonl --output runs/tapt
    python examples/gmap/pretrain.py --backbone ENCODER --corpus general.txt --only-head --learning-rate 1e-3 \\
        --output runs/general    # for an encoder that comes without a masked-LM head: train one, keep the rest
    python examples/gmap/pretrain.py --backbone FacebookAI/roberta-base --general FacebookAI/roberta-base \\
        --corpus biomed.jsonl.gz --output runs/gmap-biomed    # with the memory of the general encoder (section 4.4)

A corpus is a text file with a text a line, or JSON lines. Whole words are masked, and texts are packed into full rows.
A share of the texts is held out; on those, and on the same share of every corpus of `--also`, the loss is measured
before and after, with the same masks. Left in the output folder: the checkpoint with its tokenizer, `pretraining.json`
and `losses.png`.
"""

import argparse
import json
import sys
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # small_encoder.py


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = parser.add_argument_group("data")
    data.add_argument("--corpus", nargs="+", help="text or JSON lines, also .gz; generated reviews if left out")
    data.add_argument("--field", default="text", help="column of JSON lines that holds the text (default: text)")
    data.add_argument(
        "--also", nargs="+", default=[], help="other corpora on which to measure the loss, such as general text"
    )
    data.add_argument(
        "--held-out", type=int, default=20, metavar="N", help="every N-th text is held out, 0: none (default: 20)"
    )
    data.add_argument("--length", type=int, default=128, help="tokens of a row (default: %(default)s)")
    data.add_argument(
        "--stream",
        action="store_true",
        help="read the corpus as it goes, in its order: for one that is too large",
    )
    model = parser.add_argument_group("model")
    model.add_argument("--backbone", help="a RoBERTa or BERT checkpoint; a small untrained encoder if left out")
    model.add_argument("--general", help="G-MAP in the pre-training stage: the frozen encoder whose memory is read")
    model.add_argument("--strategy", help="of G-MAP, with --general (default: chunk_gated)")
    training = parser.add_argument_group("training")
    training.add_argument("--epochs", type=float, default=5, help="passes over the corpus (default: %(default)s)")
    training.add_argument("--steps", type=int, help="optimizer steps instead; needed with --stream")
    training.add_argument("--batch-size", type=int, default=32, help="rows of a batch (default: %(default)s)")
    training.add_argument("--learning-rate", type=float, default=5e-4, help="default: 5e-4, for the small encoder")
    training.add_argument("--only-head", action="store_true", help="keep the encoder as it is, and train its head")
    training.add_argument("--masked", type=float, default=0.15, help="share of the words (default: %(default)s)")
    training.add_argument("--evaluate-rows", type=int, default=500, help="rows of each loss, at most (default: 500)")
    training.add_argument("--workers", type=int, default=0, help="processes that mask words (default: %(default)s)")
    training.add_argument("--seed", type=int, default=0, help="default: 0")
    training.add_argument("--resume", action="store_true", help="go on from the last checkpoint of the output folder")
    training.add_argument("--output", type=Path, default="runs/pretrained", help="default: %(default)s")
    options = parser.parse_args()
    if options.stream and options.steps is None:
        parser.error("--stream needs --steps: a stream does not say how long it is")
    if options.held_out == 0 and options.also:
        parser.error("--also measures held-out texts, and --held-out 0 holds none out")
    if options.held_out < 0 or options.held_out == 1:
        parser.error("--held-out 1 leaves nothing to train on: choose 2 or more, or 0 for none")
    if options.strategy and not options.general:
        parser.error("--strategy is G-MAP's: give --general as well")
    return options


def load_model(options, backbone: str):
    from transformers import AutoModelForMaskedLM, set_seed

    from hf_memaug import GMAPForMaskedLM

    set_seed(options.seed)
    if options.general is None:
        return AutoModelForMaskedLM.from_pretrained(backbone, dtype="float32")
    return GMAPForMaskedLM.from_general_and_domain(
        options.general, backbone, strategy=options.strategy or "chunk_gated", dtype="float32"
    )


def main() -> None:
    options = parse_arguments()
    import torch
    from small_encoder import make_small_encoder
    from transformers import AutoTokenizer, TrainingArguments

    from hf_memaug import RunGuard
    from hf_memaug.data.corpus import HeldOutTexts, PackedTexts, WholeWordMasking, corpus_names
    from hf_memaug.evaluation import masked_lm_loss
    from hf_memaug.reporting.plots import plot_bars
    from hf_memaug.training import MaskedLMTrainer, fitting_length

    def part(files, held_out: bool) -> PackedTexts:
        texts = HeldOutTexts(files, options.field, options.held_out, held_out)
        return PackedTexts(texts, tokenizer, options.length, keep_rest=held_out)

    backbone = options.backbone
    if backbone is None:
        backbone = make_small_encoder(
            HeldOutTexts(options.corpus, options.field, options.held_out, False), options.output / "encoder"
        )
    tokenizer = AutoTokenizer.from_pretrained(backbone)
    model = load_model(options, backbone)
    length = fitting_length(options.length, tokenizer, model)
    if length < options.length:
        print(f"rows of {length} tokens: the encoder has places for no more")
    options.length = length
    files = [*(options.corpus or []), *options.also]
    measured = {} if options.corpus else {"generated reviews": None}
    measured |= {name: [file] for name, file in corpus_names(files).items()}
    if options.held_out == 0:
        measured = {}
    evaluated = {
        name: list(islice(part(files, held_out=True), options.evaluate_rows)) for name, files in measured.items()
    }
    train = part(options.corpus, held_out=False)
    train = train if options.stream else list(train)

    def losses() -> dict[str, float]:
        # The same masks each time.
        masking = WholeWordMasking(tokenizer, seed=0)
        found = {corpus: masked_lm_loss(model, rows, masking) for corpus, rows in evaluated.items()}
        print("  ".join(f"{corpus}: {loss:.3f}" for corpus, loss in found.items()), flush=True)
        return found

    if options.only_head:
        # The words' vectors are the encoder's, also where the head reads them.
        model.base_model.requires_grad_(False)
    if torch.cuda.is_available():
        model.cuda()
    print("masked-LM loss before:")
    before = losses()
    arguments = TrainingArguments(
        str(options.output),
        max_steps=options.steps or -1,
        num_train_epochs=options.epochs,
        per_device_train_batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        warmup_steps=0.06,
        weight_decay=0.01,
        bf16=torch.cuda.is_available(),
        save_strategy="steps",
        save_steps=0.25,
        save_total_limit=1,
        logging_steps=0.05,
        # `word_ids` is for the collator, not for the model.
        remove_unused_columns=False,
        dataloader_pin_memory=torch.cuda.is_available(),
        dataloader_num_workers=options.workers,
        report_to=[],
        seed=options.seed,
    )
    trainer = MaskedLMTrainer(
        model,
        arguments,
        train_dataset=train,
        data_collator=WholeWordMasking(tokenizer, options.masked),
        processing_class=tokenizer,
        callbacks=[RunGuard()],
    )
    trainer.train(resume_from_checkpoint=options.resume or None)
    print("after:")
    after = losses()
    trainer.save_model()
    record = {
        "command": "python " + " ".join(sys.argv),
        "steps": trainer.state.global_step,
        "before": before,
        "after": after,
    }
    (options.output / "pretraining.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    if evaluated:
        plot_bars({"before": before, "after": after}, options.output / "losses.png", "corpus", "masked-LM loss")
    print(f"wrote {options.output}")


if __name__ == "__main__":
    main()
