# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
A vision transformer against the same one with experts (GMoE), by DomainBed's protocol: each domain left out in turn,
several trials. What has run already is not run again, so that a command that was broken off can be given again.

    python examples/gmoe/sweep.py --steps 300 --checkpoint-every 100           # offline: rotated digits, small models
    python examples/gmoe/sweep.py --data PACS=pacs/ --models vit=FOLDER gmoe=gmoe:FOLDER --algorithms erm fish swad \\
        --training-arguments '{"augment_images": true, "bf16": true}' --output runs/pacs --jobs 4
    python -m hf_memaug.reporting.domain_tables runs/gmoe                      # the tables

It is `python -m hf_memaug.training.sweep` with other defaults; selected models of this library get a model card.
"""

import json
import sys
from pathlib import Path

from hf_memaug.training.sweep.__main__ import main, make_parser


def write_card(folder: Path) -> None:
    """The card of a selected checkpoint, from what won. Models of transformers' own have none of ours."""
    from transformers import AutoModelForImageClassification, AutoModelForSequenceClassification

    from hf_memaug import record_run
    from hf_memaug.hub.publishing import complete_folder
    from hf_memaug.registry import row_name

    winner = json.loads((folder / "winner.json").read_text(encoding="utf-8"))
    is_image_model = (folder / "preprocessor_config.json").is_file()
    auto_class = AutoModelForImageClassification if is_image_model else AutoModelForSequenceClassification
    model = auto_class.from_pretrained(folder)
    if not hasattr(model.config, "run_facts"):
        return
    figure = {"metric": "accuracy", "seed": winner["trial_seed"]}
    accuracy = winner["record"]["accuracy"]
    trained_on = [domain for domain in accuracy if domain not in winner["test_envs"]]
    scores = [{**figure, "domain": name, "split": "dev", "value": 100 * accuracy[name]["out"]} for name in trained_on]
    tested = winner["test_accuracy"].items()
    record_run(
        model,
        data=winner["dataset"],
        domains=trained_on,
        # The card says that selection never saw it, which is not so of the oracle's.
        left_out=None if winner["selection"] == "oracle" else ", ".join(winner["test_envs"]),
        method=row_name(model.config, winner["algorithm"]),
        scores=[
            *scores,
            *({**figure, "domain": name, "split": "test", "value": 100 * value} for name, value in tested),
        ],
        training={**winner["hparams"], "steps": winner["step"], "selection": winner["selection"]},
    )
    model.config.save_pretrained(folder)
    # Data, model, algorithm, and the domain left out.
    complete_folder(model, folder, "-".join(folder.parts[-4:]))


if __name__ == "__main__":
    # argparse, by way of the library's own command.
    parser = make_parser(
        "python examples/gmoe/sweep.py",
        __doc__,
        output=Path("runs/gmoe"),
        data=["digits=generated_digits"],
        models=["vit=small", "gmoe=gmoe:small"],
        # Small models begin with random weights, which learn nothing at the rate for pretrained ones.
        hparams={} if "--models" in sys.argv else {"learning_rate": 1e-3},
    )
    sys.exit(main(parser=parser, when_selected=write_card))
