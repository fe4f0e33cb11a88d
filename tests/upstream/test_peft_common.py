# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""PEFT's own tests of classifiers and encoders, over one class of every family instead of its own checkpoints."""

import os
import shutil
import tempfile
from pathlib import Path

import peft
import pytest
from families import CLASSIFIERS, TEXT_CASES, save_tokenizer_and_model
from upstream.upstream import FOLDER, load

pytestmark = [pytest.mark.slow, pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]


# A network without a backbone is an encoder like BERT, as far as the names of the tests go.
KINDS = {"bert": "Bert", "roberta": "Roberta"}
# What is made for layers of attention, by a part of the test's name.
FOR_ATTENTION = {
    "IA3Config": "IA3 asks which layers are feed-forward ones, and a recurrent network has none",
    "PrefixTuning": "prefixes are keys and values of attention",
    "PromptEncoder": "PEFT asks for the number of layers and heads to make prompts for",
    "PromptTuning": "PEFT asks for the number of layers and heads to make prompts for",
    "prompt_learning": "PEFT asks for the number of layers and heads to make prompts for",
    "layer_indexing": "there is one layer, without a number",
}


@pytest.fixture(autouse=True)
def _applies(request):
    if "MemoryRNN" in request.node.name:
        for part, reason in FOR_ATTENTION.items():
            if part in request.node.name:
                pytest.skip(reason)


def checkpoints(cases) -> list[str]:
    """Tiny checkpoints at a fixed place: the place is part of the test's name, and every worker must find the same."""
    places = []
    for case in cases:
        # PEFT's tests skip what is only for decoders by the encoder's name in the path.
        place = Path(FOLDER) / "tiny" / KINDS.get(case.backbone, "Bert") / case.name
        shutil.rmtree(place, ignore_errors=True) if not (place / "model.safetensors").exists() else None
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            made = tempfile.mkdtemp(dir=place.parent)
            # PEFT's configurations ask for room: its prompts take ten positions, one adapter a rank of 16.
            save_tokenizer_and_model(case, made, max_position_embeddings=130, intermediate_size=64)
            try:
                os.rename(made, place)
            except OSError:  # another worker was first
                shutil.rmtree(made)
        places.append(str(place))
    return places


# BERT first: PEFT compares ids with embeddings on the first checkpoint, and RoBERTa's padding id counts positions.
# Adapters of a writable memory's classifier are merged before rows are written.
heads = {case.model_type: case for case in reversed(CLASSIFIERS) if case.tiny.trains_memory}.values()
heads = sorted(heads, key=lambda case: case.backbone or "words")
# Their feature extractors are fed with token ids.
encoders = sorted((case for case in TEXT_CASES if not case.has_head), key=lambda case: case.backbone or "words")
load("peft", "testing_common")
# These tests name no layers to adapt, which PEFT then looks up by the model's type. Ours are `model.adapter_targets`.
for _table in (value for name, value in vars(peft.utils.constants).items() if name.endswith("_MODULES_MAPPING")):
    for _family in {case.model_type: case for case in (*heads, *encoders)}.values():
        _type, _backbone = _family.model_type, _family.backbone
        _table.setdefault(
            _type, _table.get(_backbone, ["input_projection"] if _backbone is None else ["query", "value"])
        )
_classifiers = load("peft", "test_seq_classifier", PEFT_SEQ_CLS_MODELS_TO_TEST=checkpoints(heads))
_extractors = load(
    "peft", "test_feature_extraction_models", PEFT_FEATURE_EXTRACTION_MODELS_TO_TEST=checkpoints(encoders)
)
TestClassifiers = _classifiers.TestSequenceClassificationModels
TestEncoders = _extractors.TestPeftFeatureExtractionModel
