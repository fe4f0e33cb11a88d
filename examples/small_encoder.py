# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""A small RoBERTa with a tokenizer of its own, made on the spot, for machines without a hub."""

from collections.abc import Iterable
from pathlib import Path


def make_small_encoder(texts: Iterable[str], folder: Path, seed: int = 0) -> str:
    """
    Writes a checkpoint like one from the hub, but untrained: a word-level vocabulary of `texts` (give it training texts
    only) and two layers of random weights. Returns the folder.
    """
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaModel

    special = {
        "cls_token": "<s>",
        "pad_token": "<pad>",
        "sep_token": "</s>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    words = Tokenizer(models.WordLevel(unk_token="<unk>"))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.train_from_iterator(
        texts, trainers.WordLevelTrainer(special_tokens=list(special.values()), show_progress=False)
    )
    words.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, model_max_length=126, model_input_names=["input_ids", "attention_mask"], **special
    )
    torch.manual_seed(seed)
    encoder = RobertaModel(
        RobertaConfig(
            vocab_size=len(tokenizer),
            hidden_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=256,
            max_position_embeddings=128,
            type_vocab_size=1,
        ),
        add_pooling_layer=False,
    )
    encoder.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
