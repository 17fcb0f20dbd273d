"""The report as a page: its contents, its tables, its samples."""

import html
import json
import re
import shutil
import subprocess
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import pytest

from harness.analysis.analysis import Analysis
from harness.reporting.files import page
from harness.settings import replace

GOOD = {"ma": 0.9, "el_3": 0.3, "perplexity": 20.0, "rep_2": 0.1, "mauve": 0.8}
FORGET = {"kind": "forget", "prompt": "p", "generated": "g", "reference": "r"}


@pytest.fixture(scope="module")
def sweep(make_row, make_plan, make_point, make_measurement, make_ranked):
    """Return a maker of the results and the ranked table of a sweep of three rows with so many samples of each."""

    def make(samples=4, asked=4, rows=256, texts=(FORGET,)):
        specs = [
            make_row("original", label="Original"),
            make_row("emso", (9, 10), label="EMSO"),
            make_row("ta", (0.05, 0.1), label="TA", reference="memorized_model"),
        ]
        specs = [replace(spec, forget=replace(spec.forget, rows=rows), sample_count=asked) for spec in specs]
        kept = {}
        for place, spec in enumerate(specs):
            kept[spec.trial_id] = []
            for strength in spec.points():
                numbers = GOOD | {"ma": 0.9 - place * (strength or 0) / 100}
                if strength == 10:
                    numbers["mauve"] = float("nan")
                kept[spec.trial_id] += [
                    make_point(spec, strength),
                    make_measurement(spec, strength, numbers=numbers, samples=(texts[place % len(texts)],) * samples),
                ]
        return make_ranked(make_plan(*specs, sample_count=asked), kept)

    return make


@pytest.fixture(scope="module")
def shown(sweep):
    return page(Analysis(sweep()[0]))


def test_the_contents_lead_to_every_section_once(shown):
    [contents] = re.findall(r'<nav class="contents".*?</nav>', shown, re.DOTALL)
    links = re.findall(r'<a href="#([^"]+)">([^<]+)</a>', contents)
    assert links == re.findall(r'<h2 id="([^"]+)">([^<]+)</h2>', shown)
    assert len(links) == shown.count("<h2") == len({anchor for anchor, _ in links})
    assert {"Trade-off", "Main table", "Samples"} <= {title for _, title in links}


class Inline(HTMLParser):
    """The inline styles and scripts of a page, its policy, and the attributes that a policy would have to allow."""

    def __init__(self, text):
        super().__init__()
        self.texts, self.policies, self.refused, self.inside = [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.refused += [(tag, name) for name in values if name == "style" or name.startswith("on")]
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policies.append(values["content"])
        if tag in ("style", "script") and values.get("type") != "application/json":
            self.inside = tag

    def handle_data(self, data):
        if self.inside:
            self.texts.append(data)
        self.inside = ""


def test_a_pages_policy_takes_its_own_styles_and_scripts_and_no_other(shown):
    inline = Inline(shown)
    [policy] = inline.policies
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert inline.refused == []
    hashes = {f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in inline.texts}
    assert hashes == set(re.findall(r"'sha256-[^']+'", policy)), "nor one more"
    assert shown.index("Content-Security-Policy") < shown.index("<style>"), "what comes before it is not under it"


def test_a_text_in_the_page_adds_nothing_to_its_policy(sweep, shown):
    results, _ = sweep(4, 4)
    plan = replace(results.plan, question="</title><script>alert(1)</script><style>p {}</style>")
    page_of_evil = page(Analysis(replace(results, plan=plan)))
    assert Inline(page_of_evil).policies == Inline(shown).policies


def without_policy(text):
    """Return a page that takes a test's own script."""
    return re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)


@pytest.fixture
def browse(tmp_path):
    """Return an opener of a page in a real browser: its document, and what it refused."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if not browser:
        pytest.skip("there is no chromium here to open the page in")

    def go(text, *options):
        (tmp_path / "page.html").write_text(text)
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
        command += [*options, "--enable-logging=stderr", "--dump-dom", (tmp_path / "page.html").as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        return done.stdout, [line for line in done.stderr.splitlines() if "Content Security Policy" in line]

    return go


@pytest.mark.soak
@pytest.mark.parametrize("options", [[], ["--blink-settings=preferredColorScheme=0"], ["--window-size=390,844"]])
def test_a_real_browser_refuses_nothing_of_the_page_and_all_that_is_added(browse, shown, options):
    document, told = browse(shown, *options)
    assert told == []
    assert '<div class="viewer">' in document, "its script ran"
    document, told = browse(shown.replace("</body>", "<script>document.title = 'taken'</script></body>"), *options)
    assert "<title>taken" not in document
    assert len(told) == 1


VIEWED = """
const viewer = document.querySelector(".viewer");
const said = (place) => viewer.querySelector(`.${place} .text`).innerHTML;
const choose = (name, value) => {
  const select = viewer.querySelector(`select[name=${name}]`);
  select.value = value;
  select.dispatchEvent(new Event("change"));
};
const told = [viewer.hidden];
const points = [...viewer.querySelectorAll("select[name=left] option")].map((option) => option.textContent);
told.push(points, said("prompt"), said("reference"), said("left"), said("right"));
choose("right", points.indexOf("TA, epochs 0.1"));
told.push(said("left"), said("right"), viewer.querySelector(".marks").textContent);
document.body.replaceChildren(Object.assign(document.createElement("pre"), {textContent: JSON.stringify(told)}));
"""


@pytest.mark.soak
def test_a_real_browser_shows_what_two_points_wrote_and_marks_how_they_differ(browse, sweep):
    def text(generated, kind="utility"):
        return {"kind": kind, "prompt": "The <b>cat</b>", "generated": generated, "reference": "sat on the mat"}

    written = text("sat on a mat"), text("sat on a <i>hat</i>"), text("on a mat we sat")
    shown = page(Analysis(sweep(samples=1, asked=1, texts=written)[0]))
    browsed = without_policy(shown).replace("</body>", f"<script>{VIEWED}</script></body>")
    printed, _ = browse(browsed)
    hidden, points, prompt, reference, *texts, marks = json.loads(
        html.unescape(re.findall(r"<pre>(.*?)</pre>", printed, re.DOTALL)[-1])
    )
    assert not hidden
    assert points == ["Original", "EMSO, epochs 9", "EMSO, epochs 10", "TA, epochs 0.05", "TA, epochs 0.1"]
    assert (prompt, reference) == ("The &lt;b&gt;cat&lt;/b&gt;", "sat on the mat")
    left, right, left_of_ta, right_of_ta = texts
    assert (left, right) == ("sat on a <mark>mat</mark>", "sat on a <mark>&lt;i&gt;hat&lt;/i&gt;</mark>")
    assert (left_of_ta, right_of_ta) == ("<mark>sat</mark> on a mat", "on a mat <mark>we</mark> <mark>sat</mark>")
    assert marks == "Marked: what the other of the two did not write."
    of_forget = page(Analysis(sweep(samples=1, asked=1, texts=[text("sat on a mat", "forget")])[0]))
    printed, _ = browse(without_policy(of_forget).replace("</body>", f"<script>{VIEWED}</script></body>"))
    assert "sat on <mark>a</mark> mat" in html.unescape(re.findall(r"<pre>(.*?)</pre>", printed, re.DOTALL)[-1])
