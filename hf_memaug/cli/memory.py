# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`hf-memaug write`, `erase` and `memory`: what a classifier was taught by writing rows."""

import json
import os
from pathlib import Path

from hf_memaug.inference import load_predictor
from hf_memaug.runs.errors import DataRefused, UsageError
from hf_memaug.runs.settings import in_options

COLUMNS = ("label", "domain", "guard", "append", "new_labels", "text_pair")


def write(call) -> int:
    options, name = call.options, call.arguments["checkpoint"]
    for option in ("data", "domain"):
        if getattr(options, option) is None:
            raise UsageError(f"`--{option}` is missing: the rows to write, and a name for their domain.")
    loaded = load_predictor(name, dtype="auto")
    is_new = not hasattr(loaded.model, "write")
    model = loaded.writable(general=options.general).model
    folder = Path(options.output or (name if os.path.isdir(name) and not is_new else f"{name.rstrip('/')}-written"))
    if is_new and folder.exists():
        raise UsageError(f"{folder} exists. Write to it, as in `hf-memaug write {folder} ...`, or choose `--output`.")
    if options.general is not None and not is_new:
        raise UsageError("`--general` is chosen when the first rows are written. Leave it out.")
    given = ("text", "text_pair", "label", "max_length", "append", "new_labels", "keep_text", "guard")
    try:
        entry = model.write(
            options.data, options.domain, loaded.processor, **{name: getattr(options, name) for name in given}
        )
    except (OSError, ValueError) as error:
        raise DataRefused(in_options(str(error), COLUMNS, rows="--data", source="--data")) from None
    model.save_pretrained(folder)
    loaded.processor.save_pretrained(folder)
    print(
        f"{folder}: {entry['rows']} rows of {entry['name']}. Accuracy on them, each left out in turn: "
        f"{entry['before']:.1f} before, {entry['after']:.1f} after."
    )
    return 0


def erase(call) -> int:
    options, loaded = call.options, _writable(call.arguments["checkpoint"])
    try:
        loaded.model.erase(options.domain, options.rows)
    except ValueError as error:
        raise UsageError(in_options(str(error), ("domain", "rows"))) from None
    folder = Path(options.output or loaded.name)
    loaded.model.save_pretrained(folder)
    loaded.processor.save_pretrained(folder)
    left = ", ".join(entry["name"] for entry in loaded.model.domains()) or "nothing"
    print(f"{folder}: erased. Left: {left}.")
    return 0


def memory(call) -> int:
    model = _writable(call.arguments["checkpoint"]).model
    found = model.audit() if call.options.audit else model.domains()
    if call.options.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return 0
    if not found:
        print("No row looks mislabelled." if call.options.audit else "Nothing was written.")
    elif call.options.audit:
        for row in found:
            said = f"labelled {row['label']}, looks like {row['suggestion']} ({row['probability']:.2f})"
            print(f"{row['id']}  {row['domain']}: {said}  {row['text'] or ''}")
    else:
        print(f"{'domain':24}{'rows':>8}  {'written (UTC)':21}{'before':>8}{'after':>8}")
        for entry in found:
            scores = f"{entry['before']:8.1f}{entry['after']:8.1f}"
            print(f"{entry['name']:24}{entry['rows']:8}  {entry['written']:21}{scores}")
        guards = int((~model.memory.written).sum())
        print(f"Accuracy on the written rows, each left out in turn. Guard rows: {guards}.")
    return 0


def _writable(name: str):
    loaded = load_predictor(name, dtype="auto")
    if not hasattr(loaded.model, "erase"):
        raise UsageError(f"`checkpoint` {name} has no writable memory. `hf-memaug write` adds one.")
    return loaded
