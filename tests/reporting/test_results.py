# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Result files keep what is written, and every mean and test can be recomputed by hand."""

import json
import math
import os
import sys

import numpy as np
import pytest

from hf_memaug.reporting import results
from hf_memaug.reporting.results import FIELDS, compare, read_results, results_table, scores_of, write_results

# seed -> (books, dvd); the averages are 80, 82, 84 and 83, 84, 88, their differences 3, 2, 4.
ERM = {0: (79.0, 81.0), 1: (80.0, 84.0), 2: (86.0, 82.0)}
MIL = {0: (82.0, 84.0), 1: (85.0, 83.0), 2: (88.0, 88.0)}
TARGETS = ["books", "dvd"]


def row(method="erm", target="books", seed=0, value=80.0, **more) -> dict:
    fields = {"data": "amazon", "backbone": "roberta-base", "metric": "macro_f1", **more}
    return {"method": method, "target": target, "seed": seed, "value": value, **fields}


def rows_of(method, scores, **more) -> list[dict]:
    return [
        row(method, target, seed, value, **more)
        for seed, values in scores.items()
        for target, value in zip(TARGETS, values, strict=True)
    ]


def both(**more) -> list[dict]:
    return rows_of("erm", ERM, **more) + rows_of("mil", MIL, **more)


def cells(table: str) -> dict[str, list[str]]:
    lines = [[cell.strip().strip("*") for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {line[0]: line[1:] for line in lines}


def write(path, rows, table="Table 1", command="python examples/mil.py"):
    return write_results(path, table=table, command=command, rows=rows)


# The file


def test_the_file_says_where_the_numbers_come_from(tmp_path):
    import torch

    import hf_memaug

    path = tmp_path / "kv_memory" / "mil.json"
    returned = write(path, both())
    assert read_results(path) == returned == json.loads(path.read_text(encoding="utf-8"))
    assert list(returned) == ["table", "command", "device", "versions", "date", "rows"]
    assert returned["device"] == (torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU")
    assert returned["versions"]["python"] == sys.version.split()[0]
    assert returned["versions"]["hf_memaug"] == hf_memaug.__version__
    assert len(returned["rows"]) == 12 and all(tuple(entry) == FIELDS for entry in returned["rows"])
    assert os.listdir(path.parent) == ["mil.json"]


def test_a_new_seed_adds_one_line(tmp_path):
    path = tmp_path / "a.json"
    write(path, both())
    before = path.read_text(encoding="utf-8").splitlines()
    write(path, [row(seed=3, value=-232.7)])  # as an r2 can be
    added = [line for line in path.read_text(encoding="utf-8").splitlines() if line not in before]
    assert len(added) == 1 and '"seed": 3' in added[0]


def test_rows_are_sorted_but_methods_stay_as_they_came(tmp_path):
    rows = [row("mil", "dvd", 10), row("mil", "dvd", 9), row("mil", "books", 0), row("erm", "dvd", 0), row("erm")]
    written = write(tmp_path / "a.json", rows)["rows"]
    order = " ".join(f"{entry['method']}-{entry['target']}-{entry['seed']}" for entry in written)
    assert order == "mil-books-0 mil-dvd-9 mil-dvd-10 erm-books-0 erm-dvd-0"
    rows = [row("erm", data="b"), row("mil", data="b"), row("mil", data="a"), row("erm", data="a")]
    written = write(tmp_path / "b.json", rows)["rows"]
    assert " ".join(entry["data"] + "-" + entry["method"] for entry in written) == "a-mil a-erm b-erm b-mil"


def test_a_row_replaces_the_row_of_its_setting(tmp_path):
    path = tmp_path / "a.json"
    write(path, [row(value=70.0), row(seed=1, value=71.0)])
    again = dict(reversed(row(value=75.0).items()))
    written = write(path, [again, row(value=60.0, head="prompting")], command="python again.py")
    assert [(entry["seed"], entry["value"]) for entry in written["rows"]] == [(0, 75.0), (1, 71.0), (0, 60.0)]
    assert written["command"] == "python again.py" and written["earlier_commands"] == ["python examples/mil.py"]
    assert "earlier_commands" not in write(path, written["rows"], command="python all.py")


def test_device_and_versions_name_all_that_rows_were_made_with(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    made = {"python": "3.11", "torch": "2.6", "transformers": "5.17", "hf_memaug": "0.1.0"}
    monkeypatch.setattr(results, "here", lambda: {"device": "CPU", **made})
    write(path, [row(seed=0), row(seed=1)])
    monkeypatch.setattr(results, "here", lambda: {"device": "NVIDIA H200", **made, "torch": "2.7"})
    written = write(path, [row(seed=1)])
    assert written["device"] == "CPU; NVIDIA H200" and written["versions"] == {**made, "torch": "2.6; 2.7"}
    # No row of the first device is left.
    assert write(path, [row(seed=0), row(seed=1)])["device"] == "NVIDIA H200"


@pytest.mark.parametrize(
    "change, message",
    [
        ({"value": math.nan}, r"`value` is nan .*: pass a finite number in points"),
        ({"value": "91.2"}, "`value` is '91.2'"),
        ({"value": True}, "`value` is True"),
        ({"value": 912.0}, "`value` is 912.0"),
        ({"target": "average"}, '`target` is "average"'),
        ({"dev": math.nan}, "JSON"),
    ],
    ids=str,
)
def test_a_broken_row_is_an_error_and_nothing_is_written(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        write(tmp_path / "a.json", [row(seed=1), {**row(), **change}])
    assert not (tmp_path / "a.json").exists()


def test_errors_of_writing(tmp_path):
    with pytest.raises(ValueError, match="lacks `backbone`: every row has"):
        write(tmp_path / "a.json", [{name: value for name, value in row().items() if name != "backbone"}])
    with pytest.raises(ValueError, match="`rows` is empty"):
        write(tmp_path / "a.json", [])
    write(tmp_path / "a.json", [row()])
    with pytest.raises(ValueError, match="`table` is 'Table 2', but .*a.json holds 'Table 1': choose another `path`"):
        write(tmp_path / "a.json", [row()], table="Table 2")


@pytest.mark.parametrize("content", ["", "[]", '{"table": "x", "rows": [', '{"table": "t", "rows": []}'])
def test_a_broken_file_is_an_error_and_kept(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"`path` .*a.json is not a result file: "):
        write(path, [row()])
    assert path.read_text(encoding="utf-8") == content


# Comparisons


def test_comparison_by_hand():
    found = compare(scores_of(both()), "mil", "erm", TARGETS)
    assert found.averages == {0: 83.0, 1: 84.0, 2: 88.0} and found.n == 3
    assert found.difference == pytest.approx(3.0)
    # t = 3 / (1 / sqrt(3)) = sqrt(27); with two degrees of freedom p = 1 - t / sqrt(t² + 2).
    assert found.test.p_value == pytest.approx(1 - math.sqrt(27) / math.sqrt(29))
    # The 97.5 % quantile of t with two degrees of freedom is 4.302653.
    ends = 3 - 4.302653 / 3**0.5, 3 + 4.302653 / 3**0.5
    assert (found.test.low, found.test.high) == pytest.approx(ends, abs=1e-5)
    rows = [row(method, "dvd", seed, 99.0 * (seed == place)) for place, method in enumerate("ab") for seed in range(3)]
    wide = compare(scores_of(rows), "a", "b", ["dvd"]).test
    assert (wide.low, wide.high) == (-100.0, 100.0), "two scores differ by 100 points at most"


def test_seeds_that_lack_a_target_do_not_count():
    rows = [r for r in both() if (r["method"], r["target"], r["seed"]) != ("mil", "dvd", 2)]
    found = compare(scores_of(rows), "mil", "erm", TARGETS)
    assert list(found.averages) == [0, 1] and found.n == 2 and found.difference == pytest.approx(2.5)
    assert found.test is None and found.text(interval=True) == "+2.5 (n = 2)"
    one = compare(scores_of(r for r in both() if r["method"] == "erm" or r["seed"] == 1), "mil", "erm", TARGETS)
    assert (one.n, one.difference, one.test, one.text()) == (1, 2.0, None, "+2.0 (n = 1)")
    apart = rows_of("erm", {0: (80.0, 81.0)}) + rows_of("mil", {1: (80.0, 81.0)})
    none = compare(scores_of(apart), "mil", "erm", TARGETS)
    assert (none.n, none.difference, none.text()) == (0, None, "-")


def test_folds_are_paired_over_targets():
    scores = scores_of(
        row(method, str(fold), 0, value)
        for fold in range(6)
        for method, value in (("erm", 70.0 + fold), ("mil", 72.0 + fold + fold % 2))
    )
    folds = [str(fold) for fold in range(6)]
    assert compare(scores, "mil", "erm", folds).test is None
    found = compare(scores, "mil", "erm", folds, over="targets")
    stats = pytest.importorskip("scipy.stats")
    expected = stats.ttest_rel([72.0 + fold + fold % 2 for fold in range(6)], [70.0 + fold for fold in range(6)])
    assert found.n == 6 and found.test.p_value == pytest.approx(expected.pvalue)


@pytest.mark.parametrize("field", ["backbone", "head", "metric"])
def test_two_settings_are_never_mixed(field):
    with pytest.raises(ValueError, match="of several tables"):
        scores_of([*both(**{field: "a"}), *both(**{field: "b"})])
    with pytest.raises(ValueError, match="several values .*--by FIELD"):
        scores_of([*both(), *both(memory_slots=8)])


# Tables


def test_table_by_hand():
    rows = [*both(), *(row(m, "imdb", s, v) for m, v in (("erm", 10.0), ("mil", 15.0)) for s in range(2))]
    found = cells(results_table(rows, data="amazon"))
    assert found["method"] == ["books", "dvd", "average", "imdb", "− erm"]
    std = [np.std([values[0] for values in ERM.values()], ddof=1), np.std([82.0, 84.0, 80.0], ddof=1)]
    assert found["erm"][0] == f"81.7 ± {std[0]:.1f}" and found["erm"][2:] == [f"82.0 ± {std[1]:.1f}", "10.0 ± 0.0", "-"]
    assert found["mil"][-1] == "+3.0 (p = 0.035)"
    with_interval = cells(results_table(rows, data="amazon", interval=True))
    assert with_interval["mil"][-1] == "+3.0 (+0.5 to +5.5, p = 0.035)"
    assert cells(results_table(rows, data="amazon", cross=()))["method"] == ["books", "dvd", "imdb", "average", "− erm"]
    assert "−" not in results_table(rows, data="amazon", baseline=None)
    latex = results_table([*both(), *rows_of("a_b", MIL)], data="amazon", style="latex")
    assert r"a\_b" in latex and "$-$ erm" in latex and "\\textbf" in latex


def test_missing_cells_and_lower_is_better():
    rows = [r for r in both(metric="forgetting") if (r["method"], r["target"]) != ("mil", "dvd")]
    table = results_table(rows, data="amazon")
    assert cells(table)["mil"][1:] == ["-", "-", "-"] and "**81.7 ± 3.8**" in table
