# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-memaug sweep`: each domain left out, several trials, random hyper-parameters, as in DomainBed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_memaug.cli.compare import check_arguments, check_options, make_job, targets_of
from hf_memaug.cli.display import Display
from hf_memaug.cli.recipes import used_settings
from hf_memaug.cli.results import end_run, finish, list_jobs
from hf_memaug.data.messages import did_you_mean
from hf_memaug.evaluation.domain_selection import SELECTIONS
from hf_memaug.files import file_name
from hf_memaug.runs import rows as data
from hf_memaug.runs import sweeps
from hf_memaug.runs.building import check_model
from hf_memaug.runs.errors import UsageError
from hf_memaug.runs.folder import DATA_FILE, RunFolder
from hf_memaug.runs.graphs import check_backbone
from hf_memaug.runs.hyperparameters import draw, known_names
from hf_memaug.runs.job import Job
from hf_memaug.runs.methods import ERM, Chosen, check_method, check_variants, chosen
from hf_memaug.runs.runner import run_jobs
from hf_memaug.runs.splits import split_for_sweep
from hf_memaug.runs.tasks import kind_of


def sweep(call) -> int:
    options = call.options
    check_options(options)
    if options.selection not in SELECTIONS:
        raise UsageError(f"`--selection` is {options.selection!r}. {did_you_mean(options.selection, SELECTIONS)}")
    if not 0 < options.holdout < 1:
        raise UsageError(f"`--holdout` is {options.holdout}; it must lie between 0 and 1.")
    several = {name: chosen(name) for name in dict.fromkeys(options.methods)}
    check_variants(several, call.resolved.method_settings)
    settings = used_settings(call.resolved, several, {name: one.settings() for name, one in several.items()})
    source = data.source_of(options)
    rows = data.load(source)[0]
    kind = kind_of(rows)
    # `--dropout` belongs to every sweep, and is also a field of graph networks.
    shapes = {name: {key: one[key] for key in one if key != "dropout"} for name, one in settings.items()}
    check_backbone(options.backbone, kind, [rows], shapes)
    targets = targets_of(options.target, rows.domains)
    left_out = sweeps.left_out_sets(rows.domains, targets, options.selection)
    fewest = len(rows.domains) - max(map(len, left_out))
    for one in several.values():
        if one.method.trainer != "domain" or one.makes_words:
            raise UsageError(f"`{one.name}` is not supported: a sweep trains with `DomainTrainer` on a backbone.")
        check_method(one, kind, fewest, None)
    for names in left_out:
        split_for_sweep(source, names, options.holdout, 0, options.on_overlap)
    jobs = _plan(options, several, settings, source, left_out)
    folder = RunFolder(options.output or "runs/sweep")
    display = Display("accuracy", options.quiet, options.json, list(several), targets)
    if options.dry_run:
        return list_jobs(jobs, folder, display)
    with folder.locked():
        if len(folder.check_jobs(jobs)) < len(jobs):
            for name, one in several.items():
                of_model = one.split_settings(shapes[name])[0]
                check_model(one, options.backbone, rows, of_model, max_length=options.max_length)
            check_arguments(jobs, lambda job: sweeps.training_arguments(job, several[job.method], rows, folder.path))
        facts = {"task": kind, "methods": list(several), "targets": targets, "seeds": list(range(options.trials))}
        facts |= {"metric": "accuracy", "labels": rows.label_names, "selection": options.selection}
        folder.begin(call.line, {**call.resolved.recipe(call.command), "data": source["data"]}, **facts)
        folder.write(DATA_FILE, data.describe(source, {}))
        failed = run_jobs(jobs, folder, display, options.jobs)
        return _finish(call, folder, display, jobs, failed)


def _plan(
    options,
    several: Mapping[str, Chosen],
    settings: Mapping[str, Mapping[str, Any]],
    source: Mapping[str, Any],
    left_out: Sequence[tuple[str, ...]],
) -> list[Job]:
    """The jobs, trial after trial: an interrupted sweep is complete for the trials that it has."""
    names = ("steps", "checkpoint_every", "holdout", "on_overlap", "max_length", "selection")
    jobs = []
    for trial in range(options.trials):
        for method, one in several.items():
            tuned = known_names(one.algorithm)
            fixed = {name: value for name, value in settings[method].items() if name in tuned}
            fixed |= {name: getattr(options, name) for name in ("batch_size", "dropout")}
            fixed = {name: value for name, value in fixed.items() if value is not None}
            for number in range(options.draws):
                hparams = {**draw(one.algorithm, number, trial, options.steps), **fixed}
                for domains in left_out:
                    # Runs without two domains only validate.
                    weights = sweeps.KEPT[options.selection] if len(domains) == 1 else "none"
                    protocol = {name: getattr(options, name) for name in names}
                    protocol |= {"left_out": list(domains), "draw": number, "hparams": hparams, "weights": weights}
                    protocol["model"] = _model_name(one, options.backbone)
                    jobs.append(
                        make_job(
                            options,
                            source,
                            name=f"{file_name(method, *domains)}-trial{trial}-draw{number}",
                            method=method,
                            target="+".join(domains),
                            seed=trial,
                            settings={name: value for name, value in settings[method].items() if name not in fixed},
                            protocol=protocol,
                            keep="none",
                        )
                    )
    return jobs


def _model_name(one: Chosen, backbone: str) -> str:
    """What records call the model."""
    if one.is_variant:
        return one.name
    return Path(backbone).name if one.method.name == ERM else one.method.name


def _finish(call, folder: RunFolder, display: Display, jobs: Sequence[Job], failed: Sequence[Job]) -> int:
    selection = call.options.selection
    # Jobs of earlier calls count too.
    before = [Job.read(path.parent) for path in sorted(folder.path.glob("jobs/*/job.json"))]
    jobs = list({job.name: job for job in (*before, *jobs)}.values())
    finished = {record["name"] for record in folder.records()}
    done = [job for job in jobs if job.name in finished]
    rows = [
        {
            "method": job.method,
            "data": choice.record.dataset,
            "target": choice.test_env,
            "backbone": Path(job.backbone).name,
            "seed": job.seed,
            "metric": "accuracy",
            "value": round(100 * choice.accuracy, 4),
        }
        for choice, job in sweeps.choices(done, folder.path, selection)
    ]
    about = "Hyper-parameters and steps are selected by "
    about += {
        "training": "the mean accuracy on held-out rows of the domains trained on.",
        "leave_one_out": "the accuracy on a second domain left out.",
        "oracle": "the accuracy on held-out rows of the target.",
    }[selection]
    finish(call, folder, display, rows, call.options.methods[0], about)
    winners = sweeps.keep_winners(jobs, done, folder.path, selection)
    for winner in winners:
        display.text(f"selected: {winner}")
    return end_run(folder, display, failed, rows, winners)
