# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""A loaded checkpoint that predicts."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from hf_memaug.inference.predictions import CheckpointError, Prediction
from hf_memaug.modeling.modeling_writable_memory import memory_class_of


@dataclass
class Predictor:
    """
    Args:
        name: the folder or the repository.
        model: in evaluation mode.
        processor: its tokenizer or image processor; None for graphs.
        kind: what it does: one of the values of `checkpoints.KINDS`.
        task: of `tasks.TASKS`, what makes predictions of the inputs of a batch.
        max_length: the longest text in tokens; None where nothing limits it.
        pairs: whether a second text is "none", "optional" or "needed".
        adapter_base: where `name` is an adapter, the model that it was merged into.
        options, seen: of `watch`.
    """

    name: str
    model: Any
    processor: Any
    kind: str
    task: Callable[..., list[Prediction]]
    max_length: int | None = None
    pairs: str = "none"
    adapter_base: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    seen: list[tuple[dict[str, Any], Any]] | None = None
    # `without_memory` changes the model, and the app may be open twice.
    lock: Any = field(default_factory=threading.RLock, repr=False)

    @property
    def config(self):
        return self.model.config

    @property
    def reads_memory(self) -> bool:
        return getattr(self.model, "reads_memory", False)

    @property
    def labels(self) -> list[str]:
        return [str(self.config.id2label[number]) for number in range(self.config.num_labels)]

    @property
    def title(self) -> str:
        """The last part of the name; of a job's checkpoint, the name of the job."""
        parts = Path(self.name).resolve().parts if os.path.isdir(self.name) else tuple(self.name.split("/"))
        return parts[-2] if parts[-1] == "checkpoint" and len(parts) > 1 else parts[-1]

    @property
    def reads_molecules(self) -> bool:
        """Whether its graphs have the features that `graph_from_smiles` gives to molecules."""
        from hf_memaug.data.molecules import ATOM_VOCAB_SIZES, BOND_VOCAB_SIZES

        network = getattr(self.config, "backbone_config", None)
        nodes, edges = (list(getattr(network, f"{of}_vocab_sizes", None) or ()) for of in ("node", "edge"))
        return nodes == ATOM_VOCAB_SIZES and edges in ([], BOND_VOCAB_SIZES)

    def predict(self, inputs: Sequence[Any], batch_size: int = 32, max_new_tokens: int = 40) -> list[Prediction]:
        """
        Args:
            inputs: texts, or pairs of texts; texts with masks; texts or lists of words, to be tagged; pairs of a
                question and its context; texts to reply to; whatever `decode_image` takes; SMILES or graphs.
            batch_size: inputs at a time.
            max_new_tokens: the longest reply.
        """
        if self.processor is not None and getattr(self.processor, "pad_token", "") is None:
            batch_size = 1
        options = {"max_new_tokens": max_new_tokens} if self.kind == "replies" else {}
        found: list[Prediction] = []
        with self.lock, torch.inference_mode():
            for start in range(0, len(inputs), batch_size):
                found += self.task(self, inputs[start : start + batch_size], **options)
        return found

    def watch(self, inputs: Sequence[Any], batch_size: int = 32, **options: Any) -> tuple[list[Prediction], list]:
        """The predictions, and the model's inputs and outputs in each forward pass. `options` go to the model."""
        seen: list[tuple[dict[str, Any], Any]] = []
        return replace(self, options=options, seen=seen).predict(inputs, batch_size), seen

    def forward(self, inputs: Mapping) -> Any:
        device = self.model.device
        inputs = {name: value.to(device) if torch.is_tensor(value) else value for name, value in inputs.items()}
        outputs = self.model(**inputs, **self.options)
        if self.seen is not None:
            self.seen.append((inputs, outputs))
        return outputs

    def writable(self, **kwargs: Any) -> "Predictor":
        """With a memory that rows can be written to; itself where it has one. `kwargs` go to `from_classifier`."""
        if hasattr(self.model, "write"):
            return self
        if self.kind not in ("text", "image"):
            raise CheckpointError(
                f"`checkpoint` {self.name} does not classify texts or images, so no rows can be written to it."
            )
        # By its name, because the checkpoint may carry guard rows. An adapter is merged already.
        source, how = (self.model, {}) if self.adapter_base else (self.name, {"dtype": self.model.dtype})
        model = memory_class_of(self.model, "A writable memory").from_classifier(source, **how, **kwargs)
        return replace(self, model=model.to(self.model.device))
