# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-memaug evaluate` and `hf-memaug predict`: a checkpoint on rows with labels, and on rows without."""

import contextlib
import csv
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from hf_memaug.cli.prediction_rows import read_inputs
from hf_memaug.files import write_atomically
from hf_memaug.inference import Prediction, Predictor, load_predictor
from hf_memaug.runs.errors import UsageError

_INFERENCE = ("batch", "independent")


def _load(call, **kwargs: Any) -> Predictor:
    from transformers import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    predictor, inference = load_predictor(call.arguments["checkpoint"], **kwargs), call.options.inference
    if inference is not None:
        from hf_memaug.data.messages import did_you_mean

        if getattr(predictor.config, "inference_mode", None) is None:
            raise UsageError("`--inference` is for models whose rows read each other. `checkpoint` is not one of them.")
        if inference not in _INFERENCE:
            raise UsageError(f"`--inference` is {inference!r}. {did_you_mean(inference, _INFERENCE)}")
        predictor.config.inference = inference
    return predictor


def evaluate(call) -> int:
    import torch
    from transformers import PrinterCallback

    from hf_memaug.data.messages import table
    from hf_memaug.runs import graphs
    from hf_memaug.runs import rows as data
    from hf_memaug.runs.cards import metric_name
    from hf_memaug.runs.splits import prepared as prepared_rows
    from hf_memaug.runs.tasks import CLASSES, TASKS, check_columns, in_words, kind_of, trainer_of
    from hf_memaug.runs.training import scores_of
    from hf_memaug.training import DomainTrainingArguments

    options, predictor = call.options, _load(call, dtype="auto")
    kind, config = predictor.kind, predictor.config
    if kind == "words":
        raise UsageError("`checkpoint` fills masks, which `evaluate` does not score. Use `predict`.")
    options.task = kind if kind in TASKS else CLASSES
    check_columns(options)
    source = data.source_of(options)
    rows = data.load_labelled(source, predictor.labels)
    if kind_of(rows) != kind:
        hint = (
            " Name the column with the molecules as `--smiles`."
            if kind == "graph" and predictor.reads_molecules
            else ""
        )
        found = in_words(kind_of(rows))
        raise UsageError(f"`checkpoint` reads {in_words(kind)}, and the rows are {found}.{hint}")
    if kind == "graph":
        graphs.check_values(config.backbone_config, [rows], "`checkpoint`")
    with data.bars():
        prepared = prepared_rows(rows, predictor.processor, options.max_length, predictor.model)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        arguments = DomainTrainingArguments(
            folder,
            per_device_eval_batch_size=options.batch_size,
            dataloader_pin_memory=torch.cuda.is_available(),
            report_to=[],
            disable_tqdm=True,
        )
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
    with contextlib.ExitStack() as stack:
        out: Any = sys.stdout
        if options.output:
            out = stack.enter_context(open(options.output, "w", encoding="utf-8", newline=""))
        write = _csv_writer(out) if str(options.output).endswith(".csv") else _json_writer(out)
        # Lines are written batch by batch: rows may be many.
        for start in range(0, len(rows), options.batch_size):
            several = rows[start : start + options.batch_size]
            predictions = predictor.predict(several, options.batch_size, options.max_new_tokens)
            for number, (row, prediction) in enumerate(zip(several, predictions, strict=True), start):
                write(number, as_line(row, prediction, options.top_k))
    return 0


def _json_writer(out) -> Callable[[int, dict], Any]:
    return lambda number, line: out.write(json.dumps(line, ensure_ascii=False) + "\n")


def _csv_writer(out) -> Callable[[int, dict], Any]:
    """A header, and lines that begin with the number of the row. Lists are JSON."""
    writer = csv.writer(out)

    def write(number: int, line: dict) -> None:
        line = {"row": number, **line}
        if number == 0:
            writer.writerow(line)
        cells = (json.dumps(cell, ensure_ascii=False) if isinstance(cell, list) else cell for cell in line.values())
        writer.writerow(cells)

    return write


def as_line(row: Mapping[str, Any], prediction: Prediction, top_k: int = 1) -> dict[str, Any]:
    """A row and its prediction as one JSON line. `top_k`: labels that are given, 0 for all."""
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
    labels = [{"label": label, "score": round(score, 6)} for label, score in prediction.scores[: top_k or None]]
    return {**shown, **labels[0], **({"labels": labels} if top_k != 1 else {})}
