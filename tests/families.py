# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
The tiny factories: one for each family. The common tests run over every class of every family in the registry, and find
here how to build it and what to feed it.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from tiny_backbones import IMAGES, SIZES, tiny_image_processor, tiny_tokenizer
from writable_rows import write_rows

import hf_memaug
from hf_memaug.data.graphs import GraphCollator
from hf_memaug.registry import FAMILIES

MEMORY = {"memory_slots": 12, "memory_key_size": 8, "memory_heads": 4}


def kv_memory_config(model_type: str, **kwargs):
    config_class = FAMILIES[model_type].load(FAMILIES[model_type].config)
    ids = {"pad_token_id": 1 if "roberta" in model_type else 0, "mask_token_id": 4}
    return config_class(**{"vocab_size": 99, "num_labels": 3, **SIZES, **MEMORY, **ids, **kwargs})


def gmap_config(model_type: str, kind: str = "roberta", **kwargs):
    """What is a field of an encoder is both encoders'."""
    config_class = FAMILIES[model_type].load(FAMILIES[model_type].config)
    own = {name: kwargs.pop(name) for name in list(kwargs) if name in config_class.__dataclass_fields__}
    labels = {"num_labels": kwargs.pop("num_labels", 3)} if "id2label" not in own else {}
    pad = 1 if kind == "roberta" else 0
    # In a chunk of one layer, or of layers that hardly differ, the gate would have nothing to choose.
    differing = {"num_hidden_layers": 4, "initializer_range": 0.2}
    sizes = {"model_type": kind, "vocab_size": 99, "pad_token_id": pad, **SIZES, **differing, **kwargs}
    return config_class(**{"general": dict(sizes), "domain": dict(sizes), **labels, **own})


def vit_gmoe_config(model_type: str = "vit_gmoe", **kwargs):
    config_class = FAMILIES[model_type].load(FAMILIES[model_type].config)
    sizes = {name: value for name, value in SIZES.items() if name != "max_position_embeddings"}
    # Experts in the first and in the last of three layers, and experts that differ.
    own = {"num_hidden_layers": 3, "initializer_range": 0.2, "num_experts": 4, "router_dim": 8}
    own |= {} if {"num_hidden_layers", "moe_placement"} & set(kwargs) else {"moe_layers": [0, 2]}
    labels = {"num_labels": 3} if "id2label" not in kwargs else {}
    return config_class(**{**sizes, **IMAGES, **own, **labels, **kwargs})


def hma_config(model_type: str = "hma", kind: str | None = "vit", **kwargs):
    """What is no field of the memories' is the backbone's; `kind=None` is a head alone."""
    config_class = FAMILIES[model_type].load(FAMILIES[model_type].config)
    own = {name: kwargs.pop(name) for name in list(kwargs) if name in config_class.__dataclass_fields__}
    labels = {"num_labels": kwargs.pop("num_labels", 3)} if "id2label" not in own else {}
    sizes = {**SIZES, "num_hidden_layers": 2, "initializer_range": 0.2, **kwargs}
    if kind == "vit":
        del sizes["max_position_embeddings"]
        own["backbone_config"] = {"model_type": "vit", **IMAGES, **sizes}
    elif kind == "bert":
        own["backbone_config"] = {"model_type": "bert", "vocab_size": 99, "pad_token_id": 0, **sizes}
    elif kind == "graph_network":
        graph = {"node_vocab_sizes": [5], "edge_vocab_sizes": [3], "dropout": sizes["hidden_dropout_prob"]}
        graph |= {name: value for name, value in kwargs.items() if name in graph}
        own["backbone_config"] = {"model_type": kind, "hidden_size": 32, "num_hidden_layers": 2, **graph}
    else:
        own.setdefault("feature_size", 32)
    memory = {"real_memory_size": 24, "synthetic_slots": 2, "label_embedding_size": 8, "initializer_range": 0.2}
    return config_class(**{**memory, **labels, **own})


def fill_real_memory(model) -> None:
    """Of an empty memory nobody can read."""
    head = getattr(model, "head", model)
    if head.memory is not None and head.memory.queue is not None:
        memory = head.memory.queue
        memory.write(torch.randn(20, memory.slots.shape[1]), torch.arange(20) % 3)


def memory_rnn_config(model_type: str = "memory_rnn", **kwargs):
    config_class = FAMILIES[model_type].load(FAMILIES[model_type].config)
    # What the tests set for transformers.
    for name in ("max_position_embeddings", "intermediate_size"):
        kwargs.pop(name, None)
    sizes = {"vocab_size": 99, "hidden_size": 32, "embedding_size": 24, "memory_slots": [8, 4], "classifier_size": 16}
    labels = {"num_labels": 3} if "id2label" not in kwargs else {}
    return config_class(**{**sizes, **labels, **kwargs})


def memory_rnn_weights(config, rows, length):
    """The first word of each direction reads nothing."""
    total = torch.ones(rows, 2, length)
    total[:, 0, 0] = total[:, 1, -1] = 0
    return (rows, 2, length, config.total_slots), total


def writable_memory_config(model_type: str = "writable_memory", kind: str = "bert", **kwargs):
    """What is no field of the memory's is the classifier's."""
    config_class = FAMILIES[model_type].load(FAMILIES[model_type].config)
    own = {name: kwargs.pop(name) for name in list(kwargs) if name in config_class.__dataclass_fields__}
    labels = {"num_labels": kwargs.pop("num_labels", 3)} if "id2label" not in own else {"id2label": own["id2label"]}
    sizes = {**SIZES, "num_hidden_layers": 3, "initializer_range": 0.2, **labels, **kwargs}
    if kind == "vit":
        del sizes["max_position_embeddings"]
        classifier = {"model_type": "vit", **IMAGES, **sizes}
    else:
        classifier = {"model_type": "bert", "vocab_size": 99, "pad_token_id": 0, **sizes}
    return config_class(**{"classifier_config": classifier, **labels, **own})


@dataclass(frozen=True)
class Tiny:
    """
    What the common tests need to know of a family.

    Args:
        config: `(model_type, **kwargs)` to a small configuration.
        shape: a field that shapes the memory, its value in `config`, and another.
        misspelt: a field with a slip, and the field that was meant.
        weights: a configuration and the inputs' shape, to the shape of `memory_weights` and the sum of its last axis.
        memory: the name of the modules that an adapter saves whole.
        adapted: part of the names of the layers that adapters go to where none are named.
        steady: fields that turn off what is drawn afresh at each step, where a test cuts one batch in several ways.
        additive: fields that also leave a loss which is a mean over rows, and nothing that is of a batch as a whole.
        prepare: what is done to a fresh model before anything is asked of it.
        kinds: the backbone of each class, where they have different ones.
        trains_memory: whether the memory has parameters.
    """

    config: Callable
    shape: tuple[str, Any, Any]
    misspelt: tuple[str, str]
    weights: Callable
    memory: str = "memory"
    adapted: str = "attention"
    steady: dict = field(default_factory=dict)
    additive: dict = field(default_factory=dict)
    prepare: Callable = lambda model: None
    kinds: dict = field(default_factory=dict)
    trains_memory: bool = True


KV_MEMORY = Tiny(
    config=kv_memory_config,
    shape=("memory_slots", 12, 20),
    misspelt=("memory_slot", "memory_slots"),
    weights=lambda config, rows, length: ((rows, config.memory_heads, config.memory_slots), 1.0),
)
TINY = {
    "roberta_kv_memory": KV_MEMORY,
    "bert_kv_memory": KV_MEMORY,
    "gmap": Tiny(
        config=gmap_config,
        shape=("strategy", "chunk_gated", "gated"),
        misspelt=("memory_layer", "memory_layers"),
        # Two gates, each with a sum of 1.
        weights=lambda config, rows, length: ((rows, length, config.num_hidden_layers), 2.0),
    ),
    "vit_gmoe": Tiny(
        config=vit_gmoe_config,
        shape=("num_experts", 4, 6),
        misspelt=("num_expert", "num_experts"),
        weights=lambda config, rows, channels: ((rows, len(config.expert_layers), 17, config.num_experts), 1.0),
        memory="moe",
        steady={"router_noise": 0.0},
        additive={"router_noise": 0.0, "aux_loss_weight": 0.0},
    ),
    "hma": Tiny(
        config=hma_config,
        shape=("synthetic_slots", 2, 4),
        misspelt=("synthetic_slot", "synthetic_slots"),
        # The real memory and the row, and the synthetic slots and the row, each with a sum of 1.
        weights=lambda config, rows, _: ((rows, config.memory_heads, 24 + 1 + 3 * 2 + 1), 2.0),
        steady={"augmentation": "rma"},
        additive={"augmentation": "rma"},
        prepare=fill_real_memory,
        kinds={
            "HMAHead": None,
            "HMAForImageClassification": "vit",
            "HMAForSequenceClassification": "bert",
            "HMAForGraphClassification": "graph_network",
        },
    ),
    "memory_rnn": Tiny(
        config=memory_rnn_config,
        shape=("memory_slots", [8, 4], [8, 4, 8]),
        misspelt=("memory_slot", "memory_slots"),
        weights=memory_rnn_weights,
        adapted="input_projection",
    ),
}
TINY["writable_memory"] = Tiny(
    config=writable_memory_config,
    shape=("memory_rows", 60, 61),
    misspelt=("memory_row", "memory_rows"),
    weights=lambda config, rows, length: ((rows, config.memory_landmarks), 1.0),
    prepare=write_rows,
    kinds={"WritableMemoryForImageClassification": "vit", "WritableMemoryForSequenceClassification": "bert"},
    trains_memory=False,
)
CONFIGS = {model_type: tiny.config for model_type, tiny in TINY.items()}


@dataclass(frozen=True)
class Case:
    """One class of one family."""

    model_type: str
    name: str

    @property
    def model_class(self):
        return getattr(hf_memaug, self.name)

    @property
    def has_head(self) -> bool:
        return "For" in self.name

    @property
    def backbone(self) -> str:
        return self.tiny.kinds.get(self.name) or FAMILIES[self.model_type].backbone

    @property
    def auto_class(self) -> str:
        return next(auto for auto, names in FAMILIES[self.model_type].models.items() if self.name in names)

    @property
    def tiny(self) -> Tiny:
        return TINY[self.model_type]

    @property
    def is_image(self) -> bool:
        """Whether it is fed with images, and not with text."""
        return self.model_class.main_input_name == "pixel_values"

    @property
    def is_graph(self) -> bool:
        return self.model_class.main_input_name == "node_features"

    @property
    def is_text(self) -> bool:
        return self.model_class.main_input_name == "input_ids"

    @property
    def is_per_token(self) -> bool:
        """Whether there is an output for each token."""
        per_token = ("TokenClassification", "QuestionAnswering", "MaskedLM", "GMAPModel", "MemoryRNNModel")
        return self.name.endswith(per_token)

    def config(self, **kwargs):
        if self.name.endswith("ForPromptClassification"):
            kwargs = {"memory_pooling": "mask", "verbalizer_token_ids": [[7], [8, 9], [10]], **kwargs}
        if self.tiny.kinds:
            kwargs = {"kind": self.tiny.kinds[self.name], **kwargs}
        return CONFIGS[self.model_type](self.model_type, **kwargs)

    def model(self, seed: int = 0, **kwargs):
        torch.manual_seed(seed)
        model = self.model_class(self.config(**kwargs)).eval()
        self.tiny.prepare(model)
        return model

    def inputs(self, rows: int = 3, length: int = 9, seed: int = 1, labels: bool = False) -> dict:
        generator = torch.Generator().manual_seed(seed)
        if self.is_graph:
            return GraphCollator()(self.graphs(rows, generator, labels))
        if not self.is_text:
            shape = (3, 16, 16) if self.is_image else (32,)
            inputs = {self.model_class.main_input_name: torch.randn(rows, *shape, generator=generator)}
            return inputs | ({"labels": torch.arange(rows) % 3} if labels and self.has_head else {})
        ids = torch.randint(11, 99, (rows, length), generator=generator)
        ids[:, 0] = 2
        ids[:, 3] = 4  # the mask token
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if self.name.endswith("ConditionalGeneration"):
            inputs["decoder_input_ids"] = ids.flip(1)
        if labels and self.has_head:
            if self.name.endswith("QuestionAnswering"):
                inputs |= {"start_positions": torch.arange(rows) % 3 + 1, "end_positions": torch.arange(rows) % 3 + 4}
            elif self.name.endswith(("MaskedLM", "ConditionalGeneration")):
                inputs["labels"] = ids
            else:
                inputs["labels"] = ids % 3 if self.is_per_token else torch.arange(rows) % 3
        return inputs

    def graphs(self, rows: int, generator: torch.Generator, labels: bool = True) -> list[dict]:
        """Rings of different lengths, some of whose nodes and edges differ."""
        found = []
        for row in range(rows):
            size = 4 + row % 3
            ring = torch.stack([torch.arange(size), (torch.arange(size) + 1) % size])
            graph = {
                "node_features": torch.randint(0, 5, (size, 1), generator=generator).tolist(),
                "edge_index": torch.cat([ring, ring.flip(0)], dim=1).tolist(),
                "edge_features": torch.randint(0, 3, (2 * size, 1), generator=generator).tolist(),
            }
            found.append({"graph": graph, **({"label": row % 3} if labels else {})})
        return found

    def alone(self, inputs: dict, row: int) -> dict:
        """One row of a batch."""
        if not self.is_graph:
            return {name: value[row : row + 1] for name, value in inputs.items()}
        nodes, first = inputs["graph_index"] == row, int((inputs["graph_index"] < row).sum())
        edges = nodes[inputs["edge_index"][0]]
        return {
            "node_features": inputs["node_features"][nodes],
            "edge_index": inputs["edge_index"][:, edges] - first,
            "edge_features": inputs["edge_features"][edges],
            "graph_index": torch.zeros(int(nodes.sum()), dtype=torch.long),
            "num_graphs": 1,
        }

    def training_rows(self, rows: int) -> tuple[list[dict], Any]:
        """Rows for `Trainer`, and what puts them together, if not its own collator."""
        if self.is_graph:
            return self.graphs(rows, torch.Generator().manual_seed(1)), GraphCollator()
        inputs = self.inputs(rows=rows, labels=True)
        if "labels" in inputs and inputs["labels"].ndim == 2:
            # Rows have more labels or fewer.
            inputs["labels"] = inputs["labels"].clone()
            for row in range(rows):
                inputs["labels"][row, : row % 4] = -100
        return [{key: value[row] for key, value in inputs.items()} for row in range(rows)], None

    def __str__(self) -> str:
        return self.name


CASES = [Case(model_type, name) for model_type, family in FAMILIES.items() for name in family.model_names]
TEXT_CASES = [case for case in CASES if case.is_text]
HEADS = [case for case in CASES if case.has_head]
# A writable memory with rows refuses to be trained.
TRAINED_HEADS = [case for case in HEADS if case.tiny.trains_memory]
CLASSIFIERS = [case for case in HEADS if case.auto_class == "AutoModelForSequenceClassification"]
KV_CASES = [case for case in CASES if case.tiny is KV_MEMORY]


FEATURES = ("logits", "start_logits", "augmented_features", "last_hidden_state")


def features_of(output) -> torch.Tensor:
    """What a class is for: its logits, or its features."""
    return next(output[name] for name in FEATURES if name in output)


def tiny_processor(case: Case):
    """What makes inputs of texts or of images for a class."""
    return tiny_image_processor() if case.is_image else tiny_tokenizer(case.backbone)


def save_tokenizer_and_model(case: Case, folder, **kwargs) -> None:
    """A checkpoint of one of our classes with a tokenizer that fits it."""
    tokenizer = tiny_tokenizer(case.backbone)
    case.model(vocab_size=len(tokenizer), **kwargs).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def leave_together() -> None:
    """
    The end of a script that is one of several processes. Threads of the process group outlive the interpreter now and
    then, which aborts the process: it goes without looking back, once all others have come so far.
    """
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        os._exit(0)
