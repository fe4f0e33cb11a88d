# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Fields of a composite configuration that live in its sub-configurations."""


class DelegatedField:
    """
    A field that is read from the first of the named sub-configurations and written to all of them.

    ```python
    vocab_size = DelegatedField("domain", "general")
    ```
    """

    def __init__(self, *parts: str):
        self.parts = parts

    def __set_name__(self, owner: type, name: str):
        self.name = name

    def __get__(self, config, owner: type | None = None):
        if config is None:
            return self
        part = getattr(config, self.parts[0])
        if part is None:
            raise AttributeError(f"`{self.name}` is a field of `{self.parts[0]}`, which is None.")
        return getattr(part, self.name)

    def __set__(self, config, value):
        for name in self.parts:
            part = getattr(config, name)
            if part is not None:
                setattr(part, self.name, value)
