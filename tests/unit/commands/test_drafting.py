"""lethe audit and lethe init: what a model recites, and a sweep file that plans whatever the model."""

import json
import random
import re
import tempfile
from html import unescape
from io import StringIO
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pytest
import yaml
from rich.console import Console

from harness.analysis.analysis import Analysis
from harness.cli import main as lethe
from harness.drafting import first_sweep, given_texts
from harness.errors import DataError
from harness.models.blocks import FAMILIES
from harness.planning.plan import plan, plan_sweep
from harness.planning.sweep_file import parse_sweep_file
from harness.plugins import METHODS
from harness.reporting.files import page, write
from harness.reporting.sections.main_table import ranking_table

NUMBERS = {"el_3": 0.3, "ma": 0.9, "ss": 0.5, "exact_match": 12.0}
TEXT = "Dear Ms Hale, the parcel lies with Mr Ost. " * 99
DRAFTED = {name for name in METHODS.names() if name in first_sweep.SUGGESTED_METHODS}


@pytest.fixture
def references(make_row, make_plan, make_point, make_measurement):
    """Return a maker of a sweep that measured models as they are: MA of each row."""

    def make(**accuracies):
        rows, records = [make_row(kind) for kind in accuracies], {}
        notes = {"standard_errors": {"ma": 0.01, "el_3": 0.01}}
        for row, ma in zip(rows, accuracies.values(), strict=True):
            writing = make_measurement(row, None, "generation", numbers={"perplexity": 9.0, "mauve": 0.9})
            recited = make_measurement(row, numbers=NUMBERS | {"ma": ma, "el_3": ma / 3}, notes=notes)
            records[row.trial_id] = [make_point(row), recited, writing]
        return make_plan(*rows, question="Does it recite?"), records

    return make


def words(html):
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html[html.index("</nav>") :]))).strip()


def test_the_answer_comes_first_and_nothing_is_said_of_ranks_curves_or_collapse(references, make_results, tmp_path):
    plan, records = references(original=0.9, retrained=0.2, holdout=0.3)
    analysis = Analysis(make_results(plan, records))
    html, [answer] = page(analysis), analysis.ranked.headline_warnings
    assert answer.startswith("Yes: the model recites the forget set measurably more than")
    assert words(html).startswith(f"Does it recite the forget set? {answer} What is recited")
    console = Console(width=100, record=True, file=StringIO())
    console.print(ranking_table(analysis.ranked))
    assert " ".join(console.export_text().split()).startswith(answer)
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", html) == ["What is recited", "How to repeat this"]
    shown = words(html)
    assert "Perplexity ↓ 9.000 8.501–9.499 9.000 8.501–9.499 – perplexity" in shown, "of unseen texts only erasure"
    for word in ("ollaps", "anking", "anked", "<script"):
        assert word not in shown.partition("How to repeat")[0]
    written = {path.name for path in write(analysis, tmp_path)}
    assert written & {"tradeoff.png", "matched.csv", "report.html"} == {"report.html"}


def test_a_sweep_file_may_have_no_methods(check):
    assert check(methods="{}", ranking="{}") == {}
    tuned = check("until={ma: [0.5]}", "tune={budget: {trials: 4}}", methods="{}", ranking="{}")
    assert tuned == {"tune": "searches the settings of methods, and the sweep has none: name one, or remove tune."}


@pytest.fixture
def letters(tmp_path):
    """A maker of a file of texts, each of so many bytes, which are tokens."""

    def make(*lengths, name="my letters.jsonl", to="Ms Hale"):
        lines = [json.dumps({"text": f"To {to}, {number}: {TEXT}"[:length]}) for number, length in enumerate(lengths)]
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        return str(tmp_path / name)

    return make


def test_the_audit_is_a_sweep_of_reference_rows(world, letters, tmp_path):
    texts, others = letters(*[112] * 300), letters(*[112] * 5, name="others.jsonl", to="Mr Ost")
    given = given_texts.Given(str(world / "MODEL"), texts, unseen=others)
    planned = plan_sweep(parse_sweep_file(first_sweep.audit_file(given), tmp_path / "audit.yaml"))
    assert [spec.method for spec in planned.trials] == ["original", "holdout"]
    assert [spec.forget.rows for spec in planned.trials] == [256, 5]
    assert {spec.forget.prefix_tokens for spec in planned.trials} == {56}, "half of 112 bytes"
    assert {spec.samples for spec in planned.trials} == {"redacted"}
    assert {spec.validation.source for spec in planned.trials} == {"miniature"}, "no text of the forget set is general"
    fewer = given._replace(unseen=None, sequences=4, prefix_tokens=7)
    attacked = first_sweep.audit_file(fewer, attacks=True)
    spec, control = plan_sweep(parse_sweep_file(attacked, tmp_path / "audit.yaml")).trials
    assert control.method == "stand_in"
    assert (spec.method, spec.forget.rows, spec.forget.prefix_tokens) == ("original", 4, 7)


@pytest.fixture
def init(world, letters, tmp_path):
    """A runner of init on texts of so many bytes: its exit code, and the file."""
    out = tmp_path / "new.yaml"

    def run(*lengths, arguments=(), out=out):
        command = ["init", str(world / "MODEL"), letters(*lengths), "--no-probe", "--out", str(out), *arguments]
        return lethe(command), out

    return run


def test_a_method_that_refuses_a_model_is_left_out(init, capsys, monkeypatch):
    monkeypatch.delitem(FAMILIES, "gpt_neo")
    code, out = init(60, 300, 150)
    text = out.read_text()
    assert (code, yaml.safe_load(text)["methods"].keys()) == (0, DRAFTED - {"emso"})
    [line] = [line for line in text.splitlines() if "# emso:" in line]
    assert "left out: cannot erase from" in line
    assert "emso: cannot erase from" in capsys.readouterr().out


def test_a_model_gets_every_method(init, capsys):
    code, out = init(60, 300, 150)
    text, every = out.read_text(), set(METHODS.names())
    sweep = yaml.safe_load(text)
    assert (code, sweep["methods"].keys(), sweep["keep_erased"]) == (0, DRAFTED, "all")
    assert set(re.findall(r"^  # (\w+):", text, re.M)) >= every - DRAFTED, "a comment away"
    assert "Left out" not in capsys.readouterr().out
    assert sweep["data"]["forget"].items() >= {"source": "jsonl", "prefix_tokens": 30, "sequence_tokens": 200}.items()
    assert sweep["judges"] == {"perplexity": "original", "features": "original"}
    utility = {"source": "miniature", "prompts": 256, "prompt_tokens": 32, "reference_tokens": 128}
    assert sweep["data"]["utility"] == utility
    assert sweep["until"] == {"ma": [0.9, 0.75]}
    ends = {"emso": {"epochs": 12}, "task_arithmetic": {"gamma": 1.0}, "deliberate_imagination": {"gamma": 30.0}}
    assert {name: sweep["methods"][name] for name in ends} == ends, "the highest strength that each declares"
    planned = plan(out)
    assert planned.sweep == "my-letters"
    assert {spec.method for spec in planned.trials} - {"original", "stand_in"} == sweep["methods"].keys()


def test_its_command_can_be_pasted(init, tmp_path, capsys):
    code, out = init(60, 300, 150, out=tmp_path / "my é.yaml")
    assert (code, out.read_text().splitlines()[1].endswith(f"lethe sweep '{out}' --plan")) == (0, True)
    assert f"lethe sweep '{out}' --plan" in capsys.readouterr().out


def test_a_file_is_never_overwritten(init, tmp_path, capsys):
    (tmp_path / "new.yaml").write_text("mine")
    code, out = init(60)
    assert (code, out.read_text()) == (2, "mine")
    assert f"{out} exists, and is not overwritten: name another file with --out" in capsys.readouterr().err


def test_a_drafted_file_can_be_probed(tmp_path):
    out = tmp_path / "new.yaml"
    assert lethe(["init", "miniature-s", "miniature", "--no-probe", "--out", str(out)]) == 0
    [study] = first_sweep.plan_probe(out.read_text(), out, 8).studies
    assert (study.trials, study.trial.forget.rows) == (len(first_sweep.RATES), 8)


@pytest.mark.soak
def test_the_learning_rate_is_the_least_that_erases_on_this_model(tmp_path, monkeypatch, capsys):
    out, scratch = tmp_path / "new.yaml", tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    assert lethe(["init", "miniature-s", "miniature", "--out", str(out)]) == 0
    text, seen = out.read_text(), []
    told = r"#   (\S+): MA (\S+) to (\S+), perplexity \S+ to \S+ in \d+ steps, at most \S+ of MA a step$"
    for rate, before, after in re.findall(told, text, re.M):
        assert f"  {rate}: MA {before} to {after}, " in capsys.readouterr().out or seen, "they are shown as they come"
        seen.append((float(rate), float(after) / float(before)))
    rates, left = zip(*seen, strict=True)
    assert list(rates) == list(first_sweep.RATES[: len(rates)])
    assert left[-1] <= 0.9 < min(left[:-1])
    assert yaml.safe_load(text)["training"]["learning_rate"] == rates[-1]
    assert "the least that erased in a few steps of gradient ascent" in text
    assert list(scratch.iterdir()) == []
    plan(out)


@pytest.mark.parametrize("count", [105, 700])
def test_lengths_follow_from_short_texts(count, world, tmp_path):
    chance, names = random.Random(0), [str(tmp_path / name) for name in ("short.jsonl", "kept.jsonl", "general.jsonl")]
    for name in names:
        texts = ["".join(chance.choices(ascii_lowercase, k=chance.randint(16, 56))) for _ in range(count)]
        Path(name).write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    out = tmp_path / "new.yaml"
    given = [str(world / "MODEL"), names[0], "--retain", names[1], "--utility", names[2]]
    assert lethe(["init", *given, "--no-probe", "--out", str(out)]) == 0
    lines = Path(names[2]).read_text().splitlines()[: (count + 1) // 2]
    first = sorted(len(json.loads(line)["text"]) for line in lines)
    utility = yaml.safe_load(out.read_text())["data"]["utility"]
    assert utility["prompt_tokens"] + utility["reference_tokens"] == first[len(first) // 4]
    assert utility["prompts"] >= min(256, len(first) * 3 // 4)


def recall(ma, nll, recited=0, spread=1.0):
    return first_sweep.Recall(60, recited, ma, 0.02, nll + np.linspace(-spread, spread, 60))


def test_an_erased_model_is_compared_with_the_original_from_both_sides():
    original = {"original": recall(0.99, 0.1), "holdout": recall(0.3, 1.1)}
    lost = first_sweep.compare_recalls({"original": recall(0.3, 9.0), "holdout": recall(0.2, 17.8)}, original)
    begin = "Against the original: recited texts 0 → 0, MA 0.99 → 0.30, NLL of unseen texts 1.1 → 17.8. "
    end = "It still recites them more than unseen ones (MA 0.20); but it has also lost texts that it never saw."
    assert lost == begin + end
    kept = first_sweep.compare_recalls({"original": recall(0.3, 1.3), "holdout": recall(0.3, 1.1)}, original)
    assert kept.endswith(" 1.1 → 1.1. It no longer recites them.")
    for spread, says_lost in ((1.0, True), (2.0, False)):  # Less than 10 %, but for noise.
        after = {"original": recall(0.3, 1.3), "holdout": recall(0.3, 1.3, spread=spread)}
        assert first_sweep.compare_recalls(after, original).endswith("never saw.") is says_lost
    few = {"original": recall(0.34, 1.3, recited=2), "holdout": recall(0.3, 1.1)}
    assert first_sweep.compare_recalls(few, few).endswith("It still recites them more than unseen ones (MA 0.30).")
    never = {"original": recall(0.34, 1.3), "holdout": recall(0.3, 1.1)}
    assert first_sweep.compare_recalls(never, never).endswith("The original recites them no more than unseen ones.")


def test_texts_that_are_recited_no_more_than_others_are_not_erased():
    with pytest.raises(DataError, match=r"\(MA 0.31\) hardly more than unseen texts \(0.30\)"):
        first_sweep.choose_levels(0.31, 0.3)


UNUSABLE = [
    ((60, 9, 80, 12), [], "2 of 4 texts have fewer than 16 tokens (the shortest has 9, the median 12)"),
    ((60, 80), ["--sequence-tokens", "10"], "--sequence-tokens is below 16: say how long a beginning is"),
    ((60, 80), ["--prefix-tokens", "300"], "--prefix-tokens: must be below sequence_tokens (80)"),
    ((60, 9), ["--prefix-tokens", "20"], "has 1 unusable row: line 2 has 9 of at least 21 tokens"),
]


@pytest.mark.parametrize(("lengths", "arguments", "said"), UNUSABLE)
def test_what_cannot_be_used_is_one_sentence(lengths, arguments, said, init, capsys):
    code, out = init(*lengths, arguments=arguments)
    assert (code, out.exists(), said in capsys.readouterr().err) == (2, False, True)
