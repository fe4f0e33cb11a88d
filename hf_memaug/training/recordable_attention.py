# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
Attention as single operations, which forward mode can differentiate and a CUDA graph can record.

It is the "eager" attention of BERT and RoBERTa, with a mask that is made on the device: the mask of some versions of
transformers copies a number from the host, which a recording refuses.
"""

import torch
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import AttentionInterface
from transformers.models.bert.modeling_bert import eager_attention_forward

RECORDABLE = "hf_memaug_recordable"


def recordable_mask(*args, dtype: torch.dtype = torch.float32, **kwargs) -> torch.Tensor | None:
    """0 where a position may be read, and the least number of the type where it may not."""
    kwargs["allow_is_causal_skip"] = False
    readable = sdpa_mask(*args, **kwargs)
    if readable is None:  # all of them
        return None
    added = torch.zeros(readable.shape, dtype=dtype, device=readable.device)
    return added.masked_fill_(~readable, torch.finfo(dtype).min)


AttentionInterface.register(RECORDABLE, eager_attention_forward)
AttentionMaskInterface.register(RECORDABLE, recordable_mask)
