# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
The steps of a recurrent network with a memory (IDA, Eq. 1 and 2), with a backward pass by hand and in plain torch.

Both give the same. Compilers and exporters use the plain one. The other computes the gradient of each weight as one
product after the last step.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from hf_memaug.kernels.cuda_graphs import is_recording


class Setting(NamedTuple):
    """
    Args:
        cell (`str`): `"lstm"` or `"gru"`.
        reads_at_first (`bool`): whether the first step reads the memory.
        keep (`Tensor`, *optional*): true where there is a word, `(steps, directions, rows, 1)`.
        has_read (`Tensor`, *optional*): true where a word came before: the first word of a row reads nothing.
        output_weights (`bool`): whether to return `α`.
    """

    cell: str
    reads_at_first: bool
    keep: torch.Tensor | None = None
    has_read: torch.Tensor | None = None
    output_weights: bool = False


def recur(
    setting: Setting, projected: torch.Tensor, recurrent: torch.Tensor, values, content_weight, candidate_bias, state
) -> tuple[torch.Tensor, tuple[torch.Tensor, ...], torch.Tensor | None]:
    """
    Args:
        projected (`Tensor`): the words' part of the gates, `(steps, directions, rows, gates * hidden_size)`.
        recurrent (`Tensor`): from the hidden state to the scores of the slots and to the gates.
        values (`Tensor`, *optional*): `(directions, slots, ...)`. None: no memory.
        content_weight (`Tensor`, *optional*): from content to gates. None: the values already include it.
        candidate_bias (`Tensor`, *optional*): of a GRU.
        state (`tuple[Tensor, ...]`, *optional*): the first state. None: zeros.

    Returns:
        The hidden state after each step, the last state, and `α` or None.
    """
    steps, directions, rows, _ = projected.shape
    is_lstm = setting.cell == "lstm"
    if state is None:
        size = recurrent.shape[1]
        state = tuple(projected.new_zeros(directions, rows, size) for _ in range(1 + is_lstm))
    if not steps:
        slots = 0 if values is None else values.shape[1]
        nothing = projected.new_zeros(0, directions, rows, slots) if setting.output_weights else None
        return projected.new_zeros(0, *state[0].shape), state, nothing
    first_cell = state[1] if is_lstm else None
    tensors = (projected, recurrent, values, content_weight, candidate_bias, state[0], first_cell)
    take_steps: Callable[..., Any] = plain_steps if torch.compiler.is_compiling() else _Steps.apply
    hidden_states, last_cell, weights = take_steps(setting, *tensors)
    return hidden_states, (hidden_states[-1], last_cell) if is_lstm else (hidden_states[-1],), weights


def plain_steps(
    setting, projected, recurrent, values, content_weight, candidate_bias, hidden, cell_state
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """One step after the other, as in the paper."""
    cell, reads_at_first, keep, has_read, output_weights = setting
    size, slots = recurrent.shape[1], 0 if values is None else values.shape[1]
    hidden_states, all_weights = [], []
    for step, gates in enumerate(projected):
        scores, from_hidden = torch.bmm(hidden, recurrent).split([slots, recurrent.shape[-1] - slots], dim=-1)
        if slots and (step or reads_at_first):
            weights = torch.softmax(scores, dim=-1)  # Eq. 1
            if has_read is not None:
                weights = weights * has_read[step]
            content = torch.bmm(weights, values)  # Eq. 2
            gates = gates + (content if content_weight is None else torch.bmm(content, content_weight))
        else:
            weights = torch.zeros_like(scores)
        if cell == "lstm":
            opened = torch.sigmoid((gates + from_hidden)[..., : 3 * size])
            taken, kept, shown = opened.chunk(3, dim=-1)
            new_cell = kept * cell_state + taken * torch.tanh((gates + from_hidden)[..., 3 * size :])
            new_hidden = shown * torch.tanh(new_cell)
        else:
            opened = torch.sigmoid(gates[..., : 2 * size] + from_hidden[..., : 2 * size])
            reset, update = opened.chunk(2, dim=-1)
            inner = from_hidden[..., 2 * size :] + candidate_bias.unsqueeze(1)
            candidate = torch.tanh(gates[..., 2 * size :] + reset * inner)
            new_hidden, new_cell = candidate + update * (hidden - candidate), None
        if keep is not None:
            new_hidden = torch.where(keep[step], new_hidden, hidden)
            new_cell = None if new_cell is None else torch.where(keep[step], new_cell, cell_state)
        hidden, cell_state = new_hidden, new_cell
        hidden_states.append(hidden)
        all_weights.append(weights)
    return torch.stack(hidden_states), cell_state, torch.stack(all_weights) if output_weights else None


# What lies between the products of a step. Results are written to the last arguments.


def _compiled_in_graphs(function: Callable) -> Callable:
    """
    In a CUDA graph, Inductor makes one kernel of it. Elsewhere the calls of compiled functions take longer than they
    save. Those of a GRU write to slices by `out=`, which Dynamo does not support.
    """
    compiled = torch.compile(function, dynamic=False)

    @functools.wraps(function)
    def call(*args):
        return compiled(*args) if is_recording() else function(*args)

    return call


@_compiled_in_graphs
def _attend(scores, has_read, weights) -> None:
    torch.softmax(scores, dim=-1, out=weights)
    if has_read is not None:
        weights *= has_read


@_compiled_in_graphs
def _attend_back(to_weights, asked, weights, to_scores) -> None:
    if asked is not None:
        to_weights = to_weights + asked
    to_scores.copy_(torch._softmax_backward_data(to_weights, weights, -1, weights.dtype))


@_compiled_in_graphs
def _lstm(from_words, from_hidden, before, word, gates, after, cell_before, cell_after) -> None:
    size = before.shape[-1]
    torch.add(from_words, from_hidden, out=gates)
    gates[..., : 3 * size].sigmoid_()
    gates[..., 3 * size :].tanh_()
    taken, kept, shown, new = gates.split(size, dim=-1)
    torch.mul(kept, cell_before, out=cell_after).addcmul_(taken, new)
    if word is not None:
        torch.where(word, cell_after, cell_before, out=cell_after)
    torch.mul(shown, cell_after.tanh(), out=after)
    if word is not None:
        torch.where(word, after, before, out=after)


def _gru(from_words, from_hidden, before, word, gates, after, candidate_bias, inner) -> None:
    size = before.shape[-1]
    opened = torch.add(from_words[..., : 2 * size], from_hidden[..., : 2 * size], out=gates[..., : 2 * size])
    reset, update = opened.sigmoid_().split(size, dim=-1)
    torch.add(from_hidden[..., 2 * size :], candidate_bias.unsqueeze(1), out=inner)
    candidate = gates[..., 2 * size :]
    torch.addcmul(from_words[..., 2 * size :], reset, inner, out=candidate).tanh_()
    torch.lerp(candidate, before, update, out=after)
    if word is not None:
        torch.where(word, after, before, out=after)


@_compiled_in_graphs
def _lstm_back(to_hidden, asked, word, opened, to_gates, to_cell, cell_before, cell_after):
    """Returns the gradients of the cell before, and of the hidden state before without its products (or None)."""
    to_hidden, passed_hidden = _stopped(to_hidden if asked is None else to_hidden + asked, word)
    to_cell, passed_cell = _stopped(to_cell, word)
    size = to_hidden.shape[-1]
    taken, kept, shown, new = opened.split(size, dim=-1)
    seen = cell_after.tanh()
    to_cell = torch.addcmul(to_cell, to_hidden * shown, 1 - seen * seen)
    parts = to_gates.split(size, dim=-1)
    torch.mul(to_cell, new, out=parts[0])
    torch.mul(to_cell, cell_before, out=parts[1])
    torch.mul(to_hidden, seen, out=parts[2])
    three = opened[..., : 3 * size]
    to_gates[..., : 3 * size] *= three * (1 - three)
    torch.mul(to_cell * taken, 1 - new * new, out=parts[3])
    to_cell = to_cell * kept
    return to_cell if passed_cell is None else to_cell + passed_cell, passed_hidden


def _gru_back(to_hidden, asked, word, opened, to_gates, before, inner, to_joint):
    """Returns the gradient of the hidden state before without its products."""
    to_hidden, passed = _stopped(to_hidden if asked is None else to_hidden + asked, word)
    size = to_hidden.shape[-1]
    reset, update, candidate = opened.split(size, dim=-1)
    to_candidate = to_hidden * (1 - update) * (1 - candidate * candidate)
    to_gates[..., 2 * size :] = to_candidate
    to_gates[..., size : 2 * size] = to_hidden * (before - candidate) * update * (1 - update)
    to_gates[..., :size] = to_candidate * inner * reset * (1 - reset)
    to_joint[..., : 2 * size] = to_gates[..., : 2 * size]
    torch.mul(to_candidate, reset, out=to_joint[..., 2 * size :])
    residual = to_hidden * update
    return residual if passed is None else residual + passed


def _stopped(reaches, word):
    """The gradient of a step, and what passes by it at padding."""
    return (reaches, None) if word is None else (reaches * word, reaches.masked_fill(word, 0))


class _Steps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, setting, *tensors):
        projected, recurrent, values, content_weight, candidate_bias, hidden, cell_state = tensors
        cell, reads_at_first, keep, has_read, output_weights = setting
        steps, directions, rows, width = projected.shape
        size, slots = recurrent.shape[1], 0 if values is None else values.shape[1]
        learns = any(ctx.needs_input_grad)
        is_lstm = cell == "lstm"
        # States have one more entry than there are steps: the one to begin with.
        hiddens = projected.new_empty(steps + 1, directions, rows, size)
        hiddens[0] = hidden
        cells = torch.empty_like(hiddens) if is_lstm else None
        if is_lstm:
            cells[0] = cell_state
        activations = projected.new_empty(steps if learns else 1, directions, rows, width)
        all_weights = projected.new_empty(steps if learns or output_weights else 1, directions, rows, slots)
        contents = None
        if content_weight is not None:
            contents = projected.new_empty(steps if learns else 1, directions, rows, values.shape[-1])
        if not reads_at_first:
            _nothing_at_first(all_weights, contents)
        inners = projected.new_empty(steps if learns else 1, directions, rows, size) if not is_lstm else None
        # Copied once: with one direction, these are strided views.
        all_words = projected.contiguous()
        keep, has_read = (None if flags is None else flags.contiguous() for flags in (keep, has_read))
        for step in range(steps):
            before = hiddens[step]
            word = None if keep is None else keep[step]
            place = step if learns else 0
            joint = torch.bmm(before, recurrent)
            from_words = all_words[step]
            if slots and (step or reads_at_first):
                weights = all_weights[step if learns or output_weights else 0]
                _attend(joint[..., :slots], None if has_read is None else has_read[step], weights)  # Eq. 1
                content, through = weights, values
                if content_weight is not None:
                    content, through = contents[place], content_weight
                    torch.bmm(weights, values, out=content)  # Eq. 2
                from_words = torch.baddbmm(from_words, content, through)
            given = (from_words, joint[..., slots:], before, word, activations[place], hiddens[step + 1])
            if is_lstm:
                _lstm(*given, cells[step], cells[step + 1])
            else:
                _gru(*given, candidate_bias, inners[place])
        if learns:
            ctx.save_for_backward(*tensors, hiddens, cells, activations, all_weights, contents, inners)
            ctx.device_type = projected.device.type
            ctx.setting = setting._replace(keep=keep, has_read=has_read)
            ctx.set_materialize_grads(False)
        return hiddens[1:], cells[-1] if is_lstm else None, all_weights if output_weights else None

    @staticmethod
    @once_differentiable
    def backward(ctx, *from_outputs):
        # In the precision of the steps, also if the backward pass runs under autocast.
        with torch.autocast(ctx.device_type, enabled=False):
            return _Steps._backward(ctx, *from_outputs)

    @staticmethod
    def _backward(ctx, from_states, from_cell, from_weights):
        saved = ctx.saved_tensors  # once: checkpointing recomputes them at each access
        projected, recurrent, values, content_weight, _ = saved[:5]
        hiddens, cells, activations, all_weights, contents, inners = saved[7:]
        cell, reads_at_first, keep, _, _ = ctx.setting
        steps, directions, rows, width = projected.shape
        size, slots = recurrent.shape[1], 0 if values is None else values.shape[1]
        is_lstm = cell == "lstm"
        # Gradients of scores and gates by the hidden state, and of gates by words and content: the same for an LSTM.
        to_joint = projected.new_empty(steps, directions, rows, slots + width)
        to_gates = to_joint[..., slots:] if is_lstm else projected.new_empty(projected.shape)
        to_contents = None if contents is None else torch.empty_like(contents)
        if not reads_at_first:
            _nothing_at_first(to_joint[..., :slots], to_contents)
        back = recurrent.transpose(1, 2).contiguous()
        back_values = None if values is None else values.transpose(1, 2).contiguous()
        back_weight = None if content_weight is None else content_weight.transpose(1, 2).contiguous()
        to_hidden = projected.new_zeros(directions, rows, size)
        to_cell = projected.new_zeros(directions, rows, size) if from_cell is None else from_cell
        for step in reversed(range(steps)):
            word = None if keep is None else keep[step]
            joint, gates = to_joint[step], to_gates[step]
            reaches = (to_hidden, None if from_states is None else from_states[step], word, activations[step], gates)
            if is_lstm:
                to_cell, residual = _lstm_back(*reaches, to_cell, cells[step], cells[step + 1])
            else:
                residual = _gru_back(*reaches, hiddens[step], inners[step], joint[..., slots:])
            if slots and (step or reads_at_first):
                to_content = gates
                if contents is not None:
                    to_content = torch.bmm(gates, back_weight, out=to_contents[step])
                to_weights = torch.bmm(to_content, back_values)
                asked = None if from_weights is None else from_weights[step]
                _attend_back(to_weights, asked, all_weights[step], joint[..., :slots])
            to_hidden = torch.bmm(joint, back) if residual is None else torch.baddbmm(residual, joint, back)

        def by_direction(tensor):
            return tensor.transpose(0, 1).reshape(directions, steps * rows, -1)

        needs = ctx.needs_input_grad[1:]
        gradients = [None] * 7
        gradients[0] = to_gates if needs[0] else None
        if needs[1]:
            gradients[1] = torch.bmm(by_direction(hiddens[:-1]).transpose(1, 2), by_direction(to_joint))
        # The gates' part of a read; the first step has none where nothing came before.
        flat_gates = by_direction(to_gates) if slots and (needs[2] or needs[3]) else None
        if needs[2]:
            read = flat_gates if contents is None else by_direction(to_contents)
            gradients[2] = torch.bmm(by_direction(all_weights).transpose(1, 2), read)
        if needs[3]:
            gradients[3] = torch.bmm(by_direction(contents).transpose(1, 2), flat_gates)
        if needs[4]:
            gradients[4] = to_joint[..., slots + 2 * size :].sum(dim=(0, 2))
        gradients[5] = to_hidden if needs[5] else None
        gradients[6] = to_cell if needs[6] else None
        return None, *gradients


def _nothing_at_first(*buffers) -> None:
    for buffer in buffers:
        if buffer is not None:
            buffer[0] = 0
