# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""examples/serve_vllm.py beside programs in the places of vllm and nvidia-smi, and the commands of docs/use/engines.md.
test/Engine has the real vLLM."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "serve_vllm.py"
PAGE = (ROOT / "docs" / "use" / "engines.md").read_text()

#: Answers as vllm serve does; with the plugin its log has the plugin's line.
FAKE_VLLM = """#!{python}
import http.server, json, os, sys
assert sys.argv[1:3] == ["serve", "M"] and sys.argv[4:] == ["--max-model-len=9"], sys.argv
if os.environ["VLLM_PLUGINS"] == "moec":
    print({line!r}, flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, found):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())
    def do_GET(self):
        self.answer({{}})
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer({{"usage": {{"completion_tokens": body["max_tokens"]}}, "choices": [{{"text": " sparse"}}]}})
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[3].split("=")[1])), Handler).serve_forever()
"""


def find_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def run(folder: Path, *options: str, line: str = "INFO moec runs the experts of 2 layers (fp8)", without: str = ""
        ) -> subprocess.CompletedProcess:
    for name, text in (("nvidia-smi", "#!/bin/sh\n"), ("vllm", FAKE_VLLM.format(python=sys.executable, line=line))):
        program = folder / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    (folder / "bin" / without).unlink() if without else None
    (folder / "vllm.py").touch()
    environment = os.environ | {
        "PATH": f"{folder / 'bin'}:/usr/bin:/bin", "TMPDIR": str(folder),
        "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, EXAMPLE, "M", f"--port={find_port()}", "--tokens=4", *options, "--", "--max-model-len=9"]
    return subprocess.run(command, env=environment, text=True, capture_output=True, timeout=60)


def test_served_with_moec(tmp_path: Path) -> None:
    done = run(tmp_path, "--prompt=Experts are", "--requests=2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "moec runs the experts of 2 layers (fp8)\nExperts are sparse\n" in done.stdout
    assert re.search(r"\d+ tokens per second, 2 requests at once", done.stdout)


def test_no_layer_in_moec_is_an_error(tmp_path: Path) -> None:
    reason = "WARNING moec: fp8 experts keep vLLM's kernel: LoRA"
    done = run(tmp_path, line=reason)
    assert done.returncode == 1 and reason in done.stdout and "no layer runs in moec" in done.stderr
    done = run(tmp_path, "--without")
    assert done.returncode == 0 and "no line of moec's" in done.stdout, done.stderr


@pytest.mark.parametrize("program, message", [("nvidia-smi", "an NVIDIA GPU"), ("vllm", "pip install vllm==0.33.0")])
def test_what_is_missing_is_named(tmp_path: Path, program: str, message: str) -> None:
    if os.path.exists(f"/usr/bin/{program}"):
        pytest.skip(f"{program} is there")
    done = run(tmp_path, without=program)
    assert done.returncode == 1 and message in done.stderr


def test_a_server_that_ends_is_told(tmp_path: Path) -> None:
    done = run(tmp_path, "--port=70000")
    assert done.returncode == 1 and "vllm serve ended with code 1" in done.stderr


def test_commands_of_the_page() -> None:
    spec = importlib.util.spec_from_file_location("serve_vllm", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    sys.path.insert(0, str(ROOT / "benchmarks" / "engine"))
    import jobs
    import models

    commands = [line.split() for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
    examples = [words[2:] for words in commands if "examples/serve_vllm.py" in words]
    assert len(examples) == 3
    for words in examples:
        example.parse(words)
    found = [word for words in commands if "benchmarks/engine" in words for word in words[3:]]
    for text in [*found, *re.findall(r"`(q3\w*:\S+)`", PAGE)]:
        jobs.parse_group(text, tuple(models.MODELS))
    assert len(found) == 3
