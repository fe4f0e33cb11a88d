# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Makes the fetched tests importable, as packages `transformers_tests` and `peft_tests`."""

import ast
import importlib.util
import os
import sys
import types
from importlib.metadata import version
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("HF_MEMAUG_UPSTREAM", Path(__file__).parents[2] / ".cache" / "upstream"))
MEND = "run `python tests/upstream/fetch.py .cache/upstream`"

# Modules that the common tests import and the source distributions leave out. Nothing of them applies to encoders.
LEFT_OUT = {
    "transformers_tests.exporters.test_export": {"ExportTesterMixin": type("ExportTesterMixin", (), {})},
    "transformers_tests.generation.test_utils": {"GenerationTesterMixin": type("GenerationTesterMixin", (), {})},
    "transformers_tests.utils.test_configuration_utils": {
        "config_common_kwargs": {
            "return_dict": False,
            "output_hidden_states": True,
            "output_attentions": True,
            "dtype": "float16",
            "chunk_size_feed_forward": 5,
            "architectures": ["BertModel"],
            "id2label": {0: "label"},
            "label2id": {"label": "0"},
            "problem_type": "regression",
        }
    },
    "diffusers": {"StableDiffusionPipeline": type("StableDiffusionPipeline", (), {})},
}


def load(project: str, module: str, **replaced: list):
    """
    `load("peft", "testing_common")`: the module, or a skip that says how to get it.

    Args:
        replaced (`list`, *optional*):
            Module-level lists to exchange for others before the module's tests are parametrised over them.
    """
    tests = FOLDER / f"{project}-{version(project)}" / "tests"
    if not tests.is_dir():
        pytest.skip(f"the tests of {project} {version(project)} are not there: {MEND}", allow_module_level=True)
    package = f"{project}_tests"
    if package not in sys.modules:
        sys.modules[package] = types.ModuleType(package)
        sys.modules[package].__path__ = [str(tests)]
    for name, members in LEFT_OUT.items():
        if name.split(".")[0] in (package, "diffusers") and name not in sys.modules:
            _stand_in(name, members)
    name = f"{package}.{module}"
    if not replaced:
        return importlib.import_module(name)
    tree = ast.parse((tests / f"{module}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and node.targets[0].id in replaced:
            node.value = ast.copy_location(ast.parse(repr(replaced.pop(node.targets[0].id)), mode="eval").body, node)
    if replaced:
        raise LookupError(f"{name} has no {sorted(replaced)} any more")
    loaded = types.ModuleType(name)
    loaded.__package__ = package
    exec(compile(ast.fix_missing_locations(tree), str(tests / f"{module}.py"), "exec"), vars(loaded))
    return loaded


def _stand_in(name: str, members: dict) -> None:
    if "." not in name and importlib.util.find_spec(name) is not None:
        return
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        partial = ".".join(parts[:depth])
        if partial not in sys.modules:
            sys.modules[partial] = types.ModuleType(partial)
            sys.modules[partial].__path__ = []
    vars(sys.modules[name]).update(members)
