# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The experiment behind IDA's Tables 5 and 6, on questions and answers of a few words."""

import gzip
import json
import math
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples" / "ida"
pytestmark = pytest.mark.usefixtures("here")
SMALL = {"hidden_size": 12, "embedding_size": 4, "first_slots": 5, "slots": 3, "batch_size": 8, "epochs": 1}
METRICS = {"bleu2", "bleu2_with_unknown"}
PAIRS = {
    "cornell_dialog": [("who are you", "i am the captain"), ("where is he", "he is gone")],
    "ubuntu_irc": [("who has root", "sudo gives root"), ("where is grub", "grub is in boot")],
}


@pytest.fixture
def folder(tmp_path) -> str:
    for name, pairs in PAIRS.items():
        (tmp_path / "data" / name).mkdir(parents=True)
        for split, times in (("train", 8), ("dev", 1), ("test", 1)):
            with gzip.open(tmp_path / "data" / name / f"{split}.jsonl.gz", "wt") as file:
                for text, reply in pairs * times:
                    file.write(json.dumps({"text": text, "text_pair": reply, "domain": name}) + "\n")
    words = sorted({word for pairs in PAIRS.values() for pair in pairs for text in pair for word in text.split()})
    lines = [
        f"{word} " + " ".join(str((number * place) % 7 - 3) for place in range(1, 5))
        for number, word in enumerate(words)
    ]
    (tmp_path / "vectors.txt").write_text("\n".join(lines) + "\n")
    return str(tmp_path)


def job(line: str, folder: str, **kwargs):
    from dialogue import Job

    return Job(line, 0, **{**SMALL, "vectors": f"{folder}/vectors.txt", "fisher_samples": 3, **kwargs})


def test_every_line_replies_in_both_domains(folder):
    from dialogue import LINES, run

    steps = {}
    for line in LINES:
        result = run(job(line, folder), folder)
        assert set(result["scores"]) == set(PAIRS)
        for scores in result["scores"].values():
            assert 0 <= scores["bleu2"] <= 100 and -100 <= scores["similarity"] <= 100
        assert [one["given"] for one in result["samples"]["ubuntu_irc"]] == [pair[1] for pair in PAIRS["ubuntu_irc"]]
        steps[line] = result["steps"]
    # 16 rows in batches of 8: one domain, or both.
    assert all(count == (2 if line in LINES[:4] else 4) for line, count in steps.items()), steps


def test_it_learns_to_reply_and_a_seed_is_a_run(folder):
    from dialogue import run

    learned = run(job("f+m+v", folder, epochs=25, learning_rate=2e-2, hidden_size=24), folder)
    assert learned["scores"]["ubuntu_irc"]["bleu2"] > 60
    first, second = (run(job("f+m+v", folder), folder) for _ in range(2))
    assert first["samples"] == second["samples"] and first["scores"] == second["scores"]


def test_unknown_words_are_left_out_of_one_score_and_counted_in_the_other(folder, monkeypatch):
    import dialogue

    right, half = "he is gone".split(), "he is <unk>".split()
    monkeypatch.setattr(
        dialogue, "replies", lambda model, pairs, *_: [right if row % 2 else half for row, _ in enumerate(pairs)]
    )
    scores = dialogue.run(job("rnn s", folder), folder)["scores"]["cornell_dialog"]
    # Of the second reply "he is gone" all is right, of the first nothing. Without the unknown word five words answer
    # seven, with it six; runs of two words: two of three, and of four.
    assert scores["bleu2"] == pytest.approx(100 * (3 / 5 * 2 / 3) ** 0.5 * math.exp(1 - 7 / 5))
    assert scores["bleu2_with_unknown"] == pytest.approx(100 * (3 / 6 * 2 / 4) ** 0.5 * math.exp(1 - 7 / 6))
    monkeypatch.undo()
    learned = dialogue.run(job("f", folder, epochs=25, learning_rate=2e-2, hidden_size=24), folder)
    assert "<unk>" in learned["samples"]["ubuntu_irc"][0]["reply"], "sudo is a word that it does not know"
    assert list(learned["to_prompts"]) == dialogue.PROMPTS


def test_what_all_transfers_begin_with_is_trained_once(folder, tmp_path, monkeypatch):
    import dialogue

    turns = []
    train = dialogue.train

    def watch(*args, turn=0, **kwargs):
        turns.append(turn)
        return train(*args, turn=turn, **kwargs)

    monkeypatch.setattr(dialogue, "train", watch)
    for line in ("rnn+mem s", "f", "f+m+v", "ewc", "progressive"):
        alone = dialogue.run(job(line, folder), folder)
        turns.clear()
        shared = dialogue.run(job(line, folder), folder, kept=tmp_path / "kept")
        assert turns == {"rnn+mem s": [0]}.get(line, [1])
        assert all(shared[name] == alone[name] for name in ("scores", "samples", "steps"))
    # Another network begins anew, and so do other rows.
    turns.clear()
    dialogue.run(job("f", folder, hidden_size=8), folder, kept=tmp_path / "kept")
    assert turns == [0, 1] and len(list((tmp_path / "kept").iterdir())) == 2
    places = {dialogue.place_of(job("f", folder), str(place), tmp_path) for place in (folder, tmp_path / "others")}
    assert len(places) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("line", ["f+m+v", "ewc", "progressive"])
def test_recorded_steps_are_the_steps(line, folder):
    from dialogue import run

    plain, recorded = (run(job(line, folder, epochs=3), folder, "cuda", graphs) for graphs in (False, True))
    assert plain["scores"] == recorded["scores"] and plain["steps"] == recorded["steps"]


def test_the_length_of_graphs_changes_no_gradient(folder):
    """Rows are padded to the longest of all, and not of their batch."""
    from dialogue import batches, begin, load

    made = job("f", folder)
    parts = {split: load(folder, "cornell_dialog", split) for split in ("train", "dev")}
    model, tokenizer, _ = begin(made, parts, "cpu")
    found = []
    for padding in (True, "max_length"):
        batch = next(batches(parts["train"], tokenizer, made, "cpu", seed=0, padding=padding))
        model.zero_grad()
        model(**batch).loss.backward()
        found.append((batch["input_ids"].shape[1], [parameter.grad.clone() for parameter in model.parameters()]))
    assert found[0][0] < found[1][0] == made.max_length
    for one, other in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(one, other)


def test_words_of_the_second_domain_are_known_only_where_the_vocabulary_grows(folder, monkeypatch):
    import dialogue

    sizes = {}
    train = dialogue.train

    def watch(model, parts, tokenizer, *args, **kwargs):
        sizes.setdefault(line, []).append((model.config.vocab_size, len(tokenizer), list(model.config.memory_slots)))
        return train(model, parts, tokenizer, *args, **kwargs)

    monkeypatch.setattr(dialogue, "train", watch)
    for line in ("f", "f+m", "f+m+v"):
        dialogue.run(job(line, folder), folder)
    first = sizes["f"][0][0]
    assert sizes["f"] == [(first, first, [5]), (first, first, [5])]
    assert sizes["f+m"][1] == (first, first, [5, 3])
    grown, known, slots = sizes["f+m+v"][1]
    assert grown == known > first and slots == [5, 3]


def test_what_holds_old_weights_back(folder):
    """At the old weights the penalty is nothing; away from them it is λ/2 F d², with F from the rows one by one."""
    from dialogue import batches, consolidation

    from hf_memaug import MemoryRNNConfig, MemoryRNNForConditionalGeneration
    from hf_memaug.data import word_tokenizer

    pairs = PAIRS["cornell_dialog"]
    tokenizer = word_tokenizer([text for pair in pairs for text in pair], end_of_text=True)
    torch.manual_seed(0)
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 2}
    model = MemoryRNNForConditionalGeneration(
        MemoryRNNConfig(vocab_size=len(tokenizer), hidden_size=6, embedding_size=4, memory_slots=[3], **ids)
    )
    made = job("ewc", folder, fisher_weight=10.0)
    penalty = consolidation(model, pairs, tokenizer, made, "cpu")
    assert penalty(model) == 0
    expected = 0.0
    for pair in pairs:
        model.zero_grad()
        (batch,) = batches([pair], tokenizer, made, "cpu")
        logits = model(**batch).logits.log_softmax(-1)[0]
        words = batch["labels"][0]
        (-logits[torch.arange(len(words)), words].sum()).backward()
        expected += model.lm_head.bias.grad[4].square() / 2
    with torch.no_grad():
        model.lm_head.bias[4] += 0.5
    assert penalty(model).item() == pytest.approx(10 / 2 * expected.item() * 0.25, rel=1e-4)


def test_the_command_writes_tables_and_keeps_what_people_wrote_out_of_them(folder, monkeypatch, capsys, tmp_path):
    import dialogue

    command = ["dialogue.py", "--folder", folder, "--lines", "f", "f+m", "--seeds", "2"]
    for name, value in SMALL.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    command += ["--record", str(tmp_path / "record.jsonl"), "--output", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", command)
    dialogue.main()
    table = json.loads((tmp_path / "out" / "dialogue.json").read_text())
    assert len(table["rows"]) == 2 * 2 * 2 * 2 and {row["metric"] for row in table["rows"]} == METRICS
    kept = (tmp_path / "out" / "dialogue_runs.jsonl").read_text()
    assert "captain" not in kept and dialogue.PROMPTS[0] in kept
    assert "i am the captain" in capsys.readouterr().out
    dialogue.main()
    assert "4 of 4 models are in" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*command, "--graphs"])
    with pytest.raises(SystemExit):
        dialogue.main()
    assert "--graphs is for a GPU" in capsys.readouterr().err
