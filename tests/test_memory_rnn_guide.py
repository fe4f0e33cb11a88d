# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The guide to memory RNNs runs as it stands, at smaller sizes, and its links lead somewhere."""

import re
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

DOCS = Path(__file__).parents[1] / "docs"
GUIDE = (DOCS / "memory_rnn.md").read_text(encoding="utf-8")


def test_the_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    growing, optimizing, generating = re.findall(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL)
    names = {}
    exec(growing, names)
    model = AutoModelForSequenceClassification.from_pretrained("books-then-phones")
    tokenizer = AutoTokenizer.from_pretrained("books-then-phones")
    assert model.config.memory_slots == [300, 500] and model.config.vocab_size == len(tokenizer)
    assert tokenizer.unk_token_id not in tokenizer(names["second"][0])["input_ids"]
    names["optimizer"] = torch.optim.Adam(names["model"].parameters())
    exec(optimizing, names)
    assert names["model"].config.memory_slots == [300, 500, 500]
    names |= {"texts": ["how are you", "i am fine"], "questions": ["how are you"], "labels": torch.tensor([[4, 5, 3]])}
    exec(generating.replace("1024", "16"), names)


def test_links_lead_somewhere():
    links = [link for link in re.findall(r"\]\(([^)#]+)", GUIDE) if "://" not in link]
    assert links and all((DOCS / link).exists() for link in links)


def test_the_fields_are_those_of_the_configuration():
    from hf_memaug import MemoryRNNConfig

    config = MemoryRNNConfig()
    for names, default in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| `?([^|`]+)`? \| ", GUIDE, flags=re.MULTILINE):
        for name in re.findall(r"\w+", names):
            value = getattr(config, name)
            expected = getattr(config, default, None) if default.isidentifier() and hasattr(config, default) else None
            assert value == expected if expected is not None else str(value) == default.strip('"'), name
