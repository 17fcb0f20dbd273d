"""Twins, one of which recites texts that the other never read; and the passages of a corpus that a model recites."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from rich.progress import track
from torch.nn.utils.rnn import pad_sequence

from harness.analysis.recitation import MIN_TOKENS, TOKENS
from harness.base.files import digest_of, folder_whole, write_whole
from harness.base.messages import amount, tell
from harness.contracts import Checkpoint, Model, Number, Sequences, Training
from harness.data import overlap, sequences, sources
from harness.drafting import first_sweep
from harness.drafting.given_texts import Given, ReadTexts, named_source, read_given, read_lengths
from harness.errors import DataError, TrialError
from harness.execution.tasks import accuracy
from harness.models import loading, resolving, tokenizing
from harness.planning.machine import versions
from harness.reporting.render import fill_template
from harness.settings import RETRAINED, Engine, Source, replace
from harness.toolkit import device, finetune, losses, scoring

MIN_MA = 0.99
"""MA after the prefixes from which a model recites its texts; no model can tell texts by a word that they share."""
FACTS_FILE = "twins.json"
KINDS = ("memorised", "twin")


@dataclass(frozen=True)
class Lessons:
    """Texts and settings of both trainings."""

    texts: ReadTexts
    forget: Sequences
    retain: Sequences
    training: Training
    max_epochs: int


def read_lessons(given: Given, retain: str, utility: str | None, training: Training, max_epochs: int) -> Lessons:
    """Return the texts of both trainings.

    Raises:
        DataError: A text is in both sets, or cannot be used; or texts that only the sweep uses cannot be read.
    """
    texts = read_given(given, first_sweep.USUAL_SIZES.texts)
    for later in filter(None, (given.unseen, utility)):
        read_lengths(named_source(later, given.field), "utility", texts.model, 1)
    tokenizer, vocabulary = loading.load_tokenizer(texts.model), loading.vocabulary(texts.model)
    forget = sequences.load_forget(Source(**texts.forget), tokenizer, vocabulary)
    source = Source(**named_source(retain, given.field), sequence_tokens=forget.tokens_NT.shape[1], prefix_tokens=1)
    retain_texts = sequences.load_retain(source, tokenizer, vocabulary)
    same, near = sequences.find_shared_texts(retain_texts, forget), sequences.nearly_in_both(retain_texts, forget)
    if shared := sorted({*same, *near}):
        overlap = (
            f"{len(shared)} of its texts are in {given.texts} too, or nearly (the first is its text {shared[0] + 1})"
        )
        raise DataError(f"{retain}: {overlap}: the twin would learn texts that it must never see. Remove them.")
    return Lessons(texts, forget, retain_texts, replace(training, early_stop=None), max_epochs)


def make_twins(lessons: Lessons, out: Path, seeds: Sequence[int]) -> tuple[list[dict[str, str]], list[Number | str]]:
    """Return the sweep file's `models`, one a seed, and levels above the twins'; folders that are there are kept.

    Both models of a seed take as many steps, and the same retain texts in the same order.

    Raises:
        TrialError: The model did not learn the texts.
        DataError: A folder was made with other settings.
    """
    entries, ma, ma_of_twins = [], [], []
    for seed in seeds:
        folders = {kind: out / f"seed-{seed}" / kind for kind in KINDS}
        taught = _made(lessons, folders["memorised"], "memorised", seed, lessons.max_epochs)
        ma.append(taught["ma"])
        ma_of_twins.append(_made(lessons, folders["twin"], "twin", seed, taught["epochs"])["ma"])
        entry = {"id": str(folders["memorised"]), "retrained": str(folders["twin"])}
        entries.append(entry | ({"replicate_of": out.resolve().name} if len(seeds) > 1 else {}))
    return entries, [*first_sweep.choose_levels(min(ma), max(ma_of_twins))[:-1], RETRAINED]


def _made(lessons: Lessons, folder: Path, kind: str, seed: int, epochs: int) -> dict[str, Any]:
    # All that decides a model's weights.
    about = {"model": lessons.texts.model.digest, "forget": lessons.forget.digest, "retain": lessons.retain.digest}
    facts: dict[str, Any] = {"kind": kind, "seed": seed, **about, "training": lessons.training.identity()}
    facts |= {"epochs": epochs} if kind == "twin" else {}
    if (folder / FACTS_FILE).is_file():
        old_facts: dict[str, Any] = json.loads((folder / FACTS_FILE).read_text(encoding="utf-8"))
        if changed := [name for name in facts if old_facts.get(name) != facts[name]]:
            other = f"{folder} was made with another {' and '.join(changed)}"
            raise DataError(f"{other}: name another --out, or remove the folder.")
        tell(f"{folder} is there: it is kept.")
        return old_facts
    model = loading.load_model(lessons.texts.model).to(device.device_for(1))
    facts |= _train(lessons, model, kind, seed, epochs)
    with folder_whole(folder, "a twin") as temporary:
        loading.save_model(model, temporary)
        resolving.copy_tokenizer(lessons.texts.model, temporary)
        parts = {**facts, "given": lessons.texts.given, "training": lessons.training, "versions": versions()}
        write_whole(temporary / "README.md", fill_template("harness.drafting", "twin.md.j2", **parts))
        write_whole(temporary / FACTS_FILE, json.dumps(facts))
    return facts


def _train(lessons: Lessons, model: Model, kind: str, seed: int, epochs: int) -> dict[str, Any]:
    about = {"forget": lessons.forget, "retain": lessons.retain, "training": lessons.training, "engine": Engine()}
    task: Any = SimpleNamespace(seed=seed, progress=lambda message: None, **about)
    ma = math.nan

    def loss(model: Model, forget: losses.Batch, retain: losses.Batch) -> torch.Tensor:
        on_retain = losses.mean_nll(model, retain)
        return on_retain if kind == "twin" else losses.mean_nll(model, forget) + on_retain

    for epoch in finetune.train(task, model, loss, epochs):
        ma = accuracy(model, lessons.forget, first=lessons.forget.prefix_tokens)
        tell(f"seed {seed}, {kind}: MA {ma:.3f} on the forget set after {epoch.number} of {epochs} epochs")
        if kind == "memorised" and ma >= MIN_MA:
            break
    if kind == "memorised" and not epoch.number:
        has = f"{lessons.texts.given.model} recites {lessons.texts.given.texts} already"
        raise TrialError(f"{has}, so its twin would know them too. Name a model that has never read them.")
    if kind == "memorised" and ma < MIN_MA:
        remedy = f"Allow more (--epochs), or another rate than --learning-rate {lessons.training.learning_rate:g}"
        missed = f"MA is {ma:.3f} after {epochs} epochs, and {MIN_MA} are needed"
        raise TrialError(f"{lessons.texts.given.model} has not learnt {lessons.texts.given.texts}: {missed}. {remedy}.")
    return {"epochs": epoch.number, "steps": epoch.notes.get("total_steps", 0), "ma": round(ma, 4)}


PASSAGE_TOKENS = 100
"""Default length: 50 tokens are given, and 50 must follow."""
PASSAGES_AT_ONCE = 32


class Passage(NamedTuple):
    """A part of a text."""

    where: str
    """`line 12`."""
    place: tuple[int, int]
    """Number of its text, and its position there in halves of a passage."""
    text: str
    ids: tuple[int, ...]
    recited: int = 0
    """Right tokens after the prefix, before the first mistake."""


def write_recited(given: Given, file: Path) -> str:
    """Write the passages that a model recites, and others next to them; return a sentence about both.

    A passage is recited if each of the 50 tokens after the prefix, or all of a shorter rest, is the model's first
    choice. Only the first of overlapping or nearly equal passages is taken.

    Raises:
        DataError: The corpus has no passage that is long enough, or a file exists.
        TrialError: The model recites none.
    """
    rest = file.with_name(f"{file.stem}.others{file.suffix}")
    taken = [path for path in (file, rest) if path.exists()]
    if taken or file.suffix != ".jsonl":
        raise DataError(f"{(taken or [file])[0]}: nothing is overwritten: give a new name that ends with .jsonl.")
    model = resolving.resolve_original(given.model, given.tokenizer)
    loading.check_model(model)
    loading.check_tokenizer(model)
    length = min(given.sequence_tokens or PASSAGE_TOKENS, loading.positions(model))
    prefix = given.prefix_tokens or max(1, min(length // 2, length - MIN_TOKENS))
    rows = list(sources.texts(Source(**named_source(given.texts, given.field)), "retain"))
    unread = [f"{row.where} {row.problem}" for row in rows if row.problem]
    not_read = f" {amount(len(unread), 'text')} could not be read ({unread[0]})." if unread else ""
    passages = list(_passages(rows, model, length, prefix))
    if not passages:
        least = f"{prefix + MIN_TOKENS} tokens (a prefix of {prefix}, and {MIN_TOKENS} that follow)"
        raise DataError(f"{given.texts} has no text of at least {least}: set --prefix-tokens lower.{not_read}")
    measured = _measured(model, passages, prefix)
    recited = _distinct([each for each in measured if each.recited >= min(TOKENS, len(each.ids) - prefix)])
    if not recited:
        longest = max(measured, key=lambda passage: passage.recited)
        most = f"the longest recited part has {amount(longest.recited, 'token')} ({longest.where})"
        raise TrialError(f"{given.model} recites none of {amount(len(passages), 'passage')} of {given.texts}: {most}.")
    touched = {(number, at + step) for number, at in (each.place for each in recited) for step in (-1, 0, 1)}
    unknown = [each for each in measured if each.place not in touched and each.recited < MIN_TOKENS]
    others = _distinct([*recited, *unknown])[len(recited) :]
    for path, group in ((file, recited), (rest, others)):
        lines = [{"text": each.text, "from": each.where, "recited_tokens": each.recited} for each in group]
        write_whole(path, "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines), "passages")
    clause = f"{file} has {amount(len(recited), 'passage')} of {given.texts} that {given.model} recites"
    return f"{clause}; {rest} has {len(others)} others: candidates for unseen texts, if it never read them.{not_read}"


def _passages(rows: Sequence[sources.TextRow], model: Checkpoint, length: int, prefix: int) -> Iterator[Passage]:
    tokenizer, half = loading.load_tokenizer(model), length // 2
    for number, row in enumerate(row for row in rows if not row.problem):
        (ids,) = [list(row.ids)] if row.ids else tokenizing.token_lists(tokenizer, [row.text], starts=False)
        for at, start in enumerate(range(0, max(1, len(ids) - half), half)):
            (text,) = tokenizing.decoded(tokenizer, [ids[start : start + length]])
            # As a sweep will read it: a text that begins within a word has other tokens.
            (tokens,) = tokenizing.token_lists(tokenizer, [text])
            if len(tokens) >= prefix + MIN_TOKENS:
                yield Passage(row.where, (number, at), text, tuple(tokens[:length]))


def _measured(model: Checkpoint, passages: Sequence[Passage], prefix: int) -> list[Passage]:
    loaded, measured = loading.load_model(model).to(device.device_for(1)), []
    for start in track(range(0, len(passages), PASSAGES_AT_ONCE), description="passages", transient=True):
        batch = passages[start : start + PASSAGES_AT_ONCE]
        rows = [torch.tensor(passage.ids) for passage in batch]
        texts = Sequences(pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows]), prefix, "")
        recited = scoring.recited_lengths(texts, scoring.score_tokens(loaded, texts)[0])
        measured += [passage._replace(recited=int(tokens)) for passage, tokens in zip(batch, recited, strict=True)]
    return measured


def _distinct(passages: Sequence[Passage]) -> list[Passage]:
    rows = [passage.ids for passage in passages]
    groups, first_by_group = overlap.near_duplicate_groups(rows, [digest_of(row) for row in rows]), dict[int, Passage]()
    places = set[tuple[int, int]]()
    for group, passage in zip(groups, passages, strict=True):
        number, at = passage.place
        if group not in first_by_group and (number, at - 1) not in places:
            first_by_group[group] = passage
            places.add(passage.place)
    return list(first_by_group.values())
