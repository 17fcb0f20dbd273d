"""Which texts of a sweep are to be apart: what is erased, trained on, chosen by and reported, near-duplicates too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from harness.base.messages import amount, first_names
from harness.contracts import Sequences
from harness.data.sequences import Utility, in_both, nearly_in_both
from harness.data.sources import Role
from harness.errors import Faults

MOST_ERASED = 0.01
"""The share of texts that may be in the forget set and be no fault: the loss of an erased text may rise by some five
nats, so one in a hundred moves a perplexity by 5 %, half of what counts as equivalent."""
MOST_SEEN = 0.05
"""The same of texts that training or a search has seen: it may lower their loss by some one nat."""
NAMED_TEXTS = 5
NOT_TO_ERASE: Mapping[Role, str] = {
    "holdout": "they are not unseen. Name others of the same kind (start skips rows), or leave it out.",
    "retain": "training would keep what it is to erase. Name others (start skips rows), or leave it out.",
    "utility": "what they say of utility is what was erased. Name others (start skips rows).",
    "validation": "what ends a training early is what it is to erase. Name others (start skips rows).",
}
"""The roles that share no text with the forget set, and what is wrong with one that does."""
NEARLY_SEEN = "what the original recites of them may be what it knows of those"
"""What follows of a holdout with near-duplicates: nothing looks better by it, so it is no fault."""
APART: Mapping[tuple[Role, Role], str] = {
    ("retain", "utility"): "training learns what utility is measured on",
    ("retain", "validation"): "training learns what it is stopped or chosen by",
    ("validation", "utility"): "what trainings are stopped or chosen by is what is reported",
}
"""Other roles that are to be apart, and what follows where they are not."""
STEERED = ("retain", "validation"), ("validation", "utility")
"""Those that matter only where validation texts end a training or steer a search."""


@dataclass(frozen=True)
class _Overlap:
    """Texts of two roles that are the same, or nearly."""

    role: Role
    other: Role
    numbers: tuple[int, ...]
    """Which of the role's texts, counted from 0."""
    count: int
    """How many the role has."""
    other_numbers: tuple[int, ...]
    other_count: int
    has_same: bool
    """Whether any is the same to the last token."""
    consequence: str

    @property
    def allowed(self) -> float:
        """Return which share of either role's texts may be in the other."""
        return MOST_ERASED if self.other == "forget" else MOST_SEEN

    @property
    def is_fault(self) -> bool:
        """Return whether more is shared than may be; a single near-duplicate may be chance."""
        shares = len(self.numbers) / self.count, len(self.other_numbers) / self.other_count
        is_chance = not self.has_same and 1 in (len(self.numbers), len(self.other_numbers))
        return self.role != "holdout" and not is_chance and max(shares) > self.allowed

    def __str__(self) -> str:
        """Return what a person reads: counts and numbers from 1, and never a text."""
        named = first_names([str(number + 1) for number in self.numbers], NAMED_TEXTS)
        verb = "is" if len(self.numbers) == 1 else "are"
        return (
            f"{len(self.numbers)} of its {amount(self.count, 'text')} (number {named}) {verb} in data.{self.other} "
            f"too, or nearly ({len(self.other_numbers)} of the {self.other_count} there): {self.consequence}."
        )


def split_faults(
    loaded: Mapping[Role, Sequences | Utility], faults: Faults, *, erases: bool, is_steered: bool
) -> tuple[str, ...]:
    """Return a sentence for every two roles that share a few texts; those that share more are faults.

    Texts are known by their tokens, and numbered, from 1, as they are used.

    Args:
        loaded: Each role's texts, as one tokenizer cuts them.
        faults: Extended by a fault for every two roles that are not apart.
        erases: Whether anything is erased; if not, only unseen texts must not be in the forget set.
        is_steered: Whether validation texts end a training early, or choose settings.
    """
    sentences: list[str] = []
    forget = loaded["forget"]
    for role, why in NOT_TO_ERASE.items():
        if role not in loaded or not (erases or role == "holdout"):
            continue
        texts = loaded[role]
        if shared := in_both(texts, forget):
            faults.add(f"data.{role}", f"{len(shared)} of its {len(texts)} texts are in the forget set too, so {why}")
    for overlap in _overlaps(loaded, erases=erases, is_steered=is_steered):
        if overlap.is_fault:
            allowed = f"At most {overlap.allowed:.0%} of either may be."
            reason = f"{overlap} {allowed} Name others (start skips rows), or remove these from the file."
            faults.add(f"data.{overlap.role}", reason)
        else:
            sentences.append(f"data.{overlap.role}: {overlap}")
    return tuple(sentences)


def _overlaps(loaded: Mapping[Role, Sequences | Utility], *, erases: bool, is_steered: bool) -> Iterator[_Overlap]:
    consequences: dict[tuple[Role, Role], str] = {("holdout", "forget"): NEARLY_SEEN}
    if erases:
        for role in ("retain", "utility", "validation"):
            consequences[role, "forget"] = NOT_TO_ERASE[role].partition(".")[0]
        for pair, consequence in APART.items():
            if is_steered or pair not in STEERED:
                consequences[pair] = consequence
    for (role, other), consequence in consequences.items():
        if role not in loaded:
            continue
        texts, others = loaded[role], loaded[other]
        same = in_both(texts, others)
        if other == "forget" and same:
            continue  # A fault already.
        numbers = {*same, *nearly_in_both(texts, others)}
        if numbers:
            other_numbers = {*in_both(others, texts), *nearly_in_both(others, texts)}
            ordered = tuple(sorted(numbers)), len(texts), tuple(sorted(other_numbers)), len(others)
            yield _Overlap(role, other, *ordered, bool(same), consequence)
