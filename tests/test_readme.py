# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""README and guides say what is so."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GMOE_GUIDE = (ROOT / "docs" / "gmoe.md").read_text(encoding="utf-8")
HMA_GUIDE = (ROOT / "docs" / "hma.md").read_text(encoding="utf-8")


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def lines(example: str) -> int:
    return len([line for line in example.splitlines() if line.strip()])


def test_the_examples_are_short():
    """They are run in tests/docs/test_code_blocks.py."""
    first, second = blocks("python")[:2]
    assert lines(first) <= 15 + 1 and lines(second) <= 16


def test_the_guide_to_gmoe_has_every_field():
    from dataclasses import fields

    from transformers import ViTConfig

    from hf_memaug import ViTGMoEConfig

    own = {field.name for field in fields(ViTGMoEConfig)} - {field.name for field in fields(ViTConfig)}
    assert all(f"`{name}`" in GMOE_GUIDE for name in own - {"run_facts", "output_router_logits"})


def test_the_guide_to_hma_has_every_field():
    from dataclasses import fields

    from transformers import PreTrainedConfig

    from hf_memaug import HMAConfig
    from hf_memaug.configuration.configuration_hma import AUGMENTATIONS

    own = {field.name for field in fields(HMAConfig)} - {field.name for field in fields(PreTrainedConfig)}
    assert all(f"`{name}`" in HMA_GUIDE for name in own - {"run_facts"})
    assert all(f'`"{name}"`' in HMA_GUIDE for name in AUGMENTATIONS)


def test_commands_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"\bmake ([a-z]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
