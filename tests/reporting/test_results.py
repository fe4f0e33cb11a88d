# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Numbers go in once, come out as they were, and every mean and test can be redone by hand."""

import json
import math
import os
import sys
from datetime import datetime, timezone

import numpy as np
import pytest

from hf_memaug.reporting import results
from hf_memaug.reporting.results import FIELDS, compare_rows, read_results, results_table, write_results

# seed -> (books, dvd); the averages are 80, 82, 84 and 83, 84, 88, their differences 3, 2, 4.
ERM = {0: (79.0, 81.0), 1: (80.0, 84.0), 2: (86.0, 82.0)}
MIL = {0: (82.0, 84.0), 1: (85.0, 83.0), 2: (88.0, 88.0)}


def row(method="erm", target="books", seed=0, value=80.0, **more) -> dict:
    fields = {"data": "amazon", "backbone": "roberta-base", "metric": "macro_f1", **more}
    return {"method": method, "target": target, "seed": seed, "value": value, **fields}


def rows_of(method, scores, **more) -> list[dict]:
    return [
        row(method, target, seed, value, **more)
        for seed, values in scores.items()
        for target, value in zip(("books", "dvd"), values, strict=True)
    ]


def both(**more) -> list[dict]:
    return rows_of("erm", ERM, **more) + rows_of("mil", MIL, **more)


def cells(table: str) -> dict[str, list[str]]:
    lines = [[cell.strip().strip("*") for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {line[0]: line[1:] for line in lines}


def write(path, rows, table="Table 1", command="python examples/mil.py"):
    return write_results(path, table=table, command=command, rows=rows)


# --- the file ---------------------------------------------------------------------------------------------------------


def test_file_has_what_the_design_asks_for(tmp_path):
    import torch
    import transformers

    import hf_memaug

    path = tmp_path / "kv_memory" / "mil.json"
    before = datetime.now(timezone.utc).date().isoformat()
    returned = write(path, both())
    assert read_results(path) == returned == json.loads(path.read_text(encoding="utf-8"))
    assert list(returned) == ["table", "command", "device", "versions", "date", "rows"]
    assert returned["table"] == "Table 1" and returned["command"] == "python examples/mil.py"
    assert returned["device"] == (torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU")
    versions = returned["versions"]
    assert list(versions) == ["python", "torch", "transformers", "hf_memaug"]
    assert versions["python"] == sys.version.split()[0]
    assert versions["hf_memaug"] == hf_memaug.__version__
    assert torch.__version__.startswith(versions["torch"].split("+")[0])
    assert versions["transformers"] == transformers.__version__
    assert before <= returned["date"] <= datetime.now(timezone.utc).date().isoformat()
    assert len(returned["rows"]) == 12 and all(tuple(entry) == FIELDS for entry in returned["rows"])


def test_one_row_a_line_so_that_a_new_seed_adds_lines_only(tmp_path):
    path = tmp_path / "a.json"
    write(path, both())
    before = path.read_text(encoding="utf-8").splitlines()
    write(path, [row(seed=3, value=90.0)])
    after = path.read_text(encoding="utf-8").splitlines()
    assert sum('"method"' in line for line in before) == 12
    added = [line for line in after if line not in before]
    assert len(added) == 1 and '"seed": 3' in added[0] and len(after) == len(before) + 1


def test_rows_are_sorted_the_same_way_however_they_come_but_methods_as_they_came(tmp_path):
    rows = [row("mil", "dvd", 10), row("mil", "dvd", 9), row("mil", "books", 0), row("erm", "dvd", 0), row("erm")]
    write(tmp_path / "a.json", rows)
    write(tmp_path / "b.json", [row("mil", "books", 0)])
    for each in reversed(rows):
        write(tmp_path / "b.json", [each])
    a, b = (read_results(tmp_path / name)["rows"] for name in ("a.json", "b.json"))
    assert a == b
    order = " ".join(f"{entry['method']}-{entry['target']}-{entry['seed']}" for entry in a)
    assert order == "mil-books-0 mil-dvd-9 mil-dvd-10 erm-books-0 erm-dvd-0"
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    write(tmp_path / "a.json", a)
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == text


def test_tables_of_a_file_keep_their_own_order_of_methods(tmp_path):
    rows = [row("erm", data="b"), row("mil", data="b"), row("mil", data="a"), row("erm", data="a")]
    written = write(tmp_path / "a.json", rows)["rows"]
    assert " ".join(entry["data"] + "-" + entry["method"] for entry in written) == "a-mil a-erm b-erm b-mil"


def test_same_identity_replaces(tmp_path):
    path = tmp_path / "a.json"
    write(path, [row(value=70.0), row(seed=1, value=71.0)])
    # The order of the fields is no part of a row's identity.
    again = dict(reversed(row(value=75.0).items()))
    written = write(path, [again], command="python again.py")
    assert [(entry["seed"], entry["value"]) for entry in written["rows"]] == [(0, 75.0), (1, 71.0)]
    assert written["command"] == "python again.py"


def test_commands_of_the_rows_that_are_left_are_kept(tmp_path):
    path = tmp_path / "a.json"
    write(path, [row(), row("mil")], command="python first.py")
    assert "earlier_commands" not in read_results(path)
    write(path, [row("irm")], command="python second.py")
    assert write(path, [row("coral")], command="python third.py") == read_results(path)
    assert read_results(path)["earlier_commands"] == ["python first.py", "python second.py"]
    results.main([str(path), "--output", str(tmp_path / "table.md")])
    assert "```bash\npython first.py\npython second.py\npython third.py\n```" in (tmp_path / "table.md").read_text()
    again = write(path, [row("mil", value=1.0)], command="python first.py")
    assert again["command"] == "python first.py" and again["earlier_commands"] == [
        "python second.py",
        "python third.py",
    ]
    assert "earlier_commands" not in write(path, [row(), row("mil"), row("irm"), row("coral")], command="python all.py")


@pytest.mark.parametrize(
    "change",
    [
        {"method": "mil"},
        {"data": "agnews"},
        {"target": "dvd"},
        {"backbone": "bert-base-uncased"},
        {"seed": 1},
        {"metric": "accuracy"},
        {"head": "prompting"},
        {"shots": 16},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_other_field_makes_another_row(tmp_path, change):
    path = tmp_path / "a.json"
    write(path, [row(value=70.0)])
    assert len(write(path, [{**row(value=75.0), **change}])["rows"]) == 2


def test_numbers_of_numpy_are_numbers(tmp_path):
    written = write(tmp_path / "a.json", [row(seed=np.int64(3), value=np.float32(81.5)), row(seed=4, value=81)])
    assert written["rows"] == [row(seed=3, value=81.5), row(seed=4, value=81.0)]
    assert type(read_results(tmp_path / "a.json")["rows"][1]["value"]) is float


def test_device_and_versions_name_all_that_rows_were_made_with(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    made = {"python": "3.11", "torch": "2.6", "transformers": "5.17", "hf_memaug": "0.1.0"}
    monkeypatch.setattr(results, "here", lambda: {"device": "CPU", **made})
    write(path, [row(seed=0), row(seed=1)])
    monkeypatch.setattr(results, "here", lambda: {"device": "NVIDIA H200", **made, "torch": "2.7"})
    for _ in range(2):
        written = write(path, [row(seed=1)])
        assert written["device"] == "CPU; NVIDIA H200"
        assert written["versions"] == {**made, "torch": "2.6; 2.7"}
    # No row of the first device is left.
    both = [row(seed=0), row(seed=1)]
    assert write(path, both)["device"] == "NVIDIA H200"
    # Rows that were made elsewhere.
    elsewhere = [{"device": "A", **made}, {"device": "B", **made}, {"device": "A", **made}]
    written = write_results(path, table="Table 1", command="run", rows=both, made_with=elsewhere)
    assert written["device"] == "A; B" and written["versions"] == made


def test_no_temporary_file_is_left(tmp_path):
    write(tmp_path / "a.json", both())
    write(tmp_path / "a.json", both())
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize("step", ["write", "replace"])
def test_failing_write_leaves_the_old_file(tmp_path, monkeypatch, step):
    path = tmp_path / "a.json"
    write(path, [row()])
    before = path.read_bytes()

    def half_written(self, text, **options):
        with open(self, "w", **options) as file:
            file.write(text[: len(text) // 2])
        raise OSError("No space left on device")

    def refused(source, target):
        raise OSError("No space left on device")

    if step == "write":
        monkeypatch.setattr("pathlib.Path.write_text", half_written)
    else:
        monkeypatch.setattr("os.replace", refused)
    with pytest.raises(OSError, match="No space left"):
        write(path, [row(seed=1)])
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.json"]


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", FIELDS)
def test_missing_field_is_named(tmp_path, field):
    broken = row()
    del broken[field]
    with pytest.raises(ValueError, match=f"lacks `{field}`: every row has"):
        write(tmp_path / "a.json", [row(seed=1), broken])
    assert not (tmp_path / "a.json").exists()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "91.2", None, True, 912.0, [91.2]])
def test_value_must_be_a_finite_number_in_points(tmp_path, value):
    with pytest.raises(ValueError, match=r"`value` is .* in `rows` entry .*: pass a finite number in points \(0-100\)"):
        write(tmp_path / "a.json", [row(value=value)])


@pytest.mark.parametrize(
    "change, message",
    [
        ({"seed": 0.5}, "`seed` is 0.5 .*: pass a whole number"),
        ({"seed": True}, "`seed` is True"),
        ({"method": ""}, "`method` is ''.*: name it"),
        ({"backbone": None}, "`backbone` is None"),
        ({"target": "average"}, "`target` is 'average'.*is kept for the mean over targets"),
        ({"head": Ellipsis}, "`rows` entry .* is no JSON .*: use texts and finite numbers"),
        ({"dev": math.nan}, "`rows` entry .* is no JSON"),
    ],
    ids=str,
)
def test_broken_field_is_named(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        write(tmp_path / "a.json", [{**row(), **change}])


def test_refuses_no_rows_and_no_words(tmp_path):
    path = tmp_path / "a.json"
    with pytest.raises(ValueError, match="`rows` is empty"):
        write(path, [])
    with pytest.raises(ValueError, match="`rows` entry 3 lacks `method`"):
        write(path, [3])
    with pytest.raises(ValueError, match="`command` is ''"):
        write(path, [row()], command="")
    with pytest.raises(ValueError, match="`table` is None"):
        write(path, [row()], table=None)


def test_a_file_keeps_its_table(tmp_path):
    write(tmp_path / "a.json", [row()])
    with pytest.raises(ValueError, match="`table` is 'Table 2', but .*a.json holds 'Table 1': choose another `path`"):
        write(tmp_path / "a.json", [row()], table="Table 2")


HEAD = {"table": "t", "command": "c", "device": "CPU", "versions": {}, "date": "2026-01-01"}


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "Expecting value"),
        ('{"table": "x", "rows": [', "Expecting value"),
        ("[]", "'table'.*'rows'.* missing, or of another type"),
        (json.dumps({**HEAD, "rows": {}}), r"\['rows'\] missing, or of another type"),
        (json.dumps({**HEAD, "device": None, "rows": []}), r"\['device'\] missing"),
        (json.dumps({**HEAD, "rows": [{"what": "train", "value": 1.0}]}), "lacks `method`"),
        (json.dumps({**HEAD, "rows": [{**row(), "value": math.nan}]}), "`value` is nan"),
    ],
)
def test_broken_file_is_refused_and_kept(tmp_path, content, message):
    path = tmp_path / "a.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=f"`path` .*a.json is no accuracy file: .*{message}.* Restore it"):
        read_results(path)
    with pytest.raises(ValueError, match="is no accuracy file"):
        write(path, [row()])
    assert path.read_text(encoding="utf-8") == content


def test_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="a.json"):
        read_results(tmp_path / "a.json")


# --- comparisons ------------------------------------------------------------------------------------------------------


def test_comparison_by_hand():
    found = compare_rows(both(), "mil", "erm", data="amazon")
    assert found["averages"] == {0: 83.0, 1: 84.0, 2: 88.0}
    assert found["baseline_averages"] == {0: 80.0, 1: 82.0, 2: 84.0}
    assert found["seeds"] == [0, 1, 2] and found["n"] == 3
    assert found["method"] == "mil" and found["baseline"] == "erm"
    assert found["difference"] == pytest.approx(3.0)
    # t = 3 / (1 / sqrt(3)) = sqrt(27); with two degrees of freedom p = 1 - t / sqrt(t² + 2).
    assert found["p_value"] == pytest.approx(1 - math.sqrt(27) / math.sqrt(29))
    # The 97.5 % quantile of t with two degrees of freedom is 4.302653.
    assert (found["low"], found["high"]) == pytest.approx((3 - 4.302653 / 3**0.5, 3 + 4.302653 / 3**0.5), abs=1e-5)


def test_comparison_against_scipy():
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(0)
    scores = {method: generator.uniform(70, 95, size=(7, 2)) for method in ("erm", "mil")}
    rows = [
        row(method, target, seed, scores[method][seed, column])
        for seed in generator.permutation(7)
        for method in scores
        for column, target in enumerate(("books", "dvd"))
    ]
    found = compare_rows(rows, "mil", data="amazon")
    ours, theirs = ([(a + b) / 2 for a, b in scores[method]] for method in ("mil", "erm"))
    assert found["difference"] == pytest.approx(sum(ours) / 7 - sum(theirs) / 7)
    assert found["p_value"] == pytest.approx(stats.ttest_rel(ours, theirs).pvalue)


def test_seeds_that_lack_a_target_do_not_count():
    rows = [r for r in both() if (r["method"], r["target"], r["seed"]) != ("mil", "dvd", 2)]
    found = compare_rows(rows, "mil", "erm", data="amazon")
    assert list(found["averages"]) == [0, 1] and list(found["baseline_averages"]) == [0, 1, 2]
    assert found["seeds"] == [0, 1] and found["n"] == 2
    assert found["difference"] == pytest.approx(2.5)
    # One degree of freedom is Cauchy's distribution: t = 2.5 / 0.5.
    assert found["p_value"] == pytest.approx(1 - 2 * math.atan(5) / math.pi)


def test_too_few_common_seeds():
    one = [r for r in both() if r["method"] == "erm" or r["seed"] == 1]
    found = compare_rows(one, "mil", "erm", data="amazon")
    assert (found["n"], found["difference"], found["p_value"]) == (1, 2.0, None)
    assert (found["low"], found["high"]) == (None, None)
    none = rows_of("erm", {0: (80.0, 81.0)}) + rows_of("mil", {1: (80.0, 81.0)})
    found = compare_rows(none, "mil", "erm", data="amazon")
    assert (found["n"], found["difference"], found["p_value"]) == (0, None, None)


def test_cross_targets_are_left_out_of_the_average_or_taken_alone():
    rows = both() + [row(m, "imdb", s, v) for m, v in (("erm", 10.0), ("mil", 15.0)) for s in range(2)]
    assert compare_rows(rows, "mil", "erm", data="amazon")["difference"] == pytest.approx(3.0)
    alone = compare_rows(rows, "mil", "erm", data="amazon", targets=["imdb"])
    assert alone["averages"] == {0: 15.0, 1: 15.0} and alone["difference"] == 5.0
    within = compare_rows(rows, "mil", "erm", data="amazon", cross=())
    assert within["averages"] == {0: pytest.approx((82 + 84 + 15) / 3), 1: pytest.approx((85 + 83 + 15) / 3)}
    # Trained on imdb, imdb is its own domain.
    own = [row("erm", "imdb", s, 80.0 + s, data="imdb") for s in range(2)]
    assert compare_rows(own, "erm", "erm", data="imdb")["averages"] == {0: 80.0, 1: 81.0}


@pytest.mark.parametrize("field, one, other", [("backbone", "a", "b"), ("head", "x", "y"), ("metric", "f1", "bleu")])
def test_two_settings_are_never_mixed(field, one, other):
    rows = both(**{field: one}) + [{**r, "value": r["value"] - 10} for r in both(**{field: other})]
    with pytest.raises(ValueError, match=rf"several values of '{field}', \['{one}', '{other}'\]: pass `{field}`"):
        compare_rows(rows, "mil", "erm", data="amazon")
    assert compare_rows(rows, "mil", "erm", data="amazon", **{field: other})["averages"][0] == 73.0
    assert cells(results_table(rows, data="amazon", **{field: other}))["mil"][2] == "75.0 ± 2.6"
    with pytest.raises(ValueError, match=f"`{field}` 'z' is not known"):
        compare_rows(rows, "mil", "erm", data="amazon", **{field: "z"})


def test_refuses_what_is_not_there_or_there_twice():
    with pytest.raises(ValueError, match="`data` 'amazn' is not known.*Did you mean 'amazon'"):
        compare_rows(both(), "mil", data="amazn")
    with pytest.raises(ValueError, match="`method` 'mill' is not known"):
        compare_rows(both(), "mill", data="amazon")
    with pytest.raises(ValueError, match="`baseline` 'emr' is not known"):
        compare_rows(both(), "mil", "emr", data="amazon")
    with pytest.raises(ValueError, match="another value for .*: pass only the rows of one setting"):
        compare_rows([*both(shots=8), row(shots=16)], "mil", data="amazon")
    with pytest.raises(ValueError, match="lacks `data`"):
        compare_rows([{"method": "erm"}], "mil", data="amazon")


# --- tables -----------------------------------------------------------------------------------------------------------


def test_table_by_hand():
    rows = both() + [row(method, "sst2", seed, 60.0 + seed) for method in ("erm", "mil") for seed in range(2)]
    table = results_table(rows, data="amazon")
    shown = cells(table)
    assert shown["method"] == ["books", "dvd", "average", "sst2", "− erm"]
    # books: 79, 80, 86; dvd: 81, 84, 82; averages: 80, 82, 84; std with n - 1.
    assert shown["erm"] == ["81.7 ± 3.8", "82.3 ± 1.5", "82.0 ± 2.0", "60.5 ± 0.7", "-"]
    assert shown["mil"] == ["85.0 ± 3.0", "85.0 ± 2.6", "85.0 ± 2.6", "60.5 ± 0.7", "+3.0 (p = 0.035)"]
    assert len({len(line) for line in table.splitlines()}) == 1, table


def test_numbers_against_a_slow_reference():
    generator = np.random.default_rng(1)
    targets, methods, seeds = ("books", "dvd", "kitchen"), ("erm", "+memory", "mil"), range(5)
    value = {(m, t, s): float(generator.uniform(60, 99)) for m in methods for t in targets for s in seeds}
    table = cells(results_table([row(*key, number) for key, number in value.items()], data="amazon"))
    for method in methods:
        columns = [[value[method, target, seed] for seed in seeds] for target in targets]
        columns.append([sum(value[method, target, seed] for target in targets) / 3 for seed in seeds])
        for shown, column in zip(table[method], columns, strict=False):
            mean = sum(column) / 5
            std = math.sqrt(sum((x - mean) ** 2 for x in column) / 4)
            assert shown == f"{mean:.1f} ± {std:.1f}"


@pytest.mark.parametrize("style", ["markdown", "text", "latex"])
def test_last_column_takes_nothing_from_the_others(style):
    rows = both() + rows_of("f-v", {seed: (a - 9, b - 9) for seed, (a, b) in ERM.items()})
    table, plain = (results_table(rows, data="amazon", baseline=b, style=style) for b in ("erm", None))
    start = 4 if style == "latex" else 2
    minus, less = ("$-$", "$<$") if style == "latex" else ("−", "<")
    last = ["-", "+3.0 (p = 0.035)", f"{minus}9.0 (p {less} 0.001)"]
    for line, without, text in zip(table.splitlines()[start:], plain.splitlines()[start:], last, strict=False):
        end = {"markdown": " |", "text": "", "latex": r" \\"}[style]
        assert line.endswith(f" {text}{end}")
        assert line.startswith(without.removesuffix(end).rstrip())
    if style == "latex":
        assert r"\begin{tabular}{lrrrr}" in table and table.isascii()
    else:
        assert table.splitlines()[0].removesuffix(" |").endswith("− erm")


def test_missing_cells_show_as_missing():
    rows = both() + [row("dapt", "books", seed, 80.0) for seed in range(3)]
    table = cells(results_table(rows, data="amazon"))
    assert table["dapt"] == ["80.0 ± 0.0", "-", "-", "-"]
    # A target that nobody has been tested on yet.
    table = cells(results_table(both(), data="amazon", targets=["books", "dvd", "kitchen"]))
    assert table["method"] == ["books", "dvd", "kitchen", "average", "− erm"]
    assert table["mil"] == ["85.0 ± 3.0", "85.0 ± 2.6", "-", "-", "-"]


def test_one_common_seed_gives_no_p_value():
    rows = rows_of("erm", ERM) + rows_of("mil", {1: MIL[1]})
    assert cells(results_table(rows, data="amazon"))["mil"] == ["85.0", "83.0", "84.0", "+2.0 (n = 1)"]
    assert cells(results_table(rows, data="amazon", interval=True))["mil"][-1] == "+2.0 (n = 1)"


def test_methods_and_columns_are_chosen():
    rows = rows_of("mil", MIL) + rows_of("erm", ERM)
    assert list(cells(results_table(rows, data="amazon")))[2:] == ["mil", "erm"]
    table = cells(results_table(rows, data="amazon", methods=["mil"], columns=["average", "books"]))
    assert table["method"] == ["average", "books", "− erm"] and "erm" not in table
    assert table["mil"] == ["85.0 ± 2.6", "85.0 ± 3.0", "+3.0 (p = 0.035)"]
    against = cells(results_table(rows, data="amazon", baseline="mil"))
    assert against["method"][-1] == "− mil" and against["erm"][-1] == "−3.0 (p = 0.035)"
    for argument, name in (("methods", "mill"), ("columns", "bokks")):
        with pytest.raises(ValueError, match=f"`{argument}` '{name}' is not known"):
            results_table(rows, data="amazon", **{argument: [name]})
    with pytest.raises(ValueError, match="`baseline` 'emr' is not known"):
        results_table(rows, data="amazon", baseline="emr")
    with pytest.raises(ValueError, match="`style` 'html' is not known"):
        results_table(rows, data="amazon", style="html")


def test_only_cross_targets():
    rows = [row(method, "imdb", seed, 80.0 + seed) for method in ("erm", "mil") for seed in range(2)]
    assert cells(results_table(rows, data="amazon"))["mil"] == ["-", "80.5 ± 0.7", "-"]


# --- command line -----------------------------------------------------------------------------------------------------


def test_the_best_of_what_should_be_low_is_the_lowest():
    same = {"data": "d", "backbone": "b", "target": "all", "seed": 0}
    rows = [{**same, "method": name, "metric": metric, "value": value}
            for metric in ("acc", "forgetting") for name, value in (("f", 2.0), ("ewc", 1.0))]  # fmt: skip
    for metric, best in (("acc", "2.0"), ("forgetting", "1.0")):
        table = results_table(rows, data="d", metric=metric, baseline=None)
        assert f"**{best}**" in table and table.count("**") == 4, table


def test_folds_are_paired_where_seeds_are_few():
    """By hand: the mean over seeds of each fold, and Student's t of their differences."""
    value = {
        ("hma", "0"): (70.0, 72.0),
        ("hma", "1"): (80.0, 81.0),
        ("hma", "2"): (60.0, 66.0),
        ("backbone", "0"): (69.0, 69.0),
        ("backbone", "1"): (80.0, 80.0),
        ("backbone", "2"): (61.0, 60.0),
    }
    same = {"data": "proteins", "backbone": "gin", "metric": "accuracy"}
    rows = [
        {"method": method, "target": fold, "seed": seed, "value": one, **same}
        for (method, fold), several in value.items()
        for seed, one in enumerate(several)
    ]
    found = compare_rows(rows, "hma", "backbone", data="proteins", over="targets")
    differences = [2.0, 0.5, 2.5]
    mean = sum(differences) / 3
    error = (sum((one - mean) ** 2 for one in differences) / 2 / 3) ** 0.5
    assert found["n"] == 3 and found["difference"] == pytest.approx(mean)
    # Student's distribution with two degrees of freedom has a closed form.
    t = mean / error
    assert found["p_value"] == pytest.approx(1 - t / (2 + t * t) ** 0.5)
    over_seeds = compare_rows(rows, "hma", "backbone", data="proteins")
    assert over_seeds["n"] == 2 and over_seeds["difference"] == pytest.approx(mean)
    # A seed that one method lacks in a fold counts in none.
    fewer = [row for row in rows if (row["method"], row["target"], row["seed"]) != ("hma", "2", 1)]
    assert compare_rows(fewer, "hma", "backbone", data="proteins", over="targets")["difference"] == pytest.approx(0.0)
    assert "(p = " in results_table(rows, data="proteins", baseline="backbone", over="targets")
    with pytest.raises(ValueError, match="over"):
        compare_rows(rows, "hma", "backbone", data="proteins", over="folds")


def test_targets_that_a_metric_leaves_out_are_named(tmp_path, capsys):
    path = tmp_path / "a.json"
    write(path, [row(metric="f1"), row(metric="f1_unseen_texts"), row(target="dvd", metric="f1")])
    results.main([str(path), "--metric", "f1_unseen_texts"])
    assert "Targets without `f1_unseen_texts` are left out (`--or-metric` puts another in its place): dvd." in (
        capsys.readouterr().out
    )
    results.main([str(path), "--metric", "f1"])
    assert "left out" not in capsys.readouterr().out
    # Nor what is not asked for.
    write(path, [row(data="agnews", metric="f1"), row(data="agnews", metric="f1_unseen_texts")])
    results.main([str(path), "--metric", "f1_unseen_texts", "--data", "agnews"])
    assert "left out" not in capsys.readouterr().out
