# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Publishing checkpoints, with or without the code they need."""

from hf_memaug.hub.code import export_with_code
from hf_memaug.hub.publishing import complete_folder

__all__ = ["complete_folder", "export_with_code"]
