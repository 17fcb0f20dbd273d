"""Replicates in a sweep: models pretrained alike from several seeds, which tables average under one name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from harness import miniature
from harness.data.loading import reading_difference
from harness.errors import DataError, Fault, ModelError
from harness.models.loading import architecture, load_tokenizer, positions
from harness.models.resolving import resolve_model, with_own_tokenizer
from harness.planning.resolve import ResolvedModel
from harness.planning.schema import Sweep
from harness.planning.texts import Texts, overlong


def grouped_replicates(models: Sequence[ResolvedModel]) -> list[ResolvedModel]:
    """Return the models, each with the name that it shares with other models, or with none.

    A model whose id is a name that others have said belongs to them.
    """
    said = {model.replicate_of for model in models}
    names = [model.replicate_of or (model.checkpoint.id if model.checkpoint.id in said else None) for model in models]
    members = Counter(names)
    grouped = []
    for model, name in zip(models, names, strict=True):
        grouped.append(replace(model, replicate_of=name if members[name] > 1 else None))
    return grouped


def replicate_faults(sweep: Sweep, models: Sequence[ResolvedModel], texts: Mapping[str, Texts]) -> Iterator[Fault]:
    """Yield why models, all of the sweep's and grouped, cannot be averaged as replicates."""
    groups: dict[str, list[ResolvedModel]] = {}
    for model, entry in zip(models, sweep.models, strict=True):
        if model.replicate_of is not None:
            groups.setdefault(model.replicate_of, []).append(model)
        elif entry.replicate_of is not None:
            known = sorted({other.replicate_of or other.id for other in sweep.models if other is not entry})
            hint = f"What the others are called or replicate: {', '.join(known)}." if known else "It is the only model."
            reason = f"no other model of this sweep is a replicate of '{entry.replicate_of}', so nothing is averaged."
            yield Fault(f"{model.path}.replicate_of", f"{reason} {hint}")
    for model in models:
        own = model.checkpoint.id
        if own in groups and model.replicate_of != own:
            reason = f"others are replicates of '{own}' itself, so it cannot be one of '{model.replicate_of}'."
            yield Fault(f"{model.path}.replicate_of", f"{reason} Leave this out, or say the same name for all of them.")
    for name, members in groups.items():
        yield from _group_faults(name, members, texts)


def _group_faults(name: str, members: Sequence[ResolvedModel], texts: Mapping[str, Texts]) -> Iterator[Fault]:
    first, *others = members
    if name in miniature.names() and name not in {model.checkpoint.id for model in members}:
        reason = _difference(architecture(first.checkpoint), architecture(resolve_model(name)))
        if reason:
            yield Fault(first.path, f"is no replicate of '{name}': {reason}")
    wanted, seen = architecture(first.checkpoint), {first.retrained.digest if first.retrained else None: first.path}
    for model in others:
        if model.checkpoint.digest == first.checkpoint.digest:
            continue  # That is a fault already.
        reasons = [_difference(architecture(model.checkpoint), wanted)]
        if not reasons[0] and _tokenizer_reading(model, texts) != _tokenizer_reading(first, texts):
            reasons.append("its tokenizer is another, so it would not be measured on the same tokens.")
        if (model.training, model.engine) != (first.training, first.engine):
            reasons.append("its training or engine is another. Say both once, for all of them.")
        if (model.retrained is None) != (first.retrained is None):
            reasons.append("one has a retrained model and the other has none. Name it for all of them, or for none.")
        elif model.retrained and (before := seen.setdefault(model.retrained.digest, model.path)) != model.path:
            reasons.append(f"its retrained model is that of {before}, which would count twice. Name its own, or none.")
        for reason in filter(None, reasons):
            yield Fault(model.path, f"cannot be averaged with {first.path} as replicates of '{name}': {reason}")


def _difference(shapes: Mapping[str, object], wanted: Mapping[str, object]) -> str:
    differing = [f"{key} is {shapes[key]}, not {wanted[key]}" for key in shapes if shapes[key] != wanted[key]]
    return f"its {', '.join(differing)}." if differing else ""


def _tokenizer_reading(model: ResolvedModel, texts: Mapping[str, Texts]) -> tuple[object, ...]:
    """Return what shows how a model's tokenizer reads: its vocabulary, and what it made of the sweep's texts."""
    digests = {role: source.digest for role, source in texts.get(model.path, {}).items()}
    return load_tokenizer(model.checkpoint).get_vocab(), digests


def twin_faults(models: Sequence[ResolvedModel], texts: Mapping[str, Texts]) -> Iterator[Fault]:
    """Yield why a retrained model cannot be measured on the token ids of the model that it is compared with."""
    for model in models:
        if model.retrained is None or model.path not in texts:
            continue
        path, sources = f"{model.path}.retrained", texts[model.path]
        try:
            twin = with_own_tokenizer(model.retrained)
            if positions(twin) < positions(model.checkpoint):
                yield from overlong(sources, twin)
            difference = reading_difference(model.checkpoint, twin, sources)
        except (DataError, ModelError) as error:
            yield Fault(path, f"cannot read the sweep's texts: {error}")
            continue
        if difference:
            yield Fault(
                path,
                f"has another tokenizer (in {twin.tokenizer}) than '{model.checkpoint.id}' (in "
                f"{model.checkpoint.tokenizer}): {difference}. It would be measured on token ids that are other texts "
                "to it. Name a model that was retrained with the same tokenizer, or leave retrained out.",
            )
