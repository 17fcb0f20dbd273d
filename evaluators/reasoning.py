"""Reasoning."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import json
import logging
import math
import random
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
import yaml

from evaluators.metrics import refuse_repeats
from harness.contracts import Evaluation, EvaluationTask, Evaluator, Json, Metric, Model, PositiveCount, Tokenizer
from harness.errors import DataError, LetheError, TrialError
from harness.toolkit import data_set_commit, data_set_folder, embedded_task, token_lists

if TYPE_CHECKING:
    from lm_eval.api.model import LM
    from lm_eval.api.task import Task

TaskName = Literal["piqa", "arc_easy", "copa", "pubmedqa", "winogrande", "hellaswag"]
TITLES = dict(zip(get_args(TaskName), ("PIQA", "ARC-Easy", "COPA", "PubMedQA", "WinoGrande", "HellaSwag"), strict=True))
NORMALIZED = ("piqa", "arc_easy", "hellaswag")
"""Tasks that lm-eval also scores by log-likelihood a byte."""
FOLDER = Path(__file__).parent / "reasoning_tasks"
BATCH = 8
"""Choices in one forward pass."""
Score = Callable[..., list[tuple[float, bool]]]


@dataclass(frozen=True, kw_only=True)
class Reasoning(Evaluator):
    """The accuracy of zero-shot multiple choice on PIQA, ARC-Easy, COPA, PubMedQA, WinoGrande and HellaSwag.

    lm-eval scores each choice by its log-likelihood; chance is 0.5, 0.25, 0.5, 0.33, 0.5, 0.25. The mean is NaN if a
    task could not be measured.
    """

    version = 2

    tasks: tuple[TaskName, ...] = get_args(TaskName)
    tasks_path: str = "miniature"
    """`miniature`: small tasks of the embedded corpus. `hub`: the published data sets. Else a folder of such files."""
    limit: PositiveCount | None = None
    """Rows of each task, the first ones; null: all."""

    def __post_init__(self) -> None:
        refuse_repeats("tasks", self.tasks)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        source = "EMSO paper, appendix E; lm-evaluation-harness 0.4"
        share = partial(Metric, better="higher", unit="fraction", low=0.0, high=1.0)
        accuracy = partial(share, group="reasoning", source=source)
        shown = partial(accuracy, ranked=False)
        shares, norms, errors = [], [], []
        titles = TITLES | {"reasoning": "Mean accuracy"}
        for name in (*self.tasks, "reasoning"):
            title = titles[name]
            shares.append(accuracy(name=name, title=title, items="question"))
            errors.append(shown(name=f"{name}_stderr", title=f"{title}, standard error", better="lower"))
            if name in NORMALIZED:
                norms.append(shown(name=f"{name}_norm", title=f"{title} (normalised)", items="question"))
        return (*shares, *norms, *errors)

    def inputs(self) -> Mapping[str, str]:
        """Return the digest of each task's local files, or the source of its data.

        Raises:
            DataError: A file is missing or has a row without a label; it names all such tasks.
        """
        if self.tasks_path not in ("miniature", "hub"):
            return question_digests(self.tasks, Path(self.tasks_path))
        origins: dict[str, str] = {}
        for task, config in zip(self.tasks, map(task_config, self.tasks), strict=True):
            if self.tasks_path == "hub":
                origins[task] = f"{config['dataset_path']} at {data_set_commit(config['dataset_path'])}"
            else:
                origins[task] = f"miniature, version {config['metadata']['version']}"
        return origins

    def data_sets(self) -> Sequence[tuple[str, str | None]]:
        """Return the hub's id of each task's rows."""
        if self.tasks_path != "hub":
            return []
        return [(config["dataset_path"], config.get("dataset_name")) for config in map(task_config, self.tasks)]

    def evaluate(self, model: Model, task: EvaluationTask) -> Evaluation:
        numbers = dict.fromkeys((metric.name for metric in self.metrics), math.nan)
        per_item: dict[str, np.ndarray] = {}
        weights: dict[str, np.ndarray] = {}
        item_ids: dict[str, list[str]] = {}
        notes: dict[str, Json] = {"rows": {}, "failed": {}}
        with lm_eval_isolated(model):
            from lm_eval.models.huggingface import HFLM

            tokenizer = copy.deepcopy(task.tokenizer)  # lm-eval gives it a padding token.
            fp32 = {"softmax_dtype": "float32"}  # Else a model in bf16 has ties that its logits do not have.
            lm = HFLM(pretrained=model, tokenizer=tokenizer, backend="causal", batch_size=BATCH, **fp32)
            lm.tok_encode = partial(encoded, tokenizer)  # The model's texts are all read in one way.
            lm._encode_pair = partial(encoded_pair, tokenizer)
            lm._loglikelihood_tokens = partial(refused_nan, lm._loglikelihood_tokens)
            for name in self.tasks:
                try:
                    lm_task = lm_eval_task(name, self.tasks_path, self.limit)
                    accuracies, answers, ids = measure_task(lm, lm_task, self.limit)
                except Exception as error:
                    notes["failed"][name] = failure_reason(error)
                    continue
                numbers |= accuracies
                per_item |= answers
                item_ids |= dict.fromkeys(answers, ids)
                notes["rows"][name] = len(ids)
        numbers["reasoning"] = float(np.mean([numbers[name] for name in self.tasks]))
        errors = [numbers[f"{name}_stderr"] for name in self.tasks]
        numbers["reasoning_stderr"] = math.sqrt(sum(error**2 for error in errors)) / len(errors)
        if not notes["failed"]:
            counts = [len(item_ids[name]) for name in self.tasks]
            # Each task counts the same, however many questions it has.
            weights["reasoning"] = np.repeat(1 / np.array(counts), counts)
            per_item["reasoning"] = np.concatenate([per_item[name] for name in self.tasks])
            item_ids["reasoning"] = [id for name in self.tasks for id in item_ids[name]]
        return Evaluation(numbers, notes=notes, per_item=per_item, item_weights=weights, item_ids=item_ids)


def encoded(tokenizer: Tokenizer, text: str, add_special_tokens: Any = None, **_: Any) -> list[int]:
    """Return a question's token ids."""
    [tokens] = token_lists(tokenizer, [text], starts=add_special_tokens is not False)
    return tokens


def encoded_pair(tokenizer: Tokenizer, context: str, choice: str) -> tuple[list[int], list[int]]:
    """Return the token ids of a context and of a choice after it, as lm-eval splits them.

    Spaces at the context's end, and a token across the border, go to the choice.
    """
    stripped = context.rstrip()
    choice, context = context[len(stripped) :] + choice, stripped
    whole, alone = encoded(tokenizer, context + choice), encoded(tokenizer, context)
    if len(whole) > len(alone):
        return alone, whole[len(alone) :]
    return whole[:-1], whole[-1:]


def refused_nan(score: Score, requests: Sequence[Any], **options: Any) -> list[tuple[float, bool]]:
    """Return lm-eval's (log-likelihood, whether it is greedy) of each choice.

    Raises:
        TrialError: A log-likelihood is NaN: lm-eval would count the question as wrong.
    """
    answers = score(requests, **options)
    if any(math.isnan(log_p) for log_p, _ in answers):
        raise TrialError("the logits after a choice's context are NaN, so it has no likelihood: erase the model less.")
    return answers


def measure_task(lm: LM, task: Task, limit: int | None) -> tuple[dict[str, float], dict[str, np.ndarray], list[str]]:
    """Return one task's numbers, and each question's values and id."""
    from lm_eval.evaluator import evaluate

    name = task.task_name
    # One draw is enough: the standard error of a mean is lm-eval's closed form, which it gives for any number above 0.
    results = evaluate(lm, {"tasks": {name: task}, "groups": {}}, limit=limit, bootstrap_iters=1)
    names = {"acc": name, "acc_stderr": f"{name}_stderr"} | ({"acc_norm": f"{name}_norm"} if name in NORMALIZED else {})
    samples = sorted(results["samples"][name], key=lambda sample: sample["doc_id"])
    numbers: dict[str, float] = {}
    answers: dict[str, np.ndarray] = {}
    for key, metric in names.items():
        value = results["results"][name].get(f"{key},none")
        if isinstance(value, float | int):
            numbers[metric] = float(value)
        if key != "acc_stderr":
            answers[metric] = np.array([float(sample[key]) for sample in samples])
    ids = [f"{name}-{sample['doc_hash'][:16]}" for sample in samples]
    return numbers, answers, ids


@lru_cache(maxsize=12)
def lm_eval_task(name: TaskName, tasks_path: str, limit: int | None) -> Task:
    """Return a task with its requests, built once a process."""
    from lm_eval.tasks import TaskManager

    config = task_config(name)
    if tasks_path == "hub":
        config |= {"custom_dataset": partial(hub_data_set, config["dataset_path"], config.get("dataset_name"))}
    else:
        config |= {"training_split": None, "validation_split": None, "test_split": "rows"}
        config |= {"custom_dataset": partial(local_data_set, name, tasks_path)}
    [task] = TaskManager(include_defaults=False).load([config])["tasks"].values()
    task.set_config(key="num_fewshot", value=0)
    task.build_all_requests(limit=limit)
    # lm-eval would build them again for every model; its own cache of them is a pickle.
    task.build_all_requests = partial(clear_answers, task)
    return task


def clear_answers(task: Task, **_: Any) -> None:
    """Reset a task's requests for another model."""
    for request in task.instances:
        request.resps, request.filtered_resps = [], {}


def task_config(name: TaskName) -> dict[str, Any]:
    """Return lm-eval's configuration of a task."""
    return dict(yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8")))


def hub_data_set(id: str, configuration: str | None, **_: Any) -> Mapping[str, Any]:
    """Return a hub data set for lm-eval, from the local cache if possible."""
    from datasets import load_dataset

    folder = data_set_folder(id, configuration)
    inner = folder / (configuration or "")
    return load_dataset(str(inner)) if inner.is_dir() else load_dataset(str(folder), configuration)  # type: ignore[no-any-return]


def local_data_set(name: TaskName, tasks_path: str, **_: Any) -> Mapping[str, Any]:
    """Return a task's one split for lm-eval, in the hub's schema."""
    from datasets import Dataset

    rows = embedded_task(name) if tasks_path == "miniature" else read_questions(name, Path(tasks_path))
    return {"rows": Dataset.from_list(rows)}


def failure_reason(error: Exception) -> str:
    """Return an error's type and place: a library's message may quote texts."""
    if isinstance(error, LetheError):
        return f"{type(error).__name__}: {error}"
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: raised at {Path(at.filename).name}, line {at.lineno}, in {at.name}"


@contextlib.contextmanager
def lm_eval_isolated(model: Model) -> Iterator[None]:
    """Suppress lm-eval's prints, warnings and seeds, and restore the model's mode."""
    was_training, state, numpy_state = model.training, random.getstate(), np.random.get_state()
    logger = logging.getLogger("lm_eval")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with torch.random.fork_rng(devices), quiet[0], quiet[1]:
            yield
    finally:
        model.train(was_training)
        logger.setLevel(level)
        random.setstate(state)
        np.random.set_state(numpy_state)


Question = dict[str, Any]

LAYOUTS: Mapping[str, tuple[tuple[str, ...], str, tuple[object, ...]]] = {
    "piqa": (("goal", "sol1", "sol2"), "label", (0, 1)),
    "arc_easy": (("question", "choices"), "answerKey", ()),
    "copa": (("premise", "choice1", "choice2", "question"), "label", (0, 1)),
    "pubmedqa": (("question", "context"), "final_decision", ("yes", "no", "maybe")),
    "winogrande": (("sentence", "option1", "option2"), "answer", ("1", "2")),
    "hellaswag": (("activity_label", "ctx_a", "ctx_b", "endings"), "label", ("0", "1", "2", "3")),
}
"""By task: required fields; the label's field; its values, unless each row lists them."""
AUTHORS_FILES = {"piqa": "piqa_dev.jsonl", "copa": "copa_val.jsonl", "pubmedqa": "pubmedqa_labeled.json"}
"""Files as a task's authors publish them; PIQA's labels are next to its rows."""


def question_digests(tasks: Iterable[str], folder: Path) -> dict[str, str]:
    """Return the digest of each task's file, after a check of every row."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder. Give a folder with the tasks' files, or 'miniature', or 'hub'.")
    digests, problems = {}, []
    for task in tasks:
        try:
            read_questions(task, folder)
            paths = filter(Path.is_file, (path := question_file(task, folder), labels_file(path)))
            digests[task] = hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
        except DataError as error:
            problems.append(str(error))
        # A row whose parts are of other kinds than the task's fails wherever they are first used.
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            problems.append(f"{question_file(task, folder)} cannot be read ({type(error).__name__}: {error}).")
    if problems:
        raise DataError(" ".join(problems))
    return digests


def question_file(task: str, folder: Path) -> Path:
    """Return a task's file in `folder`."""
    names = [f"{task}.jsonl", f"{task}.parquet", *filter(None, [AUTHORS_FILES.get(task)])]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    remedy = f"Put {' or '.join(names)} there, or leave the task out."
    raise DataError(f"the task '{task}' has no file in {folder}. {remedy}")


def labels_file(path: Path) -> Path:
    """Return the file of labels, one a line, that belongs to a file of rows without labels."""
    return path.with_name(f"{path.stem}_labels.lst")


def read_questions(task: str, folder: Path) -> list[Question]:
    """Return the rows of a task's file, in the hub's schema, with labels."""
    (fields, label, allowed_labels), path = LAYOUTS[task], question_file(task, folder)
    rows = rows_of_file(path)
    if labels_file(path).is_file():
        labels = labels_file(path).read_text(encoding="utf-8").split()
        if len(labels) != len(rows):
            raise DataError(f"{labels_file(path)} has {len(labels)} labels for the {len(rows)} rows of {path}.")
        for row, text in zip(rows, labels, strict=True):
            row[label] = int(text)
    for number, row in enumerate(rows, start=1):
        if missing := [field for field in fields if row.get(field) is None]:
            every = ", ".join((*fields, label))
            raise DataError(f"{path}, row {number}: lacks {', '.join(missing)}. A row of {task} holds {every}.")
        allowed = allowed_labels or tuple(row["choices"]["label"])
        if row.get(label) not in allowed:
            found = f"its {label} is {row.get(label)!r}; allowed are {', '.join(map(repr, allowed))}"
            reason = "Only labelled rows can be measured: test splits often have none."
            raise DataError(f"{path}, row {number}: {found}. {reason}")
    if not rows:
        raise DataError(f"{path} holds no row.")
    return rows


def rows_of_file(path: Path) -> list[Question]:
    """Return the rows of a parquet file, of JSON lines, or of PubMedQA's one object."""
    if path.suffix == ".parquet":
        from pyarrow import parquet

        return list(parquet.read_table(path).to_pylist())
    if path.suffix == ".json":
        rows = []
        for row in json.loads(path.read_text(encoding="utf-8")).values():
            context = {"contexts": row["CONTEXTS"]}
            rows.append({"question": row["QUESTION"], "context": context, "final_decision": row["final_decision"]})
        return rows
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
