# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that predicts: `load_predictor(name).predict(inputs)`."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

import hf_memaug
from hf_memaug.inference import checkpoints
from hf_memaug.inference.predictions import Prediction
from hf_memaug.inference.tasks import TASKS
from hf_memaug.modeling.modeling_utils import positions_of
from hf_memaug.registry import FAMILIES

_WRITABLE = {"text": "WritableMemoryForSequenceClassification", "image": "WritableMemoryForImageClassification"}


@dataclass
class Predictor:
    """
    Args:
        name: the folder or the repository.
        model: in evaluation mode.
        processor: its tokenizer or image processor; None for graphs.
        kind: what it does: one of the values of `checkpoints.KINDS`.
        max_length: the longest text in tokens; None where nothing limits it.
        pairs: whether a second text is "none", "optional" or "needed".
        adapter_base: where `name` is an adapter, the model that it was merged into.
    """

    name: str
    model: Any
    processor: Any
    kind: str
    max_length: int | None = None
    pairs: str = "none"
    adapter_base: str | None = None
    # `without_memory` changes the model, and the app may be open twice.
    lock: Any = field(default_factory=threading.RLock, repr=False)

    @property
    def config(self):
        return self.model.config

    @property
    def is_ours(self) -> bool:
        return self.config.model_type in FAMILIES

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
        return self.run(inputs, self.forward, batch_size, max_new_tokens)

    def run(
        self, inputs: Sequence[Any], forward: Callable[[Mapping], Any], batch_size: int = 32, max_new_tokens: int = 40
    ) -> list[Prediction]:
        """As `predict`; `forward` takes the model's inputs and returns its outputs."""
        if self.processor is not None and getattr(self.processor, "pad_token", "") is None:
            batch_size = 1
        task = TASKS[self.kind]
        options = {"max_new_tokens": max_new_tokens} if self.kind == "replies" else {}
        found: list[Prediction] = []
        with self.lock, torch.inference_mode():
            for start in range(0, len(inputs), batch_size):
                found += task(self, inputs[start : start + batch_size], forward, **options)
        return found

    def forward(self, inputs: Mapping) -> Any:
        return self.model(**self.placed(inputs))

    def placed(self, inputs: Mapping) -> dict[str, Any]:
        """The inputs on the model's device."""
        device = self.model.device
        return {name: value.to(device) if torch.is_tensor(value) else value for name, value in inputs.items()}

    @contextmanager
    def without_memory(self):
        """A context in which predictions read no memory."""
        with self.lock, self.model.without_memory():
            yield

    def writable(self, **kwargs: Any) -> "Predictor":
        """With a memory that rows can be written to; itself where it has one. `kwargs` go to `from_classifier`."""
        if hasattr(self.model, "write"):
            return self
        if self.kind not in _WRITABLE:
            raise checkpoints.CheckpointError(
                f"`checkpoint` {self.name} does not classify texts or images, so no rows can be written to it."
            )
        # By its name, because the checkpoint may carry guard rows. An adapter is merged already.
        source, how = (self.model, {}) if self.adapter_base else (self.name, {"dtype": self.model.dtype})
        model = getattr(hf_memaug, _WRITABLE[self.kind]).from_classifier(source, **how, **kwargs)
        return replace(self, model=model.to(self.model.device))


def refuse_non_finite(model: Any, name: str, argument: str) -> None:
    """From now on, a forward pass of the model whose best logits are NaN or infinite raises an error."""

    def check(module, given, outputs) -> None:
        logits = [value for key, value in outputs.items() if key.endswith("logits") and torch.is_tensor(value)]
        # A mask may set single logits to minus infinity, and never the best of a row.
        if all(bool(one.amax(dim=-1).isfinite().all()) for one in logits if one.numel()):
            return
        tensors = (*module.named_parameters(), *module.named_buffers())
        bad = next((key for key, value in tensors if not bool(value.isfinite().all())), None)
        reason = "although its weights are finite. Check the inputs."
        if bad is not None:
            reason = f"because of its `{bad}`. Train it again, with a lower `learning_rate`, or restore a checkpoint."
        raise checkpoints.CheckpointError(f"`{argument}` {name!r} predicts values that are not finite, {reason}")

    model.register_forward_hook(check)


def load_predictor(
    name_or_path: str | os.PathLike, argument: str = "checkpoint", dtype: Any = torch.float32, device: str | None = None
) -> Predictor:
    """
    Loads a checkpoint of this library or of transformers with its tokenizer or image processor.

    Args:
        name_or_path: a folder, or a repository of the hub; also of an adapter of PEFT, which is merged.
        argument: what errors call `name_or_path`.
        dtype: as in `from_pretrained`.
        device: default: a GPU, if there is one.

    Example:

        >>> predictor = load_predictor("runs/train/jobs/NAME/checkpoint")
        >>> predictor.predict(["Could not put it down."])[0].scores[0]
    """
    name = os.fspath(name_or_path)
    config = checkpoints.read_config(name, argument)
    kind = checkpoints.checked_kind(config, name, argument)
    processor = checkpoints.load_processor(name, kind, argument)
    if kind == "words" and processor.mask_token is None:
        raise checkpoints.CheckpointError(f"`{argument}` {name!r} fills masks, and its tokenizer has no mask token.")
    model = checkpoints.load_model(name, config, argument, dtype=dtype)
    refuse_non_finite(model, name, argument)
    pairs, max_length = "none", None
    if kind not in ("image", "graph"):
        # Tokenizers without a limit say 10**30.
        max_length = min([processor.model_max_length, *positions_of(model)])
        max_length = None if max_length >= 10**9 else max_length
    if kind == "text":
        # A recurrent network is built for one text or for two; an encoder takes both.
        pairs = {True: "needed", False: "none", None: "optional"}[getattr(config, "sentence_pairs", None)]
    return Predictor(
        name=name,
        model=model.to(device or ("cuda" if torch.cuda.is_available() else "cpu")),
        processor=processor,
        kind=kind,
        max_length=max_length,
        pairs=pairs,
        adapter_base=checkpoints.adapter_base(name, argument),
    )
