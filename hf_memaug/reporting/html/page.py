# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The page around the sections: one file that asks for nothing else, online or off."""

from collections.abc import Sequence
from importlib.resources import files

from hf_memaug import __version__
from hf_memaug.reporting.html.history import (
    continual_section,
    curves_section,
    data_section,
    reproduce_section,
    status,
    summary_facts,
)
from hf_memaug.reporting.html.insides import distance_section, experts_section, features_section, memory_section
from hf_memaug.reporting.html.markup import Html, Section, joined, json_script, paragraph, tag
from hf_memaug.reporting.html.scores import comparison_section, cost_section, domains_section
from hf_memaug.runs.results import FinishedRun

# The browser itself refuses whatever is not in the file.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def sections(run: FinishedRun, baseline: str | None = None) -> list[Section]:
    """All that a report can have, in its order; those that this run has nothing for have no body."""
    return [
        comparison_section(run, baseline),
        domains_section(run, baseline),
        continual_section(run),
        curves_section(run),
        features_section(run),
        distance_section(run),
        memory_section(run),
        experts_section(run),
        cost_section(run, baseline),
        data_section(run),
        reproduce_section(run),
    ]


def page(run: FinishedRun, found: Sequence[Section]) -> str:
    shown = [one for one in found if one.body is not None]
    missing = [one.missing for one in found if one.body is None and one.missing]
    title = f"{run.path.resolve().name}: report"
    links = [tag("li", tag("a", one.title, href=f"#{one.key}")) for one in shown]
    main = [
        tag(
            "section",
            tag("h2", one.title, id=f"{one.key}-title"),
            one.body,
            id=one.key,
            aria_labelledby=f"{one.key}-title",
        )
        for one in shown
    ]
    asides = [
        _list("left-out", "What this report does not show", missing),
        _list("notes", "What was left aside", run.notes),
    ]
    data = {one.key: one.data for one in shown if one.data is not None}
    top = tag(
        "header", tag("p", "hf_memaug report", class_="kicker"), tag("h1", run.path.resolve().name), summary_facts(run)
    )
    body = [
        tag("a", "To the content", href="#content", class_="skip"),
        top,
        tag("nav", tag("ul", links), aria_label="Sections"),
        tag("main", status(run), main, asides, id="content"),
        tag("footer", paragraph(f"Written by hf_memaug {__version__}.")),
        tag("div", id="tip", role="status", hidden=True),
        json_script("page-data", data),
        tag("script", Html(_resource("report.js"))),
    ]
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Html(_resource("report.css"))),
    ]
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', body), lang='en')}\n"


def _list(key: str, title: str, sentences: Sequence[str]) -> Html | None:
    if not sentences:
        return None
    return joined([tag("aside", tag("h2", title), tag("ul", [tag("li", one) for one in sentences]), id=key)])


def _resource(name: str) -> str:
    return (files("hf_memaug.reporting.html") / name).read_text(encoding="utf-8")
