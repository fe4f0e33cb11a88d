# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Training steps and predictions of one model; on a GPU as CUDA graphs, where batches have few shapes."""

import torch

from hf_memaug.kernels.cuda_graphs import GraphedFunction


class Steps:
    """
    Args:
        model: of HMA.
        groups: of its parameters, as Adam takes them.
        device: where the model is.
        graphed: whether to record steps. Batches of graphs have another shape each: recording would not pay.
    """

    def __init__(self, model, groups: list[dict], device: str, graphed: bool):
        self.model, self.device = model, device
        self.optimizer = torch.optim.Adam(groups, capturable=graphed)
        self.learn = WholeStep(self._learn, self._state) if graphed else self._learn
        self.guess = GraphedFunction(self._guess) if graphed else self._guess
        self.made = 0

    def _precision(self):
        return torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.device == "cuda")

    def _learn(self, batch: dict) -> torch.Tensor:
        with self._precision():
            loss = self.model(**batch).loss
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.model.update_memory()
        return loss.detach()

    @torch.no_grad()
    def _guess(self, batch: dict) -> torch.Tensor:
        with self._precision():
            return self.model(**batch).logits.float()

    def train(self, batch: dict) -> torch.Tensor:
        self.model.train()
        self.made += 1
        # The first one as it stands: in it, Adam makes its moments and the momentum encoder its beginning.
        return (self._learn if self.made == 1 else self.learn)(self._there(batch))

    def logits(self, batch: dict) -> torch.Tensor:
        self.model.eval()
        given = self._there(batch)
        if isinstance(self.guess, GraphedFunction):
            return self.guess(given, key=self.model.config.inference).cpu()
        return self.guess(given).cpu()

    def _there(self, batch: dict) -> dict:
        return {name: v.to(self.device) if isinstance(v, torch.Tensor) else v for name, v in batch.items()}

    def _state(self) -> list[torch.Tensor]:
        """All that a step changes."""
        moments = [value for state in self.optimizer.state.values() for value in state.values()]
        return [*self.model.state_dict().values(), *moments]


class WholeStep(GraphedFunction):
    """A step that changes its own weights: what the calls before the recording have changed is put back."""

    def __init__(self, function, state):
        super().__init__(function)
        self.state = state

    def _record(self, inputs: dict[str, torch.Tensor]) -> tuple:
        before = [value.clone() for value in self.state()]
        recorded = super()._record(inputs)
        for value, kept in zip(self.state(), before, strict=True):
            value.copy_(kept)
        return recorded
