# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What MkDocs is told beside mkdocs.yml: formulas, the pages of the reference, and the sources that pages link to."""

import os
import posixpath
import re
import sys
from pathlib import Path

from mkdocs.structure.files import File, InclusionLevel

sys.path.insert(0, os.path.dirname(__file__))

import formulas
import reference

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")
_TYPE = re.compile(r"(\(<code>)([^<\n]*[`*][^<\n]*)(</code>)")
_LANGUAGES = {".py": "python", ".yml": "yaml", ".yaml": "yaml", ".sh": "bash", ".txt": "text"}


def on_config(config):
    config.markdown_extensions.append(formulas.InlineFormulas())
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {}).setdefault("custom_fences", [])
    fences.append({"name": "math", "class": "math", "format": formulas.fence})
    config.nav.append({"Reference": [page.path for page in reference.pages()]})
    config.watch.append(str(ROOT / "hf_memaug"))
    return config


def on_files(files, config):
    for page in reference.pages():
        files.append(File.generated(config, page.path, content=page.content))
    files.append(File.generated(config, "changelog.md", content=_changelog()))
    linked = {target for file in files.documentation_pages() for target in _outside(file)}
    for target in sorted(linked):
        content = _source_page(target)
        files.append(File.generated(config, _page_of(target), content=content, inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links to files of the repository lead to a page that shows them."""

    def link(match):
        target = _target(page.file.src_uri, match[2])
        if target is None:
            return match[0]
        path = posixpath.relpath(_page_of(target), posixpath.dirname(page.file.src_uri) or ".")
        return f"{match[1]}{path}{match[4]}"

    return _LINK.sub(link, markdown)


def on_page_content(html, page, config, files):
    """Types and names are written as transformers writes them, (`int`, *optional*) and [`Name`]: not so here."""
    if not page.file.src_uri.startswith("reference/"):
        return html
    html = _TYPE.sub(lambda match: match[1] + re.sub(r"[`*]", "", match[2]) + match[3], html)
    return re.sub(r"\[(<code>\w+</code>)\]", r"\1", html)


def _changelog() -> str:
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](")


def _outside(file) -> set[str]:
    return {target for match in _LINK.finditer(file.content_string) if (target := _target(file.src_uri, match[2]))}


def _target(page: str, link: str) -> str | None:
    """The file of the repository outside of docs/ that a link leads to, from the root; None for other links."""
    if "://" in link:
        return None
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    return None if path.startswith(("docs/", "../")) or not (ROOT / path).is_file() else path


def _page_of(target: str) -> str:
    return f"source/{target}.md"


def _source_page(target: str) -> str:
    text = (ROOT / target).read_text(encoding="utf-8")
    language = _LANGUAGES.get(Path(target).suffix, "text")
    return f"---\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n# `{target}`\n\n~~~~{language}\n{text}\n~~~~\n"
