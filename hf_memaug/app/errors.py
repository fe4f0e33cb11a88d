# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What the app cannot do, in words for its page."""


class NotServed(ValueError):
    """What the page says instead of an answer: its words are for whoever sits before it."""
