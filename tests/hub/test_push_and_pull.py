# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Publishing for real, over HTTP, to a hub on the loopback."""

import json
from pathlib import Path

import pytest
from families import MEMORY
from hub_server import LoopbackHub, run_client
from huggingface_hub import HfApi, ModelCard, RepoUrl
from saved_checkpoints import case_of, save
from tiny_backbones import SENTENCES
from transformers import AutoConfig, AutoModelForSequenceClassification

import hf_memaug
from hf_memaug.hub.card import model_card
from hf_memaug.hub.publishing import published_files
from hf_memaug_cli.app import main

PREPARE = f"""
import json, sys, time
import torch, transformers
import hf_memaug
from hf_memaug import record_run, prompt_tokenizer
transformers.utils.logging.set_verbosity_error()
MEMORY, SENTENCES = {MEMORY!r}, {SENTENCES!r}
AutoClassifier = transformers.AutoModelForSequenceClassification
"""


@pytest.fixture
def hub():
    with LoopbackHub() as hub:
        yield hub


def test_what_is_published_of_a_folder(tmp_path):
    config = {"auto_map": {"AutoConfig": "configuration_own.OwnConfig"}}
    texts = {
        "config.json": json.dumps(config),
        "configuration_own.py": "from .layers_own import x",
        "layers_own.py": "",
    }
    wanted = {*texts, "model-00001-of-00002.safetensors", "model.safetensors.index.json", "vocab.txt", "README.md"}
    private = {".env", "rows.csv", "optimizer.pt", "training_args.bin", "secrets.json", "notes.txt", "setup.py"}
    for name in wanted | private:
        (tmp_path / name).write_text(texts.get(name, ""))
    (tmp_path / "_stages").mkdir()
    (tmp_path / "tokenizer.json").symlink_to(tmp_path / ".env")
    published, left_out = published_files(tmp_path)
    assert {path.name for path in published} == wanted
    assert {path.name for path in left_out} == {*private, "_stages", "tokenizer.json"}


@pytest.fixture
def uploads(monkeypatch):
    """What would be uploaded, as (repository, {name: content})."""
    found = []

    def upload(self, repo_id, folder_path, **kwargs):
        allowed = kwargs.get("allow_patterns")
        paths = [path for path in Path(folder_path).iterdir() if allowed is None or path.name in allowed]
        found.append((repo_id, {path.name: path.read_bytes() for path in paths}))

    monkeypatch.setattr(HfApi, "create_repo", lambda self, repo_id, **_: RepoUrl(f"https://huggingface.co/{repo_id}"))
    monkeypatch.setattr(HfApi, "upload_folder", upload)
    return found


def _private_files(folder: Path) -> set[str]:
    for name in (".env", "rows.csv", "optimizer.pt"):
        (folder / name).write_text("private")
    (folder / "merges.txt").symlink_to(folder / ".env")
    return {".env", "rows.csv", "optimizer.pt", "merges.txt"}


def test_the_command_publishes_what_loading_needs_and_a_card_with_the_name(tmp_path, uploads, capsys):
    name = "RobertaWithKVMemoryForSequenceClassification"
    save(case_of(name), tmp_path / "kv")
    card = model_card(AutoConfig.from_pretrained(tmp_path / "kv"), name, "mil-books-seed1", license="mit")
    card.save(tmp_path / "kv/README.md")
    private = _private_files(tmp_path / "kv")
    for more in ([], ["--with-code"]):
        assert main(["push", str(tmp_path / "kv"), "me/memory", *more]) == 0
        repository, files = uploads.pop()
        assert repository == "me/memory" and {"model.safetensors", "config.json", "tokenizer.json"} <= set(files)
        assert not private & set(files) and ("modeling_kv_memory.py" in files) == bool(more)
        card = files["README.md"].decode()
        assert (
            'AutoTokenizer.from_pretrained("me/memory"' in card and "mil-books" not in card and "license: mit" in card
        )
        assert ("trust_remote_code" in card) == bool(more) and "pip install hf_memaug" not in card
        out = capsys.readouterr().out
        assert "bytes  model.safetensors" in out and "left out: .env, merges.txt, optimizer.pt, rows.csv" in out


def test_a_plain_model_gets_the_card_of_its_run(backbones, tmp_path, uploads):
    score = {"domain": "a", "split": "dev", "metric": "accuracy", "value": 5.0, "seed": 0}
    model = AutoModelForSequenceClassification.from_pretrained(backbones["roberta"])
    model.config.run_facts = {"data": "reviews", "scores": [score]}
    model.save_pretrained(tmp_path / "erm")
    assert main(["push", str(tmp_path / "erm"), "me/erm", "--license", "apache-2.0"]) == 0
    (_, files) = uploads.pop()
    card = files["README.md"].decode()
    assert "license: apache-2.0" in card
    assert "model-index:\n- name: erm" in card and 'from_pretrained("me/erm")' in card
    memory = hf_memaug.RobertaWithKVMemoryForSequenceClassification.from_backbone(str(tmp_path / "erm"), **MEMORY)
    assert memory.config.run_facts is None, "the facts of another model"


def test_a_folder_given_to_push_to_hub_is_not_published_whole(backbones, tmp_path, uploads, monkeypatch):
    monkeypatch.setattr(ModelCard, "load", classmethod(lambda *_, **__: ModelCard("---\nlicense: mit\n---")))
    model = hf_memaug.RobertaWithKVMemoryForSequenceClassification.from_backbone(backbones["roberta"], **MEMORY)
    model.save_pretrained(tmp_path / "mine")
    private = _private_files(tmp_path / "mine")
    model.push_to_hub("me/mine", folder=tmp_path / "mine")
    (_, files) = uploads.pop()
    assert "model.safetensors" in files and not private & set(files)


def test_a_push_that_fails_is_told_in_a_sentence(tmp_path, capsys, monkeypatch):
    save(case_of("RobertaWithKVMemoryForSequenceClassification"), tmp_path / "kv")
    assert main(["push", str(tmp_path / "kv"), "me/memory/too much"]) == 2
    assert "`repository` 'me/memory/too much' is not a name on the hub" in capsys.readouterr().err

    def no_network(*_, **__):
        raise RuntimeError("Connection refused")

    monkeypatch.setattr(HfApi, "create_repo", no_network)
    assert main(["push", str(tmp_path / "kv"), "me/memory"]) == 1
    assert capsys.readouterr().err == "Error: me/memory cannot be pushed: Connection refused\n"
    (tmp_path / "kv/model.safetensors").rename(tmp_path / "blob")
    (tmp_path / "kv/model.safetensors").symlink_to(tmp_path / "blob")
    assert main(["push", str(tmp_path / "kv"), "me/memory"]) == 2
    assert "Links are not published" in capsys.readouterr().err


@pytest.mark.slow
def test_push_pull_by_name_and_snapshot(hub, backbones, tmp_path):
    code = (
        PREPARE
        + f"""
model = hf_memaug.RobertaWithKVMemoryForSequenceClassification.from_backbone({backbones["roberta"]!r}, **MEMORY).eval()
record_run(model, data="reviews", domains=["dvd"], left_out="books",
           scores=[dict(domain="books", metric="macro_f1", value=90 + s, seed=s) for s in range(2)])
model.push_to_hub("me/memory")
pulled = AutoClassifier.from_pretrained("me/memory")
tokenizer = transformers.AutoTokenizer.from_pretrained("me/memory")
inputs = tokenizer(SENTENCES, return_tensors="pt", padding=True)
assert torch.equal(model(**inputs).logits, pulled(**inputs).logits)
assert pulled.config.run_facts["left_out"] == "books"
classify = transformers.pipeline("text-classification", model="me/memory")
assert len(classify(SENTENCES)) == len(SENTENCES)
from huggingface_hub import snapshot_download
folder = snapshot_download("me/memory")
assert torch.equal(AutoClassifier.from_pretrained(folder)(**inputs).logits, model(**inputs).logits)

# Prompted: the tokenizer is pushed with the template in it.
prompted = hf_memaug.BertWithKVMemoryForPromptClassification.from_backbone(
    {backbones["bert"]!r}, template="{{text}} it was {{mask}}", verbalizer={{"no": "bad", "yes": "good"}}, **MEMORY)
prompted.push_to_hub("me/prompted")
asking = transformers.AutoTokenizer.from_pretrained("me/prompted")
assert all(ids.count(asking.mask_token_id) == 1 for ids in asking(SENTENCES)["input_ids"])
classify = transformers.pipeline("text-classification", model="me/prompted")
assert {{answer["label"] for answer in classify(SENTENCES)}} <= {{"no", "yes"}}

# A pulled model pushed on keeps its facts, its tokenizer and a card that a person has edited.
pulled.push_to_hub("me/again")
from huggingface_hub import ModelCard
card = ModelCard.load("me/again")
card.content = "# By hand"
card.push_to_hub("me/again")
pulled.push_to_hub("me/again")

def fails(action, *expected):
    try:
        action()
    except Exception as error:
        text = f"{{type(error).__name__}}: {{error}}".lower()
        assert any(word in text for word in expected), text
        return
    raise SystemExit("no error")
fails(lambda: transformers.AutoModel.from_pretrained("me/nothing"), "not a valid model identifier")
fails(lambda: type(model).from_pretrained("me/nothing"), "not a valid model identifier")
fails(lambda: type(model).from_backbone("me/nothing"), "not a valid model identifier")
fails(lambda: model.push_to_hub("me/model", token="hf_wrong"), "401", "credentials", "token")
print("ok")
"""
    )
    assert run_client(code, hub, tmp_path / "home", timeout=240).stdout.strip().endswith("ok")
    files = hub.files("me/memory")
    assert {"model.safetensors", "config.json", "README.md", "tokenizer.json", "tokenizer_config.json"} <= set(files)
    assert not [name for name in files if name.endswith((".bin", ".pt", ".pth"))]
    card = files["README.md"].decode()
    assert "model-index" in card and "90.5" in card and "**books** (left out)" in card
    assert "more information needed" not in card.lower()
    assert hub.files("me/again")["README.md"].decode().strip().endswith("# By hand")
    assert "tokenizer.json" in hub.files("me/again")
    assert json.loads(hub.files("me/again")["config.json"])["run_facts"]["left_out"] == "books"


@pytest.mark.slow
def test_a_model_of_images_is_pushed_with_its_processor(hub, backbones, tmp_path):
    code = (
        PREPARE
        + f"""
from PIL import Image
model = hf_memaug.ViTGMoEForImageClassification.from_vit({backbones["vit"]!r}, num_experts=3)
model.push_to_hub("me/experts")
pulled = transformers.AutoModelForImageClassification.from_pretrained("me/experts")
inputs = dict(pixel_values=torch.randn(2, 3, 16, 16))
assert torch.equal(model(**inputs).logits, pulled(**inputs).logits)
classify = transformers.pipeline("image-classification", model="me/experts")
assert len(classify(Image.new("RGB", (30, 20)))) == 3
pulled.push_to_hub("me/again")
bare = type(model)(model.config)
bare.config._name_or_path = ""
bare.push_to_hub("me/bare")

memories = hf_memaug.HMAForImageClassification.from_backbone({backbones["vit"]!r}, real_memory_size=24, num_labels=3)
memories.train()(**inputs, labels=torch.tensor([0, 2]))
memories.eval().update_memory()
record_run(memories, scores=[dict(domain="photo", metric="accuracy", value=70.0, seed=0)])
memories.push_to_hub("me/memories")
pulled = transformers.AutoModelForImageClassification.from_pretrained("me/memories")
assert int(pulled.head.memory.queue.written) == 2
assert torch.equal(memories(**inputs).logits, pulled(**inputs).logits)
assert len(transformers.pipeline("image-classification", model="me/memories")(Image.new("RGB", (30, 20)))) == 3
print("ok")
"""
    )
    assert run_client(code, hub, tmp_path / "home", timeout=240).stdout.strip().endswith("ok")
    for repo in ("me/experts", "me/again", "me/memories"):
        assert {"model.safetensors", "preprocessor_config.json", "README.md"} <= set(hub.files(repo))
        assert not [name for name in hub.files(repo) if name.startswith("tokenizer")]
    card = hub.files("me/experts")["README.md"].decode()
    assert "pipeline_tag: image-classification" in card and "AutoImageProcessor" in card
    assert "`expert_layers` | `[1, 2]`" in card and "more information needed" not in card.lower()
    assert "preprocessor_config.json" not in hub.files("me/bare")
    card = hub.files("me/memories")["README.md"].decode()
    assert "| photo | test | seed 0 | independent | 70.0 |" in card and "`real_memory_size` | `24`" in card


@pytest.mark.slow
def test_trainer_pushes_the_card_of_the_run(hub, backbones, tmp_path):
    code = (
        PREPARE
        + f"""
from hf_memaug.data import load_domains
tokenizer = transformers.AutoTokenizer.from_pretrained({backbones["roberta"]!r})
rows = [dict(text=f"{{t}} {{i}}", label=i % 2, domain="ab"[i // 2 % 2]) for i, t in enumerate(SENTENCES * 2)]
data = load_domains(rows).tokenize(tokenizer)

def train(model, repo, **kwargs):
    args = hf_memaug.DomainTrainingArguments(
        output_dir={str(tmp_path)!r} + "/" + repo, max_steps=2, eval_strategy="steps", eval_steps=1, save_steps=1,
        push_to_hub=True, hub_model_id="me/" + repo, hub_strategy="every_save", seed=3, report_to=[], use_cpu=True,
        disable_tqdm=True)
    trainer = hf_memaug.DomainTrainer(
        model=model, args=args, train_dataset=data, eval_dataset=data, processing_class=tokenizer)
    trainer.train()
    record_run(model, data="two shops", left_out="c")
    trainer.push_to_hub()
    return trainer

memory = hf_memaug.RobertaWithKVMemoryForSequenceClassification.from_backbone({backbones["roberta"]!r}, **MEMORY)
train(memory, "trained")
pulled = AutoClassifier.from_pretrained("me/trained").eval()
inputs = tokenizer(SENTENCES, return_tensors="pt", padding=True)
assert torch.equal(pulled(**inputs).logits, memory.eval()(**inputs).logits)
assert pulled.config.run_facts["training"]["seed"] == 3

from peft import LoraConfig, get_peft_model
base = AutoClassifier.from_pretrained("me/trained")
adapted = get_peft_model(base, LoraConfig(task_type="SEQ_CLS", target_modules=base.adapter_targets,
                                          modules_to_save=["memory"]))
train(adapted, "adapter")
from peft import PeftModel
again = PeftModel.from_pretrained(AutoClassifier.from_pretrained("me/trained"), "me/adapter").eval()
torch.testing.assert_close(again(**inputs).logits, adapted.eval()(**inputs).logits)

plain = AutoClassifier.from_pretrained({backbones["roberta"]!r})
args = hf_memaug.DomainTrainingArguments(output_dir={str(tmp_path)!r} + "/plain", report_to=[], use_cpu=True)
hf_memaug.DomainTrainer(model=plain, args=args, train_dataset=data, processing_class=tokenizer).create_model_card()

args = dict(output_dir={str(tmp_path)!r} + "/callback", report_to=[], use_cpu=True, max_steps=1)
transformers.Trainer(
    model=memory, args=transformers.TrainingArguments(**args), train_dataset=data,
    data_collator=transformers.DataCollatorWithPadding(tokenizer), callbacks=[hf_memaug.ModelCardCallback()]).train()
memory.push_to_hub("me/callback", tags=["mine"])
print("ok")
"""
    )
    assert run_client(code, hub, tmp_path / "home", timeout=240).stdout.strip().endswith("ok")
    files = hub.files("me/trained")
    assert {"model.safetensors", "config.json", "README.md", "tokenizer.json"} <= set(files)
    card = files["README.md"].decode()
    trained = ("two shops", "| Domains trained on | a, b |", "seed 3", "| steps | 2 |")
    for said in (*trained, "**c** was left out", "macro_f1"):
        assert said in card, said
    assert "more information needed" not in card.lower() and "[](" not in card
    facts = json.loads(files["config.json"])["run_facts"]
    assert {score["domain"] for score in facts["scores"]} == {"a", "average", "b"}
    adapter = hub.files("me/adapter")
    assert "adapter_model.safetensors" in adapter and "library_name: peft" in adapter["README.md"].decode()
    assert "more information needed" not in adapter["README.md"].decode().lower()
    for card in ((tmp_path / "callback" / "README.md").read_text(), hub.files("me/callback")["README.md"].decode()):
        assert "| steps | 1 |" in card and "two shops" in card
    assert "- mine" in card
    plain = (tmp_path / "plain" / "README.md").read_text()
    assert "hf_memaug" not in plain, "the card of other people's models is theirs"
