# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Templates and verbalisers: how a text becomes a cloze question, and which words answer it."""

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

_SLOT = re.compile(r"{(.*?)}")
SLOTS = ("text", "text_pair", "mask")


def parse_template(template: str) -> list[tuple[str, str]]:
    """
    Cuts `"{text} It was {mask}."` into `[("text", ""), ("words", " It was"), ("mask", ""), ("words", ".")]`.

    A template holds `{text}` and `{mask}` exactly once, and `{text_pair}` at most once, after `{text}`.
    """
    if not isinstance(template, str):
        raise ValueError(f'`template` is {template!r}. Write for example "{{text}} It was {{mask}}."')
    unknown = [slot for slot in _SLOT.findall(template) if slot not in SLOTS]
    if unknown:
        raise ValueError(
            f"`template` holds the unknown slot {{{unknown[0]}}}. Use {{text}}, {{text_pair}} and {{mask}}, "
            f'for example "{{text}} It was {{mask}}."; got {template!r}.'
        )
    if sorted(_SLOT.findall(template)) not in (["mask", "text"], ["mask", "text", "text_pair"]):
        raise ValueError(
            "`template` must hold {text} and {mask} exactly once, and {text_pair} at most once, for example "
            f'"{{text}} It was {{mask}}."; got {template!r}.'
        )
    if 0 <= template.find("{text_pair}") < template.find("{text}"):
        raise ValueError(f"`template` must hold {{text}} before {{text_pair}}; got {template!r}.")

    parts = []
    for place, part in enumerate(_SLOT.split(template)):
        if place % 2:
            parts.append((part, ""))
        # The space before a slot belongs to the slot: byte-level tokenizers would make a token of its own of it.
        elif words := part.rstrip():
            parts.append(("words", words))
    return parts


def normalise_verbalizer(verbalizer: Mapping[str, str | Sequence[str]]) -> dict[str, list[str]]:
    """Lets `{"negative": "bad"}` stand for `{"negative": ["bad"]}`, and refuses a label without words."""
    example = '{"negative": "bad", "positive": ["good", "great"]}'
    if not isinstance(verbalizer, Mapping):
        raise ValueError(f"`verbalizer` is {verbalizer!r}. Name the labels of the words: {example}.")
    words = {}
    for label, answers in verbalizer.items():
        answers = [answers] if isinstance(answers, str) else answers
        if not isinstance(answers, Sequence) or not all(isinstance(word, str) for word in answers):
            raise ValueError(f"`verbalizer` gives the label {label!r} {answers!r}, which is no word: {example}.")
        words[str(label)] = list(answers)
    empty = [label for label, answers in words.items() if not all(map(str.strip, answers)) or not answers]
    if empty:
        raise ValueError(f"`verbalizer` gives no word for the label {empty[0]!r}. Give each label at least one word.")
    if len(words) < 2:
        raise ValueError(f"`verbalizer` needs at least two labels, and has {sorted(words)}.")
    return words


def in_label_order(verbalizer: Mapping[str, list[str]], id2label: Mapping | None) -> dict[str, list[str]]:
    """The same words in the order of `id2label`, where both name the same labels: JSON keeps no order."""
    names = [str(id2label[index]) for index in sorted(id2label, key=int)] if id2label else []
    return {name: verbalizer[name] for name in names} if set(names) == set(verbalizer) else dict(verbalizer)


def verbalizer_token_ids(verbalizer: Mapping[str, Sequence[str]], tokenizer: Any) -> list[list[int]]:
    """The vocabulary ids of each label's words. A word is looked up as it stands in running text, after a space."""
    ids: list[list[int]] = []
    for label, words in verbalizer.items():
        ids.append([])
        for word in words:
            pieces = tokenizer(" " + word.strip(), add_special_tokens=False)["input_ids"]
            if len(pieces) != 1 or pieces[0] == tokenizer.unk_token_id:
                shown = tokenizer.convert_ids_to_tokens(pieces)
                raise ValueError(
                    f"`verbalizer` word {word!r} of label {label!r} is {len(pieces)} tokens for this tokenizer "
                    f"({shown}); the mask holds one. Choose a word that is a single known token."
                )
            ids[-1].append(pieces[0])
    flat = [piece for pieces in ids for piece in pieces]
    if len(set(flat)) != len(flat):
        raise ValueError(
            "`verbalizer` uses the same word for two labels, or twice for one. Give each label words of its own."
        )
    return ids


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
