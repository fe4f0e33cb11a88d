# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""How well a masked language model knows a kind of text (G-MAP, Figures 1 and 5)."""

from collections.abc import Callable, Sequence


def masked_lm_loss(model, rows: Sequence[dict], collator: Callable, batch_size: int = 32) -> float:
    """
    The mean loss over the masked tokens of rows.

    Args:
        model: takes what the batches hold but for `labels`, and returns `logits` over the vocabulary.
        rows: such as `hf_memaug.data.corpus.PackedTexts` makes.
        collator: masks, such as `WholeWordMasking(tokenizer, seed=0)`. With a seed it masks the same tokens whatever
            the model and the batches: losses of two models can then be compared.
    """
    import torch
    from torch.nn import functional as F

    if not len(rows):
        raise ValueError("`rows` is empty: the corpus has fewer tokens than one row.")
    device, was_training = next(model.parameters()).device, model.training
    total, count = 0.0, 0
    model.eval()
    with torch.no_grad():
        for start in range(0, len(rows), batch_size):
            batch = {name: value.to(device) for name, value in collator(rows[start : start + batch_size]).items()}
            labels = batch.pop("labels")
            chosen = labels != -100
            logits = model(**batch).logits[chosen].float()
            total += F.cross_entropy(logits, labels[chosen], reduction="sum").item()
            count += int(chosen.sum())
    model.train(was_training)
    return total / max(count, 1)
