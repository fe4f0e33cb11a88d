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


def section(file: Path) -> str:
    result = json.loads(file.read_text(encoding="utf-8"))
    lines = [
        f"## {result['name']}, {result['device']}",
        "",
        f"{result['setting']}. {result['date']}, torch {result['versions']['torch']}, transformers "
        f"{result['versions']['transformers']}. Raw figures: [{file.name}]({file.name}).",
        "",
        "| what | ours | against | ratio of the fastest | median ratio |",
        "|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        # A rate by itself is against nothing.
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
    head = (
        "# What the memory costs\n\n"
        "Each ratio is ours over theirs, in one run. Made by `python benchmarks/table.py`.\n\n"
        "Read eager ratios with care: runs of the same code differed by several per cent, more than the memory "
        "costs. The rows with CUDA graphs (`..._compiled`) vary least. The H200 file of the key-value memory was "
        "measured before inference was given three times the rounds of training, so its command now takes more "
        "measurements than the file shows. `..._kernels` is the time of what ran on the GPU, without the waiting for "
        "its host."
    )
    sections = [section(file) for file in sorted(FOLDER.glob("*.json"))]
    (FOLDER / "README.md").write_text("\n\n".join([head, *sections]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
