#!/usr/bin/env python3
# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Starts vllm serve with moec's experts, sends prompts, and says which layers moec runs and how fast tokens come.

    python examples/serve_vllm.py MODEL [--without] [--prompt=TEXT] [--tokens=128] [--requests=8] [--port=8000]
        [-- OPTION-OF-VLLM...]

MODEL is what vllm serve takes: a name or a folder. --without serves with vLLM's own experts, for comparison. Requests
are sent at once; reported are tokens per second of all, and what the server's log says of moec. The server ends with
the program.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Optional


def find_missing() -> Optional[str]:
    """Returns the name of a missing requirement, or None."""
    if shutil.which("nvidia-smi") is None:
        return "an NVIDIA GPU: there is no nvidia-smi in PATH, which comes with the driver"
    if shutil.which("vllm") is None or importlib.util.find_spec("vllm") is None:
        return "vLLM: pip install vllm==0.33.0"
    if importlib.util.find_spec("moec") is None:
        return "moec, in the environment of vLLM: pip install moec-*.whl"
    return None


def start(options: argparse.Namespace, log: Any) -> subprocess.Popen:
    environment = os.environ | {"VLLM_PLUGINS": "" if options.without else "moec"}
    command = ["vllm", "serve", options.model, f"--port={options.port}", *options.vllm]
    return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)


def ask(url: str, body: Optional[dict[str, Any]] = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return answer.read()


def wait(server: subprocess.Popen, url: str) -> None:
    """Waits until the server answers."""
    while True:
        if server.poll() is not None:
            raise RuntimeError(f"vllm serve ended with code {server.returncode} before it answered")
        try:
            ask(f"{url}/health")
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(1)


def measure(options: argparse.Namespace, url: str) -> tuple[float, str]:
    """Returns tokens per second and the first answer. The first round is not timed: it compiles kernels."""
    body = {"model": options.model, "prompt": options.prompt, "max_tokens": options.tokens, "temperature": 0,
            "ignore_eos": True}
    with concurrent.futures.ThreadPoolExecutor(options.requests) as threads:
        for _ in range(2):
            begin = time.perf_counter()
            answers = [*threads.map(lambda _: json.loads(ask(f"{url}/v1/completions", body)), range(options.requests))]
            seconds = time.perf_counter() - begin
    tokens = sum(answer["usage"]["completion_tokens"] for answer in answers)
    return tokens / seconds, answers[0]["choices"][0]["text"]


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--without", action="store_true", help="with vLLM's own experts")
    parser.add_argument("--prompt", default="Mixture-of-Experts layers are")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--port", type=int, default=8000)
    own, vllm = arguments, []
    if "--" in arguments:
        at = arguments.index("--")
        own, vllm = arguments[:at], arguments[at + 1:]
    options = parser.parse_args(own)
    options.vllm = vllm
    for name in ("tokens", "requests", "port"):
        if (found := getattr(options, name)) < 1:
            parser.error(f"--{name}: {found} found, 1 or more are accepted")
    return options


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if missing := find_missing():
        print(f"serve_vllm.py needs {missing}", file=sys.stderr)
        return 1
    url = f"http://127.0.0.1:{options.port}"
    with tempfile.NamedTemporaryFile("w", prefix="vllm-", suffix=".log", delete=False) as log:
        print(f"vLLM's log: {log.name}", flush=True)
        server = start(options, log)
    try:
        wait(server, url)
        speed, text = measure(options, url)
    except (RuntimeError, urllib.error.URLError) as error:
        print(f"{error}; its log: {log.name}", file=sys.stderr)
        return 1
    finally:
        server.terminate()
        server.wait()
    lines = [line for line in Path(log.name).read_text(errors="replace").splitlines() if "moec" in line]
    print(*(lines or ["the log has no line of moec's"]), sep="\n")
    print(f"{options.prompt}{text}\n{speed:.0f} tokens per second, {options.requests} requests at once")
    if not options.without and not any("moec runs the experts" in line for line in lines):
        print("no layer runs in moec: docs/use/engines.md says what is refused", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
