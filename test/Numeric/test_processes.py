# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moe-run --nproc: ranks that are processes have the bits of ranks that are threads, and one that dies is named."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cases import BASE
from runs import TIMEOUT, binary

MODEL = BASE | {"entry": "gate", "num_experts": 16, "intermediate_size": 64, "max_tokens": 64,
                "shared_experts": {"intermediate_size": 32}}
#: Seconds that ranks wait for each other, and the allowance for a busy machine.
LIMIT, GRACE = 4, 60


def write_spec(folder: Path, **parallel) -> Path:
    spec = folder / "ranks.json"
    spec.write_text(json.dumps(MODEL | {"parallel": parallel}))
    return spec


def command(spec, *options: str) -> list[str]:
    return [str(binary("moe-run")), str(spec), "--tokens=5", "--max-tokens=8", *options]


def run(spec, *options: str, **kwargs) -> subprocess.CompletedProcess:
    return subprocess.run(command(spec, *options), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=TIMEOUT, **kwargs)


def find_children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        state, parent = text[text.rindex(")") + 2 :].split()[:2]
        if int(parent) == pid and state != "Z":
            found.append(int(stat.parent.name))
    return sorted(found)


def start(folder: Path, *options: str) -> tuple[subprocess.Popen, list[int]]:
    """Two ranks that run for a long time, and their processes."""
    spec = write_spec(folder, dp=2, experts="linear")
    process = subprocess.Popen(
        command(spec, "--nproc=2", "--repeat=100000000", f"--rank-limit={LIMIT}", *options), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True)
    until = time.monotonic() + TIMEOUT
    while len(children := find_children(process.pid)) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    return process, children


def end(process: subprocess.Popen) -> str:
    output, _ = process.communicate(timeout=LIMIT * 2 + GRACE)
    assert process.returncode == 1, output
    return output


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("parallel", [
    {"dp": 2, "experts": "linear"}, {"dp": 2, "tp": 2}, {"dp": 2, "tp": 2, "sp": True, "experts": "round_robin"},
], ids=str)
def test_bits_of_threads(parallel, tmp_path):
    spec = write_spec(tmp_path, **parallel)
    ranks = parallel["dp"] * parallel.get("tp", 1)
    shared = sorted(os.listdir("/dev/shm"))
    outputs, lines = [], []
    for options in ([], [f"--nproc={ranks}"]):
        out = tmp_path / f"out{len(outputs)}.safetensors"
        done = run(spec, "--check", "--compare=3", "--repeat=2", f"--outputs={out}", *options)
        assert done.returncode == 0, done.stdout
        outputs.append(out.read_bytes())
        # The time is not checked here.
        lines.append(re.sub(r"[\d.]+ ms|moe-run: .* \.\.\. \d+ s\n", "", done.stdout))
    assert outputs[0] == outputs[1] and lines[0] == lines[1]
    assert f"{ranks} ranks (dp 2 x tp {parallel.get('tp', 1)}" in lines[0]
    assert sorted(os.listdir("/dev/shm")) == shared


def test_levels_simulator_and_traces(tmp_path):
    spec = write_spec(tmp_path, dp=2, experts="linear")
    trace = tmp_path / "trace.json"
    for options in (["--level=plan"], ["--device=sim:1", "--target=sm_80"], ["--times-at=5", "--repeat=2"],
                    [f"--trace={trace}"]):
        done = run(spec, "--nproc=2", "--check", *options)
        assert done.returncode == 0, done.stdout
    processes = {event["pid"] for event in json.loads(trace.read_text())["traceEvents"]}
    assert processes == {0, 1}


def test_description_from_standard_input(tmp_path):
    text = write_spec(tmp_path, dp=2).read_text()
    done = run("-", "--nproc=2", input=text)
    assert done.returncode == 0 and "2 ranks (dp 2 x tp 1), 5 tokens each" in done.stdout, done.stdout


@pytest.mark.parametrize("delay", [0.0, 2.0], ids=["init", "runs"])
@pytest.mark.parametrize(("number", "text"), [
    (signal.SIGKILL, "rank 1 was killed by signal 9 (Killed)"),
    (signal.SIGTERM, "rank 1 was killed by signal 15 (Terminated)"),
    (signal.SIGSTOP, "rank 1 was stopped, and did not exit within the limit and was killed"),
], ids=["killed", "terminated", "stopped"])
def test_rank_that_ends_is_named(number, text, delay, tmp_path):
    process, children = start(tmp_path)
    time.sleep(delay)
    os.kill(children[1], number)
    assert text in end(process)
    assert not any(map(is_alive, children))


def test_start_whose_ranks_are_all_stopped_ends(tmp_path):
    process, children = start(tmp_path)
    for child in children:
        os.kill(child, signal.SIGSTOP)
    output = end(process)
    for rank in range(2):
        assert f"rank {rank} was stopped, and did not exit within the limit and was killed" in output
    assert not any(map(is_alive, children))


def test_ranks_end_with_the_process_that_started_them(tmp_path):
    process, children = start(tmp_path)
    process.kill()
    process.communicate(timeout=GRACE)
    until = time.monotonic() + GRACE
    while any(map(is_alive, children)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(map(is_alive, children))


# field-bug: DeepEP#165
@pytest.mark.parametrize(("options", "text"), [
    (["--nproc=3"], "--nproc=3: the layer is for 4 ranks (parallel: dp 2 x tp 2); give that number"),
    (["--nproc=1"], "--nproc is the number of ranks, at least 2"),
    (["--nproc=4", "--bisect"], "--nproc runs one layer once"),
    (["--nproc=4", "--dump-dir=x"], "--nproc: each process compiles the layer"),
    (["--nproc=4", "--exchange=peer", "--device=sim", "--target=sm_90a"], "processes (--nproc) cannot share 'sim'"),
    (["--nproc=4", "--rank-tokens=1"], "--rank-tokens has 1 numbers, but there are 2 groups of ranks"),
])
def test_what_cannot_be(options, text, tmp_path):
    done = run(write_spec(tmp_path, dp=2, tp=2), *options)
    assert done.returncode == 1 and text in done.stdout, done.stdout
    assert done.stdout.count("error:") == 1


@pytest.mark.parametrize(("failure", "text"), [("skip", "rank 1"), ("package", "ranks differ: rank 0 has the layer's plan")])
def test_drills(failure, text, tmp_path):
    """A rank skips a run or has another package: the other one reports which."""
    spec = write_spec(tmp_path, dp=2, experts="linear")
    done = run(spec, "--nproc=2", "--compare=8", f"--rank-limit={LIMIT}", f"--drill=1:{failure}")
    assert done.returncode == 1
    told = re.search(r"rank 0: (.*)", done.stdout)
    assert told and text in told.group(1), done.stdout


@pytest.mark.parametrize("drill", ["2:skip", "1:kill", "x:skip", "1"])
def test_no_such_drill(drill, tmp_path):
    done = run(write_spec(tmp_path, dp=2, experts="linear"), "--nproc=2", f"--drill={drill}")
    assert done.returncode == 1
    assert f"--drill={drill}: give RANK:skip or RANK:package, with a RANK below --nproc" in done.stdout
