"""What a sweep file names that lies on the hub: read from the file alone, nothing of it looked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.contracts import Evaluator
from harness.hub import Repository
from harness.miniature import checkpoints as miniature
from harness.models.resolving import DEFAULT_JUDGES
from harness.planning.plan import check_form
from harness.planning.schema import Sweep, TextSource
from harness.planning.sweep_file import read_sweep_file
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
    checked = check_form(read_sweep_file(file, overrides))
    sweep, evaluators = checked.sweep, checked.evaluators
    contents = [*_models(sweep), *_judges(sweep, evaluators), *_texts(sweep), *_data_sets(evaluators)]
    by_name = {(content.repository, content.configuration, content.weights): content for content in reversed(contents)}
    return list(by_name.values())[::-1]


def _models(sweep: Sweep) -> Iterator[HubContent]:
    for number, entry in enumerate(sweep.models):
        yield from _model(f"models.{number}", entry.id, entry.tokenizer, entry.revision)
        if entry.retrained:
            yield from _model(f"models.{number}.retrained", entry.retrained, None, None)


def _judges(sweep: Sweep, evaluators: Mapping[str, Evaluator]) -> Iterator[HubContent]:
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


def _data_sets(evaluators: Mapping[str, Evaluator]) -> Iterator[HubContent]:
    for name, evaluator in evaluators.items():
        for id, configuration in evaluator.data_sets():
            yield HubContent(f"evaluators.{name}", Repository(id, "dataset"), configuration)


def _is_local(id: str) -> bool:
    return id.startswith((".", "/", "~")) or Path(id).expanduser().is_dir()
