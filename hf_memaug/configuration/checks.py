# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks that every family's configuration shares."""

from collections.abc import Iterable
from dataclasses import fields

from hf_memaug.suggestions import nearest


def refuse_misspelt_fields(config_class: type, kwargs: Iterable[str], own_prefixes: tuple[str, ...]) -> None:
    """
    transformers keeps an unknown keyword as an attribute, so a misspelt field would be accepted and ignored. Names that
    resemble a field, or begin like the family's own fields, are refused; foreign keys of old checkpoints still pass.
    """
    known = {field.name for field in fields(config_class)} | {"num_labels", "attn_implementation", "torch_dtype"}
    own = sorted(name for name in known if name.startswith(own_prefixes))
    for name in kwargs:
        if name in known or name.startswith("_"):
            continue
        # Stricter about the inherited fields: `layer_norm_epsilon` is another model's spelling, not a slip.
        suggestion = nearest(name, own, cutoff=0.75) or nearest(name, known, cutoff=0.9)
        if suggestion is None and not name.startswith(own_prefixes):
            continue
        mend = f"Did you mean `{suggestion}`?" if suggestion else f"There are {', '.join(f'`{n}`' for n in own)}."
        raise TypeError(f"`{config_class.__name__}` has no field `{name}`. {mend}")
