# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The page itself, in Gradio: fields for an input, and the answer as HTML."""

import os
from typing import Any

from hf_memaug.app import html
from hf_memaug.app.session import Session, ask, load_session
from hf_memaug.inference.errors import InferenceError
from hf_memaug.inference.predictor import Predictor

_INSTALL = "The app needs Gradio: `pip install hf_memaug[app]`."
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
        checkpoint (`str`):
            A folder or a repository of the hub.
        port (`int`, *optional*):
            The port. Default: the first free one from 7860 on.
        share (`bool`, *optional*, defaults to `False`):
            Whether Gradio makes a public address for it. What users type then goes through Gradio's servers.
        baseline (`str`, *optional*):
            A checkpoint of a plain model, whose prediction is shown beside. Default: the same model with its memory
            switched off, where that is possible.
        kwargs (*optional*):
            Further arguments of Gradio's `launch`.
    """
    gradio = _gradio()
    try:
        session = load_session(checkpoint, baseline)
    except InferenceError as error:
        # On a Space, nobody reads the terminal.
        if "SPACE_ID" not in os.environ:
            raise
        session = str(error)
    page = build_page(session)
    fonts = ["system-ui", "-apple-system", "Segoe UI", "sans-serif"]
    # The fonts of Gradio's themes are loaded from another server.
    theme = gradio.themes.Default(primary_hue="blue", font=fonts, font_mono=["ui-monospace", "Consolas", "monospace"])
    options = {"theme": theme, "css": html.CSS, "ssr_mode": False, "footer_links": [], "run_history": False}
    return page.launch(server_port=port, share=share, **{**options, **kwargs})


def build_page(session: Session | str):
    """The page as Gradio's `Blocks`; with a message instead of a model, a page that shows it."""
    gradio = _gradio()
    if isinstance(session, str):
        with gradio.Blocks(title="hf_memaug", analytics_enabled=False) as page:
            gradio.HTML(html.message(session), padding=False)
        return page
    predictor = session.predictor
    is_image = predictor.kind == "image"

    def answer(*given) -> str:
        question = {"image": given[0]} if is_image else dict(zip(("text", "pair"), given, strict=False))
        try:
            return html.answer(ask(session, **question))
        except InferenceError as error:
            return html.message(str(error))

    with gradio.Blocks(title=f"{predictor.title} · hf_memaug", analytics_enabled=False) as page:
        gradio.HTML(html.header(session), padding=False)
        with gradio.Row():
            with gradio.Column(scale=1, min_width=300):
                inputs = _fields(gradio, predictor)
                button = gradio.Button("Ask", variant="primary")
                examples = _examples(session)
                if examples:
                    gradio.Examples(examples, inputs[:1], label="Texts that lie beside the checkpoint")
            with gradio.Column(scale=2, min_width=300):
                shown = gradio.HTML(html.waiting(session), elem_id="answer", padding=False)
        events = [button.click, *(one.submit for one in inputs if not is_image)]
        if is_image:
            events.append(inputs[0].upload)
        for event in events:
            event(answer, inputs, shown, concurrency_limit=1, concurrency_id="model", api_visibility="private")
    return page


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
        raise ImportError(_INSTALL) from error
    return gradio
