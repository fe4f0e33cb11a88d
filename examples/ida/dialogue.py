# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
IDA's Tables 5 and 6: replies in a dialogue, learned from films first and from a help channel then. Scores are BLEU-2
and the similarity of word vectors; some replies are shown, and those to prompts of our own are kept beside the scores.
What has run already is not run again, and the model that all transfers of a seed begin with is trained once.

    python examples/ida/dialogue.py --vectors glove.6B.50d.txt --device cuda --graphs --jobs 8
    python examples/ida/dialogue.py --lines f+v f+m+v --seeds 5 --device cuda
"""

import argparse
import copy
import gzip
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # run_lines.py

from run_lines import keep_runs, read_runs, run_in_processes

SOURCE, TARGET = "cornell_dialog", "ubuntu_irc"
BEGINNINGS = ["rnn s", "rnn t", "rnn+mem s", "rnn+mem t", "s+t"]
TRANSFERS = ["f", "f+m", "f+v", "f+m+v", "f+h", "f+h+v", "ewc", "progressive"]
LINES = BEGINNINGS + TRANSFERS
# What all transfers go on from.
BEGINNING = "rnn+mem s"
# Fields of a job that only matter after the first domain.
LATER = ("slots", "test_rows", "fisher_weight", "fisher_samples", "num_beams")
SAMPLES = 8
# Ours, so that their replies can be shown to all (Table 6).
PROMPTS = [
    "how are you today?",
    "where did you put the money?",
    "i love you.",
    "how do i install a new driver?",
    "my screen stays black after the update.",
    "which file do i have to edit?",
]
Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Job:
    """
    Args:
        line: of the table: what the model is, and what it is trained on, or how it takes in the second domain.
        epochs: of each domain; the best by the loss of its dev rows is kept.
        rows, test_rows: the most of each domain to train on, and to reply to.
    """

    line: str
    seed: int
    epochs: int = 5
    learning_rate: float = 1e-3
    batch_size: int = 64
    hidden_size: int = 1024
    embedding_size: int = 50
    first_slots: int = 500
    slots: int = 500
    max_words: int = 20000
    max_length: int = 20
    rows: int | None = None
    test_rows: int | None = 1000
    fisher_weight: float = 1000.0
    fisher_samples: int = 200
    num_beams: int = 1
    vectors: str | None = None


def load(folder: str, name: str, split: str) -> Pairs:
    with gzip.open(Path(folder) / "data" / name / f"{split}.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [(row["text"], row["text_pair"]) for row in rows]


def batches(
    pairs: Pairs, tokenizer, job: Job, device: str, seed: int | None = None, padding: bool | str = True
) -> Iterator[dict]:
    import torch

    order = torch.arange(len(pairs))
    if seed is not None:
        order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(seed))
    limit = {"truncation": True, "max_length": job.max_length, "padding": padding, "return_tensors": "pt"}
    for chosen in order.split(job.batch_size):
        asked = tokenizer([pairs[row][0] for row in chosen], **limit)
        said = tokenizer([pairs[row][1] for row in chosen], **limit)
        labels = said["input_ids"].masked_fill(said["attention_mask"] == 0, -100)
        yield {
            "input_ids": asked["input_ids"].to(device),
            "attention_mask": asked["attention_mask"].to(device),
            "labels": labels.to(device),
        }


def dev_loss(model, pairs: Pairs, tokenizer, job: Job, device: str) -> float:
    """The mean over all words."""
    import torch

    model.eval()
    total = words = 0
    with torch.no_grad():
        for batch in batches(pairs, tokenizer, job, device):
            count = int((batch["labels"] != -100).sum())
            total, words = total + float(model(**batch).loss) * count, words + count
    return total / words


def train(
    model, parts: dict[str, Pairs], tokenizer, job: Job, device: str, penalty=None, turn: int = 0, graphs: bool = False
) -> int:
    """All parameters that are not frozen, on the rows of one domain or of two. `graphs`: steps as CUDA graphs."""
    import torch

    from hf_memaug.kernels.cuda_graphs import GraphedFunction

    learners = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(learners, lr=job.learning_rate)

    def both_passes(batch: dict) -> list:
        for parameter in learners:
            parameter.grad = None
        loss = model(**batch).loss
        if penalty is not None:
            loss = loss + penalty(model)
        loss.backward()
        return [parameter.grad for parameter in learners]

    gradients_of = GraphedFunction(both_passes) if graphs else both_passes
    # A graph is of one length; padding changes nothing.
    padding = "max_length" if graphs else True
    best, kept, steps = None, None, 0
    for epoch in range(job.epochs):
        model.train()
        seed = 1000 * job.seed + 100 * turn + epoch
        for batch in batches(parts["train"], tokenizer, job, device, seed, padding):
            for parameter, gradient in zip(learners, gradients_of(batch), strict=True):
                parameter.grad = gradient
            torch.nn.utils.clip_grad_norm_(learners, 1.0)
            optimizer.step()
            steps += 1
        found = dev_loss(model, parts["dev"], tokenizer, job, device)
        if best is None or found < best:
            best, kept = found, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)
    return steps


def consolidation(model, pairs: Pairs, tokenizer, job: Job, device: str):
    """(λ/2) Σ F (θ − θ*)², with F from the replies that were given (the empirical Fisher), one row at a time."""
    import torch

    from hf_memaug.training.continual.consolidation import diagonal_fisher

    chosen = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(job.seed))[: job.fisher_samples]
    rows = (batch for row in chosen for batch in batches([pairs[row]], tokenizer, job, device))
    inputs = ({**one, "decoder_input_ids": model.prepare_decoder_input_ids_from_labels(one["labels"])} for one in rows)
    fisher = diagonal_fisher(model, inputs, len(chosen), "empirical", job.seed)
    start = {name: value.detach().clone() for name, value in model.named_parameters()}

    def penalty(now):
        terms = [(fisher[name] * (value - start[name]).square()).sum() for name, value in now.named_parameters()]
        return job.fisher_weight / 2 * torch.stack(terms).sum()

    return penalty


def columns(model):
    """The model as it is, frozen, and a second one that begins as its copy and reads it; that one replies."""
    from hf_memaug.training.continual.progressive import ProgressiveColumns

    whole = ProgressiveColumns.around(model)
    whole.add_column("previous")
    return whole.freeze_earlier()


def replies(model, pairs: Pairs, tokenizer, job: Job, device: str) -> list[list[str]]:
    """Words, and the token of unknown words where a model says one."""
    model.eval()
    silent = {tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id}
    found = []
    for batch in batches(pairs, tokenizer, job, device):
        del batch["labels"]
        said = model.generate(**batch, max_new_tokens=job.max_length, num_beams=job.num_beams, do_sample=False)
        found += [tokenizer.convert_ids_to_tokens([i for i in one if i not in silent]) for one in said.tolist()]
    return found


def begin(job: Job, parts: dict[str, Pairs], device: str, graphs: bool = False) -> tuple:
    """A fresh model that has learned the first domain of its line, its tokenizer, and the steps that it took."""
    import torch

    from hf_memaug import MemoryRNNConfig, MemoryRNNForConditionalGeneration
    from hf_memaug.data import read_word_vectors, word_tokenizer

    texts = [text for pair in parts["train"] for text in pair]
    tokenizer = word_tokenizer(texts, max_words=job.max_words, end_of_text=True)
    torch.manual_seed(job.seed)
    model = MemoryRNNForConditionalGeneration(
        MemoryRNNConfig(
            vocab_size=len(tokenizer),
            cell="gru",
            hidden_size=job.hidden_size,
            embedding_size=job.embedding_size,
            memory_slots=[] if job.line in ("rnn s", "rnn t") else [job.first_slots],
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            decoder_start_token_id=tokenizer.bos_token_id,
        )
    ).to(device)
    if job.vectors:
        table = model.get_input_embeddings().weight
        with torch.no_grad():
            for word, vector in read_word_vectors(job.vectors, tokenizer.get_vocab()).items():
                table[tokenizer.get_vocab()[word]] = vector.to(table)
    return model, tokenizer, train(model, parts, tokenizer, job, device, graphs=graphs)


def beginning_of(job: Job) -> Job:
    """What a transfer goes on from; fields that the first domain does not depend on are at their default."""
    return replace(job, line=BEGINNING, **{name: getattr(Job(BEGINNING, 0), name) for name in LATER})


def place_of(job: Job, folder: str, kept: Path) -> Path:
    """Where the beginning of a job is, or will be: another for other rows."""
    known = {**asdict(beginning_of(job)), "folder": str(Path(folder).resolve())}
    return kept / hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]


def begin_once(job: Job, parts: dict[str, Pairs], device: str, graphs: bool, place: Path) -> tuple:
    """As `begin`, from a folder that a job with the same beginning has left; else it is made."""
    from transformers import AutoTokenizer

    from hf_memaug import MemoryRNNForConditionalGeneration

    if not place.is_dir():
        model, tokenizer, steps = begin(beginning_of(job), parts, device, graphs)
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as made:
            made = Path(made) / "whole"
            model.save_pretrained(made)
            tokenizer.save_pretrained(made)
            (made / "steps.json").write_text(json.dumps(steps))
            try:
                os.replace(made, place)
            except OSError:
                if not place.is_dir():  # else another process was faster
                    raise
    model = MemoryRNNForConditionalGeneration.from_pretrained(place).to(device)
    return model, AutoTokenizer.from_pretrained(place), json.loads((place / "steps.json").read_text())


def run(job: Job, folder: str, device: str = "cpu", graphs: bool = False, kept: Path | None = None) -> dict:
    import torch

    from hf_memaug.configuration.words import parted
    from hf_memaug.data import new_words, read_word_vectors
    from hf_memaug.evaluation import bleu, embedding_similarity

    clock = time.perf_counter()
    data = {name: {split: load(folder, name, split) for split in ("train", "dev", "test")} for name in (SOURCE, TARGET)}
    for parts in data.values():
        parts["train"], parts["test"] = parts["train"][: job.rows], parts["test"][: job.test_rows]
    both = {split: data[SOURCE][split] + data[TARGET][split] for split in ("train", "dev")}
    first = {"rnn t": data[TARGET], "rnn+mem t": data[TARGET], "s+t": both}.get(job.line, data[SOURCE])
    if kept is not None and job.line in (BEGINNING, *TRANSFERS):
        model, tokenizer, steps = begin_once(job, first, device, graphs, place_of(job, folder, kept))
    else:
        model, tokenizer, steps = begin(job, first, device, graphs)
    if job.line in TRANSFERS:
        penalty = None
        if job.line == "ewc":
            penalty = consolidation(model, first["train"], tokenizer, job, device)
        grows = job.line.split("+")
        torch.manual_seed(job.seed + 10_000)
        if job.line == "progressive":
            model = columns(model)
        if "m" in grows:
            model.grow_memory(job.slots)
        if "h" in grows:
            model.grow_hidden(model.units_for(job.slots))
        if "v" in grows:
            later = [text for pair in data[TARGET]["train"] for text in pair]
            words = new_words(tokenizer, later, max_words=job.max_words)
            vectors = read_word_vectors(job.vectors, words) if job.vectors else None
            model.grow_vocabulary(words, vectors, tokenizer=tokenizer)
        steps += train(model, data[TARGET], tokenizer, job, device, penalty, turn=1, graphs=graphs)
    scores, samples = {}, {}
    for name, parts in data.items():
        whole = replies(model, parts["test"], tokenizer, job, device)
        said = [[word for word in words if word != tokenizer.unk_token] for words in whole]
        wanted = [parted(tokenizer.backend_tokenizer, reply) for _, reply in parts["test"]]
        # An unknown word is left out, or one of the reply's words that is never right.
        scores[name] = {"bleu2": 100 * bleu(said, wanted), "bleu2_with_unknown": 100 * bleu(whole, wanted)}
        if job.vectors:
            known = read_word_vectors(job.vectors, {word for words in (*said, *wanted) for word in words})
            scores[name]["similarity"] = 100 * embedding_similarity(said, wanted, known)
        samples[name] = [
            {"text": text, "given": given, "reply": " ".join(words)}
            for (text, given), words in zip(parts["test"][:SAMPLES], whole, strict=False)
        ]
    ours = replies(model, [(prompt, "") for prompt in PROMPTS], tokenizer, job, device)
    seconds = round(time.perf_counter() - clock, 1)
    found = {"job": asdict(job), "scores": scores, "samples": samples, "steps": steps, "seconds": seconds}
    to_prompts = {prompt: " ".join(words) for prompt, words in zip(PROMPTS, ours, strict=True)}
    return {**found, "to_prompts": to_prompts, "graphs": graphs}


def work(job: Job, folder: str, device: str, graphs: bool, kept: Path, threads: int) -> dict:
    import torch
    from transformers import logging

    torch.set_num_threads(threads)
    if device.startswith("cuda:"):
        # Graphs are recorded on the current one.
        torch.cuda.set_device(device)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return run(job, folder, device, graphs, kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", nargs="+", choices=LINES, default=LINES, help="default: all")
    parser.add_argument("--seeds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--folder", default="../shared", help="with the sets in `data/` (default: %(default)s)")
    parser.add_argument("--vectors", help="a text file of word vectors, such as GloVe's: for words, and for similarity")
    own = asdict(Job("", 0))
    for name in list(own)[2:-1]:
        kind = float if isinstance(own[name], float) else int
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=own[name], help="default: %(default)s")
    parser.add_argument("--device", default="cpu", help="default: %(default)s")
    parser.add_argument("--graphs", action="store_true", help="steps as CUDA graphs (on a GPU)")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time (default: %(default)s)")
    parser.add_argument("--record", type=Path, default="runs/ida/dialogue.jsonl", help="default: %(default)s")
    parser.add_argument("--output", type=Path, default="docs/results/ida", help="default: %(default)s")
    options = parser.parse_args()
    if options.graphs and options.device == "cpu":
        parser.error("--graphs is for a GPU: give --device cuda, or leave it out")
    settings = {name: getattr(options, name) for name in list(own)[2:]}
    jobs = [Job(line, seed, **settings) for seed in range(options.seeds) for line in options.lines]
    from hf_memaug.reporting.results import write_results

    done = {Job(**result["job"]): result for result in read_runs(options.record)}
    todo = [job for job in jobs if job not in done]
    print(f"{len(jobs) - len(todo)} of {len(jobs)} models are in {options.record} already.", flush=True)
    # Who goes on waits for whom they go on from: both waves have as many at a time as they can.
    kept = options.record.parent / "dialogue_beginnings"
    threads = max(1, (os.cpu_count() or 1) // options.jobs)
    arguments = (options.folder, options.device, options.graphs, kept, threads)
    goes_on = [job for job in todo if job.line in TRANSFERS]
    needed = [replace(job, line=BEGINNING) for job in goes_on if not place_of(job, options.folder, kept).is_dir()]
    first = list(dict.fromkeys([*needed, *(job for job in todo if job.line not in TRANSFERS)]))
    for wave in (first, goes_on):
        for job, result, progress in (
            run_in_processes(wave, work, arguments, options.jobs, options.record) if wave else ()
        ):
            done[job] = result
            said = ", ".join(f"{name} {scores['bleu2']:.2f}" for name, scores in result["scores"].items())
            print(f"{progress} {job.line}, seed {job.seed}: {said} ({result['seconds']:.0f} s)", flush=True)
    rows = [
        {"method": job.line, "data": "dialogue", "target": name, "backbone": "memory-rnn", "seed": job.seed}
        | {"metric": metric, "value": round(value, 4)}
        for job in jobs
        for name, scores in done[job]["scores"].items()
        for metric, value in scores.items()
    ]
    path = options.output / "dialogue.json"
    command = "python " + " ".join(sys.argv)
    made_with = [done[job]["made_with"] for job in jobs]
    write_results(path, table="dialogue", command=command, rows=rows, made_with=made_with)
    # What people wrote is not ours to publish: replies stay in the record.
    ours = [{name: value for name, value in done[job].items() if name != "samples"} for job in jobs]
    keep_runs(options.output / "dialogue_runs.jsonl", ours)
    for name, samples in done[jobs[-1]]["samples"].items():
        print(f"\n{jobs[-1].line} on {name}")
        for one in samples:
            print(f"  > {one['text']}\n    given: {one['given']}\n    said:  {one['reply']}")
    print(f"\nwrote {path} ({len(rows)} rows); python -m hf_memaug.reporting.results {path} --baseline f")


if __name__ == "__main__":
    main()
