# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`python -m hf_memaug.cli` is `hf-memaug`."""

import sys

from hf_memaug_cli.app import main

if __name__ == "__main__":
    sys.exit(main())
