# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The values of options and recipes get the types of their fields."""

from typing import Literal

import pytest

from hf_memaug.runs.errors import UsageError
from hf_memaug.runs.settings import Setting


@pytest.mark.parametrize(
    "hint, given, converted",
    [
        (float, "2e-5", 2e-5),
        (int, "1e3", 1000),
        (float | int, "2", 2),
        (float | int, "0.5", 0.5),
        (bool | None, "false", False),
        (int | None, "none", None),
        (str | None, "none", "none"),
        (str | None, 5, "5"),
        (list[int] | int | None, "64", 64),
        (list[int] | int | None, "64,32", [64, 32]),
        (list[int] | tuple[int, ...] | None, "10", [10]),
        (list[str], ["a", 1], ["a", "1"]),
        (str | list[str], "a,b", "a,b"),
        (dict | str | None, '{"slots": 5}', {"slots": 5}),
        (dict[str, str] | None, {"a": "b"}, {"a": "b"}),
        (Literal[1, 2], "2", 2),
        (Literal["float16"] | None, "none", None),
    ],
)
def test_values_have_the_types_of_their_fields(hint, given, converted):
    value = Setting("name", hint, None, "").convert(given)
    assert value == converted and type(value) is type(converted)


@pytest.mark.parametrize("hint, given", [(int, "2.5"), (int, True), (float, [1]), (list[int], "a"), (str, {"a": 1})])
def test_values_of_other_types_raise(hint, given):
    with pytest.raises(UsageError, match="`--some-name` is .* It must be of type"):
        Setting("some_name", hint, None, "").convert(given)
