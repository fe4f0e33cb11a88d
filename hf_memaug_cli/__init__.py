# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
The commands of `hf-memaug` and their options. `import hf_memaug` imports torch, so this package is outside of it:
`hf-memaug --help` needs neither. The code of the commands is in `hf_memaug.cli`.
"""
