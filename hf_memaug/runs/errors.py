# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What can go wrong, and the exit code of each."""

OK, FAILED, USAGE, DATA, INTERRUPTED = 0, 1, 2, 3, 130


class CommandError(Exception):
    """Ends the command with a message and an exit code."""

    code = FAILED


class UsageError(CommandError):
    """An option, a recipe or a run folder does not fit what was asked."""

    code = USAGE


class DataRefused(CommandError):
    """The rows would spoil the run."""

    code = DATA


class Interrupted(CommandError):
    """Somebody asked the command to end; what was done is kept."""

    code = INTERRUPTED
