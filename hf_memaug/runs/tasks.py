# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
The tasks besides classification: several labels, numbers, tags, questions and replies. `TASKS` says how their rows are
read, tokenized and scored.
"""

import contextlib
import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hf_memaug.data import DomainDataset, load_domains, spans
from hf_memaug.data.readers import columns_of
from hf_memaug.iob2 import entities
from hf_memaug.messages import did_you_mean, listed, some_rows
from hf_memaug.runs.errors import UsageError

CLASSES, TAGS, QUESTIONS, REPLIES = "classes", "tags", "questions", "replies"
LABELS, NUMBERS = "labels", "numbers"
# Of texts, for plain models trained with erm.
PLAIN_TASKS = (LABELS, NUMBERS)


def _read_tags(where: Any, source: Mapping[str, Any], shared: dict, labels: Sequence[str] | None) -> DomainDataset:
    rows = load_domains(where, text=None, label=None, **shared)
    columns = _columns(rows, source, ("tokens", "tags"))
    names = _names_of_ids(where, source["tags"])
    if names is not None:
        columns["tags"] = [[names[tag] if isinstance(tag, int) else tag for tag in tags] for tags in columns["tags"]]
    rows = DomainDataset(columns)
    spans.check_tags(rows, "tags")
    empty = [row for row, words in enumerate(columns["tokens"]) if not words]
    if empty:
        raise ValueError(f"`--tokens` {source['tokens']!r} is empty in {some_rows(empty)} of `--data`. Leave them out.")
    found = spans.tag_names(rows, "tags")
    if labels is None:
        return DomainDataset(columns, found)
    unknown = [tag for tag in found if tag not in labels]
    if unknown and unknown != ["O"]:
        raise ValueError(
            f"`--data` has the tags {listed(unknown)}, missing from those of `checkpoint`: {listed(labels)}."
        )
    return DomainDataset(columns, labels)


def _names_of_ids(where: Any, column: str) -> list[str] | None:
    """The names of tags that a dataset of the hub has as numbers."""
    if isinstance(where, Mapping):
        return next(filter(None, (_names_of_ids(one, column) for one in where.values())), None)
    feature = (getattr(where, "features", None) or {}).get(column)
    return getattr(getattr(feature, "feature", None), "names", None)


def _read_questions(where: Any, source: Mapping[str, Any], shared: dict, labels: Sequence[str] | None) -> DomainDataset:
    rows = load_domains(where, text=None, label=None, **shared)
    columns = _columns(rows, source, ("question", "context", "answers"))
    for name in ("question", "context"):
        wrong = [row for row, text in enumerate(columns[name]) if not isinstance(text, str) or not text.strip()]
        if wrong:
            raise ValueError(f"`--{name}` {source[name]!r} has no text in {some_rows(wrong)} of `--data`. Fill it in.")
    spans.check_questions(DomainDataset(columns))
    # As pairs of texts, by which rows are compared.
    named = {"text": columns["question"], "text_pair": columns["context"], "answers": columns["answers"]}
    return DomainDataset({**named, "domain": columns["domain"]}, [])


def _read_replies(where: Any, source: Mapping[str, Any], shared: dict, labels: Sequence[str] | None) -> DomainDataset:
    rows = load_domains(where, text=source["text"], text_pair=source["text_pair"], label=None, **shared)
    return DomainDataset({name: rows[name] for name in ("text", "text_pair", "domain")}, [])


def _read_labels(where: Any, source: Mapping[str, Any], shared: dict, labels: Sequence[str] | None) -> DomainDataset:
    columns, cells = _texts_with_values(where, source, shared)
    found, names = [_labels_in(cell) for cell in cells], _names_of_ids(where, source["label"])
    if names is not None:
        found = [{names[int(label)] for label in of_row} for of_row in found]
    every = sorted(set().union(*found))
    names = every if labels is None else list(labels)
    if len(names) < 2 or not set(every) <= set(names):
        raise ValueError(f"`--label` {source['label']!r} has {listed(every)}, not two or more of the model's labels.")
    return DomainDataset({**columns, "label_set": [[float(name in one) for name in names] for one in found]}, names)


def _labels_in(cell: Any) -> set[str]:
    """The labels of `a|b`, of a list, or of a list in JSON. An empty cell has none."""
    with contextlib.suppress(AttributeError, ValueError):
        cell = json.loads(cell) if cell.lstrip().startswith("[") else cell
    several = cell if isinstance(cell, (list, tuple)) else [] if cell is None or cell != cell else str(cell).split("|")
    return {str(one).strip() for one in several} - {""}


def _read_numbers(where: Any, source: Mapping[str, Any], shared: dict, labels: Sequence[str] | None) -> DomainDataset:
    columns, cells = _texts_with_values(where, source, shared)
    numbers = []
    for row, cell in enumerate(cells):
        with contextlib.suppress(TypeError, ValueError):
            numbers.append(float(cell))
        if len(numbers) == row or not math.isfinite(numbers[row]):
            raise ValueError(f"`--label` {source['label']!r} holds {cell!r} in row {row}, which is no number. Fix it.")
    return DomainDataset({**columns, "number": numbers}, [source["label"]])


def _texts_with_values(where: Any, source: Mapping[str, Any], shared: dict) -> tuple[dict[str, list], list]:
    texts = {name: source[name] for name in ("text", "text_pair")}
    rows = load_domains(where, **texts, label=None, values=source["label"], **shared)
    kept = [name for name in ("text", "text_pair", "domain") if name in rows.column_names]
    return {name: rows[name] for name in kept}, rows["values"]


def _columns(rows: DomainDataset, source: Mapping[str, Any], names: Sequence[str]) -> dict[str, list]:
    """These columns, under the options' names, and `domain`."""
    for name in names:
        if source[name] not in rows.column_names:
            raise ValueError(
                f"`--{name}` is {source[name]!r}, but `--data` has no such column. "
                f"{did_you_mean(source[name], rows.column_names)}"
            )
    return {**{name: rows[source[name]] for name in names}, "domain": rows["domain"]}


def _prepare_texts(rows: DomainDataset, tokenizer, max_length: int | None, column: str) -> DomainDataset:
    return rows.tokenize(tokenizer, max_length).with_columns(labels=rows[column])


def _prepare_tags(rows: DomainDataset, tokenizer, max_length: int | None) -> DomainDataset:
    length = limit_of(tokenizer, max_length, spans.LONGEST_TAGGED)
    encoded = spans.tokenize_tags(rows, tokenizer, rows.label_names, length, column="tags")
    return DomainDataset({**columns_of(encoded), "domain": rows["domain"]}, rows.label_names)


def _prepare_questions(rows: DomainDataset, tokenizer, max_length: int | None) -> DomainDataset:
    length = limit_of(tokenizer, max_length, spans.LONGEST_QUESTION)
    asked = [{"question": row["text"], "context": row["text_pair"], "answers": row["answers"]} for row in rows]
    features = spans.tokenize_questions(asked, tokenizer, length, length // 3)
    for one in features:
        # What the score needs, and no model takes.
        one |= {"context": asked[one["row"]]["context"], "references": asked[one["row"]]["answers"]["text"]}
    domains = rows["domain"]
    return DomainDataset({**columns_of(features), "domain": [domains[one["row"]] for one in features]}, [])


def limit_of(tokenizer, max_length: int | None, most: int) -> int:
    return max_length if max_length is not None else min(most, tokenizer.model_max_length)


def _entity_counts(rows: DomainDataset) -> dict[str, dict[str, int]]:
    """How many entities of each type the domains have."""
    found: dict[str, Counter] = {name: Counter() for name in rows.domains}
    for tags, domain in zip(rows["tags"], rows["domain"], strict=True):
        found[domain].update(kind for kind, _, _ in entities(tags))
    types = sorted({kind for counts in found.values() for kind in counts})
    return {name: {kind: counts[kind] for kind in types} for name, counts in found.items()}


@dataclass(frozen=True)
class Task:
    """
    Args:
        metrics: what its models can be selected by, the default first.
        columns: the options that name its columns.
        auto_class: of transformers, for the plain model and for a checkpoint.
        what: in a few words, where a score is explained.
        read: `(where, source, shared, labels)` to rows.
        prepare: `(rows, tokenizer, max_length)` to rows for a trainer.
        counts: rows to what data.json says of each domain beside the number of rows.
        problem_type: that of the configuration of its models.
    """

    metrics: tuple[str, ...]
    columns: tuple[str, ...]
    auto_class: str
    what: str
    read: Callable
    prepare: Callable
    counts: Callable = lambda rows: {name: {} for name in rows.domains}
    problem_type: str | None = None


TASKS: dict[str, Task] = {
    LABELS: Task(
        metrics=("macro_f1", "micro_f1"),
        columns=("text", "text_pair", "label"),
        auto_class="AutoModelForSequenceClassification",
        what="macro_f1 is the mean over the labels, micro_f1 that of all labels together",
        read=_read_labels,
        prepare=partial(_prepare_texts, column="label_set"),
        problem_type="multi_label_classification",
    ),
    NUMBERS: Task(
        metrics=("r2", "pearson"),
        columns=("text", "text_pair", "label"),
        auto_class="AutoModelForSequenceClassification",
        what="r2 is the share of the variance that is predicted, pearson the correlation",
        read=_read_numbers,
        prepare=partial(_prepare_texts, column="number"),
        problem_type="regression",
    ),
    TAGS: Task(
        metrics=("f1", "accuracy"),
        columns=("tokens", "tags"),
        auto_class="AutoModelForTokenClassification",
        what="f1 is that of whole entities, accuracy that of each word's tag",
        read=_read_tags,
        prepare=_prepare_tags,
        counts=_entity_counts,
    ),
    QUESTIONS: Task(
        metrics=("f1", "exact_match"),
        columns=("question", "context", "answers"),
        auto_class="AutoModelForQuestionAnswering",
        what="f1 is that of the words of an answer, exact_match counts answers that are right to the word",
        read=_read_questions,
        prepare=_prepare_questions,
    ),
    REPLIES: Task(
        metrics=("accuracy",),
        columns=("text", "text_pair"),
        auto_class="AutoModelForSeq2SeqLM",
        what="accuracy is that of each word of a reply, after those that were to be said before",
        read=_read_replies,
        prepare=partial(DomainDataset.tokenize, replies=True),
    ),
}
# They use the loss of each row, and rows of these tasks have a label for each token, or two positions.
NOT_FOR_TASKS = ("irm", "vrex", "group_dro", "mixup", "fishr")


def kind_of(rows: DomainDataset) -> str:
    """What the rows are: "text", "image" or "graph", each with a class, or one of `TASKS`."""
    columns = rows.column_names
    found = next((kind for kind in ("image", "graph") if kind in columns), None)
    if found is not None or "label" in columns:
        return found or "text"
    others = {LABELS: "label_set", NUMBERS: "number", TAGS: "tags", QUESTIONS: "answers", REPLIES: "text_pair"}
    return next((kind for kind, column in others.items() if column in columns), "text")


def task_of(kind: str, config: Any) -> str:
    """The task of a checkpoint that reads rows of `kind`."""
    problem = getattr(config, "problem_type", None) or ("regression" if config.num_labels == 1 else None)
    return next((task for task in PLAIN_TASKS if kind == "text" and TASKS[task].problem_type == problem), kind)


def in_words(kind: str) -> str:
    """The plural of a kind of rows: `texts`, `tags`."""
    return kind if kind in TASKS else f"{kind}s"


def auto_class_of(kind: str) -> str:
    """The class of transformers that loads a model for a kind of rows."""
    if kind in TASKS:
        return TASKS[kind].auto_class
    return "AutoModelForImageClassification" if kind == "image" else "AutoModelForSequenceClassification"


def check_task(options: Any) -> None:
    """An unknown task is an error, and so is the name of a column that the task does not read."""
    if options.task not in (CLASSES, *TASKS):
        raise UsageError(f"`--task` is {options.task!r}. {did_you_mean(options.task, (CLASSES, *TASKS))}")
    columns = {name: task.columns for name, task in TASKS.items()}
    columns[CLASSES] = ("smiles", "text", "text_pair", "label")
    for one in dataclasses.fields(options):
        readers = [task for task, names in columns.items() if one.name in names]
        if readers and options.task not in readers and getattr(options, one.name) != one.default:
            raise UsageError(
                f"`--{one.name.replace('_', '-')}` is a column of {' or '.join(readers)}, and the task is "
                f"{options.task}. Leave it out, or choose another `--task`."
            )


def trainer_of(kind: str, continual: bool = False) -> type:
    """The trainer for a kind of rows, or the one for domain after domain."""
    from hf_memaug.training import ContinualTrainer, DomainTrainer, question_trainer

    of_kind = {QUESTIONS: ("QuestionTrainer", "ContinualQuestionTrainer"), TAGS: ("TagTrainer", "ContinualTagTrainer")}
    if kind in of_kind:
        return getattr(question_trainer, of_kind[kind][continual])
    return ContinualTrainer if continual else DomainTrainer


def with_all_tags(*splits: DomainDataset | None) -> tuple[Any, ...]:
    """The splits of tagged rows, with the tags of all splits as labels."""
    names = spans.tag_names(({"tags": part.label_names} for part in splits if part is not None), "tags")
    return tuple(part and DomainDataset({name: part[name] for name in part.column_names}, names) for part in splits)


def check_types(train: DomainDataset, **others: DomainDataset | None) -> None:
    """Types of entities that only occur outside the training rows are an error: no model can learn them."""
    known = _entity_types(train)
    for name, part in others.items():
        unknown = sorted(_entity_types(part) - known) if part is not None else []
        if unknown:
            raise ValueError(
                f"`{name}` has entities of the type {listed(unknown)}, which is missing from `train`. Remove those "
                "rows, or choose another target."
            )


def _entity_types(rows: DomainDataset) -> set[str]:
    return {kind for tags in rows["tags"] for kind, _, _ in entities(tags)}
