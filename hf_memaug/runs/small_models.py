# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`--backbone small`: small models with random weights, for tests and for machines without a hub."""

import os
import shutil
from pathlib import Path
from typing import Any

from hf_memaug.data import DomainDataset
from hf_memaug.files import file_name

SMALL = "small"
# `small` for graphs.
SMALL_NETWORK = "gin-3x64"
SIZES: dict[str, Any] = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}


def small_backbone(rows: DomainDataset, target: str, folder: Path) -> str:
    """A checkpoint of a small model in the run folder, with the words of these rows. It is made once."""
    place = folder / "encoders" / file_name(SMALL, target)
    if not place.is_dir():
        partial = place.with_name(f".{place.name}.{os.getpid()}")
        shutil.rmtree(partial, ignore_errors=True)
        model, processor = small_model(rows)
        model.save_pretrained(partial)
        processor.save_pretrained(partial)
        try:
            os.replace(partial, place)
        except OSError:
            # Another job was faster.
            shutil.rmtree(partial, ignore_errors=True)
    return str(place)


def small_model(rows: DomainDataset, seed: int = 0):
    """(model, tokenizer or image processor) for rows to train on. The weights depend on `seed` alone."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if "image" not in rows.column_names:
            return _small_text_model(rows)
        from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

        return small_vit(32, **labels_of(rows)), ViTImageProcessorPil(size={"height": 32, "width": 32})


def small_vit(size: int, **fields):
    """A vision transformer of four layers that reads an image of that height and width in 16 patches."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(image_size=size, patch_size=size // 4, num_hidden_layers=4, **SIZES, **fields)
    return ViTForImageClassification(config)


def _small_text_model(rows: DomainDataset):
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    # Its words are known as a whole, and it has no pieces of words.
    splitter = BertTokenizer().backend_tokenizer
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    columns = [name for name in ("text", "text_pair", "tokens") if name in rows.column_names]
    texts = [one if isinstance(one, str) else " ".join(one) for name in columns for one in rows[name]]
    split = (splitter.pre_tokenizer.pre_tokenize_str(splitter.normalizer.normalize_str(text)) for text in texts)
    # In alphabetical order: a tokenizer's trainer orders equally frequent words at random.
    words = sorted({word for several in split for word, _ in several})
    vocabulary = {word: number for number, word in enumerate([*special, *(w for w in words if w not in special)])}
    processor = BertTokenizer(vocabulary, model_max_length=128)
    fields = {"vocab_size": len(vocabulary), "num_hidden_layers": 2, "max_position_embeddings": 128, **SIZES}
    return BertForSequenceClassification(BertConfig(**fields, **labels_of(rows))), processor


def labels_of(rows: DomainDataset) -> dict[str, Any]:
    """The fields of a configuration that name the classes."""
    names = rows.label_names
    return {"id2label": dict(enumerate(names)), "label2id": {n: i for i, n in enumerate(names)}} if names else {}
