# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Sections about what is inside trained models: features, their distance, memory slots, experts."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np

from hf_memaug.evaluation.scores import a_distance
from hf_memaug.evaluation.statistics import summarise
from hf_memaug.reporting import plots
from hf_memaug.reporting.html import charts
from hf_memaug.reporting.html.markup import Cell, Html, Section, details, joined, number, paragraph, table, tag
from hf_memaug.runs.results import LAYERS, FinishedRun, Job

MOST_VIEWS, MOST_POINTS, MOST_SLOTS, MOST_PICTURES = 20, 400, 64, 6
_LEAST_ROWS, _MOST_ROWS = 5, 1000
_PICTURE_WIDTH = 1400
_OF_SLOTS = (
    "How the reads of each domain are spread over the slots: the stronger, the more. Slots that only one domain reads "
    "hold what is its own; slots that all read hold what they share."
)
_OF_LAYERS = "Of G-MAP, a slot is a layer of the general encoder, and a read is its weight in the gate at a token."
_OF_WORDS = (
    "By word: the same at the words of each type of entity, or of question, context and answer, over all domains."
)


def features_section(run: FinishedRun) -> Section:
    """Rows in two dimensions, drawn by the page's script: by PCA or t-SNE, by domain, label or whether it is right."""
    title, views, contents = "Features", [], {}
    for job in _one_of_each(run, lambda one: one.folder and run.features(one) is not None):
        if len(views) == MOST_VIEWS:
            break
        arrays = _some_rows(run.features(job), MOST_POINTS)
        if len(arrays["features"]) >= _LEAST_ROWS and arrays["features"].shape[1] >= 2:
            views.append(_view(job, arrays, contents))
    if not views:
        missing = "No features were kept: no job has a features.npz."
        return Section("features", title, missing=missing)
    kinds = {kind for kind, _ in contents}
    shown = {"text": "its text", "picture": "its picture"}.get(next(iter(kinds), ""), "what it is")
    pick = [tag("option", view["title"], value=place) for place, view in enumerate(views)]
    controls = [
        tag("label", "Model ", tag("select", pick, id="features-view")),
        _choice("features-by", "Map", {"pca": "PCA", "tsne": "t-SNE"}),
        _choice("features-colour", "Colour", {"domain": "domain", "label": "label", "right": "right or wrong"}),
    ]
    drawn = tag("svg", id="features-map", class_="chart", viewBox="0 0 680 460", tabindex="0", role="img")
    body = [
        paragraph(
            "Each mark is a row, at the features that the classifier reads. Point at one, or step through them with "
            f"the arrow keys, to see {shown}. t-SNE keeps neighbours together; distances between groups mean little.",
            class_="note",
        ),
        tag("div", controls, class_="controls"),
        tag("div", drawn, class_="map"),
        tag("p", id="features-shares", class_="note"),
        tag("ul", id="features-legend", class_="legend"),
        tag("noscript", paragraph("The map is drawn by a script, which this page was not allowed to run.")),
    ]
    return Section("features", title, joined(body), data={"views": views, "contents": [list(one) for one in contents]})


def _view(job: Job, arrays: dict[str, np.ndarray], contents: dict) -> dict:
    """One model's rows. `contents` collects texts and pictures, which several models share."""
    points, shares = plots._principal_components(arrays["features"])
    kind = "picture" if "picture" in arrays else "text"
    numbers = [contents.setdefault((kind, str(one)), len(contents)) for one in arrays.get(kind, ())]
    tables: dict[str, Any] = {"title": job.title, "target": job.target, "shares": [round(float(s), 4) for s in shares]}
    for name in ("domain", "label", "predicted"):
        names, places = np.unique(arrays[name], return_inverse=True)
        tables[name], tables[f"{name}s"] = places.reshape(-1).tolist(), names.tolist()
    maps = {"pca": points, "tsne": _scaled(plots._neighbour_embedding(arrays["features"], seed=0))}
    return {**tables, "content": numbers, "maps": {name: np.round(one, 4).tolist() for name, one in maps.items()}}


def _scaled(points: np.ndarray) -> np.ndarray:
    low, span = points.min(axis=0), np.ptp(points, axis=0)
    return (points - low) / np.where(span > 0, span, 1.0)


def _choice(name: str, title: str, options: dict[str, str]) -> Html:
    buttons = []
    for place, (value, text) in enumerate(options.items()):
        field = tag("input", type="radio", name=name, value=value, checked=place == 0)
        buttons.append(tag("label", field, tag("span", text)))
    return tag("fieldset", tag("legend", title), buttons, class_="choice")


def distance_section(run: FinishedRun) -> Section:
    """A-distance between the features of the target and of the sources (MIL, Figures 4 and 6)."""
    title = "A-distance"
    found: dict[str, dict[str, list[float]]] = {}
    for job in run.selected():
        arrays = run.features(job) if job.target is not None else None
        if arrays is None:
            continue
        arrays = _some_rows(arrays, _MOST_ROWS)
        is_target = arrays["domain"] == job.target
        # One row to train on and one to test on, of each.
        if min(is_target.sum(), (~is_target).sum()) >= 2:
            distance = a_distance(arrays["features"][~is_target], arrays["features"][is_target])
            found.setdefault(job.target, {}).setdefault(job.method, []).append(distance)
    if not found:
        missing = "No A-distance: it needs features of a domain that was left out, beside those of its sources."
        return Section("distance", title, missing=missing)
    drawn = []
    for target in sorted(found):
        bars = [_distance_bar(run, method, found[target][method]) for method in run.methods if method in found[target]]
        drawn.append(charts.bar_chart(target, bars, 2.0))
    note = (
        "How well a linear classifier tells the features of the domain left out from those of the domains trained on: "
        "0 not at all, 2 without error. Bar: mean over seeds; line: ± standard deviation."
    )
    return Section("distance", title, joined([paragraph(note, class_="note"), charts.panels(drawn)]))


def _distance_bar(run: FinishedRun, method: str, values: list[float]) -> charts.Interval:
    summary = summarise(values)
    low, high = (None, None) if summary.std is None else (summary.mean - summary.std, summary.mean + summary.std)
    text = number(summary.mean, 2) if summary.std is None else f"{number(summary.mean, 2)} ± {number(summary.std, 2)}"
    tip = f"{method}: {text}; by seed {', '.join(number(value, 2) for value in values)}"
    return charts.Interval(method, run.methods.index(method), summary.mean, low, high, values, text, tip)


def memory_section(run: FinishedRun) -> Section:
    """Who reads which slot."""
    title, drawn, rows, notes = "Memory slots", [], [], [_OF_SLOTS]
    for job in _one_of_each(run, lambda one: (run.memory(one) or {}).get("kind") == "slots"):
        memory = run.memory(job)
        if memory.get("what") == LAYERS:
            notes.append(_OF_LAYERS)
        by_domain = _shares(memory.get("by_domain"))
        if by_domain:
            drawn.append(_slots_panel(job, memory, by_domain))
            rows += _readers(job, memory, by_domain)
        by_word = _shares(memory.get("by_word"))
        if by_word:
            drawn.append(_slots_panel(job, memory, by_word, ", by word"))
            notes.append(_OF_WORDS)
        real = memory.get("real") if isinstance(memory.get("real"), dict) else {}
        of_real, classes = _shares(real.get("by_domain")), real.get("classes")
        if of_real and isinstance(classes, list) and all(len(one) == len(classes) for one in of_real.values()):
            drawn.append(charts.stack_chart(f"{job.title}: real memory, by the class of its rows", of_real, classes))
    if not drawn:
        return Section("memory", title, missing="No memory was recorded: no model here has slots, or no job kept them.")
    body = [paragraph(" ".join(dict.fromkeys(notes)), class_="note"), charts.panels(drawn)]
    if rows:
        headers = ["model", "domain", "slots in use", "most read", "its share", "overlap with the others"]
        shown = table(headers, rows, caption="Reads of the memory by domain")
        said = (
            "Slots in use: the exponential of the reads' entropy. Overlap: what the reads of a domain have in common "
            "with the mean of the others', from 0 to 1."
        )
        body.append(details("Reads in numbers", shown, paragraph(said, class_="note")))
    return Section("memory", title, joined(body))


def _slots_panel(job: Job, memory: dict, by_domain: dict[str, list[float]], of: str = "") -> Html:
    count = len(next(iter(by_domain.values())))
    owners = memory.get("owners")
    owners = owners if isinstance(owners, list) and len(owners) == count else None
    what = memory.get("what") if isinstance(memory.get("what"), str) else "slot"
    first = _first(memory)
    names = [f"{what} {first + place}{f' ({owners[place]})' if owners else ''}" for place in range(count)]
    kept, title = list(range(count)), f"{job.title}{of}"
    if count > MOST_SLOTS:
        means = np.mean(list(by_domain.values()), axis=0)
        kept = sorted(np.argsort(-means, kind="stable")[:MOST_SLOTS].tolist())
        rest = 1 - float(means[kept].sum() / max(means.sum(), 1e-12))
        title = f"{title}: the {MOST_SLOTS} slots most read of {count}; the others take {100 * rest:.0f} %"
    rows = {name: [shares[place] for place in kept] for name, shares in by_domain.items()}
    return charts.strip_chart(title, rows, [names[place] for place in kept])


def _first(memory: dict) -> int:
    """Layers are counted as a configuration counts them, slots as a tensor does."""
    return 1 if memory.get("what") == LAYERS else 0


def _readers(job: Job, memory: dict, by_domain: dict[str, list[float]]) -> list[list]:
    rows = []
    owners = memory.get("owners") if isinstance(memory.get("owners"), list) else None
    for name, shares in by_domain.items():
        values = np.array(shares) / max(sum(shares), 1e-12)
        used = float(np.exp(-(values[values > 0] * np.log(values[values > 0])).sum()))
        others = [np.array(one) / max(sum(one), 1e-12) for other, one in by_domain.items() if other != name]
        overlap = float(np.minimum(values, np.mean(others, axis=0)).sum()) if others else None
        top = int(values.argmax())
        owner = f" ({owners[top]})" if owners and top < len(owners) else ""
        cells = [
            Cell(number(used), used),
            Cell(f"{_first(memory) + top}{owner}", top),
            Cell(f"{100 * values[top]:.1f} %", float(values[top])),
        ]
        rows.append([job.title, name, *cells, Cell(number(overlap, 2), overlap)])
    return rows


def experts_section(run: FinishedRun) -> Section:
    """Which experts read the patches of each domain, and where."""
    title, drawn, pictures, left_out = "Experts over patches", [], [], 0
    for job in _one_of_each(run, lambda one: (run.memory(one) or {}).get("kind") == "experts" or run.patches(one)):
        memory = run.memory(job) or {}
        by_layer = memory.get("by_layer") if isinstance(memory.get("by_layer"), dict) else {}
        layers = {f"{job.title}, layer {layer}": _shares(of_layer) for layer, of_layer in by_layer.items()}
        layers = layers or {job.title: _shares(memory.get("by_domain"))}
        layers[f"{job.title}, by class"] = _shares(memory.get("by_class"))
        for name, shares in layers.items():
            if shares:
                experts = [f"expert {place}" for place in range(len(next(iter(shares.values()))))]
                drawn.append(charts.stack_chart(name, shares, experts))
        for path in run.patches(job):
            left_out += len(pictures) >= MOST_PICTURES
            picture = _picture(run, path, job) if len(pictures) < MOST_PICTURES else None
            pictures += [picture] if picture is not None else []
    if not drawn and not pictures:
        return Section("experts", title)
    body = []
    if drawn:
        note = "The share of patches that each expert was chosen for. Numbers are experts, from 0."
        body += [paragraph(note, class_="note"), charts.panels(drawn)]
    body += pictures
    if left_out:
        body.append(paragraph(f"{left_out} more pictures are in the folders of the jobs.", class_="note"))
    return Section("experts", title, joined(body))


def _picture(run: FinishedRun, path: Path, job: Job) -> Html | None:
    from PIL import Image

    try:
        with Image.open(path) as image:
            image = image.convert("RGB")
            image.thumbnail((_PICTURE_WIDTH, 4 * _PICTURE_WIDTH))
            buffer = io.BytesIO()
            image.save(buffer, format="JPEG", quality=85)
    except Exception as error:  # Pillow's readers raise whatever they come upon in a broken file.
        run._leave_aside(path, error)
        return None
    source = f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
    size = {"width": image.width, "height": image.height}
    shown = tag(
        "img", src=source, alt=f"Images beside themselves, patches in the colours of experts: {job.title}", **size
    )
    box = tag("div", shown, class_="scroll picture", tabindex="0", role="region", aria_label=f"Picture: {job.title}")
    return tag("figure", tag("figcaption", f"{job.title}: {path.stem}"), box)


def _one_of_each(run: FinishedRun, wanted) -> list[Job]:
    """The job of the first seed of each method, backbone and target that has what is wanted."""
    found: dict[tuple, Job] = {}
    for job in run.selected():
        key = (job.method, job.backbone, job.target)
        if key not in found and wanted(job):
            found[key] = job
    return list(found.values())


def _shares(found: Any) -> dict[str, list[float]]:
    """name -> numbers, all of one length; empty where it is anything else."""
    if not isinstance(found, dict) or not found:
        return {}
    rows = {str(name): values for name, values in found.items() if isinstance(values, list) and values}
    whole = all(isinstance(one, (int, float)) and np.isfinite(one) for values in rows.values() for one in values)
    return rows if whole and rows and len({len(values) for values in rows.values()}) == 1 else {}


def _some_rows(arrays: dict[str, np.ndarray], most: int) -> dict[str, np.ndarray]:
    """At most so many, spread over the rows."""
    count = len(arrays["features"])
    if count <= most:
        return arrays
    kept = np.sort(np.random.default_rng(0).permutation(count)[:most])
    return {name: array[kept] for name, array in arrays.items()}
