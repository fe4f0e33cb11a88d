# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The rows of each domain: brought into one shape, with one set of labels, or refused."""

from collections.abc import Mapping, Sequence

from transformers.trainer_utils import IntervalStrategy
from transformers.utils import logging

from hf_memaug.data import DomainDataset, load_domains
from hf_memaug.data.messages import did_you_mean, listed
from hf_memaug.training.checks import check_labels

logger = logging.get_logger(__name__)

LabelMap = Mapping[str, Mapping[str, str]]


def rows_by_domain(
    dataset,
    argument: str,
    label_map: LabelMap | None = None,
    labels: Sequence[str] = (),
    config=None,
) -> dict[str, DomainDataset]:
    """
    Rows of each domain, from rows with a `domain` column, from `{domain: rows}` or from a list of datasets. All get the
    ids that `labels` have there; or else those of the model, if its `config` has the names of the first domain; or
    else those of the first domain.
    """
    if dataset is None:
        return {}
    if isinstance(dataset, Mapping):
        named = {name: _as_rows(rows, argument, name) for name, rows in dataset.items()}
    elif isinstance(dataset, (list, tuple)) and not (dataset and isinstance(dataset[0], Mapping)):
        named = {}
        for part in dataset:
            for name, rows in _as_rows(part, argument).by_domain().items():
                if name in named:
                    raise ValueError(f"`{argument}` has the domain {name!r} twice. Join its rows, or rename one.")
                named[name] = rows
    else:
        named = _as_rows(dataset, argument).by_domain()
    for name, rows in named.items():
        if not len(rows):
            raise ValueError(f"`{argument}` has no row of the domain {name!r}. Add rows of it, or leave it out.")
    id2label = getattr(config, "id2label", None) or {}
    own = [id2label[number] for number in sorted(id2label)]
    return _with_common_labels(named, argument, label_map or {}, list(labels), own)


def _as_rows(dataset, argument: str, domain: str | None = None) -> DomainDataset:
    if not isinstance(dataset, DomainDataset):
        names = getattr(dataset, "column_names", None) or ()
        if domain is None and names and "domain" not in names:
            raise ValueError(
                f"`{argument}` has no `domain` column. Load it with `load_domains(..., domain=...)`, give "
                "`{domain: rows}`, or add the column to your `datasets.Dataset`."
            )
        if "input_ids" in names or "pixel_values" in names:
            columns = {name: list(dataset[name]) for name in names}
            dataset = DomainDataset({"domain": [domain] * len(dataset), **columns})
        else:
            # It may have to be told where each row comes from.
            dataset = load_domains({domain: dataset} if domain is not None and "domain" not in names else dataset)
    if domain is None:
        return dataset
    return dataset.with_columns(domain=[domain] * len(dataset)) if dataset.domains != [domain] else dataset


def _with_common_labels(
    named: dict[str, DomainDataset], argument: str, label_map: LabelMap, wanted: list[str], own: list[str]
) -> dict[str, DomainDataset]:
    first = "the domains before"
    found = {}
    for name, rows in named.items():
        if rows.labels is None or not rows.label_names:
            found[name] = rows
            continue
        renamed = label_map.get(name, {})
        for label in renamed:
            if label not in rows.label_names:
                raise ValueError(
                    f"`label_map[{name!r}]` maps {label!r}, which is no label there. "
                    f"{did_you_mean(label, rows.label_names)}"
                )
        names = [renamed.get(label, label) for label in rows.label_names]
        if not wanted:
            wanted, first = list(dict.fromkeys(names)), repr(name)
            wanted = own if set(own) == set(wanted) else wanted
        if set(names) - set(wanted) or (set(wanted) - set(names) and not renamed):
            raise ValueError(_other_labels(argument, name, rows.label_names, names, first, wanted))
        column = "label" if "label" in rows.column_names else "labels"
        ids = [wanted.index(names[label]) for label in rows.labels]
        columns = {one: rows[one] for one in rows.column_names}
        found[name] = DomainDataset({**columns, column: ids}, wanted)
    return found


def _other_labels(argument: str, name: str, old: Sequence[str], new: list[str], first: str, wanted: list[str]) -> str:
    strange = [label for label, renamed in zip(old, new, strict=True) if renamed not in wanted]
    lacking = [label for label in wanted if label not in new]
    mend = "load them with the same `labels`"
    if len(strange) == len(lacking):
        # Which is which, the data do not say: an example of how to say it.
        pairs = dict(zip(strange, lacking, strict=True))
        mend += f", or say which is which, such as `label_map={{{name!r}: {pairs}}}` for `ContinualTrainer`"
    return (
        f"`{argument}` has other labels in {name!r} ({listed(dict.fromkeys(new))}) than in {first} ({listed(wanted)}). "
        f"One head answers for all domains: {mend}."
    )


def check_domains(
    domains: Sequence[str],
    trained: Sequence[str],
    train: Mapping[str, DomainDataset],
    test: Mapping[str, DomainDataset],
    label_map: LabelMap | None = None,
) -> None:
    """Refuses an order of domains that cannot be trained and scored as it stands, and a map of labels for no domain."""
    if not domains:
        raise ValueError("`train_dataset` has no domain. Give rows of at least one.")
    for name in label_map or ():
        if name not in train and name not in test:
            known = did_you_mean(name, dict.fromkeys([*train, *test]))
            raise ValueError(f"`label_map` has the domain {name!r}, which no dataset has. {known}")
    for place, name in enumerate(domains):
        if name in domains[:place]:
            raise ValueError(f"`domains` has {name!r} twice. Each domain has one turn: leave one out, or rename it.")
        if name in trained:
            raise ValueError(
                f"`domains` has {name!r}, which the model was trained on already (on {listed(trained)}). Leave it out, "
                "or rename it if these are other rows."
            )
        if name not in train:
            raise ValueError(
                f"`domains` has {name!r}, of which `train_dataset` has no row. {did_you_mean(name, train)}"
            )
        if name not in test:
            raise ValueError(
                f"`test_dataset` (or `eval_dataset`, where that is not given) has no row of the domain {name!r}: its "
                "column of R would be empty. Add rows of it."
            )


def check_dev_rows(args, domains: Sequence[str], dev: Mapping[str, DomainDataset], has_test_rows: bool) -> None:
    """Refuses a selection without dev rows, and one by the rows that are reported."""
    if args.eval_strategy == IntervalStrategy.NO:
        return
    for name in domains:
        if name not in dev:
            raise ValueError(
                f'`eval_strategy="{args.eval_strategy.value}"` scores dev rows during each stage, and `eval_dataset` '
                f"has none of the domain {name!r}. Add them, or leave `eval_strategy` out."
            )
    if args.load_best_model_at_end and not has_test_rows:
        raise ValueError(
            "`load_best_model_at_end=True` chooses each stage's checkpoint by `eval_dataset`, and R cannot be scored "
            "on the rows that chose. Give other rows as `test_dataset`."
        )


def check_all_labels(train: Mapping[str, DomainDataset], num_labels: int | None) -> None:
    """Every label must be one that the model knows. A label that a domain lacks is said; no domain lacks them all."""
    labels = {name: set(rows.labels or ()) for name, rows in train.items()}
    everywhere = set().union(*labels.values())
    for name, rows in train.items():
        check_labels(rows, num_labels)
        names = {label: rows.label_names[label] if label < rows.num_labels else str(label) for label in everywhere}
        other = next((one for one, theirs in labels.items() if theirs and not theirs & labels[name]), None)
        if other is not None and labels[name] and rows.label_names:
            mine, theirs = (listed([names[label] for label in sorted(labels[one])]) for one in (name, other))
            raise ValueError(
                f"`train_dataset`: the domain {name!r} has the labels {mine}, and {other!r} has {theirs}: not one in "
                "common. One head answers for all domains: call the same classes by the same names in the data."
            )
        missing = everywhere - labels[name]
        if missing and labels[name]:
            lacking = listed([names[label] for label in sorted(missing)])
            logger.warning(f"The domain {name!r} has no training row with the label {lacking}.")
