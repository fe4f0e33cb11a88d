# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Stops a run that cannot end well: before it starts where possible, and before it harms the weights otherwise."""

import operator
import os
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence

import torch
from transformers import TrainerCallback, default_data_collator
from transformers.utils import find_labels

from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.general_cache import GeneralStatesCollator, cached_parts
from hf_memaug.training.algorithms import ALGORITHMS
from hf_memaug.training.label_names import share_label_names
from hf_memaug.training.resuming import last_complete_checkpoint

# How many rows of a set that does not lie in memory are looked at.
FIRST_ROWS = 10_000


class NonFiniteGradientError(RuntimeError):
    """The loss or a gradient became NaN or infinite."""


class RunGuard(TrainerCallback):
    """
    For any `Trainer`: `Trainer(..., callbacks=[RunGuard()])`.

    Before the first step it checks that `output_dir` can be written, that every label is one the model knows, that no
    text of a `DomainDataset` is longer than it has positions for or has tokens beyond its vocabulary, that cached
    states of a general encoder are of the model's (rows to score: at their first batch). A model whose labels have no
    names takes those of the rows; the same names in another order are refused. At each step it checks the gradient
    before the optimizer uses it, so that a NaN loss ends the run with the weights, and the last checkpoint, as they
    were.

    Args:
        patience (`int`, *optional*, defaults to 20):
            How many non-finite steps in a row are borne under fp16, whose loss scaling finds its scale by overflowing.
    """

    def __init__(self, patience: int = 20):
        self.patience = patience
        self.non_finite_steps = 0
        self._compared: set[str] = set()

    def on_train_begin(self, args, state, control, model=None, train_dataloader=None, processing_class=None, **kwargs):
        if args.should_save:
            check_output_dir(args.output_dir)
        rows = getattr(train_dataloader, "dataset", None)
        algorithm = ALGORITHMS.get(getattr(args, "algorithm", None))
        every_row = args.algorithm if algorithm is not None and algorithm.reads_labels else None
        check_labels(rows, getattr(model.config, "num_labels", None), every_row)
        share_label_names(model, rows)
        if is_known(getattr(train_dataloader, "collate_fn", None)):
            check_texts(model, rows)
        check_frozen_encoders(model)
        check_padding_side(model, processing_class)
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise ValueError("All weights of `model` are frozen: there is nothing to train. Let some of them learn.")
        check_states_are_collated(train_dataloader)
        check_batches(train_dataloader)
        self._compared.clear()
        self._check_cached(model, rows)

    def on_prediction_step(self, args, state, control, model=None, eval_dataloader=None, **kwargs):
        # In another precision the weights are others.
        if not (args.fp16_full_eval or args.bf16_full_eval):
            self._check_cached(model, getattr(eval_dataloader, "dataset", None))

    def _check_cached(self, model: torch.nn.Module, rows) -> None:
        """Refuses states of a general encoder (G-MAP) that were computed by another than the model's."""
        for part in cached_parts(rows):
            # Once for each folder: the encoder is frozen, and reading all its weights takes a second.
            if str(part.folder) not in self._compared:
                part.check_model(model)
                self._compared.add(str(part.folder))

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.check([parameter.grad for parameter in model.parameters() if parameter.grad is not None], args, state)

    def check(self, gradients: list[torch.Tensor], args, state) -> None:
        """Raises `NonFiniteGradientError` if one of the gradients is not finite."""
        # One number for all of them: one pass over the memory and one wait for the device.
        if not gradients or torch.isfinite(torch.nn.utils.get_total_norm(gradients)):
            self.non_finite_steps = 0
            return
        self.non_finite_steps += 1
        if self.non_finite_steps <= (self.patience if args.fp16 else 0):
            return
        # Another process may have no such gradient, and would not be asked.
        last = last_complete_checkpoint(args.output_dir)
        kept = f"The last good checkpoint is `{last}`." if last else "No checkpoint had been saved yet."
        raise NonFiniteGradientError(
            f"The loss or a gradient is NaN or infinite at step {state.global_step + 1}. Training stops before the "
            f"optimizer uses it. {kept} Lower `learning_rate` ({args.learning_rate}), set `max_grad_norm` "
            f"({args.max_grad_norm}), or use `bf16` instead of `fp16`; then `resume_from_checkpoint`."
        )


def refuse_for_phases(given: Mapping, reason: str) -> None:
    """Refuses what the one trainer of one phase could use and the next would lose. Arguments of `Trainer` by name."""
    for name, mend in (("model_init", "`model`"), ("optimizers", "`optimizer_cls_and_kwargs`")):
        if given.get(name) not in (None, (None, None)):
            raise ValueError(f"`{name}` cannot be had here: {reason}. Give {mend}.")


def check_precision(model: torch.nn.Module) -> None:
    """Refuses weights that learn in float16, and warns of bfloat16."""
    types = {one.dtype for one in model.parameters() if one.requires_grad}
    # `from_pretrained` keeps the type that a checkpoint is stored in, and says nothing.
    mend = 'Load it with `dtype="float32"`, and set `bf16` or `fp16` in `args` to compute in half precision.'
    if torch.float16 in types:
        raise ValueError(f"`model` has weights in float16, in which steps of Adam are lost. {mend}")
    if torch.bfloat16 in types:
        warnings.warn(f"`model` learns in bfloat16, in which many small steps are lost. {mend}", stacklevel=3)


def check_resumable(state: Mapping, algorithm: str, domains: list[str]) -> None:
    """Refuses to resume with another algorithm, or with other domains: the weights may have seen one left out now."""
    for name, argument, value in (("algorithm", "args", algorithm), ("domains", "train_dataset", domains)):
        if state[name] != value:
            raise ValueError(
                f"`resume_from_checkpoint`: the run has the {name} {state[name]!r}, and `{argument}` has {value!r}. "
                "Use another `output_dir`, or leave `resume_from_checkpoint` out."
            )


def check_output_dir(output_dir: str) -> None:
    """Refuses a folder that cannot be written, before anything is computed that would be lost."""
    try:
        os.makedirs(output_dir, exist_ok=True)
        with tempfile.TemporaryFile(dir=output_dir):
            pass
    except OSError as error:
        raise PermissionError(
            f"`output_dir` ({output_dir}) cannot be written: {error.strerror or error}. Choose a folder that can."
        ) from error


def check_padding_side(model: torch.nn.Module, tokenizer) -> None:
    """Refuses padding before a text where a model reads the first token, or counts places from there."""
    if getattr(model, "pads_right", False) and getattr(tokenizer, "padding_side", "right") == "left":
        raise ValueError(
            "`processing_class` pads on the left, and the model reads its first token there, which would be padding. "
            'Set `tokenizer.padding_side = "right"`.'
        )


def check_labels(dataset, num_labels: int | None, every_row: str | None = None) -> None:
    """
    Refuses class ids that the model has no logit for, and -100, of which there is no loss, where the algorithm
    `every_row` looks at the label of each row. Looks where labels lie in a column, not into single rows.
    """
    names = getattr(dataset, "column_names", None) or ()
    column = next((name for name in ("labels", "label") if name in names), None)
    classes = len(getattr(dataset, "label_names", None) or ())
    if num_labels == 1 and classes > 1:
        raise ValueError(
            f"`train_dataset` has {classes} classes, and the model has `num_labels=1`, which is for numbers. Load it "
            f"with `num_labels={classes}`."
        )
    if column is None or num_labels is None or num_labels < 2:
        return
    given = list(_column(dataset, column))
    missing = next((row for row, label in enumerate(given) if label is None), None)
    if missing is not None:
        raise ValueError(f"`train_dataset` has no label in row {missing}. Leave such rows out, or label them.")
    labels = [
        operator.index(label) if hasattr(label, "__index__") and getattr(label, "ndim", 0) == 0 else None
        for label in given
    ]
    if every_row is not None and -100 in labels:
        raise ValueError(
            f'`train_dataset` has no label (-100) in row {labels.index(-100)}, and `algorithm="{every_row}"` looks at '
            'the label of each row. Leave such rows out, or use `algorithm="erm"`.'
        )
    for row, label in enumerate(labels):
        if label not in (None, -100) and not 0 <= label < num_labels:
            most = max(other for other in labels if other is not None)
            raise ValueError(
                f"`train_dataset` has label {label} in row {row}, and the model has `num_labels={num_labels}` "
                f"(0 to {num_labels - 1}). Load the model with `num_labels={most + 1}` or mend the data."
            )


def check_labelled(model, data_collator, **datasets: Mapping[str, DomainDataset]) -> None:
    """Refuses rows by domain that have none of the columns that the model takes as labels."""
    names = find_labels(type(model))
    # What is to be said to a text is a label, and a collator may make some.
    if not names or data_collator is not None or model.config.is_encoder_decoder:
        return
    for argument, parts in datasets.items():
        for domain, rows in parts.items():
            if not {"label", *names} & set(rows.column_names):
                raise ValueError(
                    f"`{argument}` has no labels in {domain!r}, by which a model learns and is scored. Name their "
                    "column, such as `load_domains(..., label=...)`, or leave these rows out."
                )


def places_of(model: torch.nn.Module) -> list[int]:
    """How many tokens each table of positions in a model is for."""
    # `wpe` is GPT-2's name for it.
    named = [getattr(module, name, None) for module in model.modules() for name in ("position_embeddings", "wpe")]
    # RoBERTa begins to count behind the place of padding.
    return [
        one.num_embeddings - (0 if one.padding_idx is None else one.padding_idx + 1)
        for one in named
        if isinstance(one, torch.nn.Embedding)
    ]


def check_frozen_encoders(model: torch.nn.Module) -> None:
    """Refuses adapters in a general encoder that is to stay as it is (G-MAP)."""
    for one in model.modules():
        is_pair = hasattr(one, "general_states") and one.config.freeze_general
        if is_pair and any(parameter.requires_grad for parameter in one.general.parameters()):
            raise ValueError(
                "`freeze_general=True` keeps the general encoder, and an adapter would learn in it. Leave it out: "
                'LoraConfig(..., modules_to_save=["memory"], exclude_modules=r".*general\\..*").'
            )


def check_texts(model: torch.nn.Module, *datasets) -> None:
    """Refuses tokens that the model could not read; of rows on a disk, in the first of them."""
    texts = tokens_of(*datasets)
    check_places(model, texts)
    _check_vocabulary(model, texts)
    _check_mask(model, texts)


def check_places(model: torch.nn.Module, texts: Sequence) -> None:
    """Refuses texts that are longer than the model has positions for."""
    places = places_of(model)
    longest = max(map(len, texts), default=0)
    if places and longest > min(places):
        raise ValueError(
            f"A text has {longest} tokens, and the model has places for {min(places)}. Set `max_length` to "
            f"{min(places)} or less."
        )


def _check_vocabulary(model: torch.nn.Module, texts: Sequence) -> None:
    """Refuses tokens that the model has no vector for: another tokenizer made them."""
    try:
        words = model.get_input_embeddings() if texts and hasattr(model, "get_input_embeddings") else None
    except NotImplementedError:
        return  # several models in one, each with its own
    if not isinstance(words, torch.nn.Embedding):
        return
    highest = max((max(ids) for ids in texts if len(ids)), default=0)
    if highest >= words.num_embeddings:
        raise ValueError(
            f"A text has the token {highest}, and the model knows {words.num_embeddings} (0 to "
            f"{words.num_embeddings - 1}). Tokenize the rows with the tokenizer of the model's own backbone."
        )


def _check_mask(model: torch.nn.Module, texts: Sequence) -> None:
    """Refuses texts without a mask for a prompted model."""
    config = getattr(model, "config", None)
    mask = config.mask_token_id if getattr(config, "memory_pooling", None) == "mask" else None
    row = None if mask is None else next((row for row, ids in enumerate(texts) if mask not in ids), None)
    if row is not None:
        raise ValueError(
            f"Row {row} has no mask token ({mask}), at which a prompted model reads its answer. Tokenize the rows with "
            f"the model's template, {config.template!r}: `hf_memaug.data.prompt_tokenizer(tokenizer, template)`."
        )


def check_states_are_collated(dataloader) -> None:
    """Refuses a collator of ours or of transformers that knows nothing of the states of cached rows (G-MAP)."""
    if not any(cached_parts(getattr(dataloader, "dataset", None))):
        return
    collators = _collators(dataloader.collate_fn)
    if is_known(collators[-1]) and not any(isinstance(one, GeneralStatesCollator) for one in collators):
        raise ValueError(
            "`train_dataset` has cached states of the general encoder, and `data_collator` cannot pad them. Give "
            "`GeneralStatesCollator(data_collator)` in its place."
        )


def check_batches(dataloader) -> None:
    """Refuses what the collators of this library and of transformers could make no batch of."""
    rows, collator = getattr(dataloader, "dataset", None), _collators(getattr(dataloader, "collate_fn", None))[-1]
    if not is_known(collator):
        return  # the caller's own, which may make labels of anything
    for column in {"label", "labels"} & set(getattr(rows, "column_names", None) or ()):
        first = next(iter(_column(rows, column)), None)
        if isinstance(first, (str, bool)):
            raise ValueError(
                f"`train_dataset` has the label {first!r} in row 0, and a model takes numbers. Load the rows with "
                f'`load_domains`, or number them: `dataset.class_encode_column("{column}")`.'
            )
    if collator is default_data_collator and len(set(map(len, tokens_of(rows)))) > 1:
        raise ValueError(
            "`train_dataset` has texts of several lengths, and nothing pads them. Give the tokenizer as "
            "`processing_class`, or a `data_collator`."
        )


def _collators(collator) -> list:
    """What makes the batches, and what that hands its rows on to, the innermost last."""
    found = [collator]
    while (inner := getattr(found[-1], "data_collator", None) or getattr(found[-1], "collator", None)) is not None:
        found.append(inner)
    return found


def is_known(collator) -> bool:
    """Whether tokens reach the model as they lie in the rows: a collator of the caller's own may change them."""
    return getattr(_collators(collator)[-1], "__module__", "").partition(".")[0] in ("hf_memaug", "transformers")


def tokens_of(*datasets) -> list:
    """The tokens of each text: of rows on a disk, of the first of them."""
    texts: list = []
    for one in datasets:
        if "input_ids" not in (getattr(one, "column_names", None) or ()):
            continue
        if isinstance(one, DomainDataset):
            texts += one["input_ids"]
        elif hasattr(one, "select") and hasattr(one, "__len__"):
            # A `datasets.Dataset`.
            texts += one.select(range(min(len(one), FIRST_ROWS)))["input_ids"]
    return texts


def _column(dataset, name: str) -> Iterable:
    columns = getattr(dataset, "columns", None)
    return columns[name] if columns is not None else dataset[name]
