# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Rows for tests of writable memories, and what makes inputs of them."""

import torch


class HashingProcessor:
    """Stands for a tokenizer and for an image processor. Old rows get other inputs than new ones."""

    def __init__(self, words: int = 99):
        self.words = words

    def get_vocab(self) -> dict[str, int]:
        return {str(word): word for word in range(self.words)}

    def __call__(self, rows, pairs=None, **kwargs):
        is_text = isinstance(rows[0], str)
        pixels = [] if is_text else [row.getpixel((0, 0)) for row in rows]
        seeds = [sum(map(ord, row)) for row in rows] if is_text else [sum(pixel) for pixel in pixels]
        old = [row.startswith("old") for row in rows] if is_text else [pixel[1] >= 100 for pixel in pixels]
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        pairs = list(zip(old, generators, strict=True))
        if is_text:
            bounds = {True: (55, 99), False: (11, 55)}
            ids = torch.stack([torch.randint(*bounds[is_old], (9,), generator=one) for is_old, one in pairs])
            return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        return {
            "pixel_values": torch.stack([torch.randn(3, 16, 16, generator=one) + 3 * is_old for is_old, one in pairs])
        }


def writable_rows(model, shift: int, rows: int = 30, seed: int = 0, old: bool = False) -> list[dict]:
    """Rows for `HashingProcessor`, with labels `shift` classes behind the classifier's answers."""
    from PIL import Image

    if model.main_input_name == "input_ids":
        found = [{"text": f"{'old' if old else 'row'} {seed} {'a' * row}"} for row in range(rows)]
    else:
        found = [{"image": Image.new("RGB", (4, 4), (row, seed + 100 * old, 2 * row))} for row in range(rows)]
    inputs = HashingProcessor()([next(iter(row.values())) for row in found])
    mode = model.training
    with torch.no_grad():
        answers = model.eval()(**inputs).logits.argmax(dim=-1).tolist()
    model.train(mode)
    return [{**row, "label": (answer + shift) % 3} for row, answer in zip(found, answers, strict=True)]


def write_rows(model) -> None:
    """Rows that the classifier gets wrong, and guard rows that it gets right."""
    rows, guard = writable_rows(model, 1), writable_rows(model, 0, old=True)
    model.write(rows, domain="new", tokenizer=HashingProcessor(), guard=guard)
    assert model.config.has_memory, "the memory would be read by nothing"
