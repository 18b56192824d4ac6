# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moe-bench --loads without a GPU: the loads that are drawn, checked results, and the record."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KINDS = ["uniform", "zipf", "hot", "half", "one"]
LAYER = {"num_experts": 8, "top_k": 2, "hidden_size": 128, "intermediate_size": 128, "dtype": "bf16"}
ROWS = {
    "layers": [LAYER | {"name": "tiny"}, LAYER | {"name": "tiny_ep", "local_experts": 2},
               LAYER | {"name": "tiny_single", "top_k": 1}],
    "rows": [{"layer": "tiny", "tokens": [20]}, {"layer": "tiny", "tokens": [20], "zipf_exponent": 1.0},
             {"layer": "tiny_ep", "tokens": [8]}, {"layer": "tiny_single", "tokens": [8]}],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "rows.json").write_text(json.dumps(ROWS))
    (folder / "peers_h200.json").write_bytes((ROOT / "benchmarks" / "peers_h200.json").read_bytes())
    return folder


def run(data, *options: object) -> subprocess.CompletedProcess:
    folder = Path(os.environ.get("MOEC_BIN_DIR", ROOT / "build" / "bin"))
    return subprocess.run([str(folder / "moe-bench"), "--device=sim", f"--data={data}", "--no-cache",
                           *map(str, options)], capture_output=True, text=True, timeout=300)


def rows_of(path) -> dict[str, dict]:
    return {row["row"]: row for row in json.loads(path.read_text())["rows"]}


@pytest.fixture(scope="module")
def tiny(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("loads") / "record.json"
    done = run(data, "--rows=tiny", "--rows=tiny@zipf", "--loads=7", "--candidates=1", f"--json={path}")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, path


def test_every_kind_of_load_is_drawn_and_checked(tiny):
    output, path = tiny
    # The row of Zipf's law would be drawn twice.
    assert list(rows_of(path)) == ["tiny:20"]
    row = rows_of(path)["tiny:20"]
    assert row["status"] == "measured" and row["load_failed"] == 0
    assert [load["kind"] for load in row["loads"]] == [*KINDS, "uniform", "zipf"]
    assert [load["load"] for load in row["loads"]][:4] == ["uniform", "zipf 1.00", "hot 1", "half"]
    # Without a clock there are no times, only results.
    assert all("us" not in load and "regret" not in load for load in row["loads"])
    assert all(load["checked"] for load in row["loads"][:5])
    assert "7 of 7 loads" in output
    for kind in [*KINDS, "all"]:
        assert any(line.split()[:1] == [kind] for line in output.splitlines()), output


def test_loads_are_what_their_kinds_say(tiny):
    loads = {load["kind"]: load for load in rows_of(tiny[1])["tiny:20"]["loads"][:5]}
    # 40 rows of 20 tokens: a token has no expert twice, so that none has more than 20.
    assert all(1 <= load["most_rows"] <= 20 for load in loads.values())
    assert loads["one"]["most_rows"] == 20
    assert 2 <= loads["half"]["experts_touched"] <= 4
    assert loads["hot"]["most_rows"] > loads["uniform"]["most_rows"]


def test_other_configs_are_run_beside_the_chosen_ones(tiny):
    configs = rows_of(tiny[1])["tiny:20"]["load_configs"]
    assert configs[0] == "as compiled"
    # One other config of each gemm, and both at once.
    assert len(configs) == len(set(configs)) == 4
    assert [text.count("sm90.gemm block_m=") for text in configs[1:]] == [1, 1, 2]


def test_experts_of_other_ranks_and_single_choices(data, tmp_path):
    path = tmp_path / "record.json"
    done = run(data, "--rows=tiny_ep", "--rows=tiny_single", "--loads=5", "--candidates=1", f"--json={path}")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = rows_of(path)
    assert all(load["experts_touched"] <= 2 for load in rows["tiny_ep:8"]["loads"])
    # The one expert is local, and takes the only choice of each token.
    assert rows["tiny_ep:8"]["loads"][4]["most_rows"] == 8
    one = rows["tiny_single:8"]["loads"][4]
    assert one["most_rows"] == 8 and one["experts_touched"] == 1


def test_a_short_time_suffices_for_one_load(data, tmp_path):
    path = tmp_path / "record.json"
    done = run(data, "--rows=tiny", "--loads=5", "--seconds=0.001", f"--json={path}")
    assert done.returncode == 0, done.stdout + done.stderr
    row = rows_of(path)["tiny:20"]
    assert len(row["loads"]) == 1 and row["load_configs"] == ["as compiled"]
    assert "1 of 5 loads" in done.stdout


def test_regrets_of_a_record_are_summed_up(tiny, data, tmp_path):
    record = json.loads(tiny[1].read_text())
    for load, regret in zip(record["rows"][0]["loads"], (0.01, 0.05, 0, 0, 0, 0, 0.01)):
        load["regret"] = regret
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record))
    done = run(data, "--rows=tiny", "--loads=7", "--resume", f"--json={path}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "take 1.00% more than the best found (mean of 7 loads), at most 5.00% (tiny:20, zipf 1.00)" in done.stdout
    # A table has other fields, so that its row is measured.
    over = run(data, "--rows=tiny", "--resume", f"--json={path}", "--time-limit=0.001")
    assert over.returncode == 2 and "0 of 1 rows measured" in over.stdout


@pytest.mark.parametrize("options,message", [
    (["--loads=0"], "--loads must be positive"),
    (["--loads=5", "--tune=tuned"], "--loads excludes --profile, --router, --tune, --fit and --beside"),
    (["--loads=5", "--router"], "--loads excludes"),
    (["--loads=5", "--rows=tiny@zipf"], "--loads draws its own routings"),
])
def test_bad_options(data, options, message):
    done = run(data, *options)
    assert done.returncode == 1 and message in done.stderr, done.stdout + done.stderr
