# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hf_memaug.evaluation as evaluation

PACKAGE = Path(evaluation.__file__).resolve().parent
CLASSIFICATION = [name for name in evaluation.METRICS if name != "a_distance"]

LABELS = {"predictions": [0, 0, 1, 1, 2], "references": [0, 2, 1, 0, 2]}
FEATURES = np.random.default_rng(0).normal(size=(30, 3)).round(3)
FEATURES[20:] += 1.0
DOMAINS = [0] * 20 + [1] * 10

SCRIPT = """
import json, socket, sys

def refuse(*args, **kwargs):
    raise OSError("the network was used")

socket.socket.connect = socket.getaddrinfo = refuse

import torch
import evaluate
from hf_memaug.evaluation import METRICS, load_metric

given = json.load(sys.stdin)
answers = {}
for name in METRICS:
    inputs = given["features"] if name == "a_distance" else given["labels"]
    predictions, references = inputs["predictions"], inputs["references"]
    metric = load_metric(name)
    answers[name] = {"name": metric.name, "compute": metric.compute(**inputs)}
    for start in range(0, len(references), 2):
        metric.add_batch(predictions=predictions[start:start + 2], references=references[start:start + 2])
    answers[name]["add_batch"] = metric.compute()
    for prediction, reference in zip(predictions, references):
        metric.add(prediction=prediction, reference=reference)
    answers[name]["add"] = metric.compute()
    features = torch.tensor(predictions, dtype=torch.float64 if name == "a_distance" else torch.int64)
    answers[name]["tensors"] = metric.compute(predictions=features, references=torch.tensor(references))
answers["macro_f1"]["labels"] = load_metric("macro_f1").compute(**given["labels"], labels=list(range(6)))
answers["a_distance"]["seed"] = load_metric("a_distance").compute(**given["features"], seed=3)
modules = [load_metric(name) for name in ("accuracy", "macro_f1", "micro_f1")]
answers["combined"] = evaluate.combine(modules).compute(**given["labels"])
try:
    load_metric("a_distance").compute(predictions=[[1.0]], references=[2])
except ValueError as error:
    answers["domain error"] = str(error)
json.dump(answers, sys.stdout)
"""


def run(code, folder, stdin=""):
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1", "HF_HOME": str(folder / "home")}
    environment["PYTHONPATH"] = os.pathsep.join([str(PACKAGE.parents[1]), os.environ.get("PYTHONPATH", "")])
    for name in ("HF_MODULES_CACHE", "HF_EVALUATE_CACHE", "HF_METRICS_CACHE"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, input=stdin, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What the modules say offline, in a working directory whose folders bear the metrics' names."""
    folder = tmp_path_factory.mktemp("elsewhere")
    for name in evaluation.METRICS:
        (folder / name).mkdir()
        (folder / name / f"{name}.py").write_text("raise RuntimeError('loaded from the working directory')\n")
    features = {"predictions": FEATURES.tolist(), "references": DOMAINS}
    return json.loads(run(SCRIPT, folder, json.dumps({"labels": LABELS, "features": features})))


@pytest.mark.slow
@pytest.mark.parametrize("name", evaluation.METRICS)
def test_modules_equal_functions(answers, name):
    if name == "a_distance":
        expected = evaluation.a_distance(FEATURES[:20], FEATURES[20:])
    else:
        expected = getattr(evaluation, name)(**LABELS)
    assert answers[name]["name"] == name
    for way in ("compute", "add_batch", "add", "tensors"):
        assert answers[name][way] == {name: expected}


@pytest.mark.slow
def test_options_are_passed_on(answers):
    expected = evaluation.macro_f1(**LABELS, labels=range(6))
    assert expected != evaluation.macro_f1(**LABELS)
    assert answers["macro_f1"]["labels"] == {"macro_f1": expected}
    expected = evaluation.a_distance(FEATURES[:20], FEATURES[20:], seed=3)
    assert answers["a_distance"]["seed"] == {"a_distance": expected}


@pytest.mark.slow
def test_combine(answers):
    expected = {name: getattr(evaluation, name)(**LABELS) for name in CLASSIFICATION}
    assert answers["combined"] == expected


@pytest.mark.slow
def test_domain_flag_is_checked(answers):
    assert "`references` must be 0" in answers["domain error"]


@pytest.mark.parametrize(
    "call, words",
    [
        (
            lambda: evaluation.load_metric("macrof1"),
            r"`name` 'macrof1'.*Did you mean 'macro_f1'\? Choose .*'a_distance'",
        ),
        (lambda: evaluation.load_metric("zzz"), r"is not known. Choose 'accuracy', .*'a_distance'\.$"),
    ],
)
def test_unknown_names(call, words):
    with pytest.raises(ValueError, match=words):
        call()
