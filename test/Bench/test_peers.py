# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows, records and tables of benchmarks/peers.py, without PyTorch."""

from __future__ import annotations

import json
import pathlib
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import asked_table  # noqa: E402
import peer_rows  # noqa: E402
import peers_table  # noqa: E402

ASKED = BENCHMARKS / "asked.json"
LAYERS = {layer["name"]: layer for layer in json.loads(ASKED.read_text())["layers"]}
HEAD = {"benchmark": "peers", "commit": "abc", "device": "a GPU", "date": "2026-12-01T00:00:00Z", "torch": "2.11",
        "vllm": "0.33.0"}


def test_each_layer_that_was_asked_for_has_peers() -> None:
    rows, others = peer_rows.read_rows(ASKED)
    assert not others and {row.layer.name for row in rows} == set(LAYERS)
    assert len(rows) == sum(len(row["tokens"]) for row in json.loads(ASKED.read_text())["rows"])


def test_rows_of_the_table_of_moe_bench() -> None:
    """Rows with skewed ids are left out, and those on demand unless they are named."""
    rows, others = peer_rows.read_rows(BENCHMARKS / "rows.json")
    names = {row.layer.name for row in peer_rows.choose_rows(rows, "")}
    assert {"dsv3", "mixtral8x7b", "gptoss120b"} <= names and "dsv3_tensor" not in names
    assert [row.name for row in peer_rows.choose_rows(rows, "dsv3_tensor")][0] == "dsv3_tensor:1"
    assert "qwen3_30b_q4_k" in others and len({row.name for row in rows}) == len(rows)


def choose(text: str) -> list[str]:
    return [row.name for row in peer_rows.choose_rows(peer_rows.read_rows(ASKED)[0], text)]


def test_rows_are_chosen_by_name_and_tokens() -> None:
    assert choose("llada:1,8;e60:7") == ["llada:1", "llada:8", "e60:7"]
    assert choose("llada") == [f"llada:{count}" for count in (1, 8, 64, 1024, 4096)]
    assert choose("lfm2_*:64; lfm2_8b:64") == ["lfm2_8b:64", "lfm2_24b:64"]
    assert len(choose("")) == len(peer_rows.read_rows(ASKED)[0])


@pytest.mark.parametrize("text, message", [
    ("foo:1", "no layer with peers has a name like 'foo'"), ("llada:x", "'x' found"), ("llada:0", "'0' found"),
    ("llada:20000", "1 to 16384 tokens expected"), ("llada:1;;", "has a name like ''")])
def test_rows_that_do_not_exist(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", "[(]")):
        choose(text)


def test_experts_that_a_call_touches() -> None:
    layer = next(row.layer for row in peer_rows.read_rows(ASKED)[0] if row.layer.name == "qwen3_235b_ep8_fp8")
    assert layer.expect_touched(1) == pytest.approx(1) and layer.expect_touched(4096) == pytest.approx(16)
    assert layer.weight_bytes == 3 * 16 * 4096 * 1536


def make_row(layer: str, tokens: int, table: str, **us: float) -> dict:
    row = {"layer": layer, "tokens": tokens, "format": LAYERS[layer]["dtype"], "us": us, "refused": {},
           "tables": {"triton": table}}
    best = peer_rows.find_best(us)
    return row | ({"best": best, "ratio": us[best] / us["moec"]} if best and "moec" in us else {})


ROWS = [make_row("llada", 1, "default", moec=10, triton=15), make_row("qwen35_35b_int4", 64, "tuned", moec=100, triton=95,
                                                                     marlin=80, humming=90),
        make_row("llada", 8, "default", moec=10)]


def test_fastest_peer() -> None:
    assert [row.get("best") for row in ROWS] == ["triton", "marlin", None]
    assert [row.get("ratio") for row in ROWS] == [1.5, 0.8, None]


def test_record_is_gone_on_with(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "record.json"
    layer = peer_rows.read_rows(ASKED)[0][0].layer
    record = peer_rows.Record(path, HEAD, False)
    record.add(ROWS[0])
    record.lose(layer, "marlin", "an illegal address")
    again = peer_rows.Record(path, HEAD, True)
    assert again.done == {"llada:1"} and again.find_lost(layer) == {"marlin": "an illegal address"}
    again.add(ROWS[1])
    assert json.loads(path.read_text())["rows"] == ROWS[:2] and list(tmp_path.iterdir()) == [path]
    assert peer_rows.Record(path, HEAD, False).done == set()
    with pytest.raises(ValueError, match="device 'a GPU' found, 'other' expected"):
        peer_rows.Record(path, HEAD | {"device": "other"}, True)


def test_page() -> None:
    """The rows of layers in the table; a newer record's row counts."""
    record = HEAD | {"rows": ROWS}
    text = "\n".join(peers_table.table([record], LAYERS, (1, 8, 64)))
    assert "1 of 2 rows are ahead of their best peer, with 1.10 as geometric mean." in text
    assert "tuned configs for 1 of the rows that it ran, and its default config in 1." in text
    assert "Behind the best peer: `qwen35_35b_int4:64` 0.80 (Marlin)." in text
    assert "| `llada` | bf16 | 1.50 Triton 15:10 |  |  |" in text
    assert "| `qwen35_35b_int4` | int4_group32 |  |  | 0.80 Marlin 80:100 |" in text
    newer = HEAD | {"date": "2026-12-02T00:00:00Z", "rows": [make_row("llada", 1, "tuned", moec=10, triton=12)]}
    text = "\n".join(peers_table.table([newer, record], LAYERS, (1, 8, 64)))
    assert "| `llada` | bf16 | 1.20 Triton 12:10 |  |  |" in text
    assert peers_table.table([HEAD | {"rows": ROWS[2:]}], LAYERS, (1,)) == []


def test_page_of_asked_layers_has_it() -> None:
    asked = {"benchmark": "asked", "commit": "abc", "date": "2026-12-01", "cores": 2, "target": "sm_90a", "rows": []}
    page = asked_table.table([asked, HEAD | {"rows": ROWS}])
    assert any(line.startswith("| `llada` | bf16 | 1.50 Triton 15:10 |") for line in page)
    assert not any("peers.py" in line for line in asked_table.table([asked]))


def test_summary() -> None:
    lines = peer_rows.summarize(ROWS)
    assert lines[2:] == ["| bf16 | 1 | 1.50 | 1.50 | - |",
                         "| int4_group32 | 1 | 0.80 | 0.80 | qwen35_35b_int4:64 0.80 marlin |"]
    assert peer_rows.print_row(ROWS[1] | {"refused": {"deep_gemm": "no"}}) == (
        "qwen35_35b_int4:64  moec 100.0  triton 95.0  marlin 80.0  humming 90.0  (deep_gemm: no)  0.80x")
