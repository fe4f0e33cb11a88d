# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The loss is the mean over masked tokens, and does not depend on how the rows are put into batches."""

import pytest
import torch
from tiny_backbones import SENTENCES, save_backbone
from transformers import AutoModelForMaskedLM, AutoTokenizer

from hf_memaug.data.corpus import PackedTexts, WholeWordMasking
from hf_memaug.evaluation import masked_lm_loss


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder = save_backbone("bert", tmp_path_factory.mktemp("bert"))
    return AutoModelForMaskedLM.from_pretrained(folder).train(), AutoTokenizer.from_pretrained(folder)


def test_it_is_the_mean_over_the_masked_tokens(loaded):
    model, tokenizer = loaded
    rows = list(PackedTexts(SENTENCES * 4, tokenizer, length=20, keep_rest=True))
    found = masked_lm_loss(model, rows, WholeWordMasking(tokenizer, seed=3))
    assert model.training, "as it was before"
    batch = WholeWordMasking(tokenizer, seed=3)(rows)
    losses = []
    with torch.no_grad():
        logits = model.eval()(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    model.train()
    for row, column in (batch["labels"] != -100).nonzero().tolist():
        losses.append(-logits[row, column].log_softmax(-1)[batch["labels"][row, column]])
    assert found == pytest.approx(float(torch.stack(losses).mean()), rel=1e-5)
    again = masked_lm_loss(model, rows, WholeWordMasking(tokenizer, seed=3), batch_size=2)
    assert again == pytest.approx(found, rel=1e-5)
    assert masked_lm_loss(model, rows, WholeWordMasking(tokenizer, seed=4)) != pytest.approx(found, rel=1e-5)
    with pytest.raises(ValueError, match="`rows` is empty"):
        masked_lm_loss(model, [], WholeWordMasking(tokenizer))
