# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The page itself, in Gradio: fields for an input, and the answer as HTML."""

import os
from contextlib import nullcontext
from typing import Any

from hf_memaug.app import html
from hf_memaug.app.session import Session, ask, load_session, question
from hf_memaug.app.teaching import Teaching, pasted_rows, table_rows, teachable
from hf_memaug.inference.predictions import InferenceError
from hf_memaug.inference.predictor import Predictor

_MOST_EXAMPLES, _LONGEST_EXAMPLE = 4, 300


def launch(
    checkpoint: str | os.PathLike,
    port: int | None = None,
    share: bool = False,
    baseline: str | os.PathLike | None = None,
    **kwargs: Any,
):
    """
    Serves a checkpoint in the browser, on this machine, until it is stopped.

    Args:
        checkpoint: a folder or a repository of the hub.
        port (*optional*): default: the first free one from 7860 on.
        share: whether Gradio makes a public address for it. What users type then goes through Gradio's servers.
        baseline (*optional*): a checkpoint of a plain model, whose prediction is shown beside. Default: the same model
            with its memory switched off, where that is possible.
        kwargs (*optional*): further arguments of Gradio's `launch`.
    """
    gradio = _gradio()
    page = build_page(load_session(checkpoint, baseline))
    fonts = ["system-ui", "-apple-system", "Segoe UI", "sans-serif"]
    # The fonts of Gradio's themes are loaded from another server.
    theme = gradio.themes.Default(primary_hue="blue", font=fonts, font_mono=["ui-monospace", "Consolas", "monospace"])
    options = {"theme": theme, "css": html.CSS, "ssr_mode": False, "footer_links": [], "run_history": False}
    return page.launch(server_port=port, share=share, **{**options, **kwargs})


def build_page(session: Session):
    """The page as Gradio's `Blocks`."""
    gradio, predictor = _gradio(), session.predictor

    def answer(*given) -> str:
        try:
            return html.answer(ask(session, *given))
        except InferenceError as error:
            return html.message(str(error))

    start = teachable(predictor)
    options = {"concurrency_limit": 1, "concurrency_id": "model", "api_visibility": "private"}
    # Uploads and downloads are deleted after a day.
    with gradio.Blocks(
        title=f"{predictor.title} · hf_memaug", analytics_enabled=False, delete_cache=(3600, 86400)
    ) as page:
        gradio.HTML(html.header(session), padding=False)
        with gradio.Tab("Ask") if start else nullcontext(), gradio.Row():
            with gradio.Column(scale=1, min_width=300):
                inputs = _fields(gradio, predictor)
                button = gradio.Button("Ask", variant="primary")
                examples = _examples(session)
                if examples:
                    gradio.Examples(examples, inputs[:1], label="Example texts")
            with gradio.Column(scale=2, min_width=300):
                shown = gradio.HTML(html.waiting(session), elem_id="answer", padding=False)
        gradio.on(_asking(inputs, button), answer, inputs, shown, **options)
        if start:
            with gradio.Tab("Teach"):
                _teach(gradio, session, start, options)
    return page


def _asking(inputs: list, button) -> list:
    """The events on which the model is asked."""
    is_image = not hasattr(inputs[0], "submit")
    return [button.click, *([inputs[0].upload] if is_image else [one.submit for one in inputs])]


def _teach(gradio, session: Session, start: Predictor, options: dict[str, Any]) -> None:
    """The fields and the answers of the Teach tab."""
    is_image = start.kind == "image"
    mine = gradio.State(lambda: Teaching(start))
    kinds = [".csv", ".tsv", ".jsonl"]
    with gradio.Row():
        with gradio.Column(scale=1, min_width=300):
            gradio.HTML(html.teaching_help(), padding=False)
            inputs = _fields(gradio, start)
            ask_button = gradio.Button("Ask", variant="primary")
            label = gradio.Dropdown(start.labels, value=None, label="Right class")
            new = gradio.Textbox(label="Or the name of a new class", max_lines=1)
            domain = gradio.Textbox("taught", label="Domain", info="A name for rows of this kind", max_lines=1)
            teach_button = gradio.Button("Teach", variant="primary")
            with gradio.Accordion("Teach several rows", open=False):
                if is_image:
                    title = "Pictures of the class chosen above"
                    several = [gradio.File(label=title, file_count="multiple", file_types=["image"], height=160)]
                else:
                    hint = "On each line a text, a tab, and its class, as copied from a spreadsheet"
                    protect = "Rows to protect, together with these"
                    several = [
                        gradio.Textbox(label="Rows", lines=4, max_lines=12, info=hint),
                        gradio.File(label="Or a CSV with the columns text and label", file_types=kinds, height=160),
                        gradio.File(label=protect, file_types=kinds, height=160),
                        gradio.Checkbox(label="New classes", info="Accept classes that the model does not have"),
                    ]
                several_button = gradio.Button("Teach these rows")
        with gradio.Column(scale=2, min_width=300):
            shown = gradio.HTML(html.waiting(session), elem_id="taught-answer", padding=False)
            listed = gradio.HTML(html.taught(Teaching(start)), elem_id="taught", padding=False, js_on_load=html.ERASE)
            with gradio.Row():
                erase_all = gradio.Button("Erase all rows")
                download_button = gradio.Button("Download the checkpoint")
            info = "Without them, the checkpoint has only their features"
            with_texts = gradio.Checkbox(label="Put the taught texts into the download", info=info)
            file = gradio.File(label="Checkpoint", interactive=False, visible=False)

    def update(mine, fields, change=None):
        """Makes a change, and answers again."""
        try:
            if change is not None:
                change()
            if change is not None and not fields[0]:
                shown, first = html.waiting(session), None
            else:
                found = mine.answer(question(start, *fields))
                shown, first = html.answer(found), found.explanation.prediction.scores[0][0]
        except InferenceError as error:
            return html.message(str(error)), html.taught(mine), gradio.skip(), gradio.skip()
        return shown, html.taught(mine), gradio.Dropdown(mine.predictor.labels, value=first), ""

    def teach(mine, label, new, domain, *fields):
        return update(mine, fields, lambda: mine.teach([question(start, *fields)], label, domain, new))

    def teach_pictures(mine, label, new, domain, pictures, *fields):
        return update(mine, fields, lambda: mine.teach(pictures or [], label, domain, new))

    def teach_rows(mine, domain, lines, table, protected, is_new, *fields):
        def change():
            rows = pasted_rows(lines) + (table_rows(table) if table else [])
            mine.teach_rows(rows, domain, table_rows(protected) if protected else None, is_new)

        return update(mine, fields, change)

    def erase_one(mine, event: gradio.EventData, *fields):
        return update(mine, fields, lambda: mine.erase([str(event.row)]))

    outputs, choices = [shown, listed, label, new], [label, new, domain]
    ask_events = _asking(inputs, ask_button)
    gradio.on(ask_events, lambda mine, *fields: update(mine, fields), [mine, *inputs], outputs, **options)
    teach_button.click(teach, [mine, *choices, *inputs], outputs, **options)
    if is_image:
        several_button.click(teach_pictures, [mine, *choices, *several, *inputs], outputs, **options)
    else:
        several_button.click(teach_rows, [mine, domain, *several, *inputs], outputs, **options)
    listed.click(erase_one, [mine, *inputs], outputs, **options)
    erase_all.click(lambda mine, *fields: update(mine, fields, mine.erase), [mine, *inputs], outputs, **options)
    download_button.click(
        lambda mine, with_texts: gradio.File(mine.download(with_texts), visible=True),
        [mine, with_texts],
        file,
        **options,
    )


def _fields(gradio, predictor: Predictor) -> list:
    if predictor.kind == "image":
        return [gradio.Image(type="filepath", label="Picture", sources=["upload", "clipboard"], height=300)]
    if predictor.kind == "graph":
        return [gradio.Textbox(label="Molecule, as SMILES", max_lines=4, placeholder="CC(=O)Oc1ccccc1C(=O)O")]
    if predictor.kind == "questions":
        question = gradio.Textbox(label="Question", max_lines=4, placeholder="Type a question")
        hint = "Paste the text that holds the answer"
        return [question, gradio.Textbox(label="Context", lines=8, max_lines=20, placeholder=hint)]
    hint = "Type or paste a text"
    if predictor.kind == "words":
        hint += f", with {predictor.processor.mask_token} in the place of a word"
    fields = [gradio.Textbox(label="Text", lines=5, max_lines=14, placeholder=hint)]
    if predictor.pairs != "none":
        needed = predictor.pairs == "needed"
        label = "Second text" if needed else "Second text (optional)"
        fields.append(gradio.Textbox(label=label, lines=3 if needed else 1, max_lines=14))
    return fields


def _examples(session: Session) -> list[list[str]]:
    """Short texts of the rows beside the checkpoint, of different domains."""
    predictor, rows = session.predictor, session.rows
    if predictor.kind in ("image", "words") or predictor.pairs == "needed":
        return []
    found: dict[str, str] = {}
    for row, text in enumerate(rows.texts):
        domain = rows.domains[row] if rows.domains else str(row)
        if text.strip() and len(text) <= _LONGEST_EXAMPLE and "\n" not in text:
            found.setdefault(domain, text)
    return [[text] for text in list(found.values())[:_MOST_EXAMPLES]]


def _gradio():
    # Before the import: Gradio would send usage statistics and look for newer versions.
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        import gradio
    except ImportError as error:
        raise ImportError("The app needs Gradio: `pip install hf_memaug[app]`.") from error
    return gradio
