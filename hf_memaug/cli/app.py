# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The commands of `hf-memaug`. What they do is imported when they are called: `--help` needs nothing of it."""

import dataclasses
import importlib
import inspect
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from hf_memaug.cli import options as own
from hf_memaug.files import full_disk, is_full
from hf_memaug.runs.errors import DATA, EXIT_CODES, FAILED, INTERRUPTED, OK, USAGE, CommandError

WIDTH = 100
MORE = "Options of the trainers and models too, such as {some}: see `hf-memaug options`."


@dataclass(frozen=True)
class Command:
    """
    One row for each command.

    Args:
        options: the dataclass of its own options, or None for one that is called with its arguments alone.
        run: `module:function`, called with `(Call)`.
        help, example: for `--help`.
        arguments: names of positional arguments, with their help; one that ends in "?" may be left out, one that ends
            in "..." may be given several times.
        settings: which fields of trainers and configurations are options too: names of `fields.TRAINERS` and
            `fields.CONFIGURATIONS`.
        more: some of these fields, to be named in `--help`.
    """

    options: type
    run: str
    help: str
    example: str
    arguments: dict[str, str] = dataclasses.field(default_factory=dict)
    settings: tuple[str, ...] = ()
    more: str = ""


@dataclass
class Call:
    """What a command was called with."""

    command: str
    line: str
    resolved: Any
    arguments: dict[str, Any]

    @property
    def options(self) -> Any:
        return self.resolved.options


@dataclass(kw_only=True)
class PushOptions:
    private: bool = own.option(False, "make the repository private")
    with_code: bool = own.option(False, "carry the code: readers need not have hf_memaug")
    space: bool = own.option(False, "publish a Space with the app that serves the checkpoint")
    message: str | None = own.option(None, "of the commit", "TEXT")


@dataclass(kw_only=True)
class PullOptions:
    revision: str | None = own.option(None, "branch, tag or commit", "NAME")


@dataclass(kw_only=True)
class ReportOptions:
    output: str | None = own.option(None, "file (default: report.html in the run folder)", "FILE")


@dataclass(kw_only=True)
class AppOptions:
    port: int | None = own.option(None, "where to serve it", "N")
    share: bool = own.option(False, "make a public link")
    baseline: str | None = own.option(None, "a plain checkpoint, whose answer stands beside", "NAME")


@dataclass(kw_only=True)
class EnvOptions:
    json: bool = own.option(False, "say it as JSON")


@dataclass(kw_only=True)
class OptionsOptions:
    """`hf-memaug options` has none of its own."""


MODELS = ("kv_memory", "gmap", "gmoe", "hma", "memory_rnn")
# The options of `train` and `compare` beside their own.
TRAINED = ("bilevel", *MODELS, "graph_network")
COMMANDS = {
    "train": Command(
        own.TrainOptions,
        "compare:train",
        "Train one method, and keep the checkpoint that does best on dev rows of the domains trained on.",
        "hf-memaug train --data reviews.csv --label stars --domain shop --target books --method mil",
        settings=TRAINED,
        more="`--learning-rate 2e-5`, `--episodes 30` or `--memory-slots 512`",
    ),
    "compare": Command(
        own.CompareOptions,
        "compare:compare",
        "Train several methods on the same splits, over seeds, with paired tests.",
        "hf-memaug compare --data reviews.csv --label stars --domain shop --methods erm,mil,hma",
        settings=TRAINED,
        more="`--mil.episodes 30`",
    ),
    "sweep": Command(
        own.SweepOptions,
        "sweep:sweep",
        "DomainBed's protocol: each domain left out, several trials, random hyper-parameters.",
        "hf-memaug sweep --data pacs/ --methods erm,gmoe --backbone vit --trials 3 --draws 5",
        settings=("domain", *MODELS, "graph_network"),
        more="`--learning-rate 3e-5`, which is then not drawn",
    ),
    "evaluate": Command(
        own.EvaluateOptions,
        "scoring:evaluate",
        "Score a checkpoint on each domain of some data.",
        "hf-memaug evaluate runs/train/jobs/NAME/checkpoint --data new.csv --label stars --domain shop",
        arguments={"checkpoint": "folder or hub name"},
    ),
    "predict": Command(
        own.PredictOptions,
        "scoring:predict",
        "Texts, images, graphs, words or questions in, JSON lines out.",
        'hf-memaug predict runs/train/jobs/NAME/checkpoint "Could not put it down."',
        arguments={"checkpoint": "folder or hub name", "inputs...": "texts, SMILES, or files of images"},
    ),
    "continual": Command(
        own.ContinualOptions,
        "continual:continual",
        "Train one model on domain after domain, also one that was published before.",
        "hf-memaug continual --data reviews.csv --strategies f,ewc,replay --order films,books",
        settings=("continual", *MODELS, "graph_network"),
        more="`--num-train-epochs 3` or `--strategy-kwargs '{\"slots\": 500}'`",
    ),
    "pretrain": Command(
        own.PretrainOptions,
        "pretrain:pretrain",
        "Go on pre-training an encoder on the text of a domain (DAPT) or of a task (TAPT).",
        "hf-memaug pretrain --backbone roberta-base --corpus biomed.jsonl.gz --also general.txt",
        settings=("masked_lm", "gmap"),
        more="`--learning-rate 1e-4` or `--max-steps 1000`",
    ),
    "report": Command(
        ReportOptions,
        "publish:report",
        "Write report.html of a run folder: one file that opens offline.",
        "hf-memaug report runs/compare",
        arguments={"run": "run folder"},
    ),
    "push": Command(
        PushOptions,
        "publish:push",
        "Publish a checkpoint, with its card, on the hub.",
        "hf-memaug push runs/train/jobs/NAME/checkpoint you/reviews-memory --private",
        arguments={"checkpoint": "folder", "repository": "name on the hub"},
    ),
    "pull": Command(
        PullOptions,
        "publish:pull",
        "Fetch a checkpoint from the hub into a folder, and say what it is.",
        "hf-memaug pull you/reviews-memory reviews-memory",
        arguments={"repository": "name on the hub", "folder?": "default: the last part of the name"},
    ),
    "app": Command(
        AppOptions,
        "publish:app",
        "Serve a checkpoint: type a text or drop a picture, see what answered.",
        "hf-memaug app runs/train/jobs/NAME/checkpoint --baseline roberta-base",
        arguments={"checkpoint": "folder or hub name"},
    ),
    "demo": Command(
        own.DemoOptions,
        "demo:demo",
        "Compare methods on generated reviews with a small encoder: offline, in some minutes.",
        "hf-memaug demo",
    ),
    "env": Command(
        EnvOptions,
        "environment:environment",
        "Versions, devices, what is missing and how to install it.",
        "hf-memaug env",
    ),
    "options": Command(
        OptionsOptions,
        "environment:list_options",
        "List the options that the trainers and the models declare, with defaults.",
        "hf-memaug options bilevel",
        arguments={
            "of?": "columns, domain, bilevel, continual, masked_lm, kv_memory, gmap, gmoe, hma, memory_rnn, "
            "graph_network"
        },
    ),
}


def make_app() -> typer.Typer:
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Hugging Face models that hold up when the data shifts between domains.",
        epilog=f"\b\nExample:\n  hf-memaug demo\n\n{EXIT_CODES}",
        context_settings={"max_content_width": WIDTH, "help_option_names": ["-h", "--help"]},
    )
    # With a callback, one command alone would still be a command.
    app.callback()(lambda: None)
    for name, command in COMMANDS.items():
        more = f" {MORE.format(some=command.more)}" if command.settings else ""
        extra = {"allow_extra_args": True, "ignore_unknown_options": True}
        app.command(
            name,
            help=command.help + more,
            epilog=f"\b\nExample:\n{_folded(command.example)}\n{EXIT_CODES}",
            context_settings={**extra, "max_content_width": WIDTH},
        )(_callback(name, command))
    return app


def _folded(example: str) -> str:
    """A command in lines that fit."""
    lines, line = [], "  "
    for word in example.split(" "):
        if len(line) + len(word) > WIDTH - 8:
            lines.append(f"{line} \\")
            line = "     "
        line += f" {word}" if line.strip() else word
    return "\n".join([*lines, line])


def _callback(name: str, command: Command):
    parameters = [inspect.Parameter("typer_context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
    parameters += [_argument(argument, text) for argument, text in command.arguments.items()]
    parameters += [_option(one) for one in dataclasses.fields(command.options)]

    def callback(typer_context, **given):
        arguments = {key.rstrip("?."): given.pop(key.rstrip("?.")) for key in command.arguments}
        given = {key: value for key, value in given.items() if value is not None}
        extra = list(typer_context.args)
        if "--" not in sys.argv:
            # What is behind a list of inputs would be one of them.
            several = (word for value in arguments.values() if isinstance(value, list) for word in value)
            extra += [word for word in several if word.startswith("--") and " " not in word]
        raise typer.Exit(_guarded(name, command, given, extra, arguments))

    callback.__signature__ = inspect.Signature(parameters)
    callback.__annotations__ = {one.name: one.annotation for one in parameters}
    return callback


def _argument(name: str, text: str) -> inspect.Parameter:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    plain = name.rstrip("?.")
    if name.endswith("..."):
        annotation = Annotated[list[str] | None, typer.Argument(help=text, show_default=False)]
        return inspect.Parameter(plain, kind, annotation=annotation, default=None)
    if name.endswith("?"):
        annotation = Annotated[str | None, typer.Argument(help=text, show_default=False)]
        return inspect.Parameter(plain, kind, annotation=annotation, default=None)
    return inspect.Parameter(plain, kind, annotation=Annotated[str, typer.Argument(help=text)])


def _option(one: dataclasses.Field) -> inspect.Parameter:
    default, text = one.default, one.metadata["help"]
    flag = "--" + one.name.replace("_", "-")
    if isinstance(default, bool):
        kind, names = bool | None, [f"{flag}/--no-{flag[2:]}"] if default else [flag]
    else:
        # Lists are written with commas; what is written wrong is refused with the recipe's words.
        kind, names = str | None, [flag]
        shown = ",".join(map(str, default)) if isinstance(default, (list, tuple)) else default
        text += f" (default: {shown})" if shown is not None and "default" not in text else ""
    shown = {"metavar": one.metadata["metavar"], "hidden": one.metadata["hidden"], "show_default": False}
    annotation = Annotated[kind, typer.Option(*names, help=text, **shown)]
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=None)


def _guarded(name: str, command: Command, given: dict, extra: Sequence[str], arguments: dict) -> int:
    """Runs a command; every way to fail has its exit code and its sentence."""
    from hf_memaug.cli import fields
    from hf_memaug.cli.recipes import resolve
    from hf_memaug.inference.errors import InferenceError, InputError

    try:
        resolved = resolve(name, command.options, given, extra, fields.fields_of(*command.settings))
        module, _, function = command.run.partition(":")
        call = Call(name, shlex.join(["hf-memaug", *sys.argv[1:]]), resolved, arguments)
        run = getattr(importlib.import_module(f"hf_memaug.cli.{module}"), function)
        return run(call) or OK
    except CommandError as error:
        return _say(str(error) if error.code == INTERRUPTED else f"Error: {error}", error.code)
    except InferenceError as error:
        return _say(f"Error: {error}", DATA if isinstance(error, InputError) else USAGE)
    except KeyboardInterrupt:
        return _say("Interrupted. The same command goes on from here.", INTERRUPTED)
    except BrokenPipeError:
        # Whoever read the output has seen enough.
        sys.stdout = None
        return OK
    except OSError as error:
        if not is_full(error):
            raise
        return _say(full_disk(error), FAILED)


def _say(message: str, code: int) -> int:
    print(message, file=sys.stderr, flush=True)
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """The console script. Returns the exit code."""
    if arguments is not None:
        sys.argv[1:] = list(arguments)
    try:
        make_app()(args=None if arguments is None else list(arguments), prog_name="hf-memaug")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else USAGE if end.code else OK
    return OK
