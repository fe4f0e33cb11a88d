# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The figure of differences shows what `compare` finds, a line for each setting of each file."""

import sys
from pathlib import Path

import pytest
from reporting.test_results import MIL, both, rows_of, write

pytest.importorskip("matplotlib", reason="figures need matplotlib: pip install hf_memaug[report]")

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "figures"))
from differences import find_differences, main, plot_differences


@pytest.fixture
def files(tmp_path):
    """Two settings of amazon and one of mnli5, and a folder with another budget."""
    first, second = tmp_path / "mil" / "table1.json", tmp_path / "longer" / "table1.json"
    write(first, [*both(head="fine-tuning"), *both(head="prompting"), *both(head="fine-tuning", data="mnli5")])
    write(second, [{**r, "value": r["value"] / 2} for r in both(head="prompting")])
    write(second, rows_of("mil-fresh", {0: (40.0, 40.0)}, head="prompting"))
    # Without a baseline.
    write(second, rows_of("mil", MIL, data="mnli5"))
    return [str(first), str(second)]


def test_each_setting_of_each_file(files):
    found = find_differences(files, ["mil"])
    assert [(one.data, one.setting, one.found.n) for one in found] == [
        ("amazon", "roberta-base, fine-tuning, mil", 3),
        ("amazon", "roberta-base, prompting, mil", 3),
        ("mnli5", "roberta-base, fine-tuning, mil", 3),
        ("amazon", "roberta-base, prompting, longer", 3),
        ("mnli5", "roberta-base, longer", 0),
    ]
    assert found[0].found.difference == pytest.approx(3.0) and found[3].found.difference == pytest.approx(1.5)
    (fresh,) = find_differences(files, ["mil-fresh"])
    assert fresh.found.difference == pytest.approx(0.0) and fresh.found.test is None
    assert find_differences(files, ["erm"], baseline="mil")[0].found.difference == pytest.approx(-3.0)
    assert [one.found.n for one in find_differences(files, ["mil"], seeds=[0, 1])] == [2, 2, 2, 2, 0]


def test_files_of_one_folder_with_the_same_tables_are_named(tmp_path):
    write(tmp_path / "a.json", both())
    write(tmp_path / "b.json", both())
    found = find_differences([tmp_path / "a.json", tmp_path / "b.json"], ["mil"])
    assert [one.setting for one in found] == ["roberta-base, a", "roberta-base, b"]


def test_an_average_is_over_the_targets_of_all_files(files, tmp_path):
    write(tmp_path / "more.json", [{**row, "target": "kitchen", "seed": 9} for row in both() if row["target"] == "dvd"])
    assert all(one.found.n == 0 for one in find_differences([*files, tmp_path / "more.json"], ["mil"])[:2])


def test_the_figure_has_lines_intervals_and_one_scale(files, tmp_path, drawn):
    found = find_differences(files, ["mil", "mil-fresh"])
    path = plot_differences(found, tmp_path / "deep" / "differences.png", mark=1.0)
    assert path.read_bytes().startswith(b"\x89PNG")
    amazon, mnli5 = drawn[0].axes
    assert [tick.get_text() for tick in amazon.get_yticklabels()] == [
        "roberta-base, fine-tuning, mil",
        "roberta-base, prompting, mil",
        "roberta-base, prompting, longer",
    ]
    mil, fresh = amazon.containers
    assert mil[0].get_xdata() == pytest.approx([3.0, 3.0, 1.5]) and fresh[0].get_xdata() == pytest.approx([0.0])
    (start, end), *_ = mil[2][0].get_segments()
    assert (start[0], end[0]) == pytest.approx((3 - 4.302653 / 3**0.5, 3 + 4.302653 / 3**0.5), abs=1e-5)
    assert amazon.get_xlim() == mnli5.get_xlim()


def test_the_command(files, tmp_path, capsys):
    output = tmp_path / "differences.png"
    main([*files, "--methods", "mil", "--output", str(output)])
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split("  ")[-1] == "+3.0 (+0.5 to +5.5, p = 0.035)"
    assert "no seed has all targets" in shown[4] and shown[-1] == str(output) and output.exists()
    for arguments, message in (
        (["--methods", "mli"], "`methods` 'mli' is not known"),
        (["--methods", "mil", "--seeds", "7"], "`seeds` [7] are not known"),
        (["--methods", "mil-fresh", "--seeds", "1"], "have no seed for which both"),
    ):
        with pytest.raises(SystemExit):
            main([*files, *arguments, "--output", str(output)])
        assert message in capsys.readouterr().err
