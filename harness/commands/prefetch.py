"""Download of the hub's models and data sets that a sweep names."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from harness import errors, settings
from harness.base import files, hub, messages
from harness.data.sources import ROLES
from harness.models.resolving import named_models, resolve_model
from harness.planning import plan, resolve, sweep_file


class HubContent(NamedTuple):
    """A model or data set of the hub, and its place in the sweep file."""

    path: str
    repository: hub.Repository
    configuration: str | None = None
    """A data set's configuration."""
    weights: bool = True
    """False: only the tokenizer."""

    def is_here(self) -> bool:
        """Return whether the cache contains it."""
        if self.repository.kind == "dataset":
            return hub.cached_data_set(self.repository, self.configuration) is not None
        patterns = [hub.DESCRIPTION, hub.WEIGHTS] if self.weights else [hub.DESCRIPTION]
        return all(hub.cached(self.repository, each) for each in patterns)

    def fetch(self) -> None:
        """Download it."""
        if self.repository.kind == "dataset":
            hub.fetch_data_set(self.repository, self.configuration)
            return
        fill = not hub.is_listed(self.repository)
        hub.fetch(self.repository, hub.DESCRIPTION, fill=fill)
        if self.weights:
            resolve_model(self.repository.id, revision=self.repository.revision)
            hub.fetch(self.repository, hub.WEIGHTS, fill=fill)

    def provide(self, *, check: bool) -> bool:
        """Download it if missing, unless `check`; print a line, and return whether it is here."""
        reason, is_here = "", False
        try:
            is_here = self.is_here()
            is_whole = is_here and (self.repository.kind == "dataset" or hub.is_listed(self.repository))
            if not is_whole and not check:
                self.fetch()
                reason, is_here = ": fetched", True
        except errors.LetheError as error:
            reason = f": {error}"
        configuration = f" ({self.configuration})" if self.configuration else ""
        state = "here" if is_here else "missing"
        messages.tell(f"{state:<8} {self.path:<22} {self.repository.id}{configuration}{reason}")
        return is_here


def hub_contents(file: Path, overrides: Sequence[str] = ()) -> list[HubContent]:
    """Return every model and data set of the hub that a sweep file names, each once."""
    checked = plan.check_form(sweep_file.read_sweep_file(file, overrides))
    sweep, evaluators = checked.sweep, checked.evaluators
    contents: list[HubContent] = []
    for number, model in enumerate(sweep.models):
        contents += _model_contents(f"models.{number}", model.id, model.tokenizer, model.revision)
        if model.retrained:
            contents += _model_contents(f"models.{number}.retrained", model.retrained, None, None)
    roles = set(sweep.judges.model_fields_set).union(*(evaluator.judges for evaluator in evaluators.values()))
    for role, judge in sweep.judges:
        if role in roles:
            contents += _model_contents(f"judges.{role}", judge.id, judge.tokenizer, judge.revision)
    sections: dict[str, settings.TextSource | None] = {f"data.{role}": getattr(sweep.data, role) for role in ROLES}
    sections["data.forget.not_memorized"] = sweep.data.forget.not_memorized
    for path, section in sections.items():
        if section is not None and section.source == "hub" and section.path and not _is_local(section.path):
            contents.append(HubContent(path, hub.Repository(section.path, "dataset"), section.name))
    for name, evaluator in evaluators.items():
        for id, configuration in getattr(evaluator, "data_sets", list)():
            contents.append(HubContent(f"evaluators.{name}", hub.Repository(id, "dataset"), configuration))
    # Shown where the file names it last, under the first path.
    once = {content[1:]: content for content in reversed(contents)}
    return list(reversed(once.values()))


def _model_contents(path: str, id: str, tokenizer: str | None, revision: str | None) -> Iterator[HubContent]:
    if id not in resolve.KNOWN_JUDGES and id not in named_models() and not _is_local(id):
        yield HubContent(path, hub.Repository(id, "model", revision))
    if tokenizer and not _is_local(tokenizer):
        yield HubContent(f"{path}.tokenizer", hub.Repository(tokenizer, "model"), weights=False)


def _is_local(id: str) -> bool:
    return id.startswith((".", "/", "~")) or files.parse_path(id).is_dir()
