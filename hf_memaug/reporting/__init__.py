# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What came out of a run, for people to read."""
