# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The three methods of selection, against choices made by hand."""

from dataclasses import replace

import pytest

from hf_memaug.evaluation import Record, choose, read_records, write_records


def record(left_out: str, hparams_seed: int, step: int, a, b, c, trial: int = 0, **fields) -> Record:
    """`a`, `b`, `c` are (in, out) of three domains, in points."""
    accuracy = {name: {"in": pair[0] / 100, "out": pair[1] / 100} for name, pair in zip("abc", (a, b, c), strict=True)}
    return Record("data", "erm", "bert", tuple(left_out), trial, hparams_seed, step, accuracy, **fields)


# Domain `a` is left out. Mean `out` of b and c: draw 0 has 60 then 70; draw 1 has 80 then 75.
TESTS = [
    record("a", 0, 100, (50, 20), (90, 60), (90, 60)),
    record("a", 0, 200, (55, 45), (99, 66), (99, 74)),
    record("a", 1, 100, (40, 90), (90, 78), (90, 82)),
    record("a", 1, 200, (58, 40), (99, 75), (99, 75)),
]
# A second domain left out: its `in` split validates. Draw 0: 30 and 20 at step 100, 44 and 46 at 200.
# Draw 1: 50 and 10 at step 100, 40 and 44 at 200.
VALIDATIONS = [
    record("ab", 0, 100, (1, 1), (30, 99), (1, 1)),
    record("ab", 0, 200, (1, 1), (44, 99), (1, 1)),
    record("ac", 0, 100, (1, 1), (1, 1), (20, 99)),
    record("ac", 0, 200, (1, 1), (1, 1), (46, 99)),
    record("ab", 1, 100, (1, 1), (50, 99), (1, 1)),
    record("ab", 1, 200, (1, 1), (40, 99), (1, 1)),
    record("ac", 1, 100, (1, 1), (1, 1), (10, 99)),
    record("ac", 1, 200, (1, 1), (1, 1), (44, 99)),
]


@pytest.mark.parametrize(
    ("selection", "draw", "step", "score", "accuracy"),
    [("training", 1, 100, 0.80, 0.40), ("leave_one_out", 0, 200, 0.45, 0.55), ("oracle", 0, 200, 0.45, 0.55)],
)
def test_choices_made_by_hand(selection, draw, step, score, accuracy):
    # In any order, as files come in any order.
    choices = choose([*VALIDATIONS[::-1], *TESTS[::-1]], selection)
    (choice,) = [choice for choice in choices if choice.test_env == "a"]
    assert (choice.record.hparams_seed, choice.record.step) == (draw, step)
    assert choice.score == pytest.approx(score) and choice.accuracy == accuracy
    # For `b` and `c` there is no run that leaves them out alone.
    assert len(choices) == 1


def test_training_domain_validation_never_looks_at_the_test_domain():
    changed = [replace(r, accuracy={**r.accuracy, "a": {"in": 1 - i / 8, "out": i / 8}}) for i, r in enumerate(TESTS)]
    for records in (TESTS, changed):
        (choice,) = choose(records, "training")
        assert (choice.record.hparams_seed, choice.record.step, choice.score) == (1, 100, pytest.approx(0.8))


def test_the_validation_by_domains_left_out_never_looks_at_the_test_domain():
    def without_a(record):
        return replace(record, accuracy={**record.accuracy, "a": {"in": record.step / 1000, "out": 0.0}})

    for records in ([*TESTS, *VALIDATIONS], list(map(without_a, [*TESTS, *VALIDATIONS]))):
        (choice,) = choose(records, "leave_one_out")
        assert (choice.record.hparams_seed, choice.record.step, choice.score) == (0, 200, pytest.approx(0.45))


def test_all_domains_must_have_been_left_out():
    assert choose(TESTS, "leave_one_out") == []
    # Draw 0 lacks a run: draw 1 remains, whose second step is the better (42 against 30).
    (choice,) = choose([*TESTS, *VALIDATIONS[:2], *VALIDATIONS[4:]], "leave_one_out")
    assert (choice.record.hparams_seed, choice.record.step) == (1, 200)
    # A step that only some of the runs have reached does not count.
    (choice,) = choose(
        [*TESTS, *(r for r in VALIDATIONS if (r.test_envs, r.step) != (("a", "c"), 200))], "leave_one_out"
    )
    assert (choice.record.hparams_seed, choice.record.step, choice.score) == (1, 100, pytest.approx(0.3))


def test_runs_with_two_domains_left_out_are_no_test():
    for selection in ("training", "oracle"):
        assert choose(VALIDATIONS, selection) == []


def test_of_equal_scores_the_first_counts():
    same = [replace(r, accuracy={**r.accuracy, "b": {"in": 1, "out": 0.5}, "c": {"in": 1, "out": 0.5}}) for r in TESTS]
    (choice,) = choose(same[::-1], "training")
    assert (choice.record.hparams_seed, choice.record.step) == (0, 100)


def test_each_trial_chooses_by_itself():
    second = [replace(r, trial_seed=1, accuracy={**r.accuracy, "b": {"in": 1, "out": 0.9}}) for r in TESTS[:2]]
    choices = choose([*TESTS, *second], "training")
    assert [(c.record.trial_seed, c.record.hparams_seed, c.record.step) for c in choices] == [(0, 1, 100), (1, 0, 200)]


def test_what_is_written_is_read(tmp_path):
    write_records(tmp_path / "jobs" / "a" / "records.jsonl", TESTS[:2])
    write_records(tmp_path / "jobs" / "b" / "records.jsonl", TESTS[2:])
    assert read_records(tmp_path) == TESTS
    assert read_records(tmp_path / "jobs" / "b" / "records.jsonl") == TESTS[2:]


def test_a_selection_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="Did you mean 'training'"):
        choose(TESTS, "trainig")
