"""What a sweep leaves: the page, the tables as text, the files, and the door that makes them again."""

import html
import re
from dataclasses import replace

import pytest
from harness.analysis.layout import model_tables
from harness.reporting.text_tables import latex, markdown

from harness import collate
from harness.analysis.analysis import Analysis
from harness.analysis.metrics import metric_info
from harness.analysis.ranking import rank
from harness.analysis.table import table
from harness.contracts import Checkpoint
from harness.errors import DataError
from harness.records.record import Failed, Measurement, Started, Stopped
from harness.records.results import Results, trial_results
from harness.reporting.files import write
from harness.reporting.page import page
from harness.reporting.template import latex_escape, markdown_escape
from harness.specs import CollapseBounds

FILES = {
    *("table.csv", "table.metrics.yaml", "table.md", "table.tex", "ranking.csv", "report.html"),
    *("matched.csv", "matched.md", "matched.png", "matched.pdf", "price.png", "price.pdf"),
    *("tradeoff.png", "tradeoff.pdf"),
}
OF_BLOCKS = {"selected_blocks.csv", "selected_blocks-miniature-m-emso.png"}
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

    def make(spec, notes=None, samples=(), prompts=256, **numbers):
        kept = [Started(trial_id=spec.trial_id, spec=spec.to_json(), versions={"torch": "2.13.0"})]
        told = {"numbers": GOOD | numbers, "samples": tuple(samples), "notes": {"prompts": prompts}, "seconds": 5.0}
        for strength in spec.points():
            kept += [make_point(spec, strength, erase_seconds=75.0, peak_memory_bytes=2**30, notes=notes or {})]
            kept += [make_measurement(spec, strength, "all", **told)]
        return kept

    return make


@pytest.fixture(scope="module")
def original(trial):
    return trial("original", (), label="Original")


@pytest.fixture(scope="module")
def emso(trial):
    return trial("emso", (1, 2))


@pytest.fixture(scope="module")
def ascent(trial):
    return trial("gradient_ascent", label="GA_1")


@pytest.fixture(scope="module")
def plan(make_plan, original, emso, ascent):
    """The usual plan: the original, one that erases, and one that collapses."""
    return make_plan(original, emso, ascent)


@pytest.fixture(scope="module")
def usual(records, original, emso, ascent):
    """Return a maker of what the usual plan leaves."""
    notes = {"selected_blocks": [{"block": "L2.W_v.H11", "m": -0.0123}], "warnings": ["the gate was missed"]}

    def make(**options):
        return {
            "original-0": records(original, **options),
            "emso-0": records(emso, notes=notes, ma=0.5, mauve=0.7, **options),
            "gradient_ascent-0": records(ascent, ma=0.0, perplexity=1.5, rep_2=0.99, mauve=0.01, **options),
        }

    return make


def results_of(plan, records):
    return Results(plan, tuple(trial_results(spec, records.get(spec.trial_id, ())) for spec in plan.trials))


def ranked_of(plan, records):
    results = results_of(plan, records)
    info = metric_info(results)
    return rank(table(results, info), info)


def report(plan, records):
    return page(Analysis(results_of(plan, records)))


def visible(shown):
    """The words of a page, without tags, its picture, its style and its script."""
    without = re.sub(r"<style>.*?</style>|<script.*?</script>|data:image[^\"]*", "", shown, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", without)))


def test_everything_is_written_and_nothing_else_is_left(tmp_path, plan, usual):
    written = write(Analysis(results_of(plan, usual())), tmp_path / "new" / "s")
    assert {path.name for path in written} == FILES | OF_BLOCKS
    left = {path.name for path in (tmp_path / "new" / "s").rglob("*") if path.is_file()}
    assert left == FILES | OF_BLOCKS
    assert all(path.stat().st_size for path in written)


def test_whatever_a_model_writes_is_only_text(make_plan, original, emso, ascent, records, usual):
    samples = [{"kind": "utility", "prompt": EVIL, "generated": EVIL, "reference": EVIL}]
    evil = make_plan(replace(original, label=EVIL), emso, ascent, question=EVIL, file=EVIL, overrides=(EVIL,))
    kept = usual(samples=samples)
    kept["emso-0"] = [*records(emso, notes={"selected_blocks": [EVIL], "warnings": [EVIL]}, samples=samples)]
    kept["gradient_ascent-0"] = [Failed(trial_id="gradient_ascent-0", error=EVIL, log=(EVIL,))]
    shown = report(evil, kept)
    assert shown.count("<script") == 4, "the page's own three, and one of data"
    assert shown.count("<img") == 1
    assert visible(shown).count("alert('x')") >= 9
    assert "<u>second best</u>" in shown, "the page's own markup is markup"


def test_the_page_says_what_happened(plan, usual):
    kept = usual()
    kept["emso-0"].append(Stopped(trial_id="emso-0", strength=2, reason="perplexity 30 is above 1.03 x 20"))
    words = visible(report(plan, kept))
    for said in (
        "What does it cost?",
        "3 of 3 done",
        "Average rank: 1 EMSO (epochs 2).",
        "MA 0.900 → 0.500, Perplexity 20.00 → 20.00, MAUVE 0.800 → 0.700",
        "Collapsed, so shown and not ranked: GA_1 (degenerate: mauve and perplexity).",
        "1 of 2 trials was ended by the early stop: EMSO at epochs 2.",
        "perplexity 30 is above 1.03 x 20",
        "EMSO on miniature-m: the gate was missed",
        "L2.W_v.H11 M = -1.23e-02",
        "1 min 15 s",
        "1.0 GiB",
        "torch 2.13.0",
        "# What? name: s",
        "judge of perplexity judge judging",
        "method emso (version 1) k: 2",
        "Definition: exact",
    ):
        assert said in words, said


def test_collapsed_rows_are_red_and_no_others_are(plan, usual):
    shown = report(plan, usual())
    after_the_matched = shown[shown.index('<h2 id="ranking">') :]
    red = re.findall(r'<tr[^>]* class="[^"]*collapsed">.*?</tr>', after_the_matched, flags=re.DOTALL)
    assert len(red) == 3  # In the ranking, the main table and the table of points.
    assert all("GA_1" in row and "EMSO" not in row for row in red)


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
    of_answer = {"matched.csv", "matched.md", "matched.png", "matched.pdf", "price.png", "price.pdf"}
    assert {path.name for path in tmp_path.iterdir()} == FILES - of_answer
    assert "No point that can be ranked has been measured yet." in words
    assert "EMSO on miniature-m, seed 0, failed: the loss is NaN" in words
    assert "NaN at step 3" in words
    assert "1 of 2 trials are not finished." in words
    assert "No point has been measured yet." in (tmp_path / "table.md").read_text()


def test_mauve_from_few_prompts_is_not_trusted(make_plan, original, records):
    (few,) = warned(make_plan(original), {"original-0": records(original, prompts=255)})
    assert "MAUVE comes from 255 prompts" in few
    assert not warned(make_plan(original), {"original-0": records(original, prompts=256)})


def warned(some_plan, kept):
    return Analysis(results_of(some_plan, kept)).warnings


@pytest.mark.parametrize(
    ("numbers", "doubt"),
    [
        ({"rep_2": 0.6}, "EMSO (epochs 2) on miniature-m, seed 0, has a rep_2 of 0.600, yet neither MAUVE nor"),
        ({"rep_5": 0.6}, "has a rep_5 of 0.600"),
        ({"rep_2": 0.4}, None),
        ({"rep_2": 0.6, "mauve": 0.01}, None),  # Flagged, so nothing to doubt.
        ({"rep_2": 0.6, "perplexity": 101.0}, None),
    ],
)
def test_a_healthy_verdict_against_the_other_numbers_is_doubted(numbers, doubt, make_plan, original, emso, records):
    told = warned(make_plan(original, emso), {"original-0": records(original), "emso-0": records(emso, **numbers)})
    doubts = [sentence for sentence in told if sentence.endswith("neither MAUVE nor perplexity calls it collapsed.")]
    assert [doubt in warning for warning in doubts] == [True] if doubt else doubts == []


def test_a_missing_perplexity_or_original_is_told(make_plan, original, emso, records):
    plan, lacking = make_plan(original, emso), records(emso, perplexity=float("nan"))
    told = warned(plan, {"original-0": records(original), "emso-0": lacking})
    assert "2 of 3 points have no perplexity: whether they collapsed is unknown." in told
    told = warned(plan, {"emso-0": records(emso)})
    assert "2 of 2 points have no original to be held against: whether they collapsed is unknown." in told


def test_numbers_that_cannot_be_ranked_are_kept(tmp_path, make_plan, original, emso, usual):
    kept = usual()
    kept["emso-0"] = [replace(r, definition="table") if isinstance(r, Measurement) else r for r in kept["emso-0"]]
    with pytest.raises(DataError, match=r"'exact' \(original on miniature-m\) and 'table' \(emso on miniature-m\)"):
        write(Analysis(results_of(make_plan(original, emso), kept)), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"table.csv", "table.metrics.yaml"}


def test_seeds_show_mean_and_interval(make_plan, original, emso, records, usual):
    trials = [
        replace(spec, seed=seed, trial_id=f"{spec.method}-{seed}") for spec in (original, emso) for seed in (0, 1)
    ]
    kept = {spec.trial_id: records(spec, ma=0.5 + 0.1 * spec.seed) for spec in trials}
    words = visible(report(make_plan(*trials), kept))
    assert "0.550 0.000–1.000" in words  # 12.706 · 0.0707 / sqrt(2) is 0.635, and MA lies within 0 and 1
    assert "Means over 2 seeds" in words
    assert "Small: the 95 % interval, over 2 seeds." in words
    assert "1 (1–1)" in words
    tex = latex(model_tables(ranked_of(make_plan(*trials), kept)), "")
    assert "0.550" in tex
    assert r"{\scriptsize 0.000--1.000}" in tex
    assert "Small: the 95 % interval, over" not in visible(report(make_plan(original, emso), usual()))


@pytest.fixture
def tables(make_plan, trial, plan, records, usual):
    """The usual sweep with a second variant that has not collapsed: its ranked table."""
    second = trial("b_c", label="B_C & 5%", reference="retain_data")
    some_plan, kept = make_plan(*plan.trials, second), usual() | {"b_c-0": records(second, ma=0.6, mauve=0.6)}
    return ranked_of(some_plan, kept)


def test_latex_has_the_papers_layout(tables):
    [table_of_model] = model_tables(tables)
    marked_rows = {"EMSO": ("best", "best"), "B_C & 5%": ("", "second")}
    sections = []
    for section in table_of_model.sections:
        rows = []
        for row in section.rows:
            marks = [*marked_rows.get(row.label, ()), *[""] * 6][:6]
            cells = tuple(replace(cell, mark=mark) for cell, mark in zip(row.cells, marks, strict=True))
            rows.append(replace(row, cells=cells))
        sections.append(replace(section, rows=tuple(rows)))
    text = latex([replace(table_of_model, sections=tuple(sections))], "What_? 100 %")
    assert r"\multicolumn{3}{c}{\textbf{Memorization}}" in text
    assert r"EL$_{3}$ $\downarrow$ & MA $\downarrow$ & SS $\downarrow$" in text
    assert r"\caption{What\_? 100 \% The best" in text
    assert r"\textit{w/ RD} & B\_C \& 5\% & " in text
    assert r"\cellcolor[rgb]{1,0.7,0.7} GA\_1 & 0.300 & 0.000 &" in text
    assert r"EMSO & \textbf{0.300} & \textbf{0.500} &" in text
    assert r"\underline{0.600}" in text
    body = [
        line.removesuffix(r" \\") for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line
    ]
    assert {len(re.split(r"(?<!\\)&", line)) for line in body} == {6 + 5}


def test_latex_escapes_what_latex_would_read_and_nothing_else():
    assert latex_escape(r"a_b & 5% #1 $x {y} ~^ \z") == (
        r"a\_b \& 5\% \#1 \$x \{y\} \textasciitilde{}\textasciicircum{} \textbackslash{}z"
    )
    assert latex_escape("plain words, 0.5 (1)") == "plain words, 0.5 (1)"


def test_markdown_keeps_its_columns(tables):
    text = markdown(model_tables(tables), "a | b_c", "caption")
    assert text.startswith("# a \\| b\\_c\n")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.split(r"(?<!\\)\|", line)) for line in lines} == {3 + 6 + 3 + 2}
    assert "| w/ RD | B\\_C & 5% |" in text
    assert "GA\\_1 † *collapsed (degenerate: mauve and perplexity)*" in text
    assert markdown_escape("plain words") == "plain words"


def test_collating_ones_own_table_gives_the_sweeps_flags(tmp_path, capsys, make_plan, original, emso, usual):
    write(Analysis(results_of(make_plan(original, emso, collapse=CollapseBounds(mauve=0.95)), usual())), tmp_path)
    assert collate.main([str(tmp_path / "table.csv")]) == 0
    assert "gibberish" in capsys.readouterr().out
