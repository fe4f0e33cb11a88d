# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Models that grow keep their old weights bit for bit."""

import copy
import json

import pytest
import torch
from families import CASES, Case, features_of, memory_rnn_config
from tiny_backbones import SENTENCES
from transformers import AutoTokenizer

from hf_memaug import MemoryRNNForConditionalGeneration, MemoryRNNForSequenceClassification, MemoryRNNModel
from hf_memaug.data import new_words, word_tokenizer

GROWING = [case for case in CASES if hasattr(case.model_class, "grow_memory")]
RNNS = [case for case in GROWING if case.model_type == "memory_rnn"]
growing = pytest.mark.parametrize("case", GROWING, ids=str)
rnns = pytest.mark.parametrize("case", RNNS, ids=str)


def snapshot(model) -> tuple[dict, str]:
    return {name: value.clone() for name, value in model.state_dict().items()}, model.config.to_json_string()


def same(model, before) -> bool:
    state, config = snapshot(model)
    return config == before[1] and set(state) == set(before[0]) and all(
        torch.equal(value, before[0][name]) for name, value in state.items()
    )  # fmt: skip


@growing
class TestTheMemory:
    def test_old_slots_are_kept_and_the_configuration_follows(self, case: Case, tmp_path):
        model = case.model()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        first = sum(model.config.slots_per_domain)
        domains = len(model.config.slots_per_domain)
        rest = model.base_model.get_input_embeddings().weight
        grown = model.grow_memory(5)
        model.grow_memory(2)
        assert {entry.name.rpartition(".")[2] for entry in grown} == {"slot_keys", "slot_values"}
        assert model.config.slots_per_domain[-2:] == [5, 2] and sum(model.config.slots_per_domain) == first + 7
        assert model.base_model.config.slots_per_domain == model.config.slots_per_domain
        assert model.slot_domains().tolist()[first - 1 :] == [domains - 1] + [domains] * 5 + [domains + 1] * 2
        for name, value in model.state_dict().items():
            if "slot_" in name:
                assert value.shape[-2] == first + 7
                assert torch.equal(value[..., :first, :], before[name])
                new = value[..., first:, :]
                ratio = float(new.std() / before[name].std())
                assert 0.6 < ratio < 1.6, "new slots start as the first ones did"
                assert len({tuple(slot) for slot in new.flatten(0, -2).tolist()}) == new.flatten(0, -2).shape[0]
            else:
                assert torch.equal(value, before[name])
        assert model.base_model.get_input_embeddings().weight is rest, "what did not grow is the same parameter"
        model.save_pretrained(tmp_path)
        again, info = case.model_class.from_pretrained(tmp_path, output_loading_info=True)
        assert not info["missing_keys"] and not info["mismatched_keys"]
        assert torch.equal(features_of(again(**case.inputs())), features_of(model(**case.inputs())))
        assert again.config.slots_per_domain == model.config.slots_per_domain
        again.grow_memory(1)
        assert torch.isfinite(features_of(again(**case.inputs()))).all()

    def test_the_new_slots_are_read_and_learn(self, case: Case):
        model = case.model()
        first = sum(model.config.slots_per_domain)
        model.grow_memory(4)
        shape = model(**case.inputs(), output_memory_weights=True).memory_weights.shape
        assert shape[-1] == first + 4
        features_of(model(**case.inputs())).square().sum().backward()
        for parameter in model.memory_parameters():
            if parameter.dim() > 1 and first + 4 in parameter.shape:
                new = parameter.grad.narrow(parameter.shape.index(first + 4), first, 4)
                assert new.abs().max() > 0

    @pytest.mark.parametrize(
        ("slots", "error"), [(0, ValueError), (-3, ValueError), (2.0, TypeError), (True, TypeError)]
    )
    def test_what_is_no_growth_is_refused_and_changes_nothing(self, case: Case, slots, error):
        model = case.model()
        before = snapshot(model)
        with pytest.raises(error, match="`slots` of `grow_memory`"):
            model.grow_memory(slots)
        assert same(model, before)

    def test_an_error_on_the_way_leaves_the_model_as_it_was(self, case: Case, monkeypatch):
        model = case.model()
        before = snapshot(model)
        parameters = list(model.parameters())

        def fail(self, module):
            raise MemoryError("no room")

        monkeypatch.setattr(case.model_class, "_init_weights", fail)
        with pytest.raises(MemoryError):
            model.grow_memory(3)
        assert same(model, before) and all(a is b for a, b in zip(parameters, model.parameters(), strict=True))

    def test_frozen_and_rounded_memories_stay_so(self, case: Case):
        model = case.model().to(torch.bfloat16).freeze_memory()
        model.grow_memory(3)
        assert not any(parameter.requires_grad for parameter in model.memory_parameters())
        assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}

    def test_adapters_are_merged_first(self, case: Case):
        from peft import LoraConfig

        if not case.has_head:
            pytest.skip("adapters are tested on heads")
        model = case.model()
        model.add_adapter(LoraConfig(r=2, target_modules=model.adapter_targets))
        with pytest.raises(ValueError, match="Merge them first"):
            model.grow_memory(3)

    def test_a_part_does_not_grow_alone(self, case: Case):
        model = case.model()
        parts = [one for one in model.modules() if one is not model and hasattr(one, "grow_memory")]
        assert parts or not case.has_head
        before = snapshot(model)
        for part in parts:
            with pytest.raises(ValueError, match="is a part of a larger model.*the whole model"):
                part.grow_memory(3)
        assert same(model, before)


@rnns
class TestHiddenUnits:
    @pytest.mark.parametrize("cell", ["lstm", "gru"])
    def test_old_weights_are_kept_in_their_places(self, case: Case, cell, tmp_path):
        """The old network inside of the new one: with all that is new at zero, it says what it said."""
        model = case.model(cell=cell).double()
        expected = features_of(model(**case.inputs()))
        small = copy.deepcopy(model)
        grown = model.grow_hidden(3)
        assert model.config.hidden_size == model.base_model.config.hidden_size == 35
        for entry in grown:
            ours = dict(model.named_parameters())[entry.name]
            assert ours is entry.new and ours.shape != entry.old.shape
            kept = entry.carry(torch.ones_like(entry.old), torch.zeros_like(ours))
            assert kept.sum() == entry.old.numel()
            assert torch.equal(ours[kept.bool()], entry.old.flatten())
            assert (ours[~kept.bool()] != 0).any() or entry.name.endswith("bias"), "new weights start at random"
            with torch.no_grad():
                ours[~kept.bool()] = 0
        found = features_of(model(**case.inputs()))
        if case.model_class is MemoryRNNModel:
            forward, backward = found.chunk(2, dim=-1)
            found = torch.cat([forward[..., :32], backward[..., :32]], dim=-1)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        assert small.config.hidden_size == 32
        model.float().save_pretrained(tmp_path)
        again = case.model_class.from_pretrained(tmp_path)
        assert torch.equal(features_of(again(**case.inputs())), features_of(model(**case.inputs())))

    def test_they_grow_again_and_again_beside_slots_and_words(self, case: Case, tmp_path):
        model, inputs = case.model(), case.inputs()
        for time in range(3):
            model.grow_hidden(2)
            model.grow_memory(3)
            model.grow_vocabulary([f"word{time}"])
            assert torch.isfinite(features_of(model(**inputs))).all()
        assert model.config.hidden_size == 38
        model.save_pretrained(tmp_path)
        again = case.model_class.from_pretrained(tmp_path)
        assert torch.equal(features_of(again(**inputs)), features_of(model(**inputs)))

    @pytest.mark.parametrize("slots", [1, 7, 100])
    def test_as_many_parameters_as_slots_bring(self, case: Case, slots):
        model = case.model()
        before = model.num_parameters()
        units = model.units_for(slots)
        assert model.num_parameters() == before, "only counted"
        added = {}
        for other in (units - 1, units, units + 1):
            grown = copy.deepcopy(model)
            if other:
                grown.grow_hidden(other)
            added[other] = grown.num_parameters() - before
        model.grow_memory(slots)
        wanted = model.num_parameters() - before
        allowed = [other for other in added if other]
        assert min(allowed, key=lambda other: abs(added[other] - wanted)) == units


def grown_tokenizer():
    return word_tokenizer(SENTENCES, end_of_text=True)


@rnns
class TestWords:
    def make(self, case: Case):
        tokenizer = grown_tokenizer()
        return case.model(vocab_size=len(tokenizer)), tokenizer

    def test_old_words_are_kept_and_new_ones_known(self, case: Case, tmp_path):
        model, tokenizer = self.make(case)
        before, old = snapshot(model)[0], len(tokenizer)
        vectors = torch.randn(2, 24)
        model.grow_vocabulary(["zebra", "quay"], vectors, tokenizer)
        assert model.config.vocab_size == len(tokenizer) == old + 2
        assert tokenizer("a zebra quay")["input_ids"][1:3] == [old, old + 1]
        embeddings = model.get_input_embeddings()
        assert embeddings.num_embeddings == old + 2 and torch.equal(embeddings.weight[old:], vectors)
        for name, value in model.state_dict().items():
            assert torch.equal(value[: len(before[name])], before[name])
        if case.model_class is MemoryRNNForConditionalGeneration:
            assert model.lm_head.out_features == old + 2
        model.save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        again = AutoTokenizer.from_pretrained(tmp_path)
        assert again("a Zebra quay party")["input_ids"] == tokenizer("a zebra quay party")["input_ids"]
        loaded = case.model_class.from_pretrained(tmp_path)
        assert torch.equal(loaded.get_input_embeddings().weight, embeddings.weight)

    def test_vectors_of_some_words(self, case: Case):
        model, tokenizer = self.make(case)
        old = len(tokenizer)
        model.grow_vocabulary(["zebra", "quay", "owl"], {"owl": torch.ones(24)}, tokenizer)
        table = model.get_input_embeddings().weight
        assert torch.equal(table[old + 2], torch.ones(24)) and 0.03 < table[old : old + 2].std() < 0.3

    @pytest.mark.parametrize(
        ("words", "vectors", "message"),
        [
            ([], None, "`words` is empty"),
            (["zebra", "book"], None, "`words` has 'book', which the tokenizer knows already"),
            (["zebra", "zebra"], None, "`words` has 'zebra' more than once"),
            ("zebra", None, "`words` is a list of words"),
            (["zebra", ""], None, "which is not a word"),
            (["Zebra"], None, "'Zebra', which the tokenizer would never find: it reads 'zebra' there"),
            (["zebra owl"], None, "it reads 'zebra', 'owl' there"),
            (["zebra"], torch.zeros(1, 23), "`embedding_size=24`"),
            (["zebra"], torch.zeros(2, 24), "one vector for each of 1 words"),
            (["zebra"], {"zebra": torch.zeros(3)}, "`embedding_size=24`"),
        ],
    )
    def test_what_does_not_fit_changes_nothing(self, case: Case, words, vectors, message):
        model, tokenizer = self.make(case)
        before, known = snapshot(model), tokenizer.get_vocab()
        with pytest.raises((ValueError, TypeError), match=message):
            model.grow_vocabulary(words, vectors, tokenizer)
        assert same(model, before) and tokenizer.get_vocab() == known

    def test_another_models_tokenizer_is_refused(self, case: Case):
        model, tokenizer = case.model(), grown_tokenizer()
        with pytest.raises(ValueError, match="`tokenizer` has .* words, and the model has `vocab_size=99`"):
            model.grow_vocabulary(["zebra"], tokenizer=tokenizer)
        from tiny_backbones import tiny_tokenizer

        with pytest.raises(TypeError, match="not made of whole words"):
            case.model(vocab_size=160).grow_vocabulary(["zebra"], tokenizer=tiny_tokenizer("bert"))
        model.grow_vocabulary(["zebra"])
        assert model.config.vocab_size == 100


def test_a_network_without_a_memory_has_none_to_grow():
    model = MemoryRNNForSequenceClassification(memory_rnn_config(memory_slots=[]))
    with pytest.raises(ValueError, match="`grow_memory` needs a memory to add to"):
        model.grow_memory(3)
    model.grow_hidden(2)


@pytest.mark.parametrize(("saved", "said"), [([4], []), ([], [4])])
def test_a_bank_is_in_the_weights_and_the_configuration_or_in_neither(saved, said, tmp_path):
    MemoryRNNForSequenceClassification(memory_rnn_config(memory_slots=saved)).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "memory_slots": said}))
    have = "has a memory, and its configuration says that there is none" if saved else "lacks weights of the memory"
    with pytest.raises(ValueError, match=f"{have}.*Put the `config.json` there"):
        MemoryRNNForSequenceClassification.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    model, info = MemoryRNNForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert model.config.memory_slots == saved and not info["missing_keys"]


def test_domain_after_domain(tmp_path):
    """Algorithm 1, with a save between the domains."""
    tokenizer = word_tokenizer(SENTENCES[:2])
    torch.manual_seed(0)
    model = MemoryRNNForSequenceClassification(memory_rnn_config(vocab_size=len(tokenizer), num_labels=2))
    for domain in range(1, 3):
        model.grow_memory(3)
        texts = SENTENCES[2 * domain : 2 * domain + 2]
        model.grow_vocabulary(new_words(tokenizer, texts), tokenizer=tokenizer)
        inputs = tokenizer(texts, padding=True, return_tensors="pt")
        assert not (inputs["input_ids"] == tokenizer.unk_token_id).any()
        model(**inputs, labels=torch.tensor([0, 1])).loss.backward()
        model.save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        expected = model.eval()(**inputs).logits
        model = MemoryRNNForSequenceClassification.from_pretrained(tmp_path)
        tokenizer = AutoTokenizer.from_pretrained(tmp_path)
        assert torch.equal(model(**tokenizer(texts, padding=True, return_tensors="pt")).logits, expected)
    assert model.config.memory_slots == [8, 4, 3, 3]
