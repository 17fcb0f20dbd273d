"""The paper's own setting: every value that it states, at its place in the ready sweeps."""

import re
from pathlib import Path

import pytest
import yaml

from evaluators.reasoning import Reasoning
from harness.contracts import Training
from harness.data.sources import Data, section_source as text_source
from harness.planning.plan import plan
from harness.planning.published import published_conditions
from harness.settings import Source

PAPER = Path(__file__).resolve().parents[3] / "sweeps" / "paper"
SMALLEST = {"models.0.id": "EleutherAI/gpt-neo-125m", "models.0.training.micro_batch": 64}
SMALLEST |= {"training.learning_rate": 1e-5, "training.global_batch": 64}
SMALLEST |= {"judges.similarity": "sentence-transformers/all-MiniLM-L6-v2"}
BOTH = SMALLEST | {
    "data.forget.source": "extraction_challenge", "data.forget.sequences": 15_000, "data.forget.sequence_tokens": 200,
    "data.retain.path": "vblagoje/cc_news", "data.retain.sequences": 10_000,
    "data.utility.name": "wikitext-103-raw-v1", "data.utility.prompts": 5_000, "data.utility.prompt_tokens": 32,
    "data.validation.name": "wikitext-103-raw-v1", "data.validation.split": "validation",
    "training.early_stop": 1.03, "memorized_model.epochs": 10,
    "methods.emso.k": 2, "methods.emso.epochs": [1, 2, 3, 4, 5, 6, 7],
    "evaluators.memorization.n": 3, "evaluators.generation.rep": 2, "evaluators.generation.div": 3,
    "judges.perplexity": "EleutherAI/gpt-j-6b", "judges.coherence": "princeton-nlp/sup-simcse-bert-base-uncased",
}  # fmt: skip
MAIN_TABLE = {
    "models.1.id": "EleutherAI/gpt-neo-1.3B", "models.1.training.micro_batch": 16,
    "models.2.id": "EleutherAI/gpt-neo-2.7B", "models.2.training.micro_batch": 8,
    "methods.task_arithmetic.gamma": 0.05, "methods.contrastive_decoding.gamma": 0.3,
    "methods.deliberate_imagination.gamma": 3,
}  # fmt: skip
EPOCHS = [1, 2, 3, 4, 5, 6, 7]
OF_EMSO = {path: value for path, value in BOTH.items() if not path.startswith(("data.retain", "memorized_model"))}
ABLATION = {
    "reproduces": "emso_ablation",
    "methods.select_nll": {"method": "emso", "loss": "nll", "epochs": EPOCHS, "k": 2},
    "methods.random_em": {"method": "emso", "selection": "random", "epochs": EPOCHS, "k": 2},
    "methods.without_direction": {"method": "emso", "selection": "saliency", "epochs": EPOCHS, "k": 2},
    "methods.full_em": {"method": "emso", "selection": "all", "epochs": EPOCHS},
}
NUM_BLOCKS = {"reproduces": "emso_num_blocks", "methods.emso.k": [1, 2, 3, 4]}
ABLATION_TA = {f"methods.{row}.gamma": [0.04, 0.05, 0.08, 0.1] for row in ("literal", "shrunk_weights", "task_vector")}
TRADEOFF = {
    "methods.task_arithmetic.gamma": [0.04, 0.05, 0.08, 0.1],
    "methods.contrastive_decoding.gamma": [0.5, 0.6, 0.7, 0.8],
    "methods.deliberate_imagination.gamma": [3, 5, 8, 10],
}


def value(content, path):
    for key in path.split("."):
        content = content[int(key) if key.isdigit() else key]
    return content


TUNED = {path: value for path, value in BOTH.items() if not path.startswith(("training.early_stop", "methods"))}
OF_TA = {path: value for path, value in BOTH.items() if not path.startswith(("methods", "data.ret"))}


ENTROPY_VERSUS_NLL = SMALLEST | {
    "data.forget.sequences": 20, "data.forget.not_memorized.sequences": 100,
    "data.forget.prefix_tokens": 50, "data.forget.sequence_tokens": 100,
    "methods.full_em.loss": "em", "methods.full_nll.loss": "nll", "methods.selected_em.k": 2,
}  # fmt: skip
STATED = {
    "main_table": BOTH | MAIN_TABLE | {"reproduces": "emso_main_table"},
    "tradeoff": BOTH | TRADEOFF,
    "tuned": TUNED,
    "ablation": OF_EMSO | ABLATION,
    "num_blocks": OF_EMSO | NUM_BLOCKS,
    "ablation_ta": OF_TA | ABLATION_TA,
    "entropy_versus_nll": ENTROPY_VERSUS_NLL,
}


@pytest.mark.parametrize(("name", "stated"), STATED.items(), ids=STATED)
def test_every_value_that_the_paper_states(name, stated):
    content = yaml.safe_load((PAPER / f"{name}.yaml").read_text())
    assert {path: value(content, path) for path in stated} == stated


def test_the_grid_of_rates_is_around_the_papers_and_nothing_else_differs():
    content = yaml.safe_load((PAPER / "learning_rate.yaml").read_text())
    kept = {path: it for path, it in TUNED.items() if path not in ("training.learning_rate", "memorized_model.epochs")}
    assert {path: value(content, path) for path in kept} == kept
    rates = [row["training"]["learning_rate"] for row in content["methods"].values()]
    assert all(it == rates[0] and 1e-5 in it for it in rates)
    assert content["training"]["early_stop"] is None


@pytest.mark.parametrize("name", ["main_table", "ablation", "num_blocks"])
def test_what_reproduces_a_table_is_measured_by_its_definition_and_on_its_forget_set(name):
    content = yaml.safe_load((PAPER / f"{name}.yaml").read_text())
    conditions = published_conditions()[content["reproduces"]]
    definitions = [content["evaluators"][evaluator]["definition"] for evaluator in ("memorization", "generation")]
    assert definitions == [conditions.definition] * 2
    assert [model["id"] for model in content["models"]] == list(conditions.models.values())
    for model in content["models"]:
        ours = Training(**{**content["training"], **model["training"]}).identity()
        stated = Training(**conditions.training).identity()
        differing = {setting for setting in stated if ours[setting] != stated[setting]}
        # In fp32 KL on 2.7B needs more than the paper's 80 GB, so verify does not compare what is trained of it.
        assert differing == ({"precision"} if model["id"].endswith(("1.3B", "2.7B")) else set()), model["id"]
    assert all(content["judges"][role] in known for role, known in conditions.judges.items())
    data = Data.model_validate(content["data"])
    for role in ("utility", "retain", "validation"):
        section = getattr(data, role)
        assert section is None or text_source(section, role) == Source(**getattr(conditions, role)), role


@pytest.mark.parametrize("name", [*STATED, "learning_rate"])
def test_offline_nothing_but_the_hubs_content_is_missing(name, world, hub_cache, tmp_path):
    """With a model and judges that are here, every other setting is accepted."""
    (tmp_path / "data_set").mkdir()
    (tmp_path / "data_set" / "README.md").write_text("rows elsewhere")
    for id, _ in Reasoning(tasks_path="hub").data_sets():
        hub_cache(id, tmp_path / "data_set", kind="dataset")
    judges = ", ".join(f"{role}: {world}/OTHER" for role in ("perplexity", "features", "similarity", "coherence"))
    model = f"[{{id: {world}/MODEL, training: {{micro_batch: 8}}, resources: {{cpus: 4, gpus: 0.25}}}}]"
    texts = "{source: miniature, sequences: 4}"
    data = f"{{forget: {texts}, retain: {texts}, utility: {{source: miniature, prompts: 4}}, validation: {texts}}}"
    found = plan(PAPER / f"{name}.yaml", [f"models={model}", f"judges={{{judges}}}", f"data={data}"])
    assert {(spec.cpus, spec.gpus) for spec in found.trials} == {(4, 0.25)}
    assert len(found.studies) == (5 if name == "tuned" else 0)
    about = r"(beside )?the paper('s (table [123]|figure [45])| has one rate)"
    assert re.fullmatch(rf".+ \({about}\)\?", found.question)
