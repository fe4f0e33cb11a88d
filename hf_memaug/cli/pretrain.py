# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-memaug pretrain`: masked language modelling on the text of a domain (DAPT) or of a task (TAPT)."""

import contextlib
import json
import shutil
from itertools import islice
from pathlib import Path
from typing import Any

from hf_memaug.files import differing, told_plainly, write_atomically
from hf_memaug.inference.checkpoints import read_config
from hf_memaug.runs.errors import CommandError, DataRefused, Interrupted, UsageError
from hf_memaug.runs.folder import RunFolder, write_recipe
from hf_memaug.runs.methods import local_backbone
from hf_memaug.runs.processors import load_processor
from hf_memaug.runs.settings import option_name, trainer_settings

RECORD = "pretraining.json"
# The first texts of a stream, of whose words a small encoder is made.
FIRST_TEXTS = 10_000


def pretrain(call) -> int:
    options = call.options
    if options.held_out < 0 or options.held_out == 1:
        raise UsageError("`--held-out` 1 leaves nothing to train on: choose 2 or more, or 0 for none.")
    if not 0 < options.masked < 1:
        raise UsageError(f"`--masked` is {options.masked:g}: choose a share between 0 and 1, such as 0.15.")
    if options.stream and call.resolved.settings.get("max_steps", 0) <= 0:
        raise UsageError("`--stream` asks for `--max-steps`: a stream does not say how long it is.")
    own = {name: value for name, value in call.resolved.settings.items() if name not in trainer_settings("masked_lm")}
    if own and options.general is None:
        raise UsageError(f"`{option_name(next(iter(own)))}` is G-MAP's: give `--general` as well.")
    output = Path(options.output or "runs/pretrain")
    folder = RunFolder(output)
    with folder.locked():
        before = folder.read(RECORD)
        recipe = json.loads(json.dumps(call.resolved.recipe(call.command)))
        changed = differing(recipe, before.get("recipe", recipe))
        if changed is not None:
            raise UsageError(
                f"`{changed}` is {recipe.get(changed)!r}, but {output} was made with "
                f"{before['recipe'].get(changed)!r}. Give that, or another `--output`."
            )
        if before.get("after") is not None:
            _say(options, f"{output} is already done.", before)
            return 0
        write_recipe(output / "recipe.yaml", recipe)
        try:
            return _run(call, output, own, recipe, before)
        except Exception as error:
            plain = told_plainly(error, output)
            if plain is error:
                raise
            raise plain from error


def _run(call, output: Path, own: dict[str, Any], recipe: dict, earlier: dict) -> int:
    import torch
    from transformers import PrinterCallback, TrainingArguments, logging

    from hf_memaug import RunGuard
    from hf_memaug.data import DomainDataset
    from hf_memaug.data.corpus import HeldOutTexts, PackedTexts, WholeWordMasking, corpus_names
    from hf_memaug.evaluation import masked_lm_loss
    from hf_memaug.runs.job import common_arguments
    from hf_memaug.runs.progress import Steps, Stop
    from hf_memaug.training import MaskedLMTrainer, fitting_length, last_complete_checkpoint
    from hf_memaug.training.costs import tensorboard_in

    options = call.options
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        corpus = HeldOutTexts(options.corpus, options.field, options.held_out, False)
        texts = list(islice(corpus, FIRST_TEXTS if options.stream else None))
        if not texts:
            held_out = list(islice(HeldOutTexts(options.corpus, options.field, options.held_out, True), 1))
            mend = "Its one text is held out, to measure the loss: give more, or `--held-out 0`."
            raise ValueError(f"`--corpus` has no text to train on. {mend if held_out else 'It is empty.'}")
    except (ValueError, OSError) as error:
        raise DataRefused(_as_options(error, "--corpus")) from error
    rows = DomainDataset({"text": texts, "domain": ["corpus"] * len(texts), "label": [0] * len(texts)})
    backbone = local_backbone(options.backbone, rows, "corpus", output)
    tokenizer = load_processor("text", backbone, "--backbone")
    model = _model(options, backbone, own)
    length = fitting_length(options.length, tokenizer, model)
    if length < options.length:
        _say(
            options,
            f"rows of {length} tokens: the encoder has places for no more",
            {"event": "length", "length": length},
        )
    files = [*(options.corpus or ()), *(options.also or ())]
    measured = {} if options.held_out == 0 else {name: [file] for name, file in corpus_names(files).items()}
    if not options.corpus and options.held_out:
        measured = {"generated reviews": None, **measured}
    evaluated = {}
    for name, which in measured.items():
        part = HeldOutTexts(which, options.field, options.held_out, True)
        try:
            packed = PackedTexts(part, tokenizer, length, keep_rest=True)
            evaluated[name] = list(islice(packed, options.evaluate_rows))
        except (ValueError, OSError) as error:
            raise DataRefused(_as_options(error, "--also")) from error
    train = PackedTexts(corpus, tokenizer, length) if options.stream else list(PackedTexts(texts, tokenizer, length))
    if next(iter(train), None) is None:
        raise DataRefused(f"`--corpus` holds less than one row of `--length` {length} tokens. Give more text.")
    if options.only_head:
        # The words' vectors are the encoder's, also where the head reads them.
        model.base_model.requires_grad_(False)
    if torch.cuda.is_available():
        model.cuda()

    def losses() -> dict[str, float]:
        # The same masks each time.
        masking = WholeWordMasking(tokenizer, seed=0)
        return {name: masked_lm_loss(model, rows, masking) for name, rows in evaluated.items()}

    # After a kill the weights are the backbone's again, so this is the same figure.
    before = earlier.get("before") or losses()
    _say(options, f"masked-LM loss before: {_shown(before)}", {"event": "before", **before})
    write_atomically(output / RECORD, json.dumps({"recipe": recipe, "before": before, "after": None}, indent=2) + "\n")
    common = common_arguments(output, options.seed)
    common |= {"save_strategy": "steps", "save_steps": 0.25, "logging_steps": 0.05, "warmup_steps": 0.06}
    # `word_ids` is for the collator, not for the model.
    common |= {"remove_unused_columns": False, "weight_decay": 0.01}
    given = {name: value for name, value in call.resolved.settings.items() if name not in own}
    try:
        arguments = TrainingArguments(**{**common, **given})
    except (TypeError, ValueError) as error:
        raise CommandError(str(error)) from error
    with Stop() as stop, tensorboard_in(output / "logs"), open(output / "log.txt", "a", encoding="utf-8") as log:
        steps = Steps(_progress(options), stop, output / "metrics.jsonl")
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
            raise Interrupted(f"{error} To resume, rerun the same command.") from None
    after = losses()
    trainer.save_model(str(output))
    (output / "training_args.bin").unlink(missing_ok=True)
    record = {
        "command": call.line,
        "recipe": recipe,
        "steps": trainer.state.global_step,
        "before": before,
        "after": after,
    }
    write_atomically(output / RECORD, json.dumps(record, indent=2) + "\n")
    shutil.rmtree(arguments.output_dir, ignore_errors=True)
    _say(options, f"masked-LM loss after:  {_shown(after)}\nencoder: {output}", {"event": "finished", **record})
    return 0


def _model(options, backbone: str, own: dict[str, Any]):
    from transformers import MODEL_FOR_MASKED_LM_MAPPING, AutoModelForMaskedLM, set_seed

    from hf_memaug import GMAPForMaskedLM
    from hf_memaug.modeling.modeling_utils import lacking_lm_head
    from hf_memaug.runs.small_models import SMALL

    set_seed(options.seed)
    config = read_config(backbone, "--backbone")
    if options.general is None:
        if type(config) not in MODEL_FOR_MASKED_LM_MAPPING:
            raise UsageError(
                f"`--backbone` is a `{config.model_type}`, which predicts no masked words. Give a RoBERTa or a BERT."
            )
        model, info = AutoModelForMaskedLM.from_pretrained(backbone, dtype="float32", output_loading_info=True)
        missing = lacking_lm_head(info["missing_keys"])
        if missing and options.backbone != SMALL and not options.only_head:
            _say(
                options,
                "the encoder comes without a masked-LM head, and a fresh one teaches it badly at first. Give it one "
                "with `--only-head --learning-rate 1e-3`, and train the encoder of that",
                {"event": "fresh_head", "weights": missing},
            )
        return model
    if config.model_type == "gmap":
        raise UsageError("`--backbone` is a G-MAP model already, and goes on as it is: leave `--general` out.")
    read_config(options.general, "--general")
    try:
        return GMAPForMaskedLM.from_general_and_domain(options.general, backbone, dtype="float32", **own)
    except ValueError as error:
        raise UsageError(str(error).replace("`general`", "`--general`").replace("`domain`", "`--backbone`")) from error


def _as_options(error: Exception, files: str) -> str:
    return str(error).replace("`files`", f"`{files}`").replace("by `field`", "by `--field`")


def _shown(losses: dict[str, float]) -> str:
    return "  ".join(f"{name} {loss:.3f}" for name, loss in losses.items()) or "not measured"


def _say(options, text: str, event: dict) -> None:
    if options.json:
        print(json.dumps(event, ensure_ascii=False), flush=True)
    elif not options.quiet:
        print(text, flush=True)


def _progress(options):
    from hf_memaug.cli.display import Display

    display = Display("loss", options.quiet, options.json)
    spec = {"name": "pretrain", "job": {"method": "pretrain", "seed": options.seed}}
    display.start(spec)
    return lambda event: display.event(spec, event)
