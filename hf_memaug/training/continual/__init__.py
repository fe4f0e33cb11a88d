# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""How a model takes in one domain after another. A strategy is one class, and one row in `STRATEGIES`."""

from hf_memaug.training.continual.base import FineTuning, InDomain, MultiTask
from hf_memaug.training.continual.consolidation import (
    ElasticWeightConsolidation,
    ExperienceReplay,
    LearningWithoutForgetting,
)
from hf_memaug.training.continual.growth import (
    GrowHidden,
    GrowHiddenAndVocabulary,
    GrowMemory,
    GrowMemoryAndVocabulary,
    GrowVocabulary,
)
from hf_memaug.training.continual.progressive import ProgressiveNetworks
from hf_memaug.training.continual.writing import WriteRows

# The paper's letters where it has some.
STRATEGIES = {
    "f": FineTuning,
    "f+m": GrowMemory,
    "f+v": GrowVocabulary,
    "f+m+v": GrowMemoryAndVocabulary,
    "f+h": GrowHidden,
    "f+h+v": GrowHiddenAndVocabulary,
    "ewc": ElasticWeightConsolidation,
    "progressive": ProgressiveNetworks,
    "replay": ExperienceReplay,
    "lwf": LearningWithoutForgetting,
    "write": WriteRows,
    "in_domain": InDomain,
    "multi_task": MultiTask,
}

__all__ = ["STRATEGIES", *sorted(strategy.__name__ for strategy in STRATEGIES.values())]
