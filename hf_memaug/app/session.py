# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What the app serves, and its answer to one question. Nothing here knows of Gradio."""

import importlib.util
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hf_memaug.data.images import decode_image
from hf_memaug.inference import explain, load_predictor
from hf_memaug.inference.explanations import Explanation
from hf_memaug.inference.patches import image_as_seen
from hf_memaug.inference.predictions import CheckpointError, InputError
from hf_memaug.inference.predictor import Predictor
from hf_memaug.inference.training_rows import TrainingRows, read_training_rows

# Counting the tokens of a longer text would take long; a larger molecule cannot be made out in a drawing.
_MOST_LETTERS, _MOST_ATOMS = 100_000, 150


@dataclass(frozen=True)
class Session:
    """
    Args:
        predictor: the model that is served.
        baseline: a plain model, whose prediction is shown beside.
        rows: what is known of the slots.
    """

    predictor: Predictor
    baseline: Predictor | None = None
    rows: TrainingRows = field(default_factory=TrainingRows)


@dataclass(frozen=True)
class Answer:
    """
    Args:
        plain_name: the title of `explanation.plain`.
        image: of images, what the model sees, `(height, width, 3)` between 0 and 1.
        drawing: of molecules, the drawing as SVG.
        notes: what the user has to know, such as that a text was cut.
    """

    explanation: Explanation
    plain_name: str = "Without the memory"
    image: np.ndarray | None = None
    drawing: str | None = None
    notes: tuple[str, ...] = ()


def load_session(checkpoint: str | os.PathLike, baseline: str | os.PathLike | None = None) -> Session:
    """
    Args:
        checkpoint: a folder or a repository of the hub.
        baseline: the same, of a plain model of the same kind.
    """
    predictor = load_predictor(checkpoint)
    if predictor.kind == "graph" and not predictor.reads_molecules:
        raise CheckpointError(
            f"`checkpoint` {predictor.name!r} reads graphs that are not molecules of `graph_from_smiles`, and no other "
            "graph can be typed into a page. Use `load_predictor` in Python."
        )
    if predictor.kind == "graph" and importlib.util.find_spec("rdkit") is None:
        raise CheckpointError(
            f"`checkpoint` {predictor.name!r} reads molecules, which needs RDKit: `pip install hf_memaug[graph]`."
        )
    plain = None if baseline is None else load_predictor(baseline, "baseline")
    if plain is not None and plain.kind != predictor.kind:
        ours, theirs = (type(one.model).__name__ for one in (predictor, plain))
        raise CheckpointError(
            f"`baseline` {plain.name!r} is a `{theirs}`, and `checkpoint` is a `{ours}`. Use a plain model of the same "
            "kind."
        )
    return Session(predictor, plain, read_training_rows(predictor))


def ask(session: Session, first: Any, second: str | None = None) -> Answer:
    """
    Args:
        first: a text, a question, a text with masks, the SMILES of a molecule, or what `decode_image` takes.
        second: a second text where the model compares two, or the context of a question.
    """
    predictor = session.predictor
    given = question(predictor, first, second)
    explanation = explain(predictor, given, session.rows, session.baseline)
    notes = list(explanation.prediction.notes)
    if session.baseline is not None:
        notes += [f"The plain model: {note[:1].lower()}{note[1:]}" for note in explanation.plain.notes]
        ours, theirs = ([name for name, _ in one.scores] for one in (explanation.prediction, explanation.plain))
        if explanation.prediction.kind == "probabilities" and sorted(ours) != sorted(theirs):
            notes.append(f"The plain model has other labels: {', '.join(session.baseline.labels)}.")
    is_mapped = any(reading.experts is not None for reading in explanation.readings)
    return Answer(
        explanation,
        "Without the memory" if session.baseline is None else "Plain model",
        image_as_seen(predictor.processor, decode_image(given)) if is_mapped else None,
        draw_molecule(given) if predictor.kind == "graph" else None,
        (*notes, *session.rows.warnings),
    )


def question(predictor: Predictor, first: Any, second: str | None = None) -> Any:
    """The input, as `Predictor.predict` takes it."""
    if predictor.kind == "image":
        if first is None:
            raise InputError("There is no picture yet. Drop one, then ask again.")
        return first
    text, context = (first or "").strip(), second or ""
    what = {"graph": "molecule"}.get(predictor.kind, "text")
    if not text:
        raise InputError(f"There is no {what} yet. Type one, then ask again.")
    if predictor.kind == "questions" and not context.strip():
        raise InputError("There is no context yet. Paste the text that the question is about, then ask again.")
    if predictor.kind != "questions":
        # Answers are counted in letters of the context as it was given.
        context = context.strip()
    if max(len(text), len(context)) > _MOST_LETTERS:
        raise InputError(f"The text is longer than {_MOST_LETTERS:,} letters. Shorten it.")
    return (text, context) if context else text


def draw_molecule(smiles: str, width: int = 420, height: int = 300) -> str | None:
    """The molecule as SVG; None where it is too large, or where RDKit cannot draw."""
    try:
        from rdkit import Chem
        from rdkit.Chem.Draw import rdMolDraw2D
    except ImportError:
        return None
    molecule = Chem.MolFromSmiles(smiles)
    if molecule is None or molecule.GetNumAtoms() > _MOST_ATOMS:
        return None
    draw = rdMolDraw2D.MolDraw2DSVG(width, height)
    rdMolDraw2D.PrepareAndDrawMolecule(draw, molecule)
    draw.FinishDrawing()
    return draw.GetDrawingText()
