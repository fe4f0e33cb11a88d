# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
Runs that are killed some times, as a script: it trains in forks of itself, which have all that takes long to import.
Prints how far each had come when it was killed, and the step that the next could go on from.
"""

import json
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path

import torch
import torch.distributed
from domain_runs import domain_trainer, weights
from families import tiny_tokenizer
from transformers import TrainerCallback

from hf_memaug import DomainTrainer, DomainTrainingArguments, RobertaWithKVMemoryForSequenceClassification  # noqa: F401
from hf_memaug.training import last_complete_checkpoint
from hf_memaug.training.snapshots import Snapshots

STEPS, A_STEP, KILLS = 14, 0.1, 2


class Slow(TrainerCallback):
    """Steps that take a while, each with its line in a file."""

    def __init__(self, log: Path, a_step: float = A_STEP):
        self.log, self.a_step = log, a_step

    def on_step_begin(self, args, state, control, **kwargs):
        time.sleep(self.a_step)

    def on_step_end(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            with self.log.open("a") as file:
                file.write(f"{state.global_step}\n")


def train(folder: Path, callbacks: list) -> None:
    trainer = domain_trainer("kv", folder, max_steps=STEPS, algorithm="dann", callbacks=callbacks)
    trainer.train(resume_from_checkpoint=last_complete_checkpoint(folder))
    if trainer.is_world_process_zero():
        torch.save(weights(trainer), folder / "weights.pt")


def started(processes: int, *arguments) -> list[int]:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    numbers = []
    for rank in range(processes):
        number = os.fork()
        if not number:
            if processes > 1:
                place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "MASTER_PORT": port}
                os.environ.update({name: str(value) for name, value in place.items()}, MASTER_ADDR="127.0.0.1")
            try:
                train(*arguments)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        numbers.append(number)
    return numbers


def ended(numbers: list[int]) -> bool:
    return all(os.waitpid(number, 0)[1] == 0 for number in numbers)


def main(folder: Path, processes: int) -> dict:
    killed, log, found = folder / "killed", folder / "log", []
    folder.mkdir()
    whole = started(processes, folder / "whole", [])
    assert ended(whole)
    for _ in range(KILLS):
        log.write_text("")
        numbers, end = started(processes, killed, [Snapshots(), Slow(log)]), time.monotonic() + 60
        while log.read_text().count("\n") < 4:
            assert time.monotonic() < end, "it does not come on"
            time.sleep(0.01)
        time.sleep(random.uniform(0, A_STEP))
        for number in numbers:
            os.kill(number, signal.SIGKILL)
        ended(numbers)
        reached = int(log.read_text().split()[-1])
        checkpoint = last_complete_checkpoint(killed)
        found.append((reached, int(checkpoint.rpartition("-")[2])))
    assert ended(started(processes, killed, [Snapshots()]))
    one, other = (torch.load(place / "weights.pt", weights_only=True) for place in (folder / "whole", killed))
    same = one.keys() == other.keys() and all((one[name] == other[name]).all() for name in one)
    left = sorted(os.listdir(killed / "_last"))
    return {"kills": found, "same": bool(same), "left": left}


if __name__ == "__main__":
    tiny_tokenizer("roberta")
    print(json.dumps([main(Path(sys.argv[1]) / count, int(count)) for count in sys.argv[2:]]))
