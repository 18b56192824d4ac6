# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks whose experts move while their layer runs: one rank, a process that moves.py starts, or all of them as threads
on one device. Says on standard output what each found, a line of JSON.

    python move_rank.py '{"ranks": 2, "rank": 0, "device": "cuda:0", "spec": {...}, "runs": 100, ...}'

One expert for each token, so that no sum has another order by another map: outputs keep their bits.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import numpy as np

import moec
import moec.ranks
from moec import _core
from moec.reference import LayerSpec, check, generate

#: DLPack's kind and bits of the layer's inputs.
KINDS = {"bfloat16": (4, 16), "float32": (2, 32), "int32": (0, 32), "float8_e4m3fn": (10, 8)}


class Wrong(Exception):
    """Describes the errors."""


class Rank:
    """One rank, with a layer whose experts follow the map `old`."""

    def __init__(self, order: dict, number: int, communicator: Any) -> None:
        self.order, self.number, self.communicator = order, number, communicator
        spec = order["spec"]
        self.replicas, self.num_experts = spec["replicas"], spec["num_experts"]
        self.physical = self.replicas["num_physical_experts"]
        self.each = self.physical // order["ranks"]
        self.old = [place % self.num_experts for place in range(self.physical)]
        plain = {name: value for name, value in spec.items() if name not in ("parallel", "replicas", "record_load")}
        self.plain = LayerSpec.from_json(plain | {"max_tokens": order["ranks"] * order["tokens"]})
        self.all = generate(self.plain, order["ranks"] * order["tokens"], seed=1)
        # An expert in the middle has half of the tokens.
        self.all["topk_ids"][::2] = self.num_experts // 2
        self.layer = moec.compile(spec, device=order["device"])
        self.device = self.layer.device_object
        first = number * self.each
        places = np.full(self.physical, -1, np.int32)
        places[first:first + self.each] = np.arange(self.each)
        self.weights = {name: self.put(value) for name, value in self.of_map(self.old).items()}
        self.layer.bind(self.weights | {"placement.local_ids": self.put(places)})
        self.layer.use_communicator(communicator)
        rows = slice(number * order["tokens"], (number + 1) * order["tokens"])
        self.own = {name: self.all[name][rows] for name in ("hidden_states", "topk_ids", "topk_weights")}
        self.call_inputs = {name: self.put(value) for name, value in self.own.items()}
        self.offsets = self.put(np.zeros(self.each + 1, np.int32))
        self.out = self.put(np.zeros_like(self.own["hidden_states"]))
        self.loads = np.zeros(self.each, np.int64)

    def put(self, value: np.ndarray) -> Any:
        buffer = _core.Buffer(self.device, value.shape, *KINDS[value.dtype.name])
        buffer.copy_in(value.tobytes())
        return buffer

    def of_map(self, logical: list[int]) -> dict[str, np.ndarray]:
        """The rank's weights under a map."""
        own = logical[self.number * self.each:(self.number + 1) * self.each]
        ids, counts = moec.ranks.replica_tables(logical, self.num_experts, self.replicas["max_replicas"])
        return {name: np.ascontiguousarray(value[own]) for name, value in self.all.items()
                if name.startswith("experts.")} | {
            "replicas.physical_ids": np.array(ids, np.int32), "replicas.counts": np.array(counts, np.int32)}

    def call(self) -> bytes:
        # Elements that a call fails to write must not look right.
        self.out.copy_in(b"\xff" * self.own["hidden_states"].nbytes)
        self.layer(**self.call_inputs, expert_offsets=self.offsets, out=self.out)
        self.layer.synchronize()
        self.loads += np.diff(np.frombuffer(self.offsets.copy_out(), np.int32))
        return self.out.copy_out()

    def expect(self, output: bytes, when: str) -> None:
        if self.call() != output:
            raise Wrong(f"rank {self.number}: the output {when} differs from that of the first call")

    def sum_loads(self, logical: list[int]) -> list[int]:
        loads = moec.ranks.sum_loads(self.layer, self.communicator, self.loads.tolist(), logical)
        self.loads[:] = 0
        return loads

    def run(self) -> dict:
        before = self.call()
        output = np.frombuffer(before, self.own["hidden_states"].dtype).reshape(self.own["hidden_states"].shape)
        report = check(self.plain, self.all | self.own, {"output": output})
        if not np.any(output):
            raise Wrong(f"rank {self.number}: the output is zero")
        if not report.ok:
            raise Wrong(f"rank {self.number}: {report.summary()}: {'; '.join(report.failures)}")
        loads = self.sum_loads(self.old)
        if loads != np.bincount(self.all["topk_ids"].ravel(), minlength=self.num_experts).tolist():
            raise Wrong(f"rank {self.number}: the loads are {loads}")
        new = moec.ranks.balance(loads, self.physical, num_ranks=self.order["ranks"],
                                 max_replicas=self.replicas["max_replicas"])
        moved = self.of_map(new)
        spare = {name: self.put(np.zeros_like(value)) for name, value in moved.items()}
        move = moec.ranks.move_experts(self.layer, self.communicator, self.old, new, spare)
        steps = move.steps
        while move.steps:
            move.step()
            self.expect(before, f"with {move.steps} steps left")
        move.switch()
        for name, value in self.of_map(self.old).items():
            # The layer's previous memory is not read any more.
            self.weights[name].copy_in(b"\x7f" * value.nbytes)
        self.loads[:] = 0
        for number in range(self.order["runs"]):
            self.expect(before, f"of call {number} by the new map")
        if self.sum_loads(new) != [load * self.order["runs"] for load in loads]:
            raise Wrong(f"rank {self.number}: the loads differ by the new map")
        if wrong := [name for name, value in moved.items() if spare[name].copy_out() != value.tobytes()]:
            raise Wrong(f"rank {self.number}: {wrong[0]} is not what the new map has on this rank")
        return {"rank": self.number, "ok": True, "error_of_output": report.comparison.error, "steps": steps,
                "replaced": sum(a != b for a, b in zip(self.old, new))}


def run_rank(order: dict, number: int, communicator: Any) -> bool:
    try:
        found = Rank(order, number, communicator).run()
    except (Wrong, moec.Error) as error:
        found = {"rank": number, "ok": False, "error": f"{error}"}
    # One write, since lines of threads could otherwise mix.
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    return found["ok"]


def main() -> int:
    order = json.loads(sys.argv[1])
    if "rank" in order:
        communicator = moec.ranks.connect(order["ranks"], limit=order["limit"])
        return 0 if run_rank(order, order["rank"], communicator) else 1
    communicators = moec.ranks.local(order["ranks"], device=order["device"], limit=order["limit"])
    threads = [threading.Thread(target=run_rank, args=(order, rank, communicators[rank]))
               for rank in range(order["ranks"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
