# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`hf-memaug continual`: one model is trained on domain after domain, by several strategies and seeds."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hf_memaug.cli import running
from hf_memaug.cli.recipes import used_settings
from hf_memaug.data import DomainDataset
from hf_memaug.evaluation import DEFINITIONS, score_table
from hf_memaug.evaluation.continual import LOWER_IS_BETTER
from hf_memaug.files import file_name
from hf_memaug.messages import did_you_mean, listed
from hf_memaug.registry import FAMILIES
from hf_memaug.reporting.results import write_results
from hf_memaug.runs import rows as data
from hf_memaug.runs.building import checkpoint_processor, has_history
from hf_memaug.runs.continual import split
from hf_memaug.runs.display import Display
from hf_memaug.runs.errors import DataRefused, UsageError
from hf_memaug.runs.folder import RESULTS_FILE, RunFolder
from hf_memaug.runs.graphs import check_backbone, check_values
from hf_memaug.runs.job import NONE, Job
from hf_memaug.runs.methods import ERM, SET_BY_OPTIONS, Chosen, check_method, check_strategy, chosen
from hf_memaug.runs.settings import option_name
from hf_memaug.runs.tasks import PLAIN_TASKS, TAGS, TASKS, check_task, check_types, in_words, kind_of
from hf_memaug.training import ContinualRecord
from hf_memaug.training.continual import STRATEGIES
from hf_memaug.training.continual.record import RECORD_FILE
from hf_memaug.training.continual.rows import check_all_labels


def continual(call) -> int:
    options = call.options
    check_task(options)
    if options.task in PLAIN_TASKS:
        raise UsageError(f"`--task` {options.task} is not supported by `continual`. Use `hf-memaug train`.")
    options.metric = options.metric or (running.metrics_of(options.task)[0] if options.task in TASKS else "accuracy")
    running.check_metric(options.task, options.metric)
    if options.vectors is not None and not Path(options.vectors).is_file():
        raise UsageError(f"`--vectors` {options.vectors} is not a file. Use one with a word and its numbers per line.")
    strategies = list(dict.fromkeys(options.strategies))
    for strategy in strategies:
        if strategy not in STRATEGIES:
            raise UsageError(f"There is no strategy {strategy!r}. {did_you_mean(strategy, STRATEGIES)}")
    one = chosen(options.method)
    if one.method.trainer != "domain" or one.algorithm != ERM:
        raise UsageError(
            f"`--method` is {options.method!r}, which is not a model. `--strategies` set how the model is trained."
        )
    settings = _settings(call, one, strategies)
    source = data.source_of(options)
    rows, held_out, _ = data.load(source)
    order = list(options.order or rows.domains)
    for name in order:
        if name not in rows.domains:
            raise UsageError(f"`--order` names {name!r}. {did_you_mean(name, rows.domains)}")
    every = [part for part in (rows, held_out) if part is not None]
    _check_models(options, one, strategies, every, settings, order)
    jobs = _plan(options, strategies, order, source, settings)
    splits = _joined(options, split(jobs[0]), kind_of(rows))
    display = Display(options.metric, options.quiet, options.json)
    facts = {"task": "continual", "rows": kind_of(rows), "targets": order}
    return running.run(call, jobs, display, rows, facts, {"all": splits}, partial(_write_tables, call, display))


def _settings(call, one: Chosen, strategies: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The settings of each strategy, each with those of `strategy_kwargs` that it has."""
    resolved, of_model = call.resolved, one.model_settings()
    for name, option in SET_BY_OPTIONS.items():
        given = any(name in several for several in (resolved.settings, *resolved.method_settings.values()))
        if given and name not in of_model:
            raise UsageError(f"`{option_name(name)}` is set by the command. Use `{option}`.")
    settings = used_settings(resolved, dict.fromkeys(strategies, one.settings("continual")))
    for own in settings.values():
        # Of a name that both have, the model's is meant.
        own |= {name: of_model[name].convert(own[name]) for name in SET_BY_OPTIONS if name in own}
    _divide_strategy_options(settings, resolved.method_settings)
    return settings


def _divide_strategy_options(settings: dict[str, dict], own: Mapping[str, Mapping]) -> None:
    """
    Gives each strategy those of the `strategy_kwargs` that it has. An option that no strategy has is an error, and so
    is one that was set for one strategy by name and is unknown there.
    """
    from hf_memaug.training.arguments import check_option_values, parsed_options

    known = {name: None for strategy in settings for name in STRATEGIES[strategy].options}
    for strategy, several in settings.items():
        if not several.get("strategy_kwargs"):
            continue
        of = STRATEGIES[strategy]
        allowed = of.options if "strategy_kwargs" in own.get(strategy, ()) else known
        try:
            given = parsed_options("strategy", strategy, several["strategy_kwargs"], allowed)
            several["strategy_kwargs"] = {name: value for name, value in given.items() if name in of.options}
            check_option_values("strategy_kwargs", several["strategy_kwargs"], of)
        except ValueError as error:
            said = str(error).replace("`strategy_kwargs`", "`--strategy-kwargs`")
            raise UsageError(said.replace("`strategy=", "`--strategies ")) from None


def _check_models(
    options, one: Chosen, strategies: list[str], every: list[DomainDataset], settings: Mapping, order: list[str]
) -> None:
    """The model must read the rows, and the strategies must fit the model."""
    kind, name, grows = kind_of(every[0]), one.name, set(one.method.grows)
    if has_history(options.backbone):
        config = _check_trained_model(options, one, kind, settings)
        _check_record(options, config, strategies)
        name, family = config.model_type, FAMILIES.get(config.model_type)
        grows = {verb for method in (family.methods if family else ()) for verb in method.grows}
        read = [part.domain(domain) for part in every for domain in order if domain in part.domains]
        if kind == "graph":
            check_values(config.backbone_config, read, f"`--backbone` {options.backbone}")
        if kind == TAGS:
            tags = {tag for part in read for of_row in part["tags"] for tag in of_row}
            unknown = tags - {"O", *config.id2label.values()}
            if unknown:
                raise DataRefused(
                    f"`--data` has the tags {listed(sorted(unknown))}, missing from those of `--backbone`. Leave those "
                    "rows out, or train a new model."
                )
    else:
        check_backbone(options.backbone, kind, every, settings)
        check_method(one, kind, len(every[0].domains), options.general)
        if options.general is not None and not one.method.needs_general:
            raise UsageError(f"`--general` is for gmap and fine-tuning, and `--method` is {name!r}. Leave it out.")
        if options.vectors is not None and not one.makes_words:
            raise UsageError(f"`--vectors` is for memory-rnn, and `--method` is {name!r}. Leave it out.")
    for strategy in strategies:
        check_strategy(strategy, STRATEGIES[strategy], name, sorted(grows), kind)


def _check_trained_model(options, one: Chosen, kind: str, settings: Mapping[str, Mapping[str, Any]]):
    """A model that was trained on domains before keeps its shape. Returns its configuration."""
    from hf_memaug.inference.checkpoints import kind_of as kind_of_config
    from hf_memaug.inference.checkpoints import read_config

    why = "and `--backbone` is a trained model"
    if options.general is not None:
        raise UsageError(f"`--general` is set, {why}, which contains its general encoder. Leave it out.")
    if options.vectors is not None and not any("word_vectors" in STRATEGIES[name].options for name in settings):
        raise UsageError(
            f"`--vectors` is set, {why}, whose words have vectors, and no strategy adds words. Leave it out, or choose "
            "one that adds words, such as f+m+v."
        )
    shaping = [name for own in settings.values() for name in one.split_settings(own, "continual")[0]]
    if shaping:
        raise UsageError(f"`{option_name(shaping[0])}` shapes a new model, {why}. Leave it out.")
    config = read_config(options.backbone, "--backbone")
    if one.families and config.model_type not in one.families:
        raise UsageError(f"`--method` is {options.method!r}, {why}, a `{config.model_type}`. Leave `--method` out.")
    if kind_of_config(config) != kind:
        raise UsageError(
            f"`--backbone` was trained on {in_words(kind_of_config(config))}, and the rows are {in_words(kind)}. Use "
            "the same kind of rows, or another backbone."
        )
    if kind != "graph":
        checkpoint_processor(options.backbone, kind)
    return config


def _check_record(options, config, strategies: Sequence[str]) -> None:
    """The matrix of a trained model holds one metric, and some strategies continue from a file."""
    folder = Path(options.backbone)
    record = ContinualRecord.load(folder if (folder / RECORD_FILE).is_file() else config.run_facts["continual"])
    if record.metric != options.metric:
        raise UsageError(
            f"`--metric` is {options.metric!r}, and the matrix of `--backbone` holds {record.metric}. Use that."
        )
    places = (folder, folder.parent, *folder.glob("_stages/*"))
    for name in strategies:
        strategy = STRATEGIES[name]
        if not strategy.kind == record.kind == "sequence":
            raise UsageError(
                f"`--strategies` has {name!r}, which cannot continue the matrix of `--backbone`, trained by "
                f"{record.strategy.get('name')}. Both must train on one domain after another, such as f."
            )
        if strategy.needs_state and not any((place / strategy.state_file).is_file() for place in places):
            raise UsageError(
                f"`--strategies` has {name!r}, which needs `{strategy.state_file}`, and `--backbone`, trained by "
                f"{record.strategy.get('name')}, has none. Choose a strategy without a state, such as f."
            )


def _joined(options, parts: Mapping[str, Mapping[str, DomainDataset]], kind: str) -> dict[str, DomainDataset]:
    """The rows of all domains, by their part, checked."""
    joined = {name: DomainDataset.concatenate(list(of.values())) for name, of in parts.items() if of}
    with data.told_as_options():
        if options.task == TAGS and not has_history(options.backbone):
            check_types(**joined)
        elif kind not in TASKS:
            check_all_labels(parts["train"], None)
    if options.metric == "auroc":
        running.check_two_classes({NONE: joined})
    return joined


def _plan(
    options, strategies: Sequence[str], order: Sequence[str], source: Mapping, settings: Mapping[str, Mapping]
) -> list[Job]:
    names = ("metric", "holdout", "dev_fraction", "on_overlap", "max_length")
    protocol = {"model": options.method, **{name: getattr(options, name) for name in names}, "order": list(order)}
    return [
        running.make_job(
            options,
            source,
            kind="continual",
            name=f"{file_name(strategy)}-seed{seed}",
            method=strategy,
            seed=seed,
            settings=dict(settings[strategy]),
            protocol=protocol,
        )
        for seed in running.seeds_of(options.seeds)
        for strategy in strategies
    ]


def _write_tables(call, display: Display, folder: RunFolder, records: Sequence[dict]) -> list[dict]:
    options, name = call.options, data.data_name(call.options.data)
    rows = running.result_rows(records, name, options.metric, options.task)
    write_results(folder.path / RESULTS_FILE, table=f"continual on {name}", command=call.line, rows=rows)
    summary: dict[str, dict[str, list]] = {}
    for record in records:
        cells = summary.setdefault(record["job"]["method"], {})
        found = {domain: scores[options.metric] for domain, scores in record["scores"].items()}
        found |= {figure: record["matrix"].get(figure) for figure in DEFINITIONS}
        for column, value in found.items():
            if value is not None:
                cells.setdefault(column, []).append(value)
    columns = list(dict.fromkeys(column for cells in summary.values() for column in cells))
    how = {"points": False, "lower_is_better": set(LOWER_IS_BETTER) & set(columns), "header": "strategy"}
    notes = ["; ".join(f"{figure}: {DEFINITIONS[figure]}" for figure in DEFINITIONS if figure in columns) + "."]
    notes += [f"{TASKS[options.task].what}."] if options.task in TASKS else []
    running.write_card(folder, score_table(summary, style="markdown", **how), notes)
    display.text(f"\n{options.metric} at the end, in points\n{score_table(summary, **how)}")
    return rows
