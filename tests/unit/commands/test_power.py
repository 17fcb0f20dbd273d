"""lethe power: what would tell two methods apart, worked by hand, and what a single seed leaves unsaid."""

import math

import numpy as np
import pytest

from harness.analysis.analysis import Analysis
from harness.cli import main as lethe
from harness.commands.power import pair_power
from harness.library import read_folder
from harness.statistics.contrasts import paired_contrast, power
from harness.statistics.power import contrast_power, replicates_to_find

COSTS = {"ga": 1.0, "gd": 0.8, "kl": 0.95}


@pytest.fixture(scope="module")
def folders(simulate_sweep, tmp_path_factory):
    folder = tmp_path_factory.mktemp("power")
    return {seeds: simulate_sweep(folder / str(seeds), COSTS, seeds=seeds) for seeds in (1, 3)}


@pytest.fixture
def said(capsys):
    """Return a runner: exit code, and the printed text with single spaces."""

    def run(folder, *arguments):
        code = lethe(["power", str(folder), *arguments])
        printed = capsys.readouterr()
        return code, " ".join((printed.out + printed.err).split())

    return run


def test_every_number_follows_from_the_two_methods_prices(folders):
    [_, table] = Analysis(read_folder(folders[3])).verdicts
    gd = next(judged for judged in table.rows if judged.row.variant == "gd")
    found = pair_power(gd, table, 4, margin=0.1)
    prices = {row.variant: np.log(row.prices["perplexity"].numbers_R) for row in table.matched.rows}
    differences = prices["gd"] - prices["ga"]
    assert found["ratio"] == pytest.approx(math.exp(differences.mean()))
    assert found["deviation"] == pytest.approx(differences.std(ddof=1))
    assert found["power_alone"] == pytest.approx(contrast_power(differences.mean(), gd.contrast, 3))
    assert found["power"] < found["power_alone"]
    assert found["needed_alone"] == replicates_to_find(differences.mean(), gd.contrast) < found["needed"]
    asked = pair_power(gd, table, 4, margin=0.1, difference=0.5)
    assert (asked["ratio"], asked["deviation"]) == (pytest.approx(1.5), found["deviation"])
    assert asked["power"] > found["power"]
    assert asked["items_needed"] == found["items_needed"]
    ours, theirs = (row.prices["perplexity"] for row in (gd.row, table.reference))
    assert paired_contrast(ours.items, theirs.items, ours.match, theirs.match).clusters == 48, "sequences are fewer"
    assert found["items"] == 64


def test_of_a_single_seed_only_the_number_of_prompts_is_said(folders, said):
    [table, _] = Analysis(read_folder(folders[1])).verdicts
    for judged in table.rows:
        found = pair_power(judged, table, 4, margin=0.1)
        assert math.isnan(found["deviation"])
        assert (found["needed"], found["needed_alone"], found["items"]) == (None, None, 64)
        deviation = math.sqrt(judged.contrast.items_variance * 64)
        powers = [power(math.log(1.1), deviation, found["items_needed"] - less) for less in (1, 0)]
        assert powers[0] < 0.8 <= powers[1]
    code, text = said(folders[1])
    assert code == 0
    assert "has one seed: seed variance is unknown" in text
    assert "seeds=[0, 1, 2]" in text


def test_several_seeds_have_counts_and_any_row_can_be_the_reference(folders, said):
    code, text = said(folders[3])
    assert code == 0
    assert text.count("3 seeds") == 2
    assert "among 4" in text
    assert "against GA" in text
    assert "has one seed" not in text
    code, text = said(folders[3], "--reference", "gd", "--difference", "0.5")
    assert code == 0
    assert "against GD" in text
    assert text.count(" 1.500 ") == 4


def test_nothing_to_compare_is_a_sentence(folders, said, simulate_sweep, tmp_path):
    alone = simulate_sweep(tmp_path / "alone", {"ga": 1.0}, seeds=2)
    for arguments, reason in (
        ((folders[3], "--reference", "gf"), "no row of this sweep is called 'gf'. "),
        ((folders[3], "--difference=0"), "give a share above 0"),
        ((folders[3], "--difference=nan"), "give a share above 0"),
        ((alone,), "compares no two methods at equal erasure"),
        ((tmp_path / "nowhere",), "journal/plan.json"),
    ):
        code, text = said(*arguments)
        assert (code, reason in text) == (2, True), text
