# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Model cards written by trainers."""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

from transformers import TrainerCallback

from hf_memaug.hub.card import is_ours_to_write, model_card
from hf_memaug.hub.provenance import FRACTIONS, config_of, library_versions, record_run
from hf_memaug.registry import FAMILIES

# The key under which an evaluation's log entry names the inference mode of a model that has several.
INFERENCE_MODE = "eval_inference"


class ModelCardCallback(TrainerCallback):
    """
    Writes the model card into `args.output_dir` after training, and again after each later evaluation. Models of other
    libraries are left alone.

    The trainers of this library add it themselves. For the plain `Trainer`:

    ```python
    trainer = Trainer(model, args, callbacks=[MemoryUpdateCallback(), ModelCardCallback()], ...)
    ```

    Args:
        trainer (`Trainer`, *optional*):
            A trainer to read further settings from, such as the algorithm.
    """

    def __init__(self, trainer=None):
        self.trainer = trainer
        self.is_trained = False

    def on_train_end(self, args, state, control, **kwargs):
        self.is_trained = True
        self._write(args, state, **kwargs)

    def on_evaluate(self, args, state, control, **kwargs):
        if self.is_trained:
            self._write(args, state, **kwargs)

    def _write(self, args, state, model=None, train_dataloader=None, eval_dataloader=None, **kwargs):
        run = self.trainer or SimpleNamespace(
            args=args,
            state=state,
            model=model,
            train_dataset=getattr(train_dataloader, "dataset", None),
            eval_dataset=getattr(eval_dataloader, "dataset", None),
        )
        if state.is_world_process_zero and is_family(run.model):
            facts_from_trainer(run)
            write_card(run.model, args)


def is_family(model) -> bool:
    """Whether the library has cards for this model, which may be an adapter of PEFT."""
    return getattr(getattr(model, "config", None), "model_type", None) in FAMILIES


def write_card(model, args, name: str | None = None, **metadata) -> None:
    """Writes `README.md` into `args.output_dir`, unless there is one that a person wrote."""
    folder, adapter = Path(args.output_dir), hasattr(model, "peft_config")
    if is_ours_to_write(folder / "README.md"):
        architecture = type(model.get_base_model() if adapter else model).__name__
        folder.mkdir(parents=True, exist_ok=True)
        repo_id = name or args.hub_model_id or folder.name
        model_card(model.config, architecture, repo_id, adapter=adapter, **metadata).save(folder / "README.md")


def facts_from_trainer(trainer) -> dict:
    """Reads off a `Trainer` what it knows, into the facts of its model."""
    args, model = trainer.args, trainer.model
    known = config_of(model).run_facts or {}
    domains = known.get("domains") or _domains_of(trainer.train_dataset)
    method = known.get("method") or getattr(trainer, "method_name", None)
    card_settings = getattr(trainer, "card_settings", ("algorithm", "memory_learning_rate"))
    training = {
        "learning_rate": args.learning_rate,
        "train_batch_size": args.train_batch_size * args.gradient_accumulation_steps * args.world_size,
        # Of stages that had trainers of their own, those of each, if they are known.
        "epochs": round(trainer.state.epoch or 0, 2) or (None if args.max_steps > 0 else args.num_train_epochs),
        "steps": trainer.state.global_step,
        "optimizer": str(getattr(args.optim, "value", args.optim)),
        "lr_scheduler": str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)),
        "seed": args.seed,
        "train_rows": len(trainer.train_dataset) if hasattr(trainer.train_dataset, "__len__") else None,
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
        **{name: value for name in card_settings if (value := getattr(args, name, None)) is not None},
    }
    scores = _logged_scores(trainer)
    if hasattr(trainer, "record") and not set(trainer.record.trained) <= {score["domain"] for score in scores}:
        # Where earlier domains have no rows to score, the mean over the others is none over the domains.
        scores = [score for score in scores if score["domain"] != "average"]
    facts = record_run(model, domains=domains, method=method, scores=scores, training=training)
    facts["versions"] = library_versions()
    return facts


def _domains_of(dataset) -> list[str] | None:
    if hasattr(dataset, "domains"):
        return list(dataset.domains)
    if "domain" in (getattr(dataset, "column_names", None) or ()):
        return sorted(set(map(str, dataset["domain"])))
    return None


# What `Trainer` logs beside metrics.
_BOOKKEEPING = ("_runtime", "_per_second", "_time", "_loss", "_preparation_time")


def _logged_scores(trainer) -> list[dict]:
    """The metrics of the weights that are published: the best evaluation where that is loaded, or else the last."""
    best = trainer.state.best_global_step if trainer.args.load_best_model_at_end else None
    logs = [entry for entry in trainer.state.log_history if best is None or entry.get("step") == best]
    latest = {
        (name.removeprefix("eval_"), entry.get(INFERENCE_MODE)): value
        for entry in logs
        for name, value in entry.items()
        if name.startswith("eval_") and not name.endswith(_BOOKKEEPING) and isinstance(value, (int, float))
    }
    scores_by_default = hasattr(trainer, "default_f1") and trainer._score == trainer._default_scores
    split_names = _split_names(dict.fromkeys(name for name, _ in latest), trainer.eval_dataset)
    scores = []
    for (name, inference), value in latest.items():
        domain, metric = split_names[name]
        value = 100 * value if metric in FRACTIONS and abs(value) <= 1 else value
        if metric == "f1" and scores_by_default:
            metric = trainer.default_f1
        found = {"domain": domain, "split": getattr(trainer, "scored_split", "dev"), "metric": metric, "value": value}
        scores.append({**found, "seed": trainer.args.seed, "inference": inference})
    return scores


def _split_names(names: Iterable[str], eval_dataset) -> dict[str, tuple[str, str]]:
    """
    The domain and the metric of each name. `books_macro_f1` belongs to `books` where that is a domain of the rows, or a
    name in a dictionary of data. `macro_f1` alone is the mean over the domains if these have been scored one by one,
    and otherwise the score of all rows.
    """
    parts = eval_dataset if isinstance(eval_dataset, dict) else {}
    known = {f"{part}_": part for part in parts}
    for part, rows in (parts or {None: eval_dataset}).items():
        for domain in _domains_of(rows) or ():
            words = [word for word in (part, domain) if word is not None]
            # A dictionary with a part for each domain, scored by domain, names each of them twice.
            known["_".join([*words, ""])] = "/".join(dict.fromkeys(words))
    found = {}
    for name in names:
        prefix = max((one for one in known if name.startswith(one)), key=len, default="")
        found[name] = known.get(prefix), name.removeprefix(prefix)
    by_domain = {metric for domain, metric in found.values() if domain and not parts}
    whole = {metric: "average" if metric in by_domain else "all" for _, metric in found.values()}
    return {name: (domain or whole[metric], metric) for name, (domain, metric) in found.items()}
