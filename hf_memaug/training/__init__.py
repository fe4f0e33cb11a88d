# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Trainers, and what they share."""

from hf_memaug.training.guard import NonFiniteGradientError, RunGuard

__all__ = ["NonFiniteGradientError", "RunGuard"]
