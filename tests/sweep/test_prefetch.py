"""`lethe prefetch` against a hub on this machine, which speaks as the real one does: fetched, then used without it."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlparse

import pytest

from harness.miniature import texts

COMMIT = "abcdef0123" * 4
SWEEP = """# Does what was fetched run without the hub?
name: fetched
models: [owner/model]
data:
  forget: {source: miniature, sequences: 4, prefix_tokens: 4, sequence_tokens: 64}
  retain: {source: hub, path: owner/news, name: plain}
  utility: {source: miniature, prompts: 4, prompt_tokens: 16, reference_tokens: 48}
methods: {gradient_difference: }
evaluators: {memorization: {}, generation: {}}
"""


class Hub(BaseHTTPRequestHandler):
    """What the client asks for: which commit, which files, their bytes."""

    repositories: dict

    def do_GET(self):
        parts = unquote(urlparse(self.path).path).strip("/").split("/")
        self.server.asked.append("/".join(parts))
        if parts[0] == "api":
            found = self.described(parts[1], "/".join(parts[2:4]), parts[4:5])
            body = None if found is None else json.dumps(found).encode()
            headers = {"Content-Type": "application/json"}
        else:
            kind = "datasets" if parts[0] == "datasets" else "models"
            parts = parts[1:] if kind == "datasets" else parts
            body = self.repositories.get((kind, "/".join(parts[:2])), {}).get("/".join(parts[4:]))
            headers = {"ETag": f'"{oid(body or b"")}"', "X-Repo-Commit": COMMIT}
        self.send_response(404 if body is None else 200)
        if body is None:
            headers = {"X-Error-Code": "RepoNotFound" if parts[0] == "api" else "EntryNotFound"}
        for name, value in {**headers, "Content-Length": str(len(body or b""))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET" and body:
            self.wfile.write(body)

    do_HEAD = do_GET

    def described(self, kind, id, what):
        files = self.repositories.get((kind, id))
        if files is None:
            return None
        if what == ["tree"]:
            return [{"type": "file", "path": name, "size": len(files[name]), "oid": oid(files[name])} for name in files]
        return {"id": id, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}

    def log_message(self, *arguments):
        pass


def oid(body):
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


@pytest.fixture
def hub(make_model, tokenizer, tmp_path):
    """A running hub with a model and a data set of two configurations."""
    folder = tmp_path / "model"
    make_model(3, vocabulary=256).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    rows = "\n".join(json.dumps({"text": text}) for text in texts("retain")[:20]).encode()
    Hub.repositories = {
        ("models", "owner/model"): {**files, "flax_model.msgpack": b"not wanted"},
        ("datasets", "owner/news"): {"plain/train.jsonl": rows, "other/train.jsonl": b"not wanted", "README.md": b"#"},
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def run(tmp_path, *arguments, endpoint=None):
    """Run the command with an empty home of the hub's; without an endpoint, offline."""
    settings = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": endpoint} if endpoint else {"HF_HUB_OFFLINE": "1"}
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1", **settings}
    command = [sys.executable, "-m", "harness.cli", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.soak
def test_a_sweep_runs_offline_once_all_is_fetched(hub, tmp_path):
    file, endpoint = tmp_path / "fetched.yaml", f"http://127.0.0.1:{hub.server_address[1]}"
    file.write_text(SWEEP)
    sweep = ["sweep", file, "--executor", "inline", "--results", tmp_path / "results"]
    own = ["--plan", "--set", "data.retain={source: miniature}"]  # A plan reads texts, so it would fetch the hub's.
    assert run(tmp_path, *sweep, *own, endpoint=endpoint).returncode == 0
    assert not any(name.endswith("model.safetensors") for name in hub.asked), "a plan needs no weights"
    fetched = run(tmp_path, "prefetch", file, endpoint=endpoint)
    assert fetched.returncode == 0, fetched.stdout + fetched.stderr
    assert [line.split() for line in fetched.stdout.splitlines()[:2]] == [
        ["here", "models.0", "owner/model:", "fetched"], ["here", "data.retain", "owner/news", "(plain):", "fetched"],
    ]  # fmt: skip
    assert any(name.endswith("plain/train.jsonl") for name in hub.asked)
    assert not any(name.endswith(("other/train.jsonl", "flax_model.msgpack")) for name in hub.asked)
    done = run(tmp_path, *sweep)
    assert done.returncode == 0, done.stdout + done.stderr
    plan = json.loads((tmp_path / "results" / "fetched" / "journal" / "plan.json").read_text())
    assert {trial["model"]["digest"] for trial in plan["trials"]} == {COMMIT}
    file.write_text(SWEEP.replace("owner/news", "owner/nothing"))
    fetched = run(tmp_path, "prefetch", file, endpoint=endpoint)
    assert fetched.returncode == 1
    told = "the data set 'owner/nothing' is not on the hub (or private or gated: set HF_TOKEN), nor a folder here."
    assert f"missing  data.retain            owner/nothing (plain): {told}" in fetched.stdout
