# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scale-out without GPUs: its parts with threads as ranks, and its detection of errors."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "benchmarks/scale_out"
sys.path.insert(0, str(FOLDER))

import drills  # noqa: E402
import features  # noqa: E402
import machine  # noqa: E402
import moves  # noqa: E402
import parts  # noqa: E402
import shared  # noqa: E402
import tables  # noqa: E402


def scale_out(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, FOLDER, *arguments], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=300, env=os.environ | environment)


def make_moe_run(folder: pathlib.Path, script: str) -> machine.Tools:
    program = folder / "bin/moe-run"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    scratch = folder / "scratch"
    scratch.mkdir()
    return machine.Tools(folder, program.parent, folder / "lib", scratch, "host", "")


def test_times_may_be_less_than_nothing():
    """If the exchange also sums, the time of the sums alone is subtracted."""
    times = parts.read_times("tokens  part             timed   median us      p99 us\n"
                             "     8  combine            100       -0.53        2.10\n")
    assert times == {(8, "combine"): {"samples": 100, "us": -0.53, "p99_us": 2.1}}


@pytest.mark.skipif("MOEC_BIN_DIR" not in os.environ, reason="needs moe-run")
def test_parts_run_on_the_host(tmp_path):
    record = tmp_path / "record.json"
    done = scale_out("--device=host", "--gpus=2", "--only=exchange,layers", f"--json={record}")
    assert done.returncode == 0, done.stdout
    found = json.loads(record.read_text())["parts"]
    assert [row["tokens_per_rank"] for row in found["exchange"]["rows"]] == [1, 8]
    for row in found["exchange"]["rows"]:
        assert row["dispatch"]["us"] > 0 and row["combine"]["us"] > 0
    assert {row["layer"] for row in found["layers"]["rows"]} == set(parts.LAYERS)
    for row in found["layers"]["rows"]:
        # No ratio of two times: ranks share the cores with whatever else the machine runs.
        assert row["together"]["us"] > 0 and row["exchange"]["us"] > 0 and row["one_gpu"]["us"] > 0


@pytest.mark.skipif("MOEC_BIN_DIR" not in os.environ, reason="needs moe-run")
@pytest.mark.skipif(not os.environ.get("MOEC_ALL_CASES"), reason="takes two minutes: MOEC_ALL_CASES, every night")
def test_features_run_on_the_host(tmp_path):
    record = tmp_path / "record.json"
    done = scale_out("--device=host", "--gpus=2", "--only=features", f"--json={record}")
    assert done.returncode == 0, done.stdout
    rows = json.loads(record.read_text())["parts"]["features"]["rows"]
    assert [row["feature"] for row in rows] == [*(each.name for each in features.features(2)), "experts that move"]
    assert all(row["ok"] and row["seconds"] > 0 for row in rows)
    # Format of the page of records.
    assert "| experts that move " in done.stdout and " largest error " in done.stdout


def test_what_is_missing_is_named(tmp_path):
    assert "no moe-run in" in scale_out(f"--bundle={tmp_path}", "--device=host").stdout
    assert "'foo' is none of" in scale_out("--only=foo").stdout
    assert "'foo' is none of" in scale_out("--layers=foo").stdout
    make_moe_run(tmp_path, "echo moec 0")
    done = scale_out(f"--bundle={tmp_path}", "--gpus=4", MOERT_CUDA_LIBRARY="/none/libcuda.so.1")
    assert done.returncode == 1 and "no GPU: /none/libcuda.so.1" in done.stdout


def test_a_record_has_what_was_measured_when_it_is_stopped(tmp_path):
    """The machine may be taken away in the middle of a part."""
    record = tmp_path / "record.json"
    make_moe_run(tmp_path, 'case "$*" in *--version*) echo moec 0; exit;; esac\n'
                 'mkdir "$0.once" 2>/dev/null || sleep 60; echo "the output differs"; exit 1')
    run = subprocess.Popen([sys.executable, FOLDER, f"--bundle={tmp_path}", "--device=host", "--only=correctness",
                            f"--json={record}"], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not record.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        run.kill()
        run.wait()
    rows = json.loads(record.read_text())["parts"]["correctness"]["rows"]
    assert len(rows) == 1 and "differs" in rows[0]["error"]


@pytest.mark.parametrize(("script", "text"), [
    ("echo moe-run: error: the output differs; exit 1", "the output differs"),
    ("echo ranks of group 0: ok: relative error 1e-3", "does not say that all is well"),
    ("sleep 60", "not done after"),
])
def test_wrong_results_are_found(script, text, tmp_path):
    part = parts.Part(make_moe_run(tmp_path, script), 2, time.monotonic() + 1, tiny=True)
    rows = list(parts.check_meshes(part))
    assert len(rows) == 6 and not any(row["ok"] for row in rows)
    assert text in rows[0]["error"]
    assert all("error" in row for row in parts.time_layers(part))


@pytest.mark.parametrize(("script", "text"), [
    ("echo moe-run: error: the output differs; exit 1", "the output differs"),
    ("echo ranks of group 0: ok: relative error 1e-3", "does not say that all is well"),
    ("sleep 60", "not done after"),
])
def test_features_that_are_wrong_are_found(script, text, tmp_path, monkeypatch):
    stand_in = tmp_path / "rank.py"
    stand_in.write_text("print('rank 1 is gone')")
    monkeypatch.setattr(moves, "RANK", stand_in)
    part = parts.Part(make_moe_run(tmp_path, script), 2, time.monotonic() + 2, tiny=True)
    rows = list(features.check_features(part, ["nccl"]))
    assert len(rows) == len(features.features(2)) + 1 and not any(row["ok"] for row in rows)
    assert text in rows[0]["error"]
    assert all(row["error"] in tables.print_part("features", {"seconds": 1, "notes": [], "rows": rows}) for row in rows)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_every_engine_has_features_of_each_mesh(ranks):
    """Sizes are divisible by the ranks; features of only one engine are not required of the other."""
    found = features.features(ranks)
    assert len({each.name for each in found}) == len(found)
    for each in found:
        mesh = each.mesh
        assert mesh.get("dp", 1) * mesh.get("pcp", 1) * mesh.get("tp", 1) == ranks
        assert "--copy-rows-from=1" not in each.gpu_options or each.engines == ("peer",)
    assert sum(isinstance(each.mesh.get("experts"), list) for each in found) == 1
    assert all(sorted({*sum(each.mesh["experts"], [])}) == list(range(16)) for each in found
               if isinstance(each.mesh.get("experts"), list))


def test_a_feature_that_was_not_run_is_found():
    copied = next(each for each in features.features(2) if each.name == "rows copied")
    steps = [{"name": "all_gather dp (rows copied)"}, {"name": "experts_out"}, {"name": "all_gather dp"}]
    assert "1 times" in features.find_missing(copied, json.dumps({"traceEvents": steps}), 2)
    assert features.find_missing(copied, json.dumps({"traceEvents": [steps[0]] * 2}), 2) == ""


#: Output of ranks whose experts moved, by the number of correct ranks.
MOVED = """
import json, sys
order = json.loads(sys.argv[1])
for rank in range(order["ranks"]):
    ok = rank < RIGHT
    print(json.dumps({"rank": rank, "ok": ok, "error_of_output": 0.001, "replaced": REPLACED} if ok
                     else {"rank": rank, "ok": False, "error": "the output differs"}))
"""


@pytest.mark.parametrize(("right", "replaced", "text"), [
    (2, 3, None), (1, 3, "the output differs"), (2, 0, "the map is what it was"),
])
def test_moves_are_judged(right, replaced, text, tmp_path, monkeypatch):
    stand_in = tmp_path / "rank.py"
    stand_in.write_text(MOVED.replace("RIGHT", str(right)).replace("REPLACED", str(replaced)))
    monkeypatch.setattr(moves, "RANK", stand_in)
    row = moves.check_moves(parts.Part(make_moe_run(tmp_path, ""), 2, time.monotonic() + 60, tiny=True))
    assert row["ok"] == (text is None)
    assert row.get("error") == text


def test_tables_of_records_with_and_without_seconds():
    row = {"ranks": 2, "mesh": "dp 2 x tp 1, linear", "format": "bf16", "runs": 9, "ok": True, "errors": [0.001]}
    assert tables.correctness([row])[0].split("|")[1:-1] == [
        " ranks ", " mesh                ", " format ", " runs ", " largest error ", "    "]
    assert " feature " in tables.correctness([row, row | {"feature": "replicas", "seconds": 1.5}])[0]


#: Ranks that do not communicate: behaviour of a survivor after the failure, by phase.
STAND_IN = """
import json, os, sys, time
order = json.loads(sys.argv[1])
say = lambda **event: print(json.dumps(event), flush=True)
say(event="at")
if order["rank"] == order["victim"] and order["mode"] != "package":
    time.sleep(60)
time.sleep(0.6)
does = os.environ["SURVIVORS"]
if does == "hang": time.sleep(60)
if does == "crash": sys.exit("Segmentation fault")
say(event="no error" if does == "no error" else "error", text="a rank is gone")
say(event="alive", same=does != "other bits")
if does == "never end": time.sleep(60)
"""


@pytest.mark.parametrize(("does", "ok", "hangs"), [
    ("error", True, 0), ("hang", False, 1), ("crash", False, 0), ("no error", False, 0), ("other bits", False, 0),
    ("never end", False, 1),
])
def test_drills_judge_survivors(does, ok, hangs, tmp_path, monkeypatch):
    stand_in = tmp_path / "rank.py"
    stand_in.write_text(STAND_IN)
    monkeypatch.setattr(drills, "RANK", stand_in)
    for name, seconds in (("LIMIT", 0.5), ("GRACE", 1.0), ("END", 1.0), ("PAUSE", 0.1)):
        monkeypatch.setattr(drills, name, seconds)
    monkeypatch.setenv("SURVIVORS", does)
    cell = drills.run_cell(make_moe_run(tmp_path, ""), 2, "kill", "replay")
    assert (cell["ok"], cell["hangs"]) == (ok, hangs), cell
    assert f"{int(ok)} of 1 cells ok, {hangs} hangs" in "\n".join(tables.drills([cell]))
    if does == "crash":
        assert "Segmentation fault" in cell["survivors"][0]["says"]


def test_every_cell_is_a_phase_of_a_failure():
    assert len(drills.cells()) == 13
    assert [phase for mode, phase in drills.cells() if mode == "package"] == ["init"]


def share(tools: machine.Tools, device: str = "cuda:0") -> parts.Part:
    """Returns a part whose ranks share a GPU like an H200."""
    tools.device, tools.multiprocessors = device, 132
    return parts.Part(tools, 2, time.monotonic() + 120, tiny=False, engine="peer")


#: Output of moe-run about the exchange, by the number of tokens.
TIMES = """
cat <<END
tokens  part             timed   median us      p99 us
$(for tokens in 1 8 128 1024 4096; do
  for part in layer compute exchange sums; do echo "  $tokens  $part  100  9.00  9.50"; done
  echo "  $tokens  dispatch  100  11.00  11.50"; echo "  $tokens  combine  100  13.00  13.50"
  echo "  $tokens  copy dispatch  100  8.75  9.00"; echo "  $tokens  copy combine  100  8.99  9.00"; done)
END
echo "$@" >>$0.log
"""


def test_ranks_of_one_gpu_are_timed_beside_copies(tmp_path):
    part = share(make_moe_run(tmp_path, TIMES))
    rows = list(shared.time_shared_exchange(part))
    assert [(row["ranks"], row["rows_by"], row["tokens_per_rank"]) for row in rows] == [
        *((2, "kernel", tokens) for tokens in shared.TOKENS), (2, "copies", 1024), (2, "copies", 4096),
        *((4, "kernel", tokens) for tokens in shared.TOKENS)]
    # 2.25 us more, and 1.26 times as long; 4.01 us more, and 1.45 times as long.
    assert [row.get("within_target") for row in rows[:7]] == [
        *[{"dispatch": True, "combine": False}] * 3, *[{"dispatch": False, "combine": False}] * 4]
    assert not any("within_target" in row for row in rows[7:])
    lines = tables.exchange(rows)
    assert "copies of its bytes" in lines[0] and "NCCL" not in lines[0]
    assert [cell.strip() for cell in lines[2].split("|")[1:-1]] == [
        "2", "kernel", "1", "11.0 (11.5)", "8.8 (9.0)", "+2.2", "1.26", "met",
        "13.0 (13.5)", "9.0 (9.0)", "+4.0", "1.45", "missed", "9.0"]
    calls = (tmp_path / "bin/moe-run.log").read_text().splitlines()
    assert len(calls) == 3 and all("--exchange=peer --disable=join-products,quantize-inputs" in call for call in calls)
    # Two ranks get 64 CTAs each, four get a quarter of the multiprocessors.
    assert ["ctas=33" in call for call in calls] == [False, False, True]


@pytest.mark.parametrize(("ranks", "parallel", "names"), [
    (2, {"dp": 2, "tp": 1}, []), (4, {"dp": 4, "tp": 1}, ["all_gather_dp", "reduce_scatter_dp"]),
    (4, {"dp": 1, "tp": 4}, ["all_reduce_tp"]),
    (4, {"dp": 2, "tp": 2, "sp": True}, ["all_gather_dp", "reduce_scatter_dp", "all_gather_tp", "reduce_scatter_tp"]),
])
def test_ranks_of_one_gpu_have_a_share_of_it(ranks, parallel, names, tmp_path):
    part = share(make_moe_run(tmp_path, ""))
    part.ranks = ranks
    assert part.options(parallel)[-len(names) - 1:] == [
        "--disable=join-products,quantize-inputs", *(f"--config={name}:ctas=33" for name in names)]
    assert part.tools.environment()["CUDA_MODULE_LOADING"] == "EAGER"
    part.engine = "nccl"
    assert part.options(parallel) == ["--device=cuda:0", "--rank-limit=30"]


def test_meshes_of_one_gpu(tmp_path):
    part = share(make_moe_run(tmp_path, "echo the output differs; exit 1"))
    rows = list(shared.check_shared_meshes(part))
    assert [row["ranks"] for row in rows] == [2] * 6 + [4] * 9
    assert 10_000 <= sum(row["runs"] for row in rows) <= 10_050 and {row["format"] for row in rows[6:]} == {
        "bf16", "fp8_block128"}
    assert all("the output differs" in row["error"] for row in rows)


#: Stand-in for moe-run --nproc: ranks run until one ends; the others then behave as in SURVIVORS.
PROCESSES = """#!{python}
import os, pathlib, signal, sys, time
outputs = [each.removeprefix("--outputs=") for each in sys.argv if each.startswith("--outputs=")]
if outputs:
    runs = pathlib.Path(sys.argv[0] + ".runs")
    before = runs.read_text() if runs.exists() else ""
    runs.write_text(before + ".")
    pathlib.Path(outputs[0]).write_text(before if os.environ["SURVIVORS"] == "other bits" else "bits")
does = os.environ["SURVIVORS"]
if [each for each in sys.argv if each.startswith("--drill=")]:
    if does == "hang":
        time.sleep(60)
    sys.exit("moe-run: error: out of memory" if does == "crash" else "moe-run: error: rank 0: all_gather over dp: " +
             ("rank 1 did not come within 3 s" if does != "no error" else "out of memory"))
if "--compare=1000000000" not in sys.argv:
    sys.exit()
if does == "crash":
    sys.exit("moe-run: error: out of memory")
ranks = []
for rank in range(2):
    ranks.append(os.fork())
    if ranks[-1] == 0:
        time.sleep(60)
while os.waitpid(ranks[1], os.WNOHANG | os.WUNTRACED)[0] == 0:
    time.sleep(0.01)
if does == "hang":
    time.sleep(60)
time.sleep(0.1)
os.kill(ranks[0], signal.SIGKILL)
os.waitpid(ranks[0], 0)
time.sleep(0.1)
print("moe-run: error: rank 1 was killed by signal 9 (Killed); rank 0: " + ("" if does == "no error" else
      "all_gather over dp: rank 1 did not come within 3 s"))
sys.exit(1)
"""


@pytest.mark.parametrize("mode", shared.MODES)
@pytest.mark.parametrize(("does", "ok", "hangs", "text"), [
    ("error", True, 0, "did not come within 3 s"), ("hang", False, 1, ""), ("crash", False, 0, "ranks began"),
    ("no error", False, 0, "rank 1 was killed"), ("other bits", False, 0, "did not come within 3 s"),
])
def test_drills_of_one_gpu_judge_survivors(does, ok, hangs, text, mode, tmp_path, monkeypatch):
    part = share(make_moe_run(tmp_path, ""))
    (tmp_path / "bin/moe-run").write_text(PROCESSES.replace("{python}", sys.executable))
    for name, seconds in (("LIMIT", 0.5), ("GRACE", 0.5), ("START", 5.0), ("PAUSE", 0.1)):
        monkeypatch.setattr(shared, name, seconds)
    monkeypatch.setenv("SURVIVORS", does)
    before = shared.run_alone(part)
    cell = shared.run_cell(part, mode, "replay", shared.time_start(part), before)
    assert (cell["ok"], cell["hangs"]) == (ok, hangs), cell
    assert text in "\n".join(tables.drills([cell]))


@pytest.mark.parametrize(("mode", "phase"), shared.OWN_CELLS)
@pytest.mark.parametrize(("does", "ok", "hangs"), [
    ("error", True, 0), ("hang", False, 1), ("crash", False, 0), ("no error", False, 0), ("other bits", False, 0),
])
def test_drills_of_one_gpu_judge_who_is_told(does, ok, hangs, mode, phase, tmp_path, monkeypatch):
    part = share(make_moe_run(tmp_path, ""))
    (tmp_path / "bin/moe-run").write_text(PROCESSES.replace("{python}", sys.executable))
    for name, seconds in (("LIMIT", 0.5), ("GRACE", 0.5)):
        monkeypatch.setattr(shared, name, seconds)
    monkeypatch.setenv("SURVIVORS", does)
    before = shared.run_alone(part)
    cell = shared.run_own_cell(part, mode, phase, 0.5, before)
    assert (cell["ok"], cell["hangs"]) == (ok, hangs), cell
    assert len(tables.drills([cell])) > 2


def test_parts_of_one_gpu(tmp_path, monkeypatch):
    """Parts that need several GPUs are skipped and listed."""
    main = importlib.util.spec_from_file_location("scale_out_main", FOLDER / "__main__.py")
    scale_out_main = importlib.util.module_from_spec(main)
    main.loader.exec_module(scale_out_main)
    part, notes = share(make_moe_run(tmp_path, "exit 1")), []
    assert not list(scale_out_main.run_shared_part("layers", part, ["nccl", "peer"], notes))
    assert not list(scale_out_main.run_shared_part("exchange", part, ["nccl"], notes))
    assert notes == ["not run: it needs 2 GPUs"] * 2
    rows = list(scale_out_main.run_part("exchange", part.tools, 1, scale_out_main.parse(["--only=exchange"]), notes))
    assert len(rows) == 12 and all(row["ranks_per_gpu"] == row["ranks"] for row in rows)
