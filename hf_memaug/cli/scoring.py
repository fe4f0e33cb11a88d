# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`hf-memaug evaluate` and `hf-memaug predict`: a checkpoint on rows with labels, and on rows without."""

import contextlib
import csv
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_memaug.files import write_atomically
from hf_memaug.inference import Prediction, Predictor, load_predictor
from hf_memaug.messages import did_you_mean, table
from hf_memaug.runs.errors import DataRefused, UsageError


def _load(call, **kwargs: Any) -> Predictor:
    from transformers import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    predictor, inference = load_predictor(call.arguments["checkpoint"], **kwargs), call.options.inference
    if inference is not None:
        if getattr(predictor.config, "inference_mode", None) is None:
            raise UsageError("`--inference` is for models whose rows read each other. `checkpoint` is not one of them.")
        predictor.config.inference = inference
    return predictor


def evaluate(call) -> int:
    from transformers import PrinterCallback

    from hf_memaug.runs import graphs
    from hf_memaug.runs import rows as data
    from hf_memaug.runs.arguments import common_arguments, make_arguments
    from hf_memaug.runs.cards import metric_name
    from hf_memaug.runs.splits import prepared as prepared_rows
    from hf_memaug.runs.tasks import CLASSES, TASKS, check_task, in_words, kind_of, task_of, trainer_of
    from hf_memaug.runs.training import scores_of

    options, predictor = call.options, _load(call, dtype="auto")
    kind, config = task_of(predictor.kind, predictor.config), predictor.config
    if kind == "words":
        raise UsageError("`checkpoint` fills masks, which `evaluate` does not score. Use `predict`.")
    options.task = kind if kind in TASKS else CLASSES
    check_task(options)
    source = data.source_of(options)
    rows = data.load_labelled(source, predictor.labels)
    if kind_of(rows) != kind:
        reads_molecules = kind == "graph" and predictor.reads_molecules
        hint = " Name the column with the molecules as `--smiles`." if reads_molecules else ""
        found = in_words(kind_of(rows))
        raise UsageError(f"`checkpoint` reads {in_words(kind)}, and the rows are {found}.{hint}")
    if kind == "graph":
        graphs.check_values(config.backbone_config, [rows], "`checkpoint`")
    prepared = prepared_rows(rows, predictor.processor, options.max_length, predictor.model)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        how = {"per_device_eval_batch_size": options.batch_size, "report_to": []}
        arguments = make_arguments("domain", {**common_arguments(Path(folder), seed=0), **how})
        trainer = trainer_of(kind)(
            predictor.model, arguments, eval_dataset=prepared, processing_class=predictor.processor
        )
        trainer.remove_callback(PrinterCallback)
        scores = dict(sorted(scores_of(trainer, prepared).items()))
    # Averages of metrics that all domains have: some need a class that a domain lacks.
    metrics = [metric for metric in next(iter(scores.values())) if all(metric in one for one in scores.values())]
    average = {metric: sum(one[metric] for one in scores.values()) / len(scores) for metric in metrics}
    counts = {name: sum(by_label.values()) for name, by_label in rows.counts().items()}
    inference = getattr(config, "inference_mode", None)
    found = {
        "checkpoint": call.arguments["checkpoint"],
        **({"inference": inference} if inference is not None else {}),
        "data": source["data"],
        "hash": prepared.fingerprint() if kind != "image" else None,
        "rows": counts,
        "scores": scores,
        "average": average,
    }
    if options.output is not None:
        write_atomically(options.output, json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    if options.json:
        print(json.dumps(found, ensure_ascii=False))
    elif not options.quiet:
        lines = [
            [name, counts.get(name, sum(counts.values())), *(f"{one[metric]:.1f}" for metric in metrics)]
            for name, one in {**scores, "average": average}.items()
        ]
        how = "" if inference is None else f"; rows were read by `--inference {inference}`"
        print(f"in points; the average is over the domains{how}")
        print(table(["domain", "rows", *(metric_name(metric, kind) for metric in metrics)], lines))
    return 0


def predict(call) -> int:
    options, given = call.options, call.arguments["inputs"] or []
    if bool(given) == (options.data is not None):
        raise UsageError("Give inputs after the checkpoint, or rows with `--data`: one of the two.")
    predictor = _load(call)
    rows = read_inputs(predictor, options, given)
    file: Any = contextlib.nullcontext(sys.stdout)
    if options.output:
        file = open(options.output, "w", encoding="utf-8", newline="")
    with file as out:
        writer = csv.writer(out) if str(options.output).endswith(".csv") else None
        # Lines are written batch by batch: rows may be many.
        for start in range(0, len(rows), options.batch_size):
            several = rows[start : start + options.batch_size]
            predictions = predictor.predict(several, options.batch_size, options.max_new_tokens)
            for number, (row, prediction) in enumerate(zip(several, predictions, strict=True), start):
                line = as_line(row, prediction, options.top_k)
                if writer is None:
                    print(json.dumps(line, ensure_ascii=False), file=out)
                    continue
                line = {"row": number, **line}
                if number == 0:
                    writer.writerow(line)
                # Lists are JSON.
                cells = (json.dumps(one, ensure_ascii=False) if isinstance(one, list) else one for one in line.values())
                writer.writerow(cells)
    return 0


def as_line(row: Mapping[str, Any], prediction: Prediction, top_k: int = 1) -> dict[str, Any]:
    """A row and its prediction as one JSON line. `top_k`: labels that are given, 0 for all. Of a multi-label model, 1
    gives those above 0.5."""
    shown = {name: value for name, value in row.items() if isinstance(value, (str, int))}
    if prediction.kind == "reply":
        return {**shown, "reply": prediction.text}
    if prediction.kind == "tags":
        from hf_memaug.inference.tasks import stretches

        words = prediction.words
        entities = [
            {"type": kind, "text": " ".join(words[first:last]), "start": first, "end": last}
            for kind, first, last in stretches(prediction.tags)
        ]
        return {"tokens": list(words), "tags": list(prediction.tags), "entities": entities}
    if prediction.kind == "answer":
        start = prediction.start
        end = None if start is None else start + len(prediction.text)
        return {"question": row["question"], "answer": prediction.text, "start": start, "end": end}
    if prediction.kind == "words":
        masks = [[{"word": word, "score": round(score, 6)} for word, score in words] for words in prediction.masks]
        return {**shown, "masks": masks}
    if prediction.kind == "number":
        return {**shown, "number": round(prediction.scores[0][1], 6)}
    labels = [{"label": label, "score": round(score, 6)} for label, score in prediction.scores]
    if prediction.kind == "independent" and top_k == 1:
        return {**shown, "labels": [label for label in labels if label["score"] > 0.5]}
    labels = labels[: top_k or None]
    return {**shown, **labels[0], **({"labels": labels} if top_k != 1 else {})}


def read_inputs(predictor: Predictor, options: Any, given: Sequence[str]) -> list[dict[str, Any]]:
    """The rows to predict for: the inputs behind the checkpoint on the command line, or those of `--data`."""
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
    from hf_memaug.data.readers import read_table
    from hf_memaug.runs.rows import told_as_options

    if not path.exists():
        raise DataRefused(f"`--data`: there is no {str(path)!r}.")
    with told_as_options():
        found = read_table(path)
    for name in columns.values():
        if name not in found:
            raise DataRefused(f"`--data` {path} has no column {name!r}. {did_you_mean(name, found)}")
    several = zip(*(found[name] for name in columns.values()), strict=True)
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
    from hf_memaug.data.graphs import load_graphs
    from hf_memaug.runs import graphs
    from hf_memaug.runs.rows import data_name, told_as_options

    if given or options.data == "-":
        raise UsageError("`checkpoint` reads graphs that are not molecules: give a file of them with `--data`.")
    with told_as_options():
        rows = load_graphs({data_name(options.data): options.data}, label=None)
    graphs.check_values(predictor.config.backbone_config, [rows], "`checkpoint`")
    return [{"row": number, "graph": graph} for number, graph in enumerate(rows["graph"])]
