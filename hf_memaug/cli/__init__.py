# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-memaug`: everything the library can do, without writing Python. Nothing imports this room."""
