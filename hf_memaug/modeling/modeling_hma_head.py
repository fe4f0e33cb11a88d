# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""HMA's two memories and its head: features in, logits out (Qiu et al., 2023, section 4)."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.utils import ModelOutput, auto_docstring, can_return_tuple, logging

from hf_memaug.configuration.configuration_hma import HMAConfig
from hf_memaug.layers.datapoint_reader import DatapointReader
from hf_memaug.layers.real_memory import RealMemory, over_processes
from hf_memaug.modeling.contexts import replaced
from hf_memaug.modeling.memory_reads import MemoryRead
from hf_memaug.modeling.modeling_utils import MemoryModelMixin

logger = logging.get_logger(__name__)


@dataclass
class HMAOutput(ModelOutput):
    r"""
    loss (`torch.FloatTensor` of shape `(1,)`, *optional*, returned when `labels` is provided):
        Cross entropy.
    logits (`torch.FloatTensor` of shape `(batch_size, num_labels)`):
        Scores before the softmax.
    features (`torch.FloatTensor` of shape `(batch_size, feature_size)`):
        `h^1`, what the backbone gives.
    augmented_features (`torch.FloatTensor` of shape `(batch_size, feature_size + label_embedding_size)`):
        `C^3`, what the head reads.
    memory_weights (`torch.FloatTensor`, *optional*, returned with `output_memory_weights=True`):
        How much each row reads of what, for each head, of shape `(batch_size, memory_heads, n)`. First the real memory
        and the row itself, which add up to 1; then the synthetic slots, the support and the rows of the batch (or the
        row itself), which add up to 1 again. Parts that the augmentation does not have are missing.
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    features: torch.Tensor | None = None
    augmented_features: torch.Tensor | None = None
    memory_weights: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None


class HeterogenousMemory(nn.Module):
    """Section 4: RMA, then SMA. Takes features `(rows, d_1)` and gives rows `(rows, d_1 + d_2)`."""

    def __init__(self, config: HMAConfig):
        super().__init__()
        self.config = config
        # Set by `without_memory`: rows then read neither slots nor each other.
        self.is_off = False
        num_labels = cast(int, config.num_labels)
        width, self.unknown = config.memory_width, num_labels
        intermediate = config.memory_intermediate_size or 4 * width
        reader = (width, config.memory_heads, intermediate, config.memory_dropout, config.layer_norm_eps)
        # A row for each class, and one for rows whose class is to be found.
        self.label_embedding = nn.Embedding(num_labels + 1, config.label_embedding_size)
        self.real_reader = DatapointReader(*reader) if config.has("real reader") else None
        self.queue = RealMemory(config.real_memory_size, width) if config.has("real") else None
        self.synthetic_reader = DatapointReader(*reader) if config.has("synthetic reader") else None
        shape = (num_labels, config.synthetic_slots, config.hidden_size)
        self.synthetic_slots = nn.Parameter(torch.empty(shape)) if config.has("synthetic") else None

    def aggregate(self, features: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        """`C^1 = [h^1; e]` (section 4.1). Without `labels` they are unknown, as they are of every row that asks."""
        if labels is None:
            labels = torch.full(features.shape[:1], self.unknown, device=features.device)
        return torch.cat([features, self.label_embedding(labels).to(features.dtype)], dim=-1)

    def synthetic_memory(self, rows: torch.Tensor) -> torch.Tensor:
        """`M_SMA` (section 4.3): all slots, each with its label as the embedding has it now."""
        if self.synthetic_slots is None or self.is_off:
            return rows[:0]
        labels = torch.arange(self.unknown, device=rows.device).repeat_interleave(self.config.synthetic_slots)
        return self.aggregate(self.synthetic_slots.flatten(0, 1), labels).to(rows.dtype)

    def after_real_memory(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`C^2` of rows `C^1` as `aggregate` makes them, and what they read; where nothing reads, `C^1` and None."""
        if self.real_reader is None:
            return rows, None
        memory = None if self.is_off else self.queue
        slots, filled = (rows[:0], None) if memory is None else (memory.slots, memory.filled)
        return self.real_reader(rows, slots, filled)  # Eq. 5

    def forward(self, features: torch.Tensor, between_rows: bool = True) -> tuple[torch.Tensor, list[torch.Tensor]]:
        rows, real_weights = self.after_real_memory(self.aggregate(features))
        weights = [] if real_weights is None else [real_weights]
        if self.synthetic_reader is not None:
            between_rows = between_rows and self.config.has("between rows") and not self.is_off
            slots = self.synthetic_memory(rows)
            rows, synthetic_weights = self.synthetic_reader(rows, slots, between_rows=between_rows)  # Eq. 6
            weights.append(synthetic_weights)
        return rows, weights


def check_labels(labels: torch.Tensor, rows: int, num_labels: int, wait: bool = False) -> None:
    """On a CPU; with `wait` on a GPU too, which has to be waited for. Unasked it stops by itself, and says little."""
    if labels.is_floating_point() or labels.numel() != rows:
        raise ValueError(
            f"`labels` of {rows} rows have the shape {tuple(labels.shape)} and the type {labels.dtype}. Give one class "
            "for each row, a whole number: of scores of all classes, their `argmax(-1)`."
        )
    if not labels.numel() or not (wait or labels.device.type == "cpu"):
        return
    wrong = labels[(labels < 0) | (labels >= num_labels)]
    if len(wrong):
        more = f"Build it with `num_labels={int(wrong.max()) + 1}`, or fix the labels."
        raise ValueError(
            f"`labels` has the label {int(wrong[0])}, and the model embeds the labels 0 to {num_labels - 1}. "
            f"{more if wrong.max() >= 0 else 'Every row has a class here: leave rows without one out.'}"
        )


@auto_docstring
class HMAPreTrainedModel(MemoryModelMixin, PreTrainedModel):
    config: HMAConfig
    base_model_prefix = "head"
    memory_modules = (HeterogenousMemory,)
    memory_shape_fields = (
        *("augmentation", "real_memory_size", "synthetic_slots", "label_embedding_size"),
        *("memory_heads", "memory_intermediate_size", "prompt_tokens", "prompt_depth"),
    )
    without_memory_means = "the row reads itself alone, no stored datapoint and no synthetic slot."
    # These are for the backbone; the memories are read in plain torch.
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = _supports_attention_backend = True

    def __init__(self, config: HMAConfig, *args, **kwargs):
        # Assignments to a configuration are not validated by transformers, and would surface as a shape error later.
        config.check_memory()
        super().__init__(config, *args, **kwargs)

    def memory_reads(self, inputs, outputs) -> list[MemoryRead]:
        if outputs.memory_weights is None or not self.reads_memory:
            return []
        config, reads = self.config, []
        weights = outputs.memory_weights.float().mean(dim=1)
        num_labels = cast(int, config.num_labels)
        classes = [str(cast(dict, config.id2label)[number]) for number in range(num_labels)]
        if config.has("real"):
            queue = cast(HMAHead, getattr(self, "head", self)).memory.queue
            about = f"The last {int(queue.filled.sum())} training rows, each a feature with its class."
            if not queue.filled.any():
                about = "It is empty: no row was written into it in training."
            reads.append(
                MemoryRead(
                    "Real memory",
                    about,
                    weights[:, : queue.size][:, queue.filled],
                    unit="datapoint",
                    owners=[classes[label] for label in queue.slot_labels[queue.filled].tolist()],
                    elsewhere="the row itself",
                )
            )
        if config.has("real reader"):
            weights = weights[:, (config.real_memory_size if config.has("real") else 0) + 1 :]
        if config.has("synthetic"):
            per_class = config.synthetic_slots
            reads.append(
                MemoryRead(
                    "Synthetic memory",
                    f"Slots that were learned in training, {per_class} for each class.",
                    weights[:, : num_labels * per_class],
                    names=[f"slot {number + 1} of {per_class}" for number in range(per_class)] * num_labels,
                    owners=[name for name in classes for _ in range(per_class)],
                    elsewhere="itself and other rows of its batch",
                )
            )
        return reads

    def without_memory(self):
        return replaced(getattr(self, "head", self).memory, "is_off", True)

    def _finish_loading(self, info):
        super()._finish_loading(info)
        fresh = {*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])}
        # With `ignore_mismatched_sizes`, stored rows may have another size or embeddings of old labels.
        if self.config.has("real") and any("memory.queue." in n or "memory.label_embedding." in n for n in fresh):
            getattr(self, "head", self).memory.queue.clear()

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, HeterogenousMemory):
            std = self.config.memory_initializer_range
            init.normal_(module.label_embedding.weight, mean=0.0, std=std)
            if module.synthetic_slots is not None:
                # From zeros, all slots of a class would always get the same gradient.
                init.normal_(module.synthetic_slots, mean=0.0, std=std)
        elif isinstance(module, RealMemory):
            for buffer in (module.slots, module.slot_labels, module.written):
                init.zeros_(buffer)

    @classmethod
    def how_to_begin_with(cls, model_type: str) -> str | None:
        return "`from_backbone` adds fresh memories to it."


@auto_docstring(custom_intro="The memories and a linear head: features in, logits out.")
class HMAHead(HMAPreTrainedModel):
    main_input_name = "features"

    def __init__(self, config: HMAConfig):
        super().__init__(config)
        self.memory: Any = HeterogenousMemory(config) if config.reads_memory else None
        self.classifier = nn.Linear(config.augmented_size, cast(int, config.num_labels))
        # Rows of this optimizer step, written to the real memory after it.
        self._pending: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._is_updated = False
        # On a GPU, only the labels of the first batch are checked.
        self._labels_checked = False
        self.post_init()

    @classmethod
    def from_backbone(cls, name_or_path, **kwargs):
        raise TypeError(
            "`HMAHead` has no backbone. Create it with `HMAHead(HMAConfig(feature_size=..., num_labels=...))`, or use "
            "`HMAForImageClassification.from_backbone`."
        )

    def get_input_embeddings(self):
        return None

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        features: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        momentum_features: torch.Tensor | None = None,
        output_memory_weights: bool | None = None,
    ) -> HMAOutput:
        r"""
        features (`torch.FloatTensor` of shape `(batch_size, feature_size)`):
            `h^1`, the output of a backbone.
        labels (`torch.LongTensor` of shape `(batch_size,)`, *optional*):
            The class of each row. In training, rows are written to the real memory with their labels.
        momentum_features (`torch.FloatTensor` of shape `(batch_size, feature_size)`, *optional*):
            Features of a momentum encoder, for the real memory. Left out, `features`.
        output_memory_weights (`bool`, *optional*):
            Whether to return how much each row reads of each slot.
        """
        if features is None:
            raise ValueError("`features` are missing: a tensor of shape (batch, feature_size).")
        for name, rows in (("features", features), ("momentum_features", momentum_features)):
            if rows is not None and (rows.ndim != 2 or rows.shape[-1] != self.config.hidden_size):
                raise ValueError(
                    f"`{name}` has the shape {tuple(rows.shape)}; it must be (rows, {self.config.hidden_size}). Pool "
                    "it to one vector a row, or set `feature_size` to its width."
                )
        if labels is not None and not torch.compiler.is_compiling():
            check_labels(labels, len(features), cast(int, self.config.num_labels), wait=not self._labels_checked)
            self._labels_checked = True
        rows, weights = features.to(self.classifier.weight.dtype), []
        if self.memory is not None:
            rows, weights = self.memory(rows, between_rows=self.training or self.config.inference == "batch")
            if self._pending and not (self.training or self._is_updated):
                self._warn_of_missing_updates()
            if self.training and self.config.has("real") and torch.is_grad_enabled():
                self._keep_for_writing(features if momentum_features is None else momentum_features, labels)
        logits = self.classifier(rows)
        return HMAOutput(
            loss=None if labels is None else F.cross_entropy(logits.float(), labels.view(-1)),
            logits=logits,
            features=features,
            augmented_features=rows,
            memory_weights=torch.cat(weights, dim=-1) if output_memory_weights and weights else None,
        )

    def _warn_of_missing_updates(self) -> None:
        logger.warning_once(
            "The real memory was never written during training. Pass `callbacks=[MemoryUpdateCallback()]` to `Trainer` "
            "(`from hf_memaug import MemoryUpdateCallback`; `DomainTrainer` adds it itself), or call "
            "`model.update_memory()` after each `optimizer.step()`."
        )

    @torch.no_grad()
    def _keep_for_writing(self, features: torch.Tensor, labels: torch.Tensor | None) -> None:
        size = self.config.real_memory_size
        if getattr(self, "_is_replica", False):
            raise RuntimeError(
                "HMA cannot train under `nn.DataParallel`, which discards the copies of the model and what they wrote "
                "to the real memory. Start one process for each GPU (`torchrun --nproc-per-node N script.py`), or use "
                "one GPU (`CUDA_VISIBLE_DEVICES=0`)."
            )
        if labels is None:
            raise ValueError(
                "`labels` is missing, which training writes to the real memory. Pass it (`Trainer` removes it with "
                "`label_smoothing_factor` or `compute_loss_func`), call `model.eval()`, or choose an `augmentation` "
                'without a real memory, such as "abd+syn".'
            )
        if len(features) > size:
            fix = f"Choose `real_memory_size={len(features)}` or more, or smaller batches."
            raise ValueError(f"`real_memory_size={size}` is less than a batch of {len(features)}. {fix}")
        if sum(len(rows) for rows, _ in self._pending) + len(features) > size:
            if self._is_updated:
                raise RuntimeError(
                    f"One optimizer step has more rows than `real_memory_size={size}`. Set `real_memory_size` to at "
                    "least the batch size times `gradient_accumulation_steps`."
                )
            self._warn_of_missing_updates()
            self._pending = []
        # [E_m(X), E_label(Y)] of section 4.2
        self._pending.append((self.memory.aggregate(features.detach(), labels.view(-1)), labels.view(-1)))

    @torch.no_grad()
    def update_memory(self) -> None:
        """
        Writes the rows of this optimizer step into the real memory (section 4.2). `MemoryUpdateCallback` calls it after
        each step; in a loop of your own, call it after `optimizer.step()`, on all processes. All write the same rows.
        """
        if not self.config.has("real"):
            return
        self._is_updated = True
        # Also with nothing to write: the other processes wait for this one to gather.
        queue, pending = self.memory.queue, self.take_pending()
        rows = torch.cat([queue.slots[:0], *(rows.to(queue.slots.dtype) for rows, _ in pending)])
        labels = torch.cat([queue.slot_labels[:0], *(labels for _, labels in pending)])
        queue.write(over_processes(rows), over_processes(labels))

    def take_pending(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Returns the rows of this optimizer step with their labels, and forgets them."""
        pending, self._pending = self._pending, []
        return pending

    def set_pending(self, pending: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """
        Replaces the rows of this optimizer step: by none where the step was aborted, or by the outputs of a CUDA graph,
        whose replay runs no Python code.
        """
        self._pending = pending
