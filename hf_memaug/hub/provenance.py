# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
What a model was trained on and how it scored.

These facts are kept in `config.run_facts`. They are saved and published with the weights, and the model card can be
rewritten from any copy of the model.
"""

import platform
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

# Metrics that `Trainer` logs as fractions, and that are reported in points.
FRACTIONS = ("accuracy", "macro_f1", "micro_f1", "f1", "precision", "recall", "mcc", "auroc", "exact_match",
             "r2", "pearson")  # fmt: skip
# What run folders and result files say of the process that made them.
MADE_WITH = ("device", "python", "torch", "transformers", "hf_memaug")


def record_run(
    model,
    *,
    data: str | None = None,
    domains: Sequence[str] | None = None,
    left_out: str | None = None,
    method: str | None = None,
    scores: Iterable[dict] = (),
    training: dict | None = None,
) -> dict:
    """
    Adds facts to `model.config.run_facts` and returns all of them.

    Args:
        data (*optional*): the name of the data.
        domains (*optional*): the domains trained on.
        left_out (*optional*): the domain held out from training and model selection.
        method (*optional*): the paper's name for the method (`"+memory"`, `"mil"`).
        scores (*optional*): one entry for each score: `{"domain", "split", "metric", "value", "seed"}`, with the value
            in points (0-100). A score for the same domain, split, metric and seed replaces the earlier one.
            `"inference"` is the inference mode of a model that has several; it defaults to the current one.
        training (*optional*): hyper-parameters.
    """
    config = config_of(model)
    facts = dict(config.run_facts or {})
    named = {"data": data, "domains": domains and list(domains), "left_out": left_out, "method": method}
    facts.update({name: value for name, value in named.items() if value is not None})
    given = [_checked_score(score, getattr(config, "inference_mode", None)) for score in scores]
    what = ("domain", "split", "metric", "seed", "inference")
    kept = {tuple(map(score.get, what)): score for score in [*facts.get("scores", ()), *given]}
    facts["scores"] = list(kept.values())
    facts["training"] = {**facts.get("training", {}), **(training or {})}
    facts.setdefault("versions", library_versions())
    config.run_facts = facts
    return facts


def library_versions() -> dict[str, str]:
    names = ("hf_memaug", "torch", "transformers", "tokenizers", "safetensors", "accelerate", "peft", "datasets")
    found = {"python": platform.python_version()}
    for name in names:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def here() -> dict[str, str]:
    """The device and the versions of this process."""
    import torch

    from hf_memaug import __version__

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    # A checkout that is not installed has a version too.
    found = {**library_versions(), "hf_memaug": __version__, "device": device}
    return {name: found[name] for name in MADE_WITH}


def config_of(model):
    # An adapter's `config` is the base model's.
    config = getattr(getattr(model, "module", model), "config", None)
    if not hasattr(config, "run_facts"):
        raise TypeError(
            f"`model` is a `{type(model).__name__}`. Only the configurations of hf_memaug's models keep facts."
        )
    return config


def _checked_score(score: dict, inference: str | None) -> dict:
    missing = {"domain", "metric", "value", "seed"} - set(score)
    if missing:
        raise ValueError(f"`scores` entry {score} is missing {sorted(missing)}.")
    score = {"split": "test", "inference": inference, **score, "value": float(score["value"])}
    return {name: value for name, value in score.items() if value is not None}
