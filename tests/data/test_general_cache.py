# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Logits from the cache are the logits, the general encoder stays still, and a cache of something else is refused."""

import json
import multiprocessing

import cache_worker
import pytest
import torch
import transformers
from families import SENTENCES, gmap_config, tiny_tokenizer
from safetensors.torch import load_file, save_file

from hf_memaug import (
    DomainTrainer,
    DomainTrainingArguments,
    GeneralStatesCollator,
    GMAPForSequenceClassification,
    RunGuard,
    cache_general_states,
    load_domains,
)
from hf_memaug.data import general_cache
from hf_memaug.data.collators import PaddingCollator


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer("roberta")


@pytest.fixture
def rows(tokenizer):
    texts = [
        {"text": f"{text} {number}", "label": number % 3, "domain": "ab"[number % 2]}
        for number, text in enumerate(SENTENCES * 4)
    ]
    return load_domains(texts).tokenize(tokenizer)


def make_model(tokenizer, seed=0, **kwargs):
    torch.manual_seed(seed)
    return GMAPForSequenceClassification(gmap_config("gmap", vocab_size=len(tokenizer), **kwargs)).eval()


def still(model, monkeypatch):
    """From here on the general encoder must not run."""

    def refuse(*args, **kwargs):
        raise AssertionError("the general encoder ran")

    monkeypatch.setattr(model.gmap.general.embeddings, "forward", refuse)


@pytest.mark.parametrize("strategy", ["single", "multiple", "gated", "chunk_gated"])
def test_logits_are_the_same_to_rounding(strategy, rows, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(general_cache, "ROWS_A_FILE", 10)
    model = make_model(tokenizer, strategy=strategy)
    collate = PaddingCollator(tokenizer)
    columns = ("input_ids", "attention_mask", "labels")
    batch = collate([{name: row[name] for name in columns} for row in rows])
    expected = model(**batch).logits
    cached = cache_general_states(model, rows, tmp_path / "cache", batch_size=7, progress=False)
    assert len(list((tmp_path / "cache").glob("*.safetensors"))) == 3 and len(cached) == 24
    assert cached.column_names == [*rows.column_names, "general_hidden_states"] and cached["domain"] == rows["domain"]
    first = cached[0]["general_hidden_states"]
    assert first.dtype == torch.float16 and first.shape[0] == (1 if strategy == "single" else 4)
    assert torch.equal(cached[-1]["general_hidden_states"], cached[23]["general_hidden_states"])
    still(model, monkeypatch)
    keep = (*columns, "general_hidden_states")
    batch = GeneralStatesCollator(collate)([{name: row[name] for name in keep} for row in cached])
    found = model(**batch)
    torch.testing.assert_close(found.logits, expected, rtol=0, atol=5e-3)
    assert found.loss.isfinite()
    some = cached.select([20, 3])
    assert torch.equal(some[0]["general_hidden_states"], cached[20]["general_hidden_states"])
    assert some[1]["input_ids"] == rows[3]["input_ids"]


def test_the_trainer_trains_and_evaluates_from_it(rows, tokenizer, tmp_path, monkeypatch):
    runs = []
    for folder in (None, tmp_path / "cache"):
        model = make_model(tokenizer)
        data, collate = rows, PaddingCollator(tokenizer)
        if folder is not None:
            data, collate = cache_general_states(model, rows, folder, progress=False), GeneralStatesCollator(collate)
            still(model, monkeypatch)
        arguments = transformers.TrainingArguments(
            str(tmp_path / "run"),
            max_steps=6,
            logging_steps=1,
            optim="sgd",
            learning_rate=0.05,
            save_strategy="no",
            dataloader_num_workers=2 if folder is not None else 0,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(model, arguments, train_dataset=data, eval_dataset=data, data_collator=collate)
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        runs.append([*losses, trainer.evaluate()["eval_loss"]])
    assert len(runs[0]) == 7
    assert runs[0] == pytest.approx(runs[1], rel=2e-3)


def test_it_is_made_once_and_taken_up_again(rows, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(general_cache, "ROWS_A_FILE", 10)
    model = make_model(tokenizer)
    cached = cache_general_states(model, rows, tmp_path, progress=False)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = cache_general_states(model, rows, tmp_path, progress=False)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert torch.equal(again[5]["general_hidden_states"], cached[5]["general_hidden_states"])
    # As after a kill: one file is not there yet, the others are kept.
    expected = cached[12]["general_hidden_states"].clone()
    (tmp_path / "states-00001.safetensors").unlink()
    again = cache_general_states(model, rows, tmp_path, progress=False)
    assert torch.equal(again[12]["general_hidden_states"], expected)
    assert (tmp_path / "states-00000.safetensors").stat().st_mtime_ns == before["states-00000.safetensors"]


def in_two_processes(folder, seeds) -> list[str]:
    """What two processes say that begin a cache in the same folder at the same time."""
    context = multiprocessing.get_context("spawn")
    barrier, said = context.Barrier(2), context.Queue()
    processes = [context.Process(target=cache_worker.build, args=(folder, seed, barrier, said)) for seed in seeds]
    for process in processes:
        process.start()
    answers = [said.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(timeout=120)
    return sorted(answers)


def test_two_processes_may_build_it_at_once(tmp_path, monkeypatch):
    assert in_two_processes(tmp_path / "two", (0, 0)) == ["whole", "whole"]
    monkeypatch.setattr(general_cache, "ROWS_A_FILE", cache_worker.ROWS_A_FILE)
    model, rows = cache_worker.model_and_rows(0)
    cache_general_states(model, rows, tmp_path / "one", progress=False)
    built = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two")]
    assert built[0] == built[1] and len(built[0]) == 4, "all files, the same ones, and nothing half written"


def test_of_two_encoders_that_begin_at_once_one_is_refused(tmp_path):
    refused, whole = in_two_processes(tmp_path, (0, 1))
    assert whole == "whole" and "another general encoder" in refused


def test_a_manifest_that_was_never_finished_is_in_nobodys_way(rows, tokenizer, tmp_path):
    (tmp_path / ".cache.json.of-a-killed-process").write_text("{")
    cached = cache_general_states(make_model(tokenizer), rows, tmp_path, progress=False)
    assert cached[0]["general_hidden_states"].isfinite().all()


def test_a_file_system_without_links_will_do(rows, tokenizer, tmp_path, monkeypatch):
    def refuse(*args):
        raise PermissionError("links are not supported")

    monkeypatch.setattr("os.link", refuse)
    cached = cache_general_states(make_model(tokenizer), rows, tmp_path, progress=False)
    assert cached[0]["general_hidden_states"].isfinite().all()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache.json", "states-00000.safetensors"]


def test_a_cache_of_something_else_is_refused(rows, tokenizer, tmp_path):
    model = make_model(tokenizer)
    cache_general_states(model, rows, tmp_path, progress=False)
    with pytest.raises(ValueError, match="another general encoder. Choose another folder"):
        cache_general_states(make_model(tokenizer, seed=1), rows, tmp_path)
    with pytest.raises(ValueError, match="other rows, or the same rows by another tokenizer"):
        cache_general_states(model, rows.select(range(23)), tmp_path)
    with pytest.raises(ValueError, match="other rows, or the same rows by another tokenizer"):
        other = rows.with_columns(input_ids=[[*ids[:-1], 5] for ids in rows["input_ids"]])
        cache_general_states(model, other, tmp_path)
    with pytest.raises(ValueError, match=r"the layers \[1, 2, 3, 4\], and the model's strategy reads \[4\]"):
        cache_general_states(make_model(tokenizer, strategy="single"), rows, tmp_path)


def test_strategies_that_read_the_same_share_a_cache(rows, tokenizer, tmp_path, monkeypatch):
    cache_general_states(make_model(tokenizer), rows, tmp_path, progress=False)
    written = (tmp_path / "states-00000.safetensors").stat().st_mtime_ns
    for other in ({"strategy": "gated"}, {"strategy": "multiple"}, {"memory_layers": [1, 3]}):
        cache_general_states(make_model(tokenizer, **other), rows, tmp_path, progress=False)
    assert (tmp_path / "states-00000.safetensors").stat().st_mtime_ns == written


def test_a_truncated_cache_is_refused(rows, tokenizer, tmp_path):
    model = make_model(tokenizer)
    cache_general_states(model, rows, tmp_path, progress=False)
    path = tmp_path / "states-00000.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="states-00000.safetensors is broken.*Delete that file"):
        cache_general_states(model, rows, tmp_path)


@pytest.mark.parametrize("text", ["", '{"general": "ab', "[]"])
def test_a_broken_manifest_is_refused(text, rows, tokenizer, tmp_path):
    model = make_model(tokenizer)
    cache_general_states(model, rows, tmp_path, progress=False)
    (tmp_path / "cache.json").write_text(text)
    with pytest.raises(ValueError, match="cache.json is broken. Delete this folder"):
        cache_general_states(model, rows, tmp_path)


def test_a_file_with_fewer_layers_is_refused(rows, tokenizer, tmp_path):
    model = make_model(tokenizer)
    cache_general_states(model, rows, tmp_path, progress=False)
    path = tmp_path / "states-00000.safetensors"
    save_file({"states": load_file(path)["states"][:, :2].contiguous()}, path)
    with pytest.raises(
        ValueError, match=r"tokens, layers and width \[\d+, 2, 32\], not \[\d+, 4, 32\]. Delete that file"
    ):
        cache_general_states(model, rows, tmp_path)


def test_states_that_fp16_cannot_hold_are_refused(rows, tokenizer, tmp_path):
    model = make_model(tokenizer)
    with torch.no_grad():
        model.gmap.general.encoder.layer[1].output.LayerNorm.bias[3] = 70000.0
    with pytest.raises(ValueError, match="states of row 0 are no numbers, or larger than fp16.*Train without a cache"):
        cache_general_states(model, rows, tmp_path, progress=False)
    assert not list(tmp_path.glob("*.safetensors"))


@pytest.mark.parametrize("other", [{"num_attention_heads": 2}, {"hidden_act": "relu"}, {"layer_norm_eps": 1e-3}])
def test_the_same_weights_in_another_configuration_are_another_encoder(other, rows, tokenizer, tmp_path):
    cache_general_states(make_model(tokenizer), rows, tmp_path, progress=False)
    with pytest.raises(ValueError, match="another general encoder"):
        cache_general_states(make_model(tokenizer, **other), rows, tmp_path)


def test_what_cannot_be_cached_is_refused(rows, tokenizer, tmp_path):
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(ValueError, match="holds something else than a cache"):
        cache_general_states(make_model(tokenizer), rows, tmp_path)
    with pytest.raises(ValueError, match="trains its general encoder.*`freeze_general=True`"):
        cache_general_states(make_model(tokenizer, freeze_general=False), rows, tmp_path / "cache")
    with pytest.raises(ValueError, match="must be tokenized"):
        cache_general_states(make_model(tokenizer), rows.without_columns("input_ids"), tmp_path / "cache")
    with pytest.raises(TypeError, match="no general encoder.*`from_general_and_domain"):
        cache_general_states(make_model(tokenizer).gmap.domain, rows, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_it_says_what_it_was_made_of(rows, tokenizer, tmp_path):
    cache_general_states(make_model(tokenizer), rows, tmp_path, progress=False)
    manifest = json.loads((tmp_path / "cache.json").read_text())
    assert set(manifest) == {"general", "model_type", "rows", "layers", "tokens"}
    assert manifest["tokens"] == [len(ids) for ids in rows["input_ids"]]


def test_the_states_follow_the_padding_and_a_collator_that_masks_is_refused(rows, tokenizer, tmp_path):
    model = make_model(tokenizer)
    cached = cache_general_states(model, rows, tmp_path, progress=False)
    columns = ("input_ids", "attention_mask", "labels", "general_hidden_states")
    short = min(range(len(rows)), key=lambda row: len(rows[row]["input_ids"]))
    long = max(range(len(rows)), key=lambda row: len(rows[row]["input_ids"]))
    some = [{name: cached[row][name] for name in columns} for row in (short, long)]
    left = tiny_tokenizer("roberta")
    left.padding_side = "left"
    batch = GeneralStatesCollator(PaddingCollator(left))(some)
    count = [len(row["input_ids"]) for row in some]
    assert count[0] != count[1]
    for number in (0, 1):
        found = batch["general_hidden_states"][number, :, -count[number] :]
        assert torch.equal(found, some[number]["general_hidden_states"])

    def mask(rows):
        batch = PaddingCollator(tokenizer)(rows)
        batch["input_ids"][:, 2] = tokenizer.mask_token_id
        return batch

    with pytest.raises(ValueError, match="changes the tokens, as masking does"):
        GeneralStatesCollator(mask)(some)


@pytest.mark.parametrize("kind", ["roberta", "bert", "gpt2"])
def test_behind_padding_on_the_left_logits_are_the_same_or_refused(kind, rows, tokenizer, tmp_path):
    """RoBERTa does not count padding among its places; the others do, and would read their states at other ones."""
    columns = ("input_ids", "attention_mask", "labels")
    model = make_model(tokenizer, kind=kind, max_position_embeddings=64, pad_token_id=tokenizer.pad_token_id)
    cached = cache_general_states(model, rows, tmp_path, progress=False)
    some = [{name: cached[row][name] for name in (*columns, "general_hidden_states")} for row in range(6)]
    assert len({len(row["input_ids"]) for row in some}) > 1
    for side in ("right", "left"):
        padding = tiny_tokenizer("roberta")
        padding.padding_side = side
        collate = PaddingCollator(padding)
        if side == "left" and kind != "roberta":
            with pytest.raises(ValueError, match='pads on the left.*Set `tokenizer.padding_side = "right"`'):
                GeneralStatesCollator(collate)(some)
            continue
        plain = model(**collate([{name: row[name] for name in columns} for row in some])).logits
        torch.testing.assert_close(model(**GeneralStatesCollator(collate)(some)).logits, plain, rtol=0, atol=5e-3)


def test_a_model_with_an_adapter_is_cached(rows, tokenizer, tmp_path):
    import peft

    lora = {"modules_to_save": ["memory"], "exclude_modules": r".*general\..*", "target_modules": ["query", "value"]}
    wrapped = peft.get_peft_model(make_model(tokenizer), peft.LoraConfig(task_type="SEQ_CLS", **lora))
    cached = cache_general_states(wrapped, rows, tmp_path, progress=False)
    cached.check_model(wrapped)
    again = cache_general_states(make_model(tokenizer), rows, tmp_path, progress=False)
    assert torch.equal(again[3]["general_hidden_states"], cached[3]["general_hidden_states"])


def test_a_cache_that_could_not_begin_leaves_nothing(rows, tokenizer, tmp_path):
    model, foreign = make_model(tokenizer), rows["input_ids"][:]
    foreign[2] = [len(tokenizer) + 5, *foreign[2][1:]]
    with pytest.raises(IndexError):
        cache_general_states(model, rows.with_columns(input_ids=foreign), tmp_path / "cache", progress=False)
    assert len(cache_general_states(model, rows, tmp_path / "cache", progress=False)) == len(rows)


def test_rows_without_states_are_collated_as_they_are_and_never_beside_others(rows, tokenizer, tmp_path):
    model = make_model(tokenizer)
    cached = cache_general_states(model, rows, tmp_path, progress=False)
    columns = ("input_ids", "attention_mask", "labels")
    plain = [{name: rows[row][name] for name in columns} for row in range(2)]
    states = {"general_hidden_states": cached[1]["general_hidden_states"]}
    collate = PaddingCollator(tokenizer)
    batch, expected = GeneralStatesCollator(collate)(plain), collate(plain)
    assert batch.keys() == expected.keys() and torch.equal(batch["input_ids"], expected["input_ids"])
    with pytest.raises(ValueError, match="rows with cached states and rows without"):
        GeneralStatesCollator(collate)([plain[0], {**plain[1], **states}])


def test_rows_may_be_a_list(rows, tokenizer, tmp_path):
    model = make_model(tokenizer)
    listed = [{"input_ids": row["input_ids"], "labels": [0] * len(row["input_ids"])} for row in rows]
    cached = cache_general_states(model, listed, tmp_path, progress=False)
    assert cached.column_names == ["input_ids", "labels", "general_hidden_states"]
    assert cached["input_ids"] == [row["input_ids"] for row in listed] and len(cached.select([3, 1])) == 2
    expected = model.gmap.general_states(input_ids=torch.tensor([listed[5]["input_ids"]]))
    torch.testing.assert_close(cached[5]["general_hidden_states"][2].float(), expected[2][0], rtol=0, atol=5e-3)


class TestAnotherModel:
    """Cached rows that come to a model by other ways than `cache_general_states`."""

    OTHER = "are of another general encoder than the model's. Ask for them with the model that reads them"

    @pytest.fixture
    def make_trainer(self, tokenizer, tmp_path):
        def make(model, train=None, dev=None, **kwargs):
            arguments = transformers.TrainingArguments(
                str(tmp_path / "run"),
                max_steps=1,
                save_strategy="no",
                report_to=[],
                use_cpu=True,
                disable_tqdm=True,
                **kwargs,
            )
            collate = GeneralStatesCollator(PaddingCollator(tokenizer))
            data = {"train_dataset": train, "eval_dataset": dev, "data_collator": collate}
            return transformers.Trainer(model, arguments, callbacks=[RunGuard()], **data)

        return make

    def test_rows_to_train_on_are_compared_before_the_first_step(self, rows, tokenizer, tmp_path, make_trainer):
        data = torch.utils.data
        cached = cache_general_states(make_model(tokenizer), rows, tmp_path / "cache", progress=False)
        other = make_model(tokenizer, seed=1)
        before = {name: weight.clone() for name, weight in other.state_dict().items()}
        for given in (cached, cached.select(range(8)), data.Subset(cached, range(8)), data.ConcatDataset([cached] * 2)):
            with pytest.raises(ValueError, match=self.OTHER):
                make_trainer(other, given).train()
        assert all(torch.equal(weight, before[name]) for name, weight in other.state_dict().items())
        # Another domain encoder and head, and the same general one.
        other.gmap.general.load_state_dict(make_model(tokenizer).gmap.general.state_dict())
        assert make_trainer(other, cached).train().global_step == 1

    def test_a_collator_that_cannot_pad_them_is_refused(self, rows, tokenizer, tmp_path, make_trainer):
        model = make_model(tokenizer)
        cached = cache_general_states(model, rows, tmp_path / "cache", progress=False)
        trainer = make_trainer(model, cached)
        trainer.data_collator = PaddingCollator(tokenizer)
        with pytest.raises(ValueError, match=r"cannot pad them. Give `GeneralStatesCollator\(data_collator\)`"):
            trainer.train()
        whole = GeneralStatesCollator(PaddingCollator(tokenizer))
        trainer.data_collator = lambda rows: whole(rows)  # of one's own, of which nothing is known
        assert trainer.train().global_step == 1

    def test_the_domain_trainer_has_one_that_can(self, rows, tokenizer, tmp_path, monkeypatch):
        model = make_model(tokenizer)
        cached = cache_general_states(model, rows, tmp_path / "cache", progress=False)
        still(model, monkeypatch)
        args = DomainTrainingArguments(
            str(tmp_path / "run"), max_steps=1, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True
        )
        trainer = DomainTrainer(model, args, train_dataset=cached, eval_dataset=cached, processing_class=tokenizer)
        assert trainer.train().global_step == 1 and "eval_a_f1" in trainer.evaluate()

    def test_rows_to_score_are_compared_at_the_first_batch(self, rows, tokenizer, tmp_path, make_trainer):
        model = make_model(tokenizer)
        cached = cache_general_states(model, rows, tmp_path / "cache", progress=False)
        other = make_model(tokenizer, seed=1)
        with pytest.raises(ValueError, match=self.OTHER):
            make_trainer(other, dev=cached).evaluate()
        with pytest.raises(ValueError, match=self.OTHER):
            make_trainer(other, rows, cached, eval_strategy="steps", eval_steps=1).train()
        assert "eval_loss" in make_trainer(model, rows, cached).evaluate()
        assert "eval_loss" in make_trainer(model, dev=cached, bf16_full_eval=True).evaluate()

    def test_a_folder_is_compared_once(self, rows, tokenizer, tmp_path, make_trainer, monkeypatch):
        model = make_model(tokenizer)
        cached = cache_general_states(model, rows, tmp_path / "cache", progress=False)
        asked = []
        monkeypatch.setattr(general_cache.CachedRows, "check_model", lambda *given: asked.append(given))
        parts = {"first": cached.select(range(6)), "rest": cached.select(range(6, 12))}
        trainer = make_trainer(model, dev=parts, per_device_eval_batch_size=2)
        trainer.evaluate(), trainer.evaluate()
        assert asked == [(parts["first"], model)]

    def test_a_general_encoder_that_learns_is_refused(self, rows, tokenizer, tmp_path, make_trainer):
        cached = cache_general_states(make_model(tokenizer), rows, tmp_path / "cache", progress=False)
        with pytest.raises(ValueError, match="trains its general encoder, so that its states change"):
            make_trainer(make_model(tokenizer, freeze_general=False), cached).train()

    def test_a_wrapped_model_is_compared_and_one_without_a_general_encoder_is_not(self, rows, tokenizer, tmp_path):
        model = make_model(tokenizer)
        cached = cache_general_states(model, rows, tmp_path / "cache", progress=False)
        cached.check_model(torch.nn.ModuleDict({"inner": model}))
        cached.check_model(model.gmap.domain)
        with pytest.raises(ValueError, match=self.OTHER):
            cached.check_model(torch.nn.ModuleDict({"inner": make_model(tokenizer, seed=1)}))

    @pytest.mark.parametrize("library", ["fsdp", "deepspeed"])
    def test_weights_that_are_spread_over_processes_are_not_compared(self, rows, tokenizer, tmp_path, library):
        cached = cache_general_states(make_model(tokenizer), rows, tmp_path / "cache", progress=False)
        model = make_model(tokenizer, seed=1)
        if library == "fsdp":
            model.gmap.general.encoder._is_fsdp_managed_module = True
        else:
            model.gmap.general.embeddings.word_embeddings.weight.ds_id = 0
        cached.check_model(model)
