# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
One run of each kind, killed in the middle and resumed, as a script: it trains in forks of itself, which share what
takes long to import. Prints the checkpoints of each and whether the weights are equal.
"""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import torch
import torch.distributed
from tiny_backbones import QUIET, SIZES, tiny_tokenizer
from transformers import BertConfig, BertForMaskedLM, BertForQuestionAnswering, TrainerCallback, TrainingArguments

from hf_memaug import BilevelTrainer, ContinualTrainer, DomainTrainer, DomainTrainingArguments
from hf_memaug.data import DomainDataset
from hf_memaug.data.corpus import PackedTexts, WholeWordMasking
from hf_memaug.data.spans import tokenize_questions
from hf_memaug.training import MaskedLMTrainer, last_complete_checkpoint
from hf_memaug.training.question_trainer import QuestionTrainer
from training.continual_runs import continual_trainer
from training.domain_runs import domain_trainer
from training.episodes import make_trainer
from training.test_replies import run as replies_trainer
from training.test_tag_trainer import tag_trainer

SAVES = {"save_strategy": "steps", "save_steps": 2}


class KillAt(TrainerCallback):
    """Ends every process of a run in a given folder, at a given step, half a step after a checkpoint was saved."""

    def __init__(self, folder: str, step: int):
        self.folder, self.step = folder, step

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        if self.folder in Path(args.output_dir).name and state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def questions(folder: Path, **kwargs) -> QuestionTrainer:
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer("bert")
    row = {"question": "was it good", "context": "the film was bad and the book was good"}
    row["answers"] = {"text": ["bad"], "answer_start": [13]}
    rows = tokenize_questions([row] * 16, tokenizer, 32, 8)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    data = DomainDataset({**columns, "domain": ["north", "south"] * 8})
    arguments = {**QUIET, "max_steps": 8, "per_device_train_batch_size": 4, **SAVES}
    arguments = DomainTrainingArguments(str(folder), **arguments)
    model = BertForQuestionAnswering(BertConfig(**{**SIZES, "vocab_size": len(tokenizer)}))
    return QuestionTrainer(model, arguments, train_dataset=data, processing_class=tokenizer, **kwargs)


def masked_lm(folder: Path, **kwargs) -> MaskedLMTrainer:
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer("bert")
    rows = list(PackedTexts(["the film was good and the book was bad"] * 40, tokenizer, 16))
    arguments = {**QUIET, "max_steps": 8, "per_device_train_batch_size": 2, "remove_unused_columns": False, **SAVES}
    arguments = TrainingArguments(str(folder), **arguments)
    model = BertForMaskedLM(BertConfig(**{**SIZES, "vocab_size": len(tokenizer)}))
    return MaskedLMTrainer(model, arguments, train_dataset=rows, data_collator=WholeWordMasking(tokenizer), **kwargs)


def domain(folder: Path, **kwargs) -> DomainTrainer:
    config = {"hidden_dropout_prob": 0.1}
    return domain_trainer("kv", folder, algorithm="dann", config=config, max_steps=8, **SAVES, **kwargs)


def bilevel(folder: Path, **kwargs) -> BilevelTrainer:
    return make_trainer(folder, inner_steps=2, **SAVES, **kwargs)


def continual(folder: Path, **kwargs) -> ContinualTrainer:
    return continual_trainer("ewc", folder, **SAVES, **kwargs)


# How each is made, the folder of the phase or stage in which it is killed, the step, the processes.
RUNS = {
    "domain, two processes": (domain, "", 5, 2),
    "bilevel, exact": (lambda folder, **kwargs: bilevel(folder, hypergradient="exact", **kwargs), "meta_train", 5, 1),
    "bilevel, meta-test": (bilevel, "bilevel", 5, 1),
    "continual": (continual, "films", 3, 1),
    "tags": (lambda folder, **kwargs: tag_trainer("domain", folder, max_steps=8, **SAVES, **kwargs), "", 5, 1),
    "masked language model": (masked_lm, "", 5, 1),
    "questions": (questions, "", 5, 1),
    "replies": (lambda folder, **kwargs: replies_trainer("f+m", folder, **SAVES, **kwargs), "help", 3, 1),
}


def started(processes: int, make, folder: Path, callbacks: list, resume: bool = False) -> list[int]:
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
                trainer = make(folder, callbacks=callbacks)
                trainer.train(resume_from_checkpoint=resume)
                if trainer.is_world_process_zero():
                    torch.save(trainer.accelerator.unwrap_model(trainer.model).state_dict(), folder / "weights.pt")
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        numbers.append(number)
    return numbers


def ended(numbers: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) for number in numbers]


def run(place: Path, make, phase: str, step: int, processes: int) -> dict:
    whole, killed = place / "whole" / "bilevel", place / "killed" / "bilevel"
    assert ended(started(processes, make, whole, [])) == [0] * processes
    codes = ended(started(processes, make, killed, [KillAt(phase, step)]))
    checkpoints = [last_complete_checkpoint(path.parent) for path in killed.rglob("checkpoint-*")]
    assert ended(started(processes, make, killed, [], resume=True)) == [0] * processes
    one, other = (torch.load(path / "weights.pt", weights_only=True) for path in (whole, killed))
    same = one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    return {"codes": codes, "checkpoints": sorted(set(map(str, checkpoints))), "same": bool(same)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    begun, found = time.monotonic(), {}
    for number, (name, of) in enumerate(RUNS.items()):
        if len(sys.argv) < 3 or name in sys.argv[2:]:
            found[name] = run(Path(sys.argv[1]) / str(number), *of)
            print(name, f"{time.monotonic() - begun:.1f} s", file=sys.stderr)
    print(json.dumps(found))
