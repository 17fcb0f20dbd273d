"""The one tree of settings: what a file says is what a trial carries to its worker, and what an editor checks."""

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from harness.commands.plugins import sweep_schema
from harness.planning.plan import check_form, plan_sweep
from harness.planning.sweep_file import read_sweep_file
from harness.settings import Plan, Training, Trial, replace

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
