# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Jobs, run folders, the runner and the reader of results."""
