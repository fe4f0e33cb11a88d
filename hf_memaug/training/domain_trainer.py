# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`DomainTrainer`: trains any classifier on several domains, for a domain that it has not seen."""

import copy
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader
from transformers import EarlyStoppingCallback, EvalPrediction

from hf_memaug.data.collators import DomainCollator
from hf_memaug.data.sampling import DomainAfterDomainSampler, DomainBalancedSampler, SeededRows, SeededRowsSampler
from hf_memaug.data.spans import IGNORED
from hf_memaug.evaluation.checks import score_numbers
from hf_memaug.evaluation.scores import accuracy, class_scores, macro_f1, micro_f1, pearson, r2
from hf_memaug.kernels.cuda_graphs import GraphedFunction
from hf_memaug.messages import listed
from hf_memaug.registry import row_name
from hf_memaug.training import checks
from hf_memaug.training.algorithms import ALGORITHMS
from hf_memaug.training.algorithms.weights import MeanWeights
from hf_memaug.training.arguments import DomainTrainingArguments, checked_arguments
from hf_memaug.training.base_trainer import BaseTrainer
from hf_memaug.training.callbacks import AlgorithmCallback, RunGuard, modules_with_pending_rows
from hf_memaug.training.class_weights import class_weights
from hf_memaug.training.collation import check_tokenized, choose_collator, columns_to_collate, domains_of, joined
from hf_memaug.training.forward_pass import ForwardPass, feature_size
from hf_memaug.training.guard_rows import check_guard_rows, save_guard_rows


class DomainTrainer(BaseTrainer):
    """
    A `Trainer` for rows with a `domain`. It draws batches in equal shares from the domains, trains with
    `args.algorithm`, and reports scores for each domain (`eval_books_f1`) and their mean (`eval_f1`). Checkpoints can
    only be selected on domains of `train_dataset`. If the algorithm has a penalty, `task_loss` is logged without it.

    Args:
        model (`PreTrainedModel`):
            Any model of transformers or of this library that returns a loss for `labels`.
        args (`DomainTrainingArguments`):
            Arguments of `TrainingArguments` and of the algorithm.
        train_dataset, eval_dataset:
            Rows with a `domain` column: `DomainDataset.tokenize(tokenizer)` or a `datasets.Dataset`. Images and graphs
            as `load_domains` returns them.
        processing_class:
            The tokenizer or image processor.
        compute_metrics (`Callable`, *optional*):
            Called for the rows of each domain in turn. By default accuracy, macro-F1 (`f1`), Matthews' correlation
            (`mcc`) and, with two labels, the area under the ROC curve (`auroc`). For an encoder-decoder, the accuracy
            of each word after the correct previous words. For several labels, `macro_f1` and `micro_f1`; for numbers,
            `r2` and `pearson`. Both are floats.

    All other arguments are those of `Trainer`.
    """

    args: DomainTrainingArguments
    # Whether a subclass tokenizes texts.
    takes_texts = False
    # What cards call the `f1` that is scored without `compute_metrics`.
    default_f1 = "macro_f1"

    def __init__(
        self,
        model=None,
        args: DomainTrainingArguments | None = None,
        data_collator: Callable | None = None,
        train_dataset=None,
        eval_dataset=None,
        processing_class=None,
        compute_metrics: Callable | None = None,
        callbacks: Sequence | None = None,
        **kwargs,
    ):
        args = checked_arguments(args, DomainTrainingArguments)
        if args.batch_eval_metrics or not args.eval_do_concat_batches:
            name = "batch_eval_metrics" if args.batch_eval_metrics else "eval_do_concat_batches=False"
            raise ValueError(f"`{name}` is not supported with scores per domain. Leave it out.")
        if kwargs.get("compute_loss_func") is not None:
            raise ValueError("`compute_loss_func` is not supported: `args.algorithm` sets the loss.")
        # The collator drops what the model does not take, after it has read the domain.
        self.removes_columns, args = args.remove_unused_columns, copy.copy(args)
        args.remove_unused_columns = False
        eval_dataset = joined(eval_dataset)
        self.domains = sorted(set(domains_of(train_dataset, "train_dataset"))) if train_dataset is not None else []
        checks.check_selection(args, self.domains, eval_dataset, callbacks or ())
        if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
            # The logits of all words would not fit into memory.
            kwargs.setdefault("preprocess_logits_for_metrics", _likeliest)
        is_given = data_collator is not None
        # Whether texts become tokens in a collator, or in a subclass.
        self._reads_texts = is_given or self.takes_texts
        if not self._reads_texts:
            check_tokenized(train_dataset=train_dataset, eval_dataset=eval_dataset)
        callbacks = [RunGuard(), *(callbacks or ())]
        if args.early_stopping_patience and not any(isinstance(one, EarlyStoppingCallback) for one in callbacks):
            callbacks.append(EarlyStoppingCallback(args.early_stopping_patience))
        data_collator = choose_collator(args, data_collator, processing_class, train_dataset, eval_dataset)
        super().__init__(
            model=model,
            args=args,
            data_collator=data_collator,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            compute_metrics=self._score_by_domain,
            callbacks=callbacks,
            **kwargs,
        )
        checks.share_label_names(self.model, train_dataset, eval_dataset)
        checks.check_precision(self.model)
        # Losses here are means over a batch: `Trainer` must divide them by the accumulation steps.
        self.model_accepts_loss_kwargs = False
        self._score = compute_metrics or self._default_scores
        # Of the last evaluation.
        self._scored_rows: Any = None
        keeps_all = is_given and not self.removes_columns
        columns = None if keeps_all else columns_to_collate(self.model, self.data_collator)
        self.data_collator = DomainCollator(self.data_collator, self.domains, columns)
        with self.seeded():
            algorithm = ALGORITHMS[args.algorithm](args, self.domains, feature_size(self.model))
        self.algorithm = algorithm.to(args.device)
        algorithm.check_run(args, self.domains, self.model)
        if self.optimizer is not None and (args.memory_learning_rate is not None or list(algorithm.parameters())):
            raise ValueError(
                "`optimizers` is not supported with `memory_learning_rate` or discriminators. Give "
                "`optimizer_cls_and_kwargs` instead."
            )
        if args.cuda_graphs and any(getattr(one, "track_running_stats", False) for one in self.model.modules()):
            raise ValueError(
                "`cuda_graphs=True` does not support norms with running statistics, such as a ResNet's. Leave it out."
            )
        if args.guard_rows:
            check_guard_rows(self)
        self.class_weights: torch.Tensor | None = None
        if args.class_weights is not None and train_dataset is not None:
            weights = class_weights(args.class_weights, train_dataset, self.model.config.num_labels)
            self.class_weights = weights.to(args.device)
        self.mean_weights = MeanWeights()
        checks.check_other_passes(args, self.model)
        self.add_callback(AlgorithmCallback(self))
        self._graphed_loss = GraphedFunction(self._loss_and_gradients)
        # Of the last forward pass, where `loss` is more than that.
        self._own_loss: torch.Tensor | None = None

    @property
    def method_name(self) -> str:
        """The paper's name for what is trained, for the card."""
        return row_name(self.model.config, self.args.algorithm)

    @contextmanager
    def seeded(self):
        """Initialises from `args.seed`, without changing the random numbers of the training."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.args.seed)
            yield

    # Training

    def get_train_dataloader(self) -> DataLoader:
        dataset = self.train_dataset
        if not self.args.balanced_batches and not self.args.augment_images:
            return super().get_train_dataloader()
        sampler: Any
        if not self.args.balanced_batches:
            sampler = self._get_train_sampler(dataset)
        elif self.algorithm.one_domain_a_step:
            rows = self.args.train_batch_size * self.args.gradient_accumulation_steps * self.args.world_size
            sampler = DomainAfterDomainSampler(domains_of(dataset, "train_dataset"), rows, self.data_seed)
        else:
            sampler = DomainBalancedSampler(domains_of(dataset, "train_dataset"), seed=self.data_seed)
        if self.args.augment_images:
            dataset, sampler = SeededRows(dataset), SeededRowsSampler(sampler, self.data_seed)
        return self.train_loader(dataset, sampler, self._train_batch_size)

    def training_step(self, model, inputs, num_items_in_batch=None):
        if not self.args.cuda_graphs:
            loss = super().training_step(model, inputs, num_items_in_batch)
        else:
            model.train()
            # The penalty sets in at a step that Python knows of and the graph does not.
            has_penalty = self.state.global_step >= self.args.penalty_anneal_steps
            found = self._graphed_loss(self._prepare_inputs(inputs), key=has_penalty)
            loss, gradients, waiting, self._own_loss = found
            for parameter, gradient in zip(self._learners, gradients, strict=True):
                parameter.grad = gradient
            for memory, rows in zip(self._written, waiting, strict=True):
                memory.set_pending(rows)
            loss = loss.clone()
        if self._own_loss is not None:
            self.log_mean("task_loss", self._own_loss)
        return loss

    @cached_property
    def _learners(self) -> list[torch.nn.Parameter]:
        learners = [*self.model.parameters(), *self.algorithm.parameters()]
        return [parameter for parameter in learners if parameter.requires_grad]

    @cached_property
    def _written(self) -> list[Any]:
        return modules_with_pending_rows(self.model)

    def _loss_and_gradients(self, inputs: dict) -> tuple:
        """The loss, the learners' gradients, the queued rows of a memory that is written, and `_own_loss`."""
        for parameter in self._learners:
            parameter.grad = None
        with self.compute_loss_context_manager():
            loss = self.compute_loss(self.model_wrapped, dict(inputs))
        loss.backward()
        waiting = [memory.take_pending() for memory in self._written]
        return loss.detach(), [parameter.grad for parameter in self._learners], waiting, self._own_loss

    def floating_point_ops(self, inputs: dict) -> int:
        # `Trainer` counts the parameters again at each step, which takes as long as a small encoder's forward pass.
        name = getattr(self.model, "main_input_name", "input_ids")
        return 6 * inputs[name].numel() * self._parameter_count if name in inputs else 0

    @cached_property
    def _parameter_count(self) -> int:
        return self.model.num_parameters(exclude_embeddings=True)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        domain_ids = inputs.pop("domain_ids", None)
        if not model.training:
            outputs = model(**inputs)
            loss = self.task_loss(outputs, inputs)
        else:
            outputs = None  # `Trainer` asks for them in evaluation only
            forward = ForwardPass(self, model)
            loss = self.algorithm.train_loss(forward, inputs, domain_ids)
            self._own_loss = forward.task_loss if self.algorithm.default_penalty_weight else None
        return (loss, outputs) if return_outputs else loss

    def task_loss(self, outputs, inputs) -> torch.Tensor:
        if self.label_smoother is not None:
            smoothed = self.label_smoother(outputs, inputs["labels"])
            # What keeps experts busy is no part of what is smoothed.
            more = outputs.get("aux_loss") if isinstance(outputs, dict) else None
            weight = getattr(self.model.config, "aux_loss_weight", None)
            return smoothed if more is None or weight is None else smoothed + weight * more
        if isinstance(outputs, dict) and "loss" not in outputs:
            raise ValueError(
                f"`{type(self.model).__name__}` returns no loss for {listed(inputs)}. Rows need `labels`, also those "
                "that a `data_collator` makes, and the model a head, such as that of "
                "`AutoModelForSequenceClassification`."
            )
        return outputs["loss"] if isinstance(outputs, dict) else outputs[0]

    def create_optimizer(self, model=None):
        if self.optimizer is not None:
            return super().create_optimizer(model)
        optimizer = super().create_optimizer(model)
        rate = self.args.memory_learning_rate
        if rate is not None:
            memory = {id(parameter) for parameter in getattr(self.model, "memory_parameters", tuple)()}
            for group in list(optimizer.param_groups):
                moved = [parameter for parameter in group["params"] if id(parameter) in memory]
                if moved:
                    group["params"] = [parameter for parameter in group["params"] if id(parameter) not in memory]
                    optimizer.add_param_group({**group, "params": moved, "lr": rate})
        adversaries = list(self.algorithm.parameters())
        if adversaries:
            group = {"params": adversaries, "lr": self.args.discriminator_learning_rate, "weight_decay": 0.0}
            optimizer.add_param_group(group)
        return optimizer

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        # `push_to_hub` saves to `output_dir`. Checkpoints to resume from need no guard rows.
        if self.args.guard_rows and self.args.should_save and (output_dir is None or not _internal_call):
            save_guard_rows(self, output_dir or str(self.args.output_dir))
        super().save_model(output_dir, _internal_call)

    def method_state(self) -> dict:
        state = self.algorithm.state_dict()
        found = {"algorithm": self.args.algorithm, "domains": self.domains, "algorithm_state": state}
        found["mean_weights"] = vars(self.mean_weights)
        return {**found, "without_improvement": [one.early_stopping_patience_counter for one in self._early_stopping]}

    def load_method_state(self, state: dict) -> None:
        checks.check_resumable(state, self.args.algorithm, self.domains)
        self.algorithm.load_state_dict(state["algorithm_state"])
        self.mean_weights = MeanWeights(**state.get("mean_weights", {}))
        # `Trainer` (5.22) would restore its own control too, which may say to stop.
        for one, count in zip(self._early_stopping, state.get("without_improvement", ()), strict=False):
            one.early_stopping_patience_counter = count

    @property
    def _early_stopping(self) -> list[EarlyStoppingCallback]:
        return [one for one in self.callback_handler.callbacks if isinstance(one, EarlyStoppingCallback)]

    @property
    def is_over(self) -> bool:
        stops = (one.early_stopping_patience_counter >= one.early_stopping_patience for one in self._early_stopping)
        return super().is_over or any(stops)

    # Evaluation

    def prediction_step(self, model, inputs, *args, **kwargs):
        inputs = {name: value for name, value in inputs.items() if name != "domain_ids"}
        return super().prediction_step(model, inputs, *args, **kwargs)

    def get_eval_dataloader(self, eval_dataset=None) -> DataLoader:
        rows: Any = self.eval_dataset if eval_dataset is None else eval_dataset
        rows = self.eval_dataset[rows] if isinstance(rows, str) else rows
        if rows is None:
            raise ValueError("`eval_dataset` is missing: give the rows to score.")
        return self.loader_to_score(rows, "eval_dataset")

    def get_test_dataloader(self, test_dataset) -> DataLoader:
        return self.loader_to_score(test_dataset, "test_dataset")

    def loader_to_score(self, rows, argument: str) -> DataLoader:
        if not self._reads_texts:
            check_tokenized(**{argument: rows})
        if checks.is_known(self.data_collator):
            checks.check_texts(self.accelerator.unwrap_model(self.model), rows)
        # In the order of the rows, so that the domain of each prediction is known.
        return self.ordered_loader(rows, self.args.eval_batch_size)

    def evaluation_loop(self, dataloader, *args, **kwargs):
        self._scored_rows = getattr(dataloader, "dataset", None)
        return super().evaluation_loop(dataloader, *args, **kwargs)

    def scored_domains(self) -> list[str]:
        """The domain of each row of the last evaluation; empty where rows have none."""
        has_domains = "domain" in (getattr(self._scored_rows, "column_names", None) or ())
        return list(self._scored_rows["domain"]) if has_domains else []

    def _score_by_domain(self, prediction: EvalPrediction) -> dict[str, float]:
        """Every score for each domain, and its mean over the domains under the score's own name."""
        of_rows = self.scored_domains()
        if not of_rows:
            return score_numbers(self._score(prediction))
        domains, names = np.asarray(of_rows), list(dict.fromkeys(of_rows))
        scores = {name: score_numbers(self._score(_rows(prediction, domains == name))) for name in names}
        metrics = {f"{name}_{metric}": value for name in names for metric, value in scores[name].items()}
        for metric in scores[names[0]]:
            if all(metric in scores[name] for name in names):
                metrics[metric] = float(np.mean([scores[name][metric] for name in names]))
        return metrics

    def _default_scores(self, prediction: Any) -> dict[str, float]:
        logits, labels = first_of(prediction.predictions), prediction.label_ids
        if labels.dtype.kind == "f":
            if labels.ndim == 1:
                return {"r2": r2(logits.reshape(-1), labels), "pearson": pearson(logits.reshape(-1), labels)}
            several = (logits > 0).astype(int), labels.astype(int)
            return {"macro_f1": macro_f1(*several), "micro_f1": micro_f1(*several)}
        kept = labels != IGNORED
        if labels.ndim > 1:
            logits, labels = logits[kept], labels[kept]
        elif not kept.all():
            raise ValueError(f"`eval_dataset` has {np.sum(~kept)} rows labelled {IGNORED}. Remove them.")
        if self.model.config.is_encoder_decoder:
            return {"accuracy": accuracy(logits if logits.ndim == 1 else logits.argmax(axis=-1), labels)}
        return class_scores(logits, labels)


def first_of(predictions: Any) -> Any:
    """The logits, which may have other outputs behind them."""
    return predictions[0] if isinstance(predictions, tuple) else predictions


def _likeliest(logits, labels) -> torch.Tensor:
    return first_of(logits).argmax(dim=-1)


def _rows(prediction: EvalPrediction, kept: np.ndarray) -> EvalPrediction:
    def of(part):
        return tuple(map(of, part)) if isinstance(part, tuple) else None if part is None else part[kept]

    names = ("predictions", "label_ids", "inputs", "losses")
    return EvalPrediction(**{name: of(getattr(prediction, name)) for name in names})
