# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The table of families. To add a family, add its modules and one row here."""

import importlib
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Paper:
    """
    The paper behind a family. The model card is written from it. A method of ours has no title, URL and BibTeX entry.

    Args:
        row (`str`): The name that result tables give to a model trained on the task loss alone.
        what (`str`): The method in one clause.
        how (`str`): The method in one or two sentences, with its equations.
    """

    row: str
    title: str
    url: str
    tags: tuple[str, ...]
    what: str
    how: str
    bibtex: str


@dataclass(frozen=True)
class Method:
    """
    A way to build and train the models of a family, as the command line names it.

    Args:
        name (`str`): The value of `--methods`.
        what (`str`): One line for `--help`.
        reads (`tuple[str, ...]`): The kinds of data: `"text"`, `"image"`, `"graph"`, `"tags"`, `"questions"`,
            `"replies"`.
        trainer (`str`): `"domain"` or `"bilevel"`.
        born (`str`): The class method that builds the model, or `"config"` for a family without a pre-trained backbone.
        needs_general (`bool`): Whether it needs a general encoder beside the backbone.
        needs_shots (`bool`): Whether it adapts the checkpoint of `erm` to labelled rows of the target (`--shots`).
        trains (`bool`): Whether it trains weights.
        grows (`tuple[str, ...]`): The verbs that enlarge its models during continual training.
    """

    name: str
    what: str
    reads: tuple[str, ...] = ("text",)
    trainer: str = "domain"
    born: str = "from_backbone"
    needs_general: bool = False
    needs_shots: bool = False
    trains: bool = True
    grows: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """
    A network that families are built on. The auto classes know it; it has no method of its own.

    Args:
        configuration, modeling (`str`): The modules of the configuration class and of the model classes.
        config (`str`): The configuration class.
        models (`dict[str, tuple[str, ...]]`): The model classes by auto class. Where there are several, a checkpoint's
            `architectures` selects one.
    """

    configuration: str
    modeling: str
    config: str
    models: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def load(self, name: str) -> Any:
        """Imports the class called `name`."""
        return getattr(importlib.import_module(self.configuration if name == self.config else self.modeling), name)

    @property
    def config_class(self) -> Any:
        return self.load(self.config)

    @property
    def model_names(self) -> tuple[str, ...]:
        return tuple(name for names in self.models.values() for name in names)


@dataclass(frozen=True, kw_only=True)
class Family(Backbone):
    """
    One row for each `model_type`.

    Args:
        backbone (`str`, *optional*): The `model_type` of transformers whose tokenizer the family uses. None: the family
            is trained from scratch, with a tokenizer of its own data.
        methods (`tuple[Method, ...]`): What the command line offers.
        plain (`dict[str, Any]`): The settings with which a model of the family is its backbone with a linear head.
    """

    paper: Paper
    backbone: str | None = None
    methods: tuple[Method, ...] = ()
    plain: dict[str, Any] = field(default_factory=dict)

    @property
    def graph_model(self) -> str:
        """The class that classifies graphs; empty where there is none."""
        return next((name for name in self.model_names if name.endswith("ForGraphClassification")), "")


def _citation(key: str) -> str:
    """An entry of papers.bib."""
    entries = files(__package__).joinpath("papers.bib").read_text(encoding="utf-8").strip().split("\n\n")
    return next(entry for entry in entries if key in entry)


MIL = Paper(
    row="+memory",
    title="Memory-Based Invariance Learning for Out-of-Domain Text Classification",
    url="https://aclanthology.org/2023.emnlp-main.101/",
    tags=("memory", "domain-generalization"),
    what="a key-value memory after the last layer augments the encoder's feature",
    how="A query network compares the feature g(x) with a table of keys, and the values of matching keys are mixed in: "
    "g_m(x) = (1 - λ) g(x) + λ m(g(x)) (Eq. 1-3), with λ = `memory_weight`.",
    bibtex=_citation("jia-zhang-2023-memory"),
)


GMAP = Paper(
    row="gmap",
    title="G-MAP: General Memory-Augmented Pre-trained Language Model for Domain Tasks",
    url="https://aclanthology.org/2022.emnlp-main.441/",
    tags=("memory", "domain-adaptation"),
    what="layers of a domain encoder also read the hidden states of a frozen general encoder",
    how="The general encoder's hidden states are the memory M. A strategy combines them to M_f, whose keys and "
    "values, from the layer's own projections, follow those of the tokens (Eq. 1-11).",
    bibtex=_citation("wan-etal-2022-g"),
)


GMOE = Paper(
    row="gmoe",
    title="Sparse Mixture-of-Experts are Domain Generalizable Learners",
    url="https://arxiv.org/abs/2206.04046",
    tags=("mixture-of-experts", "domain-generalization"),
    what="sparse experts replace the feed-forward network in some layers of a vision transformer",
    how="A router chooses k of N experts for each token, and their outputs are summed by weight: f_MoE(x) = "
    "sum_i G(x)_i E_i(x) with G(x) = TOP_k(softmax(router(x))), normalised to 1 (Eq. 3, section 4.3).",
    bibtex=_citation("li2023sparse"),
)


HMA = Paper(
    row="hma",
    title="Heterogenous Memory Augmented Neural Networks",
    url="https://arxiv.org/abs/2310.10909",
    tags=("memory", "attention-between-datapoints"),
    what="a backbone's feature reads the last rows of training, and learned slots for each class",
    how="The feature and an embedding of its unknown label read the real memory, a queue of features and true labels "
    "(RMA, Eq. 5); then rows read each other and the synthetic memory (SMA, Eq. 6).",
    bibtex=_citation("qiu2023heterogenous"),
)


IDA = Paper(
    row="rnn+mem",
    title="Progressive Memory Banks for Incremental Domain Adaptation",
    url="https://arxiv.org/abs/1811.00239",
    tags=("memory", "continual-learning", "domain-adaptation"),
    what="a recurrent network reads a memory bank at each step, and the bank grows with each new domain",
    how="The previous hidden state attends to the keys of the bank, and the weighted values are read with the next "
    "word: α_i = softmax(h_{i-1}ᵀ m^(key)), c_i = sum_j α_ij m_j^(val) (Eq. 1-3). `memory_slots` has one entry "
    "for each domain.",
    bibtex=_citation("asghar2020progressive"),
)


WRITABLE_MEMORY = Paper(
    row="write",
    title="",
    url="",
    tags=("memory", "domain-adaptation", "few-shot"),
    what="a memory of labelled rows corrects the answers of a classifier, whose weights stay as they are",
    how="Kernel ridge regression on the classifier's hidden states, from the written rows to the errors of the "
    "classifier. A gate keeps the old domains as they are. All strengths are chosen by leave-one-out predictions.",
    bibtex="",
)


def _kv_memory(encoder: str, backbone: str) -> Family:
    return Family(
        configuration="hf_memaug.configuration.configuration_kv_memory",
        modeling="hf_memaug.modeling.modeling_kv_memory",
        config=f"{encoder}WithKVMemoryConfig",
        backbone=backbone,
        paper=MIL,
        models={
            "AutoModel": (f"{encoder}WithKVMemory",),
            "AutoModelForSequenceClassification": (
                f"{encoder}WithKVMemoryForSequenceClassification",
                f"{encoder}WithKVMemoryForPromptClassification",
            ),
        },
        methods=(
            Method("+memory", "a key-value memory, trained by the task loss", grows=("grow_memory",)),
            Method("mil", "a memory learned across domains, then held fixed", trainer="bilevel"),
        ),
    )


FAMILIES: dict[str, Family] = {
    "roberta_kv_memory": _kv_memory("Roberta", "roberta"),
    "bert_kv_memory": _kv_memory("Bert", "bert"),
    "gmap": Family(
        configuration="hf_memaug.configuration.configuration_gmap",
        modeling="hf_memaug.modeling.modeling_gmap",
        config="GMAPConfig",
        backbone="roberta",
        paper=GMAP,
        models={
            "AutoModel": ("GMAPModel",),
            "AutoModelForSequenceClassification": ("GMAPForSequenceClassification",),
            "AutoModelForTokenClassification": ("GMAPForTokenClassification",),
            "AutoModelForQuestionAnswering": ("GMAPForQuestionAnswering",),
            "AutoModelForMaskedLM": ("GMAPForMaskedLM",),
        },
        methods=(
            Method(
                "gmap",
                "a domain encoder that reads a general one",
                reads=("text", "tags", "questions"),
                born="from_general_and_domain",
                needs_general=True,
            ),
        ),
    ),
    "vit_gmoe": Family(
        configuration="hf_memaug.configuration.configuration_vit_gmoe",
        modeling="hf_memaug.modeling.modeling_vit_gmoe",
        config="ViTGMoEConfig",
        backbone="vit",
        paper=GMOE,
        models={"AutoModel": ("ViTGMoEModel",), "AutoModelForImageClassification": ("ViTGMoEForImageClassification",)},
        methods=(Method("gmoe", "sparse experts in a vision transformer", reads=("image",), born="from_vit"),),
    ),
    "hma": Family(
        configuration="hf_memaug.configuration.configuration_hma",
        modeling="hf_memaug.modeling.modeling_hma",
        config="HMAConfig",
        backbone="bert",
        paper=HMA,
        models={
            "AutoModel": ("HMAHead", "HMAForGraphClassification"),
            "AutoModelForImageClassification": ("HMAForImageClassification",),
            "AutoModelForSequenceClassification": ("HMAForSequenceClassification",),
        },
        methods=(Method("hma", "real and synthetic memory on the feature", reads=("text", "image", "graph")),),
        plain={"augmentation": "none"},
    ),
    "memory_rnn": Family(
        configuration="hf_memaug.configuration.configuration_memory_rnn",
        modeling="hf_memaug.modeling.modeling_memory_rnn",
        config="MemoryRNNConfig",
        backbone=None,
        paper=IDA,
        models={
            "AutoModel": ("MemoryRNNModel",),
            "AutoModelForSequenceClassification": ("MemoryRNNForSequenceClassification",),
            "AutoModelForSeq2SeqLM": ("MemoryRNNForConditionalGeneration",),
        },
        methods=(
            Method(
                "memory-rnn",
                "a recurrent network with a bank of slots",
                reads=("text", "replies"),
                born="config",
                grows=("grow_memory", "grow_vocabulary", "grow_hidden"),
            ),
        ),
    ),
    "writable_memory": Family(
        configuration="hf_memaug.configuration.configuration_writable_memory",
        modeling="hf_memaug.modeling.modeling_writable_memory",
        config="WritableMemoryConfig",
        backbone="bert",
        paper=WRITABLE_MEMORY,
        models={
            "AutoModelForImageClassification": ("WritableMemoryForImageClassification",),
            "AutoModelForSequenceClassification": ("WritableMemoryForSequenceClassification",),
        },
        methods=(
            Method(
                "write",
                "labelled rows of the target, written to a memory on the checkpoint of erm",
                reads=("text", "image"),
                born="from_classifier",
                needs_shots=True,
                trains=False,
            ),
        ),
    ),
}

BACKBONES: dict[str, Backbone] = {
    "graph_network": Backbone(
        configuration="hf_memaug.configuration.configuration_graph_network",
        modeling="hf_memaug.modeling.modeling_graph_network",
        config="GraphNetworkConfig",
        models={"AutoModel": ("GraphNetworkModel",)},
    )
}


def graph_family() -> Family:
    """The family that reads graphs. It also makes the plain models of graphs."""
    return next(family for family in FAMILIES.values() if family.graph_model)


def public_names() -> dict[str, Family | Backbone]:
    """The public configurations and models, with the rows that load them."""
    rows = (*FAMILIES.values(), *BACKBONES.values())
    return {name: row for row in rows for name in (row.config, *row.model_names)}


def row_name(config, algorithm: str) -> str:
    """The name of a trained model in result tables: `erm`, `+memory`, `irm+memory`, `gmoe+coral`, `prompt-a+hma`."""
    family = FAMILIES.get(config.model_type)
    if family is None or not (getattr(config, "reads_memory", True) or getattr(config, "prompt_tokens", 0)):
        return algorithm
    row = getattr(config, "method_row", family.paper.row)
    if algorithm == "erm":
        return row
    return f"{algorithm}{row}" if row.startswith("+") else f"{row}+{algorithm}"
