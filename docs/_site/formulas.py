# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Formulas in LaTeX, as GitHub reads them, become MathML when the site is built: no script, no server."""

import html
import re
from xml.etree import ElementTree

from latex2mathml.converter import convert
from markdown import Extension
from markdown.inlinepatterns import InlineProcessor

_TAG = re.compile(r"\\tag\{(.*?)\}")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{align\*?\}")


def fence(source: str, language: str, css_class: str, options: dict, md, **kwargs) -> str:
    """A ```math block. The lines of an `align` stand below each other, aligned at `&`, each with its `\\tag`."""
    lines = [line.strip() for line in _ENVIRONMENT.sub("", source).split(r"\\")]
    return f'<div class="formulas">{"".join(_row(line) for line in lines if line)}</div>'


def _row(line: str) -> str:
    tags = _TAG.findall(line)
    left, _, right = _TAG.sub("", line).partition("&")
    if not right:
        left, right = "", left
    # An operator that begins a cell, as the = after &, keeps its space only with something before it.
    cells = (mathml(left) if left.strip() else "", mathml("{}" + right))
    number = f"({html.escape(tags[0])})" if tags else ""
    return f'<div class="left">{cells[0]}</div><div class="right">{cells[1]}</div><div class="number">{number}</div>'


def mathml(latex: str) -> str:
    """Displayed as a formula of its own, wherever it stands."""
    return convert(latex.strip(), display="block").replace('display="block"', 'display="inline" displaystyle="true"')


class _Inline(InlineProcessor):
    def handleMatch(self, match, data):
        element = ElementTree.fromstring(convert(match[1]))
        for part in element.iter():
            part.tag = part.tag.rpartition("}")[2]
        return element, match.start(0), match.end(0)


class InlineFormulas(Extension):
    """`$x$`, with no space inside the dollars."""

    def extendMarkdown(self, md):
        # Above emphasis and escapes, whose signs formulas have too, and below code.
        md.inlinePatterns.register(_Inline(r"(?<![\\$\w])\$(?![\s$])([^$\n]+?)(?<!\s)\$(?![\w$])"), "formula", 185)
