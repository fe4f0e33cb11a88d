# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The picture of differences shows what `compare_rows` finds, a line for each setting of each file."""

import numpy as np
import pytest
from reporting.test_results import both, row, rows_of, write

pytest.importorskip("matplotlib", reason="figures need matplotlib: pip install hf_memaug[report]")

from hf_memaug.reporting.differences import find_differences, main, plot_differences
from hf_memaug.reporting.results import compare_rows, read_results


@pytest.fixture
def files(tmp_path):
    """Two settings of amazon and one of mnli5, and a folder with another budget, of amazon alone."""
    first, second = tmp_path / "mil" / "table1.json", tmp_path / "longer" / "table1.json"
    write(first, both(head="fine-tuning"))
    write(first, [{**r, "value": r["value"] - r["seed"]} for r in both(head="prompting") if r["method"] == "erm"])
    write(first, [r for r in both(head="prompting") if r["method"] == "mil"])
    write(first, both(head="fine-tuning", data="mnli5"))
    write(second, [{**r, "value": r["value"] / 2} for r in both(head="prompting")])
    write(second, rows_of("mil-fresh", {0: (40.0, 40.0)}, head="prompting"))
    # Somebody else's rows, which have no baseline.
    write(second, [row("mil", "travel", seed, 50.0, data="mnli5") for seed in range(3)])
    return [str(first), str(second)]


def test_each_setting_of_each_file(files):
    found = find_differences(files, ["mil"])
    assert [(one["data"], one["setting"]) for one in found] == [
        ("amazon", "roberta-base, fine-tuning"),
        ("amazon", "roberta-base, prompting"),
        ("mnli5", "roberta-base, fine-tuning"),
        ("amazon", "roberta-base, prompting, longer"),
    ]
    for one, file, head in zip(found, [files[0]] * 3 + [files[1]], [None, None, None, "prompting"], strict=True):
        head = head or one["setting"].split(", ")[1]
        expected = compare_rows(read_results(file)["rows"], "mil", data=one["data"], head=head)
        for name in ("difference", "low", "high", "p_value", "n"):
            assert one[name] == expected[name]
    assert found[0]["difference"] == pytest.approx(3.0) and found[3]["difference"] == pytest.approx(1.5)


def test_several_methods_other_baselines_and_seeds(files):
    found = find_differences(files, ["mil", "mil-fresh"])
    (fresh,) = [one for one in found if one["method"] == "mil-fresh"]
    # One seed has a difference and no interval: ERM's half of 80 there.
    assert fresh["difference"] == pytest.approx(0.0) and fresh["n"] == 1 and fresh["low"] is None
    backwards = find_differences(files, ["erm"], baseline="mil")
    assert backwards[0]["difference"] == pytest.approx(-3.0)
    assert [one["n"] for one in find_differences(files, ["mil"], seeds=[0, 1])] == [2, 2, 2, 2]


def test_a_target_that_a_setting_lacks_does_not_vanish_from_the_average(tmp_path):
    file = tmp_path / "table1.json"
    write(file, both(head="fine-tuning") + [r for r in both(head="prompting") if r["target"] == "books"])
    (only,) = find_differences([file], ["mil"])
    assert only["setting"] == "roberta-base, fine-tuning"


def test_the_picture_shows_them(files, tmp_path, drawn):
    found = find_differences(files, ["mil", "mil-fresh"])
    path = plot_differences(found, tmp_path / "new" / "differences.png", baseline="erm", mark=1.0)
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    amazon, mnli5 = drawn[0].axes
    assert (amazon.get_title(), mnli5.get_title()) == ("amazon", "mnli5")
    labels = [text.get_text() for text in amazon.get_yticklabels()]
    assert labels == ["roberta-base, fine-tuning", "roberta-base, prompting", "roberta-base, prompting, longer"]
    for axes, data in ((amazon, "amazon"), (mnli5, "mnli5")):
        shown = sorted(float(x) for bar in axes.containers for x in np.atleast_1d(bar.lines[0].get_xdata()))
        assert shown == pytest.approx(sorted(one["difference"] for one in found if one["data"] == data))
        # What it may still be, from end to end.
        ends = [segment[:, 0] for bar in axes.containers for segment in bar.lines[2][0].get_segments()]
        expected = [(one["low"], one["high"]) for one in found if one["data"] == data and one["low"] is not None]
        drawn_ends = sorted(map(tuple, (end for end in ends if end[0] != end[1])))
        np.testing.assert_allclose(drawn_ends, sorted(expected))
        assert [0.0, 0.0] in [list(line.get_xdata()) for line in axes.lines]
        assert [1.0, 1.0] in [list(line.get_xdata()) for line in axes.lines]
    # A setting is on the same height in both panels, and the first one on top.
    assert amazon.get_ylim() == mnli5.get_ylim() and amazon.get_ylim()[0] > amazon.get_ylim()[1]
    assert amazon.get_xlim() == mnli5.get_xlim()
    mil, fresh = (list(bar.lines[0].get_ydata()) for bar in amazon.containers)
    assert mil[:2] == [0, 1] and mil[2] < 2 < fresh[0] and mil[2] + fresh[0] == pytest.approx(4)
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["mil", "mil-fresh"]


def test_one_method_needs_no_legend(files, tmp_path, drawn):
    plot_differences(find_differences(files, ["mil"]), tmp_path / "differences.png", baseline="erm")
    assert not drawn[0].legends and "mil − erm" in drawn[0].axes[0].get_xlabel()


def test_the_command(files, tmp_path, capsys):
    output = tmp_path / "differences.png"
    main([*files, "--methods", "mil", "--mark", "1", "--output", str(output)])
    said = capsys.readouterr().out
    assert output.exists() and str(output) in said
    assert "amazon  roberta-base, fine-tuning        mil  +3.0 (+0.5 to +5.5, p = 0.035)" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--methods", "mill"], "Did you mean 'mil'"),
        (["--methods", "mil", "--baseline", "em"], "Did you mean 'erm'"),
        (["--methods", "mil", "--metric", "accuracy"], "accuracy"),
        (["--methods", "mil", "--seeds", "9"], "`seeds` 9 is not known"),
        (["--methods", "mil", "--output", "x.pdf"], "end it in '.png'"),
        (["--methods", "erm"], "`methods` holds the baseline"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_the_mend(files, arguments, words, capsys):
    with pytest.raises(SystemExit):
        main([*files, *arguments])
    assert words in capsys.readouterr().err


def test_the_same_file_twice_and_files_without_a_pair_are_refused(files, tmp_path):
    with pytest.raises(ValueError, match="both have 'mil' of amazon, macro_f1, roberta-base, fine-tuning"):
        find_differences([files[0], files[0]], ["mil"])
    lone = tmp_path / "lone.json"
    write(lone, rows_of("erm", {0: (1.0, 2.0)}) + rows_of("mil", {1: (1.0, 2.0)}))
    with pytest.raises(ValueError, match="no seed that `mil` and `erm` both have in full"):
        find_differences([lone], ["mil"])
