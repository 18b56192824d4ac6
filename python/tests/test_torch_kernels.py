# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernels of moec's operators in moec._core and in Python: both give the same answers, and neither crashes the
process in 4000 random calls."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import subprocess
import sys
import warnings

import numpy as np
import pytest
from small_layer import SPEC, Case

import moec

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")
import moec.torch as moec_torch  # noqa: E402

CALLS = 4000
SEED = 29
#: Arguments of the operators, except the number.
NAMES = moec._core.POSITIONAL_INPUTS + moec._core.KEYWORD_INPUTS
#: The layers to call.
LAYERS = ({"entry": "gate"}, {"entry": "logits"}, {"entry": "ids"}, {"entry": "gate", "padding_mask": True},
          {"entry": "ids", "num_valid_tokens": True})
VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
HAS_CORE = VERSION >= (2, 9)
needs_core = pytest.mark.skipif(not HAS_CORE, reason="PyTorch is older than 2.9")


def make_right(layer: moec.Layer, rng: random.Random, rows: int) -> dict[str, torch.Tensor]:
    """Returns the arguments of a valid call."""
    dtypes = {"bf16": torch.bfloat16, "f32": torch.float32, "i32": torch.int32, "i8": torch.int8}
    made = {}
    for info in layer.tensors:
        if info.role == "weight":
            continue
        shape = (rows, *info.shape[1:]) if info.depends_on_tokens else info.shape
        values = torch.tensor([rng.randrange(3) for _ in range(torch.Size(shape).numel())])
        made["out" if info.role == "output" else info.name] = values.reshape(shape).to(dtypes[info.dtype])
    return made


def make_wrong(rng: random.Random, right: torch.Tensor | None) -> object:
    """Returns a replacement for a tensor, which may be valid by chance."""
    like = torch.zeros(5, 4) if right is None else right
    kind = rng.randrange(12)
    if kind == 0:
        return rng.choice([None, 0, 1.5, "hidden", b"x", (), [like], {}, object(), len, float("nan"), True])
    if kind == 1:
        return like.to(rng.choice([torch.float32, torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool,
                                   torch.complex64, torch.float8_e4m3fn, torch.bfloat16, torch.int32]))
    if kind == 2:
        return rng.choice([like.t() if like.dim() == 2 else like, like[None], like.reshape(-1), like.sum(), like[:0],
                           like[1:], like[..., :-1], torch.cat([like, like])])
    if kind == 3:
        return torch.stack([like, like], -1)[..., 0]
    if kind == 4:
        return like.to("meta")
    if kind == 5:
        return like.to_sparse() if like.dim() > 0 else like
    if kind == 6:
        gone = like.clone()
        gone.untyped_storage().resize_(0)
        return gone
    if kind == 7:
        return (like if like.is_floating_point() else like.float()).clone().requires_grad_()
    if kind == 8:
        return torch.nn.Parameter(like.clone(), requires_grad=False)
    if kind == 9:
        return torch.zeros(like.numel() + 1, dtype=like.dtype)[1:].reshape(like.shape)
    if kind == 10:
        return torch.zeros(rng.choice([0, 1, 2, 63, 64, 65, 1000]), *like.shape[1:], dtype=like.dtype)
    return like.clone()


def run_calls() -> list[str]:
    """Returns the result of each call: an error, or the sum of the output."""
    warnings.simplefilter("ignore")
    rng = random.Random(SEED)
    numbers = []
    for changes in LAYERS:
        options = {name: changes[name] for name in ("entry", "num_valid_tokens") if name in changes}
        case = Case(**{name: each for name, each in changes.items() if name != "num_valid_tokens"})
        layer = moec.compile(case.source, device="cpu", **options)
        numbers.append(moec_torch.register(layer.bind(case.weights)))
    closed = moec.compile(SPEC, device="cpu")
    number_of_closed = moec_torch.register(closed)
    closed.close()
    answers = []
    for _ in range(CALLS):
        number = rng.choice(numbers)
        arguments = make_right(moec_torch._layers[number], rng, rng.choice([0, 1, 5, 5, 64]))
        hidden = arguments["hidden_states"]
        out = arguments.pop("out")
        for name in rng.sample([*NAMES, "out"], rng.choice([0, 1, 1, 1, 2, 8])):
            if name == "out":
                out = rng.choice([make_wrong(rng, out), make_wrong(rng, out), hidden, None])
            else:
                arguments[name] = make_wrong(rng, arguments.get(name))
        if rng.random() < 0.05:
            number = rng.choice([0, -1, 2**31, 2**63 - 1, 2**64, "1", None, 1.5, number_of_closed])
        first, *others = (arguments.get(name) for name in NAMES)
        has_grad = rng.random() < 0.5
        try:
            with torch.set_grad_enabled(has_grad):
                if rng.random() < 0.5:
                    result = torch.ops.moec.forward(first, number, *others)
                else:
                    torch.ops.moec.forward_out(out, first, number, *others)
                    result = out
            answers.append(f"{result.dtype} {list(result.shape)} {result.sum(dtype=torch.float64).item()}")
        except Exception as error:
            # Addresses differ, and so does the dispatcher's text about registrations.
            text = re.sub(r"\b(at 0x[0-9a-f]+|\d{9,})", "ADDRESS", str(error).split("\n")[0])
            answers.append(f"{type(error).__name__} {isinstance(error, ValueError)} {text}")
    return answers


def run_elsewhere(kernels: str) -> list[str]:
    """Runs run_calls() in another process, with the kernels of `core` or of `python`."""
    lines = ["import json, sys"]
    if kernels == "python":
        lines += ["import moec._core", "moec._core.load_torch = lambda *_: False"]
    lines += ["import test_torch_kernels as test", "print(json.dumps(test.run_calls()))",
              "assert bool(test.moec_torch._keys_of_core) == (sys.argv[1] == 'core')"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines), kernels], text=True, capture_output=True,
                          env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def are_alike(found: str, wanted: str) -> bool:
    if found == wanted or VERSION >= (2, 10):
        return found == wanted
    # Unversioned capsules, which Python kernels receive, lack float8 and have made-up strides.
    refused = re.compile(r"Invalid\w+ \w+ (\w+): (.*(contiguous\) expected|f8e\w+ found|not supported by dlpack).*)$")
    both = refused.match(found), refused.match(wanted)
    return all(both) and both[0][1] == both[1][1]


@needs_core
def test_kernels_answer_alike() -> None:
    found, wanted = run_elsewhere("core"), run_elsewhere("python")
    assert len(found) == CALLS
    different = [pair for pair in zip(found, wanted) if not are_alike(*pair)]
    assert not different, (len(different), different[:5])
    # Some calls are valid and most are not, both in many forms.
    right = [each for each in found if each.startswith("torch.bfloat16")]
    assert CALLS // 10 < len(right) < CALLS // 2
    assert len({re.sub(r"\d+", "", each) for each in found}) > 50


@needs_core
def test_kernels_are_those_of_core() -> None:
    assert moec_torch._keys_of_core[0] == "CPU"
    dump = torch._C._dispatch_dump("moec::forward")
    assert re.search(r"^CPU: .*StableIValue|^CPU: .*boxed", dump, re.MULTILINE), dump


@needs_core
def test_nothing_is_left_behind() -> None:
    """Neither calls nor errors leak memory, references to tensors, or exceptions."""
    case = Case(entry="ids")
    number = moec_torch.register(case.compile())
    hidden = torch.from_numpy(case.arguments["hidden_states"].view(np.int16).copy()).view(torch.bfloat16)
    ids, weights = (torch.from_numpy(case.arguments[name].copy()) for name in ("topk_ids", "topk_weights"))
    out = torch.empty_like(hidden)

    def call(times: int) -> None:
        for _ in range(times):
            torch.ops.moec.forward(hidden, number, None, ids, weights)
            torch.ops.moec.forward_out(out, hidden, number, None, ids, weights)
            with pytest.raises(moec.InvalidType, match="topk_ids: dtype i32 expected, f32 found"):
                torch.ops.moec.forward(hidden, number, None, weights, weights)

    call(100)
    before = [sys.getrefcount(each) for each in (hidden, ids, weights, out, moec.InvalidType)]
    uses = [each._use_count() for each in (hidden, ids, weights, out)]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    call(20000)
    assert [sys.getrefcount(each) for each in (hidden, ids, weights, out, moec.InvalidType)] == before
    # A leaked tensor per call would exceed this, also one that the call made.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 4096
    assert [each._use_count() for each in (hidden, ids, weights, out)] == uses
    moec_torch.unregister(number)
