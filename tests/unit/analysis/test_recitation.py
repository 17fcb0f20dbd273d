"""Nothing to erase: the rule at its edges, and that it is said before any rank, wherever ranks stand."""

import math
from io import StringIO

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from harness.analysis.analysis import Analysis
from harness.analysis.evidence import Evidence
from harness.analysis.main_table import recited_frame
from harness.analysis.ranking import rank
from harness.analysis.recitation import is_beyond, recitation_sentences, recitations, restrict_to_texts
from harness.records.items import MetricItems
from harness.reporting.files import page, write_tables
from harness.reporting.sections.main_table import ranking_table
from harness.settings import replace
from tests.unit.analysis.frames import filled, known

NOTHING, UNKNOWN = "Nothing to erase, so nothing is ranked", "Whether there is anything to erase is not known"


def rows(*given, model="m"):
    """A table of reference rows: method, MA, its standard error, and those of EL_3 where they matter."""
    filled = [(*row, 0.3, 0.01)[:5] if len(row) == 3 else row for row in given]
    frame = pd.DataFrame(filled, columns=["method", "ma", "ma_stderr", "el_3", "el_3_stderr"])
    return frame.assign(model=model, seed=0, variant=frame["method"], ranked=False)


def of(*given):
    frame = rows(*given)
    return recitations(frame, known(frame))["m"]


def test_beyond_is_more_than_the_floor_and_more_than_chance():
    assert is_beyond((0.151, 0.0), (0.10, 0.0))
    assert not is_beyond((0.149, 0.0), (0.10, 0.0)), "below the floor, however certain"
    assert is_beyond((0.30, 0.03), (0.20, 0.03))
    assert not is_beyond((0.30, 0.04), (0.20, 0.04)), "0.1 < 2 · 0.057"
    assert not is_beyond((0.10, 0.01), (0.90, 0.01)), "less than unseen texts is not more"


BY_MEANS = [
    ([("original", 0.95, 0.01), ("holdout", 0.31, 0.01)], True),
    ([("original", 0.09, 0.01), ("holdout", 0.10, 0.01)], False),
    ([("original", 0.09, 0.01), ("stand_in", 0.45, 0.01)], False),
    ([("original", 0.31, 0.01, 0.5, 0.02), ("holdout", 0.30, 0.01, 0.1, 0.02)], True),  # EL_3 alone is enough
    ([("original", 0.95, 0.01), ("holdout", 0.31, 0.01), ("retrained", 0.94, 0.01)], False),
    ([("original", 0.60, 0.01), ("stand_in", 0.72, 0.01), ("retrained", 0.31, 0.01)], True),
    ([("original", 0.60, 0.01), ("stand_in", 0.31, 0.01), ("holdout", 0.60, 0.01)], False),
    ([("original", 0.95, 0.01)], None),
    ([("original", 0.95, math.nan, 0.9, math.nan), ("holdout", 0.31, 0.01)], None),
]


@pytest.mark.parametrize(("given", "recites"), BY_MEANS)
def test_who_recites(given, recites):
    assert of(*given).recites is recites
    said = of(*given).warning
    assert said.startswith({True: "", False: NOTHING, None: UNKNOWN}[recites])
    assert bool(said) == (recites is not True)


def test_numbers_without_standard_errors_or_of_higher_is_better_decide_nothing():
    frame = rows(("original", 0.09, 0.01), ("holdout", 0.10, 0.01))
    published = frame[["model", "method", "ma", "el_3"]]
    assert recitations(published, known(published))["m"].recites is None
    higher = {name: replace(metric, better="higher") for name, metric in known(frame).items()}
    assert recitations(frame, higher)["m"].warning == "", "nobody asks what is recited"
    unranked = {name: replace(metric, ranked=False) for name, metric in known(frame).items()}
    assert recitations(frame, unranked)["m"].recites is None


def test_each_model_is_judged_by_its_own_rows():
    others = ("holdout", 0.31, 0.01), ("emso", 0.2, 0.01)
    recites, does_not = (rows(("original", ma, 0.01), *others, model="one") for ma in (0.95, 0.31))
    frame = pd.concat([recites, does_not.assign(model="two"), does_not.assign(model="three")], ignore_index=True)
    by_model = recitations(frame, known(frame))
    assert {model: found.recites for model, found in by_model.items()} == {"one": True, "two": False, "three": False}
    ranking = rank(filled(frame.assign(ranked=frame["method"] == "emso")), known(frame)).ranking.set_index("model")
    assert ranking["rank_erasure"].to_dict() == {"one": "1", "two": "", "three": ""}
    [sentence] = recitation_sentences(by_model, "warning")
    assert sentence.startswith(f"two, three: {NOTHING}")


LENGTH = 64


def texts(recited, others, *, said=64, copies=1, prefix="f"):
    """What each of some texts has: an id, its cluster, how many tokens are recited, how long it is, and its MA."""
    rows = [(row, said, 1.0) if row < recited else (row, 1, 0.5) for row in range(recited + others)]
    return [(f"{prefix}{row}", f"{prefix}{row // copies}", of_row, LENGTH, ma) for row, of_row, ma in rows]


def shorter(of_texts, length):
    return [(id, cluster, min(said, length), length, ma) for id, cluster, said, _, ma in of_texts]


UNSEEN = texts(0, 64, prefix="u")
FEW = texts(4, 60)


@pytest.fixture
def analysed(make_row, make_plan, make_point, make_measurement, make_results):
    """Return a maker of a sweep's analysis from what each text has in each row."""

    def make(**given):
        trials, records, by_point = [], {}, {}
        for name, of_row in given.items():
            strengths = () if name in ("original", "retrained", "holdout", "stand_in") else (1,)
            spec = make_row(name, strengths, evaluators={"all": "k"})
            ids, clusters, said, lengths, ma = zip(*of_row, strict=True)
            values = {"ma": ma, "el_3": ma, "exact_match": said, "exact_match_original": lengths}
            values = {metric: np.array(numbers, float) for metric, numbers in values.items()}
            numbers = {metric: float(np.mean(of_metric)) for metric, of_metric in values.items()}
            errors = {metric: float(np.std(values[metric], ddof=1) / len(ids) ** 0.5) for metric in ("ma", "el_3")}
            [strength], ones = spec.points(), np.ones(len(ids))
            numbers |= {"mauve": 0.8, "perplexity": 9.0}
            measured = make_measurement(spec, strength, "all", numbers, notes={"standard_errors": errors})
            records[spec.trial_id] = [make_point(spec, strength), measured]
            of_metrics = {metric: MetricItems(ids, clusters, of_metric, ones) for metric, of_metric in values.items()}
            by_point[spec.point_id(strength)] = of_metrics
            trials.append(spec)
        lines = {f"f{row}": f"line {row + 7}" for row in range(64)}
        analysis = Analysis(make_results(make_plan(*trials, text_names=lines), records))
        vars(analysis)["evidence"] = Evidence(by_point)
        return analysis

    return make


@pytest.fixture
def of_items(analysed):
    return lambda **given: analysed(**given).ranked


def printed(ranked):
    """The main table in the terminal, with single spaces."""
    console = Console(width=120, record=True, file=StringIO())
    console.print(ranking_table(ranked))
    return " ".join(console.export_text().split())


def test_where_nothing_tells_the_ranks_stay_and_are_marked_wherever_they_stand(analysed, tmp_path):
    analysis = analysed(original=FEW, right=[(*row[:4], 0.1) for row in FEW], wrong=FEW)
    ranked, report = analysis.ranked, page(analysis)
    write_tables(ranked, "What?", tmp_path)
    assert ranked.ranking.set_index("variant")["rank_erasure"].to_dict() == {"right": "1", "wrong": ""}
    assert pd.read_csv(tmp_path / "ranking.csv")["recited"].isna().all()
    shown = report[report.index("</nav>") :]
    assert shown.index("Nothing shows that there was anything to erase.") < shown.index(UNKNOWN), "the card says it"
    assert "data.holdout" in shown
    assert shown.count("4 of 64</td>") == shown.count(">line 7, line 8, line 9, line 10</td>") == 3, "these survive"
    assert printed(ranked).startswith(UNKNOWN)
    assert (tmp_path / "table.md").read_text().split("\n\n")[1].startswith(UNKNOWN)
    assert rf"\caption{{{UNKNOWN}" in (tmp_path / "table.tex").read_text()
    write_tables(ranked, "What?", tmp_path, answer=f"{UNKNOWN}.")
    assert (tmp_path / "table.md").read_text().count(UNKNOWN) == 1, "an answer above the table has said it"


BY_TEXTS = [
    ({"original": FEW, "holdout": UNSEEN}, True, 4),
    ({"original": FEW, "stand_in": UNSEEN}, True, 4),
    ({"original": texts(1, 63, said=50), "holdout": UNSEEN}, True, 1),
    ({"original": texts(1, 63, said=49), "holdout": UNSEEN}, False, 0),
    ({"original": FEW, "holdout": texts(1, 63, prefix="u")}, False, 0),
    ({"original": FEW, "retrained": texts(3, 61)}, True, 1),  # of the same texts: what both recite can be guessed
    ({"original": FEW, "retrained": FEW}, False, 0),
    ({"original": FEW, "retrained": FEW, "holdout": UNSEEN}, False, 0),
    ({"original": FEW}, None, 0),
    ({"original": shorter(texts(1, 63), 32), "holdout": shorter(UNSEEN, 32)}, True, 1),
    ({"original": shorter(texts(1, 63), 31), "holdout": shorter(UNSEEN, 31)}, False, 0),
    ({"original": texts(12, 52), "holdout": UNSEEN}, True, 0),  # means show it: ranked on all
]


@pytest.mark.parametrize(("given", "recites", "count"), BY_TEXTS)
def test_one_text_that_is_recited_where_no_unseen_one_is_is_enough(given, recites, count, of_items):
    [known] = of_items(**given).recitations.values()
    assert known.recites is recites
    assert len(known.ranked_on) == count
    assert known.is_by_validation == (recites is True and "stand_in" in given and "holdout" not in given)


BY_COPIES = [
    ({"original": texts(64, 0), "holdout": texts(0, 12, copies=12, prefix="u")}, None, 0),
    ({"original": texts(64, 0), "holdout": texts(0, 12, copies=6, prefix="u")}, True, 0),
    ({"original": texts(12, 0, copies=12), "holdout": UNSEEN}, True, 1),  # one text is no mean, but is recited
    ({"original": texts(0, 12, copies=12), "holdout": UNSEEN}, None, 0),
]


@pytest.mark.parametrize(("given", "recites", "count"), BY_COPIES)
def test_copies_are_one_text_and_one_text_is_no_evidence(given, recites, count, of_items):
    [known] = of_items(**given).recitations.values()
    assert known.recites is recites
    if recites is None:
        assert "which takes two different texts on each" in known.answer
    assert bool(known.ranked_on) == bool(count)
    if count:
        assert known.answer.startswith(f"Yes: the model recites {count} of ")


def test_the_standard_error_of_a_table_counts_copies_once(of_items):
    frame = of_items(original=FEW, holdout=texts(0, 12, copies=12, prefix="u")).table.set_index("method")
    plain = np.std([1.0] * 4 + [0.5] * 60, ddof=1) / 8
    assert frame.loc["original", "ma_stderr"] == plain, "what was noted stands where there are no copies"
    assert math.isnan(frame.loc["holdout", "ma_stderr"])
    twice = of_items(original=[*FEW, *((f"{id}-2", *rest) for id, *rest in FEW)]).table
    assert twice["ma_stderr"].iloc[0] == pytest.approx(plain)


def test_a_sweep_of_few_recited_texts_ranks_on_them_alone(of_items):
    """One method erases the four texts that are recited, another the sixty that are not."""
    on_four = [(*row[:4], 0.6 if row[0] in ("f0", "f1", "f2", "f3") else 0.5) for row in FEW]
    on_others = [(*row[:4], 1.0 if row[0] in ("f0", "f1", "f2", "f3") else 0.01) for row in FEW]
    ranked = of_items(original=FEW, holdout=UNSEEN, right=on_four, wrong=on_others)
    assert ranked.table.set_index("method")["ma"]["wrong"] < ranked.table.set_index("method")["ma"]["right"]
    ranks = ranked.ranking.set_index("method")
    assert ranks["rank_erasure"].to_dict() == {"right": "1", "wrong": ""}
    assert ranks.loc["wrong", "unranked"] == "erased nothing"
    shown = ranked.on_recited_texts.table.set_index("method")
    assert shown["ma"].to_dict() == {"original": 1.0, "holdout": 0.5, "right": 0.6, "wrong": 1.0}
    assert shown.loc["right", ["ma_low", "ma_high"]].tolist() == [0.6, 0.6]
    assert printed(ranked).startswith("Ranked only on these texts: the original recites 4 of 64 texts word for word")
    assert "ORIGINAL 1.000" in printed(ranked)


def test_what_compares_all_texts_with_unseen_ones_is_not_known_of_a_few(of_items):
    """What a text adds to an AUC depends on all others, so that no part of the values has an AUC of its own."""
    ranked = of_items(original=FEW, holdout=UNSEEN)
    [model] = ranked.table["model"].unique()
    info = ranked.info | {"ma": replace(ranked.info["ma"], items="sequence_and_holdout")}
    shown, evidence = restrict_to_texts(ranked.table, info, ranked.evidence, {model: frozenset({"f0", "f1"})})
    of_original = shown.set_index("method").loc["original"]
    assert (math.isnan(of_original["ma"]), of_original["el_3"]) == (True, 1.0)
    assert evidence.items(of_original["point_id"], info["ma"]) is None
    assert ranked.evidence.items(of_original["point_id"], info["ma"]) is not None, "what was given stays"


def test_the_table_of_an_audit_has_no_damage_since_nothing_was_erased():
    frame = filled(rows(("original", 0.9, 0.01), ("holdout", 0.3, 0.01)), unseen_nll=1.0, general_nll=2.0)
    titles = "".join(recited_frame(rank(frame, known(frame)))["metric"])
    assert "MA" in titles
    assert "NLL" not in titles
