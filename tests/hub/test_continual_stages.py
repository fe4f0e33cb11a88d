# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Each stage of a continual run is a revision of its repository, and a run goes on from one that was pulled."""

import json

import pytest
from families import MEMORY
from hub_server import LoopbackHub, run_client

CODE = """
import sys, torch, transformers
import hf_memaug
from hf_memaug import ContinualTrainer, ContinualTrainingArguments
from hf_memaug.data import generated_reviews, split_domains
transformers.utils.logging.set_verbosity_error()
tokenizer = transformers.AutoTokenizer.from_pretrained({backbone!r})
train = generated_reviews(rows_per_domain=8, domains=["books", "films", "phones"])
test = generated_reviews(rows_per_domain=6, domains=["books", "films", "phones"], seed=1)

def make(model, domains, strategy, repo, tokenizer, **kwargs):
    args = ContinualTrainingArguments(
        {folder!r} + "/" + repo, strategy=strategy, domains=domains, max_steps=1, use_cpu=True, report_to=[],
        disable_tqdm=True, push_to_hub=True, hub_model_id="me/" + repo, max_length=32)
    return ContinualTrainer(model, args, train_dataset=train, test_dataset=test, processing_class=tokenizer, **kwargs)

model = hf_memaug.RobertaWithKVMemoryForSequenceClassification.from_backbone({backbone!r}, num_labels=2, **{memory!r})
make(model, ["books", "films"], "replay", "rows", tokenizer).train()
model = hf_memaug.RobertaWithKVMemoryForSequenceClassification.from_backbone({backbone!r}, num_labels=2, **{memory!r})
first = make(model, ["books", "films"], "ewc", "stages", tokenizer)
first.train()
first.push_to_hub()

from huggingface_hub import snapshot_download
folder = snapshot_download("me/stages", revision="stage-1-films")
pulled = transformers.AutoModelForSequenceClassification.from_pretrained("me/stages", revision="stage-1-films")
assert all(torch.equal(value, first.model.state_dict()[name]) for name, value in pulled.state_dict().items())
tokenizer = transformers.AutoTokenizer.from_pretrained("me/stages", revision="stage-1-films")
second = make(pulled, ["phones"], "ewc", "stages", tokenizer, history=folder)
second.train()
assert second.record.trained == ["books", "films", "phones"] and len(second.strategy.anchors) == 3
assert second.figures()["bwt"] is not None

# By name alone, the matrix comes with the configuration.
pulled = transformers.AutoModelForSequenceClassification.from_pretrained("me/stages", revision="stage-2-phones")
from hf_memaug.training import ContinualRecord
assert ContinualRecord.load(pulled.config.run_facts["continual"]) == second.record
main = transformers.AutoModelForSequenceClassification.from_pretrained("me/stages")
assert ContinualRecord.load(main.config.run_facts["continual"]).trained == ["books", "films"]
print("ok")
"""


@pytest.fixture
def hub():
    with LoopbackHub() as hub:
        yield hub


@pytest.mark.slow
def test_stages_are_revisions(hub, backbones, tmp_path):
    code = CODE.replace("{backbone!r}", repr(backbones["roberta"])).replace("{folder!r}", repr(str(tmp_path)))
    done = run_client(code.replace("{memory!r}", repr(MEMORY)), hub, tmp_path / "home", timeout=280)
    assert done.stdout.strip().endswith("ok")
    stages = {name: hub.files("me/stages", name) for name in ("stage-0-books", "stage-1-films", "stage-2-phones")}
    for number, files in enumerate(stages.values()):
        assert {"model.safetensors", "config.json", "continual.json", "strategy.pt", "README.md"} <= set(files)
        assert {"tokenizer.json", "tokenizer_config.json"} <= set(files)
        assert not [name for name in files if name.endswith(".bin") or "checkpoint" in name or name.startswith("_")]
        assert len(json.loads(files["continual.json"])["stages"]) == number + 1
    weights = {files["model.safetensors"] for files in stages.values()}
    assert len(weights) == 3
    main = hub.files("me/stages")
    assert main["model.safetensors"] == stages["stage-1-films"]["model.safetensors"]
    assert not [name for name in main if "_stages" in name], "the other stages are revisions, not folders"
    card = main["README.md"].decode()
    for said in ("Trained as `ewc`", "| strategy | ewc |", "| books | test |", "| films | test |"):
        assert said in card, said

    # Rows of the data are nobody else's.
    for name in ("stage-0-books", "stage-1-films"):
        files = hub.files("me/rows", name)
        assert "model.safetensors" in files and not [path for path in files if "replay" in path]
