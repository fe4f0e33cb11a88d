# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The run folder: one process writes at a time, every line is whole or left aside, and nothing is overwritten."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hf_memaug.files import differing, write_atomically
from hf_memaug.runs.errors import DataRefused, UsageError
from hf_memaug.runs.results import JOBS_FILE, RECIPE_FILE, RUN_FILE

# Beside those that the report reads.
RESULTS, JOB = "results.json", "job.json"


class RunFolder:
    """
    Args:
        path: the folder; it is made when it is first locked.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        self.warnings: list[str] = []

    @contextlib.contextmanager
    def locked(self) -> Iterator["RunFolder"]:
        """Refuses a second run on the folder. The lock goes with the process, however that ends."""
        from hf_memaug.training.sweep.runner import lock

        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(lock(self.path))
            except RuntimeError as error:
                said = str(error).replace("`output`", "`--output`").replace("another sweep", "another run")
                raise UsageError(said) from None
            except OSError as error:
                raise UsageError(
                    f"`--output` {self.path} cannot be written: {error.strerror or error}. Choose another folder."
                ) from None
            yield self

    # What is done

    def records(self) -> list[dict]:
        """The whole lines of runs.jsonl, the last of each job. Broken ones are left aside, and stay in the file."""
        path = self.path / JOBS_FILE
        self.warnings = []
        found: dict[str, dict] = {}
        lines = path.read_bytes().split(b"\n") if path.is_file() else []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line.decode("utf-8"))
                found[record["name"]] = {**record, "job": dict(record["job"])}
            except (ValueError, KeyError, TypeError):
                self.warnings.append(f"{path}, line {number} is no whole record: left aside, and its job runs again.")
        return list(found.values())

    def append(self, record: Mapping[str, Any]) -> None:
        """A finished job, on the disk before anything else happens."""
        path = self.path / JOBS_FILE
        with open(path, "ab") as file:
            # After a line that a kill has cut, on a line of its own.
            cut = file.tell() > 0 and not _ends_a_line(path)
            file.write((b"\n" if cut else b"") + json.dumps(record, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def job_folder(self, name: str) -> Path:
        return self.path / "jobs" / name

    def check_jobs(self, specs: Sequence[Mapping[str, Any]]) -> set[str]:
        """The names of the jobs that are done. Refuses a folder in which a job of the same name is another one."""
        done = {record["name"]: record["job"] for record in self.records()}
        for spec in specs:
            name, job = spec["name"], spec["job"]
            before = done.get(name) or self._begun(name)
            differs = differing(job, before or job)
            if differs is None:
                before, differs = self._unlike(job, done.values())
            if differs is None:
                continue
            if differs == "data":
                raise DataRefused(
                    f"`--data` holds other rows than those that {self.path} was made with. Give those, or another "
                    "`--output`."
                )
            raise UsageError(
                f"`{differs}` is {job.get(differs)!r} for {name}, but in {self.path} it is {before.get(differs)!r}. "
                "Give that, or another `--output`."
            )
        return {spec["name"] for spec in specs if spec["name"] in done}

    @staticmethod
    def _unlike(job: Mapping[str, Any], done: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], str | None]:
        """A job with which this one could stand in no table, and by what: other rows, or settings of its method."""
        of_one = ("target", "seed")
        for before in done:
            if job.get("data") != before.get("data"):
                return before, "data"
            if job["method"] == before["method"]:
                same = {name: before.get(name) for name in of_one}
                differs = differing({**job, **same}, {**before, **same})
                if differs is not None:
                    return before, differs
        return {}, None

    def _begun(self, name: str) -> dict | None:
        try:
            return json.loads((self.job_folder(name) / JOB).read_text(encoding="utf-8"))["job"]
        except (OSError, ValueError, KeyError):
            return None

    # What it is about

    def write(self, name: str, content: Any) -> None:
        write_atomically(self.path / name, json.dumps(content, indent=2, ensure_ascii=False, default=str) + "\n")

    def read(self, name: str) -> dict:
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    def begin(self, command: str, recipe: Mapping[str, Any], **facts: Any) -> dict:
        """Writes recipe.yaml and run.json. Methods, targets and seeds of earlier calls stay in the list."""
        from hf_memaug.reporting.results import here

        before = self.read(RUN_FILE)
        for name in ("methods", "targets", "seeds"):
            if name in facts:
                facts[name] = list(dict.fromkeys([*before.get(name, ()), *facts[name]]))
        made_with = here()
        run = {
            "command": command,
            **facts,
            "versions": {name: value for name, value in made_with.items() if name != "device"},
            "device": made_with["device"],
            "git": git_state(),
            "begun": before.get("begun") or now(),
            "finished": None,
        }
        write_recipe(self.path / RECIPE_FILE, recipe)
        self.write(RUN_FILE, run)
        return run

    def finish(self) -> None:
        self.write(RUN_FILE, {**self.read(RUN_FILE), "finished": now()})


def write_recipe(path: Path, recipe: Mapping[str, Any]) -> None:
    import yaml

    write_atomically(path, yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True))


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def git_state() -> dict[str, Any] | None:
    """The commit of the folder that the command was given in, and whether something was changed since."""

    def ask(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", *words], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = ask("rev-parse", "HEAD")
    if commit is None:
        return None
    return {"commit": commit, "branch": ask("branch", "--show-current") or None, "changed": bool(ask("status", "-s"))}


def _ends_a_line(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def warn(messages: Sequence[str]) -> None:
    for message in messages:
        print(f"Warning: {message}", file=sys.stderr, flush=True)
