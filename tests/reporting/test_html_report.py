# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The report says what the folder of a run holds, no more, and goes without what is not there."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from run_folders import NASTY, TEXT_DOMAINS, continual_run, image_run, text_run

from hf_memaug.evaluation.statistics import paired_t_test
from hf_memaug.reporting.html.charts import ticks
from hf_memaug.reporting.html.history import _logged
from hf_memaug.reporting.html.markup import json_script, tag
from hf_memaug.reporting.html_report import main, write_report
from hf_memaug.runs.results import FinishedRun

VOID = ("br", "img", "input", "meta")


class Page(HTMLParser):
    """The texts, the sections, the tables and the addresses of a page; refuses tags that do not match."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.sections, self.links, self.rows, self.tips, self.addresses = [], {}, [], [], [], []
        self.scripts = []
        self.feed(text)
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, name, attributes):
        attributes = dict(attributes)
        if name not in VOID:
            self.open.append((name, attributes))
        if name == "section":
            self.sections[attributes["id"]] = ""
        if name == "tr":
            self.rows.append([])
        if name in ("td", "th") and self.rows:
            self.rows[-1].append("")
        if name == "a":
            self.links.append(attributes["href"])
        self.tips += [attributes["data-tip"]] if "data-tip" in attributes else []
        self.addresses += [attributes[key] for key in ("src", "href", "action", "srcset") if key in attributes]

    def handle_endtag(self, name):
        assert self.open.pop()[0] == name

    def handle_data(self, data):
        if self.open and self.open[-1][0] in ("script", "style"):
            self.scripts.append(data)
            return
        around = [attributes["id"] for name, attributes in self.open if name == "section"]
        if around:
            self.sections[around[-1]] += data
        if any(name in ("td", "th") for name, _ in self.open):
            self.rows[-1][-1] += data

    def row(self, *beginning: str) -> list[str]:
        return next(row for row in self.rows if row[: len(beginning)] == list(beginning))


def page_of(folder, **options) -> Page:
    return Page(write_report(folder, **options).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    made = {"text": text_run, "image": image_run, "continual": continual_run}
    folders = {name: make(folder / f"{name}-run") for name, make in made.items()}
    for one in folders.values():
        write_report(one)
    return folders


@pytest.fixture(scope="module")
def pages(runs):
    return {name: Page((folder / "report.html").read_text(encoding="utf-8")) for name, folder in runs.items()}


def jobs_of(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]


def scores_of(folder, method, target) -> list[float]:
    jobs = [line for line in jobs_of(folder) if (line["job"]["method"], line["job"]["target"]) == (method, target)]
    return [line["scores"][target]["accuracy"] for line in sorted(jobs, key=lambda line: line["job"]["seed"])]


def test_the_comparison_has_the_means_and_the_tests_of_the_run(runs, pages):
    row = pages["text"].row("mil")
    averages = {
        method: np.mean([scores_of(runs["text"], method, target) for target in TEXT_DOMAINS], axis=0)
        for method in ("erm", "mil", "hma")
    }
    for cell, target in zip(row[1:4], TEXT_DOMAINS, strict=True):
        mine, theirs = scores_of(runs["text"], "mil", target), scores_of(runs["text"], "erm", target)
        p_value = paired_t_test(mine, theirs).p_value
        stars = "↑***" if p_value < 0.001 else "↑**" if p_value < 0.01 else "↑*" if p_value < 0.05 else ""
        assert cell == f"{np.mean(mine):.1f} ± {np.std(mine, ddof=1):.1f}{stars}"
    p_value = paired_t_test(averages["mil"], averages["erm"]).p_value
    assert row[4].startswith(f"{averages['mil'].mean():.1f} ± {averages['mil'].std(ddof=1):.1f}↑")
    said = "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"
    assert row[5] == f"+{averages['mil'].mean() - averages['erm'].mean():.1f} {said}"
    assert pages["text"].row("erm")[5] == "baseline" and "↑" not in "".join(pages["text"].row("hma"))
    shown = pages["text"].sections["comparison"]
    assert (
        "mil scores highest: " in shown
        and "against erm, significant (paired t-test" in shown
        and "By macro-F1" in shown
    )


def test_a_difference_that_may_be_luck_is_not_called_one(runs, tmp_path):
    folder = text_run(tmp_path / "run", methods=("erm", "hma"), features=False)
    lines = jobs_of(folder)
    for line in lines:
        # Ahead of the baseline, though by one seed alone.
        if line["job"]["method"] == "hma" and line["job"]["seed"] == 0:
            line["scores"][line["job"]["target"]]["accuracy"] += 3
    (folder / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = page_of(folder).sections["comparison"]
    assert "hma scores highest" in shown and "not significant" in shown and "↑*" not in shown.split("Mean ±")[0]


def test_the_baseline_can_be_chosen(runs, tmp_path):
    page = page_of(runs["text"], output=tmp_path / "other.html", baseline="mil")
    assert page.row("mil")[5] == "baseline" and "↓" in "".join(page.row("erm"))
    with pytest.raises(ValueError, match="`baseline` 'irm' is not known"):
        write_report(runs["text"], tmp_path / "other.html", baseline="irm")


def test_the_best_setting_is_chosen_on_validation_data(tmp_path):
    folder = text_run(tmp_path / "run", methods=("erm",), seeds=(0,), features=False)
    first = jobs_of(folder)[0]
    worse = {**first, "validation": first["validation"] - 5, "settings": {"learning_rate": 0.5}}
    worse["scores"] = {first["job"]["target"]: {"accuracy": 99.9}}
    with (folder / "runs.jsonl").open("a") as file:
        file.write(json.dumps(worse) + "\n")
    page = page_of(folder)
    assert not page.row("erm")[1].startswith("99.9")
    assert "One more setting was tried" in page.sections["comparison"]
    assert "0.5" not in re.findall(r"learning_rate(\S*)", page.sections["comparison"])


def test_scores_per_domain_have_intervals_of_the_mean(runs, pages):
    values = scores_of(runs["text"], "mil", "books")
    from scipy.stats import t

    half = t.ppf(0.975, 4) * np.std(values, ddof=1) / np.sqrt(5)
    mean = np.mean(values)
    assert f"{mean:.1f} [{mean - half:.1f}, {mean + half:.1f}]" in pages["text"].sections["domains"]
    # The domains trained on are scored too, and stand beside the one left out.
    assert pages["text"].row("mil", "books")[2] == f"{mean:.1f} ± {np.std(values, ddof=1):.1f}"


def test_curves_are_drawn_from_the_logs(runs, pages):
    shown = pages["text"].sections["curves"]
    assert all(name in shown for name in ("loss", "eval loss", "eval accuracy", "learning rate", "step"))
    assert "runtime" not in shown
    logged = (runs["text"] / "jobs" / "erm-books-0" / "metrics.jsonl").read_text().splitlines()
    last = [entry["loss"] for entry in map(json.loads, logged) if "loss" in entry][-1]
    tips = pages["text"].tips
    assert f"erm · target books · seed 0: {float(f'{last:.4g}'):g} at step 200" in tips
    assert any(tip.startswith("erm, mean of 15: ") for tip in tips)


def test_features_hold_rows_and_their_texts(runs):
    text = (runs["text"] / "report.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="page-data">(.*?)</script>', text, re.S)[1])["features"]
    assert len(data["views"]) == 9
    view = data["views"][0]
    assert view["title"] == "erm · target books · seed 0" and view["domains"] == TEXT_DOMAINS
    for points in view["maps"].values():
        assert np.shape(points) == (90, 2) and 0 <= np.min(points) and np.max(points) <= 1
    assert data["contents"][view["content"][0]] == ["text", NASTY]
    # Models share their rows: each text is there once.
    assert len(data["contents"]) == len({content for _, content in data["contents"]}) == 90


def test_a_distance_is_that_of_the_library(runs, pages):
    from hf_memaug.evaluation import a_distance

    found = []
    for seed in (0, 1):
        arrays = np.load(runs["text"] / "jobs" / f"erm-books-{seed}" / "features.npz")
        features, target = arrays["features"].astype(float), arrays["domain"] == "books"
        found.append(a_distance(features[~target], features[target]))
    assert f"{np.mean(found):.2f} ± {np.std(found, ddof=1):.2f}" in pages["text"].sections["distance"]


def test_memory_slots_say_who_reads_them(runs, pages):
    shares = json.loads((runs["text"] / "jobs" / "hma-books-0" / "memory.json").read_text())["by_domain"]["dvd"]
    assert f"synthetic slot 7 (positive), dvd: {100 * shares[7]:.1f} %" in pages["text"].tips
    shown = pages["text"].sections["memory"]
    assert "the 64 slots most read of 100" in shown and "real memory" in shown
    row = pages["text"].row("hma · target books · seed 0", "dvd")
    assert row[3].startswith(f"{int(np.argmax(shares))} (") and row[4] == f"{100 * max(shares):.1f} %"
    used = np.exp(-sum(share * np.log(share) for share in shares if share > 0))
    assert row[2] == f"{used:.1f}"


def test_experts_have_shares_and_pictures(runs, pages):
    shares = json.loads((runs["image"] / "jobs" / "gmoe-art-0" / "memory.json").read_text())["by_layer"]["8"]["sketch"]
    assert f"expert 2, sketch: {100 * shares[2]:.1f} %" in pages["image"].tips
    assert "layer 8" in pages["image"].sections["experts"] and "by class" in pages["image"].sections["experts"]
    assert sum(one.startswith("data:image/jpeg;base64,") for one in pages["image"].addresses) == 2


def test_all_domains_at_once_have_one_row(tmp_path):
    folder = continual_run(tmp_path / "run")
    lines = jobs_of(folder)
    for line in lines:
        line["matrix"] |= {"rows": line["matrix"]["rows"][-1:], "trained_on": ["4 domains"]}
    (folder / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = write_report(folder).read_text()
    assert "4 domains</th>" in page and 'class="heat-cell early"' not in page


@pytest.mark.parametrize(
    ("info", "name"),
    [
        ({"task": "tags"}, "AutoModelForTokenClassification"),
        ({"task": "questions"}, "AutoModelForQuestionAnswering"),
        ({"task": "continual", "rows": "tags"}, "AutoModelForTokenClassification"),
        ({"task": "continual", "rows": "text"}, "AutoModelForSequenceClassification"),
    ],
)
def test_a_checkpoint_is_loaded_by_what_it_does(tmp_path, info, name):
    folder = text_run(tmp_path / "run", methods=("erm",), seeds=(0,), features=False)
    known = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**known, **info}))
    assert f"from transformers import {name}\n" in write_report(folder).read_text()


def test_the_continual_matrix_is_the_mean_over_seeds(runs, pages):
    matrices = [line["matrix"] for line in jobs_of(runs["continual"]) if line["job"]["method"] == "f"]
    mean = 100 * np.mean([matrix["rows"] for matrix in matrices], axis=0)
    assert pages["continual"].row("news")[1:] == [f"{value:.1f}" for value in mean[1]]
    bwt = [100 * matrix["bwt"] for matrix in matrices]
    assert f"−{abs(np.mean(bwt)):.1f} ± {np.std(bwt, ddof=1):.1f}" in pages["continual"].row("f", *_acc(matrices))[2]
    assert "backward transfer" in pages["continual"].sections["continual"]
    assert f"fiction: {mean[2, 0]:.2f}" in pages["continual"].tips


def test_jobs_of_a_matrix_are_scored_on_test_rows(runs, pages):
    job = jobs_of(runs["continual"])[0]
    mean = np.mean([score[metric] for score in job["scores"].values() for metric in ("accuracy",)])
    assert job["validation"] and pages["continual"].row(job["name"])[4:6] == ["–", f"{mean:.1f}"]


def _acc(matrices) -> list[str]:
    values = [100 * matrix["acc"] for matrix in matrices]
    return [f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}"]


def test_cost_data_and_commands(runs, pages):
    page = pages["text"]
    # 146.4 s and 0 to 4 more, against 61 s and as much.
    cells = ["2.5 min ± 1.5 s", "2.36 ×", "37.1 min", "4.7 GiB", "128.0 M", "125.0 M"]
    assert ["mil", "15", *cells] in page.rows
    assert page.row("books", "800")[:4] == ["books", "800", "100", "100"]
    assert "✓ Leakage check: no row" in page.sections["data"] and "positive: 520 (52 %)" in page.tips
    assert "Leakage: where one is tested on" in pages["image"].sections["data"]
    assert ["art › train and test", "3"] in pages["image"].rows
    shown = page.sections["reproduce"]
    for text in ("hf-memaug compare --data reviews.csv", "methods: [erm, mil, hma]", "5.22.2", "3ee9ab9", "9f2c4e11"):
        assert text in shown
    assert page.row("mil-dvd-3")[1:4] == ["mil", "dvd", "3"] and "All 45 jobs" in shown


@pytest.mark.parametrize(
    "overlap, row, said",
    [
        ({"between_domains": [], "repeated_rows": 0, "in_both_splits": 0}, None, "✓ Leakage check"),
        ({"between_domains": [], "repeated_rows": 4}, None, "In all, 4 rows repeat"),
        ({"between_domains": [{"domains": ["books", "dvd"], "rows": 7}]}, ["books and dvd", "7"], "Leakage:"),
        ({"in_both_splits": 2}, ["in both splits", "2"], "Leakage:"),
        ([[3, 5], [4, 9]], ["rows", "2"], "Leakage:"),
        (None, None, "was not recorded"),
    ],
)
def test_overlaps_are_told(overlap, row, said, tmp_path):
    folder = text_run(tmp_path / "run", seeds=(0,), methods=("erm",), features=False)
    data = json.loads((folder / "data.json").read_text())
    (folder / "data.json").write_text(json.dumps({**data, "overlap": overlap}))
    page = page_of(folder)
    assert said in page.sections["data"] and (row is None or row in page.rows)
    assert ("Leakage:" in page.sections["data"]) == (row is not None)


def test_rows_that_were_dropped_are_no_leakage(tmp_path):
    folder = text_run(tmp_path / "run", seeds=(0,), methods=("erm",), features=False)
    lines = [{**line, "settings": {"on_overlap": "drop"}} for line in jobs_of(folder)]
    (folder / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "data.json").write_text(json.dumps({"overlap": {"in_both_splits": 2}}))
    shown = page_of(folder).sections["data"]
    assert "taken out of the training data" in shown and "Leakage:" not in shown


def test_no_domain_left_out(tmp_path):
    """Then all domains that were scored are compared."""
    folder = text_run(tmp_path / "run", seeds=(0, 1), methods=("erm", "mil"), features=False)
    lines = [line for line in jobs_of(folder) if line["job"]["target"] == "books"]
    for line in lines:
        line["job"]["target"] = "none"
    (folder / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = page_of(folder)
    assert page.row("method")[1:5] == ["books", "dvd", "kitchen", "average"]
    assert "unseen" not in page.sections["comparison"]


def test_settings_that_differ_stand_with_their_jobs(pages):
    shown = pages["text"].sections["comparison"]
    assert "episodes30" in shown.replace("\n", "") and "learning_rate" in pages["text"].row("target", "seed")
    assert pages["text"].row("dvd", "3")[2] == "2e-05" and pages["text"].row("dvd", "2")[2] == "5e-05"


def test_label_ids_get_their_names(tmp_path):
    folder = text_run(tmp_path / "run", seeds=(0,), methods=("erm",))
    information = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**information, "labels": ["bad", "good"]}))
    path = folder / "jobs" / "erm-dvd-0" / "features.npz"
    arrays = dict(np.load(path))
    np.savez(path, **{**arrays, "label": (arrays["label"] == "positive").astype(int)})
    run = FinishedRun(folder)
    (job,) = [job for job in run.jobs if job.name == "erm-dvd-0"]
    found = run.features(job)
    assert ((found["label"] == "good") == (arrays["label"] == "positive")).all()
    assert set(found["predicted"]) == {"negative", "positive"}


def test_each_section_is_in_the_navigation_and_nothing_else(pages):
    expected = {
        "text": "comparison domains curves features distance memory cost data reproduce",
        "image": "comparison domains curves features distance experts cost data reproduce",
        "continual": "comparison domains continual curves cost data reproduce",
    }
    for name, keys in expected.items():
        assert list(pages[name].sections) == keys.split()
        assert [link for link in pages[name].links if link != "#content"] == [f"#{key}" for key in keys.split()]


def test_nothing_is_asked_of_the_network(runs, pages):
    for name, folder in runs.items():
        assert all(one.startswith(("#", "data:")) for one in pages[name].addresses)
        text = (folder / "report.html").read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|url\(|@import|//cdn", text)
        assert "default-src &#x27;none&#x27;" in text


NAMES = [NASTY, "<b>bold</b>", "\" onmouseover='alert(1)'", "a&b", "\u2028<!--"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_texts_wherever_they_come_from(name, tmp_path):
    folder = text_run(tmp_path / "run", methods=("erm", "mil"), seeds=(0, 1))
    for file in ("runs.jsonl", "run.json", "data.json"):
        quoted = json.dumps(name)[1:-1]
        text = (folder / file).read_text().replace('"mil"', f'"{quoted}"').replace('"dvd"', f'"{quoted}"')
        (folder / file).write_text(text.replace("NVIDIA H100", quoted).replace("learning_rate", quoted))
    for path in folder.glob("jobs/*/memory.json"):
        path.write_text(path.read_text().replace('"dvd"', f'"{json.dumps(name)[1:-1]}"'))
    (folder / "recipe.yaml").write_text(name)
    page = page_of(folder)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert text.count("<script") == 2 and "<b>bold" not in text and "<img src=x" not in text
    assert name in page.sections["reproduce"] and any(row and row[0] == name for row in page.rows)


def test_a_run_that_has_just_begun(tmp_path):
    folder = text_run(tmp_path / "run", seeds=(0,), features=False)
    (folder / "runs.jsonl").unlink()
    information = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**information, "finished": None}))
    text = write_report(folder).read_text(encoding="utf-8")
    assert "0 jobs have finished so far" in text and "nothing to compare" in text
    assert list(Page(text).sections) == ["data", "reproduce"]


def test_missing_parts_are_said_and_broken_ones_left_aside(tmp_path, caplog):
    folder = text_run(tmp_path / "run", seeds=(0, 1), methods=("erm", "mil"))
    whole = len(jobs_of(folder))
    with (folder / "runs.jsonl").open("a") as file:
        file.write('{"job": {"method": "mil", "target": "bo')
    before = (folder / "runs.jsonl").read_bytes()
    (folder / "data.json").write_text("[1, 2]")
    (folder / "recipe.yaml").unlink()
    for path in folder.glob("jobs/*/features.npz"):
        path.write_bytes(b"PK no archive")
    for path in folder.glob("jobs/*/memory.json"):
        path.write_text("{")
    (folder / "jobs" / "erm-dvd-0" / "metrics.jsonl").write_text('{"step": 10, "loss": NaN}\n{"step": 20, "lo')
    text = write_report(folder).read_text(encoding="utf-8")
    page = Page(text)
    assert list(page.sections) == ["comparison", "domains", "curves", "cost", "reproduce"]
    for sentence in (
        f"runs.jsonl: line {whole + 1} is broken",
        "data.json cannot be read",
        "jobs/mil-books-0/features.npz cannot be read",
        "jobs/mil-books-0/memory.json cannot be read",
        "jobs/erm-dvd-0/metrics.jsonl: line 2 is broken",
        "No features were kept",
        "No memory was recorded",
        "The run has left no data.json",
    ):
        assert sentence in text
    assert "line 13 is broken" in caplog.text and (folder / "runs.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    "line",
    [
        {"job": {}},
        {"job": "mil"},
        {"job": {"method": "mil"}, "scores": "none", "name": "../..", "settings": [], "matrix": {"rows": [[1]]}},
        {"job": {"method": "mil", "target": "books", "seed": "a"}, "scores": {"books": {"accuracy": "high"}}},
        {"job": {"method": "mil", "target": "average", "seed": 0}, "scores": {"average": {"accuracy": 5e9}}},
        {"job": {"method": "mil"}, "matrix": {"domains": ["a"], "rows": [[None]]}, "seconds": True},
    ],
)
def test_whatever_a_line_holds_the_report_is_written(line, tmp_path):
    folder = text_run(tmp_path / "run", seeds=(0,), methods=("erm",), features=False)
    with (folder / "runs.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    assert "comparison" in page_of(folder).sections


def test_one_seed_has_no_spread_and_no_test(tmp_path):
    page = page_of(text_run(tmp_path / "run", seeds=(0,), features=False))
    assert "±" not in "".join(page.row("mil")) and "One seed says nothing about the next" in page.sections["comparison"]


def test_equals_share_the_first_place(tmp_path):
    folder = text_run(tmp_path / "run", seeds=(0, 1), methods=("erm", "mil"), features=False)
    lines = [line for line in jobs_of(folder) if line["job"]["method"] == "mil"]
    twins = [{**line, "job": {**line["job"], "method": "twin"}, "name": f"twin-{line['name']}"} for line in lines]
    (folder / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*jobs_of(folder), *twins]))
    assert "mil and twin score highest" in page_of(folder).sections["comparison"]


def test_scores_that_differ_in_their_last_bits_are_drawn_as_equal(tmp_path):
    folder = text_run(tmp_path / "run", seeds=(0, 1), methods=("erm", "mil"), features=False)
    lines = jobs_of(folder)
    for number, line in enumerate(lines):
        for scores in line["scores"].values():
            scores.update(dict.fromkeys(scores, 100 / 3 + 1e-13 * number))
    (folder / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = page_of(folder).sections["domains"]
    assert "33.3333" not in shown and "33.6" in shown


def test_one_method_alone_is_compared_with_nothing(tmp_path):
    page = page_of(text_run(tmp_path / "run", methods=("mil",), features=False))
    shown = page.sections["comparison"]
    assert "mil was run alone: " in shown and "baseline" not in shown and "↑" not in shown
    assert page.row("method") == ["method", "books", "dvd", "kitchen", "average", "settings"]


def test_fewer_seeds_than_others_are_seen(tmp_path):
    folder = text_run(tmp_path / "run", features=False)
    kept = [line for line in jobs_of(folder) if line["name"] not in ("mil-dvd-3", "mil-dvd-4")]
    (folder / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    row = page_of(folder).row("mil")
    assert "n = 3" in row[2] and "n =" not in row[1]


def test_a_folder_that_is_none_is_refused(tmp_path, capsys):
    with pytest.raises(FileNotFoundError, match="no folder"):
        write_report(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="neither run.json nor runs.jsonl"):
        write_report(tmp_path)
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
    assert "neither run.json" in capsys.readouterr().err


def test_the_command_writes_where_it_is_told(runs, tmp_path):
    output = tmp_path / "deep" / "page.html"
    command = [sys.executable, "-m", "hf_memaug.reporting.html_report", str(runs["continual"]), "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(output) and output.read_text().startswith("<!doctype html>")


def test_a_job_has_no_way_out_of_its_folder(tmp_path):
    folder = text_run(tmp_path / "run", seeds=(0,), methods=("erm",), features=False)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "metrics.jsonl").write_text('{"step": 1, "secret": 1}\n')
    (folder / "runs.jsonl").write_text(json.dumps({"job": {"method": "erm"}, "name": "../../outside"}) + "\n")
    (job,) = FinishedRun(folder).jobs
    assert job.folder is None and FinishedRun(folder).log(job) == []


def test_markup_escapes_what_is_not_markup():
    assert tag("p", "<b>", tag("i", "&"), class_='"') == '<p class="&quot;">&lt;b&gt;<i>&amp;</i></p>'
    assert tag("p", None, ["<", ("x",)], hidden=True, title=None, open=False) == "<p hidden>&lt;x</p>"
    script = json_script("page-data", {"text": "</script><!-- \u2028 &"})
    assert script.count("</script>") == 1 and "<!--" not in script
    assert json.loads(re.search(">(.*)<", script)[1]) == {"text": "</script><!-- \u2028 &"}


@pytest.mark.parametrize("low, high", [(0, 1), (83.2, 86.9), (-3, 7), (1e-5, 9e-5), (0, 12345), (5, 5)])
def test_ticks_are_round_and_inside(low, high):
    found = ticks(low, high)
    assert 1 <= len(found) <= 6 and all(low - 1e-9 <= tick <= high + 1e-9 for tick in found)
    assert all(float(f"{tick:.2g}") == pytest.approx(tick) for tick in found)


def test_parts_of_a_run_are_laid_one_after_another():
    """Each counts its steps from 1; what is logged of the whole has steps of the whole."""
    logs = [("0-films", 10, "loss", 0.9), ("0-films", 20, "loss", 0.5), ("train", 20, "eval_f1", 0.6)]
    logs += [("1-books", 10, "loss", 0.4), ("1-books", 20, "loss", 0.3), ("train", 40, "eval_f1", 0.7)]
    # After a kill.
    logs += [("1-books", 20, "loss", 0.2)]
    found = _logged([{"phase": phase, "step": step, name: value} for phase, step, name, value in logs])
    assert found == {"loss": [(10, 0.9), (20, 0.5), (30, 0.4), (40, 0.2)], "eval_f1": [(20, 0.6), (40, 0.7)]}
