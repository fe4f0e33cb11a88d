# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
A run on a GPU that is killed some times, as a script: `FOLDER PRECISION` starts itself in processes of its own, one
after the other, and prints what became of them. `FOLDER PRECISION NAME` is one of these.
"""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

STEPS, A_STEP, KILLS = 14, 0.2, 2


def train(folder: Path, precision: str, name: str) -> None:
    import torch
    from domain_runs import domain_trainer, weights
    from killed_runs import Slow

    from hf_memaug.training import last_complete_checkpoint
    from hf_memaug.training.snapshots import Snapshots

    torch.use_deterministic_algorithms(True, warn_only=True)
    killed = name == "killed"
    given = {"use_cpu": not torch.cuda.is_available(), **({precision: True} if precision != "fp32" else {})}
    callbacks = [Snapshots(), Slow(folder / "log", A_STEP)] if killed else []
    # Dropout draws the random numbers of the device.
    config = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    output = folder / name
    trainer = domain_trainer(
        "bert", output, config=config, max_steps=STEPS, algorithm="dann", callbacks=callbacks, **given
    )
    trainer.train(resume_from_checkpoint=last_complete_checkpoint(output))
    scale = trainer.accelerator.scaler
    output.mkdir(exist_ok=True)
    torch.save({one: value.cpu() for one, value in weights(trainer).items()}, output / "weights.pt")
    facts = {"device": str(trainer.args.device), "scale": None if scale is None else scale.get_scale()}
    (output / "facts.json").write_text(json.dumps(facts))


def main(folder: Path, precision: str) -> dict:
    import torch

    from hf_memaug.training import last_complete_checkpoint

    def started(name: str) -> subprocess.Popen:
        return subprocess.Popen([sys.executable, __file__, str(folder), precision, name], stdout=sys.stderr)

    for name in ("whole", "twin"):
        assert started(name).wait() == 0
    log, killed, kills = folder / "log", folder / "killed", []
    for _ in range(KILLS):
        log.write_text("")
        one, end = started("killed"), time.monotonic() + 120
        while log.read_text().count("\n") < 4:
            assert one.poll() is None and time.monotonic() < end, "it does not come on"
            time.sleep(0.01)
        time.sleep(random.uniform(0, A_STEP))
        one.send_signal(signal.SIGKILL)
        one.wait()
        kills.append((int(log.read_text().split()[-1]), int(last_complete_checkpoint(killed).rpartition("-")[2])))
    assert started("killed").wait() == 0
    whole, twin, again = (
        torch.load(folder / name / "weights.pt", weights_only=True) for name in ("whole", "twin", "killed")
    )
    facts = [json.loads((folder / name / "facts.json").read_text()) for name in ("whole", "killed")]

    def same(one: dict, other: dict) -> bool:
        return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)

    return {
        "device": facts[1]["device"],
        "kills": kills,
        "repeats": same(whole, twin),
        "same": same(whole, again) and facts[0] == facts[1],
        "scaled": facts[1]["scale"] is not None,
    }


if __name__ == "__main__":
    if len(sys.argv) > 3:
        train(Path(sys.argv[1]), *sys.argv[2:])
    else:
        print(json.dumps(main(Path(sys.argv[1]), sys.argv[2])))
