# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The page itself, in Gradio. Nothing is computed here: `answers` does that, and `looks` writes it down."""

import os
from typing import Any

from hf_memaug.app import looks
from hf_memaug.app.answers import Served, answer, load_served
from hf_memaug.app.checkpoints import Checkpoint
from hf_memaug.app.errors import NotServed

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
    Serves a checkpoint of the library in the browser, on this machine, until it is stopped.

    Args:
        checkpoint (`str`):
            A folder or a repository of the hub.
        port (`int`, *optional*):
            The port. Left out, the first free one from 7860 on.
        share (`bool`, *optional*, defaults to `False`):
            Whether Gradio makes a public address for it, which sends what is typed over its servers.
        baseline (`str`, *optional*):
            A checkpoint of the plain model, whose answer is shown beside. Left out, the same model with its memory
            switched off, where the family can.
        kwargs (*optional*):
            Further arguments of Gradio's `launch`.
    """
    gradio = _gradio()
    try:
        served = load_served(checkpoint, baseline)
    except NotServed as error:
        # On a Space there is nobody at the terminal: the page says it.
        if "SPACE_ID" not in os.environ:
            raise
        served = str(error)
    page = build_page(served)
    fonts = ["system-ui", "-apple-system", "Segoe UI", "sans-serif"]
    # The system's fonts: those of the themes come from elsewhere.
    theme = gradio.themes.Default(primary_hue="blue", font=fonts, font_mono=["ui-monospace", "Consolas", "monospace"])
    options = {"theme": theme, "css": looks.CSS, "ssr_mode": False, "footer_links": [], "run_history": False}
    return page.launch(server_port=port, share=share, **{**options, **kwargs})


def build_page(served: Served | str):
    """The page as Gradio's `Blocks`; of words instead of a model, a page that says them."""
    gradio = _gradio()
    if isinstance(served, str):
        with gradio.Blocks(title="hf_memaug", analytics_enabled=False) as page:
            gradio.HTML(looks.message(served), padding=False)
        return page
    checkpoint = served.checkpoint
    is_image = checkpoint.modality == "image"

    def ask(*given) -> str:
        question = {"image": given[0]} if is_image else dict(zip(("text", "pair"), given, strict=False))
        try:
            return looks.answered(answer(served, **question))
        except NotServed as error:
            return looks.message(str(error))

    with gradio.Blocks(title=f"{checkpoint.title} · hf_memaug", analytics_enabled=False) as page:
        gradio.HTML(looks.header(served), padding=False)
        with gradio.Row():
            with gradio.Column(scale=1, min_width=300):
                inputs = _fields(gradio, checkpoint)
                button = gradio.Button("Ask", variant="primary")
                examples = _examples(served)
                if examples:
                    gradio.Examples(examples, inputs[:1], label="Texts that lie beside the checkpoint")
            with gradio.Column(scale=2, min_width=300):
                shown = gradio.HTML(looks.waiting(checkpoint), elem_id="answer", padding=False)
        events = [button.click, *(one.submit for one in inputs if not is_image)]
        if is_image:
            events.append(inputs[0].upload)
        for event in events:
            # One question at a time: the model is asked twice, and once without its memory.
            event(ask, inputs, shown, concurrency_limit=1, concurrency_id="model", api_visibility="private")
    return page


def _fields(gradio, checkpoint: Checkpoint) -> list:
    """What is asked for: a picture, a molecule, a question with its context, or one text or two."""
    if checkpoint.modality == "image":
        return [gradio.Image(type="filepath", label="Picture", sources=["upload", "clipboard"], height=300)]
    if checkpoint.modality == "graph":
        return [gradio.Textbox(label="Molecule, as SMILES", max_lines=4, placeholder="CC(=O)Oc1ccccc1C(=O)O")]
    if checkpoint.task == "questions":
        question = gradio.Textbox(label="Question", max_lines=4, placeholder="Type a question")
        hint = "Paste the text that holds the answer"
        return [question, gradio.Textbox(label="Context", lines=8, max_lines=20, placeholder=hint)]
    hint = "Type or paste a text"
    if checkpoint.task == "words":
        hint += f", with {checkpoint.processor.mask_token} in the place of a word"
    fields = [gradio.Textbox(label="Text", lines=5, max_lines=14, placeholder=hint)]
    if checkpoint.pairs != "none":
        needed = checkpoint.pairs == "needed"
        label = "Second text" if needed else "Second text (leave empty if there is none)"
        fields.append(gradio.Textbox(label=label, lines=3 if needed else 1, max_lines=14))
    return fields


def _examples(served: Served) -> list[list[str]]:
    """Short texts of the rows beside the checkpoint, of different domains; of models of pairs and of masks none."""
    checkpoint = served.checkpoint
    if checkpoint.modality == "image" or checkpoint.pairs == "needed" or checkpoint.task == "words":
        return []
    found: dict[str, str] = {}
    for row, text in enumerate(checkpoint.beside.texts):
        domain = checkpoint.beside.domains[row] if checkpoint.beside.domains else str(row)
        if text.strip() and len(text) <= _LONGEST_EXAMPLE and "\n" not in text:
            found.setdefault(domain, text)
    return [[text] for text in list(found.values())[:_MOST_EXAMPLES]]


def _gradio():
    # Before the import: Gradio would count its starts and look for newer versions.
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        import gradio
    except ImportError as error:
        raise ImportError(_INSTALL) from error
    return gradio
