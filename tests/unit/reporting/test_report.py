"""What a sweep leaves: the page, the tables as text, the files, and the door that makes them again."""

import html
import os
import re
from pathlib import Path

import pytest

from harness import load_results
from harness.analysis.analysis import Analysis
from harness.contracts import Checkpoint
from harness.records.record import Failed, Started
from harness.records.results import Results, trial_results
from harness.reporting.files import page, write
from harness.reporting.section import PageContext
from harness.reporting.sections.attacks import Attacks
from harness.reporting.sections.blocks import SelectedBlocks
from harness.reporting.sections.main_table import MainTable
from harness.reporting.sections.tradeoff import Tradeoff
from harness.settings import replace

FROZEN = Path(__file__).parents[2] / "promises" / "frozen"
GOOD = {"el_3": 0.3, "ma": 0.9, "ss": 0.6, "perplexity": 20.0, "rep_2": 0.1, "mauve": 0.8}
EVIL = "</pre><script>alert('x')</script><img src=http://evil.example/x>"


@pytest.fixture(scope="module")
def trial(make_row):
    """Return a maker of rows with a judge, measured by one evaluator."""

    def make(variant, strengths=(1,), **changes):
        judges = {"perplexity": Checkpoint("judge", "/j", "/j", "judging")}
        return make_row(variant, strengths, evaluators={"all": "k"}, judges=judges, **changes)

    return make


@pytest.fixture(scope="module")
def records(make_point, make_measurement):
    """Return a maker of everything that a trial leaves that reached all its strengths."""

    def make(spec, notes=None, samples=(), **numbers):
        kept = [Started(trial_id=spec.trial_id, spec=spec.model_dump(mode="json"), versions={"torch": "2.13.0"})]
        told = {"numbers": GOOD | numbers, "samples": tuple(samples), "notes": {"prompts": 256}}
        for strength in spec.points():
            kept += [make_point(spec, strength, notes=notes or {})]
            kept += [make_measurement(spec, strength, "all", **told)]
        return kept

    return make


@pytest.fixture(scope="module")
def original(trial):
    return trial("original", (), label="Original")


@pytest.fixture(scope="module")
def emso(trial):
    return trial("emso", (1, 2))


def results_of(plan, records):
    return Results(plan, tuple(trial_results(spec, records.get(spec.trial_id, ())) for spec in plan.trials))


def report(plan, records):
    return page(Analysis(results_of(plan, records)))


def visible(shown):
    """The words of a page, without tags, its picture and its style."""
    without = re.sub(r"<style>.*?</style>|data:image[^\"]*", "", shown, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", without)))


def test_the_contents_lead_to_every_section_once(make_plan, original, emso, records):
    sample = {"kind": "utility", "prompt": "Once", "generated": "upon", "reference": "a time"}
    kept = {spec.trial_id: records(spec, samples=[sample]) for spec in (original, emso)}
    shown = report(make_plan(original, emso), kept)
    [contents] = re.findall(r'<nav class="contents".*?</nav>', shown, re.DOTALL)
    links = re.findall(r'<a href="#([^"]+)">([^<]+)</a>', contents)
    assert links == re.findall(r'<h2 id="([^"]+)">([^<]+)</h2>', shown)
    assert len(links) == shown.count("<h2") == len({anchor for anchor, _ in links})


def test_whatever_a_model_writes_is_only_text(make_plan, trial, original, emso, records):
    samples = [{"kind": "utility", "prompt": EVIL, "generated": EVIL, "reference": EVIL}]
    failing = trial("gradient_ascent")
    evil = make_plan(replace(original, label=EVIL), emso, failing, question=EVIL, file=EVIL, overrides=(EVIL,))
    kept = {"original-0": records(original, samples=samples)}
    kept["emso-0"] = records(emso, notes={"selected_blocks": [EVIL], "warnings": [EVIL]}, samples=samples)
    kept["gradient_ascent-0"] = [Failed(trial_id="gradient_ascent-0", error=EVIL, log=(EVIL,))]
    shown = report(evil, kept)
    assert "<script" not in shown
    assert shown.count("<img") == 1
    assert visible(shown).count("alert('x')") >= 8
    assert "<dt>Seen</dt>" in shown, "the page's own markup is markup"


@pytest.mark.parametrize("name", ["grid", "attacked"])
def test_the_sections_of_frozen_records_say_what_they_said(name):
    """Every word and number; `UPDATE=1 pytest tests/unit/reporting/test_report.py` writes what they say now."""
    analysis, shown = load_results(FROZEN / name).analysis, []
    pictures = {"tradeoff": "", "attack_curves": "", "selected_blocks": ""}
    for section in (MainTable(analysis), Tradeoff(analysis), Attacks(analysis), SelectedBlocks(analysis)):
        text = str(section.html(PageContext(pictures, lambda title: title)))
        lines = [" ".join(visible(line).split()) for line in text.splitlines()]
        shown += [f"# {section.title}", *filter(None, lines)]
    file = Path(__file__).parent / "frozen" / f"{name}.txt"
    if "UPDATE" in os.environ:
        file.write_text("\n".join(shown) + "\n", encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8").splitlines()


def test_samples_stand_side_by_side_for_ranked_points_alone(make_plan, original, emso, records):
    kept = {"original-0": records(original, samples=[sample("as it was")])}
    kept["emso-0"] = records(emso, samples=[sample("rubbed out")])
    words = visible(report(make_plan(original, emso), kept))
    assert words.count("as it was") == 1
    assert words.count("rubbed out") == 1, "only the ranked one of two points"
    assert "Original as it was" in words
    assert "Texts of the forget set are redacted" in words
    assert "redacted" not in visible(report(make_plan(original, emso, samples="plain"), kept))


def sample(text):
    return {"kind": "forget", "prompt": "Once upon", "generated": text, "reference": "a time"}


def test_a_sweep_without_a_finished_trial_has_its_files_too(tmp_path, make_plan, original, emso):
    failed = Failed(trial_id="emso-0", error="TrialError: the loss is NaN", log=("File x", "NaN at step 3"))
    write(Analysis(results_of(make_plan(original, emso), {"emso-0": [failed]})), tmp_path)
    words = visible((tmp_path / "report.html").read_text(encoding="utf-8"))
    names = "ranking.csv report.html table.csv table.md table.metrics.yaml table.tex tradeoff.pdf tradeoff.png"
    assert sorted(path.name for path in tmp_path.iterdir()) == names.split()
    assert "EMSO on miniature-m, seed 0, failed: the loss is NaN" in words
    assert "NaN at step 3" in words
    assert "1 of 2 trials are not finished." in words
    assert "No point has been measured yet." in (tmp_path / "table.md").read_text()
