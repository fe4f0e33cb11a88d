# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""README and the pages of docs/: their code blocks, and where these can run."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]*?) -->\n)?^```(?P<language>\w+)(?: title=\"(?P<title>[^\"\n]+)\")?\n"
    r"(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# Checkpoints that pages name, and the kind of tiny one that stands in for each.
CHECKPOINTS = {
    "FacebookAI/roberta-base": "roberta",
    "allenai/biomed_roberta_base": "roberta",
    "google-bert/bert-base-uncased": "bert",
    "facebook/deit-small-patch16-224": "vit",
    "google/vit-base-patch16-224-in21k": "vit",
}
# What pages say for real encoders, and what tiny ones can do.
SMALLER = {
    "max_length=256": "max_length=64",
    "num_train_epochs=3": "num_train_epochs=1, use_cpu=True",
    "max_steps=600": "max_steps=2, use_cpu=True",
    "episodes=30": "episodes=2, episode_steps=2",
    "    episode_steps=20,\n": "",
    'augment_images=True, eval_strategy="epoch"': 'augment_images=True, eval_strategy="epoch", use_cpu=True',
    "range(5)": "range(3)",
    "depth=12": "depth=2",
    "layer=10": "layer=2",
    '"{text} It was {mask}."': '"{text} it was {mask}"',
    "hidden_size=1024, memory_slots=[1024]": "hidden_size=16, memory_slots=[16]",
}


@dataclass(frozen=True)
class Block:
    """A fenced block; `reason` says why it is not run, `title` the file that it is, where it is one."""

    page: str
    line: int
    code: str
    reason: str | None = None
    title: str | None = None

    def smaller(self) -> str:
        code = self.code
        for written, tiny in SMALLER.items():
            code = code.replace(written, tiny)
        return code


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str = "python") -> list[Block]:
    text = text_of(page)
    return [
        Block(page, text.count("\n", 0, match.start("code")) + 1, match["code"], match["reason"], match["title"])
        for match in _BLOCK.finditer(text)
        if match["language"] == language
    ]


def furnish(folder: Path, backbones: dict[str, str]) -> None:
    """What pages take for granted in the folder where they are run: reviews, images, and checkpoints by their names."""
    from hf_memaug.data import generated_digits, generated_reviews

    rows = generated_reviews(rows_per_domain=12)
    with (folder / "reviews.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "stars", "shop"])
        writer.writerows((row["text"], rows.label_names[row["label"]], row["domain"]) for row in rows)
    domains = {"0": "photo", "15": "cartoon", "30": "sketch"}
    for number, row in enumerate(generated_digits(rows_per_domain=30)):
        if row["label"] < 2 and row["domain"] in domains:
            path = folder / "images" / domains[row["domain"]] / f"digit {row['label']}" / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            row["image"].save(path)
    for name, kind in CHECKPOINTS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).symlink_to(backbones[kind])
