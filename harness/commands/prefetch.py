"""`lethe prefetch FILE`: bring here every model and data set of the hub that a sweep names, so that it runs offline.

    lethe prefetch sweeps/paper/main_table.yaml
    lethe prefetch sweeps/paper/main_table.yaml --check

Exit codes: 0 all is here, 1 something is missing, 2 the sweep file is wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.base import hub
from harness.base.hub import Repository
from harness.base.paths import path_argument, path_of
from harness.base.terminal import tell
from harness.commands.command import Command
from harness.contracts import Evaluator
from harness.errors import LetheError
from harness.miniature import checkpoints as miniature
from harness.models.fetching import cache_state, fetch_model
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


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=path_argument, help="the sweep file")
    parser.add_argument("--check", action="store_true", help="only look: fetch and convert nothing")
    parser.add_argument(
        "--set", action="append", default=[], metavar="PATH=VALUE", help="change a setting (repeatable)"
    )


def _run(arguments: argparse.Namespace) -> int:
    """Fetch or look, and say what is here."""
    contents = hub_contents(arguments.file, arguments.set)
    if not contents:
        tell(f"{arguments.file} names nothing of the hub: it runs offline as it is.")
        return 0
    missing = sum(not _is_cached(content, check=arguments.check) for content in contents)
    if not missing:
        tell("All is here: HF_HUB_OFFLINE=1 keeps every process from asking the hub.")
        return 0
    tell(
        f"{missing} of {len(contents)} are missing." + (" Without --check they are fetched." if arguments.check else "")
    )
    return 1


def _is_cached(content: HubContent, *, check: bool) -> bool:
    """Print a line on one content, fetched first unless this is a check; return whether it is here."""
    reason, state = "", _state(content)
    if state != "here" and not check:
        try:
            reason, state = _fetch(content), "here"
        except LetheError as error:
            reason = str(error)
    elif state == "pickled":
        reason = "only a pickle is here (pytorch_model.bin): without --check it is converted"
    configuration = f" ({content.configuration})" if content.configuration else ""
    line = f"{state:<8} {content.path:<22} {content.repository.id}{configuration}"
    tell(f"{line}: {reason}" if reason else line)
    return state == "here"


def _state(content: HubContent) -> str:
    if content.repository.kind == "model":
        return cache_state(content.repository, weights=content.weights)
    return "here" if hub.cached_data_set(content.repository, content.configuration) else "missing"


def _fetch(content: HubContent) -> str:
    """Fetch a content and return what was done."""
    if content.repository.kind == "model":
        return fetch_model(content.repository, weights=content.weights)
    hub.fetch_data_set(content.repository, content.configuration)
    return "fetched"


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
    sections: dict[str, TextSource | None] = {f"data.{role}": getattr(sweep.data, role) for role in ROLES}
    sections["data.forget.not_memorized"] = sweep.data.forget.not_memorized
    for path, section in sections.items():
        if section is not None and section.source == "hub" and section.path and not _is_local(section.path):
            yield HubContent(path, Repository(section.path, "dataset"), section.name)


def _data_sets(evaluators: Mapping[str, Evaluator]) -> Iterator[HubContent]:
    for name, evaluator in evaluators.items():
        for id, configuration in evaluator.data_sets():
            yield HubContent(f"evaluators.{name}", Repository(id, "dataset"), configuration)


def _is_local(id: str) -> bool:
    return id.startswith((".", "/", "~")) or path_of(id).is_dir()


main = Command("prefetch", __doc__, _add_arguments, _run)
