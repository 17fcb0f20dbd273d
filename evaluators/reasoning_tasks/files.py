"""The tasks' local files: as their authors publish them, or as their hub data sets have them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import DataError

Question = dict[str, Any]


@dataclass(frozen=True)
class Layout:
    """What a task's files are called, and what its rows hold."""

    names: tuple[str, ...]
    """File names in the task's folder, or in the folder of all tasks; the first is what a message recommends."""
    fields: tuple[str, ...]
    """What every row must hold, in the hub's schema."""
    label: str
    """The field with the right answer."""
    labels: tuple[object, ...]
    """What a label may be; empty where the row's own choices say it."""


LAYOUTS: Mapping[str, Layout] = {
    "piqa": Layout(
        ("piqa.jsonl", "valid.jsonl", "dev.jsonl", "piqa_dev.jsonl"), ("goal", "sol1", "sol2"), "label", (0, 1)
    ),
    "arc_easy": Layout(("arc_easy.jsonl", "ARC-Easy-Test.jsonl"), ("question", "choices"), "answerKey", ()),
    "copa": Layout(
        ("copa.jsonl", "val.jsonl", "copa_val.jsonl"), ("premise", "choice1", "choice2", "question"), "label", (0, 1)
    ),
    "pubmedqa": Layout(
        names=("pubmedqa.jsonl", "ori_pqal.json", "pubmedqa_labeled.json"),
        fields=("question", "context"),
        label="final_decision",
        labels=("yes", "no", "maybe"),
    ),
    "winogrande": Layout(
        names=("winogrande.jsonl", "dev.jsonl", "winogrande_dev.jsonl"),
        fields=("sentence", "option1", "option2"),
        label="answer",
        labels=("1", "2"),
    ),
    "hellaswag": Layout(
        names=("hellaswag.jsonl", "hellaswag_val.jsonl"),
        fields=("activity_label", "ctx_a", "ctx_b", "endings"),
        label="label",
        labels=("0", "1", "2", "3"),
    ),
}


def in_hub_schema(task: str, row: Question) -> Question:
    """Return a task's row in the hub's schema; one that is in it already stays as it is."""
    if task == "arc_easy" and isinstance(row.get("question"), Mapping):
        texts, labels = [], []
        for choice in row["question"]["choices"]:
            texts.append(choice["text"])
            labels.append(choice["label"])
        return {**row, "question": row["question"]["stem"], "choices": {"text": texts, "label": labels}}
    if task == "pubmedqa" and "QUESTION" in row:
        context = {"contexts": row["CONTEXTS"]}
        return {"question": row["QUESTION"], "context": context, "final_decision": row.get("final_decision")}
    if task == "hellaswag" and "label" in row:
        return {**row, "label": str(row["label"])}
    return row


def question_digests(tasks: Iterable[str], folder: Path) -> dict[str, str]:
    """Return the digest of each task's files, after a look at every row.

    Raises:
        DataError: No such folder, or tasks without a file or with a row that cannot be measured: all of them.
    """
    try:
        is_folder = folder.is_dir()
    except OSError:  # A name that no file can have, say.
        is_folder = False
    if not is_folder:
        raise DataError(f"{folder} is not a folder. Give a folder with the tasks' files, or 'miniature', or 'hub'.")
    digests, problems = {}, []
    for task in tasks:
        try:
            paths = question_files(task, folder)
            read_questions(task, paths)
            digests[task] = hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
        except DataError as error:
            problems.append(str(error))
        # A row whose parts are of other kinds than the task's fails wherever they are first used.
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            problems.append(f"the files of the task '{task}' in {folder} cannot be read ({type(error).__name__}).")
    if problems:
        raise DataError(" ".join(problems))
    return digests


def question_files(task: str, folder: Path) -> tuple[Path, ...]:
    """Return a task's file below `folder`, and the file of its labels if they are in one of their own.

    `folder/<task>/` comes first, with any of the names; then `folder`, with the names that no two tasks share.

    Raises:
        DataError: There is none.
    """
    names = (*LAYOUTS[task].names, f"{task}.parquet")
    own = [folder / task / name for name in names]
    shared = [folder / name for name in names if name not in ("dev.jsonl", "val.jsonl", "valid.jsonl")]
    for path in own + shared:
        if path.is_file():
            labels = (path.with_name(f"{path.stem}_labels.lst"), path.with_name(f"{path.stem}-labels.lst"))
            return (path, *filter(Path.is_file, labels))
    looked = ", ".join(str(path.relative_to(folder)) for path in shared + own)
    raise DataError(f"the task '{task}' has no file in {folder}: looked for {looked}. Put one there, or leave it out.")


def read_questions(task: str, paths: tuple[Path, ...]) -> list[Question]:
    """Return the rows of the files that `question_files` named, in the hub's schema, every one with its label.

    Raises:
        DataError: A row is not JSON, lacks a field, or has no label that the task knows.
    """
    layout, path = LAYOUTS[task], paths[0]
    rows = [in_hub_schema(task, row) for row in rows_of_file(path)]
    every = ", ".join((*layout.fields, layout.label))
    if len(paths) > 1:  # Labels in a file of their own, one a line.
        lines = paths[1].read_text(encoding="utf-8").split()
        if len(lines) != len(rows):
            raise DataError(f"{paths[1]} has {len(lines)} labels for the {len(rows)} rows of {path}.")
        labels = dict(zip(map(str, layout.labels), layout.labels, strict=True))
        for row, line in zip(rows, lines, strict=True):
            row[layout.label] = labels.get(line, line)
    for number, row in enumerate(rows, start=1):
        missing = [field for field in layout.fields if row.get(field) is None]
        if missing:
            raise DataError(f"{path}, row {number}: lacks {', '.join(missing)}. A row of {task} holds {every}.")
        allowed = layout.labels or tuple(row["choices"]["label"])
        if row.get(layout.label) not in allowed:
            raise DataError(
                f"{path}, row {number}: its {layout.label} is {row.get(layout.label)!r}; allowed are "
                f"{', '.join(map(repr, allowed))}. Only labelled rows can be measured: test splits often have none."
            )
    if not rows:
        raise DataError(f"{path} holds no row.")
    return rows


def rows_of_file(path: Path) -> list[Question]:
    """Return a file's rows as they are: of parquet, of JSON lines, or of PubMedQA's one object.

    Raises:
        DataError: It cannot be read.
    """
    if path.suffix == ".parquet":
        from pyarrow import parquet

        return list(parquet.read_table(path).to_pylist())
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":  # PubMedQA: an object with the article's number as key.
            return list(json.loads(text).values())
    except (UnicodeDecodeError, json.JSONDecodeError, AttributeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    rows: list[Question] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise DataError(f"{path}, line {number}: is not JSON ({error})") from error
            if not isinstance(rows[-1], dict):
                raise DataError(f"{path}, line {number}: is not a JSON object")
    return rows
