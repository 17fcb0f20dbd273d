"""Learning rate of a new sweep file, probed by a few steps of gradient ascent on the model.

A few rates are tried on a few of the texts, as candidates of a search are: MA on half of them, and the model's own
perplexity on validation texts, before and after.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from harness.base.messages import tell
from harness.drafting.given_texts import flow
from harness.errors import TrialError
from harness.execution import job, queue, trial
from harness.planning import plan, sweep_file
from harness.records import journal, results
from harness.settings import MIN_APART, PROBED_ERASURE, PROBED_UTILITY, Plan, Study, replace

RATES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
"""Tried in this order, until one erases."""
TEXTS, BATCH = 8, 4
PASSES = (1, 2, 3, 4, 5, 6, 7, 8)
"""Passes over the texts, of two steps, after which it is measured."""
VALIDATION_TEXTS = 16
"""Texts that show a collapse."""
ERASED = 0.9
"""Largest share of the original's MA that counts as erased."""
METHOD, RATE = "gradient_ascent", "training.learning_rate"


class ProbedRate(NamedTuple):
    """Effect of a few steps at one learning rate."""

    rate: float
    steps: int
    ma: float
    """After the steps, on texts that they ascended on."""
    ma_before: float
    perplexity: float
    """The model's own, on validation texts."""
    perplexity_before: float
    is_collapsed: bool
    """True if perplexity left the bounds of the sweep file."""
    fall: float
    """Most by which MA fell in a step."""

    @property
    def erases(self) -> bool:
        """True if it erases without collapse."""
        return self.ma_before > 0 and self.ma <= ERASED * self.ma_before and not self.is_collapsed

    def __str__(self) -> str:
        """Return it in words: `1e-05: MA 1.00 to 0.99, perplexity 12.1 to 12.3 in 16 steps`."""
        collapsed = ", collapsed" if self.is_collapsed else ""
        return (
            f"{self.rate:.0e}: MA {self.ma_before:.2f} to {self.ma:.2f}, perplexity {self.perplexity_before:.1f} to "
            f"{self.perplexity:.1f} in {self.steps} steps, at most {max(self.fall, 0):.2f} of MA a step{collapsed}"
        )


def probed_rates(content: str, out: Path, texts: int) -> Iterator[ProbedRate]:
    """Yield the effects of rising rates, up to the first that erases or collapses.

    Args:
        content: The file, which plans.
        out: Its future path: relative names are found from there.
        texts: Number of texts to erase; at most 8 are used.
    """
    planned = plan_probe(content, out, min(texts, TEXTS))
    with tempfile.TemporaryDirectory(prefix="lethe-init-") as root:
        folders = job.Folders.of_sweep(root, planned.sweep)
        study = _cheaper(planned.studies[0])
        for number, rate in enumerate(RATES):
            tell(f"Trying the learning rate {rate:.0e} on {planned.studies[0].trial.forget.rows} texts.")
            settings = {study.trial.strength_name: PASSES[-1], RATE: rate}
            trial.run_job(queue.candidate_job(study, number, settings), folders, lambda event: None)
            [*_, record] = folders.journal.read(study.study_id)
            assert isinstance(record, journal.Candidate)
            if not record.probes:
                raise TrialError(record.end)
            last, original = record.probes[-1], record.original
            ma, perplexity = ((float(last[name]), original[name]) for name in (PROBED_ERASURE, PROBED_UTILITY))
            is_collapsed = results.is_outside(study, original, last)
            probes = [{**record.original, "optimiser_steps": 0}, *record.probes]
            steps = np.diff([probe["optimiser_steps"] for probe in probes])
            fall = float(np.max(-np.diff([probe[PROBED_ERASURE] for probe in probes]) / steps))
            probed = ProbedRate(rate, int(last["optimiser_steps"]), *ma, *perplexity, is_collapsed, fall)
            tell(f"  {probed}")
            yield probed
            if probed.erases or probed.is_collapsed:
                return


def plan_probe(content: str, out: Path, texts: int) -> Plan:
    """Return the plan of a search over the rates, for a drafted file."""
    space = {METHOD: {"epochs": list(PASSES), "training": {"learning_rate": list(RATES)}}}
    changes: dict[str, Any] = {"methods": {METHOD: {}}, "evaluators": {"memorization": {}}}
    changes |= {"until": {PROBED_ERASURE: [0.0]}, "tune": {"budget": {"trials": len(RATES)}, "space": space}}
    # An early stop would end a probe on texts that the model does not know.
    changes |= {"training.global_batch": BATCH, "training.early_stop": None}
    changes |= {"data.forget.sequences": texts, "data.forget.sample_seed": 0}
    overrides = [f"{path}={flow(value)}" for path, value in changes.items()]
    return plan.plan_sweep(sweep_file.parse_sweep_file(content, out, overrides))


def _cheaper(study: Study) -> Study:
    fewer = min(VALIDATION_TEXTS, study.trial.validation.rows)
    validation = replace(study.trial.validation, sequences=fewer, rows=fewer, digest="")  # The digest was that of all.
    return replace(study, trial=replace(study.trial, validation=validation, cpus=os.cpu_count() or 1))


def rate_settings(rates: Sequence[ProbedRate], usual: float) -> dict[str, Any]:
    """Return the least rate that erases, else the highest without collapse, else the usual one, with comments.

    A rate at which MA fell in one step by more than a walk distinguishes is divided accordingly, since Adam moves
    weights by the rate each step.
    """
    last = rates[-1]
    rate = next((one.rate for one in reversed(rates) if not one.is_collapsed), usual)
    about = "none erased in a few steps of gradient ascent: raise it"
    if last.erases:
        about = "the least that erased in a few steps of gradient ascent"
        if last.fall > MIN_APART:
            about += f" ({rate:.0e}), divided so that no step crosses two levels"
            rate *= MIN_APART / last.fall
    elif last.is_collapsed:
        about = "none both erased and kept the model usable, so look at the points before collapse"
    return {"learning_rate": f"{rate:.1e}", "about_rate": about, "rates": list(map(str, rates))}
