# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Tiny plain backbones with their tokenizers and image processors, as they would come from the hub."""

import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    ViTConfig,
    ViTForImageClassification,
)

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 80,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
# Arguments of every short run.
QUIET = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
IMAGES = {"image_size": 16, "patch_size": 4, "num_channels": 3}
SENTENCES = [
    "a good book that reads well and ends well",
    "the phone is bad and the battery is bad",
    "great film with a slow start",
    "it was terrible and it was long",
    "the kitchen knife is fine",
    "they were happy with the hotel and the view",
]
VOCABULARY_SIZE = 160


def tiny_tokenizer(kind: str | None) -> PreTrainedTokenizerFast:
    """A real tokenizer of the backbone's kind, made of a handful of sentences: the same in every process."""
    if kind is None:
        from hf_memaug.data import word_tokenizer

        # As many words as the tests' ids ask for.
        return word_tokenizer([*SENTENCES, *(f"word{number}" for number in range(70))], max_length=64)
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    if kind == "roberta":
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=VOCABULARY_SIZE, special_tokens=special, show_progress=False)
        # Words that follow a space are other tokens than words that begin a text: train on both.
        tokenizer.train_from_iterator([*SENTENCES, *(" " + s for s in SENTENCES)] * 3, trainer)
        names = dict(zip(("cls_token", "pad_token", "sep_token", "unk_token", "mask_token"), special, strict=True))
        inputs = ["input_ids", "attention_mask"]
    else:
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        # Not by `WordPieceTrainer`: it numbers the pieces of words in the order of a hash table, another at each call.
        words = sorted(set(" ".join(SENTENCES).split()))
        letters = sorted(set("".join(words)))
        ends = sorted({word[start:] for word in words for start in range(1, len(word))} | set(letters))
        pieces = dict.fromkeys([*special, *letters, *("##" + end for end in ends), *words])
        tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.add_special_tokens(special)
        names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
        inputs = ["input_ids", "token_type_ids", "attention_mask"]
    first, last = names["cls_token"], names["sep_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} $B:1 {last}:1" if kind == "bert" else f"{first} $A {last} {last} $B {last}",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (first, last)],
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, model_input_names=inputs, **names)


def tiny_image_processor():
    """What makes `pixel_values` of images, without torchvision."""
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    return ViTImageProcessorPil(size={"height": 16, "width": 16})


def tiny_vit(config_class=ViTConfig, model_class=ViTForImageClassification, **kwargs):
    """A plain vision transformer, whose layers do something that can be told apart."""
    torch.manual_seed(0)
    sizes = {name: value for name, value in SIZES.items() if name != "max_position_embeddings"}
    config = config_class(**{**sizes, **IMAGES, "num_hidden_layers": 3, "initializer_range": 0.2, **kwargs})
    return model_class(config).eval()


def save_backbone(kind: str, folder) -> str:
    """A plain checkpoint with its tokenizer or image processor, as it would come from the hub."""
    if kind == "vit":
        tiny_vit(num_labels=3).save_pretrained(folder)
        tiny_image_processor().save_pretrained(folder)
        return str(folder)
    tokenizer = tiny_tokenizer(kind)
    config_class, model_class = {"roberta": (RobertaConfig, RobertaForMaskedLM), "bert": (BertConfig, BertForMaskedLM)}[
        kind
    ]
    torch.manual_seed(0)
    model = model_class(config_class(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **SIZES))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
