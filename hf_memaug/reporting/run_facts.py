# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
The facts of a run: what was trained, on which domains, and how it scored.

They are kept in the model's configuration (`config.run_facts`), so that they are saved, pushed and pulled with the
weights, and the model card can be written again from any copy.
"""

import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version


def record_run(
    model,
    *,
    data: str | None = None,
    domains: Sequence[str] | None = None,
    left_out: str | None = None,
    method: str | None = None,
    scores: Iterable[dict] = (),
    training: dict | None = None,
) -> dict:
    """
    Writes facts into `model.config.run_facts`, beside those that are there. Returns all of them.

    Args:
        data (`str`, *optional*):
            The name of the data.
        domains (`Sequence[str]`, *optional*):
            The domains trained on.
        left_out (`str`, *optional*):
            The domain that training and selection never saw.
        method (`str`, *optional*):
            How it was trained, in the paper's words (`"+memory"`, `"mil"`).
        scores (`Iterable[dict]`, *optional*):
            One entry for each figure: `{"domain", "split", "metric", "value", "seed"}`, the value in points (0-100).
            A figure for the same domain, split, metric and seed replaces the old one.
        training (`dict`, *optional*):
            Hyper-parameters.
    """
    config = _config(model)
    facts = dict(config.run_facts or {})
    named = {"data": data, "domains": domains and list(domains), "left_out": left_out, "method": method}
    facts.update({name: value for name, value in named.items() if value is not None})
    kept = {_score_key(score): score for score in [*facts.get("scores", ()), *map(_checked_score, scores)]}
    facts["scores"] = list(kept.values())
    facts["training"] = {**facts.get("training", {}), **(training or {})}
    facts.setdefault("versions", library_versions())
    config.run_facts = facts
    return facts


def facts_from_trainer(trainer) -> dict:
    """Reads off a `Trainer` what it knows, into the facts of its model."""
    args, model = trainer.args, trainer.model
    known = _config(model).run_facts or {}
    domains = known.get("domains") or _domains_of(trainer.train_dataset)
    training = {
        "learning_rate": args.learning_rate,
        "train_batch_size": args.train_batch_size * args.gradient_accumulation_steps * args.world_size,
        "epochs": round(trainer.state.epoch, 2) if trainer.state.epoch is not None else args.num_train_epochs,
        "steps": trainer.state.global_step,
        "optimizer": str(getattr(args.optim, "value", args.optim)),
        "lr_scheduler": str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)),
        "seed": args.seed,
        "train_rows": len(trainer.train_dataset) if hasattr(trainer.train_dataset, "__len__") else None,
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
    }
    facts = record_run(model, domains=domains, scores=_logged_scores(trainer), training=training)
    facts["versions"] = library_versions()
    return facts


def library_versions() -> dict[str, str]:
    names = ("hf_memaug", "torch", "transformers", "tokenizers", "safetensors", "accelerate", "peft", "datasets")
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _config(model):
    # An adapter's `config` is the base model's.
    config = getattr(getattr(model, "module", model), "config", None)
    if not hasattr(config, "run_facts"):
        raise TypeError(
            f"`model` is a `{type(model).__name__}`; facts are kept in the configurations of hf_memaug's models."
        )
    return config


def _checked_score(score: dict) -> dict:
    missing = {"domain", "metric", "value", "seed"} - set(score)
    if missing:
        raise ValueError(f"`scores` entry {score} lacks {sorted(missing)}.")
    return {"split": "test", **score, "value": float(score["value"])}


def _score_key(score: dict) -> tuple:
    return score["domain"], score["split"], score["metric"], score["seed"]


def _domains_of(dataset) -> list[str] | None:
    if hasattr(dataset, "domains"):
        return list(dataset.domains)
    if "domain" in (getattr(dataset, "column_names", None) or ()):
        return sorted(set(map(str, dataset["domain"])))
    return None


# Metrics that `Trainer` logs as fractions, and that are reported in points.
FRACTIONS = ("accuracy", "macro_f1", "micro_f1", "f1", "precision", "recall")
# What `Trainer` logs beside metrics.
_BOOKKEEPING = ("_runtime", "_per_second", "_time", "_loss", "_preparation_time")


def _logged_scores(trainer) -> list[dict]:
    """The metrics of the weights that are published: the best evaluation where that is loaded, or else the last."""
    logs = [entry for entry in trainer.state.log_history if any(name.startswith("eval_") for name in entry)]
    best = trainer.state.best_global_step if trainer.args.load_best_model_at_end else None
    logs = [entry for entry in logs if best is None or entry.get("step") == best]
    latest = {name: value for entry in logs for name, value in entry.items()}
    scores = []
    for name, value in latest.items():
        if not name.startswith("eval_") or name.endswith(_BOOKKEEPING) or not isinstance(value, (int, float)):
            continue
        domain, metric = _split_name(name.removeprefix("eval_"), trainer.eval_dataset)
        value = 100 * value if metric in FRACTIONS and abs(value) <= 1 else value
        scores.append({"domain": domain, "split": "dev", "metric": metric, "value": value, "seed": trainer.args.seed})
    return scores


def _split_name(name: str, eval_dataset) -> tuple[str, str]:
    """`books_macro_f1` belongs to `books` where the evaluation was over a dictionary of domains."""
    domains = eval_dataset if isinstance(eval_dataset, dict) else ()
    for domain in sorted(domains, key=len, reverse=True):
        if name.startswith(f"{domain}_"):
            return domain, name.removeprefix(f"{domain}_")
    return "all", name
