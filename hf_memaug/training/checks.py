# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Checks of model, rows and arguments before training starts."""

import operator
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from transformers import EarlyStoppingCallback, SchedulerType, default_data_collator
from transformers.trainer_utils import SaveStrategy
from transformers.utils import find_labels

from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.general_cache import GeneralStatesCollator, cached_parts
from hf_memaug.modeling.modeling_utils import positions_of
from hf_memaug.training.algorithms import ALGORITHMS
from hf_memaug.training.collation import domains_of
from hf_memaug.training.forward_pass import embeddings_of

# How many rows of a dataset that is not in memory are checked.
FIRST_ROWS = 10_000


# Arguments


def refuse_for_phases(given: Mapping, reason: str) -> None:
    """Refuses arguments of `Trainer` that only the trainer of one phase would get."""
    for name, instead in (("model_init", "`model`"), ("optimizers", "`optimizer_cls_and_kwargs`")):
        if given.get(name) not in (None, (None, None)):
            raise ValueError(f"`{name}` is not supported: {reason}. Give {instead}.")


def check_resumable(state: Mapping, algorithm: str, domains: list[str]) -> None:
    """Refuses to resume with another algorithm, or with other domains: the weights may have seen one left out now."""
    for name, argument, value in (("algorithm", "args", algorithm), ("domains", "train_dataset", domains)):
        if state[name] != value:
            raise ValueError(
                f"`resume_from_checkpoint`: the run has the {name} {state[name]!r}, and `{argument}` has {value!r}. "
                "Use another `output_dir`, or leave `resume_from_checkpoint` out."
            )


def check_selection(args, trained: Sequence[str], eval_dataset, callbacks: Sequence) -> None:
    """Refuses to choose weights by the scores on domains that are not trained on."""
    chooses = {
        "`load_best_model_at_end`": args.load_best_model_at_end,
        f'`algorithm="{args.algorithm}"`': ALGORITHMS[args.algorithm].chooses_by_evaluation,
        '`save_strategy="best"`': args.save_strategy == SaveStrategy.BEST,
        '`lr_scheduler_type="reduce_lr_on_plateau"`': args.lr_scheduler_type == SchedulerType.REDUCE_ON_PLATEAU,
        "`EarlyStoppingCallback`": any(isinstance(callback, EarlyStoppingCallback) for callback in callbacks),
    }
    reason = next((name for name, holds in chooses.items() if holds), None)
    if reason is None or eval_dataset is None:
        return
    for dataset in eval_dataset.values() if isinstance(eval_dataset, dict) else [eval_dataset]:
        refuse_unseen_domains(trained, domains_of(dataset, "eval_dataset"), reason)


def refuse_unseen_domains(trained: Collection[str], seen: Collection[str], reason: str) -> None:
    unseen = sorted(set(seen) - set(trained))
    if trained and unseen:
        raise ValueError(
            f"`eval_dataset` has rows of {', '.join(unseen)}, missing from `train_dataset`, but {reason} chooses the "
            "weights by them. Score unseen domains after training, with `trainer.predict`."
        )


# The model


def check_precision(model: torch.nn.Module) -> None:
    """Refuses weights that learn in float16, and warns of bfloat16."""
    types = {one.dtype for one in model.parameters() if one.requires_grad}
    # `from_pretrained` keeps the type that a checkpoint is stored in, and says nothing.
    fix = 'Load it with `dtype="float32"`, and set `bf16` or `fp16` in `args` to compute in half precision.'
    if torch.float16 in types:
        raise ValueError(f"`model` has weights in float16, in which steps of Adam are lost. {fix}")
    if torch.bfloat16 in types:
        warnings.warn(f"`model` learns in bfloat16, in which many small steps are lost. {fix}", stacklevel=3)


def check_frozen_encoders(model: Any) -> None:
    """Refuses adapters in a general encoder that is frozen (G-MAP)."""
    for one in model.modules():
        is_pair = hasattr(one, "general_states") and one.config.freeze_general
        if is_pair and any(parameter.requires_grad for parameter in one.general.parameters()):
            raise ValueError(
                "`freeze_general=True` freezes the general encoder, but an adapter would train it. Use "
                '`LoraConfig(..., modules_to_save=["memory"], exclude_modules=r".*general\\..*")`.'
            )


def check_padding_side(model: torch.nn.Module, tokenizer) -> None:
    """Refuses padding before a text where a model reads the first token, or counts positions from there."""
    if getattr(model, "pads_right", False) and getattr(tokenizer, "padding_side", "right") == "left":
        raise ValueError(
            "`processing_class` pads on the left, but the model reads the first token. Set "
            '`tokenizer.padding_side = "right"`.'
        )


def check_other_passes(args, model: Any) -> None:
    """Refuses passes that would do nothing, or that a memory would be written by."""
    writes = any(hasattr(type(one), "update_memory") for one in model.modules())
    writes = writes and getattr(model.config, "writes_memory", True)
    for name in ("rdrop_weight", "embedding_perturbation"):
        reason = "it would write each row twice to the real memory" if writes else None
        if name == "rdrop_weight" and not is_random(model):
            reason = f"it compares two passes with other dropout, and `{type(model).__name__}` has none"
        elif name == "embedding_perturbation" and args.algorithm == "mixup":
            reason = '`algorithm="mixup"` mixes the embeddings'
        elif name == "embedding_perturbation" and embeddings_of(model) is None:
            reason = f"`{type(model).__name__}` has no `get_input_embeddings`"
        if reason and getattr(args, name):
            raise ValueError(f"`{name}` is not supported: {reason}. Leave it out.")


def is_random(model: Any) -> bool:
    """Whether a model in training answers otherwise at each pass."""
    settings = model.config.to_dict() if hasattr(model, "config") else {}
    given = any("drop" in name and isinstance(value, float) and value > 0 for name, value in settings.items())
    return given or any(isinstance(one, torch.nn.Dropout) and one.p for one in model.modules())


# Labels


def check_labels(dataset, num_labels: int | None, every_row: str | None = None) -> None:
    """
    Refuses class ids that the model has no logit for, and -100 where the algorithm `every_row` reads the label of each
    row.
    """
    names = getattr(dataset, "column_names", None) or ()
    column = next((name for name in ("labels", "label") if name in names), None)
    classes = len(getattr(dataset, "label_names", None) or ())
    if num_labels == 1 and classes > 1:
        raise ValueError(
            f"`train_dataset` has {classes} classes, but the model has `num_labels=1` (regression). Load it with "
            f"`num_labels={classes}`."
        )
    if column is None or num_labels is None or num_labels < 2:
        return
    ids: dict[int, int] = {}
    for row, label in enumerate(_column(dataset, column)):
        if label is None:
            raise ValueError(f"`train_dataset` has no label in row {row}. Leave such rows out, or label them.")
        if hasattr(label, "__index__") and getattr(label, "ndim", 0) == 0:
            ids.setdefault(operator.index(label), row)
    if every_row is not None and -100 in ids:
        raise ValueError(
            f'`train_dataset` has no label (-100) in row {ids[-100]}, and `algorithm="{every_row}"` looks at the label '
            'of each row. Leave such rows out, or use `algorithm="erm"`.'
        )
    for label, row in ids.items():
        if label != -100 and not 0 <= label < num_labels:
            raise ValueError(
                f"`train_dataset` has label {label} in row {row}, and the model has `num_labels={num_labels}` "
                f"(0 to {num_labels - 1}). Load the model with `num_labels={max(ids) + 1}` or fix the data."
            )


def check_labelled(model, data_collator, **datasets: Mapping[str, DomainDataset]) -> None:
    """Refuses rows by domain that have none of the columns that the model takes as labels."""
    names = find_labels(type(model))
    # An encoder-decoder learns the other text, and a collator may make labels.
    if not names or data_collator is not None or model.config.is_encoder_decoder:
        return
    for argument, parts in datasets.items():
        for domain, rows in parts.items():
            if not {"label", *names} & set(rows.column_names):
                raise ValueError(
                    f"`{argument}` has no labels in {domain!r}. Name their column, such as `load_domains(..., "
                    "label=...)`, or leave these rows out."
                )


def share_label_names(model, *datasets) -> None:
    """
    Gives a model without label names those of the rows. Refuses a model that has the same names in another order: it
    would predict one for the other.
    """
    config: Any = getattr(model, "config", None)
    names = next((list(rows.label_names) for rows in datasets if getattr(rows, "label_names", None)), None)
    own = getattr(config, "id2label", None)
    if names is None or not own or getattr(config, "is_encoder_decoder", False) or len(own) != len(names):
        return
    own = [str(own[index]) for index in sorted(own, key=int)]
    if own == names or names == [str(index) for index in range(len(names))]:
        return
    if own == [f"LABEL_{index}" for index in range(len(own))]:
        config.id2label = dict(enumerate(names))
        config.label2id = {name: index for index, name in enumerate(names)}
    elif sorted(own) == sorted(names):
        raise ValueError(
            f"`model` names its labels {own}, and the rows {names}: the same names in another order. Build the model "
            f"with `id2label={dict(enumerate(names))}`, or load the rows with `labels={own}`."
        )
    elif getattr(config, "verbalizer", None) is not None:
        raise ValueError(f"`verbalizer` has words for the labels {own}, but the rows have {names}. Use the same names.")


# Texts


def check_texts(model: Any, *datasets) -> None:
    """Refuses tokens that the model could not read; of rows on a disk, among the first of them."""
    texts = tokens_of(*datasets)
    check_positions(model, texts)
    try:
        words = model.get_input_embeddings() if texts and hasattr(model, "get_input_embeddings") else None
    except NotImplementedError:
        words = None  # several models in one, each with its own
    highest = max((max(ids) for ids in texts if len(ids)), default=0)
    if isinstance(words, torch.nn.Embedding) and highest >= words.num_embeddings:
        raise ValueError(
            f"A text has the token {highest}, and the model knows {words.num_embeddings} (0 to "
            f"{words.num_embeddings - 1}). Tokenize the rows with the tokenizer of the model's own backbone."
        )
    # A prompted model reads its answer at the mask token.
    config: Any = getattr(model, "config", None)
    mask = config.mask_token_id if getattr(config, "memory_pooling", None) == "mask" else None
    row = None if mask is None else next((row for row, ids in enumerate(texts) if mask not in ids), None)
    if row is not None:
        raise ValueError(
            f"Row {row} has no mask token ({mask}), at which a prompted model reads its answer. Tokenize the rows with "
            f"the model's template, {config.template!r}: `hf_memaug.data.prompt_tokenizer(tokenizer, template)`."
        )


def check_positions(model: torch.nn.Module, texts: Sequence) -> None:
    """Refuses texts that are longer than the model has positions for."""
    positions = positions_of(model)
    longest = max(map(len, texts), default=0)
    if positions and longest > min(positions):
        raise ValueError(
            f"A text has {longest} tokens, and the model has places for {min(positions)}. Set `max_length` to "
            f"{min(positions)} or less."
        )


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


# Collators


def check_batches(dataloader) -> None:
    """Refuses rows that the collators of this library and of transformers cannot batch."""
    rows, collators = getattr(dataloader, "dataset", None), _collators(getattr(dataloader, "collate_fn", None))
    if not is_known(collators[-1]):
        return  # the caller's own, which may make labels of anything
    if any(cached_parts(rows)) and not any(isinstance(one, GeneralStatesCollator) for one in collators):
        raise ValueError(
            "`train_dataset` has cached states of the general encoder, and `data_collator` cannot pad them. Give "
            "`GeneralStatesCollator(data_collator)` in its place."
        )
    for column in {"label", "labels"} & set(getattr(rows, "column_names", None) or ()):
        first = next(iter(_column(rows, column)), None)
        if isinstance(first, (str, bool)):
            raise ValueError(
                f"`train_dataset` has the label {first!r} in row 0, and a model takes numbers. Load the rows with "
                f'`load_domains`, or number them: `dataset.class_encode_column("{column}")`.'
            )
    if collators[-1] is default_data_collator and len(set(map(len, tokens_of(rows)))) > 1:
        raise ValueError(
            "`train_dataset` has texts of several lengths, and nothing pads them. Give the tokenizer as "
            "`processing_class`, or a `data_collator`."
        )


def is_known(collator) -> bool:
    """Whether tokens reach the model as they are in the rows: a collator of the caller's own may change them."""
    return getattr(_collators(collator)[-1], "__module__", "").partition(".")[0] in ("hf_memaug", "transformers")


def _collators(collator) -> list:
    """What makes the batches, and the collators in it, the innermost last."""
    found = [collator]
    while (inner := getattr(found[-1], "data_collator", None) or getattr(found[-1], "collator", None)) is not None:
        found.append(inner)
    return found


def _column(dataset, name: str) -> Iterable:
    columns = getattr(dataset, "columns", None)
    return columns[name] if columns is not None else dataset[name]
