# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The modules beside this file can be imported."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
