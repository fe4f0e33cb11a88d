# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
Figures 3, 4, 5 and 7 of MIL and two of our own, as PNG beside their raw JSON. One command a figure.

    python examples/mil/tables.py table1 --backbone minilm=FOLDER --features runs/mil/features --together 20
    python examples/mil/figures.py figure3 --features runs/mil/features/amazon-books-mil-minilm-fine-tuning.npz
    python examples/mil/figures.py figure4 --record runs/mil/table1.jsonl runs/mil/table2.jsonl
    python examples/mil/figures.py figure5 --backbone minilm=FOLDER --together 20
    python examples/mil/figures.py figure7 --backbone minilm=FOLDER --together 20
    python examples/mil/figures.py budget --record runs/mil/table1.jsonl runs/mil/table2.jsonl
    python examples/mil/figures.py keys --backbone minilm=FOLDER --seeds 3

Figure 3: features of target and source domains, before and after the memory. Figure 4: how far the target lies from the
sources. Figures 5 and 7: scores on the source domains' dev rows by the memory's size and by its learning rate. budget:
those scores by all the steps that a method has made, so that what it is behind by can be read in steps. keys: how many
slots a fresh memory reads, and whether what it answers depends on the text, by the size of its keys.
"""

import argparse
import sys
from pathlib import Path

from experiment import METHODS, Job, backbone_paths, build_model, load_data, tokenized
from jobs import add_run_options, run_jobs
from run_lines import read_runs  # found by the way that jobs.py adds
from tables import settings_of

CURVES = {
    "figure5": ("memory_slots", [128, 256, 512, 1024, 2048, 4096], "memory slots"),
    "figure7": ("memory_learning_rate", [0.0, 1e-6, 1e-5, 1e-4, 3e-4, 1e-3], "learning rate of the memory"),
}
# The first is what `memory_key_initializer_range` is by default, for keys of 256.
KEY_RANGES = [0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0]
# Bars of figure 4: a method and those of its features that its head reads, and what MIL's memory gives by itself.
BARS = {
    "erm": ("erm", "features"),
    "dann": ("dann", "features"),
    "+memory": ("+memory", "augmented_features"),
    "mil": ("mil", "augmented_features"),
    "mil, memory alone": ("mil", "memory_features"),
}
PANELS = {
    "features": "Transformer features",
    "memory_features": "memory",
    "augmented_features": "memory-augmented features",
}


# What each figure is made from; all else that is given is refused.
TAKES = {
    "figure3": {"features"},
    "figure4": {"record"},
    "budget": {"record", "head", "methods"},
    "keys": {"backbone", "head", "data", "sets", "seeds"},
    **dict.fromkeys(CURVES, {"backbone", "head", "data", "sets", "seeds", "record", "workers", "together", "compile"}),
}


def command() -> str:
    return "python " + " ".join(sys.argv)


def table_runs(records: list[Path]) -> list[dict]:
    """The runs of records that have the settings of the tables: others would lie on the same curve."""
    found = []
    for result in (result for record in records for result in read_runs(record)):
        job = Job(**result["job"])
        own = settings_of(job.data, job.method)
        if job == Job(job.data, job.target, job.method, job.backbone, job.seed, job.head, **own):
            found.append(result)
    return found


def figure3(options) -> None:
    import numpy as np

    from hf_memaug.reporting.plots import plot_features

    with np.load(options.features) as stored:
        (target,) = {name.partition("/")[0] for name in stored.files} - {"dev"}
        parts = ("dev", target)
        found = {
            title: np.concatenate([stored[f"{part}/{kind}"] for part in parts]).astype(np.float32)
            for kind, title in PANELS.items()
        }
        domains = [str(name) for part in parts for name in stored[f"{part}/domain"]]
    for method in ("pca", "tsne"):
        path = options.output / f"figure3_{method}.png"
        print("wrote", plot_features(found, domains, target, path, method=method))


def figure4(options) -> None:
    from hf_memaug.reporting.plots import plot_a_distance
    from hf_memaug.reporting.results import write_results

    rows, made_with = [], []
    for result in table_runs(options.record):
        job = result["job"]
        made_with.append(result["made_with"])
        shared = {name: job[name] for name in ("data", "backbone", "head", "seed")}
        for target, distances in result["diagnostics"].get("a_distance_to_target", {}).items():
            rows += [
                {**shared, "method": bar, "target": target, "metric": "a_distance", "value": distances[kind]}
                for bar, (method, kind) in BARS.items()
                if method == job["method"]
            ]
    if not rows:
        raise SystemExit("`--record` has no distances: make it with examples/mil/tables.py --features FOLDER.")
    write_results(options.output / "figure4.json", table="figure4", command=command(), rows=rows, made_with=made_with)
    bars: dict[str, dict[str, list]] = {bar: {} for bar in BARS if any(row["method"] == bar for row in rows)}
    for row in rows:
        bars[row["method"]].setdefault(row["target"], []).append(row["value"])
    print("wrote", plot_a_distance(bars, options.output / "figure4.png"))


def game(result: dict) -> list[tuple[int, str, float]]:
    """(step, metric, value in points) of a run's first episode and its last."""
    points = []
    for name in ("slot_entropy", "discriminator_accuracy"):
        # The accuracy has the meta-target in its name.
        found = [(e["step"], value) for e in result["meta_log"] for key, value in e.items() if key.startswith(name)]
        points += [(step, name, 100 * value) for step, value in dict([*found[:1], *found[-1:]]).items()]
    return points


def budget(options) -> None:
    from hf_memaug.reporting.plots import plot_curve
    from hf_memaug.reporting.results import write_results

    rows, made_with = [], []
    for result in table_runs(options.record):
        job = Job(**result["job"])
        is_other = job.head != (options.head or job.head) or job.method not in (options.methods or METHODS)
        if is_other or job.target == "cross":
            continue
        shared = {name: result["job"][name] for name in ("method", "data", "target", "backbone", "head", "seed")}
        # Steps of the memory count as well: the classifier begins after them.
        before = job.meta_steps if job.method == "mil" else 0
        points = [(before + entry["step"], "dev_macro_f1", entry["dev"]) for entry in result["log"]]
        points += game(result)
        rows += [{**shared, "step": s, "metric": metric, "value": round(value, 4)} for s, metric, value in points]
        made_with.append(result["made_with"])
    if not rows:
        raise SystemExit("`--record` has no such runs: make it with examples/mil/tables.py.")
    write_results(options.output / "budget.json", table="budget", command=command(), rows=rows, made_with=made_with)
    settings = dict.fromkeys((row["data"], row["backbone"], row["head"]) for row in rows)
    for setting in settings:
        scores: dict[str, dict] = {}
        for row in rows:
            if (row["data"], row["backbone"], row["head"]) == setting and row["metric"] == "dev_macro_f1":
                seeds = scores.setdefault(row["method"], {}).setdefault(row["step"], {})
                seeds.setdefault(row["seed"], []).append(row["value"])
        curves = {
            method: {step: [sum(found) / len(found) for found in seeds.values()] for step, seeds in steps.items()}
            for method, steps in scores.items()
        }
        path = options.output / f"budget_{'_'.join(setting)}.png"
        print("wrote", plot_curve(curves, path, "optimizer steps, all phases", "macro-F1 on source dev rows"))


def curve(options) -> None:
    from hf_memaug.reporting.plots import plot_curve
    from hf_memaug.reporting.results import write_results

    field, values, label = CURVES[options.figure]
    backbones = backbone_paths(options.backbone)
    (backbone,) = backbones
    jobs = []
    for data in options.sets:
        for target in load_data(options.data, data, "train").domains:
            for seed in range(options.seeds):
                own = {"head": options.head or "fine-tuning", **settings_of(data, "mil")}
                jobs.append(Job(data, target, "erm", backbone, seed, **own))
                jobs += [Job(data, target, "mil", backbone, seed, **{**own, field: value}) for value in values]
    record = options.record[0] if options.record else Path("runs/mil") / f"{options.figure}.jsonl"
    results = run_jobs(options, jobs, backbones, record, score_target=False)
    rows = []
    for result in results:
        job = result["job"]
        shared = {name: job[name] for name in ("method", "data", "target", "backbone", "head", "seed")}
        own = {field: job[field]} if job["method"] == "mil" else {}
        last = [(metric, value) for step, metric, value in game(result) if step == Job(**job).meta_steps]
        rows += [
            {**shared, **own, "metric": metric, "value": round(value, 4)}
            for metric, value in [("dev_macro_f1", result["dev"]), *last]
        ]
    path = options.output / f"{options.figure}.json"
    made_with = [result["made_with"] for result in results]
    write_results(path, table=options.figure, command=command(), rows=rows, made_with=made_with)
    for data in options.sets:
        # ERM has no value of the setting.
        found: dict[float | None, dict[int, list]] = {}
        for row in rows:
            if row["data"] == data and row["metric"] == "dev_macro_f1":
                found.setdefault(row.get(field), {}).setdefault(row["seed"], []).append(row["value"])
        means = {value: [sum(each) / len(each) for each in seeds.values()] for value, seeds in found.items()}
        plain = means.pop(None)
        of_head = "_prompting" if options.head == "prompting" else ""
        path = options.output / f"{options.figure}_{data}{of_head}.png"
        baseline = {data: sum(plain) / len(plain)}
        plot_curve({data: means}, path, label, "macro-F1 on source dev rows", log_x=True, baseline=baseline)
        print("wrote", path)


def keys(options) -> None:
    from tqdm.auto import tqdm

    from hf_memaug.layers.kv_memory import slot_entropy
    from hf_memaug.reporting.plots import plot_curve
    from hf_memaug.reporting.results import write_results

    head, backbones = options.head or "fine-tuning", backbone_paths(options.backbone)
    settings = [(name, data, seed) for name in backbones for data in options.sets for seed in range(options.seeds)]
    rows = []
    for backbone, data, seed in tqdm(settings, desc="Fresh memories", unit="encoder"):
        path = backbones[backbone]
        target = load_data(options.data, data, "train").domains[0]
        tokenizer, train, dev, _ = tokenized(options.data, data, target, None, path, head == "prompting")
        some = dev.shuffle(seed)[:64]
        given = [name for name in tokenizer.model_input_names if name in some.column_names]
        batch = tokenizer.pad({name: some[name] for name in given}, return_tensors="pt")
        own = {**settings_of(data, "mil-fresh"), "memory_key_initializer_range": 1.0}
        model = build_model(Job(data, target, "mil-fresh", backbone, seed, head, **own), path, train.label_names)
        encoder = model.eval().base_model.requires_grad_(False)
        features, unit_keys = encoder(**batch).features, encoder.memory.slot_keys.clone()
        for key_range in KEY_RANGES:
            # What is drawn with this range: the same draw, of another size.
            encoder.memory.slot_keys.copy_(key_range * unit_keys)
            answer, weights = encoder.memory(features)
            entropy = slot_entropy(weights).mean()
            spread = ((answer - answer.mean(0)).norm(dim=1) / answer.norm(dim=1)).mean()
            shared = {"method": "mil-fresh", "data": data, "target": target, "backbone": backbone, "seed": seed}
            shared |= {"head": head, "memory_key_initializer_range": key_range}
            rows += [
                {**shared, "metric": metric, "value": round(100 * value.item(), 4)}
                for metric, value in (("slot_entropy", entropy), ("memory_spread", spread))
            ]
    write_results(options.output / "keys.json", table="keys", command=command(), rows=rows)
    curves: dict[str, dict] = {}
    for row in rows:
        if row["metric"] == "slot_entropy":
            points = curves.setdefault(f"{row['backbone']}, {row['data']}", {})
            points.setdefault(row["memory_key_initializer_range"], []).append(row["value"])
    path = options.output / f"keys_{head}.png"
    label = "standard deviation of fresh keys"
    print("wrote", plot_curve(curves, path, label, "entropy of slots, % of its maximum", log_x=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=["figure3", "figure4", *CURVES, "budget", "keys"])
    parser.add_argument("--features", help="figure 3: a file that tables.py --features made")
    parser.add_argument(
        "--record", type=Path, nargs="+", help="figure 4, budget: records of tables.py; else where to keep one"
    )
    parser.add_argument("--backbone", action="append", help="figures 5 and 7, keys: name=folder of an encoder")
    parser.add_argument(
        "--head", choices=["fine-tuning", "prompting"], help="default: fine-tuning; of budget, what the record has"
    )
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), help="budget (default: what the record has)")
    parser.add_argument("--data", default="../shared/data", help="folder of the data sets (default: %(default)s)")
    parser.add_argument("--sets", nargs="+", default=["amazon", "mnli5"], help="default: amazon mnli5")
    parser.add_argument("--seeds", type=int, default=5, help="default: %(default)s")
    add_run_options(parser)
    parser.add_argument("--output", type=Path, default=Path("docs/results/mil"), help="default: %(default)s")
    options = parser.parse_args()
    for name, given in vars(options).items():
        if given != parser.get_default(name) and name not in {"figure", "output", *TAKES[options.figure]}:
            parser.error(f"{options.figure} does not take --{name}")
    needed = {"figure3": "features", "figure4": "record", "budget": "record"}.get(options.figure, "backbone")
    if getattr(options, needed) is None:
        parser.error(f"{options.figure} needs --{needed}")
    own = {"figure3": figure3, "figure4": figure4, "budget": budget, "keys": keys}
    own.get(options.figure, curve)(options)


if __name__ == "__main__":
    main()
