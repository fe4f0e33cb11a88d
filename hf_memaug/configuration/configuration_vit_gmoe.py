# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""GMoE: a vision transformer with sparse experts in some of its layers. Configuration."""

from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig, ViTConfig

from hf_memaug.configuration.checks import check_fields, check_layers, inherited_fields, refuse_misspelt_fields

# Plain vision transformers that a model can be made of, by their `model_type`.
PLAIN_TYPES = ("vit", "deit")


@strict
class ViTGMoEConfig(ViTConfig):
    r"""
    ViT's configuration, and what it gains with the experts (GMoE: Li et al., 2023, sections 4.1, 4.3 and C).

    Args:
        num_experts (`int`, *optional*, defaults to 6):
            `N` of Eq. 3, the feed-forward networks of each layer that has experts.
        num_experts_per_tok (`int`, *optional*, defaults to 2):
            `k` of TOP_k, how many of them read a token.
        moe_placement (`str`, *optional*, defaults to `"last_two"`):
            Which layers have experts: `"last_two"` of the even layers, or `"every_two"`, all even layers. Layers are
            counted from 0, as in the paper: 8 and 10 of 12. Of fewer than 6, `"last_two"` are 2 and 3 of 4.
        moe_layers (`list[int]`, *optional*):
            The layers by number, from 0, where neither is wanted.
        router (`str`, *optional*, defaults to `"cosine"`):
            `"cosine"` (section 4.3) or `"linear"` (Eq. 3).
        router_dim (`int`, *optional*, defaults to 256):
            `d_e`, the width in which the cosine router compares tokens with experts.
        router_scale (`float`, *optional*, defaults to 2.0):
            What the cosine begins to be multiplied with: `1 / tau`, which is learned.
        router_max_scale (`float`, *optional*, defaults to 100.0):
            What it does not grow beyond.
        router_noise (`float`, *optional*):
            Standard deviation of the noise on the logits in training (C.3). Left out, `1 / num_experts`.
        aux_loss_weight (`float`, *optional*, defaults to 0.01):
            λ of C.4, the weight of the mean of importance and load loss.
        output_router_logits (`bool`, *optional*, defaults to `False`):
            Whether models return what their routers say of each token.
        distillation_token (`bool`, *optional*, defaults to `False`):
            Whether DeiT's second token is there. The head reads the first.
        run_facts (`dict`, *optional*):
            What happened in training. The model card is written from it.
    """

    model_type = "vit_gmoe"
    keys_to_ignore_at_inference = ["aux_loss", "router_logits", "memory_weights"]
    method_fields = (
        *("num_experts", "num_experts_per_tok", "expert_layers", "router", "noise"),
        *("aux_loss_weight", "distillation_token"),
    )

    num_experts: int = 6
    num_experts_per_tok: int = 2
    moe_placement: Literal["last_two", "every_two"] = "last_two"
    moe_layers: list[int] | tuple[int, ...] | None = None
    router: Literal["cosine", "linear"] = "cosine"
    router_dim: int = 256
    router_scale: float | int = 2.0
    router_max_scale: float | int = 100.0
    router_noise: float | int | None = None
    aux_loss_weight: float | int = 0.01
    output_router_logits: bool = False
    distillation_token: bool = False
    run_facts: dict[str, Any] | None = None

    def __post_init__(self, **kwargs):
        refuse_misspelt_fields(type(self), kwargs, own_prefixes=("num_experts", "moe_", "router", "aux_"))
        if self.moe_layers is not None:
            self.moe_layers = sorted(self.moe_layers)
        super().__post_init__(**kwargs)

    @property
    def expert_layers(self) -> list[int]:
        """`moe_layers`, or what stands in for them, counted from 0."""
        if self.moe_layers is not None:
            return list(self.moe_layers)
        # Section 4.3 and C.1. Of fewer than 6 layers, the last two of the even ones would be early layers, or all.
        layers = list(range(0, self.num_hidden_layers, 1 if self._ends_in_experts else 2))
        return layers if self.moe_placement == "every_two" else layers[-2:]

    @property
    def _ends_in_experts(self) -> bool:
        return self.moe_placement == "last_two" and self.num_hidden_layers < 6

    def to_dict(self) -> dict[str, Any]:
        # Files of before 0.2.0 have no layers where these follow from the placement.
        return super().to_dict() | ({"moe_layers": self.expert_layers} if self._ends_in_experts else {})

    @classmethod
    def from_dict(cls, config_dict, **kwargs):
        """As in transformers. Configurations saved before 0.2.0 keep their layers."""
        found = super().from_dict(config_dict, **kwargs)
        config = found[0] if isinstance(found, tuple) else found
        if config.moe_layers is None and config._ends_in_experts:
            config.moe_layers = list(range(0, config.num_hidden_layers, 2))[-2:]
        return found

    @property
    def noise(self) -> float:
        """`router_noise`, or what stands in for it (C.3)."""
        return 1 / self.num_experts if self.router_noise is None else float(self.router_noise)

    def validate_experts(self):
        check_fields(vars(self))
        if self.num_experts_per_tok > self.num_experts:
            raise ValueError(
                f"`num_experts_per_tok` ({self.num_experts_per_tok}) is more than `num_experts` ({self.num_experts}). "
                f"Choose 1 to {self.num_experts}."
            )
        if self.router_scale > self.router_max_scale:
            raise ValueError(
                f"`router_scale` ({self.router_scale}) must be no more than `router_max_scale` "
                f"({self.router_max_scale})."
            )
        if self.moe_layers is not None:
            fix = "That is a plain ViT: name layers, or leave it out and set `moe_placement`."
            check_layers("moe_layers", self.moe_layers, "there are", 0, self.num_hidden_layers - 1, fix)

    @classmethod
    def from_vit_config(cls, vit: PreTrainedConfig, **kwargs) -> "ViTGMoEConfig":
        """The same transformer, with experts. `kwargs` are fields of this configuration."""
        if vit.model_type not in PLAIN_TYPES:
            raise ValueError(
                f"`{cls.__name__}` is built on a plain vision transformer ({', '.join(PLAIN_TYPES)}), and this is a "
                f"`{vit.model_type}`. Use a checkpoint of one of these."
            )
        token = vit.model_type == "deit"
        if kwargs.setdefault("distillation_token", token) != token:
            raise ValueError(f"`distillation_token` is {token} in a `{vit.model_type}` checkpoint: leave it out.")
        return cls(**{**inherited_fields(vit, kwargs), **kwargs})
