# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Nothing is lost in packing, words are masked whole, and a seed fixes the masks."""

import gzip

import numpy as np
import pytest
import torch
from tiny_backbones import SENTENCES, tiny_tokenizer

from hf_memaug.data.corpus import NO_WORD, PackedTexts, WholeWordMasking, stream_texts

kinds = pytest.mark.parametrize("kind", ["roberta", "bert"])
TEXTS = [f"{text} goods films {number}" for number, text in enumerate(SENTENCES * 3)]


def test_texts_come_from_lines_and_from_json_lines(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\n two \n")
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write('{"text": "three"}\n{"text": " "}\n{"text": "four", "domain": "x"}\n')
    (tmp_path / "c.jsonl").write_text('{"abstract": "five"}\n')
    assert list(stream_texts([tmp_path / "a.txt", tmp_path / "b.jsonl.gz"])) == ["one", "two", "three", "four"]
    assert list(stream_texts([tmp_path / "c.jsonl"], field="abstract")) == ["five"]
    with pytest.raises(ValueError, match=r"c.jsonl, row 0 has no text in `text`. It has: \['abstract'\].*by `field`"):
        list(stream_texts([tmp_path / "c.jsonl"]))
    (tmp_path / "g.jsonl").write_text('{"text": 3}\n')
    with pytest.raises(ValueError, match="row 0 has no text in `text`"):
        list(stream_texts([tmp_path / "g.jsonl"]))
    with pytest.raises(FileNotFoundError, match="there is no file .*d.txt"):
        list(stream_texts([tmp_path / "d.txt"]))
    (tmp_path / "e.jsonl").write_text("no JSON\n")
    with pytest.raises(ValueError, match=r"`files`: .*e.jsonl, line 1: not valid JSON"):
        list(stream_texts([tmp_path / "e.jsonl"]))
    (tmp_path / "f.csv").write_text("text\nhello\n")
    with pytest.raises(ValueError, match=r"`files`: .*f.csv is no corpus. Give a text per line"):
        list(stream_texts([tmp_path / "f.csv"]))


def test_files_that_cannot_be_read_say_the_mend(tmp_path):
    (tmp_path / "latin.txt").write_bytes("café".encode("latin1"))
    whole = gzip.compress(b"a text a line\n" * 500)
    (tmp_path / "cut.txt.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "none.jsonl.gz").write_text("not compressed")
    (tmp_path / "notes.md").write_text("a text a line\n")
    for name, wanted in {
        "latin.txt": "is not UTF-8",
        "cut.txt.gz": "is not a whole gzip file",
        "none.jsonl.gz": "is not a whole gzip file",
        "notes.md": "is no corpus",
    }.items():
        with pytest.raises(ValueError, match=f"`files`: .*{name} {wanted}"):
            list(stream_texts([tmp_path / name]))
    (tmp_path / "rows").write_text('{"text": "one"}\n')
    assert list(stream_texts([tmp_path / "rows"])) == ["one"]


@kinds
def test_packing_loses_nothing(kind):
    tokenizer = tiny_tokenizer(kind)
    rows = list(PackedTexts(TEXTS, tokenizer, length=16, keep_rest=True))
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    assert all(len(row["input_ids"]) == len(row["word_ids"]) == 16 for row in rows[:-1])
    assert all(row["input_ids"][0] == first and row["input_ids"][-1] == last for row in rows)
    # A text may end where a row ends: then that separates it from the next.
    packed = [token for row in rows for token in row["input_ids"] if token not in (first, last)]
    assert packed == [token for text in TEXTS for token in tokenizer(text, add_special_tokens=False)["input_ids"]]
    separators = sum(row["input_ids"][1:-1].count(last) for row in rows)
    assert len(TEXTS) - len(rows) <= separators <= len(TEXTS) - 1
    assert list(PackedTexts(TEXTS, tokenizer, length=16)) == rows[:-1]


def is_split(word: str, tokenizer) -> bool:
    tokens = tokenizer(word, add_special_tokens=False)["input_ids"]
    return len(tokens) > 1 and tokenizer.unk_token_id not in tokens


@kinds
def test_tokens_of_a_word_have_one_number(kind):
    tokenizer = tiny_tokenizer(kind)
    long = next(word for word in ("goods", "booked", "phones", "hotels", "films") if is_split(word, tokenizer))
    (row,) = PackedTexts([f"{long} good {long}"], tokenizer, length=60, keep_rest=True)
    tokens, words = row["input_ids"], row["word_ids"]
    spelt = {word: [t for t, w in zip(tokens, words, strict=True) if w == word] for word in words if word != NO_WORD}
    texts = [tokenizer.decode(parts).replace(" ", "").replace("##", "") for parts in spelt.values()]
    assert texts == [long, "good", long]
    assert words[0] == words[-1] == NO_WORD


@kinds
def test_words_are_masked_whole(kind):
    tokenizer = tiny_tokenizer(kind)
    rows = list(PackedTexts(TEXTS * 20, tokenizer, length=32))
    torch.manual_seed(0)
    batch = WholeWordMasking(tokenizer)(rows)
    chosen = batch["labels"] != -100
    shares = []
    for row, marks in zip(rows, chosen, strict=True):
        words = np.array(row["word_ids"])
        words[np.isin(row["input_ids"], tokenizer.all_special_ids)] = NO_WORD
        for word in set(words.tolist()):
            marked = marks[: len(words)].numpy()[words == word]
            assert not marked.any() if word == NO_WORD else marked.all() or not marked.any()
        shares.append(marks.float().sum() / (words != NO_WORD).sum())
    assert 0.12 < np.mean(shares) < 0.2
    ids = torch.tensor([row["input_ids"] for row in rows])
    assert torch.equal(batch["labels"][chosen], ids[chosen]) and torch.equal(batch["input_ids"][~chosen], ids[~chosen])
    changed = batch["input_ids"][chosen]
    assert (changed == tokenizer.mask_token_id).float().mean() == pytest.approx(0.8, abs=0.04)
    assert (changed == ids[chosen]).float().mean() == pytest.approx(0.1, abs=0.04)
    assert all(marks.any() for marks in chosen), "a row without a loss"


def test_a_seed_fixes_the_masks_and_none_does_not():
    tokenizer = tiny_tokenizer("bert")
    rows = list(PackedTexts(TEXTS, tokenizer, length=24))
    fixed = WholeWordMasking(tokenizer, seed=1)
    whole, parts = fixed(rows), [fixed([row]) for row in reversed(rows)]
    assert torch.equal(whole["labels"], torch.cat([part["labels"] for part in reversed(parts)]))
    assert not torch.equal(whole["labels"], WholeWordMasking(tokenizer, seed=2)(rows)["labels"])
    free = WholeWordMasking(tokenizer)
    torch.manual_seed(0)
    first, second = free(rows), free(rows)
    assert not torch.equal(first["labels"], second["labels"])
    torch.manual_seed(0)
    assert torch.equal(free(rows)["labels"], first["labels"])


def test_what_cannot_work_is_refused():
    tokenizer = tiny_tokenizer("bert")
    with pytest.raises(ValueError, match="`length` is 100: choose one between 8 and the tokenizer's 64"):
        PackedTexts(TEXTS, tokenizer, length=100)
    with pytest.raises(ValueError, match="`share` is 1.5"):
        WholeWordMasking(tokenizer, share=1.5)
    tokenizer.mask_token = None
    with pytest.raises(ValueError, match="no mask token"):
        WholeWordMasking(tokenizer)


def test_workers_share_the_rows():
    tokenizer = tiny_tokenizer("bert")
    packed = PackedTexts(TEXTS, tokenizer, length=16)
    loaded = torch.utils.data.DataLoader(packed, batch_size=None, num_workers=2)
    assert sorted(row["input_ids"] for row in loaded) == sorted(row["input_ids"] for row in packed)
    tokenizer.sep_token = None
    with pytest.raises(ValueError, match="no tokens that begin and end a row"):
        PackedTexts(TEXTS, tokenizer, length=16)
