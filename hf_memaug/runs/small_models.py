# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Model, processor and rows of a job. Give the sweep a function of your own, with `--build`, for anything else."""

from pathlib import Path
from typing import Any

from hf_memaug.data import (
    DomainDataset,
    check_images,
    generated_digits,
    generated_reviews,
    load_domains,
    mnist_domains,
)
from hf_memaug.data.hub_names import is_hub_name, load_from_hub
from hf_memaug.training.sweep.plan import Job

GENERATED = {
    "generated_reviews": generated_reviews,
    "generated_digits": generated_digits,
    "coloured_digits": lambda: generated_digits("coloured"),
}
# With the folder of MNIST behind a colon.
MNIST = {"rotated_mnist": "rotated", "coloured_mnist": "coloured"}
# A model made on the spot, of random weights, for machines without a hub.
SMALL = "small"
GMOE = "gmoe:"


def load_rows(data: str, **columns) -> DomainDataset:
    """
    `"generated_reviews"`, `"generated_digits"`, `"coloured_digits"`; `"rotated_mnist:FOLDER"` or
    `"coloured_mnist:FOLDER"`; a dataset of the hub; or a file or folder that `load_domains` reads, with its arguments.
    """
    if data in GENERATED:
        return GENERATED[data]()
    kind, colon, folder = data.partition(":")
    if colon and kind in MNIST:
        return mnist_domains(folder, MNIST[kind])
    if not Path(data).exists() and is_hub_name(data):
        return load_domains(load_from_hub(data, columns.get("split")), **columns)
    return load_domains(data, **columns)


def whole_images(rows: DomainDataset, broken: str) -> DomainDataset:
    """Rows whose images can all be decoded: `broken` ones are refused, or skipped."""
    return check_images(rows, broken) if "image" in rows.column_names else rows


def check_checkpoint(checkpoint: str, reads_images: bool = False) -> None:
    """Refuses a checkpoint that cannot be found, or does not fit what is asked of it, before every job fails for it."""
    from transformers import AutoConfig

    from hf_memaug.configuration.configuration_vit_gmoe import ViTGMoEConfig

    name = checkpoint.removeprefix(GMOE)
    if name == SMALL:
        return
    try:
        config = AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"`models`: no configuration was found for {name!r}. Give a folder or a repository of the hub, {SMALL!r}, "
            f"or one of these behind {GMOE!r}. ({str(error).splitlines()[0]})"
        ) from None
    if checkpoint.startswith(GMOE):
        try:
            ViTGMoEConfig.from_vit_config(config)
        except ValueError as error:
            raise ValueError(f"`models`: {checkpoint!r}. {error}") from None
    if reads_images:
        _image_processor(name)


def _image_processor(name: str):
    from transformers import AutoImageProcessor

    try:
        return AutoImageProcessor.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"`models`: {name!r} has no image processor that can be read. Save that of the model it was made from "
            f"there: `AutoImageProcessor.from_pretrained(...).save_pretrained({name!r})`."
        ) from error


def rows_of(job: Job) -> DomainDataset:
    """All rows of a job; without images that cannot be decoded, where that was asked for."""
    rows = load_rows(job.data, **job.columns)
    # Else the sweep has looked at them already.
    return whole_images(rows, "skip") if job.broken_images == "skip" else rows


def build(job: Job) -> tuple[Any, Any, DomainDataset]:
    """
    (model, tokenizer or image processor, rows of all domains). `job.checkpoint` is a folder or a repository of the hub;
    `"small"`, a small model of random weights; or one of these behind `"gmoe:"`, a vision transformer whose
    feed-forward networks become experts (`ViTGMoEForImageClassification.from_vit`).
    """
    rows = rows_of(job)
    if "image" in rows.column_names:
        return *_image_model(job, rows), rows
    if job.checkpoint.startswith(GMOE):
        raise ValueError(f"`checkpoint` is {job.checkpoint!r}, but the rows of {job.data!r} have no `image`.")
    return *_text_model(job, rows), rows


def _text_model(job: Job, rows: DomainDataset):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    if job.checkpoint == SMALL:
        return _small_text_model(job, rows)
    model = AutoModelForSequenceClassification.from_pretrained(
        job.checkpoint, dtype="float32", ignore_mismatched_sizes=True, **_labels(rows), **_dropout(job)
    )
    return model, AutoTokenizer.from_pretrained(job.checkpoint)


def _image_model(job: Job, rows: DomainDataset):
    from transformers import AutoModelForImageClassification

    from hf_memaug.modeling.modeling_vit_gmoe import ViTGMoEForImageClassification

    has_experts = job.checkpoint.startswith(GMOE)
    checkpoint = job.checkpoint.removeprefix(GMOE)
    if checkpoint == SMALL:
        vit, processor = _small_image_model(job, rows)
        return (ViTGMoEForImageClassification.from_vit(vit) if has_experts else vit), processor
    processor = _image_processor(checkpoint)
    if has_experts:
        model = ViTGMoEForImageClassification.from_vit(
            checkpoint, dtype="float32", **_labels(rows), **_dropout(job, checkpoint)
        )
    else:
        model = AutoModelForImageClassification.from_pretrained(
            checkpoint, dtype="float32", ignore_mismatched_sizes=True, **_labels(rows), **_dropout(job, checkpoint)
        )
        refresh_head(model)
    return model, processor


def refresh_head(model) -> None:
    """A linear head of the same number of labels would be kept, and models with experts have a fresh one."""
    import torch

    head = getattr(model, "classifier", None)
    if isinstance(head, torch.nn.Linear):
        torch.nn.init.normal_(head.weight, std=getattr(model.config, "initializer_range", 0.02))
        torch.nn.init.zeros_(head.bias)


def _labels(rows: DomainDataset) -> dict[str, Any]:
    names = rows.label_names
    if not names:
        return {}
    return {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}


def _dropout(job: Job, checkpoint: str | None = None) -> dict[str, float]:
    """Dropout before the classifier where the model has it; else in the whole of it."""
    if "dropout" not in job.hparams:
        return {}
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(checkpoint or job.checkpoint)
    for name in ("classifier_dropout", "hidden_dropout_prob"):
        if hasattr(config, name):
            return {name: job.hparams["dropout"]}
    raise ValueError(
        f"`hparams` has `dropout`, but the configuration of {job.checkpoint!r} has no place for it. Build the model "
        "with a function of your own, `build`."
    )


def small_model(rows: DomainDataset, seed: int = 0):
    """(model, tokenizer or image processor) for rows to train on: a small model of random weights, by `seed` alone."""
    import torch

    job = Job(dataset="", data="", model=SMALL, checkpoint=SMALL, algorithm="erm", test_envs=())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return (_small_image_model if "image" in rows.column_names else _small_text_model)(job, rows)


def _small_text_model(job: Job, rows: DomainDataset):
    """Two layers, and the words of the domains trained on."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    normalizer, splitter = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    columns = [name for name in ("text", "text_pair", "tokens") if name in rows.column_names]
    found = [row[name] for row in rows if row["domain"] not in job.test_envs for name in columns]
    texts = [one if isinstance(one, str) else " ".join(one) for one in found]
    # In alphabetical order: a trainer would number words that are equally frequent differently at each call.
    words = sorted({w for text in texts for w, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))})
    vocabulary = {word: number for number, word in enumerate([*special, *(w for w in words if w not in special)])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    processor = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=128,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **dict(zip(names, special, strict=True)),
    )
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=128,
        classifier_dropout=job.hparams.get("dropout"),
        **_labels(rows),
    )
    return BertForSequenceClassification(config), processor


def _small_image_model(job: Job, rows: DomainDataset):
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    model = small_vit(32, hidden_dropout_prob=job.hparams.get("dropout", 0.0), **_labels(rows))
    return model, ViTImageProcessorPil(size={"height": 32, "width": 32})


def small_vit(size: int, **fields):
    """Four layers of random weights, which read an image of that height and width in 16 patches."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        image_size=size,
        patch_size=size // 4,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=128,
        **fields,
    )
    return ViTForImageClassification(config)
