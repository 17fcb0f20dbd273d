"""Ranks: the paper's 33, and the rules behind them one by one."""

import math

import numpy as np
import pandas as pd
import pytest

from evaluators.reasoning import Reasoning
from harness.analysis import main_table, ranking, seeds
from harness.analysis.evidence import Evidence
from harness.analysis.ranking import RANKS, competition_ranks, group_ranks, rank, rank_bounds
from harness.records.items import MetricItems
from harness.settings import replace
from tests.unit.analysis.frames import SHIPPED, filled, known


def points(*rows, **columns):
    """A table of ranked points: variant, el_3, ma, perplexity, mauve, and whatever else is named."""
    return filled(pd.DataFrame(rows, columns=["variant", "el_3", "ma", "perplexity", "mauve"]), **columns)


def ranked(table):
    return rank(table, known(table)).ranking.set_index("variant")


def test_a_control_is_shown_takes_no_rank_and_pushes_nobody_down():
    table = points(("a", 0.3, 0.3, 9, 0.5), ("b", 0.1, 0.1, 5, 0.9), ("c", 0.2, 0.2, 7, 0.7))
    assert ranked(table).loc[["a", "c"], "rank_average"].tolist() == ["3", "2"]
    beside = ranked(table.assign(control=table["variant"] == "b"))
    assert beside.loc["b", [*RANKS, "unranked"]].tolist() == ["", "", "", "a control"]
    assert beside.loc[["a", "c"], "rank_average"].tolist() == ["2", "1"]


def test_group_rank_is_the_rank_of_the_mean_rank_and_not_of_the_mean():
    scores = np.array([[9.0, 1.0, 1.0], [1.0, 2.0, 2.0]])
    assert scores.mean(axis=1)[0] > scores.mean(axis=1)[1]
    assert group_ranks(scores).tolist() == [1, 2]  # Mean ranks 4/3 and 5/3.


def test_only_ranked_metrics_of_the_two_groups_count():
    table = points(("a", 0.1, 0.5, 20.0, 0.9), ("b", 0.2, 0.6, 30.0, 0.5))
    before = ranked(table)[list(RANKS)]
    unranked = table.assign(exact_match=[90.0, 0.0], ma_all=[0.9, 0.0], exact_match_original=[90.0, 0.0])
    assert ranked(unranked)[list(RANKS)].equals(before)
    assert not ranked(table.assign(ss=[0.9, 0.1], el_10=[0.9, 0.1]))[list(RANKS)].equals(before)


def seeded(a, b):
    rows = [("a", ma, ma, ma, 0.5) for ma in a] + [("b", ma, ma, ma, 0.5) for ma in b]
    return points(*rows, seed=[*range(len(a)), *range(len(b))])


def test_rank_intervals_are_wide_where_seeds_disagree_and_tight_where_they_agree():
    torn = ranked(seeded([0.1, 0.1, 0.9], [0.2, 0.2, 0.2]))
    assert torn["rank_erasure"].to_dict() == {"a": "2", "b": "1"}, "by the mean, though `a` is better on two seeds"
    assert torn.loc["a", ["rank_erasure_low", "rank_erasure_high"]].tolist() == ["1", "2"]
    clear = ranked(seeded([0.1, 0.2, 0.1], [0.7, 0.8, 0.9]))
    assert clear[["rank_erasure_low", "rank_erasure_high"]].to_numpy().tolist() == [["1", "1"], ["2", "2"]]


def test_bounds_by_hand():
    drawn = np.array([*[[2, 1, 3]] * 2, *[[1, 2, 3]] * 38], dtype=float)
    assert rank_bounds(drawn) == [("1", "2"), ("1", "2"), ("3", "3")], "two of 40 are more than 2.5 %"
    assert rank_bounds(np.array([[1, np.nan]])) == [("1", "1"), ("", "")]


def test_an_over_erased_row_takes_no_rank():
    table = seeded([0.1, 0.1, 0.1], [0.2, 0.2, 0.2])
    ranking = ranked(table.assign(over_erased=[False, True, True, None, False, True]))
    assert ranking.loc["a", [*RANKS, "unranked"]].tolist() == ["", "", "", "over-erased on 2 of 3 seeds"]
    assert ranking.loc["b", ["rank_erasure", "unranked"]].tolist() == ["1", ""], "most seeds decide, as in the answer"


def test_a_metric_without_items_is_drawn_with_the_noise_that_it_declares():
    # 0.07 is 1.5 standard deviations of a difference: 0.033 of one value.
    table = points(("a", 0.1, 0.1, 9.0, 0.70), ("b", 0.1, 0.1, 9.0, 0.70), ("c", 0.1, 0.1, 9.0, 0.30))
    only = {"mauve": SHIPPED["mauve"]}
    of_noise = rank(table, only).ranking.set_index("variant")
    bounds = of_noise.loc[["a", "b", "c"], ["rank_generation_low", "rank_generation_high"]]
    assert bounds.to_numpy().tolist() == [["1", "2"], ["1", "2"], ["3", "3"]]
    drawn_a, drawn_b = (Evidence().draws(seeds.rename_replicates(table).iloc[[row]], only["mauve"]) for row in (0, 1))
    assert drawn_a.std() == pytest.approx(0.033, rel=0.03)
    assert abs(np.corrcoef(drawn_a, drawn_b)[0, 1]) < 0.05, "each variant has its own"
    low, high = Evidence().interval(seeds.rename_replicates(table).iloc[[0]], only["mauve"])
    assert (low, high) == pytest.approx((0.70 - 1.96 * 0.033, 0.70 + 1.96 * 0.033), abs=1e-4)
    near_one = seeds.rename_replicates(table.assign(mauve=0.99)).iloc[[0]]
    assert Evidence().interval(near_one, only["mauve"])[1] == 1.0, "within the metric's bounds"
    silent = {"mauve": replace(SHIPPED["mauve"], source="a published table")}
    assert set(rank(table, silent).ranking["rank_generation_low"]) == {""}
    assert np.isnan(Evidence().interval(near_one, silent["mauve"])).all()


def test_items_are_drawn_alike_for_all_rows():
    # Of each text b has 0.05 more: surely worse, though each mean alone is far less sure than that.
    paired = of_items(original=ORIGINALS, a=ORIGINALS - 0.5, b=ORIGINALS - 0.45).ranking.set_index("variant")
    assert paired["rank_erasure_low"].to_dict() == paired["rank_erasure"].to_dict() == {"a": "1", "b": "2"}
    other = ORIGINALS[::-1].copy()
    unpaired = of_items(original=ORIGINALS, a=ORIGINALS - 0.5, b=other - 0.499).ranking.set_index("variant")
    assert unpaired.loc["a", ["rank_erasure_low", "rank_erasure_high"]].tolist() == ["1", "2"]


def test_a_variant_that_collapsed_on_one_seed_is_not_ranked():
    table = seeded([0.1, 0.1, 0.1], [0.2, 0.2, 0.2])
    table["collapsed"] = [False, True, False, False, False, False]
    table["collapse_class"] = ["healthy", "gibberish", *["healthy"] * 4]
    table["collapse_reason"] = [(), ("perplexity",), *[()] * 4]
    ranking = ranked(table)
    assert ranking.loc["a", ["rank_average", "rank_average_low"]].tolist() == ["", ""]
    assert ranking.loc["a", "unranked"] == "collapsed on 1 of 3 seeds (gibberish: perplexity)"
    assert ranking.loc["b", "rank_average"] == "1"


def test_a_seed_that_was_not_run_is_left_out_and_a_hole_in_one_that_was_is_not():
    assert ranked(seeded([0.1, 0.1], [0.2, 0.2, 0.2])).loc["a", "rank_erasure"] == "1"
    holed = ranked(seeded([0.1, 0.1, np.nan], [0.2, 0.2, 0.2]))
    assert holed.loc["a", "rank_erasure"] == ""
    assert holed.loc["a", "unranked"].startswith("not measured: el_3")


def test_infinite_scores_are_ranked_and_rows_apart():
    scores = np.array([[np.inf, 1e300, -1e300, 2e6], [np.nan, 1.0, np.nan, 1.0]])
    np.testing.assert_array_equal(competition_ranks(scores), [[4, 3, 1, 2], [np.nan, 1, np.nan, 1]])
    assert competition_ranks(np.empty((2, 0))).shape == (2, 0)
    equal_on_paper = np.array([(0.1 + 0.2) / 3, 0.3 / 3, 0.1 + 1e-9])
    assert competition_ranks(equal_on_paper).tolist() == [1, 1, 3]


def of_items(*, texts=64, clusters=None, lacking=(), **given):
    """A ranked table in which each row has an MA for every text, and all have the EL_3 of the original."""
    names = ["original", *(name for name in given if name != "original")]
    table = points(*((name, 0.5, float(np.mean(given[name])), 9, 0.5) for name in names))
    table = table.assign(point_id=table["variant"], ranked=table["method"] != "original", judged_by_original="")
    ids = tuple(f"t{row}" for row in range(texts))

    def kept(values):
        return MetricItems(ids, clusters or ids, np.array(values, float), np.ones(texts))

    by_point = {name: {"ma": kept(given[name]), "el_3": kept([0.5] * texts)} for name in names if name not in lacking}
    return rank(table, known(table), Evidence(by_point))


ORIGINALS = np.linspace(0.8, 1.0, 64)


def test_what_erased_nothing_is_shown_flagged_and_takes_no_rank():
    noise = np.random.default_rng(0).normal(0, 0.05, 64)
    whole = of_items(original=ORIGINALS, same=ORIGINALS, worse=ORIGINALS + 0.05, noisy=ORIGINALS + noise - noise.mean()
                     - 0.004, right=ORIGINALS - 0.3, other=ORIGINALS - 0.2)  # fmt: skip
    ranking = whole.ranking.set_index("variant")
    for idle in ("same", "worse", "noisy"):
        assert ranking.loc[idle, [*RANKS, "unranked"]].tolist() == ["", "", "", "erased nothing"], idle
    assert ranking.loc[["right", "other"], "rank_erasure"].tolist() == ["1", "2"]
    shown = main_table.main_frame(whole).set_index("variant")
    assert shown.loc[["same", "right", "other"], "state"].tolist() == ["erased nothing", "healthy", "healthy"]
    assert shown.loc[["same", "right", "other"], "compared"].tolist() == [False, True, True]
    assert whole.headline_warnings[0].startswith("Whether there is anything to erase"), "others erased something"


def test_copies_make_no_erasure_surer_and_a_certain_difference_counts_however_small_or_of_few_texts():
    little = of_items(original=ORIGINALS, little=ORIGINALS - 0.002 - np.linspace(0, 0.001, 64))
    assert little.ranking.loc[0, ["rank_erasure", "unranked"]].tolist() == ["1", ""]
    given = {"original": ORIGINALS, "some": ORIGINALS - 0.4 * (np.arange(64) < 16)}
    copies = tuple("copy" if row < 16 else f"t{row}" for row in range(64))
    assert of_items(**given).ranking.loc[0, "unranked"] == ""
    assert of_items(**given, clusters=copies).ranking.loc[0, "unranked"] == "erased nothing", "it is one text of 49"
    few = {"texts": 3, "original": np.ones(3)}
    assert of_items(**few, some=[1.0, 0.9, 1.0]).ranking.loc[0, "unranked"] == ""
    assert of_items(**few, same=[1.0, 1.0, 1.0]).ranking.loc[0, "unranked"] == "erased nothing"


def test_where_nothing_tells_whether_a_row_erased_it_keeps_its_rank():
    same = {"original": ORIGINALS, "same": ORIGINALS}
    for lacking in (("original",), ("same",), ("original", "same")):
        assert of_items(**same, lacking=lacking).ranking.loc[0, ["rank_erasure", "unranked"]].tolist() == ["1", ""]


def test_seeds_that_differ_among_themselves_all_erase():
    frames, by_point = [], {}
    ids = tuple(f"t{row}" for row in range(64))
    for seed, less in enumerate((0.1, 0.4)):
        values = {"original": ORIGINALS, "emso": ORIGINALS - less, "idle": ORIGINALS}
        rows = points(*((name, of_row.mean(), of_row.mean(), 9, 0.5) for name, of_row in values.items()), seed=seed)
        frames.append(rows.assign(point_id=rows["variant"] + str(seed), ranked=rows["method"] != "original"))
        for name, of_row in values.items():
            by_point[f"{name}{seed}"] = dict.fromkeys(("ma", "el_3"), MetricItems(ids, ids, of_row, np.ones(64)))
    table = pd.concat(frames, ignore_index=True)
    ranking = rank(table, known(table), Evidence(by_point)).ranking.set_index("variant")
    assert ranking["unranked"].to_dict() == {"emso": "", "idle": "erased nothing"}


DECLARED = {metric.name: metric for metric in Reasoning(tasks=("piqa",)).metrics}
INFO = {name: DECLARED[name] for name in ("piqa", "reasoning", "piqa_stderr")}


def row(variant, piqa, seed=0, strength=math.nan, **changes):
    about = {"variant": variant, "seed": seed, "strength": strength, "ranked": variant != "original"} | changes
    about |= {"strength_name": "" if variant == "original" else "epochs", "point_id": f"{variant}-{seed}"}
    return about | {"piqa": piqa, "piqa_stderr": 0.05, "reasoning": piqa / 2}


ORIGINAL = row("original", 0.8)


def frame_of(*rows):
    return main_table.reasoning_frame(ranking.rank(filled(pd.DataFrame(rows)), INFO))


def test_each_row_has_its_accuracies_and_their_change():
    frame = frame_of(row("emso", 0.75, strength=2.0), row("ga", 0.5, strength=1.0, collapsed=True), ORIGINAL)
    assert list(frame["variant"]) == ["original", "emso", "ga"]
    assert list(frame["strength"]) == ["", "epochs 2", "epochs 1"]
    assert list(frame["collapsed"]) == [False, False, True]
    assert frame["piqa_change"].tolist()[1:] == pytest.approx([-0.05, -0.3])
    assert math.isnan(frame["piqa_change"][0])
    other = frame_of(ORIGINAL, row("original", 0.6, seed=1), row("emso", 0.55, seed=1))
    assert other["piqa_change"][1] == pytest.approx(-0.05), "against the original of its seed"


def test_a_task_that_was_not_measured_is_a_gap_and_not_zero():
    frame = frame_of(ORIGINAL, row("emso", math.nan))
    assert frame[["piqa", "piqa_change"]].isna().loc[1].all()
