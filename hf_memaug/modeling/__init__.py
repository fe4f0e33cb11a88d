# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""One modeling file per family, each reading like its paper's method section."""
