# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Builds the model and the processor of a job, and checks beforehand that this is possible."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError

from hf_memaug.data import DomainDataset
from hf_memaug.inference.checkpoints import load_processor, read_config
from hf_memaug.inference.predictions import InferenceError
from hf_memaug.registry import graph_family
from hf_memaug.runs.arguments import method_of, split_settings
from hf_memaug.runs.errors import UsageError
from hf_memaug.runs.graphs import graph_network
from hf_memaug.runs.job import Job
from hf_memaug.runs.methods import FINE_TUNING, Chosen
from hf_memaug.runs.rows import kind_of
from hf_memaug.runs.settings import in_options
from hf_memaug.runs.small_models import SMALL, labels_of, small_model
from hf_memaug.runs.tasks import REPLIES, TAGS, TASKS, auto_class_of

# Where the dropout that a sweep draws goes: the first of these that the configuration has.
DROPOUT_FIELDS = ("classifier_dropout", "memory_dropout", "hidden_dropout_prob")


@dataclass(frozen=True)
class Parts:
    """What a model is built of. The graphs of `others`, rows to select and test on, may have values of their own."""

    backbone: str
    rows: DomainDataset
    processor: Any = None
    general: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    others: Sequence[DomainDataset] = ()
    vectors: str | None = None

    @property
    def kind(self) -> str:
        return kind_of(self.rows)

    @property
    def labels(self) -> dict[str, Any]:
        problem_type = TASKS[self.kind].problem_type if self.kind in TASKS else None
        return {**labels_of(self.rows), **({"problem_type": problem_type} if problem_type else {})}


def build_model(one: Chosen, parts: Parts):
    """The model of a method."""
    if not one.families:
        backbone = (parts.general or "") if one.method.needs_general else parts.backbone
        return _plain_model(dataclasses.replace(parts, backbone=backbone), has_head=one.method.needs_shots)
    if one.makes_words:
        return _model_of_words(one, parts)
    model_class = model_class_of(one, parts)
    settings = _with_dropout(parts.settings, {one.name for one in dataclasses.fields(model_class.config_class)})
    general = (parts.general,) if one.method.needs_general else ()
    # The features of a general encoder are part of the keys of a writable memory.
    more = {"general": parts.general} if one.method.needs_shots else {}
    build = getattr(model_class, one.method.born)
    if parts.kind == "graph":
        network, settings = graph_network(parts.backbone, [parts.rows, *parts.others], parts.settings)
        return build(network, **parts.labels, **settings)
    asks = {"tokenizer": parts.processor, **more} if is_prompted(settings) else more
    return build(*general, parts.backbone, dtype="float32", **parts.labels, **asks, **settings)


def model_class_of(one: Chosen, parts: Parts) -> Any:
    """The class of a method's models for the kind of the rows and the type of the backbone."""
    families = list(one.families.values())
    if len(families) > 1:
        model_type = _config_of(parts).model_type
        families = [family for family in families if family.backbone == model_type]
        if not families:
            known = ", ".join(str(family.backbone) for family in one.families.values())
            raise ValueError(f"`{one.method.name}` is built on {known}, and `backbone` is a `{model_type}`.")
    family = families[0]
    if parts.kind == "graph":
        return family.load(family.graph_model)
    names = family.models[auto_class_of(parts.kind)]
    # The second class, if any, answers prompts.
    return family.load(names[-1 if is_prompted(parts.settings) else 0])


def is_prompted(settings: Mapping[str, Any]) -> bool:
    given = [name for name in ("template", "verbalizer") if settings.get(name) is not None]
    if len(given) == 1:
        raise ValueError(
            f"`{given[0]}` alone is not enough for prompts. Set `template`, such as '{{text}} It was {{mask}}.', and "
            """`verbalizer`, such as '{"negative": "bad", "positive": "good"}'."""
        )
    return bool(given)


def _plain_model(parts: Parts, has_head: bool = False):
    """The backbone with a fresh head, unless it is a trained classifier."""
    import torch
    import transformers

    if parts.kind == "graph":
        family = graph_family()
        network, rest = graph_network(parts.backbone, [parts.rows, *parts.others], parts.settings)
        return family.load(family.graph_model).from_backbone(network, **family.plain, **parts.labels, **rest)
    settings = dict(parts.settings)
    if "dropout" in settings:
        settings = _with_dropout(settings, set(dir(_config_of(parts))))
    auto_class = getattr(transformers, auto_class_of(parts.kind))
    model = auto_class.from_pretrained(
        parts.backbone, dtype="float32", ignore_mismatched_sizes=True, **parts.labels, **settings
    )
    head = getattr(model, "classifier", None)
    if isinstance(head, torch.nn.Linear) and not has_head:
        # A head with the same number of labels would be kept; other methods have a fresh one.
        torch.nn.init.normal_(head.weight, std=getattr(model.config, "initializer_range", 0.02))
        torch.nn.init.zeros_(head.bias)
    return model


def _model_of_words(one: Chosen, parts: Parts):
    """A model without a backbone, for the words of the rows."""
    import torch

    from hf_memaug.data.words import read_word_vectors

    family, words = next(iter(one.families.values())), parts.processor
    config_class = family.load(family.config)
    found = {"vocab_size": len(words), "sentence_pairs": "text_pair" in parts.rows.column_names}
    if parts.kind == REPLIES:
        found = {name: getattr(words, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
        found |= {"vocab_size": len(words), "decoder_start_token_id": words.bos_token_id}
    vectors = {}
    if parts.vectors is not None:
        try:
            vectors = read_word_vectors(parts.vectors, words.get_vocab())
        except (OSError, ValueError) as error:
            raise UsageError(f"`--vectors` {parts.vectors} cannot be read: {error}") from None
        if not vectors:
            raise UsageError(f"`--vectors` {parts.vectors} has none of the {len(words)} words. Use another file.")
        found["embedding_size"] = len(next(iter(vectors.values())))
    known = {one.name for one in dataclasses.fields(config_class)} | {"id2label", "label2id"}
    given = {name: value for name, value in {**found, **parts.labels}.items() if name in known}
    model_class = family.load(family.models[auto_class_of(parts.kind)][0])
    model = model_class(config_class(**{**given, **parts.settings}))
    with torch.no_grad():
        for word, vector in vectors.items():
            model.get_input_embeddings().weight[words.get_vocab()[word]] = vector
    return model


def _with_dropout(settings: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    """The settings, with `dropout` under the name that the configuration has for it."""
    settings = dict(settings)
    if "dropout" not in settings or "dropout" in known:
        return settings
    value = settings.pop("dropout")
    name = next((name for name in DROPOUT_FIELDS if name in known), None)
    if name is None and value:
        raise UsageError(f"`--dropout` is {value}, and the model has no dropout. Use 0.")
    return settings if name is None else {name: value, **settings}


def processor_of(one: Chosen, backbone: str, rows: DomainDataset, general: str | None = None, settings=None):
    """
    The backbone's tokenizer or image processor; a tokenizer of the words of the rows for a method without a backbone;
    None for graphs. With a `template` in `settings`, the tokenizer writes every text into it.
    """
    kind = kind_of(rows)
    if one.makes_words:
        from hf_memaug.data import word_tokenizer

        texts = (text for name in ("text", "text_pair") if name in rows.column_names for text in rows[name])
        return word_tokenizer(texts, end_of_text=kind == REPLIES)
    name, option = (general or "", "--general") if one.method.name == FINE_TUNING else (backbone, "--backbone")
    found = checkpoint_processor(name, kind, option)
    template = (settings or {}).get("template") if one.families else None
    if template is None:
        return found
    from hf_memaug.data import prompt_tokenizer

    try:
        return prompt_tokenizer(found, template)
    except ValueError as error:
        raise UsageError(in_options(str(error), ["template"])) from None


def checkpoint_processor(name: str, kind: str, option: str = "--backbone"):
    """The tokenizer or image processor of a checkpoint; None for graphs."""
    if kind != TAGS:
        return load_processor(name, kind, option)
    from hf_memaug.data.spans import reading_words

    return reading_words(load_processor(name, kind, option, add_prefix_space=True))


def _config_of(parts: Parts):
    return small_model(parts.rows)[0].config if parts.backbone == SMALL else read_config(parts.backbone, "--backbone")


def _check_inputs(config, backbone: str, kind: str) -> None:
    """Raises an error for a backbone that reads images where the rows are texts, and the other way round."""
    from transformers import MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING

    rows, others = ("images", "texts") if kind == "image" else ("texts", "images")
    classes = {"texts": MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, "images": MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING}
    known = {name: type(config) in mapping for name, mapping in classes.items()}
    if known[others] and not known[rows]:
        said = f"`--backbone` {backbone!r} is a `{config.model_type}`, which reads {others}, and the rows are {rows}."
        raise UsageError(f"{said} Use an encoder of {rows}.")


def check_checkpoints(job: Job, rows: DomainDataset) -> Any:
    """The processor of a job. Raises an error if a checkpoint or its processor is missing. Reads no weights."""
    one, processor = method_of(job), None
    if kind_of(rows) == "graph" or one.makes_words or (job.kind == "continual" and has_history(job.backbone)):
        return None
    if job.backbone != SMALL:
        _check_inputs(read_config(job.backbone, "--backbone"), job.backbone, kind_of(rows))
        processor = processor_of(one, job.backbone, rows, job.general, split_settings(job)[0])
    if one.method.needs_general:
        read_config(job.general or "", "--general")
    return processor


def check_model(job: Job, rows: DomainDataset) -> None:
    """Raises an error if a checkpoint or its processor is missing, or if the settings do not fit. Reads no weights."""
    one, (settings, _) = method_of(job), split_settings(job)
    backbone, general, max_length = job.backbone, job.general, job.protocol["max_length"]
    if kind_of(rows) == "graph" or one.makes_words:
        return
    processor = check_checkpoints(job, rows)
    parts = Parts(backbone, rows, processor, general, settings)
    most = None if max_length is None else getattr(_config_of(parts), "max_position_embeddings", None)
    if max_length is not None and most is not None and max_length > most:
        raise UsageError(
            f"`--max-length` is {max_length}, and `--backbone` has places for {most} tokens. Use {most} or less."
        )
    try:
        # What the model class says of the pair of backbone and settings.
        check = getattr(model_class_of(one, parts), "check_backbone", None) if one.families else None
        if check is not None:
            asks = {"tokenizer": processor} if is_prompted(settings) else {}
            asks |= {"general": general} if one.method.needs_general else {}
            check(_config_of(parts) if backbone == SMALL else backbone, **asks, **parts.labels, **settings)
    except (StrictDataclassError, ValueError) as error:
        # A strict configuration wraps its errors in the name of the validator.
        names = ("general", "backbone", *settings)
        said = in_options(str(error.__cause__ or error), names, domain="--backbone")
        raise UsageError(f"`{one.name}`: {said}") from None


def parameter_counts(model) -> dict[str, int]:
    return {"parameters": model.num_parameters(), "trainable": model.num_parameters(only_trainable=True)}


def has_history(backbone: str) -> bool:
    """Whether a checkpoint was trained on one domain after another, so that its model stays as it is."""
    from hf_memaug.configuration.configuration_graph_network import is_network
    from hf_memaug.training.continual.record import RECORD_FILE

    if backbone == SMALL or is_network(backbone):
        return False
    if (Path(backbone) / RECORD_FILE).is_file():
        return True
    try:
        facts = getattr(read_config(backbone), "run_facts", None)
    except InferenceError:
        return False
    return "continual" in (facts or {})
