# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
The graphs of BACE's molecules, beside its SMILES, for a machine without rdkit: tasks.py reads them where they are.

    python examples/hma/pack_graphs.py ../shared/data/molecules FOLDER/data/molecules
"""

import argparse
import gzip
import json
from pathlib import Path

PARTS = ("train", "dev", "test")


def name_of(part: str) -> str:
    return f"bace.{part}.graphs.jsonl.gz"


def pack(source: Path, target: Path) -> None:
    from hf_memaug.data.molecules import load_molecules

    target.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        rows = load_molecules({"bace": source / f"bace.{part}.jsonl.gz"})
        with gzip.open(target / name_of(part), "wt", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps({"graph": row["graph"], "label": row["label"]}) + "\n")


def unpack(path: Path):
    """The rows of one part, as `load_molecules` gives them, but for their SMILES."""
    from hf_memaug import DomainDataset

    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    columns = {name: [row[name] for row in rows] for name in ("graph", "label")}
    return DomainDataset({**columns, "domain": ["bace"] * len(rows)}, ["0", "1"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the folder with bace.train.jsonl.gz and its siblings")
    parser.add_argument("target", type=Path, help="the folder to write to")
    options = parser.parse_args()
    pack(options.source, options.target)
