# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`import hf_memaug` is all it takes, whatever was imported before and comes after."""

import subprocess
import sys

import pytest

CHECK = """
import pickle
import transformers
sizes = dict(hidden_size=8, num_attention_heads=2, num_hidden_layers=1, intermediate_size=8)
config = transformers.AutoConfig.for_model("bert_kv_memory", memory_heads=2, memory_slots=4, vocab_size=9, **sizes)
assert type(transformers.AutoModel.from_config(config)).__name__ == "BertWithKVMemory"
auto = transformers.AutoModelForSequenceClassification
assert type(auto.from_config(config)).__name__ == "BertWithKVMemoryForSequenceClassification"
plain, prompted = auto._model_mapping[type(config)]
assert isinstance(auto.from_config(config), plain) and not isinstance(auto.from_config(config), prompted)
pickle.dumps(auto._model_mapping)
print("ok")
"""
# Each one begins the import of transformers at another place.
FIRST = [
    "from transformers import AutoTokenizer",
    "from transformers import Trainer, pipeline",
    "from hf_memaug.modeling.modeling_utils import MemoryModelMixin",
]


def run(code: str, *flags: str) -> str:
    done = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.slow
def test_any_order_of_imports(first):
    assert run(f"{first}\nimport hf_memaug\n{CHECK}").endswith("ok")
    assert run(f"import hf_memaug\n{first}\n{CHECK}").endswith("ok")


def test_the_import_changes_nothing_of_other_libraries():
    run(
        """
import sys
import peft, transformers, transformers.trainer
def state():
    classes = (transformers.Trainer, transformers.AutoConfig, transformers.AutoModel, transformers.PreTrainedModel)
    tables = {name: repr(value) for name, value in vars(peft.utils.constants).items() if name.isupper()}
    lists = list(transformers.trainer.DEFAULT_CALLBACKS), list(sys.meta_path)
    return [dict(vars(one)) for one in classes], lists, tables
before = state()
import hf_memaug
assert state() == before
"""
    )


def test_the_import_is_quick_and_brings_no_optional_package():
    ratio, modules = run(
        """
import time, sys
start = time.perf_counter()
import torch, transformers
from transformers import AutoModel
theirs, before = time.perf_counter() - start, set(sys.modules)
start = time.perf_counter()
import hf_memaug
ours = time.perf_counter() - start
print(ours / theirs, ",".join(sorted(set(sys.modules) - before)))
"""
    ).split(" ", 1)
    # Of 3.3 seconds that torch and transformers take.
    assert float(ratio) < 0.3
    modules = modules.split(",")
    assert not {"datasets", "evaluate", "sklearn", "matplotlib", "peft", "gradio"} & set(modules)
    assert "transformers.modeling_utils" not in modules, "model classes are imported on first use"


@pytest.mark.slow
def test_a_family_can_be_added_at_run_time():
    run(
        """
import sys, types
import transformers, hf_memaug
from hf_memaug.registry import Family, FAMILIES
class ToyConfig(transformers.BertConfig):
    model_type = "toy"
class ToyModel(transformers.BertModel):
    config_class = ToyConfig
toy = sys.modules["toy"] = types.ModuleType("toy")
toy.ToyConfig, toy.ToyModel = ToyConfig, ToyModel
row = Family(configuration="toy", modeling="toy", config="ToyConfig", backbone="bert",
             paper=FAMILIES["hma"].paper, models={"AutoModel": ("ToyModel",)})
hf_memaug.register_family(row)
config = ToyConfig(hidden_size=8, num_attention_heads=2, num_hidden_layers=1, intermediate_size=8, vocab_size=9)
assert type(transformers.AutoModel.from_config(config)) is ToyModel is hf_memaug.ToyModel
assert type(transformers.AutoConfig.for_model("toy")) is ToyConfig
assert ToyConfig in transformers.TOKENIZER_MAPPING
"""
    )


@pytest.mark.slow
def test_imports_without_the_optional_packages(tmp_path):
    (tmp_path / "rows.csv").write_text("text,label,domain\na good book,good,books\n")
    run(
        f"rows = {str(tmp_path / 'rows.csv')!r}"
        """
import importlib.util, sys
hidden = set("datasets evaluate matplotlib sklearn scipy pandas pyarrow peft torchvision timm PIL jinja2".split())
hidden |= {"torch_geometric", "rdkit", "gradio"}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in hidden:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in hidden else find_spec(name, package)
import hf_memaug
import hf_memaug.data, hf_memaug.evaluation, hf_memaug.reporting.html_report
for module in (hf_memaug, hf_memaug.evaluation):
    for name in module.__all__:
        getattr(module, name)
assert len(hf_memaug.data.load_domains(rows)) == 1 and len(hf_memaug.data.generated_reviews(5)) == 25
assert hf_memaug.evaluation.score_table({"erm": {"books": 0.5}}).split()[-1] == "50.0"
"""
    )


def test_every_source_file_has_the_licence_header():
    import re
    from pathlib import Path

    root = Path(__file__).parents[2]
    files = [p for folder in ("hf_memaug", "tests", "examples", "benchmarks") for p in (root / folder).rglob("*.py")]
    files.append(root / "setup.py")
    # The year also keeps transformers' test of missing weights from skipping our configurations.
    header = re.compile(r"# Copyright 20(2[3-9]|[3-9]\d) .* SPDX-License-Identifier: Apache-2.0\n")
    assert len(files) > 40
    assert not [str(path) for path in files if not header.match(path.read_text())]
