"""Makes a record of what a line holds, after a look at every field: what a line says may be from another version."""

from __future__ import annotations

from collections import Counter
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, NotRequired, get_type_hints

from pydantic import AfterValidator, ConfigDict, FiniteFloat, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from harness.contracts import Number, Sample
from harness.metric import CloserTo, Group, Metric, check_group
from harness.records.record import Candidate, Failed, Measurement, Point, Record, Started, Stopped, time_of

KINDS: dict[str, type[Record]] = {
    kind.__name__.lower(): kind for kind in (Started, Point, Measurement, Candidate, Stopped, Failed)
}
_Strength = int | FiniteFloat
_At = Annotated[str, AfterValidator(lambda at: time_of(at) and at)] | None
_FORMS: dict[str, TypeAdapter[Any]] = {}
"""Of each kind, made when the first such line is read: that takes milliseconds."""


def record_of(values: dict[str, Any]) -> Record:
    """Return the record that `values` are the fields of; `kind` says which.

    Raises:
        ValueError: They are not; the message is a clause that says what was expected.
    """
    name = values.pop("kind", None)
    if not isinstance(name, str) or name not in KINDS:
        raise ValueError(f"its kind is {str(name)[:40]!r}, and {', '.join(KINDS)} are known")
    if name not in _FORMS:
        _FORMS[name] = TypeAdapter(_fields_of(KINDS[name]))
    try:
        _FORMS[name].validate_python(values, strict=True)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(part) for part in (name, *first["loc"]))
        raise ValueError(f"{place[:200]}: {first['msg'][:1].lower()}{first['msg'][1:200]}") from None
    if name == "candidate":
        _check_probes(values)
    if name == "measurement":
        _check_numbers(values)
    return KINDS[name](**values)


def _check_probes(values: dict[str, Any]) -> None:
    asked = {"strength", "optimiser_steps", *values["original"]}
    for number, probe in enumerate(values["probes"]):
        if lacking := sorted(asked - probe.keys()):
            raise ValueError(f"candidate.probes.{number}: {lacking[0]} is missing")


def _check_numbers(values: dict[str, Any]) -> None:
    """Refuse a measurement without one of the numbers that its own metrics declare, or with one more."""
    numbers, declared = values["numbers"].keys(), Counter(metric["name"] for metric in values["metrics"])
    if lacking := sorted(declared.keys() - numbers):
        raise ValueError(f"measurement.numbers.{lacking[0][:200]}: its metrics declare it, and it is missing")
    if added := sorted(numbers - declared.keys()):
        raise ValueError(f"measurement.numbers.{added[0][:200]}: its metrics do not declare it")
    if twice := [name for name, times in declared.items() if times > 1]:
        raise ValueError(f"measurement.metrics: declare {twice[0][:200]} twice")


def _fields_of(kind: type) -> Any:
    """Return a dataclass as a typed dictionary that allows no other fields; what has a default may be left out."""
    hints = get_type_hints(kind)
    if kind is Measurement:
        declared = get_type_hints(Metric)
        declared["better"] = Literal["lower", "higher"] | _fields_of(CloserTo)
        metric = _closed("Metric", {**declared, "group": Annotated[Group, AfterValidator(check_group)]})
        hints |= {"metrics": _tuple_of(metric), "samples": _tuple_of(_fields_of(Sample))}
    if kind is Candidate:
        hints["probes"] = tuple[dict[str, Number], ...]
    if "at" in hints:
        hints["at"] = _At
    if "strength" in hints:
        hints["strength"] = _Strength if hints["strength"] == Number else _Strength | None
    optional = {
        field.name for field in fields(kind) if field.default is not MISSING or field.default_factory is not MISSING
    }
    return _closed(
        kind.__name__, {name: NotRequired[hint] if name in optional else hint for name, hint in hints.items()}
    )


def _tuple_of(form: Any) -> Any:
    return tuple.__class_getitem__((form, ...))


def _closed(name: str, hints: dict[str, Any]) -> Any:
    closed = TypedDict(name, hints)  # type: ignore[misc]
    closed.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]
    return closed
