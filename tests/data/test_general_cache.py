# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Logits from the cache are the logits, the general encoder stays still, and a cache of something else is refused."""

import multiprocessing
import pickle

import cache_worker
import pytest
import torch
import transformers
from families import gmap_config
from tiny_backbones import QUIET, SENTENCES, tiny_tokenizer

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
    model = make_model(tokenizer, strategy=strategy)
    collate = PaddingCollator(tokenizer)
    columns = ("input_ids", "attention_mask", "labels")
    batch = collate([{name: row[name] for name in columns} for row in rows])
    expected = model(**batch).logits
    cached = cache_general_states(model, rows, tmp_path / "cache", batch_size=7, progress=False)
    assert len(cached) == 24
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
        settings = {**QUIET, "max_steps": 6, "logging_steps": 1, "optim": "sgd", "learning_rate": 0.05}
        settings["dataloader_num_workers"] = 2 if folder is not None else 0
        arguments = transformers.TrainingArguments(str(tmp_path / "run"), **settings)
        trainer = transformers.Trainer(model, arguments, train_dataset=data, eval_dataset=data, data_collator=collate)
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        runs.append([*losses, trainer.evaluate()["eval_loss"]])
    assert len(runs[0]) == 7
    assert runs[0] == pytest.approx(runs[1], rel=2e-3)


def test_it_is_made_once(rows, tokenizer, tmp_path, monkeypatch):
    model = make_model(tokenizer)
    cached = cache_general_states(model, rows, tmp_path, progress=False)
    still(model, monkeypatch)
    again = cache_general_states(model, rows, tmp_path, progress=False)
    assert torch.equal(again[5]["general_hidden_states"], cached[5]["general_hidden_states"])
    copied = pickle.loads(pickle.dumps(cached.select([5])))
    assert torch.equal(copied[0]["general_hidden_states"], cached[5]["general_hidden_states"])


def in_two_processes(folder, seeds) -> list[str]:
    """What two processes report that build a cache in the same folder at the same time."""
    context = multiprocessing.get_context("spawn")
    barrier, said = context.Barrier(2), context.Queue()
    processes = [context.Process(target=cache_worker.build, args=(folder, seed, barrier, said)) for seed in seeds]
    for process in processes:
        process.start()
    answers = [said.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(timeout=120)
    return sorted(answers)


@pytest.mark.slow
def test_two_processes_may_build_it_at_once(tmp_path):
    assert in_two_processes(tmp_path / "two", (0, 0)) == ["whole", "whole"]
    model, rows = cache_worker.model_and_rows(0)
    cache_general_states(model, rows, tmp_path / "one", progress=False)
    built = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two")]
    assert built[0] == built[1] and len(built[0]) == 2, "all files, the same ones, and nothing half written"


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


def test_strategies_that_read_the_same_share_a_cache(rows, tokenizer, tmp_path):
    cache_general_states(make_model(tokenizer), rows, tmp_path, progress=False)
    written = (tmp_path / "states.npy").stat().st_mtime_ns
    for other in ({"strategy": "gated"}, {"strategy": "multiple"}, {"memory_layers": [1, 3]}):
        cache_general_states(make_model(tokenizer, **other), rows, tmp_path, progress=False)
    assert (tmp_path / "states.npy").stat().st_mtime_ns == written


@pytest.mark.parametrize("name", ["states.npy", "cache.json"])
def test_a_truncated_cache_is_refused(name, rows, tokenizer, tmp_path):
    model = make_model(tokenizer)
    cache_general_states(model, rows, tmp_path, progress=False)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="is broken.*Delete it and build it again"):
        cache_general_states(model, rows, tmp_path)


def test_states_that_fp16_cannot_hold_are_refused(rows, tokenizer, tmp_path):
    model = make_model(tokenizer)
    with torch.no_grad():
        model.gmap.general.encoder.layer[1].output.LayerNorm.bias[3] = 70000.0
    with pytest.raises(ValueError, match="states of row 4 are not finite in fp16.*Train without a cache"):
        cache_general_states(model, rows, tmp_path, progress=False)
    assert not list(tmp_path.iterdir())


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


def test_collators_that_mask_or_pad_on_the_left_are_refused(rows, tokenizer, tmp_path):
    cached = cache_general_states(make_model(tokenizer), rows, tmp_path, progress=False)
    columns = ("input_ids", "attention_mask", "labels", "general_hidden_states")
    some = [{name: cached[row][name] for name in columns} for row in range(6)]
    # Also where the states were copied, as a worker process does.
    some = [{**row, "general_hidden_states": row["general_hidden_states"].clone()} for row in some]
    left = tiny_tokenizer("roberta")
    left.padding_side = "left"
    with pytest.raises(ValueError, match='pads on the left.*`tokenizer.padding_side = "right"`'):
        GeneralStatesCollator(PaddingCollator(left))(some)

    def mask(rows):
        batch = PaddingCollator(tokenizer)(rows)
        batch["input_ids"][:, 2] = tokenizer.mask_token_id
        return batch

    with pytest.raises(ValueError, match="or changes the tokens, as masking does"):
        GeneralStatesCollator(mask)(some)


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

    OTHER = "are of another general encoder than the model's. Call `cache_general_states"

    @pytest.fixture
    def make_trainer(self, tokenizer, tmp_path):
        def make(model, train=None, dev=None, **kwargs):
            arguments = transformers.TrainingArguments(str(tmp_path / "run"), max_steps=1, **QUIET, **kwargs)
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
