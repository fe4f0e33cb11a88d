# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The rows of each domain, in one shape and with one set of labels."""

from collections.abc import Collection, Mapping, Sequence

from transformers.trainer_utils import IntervalStrategy
from transformers.utils import logging

from hf_memaug.data import DomainDataset, load_domains
from hf_memaug.messages import did_you_mean, listed
from hf_memaug.training.checks import check_labels
from hf_memaug.training.collation import domains_of

logger = logging.get_logger(__name__)


def rows_by_domain(dataset, argument: str, labels: Sequence[str] = (), config=None) -> dict[str, DomainDataset]:
    """
    Rows of each domain, from rows with a `domain` column or from `{domain: rows}`. The label ids of all domains are
    those of `labels`; without `labels`, those of the model if its `config` has the same names, else those of the first
    domain.
    """
    if dataset is None:
        return {}
    if isinstance(dataset, Mapping):
        named = {name: _as_rows(rows, argument, name) for name, rows in dataset.items()}
    else:
        named = _as_rows(dataset, argument).by_domain()
    for name, rows in named.items():
        if not len(rows):
            raise ValueError(f"`{argument}` has no row of the domain {name!r}. Add rows, or leave the domain out.")
    id2label = getattr(config, "id2label", None) or {}
    own = [id2label[number] for number in sorted(id2label)]
    wanted, found = list(labels), {}
    for name, rows in named.items():
        names = rows.label_names
        if rows.labels is None or not names:
            found[name] = rows
            continue
        if not wanted:
            wanted = own if set(own) == set(names) else names
        if set(names) != set(wanted):
            raise ValueError(
                f"`{argument}` has other labels in {name!r} ({listed(names)}) than in the domains before "
                f"({listed(wanted)}). Use the same label names in all domains."
            )
        column = "label" if "label" in rows.column_names else "labels"
        columns = {one: rows[one] for one in rows.column_names}
        found[name] = DomainDataset({**columns, column: [wanted.index(names[label]) for label in rows.labels]}, wanted)
    return found


def _as_rows(dataset, argument: str, domain: str | None = None) -> DomainDataset:
    if not isinstance(dataset, DomainDataset):
        names = getattr(dataset, "column_names", None) or ()
        if domain is None and names:
            domains_of(dataset, argument)
        if "input_ids" in names or "pixel_values" in names:
            columns = {name: list(dataset[name]) for name in names}
            dataset = DomainDataset({"domain": [domain] * len(dataset), **columns})
        else:
            dataset = load_domains({domain: dataset} if domain is not None and "domain" not in names else dataset)
    return dataset if domain is None else dataset.with_columns(domain=[domain] * len(dataset))


def check_domains(
    domains: Sequence[str], trained: Sequence[str], train: Collection[str], test: Collection[str]
) -> None:
    """Checks that each domain has rows to train and score on, and comes once."""
    for place, name in enumerate(domains):
        if name in domains[:place]:
            raise ValueError(f"`domains` has {name!r} twice.")
        if name in trained:
            raise ValueError(
                f"`domains` has {name!r}, but the model was trained on it already. Leave it out, or rename it if the "
                "rows are new."
            )
        if name not in train:
            raise ValueError(f"`domains` has {name!r}, missing from `train_dataset`. {did_you_mean(name, train)}")
        if name not in test:
            raise ValueError(f"`test_dataset` (by default `eval_dataset`) has no row of the domain {name!r}. Add rows.")


def check_dev_rows(args, domains: Sequence[str], dev: Mapping[str, DomainDataset], has_test_rows: bool) -> None:
    """Checks that the rows that choose a checkpoint are there, and are not the rows that are reported."""
    if args.eval_strategy == IntervalStrategy.NO:
        return
    for name in domains:
        if name not in dev:
            raise ValueError(
                f'`eval_strategy="{args.eval_strategy.value}"` needs rows of the domain {name!r} in `eval_dataset`. '
                "Add them, or leave `eval_strategy` out."
            )
    if args.load_best_model_at_end and not has_test_rows:
        raise ValueError(
            "`load_best_model_at_end=True` chooses checkpoints by `eval_dataset`. Give other rows as `test_dataset`, "
            "on which R is scored."
        )


def check_all_labels(train: Mapping[str, DomainDataset], num_labels: int | None) -> None:
    """Checks that the model has all labels and that the domains share labels. Warns of labels missing in a domain."""
    labels = {name: set(rows.labels or ()) for name, rows in train.items()}
    everywhere = set().union(*labels.values())
    for name, rows in train.items():
        check_labels(rows, num_labels)
        names = {label: rows.label_names[label] if label < rows.num_labels else str(label) for label in everywhere}
        other = next((one for one, theirs in labels.items() if theirs and not theirs & labels[name]), None)
        if other is not None and labels[name] and rows.label_names:
            mine, theirs = (listed([names[label] for label in sorted(labels[one])]) for one in (name, other))
            raise ValueError(
                f"`train_dataset`: the domains {name!r} ({mine}) and {other!r} ({theirs}) have no label in common. Use "
                "the same label names in all domains."
            )
        missing = everywhere - labels[name]
        if missing and labels[name]:
            lacking = listed([names[label] for label in sorted(missing)])
            logger.warning(f"The domain {name!r} has no training row with the label {lacking}.")
