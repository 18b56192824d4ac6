# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a newcomer types: each test is one way to go wrong, and the answer that says what to type instead."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from small_layer import SPEC

import moec
from moec import compiler, progress

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "test" / "models"
F32 = {**SPEC, "dtype": "f32"}


def refuse(call, kind: type, message: str) -> None:
    with pytest.raises(kind, match="^" + re.escape(message)):
        call()


def run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True, env={**os.environ, **variables}, timeout=120
    )


@pytest.fixture
def layer() -> moec.Layer:
    return moec.compile(F32, device="cpu").generate_weights()


def make_rows(*leading: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((*leading, SPEC["hidden_size"]), np.float32)


def test_a_laptop_without_a_gpu_gets_the_cpu(monkeypatch) -> None:
    monkeypatch.setenv("MOERT_CUDA_LIBRARY", "/no/libcuda.so")
    monkeypatch.setattr(compiler, "_devices", {})
    assert moec.compile(SPEC).device == "cpu"
    with pytest.raises(moec.Unavailable) as failure:
        moec.compile(SPEC, device="cuda")
    assert 'device="cpu"' in str(failure.value) and "--device" not in str(failure.value)


def test_the_name_of_a_model_on_the_hub(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for name in ("Qwen/Qwen3-30B-A3B", "org/name.with.dots"):
        message = f"source: there is no file or folder '{name}', and no such model in {tmp_path}; `hf download {name}`"
        refuse(lambda: moec.Layer.from_pretrained(name, device="cpu"), moec.NotFound, message)
    refuse(lambda: moec.compile("Qwen3-30B-A3B"), moec.NotFound, "source: there is no file or folder 'Qwen3-30B-A3B'; "
           "give a model's folder, its config.json, the name of a model in the cache of the Hugging Face hub")


@pytest.mark.parametrize("has_branch", [True, False])
def test_a_model_in_the_hub_s_cache_is_found(tmp_path, monkeypatch, has_branch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    folder = tmp_path / "hub" / "models--org--small"
    snapshot = folder / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    if has_branch:
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text("0123abc")
    (snapshot / "config.json").write_text((MODELS / "olmoe-1b-7b.json").read_text())
    assert moec.find_layers("org/small") == tuple(range(16))
    made = moec.compile("org/small", device="cpu", num_experts=8, max_tokens=4)
    with pytest.raises(moec.Error, match=re.escape(str(snapshot))):
        made.load("org/small")


def test_a_key_that_is_unknown_can_be_ignored(tmp_path) -> None:
    config = json.loads((MODELS / "olmoe-1b-7b.json").read_text()) | {"num_shared_expert": 7}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    with pytest.raises(moec.InvalidArgument, match=re.escape("ignore_fields=['num_shared_expert']")):
        moec.expect(path, gpu="h200", tokens=1)
    assert moec.expect(path, gpu="h200", tokens=1, ignore_fields=["num_shared_expert"]).times


@pytest.mark.parametrize(("gpu", "target"), [("sm_90", "sm_90a"), ("sm_86", "sm_80"), ("sm_89", "sm_80"),
                                             ("sm_103", "sm_80"), ("sm_120", "sm_80")])
def test_a_gpu_s_architecture_is_a_target(gpu, target) -> None:
    made, best = (moec.compile_package(SPEC, name, use_ptxas=False) for name in (gpu, target))
    assert bytes(made) == bytes(best)


def test_a_misspelt_argument_has_a_suggestion() -> None:
    layer = moec.compile(F32, device="cpu", entry="ids").generate_weights()
    rows = make_rows(2)
    refuse(lambda: layer(rows, topk_id=rows), TypeError, "a layer has no argument 'topk_id'; this one has hidden_states, "
           "topk_ids, topk_weights, out, stream; did you mean 'topk_ids'?")
    with pytest.raises(moec.InvalidArgument, match=re.escape("; did you mean 'experts.w2'?")):
        layer.bind({"expert.w2": rows})
    with pytest.raises(TypeError) as failure:
        layer(rows, colour=rows)
    assert "did you mean" not in str(failure.value)


@pytest.mark.parametrize(("order", "rows"), [
    ("gate_up", "torch.cat([w1, w3], dim=1)"), ("up_gate", "torch.cat([w3, w1], dim=1)"),
    ("interleaved", "torch.stack([w1, w3], dim=2).flatten(1, 2)"),
])
def test_a_checkpoint_s_w1_is_part_of_w13(order, rows) -> None:
    layer = moec.compile({**F32, "gate_up_order": order}, device="cpu")
    for name in ("experts.w1", "experts.w3", "experts_w1"):
        with pytest.raises(moec.InvalidArgument, match=re.escape("; experts.w13 has the rows of both: ")) as failure:
            layer.bind({name: make_rows(1)})
        assert rows in str(failure.value) and "did you mean" not in str(failure.value)


def test_a_transposed_weight_is_recognized(layer) -> None:
    (shape,) = (info.shape for info in layer.tensors if info.name == "experts.w2")
    with pytest.raises(moec.InvalidArgument, match="its last two dimensions are exchanged: pass its transpose"):
        layer.bind({"experts.w2": np.zeros((shape[0], shape[2], shape[1]), np.float32)})
    with pytest.raises(moec.InvalidArgument) as failure:
        layer.bind({"experts.w2": np.zeros((shape[0], shape[1] + 1, shape[2]), np.float32)})
    assert "exchanged" not in str(failure.value)


def test_a_gpu_is_called_cuda() -> None:
    refuse(lambda: moec.compile(SPEC, device="gpu"), moec.InvalidArgument, "device: 'gpu' found; give \"cuda:0\" for a GPU")
    refuse(lambda: moec.compile(SPEC, device="gpu:1"), moec.InvalidArgument, "device: 'gpu:1' found; give \"cuda:1\"")


def test_the_explanation_speaks_python(layer) -> None:
    assert "explain(full=True) prints each launch" in layer.explain() and "--explain" not in layer.explain()


def test_rows_of_a_batch_keep_their_dimensions(layer) -> None:
    rows = make_rows(2, 3)
    assert np.array_equal(np.array(layer(rows)), np.array(layer(rows.reshape(6, -1))).reshape(2, 3, -1))


def test_a_layer_is_copied_and_not_pickled(layer) -> None:
    rows = make_rows(2)
    assert np.array_equal(copy.deepcopy(layer)(rows), layer(rows))
    with pytest.raises(moec.InvalidType, match="carry a package"):
        pickle.dumps(layer)


def test_a_property_has_a_text_of_its_own() -> None:
    assert "wall-clock time" in moec.Layer.compile_seconds.__doc__


def test_tab_completion_shows_no_internals(layer) -> None:
    assert not {"operands", "bind_weight", "fill_weights", "time_calls", "plan_text"} & set(dir(layer))
    assert not {"os", "importlib", "pathlib", "Any"} & set(dir(moec))


def test_a_tensor_s_description_names_the_tokens(layer) -> None:
    shown = {info.name: repr(info) for info in layer.tensors}
    size = SPEC["hidden_size"]
    assert shown["hidden_states"] == f"<moec.TensorInfo hidden_states: input, f32 [T <= {layer.max_tokens}, {size}]>"
    assert re.fullmatch(r"<moec\.TensorInfo experts\.w2: weight, f32 \[\d+, \d+, \d+\]>", shown["experts.w2"])
    assert layer.dtype == "f32" and layer.weight_bytes > 0


def test_only_the_first_line_of_another_framework_s_error_is_shown(layer) -> None:
    class Meta:
        shape = (2, SPEC["hidden_size"])

        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **_):
            raise RuntimeError("no storage\nException raised from throw_error\nframe #0: 0x1 in libtorch.so")

    with pytest.raises(moec.Error) as failure:
        layer(Meta())
    assert "no storage" in str(failure.value) and "\n" not in str(failure.value)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"entry": "id"}, "entry: 'id' is not one of gate, logits and ids"), ({"entry": 7}, "entry: "), ({"max_tokens": 0}, "max_tokens: 0 found"),
])
def test_messages_name_python_s_arguments(arguments, message) -> None:
    with pytest.raises(moec.Error) as failure:
        moec.compile(SPEC, device="cpu", **arguments)
    assert message in str(failure.value) and not re.search(r"moejit|--\w", str(failure.value))


def test_a_layer_that_a_model_lacks_is_named_without_flags() -> None:
    with pytest.raises(moec.InvalidArgument, match="layer=99: the model has 16 decoder layers") as failure:
        moec.compile(MODELS / "olmoe-1b-7b.json", device="cpu", layer=99)
    assert "--" not in str(failure.value)


def test_the_reference_says_what_to_install() -> None:
    done = run("import sys; sys.modules['ml_dtypes'] = None; import moec.reference")
    assert done.returncode == 1 and "moec.reference needs NumPy and ml_dtypes; install them" in done.stderr


def test_modules_need_no_import_of_their_own() -> None:
    done = run("import moec; print(moec.reference.__name__, moec.ranks.__name__)")
    assert done.stdout.split() == ["moec.reference", "moec.ranks"], done.stderr


def test_transformers_own_experts_are_not_replaced(monkeypatch) -> None:
    moec_transformers = pytest.importorskip("moec.transformers", exc_type=ImportError, reason="needs Transformers")
    for name in ("eager", "grouped_mm"):
        refuse(lambda: moec_transformers.register(name), moec.InvalidArgument,
               f"name: {name!r} is Transformers' own implementation")


def test_every_command_says_moec_s_version() -> None:
    for command in ("moe-compile", "moe-run", "moe-extract", "moe-opt", "moe-bench", "gpu-test"):
        done = subprocess.run(
            [Path(os.environ["MOEC_BIN_DIR"]) / command, "--version"], text=True, capture_output=True, check=True
        )
        assert re.fullmatch(rf"moec {moec.__version__} \(commit [0-9a-f]{{12}}\)\n", done.stdout), command
    done = subprocess.run([sys.executable, "-m", "moec", "--version"], text=True, capture_output=True, check=True)
    assert done.stdout.startswith(f"moec {moec.__version__} (commit ")


class FakeBar:
    """tqdm's bar, which records what it shows."""

    made: list["FakeBar"] = []

    def __init__(self, total: int, desc: str, **_) -> None:
        self.total, self.desc, self.n, self.seen, self.is_closed = total, desc, 0, [], False
        FakeBar.made.append(self)

    def refresh(self) -> None:
        self.seen.append(self.n)

    def close(self) -> None:
        self.is_closed = True


class ZMQInteractiveShell:
    """The shell of a notebook's kernel, by its name."""


@pytest.mark.parametrize("is_notebook", [True, False])
def test_a_notebook_shows_tqdm_s_bar(monkeypatch, is_notebook) -> None:
    import time

    monkeypatch.setattr(FakeBar, "made", [])
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", types.SimpleNamespace(tqdm=FakeBar))
    shell = ZMQInteractiveShell() if is_notebook else None
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "FRAME", 0.005)
    with progress.watch("work", None) as work:
        work.step(1, 2)
        time.sleep(0.1)
    if not is_notebook:
        assert not FakeBar.made
        return
    (bar,) = FakeBar.made
    assert bar.desc == "moec: work" and bar.total == 100 and 50 in bar.seen and bar.is_closed


def test_generated_weights_are_equal_and_fit_in_memory(layer) -> None:
    rows = make_rows(2)
    again = moec.compile(F32, device="cpu").generate_weights()
    other = moec.compile(F32, device="cpu").generate_weights(seed=1)
    assert np.array_equal(again(rows), layer(rows)) and not np.array_equal(other(rows), layer(rows))
    assert 0.01 < np.abs(np.array(layer(rows))).mean() < 10
    huge = moec.compile({**F32, "num_experts": 128, "hidden_size": 2**14, "intermediate_size": 2**15}, device="cpu")
    with pytest.raises(moec.ResourceExhausted, match="GiB free; reduce it with num_experts or tokens"):
        huge.generate_weights()


def test_tuning_without_a_gpu(layer, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MOERT_CUDA_LIBRARY", "/no/libcuda.so")
    monkeypatch.setattr(compiler, "_devices", {})
    with pytest.raises(moec.Unavailable, match="/no/libcuda.so"):
        layer.tune(tmp_path / "tuned.json")
    assert not (tmp_path / "tuned.json").exists()
