# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""One configuration file per family."""
