# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-memaug push`, `pull`, `report` and `app`: what others get to see."""

import json
import tempfile
from pathlib import Path

from hf_memaug.runs.errors import CommandError, UsageError


def report(call) -> int:
    folder = Path(call.arguments["run"])
    if not (folder / "run.json").is_file():
        raise UsageError(f"`run` {folder} is no run folder: it has no run.json. Give the `--output` of a command.")
    from hf_memaug.reporting.html_report import write_report

    print(write_report(folder, output=call.options.output))
    return 0


def app(call) -> int:
    options = call.options
    try:
        from hf_memaug.app import launch

        # What it stands on may be imported as late as here.
        launch(call.arguments["checkpoint"], port=options.port, share=options.share, baseline=options.baseline)
    except ImportError as error:
        raise CommandError(f"The app cannot be served: {error}. `pip install 'hf_memaug[app]'`.") from None
    return 0


def push(call) -> int:
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    checkpoint, repository = Path(call.arguments["checkpoint"]), call.arguments["repository"]
    is_adapter = (checkpoint / "adapter_config.json").is_file()
    if is_adapter and not call.options.space:
        raise UsageError(
            f"`checkpoint` {checkpoint} holds an adapter, which PEFT publishes: `model.push_to_hub`. A Space "
            "that serves it is made by `--space`."
        )
    if not is_adapter and not (checkpoint / "config.json").is_file():
        raise UsageError(f"`checkpoint` {checkpoint} has no config.json: give the folder of a checkpoint.")
    try:
        url = _push_space(call, checkpoint) if call.options.space else _push_model(call, checkpoint)
    except (HfHubHTTPError, OfflineModeIsEnabled, ConnectionError) as error:
        raise CommandError(f"{repository} could not be pushed: {str(error).splitlines()[0]}") from None
    print(url)
    return 0


def _push_model(call, checkpoint: Path) -> str:
    from huggingface_hub import HfApi
    from transformers import AutoConfig

    import hf_memaug  # noqa: F401  (registers the families)
    from hf_memaug.registry import FAMILIES

    options, repository = call.options, call.arguments["repository"]
    is_ours = AutoConfig.from_pretrained(checkpoint).model_type in FAMILIES
    api = HfApi()
    api.create_repo(repository, private=options.private or None, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source = checkpoint
        if is_ours and (options.with_code or not (checkpoint / "README.md").is_file()):
            source = _prepared(checkpoint, Path(folder) / repository.split("/")[-1], repository, options.with_code)
        elif options.with_code:
            raise UsageError("`--with-code` is for models of hf_memaug; this one is of transformers: leave it out.")
        api.upload_folder(
            repo_id=repository,
            folder_path=source,
            commit_message=options.message or "Upload with hf-memaug",
            ignore_patterns=["_stages/*", "checkpoint-*/*", "*.bin", "*.pt"],
        )
    return f"{api.endpoint}/{repository}"


def _prepared(checkpoint: Path, folder: Path, repository: str, with_code: bool) -> Path:
    """The checkpoint with its processor and its card, and with its code if that is wanted."""
    from hf_memaug.hub import complete_folder, export_with_code
    from hf_memaug.inference import load_predictor

    loaded = load_predictor(checkpoint, dtype="auto", device="cpu")
    model, processor = loaded.model, loaded.processor
    if with_code:
        return export_with_code(model, folder, processor)
    model.save_pretrained(folder)
    if processor is not None:
        processor.save_pretrained(folder)
    complete_folder(model, folder, repository)
    return folder


def _push_space(call, checkpoint: Path) -> str:
    try:
        from hf_memaug.app import write_space
    except ImportError as error:
        raise CommandError(f"The Space cannot be written: {error}. `pip install 'hf_memaug[app]'`.") from None
    from huggingface_hub import HfApi

    options, repository = call.options, call.arguments["repository"]
    api = HfApi()
    with tempfile.TemporaryDirectory() as folder:
        write_space(str(checkpoint), folder)
        api.create_repo(
            repository, repo_type="space", space_sdk="gradio", private=options.private or None, exist_ok=True
        )
        message = options.message or "Upload with hf-memaug"
        api.upload_folder(repo_id=repository, repo_type="space", folder_path=folder, commit_message=message)
    return f"{api.endpoint}/spaces/{repository}"


def pull(call) -> int:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    repository = call.arguments["repository"]
    folder = Path(call.arguments["folder"] or repository.split("/")[-1])
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"`folder` {folder} is not empty: name another, or empty it.")
    try:
        snapshot_download(repository, revision=call.options.revision, local_dir=folder)
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, ConnectionError, ValueError) as error:
        raise CommandError(f"{repository} could not be pulled: {str(error).splitlines()[0]}") from None
    config = (
        json.loads((folder / "config.json").read_text(encoding="utf-8")) if (folder / "config.json").is_file() else {}
    )
    facts = config.get("run_facts") or {}
    print(f"{folder}: {', '.join(config.get('architectures') or ['no model'])}")
    if facts.get("method"):
        left_out = f", {facts['left_out']} left out" if facts.get("left_out") else ""
        print(f"trained as {facts['method']} on {facts.get('data')}: {', '.join(facts.get('domains') or [])}{left_out}")
    return 0
