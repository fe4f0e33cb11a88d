# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Progressive networks (Rusu et al., 2016) for any classifier, and for encoder-decoders: a column for each domain, the
earlier ones frozen.
"""

from typing import Any

import torch
import transformers
from huggingface_hub.dataclasses import strict
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from hf_memaug.data import DomainDataset
from hf_memaug.training.continual.base import FineTuning
from hf_memaug.training.forward_pass import find_heads, watched_inputs


class ProgressiveNetworks(FineTuning):
    """
    A column, which is a copy of the model, for each domain (`ProgressiveColumns`). Earlier columns are frozen; their
    features also go to the head of the new one. The last column predicts for all domains, as in the paper's comparison.

    `column_start="previous"` starts a column with the weights of the one before, `"random"` with random weights, as
    Rusu et al. do.
    """

    # A column has one prediction for each row or word.
    supports_questions = False
    options = {"column_start": "previous"}
    limits = {"column_start": ("previous", "random")}

    def check_model(self, model: Any, processing_class, rows: DomainDataset) -> None:
        super().check_model(model, processing_class, rows)
        if not isinstance(model, ProgressiveColumns):
            find_head(model)
            find_class(type(model).__name__)

    def grow(self, model: Any, rows: DomainDataset, processing_class) -> dict[str, Any]:
        return {"columns": 1}

    def begin(self, model: Any, number: int) -> Any:
        if not isinstance(model, ProgressiveColumns):
            model = ProgressiveColumns.around(model)
        if number:
            model.add_column(self.column_start)
        model.columns[:-1].requires_grad_(False)
        return model

    def rebuild(self, model: Any, folder: str) -> Any:
        if PreTrainedConfig.get_config_dict(folder)[0]["model_type"] != ProgressiveColumnsConfig.model_type:
            return None
        return ProgressiveColumns.from_pretrained(folder)


@strict
class ProgressiveColumnsConfig(PreTrainedConfig):
    model_type = "progressive_columns"

    column: dict | None = None
    column_class: str = ""
    columns: int = 1
    # Parameters of a column that do not learn, such as those of a general encoder.
    frozen: list[str] | None = None
    run_facts: dict | None = None


class ProgressiveColumns(PreTrainedModel):
    """
    Models beside each other. With h_i what the last layer of column i reads, and W_k, b_k the last layer of the
    newest column k, the logits are W_k h_k + b_k + Σ_{i<k} U_{k,i} h_i. Only column k and U_k are trained. U_k starts
    at zero, so that a column that is a copy of the last at first answers as that would by itself. The last layer of a
    classifier gives the scores of its labels, that of an encoder-decoder those of its words.
    """

    config: ProgressiveColumnsConfig
    accepts_loss_kwargs = False

    def __init__(self, config: ProgressiveColumnsConfig):
        super().__init__(config)
        column_class: Any = find_class(config.column_class)
        # `Any`: modules in a list have no type of their own.
        self.columns: Any = nn.ModuleList(
            column_class(column_class.config_class.from_dict(dict(config.column or {}))) for _ in range(config.columns)
        )
        self.laterals: Any = nn.ModuleList(_lateral(self.columns[0]) for _ in range(config.columns - 1))
        self.main_input_name = self.column.main_input_name
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        if any(module is lateral for lateral in getattr(self, "laterals", ())):
            nn.init.zeros_(module.weight)

    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        found = super().from_pretrained(*args, **kwargs)
        # Loading makes fresh parameters, which all learn.
        (found[0] if isinstance(found, tuple) else found)._freeze()
        return found

    def _freeze(self) -> None:
        for column in self.columns:
            for name in self.config.frozen or ():
                column.get_parameter(name).requires_grad_(False)

    @classmethod
    def around(cls, model: PreTrainedModel) -> "ProgressiveColumns":
        """A model as the only column."""
        config = ProgressiveColumnsConfig(
            column=model.config.to_dict(),
            column_class=type(model).__name__,
            frozen=[name for name, parameter in model.named_parameters() if not parameter.requires_grad],
            run_facts=getattr(model.config, "run_facts", None),
            id2label=model.config.id2label,
            label2id=model.config.label2id,
        )
        config.is_encoder_decoder = model.config.is_encoder_decoder
        whole: Any = cls(config)
        whole.to(model.device)
        whole.columns[0].load_state_dict(model.state_dict())
        whole._freeze()
        return whole

    @property
    def column(self) -> Any:
        """The newest one."""
        return self.columns[-1]

    def add_column(self, start: str) -> None:
        device = self.device
        new: Any = type(self.column)(self.column.config)
        new.to(device)
        if start == "previous":
            new.load_state_dict(self.column.state_dict())
        self.columns.append(new)
        self._freeze()
        # Earlier columns no longer predict: their laterals are not needed.
        self.laterals = nn.ModuleList(_lateral(new).to(device) for _ in range(len(self.columns) - 1))
        for lateral in self.laterals:
            nn.init.zeros_(lateral.weight)
        self.config.columns = len(self.columns)

    def update_memory(self) -> None:
        """For columns whose memory is written in training: the newest is."""
        if hasattr(self.column, "update_memory"):
            self.column.update_memory()

    def train(self, mode: bool = True):
        super().train(mode)
        # No dropout in what does not learn.
        for column in self.columns[:-1]:
            column.eval()
        return self

    def forward(self, labels: torch.Tensor | None = None, **inputs) -> SequenceClassifierOutput:
        if self.config.is_encoder_decoder and "decoder_input_ids" not in inputs:
            inputs["decoder_input_ids"] = self.column.prepare_decoder_input_ids_from_labels(labels)
        # A memory that is written in training is written with labels.
        known = {"labels": labels} if hasattr(self.column, "update_memory") else {}
        logits, _, outputs = _run(self.column, {**inputs, **known})
        for column, lateral in zip(self.columns[:-1], self.laterals, strict=True):
            with torch.no_grad():
                _, read, _ = _run(column, inputs)
            logits = logits + lateral(read)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits.float().flatten(0, -2), labels.flatten())
            # What keeps experts busy.
            more, weight = outputs.get("aux_loss"), getattr(self.column.config, "aux_loss_weight", None)
            loss = loss if more is None or weight is None else loss + weight * more
        return SequenceClassifierOutput(loss=loss, logits=logits)  # type: ignore[arg-type]

    @torch.no_grad()
    def generate(self, input_ids: torch.Tensor, max_new_tokens: int = 20, **inputs) -> torch.Tensor:
        """Greedy search, for columns that are encoder-decoders."""
        if inputs.pop("num_beams", 1) != 1 or inputs.pop("do_sample", False):
            raise ValueError("Progressive networks support greedy search only: leave `num_beams` and `do_sample` out.")
        config = self.column.config
        said = input_ids.new_full((len(input_ids), 1), config.decoder_start_token_id)
        ended = torch.zeros(len(said), dtype=torch.bool, device=said.device)
        for _ in range(max_new_tokens):
            scores = self(input_ids=input_ids, decoder_input_ids=said, **inputs).logits[:, -1]
            word = scores.argmax(-1).masked_fill(ended, config.pad_token_id or 0)
            said = torch.cat([said, word.unsqueeze(1)], dim=1)
            ended |= word == config.eos_token_id
            if ended.all():
                break
        return said


def _lateral(column: Any) -> nn.Linear:
    head = find_head(column)
    return nn.Linear(head.in_features, head.out_features, bias=False)


def find_class(name: str) -> type[PreTrainedModel]:
    """A class of this library or of transformers, by its name."""
    import hf_memaug

    found = getattr(hf_memaug, name, None) if name in hf_memaug.__all__ else getattr(transformers, name, None)
    if found is None:
        raise ValueError(f'`strategy="progressive"` needs a model class of hf_memaug or transformers, not `{name}`.')
    return found


def find_head(model: Any) -> nn.Linear:
    """The last layer of a classifier, or of an encoder-decoder."""
    if model.config.is_encoder_decoder and model.get_output_embeddings() is not None:
        return model.get_output_embeddings()
    return find_heads(model, 'strategy="progressive"')[-1]


def _run(column: nn.Module, inputs: dict) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """Logits, what the head read, and all outputs."""
    with watched_inputs([find_head(column)]) as read:
        outputs = column(**inputs)
    return outputs["logits"], read[-1], outputs
