"""Which blocks were selected how often: counted by hand."""

import pytest

from harness.analysis.blocks import selected_blocks, selection_grid, selection_heading
from harness.contracts import Checkpoint
from harness.models.blocks import kinds_among
from harness.settings import replace

KINDS = kinds_among(())
"""Of GPT-Neo, whose MLPs have no gates."""


@pytest.fixture(scope="module")
def counted(make_results, make_plan, make_point):
    """Return what is counted of trials: `[(trial, {strength: notes})]`."""

    def count(*trials):
        records = {}
        for spec, by_strength in trials:
            records[spec.trial_id] = [make_point(spec, at, notes=notes) for at, notes in by_strength.items()]
        return selected_blocks(make_results(make_plan(*(spec for spec, _ in trials)), records))

    return count


@pytest.fixture(scope="module")
def walk(make_row):
    """Return a maker of a trial that walked some epochs, each with the names that it selected."""

    def make(by_epoch, strengths=None, seed=0, variant="emso", model="miniature-m", shape=(4, 4), **changes):
        strengths, (layers, heads) = strengths or tuple(range(1, len(by_epoch) + 1)), shape
        spec = make_row(variant, strengths, seed, trial_id=f"{variant}-{model}-{seed}", **changes)
        candidates, notes = {kind: [heads if kind.startswith("W") else 1] * layers for kind in KINDS}, {}
        for epoch in strengths:
            selected = [{"block": name, "m": -0.1} for name in by_epoch[epoch - 1]]
            notes[epoch] = {"epoch": epoch, "candidate_blocks": candidates, "selected_blocks": selected}
            notes[epoch]["selected_by_epoch"] = [list(names) for names in by_epoch[:epoch]]
        return replace(spec, model=Checkpoint(model, "/m", "/m", "0")), notes

    return make


def chosen(frame):
    return frame[frame["selections"] > 0].set_index("block")["selections"].to_dict()


def test_each_epoch_counts_once_and_seeds_are_summed(counted, walk):
    """Two seeds: three rounds and two, two blocks each, and points of one trial share their history."""
    first = [["L0.C_proj", "L0.C_fc"], ["L0.C_proj", "L1.W_v.H2"], ["L0.C_proj", "L0.C_fc"]]
    second = [["L0.C_proj", "L3.W_o.H0"], ["L0.C_fc", "L0.C_proj"]]
    frame = counted(walk(first), walk(second, seed=1))
    counts = {"L0.C_proj": 5, "L0.C_fc": 3, "L1.W_v.H2": 1, "L3.W_o.H0": 1}
    assert list(chosen(frame).items()) == list(counts.items()), "the most frequent first, then by place"
    assert len(frame) == 4 * (4 * 4 + 2), "a row for each candidate"
    assert frame.loc[0, ["rounds", "trials", "share", "chance"]].tolist() == [5, 2, 0.5, 1 / 72]


def test_epochs_that_were_not_measured_count_too(counted, walk):
    frame = counted(walk([["L0.C_fc"], ["L1.C_fc"], ["L0.C_fc"], ["L2.C_fc"]], strengths=(2, 4)))
    assert chosen(frame) == {"L0.C_fc": 2, "L1.C_fc": 1, "L2.C_fc": 1}
    assert frame["rounds"].iloc[0] == 4


def test_models_and_variants_are_counted_apart_and_replicates_together(counted, walk):
    once = [["L0.C_fc", "L0.C_proj"]]
    replicate = walk(once, model="seed1", replicate_of="miniature-s")
    frame = counted(walk(once), walk(once, model="miniature-s"), replicate, walk(once, variant="random_em"))
    by_row = frame.groupby(["model", "variant"], sort=False)
    rounds = {("miniature-m", "emso"): 1, ("miniature-s", "emso"): 2, ("miniature-m", "random_em"): 1}
    assert by_row["rounds"].first().to_dict() == rounds
    assert by_row["selections"].sum().tolist() == [2, 4, 2]


def test_selections_by_hand(counted, walk):
    """Three layers, each of four kinds with two heads and two whole matrices: 30 candidates."""
    picked = [["L0.W_v.H1", "L2.W_q.H0"]] * 2 + [["L0.W_v.H1", "not a block"]] + [["L0.W_v.H1"]] * 2
    frame = counted(walk(picked, shape=(3, 2)))
    assert selection_heading(frame) == "EMSO on miniature-m: 5 rounds, 7 selections."
    counts_LK, kinds = selection_grid(frame)
    assert kinds == [*["W_q"] * 2, *["W_k"] * 2, *["W_v"] * 2, *["W_o"] * 2, "C_fc", "C_proj"]
    assert counts_LK.tolist() == [[0, 0, 0, 0, 0, 5, 0, 0, 0, 0], [0] * 10, [2, *[0] * 9]]
