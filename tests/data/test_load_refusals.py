# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
import logging

import pytest

from hf_memaug.data import load_domains


def row(text="a b", label=0, domain="books", **more):
    return {"text": text, "label": label, "domain": domain, **more}


class TestRefusedSources:
    @pytest.mark.parametrize("source", [[], {"books": []}])
    def test_empty_list(self, source):
        with pytest.raises(ValueError, match="`source`: the list.* is empty"):
            load_domains(source)

    def test_kind_of_source(self):
        with pytest.raises(TypeError, match="`source` is a int"):
            load_domains(3)
        with pytest.raises(ValueError, match=r"entries must be dicts, but 1 row \(1\) are not \(str\)"):
            load_domains([row(), "text"])
        with pytest.raises(ValueError, match="`source` is an empty dict"):
            load_domains({})


class TestRefusedRows:
    def test_missing_columns_name_the_nearest(self):
        with pytest.raises(
            ValueError, match="`domain` is 'domain', but the list has no such.*Did you mean 'Domain'.*dict"
        ):
            load_domains([{"text": "a", "label": 0, "Domain": "x"}])
        with pytest.raises(
            ValueError, match="`label` is 'label'.*Did you mean 'labels'.*There are: 'text'.*`label=None`"
        ):
            load_domains([{"text": "a", "labels": 0, "domain": "x"}])
        with pytest.raises(ValueError, match="`text` is 'text'.*Did you mean 'Text'.*'label', 'domain'.*`text=None`"):
            load_domains([{"Text": "a", "label": 0, "domain": "x"}])
        with pytest.raises(ValueError, match="`text` is 'review'"):
            load_domains([{"tokens": ["a"], "label": 0, "domain": "x"}], text="review")
        with pytest.raises(ValueError, match="`text_pair` is 'second'"):
            load_domains([row()], text_pair="second")

    @pytest.mark.parametrize("empty", ["", "  \n", None, float("nan")])
    def test_empty_text(self, empty, caplog):
        rows = [row(), row(empty), row(), row(empty)]
        with pytest.raises(ValueError, match=r"`text` is empty in 2 rows \(1, 3\) of the list.*`on_empty=\"drop\"`"):
            load_domains(rows)
        with caplog.at_level(logging.WARNING):
            assert len(load_domains(rows, on_empty="drop")) == 2
        assert "2 rows with an empty input dropped" in caplog.text

    def test_empty_pair_tokens_and_image(self):
        with pytest.raises(ValueError, match=r"`text_pair` is empty in 1 row \(1\)"):
            load_domains([row(text_pair="x"), row(text_pair="")])
        with pytest.raises(ValueError, match="`tokens` is empty"):
            load_domains([{"tokens": [], "label": 0, "domain": "x"}])
        with pytest.raises(ValueError, match="`image` is empty"):
            load_domains([{"image": {"bytes": None, "path": None}, "label": 0, "domain": "x"}])

    def test_dropping_may_not_empty_a_domain(self):
        with pytest.raises(ValueError, match="every row of the domain 'films' in the list is empty"):
            load_domains([row(), row("", domain="films")], on_empty="drop")
        with pytest.raises(ValueError, match="`on_empty` is 'keep'; it must be 'raise' or 'drop'"):
            load_domains([row()], on_empty="keep")

    def test_long_lists_of_rows_are_cut(self):
        with pytest.raises(ValueError, match=r"9 rows \(0, 1, 2, 3, 4, \.\.\.\)"):
            load_domains([row("")] * 9)

    def test_text_that_is_no_string(self):
        with pytest.raises(ValueError, match=r"`text` must hold strings, but 1 row \(1\) of the list do not"):
            load_domains([row(), row(5)])

    @pytest.mark.parametrize("missing", [None, "", float("nan")])
    def test_missing_label_or_domain(self, missing):
        with pytest.raises(ValueError, match=r"`label` is missing in 1 row \(1\)"):
            load_domains([row(), row(label=missing)])
        with pytest.raises(ValueError, match=r"`domain` is missing or an empty name in 1 row \(1\)"):
            load_domains([row(), row(domain=missing)])
        with pytest.raises(ValueError, match="`source` has an empty domain name"):
            load_domains({missing: [row()]})

    def test_domains_with_other_inputs(self):
        with pytest.raises(
            ValueError, match="`source`: .*'a' has the inputs 'text', 'text_pair', but .*'b' has 'text'"
        ):
            load_domains({"a": [row(text_pair="x")], "b": [row()]})

    def test_split_without_a_column_to_choose_by(self):
        with pytest.raises(ValueError, match="`split` is 'train', but the list has no column 'split'"):
            load_domains([row()], split="train")
        with pytest.raises(ValueError, match="`split` is 'tran'.*Did you mean 'train'"):
            load_domains([row(split="train")], split="tran")


def test_classes_without_domains_are_told_from_an_empty_folder(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="images need Pillow")
    (tmp_path / "dog").mkdir()
    image.new("RGB", (4, 4)).save(tmp_path / "dog" / "1.png")
    with pytest.raises(ValueError, match=r"has images in `class/\*.jpg`.*`domain/class/\*.jpg`"):
        load_domains(tmp_path)
