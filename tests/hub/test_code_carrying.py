# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""A checkpoint with its code loads where hf_memaug cannot be imported, and gives the same bits."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
import torch
from families import CASES, FEATURES, Case, features_of, tiny_processor
from tiny_backbones import SENTENCES

from hf_memaug import export_with_code, prompt_tokenizer

CLIENT = """
import json, sys
import torch
try:
    import hf_memaug
except ImportError:
    pass
else:
    raise SystemExit("hf_memaug is importable: the test would prove nothing")
import transformers
for folder, auto_class, name in json.loads(sys.argv[1]):
    model = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=True).eval()
    assert type(model).__name__ == name, type(model)
    expected = torch.load(folder + "/expected.pt")
    output = model(**expected["inputs"])
    found = output[expected["name"]]
    assert torch.equal(found, expected["features"]), name
    if expected["text"] is None:
        reader = transformers.AutoImageProcessor.from_pretrained(folder, trust_remote_code=True)
    else:
        reader = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
        assert reader(expected["text"])["input_ids"] == expected["ids"]
    if auto_class == "AutoModelForSequenceClassification":
        transformers.pipeline("text-classification", model=model, tokenizer=reader)(expected["text"])
    if auto_class == "AutoModelForImageClassification":
        from PIL import Image
        classify = transformers.pipeline("image-classification", model=model, image_processor=reader)
        assert len(classify(Image.new("RGB", (30, 20)))) == 3
    assert not any(module.startswith("hf_memaug") for module in sys.modules)
    # Training on from such a checkpoint, and saving it, works as with any other.
    model.save_pretrained(folder + "/again")
print("ok")
"""


@pytest.mark.slow
def test_every_class_loads_without_the_package(tmp_path):
    jobs = []
    for case in CASES:
        folder = tmp_path / case.name
        reader = tiny_processor(case)
        model = case.model() if case.is_image else case.model(vocab_size=len(reader))
        if case.name.endswith("PromptClassification"):
            reader = prompt_tokenizer(reader, "{text} it was {mask}")
        export_with_code(model, folder, reader)
        inputs = case.inputs()
        torch.save(
            {
                "inputs": inputs,
                "name": next(name for name in FEATURES if name in model(**inputs)),
                "features": features_of(model(**inputs)).detach(),
                "text": None if case.is_image else SENTENCES,
                "ids": None if case.is_image else reader(SENTENCES)["input_ids"],
            },
            folder / "expected.pt",
        )
        jobs.append([str(folder), case.auto_class, case.name])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment.update(HF_HOME=str(tmp_path / "home"), HF_HUB_OFFLINE="1")
    # An installed copy of hf_memaug must not be found either.
    site = [path for path in sys.path if path.endswith("site-packages")]
    (tmp_path / "sitecustomize.py").write_text(
        textwrap.dedent(
            """
            import sys

            class Refuse:
                def find_spec(self, name, path=None, target=None):
                    if name.split(".")[0] == "hf_memaug":
                        raise ImportError("hf_memaug is not importable here")

            sys.meta_path.insert(0, Refuse())
            """
        )
    )
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *site])
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, json.dumps(jobs)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0 and done.stdout.strip().endswith("ok"), done.stderr[-3000:]


@pytest.mark.parametrize("case", CASES[:1], ids=str)
def test_files_are_flat_and_say_where_the_classes_are(case: Case, tmp_path):
    export_with_code(case.model(), tmp_path)
    auto_map = json.loads((tmp_path / "config.json").read_text())["auto_map"]
    assert auto_map["AutoConfig"] == "configuration_kv_memory.RobertaWithKVMemoryConfig"
    assert auto_map["AutoModel"] == "modeling_kv_memory.RobertaWithKVMemory"
    assert auto_map["AutoModelForSequenceClassification"].endswith("RobertaWithKVMemoryForSequenceClassification")
    for source in tmp_path.glob("*.py"):
        assert "from hf_memaug" not in source.read_text(), source
    assert "trust_remote_code=True" in (tmp_path / "README.md").read_text()


def test_a_foreign_model_is_refused(tmp_path):
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8))
    with pytest.raises(ValueError, match="`model` is a `bert`.*roberta_kv_memory"):
        export_with_code(model, tmp_path)
