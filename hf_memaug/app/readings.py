# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Which slots, layers or experts answered, and what lives in them. One reader for each kind of memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from hf_memaug.app.checkpoints import Checkpoint
from hf_memaug.evaluation.checks import as_numpy
from hf_memaug.reporting import memory_maps
from hf_memaug.reporting.expert_maps import as_seen, first_experts, patch_size

# How many places of a memory are shown one by one, and how much of what lives in one.
MOST_PLACES, MOST_CONTENTS = 8, 3
# Of the rows beside a checkpoint, how many are asked which slots they read.
MOST_ROWS, _ROWS_AT_ONCE = 200, 16
_LONGEST_QUOTE = 160


@dataclass(frozen=True)
class Place:
    """
    One place of a memory.

    Args:
        name: such as "slot 17" or "expert 3".
        share: how much of all that was read here was read of it.
        owner: the domain or the class it belongs to.
        contents: what lives in it, in words.
        readers: of the reads that `memory.json` counts, which part each domain has.
    """

    name: str
    share: float
    owner: str | None = None
    contents: tuple[str, ...] = ()
    readers: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """
    What one memory answered.

    Args:
        title: which memory.
        about: what the shares are shares of.
        places: those that were read most, the most first.
        others: how many more there are, and `rest`, the share of all of them.
        groups: the share of each domain or class, where places belong to one.
        source: where `contents` and `readers` come from, or why there are none.
    """

    title: str
    about: str
    places: tuple[Place, ...]
    others: int = 0
    rest: float = 0.0
    groups: dict[str, float] = field(default_factory=dict)
    source: str = ""


@dataclass(frozen=True)
class PatchMap:
    """The expert that says most of each patch: `image` (height, width, 3) and `experts` (patch rows, columns)."""

    title: str
    image: np.ndarray
    experts: np.ndarray
    patch: tuple[int, int]
    num_experts: int


@dataclass(frozen=True)
class Asked:
    """One question: the inputs of the model, what it put out, and what was given."""

    inputs: dict[str, torch.Tensor]
    output: Any
    image: Any = None
    said: torch.Tensor | None = None


def make_reading(title: str, about: str, shares: Sequence[float], place: Callable[[int], dict], **kwargs) -> Reading:
    """The places with the largest shares; `place` gives the fields of one by its number."""
    shares = np.asarray(shares, dtype=np.float64)
    order = np.argsort(-shares, kind="stable")[:MOST_PLACES]
    places = tuple(Place(share=float(shares[number]), **place(int(number))) for number in order)
    rest = max(0.0, float(shares.sum() - shares[order].sum()))
    return Reading(title, about, places, len(shares) - len(places), rest, **kwargs)


def by_slot(weights: torch.Tensor) -> np.ndarray:
    """`(rows, ..., slots)` to what each row reads of each slot over heads, directions and words; adds up to 1."""
    sums = weights.float().flatten(1, -2).sum(dim=1) if weights.ndim > 2 else weights.float()
    return as_numpy(sums / sums.sum(dim=-1, keepdim=True).clamp(min=1e-12))


# What lives in slots


@dataclass(frozen=True)
class SlotFacts:
    """What is known of the slots of a checkpoint, gathered once: `reads` is (rows, slots) of `rows`."""

    rows: tuple[str, ...] = ()
    reads: np.ndarray | None = None
    words: Callable[[int], tuple[str, ...]] | None = None
    source: str = ""

    def contents(self, slot: int) -> tuple[str, ...]:
        if self.reads is not None:
            most = np.argsort(-self.reads[:, slot], kind="stable")[:MOST_CONTENTS]
            return tuple(f"{self.rows[row]} reads {self.reads[row, slot]:.1%} of its memory here" for row in most)
        return self.words(slot) if self.words is not None else ()


def gather_slot_facts(checkpoint: Checkpoint, encode: Callable[..., dict]) -> SlotFacts:
    """
    Who reads which slot, of the texts beside the checkpoint; without these, the words whose embeddings are nearest.

    Args:
        encode: texts, and seconds texts or None, to the model's inputs, padded.
    """
    model, beside = checkpoint.model, checkpoint.beside
    if checkpoint.config.model_type == "hma" or checkpoint.modality != "text" or checkpoint.task != "classification":
        return SlotFacts()
    if not getattr(checkpoint.config, "reads_memory", True) or checkpoint.config.model_type == "gmap":
        return SlotFacts()
    if beside.texts:
        chosen = np.linspace(0, len(beside.texts) - 1, min(MOST_ROWS, len(beside.texts))).round().astype(int)
        texts, reads = [beside.texts[row] for row in chosen], []
        with torch.no_grad():
            for start in range(0, len(texts), _ROWS_AT_ONCE):
                part = texts[start : start + _ROWS_AT_ONCE]
                pairs = None
                if checkpoint.pairs == "needed":
                    # Both texts of a row lie there with a line break between.
                    part, pairs = zip(
                        *((one.partition("\n")[0], one.partition("\n")[2] or one) for one in part), strict=True
                    )
                output = model(**encode(list(part), pairs and list(pairs)), output_memory_weights=True)
                reads.append(by_slot(output.memory_weights))
        rows = tuple(_quoted(beside, row) for row in chosen)
        source = f"Under each slot: which of {len(texts)} texts of `features.npz`, beside the checkpoint, read it most."
        return SlotFacts(rows, np.concatenate(reads), source=source)
    memory = getattr(model.base_model, "memory", None)
    if hasattr(memory, "slot_values") and hasattr(memory, "output"):
        source = (
            "No `features.npz` lies beside the checkpoint, so nobody knows which texts read a slot. Under each slot: "
            "the words whose input embeddings are nearest (by cosine) to what it answers. The memory stands behind the "
            "last layer, where words no longer look like their embeddings: take them for a hint, no more."
        )
        return SlotFacts(words=_nearest_words(checkpoint, memory), source=source)
    return SlotFacts(source="No `features.npz` lies beside the checkpoint, so nobody knows which texts read a slot.")


def _quoted(beside, row: int) -> str:
    text = " ".join(beside.texts[row].split())
    text = text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE].rstrip(' …')}…"
    known = [values[row] for values in (beside.domains, beside.labels) if values and values[row]]
    return f"“{text}”" + (f" ({', '.join(known)})" if known else "")


@torch.no_grad()
def _nearest_words(checkpoint: Checkpoint, memory) -> Callable[[int], tuple[str, ...]]:
    tokenizer = checkpoint.processor
    embeddings = checkpoint.model.get_input_embeddings().weight.float()
    tokens = tokenizer.convert_ids_to_tokens(list(range(min(len(tokenizer), len(embeddings)))))
    special = set(tokenizer.all_special_ids)
    # Pieces of words say little: byte-level tokenizers mark those that begin a word, the others those that do not.
    marked = any(str(token).startswith(("Ġ", "▁")) for token in tokens)
    kept, names = [], []
    for number, token in enumerate(tokens):
        name = str(token).lstrip("Ġ▁")
        begins = str(token).startswith(("Ġ", "▁")) if marked else not str(token).startswith("##")
        if number not in special and begins and len(name) > 1 and name.isalpha():
            kept.append(number)
            names.append(name)
    if not kept:
        return lambda slot: ()
    table = torch.nn.functional.normalize(embeddings[kept], dim=-1)

    @torch.no_grad()
    def words(slot: int) -> tuple[str, ...]:
        # Eq. 2 if this slot alone were read by all heads.
        said = memory.output.weight.float() @ memory.slot_values[:, slot].float().sum(dim=0)
        nearest = (table @ torch.nn.functional.normalize(said, dim=0)).topk(min(5, len(names)))
        found = zip(nearest.values.tolist(), nearest.indices.tolist(), strict=True)
        return ("nearest words: " + ", ".join(f"{names[place]} ({score:.2f})" for score, place in found),)

    return words


def _readers(checkpoint: Checkpoint, number: int, by_domain: dict | None = None) -> dict[str, float]:
    """Of all that domains read of one place, which part each has, by `memory.json`."""
    found = by_domain if by_domain is not None else checkpoint.beside.memory.get("by_domain")
    try:
        reads = {str(name): float(of[number]) for name, of in (found or {}).items()}
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return {}
    total = sum(reads.values())
    return {name: read / total for name, read in reads.items()} if total > 0 else {}


def slot_owners(config) -> list[str] | None:
    """The domain that each slot came with, where there are several."""
    sizes = getattr(config, "slots_per_domain", None) or []
    if len(sizes) < 2:
        return None
    facts = getattr(config, "run_facts", None) or {}
    stages = (facts.get("continual") or {}).get("stages") or []
    names = [" + ".join(map(str, stage.get("domains", ()))) for stage in stages]
    if len(names) != len(sizes):
        names = list(map(str, facts.get("domains") or ()))
    if len(names) != len(sizes):
        names = [f"domain {number}" for number in range(1, len(sizes) + 1)]
    return [name for name, size in zip(names, sizes, strict=True) for _ in range(size)]


# The readers


def read_slots_of(
    checkpoint: Checkpoint, weights: torch.Tensor, facts: SlotFacts, title: str, about: str, json_fits: bool = True
) -> Reading:
    shares, owners = by_slot(weights)[0], slot_owners(checkpoint.config)
    groups: dict[str, float] = {}
    for owner, share in zip(owners or (), shares, strict=False):
        groups[owner] = groups.get(owner, 0.0) + float(share)

    def place(slot: int) -> dict:
        readers = _readers(checkpoint, slot) if json_fits else {}
        owner = owners[slot] if owners else None
        return {"name": f"slot {slot}", "owner": owner, "contents": facts.contents(slot), "readers": readers}

    source = facts.source
    if json_fits and checkpoint.beside.memory.get("by_domain"):
        source = f"{source} Which domains read a slot is counted in `memory.json`.".strip()
    return make_reading(title, about, shares, place, groups=groups, source=source)


def read_key_values(checkpoint: Checkpoint, asked: Asked, facts: SlotFacts) -> list[Reading]:
    config = checkpoint.config
    about = (
        f"Of what {config.memory_heads} heads read in {config.memory_slots} slots. The answer is mixed in with the "
        f"weight λ = {config.memory_weight}."
    )
    return [read_slots_of(checkpoint, asked.output.memory_weights, facts, "Memory slots", about)]


def read_bank(checkpoint: Checkpoint, asked: Asked, facts: SlotFacts) -> list[Reading]:
    slots = checkpoint.config.total_slots
    about = f"Of what all words of the text read in {slots} slots, in each direction."
    found = [read_slots_of(checkpoint, asked.output.memory_weights, facts, "Slots of the memory bank", about)]
    written = getattr(asked.output, "decoder_memory_weights", None)
    if written is not None:
        about = f"Of what all words of the answer read in the {slots} slots of the decoder's own bank."
        none = SlotFacts(
            source="Nothing is known of who reads the slots of a decoder, but for the domain they came with."
        )
        found.append(read_slots_of(checkpoint, written, none, "Slots of the decoder's bank", about, json_fits=False))
    return found


def read_general_memory(checkpoint: Checkpoint, asked: Asked, facts: SlotFacts) -> list[Reading]:
    """G-MAP: the layers that its gates chose, and the tokens that its attention read."""
    model, config, found = checkpoint.model, checkpoint.config, []
    weights = asked.output.memory_weights
    if weights is not None:
        depth, readers = weights.shape[-1], config.augmented_layers
        gates = 2 if config.strategy == "chunk_gated" else 1

        def place(number: int) -> dict:
            reader = readers[0] if gates == 1 or number < depth // 2 else readers[1]
            lives = f"what it makes of this text; layer {reader} of the domain encoder reads it"
            return {"name": f"layer {number + 1}", "contents": (lives,), "readers": _readers(checkpoint, number)}

        about = f"How {gates} gate{'s' * (gates > 1)} weigh the {depth} layers of the general encoder, over all tokens."
        source = "The memory is the general encoder's states of the very text that is asked: it stores nothing else."
        if checkpoint.beside.memory.get("by_domain"):
            source += " Which domains lean on a layer is counted in `memory.json`."
        shares = as_numpy(weights[0].float().mean(dim=0)) / gates
        found.append(make_reading("Layers of the general encoder", about, shares, place, source=source))
    ids = asked.inputs["input_ids"][0].tolist()
    attentions = _attentions(model, asked.inputs) if config.fusion == "memory_attention" else ()
    special = set(checkpoint.processor.all_special_ids)
    for layer in config.augmented_layers:
        if layer > len(attentions) or attentions[layer - 1].shape[-1] != 2 * len(ids):
            continue
        of_memory = attentions[layer - 1][0, :, :, len(ids) :].float().mean(dim=(0, 1))
        share = float(of_memory.sum())
        names = checkpoint.processor.convert_ids_to_tokens(ids)
        names = [checkpoint.processor.convert_tokens_to_string([name]).strip() or name for name in names]

        def token(number: int, names=names) -> dict:
            kind = "a mark of the tokenizer" if ids[number] in special else f"token {number + 1} of the text"
            return {"name": names[number], "contents": (f"the general encoder's state of {kind}",)}

        found.append(
            make_reading(
                f"What layer {layer} reads of the memory",
                f"This layer of the domain encoder gives {share:.0%} of its attention to the memory; the shares are of "
                "that, over all heads and tokens.",
                as_numpy(of_memory) / max(share, 1e-12),
                token,
            )
        )
    return found


def _attentions(model, inputs: dict) -> tuple:
    before = model.config._attn_implementation
    try:
        # The others never hold the weights in memory, and so cannot give them.
        model.set_attn_implementation("eager")
        return model(**inputs, output_attentions=True).attentions or ()
    finally:
        model.set_attn_implementation(before)


def read_heterogenous(checkpoint: Checkpoint, asked: Asked, facts: SlotFacts) -> list[Reading]:
    """HMA: the stored datapoints, and the learned slots of each class."""
    model, labels, features = checkpoint.model, checkpoint.labels, asked.output.features
    head, found = memory_maps.hma_of(model).head, []
    if head.config.has("real") and not head.memory.queue.filled.any():
        found.append(Reading("Real memory", "It is empty: no row was written into it in training.", ()))
    elif head.config.has("real"):
        real = memory_maps.real_attention(model, features)
        counts = np.bincount(real.slot_labels, minlength=len(labels))
        groups = {
            f"{label} ({counts[number]} stored)": float(real.slots[0, real.slot_labels == number].sum())
            for number, label in enumerate(labels)
        }

        def stored(slot: int) -> dict:
            return {"name": f"datapoint {slot}", "owner": labels[real.slot_labels[slot]]}

        about = (
            f"Of {len(real.slot_labels)} training rows, the last that were written; the row asked reads "
            f"{real.own[0]:.0%} of itself."
        )
        source = "The memory keeps the feature and the class of a row, not its text, picture or molecule."
        found.append(make_reading("Real memory", about, real.slots[0], stored, groups=groups, source=source))
    if head.config.has("synthetic"):
        attention = memory_maps.datapoint_attention(model, features)
        per_class, owners = head.config.synthetic_slots, attention.slot_labels
        groups = {label: float(attention.slots[0, owners == number].sum()) for number, label in enumerate(labels)}

        def learned(slot: int) -> dict:
            name = f"slot {slot % per_class + 1} of {per_class}"
            return {"name": name, "owner": labels[owners[slot]], "readers": _readers(checkpoint, slot)}

        about = (
            f"Of {len(owners)} learned slots, {per_class} for each class; the row asked reads "
            f"{attention.rows[0].sum():.0%} of itself."
        )
        source = "A slot stands for no row: it was learned in training, for its class."
        if checkpoint.beside.memory.get("by_domain"):
            source += " Which domains read it is counted in `memory.json`."
        found.append(make_reading("Synthetic memory", about, attention.slots[0], learned, groups=groups, source=source))
    return found


def read_experts(checkpoint: Checkpoint, asked: Asked, facts: SlotFacts) -> list[Reading]:
    config, memory = checkpoint.config, checkpoint.beside.memory
    (height, width), patch = asked.inputs["pixel_values"].shape[-2:], patch_size(checkpoint.model)
    patches, found = (height // patch[0]) * (width // patch[1]), []
    for place_of_layer, layer in enumerate(config.expert_layers):
        shares = as_numpy(asked.output.memory_weights[0, place_of_layer, -patches:].float().mean(dim=0))
        by_class = memory.get("by_class") if layer == config.expert_layers[-1] else None
        by_layer = memory.get("by_layer")
        by_domain = by_layer.get(str(layer), {}) if isinstance(by_layer, dict) else {}

        def expert(number: int, by_class=by_class, by_domain=by_domain) -> dict:
            classes = sorted(_readers(checkpoint, number, by_class or {}).items(), key=lambda pair: -pair[1])
            lives = ", ".join(f"{name} {share:.0%}" for name, share in classes[:MOST_CONTENTS])
            contents = (f"chosen most for patches of: {lives}",) if lives else ()
            return {
                "name": f"expert {number}",
                "contents": contents,
                "readers": _readers(checkpoint, number, by_domain),
            }

        about = (
            f"How much each of {config.num_experts} experts says of the {patches} patches, of which each has "
            f"{config.num_experts_per_tok}."
        )
        if by_domain or by_class:
            source = "Which classes and domains choose an expert is counted in `memory.json`."
        elif memory:
            source = "`memory.json` says nothing of who chooses the experts of this layer."
        else:
            source = "No `memory.json` lies beside the checkpoint, so nobody knows which classes choose an expert."
        found.append(make_reading(f"Experts of layer {layer}", about, shares, expert, source=source))
    return found


def read_anything(checkpoint: Checkpoint, asked: Asked, facts: SlotFacts) -> list[Reading]:
    """A family that has no reader of its own: whatever the last axis of its weights counts."""
    weights = getattr(asked.output, "memory_weights", None)
    if weights is None:
        return []
    about = f"Of what is read in {weights.shape[-1]} places of the memory."
    return [read_slots_of(checkpoint, weights, facts, "Memory", about)]


def patch_maps(checkpoint: Checkpoint, image) -> list[PatchMap]:
    model, config = checkpoint.model, checkpoint.config
    seen, (experts,) = as_seen(checkpoint.processor, image), first_experts(model, checkpoint.processor, [image])
    return [
        PatchMap(f"layer {layer}", seen, of_layer, patch_size(model), config.num_experts)
        for layer, of_layer in zip(config.expert_layers, experts, strict=True)
    ]


READERS: dict[str, Callable[[Checkpoint, Asked, SlotFacts], list[Reading]]] = {
    "roberta_kv_memory": read_key_values,
    "bert_kv_memory": read_key_values,
    "gmap": read_general_memory,
    "vit_gmoe": read_experts,
    "hma": read_heterogenous,
    "memory_rnn": read_bank,
}
