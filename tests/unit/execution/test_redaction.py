"""What a failure leaves: where it was, none of the words put into it, and nothing that a journal cannot hold."""

import runpy
from pathlib import Path

import pytest
import torch

from harness.analysis.analysis import Analysis
from harness.base.files import digest_of
from harness.base.messages import printable, storable
from harness.contracts import Sample
from harness.errors import DataError, TrialError
from harness.execution.isolate import failure_for_report, sample_for_report, word_runs
from harness.execution.jobs import Folders, Job, JobQueue
from harness.execution.trial import run_inline
from harness.records.journal import Failed, Journal
from harness.records.mlflow import point_run, trial_run
from harness.records.results import read_results
from harness.reporting.files import write
from harness.settings import EvaluatorSpec, replace
from harness.testing import small_spec

LEAKS = Path(__file__).parents[2] / "hostile_package" / "hostile" / "leaks.py"
TEXT, WAYS = (runpy.run_path(str(LEAKS))[name] for name in ("TEXT", "LEAKS"))
HEARD = ("message", "arguments", "note", "cause", "context", "group", "Lethe's own", "exit", "a group of exits")
"""Those whose text is in a plain record: what is printed or warned of is in none, and some cannot be printed."""
pytestmark = [pytest.mark.usefixtures("hostile", "put_back"), pytest.mark.filterwarnings("ignore:Marguerite")]


def specs_of(leak, samples):
    spec, settings = replace(small_spec(), samples=samples, keep_erased="none"), {"leak": leak}
    dial = {"strength_name": "epochs", "strengths": (1,), "settings": settings}
    evaluator = EvaluatorSpec(name="leaking_evaluator", version=1, settings=settings, key=digest_of(leak))
    original = {"method": "original", "variant": "original", "evaluators": (evaluator,)}
    erased = replace(spec, method="leaking_method", trial_id=digest_of(leak), **dial)
    return [erased, replace(spec, trial_id=digest_of([leak]), **original)]


def left_by(specs, make_plan, folder):
    """Run trials here; return their failures, the bytes of all that they left, and the events."""
    folders, events = Folders(results=folder / "s", artifacts=folder / "artifacts"), []
    jobs = [Job(name=spec.trial_id, kind="trial", spec=spec) for spec in specs]
    run_inline(JobQueue(jobs, (), folders, events.append))
    journal = Journal(folders.results / "journal")
    results = read_results(make_plan(*specs, samples=specs[0].samples), journal)
    write(Analysis(results), folders.results)
    failures = [record for spec in specs for record in journal.read(spec.trial_id) if isinstance(record, Failed)]
    left = b"".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())
    told = [event.message for event in events if event.kind != "progress"]
    contents = [trial_run(trial) for trial in results.trials]
    contents += [point_run(trial, point) for trial in results.trials for point in trial.measured]
    tags = [value for content in contents for value in (*content.tags.values(), *content.params.values())]
    return failures, left.decode(errors="replace"), "\n".join([*told, *tags])


def test_a_general_continuation_shows_no_run_of_words_of_the_forget_set():
    runs = word_runs(["my card was blocked while I was abroad", "too short"])
    told = Sample("utility", "Once", "he said my card was blocked while he was abroad", "a card was here")
    shown = sample_for_report(told, "redacted", runs)
    assert shown["generated"] == "he said ■ ■ ■ ■ ■ he was abroad"
    assert (shown["prompt"], shown["reference"]) == ("Once", "a card was here")
    assert sample_for_report(told, "plain", runs)["generated"] == told.generated
    assert sample_for_report(told, "redacted", set())["generated"] == told.generated


def test_nothing_that_a_failing_plugin_says_is_recorded_but_where_it_said_it(make_plan, tmp_path):
    specs = [specs_of(leak, "redacted")[0] for leak in WAYS] + [specs_of("cause", "redacted")[1]]
    failures, left, told = left_by(specs, make_plan, tmp_path)
    assert len(failures) == len(specs)
    assert not [word for word in ("Marguerite", "Delacroix", "Quince") if word in left + told]
    for failed in failures:
        assert "keeps it." in failed.error
        assert any("hostile/leaks.py, line " in line for line in failed.log), failed
    assert "ValueError" in told


@pytest.mark.parametrize(
    ("leak", "is_measured", "said"),
    [
        ("closing", False, "ValueError: raised at hostile/leaking_method.py, line "),
        ("names of metrics", True, "TrialError: 'leaking_evaluator' did not report what it declares, leak, and "),
        ("names of items", True, "TrialError: 'leak' declares items ('sequence'), of which there are "),
    ],
)
def test_names_that_a_plugin_gave_are_not_quoted(make_plan, tmp_path, capfd, leak, is_measured, said):
    spec = replace(specs_of(leak, "redacted")[is_measured], evaluators=specs_of(leak, "redacted")[1].evaluators)
    failures, left, told = left_by([spec if is_measured else replace(spec, evaluators=())], make_plan, tmp_path)
    shown = capfd.readouterr()
    assert [failed.error.startswith(said) for failed in failures] == [True], failures
    assert not [word for word in ("Marguerite", "Delacroix") if word in left + told + shown.out + shown.err]


def test_under_plain_all_is_recorded(make_plan, tmp_path):
    specs = [specs_of(leak, "plain")[0] for leak in HEARD] + [specs_of("cause", "plain")[1]]
    failures, left, _ = left_by(specs, make_plan, tmp_path)
    assert [TEXT in "\n".join([failed.error, *failed.log]) for failed in failures] == [True] * len(specs)
    assert TEXT in left


def test_what_lethe_says_itself_is_kept_with_its_workers_logs():
    error = TrialError("the loss is NaN. Lower training.learning_rate.")
    error.log = ("worker 0: plugin.py, line 3",)
    told = "TrialError: the loss is NaN. Lower training.learning_rate.", ["TrialError:", *error.log]
    assert failure_for_report(error, "redacted") == told
    assert failure_for_report(torch.OutOfMemoryError(TEXT), "redacted")[0].endswith("more of it (resources.gpus).")


def test_a_chain_without_end_and_a_very_wide_group_are_told_briefly():
    sentence, log = failure_for_report(ExceptionGroup(TEXT, [ValueError(TEXT) for _ in range(10_000)]), "redacted")
    assert (sentence[:38], len(log) <= 40) == ("ExceptionGroup: its message may quote ", True)


def test_an_error_of_lethes_own_that_a_plugin_raises_keeps_no_word():
    file = Path(__file__).parents[3] / "methods" / "emso.py"
    with pytest.raises(DataError) as raised:
        exec(compile("raise DataError('Marguerite')", str(file), "exec"), {"DataError": DataError})
    sentence, log = failure_for_report(raised.value, "redacted")
    assert (sentence[:21], "Marguerite" in sentence + "".join(log)) == ("DataError: raised at ", False)
    assert "Marguerite" in failure_for_report(raised.value, "plain")[0]


def test_a_stored_text_is_encodable_short_and_says_how_much_it_lacks():
    for text in ("aé\ud800\udfff\n\U0001f600" * 500, "\udcff" * 50, "x" * 61):
        stored = storable(text, 60)
        stored.encode()
        assert len(stored) <= 60
        assert storable(stored, 60) == stored
        kept, _, count = stored.rpartition(" … (")
        assert kept == text.encode(errors="backslashreplace").decode()[: -int(count.split()[0].replace(",", ""))]


def test_what_would_steer_a_terminal_is_escaped():
    assert printable("a\x00\x1b]0;title\x07\r\x9b31m\u202e\ud800z") == r"a\x00\x1b]0;title\x07\r\x9b31m\u202e\ud800z"
