# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What the page shows, computed: the prediction, who in the memory answered, and the plain answer beside it."""

import os
import threading
from dataclasses import dataclass, field
from typing import Any

import torch

from hf_memaug.app.checkpoints import MOST_LETTERS, Checkpoint, load_checkpoint
from hf_memaug.app.errors import NotServed
from hf_memaug.app.molecules import checked_graph, drawing, graph_inputs
from hf_memaug.app.plain import has_memory, plain_output, what_stands_beside, without_content
from hf_memaug.app.predictions import (
    Prediction,
    Run,
    Said,
    ask_question,
    ask_tags,
    ask_words,
    of_labels,
    on_device,
)
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
_READS = {"text": "texts", "image": "pictures", "graph": "molecules"}
_DOES = {
    "classification": "classifies",
    "tags": "tags words",
    "questions": "answers questions",
    "words": "fills masks",
    "generation": "writes texts",
}


@dataclass(frozen=True)
class Answer:
    """
    Args:
        prediction: of the checkpoint.
        plain: the answer without the memory; None where there is none.
        plain_is: what `plain` is, or why it is missing; `plain_name` in two or three words.
        readings: what each memory answered.
        patches: of images, the expert of each patch.
        drawing: of molecules, the molecule as SVG.
        notes: what else is to be said, such as that a text was cut.
    """

    prediction: Prediction
    plain: Prediction | None
    plain_is: str
    plain_name: str = "Without the memory"
    readings: tuple[Reading, ...] = ()
    patches: tuple[PatchMap, ...] = ()
    drawing: str | None = None
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
        checkpoint: a folder or a repository of the hub, with a model of this library, or with an adapter of one: any
            that classifies texts, pictures or molecules, tags words, answers questions, fills masks or writes texts.
        baseline: the same of a plain model, which is asked the same; left out, the memory is switched off where the
            family can.
    """
    ours = load_checkpoint(checkpoint)
    plain = None
    if baseline is not None:
        plain = load_checkpoint(baseline, "baseline", ours=False)
        if plain.modality != ours.modality:
            raise NotServed(
                f"`baseline`: {plain.name!r} reads {_READS[plain.modality]} and `checkpoint` {_READS[ours.modality]}. "
                "Give a plain model of the same kind."
            )
        if ours.task != plain.task:
            raise NotServed(
                f"`baseline`: {plain.name!r} {_DOES[plain.task]} and `checkpoint` {_DOES[ours.task]}. Give a plain "
                "model that does the same, or leave it out."
            )
    return Served(ours, plain, gather_slot_facts(ours, lambda texts, pairs: _encoded(ours, texts, pairs)))


@torch.no_grad()
def answer(served: Served, text: str | None = None, pair: str | None = None, image: Any = None) -> Answer:
    """
    Args:
        text, pair: the text, and a second one where the model compares two; a question and its context; a text with
            masks; or the SMILES of a molecule.
        image: what `decode_image` takes: a file, bytes, a PIL image or an array.

    Raises `NotServed` with words for the page where there is nothing to answer.
    """
    checkpoint = served.checkpoint
    if checkpoint.modality == "image":
        question = {"image": _checked_image(image, text)}
    elif checkpoint.modality == "graph":
        question = {"text": (text or "").strip(), "graph": checked_graph(text)}
    else:
        question = {"text": _checked_text(checkpoint, text, image), "pair": _checked_pair(checkpoint, pair)}
    with served.lock:
        return _answer(served, question)


def _answer(served: Served, question: dict) -> Answer:
    checkpoint, baseline = served.checkpoint, served.baseline
    plain_is, has_plain = what_stands_beside(checkpoint, baseline)
    plain, tokens = None, None
    if checkpoint.task == "generation":
        said, tokens = _generated(checkpoint, question)
        if has_plain:
            with without_content(checkpoint.model):
                plain = _generated(checkpoint, question)[0].prediction
    else:
        said = _ask(checkpoint, question, lambda inputs: checkpoint.model(**inputs, **_wanted(checkpoint)))
        if has_plain and baseline is None:
            plain = _ask(checkpoint, question, lambda inputs: plain_output(checkpoint, inputs)).prediction
    notes = list(said.notes)
    if has_plain and baseline is not None:
        beside = _ask(baseline, question, lambda inputs: baseline.model(**inputs))
        plain = beside.prediction
        notes += [f"The plain model: {note[:1].lower()}{note[1:]}" for note in beside.notes]
        if checkpoint.task in ("classification", "tags") and sorted(baseline.labels) != sorted(checkpoint.labels):
            theirs, ours = (", ".join(one.labels) for one in (baseline, checkpoint))
            notes.append(f"The plain model has other labels: {theirs} instead of {ours}.")
    readings, patches, image = (), (), question.get("image")
    if has_memory(checkpoint.config):
        reader = READERS.get(checkpoint.config.model_type, read_anything)
        readings = tuple(reader(checkpoint, Asked(said.inputs, said.output, image, tokens), served.facts))
    if checkpoint.config.model_type == "vit_gmoe":
        patches = tuple(patch_maps(checkpoint, image))
    drawn = drawing(question["text"]) if checkpoint.modality == "graph" else None
    name = "Without the memory" if baseline is None else "Plain model"
    notes += checkpoint.beside.warnings
    return Answer(said.prediction, plain, plain_is, name, readings, patches, drawn, tuple(notes))


def _ask(checkpoint: Checkpoint, question: dict, run: Run) -> Said:
    """What a model says to a question; `run` gives its output for inputs."""
    if checkpoint.task == "tags":
        return ask_tags(checkpoint, question["text"], run)
    if checkpoint.task == "questions":
        return ask_question(checkpoint, question["text"], question["pair"], run)
    if checkpoint.task == "words":
        return ask_words(checkpoint, question["text"], run, lambda text: _inputs(checkpoint, {"text": text}))
    inputs, notes = _inputs(checkpoint, question)
    output = run(inputs)
    return Said(of_labels(checkpoint, output.logits), inputs, output, notes)


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
    # The letters of an answer are counted in the context as it was given.
    pair = ((pair or "") if checkpoint.task == "questions" else (pair or "").strip()) or None
    if checkpoint.task == "questions" and not (pair or "").strip():
        raise NotServed("There is no context yet. Paste the text that the question is about, then ask again.")
    if checkpoint.pairs == "needed" and pair is None:
        raise NotServed("This model compares two texts. Type the second one too.")
    if checkpoint.pairs == "none" and pair is not None:
        raise NotServed("This model reads one text. Leave the second one empty.")
    if pair is not None and len(pair) > MOST_LETTERS:
        what = "context" if checkpoint.task == "questions" else "second text"
        raise NotServed(f"The {what} has more than the {MOST_LETTERS:,} letters taken here. Shorten it.")
    return pair


def _checked_image(image: Any, text: str | None):
    if image is None:
        wrong = "This model looks at pictures, and this is a text. " if (text or "").strip() else ""
        raise NotServed(f"{wrong}There is no picture yet. Drop one, then ask again.")
    try:
        return decode_image(image)
    except (TypeError, ValueError) as error:
        raise NotServed(f"The picture cannot be read: {str(error).replace('`image` ', 'it ')}") from error


def _inputs(checkpoint: Checkpoint, question: dict) -> tuple[dict, tuple[str, ...]]:
    """The model's inputs, and what is to be said where the text had to be cut."""
    if checkpoint.modality == "image":
        pixels = checkpoint.processor(images=question["image"], return_tensors="pt")["pixel_values"]
        return {"pixel_values": pixels.to(checkpoint.model.device)}, ()
    if checkpoint.modality == "graph":
        return graph_inputs(checkpoint, question["graph"]), ()
    text, pair, most = question["text"], question.get("pair"), checkpoint.most_tokens
    pairs, notes = None if pair is None else [pair], ()
    if most is not None:
        count = len(checkpoint.processor([text], pairs, verbose=False)["input_ids"][0])
        if count > most:
            notes = (f"The text has {count} tokens and the model takes {most}: only the first {most} were read.",)
    return _encoded(checkpoint, [text], pairs), notes


def _encoded(checkpoint: Checkpoint, texts: list[str], pairs: list[str] | None) -> dict:
    tokenizer, most = checkpoint.processor, checkpoint.most_tokens
    limit = {"truncation": True, "max_length": most} if most is not None else {}
    # Without a padding token one text at a time is asked, which needs none.
    padding = tokenizer.pad_token is not None
    inputs = tokenizer(texts, pairs, padding=padding, return_tensors="pt", **limit)
    if not inputs["input_ids"].shape[1]:
        raise NotServed("The tokenizer finds no word in this text. Type another.")
    return on_device(checkpoint, inputs)


def _generated(checkpoint: Checkpoint, question: dict) -> tuple[Said, torch.Tensor]:
    inputs, notes = _inputs(checkpoint, question)
    # The likeliest word at each step, so that the same question has the same answer.
    tokens = checkpoint.model.generate(**inputs, max_new_tokens=MOST_NEW_TOKENS, do_sample=False, num_beams=1)
    text = checkpoint.processor.decode(tokens[0], skip_special_tokens=True).strip()
    output = checkpoint.model(**inputs, decoder_input_ids=tokens, output_memory_weights=True)
    return Said(Prediction(kind="text", text=text), inputs, output, notes), tokens
