# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-memaug train` and `hf-memaug compare`: jobs of methods, targets and seeds, and what came out of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_memaug.cli.display import Display
from hf_memaug.cli.recipes import Resolved, used_settings
from hf_memaug.data.messages import did_you_mean
from hf_memaug.files import write_atomically
from hf_memaug.reporting.results import results_table, write_results
from hf_memaug.runs import rows as data
from hf_memaug.runs.backbones import check_model, check_training
from hf_memaug.runs.cards import NEVER_THE_TARGET, metric_name, run_card
from hf_memaug.runs.errors import FAILED, OK, DataRefused, UsageError
from hf_memaug.runs.folder import RESULTS, RunFolder, warn
from hf_memaug.runs.graphs import check_backbone
from hf_memaug.runs.methods import Chosen, check_method, check_variants, chosen
from hf_memaug.runs.results import DATA_FILE, RUN_FILE
from hf_memaug.runs.rows import NO_TARGET, data_name, kind_of
from hf_memaug.runs.runner import check_counts, run_jobs
from hf_memaug.runs.settings import trainer_settings
from hf_memaug.runs.tasks import CLASSES, TASKS, check_columns, check_task
from hf_memaug.training.sweep.plan import file_name

# The default first.
METRICS = ("f1", "accuracy", "mcc", "auroc")
KEEP = ("best", "all", "none")
ON_OVERLAP = ("raise", "drop", "ignore", "drop_dev")


def train(call) -> int:
    options = call.options
    return _run(call, [options.method], [options.target or NO_TARGET], [options.seed], None)


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
    data.check_splits(options, targets)
    check_variants(several, call.resolved.method_settings)
    source = data.source_of(options)
    settings = used_settings(call.resolved, several, {name: one.fields for name, one in several.items()})
    rows, held_out = data.load(source)
    targets, kind = targets_of(targets, (held_out or rows).domains), kind_of(rows)
    if len(rows.domains) < 2 and targets != [NO_TARGET]:
        raise UsageError(
            f"`--data` has the one domain {rows.domains[0]!r}, so that none is left to train on. Name the column of "
            "domains with `--domain`, or give `--target none`; rows to test on are then those of `--test-split`."
        )
    every = [part for part in (rows, held_out, data.load_dev(source)) if part is not None]
    check_backbone(options.backbone, kind, every, settings)
    for one in several.values():
        sources = len(rows.domains) - (targets != [NO_TARGET])
        check_method(one, kind, sources, options.general)
    if baseline is not None and baseline not in several:
        raise UsageError(f"`--baseline` is {baseline!r}, which is not among the methods ({', '.join(several)}).")
    splits = {target: data.split_for(source, target, options.dev_fraction, options.on_overlap) for target in targets}
    if options.metric == "auroc":
        check_two_classes(splits)
    specs = plan(call.resolved, several, targets, seeds, source, settings)
    folder = RunFolder(options.output or f"runs/{call.command}")
    columns = targets if targets != [NO_TARGET] else rows.domains
    display = Display(options.metric, options.quiet, options.json, list(several), columns)
    if options.dry_run:
        return list_jobs(specs, folder, display)
    with folder.locked():
        done = folder.check_jobs(specs)
        warn(folder.warnings)
        if len(done) < len(specs):
            for name, one in several.items():
                check_model(one, options.backbone, rows, settings[name], options.general)
            from hf_memaug.runs.job import training_arguments

            check_training(specs, lambda spec: training_arguments(spec, several[spec["job"]["method"]], 1, folder.path))
        facts = {
            "task": kind,
            "methods": list(several),
            "targets": [target for target in targets if target != NO_TARGET],
            "seeds": seeds,
            "metric": options.metric,
            "labels": rows.label_names,
        }
        recipe = {**call.resolved.recipe(call.command), "data": source["data"]}
        folder.begin(call.line, recipe, **facts)
        folder.write(DATA_FILE, data.describe(source, splits))
        say_what_is_missing(display)
        prompted = [name for name in several if settings[name].get("template") is not None]
        if 0 < len(prompted) < len(several):
            others = ", ".join(name for name in several if name not in prompted)
            display.text(f"Prompted: {', '.join(prompted)}. Not prompted, with a fresh head: {others}.")
        failed = run_jobs(specs, folder, display, options.jobs, options.processes)
        return finish(call, folder, display, failed, source, baseline or list(several)[0])


def metrics_of(task: str) -> tuple[str, ...]:
    return TASKS[task].metrics if task in TASKS else METRICS


def check_options(options: Any) -> None:
    check_counts(options.jobs, options.processes)
    task, metric = getattr(options, "task", CLASSES), getattr(options, "metric", None)
    metrics = metrics_of(task)
    if metric not in metrics and metric in (*METRICS, "exact_match"):
        raise UsageError(f"`--metric` is {metric!r}, which {task} have not. Choose {', '.join(metrics)}.")
    for name, allowed in (("metric", metrics), ("keep", KEEP), ("on_overlap", ON_OVERLAP)):
        value = getattr(options, name, None)
        if value is not None and value not in allowed:
            written = name.replace("_", "-")
            raise UsageError(f"`--{written}` is {value!r}. {did_you_mean(value, allowed)}")
    if getattr(options, "evaluations", 1) < 1:
        raise UsageError(f"`--evaluations` is {options.evaluations}; it must be 1 or more.")


def check_two_classes(splits: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuses rows that have no area under a curve."""
    for parts in splits.values():
        for name in ("dev", "test"):
            for domain, counts in parts[name].counts().items() if parts[name] is not None else ():
                if len(counts) != 2 or not all(counts.values()):
                    found = ", ".join(f"{count} of {label}" for label, count in counts.items())
                    raise DataRefused(
                        f"`--metric auroc` needs two classes, and rows of both: the {name} rows of {domain} are "
                        f"{found}. Choose another metric, such as mcc."
                    )


def seeds_of(given: Sequence[str]) -> list[int]:
    """`5` is 0 to 4; `0,3,7` are these. One alone, as a list in a recipe, is a number of seeds too."""
    try:
        numbers = [int(one) for one in given]
    except ValueError:
        raise UsageError(f"`--seeds` is {','.join(map(str, given))}: give a number, or numbers with commas.") from None
    found = list(range(numbers[0])) if len(numbers) == 1 else list(dict.fromkeys(numbers))
    if not found:
        raise UsageError("`--seeds` is 0: give at least 1.")
    return found


def targets_of(given: Sequence[str], domains: Sequence[str]) -> list[str]:
    if list(given) == ["all"]:
        return list(domains)
    for name in given:
        if name not in (*domains, NO_TARGET):
            raise UsageError(f"`--target` is {name!r}, which is no domain of the data. {did_you_mean(name, domains)}")
    return list(dict.fromkeys(given))


def plan(
    resolved: Resolved,
    several: Mapping[str, Chosen],
    targets: Sequence[str],
    seeds: Sequence[int],
    source: Mapping[str, Any],
    settings: Mapping[str, Mapping[str, Any]],
) -> list[dict]:
    """The jobs, seed after seed, so that a run that is broken off can be compared as far as it went."""
    options = resolved.options
    fingerprint = data.fingerprint(source)[:16]
    backbone = options.backbone if not Path(options.backbone).exists() else str(Path(options.backbone).resolve())
    extra = _meta_steps(several, settings) if not getattr(options, "own_steps", True) else 0
    specs = []
    for seed in seeds:
        for target in targets:
            for name, one in several.items():
                own_extra = extra if one.method.trainer != "bilevel" else 0
                protocol = {
                    "metric": options.metric,
                    "dev_fraction": options.dev_fraction,
                    "evaluations": options.evaluations,
                    "on_overlap": options.on_overlap,
                    "max_length": options.max_length,
                    "processes": options.processes,
                }
                job = {
                    "method": name,
                    "target": target,
                    "seed": seed,
                    "backbone": Path(options.backbone).name,
                    "data": fingerprint,
                    **protocol,
                    **({"general": Path(options.general).name} if options.general else {}),
                    **({"extra_steps": own_extra} if own_extra else {}),
                    **settings[name],
                }
                specs.append(
                    {
                        "kind": "train",
                        "job": job,
                        "name": f"{file_name(name, target)}-seed{seed}",
                        **protocol,
                        "backbone": backbone,
                        "general": options.general,
                        "source": dict(source),
                        "settings": dict(settings[name]),
                        "extra_steps": own_extra,
                        "keep": options.keep,
                    }
                )
    return specs


def _meta_steps(several: Mapping[str, Chosen], settings: Mapping[str, Mapping[str, Any]]) -> int:
    """What MIL's meta-training takes: the others get as many steps on top, for all to have the same budget."""
    declared = trainer_settings("bilevel")
    found = 0
    for name, one in several.items():
        if one.method.trainer == "bilevel":
            values = [settings[name].get(key, declared[key].default) for key in _META]
            found = max(found, values[0] * values[1] * values[2])
    return found


_META = ("episodes", "episode_steps", "inner_steps")


def list_jobs(specs: Sequence[Mapping], folder: RunFolder, display: Display) -> int:
    done = folder.check_jobs(specs)
    for spec in specs:
        state = "done" if spec["name"] in done else "to do"
        display.line(f"{state:<5}  {spec['name']}", event="job", state=state, name=spec["name"], job=spec["job"])
    display.text(f"{len(specs)} jobs, {len(done)} of them done")
    return OK


def say_what_is_missing(display: Display) -> None:
    from hf_memaug.training.costs import has_tensorboard

    if not has_tensorboard():
        display.text("No TensorBoard logs: `pip install 'hf_memaug[logs]'` to have them. Curves are in metrics.jsonl.")


def result_rows(records: Sequence[Mapping], name: str, metric: str, task: str = CLASSES) -> list[dict]:
    """The rows of `results.json`: one for each target of each trained model."""
    found = []
    for record in records:
        job = record["job"]
        scored = [job["target"]] if job["target"] != NO_TARGET else list(record["scores"])
        for target in scored:
            found.append(
                {
                    "method": job["method"],
                    "data": name,
                    "target": target,
                    "backbone": job["backbone"],
                    "seed": job["seed"],
                    "metric": metric_name(metric, task),
                    "value": round(record["scores"][target][metric], 4),
                }
            )
    return found


def selection_of(source: Mapping[str, Any]) -> str:
    if source.get("dev_split") is None:
        return NEVER_THE_TARGET
    return f"Selection saw the rows of {source['dev_split']}; the scores are those of {source['test_split']}."


def finish(call, folder: RunFolder, display: Display, failed, source: Mapping, baseline: str) -> int:
    """results.json, the card and the report, from all jobs of the folder that are done."""
    records = folder.records()
    name = data_name(source["data"])
    rows = result_rows(records, name, call.options.metric, call.options.task)
    if rows:
        write_results(folder.path / RESULTS, table=f"{call.command} on {name}", command=call.line, rows=rows)
        against = baseline if len({row["method"] for row in rows}) > 1 else None
        against = against if against in {row["method"] for row in rows} else None
        tables = {
            style: results_table(rows, data=name, baseline=against, style=style, cross=())
            for style in ("text", "markdown")
        }
        note = f"− {baseline}: difference of the averages, and p-value of a paired t-test over the seeds."
        explained = [f"{TASKS[call.options.task].what}."] if call.options.task in TASKS else []
        write_atomically(
            folder.path / "README.md",
            run_card(
                folder.read(RUN_FILE),
                folder.read(DATA_FILE),
                tables["markdown"],
                [note] * bool(against) + explained,
                selection_of(source),
            ),
        )
        metric = metric_name(call.options.metric, call.options.task)
        display.text(f"\n{metric} in points, * the highest of a column\n{tables['text']}")
        if against:
            display.text(note)
    kept = [folder.path / record["checkpoint"] for record in records if record.get("checkpoint")]
    kept = [path for path in kept if path.is_dir()]
    for path in kept[:3] if len(kept) < 4 else ():
        display.text(f"checkpoint: {path}")
    return end_run(folder, display, len(records), failed, rows, kept)


def end_run(folder: RunFolder, display: Display, done: int, failed, rows: list[dict], checkpoints=()) -> int:
    """The report, and where everything is. Returns the exit code."""
    if not failed:
        folder.finish()
    report = _write_report(folder)
    if report:
        display.text(f"report: {report}")
    display.line(
        f"run folder: {folder.path}",
        event="finished",
        folder=str(folder.path),
        done=done,
        failed=len(failed),
        checkpoints=[str(path) for path in checkpoints],
        report=report,
        results=rows,
    )
    if failed:
        which = "One job" if len(failed) == 1 else f"{len(failed)} jobs"
        display.text(f"{which} failed; the same command tries {'it' if len(failed) == 1 else 'them'} again.")
    return FAILED if failed else OK


def _write_report(folder: RunFolder) -> str | None:
    """report.html; one that fails costs no result."""
    from hf_memaug.reporting.html_report import write_report

    try:
        return str(write_report(folder.path))
    except Exception as error:  # the results are there, and `hf-memaug report` can be given again
        warn([f"report.html was not written ({type(error).__name__}: {error}). Try `hf-memaug report {folder.path}`."])
        return None
