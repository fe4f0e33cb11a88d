# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
What lies between the products of a recurrent step, as one Triton kernel each: the softmax over the slots, the gates and
the new state, and both backward. A step is then four launches, and as many backward.

The plain twin is `hf_memaug.layers.memory_recurrence.PlainArithmetic`.
"""

import importlib

import torch

from hf_memaug.kernels.triton_launches import block_of, can_launch

# A row of scores is one block.
MOST_SLOTS = 2**15
_BLOCK = 512


def arithmetic_for(states: torch.Tensor, slots: int):
    """The kernels, on a GPU with Triton and in single precision; elsewhere None."""
    fits = states.dtype == torch.float32 and slots <= MOST_SLOTS
    return FusedArithmetic if fits and can_launch(states.device) else None


class FusedArithmetic:
    @staticmethod
    def attend(scores, begun, weights) -> None:
        slots = scores.shape[-1]
        block = block_of(slots)
        _kernels().attend[(_rows(scores),)](
            scores, scores.stride(-2), begun, weights, slots, begun is not None, block, num_warps=_warps(block)
        )

    @staticmethod
    def attend_back(to_weights, asked, weights, to_scores) -> None:
        slots = weights.shape[-1]
        block = block_of(slots)
        asked = None if asked is None else asked.contiguous()
        _kernels().attend_back[(_rows(weights),)](
            to_weights,
            asked,
            weights,
            to_scores,
            to_scores.stride(-2),
            slots,
            asked is not None,
            block,
            num_warps=_warps(block),
        )

    @staticmethod
    def lstm(from_words, from_hidden, before, word, gates, after, cell_before, cell_after) -> None:
        size = before.shape[-1]
        _kernels().lstm[_grid(before)](
            from_words,
            from_hidden,
            from_hidden.stride(-2),
            before,
            word,
            gates,
            after,
            cell_before,
            cell_after,
            size,
            word is not None,
            _BLOCK,
        )

    @staticmethod
    def gru(from_words, from_hidden, before, word, gates, after, candidate_bias, inner) -> None:
        _kernels().gru[_grid(before)](
            from_words,
            from_hidden,
            from_hidden.stride(-2),
            before,
            word,
            gates,
            after,
            candidate_bias,
            inner,
            before.shape[-2],
            before.shape[-1],
            word is not None,
            _BLOCK,
        )

    @staticmethod
    def lstm_back(to_hidden, asked, word, opened, to_gates, to_cell, cell_before, cell_after):
        to_hidden, to_cell = to_hidden.contiguous(), to_cell.contiguous()
        asked = None if asked is None else asked.contiguous()
        to_cell_before = torch.empty_like(to_cell)
        residual = None if word is None else torch.empty_like(to_hidden)
        _kernels().lstm_back[_grid(to_hidden)](
            to_hidden,
            asked,
            word,
            opened,
            to_gates,
            to_gates.stride(-2),
            to_cell,
            cell_before,
            cell_after,
            to_cell_before,
            residual,
            to_hidden.shape[-1],
            asked is not None,
            word is not None,
            _BLOCK,
        )
        return to_cell_before, residual

    @staticmethod
    def gru_back(to_hidden, asked, word, opened, to_gates, before, inner, to_joint):
        to_hidden = to_hidden.contiguous()
        asked = None if asked is None else asked.contiguous()
        residual = torch.empty_like(to_hidden)
        _kernels().gru_back[_grid(to_hidden)](
            to_hidden,
            asked,
            word,
            opened,
            to_gates,
            before,
            inner,
            to_joint,
            to_joint.stride(-2),
            residual,
            to_hidden.shape[-1],
            asked is not None,
            word is not None,
            _BLOCK,
        )
        return residual


def _kernels():
    return importlib.import_module("hf_memaug.kernels.triton_recurrence")


def _rows(states: torch.Tensor) -> int:
    return states.shape[0] * states.shape[1]


def _grid(states: torch.Tensor) -> tuple[int, int]:
    return _rows(states), -(-states.shape[-1] // _BLOCK)


def _warps(block: int) -> int:
    return max(4, min(16, block // 512))
