# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
Writes docs/results/benchmarks/README.md from the JSON files beside it.

    python benchmarks/table.py
"""

import json
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "results" / "benchmarks"


def section(result: dict) -> str:
    lines = [
        f"## {result['name']}, {result['device']}",
        "",
        f"{result['setting']}. {result['date']}, torch {result['versions']['torch']}, transformers "
        f"{result['versions']['transformers']}. Raw figures: [{result['file']}]({result['file']}).",
        "",
        "| what | ours | against | ratio of the fastest | median ratio |",
        "|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        against, ratio = (row["against"], f"{row['ratio']:.3f}") if row["against"] else ("", "")
        median = f"{row['median_ratio']:.3f}" if "median_ratio" in row else ""
        lines.append(f"| `{row['what']}` | {row['value']:.3f} {row['unit']} | {against} | {ratio} | {median} |")
    command = result["command"]
    if (ROOT / command.split()[1]).is_file():
        lines += ["", f"```bash\n{command}\n```"]
    else:
        lines += ["", f"Measured at commit `fa4f6d7` with `{command}`. The script was removed since."]
    return "\n".join(lines)


def main() -> None:
    head = """# Speed and memory

Each ratio is ours over theirs, measured in turns in one process. Lower is better. Regenerate this page with
`python benchmarks/table.py`.

Eager ratios vary by several per cent between runs. Rows under CUDA graphs (`..._graphs`, `..._compiled`) vary least.
`..._kernels` is the time of the GPU alone, without waiting for the host. All results but kernels_h200.json were made
with the scripts of commit fa4f6d7 or earlier ones. Files called `..._slow_host`, `..._fused` and `..._tangents` contain
kernels that version 0.2.0 no longer has.

## What each kernel buys

A kernel stays if it saves at least 10 % of a training or inference step on an H200. Ratios of a step's time, from
[kernels_h200.json](kernels_h200.json):

| kernel | against | training | inference |
|---|---|---|---|
| `"grouped_experts"` of GMoE, the default | `"eager"`: one expert after the other | 0.58 | 0.87 |
| the same, compiled | `"grouped_mm"` of transformers, compiled | 0.55 | 0.95 |
| CUDA graphs of GMoE (`cuda_graphs=True`) | grouped experts, compiled | 0.72 | 0.82 |
| CUDA graphs of the memory RNN, 500 slots | compiled | 0.20 | 0.32 |

Deleted in 0.2.0: Triton kernels around GMoE's experts and router (0.94 and 0.91 of grouped experts, both as CUDA
graphs), Triton kernels of the memory RNN (0.99, also as CUDA graphs), and HMA's fused reader (0.91 of its own
operations, with twice the memory). Without CUDA graphs, GMoE and the memory RNN take longer per step than in 0.1.0: set
`cuda_graphs=True`."""
    # Results of benchmarks that were deleted stay as files.
    results = [
        json.loads(file.read_text(encoding="utf-8")) | {"file": file.name} for file in sorted(FOLDER.glob("*.json"))
    ]
    sections = [section(result) for result in results if (ROOT / result["command"].split()[1]).exists()]
    (FOLDER / "README.md").write_text("\n\n".join([head, *sections]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
