# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
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
`..._kernels` is the time of the GPU alone, without waiting for the host. All results but kernels_h200.json and
versions_h200.json were made with the scripts of commit fa4f6d7 or earlier ones. Files called `..._slow_host`,
`..._fused` and `..._tangents` contain kernels that version 0.2.0 no longer has.

## What each kernel buys

A kernel stays if it saves at least 10 % of a training or inference step on an H200. Ratios of a step's time, from
[kernels_h200.json](kernels_h200.json):

| kernel | against | training | inference |
|---|---|---|---|
| `"grouped_experts"` of GMoE, the default | `"eager"`: one expert after the other | 0.58 | 0.87 |
| the same, compiled | `"grouped_mm"` of transformers, compiled | 0.55 | 0.95 |
| CUDA graphs of GMoE (`cuda_graphs=True`) | grouped experts, compiled | 0.72 | 0.82 |
| CUDA graphs of the memory RNN, 500 slots | compiled | 0.20 | 0.32 |

Deleted in 0.2.0: Triton kernels around GMoE's experts and router, Triton kernels of the memory RNN, and HMA's fused
reader (0.91 of its own operations, with twice the memory).

## Version 0.2.0 against 0.1.0

Steps of the key-value memory, G-MAP and HMA take the same time, within 1 %, and so do GMoE's with the same experts.
These take longer, because their Triton kernels were deleted ([versions_h200.json](versions_h200.json)):

| step | 0.2.0 over 0.1.0, training | inference |
|---|---|---|
| GMoE, as a CUDA graph | 1.07 | 1.09 |
| memory RNN, as a CUDA graph: Inductor makes its kernels | 1.19 | 1.04 |
| memory RNN, without a CUDA graph | 1.69 | 1.29 |

The Triton kernels of the memory RNN were 430 lines. kernels_h200.json gave 0.99 for them, which this run does not
confirm. On a GPU, train GMoE and the memory RNN with `cuda_graphs=True`."""
    # Results of benchmarks that were deleted stay as files.
    results = [
        json.loads(file.read_text(encoding="utf-8")) | {"file": file.name} for file in sorted(FOLDER.glob("*.json"))
    ]
    sections = [section(result) for result in results if (ROOT / result["command"].split()[1]).exists()]
    (FOLDER / "README.md").write_text("\n\n".join([head, *sections]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
