# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""From inputs to predictions, for each kind of model: `(predictor, inputs of a batch)` to predictions."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from hf_memaug.inference.predictions import InputError, Piece, Prediction
from hf_memaug.inference.predictor import Predictor

# Of the answers to a question and of the words for a mask, how many are given.
BEST_ANSWERS, BEST_WORDS = 3, 5
# The words of a text that is to be tagged: letters with hyphens or apostrophes inside, or one other sign.
_WORD = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")
_MASK = re.compile(r"\[MASK\]|<mask>", re.IGNORECASE)


# Texts


def tokenized(predictor: Predictor, texts: Sequence[str], pairs: Sequence[str] | None = None):
    """The model's inputs, and for each row what the user has to know about its length."""
    tokenizer, most = predictor.processor, predictor.max_length
    given = (list(texts), None if pairs is None else list(pairs))
    limit: dict[str, Any] = {}
    notes: list[tuple[str, ...]] = [()] * len(texts)
    if most is not None:
        limit = {"truncation": True, "max_length": most}
        counts = map(len, tokenizer(*given, verbose=False)["input_ids"])
        cut = "The text has {} tokens and the model takes {most}: only the first {most} were read."
        notes = [(cut.format(count, most=most),) if count > most else () for count in counts]
    encoded = tokenizer(*given, padding=tokenizer.pad_token is not None, return_tensors="pt", **limit)
    if not encoded["input_ids"].shape[1]:
        raise InputError("The tokenizer finds no word in this text. Type another.")
    names = ("input_ids", "attention_mask", *(() if predictor.kind == "replies" else ("token_type_ids",)))
    return {name: encoded[name] for name in names if name in encoded}, notes


def _two_texts(one: Any, first: str = "text", second: str = "text_pair") -> tuple[str, str | None]:
    if isinstance(one, Mapping):
        return one[first], one.get(second)
    return (one, None) if isinstance(one, str) else tuple(one)


def classify_texts(predictor: Predictor, inputs: Sequence[Any]) -> list[Prediction]:
    texts, pairs = zip(*map(_two_texts, inputs), strict=True)
    if predictor.pairs == "none" and any(pairs):
        raise InputError("This model reads one text. Leave the second one empty.")
    if predictor.pairs == "needed" and not all(pairs):
        raise InputError("This model compares two texts. Type the second one too.")
    if any(pairs) and not all(pairs):
        raise InputError("Some rows have a second text and some have none. Predict them separately.")
    encoded, notes = tokenized(predictor, texts, pairs if all(pairs) else None)
    logits = predictor.forward(encoded).logits
    return [_labels(predictor, row, note) for row, note in zip(logits, notes, strict=True)]


def _labels(predictor: Predictor, logits: torch.Tensor, notes: tuple[str, ...] = ()) -> Prediction:
    """The prediction of a classifier from the logits of one row."""
    config, logits = predictor.config, logits.float().cpu()
    if config.num_labels == 1:
        return Prediction("number", ((predictor.labels[0], float(logits[0])),), notes=notes)
    several = config.problem_type == "multi_label_classification"
    scores = (logits.sigmoid() if several else logits.softmax(dim=-1)).tolist()
    ranked = sorted(zip(predictor.labels, scores, strict=True), key=lambda pair: -pair[1])
    return Prediction("independent" if several else "probabilities", tuple(ranked), notes=notes)


def fill_masks(predictor: Predictor, inputs: Sequence[Any]) -> list[Prediction]:
    tokenizer = predictor.processor
    # Both usual ways to write a mask.
    texts = [_MASK.sub(lambda _: tokenizer.mask_token, _two_texts(one)[0]) for one in inputs]
    if not all(tokenizer.mask_token in text for text in texts):
        raise InputError(f"There is no mask in the text. Write `{tokenizer.mask_token}` in the place of a word.")
    encoded, notes = tokenized(predictor, texts)
    places = [row.nonzero()[:, 0] for row in encoded["input_ids"] == tokenizer.mask_token_id]
    if not all(map(len, places)):
        raise InputError("The masks lie behind the last token that the model takes. Shorten the text before them.")
    logits = predictor.forward(encoded).logits
    found = []
    for text, where, row, note in zip(texts, places, logits, notes, strict=True):
        best = row[where.to(row.device)].float().softmax(dim=-1).topk(BEST_WORDS)
        masks = []
        for shares, tokens in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            words = [tokenizer.decode([token]).strip() or tokenizer.decode([token]) for token in tokens]
            masks.append(tuple(zip(words, shares, strict=True)))
        *around, rest = text.split(tokenizer.mask_token)
        words = [Piece(words[0][0], str(number), words[0][1]) for number, words in enumerate(masks, start=1)]
        # Masks that were cut off stay as they are.
        words += [Piece(tokenizer.mask_token)] * (len(around) - len(words))
        pieces = [piece for before, word in zip(around, words, strict=True) for piece in (Piece(before), word)]
        found.append(Prediction("words", pieces=_filled(*pieces, Piece(rest)), masks=tuple(masks), notes=note))
    return found


def _filled(*pieces: Piece) -> tuple[Piece, ...]:
    return tuple(piece for piece in pieces if piece.text)


def reply(predictor: Predictor, inputs: Sequence[Any], max_new_tokens: int) -> list[Prediction]:
    """The likeliest word at each step, so that the same text always has the same reply."""
    encoded, notes = tokenized(predictor, [_two_texts(one)[0] for one in inputs])
    on_device = {name: value.to(predictor.model.device) for name, value in encoded.items()}
    tokens = predictor.model.generate(**on_device, max_new_tokens=max_new_tokens, do_sample=False, num_beams=1)
    if predictor.seen is not None:
        # Generating does not go through `forward`.
        predictor.forward({**encoded, "decoder_input_ids": tokens})
    replies = predictor.processor.batch_decode(tokens, skip_special_tokens=True)
    return [Prediction("reply", text=text.strip(), notes=note) for text, note in zip(replies, notes, strict=True)]


# Words with tags


def tag_words(predictor: Predictor, inputs: Sequence[Any]) -> list[Prediction]:
    """The tag of a word is that of its first token. What is too long for the model is read in parts."""
    rows = [one["tokens"] if isinstance(one, Mapping) else one for one in inputs]
    texts = [one if isinstance(one, str) else " ".join(one) for one in rows]
    words = [_WORD.findall(one) if isinstance(one, str) else list(one) for one in rows]
    from hf_memaug.data.spans import LONGEST_TAGGED

    labels, limit = predictor.labels, min(LONGEST_TAGGED, predictor.max_length or LONGEST_TAGGED)
    tags: list[list[tuple[str, float]]] = [[] for _ in rows]
    left = [row for row in range(len(rows)) if words[row]]
    while left:
        parts = [words[row][len(tags[row]) :] for row in left]
        encoded = predictor.processor(
            parts, is_split_into_words=True, truncation=True, max_length=limit, padding=True, return_tensors="pt"
        )
        best = predictor.forward(encoded).logits.float().softmax(dim=-1).max(dim=-1)
        for place, row in enumerate(left):
            first: dict[int, int] = {}
            for token, word in enumerate(encoded.word_ids(place)):
                if word is not None:
                    first.setdefault(word, token)
            # A word without a token, such as a sign that the tokenizer drops, has no tag.
            is_cut = len(encoded["input_ids"][place]) >= limit and bool(first)
            for word in range(max(first) + 1 if is_cut else len(parts[place])):
                found = ("O", 0.0)
                if word in first:
                    token = first[word]
                    found = (labels[int(best.indices[place, token])], float(best.values[place, token]))
                tags[row].append(found)
        left = [row for row in left if len(tags[row]) < len(words[row])]
    return [_tagged(text, tuple(of_row), found) for text, of_row, found in zip(texts, words, tags, strict=True)]


def _tagged(text: str, words: tuple[str, ...], found: Sequence[tuple[str, float]]) -> Prediction:
    tags, starts, place = tuple(tag for tag, _ in found), [], 0
    for word in words:
        starts.append(text.index(word, place))
        place = starts[-1] + len(word)
    pieces, done = [], 0
    for kind, begin, end in stretches(tags):
        start, stop = starts[begin], starts[end - 1] + len(words[end - 1])
        score = sum(share for _, share in found[begin:end]) / (end - begin)
        pieces += [Piece(text[done:start]), Piece(text[start:stop], kind, score)]
        done = stop
    return Prediction("tags", pieces=_filled(*pieces, Piece(text[done:])), words=words, tags=tags)


def stretches(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Entities as (type, first word, one past the last); tags that are not IOB2 stand for one word each."""
    from hf_memaug.iob2 import entities

    try:
        return entities(tags)
    except ValueError:
        return [(tag, number, number + 1) for number, tag in enumerate(tags) if tag != "O"]


# Questions


def answer_questions(predictor: Predictor, inputs: Sequence[Any]) -> list[Prediction]:
    """The best span of the context, over all its parts; none where no answer is likelier."""
    from hf_memaug.data.spans import LONGEST_QUESTION, spans_from_logits, tokenize_questions

    tokenizer = predictor.processor
    length = min(LONGEST_QUESTION, predictor.max_length or LONGEST_QUESTION)
    asked = [_two_texts(one, "question", "context") for one in inputs]
    if not all(context for _, context in asked):
        raise InputError("There is no context. Give the text that the question is about.")
    none: dict[str, list] = {"text": [], "answer_start": []}
    rows = [{"question": question, "context": context, "answers": none} for question, context in asked]
    try:
        parts = tokenize_questions(rows, tokenizer, length, length // 3)
    except ValueError as error:
        if "leaves" not in str(error):
            raise InputError(f"The checkpoint's tokenizer cannot find answers: {error}") from error
        raise InputError(f"The question leaves no room for the context in {length} tokens. Shorten it.") from error
    starts, ends = [], []
    for first in range(0, len(parts), len(inputs)):
        several = parts[first : first + len(inputs)]
        names = [name for name in tokenizer.model_input_names if name in several[0]]
        features = [{name: part[name] for name in names} for part in several]
        padding = {"padding": tokenizer.pad_token is not None, "return_tensors": "pt", "verbose": False}
        output = predictor.forward(tokenizer.pad(features, **padding))
        starts += output.start_logits.float().cpu()
        ends += output.end_logits.float().cpu()
    spans = spans_from_logits(starts, ends, parts, len(rows))
    of_row = [[place for place, part in enumerate(parts) if part["row"] == number] for number in range(len(rows))]
    return [
        _answer(context, best, nothing, starts, ends, parts, places)
        for (_, context), (best, nothing), places in zip(asked, spans, of_row, strict=True)
    ]


def _answer(context, spans, nothing, starts, ends, parts, of_row: list[int]) -> Prediction:
    shares: dict[str, float] = {}
    for span in spans:
        if len(shares) == BEST_ANSWERS:
            break
        text = context[span.first : span.last].strip()
        # What an answer in this part could be: a token of the context, or the first one, which means none.
        offsets = parts[span.part]["offsets"]
        places = [place for place, offset in enumerate(offsets) if offset is not None or not place]
        share = 1.0
        for logits, place in ((starts[span.part], span.start), (ends[span.part], span.end)):
            share *= float(logits[places].softmax(dim=0)[places.index(place)])
        if text:
            shares.setdefault(text, share)
    answer, start = "", None
    pieces: tuple[Piece, ...] = (Piece(context),)
    if spans and spans[0].score > nothing:
        raw = context[spans[0].first : spans[0].last]
        answer, start = raw.strip(), spans[0].first + len(raw) - len(raw.lstrip())
        marked = Piece(answer, "answer", shares.get(answer))
        pieces = _filled(Piece(context[:start]), marked, Piece(context[start + len(answer) :]))
    notes = (f"The context is long and was read in {len(of_row)} parts that overlap.",) if len(of_row) > 1 else ()
    ranked = tuple(sorted(shares.items(), key=lambda pair: pair[0] != answer))
    part = of_row.index(spans[0].part) if spans else 0
    return Prediction("answer", ranked, answer, pieces, start=start, part=part, notes=notes)


# Images and graphs


def classify_images(predictor: Predictor, inputs: Sequence[Any]) -> list[Prediction]:
    from hf_memaug.data.images import decode_image

    try:
        images = [decode_image(one["image"] if isinstance(one, Mapping) and "image" in one else one) for one in inputs]
    except (OSError, TypeError, ValueError) as error:
        raise InputError(f"The image cannot be read: {str(error).replace('`image` ', 'it ')}") from error
    pixels = [predictor.processor(images=image, return_tensors="pt")["pixel_values"] for image in images]
    # Some processors keep the shape of an image.
    if len({one.shape for one in pixels}) == 1:
        pixels = [torch.cat(pixels)]
    logits = [row for part in pixels for row in predictor.forward({"pixel_values": part}).logits]
    return [_labels(predictor, row) for row in logits]


def classify_graphs(predictor: Predictor, inputs: Sequence[Any]) -> list[Prediction]:
    from hf_memaug.data.graphs import GraphCollator

    graphs = [_graph(predictor, one) for one in inputs]
    if not predictor.config.backbone_config.edge_vocab_sizes:
        graphs = [{name: value for name, value in one.items() if name != "edge_features"} for one in graphs]
    logits = predictor.forward(GraphCollator()([{"graph": graph} for graph in graphs])).logits
    return [_labels(predictor, row) for row in logits]


def _graph(predictor: Predictor, one: Any) -> Mapping:
    from hf_memaug.data.molecules import graph_from_smiles

    if not isinstance(one, str):
        return one.get("graph", one)
    if not predictor.reads_molecules:
        raise InputError("The model reads graphs that are not molecules, so that SMILES do not fit. Give graphs.")
    try:
        return graph_from_smiles(one)
    except ValueError as error:
        raise InputError(str(error)) from error


TASKS: dict[str, Callable] = {
    "text": classify_texts,
    "words": fill_masks,
    "replies": reply,
    "tags": tag_words,
    "questions": answer_questions,
    "image": classify_images,
    "graph": classify_graphs,
}
