"""Metrics that are the better the closer they are to something, and groups of an evaluator's own, all the way."""

import pandas as pd

from harness.analysis import caveats, main_table
from harness.analysis.metrics import own_groups, sort_by_column
from harness.analysis.ranking import RANKS, rank
from harness.contracts import CloserTo, Metric
from harness.reporting.sections.main_table import main_latex, main_markdown
from harness.settings import replace
from tests.unit.analysis.frames import filled

ABOUT = {"unit": "fraction", "low": 0.0, "high": 1.0, "source": "s"}
MA = Metric(name="ma", title="MA", better="lower", group="erasure", **ABOUT)
MAUVE = Metric(name="mauve", title="MAUVE", better="higher", group="generation", **ABOUT)
AUC = Metric(name="auc", title="AUC", better=CloserTo(0.5), group="membership", items="sequence", **ABOUT)
NEAR = replace(AUC, better=CloserTo("retrained"))


def table_of(rows, seeds=(0,), **columns):
    """Rows (variant, MA, MAUVE, AUC of each seed); `retrained` and `original` are references."""
    points = [(*row, auc, seed) for *row, aucs in rows for seed, auc in zip(seeds, aucs, strict=False)]
    frame = pd.DataFrame(points, columns=["variant", "ma", "mauve", "auc", "seed"])
    is_ranked = ~frame["variant"].isin(["retrained", "original"])
    return filled(frame, **{"ranked": is_ranked, "point_id": frame["variant"] + frame["seed"].astype(str)} | columns)


def ranked(table, *metrics, evidence=None):
    return rank(table, sort_by_column(metrics), evidence)


def ranks(table, metric, name="rank_membership"):
    return ranked(table, MA, MAUVE, metric).ranking.set_index("variant")[name].to_dict()


ROWS = [("a", 0.1, 0.9, [0.9]), ("b", 0.2, 0.8, [0.45]), ("c", 0.3, 0.7, [0.2]), ("d", 0.4, 0.6, [0.6])]


def test_the_rank_is_that_of_the_distance_from_the_number():
    assert ranks(table_of(ROWS), AUC) == {"b": "1", "d": "2", "c": "3", "a": "4"}
    assert ranks(table_of(ROWS), replace(AUC, better="lower")) == {"c": "1", "b": "2", "d": "3", "a": "4"}
    assert ranks(table_of(ROWS), replace(AUC, better=CloserTo(0.9))) == {"a": "1", "d": "2", "b": "3", "c": "4"}
    tied = [("a", 0.1, 0.9, [0.75]), ("b", 0.2, 0.8, [0.25]), ("c", 0.3, 0.7, [0.5])]
    assert ranks(table_of(tied), AUC) == {"c": "1", "a": "=2", "b": "=2"}, "as far off is as good"


def test_closer_to_the_retrained_model_of_the_same_seed():
    rows = [("retrained", 0, 1, [0.5, 0.7]), ("a", 0.1, 0.9, [0.5, 0.7]), ("b", 0.2, 0.8, [0.62, 0.62])]
    assert ranks(table_of(rows, (0, 1)), NEAR) == {"a": "1", "b": "2"}
    only_second = table_of(rows, (0, 1))
    only_second = only_second[(only_second["method"] == "retrained") | (only_second["seed"] == 1)]
    assert ranks(only_second, NEAR) == {"a": "1", "b": "2"}
    lone = [("retrained", 0, 1, [0.5]), ("a", 0.1, 0.9, [0.9, 0.1]), ("b", 0.2, 0.8, [0.45, 0.45])]
    assert ranks(table_of(lone, (0, 1)), NEAR) == {"a": "1", "b": "2"}, "its mean stands for a seed that it lacks"
    of_others = table_of(rows, (0, 1))
    of_others.loc[of_others["method"] == "retrained", "model"] = "another"
    assert set(ranks(of_others, NEAR).values()) == {""}, "another model's is none"


def test_without_a_retrained_model_nothing_is_ranked_by_it_and_that_is_said():
    table = table_of(ROWS)
    for metric in (NEAR, replace(NEAR, group="erasure")):
        of_table = ranked(table, MA, MAUVE, metric)
        without = ranked(table, MA, MAUVE)
        assert of_table.ranking[list(RANKS)].equals(without.ranking[list(RANKS)]), "the others' ranks stand"
        assert set(of_table.ranking["unranked"]) == {""}
        [told] = [sentence for sentence in caveats.unranked_metrics(of_table) if "retrained" in sentence]
        assert told.startswith("Nothing on m is ranked by AUC: it is compared with the retrained")
    with_one = pd.concat([table, table_of([("retrained", 0, 1, [0.5])])])
    assert not any("retrained" in sentence for sentence in caveats.unranked_metrics(ranked(with_one, MA, MAUVE, NEAR)))


def test_a_group_of_its_own_has_its_section_and_ranks_that_no_other_rank_looks_at():
    table = table_of([("original", 0.9, 0.9, [0.95]), *ROWS])
    alone, both = (ranked(table, *metrics) for metrics in ((MA, MAUVE), (MA, MAUVE, AUC)))
    assert both.ranking[[*RANKS, "variant", "unranked"]].equals(alone.ranking[[*RANKS, "variant", "unranked"]])
    of_erasure = ranked(table, MA, MAUVE, replace(AUC, group="erasure"))
    assert not both.ranking[list(RANKS)].equals(of_erasure.ranking[list(RANKS)])
    assert "rank_membership" not in alone.ranking
    shown = main_table.main_frame(both).set_index("variant")["rank_membership"].dropna().to_dict()
    assert shown == ranks(table, AUC)
    assert "| AUC → 0.5 | Erasure | Generation | Average | Membership |" in main_markdown(both, "q", "c")
    assert r"AUC $\rightarrow$ 0.5" in main_latex(both, "c")
    assert r"\textbf{Membership}" in main_latex(both, "c")
    assert own_groups(sort_by_column([MA, replace(AUC, ranked=False)])) == [], "nothing in it is ranked"
