# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-memaug sweep`: the jobs of `hf_memaug.training.sweep` for the methods of the table, with a run folder around."""

import argparse
import json
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_memaug.cli.compare import check_options, end_run, targets_of
from hf_memaug.cli.display import Display, title
from hf_memaug.cli.recipes import used_settings
from hf_memaug.evaluation.domain_selection import choose, training_score
from hf_memaug.evaluation.records import read_records
from hf_memaug.files import alike, write_atomically
from hf_memaug.reporting.results import results_table, write_results
from hf_memaug.runs import rows as data
from hf_memaug.runs.backbones import check_model
from hf_memaug.runs.cards import NEVER_THE_TARGET, data_name, run_card
from hf_memaug.runs.errors import OK, Interrupted, UsageError
from hf_memaug.runs.folder import RESULTS, RunFolder, warn
from hf_memaug.runs.graphs import SMALL_NETWORK, check_backbone
from hf_memaug.runs.hyperparameters import known_names
from hf_memaug.runs.methods import (
    ALIASES,
    ERM,
    METHODS,
    Chosen,
    Parts,
    check_method,
    check_variants,
    chosen,
)
from hf_memaug.runs.processors import processor_of
from hf_memaug.runs.results import DATA_FILE, RUN_FILE
from hf_memaug.runs.small_models import SMALL, rows_of
from hf_memaug.runs.small_models import build as build_plain
from hf_memaug.training.sweep.__main__ import check_settings
from hf_memaug.training.sweep.plan import Job, plan_jobs
from hf_memaug.training.sweep.runner import is_done, job_folder, run_jobs
from hf_memaug.training.sweep.winners import keep_winners

BUILD = "hf_memaug.cli.sweep:build"
FACTS = "hf_memaug.runs.facts:write_job_facts"
# Where a model takes the dropout that is drawn.
DROPOUT = {"+memory": "classifier_dropout", "hma": "memory_dropout", "gmap": "classifier_dropout"}


def sweep(call) -> int:
    options = call.options
    check_options(argparse.Namespace(jobs=options.jobs, processes=1, on_overlap=options.on_overlap))
    several = {name: chosen(name) for name in dict.fromkeys(options.methods)}
    check_variants(several, call.resolved.method_settings)
    settings = used_settings(call.resolved, several, {name: one.fields for name, one in several.items()})
    source = data.source_of(options)
    rows, _ = data.load(source)
    # `--dropout` is an option of every sweep, and a field of a network.
    shapes = {name: {key: given[key] for key in given if key != "dropout"} for name, given in settings.items()}
    check_backbone(options.backbone, data.kind_of(rows), [rows], shapes)
    for one in several.values():
        if one.method.trainer != "domain" or one.method.words is not None:
            raise UsageError(f"`{one.name}` has no place in a sweep, whose jobs are those of `DomainTrainer`.")
        check_method(one, data.kind_of(rows), len(rows.domains) - 1, None)
    targets = targets_of(options.target, rows.domains)
    jobs = _plan(options, several, settings, source, rows, targets)
    folder = RunFolder(options.output or "runs/sweep")
    display = Display("accuracy", options.quiet, options.json, list(several), targets)
    by_name = {job.name: job for job in jobs}
    if options.dry_run:
        for name, job in by_name.items():
            state = "done" if is_done(folder.path, job) else "to do"
            display.line(f"{state:<5}  {name}  {json.dumps(job.hparams)}", event="job", state=state, name=name)
        display.text(f"{len(jobs)} jobs, {sum(is_done(folder.path, job) for job in jobs)} of them done")
        return OK
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with folder.locked():
            # Before the folder remembers settings that come to nothing.
            if not all(is_done(folder.path, job) for job in jobs):
                for name, one in several.items():
                    check_model(one, options.backbone, rows, settings[name])
            _check_folder(options, folder, source, jobs)
            facts = {"task": data.kind_of(rows), "methods": list(several), "targets": targets}
            facts |= {"seeds": list(range(options.trials)), "metric": "accuracy", "labels": rows.label_names}
            folder.begin(call.line, {**call.resolved.recipe(call.command), "data": source["data"]}, **facts)
            folder.write(DATA_FILE, data.describe(source, {}))
            failed = _run(jobs, folder, display, options.jobs)
            winners = keep_winners(jobs, folder.path, options.selection)
            return _finish(call, folder, display, jobs, failed, winners, source)
    except KeyboardInterrupt:
        left = sum(not is_done(folder.path, job) for job in jobs)
        raise Interrupted(
            f"Interrupted with {left} of {len(jobs)} jobs to do. To resume, rerun the same command."
        ) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _plan(options, several: Mapping[str, Chosen], settings, source, rows, targets: Sequence[str]) -> list[Job]:
    name = data_name(source["data"])
    columns = {key: source[key] for key in (*data.COLUMNS, "smiles", "split", "labels") if source.get(key) is not None}
    of_rows = {"kind": "graph"} if data.kind_of(rows) == "graph" else {}
    backbone = str(Path(options.backbone).resolve()) if Path(options.backbone).exists() else options.backbone
    made_here = data.is_made_here(source["data"])
    jobs = []
    for method, one in several.items():
        given = settings[method]
        hparams = {key: value for key, value in given.items() if key in known_names(one.algorithm)}
        hparams |= {
            key: getattr(options, key) for key in ("batch_size", "dropout") if getattr(options, key) is not None
        }
        training = {key: value for key, value in one.training(given).items() if key not in hparams}
        row, named = one.row, {"name": method} if one.is_variant or method in ALIASES else {}
        checkpoint = {"row": row, "backbone": backbone, "settings": one.configuration(given), **named, **of_rows}
        try:
            jobs += plan_jobs(
                {name: (source["data"], rows.domains)},
                {method if one.is_variant else options.backbone if row == ERM else row: json.dumps(checkpoint)},
                [one.algorithm],
                trials=options.trials,
                draws=options.draws,
                selection=options.selection,
                test_domains=targets,
                hparams=hparams,
                steps=options.steps,
                checkpoint_every=options.checkpoint_every,
                holdout=options.holdout,
                on_overlap=options.on_overlap,
                broken_images=source.get("broken", "refuse"),
                columns={} if made_here else columns,
                training=training,
                max_length=options.max_length,
                build=BUILD,
                facts=FACTS,
            )
        except ValueError as error:
            raise UsageError(str(error)) from error
    return sorted(jobs, key=lambda job: job.trial_seed)


def build(job: Job):
    """(model, processor, rows) of a job: a row of the table of methods on a backbone."""
    import dataclasses

    import torch

    asked = json.loads(job.checkpoint)
    row, backbone, settings = METHODS[asked["row"]], asked["backbone"], dict(asked["settings"])
    one = Chosen(asked["row"], row, job.algorithm)
    if asked.get("kind") == "graph":
        return _built_on_graphs(one, job, backbone, settings)
    if asked["row"] in (ERM, "gmoe") and not settings:
        plain = backbone if asked["row"] == ERM else f"gmoe:{backbone}"
        return build_plain(dataclasses.replace(job, checkpoint=plain))
    rows = rows_of(job)
    trained = rows.select(number for number, name in enumerate(rows["domain"]) if name not in job.test_envs)
    if asked["row"] in DROPOUT and "dropout" in job.hparams:
        settings.setdefault(DROPOUT[asked["row"]], job.hparams["dropout"])
    if backbone == SMALL:
        import tempfile

        from hf_memaug.runs.methods import local_backbone

        with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
            backbone = local_backbone(SMALL, trained, "sweep", Path(folder))
            return _built(one, backbone, trained, settings, rows)
    return _built(one, backbone, trained, settings, rows)


def _built_on_graphs(one: Chosen, job: Job, backbone: str, settings: dict):
    """Networks that read the values of all rows, those of the domains left out too. What is drawn is their dropout."""
    names = (*data.COLUMNS, "smiles", "split")
    rows, _ = data.load({**dict.fromkeys(names), **job.columns, "data": job.data, "broken": job.broken_images})
    trained = rows.select(number for number, name in enumerate(rows["domain"]) if name not in job.test_envs)
    if "dropout" in job.hparams:
        settings.setdefault("dropout", job.hparams["dropout"])
    parts = Parts(SMALL_NETWORK if backbone == SMALL else backbone, trained, None, None, settings, [rows])
    return one.method.build(parts), None, rows


def _built(one: Chosen, backbone: str, trained, settings: dict, rows):
    processor = processor_of(one, backbone, trained, None, settings)
    parts = Parts(backbone, trained, processor, None, settings)
    return one.method.build(parts), processor, rows


def _check_folder(options, folder: RunFolder, source: Mapping[str, Any], jobs: Sequence[Job]) -> None:
    """Refuses a folder of another sweep, with the names that differ."""
    fixed = argparse.Namespace(
        output=folder.path,
        steps=options.steps,
        checkpoint_every=options.checkpoint_every,
        selection=options.selection,
        setting="multi_source",
        holdout=options.holdout,
        hparams={},
        training_arguments={},
        max_length=options.max_length,
        on_overlap=options.on_overlap,
        broken_images=source.get("broken", "refuse"),
        build=BUILD,
        data=[f"{data_name(source['data'])}={source['data']}"],
        models=[f"{job.model}={job.checkpoint}" for job in {job.model: job for job in jobs}.values()],
    )
    try:
        check_settings(fixed)
        for job in jobs:
            place = job_folder(folder.path, job)
            if (place / "job.json").is_file():
                then = Job.read(place)
                for name in ("hparams", "training", "checkpoint"):
                    before, asked = getattr(then, name), getattr(job, name)
                    if not alike(asked, before):
                        raise ValueError(
                            f"{job.name} has other {name} in {folder.path}: {before}, and now {asked}. Give those, or "
                            "another `--output`."
                        )
    except ValueError as error:
        raise UsageError(str(error)) from None


def _run(jobs: Sequence[Job], folder: RunFolder, display: Display, at_once: int) -> list[Job]:
    """Every job that is done becomes a line of runs.jsonl."""
    written = {record["name"] for record in folder.records()}
    warn(folder.warnings)
    done = sum(is_done(folder.path, job) for job in jobs)
    display.begin(len(jobs), done, len(jobs) - done, folder.records())

    def note(line: str = "") -> None:
        for job in jobs:
            if job.name not in written and is_done(folder.path, job):
                record = _record(job, folder)
                folder.append(record)
                written.add(job.name)
                display.finished += 1
                display.records.append(record)
                shown = f"validation {record['validation']:.1f}"
                display.line(f"[{display.overall}] {title(record['job'])}: {shown}", event="done", **record)
        if "FAILED" in line:
            display.line(line, event="failed", why=line)
        display.refresh()

    with display:
        note()
        failed = run_jobs(jobs, folder.path, at_once, say=note)
        note()
    return failed


def _record(job: Job, folder: RunFolder) -> dict[str, Any]:
    found = read_records(job_folder(folder.path, job) / "records.jsonl")
    best = max(found, key=training_score)
    return {
        "job": {
            "method": method_of(job),
            "target": job.test_envs[0] if len(job.test_envs) == 1 else "+".join(job.test_envs),
            "seed": job.trial_seed,
            "draw": job.hparams_seed,
            "backbone": Path(json.loads(job.checkpoint)["backbone"]).name,
        },
        "name": job.name,
        "validation": 100 * training_score(best),
        "scores": {
            name: {"accuracy": 100 * parts["in" if name in job.test_envs else "out"]}
            for name, parts in best.accuracy.items()
        },
        "settings": {**job.hparams, "steps": job.steps, "best_step": best.step},
        **dict.fromkeys(("seconds", "peak_memory_bytes", "parameters", "trainable", "checkpoint")),
        **_costs(job_folder(folder.path, job)),
    }


def _costs(folder: Path) -> dict[str, Any]:
    try:
        return json.loads((folder / "costs.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def method_of(job: Job) -> str:
    """The name that the method was asked for by."""
    asked = json.loads(job.checkpoint)
    row = asked["row"]
    if "name" in asked:
        return asked["name"]
    if row == ERM:
        return job.algorithm
    if job.algorithm == ERM:
        return row
    return f"{job.algorithm}{row}" if row.startswith("+") else f"{row}+{job.algorithm}"


def _write_card(folder: Path, name: str, done: Mapping[str, Job]) -> None:
    """The card of a selected checkpoint, from what won."""
    from hf_memaug.hub import complete_folder
    from hf_memaug.hub.provenance import record_run
    from hf_memaug.inference import load_predictor

    winner = json.loads((folder / "winner.json").read_text(encoding="utf-8"))
    model = load_predictor(folder, dtype="auto", device="cpu").model
    if not hasattr(model.config, "run_facts") or winner["job"] not in done:
        return
    figure = {"metric": "accuracy", "seed": winner["trial_seed"]}
    accuracy = winner["record"]["accuracy"]
    trained_on = [domain for domain in accuracy if domain not in winner["test_envs"]]
    scores = [{**figure, "domain": one, "split": "dev", "value": 100 * accuracy[one]["out"]} for one in trained_on]
    scores += [
        {**figure, "domain": one, "split": "test", "value": 100 * value}
        for one, value in winner["test_accuracy"].items()
    ]
    record_run(
        model,
        data=name,
        domains=trained_on,
        # The card says that selection never saw it, which is not so of the oracle's.
        left_out=None if winner["selection"] == "oracle" else ", ".join(winner["test_envs"]),
        method=method_of(done[winner["job"]]),
        scores=scores,
        training={**winner["hparams"], "steps": winner["step"], "selection": winner["selection"]},
    )
    model.config.save_pretrained(folder)
    complete_folder(model, folder, "-".join(folder.parts[-4:]))


def _finish(call, folder: RunFolder, display, jobs, failed, winners: Sequence[Path], source) -> int:
    done = {job.name: job for job in jobs if is_done(folder.path, job)}
    name = data_name(source["data"])
    rows = []
    if done:
        records = read_records(*(job_folder(folder.path, job) / "records.jsonl" for job in done.values()))
        for choice in choose(records, call.options.selection):
            job = done[choice.record.args["job"]]
            rows.append(
                {
                    "method": method_of(job),
                    "data": name,
                    "target": choice.test_env,
                    "backbone": Path(json.loads(job.checkpoint)["backbone"]).name,
                    "seed": job.trial_seed,
                    "metric": "accuracy",
                    "value": round(100 * choice.accuracy, 4),
                }
            )
    if rows:
        write_results(folder.path / RESULTS, table=f"sweep on {name}", command=call.line, rows=rows)
        methods = {row["method"] for row in rows}
        first = next(iter(call.options.methods))
        against = first if len(methods) > 1 and first in methods else None
        tables = {
            style: results_table(rows, data=name, baseline=against, style=style, cross=())
            for style in ("text", "markdown")
        }
        note = f"Chosen by {call.options.selection} validation; mean ± standard deviation over the trials."
        sees_target = call.options.selection == "oracle"
        selection = "Selection saw held-out rows of the target." if sees_target else NEVER_THE_TARGET
        card = run_card(folder.read(RUN_FILE), folder.read(DATA_FILE), tables["markdown"], [note], selection)
        write_atomically(folder.path / "README.md", card)
        display.text(f"\naccuracy in points on the domain left out. {note}\n{tables['text']}")
    for winner in winners:
        _write_card(winner, name, done)
        display.text(f"selected: {winner}")
    for job in failed:
        warn([f"{job.name} failed: see {job_folder(folder.path, job) / 'log.txt'}"])
    return end_run(folder, display, len(done), failed, rows, winners)
