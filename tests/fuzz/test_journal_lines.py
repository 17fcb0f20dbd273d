"""Mutants of journal lines, sealed anew or not: read as they were written, or left out and done again."""

import json

import pytest

from harness.errors import DataError
from harness.records.journal import Journal, _tail
from harness.records.record import Candidate, Failed, Started, Stopped
from harness.records.results import trial_results


@pytest.fixture
def attempt(make_spec, make_point, make_measurement, make_plan, change, tmp_path):
    spec = make_spec()
    probes = ({"strength": 1, "ma": 0.5, "perplexity": 3.0, "optimiser_steps": 4},)
    numbers = {"settings": {"k": 1}, "probes": probes, "targets": {"ma <= 0.5": 0.5}, "original": {"ma": 1.0}}
    records = [
        Started(trial_id="t1", spec=spec.to_json(), versions={"python": "3.11"}),
        make_point(spec, 1, notes={"losses": [0.5, float("nan")]}),
        make_measurement(spec, 1),
        make_measurement(spec, 1, "generation", numbers={"perplexity": float("nan")}),
        Candidate(trial_id="t1", number=0, end="whole", seconds=1.0, **numbers),
        Stopped(trial_id="t1", strength=1, reason="early stop"),
        Failed(trial_id="t1", error="TrialError: no", log=("a", "b")),
    ]
    journal = Journal(tmp_path / "sound" / "journal")
    for record in records:
        journal.append(record)
    lines = (journal.folder / "t1.jsonl").read_bytes().splitlines()
    journal.write_plan(make_plan(spec))
    plan = (journal.folder / "plan.json").read_bytes()

    def try_one(choice, folder, named):
        mutated = list(lines)
        number = choice.randrange(len(lines))
        if choice.random() < 0.7:
            tree = json.loads(lines[number])
            del tree["checksum"]
            text = json.dumps(change.tree(tree, choice)).encode()
            mutated[number] = text[:-1] + _tail(text)
        else:
            mutated[number] = change.content(lines[number], choice)
        other = Journal(folder / "other" / "journal")
        other.folder.mkdir(parents=True, exist_ok=True)
        (other.folder / "t1.jsonl").write_bytes(b"\n".join(mutated) + b"\n")
        read = other.read("t1")
        trial_results(spec, read)
        kept = [repr(record) for at, record in enumerate(records) if at != number]
        assert [record for record in map(repr, read) if record in kept][: len(kept)] == kept
        (other.folder / "plan.json").write_bytes(change.content(plan, choice))
        named.append(str(other.folder / "plan.json"))
        assert other.read_plan() == journal.read_plan()

    return try_one


def test_mutants(attempt, fuzz):
    fuzz(attempt, 60)


@pytest.fixture
def attempt_on_numbers(make_spec, make_measurement, tmp_path):
    spec = make_spec()
    journal = Journal(tmp_path / "sound" / "journal")
    names = ("el_3", "ma", "ss", "exact_match")
    for strength in (1, 2):
        journal.append(make_measurement(spec, strength, numbers=dict.fromkeys(names, 0.5)))
    lines = (journal.folder / "t1.jsonl").read_bytes().splitlines()

    def try_one(choice, folder, named):
        number, name = choice.randrange(len(lines)), choice.choice(names)
        tree = json.loads(lines[number])
        del tree["checksum"]
        how = choice.choice(("number gone", "declaration gone", "both gone", "added"))
        if how in ("number gone", "both gone"):
            del tree["numbers"][name]
        if how in ("declaration gone", "both gone"):
            tree["metrics"] = [metric for metric in tree["metrics"] if metric["name"] != name]
        if how == "added":
            name = "another"
            tree["numbers"][name] = choice.choice((None, 0.5))
        text = json.dumps(tree).encode()
        other = Journal(folder / "numbers" / "journal")
        other.folder.mkdir(parents=True, exist_ok=True)
        file = other.folder / "t1.jsonl"
        file.write_bytes(b"\n".join([*lines[:number], text[:-1] + _tail(text), *lines[number + 1 :]]) + b"\n")
        if how == "both gone":  # An evaluator may have had fewer metrics: what it measured then is still read.
            assert len(other.read("t1")) == len(lines)
            return
        named += [f"{file}, line {number + 1} ", f"measurement.numbers.{name}:"]
        with pytest.raises(DataError) as refused:
            other.read("t1")
        raise refused.value

    return try_one


def test_sealed_measurements_with_more_or_fewer_numbers_than_they_declare(attempt_on_numbers, fuzz):
    fuzz(attempt_on_numbers, 40)


@pytest.mark.soak
def test_ten_thousand_mutants(attempt, fuzz):
    fuzz(attempt, 10_000, is_apart=True)
