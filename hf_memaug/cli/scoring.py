# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-memaug evaluate` and `hf-memaug predict`: a checkpoint on rows, with and without labels."""

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hf_memaug.cli import graphs
from hf_memaug.cli import rows as data
from hf_memaug.cli.errors import DataRefused, UsageError
from hf_memaug.data import graph_from_smiles, load_graphs
from hf_memaug.data.messages import did_you_mean, table
from hf_memaug.data.readers import IMAGE_SUFFIXES, read_table, table_suffix
from hf_memaug.files import write_atomically


def load_checkpoint(name: str):
    """(model, tokenizer or image processor or None, what it reads: "text", "image" or "graph")."""
    from transformers import (
        AutoConfig,
        AutoImageProcessor,
        AutoModelForImageClassification,
        AutoModelForSequenceClassification,
        AutoTokenizer,
        logging,
    )

    from hf_memaug import HMAForGraphClassification  # registers the families too

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise UsageError(f"`checkpoint` {name!r} cannot be loaded: {str(error).splitlines()[0]}") from None
    names = "".join(config.architectures or ())
    kind = "image" if "Image" in names else "graph" if "Graph" in names else "text"
    if not any("Classification" in one for one in config.architectures or ()):
        raise UsageError(
            f"`checkpoint` {name!r} is a {', '.join(config.architectures or ['model without a class'])}, which is no "
            "classifier. Train one with `hf-memaug train`."
        )
    if kind == "graph":
        return HMAForGraphClassification.from_pretrained(name), None, kind
    model_class, processor_class = (
        (AutoModelForImageClassification, AutoImageProcessor)
        if kind == "image"
        else (AutoModelForSequenceClassification, AutoTokenizer)
    )
    return model_class.from_pretrained(name), processor_class.from_pretrained(name), kind


def evaluate(call) -> int:
    import torch
    from transformers import PrinterCallback

    from hf_memaug.training import DomainTrainer, DomainTrainingArguments

    options = call.options
    source = data.source_of(options)
    model, processor, kind = load_checkpoint(call.arguments["checkpoint"])
    labels = [model.config.id2label[number] for number in range(model.config.num_labels)]
    rows = data.load_labelled(source, labels)
    if data.kind_of(rows) != kind:
        molecules = kind == "graph" and graphs.reads_molecules(model.config)
        mend = " Name the column with the molecules as `--smiles`." if molecules else ""
        raise UsageError(f"`checkpoint` reads {kind}s, and the rows are {data.kind_of(rows)}s.{mend}")
    if kind == "graph":
        graphs.check_values(model.config.backbone_config, [rows], "`checkpoint`")
    if kind == "text":
        with data.bars():
            rows = rows.tokenize(processor, options.max_length)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        arguments = DomainTrainingArguments(
            folder,
            per_device_eval_batch_size=options.batch_size,
            dataloader_pin_memory=torch.cuda.is_available(),
            report_to=[],
            disable_tqdm=True,
        )
        trainer = DomainTrainer(model, arguments, eval_dataset=rows, processing_class=processor)
        trainer.remove_callback(PrinterCallback)
        from hf_memaug.cli.job import scores_of

        scores = scores_of(trainer, rows)
    # Of those that some domains have not, for lack of a class, there is no average.
    metrics = [metric for metric in next(iter(scores.values())) if all(metric in one for one in scores.values())]
    average = {metric: sum(one[metric] for one in scores.values()) / len(scores) for metric in metrics}
    counts = {name: sum(by_label.values()) for name, by_label in rows.counts().items()}
    found = {
        "checkpoint": call.arguments["checkpoint"],
        "data": source["data"],
        "hash": rows.fingerprint() if kind != "image" else None,
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
        print("in points; the average is over the domains")
        print(table(["domain", "rows", *("macro_f1" if metric == "f1" else metric for metric in metrics)], lines))
    return 0


def predict(call) -> int:
    from transformers import pipeline

    options = call.options
    given = call.arguments["inputs"] or []
    if bool(given) == (options.data is not None):
        raise UsageError("Give texts, or images, behind the checkpoint, or rows with `--data`: one of the two.")
    model, processor, kind = load_checkpoint(call.arguments["checkpoint"])
    top_k = options.top_k or model.config.num_labels
    inputs = list(_graph_inputs(options, given, model.config) if kind == "graph" else _inputs(options, given, kind))
    if not inputs:
        raise DataRefused(f"`--data` {options.data} has no row.")
    if kind == "graph":
        several = [one.pop("graph") for one in inputs]
        answers = graphs.classify_graphs(model, several, options.batch_size, top_k)
    elif kind == "image":
        from hf_memaug.data import decode_image

        classify = pipeline("image-classification", model=model, image_processor=processor)
        try:
            pictures = [decode_image(one["image"]) for one in inputs]
        except (ValueError, OSError) as error:
            raise DataRefused(str(error)) from error
        answers = classify(pictures, batch_size=options.batch_size, top_k=top_k)
    else:
        classify = pipeline("text-classification", model=model, tokenizer=processor)
        answers = classify(inputs, batch_size=options.batch_size, top_k=top_k, truncation=True)
    with open(options.output, "w", encoding="utf-8") if options.output else contextlib.nullcontext(sys.stdout) as out:
        for one, answer in zip(inputs, answers, strict=True):
            shown = {name: value for name, value in one.items() if isinstance(value, (str, int))}
            best = {"label": answer[0]["label"], "score": round(answer[0]["score"], 6)}
            every = [{"label": one["label"], "score": round(one["score"], 6)} for one in answer]
            line = {**shown, **best, **({"labels": every} if top_k > 1 else {})}
            out.write(json.dumps(line, ensure_ascii=False) + "\n")
    return 0


def _graph_inputs(options: Any, given: list[str], config) -> Iterator[dict[str, Any]]:
    """Rows with `graph`, and with what they are shown by: their SMILES, or their number."""
    molecules = graphs.reads_molecules(config)
    if not molecules and (given or options.data == "-"):
        raise UsageError("`checkpoint` reads graphs that are no molecules: give a file of them with `--data`.")
    if molecules:
        if given:
            texts = given
        elif options.data == "-" or Path(options.data).suffix == ".txt":
            texts = [row["text"] for row in _inputs(options, given, "text")]
        else:
            wanted = SimpleNamespace(data=options.data, text=options.smiles, text_pair=None)
            texts = [row["text"] for row in _inputs(wanted, given, "text")]
        try:
            for text in texts:
                yield {"smiles": text, "graph": graph_from_smiles(text)}
        except (ValueError, ImportError) as error:
            raise DataRefused(str(error)) from error
        return
    try:
        rows = load_graphs({data.data_name(options.data): options.data}, label=None)
    except (ValueError, OSError) as error:
        raise DataRefused(data.as_options(error)) from error
    graphs.check_values(config.backbone_config, [rows], "`checkpoint`")
    yield from ({"row": number, "graph": graph} for number, graph in enumerate(rows["graph"]))


def _inputs(options: Any, given: list[str], kind: str) -> Iterator[dict[str, Any]]:
    is_image = kind == "image"
    if given:
        for one in given:
            yield {"image": one} if is_image else {"text": one}
        return
    path = Path(options.data)
    if not is_image and (options.data == "-" or path.suffix == ".txt"):
        try:
            lines = sys.stdin.read() if options.data == "-" else path.read_text(encoding="utf-8")
        except OSError as error:
            raise DataRefused(f"`--data` {path} cannot be read: {error.strerror or error}.") from None
        yield from ({"text": line.strip()} for line in lines.splitlines() if line.strip())
        return
    if not path.exists():
        raise DataRefused(f"`--data`: there is no {options.data!r}.")
    if is_image and path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
        yield from ({"image": str(file)} for file in files)
        return
    if is_image and table_suffix(path) is None:
        yield {"image": str(path)}
        return
    yield from _table_rows(path, options, is_image)


def _table_rows(path: Path, options: Any, is_image: bool) -> Iterator[dict[str, Any]]:
    try:
        columns = read_table(path)
    except (ValueError, OSError) as error:
        raise DataRefused(data.as_options(error)) from error
    wanted = {"image": "image"} if is_image else {"text": options.text}
    if options.text_pair is not None:
        wanted["text_pair"] = options.text_pair
    for name in wanted.values():
        if name not in columns:
            raise DataRefused(f"`--data` {path} has no column {name!r}. {did_you_mean(name, columns)}")
    for values in zip(*(columns[name] for name in wanted.values()), strict=True):
        row = dict(zip(wanted, values, strict=True))
        if is_image and isinstance(row["image"], dict):
            row["image"] = row["image"].get("bytes") or row["image"].get("path")
        yield row
