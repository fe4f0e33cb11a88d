# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Whether a method's model can be built at all: asked once, before the first job, and not by every job for itself."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError

from hf_memaug.configuration.configuration_graph_network import is_network
from hf_memaug.data import DomainDataset
from hf_memaug.inference.checkpoints import read_config
from hf_memaug.runs.errors import CommandError, UsageError
from hf_memaug.runs.methods import Chosen, Parts
from hf_memaug.runs.processors import processor_of
from hf_memaug.runs.rows import kind_of
from hf_memaug.runs.settings import option_name
from hf_memaug.runs.small_models import SMALL, small_model
from hf_memaug.training.continual.record import RECORD_FILE


def check_model(
    one: Chosen, backbone: str, rows: DomainDataset, settings: Mapping[str, Any], general: str | None = None
) -> None:
    """
    Refuses a backbone or general encoder that is not there, that has no tokenizer or image processor, or that the
    settings, or the two of them, do not fit. No weights are read.

    Args:
        settings: those of the method, of which the trainer's are left aside.
    """
    if kind_of(rows) == "graph" or one.method.words is not None:
        return
    processor = None
    if backbone == SMALL:
        config = small_model(rows)[0].config if one.method.check is not None else None
    else:
        config = read_config(backbone, "--backbone")
        processor = processor_of(one, backbone, rows, general, one.configuration(settings))
    if one.method.general:
        read_config(general, "--general")
    if one.method.check is None:
        return
    shape = one.configuration(settings)
    try:
        one.method.check(config, Parts(backbone, rows, processor, general, settings=shape))
    except (StrictDataclassError, ValueError) as error:
        # What a strict configuration says itself is wrapped in the name of its validator.
        said = str(error.__cause__ or error)
        options = {"general": "--general", "domain": "--backbone"} | {name: option_name(name) for name in shape}
        for name, option in options.items():
            said = said.replace(f"`{name}`", f"`{option}`")
        raise UsageError(f"`{one.name}`: {said}") from None


def check_training(specs: Iterable[Mapping[str, Any]], make: Callable[[Mapping[str, Any]], Any]) -> None:
    """
    Refuses settings that no job could train with.

    Args:
        specs: the jobs, of which the first of each method is looked at.
        make: a job to the arguments of its trainer, or a `CommandError`.
    """
    first: dict[str, Mapping[str, Any]] = {}
    for spec in specs:
        first.setdefault(spec["job"]["method"], spec)
    refused: dict[str, str] = {}
    for method, spec in first.items():
        try:
            make(spec)
        except CommandError as error:
            refused[method] = str(error)
    for method, said in refused.items():
        settings = first[method]["settings"]
        named = [name for name in settings if f"`{name}`" in said]
        for name in named:
            said = said.replace(f"`{name}`", f"`{option_name(name)}`")
        for name in named:
            # Given to all, and some other can do with it.
            others = [other for other in first.keys() - refused if first[other]["settings"].get(name) == settings[name]]
            if others:
                said += f" For one method alone: `--{min(others)}.{option_name(name).removeprefix('--')}`."
                break
        raise UsageError(f"`{method}`: {said}")


def has_history(backbone: str) -> bool:
    """Whether a checkpoint has taken in domains before, one after another, so that its model stays as it is."""
    if backbone == SMALL or is_network(backbone):
        return False
    if (Path(backbone) / RECORD_FILE).is_file():
        return True
    from transformers import AutoConfig

    import hf_memaug  # noqa: F401  (registers the families)

    try:
        config = AutoConfig.from_pretrained(backbone)
    except (OSError, ValueError):
        return False
    return "continual" in (getattr(config, "run_facts", None) or {})
