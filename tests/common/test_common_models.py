# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What every class of every family promises. Adding a row to the registry adds it here."""

import pickle
import re

import pytest
import torch
import transformers
from families import CASES, FEATURES, HEADS, TEXT_CASES, TRAINED_HEADS, Case, features_of
from safetensors.torch import load_file, save_file

pytestmark = pytest.mark.filterwarnings("ignore")
every_class = pytest.mark.parametrize("case", CASES, ids=str)
every_head = pytest.mark.parametrize("case", HEADS, ids=str)
every_trained_head = pytest.mark.parametrize("case", TRAINED_HEADS, ids=str)
one_head_a_family = pytest.mark.parametrize("case", {case.model_type: case for case in HEADS}.values(), ids=str)


def test_the_registry_is_covered():
    from families import CONFIGS

    from hf_memaug.registry import FAMILIES

    assert set(CONFIGS) == set(FAMILIES), "a family without a tiny factory is not tested"


@every_class
def test_save_and_load_are_bit_equal(case: Case, tmp_path):
    model, inputs = case.model(), case.inputs()
    model.save_pretrained(tmp_path)
    generation = ["generation_config.json"] if case.model_class.can_generate() else []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", *generation, "model.safetensors"]
    again, info = case.model_class.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True))
    assert torch.equal(features_of(model(**inputs)), features_of(again(**inputs)))


@one_head_a_family
def test_a_fresh_memory_takes_the_place_of_a_missing_one_only_where_it_is_asked_for(case: Case, tmp_path):
    model = case.model()
    model.save_pretrained(tmp_path)
    parts = [name for name, module in model.named_modules() if isinstance(module, model.memory_modules)]
    stored = load_file(tmp_path / "model.safetensors")
    left = {name: value for name, value in stored.items() if not name.startswith(tuple(parts))}
    if len(left) == len(stored):
        pytest.skip("its memory has no weights")
    save_file(left, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="lacks weights of the memory"):
        case.model_class.from_pretrained(tmp_path)
    case.model_class.from_pretrained(tmp_path, ignore_mismatched_sizes=True)


@every_class
def test_auto_classes_pick_the_class(case: Case, tmp_path):
    case.model().save_pretrained(tmp_path)
    loaded = getattr(transformers, case.auto_class).from_pretrained(tmp_path)
    assert type(loaded) is case.model_class
    assert type(transformers.AutoConfig.from_pretrained(tmp_path)) is type(loaded.config)


@every_class
def test_a_changed_memory_changes_the_output(case: Case):
    model, inputs = case.model(), case.inputs()
    if not case.tiny.trains_memory:
        pytest.skip("nothing in its memory is trained: tests/modeling/test_writable_memory.py")
    before = features_of(model(**inputs))
    for parameter in model.memory_parameters():
        with torch.no_grad():
            kept = parameter.clone()
            parameter += torch.randn_like(parameter)
            changed = (features_of(model(**inputs)) - before).abs().max()
            parameter.copy_(kept)
        assert changed > 1e-6, f"a memory parameter of shape {tuple(parameter.shape)} is not read"
    assert list(model.memory_parameters()), "no memory"


@pytest.mark.parametrize("case", TEXT_CASES, ids=str)
def test_extra_padding_changes_nothing(case: Case):
    model, inputs = case.model().double(), case.inputs()
    padding = torch.full((3, 4), model.config.pad_token_id)
    padded = {
        **inputs,
        "input_ids": torch.cat([inputs["input_ids"], padding], dim=1),
        "attention_mask": torch.cat([inputs["attention_mask"], torch.zeros_like(padding)], dim=1),
    }
    found, expected = features_of(model(**padded)), features_of(model(**inputs))
    found = found[:, : expected.shape[1]] if case.is_per_token else found
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@every_class
def test_batch_mates_change_nothing(case: Case):
    model, inputs = case.model().double(), case.inputs(rows=5)
    together = features_of(model(**inputs))
    for row in range(5):
        alone = features_of(model(**case.alone(inputs, row)))
        torch.testing.assert_close(alone[0], together[row], rtol=0, atol=1e-12)


@every_trained_head
def test_every_trainable_parameter_gets_a_gradient(case: Case):
    model = case.model().train()
    model(**case.inputs(rows=8, labels=True)).loss.backward()
    without = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    dead = [name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() == 0]
    # A key's bias shifts every score alike, and the softmax takes it out again.
    dead = [name for name in dead if not name.endswith(("attention.self.key.bias", "attention.k_proj.bias"))]
    assert not without and not dead


@every_trained_head
def test_a_frozen_memory_has_no_gradient_and_no_graph(case: Case):
    model = case.model().train()
    assert model.freeze_memory() is model
    output = model(**case.inputs(labels=True))
    output.loss.backward()
    assert all(p.grad is None and not p.requires_grad for p in model.memory_parameters())
    model.eval().requires_grad_(False)
    assert features_of(model(**case.inputs())).grad_fn is None
    assert all(p.requires_grad for p in model.freeze_memory(frozen=False).memory_parameters())


@every_class
def test_memory_weights_on_request(case: Case):
    model, inputs = case.model(), case.inputs()
    assert model(**inputs).memory_weights is None
    weights = model(**inputs, output_memory_weights=True).memory_weights
    rows, length = (3, None) if case.is_graph else inputs[model.main_input_name].shape[:2]
    shape, total = case.tiny.weights(model.config, rows, length)
    assert weights.shape == shape
    torch.testing.assert_close(weights.sum(-1), torch.as_tensor(total).expand(shape[:-1]))


@every_class
def test_eager_equals_sdpa(case: Case, tmp_path):
    if not case.model_class._supports_sdpa:
        pytest.skip("it has no attention of the kind that transformers implements")
    case.model().save_pretrained(tmp_path)
    inputs = case.inputs()
    if case.is_text:
        inputs["attention_mask"][0, -3:] = 0
    outputs = []
    for implementation in ("eager", "sdpa"):
        model = case.model_class.from_pretrained(tmp_path, attn_implementation=implementation)
        assert model.config._attn_implementation == implementation
        outputs.append(features_of(model(**inputs)))
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-5)


@every_class
def test_bf16_autocast(case: Case):
    model, inputs = case.model(), case.inputs()
    expected = features_of(model(**inputs))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(**inputs, output_memory_weights=True)
    assert torch.isfinite(features_of(output)).all()
    assert (features_of(output).float() - expected).norm() / expected.norm() < 0.05


@every_trained_head
def test_bf16_autocast_trains_every_parameter(case: Case):
    model = case.model().train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(**case.inputs(rows=8, labels=True)).loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.requires_grad)


@every_class
def test_bf16_weights_keep_their_type(case: Case, tmp_path):
    case.model().to(torch.bfloat16).save_pretrained(tmp_path)
    model = case.model_class.from_pretrained(tmp_path)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert features_of(model(**case.inputs())).dtype == torch.bfloat16


@every_trained_head
def test_gradient_checkpointing_changes_nothing(case: Case):
    if not case.model_class.supports_gradient_checkpointing:
        with pytest.raises(ValueError, match="does not support gradient checkpointing"):
            case.model().gradient_checkpointing_enable()
        return
    gradients = []
    for checkpointing in (False, True):
        model = case.model().train()
        if checkpointing:
            model.gradient_checkpointing_enable()
            assert model.is_gradient_checkpointing
        model(**case.inputs(labels=True)).loss.backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    for plain, checkpointed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, checkpointed)


@every_class
@pytest.mark.slow
def test_torch_export(case: Case):
    model, inputs = case.model(), case.inputs()
    program = torch.export.export(model, (), kwargs=inputs, strict=False)
    other = case.inputs(seed=5)
    exported = program.module()(**other)
    torch.testing.assert_close(features_of(exported), features_of(model(**other)), rtol=0, atol=1e-5)


@pytest.mark.slow
@every_class
def test_torch_compile_in_one_graph(case: Case):
    model, inputs = case.model(), case.inputs(labels=True)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch._dynamo.reset()
    torch.testing.assert_close(features_of(compiled(**inputs)), features_of(model(**inputs)), rtol=0, atol=1e-5)


@every_class
def test_outputs_behave_like_any_model_output(case: Case):
    model, inputs = case.model(), case.inputs(labels=True)
    output, as_tuple = model(**inputs), model(**inputs, return_dict=False)
    assert list(output.keys()) == [n for n in output.__dataclass_fields__ if getattr(output, n) is not None]
    assert len(as_tuple) == len(output.to_tuple()) == len(output.keys())
    assert all(torch.equal(a, b) for a, b in zip(as_tuple, output.to_tuple(), strict=True))
    model.config.return_dict = False
    assert isinstance(model(**inputs), tuple) and len(model(**inputs)) == len(as_tuple)
    again = pickle.loads(pickle.dumps(output))
    assert type(again) is type(output) and list(again.keys()) == list(output.keys())


@pytest.mark.slow
@one_head_a_family
def test_onnx(case: Case, tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    import onnxruntime

    model, inputs = case.model(), case.inputs()
    fixed = {name: value for name, value in inputs.items() if not isinstance(value, torch.Tensor)}
    inputs = {name: value for name, value in inputs.items() if name not in fixed}
    wanted = next(name for name in FEATURES if name in model(**inputs, **fixed))

    class OneOutput(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *values):
            return self.model(**dict(zip(inputs, values, strict=True)), **fixed)[wanted]

    torch.onnx.export(OneOutput(), tuple(inputs.values()), tmp_path / "model.onnx", dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    other = case.inputs(seed=5)
    feeds = {spec.name: other[name].numpy() for spec, name in zip(session.get_inputs(), inputs, strict=True)}
    torch.testing.assert_close(
        torch.tensor(session.run(None, feeds)[0]), model(**other)[wanted].detach(), rtol=0, atol=1e-5
    )


@every_class
def test_only_safetensors_are_read(case: Case, tmp_path):
    model = case.model()
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        case.model_class.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="`use_safetensors=False` is not supported"):
        case.model_class.from_pretrained(tmp_path, use_safetensors=False)


@every_class
def test_another_familys_checkpoint_is_refused(case: Case, tmp_path, backbones):
    from transformers import ViTConfig, ViTModel

    ViTModel(ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)).save_pretrained(
        tmp_path
    )
    with pytest.raises(ValueError, match=f"holds a `vit` model, and `{case.name}` reads `{case.model_type}`"):
        case.model_class.from_pretrained(tmp_path)
    if case.backbone is not None:
        with pytest.raises(ValueError, match=case.model_class.how_to_begin_with(case.backbone)):
            case.model_class.from_pretrained(backbones.get(case.backbone, backbones["bert"]))


@every_class
def test_a_memory_of_another_shape_is_refused(case: Case, tmp_path):
    case.model().save_pretrained(tmp_path)
    name, stored, other = case.tiny.shape
    asked, found = re.escape(f"`{name}={other}`"), re.escape(f"`{name}={stored}`")
    with pytest.raises(ValueError, match=f"{asked} does not fit .* has {found}.* Leave `{name}` out"):
        case.model_class.from_pretrained(tmp_path, **{name: other})
    with pytest.raises(ValueError, match=f"{asked} does not fit"):
        getattr(transformers, case.auto_class).from_pretrained(tmp_path, **{name: other})
    slip, meant = case.tiny.misspelt
    with pytest.raises(TypeError, match=f"`{slip}`. Did you mean `{meant}`"):
        case.model_class.from_pretrained(tmp_path, **{slip: other})


@every_class
def test_weights_are_written_once(case: Case, tmp_path):
    model = case.model()
    model.save_pretrained(tmp_path)
    stored = sum(tensor.numel() for tensor in load_file(tmp_path / "model.safetensors").values())
    kept = sum(p.numel() for p in model.parameters())  # tied weights are one parameter
    assert stored == kept + sum(buffer.numel() for name, buffer in model.named_buffers() if name in model.state_dict())


@every_head
def test_lora_with_the_memory_kept_trainable_and_saved(case: Case, tmp_path):
    if case.is_graph:
        pytest.skip("a graph network has no attention layers to adapt")
    if not case.tiny.trains_memory:
        pytest.skip("adapters are merged before the first row is written")
    from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict

    base = tmp_path / "base"
    case.model().save_pretrained(base)
    tasks = {"AutoModelForSequenceClassification": "SEQ_CLS", "AutoModelForTokenClassification": "TOKEN_CLS"}
    # A frozen encoder that others read takes no adapters.
    base_model = case.model_class.from_pretrained(base)
    config = LoraConfig(
        target_modules=base_model.adapter_targets,
        task_type=tasks.get(case.auto_class),
        r=4,
        init_lora_weights=False,
        modules_to_save=[case.tiny.memory],
        exclude_modules=r".*general\..*",
    )
    model = get_peft_model(base_model, config)
    trainable = [name for name, p in model.named_parameters() if p.requires_grad]
    assert any("lora_A" in name and case.tiny.adapted in name for name in trainable)
    memory = f".{case.tiny.memory}."
    assert not any("lora" in name and memory in name for name in trainable), "LoRA caught the memory's query"
    assert any(f"{memory}modules_to_save" in name for name in trainable)

    inputs = case.inputs(rows=6, labels=True)
    optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.1)
    model.train()
    model(**inputs).loss.backward()
    optimizer.step()
    model.eval()
    model.save_pretrained(tmp_path / "adapter")
    saved = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert any(memory in name for name in saved)

    again = PeftModel.from_pretrained(case.model_class.from_pretrained(base), tmp_path / "adapter").eval()
    plain = case.model_class.from_pretrained(base)
    for name, value in get_peft_model_state_dict(model).items():
        assert torch.equal(value, get_peft_model_state_dict(again)[name])
    found = [features_of(one(**inputs)) for one in (model, again, plain)]
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-6)
    assert not torch.allclose(found[2], found[1])


@every_head
def test_adapters_of_transformers_itself(case: Case, tmp_path):
    if case.is_graph:
        pytest.skip("a graph network has no attention layers to adapt")
    from peft import LoraConfig

    model, inputs = case.model(), case.inputs()
    model.add_adapter(LoraConfig(target_modules=model.adapter_targets, r=4, init_lora_weights=False))
    assert all("lora" in name for name, p in model.named_parameters() if p.requires_grad)
    adapted = features_of(model(**inputs))
    model.disable_adapters()
    assert not torch.allclose(features_of(model(**inputs)), adapted)
