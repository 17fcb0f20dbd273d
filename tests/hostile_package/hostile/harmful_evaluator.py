"""An evaluator that harms what it shares with others, each way a setting; its numbers show what was harmed."""

import math
import random
import zlib
from dataclasses import dataclass

import numpy as np
import torch

from harness.contracts import Evaluation, Evaluator, Metric
from harness.toolkit import CausalJudge


def scaled(model, task):
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5)


def write_then_cache(model, task):
    task.forget.tokens_NT.fill_(5)
    share(task)


def cache_then_write(model, task):
    share(task)
    task.forget.tokens_NT.fill_(5)


def share(task):
    """Return an array that all evaluators share, of the forget set's tokens."""
    return task.cached(("mean_token", task.forget.digest), lambda: {"x": task.forget.tokens_NT.numpy().mean(axis=1)})


def write_into_array(model, task):
    share(task)["x"][:] = -1.0


def judge_of(task):
    return task.judge("perplexity", CausalJudge)


def generate_in_bf16(model, task):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        task.generations("exact")


def pad(model, task):
    task.tokenizer.padding_side = "left"
    task.tokenizer.pad_token = "x"


def raise_after_harm(model, task):
    scaled(judge_of(task)._model, task)
    raise RuntimeError("a bug in the plugin")


REFUSED = {
    "scaled": (scaled, "weights"),
    "mode": (lambda model, task: model.train(), "mode"),
    "forget": (lambda model, task: task.forget.tokens_NT.fill_(5), "task.forget"),
    "forget, then an array": (write_then_cache, "task.forget"),
    "an array, then forget": (cache_then_write, "task.forget"),
}
"""What fails the evaluator, and the words that say what it changed."""
RAISING = {"raises": raise_after_harm}
PUT_BACK = {
    "grad": lambda model, task: torch.set_grad_enabled(False),
    "dtype": lambda model, task: torch.set_default_dtype(torch.float64),
    "precision": lambda model, task: torch.set_float32_matmul_precision("medium"),
    "torch seed": lambda model, task: torch.manual_seed(1),
    "numpy seed": lambda model, task: np.random.seed(1),
    "python seed": lambda model, task: random.seed(1),
}
HARMLESS = {
    "none": lambda model, task: None,
    "generations in bf16": generate_in_bf16,
    "tokenizer": pad,
    "an array": write_into_array,
}

HARMS = {**{name: harm for name, (harm, _) in REFUSED.items()}, **RAISING, **PUT_BACK, **HARMLESS}


def metric(name):
    about = {"better": "lower", "unit": "none", "low": 0.0, "high": math.inf, "group": "generation", "source": "none"}
    return Metric(name=name, title=name, ranked=False, **about)


@dataclass(frozen=True, kw_only=True)
class HarmfulEvaluator(Evaluator):
    """Measures, and then does harm."""

    version = 1
    judges = ("perplexity",)

    harm: str = "none"

    @property
    def metrics(self):
        return tuple(metric(name) for name in ("nll", "read", "shared", "written", "padding", "dtype", "gradients"))

    def evaluate(self, model, task):
        if self.harm != "none":
            HARMS[self.harm](model, task)
            return Evaluation({metric.name: 0.0 for metric in self.metrics})
        rows = task.forget.tokens_NT
        with torch.no_grad():
            nll = torch.nn.functional.cross_entropy(model(input_ids=rows).logits[:, :-1].mT, rows[:, 1:])
        texts = task.generations(self.definition).texts
        read = judge_of(task).score(["The"], ["cat sat on the mat"]).nll
        written, is_left = zlib.crc32("\n".join(texts).encode()), task.tokenizer.padding_side == "left"
        numbers = {"nll": nll, "read": np.sum(read[0]), "shared": share(task)["x"].sum(), "written": written}
        numbers |= {"padding": is_left, "dtype": torch.tensor(0.1).double()}
        numbers |= {"gradients": torch.ones(1, requires_grad=True).mul(1).requires_grad}
        return Evaluation({name: float(number) for name, number in numbers.items()})
