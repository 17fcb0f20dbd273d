"""Extraction strength and long recitations, against generating from every prefix, one token at a time."""

import math
from functools import cache
from types import SimpleNamespace

import pytest

from evaluators.extraction import Extraction
from evaluators.prefix_stress import PrefixStress, stress_scores, token_similarity
from tests.unit.tasks import said_after

PREFIX, LENGTH = 3, 12


def strength_by_generating(model, text):
    continuation = text[PREFIX:]
    for given in range(len(continuation)):
        if said_after(model, text[: PREFIX + given], len(continuation) - given) == continuation[given:]:
            return 1 - given / len(continuation)
    return 0.0


@pytest.fixture(scope="module")
def model(make_model):
    return make_model(seed=3)


@pytest.fixture(scope="module")
def texts(model):
    """Texts that the model says wholly, after one, four and all tokens of the continuation, and a short one."""
    texts = []
    for start, wrong in ((1, None), (2, 0), (3, 3), (4, LENGTH - PREFIX - 1)):
        text = [start, start + 1, start + 2]
        said = said_after(model, text, LENGTH - PREFIX)
        if wrong is not None:
            head = [*text, *said[:wrong], (said[wrong] + 1) % 60]
            said = [*head[PREFIX:], *said_after(model, head, LENGTH - len(head))]
        texts.append([*text, *said])
    return [*texts, texts[0][:6]]


def test_it_is_what_generating_from_every_prefix_gives(model, texts, make_sequences):
    found = Extraction(tokens=4).evaluate(model, SimpleNamespace(forget=make_sequences(texts, prefix_tokens=PREFIX)))
    expected = [strength_by_generating(model, text) for text in texts]
    assert expected == pytest.approx([1.0, 8 / 9, 5 / 9, 0.0, 1.0]), "the texts are of every kind"
    assert found.per_item["extraction_strength"] == pytest.approx(expected)
    recited = [said_after(model, text[:PREFIX], 4) == text[PREFIX : PREFIX + 4] for text in texts[:4]]
    assert recited == [True, False, False, True]
    assert found.per_item["recited_4"] == pytest.approx([*map(float, recited), math.nan], nan_ok=True)
    assert found.numbers == pytest.approx({"extraction_strength": sum(expected) / 5, "recited_4": 0.5})


def test_continuations_that_are_all_too_short_are_no_zero(model, texts, make_sequences):
    found = Extraction(tokens=50).evaluate(model, SimpleNamespace(forget=make_sequences(texts, prefix_tokens=PREFIX)))
    assert math.isnan(found.numbers["recited_50"])
    assert [metric.name for metric in Extraction(tokens=7).metrics] == ["extraction_strength", "recited_7"]


# Prefix stress, against decoding every prompt alone, one token at a time, and a Levenshtein distance by hand.


LONG_PREFIX, KEPT, ALL = 7, 3, 50


@cache
def edits(ours, theirs):
    """Return the fewest tokens to insert, delete or replace, by the definition."""
    if not ours or not theirs:
        return len(ours) + len(theirs)
    rest = edits(ours[1:], theirs[1:])
    if ours[0] == theirs[0]:
        return rest
    return 1 + min(rest, edits(ours[1:], theirs), edits(ours, theirs[1:]))


def naive_scores(model, text):
    """Return the metrics of one text from all the prompts that its definition has, each decoded alone."""
    extended = [text[: LONG_PREFIX + more] for more in range(1, KEPT + 1) if 2 * more <= len(text) - LONG_PREFIX]
    shifted = [text[LONG_PREFIX - left : LONG_PREFIX] for left in range(KEPT + 1, LONG_PREFIX)]
    matches, shares, similarities = [], [], []
    for number, prompt in enumerate([text[:LONG_PREFIX], *extended, *shifted]):
        true = text[len(prompt) :] if number <= len(extended) else text[LONG_PREFIX:]
        said = said_after(model, prompt, len(true))
        similarities.append(1 - edits(tuple(said), tuple(true)) / len(true))
        if number:
            wrong = [at for at, pair in enumerate(zip(said, true, strict=True)) if len(set(pair)) > 1]
            matched = min([*wrong, len(true)])
            matches.append(matched)
            shares.append(matched / len(true))
    closest = max(similarities)
    return max(matches), max(shares), float(closest >= 0.75), float(closest >= 0.95)


@pytest.fixture(scope="module")
def stressed(make_model):
    return make_model(seed=3, vocabulary=12)


def texts_of(model):
    """Texts that are said after the whole prefix, after a shifted and an extended one, with an edit, and not at all."""
    texts = []
    for start in range(3):
        prefix = [(start + 5 * step) % 12 for step in range(LONG_PREFIX)]
        whole = [*prefix, *said_after(model, prefix, 9)]
        shifted = [*prefix, *said_after(model, prefix[2:], 8)]
        wrong = [*prefix, (whole[LONG_PREFIX] + 1) % 12, 4]
        extended = [*wrong, *said_after(model, wrong, 7)]
        edited = [*whole[:12], (whole[12] + 1) % 12, *whole[13:]]
        texts += [whole, shifted, extended, edited, whole[: LONG_PREFIX + 1], [*prefix, 1, 2, 3, 4, 5]]
    return texts


def measure(model, texts, make_sequences, prefixes=ALL, before=None, offset=2):
    others = before and make_sequences(before, prefix_tokens=1)
    task = SimpleNamespace(forget=make_sequences(texts, prefix_tokens=LONG_PREFIX), validation=others)
    return PrefixStress(tokens=KEPT, prefixes=prefixes, offset=offset).evaluate(model, task)


def test_behind_another_text_it_is_what_decoding_from_there_gives(stressed, make_sequences):
    texts, before = texts_of(stressed)[:5], [[9], [8, 4, 6], [2, 3]]
    for number, other in enumerate(([8, 4], [2, 3], [8, 4])):  # What is too short stands before none.
        texts[number] = [*texts[number][:LONG_PREFIX], *said_after(stressed, [*other, *texts[number][:LONG_PREFIX]], 4)]
        texts[number][-1 - number] = (texts[number][-1 - number] + (number > 0)) % 12
    found = measure(stressed, texts[:3], make_sequences, before=before)
    assert found.per_item["deeper_match_share"] == pytest.approx([1.0, 0.5, 0.25])
    for unknown in ({"before": None}, {"before": [[9]]}, {"before": before, "offset": 3000}):
        values = measure(stressed, texts[:3], make_sequences, **unknown).per_item["deeper_match_share"]
        assert all(map(math.isnan, values)), unknown


def test_it_is_what_decoding_every_prompt_alone_gives(stressed, make_sequences):
    texts = texts_of(stressed)
    measured = measure(stressed, texts, make_sequences)
    expected = [naive_scores(stressed, text) for text in texts]
    names = ["prefix_match", "prefix_match_share", "near_verbatim_75", "near_verbatim_95"]
    assert list(measured.numbers) == [*names, "deeper_match_share"]
    for name, values in zip(names, zip(*expected, strict=True), strict=True):
        assert measured.per_item[name].tolist() == pytest.approx(list(values)), name
        assert measured.numbers[name] == pytest.approx(sum(values) / len(values))
        assert len(set(values)) > 1, "the texts are of several kinds"
    assert measured.notes["extended_by"] == [1, 2, 3]
    assert measured.notes["dropped"] == [1, 2, 3]


SIMILAR = [
    ([1, 2, 3, 4], [1, 2, 3, 4], 1.0),
    ([9, 1, 2, 3], [1, 2, 3, 4], 0.5),  # 9 is deleted and 4 inserted.
    ([1, 9, 3, 4], [1, 2, 3, 4], 0.75),
    ([2, 3], [1, 2, 3, 4], 0.5),
    ([], [], 1.0),
    ([300, 70_000], [70_000, 300], 0.0),  # Two swapped tokens are two edits.
]


@pytest.mark.parametrize(("generated", "reference", "similarity"), SIMILAR)
def test_similarity_is_the_share_of_tokens_that_need_no_edit(generated, reference, similarity):
    assert token_similarity(generated, reference) == similarity
    assert 1 - edits(tuple(generated), tuple(reference)) / max(len(generated), len(reference), 1) == similarity


def test_one_token_in_twenty_may_differ_in_a_copy_and_five_in_a_near_verbatim_text():
    true = list(range(20))
    for wrong, expected in ((0, (1.0, 1.0)), (1, (1.0, 1.0)), (2, (1.0, 0.0)), (5, (1.0, 0.0)), (6, (0.0, 0.0))):
        scores = stress_scores(([99] * 20, true), [([99] * wrong + true[wrong:], true)])
        assert (scores["near_verbatim_75"], scores["near_verbatim_95"]) == expected
        assert scores["prefix_match"] == (0.0 if wrong else 20.0)
