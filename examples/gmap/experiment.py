# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""One trained model of the G-MAP tables: a data set, a method, a seed; and the data and encoders it needs."""

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Data(NamedTuple):
    """A data set, the corpus of its domain, and how it is trained on: the paper's Tables 9 and 10, scaled down."""

    domain: str
    epochs: int
    length: int
    task: str = "classification"
    metric: str | None = None


DATA = {
    "chemprot": Data("biomed", 8, 256, metric="micro_f1"),
    "acl_arc": Data("cs", 12, 192),
    "scierc": Data("cs", 10, 192),
    "csabstruct": Data("cs", 4, 160),
    "hyperpartisan": Data("news", 12, 256),
    "agnews": Data("news", 5, 192),
    "imdb": Data("reviews", 4, 256),
    "ncbi_disease": Data("biomed", 10, 128, "tagging"),
    "covidqa": Data("biomed", 10, 384, "answering"),
    "subjqa": Data("reviews", 4, 384, "answering"),
}
# The sets of "what counts", of Table 4 and of Table 5.
CHOSEN = ["chemprot", "acl_arc", "scierc"]

GMAP = {"strategy": "chunk_gated"}
# A method: the encoder that learns, and what it reads of the general one.
METHODS = {
    "fine-tuning": ("general", None),
    "dapt": ("dapt", None),
    "tapt": ("tapt", None),
    "dapt+tapt": ("dapt+tapt", None),
    "logits-fusion": ("dapt", "logits"),
    "gmap-single": ("dapt", {"strategy": "single"}),
    "gmap-multiple": ("dapt", {"strategy": "multiple"}),
    "gmap-gated": ("dapt", {"strategy": "gated"}),
    "gmap": ("dapt", GMAP),
    "gmap*": ("dapt+tapt", GMAP),
    "gmap-unfrozen": ("dapt", {**GMAP, "freeze_general": False}),
    "gmap-cross-attention": ("dapt", {**GMAP, "fusion": "cross_attention"}),
    "gmap-gate-attention": ("dapt", {**GMAP, "fusion": "gate_attention"}),
    # Section 4.4: the domain's encoder was trained further, without and with the memory to read.
    "dapt-further": ("further", None),
    "gmap-pretrained": ("gmap", GMAP),
}


@dataclass(frozen=True)
class Job:
    data: str
    method: str
    backbone: str
    seed: int
    learning_rate: float = 1e-4
    epochs: int = 10
    batch_size: int = 32
    warmup: float = 0.06
    memory_layers: tuple[int, ...] | None = None


def encoder_folder(encoders: str, kind: str, data: str) -> str:
    """`general`, `dapt-biomed`, `tapt-chemprot` or `dapt+tapt-chemprot`, as examples/gmap/encoders.py names them."""
    if kind == "general":
        return str(Path(encoders) / kind)
    return str(Path(encoders) / f"{kind}-{data if 'tapt' in kind else DATA[data].domain}")


def encoders_digest(encoders: str, job: Job) -> str | None:
    """Tells the encoders of a job from others that lay in folders of the same names; None where there are none."""
    names = ("general", METHODS[job.method][0])
    records = [Path(encoder_folder(encoders, name, job.data)) / "pretraining.json" for name in names]
    if not all(record.is_file() for record in records):
        return None
    return hashlib.sha256(b"".join(record.read_bytes() for record in records)).hexdigest()[:12]


def logits_file(folder: Path, job: Job) -> Path:
    return folder / f"{job.backbone}_{job.data}_{job.method}_{job.learning_rate:g}_{job.epochs}_{job.seed}.npy"


def read_rows(root: str, data: str, split: str) -> list[dict]:
    """Of one file, or of one for each domain (subjqa), all together."""
    from hf_memaug.data.readers import json_rows

    folder = Path(root) / data
    files = sorted([*folder.glob(f"{split}.jsonl.gz"), *folder.glob(f"*.{split}.jsonl.gz")])
    if not files:
        raise SystemExit(f"{folder} has no file `{split}.jsonl.gz`. Say where the sets are with --data.")
    return [row for file in files for row in json_rows(file)]


@functools.lru_cache(maxsize=16)
def prepared(root: str, data: str, tokenizer_folder: str):
    """The task, with tokenized `train`, `dev` and `test` rows."""
    from tasks import TASKS
    from transformers import AutoTokenizer

    from hf_memaug.data.spans import reading_words

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    if DATA[data].task == "tagging":
        tokenizer = reading_words(tokenizer)
    rows = {split: read_rows(root, data, split) for split in ("train", "dev", "test")}
    kind = DATA[data]
    metric = {"metric": kind.metric} if kind.metric else {}
    return TASKS[kind.task](rows, tokenizer, kind.length, **metric)


@functools.lru_cache(maxsize=4)
def loaded(folder: str):
    from transformers import AutoModel

    return AutoModel.from_pretrained(folder, dtype="float32", add_pooling_layer=False)


def build_model(job: Job, encoders: str, task):
    """The seed alone decides what is fresh in it: the head, and the gates."""
    from fusion import LogitsFusion
    from transformers import set_seed

    kind, reads = METHODS[job.method]
    folder = encoder_folder(encoders, kind, job.data)
    set_seed(job.seed)
    if reads is None or reads == "logits":
        if job.memory_layers:
            raise ValueError(f"`{job.method}` reads no memory, so that `memory_layers` says nothing: leave it out.")
        model = LogitsFusion if reads == "logits" else task.plain
        return model.from_pretrained(folder, dtype="float32", num_labels=task.num_labels)
    # The same head as the plain model's: of two layers, where it classifies a text.
    head = {"classifier_layers": 2} if task.name == "classification" else {}
    if kind == "gmap":
        if job.memory_layers:
            raise ValueError(f"`{job.method}` has learned to read with its layers already: leave `memory_layers` out.")
        # With the gates and the general encoder it was pre-trained with.
        return task.gmap.from_pretrained(folder, dtype="float32", num_labels=task.num_labels, **head)
    return task.gmap.from_general_and_domain(
        loaded(encoder_folder(encoders, "general", job.data)),
        loaded(folder),
        num_labels=task.num_labels,
        memory_layers=list(job.memory_layers) if job.memory_layers else None,
        **head,
        **reads,
    )
