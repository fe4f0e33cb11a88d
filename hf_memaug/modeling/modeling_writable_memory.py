# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""A classifier that adapts to a new domain by writing labelled rows to its memory, without training."""

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional as F
from transformers import (
    MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    AutoModel,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)
from transformers.utils import ModelOutput, auto_docstring, logging

from hf_memaug.configuration.configuration_writable_memory import WritableMemoryConfig
from hf_memaug.layers.writable_memory import WritableMemory
from hf_memaug.modeling.contexts import replaced
from hf_memaug.modeling.memory_reads import MemoryRead
from hf_memaug.modeling.modeling_utils import (
    ImageClassifierMixin,
    TextClassifierMixin,
    chosen_places,
    pool_tokens,
    reads_last_token,
)
from hf_memaug.modeling.modeling_writable_rows import fingerprint, load_classifier, read_guard
from hf_memaug.modeling.modeling_writing import WritingMixin

logger = logging.get_logger(__name__)


@dataclass
class WritableMemoryOutput(ModelOutput):
    r"""
    loss (`torch.FloatTensor` of shape `(1,)`, *optional*, returned when `labels` is provided):
        Cross entropy.
    logits (`torch.FloatTensor` of shape `(batch_size, num_labels)`):
        Logarithms of the answer, which need not add up to 1; the classifier's logits where the memory adds nothing.
    classifier_logits (`torch.FloatTensor` of shape `(batch_size, classes of the classifier)`):
        The classifier's part.
    memory_weights (`torch.FloatTensor` of shape `(batch_size, landmarks)`, *optional*, returned with
        `output_memory_weights=True`):
        The similarity to each landmark. A row adds up to 1.
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    classifier_logits: torch.Tensor | None = None
    memory_weights: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None


class WritableMemoryForClassification(WritingMixin, PreTrainedModel):
    """A classifier and `WritableMemory`. The subclasses differ in their inputs."""

    config: WritableMemoryConfig
    base_model_prefix = "classifier"
    memory_modules = (WritableMemory,)
    memory_shape_fields = ("memory_rows", "key_layers")
    without_memory_means = "the classifier's own answer."
    auto_class: Any = None
    supports_gradient_checkpointing = True
    # Not its integers, and not the memory of a classifier.
    _keep_in_fp32_modules_strict = [r"^memory\.(probabilities|center|landmarks|correction|gate|trust)$"]
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = _supports_attention_backend = True

    def __init__(self, config: WritableMemoryConfig, classifier: PreTrainedModel | None = None, general=None):
        r"""
        classifier (`PreTrainedModel`, *optional*):
            The classifier. Default: a new one of `config.classifier_config`.
        general (`PreTrainedModel`, *optional*):
            The general encoder. Default: a new one of `config.general_config`, if there is one.
        """
        config.check_classifier()
        super().__init__(config)
        if config.classifier_config is None:
            raise ValueError(f"`classifier_config` is missing. Use `{type(self).__name__}.from_classifier(...)`.")
        self.classifier: Any = classifier or self.auto_class.from_config(config.classifier_config)
        if general is None and config.general_config is not None:
            general = AutoModel.from_config(config.general_config)
        self.general: Any = None if general is None else general.requires_grad_(False)
        parts, width = config.key_shape or (0, 0)
        sizes = (config.memory_rows, config.memory_landmarks, config.max_landmarks)
        self.memory = WritableMemory(parts, width, cast(int, config.num_labels), *sizes)
        self._is_off = False
        self.post_init()

    # Building and loading

    @classmethod
    def from_classifier(cls, classifier, general=None, **kwargs):
        """
        Adds an empty memory to a trained classifier, whose weights stay as they are.

        Args:
            classifier (`str` or `PreTrainedModel`):
                A folder, a repository of the Hub, an adapter of PEFT (which is merged), or a model (which is copied).
                Guard rows in the folder or repository (`DomainTrainingArguments.guard_rows`) are taken.
            general (`str` or `PreTrainedModel`, *optional*):
                A pretrained encoder whose features are part of the keys too. It helps with many rows, and costs its
                forward pass.
            kwargs (*optional*):
                `key_layers`, `max_landmarks`, and arguments of `from_pretrained`.

        Example:

        ```python
        >>> model = WritableMemoryForSequenceClassification.from_classifier("you/reviews")
        >>> model.write(rows, domain="hotels", tokenizer=tokenizer)
        ```
        """
        own = {name: kwargs.pop(name) for name in ("key_layers", "max_landmarks") if name in kwargs}
        name, classifier = classifier, cls._take_classifier(classifier, kwargs)
        if isinstance(general, str):
            its = ("cache_dir", "dtype", "local_files_only", "token", "trust_remote_code")
            general = AutoModel.from_pretrained(general, **{one: kwargs[one] for one in its if one in kwargs})
        kind = memory_class_of(classifier, "A writable memory")
        if not issubclass(cls, kind):
            raise ValueError(f"`{type(classifier).__name__}` needs `{kind.__name__}.from_classifier`.")
        theirs = copy.deepcopy(classifier.config)
        theirs.architectures = [type(classifier).__name__]  # by which an Auto class picks among several
        config = cls.config_class(
            classifier_config=theirs,
            general_config=None if general is None else copy.deepcopy(general.config),
            id2label=dict(theirs.id2label),
            label2id=dict(theirs.label2id),
            **own,
        )
        config._name_or_path = theirs._name_or_path
        model = cls(config, classifier=classifier, general=general).eval()
        if not isinstance(name, nn.Module):
            model._take_guard(name, kwargs)
        return model

    def _take_guard(self, name: str, how: dict) -> None:
        """The guard rows of a checkpoint, if they fit."""
        found = read_guard(name, how)
        if found is None:
            return
        rows, facts = found
        reason = None
        if self.general is not None or self.config.key_layers:
            reason = "`general` and `key_layers` make other keys"
        elif not self._has_fingerprint(facts["fingerprint"]):
            reason = "the weights of the classifier were changed after they were stored"
        if reason:
            logger.warning(f"The guard rows of `{name}` are left out: {reason}. Pass `guard=` to `write`.")
            return
        self.config.fingerprint = facts["fingerprint"]
        labels = list(cast(dict, self.config.id2label).values())
        self._rebuild([rows], [], labels, {}, {}, facts.get("vocabulary"))

    @classmethod
    def _take_classifier(cls, classifier, how: dict):
        if isinstance(classifier, nn.Module):
            if how:
                raise TypeError(
                    f"`{next(iter(how))}` is for loading, and `classifier` is loaded already. Leave it out."
                )
            model: Any = copy.deepcopy(classifier)
            model = model.merge_and_unload() if hasattr(model, "merge_and_unload") else model
        else:
            model = load_classifier(cls.auto_class, classifier, how)
        if isinstance(model, WritableMemoryForClassification):
            raise ValueError("`classifier` has a writable memory already. Load it with `from_pretrained`.")
        if any(type(module).__module__.startswith("peft.") for module in model.modules()):
            raise ValueError("`classifier` has an adapter in it. Pass the folder of the adapter instead.")
        return model

    def _finish_loading(self, info):
        super()._finish_loading(info)
        if self.general is not None:
            self.general.requires_grad_(False)
        if self.config.memory_rows:
            self._check_fingerprint()
        chosen = self.memory.choose_landmarks()
        if self.config.has_memory and len(chosen) != self.config.memory_landmarks:
            raise ValueError(
                f"`max_landmarks={self.config.max_landmarks}` does not fit this memory, which was computed from "
                f"{self.config.memory_landmarks} of its rows. Leave it out."
            )

    def _has_fingerprint(self, stored: str) -> bool:
        """Whether the weights are those of a stored fingerprint. It has several hashes; rounded weights share one."""
        return not set(stored.split("-")).isdisjoint(fingerprint(self.classifier).split("-"))

    def _check_fingerprint(self) -> None:
        if self.config.fingerprint is not None and not self._has_fingerprint(self.config.fingerprint):
            raise ValueError(
                "The weights of the classifier were changed after rows were written to its memory, so the rows do not "
                "fit. Load the classifier again, and write the rows again."
            )

    @property
    def base_model(self) -> nn.Module:
        """The encoder below the classifier's head, whose features the report draws."""
        return self.classifier.base_model

    def get_input_embeddings(self):
        return self.classifier.get_input_embeddings()

    def set_input_embeddings(self, value):
        self.classifier.set_input_embeddings(value)

    # Answering

    def _classify(self, inputs: dict, labels, output_memory_weights) -> WritableMemoryOutput:
        if self.training and self.config.memory_rows and torch.is_grad_enabled():
            raise ValueError(
                "A classifier cannot be trained while its memory has rows, whose features would no longer fit. Erase "
                "them, train, and write them again."
            )
        found, parts = self._keys(inputs)
        keys = self.memory.join(parts)
        if self._is_off:
            # The classifier never answers with a class that was written later.
            new = self.memory.classes - found.logits.shape[-1]
            logits = F.pad(found.logits, (0, new), value=torch.finfo(found.logits.dtype).min)
        else:
            logits = self.memory(found.logits, keys)
        weights = None
        if output_memory_weights and self.config.has_memory:
            weights = self.memory.similarity(keys)
            weights = weights / weights.sum(dim=-1, keepdim=True)
        return WritableMemoryOutput(
            loss=None if labels is None else F.cross_entropy(logits, labels),
            logits=logits,
            classifier_logits=found.logits,
            memory_weights=weights,
            hidden_states=found.get("hidden_states") if inputs.get("output_hidden_states") else None,
            attentions=found.get("attentions"),
        )

    def _keys(self, inputs: dict):
        """What the classifier returns, and the parts of the keys: pooled hidden states of some layers."""
        inputs = {**inputs, "output_hidden_states": True, "return_dict": True}
        found = self.classifier(**inputs)
        states = found.get("hidden_states") or found.get("decoder_hidden_states")
        if states is None:
            raise ValueError(
                f"`{type(self.classifier).__name__}` returns no hidden states, which the keys are made of."
            )
        mask = inputs.get("attention_mask")
        # Without those of fewer places than the input has, which encoders that pool between layers return.
        states = [one for one in states if mask is None or one.ndim != 3 or one.shape[1] >= mask.shape[1]]
        depth = len(states) - 1
        layers = self.config.key_layers or sorted({round(depth / 3), round(2 * depth / 3), depth})
        if not 0 <= min(layers) <= max(layers) <= depth:
            raise ValueError(f"`key_layers` is {layers}, and the classifier has the layers 0 to {depth}.")
        last = "last" if reads_last_token(self.classifier) else "first"
        padding = getattr(self.classifier.config, "pad_token_id", None)
        if mask is None and last == "last" and "input_ids" in inputs and padding is not None:
            # As the classifier finds the last token.
            mask = (inputs["input_ids"] != padding).long()
        parts = self._pooled([states[layer] for layer in layers], mask, last)
        if self.general is not None:
            with torch.no_grad():
                read = ("pixel_values", "input_ids", "attention_mask", "token_type_ids")
                theirs = self.general(**{name: inputs[name] for name in read if name in inputs})
            parts += self._pooled([theirs.last_hidden_state], mask, "first")
        return found, parts

    def _pooled(self, layers: list[torch.Tensor], mask: torch.Tensor | None, token: str) -> list[torch.Tensor]:
        """Of each layer, one token where a classifier may read it, and the mean over tokens or places."""
        if mask is not None:
            # Once for all layers, because small encoders wait for each kernel.
            mask = mask[:, -layers[0].shape[1] :]
            # BigBird fills up its last block.
            layers = [states[:, : mask.shape[1]] if states.ndim == 3 else states for states in layers]
            rows, places = torch.arange(len(mask), device=mask.device), chosen_places(mask, token)
            shares = (mask / mask.sum(dim=1, keepdim=True).clamp(min=1)).unsqueeze(1)
        parts = []
        for states in layers:
            if states.ndim != 3:
                parts.append(states.mean(dim=(2, 3)) if states.ndim == 4 else states)
            elif mask is None:
                parts += [pool_tokens(states, token), pool_tokens(states, "mean")]
            else:
                parts += [states[rows, places], (shares.to(states.dtype) @ states)[:, 0]]
        return parts

    def memory_reads(self, inputs, outputs) -> list[MemoryRead]:
        if outputs.memory_weights is None or not self.reads_memory:
            return []
        rows = [self._row_facts(place) for place in self.memory.choose_landmarks().tolist()]
        owners, names = [row["domain"] for row in rows], [row["text"] or row["id"] for row in rows]
        about = f"{self.config.memory_rows} written rows and guard rows, and how similar the input is to each."
        return [MemoryRead("Written rows", about, outputs.memory_weights, unit="row", names=names, owners=owners)]

    def without_memory(self):
        return replaced(self, "_is_off", True)


def memory_class_of(model: Any, needed_by: str) -> type[WritableMemoryForClassification]:
    """The class that gives a classifier a memory. Refuses other models."""
    kind, known = (
        (WritableMemoryForImageClassification, MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING)
        if getattr(model, "main_input_name", None) == "pixel_values"
        else (WritableMemoryForSequenceClassification, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING)
    )
    if not isinstance(model, PreTrainedModel) or type(model.config) not in known:
        raise ValueError(
            f"{needed_by} needs a classifier that an `AutoModelFor...Classification` loads, not a "
            f"`{type(model).__name__}`. Merge an adapter with `merge_and_unload()`."
        )
    config: Any = model.config
    if config.problem_type not in (None, "single_label_classification") or config.num_labels < 2:
        raise ValueError(
            f"`classifier` has {config.num_labels} labels and `problem_type={config.problem_type!r}`. A writable "
            "memory needs one label of two or more for each row."
        )
    return kind


@auto_docstring
class WritableMemoryForImageClassification(ImageClassifierMixin, WritableMemoryForClassification):
    auto_class = AutoModelForImageClassification

    def _pooled(self, layers, mask, token):
        # Only some image encoders have a token that stands for the whole image.
        if self._has_class_token:
            return super()._pooled(layers, None, token)
        means = [states.mean(dim=1) if states.ndim == 3 else states for states in layers]
        return super()._pooled(means, None, token)

    @cached_property
    def _has_class_token(self) -> bool:
        return any(name.endswith("cls_token") for name, _ in self.classifier.named_parameters())


@auto_docstring
class WritableMemoryForSequenceClassification(TextClassifierMixin, WritableMemoryForClassification):
    auto_class = AutoModelForSequenceClassification
