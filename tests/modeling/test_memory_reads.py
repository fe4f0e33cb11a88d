# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What each family's memory answered, and predictions without the memory."""

import pytest
import torch
from families import CASES

from hf_memaug.modeling.modeling_utils import MemoryModelMixin

HEADS = [case for case in CASES if case.has_head]
SWITCHABLE = [case for case in HEADS if case.model_class.without_memory_means is not None]


def case_of(name: str):
    return next(case for case in CASES if case.name == name)


@torch.no_grad()
def run(case, model=None, **kwargs):
    model, inputs = model or case.model(), case.inputs()
    return model, inputs, model(**inputs, output_memory_weights=True, **kwargs)


def prediction(outputs) -> torch.Tensor:
    return outputs["start_logits"] if "start_logits" in outputs else outputs.logits


@pytest.mark.parametrize("case", HEADS, ids=str)
def test_every_family_says_what_was_read(case):
    model, inputs, outputs = run(case)
    reads = model.memory_reads(inputs, outputs)
    assert reads and model.reads_memory
    for read in reads:
        rows, slots = read.weights.shape
        assert rows == len(prediction(outputs)) and slots and read.title and read.about.endswith(".")
        total = read.weights.sum(dim=1)
        assert (read.weights >= 0).all() and (total <= 1 + 1e-5).all() and (total > 0).all()
        if read.elsewhere is None:
            torch.testing.assert_close(total, torch.ones(rows))
        if read.owners is not None:
            assert len(read.owners) == slots
            torch.testing.assert_close(sum(read.by_owner().values()), total)
        assert read.name(0).startswith(read.unit) or read.names[0] == read.name(0)


def test_kv_memory_reads_the_mean_over_heads():
    model, inputs, outputs = run(case_of("RobertaWithKVMemoryForSequenceClassification"))
    (read,) = model.memory_reads(inputs, outputs)
    torch.testing.assert_close(read.weights, outputs.memory_weights.mean(dim=1))
    assert read.owners is None


def test_hma_reads_classes_and_itself():
    model, inputs, outputs = run(case_of("HMAForSequenceClassification"))
    real, synthetic = model.memory_reads(inputs, outputs)
    weights, queue = outputs.memory_weights.mean(dim=1), model.head.memory.queue
    torch.testing.assert_close(real.weights, weights[:, : queue.size][:, queue.filled])
    torch.testing.assert_close(real.weights.sum(dim=1) + weights[:, queue.size], torch.ones(3))
    names = [model.config.id2label[label] for label in queue.slot_labels[queue.filled].tolist()]
    assert list(real.owners) == names and real.unit == "datapoint"
    count = model.config.num_labels * model.config.synthetic_slots
    torch.testing.assert_close(synthetic.weights, weights[:, queue.size + 1 :][:, :count])
    model.head.memory.queue.clear()
    _, inputs, outputs = run(case_of("HMAForSequenceClassification"), model)
    empty, _ = model.memory_reads(inputs, outputs)
    assert empty.weights.shape == (3, 0) and "empty" in empty.about


def test_gmoe_reads_experts_of_patches():
    model, inputs, outputs = run(case_of("ViTGMoEForImageClassification"))
    reads = model.memory_reads(inputs, outputs)
    assert [read.layer for read in reads] == model.config.expert_layers
    for place, read in enumerate(reads):
        assert read.patches.shape == (3, 4, 4, model.config.num_experts)
        torch.testing.assert_close(read.patches.flatten(1, 2), outputs.memory_weights[:, place, 1:])
        torch.testing.assert_close(read.weights, read.patches.mean(dim=(1, 2)))
    with pytest.raises(ValueError, match="cannot be switched off"), model.without_memory():
        pass


def test_gmap_reads_layers():
    model, inputs, outputs = run(case_of("GMAPForSequenceClassification"))
    (layers,) = model.memory_reads(inputs, outputs)
    assert [layers.name(0), layers.owners[0], layers.owners[3]] == ["layer 1", "read by layer 2", "read by layer 4"]


def test_slots_belong_to_the_domains_they_were_added_for():
    case = case_of("MemoryRNNForConditionalGeneration")
    model = case.model()
    model.config.run_facts = {"continual": {"stages": [{"domains": ["fiction"]}, {"domains": ["travel"]}]}}
    _, inputs, outputs = run(case, model)
    for read in model.memory_reads(inputs, outputs):
        assert list(read.by_owner()) == ["fiction", "travel"]


def other_memory(model):
    torch.manual_seed(5)
    for name, parameter in model.named_parameters():
        if "slot_values" in name or "synthetic_slots" in name or ".general." in name:
            torch.nn.init.normal_(parameter, std=2.0)
    if hasattr(model, "write"):
        model.memory.correction.neg_()
    queue = getattr(getattr(getattr(model, "head", None), "memory", None), "queue", None)
    if queue is not None:
        queue.write(torch.randn(20, queue.slots.shape[1]), torch.arange(20) % 2)


@pytest.mark.parametrize("case", SWITCHABLE, ids=str)
def test_without_memory_nothing_of_it_is_read(case):
    model, inputs, outputs = run(case)
    with torch.no_grad(), model.without_memory():
        plain = prediction(model(**inputs))
    assert not torch.allclose(plain, prediction(outputs))
    assert torch.equal(prediction(run(case, model)[2]), prediction(outputs)), "the memory is on again"
    other_memory(model)
    with pytest.raises(KeyError), model.without_memory():
        raise KeyError
    assert not torch.allclose(prediction(run(case, model)[2]), prediction(outputs)), "also after an error"
    with torch.no_grad(), model.without_memory():
        torch.testing.assert_close(prediction(model(**inputs)), plain)


@pytest.mark.parametrize(
    "name, off",
    [
        ("RobertaWithKVMemoryForSequenceClassification", {"memory_weight": 0.0}),
        ("MemoryRNNForSequenceClassification", {"memory_slots": []}),
        ("HMAForSequenceClassification", {"augmentation": "param"}),
    ],
)
def test_a_model_that_reads_no_memory_says_so(name, off):
    case = case_of(name)
    model, inputs, outputs = run(case, case.model_class(case.config(**off)).eval())
    assert not model.reads_memory and model.memory_reads(inputs, outputs) == []


def test_by_default_the_last_axis_counts_slots():
    class Model(MemoryModelMixin):
        config = object()

    (read,) = Model().memory_reads({}, {"memory_weights": torch.tensor([[[1.0, 3.0], [1.0, 3.0]]])})
    assert read.weights.tolist() == [[0.25, 0.75]] and read.name(1) == "slot 1"
    assert Model().memory_reads({}, {}) == []
    with pytest.raises(ValueError, match="cannot be switched off"), Model().without_memory():
        pass
