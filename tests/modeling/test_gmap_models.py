# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The memory-augmented layer, the frozen encoder, and the plain domain encoder inside."""

import math

import pytest
import torch
import transformers
from families import SENTENCES, gmap_config, save_backbone

import hf_memaug
from hf_memaug.modeling.modeling_gmap_attention import MEMORY_LAYERS

STRATEGIES = ["single", "multiple", "gated", "chunk_gated"]
every_kind = pytest.mark.parametrize("kind", ["roberta", "bert"])
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)
every_fusion = pytest.mark.parametrize("fusion", ["memory_attention", "cross_attention", "gate_attention"])
every_kernel = pytest.mark.parametrize("implementation", ["eager", "sdpa"])
HEADS = ["SequenceClassification", "TokenClassification", "QuestionAnswering", "MaskedLM"]


def make_model(name: str = "GMAPModel", seed: int = 0, **kwargs):
    torch.manual_seed(seed)
    return getattr(hf_memaug, name)(gmap_config("gmap", **kwargs)).double().eval()


def make_inputs(padded: bool = True) -> dict:
    ids = torch.randint(11, 99, (3, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    if padded:
        mask[0, -3:] = 0
        mask[2, -1:] = 0
    return {"input_ids": ids, "attention_mask": mask}


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
    with pytest.raises(ValueError, match=r"`memory_mask` has the shape \(1, 2\). It is \(batch, tokens\)"):
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


class TestFrozen:
    def test_no_graph_no_gradient_no_dropout(self):
        model = make_model("GMAPForSequenceClassification", hidden_dropout_prob=0.5).train()
        assert model.gmap.domain.training and not model.gmap.general.training
        states = model.gmap.general_states(**make_inputs())
        assert all(state.grad_fn is None and not state.requires_grad for state in states)
        again = model.gmap.general_states(**make_inputs())
        assert all(torch.equal(a, b) for a, b in zip(states, again, strict=True)), "dropout in a frozen encoder"
        model(**make_inputs(), labels=torch.tensor([0, 1, 2])).loss.backward()
        assert all(p.grad is None and not p.requires_grad for p in model.gmap.general.parameters())

    def test_no_place_in_the_optimizer(self, tmp_path):
        model = make_model("GMAPForSequenceClassification")
        arguments = transformers.TrainingArguments(str(tmp_path), report_to=[], use_cpu=True)
        optimizer = transformers.Trainer(model, arguments).create_optimizer()
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        assert held == {id(p) for n, p in model.named_parameters() if ".general." not in n}

    def test_it_stays_frozen_in_a_checkpoint(self, tmp_path):
        make_model("GMAPForSequenceClassification").save_pretrained(tmp_path)
        again = hf_memaug.GMAPForSequenceClassification.from_pretrained(tmp_path).train()
        assert not any(p.requires_grad for p in again.gmap.general.parameters()) and not again.gmap.general.training
        assert all(p.requires_grad for p in again.gmap.domain.parameters())

    def test_it_can_learn_too(self, tmp_path):
        model = make_model("GMAPForSequenceClassification", freeze_general=False).train()
        model(**make_inputs(), labels=torch.tensor([0, 1, 2])).loss.backward()
        assert all(p.grad is not None for p in model.gmap.general.parameters())
        assert model.gmap.general.training
        model.gmap.freeze_general()
        assert model.config.freeze_general and not model.gmap.general.training
        assert model.gmap.general_states(**make_inputs())[-1].grad_fn is None


def test_known_states_spare_the_general_encoder(monkeypatch):
    model, inputs = make_model(), make_inputs()
    states = torch.stack(model.general_states(**inputs), dim=1)
    expected = model(**inputs).last_hidden_state
    monkeypatch.setattr(model.general.encoder.layer[0], "forward", None)
    assert torch.equal(model(**inputs, general_hidden_states=states).last_hidden_state, expected)


@pytest.mark.parametrize("autocast", [True, False])
def test_a_general_encoder_in_half_precision_is_read_too(autocast):
    model, inputs = make_model().float(), make_inputs()
    expected = model(**inputs).last_hidden_state
    model.general.to(torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        assert model.general_states(**inputs)[-1].dtype == torch.bfloat16
        hidden = model(**inputs).last_hidden_state
    assert hidden.dtype == torch.float32
    assert (hidden - expected).norm() / expected.norm() < 0.05


def test_a_general_encoder_in_half_precision_reads_embeddings():
    model, inputs = make_model().float(), make_inputs()
    model.general.to(torch.bfloat16)
    embeds = {"inputs_embeds": model.get_input_embeddings()(inputs["input_ids"])}
    assert model(**embeds, attention_mask=inputs["attention_mask"]).last_hidden_state.isfinite().all()


def test_only_the_layers_that_are_read_run():
    model = make_model(strategy="multiple", memory_layers=[1, 2])
    assert len(model.general_states(**make_inputs())) == 2
    expected = model(**make_inputs()).last_hidden_state
    model.general.encoder.layer[2] = torch.nn.Identity()
    assert torch.equal(model(**make_inputs()).last_hidden_state, expected)


@pytest.mark.parametrize("layers", [1, 2])
def test_the_head_has_one_or_two_layers(layers):
    model = make_model("GMAPForSequenceClassification", classifier_layers=layers)
    output = model(**make_inputs(), output_hidden_states=True)
    features = output.hidden_states[-1][:, 0]
    head = model.classifier
    expected = head(features) if layers == 1 else head.out_proj(torch.tanh(head.dense(features)))
    torch.testing.assert_close(output.logits, expected, rtol=0, atol=1e-12)


class TestFromGeneralAndDomain:
    @pytest.fixture(scope="class")
    def pair(self, tmp_path_factory):
        """A general checkpoint, and one that was trained on from it."""
        found = {}
        for kind in ("roberta", "bert"):
            general = save_backbone(kind, tmp_path_factory.mktemp(kind))
            domain = tmp_path_factory.mktemp(f"{kind}-domain")
            model = transformers.AutoModelForMaskedLM.from_pretrained(general)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3))
            model.save_pretrained(domain)
            transformers.AutoTokenizer.from_pretrained(general).save_pretrained(domain)
            found[kind] = (general, str(domain))
        return found

    @every_kind
    @pytest.mark.parametrize("head", HEADS)
    def test_the_weights_are_those_of_the_two(self, kind, head, pair, tmp_path):
        general, domain = pair[kind]
        model = getattr(hf_memaug, f"GMAPFor{head}").from_general_and_domain(general, domain, memory_layers=[1, 2])
        assert not model.training and model.config.memory_layers == [1, 2]
        for name, place in (("general", general), ("domain", domain)):
            theirs = transformers.AutoModel.from_pretrained(place).state_dict()
            for key, value in getattr(model.gmap, name).state_dict().items():
                assert torch.equal(value, theirs[key]), (name, key)
        model.save_pretrained(tmp_path)
        again = type(model).from_pretrained(tmp_path)
        inputs = make_inputs()
        assert torch.equal(again(**inputs)[0], model(**inputs)[0])

    @every_kind
    def test_a_masked_lm_keeps_the_domains_head(self, kind, pair):
        general, domain = pair[kind]
        model = hf_memaug.GMAPForMaskedLM.from_general_and_domain(general, domain, memory_layers=[1, 2])
        plain = transformers.AutoModelForMaskedLM.from_pretrained(domain).eval()
        inputs = make_inputs()
        logits = model(**inputs, memory_mask=torch.zeros_like(inputs["input_ids"])).logits
        torch.testing.assert_close(logits, plain(**inputs).logits, rtol=0, atol=1e-5)
        assert model.lm_head.decoder.weight is model.gmap.domain.embeddings.word_embeddings.weight

    def test_models_may_be_given_instead_of_names(self, pair):
        general, domain = (transformers.AutoModel.from_pretrained(place) for place in pair["bert"])
        model = hf_memaug.GMAPForSequenceClassification.from_general_and_domain(
            general, domain, memory_layers=[1, 2], num_labels=4
        )
        assert model.classifier.out_features == 4
        assert torch.equal(
            model.gmap.general.embeddings.word_embeddings.weight, general.embeddings.word_embeddings.weight
        )

    def test_a_misspelt_field_is_refused(self, pair):
        with pytest.raises(TypeError, match="takes no `stratgy`. Did you mean `strategy`"):
            hf_memaug.GMAPModel.from_general_and_domain(*pair["bert"], stratgy="single")

    def test_a_plain_checkpoint_is_refused_with_the_way_to_go(self, pair):
        with pytest.raises(ValueError, match="`from_general_and_domain` makes a model of two such encoders"):
            hf_memaug.GMAPModel.from_pretrained(pair["bert"][0])

    def test_pipelines(self, pair, tmp_path):
        general, domain = pair["roberta"]
        tokenizer = transformers.AutoTokenizer.from_pretrained(domain)
        for head, task, text in (
            ("SequenceClassification", "text-classification", SENTENCES[0]),
            ("TokenClassification", "token-classification", SENTENCES[0]),
            ("MaskedLM", "fill-mask", f"a good {tokenizer.mask_token}"),
        ):
            model = getattr(hf_memaug, f"GMAPFor{head}").from_general_and_domain(general, domain, memory_layers=[1, 2])
            model.save_pretrained(tmp_path / head)
            tokenizer.save_pretrained(tmp_path / head)
            assert transformers.pipeline(task, model=str(tmp_path / head))(text)


def test_new_tokens_are_new_in_both_encoders():
    model = make_model("GMAPForMaskedLM")
    model.resize_token_embeddings(104)
    assert model.gmap.general.embeddings.word_embeddings.num_embeddings == 104
    assert model.config.vocab_size == model.config.general.vocab_size == 104
    assert not any(p.requires_grad for p in model.gmap.general.parameters())
    inputs = make_inputs()
    inputs["input_ids"][0, 1] = 103
    assert model(**inputs).logits.shape == (3, 9, 104)


def test_ids_and_embeddings_are_not_both_given():
    model, inputs = make_model(), make_inputs()
    with pytest.raises(ValueError, match="`input_ids` or `inputs_embeds`, not both"):
        model(**inputs, inputs_embeds=torch.zeros(3, 9, 32))


def test_every_encoder_has_every_fusion():
    fusions = {"memory_attention", "cross_attention", "gate_attention"}
    assert all(set(MEMORY_LAYERS[kind].attentions) == fusions for kind in ("roberta", "bert"))


def test_each_encoder_keeps_its_own_heads(tmp_path):
    config = gmap_config("gmap")
    config.general.num_attention_heads = 2
    torch.manual_seed(0)
    model = hf_memaug.GMAPModel(config).eval()
    model.save_pretrained(tmp_path)
    again = hf_memaug.GMAPModel.from_pretrained(tmp_path)
    assert (again.config.general.num_attention_heads, again.config.domain.num_attention_heads) == (2, 4)
    assert torch.equal(again(**make_inputs()).last_hidden_state, model(**make_inputs()).last_hidden_state)


@pytest.mark.parametrize("embedded", [False, True])
@pytest.mark.parametrize(
    "shape", [(3, 3, 9, 32), (3, 5, 9, 32), (3, 4, 7, 32), (2, 4, 9, 32), (3, 4, 9, 16), (3, 9, 32)]
)
def test_states_of_another_shape_are_refused(shape, embedded):
    model, inputs = make_model(), make_inputs()
    if embedded:
        inputs["inputs_embeds"] = model.get_input_embeddings()(inputs.pop("input_ids"))
    with pytest.raises(
        ValueError, match=r"here \(3, 4, 9, 32\).*without the embeddings, as `general_states` gives them"
    ):
        model(**inputs, general_hidden_states=torch.zeros(shape))


def test_how_a_pair_is_made(tmp_path):
    general = save_backbone("bert", tmp_path)
    make = hf_memaug.GMAPForMaskedLM.from_general_and_domain
    assert make(general, general, attn_implementation="eager").config._attn_implementation == "eager"
    with pytest.raises(TypeError, match="takes no `device_map`"):
        make(general, general, device_map="auto")
    # A head of its own stays so.
    domain = transformers.AutoModelForMaskedLM.from_pretrained(general, tie_word_embeddings=False)
    with torch.no_grad():
        domain.cls.predictions.decoder.weight += 1.0
    model = make(transformers.AutoModel.from_pretrained(general), domain)
    assert torch.equal(
        model.gmap.domain.embeddings.word_embeddings.weight, domain.bert.embeddings.word_embeddings.weight
    )
    assert torch.equal(model.lm_head.decoder.weight, domain.cls.predictions.decoder.weight)


def test_a_pair_changes_nothing_in_the_encoders_it_is_made_of(backbones):
    encoders = [transformers.AutoModel.from_pretrained(backbones["roberta"]) for _ in range(2)]
    before = [one.config.to_dict() for one in encoders]
    model = hf_memaug.GMAPModel.from_general_and_domain(*encoders)
    model.set_attn_implementation("eager")
    model.config.hidden_dropout_prob = 0.4
    model.resize_token_embeddings(model.config.vocab_size + 3)
    assert [one.config.to_dict() for one in encoders] == before
    assert {one.config._attn_implementation for one in encoders} == {"sdpa"}


def test_flash_attention_takes_no_mask_of_the_memory():
    model, inputs = make_model(), make_inputs()
    model.domain.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ValueError, match="Flash attention takes no `memory_mask`"):
        model(**inputs, memory_mask=inputs["attention_mask"])
