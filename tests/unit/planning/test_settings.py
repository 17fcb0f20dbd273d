"""The one tree of settings: what a file says is what a trial carries to its worker, and what an editor checks."""

from collections import Counter
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from harness.commands.plugins import sweep_schema
from harness.planning.plan import check_form, plan_sweep
from harness.planning.sweep_file import read_sweep_file
from harness.settings import Level, Plan, Training, Trial, replace

SWEEPS = Path(__file__).resolve().parents[3] / "sweeps"
SHIPPED = sorted(str(file.relative_to(SWEEPS)) for file in SWEEPS.rglob("*.yaml"))
PLANNED = ("smoke.yaml", "tradeoff.yaml", "tuned.yaml", "learning_rate.yaml")


@pytest.fixture(scope="module")
def validator():
    schema = sweep_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize("name", PLANNED)
def test_a_trial_carries_the_files_own_settings(world, name):
    """Field for field: nothing between the file and the worker has a copy that could miss a setting."""
    judges = [f"judges.{role}={world}/OTHER" for role in ("similarity", "coherence", "perplexity", "features")]
    file = read_sweep_file(SWEEPS / name, [f"models=[{{id: {world}/MODEL, training: {{weight_decay: 0.5}}}}]", *judges])
    sweep, found = check_form(file).sweep, plan_sweep(file)
    rows = {template.variant: template for template in (*check_form(file).templates, *check_form(file).studies)}
    erasing = [spec for spec in found.trials if not spec.is_reference] + [study.trial for study in found.studies]
    assert erasing
    for spec in erasing:
        of_row = rows[spec.variant].training
        said = {**file.settings["training"], "weight_decay": 0.5}
        said |= {name: getattr(of_row, name) for name in of_row.model_fields_set}
        if sweep.tune:
            said.setdefault("early_stop", None)
        assert spec.training == Training(**said)
        assert (spec.samples, spec.sample_count) == (sweep.report.samples, sweep.report.sample_count)
        memorized = sweep.memorized_model.model_dump(exclude_unset=True)
        assert spec.memorization.model_dump(include=memorized.keys()) == memorized
        assert Trial.model_validate_json(spec.model_dump_json()) == spec
    assert (found.compare, found.collapse) == (sweep.compare, sweep.collapse)
    assert Plan.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize("name", SHIPPED)
def test_the_schema_for_editors_allows_every_shipped_sweep(validator, name):
    assert [error.message for error in validator.iter_errors(read_sweep_file(SWEEPS / name).settings)] == []


WRONG = [{"sedes": [0]}, {"until": {"ma": "often"}}, {"training": {"learning_rate": 0}}]
WRONG += [{"methods": {"emso": {"kk": 2}}}, {"evaluators": {"memorization": {"length": 1}}}]


@pytest.mark.parametrize("changes", WRONG)
def test_the_schema_for_editors_refuses_what_the_plan_would(validator, changes):
    assert list(validator.iter_errors({**read_sweep_file(SWEEPS / "smoke.yaml").settings, **changes}))


def test_every_key_has_its_meaning_in_the_schema():
    for name, key in sweep_schema()["$defs"]["Training"]["properties"].items():
        assert key.get("description"), name


def test_a_line_for_editors_is_not_the_question(tmp_path):
    text = (SWEEPS / "smoke.yaml").read_text()
    (tmp_path / "s.yaml").write_text(f"# yaml-language-server: $schema=sweep.schema.json\n{text}")
    assert read_sweep_file(tmp_path / "s.yaml").question == read_sweep_file(SWEEPS / "smoke.yaml").question


def test_settings_that_do_not_exist_cannot_be_replaced(make_spec):
    with pytest.raises(TypeError, match="no field sedd"):
        replace(make_spec(), sedd=1)


HERE = "until={ma: [0.75, unseen]}"


@pytest.fixture
def walked(plan_text, sound):
    """Return a planner of the walked trials of `sound` with changes."""
    return lambda *changes: [spec for spec in plan_text(sound, HERE, *changes).trials if spec.until]


def test_each_row_of_a_grid_is_walked_once_for_each_seed_and_level_to_its_last_strength(walked):
    found = walked("methods.emso={epochs: [1, 2, 3], k: [2, 4]}", "seeds=[0]")
    ends = [("emso(k=2)", 3), ("emso(k=4)", 3), ("task_arithmetic", 0.05), ("kl_divergence", 1), ("full_em", 7)]
    assert [(spec.variant, spec.walk_to) for spec in found if spec.until.at == 0.75] == ends
    assert {spec.strengths for spec in found} == {()}
    counts = Counter((spec.variant, spec.seed, spec.until.key) for spec in walked())
    assert set(counts.values()) == {1}
    assert len(counts) == 4 * 2 * 2
    assert {spec.levels for spec in found} == {(Level(metric="ma", at=0.75), Level(metric="ma", at="unseen"))}


def test_rows_of_one_strength_are_only_walked(plan_text, sound):
    rows = "methods={gradient_ascent: {epochs: 9}, task_arithmetic: {gamma: 1.0}}", "ranking={}", "seeds=[0]"
    assert {bool(spec.until) for spec in plan_text(sound, HERE, *rows).trials if not spec.is_reference} == {True}
    ranked = plan_text(sound, HERE, *rows, "ranking.at={task_arithmetic: 1.0}")
    assert [spec.strengths for spec in ranked.trials if spec.strengths] == [(9,), (1.0,)]
    two = "methods.task_arithmetic.gamma=[0.5, 1.0]", "ranking.at={task_arithmetic: 0.5}"
    listed = plan_text(sound, HERE, *rows, *two)
    assert [spec.strengths for spec in listed.trials if spec.strengths][:3] == [(9,), (0.5,), (1.0,)]


def test_a_walks_id_names_what_decides_its_strength(walked):
    def ids(*changes):
        return {(spec.variant, spec.seed, spec.until.at): spec.trial_id for spec in walked(*changes)}

    before = ids()
    assert len({*before.values()}) == len(before)
    assert ids("until={ma: [0.6, unseen, 0.75]}").items() >= before.items(), "not the other levels"
    other = ids("data.holdout={source: miniature, start: 3}")
    assert {key for key in before if before[key] != other[key]} == {key for key in before if key[2] == "unseen"}
    longer = ids("methods.emso={epochs: [1, 5]}")
    assert {key[0] for key in before if before[key] != longer[key]} == {"emso"}


FAULTS = [
    (["until={el_3: [0.1]}"], "until.el_3", "no metric that a dial is walked by is called 'el_3'"),
    (["until={ma: [1]}"], "until.ma", "must be a number of at least 0 and below 1, unseen"),
    (["until={ma: [0.75, 0.75]}"], "until.ma", "and none twice."),
    (["until={ma: [0.75, unseen, 0.78]}"], "until.ma", "has 0.75 and 0.78, which are closer than 0.04"),
    (["until={ma: []}"], "until.ma", "must name at least one level"),
    (["compare={cost: mauve}"], "compare.cost", "no perplexity of this sweep is called 'mauve'. Known: perplexity."),
    ([HERE, "methods.kl_divergence={epochs: 0}"], "methods.kl_divergence.epochs", "0 by itself erases nothing"),
]


@pytest.mark.parametrize(("changes", "path", "reason"), FAULTS)
def test_faults_of_levels(fault_at, changes, path, reason):
    assert reason in fault_at(path, *changes)


def test_levels_of_what_the_sweep_lacks_are_faults(check, sound, tmp_path):
    found = check("until={ma: [retrained]}", text=sound.replace(", retrained: OTHER", ""))
    assert found["until.ma"].startswith("retrained asks for the retrained model's MA, and 'MODEL' has none: name it")
    texts = tmp_path / "mine.jsonl"
    texts.write_text("\n".join(f'{{"text": "{number:03} {"some other words " * 12}{number}"}}' for number in range(4)))
    forget = f"data.forget={{source: jsonl, path: {texts}, prefix_tokens: 20, sequence_tokens: 50}}"
    assert check("until={ma: [unseen]}", forget)["until.ma"].startswith("unseen asks for the original's MA on unseen")
