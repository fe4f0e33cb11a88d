# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Templates and verbalisers: how a text becomes a cloze question, and which words answer it."""

import re
from collections.abc import Mapping, Sequence

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
    for slot, low, high in (("text", 1, 1), ("mask", 1, 1), ("text_pair", 0, 1)):
        count = template.count(f"{{{slot}}}")
        if not low <= count <= high:
            allowed = "exactly once" if low == high else "at most once"
            raise ValueError(
                f"`template` must hold {{{slot}}} {allowed}, and holds it {count} times in {template!r}. "
                'Write for example "{text} It was {mask}."'
            )
    if 0 <= template.find("{text_pair}") < template.find("{text}"):
        raise ValueError(f"`template` must hold {{text}} before {{text_pair}}; got {template!r}.")

    parts, end = [], 0
    for match in _SLOT.finditer(template):
        # The space before a slot belongs to the slot: byte-level tokenizers would make a token of its own of it.
        words = template[end : match.start()].rstrip()
        if words:
            parts.append(("words", words))
        parts.append((match.group(1), ""))
        end = match.end()
    if template[end:].rstrip():
        parts.append(("words", template[end:].rstrip()))
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


def in_label_order(verbalizer: Mapping[str, Sequence[str]], id2label: Mapping | None) -> dict[str, list[str]]:
    """The same words in the order of `id2label`, where both name the same labels: JSON keeps no order."""
    names = [str(id2label[index]) for index in sorted(id2label, key=int)] if id2label else []
    return {name: verbalizer[name] for name in names} if set(names) == set(verbalizer) else dict(verbalizer)


def verbalizer_token_ids(verbalizer: Mapping[str, Sequence[str]], tokenizer) -> list[list[int]]:
    """The vocabulary ids of each label's words. A word is looked up as it stands in running text, after a space."""
    ids = []
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
