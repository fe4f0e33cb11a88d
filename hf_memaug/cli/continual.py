# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-memaug continual`: one model that takes in domain after domain, by several strategies and seeds."""

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hf_memaug.cli.compare import (
    check_options,
    check_two_classes,
    end_run,
    list_jobs,
    metrics_of,
    say_what_is_missing,
    seeds_of,
)
from hf_memaug.cli.display import Display
from hf_memaug.cli.recipes import used_settings
from hf_memaug.data import DomainDataset, split_domains
from hf_memaug.data.messages import did_you_mean, listed
from hf_memaug.evaluation import DEFINITIONS, score_table
from hf_memaug.evaluation.continual import LOWER_IS_BETTER
from hf_memaug.files import write_atomically
from hf_memaug.registry import FAMILIES
from hf_memaug.reporting.results import write_results
from hf_memaug.runs import rows as data
from hf_memaug.runs.backbones import check_model, check_training, has_history
from hf_memaug.runs.cards import data_name, kept_whole, metric_name, plain_card, run_card
from hf_memaug.runs.errors import CommandError, DataRefused, UsageError
from hf_memaug.runs.folder import RESULTS, RunFolder, warn
from hf_memaug.runs.graphs import check_backbone, check_values
from hf_memaug.runs.methods import (
    Chosen,
    check_file_of_vectors,
    check_general,
    check_growth,
    check_method,
    check_vectors,
    chosen,
    divide_strategy_options,
)
from hf_memaug.runs.processors import load_processor, processor_of
from hf_memaug.runs.results import DATA_FILE, RUN_FILE
from hf_memaug.runs.rows import NO_TARGET
from hf_memaug.runs.runner import run_jobs
from hf_memaug.runs.settings import Setting, model_settings, option_name, trainer_settings
from hf_memaug.runs.tasks import QUESTIONS, REPLIES, TAGS, TASKS, check_columns, check_task, check_types, trainer_of
from hf_memaug.training.continual import STRATEGIES
from hf_memaug.training.continual.record import RECORD_FILE
from hf_memaug.training.continual.rows import check_all_labels
from hf_memaug.training.sweep.plan import file_name

SET_HERE = {"strategy": "give `--strategies`", "domains": "give `--order`", "matrix_metric": "give `--metric`"}


def continual(call) -> int:
    options = call.options
    check_task(options.task)
    check_columns(options)
    options.metric = options.metric or (metrics_of(options.task)[0] if options.task in TASKS else "accuracy")
    check_options(options)
    strategies = list(dict.fromkeys(options.strategies))
    for strategy in strategies:
        if strategy not in STRATEGIES:
            raise UsageError(f"There is no strategy {strategy!r}. {did_you_mean(strategy, STRATEGIES)}")
    one = chosen(options.method)
    if one.method.trainer != "domain" or one.algorithm != "erm":
        raise UsageError(f"`--method` is {options.method!r}: here `--strategies` say what is minimised. Name a model.")
    known = one.fields_with("continual")
    for name, mend in SET_HERE.items():
        given = any(name in several for several in (call.resolved.settings, *call.resolved.method_settings.values()))
        if given and name not in _of_model(one):
            raise UsageError(f"`{option_name(name)}` is set by the command: {mend}.")
    settings = used_settings(call.resolved, strategies, dict.fromkeys(strategies, known))
    divide_strategy_options(settings, call.resolved.method_settings)
    for name, setting in _of_model(one).items():
        for own in settings.values():
            if name in SET_HERE and name in own:
                own[name] = setting.convert(own[name])
    source = data.source_of(options)
    rows, held_out = data.load(source)
    order = list(options.order or rows.domains)
    for name in order:
        if name not in rows.domains:
            raise UsageError(f"`--order` names {name!r}. {did_you_mean(name, rows.domains)}")
    _check_model(options, one, strategies, [part for part in (rows, held_out) if part is not None], settings, order)
    if not 0 <= options.dev_fraction < 1:
        raise UsageError(f"`--dev-fraction` is {options.dev_fraction}; it must be 0 or more, and less than 1.")
    seeds = seeds_of(options.seeds)
    parts = _parts(source, order, options.holdout, options.dev_fraction, seeds[0], options.on_overlap)
    if options.task == TAGS:
        _check_tags(options.backbone, parts)
    elif data.kind_of(rows) not in TASKS:
        _check_labels(parts["train"])
    if options.metric == "auroc":
        check_two_classes({NO_TARGET: {name: _joined(of) for name, of in parts.items()}})
    specs = _plan(options, strategies, seeds, order, source, settings)
    folder = RunFolder(options.output or "runs/continual")
    display = Display(options.metric, options.quiet, options.json, strategies, list(DEFINITIONS))
    if options.dry_run:
        return list_jobs(specs, folder, display)
    with folder.locked():
        done = folder.check_jobs(specs)
        warn(folder.warnings)
        if len(done) < len(specs) and not has_history(options.backbone):
            for of in settings.values():
                check_model(one, options.backbone, rows, _configuration(of), options.general)
        if len(done) < len(specs):
            check_training(specs, lambda spec: _training_arguments(spec, folder.path))
        facts = {"task": "continual", "rows": data.kind_of(rows)}
        facts |= {"methods": strategies, "targets": order, "seeds": seeds}
        facts |= {"metric": options.metric, "labels": rows.label_names}
        recipe = {**call.resolved.recipe(call.command), "data": source["data"]}
        folder.begin(call.line, recipe, **facts)
        described = data.describe(source, {})
        for name in order:
            described["domains"][name] |= {"train": len(parts["train"][name]), "test": len(parts["test"][name])}
        folder.write(DATA_FILE, described)
        say_what_is_missing(display)
        failed = run_jobs(specs, folder, display, options.jobs, options.processes)
        return _finish(call, folder, display, failed, source)


def _parts(
    source: Mapping[str, Any],
    order: list[str],
    holdout: float,
    dev_fraction: float = 0.0,
    seed: int = 0,
    on_overlap: str = "raise",
) -> dict[str, dict]:
    """`{"train", "dev", "test"}`, each by domain; "dev" is empty where nothing is chosen."""
    rows, held_out = data.load(source)
    try:
        if held_out is not None:
            rows = data.without_overlap(rows, held_out, on_overlap)
            train, test = ({name: part.domain(name) for name in order} for part in (rows, held_out))
        else:
            split = {name: split_domains(rows.domain(name), holdout)[name] for name in order}
            train, test = ({name: part[side] for name, part in split.items()} for side in (0, 1))
        dev = {}
        if dev_fraction:
            # Other rows for another seed; the same for all strategies.
            halves = {name: split_domains(test[name], 1 - dev_fraction, seed)[name] for name in order}
            dev, test = ({name: part[side] for name, part in halves.items()} for side in (0, 1))
    except ValueError as error:
        raise DataRefused(data.as_options(error)) from error
    dev, test = ({name: data.shuffled(part) for name, part in several.items()} for several in (dev, test))
    return {"train": train, "dev": dev, "test": test}


def _check_labels(train: Mapping[str, DomainDataset]) -> None:
    try:
        check_all_labels(train, None)
    except ValueError as error:
        raise DataRefused(str(error).replace("`train_dataset`", "`--data`")) from error


def _joined(several: Mapping[str, DomainDataset]) -> DomainDataset | None:
    return DomainDataset.concatenate(list(several.values())) if several else None


def _of_model(one: Chosen) -> Mapping[str, Setting]:
    """The fields of a model's configuration; one that the command sets for the trainer is the model's alone."""
    return model_settings(one.method.family) if one.method.family else {}


def _check_model(
    options, one: Chosen, strategies: list[str], every: list[DomainDataset], settings, order: list[str]
) -> None:
    """Refuses a model for rows that it cannot read, and strategies that it cannot be trained by."""
    kind = data.kind_of(every[0])
    if kind == QUESTIONS and "progressive" in strategies:
        raise UsageError(
            "`--strategies` has 'progressive', which joins columns at the logits of labels, and the rows are "
            "questions. Choose another, such as ewc."
        )
    if not has_history(options.backbone):
        check_backbone(options.backbone, kind, every, settings)
        check_method(one, kind, len(every[0].domains), options.general)
        check_general(options.general, one)
        check_vectors(options.vectors, one)
        for strategy in strategies:
            check_growth(one, strategy, STRATEGIES[strategy].needs)
        return
    from hf_memaug.inference.checkpoints import checked_kind, read_config
    from hf_memaug.runs.resumable import check_can_grow, check_resumable

    if options.general is not None:
        raise UsageError("`--general`: `--backbone` was trained before, and all that it reads is in it. Leave it out.")
    if options.vectors and not any("word_vectors" in STRATEGIES[strategy].options for strategy in strategies):
        raise UsageError(
            "`--vectors` are for fresh words, and `--backbone` was trained before: leave them out, or choose a "
            "strategy that adds words, such as f+v."
        )
    check_file_of_vectors(options.vectors)
    shaping = [name for strategy in strategies for name in _configuration(settings[strategy])]
    if shaping:
        raise UsageError(
            f"`{option_name(shaping[0])}` shapes a fresh model, and `--backbone` was trained before: it stays "
            "as it is. Leave it out."
        )
    config = read_config(options.backbone, "--backbone")
    reads = checked_kind(config, options.backbone, "--backbone")
    family = one.method.family
    row = FAMILIES.get(family)
    if row is not None and type(config).__module__ != row.load(row.config).__module__:
        raise UsageError(
            f"`--method` is {options.method!r}, and `--backbone` was trained before as a `{config.model_type}`, which "
            "it stays. Leave `--method` out."
        )
    if reads != kind:
        raise UsageError(
            f"`--backbone` was trained before, on {data.in_words(reads)}, and the rows are "
            f"{data.in_words(kind)}. Give rows as those, or another backbone."
        )
    check_resumable(options.backbone, config, strategies, options.metric)
    for strategy in strategies:
        check_can_grow(config, strategy, STRATEGIES[strategy].needs)
    if kind == "graph":
        read = [part.domain(name) for part in every for name in order if name in part.domains]
        check_values(config.backbone_config, read, f"`--backbone` {options.backbone}")
    else:
        load_processor(kind, options.backbone, "--backbone")


def _check_tags(backbone: str, parts: Mapping[str, Mapping[str, DomainDataset]]) -> None:
    """Refuses entities that the rows to train on have not; of a model that goes on, tags that it has not."""
    from hf_memaug.training import ContinualRecord

    joined = {name: _joined(of) for name, of in parts.items() if of}
    try:
        if not (Path(backbone) / RECORD_FILE).is_file():
            check_types(joined.pop("train"), **joined)
            return
        known = ContinualRecord.load(backbone).labels
        found = dict.fromkeys(tag for part in joined.values() for tags in part["tags"] for tag in tags)
        unknown = [tag for tag in found if tag not in known]
        if unknown:
            raise ValueError(
                f"`source` has the tags {listed(unknown)}, and `--backbone` was trained with {listed(known)}: its head "
                "does not grow. Take those rows out, or begin with all of the domains."
            )
    except ValueError as error:
        raise DataRefused(data.as_options(error)) from error


def _plan(options, strategies, seeds, order, source, settings) -> list[dict]:
    fingerprint = data.fingerprint(source)[:16]
    backbone = options.backbone if not Path(options.backbone).exists() else str(Path(options.backbone).resolve())
    shared = {
        "metric": options.metric,
        "holdout": options.holdout,
        "max_length": options.max_length,
        "processes": options.processes,
        "order": order,
        **({"dev_fraction": options.dev_fraction} if options.dev_fraction else {}),
    }
    named = {name: Path(getattr(options, name)).name for name in ("vectors", "general") if getattr(options, name)}
    return [
        {
            "kind": "continual",
            "job": {
                "method": strategy,
                "target": NO_TARGET,
                "seed": seed,
                "backbone": Path(options.backbone).name,
                "model": options.method,
                "data": fingerprint,
                **shared,
                **named,
                **settings[strategy],
            },
            "name": f"{file_name(strategy)}-seed{seed}",
            **shared,
            "model": options.method,
            "backbone": backbone,
            "general": options.general,
            "on_overlap": options.on_overlap,
            "vectors": options.vectors and str(Path(options.vectors).resolve()),
            "source": dict(source),
            "settings": dict(settings[strategy]),
            "keep": options.keep,
        }
        for seed in seeds
        for strategy in strategies
    ]


def _training_arguments(spec: Mapping[str, Any], folder: Path):
    from hf_memaug.runs.job import common_arguments
    from hf_memaug.training import ContinualTrainingArguments

    job, of_model = spec["job"], _configuration(spec["settings"])
    given = {name: value for name, value in spec["settings"].items() if name not in of_model}
    common = common_arguments(folder, job["seed"])
    protocol = {
        "strategy": job["method"],
        "domains": spec["order"],
        "matrix_metric": spec["metric"],
        "max_length": spec["max_length"],
        "save_strategy": "epoch",
        "logging_steps": 10,
    }
    if spec.get("dev_fraction"):
        best = {"load_best_model_at_end": True, "metric_for_best_model": f"eval_{spec['metric']}"}
        protocol |= {"eval_strategy": "epoch", **best}
    if spec.get("vectors") and "word_vectors" in STRATEGIES[job["method"]].options:
        # The words that a domain adds have vectors of the same file, unless the strategy is told otherwise.
        given["strategy_kwargs"] = {"word_vectors": spec["vectors"], **_options(given.get("strategy_kwargs"))}
    try:
        return ContinualTrainingArguments(**{**common, **protocol, **given})
    except (TypeError, ValueError) as error:
        raise CommandError(str(error)) from error


def continual_job(spec: Mapping[str, Any], run: Path, say, stop) -> dict:
    """A job: all domains in their order by one strategy."""
    from transformers import PrinterCallback, set_seed

    from hf_memaug.runs.job import keep_facts
    from hf_memaug.runs.progress import Steps
    from hf_memaug.training.costs import parameter_counts

    job, folder = spec["job"], run / "jobs" / spec["name"]
    rest = (spec["holdout"], spec.get("dev_fraction", 0.0), job["seed"], spec["on_overlap"])
    parts = _parts(spec["source"], spec["order"], *rest)
    arguments = _training_arguments(spec, folder)
    set_seed(job["seed"])
    model, processor, history = _model(spec, parts, _configuration(spec["settings"]), run)
    # Domains that it was trained on before are scored too, where there are rows of them.
    earlier = [name for name in _trained(model, history) if name in data.load(spec["source"])[0].domains]
    scored = (_parts(spec["source"], earlier, *rest)["test"] if earlier else {}) | parts["test"]
    kind = data.kind_of(next(iter(scored.values())))
    labels = [model.config.id2label[number] for number in range(model.config.num_labels)]
    if kind in (TAGS, QUESTIONS):
        parts, scored = (
            {name: _as_tokens(of, kind, labels, model, processor, spec["max_length"]) for name, of in parts.items()},
            _as_tokens(scored, kind, labels, model, processor, spec["max_length"]),
        )
    trainer = trainer_of(kind, continual=True)(
        model=model,
        args=arguments,
        train_dataset=parts["train"],
        eval_dataset=parts["dev"] or None,
        test_dataset=scored,
        processing_class=processor,
        callbacks=[Steps(say, stop, folder / "metrics.jsonl")],
        history=history,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=(Path(arguments.output_dir) / RECORD_FILE).is_file() or None)
    figures = trainer.figures()
    record = {
        "validation": _points(figures["acc"]),
        "scores": {
            name: {spec["metric"]: 100 * value}
            for name, value in trainer.record.final_scores().items()
            if not math.isnan(value)
        },
        "settings": {**spec["settings"], "steps": trainer.state.global_step},
        "matrix": {
            "domains": trainer.record.domains,
            "trained_on": trainer.record.row_names,
            "rows": [[_points(value) for value in row] for row in trainer.record.matrix()],
            "baseline": {name: _points(value) for name, value in trainer.record.baseline.items()},
            **{name: _points(value) for name, value in figures.items()},
        },
        **parameter_counts(trainer.model),
        "checkpoint": None,
    }
    if spec["keep"] != "none":
        _keep(trainer, folder / "checkpoint", spec, record["scores"])
        record["checkpoint"] = f"jobs/{spec['name']}/checkpoint"
    if kind != REPLIES:
        keep_facts(trainer, folder, list(scored.values()), spec["max_length"])
    if trainer.is_world_process_zero():
        shutil.rmtree(arguments.output_dir, ignore_errors=True)
    return record


def _as_tokens(
    several: Mapping[str, DomainDataset], kind: str, labels, model, tokenizer, max_length: int | None
) -> dict[str, DomainDataset]:
    """Rows of tags, with the ids that the model has for them, and of questions as tokens."""
    from hf_memaug.runs.job import check_lengths, prepare

    found = {}
    for name, rows in several.items():
        if kind == TAGS:
            rows = DomainDataset({one: rows[one] for one in rows.column_names}, labels)
        found[name] = prepare(rows, tokenizer, max_length)
    check_lengths(model, *found.values())
    return found


def _configuration(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of a job's settings, those that shape the model: the trainer's that the command sets cannot be given."""
    trainer = trainer_settings("continual").keys() - SET_HERE.keys()
    return {name: value for name, value in settings.items() if name not in trainer}


def _options(given: dict | str | None) -> dict:
    return json.loads(given) if isinstance(given, str) else dict(given or {})


def _points(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else 100 * value


def _model(spec: Mapping[str, Any], parts: Mapping[str, Mapping], settings: Mapping[str, Any], run: Path):
    """(model, processor, history): a fresh one, or one that has taken in domains before, with what it remembers."""
    from hf_memaug.runs.methods import Parts, local_backbone

    one = chosen(spec["model"])
    first, others = parts["train"][spec["order"][0]], [part for part in data.load(spec["source"]) if part is not None]
    backbone = local_backbone(spec["backbone"], first, spec["order"][0], run)
    if has_history(backbone):
        from hf_memaug.inference import load_predictor

        loaded = load_predictor(backbone, "--backbone", dtype="auto", device="cpu")
        return loaded.model, loaded.processor, backbone if (Path(backbone) / RECORD_FILE).is_file() else None
    general, vectors = spec.get("general"), spec.get("vectors")
    processor = processor_of(one, backbone, first, general, settings)
    return one.method.build(Parts(backbone, first, processor, general, settings, others, vectors)), processor, None


def _trained(model, history: str | None) -> list[str]:
    from hf_memaug.training import ContinualRecord

    known = history or (getattr(model.config, "run_facts", None) or {}).get("continual", {})
    return ContinualRecord.load(known).trained


def _keep(trainer, folder: Path, spec: Mapping[str, Any], scores: Mapping[str, Mapping[str, float]]) -> None:
    """Weights, processor, card, the matrix, and what the strategy needs to go on another time."""
    from hf_memaug.hub.provenance import record_run

    name, trained = data_name(spec["source"]["data"]), trainer.record.trained
    has_facts = hasattr(trainer.model.config, "run_facts")
    if has_facts:
        record_run(trainer.model, data=name, domains=trained)
    with kept_whole(trainer, folder) as half:
        trainer._save_stage(half)
        if has_facts:
            trainer.create_model_card(model_name=spec["name"])
        elif trainer.is_world_process_zero():
            shown = metric_name(spec["metric"], spec["source"].get("task"))
            found = [
                {"domain": domain, "split": "test", "metric": shown, "value": of[spec["metric"]]}
                for domain, of in scores.items()
            ]
            write_atomically(half / "README.md", plain_card(trainer.model, spec, found, trained, None, name))


def _finish(call, folder: RunFolder, display: Display, failed, source: Mapping[str, Any]) -> int:
    records = folder.records()
    name, metric = data_name(source["data"]), call.options.metric
    rows = [
        {
            "method": record["job"]["method"],
            "data": name,
            "target": domain,
            "backbone": record["job"]["backbone"],
            "seed": record["job"]["seed"],
            "metric": metric_name(metric, call.options.task),
            "value": round(scores[metric], 4),
        }
        for record in records
        for domain, scores in record["scores"].items()
    ]
    if rows:
        write_results(folder.path / RESULTS, table=f"continual on {name}", command=call.line, rows=rows)
        summary: dict[str, dict[str, list]] = {}
        for record in records:
            cells = summary.setdefault(record["job"]["method"], {})
            for domain, scores in record["scores"].items():
                cells.setdefault(domain, []).append(scores[metric])
            for figure in DEFINITIONS:
                if record["matrix"].get(figure) is not None:
                    cells.setdefault(figure, []).append(record["matrix"][figure])
        columns = list(dict.fromkeys(column for cells in summary.values() for column in cells))
        lower = set(LOWER_IS_BETTER) & set(columns)
        tables = {
            style: score_table(summary, columns, points=False, style=style, lower_is_better=lower, header="strategy")
            for style in ("text", "markdown")
        }
        notes = ["; ".join(f"{figure}: {DEFINITIONS[figure]}" for figure in DEFINITIONS if figure in columns) + "."]
        if call.options.task in TASKS:
            notes.append(f"{TASKS[call.options.task].what}.")
        display.text(f"\n{metric} at the end, in points\n{tables['text']}")
        card = run_card(folder.read(RUN_FILE), folder.read(DATA_FILE), tables["markdown"], notes)
        write_atomically(folder.path / "README.md", card)
    return end_run(folder, display, len(records), failed, rows)
