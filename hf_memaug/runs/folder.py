# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
The run folder. One process writes to it at a time.

    run.json, data.json, recipe.yaml    what was asked, of which data
    runs.jsonl                          a line for each job that is done
    results.json, README.md             the table
    jobs/NAME/                          see `hf_memaug.runs.job`
"""

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from hf_memaug.files import differing, read_json_lines, write_atomically
from hf_memaug.runs.errors import DataRefused, UsageError
from hf_memaug.runs.job import JOB_FILE, Job, job_folder

RUN_FILE, DATA_FILE, RECIPE_FILE, RECORDS_FILE = "run.json", "data.json", "recipe.yaml", "runs.jsonl"
RESULTS_FILE = "results.json"
# The fields that every line of runs.jsonl has.
RECORD = {"name": str, "job": dict}
# The options that may be paths. A recipe has them relative to its own folder, so that it runs from any folder.
PATHS = ("data", "backbone", "general", "vectors", "corpus", "also")
# The jobs of one method differ in these and in nothing else.
OF_A_JOB = ("target", "left_out", "seed", "start", "draw", "hparams", "weights")


class RunFolder:
    """The folder `path`. It is created when it is first locked."""

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        self.warnings: list[str] = []

    @contextlib.contextmanager
    def locked(self) -> Iterator["RunFolder"]:
        """Raises an error if another process uses the folder. The lock ends with the process, also if it is killed."""
        import fcntl

        try:
            self.path.mkdir(parents=True, exist_ok=True)
            check_links(self.path)
            file = open(self.path / "lock", "a+")
        except OSError as error:
            raise UsageError(
                f"`--output` {self.path} cannot be written: {error.strerror or error}. Choose another folder."
            ) from None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                raise UsageError(
                    f"`--output` {self.path} is in use by another run (process {file.read().strip() or 'unknown'}). "
                    "Wait until it ends, or choose another `--output`."
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield self

    def records(self) -> list[dict]:
        """The last complete line of each job in runs.jsonl. Broken lines stay in the file and are skipped."""
        path = self.path / RECORDS_FILE
        records, broken = read_json_lines(path, **RECORD)
        self.warnings = [f"{path}, line {number} is broken and is skipped. Its job runs again." for number in broken]
        for record in records:
            self.job_folder(record["name"])  # raises an error for a name that leads out of the folder
        return list({record["name"]: record for record in records}.values())

    def append(self, record: Mapping[str, Any]) -> None:
        """Adds the record of a job that is done. It is on the disk when this returns."""
        path = self.path / RECORDS_FILE
        with open(path, "ab") as file:
            # A kill may have left half a line.
            is_cut = file.tell() > 0 and not path.read_bytes().endswith(b"\n")
            file.write((b"\n" if is_cut else b"") + json.dumps(record, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def job_folder(self, name: str) -> Path:
        return job_folder(self.path, name)

    def check_jobs(self, jobs: Sequence[Job]) -> set[str]:
        """The names of the jobs that are done. Raises an error if the folder holds jobs with other settings."""
        done = {record["name"]: record["job"] for record in self.records()}
        for job in jobs:
            asked = json.loads(json.dumps(job.identity))
            before = done.get(job.name) or self.read(f"jobs/{job.name}/{JOB_FILE}").get("job") or asked
            differs = differing(asked, before)
            for other in done.values():
                if differs is not None:
                    break
                before, differs = other, _incomparable(asked, other)
            if differs == "data":
                raise DataRefused(
                    f"`--data` holds other rows than those that {self.path} was made with. Use the same rows, or "
                    "another `--output`."
                )
            if differs is not None:
                raise UsageError(
                    f"`{differs}` is {asked.get(differs)!r} for {job.name}, but in {self.path} it is "
                    f"{before.get(differs)!r}. Use the same value, or another `--output`."
                )
        return {job.name for job in jobs if job.name in done}

    def write(self, name: str, content: Any) -> None:
        write_atomically(self.path / name, json.dumps(content, indent=2, ensure_ascii=False, default=str) + "\n")

    def read(self, name: str) -> dict:
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}

    def begin(self, command: str, recipe: Mapping[str, Any], **facts: Any) -> None:
        """Writes recipe.yaml and run.json. Methods, targets and seeds of earlier calls stay listed."""
        from hf_memaug.hub.provenance import here

        before = self.read(RUN_FILE)
        for name in ("methods", "targets", "seeds"):
            facts[name] = list(dict.fromkeys([*before.get(name, ()), *facts.get(name, ())]))
        versions = here()
        run = {
            "command": command,
            **facts,
            "device": versions.pop("device"),
            "versions": versions,
            "git": git_state(),
            "begun": before.get("begun") or now(),
            "finished": None,
        }
        self.write_recipe(recipe)
        self.write(RUN_FILE, run)

    def write_recipe(self, recipe: Mapping[str, Any]) -> None:
        import yaml

        from_here = partial(os.path.relpath, start=os.path.realpath(self.path))
        recipe = {name: convert_paths(one, from_here) if name in PATHS else one for name, one in recipe.items()}
        write_atomically(self.path / RECIPE_FILE, yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True))

    def finish(self) -> None:
        self.write(RUN_FILE, {**self.read(RUN_FILE), "finished": now()})


def convert_paths(value: Any, convert: Callable[[str], str], start: Path = Path()) -> Any:
    """Converts a path, or several, as seen from `start`. Other values, such as names on the hub, stay as they are."""
    if isinstance(value, (list, tuple)):
        return [convert_paths(one, convert, start) for one in value]
    is_path = isinstance(value, str) and value and os.path.exists(start / value)
    return convert(os.path.abspath(start / value)) if is_path else value


def check_links(path: Path) -> None:
    """Raises an error if a symbolic link leads out of the run folder, because files there would be changed or shown."""
    root = os.path.realpath(path)
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            place = os.path.join(folder, name)
            if os.path.islink(place) and not Path(os.path.realpath(place)).is_relative_to(root):
                raise UsageError(
                    f"{place} is a link that leads out of the run folder. Delete it, or use another folder."
                )


def _incomparable(job: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """The first field by which two jobs do not belong into one table: the rows, or a setting of the same method."""
    if job.get("data") != other.get("data"):
        return "data"
    if ("shots" in job) != ("shots" in other):
        # They are scored on other rows.
        return "shots"
    if job["method"] != other["method"]:
        return None
    same = dict.fromkeys(OF_A_JOB)
    return differing({**job, **same}, {**other, **same})


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def git_state() -> dict[str, str] | None:
    """The commit that is checked out in the working directory, with "-dirty" where there are changes since."""
    words = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        return {"commit": subprocess.run(words, capture_output=True, text=True, timeout=10, check=True).stdout.strip()}
    except (OSError, subprocess.SubprocessError):
        return None
