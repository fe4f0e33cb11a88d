# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What tests of pictures share."""

import pytest

from hf_memaug.reporting import plots


@pytest.fixture
def drawn(monkeypatch):
    """The figures saved, kept open."""
    figures, save = [], plots.save

    def keep(figure, *args):
        figures.append(figure)
        figure.clear = lambda: None
        return save(figure, *args)

    monkeypatch.setattr(plots, "save", keep)
    return figures
