"""Cost of scoring all of a model's blocks layer by layer, against differentiating the whole model at once.

    python -m benchmarks.selection [--model ID] [--sequences N] [--micro-batch N] [--repeats N]

Both ways give the gradients of EMSO's two losses in every block, of one global batch, and score them; they run in one
process on the same model, in turn, `--repeats` times, and seconds are medians. Memory is counted, on fake tensors, as
`--plan` counts it: the model, and the most that lies beside it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial

import torch

from benchmarks.measuring import Ratio, medians, seconds_of
from harness.contracts import Model, Training
from harness.data.sequences import load_forget
from harness.models.blocks import Block, blocks
from harness.models.loading import load_model, load_tokenizer, unloaded_model, vocabulary
from harness.models.resolving import resolve_model
from harness.planning.memory import MemoryTracker, weights_bytes
from harness.settings import Source
from harness.toolkit import Batch, token_negative_entropy, token_nll
from harness.toolkit.finetune import micro_batches
from methods.emso import EMSO


def main(argv: Sequence[str] | None = None) -> list[Ratio]:
    """Print seconds, bytes and ratios, and how far the scores differ; return the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="miniature-m")
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args(argv)
    checkpoint = resolve_model(arguments.model, None)
    source = Source(source="miniature", sequences=arguments.sequences, sequence_tokens=128, prefix_tokens=64)
    texts = load_forget(source, load_tokenizer(checkpoint), vocabulary(checkpoint))
    training = Training(global_batch=len(texts), micro_batch=arguments.micro_batch)
    batches = micro_batches(texts, torch.arange(len(texts)), training, torch.device("cpu"))
    ways: dict[str, Callable[[Model, Sequence[Batch]], dict[str, float]]] = {
        "the whole model": _whole,
        "layer by layer": _by_layer,
    }
    model = load_model(checkpoint)
    scores = {name: way(model, batches) for name, way in ways.items()}
    timed = {name: partial(seconds_of, partial(way, model, batches)) for name, way in ways.items()}
    seconds = medians(timed, arguments.repeats)
    peaks, weights = {}, weights_bytes(checkpoint)
    for name, way in ways.items():
        with MemoryTracker() as tracker:
            way(tracker.loading(lambda: unloaded_model(checkpoint)), batches)
        peaks[name] = tracker.peak
    whole, by_layer = scores.values()
    apart = max(abs(whole[name] - by_layer[name]) for name in whole)
    print(f"{len(texts)} sequences of 128 tokens, {len(batches)} micro-batches, {torch.get_num_threads()} threads")
    rival_seconds, rival_peak = (next(iter(costs.values())) for costs in (seconds, peaks))
    for name in ways:
        times, ratio = seconds[name] / rival_seconds, peaks[name] / rival_peak
        print(f"{name:16} {seconds[name]:7.3f} s = {times:4.2f} x   {peaks[name] / 1e6:8.1f} MB = {ratio:4.2f} x")
    print(f"M differs by {apart:g} at most; the same order: {_order(whole) == _order(by_layer)}")
    return [
        Ratio("seconds, layer by layer by whole", times, "1.3 at most, as agreed"),
        Ratio("memory, layer by layer by whole", ratio, f"{weights / rival_peak:.2f}: the weights alone"),
    ]


def _order(scores: dict[str, float]) -> list[str]:
    return sorted(scores, key=lambda name: scores[name])


def _by_layer(model: Model, batches: Sequence[Batch]) -> dict[str, float]:
    """Return M of every block, as EMSO selects."""
    _, notes = EMSO(k=len(blocks(model))).choose(model, batches, torch.Generator())
    return {entry["block"]: entry["m"] for entry in notes["selected_blocks"]}


def _whole(model: Model, batches: Sequence[Batch]) -> dict[str, float]:
    """Return M of every block, out of gradients of the whole model."""
    candidates = blocks(model)
    weights = {name: model.get_parameter(name) for name in dict.fromkeys(block.parameter for block in candidates)}
    model.requires_grad_(False)
    for weight in weights.values():
        weight.requires_grad_(True)
    sums = [{name: torch.zeros_like(weight) for name, weight in weights.items()} for _ in range(2)]
    for batch in batches:
        _add(model, batch, weights, sums)
    return {block.name: _score(sums, block) for block in candidates}


def _add(
    model: Model, batch: Batch, weights: dict[str, torch.nn.Parameter], sums: list[dict[str, torch.Tensor]]
) -> None:
    logits = batch.logits(model)
    losses = (batch.mean(token_nll(logits, batch.targets_BS)), batch.mean(token_negative_entropy(logits)))
    for loss, totals, is_last in zip(losses, sums, (False, True), strict=True):
        gradients = torch.autograd.grad(loss, list(weights.values()), retain_graph=not is_last)
        for total, gradient in zip(totals.values(), gradients, strict=True):
            total += gradient


def _score(sums: list[dict[str, torch.Tensor]], block: Block) -> float:
    return EMSO().score(sums[0], sums[1], block)["m"]


if __name__ == "__main__":
    main()
