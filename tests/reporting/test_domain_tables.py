# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
import re
from dataclasses import replace

import pytest

from hf_memaug.evaluation import Record, write_records
from hf_memaug.reporting.domain_tables import domain_cells, domain_report, main


def record(left_out, trial, scores, algorithm="erm", hparams_seed=0, dataset="reviews", **fields) -> Record:
    """Each domain's `in` is its score in points; every `out` is 50."""
    accuracy = {name: {"in": score / 100, "out": 0.5} for name, score in scores.items()}
    left_out = (left_out,) if isinstance(left_out, str) else left_out
    return Record(dataset, algorithm, "bert_tiny", left_out, trial, hparams_seed, 100, accuracy, **fields)


def trials(algorithm, books, films, **fields):
    """Scores of each trial on `books` and on `films`, each left out in turn."""
    for trial, score in enumerate(books):
        yield record("books", trial, {"books": score, "films": 99}, algorithm, **fields)
    for trial, score in enumerate(films):
        yield record("films", trial, {"books": 99, "films": score}, algorithm, **fields)


RECORDS = [*trials("erm", (60, 66, 63), (70, 70, 76)), *trials("group_dro", (61, 64), (80, 81, 82))]


def test_means_and_standard_errors_by_hand():
    (rows,) = domain_cells(RECORDS, "training").values()
    books, films, average = (rows["erm", "bert_tiny"][name] for name in ("books", "films", "average"))
    # Deviations -3, 3, 0: variance 6, standard error sqrt(6 / 3). Deviations -2, -2, 4: sqrt(8 / 3).
    assert (books.mean, books.standard_error) == (pytest.approx(63), pytest.approx(2**0.5))
    assert (films.mean, films.standard_error) == (pytest.approx(72), pytest.approx((8 / 3) ** 0.5))
    # Of the trials' averages 65, 68, 69.5.
    assert (average.mean, average.standard_error) == (pytest.approx(67.5), pytest.approx(3.5**0.5 / 3**0.5))


def test_markdown_shows_what_is_missing():
    text = domain_report(RECORDS)
    assert "training-domain validation" in text
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    assert table[0] == ["algorithm", "books", "films", "average"]
    assert table[2] == ["erm (bert_tiny)", "**63.0 ± 1.4**", "72.0 ± 1.6", "67.5 ± 1.1"]
    # Trials 0 and 1 are (61 + 80) / 2 and (64 + 81) / 2.
    assert table[3] == ["group_dro (bert_tiny)", "62.5 ± 1.1 (2 of 3)", "**81.0 ± 0.5**", "**71.5 ± 0.7** (2 of 3)"]
    assert "Missing: group_dro (bert_tiny), books, trial 2: no record." in text
    # Told that there should be four.
    assert "63.0 ± 1.4** (3 of 4)" in domain_report(RECORDS, trials=4)


def test_draws_that_are_missing_are_told():
    more = [record("books", 0, {"books": 10, "films": 99}, hparams_seed=1)]
    assert "erm (bert_tiny), books, trial 1: 1 of 2 draws" in domain_report([*RECORDS, *more])


def test_runs_that_have_not_come_to_their_end_are_left_out():
    broken = {"hparams_seed": 1, "args": {"job": "erm-books-1", "steps": 300}}
    better = record("books", 0, {"books": 99, "films": 99}, **broken)
    better = replace(better, accuracy={**better.accuracy, "films": {"in": 1.0, "out": 1.0}})
    assert "Not finished, and left out: erm-books-1." in domain_report([*RECORDS, better])
    assert "63.0" in domain_report([*RECORDS, better])
    # Once it has, it counts: (99 + 66 + 63) / 3.
    assert "76.0" in domain_report([*RECORDS, better, replace(better, step=300)])
    with pytest.raises(ValueError, match="no finished run"):
        domain_report([better])


def test_latex_is_escaped_and_balanced():
    text = domain_report([*trials("group_dro", (60, 66), (70,), dataset="r&d_50%")], style="latex")
    assert r"group\_dro (bert\_tiny)" in text and r"r\&d\_50\%" in text and "±" not in text
    assert r"63.0 $\pm$ 2.1" in text and "70.0 (1 of 2)" in text
    # Each of these would stop TeX, or swallow the rest of a line, unless it is escaped or a command's own.
    body = "\n".join(line for line in text.splitlines() if not line.startswith("% needs"))
    assert not re.search(r"(?<!\\)[_%#]", body)
    assert body.count("$") % 2 == 0 and body.count("{") == body.count("}")
    assert text.count(r"\begin{tabular}{lrrr}") == text.count(r"\end{tabular}") == 1
    for line in re.search(r"\\toprule(.*)\\bottomrule", text, re.DOTALL)[1].splitlines():
        assert not line.strip() or line == r"\midrule" or len(re.findall(r"(?<!\\)&", line)) == 3


def test_several_data_sets_have_a_table_of_averages():
    text = domain_report([*RECORDS, *trials("erm", (50, 50, 50), (60, 60, 60), dataset="news")])
    averages = text[text.index("## Averages") :]
    rows = [re.sub(" +", " ", line) for line in averages.splitlines() if "bert_tiny" in line]
    assert rows[0] == "| erm (bert_tiny) | 67.5 ± 1.1 | 55.0 ± 0.0 |"
    assert rows[1] == "| group_dro (bert_tiny) | **71.5 ± 0.7** (2 of 3) | - (0 of 3) |"


def test_one_domain_to_train_on():
    scores = {"books": 60, "films": 70, "phones": 80}
    single = [record(("films", "phones"), trial, scores, setting="single_source") for trial in (0, 1)]
    text = domain_report(single)
    # `out` of every domain, the one trained on beside the others.
    assert re.search(r"erm \(bert_tiny\), books +\| 50.0 ± 0.0 \| 50.0 ± 0.0 \|", text) and "one domain" in text
    # Beside records of the usual setting they have a table of their own.
    assert domain_report([*single, *RECORDS]).count("## reviews") == 2


def test_the_command(tmp_path, capsys):
    write_records(tmp_path / "jobs" / "x" / "records.jsonl", RECORDS)
    main([str(tmp_path)])
    shown = capsys.readouterr().out
    assert shown == domain_report(RECORDS)
    main([str(tmp_path), "--selection", "oracle", "--format", "latex", "--output", str(tmp_path / "table.tex")])
    assert (tmp_path / "table.tex").read_text() == domain_report(RECORDS, "oracle", "latex")
    with pytest.raises(SystemExit):
        main([str(tmp_path / "nowhere")])
    assert "there is no" in capsys.readouterr().err
    # Nothing suffices for this one, and the table says so.
    main([str(tmp_path), "--selection", "leave_one_out"])
    assert "- (0 of 3)" in capsys.readouterr().out


def test_domains_that_no_run_leaves_out_have_no_column():
    said = domain_report([record("a", trial, {"a": 60, "b": 70, "c": 80}) for trial in (0, 1)])
    assert "Missing" not in said and "| algorithm " in said and "| b " not in said and "| c " not in said
