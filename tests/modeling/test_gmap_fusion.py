# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The memory-augmented layer against slow references, and the plain domain encoder inside."""

import math

import pytest
import torch
import transformers
from modeling.gmap_models import make_inputs, make_model

STRATEGIES = ["single", "multiple", "gated", "chunk_gated"]
every_kind = pytest.mark.parametrize("kind", ["roberta", "bert"])
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)
every_fusion = pytest.mark.parametrize("fusion", ["memory_attention", "cross_attention", "gate_attention"])
every_kernel = pytest.mark.parametrize("implementation", ["eager", "sdpa"])


def plain_domain(model) -> torch.nn.Module:
    """The domain encoder as transformers has it, with the same weights."""
    config = model.config.domain
    encoder = transformers.AutoModel.from_config(config, add_pooling_layer=False).double().eval()
    theirs = {name: value for name, value in model.base_model.domain.state_dict().items() if "memory_" not in name}
    encoder.load_state_dict(theirs)
    return encoder


def slow_reading(attention, asking, read):
    """One head and one token at a time: `asking` (tokens, width) reads `read`, which holds nothing that is hidden."""
    size = attention.attention_head_size
    query, key, value = attention.query(asking), attention.key(read), attention.value(read)
    result = torch.zeros_like(asking)
    for start in range(0, asking.shape[-1], size):
        part = slice(start, start + size)
        for token in range(len(asking)):
            scores = key[:, part] @ query[token, part] / math.sqrt(size)
            result[token, part] = scores.softmax(dim=0) @ value[:, part]  # Eq. 8
    return result


def slow_memory_attention(block, hidden, memory, gates):
    """Eq. 3 to 8: the memory stands behind the tokens."""
    return block.output(slow_reading(block.self, hidden, torch.cat([hidden, memory])), hidden)


def slow_cross_attention(block, hidden, memory, gates):
    """Section 4.2: it fuses the memory with "the output representation from the self-attention module"."""
    own = block.output(slow_reading(block.self, hidden, hidden), hidden)
    if len(memory) == 0:
        return own
    reader = block.memory_reader
    return reader.output(slow_reading(reader.self, own, memory), own)


def slow_gate_attention(block, hidden, memory, gates):
    """Section 4.2: "a gate mechanism to weigh and sum the local and external memory", one gate a head (Wu et al.)."""
    mixed = slow_reading(block.self, hidden, hidden)
    if len(memory):
        found = slow_reading(block.self, hidden, memory)
        for head, gate in enumerate(gates):
            share = 1 / (1 + math.exp(-gate))
            part = slice(head * block.self.attention_head_size, (head + 1) * block.self.attention_head_size)
            mixed[:, part] = share * found[:, part] + (1 - share) * mixed[:, part]
    return block.output(mixed, hidden)


@every_kind
@every_fusion
@every_kernel
@pytest.mark.parametrize("masked", [False, True])
def test_every_fusion_is_its_slow_reference(kind, fusion, implementation, masked):
    model, inputs = make_model(kind=kind, fusion=fusion), make_inputs()
    model.set_attn_implementation(implementation)
    slow = {"memory": slow_memory_attention, "cross": slow_cross_attention, "gate": slow_gate_attention}
    slow = slow[fusion.removesuffix("_attention")]
    seen = {}
    for layer in model.config.augmented_layers:
        block = model.domain.encoder.layer[layer - 1].attention
        with torch.no_grad():
            # Norms, biases and gates too: as initialised, many do nothing.
            for parameter in [*block.parameters(), *model.memory.parameters()]:
                parameter += 0.3 * torch.randn_like(parameter)

        def remember(module, args, kwargs, output, layer=layer):
            seen[layer] = (args[0], kwargs["memory"], output[0])

        block.register_forward_hook(remember, with_kwargs=True)
    memory_mask = inputs["attention_mask"].clone()
    if masked:
        memory_mask[0, 2:4] = 0
        memory_mask[1] = 0  # nothing to read
    with torch.no_grad():
        model(**inputs, **({"memory_mask": memory_mask} if masked else {}))
        for number, (layer, (hidden, memory, output)) in enumerate(sorted(seen.items())):
            block = model.domain.encoder.layer[layer - 1].attention
            gates = model.memory.head_gates[number].tolist() if fusion == "gate_attention" else None
            for row in range(3):
                kept, read = inputs["attention_mask"][row].bool(), memory_mask[row].bool()
                expected = slow(block, hidden[row][kept], memory[row][read], gates)
                torch.testing.assert_close(output[row][kept], expected, rtol=0, atol=1e-10)
    assert sorted(seen) == [2, 4]


@every_kind
@every_fusion
@every_kernel
@pytest.mark.parametrize("padded", [True, False])
def test_with_nothing_to_read_every_fusion_is_the_plain_domain_encoder(kind, fusion, implementation, padded):
    model, inputs = make_model(kind=kind, fusion=fusion), make_inputs(padded)
    model.set_attn_implementation(implementation)
    plain = plain_domain(model)
    plain.set_attn_implementation(implementation)
    expected = plain(**inputs).last_hidden_state
    memory_mask = inputs["attention_mask"].clone()
    memory_mask[1] = 0
    hidden = model(**inputs, memory_mask=memory_mask).last_hidden_state
    if fusion == "memory_attention":
        # Its kernels add up longer rows, of which the hidden part is zero.
        torch.testing.assert_close(hidden[1], expected[1], rtol=0, atol=1e-12)
    else:
        assert torch.equal(hidden[1], expected[1])
    assert (hidden - expected)[[0, 2]].abs().amax(dim=(1, 2)).min() > 1e-3, "the other rows read"
    hidden.sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@every_kind
@every_strategy
def test_with_the_memory_masked_it_is_the_plain_domain_encoder(kind, strategy):
    model, inputs = make_model(kind=kind, strategy=strategy), make_inputs()
    hidden = model(**inputs, memory_mask=torch.zeros_like(inputs["input_ids"])).last_hidden_state
    expected = plain_domain(model)(**inputs).last_hidden_state
    torch.testing.assert_close(hidden, expected, rtol=0, atol=1e-12)
    assert (model(**inputs).last_hidden_state - expected).abs().max() > 1e-3, "the memory is not read"


@every_kind
@every_kernel
@pytest.mark.parametrize("padded", [True, False])
def test_a_mask_of_the_memory_hides_what_it_masks(kind, implementation, padded):
    model, inputs = make_model(kind=kind), make_inputs(padded)
    model.set_attn_implementation(implementation)
    states = torch.stack(model.general_states(**inputs), dim=1)
    memory_mask = inputs["attention_mask"].clone()
    memory_mask[:, 4] = 0
    changed = states.clone()
    changed[:, :, 4] += 1.0

    def read(states, **kwargs):
        return model(**inputs, general_hidden_states=states, **kwargs).last_hidden_state

    torch.testing.assert_close(
        read(states, memory_mask=memory_mask), read(changed, memory_mask=memory_mask), rtol=0, atol=1e-12
    )
    seen = [read(states), read(changed)]
    assert (seen[0] - seen[1]).abs().max() > 1e-3
    # The tokens' own mask is the default.
    by_hand = read(states, memory_mask=inputs["attention_mask"])
    torch.testing.assert_close(by_hand, seen[0], rtol=0, atol=1e-12)


@every_kind
@every_fusion
def test_padding_stays_hidden_whatever_the_mask_of_the_memory_says(kind, fusion):
    model, inputs = make_model(kind=kind, fusion=fusion), make_inputs(True)
    own = inputs["attention_mask"].bool()
    everything = torch.ones_like(inputs["attention_mask"])
    with_all, plain = model(**inputs, memory_mask=everything), model(**inputs)
    assert not own.all()
    torch.testing.assert_close(
        with_all.last_hidden_state[own], plain.last_hidden_state[own], rtol=0, atol=1e-12, msg="padding was read"
    )
    with pytest.raises(ValueError, match=r"`memory_mask` has the shape \(1, 2\); it must be \(3, 9\)"):
        model(**inputs, memory_mask=everything[:1, :2])


@every_kind
@every_fusion
@every_strategy
def test_padding_of_the_memory_is_never_read(kind, fusion, strategy):
    model, inputs = make_model(kind=kind, fusion=fusion, strategy=strategy), make_inputs()
    states = torch.stack(model.general_states(**inputs), dim=1)
    changed = states.clone()
    changed[0, :, -3:] += 5.0
    changed[2, :, -1:] += 5.0
    found = [model(**inputs, general_hidden_states=one).last_hidden_state for one in (states, changed)]
    kept = inputs["attention_mask"].bool()
    torch.testing.assert_close(found[0][kept], found[1][kept], rtol=0, atol=1e-12)
    changed[1, :, 3] += 5.0
    assert (model(**inputs, general_hidden_states=changed).last_hidden_state - found[0])[1].abs().max() > 1e-4


@every_strategy
@pytest.mark.parametrize("given", [{}, {"memory_layers": [1]}], ids=str)
def test_states_are_taken_as_they_are_given(strategy, given):
    """`general_states` gives a list, of the first layers as far as they are read."""
    if given and strategy == "chunk_gated":
        given = {"memory_layers": [1, 2]}
    model, inputs = make_model(strategy=strategy, **given), make_inputs()
    states = model.general_states(**inputs)
    assert isinstance(states, list)
    found = model(**inputs, general_hidden_states=states).last_hidden_state
    torch.testing.assert_close(found, model(**inputs).last_hidden_state, rtol=0, atol=1e-12)
    states[-1] = states[-1] + 1.0
    assert (model(**inputs, general_hidden_states=states).last_hidden_state - found).abs().max() > 1e-4


@every_kind
@every_fusion
def test_every_fusion_trains_what_it_adds(kind, fusion):
    model = make_model("GMAPForSequenceClassification", kind=kind, fusion=fusion).train()
    model(**make_inputs(), labels=torch.tensor([0, 1, 2])).loss.backward()
    names = {name.removeprefix("gmap.domain.") for name, _ in model.named_parameters() if ".domain." in name}
    added = {f"gmap.domain.{name}" for name in names - {name for name, _ in plain_domain(model).named_parameters()}}
    added |= {name for name, _ in model.named_parameters() if name.endswith("head_gates")}
    assert bool(added) is (fusion != "memory_attention")
    learned = {n for n, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 1e-12}
    assert not [name for name in added - learned if not name.endswith("key.bias")]


@every_kind
@every_strategy
def test_memory_attention_adds_nothing_but_the_gates(kind, strategy):
    model = make_model(kind=kind, strategy=strategy)
    assert sum(p.numel() for p in model.domain.parameters()) == sum(p.numel() for p in plain_domain(model).parameters())
    gates = {"gated": 1, "chunk_gated": 2}.get(strategy, 0)
    assert model.memory.head_gates is None
    assert sum(p.numel() for p in model.memory_parameters()) == gates * model.config.hidden_size


def test_gate_attention_mixes_head_by_head():
    model = make_model(fusion="gate_attention", strategy="single")
    attention = model.domain.encoder.layer[2].attention.self
    hidden = torch.randn(3, 9, 32, dtype=torch.float64)
    memory = torch.randn(3, 9, 32, dtype=torch.float64)

    def read(*gates):
        head_gates = {3: torch.tensor(gates, dtype=torch.float64)}
        return attention(hidden, memory=memory, head_gates=head_gates)[0].unflatten(-1, (4, 8))

    found, own, answer = read(-50.0, 50.0, 0.0, 1.0), read(*[-50.0] * 4), read(*[50.0] * 4)
    plain = plain_domain(model).encoder.layer[2].attention.self(hidden)[0].unflatten(-1, (4, 8))
    torch.testing.assert_close(own, plain, rtol=0, atol=1e-10)  # a closed gate lets nothing of the memory through
    for head, share in enumerate((0.0, 1.0, 0.5, 1 / (1 + math.exp(-1)))):
        mixed = (1 - share) * own[:, :, head] + share * answer[:, :, head]
        torch.testing.assert_close(found[:, :, head], mixed, rtol=0, atol=1e-10)
