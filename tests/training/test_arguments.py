# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Invalid arguments raise an error before anything runs, which names the argument and the fix."""

from dataclasses import fields

import pytest
from transformers import HfArgumentParser, TrainingArguments

from hf_memaug import BilevelTrainingArguments, DomainTrainingArguments

both = pytest.mark.parametrize("arguments_class", [DomainTrainingArguments, BilevelTrainingArguments])


def make(arguments_class, **kwargs):
    return arguments_class(**{"output_dir": "unused", "use_cpu": True, "report_to": [], **kwargs})


def own_fields(arguments_class):
    theirs = {field.name for field in fields(TrainingArguments)}
    return [field for field in fields(arguments_class) if field.name not in theirs]


def test_the_memory_of_mil_learns_at_the_rate_of_our_tables():
    assert make(BilevelTrainingArguments).memory_learning_rate == 1e-4


def test_mil_is_a_trainer(tmp_path):
    with pytest.raises(ValueError, match="use `BilevelTrainer`"):
        DomainTrainingArguments(output_dir=str(tmp_path), algorithm="mil")


@pytest.mark.parametrize("given, meant", [("ERM", "erm"), ("deepcoral", "coral")])
def test_an_unknown_algorithm_is_refused_and_the_nearest_suggested(given, meant):
    with pytest.raises(ValueError) as refusal:
        make(DomainTrainingArguments, algorithm=given)
    message = str(refusal.value)
    assert message.startswith(f"`algorithm` is {given!r}. Did you mean {meant!r}? Choose 'erm', 'irm', ")


@both
@pytest.mark.parametrize(
    "given, said",
    [
        ({"max_steps": 0}, "`max_steps` is 0; it must be 1 or more"),
        ({"max_steps": -5}, "`max_steps` is -5; it must be 1 or more"),
        ({"learning_rate": float("nan")}, "`learning_rate` is nan; it must be 0 or more"),
        ({"fp16": True, "use_cpu": True}, "`fp16=True` needs a GPU"),
    ],
)
def test_what_trainer_accepts_without_a_word_is_refused(arguments_class, given, said):
    with pytest.raises(ValueError, match=said):
        make(arguments_class, **given)


@both
@pytest.mark.parametrize("name", ["penalty_weight", "discriminator_hidden_size", "memory_learning_rate"])
def test_negative_values_are_refused(arguments_class, name):
    with pytest.raises(ValueError, match=f"`{name}` is -1; it must be 0 or more."):
        make(arguments_class, **{name: -1})
    assert getattr(make(arguments_class, **{name: 0}), name) == 0


class TestCudaGraphs:
    def refused(self, reason, **kwargs):
        with pytest.raises(ValueError, match=f"`cuda_graphs=True` is not supported: {reason}. Leave it out, or"):
            make(DomainTrainingArguments, cuda_graphs=True, **kwargs)

    @both
    def test_without_a_gpu(self, arguments_class):
        with pytest.raises(ValueError, match="`cuda_graphs=True` is not supported: there is no CUDA device"):
            make(arguments_class, cuda_graphs=True)

    @pytest.fixture
    def gpu(self, monkeypatch):
        import torch

        monkeypatch.setattr(DomainTrainingArguments, "device", torch.device("cuda"))
        monkeypatch.setattr(DomainTrainingArguments, "world_size", 1)

    @pytest.mark.parametrize(
        "reason, kwargs",
        [
            ("`gradient_accumulation_steps` is not 1", {"gradient_accumulation_steps": 2}),
            (r"`fp16` is set \(`bf16` can be\)", {"fp16": True}),
            ("`gradient_checkpointing` is set", {"gradient_checkpointing": True}),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_what_they_cannot_be_had_with(self, gpu, reason, kwargs):
        self.refused(reason, **kwargs)


class TestBilevel:
    def test_it_has_its_own_loss(self):
        with pytest.raises(ValueError, match='`BilevelTrainer` requires.*"dann". Leave it out'):
            make(BilevelTrainingArguments, algorithm="dann")

    def test_exact_is_not_for_scaled_gradients(self):
        with pytest.raises(ValueError, match='`hypergradient="exact"` does not support `fp16`.*Use `bf16`'):
            make(BilevelTrainingArguments, hypergradient="exact", fp16=True)
        assert make(BilevelTrainingArguments, hypergradient="exact", bf16=True).hypergradient == "exact"

    @pytest.mark.parametrize("name", ["episodes", "episode_steps", "inner_steps", "meta_target_batch_size"])
    def test_counts_begin_at_one(self, name):
        with pytest.raises(ValueError, match=f"`{name}` is 0; it must be 1 or more."):
            make(BilevelTrainingArguments, **{name: 0})
        assert getattr(make(BilevelTrainingArguments, **{name: 1}), name) == 1

    def test_meta_steps_count_every_step_of_the_optimizer(self):
        assert make(BilevelTrainingArguments, episodes=3, episode_steps=5, inner_steps=2).meta_steps == 30


def test_options_of_an_algorithm_are_parsed_from_a_command_line():
    line = ["--output_dir", "unused", "--use_cpu", "--algorithm", "mixup", "--algorithm_kwargs", '{"alpha": 0.4}']
    (parsed,) = HfArgumentParser(DomainTrainingArguments).parse_args_into_dataclasses(line)
    assert parsed.algorithm == "mixup" and parsed.algorithm_kwargs == {"alpha": 0.4}


@both
class TestOnTheCommandLine:
    def test_every_field_of_their_own_has_help(self, arguments_class):
        shown = " ".join(HfArgumentParser(arguments_class).format_help().split())
        for field in own_fields(arguments_class):
            assert field.metadata["help"] in shown, field.name


def test_a_penalty_without_one_to_weigh_is_refused():
    for own in ({"penalty_weight": 0.5}, {"penalty_anneal_steps": 3}):
        with pytest.raises(ValueError, match='`algorithm="erm"` has no penalty'):
            make(DomainTrainingArguments, **own)
        assert make(DomainTrainingArguments, algorithm="irm", **own).algorithm == "irm"


def test_what_meta_training_cannot_do_is_refused():
    for own, reason in (
        ({"ignore_data_skip": True}, "`ignore_data_skip` is not supported"),
        ({"auto_find_batch_size": True}, "`auto_find_batch_size` is not supported"),
        (
            {"hypergradient": "exact", "gradient_checkpointing": True},
            "`gradient_checkpointing` is not supported: `hyper",
        ),
    ):
        with pytest.raises(ValueError, match=reason):
            make(BilevelTrainingArguments, **own)
