# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""One line of one table: a model that is trained on domain after domain, and scored on all of them after each."""

import contextlib
import io
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

MEMORY_RNN = "memory-rnn"
# Lines that train on one domain alone, by its place in the order.
ALONE = {"s": 0, "t": -1}


@dataclass(frozen=True)
class Job:
    """
    Args:
        data: a folder in `data/`.
        domains: all that are scored, in the order of their training.
        strategy: of `ContinualTrainer`; or `s` and `t`, which train on the first or the last domain alone.
        architecture: `rnn`, `rnn+mem`, or `encoder+mem` where the backbone is a transformer.
        backbone: `memory-rnn`, or a folder with a BERT or RoBERTa in `weights/`, which gets a key-value memory.
        epochs: passes over the rows of each domain; the best of them by dev rows of that domain is kept.
        memory_learning_rate: of a memory on a pretrained encoder. None: as all else.
        first_slots, slots: of the memory before the first domain, and what each later one adds (or as many parameters
            in hidden units).
        hidden_size: also that of the classifier's layer and, where no `vectors` say otherwise, of word vectors.
        key_range: of fresh keys of a memory RNN (`memory_key_initializer_range`). None: the default of the model.
        vectors: a text file of word vectors, such as GloVe's, for the first words and for those that are added.
        max_words: the most words of the first vocabulary. None: all that the training texts have.
        max_length: the longest input in tokens, both texts together.
        rows: the most training rows of a domain. None: all.
        options: of the strategy, as JSON, beside those that this job's fields say.
    """

    data: str
    domains: tuple[str, ...]
    strategy: str
    architecture: str
    backbone: str
    seed: int
    epochs: float = 10
    learning_rate: float = 3e-4
    memory_learning_rate: float | None = None
    batch_size: int = 32
    first_slots: int = 300
    slots: int = 500
    hidden_size: int = 300
    vectors: str | None = None
    max_words: int | None = None
    max_length: int = 128
    rows: int | None = None
    options: str = ""
    key_range: float | None = None

    def __post_init__(self):
        # JSON has lists, which cannot be looked up.
        object.__setattr__(self, "domains", tuple(self.domains))


@cache
def _rows(folder: str, data: str, split: str):
    from hf_memaug import load_domains

    return load_domains(Path(folder) / "data" / data, split=split).by_domain()


def load_parts(job: Job, folder: str) -> dict[str, dict]:
    """`train`, `dev` and `test`, by domain. Where there are no dev files, half of the test rows are dev rows."""
    from hf_memaug.data import split_domains

    place = Path(folder) / "data" / job.data
    if any(place.glob("*.dev.*")):
        parts = {split: _rows(folder, job.data, split) for split in ("train", "dev", "test")}
    else:
        test = _rows(folder, job.data, "test")
        halves = {name: split_domains(test[name], holdout=0.5, seed=job.seed)[name] for name in job.domains}
        parts = {
            "train": _rows(folder, job.data, "train"),
            "dev": {name: half.inside for name, half in halves.items()},
            "test": {name: half.out for name, half in halves.items()},
        }
    parts = {split: {name: _by_length(rows[name]) for name in job.domains} for split, rows in parts.items()}
    if job.rows is not None:
        # The same rows for every strategy of a seed.
        parts["train"] = {
            name: rows.shuffle(job.seed).select(range(min(job.rows, len(rows))))
            for name, rows in parts["train"].items()
        }
    return parts


def _by_length(rows):
    """Rows of a length together: a network that reads word by word takes as long as the longest row of a batch."""
    texts = [rows[name] for name in ("text", "text_pair") if name in rows.column_names]
    longest = [max(len(text.split()) for text in row) for row in zip(*texts, strict=True)]
    return rows.select(sorted(range(len(longest)), key=longest.__getitem__))


def turns(job: Job) -> list[tuple[list[str], str]]:
    """The runs of a job, each the domains that it trains on in their order, and a strategy of the library."""
    if job.strategy in ALONE:
        return [([job.domains[ALONE[job.strategy]]], "f")]
    if job.strategy == "in_domain":
        # With words of its own, as one who has this domain alone would train it.
        return [([name], "f") for name in job.domains]
    return [(list(job.domains), job.strategy)]


def make_model(job: Job, folder: str, first: list, label_names: list[str]):
    """A model and its tokenizer. `first` are the rows whose words are known to begin with."""
    labels = {"id2label": dict(enumerate(label_names)), "label2id": {n: i for i, n in enumerate(label_names)}}
    if job.backbone != MEMORY_RNN:
        return _encoder_with_memory(job, Path(folder) / "weights" / job.backbone, labels)
    import torch

    from hf_memaug import MemoryRNNConfig, MemoryRNNForSequenceClassification
    from hf_memaug.data.words import read_word_vectors, word_tokenizer

    columns = [name for name in ("text", "text_pair") if name in first[0].column_names]
    texts = (text for rows in first for name in columns for text in rows[name])
    tokenizer = word_tokenizer(texts, max_words=job.max_words)
    words = tokenizer.get_vocab()
    vectors = read_word_vectors(job.vectors, words) if job.vectors else {}
    width = len(next(iter(vectors.values()))) if vectors else job.hidden_size
    config = MemoryRNNConfig(
        vocab_size=len(tokenizer),
        hidden_size=job.hidden_size,
        embedding_size=width,
        classifier_size=job.hidden_size,
        memory_slots=[] if job.architecture == "rnn" else [job.first_slots],
        memory_key_initializer_range=job.key_range,
        sentence_pairs="text_pair" in columns,
        **labels,
    )
    model = MemoryRNNForSequenceClassification(config)
    with torch.no_grad():
        for word, vector in vectors.items():
            model.get_input_embeddings().weight[words[word]] = vector
    return model, tokenizer


def _encoder_with_memory(job: Job, place: Path, labels: dict):
    import torch
    from transformers import AutoConfig, AutoTokenizer

    import hf_memaug

    kind = {"bert": "Bert", "roberta": "Roberta"}[AutoConfig.from_pretrained(place).model_type]
    model_class = getattr(hf_memaug, f"{kind}WithKVMemoryForSequenceClassification")
    model = model_class.from_backbone(place, memory_slots=job.first_slots, dtype=torch.float32, **labels)
    return model, AutoTokenizer.from_pretrained(place)


def make_arguments(job: Job, strategy: str, plan: list[str], output: str, device: str):
    from hf_memaug import ContinualTrainingArguments
    from hf_memaug.training.continual import STRATEGIES

    said = {"slots": job.slots, "word_vectors": job.vectors}
    # Each strategy refuses what is not its own.
    own = {name: value for name, value in said.items() if name in STRATEGIES[strategy].options}
    pretrained = job.backbone != MEMORY_RNN
    return ContinualTrainingArguments(
        output_dir=output,
        strategy=strategy,
        strategy_kwargs={**own, **json.loads(job.options or "{}")},
        domains=plan,
        max_length=job.max_length,
        num_train_epochs=job.epochs,
        learning_rate=job.learning_rate,
        memory_learning_rate=job.memory_learning_rate,
        lr_scheduler_type="linear" if pretrained else "constant",
        warmup_steps=0.1 if pretrained else 0,
        per_device_train_batch_size=job.batch_size,
        per_device_eval_batch_size=128,
        balanced_batches=False,
        train_sampling_strategy="group_by_length",
        eval_strategy="epoch",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        report_to=[],
        use_cpu=device == "cpu",
        bf16=pretrained and device != "cpu",
        dataloader_pin_memory=device != "cpu",
        seed=job.seed,
    )


def train(job: Job, parts: dict[str, dict], plan: list[str], strategy: str, folder: str, device: str, output: str):
    """A trainer whose model has seen the domains of `plan`."""
    from transformers import set_seed

    from hf_memaug import ContinualTrainer
    from hf_memaug.training.selection import BestInMemory

    set_seed(job.seed)
    known = plan if strategy == "multi_task" else plan[:1]
    first = [parts["train"][name] for name in known]
    model, tokenizer = make_model(job, folder, first, first[0].label_names)
    trainer = ContinualTrainer(
        model,
        make_arguments(job, strategy, plan, output, device),
        train_dataset={name: parts["train"][name] for name in plan},
        eval_dataset={name: parts["dev"][name] for name in plan},
        # All are scored; none but those of `plan` are trained on.
        test_dataset=parts["test"],
        processing_class=tokenizer,
        callbacks=[BestInMemory("eval_accuracy")],
    )
    trainer.train()
    return trainer


def right_answers(trainer, rows) -> str:
    """For each row a 1 where the model is right, and a 0 where it is not."""
    import torch

    found = trainer.predict(rows)
    guesses = torch.as_tensor(found.predictions).argmax(dim=-1).tolist()
    return "".join("1" if guess == label else "0" for guess, label in zip(guesses, rows["label"], strict=True))


def run(job: Job, folder: str, device: str = "cpu") -> dict:
    """
    Trains one line of a table.

    Returns:
        `matrix`, R in points by what was trained on last and by domain; `figures`, in points; `final`, the score of
        each domain at the end, and `right`, which of its test rows were then answered well; `dev`, the score of each
        domain's dev rows at the end, to choose settings by; `stages`.
    """
    begin = time.perf_counter()
    parts = load_parts(job, folder)
    matrix, stages, right, dev, figures = {}, [], {}, {}, {}
    for plan, strategy in turns(job):
        quiet = io.StringIO()
        with (
            tempfile.TemporaryDirectory() as output,
            contextlib.redirect_stdout(quiet),
            contextlib.redirect_stderr(quiet),
        ):
            trainer = train(job, parts, plan, strategy, folder, device, output)
            for stage in trainer.record.stages:
                scores = {name: 100 * stage["scores"][name] for name in job.domains}
                matrix[" + ".join(stage["domains"])] = scores
                stages.append({name: stage[name] for name in ("domains", "rows", "steps", "growth")})
            figures = {n: None if v is None else 100 * v for n, v in trainer.figures().items()}
            mine = plan if job.strategy == "in_domain" else job.domains
            right |= {name: right_answers(trainer, parts["test"][name]) for name in mine}
            answers = {name: right_answers(trainer, parts["dev"][name]) for name in mine}
            dev |= {name: 100 * one.count("1") / len(one) for name, one in answers.items()}
    last = list(matrix)[-1]
    final = {name: matrix[name if job.strategy == "in_domain" else last][name] for name in job.domains}
    if job.strategy in ALONE or job.strategy == "in_domain":
        figures = {**dict.fromkeys(figures), "acc": sum(final.values()) / len(final)}
    return {
        "job": asdict(job),
        "matrix": matrix,
        "final": final,
        "figures": figures,
        "right": right,
        "dev": dev,
        "stages": stages,
        "seconds": round(time.perf_counter() - begin, 1),
    }
