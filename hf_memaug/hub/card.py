# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The model card, written from the configuration and its `run_facts`."""

import statistics
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard, ModelCardData

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
_TASKS = {
    "ForSequenceClassification": ("text-classification", "text classification"),
    "ForPromptClassification": ("text-classification", "text classification by prompting"),
    "ForTokenClassification": ("token-classification", "the classification of tokens"),
    "ForQuestionAnswering": ("question-answering", "extractive question answering"),
    "ForMaskedLM": ("fill-mask", "masked language modelling"),
    "ForConditionalGeneration": ("text-generation", "the generation of text"),
    "ForImageClassification": ("image-classification", "image classification"),
    "ForGraphClassification": ("graph-ml", "graph classification"),
    "HMAHead": ("tabular-classification", "the classification of features"),
}
_WITHOUT_LABELS = ("ForQuestionAnswering", "ForMaskedLM", "ForConditionalGeneration")
# The pipelines of transformers by task, and a variable name for each.
_PIPELINES = {
    "text-classification": "classify",
    "token-classification": "tag",
    "fill-mask": "fill",
    "image-classification": "classify",
}
_FEATURES = ("feature-extraction", "feature extraction")
_IMAGE_FEATURES = ("image-feature-extraction", "feature extraction")
# The processor of each main input: variable, class and example input. All others have a tokenizer.
_PROCESSORS = {
    "pixel_values": ("image_processor", "AutoImageProcessor", "your.jpg"),
    "node_features": None,
    "features": None,
}
_TOKENIZER = ("tokenizer", "AutoTokenizer", "Your text")
# Scores over several domains.
_WHOLE = {"average": "mean over the domains", "all": "all domains"}


def is_ours_to_write(readme: Path) -> bool:
    """Whether a README is missing, was written by this library, or is an unedited template."""
    if not readme.exists():
        return True
    text = readme.read_text(encoding="utf-8")
    return MARK in text or any(sign in text for sign in _TEMPLATES)


def model_card(
    config, architecture: str, repo_id: str, *, adapter: bool = False, carries_code: bool = False, **metadata
) -> ModelCard:
    """
    Args:
        config: the model's configuration, with `run_facts`.
        architecture (`str`): the model's class.
        repo_id (`str`): the repository or folder of the card.
        adapter (`bool`, *optional*): whether the repository holds only an adapter.
        carries_code (`bool`, *optional*): whether the repository has the code, so that hf_memaug is not needed.
        metadata (*optional*): further metadata: `license`, `language`, `tags`, `datasets`, `base_model`.
    """
    facts = config.run_facts or {}
    paper = FAMILIES[config.model_type].paper
    task, task_in_words = _task(config, architecture)
    name = repo_id.rstrip("/").split("/")[-1]
    scores = _summarise(facts.get("scores", ()))
    data_name = facts.get("data") or ("data without a name" if facts.get("domains") or facts.get("training") else None)
    base_model = metadata.pop("base_model", None) or _hub_name(config)
    tags = ["hf_memaug", config.model_type, *(tag for tag in paper.tags if tag != "memory" or _reads_memory(config))]
    tags += [tag for tag in metadata.pop("tags", None) or () if tag not in tags]

    head = ModelCardData(
        model_name=name,
        library_name="peft" if adapter else "transformers",
        pipeline_tag=task,
        tags=tags,
        base_model=base_model,
        eval_results=[
            EvalResult(
                task_type=task,
                dataset_type=(data_name or "data").lower().replace(" ", "-"),
                dataset_name=f"{data_name or 'data'}, {_WHOLE.get(row['domain'], 'domain ' + row['domain'])}",
                dataset_config=row["domain"],
                dataset_split=row["split"],
                metric_type=row["metric"],
                metric_name=f"{row['metric']} ({_seeds(row)}{_mode(row)})",
                metric_value=round(row["mean"], 2),
            )
            for row in scores
        ]
        or None,
        **metadata,
    )
    sections = [
        MARK,
        f"# {name}",
        _opening(config, architecture, paper, task_in_words, facts, data_name),
        "## How to load it\n\n"
        + _how_to_load(config, architecture, repo_id, base_model if adapter else None, adapter, carries_code),
        "## Data and domains\n\n" + _data(config, architecture, facts, data_name),
        "## Results\n\n" + _results(scores, facts),
        "## Method\n\n" + _method(config, paper, facts),
        "## Training\n\n" + _training(facts),
        "## Citation\n\n```bibtex\n" + paper.bibtex + "\n```",
    ]
    return ModelCard(f"---\n{head.to_yaml()}\n---\n\n" + "\n\n".join(sections) + "\n")


def _task(config, architecture: str) -> tuple[str, str]:
    """The task of a class, as the Hub names it, and in words."""
    features = _IMAGE_FEATURES if processor_of(config, architecture) == "image_processor" else _FEATURES
    return next((task for name, task in _TASKS.items() if architecture.endswith(name)), features)


def processor_of(config, architecture: str) -> str | None:
    """`"tokenizer"`, `"image_processor"`, or None for graphs and features."""
    processor = _processor(config, architecture)
    return processor and processor[0]


def _processor(config, architecture: str) -> tuple[str, str, str] | None:
    model_class = FAMILIES[config.model_type].load(architecture)
    return _PROCESSORS.get(model_class.main_input_name, _TOKENIZER)


def _opening(config, architecture, paper, task_in_words, facts, data_name) -> str:
    trained = f" It was trained on {data_name}." if data_name else " How it was trained is not recorded."
    if facts.get("left_out"):
        trained += f" The domain **{facts['left_out']}** was left out: neither training nor selection saw it."
    plain = "the plain encoder, because its memory has the weight 0"
    what, _ = getattr(config, "in_words", None) or (paper.what if _reads_memory(config) else plain, "")
    return f"`{architecture}` for {task_in_words}, {_start(config, architecture)}: {what}.{trained}"


def _start(config, architecture: str) -> str:
    """The backbone, in words."""
    inner, name = getattr(config, "backbone_config", None), _hub_name(config)
    if getattr(inner, "model_type", None) == "graph_network":
        return f"with a {_network(inner)}"
    if name:
        return f"built on [`{name}`](https://huggingface.co/{name})"
    if hasattr(config, "backbone_config"):
        if "For" not in architecture:
            return "on the features of another network"
        if _needs_module(config, architecture):
            return "on a network that is a module of its author's"
        # timm has the name in another field.
        return f"with a {getattr(inner, 'architecture', None) or inner.model_type} encoder"
    # The domain encoder of a pair.
    kind = getattr(getattr(config, "domain", None), "model_type", None) or FAMILIES[config.model_type].backbone
    return f"with a {kind} encoder" if kind else "trained from scratch"


def _needs_module(config, architecture: str) -> bool:
    """Whether the backbone is a module of the user, without a configuration."""
    return "For" in architecture and getattr(config, "backbone_config", False) is None


def _network(config) -> str:
    virtual = " and a virtual node" if config.virtual_node else ""
    return f"{config.network.upper()} of {config.num_hidden_layers} layers, {config.hidden_size} wide{virtual}"


def _reads_memory(config) -> bool:
    return getattr(config, "has_memory", getattr(config, "reads_memory", True))


def _how_to_load(config, architecture, repo_id, base_model, adapter, carries_code) -> str:
    auto_class = next(
        (auto for auto, names in FAMILIES[config.model_type].models.items() if architecture in names), "AutoModel"
    )
    if adapter:
        lines = [
            "import hf_memaug",
            "from peft import PeftModel",
            f"from transformers import {auto_class}",
            "",
            f'base = {auto_class}.from_pretrained("{base_model or "the/checkpoint-it-was-trained-on"}")',
            f'model = PeftModel.from_pretrained(base, "{repo_id}")',
        ]
    elif _needs_module(config, architecture):
        lines = [
            f"from hf_memaug import {architecture}",
            "",
            "# `backbone`: a module of the class that it was trained with",
            f'model = {architecture}.from_pretrained("{repo_id}", backbone=backbone)',
        ]
    elif architecture.endswith("ForGraphClassification"):
        lines = _how_to_load_graphs(auto_class, repo_id, carries_code)
    else:
        trust = ", trust_remote_code=True" if carries_code else ""
        lines = [] if carries_code else ["import hf_memaug  # registers the architecture"]
        task = _task(config, architecture)[0]
        verb = _PIPELINES.get(task)
        reader, auto_reader, given = _processor(config, architecture) or (None, None, None)
        names = [auto_class, *([auto_reader] if reader else []), *(["pipeline"] if verb else [])]
        lines += [f"from transformers import {', '.join(names)}", ""]
        if reader:
            lines.append(f'{reader} = {auto_reader}.from_pretrained("{repo_id}"{trust})')
        lines.append(f'model = {auto_class}.from_pretrained("{repo_id}"{trust})')
        if verb:
            lines += [f'{verb} = pipeline("{task}", model=model, {reader}={reader})', f'{verb}("{given}")']
    install = "pip install transformers" if carries_code else "pip install hf_memaug"
    return f"```bash\n{install}\n```\n\n```python\n" + "\n".join(lines) + "\n```"


def _how_to_load_graphs(auto_class: str, repo_id: str, carries_code: bool) -> list[str]:
    if carries_code:
        return [
            f"from transformers import {auto_class}",
            "",
            f'model = {auto_class}.from_pretrained("{repo_id}", trust_remote_code=True)',
            "# model(node_features=..., edge_index=..., graph_index=..., edge_features=..., num_graphs=...).logits",
        ]
    return [
        "import hf_memaug  # registers the architecture",
        "from hf_memaug.data import GraphCollator",
        f"from transformers import {auto_class}",
        "",
        f'model = {auto_class}.from_pretrained("{repo_id}")',
        "# A graph: {'node_features', 'edge_index', 'edge_features'}; `graph_from_smiles` makes those of molecules.",
        'batch = GraphCollator()([{"graph": graph} for graph in your_graphs])',
        "model(**batch).logits",
    ]


def _data(config, architecture: str, facts, data_name) -> str:
    rows = [("Data", data_name or "none")]
    if not architecture.endswith(_WITHOUT_LABELS):
        rows.append(("Labels", ", ".join(config.id2label.values())))
    if facts.get("domains"):
        rows.append(("Domains trained on", ", ".join(facts["domains"])))
    if facts.get("left_out"):
        rows.append(("Domain left out", facts["left_out"]))
    if facts.get("training", {}).get("train_rows"):
        rows.append(("Training rows", facts["training"]["train_rows"]))
    return _table(("", ""), rows)


def _results(scores, facts) -> str:
    if not scores:
        return "No evaluation was run."
    columns = list(dict.fromkeys(row["metric"] for row in scores))
    # For models with several inference modes.
    modes = ["inference"] if any(row["inference"] for row in scores) else []
    lines = {}
    for row in scores:
        cell = f"{row['mean']:.1f}" + (f" ± {row['std']:.1f}" if row["std"] is not None else "")
        where = (row["domain"], row["split"], _seeds(row), *(row[mode] or "" for mode in modes))
        lines.setdefault(where, {})[row["metric"]] = cell
    left_out = facts.get("left_out")
    rows = [
        (f"**{domain}** (left out)" if domain == left_out else domain, *where, *[cells.get(c, "") for c in columns])
        for (domain, *where), cells in lines.items()
    ]
    return (
        _table(("domain", "split", "seeds", *modes, *columns), rows)
        + ("\n\nScores are in points: fractions times 100." if set(columns) & set(FRACTIONS) else "")
        + "\n\nMean ± standard deviation where there are several seeds."
    )


def _method(config, paper, facts) -> str:
    names = [name for name in vars(config) if name.startswith("memory_")] + ["template", "verbalizer"]
    # Families whose method is in other fields name them.
    names = getattr(config, "method_fields", names)
    fields = {name: getattr(config, name) for name in names if getattr(config, name, None) is not None}
    trained_as = f" Trained as `{facts['method']}` of the paper's tables." if facts.get("method") else ""
    _, how = getattr(config, "in_words", None) or ("", paper.how)
    return f"{how}{trained_as} Paper: [{paper.title}]({paper.url}).\n\n" + _table(
        ("field", "value"), [(f"`{name}`", f"`{value}`") for name, value in sorted(fields.items())]
    )


def _training(facts) -> str:
    training = {name: value for name, value in facts.get("training", {}).items() if value is not None}
    if not training:
        return (
            "Not recorded: what is not inherited from the backbone may be as initialised. "
            "`trainer.create_model_card()` or `record_run(model, ...)` writes it here."
        )
    versions = ", ".join(f"{name} {number}" for name, number in sorted(facts.get("versions", {}).items()))
    rows = [(name.replace("_", " "), value) for name, value in sorted(training.items())]
    return _table(("", ""), rows) + (f"\n\nVersions: {versions}." if versions else "")


def _summarise(scores) -> list[dict]:
    groups = {}
    for score in scores:
        key = score["domain"], score["split"], score["metric"], score.get("inference")
        groups.setdefault(key, []).append(score)
    return [
        {
            "domain": domain,
            "split": split,
            "metric": metric,
            "inference": mode,
            "seeds": sorted({score["seed"] for score in group}),
            "mean": statistics.fmean(score["value"] for score in group),
            "std": statistics.stdev(score["value"] for score in group) if len(group) > 1 else None,
        }
        for (domain, split, metric, mode), group in groups.items()
    ]


def _seeds(row) -> str:
    seeds = row["seeds"]
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds: {', '.join(map(str, seeds))}"


def _mode(row) -> str:
    return f", inference {row['inference']}" if row["inference"] else ""


def _table(header, rows) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _hub_name(config) -> str | None:
    """The name of the backbone on the Hub, if it is not a local folder."""
    name = config._name_or_path or ""
    return name if name.count("/") <= 1 and name and not Path(name).is_absolute() and not Path(name).exists() else None
