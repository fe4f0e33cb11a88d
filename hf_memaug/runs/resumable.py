# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Whether a checkpoint that was trained on some domains can be trained on further ones."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from hf_memaug.data import DomainDataset
from hf_memaug.data.messages import listed
from hf_memaug.runs.errors import DataRefused, UsageError
from hf_memaug.runs.rows import as_options
from hf_memaug.runs.tasks import check_types


def check_tags(backbone: str, parts: Mapping[str, Mapping[str, DomainDataset]]) -> None:
    """Types of entities, or tags of a trained model, that the rows to train on lack are an error."""
    from hf_memaug.training import ContinualRecord
    from hf_memaug.training.continual.record import RECORD_FILE

    joined = {name: DomainDataset.concatenate(list(of.values())) for name, of in parts.items() if of}
    try:
        if not (Path(backbone) / RECORD_FILE).is_file():
            check_types(joined.pop("train"), **joined)
            return
        known = ContinualRecord.load(backbone).labels
        found = dict.fromkeys(tag for part in joined.values() for tags in part["tags"] for tag in tags)
        unknown = [tag for tag in found if tag not in known]
        if unknown:
            raise ValueError(
                f"`source` has the tags {listed(unknown)}, and `--backbone` was trained with {listed(known)}. Its head "
                "cannot grow. Remove those rows, or train on all domains from the start."
            )
    except ValueError as error:
        raise DataRefused(as_options(error)) from error


def check_resumable(backbone: str, config, strategies: Sequence[str], metric: str) -> None:
    """Raises an error for a strategy, or a metric, with which a trained model cannot continue."""
    from hf_memaug.training import ContinualRecord
    from hf_memaug.training.continual import STRATEGIES
    from hf_memaug.training.continual.record import RECORD_FILE

    folder = Path(backbone)
    has_file = (folder / RECORD_FILE).is_file()
    record = ContinualRecord.load(folder if has_file else config.run_facts["continual"])
    if record.metric != metric:
        raise UsageError(f"`--metric` is {metric!r}, and the matrix of `--backbone` holds {record.metric}. Use that.")
    for name in strategies:
        strategy = STRATEGIES[name]
        if strategy.kind != "sequence" or record.kind != "sequence":
            wrong = f"`--strategies` has {name!r}" if strategy.kind != "sequence" else "`--backbone` is from a run"
            raise UsageError(
                f"{wrong}, whose scores make no matrix that can be continued. Use a strategy such as f and a model "
                "that was trained by one, or an untrained `--backbone`."
            )
        places = (folder, folder.parent, *folder.glob("_stages/*"))
        if strategy.needs_state and not any((place / strategy.state_file).is_file() for place in places):
            before = record.strategy.get("name")
            again = f"choose {before} again" if before != name else "use the folder of the earlier run"
            raise UsageError(
                f"`--strategies` has {name!r}, which needs `{strategy.state_file}`, and `--backbone`, trained by "
                f"{before}, has none. To fix it, {again}, or choose a strategy without a state, such as f."
            )
        _check_growth(config, name, strategy.needs)


def _check_growth(config, strategy: str, verbs: Sequence[str]) -> None:
    import transformers

    import hf_memaug

    for name in config.architectures or ():
        model_class = getattr(hf_memaug, name, None) or getattr(transformers, name, None)
        if model_class is not None and not all(hasattr(model_class, verb) for verb in verbs):
            raise UsageError(
                f"`--strategies` has {strategy!r}, which enlarges the model, and `--backbone` is a `{name}`, which "
                "cannot grow. Choose another strategy, such as ewc."
            )
