# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`hf-memaug push`, `pull`, `report` and `app`."""

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hf_memaug.files import is_disk_full
from hf_memaug.runs.errors import CommandError, UsageError
from hf_memaug.runs.settings import in_options


def report(call) -> int:
    from hf_memaug.reporting.html_report import write_report

    try:
        print(write_report(call.arguments["run"], output=call.options.output, baseline=call.options.baseline))
    except (FileNotFoundError, ValueError) as error:
        raise UsageError(in_options(str(error), ["baseline"], run_folder="run")) from None
    except OSError as error:
        if is_disk_full(error):
            raise
        why = error.strerror or error
        raise CommandError(f"The report cannot be written: {why}. Choose another file with `--output`.") from None
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
    from huggingface_hub import HfApi, ModelCard
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id
    from transformers.utils import logging

    from hf_memaug.app import write_space
    from hf_memaug.hub.publishing import published_files
    from hf_memaug.inference.checkpoints import kind_of, load_model, load_processor, read_config

    options, repository = call.options, call.arguments["repository"]
    checkpoint, api = Path(call.arguments["checkpoint"]), HfApi()
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise UsageError(f"`repository` {repository!r} is not a name on the hub: {error}") from None
    is_adapter = (checkpoint / "adapter_config.json").is_file()
    if is_adapter and not options.space:
        raise UsageError(f"`checkpoint` {checkpoint} is an adapter. Use PEFT's `push_to_hub`, or `--space`.")
    if not is_adapter and not (checkpoint / "config.json").is_file():
        raise UsageError(f"`checkpoint` {checkpoint} has no config.json. Use the folder of a checkpoint.")
    config = read_config(str(checkpoint))
    published, left_out = published_files(checkpoint)
    if not is_adapter and not any(path.suffix == ".safetensors" for path in published):
        raise UsageError(f"`checkpoint` {checkpoint} has no weights in safetensors files. Links are not published.")
    logging.disable_progress_bar()
    # What cannot be loaded is not published.
    model = processor = None
    if not is_adapter and config.architectures:
        model = load_model(str(checkpoint), config, dtype="auto")
    if any(path.name.startswith(("tokenizer", "preprocessor")) for path in published):
        processor = load_processor(str(checkpoint), kind_of(config) or "text")
    kind = {"repo_type": "space", "space_sdk": "gradio"} if options.space else {"repo_type": "model"}
    with tempfile.TemporaryDirectory() as folder:
        if options.space:
            source = write_space(str(checkpoint), Path(folder, repository.split("/")[-1]))
        else:
            source = _model(published, Path(folder), repository)
            if options.with_code:
                source = _with_code(model, processor, source, repository)
        if options.license:
            readme = source / "README.md"
            card = ModelCard.load(readme) if readme.exists() else ModelCard("")
            card.data.license = options.license
            card.save(readme)
        for path in sorted(path for path in source.rglob("*") if path.is_file()):
            print(f"{path.stat().st_size:>15,} bytes  {path.relative_to(source)}")
        if left_out:
            print(f"left out: {', '.join(path.name for path in left_out)}")
        try:
            api.create_repo(repository, private=options.private or None, exist_ok=True, **kind)
            api.upload_folder(
                repo_id=repository,
                repo_type=kind["repo_type"],
                folder_path=source,
                commit_message=options.message or "Upload with hf-memaug",
            )
        except Exception as error:  # of the HTTP client too, which huggingface_hub does not wrap
            said = str(error).strip().splitlines() or [type(error).__name__]
            raise CommandError(f"{repository} cannot be pushed: {said[0]}") from None
    print(f"{api.endpoint}/{'spaces/' * options.space}{repository}")
    return 0


def _model(published: Sequence[Path], folder: Path, repository: str) -> Path:
    """A folder with these files of a checkpoint, and its card."""
    from hf_memaug.hub.publishing import write_card
    from hf_memaug.inference.checkpoints import read_config
    from hf_memaug.registry import FAMILIES

    copy = folder / "copy"
    copy.mkdir()
    for path in published:
        shutil.copyfile(path, copy / path.name, follow_symlinks=False)
    config = read_config(str(copy))
    if config.architectures and (config.model_type in FAMILIES or getattr(config, "run_facts", None)):
        write_card(config, config.architectures[0], copy, repository)
    return copy


def _with_code(model, processor, copy: Path, repository: str) -> Path:
    """A folder with the same model and its code."""
    from hf_memaug.hub import export_with_code
    from hf_memaug.hub.publishing import write_card
    from hf_memaug.registry import FAMILIES

    if model is None or model.config.model_type not in FAMILIES:
        raise UsageError("`--with-code` is for models of hf_memaug, and this one is of transformers. Leave it out.")
    exported = copy.parent / "exported"
    export_with_code(model, exported, processor)
    shutil.copyfile(copy / "README.md", exported / "README.md")
    write_card(model.config, type(model).__name__, exported, repository)
    return exported


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
