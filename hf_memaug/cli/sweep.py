# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`hf-memaug sweep`: each domain left out, several trials, random hyper-parameters, as in DomainBed."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from hf_memaug.cli.recipes import used_settings
from hf_memaug.cli.running import make_job, run, targets_of, write_tables
from hf_memaug.files import file_name
from hf_memaug.runs import rows as data
from hf_memaug.runs.display import Display
from hf_memaug.runs.errors import UsageError
from hf_memaug.runs.folder import RunFolder
from hf_memaug.runs.graphs import check_backbone
from hf_memaug.runs.hyperparameters import draw, known_names
from hf_memaug.runs.job import Job
from hf_memaug.runs.methods import ERM, Chosen, check_method, check_variants, chosen
from hf_memaug.runs.splits import split_for_sweep
from hf_memaug.runs.sweeps import choices, left_out_sets
from hf_memaug.runs.tasks import kind_of

# The values of `--selection`.
SELECTED_BY = {
    "training": "the mean accuracy on held-out rows of the domains trained on",
    "leave_one_out": "the accuracy on a second domain left out",
    "oracle": "the accuracy on held-out rows of the target",
}


def sweep(call) -> int:
    options = call.options
    if not 0 < options.holdout < 1:
        raise UsageError(f"`--holdout` is {options.holdout}; it must lie between 0 and 1.")
    several = {name: chosen(name) for name in dict.fromkeys(options.methods)}
    check_variants(several, call.resolved.method_settings)
    settings = used_settings(call.resolved, {name: one.settings() for name, one in several.items()})
    if any("weight_averaging" in one for one in settings.values()):
        raise UsageError("`--weight-averaging` is not supported by `sweep`, which scores single steps. Use `compare`.")
    source = data.source_of(options)
    rows = data.load(source)[0]
    kind = kind_of(rows)
    # `--dropout` belongs to every sweep, and is also a field of graph networks.
    shapes = {name: {key: one[key] for key in one if key != "dropout"} for name, one in settings.items()}
    check_backbone(options.backbone, kind, [rows], shapes)
    targets = targets_of(options.target, rows.domains)
    left_out = left_out_sets(rows.domains, targets, options.selection)
    fewest = len(rows.domains) - max(map(len, left_out))
    for one in several.values():
        if one.method.trainer != "domain" or one.makes_words:
            raise UsageError(f"`{one.name}` is not supported: a sweep trains with `DomainTrainer` on a backbone.")
        check_method(one, kind, fewest, None)
    for names in left_out:
        split_for_sweep(source, names, options.holdout, 0, options.on_overlap)
    jobs = _plan(options, several, settings, source, left_out)
    display = Display("accuracy", options.quiet, options.json)
    facts = {"task": kind, "targets": targets, "selection": options.selection}
    return run(call, jobs, display, rows, facts, {}, partial(_write_tables, call, display, jobs))


def _plan(
    options, several: Mapping[str, Chosen], settings: Mapping, source: Mapping, left_out: Sequence[tuple[str, ...]]
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
                    protocol = {name: getattr(options, name) for name in names}
                    protocol |= {"left_out": list(domains), "draw": number, "hparams": hparams}
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
                            # The others choose weights by domains that the best validation does not see.
                            keep="best" if options.selection == "training" else "none",
                        )
                    )
    return jobs


def _model_name(one: Chosen, backbone: str) -> str:
    """What records call the model."""
    if one.is_variant:
        return one.name
    return Path(backbone).name if one.method.name == ERM else one.method.name


def _write_tables(call, display: Display, jobs: Sequence[Job], folder: RunFolder, records) -> list[dict]:
    selection = call.options.selection
    # Jobs of earlier calls count too.
    before = [Job.read(path.parent) for path in sorted(folder.path.glob("jobs/*/job.json"))]
    finished = {record["name"] for record in records}
    done = [job for job in {job.name: job for job in (*before, *jobs)}.values() if job.name in finished]
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
        for choice, job in choices(done, folder.path, selection)
    ]
    if rows:
        about = f"Hyper-parameters and steps are selected by {SELECTED_BY[selection]}."
        write_tables(call, folder, display, rows, call.options.methods[0], about)
    return rows
