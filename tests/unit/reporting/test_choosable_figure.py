"""The choosable figure: its data are the table's, its axes are round, and no name in it is more than text."""

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import harness.reporting
from harness.analysis.analysis import Analysis
from harness.analysis.tradeoff.curves import panels, styles
from harness.contracts import Metric, Training
from harness.reporting.figures.axis_scale import axis_scale
from harness.reporting.figures.choosable import choosable_figure, embedded, outline, settings_in_words
from harness.reporting.page import page
from harness.specs import CollapseBounds

NUMBERS = {"ma": 0.9, "el_3": 0.3, "perplexity": 20.0, "mauve": 0.8}
EVIL = "</script><script>alert(1)</script>&amp;<img src=x onerror=alert(1)>"
SCRIPT = (Path(harness.reporting.__file__).parent / "templates" / "choosable_figure.js").read_text(encoding="utf-8")


def metric(high=1.0, low=0.0):
    return Metric(name="a", better="lower", unit="", low=low, high=high, group="erasure", source="", title="A")


@pytest.fixture(scope="module")
def trial(make_row):
    return lambda variant, strengths=(1,), **changes: make_row(variant, strengths, evaluators={"all": "k"}, **changes)


@pytest.fixture(scope="module")
def records(make_point, make_measurement):
    """Return a maker of a trial's records; `at` gives a strength numbers of its own."""

    def make(spec, at=None, samples=(), **numbers):
        kept = []
        for strength in spec.points():
            told = NUMBERS | numbers | (at or {}).get(strength, {})
            kept.append(make_point(spec, strength))
            kept.append(make_measurement(spec, strength, "all", numbers=told, samples=tuple(samples)))
        return kept

    return make


@pytest.fixture(scope="module")
def usual(make_plan, make_ranked, trial, records):
    """A sweep whose EMSO collapses at its third strength and has no MAUVE at its second: its results and table."""
    specs = [trial("original", ()), trial("emso", (1, 2, 3)), *gammas(trial)]
    at = {2: {"mauve": math.nan}, 3: {"perplexity": 2000.0, "ma": 0.123456789}}
    kept = {spec.trial_id: records(spec) for spec in specs}
    kept["emso-0"] = records(specs[1], at)
    return make_ranked(make_plan(*specs, ranked_at={"ta": 0.3}), kept)


def gammas(trial):
    """Trials of a strength that is not cumulative, out of order: each is one of its own."""
    return [replace(trial("ta", (gamma,)), trial_id=f"ta-{gamma}", strength_name="gamma") for gamma in (0.3, 0.1)]


def figure_of(results, ranked, table=None):
    return choosable_figure(results, ranked.table if table is None else table, ranked.info)


class Elements(HTMLParser):
    """Collects every element's name and attributes, and what stands in scripts."""

    def __init__(self, text):
        super().__init__()
        self.found, self.scripts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, text):
        if self.found and self.found[-1][0] == "script" and self.cdata_elem == "script":
            self.scripts[-1] += text


def shown(results, ranked):
    return page(Analysis(results))


def test_every_point_has_every_number_of_the_table(usual):
    results, ranked = usual
    data = figure_of(results, ranked)
    assert [data["metrics"][index]["title"] for index in range(4)] == ["EL", "MA", "Perplexity", "MAUVE"]
    assert [point["id"] for point in data["points"]] == list(ranked.table["point_id"])
    for point, (_, row) in zip(data["points"], ranked.table.iterrows(), strict=True):
        numbers = [math.nan if number is None else number for number in point["numbers"]]
        assert numbers == pytest.approx([row[name] for name in ranked.info], rel=1e-5, nan_ok=True)
        assert data["variants"][point["variant"]]["label"] == row["label"]
        assert data["models"][point["model"]] == row["model"]
        assert point["is_collapsed"] is (row["collapsed"] is True)
    assert [point["is_collapsed"] for point in data["points"]].count(True) == 1


def test_numbers_have_six_digits_and_what_is_none_is_null(usual):
    data = figure_of(*usual)
    assert data["points"][3]["numbers"][:3] == [0.3, 0.123457, 2000.0]
    assert data["points"][2]["numbers"][3] is None
    assert data["points"][2]["texts"][3] == "–"
    json.dumps(data, allow_nan=False)


@pytest.mark.parametrize("number", [math.inf, -math.inf, 1.7e308])
def test_what_no_axis_can_hold_is_told_and_not_drawn(number, usual):
    results, ranked = usual
    table = ranked.table.assign(perplexity=[20.0, number, *ranked.table["perplexity"][2:]])
    data = figure_of(results, ranked, table)
    assert data["points"][1]["numbers"][2] is None
    assert data["points"][1]["texts"][2] not in ("", "–")
    json.dumps(data, allow_nan=False)


def test_a_metric_without_a_number_is_no_choice_and_without_any_there_is_no_figure(usual):
    results, ranked = usual
    data = figure_of(results, ranked, ranked.table.assign(mauve=math.nan))
    assert "MAUVE" not in [each["title"] for each in data["metrics"]]
    assert figure_of(results, ranked, ranked.table.assign(**dict.fromkeys(ranked.info, math.nan))) is None
    assert figure_of(results, ranked, ranked.table.iloc[:0]) is None


def test_the_first_axes_are_those_that_methods_are_compared_by(usual):
    results, ranked = usual

    def titles(**columns):
        data = figure_of(results, ranked, ranked.table.assign(**columns))
        return [data["metrics"][data[axis]]["title"] for axis in "xy"]

    assert titles() == ["Perplexity", "MA"]
    x, y = panels(ranked.info)[0]
    assert titles(perplexity=math.nan) == [x.title, y.title], "else those of the static figure"
    assert titles(perplexity=math.nan, mauve=[0.8, *[math.nan] * 5], ma=[math.nan, *ranked.table["ma"][1:]]) != [
        x.title,
        y.title,
    ], "no point has both"


def test_colours_and_markers_are_those_of_the_static_figure(usual):
    data, of_variant = figure_of(*usual), styles(usual[1].table)
    assert [each["is_reference"] for each in data["variants"]] == [True, False, False]
    assert [each["colour"] for each in data["variants"][1:]] == [colour for colour, _ in of_variant.values()]
    assert [each["marker"] for each in data["variants"][1:]] == [outline(mark, 6.5) for _, mark in of_variant.values()]


@pytest.mark.parametrize("marker", [*"ovs^pXPh*Dd"])
def test_a_marker_stays_within_its_size(marker):
    path = outline(marker, 10.0)
    places = [float(number) for number in re.findall(r"-?[\d.]+", path)]
    assert 10.0 * 1.35 / 2 * 0.9 < max(map(abs, places)) < 10.0 * 1.35 / 2 * 1.45  # A square's corners when turned.
    assert re.fullmatch(r"M[-\d. ]+([LC][-\d. ]+)+Z", path)


def test_lines_join_what_differs_in_strength_alone(usual, make_plan, make_ranked, trial, records):
    # From the original on, and the gammas as they rise, though not run so.
    assert figure_of(*usual)["lines"] == [[0, 5, 4], [0, 1, 2, 3]]
    assert [point["strength"] for point in figure_of(*usual)["points"]] == ["", "1", "2", "3", "0.3", "0.1"]
    seeds = [trial("emso", (1, 2), seed=seed) for seed in (0, 1)]
    rates = [
        replace(trial("ta", (gamma,)), trial_id=f"ta-{gamma}", training=Training(learning_rate=gamma))
        for gamma in (0.1, 0.2)
    ]
    specs = [*seeds, *rates]
    found = figure_of(
        *make_ranked(make_plan(*specs, ranked_at={"ta": 0.1}), {spec.trial_id: records(spec) for spec in specs})
    )
    assert found["lines"] == [[0, 1], [2, 3]]
    assert found["points"][2]["words"][1] == "seed 1"


def test_a_point_tells_its_settings_and_what_happened_to_it(usual):
    points = figure_of(*usual)["points"]
    assert points[0]["words"] == []
    assert points[1]["words"] == ["epochs 1", "k: 2"]
    assert points[3]["words"] == ["epochs 3", "k: 2", "collapsed: gibberish: perplexity"]


def test_settings_tell_of_the_training_only_what_sets_trials_apart(trial):
    slow, fast = (
        replace(trial(name), training=Training(learning_rate=rate)) for name, rate in (("a", 1e-5), ("b", 1e-4))
    )
    assert settings_in_words([trial("original", ()), slow]) == {"a-0": "k: 2"}
    assert settings_in_words([slow, fast]) == {
        "a-0": "k: 2, training.learning_rate: 1e-05",
        "b-0": "k: 2, training.learning_rate: 0.0001",
    }


def test_intervals_are_the_tables_and_whole_or_absent(usual):
    results, ranked = usual
    assert {ends for point in figure_of(results, ranked)["points"] for ends in point["intervals"]} == {None}
    table = ranked.table.assign(ma_low=0.1, ma_high=[0.95, math.nan, *[0.96] * 4])
    first, second = figure_of(results, ranked, table)["points"][:2]
    assert first["intervals"] == [None, [0.1, 0.95], None, None]
    assert first["texts"][1] == "0.900 (0.100 to 0.950)"
    assert second["intervals"] == [None] * 4
    assert second["texts"][1] == "0.900"


def test_an_axis_without_collapsed_points_is_as_long_as_the_others_need(usual):
    whole, without = figure_of(*usual)["scales"][2][0]  # Perplexity, all models.
    assert whole["is_log"]
    assert (whole["low"] < math.log10(20.0), whole["high"] > math.log10(2000.0)) == (True, True)
    assert not without["is_log"]
    assert without["low"] < 20.0 < without["high"] < 30.0


def test_each_model_has_its_own_axes(make_plan, make_ranked, trial, records):
    small, large = (
        replace(spec, model=replace(spec.model, id=name), trial_id=name)
        for name, spec in (("small", trial("a", (1, 2))), ("large", trial("a", (1, 2))))
    )
    kept = {"small": records(small, {2: {"ma": 0.8}}), "large": records(large, {2: {"ma": 0.2}})}
    data = figure_of(*make_ranked(make_plan(small, large), kept))
    both, of_small, of_large = (scales[0] for scales in data["scales"][1])
    assert data["models"] == ["small", "large"]
    assert of_small["low"] == pytest.approx(0.8 - 0.006)
    assert both == of_large
    assert data["lines"] == [[0, 1], [2, 3]]
    collapsed = make_ranked(make_plan(small, large, collapse=CollapseBounds(mauve=2.0)), kept)
    assert collapsed[1].table["collapsed"].isna().all(), "no original, so nothing is known to have collapsed"


def test_nothing_is_left_of_an_axis_whose_points_all_collapsed(usual):
    results, ranked = usual
    table = ranked.table.assign(collapsed=np.array([True] * 6, dtype=object))
    assert [scales[0][1] for scales in figure_of(results, ranked, table)["scales"]] == [None] * 4


@pytest.mark.parametrize(
    ("values", "high", "labels"),
    [
        ([0.0, 1.0], 1.0, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),  # None below 0 or above 1, though the axis is.
        ([0.5], 1.0, ["0.46", "0.48", "0.50", "0.52", "0.54"]),
        ([0.0, 0.0], 1.0, ["0.0", "0.2", "0.4"]),
        ([3.0, 29.9], math.inf, ["5", "10", "15", "20", "25", "30"]),
        ([3.0, 30.1], math.inf, ["5", "10", "20"]),
        ([2.0, 21.0], math.inf, ["2", "5", "10", "20"]),
        ([0.01, 1.0], 1.0, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),  # A bound: never logarithmic.
        ([0.0, 100.0], math.inf, ["0", "20", "40", "60", "80", "100"]),  # 0 has no logarithm.
        ([1.0, 1e12], math.inf, ["1", "100", "10000", "1e6", "1e8", "1e10", "1e12"]),
        ([1e7, 5e7], math.inf, ["1e7", "2e7", "3e7", "4e7", "5e7"]),
    ],
)
def test_ticks_are_round_and_few(values, high, labels):
    assert [label for _, label in axis_scale(values, metric(high)).ticks] == labels


def places(scale):
    return {label: share for share, label in scale.ticks}


def test_a_tick_stands_where_its_number_is():
    scale = axis_scale([0.0, 1.0], metric())
    assert places(scale)["0.0"] == pytest.approx(0.06 / 1.12, abs=1e-4)
    scale = axis_scale([1.0, 100.0], metric(math.inf))
    assert (scale.low, scale.high) == pytest.approx((-0.12, 2.12))
    assert places(scale)["10"] == pytest.approx(0.5)


@pytest.mark.parametrize("values", [[-1e299, 1e299], [1e-300, 1e299], [1e-300], [5e-324, 1e-323], [-3.0, -3.0]])
def test_any_numbers_have_an_axis(values):
    scale = axis_scale(values, metric(math.inf, -math.inf))
    assert -math.inf < scale.low < scale.high < math.inf
    assert 2 <= len(scale.ticks) <= 9
    assert all(0 <= share <= 1 for share, _ in scale.ticks)


def test_the_page_has_the_data_the_script_and_the_static_figure(usual):
    results, ranked = usual
    found = Elements(shown(results, ranked))
    data, script, *_ = found.scripts
    assert json.loads(data) == json.loads(json.dumps(figure_of(results, ranked)))
    assert script.strip() == SCRIPT.strip(), "the template language read something of it"
    assert {attributes["src"][:26] for tag, attributes in found.found if tag == "img"} == {"data:image/svg+xml;base64,"}
    hidden = [attributes for _, attributes in found.found if attributes.get("class") == "choosable"]
    assert hidden == [{"class": "choosable", "hidden": None}], "without a script the static figure alone is seen"


def test_every_point_leads_to_one_row_and_every_sample_is_there(make_plan, make_ranked, trial, records):
    emso, sample = trial("emso", (1, 2)), {"kind": "utility", "prompt": "a", "generated": "b", "reference": "c"}
    specs = [trial("original", ()), emso]
    kept = {spec.trial_id: records(spec, samples=[sample, sample]) for spec in specs}
    results, ranked = make_ranked(make_plan(*specs), kept)
    found = Elements(shown(results, ranked))
    ids = [attributes["id"] for _, attributes in found.found if "id" in attributes]
    assert len(set(ids)) == len(ids)
    [figure] = [script for script in found.scripts if script.startswith('{"metrics"')]
    assert {f"point-{point['id']}" for point in json.loads(figure)["points"]} < set(ids)
    links = [attributes["href"] for tag, attributes in found.found if tag == "a"]
    assert {link[1:] for link in links if link.startswith("#")} < set(ids), "the contents too"
    assert all(link.startswith("#") for link in links)
    links = [link for link in links if link.startswith("#samples-")]
    assert links == [f"#samples-{specs[0].point_id(None)}", f"#samples-{emso.point_id(2)}"], "of ranked points alone"


def test_a_hostile_name_is_only_text(make_plan, make_ranked, trial, records):
    harmless = trial("emso", (1, 2), label="EMSO")
    evil = replace(
        harmless, label=EVIL, model=replace(harmless.model, id=EVIL), strength_name=EVIL, settings={EVIL: EVIL}
    )
    pages = [shown(*make_ranked(make_plan(spec), {"emso-0": records(spec)})) for spec in (harmless, evil)]
    tags = [[tag for tag, _ in Elements(text).found] for text in pages]
    assert tags[0] == tags[1]
    data = json.loads(Elements(pages[1]).scripts[0])
    assert (data["models"], data["variants"][0]["label"]) == ([EVIL], EVIL)
    assert "alert(1)" in pages[1]
    assert "<script>alert" not in pages[1]


def test_what_is_embedded_ends_no_script_and_reads_back():
    text = str(embedded({"a": EVIL + "<!--", "b": "é"}))
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"a": EVIL + "<!--", "b": "é"}


def test_the_script_makes_no_markup_of_data_and_asks_for_nothing():
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "</"):
        assert forbidden not in SCRIPT, forbidden
    for forbidden in ("fetch(", "XMLHttpRequest", "import", "://", "WebSocket", "sendBeacon"):
        assert forbidden not in SCRIPT, forbidden
