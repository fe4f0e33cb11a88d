# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The parts of `report.html`: markup and charts below, sections above, the page around them."""
