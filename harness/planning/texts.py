"""The `data` block to sources: defaults filled in, contents read once and digested, roles checked for overlap."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from harness.base import files, messages
from harness.contracts import Checkpoint, Sequences
from harness.data import sequences, sources
from harness.errors import DataError, Fault, Faults, ModelError
from harness.models.loading import check_tokenizer, load_tokenizer, positions, vocabulary
from harness.models.resolving import CAUSAL_ROLES
from harness.planning.resolve import ResolvedModel
from harness.settings import VALIDATION_ROW, Data, Source, Sweep, TextSource, replace

MIN_HALVED = 4
"""At least two continuations in each half, for a standard error."""
LENGTHS = dict.fromkeys(("forget", "retain", "validation"), "sequence_tokens") | {"utility": "reference_tokens"}
"""Setting of the length of a role's texts; a holdout's are never longer than the forget set's."""
NEXT_TEXTS = (
    "is left out, so the texts after data.utility's are taken: those that end trainings or choose settings must not "
    "be reported on. Name other texts, lower data.utility.prompts, or end no training early "
    "(training.early_stop: null). "
)
"""Prefix of the reason why those cannot be used."""
Texts = Mapping[str, Source]
"""Sources by role, as one tokenizer cuts them: `retain`, `holdout` and `stand_in` where they exist, `selection` and
`report` where the forget set is halved."""


def resolve_texts(
    sweep: Sweep, models: Sequence[ResolvedModel], is_steered: bool, faults: Faults
) -> tuple[dict[str, Texts], tuple[str, ...], dict[str, str]]:
    """Return the texts of each model by its path in the file, a sentence on each two roles that share a few, and names.

    The names say where each text to forget stands in its file, by its item's id.

    Each tokenizer reads them once. Without a model, hence a tokenizer, only rows and lengths are checked.
    `is_steered`: validation texts stop trainings early or choose settings.
    """
    data = sweep.data
    if not models:
        for role in sources.ROLES:
            section: TextSource | None = getattr(data, role)
            try:
                if section is not None:
                    sequences.check_rows(sources.section_source(section, role), role)
            except DataError as error:
                faults.add(f"data.{role}", str(error))
        return {}, (), {}
    texts: dict[str, Texts] = {}
    shared, names = list[str](), dict[str, str]()
    texts_by_tokenizer: dict[tuple[str, int], Texts | None] = {}
    for model in models:
        checkpoint = model.checkpoint
        try:
            key = checkpoint.tokenizer, vocabulary(checkpoint)
            if key not in texts_by_tokenizer:
                check_tokenizer(checkpoint)
                texts_by_tokenizer[key], sentences = _read_texts(sweep, checkpoint, is_steered, faults, names)
                shared += sentences
        except ModelError as error:
            faults.add(model.path, str(error))
            continue
        model_texts = texts_by_tokenizer[key]
        if model_texts is not None:
            faults += length_limit_faults(model_texts, checkpoint)
            texts[model.path] = model_texts
    return texts, tuple(dict.fromkeys(shared)), names


def length_faults(data: Data) -> Iterator[Fault]:
    """Yield prefixes that leave no continuation."""
    forget = sources.section_source(data.forget, "forget")
    for role in sources.WHOLE_ROLES:
        section: TextSource | None = getattr(data, role)
        if section is not None and section.model_fields_set & {"prefix_tokens", "sequence_tokens"}:
            source = sources.section_source(section, role, forget)
            prefix, length = source.prefix_tokens, source.sequence_tokens
            if prefix >= length:
                reason = f"must be below sequence_tokens ({length}), so that a continuation is left; got {prefix}."
                yield Fault(f"data.{role}.prefix_tokens", reason)


def _read_texts(
    sweep: Sweep, model: Checkpoint, is_steered: bool, faults: Faults, names: dict[str, str]
) -> tuple[Texts | None, tuple[str, ...]]:
    """Return every source with its digest, None if one cannot be read, and a sentence on each overlap; fill `names`."""
    data, texts, is_sound = sweep.data, dict[str, Source](), True
    loaded: dict[sources.Role, Sequences | sequences.Utility] = {}
    for role in sources.ROLES:
        section: TextSource | None = getattr(data, role) or sources.default_section(data, role, texts)
        if section is None:
            continue
        forget = texts.get("forget") or sources.section_source(data.forget, "forget")
        source = sources.section_source(section, role, forget)
        if role == "retain":
            source = replace(source, sequences=source.sequences or forget.rows or None)
        is_default = role == "validation" and data.validation is None and source.source != "miniature"
        if is_default and is_steered:  # Reported texts must not steer: take the next ones.
            source = replace(source, start=sequences.first_unread(texts["utility"], "utility", load_tokenizer(model)))
        try:
            loaded[role] = sequences.load_texts(source, role, model)
            if role == "holdout" and source.sequences is None:
                count = min(len(loaded[role]), forget.rows or sequences.MAX_UNSEEN, sequences.MAX_UNSEEN)
                source = replace(source, sequences=count)
                loaded[role] = sequences.load_texts(source, role, model)
        except DataError as error:
            faults.add(f"data.{role}", f"{NEXT_TEXTS if is_default and is_steered else ''}{error}")
            is_sound = False
            continue
        texts[role] = sequences.counted_source(source, loaded[role])
    whole = loaded.get("forget")
    if not is_sound or not isinstance(whole, Sequences):
        return None, ()
    places = sequences.text_places(texts["forget"], "forget")
    names |= dict(zip(map(files.digest_of, sequences.token_rows(whole)), places, strict=True))
    fault_count = len(faults)
    sentences = split_faults(loaded, faults, erases=bool(sweep.methods), is_steered=is_steered)
    if len(faults) > fault_count:
        return None, ()
    if sweep.tune:
        texts |= _halves(texts["forget"], whole, faults)
    if "holdout" not in texts and isinstance(validation := loaded["validation"], Sequences):
        stand_in = sequences.validation_row_source(texts["validation"], validation, whole, model)
        texts |= {VALIDATION_ROW: stand_in} if stand_in else {}
    return texts, sentences


def _halves(source: Source, forget: Sequences, faults: Faults) -> dict[str, Source]:
    if (distinct := len(set(sequences.inseparable_groups(forget)))) < MIN_HALVED:
        needs = f"and tuning needs {MIN_HALVED}: settings are chosen on one half of them and reported on the other."
        counted = f"has {messages.amount(distinct, 'distinct continuation')} (near-duplicates count as one), {needs}"
        faults.add("data.forget", f"{counted} Name more sequences, or remove tune.")
        return {}
    halves: tuple[Literal["selection", "report"], ...] = ("selection", "report")
    return {
        half: sequences.counted_source(replace(source, half=half), sequences.take_half(forget, half)) for half in halves
    }


def length_limit_faults(texts: Texts, model: Checkpoint) -> Iterator[Fault]:
    """Yield the roles whose texts are longer than a model's context."""
    context = positions(model)
    for role, setting in LENGTHS.items():
        if role in texts and texts[role].longest > context:
            longest = f"sequences of {texts[role].longest} tokens"
            yield Fault(f"data.{role}.{setting}", f"{longest} do not fit '{model.id}', which reads {context} at most.")


def judge_length_faults(judges: Mapping[str, Checkpoint | None], texts: Mapping[str, Texts]) -> Iterator[Fault]:
    """Yield the judges that would read only the beginnings of what is generated."""
    longest = max((each["utility"].longest for each in texts.values() if "utility" in each), default=0)
    for role in CAUSAL_ROLES:
        if (judge := judges.get(role)) and longest > positions(judge):
            reads = f"'{judge.id}' reads {positions(judge)} tokens, and prompt and continuation have {longest}"
            yield Fault(f"judges.{role}", f"{reads}: name another, or shorten data.utility.reference_tokens.")


MAX_ERASED_SHARE = 0.01
"""Allowed share of texts in the forget set: the loss of an erased text may rise by some five nats, so one in a hundred
changes a perplexity by 5 %, half the margin of equivalence."""
MAX_SEEN_SHARE = 0.05
"""Allowed share of texts seen in training or a search, which may lower their loss by about one nat."""
APART: Mapping[tuple[sources.Role, sources.Role], str] = {
    ("holdout", "forget"): "the original may recite them because it knows those",
    ("holdout", "retain"): "training learns the texts that show the damage to unseen ones",
    ("retain", "forget"): "training would keep texts that it is to erase",
    ("utility", "forget"): "utility would be measured on erased texts",
    ("validation", "forget"): "texts to be erased would end a training early",
    ("retain", "utility"): "training learns the texts that utility is measured on",
    ("retain", "validation"): "training learns the texts that stop or choose it",
    ("validation", "utility"): "the texts that stop or choose trainings are reported on",
}
"""Pairs of roles that must be apart, and the consequence of overlap."""


def split_faults(
    loaded: Mapping[sources.Role, Sequences | sequences.Utility], faults: Faults, *, erases: bool, is_steered: bool
) -> tuple[str, ...]:
    """Return a sentence for every two roles that share a few texts, by their tokens; more are a fault.

    Unless it `erases`, only the holdout must be apart from the forget set. `is_steered` as in `resolve_texts`.
    """
    sentences: list[str] = []
    for (role, other), consequence in APART.items():
        is_of_steering = "validation" in (role, other) and other != "forget"
        is_apart = (erases and (is_steered or not is_of_steering)) or (role, other) == ("holdout", "forget")
        if not {role, other} <= loaded.keys() or not is_apart:
            continue
        texts, others = loaded[role], loaded[other]
        same = sequences.find_shared_texts(texts, others)
        numbers = sorted({*same, *sequences.nearly_in_both(texts, others)})
        if not numbers:
            continue
        other_count = len({*sequences.find_shared_texts(others, texts), *sequences.nearly_in_both(others, texts)})
        listed = messages.first_names([str(number + 1) for number in numbers], 5)
        matches = f"{len(numbers)} of its {messages.amount(len(texts), 'text')} (number {listed})"
        there = f"in data.{other} too, or nearly ({other_count} of the {len(others)} there)"
        overlap = f"{matches} {'is' if len(numbers) == 1 else 'are'} {there}: {consequence}."
        allowed = MAX_SEEN_SHARE if other != "forget" else 0.0 if same else MAX_ERASED_SHARE
        is_chance = not same and (role == "holdout" or 1 in (len(numbers), other_count))
        if not is_chance and max(len(numbers) / len(texts), other_count / len(others)) > allowed:
            remedy = "Name others (start skips rows), or remove these from the file."
            faults.add(f"data.{role}", f"{overlap} At most {allowed:.0%} of either may be. {remedy}")
        else:
            sentences.append(f"data.{role}: {overlap}")
    return tuple(sentences)
