"""A method that harms what it shares with others, each way a setting."""

import asyncio
import random
import sys
from dataclasses import dataclass

import torch

from harness.contracts import Count, Method, Strength
from harness.errors import WorkerDiedError
from harness.settings import replace
from harness.toolkit import token_nll, train_and_yield


def write_into_forget(task):
    task.forget.tokens_NT[0, :4] = 7


HARMS = {
    "forget": write_into_forget,
    "another forget set": lambda task: setattr(task, "forget", replace(task.forget, prefix_tokens=2)),
    "retain": lambda task: task.retain.tokens_NT.fill_(3),
    "seed": lambda task: setattr(task, "seed", 5),
}


def cancel(task):
    raise asyncio.CancelledError


def say_that_a_worker_died(task):
    raise WorkerDiedError("Ann Lee")


ENDINGS = {"exits": lambda task: sys.exit(3), "cancels": cancel, "says that a worker died": say_that_a_worker_died}
"""What would end the process."""
QUIET = ("none", "late", "random", "yields without gradients")


@dataclass(frozen=True, kw_only=True)
class HarmfulMethod(Method):
    """Gradient ascent with bad manners."""

    label = "Harm"
    source = "none"
    reference = "retain_data"
    version = 1
    strength = Strength("epochs", cumulative=True, off=0)

    epochs: Count = 1
    harm: str = "none"

    def loss(self, model, forget, retain):
        return -forget.mean(token_nll(forget.logits(model), forget.targets_BS))

    def erase(self, task):
        assert self.harm in (*HARMS, *ENDINGS, *QUIET)
        if self.harm in HARMS or self.harm in ENDINGS:
            {**HARMS, **ENDINGS}[self.harm](task)
        for erased in train_and_yield(task, task.load_original(), self.loss):
            if self.harm == "random":
                random.random()
            if self.harm == "yields without gradients":
                with torch.no_grad(), torch.inference_mode():
                    yield erased
                    assert torch.is_inference_mode_enabled(), "it finds the state that it left"
            else:
                yield erased
        if self.harm == "late":
            task.forget.lengths_N[0] -= 1
