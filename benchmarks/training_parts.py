"""What the parts of a method's training cost, used and unused, against a plain loop of torch's.

    python -m benchmarks.training_parts [--model ID] [--sequences N] [--repeats N]

The plain loop makes the same steps: AdamW on all weights, gradient difference's loss, the same batches. All ways run in
one process on the same model, in turn, `--repeats` times; a ratio is that of the medians. "no parts" is what a method
pays for parts that it does not use.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from benchmarks.measuring import Ratio, medians, seconds_of
from harness.contracts import Model, Sequences, Training
from harness.data.sequences import load_forget
from harness.models.loading import load_model, load_tokenizer, vocabulary
from harness.models.resolving import resolve_model
from harness.specs import Engine, Source
from harness.toolkit import Batch, LossTerms, WeightMasks, mean_nll, mlp_matrices, nll_loss, train
from harness.toolkit.finetune import micro_batches

TRAINING = Training(learning_rate=1e-5, global_batch=16, micro_batch=16, early_stop=None)


UNUSED = "1: the same arithmetic"
LIMITS = {
    "no parts": UNUSED,
    "LossTerms": UNUSED,
    "after_step": UNUSED,
    "rows": UNUSED,
    "beside": "1.17: a forward pass beside two trained ones",
    "gradient": UNUSED,
}
"""What each way would cost at best."""


@dataclass
class Task:
    """As much of a task as training asks for."""

    forget: Sequences
    retain: Sequences
    training: Training = TRAINING
    engine: Engine = field(default_factory=Engine)
    seed: int = 0

    def validation_perplexity(self, model: Model) -> float:
        """Return a number: nothing is measured here."""
        return 1.0

    def progress(self, message: str) -> None:
        """Say nothing."""


def main(argv: Sequence[str] | None = None) -> list[Ratio]:
    """Print seconds and ratios; return the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="miniature-m")
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args(argv)
    checkpoint = resolve_model(arguments.model, None)
    source = Source(source="miniature", sequences=2 * arguments.sequences, sequence_tokens=128, prefix_tokens=64)
    texts = load_forget(source, load_tokenizer(checkpoint), vocabulary(checkpoint))
    task = Task(_rows(texts, 0, arguments.sequences), _rows(texts, arguments.sequences, 2 * arguments.sequences))
    ways: dict[str, Callable[[Model], None]] = {
        "a plain loop": lambda model: _plain(model, task),
        "no parts": lambda model: _train(model, task, difference),
        "LossTerms": lambda model: _train(model, task, TERMS),
        "after_step": lambda model: _train(model, task, TERMS, after_step=lambda values: None),
        "rows": lambda model: _train(model, task, difference, rows=lambda model, epoch: range(len(task.forget))),
        "beside": lambda model: _train(model, task, beside_too, beside=task.retain),
        "gradient": lambda model: _train(model, task, TERMS, gradient=_added),
        "trains, the MLPs": lambda model: _train(model, task, difference, trains=_names(model)),
        "trains, masks of the MLPs": lambda model: _train(
            model, task, difference, trains=WeightMasks(model, _names(model), dropped=0.01, seed=0)
        ),
    }

    def on_a_copy(name: str) -> float:
        model = load_model(checkpoint)
        return seconds_of(lambda: ways[name](model))

    seconds = medians({name: partial(on_a_copy, name) for name in ways}, arguments.repeats)
    print(f"{len(task.forget)} sequences of 128 tokens, one epoch, {torch.get_num_threads()} threads")
    ratios = {name: median / seconds["a plain loop"] for name, median in seconds.items()}
    for name, ratio in ratios.items():
        print(f"{name:28} {seconds[name]:7.3f} s = {ratio:5.2f} x")
    return [Ratio(f"{name}, by a plain loop", ratios[name], limit) for name, limit in LIMITS.items()]


def _rows(texts: Sequences, start: int, stop: int) -> Sequences:
    return Sequences(texts.tokens_NT[start:stop], texts.lengths_N[start:stop], texts.prefix_tokens, "")


def _names(model: Model) -> list[str]:
    return [matrix.parameter for matrix in mlp_matrices(model)]


def ascent(model: Model, forget: Batch) -> torch.Tensor:
    """Return −NLL on the forget set."""
    return -mean_nll(model, forget)


TERMS = LossTerms(ascent, mean_nll)


def difference(model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
    """Return gradient difference's loss."""
    return ascent(model, forget) + mean_nll(model, retain)


def beside_too(model: Model, forget: Batch, retain: Batch, beside: Batch) -> torch.Tensor:
    """Return the same, and read a third text without a gradient."""
    with torch.no_grad():
        nll_loss(model, beside, beside)
    return difference(model, forget, retain)


def _added(step):
    forget, retain = step.gradient("forget"), step.gradient("retain")
    return {name: forget[name] + retain[name] for name in forget}


def _train(model, task, loss, **parts):
    for _ in train(task, model, loss, 1, **parts):
        pass


def _plain(model: Model, task: Task) -> None:
    """Take the same steps without the loop of the harness."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=TRAINING.learning_rate, weight_decay=TRAINING.weight_decay)
    order = torch.randperm(len(task.forget), generator=torch.Generator().manual_seed(0))
    for rows in order.split(TRAINING.global_batch):
        [forget] = micro_batches(task.forget, rows, TRAINING, torch.device("cpu"))
        [retain] = micro_batches(task.retain, rows, TRAINING, torch.device("cpu"))
        difference(model, forget, retain).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
