# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Fast paths, each with a plain twin that tests compare it with."""
