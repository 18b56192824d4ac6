# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec.torch, and PyTorch tensors in moec, on the CPU and, if there is one, on a GPU."""

from __future__ import annotations

import gc
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_layer import CALLS, Case, shared_case

import moec

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")
import moec.torch as moec_torch  # noqa: E402

NUMPY = {"bfloat16": (np.uint16, torch.bfloat16)}
VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
DEVICES = ["cpu"] + ["cuda:0"] * torch.cuda.is_available()


def to_torch(array: np.ndarray, device: str = "cpu") -> torch.Tensor:
    stored, dtype = NUMPY.get(array.dtype.name, (None, None))
    if stored is None:
        return torch.from_numpy(array.copy()).to(device)
    return torch.from_numpy(array.view(stored).copy()).view(dtype).to(device)


def to_numpy(tensor: torch.Tensor, like: np.ndarray) -> np.ndarray:
    tensor = tensor.detach().cpu()
    if like.dtype.name not in NUMPY:
        return tensor.numpy()
    stored, _ = NUMPY[like.dtype.name]
    return tensor.view(torch.uint16).numpy().view(stored).view(like.dtype)


class TorchCase:
    def __init__(self, entry: str, device: str, **options: object) -> None:
        self.case = Case(entry=entry)
        self.layer = moec.compile(self.case.source, device=device, entry=entry, **options)
        self.weights = {name: to_torch(each, device) for name, each in self.case.weights.items()}
        self.layer.bind(self.weights)
        self.arguments = {
            name: to_torch(each, device) for name, each in self.case.arguments.items()
        }

    def verify(self, output: torch.Tensor) -> None:
        self.case.verify(to_numpy(output, self.case.arguments["hidden_states"]))

    def operands(self, number: int, **changed: torch.Tensor) -> tuple:
        """Returns the arguments of the operator."""
        given = self.arguments | changed
        hidden, *others = (given.get(name) for name in
                           ("hidden_states", "router_logits", "topk_ids", "topk_weights"))
        return (hidden, number, *others)


@pytest.fixture(autouse=True)
def no_graphs_of_before() -> None:
    """Drops compiled graphs, so that each device and entry is compiled again."""
    torch._dynamo.reset()


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=CALLS)
def made(request: pytest.FixtureRequest, device: str) -> TorchCase:
    return TorchCase(request.param, device)


def test_takes_and_gives_tensors(made: TorchCase) -> None:
    output = made.layer(**made.arguments)
    assert type(output) is torch.Tensor and output.dtype == torch.bfloat16
    made.verify(output)
    out = torch.empty_like(output)
    assert made.layer(**made.arguments, out=out) is out
    made.verify(out)


@pytest.mark.skipif(VERSION < (2, 10), reason="PyTorch has DLPack's functions of C from 2.10 on")
def test_is_the_exchange_of_c(device: str) -> None:
    assert hasattr(torch.Tensor, "__dlpack_c_exchange_api__")


def test_memory_of_a_parameter_that_moves_is_kept(device: str) -> None:
    made = TorchCase("gate", device)
    weights = {
        name: torch.nn.Parameter(to_torch(each, device), requires_grad=False)
        for name, each in made.case.weights.items()
    }
    made.layer.bind(weights)
    for parameter in weights.values():
        parameter.data = torch.zeros(1)
    del weights
    torch.full((1 << 20,), 7.0, device=device)
    made.verify(made.layer(**made.arguments))


def test_subclasses_of_tensors(device: str) -> None:
    made = TorchCase("gate", device)
    with torch.no_grad():
        made.verify(made.layer(torch.nn.Parameter(made.arguments["hidden_states"])))


def test_gradients_are_refused(made: TorchCase) -> None:
    operator = torch.ops.moec.forward
    number = moec_torch.register(made.layer)
    for name, tensor in made.arguments.items():
        if not tensor.is_floating_point():
            continue
        wanting = tensor.clone().requires_grad_()
        message = f"{name}: requires a gradient, and a layer has no backward pass"
        with pytest.raises(moec.InvalidArgument, match=message):
            made.layer(**made.arguments | {name: wanting})
        operands = made.operands(number, **{name: wanting})
        with pytest.raises(moec.InvalidArgument, match=message):
            operator(*operands)
        with pytest.raises(Exception, match=message):
            torch.compile(lambda *each: operator(*each), fullgraph=True, backend="aot_eager")(*operands)
        with torch.no_grad():
            made.verify(operator(*operands))
            made.verify(made.layer(**made.arguments | {name: wanting}))
    out = torch.empty_like(made.arguments["hidden_states"]).requires_grad_()
    with pytest.raises(moec.InvalidArgument, match="out: requires a gradient"):
        made.layer(**made.arguments, out=out)
    moec_torch.unregister(number)
    with pytest.raises(moec.InvalidArgument, match=f"there is no layer with the number {number}"):
        operator(*made.operands(number))


def test_operators_pass_opcheck(made: TorchCase) -> None:
    number = moec_torch.register(made.layer)
    torch.library.opcheck(torch.ops.moec.forward.default, made.operands(number))
    out = torch.empty_like(made.arguments["hidden_states"])
    torch.library.opcheck(torch.ops.moec.forward_out.default, (out, *made.operands(number)))
    made.verify(torch.ops.moec.forward(*made.operands(number)))
    torch.ops.moec.forward_out(out, *made.operands(number))
    made.verify(out)
    moec_torch.unregister(number)


def test_tensors_may_move_and_change_between_calls(made: TorchCase) -> None:
    """Calls check and bind only what changed since the previous call."""
    number = moec_torch.register(made.layer)
    forward, forward_out = torch.ops.moec.forward, torch.ops.moec.forward_out
    first, *others = made.operands(number)
    outputs = [torch.empty_like(first) for _ in range(3)]
    want = made.layer(**made.arguments)
    made.verify(want)
    for out in (*outputs, *outputs):
        # Another address, other values, and the first again.
        for hidden, wanted in ((first, want), (first.flip(1), None), (first.clone(), want)):
            for call in (lambda: forward_out(out, hidden, *others), lambda: made.layer(
                    **made.arguments | {"hidden_states": hidden}, out=out)):
                out.fill_(9.0)
                call()
                made_anew = forward(hidden, *others)
                assert torch.equal(out, made_anew)
                assert torch.equal(out, want) == (wanted is not None)
    # Other layouts at the same address, and other tensors.
    few = {name: tensor[:3] for name, tensor in made.arguments.items()}
    assert torch.equal(made.layer(**few), want[:3])
    assert torch.equal(forward(*made.operands(number, **few)), want[:3])
    assert torch.equal(forward(first, *others), want)
    with pytest.raises(moec.InvalidArgument, match="hidden_states: strides"):
        forward(first.as_strided(first.shape, (1, first.shape[0])), *others)
    with pytest.raises(moec.InvalidType, match="hidden_states: dtype bf16 expected, f16 found"):
        forward(first.view(torch.float16), *others)
    with pytest.raises(moec.InvalidArgument, match="out: shares memory with the input 'hidden_states'"):
        forward_out(first, first, *others)
    with pytest.raises(moec.InvalidArgument, match="out: 5 rows expected"):
        forward_out(outputs[0][:4], first, *others)
    assert torch.equal(forward(first, *others), want)


def test_tracers_see_an_operator(device: str) -> None:
    """The module calls its layer directly unless a tracer is active."""
    from torch.fx.experimental.proxy_tensor import make_fx

    made = TorchCase("gate", device)
    block, hidden = moec_torch.MoE(made.layer), made.arguments["hidden_states"]
    with torch.no_grad():
        graph = make_fx(block)(hidden)
        assert torch.ops.moec.forward.default in {node.target for node in graph.graph.nodes}
        assert torch.equal(graph(hidden.flip(1)), block(hidden.flip(1)))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles_as_one_graph(made: TorchCase, backend: str) -> None:
    block = moec_torch.MoE(made.layer)
    compiled = torch.compile(block, fullgraph=True, backend=backend, dynamic=True)
    with torch.no_grad():
        made.verify(compiled(**made.arguments))
        few = {name: tensor[:3] for name, tensor in made.arguments.items()}
        torch.testing.assert_close(compiled(**few), block(**few), rtol=0, atol=0)


def test_module(made: TorchCase) -> None:
    block = moec_torch.MoE(made.layer)
    assert not list(block.parameters()) and "moec.Layer 'small'" in repr(block)
    with torch.inference_mode():
        made.verify(block(**made.arguments))
        made.verify(block(**{name: tensor.clone() for name, tensor in made.arguments.items()}))
    hidden = made.arguments["hidden_states"]
    if made.case.entry == "gate":
        cube = torch.stack([hidden, hidden])
        assert torch.equal(block(cube), torch.stack([block(hidden)] * 2))
    number = block.number
    del block
    with pytest.raises(moec.InvalidArgument, match="there is no layer with the number"):
        torch.ops.moec.forward(*made.operands(number))


def test_exported_programs_find_no_layer_of_another_process(tmp_path: Path) -> None:
    """The other process initially has only a layer with the same shapes as the exported one."""
    made = TorchCase("gate", "cpu")
    # The program has the layer's number alone, which ends with the module.
    block = moec_torch.MoE(made.layer)
    program = torch.export.export(block, (made.arguments["hidden_states"],), strict=False)
    made.verify(program.module()(made.arguments["hidden_states"]))
    torch.export.save(program, tmp_path / "program.pt2")
    code = """if True:
        import sys, pytest, torch, moec, moec.torch
        from test_torch import TorchCase
        from small_layer import SPEC
        made = TorchCase("gate", "cpu")
        hidden = made.arguments["hidden_states"]
        other = made.layer.clone().bind({name: torch.zeros_like(each) for name, each in made.weights.items()})
        block = moec.torch.MoE(other)
        assert not block(hidden).any()
        program = torch.export.load(sys.argv[1])
        with pytest.raises(moec.InvalidArgument, match="program that calls it was exported in another process, and "
                                                       "has no weights of moec's; give it the layer with moec.torch"):
            program.module()(hidden)
        gelu = moec.compile(SPEC | {"activation": {"kind": "gelu"}}, device="cpu")
        for layers, message in (((), "the program calls 1, 0 found"), ((gelu,), "layer 0 has another description")):
            with pytest.raises(moec.InvalidArgument, match=message):
                moec.torch.attach(program, *layers)
        number, = moec.torch.attach(program, made.layer)
        made.verify(program.module()(hidden))
        with pytest.raises(moec.InvalidArgument, match="layer 0 of the program is registered in this process"):
            moec.torch.attach(program, other)
        moec.torch.unregister(number)
        # Another name and another number of tokens are no other description.
        moec.torch.attach(program.module(), moec.compile(SPEC | {"name": "n"}, device="cpu", max_tokens=9)
                          .bind(made.weights))
        made.verify(program.module()(hidden))
        print("right")
    """
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, tmp_path / "program.pt2"], text=True,
                          capture_output=True, env=environment)
    assert done.returncode == 0 and done.stdout.endswith("right\n"), done.stderr


def test_programs_of_several_layers(tmp_path: Path) -> None:
    blocks = [moec_torch.MoE(TorchCase("gate", "cpu").layer) for _ in range(2)]
    with torch.no_grad():
        blocks[1].layer.bind({"gate.weight": torch.ones(4, 64).bfloat16()})
    model = torch.nn.Sequential(*blocks, blocks[0])
    hidden = torch.randn(5, 64).bfloat16()
    program, wanted = torch.export.export(model, (hidden,), strict=False), model(hidden)
    layers, numbers = [each.layer for each in blocks], [each.number for each in blocks]
    assert len(set(numbers)) == 2 and all(0 <= each < 2**62 for each in numbers)
    del model, blocks
    gc.collect()
    with pytest.raises(moec.InvalidArgument, match=f"number {numbers[0]}: it was unregistered, or its MoE"):
        program.module()(hidden)
    assert moec_torch.attach(program, *layers) == numbers
    assert torch.equal(program.module()(hidden), wanted)
    for number in numbers:
        moec_torch.unregister(number)


def test_valid_tokens_change_between_calls(device: str) -> None:
    made = TorchCase("gate", device, num_valid_tokens=True)
    block = moec_torch.MoE(made.layer)
    valid = torch.tensor([5], dtype=torch.int32, device=device)
    hidden = made.arguments["hidden_states"]
    made.verify(block(hidden, num_valid_tokens=valid))
    valid.fill_(2)
    output = block(hidden, num_valid_tokens=valid)
    assert output[:2].any() and not output[2:].any()


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool])
def test_padding(device: str, dtype: torch.dtype) -> None:
    case = Case(padding_mask=True)
    layer = moec.compile(case.source, device=device)
    layer.bind({name: to_torch(each, device) for name, each in case.weights.items()})
    block = moec_torch.MoE(layer)
    hidden = to_torch(case.arguments["hidden_states"], device)
    mask = np.array([0, 1, 0, 0, 1], np.int8)
    case.tensors["is_padding"] = mask
    padding = torch.from_numpy(mask).to(device, dtype)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        for call in (block, compiled):
            output = call(hidden, is_padding=padding)
            case.verify(to_numpy(output, case.arguments["hidden_states"]))
            assert not output[padding.bool()].any() and output[~padding.bool()].any(1).all()
        out = torch.empty_like(hidden)
        torch.ops.moec.forward_out(out, hidden, block.number, is_padding=padding)
        assert torch.equal(out, output)
        torch.library.opcheck(torch.ops.moec.forward.default, (hidden, block.number, *[None] * 5, padding))
    with pytest.raises(moec.InvalidType, match="is_padding: is missing"):
        block(hidden)
    with pytest.raises(moec.InvalidType, match="is_padding: dtype i8 expected, i32 found"):
        block(hidden, is_padding=padding.int())
    with pytest.raises(moec.InvalidArgument, match="is_padding: 5 rows expected, as in hidden_states"):
        block(hidden, is_padding=padding[:4])
    with pytest.raises(moec.InvalidArgument, match="is_padding: the layer takes none"):
        moec_torch.MoE(TorchCase("gate", device).layer)(hidden, is_padding=padding)


def test_errors_name_the_argument(made: TorchCase) -> None:
    block = moec_torch.MoE(made.layer)
    arguments = dict(made.arguments)
    if made.case.entry == "ids":
        arguments["topk_ids"] = arguments["topk_ids"].long()
        message = r"topk_ids: dtype i32 expected, i64 found; convert it, as with .to\(torch.int32\)"
    else:
        arguments["hidden_states"] = arguments["hidden_states"].float()
        message = "hidden_states: dtype bf16 expected, f32 found"
    with pytest.raises(TypeError, match=message):
        block(**arguments)
    arguments = dict(made.arguments) | {"hidden_states": made.arguments["hidden_states"].to("meta")}
    with pytest.raises((moec.Error, NotImplementedError, RuntimeError)):
        made.layer(**arguments)


def test_memory_that_is_gone_is_refused(made: TorchCase) -> None:
    """A tensor whose storage was freed, as by parameter offloading."""
    for name in made.arguments:
        gone = made.arguments[name].clone()
        gone.untyped_storage().resize_(0)
        with pytest.raises(moec.InvalidArgument, match=f"^{name}: "):
            made.layer(**made.arguments | {name: gone})
    made.verify(made.layer(**made.arguments))


def test_no_references_are_lost() -> None:
    made = TorchCase("gate", "cpu")
    hidden = made.arguments["hidden_states"]
    made.layer(hidden)
    before = sys.getrefcount(hidden)
    for _ in range(100):
        made.layer(hidden, out=torch.empty_like(hidden))
        with pytest.raises(TypeError):
            made.layer(hidden, out=3)
    assert sys.getrefcount(hidden) == before


def test_moec_needs_no_torch() -> None:
    _, layer = shared_case()
    code = "import sys, moec; moec.Layer; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)}
                   | {"MOEC_LIBRARY_DIR": __import__("os").environ["MOEC_LIBRARY_DIR"]})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_cuda_graphs() -> None:
    made = TorchCase("gate", "cuda:0")
    block = moec_torch.MoE(made.layer)
    hidden = made.arguments["hidden_states"]
    block(hidden)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = block(hidden)
    output.zero_()
    graph.replay()
    made.verify(output)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_runs_on_the_current_stream() -> None:
    made = TorchCase("gate", "cuda:0")
    hidden = made.arguments["hidden_states"]
    made.layer(hidden)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        output = made.layer(hidden)
        assert not stream.query()
    stream.synchronize()
    made.verify(output)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        output = made.layer(hidden, stream=torch.cuda.default_stream())
    torch.cuda.default_stream().synchronize()
    made.verify(output)


def test_lines_of_the_page() -> None:
    """The code in docs/use/python.md works as printed."""
    page = (Path(__file__).resolve().parents[2] / "docs/use/python.md").read_text()
    section = page[page.index("## PyTorch"):]
    made = TorchCase("gate", "cpu")
    names = {"layer": made.layer, "torch": torch}
    exec(section.split("```python\n")[1].split("```")[0], names)
    hidden = made.arguments["hidden_states"]
    for run in (names["block"], names["compiled"]):
        made.verify(run(hidden))


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "last"])
def test_lives_beside_other_compilers(is_first: bool) -> None:
    """torch, triton and jax (if installed) each contain an LLVM; all are loaded in one process."""
    others = [each for each in ("torch", "triton", "jax") if importlib.util.find_spec(each)]
    imports = ["moec", *others] if is_first else [*others, "moec"]
    lines = [f"import {each}" for each in imports] + [
        # Each of them generates code if it can without a GPU; moec does so before and after.
        "import sys; sys.path.insert(0, sys.argv[1])",
        "from small_layer import SPEC, Case",
        "case = Case()",
        "def check():",
        "    layer = moec.compile(SPEC, device='cpu')",
        "    layer.bind(case.weights)",
        "    case.verify(layer(**case.arguments))",
        "check()",
        "x = torch.arange(8.0)",
        "assert torch.equal(torch.compile(lambda x: x * 2 + 1)(x), x * 2 + 1)",
    ]
    if "jax" in others:
        lines.append("assert jax.jit(lambda x: x + 1)(1) == 2")
    if "triton" in others:
        lines.append("from triton._C import libtriton; libtriton.ir.context()")
    lines += ["check()", "print('all of them')"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines), Path(__file__).parent], text=True,
                          capture_output=True)
    assert done.returncode == 0 and done.stdout.endswith("all of them\n"), done.stderr
