# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The names of the labels: the rows know them, and the model that is saved needs them."""


def share_label_names(model, *datasets) -> None:
    """
    A model whose labels have no names takes those of the rows. Refuses a model that has the same names in another
    order: it would learn well, and then say one name for the other.
    """
    config = getattr(model, "config", None)
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
        raise ValueError(
            f"`verbalizer` has words for the labels {own}, and the rows have {names}: which words are whose cannot be "
            "told. Name the labels in it as the rows do."
        )
