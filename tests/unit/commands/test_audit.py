"""lethe audit, and sweeps without methods: what a model recites, and nothing of ranks."""

import json
import re
from html import unescape
from io import StringIO

import pytest
from rich.console import Console

from harness.analysis.analysis import Analysis
from harness.drafting.first_sweep import audit_file
from harness.drafting.given_texts import Given
from harness.planning.plan import plan_sweep
from harness.planning.sweep_file import parse_sweep_file
from harness.reporting.files import page, write
from harness.reporting.sections.main_table import ranking_table

NUMBERS = {"el_3": 0.3, "ma": 0.9, "ss": 0.5, "exact_match": 12.0}
TEXT = "Dear Ms Hale, the parcel lies with Mr Ost, who asks for your signature. "


@pytest.fixture
def references(make_row, make_plan, make_point, make_measurement):
    """Return a maker of a sweep that measured models as they are: MA of each row."""

    def make(**accuracies):
        rows = [make_row(kind) for kind in accuracies]
        notes = {"standard_errors": {"ma": 0.01, "el_3": 0.01}}
        records = {
            row.trial_id: [
                make_point(row),
                make_measurement(row, numbers=NUMBERS | {"ma": ma, "el_3": ma / 3}, notes=notes),
                make_measurement(row, None, "generation", numbers={"perplexity": 9.0, "mauve": 0.9}),
            ]
            for row, ma in zip(rows, accuracies.values(), strict=True)
        }
        return make_plan(*rows, question="Does it recite?"), records

    return make


def words(html):
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html[html.index("</nav>") :]))).strip()


def test_the_answer_comes_first_and_nothing_is_said_of_ranks_curves_or_collapse(references, make_results, tmp_path):
    plan, records = references(original=0.9, retrained=0.2, holdout=0.3)
    analysis = Analysis(make_results(plan, records))
    html, [answer] = page(analysis), analysis.ranked.headline_warnings
    assert answer.startswith("Yes: the original recites the forget set measurably more than")
    assert words(html).startswith(f"Does it recite the forget set? {answer} What is recited")
    console = Console(width=100, record=True, file=StringIO())
    console.print(ranking_table(analysis.ranked, analysis.shown))
    assert " ".join(console.export_text().split()).startswith(answer)
    headings = re.findall(r"<h2[^>]*>(.*?)</h2>", html)
    assert headings == ["What is recited", "Trials, time and memory", "How to repeat this"]
    shown = words(html)
    assert "Forget set Retrained model Unseen texts" in shown
    assert "Perplexity ↓ 9.000 8.501–9.499 9.000 8.501–9.499 – perplexity" in shown, "of unseen texts only erasure"
    for word in ("ollaps", "anking", "anked", "<script"):
        assert word not in shown.partition("How to repeat")[0]
    written = write(analysis, tmp_path)
    assert not {"tradeoff.png", "matched.csv"} & {path.name for path in written}
    assert "report.html" in {path.name for path in written}


def test_a_sweep_file_may_have_no_methods(check):
    assert check(methods="{}", ranking="{}") == {}
    tuned = check("until={ma: [0.5]}", "tune={budget: {trials: 4}}", methods="{}", ranking="{}")
    assert tuned == {"tune": "searches the settings of methods, and the sweep has none: name one, or remove tune."}


def letters(folder, count, name="letters.jsonl", to="Ms Hale"):
    lines = [json.dumps({"text": f"{number} To {to}: {TEXT * 9}"[:112]}) for number in range(count)]
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return str(folder / name)


def test_the_audit_is_a_sweep_of_reference_rows(world, tmp_path):
    texts, others = letters(tmp_path, 300), letters(tmp_path, 5, "others.jsonl", "Mr Ost")
    given = Given(str(world / "MODEL"), texts, unseen=others)
    planned = plan_sweep(parse_sweep_file(audit_file(given), tmp_path / "audit.yaml"))
    assert [spec.method for spec in planned.trials] == ["original", "holdout"]
    assert [spec.forget.rows for spec in planned.trials] == [256, 5]
    assert {spec.forget.prefix_tokens for spec in planned.trials} == {56}, "half of 112 bytes"
    assert {spec.samples for spec in planned.trials} == {"redacted"}
    fewer = given._replace(unseen=None, sequences=4, prefix_tokens=7)
    [spec] = plan_sweep(parse_sweep_file(audit_file(fewer), tmp_path / "audit.yaml")).trials
    assert (spec.method, spec.forget.rows, spec.forget.prefix_tokens) == ("original", 4, 7)
