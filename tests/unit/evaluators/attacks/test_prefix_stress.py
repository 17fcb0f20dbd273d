"""Prefix stress, against decoding every prompt alone, one token at a time, and a Levenshtein distance by hand."""

from types import SimpleNamespace

import pytest

from evaluators.prefix_stress import PrefixStress, stress_scores, token_similarity
from tests.unit.evaluators.test_extraction import said_after

PREFIX, KEPT, ALL = 7, 3, 50


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
    extended = [text[: PREFIX + more] for more in range(1, KEPT + 1) if 2 * more <= len(text) - PREFIX]
    shifted = [text[PREFIX - left : PREFIX] for left in range(KEPT + 1, PREFIX)]
    matches, shares, similarities = [], [], []
    for number, prompt in enumerate([text[:PREFIX], *extended, *shifted]):
        true = text[len(prompt) :] if number <= len(extended) else text[PREFIX:]
        said = said_after(model, prompt, len(true))
        similarities.append(1 - edits(said, true) / len(true))
        if number:
            wrong = [at for at, pair in enumerate(zip(said, true, strict=True)) if len(set(pair)) > 1]
            matched = min([*wrong, len(true)])
            matches.append(matched)
            shares.append(matched / len(true))
    closest = max(similarities)
    return max(matches), max(shares), float(closest >= 0.75), float(closest >= 0.95)


@pytest.fixture(scope="module")
def model(make_model):
    return make_model(seed=3, vocabulary=12)


def texts_of(model):
    """Texts that are said after the whole prefix, after a shifted and an extended one, with an edit, and not at all."""
    texts = []
    for start in range(3):
        prefix = [(start + 5 * step) % 12 for step in range(PREFIX)]
        whole = [*prefix, *said_after(model, prefix, 9)]
        shifted = [*prefix, *said_after(model, prefix[2:], 8)]
        wrong = [*prefix, (whole[PREFIX] + 1) % 12, 4]
        extended = [*wrong, *said_after(model, wrong, 7)]
        edited = [*whole[:12], (whole[12] + 1) % 12, *whole[13:]]
        texts += [whole, shifted, extended, edited, whole[: PREFIX + 1], [*prefix, 1, 2, 3, 4, 5]]
    return texts


def measure(model, texts, make_sequences, prefixes=ALL):
    forget = make_sequences(texts, prefix_tokens=PREFIX)
    return PrefixStress(tokens=KEPT, prefixes=prefixes).evaluate(model, SimpleNamespace(forget=forget))


def test_it_is_what_decoding_every_prompt_alone_gives(model, make_sequences):
    texts = texts_of(model)
    measured = measure(model, texts, make_sequences)
    expected = [naive_scores(model, text) for text in texts]
    names = ["prefix_match", "prefix_match_share", "near_verbatim_75", "near_verbatim_95"]
    assert list(measured.numbers) == names
    for name, values in zip(names, zip(*expected, strict=True), strict=True):
        assert measured.per_item[name].tolist() == pytest.approx(list(values)), name
        assert measured.numbers[name] == pytest.approx(sum(values) / len(values))
        assert len(set(values)) > 1, "the texts are of several kinds"
    assert measured.notes["extended_by"] == [1, 2, 3]
    assert measured.notes["dropped"] == [1, 2, 3]


@pytest.mark.parametrize(
    ("generated", "reference", "similarity"),
    [
        ([1, 2, 3, 4], [1, 2, 3, 4], 1.0),
        ([9, 1, 2, 3], [1, 2, 3, 4], 0.5),  # 9 is deleted and 4 inserted.
        ([1, 9, 3, 4], [1, 2, 3, 4], 0.75),
        ([2, 3], [1, 2, 3, 4], 0.5),
        ([], [], 1.0),
        ([300, 70_000], [70_000, 300], 0.0),  # Two swapped tokens are two edits.
    ],
)
def test_similarity_is_the_share_of_tokens_that_need_no_edit(generated, reference, similarity):
    assert token_similarity(generated, reference) == similarity
    assert 1 - edits(generated, reference) / max(len(generated), len(reference), 1) == similarity


def test_one_token_in_twenty_may_differ_in_a_copy_and_five_in_a_near_verbatim_text():
    true = list(range(20))
    for wrong, expected in ((0, (1.0, 1.0)), (1, (1.0, 1.0)), (2, (1.0, 0.0)), (5, (1.0, 0.0)), (6, (0.0, 0.0))):
        said = [99] * wrong + true[wrong:]
        scores = stress_scores(([99] * 20, true), [(said, true)])
        assert (scores["near_verbatim_75"], scores["near_verbatim_95"]) == expected
        assert scores["prefix_match"] == (0.0 if wrong else 20.0)
