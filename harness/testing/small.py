"""The small trial that plugins are tried on: the smallest miniature and a few texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from harness.contracts import Evaluator, Model, MoreTexts, Training
from harness.execution.trial.inputs import forget_set
from harness.execution.trial.tasks import MeasuringTask
from harness.models.loading import load_model
from harness.models.resolving import DEFAULT_JUDGES, resolve_judge, resolve_model
from harness.records.artifacts import Artifacts
from harness.specs import Engine, MemorizedTraining, Source, TrialSpec
from harness.toolkit.losses import token_nll

MODEL = "miniature-s"
RETRAINED_MODEL = f"{MODEL}-retrained"
FORGET = Source(source="miniature", sequences=24, sequence_tokens=128, prefix_tokens=64)
RETAIN = Source(source="miniature", sequences=24, sequence_tokens=128, prefix_tokens=1)
UTILITY = Source(source="miniature", sequences=24, sequence_tokens=160, prefix_tokens=32)
MORE_TEXTS: Mapping[MoreTexts, Source] = {
    "holdout": FORGET,
    "retain": RETAIN,
    "validation": replace(RETAIN, sequences=8),
}
"""Read as a holdout, the embedded corpus has records that no model saw."""
TRAINING = Training(learning_rate=1e-3, global_batch=8, micro_batch=8, early_stop=None)


def small_spec(reference: str = "none", seed: int = 0, model: str = MODEL) -> TrialSpec:
    """Return a trial on the smallest miniature, or another model, with a few texts."""
    return TrialSpec(
        trial_id="conformance",
        sweep="conformance",
        variant="plugin",
        method="plugin",
        label="plugin",
        reference=reference,
        settings={},
        method_version=1,
        strength_name="strength",
        strengths=(),
        seed=seed,
        model=resolve_model(model),
        training=TRAINING,
        memorization=MemorizedTraining(epochs=3, learning_rate=1e-3, global_batch=8, gate=0.0),
        engine=Engine(),
        forget=FORGET,
        retain=RETAIN,
        utility=UTILITY,
        validation=MORE_TEXTS["validation"],
        evaluators=(),
        judges={role: resolve_judge(role, name) for role, name in DEFAULT_JUDGES.items()},
    )


def small_task(evaluator: Evaluator, model: Model, artifacts: Artifacts) -> MeasuringTask:
    """Return the small trial's task for an evaluator, with the texts and the model that it reads."""
    read = {*evaluator.reads, *evaluator.reads_if_given}
    texts = {role: source for role, source in MORE_TEXTS.items() if role in read}
    twin = resolve_model(RETRAINED_MODEL) if "retrained" in evaluator.reads else None
    return MeasuringTask(
        small_spec(),
        artifacts,
        model,
        "the evaluator",
        texts=texts,
        retrained=twin,
        reads=evaluator.reads,
        prepares=evaluator.prepares,
    )


def one_word_model() -> Model:
    """Return a collapsed model, which writes the same token for ever."""
    model = load_model(resolve_model(MODEL))
    with torch.no_grad():
        final = model.base_model.ln_f
        final.weight.zero_()
        final.bias.copy_(100.0 * model.get_output_embeddings().weight[300])
    return model


def forget_nll(logits_NTV: torch.Tensor) -> torch.Tensor:
    """Return the mean NLL of each forget sequence's predicted tokens under these logits."""
    return token_nll(logits_NTV[:, :-1], forget_set(small_spec()).tokens_NT[:, 1:]).mean(dim=1)
