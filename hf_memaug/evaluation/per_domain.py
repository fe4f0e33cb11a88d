# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Scores for `Trainer`, and the tables they are shown in."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from hf_memaug.evaluation import scores
from hf_memaug.evaluation.checks import as_numpy, check_name
from hf_memaug.evaluation.statistics import Summary, summarise
from hf_memaug.files import markdown_text

IGNORED_LABEL = -100
STYLES = ("text", "markdown", "latex")
# Behind the point.
DIGITS = 1

_CLASSIFICATION = {"accuracy": scores.accuracy, "macro_f1": scores.macro_f1, "micro_f1": scores.micro_f1}


def classification_scores(eval_prediction: Any) -> dict[str, float]:
    """Accuracy, macro-F1 and micro-F1, for `Trainer(compute_metrics=classification_scores)`.

    Takes a `transformers.EvalPrediction` or a pair (predictions, labels). The predictions are logits, a tuple that
    begins with them, or label ids. Sequence and token classification both work: positions labelled -100 are left out.
    F1 averages the labels that occur, see `macro_f1`.
    """
    predictions, references = eval_prediction[0], eval_prediction[1]
    if isinstance(predictions, tuple):
        predictions = predictions[0]
    if references is None:
        raise ValueError("`eval_prediction` has no labels: evaluate on a dataset with a `label` column.")
    predictions, references = as_numpy(predictions), as_numpy(references)
    if predictions.ndim == references.ndim + 1:
        predictions = predictions.argmax(axis=-1)
    if predictions.shape != references.shape:
        raise ValueError(
            f"`eval_prediction` has predictions of shape {predictions.shape} and labels of shape {references.shape}: "
            "the predictions must be logits (one more axis) or label ids (the same shape)."
        )
    kept = references != IGNORED_LABEL
    if not kept.any():
        raise ValueError(f"`eval_prediction` has no label other than {IGNORED_LABEL}: there is nothing to score.")
    predictions, references = predictions[kept], references[kept]
    return {name: score(predictions, references) for name, score in _CLASSIFICATION.items()}


def score_table(
    rows: Mapping[str, Mapping[str, Any]],
    points: bool = True,
    *,
    style: str = "text",
    lower_is_better: Collection[str] = (),
    header: str = "",
) -> str:
    """A table of scores, one row per method.

    A cell is a number, a text, or a list with one number per seed. A list shows as mean ± std (n - 1), a list of one as
    its value, a missing cell as "-". The best mean of each column is marked (`*` in text, bold in Markdown and LaTeX).

    Args:
        rows: method -> column -> cell.
        points: cells are fractions and are shown times 100. Pass False for cells that are in points already, or that
            are no fractions.
        style: "text", "markdown" or "latex" (booktabs).
        lower_is_better: columns whose best value is the lowest.
        header: heading of the first column.
    """
    check_name("style", style, STYLES)
    if not rows:
        raise ValueError("`rows` is empty: pass at least one method.")
    columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))

    table = {row: [_summary(row, one, cells.get(one), points) for one in columns] for row, cells in rows.items()}
    best: list[float | None] = []
    for column, found in zip(columns, zip(*table.values(), strict=True), strict=True):
        means = [round(cell.mean, DIGITS) for cell in found if isinstance(cell, Summary) and not math.isnan(cell.mean)]
        pick = min if column in lower_is_better else max
        best.append(pick(means) if len(means) > 1 else None)
    lines = [[escape(str(name), style) for name in (header, *columns)]]
    for row, cells in table.items():
        marked = zip(cells, best, strict=True)
        lines.append([escape(str(row), style), *(_cell(cell, the_best, style) for cell, the_best in marked)])
    return lay_out(lines, style)


def _summary(row: str, column: str, cell: Any, points: bool) -> Summary | str | None:
    if cell is None or isinstance(cell, str):
        return cell
    values = np.atleast_1d(np.asarray(as_numpy(cell), dtype=np.float64))
    if values.size == 0:
        return None
    if points and (np.abs(values) > 1).any():
        raise ValueError(
            f"`rows` holds {values[np.abs(values) > 1][0]} for {row!r} in column {column!r}, which is no fraction: "
            "pass `points=False` if the cells are in points already."
        )
    if np.isnan(values).any():
        # A run that diverged must show, not vanish from the mean.
        return Summary(math.nan, None, values.size)
    return summarise(values * 100 if points else values)


def _cell(summary: Summary | str | None, best: float | None, style: str) -> str:
    if summary is None:
        return "-"
    if isinstance(summary, str):
        return escape(summary, style)
    if math.isnan(summary.mean):
        return "nan"
    is_best = round(summary.mean, DIGITS) == best
    mean = f"{summary.mean:.{DIGITS}f}"
    spread = "" if summary.std is None else f"{summary.std:.{DIGITS}f}"
    if style == "latex":
        mean = f"\\textbf{{{mean}}}" if is_best else mean
        return f"{mean} $\\pm$ {spread}" if spread else mean
    text = f"{mean} ± {spread}" if spread else mean
    if style == "markdown":
        return f"**{text}**" if is_best else text
    # A blank keeps the digits of unmarked cells in line with those of marked ones.
    return text + ("*" if is_best else " ")


def escape(text: str, style: str) -> str:
    """A text as a cell of `lay_out`."""
    if style == "markdown":
        return str(markdown_text(text))
    if style == "latex":
        replacements = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
        return "".join(replacements.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)
    return text


def lay_out(lines: list[list[str]], style: str) -> str:
    """A table of cells that are texts already, the first line its heading. `style` is one of `STYLES`."""
    if style == "text":
        # The blank after a number stands where the mark would be; the headings and "-" line up with the digits.
        lines = [[cells[0], *(c if c[-1:] in ("*", " ") else f"{c} " for c in cells[1:])] for cells in lines]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    if style == "markdown":
        widths = [max(width, 3) for width in widths]
    padded = [[first.ljust(widths[0]), *map(str.rjust, others, widths[1:])] for first, *others in lines]
    if style == "text":
        text = ["  ".join(line).rstrip() for line in padded]
        return "\n".join([text[0], "-" * max(len(line) for line in text), *text[1:]])
    if style == "markdown":
        rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
        return "\n".join("| " + " | ".join(line) + " |" for line in [padded[0], rule, *padded[1:]])
    body = [" & ".join(line) + r" \\" for line in padded]
    start = [rf"\begin{{tabular}}{{l{'r' * (len(widths) - 1)}}}", r"\toprule", body[0], r"\midrule"]
    return "\n".join([*start, *body[1:], r"\bottomrule", r"\end{tabular}"])
