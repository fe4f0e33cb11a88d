# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers that apply a prompt template."""

import copy

from hf_memaug.configuration.prompting import parse_template


def prompt_tokenizer(tokenizer, template: str):
    """
    A copy of `tokenizer` that wraps each text, or pair of texts, in `template`, such as `"{text} It was {mask}."`.

    The template becomes the tokenizer's post-processor. So it is saved with the tokenizer, `pipeline` applies it, and
    truncation shortens the text and never the prompt. Where the template has no `{text_pair}`, the second text of a
    pair follows the first, after the tokenizer's own separators.
    """
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise ValueError("`tokenizer` must be a fast tokenizer: load it with `AutoTokenizer.from_pretrained`.")
    if tokenizer.mask_token_id is None:
        raise ValueError("`tokenizer` has no mask token, and a template asks for one. Use a masked-LM's tokenizer.")
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    parts = parse_template(template)
    if "text_pair" not in dict(parts):
        after_text = [kind for kind, _ in parts].index("text") + 1
        parts[after_text:after_text] = [("between", ""), ("text_pair", "")]
    second_segment = 1 if "token_type_ids" in tokenizer.model_input_names else 0

    segment, pieces, words = 0, ["first:0"], {}
    for index, (kind, text) in enumerate(parts):
        if kind == "text_pair":
            segment = second_segment
        if kind == "words":
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            if not ids or tokenizer.unk_token_id in ids:
                raise ValueError(f"`template` holds {text.strip()!r}, which this tokenizer has no tokens for.")
            words[f"words{index}"] = ids
        name = {"text": "$A", "text_pair": "$B", "words": f"words{index}"}.get(kind, kind)
        pieces.append(f"{name}:{segment}")
    pieces.append(f"last:{segment}")

    # One separator of BERT's, two of RoBERTa's.
    separators = tokenizer.num_special_tokens_to_add(pair=True) - tokenizer.num_special_tokens_to_add(pair=False)
    fixed = {
        "first": [tokenizer.cls_token_id],
        "mask": [tokenizer.mask_token_id],
        "between": [tokenizer.sep_token_id] * separators,
        "last": [tokenizer.sep_token_id],
    }
    backend = copy.deepcopy(tokenizer.backend_tokenizer)
    backend.post_processor = TemplateProcessing(
        # A single text is all one segment, whatever follows the place of the missing second.
        single=[piece.split(":")[0] + ":0" for piece in pieces if not piece.startswith(("$B", "between"))],
        pair=pieces,
        special_tokens=[
            {"id": name, "ids": ids, "tokens": tokenizer.convert_ids_to_tokens(ids)}
            for name, ids in {**fixed, **words}.items()
        ],
    )
    if isinstance(backend.pre_tokenizer, ByteLevel) and ("{text_pair}" in template or parts[0][0] != "text"):
        # Inside the prompt the first word of a text follows a space, which a byte-level tokenizer encodes.
        backend.pre_tokenizer.add_prefix_space = True
    # The model's own tokenizer class would restore its own post-processor when it is loaded.
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=tokenizer.model_max_length,
        padding_side=tokenizer.padding_side,
        truncation_side=tokenizer.truncation_side,
        model_input_names=tokenizer.model_input_names,
        # A "<mask>" written in a text is not the mask of the prompt.
        split_special_tokens=True,
        **tokenizer.special_tokens_map,
    )
