# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Section 3.1 of IDA word by word, against the network's fast steps; and Theorem 1 under its own assumptions."""

import math

import pytest
import torch
from torch import nn

from hf_memaug.layers import memory_recurrence
from hf_memaug.layers.memory_rnn import MemoryRNN, _content

cells = pytest.mark.parametrize("cell", ["lstm", "gru"])


def make(cell="lstm", slots=7, bidirectional=True, seed=0, **kwargs) -> MemoryRNN:
    torch.manual_seed(seed)
    rnn = MemoryRNN(**{"input_size": 5, "hidden_size": 4, "value_size": 3, **kwargs}, slots=slots, cell=cell,
                    bidirectional=bidirectional).double()  # fmt: skip
    for parameter in rnn.parameters():
        nn.init.normal_(parameter, std=0.7)
    return rnn


def words(rows=3, steps=6, seed=1, size=5) -> torch.Tensor:
    return torch.randn(rows, steps, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def one_by_one(*args):
    """In place of `_Steps.apply`."""
    return memory_recurrence.plain_steps(*args)


def by_hand(rnn: MemoryRNN, row: torch.Tensor, direction: int, state=None):
    """One text, one direction, number by number: the states, the weights, both in the order of words, and the end."""
    h_size, gates = rnn.hidden_size, rnn.gates
    w_x = rnn.input_projection.weight.view(rnn.directions, gates, h_size, -1)[direction]
    b = rnn.input_projection.bias.view(rnn.directions, gates, h_size)[direction]
    w_h = rnn.hidden_weight.view(rnn.directions, h_size, gates, h_size)[direction]
    h = torch.zeros(h_size, dtype=row.dtype) if state is None else state[0]
    c = torch.zeros(h_size, dtype=row.dtype) if state is None else state[-1]
    order = range(len(row)) if direction == 0 else reversed(range(len(row)))
    states, attention = [], []
    for i, place in enumerate(order):
        part = [w_x[g] @ row[place] + b[g] for g in range(gates)]
        alpha = torch.zeros(0 if rnn.memory is None else rnn.memory.slot_keys.shape[1], dtype=row.dtype)
        if rnn.memory is not None and (i > 0 or state is not None):
            keys, values = rnn.memory.slot_keys[direction], rnn.memory.slot_values[direction]
            scores = [math.exp(float(h @ key)) for key in keys]
            alpha = torch.tensor([score / sum(scores) for score in scores], dtype=row.dtype)  # Eq. 1
            content = sum(a * value for a, value in zip(alpha, values, strict=True))  # Eq. 2
            w_c = rnn.content_weight.view(rnn.directions, len(content), gates, h_size)[direction]
            part = [part[g] + content @ w_c[:, g] for g in range(gates)]
        of_h = [h @ w_h[:, g] for g in range(gates)]
        if rnn.cell == "lstm":
            i_, f, o = (torch.sigmoid(part[g] + of_h[g]) for g in range(3))
            c = f * c + i_ * torch.tanh(part[3] + of_h[3])
            h = o * torch.tanh(c)
        else:
            r, z = (torch.sigmoid(part[g] + of_h[g]) for g in range(2))
            n = torch.tanh(part[2] + r * (of_h[2] + rnn.candidate_bias[direction]))
            h = (1 - z) * n + z * h
        states.append(h)
        attention.append(alpha)
    if direction == 1:
        states, attention = states[::-1], attention[::-1]
    return torch.stack(states), torch.stack(attention), (h, c)


class TestTheSteps:
    @cells
    @pytest.mark.parametrize("slots", [1, 3, 40])
    @torch.no_grad()
    def test_they_are_equations_1_and_2_word_by_word(self, cell, slots):
        rnn = make(cell, slots)
        hidden, last, weights = rnn(words(), output_weights=True)
        assert hidden.shape == (3, 6, 8) and weights.shape == (3, 2, 6, slots)
        for row in range(3):
            for direction in range(2):
                states, attention, (h, c) = by_hand(rnn, words()[row], direction)
                torch.testing.assert_close(hidden[row, :, 4 * direction : 4 * direction + 4], states)
                torch.testing.assert_close(weights[row, direction], attention)
                torch.testing.assert_close(last[0][direction, row], h)
                if cell == "lstm":
                    torch.testing.assert_close(last[1][direction, row], c)

    @pytest.mark.parametrize(("slots", "folded"), [(3, True), (40, False)])
    def test_the_content_weight_goes_to_the_slots_where_that_is_less_work(self, slots, folded):
        rnn = make(slots=slots, value_size=8)
        given = (rnn.memory.slot_values, rnn.content_weight)
        assert (_content(*given, 1000)[1] is None) == folded
        assert _content(*given, 1)[1] is not None, "one read is not worth it"
        values, weight = _content(*given, 1000 if not folded else 1)
        torch.testing.assert_close(values @ weight, rnn.memory.slot_values @ rnn.content_weight)

    @cells
    @torch.no_grad()
    def test_from_a_state_the_first_step_reads(self, cell):
        rnn = make(cell, bidirectional=False)
        state = tuple(words(1, 3, seed=s, size=4) for s in range(2 if cell == "lstm" else 1))
        hidden, last, weights = rnn(words(), state=state, output_weights=True)
        for row in range(3):
            given = [part[0, row] for part in state]
            states, attention, _ = by_hand(rnn, words()[row], 0, given)
            torch.testing.assert_close(hidden[row], states)
            torch.testing.assert_close(weights[row, 0], attention)
        # In two parts it is the same text.
        first, middle, _ = rnn(words()[:, :2], state=state)
        second, end, _ = rnn(words()[:, 2:], state=middle)
        torch.testing.assert_close(torch.cat([first, second], 1), hidden)
        torch.testing.assert_close(end, last)

    @cells
    @torch.no_grad()
    def test_without_slots_it_is_torchs_own(self, cell):
        rnn = make(cell, slots=0)
        assert rnn.memory is None and rnn.content_weight is None
        theirs = (nn.LSTM if cell == "lstm" else nn.GRU)(5, 4, bidirectional=True, batch_first=True).double()
        order = [0, 1, 3, 2] if cell == "lstm" else [0, 1, 2]  # torch has i, f, g, o
        w_x = rnn.input_projection.weight.view(2, -1, 4, 5)[:, order].flatten(1, 2)
        b_x = rnn.input_projection.bias.view(2, -1, 4)[:, order].flatten(1)
        w_h = rnn.hidden_weight.view(2, 4, -1, 4)[:, :, order].flatten(2).transpose(1, 2)
        for direction, suffix in enumerate(("", "_reverse")):
            getattr(theirs, f"weight_ih_l0{suffix}").copy_(w_x[direction])
            getattr(theirs, f"weight_hh_l0{suffix}").copy_(w_h[direction])
            getattr(theirs, f"bias_ih_l0{suffix}").copy_(b_x[direction])
            inner = getattr(theirs, f"bias_hh_l0{suffix}").zero_()
            if cell == "gru":
                inner[-4:] = rnn.candidate_bias[direction]
        expected, last = theirs(words())
        found, state, _ = rnn(words())
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(state[0], last[0] if cell == "lstm" else last)

    @cells
    @torch.no_grad()
    def test_the_directions_use_their_own_states_and_slots(self, cell):
        rnn = make(cell)
        before = rnn(words())[0]
        for direction in range(2):
            for table in (rnn.memory.slot_keys, rnn.memory.slot_values):
                kept = table.clone()
                table[direction] += 1 + torch.randn_like(table[direction])
                after = rnn(words())[0]
                table.copy_(kept)
                changed = (after - before).abs().amax(dim=(0, 1))
                mine, other = changed.chunk(2) if direction == 0 else changed.chunk(2)[::-1]
                assert mine.max() > 1e-6 and other.max() == 0


class TestPadding:
    @cells
    @pytest.mark.parametrize("side", ["left", "right"])
    @torch.no_grad()
    def test_it_changes_nothing(self, cell, side):
        rnn, lengths = make(cell), [6, 4, 1]
        padded, mask = torch.full((3, 9, 5), 7.7, dtype=torch.float64), torch.zeros(3, 9)
        places = []
        for row, length in enumerate(lengths):
            place = slice(0, length) if side == "right" else slice(9 - length, 9)
            padded[row, place], mask[row, place] = words()[row, :length], 1
            places.append(place)
        hidden, last, weights = rnn(padded, mask, output_weights=True)
        for row, (length, place) in enumerate(zip(lengths, places, strict=True)):
            alone, end, attention = rnn(words()[row : row + 1, :length], output_weights=True)
            torch.testing.assert_close(hidden[row, place], alone[0])
            torch.testing.assert_close(weights[row, :, place], attention[0])
            for part, expected in zip(last, end, strict=True):
                torch.testing.assert_close(part[:, row], expected[:, 0])
        assert hidden[mask == 0].abs().max() == 0 and weights.transpose(1, 2)[mask == 0].abs().max() == 0


class TestGradients:
    @cells
    @pytest.mark.parametrize("slots", [0, 3, 40])
    @pytest.mark.parametrize("masked", [False, True])
    @pytest.mark.parametrize("from_state", [False, True])
    def test_the_hand_written_pass_is_autograds(self, cell, slots, masked, from_state, monkeypatch):
        mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1]]) if masked else None
        found = []
        for plain in (False, True):
            if plain:
                monkeypatch.setattr(memory_recurrence._Steps, "apply", one_by_one)
            rnn, inputs = make(cell, slots), words().requires_grad_()
            state = None
            if from_state:
                state = tuple(words(2, 3, s, 4).requires_grad_() for s in range(2 if cell == "lstm" else 1))
            hidden, last, weights = rnn(inputs, mask, state, output_weights=True)
            generator = torch.Generator().manual_seed(3)
            outputs = [hidden, *last, *([weights] if slots else [])]
            loss = sum((o * torch.randn(o.shape, generator=generator, dtype=o.dtype)).sum() for o in outputs)
            wanted = [inputs, *rnn.parameters(), *(state or ())]
            found.append([hidden, *torch.autograd.grad(loss, wanted)])
        assert all(value.abs().max() > 0 for value in found[0])
        for mine, theirs in zip(*found, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)

    @cells
    def test_finite_differences(self, cell):
        rnn = make(cell, slots=3, hidden_size=2)
        names = [name for name, _ in rnn.named_parameters()]
        mask = torch.tensor([[1, 1, 1], [1, 1, 0]])

        def run(inputs, *parameters):
            hidden, last, _ = torch.func.functional_call(rnn, dict(zip(names, parameters, strict=True)), (inputs, mask))
            return hidden, *last

        tensors = (words(2, 3).requires_grad_(), *rnn.parameters())
        assert torch.autograd.gradcheck(run, tensors)

    def test_a_frozen_bank_gets_none_and_costs_none(self):
        rnn = make()
        rnn.memory.requires_grad_(False)
        rnn(words())[0].sum().backward()
        assert rnn.memory.slot_keys.grad is None and rnn.hidden_weight.grad.abs().max() > 0
        rnn.requires_grad_(False)
        assert rnn(words())[0].grad_fn is None


class TestTheorem1:
    """
    A linear vanilla network, `h' = W_h h + W_x x + W_c c`, with `h` held fixed and all that is new i.i.d. Gaussian:
    more slots move `h'` less than as many new units do, where the old slots keep at least half of the attention.
    """

    DRAWS, D, SIGMA = 20_000, 8, 0.6

    def draw(self, *shape):
        return torch.randn(self.DRAWS, *shape, generator=self.generator, dtype=torch.float64) * self.SIGMA

    def attention(self, hidden, keys):
        """`α` of the layer's own step, each draw in the place of a direction."""
        gates = torch.zeros(self.DRAWS, self.D, 3 * self.D, dtype=torch.float64)
        recurrent = torch.cat([keys.transpose(1, 2), gates], dim=-1)
        words = torch.zeros(1, self.DRAWS, 1, 3 * self.D, dtype=torch.float64)
        weightless = (torch.zeros_like(keys[..., :1]).expand(-1, -1, 3 * self.D), None, gates[:, 0, : self.D])
        setting = memory_recurrence.Setting("gru", reads_at_first=True, output_weights=True)
        found = memory_recurrence.recur(setting, words, recurrent, *weightless, (hidden,))
        return found[2][0]

    @pytest.mark.parametrize(("old", "new"), [(4, 4), (10, 5), (3, 12), (1, 1)])
    def test_memory_moves_the_state_less_than_units_do(self, old, new):
        self.generator = torch.Generator().manual_seed(0)
        hidden, keys, values = self.draw(1, self.D), self.draw(old + new, self.D), self.draw(old + new, self.D)
        before, after = self.attention(hidden, keys[:, :old]), self.attention(hidden, keys)
        holds = after[:, 0, old:].sum(-1) <= after[:, 0, :old].sum(-1)
        assert 100 < holds.sum(), "the condition of the theorem lets draws through"
        change = after @ values - before @ values[:, :old]  # Eq. 21
        by_memory = (change @ self.draw(self.D, self.D)).square().sum(-1)[:, 0][holds]
        by_units = (self.draw(1, self.D) @ self.draw(self.D, self.D)).square().sum(-1)[:, 0]
        assert by_memory.mean() < by_units.mean()  # Eq. 4

        beta = after.clone()  # Eq. 25
        beta[..., :old] -= before
        within = (beta.abs() <= after + 1e-12).all(-1)[:, 0]
        assert within[holds].all() and not within[~holds].any(), "Eq. 26 is what the condition is for"
        whole = self.D * self.D * self.SIGMA**4
        assert float(by_units.mean()) == pytest.approx(whole, rel=0.05)  # Eq. 7
        share = float(beta.square().sum(-1)[:, 0][holds].mean())
        assert float(by_memory.mean()) == pytest.approx(whole * share, rel=0.15)  # Eq. 20 and 34
        assert share <= float(after.square().sum(-1)[:, 0][holds].mean()) <= 1  # Eq. 35 and 36


@pytest.mark.gpu
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_recorded_recurrence_gives_the_same(cell, masked):
    from hf_memaug.kernels import GraphedFunction

    torch.manual_seed(0)
    layer = MemoryRNN(64, 64, 100, 64, cell=cell).cuda()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    mask = torch.arange(9)[None] < torch.tensor([9, 5, 3, 9])[:, None] if masked else None

    def gradients(inputs):
        hidden, state, _ = layer(inputs["words"], mask=inputs.get("mask"))
        return torch.autograd.grad(hidden.pow(2).sum() + state[0].sum(), list(layer.parameters()))

    inputs = {"words": torch.randn(4, 9, 64).cuda(), **({} if mask is None else {"mask": mask.cuda()})}
    expected = [gradient.clone() for gradient in gradients(inputs)]
    for found, gradient in zip(GraphedFunction(gradients)(inputs), expected, strict=True):
        torch.testing.assert_close(found, gradient, rtol=1e-4, atol=1e-5)
