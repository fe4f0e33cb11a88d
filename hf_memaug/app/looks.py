# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers as HTML. Everything that comes from a person, a checkpoint or a file is escaped."""

import base64
import io
import zlib
from collections.abc import Callable, Iterable
from html import escape

from hf_memaug.app.answers import Answer, Served
from hf_memaug.app.checkpoints import Checkpoint
from hf_memaug.app.predictions import Piece, Prediction
from hf_memaug.app.readings import PatchMap, Place, Reading
from hf_memaug.registry import FAMILIES

_MOST_LABELS = 12
# Of marks: behind letters, in light and in dark.
_MARKS = ("#2f7fd1", "#c77700", "#2a9d6f", "#b0479a", "#c0453b", "#7a6ad8", "#6c8a00", "#008b9a")
# The colours are those of Gradio's theme, which has a light and a dark set of them.
CSS = """
.gradio-container .html-container { padding: 0 !important; }
.memaug { color: var(--body-text-color); font-size: 15px; line-height: 1.45; overflow-wrap: anywhere; }
.memaug h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
.memaug h2 { font-size: 1.05rem; margin: 0 0 .35rem; }
.memaug p { margin: .25rem 0; }
.memaug .quiet, .memaug li { color: color-mix(in srgb, var(--body-text-color) 72%, transparent); font-size: 13px; }
.memaug .pair, .memaug .grid { display: grid; gap: 12px; align-items: start; }
.memaug .pair { grid-template-columns: repeat(auto-fit, minmax(min(100%, 260px), 1fr)); }
.memaug .grid { grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); margin-top: 12px; }
.memaug .card { background: var(--background-fill-secondary); border: 1px solid var(--border-color-primary);
  border-radius: 8px; padding: 12px 14px; min-width: 0; }
.memaug .bar { display: grid; grid-template-columns: minmax(0, 1fr) 4.2em; gap: 0 8px; margin: 6px 0; }
.memaug .bar b { font-weight: 500; }
.memaug .bar span.share { text-align: right; font-variant-numeric: tabular-nums; }
.memaug .track { grid-column: 1 / -1; height: 6px; border-radius: 3px; background: var(--border-color-primary); }
.memaug .fill { height: 100%; border-radius: 3px; background: #2f7fd1; }
.memaug .plain .fill { background: #8a8f98; }
.memaug .first b { font-weight: 700; font-size: 1.1em; }
.memaug .place { border-top: 1px solid var(--border-color-primary); padding-top: 4px; }
.memaug .owner { border: 1px solid var(--border-color-primary); border-radius: 10px; padding: 0 8px; font-size: 12px;
  white-space: nowrap; }
.memaug ul { margin: 2px 0 6px; padding-left: 18px; list-style: disc; }
.memaug li { margin: 1px 0; }
.memaug .said { font-size: 1.1em; white-space: pre-wrap; }
.memaug .marked { white-space: pre-wrap; line-height: 1.9; max-height: 24em; overflow: auto; }
.memaug mark { color: inherit; background: color-mix(in srgb, var(--mark) 26%, transparent); border-radius: 4px;
  border-bottom: 2px solid var(--mark); padding: 1px 3px; box-decoration-break: clone;
  -webkit-box-decoration-break: clone; }
.memaug mark small { font-size: 11px; font-weight: 600; margin-left: 4px; white-space: nowrap; }
.memaug h3 { font-size: .95rem; margin: .6rem 0 .2rem; }
.memaug .molecule img { display: block; width: 100%; max-width: 420px; background: #fff; border-radius: 4px;
  margin: 6px auto; }
.memaug .alert { border: 1px solid #c77700; border-left-width: 5px; border-radius: 8px; padding: 10px 14px;
  margin: 0 0 12px; background: var(--background-fill-secondary); }
.memaug .map { position: relative; width: 100%; max-width: 320px; margin: 6px 0; }
.memaug .map img { width: 100%; display: block; image-rendering: pixelated; border-radius: 4px; margin: 0; }
.memaug .cells { position: absolute; left: 0; top: 0; display: grid; }
.memaug .cells i { display: flex; align-items: center; justify-content: center; font: 600 10px sans-serif; color: #fff;
  text-shadow: 0 0 2px #000, 0 0 2px #000; }
.memaug .key { display: inline-flex; align-items: center; gap: 5px; margin: 0 10px 4px 0; font-size: 13px; }
.memaug .key i { width: 12px; height: 12px; border-radius: 3px; border: 1px solid var(--border-color-primary); }
.memaug code { background: var(--background-fill-primary); border: 1px solid var(--border-color-primary);
  border-radius: 4px; padding: 0 4px; font-size: .92em; }
"""


def header(served: Served) -> str:
    """What is served, in three lines."""
    checkpoint = served.checkpoint
    family = FAMILIES[checkpoint.config.model_type]
    what = family.method.what[:1].upper() + family.method.what[1:]
    facts = [f"<code>{escape(type(checkpoint.model).__name__)}</code>", escape(what)]
    said = f"<h1>{escape(checkpoint.title)}</h1><p>{': '.join(facts)}.</p>"
    if checkpoint.base is not None:
        said += f'<p class="quiet">An adapter, merged into <code>{escape(checkpoint.base)}</code>.</p>'
    if checkpoint.task in ("classification", "tags"):
        labels = checkpoint.labels
        shown = ", ".join(labels[:_MOST_LABELS]) + (
            f" and {len(labels) - _MOST_LABELS} more" * (len(labels) > _MOST_LABELS)
        )
        said += f'<p class="quiet">Labels: {escape(shown)}. {_training(checkpoint.config)}</p>'
    return _whole(said)


def _training(config) -> str:
    facts = getattr(config, "run_facts", None) or {}
    parts = [f"Trained on {facts['data']}." if facts.get("data") else ""]
    if facts.get("left_out"):
        parts.append(f"The domain {facts['left_out']} was left out of training.")
    return escape(" ".join(filter(None, parts)))


def message(text: str) -> str:
    """What the page says where there is no answer."""
    return _whole(f'<div class="alert" role="alert">{_words(text)}</div>')


_ASK = {
    "tags": "Type a text and press Ask",
    "questions": "Type a question and the text that it is about, and press Ask",
    "words": "Type a text with {mask} in the place of a word, and press Ask",
}


def waiting(checkpoint: Checkpoint) -> str:
    ask = {"image": "Drop a picture", "graph": "Type the SMILES of a molecule and press Ask"}.get(
        checkpoint.modality, _ASK.get(checkpoint.task, "Type a text and press Ask")
    )
    if checkpoint.task == "words":
        ask = ask.format(mask=checkpoint.processor.mask_token)
    return _whole(f'<p class="quiet">{escape(ask)}: the prediction, and who in the memory answered, appear here.</p>')


def answered(found: Answer) -> str:
    """The whole answer."""
    notes = "".join(f'<div class="alert" role="status">{_words(note)}</div>' for note in found.notes)
    cards = _prediction("This model", found.prediction)
    if found.plain is not None:
        cards += _prediction(found.plain_name, found.plain, "plain")
    parts = [notes, f'<div class="pair">{cards}</div>', f'<p class="quiet">{_words(found.plain_is)}</p>']
    if found.drawing is not None:
        parts.append(f'<div class="grid">{_drawing(found.drawing)}</div>')
    if found.patches:
        parts.append(f'<div class="grid">{"".join(map(_patches, found.patches))}</div>')
    if found.readings:
        parts.append(f'<div class="grid">{"".join(map(_reading, found.readings))}</div>')
    return _whole("".join(parts))


def _whole(inner: str) -> str:
    return f'<div class="memaug">{inner}</div>'


def _words(text: str) -> str:
    """Escaped, with what stands in backticks as code."""
    parts = escape(text).split("`")
    if len(parts) % 2 == 0:  # a backtick without its fellow
        return "`".join(parts)
    return "".join(part if place % 2 == 0 else f"<code>{part}</code>" for place, part in enumerate(parts))


def _bar(label: str, share: float, shown: str | None = None, kind: str = "", extra: str = "") -> str:
    width = 100 * min(max(share, 0.0), 1.0)
    shown = f"{share:.1%}" if shown is None else shown
    return (
        f'<div class="bar {kind}"><div><b>{escape(label)}</b>{extra}</div><span class="share">{escape(shown)}</span>'
        f'<div class="track"><div class="fill" style="width:{width:.2f}%"></div></div></div>'
    )


def _prediction(title: str, prediction: Prediction, kind: str = "") -> str:
    if prediction.kind == "text":
        text = escape(prediction.text or "")
        inner = f'<p class="said">{text}</p>' if text else '<p class="quiet">It says nothing.</p>'
    elif prediction.kind == "number":
        (label, value), *_ = prediction.scores
        inner = f'<p class="said">{escape(label)}: {value:.3f}</p>'
    elif prediction.kind in _KINDS:
        inner = _KINDS[prediction.kind](prediction)
    else:
        shown = prediction.scores[:_MOST_LABELS]
        bars = (_bar(label, score, kind="first" if place == 0 else "") for place, (label, score) in enumerate(shown))
        inner = "".join(bars)
        if prediction.kind == "independent":
            inner += '<p class="quiet">Each label by itself: they do not add up to 100%.</p>'
        if len(prediction.scores) > len(shown):
            inner += f'<p class="quiet">and {len(prediction.scores) - len(shown)} labels with less</p>'
    return f'<section class="card {kind}"><h2>{escape(title)}</h2>{inner}</section>'


def _marked(pieces: Iterable[Piece], shown: Callable[[Piece], str]) -> str:
    """A text with its marks; `shown` says what stands behind a marked stretch."""
    parts = []
    for piece in pieces:
        if piece.label is None:
            parts.append(escape(piece.text))
            continue
        # By the label alone, so that it has one colour in both answers.
        colour = _MARKS[zlib.crc32(piece.label.encode("utf-8")) % len(_MARKS)]
        said = f"<small>{escape(shown(piece))}</small>" if shown(piece) else ""
        parts.append(f'<mark style="--mark:{colour}">{escape(piece.text)}{said}</mark>')
    return f'<div class="marked" tabindex="0">{"".join(parts)}</div>'


def _tags(prediction: Prediction) -> str:
    inner = _marked(prediction.pieces, lambda piece: f"{piece.label} {piece.score:.0%}")
    if not any(piece.label for piece in prediction.pieces):
        inner += '<p class="quiet">No word has a tag.</p>'
    return inner


def _answer(prediction: Prediction) -> str:
    text = escape(prediction.text or "")
    inner = f'<p class="said"><strong>{text}</strong></p>' if text else '<p class="said">No answer in the context.</p>'
    inner += _marked(prediction.pieces, lambda piece: "")
    if prediction.scores:
        title = "How likely" if text else "What came nearest"
        inner += f"<h3>{title}</h3>" + "".join(_bar(answer, share) for answer, share in prediction.scores)
    return inner


def _masks(prediction: Prediction) -> str:
    several = len(prediction.masks) > 1
    inner = _marked(prediction.pieces, lambda piece: piece.label if several else "")
    for number, words in enumerate(prediction.masks, start=1):
        inner += f"<h3>Mask {number}</h3>" * several
        inner += "".join(
            _bar(word, share, kind="first" if not place else "") for place, (word, share) in enumerate(words)
        )
    return inner


_KINDS: dict[str, Callable[[Prediction], str]] = {"tags": _tags, "answer": _answer, "words": _masks}


def _drawing(svg: str) -> str:
    # As a picture, in which no script runs.
    picture = base64.b64encode(svg.encode("utf-8")).decode("ascii")
    return (
        '<section class="card molecule"><h2>The molecule</h2>'
        f'<img alt="the molecule that was asked" src="data:image/svg+xml;base64,{picture}"></section>'
    )


def _reading(reading: Reading) -> str:
    parts = [f"<h2>{escape(reading.title)}</h2>", f'<p class="quiet">{_words(reading.about)}</p>']
    if reading.source:
        parts.append(f'<p class="quiet">{_words(reading.source)}</p>')
    if reading.groups:
        parts += [_bar(name, share) for name, share in _largest(reading.groups.items())]
        if reading.places:
            parts.append('<p class="quiet">One by one:</p>')
    parts += map(_place, reading.places)
    if reading.others:
        parts.append(f'<p class="quiet">{reading.others} others together: {reading.rest:.1%}</p>')
    return f'<section class="card reading">{"".join(parts)}</section>'


def _place(place: Place) -> str:
    owner = f' <span class="owner">{escape(place.owner)}</span>' if place.owner else ""
    items = [escape(content) for content in place.contents]
    if place.readers:
        items.append(
            "read by: " + escape(", ".join(f"{name} {share:.0%}" for name, share in _largest(place.readers.items(), 4)))
        )
    lives = f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>" if items else ""
    return f'<div class="place">{_bar(place.name, place.share, extra=owner)}{lives}</div>'


def _largest(pairs: Iterable[tuple[str, float]], most: int = _MOST_LABELS) -> list[tuple[str, float]]:
    return sorted(pairs, key=lambda pair: -pair[1])[:most]


def _patches(patches: PatchMap) -> str:
    from PIL import Image

    from hf_memaug.reporting.expert_panels import EXPERT_COLOURS, tinted

    tinted_image = tinted(patches.image, patches.experts, patches.patch)
    buffer = io.BytesIO()
    Image.fromarray((tinted_image * 255).round().astype("uint8")).save(buffer, format="PNG")
    rows, columns = patches.experts.shape
    height, width = patches.image.shape[:2]
    # Where there are more experts than colours, numbers tell them apart.
    numbers = patches.num_experts > len(EXPERT_COLOURS)
    cells = "".join(
        f'<i title="expert {expert}">{expert if numbers else ""}</i>' for line in patches.experts for expert in line
    )
    over = (
        f"width:{100 * columns * patches.patch[1] / width:.3f}%;height:{100 * rows * patches.patch[0] / height:.3f}%;"
        f"grid-template-columns:repeat({columns},1fr);grid-template-rows:repeat({rows},1fr)"
    )
    there = sorted(set(patches.experts.ravel().tolist()))
    keys = "".join(
        f'<span class="key"><i style="background:{EXPERT_COLOURS[one % len(EXPERT_COLOURS)]}"></i>expert {one}</span>'
        for one in there
    )
    picture = base64.b64encode(buffer.getvalue()).decode("ascii")
    return (
        f'<section class="card"><h2>The expert of each patch, {escape(patches.title)}</h2>'
        f'<p class="quiet">The one that says most of it, on the picture as the model sees it.</p>'
        f'<div class="map"><img alt="experts over patches" src="data:image/png;base64,{picture}">'
        f'<div class="cells" style="{over}">{cells}</div></div>{keys}</section>'
    )
