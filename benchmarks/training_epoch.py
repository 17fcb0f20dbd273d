"""Seconds of an epoch of Lethe's training loop against one of transformers' Trainer, and a plain loop of torch's.

    python -m benchmarks.training_epoch [--model ID] [--sequences N] [--repeats N]

All take the same steps: AdamW on all weights, the NLL of all tokens, 16 sequences a step, in fp32, without a schedule.
They run in one process on the same model, in turn, `--repeats` times; seconds are medians. Lethe's loop reads no
validation text here, and Trainer logs, saves and evaluates nothing. Each takes the texts in an order of its own, so
that their weights differ a little. The plain loop takes the time of the arithmetic.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.measuring import Ratio, medians, seconds_of
from harness.contracts import Model, Sequences, Training
from harness.data.sequences import load_forget
from harness.models.loading import load_model, load_tokenizer, vocabulary
from harness.models.resolving import resolve_model
from harness.settings import Engine, Source
from harness.toolkit import nll_loss, train

TRAINING = Training(learning_rate=1e-5, global_batch=16, micro_batch=16, early_stop=None)


def main(argv: Sequence[str] | None = None) -> list[Ratio]:
    """Print seconds and ratios, and how far the trained weights differ; return the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="miniature-m")
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args(argv)
    checkpoint = resolve_model(arguments.model, None)
    source = Source(source="miniature", sequences=arguments.sequences, sequence_tokens=128, prefix_tokens=64)
    texts = load_forget(source, load_tokenizer(checkpoint), vocabulary(checkpoint))
    trained: dict[str, Model] = {}

    def on_a_copy(name: str) -> float:
        trained[name] = load_model(checkpoint)
        return WAYS[name](trained[name], texts)

    seconds = medians({name: partial(on_a_copy, name) for name in WAYS}, arguments.repeats)
    print(f"{len(texts)} sequences of 128 tokens, one epoch, {torch.get_num_threads()} threads")
    for name, median in seconds.items():
        apart = _apart(trained[name], trained["Lethe"])
        print(f"{name:14} {median:7.3f} s = {median / seconds['Lethe']:5.2f} x; weights differ by {apart:.1e} at most")
    limit = f"{seconds['Trainer'] / seconds['a plain loop']:.2f}: against the plain loop"
    return [Ratio("an epoch of Trainer's", seconds["Trainer"] / seconds["Lethe"], limit)]


def _lethe(model: Model, texts: Sequences) -> float:
    about = {"forget": texts, "retain": None, "training": TRAINING, "engine": Engine()}
    task: Any = SimpleNamespace(seed=0, progress=lambda message: None, **about)
    return seconds_of(lambda: list(train(task, model, nll_loss, 1)))


def _plain(model: Model, texts: Sequences) -> float:
    return seconds_of(lambda: _steps(model, texts))


def _steps(model: Model, texts: Sequences) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=TRAINING.learning_rate, weight_decay=0.0)
    for tokens_BT in texts.tokens_NT.split(TRAINING.global_batch):
        model(input_ids=tokens_BT, labels=tokens_BT).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def _trainer(model: Model, texts: Sequences) -> float:
    from transformers import PrinterCallback, Trainer, TrainingArguments

    rows = [{"input_ids": row, "labels": row} for row in texts.tokens_NT]
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder, per_device_train_batch_size=TRAINING.global_batch, num_train_epochs=1,
            learning_rate=TRAINING.learning_rate, lr_scheduler_type="constant", weight_decay=0.0, max_grad_norm=0.0,
            optim="adamw_torch", save_strategy="no", logging_strategy="no", report_to=[], disable_tqdm=True,
            use_cpu=True,
        )  # fmt: skip
        trainer = Trainer(model=model, args=settings, train_dataset=rows, data_collator=_together)
        trainer.remove_callback(PrinterCallback)
        return seconds_of(trainer.train)


def _together(rows: list[dict[str, torch.Tensor]]) -> dict[str, Any]:
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


WAYS = {"Lethe": _lethe, "a plain loop": _plain, "Trainer": _trainer}


def _apart(one: Model, other: Model) -> float:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((left - right).abs().max().detach()) for left, right in pairs)


if __name__ == "__main__":
    main()
