# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`ContinualTrainer`: trains one model on domain after domain, and scores all domains after each."""

import copy
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import create_branch, upload_folder
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase
from transformers.integrations import get_reporting_integration_callbacks
from transformers.trainer_utils import TrainOutput, set_seed

from hf_memaug.data import DomainDataset
from hf_memaug.hub.publishing import complete_folder
from hf_memaug.training.arguments import ContinualTrainingArguments, checked_arguments
from hf_memaug.training.callbacks import trainer_of_phase
from hf_memaug.training.checks import check_labelled, refuse_for_phases
from hf_memaug.training.continual import STRATEGIES
from hf_memaug.training.continual.base import StageLoss
from hf_memaug.training.continual.record import RECORD_FILE, ContinualRecord, drop_old_facts, write_facts
from hf_memaug.training.continual.rows import check_all_labels, check_dev_rows, check_domains, rows_by_domain
from hf_memaug.training.domain_trainer import DomainTrainer
from hf_memaug.training.model_cards import is_family
from hf_memaug.training.resuming import last_complete_checkpoint

# `Trainer` pushes nothing that begins with "_".
STAGES = "_stages"
START = "start"
# Far enough apart that no two stages of usual seeds draw the same numbers.
SEEDS_APART = 10_000


class ContinualTrainer(DomainTrainer):
    """
    Trains a model on one domain after another by the strategy of `args`. After each domain it scores all domains: a row
    of the matrix R (`trainer.record`). `trainer.figures()` returns ACC, BWT, FWT and forgetting.

    Each domain is a stage, trained by its own `DomainTrainer` in `output_dir/_stages/<number>-<domain>`, where its
    weights stay. `train(resume_from_checkpoint=True)` resumes an interrupted stage. With `push_to_hub`, each stage
    becomes a revision `stage-<number>-<domain>` of the repository.

    Args:
        model (`PreTrainedModel`):
            Any classifier, or an encoder-decoder, which learns to answer `text` with `text_pair`. A model that this
            trainer has trained before keeps its matrix.
        args (`ContinualTrainingArguments`):
            Arguments of each stage, the strategy and the order of the domains.
        train_dataset:
            Rows with a `domain` column, as `load_domains` gives them; or `{domain: rows}`. Texts are tokenized here.
        eval_dataset (*optional*):
            Dev rows. They are scored during the stage of their domain, and choose its checkpoint if
            `load_best_model_at_end` is set.
        test_dataset (*optional*):
            The rows of all domains that R is scored on. By default `eval_dataset`.
        history (`str` or `dict`, *optional*):
            The folder of a checkpoint, its `continual.json`, or the content of that file. By default the record in the
            model's configuration. `{}` starts a new matrix.

    All other arguments are those of [`DomainTrainer`].
    """

    args: ContinualTrainingArguments
    stage_class: type[DomainTrainer] = DomainTrainer
    takes_texts = True
    card_settings = ("strategy", "strategy_kwargs", "memory_learning_rate")

    def __init__(
        self,
        model=None,
        args: ContinualTrainingArguments | None = None,
        data_collator: Callable | None = None,
        train_dataset=None,
        eval_dataset=None,
        test_dataset=None,
        history: str | os.PathLike | Mapping | None = None,
        **kwargs,
    ):
        args = checked_arguments(args, ContinualTrainingArguments)
        if model is None or train_dataset is None:
            raise ValueError("`model` and `train_dataset` are required.")
        refuse_for_phases(kwargs, "each stage has a trainer of its own")
        if history is None:
            history = (getattr(model.config, "run_facts", None) or {}).get("continual", {})
        self.record = ContinualRecord.load(history)
        self.train_rows = rows_by_domain(train_dataset, "train_dataset", self.record.labels, model.config)
        labels = next((rows.label_names for rows in self.train_rows.values()), [])
        self.dev_rows = rows_by_domain(eval_dataset, "eval_dataset", labels)
        self.test_rows = rows_by_domain(test_dataset, "test_dataset", labels) or self.dev_rows
        self.plan = list(args.domains or self.train_rows)
        check_domains(self.plan, self.record.trained, self.train_rows, self.test_rows)
        parts = {"train_dataset": self.train_rows, "eval_dataset": self.dev_rows, "test_dataset": self.test_rows}
        check_labelled(model, data_collator, **parts)
        check_all_labels({name: self.train_rows[name] for name in self.plan}, getattr(model.config, "num_labels", None))
        check_dev_rows(args, self.plan, self.dev_rows, test_dataset is not None)
        for_stages = ("compute_metrics", "optimizer_cls_and_kwargs")
        self.given_to_phases = {"data_collator": data_collator, **{name: kwargs.get(name) for name in for_stages}}
        super().__init__(
            model=model,
            args=args,
            data_collator=data_collator,
            train_dataset=_rows_of(self.train_rows, self.plan),
            eval_dataset=_rows_of(self.dev_rows, self.plan),
            **kwargs,
        )
        # This trainer scores test rows; the trainers of the stages score dev rows.
        self.eval_dataset = _rows_of(self.test_rows, self.test_rows)
        self.scored_split = "dev" if test_dataset is None else "test"
        if args.max_length is not None and isinstance(self.processing_class, PreTrainedTokenizerBase):
            # It is saved with the tokenizer, so that a checkpoint reads texts as in training.
            self.processing_class.model_max_length = args.max_length
        self.strategy = STRATEGIES[args.strategy](args)
        self.strategy.check_model(self.model, self.processing_class, self.train_dataset)
        self._continue(history, labels)

    def _continue(self, history, labels: list[str]) -> None:
        """Continues the record of an earlier run."""
        record, strategy = self.record, self.strategy
        if record.stages:
            if record.kind != strategy.kind or record.kind != "sequence":
                raise ValueError(
                    f'`strategy="{strategy.name}"` cannot continue the matrix in `history`. Start a new one with '
                    "`history={}`."
                )
            if record.metric != self.args.matrix_metric:
                raise ValueError(
                    f'`matrix_metric` is "{self.args.matrix_metric}", but `history` has "{record.metric}". Use that.'
                )
            if strategy.needs_state:
                file = self._state_of(history)
                if file is None:
                    raise ValueError(
                        f'`strategy="{strategy.name}"` needs the `{strategy.state_file}` of the earlier run. Give the '
                        "folder that has it as `history`, or start a new matrix with `history={}`."
                    )
                strategy.load_state(torch.load(file, map_location="cpu", weights_only=True))
        record.metric, record.kind = self.args.matrix_metric, strategy.kind
        record.labels, record.plan = labels, self.plan
        options = {name: getattr(strategy, name) for name in strategy.options}
        record.strategy = {"name": strategy.name, "options": options}

    def _state_of(self, history) -> Path | None:
        """The strategy's state in the folder of a checkpoint or of a whole run."""
        if not isinstance(history, (str, os.PathLike)):
            return None
        last = f"{len(self.record.stages) - 1}-{_slug(self.record.stages[-1]['domains'])}"
        folders = (Path(history), Path(history).parent, Path(history) / STAGES / last)
        return next((f / self.strategy.state_file for f in folders if (f / self.strategy.state_file).is_file()), None)

    @property
    def method_name(self) -> str:
        """The paper's name for what is trained, for the card."""
        return self.args.strategy

    def figures(self) -> dict[str, float | None]:
        """ACC, BWT, FWT and forgetting; `None` where one is not defined."""
        return self.record.figures()

    # Stages

    def train(self, resume_from_checkpoint: bool | None = None, **kwargs) -> TrainOutput:  # type: ignore[override]
        """
        Trains all stages. `resume_from_checkpoint=True` skips finished stages. The output's metrics are `figures()`.
        """
        if kwargs or not isinstance(resume_from_checkpoint, (bool, type(None))):
            raise ValueError("`train` takes only `resume_from_checkpoint=True`, and finds the checkpoint itself.")
        stages = self.strategy.stages(self.plan)
        if not resume_from_checkpoint and any(tuple(stage["domains"]) in stages for stage in self.record.stages):
            raise ValueError("`train` was called already. Create a new trainer, or set `resume_from_checkpoint=True`.")
        drop_old_facts(self.model.config, self.record)
        if resume_from_checkpoint:
            self._resume()
        else:
            self._start()
        done = sum(tuple(stage["domains"]) in stages for stage in self.record.stages)
        before = len(self.record.stages) - done
        quiet = self.args.disable_tqdm or not self.is_world_process_zero()
        loss = 0.0
        for index in tqdm(range(done, len(stages)), desc="Domains", unit="domain", disable=quiet):
            resume = bool(resume_from_checkpoint) and index == done
            # 0 where nothing was trained.
            loss = self._run_stage(before + index, stages[index], resume) or loss
        metrics = {name: value for name, value in self.figures().items() if value is not None}
        return TrainOutput(self.state.global_step, loss, metrics)

    def _run_stage(self, number: int, domains: tuple[str, ...], resume: bool) -> float:
        seed = self.args.seed + SEEDS_APART * number
        rows = _rows_of(self.train_rows, domains)
        if self.strategy.restarts:
            self._load(self._folder(START))
        # With one seed for all stages, the new slots of all stages would be equal.
        set_seed(seed)
        growth = self.strategy.grow(self.model, rows, self.processing_class) if number else {}
        self._set_model(self.strategy.begin(self.model, number))
        folder = self._folder(f"{number}-{_slug(domains)}")
        steps, loss, model = 0, 0.0, self.strategy.write(self, number, rows)
        if model is None:
            trainer = self._stage_trainer(folder, domains, self.strategy.training_rows(rows), seed)
            set_seed(seed)
            output = trainer.train(resume_from_checkpoint=last_complete_checkpoint(folder) if resume else None)
            steps, loss = output.global_step, output.training_loss
            model = trainer.model = _unprepared(trainer, trainer.model)
            self.strategy.end(trainer, self._prepared(rows), rows, seed)
            del trainer
        self._set_model(model)
        self.state.global_step += steps
        stage = {"domains": list(domains), "strategy": self.strategy.name, "growth": growth}
        stage |= {"steps": steps, "rows": len(rows), "scores": self._scores()}
        self.record.stages.append(stage)
        self.save_stage(folder)
        if self.args.push_to_hub and self.is_world_process_zero():
            self._push_stage(folder)
        # This file marks the stage as finished.
        if self.is_world_process_zero():
            self.record.save(self.output_folder)
        self.accelerator.wait_for_everyone()
        for callback in self.callback_handler.callbacks:
            if hasattr(callback, "on_stage_end") and self.is_world_process_zero():
                callback.on_stage_end(self.args, self.state, self.control, record=self.record, model=self.model)
        return loss

    def _stage_trainer(self, folder: Path, domains: Sequence[str], rows: DomainDataset, seed: int) -> DomainTrainer:
        args = copy.copy(self.args)
        args.output_dir, args.seed = str(folder), seed
        if args.data_seed is not None:
            args.data_seed += seed - self.args.seed
        if self.strategy.balanced_batches is not None:
            args.balanced_batches = self.strategy.balanced_batches
        trainer = trainer_of_phase(
            self.stage_class,
            self,
            args,
            without=tuple(get_reporting_integration_callbacks(self.args.report_to)),
            train_dataset=self._prepared(rows),
            eval_dataset=self._prepared(_rows_of(self.dev_rows, domains)),
        )
        trainer.algorithm = StageLoss(args, trainer.domains, None)
        trainer.algorithm.strategy = self.strategy
        return trainer

    def _set_model(self, model) -> None:
        """Sets the model to score, and to train in the next stage."""
        self.model = self.model_wrapped = _unprepared(self, model).to(self.args.device)
        # Also collects the trainer of the last stage, which holds optimizer states in a circle.
        self.accelerator.free_memory()

    # Rows and scores

    def _prepared(self, rows):
        """Tokenizes texts, with the words that the tokenizer has by now."""
        if not isinstance(rows, DomainDataset):
            return rows
        has_texts = "input_ids" not in rows.column_names and {"text", "tokens"} & set(rows.column_names)
        if not has_texts or not isinstance(self.processing_class, PreTrainedTokenizerBase):
            return rows
        return rows.tokenize(self.processing_class, self.args.max_length, replies=self.model.config.is_encoder_decoder)

    def loader_to_score(self, rows, argument: str) -> DataLoader:
        return super().loader_to_score(self._prepared(rows), argument)

    def _scores(self) -> dict[str, float]:
        """The current score on every domain of `test_dataset`."""
        found = self.evaluate()
        wanted, prefix = self.args.matrix_metric, f"eval_{self.plan[0]}_"
        if f"{prefix}{wanted}" not in found:
            there = sorted(name.removeprefix(prefix) for name in found if name.startswith(prefix))
            raise ValueError(f'`matrix_metric` is "{wanted}", but the scores are: {", ".join(there)}. Use one of them.')
        return {domain: float(found[f"eval_{domain}_{wanted}"]) for domain in self.test_rows}

    # Files

    def _folder(self, name: str) -> Path:
        return self.output_folder / STAGES / name

    def _start(self) -> None:
        # Files of an earlier run must not be resumed from.
        if self.is_world_process_zero():
            shutil.rmtree(self._folder(""), ignore_errors=True)
            (self.output_folder / RECORD_FILE).unlink(missing_ok=True)
        self.accelerator.wait_for_everyone()
        self.save_stage(self._folder(START))
        scores = self._scores()
        if self.record.stages:
            # Domains that the earlier run did not know of, before their turn.
            last = self.record.stages[-1]
            last["scores"] = {**scores, **last["scores"]}
        else:
            self.record.baseline = scores
        if self.is_world_process_zero():
            self.record.save(self.output_folder)
        self.accelerator.wait_for_everyone()

    def _resume(self) -> None:
        folder = self.output_folder
        if not (folder / RECORD_FILE).is_file():
            raise ValueError(
                f"`resume_from_checkpoint=True`, but `output_dir` ({folder}) has no run to resume. Leave it out."
            )
        stored = ContinualRecord.load(folder)
        for name in ("strategy", "plan", "metric", "labels"):
            if getattr(stored, name) != getattr(self.record, name):
                raise ValueError(
                    f"`resume_from_checkpoint=True`, but the run in `output_dir` has another {name}: "
                    f"{getattr(stored, name)}. Use the same arguments, or another `output_dir`."
                )
        self.record = stored
        done = [number for number, stage in enumerate(stored.stages) if set(stage["domains"]) <= set(self.plan)]
        self.state.global_step = sum(stored.stages[number]["steps"] for number in done)
        last = f"{done[-1]}-{_slug(stored.stages[done[-1]]['domains'])}" if done else START
        self._load(self._folder(last))
        write_facts(self.model.config, self.record)

    def save_stage(self, folder: Path) -> None:
        write_facts(self.model.config, self.record)
        self.save_model(str(folder), _internal_call=True)
        if self.is_world_process_zero():
            state = self.strategy.state()
            if state:
                torch.save(state, folder / self.strategy.state_file)
            self.record.save(folder)
        self.accelerator.wait_for_everyone()

    def _push_stage(self, folder: Path) -> None:
        """
        Pushes the weights of a stage, and the state that later stages need, to the branch `stage-<number>-<domain>`.
        Rows of the data, optimizers and intermediate checkpoints are not pushed.
        """
        to: dict[str, Any] = {"repo_id": self.hub_model_id, "token": self.args.hub_token}
        if is_family(self.model) and not hasattr(self.model, "peft_config"):
            complete_folder(self.model, folder, **to)
        branch = f"stage-{folder.name}"
        create_branch(branch=branch, exist_ok=True, **to)
        upload_folder(
            folder_path=folder,
            revision=branch,
            commit_message=f"After training on {self.record.row_names[-1]}",
            # A branch begins with all that is on main.
            delete_patterns=["*"],
            ignore_patterns=["_*", "checkpoint-*", "*.bin"],
            **to,
        )

    def _load(self, folder: Path) -> None:
        """Restores model, tokenizer and strategy after a stage."""
        model = self.strategy.rebuild(self.model, str(folder))
        if model is None:
            self._load_from_checkpoint(str(folder), self.model)
        else:
            self._set_model(model)
        if "grow_vocabulary" in self.strategy.needs:
            tokenizer: Any = self.processing_class
            self.processing_class = tokenizer.from_pretrained(folder)
        file = folder / self.strategy.state_file
        if file.is_file():
            self.strategy.load_state(torch.load(file, map_location="cpu", weights_only=True))


def _rows_of(parts: Mapping[str, DomainDataset], domains: Iterable[str]) -> Any:
    found = [parts[name] for name in domains if name in parts]
    return DomainDataset.concatenate(found) if found else None


def _unprepared(trainer, model):
    """
    The model as it was before accelerate prepared it, which happens once: a scored model would be trained without
    gradient synchronisation, a trained one without mixed precision.
    """
    model = trainer.accelerator.unwrap_model(model)
    vars(model).pop("_is_accelerate_prepared", None)
    # For mixed precision. With `keep_fp32_wrapper=False`, decorators of the model's own `forward` would go as well.
    if vars(model).pop("_original_forward", None) is not None:
        del model.forward
    return model


def _slug(domains: Sequence[str]) -> str:
    """A name for folders and branches."""
    return re.sub(r"[^A-Za-z0-9]+", "-", "-".join(domains)).strip("-").lower()[:60] or "domain"
