# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""How well a masked language model knows a kind of text (G-MAP, Figures 1 and 5)."""

from collections.abc import Sequence


def masked_lm_loss(model, rows: Sequence[dict], tokenizer, *, batch_size: int = 32, seed: int = 0) -> float:
    """
    The mean loss over the masked tokens of packed rows. The same seed masks the same tokens, whatever the model and the
    batches: losses of two models on the same rows can be compared.

    Args:
        model: takes `input_ids` and `attention_mask`, and returns `logits` over the vocabulary.
        rows: of `hf_memaug.data.corpus.PackedTexts`.
    """
    import torch
    from torch.nn import functional as F

    from hf_memaug.data.corpus import WholeWordMasking

    if not len(rows):
        raise ValueError("`rows` is empty: the corpus has fewer tokens than one row.")
    collate = WholeWordMasking(tokenizer, seed=seed)
    device, was_training = next(model.parameters()).device, model.training
    total, count = 0.0, 0
    model.eval()
    with torch.no_grad():
        for start in range(0, len(rows), batch_size):
            batch = {name: value.to(device) for name, value in collate(rows[start : start + batch_size]).items()}
            labels = batch.pop("labels")
            chosen = labels != -100
            logits = model(**batch).logits[chosen].float()
            total += F.cross_entropy(logits, labels[chosen], reduction="sum").item()
            count += int(chosen.sum())
    model.train(was_training)
    return total / max(count, 1)
