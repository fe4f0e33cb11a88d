# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Whether a checkpoint that was trained on some domains can be trained on further ones."""

from collections.abc import Sequence
from pathlib import Path

from hf_memaug.runs.errors import UsageError


def check_can_grow(config, strategy: str, verbs: Sequence[str]) -> None:
    """Raises where a strategy makes a model larger and the checkpoint's class has no method for that."""
    import transformers

    import hf_memaug

    for name in config.architectures or ():
        model = getattr(hf_memaug, name, None) or getattr(transformers, name, None)
        if model is not None and not all(hasattr(model, verb) for verb in verbs):
            raise UsageError(
                f"`--strategies` has {strategy!r}, which makes a model larger, and `--backbone` is a `{name}`, which "
                "does not grow so. Choose another strategy, such as ewc."
            )


def check_resumable(backbone: str, config, strategies: Sequence[str], metric: str) -> None:
    """Raises where a strategy or a metric differs from that of the earlier training in a way that cannot be resumed."""
    from hf_memaug.training import ContinualRecord
    from hf_memaug.training.continual import STRATEGIES
    from hf_memaug.training.continual.record import RECORD_FILE

    folder = Path(backbone)
    has_file = (folder / RECORD_FILE).is_file()
    record = ContinualRecord.load(folder if has_file else config.run_facts["continual"])
    if record.metric != metric:
        raise UsageError(f"`--metric` is {metric!r}, and the matrix of `--backbone` is of {record.metric}: give that.")
    for name in strategies:
        strategy = STRATEGIES[name]
        if strategy.kind != "sequence" or record.kind != "sequence":
            wrong = f"`--strategies` has {name!r}" if strategy.kind != "sequence" else "`--backbone` is of a run"
            raise UsageError(
                f"{wrong}, whose scores make no matrix that goes on. Choose a strategy such as f, and a model that one "
                "has trained; or give a `--backbone` that was not trained before."
            )
        places = (folder, folder.parent, *folder.glob("_stages/*"))
        if strategy.needs_state and not any((place / strategy.state_file).is_file() for place in places):
            before = record.strategy.get("name")
            again = f"choose {before} again" if before != name else "give the folder that the earlier run left it in"
            raise UsageError(
                f"`--strategies` has {name!r}, which goes on from `{strategy.state_file}`, and `--backbone`, trained "
                f"by {before}, has none: {again}, or choose a strategy that remembers nothing, such as f."
            )
