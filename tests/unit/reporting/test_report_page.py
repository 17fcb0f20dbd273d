"""The report as a page: its contents, its tables, its samples."""

import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser

import pytest

from harness.analysis.analysis import Analysis
from harness.reporting.page import page

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
