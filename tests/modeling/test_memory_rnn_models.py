# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Memory RNNs: texts and pairs, their vectors, and generation."""

import pytest
import torch
from families import memory_rnn_config
from huggingface_hub.errors import StrictDataclassError
from tiny_backbones import SENTENCES, tiny_tokenizer
from torch import nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TextStreamer, pipeline

from hf_memaug import (
    MemoryRNNConfig,
    MemoryRNNForConditionalGeneration,
    MemoryRNNForSequenceClassification,
    MemoryRNNModel,
    word_tokenizer,
)

cells = pytest.mark.parametrize("cell", ["lstm", "gru"])


def make(model_class, seed=0, **kwargs):
    torch.manual_seed(seed)
    return model_class(memory_rnn_config(**kwargs)).double().eval()


def texts(rows=4, length=7, seed=1) -> torch.Tensor:
    return torch.randint(4, 99, (rows, length), generator=torch.Generator().manual_seed(seed))


class TestConfiguration:
    def test_the_papers_sizes_are_the_defaults(self):
        config = MemoryRNNConfig()
        assert (config.cell, config.hidden_size, config.embedding_size) == ("lstm", 300, 300)
        assert config.memory_slots == [300] and config.memory_value_size == 300 and config.classifier_size == 300
        assert MemoryRNNConfig(memory_slots=7).memory_slots == [7]

    @pytest.mark.parametrize(
        ("kwargs", "message"),
        [
            ({"memory_slots": [3, 0]}, r"`memory_slots` must be between 1 and 16777216; got \[3, 0\]"),
            ({"hidden_size": 0}, "`hidden_size` must be between 1 and"),
            ({"hidden_dropout_prob": 1.0}, "`hidden_dropout_prob` must be between 0 and 0.999; got 1.0"),
            ({"memory_initializer_range": -1}, "`memory_initializer_range` must be between 0 and"),
            ({"memory_key_initializer_range": -1}, "`memory_key_initializer_range` must be between 0 and"),
            ({"tie_word_embeddings": True}, "`tie_word_embeddings=True` is refused"),
        ],
    )
    def test_what_cannot_be_is_refused(self, kwargs, message):
        with pytest.raises((StrictDataclassError, ValueError), match=message):
            MemoryRNNConfig(**kwargs)

    def test_fresh_keys_are_as_large_as_they_are_said_to_be(self):
        for said, std in ((None, 64**-0.5), (0.5, 0.5), (0, 0.0)):
            model = make(MemoryRNNModel, hidden_size=64, memory_slots=[200], memory_key_initializer_range=said)
            model.grow_memory(200)
            for slots in model.layer.memory.slot_keys.split(200, dim=1):
                assert slots.std().item() == pytest.approx(std, rel=0.02)


class TestTexts:
    @cells
    @torch.no_grad()
    def test_a_texts_vector_is_its_true_last_states(self, cell):
        model, ids = make(MemoryRNNModel, cell=cell), texts()
        mask = torch.ones_like(ids)
        mask[1, 4:] = 0
        output = model(ids, mask)
        assert output.last_hidden_state.shape == (4, 7, 64)
        forward, backward = output.last_hidden_state.chunk(2, dim=-1)
        for row, last in enumerate((6, 3, 6, 6)):
            torch.testing.assert_close(output.pooler_output[row], torch.cat([forward[row, last], backward[row, 0]]))
        assert (output.last_cell_state is None) == (cell == "gru")

    def test_a_memory_without_slots_is_a_plain_network(self):
        model = make(MemoryRNNForSequenceClassification, memory_slots=[])
        assert not model.config.reads_memory and not list(model.memory_parameters())
        assert torch.isfinite(model(texts()).logits).all()

    def test_a_second_text_is_not_read_as_one(self):
        model = make(MemoryRNNForSequenceClassification)
        types = torch.zeros_like(texts())
        assert model(texts(), token_type_ids=types).logits.shape == (4, 3)
        with pytest.raises(ValueError, match="`sentence_pairs=True`"):
            model(texts(), token_type_ids=types + 1)


class TestPairs:
    def head_by_hand(self, model, p, h):
        whole = torch.cat([p, h, p * h, (p - h).abs()])
        head = model.classifier
        return head.out_proj.weight @ torch.relu(head.dense.weight @ whole + head.dense.bias) + head.out_proj.bias

    @cells
    @pytest.mark.parametrize("side", ["left", "right"])
    @torch.no_grad()
    def test_each_text_is_read_by_itself(self, cell, side):
        model = make(MemoryRNNForSequenceClassification, cell=cell, sentence_pairs=True)
        ids, lengths = texts(length=9), [(4, 5), (1, 3), (6, 0), (2, 2)]
        inputs = {name: torch.zeros_like(ids) for name in ("input_ids", "attention_mask", "token_type_ids")}
        for row, (first, second) in enumerate(lengths):
            start = 0 if side == "right" else 9 - first - second
            place = slice(start, start + first + second)
            inputs["input_ids"][row, place] = ids[row, : first + second]
            inputs["attention_mask"][row, place] = 1
            inputs["token_type_ids"][row, start + first : start + first + second] = 1
        logits = model(**inputs).logits
        for row, (first, second) in enumerate(lengths):
            p = model.rnn(ids[row : row + 1, :first]).pooler_output[0]
            h = model.rnn(ids[row : row + 1, first : first + second]).pooler_output[0]
            torch.testing.assert_close(logits[row], self.head_by_hand(model, p, h))
        vectors = model.rnn.embeddings(inputs.pop("input_ids"))
        torch.testing.assert_close(model(inputs_embeds=vectors, **inputs).logits, logits)

    def test_weights_have_an_axis_for_the_two_texts(self):
        model = make(MemoryRNNForSequenceClassification, sentence_pairs=True)
        types = (torch.arange(7) > 3).long().expand(4, -1)
        output = model(texts(), token_type_ids=types, output_memory_weights=True)
        assert output.memory_weights.shape == (4, 2, 2, 4, 12)
        assert output.memory_weights[:, 1, 0, 3].abs().max() == 0, "the second text has three words"
        torch.testing.assert_close(output.memory_weights[:, 1, 0, 1:3].sum(-1), torch.ones(4, 2).double())

    def test_every_parameter_learns(self):
        model = make(MemoryRNNForSequenceClassification, sentence_pairs=True).train()
        types = (torch.arange(7) > 3).long().expand(4, -1)
        model(texts(), token_type_ids=types, labels=torch.tensor([0, 1, 2, 0])).loss.backward()
        assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())

    def test_export_of_pairs(self):
        model = make(MemoryRNNForSequenceClassification, sentence_pairs=True)
        types = (torch.arange(7) > 3).long().repeat(4, 1)
        inputs = {"input_ids": texts(), "attention_mask": torch.ones_like(types), "token_type_ids": types}
        program = torch.export.export(model, (), kwargs=inputs, strict=False)
        other = {**inputs, "token_type_ids": (torch.arange(7) > 1).long().repeat(4, 1)}
        torch.testing.assert_close(program.module()(**other).logits, model(**other).logits)

    def test_a_pipeline_reads_pairs(self, tmp_path):
        tokenizer = tiny_tokenizer(None)
        model = make(MemoryRNNForSequenceClassification, sentence_pairs=True, vocab_size=len(tokenizer)).float()
        model.save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        classify = pipeline("text-classification", model=str(tmp_path), top_k=None)
        found = classify({"text": SENTENCES[0], "text_pair": SENTENCES[1]})
        inputs = tokenizer(SENTENCES[0], SENTENCES[1], return_tensors="pt")
        expected = model(**inputs).logits.softmax(-1)[0]
        assert {row["label"]: pytest.approx(row["score"], abs=1e-6) for row in found} == {
            f"LABEL_{i}": value for i, value in enumerate(expected.tolist())
        }
        assert type(AutoModelForSequenceClassification.from_pretrained(tmp_path)) is type(model)


class TestGeneration:
    @cells
    @pytest.mark.parametrize("bidirectional", [True, False])
    @torch.no_grad()
    def test_step_by_step_is_all_at_once(self, cell, bidirectional):
        model = make(MemoryRNNForConditionalGeneration, cell=cell, bidirectional=bidirectional)
        target = texts(length=5, seed=3)
        whole = model(texts(), decoder_input_ids=target, output_memory_weights=True)
        encoded, past, logits = model.get_encoder()(texts()), None, []
        for step in range(5):
            output = model(
                encoder_outputs=encoded,
                decoder_input_ids=target[:, step : step + 1],
                past_key_values=past,
                use_cache=True,
            )
            past = output.past_key_values
            logits.append(output.logits)
        torch.testing.assert_close(torch.cat(logits, dim=1), whole.logits)
        assert whole.decoder_memory_weights.shape == (4, 1, 5, 12)
        torch.testing.assert_close(whole.decoder_memory_weights.sum(-1), torch.ones(4, 1, 5).double())

    @torch.no_grad()
    def test_the_decoder_sees_the_encoders_words_and_not_its_padding(self):
        model = make(MemoryRNNForConditionalGeneration)
        mask = torch.ones_like(texts())
        mask[:, 5:] = 0
        output = model(texts(), mask, decoder_input_ids=texts(seed=3), output_attentions=True)
        (attention,) = output.cross_attentions
        assert attention.shape == (4, 1, 7, 7) and attention[..., 5:].abs().max() == 0
        reader, hidden = (
            model.encoder_reader,
            model(texts(), mask, decoder_input_ids=texts(seed=3), output_hidden_states=True).decoder_hidden_states[1],
        )
        state, encoded = hidden[0, 2], output.encoder_last_hidden_state[0, :5]
        alpha = torch.softmax(encoded @ (reader.question.weight @ state), dim=0)
        torch.testing.assert_close(attention[0, 0, 2, :5], alpha)
        said = torch.tanh(reader.output(torch.cat([state, alpha @ encoded])))
        torch.testing.assert_close(output.logits[0, 2], model.lm_head(said))

    def test_labels_are_moved_by_one_and_hidden_ones_left_out(self):
        model, labels = make(MemoryRNNForConditionalGeneration), texts(length=5, seed=3)
        labels[0, 3:] = -100
        given = torch.cat([torch.full((4, 1), 2), labels[:, :-1]], dim=1)
        given[given == -100] = 0
        logits = model(texts(), decoder_input_ids=given).logits
        expected = nn.functional.cross_entropy(logits[labels >= 0], labels[labels >= 0])
        torch.testing.assert_close(model(texts(), labels=labels).loss.double(), expected, rtol=1e-6, atol=1e-6)
        assert torch.equal(model.prepare_decoder_input_ids_from_labels(labels), given)
        with pytest.raises(ValueError, match="Pass `labels` for training or `decoder_input_ids`"):
            model(texts())

    @cells
    @pytest.mark.parametrize("how", [{}, {"num_beams": 3}, {"do_sample": True}, {"num_beams": 2, "do_sample": True}])
    def test_the_state_that_is_kept_changes_nothing(self, cell, how):
        model = make(MemoryRNNForConditionalGeneration, cell=cell, initializer_range=1.0)
        with torch.no_grad():
            model.lm_head.weight *= 8  # words that differ
        found = []
        for use_cache in (True, False):
            torch.manual_seed(0)
            found.append(model.generate(texts(), max_new_tokens=8, use_cache=use_cache, **how))
        assert torch.equal(*found) and len(found[0].unique()) > 3

    @torch.no_grad()
    def test_greedy_by_hand_with_padding(self):
        model = make(MemoryRNNForConditionalGeneration, initializer_range=1.0)
        model.lm_head.weight *= 8
        ids = texts(2)
        ids[1, 4:], mask = 0, (torch.arange(7) < torch.tensor([[7], [4]])).long()
        found = model.generate(ids, attention_mask=mask, max_new_tokens=6)
        for row, length in enumerate((7, 4)):
            said = [2]
            while len(said) < 7 and said[-1] != 3:
                logits = model(ids[row : row + 1, :length], decoder_input_ids=torch.tensor([said])).logits
                said.append(int(logits[0, -1].argmax()))
            assert found[row, : len(said)].tolist() == said

    def test_it_learns_to_answer_and_streams_the_words(self, tmp_path, capsys):
        questions = ["how are you", "what is your name", "where do you live"]
        answers = ["i am fine", "my name is opera", "in the old town"]
        tokenizer = word_tokenizer([*questions, *answers], end_of_text=True)
        torch.manual_seed(0)
        model = MemoryRNNForConditionalGeneration(
            memory_rnn_config(vocab_size=len(tokenizer), cell="gru", initializer_range=1.0)
        )
        inputs = tokenizer(questions, padding=True, return_tensors="pt")
        labels = tokenizer(answers, padding=True, return_tensors="pt")["input_ids"]
        labels[labels == tokenizer.pad_token_id] = -100
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(60):
            optimizer.zero_grad()
            model(**inputs, labels=labels).loss.backward()
            optimizer.step()
        model.eval().save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        model = MemoryRNNForConditionalGeneration.from_pretrained(tmp_path)
        tokenizer = AutoTokenizer.from_pretrained(tmp_path)
        for how in ({}, {"num_beams": 3}):
            said = model.generate(**inputs, max_new_tokens=8, **how)
            assert tokenizer.batch_decode(said, skip_special_tokens=True) == answers
        one = tokenizer("What is your name", return_tensors="pt")
        model.generate(**one, max_new_tokens=8, streamer=TextStreamer(tokenizer, skip_special_tokens=True))
        assert capsys.readouterr().out.split() == answers[1].split()

    def test_what_was_read_cannot_be_unread(self):
        model = make(MemoryRNNForConditionalGeneration)
        with pytest.raises(ValueError, match="assisted generation is not supported"):
            model.generate(texts(1), assistant_model=make(MemoryRNNForConditionalGeneration), max_new_tokens=3)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("model_class", [MemoryRNNForSequenceClassification, MemoryRNNForConditionalGeneration])
def test_both_kinds_of_checkpointing_give_all_gradients(model_class, reentrant):
    gradients = []
    for checkpointing in (False, True):
        model = make(model_class).train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            model.enable_input_require_grads()
        labels = texts(length=3, seed=3) if model.config.is_encoder_decoder else torch.tensor([0, 1, 2, 0])
        model(texts(), labels=labels).loss.backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient)
