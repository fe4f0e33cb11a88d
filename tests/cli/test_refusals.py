# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Wrong usage exits with 2, invalid data with 3. The message names the option and says how to fix it."""

import errno
import json
import warnings

import pytest


def test_unreadable_images_raise_or_are_skipped(command, pictures):
    (next(pictures.glob("*/*")) / "broken.png").write_bytes(b"no image")
    words = ["--data", pictures, "--methods", "gmoe", "--backbone", "small", "--dry-run"]
    code, _, error = command("compare", *words)
    assert code == 3 and error.startswith("Error: `--data`: 1 of "), error
    assert "leave them out with `--broken skip`" in error, error
    code, out, error = command("sweep", *words, "--broken", "skip")
    assert code == 0 and "to do" in out, error


def test_empty_texts_raise_or_are_skipped(command, columns, reviews):
    with reviews.open("a") as file:
        file.write(",positive,books\n")
    code, _, error = command("compare", *columns, "--methods", "erm", "--dry-run")
    assert code == 3 and "or give `--broken skip` to leave such rows out" in error, error
    code, out, error = command("compare", *columns, "--methods", "erm", "--dry-run", "--broken", "skip")
    assert code == 0 and "to do" in out, error


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_labels_name_classes_that_do_not_start_at_0(command, tmp_path, suffix):
    rows = [{"text": f"text {n}", "stars": 1 + n % 5, "shop": ("a", "b", "c")[n % 3]} for n in range(90)]
    file = tmp_path / f"reviews.{suffix}"
    if suffix == "csv":
        file.write_text("text,stars,shop\n" + "".join(f"{r['text']},{r['stars']},{r['shop']}\n" for r in rows))
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    base = ["--data", file, "--label", "stars", "--domain", "shop", "--dry-run"]
    code, _, error = command("train", *base)
    assert code == 3 and "ids 1, 2, 3, 4, 5" in error and "Give `--labels`, the names of all ids" in error, error
    code, out, error = command("train", *base, "--labels", "1,2,3,4,5")
    assert code == 0 and "to do" in out, error
    code, _, error = command("train", *base, "--labels", "1,2,3,4,5,6,7")
    assert code == 3 and "`--labels` names '6', '7', which no row has" in error, error
    code, _, error = command("train", *base, "--labels", "1,2,3,4")
    assert code == 3 and "which is unknown" in error and "add the label to `--labels`" in error, error


def test_repeated_rows_give_a_warning(reviews):
    from hf_memaug.runs import rows
    from hf_memaug_cli.options import TrainOptions

    reviews.write_text(reviews.read_text() + 2 * "A fine book.,positive,books\n")
    source = rows.source_of(TrainOptions(data=str(reviews), label="stars", domain="shop"))
    with pytest.warns(UserWarning, match="`--data` repeats rows"):
        rows.describe(source, {})


def test_a_warning_is_a_sentence_without_a_place_in_the_code(command, monkeypatch):
    monkeypatch.setattr("hf_memaug.cli.environment.environment", lambda call: warnings.warn("Slow.", stacklevel=1))
    assert command("env") == (0, "", "Warning: Slow.\n")


def test_labels_are_for_files_with_classes(command, columns):
    for words in (["--data", "generated_reviews"], ["--data", columns[1], "--task", "replies"]):
        code, _, error = command("train", *words, "--labels", "1,2", "--dry-run")
        assert code == 2 and "`--labels`" in error, error


def test_invalid_data(command, columns, reviews, tmp_path):
    code, _, error = command("compare", "--data", "revews.csv")
    assert code == 3 and "Did you mean 'reviews.csv'?" in error
    code, _, error = command("compare", "--data", reviews, "--label", "star", "--domain", "shop")
    assert code == 3 and "Did you mean 'stars'?" in error
    first = reviews.read_text().splitlines()
    text, stars, _ = first[1].rsplit(",", 2)
    reviews.write_text("\n".join([*first, f"{text},{stars},phones"]) + "\n")
    code, _, error = command("compare", *columns, "--dry-run")
    assert code == 3 and "`--on-overlap drop`" in error
    assert command("compare", *columns, "--dry-run", "--on-overlap", "drop")[0] == 0


def test_no_domain_may_be_called_average(command, tmp_path):
    rows = [f"text {row},{row % 2},{('average', 'books')[row // 2 % 2]}" for row in range(8)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label,domain", *rows]))
    code, _, error = command("compare", "--data", "rows.csv", "--dry-run")
    assert code == 3 and "is called 'average'" in error and "Rename it" in error


def test_settings_of_a_recipe_for_replaced_methods_are_left_out(command, columns, tmp_path):
    text = "methods: [erm, mil]\nseeds: 1\ntarget: books\nepisodes: 2\nmethod_settings: {mil: {learning_rate: 1e-4}}\n"
    (tmp_path / "recipe.yaml").write_text(text)
    words = ["compare", *columns, "--recipe", "recipe.yaml", "--dry-run", "--json"]
    code, out, error = command(*words, "--methods", "erm")
    assert code == 0, error
    assert not {"episodes", "learning_rate"} & set(json.loads(out)["job"])
    # Settings on the command line must fit.
    assert command(*words, "--methods", "erm", "--inner-steps", 2)[0] == 2
    assert command(*words, "--methods", "erm", "--hma.learning-rate", 2)[0] == 2


FULL = "Error: the disk is full"


def not_written(*args, **kwargs):
    """As torch says it."""
    raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 286400 vs 286292")


@pytest.mark.parametrize("kind", ["checkpoint", "record"])
def test_a_disk_that_is_full_at_the_end_of_a_job(command, columns, quick, no_report, tmp_path, monkeypatch, kind):
    from safetensors import SafetensorError

    from hf_memaug.runs import training
    from hf_memaug.runs.folder import RunFolder

    def full(*args, **kwargs):
        if kind == "checkpoint":
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
        raise OSError(errno.ENOSPC, "No space left on device", "runs.jsonl")

    words = ["train", *columns, "--target", "books", *quick, "--output", "full"]
    with monkeypatch.context() as patched:
        patched.setattr(*((training, "keep_checkpoint") if kind == "checkpoint" else (RunFolder, "append")), full)
        code, _, error = command(*words)
    assert code == 1 and error.count(FULL) == 1 and "Traceback" not in error, error
    assert "rerun the same command" in error and not (tmp_path / "full/runs.jsonl").exists()
    with no_report():
        assert command(*words)[0] == 0


def test_a_disk_that_is_full_in_pretraining(command, backbones, tmp_path, monkeypatch):
    import torch

    from hf_memaug import files

    (tmp_path / "domain.txt").write_text("the phone is good and the battery lasts\n" * 60)
    words = ["pretrain", "--backbone", backbones["roberta"], "--corpus", "domain.txt", "--length", 32]
    words += ["--max-steps", 2, "--save-steps", 1, "--output", "dapt"]
    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", not_written)
        code, _, error = command(*words)  # not for want of room
        assert code == 1 and "Error: `pretrain` failed unexpectedly: RuntimeError:" in error
        assert error.endswith("Run again with --debug for the traceback.\n") and error.count("\n") == 1
        assert "Traceback (" in command(*words, "--debug")[2] and "Traceback (" in command("--debug", *words)[2]
        patched.setattr(files, "MIN_FREE_BYTES", 2**62)
        code, _, error = command(*words)
    assert code == 1 and f"{FULL} (dapt). Free some space and rerun the same command." in error, error
    assert command(*words)[0] == 0


def test_texts_longer_than_the_model_has_places_for(command, no_report, tmp_path):
    rows = [f"{'word ' * (200 if number == 3 else 5)}{number},{number % 2},{'ab'[number // 8]}" for number in range(16)]
    (tmp_path / "long.csv").write_text("text,label,domain\n" + "\n".join(rows) + "\n", encoding="utf-8")
    words = ["--data", "long.csv", "--target", "b", "--max-steps", 1, "--evaluations", 1]
    with no_report():
        assert command("train", *words, "--output", "cut")[0] == 0
    checkpoint = "cut/jobs/erm-b-seed0/checkpoint"
    code, _, error = command("evaluate", checkpoint, "--data", "long.csv", "--max-length", 300)
    assert code == 3 and "Set `--max-length` to 128 or less." in error
    assert command("evaluate", checkpoint, "--data", "long.csv")[0] == 0


def test_a_model_that_cannot_be_built_is_refused_before_the_first_job(command, pictures, tmp_path, monkeypatch):
    from hf_memaug.cli import running
    from hf_memaug.runs.small_models import small_vit

    def no_job(*arguments):
        raise AssertionError("a job has begun")

    monkeypatch.setattr(running, "run_jobs", no_job)
    small_vit(32).save_pretrained(tmp_path / "vit")
    cases = [
        (["--backbone", "small", "--num-experts-per-tok", "9"], "`--num-experts-per-tok` (9) is more than"),
        (["--backbone", "small", "--moe-layers", "7"], "`gmoe`: `--moe-layers` names layer 7, and there are layers 0"),
        (["--backbone", tmp_path / "vit"], "has no image processor that can be read. Save the one"),
        (["--backbone", tmp_path / "nowhere"], "`--backbone` '"),
    ]
    for name in ("compare", "sweep"):
        for words, said in cases:
            # The plain backbone comes first, and would be trained for hours.
            code, _, error = command(name, "--data", pictures, "--methods", "vit,gmoe", *words)
            assert code == 2 and said in error, error
    for words, said in cases:
        code, _, error = command("continual", "--data", pictures, "--method", "gmoe", *words)
        assert code == 2 and said in error, error
    assert not (tmp_path / "runs/continual/run.json").exists(), "the folder remembers nothing of it"
    code, _, error = command("predict", tmp_path / "vit", next(pictures.glob("*/*/*.png")))
    assert code == 2 and "`checkpoint`" in error and "has no image processor" in error, error


def test_a_pair_of_encoders_that_do_not_fit_is_refused_before_other_methods_train(
    command, columns, backbones, tmp_path
):
    for name, methods in (("compare", ["--methods", "erm,gmap"]), ("continual", ["--method", "gmap"])):
        words = [name, *columns, *methods, "--backbone", backbones["roberta"], "--seeds", 1]
        code, _, error = command(*words, "--general", backbones["bert"])
        assert code == 2 and "`--general`" in error and "`--backbone`" in error and "Choose two encoders" in error, (
            error
        )
        code, _, error = command(*words, "--general", backbones["roberta"], "--memory-layers", "1,40")
        assert code == 2 and "`--memory-layers` names layer 40" in error, error
        code, _, error = command(*words, "--general", "nowhere")
        assert code == 2 and "`--general` 'nowhere' cannot be loaded" in error, error
    assert not list(tmp_path.glob("runs/**/runs.jsonl")) and not list(tmp_path.glob("runs/**/run.json"))


def test_labels_that_are_missing_are_told_in_the_words_of_the_options(command, tmp_path):
    (tmp_path / "rows.csv").write_text("text,label,domain\na,x,d\nb,,d\nc,y,e\n")
    for words, said in (
        (
            ["--label", "stars"],
            "has no such column. There are: 'text', 'label', 'domain'. Name the column with the class.",
        ),
        ([], "is missing in 1 row (1) of rows.csv. Fill it in, or delete those rows."),
    ):
        code, _, error = command("train", "--data", "rows.csv", "--target", "e", "--backbone", "small", *words)
        assert code == 3 and said in error and "label=None" not in error, error


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_a_backbone_without_the_files_of_its_tokenizer_is_refused(command, columns, tmp_path, kind):
    from tiny_backbones import save_backbone

    # For some models transformers then makes a tokenizer of its own, which knows no word.
    folder = tmp_path / "bare"
    save_backbone(kind, folder)
    for file in folder.iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            file.unlink()
    (tmp_path / "corpus.txt").write_text("the phone is good\n" * 20)
    for name, rows in (
        ("train", [*columns, "--target", "books"]),
        ("compare", columns),
        ("sweep", columns),
        ("continual", columns),
        ("pretrain", ["--corpus", "corpus.txt"]),
    ):
        code, _, error = command(name, *rows, "--backbone", "bare")
        assert code == 2 and "`--backbone` 'bare' has no tokenizer that can be read. Save the one" in error, error
    (folder / "tokenizer.json").write_text("{}")
    code, _, error = command("compare", *columns, "--backbone", "bare")
    assert code == 2 and "has no tokenizer that can be read" in error, error


def test_a_memory_that_does_not_fit_its_backbone_is_refused_before_other_methods_train(
    command, columns, backbones, tmp_path
):
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(backbones["roberta"])
    sizes = {"vocab_size": len(tokenizer), "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32}
    other = tmp_path / "distilbert"
    transformers.DistilBertForMaskedLM(transformers.DistilBertConfig(**sizes)).save_pretrained(other)
    tokenizer.save_pretrained(other)
    known = ["--backbone", backbones["roberta"]]
    cases = [
        ("+memory", ["--backbone", other], "is built on roberta, bert, and `--backbone` is a `distilbert`"),
        ("hma", [*known, "--memory-heads", "7"], "`hma`: `--memory-heads` (7) must divide the width of a row"),
    ]
    for method, words, said in cases:
        code, _, error = command("compare", *columns, "--methods", f"erm,{method}", "--seeds", 1, *words)
        assert code == 2 and said in error, error
    assert not list(tmp_path.glob("runs/**/runs.jsonl")) and not list(tmp_path.glob("runs/**/run.json"))
    # On another backbone of text HMA stands too.
    code, out, error = command("compare", *columns, "--methods", "hma", "--backbone", other, "--dry-run")
    assert code == 0 and "to do" in out, error
