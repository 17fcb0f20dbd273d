"""Mutants of sweep files, and of `--set` and `--only`: planned, or refused with the file and each fault's place."""

import json
import math

import pytest
import yaml

from harness.planning.plan import plan
from harness.plans import Plan

TUNED = """
models: [{id: MODEL, retrained: OTHER}]
data: {forget: {source: miniature, sequences: 8}, utility: {source: miniature, prompts: 4}}
methods: {emso: {k: 4}, gradient_ascent: }
evaluators: {memorization: {el_sequences: 4}}
tune: {budget: {trials: 4}, erasure: {ma: [0.9, retrained]}, search: random, space: {emso: {epochs: {low: 1, high: 8}}}}
compare: {erasure: ma}
"""
LINES = """
models: [OTHER, {id: MODEL, engine: {deepspeed: {zero_stage: 2}}, training: {precision: bf16}}]
data:
  forget: {source: jsonl, path: FILE, sequences: 4, prefix_tokens: 8, sequence_tokens: 16, field: text, start: 1}
  utility: {source: hub, path: FOLDER, prompts: 2, prompt_tokens: 4, reference_tokens: 8}
methods: {emso: {epochs: [1, 2], training: {learning_rate: [1e-4, 1e-5]}}, ga: {method: gradient_ascent}}
evaluators: {memorization: {el_sequences: 4}}
"""


@pytest.fixture
def attempt(world, sound, change, tmp_path):
    lines = tmp_path / "texts.jsonl"
    lines.write_text(
        "".join(json.dumps({"text": f"a text of {number} that is long enough"}) + "\n" for number in range(9))
    )
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train.jsonl").write_text(lines.read_text().replace("a text", "another"))
    names = {"MODEL": world / "MODEL", "OTHER": world / "OTHER", "FILE": lines, "FOLDER": tmp_path / "set"}
    texts = []
    for text in (sound, TUNED, LINES):
        for name, path in names.items():
            text = text.replace(name, str(path))
        texts.append(text.lstrip())
        (tmp_path / "sound.yaml").write_text(texts[-1])
        plan(tmp_path / "sound.yaml")  # Sound, and what is read once is read: the miniature's documents take a second.

    def try_one(choice, folder, named):
        text = choice.choice(texts)
        overrides, only = [], []
        if choice.random() < 0.6:
            tree = yaml.safe_load(text.replace("1e-3", "1.0e-3"))
            for _ in range(choice.choice((1, 1, 2, 3))):
                tree = change.tree(tree, choice)
            content = change.json(tree, choice)
        elif choice.random() < 0.8:
            content = change.content(text.encode(), choice)
        else:
            content = text.encode()
            overrides = [
                change.content(choice.choice((b"data.forget.start=3", b"seeds.0=1", b"models.0.id=[a]")), choice)
            ]
            only = [change.content(b"method=emso", choice)] if choice.random() < 0.5 else []
        file = folder / "sweep.yaml"
        file.write_bytes(content)
        named.append(str(file))
        arguments = ([given.decode(errors="surrogateescape") for given in each] for each in (overrides, only))
        planned = plan(file, *arguments)
        assert Plan.from_json(planned.to_json()) == planned
        json.dumps(planned.to_json(), allow_nan=False)
        assert len({spec.trial_id for spec in planned.trials}) == len(planned.trials)
        assert all(math.isfinite(strength) for spec in planned.trials for strength in spec.strengths)

    return try_one


def test_five_hundred_mutants(attempt, fuzz):
    fuzz(attempt, 300)


@pytest.mark.soak
def test_ten_thousand_mutants(attempt, fuzz):
    fuzz(attempt, 10_000, is_apart=True)
