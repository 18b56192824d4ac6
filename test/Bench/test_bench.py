# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moe-bench without a GPU: its table of rows, runs on the simulated device, records, comparisons."""

import ast
import copy
import importlib.util
import json
import os
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
TABLE = json.loads((BENCHMARKS / "rows.json").read_text())
PEERS = json.loads((BENCHMARKS / "peers_h200.json").read_text())
LAYERS = {layer["name"]: layer for layer in TABLE["layers"]}
ALL_CASES = bool(os.environ.get("MOEC_ALL_CASES"))
#: Each layer without the router and with it; a change tests only one of the two.
WAYS = [pytest.param(layer, router, id=f"{layer}-{'gate' if router else 'ids'}")
        for number, layer in enumerate(LAYERS) for router in ((), ("--router",))
        if ALL_CASES or number % 2 == len(router)]

SOFTMAX = {"score": "softmax", "renormalize": True}
TINY = {
    "layers": [
        {"name": "tiny", "num_experts": 8, "top_k": 2, "hidden_size": 128, "intermediate_size": 128,
         "dtype": "bf16", "routing": SOFTMAX},
        {"name": "tiny_ep", "num_experts": 8, "local_experts": 2, "top_k": 2, "hidden_size": 128,
         "intermediate_size": 64, "dtype": "bf16", "routing": SOFTMAX},
        {"name": "tiny_fp8", "num_experts": 4, "top_k": 2, "hidden_size": 128,
         "intermediate_size": 128, "dtype": "fp8_block128", "routing": SOFTMAX},
        {"name": "tiny_single", "num_experts": 8, "top_k": 1, "hidden_size": 128,
         "intermediate_size": 128, "dtype": "bf16", "routing": SOFTMAX},
        {"name": "tiny_int4", "num_experts": 4, "top_k": 2, "hidden_size": 128,
         "intermediate_size": 128, "dtype": "int4_group32", "routing": SOFTMAX},
        {"name": "tiny_e8m0", "num_experts": 4, "top_k": 2, "hidden_size": 128,
         "intermediate_size": 128, "dtype": "fp8_block128_e8m0", "routing": SOFTMAX},
        {"name": "tiny_tensor", "num_experts": 4, "top_k": 2, "hidden_size": 128,
         "intermediate_size": 128, "dtype": "fp8_tensor", "routing": SOFTMAX},
        {"name": "tiny_channel", "num_experts": 4, "top_k": 2, "hidden_size": 128,
         "intermediate_size": 128, "dtype": "fp8_channel", "routing": SOFTMAX},
        {"name": "tiny_mxfp4_fp8", "num_experts": 4, "top_k": 2, "hidden_size": 128,
         "intermediate_size": 128, "dtype": "mxfp4_fp8", "routing": SOFTMAX},
        {"name": "tiny_int8", "num_experts": 4, "top_k": 2, "hidden_size": 128,
         "intermediate_size": 128, "dtype": "int8_channel", "routing": SOFTMAX},
        {"name": "tiny_f16", "num_experts": 4, "top_k": 2, "hidden_size": 128,
         "intermediate_size": 128, "dtype": "q4_k_f16", "routing": SOFTMAX},
        {"name": "impossible", "num_experts": 4, "top_k": 2, "hidden_size": 2000000,
         "intermediate_size": 64, "dtype": "bf16"},
    ],
    "rows": [
        {"layer": "tiny", "tokens": [1, 20]},
        {"layer": "tiny_ep", "tokens": [8]},
        {"layer": "tiny", "tokens": [20], "zipf_exponent": 1.0},
        {"layer": "tiny_fp8", "tokens": [5]},
        {"layer": "impossible", "tokens": [1]},
        {"layer": "tiny_e8m0", "tokens": [5], "on_demand": True},
        {"layer": "tiny_tensor", "tokens": [5], "on_demand": True},
        {"layer": "tiny_channel", "tokens": [5], "on_demand": True},
        {"layer": "tiny_mxfp4_fp8", "tokens": [5], "on_demand": True},
        {"layer": "tiny_int8", "tokens": [5], "on_demand": True},
        {"layer": "tiny_single", "tokens": [20], "routing": "one", "on_demand": True},
        {"layer": "tiny_int4", "tokens": [5], "on_demand": True},
        {"layer": "tiny_f16", "tokens": [5], "on_demand": True},
    ],
}


def moe_bench(*options: object, **more) -> subprocess.CompletedProcess:
    folder = Path(os.environ.get("MOEC_BIN_DIR", ROOT / "build" / "bin"))
    return subprocess.run([str(folder / "moe-bench"), *map(str, options)], capture_output=True,
                          text=True, timeout=300, **more)


def moe_compile(*options: object) -> str:
    folder = Path(os.environ.get("MOEC_BIN_DIR", ROOT / "build" / "bin"))
    return subprocess.run([str(folder / "moe-compile"), *map(str, options)], capture_output=True,
                          text=True, timeout=300, check=True).stdout


def rows_of_table() -> dict[str, tuple[dict, int]]:
    return {f"{entry['layer']}{'@zipf' if 'zipf_exponent' in entry else ''}:{tokens}":
            (LAYERS[entry["layer"]], tokens) for entry in TABLE["rows"] for tokens in entry["tokens"]
            if not entry.get("on_demand")}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "rows.json").write_text(json.dumps(TINY))
    (folder / "peers_h200.json").write_text(json.dumps(PEERS))
    return folder


def run_tiny(data, *options):
    return moe_bench("--device=sim", f"--data={data}", "--no-cache", *options)


def read(path) -> dict:
    return json.loads(path.read_text())


def by_name(record: dict) -> dict[str, dict]:
    return {row["row"]: row for row in record["rows"]}


def test_the_table_has_the_rows_that_are_recorded():
    recorded = [row["row"] for row in PEERS["rows"]]
    assert len(recorded) == len(set(recorded)) == 60
    assert sorted(rows_of_table()) == sorted(recorded)
    assert sorted(moe_bench("--list").stdout.split()) == sorted(recorded)


@pytest.mark.parametrize("peer", PEERS["rows"], ids=lambda peer: peer["row"])
def test_floors_follow_from_shapes(peer):
    layer, tokens = rows_of_table()[peer["row"]]
    elements = 3 * layer["hidden_size"] * layer["intermediate_size"]
    fp8 = layer["dtype"] == "fp8_block128"
    element = {"bf16": 2, "fp8_block128": 1 + 4 / 128**2, "mxfp4": 0.5 + 1 / 32}
    expert = elements * element[layer["dtype"]]
    size = peer["experts_touched"] * expert + 4 * tokens * layer["hidden_size"]
    local = layer.get("local_experts", layer["num_experts"])
    assert size == pytest.approx(peer["bytes"], rel=1e-3)
    operations = 2 * elements * tokens * layer["top_k"] * local / layer["num_experts"]
    if local == layer["num_experts"]:
        assert operations == peer["operations"]
    rates = PEERS["ceilings"]
    floor = max(peer["operations"] / rates["fp8" if fp8 else "bf16"], size / rates["bandwidth"])
    assert floor * 1e6 == pytest.approx(peer["floor_us"], rel=0.01)
    assert peer["best_us"] > peer["floor_us"]
    # The probability that an expert is touched.
    if "@" not in peer["row"]:
        share = 1 - (1 - layer["top_k"] / layer["num_experts"]) ** tokens
        assert peer["experts_touched"] == pytest.approx(local * share, abs=0.15 * local * share + 0.7)


@pytest.mark.parametrize(("layer", "router"), WAYS)
def test_layers_compile(layer, router, tmp_path):
    """At most 24 kernels, however many ranges of tokens. test/PtxHashes compiles PTX of such layers at a change."""
    emit, kernel = ("ptx", ".entry") if ALL_CASES else ("tile", "tile.kernel @")
    (tmp_path / "spec.json").write_text(moe_bench(f"--rows={layer}", "--spec", *router).stdout)
    spec = read(tmp_path / "spec.json")
    for key in ("num_experts", "top_k", "hidden_size", "intermediate_size"):
        assert spec[key] == LAYERS[layer][key]
    assert spec["max_tokens"] == 16384 and spec["entry"] == ("gate" if router else "ids")
    text = moe_compile(tmp_path / "spec.json", "--target=sm_90a", f"--emit={emit}")
    assert 1 <= text.count(kernel) <= 24


def test_rows_are_chosen():
    def listed(*patterns):
        return moe_bench("--list", *(f"--rows={pattern}" for pattern in patterns)).stdout.split()

    assert listed("qwen3_30b:1,8") == ["qwen3_30b:1", "qwen3_30b:8"]
    assert len(listed("dsv3*")) == 16 and len(listed("*@zipf")) == 4
    assert len(listed("llama4*")) == 7
    assert listed("llama4*@one") == ["llama4_maverick@one:4096", "llama4_maverick@one:16384"]
    assert listed("*:16384", "dsv3:1")[0] == "dsv3:1" and len(listed("*:16384", "dsv3:1")) == 9


@pytest.mark.parametrize("options,message", [
    (["--rows=nothing"], "names no row; --list prints them"),
    (["--rows=dsv3:many"], "'many' is not a token count"),
    (["--data=/nowhere"], "/nowhere/rows.json"),
    (["--device=tpu"], "'tpu' is none of"),
    (["--device=host"], "moe-bench measures GPUs"),
    (["--resume"], "--resume needs --json"),
    (["a.json"], "--compare takes two records"),
    (["--compare", "a.json"], "--compare takes two records"),
    (["--compare", "a.json", "b.json"], "a.json"),
    (["--tolerance=much"], "'much' is neither a fraction nor a percentage"),
    (["--time-limit=0"], "must be positive"),
    (["--row-limit=0"], "must be positive"),
    (["--seconds=0"], "must be positive"),
    (["--tune=x.json", "--profile"], "--tune excludes"),
    (["--untimed"], "--untimed needs --profile"),
])
def test_bad_options(options, message):
    done = moe_bench(*options)
    assert done.returncode == 1 and message in done.stderr, done.stdout + done.stderr


def row_of(table: dict, layer: str) -> dict:
    return next(row for row in table["rows"] if row["layer"] == layer)


@pytest.mark.parametrize("change,message", [
    (lambda table: table.pop("rows"), "the lists 'layers' and 'rows'"),
    (lambda table: table["layers"][0].update(dtype="f64"),
     "expected bf16, fp8_block128, fp8_block128_e8m0, fp8_tensor, fp8_channel"),
    (lambda table: table["layers"][0].update(top_k=9), "1 <= top_k <= num_experts"),
    (lambda table: table["rows"][0].update(layer="other"), "no layer has this name"),
    (lambda table: table["rows"][0].update(tokens=[0]), "expected positive numbers"),
    (lambda table: table["rows"][0].update(routing="two"), "expected 'one'"),
    (lambda table: table["rows"][0].update(routing="one"), "needs a layer whose top_k is 1"),
    (lambda table: row_of(table, "tiny_single").update(zipf_exponent=1.0), "needs a layer whose top_k is 1"),
])
def test_bad_tables(change, message, tmp_path):
    table = copy.deepcopy(TINY)
    change(table)
    (tmp_path / "rows.json").write_text(json.dumps(table))
    done = moe_bench("--list", f"--data={tmp_path}")
    assert done.returncode == 1 and message in done.stderr and "rows.json" in done.stderr


def test_tiny_rows_are_right_on_the_simulated_device(data, tmp_path):
    path = tmp_path / "record.json"
    done = run_tiny(data, "--router", f"--json={path}")
    # One layer cannot be compiled; the run goes on.
    assert done.returncode == 2, done.stdout + done.stderr
    record = read(path)
    assert record["benchmark"] == "moe_bench" and record["ceilings"]["source"] == "recorded"
    assert {"commit", "device", "driver", "date", "target"} <= set(record)
    rows = by_name(record)
    assert list(rows) == ["tiny:1", "tiny:20", "tiny@zipf:20", "tiny_ep:8", "tiny_fp8:5",
                          "impossible:1"]
    assert rows.pop("impossible:1")["status"] == "not compiled"
    for name, row in rows.items():
        assert row["status"] == "measured" and row["error"] < 0.05, row
        assert row["rows_compared"] == 2 * row["tokens"] and row["kernels"]
        assert set(row["configs"]) == {"experts_hidden", "experts_out"}
        assert all(config.startswith("sm90.gemm block_m=") for config in row["configs"].values())
        assert ("router_error" in row) == ("router_rows" in row) == ("zipf" not in name)
        # No clock, no times.
        assert "us" not in row and row["floor_us"] > 0 and row["sets"] == 8
    assert rows["tiny:1"]["experts_touched"] == rows["tiny:1"]["rows"] == 2
    assert rows["tiny:1"]["bytes"] == 2 * 3 * 128 * 128 * 2 + 4 * 128
    assert rows["tiny_fp8:5"]["operations"] == 2 * 10 * 3 * 128 * 128
    assert rows["tiny_ep:8"]["rows"] < 8 and rows["tiny_ep:8"]["experts_touched"] <= 2


def test_layers_of_f16(data, tmp_path):
    path = tmp_path / "record.json"
    done = run_tiny(data, "--rows=tiny_f16", f"--json={path}")
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = read(path)["rows"]
    assert row["status"] == "measured" and row["error"] < 2e-3
    assert json.loads(run_tiny(data, "--rows=tiny_f16", "--spec").stdout)["dtype"] == "f16"


def test_weights_of_four_bits(data, tmp_path):
    path = tmp_path / "record.json"
    done = run_tiny(data, "--rows=tiny_int4", f"--json={path}")
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = read(path)["rows"]
    # One bf16 scale per 32 elements.
    experts = row["experts_touched"] * 3 * 128 * 128
    assert row["bytes"] >= experts * 9 / 16 and row["bytes"] < experts * 9 / 16 * 1.1
    refused = run_tiny(data, "--rows=tiny_int*")
    assert refused.returncode != 0


@pytest.mark.parametrize(
    ("name", "element", "scale"),
    # Scales of whole rows are not counted.
    [("tiny_tensor", 1, "tensor"), ("tiny_channel", 1, "token"), ("tiny_int8", 1, "token"),
     ("tiny_mxfp4_fp8", 0.5 + 1 / 32, "token")])
def test_activations_of_a_byte(name, element, scale, data, tmp_path):
    path = tmp_path / "record.json"
    done = run_tiny(data, f"--rows={name}", f"--json={path}")
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = read(path)["rows"]
    assert row["status"] == "measured" and row["error"] < 0.05, row
    assert row["bytes"] == row["experts_touched"] * 3 * 128 * 128 * element + 4 * 5 * 128
    spec = json.loads(run_tiny(data, f"--rows={name}", "--spec").stdout)
    assert spec["quantization"]["activation"]["scale"] == scale


def test_resumes(data, tmp_path):
    path = tmp_path / "record.json"
    options = ["--rows=tiny", f"--json={path}"]
    assert run_tiny(data, *options).returncode == 0
    record = read(path)
    record["rows"][0]["error"] = 0.25
    record["rows"][1] = {"row": "tiny:20", "status": "failed", "reason": "on purpose"}
    path.write_text(json.dumps(record))
    again = run_tiny(data, *options, "--resume")
    assert again.returncode == 0, again.stdout
    rows = by_name(read(path))
    assert rows["tiny:1"]["error"] == 0.25 and rows["tiny:20"]["status"] == "measured"
    record["commit"] = "another"
    path.write_text(json.dumps(record))
    refused = run_tiny(data, *options, "--resume")
    assert refused.returncode == 1 and "is not a record of this build" in refused.stderr


def test_time_limit(data):
    done = run_tiny(data, "--rows=tiny", "--time-limit=0.001")
    assert done.returncode == 2 and "0 of 2 rows measured" in done.stdout


def test_profile_counts_what_kernels_have_to_do(data):
    done = run_tiny(data, "--rows=tiny:20", "--profile", "--disable=join-products")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.strip()}
    # All eight experts, the hidden states, the ids and weights by experts.
    megabytes = float(lines["experts_hidden"][4])
    assert megabytes == pytest.approx(8 * 2 * 128 * 128 * 2 / 1e6, rel=0.05)
    assert float(lines["experts_out"][4]) == pytest.approx(megabytes / 2, rel=0.1)


def test_untimed_profiles_are_recorded(data, tmp_path):
    path = tmp_path / "record.json"
    done = run_tiny(data, "--rows=tiny:20", "--profile", "--untimed", "--disable=join-products",
                    f"--json={path}")
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = read(path)["rows"]
    assert row["row"] == "tiny:20" and row["sets"] == 8 and row["tokens"] == 20
    launches = {launch["kernel"]: launch for launch in row["launches"]}
    assert list(launches)[0] == "permute" and list(launches)[-1] == "output"
    assert launches["output"]["operations"] == 0 and launches["experts_hidden"]["operations"] > 0
    assert all(launch["ctas"] > 0 and launch["bytes"] > 0 for launch in row["launches"])


def test_one_expert_takes_all_tokens(data, tmp_path):
    path = tmp_path / "record.json"
    done = run_tiny(data, "--rows=tiny_single@one", f"--json={path}")
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = read(path)["rows"]
    assert row["row"] == "tiny_single@one:20" and row["routing"] == "one"
    assert row["rows"] == 20 and row["experts_touched"] == 1 and row["error"] < 0.05


def test_profile_of_the_layer_with_its_router(data):
    # Configs are for the layer that has the kernel.
    done = run_tiny(data, "--rows=tiny:20", "--profile", "--router", "--disable=join-products",
                    "--config=router_logits:gpu.gemv block_m=16 block_n=8 block_k=32 threads=64",
                    "--config=permute:threads=512", "--config=route_1:threads=256")
    assert done.returncode == 0, done.stdout + done.stderr
    plain, routed = done.stdout.split("tiny:20 with router:")
    assert "permute" in plain and "router_logits" not in plain
    lines = {line.split()[0]: line.split() for line in routed.splitlines() if line.strip()}
    assert {"router_logits", "route_0", "route_1"} <= set(lines) and "permute" not in lines
    # Bytes of each tile of 16 rows: the gate, the hidden states and the logits.
    assert lines["router_logits"][3] == "2"
    megabytes = (8 * 128 * 2 + 20 * 128 * 2 + 20 * 8 * 4) / 1e6
    assert float(lines["router_logits"][4]) == pytest.approx(megabytes, rel=0.2)


def test_configs_can_be_given(data):
    good = run_tiny(data, "--rows=tiny:1", "--config=experts_hidden:block_n=32 stages=4")
    assert good.returncode == 0, good.stdout
    bad = run_tiny(data, "--rows=tiny:1", "--config=no_such_kernel:block_n=64")
    assert bad.returncode == 2 and "not compiled" in bad.stdout and "no_such_kernel" in bad.stdout
    missing = run_tiny(data, "--rows=tiny:1", "--tuned=/nowhere")
    assert missing.returncode == 1 and "/nowhere" in missing.stderr


def test_tune_writes_what_tuned_takes(data, tmp_path):
    path, record = tmp_path / "tuned", tmp_path / "record.json"
    tune = (f"--tune={path}", "--candidates=1", "--seconds=200", f"--json={record}")
    done = run_tiny(data, "--rows=tiny:1", *tune)
    assert done.returncode == 0, done.stdout + done.stderr
    # One other config of each gemm; without a clock none is better, and none is forced.
    assert "of 2 measured, 0 failed" in done.stdout and "of 1 rows" in done.stdout, done.stdout
    assert read(path / "tiny.json") == {"target": "sm_90a", "configs": []}
    row = by_name(read(record))["tiny:1"]
    assert row["tune_measured"] == 2 and row["tune_failed"] == 0
    assert [config["kernel"] for config in row["tune_configs"]] == ["experts_hidden", "experts_out"]
    again = run_tiny(data, "--rows=tiny:1", f"--tuned={path}")
    assert again.returncode == 0, again.stdout

    # A table has other fields, so that its row is measured.
    table = tmp_path / "table.json"
    table.write_bytes(record.read_bytes())
    done = run_tiny(data, "--rows=tiny:1", f"--json={table}", "--resume")
    assert done.returncode == 0 and "floor_us" in by_name(read(table))["tiny:1"], done.stdout

    # Measured candidates are kept and counted; better ones are used.
    row |= {"tune_chosen_us": 12.0, "tune_found_us": 10.0}
    record.write_text(json.dumps(read(record) | {"rows": [row]}))
    done = run_tiny(data, "--rows=tiny:1", *tune, "--resume")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1.200 times as long as the best (geometric mean of 1 rows), at most 1.200 (tiny:1)" in done.stdout
    tuned = read(path / "tiny.json")["configs"]
    assert [config["kernel"] for config in tuned] == ["experts_hidden", "experts_out"]
    assert all(config["tokens"] == [1, 20] for config in tuned)
    again = run_tiny(data, "--rows=tiny:1", f"--tuned={path}")
    assert again.returncode == 0, again.stdout


def make_record(us: dict[str, float], device="NVIDIA H200", floor=10.0) -> dict:
    rows = [{"row": name, "status": "measured", "us": value, "fraction": floor / value}
            for name, value in us.items()]
    return {"benchmark": "moe_bench", "device": device, "rows": rows}


def compare(tmp_path, old, new, *options):
    paths = [tmp_path / "old.json", tmp_path / "new.json"]
    for path, record in zip(paths, (old, new)):
        path.write_text(json.dumps(record))
    return moe_bench("--compare", *paths, *options)


def test_compare(tmp_path):
    old = make_record({"a:1": 20, "a:8": 30, "b:1": 40})
    same = compare(tmp_path, old, make_record({"a:1": 20.5, "a:8": 29, "b:1": 40, "c:1": 9}))
    assert same.returncode == 0 and "3 rows, speedup 1.003" in same.stdout, same.stdout
    slower = compare(tmp_path, old, make_record({"a:1": 20, "a:8": 31, "b:1": 40}))
    assert slower.returncode == 1
    assert [line.split()[0] for line in slower.stdout.splitlines() if "SLOWER" in line] == ["a:8"]
    tolerated = compare(tmp_path, old, make_record({"a:1": 20, "a:8": 31, "b:1": 40}),
                        "--tolerance=0.05")
    assert tolerated.returncode == 0
    lost = make_record({"a:1": 20, "a:8": 30, "b:1": 40})
    lost["rows"][2] = {"row": "b:1", "status": "failed", "reason": "wrong result"}
    gone = compare(tmp_path, old, lost)
    assert gone.returncode == 1 and "LOST" in gone.stdout
    # Each record has its own floor: a slower machine does not mean a slower kernel.
    assert compare(tmp_path, old, make_record({"a:1": 22, "a:8": 33, "b:1": 44},
                                              floor=11.0)).returncode == 0


@pytest.mark.parametrize("old,new,message", [
    (make_record({"a:1": 1}), make_record({"a:1": 1}, device="other"), "of another device"),
    ({"benchmark": "gpu_suite", "rows": []}, make_record({}), "the old file is not a record of moe-bench"),
    (make_record({}), make_record({}), "no row with a time"),
])
def test_what_cannot_be_compared(old, new, message, tmp_path):
    done = compare(tmp_path, old, new)
    assert done.returncode == 1 and message in done.stderr


def measured_record() -> dict:
    rows = []
    for peer in PEERS["rows"]:
        layer, tokens = rows_of_table()[peer["row"]]
        share = peer["floor_us"] / peer["best_us"]
        rows.append({"row": peer["row"], "layer": layer["name"], "tokens": tokens,
                     "status": "measured", "us": peer["best_us"] / 1.1, "fraction": 1.1 * share,
                     "peer_fraction": share, "speedup": 1.1})
    rows[-1] = {"row": rows[-1]["row"], "status": "not compiled", "reason": "of no interest"}
    return {"benchmark": "moe_bench", "device": "NVIDIA H200", "driver": "1.2", "commit": "abc",
            "date": "2026-01-02T03:04:05Z", "ceilings": PEERS["ceilings"] | {"source": "measured"},
            "rows": rows}


def load_script(name: str, path: Path):
    spec = importlib.util.spec_from_loader(name, SourceFileLoader(name, str(path)))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_table_of_the_readme():
    text = "\n".join(load_script("results_table", ROOT / "scripts/results-table")
                     .bench_table(measured_record()))
    assert "over 59 rows" in text and "speedup 1.100x" in text
    assert "Not measured: qwen3_235b@zipf:4096." in text
    best = next(peer for peer in PEERS["rows"] if peer["row"] == "qwen3_30b:1")
    assert f"| qwen3_30b | {best['best_us'] / 1.1:.0f} (" in text


def test_tables_of_the_router_and_of_one_expert():
    """A record of rows with routers, or of rows compared with dense gemms, has a separate table."""
    tables = load_script("results_table", ROOT / "scripts/results-table").bench_tables
    record = measured_record()
    assert "over 59 rows" in "\n".join(tables(record))
    row = {"row": "mixtral8x7b:1", "tokens": 1, "status": "measured", "us": 160.0}
    text = "\n".join(tables(record | {"rows": [row | {"router_us": 168.0, "router_ids_us": 161.0}]}))
    assert "| mixtral8x7b:1 | 161.0 | 168.0 | +7.0 us, +4.3 % |" in text and "floor" not in text
    row |= {"row": "mixtral8x7b@one:1", "dense_ratio": 1.25}
    text = "\n".join(tables(record | {"rows": [row]}))
    assert "takes 1.25 times (mixtral8x7b, 1 tokens: 160 us) what the dense product" in text


def test_table_of_other_runs():
    """The first record has the table, others a line each: the differences, and the rows that are behind."""
    script = load_script("results_table", ROOT / "scripts/results-table")
    older, newer = measured_record(), measured_record() | {"date": "2126-01-02T03:04:05Z"}
    for row in older["rows"][:-1]:
        row["speedup"] = 1.25
    newer["rows"] = [dict(row) for row in older["rows"]]
    newer["rows"][3]["speedup"] = 0.976
    assert script.is_whole_run(older) and not script.other_runs([])
    lines = script.other_runs([older, newer])[-2:]
    assert "| 2126-01-02 |" in lines[0] and f"| {newer['rows'][3]['row']} 0.976 |" in lines[0]
    assert lines[1].endswith("| 1.250x over 59 rows | none |")
    text = "\n".join(script.all_runs([older, newer]))
    assert "Over 2 runs" in text and "58 to 59 of 59 rows are ahead" in text and "1.245 to 1.250" in text


def test_pages_of_figures():
    """The README has only the newest run; other runs and records are on another page."""
    script = load_script("results_table", ROOT / "scripts/results-table")
    older, newer = measured_record(), measured_record() | {"date": "2126-01-02T03:04:05Z", "commit": "def"}
    pages = {path.name: text for path, text in script.pages([newer, older]).items()}
    assert "2126-01-02, commit def" in pages["README.md"] and "commit abc" not in pages["README.md"]
    assert "| abc | 2026-01-02 |" in pages["records.md"] and "| qwen3_30b |" not in pages["records.md"]
    assert script.NO_COUNTERS[0] in pages["bounds.md"]


def test_compact_records(tmp_path, monkeypatch, capsys):
    """A line for each row, also in nested parts; equal JSON; --check names files that are not compact."""
    script = load_script("compact_records", ROOT / "scripts/compact-records")
    record = {"commit": "abc", "notes": ["a", "b"], "rows": [{"us": 1e-7, "all": [1, 2]}, {"us": 13.133479999999999}],
              "parts": {"exchange": {"notes": [], "rows": [{"\u00b5s": None}]}}, "none": []}
    text = script.compact(json.dumps(record, indent=2))
    assert json.loads(text) == record and script.compact(text) == text
    assert '\n  {"us": 1e-07, "all": [1, 2]},\n' in text and '\n    {"\u00b5s": null}\n' in text
    assert '\n "notes": ["a", "b"],\n' in text and text.endswith(' "none": []\n}\n')
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "RESULTS", tmp_path)
    (tmp_path / "old.json").write_text(json.dumps(record, indent=2))
    monkeypatch.setattr(sys, "argv", ["compact-records", "--check"])
    assert script.main() == 1 and "old.json is not compact" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["compact-records"])
    assert script.main() == 0 and (tmp_path / "old.json").read_text() == text


def test_line_of_tuning():
    tables = load_script("results_table", ROOT / "scripts/results-table").bench_tables
    names = {"mixtral8x7b:1": (110.0, 100.0, 7), "mixtral8x7b:8": (100.0, 130.0, 5), "dsv3:1": (100.0, 90.0, 0)}
    rows = [{"row": name, "status": "measured", "tune_chosen_us": chosen, "tune_found_us": found,
             "tune_measured": count} for name, (chosen, found, count) in names.items()]
    text = "\n".join(tables(measured_record() | {"rows": rows}))
    # The last row was not measured; the geometric mean is that of 1.1 and 1.
    assert "takes 1.049 times" in text and "over 2 rows and 12 configs, at most 1.100 times (mixtral8x7b:1;" in text


def test_plot(tmp_path):
    (tmp_path / "record.json").write_text(json.dumps(measured_record()))
    plot = [sys.executable, BENCHMARKS / "plot.py", tmp_path / "record.json", tmp_path / "plot.svg"]
    subprocess.run(plot, check=True)
    text = (tmp_path / "plot.svg").read_text()
    # A dot per row and series, and two in the legend.
    assert text.count("<circle") == 2 * 59 + 2 and text.count("font-weight") == 10
    # The best row is higher than the worst.
    heights = [float(y) for y in re.findall(r'cy="([\d.]+)" r="2.4" fill="#0b6e4f"', text)]
    assert len(heights) == 59 and max(heights) - min(heights) > 50


def test_the_yardstick_answers_what_is_asked():
    """The yardstick needs PyTorch and a GPU; here only its options are checked."""
    tree = ast.parse((BENCHMARKS / "yardstick.py").read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    main = ast.unparse(functions["main"])
    source = (ROOT / "lib" / "Tools" / "Bench" / "Table" / "TimeRow.cpp").read_text()
    asked = set(re.findall(r'(?:"do",\s*|observeYardstick\(\s*)"(\w+)"', source))
    assert len(asked) == 7
    for name in asked:
        assert name in functions and re.search(rf"\b{name}\b", main)
