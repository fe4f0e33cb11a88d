# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
Tables of domain generalisation from records, ours or DomainBed's: a row for each algorithm and model, a column for each
test domain, "mean ± standard error" over trials.

    python -m hf_memaug.reporting.domain_tables runs/bench
    python -m hf_memaug.reporting.domain_tables runs/bench --selection oracle --format latex --output table.tex
    python -m hf_memaug.reporting.domain_tables domainbed_output/ other/results.jsonl

What is missing is shown: "(2 of 3)" behind a mean over two of three trials, and below the table what runs lack.
"""

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev

from hf_memaug.evaluation.checks import check_name
from hf_memaug.evaluation.domain_selection import SELECTIONS, choose
from hf_memaug.evaluation.per_domain import escape, lay_out
from hf_memaug.evaluation.records import Record, read_records, split_finished
from hf_memaug.files import write_atomically

FORMATS = ("markdown", "latex")
TITLES = {
    "training": "training-domain validation",
    "leave_one_out": "leave-one-domain-out validation",
    "oracle": "test-domain validation (oracle)",
}
# More would hide the table.
SHOWN_GAPS = 12


@dataclass(frozen=True)
class Cell:
    """The accuracies, from 0 to 1, of the trials that are there, and how many there should be."""

    values: tuple[float, ...]
    expected: int

    @property
    def mean(self) -> float | None:
        """In points."""
        return 100 * fmean(self.values) if self.values else None

    @property
    def standard_error(self) -> float | None:
        """As DomainBed computes it: std / sqrt(n), the std with n in its denominator. None for one value."""
        return 100 * pstdev(self.values) / math.sqrt(len(self.values)) if len(self.values) > 1 else None

    def text(self, style: str, is_best: bool) -> str:
        lacking = f" ({len(self.values)} of {self.expected})" if len(self.values) < self.expected else ""
        if self.mean is None:
            return f"-{lacking}"
        number = f"{self.mean:.1f}"
        if style == "latex":
            number = f"\\textbf{{{number}}}" if is_best else number
            error = "" if self.standard_error is None else f" $\\pm$ {self.standard_error:.1f}"
            return number + error + lacking
        error = "" if self.standard_error is None else f" ± {self.standard_error:.1f}"
        return (f"**{number}{error}**" if is_best else number + error) + lacking


Cells = dict[tuple[str, ...], dict[str, Cell]]


def domain_cells(records: Sequence[Record], selection: str, trials: int | None = None) -> dict[tuple[str, str], Cells]:
    """
    The tables as numbers: (data set, setting) -> row -> column -> `Cell`.

    Args:
        records: of any data sets, algorithms and models.
        selection: "training", "leave_one_out" or "oracle".
        trials (*optional*): the expected number of trials. Default: as many as the records of the data set have.
    """
    tables: dict[tuple[str, str], Cells] = {}
    for dataset, setting in dict.fromkeys((record.dataset, record.setting) for record in records):
        own = [record for record in records if (record.dataset, record.setting) == (dataset, setting)]
        choices = choose(own, selection)
        seeds = sorted({record.trial_seed for record in own} | set(range(trials or 0)))
        domains = _columns(own)
        rows: Cells = {_row(record): {} for record in own}
        for row, cells in rows.items():
            of_row: dict[int, dict[str, float]] = {seed: {} for seed in seeds}
            for choice in choices:
                if _row(choice.record) == row:
                    of_row[choice.record.trial_seed][choice.test_env] = choice.accuracy
                    if choice.source is not None:
                        # The domain trained on is shown, and has no part in the average.
                        of_row[choice.record.trial_seed][choice.source] = choice.record.accuracy[choice.source]["out"]
            tested = [name for name in domains if setting == "multi_source" or name != row[-1]]
            for name in domains:
                values = tuple(found[name] for found in of_row.values() if name in found)
                cells[name] = Cell(values, len(seeds))
            in_full = [found for found in of_row.values() if all(name in found for name in tested)]
            averages = tuple(fmean(found[name] for name in tested) for found in in_full)
            cells["average"] = Cell(averages, len(seeds))
        tables[dataset, setting] = rows
    return tables


def domain_report(
    records: Iterable[Record],
    selection: str = "training",
    style: str = "markdown",
    trials: int | None = None,
) -> str:
    """A table for each data set, and one of the averages where there are several. Arguments as in `domain_cells`."""
    check_name("selection", selection, SELECTIONS)
    check_name("format", style, FORMATS)
    records, unfinished = split_finished(records)
    if not records:
        raise ValueError(f"`records` has no finished run ({len(unfinished)} records of unfinished ones).")
    tables = domain_cells(records, selection, trials)
    sections = [_explained(selection, style)]
    for (dataset, setting), rows in tables.items():
        own = [record for record in records if (record.dataset, record.setting) == (dataset, setting)]
        single = " (trained on one domain)" if setting == "single_source" else ""
        sections += [_heading(f"{dataset}{single}", style), _table(rows, style)]
        sections.append(_gaps(own, selection, rows, style))
    several = {dataset: rows for (dataset, setting), rows in tables.items() if setting == "multi_source"}
    if len(several) > 1:
        averages: Cells = {}
        for row in dict.fromkeys(row for rows in several.values() for row in rows):
            for dataset, rows in several.items():
                missing = {"average": Cell((), next(iter(rows.values()))["average"].expected)}
                averages.setdefault(row, {})[dataset] = rows.get(row, missing)["average"]
        sections += [_heading("Averages", style), _table(averages, style)]
    if unfinished:
        names = sorted({record.args["job"] for record in unfinished})
        sections.append(escape(_some("Not finished, and left out: ", names), style))
    return "\n\n".join(section for section in sections if section) + "\n"


def _columns(records: Sequence[Record]) -> list[str]:
    """The domains that runs leave out alone; where each run trains on one domain, all of them."""
    domains = list(dict.fromkeys(name for record in records for name in record.accuracy))
    if any(record.setting == "single_source" for record in records):
        return domains
    left_out = {record.test_envs[0] for record in records if len(record.test_envs) == 1}
    return [name for name in domains if name in left_out] or domains


def _row(record: Record) -> tuple[str, ...]:
    names = (record.algorithm, record.model)
    return names if record.setting == "multi_source" else (*names, record.train_envs[0])


def _label(row: tuple[str, ...]) -> str:
    label = f"{row[0]} ({row[1]})" if row[1] else row[0]
    return label if len(row) == 2 else f"{label}, {row[2]}"


def _table(rows: Mapping[tuple[str, ...], Mapping[str, Cell]], style: str) -> str:
    columns = list(dict.fromkeys(name for cells in rows.values() for name in cells))
    best = {}
    for column in columns:
        means = [round(cells[column].mean, 1) for cells in rows.values() if cells[column].mean is not None]
        if len(means) > 1:
            best[column] = max(means)
    # Rows trained on different domains are not compared.
    compares = all(len(row) == 2 for row in rows)
    lines = [[escape(name, style) for name in ("algorithm", *columns)]]
    for row, cells in rows.items():
        line = [escape(_label(row), style)]
        for column in columns:
            mean = cells[column].mean
            is_best = compares and mean is not None and column in best and round(mean, 1) == best[column]
            line.append(cells[column].text(style, is_best))
        lines.append(line)
    return lay_out(lines, style)


def _gaps(records: Sequence[Record], selection: str, rows: Cells, style: str) -> str:
    """Trials without a complete set of runs, and trials that chose among fewer draws than others."""
    gaps = []
    draws: dict[tuple, set[int]] = {}
    for record in records:
        for env in record.test_envs:
            draws.setdefault((_row(record), env, record.trial_seed), set()).add(record.hparams_seed)
    most = max(len(seeds) for seeds in draws.values())
    chosen = {(_row(choice.record), choice.test_env, choice.record.trial_seed) for choice in choose(records, selection)}
    for row in rows:
        for env in _columns(records):
            if env == row[-1] and len(row) == 3:
                continue
            for trial in sorted({record.trial_seed for record in records}):
                found = len(draws.get((row, env, trial), ()))
                where = f"{_label(row)}, {env}, trial {trial}"
                if (row, env, trial) not in chosen:
                    gaps.append(f"{where}: no {'record' if not found else 'complete set of runs'}")
                elif found < most:
                    gaps.append(f"{where}: {found} of {most} draws of hyper-parameters")
    return escape(_some("Missing: ", gaps), style) if gaps else ""


def _some(start: str, names: Sequence[str]) -> str:
    more = f"; and {len(names) - SHOWN_GAPS} more" if len(names) > SHOWN_GAPS else ""
    return f"{start}{'; '.join(names[:SHOWN_GAPS])}{more}."


def _heading(text: str, style: str) -> str:
    return f"\\subsection*{{{escape(text, style)}}}" if style == "latex" else f"## {text}"


def _explained(selection: str, style: str) -> str:
    sign = "$\\pm$" if style == "latex" else "±"
    text = (
        f"Accuracy on domains left out, in points: mean {sign} standard error over trials. Checkpoints and "
        f"hyper-parameters chosen by {TITLES[selection]}."
    )
    return f"% needs \\usepackage{{booktabs}}\n{text}" if style == "latex" else text


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m hf_memaug.reporting.domain_tables",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="folder of a sweep, or file of JSON lines")
    parser.add_argument(
        "--selection", default="training", choices=list(SELECTIONS), help="how to choose (default: %(default)s)"
    )
    parser.add_argument("--format", default="markdown", choices=FORMATS, help="default: %(default)s")
    parser.add_argument("--trials", type=int, help="the expected number (default: as many as any row has)")
    parser.add_argument("--output", type=Path, help="write the tables here (default: print them)")
    options = parser.parse_args(arguments)
    try:
        text = domain_report(read_records(*options.paths), options.selection, options.format, options.trials)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if options.output is None:
        print(text, end="")
    else:
        write_atomically(options.output, text)


if __name__ == "__main__":
    main()
