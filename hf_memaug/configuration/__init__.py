# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""One configuration file per family."""

# Registration runs when the auto classes are first imported. It must not find a file of this folder half imported, so
# the auto classes come first.
import transformers.models.auto.modeling_auto  # noqa: F401
