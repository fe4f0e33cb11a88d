# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Imports point one way, and optional packages are imported where they are used."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "hf_memaug"
# A package may import those of lower levels and, except at the top, those of its own.
LEVELS = (
    {"__init__", "registry", "registration", "messages", "files", "lazy"},
    {"kernels"},
    {"configuration", "layers"},
    {"hub"},
    {"data", "evaluation"},
    {"modeling"},
    {"training"},
    {"inference"},
    {"runs"},
    {"reporting"},
    {"app"},
    {"cli"},
)
LEVEL_OF = {package: level for level, packages in enumerate(LEVELS) for package in packages}
OPTIONAL = {
    "datasets",
    "evaluate",
    "gradio",
    "jinja2",
    "matplotlib",
    "plotly",
    "rdkit",
    "scipy",
    "sklearn",
    "torch_geometric",
}
MODULES = sorted(path.relative_to(PACKAGE.parent).with_suffix("").as_posix() for path in PACKAGE.rglob("*.py"))


def imported(module: str, *, at_the_top: bool = False) -> set[str]:
    """Full names of what a module imports, also inside its functions unless `at_the_top`."""
    path = PACKAGE.parent / f"{module}.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in tree.body if at_the_top else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def package_of(name: str) -> str:
    """`hf_memaug.modeling.modeling_hma` -> `modeling`; a public name of `hf_memaug` itself -> `__init__`."""
    part = (name.replace("/", ".").split(".") + ["__init__"])[1]
    return part if part in LEVEL_OF or (PACKAGE / part).is_dir() else "__init__"


def test_imports_point_down():
    upward = []
    for module in MODULES:
        package = package_of(module)
        for name in imported(module):
            other = package_of(name)
            # The table of families names modules of every level, and imports none.
            is_ours = name.startswith("hf_memaug") and other != package and package not in LEVELS[0]
            if is_ours and LEVEL_OF[other] >= LEVEL_OF[package]:
                upward.append(f"{module} imports {name}")
    assert not upward, "\n".join(upward)


def test_optional_packages_are_imported_where_they_are_used():
    # `load_metric` imports these classes of `evaluate` when it is called.
    modules = [module for module in MODULES if not module.endswith("/evaluate_modules")]
    found = {
        module: {name.split(".")[0] for name in imported(module, at_the_top=True)} & OPTIONAL for module in modules
    }
    assert not {module: names for module, names in found.items() if names}


@pytest.mark.parametrize("package", ["layers", "kernels"])
def test_layers_and_kernels_know_only_torch(package):
    others = {"transformers", "peft", "accelerate", "huggingface_hub"}
    for module in MODULES:
        if package_of(module) == package:
            assert not {name.split(".")[0] for name in imported(module)} & others, module


def test_there_are_no_circular_imports():
    graph = {}
    for module in MODULES:
        name = module.replace("/", ".").removesuffix(".__init__")
        of_ours = {one for one in imported(module, at_the_top=True) if one.startswith("hf_memaug")}
        graph[name] = {one if one.replace(".", "/") in MODULES else one.rpartition(".")[0] for one in of_ours}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            for other in sorted(graph.get(name, set()) - {name}):
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())
