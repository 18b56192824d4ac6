# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Additional outputs of layers, padding masks, and replicas of experts, on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from replica_vectors import VECTORS
from small_layer import SPEC, Case

import moec
from moec.reference import write_tensors


def make_records(case: Case) -> dict[str, np.ndarray]:
    tokens, experts = len(case.tensors["hidden_states"]), case.spec.num_local_experts
    records = {
        "topk_ids": np.full((tokens, case.spec.top_k), -7, np.int32),
        "topk_weights": np.full((tokens, case.spec.top_k), np.nan, np.float32),
        "expert_offsets": np.full(experts + 1, -7, np.int32),
    }
    return {name: records[name] for name in records if name == "expert_offsets" or case.spec.record_ids}


def test_what_was_recorded_can_be_replayed() -> None:
    case = Case(tokens=9, record_ids=True, record_load=True)
    layer = case.compile()
    records = make_records(case)
    output = layer(**case.arguments, **records)
    case.verify(output)
    np.testing.assert_array_equal(
        np.diff(records["expert_offsets"]), np.bincount(records["topk_ids"].ravel(), minlength=case.spec.num_experts)
    )
    replay = moec.compile(SPEC, device="cpu", entry="ids").bind(
        {name: each for name, each in case.weights.items() if not name.startswith("gate.")}
    )
    again = replay(case.arguments["hidden_states"], None, records["topk_ids"], records["topk_weights"])
    np.testing.assert_array_equal(again.view(np.uint16), output.view(np.uint16))


def test_records_are_checked() -> None:
    case = Case(tokens=4, record_ids=True, record_load=True)
    layer = case.compile()
    records = make_records(case)
    with pytest.raises(moec.InvalidType, match="expert_offsets: is missing"):
        layer(**case.arguments, topk_ids=records["topk_ids"], topk_weights=records["topk_weights"])
    with pytest.raises(moec.InvalidArgument, match="topk_ids: 4 rows expected"):
        layer(**case.arguments, **records | {"topk_ids": records["topk_ids"][:3]})
    wrong = records["topk_weights"].view(np.int32)
    with pytest.raises(moec.InvalidArgument, match="topk_ids: shares memory with the output 'topk_weights'"):
        layer(**case.arguments, **records | {"topk_ids": wrong})
    with pytest.raises(moec.InvalidArgument, match="is_padding: the layer takes none; give its description \"padding_mask\""):
        layer(**case.arguments, **records, is_padding=np.zeros(4, np.int8))


@pytest.mark.parametrize("dtype", [np.int8, np.bool_])
def test_padding_mask(dtype) -> None:
    case = Case(tokens=12, padding_mask=True, shared_experts={"intermediate_size": 32})
    mask = np.arange(12) % 3 == 1
    case.tensors["is_padding"] = mask.astype(np.int8)
    case.tensors["hidden_states"][mask] = np.nan
    output = case.compile()(**case.arguments | {"is_padding": mask.astype(dtype)})
    case.verify(output)
    assert not output[mask].any() and output[~mask].any(axis=1).all()


@pytest.mark.parametrize("name", VECTORS)
def test_replicas(name: str) -> None:
    vector = VECTORS[name]
    case = Case(
        tokens=len(vector.ids), entry="ids", num_experts=len(vector.table), top_k=2, num_valid_tokens=True,
        record_load=True, routing={},
        replicas={"num_physical_experts": vector.physical, "max_replicas": vector.padded_table.shape[1]},
    )
    case.tensors |= {
        "topk_ids": vector.ids.astype(np.int32), "num_valid_tokens": np.array([vector.valid], np.int32),
        "replicas.physical_ids": vector.padded_table, "replicas.counts": vector.counts,
    }
    records = make_records(case)
    output = case.compile()(**case.arguments, **records)
    case.verify(output)
    assert np.diff(records["expert_offsets"]).tolist() == vector.load


def test_tables_that_a_file_leaves_out_are_those_of_its_experts(tmp_path) -> None:
    """Without tables in the file, physical experts are assigned round-robin, as for a checkpoint."""
    case = Case(tokens=12, replicas={"num_physical_experts": 7, "max_replicas": 2}, dtype="f32")
    tables = {"replicas.physical_ids": [[0, 4], [1, 5], [2, 6], [3, -1]], "replicas.counts": [2, 2, 2, 1]}
    case.tensors |= {name: np.array(value, np.int32) for name, value in tables.items()}
    file = tmp_path / "layer.safetensors"
    write_tensors(file, {name: value for name, value in case.weights.items() if name not in tables})
    layer = moec.compile(case.source, device="cpu")
    layer.load(file)
    case.verify(layer(**case.arguments))
    one = {name: value for name, value in case.weights.items() if name != "replicas.counts"}
    write_tensors(file, one)
    with pytest.raises(moec.InvalidArgument, match="'replicas.physical_ids' and 'replicas.counts' go together"):
        layer.load(file)
