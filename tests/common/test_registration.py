# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""`import hf_memaug` is all it takes, whatever was imported before and comes after."""

import subprocess
import sys

import pytest

CHECK = """
import sys, time
import transformers
config = transformers.AutoConfig.for_model("bert_kv_memory", hidden_size=8, num_attention_heads=2, num_hidden_layers=1,
                                           intermediate_size=8, memory_heads=2, memory_slots=4, vocab_size=9)
assert type(transformers.AutoModel.from_config(config)).__name__ == "BertWithKVMemory"
heads = transformers.AutoModelForSequenceClassification.from_config(config)
assert type(heads).__name__ == "BertWithKVMemoryForSequenceClassification"
assert hasattr(transformers.Trainer.create_model_card, "__wrapped__")
import peft
assert "bert_kv_memory" in peft.utils.constants.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
print("ok")
"""
# Each one begins the import of transformers at another place.
FIRST = [
    "from transformers import AutoTokenizer",
    "from transformers import Trainer",
    "from transformers import pipeline",
    "from hf_memaug.modeling.modeling_utils import MemoryModelMixin",
]


def run(code: str, *flags: str) -> str:
    done = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.mark.parametrize("first", FIRST)
def test_any_order_of_imports(first):
    assert run(f"{first}\nimport hf_memaug\n{CHECK}").endswith("ok")
    assert run(f"import hf_memaug\n{first}\n{CHECK}").endswith("ok")


def test_the_import_costs_nothing_and_brings_nothing():
    seconds, modules = run(
        """
import transformers, time, sys
before, start = set(sys.modules), time.perf_counter()
import hf_memaug
seconds = time.perf_counter() - start
print(seconds, ",".join(sorted({name.split(".")[0] for name in set(sys.modules) - before})))
"""
    ).split(" ", 1)
    assert float(seconds) < 0.3
    assert not {"torch", "datasets", "evaluate", "sklearn", "matplotlib", "peft", "gradio"} & set(modules.split(","))


def test_imports_without_the_optional_packages():
    run(
        """
import importlib.util, sys
hidden = set("datasets evaluate matplotlib sklearn scipy pandas pyarrow peft torchvision timm PIL".split())
hidden |= {"torch_geometric", "rdkit", "gradio"}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in hidden:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in hidden else find_spec(name, package)
import hf_memaug
for name in hf_memaug.__all__:
    getattr(hf_memaug, name)
"""
    )


def test_imports_point_one_way():
    import re
    from pathlib import Path

    import hf_memaug

    package = Path(hf_memaug.__file__).parent
    forbidden = {
        "layers": r"(from|import) (transformers|datasets|peft|accelerate|hf_memaug\.(?!layers))",
        "configuration": r"(from|import) hf_memaug\.(?!configuration|registration|suggestions)",
        "modeling": r"(from|import) hf_memaug\.(?!modeling|configuration|layers|kernels|registration|suggestions)",
        "data": r"(from|import) hf_memaug\.(?!data|configuration|suggestions|iob2)",
        "evaluation": r"(from|import) hf_memaug\.(?!evaluation|suggestions|lazy|iob2|files)",
        "kernels": r"(from|import) (transformers|datasets|peft|accelerate|hf_memaug\.(?!kernels|layers))",
        "training": (
            r"(from|import) hf_memaug\."
            r"(?!training|data|evaluation|modeling|configuration|layers|kernels|registry|suggest|lazy|files)"
        ),
        "reporting": r"(from|import) hf_memaug\.(hub|cli|app)",
        "hub": r"(from|import) hf_memaug\.(cli|app)",
        "app": r"(from|import) hf_memaug\.cli",
    }
    wrong = [
        f"{path.relative_to(package)}: {line.strip()}"
        for room, pattern in forbidden.items()
        for path in (package / room).rglob("*.py")
        for line in path.read_text().splitlines()
        if re.match(rf"\s*{pattern}", line)
    ]
    assert not wrong, wrong


def test_every_source_file_has_the_licence_header():
    import re
    from pathlib import Path

    root = Path(__file__).parents[2]
    files = [p for folder in ("hf_memaug", "tests", "examples", "benchmarks") for p in (root / folder).rglob("*.py")]
    files.append(root / "setup.py")
    # The year also keeps transformers' test of missing weights from skipping our configurations.
    header = re.compile(r"# Copyright 20(2[3-9]|[3-9]\d) .*\n# SPDX-License-Identifier: Apache-2.0\n")
    assert len(files) > 40
    assert not [str(path) for path in files if not header.match(path.read_text())]
