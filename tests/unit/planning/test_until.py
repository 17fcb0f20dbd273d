"""The levels of `until`: which trials are walked, what names them, and each fault by its path and sentence."""

from collections import Counter

import pytest

from harness.settings import Level

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
