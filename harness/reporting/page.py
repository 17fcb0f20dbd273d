"""The report: one HTML page that holds everything, pictures included, and needs nothing else."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness.analysis.blocks.published import published_selection
from harness.analysis.blocks.selection import block_selections
from harness.analysis.caveats.judges import human_readings
from harness.analysis.caveats.warnings import warnings
from harness.analysis.cells import NOTHING, number, split_title, strength_text
from harness.analysis.collapse import rules_in_words, verdict
from harness.analysis.collapse_onset import onset_tables
from harness.analysis.direction import arrow
from harness.analysis.layout import model_tables
from harness.analysis.matched.comparison import MatchedTable
from harness.analysis.metrics import first_axes, in_sentence, metrics_in
from harness.analysis.published.comparison import ComparedTable
from harness.analysis.ranking import RankedTable
from harness.analysis.reasoning import answers, signed
from harness.analysis.seeds import seed_count
from harness.analysis.sequences.exact_match import GROUP_NAMES, agreements, group_text
from harness.analysis.sequences.survivors import survivors
from harness.analysis.shown import POINTS, TRIALS, UNFINISHED, shown_part
from harness.analysis.tradeoff.standing import standing_tables
from harness.plans import Plan
from harness.records.results import PointResults, Results, TrialResults
from harness.reporting.content_policy import content_policy
from harness.reporting.figures.choosable import choosable_figure, embedded
from harness.reporting.markdown import LETTERS
from harness.reporting.sections.blocks import block_section
from harness.reporting.sections.exact_match import agreement_rows, why_no_groups
from harness.reporting.sections.glossary import glossary
from harness.reporting.sections.matched import INTERPOLATED, matched_sentences
from harness.reporting.sections.provenance import duration_text, provenance, ran_on
from harness.reporting.sections.published import difference_text, figure_text, heading, marks
from harness.reporting.sections.recitation import recitation_tables
from harness.reporting.sections.samples import samples_of, why_fewer
from harness.reporting.summary import caption, outcome
from harness.reporting.text_tables import about_evidence
from harness.specs import HOLDOUT, RETRAINED, STAND_IN

_SEEDS_NAMED = 20
UNSEEN_NAMES = {RETRAINED: "of the retrained model's", HOLDOUT: "of unseen texts'", STAND_IN: "of validation texts'"}


def page(
    results: Results,
    ranked: RankedTable,
    pictures: Mapping[str, bytes],
    matched: Sequence[MatchedTable] = (),
    published: Sequence[ComparedTable] = (),
    *,
    is_kept: bool = True,
) -> str:
    """Return the report of a sweep, as far as it has come; one without any finished trial too.

    `pictures` are SVGs: `tradeoff`, `reasoning` if its tasks were measured, and the heat maps of selected blocks.
    `is_kept` says whether there will be a journal to make it again from.
    """
    loader = PackageLoader("harness.reporting", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    contents: list[tuple[str, str]] = []

    def section_heading(title: str, anchor: str = "") -> Markup:
        """Return a section's heading, and take it into the contents."""
        anchor = anchor or re.sub(r"[^a-z0-9]+", "-", title.lower())
        contents.append((anchor, title))
        return Markup('<h2 id="{}">{}</h2>').format(anchor, title)

    environment.globals.update(
        arrow=arrow,
        content_policy=content_policy,
        difference_text=difference_text,
        figure_text=figure_text,
        heading=heading,
        marks=marks,
        number=number,
        section_heading=section_heading,
        signed=signed,
        split_title=split_title,
        strength_text=strength_text,
        verdict=verdict,
    )
    environment.filters.update(duration=duration_text, memory=memory_text)
    points, part = results.measured, shown_part(results, ranked)
    table, tables = part.ranked.table, model_tables(part.ranked)
    listed = table.groupby("model", sort=False).head(POINTS)
    erases = results.plan.erases
    choosable = choosable_figure(part.results, listed, ranked.info) if erases else None
    of_groups = agreements(part.results, part.ranked) if erases else []
    shown, ranked_points = part.results.measured, set(table.loc[table["ranked"], "point_id"])
    samples, sampled = samples_of(shown, ranked_points)
    return environment.get_template("report.html.j2").render(
        groups={
            each.model: ([*zip(GROUP_NAMES.values(), each.lengths.values(), strict=True)], agreement_rows(each))
            for each in of_groups
        },
        group_text=group_text,
        why_no_groups="" if of_groups or not erases else why_no_groups(part.results, part.ranked),
        plan=results.plan,
        left_out=part.note,
        totals=_totals(results),
        caption=caption(table),
        definition=", ".join(sorted(set(table["definition"]) - {""})) or NOTHING,
        said_first=ranked.said_first if erases else [],
        recited=[] if erases else recitation_tables(ranked),
        answers_first=ranked.said_first,
        outcome=[(model, matched_sentences(matched, model) + told) for model, told in outcome(part.ranked)],
        warnings=warnings(results, ranked),
        judging=human_readings(points, ranked.info),
        has_retrained=bool((table["method"] == RETRAINED).any()),
        collapse=rules_in_words(ranked.info, results.plan.collapse),
        pictures={name: b64encode(svg).decode() for name, svg in pictures.items()},
        choosable=embedded(choosable) if choosable else None,
        tasks=metrics_in(ranked.info, "reasoning"),
        answers=answers(table, ranked.info),
        axes=" and ".join(
            in_sentence(metric) if metric else NOTHING for metric in first_axes(ranked.info, results.plan.compare)
        ),
        matched=matched,
        published=published,
        standings=standing_tables(results.plan, part.ranked) if erases else [],
        onsets=onset_tables(table, ranked.info, results.plan.compare),
        survivors=survivors(part.ranked),
        unseen_names=UNSEEN_NAMES,
        interpolated=INTERPOLATED,
        tables=tables,
        evidence=about_evidence(tables),
        letters_mean=LETTERS,
        metrics=list(ranked.info.values()),
        points={str(model): rows for model, rows in listed.groupby("model", sort=False)} if erases else {},
        seeds=seed_count(table),
        blocks=block_section(*block_selections(part.results), published_selection()),
        rounds=_rounds(part.results.measured),
        samples=samples,
        sampled=sampled,
        why_fewer_samples=why_fewer(results.plan, shown, ranked_points),
        contents=contents,
        is_kept=is_kept,
        provenance=provenance(results),
        glossary=glossary(part.results.plan, part.ranked),
        costs=[_cost(trial) for trial in part.results.trials[:TRIALS]],
        failed=[trial for trial in results.trials if trial.failure][:UNFINISHED],
        versions=_versions(results),
        digests=_digests(results.plan),
        settings=_settings(part.results.plan),
    )


def _totals(results: Results) -> dict[str, Any]:
    """Return how much there is of a sweep, shown or not."""
    seeds = sorted({spec.seed for spec in results.plan.trials})
    return {
        "models": list(dict.fromkeys(spec.model.id for spec in results.plan.trials)),
        "seeds": ", ".join(map(str, seeds)) if len(seeds) <= _SEEDS_NAMED else f"{len(seeds)}",
        "trials": len(results.trials),
        "done": sum(trial.status == "done" for trial in results.trials),
        "points": len(results.measured),
    }


def memory_text(count: int | None) -> str:
    """Return a number of bytes that a person can read at a glance; none measured is a dash.

    Example:
        >>> memory_text(912_680_550), memory_text(3 * 2**30), memory_text(0)
        ('870 MiB', '3.0 GiB', '–')
    """
    if not count:
        return NOTHING
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def _rounds(points: Sequence[PointResults]) -> list[dict[str, Any]]:
    """Return, for each trial that chose blocks, those of every strength."""
    trials: dict[str, dict[str, Any]] = {}
    for point in points:
        chosen = point.made.notes.get("selected_blocks") if point.made else None
        if isinstance(chosen, list | tuple) and point.strength is not None:
            trial = trials.setdefault(point.spec.trial_id, {"spec": point.spec, "rows": []})
            strength = strength_text(point.spec.strength_name, float(point.strength))
            trial["rows"].append((strength, [_block(block) for block in chosen]))
    return list(trials.values())


def _block(chosen: Any) -> tuple[str, str]:
    """Return a block's name and its score."""
    if not isinstance(chosen, Mapping):
        return str(chosen), ""
    score = chosen.get("m")
    return str(chosen.get("block", "")), f"M = {score:.2e}" if isinstance(score, float) else ""


def _cost(trial: TrialResults) -> dict[str, Any]:
    made = [point.made for point in trial.measured if point.made]
    seconds = [measurement.seconds for point in trial.measured for measurement in point.measurements]
    return {
        "spec": trial.spec,
        "status": trial.status,
        "points": f"{len(trial.measured)} of {len(trial.spec.points())}",
        "erase_seconds": max((point.erase_seconds for point in made), default=None),
        "measure_seconds": sum(seconds) if seconds else None,
        "ran_on": ran_on(trial),
        "memory": max((point.peak_memory_bytes for point in made if point.peak_memory_bytes), default=None),
    }


def _versions(results: Results) -> dict[str, list[str]]:
    """Return each package with the versions that the trials ran with: more than one if they changed."""
    versions: dict[str, set[str]] = {}
    for package, version in [pair for trial in results.trials for ran in trial.versions for pair in ran.items()]:
        versions.setdefault(package, set()).add(version)
    return {package: sorted(versions[package]) for package in sorted(versions)}


def _digests(plan: Plan) -> list[tuple[str, str, str]]:
    """Return what was read, each thing once: its role, its name and its digest."""
    inputs = []
    for spec in plan.trials:
        read = {"model": spec.model, "retrained model": spec.retrained}
        read |= {f"judge of {role}": checkpoint for role, checkpoint in spec.judges.items()}
        inputs += [(role, checkpoint.id, checkpoint.digest) for role, checkpoint in read.items() if checkpoint]
        first = {HOLDOUT: "holdout", STAND_IN: "stand-in"}.get(spec.method, "forget")
        texts = {first: spec.forget, "retain": spec.retain, "utility": spec.utility, "validation": spec.validation}
        for role, source in texts.items():
            if source:
                name = " ".join(filter(None, (source.source, source.path, source.name)))
                inputs.append((f"{role} texts", name, source.digest))
    return list(dict.fromkeys(inputs))


def _settings(plan: Plan) -> list[tuple[str, str]]:
    """Return every setting, defaults included: each distinct set once."""
    settings: list[tuple[str, Mapping[str, Any]]] = []
    for spec in plan.trials:
        settings += [
            (f"evaluator {evaluator.name} (version {evaluator.version})", evaluator.settings)
            for evaluator in spec.evaluators
        ]
        if not spec.is_reference:
            settings.append((f"method {spec.variant} (version {spec.method_version})", spec.settings))
            settings.append(("training", spec.training.in_words()))
            settings.append(("memorized model", asdict(spec.memorization)))
    lines = {(name, ", ".join(f"{key}: {value}" for key, value in values.items())) for name, values in settings}
    return sorted((name, text or "no settings") for name, text in lines)
