# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Records of domain generalisation: one JSON line for each evaluated checkpoint of each run, ours and DomainBed's."""

import json
import logging
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hf_memaug.evaluation.checks import check_name
from hf_memaug.files import write_atomically

logger = logging.getLogger(__name__)

SETTINGS = ("multi_source", "single_source")
FILE_NAMES = ("records.jsonl", "results.jsonl")
# DomainBed numbers the domains ("environments") of a run; these are the names that its data sets give them.
DOMAINBED_ENVIRONMENTS = {
    "ColoredMNIST": ("+90%", "+80%", "-90%"),
    "RotatedMNIST": ("0", "15", "30", "45", "60", "75"),
    "VLCS": ("C", "L", "S", "V"),
    "PACS": ("A", "C", "P", "S"),
    "OfficeHome": ("A", "C", "P", "R"),
    "TerraIncognita": ("L100", "L38", "L43", "L46"),
    "DomainNet": ("clip", "info", "paint", "quick", "real", "sketch"),
    "SVIRO": ("aclass", "escape", "hilux", "i3", "lexus", "tesla", "tiguan", "tucson", "x5", "zoe"),
    "WILDSCamelyon": tuple(f"hospital_{number}" for number in range(5)),
    "WILDSFMoW": tuple(f"region_{number}" for number in range(6)),
}


@dataclass(frozen=True)
class Record:
    """
    What one checkpoint of one run scores.

    Args:
        dataset, algorithm, model (`str`):
            What was trained, how, and on which data. DomainBed's records may name no model (`""`).
        test_envs (`tuple[str]`):
            The domains left out: one; two in runs that validate hyper-parameters by leaving one more out; all but one
            where `setting` is `"single_source"`.
        trial_seed, hparams_seed, step (`int`):
            The trial (which says how each domain is split), the draw of hyper-parameters (0 is the defaults), and the
            steps done.
        accuracy (`dict[str, dict[str, float]]`):
            For each domain the accuracy, from 0 to 1, on its `"in"` split (trained on, unless the domain is left out)
            and on its `"out"` split (never trained on).
        hparams, args (`dict`):
            Hyper-parameters, and everything else that is known of the run.
        setting (`str`):
            `"multi_source"` or `"single_source"`.
    """

    dataset: str
    algorithm: str
    model: str
    test_envs: tuple[str, ...]
    trial_seed: int
    hparams_seed: int
    step: int
    accuracy: dict[str, dict[str, float]]
    hparams: dict[str, Any] = field(default_factory=dict)
    args: dict[str, Any] = field(default_factory=dict)
    setting: str = "multi_source"

    def __post_init__(self):
        for name in ("dataset", "algorithm", "model"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"`{name}` is {getattr(self, name)!r}; it must be a name.")
        for name in ("trial_seed", "hparams_seed", "step"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"`{name}` is {value!r}; it must be a whole number, 0 or more.")
        check_name("setting", self.setting, SETTINGS)
        _check_accuracy(self.accuracy)
        if isinstance(self.test_envs, str) or not self.test_envs:
            raise ValueError(f"`test_envs` is {self.test_envs!r}; it must list the domains left out.")
        for name in self.test_envs:
            check_name("test_envs", name, self.accuracy)
        if not self.train_envs:
            raise ValueError(f"`test_envs` leaves every domain out ({', '.join(self.test_envs)}): none was trained on.")
        if self.setting == "single_source" and len(self.train_envs) != 1:
            raise ValueError(f'`setting` is "single_source", but there are {len(self.train_envs)} domains trained on.')
        object.__setattr__(self, "test_envs", tuple(self.test_envs))

    @property
    def train_envs(self) -> list[str]:
        return [name for name in self.accuracy if name not in self.test_envs]

    @property
    def run(self) -> tuple:
        """What the records of one run share, and no others have."""
        left_out = tuple(sorted(self.test_envs))
        names = (self.dataset, self.algorithm, self.model, self.setting)
        return (*names, left_out, self.trial_seed, self.hparams_seed)

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> "Record":
        """Reads a line of ours or of DomainBed's `results.jsonl`."""
        found = json.loads(line)
        if not isinstance(found, dict):
            raise ValueError("it holds no JSON object.")
        if "env0_in_acc" in found:
            return _from_domainbed(found)
        known = cls.__dataclass_fields__
        lacking = [name for name in known if name not in found and name not in ("hparams", "args", "setting")]
        if lacking:
            raise ValueError(f"`{lacking[0]}` is missing.")
        return cls(**{name: value for name, value in found.items() if name in known})


def read_records(*paths: str | os.PathLike) -> list[Record]:
    """
    The records of files of JSON lines, and of all files called `records.jsonl` (ours) or `results.jsonl` (DomainBed's)
    in folders, in the order of the runs' first lines and of the steps.

    A last line that was cut off by a kill is passed over with a warning. A line in the middle that cannot be read is
    refused. Where a run has two records of a step, because it was begun again, the later one counts.
    """
    found: dict[tuple, dict[int, Record]] = {}
    repeated = 0
    for file in _files(paths):
        for record in _read_file(file):
            steps = found.setdefault(record.run, {})
            repeated += record.step in steps
            steps[record.step] = record
    if repeated:
        logger.warning("%d records stand twice (same run, same step): the later one counts.", repeated)
    return [steps[step] for steps in found.values() for step in sorted(steps)]


def split_finished(records: Iterable[Record]) -> tuple[list[Record], list[Record]]:
    """
    Records of runs that have come to their end, and of those that have not, or never will. Our own runs say how many
    steps they take; of DomainBed's, all count as it counts them.
    """
    records = list(records)
    ended = {record.run for record in records if "job" not in record.args or record.step >= record.args.get("steps", 0)}
    return [r for r in records if r.run in ended], [r for r in records if r.run not in ended]


def write_records(path: str | os.PathLike, records: Iterable[Record]) -> None:
    """Replaces a file by these records, in one step."""
    write_atomically(path, "".join(record.to_json() + "\n" for record in records))


def _files(paths: Iterable[str | os.PathLike]) -> list[Path]:
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(file for name in FILE_NAMES for file in path.rglob(name))
            if not inside:
                raise ValueError(
                    f"`paths`: the folder {path} holds no {' or '.join(FILE_NAMES)}. Give the folder of a sweep, or "
                    "the file itself."
                )
            files += inside
        elif path.is_file():
            files.append(path)
        else:
            raise ValueError(f"`paths`: there is no {path}. Give the folder of a sweep, or a file of JSON lines.")
    return files


def _read_file(file: Path) -> list[Record]:
    # Bytes, as a kill may have cut a character in two.
    lines = file.read_bytes().split(b"\n")
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    records = []
    for number, line in numbered:
        try:
            text = line.decode("utf-8")
            records.append(Record.from_json(text))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            if number == len(lines):
                logger.warning("%s: its last line is cut off (line %d), and was passed over.", file, number)
                continue
            raise ValueError(
                f"{file}, line {number} is no JSON ({error}). Delete that line, or restore the file."
            ) from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"{file}, line {number} is no record: {error} Delete that line, or restore the file."
            ) from None
    return records


def _from_domainbed(found: Mapping[str, Any]) -> Record:
    args, hparams = found.get("args"), found.get("hparams") or {}
    if not isinstance(args, dict):
        raise ValueError("`args` is missing.")
    for name in ("dataset", "algorithm", "test_envs", "trial_seed", "hparams_seed"):
        if name not in args:
            raise ValueError(f"`args` lacks `{name}`.")
    if "step" not in found:
        raise ValueError("`step` is missing.")
    count = 0
    while f"env{count}_in_acc" in found:
        count += 1
    names = DOMAINBED_ENVIRONMENTS.get(args["dataset"], ())
    if len(names) != count:
        names = tuple(f"env{number}" for number in range(count))
    accuracy = {}
    for number, name in enumerate(names):
        if f"env{number}_out_acc" not in found:
            raise ValueError(f"`env{number}_out_acc` is missing.")
        accuracy[name] = {"in": found[f"env{number}_in_acc"], "out": found[f"env{number}_out_acc"]}
    outside = [number for number in args["test_envs"] if number not in range(count)]
    if outside:
        raise ValueError(f"`test_envs` names the environment {outside[0]}; there are 0 to {count - 1}.")
    return Record(
        dataset=args["dataset"],
        algorithm=args["algorithm"],
        # Forks with several networks name the one of a run there.
        model=str(hparams.get("model", "")),
        test_envs=tuple(names[number] for number in args["test_envs"]),
        trial_seed=args["trial_seed"],
        hparams_seed=args["hparams_seed"],
        step=found["step"],
        accuracy=accuracy,
        hparams=hparams,
        args=args,
    )


def _check_accuracy(accuracy: Any) -> None:
    if not isinstance(accuracy, dict) or not accuracy:
        raise ValueError('`accuracy` must say for each domain {"in": ..., "out": ...}.')
    for domain, parts in accuracy.items():
        for part in ("in", "out"):
            value = parts.get(part) if isinstance(parts, dict) else None
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or not math.isfinite(value) or not 0 <= value <= 1:
                raise ValueError(f"`accuracy` of {domain!r} ({part}) is {value!r}; it must lie between 0 and 1.")
