# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The report shows what the folder of a run holds, and does without what is missing."""

import json
import re

import numpy as np
import pytest
from run_folders import NASTY, TEXT_DOMAINS, Page, continual_run, edited, image_run, small_run, text_run

from hf_memaug.evaluation.statistics import paired_t_test
from hf_memaug.reporting import plots
from hf_memaug.reporting.html import charts, history, memory, scores
from hf_memaug.reporting.html.blocks import Cell, Details, Table
from hf_memaug.reporting.html_report import write_report
from hf_memaug.runs.results import read_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    made = {"text": text_run, "image": image_run, "continual": continual_run}
    return {name: make(folder / f"{name}-run") for name, make in made.items()}


@pytest.fixture(scope="module")
def texts(runs):
    with pytest.MonkeyPatch.context() as patch:
        # t-SNE takes most of the time of a report, and has a test of its own.
        patch.setattr(plots, "t_sne", lambda array: array[:, :2])
        return {name: write_report(folder).read_text(encoding="utf-8") for name, folder in runs.items()}


@pytest.fixture(scope="module")
def pages(texts):
    return {name: Page(text) for name, text in texts.items()}


def flat(section) -> list:
    def walk(blocks):
        for one in blocks:
            yield one
            yield from walk(one.blocks if isinstance(one, Details) else ())

    return list(walk(section))


def texts_of(section) -> str:
    return "\n".join(one.text for one in flat(section) if hasattr(one, "text"))


def shown(cell) -> str:
    return cell.text + cell.small + cell.mark if isinstance(cell, Cell) else cell


def row(section, *start) -> list[str]:
    rows = [list(map(shown, row)) for one in flat(section) if isinstance(one, Table) for row in one.rows]
    return next(row for row in rows if row[: len(start)] == list(start))


def scores_of(folder, method, target) -> list[float]:
    jobs = [job for job in read_run(folder).selected() if (job.method, job.target) == (method, target)]
    return [job.scores[target]["accuracy"] for job in jobs]


# Scores


def test_the_comparison_has_the_means_and_the_tests_of_the_run(runs):
    section = scores.comparison_section(read_run(runs["text"]), None)
    cells = row(section, "mil")
    for cell, target in zip(cells[1:4], TEXT_DOMAINS, strict=True):
        mine, theirs = scores_of(runs["text"], "mil", target), scores_of(runs["text"], "erm", target)
        p_value = paired_t_test(mine, theirs).p_value
        stars = "↑***" if p_value < 0.001 else "↑**" if p_value < 0.01 else "↑*" if p_value < 0.05 else ""
        assert cell == f"{np.mean(mine):.1f} ± {np.std(mine, ddof=1):.1f}{stars}"
    mine, theirs = (
        np.mean([scores_of(runs["text"], method, target) for target in TEXT_DOMAINS], axis=0)
        for method in ("mil", "erm")
    )
    p_value = paired_t_test(mine, theirs).p_value
    assert cells[4].startswith(f"{mine.mean():.1f} ± {mine.std(ddof=1):.1f}↑")
    said = "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"
    assert cells[5] == f"+{mine.mean() - theirs.mean():.1f} {said}"
    assert row(section, "erm")[5] == "baseline"
    assert "mil scores highest: " in texts_of(section) and "against erm, significant" in texts_of(section)
    other = scores.comparison_section(read_run(runs["text"]), "mil")
    assert row(other, "mil")[5] == "baseline" and "↓" in "".join(row(other, "erm"))


def test_a_difference_by_chance_is_not_significant(tmp_path):
    def lucky(lines):
        for line in lines:
            if (line["job"]["method"], line["job"]["seed"]) == ("hma", 0):
                line["scores"][line["job"]["target"]]["accuracy"] += 3

    run = edited(small_run(tmp_path, methods=("erm", "hma"), seeds=(0, 1, 2, 3)), lucky)
    said = texts_of(scores.comparison_section(run, None))
    assert "hma scores highest" in said and "not significant" in said


def test_the_best_setting_is_chosen_on_validation_data(tmp_path):
    def another(lines):
        worse = {**lines[0], "validation": lines[0]["validation"] - 5, "settings": {"learning_rate": 0.5}}
        worse["scores"] = {lines[0]["job"]["target"]: {"accuracy": 99.9}}
        return [*lines, worse]

    section = scores.comparison_section(edited(small_run(tmp_path, methods=("erm",), seeds=(0,)), another), None)
    assert not row(section, "erm")[1].startswith("99.9") and "One more setting was tried" in texts_of(section)


def test_one_seed_equal_methods_and_missing_seeds(tmp_path):
    one_seed = scores.comparison_section(read_run(small_run(tmp_path / "a", seeds=(0,))), None)
    assert "±" not in "".join(row(one_seed, "mil")) and "Fewer than three seeds allow no test" in texts_of(one_seed)

    def twins(lines):
        mil = [line for line in lines if line["job"]["method"] == "mil"]
        return lines + [{**line, "job": {**line["job"], "method": "twin"}, "name": "twin"} for line in mil]

    tied = scores.comparison_section(edited(small_run(tmp_path / "b"), twins), None)
    assert "mil and twin score highest" in texts_of(tied)
    fewer = edited(small_run(tmp_path / "c"), lambda lines: [line for line in lines if line["name"] != "mil-dvd-1"])
    cells = row(scores.comparison_section(fewer, None), "mil")
    assert "n = 1" in cells[2] and "n =" not in cells[1]
    alone = scores.comparison_section(read_run(small_run(tmp_path / "d", methods=("mil",))), None)
    assert "mil was run alone: " in texts_of(alone) and "baseline" not in texts_of(alone)


def test_without_a_target_all_scored_domains_are_compared(tmp_path):
    def no_target(lines):
        lines = [line for line in lines if line["job"]["target"] == "books"]
        for line in lines:
            line["job"]["target"] = "none"
        return lines

    section = scores.comparison_section(edited(small_run(tmp_path), no_target), None)
    (table, *_) = [one for one in section if isinstance(one, Table)]
    assert table.headers == ["method", "books", "dvd", "kitchen", "average", "− erm"]
    assert "unseen" not in texts_of(section)


def test_settings_that_differ_stand_with_their_jobs(runs):
    section = scores.comparison_section(read_run(runs["text"]), None)
    assert row(section, "dvd", "3")[2] == "2e-05" and row(section, "dvd", "2")[2] == "5e-05"


def test_intervals_are_those_of_the_mean(runs, pages):
    from scipy.stats import t

    values = scores_of(runs["text"], "mil", "books")
    half, mean = t.ppf(0.975, 4) * np.std(values, ddof=1) / np.sqrt(5), np.mean(values)
    assert f"{mean:.1f} [{mean - half:.1f}, {mean + half:.1f}]" in pages["text"].sections["domains"]
    seen = next(row for row in pages["text"].rows if row[:2] == ["mil", "books"])
    assert seen[2] == f"{mean:.1f} ± {np.std(values, ddof=1):.1f}"


def test_two_seeds_have_no_test_and_intervals_stay_within_the_scores(tmp_path):
    run = read_run(small_run(tmp_path, seeds=(0, 1)))
    comparison, domains = scores.comparison_section(run, None), scores.domains_section(run, None)
    assert "*" not in "".join(row(comparison, "mil")) and "p " not in row(comparison, "mil")[-1]
    assert "Fewer than three seeds" in texts_of(comparison) and domains
    assert scores._spread([10.0, 99.0], "mil", 0.0, 100.0).low is None
    assert scores._spread([10.0, 50.0, 99.0], "mil", 0.0, 100.0)[1:3] == (0.0, 100.0)


def test_costs(runs):
    section = scores.cost_section(read_run(runs["text"]), None)
    # 146.4 s and 0 to 4 more, against 61 s and as much.
    cells = ["2.5 min ± 1.6 s", "2.36 ×", "37.1 min", "4.7 GiB", "128.0 M", "125.0 M"]
    found = row(section, "mil", "15")
    assert [found[2][:7], *found[3:]] == [cells[0][:7], *cells[1:]]


# History


def test_curves_are_drawn_from_the_logs(runs, pages):
    said = pages["text"].sections["curves"]
    assert all(name in said for name in ("loss", "eval loss", "eval accuracy", "learning rate", "step"))
    assert "runtime" not in said and "erm, mean of 15: " in said
    logged = (runs["text"] / "jobs" / "erm-books-0" / "metrics.jsonl").read_text().splitlines()
    last = [entry["loss"] for entry in map(json.loads, logged) if "loss" in entry][-1]
    assert f"erm · target books · seed 0: {last:.4g}" in said


def test_phases_of_a_run_are_laid_end_to_end():
    """Each counts its steps from 1; what is logged of the whole has steps of the whole."""
    logs = [("0-films", 10, "loss", 0.9), ("0-films", 20, "loss", 0.5), ("train", 20, "eval_f1", 0.6)]
    logs += [("1-books", 10, "loss", 0.4), ("1-books", 20, "loss", 0.3), ("train", 40, "eval_f1", 0.7)]
    # After resuming.
    logs += [("1-books", 20, "loss", 0.2)]
    found = history.logged([{"phase": phase, "step": step, name: value} for phase, step, name, value in logs])
    assert found == {"loss": {10: 0.9, 20: 0.5, 30: 0.4, 40: 0.2}, "eval_f1": {20: 0.6, 40: 0.7}}
    logs = [("meta_train", 10, "loss", 0.9), ("meta_train", 20, "loss", 0.8), ("train", 5, "loss", 0.7)]
    found = history.logged([{"phase": phase, "step": step, name: value} for phase, step, name, value in logs])
    assert found == {"loss": {10: 0.9, 20: 0.8, 25: 0.7}}, "MIL"


def test_the_continual_matrix_is_the_mean_over_seeds(runs, pages):
    matrices = [job.matrix for job in read_run(runs["continual"]).jobs if job.method == "f"]
    mean = np.mean([matrix["rows"] for matrix in matrices], axis=0)
    assert ["news", *(f"{value:.1f}" for value in mean[1])] in pages["continual"].rows
    bwt = [matrix["bwt"] for matrix in matrices]
    assert any(f"−{abs(np.mean(bwt)):.1f} ± {np.std(bwt, ddof=1):.1f}" in row for row in pages["continual"].rows)
    assert "backward transfer" in pages["continual"].sections["continual"]


def test_all_domains_at_once_have_one_row(tmp_path):
    def one_stage(lines):
        for line in lines:
            line["matrix"] |= {"rows": line["matrix"]["rows"][-1:], "trained_on": ["4 domains"]}

    section = history.continual_section(edited(continual_run(tmp_path / "run"), one_stage))
    cells = next(row for one in flat(section) if isinstance(one, Table) for row in one.rows if row[0] == "4 domains")
    assert all(cell.style == "own" for cell in cells[1:])


@pytest.mark.parametrize(
    "overlap, cells, said",
    [
        ({"in_both_splits": 0}, None, "✓ Leakage check"),
        ({"repeated_rows": 4}, None, "Rows that repeat an earlier one: 4"),
        ({"between_domains": [{"domains": ["books", "dvd"], "rows": 7}]}, ["books and dvd", "7"], "Leakage:"),
        ({"in_both_splits": 3}, ["both splits", "3"], "Leakage:"),
    ],
)
def test_overlaps_are_reported(overlap, cells, said, tmp_path):
    run = read_run(small_run(tmp_path, seeds=(0,), methods=("erm",)))
    run.data["overlap"] |= overlap
    section = history.data_section(run)
    assert said in texts_of(section) and ("Leakage:" in texts_of(section)) == (cells is not None)
    assert cells is None or row(section, *cells)
    for job in run.jobs:
        job.settings["on_overlap"] = "drop"
    assert "Leakage:" not in texts_of(history.data_section(run))


def test_commands_versions_and_jobs(pages):
    said = pages["text"].sections["reproduce"]
    for text in ("hf-memaug compare --data reviews.csv", "methods: [erm, mil, hma]", "5.22.2", "3ee9ab9", "9f2c4e11"):
        assert text in said
    assert any(row[:4] == ["mil-dvd-3", "mil", "dvd", "3"] for row in pages["text"].rows) and "All jobs (45)" in said


# Inside the models


def test_a_distance_is_that_of_the_library(runs, pages):
    from hf_memaug.evaluation import a_distance

    found = []
    for seed in (0, 1):
        arrays = np.load(runs["text"] / "jobs" / f"erm-books-{seed}" / "features.npz")
        features, target = arrays["features"].astype(float), arrays["domain"] == "books"
        found.append(a_distance(features[~target], features[target]))
    said = f"erm: {np.mean(found):.2f}; by seed {found[0]:.2f}, {found[1]:.2f}"
    assert said in pages["text"].sections["distance"]


def test_features_hold_rows_and_their_texts(texts):
    rows = json.loads(re.search(r'id="rows">(.*?)</script>', texts["text"], re.S)[1])
    assert ["text", NASTY] in [one[1:] for one in rows] and rows[0][0].startswith("books · label: ")
    used = set(map(int, re.findall(r'data-row="(\d+)"', texts["text"])))
    assert used == set(range(len(rows))) and texts["text"].count("data-row=") == 3 * 2 * 90


def test_rows_that_the_model_reads_alike_are_not_drawn(runs, monkeypatch):
    run = read_run(runs["text"])
    equal = {"features": np.full((9, 4), 0.1), **dict.fromkeys(("domain", "label", "predicted"), np.full(9, "a"))}
    monkeypatch.setattr(run, "features", lambda job: equal)
    section, rows = memory.features_section(run)
    assert "No features" in section and rows == []


def test_memory_slots_and_their_readers(runs, monkeypatch):
    drawn = {}
    monkeypatch.setattr(charts, "strip_panels", lambda panels: drawn.update(panels))
    monkeypatch.setattr(charts, "chart", lambda label, draw, *args: draw(*args))
    monkeypatch.setattr(charts, "stack_panels", lambda panels, parts: drawn.update({parts: panels}))
    memory.memory_section(read_run(runs["text"]))
    shares = json.loads((runs["text"] / "jobs" / "hma-books-0" / "memory.json").read_text())["by_domain"]["dvd"]
    names, values, numbers = drawn["hma · target books · seed 0"]
    assert names == TEXT_DOMAINS and values[1].tolist() == shares and numbers == list(range(12))
    many = next(title for title in drawn if "the 64 slots most read of 100" in title)
    assert len(drawn[many][2]) == 64 and drawn["negative", "positive"]


def test_experts_have_shares(runs, pages):
    shares = json.loads((runs["image"] / "jobs" / "gmoe-art-0" / "memory.json").read_text())["by_layer"]["8"]["sketch"]
    said = pages["image"].sections["experts"]
    assert f"expert 2, sketch: {100 * shares[2]:.1f} %" in said and "layer 8" in said and "by class" in said


# The page


def test_each_section_is_in_the_navigation_and_nothing_else(pages):
    expected = {
        "text": "comparison domains curves features distance memory cost data reproduce",
        "image": "comparison domains curves features distance experts cost data reproduce",
        "continual": "comparison domains continual curves cost data reproduce",
    }
    for name, keys in expected.items():
        assert list(pages[name].sections) == keys.split()
        assert [link for link in pages[name].links if "-" not in link] == [f"#{key}" for key in keys.split()]


def test_nothing_is_loaded_from_elsewhere(texts, pages):
    for name, text in texts.items():
        assert all(one.startswith(("#", "data:")) for one in pages[name].addresses)
        text = text.replace("http://www.w3.org/2000/svg", "").replace("http://www.w3.org/1999/xlink", "")
        assert not re.search(r"https?://|url\((?!#)|@import|//cdn", text) and "default-src 'none'" in text


def test_paths_of_the_machine_are_shown_as_names(tmp_path):
    folder = small_run(tmp_path)
    info = json.loads((folder / "run.json").read_text())
    info["command"] = "hf-memaug train --data=/home/me/some/reviews.csv --backbone ~/secret/roberta"
    (folder / "run.json").write_text(json.dumps(info))
    (folder / "recipe.yaml").write_text(
        "data: /home/me/some/reviews.csv\nbackbone: me/roberta\nurl: https://a.org/b/c\n"
    )
    text = write_report(folder).read_text(encoding="utf-8")
    assert "--data=reviews.csv --backbone roberta" in text and "/home/me" not in text and "secret" not in text
    assert "data: reviews.csv\nbackbone: me/roberta\nurl: https://a.org/b/c" in text


def test_names_are_texts_wherever_they_come_from(tmp_path):
    folder = small_run(tmp_path, features=True)
    names = {"mil": NASTY, "dvd": "\" onmouseover='alert(1)'", "kitchen": "<b>bold</b> $x^2$", "roberta": "\u2028<!--"}
    for file in [*folder.glob("*.json*"), *folder.glob("jobs/*/memory.json")]:
        text = file.read_text()
        for old, new in names.items():
            text = text.replace(f'"{old}', f'"{json.dumps(new)[1:-1]}')
        file.write_text(text)
    (folder / "recipe.yaml").write_text(NASTY)
    text = write_report(folder).read_text(encoding="utf-8")
    assert text.count("<script") == 2 and "<b>bold" not in text and "<img src=x" not in text
    page = Page(text)
    assert NASTY in page.sections["reproduce"] and any(row and row[0] == NASTY for row in page.rows)


def test_a_run_that_has_just_begun(tmp_path):
    folder = small_run(tmp_path, seeds=(0,))
    (folder / "runs.jsonl").unlink()
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, "finished": None}))
    text = write_report(folder).read_text(encoding="utf-8")
    assert "has not finished: 0 jobs so far" in text and "nothing to compare" in text
    assert list(Page(text).sections) == ["data", "reproduce"]


def test_missing_parts_are_named_and_broken_ones_skipped(tmp_path, caplog):
    folder = small_run(tmp_path, features=True)
    with (folder / "runs.jsonl").open("a") as file:
        file.write('{"job": {"method": "mil", "target": "bo')
    (folder / "data.json").write_text("[1, 2]")
    for path in folder.glob("jobs/*/features.npz"):
        path.write_bytes(b"PK no archive")
    for path in folder.glob("jobs/*/memory.json"):
        path.write_text("{")
    (folder / "jobs" / "erm-dvd-0" / "metrics.jsonl").write_text('{"step": 10, "loss": NaN}\n{"step": 20, "lo')
    text = write_report(folder).read_text(encoding="utf-8")
    assert list(Page(text).sections) == ["comparison", "domains", "curves", "cost", "reproduce"]
    for said in ("runs.jsonl", "data.json", "features.npz", "memory.json", "metrics.jsonl", "No features", "No memory"):
        assert said in text
    assert "runs.jsonl: broken lines were skipped (13)" in caplog.text


def test_without_matplotlib_the_report_has_no_charts(tmp_path, monkeypatch):
    monkeypatch.setattr(charts.importlib.util, "find_spec", lambda name: None)
    text = write_report(small_run(tmp_path)).read_text(encoding="utf-8")
    assert "Charts need matplotlib" in text and "<svg" not in text and "scores highest" in text


def test_folders_and_baselines_that_do_not_exist(runs, tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        write_report(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="`baseline` 'irm' is not known"):
        write_report(runs["text"], tmp_path / "other.html", baseline="irm")
    with pytest.raises(FileNotFoundError, match="neither run.json"):
        write_report(tmp_path)
