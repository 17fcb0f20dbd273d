"""The check of a GPU, where a CPU and tiny models stand in for one."""

import pytest
import torch
from transformers import GPTNeoConfig, LlamaConfig

from benchmarks.gpu_check import __main__ as gpu_check
from benchmarks.gpu_check.card import Card
from benchmarks.gpu_check.engine_part import check_alike, distance
from benchmarks.gpu_check.memory_part import compared
from benchmarks.gpu_check.page import file_name, page
from benchmarks.gpu_check.parts import Case, Part, WrongError, run_parts
from benchmarks.gpu_check.precision_part import changed_choices, changed_continuations
from benchmarks.gpu_check.workload import Bench, RandomTask, Shape, Workload
from harness.plugins import METHODS
from harness.toolkit.decoding.greedy import greedy_continuations

WORKLOAD = Workload(
    sequences=4, tokens=12, prefix_tokens=4, global_batch=2, micro_batch=1, memorizing_passes=2, prefix_stride=4
)


def stand_in(memory=1 << 30):
    return Card(torch.device("cpu"), "A CPU that stands in", memory)


def neo(*methods):
    def configure():
        kinds = [[["global", "local"], 1]]
        return GPTNeoConfig(
            vocab_size=300, hidden_size=16, num_layers=2, num_heads=2, attention_types=kinds,
            max_position_embeddings=32, bos_token_id=0, eos_token_id=0,
        )  # fmt: skip

    return Shape("tiny-neo", configure, methods)


def llama(*methods):
    def configure():
        return LlamaConfig(
            vocab_size=300, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=32,
        )  # fmt: skip

    return Shape("tiny-llama", configure, methods)


def tables(text):
    """Return a page's tables, by heading: a list of rows, each a dictionary by column."""
    found = {}
    for section in text.split("\n## ")[1:]:
        lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
        found[section.splitlines()[0]] = [dict(zip(lines[0], cells, strict=True)) for cells in lines[2:]]
    return found


def test_the_page_says_what_came_out(tmp_path, capsys):
    shapes = (neo(("gradient_ascent", "fp32"), ("task_arithmetic", "fp32"), ("gradient_ascent", "bf16")),)
    assert gpu_check.check(stand_in(), shapes, WORKLOAD, tmp_path, minutes=20) == 0
    text = (tmp_path / "gpu_check_a_cpu_that_stands_in.md").read_text()
    assert "Nothing failed." in text
    assert "Skipped" not in text
    for fact in ("- seed: 0", f"- torch: {torch.__version__}", "- deepspeed: ", "global batch 2, micro-batch 1"):
        assert fact in text
    memory, precision, speed, zero = tables(text).values()
    assert [row["what"] for row in memory] == [
        "gradient_ascent",
        "task_arithmetic",
        "gradient_ascent",
        "greedy continuations",
    ]
    assert [row["within 5 %"] for row in memory[:3]] == ["yes"] * 3
    assert [row["weights"] for row in precision] == ["trained", "random"]
    assert [(row["what"], row["precision"]) for row in speed] == [
        (what, precision) for precision in ("fp32", "bf16") for what in ("training", "reading", "stepping")
    ]
    assert all(float(row["tokens a second"].replace(",", "")) > 0 for row in speed)
    assert [row["engine"] for row in zero] == ["deepspeed ZeRO-2", "deepspeed ZeRO-3"]
    assert capsys.readouterr().out.rstrip().endswith("gpu_check_a_cpu_that_stands_in.md.")


def test_without_a_gpu_one_sentence_says_what_is_needed(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["gpu_check", "--folder", str(tmp_path)])
    assert gpu_check.main() == 2
    assert capsys.readouterr().err == f"{gpu_check.NO_GPU}\n"
    assert gpu_check.NO_GPU.count(".") == 1
    assert "24 GB" in gpu_check.NO_GPU
    assert not list(tmp_path.iterdir())


def test_a_method_that_raises_leaves_its_sentence_and_the_others_run(tmp_path, monkeypatch):
    def wrong(self, task):
        raise ValueError("it asks for what random texts have not.")

    monkeypatch.setattr(METHODS.load("gradient_ascent"), "erase", wrong)
    shapes = (llama(("gradient_ascent", "fp32")),)
    bench = Bench(stand_in(), WORKLOAD, tmp_path)
    [result] = run_parts([gpu_check.memory_part(bench, shapes)], bench.card, 20, lambda line: None)
    assert [row[0] for row in result.rows] == ["greedy continuations"]
    [failure] = result.failures
    assert failure.startswith("gradient_ascent on tiny-llama, fp32: ValueError: ")
    assert "1 failed" in page("a card", {}, [result])
    assert f"- {failure}" in page("a card", {}, [result])


def test_what_raises_after_a_row_keeps_it_and_fails_the_check(tmp_path, monkeypatch):
    def wrong():
        yield ("measured",)
        raise WrongError("it is nan.")

    part = Part("A question", "About it.", ("column",), (Case("wrong", wrong), Case("right", lambda: [("fine",)])))
    monkeypatch.setattr(gpu_check, "memory_part", lambda bench, shapes: part)
    for name in ("precision_part", "speed_part", "engine_part"):
        monkeypatch.setattr(gpu_check, name, lambda bench, shapes: Part("None", "", ("column",), ()))
    assert gpu_check.check(stand_in(), (), WORKLOAD, tmp_path, minutes=20) == 1
    text = (tmp_path / "gpu_check_a_cpu_that_stands_in.md").read_text()
    assert tables(text)["A question"] == [{"column": "measured"}, {"column": "fine"}]
    assert "\nFailed:\n\n- wrong: it is nan.\n" in text


def test_what_does_not_fit_is_skipped_with_what_it_needs(tmp_path):
    shapes = (neo(("gradient_ascent", "fp32")),)
    assert gpu_check.check(stand_in(memory=10_000), shapes, WORKLOAD, tmp_path, minutes=20) == 0
    text = (tmp_path / "gpu_check_a_cpu_that_stands_in.md").read_text()
    assert tables(text) == {heading: [] for heading in tables(text)}
    assert text.count("Nothing was measured.") == 4
    skipped = [line for line in text.splitlines() if line.startswith("- gradient_ascent on tiny-neo, fp32: ")]
    assert len(skipped) == 1
    assert skipped[0].endswith("MB, and a process on this card has 0.0 MB.")


def test_when_its_time_is_over_nothing_further_begins():
    begun = []
    part = Part("A question", "", ("column",), (Case("late", lambda: begun.append("late") or []),))
    [result] = run_parts([part], stand_in(), 0, lambda line: None)
    assert (begun, result.skipped) == ([], ["late: 0 minutes were over."])
    [result] = run_parts([part], stand_in(), 1, lambda line: None)
    assert (begun, result.skipped) == (["late"], [])


def test_changed_choices_are_counted(make_model, make_sequences):
    texts = make_sequences([[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]])
    prefixes = range(1, 6, 2)
    one, other = (greedy_continuations(make_model(seed), texts, [prefixes] * 2) for seed in (1, 2))
    assert changed_choices(one, one) == "0 of 10 (0.00 %)"
    assert changed_continuations(one, one, prefixes) == "0 of 6 (0.00 %)"
    differ = sum(int(a != b) for a, b in zip(one.predicted_NT.flatten(), other.predicted_NT.flatten(), strict=True))
    assert changed_choices(one, other) == f"{differ} of 10 ({10 * differ:.2f} %)"
    assert differ > 5
    assert changed_continuations(one, other, prefixes) == "6 of 6 (100.00 %)"


def test_memory_is_compared_with_sizing():
    assert compared(1_049_000_000, 1_000_000_000) == ("1.0 GB", "1.0 GB", "+4.9 %", "yes")
    assert compared(94_000_000, 100_000_000) == ("94.0 MB", "100.0 MB", "-6.0 %", "no")


def test_engines_that_train_apart_are_wrong():
    here, there = {"a": torch.tensor([0.0, 3.0])}, {"a": torch.tensor([4.0, 0.0])}
    assert (distance(here, here), distance(here, there)) == (0.0, 5.0)
    check_alike(-5.0, -5.0001, 0.04)
    with pytest.raises(WrongError, match=r"mean loss is -5\.01, and the plain engine's -5"):
        check_alike(-5.0, -5.01, 0.0)
    with pytest.raises(WrongError, match="6 % of the way"):
        check_alike(-5.0, -5.0, 0.06)
    with pytest.raises(WrongError):
        check_alike(-5.0, -5.0, float("nan"))


def test_random_models_and_texts_are_the_same_each_time(tmp_path):
    bench, shape = Bench(stand_in(), WORKLOAD, tmp_path), neo()
    first, again, other = (bench.model(shape, seed) for seed in (0, 0, 1))
    embeddings = [model.get_input_embeddings().weight for model in (first, again, other)]
    assert torch.equal(embeddings[0], embeddings[1])
    assert not torch.equal(embeddings[0], embeddings[2])
    task = RandomTask(bench, shape, bench.spec(shape, "gradient_difference", WORKLOAD.training()))
    assert not torch.equal(task.forget.tokens_NT, task.retain.tokens_NT)
    assert RandomTask(bench, shape, bench.spec(shape, "emso", WORKLOAD.training())).retain is None


def test_a_page_is_named_for_its_card():
    assert file_name("NVIDIA GeForce RTX 4090") == "gpu_check_nvidia_geforce_rtx_4090.md"
