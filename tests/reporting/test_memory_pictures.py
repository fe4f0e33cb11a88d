# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The pictures show what is in HMA's memories and what rows read of it, and one command makes them all."""

import csv
import json
import runpy
import subprocess
import sys

import numpy as np
import pytest
import torch
from families import SENTENCES, Case, fill_real_memory, save_tokenizer_and_model, tiny_image_processor, tiny_tokenizer
from families import tiny_vit as plain_vit
from PIL import Image

from hf_memaug import DomainDataset
from hf_memaug.reporting import memory_maps, memory_pictures, plots

pytest.importorskip("matplotlib", reason="figures need matplotlib: pip install hf_memaug[report]")
pytest.importorskip("sklearn", reason="t-SNE needs scikit-learn: pip install hf_memaug[report]")

from matplotlib.image import imread

HEAD, IMAGES, TEXT, GRAPHS = (
    Case("hma", name)
    for name in ("HMAHead", "HMAForImageClassification", "HMAForSequenceClassification", "HMAForGraphClassification")
)
DOMAINS, CLASSES = ["photo", "sketch"], ["dog", "horse", "person"]


def features(rows=6, seed=3) -> torch.Tensor:
    return torch.randn(rows, 32, generator=torch.Generator().manual_seed(seed))


def make_dataset(rows=12, classes=CLASSES) -> DomainDataset:
    """Classes in turn, and the first half of the rows in the first domain."""
    blots = np.random.default_rng(0).integers(0, 256, size=(rows, 8, 8, 3), dtype=np.uint8)
    domains = [DOMAINS[row >= rows // 2] for row in range(rows)]
    return DomainDataset({"image": list(blots), "label": [row % 3 for row in range(rows)], "domain": domains}, classes)


def legend_of(figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def ticks(axis) -> list[str]:
    return [text.get_text() for text in axis.get_ticklabels()]


def points_of(axes) -> list[np.ndarray]:
    """The points of each group, rows before slots."""
    groups = [np.asarray(group.get_offsets()) for group in axes.collections]
    return [group for group in groups if len(group)]


def read_by_hand(reader, rows, others) -> np.ndarray:
    """The weights of Eq. 1 with which rows read others, the mean over heads, one number at a time."""
    found = np.zeros((len(rows), len(others)))
    with torch.no_grad():
        queries = reader.query_projection(reader.norm(rows)).unflatten(-1, (reader.heads, -1))
        keys = reader.key_projection(reader.norm(others)).unflatten(-1, (reader.heads, -1))
        for row in range(len(rows)):
            for head in range(reader.heads):
                scores = [float(queries[row, head] @ key[head]) / queries.shape[-1] ** 0.5 for key in keys]
                found[row] += np.exp(scores) / np.exp(scores).sum() / reader.heads
    return found


class TestMaps:
    def test_slots_are_the_models_own(self):
        model = HEAD.model()
        found = memory_maps.synthetic_slots(model)
        assert found.features.shape == (6, 32) and found.labels.tolist() == [0, 0, 1, 1, 2, 2]
        for place, label in enumerate(found.labels):
            assert np.allclose(found.features[place], model.memory.synthetic_slots[label, place % 2].detach())

    @pytest.mark.parametrize("augmentation", ["hma", "abd+rma", "abd+syn", "none"])
    def test_features_after_the_real_memory(self, augmentation):
        model, rows = HEAD.model(augmentation=augmentation), features()
        found = memory_maps.after_real_memory(model, rows)
        assert found.shape == (6, 32)
        if augmentation in ("abd+syn", "none"):
            assert np.array_equal(found, rows)
            return
        memory = model.memory
        with torch.no_grad():
            expected = memory.real_reader(memory.aggregate(rows), memory.queue.slots, memory.queue.filled)[0]
        assert np.allclose(found, expected[:, :32]) and not np.allclose(found, rows)

    @pytest.mark.parametrize("augmentation", ["hma", "abd+syn", "abd"])
    def test_what_rows_read_of_each_other_and_of_the_slots(self, augmentation):
        # Independent inference: the picture is of a batch all the same.
        model, rows = HEAD.model(augmentation=augmentation, inference="independent").train(), features()
        found = memory_maps.datapoint_attention(model, rows)
        memory = model.memory
        with torch.no_grad():
            after, _ = memory.after_real_memory(memory.aggregate(rows))
            expected = read_by_hand(memory.synthetic_reader, after, torch.cat([after, memory.synthetic_memory(after)]))
        assert found.rows.shape == (6, 6) and np.allclose(found.rows, expected[:, :6], atol=1e-6)
        assert np.allclose(found.slots, expected[:, 6:], atol=1e-6)
        assert found.slot_labels.tolist() == ([] if augmentation == "abd" else [0, 0, 1, 1, 2, 2])
        assert model.training and model.memory.training and model.config.inference == "independent"
        assert not model._pending

    def test_what_rows_read_of_the_real_memory(self):
        model, rows = HEAD.model(), features()
        found = memory_maps.real_attention(model, rows)
        asking, queue = model.memory.aggregate(rows), model.memory.queue
        assert found.slots.shape == (6, 20) and np.array_equal(found.slot_labels, np.arange(20) % 3)
        for row in range(6):
            seen = torch.cat([queue.slots[:20], asking[row : row + 1]])
            expected = read_by_hand(model.memory.real_reader, asking[row : row + 1], seen)[0]
            assert np.allclose(found.slots[row], expected[:20], atol=1e-6)
            assert found.own[row] == pytest.approx(expected[20], abs=1e-6)

    def test_shares_of_classes(self):
        generator = np.random.default_rng(0)
        weights, labels, slot_labels = generator.random((5, 7)), [0, 2, 2, 0, 0], [2, 0, 0, 1, 2, 2, 0]
        found = memory_maps.read_by_class(torch.tensor(weights), labels, slot_labels, 4)
        assert found.shape == (4, 4) and np.isnan(found[[1, 3]]).all()
        for of_row in (0, 2):
            for of_slot in range(4):
                read = [
                    sum(weights[row, slot] for slot in range(7) if slot_labels[slot] == of_slot)
                    for row in range(5)
                    if labels[row] == of_row
                ]
                assert found[of_row, of_slot] == pytest.approx(sum(read) / len(read))
        with pytest.raises(ValueError, match="`weights` has 5 items and `labels` has 4"):
            memory_maps.read_by_class(weights, labels[:4], slot_labels, 4)
        with pytest.raises(ValueError, match="`slot_labels` has 6 items"):
            memory_maps.read_by_class(weights, labels, slot_labels[:6], 4)

    def test_features_of_images_texts_and_graphs(self):
        model, processor, dataset = IMAGES.model().train(), tiny_image_processor(), make_dataset(5)
        found = memory_maps.features_of(model, processor, dataset, batch_size=2)
        assert model.training and not model.momentum_backbone.training and not found.requires_grad
        pixels = processor(images=dataset["image"], return_tensors="pt")["pixel_values"]
        with torch.no_grad():
            torch.testing.assert_close(found, model.eval().features(pixel_values=pixels))

        tokenizer = tiny_tokenizer("bert")
        model = TEXT.model(vocab_size=len(tokenizer))
        columns = {"text": SENTENCES, "label": [0, 1, 2] * 2, "domain": ["a"] * 6}
        found = memory_maps.features_of(model, tokenizer, DomainDataset(columns), batch_size=4)
        with torch.no_grad():
            for row, text in enumerate(SENTENCES):
                alone = model.features(**tokenizer(text, return_tensors="pt"))[0]
                torch.testing.assert_close(found[row], alone, rtol=1e-4, atol=1e-5)

        model, graphs = GRAPHS.model(), GRAPHS.graphs(5, torch.Generator().manual_seed(0))
        columns = {"graph": [one["graph"] for one in graphs], "label": [0, 1, 2, 0, 1], "domain": ["a"] * 5}
        found = memory_maps.features_of(model, None, DomainDataset(columns), batch_size=2)
        from hf_memaug.data.graphs import GraphCollator

        batch = {name: value for name, value in GraphCollator()(graphs).items() if name != "labels"}
        with torch.no_grad():
            torch.testing.assert_close(found, model.features(**batch), rtol=1e-4, atol=1e-5)

    def test_refusals(self):
        rows = features()
        with pytest.raises(ValueError, match="`model` is a ViTForImageClassification, which has no real or synthetic"):
            memory_maps.synthetic_slots(plain_vit())
        for augmentation in ("none", "rma", "abd", "param"):
            words = f"`augmentation` \"{augmentation}\", which has no synthetic slots: .* 'abd.syn', 'hma'"
            with pytest.raises(ValueError, match=words):
                memory_maps.synthetic_slots(HEAD.model(augmentation=augmentation))
        with pytest.raises(ValueError, match="has no real memory: .* 'rma', 'abd.rma', 'hma'"):
            memory_maps.real_attention(HEAD.model(augmentation="param"), rows)
        with pytest.raises(ValueError, match="has no attention between datapoints: .* 'abd', "):
            memory_maps.datapoint_attention(HEAD.model(augmentation="rma"), rows)
        empty = HEAD.model()
        empty.memory.queue.clear()
        with pytest.raises(ValueError, match="empty real memory: train it first. .*`model.update_memory..`"):
            memory_maps.real_attention(empty, rows)
        with pytest.raises(ValueError, match=r"`features` has shape \(6, 40\): pass \(rows, 32\)"):
            memory_maps.after_real_memory(HEAD.model(), torch.zeros(6, 40))
        with pytest.raises(ValueError, match="a HMAHead without a backbone"):
            memory_maps.features_of(HEAD.model(), None, make_dataset())
        with pytest.raises(ValueError, match="and no 'text', which a HMAForSequenceClassification reads"):
            memory_maps.features_of(TEXT.model(), None, make_dataset())
        with pytest.raises(ValueError, match="`batch_size` is 0"):
            memory_maps.features_of(IMAGES.model(), None, make_dataset(), batch_size=0)


FILES = ["memory_slots.png", "datapoint_attention.png", "real_memory.png"]


class TestModelAtHand:
    def test_what_is_drawn_is_what_the_model_reads(self, tmp_path, drawn):
        model, processor, dataset = IMAGES.model(), tiny_image_processor(), make_dataset(24)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        options = {"rows_per_class": 5, "attention_rows": 3, "seed": 4}
        written = memory_pictures.draw_memories(model, processor, dataset, tmp_path, **options)
        assert written == [tmp_path / name for name in FILES] and all(path.is_file() for path in written)
        slots, attention, real = drawn
        # The first of each domain, then the second, and so on.
        rows = [[label, 12 + label, 3 + label, 15 + label, 6 + label] for label in range(3)]
        assert [memory_pictures._rows_in_turn(dataset, label, 5) for label in range(3)] == rows
        many = memory_maps.features_of(model, processor, dataset.select(sum(rows, [])))
        few = memory_maps.features_of(model, processor, dataset.select(sum((one[:3] for one in rows), [])))

        found = memory_maps.synthetic_slots(model)
        both = np.concatenate([memory_maps.after_real_memory(model, many), found.features])
        points = plots._neighbour_embedding(both, 4)
        groups = points_of(slots.axes[1])
        for label in range(3):
            assert np.allclose(groups[label], points[5 * label : 5 * label + 5])
            assert np.allclose(groups[3 + label], points[15 + 2 * label : 17 + 2 * label])
        seen = memory_maps.datapoint_attention(model, few)
        expected = np.concatenate([seen.rows, seen.slots], axis=1)
        assert np.allclose(attention.axes[0].images[0].get_array(), expected, atol=1e-7)
        read = memory_maps.real_attention(model, many)
        shares = memory_maps.read_by_class(read.slots, np.repeat(range(3), 5), read.slot_labels, 3)
        assert np.allclose(real.axes[1].images[0].get_array()[:, :3], shares, atol=1e-7)
        assert [bar.get_width() for bar in real.axes[0].containers[0]] == [7, 7, 6]
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert ticks(real.axes[0].yaxis) == ticks(attention.axes[0].yaxis) == CLASSES

    def test_some_classes(self, tmp_path, drawn):
        model, processor, dataset = IMAGES.model(synthetic_slots=4), tiny_image_processor(), make_dataset(24)
        memory_pictures.draw_memories(model, processor, dataset, tmp_path, classes=["person", "dog"])
        slots, attention, real = drawn
        assert legend_of(slots)[:2] == ["person", "dog"]
        assert [len(points) for points in points_of(slots.axes[0])] == [4, 4]
        assert attention.axes[0].images[0].get_array().shape == (16, 24)
        order = [row for label in (2, 0) for row in memory_pictures._rows_in_turn(dataset, label, 10)]
        features = memory_maps.features_of(model, processor, dataset.select(order))
        seen = memory_maps.datapoint_attention(model, features)
        expected = np.concatenate([seen.rows, seen.slots[:, [8, 9, 10, 11, 0, 1, 2, 3]]], axis=1)
        assert np.allclose(attention.axes[0].images[0].get_array(), expected, atol=1e-7)
        assert ticks(real.axes[0].yaxis) == ["person", "dog", "others"]
        assert [bar.get_width() for bar in real.axes[0].containers[0]] == [6, 7, 7]
        assert ticks(real.axes[1].yaxis) == ["person", "dog"]

    @pytest.mark.parametrize(
        ("augmentation", "files"),
        [("abd+syn", FILES[:2]), ("abd+rma", FILES[1:]), ("rma", FILES[2:]), ("abd", FILES[1:2])],
    )
    def test_only_what_the_augmentation_has(self, augmentation, files, tmp_path):
        model = IMAGES.model(augmentation=augmentation)
        written = memory_pictures.draw_memories(model, tiny_image_processor(), make_dataset(), tmp_path)
        assert [path.name for path in written] == files

    @pytest.mark.parametrize(
        ("changed", "words"),
        [
            ({"model": plain_vit()}, "`model` is a ViTForImageClassification, which has no real or synthetic memory"),
            (
                {"model": IMAGES.model(augmentation="param")},
                'The `augmentation` "param" has no memory .* such as "hma"',
            ),
            (
                {"model": IMAGES.model(augmentation="rma"), "pictures": ["slots"]},
                '"rma", which has no synthetic slots: pass one that was trained with',
            ),
            ({"pictures": ["slot"]}, "`pictures` 'slot' is not known: .*Did you mean 'slots'"),
            ({"model": IMAGES.model(synthetic_slots=1)}, "There are 3 synthetic slots to show, and t-SNE needs at lea"),
            ({"classes": ["dog", "horse"]}, 'There are 4 synthetic slots .* leave "slots" out of `pictures`'),
            (
                {"dataset": make_dataset(3)},
                "`dataset` has fewer than 5 rows to show, and t-SNE needs as many: pass mor",
            ),
            ({"rows_per_class": 1}, "fewer than 5 rows to show.* or a larger `rows_per_class`"),
            ({"attention_rows": 0}, "`attention_rows` is 0: pass at least 1"),
            ({"classes": ["hores"]}, "`classes` 'hores' is not known: .*Did you mean 'horse'"),
            ({"classes": []}, "`classes` are 0: name from 1 to 35"),
            ({"dataset": make_dataset(2), "classes": ["person"]}, "`classes` names 'person', of which .* has no row"),
            ({"dataset": make_dataset(classes=[*CLASSES, "cat"])}, "`dataset` has 4 classes and the model 3"),
            ({"dataset": make_dataset().without_columns("label")}, "`dataset` has no labelled row"),
        ],
    )
    def test_refusals(self, changed, words, tmp_path):
        given = {"model": IMAGES.model(), "processor": tiny_image_processor(), "dataset": make_dataset()}
        with pytest.raises(ValueError, match=words):
            memory_pictures.draw_memories(**{**given, "output": tmp_path, **changed})
        assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Checkpoints with their processors, images in folders, and texts with and without domains."""
    home = tmp_path_factory.mktemp("memories")
    labels = {"id2label": {0: "person", 1: "dog", 2: "horse"}, "label2id": {"person": 0, "dog": 1, "horse": 2}}
    model = IMAGES.model(**labels)
    for name, one in (("images", model), ("unnamed", IMAGES.model()), ("vit", plain_vit(num_labels=3))):
        one.save_pretrained(home / name)
        tiny_image_processor().save_pretrained(home / name)
    model.save_pretrained(home / "bare")
    HEAD.model().save_pretrained(home / "head")
    save_tokenizer_and_model(TEXT, home / "texts")
    for row, example in enumerate(make_dataset(18)):
        folder = home / "folder" / example["domain"] / CLASSES[example["label"]]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(example["image"]).save(folder / f"{row}.png")
        if example["label"]:
            (home / "two" / "photo" / CLASSES[example["label"]]).mkdir(parents=True, exist_ok=True)
            Image.fromarray(example["image"]).save(home / "two" / "photo" / CLASSES[example["label"]] / f"{row}.png")
    with open(home / "texts.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["review", "stars"])
        writer.writerows([text, row % 3] for row, text in enumerate(SENTENCES * 2))
    lines = [{"text": text, "label": row % 3, "domain": "ab"[row % 2]} for row, text in enumerate(SENTENCES)]
    (home / "texts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return home


class TestTheCommand:
    def test_one_call_writes_all_pictures_of_images(self, places, tmp_path, capsys, drawn):
        output = tmp_path / "made" / "here"
        memory_pictures.main([str(places / "images"), str(places / "folder"), "--output", str(output)])
        assert capsys.readouterr().out.split() == [str(output / name) for name in FILES]
        for name in FILES:
            assert imread(output / name)[..., :3].std() > 0.03
        # Classes have the numbers that the checkpoint gives them, not those of the folders.
        assert legend_of(drawn[0])[:3] == ["person", "dog", "horse"]
        assert ticks(drawn[2].axes[0].yaxis) == ["person", "dog", "horse"]
        assert drawn[1].axes[0].images[0].get_array().shape == (18, 18 + 6)

    def test_texts(self, places, tmp_path, drawn):
        memory_pictures.main([str(places / "texts"), str(places / "texts.jsonl"), "--output", str(tmp_path)])
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)
        model, tokenizer = memory_pictures._load(places / "texts")
        order = [0, 3, 1, 4, 2, 5]
        columns = {"text": [SENTENCES[row] for row in order], "domain": ["a"] * 6}
        found = memory_maps.datapoint_attention(
            model, memory_maps.features_of(model, tokenizer, DomainDataset(columns))
        )
        shown = drawn[1].axes[0].images[0].get_array()
        assert np.allclose(shown, np.concatenate([found.rows, found.slots], axis=1), atol=1e-6)

    def test_texts_without_domains_in_columns_of_other_names(self, places, tmp_path):
        given = [str(places / "texts"), str(places / "texts.csv"), "--output", str(tmp_path), "--pictures", "attention"]
        memory_pictures.main([*given, "--text", "review", "--label", "stars", "--no-domain"])
        assert [path.name for path in tmp_path.iterdir()] == FILES[1:2]

    def test_graphs(self, tmp_path):
        GRAPHS.model().save_pretrained(tmp_path / "graphs")
        rows = [{**row, "domain": "a"} for row in GRAPHS.graphs(9, torch.Generator().manual_seed(0))]
        written = memory_pictures.write_pictures(tmp_path / "graphs", rows, tmp_path / "out", rows_per_class=2)
        assert [path.name for path in written] == FILES

    def test_molecules(self, tmp_path):
        pytest.importorskip("rdkit", reason="molecules need RDKit: pip install hf_memaug[graph]")
        from hf_memaug import GraphNetworkConfig, GraphNetworkModel, HMAForGraphClassification
        from hf_memaug.data import load_molecules
        from hf_memaug.data.graphs import feature_sizes

        file = tmp_path / "rows.csv"
        rows = "".join(f"{'C' * number}O,{number % 3},a\n" for number in range(1, 10))
        file.write_text(f"drawn,label,domain\n{rows}", encoding="utf-8")
        sizes = feature_sizes(load_molecules(file, smiles="drawn"))
        network = GraphNetworkModel(GraphNetworkConfig(hidden_size=8, num_hidden_layers=2, **sizes._asdict()))
        model = HMAForGraphClassification.from_backbone(network, num_labels=3, real_memory_size=32, synthetic_slots=2)
        fill_real_memory(model)
        model.save_pretrained(tmp_path / "model")
        given = [str(tmp_path / "model"), str(file), "--output", str(tmp_path / "out"), "--rows-per-class", "2"]
        memory_pictures.main([*given, "--smiles", "drawn"])
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(FILES)

    def test_help(self, capsys, monkeypatch):
        monkeypatch.setattr(sys, "argv", ["memory_pictures", "--help"])
        with pytest.raises(SystemExit) as stopped, pytest.warns(RuntimeWarning):
            runpy.run_module("hf_memaug.reporting.memory_pictures", run_name="__main__")
        said = " ".join(capsys.readouterr().out.split())
        assert stopped.value.code == 0
        assert "python -m hf_memaug.reporting.memory_pictures" in said and all(name in said for name in FILES)
        for option in ("--output", "--pictures", "--classes", "--rows-per-class", "--attention-rows", "--no-domain"):
            assert option in said

    @pytest.mark.parametrize(
        ("checkpoint", "data", "options", "words"),
        [
            ("vit", "folder", [], "`checkpoint` is a ViTForImageClassification, which is no HMA model with a backbone"),
            ("head", "folder", [], "`checkpoint` is a HMAHead, which is no HMA model with a backbone: pass a checkp"),
            ("bare", "folder", [], "has no image processor that can be read. Save the one it was trained with there"),
            ("images", "nowhere", [], "`source`: there is no"),
            ("images", "texts.jsonl", [], "and no 'image', which a HMAForImageClassification reads: pass rows of its"),
            ("texts", "texts.csv", [], "`domain` is 'domain', but"),
            ("unnamed", "two", [], "`data` has 2 classes and `checkpoint` 3 without names: save it with an `id2label`"),
            ("images", "folder", ["--classes", "cat"], "`classes` 'cat' is not known"),
            ("images", "folder", ["--batch-size", "0"], "`batch_size` is 0: pass at least 1"),
        ],
    )
    def test_refusals(self, checkpoint, data, options, words, places, tmp_path, capsys):
        output = tmp_path / "out"
        with pytest.raises(SystemExit) as stopped:
            memory_pictures.main([str(places / checkpoint), str(places / data), "--output", str(output), *options])
        said = capsys.readouterr()
        assert stopped.value.code == 2 and not said.out and not output.exists()
        assert words in said.err

    def test_a_class_that_the_data_lacks_keeps_the_others_in_place(self, places, tmp_path, drawn):
        options = {"pictures": ["real_memory"], "rows_per_class": 2}
        memory_pictures.write_pictures(places / "images", places / "two", tmp_path, **options)
        (figure,) = drawn
        # There is no dog among the rows: 1 is the dog's number, whose slots are among the others.
        assert ticks(figure.axes[0].yaxis) == ["person", "horse", "others"]
        assert [bar.get_width() for bar in figure.axes[0].containers[0]] == [7, 6, 7]


def test_a_memory_that_is_filled_again_is_drawn_as_it_is():
    model = HEAD.model()
    for _ in range(2):
        fill_real_memory(model)
    assert memory_maps.real_attention(model, features()).slots.shape == (6, 24)


@pytest.mark.parametrize("module", ["memory_pictures", "memory_sizes"])
def test_importing_imports_none_of_the_optional_packages(module):
    names = "{'matplotlib', 'sklearn', 'datasets'}"
    code = f"import sys, hf_memaug.reporting.{module}; print(sorted({names} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
