# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
The own options of each command. A recipe has the same names as keys. `--help` lists the fields of the command's class
first, then those of its bases, from the last to the first.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

# These say where and how a command runs. They do not change its results, so recipe.yaml leaves them out.
NOT_IN_RECIPE = ("recipe", "output", "jobs", "quiet", "json", "dry_run")

Broken = Literal["refuse", "skip"]
Inference = Literal["independent", "batch"]
Keep = Literal["best", "all", "none"]
OnOverlap = Literal["raise", "drop", "ignore", "drop_dev"]
Selection = Literal["training", "leave_one_out", "oracle"]


def option(default: Any, help: str, metavar: str | None = None, hidden: bool = False) -> Any:
    """A field of a command. `hf-memaug options columns` lists the hidden ones."""
    return field(default=default, metadata={"help": help, "metavar": metavar, "hidden": hidden})


def column(default: str | None, help: str) -> Any:
    return option(default, help, "COLUMN", hidden=True)


@dataclass(kw_only=True)
class NoOptions:
    """For commands that take arguments only."""


@dataclass(kw_only=True)
class OutputOptions:
    recipe: str | None = option(None, "YAML file with any of these options", "FILE")
    output: str | None = option(None, "run folder (default: runs/COMMAND)", "FOLDER")
    quiet: bool = option(False, "print errors only")
    json: bool = option(False, "print JSON lines")


@dataclass(kw_only=True)
class JobsOptions(OutputOptions):
    jobs: int = option(1, "number of jobs at a time", "N")
    dry_run: bool = option(False, "list the jobs without training")


@dataclass(kw_only=True)
class RowsOptions:
    data: str | None = option(None, "CSV, JSON lines (.gz), Parquet, images domain/class/*, hub name", "PATH")
    text: str = option("text", "column with the text", "COLUMN")
    text_pair: str | None = option(None, "column with a second text", "COLUMN")
    label: str = option("label", "column with the class", "COLUMN")
    domain: str = option("domain", "column with the domain, or none", "COLUMN")
    split: str | None = option(None, "split to read", "NAME")
    max_length: int | None = option(None, "maximum length of a text in tokens", "N")
    broken: Broken = option("refuse", "empty or unreadable rows: refuse or skip", "WHAT", hidden=True)


@dataclass(kw_only=True)
class LabelsOptions:
    labels: list[str] | None = option(None, "class names in the order of their ids", "A,B", hidden=True)


@dataclass(kw_only=True)
class MoleculeOptions:
    smiles: str | None = column(None, "molecules: column with the SMILES, instead of a text")


@dataclass(kw_only=True)
class ColumnOptions(MoleculeOptions):
    tokens: str = column("tokens", "tags: column with the list of words")
    tags: str = column("ner_tags", "tags: column with the list of IOB2 tags")
    question: str = column("question", "questions: column with the question")
    context: str = column("context", "questions: column with the text that contains the answer")
    answers: str = column("answers", "questions: column with {text: [...], answer_start: [...]} as in SQuAD")


@dataclass(kw_only=True)
class DataOptions(RowsOptions, LabelsOptions, ColumnOptions):
    task: str = option("classes", "classes (default), labels, numbers, tags, questions, replies", "NAME")
    test_split: str | None = option(None, "split to select and test on", "NAME")
    on_overlap: OnOverlap = option("raise", "training rows in the test: raise, drop, drop_dev, ignore", "WHAT")


@dataclass(kw_only=True)
class ModelOptions:
    backbone: str = option("small", "folder or hub name; untrained: small, of graphs gin-3x64", "NAME")
    general: str | None = option(None, "the general encoder of G-MAP", "NAME")
    metric: str | None = option(None, "metric (default: of the task): f1, accuracy, mcc, auroc, exact_match", "NAME")


@dataclass(kw_only=True)
class ProtocolOptions(ModelOptions):
    dev_split: str | None = option(None, "split to select on; needs --test-split and --target none", "NAME")
    dev_fraction: float = option(0.2, "fraction of the source rows to select on", "X")
    evaluations: int = option(5, "evaluations in a run; the best one counts", "N")
    keep: Keep = option("best", "checkpoints to keep: best of a method and target (default), all, none", "WHAT")
    processes: int = option(1, "processes of each job, started by torchrun", "N")
    lora: bool = option(False, "train LoRA adapters, merged at the end; --lora-rank: 16")
    lora_rank: int | None = option(None, "--lora with adapters of this rank", "N", hidden=True)


@dataclass(kw_only=True)
class TrainOptions(JobsOptions, ProtocolOptions, DataOptions):
    method: str = option("erm", "erm, +memory, mil, hma, gmoe, gmap, an algorithm, hma+coral, ...", "NAME")
    target: str | None = option(None, "domain to leave out and test on (default: none)", "DOMAIN")
    seed: int = option(0, "random seed", "N")


@dataclass(kw_only=True)
class CompareOptions(JobsOptions, ProtocolOptions, DataOptions):
    methods: list[str] = option(("erm", "+memory"), "such as erm,coral,+memory,mil,hma,gmoe,hma+coral", "A,B")
    target: list[str] = option(("all",), "domains to leave out in turn, all, or none", "A,B")
    seeds: list[str] = option(("3",), "number of seeds, or the seeds: 5 or 0,3,7", "N")
    shots: list[int] | None = option(None, "labelled rows of the target for write and finetune: 32,128", "N")
    ensemble_seeds: int | None = option(None, "also score the mean answer of so many seeds", "N", hidden=True)
    baseline: str | None = option(None, "method to test against (default: the first)", "NAME")
    own_steps: bool = option(False, "do not give other methods the steps of MIL's meta-training", hidden=True)


@dataclass(kw_only=True)
class SweepOptions(JobsOptions, RowsOptions, LabelsOptions, MoleculeOptions):
    methods: list[str] = option(("erm",), "such as erm,coral,+memory,hma,gmoe,gmoe+coral", "A,B")
    backbone: str = option("small", "folder or hub name; untrained: small, of graphs gin-3x64", "NAME")
    target: list[str] = option(("all",), "domains to leave out in turn, or all", "A,B")
    trials: int = option(3, "number of splits and seeds", "N")
    draws: int = option(1, "draws of hyper-parameters; the first one is the defaults", "N")
    steps: int = option(5000, "steps of each run", "N")
    checkpoint_every: int = option(300, "steps between two evaluations", "N")
    selection: Selection = option("training", "training, leave_one_out or oracle", "NAME")
    holdout: float = option(0.2, "fraction of each domain to validate on", "X")
    batch_size: int | None = option(None, "rows of each domain in a step (default: 32, or drawn)", "N")
    dropout: float | None = option(None, "dropout of the model (default: 0, or drawn)", "X")
    on_overlap: OnOverlap = option("raise", "training rows in the test: raise, drop, ignore", "WHAT")


@dataclass(kw_only=True)
class ContinualOptions(JobsOptions, DataOptions, ModelOptions):
    strategies: list[str] = option(("f",), "f, f+m, f+v, ewc, progressive, replay, lwf, write, ...", "A,B")
    method: str = option("erm", "model: erm (plain), +memory, hma, gmap, memory-rnn", "NAME")
    order: list[str] | None = option(None, "domains in the order of training", "A,B")
    seeds: list[str] = option(("1",), "number of seeds, or the seeds: 5 or 0,3,7", "N")
    holdout: float = option(0.2, "fraction of each domain to test on", "X")
    dev_fraction: float = option(0.0, "fraction of these that selects the best epoch", "X")
    vectors: str | None = option(None, "word vectors of memory-rnn, such as GloVe's text files", "FILE")
    keep: Keep = option("all", "checkpoints to keep: all or none", "WHAT")
    processes: int = option(1, "processes of each job, started by torchrun", "N")
    on_overlap: OnOverlap = option("raise", "training rows in the test: raise, drop, ignore", "WHAT")


@dataclass(kw_only=True)
class PretrainOptions(OutputOptions):
    corpus: list[str] | None = option(None, "text or JSON lines, also .gz (default: generated reviews)", "A,B")
    field: str = option("text", "field of JSON lines with the text", "NAME")
    also: list[str] | None = option(None, "more corpora to measure the loss on, such as general text", "A,B")
    backbone: str = option("small", "RoBERTa or BERT, or small: a new untrained encoder", "NAME")
    general: str | None = option(None, "pre-train G-MAP with this frozen general encoder", "NAME")
    length: int = option(128, "tokens of a row", "N")
    only_head: bool = option(False, "train only the masked-LM head, of an encoder without one")
    stream: bool = option(False, "read a large corpus during training; needs --max-steps")
    held_out: int = option(20, "hold out every N-th text to measure the loss; 0: none", "N")
    masked: float = option(0.15, "fraction of the words to mask", "X")
    evaluate_rows: int = option(500, "maximum number of rows to measure a loss on", "N")
    seed: int = option(0, "random seed", "N")


@dataclass(kw_only=True)
class ReadingOptions:
    inference: Inference | None = option(None, "HMA: independent, or batch (rows read each other)", "HOW")


@dataclass(kw_only=True)
class EvaluateOptions(OutputOptions, RowsOptions, ColumnOptions, ReadingOptions):
    output: str | None = option(None, "JSON file for the scores", "FILE")
    batch_size: int = option(64, "rows in a batch", "N")


@dataclass(kw_only=True)
class PredictOptions(ReadingOptions, ColumnOptions):
    data: str | None = option(None, "CSV, JSON lines, Parquet, lines of text (.txt, -), folder of images", "PATH")
    text: str = option("text", "column with the text", "COLUMN")
    text_pair: str | None = option(None, "column with a second text", "COLUMN")
    smiles: str = option("smiles", "column with the SMILES of a molecule", "COLUMN")
    top_k: int = option(1, "labels of each row, best first; 0: all", "N")
    max_new_tokens: int = option(32, "maximum number of words in a reply", "N")
    batch_size: int = option(32, "rows in a batch", "N")
    output: str | None = option(None, "file for the predictions, .csv or JSON lines (default: stdout)", "FILE")


@dataclass(kw_only=True)
class DemoOptions:
    output: str | None = option(None, "run folder (default: runs/demo)", "FOLDER")
    seeds: list[str] = option(("2",), "number of seeds, or the seeds: 5 or 0,3,7", "N")
    jobs: int = option(1, "number of jobs at a time", "N")
    quiet: bool = option(False, "print errors only")
    json: bool = option(False, "print JSON lines")


@dataclass(kw_only=True)
class WriteOptions:
    data: str | None = option(None, "labelled rows: CSV, JSON lines (.gz), Parquet, or images class/*", "PATH")
    domain: str | None = option(None, "name of the domain, for erase", "NAME")
    guard: str | None = option(None, "labelled rows of the old domains, which protect them", "PATH")
    text: str = option("text", "column with the text", "COLUMN")
    text_pair: str | None = option(None, "column with a second text", "COLUMN")
    label: str = option("label", "column with the class", "COLUMN")
    max_length: int | None = option(None, "maximum length of a text in tokens", "N")
    append: bool = option(False, "add rows to a domain that is written already")
    new_labels: bool = option(False, "accept labels that the classifier does not know")
    keep_text: bool = option(False, "store the texts, for explanations")
    general: str | None = option(None, "a pretrained encoder whose features are keys too", "NAME")
    output: str | None = option(None, "folder (default: CHECKPOINT, or CHECKPOINT-written)", "FOLDER")


@dataclass(kw_only=True)
class EraseOptions:
    domain: str | None = option(None, "name of the domain", "NAME")
    rows: list[str] | None = option(None, "ids of rows", "A,B")
    output: str | None = option(None, "folder (default: CHECKPOINT)", "FOLDER")


@dataclass(kw_only=True)
class MemoryOptions:
    json: bool = option(False, "print JSON")
    audit: bool = option(False, "list rows that may be mislabelled")


@dataclass(kw_only=True)
class PushOptions:
    private: bool = option(False, "make the repository private")
    with_code: bool = option(False, "include the code, so that readers need not install hf_memaug")
    space: bool = option(False, "publish a Space with the app for this checkpoint")
    license: str | None = option(None, "licence in the card's metadata, such as apache-2.0", "NAME")
    message: str | None = option(None, "commit message", "TEXT")


@dataclass(kw_only=True)
class PullOptions:
    revision: str | None = option(None, "branch, tag or commit", "NAME")


@dataclass(kw_only=True)
class ReportOptions:
    output: str | None = option(None, "file (default: report.html in the run folder)", "FILE")
    baseline: str | None = option(None, "method to test against (default: erm, or the first)", "NAME")


@dataclass(kw_only=True)
class AppOptions:
    port: int | None = option(None, "port of the server", "N")
    share: bool = option(False, "create a public link")
    baseline: str | None = option(None, "plain checkpoint to show beside it", "NAME")


@dataclass(kw_only=True)
class EnvOptions:
    json: bool = option(False, "print JSON")
