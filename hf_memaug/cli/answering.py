# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What `hf-memaug predict` answers for the tasks of `hf_memaug.runs.tasks`: rows in, rows for JSON lines out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hf_memaug.runs.tasks import LONGEST_QUESTION, LONGEST_TAGGED, QUESTIONS, REPLIES, TAGS, limit_of


def answered(kind: str, model, tokenizer, rows: Sequence[Mapping[str, Any]], options: Any) -> Iterator[dict]:
    """
    Args:
        kind: a name of `TASKS`.
        model, tokenizer: a checkpoint of it.
        rows: with the columns of its inputs: `tokens`; `question` and `context`; or `text`.
        options: of `predict`: `batch_size`, rows at a time, and `max_new_tokens`, of a reply.
    """
    import torch

    model = model.eval().to("cuda" if torch.cuda.is_available() else "cpu")
    with torch.no_grad():
        for start in range(0, len(rows), options.batch_size):
            yield from _ANSWERS[kind](model, tokenizer, rows[start : start + options.batch_size], options)


def _tags(model, tokenizer, rows: Sequence[Mapping[str, Any]], options: Any) -> Iterator[dict]:
    """Every word has a tag: what is too long for the model is read in parts."""
    from hf_memaug.iob2 import entities

    limit, names = limit_of(tokenizer, None, LONGEST_TAGGED), model.config.id2label
    found: list[list[str]] = [[] for _ in rows]
    left = list(range(len(rows)))
    while left:
        words = [list(rows[row]["tokens"][len(found[row]) :]) for row in left]
        batch = tokenizer(
            words, is_split_into_words=True, truncation=True, max_length=limit, padding=True, return_tensors="pt"
        )
        best = model(**_placed(batch, model)).logits.argmax(dim=-1).tolist()
        for place, row in enumerate(left):
            first = {}
            for token, word in enumerate(batch.word_ids(place)):
                if word is not None:
                    first.setdefault(word, token)
            # A word that the tokenizer makes nothing of, such as a sign that it drops, is outside of all entities.
            is_cut = len(batch["input_ids"][place]) >= limit and bool(first)
            covered = max(first) + 1 if is_cut else len(words[place])
            found[row] += [names[best[place][first[word]]] if word in first else "O" for word in range(covered)]
        left = [row for row in left if len(found[row]) < len(rows[row]["tokens"])]
    for row, tags in zip(rows, found, strict=True):
        words = list(row["tokens"])
        spans = [
            {"type": kind, "text": " ".join(words[first:last]), "start": first, "end": last}
            for kind, first, last in entities(tags)
        ]
        yield {"tokens": words, "tags": tags, "entities": spans}


def _replies(model, tokenizer, rows: Sequence[Mapping[str, Any]], options: Any) -> Iterator[dict]:
    """What is likeliest, word by word."""
    most = tokenizer.model_max_length
    limits = {"truncation": most < 10**9, "max_length": most if most < 10**9 else None}
    batch = tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt", **limits)
    said = model.generate(**_placed(batch, model), max_new_tokens=options.max_new_tokens, do_sample=False)
    for row, reply in zip(rows, tokenizer.batch_decode(said, skip_special_tokens=True), strict=True):
        yield {"text": row["text"], "reply": reply.strip()}


def _questions(model, tokenizer, rows: Sequence[Mapping[str, Any]], options: Any) -> Iterator[dict]:
    """The best span of all parts of a context; none where no answer is likelier."""
    from hf_memaug.data.collators import PaddingCollator
    from hf_memaug.data.spans import spans_from_logits, tokenize_questions
    from hf_memaug.runs.errors import DataRefused

    length, none = limit_of(tokenizer, None, LONGEST_QUESTION), {"text": [], "answer_start": []}
    try:
        features = tokenize_questions([{**row, "answers": none} for row in rows], tokenizer, length, length // 3)
    except ValueError as error:
        raise DataRefused(str(error).replace("`rows`", "`--data`")) from error
    collator, starts, ends = PaddingCollator(tokenizer), [], []
    for first in range(0, len(features), options.batch_size):
        several = features[first : first + options.batch_size]
        names = [name for name in tokenizer.model_input_names if name in several[0]]
        output = model(**_placed(collator([{name: one[name] for name in names} for one in several]), model))
        starts += output.start_logits.float().cpu().tolist()
        ends += output.end_logits.float().cpu().tolist()
    for row, (spans, nothing) in zip(rows, spans_from_logits(starts, ends, features, len(rows)), strict=True):
        line = {"question": row["question"], "answer": "", "start": None, "end": None}
        if spans and spans[0].score > nothing:
            text = row["context"][spans[0].first : spans[0].last]
            start = spans[0].first + len(text) - len(text.lstrip())
            line |= {"answer": text.strip(), "start": start, "end": start + len(text.strip())}
        yield line


def _placed(batch: Mapping, model) -> dict[str, Any]:
    return {name: value.to(model.device) for name, value in batch.items()}


_ANSWERS = {TAGS: _tags, QUESTIONS: _questions, REPLIES: _replies}
