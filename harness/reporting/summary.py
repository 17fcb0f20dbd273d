"""Card of at most 90 words on top of a report, and the table of prices: on the page, in table.md, on the terminal."""

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from harness.analysis import caveats, damage, metrics, ranking
from harness.analysis.analysis import Analysis
from harness.analysis.answer import BAND, Answer, export_name, values_by_run
from harness.base.messages import amount
from harness.records.results import PointResults
from harness.reporting.render import Column, markdown_escape, render
from harness.settings import REFERENCE_ROWS, UNSEEN_ROWS, Level, Trial
from harness.statistics.contrasts import MIN_RUNS

OTHER_TEXTS = "it covers the choice of texts, not of the training run"
"""Meaning of an interval over items of a single seed."""
DEFINITIONS = {"exact": "the corrected formulas, over all positions"}
DEFINITIONS |= {"table": "the evaluation that the published tables were almost certainly made with"}
UNKNOWN_RECITATION, IDLE = "Nothing shows that there was anything to erase.", "Erased nothing beyond noise"
MAX_NAMES = 3
"""Methods in one list of the card."""
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
    rows, erased = (table[~table["method"].isin(names)] for names in (UNSEEN_ROWS, REFERENCE_ROWS))
    counts = (rows if erased.empty else erased).groupby(["model", "variant"])["seed"].nunique()
    seeds = " to ".join(dict.fromkeys((str(counts.min()), str(counts.max()))))
    items = "the items (sequences, prompts, questions)"
    has_items = any(name.endswith("_low") for name in table.columns)
    if counts.max() > 1:
        over = f"{seeds} seeds" + (f" and {items}" if has_items else "")
        sentences.append(f"Means over {seeds} seeds. Small: the 95 % interval, over {over}.")
    elif has_items:
        sentences.append(f"Small: the 95 % interval over {items}: {OTHER_TEXTS}.")
    return " ".join(sentences)


def cards(analysis: Analysis) -> list[tuple[str, Card]]:
    """Return each model's card."""
    cards_by_model, make_card = [], _answer_card if analysis.results.plan.until else _ranks_card
    for model in analysis.answer.heads:
        recitation = analysis.ranked.recitations[model]
        card = [("Seen", recitation.warning, "")] if recitation.recites is False else make_card(model, analysis)
        cards_by_model.append((model, [line for line in card if line[1]]))
    return cards_by_model


def _answer_card(model: str, analysis: Analysis) -> Card:
    answer, level = analysis.answer, analysis.results.plan.until[0]
    rows = answer.at(model, level)
    sound = rows[(rows["reached"] > 0) & ~rows["broken"].eq(True)]
    priced = sound[sound["price"].notna()]
    return [
        ("Seen", _what_was_seen(rows, sound, priced, level_text(level, answer.heads[model]), answer), ""),
        ("How sure", _how_sure(rows, priced, model, analysis), ""),
        ("To do", *_what_to_do(model, analysis, rows, sound)),
        ("Wrong", _what_is_wrong(rows, model, analysis), ""),
    ]


def level_text(level: Level, head: Mapping[str, Any]) -> str:
    """Return a level in words, with its number."""
    at = head["levels"][level.key][0]
    about = {"unseen": " (as unseen texts)", "retrained": " (as the never-seen model)"}.get(str(level.at), "")
    return f"{level.metric.upper()} {at:.2f}{about}" if about and not math.isnan(at) else str(level)


def _what_was_seen(rows: pd.DataFrame, sound: pd.DataFrame, priced: pd.DataFrame, at: str, answer: Answer) -> str:
    if rows["gets_there"].eq("not run").all():
        return f"Nothing has been measured at {at} yet."
    so_far = " so far" if rows["gets_there"].eq("not run").any() else ""
    if not rows["reached"].any():
        return f"No method gets to {at}{so_far}."
    if not len(sound):
        return f"Every method that gets to {at}{so_far} is broken there."
    if answer.cost is None or not len(priced):
        return f"{_names(sound['label'])} {'get' if len(sound) > 1 else 'gets'} to {at}, at an unknown price."
    logs, prices = answer.log_prices[priced.iloc[0]["model"], priced.iloc[0]["level"]][priced["variant"].tolist()], []
    for row in priced.to_dict("records"):
        count = len(values_by_run(logs[row["variant"]].dropna()))
        part = f" in {count} of {row['runs']} runs" if count < row["runs"] else ""
        prices.append(f"{times(row['price'])}{part}")
    is_least = logs.sub(logs.iloc[:, 0], axis=0).mean().ge(0).all()  # Over the runs that both have.
    first, paid = priced.iloc[0], [" ".join(pair) for pair in zip(priced["label"][1:], prices[1:], strict=True)]
    only = "is the only sound method that gets there" if len(sound) == 1 else "is the only one whose price is known"
    only = "gets there" if len(rows) == 1 else only
    lead = f"{first['label']} {'costs least' if paid else only}{so_far}:"
    lead = lead if is_least else f"prices over different runs{so_far}: {first['label']}"
    others = f"; {_names(paid, '; ')}" if paid else ""
    return f"At {at}, {lead} {metrics.lower_title(answer.cost)} {prices[0]}{others}."


def _how_sure(rows: pd.DataFrame, priced: pd.DataFrame, model: str, analysis: Analysis) -> str:
    runs, seconds = analysis.answer.heads[model]["runs"], analysis.answer.seconds_per_run
    if not runs:
        return ""
    if runs < MIN_RUNS:
        hint = "One training run: a hint." if runs == 1 else "Two training runs: no verdict."
        if not len(priced):
            return hint
        unit = "replicate" if analysis.answer.heads[model]["replicates"] > 1 else "seed"
        more = MIN_RUNS - min(runs, priced["reached"].nlargest(2).min())
        time = f" (about {math.ceil(more * seconds / 60)} min, one trial at a time)" if seconds > 0 else ""
        near = priced[priced["price"] < BAND * priced["price"].min()]["label"]
        alike = f", as between {near.iloc[0]} and {near.iloc[1]}" if len(near) > 1 else ""
        luck = f" Differences below ×{BAND:g} may be luck{alike}." if len(priced) > 1 else ""
        return (
            f"{hint}{luck} {('One', 'Two', 'Three')[more - 1]} more {unit}{'s' if more > 1 else ''}{time} would tell "
            f"{'which are real' if len(priced) > 1 else 'how far the price varies'}."
        )
    if len(rows) == 1:
        return f"{runs} runs of one method: nothing to compare."
    reference = rows[rows["is_reference"].astype(bool)]
    if not len(reference):
        return f"{runs} runs; no sound method to compare with: no verdict."
    first, is_broken = reference.iloc[0], reference["broken"].eq(True).any()
    if is_broken or first["reached"] < MIN_RUNS:
        there = f"is at the level in {first['reached']}" if first["reached"] else "is not at the level"
        state = "is broken" if is_broken else there
        return f"{runs} runs, but {first['label']}, to compare with, {state}: no verdict."
    sentences = []
    for word in ("cheaper", "dearer", "equivalent", "can't tell yet"):
        if len(names := rows[rows["verdict"] == word]["label"]):
            sentences.append(f"{word}: {_names(names)}")
    verdicts = "; ".join(sentences) or f"no other sound method has a price in {MIN_RUNS} runs too, so no verdict"
    return f"{runs} runs, against {first['label']}: {verdicts}."


def _what_to_do(model: str, analysis: Analysis, rows: pd.DataFrame, sound: pd.DataFrame) -> tuple[str, str]:
    point, results = recommended_point(model, analysis), analysis.results
    if point is None:
        is_stuck = not len(sound) and not rows["gets_there"].eq("not run").any()
        return "Try a milder level (until), another learning rate, or other methods." if is_stuck else "", ""
    folder, spec = results.folder, point.spec
    is_kept = folder is not None and (folder.parent / "artifacts" / "erased" / point.erased_key).is_dir()
    elsewhere = ["--results", results.root] if results.root != "results" else []
    name, out = export_name(point, results), export_folder(spec, analysis)
    lead = f"To export {spec.label}:" if is_kept else f"{spec.label}'s model was not kept. This says how to keep it:"
    return lead, shlex.join(["lethe", "export", name, "--out", out, *elsewhere])


def recommended_point(model: str, analysis: Analysis) -> PointResults | None:
    """Return the cheapest sound point that is one model, of the rows whose runs got there most often."""
    rows = analysis.answer.at(model, analysis.results.plan.until[0])
    rows = rows[(rows["reached"] > 0) & ~rows["broken"].eq(True) & rows["price"].notna()]
    measured = {point.spec.point_id(point.strength): point for point in analysis.results.measured}
    is_flagged = analysis.ranked.table.set_index("point_id")[["collapsed", "over_erased"]].eq(True).any(axis=1)
    points = [measured[point_id] for ids in rows["points"] for point_id in ids if not is_flagged[point_id]]
    return next((point for point in points if not (point.made and point.made.is_pair)), None)


def export_folder(spec: Trial, analysis: Analysis) -> str:
    """Return a name for the folder of an exported model, with the original's where the sweep has several."""
    model = f"-{Path(spec.table_model).name}" if len(analysis.answer.heads) > 1 else ""
    return f"{spec.sweep}-{spec.variant.partition('(')[0]}{model}"


def _what_is_wrong(rows: pd.DataFrame, model: str, analysis: Analysis) -> str:
    head, plan, sentences = analysis.answer.heads[model], analysis.results.plan, []
    for name, word in (("over_erased", "over-erased"), ("collapsed", "collapsed")):
        flagged = [row for row in rows.to_dict("records") if row[f"{name}_seeds"]]
        if names := [row["label"] + _on_seeds(row, name) for row in flagged if row[name] is True]:
            sentences.append(f"{word.capitalize()}, so not recommended: {_names(names)}.")
        if names := [row["label"] + _on_seeds(row, name) for row in flagged if row[name] is not True]:
            sentences.append(f"{word.capitalize()}, though not on most seeds: {_names(names)}.")
    labels, missed = [], rows[rows["reached"] < rows["runs"]].to_dict("records")
    for row in missed:
        part = f"in {row['runs'] - row['reached']} of {row['runs']} runs, " if row["reached"] else ""
        is_short = len(missed) > 1 and not math.isnan(row["nearest"])
        near = f"nearest {row['nearest']:.2f}" if is_short else nearest_text(row)
        labels.append(f"{row['label']} ({part}{near})")
    sentences += [f"Not there: {_names(labels)}."] if labels else []
    ranks = analysis.ranked.ranking.query("model == @model").set_index("unranked")["label"]
    idle = dict.fromkeys(ranks[ranks.index == ranking.ERASED_NOTHING])
    sentences += [f"{IDLE}: {_names(idle)}."] if idle else []
    waiting = rows.loc[rows["gets_there"].eq("not run"), "label"]
    sentences += [f"Not run: {_names(waiting)}."] if len(waiting) else []
    sentences.append(caveats.unfinished_trials(analysis.results))
    unmeasured = damage.unmeasured_damage(analysis.ranked.table.query("model == @model"))
    unknown = rows[(rows["reached"] > 0) & rows["broken"].isna()]["label"]
    sentences.append(unmeasured or (f"Not known whether broken: {_names(unknown)}." if len(unknown) else ""))
    sentences += [UNKNOWN_RECITATION] if analysis.ranked.recitations[model].recites is None else []
    models = {spec.model.id for spec in plan.trials if spec.table_model == model}
    if len(models) == 1 and head["runs"] > 1 and any(study.per == "model" for study in plan.studies):
        sentences.append("All seeds share one search, so no interval includes its luck.")
    at = level_text(plan.until[0], head)
    return " ".join(filter(None, sentences)) or f"Nothing was found: all methods get to {at} and none is broken there."


def nearest_text(row: Mapping[Any, Any]) -> str:
    """Return the nearest miss of a level: `nearest 0.83 at gamma 10, early stop`."""
    near = "" if math.isnan(row["nearest"]) else f"nearest {row['nearest']:.2f} at {row['nearest_at']}"
    return ", ".join(filter(None, [near, row["reason"]]))


def _ranks_card(model: str, analysis: Analysis) -> Card:
    ranks, runs = analysis.ranked.ranking.query("model == @model"), analysis.answer.heads[model]["runs"]
    order, collapsed, over, idle = [], [], [], []
    for row in ranks.to_dict("records"):
        if row["rank_average"] != "":
            order.append(f"{row['rank_average']} {row['label']} ({row['strength_name']} {row['strength']})")
        elif row["collapsed"] is True:
            collapsed.append(f"{row['label']}{row['unranked'].removeprefix('collapsed')}")
        elif row["unranked"].startswith(ranking.OVER_ERASED):
            over.append(f"{row['label']}{row['unranked'].removeprefix(ranking.OVER_ERASED)}")
        elif row["unranked"] == ranking.ERASED_NOTHING:
            idle.append(row["label"])
    faults = [UNKNOWN_RECITATION] if analysis.ranked.recitations[model].recites is None else []
    states = ("Collapsed, so not ranked", collapsed), ("Over-erased, so not ranked", over), (IDLE, idle)
    faults += [f"{state}: {_names(names)}." for state, names in states if names]
    nothing = f"No method has a rank{': set ranking.at to other strengths' if collapsed or over or idle else ' yet'}."
    if (ranks.filter(like="rank_") != "").to_numpy().any():
        nothing = "No average rank, which needs metrics of erasure and of generation."
    finding = f"Average rank, the paper's: {_names(order, ' · ')}." if order else nothing
    sure = {0: "", 1: "One training run: a hint."}.get(runs, f"{runs} training runs.")
    do = "To see each method's price where all erase equally, add to the sweep file:" if runs else ""
    card = [("Seen", finding, ""), ("How sure", sure, ""), ("To do", do, "until: {ma: [0.75]}")]
    return [*card, ("Wrong", " ".join(filter(None, [*faults, caveats.unfinished_trials(analysis.results)])), "")]


def times(ratio: float) -> str:
    """Return a ratio with at most two decimals: `×1.27`, `×12`."""
    return f"×{ratio:.2f}".rstrip("0").rstrip(".") if ratio < 10 else f"×{ratio:.0f}"


def _names(names: Iterable[str], between: str = ", ") -> str:
    parts = list(names)
    more = [f"{len(parts) - MAX_NAMES} more"] if len(parts) > MAX_NAMES + 1 else []
    return between.join([*parts[:MAX_NAMES], *more] if more else parts)


def head_text(model: str, analysis: Analysis) -> str:
    """Return the numbers above a table: texts, runs, recitation, and the retrained model's price."""
    head, cost = analysis.answer.heads[model], analysis.answer.cost
    parts = [amount(head["texts"], "text"), amount(head["runs"], "run")]
    titles = {"recited": "recited before: MA", "unseen_ma": "of unseen texts:", "retrained_ma": "the never-seen model:"}
    parts += [f"{title} {metrics.number(head[name])}" for name, title in titles.items() if not math.isnan(head[name])]
    if not math.isnan(head["retrained_price"]):
        parts.append(f"its price {times(head['retrained_price'])}")
    if cost is not None:
        parts.append(f"price: {metrics.lower_title(cost)}, times the original's")
    return "; ".join(parts) + "."


def answer_table(answer: Answer, model: str, level: Level) -> tuple[pd.DataFrame, list[Column]]:
    """Return a model's table at a level, without empty columns."""
    rows = answer.at(model, level)
    records = rows.to_dict("records")
    runs = answer.heads[model]["runs"]
    texts = {"there": [_gets_there(row, runs) for row in records], "back": [_comes_back(row) for row in records]}
    labels = rows["label"].mask(rows["is_reference"].astype(bool), rows["label"] + " (reference)")
    frame = rows.assign(**texts, label=labels).replace("", None)
    columns = [
        *(Column("label", "Method"), Column("there", "Gets there", "note")),
        *(Column("price", "Text quality paid", "ratio"), Column("unseen_ma", "MA of unseen texts", "number")),
        *(Column("unseen_nll_rise", "Their NLL", "change"), Column("ratio", "Against the reference", "ratio")),
        *(Column("verdict", "Verdict"), Column("back", "Comes back")),
    ]
    return frame, [
        column for column in columns if column.name in ("there", "price") or frame[column.name].notna().any()
    ]


def _gets_there(row: Mapping[Any, Any], runs: int) -> str:
    if row["gets_there"] == "not run":
        return "not run"
    if not row["reached"]:
        return f"no: {nearest_text(row)}".removesuffix(": ")
    names = [name for name in ("collapsed", "over_erased") if row[f"{name}_seeds"]]
    damages = " and ".join(name.replace("_", "-") + _on_seeds(row, name) for name in names)
    part = f", in {row['reached']} of {row['runs']} runs" if row["reached"] < row["runs"] else ""
    part += f", {row['runs']} of {runs} runs done" if row["runs"] < runs else ""
    but = f", {'but broken: ' if row['broken'] is True else ''}{damages}" if damages else ""
    setting = "" if ";" in row["setting"] else row["setting"]  # Several, of several searches, are in answer.csv.
    return f"yes{part}{but} ({', '.join(filter(None, [row['strength'], setting]))})"


def _on_seeds(row: Mapping[Any, Any], name: str) -> str:
    count, seeds = row[f"{name}_seeds"], len(row["points"])
    return f" on {count} of {seeds} seeds" if count < seeds else ""


def _comes_back(row: Mapping[Any, Any]) -> str:
    steps = row["comes_back"]
    return "no" if math.isinf(steps) else "" if math.isnan(steps) else f"after {amount(round(steps), 'step')}"


def level_tables(model: str, analysis: Analysis) -> Iterator[tuple[str, pd.DataFrame, list[Column]]]:
    """Yield a model's tables by level, each with the lines above it; nothing where nothing is erased."""
    for level in analysis.results.plan.until if analysis.ranked.recitations[model].recites is not False else ():
        frame, columns = answer_table(analysis.answer, model, level)
        yield f"At {level_text(level, analysis.answer.heads[model])}. {head_text(model, analysis)}", frame, columns


def further_notes(analysis: Analysis) -> list[str]:
    """Return notes on the recited texts, or on missing evidence of recitation."""
    return [each.warning for each in analysis.ranked.recitations.values() if each.recites is not False and each.warning]


def answer_markdown(analysis: Analysis) -> str:
    """Return the sweep's question and answer, as Markdown."""
    return f"# {markdown_escape(analysis.results.plan.question)}\n\n{answer_text(analysis)}"


def answer_text(analysis: Analysis) -> str:
    """Return each model's card and its tables, as Markdown."""
    parts: list[str] = []
    for model, card in cards(analysis):
        parts += [f"**{markdown_escape(model)}**"] if len(analysis.answer.heads) > 1 else []
        lines = []
        for heading, text, command in card:
            lines.append(f"- **{heading}.** {markdown_escape(text)}" + (f" `{command}`" if command else ""))
        parts.append("\n".join(lines))
        for above, frame, columns in level_tables(model, analysis):
            parts += [markdown_escape(above), render(frame, columns, "markdown")]
    return "\n\n".join([*parts, *map(markdown_escape, further_notes(analysis))])


def answer_on_terminal(analysis: Analysis) -> RenderableType:
    """Return each model's card and tables for the terminal."""
    parts: list[RenderableType] = []
    for model, card in cards(analysis):
        parts += [Text(model, style="bold")] if len(analysis.answer.heads) > 1 else []
        parts += [Text.assemble((f"{head}: ", "bold"), f"{text} {command}".strip()) for head, text, command in card]
        for above, frame, columns in level_tables(model, analysis):
            parts += [Text(f"\n{above}"), render(frame, columns, "terminal")]
    return Group(*parts, *map(Text, further_notes(analysis)))
