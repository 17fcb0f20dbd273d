"""The `judges` block to pinned checkpoints, and the refusal of judges that do not know the texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from harness.contracts import Checkpoint, Evaluator
from harness.errors import unknown
from harness.miniature import checkpoints as miniature
from harness.models.loading import check_encoder, check_model
from harness.models.resolving import CAUSAL_ROLES, DEFAULT_JUDGES, knows_only_the_miniature, resolve_judge
from harness.planning.config import JudgeEntry, Judges, Sweep, UtilitySource
from harness.planning.faults import Faults
from harness.planning.subjects import resolved
from harness.specs import ORIGINAL

KNOWN_NAMES = ("miniature", *dict.fromkeys(DEFAULT_JUDGES.values()), ORIGINAL)

JudgesByRole = Mapping[str, Checkpoint | None]
"""Role to the judge that all models of the sweep share; None: each model is judged by its own original."""


def judges(sweep: Sweep, evaluators: Mapping[str, Evaluator], faults: Faults) -> dict[str, Checkpoint | None]:
    """Return every judge that the file names or an evaluator asks for; a faulty one is left out."""
    found: dict[str, Checkpoint | None] = {}
    used = {role for evaluator in evaluators.values() for role in evaluator.judges}
    for name, evaluator in evaluators.items():
        for role in evaluator.judges:
            if role not in Judges.model_fields:
                faults.add(f"evaluators.{name}", unknown("judge role", role, Judges.model_fields))
    for role in (role for role in Judges.model_fields if role in used | sweep.judges.model_fields_set):
        entry: JudgeEntry = getattr(sweep.judges, role)
        if role in used:
            _refuse_strangers(role, entry.id, sweep.data.utility, faults)
        if entry.id == ORIGINAL:
            _check_original(role, entry, faults)
            found[role] = None
            continue
        resolve = partial(resolve_judge, role, entry.id, entry.tokenizer, entry.revision)
        check_weights = check_model if role in CAUSAL_ROLES else check_encoder
        known = (*KNOWN_NAMES, *miniature.names())
        checkpoint = resolved(resolve, check_weights, entry.id, known, f"judges.{role}", faults)
        if checkpoint is not None:
            found[role] = checkpoint
    return found


def judges_of(judges: JudgesByRole, model: Checkpoint) -> dict[str, Checkpoint]:
    """Return the judges of one model's trials: where that is the model itself, its id is `original`."""
    return {role: judge or replace(model, id=ORIGINAL) for role, judge in judges.items()}


def _refuse_strangers(role: str, id: str, utility: UtilitySource | None, faults: Faults) -> None:
    """Add a fault for a judge that has read nothing but the embedded corpus, where the texts are others."""
    if utility is None or utility.source == "miniature" or not knows_only_the_miniature(role, id):
        return
    faults.add(
        f"judges.{role}",
        f"'{id}' has read nothing but the embedded corpus, so it cannot judge utility texts from "
        f"{utility.source}: it is used with data.utility.source: miniature alone. Write judges: {{perplexity: "
        f"{ORIGINAL}, features: {ORIGINAL}}} (the model before erasure, always at hand), or name a model that "
        "knows such texts, for instance openai-community/gpt2-large.",
    )


def _check_original(role: str, entry: JudgeEntry, faults: Faults) -> None:
    """Add a fault where the original cannot judge, or is given what its own model entry says."""
    if role not in CAUSAL_ROLES:
        allowed = " and ".join(CAUSAL_ROLES)
        reason = f"'{ORIGINAL}' judges {allowed} alone: {role} needs an encoder of sentences, for instance minilm."
        faults.add(f"judges.{role}", reason)
    for name in ("tokenizer", "revision"):
        if getattr(entry, name) is not None:
            reason = f"'{ORIGINAL}' is each model as the models block has it: leave out its {name}."
            faults.add(f"judges.{role}.{name}", reason)
