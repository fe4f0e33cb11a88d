# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of named-entity recognition and of extractive question answering, to tokens and back. Rows are dictionaries."""

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple

from hf_memaug.iob2 import entities

# Of a token that is not scored.
IGNORED = -100


def tag_names(rows: Iterable[dict], column: str = "ner_tags") -> list[str]:
    """The tags that occur, "O" first: the labels of a model."""
    found = {tag for row in rows for tag in row[column]}
    numbers = [tag for tag in found if not isinstance(tag, str)]
    if numbers:
        raise ValueError(f"`rows` has the tag {numbers[0]!r}, which is no name. Give tags by name, such as B-Disease.")
    return ["O", *sorted(found - {"O"})]


def check_tags(rows: Iterable[dict], column: str = "ner_tags") -> None:
    """Refuses rows whose tags are not IOB2, or not one for each word."""
    for number, row in enumerate(rows):
        words, tags = row["tokens"], row[column]
        for name, given in (("tokens", words), (column, tags)):
            if isinstance(given, str) or not hasattr(given, "__len__"):
                raise ValueError(f"`rows`: row {number} has no list in `{name}` ({given!r:.40}). Give each word a tag.")
        if len(words) != len(tags):
            raise ValueError(f"`rows`: row {number} has {len(words)} words and {len(tags)} tags. Give each word a tag.")
        try:
            entities(tags, strict=True)
        except ValueError as error:
            raise ValueError(f"`rows`: row {number}: {error} Convert the tags, or mend the row.") from error


def tokenize_tags(
    rows: Iterable[dict], tokenizer, labels: Sequence[str], max_length: int = 128, column: str = "ner_tags"
) -> list[dict]:
    """
    Rows with `tokens` and IOB2 tags to rows for token classification. A word's first token has its tag; the others are
    not scored. Words beyond `max_length` tokens are cut off: their tags' ids are in `cut_off`, which
    `tags_from_logits` needs, and no model.

    Args:
        labels: the names of the tags, in the order of their ids, such as `tag_names(rows)`.
    """
    _check_tokenizer(tokenizer)
    _check_words_are_read(tokenizer)
    ids = {name: index for index, name in enumerate(labels)}
    found, rows = [], list(rows)
    check_tags(rows, column)
    for number, row in enumerate(rows):
        words, tags = row["tokens"], row[column]
        unknown = [tag for tag in tags if tag not in ids]
        if unknown:
            raise ValueError(f"`rows`: row {number} has the tag {unknown[0]!r}, which `labels` {list(labels)} lack.")
        encoded = tokenizer(list(words), is_split_into_words=True, truncation=True, max_length=max_length)
        word_ids = encoded.word_ids()
        places = [None, *word_ids[:-1]]
        encoded["labels"] = [
            IGNORED if word is None or word == before else ids[tags[word]]
            for word, before in zip(word_ids, places, strict=True)
        ]
        held = max((word for word in word_ids if word is not None), default=-1) + 1
        lost = sorted(set(range(held)) - set(word_ids))
        if lost:
            raise ValueError(
                f"`rows`: row {number}: the tokenizer makes nothing of the word {words[lost[0]]!r}, so that its tag "
                "would be lost. Take such words and their tags out."
            )
        found.append({**encoded, "cut_off": [ids[tag] for tag in tags[held:]]})
    return found


def tags_from_logits(logits, rows: Sequence[dict], labels: Sequence[str]) -> tuple[list[list[str]], list[list[str]]]:
    """
    Predicted and true tags of the words of each row, for `entity_f1`. Words that were cut off are predicted to be "O":
    an entity there is missed.

    Args:
        logits: `(row, token, label)`; what is padded is padded on the right.
        rows: what `tokenize_tags` made.
    """
    predicted, true = [], []
    for scores, row in zip(logits, rows, strict=True):
        scored = [place for place, label in enumerate(row["labels"]) if label != IGNORED]
        cut_off = [labels[label] for label in row.get("cut_off", ())]
        predicted.append([*(labels[int(scores[place].argmax())] for place in scored), *("O" for _ in cut_off)])
        true.append([*(labels[row["labels"][place]] for place in scored), *cut_off])
    return predicted, true


def check_questions(rows: Iterable[dict]) -> None:
    """Refuses rows whose answers are not as SQuAD has them, or do not lie where they say."""
    for number, row in enumerate(rows):
        _span(number, row)


def are_answers(one: Any) -> bool:
    """Whether it holds `text`, strings, and `answer_start`, as many whole numbers."""
    if not isinstance(one, Mapping) or not {"text", "answer_start"} <= set(one):
        return False
    texts, starts = one["text"], one["answer_start"]
    if not all(isinstance(several, (list, tuple)) for several in (texts, starts)) or len(texts) != len(starts):
        return False
    return all(isinstance(text, str) for text in texts) and all(isinstance(start, Integral) for start in starts)


def tokenize_questions(rows: Iterable[dict], tokenizer, max_length: int = 384, stride: int = 128) -> list[dict]:
    """
    Rows with `question`, `context` and `answers` (`text` and `answer_start`, lists that may be empty) to rows for
    question answering. A context that is too long becomes several rows that overlap by `stride` tokens. Where a row
    does not hold the answer, its positions are those of the first token.

    Each row also has `row`, the number of its question, and `offsets`, where each token lies in the context (`None`
    outside of it): `answers_from_logits` needs both, a model neither.
    """
    _check_tokenizer(tokenizer)
    found = []
    for number, row in enumerate(rows):
        span = _span(number, row)
        asked = len(tokenizer(row["question"], add_special_tokens=False)["input_ids"])
        room = max_length - asked - tokenizer.num_special_tokens_to_add(pair=True)
        if room <= stride:
            raise ValueError(
                f"`rows`: row {number}: the question leaves {max(room, 0)} tokens to the context, and its parts "
                f"overlap by `stride={stride}`. Raise `max_length` ({max_length}), or lower `stride`."
            )
        encoded = tokenizer(
            row["question"],
            row["context"],
            truncation="only_second",
            max_length=max_length,
            stride=stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        for part in range(len(encoded["input_ids"])):
            inside = encoded.sequence_ids(part)
            offsets = [
                offset if which == 1 else None
                for offset, which in zip(encoded["offset_mapping"][part], inside, strict=True)
            ]
            start, end = _token_span(span, offsets)
            names = [name for name in tokenizer.model_input_names if name in encoded]
            inputs = {name: encoded[name][part] for name in names}
            positions = {"start_positions": start, "end_positions": end}
            found.append({**inputs, **positions, "row": number, "offsets": offsets})
    return found


class Span(NamedTuple):
    """A span of a context: its score, the feature it lies in, its tokens there, and its letters in the context."""

    score: float
    part: int
    start: int
    end: int
    first: int
    last: int


def spans_from_logits(
    start_logits,
    end_logits,
    features: Sequence[dict],
    count: int,
    max_answer_length: int = 30,
    best: int = 20,
) -> list[tuple[list[Span], float]]:
    """
    The spans of each of `count` questions, the best first, and the score that there is no answer.

    Args:
        start_logits, end_logits: `(feature, token)`; what is padded is padded on the right.
        features: what `tokenize_questions` made.
        max_answer_length: tokens of an answer, at most.
        best: ends that are looked at, for each.
    """
    spans: list[list[Span]] = [[] for _ in range(count)]
    nothing = [float("inf")] * count
    for part, (starts, ends, feature) in enumerate(zip(start_logits, end_logits, features, strict=True)):
        number, offsets = feature["row"], feature["offsets"]
        # No answer only if all parts say so: the least sure of them decides.
        nothing[number] = min(nothing[number], float(starts[0]) + float(ends[0]))
        likely_ends = sorted(range(len(offsets)), key=lambda place: -float(ends[place]))[:best]
        for start in sorted(range(len(offsets)), key=lambda place: -float(starts[place]))[:best]:
            for end in likely_ends:
                if offsets[start] is None or offsets[end] is None or not start <= end < start + max_answer_length:
                    continue
                score = float(starts[start]) + float(ends[end])
                spans[number].append(Span(score, part, start, end, offsets[start][0], offsets[end][1]))
    # Of equal ones the first that was found.
    return [(sorted(found, key=lambda span: -span.score), none) for found, none in zip(spans, nothing, strict=True)]


def answers_from_logits(
    start_logits,
    end_logits,
    features: Sequence[dict],
    rows: Sequence[dict],
    max_answer_length: int = 30,
    best: int = 20,
) -> list[str]:
    """The best span of each question over all its rows, as text; "" where no answer scores higher than any span."""
    answers = []
    found = spans_from_logits(start_logits, end_logits, features, len(rows), max_answer_length, best)
    for row, (spans, nothing) in zip(rows, found, strict=True):
        answered = bool(spans) and spans[0].score > nothing
        # A token of some tokenizers begins with the space before it.
        answers.append(row["context"][spans[0].first : spans[0].last].strip() if answered else "")
    return answers


def _check_tokenizer(tokenizer) -> None:
    if not tokenizer.is_fast:
        raise ValueError("`tokenizer` is a slow one, which does not say where a token lies. Use a fast one.")
    if tokenizer.padding_side == "left":
        # Logits do not say how far a batch has moved its rows to the right.
        raise ValueError(
            "`tokenizer` pads on the left, and the places of tags and answers are counted from a row's first token. "
            'Set `tokenizer.padding_side = "right"`, and train with that too.'
        )


def reading_words(tokenizer):
    """The tokenizer, made to read words that are given one by one: a byte-level one wants a space before each."""
    before = _byte_level(tokenizer)
    if before is not None:
        before.add_prefix_space = True
    return tokenizer


def _check_words_are_read(tokenizer) -> None:
    before = _byte_level(tokenizer)
    if before is not None and not before.add_prefix_space:
        raise ValueError(
            "`tokenizer` takes a word without a space before it for the middle of another. Give "
            "`hf_memaug.data.spans.reading_words(tokenizer)`."
        )


def _byte_level(tokenizer):
    from tokenizers.pre_tokenizers import ByteLevel

    before = getattr(getattr(tokenizer, "backend_tokenizer", None), "pre_tokenizer", None)
    return before if isinstance(before, ByteLevel) else None


def _span(number: int, row: dict) -> tuple[int, int] | None:
    """Where the first answer lies in the context."""
    if not are_answers(row["answers"]):
        raise ValueError(
            f"`rows`: row {number}: `answers` must hold `text`, strings, and `answer_start`, as many whole numbers; it "
            f"is {row['answers']!r:.80}. Write them as SQuAD does, empty where there is no answer."
        )
    texts, starts = row["answers"]["text"], row["answers"]["answer_start"]
    if not texts:
        return None
    for text, start in zip(texts, starts, strict=True):
        if not text.strip():
            raise ValueError(
                f"`rows`: row {number}: the answer {text!r} holds nothing. Leave it out: where there is no answer, "
                "`text` and `answer_start` are empty."
            )
        if start < 0 or row["context"][start : start + len(text)] != text:
            lies = row["context"].find(text)
            mend = f"It lies at {lies}: mend `answer_start`." if lies >= 0 else "It is nowhere in it: leave it out."
            raise ValueError(f"`rows`: row {number}: the answer {text!r} is not at {start} of the context. {mend}")
    # Spaces at the ends belong to no token of their own.
    text = texts[0]
    return starts[0] + len(text) - len(text.lstrip()), starts[0] + len(text.rstrip())


def _token_span(span: tuple[int, int] | None, offsets: list) -> tuple[int, int]:
    places = [place for place, offset in enumerate(offsets) if offset is not None]
    if span is None or not places or offsets[places[0]][0] > span[0] or offsets[places[-1]][1] < span[1]:
        return 0, 0
    # A character may be several tokens, which then all lie where it lies.
    held = [place for place in places if offsets[place][1] > span[0] and offsets[place][0] < span[1]]
    return (held[0], held[-1]) if held else (0, 0)
