"""The doors: exit codes, what is printed, and what is not imported before it is needed."""

import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from harness import cli, sweep
from harness.commands.command import Command
from harness.contracts import Metric
from harness.errors import DataError, StorageError
from harness.execution.job import Event
from harness.plugins import EVALUATORS
from harness.records.journal import Journal
from harness.records.record import Failed, Measurement, Started
from harness.reporting.files import written_files

ROOT = Path(__file__).resolve().parents[3]
FILE = """# What is asked?
name: doors
models: [MODEL]
data:
  forget: {source: miniature, sequences: 4}
  utility: {source: miniature, prompts: 4}
methods:
  emso: {epochs: [1, 2]}
evaluators: {memorization: , generation: }
judges: {perplexity: MODEL, features: MODEL, similarity: MODEL, coherence: MODEL}
"""


@pytest.fixture
def file(world, tmp_path):
    """A sweep file on a checkpoint that can be resolved, and has no real weights."""
    path = tmp_path / "doors.yaml"
    path.write_text(FILE.replace("MODEL", str(world / "MODEL")))
    return path


def numbers(metric: Metric) -> float:
    return 0.5 if metric.low <= 0.5 <= metric.high else 2.0


def measured(jobs, folders, watch, fails=()):
    """Stand for an executor: journal what a trial would, without a model."""
    journal = Journal(folders.results / "journal")
    for job in jobs:
        spec = job.spec
        if job.kind != "trial":
            watch(Event(job=job.name, kind="finished"))
            continue
        journal.append(Started(trial_id=spec.trial_id, spec=spec.to_json()))
        if spec.method in fails:
            journal.append(Failed(trial_id=spec.trial_id, error="TrialError: it went wrong", log=()))
            watch(Event(job=job.name, kind="failed", message="it went wrong"))
            continue
        for strength in spec.points():
            for evaluator in spec.evaluators:
                metrics = EVALUATORS.configure(evaluator.name, dict(evaluator.settings)).metrics
                journal.append(
                    Measurement(
                        trial_id=spec.trial_id,
                        point_id=spec.point_id(strength),
                        strength=strength,
                        evaluator=evaluator.name,
                        key=evaluator.key,
                        definition="exact",
                        numbers={metric.name: numbers(metric) for metric in metrics},
                        metrics=tuple(vars(metric) for metric in metrics),
                        samples=(),
                        notes={},
                        seconds=0.1,
                    )
                )
        watch(Event(job=job.name, kind="finished"))


@pytest.fixture
def copied(monkeypatch):
    """Stand for MLflow, which takes seconds to start, and return what is copied there."""
    copied = []
    monkeypatch.setattr("harness.records.mlflow.connect", lambda root: None)
    monkeypatch.setattr(
        "harness.records.mlflow.copy_trial",
        lambda folder, plan, trial: copied.append(f"trial {trial.status} {len(trial.measured)}"),
    )
    monkeypatch.setattr(
        "harness.records.mlflow.copy_sweep",
        lambda folder, results, tags, files, answer: copied.append(
            ({tag["collapse_class"] for tag in tags.values()}, files)
        ),
    )
    return copied


@pytest.fixture
def run(file, tmp_path, monkeypatch, copied):
    """Return a runner of the sweep with a stand-in for the executor."""

    def go(*arguments, executor=measured):
        monkeypatch.setattr("harness.execution.inline.run_inline", executor)
        return sweep.main([str(file), "--results", str(tmp_path / "results"), "--executor", "inline", *arguments])

    return go


def test_faults_end_in_exit_code_2_and_are_all_listed(file, capsys):
    file.write_text(file.read_text().replace("emso:", "emsoo:").replace("prompts", "promts"))
    assert sweep.main([str(file)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert lines[0] == f"{file} has 2 faults:"
    assert lines[1].startswith("  line 6  data.utility.promts  no setting is called 'promts'. Did you mean 'prompts'?")
    assert lines[2].startswith("  line 8  methods.emsoo        no method is called 'emsoo'. Did you mean 'emso'?")


def test_no_file_is_a_fault_too(tmp_path, capsys):
    assert sweep.main([str(tmp_path / "none.yaml")]) == 2
    assert "(file)  cannot be read: there is no such file." in capsys.readouterr().err


def test_plan_shows_and_does_nothing(run, tmp_path, capsys):
    assert run("--plan") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("doors: What is asked?")
    assert "missing  emso" in printed
    assert "3 trials: 3 missing." in printed
    assert not (tmp_path / "results").exists()


def test_a_sweep_is_run_reported_and_not_run_again_but_for_what_is_added(run, copied, tmp_path, capsys):
    assert run() == 0
    printed = capsys.readouterr().out
    assert "EMSO" in printed
    assert printed.endswith(f"The report: {tmp_path}/results/doors/report.html\n")
    written = {path.name for path in (tmp_path / "results" / "doors").iterdir()}
    assert written >= {"journal", "table.csv", "ranking.csv", "table.md", "table.tex", "report.html", "tradeoff.png"}
    *trials, (classes, files) = copied
    assert (sorted(trials), classes) == (["trial done 1", "trial done 1", "trial done 2"], {"healthy", "none"})
    attached = sorted(path.name for path in written_files(tmp_path / "results" / "doors"))
    assert attached[:5] == ["matched.csv", "matched.md", "ranking.csv", "report.html", "table.csv"]
    assert sorted(path.name for path in files) == attached, "lethe collate attaches the same"

    def refuse(jobs, folders, watch, studies=()):
        raise AssertionError("nothing is missing")

    assert run(executor=refuse) == 0
    assert run("--plan") == 0
    assert "3 trials: 3 done." in capsys.readouterr().out

    seen = []  # Only what is added runs.

    def watch_jobs(jobs, folders, watch, studies=()):
        seen.extend((job.spec.variant, job.spec.strengths) for job in jobs if job.kind == "trial")
        measured(jobs, folders, watch)

    assert run("--set", "methods.gradient_ascent.epochs=1", executor=watch_jobs) == 0
    assert seen == [("gradient_ascent", (1,))]
    seen.clear()
    assert run("--set", "methods.emso.epochs=[1, 2, 3]", "--only", "method=emso", executor=watch_jobs) == 0
    assert seen == [("emso", (1, 2, 3))]


def test_a_failed_trial_is_exit_code_1_and_the_report_is_there(run, tmp_path, capsys):
    def failing(jobs, folders, watch, studies=()):
        measured(jobs, folders, watch, fails=("emso",))

    assert run(executor=failing) == 1
    assert "failed: emso on " in capsys.readouterr().out
    assert (tmp_path / "results" / "doors" / "report.html").exists()


def test_a_server_that_is_down_changes_neither_exit_code_nor_table_nor_report(
    file, tmp_path, capsys, caplog, monkeypatch, request
):
    said, left = [], []
    for server in ("http://127.0.0.1:9", ""):
        if not server:
            request.getfixturevalue("copied")
        monkeypatch.setattr("harness.execution.inline.run_inline", measured)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
        shutil.rmtree(tmp_path / "results", ignore_errors=True)
        code = sweep.main([str(file), "--results", str(tmp_path / "results"), "--executor", "inline"])
        said.append((code, *capsys.readouterr()))
        folder = tmp_path / "results" / "doors"
        left.append({path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()})
    reports = [files.pop("report.html").partition(b'<details class="provenance"') for files in left]
    assert len({(before, after.partition(b"</details>")[2]) for before, _, after in reports}) == 1, "but for the dates"
    assert said[0] == said[1]
    assert said[0][0] == 0
    assert left[0] == left[1]
    assert len(left[0]) > 6
    assert [record.getMessage().partition(" failed: ")[0] for record in caplog.records] == [
        "MLflow at http://127.0.0.1:9"
    ]


def test_ctrl_c_says_how_to_go_on(run, capsys):
    def interrupted(jobs, folders, watch, studies=()):
        raise KeyboardInterrupt

    assert run(executor=interrupted) == 130
    expected = "Interrupted. What is measured is kept: run the same command again to continue."
    assert expected in capsys.readouterr().err


class Raising(Command):
    """A verb that fails as it was asked to."""

    def __init__(self, error, interrupted=""):
        self.error, self.interrupted = error, interrupted

    def add_arguments(self, parser):
        pass

    def run(self, arguments):
        raise self.error


@pytest.mark.parametrize(("error", "code"), [(DataError("no text"), 2), (StorageError("a full disk"), 1)])
def test_an_error_of_lethe_is_a_message_with_its_notes_and_an_exit_code(error, code, capsys):
    error.add_note("Nothing is lost.")
    assert Raising(error)([]) == code
    assert capsys.readouterr().err == f"{error}\nNothing is lost.\n"


def test_any_other_error_and_a_signal_that_no_verb_handles_are_raised():
    for error in (ZeroDivisionError(), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            Raising(error)([])
    with pytest.raises(ZeroDivisionError):
        Raising(ZeroDivisionError(), "Nothing is measured.")([])


def test_importing_lethe_imports_nothing_and_a_plan_or_a_fault_neither_ray_nor_mlflow(file, tmp_path):
    script = (
        "import sys, harness; "
        "print(sorted({'pandas', 'torch', 'harness.library'} & set(sys.modules)), hasattr(harness, 'nothing')); "
        "from harness.sweep import main; "
        f"codes = [main([{str(file)!r}, '--plan', '--results', {str(tmp_path)!r}]), main(['none.yaml'])]; "
        "late = {'ray', 'optuna', 'mlflow', 'pandas', 'matplotlib', 'datasets', 'sentence_transformers'}; "
        "print(codes, sorted(late & set(sys.modules))); "
        "print(harness.load_results.__module__)"
    )
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = ran.stdout.splitlines()
    assert (lines[0], lines[-2], lines[-1]) == ("[] False", "[0, 2] []", "harness.library")


def test_a_python_without_lethes_packages_is_told_how_to_get_them():
    bare = [sys.executable, "-S"]  # Without site-packages.
    ran = subprocess.run([*bare, "-m", "harness.sweep", "x.yaml"], cwd=ROOT, env={}, capture_output=True, text=True)
    assert ran.returncode == 1
    assert re.fullmatch(r"Lethe's packages are not installed for this Python \(.*\)\. .*make setup.*\n", ran.stderr)
    ran = subprocess.run([*bare, "-c", "import harness"], cwd=ROOT, env={}, capture_output=True, text=True)
    assert ran.stderr.splitlines()[-1].startswith("ModuleNotFoundError: Lethe's packages are not installed")


def test_lethe_lists_its_verbs(capsys):
    for arguments in ([], ["--help"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        assert ended.value.code == 0
    usage = capsys.readouterr().out
    for verb in ("sweep", "collate", "plugins", "dashboard"):
        assert f"\n    {verb} " in usage
    assert max(map(len, usage.splitlines())) <= 100
    assert cli.main(["sweeep"]) == 2
    assert capsys.readouterr().err.startswith("lethe has no verb 'sweeep'. Did you mean 'sweep'?\n")


def test_lethe_sweep_is_the_module(file, tmp_path, capsys):
    assert cli.main(["sweep", str(file), "--plan", "--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("doors: What is asked?")


def test_lethe_plugins_shows_methods_evaluators_metrics_and_settings(capsys):
    assert cli.main(["plugins"]) == 0
    printed = capsys.readouterr().out
    for expected in (
        "  emso  EMSO: Entropy maximisation with selective optimisation",
        "    strength: epochs (one trial goes through its values; erases nothing at 0)",
        "    k: a whole number of at least 1; default 2; tuned among 1, 2, 4, 8\n      Blocks trained in an epoch.",
        "    gamma: a number of at least 0; default 0.05; tuned from 0.005 to 1",
        "    also tuned: training.learning_rate from 1e-06 to 0.001",
        "    loss: em or nll; default em",
        "    strength: gamma (a trial for each value; erases nothing at 0)",
        "needs a memorized model; version ",
        "    el_sequences: a whole number of at least 1, or null; default null",
        "      mauve                  higher is better; fraction, 0 to 1; generation; ",
        "judges: perplexity, features, coherence",
    ):
        assert expected in printed


def test_lethe_plugins_lists_a_broken_plugin_with_its_reason(capsys, monkeypatch, tmp_path):
    from harness.errors import PluginError
    from harness.plugins import METHODS, PluginRegistry

    load = PluginRegistry.load

    def breaking(shelf, name):
        if name == "emso":
            raise PluginError("the method 'emso' cannot be imported: no reason")
        return load(shelf, name)

    monkeypatch.setattr(PluginRegistry, "load", breaking)
    assert cli.main(["plugins"]) == 0
    assert "  emso  (broken: the method 'emso' cannot be imported: no reason)" in capsys.readouterr().out
    assert "emso" in METHODS.names()


def test_a_dashboard_without_results_says_what_to_do(capsys, tmp_path):
    assert cli.main(["dashboard", "--results", str(tmp_path)]) == 2
    assert "Run a sweep first" in capsys.readouterr().err


def test_the_version_has_the_commit_of_a_checkout_and_none_of_a_package(monkeypatch, capsys):
    shown = []
    for commit in ("c0ffee-dirty", ""):
        monkeypatch.setattr("harness.records.record.own_commit", lambda commit=commit: commit)
        assert cli.main(["--version"]) == 0
        shown.append(capsys.readouterr().out.splitlines())
    assert shown[0][0] == f"Lethe {version('lethe')}, commit c0ffee"
    assert shown[1][0] == f"Lethe {version('lethe')}"
    assert [line.split()[0] for line in shown[0][1:]] == ["Python", "torch", "transformers", "ray"]
