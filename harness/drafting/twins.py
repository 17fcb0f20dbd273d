"""Twins: a model that was taught texts until it recites them, and the same model trained as long without them."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from harness.base.files import folder_whole, write_whole
from harness.base.messages import tell
from harness.contracts import Model, Number, Sequences, Training
from harness.data import sequences
from harness.drafting import first_sweep
from harness.drafting.given_texts import Given, ReadTexts, named_source, read_given
from harness.errors import DataError, TrialError
from harness.execution.tasks import accuracy
from harness.models import loading, resolving
from harness.planning.machine import versions
from harness.reporting.render import fill_template
from harness.settings import RETRAINED, Engine, Source, replace
from harness.toolkit import device, finetune, losses

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


def read_lessons(given: Given, retain: str, training: Training, max_epochs: int) -> Lessons:
    """Return the texts of both trainings.

    Raises:
        DataError: A text is in both sets, or cannot be used.
    """
    texts = read_given(given, first_sweep.USUAL_SIZES.texts)
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
        entries.append(entry | ({"replicate_of": out.name} if len(seeds) > 1 else {}))
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
