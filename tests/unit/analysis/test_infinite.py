"""A perplexity that no float can hold is infinite: shown, flagged as collapsed, and in nobody's way."""

import math

import numpy as np

from harness.library import load_results
from harness.metric import exponential
from harness.records.items import MetricItems
from harness.records.journal import Journal
from harness.reporting.files import write


def test_a_sweep_with_one_is_reported_and_the_row_has_collapsed(tmp_path, make_row, make_plan, make_measurement):
    rows = [make_row("original"), make_row("gradient_ascent", (1,)), make_row("emso", (1,))]
    nll = {"original": 2.0, "gradient_ascent": 900.0, "emso": 2.1}
    journal = Journal(tmp_path / "s" / "journal")
    journal.write_plan(make_plan(*rows))
    prompts = tuple(f"prompt {number}" for number in range(8))
    for row in rows:
        for strength in row.points():
            values = nll[row.variant] + np.arange(8) / 100
            items = {"perplexity": MetricItems(prompts, prompts, values, np.ones(8))}
            number = exponential(float(values.mean()))
            recited = make_measurement(row, strength, numbers={"ma": 1.0 if row.is_reference else 0.4})
            journal.append(recited)
            journal.append_measurement(
                make_measurement(row, strength, "generation", {"perplexity": number, "mauve": 0.5}), items
            )
    results = load_results(tmp_path / "s")
    table = results.table.set_index("variant")
    assert math.isinf(table.loc["gradient_ascent", "perplexity"])
    assert table["collapsed"].to_dict() | {"original": False} == {
        "original": False,
        "gradient_ascent": True,
        "emso": False,
    }
    ranking = results.ranking.set_index("variant")
    assert ranking.loc["gradient_ascent", "rank_average"] == ""
    assert ranking.loc["emso", "rank_average"] != ""
    for file in write(results.analysis, tmp_path / "s"):
        assert file.stat().st_size
    for name, sign in (("table.md", "∞"), ("table.tex", r"$\infty$"), ("report.html", "∞"), ("table.csv", "inf")):
        assert sign in (tmp_path / "s" / name).read_text(), name
