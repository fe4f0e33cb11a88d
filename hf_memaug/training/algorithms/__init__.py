# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What to minimise on a batch from several domains. An algorithm is one class, and one row in `ALGORITHMS`."""

from hf_memaug.training.algorithms.base import ERM
from hf_memaug.training.algorithms.penalties import DANN, IRM, MMD, DeepCORAL, Fishr, GroupDRO, VREx
from hf_memaug.training.algorithms.several_passes import MLDG, Mixup
from hf_memaug.training.algorithms.weights import SWAD, Fish
from hf_memaug.training.forward_pass import DomainBatch

ALGORITHMS = {
    "erm": ERM,
    "irm": IRM,
    "vrex": VREx,
    "group_dro": GroupDRO,
    "mixup": Mixup,
    "dann": DANN,
    "coral": DeepCORAL,
    "mmd": MMD,
    "mldg": MLDG,
    "fish": Fish,
    "fishr": Fishr,
    "swad": SWAD,
}

__all__ = ["ALGORITHMS", "DomainBatch", *sorted(algorithm.__name__ for algorithm in ALGORITHMS.values())]
