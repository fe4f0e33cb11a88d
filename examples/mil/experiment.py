# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""One trained model of the MIL tables: a method, a target domain, a backbone, a seed."""

import contextlib
import dataclasses
import functools
import io
import math
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

# Rows of the paper's Tables 1 to 3, and how each is trained.
METHODS = {
    "erm": "the plain encoder",
    "erm-fewer": "the plain encoder, in no more steps than MIL's classifier has after meta-training",
    "+memory": "a memory learned by the task loss alone",
    "dann": "invariance learning without memory",
    "coral": "Deep CORAL",
    "irm": "IRM",
    "mil": "a memory learned across domains, then held fixed",
    "mil-fresh": "the memory as it was initialised, held fixed (what meta-training adds to)",
    "+ffn": "one more feed-forward layer, as many parameters as the memory",
    "+self-attention+ffn": "one more Transformer layer, as many parameters as the memory",
}
# Leave-one-domain-out data, and the data of the cross-dataset columns, with the rows that are scored of each.
CROSS = {"amazon": {"imdb": 2000, "sst2": None}, "mnli5": {"snli": None, "sick": None}}
# `g(x)`, `m(g(x))` and `g_m(x)`.
FEATURES = ("features", "memory_features", "augmented_features")
PROMPTS = {
    "amazon": ("{text} It was {mask}.", {"negative": "bad", "positive": "good"}),
    "mnli5": ("{text} ? {mask} , {text_pair}", {"entailment": "yes", "neutral": "maybe", "contradiction": "no"}),
}
PROMPTS["vader4"] = PROMPTS["amazon"]
# Three rows in a hundred of mnli5 and vader4 are longer, and 28 of the reviews.
MAX_LENGTH = {"amazon": 192, "mnli5": 80, "vader4": 48}
# `movie` of vader4 and sst2 are largely the same sentences, and sst2 is a target of the tables.
LEFT_OUT = {"vader4": ("movie",)}


@dataclass(frozen=True)
class Job:
    """
    What is trained. The settings are those of the trainers. A method is given `steps` of encoder and head and, where it
    has no meta-training, as many on top as that would take; only `mil-fresh` and `erm-fewer` have no more than `mil`
    has after it. All are evaluated `evaluations` times, so that all choose among as many checkpoints.
    """

    data: str
    target: str
    method: str
    backbone: str
    seed: int
    head: str = "fine-tuning"
    steps: int = 600
    evaluations: int = 6
    learning_rate: float = 5e-5
    batch_size: int = 32
    warmup: float = 0.1
    pooling: str = "cls"
    memory_weight: float = 0.5
    memory_initializer_range: float = 1.0
    memory_key_initializer_range: float | None = None
    memory_slots: int = 1024
    memory_key_size: int = 256
    memory_learning_rate: float = 1e-3
    discriminator_learning_rate: float = 1e-3
    discriminator_hidden_size: int = 256
    episodes: int = 30
    episode_steps: int = 20
    inner_steps: int = 1
    hypergradient: str = "first_order"
    penalty_weight: float | None = None
    train_rows: int | None = None

    @property
    def meta_steps(self) -> int:
        return self.episodes * self.episode_steps * self.inner_steps

    @property
    def task_steps(self) -> int:
        """Steps of the run whose checkpoint is scored."""
        return self.steps if self.method in ("mil", "mil-fresh", "erm-fewer") else self.steps + self.meta_steps

    @property
    def evaluation_steps(self) -> int:
        return math.ceil(self.task_steps / self.evaluations)


@functools.lru_cache(maxsize=8)
def load_data(root: str, name: str, split: str):
    from hf_memaug.data import load_domains

    rows = load_domains(os.path.join(root, name), split=split)
    kept = [row for row, domain in enumerate(rows["domain"]) if domain not in LEFT_OUT.get(name, ())]
    return rows.select(kept)


@functools.lru_cache(maxsize=32)
def load_split(root: str, name: str, target: str, train_rows: int | None = None):
    """(train, dev, {target: test}) for a domain of the data, or for all its domains and the cross-dataset targets."""
    from hf_memaug.data import leave_one_domain_out

    train, held_out = load_data(root, name, "train"), load_data(root, name, "test")
    if target != "cross":
        split = leave_one_domain_out(train, target, test=held_out, on_overlap="drop")
        train, dev, tests = split.train, split.dev, {target: split.test}
    else:
        dev, tests = held_out, {}
        for other, rows in CROSS[name].items():
            test = load_data(root, other, "test")
            test = test[:rows] if rows else test
            tests[other] = test
        # Movie reviews are everywhere: no row of dev or train may be among the test rows, nor of train in dev.
        for test in tests.values():
            dev, train = _without(dev, test), _without(train, test)
        train = _without(train, dev)
    if train_rows is not None:
        parts = [part.shuffle(0)[:train_rows] for part in train.by_domain().values()]
        train = type(train).concatenate(parts)
    return train, dev, tests


def _without(rows, others):
    from hf_memaug.data.overlap import find_overlap

    shared = {row for row, _ in find_overlap(rows, others)}
    return rows.select(row for row in range(len(rows)) if row not in shared)


@functools.lru_cache(maxsize=64)
def tokenized(root: str, name: str, target: str, train_rows: int | None, backbone: str, prompted: bool):
    from transformers import AutoTokenizer

    from hf_memaug import prompt_tokenizer

    tokenizer = AutoTokenizer.from_pretrained(backbone)
    reader = prompt_tokenizer(tokenizer, PROMPTS[name][0]) if prompted else tokenizer
    train, dev, tests = load_split(root, name, target, train_rows)
    length = MAX_LENGTH[name]
    rows = [part.tokenize(reader, length) for part in (train, dev)]
    return tokenizer, *rows, {key: part.tokenize(reader, length) for key, part in tests.items()}


def build_model(job: Job, backbone: str, labels: list[str]):
    """The model of a method; the seed decides its head and its memory."""
    import torch
    from transformers import AutoConfig, set_seed

    from hf_memaug.registry import family_on

    set_seed(job.seed)
    family = family_on(AutoConfig.from_pretrained(backbone).model_type)
    names = {"id2label": dict(enumerate(labels)), "label2id": {name: index for index, name in enumerate(labels)}}
    reads_memory = job.method in ("+memory", "mil", "mil-fresh")
    memory = {
        # A weight of 0 is the plain encoder to the bit. All methods then begin with the same head.
        "memory_weight": job.memory_weight if reads_memory else 0.0,
        "memory_slots": job.memory_slots,
        "memory_key_size": job.memory_key_size,
        "memory_initializer_range": job.memory_initializer_range,
        "memory_key_initializer_range": job.memory_key_initializer_range,
    }
    if job.head == "prompting":
        template, words = PROMPTS[job.data]
        words = {label: words[label] for label in labels}
        model_class = family.load(next(name for name in family.model_names if "Prompt" in name))
        model = model_class.from_backbone(
            backbone, template=template, verbalizer=words, dtype=torch.float32, **memory, **names
        )
    else:
        model_class = family.load(family.models["AutoModelForSequenceClassification"][0])
        model = model_class.from_backbone(backbone, memory_pooling=job.pooling, dtype=torch.float32, **memory, **names)
    if job.method in ("+ffn", "+self-attention+ffn"):
        from added_layers import add_layer

        add_layer(model, with_attention="self-attention" in job.method)
    if not reads_memory or job.method == "mil-fresh":
        model.freeze_memory()
    return model


def run(
    job: Job,
    root: str,
    backbone: str,
    score_target: bool = True,
    diagnose: bool = False,
    features: str | None = None,
    quiet: bool = True,
) -> dict:
    """
    Trains, selects on the source domains' dev rows, and scores. Returns `{"job", "dev", "scores", "log", ...}`.

    Args:
        root: the folder of the data sets.
        backbone: the checkpoint that `job.backbone` names.
        score_target: whether to look at the target at all; tuning does not.
        diagnose: whether to measure what the memory does to the features of the dev rows.
        features: a folder for the features of the runs with seed 0, for figures; those are measured in any case.
    """
    import torch
    from transformers import logging

    from hf_memaug import BilevelTrainer, BilevelTrainingArguments, DomainTrainer, DomainTrainingArguments
    from hf_memaug.training import RunGuard
    from hf_memaug.training.selection import BestInMemory

    if quiet:
        logging.set_verbosity_error()
        logging.disable_progress_bar()
    prompted = job.head == "prompting"
    tokenizer, train, dev, tests = tokenized(root, job.data, job.target, job.train_rows, backbone, prompted)
    model = build_model(job, backbone, train.label_names)
    is_mil = job.method == "mil"
    best = BestInMemory()
    silence = contextlib.redirect_stdout(io.StringIO()) if quiet else contextlib.nullcontext()
    with tempfile.TemporaryDirectory() as folder, silence:
        common = {
            "output_dir": folder,
            "max_steps": job.task_steps,
            "learning_rate": job.learning_rate,
            "warmup_steps": job.warmup,
            "weight_decay": 0.01,
            "per_device_train_batch_size": job.batch_size,
            "per_device_eval_batch_size": 256,
            "eval_strategy": "steps",
            "eval_steps": job.evaluation_steps,
            "save_strategy": "no",
            "logging_steps": job.evaluation_steps,
            "disable_tqdm": quiet,
            "report_to": [],
            "seed": job.seed,
            "memory_learning_rate": job.memory_learning_rate,
            "discriminator_learning_rate": job.discriminator_learning_rate,
            "discriminator_hidden_size": job.discriminator_hidden_size,
            "dataloader_pin_memory": torch.cuda.is_available(),
            # Small encoders: a GPU would wait for Python.
            "cuda_graphs": torch.cuda.is_available(),
            "bf16": torch.cuda.is_available(),
            # Looking at every loss would make the device wait.
            "logging_nan_inf_filter": False,
        }
        given = {"train_dataset": train, "eval_dataset": dev, "processing_class": tokenizer}
        if is_mil:
            names = ("episodes", "episode_steps", "inner_steps", "hypergradient")
            own = {name: getattr(job, name) for name in names}
            trainer = BilevelTrainer(model=model, args=BilevelTrainingArguments(**common, **own), **given)
            trainer.meta_train()
            trainer.remove_callback(RunGuard)
            trainer.add_callback(best)
            trainer.meta_test()
        else:
            algorithm = job.method if job.method in ("irm", "coral", "dann") else "erm"
            own = {"algorithm": algorithm, "penalty_weight": job.penalty_weight}
            args = DomainTrainingArguments(**common, **own)
            trainer = DomainTrainer(model=model, args=args, callbacks=[best], **given)
            trainer.remove_callback(RunGuard)
            trainer.train()
    scores, found = {}, {}
    path = features_path(features, job)
    if diagnose or path:
        parts = {"dev": dev.shuffle(0)[:800]}
        if score_target:
            parts |= {name: part.shuffle(0)[:400] for name, part in tests.items()}
        arrays = {name: features_of(trainer, part) for name, part in parts.items()}
        found = describe(arrays, {name: part["domain"] for name, part in parts.items()}, path)
    if score_target:
        for target, rows in tests.items():
            metrics = trainer.predict(rows).metrics
            scores[target] = 100 * metrics["test_f1"]
    log = [entry for entry in trainer.state.log_history if "eval_f1" in entry]
    return {
        "job": dataclasses.asdict(job),
        "dev": 100 * best.best_score,
        "best_step": best.best_step,
        "scores": scores,
        "log": [{"step": entry["step"], "dev": 100 * entry["eval_f1"]} for entry in log],
        "meta_log": getattr(trainer, "meta_log", []),
        "diagnostics": found,
    }


def features_of(trainer, rows, batch_size: int = 256) -> dict:
    """`g(x)`, `m(g(x))` and `g_m(x)` of tokenized rows, as arrays."""
    import torch

    encoder = trainer.model.eval().base_model
    parts: dict[str, list] = {name: [] for name in FEATURES}
    with torch.no_grad():
        for start in range(0, len(rows), batch_size):
            batch = trainer.data_collator([rows[row] for row in range(start, min(start + batch_size, len(rows)))])
            batch = {name: value for name, value in batch.items() if name not in ("labels", "domain_ids")}
            outputs = encoder(**trainer._prepare_inputs(batch))
            for name, found in parts.items():
                found.append(outputs[name].float().cpu())
    return {name: torch.cat(found).numpy() for name, found in parts.items()}


def describe(found: dict, domains: dict, path: str | None = None) -> dict:
    """
    How large the memory is beside the features, how much it varies, and how well a domain can be told from the sources:
    the first source from the others, and each target from all sources.

    Args:
        found: for "dev" and for each target that may be looked at, the arrays of `features_of`.
        domains: the domain of each of their rows.
        path: where to keep the features themselves.
    """
    import numpy as np

    from hf_memaug.evaluation import a_distance

    sources, names = found["dev"], np.asarray(domains["dev"])
    first = names == names[0]
    targets = [name for name in found if name != "dev"]
    if path is not None:
        arrays = {f"{name}/{kind}": found[name][kind].astype(np.float16) for name in found for kind in FEATURES}
        np.savez_compressed(path, **arrays, **{f"{name}/domain": np.asarray(domains[name]) for name in found})
    return {
        "norm": {kind: float(np.linalg.norm(sources[kind], axis=1).mean()) for kind in FEATURES},
        "spread": {
            kind: float(np.linalg.norm(sources[kind] - sources[kind].mean(0), axis=1).mean()) for kind in FEATURES
        },
        "a_distance": {kind: a_distance(sources[kind][first], sources[kind][~first]) for kind in FEATURES},
        "a_distance_to_target": {
            name: {kind: a_distance(found[name][kind], sources[kind]) for kind in FEATURES} for name in targets
        },
    }


def features_path(folder: str | None, job: Job) -> str | None:
    """Where the features of a job are kept: those of seed 0 only, for figure 3."""
    if folder is None or job.seed != 0:
        return None
    return os.path.join(folder, f"{job.data}-{job.target}-{job.method.strip('+')}-{job.backbone}-{job.head}.npz")


def rows_of(result: dict) -> list[dict]:
    """The rows of `docs/results`: one for each scored target."""
    job = result["job"]
    shared = {name: job[name] for name in ("method", "data", "backbone", "head", "seed")}
    return [
        {**shared, "target": target, "metric": "macro_f1", "value": round(value, 4)}
        for target, value in result["scores"].items()
    ]


def backbone_paths(named: list[str]) -> dict[str, str]:
    """`["minilm=/folder", "roberta-30m=/other"]` as a dictionary."""
    paths = {}
    for entry in named:
        name, _, path = entry.partition("=")
        if not path:
            name, path = Path(entry).name, entry
        paths[name] = path
    return paths
