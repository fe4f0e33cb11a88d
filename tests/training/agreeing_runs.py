# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
What the processes of a run go on from, as a script under torchrun: each process writes what it got for each case, as
JSON. Without training: the states are made up. Two processes stand for two machines where both are the first of theirs.
"""

import errno
import json
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import torch
from accelerate import PartialState
from families import leave_together
from transformers.trainer_callback import TrainerState

from hf_memaug.training import checkpoints, last_complete_checkpoint
from hf_memaug.training.snapshots import _agree_on_the_run
from hf_memaug.training.state_files import StateFiles, saved_states


def save(folder: Path, *steps: int, run: str = "a") -> None:
    """States of some steps, as after a kill: the last two are there."""
    files = StateFiles(folder / "_last")
    for step in steps:
        state = TrainerState(global_step=step)
        checkpoints.note_of(state)["run"] = run
        weights = {"weight": torch.full((3, 5), float(step))}
        files.save(step, {"model.safetensors": weights, "trainer_state.json": vars(state)})


def tear(folder: Path, step: int) -> None:
    """What a state's tensors are called is gone, and its first bytes still say that it is whole."""
    path = Path(dict(saved_states(folder / "_last"))[step])
    content = bytearray(path.read_bytes())
    content[4096 + 64 :] = bytes(len(content) - 4096 - 64)
    path.write_bytes(content)


def shared(folder: Path, rank: int) -> None:
    if rank == 0:
        save(folder, 1, 2, 3)


def both(folder: Path, rank: int) -> None:
    save(folder, 1, 2, 3)


def late(folder: Path, rank: int) -> None:
    save(folder, *(1, 2, 3)[: 3 - rank])


def torn(folder: Path, rank: int) -> None:
    save(folder, 1, 2, 3)
    if rank == 1:
        tear(folder, 3)


def cut(folder: Path, rank: int) -> None:
    """A checkpoint whose weights are cut off, as a copy that was broken off leaves it."""
    save(folder, 1, 2, 3)
    if rank == 1:
        file = Path(checkpoints.last_checkpoint_here(folder)) / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-8])
        Path(dict(saved_states(folder / "_last"))[3]).unlink()


def other_run(folder: Path, rank: int) -> None:
    save(folder, 1, 2, 3, run="ab"[rank])


def first_alone(folder: Path, rank: int) -> None:
    if rank == 0:
        save(folder, 1, 2, 3)


def second_alone(folder: Path, rank: int) -> None:
    if rank == 1:
        save(folder, 1, 2, 3)


def nothing(folder: Path, rank: int) -> None:
    pass


# Who has what, and whether the processes are of one machine.
CASES = [
    (shared, True),
    (both, True),
    (both, False),
    (late, False),
    (torn, False),
    (cut, False),
    (other_run, False),
    (first_alone, False),
    (second_alone, False),
    (nothing, False),
]


def outcome(work) -> dict:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = work()
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
    return {"found": found, "warned": [str(one.message) for one in caught]}


def main(output: Path) -> None:
    processes = PartialState(cpu=True)
    rank, unpack, unpacked, found = processes.process_index, checkpoints.unpack, [], {}
    checkpoints.unpack = lambda path: (unpacked.append(str(path)), unpack(path))[1]

    def case(name: str, work) -> None:
        # As after a start of both: the first one's files are there.
        processes.wait_for_everyone()
        unpacked.clear()
        found[name] = {**outcome(work), "unpacked": len(unpacked)}

    for prepare, is_one_machine in CASES:
        name = f"{prepare.__name__}-{1 if is_one_machine else 2}"
        folder = output / name / ("all" if prepare is shared else str(rank))
        prepare(folder, rank)
        processes.local_process_index = rank if is_one_machine else 0
        case(name, lambda folder=folder: last_complete_checkpoint(folder))

    full = output / "full" / str(rank)
    save(full, 1, 2)

    def no_room(path):
        if rank == 1:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return unpack(path)

    checkpoints.unpack = no_room
    case("full", lambda: last_complete_checkpoint(full))
    args, state = SimpleNamespace(world_size=2), TrainerState(global_step=5)
    case("same_steps", lambda: (_agree_on_the_run(args, state), checkpoints.note_of(state)["run"])[1])
    case("steps", lambda: _agree_on_the_run(args, TrainerState(global_step=5 + rank)))
    (output / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    leave_together()
