# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
import gzip
import json

import datasets
import pytest

from hf_memaug.data import load_domains

ROWS = [
    {"text": "fine, really", "label": "positive", "domain": "books"},
    {"text": 'a "quoted"\nword', "label": "negative", "domain": "films"},
    {"text": "na\u00efve \u4f60\u597d", "label": "positive", "domain": "books"},
]


def write_jsonl(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def write_csv(path, rows, delimiter=",", encoding="utf-8"):
    import csv

    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding=encoding, newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_rows_of_one_domain(tmp_path):
    rows = [{"text": one["text"], "label": one["label"]} for one in ROWS]
    found = load_domains(write_csv(tmp_path / "rows.csv", rows), domain=None)
    assert found["domain"] == ["all"] * 3 and found.label_names == ["negative", "positive"]
    assert load_domains({"books": rows}, domain=None).domains == ["books"]
    with pytest.raises(ValueError, match="or `domain=None`"):
        load_domains(rows)


def row(text="a b", label=0, domain="books", **more):
    return {"text": text, "label": label, "domain": domain, **more}


@pytest.fixture
def image_folder(tmp_path):
    for name in ("photo/dog/2.jpg", "photo/dog/1.JPG", "photo/cat/1.png", "sketch/cat/1.jpeg", "sketch/notes.txt"):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path / "images"


class TestSources:
    def check(self, dataset):
        assert dataset["text"] == [r["text"] for r in ROWS]
        assert dataset["label"] == [1, 0, 1] and dataset.label_names == ["negative", "positive"]
        assert dataset["domain"] == ["books", "films", "books"]

    @pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.jsonl.gz"])
    def test_json_lines(self, tmp_path, name):
        path = write_jsonl(tmp_path / name, ROWS)
        self.check(load_domains(path))
        self.check(load_domains(str(path)))

    @pytest.mark.parametrize(("name", "delimiter"), [("r.csv", ","), ("r.csv.gz", ","), ("r.tsv", "\t")])
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
    def test_csv_with_quotes_breaks_and_mark(self, tmp_path, name, delimiter, encoding):
        self.check(load_domains(write_csv(tmp_path / name, ROWS, delimiter, encoding)))

    def test_parquet(self, tmp_path):
        pandas = pytest.importorskip("pandas")
        pandas.DataFrame(ROWS).to_parquet(tmp_path / "rows.parquet")
        self.check(load_domains(tmp_path / "rows.parquet"))

    def test_list_and_datasets(self):
        self.check(load_domains(ROWS))
        self.check(load_domains(datasets.Dataset.from_list(ROWS)))
        self.check(load_domains(load_domains(ROWS)))
        self.check(load_domains(datasets.Dataset.from_list(ROWS[::-1]).select([2, 1, 0])))

    def test_dataset_dict_and_class_labels(self):
        features = datasets.Features(
            text=datasets.Value("string"),
            label=datasets.ClassLabel(names=["zero", "one", "two"]),
            domain=datasets.ClassLabel(names=["books", "films"]),
        )
        rows = [row("a", 1, 0), row("b", 0, 1)]
        splits = datasets.DatasetDict(train=datasets.Dataset.from_list(rows, features=features))
        dataset = load_domains(splits, split="train")
        assert dataset.label_names == ["zero", "one", "two"] and dataset["domain"] == ["books", "films"]
        with pytest.raises(ValueError, match="`split` is needed: the DatasetDict has the splits 'train'"):
            load_domains(splits)
        with pytest.raises(ValueError, match="`split` is 'test'.*There are: 'train'"):
            load_domains(splits, split="test")

    def test_datasets_images_stay_encoded(self):
        from PIL import Image

        rows = {"image": [Image.new("RGB", (4, 4))], "label": [0], "domain": ["x"]}
        image = load_domains(datasets.Dataset.from_dict(rows))[0]["image"]
        assert isinstance(image, bytes) and image.startswith(b"\x89PNG")

    def test_dict_of_domains_overrides_the_column(self, tmp_path):
        path = write_jsonl(tmp_path / "x.jsonl", [{"text": "a", "label": "neg"}])
        dataset = load_domains({"films": path, "books": [row("b", "pos", "something else")]})
        assert dataset["domain"] == ["films", "books"] and dataset["label"] == [0, 1]

    def test_other_column_names_and_other_columns(self):
        rows = [{"review": "a", "second": "b", "stars": 1, "shop": "x", "text": "no", "id": 5}]
        dataset = load_domains(rows, text="review", text_pair="second", label="stars", domain="shop", labels=["-", "+"])
        assert dataset[0] == {"text": "a", "text_pair": "b", "label": 1, "domain": "x", "id": 5}

    def test_text_pair_is_used_where_it_is_there(self):
        assert load_domains([row(text_pair="c")])[0]["text_pair"] == "c"
        assert "text_pair" not in load_domains([row(text_pair=None)]).column_names

    def test_tokens_graphs_and_no_text(self):
        assert load_domains([{"tokens": ["a"], "label": 0, "domain": "x"}])["tokens"] == [["a"]]
        assert load_domains([{"nodes": 3, "label": 0, "domain": "x"}], text=None)["nodes"] == [3]
        unlabelled = load_domains([{"tokens": ["a"], "tags": [1], "domain": "x"}], label=None)
        assert unlabelled.column_names == ["tokens", "domain", "tags"] and unlabelled.label_names == []

    def test_domains_are_names(self):
        assert load_domains([row(domain=2019), row(domain=" films ")]).domains == ["2019", "films"]


class TestFolders:
    @pytest.fixture
    def folder(self, tmp_path):
        for domain in ("books", "dvd"):
            for split, count in (("train", 3), ("test", 2)):
                rows = [{"text": f"{domain} {split} {i}", "label": i % 2} for i in range(count)]
                write_jsonl(tmp_path / f"{domain}.{split}.jsonl.gz", rows)
        (tmp_path / "labels.json").write_text('["negative", "positive", "never seen"]')
        (tmp_path / "README.md").write_text("notes")
        return tmp_path

    def test_domain_and_split_come_from_the_file_names(self, folder):
        dataset = load_domains(folder, split="train")
        assert dataset["domain"] == ["books"] * 3 + ["dvd"] * 3 and dataset["text"][0] == "books train 0"
        assert dataset.label_names == ["negative", "positive", "never seen"]
        assert len(load_domains(folder, split="test")) == 4

    def test_a_domain_column_comes_before_the_file_name(self, folder):
        write_jsonl(folder / "dvd.train.jsonl.gz", [row(domain="disc")])
        assert load_domains(folder, split="train").domains == ["books", "disc"]

    def test_split_is_needed_and_must_be_there(self, folder):
        with pytest.raises(ValueError, match="`split` is needed: .* has the splits 'test', 'train'"):
            load_domains(folder)
        with pytest.raises(ValueError, match="`split` is 'trian'.*Did you mean 'train'"):
            load_domains(folder, split="trian")

    def test_every_domain_needs_the_split(self, folder):
        (folder / "dvd.test.jsonl.gz").unlink()
        with pytest.raises(ValueError, match="`split`: .* no 'test' file for 'dvd'"):
            load_domains(folder, split="test")

    def test_files_by_split_and_files_by_domain(self, tmp_path):
        write_jsonl(tmp_path / "a" / "train.jsonl.gz", [row("one")])
        write_jsonl(tmp_path / "a" / "train_more.jsonl.gz", [row("two")])
        assert load_domains(tmp_path / "a", split="train_more")["text"] == ["two"]
        write_jsonl(tmp_path / "b" / "photo.jsonl", [{"text": "x", "label": 0, "split": "train"}])
        write_jsonl(tmp_path / "b" / "sketch.jsonl", [{"text": "y", "label": 0, "split": s} for s in ("train", "val")])
        assert load_domains(tmp_path / "b")["domain"] == ["photo", "sketch", "sketch"]
        assert load_domains(tmp_path / "b", split="train")["text"] == ["x", "y"]

    def test_label_file(self, tmp_path):
        path = write_jsonl(tmp_path / "x.jsonl", [row(label=1)])
        (tmp_path / "labels.json").write_text('["no", "yes"]')
        assert load_domains(path).label_names == ["no", "yes"]

    @pytest.mark.parametrize("content", ['{"0": "no", "1": "yes"}', "[1"])
    def test_label_files_that_say_nothing(self, tmp_path, content):
        path = write_jsonl(tmp_path / "x.jsonl", [row(label=1)])
        (tmp_path / "labels.json").write_text(content)
        with pytest.raises(ValueError, match="labels.json (must hold|is not valid JSON)"):
            load_domains(path)

    def test_images(self, image_folder):
        dataset = load_domains(image_folder)
        assert [path.rsplit("images/")[-1] for path in dataset["image"]] == [
            "photo/cat/1.png",
            "photo/dog/1.JPG",
            "photo/dog/2.jpg",
            "sketch/cat/1.jpeg",
        ]
        assert dataset["label"] == [0, 1, 1, 0] and dataset.label_names == ["cat", "dog"]
        assert dataset.domains == ["photo", "sketch"]

    def test_images_by_split(self, image_folder):
        (image_folder.parent / "all" / "test").mkdir(parents=True)
        image_folder.rename(image_folder.parent / "all" / "train")
        assert load_domains(image_folder.parent / "all", split="train").domains == ["photo", "sketch"]
        with pytest.raises(ValueError, match="`split` is needed: .* 'test', 'train'"):
            load_domains(image_folder.parent / "all")

    def test_empty_domain_of_images(self, image_folder):
        (image_folder / "cartoon" / "dog").mkdir(parents=True)
        with pytest.raises(ValueError, match="the domain 'cartoon' in .* is empty.*remove the domain's folder"):
            load_domains(image_folder)

    def test_a_domain_may_lack_classes_but_not_each_one_of_the_others(self, image_folder):
        (image_folder / "sketch" / "dogs").mkdir()
        (image_folder / "sketch" / "dogs" / "1.png").write_bytes(b"x")
        with pytest.raises(ValueError) as caught:
            load_domains(image_folder)
        text = str(caught.value)
        assert "'photo' has 'dog', missing in 'sketch', and 'sketch' has 'dogs'" in text
        assert "same name in all domains" in text and "`labels`" in text
        # Those who know say so.
        assert load_domains(image_folder, labels=["cat", "dog", "dogs"])["label"] == [0, 1, 1, 0, 2]
        assert "label" not in load_domains(image_folder, label=None).column_names
        (image_folder / "labels.json").write_text('["cat", "dog", "dogs"]')
        assert load_domains(image_folder).num_labels == 3

    def test_nothing_there(self, tmp_path):
        with pytest.raises(ValueError, match="`source`: the folder .* is empty"):
            load_domains(tmp_path)
        (tmp_path / "books.jsonl").write_text("")
        with pytest.raises(FileNotFoundError, match="`source`: there is no .*Did you mean 'books.jsonl'"):
            load_domains(tmp_path / "book.jsonl")


class TestLabels:
    def load(self, *values, **kwargs):
        dataset = load_domains([row(str(i), value) for i, value in enumerate(values)], **kwargs)
        return dataset["label"], dataset.label_names

    def test_names_are_sorted_or_in_the_order_given(self):
        assert self.load("pos", "neg") == ([1, 0], ["neg", "pos"])
        assert self.load("pos", " neg ", labels=["pos", "neutral", "neg"]) == ([0, 2], ["pos", "neutral", "neg"])

    @pytest.mark.parametrize("values", [(1, 0), ("1", "0"), (1.0, 0.0), ("1.0", "0"), (True, False)])
    def test_ids_in_any_spelling(self, values):
        assert self.load(*values) == ([1, 0], ["0", "1"])
        assert self.load(*values, labels=["no", "yes", "maybe"]) == ([1, 0], ["no", "yes", "maybe"])

    def test_names_that_look_like_numbers_come_first(self):
        assert self.load("5", "1", labels=["1", "3", "5"]) == ([2, 0], ["1", "3", "5"])
        assert self.load("good", "0", "-") == ([2, 1, 0], ["-", "0", "good"])

    @pytest.mark.parametrize("kind", [str, int, float])
    def test_stars_are_named_or_counted_and_never_both(self, kind):
        names = ["1", "2", "3"]
        assert self.load(*map(kind, (3, 1, 2)), labels=names) == ([2, 0, 1], names)
        assert self.load(*map(kind, (1, 2)), labels=names) == ([0, 1], names)
        assert self.load(*map(kind, (0, 1, 2)), labels=names) == ([0, 1, 2], names), "0 is no name: ids"
        with pytest.raises(ValueError, match="`label` holds '?0.*which is unknown"):
            self.load(*map(kind, (0, 1, 2, 3)), labels=names)

    def test_gaps(self):
        with pytest.raises(ValueError, match="`label` holds the ids 1, 2, which do not run from 0 to 1.*Give `labels`"):
            self.load(1, 2)
        with pytest.raises(ValueError, match="ids -1, 0, 1"):
            self.load("-1", "0", "1")

    def test_unknown(self):
        with pytest.raises(ValueError, match="`label` holds 'positve' in the list.*Did you mean 'positive'.*`labels`"):
            self.load("negative", "positve", labels=["negative", "positive"])
        with pytest.raises(ValueError, match=r"`label` holds 2 in the list, which is unknown: 1 row \(1\)"):
            self.load(0, 2, labels=["negative", "positive"])

    def test_what_is_no_class(self):
        with pytest.raises(ValueError, match="`label` holds 0.5, which is neither a name nor an integer"):
            self.load(0.5, 1)
        with pytest.raises(ValueError, match="`label` holds '4.5', a number that is no integer"):
            self.load("4.5", "3.0")
        with pytest.raises(ValueError, match="`label` mixes ids with names such as 'good'"):
            self.load(0, "good")
        with pytest.raises(ValueError, match="`label` must hold one class per row"):
            self.load([0, 1], [1])
        with pytest.raises(ValueError, match="`labels` must name at least one label and none twice"):
            self.load(0, 1, labels=["a", "a"])

    def sources(self, tmp_path, first, second):
        for folder, names in (("a", first), ("b", second)):
            write_jsonl(tmp_path / folder / "train.jsonl", [row(label=0), row(label=1)])
            (tmp_path / folder / "labels.json").write_text(json.dumps(names))
        return {"a": tmp_path / "a", "b": tmp_path / "b"}

    def test_domains_that_number_their_labels_differently(self, tmp_path):
        sources = self.sources(tmp_path, ["no", "yes"], ["yes", "no"])
        with pytest.raises(
            ValueError, match="`labels`: .*'a' names its labels 'no', 'yes', but .*'b' names them 'yes', 'no'"
        ):
            load_domains(sources, split="train")
        dataset = load_domains(sources, split="train", labels=["yes", "no"])
        assert dataset["label"] == [1, 0, 0, 1]

    def test_labels_may_rename_but_not_mix(self, tmp_path):
        sources = self.sources(tmp_path, ["no", "yes"], ["no", "yes"])
        assert load_domains(sources, split="train", labels=["-", "+"])["label"] == [0, 1, 0, 1]
        with pytest.raises(ValueError, match="`labels` is .*'a' names its labels 'no', 'yes'"):
            load_domains(sources, split="train", labels=["yes", "maybe"])
