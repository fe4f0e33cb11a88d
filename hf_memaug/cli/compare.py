# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-memaug train` and `hf-memaug compare`: methods on the same splits, over targets and seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

from hf_memaug.cli.display import Display
from hf_memaug.cli.recipes import Resolved, used_settings
from hf_memaug.cli.results import end_run, finish, list_jobs, result_rows
from hf_memaug.data.messages import did_you_mean
from hf_memaug.files import file_name
from hf_memaug.runs import rows as data
from hf_memaug.runs.building import check_model
from hf_memaug.runs.errors import CommandError, DataRefused, UsageError
from hf_memaug.runs.folder import DATA_FILE, RUN_FILE, RunFolder
from hf_memaug.runs.graphs import check_backbone
from hf_memaug.runs.job import NONE, Job
from hf_memaug.runs.methods import ERM, Chosen, all_methods, check_method, check_variants, chosen
from hf_memaug.runs.runner import run_jobs
from hf_memaug.runs.settings import in_options, option_name, trainer_settings
from hf_memaug.runs.splits import ON_OVERLAP, check_splits, split_rows
from hf_memaug.runs.tasks import CLASSES, TASKS, check_columns, check_task, kind_of
from hf_memaug.runs.training import GUARD_ROWS, training_arguments

# The default first.
METRICS = ("f1", "accuracy", "mcc", "auroc")
KEEP = ("best", "all", "none")
META_STEPS = ("episodes", "episode_steps", "inner_steps")


def train(call) -> int:
    options = call.options
    return _run(call, [options.method], [options.target or NONE], [options.seed], None)


def compare(call) -> int:
    options = call.options
    return _run(call, list(options.methods), list(options.target), seeds_of(options.seeds), options.baseline)


def _run(call, methods: list[str], targets: list[str], seeds: list[int], baseline: str | None) -> int:
    options = call.options
    check_task(options.task)
    check_columns(options)
    options.metric = options.metric or metrics_of(options.task)[0]
    check_options(options)
    several = {method: chosen(method) for method in dict.fromkeys(methods)}
    check_splits(options, targets)
    check_variants(several, call.resolved.method_settings)
    settings = used_settings(call.resolved, several, {name: one.settings() for name, one in several.items()})
    shots, start, notes = getattr(options, "shots", None), None, []
    if shots is not None:
        start = check_shots(shots, several, targets)
        notes = shots_notes(several, call.resolved.method_settings)
        several, settings = _each_with_shots(several, settings, shots, call.resolved.method_settings)
    if baseline is not None and baseline not in several:
        raise UsageError(f"`--baseline` is {baseline!r}, which is not among the methods ({', '.join(several)}).")
    baseline = baseline or start or list(several)[0]
    source = data.source_of(options)
    rows, held_out, dev = data.load(source)
    targets, kind = targets_of(targets, (held_out or rows).domains), kind_of(rows)
    if len(rows.domains) < 2 and targets != [NONE]:
        raise UsageError(
            f"`--data` has one domain only, {rows.domains[0]!r}, so that none is left to train on. Name the column of "
            "domains with `--domain`, or use `--target none`, with `--test-split` for the rows to test on."
        )
    every = [part for part in (rows, held_out, dev) if part is not None]
    check_backbone(options.backbone, kind, every, settings)
    for one in several.values():
        check_method(one, kind, len(rows.domains) - (targets != [NONE]), options.general)
    how = (options.dev_fraction, options.on_overlap, shots is not None)
    splits = {target: split_rows(source, target, *how) for target in targets}
    for target, parts in splits.items() if shots else ():
        if len(parts["pool"]) < max(shots):
            raise DataRefused(
                f"`--shots` has {max(shots)}, but {target!r} has only {len(parts['pool'])} rows to draw from: those of "
                "`--split` where there is a `--test-split`, and otherwise half of its rows. Use fewer."
            )
    if options.metric == "auroc":
        check_two_classes(splits)
    jobs = _plan(call.resolved, several, targets, seeds, source, settings, start)
    extra = max(job.protocol.get("extra_steps", 0) for job in jobs)
    if extra:
        notes.append(f"All other methods take {extra} more steps, as many as MIL's meta-training (`--own-steps`: none).")
    folder = RunFolder(options.output or f"runs/{call.command}")
    columns = targets if targets != [NONE] else rows.domains
    display = Display(options.metric, options.quiet, options.json, list(several), columns)
    for note in notes:
        display.text(note)
    if options.dry_run:
        return list_jobs(jobs, folder, display)
    with folder.locked():
        done = folder.check_jobs(jobs)
        if len(done) < len(jobs):
            for name, one in several.items():
                of_model = one.split_settings(settings[name])[0]
                check_model(one, options.backbone, rows, of_model, options.general, options.max_length)
            check_arguments(jobs, lambda job: training_arguments(job, several[job.method], [0], folder.path))
        facts = {"task": kind, "methods": list(several), "targets": [name for name in targets if name != NONE]}
        facts |= {"seeds": seeds, "metric": options.metric, "labels": rows.label_names}
        facts |= {"notes": notes} if notes else {}
        folder.begin(call.line, {**call.resolved.recipe(call.command), "data": source["data"]}, **facts)
        folder.write(DATA_FILE, data.describe(source, splits))
        prompted = [name for name in several if settings[name].get("template") is not None]
        if 0 < len(prompted) < len(several):
            others = ", ".join(name for name in several if name not in prompted)
            display.text(f"Prompted: {', '.join(prompted)}. Not prompted, with a new head: {others}.")
        failed = run_jobs(jobs, folder, display, options.jobs, options.processes)
        order = folder.read(RUN_FILE)["methods"]
        records = sorted(folder.records(), key=lambda record: order.index(record["job"]["method"]))
        found = result_rows(records, data.data_name(source["data"]), options.metric, options.task)
        selection = "Models are selected on dev rows of the domains trained on, never on the target."
        if source.get("dev_split") is not None:
            selection = f"Models are selected on {source['dev_split']} and scored on {source['test_split']}."
        finish(call, folder, display, found, baseline, selection)
        kept = [folder.job_folder(record["name"]) / "checkpoint" for record in records if record.get("checkpoint")]
        kept = [path for path in kept if path.is_dir()]
        for path in kept if len(kept) < 4 else ():
            display.text(f"checkpoint: {path}")
        return end_run(folder, display, failed, found, kept)


def metrics_of(task: str) -> tuple[str, ...]:
    return TASKS[task].metrics if task in TASKS else METRICS


def check_options(options: Any) -> None:
    """The choices and numbers that commands share."""
    task, metric = getattr(options, "task", CLASSES), getattr(options, "metric", None)
    metrics = metrics_of(task)
    if metric not in metrics and metric in (*METRICS, "exact_match"):
        raise UsageError(f"`--metric` is {metric!r}, which is not a metric of {task}. Choose {', '.join(metrics)}.")
    for name, allowed in (("metric", metrics), ("keep", KEEP), ("on_overlap", ON_OVERLAP)):
        value = getattr(options, name, None)
        if value is not None and value not in allowed:
            raise UsageError(f"`{option_name(name)}` is {value!r}. {did_you_mean(value, allowed)}")
    for name in ("jobs", "processes", "evaluations", "trials", "draws", "steps", "checkpoint_every", "max_length"):
        value = getattr(options, name, None)
        if value is not None and value < 1:
            raise UsageError(f"`{option_name(name)}` is {getattr(options, name)}; it must be 1 or more.")


def check_arguments(jobs: Sequence[Job], make) -> None:
    """
    Raises an error for settings that no job can be trained with.

    Args:
        make: a job to the arguments of its trainer, or a `CommandError`.
    """
    first = {job.method: job for job in reversed(jobs)}
    for method, job in reversed(first.items()):
        try:
            make(job)
        except CommandError as error:
            said = in_options(str(error), job.settings)
            hint = " To set an option for one method, write `--METHOD.OPTION`."
            raise UsageError(f"`{method}`: {said}{hint if len(first) > 1 else ''}") from None


def check_two_classes(splits: Mapping[str, Mapping[str, Any]]) -> None:
    """AUROC needs rows of two classes."""
    for parts in splits.values():
        for name in ("dev", "test"):
            for domain, counts in parts[name].counts().items() if parts.get(name) is not None else ():
                if len(counts) != 2 or not all(counts.values()):
                    found = ", ".join(f"{count} of {label}" for label, count in counts.items())
                    raise DataRefused(
                        f"`--metric auroc` needs two classes, and rows of both: the {name} rows of {domain} are "
                        f"{found}. Choose another metric, such as mcc."
                    )


def seeds_of(given: Sequence[str]) -> list[int]:
    """`5` means 0 to 4, `0,3,7` means these three."""
    try:
        numbers = [int(one) for one in given]
    except ValueError:
        raise UsageError(f"`--seeds` is {','.join(map(str, given))}. Use a number, or numbers with commas.") from None
    found = list(range(numbers[0])) if len(numbers) == 1 else list(dict.fromkeys(numbers))
    if not found:
        raise UsageError("`--seeds` is 0. Use 1 or more.")
    return found


def targets_of(given: Sequence[str], domains: Sequence[str]) -> list[str]:
    if list(given) == ["all"]:
        return list(domains)
    for name in given:
        if name not in (*domains, NONE):
            raise UsageError(f"`--target` is {name!r}, which is no domain of the data. {did_you_mean(name, domains)}")
    return list(dict.fromkeys(given))


def check_shots(shots: Sequence[int], several: Mapping[str, Chosen], targets: Sequence[str]) -> str:
    """Checks `--shots` against the other options. Returns the method whose checkpoints are adapted."""
    adapting = [name for name, one in several.items() if one.method.needs_shots]
    if not adapting:
        known = [name for name, method in all_methods().items() if method.needs_shots]
        raise UsageError(f"`--shots` is for {' and '.join(known)}. Add one of them to `--methods`, or leave it out.")
    start = next((name for name, one in several.items() if (one.method.name, one.algorithm) == (ERM, ERM)), None)
    if start is None:
        raise UsageError(f"`{adapting[0]}` starts from the checkpoint of {ERM}. Add {ERM} to `--methods`.")
    if not shots or min(shots) < 1:
        raise UsageError(
            f"`--shots` is {','.join(map(str, shots)) or 'empty'}. Use numbers of 1 or more, as in 32,128."
        )
    if NONE in targets:
        raise UsageError("`--shots` draws rows of the domain that is left out. Use `--target` with domains, or all.")
    return start


def shots_notes(several: Mapping[str, Chosen], own: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What the methods with `--shots` do, for those who read the table."""
    notes = [
        "NAME-K starts from the checkpoint of erm and gets K labelled rows of the target. The seed draws them, and "
        "they are never scored. The old domains are scored on held-out rows, which are not dev rows or guard rows."
    ]
    for name, one in several.items():
        if one.method.needs_shots:
            what = f"the dev rows (at most {GUARD_ROWS}) are guard rows, and nothing is trained"
            if one.method.trains:
                what = "all weights, AdamW, learning rate 5e-5, 10 passes (15 below 64 rows), batches of at most 32"
            changed = [f"{option_name(key)} {value}" for key, value in own.get(name, {}).items()]
            notes.append(f"{name}: {what}{'; set: ' * bool(changed)}{', '.join(changed)}.")
    return notes


def _each_with_shots(
    several: Mapping[str, Chosen], settings: Mapping[str, dict], shots: Sequence[int], own: Mapping[str, Mapping]
) -> tuple[dict[str, Chosen], dict[str, dict]]:
    """The methods that adapt a checkpoint, once for each number of rows and after the others; and all settings."""
    found = {name: one for name, one in several.items() if not one.method.needs_shots}
    settings = dict(settings)
    for name, one in several.items():
        for number in dict.fromkeys(shots) if name not in found else ():
            with_rows, of_it = one.for_shots(number, settings[name], own.get(name, ()))
            found[with_rows.name], settings[with_rows.name] = with_rows, of_it
    return found, settings


def make_job(options: Any, source: Mapping[str, Any], **fields: Any) -> Job:
    """A job with what all jobs of a command share: the rows, the checkpoints, and how it runs."""
    given = {name: getattr(options, name, None) for name in ("backbone", "general", "vectors", "keep", "processes")}
    for name in ("backbone", "general", "vectors"):
        if given[name] is not None:
            given[name] = data.located(given[name])
    given = {name: value for name, value in given.items() if value is not None}
    return Job(source=dict(source), data=data.fingerprint(source)[:16], **{**given, **fields})


def _plan(
    resolved: Resolved,
    several: Mapping[str, Chosen],
    targets: Sequence[str],
    seeds: Sequence[int],
    source: Mapping[str, Any],
    settings: Mapping[str, Mapping[str, Any]],
    start: str | None,
) -> list[Job]:
    """
    The jobs, seed after seed: an interrupted run is complete for the seeds that it has.

    Args:
        start: the method whose checkpoints are adapted.
    """
    options = resolved.options
    names = ("metric", "dev_fraction", "evaluations", "on_overlap", "max_length")
    protocol = {name: getattr(options, name) for name in names}
    extra = 0 if getattr(options, "own_steps", True) else _meta_steps(several, settings)
    jobs = [
        make_job(
            options,
            source,
            name=_job_name(one, target, seed),
            method=name,
            target=target,
            seed=seed,
            settings=dict(settings[name]),
            protocol={
                **protocol,
                **({"extra_steps": extra} if extra and one.method.trainer != "bilevel" and not one.shots else {}),
                **({"shots": one.shots} if start else {}),
            },
            start=_job_name(several[start], target, seed) if start and one.shots else None,
        )
        for seed in seeds
        for target in targets
        for name, one in several.items()
    ]
    for job in jobs:
        if job.method == start and job.keep == "none":
            job.keep = "start"
    return jobs


def _job_name(one: Chosen, target: str, seed: int) -> str:
    shots = f"-shots{one.shots}" if one.shots else ""
    name = one.name.removesuffix(f"-{one.shots}") if one.shots else one.name
    return f"{file_name(name, target)}{shots}-seed{seed}"


def _meta_steps(several: Mapping[str, Chosen], settings: Mapping[str, Mapping[str, Any]]) -> int:
    """The steps of meta-training. The other methods get as many more, so that all have the same budget."""
    declared, found = trainer_settings("bilevel"), 0
    for name, one in several.items():
        if one.method.trainer == "bilevel":
            episodes, steps, inner = (settings[name].get(key, declared[key].default) for key in META_STEPS)
            found = max(found, episodes * steps * inner)
    return found
