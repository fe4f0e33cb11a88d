# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
The encoders of the G-MAP tables, from one backbone, by masked language modelling (examples/gmap/pretrain.py):

- `general`: the backbone, trained on reviews, news and it_support. With `--keep-backbone`, the backbone as it is: if it
  comes without a masked-LM head, only that is trained;
- `dapt-CORPUS`: the general one, trained on the corpus of a domain;
- `tapt-SET`, `dapt+tapt-SET`: the general one, or the domain's, trained on the texts of a task's training rows;
- `gmap-CORPUS`, `further-CORPUS`: `dapt-CORPUS` trained further on its corpus, with and without the memory of the
  general encoder to read (section 4.4).

    python examples/gmap/encoders.py --backbone minilm=FOLDER --jobs 4
    python examples/gmap/encoders.py --backbone roberta-30m=FOLDER --only general dapt-biomed dapt-cs

What is there already is not made again. The losses on every corpus, before and after, are gathered in
`docs/results/gmap/pretraining_NAME.json`; `figures.py` draws them (Figures 1 and 5).
"""

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from experiment import DATA

CORPORA = ["biomed", "cs", "reviews", "news"]
# Of no task: to see what an encoder forgets.
OTHERS = ["it_support"]
# What a general encoder is trained on: none of it biomedical, none of computer science.
GENERAL = ["reviews", "news", "it_support"]
TASKS = [name for name, data in DATA.items() if data.task == "classification"]
SETTINGS = {
    "general": ["--learning-rate", "2e-4", "--steps", "2000"],
    "dapt": ["--learning-rate", "2e-4", "--steps", "1000"],
    "further": ["--learning-rate", "2e-4", "--steps", "1000"],
    "gmap": ["--learning-rate", "2e-4", "--steps", "1000"],
    "tapt": ["--learning-rate", "1e-4", "--epochs", "20", "--held-out", "0"],
    "dapt+tapt": ["--learning-rate", "1e-4", "--epochs", "20", "--held-out", "0"],
}
ONLY_HEAD = ["--only-head", "--learning-rate", "1e-3", "--epochs", "1"]
# In this order: each begins with one before it.
STAGES = [["general"], ["dapt", "tapt"], ["dapt+tapt", "further", "gmap"]]


def names_of(kind: str) -> list[str]:
    if kind == "general":
        return [kind]
    return [f"{kind}-{of}" for of in (TASKS if "tapt" in kind else CORPORA)]


def command_of(name: str, options) -> list[str]:
    """The call of pretrain.py that makes an encoder."""
    kind, _, of = name.partition("-")
    corpora = {corpus: str(options.data / "corpora" / f"{corpus}.jsonl.gz") for corpus in CORPORA + OTHERS}
    general = options.output / "general"
    if kind == "general":
        backbone, texts = options.backbone, [corpora[corpus] for corpus in GENERAL]
    elif of in corpora:
        backbone, texts = general if kind == "dapt" else options.output / f"dapt-{of}", [corpora[of]]
    else:
        backbone = general if kind == "tapt" else options.output / f"dapt-{DATA[of].domain}"
        texts = [str(options.data / of / "train.jsonl.gz")]
    # Corpora hold texts of the tasks: on those, an encoder of a task would be measured on what it has learned.
    also = [path for path in corpora.values() if path not in texts] if "tapt" not in kind else []
    command = [sys.executable, Path(__file__).with_name("pretrain.py"), "--backbone", backbone, "--corpus", *texts]
    command += ["--also", *also] if also else []
    command += ["--general", general] if kind == "gmap" else []
    command += ONLY_HEAD if kind == "general" and options.keep_backbone else SETTINGS[kind]
    command += ["--steps", options.steps] if options.steps else []
    command += ["--batch-size", 64, "--workers", options.workers, "--output", options.output / name]
    return [str(part) for part in command]


def make(name: str, options) -> None:
    path = options.output / name / "pretraining.json"
    if path.is_file():
        made_by = json.loads(path.read_text(encoding="utf-8"))["command"]
        if made_by.split()[2:] != command_of(name, options)[2:]:
            raise SystemExit(
                f"{path.parent} was made by another command: {made_by}. Delete it, or choose another --output or name."
            )
        return
    begin = time.time()
    with open(options.output / f"{name}.log", "w", encoding="utf-8") as log:
        done = subprocess.run(command_of(name, options), stdout=log, stderr=subprocess.STDOUT)
    if done.returncode:
        raise SystemExit(f"{name} failed: see {options.output / name}.log")
    record = json.loads(path.read_text(encoding="utf-8"))
    losses = "  ".join(
        f"{corpus} {record['before'][corpus]:.2f} > {loss:.2f}" for corpus, loss in record["after"].items()
    )
    print(f"{name}, {record['steps']} steps, {time.time() - begin:.0f} s{': ' * bool(losses)}{losses}", flush=True)


def gather(options) -> None:
    """The losses of all encoders that are there, in one file."""
    from hf_memaug.reporting.results import here

    names = [name for stage in STAGES for kind in stage for name in names_of(kind)]
    files = {name: options.output / name / "pretraining.json" for name in names}
    found = {name: json.loads(file.read_text(encoding="utf-8")) for name, file in files.items() if file.is_file()}
    record = {
        "command": "python " + " ".join(sys.argv),
        "made_with": here(),
        "encoders": {name: {key: one[key] for key in ("steps", "before", "after")} for name, one in found.items()},
    }
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / f"pretraining_{options.name}.json"
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {path}; python examples/gmap/figures.py draws it")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = [name for stage in STAGES for kind in stage for name in names_of(kind)]
    parser.add_argument("--backbone", required=True, help="name=folder of the encoder to begin with")
    parser.add_argument("--data", type=Path, default="../shared/data", help="folder of the data (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=every, metavar="NAME", help="default: all of them")
    parser.add_argument(
        "--keep-backbone", action="store_true", help="`general` is the backbone; only a head is trained"
    )
    parser.add_argument("--steps", type=int, help="of each encoder, instead of its own number: for a quick look")
    parser.add_argument("--jobs", type=int, default=1, help="encoders made at a time (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=0, help="processes that mask words, for each (default: 0)")
    parser.add_argument(
        "--output",
        type=Path,
        default="runs/gmap/encoders",
        help="a folder of that name is made here (default: %(default)s)",
    )
    parser.add_argument("--results", type=Path, default="docs/results/gmap", help="default: %(default)s")
    options = parser.parse_args()
    options.name, _, options.backbone = options.backbone.partition("=")
    if not options.backbone:
        parser.error("--backbone is a name and a folder, such as minilm=FOLDER")
    options.output /= options.name
    options.output.mkdir(parents=True, exist_ok=True)
    for stage in STAGES:
        names = [name for kind in stage for name in names_of(kind) if name in (options.only or every)]
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda name: make(name, options), names))
    gather(options)


if __name__ == "__main__":
    main()
