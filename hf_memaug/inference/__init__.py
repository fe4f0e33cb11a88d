# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Load any checkpoint with its tokenizer or image processor, predict, and explain what its memory answered."""

from hf_memaug.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    "hf_memaug.inference",
    {
        "checkpoints": ["load_predictor"],
        "predictor": ["Predictor"],
        "predictions": ["CheckpointError", "InferenceError", "InputError", "Piece", "Prediction"],
        "explanations": ["Explanation", "Reading", "SlotShare", "explain"],
    },
)
