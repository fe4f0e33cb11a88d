# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Names of a package that are imported on first use."""

from collections.abc import Mapping, Sequence
from importlib import import_module


def lazy_names(package: str, exports: Mapping[str, Sequence[str]]) -> tuple:
    """`__getattr__`, `__dir__` and `__all__` for `package`, from a table of its modules and their public names."""
    module_of = {name: module for module, names in exports.items() for name in names}

    def find(name: str):
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module_of[name]}"), name)

    return find, lambda: sorted(module_of), list(module_of)
