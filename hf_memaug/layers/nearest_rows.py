# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The written rows that are most similar to an input."""

import warnings
from importlib.util import find_spec
from typing import Any

import torch

from hf_memaug.layers.writable_memory import WritableMemory

# More rows are searched through FAISS, which takes some seconds to make an index once.
EXACT_ROWS = 20_000
CHUNK = 4096
# For each row that is asked for.
CANDIDATES = 40


class NearestRows:
    """
    Finds rows by the mean cosine over the parts of their keys. FAISS chooses candidates, whose cosines are exact.

    Args:
        memory (`WritableMemory`): as it is now. After writing or erasing, make another one.
    """

    def __init__(self, memory: WritableMemory):
        self.memory, self.count = memory, int(memory.written.sum())
        self.index: Any = None
        if self.count > EXACT_ROWS and find_spec("faiss"):
            self.index = self._make_index()
        elif self.count > EXACT_ROWS:
            warnings.warn(
                f"Comparing with all {self.count:,} rows. `pip install faiss-cpu` makes this much faster.", stacklevel=3
            )

    def __call__(self, keys: torch.Tensor, top: int) -> tuple[torch.Tensor, torch.Tensor]:
        """
        For keys `(inputs, parts, width)`, returns the similarities and places of rows in the memory, `(inputs, top)`,
        the most similar first.
        """
        keys, top = self.memory.centered(keys.float()), min(top, self.count)
        if self.index is None:
            found = [torch.einsum("ipw,jpw->ij", keys, rows) for rows in self._chunks()]
            cosines = torch.cat(found, dim=1) / keys.shape[1]
            return cosines.topk(top, dim=-1)
        _, found = self.index.search(keys.flatten(1).cpu().numpy(), CANDIDATES * top)
        places = torch.from_numpy(found).to(keys.device)
        rows = self.memory.centered_rows(places.clamp(min=0).flatten()).unflatten(0, places.shape)
        cosines = torch.einsum("ipw,ijpw->ij", keys, rows) / keys.shape[1]
        best = cosines.masked_fill(places < 0, -torch.inf).topk(top, dim=-1)
        return best.values, places.gather(1, best.indices)

    def _chunks(self):
        for start in range(0, self.count, CHUNK):
            yield self.memory.centered_rows(slice(start, min(start + CHUNK, self.count)))

    def _make_index(self):
        import faiss

        width, lists = self.memory.keys[0].numel(), round(self.count**0.5)
        index = faiss.index_factory(width, f"PCA{min(256, width)},IVF{lists},SQ8", faiss.METRIC_INNER_PRODUCT)
        sample = torch.randperm(self.count, generator=torch.Generator().manual_seed(0))[: 50 * lists]
        index.train(self.memory.centered_rows(sample.to(self.memory.keys.device)).flatten(1).cpu().numpy())
        for rows in self._chunks():
            index.add(rows.flatten(1).cpu().numpy())
        faiss.extract_index_ivf(index).nprobe = 16
        return index
