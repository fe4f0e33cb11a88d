# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The verbs of a writable memory: write, erase, domains, audit and explain."""

import copy
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from transformers.utils import logging

from hf_memaug.layers.nearest_rows import NearestRows
from hf_memaug.layers.writable_memory import GUARD, ROWS, WritableMemory
from hf_memaug.modeling.contexts import evaluating
from hf_memaug.modeling.modeling_utils import MemoryModelMixin, longest_text
from hf_memaug.modeling.modeling_writable_rows import (
    GUARD_NAME,
    Rows,
    check_processor,
    encoded,
    fingerprint,
    name_of,
    read_rows,
    readable,
)

logger = logging.get_logger(__name__)


class WritingMixin(MemoryModelMixin):
    """The memory's rows are in buffers, and what else is known of them is in the configuration."""

    classifier: Any
    _keys: Any
    _check_fingerprint: Any
    memory: WritableMemory
    _nearest: NearestRows | None = None

    def write(
        self,
        rows: Any,
        domain: str,
        tokenizer: Any = None,
        guard: Any = None,
        image_processor: Any = None,
        new_labels: bool = False,
        keep_text: bool = False,
        append: bool = False,
        text: str = "text",
        text_pair: str | None = None,
        label: str = "label",
        max_length: int | None = None,
        batch_size: int = 64,
    ):
        """
        Writes labelled rows of a domain. The model then answers for this domain too. Nothing is trained, and writing
        the same domains in another order gives the same model.

        Args:
            rows: A file, a `datasets.Dataset`, a list of dicts, or a `DomainDataset`.
            domain (`str`): Its name, for `erase`.
            tokenizer, image_processor: What the classifier was trained with.
            guard (*optional*): Rows of the old domains, with which the memory learns where it must not interfere. They
                stay for later writes.
            new_labels (`bool`, *optional*, defaults to `False`): Accept labels that the classifier has never had.
            keep_text (`bool`, *optional*, defaults to `False`): Store the texts in the configuration, for explanations.
                Otherwise only their hashes are stored.
            append (`bool`, *optional*, defaults to `False`): Add rows to a domain, or begin one whose rows come one
                after the other.
            text, text_pair, label (`str`, *optional*): The columns.
            max_length (`int`, *optional*): The longest text in tokens. Default: the tokenizer's.
            batch_size (`int`, *optional*, defaults to 64): Rows in a forward pass.

        Returns:
            `dict`: the domain's entry of `domains()`.
        """
        processor = tokenizer if image_processor is None else image_processor
        if processor is None:
            name = "image_processor" if self.main_input_name == "pixel_values" else "tokenizer"
            raise ValueError(f"`{name}` is missing. Pass the one that the classifier was trained with.")
        written = {entry["name"]: entry for entry in self.config.domains or ()}
        if not isinstance(domain, str) or not domain.strip():
            raise ValueError(f"`domain` is {domain!r}. Give it a name.")
        if batch_size < 1:
            raise ValueError(f"`batch_size` is {batch_size}. Use 1 or more.")
        if domain in written and not append:
            raise ValueError(f"`domain` {domain!r} is written already. Erase it first, or pass `append=True`.")
        if domain == GUARD_NAME:
            raise ValueError(f"`domain` cannot be {GUARD_NAME!r}. Pass the rows of the old domains as `guard`.")
        self._check_fingerprint()
        vocabulary = check_processor(self, processor)
        columns = {"text": text, "text_pair": text_pair, "label": label}
        found = read_rows(rows, self.config, domain, columns, new_labels)
        guards = None if guard is None else read_rows(guard, self.config, GUARD_NAME, columns)
        if len(set(found.labels)) < 2 and not found.new_names and not append:
            raise ValueError(
                f"All rows of `domain` {domain!r} have one label, so the memory would learn to give it everywhere. "
                "Write rows of other classes too, or pass `append=True` if they are added later."
            )
        is_open = guards is None and bool(self.memory.written.all())
        if is_open and not append and min(found.labels) >= cast(int, self.config.num_labels):
            raise ValueError(
                f"All rows of `domain` {domain!r} have new classes, so the memory would give these everywhere. Pass "
                "rows of the old classes as `guard`, or write some of them too."
            )
        if is_open:
            logger.warning_once(
                "There are no guard rows, so nothing protects the old domains. Pass labelled rows of them as `guard`."
            )
        names = sorted({*written, domain})
        parts = [self._stored_rows(names), self._encode(found, names.index(domain), processor, max_length, batch_size)]
        if guards is not None:
            parts.append(self._encode(guards, GUARD, processor, max_length, batch_size))
        # Nothing has changed so far.
        texts = dict(self.config.memory_texts or {})
        if keep_text:
            texts |= {name_of(one): readable(given) for one, given in zip(found.ids, found.inputs, strict=True)}
        labels = [*self.config.id2label.values(), *found.new_names]
        now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        self._rebuild(parts, names, labels, texts, {domain: now}, vocabulary)
        return next(entry for entry in self.domains() if entry["name"] == domain)

    def erase(self, domain: str | None = None, rows: Sequence[str] | None = None) -> None:
        """
        Removes a domain, or single rows by their ids. The model is then what the rows that are left make of it: after a
        whole domain, bit-equal to one that never saw it.

        Args:
            domain (`str`, *optional*): a name of `domains()`. `"guard"` removes the guard rows.
            rows (`Sequence[str]`, *optional*): ids, as `explain` and `audit` return them.
        """
        if (domain is None) == (rows is None):
            raise ValueError("Pass either `domain` or `rows` to `erase`.")
        memory, names = self.memory, [entry["name"] for entry in self.config.domains or ()]
        if rows is not None:
            ids = {name_of(one): place for place, one in enumerate(memory.row_ids.tolist())}
            unknown = sorted(set(rows) - set(ids))
            if unknown:
                raise ValueError(f"`rows` has {unknown[0]!r}, which is not in the memory.")
            erased = torch.zeros_like(memory.written)
            erased[[ids[one] for one in rows]] = True
        else:
            if domain not in (*names, GUARD_NAME):
                raise ValueError(
                    f"`domain` is {domain!r}, which was not written. Domains: {', '.join(names) or 'none'}."
                )
            erased = memory.domains == (GUARD if domain == GUARD_NAME else names.index(domain))
        if not erased.any():
            nothing = "`rows` is empty. Give ids" if domain is None else "`domain` is 'guard'; there are no guard rows"
            raise ValueError(f"{nothing}.")
        gone = {name_of(one) for one in memory.row_ids[erased].tolist()}
        texts = {name: text for name, text in (self.config.memory_texts or {}).items() if name not in gone}
        left = [name for place, name in enumerate(names) if (memory.domains[~erased] == place).any()]
        kept = {name: values[~erased] for name, values in self._stored_rows(left).items()}
        self._rebuild([kept], left, list(self.config.id2label.values()), texts, {})

    def domains(self) -> list[dict[str, Any]]:
        """
        What is in the memory: for each domain its `name`, `rows`, the time it was `written`, and the accuracy in points
        `before` and `after` writing, estimated by leaving out each row in turn.
        """
        return copy.deepcopy(self.config.domains or [])

    def audit(self) -> list[dict[str, Any]]:
        """
        Written rows whose label the rest of the memory contradicts, the most suspicious first. They may be mislabelled.

        Returns:
            `list[dict]`: `id`, `domain`, `label`, `suggestion`, its `probability`, and the `text` if it was kept.
        """
        solution = copy.deepcopy(self.memory).solve()
        if solution is None:
            return []
        labels = self.memory.labels[self.memory.written].tolist()
        answers = solution.after.clamp(min=0)
        answers = answers / answers.sum(dim=-1, keepdim=True).clamp(min=1e-9)
        doubt = answers.max(dim=-1).values - answers[range(len(labels)), labels]
        return [
            {
                **self._row_facts(row),
                "suggestion": self.config.id2label[int(answers[row].argmax())],
                "probability": float(answers[row].max()),
            }
            for row in doubt.argsort(descending=True).tolist()
            if doubt[row] > 0
        ]

    @torch.no_grad()
    def explain(
        self, inputs: Any, processor: Any = None, max_length: int | None = None, top: int = 5
    ) -> list[dict[str, Any]]:
        """
        Why the model answers as it does.

        Args:
            inputs: a text or an image, or a list of texts, of pairs of texts, or of images; or the batch that the
                processor made of them.
            processor: the tokenizer or image processor.
            top: how many rows to name.

        Returns:
            `list[dict]`: the `label`, the probabilities of the `answer`, which are those of the `classifier` and the
            part of the `memory` added up, the `gate` between 0 (an old domain) and 1 (a written one), the `rows` that
            changed the answer most, with their `share` of the label's probability, and the written rows that are
            `nearest`, by the cosine of their keys.
        """
        batch: Mapping[str, torch.Tensor]
        if isinstance(inputs, Mapping) and self.main_input_name in inputs:
            batch = inputs
        else:
            is_one = isinstance(inputs, str | bytes | Mapping) or not isinstance(inputs, Iterable)
            inputs = [inputs] if is_one else list(inputs)
            if not inputs:
                return []
            check_processor(self, processor)
            batch = next(self._encoded([inputs], processor, max_length))
        with evaluating(self):
            logits, keys = self._read(batch)
        answers = self.memory(logits, keys).float().softmax(dim=-1)
        base = self.memory.padded(logits.float().softmax(dim=-1))
        landmarks, nearest = self.memory.choose_landmarks().tolist(), self._nearest_rows(keys, top)
        explained = []
        for row, answer in enumerate(answers):
            label, gate, rows = int(answer.argmax()), 0.0, []
            if self.config.has_memory:
                similar = self.memory.similarity(keys[row : row + 1])[0]
                gate = float(self.memory.opening(similar))
                shares = gate * similar * self.memory.correction[:, label]
                rows = [
                    {**self._row_facts(landmarks[place]), "share": float(shares[place])}
                    for place in shares.abs().argsort(descending=True)[:top].tolist()
                ]
            sides = {"answer": answer, "classifier": base[row], "memory": answer - base[row]}
            entry = {"label": self.config.id2label[label], **{name: side.tolist() for name, side in sides.items()}}
            explained.append({**entry, "gate": gate, "rows": rows, "nearest": nearest[row]})
        return explained

    def _nearest_rows(self, keys: torch.Tensor, top: int) -> list[list[dict[str, Any]]]:
        """For each key, the most similar written rows."""
        if not self.memory.written.any():
            return [[] for _ in keys]
        if self._nearest is None or self._nearest.memory is not self.memory:
            self._nearest = NearestRows(self.memory)
        similarities, places = self._nearest(keys, top)
        return [
            [{**self._row_facts(place), "similarity": similarity} for similarity, place in zip(*pair, strict=True)]
            for pair in zip(similarities.tolist(), places.tolist(), strict=True)
        ]

    def _row_facts(self, place: int) -> dict[str, Any]:
        """The `id`, `domain`, `label` and `text` of a row."""
        memory, name = self.memory, name_of(int(self.memory.row_ids[place]))
        domain = int(memory.domains[place])
        return {
            "id": name,
            "domain": GUARD_NAME if domain == GUARD else self.config.domains[domain]["name"],
            "label": self.config.id2label[int(memory.labels[place])],
            "text": (self.config.memory_texts or {}).get(name),
        }

    def _encoded(
        self, parts: Iterable[Sequence[Any]], processor: Any, max_length: int | None
    ) -> Iterator[dict[str, torch.Tensor]]:
        """Batches, as the model takes them. No text is longer than the classifier can read."""
        length = longest_text(self.classifier, processor, max_length)
        return (encoded(part, processor, length, self.main_input_name == "pixel_values") for part in parts)

    def _encode(
        self, rows: Rows, domain: int, processor: Any, max_length: int | None, batch_size: int
    ) -> dict[str, Any]:
        """The rows as the memory stores them."""
        # Batch mates change a feature by rounding, so that they should not depend on the order of the rows.
        order = sorted(range(len(rows.ids)), key=lambda place: rows.ids[place])
        starts = range(0, len(order), batch_size)
        parts = ([rows.inputs[place] for place in order[start : start + batch_size]] for start in starts)
        features = self.features(self._encoded(parts, processor, max_length))
        labels, ids = ([of[place] for place in order] for of in (rows.labels, rows.ids))
        numbers = {"labels": labels, "domains": [domain] * len(ids), "row_ids": ids}
        return {**features, **{name: torch.tensor(values, device=self.device) for name, values in numbers.items()}}

    @torch.no_grad()
    def features(self, batches: Iterable[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """What the memory stores of inputs: `keys`, and `probabilities` of the classifier."""
        with evaluating(self):
            read = (self._read(batch) for batch in batches)
            # As integers, because autocast changes what it joins.
            found = [(logits.float().softmax(dim=-1), keys.half().view(torch.int16)) for logits, keys in read]
        probabilities, keys = (torch.cat(several) for several in zip(*found, strict=True))
        if not (torch.isfinite(probabilities).all() and torch.isfinite(keys.view(torch.float16)).all()):
            raise ValueError("The classifier's features are not finite. Check its weights. Nothing was written.")
        return {"keys": keys, "probabilities": probabilities}

    def _read(self, batch: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """The classifier's logits and the keys."""
        found, parts = self._keys({name: value.to(self.device) for name, value in batch.items()})
        return found.logits, self.memory.join(parts)

    def _stored_rows(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        """The rows of the memory, with their domains as places in `names`. Those of other domains are guard rows."""
        rows, places = self.memory.rows(), {name: place for place, name in enumerate(names)}
        table = torch.tensor([places.get(entry["name"], GUARD) for entry in self.config.domains or ()] + [GUARD])
        return {**rows, "domains": table.to(self.device)[rows["domains"]]}

    def _rebuild(
        self, parts: list[dict], names: list[str], labels: list[str], texts: dict, times: dict, vocabulary=None
    ) -> None:
        """
        Replaces the memory.

        Args:
            parts: the rows.
            names: of the domains.
            labels: the names of the classes that the rows' labels are numbers of.
            texts, times: by the rows' ids, and by the names of domains that are new.
            vocabulary: of the tokenizer, if rows are new.
        """
        own = self.config.classifier_config.num_labels
        parts = [{**part, "probabilities": part["probabilities"][:, :own]} for part in parts if len(part["labels"])]
        shape = parts[0]["keys"].shape[1:] if parts else (0, 0)
        known = {entry["name"]: entry["written"] for entry in self.config.domains or ()}
        memory = WritableMemory(shape[0], shape[1], own, max_landmarks=self.config.max_landmarks).to(self.device)
        solution = None
        if parts:
            rows = {name: torch.cat([part[name].to(self.device) for part in parts]) for name in ROWS}
            # A row that is written twice counts once.
            first = {one: place for place, one in reversed(list(enumerate(rows["row_ids"].tolist())))}
            if len(first) < len(rows["row_ids"]):
                chosen = torch.tensor(sorted(first.values()), device=self.device)
                rows = {name: values[chosen] for name, values in rows.items()}
            # New classes in the order of their names, whatever the order of writing.
            used = set(rows["labels"].tolist())
            new = sorted(labels[label] for label in used if label >= own)
            places = {name: own + place for place, name in enumerate(new)}
            table = [label if label < own else places.get(name, 0) for label, name in enumerate(labels)]
            rows["labels"] = torch.tensor(table, device=self.device)[rows["labels"]]
            labels = [*labels[:own], *new]
            memory.classes = len(labels)
            memory.set_rows(rows)
            solution = memory.solve()
        owners, truth = memory.domains[memory.written], memory.labels[memory.written]
        answers = (solution.before, solution.after) if solution else (memory.probabilities[memory.written],) * 2
        scores = [100 * (answer.argmax(dim=-1) == truth).float() for answer in answers]
        entries = [
            {
                "name": name,
                "rows": int((owners == place).sum()),
                "written": times.get(name, known.get(name)),
                "before": round(float(scores[0][owners == place].mean()), 1),
                "after": round(float(scores[1][owners == place].mean()), 1),
            }
            for place, name in enumerate(names)
        ]
        config, mark, vocabulary = self.config, self.config.fingerprint, vocabulary or self.config.vocabulary
        if not parts:
            mark = vocabulary = None
        elif mark is None:
            mark = fingerprint(self.classifier)
        # From here on nothing can fail.
        self.memory, self._nearest = memory, None
        if len(labels) != config.num_labels or not parts:
            config.id2label = dict(enumerate(labels[: memory.classes]))
            config.label2id = {name: label for label, name in config.id2label.items()}
        config.key_shape = list(shape) if parts else None
        config.memory_rows, config.memory_landmarks = len(memory.labels), len(memory.landmarks)
        config.memory_texts, config.domains = texts or None, entries or None
        config.fingerprint, config.vocabulary = mark, vocabulary
