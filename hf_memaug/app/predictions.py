# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What a model says, of what it puts out: labels with scores, tags of words, an answer in a context, masked words."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from hf_memaug.app.checkpoints import Checkpoint
from hf_memaug.app.errors import NotServed
from hf_memaug.data.spans import spans_from_logits, tokenize_questions
from hf_memaug.iob2 import entities

# Of the answers to a question and of the words for a mask, how many are shown; and the most masks.
MOST_ANSWERS, MOST_WORDS, MOST_MASKS = 3, 5, 12
# A context is read in parts of at most so many tokens, as in training; they overlap by at most so many.
_PART, _STRIDE = 384, 128
# What rows of tagged words take for a word: letters with hyphens or apostrophes inside, or one other sign.
_WORD = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")
_MASK = re.compile(r"\[MASK\]|<mask>", re.IGNORECASE)


@dataclass(frozen=True)
class Piece:
    """A stretch of a text; `label` and `score` where the model says something of it."""

    text: str
    label: str | None = None
    score: float | None = None


@dataclass(frozen=True)
class Prediction:
    """
    Args:
        scores: labels, or answers, with their scores, the largest first.
        kind: "probabilities", which add up to 1; "independent", of several labels at once; "number", of a regression;
            "text", which was generated; "tags" of words; "answer" to a question; or "words" in the place of masks.
        text: what was generated, or the answer; "" where the model finds none.
        pieces: the text that was asked, in stretches: entities, the answer, or the likeliest words, and the rest.
        masks: for each mask the likeliest words with their scores.
    """

    scores: tuple[tuple[str, float], ...] = ()
    kind: str = "probabilities"
    text: str | None = None
    pieces: tuple[Piece, ...] = ()
    masks: tuple[tuple[tuple[str, float], ...], ...] = ()


@dataclass(frozen=True)
class Said:
    """A prediction, the inputs and the output that it comes from, and what is to be said of it."""

    prediction: Prediction
    inputs: dict[str, torch.Tensor]
    output: Any
    notes: tuple[str, ...] = ()


Run = Callable[[dict], Any]


def of_labels(checkpoint: Checkpoint, logits: torch.Tensor) -> Prediction:
    logits, config = logits[0].float().cpu(), checkpoint.config
    if config.num_labels == 1:
        return Prediction(((checkpoint.labels[0], float(logits[0])),), "number")
    several = config.problem_type == "multi_label_classification"
    scores = (logits.sigmoid() if several else logits.softmax(dim=-1)).tolist()
    ranked = sorted(zip(checkpoint.labels, scores, strict=True), key=lambda pair: -pair[1])
    return Prediction(tuple(ranked), "independent" if several else "probabilities")


def on_device(checkpoint: Checkpoint, encoded) -> dict[str, torch.Tensor]:
    kept = ("input_ids", "attention_mask", *(("token_type_ids",) if checkpoint.task != "generation" else ()))
    return {name: torch.as_tensor(encoded[name]).to(checkpoint.model.device) for name in kept if name in encoded}


def ask_tags(checkpoint: Checkpoint, text: str, run: Run) -> Said:
    """The tag of each word is that of its first token, as in training."""
    words, most = list(_WORD.finditer(text)), checkpoint.most_tokens
    limit = {"truncation": True, "max_length": most} if most is not None else {}
    asked = [word.group() for word in words]
    encoded = checkpoint.processor(asked, is_split_into_words=True, return_tensors="pt", verbose=False, **limit)
    first: dict[int, int] = {}
    for place, word in enumerate(encoded.word_ids(0)):
        if word is not None:
            first.setdefault(word, place)
    inputs, notes = on_device(checkpoint, encoded), ()
    output = run(inputs)
    shares = output.logits[0].float().softmax(dim=-1).cpu()
    # A word without a token, such as a sign that the tokenizer leaves out, has no tag.
    best = [shares[first[number]].max(dim=-1) if number in first else None for number in range(len(words))]
    tags = ["O" if found is None else checkpoint.labels[int(found.indices)] for found in best]
    last = max(first, default=-1) + 1
    if last < len(words):
        notes = (f"The text has {len(words)} words and the model takes {most} tokens: only {last} words were read.",)
    pieces, done = [], 0
    for kind, begin, end in _stretches(tags):
        start, stop = words[begin].start(), words[end - 1].end()
        score = sum(float(best[number].values) for number in range(begin, end)) / (end - begin)
        pieces += [Piece(text[done:start])] * (start > done) + [Piece(text[start:stop], kind, score)]
        done = stop
    pieces += [Piece(text[done:])] * (done < len(text))
    return Said(Prediction(kind="tags", pieces=tuple(pieces)), inputs, output, notes)


def _stretches(tags: list[str]) -> list[tuple[str, int, int]]:
    try:
        return entities(tags)
    except ValueError:
        # No IOB2, such as parts of speech: each word by itself.
        return [(tag, number, number + 1) for number, tag in enumerate(tags) if tag != "O"]


def ask_question(checkpoint: Checkpoint, question: str, context: str, run: Run) -> Said:
    """The best span of the context, which is read in parts where it is long."""
    length = min(_PART, checkpoint.most_tokens or _PART)
    row = {"question": question, "context": context, "answers": {"text": [], "answer_start": []}}
    try:
        parts = tokenize_questions([row], checkpoint.processor, length, min(_STRIDE, length // 4))
    except ValueError as error:
        if "leaves" not in str(error):
            raise NotServed(f"The checkpoint's tokenizer finds no answers: {error}") from error
        raise NotServed(f"The question leaves no room for the context in {length} tokens. Shorten it.") from error
    inputs = [on_device(checkpoint, {name: [part[name]] for name in part if name != "row"}) for part in parts]
    outputs = [run(one) for one in inputs]
    starts, ends = ([one[name][0].float().cpu() for one in outputs] for name in ("start_logits", "end_logits"))
    ((spans, nothing),) = spans_from_logits(starts, ends, parts, 1)
    found: dict[str, float] = {}
    for span in spans:
        text = context[span.first : span.last].strip()
        # What an answer in this part could be: a token of the context, or the first one, which is none.
        places = [place for place, offset in enumerate(parts[span.part]["offsets"]) if offset is not None or not place]
        share = 1.0
        for logits, place in ((starts[span.part], span.start), (ends[span.part], span.end)):
            share *= float(logits[places].softmax(dim=0)[places.index(place)])
        if text and len(found) < MOST_ANSWERS:
            found.setdefault(text, share)
    answer, pieces, part = "", (Piece(context),), spans[0].part if spans else 0
    if spans and spans[0].score > nothing:
        first, last = spans[0].first, spans[0].last
        answer = context[first:last].strip()
        first += len(context[first:last]) - len(context[first:last].lstrip())
        last = first + len(answer)
        cut = (Piece(context[:first]), Piece(answer, "answer", found.get(answer)), Piece(context[last:]))
        pieces = tuple(piece for piece in cut if piece.text)
    notes = ()
    if len(parts) > 1:
        notes = (
            f"The context is long and was read in {len(parts)} parts that overlap; what is said of the memory is of "
            "the part with the best answer.",
        )
    ranked = tuple(sorted(found.items(), key=lambda pair: pair[0] != answer))
    return Said(Prediction(ranked, "answer", answer, pieces), inputs[part], outputs[part], notes)


def ask_words(checkpoint: Checkpoint, text: str, run: Run, encode: Callable) -> Said:
    """The likeliest words for each mask. `encode` gives inputs of a text and the number of tokens if it was cut."""
    tokenizer = checkpoint.processor
    mask = tokenizer.mask_token
    # Whichever of the two usual ways to write it.
    text = _MASK.sub(lambda _: mask, text)
    wanted = text.count(mask)
    if not wanted:
        raise NotServed(f"There is no mask in the text. Write `{mask}` in the place of a word.")
    if wanted > MOST_MASKS:
        raise NotServed(f"The text has {wanted} masks, more than the {MOST_MASKS} taken here. Leave some out.")
    inputs, notes = encode(text)
    places = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero()[:, 0].tolist()
    if not places:
        raise NotServed("The masks lie behind the last token that the model takes. Shorten the text before them.")
    output = run(inputs)
    found = []
    for place in places:
        best = output.logits[0, place].float().softmax(dim=-1).topk(MOST_WORDS)
        names = [tokenizer.decode([token]).strip() or tokenizer.decode([token]) for token in best.indices.tolist()]
        found.append(tuple(zip(names, best.values.tolist(), strict=True)))
    around, pieces = text.split(mask), []
    for number, before in enumerate(around):
        pieces += [Piece(before)] * bool(before)
        if number < len(found):
            pieces.append(Piece(found[number][0][0], str(number + 1), found[number][0][1]))
        elif number < wanted:
            pieces.append(Piece(mask))
    return Said(Prediction(kind="words", pieces=tuple(pieces), masks=tuple(found)), inputs, output, notes)
