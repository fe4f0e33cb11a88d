# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What the Teach tab does: it writes rows to a copy of the memory. Nothing here knows of Gradio."""

import copy
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hf_memaug.app.session import Answer
from hf_memaug.data.readers import read_table
from hf_memaug.inference.explanations import Explanation, Reading, SlotShare
from hf_memaug.inference.predictions import CheckpointError, InputError
from hf_memaug.inference.predictor import Predictor
from hf_memaug.modeling.contexts import replaced
from hf_memaug.modeling.modeling_writable_rows import name_of, read_rows, row_id

_MOST_ROWS, _LONGEST_NAME, _LONGEST_QUOTE = 5000, 100, 200
_COLUMNS = {"text": "text", "text_pair": None, "label": "label"}
# Errors name what is on the page, not the arguments of `write`.
_ON_THE_PAGE = {
    "Fix the rows, or add the label to `labels`. To add a class to the model, pass `new_labels=True`.": (
        "Fix the rows, or tick New classes."
    ),
    "in the list of domain 'all'": "of these",
    "of the list of domain 'all'": "of these",
    ', or pass `on_empty="drop"` to leave such rows out': "",
    ", or pass `label=None`": "",
    "`rows` is empty. Pass": "There are no rows. Give",
}


def teachable(predictor: Predictor) -> Predictor | None:
    """With a writable memory; None if it is no classifier that takes one."""
    try:
        found = predictor.writable()
    except (CheckpointError, ValueError):
        return None
    if found is not predictor:
        # The classifier does not change, so one is enough.
        found.model.classifier = predictor.model
    return found


class Teaching:
    """
    A classifier as one user teaches it.

    Args:
        predictor: of `teachable`. It stays as it is: `write` and `erase` replace the memory of a copy.
    """

    def __init__(self, predictor: Predictor):
        model = predictor.model
        shared = {id(part): part for part in (model.classifier, model.general, model.memory)}
        self.model: Any = copy.deepcopy(model, shared)
        self.predictor = replace(predictor, model=self.model)
        self.is_image = predictor.kind == "image"
        self._files = tempfile.TemporaryDirectory(prefix="hf_memaug_")

    def answer(self, given: Any) -> Answer:
        """What the model, and the classifier alone, say of a text, a pair or an image, and the rows that decided."""
        with self._errors():
            (prediction,) = self.predictor.predict([given])
            (found,) = self.model.explain([given], self.predictor.processor, self.predictor.max_length)
        shares = sorted(zip(self.predictor.labels, found["classifier"], strict=True), key=lambda pair: -pair[1])
        about = f"How strongly each speaks for {found['label']}, or with a minus against it, compared with each other."
        total = sum(abs(row["share"]) for row in found["rows"]) or 1.0
        slots = tuple(
            SlotShare(str(row["text"] or row["id"])[:_LONGEST_QUOTE], row["share"] / total, row["label"])
            for row in found["rows"]
        )
        readings = (Reading("The rows that decided", about, slots),) if slots else ()
        plain = replace(prediction, scores=tuple(shares))
        explanation = Explanation(prediction, plain, "The classifier alone knows nothing of what you taught.", readings)
        return Answer(explanation, "The classifier alone", notes=prediction.notes)

    def teach(self, inputs: Sequence[Any], label: str | None, domain: str, new: str | None = None) -> None:
        """
        Writes inputs of one class.

        Args:
            label: a class of the model.
            new: the name of a new class, in place of `label`.
        """
        new = (new or "").strip()
        if len(new) > _LONGEST_NAME or (new.isdigit() and new not in self.predictor.labels):
            raise InputError(f"A new class needs a name that is no number, of at most {_LONGEST_NAME} letters.")
        if not (new or label):
            raise InputError("Choose the right class first, or name a new one.")
        names = ("image",) if self.is_image else ("text", "text_pair")
        rows = [dict(zip(names, one if isinstance(one, tuple) else (one,), strict=False)) for one in inputs]
        self.teach_rows([{**row, "label": new or label} for row in rows], domain, new_labels=bool(new))

    def teach_rows(self, rows: list[dict], domain: str, guard: list[dict] | None = None, new_labels=False) -> None:
        """Writes rows as `write` takes them. An input that was taught before has only its new class."""
        domain = domain.strip()
        if not domain or domain == "guard" or len(domain) > _LONGEST_NAME:
            raise InputError(f"Give the domain a name of at most {_LONGEST_NAME} letters, other than `guard`.")
        if max(len(rows), len(guard or ())) > _MOST_ROWS:
            raise InputError(f"These are more than {_MOST_ROWS:,} rows. Use `hf-memaug write` for them.")
        with self._errors():
            found, known = read_rows(rows, self.model.config, domain, _COLUMNS, new_labels), self.rows()
            ids, pairs = [name_of(one) for one in found.ids], {(row["domain"], row["label"]) for row in known}
            same = {name_of(row_id(name, one, label, self.is_image)) for name, label in pairs for one in found.inputs}
            options = {"new_labels": new_labels, "max_length": self.predictor.max_length}
            options |= {"guard": guard, "keep_text": True, "append": True}
            self.model.write(rows, domain, self.predictor.processor, **options)
            if self.is_image:
                files = {one: Path(path).name for one, path in zip(ids, found.inputs, strict=True)}
                self.model.config.memory_texts = {**self.model.config.memory_texts, **files}
            self.erase(sorted((same & {row["id"] for row in known}) - set(ids)))

    def erase(self, ids: Sequence[str] | None = None) -> None:
        """Erases rows by their ids, or all taught rows. The protected ones stay."""
        ids = [row["id"] for row in self.rows()] if ids is None else ids
        with self._errors():
            if ids:
                self.model.erase(rows=ids)

    def rows(self) -> list[dict[str, str]]:
        """`id`, `text`, `label` and `domain` of each taught row, the newest first. An image has its file's name."""
        config, memory = self.model.config, self.model.memory
        texts, names = config.memory_texts or {}, [entry["name"] for entry in config.domains or ()]
        facts = (values[memory.written].tolist() for values in (memory.row_ids, memory.labels, memory.domains))
        found = {
            name_of(one): {"label": str(config.id2label[label]), "domain": names[owner]}
            for one, label, owner in zip(*facts, strict=True)
        }
        order = [*(one for one in reversed(texts) if one in found), *(one for one in found if one not in texts)]
        return [{"id": one, "text": texts.get(one, one), **found[one]} for one in order]

    def status(self) -> list[str]:
        """What the user has to know, the most important first."""
        entries, labels = self.model.domains(), {row["label"] for row in self.rows()}
        count = sum(one["rows"] for one in entries)
        if not count:
            return ["Nothing is taught yet. The answers are the classifier's."]
        before, after = (sum(one[when] * one["rows"] for one in entries) / count for when in ("before", "after"))
        said = [f"{count} row{'s' * (count > 1)} taught."]
        if self.model.config.has_memory:
            said[0] += " The memory answers."
            said.append(
                f"Right on these rows: {before:.0f}% by the classifier, {after:.0f}% with the memory, when each row is "
                "left out in turn."
            )
        else:
            said[0] += (
                " They show no clear gain yet, so the answers are still the classifier's. The memory answers once they "
                "do: usually with about 10 rows if half of them are corrections, and with 20 to 40 as they come."
            )
        if before == 0:
            said.append(
                "The classifier is wrong on all of these rows. Teach some that it answers right too, or the memory "
                "takes it to be wrong everywhere."
            )
        elif len(labels) == 1:
            said.append("All rows have one class. Teach other classes too, or the memory gives this one everywhere.")
        if self.model.memory.written.all():
            said.append("No rows are protected, so answers to other inputs may change too.")
        return said

    def download(self, with_texts: bool = False) -> str:
        """The path of a zip with the checkpoint; the next call replaces it."""
        config, path = self.model.config, Path(self._files.name, f"{self.predictor.title}-taught")
        texts = config.memory_texts if with_texts else None
        with self.predictor.lock, tempfile.TemporaryDirectory() as folder:
            with replaced(config, "memory_texts", texts):
                self.model.save_pretrained(folder)
            self.predictor.processor.save_pretrained(folder)
            return shutil.make_archive(str(path), "zip", folder)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with self.predictor.lock:
            try:
                yield
            except (OSError, ValueError) as error:
                said = str(error)
                for python, words in _ON_THE_PAGE.items():
                    said = said.replace(python, words)
                raise InputError(said) from None


def pasted_rows(lines: str) -> list[dict[str, Any]]:
    """Rows of lines with a text, a tab and its class; of pairs, with a tab and the second text between."""
    rows = []
    for number, line in enumerate(lines.splitlines(), start=1):
        if line.strip():
            *texts, label = line.split("\t")
            if len(texts) not in (1, 2):
                raise InputError(f"Line {number} is not a text, a tab, and its class.")
            rows.append({**dict(zip(_COLUMNS, texts, strict=False)), "label": label})
    return rows


def table_rows(path: str) -> list[dict[str, Any]]:
    """Rows of a file, read as `write` reads it. Other columns than `text`, `text_pair` and `label` are left out."""
    name = Path(path).name
    try:
        columns = {column: values for column, values in read_table(Path(path)).items() if column in _COLUMNS}
    except ValueError as error:
        raise InputError(str(error).replace(path, name)) from None
    if not {"text", "label"} <= columns.keys():
        raise InputError(f"{name} needs the columns `text` and `label`.")
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
