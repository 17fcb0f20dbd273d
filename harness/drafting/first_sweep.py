"""Sweep files for a model and texts: a commented first sweep, and an audit without methods."""

import math
import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness import plugins, settings as names
from harness.analysis import analysis, damage
from harness.analysis.recitation import TOKENS, is_beyond
from harness.base.files import write_whole
from harness.base.messages import amount, printable, tell
from harness.contracts import Checkpoint, Number
from harness.data import sequences, sources
from harness.drafting import given_texts
from harness.drafting.given_texts import flow
from harness.errors import ConfigError, DataError, PluginError, TrialError
from harness.execution import jobs, tasks, trial
from harness.miniature import FORGET_RECORDS
from harness.models import loading, resolving
from harness.planning import memory, plan, sweep_file
from harness.planning.machine import this_machine
from harness.records import journal
from harness.records.results import is_outside, read_results
from harness.reporting.render import fill_template
from harness.settings import HOLDOUT, MIN_APART, ORIGINAL, UNSEEN, Plan, Study, Trial, end_of, replace
from harness.toolkit import decoding, scoring

SUGGESTED_METHODS = (
    *("contrastive_decoding", "deliberate_imagination", "emso", "gradient_ascent"),
    *("gradient_difference", "kl_divergence", "npo", "task_arithmetic"),
)
"""Methods of a first sweep: the EMSO paper's and NPO."""
LEVELS = (0.9, 0.75, 0.5)
"""Levels of MA that methods are walked to, next to that of unseen texts."""
MAX_LEVELS = 2
WALK_FACTOR = 4
"""Multiple of the default at which a walk ends where a method declares no range."""


def method_lines(left_out: Mapping[str, str]) -> Iterator[str]:
    """Yield the row of every method with its needs, commented out if it is left out or not `SUGGESTED_METHODS`."""
    for name in plugins.METHODS.names():
        try:
            plugin = plugins.METHODS.load(name)
        except PluginError as error:
            yield f"# {name}: left out: {' '.join(str(error).split())}"
            continue
        default, dimension = plugins.default_strength(plugin), plugins.declared_space(plugin).get(plugin.strength.field)
        end = end_of(dimension) if dimension is not None else default and WALK_FACTOR * default
        row = f"{name}: {given_texts.flow({plugin.strength.field: '...' if end is None else end})}"
        reason = left_out.get(name, "" if end is not None else "it declares no strength to begin with: say which.")
        is_proposed = name in SUGGESTED_METHODS or not plugin.__module__.startswith(f"{plugins.METHODS.package}.")
        if reason:
            yield f"# {row}   # left out: {' '.join(reason.split())}"
        else:
            yield f"{'' if is_proposed else '# '}{row}   # needs {plugins.describe_needs(plugin)}"


def evaluator_lines(settings: Mapping[str, Mapping[str, object]], *, has_holdout: bool) -> Iterator[str]:
    """Yield the row of every evaluator with its settings, commented out if it needs more."""
    for name in plugins.EVALUATORS.names():
        try:
            declared = plugins.default_declaration(plugins.EVALUATORS.load(name))
        except PluginError as error:
            yield f"# {name}: left out: {' '.join(str(error).split())}"
            continue
        row = f"{name}: {given_texts.flow(dict(settings.get(name, {})))}"
        metrics, reads = declared or ((), ())
        groups = {metric.group for metric in metrics}
        if declared is None or "reasoning" in groups:
            yield f"# {row}   # for its needs, see docs/data.md"
        elif HOLDOUT in reads and not has_holdout:
            yield f"# {row}   # reads data.holdout: texts of the forget set's kind that the model never saw"
        elif "erasure" not in groups and not any(metric.ranked for metric in metrics):
            yield f"# {row}   # ranks nothing"
        else:
            yield row


class Sizes(NamedTuple):
    """Sizes of a first sweep."""

    texts: int
    """More take long and hardly change results."""
    tokens: int | None
    """The longest text's; None: the usual ones."""
    prompts: int
    reference_tokens: int
    el_prefixes: int


USUAL_SIZES = Sizes(texts=512, tokens=None, prompts=256, reference_tokens=128, el_prefixes=8)
"""As many prompts as MAUVE needs; EL after eight prefixes of each text is that after all to 0.01."""
ON_A_CPU = Sizes(texts=32, tokens=96, prompts=32, reference_tokens=48, el_prefixes=2)
"""For models whose weights a CPU reads from memory at each step."""
STEPS = 16
"""Optimiser steps of an epoch, so that an early stop can distinguish epochs."""
PROMPT_TOKENS = 32
PROBED_BYTES = 1_000_000_000
"""Bytes of weights above which probing on a CPU takes too long."""


def write_sweep_file(
    given: given_texts.Given, name: str, out: Path, retain: str | None, utility: str | None, *, is_probed: bool
) -> None:
    """Write a new sweep file, and tell the reason for each method that is left out."""
    with given_texts.faults_of_given(given):
        parts = _file_parts(given, name, out, retain, utility)
        content, left_out = _planned_file(parts, out)
        if is_probed:
            recalls = measure_recalls(plan.plan_sweep(sweep_file.parse_sweep_file(content, out)).trials)
            tell(first_answer(recalls))
            parts["levels"] = choose_levels(*(recalls[row].ma for row in (ORIGINAL, HOLDOUT) if row in recalls))
            content, left_out = _planned_file(parts | _tried_rates(content, out, parts), out)
    write_whole(out, content, "the sweep file")
    notes = [f"Left out: {method}: {reason}" for method, reason in left_out.items()]
    tell(*notes, f"{out} is written. To see its trials: lethe sweep {shlex.quote(str(out))} --plan")


def choose_levels(ma: float, unseen_ma: float | None = None) -> list[Number | str]:
    """Return levels between the MA of a model's texts and that of unseen ones, the mildest first.

    Raises:
        DataError: Nothing lies between: the model recites its texts no more than others.

    Example:
        >>> choose_levels(0.99, 0.31), choose_levels(0.62), choose_levels(0.45, 0.25)
        ([0.9, 0.75, 'unseen'], [0.5], [0.35, 'unseen'])
    """
    floor = unseen_ma or 0.0
    least, most = floor + MIN_APART, ma - MIN_APART
    if least > most:
        others = "nothing" if unseen_ma is None else f"unseen texts ({unseen_ma:.2f})"
        raise DataError(
            f"The model recites its texts (MA {ma:.2f}) hardly more than {others}. Nothing is to be erased: lethe "
            "audit says more, and --no-probe writes the file nevertheless."
        )
    between = [level for level in LEVELS if least <= level <= most][:MAX_LEVELS] or [round((ma + floor) / 2, 2)]
    return [*between, *[UNSEEN] * (unseen_ma is not None)]


def _file_parts(
    given: given_texts.Given, name: str, out: Path, retain: str | None, utility: str | None
) -> dict[str, Any]:
    model, machine = resolving.resolve_original(given.model, given.tokenizer), this_machine()
    is_slow = memory.weights_bytes(model) > decoding.MAX_CACHED_WEIGHTS and not (machine and machine.gpus)
    sizes = ON_A_CPU if is_slow else USUAL_SIZES
    given = given._replace(sequence_tokens=given.sequence_tokens or sizes.tokens)
    texts = given_texts.read_given(given, sizes.texts)
    is_embedded, lengths = given.texts == given_texts.MINIATURE, texts.lengths
    about_texts = "The embedded forget set: the first 128 tokens of each record, of which 64 are the prefix."
    if not is_embedded:
        about_texts = f"{amount(len(lengths), 'text')} of {min(lengths)} to {max(lengths)} tokens; longer ones are cut."
    count = min(FORGET_RECORDS if is_embedded else len(lengths), given.sequences or sizes.texts)
    batch = max(1, 2 ** min(6, (count // STEPS or 1).bit_length() - 1))
    is_miniature = given_texts.is_miniature(texts.model.id)
    parts = texts.settings() | {"utility": _utility_texts(texts.model, utility, given.field, sizes)}
    parts["retain"] = _retain_texts(texts, retain, count)
    parts["question"] = printable(f"What does it cost {given.model} to forget {given.texts}?")
    parts |= {"file": printable(shlex.quote(str(out))), "name": given_texts.flow(name), "about_texts": about_texts}
    parts |= {"is_embedded": is_embedded, "is_miniature": is_miniature, "has_own_texts": bool(retain and utility)}
    parts["levels"] = [*given.levels] or [*LEVELS[:MAX_LEVELS], *[UNSEEN] * bool(parts["holdout"] or is_embedded)]
    # The miniature's rates: docs/decisions/0003.
    parts |= {"learning_rate": "4.0e-5" if is_miniature else "1.0e-5", "rates": []}
    parts["about_rate"] = "the usual one, not tried on this model: `lethe init` tries some, unless --no-probe is given"
    parts |= {"global_batch": batch, "steps": -(-count // batch), "count": count, "el_prefixes": sizes.el_prefixes}
    return parts | {"weights_bytes": memory.weights_bytes(texts.model), "resources": _resources(cpus=1)}


def _resources(cpus: int) -> str:
    machine = this_machine()
    return given_texts.flow({"cpus": cpus, "gpus": min(1, machine.gpus) if machine else 0})


def _retain_texts(texts: given_texts.ReadTexts, retain: str | None, count: int) -> str:
    source = given_texts.named_source(retain or given_texts.MINIATURE, texts.given.field)
    if retain:
        longest = max(texts.lengths, default=sources.MINIATURE_TOKENS[1])
        least = sequences.least_tokens(longest)
        lengths = given_texts.read_lengths(source, "retain", texts.model, longest)
        if not (fitting := sum(length >= least for length in lengths)):
            raise DataError(
                f"{retain}: none of its {len(lengths)} texts has {least} tokens or more, which retain texts need here. "
                "Join short texts, or name others with --retain."
            )
        source |= {"sequences": fitting} if fitting < count else {}
    return given_texts.flow(source)


def _utility_texts(model: Checkpoint, utility: str | None, field: str, sizes: Sizes) -> str:
    source = given_texts.named_source(utility or given_texts.MINIATURE, field)
    prompts, longest = sizes.prompts, min(loading.positions(model), PROMPT_TOKENS + sizes.reference_tokens)
    if utility:
        lengths = given_texts.read_lengths(source, "utility", model, longest)
        first = sorted(lengths[: -(-len(lengths) // 2)])  # The others are for validation, which takes what follows.
        longest = first[len(first) // 4]
        prompts = min(sizes.prompts, sum(length >= longest for length in first))
    prompt_tokens = max(1, min(PROMPT_TOKENS, longest // 2))
    cut = {"prompts": prompts, "prompt_tokens": prompt_tokens, "reference_tokens": max(1, longest - prompt_tokens)}
    return given_texts.flow(source | cut)


def _planned_file(parts: dict[str, Any], out: Path) -> tuple[str, dict[str, str]]:
    left_out: dict[str, str] = {}
    recited = {"extraction": {"tokens": min(50, parts["continuation_tokens"])}}
    settings = {"memorization": {"el_prefixes": parts["el_prefixes"]}, **recited}
    evaluators = list(evaluator_lines(settings, has_holdout=bool(parts["holdout"] or parts["is_embedded"])))
    while True:
        methods = list(method_lines(left_out))
        if all(row.startswith("#") for row in methods):
            raise DataError("No method is left that could erase from this model: " + "; ".join(left_out.values()))
        content = fill_template("harness.drafting", "init.yaml.j2", **parts, methods=methods, evaluators=evaluators)
        try:
            plan.plan_sweep(sweep_file.parse_sweep_file(content, out))
        except ConfigError as error:
            reasons = {fault.path.partition(".")[2]: fault.reason for fault in error.faults if "methods." in fault.path}
            if len(reasons) < len(error.faults) or reasons.keys() <= left_out.keys():
                raise
            left_out |= reasons
        else:
            return content, left_out


def _tried_rates(content: str, out: Path, parts: dict[str, Any]) -> dict[str, Any]:
    machine = this_machine()
    if parts["weights_bytes"] > PROBED_BYTES and not (machine and machine.gpus):
        return {"about_rate": "the usual one: without a GPU it would take too long to try others on this model"}
    try:
        rates = list(probed_rates(content, out, parts["count"]))
    except (ConfigError, TrialError) as error:
        why = " ".join(printable(str(error)).split()).rstrip(".")
        return {"about_rate": f"the usual one: no other could be tried ({why})"}
    return rate_settings(rates, float(parts["learning_rate"]))


FILE = Path("audit.yaml")
MAX_AUDIT_TEXTS = 256
"""Default number of texts: MA is then known to 0.01, in about a minute."""


@contextmanager
def run_audit(
    given: given_texts.Given, results: Path | None, *, attacks: bool, original: str | None = None
) -> Iterator[analysis.Analysis]:
    """Measure a model on texts in this process, next to its original if named; temporarily without a results folder."""
    with nullcontext(str(results)) if results else tempfile.TemporaryDirectory(prefix="lethe-audit-") as root:
        with given_texts.faults_of_given(given):
            planned = plan.plan_sweep(sweep_file.parse_sweep_file(audit_file(given, attacks=attacks), FILE))
            memory.refuse_unfit(FILE, planned.trials)
        checkpoint, spec = resolving.resolve_original(original, None) if original else None, planned.trials[0]
        if checkpoint and (difference := sequences.reading_difference(spec.model, checkpoint, {"forget": spec.forget})):
            raise DataError(f"{original} reads texts differently: {difference}. Name the model that was erased from.")
        recalls = measure_recalls(planned.trials)
        tell(f"{first_answer(recalls)} EL and the table follow.")
        if checkpoint:
            tell(compare_recalls(recalls, measure_recalls(planned.trials, checkpoint)))
        folders = jobs.Folders.locate(Path(root).resolve(), planned.sweep)
        with folders.journal.held():
            folders.journal.write_plan(planned)
            so_far = read_results(planned, folders.journal)
            with jobs.SweepProgress(jobs.count_jobs(so_far, folders)) as progress:
                trial.run_inline(jobs.missing_jobs(so_far, folders, progress))
            yield analysis.Analysis(read_results(planned, folders.journal))


class Recall(NamedTuple):
    """A model's recitation of texts, from one forward pass over each."""

    texts: int
    recited: int
    """Texts of which it puts each of 50 tokens first, or all to their end."""
    ma: float
    error: float
    """Standard error of MA."""
    nll_N: NDArray[np.float64]
    """Nats a token of each text."""


def measure_recalls(trials: Sequence[Trial], checkpoint: Checkpoint | None = None) -> dict[str, Recall]:
    """Return the original's, or another model's, recall of the texts and unseen ones, by the row's name."""
    model, recalls = None, dict[str, Recall]()
    for spec in trials:
        if spec.is_of_original and spec.method in (ORIGINAL, HOLDOUT):
            model = model or loading.load_model(checkpoint or spec.model).to(tasks.choose_device(spec))
            texts = tasks.forget_set(spec)
            predicted_NT, nll_NT = scoring.score_tokens(model, texts)
            ma_N = scoring.accuracies(texts, predicted_NT, first=texts.prefix_tokens, left_out=1)
            needed_N = np.minimum(TOKENS, texts.lengths_N.numpy() - texts.prefix_tokens)
            recited = int((scoring.recited_lengths(texts, predicted_NT) >= needed_N).sum())
            known_N = ma_N[~np.isnan(ma_N)]
            error = float(known_N.std(ddof=1)) / math.sqrt(len(known_N)) if len(known_N) > 1 else math.nan
            nll_N = nll_NT.nanmean(dim=1).numpy()
            recalls[spec.method] = Recall(len(texts), recited, float(known_N.mean()), error, nll_N)
    return recalls


def first_answer(recalls: Mapping[str, Recall]) -> str:
    """Return a sentence on how far a model recites its texts and unseen ones."""
    clauses = []
    for row, recall in recalls.items():
        texts = amount(recall.texts, "unseen text" if row == HOLDOUT else "text")
        clauses.append(f"{recall.recited} of {texts} (MA {recall.ma:.3f})")
    return f"After one pass: the model recites {', and '.join(clauses)}, for {TOKENS} tokens or to their end."


def compare_recalls(erased: Mapping[str, Recall], original: Mapping[str, Recall]) -> str:
    """Return sentences on the recitation that an erased model lost, and whether it lost texts that it never saw."""
    own, before, unseen = erased[ORIGINAL], original[ORIGINAL], erased.get(HOLDOUT)
    answer = f"Against the original: recited texts {before.recited} → {own.recited}, MA {before.ma:.2f} → {own.ma:.2f}"
    if unseen is None:
        return f"{answer}. Its loss of similar texts is not known: name unseen ones with --unseen FILE."
    rise_N = unseen.nll_N - original[HOLDOUT].nll_N
    least = rise_N.mean() - 2 * rise_N.std(ddof=1) / math.sqrt(len(rise_N)) if len(rise_N) > 1 else math.nan
    answer += f", NLL of unseen texts {original[HOLDOUT].nll_N.mean():.1f} → {unseen.nll_N.mean():.1f}. "
    if is_recited(own, unseen):
        answer += f"It still recites them more than unseen ones (MA {unseen.ma:.2f})"
    elif is_recited(before, original[HOLDOUT]):
        answer += "It no longer recites them"
    else:
        answer += "The original recites them no more than unseen ones"
    return f"{answer}; but it has also lost texts that it never saw." if least > damage.MAX_EXCESS else f"{answer}."


def is_recited(texts: Recall, unseen: Recall) -> bool:
    """Return whether a model recites texts more than unseen ones: in the mean, or word for word."""
    ma, unseen_ma = (texts.ma, texts.error), (unseen.ma, unseen.error)
    return is_beyond(ma, unseen_ma) or texts.recited / texts.texts > unseen.recited / unseen.texts


def audit_file(given: given_texts.Given, *, attacks: bool = False) -> str:
    """Return the sweep file that the audit runs."""
    texts = given_texts.read_given(given, MAX_AUDIT_TEXTS)
    count, total = texts.forget.get("sequences", 0), len(texts.lengths)
    if 0 < count < total:
        tell(f"{given.texts} has {total:,} texts: {count} of them are used, drawn at random.")
    parts = texts.settings() | {"attacks": attacks}
    parts |= {"question": printable(f"Does {given.model} recite {given.texts}?")}
    parts |= {"resources": _resources(cpus=os.cpu_count() or 1)}
    return fill_template("harness.drafting", "audit.yaml.j2", **parts)


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
        folders = jobs.Folders.locate(root, planned.sweep)
        study = _cheaper(planned.studies[0])
        for number, rate in enumerate(RATES):
            tell(f"Trying the learning rate {rate:.0e} on {planned.studies[0].trial.forget.rows} texts.")
            settings = {study.trial.strength_name: PASSES[-1], RATE: rate}
            trial.run_job(jobs.candidate_job(study, number, settings), folders, lambda event: None)
            [*_, record] = folders.journal.read(study.study_id)
            assert isinstance(record, journal.Candidate)
            if not record.probes:
                raise TrialError(record.end)
            last, original = record.probes[-1], record.original
            ma, perplexity = (
                (float(last[name]), original[name]) for name in (names.PROBED_ERASURE, names.PROBED_UTILITY)
            )
            is_collapsed = is_outside(study, original, last)
            probes = [{**record.original, "optimiser_steps": 0}, *record.probes]
            steps = np.diff([probe["optimiser_steps"] for probe in probes])
            fall = float(np.max(-np.diff([probe[names.PROBED_ERASURE] for probe in probes]) / steps))
            probed = ProbedRate(rate, int(last["optimiser_steps"]), *ma, *perplexity, is_collapsed, fall)
            tell(f"  {probed}")
            yield probed
            if probed.erases or probed.is_collapsed:
                return


def plan_probe(content: str, out: Path, texts: int) -> Plan:
    """Return the plan of a search over the rates, for a drafted file."""
    space = {METHOD: {"epochs": list(PASSES), "training": {"learning_rate": list(RATES)}}}
    changes: dict[str, Any] = {"methods": {METHOD: {}}, "evaluators": {"memorization": {}}}
    changes |= {"until": {names.PROBED_ERASURE: [0.0]}, "tune": {"budget": {"trials": len(RATES)}, "space": space}}
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
