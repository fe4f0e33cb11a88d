# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
A memory of labelled rows that corrects a classifier's probabilities. Everything follows from the rows in closed form.

    p(x) = (1 - a(x)) p₀(x) + a(x) (τ p₀(x) + k(x, Z) B)        the answer
    a(x) = clip((k(x, Z) g + 0.4) / 0.6, 0, 1)                  the gate: 1 in the written domains, 0 in the old ones

p₀ are the classifier's probabilities and k is a kernel on its hidden states. B and g are kernel ridge regressions: of
onehot(y) - τ p₀ over the written rows, and of ±1 over written and guard rows. The ridge λ and the trust τ minimise the
squared error of leave-one-out predictions. A setting is taken only if it beats the one before it by 1 + 8/n standard
errors, with n written rows. At least one of them must be answered rightly, and no fewer than before.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

RIDGES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
GATE_RIDGES = (0.1, 1.0, 10.0)
# τ: how much of the classifier's answer is kept in the written domains.
TRUSTS = (1.0, 0.5, 0.0)
LOWEST, HIGHEST = -0.4, 0.2
SMALLEST = 1e-6
# In place of a domain.
GUARD = -1
ROWS = ("keys", "probabilities", "labels", "domains", "row_ids")


@dataclass
class Solution:
    """
    Args:
        correction, gate, trust: B, g and τ.
        before, after: the probabilities of the written rows, by the classifier and by the memory without that row.
    """

    correction: torch.Tensor
    gate: torch.Tensor
    trust: float
    before: torch.Tensor
    after: torch.Tensor


class WritableMemory(nn.Module):
    r"""
    Buffers only: nothing here is trained. Written rows come first, in the order of their ids, then guard rows.

    Args:
        parts, width (`int`): of a key. Each part has the same share in the kernel.
        classes (`int`): of the answers; those behind the classifier's own were written later.
        rows, landmarks (`int`): sizes of the buffers. Without landmarks, the answer is the classifier's.
        max_landmarks (`int`): of more rows than these, a part chosen by their ids spans the solution (Nyström).
    """

    def __init__(
        self, parts: int, width: int, classes: int, rows: int = 0, landmarks: int = 0, max_landmarks: int = 1024
    ):
        super().__init__()
        self.classes, self.max_landmarks = classes, max_landmarks
        # Bits of float16. As integers, they stay as they are when the model is cast.
        self.keys: torch.Tensor = nn.Buffer(torch.zeros(rows, parts, width, dtype=torch.int16))
        self.probabilities: torch.Tensor = nn.Buffer(torch.zeros(rows, classes))
        self.labels: torch.Tensor = nn.Buffer(torch.zeros(rows, dtype=torch.long))
        self.domains: torch.Tensor = nn.Buffer(torch.zeros(rows, dtype=torch.long))
        self.row_ids: torch.Tensor = nn.Buffer(torch.zeros(rows, dtype=torch.long))
        self.center: torch.Tensor = nn.Buffer(torch.zeros(parts, width))
        self.landmarks: torch.Tensor = nn.Buffer(torch.zeros(landmarks, parts, width))
        self.correction: torch.Tensor = nn.Buffer(torch.zeros(landmarks, classes))
        self.gate: torch.Tensor = nn.Buffer(torch.zeros(landmarks))
        self.trust: torch.Tensor = nn.Buffer(torch.ones(1))

    def _apply(self, fn, recurse=True):
        """Moves to another device. As integers, the buffers keep their values when the model is cast."""

        def move(tensor):
            return fn(tensor.view(torch.int32)).view(tensor.dtype) if tensor.dtype == torch.float32 else fn(tensor)

        return super()._apply(move, recurse)

    def forward(self, logits: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """
        From the classifier's logits and the keys `(rows, parts, width)` to logits `(rows, classes)`: logarithms of
        p(x), which need not add up to 1, or those of the classifier where there is nothing to add.
        """
        if not len(self.landmarks) and logits.shape[-1] == self.classes:
            return logits
        with torch.autocast(logits.device.type, enabled=False):
            answer = self.padded(logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(dim=-1))
            if len(self.landmarks):
                similar = self.similarity(keys)
                gate = self.opening(similar).unsqueeze(-1)
                corrected = self.trust * answer + similar @ self.correction.to(similar.dtype)
                answer = (1 - gate) * answer + gate * corrected
            return answer.clamp(min=SMALLEST).log().to(logits.dtype)

    def padded(self, probabilities: torch.Tensor) -> torch.Tensor:
        """With zeros for the classes that the classifier does not know."""
        new = self.classes - probabilities.shape[-1]
        return F.pad(probabilities, (0, new)) if new else probabilities

    def similarity(self, keys: torch.Tensor) -> torch.Tensor:
        """k(x, Z), `(rows, landmarks)`."""
        keys = keys.to(torch.promote_types(keys.dtype, torch.float32))
        return self._kernel(self.centered(keys), self.landmarks.to(keys.dtype))

    def opening(self, similar: torch.Tensor) -> torch.Tensor:
        """a(x), `(rows,)`."""
        return opened(similar @ self.gate.to(similar.dtype))

    @staticmethod
    def join(parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """A key of its parts, each of length 1. Shorter parts end with zeros, which change no product."""
        width = max(part.shape[-1] for part in parts)
        short = any(part.shape[-1] < width for part in parts)
        keys = torch.stack([F.pad(part, (0, width - part.shape[-1])) if short else part for part in parts], dim=1)
        return F.normalize(keys.to(torch.promote_types(keys.dtype, torch.float32)), dim=-1)

    def centered(self, keys: torch.Tensor) -> torch.Tensor:
        return F.normalize(keys - self.center.to(keys.dtype), dim=-1)

    def centered_rows(self, places: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """The keys of rows, `(rows, parts, width)`."""
        return self.centered(self.keys[places].view(torch.float16).to(dtype))

    @staticmethod
    def _kernel(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """1 + the mean over the parts of 4 exp(cos - 1)."""
        cosines = torch.einsum("ipw,jpw->pij", first, second)
        return 1 + 4 * (cosines - 1).exp().mean(dim=0)

    @property
    def written(self) -> torch.Tensor:
        """A mask over the rows."""
        return self.domains != GUARD

    def set_rows(self, rows: dict[str, torch.Tensor]) -> None:
        """Replaces all rows, as `rows()` returns them. Their order does not matter: they are sorted by their ids."""
        by_id = rows["row_ids"].argsort(stable=True)
        order = by_id[(rows["domains"][by_id] == GUARD).int().argsort(stable=True)]
        for name, values in rows.items():
            setattr(self, name, (self.padded(values) if name == "probabilities" else values)[order])
        self._set_solution(None)

    def rows(self) -> dict[str, torch.Tensor]:
        return {name: getattr(self, name) for name in ROWS}

    @torch.no_grad()
    def solve(self) -> Solution | None:
        """Computes the answer from the rows. None, and the classifier's answer, if no setting is better than that."""
        if not self.written.any():
            return self._set_solution(None)
        written, chosen = self.written, self.choose_landmarks()
        self.center = self.keys.view(torch.float16).mean(dim=0, dtype=torch.float64).float()
        landmarks = self.centered_rows(chosen, torch.float64)
        kernel = self._kernel(landmarks, landmarks)
        kernel.diagonal().add_(1e-9 * len(kernel))
        root = torch.linalg.cholesky(kernel, upper=True)
        chunks = torch.arange(len(written), device=chosen.device).split(4096)
        similar = [self._kernel(self.centered_rows(chunk, torch.float64), landmarks) for chunk in chunks]
        features = torch.linalg.solve_triangular(root, torch.cat(similar), upper=True, left=False)
        gate, open_ = self._solve_gate(features)
        base = self.probabilities[written].double()
        truth = F.one_hot(self.labels[written], self.classes).double()
        tried = list(ridge(features[written], torch.cat([truth, base], dim=-1), RIDGES))
        best = Solution(features.new_zeros(len(chosen), self.classes), gate, 1.0, base, base)
        for trust in TRUSTS:
            # Both are linear in the targets, onehot(y) - τ p₀.
            found = [
                [of_truth - trust * of_base for of_truth, of_base in (values.chunk(2, dim=-1) for values in pair)]
                for pair in tried
            ]
            after = torch.stack([base + open_ * ((trust - 1) * base + left_out) for _, left_out in found])
            chosen_ridge = int((truth - after).square().sum(dim=-1).mean(dim=-1).argmin())
            if _is_better(after[chosen_ridge], best.after, truth):
                best = Solution(found[chosen_ridge][0], gate, trust, base, after[chosen_ridge])
        if best.after is base:
            return self._set_solution(None)
        best.correction = torch.linalg.solve_triangular(root, best.correction, upper=True)
        if written.all():
            # Nothing to protect: open everywhere, since no similarity is below 1.
            best.gate = torch.full_like(gate, 1 / len(chosen))
        else:
            best.gate = torch.linalg.solve_triangular(root, gate.unsqueeze(-1), upper=True)[:, 0]
        return self._set_solution(best, landmarks)

    def choose_landmarks(self) -> torch.Tensor:
        """Of too many rows, those with the lowest ids, which are hashes; guard rows get at most a quarter."""
        written, guards = (torch.nonzero(mask)[:, 0] for mask in (self.written, ~self.written))
        if len(written) + len(guards) > self.max_landmarks:
            guards = guards[: max(self.max_landmarks // 4, self.max_landmarks - len(written))]
            written = written[: self.max_landmarks - len(guards)]
        return torch.cat([written, guards])

    def _solve_gate(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """g in the space of the features, and the gate of each written row without that row."""
        written = self.written
        if written.all():
            return features.new_zeros(features.shape[1]), features.new_ones(len(features), 1)
        signs = torch.where(written, 1.0, -1.0).to(features.dtype).unsqueeze(-1)
        shares = torch.where(written, 0.5 / written.double().mean(), 0.5 / (~written).double().mean())
        found = ridge(features, signs, GATE_RIDGES, shares)
        weights, left_out = min(found, key=lambda one: float((shares * (one[1] - signs)[:, 0].square()).mean()))
        return weights[:, 0], opened(left_out[written])

    def _set_solution(self, solution: Solution | None, landmarks: torch.Tensor | None = None) -> Solution | None:
        device = self.keys.device
        if solution is None or landmarks is None:
            self.landmarks = torch.zeros(0, *self.keys.shape[1:], device=device)
            self.correction = torch.zeros(0, self.classes, device=device)
            self.gate, self.trust = torch.zeros(0, device=device), torch.ones(1, device=device)
        else:
            # Contiguous, so that sums have the same order as after loading.
            self.landmarks, self.correction = (one.float().contiguous() for one in (landmarks, solution.correction))
            self.gate, self.trust = solution.gate.float().contiguous(), torch.tensor([solution.trust], device=device)
        return solution


def opened(score: torch.Tensor) -> torch.Tensor:
    return ((score - LOWEST) / (HIGHEST - LOWEST)).clamp(0, 1)


def ridge(
    features: torch.Tensor, targets: torch.Tensor, ridges: Sequence[float], shares: torch.Tensor | None = None
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """
    Ridge regressions, with the prediction of each row by the other rows: (ŷ_i - h_i y_i) / (1 - h_i).

    Args:
        shares (`Tensor`, *optional*): the weight of each row.

    Returns:
        For each ridge, the weights and the left-out predictions.
    """
    shares = (features.new_ones(len(features)) if shares is None else shares).unsqueeze(-1)
    # One decomposition serves all ridges.
    values, vectors = torch.linalg.eigh(features.T @ (shares * features))
    turned = features @ vectors
    squares, products = shares * turned.square(), turned.T @ (shares * targets)
    for strength in ridges:
        shrunk = products / (values + strength).unsqueeze(-1)
        leverage = (squares @ (values + strength).reciprocal()).clamp(max=1 - 1e-6).unsqueeze(-1)
        yield vectors @ shrunk, (turned @ shrunk - leverage * targets) / (1 - leverage)


def _is_better(after: torch.Tensor, before: torch.Tensor, truth: torch.Tensor) -> bool:
    """
    Whether the squared error falls by 1 + 8/n standard errors of its mean. At least one answer must be right, and no
    fewer than before.
    """
    gain = (truth - before).square().sum(dim=-1) - (truth - after).square().sum(dim=-1)
    right, was_right = ((truth.argmax(dim=-1) == answer.argmax(dim=-1)).sum() for answer in (after, before))
    if len(gain) < 2 or right < was_right or not right:
        return False
    return bool(gain.mean() > (1 + 8 / len(gain)) * gain.std() / len(gain) ** 0.5)
