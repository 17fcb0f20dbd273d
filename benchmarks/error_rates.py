"""How often the answer's intervals hold the truth, and how often its tests and verdicts are wrong.

    python -m benchmarks.error_rates [--simulations N] [--markdown FILE]

Items, seeds and models are simulated with a known truth and go through the functions that the analysis uses. An
interval should hold the truth in 95 of 100 simulations, a test or verdict be false in at most 5. What follows a share
is its Monte Carlo standard error. 500 take about two minutes of one idle core.

Array letters: S sequences, N prompts, K points of a trajectory, R replicates.
"""

from __future__ import annotations

import argparse
import math
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import scipy

from benchmarks.measuring import Ratio
from harness.base.files import write_whole
from harness.statistics.bootstrap import draws, interval, row_intervals
from harness.statistics.contrasts import Contrast, paired_contrast, verdicts
from harness.statistics.item_values import Floats, ItemValues, Match

Generator = np.random.Generator
LEVEL = 0.05
MARGIN = math.log(1.1)
METHODS = 7
"""Of a page: six planned contrasts."""
SEQUENCES, PROMPTS = 128, 256
_AT_ONCE = 100
"""Simulations whose intervals are drawn together: their draws take some ten megabytes."""


@dataclass(frozen=True)
class Rate:
    """How often something happened."""

    what: str
    case: str
    kind: Literal["holds the truth", "false", "found"]
    share: float
    simulations: int

    @property
    def row(self) -> str:
        """Return it as a row of a Markdown table."""
        error = math.sqrt(self.share * (1 - self.share) / self.simulations)
        wanted = {"holds the truth": ".95", "false": "≤ .05", "found": "–"}[self.kind]
        return f"| {self.what} | {self.case} | {self.kind} | {wanted} | {self.share:.3f} ± {error:.3f} |"


def main(argv: Sequence[str] | None = None) -> list[Ratio]:
    """Print every rate, and write them as Markdown on request; return the worst of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=500)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table here too")
    arguments = parser.parse_args(argv)
    began = time.perf_counter()
    rates = []
    lines = ["| what | of | how often it | wanted | measured |", "| --- | --- | --- | --- | --: |"]
    print(*lines, sep="\n")
    for source in (measured_points, crossings, training_seeds, several_models, equivalence):
        generator = np.random.default_rng(0)
        for rate in source(generator, arguments.simulations):
            rates.append(rate)
            lines.append(rate.row)
            print(rate.row, flush=True)
    minutes = (time.perf_counter() - began) / 60
    lines += [
        "",
        f"{arguments.simulations} simulations; Python {platform.python_version()}, NumPy {np.__version__}, SciPy "
        f"{scipy.__version__}; {minutes:.1f} minutes.",
    ]
    print(*lines[-2:], sep="\n")
    if arguments.markdown:
        write_whole(arguments.markdown, "\n".join([*lines, ""]), "the rates")
    return worst(rates)


def worst(rates: Sequence[Rate]) -> list[Ratio]:
    """Return the least coverage and the largest share of false answers, of what the analysis says by itself."""
    own = [rate for rate in rates if NOT_OURS not in rate.what and not rate.what.startswith("by items alone")]
    held_least = min(rate.share for rate in own if rate.kind == "holds the truth")
    false_most = max(rate.share for rate in own if rate.kind == "false")
    return [
        Ratio("the least share of intervals that hold the truth", held_least, ".95 is wanted"),
        Ratio("the largest share of tests or verdicts that are false", false_most, ".05 at most is wanted"),
    ]


def held(ends_R2: Floats, truth: float) -> float:
    """Return the share of intervals that hold the truth."""
    return float(((ends_R2[:, 0] <= truth) & (truth <= ends_R2[:, 1])).mean())


def prompt_losses(generator: Generator, rows: int, prompts: int) -> tuple[Floats, Floats]:
    """Return losses of mean 2 and tokens (rows, N), skewed: some prompts are hard, and short ones vary more."""
    tokens_RN = generator.integers(5, 60, (rows, prompts)).astype(float)
    hard_RN = generator.gamma(4.0, 0.25, (rows, prompts)) - 1.0
    return 2.0 + hard_RN + generator.normal(0, 2 / np.sqrt(tokens_RN)), tokens_RN


def recalled(generator: Generator, rows: int, sequences: int, whole: float) -> Floats:
    """Return what share of each sequence (rows, S) is recalled: all of some, three quarters of others on average."""
    is_whole_RS = generator.random((rows, sequences)) < whole
    return np.where(is_whole_RS, 1.0, generator.beta(3.0, 1.0, (rows, sequences)))


def of_items(values: Floats, weights: Floats | None = None, items: str = "prompts", **others: object) -> ItemValues:
    """Return values (R, N), each item a cluster of its own."""
    weights_RN = np.ones_like(values) if weights is None else weights
    clusters_N = np.arange(values.shape[1])
    return ItemValues(values_RN=values, weights_RN=weights_RN, clusters_N=clusters_N, items=items, **others)  # type: ignore[arg-type]


def measured_points(generator: Generator, simulations: int) -> Iterator[Rate]:
    """Yield the coverage of perplexity and of MA at measured points."""

    def coverage(make: Callable[[int], ItemValues], truth: float) -> float:
        parts = [row_intervals(make(_AT_ONCE)) for _ in range(math.ceil(simulations / _AT_ONCE))]
        return held(np.concatenate(parts)[:simulations], truth)

    for prompts in (16, 64, 256):

        def perplexity(rows: int, prompts: int = prompts) -> ItemValues:
            losses_RN, tokens_RN = prompt_losses(generator, rows, prompts)
            return of_items(losses_RN, tokens_RN, aggregate="exp_mean")

        share = coverage(perplexity, math.exp(2.0))
        yield Rate("perplexity at a measured point", f"{prompts} prompts", "holds the truth", share, simulations)
    for whole, where in ((0.0, "MA .75"), (0.97, "MA .9925, the original")):
        for sequences in (16, 64, 128, 256):

            def accuracy(rows: int, sequences: int = sequences, whole: float = whole) -> ItemValues:
                return of_items(recalled(generator, rows, sequences, whole), items="sequences", low=0.0, high=1.0)

            share = coverage(accuracy, whole + 0.75 * (1 - whole))
            yield Rate(where, f"{sequences} sequences", "holds the truth", share, simulations)


NOT_OURS = "its crossing taken as known"
"""What the analysis does not do: shown for what it would be wrong by."""
LEVELS_K = np.array([0.85, 0.6])
"""MA of the two measured points, on both sides of the limit."""
LOSSES_K = np.array([2.3, 2.8, 2.0])
"""Log perplexity of the two, and of the original."""
LIMIT = 0.75
TRUE_PRICE = float(np.interp(-LIMIT, -LEVELS_K, LOSSES_K[:2])) - LOSSES_K[2]


def at_limit(generator: Generator, hard_S: Floats, hard_N: Floats, tokens_N: Floats) -> tuple[ItemValues, Match]:
    """Return a method's price between its two points, where its own estimate of MA is at the limit."""
    matched_KS = LEVELS_K[:, None] + hard_S + generator.normal(0, 0.15, (2, len(hard_S)))
    losses_KN = LOSSES_K[:, None] + hard_N + generator.normal(0, 0.3, (3, len(hard_N)))
    left, right = matched_KS.mean(axis=1)
    weight = (left - LIMIT) / (left - right)
    shares = (1 - weight, weight)
    means_K = np.average(losses_KN, axis=1, weights=tokens_N)
    price = of_items(losses_KN, np.tile(tokens_N, (3, 1)), shares=((*shares, -1.0),), aggregate="exp_mean")
    by = of_items(matched_KS, items="sequences", shares=(shares,))
    return price, Match(by, np.array([(means_K[1] - means_K[0]) / (right - left)]))


def crossings(generator: Generator, simulations: int) -> Iterator[Rate]:
    """Yield coverage and false positives of interpolated prices, with the crossing uncertain and as if it was known."""
    for prompts in (PROMPTS, 1000):
        ends: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        p_values: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(simulations):
            hard_S, hard_N = generator.normal(0, 0.15, SEQUENCES), generator.normal(0, 0.5, prompts)
            tokens_N = generator.integers(5, 60, prompts).astype(float)
            (a, match_a), (b, match_b) = (at_limit(generator, hard_S, hard_N, tokens_N) for _ in "ab")
            for is_drawn in (True, False):
                matches = (match_a, match_b) if is_drawn else (None, None)
                ends[is_drawn].append(interval(draws(a, matches[0])))
                contrast = paired_contrast(a, b, *matches)
                p_values[is_drawn].append(contrast.p if contrast else math.nan)
        for is_drawn, how in ((True, "its crossing uncertain"), (False, NOT_OURS)):
            case = f"{SEQUENCES} sequences, {prompts} prompts"
            share = held(np.array(ends[is_drawn]), math.exp(TRUE_PRICE))
            yield Rate(f"interpolated price, {how}", case, "holds the truth", share, simulations)
            share = float((np.array(p_values[is_drawn]) < LEVEL).mean())
            yield Rate(f"paired test of two, {how}", case, "false", share, simulations)


def page(generator: Generator, shifts: Sequence[float], seeds: int, deviation: float) -> list[Contrast]:
    """Return a page's planned contrasts: methods that cost so much more than the reference, by seeds that deviate."""
    hard_N = generator.normal(0, 0.5, PROMPTS)
    sides = []
    for shift in (0.0, *shifts):
        of_seeds = shift + generator.normal(0, deviation, (seeds, 1))
        sides.append(of_items(of_seeds + hard_N + generator.normal(0, 0.3, (seeds, PROMPTS)), aggregate="exp_mean"))
    contrasts = [paired_contrast(side, sides[0]) for side in sides[1:]]
    return [contrast for contrast in contrasts if contrast is not None]


def training_seeds(generator: Generator, simulations: int) -> Iterator[Rate]:
    """Yield how often a page tells equal methods apart, by items alone and by several seeds; and what it finds."""
    nothing = [0.0] * (METHODS - 1)
    for seeds, deviations in ((1, (0.0, 0.02, 0.05, 0.1)), (3, (0.0, 0.05, 0.1, 0.3)), (5, (0.05, 0.1))):
        for deviation in deviations:
            any_false = one_false = 0
            for _ in range(simulations):
                contrasts = page(generator, nothing, seeds, deviation)
                any_false += not {"better", "worse"}.isdisjoint(verdicts(contrasts, MARGIN))
                one_false += contrasts[0].p < LEVEL
            how = "by items alone, " if seeds == 1 else ""
            case = f"{seeds} seed{'s' if seeds > 1 else ''}, deviation {deviation:g}"
            yield Rate(f"{how}one test", case, "false", one_false / simulations, simulations)
            yield Rate(f"{how}any verdict of {METHODS - 1}", case, "false", any_false / simulations, simulations)
    for ratio, seeds, deviation in ((1.22, 3, 0.1), (1.22, 10, 0.1), (1.3, 3, 0.02), (1.3, 5, 0.05)):
        said = 0
        for _ in range(simulations):
            contrasts = page(generator, [math.log(ratio), *nothing[1:]], seeds, deviation)
            said += verdicts(contrasts, MARGIN)[0] == "worse"
        case = f"{seeds} seeds, deviation {deviation:g}"
        yield Rate(f"worse by {ratio:g}, one of {METHODS - 1}", case, "found", said / simulations, simulations)


def several_models(generator: Generator, simulations: int) -> Iterator[Rate]:
    """Yield the coverage of geometric means over three pretrained models."""
    for deviation in (0.1, 0.3, 1.0):
        ends = []
        for _ in range(simulations):
            hard_N = generator.normal(0, 0.5, PROMPTS)
            of_models = 2.0 + generator.normal(0, deviation, (3, 1))
            values_RN = of_models + hard_N + generator.normal(0, 0.3, (3, PROMPTS))
            models = of_items(values_RN, aggregate="exp_mean", models_R=np.arange(3), low=0.0)
            ends.append(interval(draws(models)))
        share = held(np.array(ends), math.exp(2.0))
        yield Rate("mean over three models", f"deviation {deviation:g}", "holds the truth", share, simulations)


def equivalence(generator: Generator, simulations: int) -> Iterator[Rate]:
    """Yield how often methods exactly 10 % apart are called equivalent, and how often equal ones are."""
    for seeds, deviation in ((3, 0.02), (5, 0.02), (5, 0.05), (10, 0.05)):
        one_false = any_false = found = 0
        for _ in range(simulations):
            said = verdicts(page(generator, [MARGIN] * (METHODS - 1), seeds, deviation), MARGIN)
            one_false += said[0] == "equivalent"
            any_false += "equivalent" in said
            found += verdicts(page(generator, [0.0], seeds, deviation), MARGIN) == ["equivalent"]
        case = f"{seeds} seeds, deviation {deviation:g}"
        yield Rate("equivalent though 10 % apart, one test", case, "false", one_false / simulations, simulations)
        yield Rate(f"the same, any of {METHODS - 1}", case, "false", any_false / simulations, simulations)
        yield Rate("equivalent where equal", case, "found", found / simulations, simulations)


if __name__ == "__main__":
    main()
