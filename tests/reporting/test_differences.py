# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The picture of differences shows what `compare_rows` finds, a line for each setting of each file."""

import numpy as np
import pytest
from reporting.test_results import MIL, both, row, rows_of, write

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
    write(second, rows_of("mil", MIL, data="mnli5"))
    return [str(first), str(second)]


def test_each_setting_of_each_file(files):
    *found, lacking = find_differences(files, ["mil"])
    assert [(one["data"], one["metric"], one["setting"]) for one in found] == [
        ("amazon", "macro_f1", "roberta-base, fine-tuning, mil"),
        ("amazon", "macro_f1", "roberta-base, prompting, mil"),
        ("mnli5", "macro_f1", "roberta-base, fine-tuning, mil"),
        ("amazon", "macro_f1", "roberta-base, prompting, longer"),
    ]
    # Nobody trained its baseline.
    assert (lacking["data"], lacking["setting"]) == ("mnli5", "roberta-base, longer")
    assert lacking["difference"] is None and lacking["n"] == 0
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
    assert [one["n"] for one in find_differences(files, ["mil"], seeds=[0, 1])] == [2, 2, 2, 2, 0]
    # What has no model of these seeds is named too.
    assert [one["n"] for one in find_differences(files, ["mil", "mil-fresh"], seeds=[1, 2])].count(0) == 2
    assert find_differences(files, "mil") == find_differences(files, ["mil", "mil"]) == find_differences(files, ["mil"])
    folds = find_differences(files, ["mil"], over="targets")
    assert folds[0]["n"] == 2 and folds[0]["p_value"] != find_differences(files, ["mil"])[0]["p_value"]


@pytest.mark.parametrize("apart", [True, False])
def test_a_target_that_a_setting_lacks_does_not_vanish_from_the_average(apart, tmp_path):
    whole, part = both(head="fine-tuning"), [r for r in both(head="prompting") if r["target"] == "books"]
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    write(first, whole if apart else whole + part)
    if apart:
        write(second, part)
    found = find_differences([first, second] if apart else [first], ["mil"])
    assert [(one["setting"], one["n"]) for one in found] == [
        ("roberta-base, fine-tuning", 3),
        ("roberta-base, prompting", 0),
    ]


def test_other_test_sets_are_no_domains(tmp_path):
    file = tmp_path / "table1.json"
    write(file, both() + [row(method, "imdb", seed, 10.0) for method in ("erm", "mil") for seed in range(3)])
    (found,) = find_differences([file], ["mil"])
    assert found["difference"] == pytest.approx(3.0)
    (found,) = find_differences([file], ["mil"], cross=["dvd"])
    assert found["difference"] == pytest.approx((np.mean([3, 5, 2]) + 0) / 2)


def test_files_are_told_apart_by_what_they_differ_in(tmp_path):
    paths = [tmp_path / folder / name for folder, name in (("p/x", "a"), ("p/x", "b"), ("q/x", "a"))]
    paths = [path.with_suffix(".json") for path in paths]
    for path in paths:
        write(path, both())

    def settings(files):
        return [one["setting"] for one in find_differences(files, ["mil"])]

    assert settings(paths[:1]) == ["roberta-base"]
    assert settings(paths[:2]) == ["roberta-base, a", "roberta-base, b"]
    assert settings(paths[::2]) == ["roberta-base, p/x", "roberta-base, q/x"] == settings(paths[::-2])[::-1]
    assert settings(paths) == ["roberta-base, p/x/a", "roberta-base, p/x/b", "roberta-base, q/x"]


@pytest.fixture
def two_metrics(tmp_path):
    file = tmp_path / "ida.json"
    write(file, both() + [{**r, "value": -r["value"] / 10} for r in both(metric="forgetting")])
    # A target of one metric alone is none of the other's.
    write(file, [row(method, "kitchen", 0, 1.0, metric="forgetting") for method in ("erm", "mil")])
    return str(file)


def test_each_metric_has_its_panel_and_its_scale(two_metrics, tmp_path, drawn, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main([two_metrics, "--methods", "mil", "--mark", "2", "--output", str(tmp_path / "one.png")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "amazon  forgetting  roberta-base  mil  −0.2 (n = 1)"
    assert lines[1] == "amazon  macro_f1    roberta-base  mil  +3.0 (+0.5 to +5.5, p = 0.035)"
    forgetting, f1 = drawn[0].axes
    assert (f1.get_title(), forgetting.get_title()) == ("amazon, macro_f1", "amazon, forgetting")
    assert f1.get_xlabel() == "mil − erm, macro_f1"
    assert forgetting.get_xlabel() == "mil − erm, forgetting (lower is better)"
    assert f1.get_xlim() != forgetting.get_xlim()
    assert [text.get_text() for text in forgetting.get_yticklabels()] == ["roberta-base"]
    assert [text.get_text() for text in f1.get_yticklabels()] == [""]
    assert [2.0, 2.0] in [list(line.get_xdata()) for line in f1.lines]
    assert "`macro_f1` of amazon is without kitchen" in lines and "`forgetting` of" not in "".join(lines)
    main([two_metrics, "--methods", "erm", "--baseline", "mil", "--metric", "macro_f1", "--seeds", "0", "2"])
    said = capsys.readouterr().out
    assert "forgetting" not in said and "−3.5 (" in said and (tmp_path / "differences.png").exists()
    assert [axes.get_xlabel() for axes in drawn[1].axes] == ["erm − mil, macro_f1"]
    assert not any(2.0 in line.get_xdata() for line in drawn[1].axes[0].lines)


def test_many_data_sets_stand_below_each_other(tmp_path, drawn):
    file = tmp_path / "many.json"
    write(file, [r for number in range(5) for r in both(data=f"set {number}")])
    plot_differences(find_differences([file], ["mil"]), tmp_path / "many.png")
    shown = [axes for axes in drawn[0].axes if axes.axison]
    assert {axes.get_subplotspec().rowspan.start for axes in shown} == {0, 1} and len(shown) == 5
    named = [axes.get_title() for axes in shown if any(t.get_text() for t in axes.get_yticklabels())]
    assert named == ["set 0", "set 3"]


def test_the_picture_shows_them(files, tmp_path, drawn):
    found = find_differences(files, ["mil", "mil-fresh"])
    path = plot_differences(found, tmp_path / "new" / "differences.png", mark=1.0)
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    amazon, mnli5 = drawn[0].axes
    assert (amazon.get_title(), mnli5.get_title()) == ("amazon", "mnli5")
    labels = [text.get_text() for text in amazon.get_yticklabels()]
    settings = ["fine-tuning, mil", "prompting, mil", "prompting, longer"]
    assert labels == [f"roberta-base, {setting}" for setting in settings]
    found = [one for one in found if one["n"]]
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
    plot_differences(find_differences(files, ["mil"]), tmp_path / "differences.png")
    assert not drawn[0].legends and "mil − erm" in drawn[0].axes[0].get_xlabel()


def test_the_command(files, tmp_path, capsys):
    output = tmp_path / "differences.png"
    main([*files, "--methods", "mil", "--mark", "1", "--output", str(output)])
    said = capsys.readouterr().out
    assert output.exists() and str(output) in said
    assert "amazon  macro_f1  roberta-base, fine-tuning, mil   mil  +3.0 (+0.5 to +5.5, p = 0.035)" in said
    assert "mnli5   macro_f1  roberta-base, longer             mil  not drawn: no seed has all targets of both" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--methods", "mill"], "Did you mean 'mil'"),
        (["--methods", "mil", "--baseline", "em"], "Did you mean 'erm'"),
        (["--methods", "mil", "--metric", "accuracy"], "accuracy"),
        (["--methods", "mil", "--seeds", "9"], "`seeds` 9 is not known"),
        (["--methods", "mil", "--output", "x.pdf"], "end it in '.png'"),
        (["--methods", "erm"], "name what is compared with the baseline, 'erm'"),
        (["--methods", "mil", "--mark", "nan"], "`mark` is nan"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_the_mend(files, arguments, words, capsys):
    with pytest.raises(SystemExit):
        main([*files, *arguments])
    assert words in capsys.readouterr().err


def test_files_without_a_pair_are_refused(files, tmp_path):
    with pytest.raises(ValueError, match="name files with rows, each once"):
        find_differences([files[0], files[0]], ["mil"])
    with pytest.raises(ValueError, match=r"`methods` is \[\]"):
        find_differences(files, [])
    with pytest.raises(ValueError, match="`differences` is empty"):
        plot_differences([], tmp_path / "x.png")
    lone = tmp_path / "lone.json"
    write(lone, rows_of("erm", {0: (1.0, 2.0)}) + rows_of("mil", {1: (1.0, 2.0)}))
    with pytest.raises(
        ValueError, match=r"no seed that `mil` and `erm` both have with all targets \(amazon, macro_f1: books, dvd"
    ):
        find_differences([lone], ["mil"])
