"""`measuring: {precision: bf16}`: who measures in it, what is shared by it, and what the report says it changed."""

from functools import partial

import pytest
import torch

from harness.analysis.caveats import changed_choices
from harness.base.files import digest_of
from harness.execution.jobs import Folders, Job, JobQueue
from harness.execution.tasks import EvaluatingTask, JudgeCache, MeasuredModel, measured_set
from harness.execution.trial import run_inline
from harness.models.resolving import resolve_model
from harness.records.artifacts import Artifacts
from harness.reporting.plan import describe_readings
from harness.settings import EvaluatorSpec, replace
from harness.testing import MODEL, small_spec
from harness.toolkit import CausalJudge
from harness.toolkit.device import judging_on


def dtypes(model):
    return {weight.dtype for weight in model.parameters()}


def test_a_model_is_lent_in_each_precision_and_stays_as_it_is(make_model):
    model = make_model()
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    model.register_buffer("frequencies", torch.tensor([1.0 + 2**-12]))
    measured = MeasuredModel(model)
    assert measured.cast_to("fp32") is measured
    lowered = measured.cast_to("bf16")
    assert measured.cast_to("bf16") is lowered, "one copy for all evaluators"
    assert (dtypes(lowered.model), dtypes(model)) == ({torch.bfloat16}, {torch.float32})
    assert lowered.model.lm_head.weight is lowered.model.transformer.wte.weight, "tied weights stay tied"
    assert lowered.model.frequencies.item() == 1.0 + 2**-12, "no weight, so no precision was asked for"
    assert lowered.generations is not measured.generations, "what it writes is another text"
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name])
        assert torch.equal(lowered.model.get_parameter(name), weight.bfloat16())


def test_changed_choices_are_those_of_every_counted_position(make_model, make_sequences):
    texts = torch.randint(60, (12, 20), generator=torch.Generator().manual_seed(0)).tolist()
    sequences = make_sequences([text[: 20 - row] for row, text in enumerate(texts)])
    measured = MeasuredModel(make_model())
    changed = 0
    for tokens, length in zip(sequences.tokens_NT, sequences.lengths_N, strict=True):
        for position in range(1, int(length)):
            models = (measured.cast_to(precision).model for precision in ("fp32", "bf16"))
            exact, lowered = (int(model(tokens[None, :position]).logits[0, -1].argmax()) for model in models)
            changed += exact != lowered
    assert 0 < changed < 20
    counted = {"precision": "bf16", "choices": sum(range(8, 20)), "changed": changed}
    assert measured.changed_choices("bf16", sequences) == counted
    assert measured.changed_choices("fp32", sequences)["changed"] == 0


@pytest.fixture
def evaluators_of(plan_text, sound):
    """Return a function from changes of a sweep to the original's evaluators, by name."""
    planned = partial(plan_text, sound, "evaluators={memorization: , generation: , relearning: }")
    return lambda *changes: {each.name: each for each in planned(*changes).trials[0].evaluators}


def test_precision_is_part_of_what_a_measurement_is_and_fp32_of_none(evaluators_of):
    plain = evaluators_of()
    assert evaluators_of("measuring={precision: fp32, judges: fp32}") == plain
    lowered = evaluators_of("measuring.precision=bf16")
    precisions = {name: each.precision for name, each in lowered.items()}
    assert precisions == {"memorization": "bf16", "generation": "bf16", "relearning": "fp32"}
    assert lowered["relearning"] == plain["relearning"], "it trains the weights as they were erased"
    assert lowered["memorization"].key != plain["memorization"].key
    judged = evaluators_of("measuring.judges=bf16")
    assert judged["memorization"] == plain["memorization"], "its judge embeds texts, in one precision always"
    assert judged["generation"].key not in (plain["generation"].key, lowered["generation"].key)


def test_a_task_lends_every_model_in_its_precision_and_under_another_digest(make_model, tmp_path):
    given = (small_spec(), Artifacts(tmp_path), make_model())
    tasks = [EvaluatingTask(*given, reads=("original",), precision=precision) for precision in ("fp32", "bf16")]
    assert [dtypes(task.load_original()) for task in tasks] == [{torch.float32}, {torch.bfloat16}]
    digests = [task.original_digest() for task in tasks]
    assert digests == [small_spec().model.digest, f"{small_spec().model.digest} in bf16"], "else they shared a cache"


def test_a_judge_in_bf16_is_another_judge_with_nearly_the_same_word():
    cache, checkpoint, read = JudgeCache(), resolve_model("miniature-judge"), {}
    for dtype in (torch.float32, torch.bfloat16):
        with judging_on(torch.device("cpu"), dtype):
            judge = cache.get(CausalJudge, checkpoint)
            read[dtype] = judge.digest, judge.score(["The old mill"], [" stands by the river."])
    (exact_digest, exact), (lowered_digest, lowered) = read.values()
    assert exact_digest != lowered_digest, "or reference features of one were taken for the other's"
    assert lowered.nll[0] == pytest.approx(exact.nll[0], abs=0.15)
    assert lowered.nll != exact.nll
    assert lowered.mean_ND.dtype == exact.mean_ND.dtype


@pytest.mark.soak
def test_a_trial_in_bf16_says_what_that_changed(tmp_path, make_plan, make_results):
    def measuring(name, **more):
        return EvaluatorSpec(name=name, version=1, settings={}, key=f"{name}{sorted(more)}", **more)

    choices = int((measured_set(small_spec()).lengths_N - 1).sum())
    lowered = (measuring("memorization", precision="bf16"), measuring("weights"))
    for evaluators, expected in ((lowered, [choices, None]), ((measuring("memorization"),), [None])):
        about = {"trial_id": digest_of(len(evaluators)), "method": "original", "variant": "original"}
        spec, folders = replace(small_spec(), **about, evaluators=evaluators), Folders(tmp_path, tmp_path / "a")
        run_inline(JobQueue([Job(name="original", kind="trial", spec=spec)], (), folders, lambda event: None))
        results = make_results(make_plan(spec), {spec.trial_id: folders.journal.read(spec.trial_id)})
        [point] = results.measured
        counted = [measurement.notes.get("changed_choices") for measurement in point.measurements]
        assert [notes and notes["choices"] for notes in counted] == expected
        said = list(changed_choices(results.measured))
        assert [MODEL in sentence and "bf16" in sentence for sentence in said] == [True] * (evaluators is lowered)
        [reading] = describe_readings([replace(spec, reading={"stored": "fp16"})])
        assert ("measured in bf16 (weights in fp32)" in reading) == (evaluators is lowered)
