# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-memaug evaluate` and `hf-memaug predict`: a checkpoint on rows, with and without labels."""

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hf_memaug.data import graph_from_smiles, load_graphs
from hf_memaug.data.messages import did_you_mean, table
from hf_memaug.data.readers import IMAGE_SUFFIXES, read_table, table_suffix
from hf_memaug.files import write_atomically
from hf_memaug.runs import graphs
from hf_memaug.runs import rows as data
from hf_memaug.runs.cards import metric_name
from hf_memaug.runs.errors import DataRefused, UsageError
from hf_memaug.runs.methods import auto_class_of
from hf_memaug.runs.processors import load_processor
from hf_memaug.runs.tasks import CLASSES, QUESTIONS, REPLIES, TAGS, TASKS, check_columns, trainer_of

# Part of the name of a class, and what it does.
OF_ARCHITECTURE = {"TokenClassification": TAGS, "QuestionAnswering": QUESTIONS, "ConditionalGeneration": REPLIES}

INFERENCE = ("batch", "independent")


def config_of(name: str, option: str = "checkpoint"):
    """The configuration of a checkpoint that `option` names."""
    from transformers import AutoConfig

    import hf_memaug  # noqa: F401  (registers the families)

    try:
        return AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        if "progressive_columns" in str(error):
            raise UsageError(
                f"`{option}` {name!r} holds the columns of progressive networks, which have no `Auto` class: load it "
                "with `hf_memaug.training.continual.progressive.ProgressiveColumns`, or choose another strategy."
            ) from None
        raise UsageError(f"`{option}` {name!r} cannot be loaded: {str(error).splitlines()[0]}") from None


def read_by(config) -> str:
    """What a checkpoint reads: "text", "image", "graph", or a task of `TASKS`."""
    names = "".join(config.architectures or ())
    kind = "image" if "Image" in names else "graph" if "Graph" in names else "text"
    return next((of for part, of in OF_ARCHITECTURE.items() if part in names), kind)


def check_growth_of(config, strategy: str, verbs: Sequence[str]) -> None:
    """Refuses a strategy that makes a model larger, for a checkpoint that cannot grow."""
    import transformers

    import hf_memaug

    for name in config.architectures or ():
        model = getattr(hf_memaug, name, None) or getattr(transformers, name, None)
        if model is not None and not all(hasattr(model, verb) for verb in verbs):
            raise UsageError(
                f"`--strategies` has {strategy!r}, which makes a model larger, and `--backbone` is a `{name}`, which "
                "does not grow so. Choose another strategy, such as ewc."
            )


def check_goes_on(backbone: str, config, strategies: Sequence[str], metric: str) -> None:
    """Refuses a strategy, or a metric, by which a model that was trained before cannot go on."""
    from hf_memaug.training import ContinualRecord
    from hf_memaug.training.continual import STRATEGIES
    from hf_memaug.training.continual.record import RECORD_FILE

    folder = Path(backbone)
    has_file = (folder / RECORD_FILE).is_file()
    record = ContinualRecord.load(folder if has_file else config.run_facts["continual"])
    if record.metric != metric:
        raise UsageError(f"`--metric` is {metric!r}, and the matrix of `--backbone` is of {record.metric}: give that.")
    for name in strategies:
        strategy = STRATEGIES[name]
        if strategy.kind != "sequence" or record.kind != "sequence":
            wrong = f"`--strategies` has {name!r}" if strategy.kind != "sequence" else "`--backbone` is of a run"
            raise UsageError(
                f"{wrong}, whose scores make no matrix that goes on. Choose a strategy such as f, and a model that one "
                "has trained; or give a `--backbone` that was not trained before."
            )
        places = (folder, folder.parent, *folder.glob("_stages/*"))
        if strategy.needs_state and not any((place / strategy.state_file).is_file() for place in places):
            before = record.strategy.get("name")
            again = f"choose {before} again" if before != name else "give the folder that the earlier run left it in"
            raise UsageError(
                f"`--strategies` has {name!r}, which goes on from `{strategy.state_file}`, and `--backbone`, trained "
                f"by {before}, has none: {again}, or choose a strategy that remembers nothing, such as f."
            )


def _check_inference(config, inference: str | None) -> None:
    """Refuses a way to read rows that a checkpoint does not have."""
    if inference is not None and getattr(config, "how_read", None) is None:
        raise UsageError(
            "`--inference` is for a model of HMA whose rows read each other, and `checkpoint` is none. Leave it out."
        )
    if inference not in (None, *INFERENCE):
        raise UsageError(f"`--inference` is {inference!r}. {did_you_mean(inference, INFERENCE)}")


def load_checkpoint(name: str, inference: str | None = None):
    """(model, tokenizer or image processor or None, what it reads: "text", "image", "graph", or a task of `TASKS`)."""
    model, processor, kind = _loaded(name, inference)
    if inference is not None:
        model.config.inference = inference
    return model, processor, kind


def _loaded(name: str, inference: str | None):
    import transformers
    from transformers import logging

    from hf_memaug import HMAForGraphClassification

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    config = config_of(name)
    kind = read_by(config)
    _check_inference(config, inference)
    if kind not in TASKS and "Classification" not in "".join(config.architectures or ()):
        raise UsageError(
            f"`checkpoint` {name!r} is a {', '.join(config.architectures or ['model without a class'])}, which is no "
            "classifier, and does no other task. Train one with `hf-memaug train`."
        )
    if kind == "graph":
        return HMAForGraphClassification.from_pretrained(name), None, kind
    model_class = getattr(transformers, auto_class_of(kind))
    processor = load_processor(kind, name, "checkpoint")
    return model_class.from_pretrained(name), processor, kind


def evaluate(call) -> int:
    import torch
    from transformers import PrinterCallback

    from hf_memaug.training import DomainTrainingArguments

    options = call.options
    model, processor, kind = load_checkpoint(call.arguments["checkpoint"], options.inference)
    options.task = kind if kind in TASKS else CLASSES
    check_columns(options)
    source = data.source_of(options)
    labels = [model.config.id2label[number] for number in range(model.config.num_labels)]
    rows = data.load_labelled(source, labels)
    if data.kind_of(rows) != kind:
        molecules = kind == "graph" and graphs.reads_molecules(model.config)
        mend = " Name the column with the molecules as `--smiles`." if molecules else ""
        found = data.in_words(data.kind_of(rows))
        raise UsageError(f"`checkpoint` reads {data.in_words(kind)}, and the rows are {found}.{mend}")
    if kind == "graph":
        graphs.check_values(model.config.backbone_config, [rows], "`checkpoint`")
    from hf_memaug.runs.job import check_lengths, prepare, scores_of

    with data.bars():
        prepared = prepare(rows, processor, options.max_length)
    check_lengths(model, prepared)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        arguments = DomainTrainingArguments(
            folder,
            per_device_eval_batch_size=options.batch_size,
            dataloader_pin_memory=torch.cuda.is_available(),
            report_to=[],
            disable_tqdm=True,
        )
        trainer = trainer_of(kind)(model, arguments, eval_dataset=prepared, processing_class=processor)
        trainer.remove_callback(PrinterCallback)
        # The rows are in a random order, and their domains with them.
        scores = dict(sorted(scores_of(trainer, prepared).items()))
    # Of those that some domains have not, for lack of a class, there is no average.
    metrics = [metric for metric in next(iter(scores.values())) if all(metric in one for one in scores.values())]
    average = {metric: sum(one[metric] for one in scores.values()) / len(scores) for metric in metrics}
    counts = {name: sum(by_label.values()) for name, by_label in rows.counts().items()}
    how_read = getattr(model.config, "how_read", None)
    found = {
        "checkpoint": call.arguments["checkpoint"],
        **({"inference": how_read} if how_read is not None else {}),
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
        read = "" if how_read is None else f"; rows were read by `--inference {how_read}`"
        print(f"in points; the average is over the domains{read}")
        print(table(["domain", "rows", *(metric_name(metric, kind) for metric in metrics)], lines))
    return 0


def predict(call) -> int:
    from transformers import pipeline

    options = call.options
    given = call.arguments["inputs"] or []
    if bool(given) == (options.data is not None):
        raise UsageError("Give texts, or images, behind the checkpoint, or rows with `--data`: one of the two.")
    model, processor, kind = load_checkpoint(call.arguments["checkpoint"], options.inference)
    if kind in TASKS:
        return _answer(options, given, model, processor, kind)
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
    with _out(options) as out:
        for one, answer in zip(inputs, answers, strict=True):
            shown = {name: value for name, value in one.items() if isinstance(value, (str, int))}
            best = {"label": answer[0]["label"], "score": round(answer[0]["score"], 6)}
            every = [{"label": one["label"], "score": round(one["score"], 6)} for one in answer]
            line = {**shown, **best, **({"labels": every} if top_k > 1 else {})}
            out.write(json.dumps(line, ensure_ascii=False) + "\n")
    return 0


def _out(options: Any):
    return open(options.output, "w", encoding="utf-8") if options.output else contextlib.nullcontext(sys.stdout)


def _answer(options: Any, given: list[str], model, processor, kind: str) -> int:
    """The lines of a task: its inputs, and what the model says to them."""
    from hf_memaug.cli.answering import answered

    rows = list(_task_inputs(options, given, kind))
    if not rows:
        raise DataRefused(f"`--data` {options.data} has no row.")
    with _out(options) as out:
        for line in answered(kind, model, processor, rows, options):
            out.write(json.dumps(line, ensure_ascii=False) + "\n")
    return 0


def _task_inputs(options: Any, given: list[str], kind: str) -> Iterator[dict[str, Any]]:
    """Rows with `tokens`, with `question` and `context`, or with the `text` that is to be replied to."""
    if kind == REPLIES:
        yield from _inputs(SimpleNamespace(data=options.data, text=options.text, text_pair=None), given, "text")
        return
    is_text = bool(given) or options.data == "-" or Path(options.data).suffix == ".txt"
    if kind == QUESTIONS and is_text:
        if len(given) != 2:
            raise UsageError(
                "`checkpoint` answers questions: give one and its context behind it, or a file with `--data`, "
                "`--question` and `--context`."
            )
        yield {"question": given[0], "context": given[1]}
        return
    if is_text:
        yield from ({"tokens": row["text"].split()} for row in _inputs(options, given, "text"))
        return
    if not Path(options.data).exists():
        raise DataRefused(f"`--data`: there is no {options.data!r}.")
    if kind == QUESTIONS:
        yield from _table_rows(Path(options.data), {"question": options.question, "context": options.context})
        return
    for number, row in enumerate(_table_rows(Path(options.data), {"tokens": options.tokens})):
        if not isinstance(row["tokens"], (list, tuple)):
            raise DataRefused(
                f"`--tokens` {options.tokens!r} must hold a list of words, and row {number} of `--data` holds "
                f"{str(row['tokens'])[:40]!r}. Write JSON lines, or lines of text in a .txt file."
            )
        yield row


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
        for number, text in enumerate(texts):
            try:
                graph = graph_from_smiles(text)
            except ImportError as error:
                raise DataRefused(str(error)) from error
            except ValueError as error:
                raise DataRefused(f"Row {number}: {error} Mend it, or leave it out.") from error
            yield {"smiles": text, "graph": graph}
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
    wanted = {"image": "image"} if is_image else {"text": options.text}
    if options.text_pair is not None:
        wanted["text_pair"] = options.text_pair
    for row in _table_rows(path, wanted):
        if is_image and isinstance(row["image"], dict):
            row["image"] = row["image"].get("bytes") or row["image"].get("path")
        yield row


def _table_rows(path: Path, wanted: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Rows with these columns of a file, under the names that they stand behind."""
    try:
        columns = read_table(path)
    except (ValueError, OSError) as error:
        raise DataRefused(data.as_options(error)) from error
    for name in wanted.values():
        if name not in columns:
            raise DataRefused(f"`--data` {path} has no column {name!r}. {did_you_mean(name, columns)}")
    for values in zip(*(columns[name] for name in wanted.values()), strict=True):
        yield dict(zip(wanted, values, strict=True))
