# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/counters.py without a GPU: recorded output of ncu, and stand-ins for ncu and moe-bench."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import counters  # noqa: E402
import counters_table  # noqa: E402
import ncu  # noqa: E402

CSV = (Path(__file__).parent / "ncu_raw.csv").read_text()
METRICS = ncu.choose(set())
KERNELS = ["permute", "experts_hidden_t32_experts_out_t32", "output"]
LINES = json.loads((BENCHMARKS / "rows.json").read_text())["lines"]
RECORD = json.loads((BENCHMARKS / "results" / "moe_bench_h200.json").read_text())

# Stand-in for ncu; DATA has the CSV, refused counters and known ones.
FAKE_NCU = """#!{python}
import json, pathlib, subprocess, sys
data = json.loads(pathlib.Path({data!r}).read_text())
words = sys.argv[1:]
if "--version" in words:
    print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.4.1.0 (build 1)")
elif "--query-metrics" in words:
    print("Device NVIDIA H200 (GH100)\\n----- -----")
    print("\\n".join(name + "   Counter  byte  # of something" for name in data["known"]))
else:
    get = lambda key: words[words.index(key) + 1]
    with open(data["calls"], "a") as calls:
        calls.write(json.dumps(words) + "\\n")
    log = pathlib.Path(get("--log-file"))
    bad = [name for name in data["refused"] if name in get("--metrics")]
    if bad:
        log.write_text("".join("==ERROR== Failed to find metric " + name + "\\n" for name in bad))
        sys.exit(1)
    program = words[words.index("--log-file") + 2:]
    subprocess.run(program)
    if data["error"]:
        log.write_text(data["error"])
        sys.exit(1)
    import re
    pattern = get("--kernel-name").removeprefix("regex:")
    log.write_text("".join(line for line in data["csv"].splitlines(True)
                           if not line.startswith('"') or not line.split('","')[0].strip('"').isdigit()
                           or re.search(pattern, line.split('","')[4])))
"""
FAKE_MOE_BENCH = """#!{python}
import json, pathlib, sys
options = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[1:])
rows = json.loads(pathlib.Path({data!r}).read_text())["rows"]
record = {{"commit": "abc", "device": "NVIDIA H200", "driver": "1.2", "target": "sm_90a",
          "date": "2026-01-02T03:04:05Z", "rows": []}}
if options["rows"] not in rows:
    print("moe-bench: error: --rows: names no row; --list prints them")
    sys.exit(1)
assert "profile" in options and "untimed" in options and options["yardstick"] == "none"
record["rows"].append({{"row": options["rows"]}} | rows[options["rows"]])
pathlib.Path(options["json"]).write_text(json.dumps(record))
"""


def launches(*kernels: str) -> list[dict]:
    return [{"kernel": kernel, "ctas": 1, "threads": 256, "bytes": 4e4 if kernel == "output" else 75e6,
             "operations": 7e7 if "experts" in kernel else 0} for kernel in kernels]


@pytest.fixture
def programs(tmp_path):
    data = {"csv": CSV, "error": "", "refused": [], "calls": str(tmp_path / "calls"),
            "known": [name.split(".")[0] for name in METRICS.values()] + [f"x__{i}" for i in range(60)],
            "rows": {"qwen3_30b:1": {"status": "measured", "tokens": 1, "sets": 8, "layer": "qwen3_30b",
                                     "launches": launches(*KERNELS)}}}

    class Programs:
        def __init__(self):
            self.data = data

        def run(self, *options: object, record: dict = RECORD):
            (tmp_path / "data").write_text(json.dumps(data))
            (tmp_path / "record.json").write_text(json.dumps(record))
            for name, text in (("ncu", FAKE_NCU), ("moe-bench", FAKE_MOE_BENCH)):
                path = tmp_path / name
                path.write_text(text.format(python=sys.executable, data=str(tmp_path / "data")))
                path.chmod(path.stat().st_mode | stat.S_IXUSR)
            done = subprocess.run(
                [sys.executable, BENCHMARKS / "counters.py", f"--bin={tmp_path}", f"--ncu={tmp_path / 'ncu'}",
                 f"--record={tmp_path / 'record.json'}", f"--json={tmp_path / 'out.json'}", *map(str, options)],
                capture_output=True, text=True, timeout=120)
            out = tmp_path / "out.json"
            return done, json.loads(out.read_text()) if out.exists() else None

        def calls(self) -> list[list[str]]:
            return [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]

    return Programs()


def test_reads_what_ncu_prints():
    first, second, third = ncu.parse(CSV, METRICS)
    assert [each["kernel"] for each in (first, second, third)] == KERNELS
    assert second["us"] == pytest.approx(16.416) and second["dram_read"] == 75512320
    assert second["tensor"] == 4.12 and second["mhz"] == pytest.approx(1741.2, abs=0.1)
    assert second["active_cycles"] == 27951.2 and second["cycles"] == 28585
    # "n/a" counts as missing.
    assert "dram_write" not in third and third["us"] == 10.24
    assert ncu.count_passes(CSV) == 6


def test_reads_other_units_and_a_line_per_metric():
    text = CSV.replace('"ns"', '"usecond"').replace('"cycle/second"', '"Ghz"').replace('"byte"', '"Kbyte"')
    second = ncu.parse(text, METRICS)[1]
    assert second["us"] == 16416 and second["dram_read"] == 75512320e3 and second["mhz"] == 1741201118.90e3
    # A value in an unknown unit is missing.
    assert "us" not in ncu.parse(CSV.replace('"ns"', '"fortnight"'), METRICS)[1]
    head = '"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"\n'
    rows = ('"0","7","output","Command line","gpu__time_duration.sum","us","1,012.5"\n'
            '"0","7","output","Command line","dram__bytes_read.sum","Mbyte","2"\n'
            '"1","7","permute(int)","Command line","gpu__time_duration.sum","ms","1"\n')
    assert ncu.parse("noise\n" + head + rows, METRICS) == [
        {"kernel": "output", "us": 1012.5, "dram_read": 2e6}, {"kernel": "permute", "us": 1000.0}]


@pytest.mark.parametrize("text", ["", "==ERROR== nothing", '"', '"ID"\n', '"ID","Kernel Name"\n"0"\n"0",""\n',
                                  '"1","2"\n', '"ID","Kernel Name"\n"0","a","b","c"\n'])
def test_reads_anything(text):
    assert all(set(launch) == {"kernel"} for launch in ncu.parse(text, METRICS))


def test_takes_the_metrics_that_are_known():
    assert ncu.choose(set())["tensor"].startswith("sm__pipe_tensor_cycles_active.")
    known = {"sm__pipe_tensor_op_hmma_cycles_active", "smsp__issue_active"}
    chosen = ncu.choose(known)
    assert chosen["tensor"].startswith("sm__pipe_tensor_op_hmma_cycles_active.")
    assert chosen["issue"].startswith("smsp__issue_active.")
    assert set(chosen) == set(ncu.METRICS)


def test_lines_of_rows():
    rows = {row["row"]: row for row in RECORD["rows"]}

    def lines(name, **more):
        return counters.find_lines(rows[name] | more, LINES)

    assert lines("qwen3_30b:1")["fraction"] == 0.60
    assert lines("mixtral8x7b:1") == {"speedup": 1.05}
    # By the touched weights: 11 GB, 1.2 GB of a rank of eight, 0.8 GB, 0.3 GB.
    assert lines("dsv3:64")["fraction"] == 0.93 and lines("dsv3_ep8:1024")["fraction"] == 0.92
    assert lines("qwen3_30b:8", cold_bytes=8 * 0.5e9)["fraction"] == 0.87
    assert "fraction" not in lines("dsv3_ep8:8", cold_bytes=8 * 0.3e9)
    assert lines("mixtral8x7b:1024")["fraction"] == 0.75 and lines("dsv3_ep8:16384")["fraction"] == 0.63
    assert lines("dsv3@zipf:4096").keys() == {"speedup"}
    assert lines("dsv3:64", peer_fraction=0.96)["speedup"] == 0.985
    assert lines("dsv3:64", peer_fraction=0.94)["speedup"] == 1.0
    names = {f"{row['layer']}:{tokens}" for row in json.loads((BENCHMARKS / "rows.json").read_text())["rows"]
             for tokens in row["tokens"]}
    assert {rule["rows"] for rules in LINES.values() for rule in rules} <= names | {"*", "dsv3_ep8:*"}


def test_chooses_rows_below_their_lines():
    row = {"row": "qwen3_30b:1", "status": "measured", "tokens": 1, "fraction": 0.7, "speedup": 1.3,
           "peer_fraction": 0.5}
    slow = row | {"row": "qwen3_next:1", "fraction": 0.5}
    behind = row | {"row": "mixtral8x7b:1", "speedup": 1.04}
    record = {"rows": [row, slow, behind, {"row": "dsv3:1", "status": "failed"}]}
    assert [one["row"] for one in counters.select(record, [], LINES)] == ["qwen3_next:1", "mixtral8x7b:1"]
    assert [one["row"] for one in counters.select(record, ["qwen3*:1"], LINES)] == ["qwen3_30b:1", "qwen3_next:1"]
    assert counters.select(record, ["other@one:4096"], LINES) == [{"row": "other@one:4096"}]
    with pytest.raises(ncu.NcuError, match="names no row"):
        counters.select(record, ["gpt*"], LINES)


def test_measures_a_row(programs):
    done, record = programs.run("--rows=qwen3_30b:1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert record["benchmark"] == "counters" and record["ncu"] == "2025.4.1.0" and record["commit"] == "abc"
    assert record["passes"] == 6 and record["missing"] == []
    row = record["rows"][0]
    assert row["lines"] == {"fraction": 0.6, "speedup": 1} and row["clocks"]["sm_mhz"] == 1980
    assert [kernel["kernel"] for kernel in row["kernels"]] == KERNELS
    assert row["kernels"][1]["operations"] == 7e7 and row["kernels"][1]["us"] == 16.416
    call = programs.calls()[0]
    assert call[call.index("--launch-skip") + 1] == "24" and call[call.index("--launch-count") + 1] == "3"
    assert call[call.index("--clock-control") + 1] == "none"
    assert "| permute | 3.6 | 0.12 |" in done.stdout and "1 of 1 rows measured" in done.stdout
    again = subprocess.run([sys.executable, BENCHMARKS / "counters.py", "--table",
                            Path(call[call.index("--log-file") + 1]).parent], capture_output=True, text=True)
    assert again.returncode == 1 and "counters.py: error:" in again.stderr


def test_measures_what_a_router_adds(programs):
    row = programs.data["rows"]["qwen3_30b:1"]
    row["launches"], row["router_launches"] = launches(KERNELS[-1]), launches(*KERNELS)
    done, record = programs.run("--rows=qwen3_30b:1", "--router")
    assert done.returncode == 0, done.stdout + done.stderr
    assert record["rows"][0]["row"] == "qwen3_30b:1 with router" and record["rows"][0]["lines"] == {}
    assert [kernel["kernel"] for kernel in record["rows"][0]["kernels"]] == KERNELS[:-1]
    call = programs.calls()[0]
    assert call[call.index("--launch-skip") + 1] == "16" and call[call.index("--launch-count") + 1] == "2"
    assert "--router" in call
    row["router_launches"] = []
    done, record = programs.run("--rows=qwen3_30b:1", "--router")
    assert done.returncode == 1 and "no kernels of a router" in record["rows"][0]["reason"]


def test_asks_moe_bench_where_the_record_is_of_other_kernels(programs):
    old = {"ceilings": RECORD["ceilings"], "rows": [
        {"row": "qwen3_30b:1", "status": "measured", "tokens": 1, "sets": 8, "kernels": ["permute", "output"]}]}
    done, record = programs.run("--rows=qwen3_30b:1", record=old)
    assert done.returncode == 0 and len(record["rows"][0]["kernels"]) == 3, done.stdout
    assert len(programs.calls()) == 2
    done, record = programs.run("--rows=qwen3_30b:1", record=old | {"rows": []})
    assert done.returncode == 0 and len(record["rows"][0]["kernels"]) == 3, done.stdout
    assert len(programs.calls()) == 3


def test_goes_on_without_metrics_that_are_refused(programs):
    programs.data["refused"] = [METRICS["shared"], METRICS["l2"]]
    done, record = programs.run("--rows=qwen3_30b:1")
    assert done.returncode == 0, done.stdout
    assert set(record["missing"]) == {"shared", "l2"} and "not measured by this ncu: l2, shared" in done.stdout
    assert "shared" not in record["rows"][0]["kernels"][0] and record["rows"][0]["kernels"][0]["us"] == 3.648


def test_a_row_that_fails_does_not_end_the_others(programs):
    programs.data["rows"]["qwen3_next:1"] = {"status": "failed", "reason": "wrong result"}
    done, record = programs.run("--rows=qwen3_next:1", "--rows=qwen3_30b:8", "--rows=qwen3_30b:1")
    assert done.returncode == 1
    assert [row["status"] for row in record["rows"]] == ["failed", "failed", "measured"]
    assert "wrong result" in record["rows"][0]["reason"] and "names no row" in record["rows"][1]["reason"]
    assert "Not measured: qwen3_next:1, qwen3_30b:8." in done.stdout
    done, record = programs.run("--rows=qwen3_30b:1", "--seconds=-1")
    assert done.returncode == 2 and record["rows"][0]["status"] == "left"


def test_says_why_ncu_measured_nothing(programs):
    programs.data["error"] = "==ERROR== No kernels were profiled.\n"
    done, record = programs.run("--rows=qwen3_30b:1")
    assert done.returncode == 1 and "No kernels were profiled." in record["rows"][0]["reason"]
    programs.data["error"] = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n"
    done, _ = programs.run("--rows=qwen3_30b:1")
    assert done.returncode == 1 and "run as root" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("options,message", [
    (["--ncu=/nowhere/ncu"], "there is no '/nowhere/ncu'"),
    (["--bin=/nowhere"], "--bin says where moe-bench is"),
    (["--record=/nowhere.json"], "/nowhere.json"),
])
def test_what_lacks_is_said(options, message, programs):
    done, record = programs.run("--rows=qwen3_30b:1", *options)
    assert done.returncode == 1 and message in done.stderr and record is None
    assert "Traceback" not in done.stderr


BUSY = {"kernel": "k", "us": 100, "dram_read": 1e8, "dram_write": 0, "tensor": 10, "l2": 10, "shared": 10,
        "issue": 10, "active_cycles": 99, "cycles": 100, "operations": 1}


@pytest.mark.parametrize("change,words", [
    ({}, "none of these (most: memory, 0.25)"),
    ({"us": 9}, "fixed costs"),
    ({"us": 25}, "memory"),
    ({"tensor": 80}, "tensor cores"),
    ({"tensor": 80, "shared": 90}, "shared memory, tensor cores"),
    ({"to_sm_share": 76}, "cache"),
    ({"issue": 75}, "issue slots"),
    ({"active_cycles": 60}, "tail"),
    ({"us": None}, ""),
])
def test_words(change, words):
    kernel = BUSY | change
    assert counters_table.bounds(kernel, {"kernels": [kernel]}, 4e12) == words


def test_words_of_power_and_of_little():
    hot = {"clocks": {"sm_mhz": 1400, "watts": 690}, "kernels": [BUSY, BUSY | {"us": 900, "tensor": 80}]}
    assert counters_table.bounds(hot["kernels"][1], hot, 4e12) == "tensor cores, power"
    cool = hot | {"clocks": {"sm_mhz": 1400, "watts": 600}}
    assert counters_table.bounds(cool["kernels"][1], cool, 4e12) == "tensor cores"
    small = hot | {"kernels": [BUSY | {"us": 20}, BUSY | {"us": 900}]}
    assert "power" not in counters_table.bounds(small["kernels"][0], small, 4e12)
    # A kernel of which only the time is known.
    only = {"kernel": "k", "us": 100}
    assert counters_table.bounds(only, {"kernels": [only]}, None) == ""


def test_table():
    mover = {"kernel": "output", "us": 20, "bytes": 72e6, "operations": 0}
    record = {"device": "NVIDIA H200", "driver": "1.2", "date": "2026-01-02T03:04:05Z", "commit": "abc",
              "ncu": "1", "bandwidth": 4e12, "record": {"commit": "def"}, "rows": [
                  {"row": "a:1", "status": "measured", "fraction": 0.5, "speedup": 1.01,
                   "lines": {"fraction": 0.6, "speedup": 1.0}, "clocks": {"sm_mhz": 1400, "watts": 690.2},
                   "kernels": [BUSY, mover]},
                  {"row": "b:1", "status": "failed", "reason": "x"}]}
    lines = counters_table.table(record)
    first, second = [line for line in lines if line.startswith("| a:1") or "| output" in line]
    assert first.startswith("| a:1 | 0.500 (0.6), 1.010x (1x) | 1400 MHz, 690 W | k | 100.0 | 0.83 | 0.10 | 0.25 |")
    # 72 MB in 20 us are 3.6 TB/s; nothing else is known.
    assert second.count("|") == first.count("|") == lines[2].count("|")
    assert [cell.strip() for cell in second.split("|")][-3:-1] == ["0.90", "power"]
    assert lines[-1] == "Not measured: b:1."
    assert counters_table.table({"rows": []})
