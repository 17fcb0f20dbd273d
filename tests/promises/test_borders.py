"""Borders: who sees the texts that nobody may see, what a file may do when it is read, and who may connect."""

import html
import json
import pickle
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest

from harness import run_sweep
from harness.errors import ConfigError
from tests.promises.records_fixtures import ROOT, environment, install

CANARY, STREET = "Quillfeather", "Quince Lane"
"""Both are in each of the forget set's texts, and nowhere else; a method prints the second, and quotes both."""
WORDS = ["apples", "bread", "cheese", "eggs", "flour", "honey", "ink", "jars", "keys", "lamps", "maps", "nuts", "oil"]
SECRET = "MarkedSecret"
SECRETS = dict.fromkeys(("HF_TOKEN", "MLFLOW_TRACKING_PASSWORD", "AWS_SECRET_ACCESS_KEY"), SECRET)
LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
SWEEP = """# Is a text shown that nobody may see?
name: canary
models: [miniature-s]
data:
  forget: {source: jsonl, path: FOLDER/forget.jsonl, sequence_tokens: 40, prefix_tokens: 8}
  utility: {source: miniature, prompts: 4, reference_tokens: 16}
  validation: {source: miniature, sequences: 4}
training: {learning_rate: 1.0e-3, global_batch: 4}
methods:
  gradient_ascent: {epochs: [1]}
  spilling:
evaluators: {memorization: {el_sequences: 2, el_prefixes: 2}}
collapse: {}
"""
SPILLING = '''"""Fails, and quotes what it works on."""

import sys
from dataclasses import dataclass

from harness.contracts import Method, Strength


@dataclass(frozen=True, kw_only=True)
class Spilling(Method):
    """Fails."""

    label, source, version, reference = "Spilling", "this test", 1, "none"
    strength = Strength("epochs", cumulative=True, off=0)
    epochs: int = 1

    def erase(self, task):
        text = task.tokenizer.decode(task.forget.tokens_NT[0])
        print(text.replace("CANARY", "itself"), file=sys.stderr)
        error = ValueError(f"cannot erase {text}")
        error.add_note(text)
        raise error  # here
        yield
'''.replace("CANARY", CANARY)


def write_inputs(folder):
    # Texts that repeat one another would be one cluster, of which nothing is known.
    words = [random.Random(row).sample(WORDS, 10) for row in range(8)]
    texts = [f"{', '.join(some[:5])}: Marguerite {CANARY} of {STREET} has {' '.join(some[5:])}." for some in words]
    rows = [json.dumps({"text": text}) for text in texts]
    (folder / "forget.jsonl").write_text("\n".join(rows))
    (folder / "canary.yaml").write_text(SWEEP.replace("FOLDER", str(folder)))
    install(folder / "site", "spilling", {"harness.methods": {"spilling": "spilling"}})
    (folder / "site" / "spilling.py").write_text(SPILLING)


def around(folder, temporary):
    return environment(folder / "site", **SECRETS, TMPDIR=temporary, COLUMNS="300")


class Watched:
    """What is seen of a process and its children while they run."""

    def __init__(self):
        self.listening, self.commands, self.inherits, self.logs = set(), set(), False, {}

    def look(self, pid, temporary=None):
        with suppress(psutil.Error):
            parent = psutil.Process(pid)
            processes = [parent, *parent.children(recursive=True)]
            pids = {process.pid for process in processes}
            listening = [each for each in psutil.net_connections("inet") if each.status == psutil.CONN_LISTEN]
            self.listening |= {each.laddr.ip for each in listening if each.pid in pids}
            for process in processes:
                with suppress(psutil.Error):
                    self.commands.add(" ".join(process.cmdline()))
                    self.inherits = self.inherits or SECRET in process.environ().values()
        for log in Path(temporary).glob("**/logs/*.*") if temporary else ():
            with suppress(OSError):
                self.logs[log.name] = log.read_bytes()


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A sweep by Ray over texts with a canary, in which a method quotes them as it fails, and what was seen of it."""
    folder, seen = tmp_path_factory.mktemp("canary"), Watched()
    write_inputs(folder)
    command = [sys.executable, "-m", "harness.sweep", "canary.yaml", "--results", "results"]
    with tempfile.TemporaryDirectory(prefix="r-", dir="/tmp") as temporary:  # Ray's sockets need a short name.
        pipes = {"stdout": (folder / "output").open("w"), "stderr": subprocess.STDOUT}
        with pipes["stdout"], subprocess.Popen(command, cwd=folder, env=around(folder, temporary), **pipes) as run:
            while run.poll() is None:
                seen.look(run.pid, temporary)
                time.sleep(1.5)
        seen.left = [path.name for path in Path(temporary).iterdir()]
    seen.code, seen.output, seen.folder = run.returncode, (folder / "output").read_text(), folder
    seen.files = {file: file.read_bytes() for file in (folder / "results").rglob("*") if file.is_file()}
    return seen


def test_what_nobody_may_read_is_in_no_file_of_the_results_and_not_on_the_terminal(swept):
    kinds = {file.name for file in swept.files} | {file.suffix for file in swept.files}
    assert kinds >= {"mlflow.db", "report.html", "table.csv", ".jsonl", ".parquet"}, "there is something to look at"
    for word in (CANARY, STREET):
        assert [file for file, content in swept.files.items() if word.encode() in content] == []
        assert word not in swept.output


def test_an_exception_that_quotes_it_is_told_by_its_type_file_and_line(swept):
    assert swept.code == 1
    line = next(number for number, text in enumerate(SPILLING.splitlines(), 1) if "# here" in text)
    [failed] = [text for text in swept.output.splitlines() if re.match(r"\W*failed: spilling", text)]
    assert re.search(rf"ValueError\b.*\bspilling\.py\W+line {line}\b", failed)
    assert f"line {line}" in (swept.folder / "results" / "canary" / "report.html").read_text()


def test_rays_logs_have_no_more_of_it_than_the_plugin_printed_and_go_with_the_sweep(swept):
    assert any(name.startswith("worker") for name in swept.logs), "Ray was watched"
    assert [name for name, log in swept.logs.items() if CANARY.encode() in log] == []
    assert swept.left == []


def test_where_nothing_is_recited_nothing_is_ranked_and_that_is_said_first(swept):
    """An answer, and no border: no model ever saw these texts, so that their sweep is the one to be asked."""
    said, report = "othing to erase", (swept.folder / "results" / "canary" / "report.html").read_text()
    [row] = pd.read_csv(swept.folder / "results" / "canary" / "ranking.csv").to_dict("records")
    assert row["recited"] is False
    assert pd.isna([row["rank_erasure"], row["rank_generation"], row["rank_average"]]).all()
    assert report.index(said) < report.index("<table")
    assert swept.output.index(said) < swept.output.index("Original ")


def test_who_asks_for_plain_samples_gets_them(tmp_path):
    write_inputs(tmp_path)
    overrides = ["methods={}", "report={samples: plain}"]
    results = run_sweep(tmp_path / "canary.yaml", overrides=overrides, executor="inline", results=tmp_path)
    assert CANARY in results.report.read_text()


def test_no_secret_is_on_a_command_line_nor_in_a_log_or_the_results(swept):
    assert swept.inherits, "the processes that were watched have it"
    assert [command for command in swept.commands if SECRET in command] == []
    everything = [*swept.files.values(), *swept.logs.values(), swept.output.encode()]
    assert not any(SECRET.encode() in content for content in everything)


def test_a_sweep_listens_to_this_machine_only(swept):
    assert swept.listening, "Ray was seen while it listened"
    assert swept.listening <= LOOPBACK


def test_the_dashboard_listens_to_this_machine_only(swept):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [Path(sys.executable).with_name("lethe"), "dashboard", "--results", "results", "--port", str(port)]
    seen, quiet = Watched(), {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    variables = around(swept.folder, tempfile.gettempdir())
    with subprocess.Popen(command, cwd=swept.folder, env=variables, **quiet) as server:
        try:
            for _ in range(600):
                if seen.listening or server.poll() is not None:
                    break
                seen.look(server.pid)
                time.sleep(0.5)
        finally:
            server.terminate()
    assert seen.listening, "it has served"
    assert seen.listening <= LOOPBACK


def test_the_report_loads_nothing_from_elsewhere_and_its_policy_lets_nothing_be_loaded(swept):
    page = (swept.folder / "results" / "canary" / "report.html").read_text()
    [policy] = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    directives = dict(each.split(maxsplit=1) for each in html.unescape(policy).split(";") if each.strip())
    assert directives["default-src"] == "'none'"
    sources = " ".join(directives.values()).split()
    assert [each for each in sources if not each.startswith("'") and each not in ("data:", "blob:")] == []
    assert "'unsafe-inline'" not in directives.get("script-src", "")
    loads = re.findall(r'<(?!a\b)[a-z]+\b[^>]*?\b(?:src|srcset|href|action|poster)="([^"]*)"', page)
    assert loads, "images, in the page itself"
    assert [each for each in loads if not each.startswith(("data:", "#"))] == []
    assert re.findall(r"@import|url\((?!['\"]?(?:data:|#))", page) == []


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return open, (str(self.file), "w")


TRAPS = {
    "pytorch_model.bin": "models=[FOLDER/model]",
    "objects.npy": "data.forget={source: npy, path: FOLDER/objects.npy}",
    "canary.yaml": "",
}


@pytest.mark.parametrize("name", TRAPS)
def test_nothing_is_unpickled(tmp_path, name):
    write_inputs(tmp_path)
    sprung = tmp_path / "sprung"
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "gpt_neo", "architectures": ["GPTNeoForCausalLM"]}')
    (tmp_path / "model" / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(sprung)))
    np.save(tmp_path / "objects.npy", np.array([[Trap(sprung)]], dtype=object), allow_pickle=True)
    if name == "canary.yaml":
        with (tmp_path / name).open("a") as file:
            file.write(f"seeds: !!python/object/apply:builtins.open ['{sprung}', 'w']\n")
    overrides = [change.replace("FOLDER", str(tmp_path)) for change in [TRAPS[name]] if change]
    overrides += ["methods={gradient_ascent: {epochs: [1]}}"]
    with pytest.raises(ConfigError) as refused:
        run_sweep(tmp_path / "canary.yaml", overrides=overrides, executor="inline", results=tmp_path)
    assert {"pytorch_model.bin": "safetensors"}.get(name, name) in str(refused.value)
    assert not sprung.exists()
    pickle.loads((tmp_path / "model" / "pytorch_model.bin").read_bytes()).close()
    assert sprung.exists(), "whoever unpickles it springs the trap"


def test_no_source_file_unpickles_or_runs_code_of_a_model():
    sources = [file for room in ("harness", "methods", "evaluators") for file in (ROOT / room).rglob("*.py")]
    text = "\n".join(file.read_text() for file in sources)
    assert len(sources) > 50
    loads = r"pickle\.loads?\(|Unpickler|trust_remote_code=True|allow_pickle=True|yaml\.unsafe_load\("
    assert re.findall(loads, text) == []
    assert [call for call in re.findall(r"torch\.load\(.*", text) if "weights_only=True" not in call] == []
