# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The inputs of `hf-memaug predict`: arguments, lines of text, tables, folders of images, files of graphs."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_memaug.inference import Predictor
from hf_memaug.runs.errors import DataRefused, UsageError


def read_inputs(predictor: Predictor, options: Any, given: Sequence[str]) -> list[dict[str, Any]]:
    """
    Args:
        options: of `predict`: `data`, and the names of the columns.
        given: inputs that stand behind the checkpoint; empty with `data`.
    """
    if predictor.kind == "graph" and not predictor.reads_molecules:
        rows = _graphs(predictor, options, given)
    elif predictor.kind == "image":
        rows = [{"image": one} for one in given] or _images(Path(options.data))
    else:
        rows = _texts(predictor, options, given)
    if not rows:
        raise DataRefused(f"`--data` {options.data} has no row.")
    return rows


def _texts(predictor: Predictor, options: Any, given: Sequence[str]) -> list[dict[str, Any]]:
    kind = predictor.kind
    lines = list(given) or _lines(options.data)
    if kind == "questions":
        if lines is None:
            return _table(Path(options.data), {"question": options.question, "context": options.context})
        if len(given) != 2:
            raise UsageError(
                "`checkpoint` answers questions: give one and its context behind it, or a file with `--data`, "
                "`--question` and `--context`."
            )
        return [{"question": given[0], "context": given[1]}]
    if kind == "graph":
        rows = [{"smiles": line} for line in lines or ()] or _table(Path(options.data), {"smiles": options.smiles})
        return [{**row, "graph": _molecule(number, row["smiles"])} for number, row in enumerate(rows)]
    if lines is not None:
        return [{"tokens" if kind == "tags" else "text": line} for line in lines]
    if kind == "tags":
        rows = _table(Path(options.data), {"tokens": options.tokens})
        wrong = [number for number, row in enumerate(rows) if not isinstance(row["tokens"], (list, tuple))]
        if wrong:
            raise DataRefused(
                f"`--tokens` {options.tokens!r} must hold a list of words, and row {wrong[0]} of `--data` holds "
                f"{str(rows[wrong[0]]['tokens'])[:40]!r}. Write JSON lines, or lines of text in a .txt file."
            )
        return rows
    has_pairs = options.text_pair is not None and kind == "text"
    return _table(Path(options.data), {"text": options.text, **({"text_pair": options.text_pair} if has_pairs else {})})


def _lines(data: str) -> list[str] | None:
    """The lines of a text file or of the standard input; None for other files."""
    if data != "-" and Path(data).suffix != ".txt":
        return None
    try:
        text = sys.stdin.read() if data == "-" else Path(data).read_text(encoding="utf-8")
    except OSError as error:
        raise DataRefused(f"`--data` {data} cannot be read: {error.strerror or error}.") from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def _table(path: Path, columns: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows of a file with these columns, under the names that they stand behind."""
    from hf_memaug.data.messages import did_you_mean
    from hf_memaug.data.readers import read_table
    from hf_memaug.runs.rows import as_options

    if not path.exists():
        raise DataRefused(f"`--data`: there is no {str(path)!r}.")
    try:
        table = read_table(path)
    except (ValueError, OSError) as error:
        raise DataRefused(as_options(error)) from error
    for name in columns.values():
        if name not in table:
            raise DataRefused(f"`--data` {path} has no column {name!r}. {did_you_mean(name, table)}")
    several = zip(*(table[name] for name in columns.values()), strict=True)
    return [dict(zip(columns, values, strict=True)) for values in several]


def _images(path: Path) -> list[dict[str, Any]]:
    from hf_memaug.data.readers import IMAGE_SUFFIXES, table_suffix

    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
        return [{"image": str(file)} for file in files]
    if path.exists() and table_suffix(path) is None:
        return [{"image": str(path)}]
    return _table(path, {"image": "image"})


def _molecule(number: int, smiles: str) -> Mapping[str, Any]:
    from hf_memaug.data.molecules import graph_from_smiles

    try:
        return graph_from_smiles(smiles)
    except ImportError as error:
        raise DataRefused(str(error)) from error
    except ValueError as error:
        raise DataRefused(f"Row {number}: {error} Fix it, or leave it out.") from error


def _graphs(predictor: Predictor, options: Any, given: Sequence[str]) -> list[dict[str, Any]]:
    from hf_memaug.data.graph_loading import load_graphs
    from hf_memaug.runs import graphs
    from hf_memaug.runs.rows import as_options, data_name

    if given or options.data == "-":
        raise UsageError("`checkpoint` reads graphs that are not molecules: give a file of them with `--data`.")
    try:
        rows = load_graphs({data_name(options.data): options.data}, label=None)
    except (ValueError, OSError) as error:
        raise DataRefused(as_options(error)) from error
    graphs.check_values(predictor.config.backbone_config, [rows], "`checkpoint`")
    return [{"row": number, "graph": graph} for number, graph in enumerate(rows["graph"])]
