# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The model card, written from the configuration and its `run_facts`."""

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from markupsafe import Markup

from hf_memaug.files import markdown_text, render
from hf_memaug.hub.provenance import FRACTIONS
from hf_memaug.registry import FAMILIES

# A card with this line is rewritten at the next push. A card without it was edited by the user.
MARK = "<!-- Written by hf_memaug from the facts of the run. Delete this line to keep your own words. -->"
# Signs of the unedited templates of transformers, its trainer and PEFT.
_TEMPLATES = (
    "This model card has been automatically generated",
    "This model card has been generated automatically according to the information the Trainer had access to",
    "<!-- Provide a longer summary of what this model is. -->",
)
# By a part of the class: the task as the Hub names it, in words, and a variable for its pipeline, if it has one.
_TASKS = {
    "ForSequenceClassification": ("text-classification", "text classification", "classify"),
    "ForPromptClassification": ("text-classification", "text classification by prompting", "classify"),
    "ForTokenClassification": ("token-classification", "the classification of tokens", "tag"),
    "ForQuestionAnswering": ("question-answering", "extractive question answering", None),
    "ForMaskedLM": ("fill-mask", "masked language modelling", "fill"),
    "ForConditionalGeneration": ("text-generation", "the generation of text", None),
    "ForImageClassification": ("image-classification", "image classification", "classify"),
    "ForGraphClassification": ("graph-ml", "graph classification", None),
    "HMAHead": ("tabular-classification", "the classification of features", None),
}
_WITHOUT_LABELS = ("ForQuestionAnswering", "ForMaskedLM", "ForConditionalGeneration")
# The processor of each main input, with the variable, the class and an input of the example. Others have none.
_PROCESSORS = {
    "input_ids": {"name": "tokenizer", "auto_class": "AutoTokenizer", "example": "Your text"},
    "pixel_values": {"name": "image_processor", "auto_class": "AutoImageProcessor", "example": "your.jpg"},
}
# Scores over several domains.
_WHOLE = {"average": "mean over the domains", "all": "all domains"}


def is_ours_to_write(readme: Path) -> bool:
    """Whether a README is missing, was written by this library, or is an unedited template."""
    if not readme.exists():
        return True
    text = readme.read_text(encoding="utf-8")
    return MARK in text or any(sign in text for sign in _TEMPLATES)


def model_card(
    config,
    architecture: str,
    repo_id: str,
    *,
    facts: Mapping[str, Any] | None = None,
    adapter: bool = False,
    carries_code: bool = False,
    loaded_by: type | None = None,
    **metadata,
) -> ModelCard:
    """
    Args:
        config: the model's configuration.
        architecture (`str`): the model's class, of this library or of transformers.
        repo_id (`str`): the repository or folder of the card.
        facts (*optional*): what `record_run` returns. Default: the configuration's `run_facts`.
        adapter (`bool`, *optional*): whether the repository holds only an adapter.
        carries_code (`bool`, *optional*): whether the repository has the code, so that hf_memaug is not needed.
        loaded_by (`type`, *optional*): the class whose `from_pretrained` loads it, where no Auto class does.
        metadata (*optional*): further metadata: `license`, `language`, `tags`, `datasets`, `base_model`.
    """
    facts = facts or getattr(config, "run_facts", None) or {}
    family = FAMILIES.get(config.model_type)
    paper = family.paper if family else None
    suffix = next((name for name in _TASKS if architecture.endswith(name)), "")
    processor, auto_class = processor_of(config, architecture), f"AutoModel{suffix}"
    if family is not None:
        auto_class = next((auto for auto, names in family.models.items() if architecture in names), "AutoModel")
    features = "image-feature-extraction" if processor == _PROCESSORS["pixel_values"] else "feature-extraction"
    task, task_in_words, pipeline = _TASKS.get(suffix, (features, "feature extraction", None))
    written = getattr(config, "domains", None) or ()
    name = repo_id.rstrip("/").split("/")[-1]
    data = facts.get("data") or ("data without a name" if facts.get("domains") or facts.get("training") else None)
    base_model = metadata.pop("base_model", None) or _hub_name(config)
    scores = _summarise(facts.get("scores", ()))
    metrics = list(dict.fromkeys(row["metric"] for row in scores))
    # For models with several inference modes.
    modes = ["inference"] if any(row["inference"] for row in scores) else []
    what, how, tags = "", "", ["domain-generalization"]
    if paper is not None:
        reads_memory = getattr(config, "has_memory", getattr(config, "reads_memory", True))
        plain = "the plain encoder, because its memory has the weight 0"
        # The method in one clause, and in one or two sentences.
        what, how = getattr(config, "in_words", None) or (paper.what if reads_memory else plain, paper.how)
        tags = [config.model_type, *(tag for tag in paper.tags if tag != "memory" or reads_memory)]
    head = ModelCardData(
        model_name=name,
        library_name="peft" if adapter else "transformers",
        pipeline_tag=task,
        tags=list(dict.fromkeys(["hf_memaug", *tags, *(metadata.pop("tags", None) or ())])),
        base_model=base_model,
        eval_results=[_evaluation(row, task, data or "data") for row in scores] or None,
        **metadata,
    )
    text = render(
        __package__,
        "card.md.jinja",
        metadata=head.to_yaml(),
        mark=MARK,
        name=name,
        repo_id=repo_id,
        architecture=architecture,
        auto_class=auto_class,
        task=task,
        task_in_words=task_in_words,
        backbone=_backbone(config, architecture),
        what=what,
        how=how,
        paper=paper,
        facts=facts,
        data=data,
        adapter=adapter,
        base_model=base_model if adapter else None,
        needs_package=(paper is not None or loaded_by is not None) and not carries_code,
        loaded_by=loaded_by,
        # The backbone may be a module of the user, without a configuration.
        needs_module="For" in architecture and getattr(config, "backbone_config", False) is None,
        trust=", trust_remote_code=True" if carries_code else "",
        processor=processor,
        pipeline=pipeline,
        written=[[one["name"], one["rows"], one["before"], one["after"]] for one in written],
        guard_rows=getattr(config, "memory_rows", 0) - sum(one["rows"] for one in written),
        about_data=_about_data(config, suffix, facts, data, {one["name"] for one in written}),
        metrics=metrics,
        modes=modes,
        scores=_score_rows(scores, metrics, modes, facts.get("left_out")),
        are_points=bool(set(metrics) & set(FRACTIONS)),
        fields=_fields(config),
        training=[
            (name.replace("_", " "), value)
            for name, value in sorted(facts.get("training", {}).items())
            if value is not None
        ],
    )
    return ModelCard(text)


def processor_of(config, architecture: str) -> dict[str, str] | None:
    """A value of `_PROCESSORS`; None for graphs and features."""
    import transformers

    family = FAMILIES.get(config.model_type)
    # Other classes, such as the columns of a progressive network, take texts.
    model_class = family.load(architecture) if family else getattr(transformers, architecture, None)
    return _PROCESSORS.get(getattr(model_class, "main_input_name", "input_ids"))


def _backbone(config, architecture: str) -> str:
    """The backbone, in words."""
    inner, name = getattr(config, "backbone_config", None), _hub_name(config)
    if inner is not None and inner.model_type == "graph_network":
        virtual = " and a virtual node" if inner.virtual_node else ""
        return f"with a {inner.network.upper()} of {inner.num_hidden_layers} layers, {inner.hidden_size} wide{virtual}"
    if name:
        return f"built on [`{name}`](https://huggingface.co/{name})"
    if hasattr(config, "backbone_config"):
        if "For" not in architecture:
            return "on the features of another network"
        if inner is None:
            return "on a network that is a module of its author's"
        # timm has the name in another field.
        return f"with a {getattr(inner, 'architecture', None) or inner.model_type} encoder"
    if config.model_type not in FAMILIES:
        return f"with a {config.model_type} encoder"
    # The domain encoder of a pair, or a classifier with a memory.
    part = getattr(config, "domain", None) or getattr(config, "classifier_config", None)
    kind = getattr(part, "model_type", None) or FAMILIES[config.model_type].backbone
    return f"with a {kind} encoder" if kind else "trained from scratch"


def _about_data(
    config, suffix: str, facts: Mapping[str, Any], data: str | None, written: set[str]
) -> list[tuple[str, Any]]:
    labels = (
        None if suffix in _WITHOUT_LABELS else ", ".join(config.id2label[label] for label in range(config.num_labels))
    )
    # Domains that were written to a memory have a table of their own.
    rows = [
        ("Data", data or "none"),
        ("Labels", labels),
        ("Domains trained on", ", ".join(name for name in facts.get("domains") or () if name not in written)),
        ("Domain left out", facts.get("left_out")),
        ("Training rows", facts.get("training", {}).get("train_rows")),
    ]
    return [(name, value) for name, value in rows if value]


def _fields(config) -> list[tuple[str, str]]:
    names = [name for name in vars(config) if name.startswith("memory_")] + ["template", "verbalizer"]
    # Families whose method is in other fields name them.
    names = getattr(config, "method_fields", names)
    fields = {name: getattr(config, name) for name in names if getattr(config, name, None) is not None}
    return [(_code(name), _code(value)) for name, value in sorted(fields.items())]


def _code(value: Any) -> Markup:
    """A cell of a table with a value as code, in which a backtick cannot end the code."""
    return Markup("`{}`".format(" ".join(str(value).replace("`", "'").replace("|", "\\|").split())))


def _evaluation(row: Mapping[str, Any], task: str, data: str) -> EvalResult:
    mode = f", inference {row['inference']}" if row["inference"] else ""
    return EvalResult(
        task_type=task,
        dataset_type=data.lower().replace(" ", "-"),
        dataset_name=f"{data}, {_WHOLE.get(row['domain'], 'domain ' + row['domain'])}",
        dataset_config=row["domain"],
        dataset_split=row["split"],
        metric_type=row["metric"],
        metric_name=f"{row['metric']} ({row['seeds']}{mode})",
        metric_value=round(row["mean"], 2),
    )


def _score_rows(scores: Iterable[Mapping], metrics: list[str], modes: list[str], left_out: str | None) -> list[list]:
    """A line of the table for each domain, split, seeds and mode, with a cell for each metric."""
    lines: dict[tuple, dict[str, str]] = {}
    for row in scores:
        domain = Markup(f"**{markdown_text(left_out)}** (left out)") if row["domain"] == left_out else row["domain"]
        where = (domain, row["split"], row["seeds"], *(row[mode] or "" for mode in modes))
        spread = "" if row["std"] is None else f" ± {row['std']:.1f}"
        lines.setdefault(where, {})[row["metric"]] = f"{row['mean']:.1f}{spread}"
    return [[*where, *(cells.get(metric, "") for metric in metrics)] for where, cells in lines.items()]


def _summarise(scores: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The mean over the seeds of each domain, split, metric and inference mode."""
    groups: dict[tuple, list[Mapping[str, Any]]] = {}
    for score in scores:
        key = score["domain"], score["split"], score["metric"], score.get("inference")
        groups.setdefault(key, []).append(score)
    found = []
    for (domain, split, metric, inference), group in groups.items():
        values, seeds = [score["value"] for score in group], sorted({score["seed"] for score in group})
        row = {"domain": domain, "split": split, "metric": metric, "inference": inference}
        row["seeds"] = f"{len(seeds)} seeds: {', '.join(map(str, seeds))}" if len(seeds) > 1 else f"seed {seeds[0]}"
        row |= {"mean": statistics.fmean(values), "std": statistics.stdev(values) if len(values) > 1 else None}
        found.append(row)
    return found


def _hub_name(config) -> str | None:
    """The name of the backbone on the Hub, if it is not a local folder."""
    name = config._name_or_path or ""
    return name if name.count("/") <= 1 and name and not Path(name).is_absolute() and not Path(name).exists() else None
