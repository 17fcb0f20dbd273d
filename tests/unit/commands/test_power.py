"""lethe power: what would tell two methods apart, worked by hand, and what a single seed leaves unsaid."""

import json
import math

import numpy as np
import pytest

from harness.analysis.analysis import Analysis
from harness.analysis.matched.power import planned_contrasts, power_tables
from harness.cli import main as lethe
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
    """Return a runner: exit code, and what is printed with single spaces."""

    def run(folder, *arguments):
        code = lethe(["power", str(folder), *arguments])
        printed = capsys.readouterr()
        return code, " ".join((printed.out + printed.err).split())

    return run


def test_every_number_follows_from_the_two_methods_prices(folders):
    analysis = Analysis(read_folder(folders[3]))
    [_, of_75] = analysis.verdicts
    assert planned_contrasts(analysis.verdicts) == 4
    table = power_tables([of_75], 4, margin=0.1)[0]
    assert (table.reference.variant, table.replicates, table.replicates_are) == ("ga", 3, "seeds")
    pair = next(pair for pair in table.pairs if pair.row.variant == "gd")
    prices = {row.variant: np.log(row.prices["perplexity"].numbers_R) for row in of_75.matched.rows}
    differences = prices["gd"] - prices["ga"]
    assert pair.ratio == pytest.approx(math.exp(differences.mean()))
    assert pair.deviation == pytest.approx(differences.std(ddof=1))
    assert pair.power_alone == pytest.approx(contrast_power(differences.mean(), pair.contrast, 3))
    assert pair.power < pair.power_alone
    assert pair.needed_alone == replicates_to_find(differences.mean(), pair.contrast)
    assert pair.needed > pair.needed_alone
    # The difference that is looked for is the only thing that a hypothetical one changes.
    asked = next(pair for pair in power_tables([of_75], 4, 0.1, 0.5)[0].pairs if pair.row.variant == "gd")
    assert (asked.ratio, asked.deviation) == (pytest.approx(1.5), pair.deviation)
    assert asked.power > pair.power
    assert asked.items_needed == pair.items_needed


def test_prompts_are_scaled_from_the_variance_over_items(folders):
    [first, _] = Analysis(read_folder(folders[1])).verdicts
    [table] = power_tables([first], 4, margin=0.1)
    for pair in table.pairs:
        assert pair.items == 64
        deviation = math.sqrt(pair.contrast.items_variance * 64)
        powers = [power(math.log(1.1), deviation, count) for count in (pair.items_needed - 1, pair.items_needed)]
        assert powers[0] < 0.8 <= powers[1]


def test_of_a_single_seed_nothing_is_said_but_how_many_prompts(folders, said):
    [first, _] = Analysis(read_folder(folders[1])).verdicts
    [pair, _] = power_tables([first], 4, margin=0.1)[0].pairs
    assert all(math.isnan(one) for one in (pair.deviation, pair.power, pair.power_alone))
    assert (pair.needed, pair.needed_alone) == (None, None)
    assert pair.items_needed > 0
    code, text = said(folders[1])
    assert code == 0
    # Three rows of 180 s and three measurements of 10 s, and the original's: 640 s a seed.
    assert "has one seed" in text
    assert "Two more take about 21 min 20 s" in text
    assert "seeds=[0, 1, 2]" in text
    assert "seed (log)" not in text


def test_several_seeds_have_counts_and_no_word_of_missing_ones(folders, said):
    code, text = said(folders[3])
    assert code == 0
    assert text.count("3 seeds") == 2
    assert "among 4" in text
    assert "has one seed" not in text


def test_a_named_pair_is_compared_though_it_was_not_planned(folders, said):
    code, text = said(folders[3], "--pair", "kl", "gd")
    assert code == 0
    assert "against GD" in text
    assert "among 6" in text, "four were planned, and these are two more"
    code, text = said(folders[3], "--pair", "ga", "gd")
    assert "among 4" in text
    judged = next(one for one in Analysis(read_folder(folders[3])).verdicts[0].rows if one.row.variant == "gd")
    assert f"GA {1 / judged.ratio[0]:.3f}" in text


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--pair", "gf", "ga"], "no row of this sweep is called 'gf'. It compares"),
        (["--pair", "ga", "ga"], "give two rows of the sweep that are not the same"),
    ],
)
def test_a_pair_that_is_none_is_refused(folders, said, arguments, reason):
    code, text = said(folders[3], *arguments)
    assert code == 2
    assert reason in text


@pytest.mark.parametrize("share", ["0", "-0.1", "nan", "inf", "ten"])
def test_a_difference_that_is_none_is_refused(folders, share, capsys):
    with pytest.raises(SystemExit, match="2"):
        lethe(["power", str(folders[3]), f"--difference={share}"])
    assert "give a share above 0" in capsys.readouterr().err


def test_a_sweep_that_compares_nothing_says_why(simulate_sweep, tmp_path, said):
    code, text = said(simulate_sweep(tmp_path / "alone", {}, seeds=2))
    assert code == 2
    assert "compares no two methods at equal erasure" in text
    code, text = said(simulate_sweep(tmp_path / "one", {"ga": 1.0}, seeds=2))
    assert code == 2
    code, text = said(tmp_path / "nowhere")
    assert code == 2
    assert json.dumps("journal/plan.json").strip('"') in text


def test_the_contrast_of_prompts_alone_has_all_prompts(folders):
    [table, _] = Analysis(read_folder(folders[3])).verdicts
    ours, theirs = (row.prices["perplexity"] for row in (table.rows[0].row, table.reference))
    assert paired_contrast(ours.items, theirs.items, ours.match, theirs.match).clusters == 48, "sequences are fewer"
    assert paired_contrast(ours.items, theirs.items).clusters == 64
