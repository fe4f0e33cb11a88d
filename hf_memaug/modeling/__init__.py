# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""One modeling file per family, each reading like its paper's method section."""

from hf_memaug.registration import register_auto_classes

# Whoever has one of these classes in hand can give it to an auto class.
register_auto_classes()
