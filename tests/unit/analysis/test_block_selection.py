"""Which blocks were selected how often: counted by hand, from notes as they are, as they were, and as nobody meant."""

from dataclasses import replace

import pytest
from harness.analysis.blocks.published import differs, published_selection
from harness.analysis.blocks.selection import (
    BlockSelection,
    block_selections,
    first_third,
    kind_shares,
    layer_shares,
    selection_frame,
    third_of,
)
from harness.reporting.figures.blocks import heat_map

from harness.contracts import Checkpoint
from harness.models.blocks import blocks, counts_by_kind, kinds_among
from harness.reporting.sections.blocks import block_section

KINDS = kinds_among(())
"""Of GPT-Neo, whose MLPs have no gates."""
SETTINGS = {"k": 2, "selection": "contrastive", "loss": "em", "reselect": "epoch"}


def candidates(layers=4, heads=4):
    """The note of a model with these layers and heads."""
    return {kind: [heads if kind.startswith("W") else 1] * layers for kind in KINDS}


@pytest.fixture(scope="module")
def counted(make_results, make_plan, make_point):
    """Return what is counted of trials: `[(trial, {strength: notes})]`, and the sentences about what was not."""

    def count(*trials):
        records = {
            spec.trial_id: [make_point(spec, strength, notes=notes) for strength, notes in by_strength.items()]
            for spec, by_strength in trials
        }
        return block_selections(make_results(make_plan(*(spec for spec, _ in trials)), records))

    return count


@pytest.fixture(scope="module")
def walk(make_row):
    """Return a maker of a trial that walked some epochs, each with the names that it selected."""

    def make(by_epoch, strengths=None, seed=0, variant="emso", model="miniature-m", shape=(4, 4), **changes):
        strengths = strengths or tuple(range(1, len(by_epoch) + 1))
        spec = make_row(variant, strengths, seed, trial_id=f"{variant}-{model}-{seed}", **changes)
        notes = {
            epoch: {
                "epoch": epoch,
                "candidate_blocks": candidates(*shape),
                "selected_blocks": [{"block": name, "m": -0.1} for name in by_epoch[epoch - 1]],
                "selected_by_epoch": [list(names) for names in by_epoch[:epoch]],
            }
            for epoch in strengths
        }
        return replace(spec, model=Checkpoint(model, "/m", "/m", "0")), notes

    return make


def made(counts, rounds=7, note=None, **changes):
    """A selection as it would have been counted."""
    told = {kind: tuple(layers) for kind, layers in note.items()} if note else None
    fields = {"model": "m", "variant": "emso", "label": "EMSO", "specs": (), "rounds": rounds}
    return BlockSelection(**fields | {"sizes": (2,), "counts": counts, "candidates": told} | changes)


def test_each_epoch_counts_once_and_seeds_are_summed(counted, walk):
    """Two seeds: three rounds and two, two blocks each, and points of one trial share their history."""
    first = [["L0.C_proj", "L0.C_fc"], ["L0.C_proj", "L1.W_v.H2"], ["L0.C_proj", "L0.C_fc"]]
    second = [["L0.C_proj", "L3.W_o.H0"], ["L0.C_fc", "L0.C_proj"]]
    (selection,), unreadable = counted(walk(first), walk(second, seed=1))
    assert list(selection.counts.items()) == [
        *[("L0.C_proj", 5), ("L0.C_fc", 3), ("L1.W_v.H2", 1), ("L3.W_o.H0", 1)],
    ], "the most frequent first, then by place"
    assert (selection.rounds, selection.total, selection.sizes) == (5, 10, (2,))
    assert unreadable == []


def test_epochs_that_were_not_measured_count_too(counted, walk):
    chosen = [["L0.C_fc"], ["L1.C_fc"], ["L0.C_fc"], ["L2.C_fc"]]
    (selection,), _ = counted(walk(chosen, strengths=(2, 4)))
    assert selection.counts == {"L0.C_fc": 2, "L1.C_fc": 1, "L2.C_fc": 1}
    assert (selection.rounds, selection.sizes) == (4, (1,))


def test_models_and_variants_are_counted_apart_and_replicates_together(counted, walk):
    chosen = [["L0.C_fc", "L0.C_proj"]]
    selections, _ = counted(
        walk(chosen),
        walk(chosen, model="miniature-s"),
        walk(chosen, model="seed1", replicate_of="miniature-s"),
        walk(chosen, variant="random_em"),
    )
    shown = {(one.model, one.variant): (one.rounds, one.total) for one in selections}
    assert shown == {
        ("miniature-m", "emso"): (1, 2),
        ("miniature-s", "emso"): (2, 4),
        ("miniature-m", "random_em"): (1, 2),
    }


def test_a_sweep_without_selections_has_no_such_section(counted, make_row):
    assert counted((make_row("original"), {}), (make_row("ascent", (1,)), {1: {"epoch": 1}})) == ([], [])
    assert block_section([], [], published_selection()) is None


def test_shares_by_hand():
    """Three layers, each of four kinds with two heads and two whole matrices: 30 candidates."""
    selection = made({"L0.W_v.H1": 5, "L0.C_fc": 1, "L2.W_q.H0": 2}, note=candidates(3, 2))
    shares = dict(zip(KINDS, kind_shares(selection, KINDS), strict=True))
    assert (shares["W_v"].fraction, shares["C_fc"].fraction, shares["W_q"].fraction) == (5 / 8, 1 / 8, 2 / 8)
    assert shares["W_k"].fraction == 0.0
    assert (shares["W_v"].chance, shares["C_fc"].chance) == (6 / 30, 3 / 30)
    assert [share.fraction for share in layer_shares(selection)] == [6 / 8, 0.0, 2 / 8]
    assert {share.chance for share in layer_shares(selection)} == {10 / 30}
    third = first_third(selection)
    assert (third.count, third.total, third.chance) == (6, 8, 1 / 3)
    assert [third_of(layers) for layers in (1, 2, 4, 12, 24, 32)] == [1, 1, 1, 4, 8, 11]


def test_all_models_of_a_variant_stand_in_one_row_below_them():
    small = made({"L0.C_fc": 2, "L0.W_v.H0": 2}, rounds=2, note=candidates(1, 1), model="small")
    large = made({"L0.C_fc": 6}, rounds=3, note=candidates(1, 4), model="large")
    section = block_section([small, large], [], None)
    assert [(row.model, row.rounds, row.selections) for row in section.kinds] == [
        *[("small", 2, 4), ("large", 3, 6), ("all models", 5, 10)],
    ]
    of_fc = [row.cells[KINDS.index("C_fc")] for row in section.kinds]
    assert [(cell.text, cell.below) for cell in of_fc] == [
        ("50 %", "2, by chance 17 %"),
        ("100 %", "6, by chance 5.6 %"),
        ("80 %", "8, by chance 10 %"),  # 0.4 / 6 + 0.6 / 18
    ]
    assert [row.model for row in block_section([small], [], None).kinds] == ["small"]


def test_the_published_frequencies_are_what_the_paper_says():
    """Section 4.4: 11 of 14 in shallow layers, and 7 rounds of 2 blocks."""
    selection = published_selection().selection
    assert (selection.total, selection.rounds, selection.unplaced) == (14, 7, ())
    assert (first_third(selection).count, first_third(selection).chance) == (11, pytest.approx(1 / 3))
    assert kind_shares(selection, KINDS)[0].chance == 144 / 600


def test_published_figures_stand_beside_the_same_model_walked_as_far(counted, walk):
    chosen = [["L2.W_v.H11", "L0.C_fc"]] * 7
    like = {"model": "EleutherAI/gpt-neo-125m", "shape": (12, 12), "settings": SETTINGS}
    selections, _ = counted(walk(chosen, **like), walk(chosen, seed=1, **like))
    section = block_section(selections, [], published_selection())
    (table,) = section.frequencies
    cells = {row.block: (row.ours, row.published, row.difference) for row in table.rows}
    assert cells["L2.W_v.H11"] == ("14", "7", "+0"), "two seeds, and the difference is of one"
    assert cells["L11.C_proj"] == ("0", "3", "−3")
    assert cells["L0.C_fc"] == ("14", "0", "+7")
    assert section.kinds[-1].label == "published (EMSO, Table 4)"
    assert not any("beside no other" in sentence for sentence in section.sentences)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "miniature-m"}, "miniature-m is another model"),
        ({"method": "mine"}, "EMSO is another method"),
        ({"settings": SETTINGS | {"selection": "random", "k": 3}}, "EMSO has another selection and k"),
        ({"epochs": 6}, "EMSO ran 6 rounds in 1 trials, not 7 in each"),
        ({}, ""),
    ],
)
def test_published_figures_stand_beside_nothing_else(changes, reason, counted, walk):
    changes = {"model": "EleutherAI/gpt-neo-125M", "settings": SETTINGS} | changes
    epochs = changes.pop("epochs", 7)
    spec, notes = walk([["L2.W_v.H11", "L0.C_fc"]] * epochs, strengths=(epochs,), shape=(12, 12), **changes)
    (selection,), _ = counted((spec, notes))
    assert differs(selection, published_selection()) == reason
    section = block_section([selection], [], published_selection())
    assert section.frequencies[0].has_published == (not reason)
    assert any(reason in sentence for sentence in section.sentences) == bool(reason)


def test_the_heat_map_has_a_cell_for_each_block_with_its_number():
    counts = {"L3.W_v.H2": 7, "L0.C_proj": 3, "L1.W_v.H0": 1}
    figure = heat_map(made(counts, note=candidates(4, 4)))
    by_kind = dict(zip(("W_q", "W_k", "W_v", "W_o", "C"), figure.axes, strict=False))
    cells = {
        kind: {patch.get_xy(): text.get_text() for patch, text in zip(ax.patches, ax.texts, strict=False)}
        for kind, ax in by_kind.items()
    }
    assert cells == {"W_q": {}, "W_k": {}, "W_v": {(2, 3): "7", (0, 1): "1"}, "W_o": {}, "C": {(1, 0): "3"}}
    assert by_kind["W_v"].get_ylim() == (4, 0), "the shallowest on top"
    darkness = [1 - sum(patch.get_facecolor()[:3]) / 3 for patch in by_kind["W_v"].patches]
    assert darkness[0] > darkness[1]
    assert heat_map(made(counts)).axes[0].get_xlim() == (0, 3), "as far as was selected"


def test_a_gated_model_with_groups_has_their_panels_and_shares():
    """Two layers of four heads in two groups, with gates: 2 * (4 + 2 + 2 + 4 + 3) = 30 candidates."""
    note = {**{kind: [4, 4] for kind in ("W_q", "W_o")}, **{kind: [2, 2] for kind in ("W_k", "W_v")}}
    note |= {kind: [1, 1] for kind in ("C_gate", "C_fc", "C_proj")}
    counts = {"L1.W_v.G1": 5, "L0.W_q.H3": 2, "L1.C_gate": 1}
    selection = made(counts, note=note)
    panels = heat_map(selection).axes[:5]
    assert [(ax.get_xlabel(), ax.get_xlim()[1]) for ax in panels] == [
        *[("head", 4), ("group", 2), ("group", 2), ("head", 4), ("", 3)],
    ]
    assert [patch.get_xy() for patch in panels[2].patches] == [(1, 1)]
    plain = made({"L0.C_fc": 4}, note=candidates(2, 4), model="plain")
    section = block_section([selection, plain], [], None)
    assert section.kind_names == ("W_q", "W_k", "W_v", "W_o", "C_gate", "C_fc", "C_proj")
    of_gate = [(row.model, row.cells[4].text, row.cells[4].below) for row in section.kinds]
    assert of_gate == [
        ("m", "12 %", "1, by chance 6.7 %"),
        ("plain", "0 %", "0, by chance 0 %"),
        ("all models", "8.3 %", "1, by chance 4.4 %"),  # 8/12 * 2/30
    ]
    assert block_section([plain], [], None).kind_names == KINDS
    frame = selection_frame([selection])
    assert list(frame["head"].fillna(-1)) == [1, 3, -1]
    assert list(frame["chance"]) == [1 / 30] * 3


def test_candidates_are_the_models_blocks(make_model):
    model = make_model(layers=2, heads=4)
    counts = counts_by_kind(blocks(model))
    assert counts == candidates(2, 4)
    assert sum(map(sum, counts.values())) == len(blocks(model))
