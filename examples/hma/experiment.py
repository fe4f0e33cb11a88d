# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""One model of one table: trained, chosen on dev rows, and scored."""

import copy
import itertools
import time
from dataclasses import asdict

import torch
from job import Job
from steps import Steps
from tasks import TASKS, Rows, Task

from hf_memaug.evaluation.scores import accuracy, auroc, macro_f1, matthews_correlation


def make_model(job: Job, task: Task):
    prompts, method = {}, job.method
    if method.startswith("prompt-"):
        place, _, method = method.partition("+")
        depth = {"prompt-p": "input", "prompt-a": "all"}[place]
        prompts = {"prompt_tokens": job.prompt_tokens, "prompt_depth": depth}
    augmentation = "none" if method in ("", "backbone") else method
    memory = {
        "real_memory_size": job.real_memory_size,
        "synthetic_slots": job.synthetic_slots,
        "momentum_encoder": job.momentum_encoder,
        "momentum": job.momentum,
    }
    kwargs = {**memory, **prompts, **task.options}
    if job.initializer_range is not None:
        kwargs["initializer_range"] = job.initializer_range
    model = task.model_class.from_backbone(task.backbone, augmentation=augmentation, **kwargs)
    return model.freeze_backbone() if job.tuning == "head" else model


def logits_of(steps: Steps, rows: Rows, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of all rows and their labels, in batches as large as those of training."""
    found = []
    # In an order of its own: rows that lie side by side in a file may be of one kind.
    for batch in rows.batches(size, seed=0):
        labels = batch.pop("labels")
        found.append((steps.logits(batch), labels))
    return tuple(torch.cat(parts) for parts in zip(*found, strict=True))


def score(metric: str, logits: torch.Tensor, labels: torch.Tensor) -> float:
    if metric == "auroc":
        return 100 * auroc((logits[:, 1] - logits[:, 0]).numpy(), labels.numpy())
    measure = {"accuracy": accuracy, "macro_f1": macro_f1, "mcc": matthews_correlation}[metric]
    return 100 * measure(logits.argmax(dim=-1).numpy(), labels.numpy())


def run(job: Job, folder: str, device: str = "cpu") -> dict:
    """Trains one model. Selection sees dev rows alone."""
    torch.manual_seed(job.seed)
    begin = time.perf_counter()
    task = TASKS[job.data](folder, job.setting, job.backbone, job.seed)
    model = make_model(job, task).to(device)
    groups = [
        {"params": [p for p in module.parameters() if p.requires_grad], "lr": rate}
        for module, rate in (
            (model.backbone, job.learning_rate),
            (model.head, job.head_learning_rate or job.learning_rate),
        )
    ]
    steps = Steps(model, groups, device, graphed=device == "cuda" and task.same_shapes)
    rows = task.parts["train"]
    count = round(job.epochs * rows.count / job.batch_size)
    best, chosen, at = None, None, 0
    epochs = (rows.batches(job.batch_size, seed=10_000 * job.seed + epoch) for epoch in itertools.count(1))
    for step, batch in enumerate(itertools.islice(itertools.chain.from_iterable(epochs), count), start=1):
        steps.train(batch)
        if step * job.evaluations // count > (step - 1) * job.evaluations // count:
            found = score(task.metric, *logits_of(steps, task.parts["dev"], job.batch_size))
            if best is None or found > best:
                best, chosen, at = found, copy.deepcopy(model.state_dict()), step
    model.load_state_dict(chosen)
    tests = [name for name in task.parts if name not in ("train", "dev")]
    scores = {}
    for inference in ("batch", "independent"):
        model.config.inference = inference
        scores[inference] = {
            name: score(task.metric, *logits_of(steps, task.parts[name], job.batch_size)) for name in tests
        }
    return {
        "job": asdict(job),
        "metric": task.metric,
        "dev": best,
        "step": at,
        "steps": count,
        "scores": scores,
        "seconds": round(time.perf_counter() - begin, 1),
    }
