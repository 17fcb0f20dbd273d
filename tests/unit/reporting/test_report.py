"""What a sweep leaves: the page, the tables as text, the files, and the door that makes them again."""

import html
import os
import re
import shutil
import subprocess
from pathlib import Path

import matplotlib
import pytest
from PIL import ImageFont

from harness import load_results
from harness.analysis.analysis import Analysis
from harness.contracts import Checkpoint
from harness.records.journal import Failed, Started
from harness.reporting.files import page, write
from harness.reporting.section import Picture
from harness.reporting.sections import repeat
from harness.reporting.sections.attacks import Attacks
from harness.reporting.sections.blocks import SelectedBlocks
from harness.reporting.sections.main_table import MainTable
from harness.reporting.sections.tradeoff import Tradeoff
from harness.settings import replace

FROZEN = Path(__file__).parents[2] / "promises" / "frozen"
GOOD = {"el_3": 0.3, "ma": 0.9, "ss": 0.6, "perplexity": 20.0, "rep_2": 0.1, "mauve": 0.8}
A4 = 273 / 25.4 * 72  # Points, landscape, without margins.
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

    def make(spec, notes=None, samples=()):
        kept = [Started(trial_id=spec.trial_id, spec=spec.model_dump(mode="json"), versions={"torch": "2.13.0"})]
        told = {"numbers": GOOD, "samples": tuple(samples), "notes": {"prompts": 256}}
        for strength in spec.points():
            kept += [make_point(spec, strength, notes=notes or {}), make_measurement(spec, strength, "all", **told)]
        return kept

    return make


def printed_points(table):
    """The width of a printed table, each column as wide as its longest word, in a wide font."""
    rows = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in table.split("<tr")]
    font = ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")), 70)
    whole = [row for row in rows if len(row) == max(map(len, rows))]
    columns = (visible(" ".join(cells)).split() for cells in zip(*whole, strict=True))
    return sum(4 + max((font.getlength(word) / 10 for word in words), default=0) for words in columns)


def test_nothing_is_wider_than_a_phone_and_print_shows_all():
    css = (Path(__file__).parents[3] / "harness" / "reporting" / "templates" / "report.css").read_text()
    widths = re.findall(r"[^-\w](?:min-)?width: ([\d.]+)(px|rem|ch)", css.replace("(max-width", "("))
    assert all(float(number) * (1 if unit == "px" else 16) <= 360 for number, unit in widths)
    phone, printed = css.split("@media (max-width: 40rem)")[1].split("@page")
    assert re.search(r"\bth, td, td\.wrap[^}]*white-space: normal[^}]*overflow-wrap: anywhere", phone)
    rules = (r"\.scroll[^}]*max-height: none; overflow: visible", r"\bh2, h3[^}]*break-after: avoid")
    assert [rule for rule in rules if not re.search(rule, printed)] == []


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
MEASURED = """<iframe style="border: 0" width="{width}" height="900" srcdoc="{page}"></iframe><script>
onload = () => {{
  const isOut = (one) => one.getBoundingClientRect().width && one.getBoundingClientRect().right > {width} + 1;
  const out = [...document.querySelector("iframe").contentDocument.querySelectorAll("body *")].filter(isOut);
  const free = out.filter((one) => !({scrolls} && one.closest(".scroll")) && !one.closest("g"));
  document.title = "out:" + free.map((one) => one.tagName + " " + one.textContent.slice(0, 40)).join(";");
}}</script>"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine, so nothing lays the page out")
@pytest.mark.parametrize(("width", "medium"), [(1440, "screen"), (390, "screen"), (1032, "print")])
def test_a_browser_lays_nothing_outside_the_page_or_the_paper(tmp_path, width, medium):
    shown = page(load_results(FROZEN / "attacked").analysis).replace("<details>", "<details open>")
    shown = re.sub("<meta http-equiv[^>]*>", "", shown).replace(f"@media {medium} ", "@media screen ")
    shown = shown.replace("@media (max-width: 40rem)", "@media not all") if medium == "print" else shown
    measured = MEASURED.format(page=html.escape(shown), width=width, scrolls=str(width == 1440).lower())
    (tmp_path / "page.html").write_text(measured, encoding="utf-8")
    about = ["--headless=new", "--no-sandbox", "--window-size=1600,900", "--virtual-time-budget=5000", "--dump-dom"]
    command = [BROWSER, *about, tmp_path / "page.html"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    title = re.search("<title>(.*?)</title>", told, re.DOTALL)
    assert title is not None
    assert title[1] == "out:"


def visible(shown):
    """The words of a page, without tags, its picture and its style."""
    without = re.sub(r"<style>.*?</style>|data:image[^\"]*", "", shown, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", without)))


@pytest.fixture(scope="module")
def rows(trial):
    return trial("original", (), label="Original"), trial("emso", (1, 2))


def test_whatever_a_model_writes_is_only_text(make_plan, trial, rows, records, make_results):
    original, emso = rows
    samples = [{"kind": "utility", "prompt": EVIL, "generated": EVIL, "reference": EVIL}]
    failing = trial("gradient_ascent")
    evil = make_plan(replace(original, label=EVIL), emso, failing, question=EVIL, file=EVIL, overrides=(EVIL,))
    kept = {"original-0": records(original, samples=samples)}
    kept["emso-0"] = records(emso, notes={"selected_blocks": [EVIL], "warnings": [EVIL]}, samples=samples)
    kept["gradient_ascent-0"] = [Failed(trial_id="gradient_ascent-0", error=EVIL, log=(EVIL,))]
    shown = page(Analysis(make_results(evil, kept)))
    assert ("<script" in shown, shown.count("<img")) == (False, 2)
    assert visible(shown).count("alert('x')") >= 8
    assert "<dt>Seen</dt>" in shown, "the page's own markup is markup"
    links = re.findall(r'<a href="#([^"]+)">([^<]+)</a>', shown.partition("</nav>")[0])
    assert links == re.findall(r'<h2 id="([^"]+)">([^<]+)</h2>\n<p>', shown), "the contents lead to every section"
    assert {link.partition("#")[::2] for link in re.findall(r'href="([^"]*)"', shown)} <= {("", id) for id, _ in links}


@pytest.mark.parametrize("name", ["grid", "attacked"])
def test_the_sections_of_frozen_records_say_what_they_said(name):
    """Every word and number; `UPDATE=1 pytest tests/unit/reporting/test_report.py` writes what they say now."""
    analysis, shown = load_results(FROZEN / name).analysis, []
    pictures = {figure: [Picture("", 1, 1, ())] for figure in ("tradeoff", "attack_curves", "selected_blocks")}
    for section in (MainTable(analysis), Tradeoff(analysis), Attacks(analysis), SelectedBlocks(analysis)):
        text = str(section.html(pictures))
        for classes, table in re.findall(r"<table([^>]*)>(.*?)</table>", text, re.DOTALL):
            assert "many" in classes or printed_points(table) < A4
        lines = [" ".join(visible(line).split()) for line in text.splitlines()]
        shown += [f"# {section.title}", *filter(None, lines)]
    file = Path(__file__).parent / "frozen" / f"{name}.txt"
    if "UPDATE" in os.environ:
        file.write_text("\n".join(shown) + "\n", encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8").splitlines()


def test_the_curves_of_attacks_say_at_which_level_they_are():
    section = Attacks(load_results(FROZEN / "attacked").analysis)
    section.curves = section.curves.assign(target="MA unseen")
    text = str(section.html({"attack_curves": [Picture("", 1, 1, ())]}))
    assert "step by step and layer by layer, of methods at MA unseen." in text


def test_samples_stand_side_by_side_for_ranked_points_alone(make_plan, rows, records, make_results):
    kept, sample = {}, {"kind": "forget", "prompt": "Once upon", "reference": "a time"}
    for spec, generated in zip(rows, ("as it was", "rubbed out"), strict=True):
        kept[spec.trial_id] = records(spec, samples=[sample | {"generated": generated}])
    words = visible(page(Analysis(make_results(make_plan(*rows), kept))))
    assert (words.count("as it was"), words.count("rubbed out")) == (1, 1), "only the ranked one of two points"
    assert "Texts of the forget set are redacted" in words
    assert "redacted" not in visible(page(Analysis(make_results(make_plan(*rows, samples="plain"), kept))))


def test_of_many_trials_the_first_are_listed(make_plan, trial, records, make_results, monkeypatch):
    monkeypatch.setattr(repeat, "MAX_TRIALS", 5)
    specs = [trial("emso", (1, 2), seed=seed) for seed in range(9)]
    shown = page(Analysis(make_results(make_plan(*specs), {spec.trial_id: records(spec) for spec in specs})))
    assert len(re.findall(r">done</td><td[^>]*>\d+ of \d+</td>", shown)) == 5


def test_a_sweep_without_a_finished_trial_has_its_files_too(tmp_path, make_plan, make_results, rows):
    failed = Failed(trial_id="emso-0", error="TrialError: the loss is NaN", log=("File x", "NaN at step 3"))
    write(Analysis(make_results(make_plan(*rows), {"emso-0": [failed]})), tmp_path)
    words = visible((tmp_path / "report.html").read_text(encoding="utf-8"))
    names = "ranking.csv report.html table.csv table.md table.metrics.yaml table.tex tradeoff.pdf tradeoff.png"
    assert sorted(path.name for path in tmp_path.iterdir()) == names.split()
    said = ("EMSO on miniature-m, seed 0, failed: the loss is NaN", "NaN at step 3", "Not finished: 2 of 2 trials.")
    assert [sentence for sentence in said if sentence not in words] == []
    assert "No point has been measured yet." in (tmp_path / "table.md").read_text()
