# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The sections of the report as blocks of data, the charts in them, and the template that lays them out."""
