# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Classification by prompting: the masked-LM head scores words that stand for the labels."""

import warnings

import torch
from torch import nn
from torch.nn.functional import linear

from hf_memaug.configuration.prompting import in_label_order, normalise_verbalizer, verbalizer_token_ids
from hf_memaug.modeling.modeling_utils import WHERE, config_of_backbone, lacking_lm_head


class LabelWords(nn.Module):
    """
    The verbaliser: a label's score is the mean score of its words (OpenPrompt's manual verbaliser, whose softmax over
    all label words shifts every label alike and so leaves the classification as it is).
    """

    def __init__(self, config):
        super().__init__()
        self.config = config
        token_ids, word_shares = self.padded_token_ids()
        self.token_ids = nn.Buffer(token_ids, persistent=False)
        self.word_shares = nn.Buffer(word_shares, persistent=False)

    def padded_token_ids(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and averaging weights as `(labels, words)`; rows with fewer words are filled up with weight zero."""
        rows = self.config.verbalizer_token_ids or [[label] for label in range(self.config.num_labels)]
        self.config.validate_prompt()
        width = max(map(len, rows))
        token_ids = torch.tensor([row + row[:1] * (width - len(row)) for row in rows])
        word_shares = torch.tensor([[1 / len(row)] * len(row) + [0.0] * (width - len(row)) for row in rows])
        return token_ids, word_shares

    def forward(self, word_scores: torch.Tensor) -> torch.Tensor:
        """`(..., labels, words)`, as `token_ids` has them, to `(..., labels)`."""
        return (word_scores * self.word_shares.to(word_scores.dtype)).sum(dim=-1)


def _is_plain(layer: nn.Module) -> bool:
    """Whether its rows can be read: with an adapter, quantised, offloaded or partitioned, it has to be called."""
    if not isinstance(layer, nn.Linear) or layer.bias is None or hasattr(layer, "_hf_hook"):
        return False
    weight = layer.weight
    return weight.is_floating_point() and not weight.is_meta and len(weight) == layer.out_features


class PromptMixin:
    """
    Classification as a cloze question: the memory acts at the mask, and the masked-LM head scores the label words.
    """

    def _build_verbalizer(self, config):
        if config.verbalizer is not None and config.verbalizer_token_ids is None:
            raise ValueError(
                "`verbalizer` is given without `verbalizer_token_ids`. Build the model with `from_backbone`, which "
                "looks the ids of the words up in the tokenizer."
            )
        # The memory sits where the question is asked, so the configuration of a prompted model cannot say otherwise.
        config.memory_pooling = "mask"
        self.classifier = LabelWords(config)
        self.loss_type = "ForSequenceClassification"

    def _label_scores(self, hidden: torch.Tensor) -> torch.Tensor:
        """`hidden` is what the decoder of the masked-LM head reads: it scores the label words alone."""
        token_ids, decoder = self.classifier.token_ids, self.get_output_embeddings()
        if _is_plain(decoder):
            weight, bias = (part.index_select(0, token_ids.flatten()) for part in (decoder.weight, decoder.bias))
            scores = linear(hidden, weight)
            # Under autocast a bias of its own precision would raise that of the scores.
            scores = scores + bias.to(scores.dtype)
        else:
            scores = decoder(hidden)
            scores = scores[..., token_ids.flatten().to(scores.device)]
        return self.classifier(scores.unflatten(-1, token_ids.shape))

    @classmethod
    def check_backbone(cls, backbone, *, template, verbalizer, tokenizer=None, **fields):
        words = in_label_order(normalise_verbalizer(verbalizer), fields.get("id2label"))
        if tokenizer is not None:
            verbalizer_token_ids(words, tokenizer)
        found = {"template": template, "verbalizer": words, **fields}
        cls.config_class.from_backbone_config(config_of_backbone(backbone), **found).check_heads()

    @classmethod
    def from_backbone(cls, name_or_path, *, template=None, verbalizer=None, tokenizer=None, **kwargs):
        """
        Args:
            template (`str`):
                The cloze question, such as `"{text} It was {mask}."`.
            verbalizer (`dict[str, str | list[str]]`):
                The words for each label, such as `{"negative": "bad", "positive": ["good", "great"]}`.
            tokenizer (*optional*):
                The backbone's tokenizer, where it does not lie with the checkpoint.
        """
        if template is None or verbalizer is None:
            missing = "template" if template is None else "verbalizer"
            raise ValueError(
                f'`{missing}` is missing. Prompting needs both, for example `template="{{text}} It was {{mask}}."` and '
                '`verbalizer={"negative": "bad", "positive": "good"}`.'
            )
        if tokenizer is None:
            from transformers import AutoTokenizer

            where = {name: kwargs[name] for name in WHERE if name in kwargs}
            tokenizer = AutoTokenizer.from_pretrained(name_or_path, **where)
        if tokenizer.mask_token_id is None:
            raise ValueError("`tokenizer` has no mask token, and prompting asks for one. Use a masked-LM's tokenizer.")
        if kwargs.pop("memory_pooling", "mask") != "mask":
            raise ValueError('`memory_pooling` of a prompted model is always "mask": leave it out.')
        verbalizer = in_label_order(normalise_verbalizer(verbalizer), kwargs.get("id2label"))
        wants_info = kwargs.pop("output_loading_info", False)
        model, info = super().from_backbone(
            name_or_path,
            template=template,
            verbalizer=verbalizer,
            verbalizer_token_ids=verbalizer_token_ids(verbalizer, tokenizer),
            mask_token_id=tokenizer.mask_token_id,
            memory_pooling="mask",
            output_loading_info=True,
            **kwargs,
        )
        if lacking_lm_head(info["missing_keys"]):
            warnings.warn(
                f"`{name_or_path}` comes without a masked-LM head, by which words are scored: a fresh one begins at "
                "random. Give it one with `hf-memaug pretrain --only-head`, or take a checkpoint that has one.",
                stacklevel=2,
            )
        return (model, info) if wants_info else model
