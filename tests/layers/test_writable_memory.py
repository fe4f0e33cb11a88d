# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The closed forms of a writable memory against slow references."""

import pytest
import torch
from torch.nn import functional as F

from hf_memaug.layers.nearest_rows import NearestRows
from hf_memaug.layers.writable_memory import GATE_RIDGES, GUARD, RIDGES, TRUSTS, WritableMemory, opened, ridge


def make_rows(written: int = 20, guards: int = 10, seed: int = 0) -> dict[str, torch.Tensor]:
    """Two parts of a key. The classifier is wrong on written rows, whose first part tells the class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(written + guards) % 2
    first = torch.randn(written + guards, 4, generator=generator)
    first[:, 0] = 3 * (2 * labels - 1)
    second = torch.randn(written + guards, 3, generator=generator)
    second[:written, 0] += 4
    keys = WritableMemory.join([first, second])
    answers = torch.where(torch.arange(written + guards) < written, 1 - labels, labels)
    return {
        "keys": keys.to(torch.float16).view(torch.int16),
        "probabilities": 0.1 + 0.8 * F.one_hot(answers, 2).float(),
        "labels": labels,
        "domains": torch.tensor([0] * written + [GUARD] * guards),
        "row_ids": torch.randperm(written + guards, generator=generator) - 5,
    }


def filled(rows: dict[str, torch.Tensor], **kwargs) -> WritableMemory:
    memory = WritableMemory(2, 4, 2, **kwargs)
    memory.set_rows(rows)
    memory.solve()
    return memory


@pytest.mark.parametrize("weighted", [False, True])
def test_left_out_predictions_are_those_of_the_other_rows(weighted):
    torch.manual_seed(0)
    features, targets = torch.randn(9, 4, dtype=torch.float64), torch.randn(9, 2, dtype=torch.float64)
    shares = torch.rand(9, dtype=torch.float64) + 0.1 if weighted else torch.ones(9, dtype=torch.float64)
    for strength, (weights, left_out) in zip((0.1, 3.0), ridge(features, targets, (0.1, 3.0), shares), strict=True):

        def fit(kept, strength=strength):
            x, y, d = features[kept], targets[kept], shares[kept, None]
            return torch.linalg.solve(x.T @ (d * x) + strength * torch.eye(4, dtype=torch.float64), x.T @ (d * y))

        torch.testing.assert_close(weights, fit(torch.arange(9)))
        expected = torch.stack([features[row] @ fit(torch.arange(9) != row) for row in range(9)])
        torch.testing.assert_close(left_out, expected)


def slow_answer(rows: dict[str, torch.Tensor], keys: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    """The formulas of the module, in the dual, each left-out prediction by a regression of its own."""
    order = rows["row_ids"].argsort()
    rows = {name: values[order] for name, values in rows.items()}
    known, is_written = rows["keys"].view(torch.float16).double(), rows["domains"] != GUARD
    center = known.mean(dim=0).float().double()

    def kernel(one, other):
        one, other = (part.double() - center for part in (one, other))
        pairs = zip(one.unbind(dim=1), other.unbind(dim=1), strict=True)
        return 1 + sum(4 * torch.exp(F.cosine_similarity(a[:, None], b[None], dim=-1) - 1) for a, b in pairs) / 2

    def fit(kept, targets, shares, strength, at):
        inner = kernel(known[kept], known[kept]) + strength * torch.diag(1 / shares[kept])
        return kernel(at, known[kept]) @ torch.linalg.solve(inner, targets)

    def left_out(places, targets, shares, strength):
        found = []
        for place in range(len(places)):
            others = [one for one in range(len(places)) if one != place]
            at = known[places[place]][None]
            found.append(fit(places[others], targets[others], shares, strength, at)[0])
        return torch.stack(found)

    everyone, written = torch.arange(len(known)), is_written.nonzero()[:, 0]
    signs = torch.where(is_written, 1.0, -1.0).double()[:, None]
    shares = torch.where(is_written, 0.5 / is_written.double().mean(), 0.5 / (~is_written).double().mean())
    tried = [(left_out(everyone, signs, shares, strength), strength) for strength in GATE_RIDGES]
    scores, strength = min(tried, key=lambda one: float((shares[:, None] * (one[0] - signs).square()).mean()))
    gate = opened(fit(everyone, signs, shares, strength, keys))
    open_ = opened(scores[written])
    truth, p0 = F.one_hot(rows["labels"][written], 2).double(), rows["probabilities"][written].double()
    best, answer, ones = p0, base, torch.ones(len(known), dtype=torch.float64)
    for trust in TRUSTS:
        tried = []
        for strength in RIDGES:
            residual = truth - trust * p0
            after = (1 - open_) * p0 + open_ * (trust * p0 + left_out(written, residual, ones, strength))
            tried.append(((truth - after).square().sum(dim=-1).mean(), strength, after, residual))
        _, strength, after, residual = min(tried, key=lambda one: float(one[0]))
        gain = (truth - best).square().sum(dim=-1) - (truth - after).square().sum(dim=-1)
        right = [(answers.argmax(dim=-1) == truth.argmax(dim=-1)).sum() for answers in (after, best)]
        if gain.mean() > (1 + 8 / len(gain)) * gain.std() / len(gain) ** 0.5 and right[0] >= right[1]:
            best = after
            corrected = trust * base + fit(written, residual, ones, strength, keys)
            answer = (1 - gate) * base + gate * corrected
    return answer


def test_the_answer_is_that_of_the_slow_reference():
    rows, generator = make_rows(), torch.Generator().manual_seed(3)
    keys = WritableMemory.join([torch.randn(6, size, generator=generator) for size in (4, 3)])
    base = torch.rand(6, 2, generator=generator).softmax(dim=-1)
    found = filled(rows)(base.log(), keys).exp()
    expected = slow_answer(rows, keys, base.double()).clamp(min=1e-6)
    assert (expected - base).abs().max() > 0.1, "the memory changes nothing"
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-4)


def test_the_order_of_the_rows_changes_no_bit():
    rows = make_rows()
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    first, second = filled(rows), filled({name: values[order] for name, values in rows.items()})
    assert all(torch.equal(a, b) for a, b in zip(first.buffers(), second.buffers(), strict=True))


@pytest.mark.parametrize("change", ["random labels", "too few rows", "fewer right", "right already", "no rows"])
def test_rows_without_information_change_nothing(change):
    rows, generator = make_rows(40, 0), torch.Generator().manual_seed(2)
    if change == "random labels":
        rows["keys"] = torch.randn(40, 2, 4, generator=generator).to(torch.float16).view(torch.int16)
        rows["probabilities"] = torch.full((40, 2), 0.5)
        rows["labels"] = torch.randint(0, 2, (40,), generator=generator)
    elif change == "too few rows":
        # The squared error would fall by one standard error, but not by two.
        generator.manual_seed(1)
        rows = {name: values[:8] for name, values in rows.items()}
        rows["keys"] = torch.randn(8, 2, 4, generator=generator).to(torch.float16).view(torch.int16)
        rows["probabilities"] = torch.full((8, 2), 0.5)
        rows["labels"] = torch.randint(0, 2, (8,), generator=generator)
    elif change == "fewer right":
        # The squared error would fall by enough.
        generator.manual_seed(27)
        rows["keys"] = torch.randn(40, 2, 4, generator=generator).to(torch.float16).view(torch.int16)
        rows["labels"] = torch.randint(0, 2, (40,), generator=generator)
        answers = torch.where(torch.arange(40) % 10 < 9, rows["labels"], 1 - rows["labels"])
        rows["probabilities"] = 0.4 + 0.2 * F.one_hot(answers, 2).float()
    elif change == "right already":
        rows["probabilities"] = F.one_hot(rows["labels"], 2).float()
    else:
        rows = {name: values[:0] for name, values in rows.items()}
    memory, logits = filled(rows), torch.randn(3, 2, generator=generator)
    assert not len(memory.landmarks)
    assert torch.equal(memory(logits, torch.randn(3, 2, 4, generator=generator)), logits)


def test_answers_that_are_all_wrong_change_nothing():
    """Two rows of two classes that the classifier gives no share: less trust in it lowers the error, and no more."""
    rows = make_rows(2, 0)
    rows |= {"labels": torch.tensor([3, 4]), "probabilities": torch.tensor([[0.9, 0.05, 0.05, 0, 0]]).repeat(2, 1)}
    memory = WritableMemory(*rows["keys"].shape[1:], 5)
    memory.set_rows(rows)
    assert memory.solve() is None


def test_the_gate_keeps_the_old_domains():
    rows = make_rows()
    memory = filled(rows)
    gate = memory.opening(memory.similarity(memory.keys.view(torch.float16)))
    assert gate[memory.written].min() > 0.9 and gate[~memory.written].mean() < 0.1
    without = filled({name: values[:20] for name, values in rows.items()})
    assert without.opening(without.similarity(memory.keys.view(torch.float16))).min() == 1


def test_few_landmarks_span_nearly_the_same_answer():
    rows = make_rows(200, 100)
    keys = rows["keys"].view(torch.float16).float()
    whole, part = (filled(rows, max_landmarks=size) for size in (2048, 60))
    assert len(part.landmarks) == 60 and len(whole.landmarks) == 300
    found = [memory(rows["probabilities"].log(), keys).exp() for memory in (whole, part)]
    assert (found[0].argmax(dim=-1) == found[1].argmax(dim=-1)).float().mean() > 0.95


@pytest.mark.parametrize("index", ["exact", "faiss"])
def test_the_nearest_rows_are_found(index, monkeypatch):
    if index == "faiss":
        pytest.importorskip("faiss", reason="the extra `faiss` is not installed")
        monkeypatch.setattr("hf_memaug.layers.nearest_rows.EXACT_ROWS", 100)
    memory = filled(make_rows(2000, 20))
    keys = memory.keys.view(torch.float16).float()
    similarities, places = NearestRows(memory)(keys[5:25], 3)
    known = memory.centered(keys)[:2000]
    cosines = sum(F.cosine_similarity(known[5:25, None, part], known[None, :, part], dim=-1) for part in (0, 1)) / 2
    expected = cosines.topk(3, dim=-1)
    assert places[:, 0].tolist() == list(range(5, 25))
    hits = [len(set(one) & set(other)) for one, other in zip(places.tolist(), expected.indices.tolist(), strict=True)]
    assert sum(hits) >= (60 if index == "exact" else 54)
    torch.testing.assert_close(similarities[:, 0], expected.values[:, 0], rtol=0, atol=1e-5)


def test_casting_changes_no_buffer():
    memory = filled(make_rows())
    kept = {name: value.clone() for name, value in memory.state_dict().items()}
    for name, value in memory.half().bfloat16().state_dict().items():
        assert value.dtype == kept[name].dtype and torch.equal(value, kept[name])
