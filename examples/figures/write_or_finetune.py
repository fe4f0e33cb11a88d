# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Adapt a trained classifier to a new domain with few labelled rows: write them to a memory, or train on them.

A classifier is trained on all domains but one (ERM). Then each way gets the same rows of the domain left out, and is
scored on other rows of it, and on held-out rows of the old domains. Half of the held-out rows are guard rows.

    python examples/figures/write_or_finetune.py --data data/vader4 --backbone MiniLM --bf16 true --noise 0.1,0.2,0.4
    python examples/figures/write_or_finetune.py --data data/pacs --backbone vit --bf16 true --max_steps 700 \\
        --per_device_train_batch_size 96
"""

import copy
import json
import random
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import (
    AutoImageProcessor,
    AutoModel,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    HfArgumentParser,
    set_seed,
)
from transformers.utils import logging

from hf_memaug import (
    DomainDataset,
    DomainTrainer,
    DomainTrainingArguments,
    WritableMemoryForImageClassification,
    WritableMemoryForSequenceClassification,
    load_domains,
)
from hf_memaug.data.images import decode_image
from hf_memaug.data.splits import without_overlap
from hf_memaug.evaluation.scores import accuracy, macro_f1
from hf_memaug.modeling.modeling_writable_rows import name_of, row_id

WAYS = (
    "write",
    "write+general",
    "finetune",
    "finetune+guard",
    "head",
    "lora",
    "knn",
    "tip-adapter",
    "setfit",
    "t3a",
    "retrain",
)


@dataclass
class ScriptArguments:
    data: str = field(metadata={"help": "Folder of text files or of images, with domains."})
    backbone: str = field(metadata={"help": "A pretrained encoder."})
    targets: str = field(default="", metadata={"help": "Domains to leave out, with commas (all if unset)."})
    seeds: str = field(default="0,1,2,3,4", metadata={"help": "Of the classifier, and of the rows that are drawn."})
    shots: str = field(default="8,32,128,512", metadata={"help": "How many rows; all of them with `all`."})
    ways: str = field(default="write,finetune", metadata={"help": f"Some of {', '.join(WAYS)}."})
    late_shots: str = field(default="512", metadata={"help": "The shots of `head`, `lora`, `t3a` and `retrain`."})
    noise: str = field(default="", metadata={"help": "Shares of labels that are made wrong, at `--noise_shots`."})
    noise_shots: int = field(default=128, metadata={"help": "How many rows get wrong labels among them."})
    max_length: int = field(default=128, metadata={"help": "Longest text in tokens."})
    results: str = field(default="rows.jsonl", metadata={"help": "A line for each score is added to this file."})


class Data:
    """The rows of a folder, as a trainer takes them."""

    def __init__(self, script: ScriptArguments):
        self.script, folder = script, script.data
        self.is_image = not any(Path(folder).glob("*train.*"))
        if self.is_image:
            train = load_domains(folder)
            self.processor = AutoImageProcessor.from_pretrained(script.backbone)
            halves = [self._half(train.domain(name)) for name in train.domains]
            self.train, self.test = (DomainDataset.concatenate([half[side] for half in halves]) for side in (0, 1))
        else:
            self.processor = AutoTokenizer.from_pretrained(script.backbone)
            train, self.test = (load_domains(folder, split=split) for split in ("train", "test"))
            self.train = without_overlap(train, self.test, "drop", ("train", "test"))
        self.domains = self.train.domains
        # Batches of rows that are read again and again.
        self.kept: dict[int, tuple] = {}

    @staticmethod
    def _half(rows):
        order = random.Random(0).sample(range(len(rows)), len(rows))
        return rows.select(order[: len(rows) // 2]), rows.select(order[len(rows) // 2 :])

    def prepared(self, rows):
        if not self.is_image:
            return rows.tokenize(self.processor, max_length=self.script.max_length)
        images = [self.processor(decode_image(one), return_tensors="np")["pixel_values"][0] for one in rows["image"]]
        return DomainDataset({"pixel_values": images, "labels": rows["label"], "domain": rows["domain"]})

    def collate(self, rows: list[dict]) -> dict[str, torch.Tensor]:
        labels = torch.tensor([row["labels"] for row in rows])
        if self.is_image:
            return {
                "pixel_values": torch.stack([torch.from_numpy(row["pixel_values"]) for row in rows]),
                "labels": labels,
            }
        names = ("input_ids", "attention_mask", "token_type_ids")
        found = [{name: row[name] for name in names if name in row} for row in rows]
        return {**self.processor.pad(found, return_tensors="pt"), "labels": labels}

    def batches(self, rows) -> list[dict[str, torch.Tensor]]:
        if id(rows) not in self.kept:
            starts = range(0, len(rows), 128)
            found = [self.collate([rows[place] for place in range(one, min(one + 128, len(rows)))]) for one in starts]
            self.kept[id(rows)] = rows, found
        return self.kept[id(rows)][1]

    def classifier(self):
        auto_class = AutoModelForImageClassification if self.is_image else AutoModelForSequenceClassification
        names = dict(enumerate(self.train.label_names))
        labels = {"id2label": names, "label2id": {name: label for label, name in names.items()}}
        return auto_class.from_pretrained(
            self.script.backbone, dtype=torch.float32, ignore_mismatched_sizes=True, **labels
        )


@torch.no_grad()
def outputs_of(model, rows, data: Data, hidden_states: bool = False) -> list:
    """The logits of rows, or the mean of the last hidden states."""
    model.eval()
    found = []
    for batch in data.batches(rows):
        batch = {name: value.to(model.device) for name, value in batch.items() if name != "labels"}
        if hidden_states:
            states = model(**batch).last_hidden_state
            mask = batch.get("attention_mask", torch.ones_like(states[..., 0]))[..., None]
            found.append((states * mask).sum(dim=1) / mask.sum(dim=1))
        else:
            found.append(model(**batch).logits.float())
    return torch.cat(found)


def score(answers: torch.Tensor, rows, data: Data) -> float:
    labels, predictions = rows["labels"], answers.argmax(dim=-1).tolist()
    known = list(range(answers.shape[-1]))
    return 100 * (accuracy(labels, predictions) if data.is_image else macro_f1(labels, predictions, labels=known))


def train(model, rows, data: Data, args: DomainTrainingArguments, **changed):
    """Trains for a fixed number of steps. Nothing is selected."""
    fields = {name: getattr(args, name) for name in ("output_dir", "bf16", "learning_rate", "seed", "max_steps")}
    fields |= {"num_train_epochs": args.num_train_epochs, "report_to": [], "disable_tqdm": True, "save_strategy": "no"}
    fields |= {"per_device_train_batch_size": args.per_device_train_batch_size, "logging_steps": 10_000, **changed}
    trainer = DomainTrainer(model, DomainTrainingArguments(**fields), data.collate, train_dataset=rows)
    trainer.train()
    return trainer.model


def t3a(model, data: Data, kept: int = 100):
    """Prototypes of confident answers to the rows that are scored, without their labels (Iwasawa and Matsuo, 2021)."""
    head = getattr(model.classifier, "out_proj", model.classifier)

    def answer(rows):
        found: list = []
        hook = head.register_forward_pre_hook(lambda module, given: found.append(given[0].detach().float()))
        logits = outputs_of(model, rows, data)
        hook.remove()
        supports, answers = torch.cat([head.weight, torch.cat(found)]), torch.cat([head(head.weight), logits])
        entropy = torch.distributions.Categorical(logits=answers).entropy()
        prototypes = []
        for label in range(len(head.weight)):
            own = (answers.argmax(dim=-1) == label).nonzero()[:, 0]
            best = own[entropy[own].argsort()[:kept]]
            prototypes.append(torch.nn.functional.normalize(supports[best], dim=-1).mean(dim=0))
        return torch.cat(found) @ torch.stack(prototypes).T

    return answer


def setfit(few, data: Data, args):
    """
    A sentence encoder trained on pairs of the rows, and a logistic regression (`pip install setfit`): 20 pairs of equal
    and 20 of different labels for each row, and at most about 5,120 pairs.
    """
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    def texts(rows):
        return data.processor.batch_decode(rows["input_ids"], skip_special_tokens=True)

    model = SetFitModel.from_pretrained(data.script.backbone, device=args.device)
    model.model_body.float().max_seq_length = data.script.max_length
    how = TrainingArguments(
        args.output_dir,
        num_iterations=max(1, min(20, 2560 // len(few))),
        show_progress_bar=False,
        save_strategy="no",
        report_to="none",
        seed=args.seed,
        use_amp=args.bf16,
    )
    Trainer(model, how, Dataset.from_dict({"text": texts(few), "label": few["labels"]})).train()

    def answer(rows):
        found = torch.zeros(len(rows), len(data.train.label_names))
        found[:, model.model_head.classes_] = model.predict_proba(texts(rows), as_numpy=False).float().cpu()
        return found

    return answer


def adapted(way: str, model, drawn, data: Data, args, parts: dict):
    """
    A function from rows to answers.

    Args:
        drawn: the labelled rows of the new domain.
        parts: the `sources`, the `guard` rows and the pretrained encoder (`general`).
    """
    few = data.prepared(DomainDataset.concatenate([drawn, parts["guard"]]) if way == "finetune+guard" else drawn)
    if way in ("t3a", "setfit"):
        return t3a(model, data) if way == "t3a" else setfit(few, data, args)
    epochs = {"num_train_epochs": 15 if len(drawn) < 64 else 10, "max_steps": -1}
    epochs["per_device_train_batch_size"] = min(32, len(drawn))
    if way.startswith("write"):
        name = WritableMemoryForImageClassification if data.is_image else WritableMemoryForSequenceClassification
        writable = name.from_classifier(model, general=parts["general"] if way == "write+general" else None)
        writable.write(
            drawn, domain="new", tokenizer=data.processor, guard=parts["guard"], max_length=data.script.max_length
        )
        model = writable
    elif way in ("knn", "tip-adapter"):
        keys = torch.nn.functional.normalize(outputs_of(parts["general"], few, data, hidden_states=True), dim=-1)
        truth = torch.nn.functional.one_hot(torch.tensor(few["labels"]), len(data.train.label_names)).to(keys)

        def answer(rows):
            found = torch.nn.functional.normalize(outputs_of(parts["general"], rows, data, hidden_states=True), dim=-1)
            similar = found @ keys.T
            if way == "tip-adapter":
                return outputs_of(model, rows, data) + torch.exp(-5.5 * (1 - similar)) @ truth
            best = similar.topk(min(5, len(keys)), dim=-1)
            return (best.values.unsqueeze(-1) * truth[best.indices]).sum(dim=1)

        return answer
    else:
        model = data.classifier().to(model.device) if way == "retrain" else copy.deepcopy(model)
        if way == "retrain":
            both = DomainDataset.concatenate([data.train.of_domains(parts["sources"]), drawn])
            model = train(model, data.prepared(both), data, args)
        elif way == "lora":
            from peft import LoraConfig, get_peft_model

            targets = [
                name
                for name in ("query", "value", "q_proj", "v_proj")
                if any(module.endswith(name) for module, _ in model.named_modules())
            ]
            task = None if data.is_image else "SEQ_CLS"
            model = get_peft_model(
                model, LoraConfig(target_modules=targets, task_type=task, modules_to_save=["classifier"])
            )
            model = train(model, few, data, args, learning_rate=5e-4, **epochs)
        else:
            if way == "head":
                model.base_model.requires_grad_(False)
            model = train(model, few, data, args, **({"learning_rate": 1e-3} if way == "head" else {}), **epochs)
    return lambda rows: outputs_of(model, rows, data)


def with_wrong_labels(drawn, share: float, seed: int):
    """The rows, and the places of those whose labels are wrong."""
    wrong = random.Random(seed).sample(range(len(drawn)), round(share * len(drawn)))
    count = len(drawn.label_names)
    labels = [(one + 1) % count if row in wrong else one for row, one in enumerate(drawn["label"])]
    return drawn.with_columns(label=labels), wrong


def audited(model, drawn, wrong: list[int], data: Data, parts: dict) -> dict[str, float]:
    """How many of the rows that `audit` names have wrong labels, and how many of these it names, in percent."""
    name = WritableMemoryForImageClassification if data.is_image else WritableMemoryForSequenceClassification
    writable = name.from_classifier(model)
    writable.write(drawn, "new", data.processor, guard=parts["guard"], max_length=data.script.max_length)
    found = {row["id"] for row in writable.audit()}
    inputs = drawn["image" if data.is_image else "text"]
    if "text_pair" in drawn.column_names:
        inputs = list(zip(inputs, drawn["text_pair"], strict=True))
    names = [drawn.label_names[label] for label in drawn["label"]]
    ids = {name_of(row_id("new", inputs[place], names[place], data.is_image)) for place in wrong}
    return {
        "precision": 100 * len(found & ids) / max(1, len(found)),
        "recall": 100 * len(found & ids) / max(1, len(ids)),
    }


def main() -> None:
    parser = HfArgumentParser((ScriptArguments, DomainTrainingArguments), description=__doc__)
    parser.set_defaults(output_dir="runs/write_or_finetune", learning_rate=5e-5, num_train_epochs=3)
    parser.set_defaults(per_device_train_batch_size=32, weight_decay=0.01, warmup_steps=0.06)
    script, args = parser.parse_args_into_dataclasses()
    logging.set_verbosity_error()
    data = Data(script)
    general = AutoModel.from_pretrained(script.backbone, dtype=torch.float32).to(args.device).eval()
    for seed in map(int, script.seeds.split(",")):
        for target in script.targets.split(",") if script.targets else data.domains:
            set_seed(seed)
            args.seed = seed
            sources = [name for name in data.domains if name != target]
            model = train(data.classifier(), data.prepared(data.train.of_domains(sources)), data, args)
            held_out = data.test.of_domains(sources).shuffle(seed)
            half = len(held_out) // 2
            guard, old = (
                held_out.select(range(min(half, 500))),
                held_out.select(range(half, min(2 * half, half + 2000))),
            )
            parts = {"general": general, "sources": sources, "guard": guard}
            test, old = data.prepared(data.test.domain(target)), data.prepared(old)
            data.kept.clear()
            pool = data.train.domain(target).shuffle(100 + seed)
            facts = {"data": Path(script.data).name, "target": target, "seed": seed}
            facts |= {"backbone": Path(script.backbone).name, "metric": "accuracy" if data.is_image else "f1"}

            def keep(way, shots, answer, facts=facts, test=test, old=old, **more):
                row = {**facts, "method": way, "shots": shots, **more}
                row["value"] = round(score(answer(test), test, data), 3)
                row["sources"] = round(score(answer(old), old, data), 3)
                with open(script.results, "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                print(row, flush=True)

            keep("erm", 0, lambda rows, model=model: outputs_of(model, rows, data))
            for shots in script.shots.split(","):
                drawn = pool if shots == "all" else pool.select(range(min(int(shots), len(pool))))
                for way in script.ways.split(","):
                    if way not in ("head", "lora", "t3a", "retrain") or shots in script.late_shots.split(","):
                        keep(way, shots, adapted(way, model, drawn, data, args, parts))
            for share in map(float, filter(None, script.noise.split(","))):
                drawn, wrong = with_wrong_labels(pool.select(range(min(script.noise_shots, len(pool)))), share, seed)
                for way in ("write", "finetune"):
                    more = audited(model, drawn, wrong, data, parts) if way == "write" else {}
                    answer = adapted(way, model, drawn, data, args, parts)
                    keep(way, len(drawn), answer, noise=share, **more)


if __name__ == "__main__":
    main()
