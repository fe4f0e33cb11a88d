# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What the page shows, computed: the prediction, who in the memory answered, and the plain answer beside it."""

import os
import threading
from dataclasses import dataclass, field
from typing import Any

import torch

from hf_memaug.app.checkpoints import MOST_LETTERS, Checkpoint, NotServed, load_checkpoint
from hf_memaug.app.plain import has_memory, plain_logits, what_stands_beside, without_content
from hf_memaug.app.readings import (
    READERS,
    Asked,
    PatchMap,
    Reading,
    SlotFacts,
    gather_slot_facts,
    patch_maps,
    read_anything,
)
from hf_memaug.data.images import decode_image

# Of a generated answer.
MOST_NEW_TOKENS = 40


@dataclass(frozen=True)
class Prediction:
    """
    Args:
        scores: labels with their scores, the largest first; of a generated text none.
        kind: "probabilities", which add up to 1; "independent", of several labels at once; "number", of a regression;
            or "text".
        text: what was generated.
    """

    scores: tuple[tuple[str, float], ...] = ()
    kind: str = "probabilities"
    text: str | None = None


@dataclass(frozen=True)
class Answer:
    """
    Args:
        prediction: of the checkpoint.
        plain: the answer without the memory; None where there is none.
        plain_is: what `plain` is, or why it is missing; `plain_name` in two or three words.
        readings: what each memory answered.
        patches: of images, the expert of each patch.
        notes: what else is to be said, such as that a text was cut.
    """

    prediction: Prediction
    plain: Prediction | None
    plain_is: str
    plain_name: str = "Without the memory"
    readings: tuple[Reading, ...] = ()
    patches: tuple[PatchMap, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Served:
    """A checkpoint, a plain model to compare it with, and what is known of the slots. One question at a time."""

    checkpoint: Checkpoint
    baseline: Checkpoint | None = None
    facts: SlotFacts = field(default_factory=SlotFacts)
    # Switching a memory off changes the model for a moment, and the page may be open twice.
    lock: Any = field(default_factory=threading.Lock, compare=False)


def load_served(checkpoint: str | os.PathLike, baseline: str | os.PathLike | None = None) -> Served:
    """
    Args:
        checkpoint: a folder or a repository of the hub, with a model of this library that classifies texts or pictures,
            or answers texts with texts.
        baseline: the same of a plain model, which is asked the same; left out, the memory is switched off where the
            family can.
    """
    ours = load_checkpoint(checkpoint)
    plain = None
    if baseline is not None:
        plain = load_checkpoint(baseline, "baseline", ours=False)
        if plain.modality != ours.modality:
            kinds = {"text": "texts", "image": "pictures"}
            raise NotServed(
                f"`baseline`: {plain.name!r} reads {kinds[plain.modality]} and `checkpoint` {kinds[ours.modality]}. "
                "Give a plain model of the same kind."
            )
        if ours.task != plain.task:
            raise NotServed(f"`baseline`: {plain.name!r} classifies and `checkpoint` writes texts. Leave it out.")
    return Served(ours, plain, gather_slot_facts(ours, lambda texts, pairs: _encoded(ours, texts, pairs)[0]))


@torch.no_grad()
def answer(served: Served, text: str | None = None, pair: str | None = None, image: Any = None) -> Answer:
    """
    Args:
        text, pair: the text, and a second one where the model compares two.
        image: what `decode_image` takes: a file, bytes, a PIL image or an array.

    Raises `NotServed` with words for the page where there is nothing to answer.
    """
    checkpoint = served.checkpoint
    if checkpoint.modality == "image":
        question = {"image": _checked_image(image, text)}
    else:
        question = {"text": _checked_text(checkpoint, text, image), "pair": _checked_pair(checkpoint, pair)}
    with served.lock:
        return _answer(served, **question)


def _answer(served: Served, text=None, pair=None, image=None) -> Answer:
    checkpoint, notes = served.checkpoint, []
    inputs, cut = _inputs(checkpoint, text, pair, image)
    if cut:
        notes.append(
            f"The text has {cut} tokens and the model takes {checkpoint.most_tokens}: only the first "
            f"{checkpoint.most_tokens} were read."
        )
    plain_is, has_plain = what_stands_beside(checkpoint, served.baseline)
    plain, said = None, None
    if checkpoint.task == "generation":
        prediction, said = _generated(checkpoint, inputs)
        if has_plain:
            with without_content(checkpoint.model):
                plain, _ = _generated(checkpoint, inputs)
        output = checkpoint.model(**inputs, decoder_input_ids=said, output_memory_weights=True)
    else:
        output = checkpoint.model(**inputs, **_wanted(checkpoint))
        prediction = _prediction(checkpoint, output.logits)
        if has_plain and served.baseline is not None:
            theirs, cut = _inputs(served.baseline, text, pair, image)
            plain = _prediction(served.baseline, served.baseline.model(**theirs).logits)
            if cut:
                most = served.baseline.most_tokens
                notes.append(f"The plain model takes {most} tokens: it read the first {most} of {cut}.")
            if sorted(served.baseline.labels) != sorted(checkpoint.labels):
                notes.append(
                    "The plain model has other labels: "
                    f"{', '.join(served.baseline.labels)} instead of {', '.join(checkpoint.labels)}."
                )
        elif has_plain:
            plain = _prediction(checkpoint, plain_logits(checkpoint, inputs))
    readings, patches = (), ()
    if has_memory(checkpoint.config):
        reader = READERS.get(checkpoint.config.model_type, read_anything)
        readings = tuple(reader(checkpoint, Asked(inputs, output, image, said), served.facts))
    if checkpoint.config.model_type == "vit_gmoe":
        patches = tuple(patch_maps(checkpoint, image))
    name = "Without the memory" if served.baseline is None else "Plain model"
    return Answer(prediction, plain, plain_is, name, readings, patches, (*notes, *checkpoint.beside.warnings))


def _wanted(checkpoint: Checkpoint) -> dict:
    reads = getattr(checkpoint.config, "reads_memory", True)
    return {"output_memory_weights": True} if checkpoint.is_ours and reads else {}


def _checked_text(checkpoint: Checkpoint, text: str | None, image: Any) -> str:
    if image is not None and not text:
        raise NotServed("This model reads texts, and this is a picture. Type a text.")
    if not (text or "").strip():
        raise NotServed("There is no text yet. Type one, then ask again.")
    if len(text) > MOST_LETTERS:
        raise NotServed(f"The text has {len(text):,} letters, more than the {MOST_LETTERS:,} taken here. Shorten it.")
    return text.strip()


def _checked_pair(checkpoint: Checkpoint, pair: str | None) -> str | None:
    pair = (pair or "").strip() or None
    if checkpoint.pairs == "needed" and pair is None:
        raise NotServed("This model compares two texts. Type the second one too.")
    if checkpoint.pairs == "none" and pair is not None:
        raise NotServed("This model reads one text. Leave the second one empty.")
    if pair is not None and len(pair) > MOST_LETTERS:
        raise NotServed(f"The second text has more than the {MOST_LETTERS:,} letters taken here. Shorten it.")
    return pair


def _checked_image(image: Any, text: str | None):
    if image is None:
        wrong = "This model looks at pictures, and this is a text. " if (text or "").strip() else ""
        raise NotServed(f"{wrong}There is no picture yet. Drop one, then ask again.")
    try:
        return decode_image(image)
    except (TypeError, ValueError) as error:
        raise NotServed(f"The picture cannot be read: {str(error).replace('`image` ', 'it ')}") from error


def _inputs(checkpoint: Checkpoint, text, pair, image) -> tuple[dict, int | None]:
    """The model's inputs, and the number of tokens where the text had to be cut."""
    if checkpoint.modality == "image":
        pixels = checkpoint.processor(images=image, return_tensors="pt")["pixel_values"]
        return {"pixel_values": pixels.to(checkpoint.model.device)}, None
    return _encoded(checkpoint, [text], None if pair is None else [pair])


def _encoded(checkpoint: Checkpoint, texts: list[str], pairs: list[str] | None) -> tuple[dict, int | None]:
    tokenizer, most, cut = checkpoint.processor, checkpoint.most_tokens, None
    if most is not None and len(texts) == 1:
        count = len(tokenizer(texts, pairs, verbose=False)["input_ids"][0])
        cut = count if count > most else None
    limit = {"truncation": True, "max_length": most} if most is not None else {}
    # Without a padding token one text at a time is asked, which needs none.
    padding = tokenizer.pad_token is not None
    inputs = tokenizer(texts, pairs, padding=padding, return_tensors="pt", **limit)
    kept = ("input_ids", "attention_mask", *(("token_type_ids",) if checkpoint.task == "classification" else ()))
    if not inputs["input_ids"].shape[1]:
        raise NotServed("The tokenizer finds no word in this text. Type another.")
    return {name: inputs[name].to(checkpoint.model.device) for name in kept if name in inputs}, cut


def _prediction(checkpoint: Checkpoint, logits: torch.Tensor) -> Prediction:
    logits, config = logits[0].float().cpu(), checkpoint.config
    if config.num_labels == 1:
        return Prediction(((checkpoint.labels[0], float(logits[0])),), "number")
    several = config.problem_type == "multi_label_classification"
    scores = (logits.sigmoid() if several else logits.softmax(dim=-1)).tolist()
    ranked = sorted(zip(checkpoint.labels, scores, strict=True), key=lambda pair: -pair[1])
    return Prediction(tuple(ranked), "independent" if several else "probabilities")


def _generated(checkpoint: Checkpoint, inputs: dict) -> tuple[Prediction, torch.Tensor]:
    # The likeliest word at each step, so that the same question has the same answer.
    said = checkpoint.model.generate(**inputs, max_new_tokens=MOST_NEW_TOKENS, do_sample=False, num_beams=1)
    text = checkpoint.processor.decode(said[0], skip_special_tokens=True).strip()
    return Prediction(kind="text", text=text), said
