# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/engine without vLLM: jobs, records, tables, and the results after a job that fails or hangs."""

import importlib.util
import json
import logging.config
import os
import subprocess
import sys
import time
import types
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "engine"))
import jobs  # noqa: E402
import models  # noqa: E402
import plugin_log  # noqa: E402
import record  # noqa: E402
import summary  # noqa: E402


def load(name: str, path: Path) -> types.ModuleType:
    loader = SourceFileLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


benchmark = load("engine_benchmark", ROOT / "benchmarks/engine/__main__.py")

NAMES = tuple(models.MODELS)
HEAD = {"engine": "vllm 0.33.0", "device": "none", "commit": "abc", "torch": "2.11", "date": "2026-11-28"}


@pytest.mark.parametrize("text, experts, mode, layers", [
    ("q3:base:all:pm:9", "base", "compile", 0), ("q3:moec-no-compile:4:mp:9", "moec", "no-compile", 4),
    ("q3:triton_unfused-eager:4:mp:9", "triton_unfused", "eager", 4),
    ("q3:moec-piecewise:4:mp:9", "moec", "piecewise", 4),
    ("q3:moec-chunked:4:mp:9", "moec", "chunked", 4), ("q3:base-speculative:4:mp:9", "base", "speculative", 4),
    ("q3:moec-dp2:4:mp:9", "moec", "dp2", 4)])
def test_job(text: str, experts: str, mode: str, layers: int) -> None:
    job = jobs.parse_job(text, NAMES)
    assert (job.model, job.experts, job.mode, job.layers, job.parts) == ("q3", experts, mode, layers, "mp")


@pytest.mark.parametrize("text, field", [
    ("q3:base:all:m", "4 fields"), ("q4:base:all:m:9", "MODEL 'q4'"), ("q3:base-graph:all:m:9", "VARIANT 'base-graph'"),
    ("q3:base:0:m:9", "LAYERS '0'"), ("q3:base:all:mm:9", "WHAT 'mm'"), ("q3:base:all:x:9", "WHAT 'x'"),
    ("q3:base:all::9", "WHAT ''"), ("q3:base:all:m:0", "SECONDS '0'"), ("q3:base:all:m:nan", "SECONDS 'nan'")])
def test_a_wrong_job_names_the_field(text: str, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        jobs.parse_job(text, NAMES)


def test_jobs_of_a_group_share_the_gpu() -> None:
    assert [(job.experts, job.is_shared) for job in jobs.parse_group("q3:base:4:c:9+q3:moec:4:c:9", NAMES)] == [
        ("base", True), ("moec", True)]
    assert [job.is_shared for job in jobs.parse_group("q3:base:4:c:9", NAMES)] == [False]
    with pytest.raises(ValueError, match="job '' has 1 fields"):
        jobs.parse_group("q3:base:4:c:9+", NAMES)


def test_jobs_of_several_gpus_run_alone() -> None:
    assert [jobs.parse_job(f"q3:base{mode}:4:c:9", NAMES).ranks for mode in ("", "-tp2", "-dp2")] == [1, 2, 2]
    with pytest.raises(ValueError, match="mode tp2 takes 2 GPUs; give it a group of its own"):
        jobs.parse_group("q3:base:4:c:9+q3:moec-tp2:4:c:9", NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_models(name: str) -> None:
    config = models.make_config(name, 6)
    assert config["num_hidden_layers"] == 6
    assert models.make_config(name)["num_hidden_layers"] == models.MODELS[name].layers > 6
    assert len(config.get("layer_types", range(6))) == 6
    quantization = config.get("quantization_config", {"quant_method": "bf16"})
    wanted = models.MODELS[name].format.lower()
    assert ("bf16" in wanted) == (quantization["quant_method"] == "bf16")


def test_plugin_log_outlives_the_engine_s_configuration() -> None:
    log = plugin_log.PluginLog()
    logging.config.dictConfig({
        "version": 1, "disable_existing_loggers": False, "loggers": {"vllm": {"level": "INFO", "propagate": False}}})
    logger = logging.getLogger("vllm.moec")
    logger.info("moec runs the experts of %d layers (%s)", 47, "fp8")
    logger.warning("moec: GPTQ experts keep vLLM's kernel: --moe-backend asks for marlin")
    logger.info("moec runs the experts of 1 layers (16-bit), with their router")
    assert len(log.lines) == 3 and log.count_layers() == 48
    logger.removeFilter(log)


def test_log_probabilities() -> None:
    found = record.compare_log_probabilities([-1.0, -2.0, float("nan")], [-1.5, -2.0, -3.0])
    assert found == {"tokens": 3, "not_finite": 1, "mean": 0.25, "max": 0.5}
    with pytest.raises(ValueError):
        record.compare_log_probabilities([1.0], [1.0, 2.0])


def test_record_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    first = record.Record(path, HEAD)
    first.add(what="a", time=1)
    first.add(what="b")
    assert first.compare("j1", "q3", 4, [0.0, 1.0]) == []
    again = record.Record(path, HEAD | {"date": "later"})
    assert [row["what"] for row in again.rows] == ["a", "b"]
    again.add(what="c")
    there = json.loads(path.read_text())
    assert there["date"] == "later" and there["engine"] == "vllm 0.33.0" and len(there["rows"]) == 3
    # Other layers have other weights.
    assert again.compare("j2", "q3", 2, [0.0]) == []
    (found,) = again.compare("j3", "q3", 4, [0.0, 3.0])
    assert found == {"against": "j1", "tokens": 2, "not_finite": 0, "mean": 1.0, "max": 2.0}
    with pytest.raises(ValueError, match="commit 'abc'"):
        record.Record(path, HEAD | {"commit": "def"})


def make_rows() -> list:
    """4 layers: a step of 2 ms (base) and 1.9 (marlin) and 1.6 (moec), where moec has the same kernels of attention."""
    def row(experts: str, what: str, **found) -> dict:
        return {"model": "q3", "published": "qwen3-30b-a3b", "format": "bf16", "layers": 4, "mode": "compile",
                "experts": experts, "what": what, **found}

    def kernels(experts: str, **found) -> dict:
        return row(experts, "kernels", phase="decode", size=1, kernels={
            "attention": [4, 900.0], f"triton_red_fused_{len(found)}_7": [4, 10.0], **found})

    return [
        row("base", "decode", size=1, all_ms=[2.0, 9.0, 1.0]), row("moec", "decode", size=1, all_ms=[1.6]),
        row("marlin", "decode", size=1, all_ms=[1.9]),
        row("moec", "start", moec_layers=4, seconds=12.5, kernels={"MoecExperts": 4}),
        kernels("base", fused_moe=[8, 800.0]) | {"busy_us": 1900.0},
        kernels("moec", hidden=[4, 500.0], out=[4, 100.0]) | {"busy_us": 1500.0},
        row("base", "prefill", size=1024, all_ms=[50.0]),
        row("base", "memory", kv_cache_gib=66.25, model_gib=57.0),
        row("moec", "memory", kv_cache_gib=66.5, model_gib=56.5),
        row("moec", "outputs", same_twice=True, not_finite=0),
        row("moec", "log-probabilities", against="q3:base-compile:4", mean=0.02, max=1.5, not_finite=0),
        row("marlin", "time limit", error="killed after 9 s"),
        row("moec", "few tokens", new=[2, 12], tokens=16, mean=0.21, max=0.69),
        row("moec", "drafts", drafts=9, draft_tokens=45, accepted_tokens=20, tokens=64, first=61, worst=3),
        *(row("moec", "serving", size=16, tokens_per_second=speed, first_token_ms={"p99": 80.0},
              next_token_ms={"p99": 9.0}) for speed in (812.4, 902.0)),
    ]


def test_ratio_is_to_the_best_of_the_engine() -> None:
    rows, case = make_rows(), ("q3", 4, "compile")
    assert summary.find_best(rows, case, ("decode", 1)) == (1.9, "marlin")
    assert summary.find_ratio(rows, case, ("decode", 1)) == pytest.approx(1.9 / 1.6)
    assert summary.find_ratio(rows, case, ("prefill", 1024)) is None


def test_times_of_experts() -> None:
    found = summary.expert_times(make_rows(), ("q3", 4, "compile"), ("decode", 1))
    # By the step: 800 / 4 less 0.4 ms / 4.
    assert found == pytest.approx((200, 150, 100))


def test_differences_are_to_jobs_of_the_same_mode() -> None:
    def row(against: str) -> dict:
        return make_rows()[0] | {"what": "log-probabilities", "against": against, "mean": 0.5, "max": 1.0}

    eager, same = row("q3:base-eager:4"), row("q3:base-compile:4")
    assert summary.choose_others([eager, same]) == [same] and summary.choose_others([eager]) == [eager]


def test_table() -> None:
    text = "\n".join(summary.make_tables(make_rows()))
    for cell in ("1.90 / 1.60 (1.19)", "50.00 / -", "200 / 150 / 100", "| 66.25 | 66.50 | +0.25 |", "| 56.50 |",
                 "same twice; mean 0.0200, max 1.50 to", "TIME LIMIT: killed after 9 s", "20 of 45 drafted tokens",
                 "2 to 12 tokens of a request: mean 0.2100", "| 812, 902 | 80.0, 80.0 | 9.00, 9.00 |",
                 "1.90 / 1.50 (1.27)", "| moec | 4 MoecExperts | 12.5 |"):
        assert cell in text, (cell, text)


def test_pages(tmp_path: Path) -> None:
    script = load("engine_table", ROOT / "scripts/engine-table")
    assert script.page([], summary.TABLES) == script.short([]) == ["", script.NO_RECORD]
    older = HEAD | {"date": "2026-11-27", "driver": "580", "rows": make_rows()[:1]}
    newer = HEAD | {"driver": "580", "rows": make_rows()[1:]}
    other = newer | {"device": "another", "rows": make_rows()}
    groups = script.group([older, newer, other])
    # Files of one GPU and commit are one record.
    assert [(each["device"], len(each["rows"])) for each in groups] == [("none", 16), ("another", 16)]
    text = "\n".join(script.page(groups, summary.TABLES))
    assert text.count("1.90 / 1.60 (1.19)") == 2 and "commit abc" in text and "vllm 0.33.0, PyTorch 2.11" in text
    assert "\n".join(script.short(groups)).count("| qwen3-30b-a3b | bf16 | 4 | compile | 1.19 |") == 2
    # The host bounds steps of four layers, so the short page has the GPU's time alone.
    text = "\n".join(script.short_page(groups))
    assert text.count("| qwen3-30b-a3b | bf16 | 4 | compile | 1.27 |") == 2 and "1.19" not in text
    assert text.count("### vllm 0.33.0 on ") == 2 and "| abc |" in text
    whole = [row | {"layers": 48} for row in make_rows()]
    assert "| 48 | compile | 1.19 |" in "\n".join(script.short_page([newer | {"rows": whole}]))
    # Other tables are on the page beside the records alone.
    assert "| 812, 902 |" not in text and "66.25" not in text
    # An older record of the same GPU supplies tables that the newer one lacks: here the memory.
    newest = HEAD | {"commit": "new", "driver": "580", "rows": [row for row in make_rows() if row["what"] != "memory"]}
    first, last = "\n".join(
        script.page([newest, older | {"rows": make_rows()}], summary.TABLES)).split("commit abc; ")
    assert "(1.19)" in first and "66.25" not in first and "(1.19)" not in last and "+0.25" in last
    # An older record supplies rows that a newer one lacks.
    fp8 = [row | {"model": "q3fp8", "published": "qwen3-fp8"} for row in make_rows()]
    lines = "\n".join(script.short([newer | {"rows": make_rows()}, older | {"rows": make_rows() + fp8}]))
    assert lines.count("| qwen3-30b-a3b |") == lines.count("| qwen3-fp8 |") == 1
    page = tmp_path / "page.md"
    page.write_text(f"head\n{script.BEGIN}\nold\n{script.END}\ntail\n")
    assert script.put(page, ["", "new"]) == f"head\n{script.BEGIN}\nnew\n\n{script.END}\ntail\n"


def test_jobs_that_fail_and_hang_leave_the_others(tmp_path: Path) -> None:
    def run_job(job: jobs.Job, folder: Path, add, compare, turn) -> None:
        add("start", seconds=1)
        if job.layers == 2:
            raise RuntimeError("no layer runs in moec")
        if job.layers == 3:
            os.kill(os.getpid(), 9)
        if job.layers == 4:
            os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "60")
            time.sleep(60)
        if job.layers == 5:
            add("log-probabilities", **compare([1.5])[0])
        else:
            compare([1.0])

    fake = types.SimpleNamespace(run_job=run_job, describe_job=lambda job: {"job": str(job), "layers": 1})
    file = record.Record(tmp_path / "r.json", HEAD)
    done = [
        benchmark.run_group(jobs.parse_group(f"q3:{experts}:{layers}:c:0.4", NAMES), fake, file, tmp_path / "log")
        for experts, layers in (("base", 1), ("moec", 2), ("moec", 3), ("moec", 4), ("moec", 5))]
    assert done == [True, False, False, False, True]
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert [row["what"] for row in rows] == [
        "start", "start", "failed", "start", "failed", "start", "time limit", "start", "log-probabilities"]
    assert rows[2]["error"] == "RuntimeError: no layer runs in moec" and "signal 9" in rows[4]["error"]
    assert rows[-1]["against"] == "q3:base-compile:1" and rows[-1]["max"] == 0.5


def test_jobs_of_a_group_measure_in_turn(tmp_path: Path) -> None:
    """One dies while it starts, one while it measures, one never ends; the others continue."""
    def run_job(job: jobs.Job, folder: Path, add, compare, turn) -> None:
        if job.layers == 1:
            raise RuntimeError("no memory")
        for step in range(3):
            turn()
            add("step", step=step)
            if job.layers == 3 and step == 1:
                os.kill(os.getpid(), 9)
            if job.layers == 4 and step == 2:
                time.sleep(60)

    fake = types.SimpleNamespace(run_job=run_job, describe_job=lambda job: {"job": job.layers})
    file = record.Record(tmp_path / "r.json", HEAD)
    group = jobs.parse_group("+".join(f"q3:base:{layers}:c:2" for layers in (1, 2, 3, 4, 5)), NAMES)
    assert not benchmark.run_group(group, fake, file, tmp_path / "log")
    rows = [(row["job"], row.get("step", row["what"])) for row in file.rows]
    assert rows == [(1, "failed"), *[(job, 0) for job in (2, 3, 4, 5)], (2, 1), (3, 1), (3, "failed"), (4, 1), (5, 1),
                    (2, 2), (4, 2), (4, "time limit"), (5, 2)]


def test_time_in_which_kernels_ran() -> None:
    assert record.join_times([(5, 6), (0, 2), (1, 3), (1, 2), (3, 4)]) == 5 and record.join_times([]) == 0


def test_ranks_know_their_number() -> None:
    """In processes of their own, as jobs are."""
    code = """
import importlib.util, os, sys
sys.path.insert(0, sys.argv[1])
spec = importlib.util.spec_from_file_location("engine", sys.argv[1] + "/__main__.py")
engine = importlib.util.module_from_spec(spec)
spec.loader.exec_module(engine)
rank = engine.start_ranks(3)
os.write(1, (" ".join([str(rank), *(os.environ[name] for name in ("RANK", "WORLD_SIZE", "NCCL_NVLS_ENABLE"))]) + "\\n").encode())
while rank == 0:
    try:
        os.wait()
    except ChildProcessError:
        break
"""
    done = subprocess.run([sys.executable, "-c", code, str(ROOT / "benchmarks/engine")], capture_output=True, text=True)
    assert sorted(done.stdout.splitlines()) == ["0 0 3 0", "1 1 3 0", "2 2 3 0"], done.stderr
