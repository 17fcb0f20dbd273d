"""lethe power: what more runs would tell, worked by hand, and what a pilot of one run leaves open."""

import math

import numpy as np
import pytest

from harness.analysis.analysis import Analysis
from harness.cli import main as lethe
from harness.commands.results import EARLIER_DEVIATIONS, power_frame
from harness.library import read_folder
from harness.statistics.contrasts import deviation_bounds, power, runs_needed

COSTS = {"ga": 1.0, "gd": 0.8, "kl": 0.95}


@pytest.fixture(scope="module")
def folders(simulate_sweep, tmp_path_factory):
    folder = tmp_path_factory.mktemp("power")
    return {seeds: simulate_sweep(folder / str(seeds), COSTS, seeds=seeds, noise=0.2) for seeds in (1, 3)}


@pytest.fixture
def said(capsys):
    """Return a runner: exit code, and the printed text with single spaces."""

    def run(folder, *arguments):
        code = lethe(["power", str(folder), *arguments])
        printed = capsys.readouterr()
        return code, " ".join((printed.out + printed.err).split())

    return run


def frame_of(folder, difference=None):
    analysis = Analysis(read_folder(folder))
    answer, [model] = analysis.answer, analysis.answer.heads
    level = analysis.results.plan.until[0]
    frame = power_frame(answer, model, level, difference).set_index("variant")
    return frame, answer.log_prices[model, level.key], answer


def test_every_number_follows_from_the_prices_of_three_runs(folders):
    frame, logs, answer = frame_of(folders[3])
    differences = logs[["gd", "kl"]].sub(logs["ga"], axis=0)
    deviations = differences.std(ddof=1)
    assert frame.loc["gd", "ratio"] == pytest.approx(math.exp(differences["gd"].mean()))
    assert frame.loc["gd", "deviation"] == pytest.approx(max(deviations["gd"], deviations.median()))
    low, high = deviation_bounds(frame.loc["gd", "deviation"], 2)
    assert tuple(frame.loc["gd", ["deviation_low", "deviation_high"]]) == pytest.approx((low, high))
    items = answer.frame.set_index("variant").loc["gd", "item_variance"]
    log = differences["gd"].mean()
    worst, best = (power(log, bound, 5, 2, items) for bound in (high, low))
    assert frame.loc["gd", "found"] == f"{worst:.2f}–{best:.2f}"
    least, most = (runs_needed(log, bound, 2, items) for bound in (low, high))
    assert frame.loc["gd", "needed"] == (f"{least}" if least == most else f"{least}–{most or '> 200'}")


def test_one_run_takes_the_deviations_of_earlier_sweeps(folders, said):
    frame, *_ = frame_of(folders[1], difference=0.5)
    assert np.isnan(frame["deviation"]).all()
    assert (frame["ratio"].to_list(), frame["runs"].to_list()) == (pytest.approx([1.5, 1.5]), [1, 1])
    assert frame.loc["gd", "deviation_low"] == EARLIER_DEVIATIONS[0]
    code, text = said(folders[1])
    assert (code, "earlier sweeps" in text) == (0, True)
    code, text = said(folders[1], "--reference", "gd")
    assert (code, "Against GD" in text) == (0, True)


def test_nothing_to_compare_is_a_sentence(folders, said, simulate_sweep, tmp_path):
    for arguments, reason in (
        ((folders[3], "--reference", "gf"), "no row of this sweep is called 'gf'. "),
        ((folders[3], "--difference=0"), "greater than or equal to 0.001"),
        ((folders[3], "--difference=nan"), "greater than or equal to 0.001"),
        ((simulate_sweep(tmp_path / "alone", {"ga": 1.0}, seeds=2),), "compares no two methods"),
        ((tmp_path / "nowhere",), "journal/plan.json"),
    ):
        code, text = said(*arguments)
        assert (code, reason in text) == (2, True), text
