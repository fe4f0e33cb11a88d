# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The tests' own tools."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_backbones


@pytest.mark.parametrize("kind", ["roberta", "bert"])
@pytest.mark.slow
def test_a_tiny_tokenizer_is_the_same_in_every_process(kind):
    tokenizer = tiny_backbones.tiny_tokenizer(kind)
    assert 99 < len(tokenizer) <= tiny_backbones.VOCABULARY_SIZE, "the tests' ids are below 99"
    code = f"import tiny_backbones, json; print(json.dumps(tiny_backbones.tiny_tokenizer({kind!r}).get_vocab()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=Path(tiny_backbones.__file__).parent,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (
        json.loads(done.stdout.splitlines()[-1])
        == tokenizer.get_vocab()
        == tiny_backbones.tiny_tokenizer(kind).get_vocab()
    )


def test_a_tiny_tokenizer_knows_its_sentences_and_cuts_other_words():
    tokenizer = tiny_backbones.tiny_tokenizer("bert")
    for sentence in tiny_backbones.SENTENCES:
        assert tokenizer.tokenize(sentence) == sentence.split()
    assert tokenizer.tokenize("goods") == ["good", "##s"]
