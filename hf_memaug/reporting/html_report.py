# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The report of a run: one HTML file that opens anywhere, without a network.

`python -m hf_memaug.reporting.html_report RUN` writes it into the folder of the run.
"""

import argparse
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from hf_memaug.evaluation.checks import check_name
from hf_memaug.files import write_atomically
from hf_memaug.reporting.html.page import page, sections
from hf_memaug.runs.results import FinishedRun

REPORT_FILE = "report.html"
logger = logging.getLogger(__name__)


def write_report(
    run_folder: str | os.PathLike, output: str | os.PathLike | None = None, baseline: str | None = None
) -> Path:
    """
    Writes the report of a run and returns where it is. What the folder lacks the report does without; what is broken in
    it the report leaves aside, and says so.

    Args:
        run_folder: the folder of a run, finished or not.
        output (*optional*): the file to write. By default `report.html` in the folder.
        baseline (*optional*): the method that others are tested against. By default "erm", or else the first.
    """
    run = FinishedRun(run_folder)
    if baseline is not None:
        check_name("baseline", baseline, run.methods)
    text = page(run, sections(run, baseline))
    for note in run.notes:
        logger.warning(note)
    path = Path(output) if output is not None else run.path / REPORT_FILE
    write_atomically(path, text)
    return path


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m hf_memaug.reporting.html_report", description="The report of a run.")
    parser.add_argument("run", help="the folder of a run")
    parser.add_argument("--output", help=f"the file to write (default: {REPORT_FILE} in the folder)")
    parser.add_argument("--baseline", help="the method that others are tested against (default: erm, or the first)")
    options = parser.parse_args(arguments)
    try:
        print(write_report(options.run, options.output, options.baseline))
    except (OSError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
