# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
Stands for a job of a sweep, without the seconds that it takes to import torch: records and weights are made up. The
trial says how it goes: 7 fails, 8 never ends.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path


def end_with_the_sweep():
    while os.read(0, 1024):
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_with_the_sweep, daemon=True).start()
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text())
    times = folder / "times.txt"
    with times.open("a") as file:
        file.write(f"{os.getpid()} {time.time()} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}\n")
    if job["trial_seed"] == 7:
        raise ValueError("no such luck")
    while job["trial_seed"] == 8:
        time.sleep(0.1)
    time.sleep(0.3)
    score = 0.5 + job["hparams_seed"] / 10 + job["trial_seed"] / 100
    kept = ("dataset", "algorithm", "model", "test_envs", "trial_seed", "hparams_seed", "setting")
    record = {name: job[name] for name in kept}
    accuracy = {name: {"in": score, "out": score} for name in ("a", "b", "c")}
    record |= {"step": 10, "accuracy": accuracy, "hparams": job["hparams"], "args": {"job": folder.name}}
    (folder / "weights" / "step-10").mkdir(parents=True)
    (folder / "weights" / "step-10" / "config.json").write_text(folder.name)
    (folder / "records.jsonl").write_text(json.dumps(record) + "\n")
    with times.open("a") as file:
        file.write(f"{os.getpid()} {time.time()}\n")
    (folder / "done").write_text("")
