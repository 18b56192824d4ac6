# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One rank of a drill, a process that drills.py starts; it says on standard output what it does, a line of
JSON each, and waits for a line of standard input where it has said that it does.

    python drill_rank.py '{"rank": 0, "ranks": 2, "victim": 1, "mode": "kill", "phase": "replay", ...}'

The victim is killed or stopped from outside, or leaves a call out, or has another package. Every other rank
is to get an error, and to be alive after it: a layer on its own GPU gives the same bits as before.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

import moec
import moec.ranks
from moec import _core

#: Tokens of a rank: many, so that kernels take most of a call's time.
TOKENS = {"compute": 2048}
FEW_TOKENS = 16
#: DLPack's kind and bits of the layers' inputs.
KINDS = {"bf16": (4, 16), "f32": (2, 32), "i32": (0, 32)}


def say(event: str, **more: Any) -> None:
    print(json.dumps({"event": event, **more}), flush=True)


def wait_for_word() -> None:
    """Waits for drills.py; if it has ended, this rank ends too."""
    if not sys.stdin.readline():
        sys.exit(3)


def make_tensor(device: Any, info: moec.TensorInfo, tokens: int, rng: np.random.Generator) -> Any:
    shape = (tokens, *info.shape[1:]) if info.depends_on_tokens else info.shape
    code, bits = KINDS[info.dtype]
    buffer = _core.Buffer(device, tuple(shape), code, bits)
    if info.dtype == "i32":
        # Only the table of placed experts: overwritten by the caller.
        data = np.zeros(shape, np.int32)
    else:
        data = (rng.standard_normal(shape) / 16).astype(np.float32)
        if info.dtype == "bf16":
            data = (data.view(np.uint32) >> 16).astype(np.uint16)
    buffer.copy_in(data.tobytes())
    return buffer


class Rank:
    """A layer with weights and tokens, and possibly other ranks."""

    def __init__(self, spec: dict, device: str, tokens: int, tables: dict[str, list[int]] | None = None) -> None:
        self.layer = moec.compile(spec, device=device)
        rng = np.random.default_rng(1)
        weights = {}
        for info in self.layer.tensors:
            if info.role == "weight":
                weights[info.name] = make_tensor(self.layer.device_object, info, tokens, rng)
            elif info.name == "hidden_states":
                self.hidden = make_tensor(self.layer.device_object, info, tokens, rng)
            elif info.role == "output":
                self.out = make_tensor(self.layer.device_object, info, tokens, rng)
        for name, table in (tables or {}).items():
            weights[name].copy_in(np.asarray(table, np.int32).tobytes())
        self.layer.bind(weights)
        self.tokens = tokens

    def run(self) -> bytes:
        self.layer(self.hidden, out=self.out)
        self.layer.synchronize()
        return self.out.copy_out()

    def replay(self) -> None:
        self.layer.benchmark(self.tokens, repeat=200)


def take_part(order: dict, rank: Rank) -> None:
    """The ranks' work until the failure."""
    phase, is_victim = order["phase"], order["rank"] == order["victim"]
    leaves_out = is_victim and order["mode"] == "skip"
    if phase == "init":
        say("at", phase=phase)
        wait_for_word()
        if leaves_out:
            wait_for_word()
    communicator = moec.ranks.connect(order["ranks"], limit=order["limit"])
    rank.layer.use_communicator(communicator)
    rank.run()
    if phase == "collective":
        # The victim waits in the collective; if it skips a call, the others wait.
        if not is_victim or leaves_out:
            say("at", phase=phase)
            wait_for_word()
        else:
            say("at", phase=phase)
        if leaves_out:
            wait_for_word()
        call = rank.run
    else:
        call = rank.replay if phase == "replay" else rank.run
        call()
        say("at", phase=phase)
        if leaves_out:
            wait_for_word()
    # A GPU finishes enqueued work, also of a process that has just been stopped or killed: a call or two may still
    # return.
    end = time.monotonic() + order["limit"] + 30
    while time.monotonic() < end:
        call()
    raise RuntimeError("calls with a rank that is gone came back")


def main() -> int:
    order = json.loads(sys.argv[1])
    own = Rank(order["own_spec"], order["device"], FEW_TOKENS)
    before = own.run()
    spec = order["spec"]
    if order["mode"] == "package" and order["rank"] == order["victim"]:
        spec = {**spec, "max_tokens": spec["max_tokens"] // 2}
    rank = Rank(spec, order["device"], TOKENS.get(order["phase"], FEW_TOKENS),
                {name: table for name, table in order.items() if name.startswith("placement.")})
    try:
        take_part(order, rank)
    except moec.Error as error:
        say("error", text=str(error))
    except RuntimeError as error:
        say("no error", text=str(error))
        return 1
    after = own.run()
    say("alive", same=after == before)
    rank.layer.close()
    say("ended")
    return 0


if __name__ == "__main__":
    sys.exit(main())
