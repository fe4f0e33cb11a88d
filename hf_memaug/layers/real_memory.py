# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The real memory of HMA: the last rows that training has seen (Qiu et al., 2023, section 4.2)."""

import torch
from torch import nn


def has_processes() -> bool:
    """Whether this process is one of a group, which may be a group of one."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


class RealMemory(nn.Module):
    """
    `M_buffer`, a queue: new rows replace the oldest ones. `filled` says which slots hold a row.

    Args:
        size: `m_1`, the number of rows.
        width: `d`, of a row: a feature and the embedding of its label.
    """

    def __init__(self, size: int, width: int):
        super().__init__()
        self.size = size
        self.slots = nn.Buffer(torch.zeros(size, width))
        self.slot_labels = nn.Buffer(torch.zeros(size, dtype=torch.long))
        # How many rows have ever been written. A tensor, so that it is saved, and asked by none but `filled`.
        self.written = nn.Buffer(torch.zeros((), dtype=torch.long))

    @property
    def filled(self) -> torch.Tensor:
        return torch.arange(self.size, device=self.written.device) < self.written

    @torch.no_grad()
    def write(self, rows: torch.Tensor, labels: torch.Tensor) -> None:
        """
        Writes rows from the oldest to the newest, the same ones on every process (see `over_processes`). Rows that are
        not finite are left out: one of them would make all that is read not finite.
        """
        if len(rows) > self.size:
            raise ValueError(
                f"`real_memory_size={self.size}` is less than the {len(rows)} rows of one optimizer step, of all "
                f"processes. Choose `real_memory_size={len(rows)}` or more, or smaller batches."
            )
        # They go to the end, and change nothing: to count them would wait for the GPU.
        finite = torch.linalg.vector_norm(rows, float("inf"), dim=-1) < float("inf")  # not so of NaN
        order = finite.logical_not().argsort(stable=True)
        rows, labels, finite = rows[order].to(self.slots.dtype), labels[order], finite[order]
        places = (self.written + torch.arange(len(rows), device=self.slots.device)) % self.size
        self.slots.index_copy_(0, places, torch.where(finite[:, None], rows, self.slots[places]))
        self.slot_labels.index_copy_(0, places, torch.where(finite, labels, self.slot_labels[places]))
        self.written.add_(finite.sum())

    @torch.no_grad()
    def clear(self) -> None:
        for buffer in (self.slots, self.slot_labels, self.written):
            buffer.zero_()


def over_processes(rows: torch.Tensor) -> torch.Tensor:
    """The rows of all processes below each other, in their order; each may have another number of rows."""
    if not has_processes():
        return rows
    rows = rows.contiguous()
    count = torch.tensor([len(rows)], device=rows.device)
    counts = [torch.empty_like(count) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(counts, count)
    longest = int(torch.cat(counts).max())
    padded = torch.cat([rows, rows.new_zeros(longest - len(rows), *rows.shape[1:])])
    gathered = [torch.empty_like(padded) for _ in counts]
    torch.distributed.all_gather(gathered, padded)
    return torch.cat([part[: int(size)] for part, size in zip(gathered, counts, strict=True)])
