# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Sections 4 and C of GMoE: the layer token by token, the losses by hand, and what upcycling promises."""

import math
import statistics

import pytest
import torch
from families import leave_together, vit_gmoe_config
from torch.nn import functional as F

from hf_memaug import ViTGMoEConfig, ViTGMoEForImageClassification, ViTGMoEModel
from hf_memaug.layers.router import route
from hf_memaug.modeling import modeling_vit_gmoe
from hf_memaug.modeling.modeling_vit_gmoe import ViTGMoELayer

IMPLEMENTATIONS = ("eager", "batched_mm", "grouped_mm", "grouped_experts")


def make(model_class=ViTGMoEForImageClassification, seed: int = 0, **kwargs):
    torch.manual_seed(seed)
    return model_class(vit_gmoe_config(**kwargs)).eval()


def images(rows: int = 3, height: int = 16, width: int = 16, seed: int = 1) -> torch.Tensor:
    return torch.randn(rows, 3, height, width, generator=torch.Generator().manual_seed(seed))


def labels(rows: int) -> torch.Tensor:
    return torch.arange(rows) % 3


def gates_by_hand(moe, token: torch.Tensor, kind: str, k: int) -> dict[int, float]:
    """`G(x)` of Eq. 3 and section 4.3, made to add up to 1."""
    router = moe.router
    if kind == "linear":
        logits = [float(router.projection.weight[expert] @ token) for expert in range(4)]
    else:
        embedding = router.projection.weight @ token + router.projection.bias
        scale = min(math.exp(float(router.log_scale)), 100.0)
        logits = [
            scale * float(embedding @ direction / (embedding.norm() * direction.norm())) for direction in router.experts
        ]
    softmax = [math.exp(value) / sum(map(math.exp, logits)) for value in logits]
    best = sorted(range(4), key=lambda expert: -softmax[expert])[:k]
    return {expert: softmax[expert] / sum(softmax[one] for one in best) for expert in best}


class TestTheLayer:
    @pytest.mark.parametrize("kind", ["cosine", "linear"])
    @pytest.mark.parametrize("k", [1, 2, 4])
    @torch.no_grad()
    def test_it_is_section_4_1_token_by_token(self, kind, k):
        layer = make(ViTGMoEModel, router=kind, num_experts_per_tok=k, hidden_act="relu").double().layers[0]
        given = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        found, _, experts, *_ = layer(given)
        # x = f_MHA(LN(x_in)) + x_in
        expected = layer.attention(layer.layernorm_before(given))[0] + given
        for row in range(2):
            for place in range(5):
                token = layer.layernorm_after(expected[row, place])
                said = torch.zeros(32, dtype=torch.float64)
                for expert, gate in gates_by_hand(layer.moe, token, kind, k).items():
                    network = layer.moe.experts
                    inner = torch.relu(network.up_proj[expert] @ token + network.up_proj_bias[expert])
                    said += gate * (network.down_proj[expert] @ inner + network.down_proj_bias[expert])
                # x_out = f_MoE(LN(x)) + x
                torch.testing.assert_close(found[row, place], expected[row, place] + said, rtol=0, atol=1e-12)
        assert experts.shape == (10, k)

    def test_only_the_chosen_layers_have_experts(self):
        model = make(num_hidden_layers=4, moe_placement="every_two")
        assert [isinstance(layer, ViTGMoELayer) for layer in model.vit.layers] == [True, False, True, False]
        assert [hasattr(layer, "mlp") for layer in model.vit.layers] == [False, True, False, True]
        stored = model.state_dict()["vit.layers.2.moe.experts.up_proj"]
        assert stored.shape == (4, 48, 32)

    def test_the_papers_size(self):
        """Table 4: 33.8M parameters on ViT-S/16."""
        with torch.device("meta"):
            sizes = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
            model = ViTGMoEModel(ViTGMoEConfig(**sizes), add_pooling_layer=False)
        assert model.num_parameters() == pytest.approx(33.7e6, rel=1e-3)

    @pytest.mark.parametrize("k", [1, 2, 4])
    def test_no_token_is_dropped(self, k):
        """Even where all of them want the same experts."""
        model = make(num_experts_per_tok=k)
        for layer in (0, 2):
            router = model.vit.layers[layer].moe.router
            with torch.no_grad():
                router.projection.weight.zero_()
                router.projection.bias.copy_(router.experts[3])
        weights = model(images(), output_memory_weights=True).memory_weights
        assert weights.shape == (3, 2, 17, 4)
        assert ((weights > 0).sum(dim=-1) == k).all() and (weights[..., 3] == weights.amax(dim=-1)).all()
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3, 2, 17))

    @pytest.mark.parametrize("k", [1, 2, 4])
    def test_implementations_agree_in_values_and_gradients(self, k):
        results = {}
        for implementation in IMPLEMENTATIONS:
            model = make(num_experts_per_tok=k, router_noise=0.0)
            model.set_experts_implementation(implementation)
            assert {
                module.config._experts_implementation for module in model.modules() if hasattr(module, "config")
            } == {implementation}
            output = model.train()(images(6), labels=labels(6))
            output.loss.backward()
            results[implementation] = [output.logits.detach(), *(p.grad for p in model.parameters())]
        for implementation in IMPLEMENTATIONS[1:]:
            for plain, other in zip(results["eager"], results[implementation], strict=True):
                torch.testing.assert_close(other, plain, rtol=1e-4, atol=1e-5)

    def test_ours_is_the_default_and_refuses_experts_it_does_not_fit(self):
        model = make()
        assert model.config._experts_implementation == "grouped_experts"
        experts = model.vit.layers[0].moe.experts
        experts.has_gate = True
        with pytest.raises(ValueError, match='"grouped_experts"` needs experts of two layers with biases'):
            model(images())

    @pytest.mark.parametrize("kind", ["cosine", "linear"])
    @pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
    def test_the_router_is_in_full_precision(self, kind, implementation):
        model = make(router=kind)
        model.set_experts_implementation(implementation)
        seen = []
        for layer in (0, 2):
            model.vit.layers[layer].moe.register_forward_hook(lambda moe, args, output: seen.append((args[0], output)))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(images(), output_router_logits=True)
        rounded = make(router=kind).to(torch.bfloat16)
        rounded.set_experts_implementation(implementation)
        assert {logits.dtype for logits in output.router_logits} == {torch.float32}
        assert {one.dtype for one in rounded(images(), output_router_logits=True).router_logits} == {torch.float32}
        for layer, (given, (_, routing)) in zip((0, 2), seen, strict=True):
            router = model.vit.layers[layer].moe.router
            assert routing.weights.dtype == torch.float32
            torch.testing.assert_close(routing.logits, router(given.float().flatten(0, 1)), rtol=0, atol=1e-6)


class TestTraining:
    def test_every_expert_gets_a_gradient(self):
        model = make().train()
        model(images(16), labels=labels(16)).loss.backward()
        for layer in (0, 2):
            for name, parameter in model.vit.layers[layer].moe.named_parameters():
                rows = parameter.grad.flatten(1) if parameter.ndim > 1 else parameter.grad.reshape(-1, 1)
                assert (rows.abs().amax(dim=-1) > 0).all(), name

    def test_noise_is_drawn_in_training_alone(self):
        model = make()
        assert torch.equal(model(images()).logits, model(images()).logits)
        model.train()
        assert not torch.equal(model(images()).logits, model(images()).logits)
        steady = make(router_noise=0.0).train()
        assert torch.equal(steady(images()).logits, steady(images()).logits)

    @pytest.mark.parametrize("noise", [None, 0.7, 0.0])
    def test_the_loss_is_that_of_c_4(self, noise, monkeypatch):
        routings = []

        def remember(*args):
            routings.append(route(*args))
            return routings[-1]

        monkeypatch.setattr(modeling_vit_gmoe, "route", remember)
        model = make(router_noise=noise, aux_loss_weight=0.3).double().train()
        output = model(images(4).double(), labels=labels(4))
        std = 0.25 if noise is None else noise
        auxiliary = 0.0
        for routing in routings:
            importance, load = [0.0] * 4, [0.0] * 4
            for clean, noisy in zip(routing.logits.tolist(), routing.noisy_logits.tolist(), strict=True):
                threshold = sorted(noisy)[-2]
                for expert in range(4):
                    importance[expert] += math.exp(clean[expert]) / sum(map(math.exp, clean))  # Eq. 9
                    if std:
                        load[expert] += 1 - statistics.NormalDist(0, std).cdf(threshold - clean[expert])  # Eq. 10
                    else:
                        load[expert] += clean[expert] >= threshold
            for values in (importance, load):
                auxiliary += (statistics.pstdev(values) / statistics.fmean(values)) ** 2 / 2
        assert len(routings) == 2 and auxiliary > 0
        assert output.aux_loss.item() == pytest.approx(auxiliary, rel=1e-9)
        expected = F.cross_entropy(output.logits, labels(4)).item() + 0.3 * auxiliary
        assert output.loss.item() == pytest.approx(expected, rel=1e-9)

    @pytest.mark.parametrize("use_reentrant", [False, True])
    def test_checkpointing_keeps_the_gradients_of_the_auxiliary_loss(self, use_reentrant):
        gradients = []
        for checkpointing in (False, True):
            model = make(aux_loss_weight=1.0).train()
            if checkpointing:
                model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
            torch.manual_seed(3)
            model(images(), labels=labels(3)).aux_loss.backward()
            gradients.append([parameter.grad for parameter in model.vit.layers[2].moe.router.parameters()])
        assert all(gradient.abs().max() > 1e-6 for gradient in gradients[0])
        for plain, checkpointed in zip(*gradients, strict=True):
            torch.testing.assert_close(checkpointed, plain)

    @pytest.mark.slow
    def test_training_compiles_in_one_graph(self):
        model = make(router_noise=0.0).train()
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        torch._dynamo.reset()
        results = []
        for one in (model, compiled):
            model.zero_grad()
            loss = one(pixel_values=images(), labels=labels(3)).loss
            loss.backward()
            results.append([loss.detach(), *(p.grad.clone() for p in model.parameters())])
        for plain, traced in zip(*results, strict=True):
            torch.testing.assert_close(traced, plain, rtol=1e-4, atol=1e-6)

    def test_in_evaluation_the_loss_is_the_tasks_alone(self):
        model = make(aux_loss_weight=10.0)
        output = model(images(), labels=labels(3))
        assert output.aux_loss is None
        torch.testing.assert_close(output.loss, F.cross_entropy(output.logits, labels(3)))


def loss_of_a_part(rank: int, folder: str) -> None:
    """One of two processes, with a part of the images each."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    model = make(router_noise=0.0, aux_loss_weight=1.0).train()
    mine = slice(0, 3) if rank == 0 else slice(3, 6)
    output = model(images(6)[mine], labels=labels(6)[mine])
    output.loss.backward()
    # As data parallel training does.
    for parameter in model.parameters():
        torch.distributed.all_reduce(parameter.grad)
        parameter.grad /= 2
    alone = model.eval()(images(6), labels=labels(6)).loss.detach() if rank == 0 else None
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    torch.save((output.aux_loss.detach(), output.loss.detach(), gradients, alone), f"{folder}/{rank}.pt")
    leave_together()


@pytest.mark.slow
def test_two_processes_have_the_losses_and_the_gradients_of_one(tmp_path):
    torch.multiprocessing.spawn(loss_of_a_part, args=(str(tmp_path),), nprocs=2)
    model = make(router_noise=0.0, aux_loss_weight=1.0).train()
    output = model(images(6), labels=labels(6))
    output.loss.backward()
    parts = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    half = model(images(6)[:3], labels=labels(6)[:3])
    assert not torch.allclose(half.aux_loss, output.aux_loss, rtol=1e-3), "the parts do not differ from the whole"
    for auxiliary, _, gradients, _ in parts:
        torch.testing.assert_close(auxiliary, output.aux_loss.detach())
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close((parts[0][1] + parts[1][1]) / 2, output.loss.detach())
    # One process alone may evaluate: it waits for nobody.
    torch.testing.assert_close(parts[0][3], model.eval()(images(6), labels=labels(6)).loss.detach())


class TestOutputs:
    def test_router_logits(self):
        model = make()
        assert model(images()).router_logits is None
        output = model(images(), output_router_logits=True, output_memory_weights=True)
        assert [logits.shape for logits in output.router_logits] == [(51, 4), (51, 4)]
        for layer, logits in enumerate(output.router_logits):
            weights = output.memory_weights[:, layer].flatten(0, 1)
            kept = torch.where(weights > 0, logits, -torch.inf)
            torch.testing.assert_close(kept.softmax(dim=-1), weights)
            assert torch.equal(logits.argmax(dim=-1), weights.argmax(dim=-1))
        model.config.output_router_logits = True
        assert len(model(images()).router_logits) == 2

    def test_hidden_states_and_attentions(self):
        model = make(attn_implementation="eager")
        output = model(images(), output_hidden_states=True, output_attentions=True)
        assert len(output.hidden_states) == 4 and len(output.attentions) == 3
        assert all(state.shape == (3, 17, 32) for state in output.hidden_states)
        torch.testing.assert_close(
            model.classifier(model.vit.layernorm(output.hidden_states[-1])[:, 0]), output.logits, rtol=0, atol=0
        )


class TestImages:
    def test_an_exported_program_takes_any_number_of_images(self):
        model = make()
        rows = torch.export.Dim("rows", min=1, max=64)
        program = torch.export.export(
            model, (), kwargs={"pixel_values": images(3)}, dynamic_shapes={"pixel_values": {0: rows}}, strict=False
        )
        for count in (1, 5):
            found = program.module()(pixel_values=images(count, seed=9)).logits
            torch.testing.assert_close(found, model(images(count, seed=9)).logits, rtol=0, atol=1e-5)

    def test_other_sizes_need_positions_in_between(self):
        model = make()
        with pytest.raises(ValueError, match=r"24\*20.*16\*16"):
            model(images(2, 24, 20))
        for height, width in ((24, 20), (8, 32), (17, 19), (4, 4)):
            output = model(images(2, height, width), interpolate_pos_encoding=True, output_memory_weights=True)
            assert output.memory_weights.shape == (2, 2, 1 + (height // 4) * (width // 4), 4)
        torch.testing.assert_close(model(images(), interpolate_pos_encoding=True).logits, model(images()).logits)

    def test_images_that_are_not_square(self):
        model = make(image_size=(16, 8))
        assert model(images(2, 16, 8)).logits.shape == (2, 3)
