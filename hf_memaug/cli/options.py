# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The options of each command beside those of the trainers. A recipe has the same names as keys."""

from dataclasses import dataclass, field
from typing import Any

# Options that say where and how a command runs, and nothing of what comes out of it: they are not kept in recipe.yaml.
NOT_KEPT = ("recipe", "output", "jobs", "quiet", "json", "dry_run")


def option(default: Any, help: str, metavar: str | None = None, hidden: bool = False) -> Any:
    """A field of a command: what is said of it stands in `--help`, or where that is full in `hf-memaug options`."""
    return field(default=default, metadata={"help": help, "metavar": metavar, "hidden": hidden})


@dataclass(kw_only=True)
class RowsOptions:
    """Where the rows come from."""

    data: str | None = option(None, "CSV, JSON lines (.gz), Parquet, images domain/class/*, hub name", "PATH")
    text: str = option("text", "column with the text", "COLUMN")
    text_pair: str | None = option(None, "column with a second text", "COLUMN")
    label: str = option("label", "column with the class", "COLUMN")
    domain: str = option("domain", "column that says where a row comes from, or none", "COLUMN")
    split: str | None = option(None, "split to read, where the data has several", "NAME")
    broken: str = option(
        "refuse", "of all commands: rows that are empty or cannot be read: refuse, skip", "WHAT", hidden=True
    )
    max_length: int | None = option(None, "longest text in tokens", "N")


@dataclass(kw_only=True)
class LabelsOptions:
    """The names of classes, of commands that train."""

    labels: list[str] | None = option(
        None, "of all that train: names of the classes, in the order of their ids", "A,B", hidden=True
    )


@dataclass(kw_only=True)
class TagOptions:
    """Columns of rows with tags."""

    tokens: str = option("tokens", "of tags: column with the list of words", "COLUMN", hidden=True)
    tags: str = option("ner_tags", "of tags: column with the list of their IOB2 tags", "COLUMN", hidden=True)


@dataclass(kw_only=True)
class MoleculeOptions:
    """The column of molecules."""

    smiles: str | None = option(None, "column with a molecule's SMILES, instead of text", "COLUMN", hidden=True)


@dataclass(kw_only=True)
class ColumnOptions(TagOptions, MoleculeOptions):
    """Columns of rows that are no texts with a class: `hf-memaug options columns` lists them."""

    question: str = option("question", "of questions: column with the question", "COLUMN", hidden=True)
    context: str = option("context", "of questions: column with the text that holds the answer", "COLUMN", hidden=True)
    answers: str = option(
        "answers",
        "of questions: column with {text: [...], answer_start: [...]}, as SQuAD has it",
        "COLUMN",
        hidden=True,
    )


# What `--task` may be, beside the classes that rows have a label for.
TASK_HELP = "classes (default), tags, questions, replies: `hf-memaug options columns`"


@dataclass(kw_only=True)
class DataOptions(RowsOptions, LabelsOptions, ColumnOptions):
    """Rows to train on, and others to select and test on."""

    task: str = option("classes", TASK_HELP, "NAME")
    dev_split: str | None = option(None, "split to select on, beside --test-split; with --target none", "NAME")
    test_split: str | None = option(None, "split of other rows, to select and test on", "NAME")
    on_overlap: str = option("raise", "training rows in the test: raise, drop, drop_dev, ignore", "WHAT")


@dataclass(kw_only=True)
class ProtocolOptions(DataOptions):
    """What is trained, and how it is chosen."""

    backbone: str = option("small", "folder or hub name, untrained: small, or of graphs gin-3x64", "NAME")
    general: str | None = option(None, "the general encoder of G-MAP", "NAME")
    metric: str | None = option(None, "to select by: f1 (default), accuracy, mcc, auroc, exact_match", "NAME")
    dev_fraction: float = option(0.2, "part of the source rows to select on", "X")
    evaluations: int = option(5, "scores on dev rows in a run, of which the best counts", "N")
    keep: str = option("best", "weights: best (of a method and target), all or none", "WHAT")


@dataclass(kw_only=True)
class RunOptions:
    """Where and how a command runs."""

    processes: int = option(1, "processes of each job, by torchrun", "N")
    jobs: int = option(1, "jobs at once", "N")
    recipe: str | None = option(None, "YAML file with any of these options", "FILE")
    output: str | None = option(None, "run folder (default: runs/COMMAND)", "FOLDER")
    dry_run: bool = option(False, "list the jobs and train nothing")
    quiet: bool = option(False, "say nothing but errors")
    json: bool = option(False, "say it as JSON lines")


@dataclass(kw_only=True)
class _OneMethod:
    method: str = option("erm", "erm, +memory, mil, hma, gmoe, gmap, an algorithm, hma+coral, ...", "NAME")
    target: str | None = option(None, "domain to leave out and test on (default: none)", "DOMAIN")
    seed: int = option(0, "of everything that is drawn", "N")


@dataclass(kw_only=True)
class TrainOptions(RunOptions, ProtocolOptions, _OneMethod):
    """Of `train`. Fields of the last base stand first in `--help`."""


@dataclass(kw_only=True)
class _SeveralMethods:
    methods: list[str] = option(("erm", "+memory"), "such as erm,coral,+memory,mil,hma,gmoe,hma+coral", "A,B")
    target: list[str] = option(("all",), "domains to leave out in turn, or all, or none", "A,B")
    seeds: list[str] = option(("3",), "how many, or which: 5 or 0,3,7", "N")
    baseline: str | None = option(None, "method to test against (default: the first)", "NAME")
    own_steps: bool = option(False, "do not give others the steps that MIL's meta-training takes")


@dataclass(kw_only=True)
class CompareOptions(RunOptions, ProtocolOptions, _SeveralMethods):
    """Of `compare`."""


@dataclass(kw_only=True)
class _Sweep:
    methods: list[str] = option(("erm",), "such as erm,coral,+memory,hma,gmoe,gmoe+coral", "A,B")
    backbone: str = option("small", "folder or hub name, untrained: small, or of graphs gin-3x64", "NAME")
    target: list[str] = option(("all",), "domains to leave out in turn, or all", "A,B")
    trials: int = option(3, "splits and seeds", "N")
    draws: int = option(1, "of hyper-parameters; the first is the defaults", "N")
    steps: int = option(5000, "of each run", "N")
    checkpoint_every: int = option(300, "steps between two scores", "N")
    selection: str = option("training", "training, leave_one_out or oracle", "NAME")
    holdout: float = option(0.2, "part of each domain that validates", "X")
    batch_size: int | None = option(None, "rows of each domain in a step (default: 32, or drawn)", "N")
    dropout: float | None = option(None, "of the model (default: 0, or drawn)", "X")


@dataclass(kw_only=True)
class SweepOptions(RowsOptions, LabelsOptions, MoleculeOptions, _Sweep):
    """Of `sweep`, whose jobs have processes of their own."""

    on_overlap: str = option("raise", "training rows that are test rows too: raise, drop, ignore", "WHAT")
    jobs: int = option(1, "jobs at once", "N")
    recipe: str | None = option(None, "YAML file with any of these options", "FILE")
    output: str | None = option(None, "run folder (default: runs/sweep)", "FOLDER")
    dry_run: bool = option(False, "list the jobs and train nothing")
    quiet: bool = option(False, "say nothing but errors")
    json: bool = option(False, "say it as JSON lines")


@dataclass(kw_only=True)
class _Continual:
    strategies: list[str] = option(("f",), "f, f+m, f+v, ewc, progressive, replay, lwf, in_domain, ...", "A,B")
    method: str = option("erm", "model: erm (plain), +memory, hma, gmap, memory-rnn", "NAME")
    backbone: str = option("small", "as in train, or a model trained before: its matrix goes on", "NAME")
    general: str | None = option(None, "the general encoder of G-MAP", "NAME")
    order: list[str] | None = option(None, "the domains in the order of their training", "A,B")
    seeds: list[str] = option(("1",), "how many, or which: 5 or 0,3,7", "N")
    metric: str | None = option(None, "of the matrix: accuracy (of tags, questions f1), mcc, auroc, ...", "NAME")
    holdout: float = option(0.2, "part of each domain that is scored", "X")
    dev_fraction: float = option(0.0, "of that, the part that chooses each domain's best epoch", "X")
    vectors: str | None = option(None, "word vectors of memory-rnn, such as GloVe's text files", "FILE")
    keep: str = option("all", "weights: all or none", "WHAT")


@dataclass(kw_only=True)
class ContinualOptions(RunOptions, RowsOptions, LabelsOptions, ColumnOptions, _Continual):
    """Of `continual`."""

    test_split: str | None = option(None, "split of other rows, to score", "NAME")
    on_overlap: str = option("raise", "training rows that are scored too: raise, drop, ignore", "WHAT")
    task: str = option("classes", TASK_HELP, "NAME")


@dataclass(kw_only=True)
class PretrainOptions:
    corpus: list[str] | None = option(None, "text or JSON lines, also .gz (default: generated reviews)", "A,B")
    field: str = option("text", "column of JSON lines with the text", "COLUMN")
    also: list[str] | None = option(None, "other corpora to measure the loss on, such as general text", "A,B")
    backbone: str = option("small", "RoBERTa or BERT; small is made on the spot, untrained", "NAME")
    general: str | None = option(None, "G-MAP in pre-training: the frozen encoder that is read", "NAME")
    length: int = option(128, "tokens of a row", "N")
    only_head: bool = option(False, "keep the encoder, and train its masked-LM head: for one that comes without")
    stream: bool = option(False, "read the corpus as it goes, in its order, for --max-steps: for a large one")
    held_out: int = option(20, "every N-th text is held out to measure the loss; 0: none", "N")
    masked: float = option(0.15, "share of the words that is masked", "X")
    evaluate_rows: int = option(500, "rows of each loss, at most", "N")
    seed: int = option(0, "of everything that is drawn", "N")
    recipe: str | None = option(None, "YAML file with any of these options", "FILE")
    output: str | None = option(None, "where the encoder goes (default: runs/pretrain)", "FOLDER")
    quiet: bool = option(False, "say nothing but errors")
    json: bool = option(False, "say it as JSON lines")


@dataclass(kw_only=True)
class ReadingOptions:
    """How a checkpoint reads its rows, where it has two ways."""

    inference: str | None = option(None, "HMA's rows: batch, they read each other, or independent", "HOW")


@dataclass(kw_only=True)
class EvaluateOptions(ReadingOptions, RowsOptions, ColumnOptions):
    batch_size: int = option(64, "rows at a time", "N")
    recipe: str | None = option(None, "YAML file with any of these options", "FILE")
    output: str | None = option(None, "file for the scores, as JSON", "FILE")
    quiet: bool = option(False, "say nothing but errors")
    json: bool = option(False, "say it as JSON")


@dataclass(kw_only=True)
class PredictOptions(ReadingOptions, ColumnOptions):
    data: str | None = option(None, "CSV, JSON lines, Parquet, lines of text (.txt, -), folder of images", "PATH")
    text: str = option("text", "column with the text", "COLUMN")
    text_pair: str | None = option(None, "column with a second text", "COLUMN")
    smiles: str = option("smiles", "column with a molecule's SMILES, where the model reads these", "COLUMN")
    top_k: int = option(1, "labels of each row, best first; 0: all", "N")
    max_new_tokens: int = option(32, "words of a reply, at most", "N")
    batch_size: int = option(32, "rows at a time", "N")
    output: str | None = option(None, "file for the JSON lines (default: stdout)", "FILE")


@dataclass(kw_only=True)
class DemoOptions:
    output: str | None = option(None, "run folder (default: runs/demo)", "FOLDER")
    seeds: list[str] = option(("2",), "how many, or which: 5 or 0,3,7", "N")
    jobs: int = option(1, "jobs at once", "N")
    quiet: bool = option(False, "say nothing but errors")
    json: bool = option(False, "say it as JSON lines")
