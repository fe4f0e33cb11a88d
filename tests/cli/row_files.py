# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Rows as files that commands read."""

import json


def write(path, rows) -> str:
    """One line of JSON for each row."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def write_pictures(folder, rows_per_domain: int):
    """Generated digits as a folder `domain/class/*.png`."""
    from hf_memaug.data import generated_digits

    rows = generated_digits("coloured", rows_per_domain=rows_per_domain, image_size=16)
    for number, row in enumerate(rows):
        place = folder / row["domain"].replace("%", "") / rows.label_names[row["label"]]
        place.mkdir(parents=True, exist_ok=True)
        row["image"].save(place / f"{number}.png")
    return folder
