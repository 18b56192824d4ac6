# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Commands and package as in a container: as process 1, with few processes, on a read-only volume, killed during
writes, several on one volume, and with inputs typical of archives and checkouts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from conftest import BINARIES

SMALL = {"moec_spec": 1, "dtype": "f32", "hidden_size": 32, "num_experts": 4, "top_k": 2, "intermediate_size": 16,
         "max_tokens": 64, "routing": {"renormalize": True}, "activation": {"kind": "silu"}}
#: 50 MB of weights, so that writing takes a while.
LARGE = {**SMALL, "hidden_size": 512, "num_experts": 16, "intermediate_size": 512}
TIMEOUT = 60
NOBODY = 65534


def has(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=TIMEOUT).returncode == 0
    except OSError:
        return False


#: Runs the command as process 1 of its own namespace.
CONTAINER = ["unshare", "--pid", "--fork", "--kill-child"]
in_container = pytest.mark.skipif(not has(*CONTAINER, "true"), reason="no namespace of processes may be made here")
in_mount = pytest.mark.skipif(not has("unshare", "--mount", "true"), reason="no namespace of mounts may be made here")
#: Root has no limit on processes.
FEW = ["setpriv", f"--reuid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []
FEW += ["prlimit", "--nproc=1"]
with_few = pytest.mark.skipif(not has(*FEW, "true"), reason="processes cannot be limited here")


def write_spec(folder: Path, spec: dict = SMALL) -> str:
    path = folder / "spec.json"
    path.write_text(json.dumps(spec))
    return str(path)


def tool(name: str, *arguments: object) -> list[str]:
    return [str(BINARIES / name), *map(str, arguments)]


def run(command: list[str], **kwargs) -> subprocess.CompletedProcess:
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT,
                          **kwargs)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


# field-bug: odysseus#5596, kuasar#239, stellar-core#652
@in_container
def test_process_1_goes_on_where_process_1_was_killed(tmp_path: Path) -> None:
    spec = write_spec(tmp_path)
    volume = tmp_path / "volume"
    volume.mkdir()
    for count in range(3):
        leftover = volume / f"w.safetensors.tmp.1.{count}"
        leftover.write_bytes(b"part")
        os.utime(leftover, (0, 0))
    done = run([*CONTAINER, *tool("moe-run", spec, "--tokens=2", f"--write-prepared={volume}/w.safetensors")])
    assert done.returncode == 0, done.stdout
    assert names(volume) == ["w.safetensors"]


@in_container
def test_two_containers_write_one_file(tmp_path: Path) -> None:
    spec = write_spec(tmp_path)
    volume = tmp_path / "volume"
    volume.mkdir()
    path = volume / "w.safetensors"
    command = [*CONTAINER, *tool("moe-run", spec, "--tokens=2", f"--write-prepared={path}")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
               for _ in range(3)]
    for process in running:
        output, _ = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0, output
    assert names(volume) == ["w.safetensors"]
    done = run(tool("moe-run", spec, "--tokens=2", f"--prepared={path}", "--check"))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_killed_writer(number: int, tmp_path: Path) -> None:
    spec = write_spec(tmp_path, LARGE)
    volume = tmp_path / "volume"
    volume.mkdir()
    process = subprocess.Popen(tool("moe-run", spec, "--tokens=1", f"--write-prepared={volume}/w.safetensors"),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               # A shell's background jobs ignore SIGINT, and so do their children.
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    until = time.monotonic() + TIMEOUT
    while not names(volume) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.0005)
    process.send_signal(number)
    assert process.wait(TIMEOUT) == -number
    # A killed process cannot clean up; the next one does.
    left = names(volume)
    assert len(left) == (number == signal.SIGKILL)
    if left:
        assert left[0].startswith("w.safetensors.tmp.")
        os.utime(volume / left[0], (0, 0))
        done = run(tool("moe-run", write_spec(tmp_path), "--tokens=1", f"--write-prepared={volume}/w.safetensors"))
        assert done.returncode == 0 and names(volume) == ["w.safetensors"], done.stdout


@in_mount
def test_read_only_volume(tmp_path: Path) -> None:
    spec = write_spec(tmp_path)
    volume = tmp_path / "volume"
    volume.mkdir()
    script = f"mount --bind {volume} {volume} && mount -o remount,ro,bind {volume} && exec \"$@\""

    def run_there(*command: str) -> subprocess.CompletedProcess:
        return run(["unshare", "--mount", "sh", "-c", script, "sh", *command])

    done = run_there(*tool("moe-compile", spec, "-o", volume / "layer.mlir"))
    assert done.returncode == 1 and f"folder {volume}: Read-only file system" in done.stdout, done.stdout
    # The folder of the cache exists but is not writable.
    code = f"import moec; moec.compile_package({spec!r}, target='sm_80', cache_directory={str(volume)!r}, use_ptxas=False)"
    done = run_there(sys.executable, "-c", code)
    assert done.returncode == 0, done.stdout
    assert "Read-only file system; compiled layers are not cached" in done.stdout


def test_link_to_standard_output_stays(tmp_path: Path) -> None:
    spec = write_spec(tmp_path)
    link, captured = tmp_path / "stdout", tmp_path / "captured"
    link.symlink_to("/proc/self/fd/1")
    for name in (link, "/proc/self/fd/1", "-", captured):
        with captured.open("wb") as file:
            done = subprocess.run(tool("moe-compile", spec, "--emit=moe", "-o", name), stdout=file, timeout=TIMEOUT)
        assert done.returncode == 0
        assert "moe.layer" in captured.read_text()
    assert link.is_symlink() and os.readlink(link) == "/proc/self/fd/1"
    with captured.open("wb") as file:
        done = subprocess.run(tool("moe-run", spec, "--tokens=2", f"--outputs={link}"), stdout=file, timeout=TIMEOUT)
    assert done.returncode == 0 and b'"output"' in captured.read_bytes()
    assert link.is_symlink() and names(tmp_path) == ["captured", "spec.json", "stdout"]


def test_limit_of_file_size_is_an_error(tmp_path: Path) -> None:
    spec = write_spec(tmp_path)
    command = tool("moe-compile", spec, "--emit=tile", "-o", tmp_path / "layer.mlir")
    done = run(["bash", "-c", "ulimit -f 1; exec \"$@\"", "bash", *command])
    assert done.returncode == 1, done.stdout
    assert "layer.mlir: error: cannot be written: File too large" in done.stdout
    assert names(tmp_path) == ["spec.json"]


# field-bug: llama.cpp#17168
@with_few
def test_compiles_where_no_thread_can_be_had() -> None:
    done = run([*FEW, *tool("moe-compile", "-", "--target=sm_90a", "--max-tokens=8", "--emit=ptx")],
               input=json.dumps(SMALL), cwd="/")
    assert done.returncode == 0 and ".entry" in done.stdout, done.stdout[-2000:]
    done = run([*FEW, *tool("moe-run", "-", "--tokens=2", "--max-tokens=8")], input=json.dumps(SMALL), cwd="/")
    assert done.returncode in (0, 1) and "LLVM ERROR" not in done.stdout, done.stdout
    assert done.returncode == 0 or "raise the limit of processes" in done.stdout or "threads" in done.stdout


@with_few
def test_package_compiles_where_no_thread_can_be_had() -> None:
    code = textwrap.dedent(f"""
        import moec
        package = moec.compile_package({SMALL!r}, target="sm_90a", max_tokens=8, cache=False, use_ptxas=False,
                                       progress=True)
        print("package:", len(package) > 1000)
        try:
            moec.compile({SMALL!r}, device="cpu")
        except moec.ResourceExhausted as error:
            print("refused:", error)
        """)
    done = run([*FEW, sys.executable, "-c", code], cwd="/")
    if "Permission denied" in done.stdout or "No module named" in done.stdout:
        pytest.skip("the package is not readable by others")
    assert done.returncode == 0 and "\npackage: True" in done.stdout, done.stdout


def test_inputs_that_are_no_files(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").symlink_to("/dev/zero")
    for command in (tool("moe-compile", model), tool("moe-run", model)):
        done = run(command)
        assert done.returncode == 1 and "config.json: error: is a device, not a regular file" in done.stdout
    with open("/dev/zero", "rb") as endless:
        done = run(tool("moe-compile", "-"), stdin=endless)
    assert done.returncode == 1 and "has more than the" in done.stdout, done.stdout
    spec = write_spec(tmp_path)
    os.mkfifo(tmp_path / "pipe.safetensors")
    pipe = tmp_path / "pipe.safetensors"
    for option in ("--inputs", "--hidden-states", "--prepared", "--tuned"):
        done = run(tool("moe-run", spec, "--tokens=2", f"{option}={pipe}"))
        assert done.returncode == 1 and "is a pipe, not a regular file" in done.stdout, done.stdout


def test_names_of_a_file_are_shown_without_control_characters(tmp_path: Path) -> None:
    header = {"\x1b[2J" + "n" * 1000: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    text = json.dumps(header).encode()
    path = tmp_path / "weights.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    done = run(tool("moe-run", write_spec(tmp_path), "--tokens=2", f"--inputs={path}"))
    assert done.returncode == 1
    assert "\x1b" not in done.stdout and "n" * 100 not in done.stdout
    assert len(done.stdout) < 1000
