# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The commands of `hf-memaug`. `hf_memaug_cli` parses the command line and calls them."""
