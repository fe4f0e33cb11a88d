# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The JSON of a benchmark, in the form that docs/results/benchmarks keeps."""

import json
import sys
from datetime import date
from pathlib import Path


def write_result(name: str, device: str, setting: str, rows: list[dict], output: str | None) -> None:
    """Writes `rows` and what they were measured on to `output`, if there is one."""
    import torch
    import transformers

    import hf_memaug

    result = {
        "name": name,
        "command": "python " + " ".join([f"benchmarks/{name}.py", *sys.argv[1:]]),
        "device": device,
        "setting": setting,
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "hf_memaug": hf_memaug.__version__,
            "python": sys.version.split()[0],
        },
        "date": date.today().isoformat(),
        "rows": rows,
    }
    if output:
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        Path(output).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        print(f"wrote {output}")
