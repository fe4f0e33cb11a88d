# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Rows of named-entity recognition and of extractive question answering, to tokens and back. Rows are dictionaries."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple

from tokenizers.pre_tokenizers import ByteLevel

from hf_memaug.iob2 import entities

# The label of tokens that are not scored.
IGNORED = -100
# The longest rows where the tokenizer allows more: a context is read in parts that overlap by a third.
LONGEST_QUESTION, LONGEST_TAGGED = 384, 512
# The longest answer in tokens, and how many starts and ends are combined in each feature.
LONGEST_ANSWER, BEST_ENDS = 30, 20


def tag_names(rows: Iterable[dict], column: str = "ner_tags") -> list[str]:
    """The tags that occur, "O" first: the labels of a model."""
    found = {tag for row in rows for tag in row[column]}
    return ["O", *sorted(found - {"O"})]


def check_tags(rows: Iterable[dict], column: str = "ner_tags") -> None:
    """Raises an error for rows without one IOB2 tag per word."""
    for number, row in enumerate(rows):
        words, tags = row["tokens"], row[column]
        for name, given in (("tokens", words), (column, tags)):
            if not _are(str, given):
                raise ValueError(
                    f"`rows`: `{name}` must hold a list of strings, and is {given!r:.40} in row {number}. Write "
                    "JSON lines or Parquet, and tags by their names, such as B-Disease."
                )
        if len(words) != len(tags):
            raise ValueError(f"`rows`: row {number} has {len(words)} words and {len(tags)} tags. Give each word a tag.")
        try:
            entities(tags, strict=True)
        except ValueError as error:
            raise ValueError(f"`rows`: row {number}: {error} Convert the tags, or fix the row.") from error


def tokenize_tags(
    rows: Iterable[dict], tokenizer, labels: Sequence[str], max_length: int = 128, column: str = "ner_tags"
) -> list[dict]:
    """
    Rows with `tokens` and IOB2 tags to rows for token classification. The first token of a word has its tag; the others
    are not scored. `cut_off` holds the tags of words beyond `max_length` tokens, for `tags_from_logits`.

    Args:
        tokenizer: a fast tokenizer that pads on the right.
        labels: the names of the tags, in the order of their ids, such as `tag_names(rows)`.
        max_length: the longest row in tokens.
        column: the column with the tags.
    """
    _check_tokenizer(tokenizer)
    before = _byte_level(tokenizer)
    if before is not None and not before.add_prefix_space:
        raise ValueError(
            "`tokenizer` reads a word without a space before it as the middle of a word. Use "
            "`hf_memaug.data.spans.reading_words(tokenizer)`."
        )
    ids = {name: index for index, name in enumerate(labels)}
    found, rows = [], list(rows)
    check_tags(rows, column)
    for number, row in enumerate(rows):
        words, tags = row["tokens"], row[column]
        unknown = [tag for tag in tags if tag not in ids]
        if unknown:
            raise ValueError(f"`rows`: row {number} has the tag {unknown[0]!r}, missing from `labels` {list(labels)}.")
        encoded = tokenizer(list(words), is_split_into_words=True, truncation=True, max_length=max_length)
        word_ids = encoded.word_ids()
        encoded["labels"] = [
            IGNORED if word is None or word == before else ids[tags[word]]
            for word, before in zip(word_ids, [None, *word_ids[:-1]], strict=True)
        ]
        held = max((word for word in word_ids if word is not None), default=-1) + 1
        lost = sorted(set(range(held)) - set(word_ids))
        if lost:
            raise ValueError(
                f"`rows`: row {number}: the tokenizer has no token for the word {words[lost[0]]!r}, and its tag would "
                "be lost. Remove such words and their tags."
            )
        found.append({**encoded, "cut_off": [ids[tag] for tag in tags[held:]]})
    return found


def tags_from_logits(logits, rows: Sequence[dict], labels: Sequence[str]) -> tuple[list[list[str]], list[list[str]]]:
    """
    Predicted and true tags of the words of each row, for `entity_f1`. Words that were cut off are predicted as "O".

    Args:
        logits: `(row, token, label)`, padded on the right.
        rows: what `tokenize_tags` returned.
        labels: the names of the tags, in the order of their ids.
    """
    predicted, true = [], []
    for scores, row in zip(logits, rows, strict=True):
        scored = [place for place, label in enumerate(row["labels"]) if label != IGNORED]
        cut_off = [labels[label] for label in row.get("cut_off", ())]
        predicted.append([*(labels[int(scores[place].argmax())] for place in scored), *("O" for _ in cut_off)])
        true.append([*(labels[row["labels"][place]] for place in scored), *cut_off])
    return predicted, true


def check_questions(rows: Iterable[dict]) -> None:
    """Raises an error for answers that are not in SQuAD's form, or not at their place in the context."""
    for number, row in enumerate(rows):
        _answer_span(number, row)


def tokenize_questions(rows: Iterable[dict], tokenizer, max_length: int = 384, stride: int = 128) -> list[dict]:
    """
    Rows with `question`, `context` and `answers` (`text` and `answer_start`, lists that may be empty) to rows for
    question answering. A long context becomes several rows that overlap by `stride` tokens. The positions of a row
    without the answer are those of the first token.

    For `answers_from_logits`, each row also has `row`, the number of its question, and `offsets`, the place of each
    token in the context (`None` outside of it).
    """
    _check_tokenizer(tokenizer)
    found = []
    for number, row in enumerate(rows):
        span = _answer_span(number, row)
        question = len(tokenizer(row["question"], add_special_tokens=False)["input_ids"])
        room = max_length - question - tokenizer.num_special_tokens_to_add(pair=True)
        if room <= stride:
            raise ValueError(
                f"`rows`: row {number}: the question leaves {max(room, 0)} tokens to the context, its parts overlap "
                f"by `stride={stride}`. Raise `max_length` ({max_length}), or lower `stride`."
            )
        limits = {"truncation": "only_second", "max_length": max_length, "stride": stride}
        wanted = {"return_overflowing_tokens": True, "return_offsets_mapping": True}
        encoded = tokenizer(row["question"], row["context"], **limits, **wanted)
        names = [name for name in tokenizer.model_input_names if name in encoded]
        for part in range(len(encoded["input_ids"])):
            sequences = encoded.sequence_ids(part)
            pairs = zip(encoded["offset_mapping"][part], sequences, strict=True)
            offsets = [offset if sequence == 1 else None for offset, sequence in pairs]
            start, end = _token_span(span, offsets)
            inputs = {name: encoded[name][part] for name in names}
            found.append({**inputs, "start_positions": start, "end_positions": end, "row": number, "offsets": offsets})
    return found


class Span(NamedTuple):
    """A span of a context: its score, its feature and tokens there, and its first and last character."""

    score: float
    part: int
    start: int
    end: int
    first: int
    last: int


def spans_from_logits(start_logits, end_logits, features: Sequence[dict], count: int) -> list[tuple[list[Span], float]]:
    """
    The spans of each of `count` questions, the best first, and the score of having no answer.

    Args:
        start_logits, end_logits: `(feature, token)`, padded on the right.
        features: what `tokenize_questions` returned.
        count: the number of questions.
    """
    spans: list[list[Span]] = [[] for _ in range(count)]
    no_answer = [float("inf")] * count
    for part, (starts, ends, feature) in enumerate(zip(start_logits, end_logits, features, strict=True)):
        number, offsets = feature["row"], feature["offsets"]
        # There is no answer only if no part has one: the least confident part decides.
        no_answer[number] = min(no_answer[number], float(starts[0]) + float(ends[0]))
        likely_ends = sorted(range(len(offsets)), key=lambda place: -float(ends[place]))[:BEST_ENDS]
        for start in sorted(range(len(offsets)), key=lambda place: -float(starts[place]))[:BEST_ENDS]:
            for end in likely_ends:
                if offsets[start] is None or offsets[end] is None or not start <= end < start + LONGEST_ANSWER:
                    continue
                score = float(starts[start]) + float(ends[end])
                spans[number].append(Span(score, part, start, end, offsets[start][0], offsets[end][1]))
    return [(sorted(found, key=lambda span: -span.score), none) for found, none in zip(spans, no_answer, strict=True)]


def answers_from_logits(start_logits, end_logits, features: Sequence[dict], rows: Sequence[dict]) -> list[str]:
    """The text of the best span of each question; "" if no span scores higher than having no answer."""
    answers = []
    found = spans_from_logits(start_logits, end_logits, features, len(rows))
    for row, (spans, no_answer) in zip(rows, found, strict=True):
        answered = bool(spans) and spans[0].score > no_answer
        # A token of some tokenizers begins with the space before it.
        answers.append(row["context"][spans[0].first : spans[0].last].strip() if answered else "")
    return answers


def _check_tokenizer(tokenizer) -> None:
    if not tokenizer.is_fast:
        raise ValueError("`tokenizer` must be a fast tokenizer, which knows the place of each token in the text.")
    if tokenizer.padding_side == "left":
        # Logits do not tell by how much padding has shifted a row.
        raise ValueError(
            "`tokenizer` pads on the left, and the places of tags and answers are counted from a row's first token. "
            'Set `tokenizer.padding_side = "right"`, for training too.'
        )


def reading_words(tokenizer):
    """The tokenizer, set to read separate words: a byte-level one adds a space before each."""
    before = _byte_level(tokenizer)
    if before is not None:
        before.add_prefix_space = True
    return tokenizer


def _byte_level(tokenizer):
    before = getattr(getattr(tokenizer, "backend_tokenizer", None), "pre_tokenizer", None)
    return before if isinstance(before, ByteLevel) else None


def _are(kind: type, values: Any) -> bool:
    """Whether it is a list of these."""
    is_list = isinstance(values, Collection) and not isinstance(values, str)
    return is_list and all(isinstance(value, kind) for value in values)


def _answer_span(number: int, row: dict) -> tuple[int, int] | None:
    """The characters of the first answer in the context."""
    answers = row["answers"]
    given: Any = answers if isinstance(answers, Mapping) else {}
    texts, starts = given.get("text"), given.get("answer_start")
    if not _are(str, texts) or not _are(Integral, starts) or len(texts) != len(starts):
        raise ValueError(
            f"`rows`: row {number}: `answers` must hold `text` (strings) and `answer_start` (as many integers); it is "
            f"{answers!r:.80}. Write them as in SQuAD, empty for no answer."
        )
    for text, start in zip(texts, starts, strict=True):
        if not text.strip():
            raise ValueError(f"`rows`: row {number}: the answer {text!r} is empty. For no answer, use empty lists.")
        if start < 0 or row["context"][start : start + len(text)] != text:
            place = row["context"].find(text)
            hint = f"It is at {place}: fix `answer_start`." if place >= 0 else "It does not occur: remove it."
            raise ValueError(f"`rows`: row {number}: the answer {text!r} is not at {start} of the context. {hint}")
    if not texts:
        return None
    # Spaces at the ends have no token of their own.
    text = texts[0]
    return starts[0] + len(text) - len(text.lstrip()), starts[0] + len(text.rstrip())


def _token_span(span: tuple[int, int] | None, offsets: list) -> tuple[int, int]:
    places = [place for place, offset in enumerate(offsets) if offset is not None]
    if span is None or not places or offsets[places[0]][0] > span[0] or offsets[places[-1]][1] < span[1]:
        return 0, 0
    # A character may be several tokens, which all have its place.
    held = [place for place in places if offsets[place][1] > span[0] and offsets[place][0] < span[1]]
    return (held[0], held[-1]) if held else (0, 0)
