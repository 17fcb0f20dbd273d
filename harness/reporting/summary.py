"""Card on top of a report, and the table of prices: on the page, in table.md, on the terminal.

The card contains results, their uncertainty, advice and problems, in at most 90 words: the first screen of a phone.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from harness.analysis.analysis import Analysis
from harness.analysis.answer import BAND, Answer, export_name
from harness.analysis.damage import unmeasured_damage, verdict
from harness.analysis.metrics import lower_title, number
from harness.analysis.ranking import CONTROL, ERASED_NOTHING, NOTHING_TO_ERASE
from harness.analysis.seeds import seed_count
from harness.base.messages import amount
from harness.records.record import erased_key
from harness.records.results import PointResults
from harness.reporting.render import Column, markdown_escape, render
from harness.settings import Level
from harness.statistics.protocol import MIN_RUNS

OTHER_TEXTS = "what other texts would have given, not other training runs"
"""Meaning of an interval over items of a single seed."""
DEFINITIONS = {
    "exact": "the formulas, mended where they slip, on all the evidence",
    "table": "the evaluation that the published tables were almost certainly made with",
}
UNKNOWN_RECITATION = "Nothing shows that there was anything to erase."
MAX_NAMES = 3
"""Methods in one list of the card."""
WORDS = {
    "recited": "MA: the share of the tokens of a text that the model guesses first, given all before them",
    "level": "how much is still recited where methods are compared: each is erased until it is there",
    "price": "what text quality costs at the level, times the original's: ×1 is free",
    "runs": "training seeds, or models pretrained alike, each with an erasure of its own",
    "interval": "in brackets: 95 %, over runs and texts; with fewer than three runs there is none",
    "verdict": "cheaper or dearer than the reference, equivalent (within the margin), or can't tell yet",
    "broken": "collapsed, or over-erased: unseen texts of the same kind suffered too; never recommended",
    "comes back": "after so many steps of relearning, half of what was erased is there again",
}
"""Glossary of the answer."""
Card = list[tuple[str, str, str]]
"""A heading, sentences, and a command that ends them, or ''."""


def caption(table: pd.DataFrame) -> str:
    """Return a table's caption: definition, judges and seeds."""
    sentences = []
    for definition in sorted(set(table["definition"])) or [""]:
        meaning = f" ({DEFINITIONS[definition]})" if definition in DEFINITIONS else ""
        sentences.append(f"Definition: {definition or 'not stated'}{meaning}.")
    for roles in sorted(set(table["judged_by_original"]) - {""}):
        sentences.append(f"Judge of {roles}: the original model itself.")
    count = seed_count(table)
    has_items = any(name.endswith("_low") for name in table.columns)
    items = "the items (sequences, prompts, questions)"
    if count > 1:
        sentences.append(f"Means over {count} seeds.")
        sentences.append(f"Small: the 95 % interval, over {count} seeds{f' and {items}' if has_items else ''}.")
    elif has_items:
        sentences.append(f"Small: the 95 % interval over {items}: {OTHER_TEXTS}.")
    return " ".join(sentences)


def cards(analysis: Analysis) -> list[tuple[str, Card]]:
    """Return each model's card."""
    cards_by_model = []
    for model in analysis.answer.heads:
        recitation = analysis.ranked.recitations[model]
        if recitation.recites is False:
            cards_by_model.append((model, [("Seen", recitation.warning, "")]))
        else:
            card = _answer_card(model, analysis) if analysis.results.plan.until else _ranks_card(model, analysis)
            cards_by_model.append((model, [line for line in card if line[1] or line[2]]))
    return cards_by_model


def _answer_card(model: str, analysis: Analysis) -> Card:
    answer, level = analysis.answer, analysis.results.plan.until[0]
    rows = answer.at(model, level)
    sound = rows[(rows["reached"] > 0) & ~rows["broken"].eq(True)]
    priced = sound[sound["price"].notna()]
    return [
        ("Seen", _what_was_seen(rows, sound, priced, level_text(level, answer.heads[model]), answer), ""),
        ("How sure", _how_sure(rows, priced, model, analysis), ""),
        ("To do", *_what_to_do(priced, analysis)),
        ("Wrong", _what_is_wrong(rows, model, analysis), ""),
    ]


def level_text(level: Level, head: Mapping[str, Any]) -> str:
    """Return a level in words, with its number."""
    at = head["levels"][level.key][0]
    about = {"unseen": ", as unseen texts", "retrained": ", as the never-seen model"}.get(str(level.at), "")
    return f"{level.metric.upper()} {at:.2f}{about}" if about and not math.isnan(at) else str(level)


def _what_was_seen(rows: pd.DataFrame, sound: pd.DataFrame, priced: pd.DataFrame, at: str, answer: Answer) -> str:
    if not len(sound):
        if rows["gets_there"].eq("not run").all():
            return f"Nothing has been measured at {at} yet."
        return f"{'Every method that gets to' if rows['reached'].any() else 'No method gets to'} {at}" + (
            " is broken there." if rows["reached"].any() else "."
        )
    if answer.cost is None or not len(priced):
        return f"{_names(sound['label'])} {'get' if len(sound) > 1 else 'gets'} to {at}, at an unknown price."
    first, paid = priced.iloc[0], [f"{row['label']} {times(row['price'])}" for row in priced.to_dict("records")[1:]]
    costs = "costs least" if paid else "is the only sound method that gets there"
    others = f"; {_names(paid, '; ')}" if paid else ""
    return f"At {at}, {first['label']} {costs}: {lower_title(answer.cost)} {times(first['price'])}{others}."


def _how_sure(rows: pd.DataFrame, priced: pd.DataFrame, model: str, analysis: Analysis) -> str:
    runs = analysis.answer.heads[model]["runs"]
    if runs < MIN_RUNS:
        near = priced[priced["price"] < BAND * priced["price"].min()]["label"]
        alike = f", as between {near.iloc[0]} and {near.iloc[1]}" if len(near) > 1 else ""
        return (
            f"{'One training run: a hint' if runs == 1 else 'Two training runs: no verdict'}. Differences below "
            f"×{BAND:g} may be luck{alike}. {'Two more seeds' if runs == 1 else 'One more seed'} would tell "
            "which are real."
        )
    reference = rows[rows["is_reference"].astype(bool)]
    if not len(reference):
        return f"{runs} runs; no sound method to compare with: no verdict."
    if not reference["reached"].any():
        return f"{runs} runs, but {reference['label'].iloc[0]}, to compare with, is not at the level: no verdict."
    sentences = []
    for word in ("cheaper", "dearer", "equivalent", "can't tell yet"):
        if len(named := rows[rows["verdict"] == word]["label"]):
            sentences.append(f"{word}: {_names(named)}")
    against = f"{runs} runs, against {reference['label'].iloc[0]}"
    return (
        f"{against}: {'; '.join(sentences)}."
        if sentences
        else f"{against}: no {MIN_RUNS} runs got both there, so no verdict."
    )


def _what_to_do(priced: pd.DataFrame, analysis: Analysis) -> tuple[str, str]:
    """Return advice on the cheapest sound method, and its command."""
    if not len(priced):
        return "", ""
    is_whole = priced["reached"] == priced["runs"]
    row = (priced[is_whole] if is_whole.any() else priced).iloc[0]
    [point] = [point for point in analysis.results.measured if point.spec.point_id(point.strength) == row["points"][0]]
    if _is_kept(point, analysis):
        return f"To export {row['label']}:", export_command(point, analysis)
    return f"{row['label']}'s model was not kept. This says how to keep it:", export_command(point, analysis)


def export_command(point: PointResults, analysis: Analysis) -> str:
    """Return the command that exports a point's model."""
    folder = analysis.results.folder
    elsewhere = ["--results", folder.parent.name] if folder and folder.parent.name != "results" else []
    out = f"{point.spec.sweep}-{point.spec.variant.partition('(')[0]}"
    return shlex.join(["lethe", "export", export_name(point, analysis.results), "--out", out, *elsewhere])


def _is_kept(point: PointResults, analysis: Analysis) -> bool:
    folder = analysis.results.folder
    name = erased_key(point.spec.point_id(point.strength), point.made.code if point.made else "")
    return folder is not None and (folder.parent / "artifacts" / "erased" / name).is_dir()


def _what_is_wrong(rows: pd.DataFrame, model: str, analysis: Analysis) -> str:
    head, plan, sentences = analysis.answer.heads[model], analysis.results.plan, []
    for name, word in (("over_erased", "over-erased"), ("collapsed", "collapsed")):
        if len(named := rows[rows[name].eq(True)]["label"]):
            sentences.append(f"{word.capitalize()}, so not recommended: {_names(named)}.")
    missed = rows[rows["gets_there"] == "no"].to_dict("records")
    near = [nearest_text(row) if len(missed) == 1 else f"nearest {row['nearest']:.2f}" for row in missed]
    if missed:
        labels = (f"{row['label']} ({text})" for row, text in zip(missed, near, strict=True))
        sentences.append(f"Not there: {_names(labels)}.")
    table = analysis.ranked.table
    sentences.append(unmeasured_damage(table[table["model"] == model]))
    sentences += [UNKNOWN_RECITATION] if analysis.ranked.recitations[model].recites is None else []
    models = {spec.model.id for spec in plan.trials if spec.table_model == model}
    if len(models) == 1 and head["runs"] > 1 and any(study.per == "model" for study in plan.studies):
        sentences.append("The seeds share one search: its luck is in no interval.")
    return " ".join(filter(None, sentences)) or "Nothing was found: all methods get there and none is broken."


def nearest_text(row: Mapping[Any, Any]) -> str:
    """Return the nearest miss of a level: `nearest 0.83 at gamma 10, early stop`."""
    near = "" if math.isnan(row["nearest"]) else f"nearest {row['nearest']:.2f} at {row['nearest_at']}"
    return ", ".join(filter(None, [near, row["reason"]]))


def _ranks_card(model: str, analysis: Analysis) -> Card:
    ranks = analysis.ranked.ranking
    ranks = ranks[ranks["model"] == model]
    order, wrong = [], []
    idle: list[str] = []
    for row in ranks.to_dict("records"):
        if row["rank_average"] != "":
            order.append(f"{row['rank_average']} {row['label']} ({row['strength_name']} {row['strength']})")
        elif row["collapsed"] is True:
            wrong.append(f"{row['label']} ({verdict(row['collapse_class'], row['collapse_reason'])})")
        elif row["unranked"] == ERASED_NOTHING:
            idle.append(row["label"])
    unranked = [row["label"] for row in ranks.to_dict("records") if row["unranked"] not in _KNOWN and row["label"]]
    unranked = [label for label in unranked if not any(label in text for text in (*order, *wrong))]
    sentences = [UNKNOWN_RECITATION] if analysis.ranked.recitations[model].recites is None else []
    sentences += [f"Collapsed, so not ranked: {_names(wrong)}."] if wrong else []
    sentences += [f"Erased nothing beyond noise: {_names(idle)}."] if idle else []
    sentences += [f"Not ranked: {_names(unranked)}."] if unranked else []
    seen = f"Average rank, the paper's: {_names(order, ' · ')}." if order else "No point has a rank yet."
    runs = analysis.answer.heads[model]["runs"]
    sure = {0: "", 1: "One training run: a hint."}.get(runs, f"{runs} training runs.")
    do = "To see what each method pays where all erase equally, add to the sweep file:"
    return [
        ("Seen", seen, ""),
        ("How sure", sure, ""),
        ("To do", *((do, "until: {ma: [0.75]}") if runs else ("", ""))),
        ("Wrong", " ".join(sentences), ""),
    ]


_KNOWN = ("", CONTROL, NOTHING_TO_ERASE, ERASED_NOTHING)


def times(ratio: float) -> str:
    """Return a ratio with at most two decimals.

    Example:
        >>> times(1.268), times(0.55), times(12.4), times(240.0)
        ('×1.27', '×0.55', '×12', '×240')
    """
    return f"×{ratio:.2f}".rstrip("0").rstrip(".") if ratio < 10 else f"×{ratio:.0f}"


def _names(names: Iterable[str], between: str = ", ") -> str:
    listed = list(names)
    more = [f"{len(listed) - MAX_NAMES} more"] if len(listed) > MAX_NAMES else []
    return between.join([*listed[:MAX_NAMES], *more])


def head_text(model: str, analysis: Analysis) -> str:
    """Return the numbers above a table: texts, runs, recitation, and the retrained model's price."""
    head, cost = analysis.answer.heads[model], analysis.answer.cost
    parts = [
        amount(head["texts"], "text"),
        amount(head["runs"], "run"),
        f"recited before: MA {number(head['recited'])}",
    ]
    if not math.isnan(head["unseen_ma"]):
        parts.append(f"of unseen texts: {number(head['unseen_ma'])}")
    if not math.isnan(head["retrained_ma"]):
        paid = "" if math.isnan(head["retrained_price"]) else f", price ×{head['retrained_price']:.2f}"
        parts.append(f"the never-seen model: {number(head['retrained_ma'])}{paid}")
    if cost is not None:
        parts.append(f"price: {lower_title(cost)}, times the original's")
    return "; ".join(parts) + "."


def answer_table(answer: Answer, model: str, level: Level) -> tuple[pd.DataFrame, list[Column]]:
    """Return a model's table at a level, without empty columns."""
    rows = answer.at(model, level)
    records = rows.to_dict("records")
    frame = rows.assign(
        there=[_gets_there(row) for row in records],
        damage=[_damage(row) for row in records],
        against=[_against(row) for row in records],
        back=["" if math.isnan(row["comes_back"]) else _steps(row["comes_back"]) for row in records],
    )
    columns = [Column("label", "Method"), Column("there", "Gets there", "note")]
    columns.append(Column("price", "Text quality paid", "ratio"))
    titles = {"damage": "Unseen texts", "against": "Against the reference", "back": "Comes back"}
    columns += [Column(name, title, "note") for name, title in titles.items() if frame[name].any()]
    return frame, columns


def _gets_there(row: Mapping[Any, Any]) -> str:
    if row["gets_there"] == "not run":
        return "not run"
    if not row["reached"]:
        return f"no: {nearest_text(row)}".removesuffix(": ")
    broken = [
        words for name, words in (("collapsed", "collapsed"), ("over_erased", "over-erased")) if row[name] is True
    ]
    text = f"yes, but broken: {' and '.join(broken)}" if broken else "yes"
    part = f", in {row['reached']} of {row['runs']} runs" if row["reached"] < row["runs"] else ""
    return f"{text}{part} ({', '.join(filter(None, [row['strength'], row['setting']]))})"


def _damage(row: Mapping[Any, Any]) -> str:
    if math.isnan(row["unseen_ma"]):
        return ""
    rise = row["unseen_nll_rise"]
    nll = "" if math.isnan(rise) else f", NLL {rise:+.2f}".replace("-", "−")
    return f"MA {row['unseen_ma_before']:.2f} → {row['unseen_ma']:.2f}{nll}"


def _against(row: Mapping[Any, Any]) -> str:
    if row["is_reference"]:
        return "the reference"
    if math.isnan(row["ratio"]):
        return ""
    ends = "" if math.isnan(row["ratio_low"]) else f" ({row['ratio_low']:.2f}–{row['ratio_high']:.2f})"
    return f"{row['verdict']} ×{row['ratio']:.2f}{ends}".strip()


def _steps(steps: float) -> str:
    return "no" if math.isinf(steps) else f"after {amount(round(steps), 'step')}"


def answer_markdown(analysis: Analysis) -> str:
    """Return the sweep's question and answer, as Markdown."""
    return f"# {markdown_escape(analysis.results.plan.question)}\n\n{answer_text(analysis)}"


def answer_text(analysis: Analysis) -> str:
    """Return each model's card and its tables, as Markdown."""
    parts: list[str] = []
    cards_by_model = cards(analysis)
    for model, card in cards_by_model:
        parts += [f"**{markdown_escape(model)}**"] if len(cards_by_model) > 1 else []
        lines = []
        for heading, text, command in card:
            lines.append(f"- **{heading}.** {markdown_escape(text)}" + (f" `{command}`" if command else ""))
        parts.append("\n".join(lines))
        for level, frame, columns in level_tables(model, analysis):
            parts += [markdown_escape(f"{level}. {head_text(model, analysis)}"), render(frame, columns, "markdown")]
    return "\n\n".join([*parts, *map(markdown_escape, further_notes(analysis))])


def level_tables(model: str, analysis: Analysis) -> list[tuple[str, pd.DataFrame, list[Column]]]:
    """Return a model's tables by level; none where nothing is erased."""
    if analysis.ranked.recitations[model].recites is False:
        return []
    tables = []
    for level in analysis.results.plan.until:
        frame, columns = answer_table(analysis.answer, model, level)
        tables.append((f"At {level_text(level, analysis.answer.heads[model])}", frame, columns))
    return tables


def further_notes(analysis: Analysis) -> list[str]:
    """Return notes on the recited texts, or on missing evidence of recitation."""
    recites = {
        model: recitation
        for model, recitation in analysis.ranked.recitations.items()
        if recitation.recites is not False
    }
    return [recitation.warning for recitation in recites.values() if recitation.warning]


def answer_on_terminal(analysis: Analysis) -> RenderableType:
    """Return each model's card and tables for the terminal."""
    parts: list[RenderableType] = []
    cards_by_model = cards(analysis)
    for model, card in cards_by_model:
        parts += [Text(model, style="bold")] if len(cards_by_model) > 1 else []
        for heading, text, command in card:
            parts.append(Text.assemble((f"{heading}: ", "bold"), f"{text} {command}".strip()))
        for level, frame, columns in level_tables(model, analysis):
            parts += [Text(f"\n{level}. {head_text(model, analysis)}"), render(frame, columns, "terminal")]
    return Group(*parts, *map(Text, further_notes(analysis)))
