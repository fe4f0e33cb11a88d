# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Errors whose text is meant for the user of the command line or of the app."""


class InferenceError(ValueError):
    """The base of the next two."""


class CheckpointError(InferenceError):
    """A checkpoint that cannot be loaded, or that does not predict."""


class InputError(InferenceError):
    """An input that the model cannot read."""
