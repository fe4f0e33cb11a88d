# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Every Python block of README and of every page is run, in the order of the page and with what the blocks before it have
made, in a folder with some reviews, some images and tiny checkpoints. A block that cannot be run says why, in a comment
above it: `<!-- not run: needs the hub -->`. What a page takes for granted beside that stands in `BEFORE`; what should
have come out, in `AFTER`.
"""

import os
import re
import shutil
import subprocess
import sys

import pytest
from pages import PAGES, ROOT, blocks, furnish

# Pages that publish: they run in a process of their own, with a hub on the loopback.
ON_THE_HUB = ("README.md", "docs/guides/publishing.md")
# The files of a method, which are written into a copy of the library.
AS_FILES = "docs/guides/adding_a_method.md"
# Pages that train nothing.
QUICK = ("docs/guides/own_data.md", "docs/hma_prompts.md", "docs/report.md", "docs/results/gmap/details.md")
SENTENCE = 'inputs = AutoTokenizer.from_pretrained("FacebookAI/roberta-base")("a good book", return_tensors="pt")\n'
PIXELS = "import torch\npixel_values = torch.randn(2, 3, 16, 16)\n"
# A classifier of reviews, rows of a new domain, and rows of an old one.
REVIEWS = """
import csv
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from hf_memaug.data import generated_reviews
for file, domain in (("hotels.csv", "hotels"), ("old_reviews.csv", "books")):
    with open(file, "w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(["text", "label"])
        for row in generated_reviews(rows_per_domain=20, domains=[domain]):
            writer.writerow([row["text"], ["negative", "positive"][row["label"]]])
labels = {"id2label": {0: "negative", 1: "positive"}, "label2id": {"negative": 0, "positive": 1}}
classifier = AutoModelForSequenceClassification.from_pretrained("FacebookAI/roberta-base", **labels)
classifier.save_pretrained("you/reviews")
AutoTokenizer.from_pretrained("FacebookAI/roberta-base").save_pretrained("you/reviews")
"""
# {page: {words of a block: what is run before it}}
BEFORE = {
    "docs/writable_memory.md": {
        "from_classifier": REVIEWS,
        "guard_rows=500": """
from hf_memaug import load_domains
rows = load_domains({"books": "old_reviews.csv"}, labels=["negative", "positive"]).tokenize(tokenizer)
held_out = rows[:10]
""",
    },
    "README.md": {
        "from_classifier": REVIEWS,
        "HMAForImageClassification": "import torch\n"
        "network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 64))",
        "record_run": "model = RobertaWithKVMemoryForSequenceClassification.from_backbone(backbone, num_labels=2)",
    },
    "docs/app.md": {
        "write_space": """
from transformers import AutoTokenizer
from hf_memaug import RobertaWithKVMemoryForSequenceClassification
model = RobertaWithKVMemoryForSequenceClassification.from_backbone("FacebookAI/roberta-base", num_labels=2)
for place in ("you/reviews-memory", "runs/reviews/jobs/NAME/checkpoint"):
    model.save_pretrained(place)
    AutoTokenizer.from_pretrained("FacebookAI/roberta-base").save_pretrained(place)
"""
    },
    "docs/report.md": {
        "write_facts": """
from transformers import AutoTokenizer
from hf_memaug import RobertaWithKVMemoryForSequenceClassification, leave_one_domain_out
from hf_memaug.data import generated_reviews
split = leave_one_domain_out(generated_reviews(rows_per_domain=10), "films")
model = RobertaWithKVMemoryForSequenceClassification.from_backbone("FacebookAI/roberta-base", num_labels=2)
tokenizer = AutoTokenizer.from_pretrained("FacebookAI/roberta-base")
"""
    },
    "docs/bench.md": {
        "read_records": """
from hf_memaug.evaluation import Record, write_records
accuracy = {name: {"in": 0.5, "out": 0.5} for name in ("books", "films", "phones")}
write_records("runs/sweep/records.jsonl", [Record("reviews", "coral", "small", ("books",), 2, 0, 600, accuracy)])
"""
    },
    "docs/continual.md": {
        # A model of transformers has no record in its configuration: the folder has it.
        "me/shops": """
import shutil
from hf_memaug.data import generated_reviews
shutil.copytree(f"runs/shops/_stages/{len(rows.domains) - 1}-{rows.domains[-1]}", "me/shops")
new_rows = generated_reviews(rows_per_domain=10, domains=["books"])
new_rows = load_domains({"gardens": [{**row, "domain": "gardens"} for row in new_rows]}, labels=rows.label_names)
test_rows_of_all = generated_reviews(rows_per_domain=5, seed=1).by_domain() | {"gardens": new_rows}
tokenizer = trainer.processing_class
"""
    },
    "docs/gmoe.md": {"output_router_logits": PIXELS},
    "docs/hma.md": {
        "text_model": PIXELS,
        "perceptron": "batches = [(torch.randn(8, 3, 16, 16), torch.arange(8)) for _ in range(3)]",
    },
    "docs/kv_memory.md": {
        "BertWithKVMemory, Roberta": SENTENCE,
        "prompt_tokenizer": "from transformers import AutoTokenizer",
    },
    "docs/memory_rnn.md": {
        "num_beams": """
import torch
texts, questions, labels = ["how are you", "i am fine"], ["how are you"], torch.tensor([[4, 5, 3]])
"""
    },
    "docs/results/gmap/details.md": {
        "general_states": "from transformers import AutoTokenizer\n"
        "from hf_memaug import GMAPForSequenceClassification\n" + SENTENCE + "model = GMAPForSequenceClassification"
        '.from_general_and_domain("FacebookAI/roberta-base", "allenai/biomed_roberta_base")'
    },
}
# {page: what is run after its last block}
AFTER = {
    "docs/bench.md": "assert choice.record.algorithm == 'coral' and choice.accuracy == 0.5",
    "docs/continual.md": """
from pathlib import Path
import re
from pages import text_of
assert trainer.record.trained == [*rows.domains, "gardens"]
left = re.findall(r"^  (_stages/\\w+|continual\\w*\\.\\w+)", text_of("docs/continual.md"), re.MULTILINE)
assert len(left) >= 2 and all(Path("runs/shops", name).exists() for name in left), left
""",
    "docs/gmap.md": """
from pathlib import Path
assert Path("cache/train/cache.json").is_file()
assert logits.shape[-1] == 3 and len(answers) == 1 and isinstance(answers[0], str), "a tag a word, an answer a question"
trainer.args.max_steps = 2
trainer.train()
output = model(**tokenizer("a good book", return_tensors="pt"), output_memory_weights=True)
assert output.memory_weights.shape[-1] == 2, "layers of the general encoder"
""",
    "docs/report.md": """
from numpy import load
assert len(set(load("runs/reviews/jobs/mil-books-0/features.npz")["domain"])) > 1
""",
    "docs/gmoe.md": """
assert output.logits.shape == (2, 7) and output.memory_weights.shape == (2, 2, 17, 6)
assert output.router_logits[1].shape == (34, 6)
assert sorted({*split.train["domain"]}) == ["cartoon", "photo"]
adapted = [name for name, parameter in model.named_parameters() if "lora_" in name and parameter.requires_grad]
assert len(adapted) == 8 and all(".moe.experts." in name for name in adapted), "A and B of two matrices in two layers"
""",
    "docs/graphs.md": """
assert output.pooler_output.shape == (32, 64) == backbone(**batch).shape
""",
    "docs/hma.md": """
assert output.logits.shape == (2, 7) and output.memory_weights.shape == (2, 4, 512 + 1 + 7 * 8 + 1)
assert text_model.config.num_labels == 3 and int(model.head.memory.queue.written) == 24
""",
    "docs/hma_prompts.md": """
learning = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
inside = [name for name in learning if name.startswith("backbone.")]
assert len(inside) == 4 and all("cls_token" in name or "prompt_tokens" in name for name in inside), "of three layers"
assert any("head.memory" in name for name in learning)
""",
    "docs/memory_rnn.md": """
from transformers import AutoModelForSequenceClassification as Auto, AutoTokenizer
grown, words = (each.from_pretrained("books-then-phones") for each in (Auto, AutoTokenizer))
assert grown.config.memory_slots == [300, 500] and grown.config.vocab_size == len(words)
assert words.unk_token_id not in words(second[0])["input_ids"]
""",
    "docs/mil.md": """
from pathlib import Path
assert Path("runs/reviews-mil/meta_train/memory.safetensors").is_file()
""",
}


def test_nothing_is_prepared_for_a_page_that_is_not_there():
    assert {*BEFORE, *AFTER, *ON_THE_HUB, AS_FILES} <= set(PAGES)
    for page, prepared in BEFORE.items():
        for words in prepared:
            assert any(words in block.code for block in blocks(page)), (page, words)


@pytest.mark.parametrize("page", PAGES)
def test_a_block_that_is_not_run_says_why(page):
    """And no block slips through because it is written in another way than the others."""
    found = blocks(page)
    assert len(found) == (ROOT / page).read_text(encoding="utf-8").count("```python")
    assert all(block.reason is None or block.reason.startswith(("needs the hub", "needs a GPU")) for block in found)


def pieces(page: str) -> list[tuple[str, str]]:
    """What is run for a page, each with where it stands."""
    found = []
    for block in blocks(page):
        if block.reason is None:
            for words, code in BEFORE.get(page, {}).items():
                if words in block.code:
                    found.append((f"BEFORE[{page!r}]", code))
            # Lines as on the page, so that an error names the right one.
            found.append((str(ROOT / page), "\n" * (block.line - 1) + block.smaller()))
    return [*found, (f"AFTER[{page!r}]", AFTER.get(page, ""))]


def pages_that_run() -> list:
    found = [page for page in PAGES if blocks(page) and page not in (*ON_THE_HUB, AS_FILES)]
    return [pytest.param(page, marks=() if page in QUICK else pytest.mark.slow) for page in found]


@pytest.mark.parametrize("page", pages_that_run())
def test_the_page_runs(page, tmp_path, monkeypatch, backbones):
    from hf_memaug.training import ALGORITHMS

    if "torch_geometric" in (ROOT / page).read_text(encoding="utf-8"):
        pytest.importorskip("torch_geometric", reason="torch-geometric is not installed: the extra `graph`")
    pytest.importorskip("matplotlib", reason="figures need matplotlib: pip install hf_memaug[report]")
    monkeypatch.setitem(ALGORITHMS, "worst", None)  # what a page adds is gone again after the test
    furnish(tmp_path, backbones)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__page__"}
    for where, code in pieces(page):
        exec(compile(code, where, "exec"), names)


@pytest.mark.slow
@pytest.mark.parametrize("page", ON_THE_HUB)
def test_the_page_publishes(page, tmp_path, backbones):
    from hub_server import LoopbackHub, run_client

    furnish(tmp_path, backbones)
    start = f"import os, sys, hf_memaug\nsys.path[:] = map(os.path.abspath, sys.path)\nos.chdir({str(tmp_path)!r})\n"
    script = start + "\n".join(f"exec(compile({code!r}, {where!r}, 'exec'), globals())" for where, code in pieces(page))
    with LoopbackHub() as hub:
        said = run_client(script, hub, tmp_path / "home", timeout=400).stdout
        assert "README.md" in hub.files("you/reviews-memory")
        if page == "README.md":
            assert "test_macro_f1" in said and "\nerm 0." in said and "\nmil 0." in said
        else:
            assert "left out" in hub.files("you/reviews-memory")["README.md"].decode()
            assert "model.safetensors" in hub.files("you/reviews")
            assert "modeling_kv_memory.py" in hub.files("you/reviews-with-code")


@pytest.mark.slow
def test_the_method_of_the_guide_is_a_method(tmp_path, backbones):
    """Written into a copy of the library, it loads, saves, and goes through the common tests."""
    for name in ("hf_memaug", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    furnish(tmp_path, backbones)
    for block in blocks(AS_FILES):
        file, _, table = block.title.partition(", in ")
        path = tmp_path / file
        if table:
            before, opening, after = path.read_text(encoding="utf-8").partition(f"\n{table}")
            first, brace, rest = after.partition("= {\n")
            path.write_text(before + opening + first + brace + block.code + rest, encoding="utf-8")
        else:
            assert not path.exists()
            path.write_text(block.code, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{tmp_path / 'tests'}", "OMP_NUM_THREADS": "1"}
    options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 400}
    done = subprocess.run([sys.executable, "try_it.py"], **options)
    assert done.returncode == 0, done.stderr[-2000:]
    wanted = "covered or bit_equal or auto_classes or memory or padding or mates or gradient or lora"
    chosen = f"(BertWithPrototypes and ({wanted})) or registry_is_covered"
    command = [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib", "-p", "no:cacheprovider", "-k", chosen]
    done = subprocess.run([*command, "tests/common/test_common_models.py"], **options)
    assert done.returncode == 0, done.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 9, done.stdout[-500:]
