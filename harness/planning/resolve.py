"""The `models` and `judges` blocks to pinned checkpoints, checked for their task."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

from harness import miniature
from harness.contracts import Checkpoint, Evaluator, Training
from harness.errors import Fault, Faults, ModelError, did_you_mean
from harness.models import adapters, loading, resolving
from harness.planning.grid import TrialTemplate
from harness.settings import ORIGINAL, Engine, JudgeEntry, Judges, MemorizedModel, ModelEntry, Resources, Sweep, replace

KNOWN_JUDGES = ("miniature", *dict.fromkeys(resolving.DEFAULT_JUDGES.values()), ORIGINAL)

Check = Callable[[Checkpoint], None]
JudgesByRole = Mapping[str, Checkpoint | None]
"""Judges by role; None: each model's original judges it."""


@dataclass(frozen=True)
class ResolvedModel:
    """A model of the sweep with its settings."""

    path: str
    checkpoint: Checkpoint
    retrained: Checkpoint | None
    replicate_of: str | None
    """Name of the models averaged with this one, from the file or the replicate's folder."""
    engine: Engine
    resources: Resources
    training: Training
    """Settings of the sweep and the model's entry; a method's row may override them."""
    memorization: MemorizedModel


def resolve_models(sweep: Sweep, faults: Faults) -> list[ResolvedModel]:
    """Return the sweep's models in the file's order; a faulty one is left out."""
    models: list[ResolvedModel] = []
    path_by_digest: dict[str, str] = {}
    for number, entry in enumerate(sweep.models):
        path = f"models.{number}"
        if entry.engine.workers > 1 and (entry.resources or sweep.resources).gpus not in (0, 1):
            reason = "has workers, which use one GPU each: set resources.gpus to 1, or to 0 for CPUs."
            faults.add(f"{path}.engine", reason)
        if entry.engine.deepspeed and find_spec("deepspeed") is None:
            faults.add(f"{path}.engine", "needs the package deepspeed, which is not installed: pip install deepspeed.")
        resolve = partial(resolving.resolve_original, entry.id, entry.tokenizer, entry.revision)
        checkpoint = _checkpoint(path, resolve, loading.check_model, entry.id, faults)
        if checkpoint is None:
            continue
        earlier = path_by_digest.setdefault(checkpoint.digest, path)
        if earlier != path:
            reason = f"has the same weights as {earlier}, so its trials would be the same: remove one."
            faults.add(path, f"'{entry.id}' {reason}")
            continue
        model = _with_twin(sweep, entry, path, checkpoint, faults)
        models += [model] if model else []
    return models


def _with_twin(
    sweep: Sweep, entry: ModelEntry, path: str, checkpoint: Checkpoint, faults: Faults
) -> ResolvedModel | None:
    replicate = resolving.named_replicate(entry.id)
    shipped = f"{entry.id}-retrained" if f"{entry.id}-retrained" in miniature.names() else None
    twin = entry.retrained or (str(replicate.retrained) if replicate else shipped)
    retrained = None
    if twin:
        resolve = partial(resolving.resolve_model, twin, entry.tokenizer)
        retrained = _checkpoint(f"{path}.retrained", resolve, loading.check_model, twin, faults)
        if retrained is None:
            return None
        if retrained.digest == checkpoint.digest:
            reason = "has the same weights as the model itself. Name one that never saw the forget set, or none."
            faults.add(f"{path}.retrained", reason)
    training, memorization = sweep.training.over(entry.training), sweep.memorized_model
    names = ("learning_rate", "global_batch")
    filled = {name: getattr(memorization, name) or getattr(training, name) for name in names}
    replicate_of = entry.replicate_of or (replicate.replicate_of if replicate else None)
    memorization, resources = replace(memorization, **filled), entry.resources or sweep.resources
    return ResolvedModel(path, checkpoint, retrained, replicate_of, entry.engine, resources, training, memorization)


def _checkpoint(
    path: str, resolve: Callable[[], Checkpoint], check: Check, name: str, faults: Faults, others: Sequence[str] = ()
) -> Checkpoint | None:
    names = (*others, *resolving.named_models())
    try:
        checkpoint = resolve()
        # A check imports transformers' models, which takes seconds. Those of Lethe and of packages are whole.
        shipped = resolving.named_models() if check is loading.check_model else ("minilm",)
        if checkpoint.id not in shipped:
            check(checkpoint)
        return checkpoint
    except ModelError as error:
        has_hint = name in names or "Did you mean" in str(error)
        faults.add(path, f"{error}{'' if has_hint else did_you_mean(name, names)}")
        return None


def method_faults(
    models: Sequence[ResolvedModel], templates: Sequence[TrialTemplate], *, has_retain: bool
) -> Iterator[Fault]:
    """Yield rows whose method cannot erase from a model, or be trained with the file's settings."""
    for template in templates:
        plugin, method, path = template.plugin, template.strongest, f"methods.{template.key}"
        if method.reference == "retain_data" and not has_retain:
            reason = "needs retain data, and the sweep has none: add data.retain, for instance {source: miniature}."
            yield Fault(path, reason)
        training_path = f"{path}.training.lora" if template.training.lora else path
        trains_no_lora = template.training.lora and not plugin.searched_training
        if trains_no_lora:
            why = f"'{template.method}' trains nothing itself, and the model behind it is trained whole: remove lora."
            yield Fault(training_path, why)
        for model in models:
            if refusal := method.refuses(loading.configuration(model.checkpoint)):
                yield Fault(path, f"cannot erase from '{model.checkpoint.id}': {refusal}")
            training = override_training(template, model.training)
            refusal = method.refuses_training(training) or adapters.missing_targets(model.checkpoint, training.lora)
            if refusal and not trains_no_lora:
                yield Fault(training_path, f"cannot be trained so: {refusal}")


def resolve_judges(sweep: Sweep, evaluators: Mapping[str, Evaluator], faults: Faults) -> JudgesByRole:
    """Return the judges that the file names or evaluators need; a faulty one is left out."""
    judges: dict[str, Checkpoint | None] = {}
    used_roles = {role for evaluator in evaluators.values() for role in evaluator.judges}
    for role in Judges.model_fields:
        if role not in used_roles | sweep.judges.model_fields_set:
            continue
        entry: JudgeEntry = getattr(sweep.judges, role)
        path, source = f"judges.{role}", sweep.data.utility.source
        # A judge trained only on the embedded corpus.
        if role in used_roles and source != "miniature" and resolving.is_trained_on_miniature(role, entry.id):
            reason = f"has read nothing but the embedded corpus, so it cannot judge utility texts from {source}"
            remedy = f"Write judges: {{perplexity: {ORIGINAL}, features: {ORIGINAL}}}, or name a model that knows them."
            faults.add(path, f"'{entry.id}' {reason}. {remedy}")
        if entry.id == ORIGINAL:
            if role not in resolving.CAUSAL_ROLES:
                allowed = f"'{ORIGINAL}' judges only {' and '.join(resolving.CAUSAL_ROLES)}"
                faults.add(path, f"{allowed}: {role} needs an encoder of sentences, for instance minilm.")
            judges[role] = None
            continue
        resolve = partial(resolving.resolve_judge, role, entry.id, entry.tokenizer, entry.revision)
        check_weights = loading.check_model if role in resolving.CAUSAL_ROLES else loading.check_encoder
        checkpoint = _checkpoint(path, resolve, check_weights, entry.id, faults, KNOWN_JUDGES)
        if checkpoint is not None:
            judges[role] = checkpoint
    return judges


def override_training(template: TrialTemplate, model_training: Training) -> Training:
    """Return a row's training on a model, without LoRA where the method trains nothing."""
    training = model_training.over(template.training)
    return training if template.plugin.searched_training else replace(training, lora=None)
