# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Folders as runs leave them, made by code: texts, images, and domain after domain."""

import base64
import io
import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

from hf_memaug.evaluation.continual import continual_scores
from hf_memaug.runs.results import read_run

TEXT_DOMAINS, IMAGE_DOMAINS = ["books", "dvd", "kitchen"], ["art", "photo", "sketch"]
# Whoever shows a text of a run must show this one as a text.
NASTY = "<script>window.broken = true</script> & \"quotes\" </script><img src=x onerror='window.broken = true'>"
VERSIONS = {"python": "3.11.7", "hf_memaug": "0.1.0", "torch": "2.13.0", "transformers": "5.22.2"}


def text_run(folder: Path, methods=("erm", "mil", "hma"), seeds=(0, 1, 2, 3, 4), features=True) -> Path:
    """Three methods, each domain left out in turn; `mil` is better than `erm` for sure, `hma` is slower."""
    gains = {"erm": 0.0, "mil": 1.6, "hma": 0.2}
    levels = {"books": 84.0, "dvd": 88.5, "kitchen": 79.0}
    generator = np.random.default_rng(0)
    lines = []
    for method in methods:
        for target in TEXT_DOMAINS:
            for seed in seeds:
                # Seeds move all methods alike, which is what pairs are for.
                luck = np.random.default_rng(seed + 10).normal(0, 0.8)
                score = levels[target] + gains[method] + luck + generator.normal(0, 0.25)
                settings = {"learning_rate": 2e-5 if seed % 2 else 5e-5, "episodes": 30 if method == "mil" else 0}
                scores = {name: _both(levels[name] + 5 + generator.normal(0, 0.3)) for name in TEXT_DOMAINS}
                scores[target] = _both(score)
                lines.append(_line(method, target, seed, scores, settings, validation=90 + luck))
                job = folder / "jobs" / lines[-1]["name"]
                _write_log(job, generator, {"erm": 0.9, "mil": 0.75, "hma": 0.8}[method])
                if features and seed < 2 and target == TEXT_DOMAINS[0]:
                    _write_features(job, TEXT_DOMAINS, target, 0.3 if method == "mil" else 1.5, generator)
                if method != "erm" and seed == 0:
                    _write_slots(job, TEXT_DOMAINS, 100 if method == "mil" else 12, method == "hma", generator)
    data = {"source": "reviews.csv", "hash": "9f2c4e11", "overlap": _overlap()}
    domains = {name: _rows({"negative": 480, "positive": 520}) for name in TEXT_DOMAINS}
    return _write(folder, "text", list(methods), TEXT_DOMAINS, list(seeds), lines, {**data, "domains": domains})


def image_run(folder: Path) -> Path:
    """A plain encoder and GMoE, with pictures and experts."""
    generator, lines = np.random.default_rng(1), []
    for method in ("vit", "gmoe"):
        for target in IMAGE_DOMAINS[:2]:
            for seed in range(3):
                score = 70 + 2 * (method == "gmoe") + generator.normal(0, 1)
                scores = {target: {"accuracy": score}}
                lines.append(_line(method, target, seed, scores, {"learning_rate": 5e-5}, backbone="deit-small"))
                job = folder / "jobs" / lines[-1]["name"]
                _write_log(job, generator, 1.2)
                if seed == 0 and target == IMAGE_DOMAINS[0]:
                    _write_features(job, IMAGE_DOMAINS, target, 1.0, generator, pictures=True)
                if method == "gmoe" and seed == 0:
                    shares = {name: generator.dirichlet(np.ones(6)).tolist() for name in IMAGE_DOMAINS}
                    by_layer = {"8": {name: one[::-1] for name, one in shares.items()}, "10": shares}
                    memory = {"kind": "experts", "by_domain": shares, "by_layer": by_layer}
                    (job / "memory.json").write_text(json.dumps({**memory, "by_class": {"dog": shares["art"]}}))
    data = {"source": "pictures/", "hash": "77aa", "overlap": _overlap({"domains": ["art", "photo"], "rows": 3})}
    domains = {name: _rows({"dog": 100, "horse": 80, "person": 60}) for name in IMAGE_DOMAINS}
    return _write(folder, "image", ["vit", "gmoe"], IMAGE_DOMAINS[:2], [0, 1, 2], lines, {**data, "domains": domains})


def continual_run(folder: Path) -> Path:
    """Two strategies through four domains."""
    generator, lines, domains = np.random.default_rng(2), [], ["fiction", "news", "speech", "travel"]
    for method, loss in (("f", 0.06), ("f+m+v", 0.01)):
        for seed in range(3):
            matrix = np.full((4, 4), 0.45) + generator.normal(0, 0.01, (4, 4))
            for row in range(4):
                matrix[row, : row + 1] = 0.72 - loss * np.arange(row, -1, -1) + generator.normal(0, 0.005, row + 1)
            figures = continual_scores(matrix, [0.33] * 4)
            scores = {name: {"accuracy": 100 * value} for name, value in zip(domains, matrix[-1], strict=True)}
            line = _line(method, None, seed, scores, {"memory_slots": 100}, backbone="memory_rnn")
            points = {name: 100 * value for name, value in figures.items()}
            rows = {"domains": domains, "trained_on": domains, "rows": (100 * matrix).tolist()}
            lines.append({**line, "matrix": {**rows, **points}})
            _write_log(folder / "jobs" / line["name"], generator, 1.0)
    counts = {name: _rows({"no": 500, "yes": 500}) for name in domains}
    data = {"source": "mnli", "domains": counts, "overlap": _overlap(), "hash": "00ff"}
    return _write(folder, "continual", ["f", "f+m+v"], [], [0, 1, 2], lines, data)


def _overlap(*pairs: dict) -> dict:
    return {"between_domains": list(pairs), "repeated_rows": 0}


def _both(accuracy: float) -> dict[str, float]:
    return {"accuracy": accuracy, "macro_f1": accuracy - 1.3}


def _rows(labels: dict[str, int]) -> dict:
    total = sum(labels.values())
    return {"train": int(0.8 * total), "dev": int(0.1 * total), "test": total - int(0.9 * total), "labels": labels}


def _line(method, target, seed, scores, settings, validation=90.0, backbone="roberta-base") -> dict:
    name = f"{method.replace('+', '_')}-{target or 'all'}-{seed}"
    cost = {"erm": 1.0, "mil": 2.4, "hma": 1.3}.get(method, 1.1)
    return {
        "job": {"method": method, "target": target, "seed": seed, "backbone": backbone},
        "name": name,
        "validation": validation,
        "scores": scores,
        "settings": settings,
        "seconds": 61.0 * cost + seed,
        "peak_memory_bytes": int(2.1e9 * cost),
        "parameters": int(125e6 * (1 + cost / 100)),
        "trainable": int(125e6),
        "checkpoint": f"jobs/{name}/checkpoint" if seed == 0 else None,
    }


def _write(folder: Path, task, methods, targets, seeds, lines, data) -> Path:
    information = {
        "command": f"hf-memaug compare --data {data['source']} --methods {','.join(methods)} --seeds {len(seeds)}",
        **{"task": task, "methods": methods, "targets": targets, "seeds": seeds, "metric": "accuracy"},
        **{"versions": VERSIONS, "device": "NVIDIA H100", "git": {"commit": "3ee9ab9", "dirty": False}},
        **{"begun": "2026-11-15T20:00:00", "finished": "2026-11-15T21:07:00"},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(information))
    (folder / "data.json").write_text(json.dumps(data))
    (folder / "recipe.yaml").write_text(
        f"data: {data['source']}\nmethods: [{', '.join(methods)}]\nseeds: {len(seeds)}\n"
    )
    (folder / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def _write_log(job: Path, generator, start: float) -> None:
    job.mkdir(parents=True)
    entries = []
    for step in range(10, 210, 10):
        loss = start * np.exp(-step / 80) + 0.1 + generator.normal(0, 0.02)
        entries.append({"step": step, "epoch": step / 70, "loss": abs(loss), "learning_rate": 2e-5 * (1 - step / 210)})
        if step % 50 == 0:
            scores = {"eval_loss": 0.3 + abs(loss) / 2, "eval_accuracy": 0.9 - abs(loss) / 4, "eval_runtime": 1.5}
            entries.append({"step": step, "epoch": step / 70, **scores})
    (job / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def _picture(generator, side: int):
    from PIL import Image

    return Image.fromarray(generator.integers(0, 256, (4, 6, 3), dtype=np.uint8)).resize((side, side * 2 // 3))


def _write_features(job: Path, domains, target, shift, generator, pictures=False, each=30) -> None:
    labels = ["dog", "horse", "person"] if pictures else ["negative", "positive"]
    features, columns = [], {"domain": [], "label": [], "predicted": [], "picture" if pictures else "text": []}
    for place, domain in enumerate(domains):
        for row in range(each):
            label = row % len(labels)
            mean = np.zeros(16)
            mean[0], mean[1], mean[2] = 4 * label, place, shift * (domain == target)
            features.append(mean + generator.normal(0, 0.8, 16))
            wrong = row % 7 == 0
            columns["domain"].append(domain)
            columns["label"].append(labels[label])
            columns["predicted"].append(labels[(label + wrong) % len(labels)])
            if pictures:
                buffer = io.BytesIO()
                _picture(generator, 48).save(buffer, format="JPEG")
                columns["picture"].append(base64.b64encode(buffer.getvalue()).decode())
            else:
                text = f"Review {row} of a thing from {domain}: I would {'' if label else 'not '}buy it again."
                columns["text"].append(NASTY if (place, row) == (0, 0) else text)
    arrays = {name: np.array(values) for name, values in columns.items()}
    np.savez(job / "features.npz", features=np.array(features, dtype=np.float16), **arrays)


def _write_slots(job: Path, domains, slots: int, owned: bool, generator) -> None:
    by_domain = {}
    for place, name in enumerate(domains):
        weights = generator.gamma(0.4, size=slots)
        weights[place :: len(domains)] *= 4
        by_domain[name] = (weights / weights.sum()).tolist()
    memory = {"kind": "slots", "by_domain": by_domain}
    if owned:
        memory |= {"what": "synthetic slot", "owners": ["negative"] * (slots // 2) + ["positive"] * (slots // 2)}
        real = {name: [0.5 + 0.1 * place, 0.5 - 0.1 * place] for place, name in enumerate(domains)}
        memory["real"] = {"classes": ["negative", "positive"], "by_domain": real}
    (job / "memory.json").write_text(json.dumps(memory))


VOID = ("br", "img", "input", "meta")


class Page(HTMLParser):
    """A report: texts of its sections, rows of tables and addresses. Fails on tags that do not match."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.sections, self.links, self.rows, self.addresses = [], {}, [], [], []
        self.feed(text)
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, name, attributes):
        attributes = dict(attributes)
        if name not in VOID:
            self.open.append((name, attributes))
        if name == "section":
            self.sections[attributes["id"]] = ""
        if name == "tr":
            self.rows.append([])
        if name in ("td", "th") and self.rows:
            self.rows[-1].append("")
        if name == "a":
            self.links.append(attributes["href"])
        self.addresses += [attributes[key] for key in ("src", "href", "action", "srcset") if key in attributes]

    def handle_endtag(self, name):
        assert self.open.pop()[0] == name

    def handle_data(self, data):
        for name, attributes in self.open:
            if name == "section":
                self.sections[attributes["id"]] += data
        if any(name in ("td", "th") for name, _ in self.open):
            self.rows[-1][-1] += data


def edited(folder, edit):
    """The run after `edit` changed its list of jobs."""
    path = folder / "runs.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines = edit(lines) or lines
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_run(folder)


def small_run(path, **options):
    return text_run(path / "run", **{"features": False, "methods": ("erm", "mil"), "seeds": (0, 1), **options})
