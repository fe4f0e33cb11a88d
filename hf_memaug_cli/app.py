# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The table of commands, and the function that runs them."""

import dataclasses
import inspect
import pkgutil
import re
import shlex
import sys
import textwrap
import traceback
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hf_memaug_cli import options as own

if TYPE_CHECKING:
    from hf_memaug.runs.settings import Setting

WIDTH = 100
is_debugging = False
# What users of other tools write for options of trainers.
ELSEWHERE = {"--batch-size": "--per-device-train-batch-size", "--device": "--use-cpu", "--lr": "--learning-rate"}
HELP = ("-h", "--help")
DEBUG = "--debug"
# Fields of trainers that `--help` names with their defaults. Importing all fields takes too long.
COMMON = {"--learning-rate": 5e-5, "--num-train-epochs": 3.0, "--per-device-train-batch-size": 8}
FIELDS = " Fields of trainers and models are options too, such as `--learning-rate 2e-5`: see `hf-memaug options`."
EXIT_CODES = "Exit codes: 0 done, 1 a job failed, 2 wrong usage, 3 data refused, 130 interrupted."


@dataclass(frozen=True)
class Command:
    """
    A row of the table of commands.

    Args:
        run: `module:function`, called with a `Call`.
        options: the dataclass of its own options.
        help, example: for `--help`.
        arguments: the positional arguments with their help. "name?" is optional, "name..." takes several values.
        trainer: the trainer whose arguments are options too, together with the fields of the models.
        auto_class: only the fields of families that have a model under this auto class.
    """

    run: str
    options: type
    help: str
    example: str
    arguments: dict[str, str] = dataclasses.field(default_factory=dict)
    trainer: str | None = None
    auto_class: str | None = None

    def settings(self) -> "dict[str, Setting]":
        """The fields of trainers and models that are options of the command. Imports torch."""
        if self.trainer is None:
            return {}
        from hf_memaug.runs.settings import all_settings

        return all_settings(self.trainer, self.auto_class)


@dataclass
class Call:
    """A call of a command."""

    command: str
    line: str
    resolved: Any
    arguments: dict[str, Any]

    @property
    def options(self) -> Any:
        return self.resolved.options


CHECKPOINT = {"checkpoint": "folder or hub name"}
COMMANDS = {
    "train": Command(
        "compare:train",
        own.TrainOptions,
        "Train one method, and keep its best checkpoint.",
        "hf-memaug train --data reviews.csv --label stars --domain shop --target books --method mil",
        trainer="bilevel",
    ),
    "compare": Command(
        "compare:compare",
        own.CompareOptions,
        "Compare methods on the same splits and seeds, by paired tests.",
        "hf-memaug compare --data reviews.csv --label stars --domain shop --methods erm,mil,hma",
        trainer="bilevel",
    ),
    "sweep": Command(
        "sweep:sweep",
        own.SweepOptions,
        "Run DomainBed's protocol: trials, and random hyper-parameters.",
        "hf-memaug sweep --data pacs/ --methods erm,gmoe --backbone vit --trials 3 --draws 5",
        trainer="domain",
    ),
    "evaluate": Command(
        "scoring:evaluate",
        own.EvaluateOptions,
        "Score a checkpoint on each domain of labelled rows.",
        "hf-memaug evaluate runs/train/jobs/NAME/checkpoint --data new.csv --label stars --domain shop",
        CHECKPOINT,
    ),
    "predict": Command(
        "scoring:predict",
        own.PredictOptions,
        "Predict for texts, images, graphs, words or questions.",
        'hf-memaug predict runs/train/jobs/NAME/checkpoint "Could not put it down."',
        {**CHECKPOINT, "inputs...": "texts, SMILES, or image files"},
    ),
    "write": Command(
        "memory:write",
        own.WriteOptions,
        "Adapt a classifier to a new domain by writing labelled rows. Nothing is trained.",
        "hf-memaug write you/reviews --data hotels.csv --domain hotels --guard reviews.csv",
        CHECKPOINT,
    ),
    "erase": Command(
        "memory:erase",
        own.EraseOptions,
        "Erase a written domain, or single rows.",
        "hf-memaug erase reviews-written --domain hotels",
        {"checkpoint": "folder"},
    ),
    "memory": Command(
        "memory:memory",
        own.MemoryOptions,
        "List what was written to a checkpoint.",
        "hf-memaug memory reviews-written",
        CHECKPOINT,
    ),
    "continual": Command(
        "continual:continual",
        own.ContinualOptions,
        "Train one model on domain after domain, by several strategies.",
        "hf-memaug continual --data reviews.csv --strategies f,ewc,replay --order films,books",
        trainer="continual",
    ),
    "pretrain": Command(
        "pretrain:pretrain",
        own.PretrainOptions,
        "Continue pre-training an encoder on texts of a domain or task.",
        "hf-memaug pretrain --backbone roberta-base --corpus biomed.jsonl.gz --also general.txt",
        trainer="masked_lm",
        auto_class="AutoModelForMaskedLM",
    ),
    "report": Command(
        "publish:report",
        own.ReportOptions,
        "Write the report of a run: one HTML file that opens offline.",
        "hf-memaug report runs/compare",
        {"run": "run folder"},
    ),
    "push": Command(
        "publish:push",
        own.PushOptions,
        "Publish a checkpoint with its model card on the hub.",
        "hf-memaug push runs/train/jobs/NAME/checkpoint you/reviews-memory --private",
        {"checkpoint": "folder", "repository": "name on the hub"},
    ),
    "pull": Command(
        "publish:pull",
        own.PullOptions,
        "Download a checkpoint from the hub and print what it is.",
        "hf-memaug pull you/reviews-memory reviews-memory",
        {"repository": "name on the hub", "folder?": "default: the last part of the name"},
    ),
    "app": Command(
        "publish:app",
        own.AppOptions,
        "Serve a checkpoint in the browser.",
        "hf-memaug app runs/train/jobs/NAME/checkpoint --baseline roberta-base",
        CHECKPOINT,
    ),
    "demo": Command(
        "compare:demo", own.DemoOptions, "Compare methods on generated reviews, offline, in minutes.", "hf-memaug demo"
    ),
    "env": Command(
        "environment:environment", own.EnvOptions, "Print versions, devices and missing packages.", "hf-memaug env"
    ),
    "options": Command(
        "environment:list_options",
        own.NoOptions,
        "List the options of columns, trainers and models.",
        "hf-memaug options bilevel",
        {"name?": "columns, domain, bilevel, continual, masked_lm, or a model type such as hma"},
    ),
}


def make_app(words: Sequence[str] = ()) -> typer.Typer:
    """Of the command that `words`, the command line, call, the fields of trainers and models are options too."""
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Hugging Face models for data that shifts between domains.",
        epilog=f"\b\nExample:\n  hf-memaug demo\n\n{EXIT_CODES}",
        context_settings={"max_content_width": WIDTH, "help_option_names": list(HELP)},
    )
    app.callback()(_shared)
    for name, command in COMMANDS.items():
        settings = _setting_options(command, words) if words[:1] == [name] and not set(HELP) & set(words) else {}
        common = ", ".join(f"`{option}` ({default:g})" for option, default in COMMON.items())
        used = f" Those most used, with their defaults: {common}." if command.trainer == "bilevel" else ""
        app.command(
            name,
            help=command.help + FIELDS * bool(command.trainer) + used,
            epilog=f"\b\nExample:\n  {command.example}\n{EXIT_CODES}",
            context_settings={"max_content_width": WIDTH},
        )(_callback(name, command, settings, shlex.join(["hf-memaug", *words])))
    return app


def _shared(debug: Annotated[bool, typer.Option(DEBUG, help="print the tracebacks of errors")] = False) -> None:
    """`main` reads it, so that it may also follow the command."""


def _setting_options(command: Command, words: Sequence[str]) -> "dict[str, tuple[str | None, Setting]]":
    """Each field of `command`, for all methods and for each method that `words` name: `--mil.learning-rate 1e-4`."""
    declared = {one.name for one in dataclasses.fields(command.options)}
    of_methods = dict.fromkeys(match[1] for word in words if (match := re.match(r"--([^=]+)\.[^.=]+", word)))
    return {
        f"setting_{number}": (method, setting)
        for number, (method, setting) in enumerate(product((None, *of_methods), command.settings().values()))
        if method is not None or setting.name not in declared
    }


def _callback(name: str, command: Command, settings: "Mapping[str, tuple[str | None, Setting]]", line: str):
    """A function for typer, with one parameter for each argument and option."""
    parameters = [_argument(argument, text) for argument, text in command.arguments.items()]
    declared = sorted(dataclasses.fields(command.options), key=lambda one: one.name not in vars(command.options))
    parameters += [_own_option(one) for one in declared]
    for key, (method, setting) in settings.items():
        prefix, option = "--" if method is None else f"--{method}.", setting.option.removeprefix("--")
        written = f"{prefix}{option}/{prefix}no-{option}" if setting.is_flag else f"{prefix}{option}"
        parameters.append(_option(key, written, setting.is_flag))

    def callback(**given):
        arguments = {key.rstrip("?."): given.pop(key.rstrip("?.")) for key in command.arguments}
        given = {key: value for key, value in given.items() if value is not None}
        given_settings: dict[str | None, dict[str, Any]] = {}
        for key, (method, setting) in settings.items():
            if key in given:
                given_settings.setdefault(method, {})[setting.name] = given.pop(key)
        raise typer.Exit(_run(name, command, line, given, given_settings, arguments))

    callback.__signature__ = inspect.Signature(parameters)
    callback.__annotations__ = {one.name: one.annotation for one in parameters}
    return callback


def _argument(name: str, text: str) -> inspect.Parameter:
    kind = list[str] | None if name.endswith("...") else str | None if name.endswith("?") else str
    annotation = Annotated[kind, typer.Argument(help=text, show_default=False)]
    default = inspect.Parameter.empty if kind is str else None
    return inspect.Parameter(name.rstrip("?."), inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _own_option(one: dataclasses.Field) -> inspect.Parameter:
    default, text = one.default, one.metadata["help"]
    if default is not None and not isinstance(default, bool) and "default" not in text:
        text += f" (default: {','.join(default) if isinstance(default, tuple) else default})"
    shown = {"help": text, "metavar": one.metadata["metavar"], "hidden": one.metadata["hidden"]}
    return _option(one.name, "--" + one.name.replace("_", "-"), isinstance(default, bool), **shown)


def _option(key: str, written: str, is_flag: bool, **shown) -> inspect.Parameter:
    """Values stay text here: `Setting.convert` reads those of the command line and of recipes alike."""
    annotation = Annotated[bool | None if is_flag else str | None, typer.Option(written, show_default=False, **shown)]
    return inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=None)


def _run(name: str, command: Command, line: str, given: dict, given_settings: dict, arguments: dict) -> int:
    """Runs a command and turns errors into messages and exit codes."""
    from hf_memaug.cli.recipes import relative_path, resolve
    from hf_memaug.files import disk_full_message, is_disk_full, without_folders
    from hf_memaug.inference.predictions import InferenceError, InputError
    from hf_memaug.runs.errors import DATA, FAILED, INTERRUPTED, OK, USAGE, CommandError

    try:
        resolved = resolve(name, command.options, given, given_settings, command.settings())
        run = pkgutil.resolve_name(f"hf_memaug.cli.{command.run}")
        line = without_folders(shlex.join(map(relative_path, shlex.split(line))))
        return run(Call(name, line, resolved, arguments)) or OK
    except CommandError as error:
        return _fail(str(error) if error.code == INTERRUPTED else f"Error: {error}", error.code)
    except InferenceError as error:
        return _fail(f"Error: {error}", DATA if isinstance(error, InputError) else USAGE)
    except KeyboardInterrupt:
        return _fail("Interrupted. To resume, rerun the same command.", INTERRUPTED)
    except BrokenPipeError:
        # The reader of the output has closed it.
        sys.stdout = None
        return OK
    except Exception as error:
        if is_disk_full(error):
            return _fail(disk_full_message(error), FAILED)
        said = textwrap.shorten(f"{type(error).__name__}: {error}", 300, placeholder="...")
        return _fail(f"Error: `{name}` failed unexpectedly: {said} Run again with {DEBUG} for the traceback.", FAILED)


def _fail(message: str, code: int) -> int:
    if is_debugging:
        traceback.print_exc()
    print(message, file=sys.stderr, flush=True)
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """The console script. Returns the exit code."""
    global is_debugging
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = words[: words.index("--")] if "--" in words else words
    is_debugging = DEBUG in options
    if is_debugging:
        words.remove(DEBUG)
    command = COMMANDS.get(words[0]) if words else None
    for option in {word.partition("=")[0] for word in options} & set(ELSEWHERE):
        if command and command.trainer and option[2:].replace("-", "_") not in vars(command.options):
            return _fail(f"Error: No such option: {option}. Use `{ELSEWHERE[option]}`.", 2)
    with warnings.catch_warnings():
        # Without the place in the code.
        warnings.showwarning = lambda message, *_: print(f"Warning: {message}", file=sys.stderr)
        try:
            make_app(words)(args=words, prog_name="hf-memaug")
        except SystemExit as end:
            return int(end.code or 0)
    return 0
