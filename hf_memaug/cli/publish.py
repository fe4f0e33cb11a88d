# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-memaug push`, `pull`, `report` and `app`."""

import json
import tempfile
from pathlib import Path

from hf_memaug.runs.errors import CommandError, UsageError
from hf_memaug.runs.settings import in_options

# Files of training that a repository does not need.
NOT_PUSHED = ["_stages/*", "checkpoint-*/*", "*.bin", "*.pt"]


def report(call) -> int:
    from hf_memaug.reporting.html_report import write_report

    try:
        print(write_report(call.arguments["run"], output=call.options.output, baseline=call.options.baseline))
    except (FileNotFoundError, ValueError) as error:
        raise UsageError(in_options(str(error), ["baseline"], run_folder="run")) from None
    return 0


def app(call) -> int:
    options = call.options
    try:
        from hf_memaug.app import launch

        # It imports Gradio.
        launch(call.arguments["checkpoint"], port=options.port, share=options.share, baseline=options.baseline)
    except ImportError as error:
        raise CommandError(f"The app needs Gradio ({error}). Run `pip install 'hf_memaug[app]'`.") from None
    except OSError as error:
        raise CommandError(str(error)) from None
    return 0


def push(call) -> int:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    from hf_memaug.app import write_space

    options, repository = call.options, call.arguments["repository"]
    checkpoint, api = Path(call.arguments["checkpoint"]), HfApi()
    is_adapter = (checkpoint / "adapter_config.json").is_file()
    if is_adapter and not options.space:
        raise UsageError(f"`checkpoint` {checkpoint} is an adapter. Use PEFT's `push_to_hub`, or `--space`.")
    if not is_adapter and not (checkpoint / "config.json").is_file():
        raise UsageError(f"`checkpoint` {checkpoint} has no config.json. Use the folder of a checkpoint.")
    kind = {"repo_type": "space", "space_sdk": "gradio"} if options.space else {"repo_type": "model"}
    with tempfile.TemporaryDirectory() as folder:
        # The card takes its title from the name of the folder.
        prepared = Path(folder) / repository.split("/")[-1]
        if options.space:
            source = write_space(str(checkpoint), prepared)
        else:
            source = _model(checkpoint, prepared, repository, options.with_code)
        try:
            api.create_repo(repository, private=options.private or None, exist_ok=True, **kind)
            api.upload_folder(
                repo_id=repository,
                repo_type=kind["repo_type"],
                folder_path=source,
                commit_message=options.message or "Upload with hf-memaug",
                ignore_patterns=NOT_PUSHED,
            )
        except (HfHubHTTPError, OfflineModeIsEnabled, ConnectionError) as error:
            raise CommandError(f"{repository} cannot be pushed: {str(error).splitlines()[0]}") from None
    print(f"{api.endpoint}/{'spaces/' * options.space}{repository}")
    return 0


def _model(checkpoint: Path, folder: Path, repository: str, with_code: bool) -> Path:
    """The checkpoint itself if it is complete; otherwise a copy with its processor, card and code."""
    from hf_memaug.hub import complete_folder, export_with_code
    from hf_memaug.inference import load_predictor
    from hf_memaug.inference.checkpoints import read_config
    from hf_memaug.registry import FAMILIES

    is_ours = read_config(str(checkpoint)).model_type in FAMILIES
    if with_code and not is_ours:
        raise UsageError("`--with-code` is for models of hf_memaug, and this one is of transformers. Leave it out.")
    if not with_code and (not is_ours or (checkpoint / "README.md").is_file()):
        return checkpoint
    loaded = load_predictor(checkpoint, dtype="auto", device="cpu")
    if with_code:
        return export_with_code(loaded.model, folder, loaded.processor)
    loaded.model.save_pretrained(folder)
    if loaded.processor is not None:
        loaded.processor.save_pretrained(folder)
    complete_folder(loaded.model, folder, repository)
    return folder


def pull(call) -> int:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    repository = call.arguments["repository"]
    folder = Path(call.arguments["folder"] or repository.split("/")[-1])
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"`folder` {folder} is not empty. Choose another one.")
    try:
        snapshot_download(repository, revision=call.options.revision, local_dir=folder)
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, ConnectionError, ValueError) as error:
        raise CommandError(f"{repository} cannot be pulled: {str(error).splitlines()[0]}") from None
    file = folder / "config.json"
    config = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    facts = config.get("run_facts") or {}
    print(f"{folder}: {', '.join(config.get('architectures') or ['no model'])}")
    if facts.get("method"):
        left_out = f", without {facts['left_out']}" if facts.get("left_out") else ""
        print(f"trained as {facts['method']} on {facts.get('data')}: {', '.join(facts.get('domains') or [])}{left_out}")
    return 0
