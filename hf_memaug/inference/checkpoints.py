# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Load a checkpoint: its configuration, what it does, its weights with an adapter merged in, its processor."""

import json
import os
import textwrap
import warnings
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from hf_memaug.inference.predictions import CheckpointError
from hf_memaug.inference.predictor import Predictor
from hf_memaug.inference.tasks import TASKS
from hf_memaug.modeling.modeling_utils import longest_text
from hf_memaug.registry import FAMILIES

# What a model does, by a part of the name of its class.
KINDS = {
    "TokenClassification": "tags",
    "QuestionAnswering": "questions",
    "MaskedLM": "words",
    "ConditionalGeneration": "replies",
    "ImageClassification": "image",
    "GraphClassification": "graph",
    "Classification": "text",
}
ADAPTER_FILE = "adapter_config.json"
# What transformers raises for a damaged file.
_DAMAGED = (AttributeError, KeyError, OSError, RecursionError, TypeError, ValueError)


def load_predictor(
    name_or_path: str | os.PathLike, argument: str = "checkpoint", dtype: Any = torch.float32, device: str | None = None
) -> Predictor:
    """
    Loads a checkpoint of this library or of transformers with its tokenizer or image processor.

    Args:
        name_or_path: a folder, or a repository of the hub; also of an adapter of PEFT, which is merged.
        argument: what errors call `name_or_path`.
        dtype: as in `from_pretrained`. On a CPU, fp16 becomes fp32.
        device: default: a GPU, if there is one.

    Example:

        >>> predictor = load_predictor("runs/train/jobs/NAME/checkpoint")
        >>> predictor.predict(["Could not put it down."])[0].scores[0]
    """
    name = os.fspath(name_or_path)
    config = read_config(name, argument)
    kind = checked_kind(config, name, argument)
    processor = load_processor(name, kind, argument)
    if kind == "words" and processor.mask_token is None:
        raise CheckpointError(f"`{argument}` {name!r} fills masks, and its tokenizer has no mask token.")
    model = load_model(name, config, argument, dtype=dtype)
    refuse_non_finite(model, name, argument)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if torch.device(device).type == "cpu" and model.dtype == torch.float16:
        warnings.warn(f"`{argument}` {name!r} is in fp16, which is slow on a CPU. It is used in fp32.", stacklevel=2)
        model = model.float()
    max_length = None if kind in ("image", "graph") else longest_text(model, processor)
    pairs = "none"
    if kind == "text":
        # A recurrent network is built for one text or for two; an encoder takes both.
        pairs = {True: "needed", False: "none", None: "optional"}[getattr(config, "sentence_pairs", None)]
    base = adapter_base(name, argument)
    return Predictor(name, model.to(device), processor, kind, TASKS[kind], max_length, pairs, base)


def refuse_non_finite(model: Any, name: str, argument: str) -> None:
    """From now on, a forward pass of the model whose best logits are NaN or infinite raises an error."""

    def check(module, given, outputs) -> None:
        logits = [value for key, value in outputs.items() if key.endswith("logits") and torch.is_tensor(value)]
        # A mask may set single logits to minus infinity, and never the best of a row.
        if all(bool(one.amax(dim=-1).isfinite().all()) for one in logits if one.numel()):
            return
        tensors = (*module.named_parameters(), *module.named_buffers())
        bad = next((key for key, value in tensors if not bool(value.isfinite().all())), None)
        reason = "although its weights are finite. Check the inputs."
        if bad is not None:
            reason = f"because of its `{bad}`. Train it again, with a lower `learning_rate`, or restore a checkpoint."
        raise CheckpointError(f"`{argument}` {name!r} predicts values that are not finite, {reason}")

    model.register_forward_hook(check)


def read_config(name: str, argument: str = "checkpoint"):
    """
    The configuration of a checkpoint.

    Args:
        name: a folder, or a repository of the hub. With an adapter, that of the model below it.
        argument: what errors call `name`.
    """
    from transformers import AutoConfig

    import hf_memaug  # noqa: F401  (registers the families)

    base = adapter_base(name, argument)
    if base is not None:
        config = read_config(base, argument)
        if config.model_type not in FAMILIES:
            raise CheckpointError(
                f"`{argument}` {name!r} is an adapter of {base!r}, a `{config.model_type}`. The adapter does not "
                "contain a memory that was added to it. Merge it with `model.merge_and_unload()` and save the model."
            )
        return config
    if os.path.isdir(name) and not (Path(name) / "config.json").is_file():
        inner = sorted(str(path.parent) for path in Path(name).glob("**/checkpoint/config.json"))
        hint = f"Did you mean {inner[0]!r}?" if inner else "Use the folder that `save_pretrained` wrote."
        raise CheckpointError(f"`{argument}` {name!r} has no `config.json`. {hint}")
    try:
        config = AutoConfig.from_pretrained(name)
        if not isinstance(config.architectures or [], list):
            raise TypeError("`architectures` must be a list")
        kind_of(config)
        return config
    except (*_DAMAGED, StrictDataclassError) as error:
        # A strict configuration names the field first, and what is wrong with it last.
        lines = str(error).splitlines() or [type(error).__name__]
        line = _shortened(lines[-1 if lines[0].endswith(":") else 0])
        if isinstance(error, (AttributeError, TypeError)):
            line = f"its `config.json` has a value of the wrong type ({line})."
        reason = "There is no such folder." if _is_path(name) else line
        if "progressive_columns" in str(error):
            reason = (
                "the columns of progressive networks have no `Auto` class. Load them with "
                "`hf_memaug.training.continual.progressive.ProgressiveColumns`, or choose another strategy."
            )
        raise CheckpointError(f"`{argument}` {name!r} cannot be loaded: {reason}") from None


def _shortened(text: str) -> str:
    """The start of an error of transformers, which may list all model types."""
    return textwrap.shorten(text, 300, placeholder="...")


def _is_path(name: str) -> bool:
    """Whether it can only be a path here, and no repository of the hub."""
    return not os.path.exists(name) and (os.path.isabs(name) or name.startswith(".") or name.count("/") > 1)


def kind_of(config) -> str | None:
    """What a checkpoint does: one of the values of `KINDS`; None where it has no head that predicts."""
    names = "".join(config.architectures or ())
    return next((kind for part, kind in KINDS.items() if part in names), None)


def checked_kind(config, name: str, argument: str = "checkpoint") -> str:
    kind = kind_of(config)
    if kind is None:
        found = ", ".join(config.architectures or [config.model_type])
        raise CheckpointError(
            f"`{argument}` {name!r} is a `{found}`, which has no head to predict with. Use a class such as "
            "`...ForSequenceClassification`, or train one with `hf-memaug train`."
        )
    return kind


def load_model(name: str, config, argument: str = "checkpoint", **kwargs: Any):
    """The model in evaluation mode, with an adapter merged into it. `kwargs` go to `from_pretrained`."""
    import transformers

    base, architecture = adapter_base(name, argument), config.architectures[0]
    try:
        if config.model_type in FAMILIES:
            model_class = FAMILIES[config.model_type].load(architecture)
        else:
            model_class = getattr(transformers, architecture)
        model = model_class.from_pretrained(base or name, **kwargs)
    except (*_DAMAGED, RuntimeError, SafetensorError) as error:
        reason = _shortened(str(error))
        if isinstance(error, SafetensorError):
            reason = f"its weights are damaged ({error}). Download or save them again."
        elif "ignore_mismatched_sizes" in reason:
            reason = "its weights do not fit its `config.json`. Put the one there that was written with them."
        raise CheckpointError(f"`{argument}` {name!r} cannot be loaded as a `{architecture}`: {reason}") from error
    if base is None:
        return model.eval()
    from peft import PeftModel

    try:
        return PeftModel.from_pretrained(model, name).merge_and_unload().eval()
    except (*_DAMAGED, RuntimeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CheckpointError(
            f"`{argument}` {name!r}: the adapter cannot be merged into its `{architecture}`: {reason} Adapters "
            "that become part of the weights, such as LoRA, are supported."
        ) from error


def load_processor(name: str, kind: str, argument: str = "checkpoint", **kwargs: Any):
    """The tokenizer or image processor of a checkpoint; None for graphs."""
    from transformers import AutoImageProcessor, AutoTokenizer

    if kind == "graph":
        return None
    auto_class, what = (AutoImageProcessor, "image processor") if kind == "image" else (AutoTokenizer, "tokenizer")
    error: Exception | None = None
    # Beside an adapter there may be none.
    for source in filter(None, (name, adapter_base(name, argument))):
        try:
            found = auto_class.from_pretrained(source, **kwargs)
        except _DAMAGED as cause:
            error = cause
            continue
        # Without its files, transformers makes a tokenizer of special tokens alone.
        if kind == "image" or len(found) > len(set(found.all_special_ids)):
            return found
    raise CheckpointError(
        f"`{argument}` {name!r} has no {what} that can be read. Save the one it was trained with: "
        f"`{auto_class.__name__}.from_pretrained(...).save_pretrained({name!r})`."
    ) from error


def adapter_base(name: str, argument: str = "checkpoint") -> str | None:
    """The model that an adapter was trained on; None where `name` is not an adapter."""
    path = beside_checkpoint(name, ADAPTER_FILE)
    if path is None:
        return None
    try:
        base = json.loads(path.read_text(encoding="utf-8")).get("base_model_name_or_path")
    except _DAMAGED as error:
        raise CheckpointError(f"`{argument}` {name!r} has an `{ADAPTER_FILE}` that cannot be read: {error}") from error
    if not base:
        raise CheckpointError(
            f"`{argument}` {name!r} is an adapter that does not say of which model. Set `base_model_name_or_path` in "
            f"its `{ADAPTER_FILE}`, or merge it with `model.merge_and_unload()` and save the model."
        )
    return base


def beside_checkpoint(name: str, file: str) -> Path | None:
    """A file of a checkpoint's folder or repository; for `jobs/NAME/checkpoint`, also of the job's folder."""
    if os.path.isdir(name):
        folder = Path(name)
        around = [folder.resolve().parent] if folder.resolve().name == "checkpoint" else []
        return next((one / file for one in (folder, *around) if (one / file).is_file()), None)
    if _is_path(name):
        return None
    from transformers.utils import cached_file

    try:
        found = cached_file(name, file, _raise_exceptions_for_missing_entries=False)
    except (OSError, ValueError):
        return None
    return Path(found) if found else None
