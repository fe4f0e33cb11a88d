# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The guide to memory RNNs names the fields of the configuration."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
GUIDE = (DOCS / "memory_rnn.md").read_text(encoding="utf-8")


def test_the_fields_are_those_of_the_configuration():
    from hf_memaug import MemoryRNNConfig

    config = MemoryRNNConfig()
    for names, default in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| `?([^|`]+)`? \| ", GUIDE, flags=re.MULTILINE):
        for name in re.findall(r"\w+", names):
            value = getattr(config, name)
            expected = getattr(config, default, None) if default.isidentifier() and hasattr(config, default) else None
            assert value == expected if expected is not None else str(value) == default.strip('"'), name
