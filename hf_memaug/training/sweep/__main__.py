# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
A sweep by DomainBed's protocol: each domain left out in turn, several trials, random hyper-parameters, one way to
select. What has run already is not run again, so that a command that was broken off can be given again.

    python -m hf_memaug.training.sweep --output runs/bench --steps 200 --checkpoint-every 50        # offline, generated
    python -m hf_memaug.training.sweep --output runs/mine --data reviews=reviews.csv --models bert=bert-base-uncased \\
        --algorithms erm coral --draws 5 --jobs 4
    python -m hf_memaug.training.sweep --output runs/pacs --data PACS=pacs/ --models vit=FOLDER gmoe=gmoe:FOLDER
    python -m hf_memaug.reporting.domain_tables runs/bench                                          # the tables

At the end the selected checkpoints are in OUTPUT/selected, each with a winner.json; other weights are deleted.
"""

import argparse
import json
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from hf_memaug.evaluation.domain_selection import SELECTIONS
from hf_memaug.evaluation.records import SETTINGS
from hf_memaug.files import alike, full_disk, is_full, told_plainly, write_atomically
from hf_memaug.runs.small_models import GENERATED, MNIST, check_checkpoint, load_rows, whole_images
from hf_memaug.training.sweep.plan import BUILD, Job, plan_jobs
from hf_memaug.training.sweep.runner import is_done, job_folder, lock, run_jobs
from hf_memaug.training.sweep.winners import keep_winners

# What all runs in a folder share: with other values, old and new records would not be of one kind.
FIXED = (
    "steps",
    "checkpoint_every",
    "selection",
    "setting",
    "holdout",
    "hparams",
    "training_arguments",
    "max_length",
    "on_overlap",
    "broken_images",
    "build",
)


def make_parser(
    program: str = "python -m hf_memaug.training.sweep", description: str | None = __doc__, **defaults
) -> argparse.ArgumentParser:
    """The options of the command, for recipes with other `defaults` too."""
    parser = argparse.ArgumentParser(
        program, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    shown = {"data": ["generated_reviews"], "models": ["small"], **defaults}
    add = parser.add_argument
    add("--output", type=Path, default=Path("runs/bench"), help="folder of the sweep (default: %(default)s)")
    what = parser.add_argument_group("what is compared")
    add = what.add_argument
    add(
        "--data",
        nargs="+",
        default=["generated_reviews"],
        metavar="NAME=SOURCE",
        help=f"file or folder that `load_domains` reads, dataset of the hub, {', '.join(GENERATED)}, or "
        f"{', '.join(MNIST)} with :FOLDER (default: {' '.join(shown['data'])})",
    )
    for column in ("text", "label", "domain"):
        add(f"--{column}", default=column, metavar="COLUMN", help=f"column with the {column} (default: %(default)s)")
    add(
        "--models",
        nargs="+",
        default=["small"],
        metavar="NAME=CHECKPOINT",
        help="folder or hub name; small: a small model of random weights; gmoe:CHECKPOINT: a vision transformer with "
        "experts made of one without "
        f"(default: {' '.join(shown['models'])})",
    )
    add(
        "--algorithms",
        nargs="+",
        default=["erm"],
        metavar="ALGORITHM",
        help="of DomainTrainer: erm, irm, vrex, group_dro, mixup, dann, coral, mmd, mldg, fish, fishr, swad "
        "(default: erm)",
    )
    add(
        "--test-domains",
        nargs="+",
        metavar="DOMAIN",
        help="domains to leave out in turn, or with `single_source` to train on (default: all)",
    )
    add(
        "--setting",
        default="multi_source",
        choices=SETTINGS,
        help="single_source trains on each domain alone and tests on the others (default: %(default)s)",
    )
    how = parser.add_argument_group("protocol")
    add = how.add_argument
    add("--trials", type=int, default=3, help="splits and seeds (default: %(default)s)")
    add("--draws", type=int, default=1, help="of hyper-parameters; the first is the defaults (default: %(default)s)")
    add(
        "--selection",
        default="training",
        choices=list(SELECTIONS),
        help="leave_one_out adds runs with a second domain left out (default: %(default)s)",
    )
    add("--steps", type=int, default=Job.steps, help="of each run (default: %(default)s)")
    add("--checkpoint-every", type=int, default=Job.checkpoint_every, help="steps (default: %(default)s)")
    add("--holdout", type=float, default=Job.holdout, help="part of a domain that validates (default: %(default)s)")
    add("--hparams", type=_json, default={}, metavar="JSON", help="""for all runs, such as '{"learning_rate": 3e-5}'""")
    add(
        "--training-arguments",
        type=_json,
        default={},
        metavar="JSON",
        help="""more of DomainTrainingArguments, such as '{"bf16": true}'""",
    )
    add("--max-length", type=int, help="longest text in tokens (default: the tokenizer's)")
    add(
        "--on-overlap",
        default="raise",
        choices=("raise", "drop", "ignore"),
        help="training rows that are also in a domain left out (default: %(default)s)",
    )
    add(
        "--broken-images",
        default="refuse",
        choices=("refuse", "skip"),
        help="images that cannot be decoded; all are looked at before the first job (default: %(default)s)",
    )
    add("--build", default=BUILD, metavar="MODULE:FUNCTION", help="makes (model, processor, rows) of a job")
    run = parser.add_argument_group("running")
    add = run.add_argument
    add("--jobs", type=int, default=1, help="at a time; several GPUs are taken in turn (default: %(default)s)")
    add("--dry-run", action="store_true", help="list the jobs and what is done of them, and train nothing")
    add("--keep-checkpoints", action="store_true", help="keep the weights of every checkpoint of every run")
    parser.set_defaults(**defaults)
    return parser


def main(
    arguments: Sequence[str] | None = None,
    parser: argparse.ArgumentParser | None = None,
    when_selected: Callable[[Path], None] | None = None,
) -> int:
    """
    The command. Returns its exit code: 1 where a job failed or the disk is full, 130 where it was interrupted.

    Args:
        arguments (*optional*): default: those of the command line.
        parser (*optional*): one of `make_parser`, with other defaults.
        when_selected (*optional*): is called with each folder of a selected checkpoint.
    """
    parser = parser or make_parser()
    options = parser.parse_args(arguments)
    try:
        return _sweep(options, parser, when_selected)
    except Exception as error:
        plain = told_plainly(error, options.output)
        if not is_full(plain):
            raise
        print(full_disk(plain, options.output), file=sys.stderr)
        return 1


def _sweep(
    options: argparse.Namespace, parser: argparse.ArgumentParser, when_selected: Callable[[Path], None] | None
) -> int:
    try:
        jobs = planned(options)
    except (OSError, ValueError) as error:
        if is_full(error):
            raise
        parser.error(str(error))
    if options.dry_run:
        try:
            check_settings(options, write=False)
        except ValueError as error:
            parser.error(str(error))
        for job in jobs:
            print(f"{'done' if is_done(options.output, job) else 'to do'}  {job.name}  {json.dumps(job.hparams)}")
        print(f"{len(jobs)} jobs, {sum(is_done(options.output, job) for job in jobs)} of them done")
        return 0
    # A sweep that is asked to end takes its jobs with it.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with lock(options.output):
            check_settings(options)
            failed = run_jobs(jobs, options.output, options.jobs)
            winners = keep_winners(jobs, options.output, options.selection, options.keep_checkpoints)
    except KeyboardInterrupt:
        print("\nInterrupted; its jobs were ended. The same command goes on from here.", file=sys.stderr)
        return 130
    except (RuntimeError, ValueError) as error:
        parser.error(str(error))
    finally:
        signal.signal(signal.SIGTERM, before)
    for winner in winners:
        if when_selected is not None:
            when_selected(winner)
        found = json.loads((winner / "winner.json").read_text(encoding="utf-8"))
        print(f"selected {winner} (validation {100 * found['score']:.1f}, step {found['step']}, {found['job']})")
    if len(failed) < len(jobs):
        print(f"python -m hf_memaug.reporting.domain_tables {options.output} --selection {options.selection}")
    for job in failed:
        print(f"FAILED {job.name}: see {job_folder(options.output, job) / 'log.txt'}", file=sys.stderr)
    if failed:
        print(f"{len(failed)} of {len(jobs)} jobs failed; the same command tries them again.", file=sys.stderr)
    return 1 if failed else 0


def planned(options: argparse.Namespace) -> list[Job]:
    """The jobs that the options ask for."""
    columns = {name: getattr(options, name) for name in ("text", "label", "domain")}
    sources = _named("data", options.data)
    made_here = (*GENERATED, *(f"{kind}:" for kind in MNIST))
    columns_of = {name: {} if source.startswith(made_here) else columns for name, source in sources.items()}
    rows_of = {name: load_rows(source, **columns_of[name]) for name, source in sources.items()}
    if not options.dry_run:
        try:
            rows_of = {name: whole_images(rows, options.broken_images) for name, rows in rows_of.items()}
        except ValueError as error:
            raise ValueError(str(error).replace('`broken="skip"`', "`--broken-images skip`")) from None
        has_images = any("image" in rows.column_names for rows in rows_of.values())
        for checkpoint in _named("models", options.models).values() if options.build == BUILD else ():
            check_checkpoint(checkpoint, has_images)
    datasets = {name: (source, rows_of[name].domains) for name, source in sources.items()}
    jobs = []
    for name, dataset in datasets.items():
        jobs += plan_jobs(
            {name: dataset},
            _named("models", options.models),
            options.algorithms,
            trials=options.trials,
            draws=options.draws,
            selection=options.selection,
            setting=options.setting,
            test_domains=options.test_domains,
            hparams=options.hparams,
            keep_checkpoints=options.keep_checkpoints,
            steps=options.steps,
            checkpoint_every=options.checkpoint_every,
            holdout=options.holdout,
            on_overlap=options.on_overlap,
            broken_images=options.broken_images,
            columns=columns_of[name],
            training=options.training_arguments,
            max_length=options.max_length,
            build=options.build,
        )
    return sorted(jobs, key=lambda job: job.trial_seed)


def check_settings(options: argparse.Namespace, write: bool = True) -> None:
    path = options.output / "sweep.json"
    sources = {"data": _named("data", options.data), "models": _named("models", options.models)}
    now = {**{name: getattr(options, name) for name in FIXED}, **sources}
    if path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))
        for name in FIXED:
            if not alike(now[name], before.get(name, now[name])):
                raise ValueError(
                    f"`{name}` is {now[name]!r}, but the sweep in {options.output} has {before[name]!r}. Give that, or "
                    "another `output`."
                )
        for name in sources:
            for key in before[name].keys() & now[name].keys():
                if before[name][key] != now[name][key]:
                    raise ValueError(
                        f"`{name}`: {key!r} is {now[name][key]!r}, but in {options.output} it is "
                        f"{before[name][key]!r}. Give it another name, or another `output`."
                    )
            now[name] = {**before[name], **now[name]}
    if write:
        write_atomically(path, json.dumps(now, indent=2) + "\n")


def _named(argument: str, values: Sequence[str]) -> dict[str, str]:
    """`name=what`, or `what` alone, which is then called by the last part of its path."""
    found: dict[str, str] = {}
    for value in values:
        name, equals, what = value.partition("=")
        name, what = (name, what) if equals else (Path(value).name, value)
        if not name or not what:
            raise ValueError(f"`{argument}` is {value!r}; write it as NAME=VALUE.")
        if name in found:
            raise ValueError(f"`{argument}` has the name {name!r} twice: give one of them another, NAME=VALUE.")
        found[name] = what
    return found


def _json(text: str) -> dict:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError('is not a JSON object such as {"name": 1.0}')
    return found


if __name__ == "__main__":
    sys.exit(main())
