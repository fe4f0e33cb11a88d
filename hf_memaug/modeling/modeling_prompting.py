# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Classification by prompting: the masked-LM head scores words that stand for the labels."""

import warnings

import torch
from torch import nn
from torch.nn.functional import linear
from transformers import AutoTokenizer

from hf_memaug.configuration.prompting import in_label_order, normalise_verbalizer, verbalizer_token_ids
from hf_memaug.modeling.modeling_utils import config_of_backbone, lacking_lm_head, located


class LabelWords(nn.Module):
    """The verbalizer: the score of a label is the mean score of its words, as in OpenPrompt's manual verbalizer."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        token_ids, word_shares = self.padded_token_ids()
        self.token_ids = nn.Buffer(token_ids, persistent=False)
        self.word_shares = nn.Buffer(word_shares, persistent=False)

    def padded_token_ids(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and averaging weights of shape `(labels, words)`; shorter rows are padded with weight zero."""
        rows = self.config.verbalizer_token_ids or [[label] for label in range(self.config.num_labels)]
        self.config.validate_prompt()
        width = max(map(len, rows))
        token_ids = torch.tensor([row + row[:1] * (width - len(row)) for row in rows])
        word_shares = torch.tensor([[1 / len(row)] * len(row) + [0.0] * (width - len(row)) for row in rows])
        return token_ids, word_shares

    def forward(self, word_scores: torch.Tensor) -> torch.Tensor:
        """From `(..., labels, words)` to `(..., labels)`."""
        return (word_scores * self.word_shares.to(word_scores.dtype)).sum(dim=-1)


def _is_plain(layer: nn.Module) -> bool:
    """Whether rows of the weight can be read: not with an adapter, quantised, offloaded or partitioned."""
    if not isinstance(layer, nn.Linear) or layer.bias is None or hasattr(layer, "_hf_hook"):
        return False
    weight = layer.weight
    return weight.is_floating_point() and not weight.is_meta and len(weight) == layer.out_features


class PromptMixin:
    """
    Classification by a prompt: the memory augments the mask token, and `words_head` of a masked language model scores
    the label words.
    """

    def get_output_embeddings(self):
        return self.words_head.decoder

    def set_output_embeddings(self, new_embeddings):
        self.words_head.decoder = new_embeddings
        self.words_head.bias = new_embeddings.bias

    def _build_verbalizer(self, config):
        if config.verbalizer is not None and config.verbalizer_token_ids is None:
            raise ValueError(
                "`verbalizer` is given without `verbalizer_token_ids`. Build the model with `from_backbone`, which "
                "looks up the ids in the tokenizer."
            )
        # A prompted model always reads the mask token.
        config.memory_pooling = "mask"
        self.classifier = LabelWords(config)
        self.loss_type = "ForSequenceClassification"

    def _label_scores(self, hidden: torch.Tensor) -> torch.Tensor:
        """Scores of the label words alone, from the input of the masked-LM decoder."""
        token_ids, decoder = self.classifier.token_ids, self.get_output_embeddings()
        if _is_plain(decoder):
            weight, bias = (part.index_select(0, token_ids.flatten()) for part in (decoder.weight, decoder.bias))
            scores = linear(hidden, weight)
            # Under autocast, a float32 bias would change the type of the scores.
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
                The prompt, such as `"{text} It was {mask}."`.
            verbalizer (`dict[str, str | list[str]]`):
                The words for each label, such as `{"negative": "bad", "positive": ["good", "great"]}`.
            tokenizer (*optional*):
                The backbone's tokenizer. By default it is loaded from the checkpoint.
        """
        if template is None or verbalizer is None:
            missing = "template" if template is None else "verbalizer"
            raise ValueError(
                f'`{missing}` is missing. Prompting needs both, for example `template="{{text}} It was {{mask}}."` and '
                '`verbalizer={"negative": "bad", "positive": "good"}`.'
            )
        if tokenizer is None:
            tokenizer = AutoTokenizer.from_pretrained(name_or_path, **located(kwargs))
        if tokenizer.mask_token_id is None:
            raise ValueError("`tokenizer` has no mask token. Use the tokenizer of a masked language model.")
        if kwargs.pop("memory_pooling", "mask") != "mask":
            raise ValueError('`memory_pooling` of a prompted model is always "mask". Leave it out.')
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
                f"`{name_or_path}` has no masked-LM head, so the head that scores the words is untrained. Train one "
                "with `hf-memaug pretrain --only-head`, or use a checkpoint that has one.",
                stacklevel=2,
            )
        return (model, info) if wants_info else model
