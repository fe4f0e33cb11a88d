# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The command that makes tables of result files."""

import os
import sys
from pathlib import Path

import pytest
from reporting.test_results import both, cells, row, write

from hf_memaug.reporting.results import read_results, results_table

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "figures"))
from tables import main


def of_head(rows, head):
    return [row for row in rows if row.get("head") == head]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mil.json"
    write(path, both(head="fine-tuning"))
    write(path, [{**r, "value": r["value"] - 5} for r in both(head="prompting")])
    # Another metric of other data, without the usual baseline.
    write(path, [row("f+v", "travel", seed, 50.0, data="mnli5", metric="accuracy") for seed in range(2)])
    return path


def test_one_table_for_each_setting(file, capsys):
    main([str(file)])
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if line.startswith("#")] == [
        "# Table 1",
        "## amazon, roberta-base, fine-tuning, macro_f1",
        "## amazon, roberta-base, prompting, macro_f1",
        "## mnli5, roberta-base, accuracy",
    ]
    rows = read_results(file)["rows"]
    for head in ("fine-tuning", "prompting"):
        assert results_table(of_head(rows, head), data="amazon") in shown
    assert results_table(rows, data="mnli5", baseline=None) in shown
    date = read_results(file)["date"]
    assert shown.count("Seeds: 0, 1, 2. ") == 2 and shown.count("Seeds: 0, 1. ") == 1 and shown.count(f", {date}.") == 3
    assert "```bash\npython examples/mil.py\n```" in shown and "`mil.json`" in shown


def test_filters_and_output(file, capsys, tmp_path):
    output = tmp_path / "tables" / "mil.md"
    main([str(file), "--data", "amazon", "--head", "prompting", "--baseline", "mil", "--output", str(output)])
    assert capsys.readouterr().out == ""
    text = output.read_text(encoding="utf-8")
    assert text.count("## ") == 1 and "prompting" in text and "−3.0 (p = 0.035)" in text
    assert os.listdir(output.parent) == ["mil.md"]
    main([str(file), "--data", "amazon", "--head", "prompting", "--cross", "dvd"])
    assert (
        cells(capsys.readouterr().out)["mil"]
        == cells(results_table(of_head(read_results(file)["rows"], "prompting"), data="amazon", cross=["dvd"]))["mil"]
    )


def test_without_erm_the_first_method_is_compared_with(tmp_path, capsys):
    path = tmp_path / "gmap.json"
    write(path, [row(method, "books", seed, 50.0 + seed) for method in ("dapt", "gmap") for seed in range(2)])
    main([str(path)])
    assert "− dapt: difference" in capsys.readouterr().out


def test_only_the_models_of_some_seeds(file, capsys):
    main([str(file), "--data", "amazon", "--head", "prompting", "--seeds", "0", "2"])
    shown = capsys.readouterr().out
    rows = [row for row in read_results(file)["rows"] if row["seed"] in (0, 2)]
    assert results_table(of_head(rows, "prompting"), data="amazon") in shown and "Seeds: 0, 2." in shown
    assert results_table(of_head(read_results(file)["rows"], "prompting"), data="amazon") not in shown
    # A target that these seeds lack is not left out of the average.
    write(file, [row("erm", "kitchen", 1, 50.0, head="prompting")])
    main([str(file), "--data", "amazon", "--head", "prompting", "--seeds", "0", "2"])
    assert "Seeds: none in full." in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([str(file), "--seeds", "0", "7"])
    assert "`seeds` [7] are not known: choose among [0, 1, 2]" in capsys.readouterr().err


def test_the_interval_of_a_difference(file, capsys):
    main([str(file), "--data", "amazon", "--head", "prompting", "--interval"])
    shown = capsys.readouterr().out
    assert "95 % interval and p-value of a paired t-test" in shown
    assert cells(shown[shown.index("| method") :])["mil"][-1] == "+3.0 (+0.5 to +5.5, p = 0.035)"


def test_a_setting_that_rows_differ_in_is_a_row_each(tmp_path, capsys):
    path = tmp_path / "curve.json"
    write(path, [row("erm", "books", seed, 60.0 + seed) for seed in range(3)])
    for rate, better in ((1e-05, 2.0), (0.0, 1.0)):
        write(path, [row("mil", "books", seed, 60.0 + seed * better, rate=rate) for seed in range(3)])
    main([str(path), "--by", "rate"])
    shown = cells(text := capsys.readouterr().out)
    assert text.index("| erm") < text.index("| mil, rate 0 ") < text.index("| mil, rate 1e-05"), "in their order"
    assert shown["erm"][-2] == "61.0 ± 1.0" and shown["mil, rate 0"][-1].startswith("+0.0")
    assert shown["mil, rate 1e-05"][-1].startswith("+1.0 (p = 0.2")
    main([str(path), "--by", "rate", "--baseline", "mil, rate 1e-05"])
    assert cells(capsys.readouterr().out)["erm"][-1].startswith("−1.0")
    for arguments, message in (([], "`--by FIELD`"), (["--by", "raet"], "`--by` 'raet' is not known")):
        with pytest.raises(SystemExit):
            main([str(path), *arguments])
        assert message in capsys.readouterr().err


def test_methods_of_a_second_file_stand_beside(tmp_path, capsys):
    first, second = tmp_path / "mil.json", tmp_path / "longer" / "mil.json"
    write(first, [row("erm", "books", seed, 60.0 + seed) for seed in range(3)])
    second.parent.mkdir()
    write(second, [row("erm", "books", seed, 61.0 + seed + seed % 2) for seed in range(3)])
    write(second, [row("erm", "books", 0, 61.0, data="other")])
    main([str(first), str(second)])
    text = capsys.readouterr().out
    shown = cells(text)
    assert shown["erm"][-1] == "-" and shown["erm, longer"][-1].startswith("+1.3 (p = 0.05")
    assert f"`{tmp_path.name}/mil.json`, `longer/mil.json`" in text and "other" not in text
    write(third := tmp_path / "third.json", [row("erm", "books", 0, 61.0, data="other")])
    with pytest.raises(SystemExit):
        main([str(first), str(third)])
    assert "has no row of the data, backbone, head and metric" in capsys.readouterr().err


def test_another_metric_stands_in_where_a_target_lacks_one(tmp_path, capsys):
    path = tmp_path / "gmap.json"
    for method, values in (("erm", (60.0, 62.0)), ("mil", (64.0, 63.0))):
        for target, part in (("books", 0), ("dvd", 10)):
            write(path, [row(method, target, seed, value + part) for seed, value in enumerate(values)])
        write(path, [row(method, "books", seed, value - 20, metric="unseen") for seed, value in enumerate(values)])
    main([str(path), "--metric", "unseen", "--or-metric", "macro_f1"])
    shown = capsys.readouterr().out
    assert "Targets without `unseen` have `macro_f1` in its place: dvd." in shown
    found = cells(shown)["erm"]
    assert [text.strip("* ") for text in found[:3]] == ["41.0 ± 1.4", "71.0 ± 1.4", "56.0 ± 1.4"]
    with pytest.raises(SystemExit):
        main([str(path), "--or-metric", "macro_f1"])
    assert "pass `--metric` as well" in capsys.readouterr().err


def test_says_which_seeds_are_in_an_average(file, capsys):
    write(file, [row("dapt", target, 0, 80.0, head="prompting") for target in ("books", "dvd")])
    write(file, [row("late", "dvd", 0, 80.0, head="prompting")])
    main([str(file), "--head", "prompting"])
    assert "Seeds: erm 0, 1, 2; mil 0, 1, 2; dapt 0; late none in full. " in capsys.readouterr().out


def test_average_needs_the_targets_that_other_tables_of_the_data_have(file, capsys):
    write(file, [row(m, "books", s, 80.0, head="frozen") for m in ("erm", "mil") for s in range(2)])
    main([str(file), "--head", "frozen"])
    shown = cells(capsys.readouterr().out)
    assert shown["method"] == ["books", "dvd", "average", "− erm"] and shown["mil"] == ["80.0 ± 0.0", "-", "-", "-"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--baseline", "emr"], "`--baseline` 'emr' is not known"),
        (["--data", "amazn"], "`data` 'amazn' is not known"),
        (["--data", "mnli5", "--head", "prompting"], "`head` 'prompting' is not known"),
    ],
)
def test_refusals_of_the_command_line(file, capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        main([str(file), *arguments])
    assert stop.value.code == 2 and message in capsys.readouterr().err
