"""Rates of the answer's false verdicts and true findings, and its intervals' coverage of the truth.

    python -m studies.error_rates [--pages N] [--runs CSV] [--markdown FILE]

Prices with a known truth go through the functions that the answer uses. The file of runs has a row for each training
run (method,seed,log_price): each method is compared with itself, by other seeds. 2,000 pages take some minutes.
`docs/results/trust.md` has the results.

Array letters: P pages, K contrasts (methods against the reference), R runs, N items.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from harness.base.files import write_whole
from harness.statistics.bootstrap import Floats, ItemValues, draws, interval, row_intervals
from harness.statistics.contrasts import Judgement, judge_methods

Generator = np.random.Generator
Noise = Callable[[Generator, int], Floats]
LEVEL, MARGIN = 0.05, math.log(1.1)
MAX_FALSE_PAGES = 0.05
"""Share of pages that compare methods with themselves: the upper end of its interval must lie below."""
OLD_CONTRASTS = 32
"""Contrasts on a page by the protocol before: six methods, three levels, two costs, less the missing ones."""
MEASURED = {
    "MA 0.75": {
        "KL": (-0.56, 0.112), "GD": (-0.56, 0.108), "CD": (-0.16, 0.05), "GA": (-0.19, 0.085), "TA": (1.25, 0.032),
    },
    "retrained": {
        "KL": (-0.99, 0.214), "GD": (-1.24, 0.352), "CD": (-0.34, 0.076), "GA": (-0.20, 0.082), "TA": (2.05, 0.07),
    },
}  # fmt: skip
"""Log price less EMSO's, and its deviation over runs: three seeds on miniature-m, 2026-11-25. Today's page is another.

A deviation is the 95 % interval's half width by Student's t of two degrees, times the root of 3, less the items' part.
"""
ITEMS = 0.025
"""The standard error of a contrast over 256 prompts."""


def normal(*scales: float) -> Noise:
    """Return noise of methods that deviate by so much each."""
    return lambda generator, runs: np.array(scales)[:, None] * generator.normal(size=(len(scales), runs))


def skewed(generator: Generator, runs: int) -> Floats:
    """Return noise whose methods are lognormal; their reference is less noisy and normal."""
    lognormal_KR = np.exp(generator.normal(size=(6, runs))) - math.exp(0.5)
    return np.asarray(lognormal_KR - 0.5 * generator.normal(size=(1, runs)))


NOISES: dict[str, Noise] = {
    "normal": normal(*[1.0] * 6),
    "Student's t of 3": lambda generator, runs: generator.standard_t(3, (6, runs)),
    "lognormal": skewed,
    "deviations as measured": normal(*(deviation for _, deviation in MEASURED["retrained"].values())),
    "a noisy reference": lambda generator, runs: (
        generator.normal(size=(6, runs)) + 3 * generator.normal(size=(1, runs))
    ),
    "one run in ten fails": lambda generator, runs: (
        generator.normal(size=(6, runs)) * np.where(generator.random((6, runs)) < 0.1, 10, 1)
    ),
    "one quiet method": normal(0.1, *[1.0] * 5),
    "two loud methods": normal(10.0, 10.0, *[1.0] * 4),
    "three loud methods": normal(*[10.0] * 3, *[1.0] * 3),
    "four loud methods of seven": normal(*[10.0] * 4, *[1.0] * 3),
}
"""Noise of five to seven contrasts without a difference. Loud methods harm most: quiet ones set the median."""


def judge(differences_KR: Floats, item_error: float = 0.0) -> list[Judgement]:
    """Return the protocol's judgements of so many contrasts."""
    by_method = {str(method): values_R for method, values_R in enumerate(differences_KR)}
    return list(judge_methods(by_method, dict.fromkeys(by_method, item_error**2), MARGIN).values())


def old_tests(differences_PKR: Floats, item_error: float = 0.0) -> Floats:
    """Return by the protocol before which contrasts (P, K) differ: each by its own deviation, Holm over the page."""
    runs = differences_PKR.shape[-1]
    errors_PK = np.sqrt(differences_PKR.var(axis=2, ddof=1) / runs + item_error**2)
    p_PK = 2 * stats.t.sf(np.abs(differences_PKR.mean(axis=2)) / errors_PK, runs - 1)
    order_PK = np.argsort(p_PK, axis=1)
    sorted_PK = np.take_along_axis(p_PK, order_PK, axis=1) * np.arange(p_PK.shape[1], 0, -1)
    found_PK = np.empty_like(p_PK)
    np.put_along_axis(found_PK, order_PK, np.maximum.accumulate(sorted_PK, axis=1) < LEVEL, axis=1)
    return found_PK


def false_pages(noise: Noise, runs: int, pages: int, generator: Generator) -> tuple[float, float]:
    """Return the share of pages with a false difference, by the protocol before and by this one."""
    tables = math.ceil(OLD_CONTRASTS / 6)
    old_PKR = [np.concatenate([noise(generator, runs) for _ in range(tables)])[:OLD_CONTRASTS] for _ in range(pages)]
    new = [any(is_told(one) for one in judge(noise(generator, runs))) for _ in range(pages)]
    return float(old_tests(np.array(old_PKR)).any(axis=1).mean()), float(np.mean(new))


def is_told(judgement: Judgement) -> bool:
    """Return whether a method is told from the reference."""
    return judgement.verdict in ("cheaper", "dearer")


def powers(level: str, runs: int, pages: int, generator: Generator) -> dict[str, tuple[float, float]]:
    """Return the rate at which each method is told from EMSO at its measured cost, by both protocols."""
    differences_K1, deviations_K1 = np.array(list(MEASURED[level].values())).T[:, :, None]
    shape = (pages, len(differences_K1), runs)
    true_PKR = differences_K1 + deviations_K1 * generator.normal(size=shape)
    true_PKR += ITEMS * generator.normal(size=(*shape[:2], 1))
    others_PKR = 0.1 * generator.normal(size=(pages, OLD_CONTRASTS - shape[1], runs))
    old_K = old_tests(np.concatenate([true_PKR, others_PKR], axis=1), ITEMS)[:, : shape[1]].mean(axis=0)
    new_K = np.mean([[is_told(one) for one in judge(true_KR, ITEMS)] for true_KR in true_PKR], axis=0)
    return dict(zip(MEASURED[level], zip(old_K.tolist(), new_K.tolist(), strict=True), strict=True))


def equivalences(deviation: float, runs: int, pages: int, generator: Generator) -> tuple[float, float]:
    """Return the shares of pages that call one of six methods 10 % apart equivalent, and that find an equal one."""
    noise = normal(*[deviation] * 6)
    apart = [any(one.verdict == "equivalent" for one in judge(noise(generator, runs) + MARGIN)) for _ in range(pages)]
    equal = [judge(noise(generator, runs))[0].verdict == "equivalent" for _ in range(pages)]
    return float(np.mean(apart)), float(np.mean(equal))


def upper_bound(false: int, pages: int) -> float:
    """Return the upper end of the 95 % interval of a rate: Clopper's and Pearson's.

    Example:
        The gate of 5 % opens with 72 pages of which none is false, and with 8 of 318.

        >>> [round(upper_bound(0, pages), 4) for pages in (71, 72)], round(upper_bound(8, 318), 4)
        ([0.0506, 0.0499], 0.049)
    """
    return float(stats.binomtest(false, pages).proportion_ci(0.95, method="exact").high)


def against_themselves(
    prices_by_method: Mapping[str, Floats], runs: int, pages: int, generator: Generator
) -> tuple[int, int]:
    """Return the number of pages that tell a method from itself, and of all pages.

    A page compares each method's prices by some seeds with its prices by others, as if they had two names.
    """
    false = 0
    for _ in range(pages):
        samples = [generator.choice(prices, 2 * runs, replace=False) for prices in prices_by_method.values()]
        false += any(is_told(one) for one in judge(np.array([prices[:runs] - prices[runs:] for prices in samples])))
    return false, pages


def near_bound(generator: Generator, mean: float, shape: tuple[int, int], spread: float) -> ItemValues:
    """Return values from 0 to 1 of a beta distribution; a spread of 1 would be 0 or 1 only."""
    size = 1 / spread - 1
    values_RN = generator.beta(mean * size, (1 - mean) * size, shape)
    return ItemValues(
        values_RN=values_RN, weights_RN=np.ones(shape), clusters_N=np.arange(shape[1]), items="s", low=0.0, high=1.0
    )


def coverage(ends_R2: Floats, truth: float) -> float:
    """Return the share of intervals that hold the truth."""
    return float(((ends_R2[:, 0] <= truth) & (truth <= ends_R2[:, 1])).mean())


def coverages(generator: Generator, rows: int) -> Iterator[tuple[str, float]]:
    """Yield the coverage of a share, of a perplexity and of a mean over three models."""
    for clusters in (5, 9, 10, 11, 20, 96):
        for mean in (0.02, 0.75, 0.98):
            worst = min(
                coverage(row_intervals(near_bound(generator, mean, (rows, clusters), spread)), mean)
                for spread in (0.02, 0.1, 0.3, 0.8)
            )
            yield f"a share of mean {mean:g}, {clusters} texts, worst of four spreads", worst
    for prompts in (16, 256):
        tokens_RN = generator.integers(5, 60, (rows, prompts)).astype(float)
        losses_RN = 1.0 + generator.gamma(4.0, 0.25, (rows, prompts)) + generator.normal(0, 2 / np.sqrt(tokens_RN))
        values = ItemValues(
            values_RN=losses_RN, weights_RN=tokens_RN, clusters_N=np.arange(prompts), items="p", aggregate="exp_mean"
        )
        yield f"perplexity, {prompts} prompts", coverage(row_intervals(values), math.exp(2.0))
    ends = []
    for _ in range(rows):
        losses_RN = 2.0 + generator.normal(0, 0.3, (3, 1)) + generator.normal(0, 0.5, 256)
        values = ItemValues(
            values_RN=losses_RN + generator.normal(0, 0.3, (3, 256)), weights_RN=np.ones((3, 256)),
            clusters_N=np.arange(256), items="p", aggregate="exp_mean",
        )  # fmt: skip
        ends.append(interval(draws(values)))
    yield "perplexity over three models that deviate by .3", coverage(np.array(ends), math.exp(2.0))


def report(pages: int, prices_by_method: Mapping[str, Floats]) -> Iterator[str]:
    """Yield the lines of the page's tables."""
    generator = np.random.default_rng(0)
    yield from ("| noise | runs | false pages before | now |", "| --- | --: | --: | --: |")
    for name, noise in NOISES.items():
        for runs in (3, 5):
            old, new = false_pages(noise, runs, pages, generator)
            yield f"| {name} | {runs} | {old:.3f} | {new:.3f} |"
    yield from ("", "| level | method | runs | found before | now |", "| --- | --- | --: | --: | --: |")
    for level in MEASURED:
        for runs in (3, 5):
            for method, (old, new) in powers(level, runs, pages, generator).items():
                yield f"| {level} | {method} | {runs} | {old:.2f} | {new:.2f} |"
    yield from ("", "| deviation | runs | equivalent though 10 % apart | equivalent where equal |")
    yield "| --: | --: | --: | --: |"
    for deviation, runs in ((0.02, 3), (0.05, 3), (0.05, 5)):
        apart, equal = equivalences(deviation, runs, pages, generator)
        yield f"| {deviation:g} | {runs} | {apart:.3f} | {equal:.3f} |"
    yield from ("", "| compared with themselves | runs | false pages | upper bound |", "| --- | --: | --: | --: |")
    simulated = {str(method): generator.normal(0, 0.1, 10_000) for method in range(6)}
    for what, prices in (("simulated", simulated), ("trained", prices_by_method)):
        for runs in (3, 5) if prices else ():
            false, of = against_themselves(prices, runs, pages, generator)
            yield f"| {what} | {runs} | {false} of {of} | {upper_bound(false, of):.3f} |"
    yield from ("", "| interval of | holds the truth |", "| --- | --: |")
    for what, share in coverages(generator, pages // 8):
        yield f"| {what} | {share:.3f} |"


def main(argv: Sequence[str] | None = None) -> None:
    """Print every rate, and write them as Markdown on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--runs", type=Path, metavar="CSV", help="prices of training runs: method,seed,log_price")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables here too")
    arguments = parser.parse_args(argv)
    table = pd.read_csv(arguments.runs).groupby("method")["log_price"] if arguments.runs else ()
    lines = []
    for line in report(arguments.pages, {str(method): prices.to_numpy() for method, prices in table}):
        lines.append(line)
        print(line, flush=True)
    if arguments.markdown:
        write_whole(arguments.markdown, "\n".join([*lines, ""]), "the rates")


if __name__ == "__main__":
    main()
