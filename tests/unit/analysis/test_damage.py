"""Over-erased points: found where the damage is beyond noise, and no oftener than chance allows where there is none."""

import numpy as np
import pandas as pd

from evaluators.memorization import Memorization
from harness.analysis.damage import over_erased, unmeasured_damage
from harness.analysis.evidence import Evidence
from harness.records.items import MetricItems

INFO = {metric.name: metric for metric in Memorization().metrics}
TEXTS = {"sequence": 48, "holdout": 32, "validation": 64}
LEVEL = 0.829


def items(name, values_N):
    ids = tuple(f"{INFO[name].items} {place}" for place in range(len(values_N)))
    return MetricItems(ids, ids, np.asarray(values_N, float), np.full(len(ids), 50.0))


def accuracies(generator, mean, texts):
    """Draw how many of 50 tokens a model has right in each text; texts differ in how hard they are."""
    return generator.binomial(50, generator.beta(mean * 20, (1 - mean) * 20, texts)) / 50


def simulated(ma, unseen_rise=0.0, general_rise=0.0, models=1):
    """Return the flags of models that were erased down to an MA, with rises of both NLLs, next to their originals."""
    generator = np.random.default_rng(1)
    rows, by_point = [], {}
    for model in range(models):
        unseen_N, general_N = generator.normal(3, 0.5, TEXTS["holdout"]), generator.normal(2, 0.5, TEXTS["validation"])
        by_point[f"original {model}"] = {
            "ma": items("ma", np.ones(TEXTS["sequence"])),
            "unseen_ma": items("unseen_ma", accuracies(generator, LEVEL, TEXTS["holdout"])),
            "unseen_nll": items("unseen_nll", unseen_N),
            "general_nll": items("general_nll", general_N),
        }
        by_point[f"gd {model}"] = {
            "ma": items("ma", accuracies(generator, ma, TEXTS["sequence"])),
            "unseen_ma": items("unseen_ma", np.zeros(TEXTS["holdout"])),
            "unseen_nll": items("unseen_nll", unseen_N + generator.normal(unseen_rise, 0.2, len(unseen_N))),
            "general_nll": items("general_nll", general_N + generator.normal(general_rise, 0.1, len(general_N))),
        }
        rows += [(str(model), method, f"{method} {model}") for method in ("original", "gd")]
    table = pd.DataFrame(rows, columns=["model", "method", "point_id"]).assign(seed=0, definition="exact")
    return table, Evidence(by_point)


def flags_of(table, evidence, info=INFO):
    return table.assign(over_erased=over_erased(table, info, evidence)).query("method == 'gd'")["over_erased"].tolist()


def test_what_was_erased_to_the_unseen_level_is_flagged_no_oftener_than_chance_allows():
    flags = flags_of(*simulated(LEVEL, unseen_rise=0.3, general_rise=0.3, models=400))
    assert set(flags) <= {True, False}
    assert np.mean(flags) <= 0.05


def test_forget_texts_below_the_unseen_level_are_flagged():
    table, evidence = simulated(0.02)
    assert over_erased(table, INFO, evidence) == [False, True], "the original is not"
    assert flags_of(table.assign(definition="table"), evidence) == [False], "that MA is of other positions"


def test_a_point_at_the_retrained_models_level_is_not_flagged_though_unseen_texts_have_more():
    table, evidence = simulated(0.4)
    evidence.by_point["twin"] = {"ma": items("ma", accuracies(np.random.default_rng(2), 0.4, 48))}
    twin = table.iloc[[0]].assign(method="retrained", point_id="twin")
    assert (flags_of(table, evidence), flags_of(pd.concat([table, twin]), evidence)) == ([True], [False])
    evidence.by_point["twin"] = {"ma": items("ma", accuracies(np.random.default_rng(2), 0.8, 48))}
    assert flags_of(pd.concat([table, twin]), evidence) == [True], "it lies below both"
    evidence.by_point["twin"] = {"ma": items("ma", evidence.items("gd 0", INFO["ma"]).values_N + 0.02)}
    assert flags_of(pd.concat([table, twin]), evidence) == [True], "by a little in every text, which pairs show"


def test_unseen_texts_that_lose_more_than_general_ones_are_flagged():
    assert flags_of(*simulated(LEVEL + 0.1, unseen_rise=0.4, general_rise=0.1)) == [True]
    assert flags_of(*simulated(LEVEL + 0.1, unseen_rise=0.15, general_rise=0.1)) == [False], "by less than a tenth"
    assert flags_of(*simulated(LEVEL + 0.1, unseen_rise=0.1, general_rise=0.4)) == [False]


def test_what_was_not_measured_has_no_flag():
    table, evidence = simulated(0.02)
    assert flags_of(table, Evidence()) == [None]
    assert flags_of(table, evidence, {"ma": INFO["ma"]}) == [None]
    assert flags_of(table.query("method == 'gd'"), evidence) == [None], "there is no original"
    assert flags_of(table.assign(seed=[0, 1]), evidence) == [True], "another seed's original will do"
    assert over_erased(table.assign(method=["original", "retrained"]), INFO, evidence) == [False, False]
    assert over_erased(table.assign(method=["original", "holdout"]), INFO, evidence) == [False, None]


def test_one_sentence_says_which_models_lack_it():
    flags = [None, None, None, True]
    table = pd.DataFrame({"model": list("aabb"), "method": ["original", "gd"] * 2, "over_erased": flags})
    assert unmeasured_damage(table) == "Damage to similar texts was not measured for a: give data.holdout."
    assert unmeasured_damage(table[:2]) == "Damage to similar texts was not measured: give data.holdout."
    assert unmeasured_damage(table[2:]) == unmeasured_damage(table[:1]) == ""
