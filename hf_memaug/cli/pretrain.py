# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`hf-memaug pretrain`: masked language modelling on the text of a domain (DAPT) or of a task (TAPT)."""

import contextlib
import json
import shutil
from itertools import islice
from pathlib import Path
from typing import Any

from accelerate.utils import patch_environment

from hf_memaug.data import DomainDataset
from hf_memaug.files import differing, readable_error, write_atomically
from hf_memaug.inference.checkpoints import read_config
from hf_memaug.runs.arguments import common_arguments, make_arguments
from hf_memaug.runs.building import checkpoint_processor
from hf_memaug.runs.display import Display
from hf_memaug.runs.errors import OK, DataRefused, Interrupted, UsageError
from hf_memaug.runs.folder import RunFolder
from hf_memaug.runs.job import Job
from hf_memaug.runs.progress import Steps, Stop
from hf_memaug.runs.settings import in_options, option_name, trainer_settings
from hf_memaug.runs.small_models import SMALL, small_backbone

RECORD = "pretraining.json"
# A small encoder has the words of the first texts of a stream.
FIRST_TEXTS = 10_000


def pretrain(call) -> int:
    options, settings = call.options, call.resolved.settings
    if options.held_out == 1:
        raise UsageError("`--held-out` is 1, which leaves nothing to train on. Use 2 or more, or 0 for none.")
    if not 0 < options.masked < 1:
        raise UsageError(f"`--masked` is {options.masked:g}. Use a fraction between 0 and 1, such as 0.15.")
    if options.stream and settings.get("max_steps", 0) <= 0:
        raise UsageError("`--stream` needs `--max-steps`, because the length of a stream is unknown.")
    of_model = {name: value for name, value in settings.items() if name not in trainer_settings("masked_lm")}
    if of_model and options.general is None:
        raise UsageError(f"`{option_name(next(iter(of_model)))}` is an option of G-MAP. Set `--general` too.")
    folder = RunFolder(options.output or "runs/pretrain")
    with folder.locked():
        record = folder.read(RECORD)
        recipe = json.loads(json.dumps(call.resolved.recipe(call.command)))
        changed = differing(recipe, record.get("recipe", recipe))
        if changed is not None:
            raise UsageError(
                f"`{changed}` is {recipe.get(changed)!r}, but in {folder.path} it is "
                f"{record['recipe'].get(changed)!r}. Use the same value, or another `--output`."
            )
        display = Display("loss", options.quiet, options.json)
        if record.get("after") is not None:
            display.line(f"{folder.path} is done already.", event="finished", **record)
            return OK
        folder.write_recipe(recipe)
        try:
            return _run(call, folder.path, of_model, recipe, record, display)
        except Exception as error:
            plain = readable_error(error, folder.path)
            if plain is error:
                raise
            raise plain from error


def _run(call, output: Path, of_model: dict[str, Any], recipe: dict, earlier: dict, display: Display) -> int:
    import torch
    from transformers import logging

    from hf_memaug.data.corpus import WholeWordMasking
    from hf_memaug.evaluation import masked_lm_loss

    options = call.options
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    corpus, texts = _texts(options)
    backbone = options.backbone
    if backbone == SMALL:
        columns = {"text": texts, "domain": ["corpus"] * len(texts), "label": [0] * len(texts)}
        backbone = small_backbone(DomainDataset(columns), "corpus", output)
    tokenizer = checkpoint_processor(backbone, "text")
    model = _model(options, backbone, of_model, display)
    train, evaluated = _rows(options, corpus, texts, tokenizer, model, display)
    if options.only_head:
        # The head shares the word embeddings with the encoder.
        model.base_model.requires_grad_(False)
    if torch.cuda.is_available():
        model.cuda()

    def losses() -> dict[str, float]:
        # The same masks each time.
        masking = WholeWordMasking(tokenizer, seed=0)
        return {name: masked_lm_loss(model, rows, masking) for name, rows in evaluated.items()}

    record = {"command": call.line, "recipe": recipe, "before": earlier.get("before") or losses(), "after": None}
    display.line(f"masked-LM loss before: {_shown(record['before'])}", event="before", **record["before"])
    write_atomically(output / RECORD, json.dumps(record, indent=2) + "\n")
    trainer = _train(call, output, of_model, model, tokenizer, train, display)
    record |= {"steps": trainer.state.global_step, "after": losses()}
    trainer.save_model(str(output))
    (output / "training_args.bin").unlink(missing_ok=True)
    write_atomically(output / RECORD, json.dumps(record, indent=2) + "\n")
    shutil.rmtree(trainer.args.output_dir, ignore_errors=True)
    display.line(f"masked-LM loss after:  {_shown(record['after'])}\nencoder: {output}", event="finished", **record)
    return OK


def _texts(options):
    """The corpus to train on, and its texts (of a stream the first ones)."""
    from hf_memaug.data.corpus import HeldOutTexts

    try:
        corpus = HeldOutTexts(options.corpus, options.field, options.held_out, False)
        texts = list(islice(corpus, FIRST_TEXTS if options.stream else None))
        if not texts:
            has_one = next(iter(HeldOutTexts(options.corpus, options.field, options.held_out, True)), None) is not None
            hint = "Its only text is held out to measure the loss. Use more texts, or `--held-out 0`."
            raise ValueError(f"`--corpus` has no text to train on. {hint if has_one else 'It is empty.'}")
    except (ValueError, OSError) as error:
        raise DataRefused(in_options(str(error), ["field"], files="--corpus")) from error
    return corpus, texts


def _rows(options, corpus, texts: list[str], tokenizer, model, display: Display):
    """(rows to train on, rows of each corpus to measure the loss on)."""
    from hf_memaug.data.corpus import HeldOutTexts, PackedTexts, corpus_names
    from hf_memaug.training import fitting_length

    length = fitting_length(options.length, tokenizer, model)
    if length < options.length:
        said = f"Rows have {length} tokens, the most that the encoder has positions for."
        display.line(said, event="length", length=length)
    measured: dict[str, list | None] = {}
    if options.held_out:
        measured = {} if options.corpus else {"generated reviews": None}
        files = [*(options.corpus or ()), *(options.also or ())]
        measured |= {name: [file] for name, file in corpus_names(files).items()}
    evaluated = {}
    for name, which in measured.items():
        part = HeldOutTexts(which, options.field, options.held_out, True)
        try:
            packed = PackedTexts(part, tokenizer, length, keep_rest=True)
            evaluated[name] = list(islice(packed, options.evaluate_rows))
        except (ValueError, OSError) as error:
            raise DataRefused(in_options(str(error), ["field"], files="--also")) from error
        if not evaluated[name]:
            why = f"`--held-out` {options.held_out} holds out none of its texts"
            raise DataRefused(f"The loss on {name} cannot be measured: {why}. Use more texts, or a smaller number.")
    train = PackedTexts(corpus, tokenizer, length) if options.stream else list(PackedTexts(texts, tokenizer, length))
    if next(iter(train), None) is None:
        raise DataRefused(f"`--corpus` has less than one row of `--length` {length} tokens. Use more text.")
    return train, evaluated


def _train(call, output: Path, of_model: dict[str, Any], model, tokenizer, train, display: Display):
    from transformers import PrinterCallback

    from hf_memaug import RunGuard
    from hf_memaug.data.corpus import WholeWordMasking
    from hf_memaug.training import MaskedLMTrainer, last_complete_checkpoint

    options = call.options
    fixed = {"save_strategy": "steps", "save_steps": 0.25, "logging_steps": 0.05, "warmup_steps": 0.06}
    # `word_ids` is for the collator, not for the model.
    fixed |= {"remove_unused_columns": False, "weight_decay": 0.01}
    given = {name: value for name, value in call.resolved.settings.items() if name not in of_model}
    arguments = make_arguments("masked_lm", {**common_arguments(output, options.seed), **fixed, **given})
    job = Job(name="pretrain", method="pretrain", seed=options.seed, source={})
    display.start(job)
    with (
        Stop() as stop,
        contextlib.closing(display),
        patch_environment(TENSORBOARD_LOGGING_DIR=output / "logs"),
        open(output / "log.txt", "a", encoding="utf-8") as log,
    ):
        steps = Steps(lambda event: display.event(job, event), stop, output / "metrics.jsonl")
        trainer = MaskedLMTrainer(
            model,
            arguments,
            train_dataset=train,
            data_collator=WholeWordMasking(tokenizer, options.masked),
            processing_class=tokenizer,
            callbacks=[RunGuard(), steps],
        )
        trainer.remove_callback(PrinterCallback)
        try:
            with contextlib.redirect_stdout(log):
                trainer.train(resume_from_checkpoint=last_complete_checkpoint(arguments.output_dir))
        except Interrupted as error:
            raise Interrupted(f"{error} To resume it, rerun the same command.") from None
    return trainer


def _model(options, backbone: str, of_model: dict[str, Any], display: Display):
    from transformers import MODEL_FOR_MASKED_LM_MAPPING, AutoModelForMaskedLM, set_seed

    from hf_memaug.modeling.modeling_utils import lacking_lm_head

    set_seed(options.seed)
    config = read_config(backbone, "--backbone")
    if options.general is not None:
        return _paired_model(options, config, backbone, of_model)
    if type(config) not in MODEL_FOR_MASKED_LM_MAPPING:
        raise UsageError(f"`--backbone` is a `{config.model_type}`, which has no masked-LM head. Use RoBERTa or BERT.")
    model, info = AutoModelForMaskedLM.from_pretrained(backbone, dtype="float32", output_loading_info=True)
    missing = lacking_lm_head(info["missing_keys"])
    if missing and options.backbone != SMALL and not options.only_head:
        said = "The encoder has no masked-LM head, and an untrained one harms it at first. Train the head beforehand "
        said += "with `--only-head --learning-rate 1e-3`, and use the result as `--backbone`."
        display.line(said, event="fresh_head", weights=missing)
    return model


def _paired_model(options, config, backbone: str, of_model: dict[str, Any]):
    """The masked-LM model of the family that reads a general encoder."""
    from hf_memaug.registry import FAMILIES

    family, method = next((row, one) for row in FAMILIES.values() for one in row.methods if one.needs_general)
    if type(config) is family.config_class:
        raise UsageError(f"`--backbone` is a `{config.model_type}` already. Leave `--general` out.")
    read_config(options.general, "--general")
    build = getattr(family.load(family.models["AutoModelForMaskedLM"][0]), method.born)
    try:
        return build(options.general, backbone, dtype="float32", **of_model)
    except ValueError as error:
        raise UsageError(in_options(str(error), ["general"], domain="--backbone")) from error


def _shown(losses: dict[str, float]) -> str:
    return "  ".join(f"{name} {loss:.3f}" for name, loss in losses.items()) or "not measured"
