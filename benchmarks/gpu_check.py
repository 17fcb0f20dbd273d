"""Checks for which a GPU is necessary: the plan's memory, bf16's numbers, speed, and ZeRO, in about twenty minutes.

    python -m benchmarks.gpu_check [--folder FOLDER] [--minutes N]

It writes gpu_check_<card>.md, and ends with 1 if something raised, a number was not finite, or ZeRO trained to other
weights. What the plan told wrong is in the page alone.
"""

from __future__ import annotations

import argparse
import gc
import math
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.utils import parameters_to_vector
from transformers import GPTNeoConfig, LlamaConfig

from benchmarks.measuring import seconds_of
from harness.base.files import write_whole
from harness.contracts import Checkpoint, ErasedModel, Model, Precision, Sequences, Training
from harness.models.loading import unloaded_model
from harness.planning.machine import hardware, versions
from harness.planning.memory import bytes_on_engine, measuring_bytes, rehearse_deep, weights_bytes
from harness.plugins import METHODS
from harness.settings import DeepSpeed, Engine, MemorizedModel, Source, Trial, replace
from harness.toolkit.decoding import greedy_choices, greedy_continuations
from harness.toolkit.finetune import train
from harness.toolkit.losses import nll_loss
from harness.toolkit.scoring import own_perplexity

NO_GPU = "make gpu-check needs an NVIDIA GPU of 24 GB or more that torch can compute on, and torch sees none here."
SEED, PASSES = 0, 40
"""The latter over the texts before precisions are compared: the choices of random weights are all near ties."""
LOSS_TOLERANCE, WEIGHT_TOLERANCE = 1e-4, 0.05
"""The latter of the way that weights moved: AdamW's first steps are as long for rounding noise as for a gradient."""
DTYPES: Mapping[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}
LEGEND = """
Models are random: nothing here is about a method's erasure.

- MB: the most that tensors hold in an epoch, or while every prefix is continued. It should be the plan's estimate.
- perplexity, choices of each token: with bf16 parameters. They should be as with fp32.
- tokens a second: at most what a large matrix product reached, without attention's own products. Stepping: continuing
  every prefix, less reading. In bf16 training is autocast's.
- ZeRO: an epoch of gradient ascent, one worker, by the plain engine's; "weights apart" by how far that one moved them.
"""
Row = tuple[str, ...]


def gpt_neo(hidden: int, layers: int, heads: int) -> Any:
    """Return the configuration of a GPT-Neo, whose attention alternates between global and local."""
    kinds = [[["global", "local"], layers // 2]]
    return GPTNeoConfig(hidden_size=hidden, num_layers=layers, num_heads=heads, attention_types=kinds)


TINY_LLAMA = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32}
SHAPES: Mapping[str, Callable[[], Any]] = {
    "gpt-neo-125m": partial(gpt_neo, 768, 12, 12),
    "llama-1.1b": partial(LlamaConfig, **TINY_LLAMA, num_key_value_heads=4),
    "gpt-neo-1.3b": partial(gpt_neo, 2048, 24, 16),
    "gpt-neo-2.7b": partial(gpt_neo, 2560, 32, 20),
}


@dataclass(frozen=True)
class Bench:
    """A GPU, or a CPU that stands in for one, and how much is done on it with each model."""

    device: torch.device
    name: str
    folder: Path
    shapes: Mapping[str, Callable[[], Any]]
    sequences: int = 24
    tokens: int = 200

    def checkpoint(self, shape: str) -> Checkpoint:
        """Return a shape's checkpoint: a folder with a configuration alone."""
        folder = self.folder / shape
        self.shapes[shape]().save_pretrained(folder)
        return Checkpoint(shape, str(folder), str(folder), shape)

    def model(self, shape: str) -> Model:
        """Return a shape's model with random fp32 weights, made on the device; the same each time."""
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []), self.device:
            torch.manual_seed(SEED)
            return unloaded_model(self.checkpoint(shape))

    def texts(self, shape: str, seed: int) -> Sequences:
        """Return random tokens, the same for the same seed."""
        size, random = (self.sequences, self.tokens), torch.Generator().manual_seed(seed)
        tokens_NT = torch.randint(self.shapes[shape]().vocab_size, size, generator=random)
        return Sequences(tokens_NT, torch.full((len(tokens_NT),), self.tokens), self.tokens // 2, "")

    def spec(self, shape: str, method: str, precision: Precision = "fp32", zero_stage: int = 0) -> Trial:
        """Return the trial that the method would be on this device, without anything that measures it."""
        plugin = METHODS.load(method)
        reference = plugin(**{plugin.strength.field: plugin.strength.off}).reference
        text = Source(source="jsonl", rows=self.sequences, longest=self.tokens, prefix_tokens=self.tokens // 2)
        return Trial(
            trial_id="gpu-check", sweep="gpu-check", variant=method, method=method, label=plugin.label, seed=SEED,
            reference=reference, settings={}, method_version=plugin.version, strength_name=plugin.strength.field,
            strengths=(1,), model=self.checkpoint(shape), evaluators=(), gpus=float(self.device.type == "cuda"),
            training=Training(learning_rate=1e-4, global_batch=8, micro_batch=4, precision=precision, early_stop=None),
            memorization=MemorizedModel(epochs=1, learning_rate=1e-4, global_batch=8, gate=0.0), judges={},
            engine=Engine(deepspeed=DeepSpeed(zero_stage=zero_stage)) if zero_stage else Engine(),
            forget=text, retain=text if reference == "retain_data" else None, utility=text, validation=text,
        )  # fmt: skip

    def peak(self, run: Callable[[], Any]) -> tuple[Any, int]:
        """Return `run`'s result, and the peak of tensors' bytes, by torch's counters."""
        gc.collect()
        base = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return run(), torch.cuda.max_memory_allocated() - base

    def seconds(self, run: Callable[[], object]) -> float:
        """Return the seconds of `run`, until the device is done with it; the first time loads kernels."""
        wait = torch.get_device_module(self.device).synchronize
        return [seconds_of(lambda: (run(), wait())) for _ in range(2)][1]


def task_of(bench: Bench, shape: str, spec: Trial) -> Any:
    """Return an `ErasureTask` on a random model and random texts, without a tokenizer and a memorised model."""
    return SimpleNamespace(
        seed=SEED, training=spec.training, engine=spec.engine, strengths=spec.strengths, forget=bench.texts(shape, 1),
        retain=bench.texts(shape, 2) if spec.retain else None, load_original=partial(bench.model, shape),
        validation_perplexity=lambda model: own_perplexity(model, bench.texts(shape, 3)), progress=lambda message: None,
    )  # fmt: skip


def erased(bench: Bench, shape: str, spec: Trial) -> tuple[ErasedModel, Row]:
    """Return the model that a trial makes, and a row of what tensors held at most; refuse a note that is not finite."""
    task, method = task_of(bench, shape, spec), METHODS.configure(spec.method, {spec.strength_name: spec.strengths[-1]})
    (*_, result), peak = bench.peak(lambda: list(method.erase(task)))
    if names := [name for name, value in result.notes.items() if isinstance(value, float) and not math.isfinite(value)]:
        raise ValueError(f"not finite: {', '.join(names)}.")
    estimate = bytes_on_engine(spec, rehearse_deep(spec))
    what = f"MB of {spec.method}" if spec.engine == Engine() else f"MB of {spec.method}, {spec.engine}"
    return result, row(what, shape, spec.training.precision, estimate / 1e6, peak / 1e6)


def row(what: str, shape: str, precision: str, target: float, measured: float) -> Row:
    """Return a row of the page; refuse a number that is not finite."""
    if not math.isfinite(measured):
        raise ValueError(f"{what} is {measured}, and should be {target:.5g}.")
    cells = [f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.5g}" for value in (target, measured)]
    return what, shape, precision, *cells, f"{100 * measured / target:.3f} %"


def speed_row(bench: Bench, shape: str, what: str, precision: Precision, tokens: int, seconds: float) -> Row:
    """Return the tokens a second, against those of a product of two large square matrices."""
    side = 8192 if bench.device.type == "cuda" else 256
    matrix = torch.randn(side, side, device=bench.device, dtype=DTYPES[precision])
    flops_per_second = 2 * side**3 / min(bench.seconds(lambda: matrix @ matrix) for _ in range(5))
    # For each parameter a product and a sum; in training backward too, for inputs and for weights.
    flops_per_token = (6 if what == "training" else 2) * weights_bytes(bench.checkpoint(shape)) / 4
    return row(f"{what}, tokens a second", shape, precision, flops_per_second / flops_per_token, tokens / seconds)


def erasing_rows(bench: Bench, shape: str, spec: Trial) -> Iterator[Row]:
    """Yield a method's memory, and gradient ascent's speed in a second epoch: the first loads kernels."""
    yield erased(bench, shape, spec)[1]
    if spec.method == "gradient_ascent":
        seconds: Any = erased(bench, shape, replace(spec, strengths=(2,)))[0].notes["epoch_seconds"]
        yield speed_row(bench, shape, "training", spec.training.precision, bench.sequences * bench.tokens, seconds)


def measuring_rows(bench: Bench, shape: str, precision: Precision) -> Iterator[Row]:
    """Yield the memory and the speed of reading texts and continuing every prefix."""
    texts, spec = bench.texts(shape, 1), bench.spec(shape, "gradient_ascent")
    every = [range(1, bench.tokens)] * len(texts)
    if precision == "fp32":
        peak = bench.peak(lambda: greedy_continuations(bench.model(shape), texts, every))[1]
        need = measuring_bytes(spec, weights_bytes(spec.model))
        yield row("MB of measuring", shape, precision, need / 1e6, peak / 1e6)
    model = lowered(bench.model(shape), precision)
    reading = bench.seconds(lambda: greedy_choices(model, texts))
    yield speed_row(bench, shape, "reading", precision, texts.tokens_NT.numel(), reading)
    # The choice at a mismatch is known from reading; later ones are stepped.
    stepped = sum(bench.tokens - at - 1 for _, at in greedy_continuations(model, texts, every).rows)
    both = bench.seconds(lambda: greedy_continuations(model, texts, every))
    yield speed_row(bench, shape, "stepping", precision, stepped, max(both - reading, 1e-9))


def lowered(model: Model, precision: Precision) -> Model:
    """Round a model's parameters in place; buffers, as of rotary positions, stay as they are."""
    for weight in model.parameters():
        weight.data = weight.data.to(DTYPES[precision])
    return model


def precision_rows(bench: Bench, shape: str, passes: int) -> Iterator[Row]:
    """Yield the changes of bf16 in perplexity and in teacher-forced choices."""
    task = task_of(bench, shape, bench.spec(shape, "gradient_ascent"))
    texts, model = task.forget, task.load_original()
    list(train(task, model, nll_loss, passes))
    pairs = [(own_perplexity(lowered(model, each), texts), greedy_choices(model, texts)[:, 1:]) for each in DTYPES]
    perplexities, (choices_NT, low_NT) = zip(*pairs, strict=True)
    yield row(f"perplexity after {passes} passes", shape, "bf16", *perplexities)
    yield row(f"choices kept after {passes} passes", shape, "bf16", low_NT.numel(), int((choices_NT == low_NT).sum()))


def zero_rows(bench: Bench, shape: str, stage: int) -> Iterator[Row]:
    """Yield losses and weights of ZeRO after one epoch, against the plain engine's; refuse other losses and weights."""
    vectors, notes = [parameters_to_vector(bench.model(shape).parameters()).detach().cpu()], list[Any]()
    for spec in (bench.spec(shape, "gradient_ascent", zero_stage=each) for each in (0, stage)):
        result, memory = erased(bench, shape, spec)
        vectors.append(parameters_to_vector(result.model.parameters()).detach().cpu())
        notes.append(result.notes)
    moved, apart = (float((vectors[1] - vectors[other]).double().norm()) for other in (0, 2))
    losses = [float(each["loss_mean"]) for each in notes]
    yield memory
    yield row(f"ZeRO-{stage}, seconds", shape, "fp32", *(each["epoch_seconds"] for each in notes))
    yield row(f"ZeRO-{stage}, mean loss", shape, "fp32", *losses)
    yield row(f"ZeRO-{stage}, weights apart", shape, "fp32", moved, apart)
    if not math.isclose(*losses, rel_tol=LOSS_TOLERANCE) or not apart <= WEIGHT_TOLERANCE * moved:
        raise ValueError(f"it trained to other weights: {apart / moved:.2%} of the way apart, losses {losses}.")


def cases(bench: Bench, shape: str) -> Iterator[tuple[str, Iterator[Row]]]:
    """Yield a shape's measurements: its name, and its rows; ZeRO where three copies fit into a machine."""
    for precision in DTYPES:
        for method in ("emso", "gradient_ascent", "kl_divergence", "gradient_difference"):
            yield f"{method}, {precision}", erasing_rows(bench, shape, bench.spec(shape, method, precision))
        yield f"measuring, {precision}", measuring_rows(bench, shape, precision)
    for passes in (0, PASSES):
        yield f"bf16 after {passes} passes", precision_rows(bench, shape, passes)
    for stage in (2, 3) if weights_bytes(bench.checkpoint(shape)) < 5e9 else ():
        yield f"ZeRO-{stage}", zero_rows(bench, shape, stage)


def check(bench: Bench, folder: Path, minutes: float) -> int:
    """Measure shapes that fit, small ones first; write the card's page, and return 1 if something was wrong, else 0."""
    start, rows, notes, failed = time.monotonic(), list[Row](), list[str](), 0
    for shape in bench.shapes:
        for name, measured in cases(bench, shape):
            print(f"{shape}: {name}", flush=True)
            try:
                if time.monotonic() - start > 60 * minutes:
                    raise TimeoutError(f"{minutes:g} minutes were over.")
                rows.extend(measured)  # Rows that came before an error stay.
            except Exception as error:
                is_skipped = isinstance(error, TimeoutError | torch.OutOfMemoryError)
                failed += not is_skipped
                sentence = f"{shape}, {name}: {' '.join(repr(error).split())[:300]}"
                notes.append(f"- {'skipped' if is_skipped else 'failed'}: {sentence}")
            gc.collect()
            torch.cuda.empty_cache()
    facts = hardware(has_gpu=bench.device.type == "cuda") | versions() | {"CUDA": str(torch.version.cuda)}
    facts["fp32 products"] = torch.get_float32_matmul_precision()
    facts["minutes"] = f"{(time.monotonic() - start) / 60:.1f} of {minutes:g}"
    texts = f"{bench.sequences} texts of {bench.tokens} tokens, 8 a step, 4 at once; seed {SEED}"
    lines = [f"# The check of a GPU: {bench.name}", "", f"    make gpu-check    # {texts}", LEGEND]
    lines += [*(f"- {name}: {value}" for name, value in facts.items()), "", f"{failed} failed.", "", *notes, ""]
    lines += ["| what | model | precision | should be | measured | share |", "| --- | --- | --- | --: | --: | --: |"]
    lines += [*(f"| {' | '.join(cells)} |" for cells in rows), ""]
    file = folder / f"gpu_check_{re.sub('[^a-z0-9]+', '_', bench.name.lower()).strip('_')}.md"
    write_whole(file, "\n".join(lines), "the check's page")
    print(f"What came out is in {file}.")
    return int(failed > 0)


def main(argv: Sequence[str] | None = None) -> int:
    """Check the first GPU; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("docs/results"), help="where the page is written")
    parser.add_argument("--minutes", type=float, default=20.0, help="after these nothing further begins")
    arguments = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print(NO_GPU, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(torch.device("cuda", 0), torch.cuda.get_device_name(0), Path(folder), SHAPES)
        return check(bench, arguments.folder, arguments.minutes)


if __name__ == "__main__":
    sys.exit(main())
