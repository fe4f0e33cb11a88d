# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The pictures show the experts and the attention that the model has, and one command makes them all."""

import runpy
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from families import tiny_image_processor, tiny_vit, vit_gmoe_config
from PIL import Image
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from hf_memaug import DomainDataset, ViTGMoEForImageClassification
from hf_memaug.data.generated import generated_digits
from hf_memaug.reporting import expert_maps, expert_panels, expert_pictures

pytest.importorskip("matplotlib", reason="figures need matplotlib: pip install hf_memaug[report]")

from matplotlib.colors import to_hex, to_rgb
from matplotlib.image import imread

DOMAINS, CLASSES = ["photo", "sketch"], ["dog", "horse", "person"]


def make_gmoe(**kwargs):
    torch.manual_seed(0)
    return ViTGMoEForImageClassification(vit_gmoe_config(**kwargs)).eval()


def make_images(count=6, height=20, width=28):
    blots = np.random.default_rng(0).integers(0, 256, size=(count, 4, 4, 3), dtype=np.uint8)
    return [np.array(Image.fromarray(blot).resize((width, height))) for blot in blots]


def make_dataset(classes=CLASSES, domains=DOMAINS, labels=(0, 2, 0, 0, 2, 2)):
    columns = {"image": make_images(), "label": list(labels), "domain": [domains[row] for row in (0, 0, 1, 0, 1, 1)]}
    return DomainDataset(columns, classes)


def processor_of(height, width):
    return ViTImageProcessorPil(size={"height": height, "width": width})


def legend_of(figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def texts_of(figure) -> list:
    texts = [text for axes in figure.axes for text in (axes.title, axes.yaxis.label, axes.xaxis.label, *axes.texts)]
    ticks = [text for axes in figure.axes for text in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    entries = [text for legend in figure.legends for text in legend.get_texts()]
    return [text for text in [*texts, *ticks, *entries] if text.get_text()]


def check_layout(figure) -> None:
    """Nothing is cut off, and no text covers another or an image."""
    figure.draw_without_rendering()
    boxes = {text: text.get_window_extent() for text in texts_of(figure)}
    for text, box in boxes.items():
        # With two pixels to spare, which the edges of letters may need.
        (left, bottom), (right, top) = box.min, figure.bbox.max - box.max
        inside = min(left, bottom, right, top) >= 2
        assert inside, f"{text.get_text()!r} is cut off"
    listed = list(boxes.items())
    for place, (text, box) in enumerate(listed):
        for other, other_box in listed[:place]:
            assert not box.overlaps(other_box), f"{text.get_text()!r} covers {other.get_text()!r}"
        for axes in figure.axes:
            if axes.images and text not in axes.texts:
                assert not box.overlaps(axes.images[0].get_window_extent()), f"{text.get_text()!r} covers an image"


def shown(axes) -> np.ndarray:
    return np.asarray(axes.images[0].get_array())


def check_tints(axes, image, experts, patch=4) -> None:
    """Every patch of the picture has the colour of its expert over the image, at its middle and at its corners."""
    for (row, column), expert in np.ndenumerate(experts):
        colour = np.array(to_rgb(expert_panels.EXPERT_COLOURS[expert]))
        for y, x in ((0, 0), (patch // 2, patch // 2), (patch - 1, patch - 1), (0, patch - 1)):
            y, x = row * patch + y, column * patch + x
            grey = 0.15 + 0.7 * image[y, x] @ [0.299, 0.587, 0.114]
            assert np.allclose(shown(axes)[y, x], 0.3 * grey + 0.7 * colour, atol=1e-6)


class TestExperts:
    @pytest.mark.parametrize("size", [(16, 16), (12, 24), (18, 15)], ids=["trained", "wide", "no_multiple"])
    @pytest.mark.parametrize("token", [False, True], ids=["vit", "deit"])
    def test_patches_have_the_colour_of_their_expert(self, size, token, tmp_path, drawn):
        model, processor, images = make_gmoe(distillation_token=token), processor_of(*size), make_images(3)
        path = tmp_path / "deep" / "experts.png"
        assert expert_pictures.draw_experts(model, processor, images, path, titles=["a", "b", "c"]) == path
        panels = drawn[0].axes
        assert [axes.get_title() for axes in panels[:3]] == ["image", "layer 0", "layer 2"] and len(panels) == 9
        assert [axes.get_ylabel() for axes in panels[::3]] == ["a", "b", "c"]
        grid = (size[0] // 4, size[1] // 4)
        for row, image in enumerate(images):
            pixels = processor(images=image, return_tensors="pt")["pixel_values"]
            with torch.no_grad():
                output = model(pixels, interpolate_pos_encoding=True, output_memory_weights=True)
            chosen = output.memory_weights[0, :, 2 if token else 1 :].argmax(dim=-1).view(2, *grid).numpy()
            seen = expert_maps.as_seen(processor, image)
            assert np.array_equal(shown(panels[3 * row]), seen)
            for layer in range(2):
                check_tints(panels[3 * row + 1 + layer], seen, chosen[layer])
                # What no patch covers is left as it was.
                rest = np.s_[grid[0] * 4 :, :]
                assert np.array_equal(shown(panels[3 * row + 1 + layer])[rest], seen[rest])
        assert legend_of(drawn[0]) == ["expert 0", "expert 1", "expert 2", "expert 3"]
        colours = [to_hex(handle.get_facecolor()).upper() for handle in drawn[0].legends[0].legend_handles]
        assert colours == list(expert_panels.EXPERT_COLOURS[:4])
        check_layout(drawn[0])

    def test_rows_of_a_dataset_are_titled(self, tmp_path, drawn):
        expert_pictures.draw_experts(make_gmoe(), tiny_image_processor(), make_dataset(), tmp_path / "a.png", layer=2)
        panels = drawn[0].axes
        assert [axes.get_title() for axes in panels[:2]] == ["image", "layer 2"] and len(panels) == 12
        titles = [axes.get_ylabel() for axes in panels[::2]]
        assert titles[:3] == ["photo\ndog", "photo\nperson", "sketch\ndog"]

    def test_one_layer_is_the_one_asked_for(self, tmp_path, drawn):
        model, processor, images = make_gmoe(), tiny_image_processor(), make_images(1)
        both = expert_maps.first_experts(model, processor, images)[0]
        assert not np.array_equal(*both)
        for place, layer in enumerate((0, 2)):
            expert_pictures.draw_experts(model, processor, images, tmp_path / "a.png", layer=layer)
            check_tints(drawn[place].axes[1], expert_maps.as_seen(processor, images[0]), both[place])

    def test_numbers_stand_in_the_middle_of_their_patch(self, tmp_path, drawn):
        model, processor, images = make_gmoe(), processor_of(12, 24), make_images(1)
        expert_pictures.draw_experts(model, processor, images, tmp_path / "a.png", layer=0)
        assert not drawn[0].axes[1].texts
        expert_pictures.draw_experts(model, processor, images, tmp_path / "a.png", layer=0, numbers=True)
        experts = expert_maps.first_experts(model, processor, images, [0])[0][0]
        written = {text.get_position(): text.get_text() for text in drawn[1].axes[1].texts}
        assert written == {(4 * x + 1.5, 4 * y + 1.5): str(expert) for (y, x), expert in np.ndenumerate(experts)}

    def test_more_experts_than_colours_are_numbered_and_hatched(self, tmp_path, drawn):
        expert_pictures.draw_experts(
            make_gmoe(num_experts=20), processor_of(16, 16), make_images(1), tmp_path / "a.png"
        )
        assert len(drawn[0].axes[1].texts) == 16
        handles = {handle.get_label(): handle for handle in drawn[0].legends[0].legend_handles}
        looks = {(handle.get_facecolor(), handle.get_hatch()) for handle in handles.values()}
        assert len(looks) == len(handles) == 20
        check_layout(drawn[0])

    def test_the_legend_is_read_line_by_line(self, tmp_path, drawn):
        expert_pictures.draw_experts(
            make_gmoe(num_experts=7), tiny_image_processor(), make_images(1), tmp_path / "a.png"
        )
        figure = drawn[0]
        figure.draw_without_rendering()
        boxes = {text.get_text(): text.get_window_extent() for text in figure.legends[0].get_texts()}
        by_place = sorted(boxes, key=lambda name: (-round(boxes[name].y0), boxes[name].x0))
        assert by_place == [f"expert {expert}" for expert in range(7)]
        assert len({round(box.y0) for box in boxes.values()}) > 1

    def test_headings_of_a_single_row_are_not_cut_off(self, tmp_path, drawn):
        given = make_gmoe(num_experts=6), processor_of(64, 64), make_images(1), tmp_path / "a.png"
        expert_pictures.draw_experts(*given, layer=2, titles=["art_painting\ndog"])
        check_layout(drawn[0])

    @pytest.mark.parametrize(
        ("changed", "words"),
        [
            ({"path": "a.pdf"}, "`path` is 'a.pdf'.*end it in '.png'"),
            ({"images": []}, "`images` is empty: pass at least one image"),
            ({"images": "a.jpg"}, "`images` is a str: pass a list, of one image where there is one"),
            ({"images": [b""] * 101}, "`images` are 101, and a picture has room for 100 rows: choose some of them"),
            ({"images": DomainDataset({"text": ["a"], "domain": ["b"]})}, "without a column 'image'"),
            ({"titles": ["a"]}, "`images` has 6 items and `titles` has 1"),
            ({"layer": 1}, "`layer` is 1, and the layers with experts are 0, 2"),
            ({"model": tiny_vit()}, "`model` is a ViTForImageClassification, which has no experts"),
        ],
    )
    def test_refusals(self, changed, words, tmp_path):
        given = {"model": make_gmoe(), "processor": tiny_image_processor(), "images": make_images()}
        with pytest.raises(ValueError, match=words):
            expert_pictures.draw_experts(**{**given, "path": tmp_path / "a.png", **changed})
        assert not list(tmp_path.iterdir())


LONG = {
    "classes": ["Great_Crested_Flycatcher_of_the_northern_woods", "$a$", "x" * 40],
    "domains": ["a domain with a name that goes on and on", "$b$"],
}


@pytest.mark.parametrize("names", [{}, LONG], ids=["short", "long"])
class TestLayout:
    def test_experts(self, names, tmp_path, drawn):
        for size in ((16, 16), (8, 32), (32, 8)):
            expert_pictures.draw_experts(make_gmoe(), processor_of(*size), make_dataset(**names), tmp_path / "a.png")
            check_layout(drawn[-1])

    def test_across_domains(self, names, tmp_path, drawn):
        dataset = make_dataset(**names)
        expert_pictures.draw_experts_across_domains(make_gmoe(), tiny_image_processor(), dataset, tmp_path / "a.png")
        check_layout(drawn[0])

    def test_histogram(self, names, tmp_path, drawn):
        dataset = make_dataset(**names)
        expert_pictures.class_expert_histogram(
            make_gmoe(num_experts=12), tiny_image_processor(), dataset, tmp_path / "a.png", progress=False
        )
        check_layout(drawn[0])

    def test_attention(self, names, tmp_path, drawn):
        models = {"ViT": tiny_vit(), "a model with a long name": make_gmoe()}
        expert_pictures.draw_attention(models, tiny_image_processor(), make_dataset(**names), tmp_path / "a.png")
        check_layout(drawn[0])


class TestAcrossDomains:
    def test_one_image_of_every_domain_for_each_class(self, tmp_path, drawn):
        model, processor, dataset = make_gmoe(), tiny_image_processor(), make_dataset()
        expert_pictures.draw_experts_across_domains(model, processor, dataset, tmp_path / "a.png")
        panels = drawn[0].axes
        assert [axes.get_title() for axes in panels[:4]] == ["photo", "layer 2", "sketch", "layer 2"]
        assert [axes.get_ylabel() for axes in panels[::4]] == CLASSES
        # Rows 0 and 2 are the first dogs, there is no horse, and rows 1 and 4 are the first persons.
        for place, row in ((0, 0), (2, 2), (8, 1), (10, 4)):
            seen = expert_maps.as_seen(processor, dataset["image"][row])
            experts = expert_maps.first_experts(model, processor, [dataset["image"][row]], [2])[0][0]
            assert np.array_equal(shown(panels[place]), seen)
            check_tints(panels[place + 1], seen, experts)
        assert all(not axes.images and axes.texts[0].get_text() == "no image" for axes in panels[4:8])

    def test_chosen_classes_and_layer(self, tmp_path, drawn):
        given = make_gmoe(), tiny_image_processor(), make_dataset(), tmp_path / "a.png"
        expert_pictures.draw_experts_across_domains(*given, layer=0, classes=["person", "dog"])
        panels = drawn[0].axes
        assert [axes.get_ylabel() for axes in panels[::4]] == ["person", "dog"]
        assert panels[1].get_title() == "layer 0"
        experts = expert_maps.first_experts(given[0], given[1], [given[2]["image"][1]], [0])[0][0]
        check_tints(panels[1], expert_maps.as_seen(given[1], given[2]["image"][1]), experts)

    def test_files_of_one_name_are_one_image(self, tmp_path):
        files = ["p/b.jpg", "p/c.jpg", "p/d.jpg", "s/a.jpg", "s/d.png", "s/c.jpg"]
        columns = {"image": files, "label": [0] * 6, "domain": ["p"] * 3 + ["s"] * 3}
        # The first name of the first domain that all have; a domain without the class has none.
        assert expert_pictures._one_of_each_domain(DomainDataset(columns), 0) == [1, 5]
        columns = {"image": [*files, "t/a.jpg"], "label": [0] * 6 + [1], "domain": ["p"] * 3 + ["s"] * 3 + ["t"]}
        assert expert_pictures._one_of_each_domain(DomainDataset(columns), 0) == [1, 5, None]
        columns = {"image": ["p/a.jpg", "p/b.jpg", "s/c.jpg", "s/d.jpg"], "label": [0] * 4, "domain": list("ppss")}
        assert expert_pictures._one_of_each_domain(DomainDataset(columns), 0) == [0, 2]

    def test_refusals(self, tmp_path):
        given = make_gmoe(), tiny_image_processor(), make_dataset(), tmp_path / "a.png"
        with pytest.raises(ValueError, match="`classes` 'dgo' is not known: choose one of .*Did you mean 'dog'"):
            expert_pictures.draw_experts_across_domains(*given, classes=["dgo"])
        with pytest.raises(ValueError, match=r"`classes` are \['horse'\], of which `dataset` has no image"):
            expert_pictures.draw_experts_across_domains(*given, classes=["horse"])
        with pytest.raises(ValueError, match="`layer` is 5"):
            expert_pictures.draw_experts_across_domains(*given, layer=5)


class TestHistogram:
    def test_bars_are_the_shares_of_the_counts(self, tmp_path, drawn):
        model, processor, dataset = make_gmoe(), tiny_image_processor(), make_dataset()
        path, found = expert_pictures.class_expert_histogram(
            model, processor, dataset, tmp_path / "a.png", batch_size=4, progress=False
        )
        counted = expert_maps.count_experts(model, processor, dataset, progress=False)
        assert path.is_file() and np.array_equal(found.counts, counted.counts) and found[:3] == counted[:3]
        panels = drawn[0].axes
        names = ["all domains", "photo", "sketch"]
        assert [axes.get_title() for axes in panels] == [f"{name}, layer {layer}" for layer in (0, 2) for name in names]
        for layer in range(2):
            for place, counts in enumerate([found.counts[layer].sum(axis=0), *found.counts[layer]]):
                axes = panels[3 * layer + place]
                for expert, bars in enumerate(axes.containers):
                    for label, bar in enumerate(bars):
                        total = max(counts[label].sum(), 1)
                        assert bar.get_width() == pytest.approx(100 * counts[label, expert] / total)
                        assert bar.get_x() == pytest.approx(100 * counts[label, :expert].sum() / total)
                        assert bar.get_y() + bar.get_height() / 2 == pytest.approx(label)
                        assert to_hex(bar.get_facecolor()).upper() == expert_panels.EXPERT_COLOURS[expert]
                assert [text.get_position()[1] for text in axes.texts] == [1]
        assert [text.get_text() for text in panels[0].get_yticklabels()] == ["dog (3)", "horse (0)", "person (3)"]
        # The first class is on top.
        assert panels[0].get_ylim() == (2.5, -0.5)
        assert legend_of(drawn[0]) == ["expert 0", "expert 1", "expert 2", "expert 3"]

    def test_more_classes_than_there_is_room_for(self, tmp_path):
        names = [f"class {label}" for label in range(1000)]
        given = make_gmoe(), tiny_image_processor(), make_dataset(names), tmp_path / "a.png"
        with pytest.raises(ValueError, match="`dataset` has 1000 classes, more .*: pass `layer`, or fewer classes"):
            expert_pictures.class_expert_histogram(*given)

    def test_names_are_no_formulas(self, tmp_path, drawn):
        dataset = make_dataset(**LONG)
        expert_pictures.class_expert_histogram(make_gmoe(), tiny_image_processor(), dataset, tmp_path / "a.png")
        assert drawn[0].axes[0].get_yticklabels()[1].get_text() == r"\$a\$ (0)"

    def test_one_layer_and_one_domain(self, tmp_path, drawn):
        dataset = make_dataset().domain("photo")
        _, found = expert_pictures.class_expert_histogram(
            make_gmoe(), tiny_image_processor(), dataset, tmp_path / "a.png", layer=2, progress=False
        )
        assert found.layers == [2] and found.counts.shape == (1, 1, 3, 4)
        assert [axes.get_title() for axes in drawn[0].axes] == ["photo, layer 2"]


class TestAttention:
    def test_models_side_by_side(self, tmp_path, drawn):
        models = {"ViT": tiny_vit(), "GMoE": make_gmoe(distillation_token=True)}
        processors = {"ViT": processor_of(16, 16), "GMoE": processor_of(24, 16)}
        images = make_images(2)
        expert_pictures.draw_attention(models, processors, images, tmp_path / "a.png", titles=["a", "b"])
        panels = drawn[0].axes[:6]
        assert [axes.get_title() for axes in panels[:3]] == ["image", "ViT", "GMoE"]
        maps = {name: expert_maps.attention_maps(models[name], processors[name], images) for name in models}
        for row in range(2):
            assert np.array_equal(shown(panels[3 * row]), expert_maps.as_seen(processors["ViT"], images[row]))
            # One scale in a row: the brightest patch is that of the model that looks hardest.
            most = max(maps[name][row].max() for name in models)
            for place, name in enumerate(models, start=1):
                seen, heat = expert_maps.as_seen(processors[name], images[row]), maps[name][row] / most
                wanted = expert_panels.heated(seen, heat, (4, 4))
                assert (
                    np.allclose(shown(panels[3 * row + place]), wanted) and shown(panels[3 * row + place]).std() > 0.01
                )
        assert [text.get_text() for text in drawn[0].axes[6].get_xticklabels()] == ["no attention", "most in the row"]

    def test_heat_is_the_colour_of_its_number(self):
        import matplotlib

        image, heat = np.zeros((4, 4, 3)), np.array([[0.0, 0.25], [0.5, 1.0]])
        wanted = 0.45 * 0.15 + 0.55 * matplotlib.colormaps["inferno"](heat)[..., :3]
        assert np.allclose(expert_panels.heated(image, heat, (2, 2))[::2, ::2], wanted)
        assert np.allclose(expert_panels.heated(image, heat, (2, 2))[1::2, 1::2], wanted)

    def test_refusals(self, tmp_path):
        processor, path = tiny_image_processor(), tmp_path / "a.png"
        with pytest.raises(ValueError, match=r"`models` is empty: pass \{name: model\}"):
            expert_pictures.draw_attention({}, processor, make_images(1), path)
        with pytest.raises(ValueError, match="`processor` has none for 'GMoE'.*pass one for all models"):
            expert_pictures.draw_attention({"GMoE": make_gmoe()}, {"ViT": processor}, make_images(1), path)


def test_colours_differ():
    assert len(set(expert_panels.EXPERT_COLOURS)) == len(expert_panels.EXPERT_COLOURS) >= 6


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("dog", "dog"),
        ("photo\ndog", "photo\ndog"),
        ("Great_Crested_Flycatcher", "Great_Crested_\nFlycatcher"),
        ("x" * 20, "x" * 16 + "\n" + "x" * 4),
        ("", ""),
    ],
)
def test_long_names_are_broken_at_underscores(text, lines):
    assert expert_panels.wrapped(text) == lines


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A GMoE with its image processor, a ViT with its own, and a folder of generated digits."""
    home = tmp_path_factory.mktemp("pictures")
    make_gmoe().save_pretrained(home / "gmoe")
    tiny_vit().save_pretrained(home / "vit")
    for name in ("gmoe", "vit"):
        tiny_image_processor().save_pretrained(home / name)
    for row, example in enumerate(generated_digits(rows_per_domain=60, image_size=24)):
        folder = home / "digits" / str(example["domain"]) / str(example["label"])
        # Three of each class in each domain.
        if example["label"] < 4 and len(list(folder.glob("*"))) < 3:
            folder.mkdir(parents=True, exist_ok=True)
            example["image"].save(folder / f"{row}.png")
    return home


FILES = ["experts.png", "experts_across_domains.png", "attention.png", "experts_by_class.png"]


class TestTheCommand:
    def test_one_call_writes_all_pictures(self, places, tmp_path, capsys, drawn):
        output = tmp_path / "made" / "here"
        given = [str(places / "gmoe"), str(places / "digits"), "--output", str(output), "--vit", str(places / "vit")]
        expert_pictures.main([*given, "--images-per-domain", "2"])
        assert capsys.readouterr().out.split() == [str(output / name) for name in FILES]
        for name in FILES:
            assert imread(output / name)[..., :3].std() > 0.05
        experts, across, attention, histogram = drawn
        domains = expert_pictures.load_domains(places / "digits").domains
        assert len(experts.axes) == 3 * 2 * len(domains)
        assert [axes.get_title() for axes in attention.axes[:3]] == ["image", "ViT", "GMoE"]
        assert [axes.get_title() for axes in across.axes[: 2 * len(domains) : 2]] == domains
        assert len(histogram.axes) == 2 * (1 + len(domains))

    def test_the_same_from_python(self, places, tmp_path):
        reported = []
        given = places / "gmoe", places / "digits", tmp_path
        written = expert_pictures.write_pictures(*given, images_per_domain=1, classes=["1"], report=reported.append)
        assert written == reported == [tmp_path / name for name in FILES]

    def test_one_layer_without_a_vit(self, places, tmp_path, drawn):
        given = [str(places / "gmoe"), str(places / "digits"), "--output", str(tmp_path), "--layer", "0", "--numbers"]
        expert_pictures.main([*given, "--images-per-domain", "1", "--classes", "3"])
        experts, across, attention, histogram = drawn
        assert [axes.get_title() for axes in experts.axes[:2]] == ["image", "layer 0"] and experts.axes[1].texts
        assert across.axes[1].get_title() == "layer 0" and across.axes[0].get_ylabel() == "3"
        assert [axes.get_title() for axes in attention.axes[:2]] == ["image", "GMoE"]
        assert all(axes.get_title().endswith("layer 0") for axes in histogram.axes)

    def test_images_are_taken_from_the_classes_in_turn(self):
        columns = {"image": list(range(7)), "label": [1, 1, 0, 0, 2, 1, 0], "domain": list("aaaaabb")}
        dataset = DomainDataset(columns)
        assert expert_pictures._first_of_each_class(dataset, 4) == [2, 0, 4, 3, 6, 5]
        assert expert_pictures._first_of_each_class(dataset, 1) == [2, 6]

    def test_help(self, capsys, monkeypatch):
        monkeypatch.setattr(sys, "argv", ["expert_pictures", "--help"])
        with pytest.raises(SystemExit) as stopped, pytest.warns(RuntimeWarning):
            runpy.run_module("hf_memaug.reporting.expert_pictures", run_name="__main__")
        said = " ".join(capsys.readouterr().out.split())
        assert stopped.value.code == 0
        assert "python -m hf_memaug.reporting.expert_pictures" in said and all(name in said for name in FILES)
        for option in ("--output", "--vit", "--images-per-domain", "--layer", "--classes", "--numbers", "--split"):
            assert option in said

    @pytest.mark.parametrize(
        ("changed", "words"),
        [
            ({"checkpoint": "vit"}, "`checkpoint` is a `vit`: pass a checkpoint of a vit_gmoe. `from_vit` makes one"),
            ({"folder": "vit"}, "`source`: the folder .* is empty: .* nor images in `domain/class/*.jpg`"),
            ({"folder": "nowhere"}, "`source`: there is no"),
            ({"--vit": "gmoe"}, "`vit` is a `vit_gmoe`: pass a checkpoint of a vit or deit."),
            ({"--layer": "1"}, "`layer` is 1, and the layers with experts are 0, 2"),
            ({"--images-per-domain": "0"}, "`images_per_domain` is 0: pass at least 1"),
            ({"--classes": "eleven"}, "`classes` 'eleven' is not known"),
            ({"--batch-size": "0"}, "`batch_size` is 0: pass at least 1"),
        ],
    )
    def test_refusals(self, changed, words, places, tmp_path, capsys):
        said = self.refusal(places, tmp_path, capsys, **changed)
        for part in words.split(".*"):
            assert part in said

    @staticmethod
    def refusal(places, tmp_path, capsys, checkpoint="gmoe", folder="digits", **options) -> str:
        given = [str(places / checkpoint), str(places / folder), "--output", str(tmp_path / "out")]
        for name, value in options.items():
            given += [name, str(places / value) if name == "--vit" else value]
        with pytest.raises(SystemExit) as stopped:
            expert_pictures.main(given)
        said = capsys.readouterr()
        # Before anything is drawn.
        assert stopped.value.code == 2 and not said.out and not (tmp_path / "out").exists()
        return said.err

    def test_too_many_images(self, places, tmp_path, capsys, monkeypatch):
        monkeypatch.setattr(expert_pictures, "MOST_ROWS", 10)
        said = self.refusal(places, tmp_path, capsys, **{"--images-per-domain": "3"})
        assert "`images_per_domain` are 18, and a picture has room for 10 rows: pass at most 1." in said

    def test_a_checkpoint_without_image_processor(self, tmp_path, capsys, places):
        make_gmoe().save_pretrained(tmp_path / "bare")
        said = self.refusal(places, tmp_path, capsys, checkpoint=tmp_path / "bare")
        assert "has no image processor that can be read" in said and "`processor.save_pretrained(...)`" in said

    def test_images_that_cannot_be_decoded(self, places, tmp_path, capsys):
        (tmp_path / "images" / "photo" / "dog").mkdir(parents=True)
        (tmp_path / "images" / "photo" / "dog" / "a.jpg").write_bytes(b"no image")
        said = self.refusal(places, tmp_path, capsys, folder=tmp_path / "images")
        assert "1 of 1 images cannot be decoded. row 0 (domain 'photo')" in said and "a.jpg" in said
        assert "leave them out with `--broken skip`" in said

    def test_images_that_cannot_be_decoded_can_be_left_out(self, places, tmp_path, caplog):
        shutil.copytree(places / "digits", tmp_path / "images")
        (some, *_) = sorted((tmp_path / "images").rglob("*.png"))
        some.write_bytes(b"no image")
        given = [str(places / "gmoe"), str(tmp_path / "images"), "--output", str(tmp_path / "out"), "--broken", "skip"]
        expert_pictures.main(given)
        assert some.name in caplog.text and "They are left out" in caplog.text
        assert (tmp_path / "out" / "experts.png").exists()


def test_importing_the_module_does_not_import_matplotlib():
    code = "import sys, hf_memaug.reporting.expert_pictures; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"
