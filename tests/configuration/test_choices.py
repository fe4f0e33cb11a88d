# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""A field with a fixed set of values, in every configuration: another value is refused with what there is."""

import re
from dataclasses import fields
from typing import Literal

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig

import hf_memaug
from hf_memaug.configuration.checks import choices_of
from hf_memaug.registry import BACKBONES, FAMILIES
from hf_memaug.runs.errors import UsageError
from hf_memaug.runs.settings import Setting, model_settings

CONFIGS = sorted({family.config for family in (*FAMILIES.values(), *BACKBONES.values())})
INHERITED = {field.name for field in fields(PreTrainedConfig)}
CASES = [
    (config, field.name, choices_of(field.type))
    for config in CONFIGS
    for field in fields(getattr(hf_memaug, config))
    if "Literal" in str(field.type) and field.name not in INHERITED
]
OPTIONS = [
    setting
    for model_type in ("roberta_kv_memory", "gmap", "vit_gmoe", "hma", "memory_rnn", "graph_network")
    for setting in model_settings(model_type).values()
    if choices_of(setting.hint)
]


def test_the_choices_of_every_such_field_are_known():
    assert len(CASES) > 10 and all(choices for _, _, choices in CASES), "a type that is not read is not checked"


@pytest.mark.parametrize(("config", "name", "choices"), CASES, ids=lambda part: part if isinstance(part, str) else "")
def test_another_value_is_refused_with_the_choices(config, name, choices):
    config_class = getattr(hf_memaug, config)
    with pytest.raises(StrictDataclassError, match=f"(?s){name}.*{re.escape(repr(choices[0]))}"):
        config_class(**{name: "xyzzy"})
    config = config_class()
    with pytest.raises(StrictDataclassError, match=name):
        setattr(config, name, "xyzzy")


@pytest.mark.parametrize("setting", OPTIONS, ids=lambda setting: setting.name)
def test_an_option_of_the_commands_lists_the_choices(setting):
    with pytest.raises(UsageError, match=re.escape(f"`{setting.option}` is 'xyzzy'. Choose ")) as refused:
        setting.convert("xyzzy")
    assert "Literal" not in str(refused.value)


def test_two_fields_of_one_name_have_the_choices_of_both():
    both = Setting("pooling", Literal["mean", "sum"] | Literal["auto", "mean"], None, "")
    assert [both.convert(word) for word in ("sum", "auto")] == ["sum", "auto"]
    with pytest.raises(UsageError, match="^`--pooling` is 'atuo'. Did you mean 'auto'. Choose 'mean', 'sum', 'auto'.$"):
        both.convert("atuo")
    assert Setting("pooling", Literal["mean"] | None, None, "").convert("none") is None


def test_choices_are_read_from_types():
    assert choices_of(Literal["a", 1] | None) == ["a", 1, None]
    for annotation in (str, int | None, Literal["a"] | str, list[str], None | float):
        assert choices_of(annotation) == []
