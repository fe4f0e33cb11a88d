# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The pages of the API reference, made from the registry: a new family has its page without anybody writing one."""

import importlib
import inspect
from dataclasses import dataclass
from functools import cache

import hf_memaug
from hf_memaug.registry import BACKBONES, FAMILIES

# The rooms whose names are public, as they are called there.
ROOMS = {
    "data": "Data",
    "training": "Trainers",
    "evaluation": "Evaluation",
    "inference": "Inference",
    "reporting": "Reporting",
    "hub": "Publishing",
}


@dataclass(frozen=True)
class Page:
    path: str
    title: str
    introduction: str
    objects: tuple[str, ...]

    @property
    def content(self) -> str:
        blocks = "\n\n".join(f"::: {name}" for name in self.objects)
        return f"# {self.title}\n\n{self.introduction}\n\n{blocks}\n"


REGISTRY = Page(
    "reference/registry.md",
    "Registry",
    "A method is one row of `hf_memaug.FAMILIES`.",
    (
        "hf_memaug.registration.register_family",
        "hf_memaug.registry.Family",
        "hf_memaug.registry.Method",
        "hf_memaug.registry.Paper",
    ),
)


@cache
def pages() -> tuple[Page, ...]:
    found = [*_families(), *_rooms(), REGISTRY]
    return (_overview(found), *found)


def _families() -> list[Page]:
    modules: dict[str, list] = {}
    for row in (*FAMILIES.values(), *BACKBONES.values()):
        modules.setdefault(row.modeling.rpartition("modeling_")[2], []).append(row)
    found = []
    for module, rows in modules.items():
        names = [name for row in rows for name in (row.config, *row.model_names)]
        paper = getattr(rows[0], "paper", None)
        introduction = f"[{paper.title}]({paper.url}): {paper.what}." if paper else "A backbone, without a head."
        classes = [row.load(name) for row in rows for name in (row.config, *row.model_names)]
        # Fields that several configurations share, and the only place where they are described.
        shared = [base for one in classes for base in one.__mro__[1:] if base.__name__.endswith("Fields")]
        objects = tuple(dict.fromkeys(map(_where, [*classes, *shared])))
        found.append(Page(f"reference/{module}.md", ", ".join(_heads(names)), introduction, objects))
    return found


def _heads(names: list[str]) -> list[str]:
    """The configurations' names without their ending: what families are called in code."""
    return [name.removesuffix("Config") for name in names if name.endswith("Config")]


def _rooms() -> list[Page]:
    found = []
    for room, title in ROOMS.items():
        package = importlib.import_module(f"hf_memaug.{room}")
        names = dict.fromkeys(getattr(package, "__all__", ()), package.__name__)
        names |= {name: where for name, where in hf_memaug._FUNCTIONS.items() if where.split(".")[1] == room}
        values = {name: getattr(importlib.import_module(where), name) for name, where in names.items()}
        objects = [_where(value) for value in values.values() if inspect.isclass(value) or inspect.isroutine(value)]
        first = [_where(getattr(hf_memaug, name)) for name in names if name in hf_memaug._FUNCTIONS]
        objects = tuple(dict.fromkeys([*first, *sorted(objects, key=lambda path: path.rsplit(".")[-1].lower())]))
        introduction = f"Names in `hf_memaug.{room}`. Those that `hf_memaug` itself offers come first."
        found.append(Page(f"reference/{room}.md", title, introduction, objects))
    return found


def _where(value) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _overview(found: list[Page]) -> Page:
    places = {path.rsplit(".", 1)[-1]: (page, path) for page in found for path in page.objects}
    rows = []
    for name in hf_memaug.__all__:
        if name in places:
            page, path = places[name]
            rows.append(f"| [`{name}`]({page.path.removeprefix('reference/')}#{path}) | {page.title} |")
    introduction = (
        "Every name that `import hf_memaug` offers, with the page that describes it. `hf_memaug.FAMILIES` is the table "
        "of families ([`registry.py`](../../hf_memaug/registry.py)), `hf_memaug.__version__` the version.\n\n"
        "| name | page |\n|---|---|\n" + "\n".join(rows)
    )
    return Page("reference/index.md", "Every public name", introduction, ())
