# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
The state of a run in files that are mapped into memory, `state-0` to `state-3` in `output_dir/_last`. A copy there is a
copy in memory and nothing more, but it outlives the process: the pages are the system's, which writes them to the disk
when it likes. A state is whole when its first bytes say so; they are taken away before it is written anew.

Pages that a machine has lost are another matter. So a file is believed only as long as the machine has not been started
again, unless it was waited for until it was on the disk (`StateFiles.keep`), and left alone since.
"""

import contextlib
import io
import mmap
import os
import pickle
import platform
import shutil
import struct
import time
import uuid
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import TrainerState

from hf_memaug.files import has_room, is_full, no_room, told_plainly

# Two that are written in turns, one that is being brought to the disk, and one that is there.
FILES = 4
NAME = "state-"
WHOLE, BROKEN = b"memaug-1", bytes(8)
# Step, where the structure begins and how long it is, whether it was waited for, and the start of the machine.
HEAD = struct.Struct("<QQQQ36s")
KEPT_AT = len(WHOLE) + 24
TENSORS_AT, ALIGNED = 4096, 64
# Bytes that a file is made longer by at a time.
ROOM = 2**20
# What a structure may name beside the types of Python.
NAMED = {
    "collections": {"OrderedDict", "defaultdict", "Counter"},
    "torch": {"Size", "device"},
    "numpy": {"_reconstruct", "ndarray", "dtype", "scalar"},
}


class StateFiles:
    """Writes the states of a run, each over an older one; `folder` may be missing."""

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        self._files: dict[int, _MappedFile] = {}
        self._latest = self._held = self._kept = None
        self._layout = _Layout([])

    def __len__(self) -> int:
        return len(self._files)

    def save(self, step: int, states: dict[str, Any]) -> float:
        """
        Args:
            states: for each file of the checkpoint what is in it.

        Returns:
            The seconds that went into making room, which the next one need not do.
        """
        structure = io.BytesIO()
        pickler = _Pickler(structure)
        pickler.dump(states)
        shapes = [(tensor.dtype, tensor.shape, tensor.is_cpu) for tensor in pickler.tensors]
        if shapes != self._layout.shapes:
            self._layout = _Layout(shapes)
        number = next(one for one in range(FILES) if one not in (self._latest, self._held, self._kept))
        try:
            if not self._files:
                self.folder.mkdir(parents=True, exist_ok=True)
            # A file system that copies on writing has no error for a full disk but the end of the process.
            if not has_room(self.folder):
                raise no_room(self.folder)
            if number not in self._files:
                self._files[number] = _MappedFile(self.folder / f"{NAME}{number}")
            spent = self._files[number].write(step, pickler.tensors, self._layout, structure.getbuffer())
        except OSError as error:
            # Room for what is left to be said.
            self._files.pop(number, None)
            (self.folder / f"{NAME}{number}").unlink(missing_ok=True)
            raise no_room(self.folder) if is_full(error) else error from None
        self._latest = number
        return spent

    def hold(self) -> None:
        """Leaves the latest state as it is until `keep` is done with it."""
        self._held = self._latest

    def keep(self) -> None:
        """Waits until the state that is held is on the disk. Another thread may save meanwhile."""
        if self._held is not None and self._held != self._kept:
            self._files[self._held].keep()
            if self._kept is not None:
                self._files[self._kept].forget()
            # From now on the one before may be written again, and what the run went on from is not needed.
            self._kept = self._held
            clear(self.folder, lambda name: name.startswith(NAME))
        self._held = None

    def close(self) -> None:
        """Leaves the latest state alone in the folder, and on the disk."""
        self.hold()
        self.keep()
        self._files.clear()
        if self._latest is not None:
            clear(self.folder, lambda name: name == f"{NAME}{self._latest}")


def clear(folder: Path, stays: Callable[[str], bool]) -> None:
    """Removes what is in `folder`, but for what stays by its name."""
    for one in folder.iterdir() if folder.is_dir() else ():
        if one.is_dir() and not stays(one.name):
            # First what says that a checkpoint is whole: a kill may come in between.
            (one / TRAINER_STATE_NAME).unlink(missing_ok=True)
            shutil.rmtree(one, ignore_errors=True)
        elif not stays(one.name):
            one.unlink(missing_ok=True)


class _Layout:
    """Where the tensors of a state lie in its file."""

    def __init__(self, shapes: list[tuple[torch.dtype, torch.Size, bool]]):
        self.shapes, self.places, end = shapes, [], TENSORS_AT
        self.is_on_cpu = all(is_cpu for *_, is_cpu in shapes)
        for dtype, shape, _ in shapes:
            self.places.append((str(dtype).removeprefix("torch."), tuple(shape), end))
            end += -(-shape.numel() * dtype.itemsize // ALIGNED) * ALIGNED
        self.end, self.pickled = end, pickle.dumps(self.places)

    def views(self, memory: mmap.mmap) -> list[torch.Tensor]:
        return views(memory, self.places)


class _MappedFile:
    def __init__(self, path: Path):
        self._file = open(path, "w+b", buffering=0)
        self._memory: mmap.mmap | None = None
        self._layout: _Layout | None = None

    def write(self, step: int, tensors: list[torch.Tensor], layout: _Layout, structure: memoryview) -> float:
        spent, end = 0.0, layout.end + len(layout.pickled) + len(structure)
        if self._memory is not None:
            self._memory[: len(BROKEN)] = BROKEN
        if self._memory is None or end > len(self._memory):
            spent = self._make_room(end + len(structure) + 2**16)
        if self._layout is not layout:
            self._views, self._layout = layout.views(self._memory), layout
        with torch.no_grad():
            if layout.is_on_cpu:
                torch._foreach_copy_(self._views, tensors)
            else:
                for view, tensor in zip(self._views, tensors, strict=True):
                    view.copy_(tensor)
                # Each copy waits for its own stream; that nothing is under way on another is asked for here.
                for device in {tensor.device for tensor in tensors if tensor.is_cuda}:
                    torch.cuda.synchronize(device)
        memory, middle = self._memory, layout.end + len(layout.pickled)
        memory[layout.end : middle] = layout.pickled
        memory[middle:end] = structure
        memory[len(WHOLE) : len(WHOLE) + HEAD.size] = HEAD.pack(step, layout.end, end - layout.end, 0, boot())
        memory[: len(WHOLE)] = WHOLE
        return spent

    def _make_room(self, size: int) -> float:
        start = time.monotonic()
        self._memory = self._layout = self._views = None
        # For real: writing to a page that the disk has no room for would end the process.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._file.fileno(), 0, size)
        else:
            for place in range(0, size, ROOM):
                os.pwrite(self._file.fileno(), bytes(min(ROOM, size - place)), place)
        self._memory = mmap.mmap(self._file.fileno(), size)
        torch.frombuffer(self._memory, dtype=torch.uint8).zero_()
        return time.monotonic() - start

    def keep(self) -> None:
        os.fsync(self._file.fileno())
        # Not before the rest is there.
        self._memory[KEPT_AT : KEPT_AT + 8] = struct.pack("<Q", 1)
        os.fsync(self._file.fileno())

    def forget(self) -> None:
        self._memory[: len(BROKEN)] = BROKEN
        os.fsync(self._file.fileno())


def boot() -> bytes:
    """Another after each start of the machine; where the system does not say, its name."""
    global _boot
    if _boot is None:
        try:
            _boot = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()[:36]
        except OSError:
            _boot = platform.node().encode()[:36]
    return _boot


_boot: bytes | None = None


def views(memory: mmap.mmap, places: list[tuple[str, tuple, int]]) -> list[torch.Tensor]:
    """The tensors that lie in `memory`, without a copy."""
    whole, found = torch.frombuffer(memory, dtype=torch.uint8), []
    for name, shape, start in places:
        dtype = getattr(torch, name)
        size = torch.Size(shape).numel() * dtype.itemsize
        found.append(whole[start : start + size].view(dtype).view(shape))
    return found


class _Pickler(pickle.Pickler):
    """Keeps the tensors out of the structure that they lie in, and in a list."""

    def __init__(self, file):
        super().__init__(file, protocol=4)
        self.tensors: list[torch.Tensor] = []

    def reducer_override(self, value):
        if not isinstance(value, torch.Tensor):
            return NotImplemented
        self.tensors.append(value)
        return _tensor, (len(self.tensors) - 1,)


def _tensor(number: int):
    raise NotImplementedError("It stands for a tensor in a file.")


class _Unpickler(pickle.Unpickler):
    """Runs nothing but what a state may name."""

    def __init__(self, file, tensors: list[torch.Tensor]):
        super().__init__(file)
        self._tensors = tensors

    def find_class(self, module: str, name: str):
        if (module, name) == (__name__, _tensor.__name__):
            return lambda number: self._tensors[number].clone()
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if is_dtype or name in NAMED.get(module.partition(".")[0], ()):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def read_head(path: str | os.PathLike) -> tuple | None:
    """What is said of a state that is whole and may be believed: step, place and length of its structure."""
    try:
        with open(path, "rb") as file:
            first, size = file.read(len(WHOLE) + HEAD.size), os.fstat(file.fileno()).st_size
    except OSError:
        return None
    if len(first) < len(WHOLE) + HEAD.size or not first.startswith(WHOLE):
        return None
    step, start, length, is_kept, machine = HEAD.unpack(first[len(WHOLE) :])
    if start + length > size or not (is_kept or machine.rstrip(b"\0") == boot()):
        return None
    return step, start, length


def saved_states(folder: str | os.PathLike) -> list[tuple[int, str]]:
    """Step and path of each whole state in `folder`."""
    names = os.listdir(folder) if os.path.isdir(folder) else ()
    paths = [os.path.join(folder, name) for name in names if name.startswith(NAME)]
    return [(head[0], path) for path in paths if (head := read_head(path)) is not None]


def unpack(path: str | os.PathLike) -> str | None:
    """Makes the `checkpoint-<step>` of a state, beside it; None if there is none, or it was written meanwhile."""
    path = Path(path)
    head = read_head(path)
    if head is None:
        return None
    whole = path.with_name(f"checkpoint-{head[0]}")
    # Machines that share the folder may have processes of one number.
    half = path.with_name(f"half-{head[0]}-{uuid.uuid4().hex}")
    try:
        with open(path, "rb") as file:
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        structure = io.BytesIO(memory[head[1] : head[1] + head[2]])
        states = _Unpickler(structure, views(memory, _Unpickler(structure, []).load())).load()
        half.mkdir(exist_ok=True)
        for name, state in states.items():
            _write(half / name, state)
        if read_head(path) != head:
            return None
        if whole.is_dir() and not is_readable(whole):
            # A kill has left it half removed, or a machine that fell half written.
            shutil.rmtree(whole, ignore_errors=True)
        _sync_folder(half)
        os.replace(half, whole)
        _sync_folder(path.parent)
        return str(whole)
    except Exception as error:
        # Somebody else has done the same; what is there already is as good.
        if is_readable(whole):
            return str(whole)
        error = told_plainly(error, path.parent)
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise error from None
        if read_head(path) == head:
            warnings.warn(f"`{path}` cannot be read ({error}); an older checkpoint is taken.", stacklevel=2)
        return None
    finally:
        shutil.rmtree(half, ignore_errors=True)


def is_readable(checkpoint: str | os.PathLike) -> bool:
    """Whether a checkpoint has its last file, and none is cut off. What is in them is not read."""
    try:
        for file in Path(checkpoint).iterdir():
            if file.suffix == ".safetensors":
                with safe_open(file, "pt"):
                    pass
            elif file.suffix in (".pt", ".pth") and not zipfile.is_zipfile(file):
                return False
        return (Path(checkpoint) / TRAINER_STATE_NAME).is_file()
    except (OSError, SafetensorError):
        return False


def _sync_folder(folder: Path) -> None:
    """Waits until the names in a folder are on the disk, where the system can."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _write(path: Path, state) -> None:
    if path.suffix == ".safetensors":
        # Weights that are tied have one tensor; safetensors wants one for each name.
        seen, parts = set(), {}
        for name, tensor in state.items():
            parts[name] = tensor.clone() if id(tensor) in seen else tensor
            seen.add(id(tensor))
        save_file(parts, path, metadata={"format": "pt"})
    elif path.name == TRAINER_STATE_NAME:
        TrainerState(**state).save_to_json(str(path))
    else:
        with _no_checksums():
            torch.save(state, path)
    with open(path, "rb") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def _no_checksums():
    """They are half of the work of `torch.save`, and nothing reads a file that was not renamed whole."""
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        yield
    finally:
        torch.serialization.set_crc32_options(before)
