# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The suite itself on the host device: its list, its options, and its detection of errors."""

import json
import subprocess
import sys
from collections import Counter

import pytest
from gpu_cases import FORMATS, TOKENS, everything
from gpu_runs import ROOT, binary, gpu_test

from moec.reference import LayerSpec

ENTRIES = list(everything())


def record(path):
    return json.loads(path.read_text())


def test_names_are_unique():
    names = Counter(entry["name"] for entry in ENTRIES)
    assert [name for name, count in names.items() if count > 1] == []


def test_every_model_has_every_token_count():
    names = {entry["name"] for entry in ENTRIES}
    for path in (ROOT / "test" / "models").glob("*.json"):
        for tokens in TOKENS:
            assert f"models/{path.stem}/{tokens}" in names


def test_spreads_are_checked_in_full():
    spreads = [entry for entry in ENTRIES if entry["name"].startswith("spread/")]
    assert len({entry["name"].split("/")[1] for entry in spreads}) >= 20
    for entry in spreads:
        assert entry["repeats"] == 100 and entry["isolation"] and entry["permutation"]


def test_kernels_are_what_is_asked_for(tmp_path):
    """Options only for sm_90a, which the host cannot test."""
    special = {json.dumps([entry["spec"], entry.get("configs", [])])
               for entry in ENTRIES if entry.get("permute_rows") or "configs" in entry}
    assert len(special) >= 30
    model = tmp_path / "model.json"
    for text in sorted(special):
        spec, configs = json.loads(text)
        model.write_text(json.dumps(spec))
        options = [f"--config={config}" for config in configs] or ["--set=permute-rows.always"]
        kernels = subprocess.run([binary("moe-compile"), model, "--target=sm_90a", *options],
                                 capture_output=True, text=True, check=True).stdout
        wanted = {"l2_rows = 96", "l2_rows = 64"} if configs else {"tile.gather_rows"}
        assert all(part in kernels for part in wanted), text


def test_every_format_has_its_sizes():
    """Formats of the numeric cases, of which some have few tokens there."""
    # Beside the numeric cases, where gpu_cases.py looks.
    from features import format_name

    def formats_of(entries):
        specs = [LayerSpec.from_json(entry["spec"]) for entry in entries]
        return {format_name(quantization) for spec in specs for quantization in spec.quantizations}

    numeric = [entry for entry in ENTRIES if entry["name"].startswith("numeric/")]
    own = [entry for entry in ENTRIES if entry["name"].startswith("formats/")]
    assert len(formats_of(numeric)) >= 30 and formats_of(numeric) <= formats_of(own)
    assert set(Counter(entry["tokens"] for entry in own).values()) == {len(FORMATS)}


def test_list_filter_shard():
    listed = gpu_test("--list").stdout.split()
    assert {entry["name"] for entry in ENTRIES} < set(listed)
    assert "device/launch_cost" in listed and "generator/bf16" in listed
    assert not any(name.startswith("device/") for name in gpu_test(
        "--list", "--device=host").stdout.split())
    some = gpu_test("--list", "--filter=small/*/f16,generator/*").stdout.split()
    assert some and all(name.startswith("generator/") or name.endswith("/f16") for name in some)
    parts = [gpu_test("--list", f"--shard={i}/3").stdout.split() for i in (1, 2, 3)]
    assert sorted(sum(parts, [])) == sorted(listed)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("options,message", [
    (["--filter=nothing"], "no case matches"),
    (["--shard=3/2"], "--shard: '3/2'"),
    (["--data=/nowhere"], "name the folder with cases.json"),
    (["--device=tpu"], "'tpu' is none of"),
    (["--resume=/nowhere.json", "--device=host"], "/nowhere.json"),
    (["--generate=1,w,i8,1,0,1"], "--generate: expected"),
])
def test_bad_options(options, message):
    done = gpu_test(*options)
    assert done.returncode == 1 and message in done.stderr, done.stdout + done.stderr


def test_no_gpu_is_an_error():
    env = {"MOERT_CUDA_LIBRARY": "/nowhere/libcuda.so.1"}
    done = subprocess.run([*gpu_test("--list").args[:1], "--filter=generator/*"],
                          capture_output=True, text=True, env=env)
    assert done.returncode == 1 and "/nowhere/libcuda.so.1" in done.stderr


def test_small_cases_pass_on_the_host(tmp_path):
    path = tmp_path / "results.json"
    done = gpu_test("--device=host", "--filter=small/*,generator/*", f"--json={path}")
    assert done.returncode == 0, done.stdout
    results = record(path)
    assert results["failed"] == results["not_run"] == 0
    assert results["passed"] == len(results["cases"]) >= 56
    assert {"commit", "device", "driver", "date", "target", "seconds"} <= set(results)
    for case in results["cases"]:
        assert case["status"] == "pass" and case["seconds"] >= 0
        if case["name"].startswith("small/"):
            figures = case["figures"]
            assert figures["error"] <= figures["bound"] and figures["rows_compared"] == 45


@pytest.mark.parametrize("plant,message", [
    ("output", "relative error"),
    ("canary", "a kernel wrote byte 7 behind 'workspace'"),
    ("repeat", "run 2: row 22 has different bits (1 rows)"),
])
def test_finds_what_is_planted(plant, message, tmp_path):
    path = tmp_path / "results.json"
    names = [f"small/{name}/bf16" for name in ("uniform_gate", "zipf", "ties")]
    done = gpu_test("--device=host", f"--filter={','.join(names)}", f"--plant={plant}",
                    f"--json={path}")
    assert done.returncode == 1
    assert "0 passed, 3 failed, 0 not run" in done.stdout
    for case in record(path)["cases"]:
        assert case["status"] == "fail"
        assert any(message in failure for failure in case["failures"]), case


def test_finds_what_is_recorded_otherwise(tmp_path):
    path = tmp_path / "results.json"
    done = gpu_test("--device=host", "--filter=small/masked_nan_gate/bf16", "--plant=repeat", f"--json={path}")
    assert done.returncode == 1
    (case,) = record(path)["cases"]
    assert "run 2: recorded results have different bits" in case["failures"], case


def test_resumes(tmp_path):
    path = tmp_path / "results.json"
    options = ["--device=host", "--filter=small/z*,small/u*/bf16", f"--json={path}"]
    first = gpu_test(*options)
    assert first.returncode == 0
    results = record(path)
    names = [case["name"] for case in results["cases"]]
    # Pretends that one case failed and one was not reached.
    results["cases"][0].update(status="fail", failures=["on purpose"])
    results["cases"][1] = {"name": names[1], "status": "not run"}
    results["seconds"] = 1.0
    path.write_text(json.dumps(results))
    second = gpu_test(*options, f"--resume={path}", "--jobs=1")
    assert second.returncode == 0, second.stdout + second.stderr
    ran = [line.split()[3] for line in second.stdout.splitlines() if " PASS " in line]
    assert ran == [names[1], names[0]]
    assert [case["name"] for case in record(path)["cases"]] == names
    assert record(path)["passed"] == len(names)
    assert record(path)["seconds"] > 1
    results["commit"] = "another"
    path.write_text(json.dumps(results))
    refused = gpu_test(*options, f"--resume={path}")
    assert refused.returncode == 1 and "is not a record of this build" in refused.stderr


def test_time_limit(tmp_path):
    path = tmp_path / "results.json"
    done = gpu_test("--device=host", "--filter=small/*", "--time-limit=0.01", "--jobs=1",
                    f"--json={path}")
    assert done.returncode == 2, done.stdout
    results = record(path)
    assert results["not_run"] > 0 and results["failed"] == 0


def test_inputs_of_the_suite_are_those_that_are_named(tmp_path):
    """A rule that does not fit a layer is an error, not a case without effect."""
    subprocess.run([sys.executable, ROOT / "test" / "Gpu" / "gpu_cases.py", tmp_path], check=True)
    cases = json.loads((tmp_path / "cases.json").read_text())
    spec = next(case["spec"] for case in cases["cases"] if case["name"] == "small/zipf/bf16")
    cases["cases"] = [{"name": f"x/{hard}", "tokens": 4, "spec": spec, "hard": hard}
                      for hard in ("ties", "padding", "no_such_rule")]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    done = gpu_test("--device=host", f"--data={tmp_path}", "--filter=x/*")
    assert done.returncode == 1
    assert "hard inputs 'ties': they need keys" in done.stdout
    assert "hard inputs 'padding': they need num_valid_tokens" in done.stdout
    assert "hard inputs 'no_such_rule': unknown rule" in done.stdout


def test_rules_of_the_suite_are_known(tmp_path):
    """Hard inputs of numeric cases are made by Python; on a GPU C++ makes them."""
    subprocess.run([sys.executable, ROOT / "test" / "Gpu" / "gpu_cases.py", tmp_path], check=True)
    cases = json.loads((tmp_path / "cases.json").read_text())
    spec = next(case["spec"] for case in cases["cases"] if case["name"] == "small/zipf/bf16")
    rules = {case["hard"] for case in cases["cases"] if case.get("hard")}
    cases["cases"] = [{"name": f"x/{hard}", "tokens": 4, "spec": spec, "hard": hard}
                      for hard in sorted(rules)]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    done = gpu_test("--device=host", f"--data={tmp_path}", "--filter=x/*")
    assert "unknown rule" not in done.stdout, done.stdout
