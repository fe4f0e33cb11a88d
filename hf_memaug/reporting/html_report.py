# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The report of a run: one HTML file that opens offline."""

import logging
import os
from importlib.resources import files
from pathlib import Path

from hf_memaug import __version__
from hf_memaug.evaluation.checks import check_name
from hf_memaug.files import render, without_folders, write_atomically
from hf_memaug.reporting import html
from hf_memaug.reporting.html import history, memory, scores
from hf_memaug.runs.results import read_run

logger = logging.getLogger(__name__)


def write_report(
    run_folder: str | os.PathLike, output: str | os.PathLike | None = None, baseline: str | None = None
) -> Path:
    """
    Writes the report of a run and returns its path. Missing parts are left out and broken files skipped; the report
    names both.

    Args:
        run_folder: the folder of a run, finished or not.
        output (*optional*): the file to write. Default: `report.html` in the folder.
        baseline (*optional*): the method that the others are tested against. Default: "erm", or else the first.
    """
    run = read_run(run_folder)
    if baseline is not None:
        check_name("baseline", baseline, run.methods)
    features, rows = memory.features_section(run)
    sections = [
        ("comparison", "Comparison", scores.comparison_section(run, baseline)),
        ("domains", "Scores per domain", scores.domains_section(run, baseline)),
        ("continual", "Domain after domain", history.continual_section(run)),
        ("curves", "Training curves", history.curves_section(run)),
        ("features", "Features", features),
        ("distance", "A-distance", memory.distance_section(run)),
        ("memory", "Memory slots", memory.memory_section(run)),
        ("experts", "Experts over patches", memory.experts_section(run)),
        ("cost", "Cost", scores.cost_section(run, baseline)),
        ("data", "Data and leakage", history.data_section(run)),
        ("reproduce", "How to reproduce", history.reproduce_section(run)),
    ]
    folder = files(html)
    text = render(
        html.__name__,
        "report.html.jinja",
        is_html=True,
        name=run.path.resolve().name,
        summary=history.summary(run),
        sections=[one for one in sections if one[-1] and not isinstance(one[-1], str)],
        missing=[content for _, _, content in sections if isinstance(content, str)],
        notes=[without_folders(note) for note in run.notes],
        rows=rows,
        style=(folder / "report.css").read_text(encoding="utf-8"),
        script=(folder / "report.js").read_text(encoding="utf-8"),
        version=__version__,
    )
    for note in run.notes:
        logger.warning(note)
    path = Path(output) if output is not None else run.path / "report.html"
    write_atomically(path, text)
    return path
