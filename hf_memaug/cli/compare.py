# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`hf-memaug train`, `compare` and `demo`: methods on the same splits, over targets and seeds."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from hf_memaug.cli import running
from hf_memaug.cli.recipes import Resolved, used_settings
from hf_memaug.files import file_name
from hf_memaug.runs import rows as data
from hf_memaug.runs.display import Display
from hf_memaug.runs.errors import DataRefused, UsageError
from hf_memaug.runs.graphs import check_backbone
from hf_memaug.runs.job import NONE, Job
from hf_memaug.runs.lora import check_lora
from hf_memaug.runs.methods import ERM, Chosen, all_methods, check_method, check_variants, chosen
from hf_memaug.runs.settings import option_name, trainer_settings
from hf_memaug.runs.splits import check_splits, split_rows
from hf_memaug.runs.tasks import TASKS, check_task, kind_of
from hf_memaug.runs.training import GUARD_ROWS, ensembles
from hf_memaug_cli.options import CompareOptions

# How a method adapts to rows of the target, by whether it trains.
ADAPTS = {
    True: "all weights, AdamW, learning rate 5e-5, 10 passes (15 below 64 rows), batches of at most 32",
    False: f"the dev rows (at most {GUARD_ROWS}) are guard rows, and nothing is trained",
}
META_STEPS = ("episodes", "episode_steps", "inner_steps")
DEMO_METHODS = ["erm", "+memory", "mil", "hma"]
# For an untrained encoder of two layers.
DEMO_SETTINGS = {
    "learning_rate": 1e-3,
    "num_train_epochs": 4.0,
    "per_device_train_batch_size": 32,
    "episodes": 10,
    "episode_steps": 10,
    "memory_slots": 128,
    "memory_key_size": 32,
    "real_memory_size": 128,
}


def train(call) -> int:
    options = call.options
    return _run(call, [options.method], [options.target or NONE], [options.seed], None)


def compare(call) -> int:
    options = call.options
    return _run(call, list(options.methods), list(options.target), running.seeds_of(options.seeds), options.baseline)


def demo(call) -> int:
    options = call.options
    compared = CompareOptions(data="generated_reviews", methods=DEMO_METHODS, target=["films"], **vars(options))
    compared.output = options.output or "runs/demo"
    if not (options.quiet or options.json):
        print(
            "Trains on generated reviews of books, kitchens, phones and hotels, and tests on films.\n"
            "The encoder is small and untrained: the scores show how the command works, not how good a method is.\n"
        )
    return compare(dataclasses.replace(call, command="compare", resolved=Resolved(compared, dict(DEMO_SETTINGS))))


def _run(call, methods: list[str], targets: list[str], seeds: list[int], baseline: str | None) -> int:
    options = call.options
    check_task(options)
    options.metric = options.metric or running.metrics_of(options.task)[0]
    running.check_metric(options.task, options.metric)
    several = {method: chosen(method) for method in dict.fromkeys(methods)}
    check_splits(options, targets)
    check_variants(several, call.resolved.method_settings)
    settings = used_settings(call.resolved, {name: one.settings() for name, one in several.items()})
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
    targets, kind = running.targets_of(targets, (held_out or rows).domains), kind_of(rows)
    if len(rows.domains) < 2 and targets != [NONE]:
        raise UsageError(
            f"`--data` has one domain only, {rows.domains[0]!r}, so that none is left to train on. Name the column of "
            "domains with `--domain`, or use `--target none`, with `--test-split` for the rows to test on."
        )
    check_lora(options, several.values(), kind)
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
        running.check_two_classes(splits)
    size = getattr(options, "ensemble_seeds", None)
    if size is not None and (not 2 <= size <= len(seeds) or shots is not None or kind in TASKS):
        raise UsageError(
            f"`--ensemble-seeds` is {size}. Use 2 to {len(seeds)}, the number of `--seeds`. It needs rows with one "
            "class each, and does not support `--shots`."
        )
    jobs = _plan(options, several, targets, seeds, source, settings, start)
    extra = max(job.protocol.get("extra_steps", 0) for job in jobs)
    if extra:
        notes.append(
            f"All other methods take {extra} more steps, as many as MIL's meta-training (`--own-steps`: none)."
        )
    display = Display(options.metric, options.quiet, options.json)
    for note in notes:
        display.text(note)
    prompted = [name for name in several if settings[name].get("template") is not None]
    if 0 < len(prompted) < len(several):
        others = ", ".join(name for name in several if name not in prompted)
        display.text(f"Prompted: {', '.join(prompted)}. Not prompted, with a new head: {others}.")

    def tables(folder, records) -> list[dict]:
        more = ensembles(folder.path, records, seeds, size) if size else []
        found = running.result_rows([*records, *more], data.data_name(source["data"]), options.metric, options.task)
        selection = "Models are selected on dev rows of the domains trained on, never on the target."
        if source.get("dev_split") is not None:
            selection = f"Models are selected on {source['dev_split']} and scored on {source['test_split']}."
        running.write_tables(call, folder, display, found, baseline, selection)
        return found

    facts = {"task": kind, "targets": [name for name in targets if name != NONE], "notes": notes}
    return running.run(call, jobs, display, rows, facts, splits, tables)


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
            changed = [f"{option_name(key)} {value}" for key, value in own.get(name, {}).items()]
            notes.append(f"{name}: {ADAPTS[one.method.trains]}{'; set: ' * bool(changed)}{', '.join(changed)}.")
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


def _plan(
    options, several: Mapping, targets: list[str], seeds: list[int], source: Mapping, settings: Mapping, start
) -> list[Job]:
    """The jobs, seed after seed, so that an interrupted run is complete for some seeds. Shots start from `start`."""
    names = ("metric", "dev_fraction", "evaluations", "on_overlap", "max_length")
    protocol = {name: getattr(options, name) for name in names}
    extra = 0 if getattr(options, "own_steps", True) else _meta_steps(several, settings)
    jobs = [
        running.make_job(
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
                **({"lora": options.lora_rank or 16} if (options.lora or options.lora_rank) and not one.shots else {}),
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
