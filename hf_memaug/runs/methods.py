# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
The table of methods: how each model is built, and which trainer trains it. A new method is one row.

A name is a row (`mil`, `hma`), an algorithm on the plain model (`coral`), or both (`hma+coral`, `coral+memory`); or a
row with settings of its own under a name of its own (`gmoe-linear`).
"""

import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hf_memaug.data import DomainDataset
from hf_memaug.runs.errors import UsageError
from hf_memaug.runs.graphs import SMALL_NETWORK, graph_model
from hf_memaug.runs.rows import in_words, kind_of
from hf_memaug.runs.settings import Setting, graph_settings, model_settings, trainer_settings
from hf_memaug.runs.small_models import SMALL, refresh_head, small_model
from hf_memaug.runs.tasks import NOT_FOR_TASKS, QUESTIONS, REPLIES, TAGS, TASKS
from hf_memaug.suggestions import nearest
from hf_memaug.training.algorithms import ALGORITHMS
from hf_memaug.training.sweep.plan import file_name

ERM = "erm"


@dataclass(frozen=True)
class Parts:
    """
    What a model is built of.

    Args:
        backbone, general: checkpoints.
        rows: those to train on.
        processor: the tokenizer or image processor; of graphs None.
        settings: fields of the configuration.
        others: rows that are selected and tested on, whose graphs may have values that those trained on have not.
        vectors: a file of word vectors.
    """

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
    def labels(self) -> dict[str, dict]:
        if not self.rows.label_names:
            return {}
        names = dict(enumerate(self.rows.label_names))
        return {"id2label": names, "label2id": {name: index for index, name in names.items()}}


def auto_class_of(kind: str) -> str:
    """The class of transformers that loads a model of texts, images, or of another task."""
    if kind in TASKS:
        return TASKS[kind].auto_class
    return "AutoModelForImageClassification" if kind == "image" else "AutoModelForSequenceClassification"


def _general(parts: Parts):
    return _plain(dataclasses.replace(parts, backbone=parts.general))


def _plain(parts: Parts):
    import transformers

    if parts.kind == "graph":
        return graph_model(parts, augmentation="none")
    auto_class = getattr(transformers, auto_class_of(parts.kind))
    model = auto_class.from_pretrained(parts.backbone, dtype="float32", ignore_mismatched_sizes=True, **parts.labels)
    refresh_head(model)
    return model


def _kv_memory(parts: Parts):
    from transformers import AutoConfig

    from hf_memaug.registry import family_on

    family = family_on(AutoConfig.from_pretrained(parts.backbone).model_type)
    # With a template it is prompted, and reads its answer at the mask.
    classifies, prompted = family.models["AutoModelForSequenceClassification"]
    asks = {"tokenizer": parts.processor} if _is_prompted(parts.settings) else {}
    model_class = family.load(prompted if asks else classifies)
    return model_class.from_backbone(parts.backbone, dtype="float32", **parts.labels, **asks, **parts.settings)


def _check_kv_memory(config, parts: Parts) -> None:
    from hf_memaug.registry import family_on

    family, is_prompted = family_on(config.model_type), _is_prompted(parts.settings)
    if is_prompted:
        _check_verbalizer(parts)
    labels = parts.labels if is_prompted else {}
    made = family.load(family.config).from_backbone_config(config, **labels, **parts.settings)
    made.check_heads()
    if not is_prompted:
        made.check_pooling()


def _check_verbalizer(parts: Parts) -> None:
    from hf_memaug.configuration.prompting import normalise_verbalizer, verbalizer_token_ids

    words, labels = normalise_verbalizer(parts.settings["verbalizer"]), parts.rows.label_names
    if set(words) != set(labels):
        raise ValueError(
            f"`verbalizer` has words for {list(words)}, and the labels of the rows are {list(labels)}. Give each of "
            "them its words."
        )
    if parts.processor is not None:
        verbalizer_token_ids(words, parts.processor)


def _check_mil(config, parts: Parts) -> None:
    _check_kv_memory(config, parts)
    if parts.settings.get("memory_weight") == 0:
        raise ValueError("`memory_weight` is 0: the memory is not read, and learns nothing. Give it a weight.")


def _is_prompted(settings: Mapping[str, Any]) -> bool:
    given = [name for name in ("template", "verbalizer") if settings.get(name) is not None]
    if len(given) == 1:
        raise ValueError(
            f"`{given[0]}` alone prompts nothing. Give `template`, such as '{{text}} It was {{mask}}.', together with "
            """`verbalizer`, such as '{"negative": "bad", "positive": "good"}'."""
        )
    return bool(given)


def _hma(parts: Parts):
    from hf_memaug import HMAForImageClassification, HMAForSequenceClassification

    if parts.kind == "graph":
        return graph_model(parts)
    model_class = HMAForImageClassification if parts.kind == "image" else HMAForSequenceClassification
    return model_class.from_backbone(parts.backbone, dtype="float32", **parts.labels, **parts.settings)


def _check_hma(config, parts: Parts) -> None:
    from hf_memaug import HMAConfig

    made = HMAConfig.from_backbone_config(config, **parts.labels, **parts.settings)
    # How wide a network of timm is, it says itself when it is built.
    if config.model_type != "timm_wrapper":
        made.check_memory()


def _gmoe(parts: Parts):
    from hf_memaug import ViTGMoEForImageClassification

    return ViTGMoEForImageClassification.from_vit(parts.backbone, dtype="float32", **parts.labels, **parts.settings)


def _check_gmoe(config, parts: Parts) -> None:
    from hf_memaug import ViTGMoEConfig

    ViTGMoEConfig.from_vit_config(config, **parts.labels, **parts.settings)


def _check_gmap(config, parts: Parts) -> None:
    from hf_memaug import GMAPConfig
    from hf_memaug.modeling.modeling_gmap_encoders import check_pair

    if getattr(config, "model_type", None) == GMAPConfig.model_type:
        raise ValueError(
            "`domain` is a G-MAP model already, pre-trained with its general encoder, which is in it. Train it by "
            "`erm`, without `general`."
        )
    if parts.backbone != SMALL:
        check_pair(parts.general, parts.backbone, GMAPConfig, parts.settings, {})


def _gmap(parts: Parts):
    import hf_memaug

    model_class = getattr(hf_memaug, auto_class_of(parts.kind).replace("AutoModel", "GMAP"))
    return model_class.from_general_and_domain(
        parts.general, parts.backbone, dtype="float32", **parts.labels, **parts.settings
    )


def _memory_rnn(parts: Parts):
    import torch

    from hf_memaug import MemoryRNNConfig, MemoryRNNForConditionalGeneration, MemoryRNNForSequenceClassification
    from hf_memaug.data.words import read_word_vectors

    words = parts.processor
    if parts.kind == REPLIES:
        model_class = MemoryRNNForConditionalGeneration
        named = {name: getattr(words, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
        of_task = {**named, "decoder_start_token_id": words.bos_token_id}
    else:
        model_class = MemoryRNNForSequenceClassification
        of_task = {"sentence_pairs": "text_pair" in parts.rows.column_names}
    given = {"vocab_size": len(words), **of_task, **parts.labels, **parts.settings}
    if parts.vectors is None:
        return model_class(MemoryRNNConfig(**given))
    words = words.get_vocab()
    try:
        vectors = read_word_vectors(parts.vectors, words)
    except (OSError, ValueError) as error:
        raise UsageError(f"`--vectors` {parts.vectors} cannot be read: {error}") from None
    if not vectors:
        raise UsageError(f"`--vectors` {parts.vectors} has none of the {len(words)} words. Give another file.")
    given.setdefault("embedding_size", len(next(iter(vectors.values()))))
    model = model_class(MemoryRNNConfig(**given))
    with torch.no_grad():
        for word, vector in vectors.items():
            model.get_input_embeddings().weight[words[word]] = vector
    return model


def _words(rows: DomainDataset):
    from hf_memaug.data import word_tokenizer

    texts = (text for name in ("text", "text_pair") if name in rows.column_names for text in rows[name])
    return word_tokenizer(texts, end_of_text=kind_of(rows) == REPLIES)


@dataclass(frozen=True)
class Method:
    """
    Args:
        build: `Parts` to a model.
        what: in a few words.
        reads: "text", "image", "graph" and other tasks, whichever it can do.
        trainer: a name of `settings.TRAINERS`.
        family: the row of the registry whose configuration it takes settings of, if any.
        words: for one without a backbone, the rows to a tokenizer.
        general: whether it needs a general encoder beside the backbone.
        grows: verbs by which its models can be made larger.
        check: the backbone's configuration and `Parts` to a refusal, if any, before a weight is read.
    """

    build: Callable[[Parts], Any]
    what: str
    reads: tuple[str, ...] = ("text",)
    trainer: str = "domain"
    family: str | None = None
    words: Callable[..., Any] | None = None
    general: bool = False
    grows: tuple[str, ...] = ()
    check: Callable[[Any, Parts], None] | None = None


METHODS: dict[str, Method] = {
    ERM: Method(_plain, "the plain backbone", reads=("text", "image", "graph", TAGS, QUESTIONS)),
    "+memory": Method(
        _kv_memory,
        "a key-value memory, trained by the task loss",
        family="roberta_kv_memory",
        grows=("grow_memory",),
        check=_check_kv_memory,
    ),
    "mil": Method(
        _kv_memory,
        "a memory learned across domains, then held fixed",
        ("text",),
        "bilevel",
        "roberta_kv_memory",
        check=_check_mil,
    ),
    "hma": Method(
        _hma,
        "real and synthetic memory on the feature",
        reads=("text", "image", "graph"),
        family="hma",
        check=_check_hma,
    ),
    "gmoe": Method(
        _gmoe, "sparse experts in a vision transformer", reads=("image",), family="vit_gmoe", check=_check_gmoe
    ),
    "gmap": Method(
        _gmap,
        "a domain encoder that reads a general one",
        ("text", TAGS, QUESTIONS),
        family="gmap",
        general=True,
        check=_check_gmap,
    ),
    "fine-tuning": Method(
        _general, "the general encoder alone, beside gmap and dapt", ("text", TAGS, QUESTIONS), general=True
    ),
    "memory-rnn": Method(
        _memory_rnn,
        "a recurrent network with a bank of slots",
        ("text", REPLIES),
        family="memory_rnn",
        words=_words,
        grows=("grow_memory", "grow_vocabulary", "grow_hidden"),
    ),
}
# The papers call the plain backbone by its own name.
ALIASES = {"vit": ERM, "backbone": ERM, "dapt": ERM}
# They take a batch apart by its rows, and a batch of graphs is one of nodes.
NOT_FOR_GRAPHS = ("mixup", "mldg")


@dataclass(frozen=True)
class Chosen:
    """A method by its name: the row of the table and the algorithm that it is trained with."""

    name: str
    method: Method
    algorithm: str

    @property
    def row(self) -> str:
        return next(name for name, method in METHODS.items() if method is self.method)

    @property
    def is_variant(self) -> bool:
        """Whether it is a row of the table with settings of its own, under a name of its own."""
        return self.name.startswith(f"{self.row}-")

    def fields_with(self, trainer: str) -> dict[str, Setting]:
        """What may be set for it, where that trainer trains it."""
        found = dict(trainer_settings(trainer))
        if self.method.family is not None:
            found = {**model_settings(self.method.family), **found}
        return {**graph_settings(), **found} if "graph" in self.method.reads else found

    @property
    def fields(self) -> dict[str, Setting]:
        """What may be set for it."""
        return self.fields_with(self.method.trainer)

    def configuration(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Of its settings, those that shape the model."""
        trainer = trainer_settings(self.method.trainer)
        return {name: value for name, value in settings.items() if name not in trainer}

    def training(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Of its settings, those of the trainer."""
        trainer = trainer_settings(self.method.trainer)
        return {name: value for name, value in settings.items() if name in trainer}


def chosen(name: str) -> Chosen:
    """The method called `name`, or an error that names the nearest."""
    plain = ALIASES.get(name, name)
    if plain in METHODS:
        return Chosen(name, METHODS[plain], ERM)
    if plain in ALGORITHMS:
        return Chosen(name, METHODS[ERM], plain)
    for row, method in METHODS.items():
        # `coral+memory`, as the tables write it, and `hma+coral`.
        algorithm = plain.removesuffix(row) if row.startswith("+") else plain.removeprefix(f"{row}+")
        if algorithm in ALGORITHMS and algorithm != plain and method.trainer == "domain":
            return Chosen(name, method, algorithm)
    for row in sorted(METHODS, key=len, reverse=True):
        if plain.startswith(f"{row}-"):
            return Chosen(name, METHODS[row], ERM)
    names = [*METHODS, *ALGORITHMS, *(f"{row}+{one}" for row in ("hma", "gmoe", "gmap") for one in ALGORITHMS)]
    near = nearest(name, [*names, *(f"{one}+memory" for one in ALGORITHMS)])
    hint = f" Did you mean {near!r}?" if near else ""
    raise UsageError(
        f"There is no method {name!r}.{hint} There are {', '.join(METHODS)}; the algorithms "
        f"{', '.join(one for one in ALGORITHMS if one != ERM)}; and both together, such as hma+coral or coral+memory."
    )


def check_variants(several: Mapping[str, Chosen], own: Mapping[str, Mapping]) -> None:
    """Refuses a name of its own that has no settings of its own: it would be its row a second time, or is a slip."""
    for name, one in several.items():
        if one.is_variant and not own.get(name):
            raise UsageError(
                f"There is no method {name!r}. As a variant of {one.row!r} it needs settings of its own, such as "
                f"`--{name}.learning-rate 1e-4`, or a line of `method_settings` in a recipe."
            )


def check_vectors(vectors: str | None, one: Chosen) -> None:
    if vectors is None:
        return
    if one.method.words is None:
        raise UsageError(f"`--vectors` are for memory-rnn, and `--method` is {one.name!r}: leave them out.")
    check_file_of_vectors(vectors)


def check_file_of_vectors(vectors: str | None) -> None:
    if vectors is not None and not Path(vectors).is_file():
        raise UsageError(
            f"`--vectors` {vectors} is no file. Give a text file with a word and its numbers in each line."
        )


def check_general(general: str | None, one: Chosen) -> None:
    """Of one method alone: refuses a general encoder that nothing would read."""
    if general is not None and not one.method.general:
        readers = " and ".join(name for name, row in METHODS.items() if row.general)
        raise UsageError(f"`--general` is for {readers}, and `--method` is {one.name!r}: leave it out.")


def check_growth(one: Chosen, strategy: str, verbs: Sequence[str]) -> None:
    """Refuses a strategy that makes the model larger, for one that cannot grow."""
    if not set(verbs) <= set(one.method.grows):
        fitting = " or ".join(name for name, row in METHODS.items() if set(verbs) <= set(row.grows))
        raise UsageError(
            f"`--strategies` has {strategy!r}, which makes a model larger, and `{one.name}` does not grow so. Choose "
            f"`--method` {fitting}, or another strategy, such as ewc."
        )


def divide_strategy_options(settings: dict[str, dict], own: Mapping[str, Mapping]) -> None:
    """
    Gives each strategy those of the `strategy_kwargs` that it has. What none of them has is refused, and so is what one
    was given by name and has not.

    Args:
        settings: of each strategy; changed in place.
        own: the settings that were given for one strategy, by its name.
    """
    from hf_memaug.training.arguments import checked_options
    from hf_memaug.training.continual import STRATEGIES

    known = {name: None for strategy in settings for name in STRATEGIES[strategy].options}
    for strategy, several in settings.items():
        if not several.get("strategy_kwargs"):
            continue
        of = STRATEGIES[strategy]
        is_own = "strategy_kwargs" in own.get(strategy, ())
        try:
            given = checked_options("strategy", strategy, several["strategy_kwargs"], of.options if is_own else known)
            several["strategy_kwargs"] = {name: value for name, value in given.items() if name in of.options}
            of.check({**of.options, **several["strategy_kwargs"]})
        except ValueError as error:
            said = (
                str(error).replace("`strategy_kwargs`", "`--strategy-kwargs`").replace("`strategy=", "`--strategies ")
            )
            raise UsageError(said) from None


def check_kind(one: Chosen, kind: str) -> None:
    """Refuses a model for what it cannot read."""
    if kind not in one.method.reads:
        fitting = [name for name, row in METHODS.items() if kind in row.reads]
        own, rows = in_words(one.method.reads[0]), in_words(kind)
        raise UsageError(f"`{one.name}` is for {own}, and the rows are {rows}. Choose {fitting}.")


def check_method(one: Chosen, kind: str, sources: int, general: str | None) -> None:
    """Refuses what would fail in every job."""
    check_kind(one, kind)
    if kind in TASKS and one.algorithm in NOT_FOR_TASKS:
        others = [name for name in ALGORITHMS if name not in NOT_FOR_TASKS]
        raise UsageError(f"`{one.algorithm}` needs one label for each row, and the rows are {kind}. Choose {others}.")
    if kind == "graph" and one.algorithm in NOT_FOR_GRAPHS:
        others = [name for name in ALGORITHMS if name not in NOT_FOR_GRAPHS]
        raise UsageError(f"`{one.algorithm}` mixes or parts the rows of a batch, which graphs do not. Choose {others}.")
    if sources < 2 and (ALGORITHMS[one.algorithm].compares_domains or one.method.trainer == "bilevel"):
        raise UsageError(f"`{one.name}` compares domains, and there is one alone to train on. Choose another method.")
    if one.method.general and general is None:
        raise UsageError(
            f"`{one.name}` reads a general encoder: give it as `--general`. (A backbone that was pre-trained with one "
            "has it, and is trained by `erm`.)"
        )


def local_backbone(name: str, rows: DomainDataset, target: str, folder: Path) -> str:
    """`name`, or for "small" a checkpoint that is made in the run folder: untrained, with the words of these rows."""
    if name != SMALL:
        return name
    if kind_of(rows) == "graph":
        return SMALL_NETWORK
    place = folder / "encoders" / file_name(SMALL, target)
    if not place.is_dir():
        half = place.with_name(f".{place.name}.{os.getpid()}")
        shutil.rmtree(half, ignore_errors=True)
        model, processor = small_model(rows)
        model.save_pretrained(half)
        processor.save_pretrained(half)
        try:
            os.replace(half, place)
        except OSError:
            # Another job has made the same one meanwhile.
            shutil.rmtree(half, ignore_errors=True)
    return str(place)
