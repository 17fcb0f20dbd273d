"""Published tables beside ours: what can be compared and why not, tolerances, and the door that verifies."""

import math
from dataclasses import asdict

import pandas as pd
import pytest

from harness import cli
from harness.analysis.published import COLLAPSED_THERE, published_frame
from harness.contracts import Checkpoint, LoRA, Training
from harness.planning.published import PUBLISHED, published_conditions
from harness.records.journal import Journal
from harness.settings import MEMORY_SETTINGS, MemorizedModel, Source, Trial, replace

NEO = "EleutherAI/gpt-neo-125m"
SETTINGS = {"select_nll": {"loss": "nll"}, "random_em": {"selection": "random"}}
SETTINGS |= {"without_direction": {"selection": "saliency"}, "full_em": {"selection": "all"}, "emso": {}}
DEFAULTS = {"k": 2, "loss": "em", "selection": "contrastive", "reselect": "epoch", "norm": "l1", "scale": "sqrt_d"}
DEFAULTS |= {"require_negative": False}
ABLATION = pd.read_csv(PUBLISHED / "emso_ablation.csv").set_index("variant")
NAMES = ("el_3", "ma", "perplexity", "mauve")


@pytest.fixture(scope="module")
def paper_row(make_row):
    """Return a maker of rows under the paper's own conditions."""
    conditions = published_conditions()["emso_ablation"]
    judges = {role: Checkpoint(ids[0], ids[0], ids[0], "j", "j") for role, ids in conditions.judges.items()}
    fields = {
        "model": Checkpoint(NEO, NEO, NEO, "c0ffee", "c0ffee"),
        "forget": Source(source="extraction_challenge", rows=15_000, **conditions.forget),
        "utility": Source(digest="u", **conditions.utility),
        "validation": Source(digest="v", **conditions.validation),
        "judges": judges | {"features": Checkpoint("f", "f", "f", "f")},
        "training": Training(),
        "memorization": MemorizedModel(epochs=10, learning_rate=1e-5, global_batch=64, gate=0.98),
        "evaluators": {"memorization": "m", "generation": "g"},
    }

    def make(variant, strengths=(7,), method="emso", **changes):
        settings = DEFAULTS | SETTINGS.get(variant, {})
        return make_row(variant, strengths, method=method, **fields | {"settings": settings} | changes)

    return make


@pytest.fixture(scope="module")
def ablation(make_plan, paper_row):
    """The rows of the paper's table 2, and the original."""
    original = paper_row("original", (), method="original", settings={})
    return make_plan(original, *map(paper_row, SETTINGS), reproduces="emso_ablation")


@pytest.fixture(scope="module")
def measured(make_point, make_measurement, declared):
    """Return a maker of a plan's records, with the published figures but for those of `moved`."""
    groups = {"memorization": NAMES[:2], "generation": NAMES[2:]}
    metrics = {evaluator: tuple(map(asdict, declared(*names))) for evaluator, names in groups.items()}

    def make(plan, definition="table", moved=()):
        records = {}
        for spec in plan.trials:
            figures = {"el_3": 0.212, "ma": 0.789, "perplexity": 27.69, "mauve": 0.702}
            if spec.variant in ABLATION.index:
                figures = ABLATION.loc[spec.variant, list(NAMES)].to_dict()
            figures |= {name: value for variant, name, value in moved if variant == spec.variant}
            kept = records.setdefault(spec.trial_id, [])
            for strength in spec.points():
                kept.append(make_point(spec, strength))
                for evaluator, names in groups.items():
                    numbers, told = {name: figures[name] for name in names}, {"definition": definition}
                    told["metrics"] = metrics[evaluator]
                    kept.append(make_measurement(spec, strength, evaluator, numbers, **told))
        return records

    return make


@pytest.fixture(scope="module")
def compare(make_ranked):
    """Return a maker of the comparison of a plan's records with what is published."""
    return lambda plan, records: published_frame(*make_ranked(plan, records))


@pytest.fixture
def folder(tmp_path):
    """Return a maker of a results folder from a plan and its records."""

    def make(plan, records):
        journal = Journal(tmp_path / "sweep" / "journal")
        journal.write_plan(plan)
        for record in [record for kept in records.values() for record in kept]:
            journal.append(record)
        return str(tmp_path / "sweep")

    return make


def changed(plan, **changes):
    return replace(plan, trials=tuple(replace(spec, **changes) for spec in plan.trials))


def cell(frame, label, name):
    [row] = frame[(frame["label"] == label) & (frame["name"] == name)].itertuples()
    return row


def obstacles(frame):
    return list(dict.fromkeys(frame["obstacles"].explode().dropna()))


def test_under_the_papers_conditions_every_figure_is_compared(compare, measured, ablation):
    frame = compare(ablation, measured(ablation))
    assert list(frame["label"].unique()) == ["Select & NLL", "Random & EM", "w/o Dir", "Full & EM", "Ours"]
    assert list(frame["name"].unique()) == [*NAMES, "collapsed"]
    is_collapsed = frame["label"] == "Select & NLL"
    assert set(frame.loc[~is_collapsed, "is_inside"]) == {True}
    assert set(frame.loc[is_collapsed, "collapsed"]) == {True}
    assert set(frame.loc[is_collapsed, "obstacles"][:-1]) == {(COLLAPSED_THERE,)}
    assert cell(frame, "Select & NLL", "collapsed").is_inside, "the flag of a collapsed model is compared"
    assert cell(frame, "Ours", "ma").published == 0.573


def test_a_cell_lies_inside_up_to_its_tolerance_and_not_beyond(compare, measured, ablation):
    for value, is_inside in ((0.573 + 0.05, True), (0.573 - 0.05, True), (0.6231, False), (0.5229, False)):
        ma = cell(compare(ablation, measured(ablation, moved=[("emso", "ma", value)])), "Ours", "ma")
        assert ma.is_inside is is_inside, value
        assert ma.difference == pytest.approx(value - 0.573)


def test_a_wrong_flag_is_outside_and_an_unknown_one_too(compare, measured, ablation):
    for value in (0.01, math.nan):
        frame = compare(ablation, measured(ablation, moved=[("emso", "mauve", value)]))
        assert cell(frame, "Ours", "collapsed").is_inside is False


DIFFERENT = [
    ({"model": Checkpoint("miniature-m", "/m", "/m", "0")}, "table", ["another model"]),
    ({"model": Checkpoint(NEO, NEO, NEO, "a folder of that name")}, "table", ["another model"]),
    ({}, "exact", ["another definition"]),
    ({"forget": Source(source="miniature", digest="d", rows=256)}, "table", ["another forget set"]),
    ({"utility": Source(source="miniature", sequences=256)}, "table", ["other utility texts"]),
    ({"training": Training(learning_rate=4e-5)}, "table", ["other training"]),
    ({"validation": Source(source="miniature")}, "table", ["other validation texts"]),
    ({"strengths": (4,)}, "table", ["another strength"]),
]


@pytest.mark.parametrize(("changes", "definition", "reasons"), DIFFERENT)
def test_what_differs_is_told_from_the_plan(compare, measured, ablation, changes, definition, reasons):
    plan = changed(replace(ablation, trials=ablation.trials[1:]), **changes)
    frame = compare(plan, measured(plan, definition=definition))
    assert [told.partition(" (")[0] for told in obstacles(frame) if told != COLLAPSED_THERE] == reasons
    of_erasure, of_generation = cell(frame, "Ours", "ma"), cell(frame, "Ours", "mauve")
    assert of_generation.is_inside is None
    assert of_erasure.is_inside is (True if reasons == ["other utility texts"] else None)


@pytest.mark.parametrize("training", [name for name in Training.model_fields if name not in MEMORY_SETTINGS])
def test_no_setting_of_training_is_forgotten(compare, measured, ablation, training):
    others = {"lora": LoRA(rank=1), "precision": "bf16", "loss_region": "continuation"}
    methods = replace(ablation, trials=ablation.trials[1:])
    plan = changed(methods, training=Training(**{training: others.get(training, 3)}))
    assert f"other training ({training} " in " ".join(obstacles(compare(plan, measured(plan))))


def test_no_field_of_a_trial_is_forgotten():
    assert len(Trial.model_fields) <= 36, "is a new one compared with published tables, or decides it no number?"


def test_another_judge_spoils_what_it_judges_and_no_more(compare, measured, ablation):
    judges = {role: Checkpoint("miniature-judge", "/j", "/j", "j") for role in ("perplexity", "features")}
    plan = changed(ablation, judges=judges)
    table = compare(plan, measured(plan))
    assert cell(table, "Ours", "perplexity").obstacles == ("another judge (miniature-judge, not EleutherAI/gpt-j-6b)",)
    assert cell(table, "Ours", "mauve").is_inside, "whose features MAUVE used is not stated"


def test_rows_are_told_by_their_settings_and_not_by_their_names(compare, measured, ablation):
    renamed = tuple(replace(spec, variant=f"row-{index}", label="x") for index, spec in enumerate(ablation.trials[1:]))
    plan = replace(ablation, trials=renamed)
    assert set(compare(plan, measured(plan))["lacking"]) == {""}
    other = replace(plan, trials=tuple(replace(spec, settings={**spec.settings, "k": 4}) for spec in renamed))
    table = compare(other, measured(other))
    assert table.loc[0, "lacking"] == "no row of this sweep is emso with loss nll, strength 7"
    assert set(table["is_inside"]) == {None}


def test_seed_noise_widens_no_tolerance_and_too_much_of_it_verifies_nothing(compare, measured, ablation, paper_row):
    seeds = tuple(paper_row("emso", seed=seed, trial_id=f"emso-{seed}") for seed in range(3))
    plan = replace(ablation, trials=seeds)

    def of_seeds(*values):
        records = {}
        for spec, ma in zip(seeds, values, strict=True):
            records |= measured(replace(plan, trials=(spec,)), moved=[("emso", "ma", ma)])
        return cell(compare(plan, records), "Ours", "ma")

    alike, near, apart = of_seeds(0.57, 0.57, 0.57), of_seeds(0.58, 0.59, 0.60), of_seeds(0.60, 0.63, 0.66)
    assert {it.tolerance for it in (alike, near, apart)} == {0.05}
    assert (alike.is_inside, near.is_inside) == (True, True)
    assert apart.ours == pytest.approx(0.63)
    assert apart.is_inside is False, "its interval reaches the published figure, and it does not"
    torn, far = of_seeds(0.3, 0.6, 0.9), of_seeds(0.7, 0.9, 1.0)
    assert torn.is_inside is None, "what would agree with anything agrees with nothing"
    assert torn.obstacles == ("our own figure of MA is too uncertain to compare: its 95 % interval is too wide",)
    assert far.is_inside is False, "no interval makes a disagreement one that is not told"


def test_verify_ends_with_0_inside_and_with_1_when_one_cell_is_moved_out(folder, measured, ablation, capsys):
    assert cli.main(["verify", folder(ablation, measured(ablation))]) == 0
    said = capsys.readouterr().out
    assert "21 of 25 cells can be compared: 21 inside, 0 outside." in said
    assert "OUTSIDE" not in said
    assert COLLAPSED_THERE in " ".join(said.split())
    assert cli.main(["verify", folder(ablation, measured(ablation, moved=[("full_em", "el_3", 0.2)]))]) == 1
    said = capsys.readouterr().out
    assert ("20 inside, 1 outside" in said, said.count("OUTSIDE"), "+0.126" in said) == (True, 1, True)
    for beyond in (math.nan, math.inf):
        assert cli.main(["verify", folder(ablation, measured(ablation, moved=[("emso", "ma", beyond)]))]) == 1


def test_cells_that_cannot_be_compared_are_not_passed(folder, measured, ablation, capsys):
    trials = (*ablation.trials[:-1], replace(ablation.trials[-1], training=Training(lora=LoRA(rank=4))))
    plan = replace(ablation, trials=trials)
    assert cli.main(["verify", folder(plan, measured(plan))]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "16 of 25 cells can be compared: 16 inside, 0 outside." in said
    assert "The table is not verified: 5 of its cells cannot be compared" in said


def test_verify_names_rows_that_are_missing(folder, measured, ablation, capsys):
    records = measured(ablation)
    del records["random_em-0"]
    assert cli.main(["verify", folder(replace(ablation, trials=ablation.trials[:-1]), records)]) == 2
    said = capsys.readouterr()
    assert f"Random & EM on {NEO}: 'random_em', seed 0, is not finished" in said.err
    assert f"Ours on {NEO}: no row of this sweep is emso with strength 7" in said.err
    assert said.out == ""
