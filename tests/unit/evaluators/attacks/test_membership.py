"""Membership inference: each score against one token at a time, the AUCs against scikit-learn's, and the blind one."""

import math
import statistics
import zlib

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from evaluators.membership import Membership, blind_auc_items, standardized, text_scores
from tests.unit.tasks import evaluation_task

ATTACKS = ("membership_min_k", "membership_loss", "membership_zlib", "membership_min_k_plus")


@pytest.fixture(scope="module")
def model(make_model):
    return make_model(seed=4, vocabulary=256)


def drawn_rows(seed, count=40, tokens=256, length=30):
    """Texts of which the most frequent tokens are those of the least ids."""
    generator = np.random.default_rng(seed)
    shares = 1 / np.arange(1, tokens + 1)
    return generator.choice(tokens, (count, length), p=shares / shares.sum()).tolist()


@pytest.fixture
def make_task(tokenizer, make_sequences):
    def make(forget, holdout, retrained=None):
        forget, holdout = make_sequences(forget, digest="1" * 16), make_sequences(holdout, digest="2" * 16)
        return evaluation_task(forget, holdout=holdout, tokenizer=tokenizer, load_retrained=lambda: retrained)

    return make


@torch.inference_mode()
def scores_one_by_one(model, row, tokenizer):
    """The four scores in plain Python, from the probabilities after each beginning of the text."""
    log_ps, z_scores = [], []
    for place in range(1, len(row)):
        log_p = model(torch.tensor([row[:place]])).logits[0, -1].double().log_softmax(-1).tolist()
        mean = sum(math.exp(value) * value for value in log_p)
        variance = sum(math.exp(value) * value**2 for value in log_p) - mean**2
        log_ps.append(log_p[row[place]])
        z_scores.append((log_p[row[place]] - mean) / math.sqrt(variance))
    lowest = max(1, int(0.2 * len(log_ps)))
    return {
        "loss": -statistics.mean(log_ps),
        "zlib": -sum(log_ps) / len(zlib.compress(tokenizer.decode(row).encode())),
        "min_k": statistics.mean(sorted(log_ps)[:lowest]),
        "min_k_plus": statistics.mean(sorted(z_scores)[:lowest]),
    }


def test_each_score_is_what_one_token_at_a_time_gives(model, tokenizer, make_sequences):
    rows = [row[:length] for row, length in zip(drawn_rows(0, 5), (30, 12, 7, 3, 2), strict=True)]
    ours = text_scores(model, make_sequences(rows), tokenizer)
    for place, row in enumerate(rows):
        expected = scores_one_by_one(model, row, tokenizer)
        assert {name: values[place] for name, values in ours.items()} == pytest.approx(expected, rel=1e-4)


def test_a_sure_model_divides_by_nothing_and_what_cannot_come_adds_nothing():
    sure = torch.tensor([[0.0, -1e4, -1e4], [0.0, -math.inf, 0.0]])
    [certain, even] = standardized(sure, torch.tensor([0, 2])).tolist()
    assert certain == 0.0
    assert even == pytest.approx(0.0, abs=1e-3)
    assert standardized(sure, torch.tensor([1, 1])).tolist() == [pytest.approx(-1e7), -math.inf]


def test_the_aucs_are_scikit_learns_and_the_mean_of_their_items(model, make_model, make_task):
    rows, retrained = drawn_rows(2), make_model(seed=9, vocabulary=256)
    task = make_task(rows[:15], rows[15:], retrained)
    evaluation = Membership(reference=True).evaluate(model, task)
    of_members, of_others = (text_scores(model, texts, task.tokenizer) for texts in (task.forget, task.holdout))
    references = [text_scores(retrained, texts, task.tokenizer)["loss"] for texts in (task.forget, task.holdout)]
    of_members["reference"] = of_members["loss"] - references[0]
    of_others["reference"] = of_others["loss"] - references[1]
    is_member = [1] * 15 + [0] * 25
    for name, sign in (("loss", -1), ("zlib", -1), ("min_k", 1), ("min_k_plus", 1), ("reference", -1)):
        expected = roc_auc_score(is_member, sign * np.concatenate([of_members[name], of_others[name]]))
        assert evaluation.numbers[f"membership_{name}"] == pytest.approx(expected, abs=1e-9)
        assert evaluation.per_item[f"membership_{name}"].mean() == pytest.approx(expected, abs=1e-9)
    assert set(evaluation.numbers) == {metric.name for metric in Membership(reference=True).metrics}


def test_sets_of_two_kinds_void_the_aucs_and_that_is_said(model, make_task):
    rows = drawn_rows(4)
    other_kind = [[255 - token for token in row] for row in rows[20:]]
    of_two_kinds = Membership().evaluate(model, make_task(rows[:20], other_kind))
    assert of_two_kinds.numbers["blind_auc"] == 1.0
    [warning] = of_two_kinds.notes["warnings"]
    assert warning.startswith("the AUCs of membership are void")
    assert "(AUC 1.00, with 95 % confidence above 1.00)" in warning
    assert Membership().evaluate(model, make_task(rows[:20], rows[20:])).notes["warnings"] == []


def test_a_model_whose_numbers_are_none_is_not_known_and_that_is_said(make_model, make_task):
    broken, rows = make_model(seed=1, vocabulary=256), drawn_rows(5, 12)
    with torch.no_grad():
        broken.lm_head.weight[7] = math.nan
    evaluation = Membership().evaluate(broken, make_task(rows[:6], rows[6:]))
    assert all(math.isnan(evaluation.numbers[name]) for name in ATTACKS)
    assert not math.isnan(evaluation.numbers["blind_auc"])
    assert "12 of 12 texts take no part" in evaluation.notes["warnings"][-1]


# The blind attack.


def test_the_width_of_its_interval_is_that_of_texts_drawn_again():
    """Values as of a single classifier would be too near to each other: five share what they were shown."""
    aucs, errors = [], []
    for seed in range(60):
        rows = drawn_rows(seed, 64, length=60)
        items = blind_auc_items(rows[:32], rows[32:], seed=seed)
        aucs.append(items.mean())
        errors.append(items.std(ddof=1) / math.sqrt(len(items)))
    assert 0.75 < np.std(aucs) / np.mean(errors) < 1.25


def test_copies_of_a_text_stay_together_so_that_none_is_recognised_by_another():
    copied = [row for row in drawn_rows(11, 24) for _ in range(4)]
    together = blind_auc_items(copied[:48], copied[48:], seed=0).mean()
    apart = blind_auc_items(copied[:48], copied[48:], range(96), seed=0).mean()
    assert together < 0.75
    assert apart > 0.95, "as it would be if copies did not stay together"


def test_too_few_different_texts_show_nothing_and_that_is_said(model, make_task):
    rows = drawn_rows(13, 6)
    assert np.isnan(blind_auc_items([rows[0]] * 5, rows[1:], seed=0)).all()
    evaluation = Membership().evaluate(model, make_task([rows[0]] * 5, rows[1:]))
    assert math.isnan(evaluation.numbers["blind_auc"])
    [warning] = evaluation.notes["warnings"]
    assert "is not known: that takes two different texts of each" in warning
