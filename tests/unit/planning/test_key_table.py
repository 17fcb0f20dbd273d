"""docs/sweeps.md lists the keys that the schema has."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "docs" / "key_table.py"


def key_table():
    spec = importlib.util.spec_from_file_location("key_table", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_schemas_keys():
    script = key_table()
    page = script.PAGE.read_text()
    assert (
        "| `data.utility.prompts` | How many texts the models continue. | a whole number of at least 1 | `256` |"
        in page
    )
    assert script.page(page) == page, "run python docs/key_table.py"


def test_a_page_of_an_older_schema_is_noticed():
    script = key_table()
    page = script.PAGE.read_text().replace("`256`", "`255`")
    assert script.page(page) != page
    assert script.page(page) == script.PAGE.read_text()


def test_paths_below_one_block_are_one():
    assert key_table().paths(["data.forget.", "data.holdout."], "start") == ["data.{forget,holdout}.start"]
    assert key_table().paths([""], "name") == ["name"]
