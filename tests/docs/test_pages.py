# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Links, commands, and tables of fields in README and docs/ agree with the repository."""

import importlib.util
import re

import pytest
from pages import PAGES, ROOT, blocks, text_of

FAMILY_PAGES = ["kv_memory", "gmap", "gmoe", "hma", "memory_rnn"]
LINK = re.compile(r"\]\((?!http)([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    folder = (ROOT / page).parent
    # The reference and the changelog are made when the site is built.
    assert not [
        link for link in LINK.findall(text_of(page)) if not (folder / link).exists() and "reference/" not in link
    ]


def anchors(text: str) -> set[str]:
    """The anchors of the headings, as the site makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings)
    return {re.sub(r"[-\s]+", "-", heading) for heading in plain}


@pytest.mark.parametrize("page", PAGES)
def test_anchors_exist(page):
    for link, anchor in re.findall(r"\]\((?!http)([^)#\s]*\.md)?#([^)]+)\)", text_of(page)):
        target = ((ROOT / page).parent / link).resolve() if link else ROOT / page
        assert "reference/" in link or anchor in anchors(target.read_text(encoding="utf-8")), (link, anchor)


@pytest.mark.parametrize("page", PAGES)
def test_scripts_and_modules_exist(page):
    for block in blocks(page, "bash"):
        for script, module in re.findall(r"^python (?:(\S+\.py)|-m (hf_memaug[\w.]*))", block.code, re.MULTILINE):
            assert (ROOT / script).is_file() if script else importlib.util.find_spec(module), script or module


def test_commands_exist():
    from hf_memaug_cli.app import COMMANDS

    used = {m for page in PAGES for b in blocks(page, "bash") for m in re.findall(r"^hf-memaug ([a-z]+)", b.code, re.M)}
    assert used <= set(COMMANDS)


def test_make_targets_exist():
    makefile = text_of("Makefile")
    for page in PAGES:
        for target in set(re.findall(r"`make ([a-z-]+)`", text_of(page))):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), (page, target)


@pytest.mark.parametrize("family", FAMILY_PAGES)
class TestFamilyPages:
    def test_has_its_sections_in_order(self, family):
        sections = re.findall(r"^## (.+)$", text_of(f"docs/{family}.md"), re.MULTILINE)
        assert sections[:4] == ["When to use it", "Ten lines to start", "The method", "What we measured"]

    def test_what_was_measured_is_in_a_file(self, family):
        measured = text_of(f"docs/{family}.md").partition("## What we measured")[2].partition("\n## ")[0]
        files = [link for link in LINK.findall(measured) if link.endswith(".json")]
        assert files and all((ROOT / "docs" / file).is_file() for file in files)


@pytest.mark.parametrize(
    "page, config, backbone", [("gmoe", "ViTGMoEConfig", "ViTConfig"), ("hma", "HMAConfig", "PreTrainedConfig")]
)
def test_every_field_is_described(page, config, backbone):
    from dataclasses import fields

    import transformers

    import hf_memaug

    inherited = {field.name for field in fields(getattr(transformers, backbone))}
    own = {field.name for field in fields(getattr(hf_memaug, config))} - inherited
    hidden = {"run_facts", "output_router_logits"}
    assert not [name for name in own - hidden if f"`{name}`" not in text_of(f"docs/{page}.md")]


def test_defaults_of_the_memory_rnn():
    from hf_memaug import MemoryRNNConfig

    config = MemoryRNNConfig()
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| `?([^|`]+)`? \| ", text_of("docs/memory_rnn.md"), re.MULTILINE)
    for names, default in rows:
        expected = getattr(config, default, default.strip('"'))  # some have the value of another field
        for name in re.findall(r"\w+", names):
            assert str(getattr(config, name)) == str(expected), name


def test_strategies_and_their_options():
    from hf_memaug.evaluation import DEFINITIONS
    from hf_memaug.training import STRATEGIES

    def rows(heading: str) -> list[list[str]]:
        (table,) = re.findall(
            rf"^\| {heading} \|.*\n\|[-|]+\n((?:\|.*\n)+)", text_of("docs/continual.md"), re.MULTILINE
        )
        return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]

    said = {name: options for names, _, options in rows("`strategy`") for name in re.findall(r'`"(.+?)"`', names)}
    assert set(said) == set(STRATEGIES)
    for name, options in said.items():
        if "of both" not in options:
            found = dict(re.findall(r'`(\w+)` (?:λ )?"?([\w.]+)"?', options))
            defaults = {
                key: f"{v:g}" if isinstance(v, float) else str(v) for key, v in STRATEGIES[name].options.items()
            }
            assert found == defaults, name
    assert [re.findall(r"`(\w+)`", cells[0])[0] for cells in rows("figure")] == list(DEFINITIONS)


def test_drawn_hyperparameters_and_selections():
    from hf_memaug.evaluation.domain_selection import SELECTIONS
    from hf_memaug.runs.hyperparameters import OWN

    guide = text_of("docs/bench.md")
    for algorithm, ranges in OWN.items():
        (row,) = [
            line for line in guide.splitlines() if line.startswith("|") and f"`{algorithm}`" in line.split("|")[1]
        ]
        assert all(f"`{name}`" in row for name in ranges)
    assert all(f"| `{name}` |" in guide for name in SELECTIONS)
