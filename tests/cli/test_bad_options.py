# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Wrong options and recipes are refused by name, with exit code 2, and before the first job."""

import shlex

import pytest

# The command line, and a part of the message. Rows, and what a run needs beside them, are added.
CASES = """
compare --learnign-rate 1e-4 | No such option: --learnign-rate (Possible options:
compare --dta x.csv | (Possible options: --data
compare --mil.memory-slot=4 --methods mil | --mil.memory-slots
compare --output-dir x | `--output-dir` is set by the command. Use `--output`.
compare --mask-token-id 4 | `--mask-token-id` is set by the command. It comes from the tokenizer.
compare --learning-rate fast | `--learning-rate` is 'fast'. It must be of type float.
compare --learning-rate nan | `--learning-rate` is 'nan'
train --learning-rate | Option '--learning-rate' requires an argument.
compare reviews.csv | unexpected extra argument(s) (reviews.csv)
compare --methods erm,mill | Did you mean 'mil'?
compare --methods hma+corall | Did you mean 'hma+coral'?
compare --methods , | `--methods` is empty
compare --episodes 3 | `--episodes` is not an option of the chosen methods (erm)
compare --mil.episodes 3 | There are settings for 'mil', which is not among the methods (erm)
compare --target bookss | Did you mean 'books'?
compare --target , | `--target` is empty
compare --metric acuracy | Did you mean 'accuracy'?
compare --jobs 0 | `--jobs` is 0
compare --seeds many | `--seeds` is many
compare --seeds 1,x | `--seeds` is 1,x
compare --seeds 0 | `--seeds` is 0
compare --seeds -1 | `--seeds` is -1. Use 1 or more
compare --seeds 1,99999999999 | `--seeds` is 1,99999999999
compare --ensemble-seeds 4 | `--ensemble-seeds` is 4. Use 2 to 3, the number of `--seeds`.
compare --shots x | `--shots` is 'x'
compare --shots 0 | `--shots` is for write and finetune
compare --baseline mil | `--baseline` is 'mil'
compare --methods gmoe | `gmoe` is for images, and the rows are texts.
compare --methods gmap | Set `--general`
compare --recipe nowhere.yaml | `--recipe` nowhere.yaml cannot be read
compare --methods erm,mil --inner-steps 0 | `mil`: `--inner-steps` is 0; it must be 1 or more.
compare --methods +memory --memory-heads 5 | `+memory`: `--memory-heads` (5) must divide
compare --methods mil --mil.memory-slots -4 | `mil`: `--memory-slots` must be between 1 and 16777216; got -4.
compare --methods hma --real-memory-size -1 | `hma`: `--real-memory-size` must be between 1 and
compare --methods coral --penalty-weight nan | `--penalty-weight` is 'nan'
compare --penalty-weight 3 | `erm`: `algorithm="erm"` has no penalty
compare --methods erm,irm --penalty-weight 3 | To set an option for one method, write `--METHOD.OPTION`.
compare --methods erm,irm --irm.penalty-weight -1 | `irm`: `--penalty-weight` is -1.0; it must be 0
compare --lr-scheduler-type sine | `--lr-scheduler-type` is 'sine'. Did you mean 'cosine'? Choose 'linear', 'cosine'
compare --optim adamx | `--optim` is 'adamx'. Did you mean 'ademamix'?
compare --class-weights 1,2,3,4 | `erm`: `--class-weights` is '1,2,3,4'. Use
compare --methods mil --class-weights balanced | `mil`: `--class-weights` is not supported by
compare --methods swad --early-stopping-patience 1 | `swad`: `--early-stopping-patience` is 1: use 1 or more, and
compare --max-steps -5 | `erm`: `--max-steps` is -5; it must be 1 or more
compare --max-length 5000 | `--max-length` is 5000, and `--backbone` has places for 128 tokens. Use 128 or less.
sweep --max-length 5000 | `--max-length` is 5000, and `--backbone` has places for 128 tokens. Use 128 or less.
compare --max-length 0 | `--max-length` is 0; it must be 1 or more
train --max-length long | `--max-length` is 'long'. It must be of type int | None.
train --dev-fraction -0.1 | `--dev-fraction` is -0.1; it must be 0 or more.
train --dev-fraction 1 | `--dev-fraction` is 1.0; it must be 0.99 or less.
train --dev-fraction nan | `--dev-fraction` is 'nan'
train --seed -1 | `--seed` is -1; it must be 0 or more.
train --seed 99999999999 | `--seed` is 99999999999; it must be 4294967295 or less.
train --evaluations 0 | `--evaluations` is 0
train --keep some | `--keep` is 'some'
train --processes 0 | `--processes` is 0
train --learning-rate -1 | `--learning-rate` is -1.0; it must be 0 or more.
train --learning-rate inf | `--learning-rate` is 'inf'
train --per-device-train-batch-size 0 | `--per-device-train-batch-size` is 0; it must be 1 or more.
train --per-device-eval-batch-size -1 | `--per-device-eval-batch-size` is -1
train --gradient-accumulation-steps 0 | `--gradient-accumulation-steps` is 0
train --num-train-epochs -1 | `--num-train-epochs` is -1.0; it must be 0 or more.
train --weight-decay -1 | `--weight-decay` is -1.0
train --warmup-steps -5 | `--warmup-steps` is -5.0
train --max-grad-norm -1 | `--max-grad-norm` is -1.0
train --dataloader-num-workers -1 | `--dataloader-num-workers` is -1
train --bf16 | `erm`: `--bf16` needs a GPU that supports it. Leave it out, or add `--use-cpu`
train --fp16 | `--fp16` needs a GPU
train --batch-size 4 | No such option: --batch-size. Use `--per-device-train-batch-size`.
train --device=cpu | No such option: --device. Use `--use-cpu`.
compare --broken skp | `--broken` is 'skp'. Did you mean 'skip'?
train --task wrong | `--task` is 'wrong'
train --on-overlap wrong | `--on-overlap` is 'wrong'
train --labels , | `--labels` is empty
train --backbone ./nowhere --dry-run | `--backbone` './nowhere' cannot be loaded: There is no such folder.
train --backbone nobody/nothing | `--backbone` 'nobody/nothing' cannot be loaded
train --dev-split x | `--dev-split` needs `--split`
train --output reviews.csv | `--output` reviews.csv cannot be written: File exists.
sweep --trials many | `--trials` is 'many'
sweep --draws -1 | `--draws` is -1
sweep --steps 0 | `--steps` is 0
sweep --holdout 1.5 | `--holdout` is 1.5
sweep --holdout 0 | `--holdout` is 0.0
sweep --selection wrong | `--selection` is 'wrong'
sweep --dropout 2 | `--dropout` is 2.0
sweep --batch-size 0 | `--batch-size` is 0
continual --strategies ewx | Did you mean 'ewc'?
continual --strategies nothing | There is no strategy 'nothing'
continual --strategies , | `--strategies` is empty
continual --order nothing | `--order` names 'nothing'
continual --dev-fraction 2 | `--dev-fraction` is 2.0
continual --method mil | `--method` is 'mil'
continual --vectors nothing | `--vectors` nothing is not a file
continual --vectors reviews.csv | is for memory-rnn
continual --strategy ewc | `--strategy` is set by the command. Use `--strategies`
pretrain --masked nan | `--masked` is 'nan'
pretrain --masked 15 | `--masked` is 15.0; it must be 0.99 or less.
pretrain --masked 0 | `--masked` is 0
pretrain --backbone nothing | `--backbone`
pretrain --length 1 | `--length` is 1; it must be 8 or more.
pretrain --held-out -1 | `--held-out` is -1
pretrain --evaluate-rows 0 | `--evaluate-rows` is 0
pretrain --stream | `--stream` needs `--max-steps`
evaluate x --batch-size 0 | `--batch-size` is 0
predict x --top-k -1 text | `--top-k` is -1
app x --port 99999 | `--port` is 99999; it must be 65535 or less.
report reviews.csv | `run` is 'reviews.csv', which is not a folder
push x you/x/y | `repository` 'you/x/y' is not a name on the hub
comparr | No such command 'comparr'
"""


@pytest.mark.parametrize("case", CASES.strip().splitlines())
def test_options(command, columns, tmp_path, case, monkeypatch):
    from hf_memaug.cli import running

    def no_job(*arguments):
        raise AssertionError("a job has begun")

    monkeypatch.setattr(running, "run_jobs", no_job)
    line, _, said = case.partition(" | ")
    name, *words = shlex.split(line)
    if name in ("train", "compare", "sweep", "continual"):
        words = [*columns, *words]
    if name == "compare" and "--methods" not in words:
        words += ["--methods", "erm"]
    code, _, error = command(name, *words)
    assert code == 2 and said in error and "Traceback" not in error, error
    # The folder takes other settings, because no job began.
    assert not [path for one in ("run.json", "jobs", "runs.jsonl") for path in tmp_path.rglob(one)]


@pytest.mark.parametrize(
    "text, said",
    [
        ("learning_rat: 1e-4", "Unknown recipe key `learning_rat`. Did you mean `learning_rate`?"),
        ("command: sweep", "is for `hf-memaug sweep`. Use that command."),
        ("- a\n- b", "must contain options as `name: value`"),
        ("just text", "must contain options as `name: value`"),
        ("a: [", "is not valid YAML"),
        ("a: !!python/object:os.system {}", "is not valid YAML"),
        ("\x00", "is not valid YAML"),
        ("[" * 20000, "is nested more than 20 levels deep"),
        ("a: &a [1, 2]\nb: [*a, *a]", "has aliases"),
        (b"a: \xff", "is not a text in UTF-8"),
        ("methods: {}", "must be of type"),
        ("methods: []", "`--methods` is empty"),
        ("learning_rate: [1]", "`--learning-rate` is [1]"),
        ("learning_rate: .nan", "`--learning-rate` is nan"),
        ("seed: 1", "`--seed` is set by the command. Use `--seeds`"),
        ("5: 1", "Unknown recipe key `5`"),
        ("method_settings: [mil]", "must contain options as `name: value`"),
        ("method_settings: {mil: 3}", "must contain options as `name: value`"),
        ("method_settings: {mil: {episode: 1}}", "Did you mean `episodes`?"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_recipes(command, columns, tmp_path, text, said):
    (tmp_path / "recipe.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    code, _, error = command("compare", *columns, "--recipe", "recipe.yaml")
    assert code == 2 and said in error and error.count("\n") == 1, error


def test_a_recipe_that_is_no_file(command, columns, tmp_path):
    code, _, error = command("compare", *columns, "--recipe", tmp_path)
    assert code == 2 and "cannot be read: Is a directory" in error, error


def test_wrong_kinds_of_backbones_and_labels(command, columns, backbones, pictures, tmp_path):
    for data, backbone, what in ((columns, "vit", "images"), (["--data", pictures], "bert", "texts")):
        code, _, error = command("train", *data, "--backbone", backbones[backbone], "--dry-run")
        assert code == 2 and f"which reads {what}, and the rows are" in error, error
    rows = [f"word {n},id{n},{'ab'[n % 2]}" for n in range(9)]
    (tmp_path / "ids.csv").write_text("\n".join(["text,label,domain", *rows]))
    code, _, error = command("train", "--data", "ids.csv", "--dry-run")
    assert code == 3 and "`--label` has another value in each row, as an id has" in error, error


def test_no_data_is_wrong_usage(command):
    code, _, error = command("compare")
    assert code == 2 and "`--data` is missing" in error and "generated_reviews" in error
