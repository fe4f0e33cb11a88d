# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What README says to type works as it stands, but for the names of the data and the checkpoint."""

import csv
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "mil.md").read_text(encoding="utf-8")
GMOE_GUIDE = (ROOT / "docs" / "gmoe.md").read_text(encoding="utf-8")
HMA_GUIDE = (ROOT / "docs" / "hma.md").read_text(encoding="utf-8")
GMAP_GUIDE = (ROOT / "docs" / "gmap.md").read_text(encoding="utf-8")


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def lines(example: str) -> int:
    return len([line for line in example.splitlines() if line.strip()])


@pytest.fixture
def run(tmp_path, monkeypatch, backbones):
    """Runs an example in a folder that has the CSV, on a tiny checkpoint, for a few steps."""
    from hf_memaug.data import generated_reviews

    rows = generated_reviews(rows_per_domain=12)
    with (tmp_path / "reviews.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "stars", "shop"])
        writer.writerows((row["text"], rows.label_names[row["label"]], row["domain"]) for row in rows)
    monkeypatch.chdir(tmp_path)
    names = {}
    smaller = {
        "FacebookAI/roberta-base": backbones["roberta"],
        "allenai/biomed_roberta_base": backbones["roberta"],
        "facebook/deit-small-patch16-224": backbones["vit"],
        "max_length=256": "max_length=64",
        "episodes=30": "episodes=2, episode_steps=2",
    }

    def run_example(code: str) -> None:
        for written, tiny in smaller.items():
            code = code.replace(written, tiny)
        exec(compile(code, "README.md", "exec"), names)

    return run_example


def test_the_example_on_a_csv_runs(run, capsys):
    example = blocks("python")[0]
    assert lines(example) <= 15 + 1
    run(example)
    assert "test_macro_f1" in capsys.readouterr().out


def test_the_example_with_our_trainers_runs(run, capsys):
    first, example = blocks("python")[:2]
    assert lines(example) <= 16 and "episodes=30" in example
    # It goes on with the rows and the tokenizer of the first example.
    run(first.split("model = ")[0])
    run(example)
    found = re.findall(r"^(\w+) (0\.\d+|1\.0)$", capsys.readouterr().out, re.MULTILINE)
    assert [method for method, _ in found] == ["erm", "mil"]
    assert Path("runs/reviews-mil/meta_train/memory.safetensors").is_file()


def test_the_guide_to_the_trainers_runs(run, monkeypatch):
    from hf_memaug.training import ALGORITHMS

    monkeypatch.setitem(ALGORITHMS, "worst", None)  # what the guide adds is gone again after the test
    domain_trainer, algorithm, bilevel_trainer, figure, *_ = blocks("python", GUIDE)
    run(domain_trainer)
    run(algorithm)
    run("DomainTrainer(model, args, train_dataset=train, processing_class=tokenizer).train()")
    run(bilevel_trainer.replace("    episode_steps=20,\n", ""))
    run(figure)
    assert Path("meta_training.png").is_file()


def test_the_guide_to_gmap_runs(run, backbones, capsys):
    run(f"""
from transformers import AutoTokenizer
inputs = AutoTokenizer.from_pretrained({backbones["roberta"]!r})("a good book", return_tensors="pt")
""")
    run(blocks("python", GMAP_GUIDE)[0])
    run("print(output.memory_weights.shape, output.logits.shape)")
    assert "2]) torch.Size([1, 13])" in capsys.readouterr().out
    run(blocks("python")[0].split("model = ")[0])  # rows and a tokenizer
    run("from transformers import TrainingArguments\nargs = TrainingArguments('runs/gmap', report_to=[])")
    run(blocks("python", GMAP_GUIDE)[2])
    run("trainer.args.max_steps = 2\ntrainer.train()")
    assert Path("cache/train/cache.json").is_file()


def test_the_guide_to_gmoe_runs(run, capsys):
    from hf_memaug.data import generated_digits

    run("import torch\npixel_values = torch.randn(2, 3, 16, 16)")
    upcycle, _, adapt, draw = blocks("python", GMOE_GUIDE)
    run(upcycle)
    run("print(output.logits.shape, output.memory_weights.shape, output.router_logits[1].shape)")
    assert "Size([2, 7]) torch.Size([2, 2, 17, 6]) torch.Size([34, 6])" in capsys.readouterr().out
    run(adapt)
    run("adapted = [name for name, p in model.named_parameters() if 'lora_' in name and p.requires_grad]")
    run("print(len(adapted), all('.moe.experts.' in name for name in adapted))")
    assert "8 True" in capsys.readouterr().out, "A and B of two matrices in two layers"
    pytest.importorskip("matplotlib", reason="figures need matplotlib: pip install hf_memaug[report]")
    for number, row in enumerate(generated_digits(rows_per_domain=60)):
        folder = Path("images", row["domain"], f"digit {row['label']}")
        folder.mkdir(parents=True, exist_ok=True)
        # Two of two classes in each domain.
        if row["label"] < 2 and len(list(folder.iterdir())) < 2:
            row["image"].save(folder / f"{number}.png")
        elif row["label"] >= 2:
            folder.rmdir()
    run("from families import tiny_image_processor, tiny_vit\nvit, processor = tiny_vit(), tiny_image_processor()")
    # The tiny model has no eleventh layer.
    run(draw.replace("layer=10", "layer=2"))
    run("print(path, found.counts.sum())")
    assert "experts_by_class.png 1536" in capsys.readouterr().out, "24 images, 16 patches, 2 experts, 2 layers"
    assert Path("experts.png").is_file() and Path("attention.png").is_file()


def test_the_guide_to_gmoe_trains_on_a_folder_of_images(run, capsys):
    pytest.importorskip("sklearn")
    from hf_memaug.data import generated_digits

    for number, row in enumerate(generated_digits(rows_per_domain=30)):
        if row["label"] < 2 and row["domain"] in ("0", "15", "30"):
            domain = {"0": "photo", "15": "cartoon", "30": "sketch"}[row["domain"]]
            path = Path("images") / domain / f"digit {row['label']}" / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            row["image"].save(path)
    example = blocks("python", GMOE_GUIDE)[1]
    assert lines(example) <= 11
    run(example.replace('eval_strategy="epoch"', 'eval_strategy="epoch", use_cpu=True, report_to=[]'))
    run("print(sorted({*split.train['domain']}), trainer.predict(split.test).metrics.keys())")
    shown = capsys.readouterr().out
    assert "['cartoon', 'photo']" in shown and "'test_sketch_accuracy'" in shown


def test_the_guide_to_gmoe_has_every_field():
    from dataclasses import fields

    from transformers import ViTConfig

    from hf_memaug import ViTGMoEConfig

    own = {field.name for field in fields(ViTGMoEConfig)} - {field.name for field in fields(ViTConfig)}
    assert all(f"`{name}`" in GMOE_GUIDE for name in own - {"run_facts", "output_router_logits"})


def test_the_guide_to_hma_runs(run, capsys):
    run("import torch\npixel_values = torch.randn(2, 3, 16, 16)")
    run("network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 64))")
    run(next(block for block in blocks("python") if "HMAFor" in block))
    run("print(model(pixel_values).logits.shape)")
    assert "Size([2, 7])" in capsys.readouterr().out
    whole, own = blocks("python", HMA_GUIDE)[:2]
    run(whole)
    run("print(output.logits.shape, output.memory_weights.shape, text_model.config.num_labels)")
    assert "Size([2, 7]) torch.Size([2, 4, 571]) 3" in capsys.readouterr().out, "512 + 1 + 7 * 8 + 2"
    run("batches = [(torch.randn(8, 3, 16, 16), torch.arange(8)) for _ in range(3)]")
    run(own)
    run("print(int(model.head.memory.queue.written))")
    assert "24" in capsys.readouterr().out


def test_the_guide_to_hma_has_every_field():
    from dataclasses import fields

    from transformers import PreTrainedConfig

    from hf_memaug import HMAConfig
    from hf_memaug.configuration.configuration_hma import AUGMENTATIONS

    own = {field.name for field in fields(HMAConfig)} - {field.name for field in fields(PreTrainedConfig)}
    assert all(f"`{name}`" in HMA_GUIDE for name in own - {"run_facts"})
    assert all(f'`"{name}"`' in HMA_GUIDE for name in AUGMENTATIONS)


def test_commands_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"\bmake ([a-z]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def links(text: str, folder: str) -> set[str]:
    return {f"{folder}{link}" for link in re.findall(r"\]\((?!http)([^)#]+)\)", text)}


RESULTS = (ROOT / "docs" / "results" / "mil.md").read_text(encoding="utf-8")
ALL_LINKS = (
    links(README, "") | links(GUIDE + GMAP_GUIDE + GMOE_GUIDE + HMA_GUIDE, "docs/") | links(RESULTS, "docs/results/")
)


@pytest.mark.parametrize("link", sorted(ALL_LINKS))
def test_links_lead_somewhere(link):
    assert (ROOT / link).exists()
