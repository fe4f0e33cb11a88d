# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The parts of the page as HTML, by the macros of `page.html`. Values from users, checkpoints and files are escaped."""

import base64
import io
import re
import zlib
from functools import cache
from pathlib import Path

import numpy as np

from hf_memaug.app.session import Answer, Session
from hf_memaug.app.teaching import Teaching
from hf_memaug.inference.patches import EXPERT_COLOURS, tinted
from hf_memaug.registry import FAMILIES

CSS = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
# Of marks: behind letters, in light and in dark.
_MARKS = ("#2f7fd1", "#c77700", "#2a9d6f", "#b0479a", "#c0453b", "#7a6ad8", "#6c8a00", "#008b9a")
# Of taught rows, how many are listed.
_MOST_ROWS = 100
# Tells the server which row's button was pressed.
ERASE = "element.addEventListener('click', e => { const row = e.target.dataset.row; if (row) trigger('click', {row}) })"
_ASK = {
    "image": "Drop a picture",
    "graph": "Type the SMILES of a molecule and press Ask",
    "questions": "Type a question and the text that it is about, and press Ask",
    "words": "Type a text with {mask} in the place of a word, and press Ask",
}


@cache
def _macros():
    from jinja2 import Environment, FileSystemLoader
    from markupsafe import Markup, escape

    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True)
    environment.globals["most_labels"] = 12
    environment.filters |= {
        "code": lambda text: Markup(re.sub("`(.*?)`", r"<code>\1</code>", str(escape(text)))),
        "largest": lambda shares: sorted(shares.items(), key=lambda pair: -pair[1]),
        # By the label alone, so that it has one colour in both predictions.
        "colour": lambda label: _MARKS[zlib.crc32(label.encode("utf-8")) % len(_MARKS)],
        "expert_colour": lambda expert: EXPERT_COLOURS[expert % len(EXPERT_COLOURS)],
    }
    return environment.get_template("page.html").module


def header(session: Session) -> str:
    """What is served."""
    predictor = session.predictor
    family = FAMILIES.get(predictor.config.model_type)
    facts = getattr(predictor.config, "run_facts", None) or {}
    training = [f"Trained on {facts['data']}." if facts.get("data") else ""]
    if facts.get("left_out"):
        training.append(f"The domain {facts['left_out']} was left out of training.")
    return str(_macros().header(predictor, family and family.paper.what, " ".join(filter(None, training))))


def message(text: str) -> str:
    """What the page shows instead of an answer."""
    return str(_macros().message(text))


def waiting(session: Session) -> str:
    predictor = session.predictor
    text = _ASK.get(predictor.kind, "Type a text and press Ask")
    return str(_macros().waiting(text.format(mask=getattr(predictor.processor, "mask_token", None))))


def answer(found: Answer) -> str:
    maps = [reading for reading in found.explanation.readings if reading.experts is not None]
    # With more experts than colours, numbers tell them apart.
    patches = [(one, _png(tinted(found.image, one.experts)), one.num_slots > len(EXPERT_COLOURS)) for one in maps]
    drawing = None
    if found.drawing is not None:
        # As a picture, in which no script runs.
        drawing = _address("image/svg+xml", found.drawing.encode("utf-8"))
    return str(_macros().answer(found.explanation, found.plain_name, found.notes, drawing, patches))


def teaching_help() -> str:
    return str(_macros().teaching_help())


def taught(teaching: Teaching) -> str:
    """What was taught, with a button for each row."""
    return str(_macros().taught(teaching.status(), teaching.rows(), _MOST_ROWS))


def _png(pixels: np.ndarray) -> str:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray((pixels * 255).round().astype("uint8")).save(buffer, format="PNG")
    return _address("image/png", buffer.getvalue())


def _address(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
