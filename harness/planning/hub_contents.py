"""What a sweep file names that lies on the hub: read from the file alone, nothing of it looked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.contracts import Evaluator
from harness.errors import ConfigError
from harness.hub import Repository
from harness.miniature import checkpoints as miniature
from harness.models.resolving import DEFAULT_JUDGES
from harness.planning.config import Sweep, TextSource, read_sweep
from harness.planning.file import settings_in, text_of
from harness.planning.measures import configured
from harness.planning.options import override
from harness.planning.texts import ROLES
from harness.specs import ORIGINAL

AT_HAND = {*DEFAULT_JUDGES.values(), "miniature", "default", ORIGINAL}
"""Judges that are no repositories: the embedded ones, and the model itself."""


@dataclass(frozen=True)
class HubContent:
    """Something of the hub, and where the file names it."""

    path: str
    repository: Repository
    configuration: str | None = None
    """Of a data set."""
    weights: bool = True
    """False: only a model's tokenizer."""


def hub_contents(file: Path, overrides: Sequence[str] = ()) -> list[HubContent]:
    """Return every model and data set of the hub that a sweep file names, each once.

    Args:
        file: The sweep file.
        overrides: Changes to it, `path=value`.

    Raises:
        ConfigError: The file is not a sweep.
    """
    raw, faults = settings_in(text_of(file), file)
    override(raw, overrides, faults)
    sweep = read_sweep(raw, faults)
    found = {
        name: evaluator
        for name, settings in sweep.evaluators.items()
        if (evaluator := configured(name, settings, faults)) is not None
    }
    if faults:
        raise ConfigError(str(file), list(faults))
    every = [*_models(sweep), *_judges(sweep, found), *_texts(sweep), *_data_sets(found)]
    return list({(each.repository, each.configuration, each.weights): each for each in reversed(every)}.values())[::-1]


def _models(sweep: Sweep) -> Iterator[HubContent]:
    for number, entry in sweep.models.items():
        yield from _model(f"models.{number}", entry.id, entry.tokenizer, entry.revision)
        if entry.retrained:
            yield from _model(f"models.{number}.retrained", entry.retrained, None, None)


def _judges(sweep: Sweep, evaluators: dict[str, Evaluator]) -> Iterator[HubContent]:
    asked = {role for evaluator in evaluators.values() for role in evaluator.judges} | sweep.judges.model_fields_set
    for role in type(sweep.judges).model_fields:
        entry = getattr(sweep.judges, role)
        if role in asked:
            yield from _model(f"judges.{role}", entry.id, entry.tokenizer, entry.revision)


def _model(path: str, id: str, tokenizer: str | None, revision: str | None) -> Iterator[HubContent]:
    if id not in AT_HAND and id not in miniature.names() and not _is_local(id):
        yield HubContent(path, Repository(id, "model", revision))
    if tokenizer and not _is_local(tokenizer):
        yield HubContent(f"{path}.tokenizer", Repository(tokenizer, "model"), weights=False)


def _texts(sweep: Sweep) -> Iterator[HubContent]:
    for role in ROLES:
        section: TextSource | None = getattr(sweep.data, role)
        if section is not None and section.source == "hub" and section.path and not _is_local(section.path):
            yield HubContent(f"data.{role}", Repository(section.path, "dataset"), section.name)


def _data_sets(evaluators: dict[str, Evaluator]) -> Iterator[HubContent]:
    for name, evaluator in evaluators.items():
        for id, configuration in evaluator.data_sets():
            yield HubContent(f"evaluators.{name}", Repository(id, "dataset"), configuration)


def _is_local(place: str) -> bool:
    return place.startswith((".", "/", "~")) or Path(place).expanduser().is_dir()
