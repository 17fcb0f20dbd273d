"""An evaluator that harms what it shares with others, each way a setting; its numbers show what was harmed."""

import copy
import faulthandler
import functools
import gc
import importlib
import io
import locale
import logging
import math
import os
import random
import signal
import socket
import sys
import threading
import warnings
import zlib
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.modules import module as hooks
from torch.optim import optimizer

from harness.contracts import Evaluation, Evaluator, Metric
from harness.toolkit import CausalJudge

ENTERED = []
OPEN = os.pipe()
os.set_blocking(OPEN[1], False)


def flip(tensor):
    """Turn round the lowest bit of the first element."""
    tensor.detach().view(-1)[:1].view(torch.int32)[0] ^= 1


def swap(tensor):
    flat = tensor.detach().view(-1)
    flat[:2] = flat[:2].flip(0)


def scaled(model, task):
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5)


def leave_gradients(model, task):
    model(input_ids=task.forget.tokens_NT[:1]).logits.sum().backward()


def write_then_cache(model, task):
    task.forget.tokens_NT.fill_(5)
    share(task)


def mask_then_cache(model, task):
    os.umask(0o777)
    share(task)


def cache_then_write(model, task):
    share(task)
    task.forget.tokens_NT.fill_(5)


def share(task):
    """Return an array that all evaluators share, of the forget set's tokens."""
    return task.cached(("mean_token", task.forget.digest), lambda: {"x": task.forget.tokens_NT.numpy().mean(axis=1)})


def write_into_array(model, task):
    share(task)["x"][:] = -1.0


def first_weight(model):
    return next(model.parameters())


def judge_of(task):
    return task.judge("perplexity", CausalJudge)


def generate_in_float64(model, task):
    torch.set_default_dtype(torch.float64)
    task.generations("exact")


def generate_in_bf16(model, task):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        task.generations("exact")


def load_judge_in_inference_mode(model, task):
    with torch.inference_mode():
        judge_of(task)


def enter_inference_mode(model, task):
    ENTERED.append(torch.inference_mode())  # It is left when nobody holds it.
    ENTERED[-1].__enter__()


def pad(model, task):
    task.tokenizer.padding_side = "left"
    task.tokenizer.pad_token = "x"


def raise_after_harm(model, task):
    flip(first_weight(judge_of(task)._model))
    raise RuntimeError("a bug in the plugin")


def zeros(module, inputs, output):
    """What a hook may make of any output."""
    return output * 0 if isinstance(output, torch.Tensor) else None


def zeroed(function):
    """Return the function, whose tensors are zero."""

    @functools.wraps(function)
    def wrapper(*values, **named):
        output = function(*values, **named)
        if isinstance(output, torch.Tensor):
            return output * 0
        if hasattr(output, "logits"):
            output.logits = output.logits * 0
        return output

    return wrapper


def patch(holder, name, function):
    setattr(holder, name, function)


def with_a_hook(model, task):
    handle = hooks.register_module_forward_hook(zeros)
    handle.remove()


def in_c():
    return locale.setlocale(locale.LC_ALL) == "C"


def import_what_sets_a_variable(model, task):
    """As libraries do: scikit-learn has two such variables."""
    importlib.import_module("hostile.setting")


REFUSED = {
    "scaled": (scaled, "weights"),
    "flipped": (lambda model, task: flip(first_weight(model)), "weights"),
    "swapped": (lambda model, task: swap(first_weight(model)), "weights"),
    "a buffer": (lambda model, task: next(model.buffers()).fill_(True), "weights"),
    "another head": (lambda model, task: setattr(model, "lm_head", copy.deepcopy(model.lm_head)), "weights (lm_head"),
    "mode": (lambda model, task: model.train(), "mode (transformer"),
    "a mode within": (lambda model, task: model.transformer.drop.train(), "mode (transformer.drop)"),
    "a hook": (
        lambda model, task: model.transformer.wte.register_forward_hook(lambda *_: None),
        "hooks (transformer.wte)",
    ),
    "forward": (lambda model, task: setattr(model, "forward", lambda **_: None), "modules"),
    "generate": (lambda model, task: setattr(model, "generate", lambda **_: None), "modules"),
    "gradients": (leave_gradients, "gradients"),
    "requires_grad": (lambda model, task: model.requires_grad_(False), "requires_grad"),
    "config": (lambda model, task: setattr(model.config, "use_cache", False), "config (use_cache)"),
    "forget": (lambda model, task: task.forget.tokens_NT.fill_(5), "task.forget (tokens_NT)"),
    "forget, then an array": (write_then_cache, "task.forget"),
    "an array, then forget": (cache_then_write, "task.forget"),
    "lengths": (lambda model, task: task.forget.lengths_N.sub_(1), "task.forget (lengths_N)"),
    "a judge": (lambda model, task: flip(first_weight(judge_of(task)._model)), "the judge miniature-judge's weights"),
    "settings": (lambda model, task: task.spec.settings.update(k=9), "the trial's (settings)"),
}
"""What fails the evaluator, and the words that say what it changed."""
RAISING = {"raises": raise_after_harm}
PUT_BACK = {
    "grad": lambda model, task: torch.set_grad_enabled(False),
    "inference": enter_inference_mode,
    "dtype": lambda model, task: torch.set_default_dtype(torch.float64),
    "device": lambda model, task: torch.set_default_device("meta"),
    "autocast": lambda model, task: torch.autocast("cpu", dtype=torch.bfloat16).__enter__(),
    "deterministic": lambda model, task: torch.use_deterministic_algorithms(True),
    "matmul": lambda model, task: torch.set_float32_matmul_precision("medium"),
    "threads": lambda model, task: torch.set_num_threads(torch.get_num_threads() + 1),
    "cudnn": lambda model, task: setattr(torch.backends.cudnn, "benchmark", True),
    "torch seed": lambda model, task: torch.manual_seed(1),
    "numpy seed": lambda model, task: np.random.seed(1),
    "python seed": lambda model, task: random.seed(1),
    "numpy errors": lambda model, task: np.seterr(all="raise"),
    "directory": lambda model, task: os.chdir("/"),
    "precision": lambda model, task: torch.set_float32_matmul_precision("medium"),
    "another precision": lambda model, task: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"),
    "cudnn precision": lambda model, task: setattr(torch.backends.cudnn, "allow_tf32", False),
    "reductions": lambda model, task: setattr(torch.backends.cuda.matmul, "allow_fp16_accumulation", True),
    "attention": lambda model, task: torch.backends.cuda.enable_flash_sdp(False),
    "onednn": lambda model, task: torch.backends.mkldnn.set_flags(False),
    "denormals": lambda model, task: torch.set_flush_denormal(True),
    "anomalies": lambda model, task: torch.autograd.set_detect_anomaly(True),
    "hook before forward": lambda model, task: hooks.register_module_forward_pre_hook(lambda *_: None),
    "hook on forward": lambda model, task: hooks.register_module_forward_hook(zeros),
    "hook always": lambda model, task: hooks.register_module_forward_hook(zeros, always_call=True),
    "hook on backward": lambda model, task: hooks.register_module_full_backward_hook(lambda *_: None),
    "hook on buffers": lambda model, task: hooks.register_module_buffer_registration_hook(lambda *_: None),
    "hook on steps": lambda model, task: optimizer.register_optimizer_step_pre_hook(lambda *_: None),
    "forward of a class": lambda model, task: patch(type(model), "forward", zeroed(type(model).forward)),
    "forward of all classes": lambda model, task: patch(torch.nn.Module, "__call__", zeroed(torch.nn.Module.__call__)),
    "generate of a class": lambda model, task: patch(type(model), "generate", None),
    "a function of torch": lambda model, task: patch(torch, "softmax", None),
    "a function of tensors": lambda model, task: patch(torch.Tensor, "add", None),
    "a loss": lambda model, task: patch(
        torch.nn.functional, "cross_entropy", zeroed(torch.nn.functional.cross_entropy)
    ),
    "a judge's class": lambda model, task: patch(CausalJudge, "score", None),
    "a function that goes": lambda model, task: delattr(type(model), "forward"),
    "a new variable": lambda model, task: os.environ.update(HOSTILE="1"),
    "another variable": lambda model, task: os.environ.update(PATH="/nowhere"),
    "no variable": lambda model, task: os.environ.pop("PATH"),
    "umask, then an array": mask_then_cache,
    "umask": lambda model, task: os.umask(0o777),
    "locale": lambda model, task: locale.setlocale(locale.LC_ALL, "C.utf8" if in_c() else "C"),
    "handler": lambda model, task: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "alarm's handler": lambda model, task: signal.signal(signal.SIGALRM, lambda *_: None),
    "pipe of signals": lambda model, task: signal.set_wakeup_fd(OPEN[1], warn_on_full_buffer=False),
    "blocked signals": lambda model, task: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}),
    "timer": lambda model, task: signal.setitimer(signal.ITIMER_PROF, 3600),
    "alarm": lambda model, task: signal.alarm(3600),
    "crash reports": lambda model, task: (faulthandler.disable if faulthandler.is_enabled() else faulthandler.enable)(),
    "stdout": lambda model, task: setattr(sys, "stdout", io.StringIO()),
    "excepthook": lambda model, task: setattr(threading, "excepthook", lambda *_: None),
    "tracing": lambda model, task: sys.settrace(lambda *_: None),
    "profiling": lambda model, task: sys.setprofile(lambda *_: None),
    "collector": lambda model, task: gc.disable(),
    "recursion": lambda model, task: sys.setrecursionlimit(sys.getrecursionlimit() + 1),
    "warnings": lambda model, task: warnings.filterwarnings("error", category=PendingDeprecationWarning),
    "logging": lambda model, task: logging.disable(logging.CRITICAL),
    "sockets": lambda model, task: socket.setdefaulttimeout(0.001),
    "generations in float64": generate_in_float64,
}
HARMLESS = {
    "none": lambda model, task: None,
    "generations in bf16": generate_in_bf16,
    "a judge in inference mode": load_judge_in_inference_mode,
    "tokenizer": pad,
    "an array": write_into_array,
    "a hook while it runs": with_a_hook,
    "a library's variable": import_what_sets_a_variable,
    "a class of its own": lambda model, task: patch(type("Own", (torch.nn.Linear,), {}), "forward", None),
    "a filter of warnings": lambda model, task: warnings.filterwarnings("ignore", message="hostile"),
}

HARMS = {**{name: harm for name, (harm, _) in REFUSED.items()}, **RAISING, **PUT_BACK, **HARMLESS}


def metric(name):
    return Metric(
        name=name, title=name, better="lower", unit="none", low=0.0, high=math.inf, group="generation", source="none",
        ranked=False,
    )  # fmt: skip


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
        numbers = {
            "nll": float(nll),
            "read": float(np.sum(read[0])),
            "shared": float(share(task)["x"].sum()),
            "written": float(zlib.crc32("\n".join(texts).encode())),
            "padding": float(task.tokenizer.padding_side == "left"),
            "dtype": float(torch.tensor(0.1).double()),
            "gradients": float(torch.ones(1, requires_grad=True).mul(1).requires_grad),
        }
        return Evaluation(numbers)
