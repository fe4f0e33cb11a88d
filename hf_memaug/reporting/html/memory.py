# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Sections about what is inside trained models: features, A-distance, memory slots, experts."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hf_memaug.evaluation.scores import a_distance
from hf_memaug.reporting import plots
from hf_memaug.reporting.html import charts
from hf_memaug.reporting.html.blocks import Content, Details, Note
from hf_memaug.reporting.html.scores import interval_chart
from hf_memaug.runs.results import LAYERS, Result, Run

MOST_MODELS, MOST_POINTS, MOST_SLOTS = 12, 300, 64
_LEAST_ROWS, _OPEN_MODELS, _MOST_ROWS = 5, 2, 1000


def features_section(run: Run) -> tuple[Content, list[list[str]]]:
    """The section, and what its script shows of each row: the title, and its text or picture."""
    from sklearn.decomposition import PCA

    drawn, contents = [], {}
    for job in _one_of_each(run, lambda one: run.features(one) is not None)[:MOST_MODELS]:
        arrays = _some_rows(run.features(job), MOST_POINTS)
        features = arrays["features"]
        # Rows that are all equal have no components.
        if len(features) < _LEAST_ROWS or features.shape[1] < 2 or not np.ptp(features, axis=0).any():
            continue
        kind = "picture" if "picture" in arrays else "text"
        columns = (arrays.get(name, arrays["label"]) for name in ("domain", "label", "predicted", kind))
        rows = []
        for domain, label, predicted, content in zip(*columns, strict=True):
            said = f"{domain} · label: {label or '–'} · predicted: {predicted or '–'}"
            rows.append(contents.setdefault((said, kind, content), len(contents)))
        pca = PCA(2).fit(features)
        shown = f"PCA ({pca.explained_variance_ratio_.sum():.0%} of the variance)"
        maps = {shown: pca.transform(features), "t-SNE": plots.t_sne(features)}
        label = f"Features of {job.title}"
        drawn.append((job, charts.chart(label, charts.feature_maps, maps, arrays, rows, job.target)))
    if not drawn:
        return "No features were kept: no job has a features.npz.", []
    said = (
        "Each mark is a row, at the features that the classifier reads. Point at one to see what it is. t-SNE keeps "
        "neighbours together; distances between groups mean little."
    )
    blocks = [Note(said)]
    blocks += [Details(job.title, [chart], place < _OPEN_MODELS) for place, (job, chart) in enumerate(drawn)]
    return blocks, [list(map(str, one)) for one in contents]


def distance_section(run: Run) -> Content:
    """A-distance between the features of the target and of the sources (MIL, Figures 4 and 6)."""
    found: dict[str, dict[str, list[float]]] = {}
    for job in run.selected():
        arrays = run.features(job) if job.target is not None else None
        if arrays is None:
            continue
        arrays = _some_rows(arrays, _MOST_ROWS)
        is_target = arrays["domain"] == job.target
        # Of each at least one row to train the classifier on, and one to test it on.
        if min(is_target.sum(), (~is_target).sum()) >= 2:
            distance = a_distance(arrays["features"][~is_target], arrays["features"][is_target])
            found.setdefault(job.method, {}).setdefault(job.target, []).append(distance)
    if not found:
        return "No A-distance: it needs features of a domain that was left out, beside those of its sources."
    said = (
        "How well a linear classifier tells the features of the domain left out from those of the domains trained on: "
        "0 not at all, 2 without error. Dot: mean over seeds; line: its 95 % confidence interval."
    )
    return [Note(said), interval_chart("A-distance", run.methods, found, 0.0, 2.0, digits=2)]


def memory_section(run: Run) -> Content:
    """Which domain reads which slot."""
    strips, stacks = {}, {}
    for job in _one_of_each(run, lambda one: (run.memory(one) or {}).get("kind") == "slots"):
        memory = run.memory(job)
        if shares := memory.get("by_domain"):
            # Layers are counted from 1, as in a configuration of G-MAP; slots from 0.
            is_layer = memory.get("what") == LAYERS
            title = f"{job.title}: weights of the general encoder's layers" if is_layer else job.title
            panel, values, slots = _most_read(title, np.array(list(shares.values())))
            strips[panel] = (list(shares), values, [slot + is_layer for slot in slots])
        if real := memory.get("real"):
            stacks.setdefault(tuple(real["classes"]), {})[job.title] = real["by_domain"]
    if not strips and not stacks:
        return "No memory was recorded: no model has slots, or no job kept their reads."
    said = (
        "How the reads of each domain are spread over the slots: the darker, the more. Slots that one domain reads "
        "hold what is its own; slots that all read hold what they share."
    )
    blocks: list[Any] = [Note(said)]
    if strips:
        blocks.append(charts.chart("Reads of the memory slots", charts.strip_panels, strips))
    for classes, panels in stacks.items():
        blocks.append(Note("Reads of the real memory, by the class of its rows:"))
        blocks.append(charts.chart(f"Reads of the real memory {len(blocks)}", charts.stack_panels, panels, classes))
    return blocks


def _most_read(title: str, shares: np.ndarray) -> tuple[str, np.ndarray, list[int]]:
    means = shares.mean(axis=0)
    kept = np.sort(np.argsort(-means, kind="stable")[:MOST_SLOTS])
    if len(kept) < len(means):
        rest = 1 - means[kept].sum() / max(means.sum(), 1e-12)
        title = f"{title}: the {MOST_SLOTS} slots most read of {len(means)}; the others take {rest:.0%}"
    return title, shares[:, kept], kept.tolist()


def experts_section(run: Run) -> Content:
    """Which experts read the patches of each domain."""
    panels = {}
    for job in _one_of_each(run, lambda one: (run.memory(one) or {}).get("kind") == "experts"):
        memory = run.memory(job) or {}
        panels |= {f"{job.title}, layer {layer}": shares for layer, shares in memory.get("by_layer", {}).items()}
        panels |= {f"{job.title}, by class": memory["by_class"]} if memory.get("by_class") else {}
    if not panels:
        return []
    most = max(len(values) for shares in panels.values() for values in shares.values())
    experts = [f"expert {place}" for place in range(most)]
    chart = charts.chart("Shares of the experts", charts.stack_panels, panels, experts)
    return [Note("The share of patches that each expert was chosen for."), chart]


def _one_of_each(run: Run, wanted: Callable[[Result], Any]) -> list[Result]:
    """The job of the first seed of each method, backbone and target that has what is wanted."""
    found: dict[tuple, Result] = {}
    for job in run.selected():
        key = (job.method, job.backbone, job.target)
        if key not in found and wanted(job):
            found[key] = job
    return list(found.values())


def _some_rows(arrays: dict[str, np.ndarray], most: int) -> dict[str, np.ndarray]:
    count = len(arrays["features"])
    kept = np.sort(np.random.default_rng(0).permutation(count)[:most])
    return {name: array[kept] for name, array in arrays.items()}
