# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The check of a run: correct results pass, and each wrong one is named."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from moec.reference import LayerSpec, check, decide, evaluate, expert_counts
from moec.reference import expert_offsets, generate
from moec.reference.__main__ import main
from moec.reference.numerics import NUMPY_DTYPES

SPEC = {
    "moec_spec": 1,
    "dtype": "f32",
    "entry": "logits",
    "hidden_size": 12,
    "num_experts": 8,
    "top_k": 2,
    "intermediate_size": 6,
    "routing": {"score": "identity", "weight": "softmax"},
    "activation": {"kind": "silu"},
}


def results(spec, tensors):
    decision = decide(spec, tensors)
    counts = expert_counts(spec, decision)
    with np.errstate(over="ignore"):
        output = evaluate(spec, tensors, decision).astype(NUMPY_DTYPES[spec.dtype])
    return {
        "output": output,
        "topk_ids": decision.ids.astype(np.int32),
        "topk_weights": decision.weights.astype(np.float32),
        "expert_counts": counts.astype(np.int32),
        "expert_offsets": expert_offsets(counts).astype(np.int32),
    }


def case(tokens=33, seed=1, **changes):
    value = copy.deepcopy(SPEC) | changes
    spec = LayerSpec.from_json(value)
    tensors = generate(spec, tokens, seed)
    return spec, tensors, results(spec, tensors)


def failures(spec, tensors, outputs):
    return check(spec, tensors, outputs).failures


def test_right_results():
    spec, tensors, outputs = case()
    report = check(spec, tensors, outputs)
    assert report.ok and report.rows == 33 and report.near_ties == 0
    assert report.summary().startswith("ok: relative error")
    assert not failures(spec, tensors, {"output": outputs["output"]})


def test_wrong_row_of_output():
    spec, tensors, outputs = case()
    outputs["output"][5] *= 1.001
    report = check(spec, tensors, outputs)
    assert not report.ok and "row 5" in "".join(report.failures)
    assert report.summary().startswith("FAILED")


def test_wrong_id():
    spec, tensors, outputs = case()
    outputs["topk_ids"][4] = outputs["topk_ids"][4, ::-1]
    assert "topk_ids: row 4" in failures(spec, tensors, outputs)[0]
    assert "ulps apart" in failures(spec, tensors, outputs)[0]
    outputs["topk_ids"][4, 0] = 99
    assert "topk_ids: row 4" in failures(spec, tensors, outputs)[0]


def test_wrong_weight():
    spec, tensors, outputs = case()
    outputs["topk_weights"][4, 1] += 1e-3
    assert "topk_weights: " in failures(spec, tensors, outputs)[0]


def test_wrong_counts_and_offsets():
    spec, tensors, outputs = case()
    outputs["expert_counts"][3] += 1
    (message,) = failures(spec, tensors, outputs)
    assert message.startswith("expert_counts[3] is")
    spec, tensors, outputs = case()
    outputs["expert_offsets"][8] -= 1
    (message,) = failures(spec, tensors, outputs)
    assert message.startswith("expert_offsets[8] is")


@pytest.mark.parametrize("dtype,wrong", [("f32", 2e-5), ("bf16", 5e-3), ("f16", 2e-3)])
def test_bound_follows_the_dtype(dtype, wrong):
    spec, tensors, outputs = case(dtype=dtype)
    assert check(spec, tensors, outputs).ok
    outputs["output"] = (outputs["output"].astype(np.float64) * (1 + wrong)).astype(
        NUMPY_DTYPES[dtype]
    )
    assert failures(spec, tensors, outputs)


def test_bound_of_weights_that_may_be_rounded():
    groups = {"weight": {"dtype": "int4", "scale": {"group": 32}}}
    for quantization, dtype, bound in (
        (groups, "bf16", 8e-3), (groups, "f16", 1e-3), ("mxfp4", "bf16", 3e-3), ("nvfp4", "bf16", 3e-3),
        ("fp8_block128", "bf16", 2e-2),
    ):
        spec, tensors, outputs = case(dtype=dtype, quantization=quantization, hidden_size=64, intermediate_size=32)
        assert check(spec, tensors, outputs).comparison.bound == bound


@pytest.mark.parametrize(
    ("dtype", "quantization", "wrong", "ok"),
    [("bf16", None, 5e-3, True), ("bf16", None, 1.2e-2, False), ("bf16", "mxfp4", 1e-2, False),
     ("f16", None, 4e-3, False)],
)
def test_bound_of_adapters(dtype, quantization, wrong, ok):
    """First products may be rounded to bf16, if no weight is quantized."""
    fields = {} if quantization is None else {"quantization": quantization}
    spec, tensors, outputs = case(dtype=dtype, hidden_size=64, intermediate_size=32, lora={"adapters": 2, "rank": 8},
                                  **fields)
    row = outputs["output"].astype(np.float64)
    row[3] *= 1 + wrong
    outputs["output"] = row.astype(NUMPY_DTYPES[dtype])
    assert check(spec, tensors, outputs).ok == ok


def test_bound_of_sums_over_ranks():
    for parallel, bound in (({"tp": 2}, 8e-3), ({"dp": 2, "experts": "linear"}, 8e-3), ({"tp": 1}, 3e-3)):
        spec, tensors, outputs = case(dtype="bf16", parallel=parallel)
        assert check(spec, tensors, outputs).comparison.bound == bound


def near_tie_case(ulps, tokens=200, rows=(7,)):
    """Makes the second and third keys of some rows a near tie."""
    spec, tensors, _ = case(tokens=tokens)
    logits = tensors["router_logits"]
    for row in rows:
        order = np.argsort(-logits[row])
        value = logits[row, order[1]]
        for _ in range(ulps):
            value = np.nextafter(value, np.float32(-np.inf))
        logits[row, order[2]] = value
    return spec, tensors, results(spec, tensors)


def other_side(spec, tensors, row):
    """Returns the results of a run that resolved the near ties the other way."""
    changed = {name: value.copy() for name, value in tensors.items()}
    logits = changed["router_logits"]
    order = np.argsort(-logits[row], kind="stable")
    second, third = order[1], order[2]
    logits[row, second], logits[row, third] = logits[row, third], logits[row, second]
    return results(spec, changed)


@pytest.mark.parametrize("ulps,right", [(1, True), (4, True), (5, False)])
def test_near_tie_with_ids(ulps, right):
    spec, tensors, _ = near_tie_case(ulps)
    other = other_side(spec, tensors, 7)
    report = check(spec, tensors, other)
    assert report.near_ties == int(right)
    assert report.ok == right
    if not right:
        assert f"row 7 is {other['topk_ids'][7].tolist()}" in report.failures[0]
        assert "5 ulps apart" in report.failures[0]


def test_near_tie_with_ids_of_one_side_and_output_of_the_other():
    spec, tensors, outputs = near_tie_case(2)
    outputs["topk_ids"] = other_side(spec, tensors, 7)["topk_ids"]
    assert any("output: row 7" in text for text in failures(spec, tensors, outputs))


@pytest.mark.parametrize("ulps,right", [(1, True), (4, True), (5, False)])
def test_near_tie_without_ids(ulps, right):
    spec, tensors, outputs = near_tie_case(ulps)
    other = other_side(spec, tensors, 7)
    for run in (outputs, other):
        alone = {name: run[name] for name in ("output", "expert_counts")}
        assert check(spec, tensors, alone).ok == (right or run is outputs)


def test_near_tie_without_ids_is_no_excuse():
    spec, tensors, outputs = near_tie_case(1)
    alone = {"output": outputs["output"]}
    alone["output"][7] *= -1
    assert any("row 7" in text for text in failures(spec, tensors, alone))


def test_share_of_near_ties_is_bounded():
    spec, tensors, outputs = near_tie_case(1, rows=(7, 8))
    report = check(spec, tensors, outputs)
    assert report.near_ties == 2 and "2 of 200 rows" in report.failures[0]
    assert "(1.00 %)" in report.summary()
    assert check(*near_tie_case(1, rows=(7,))).ok


def test_ids_that_do_not_count_may_be_anything_that_does_not():
    spec, tensors, outputs = case(entry="ids", routing={})
    tensors["topk_ids"][3] = [-1, 5]
    outputs = results(spec, tensors)
    outputs["topk_ids"][3, 0] = 8
    outputs["topk_weights"][3, 0] = np.nan
    assert check(spec, tensors, outputs).ok
    outputs["topk_ids"][3, 0] = 2
    assert "topk_ids: row 3" in failures(spec, tensors, outputs)[0]


# field-bug: vllm#38148
def test_weights_that_are_not_finite():
    spec, tensors, _ = case()
    tensors["experts.w13"][:, 0, 0] = np.nan
    outputs = results(spec, tensors)
    assert np.isnan(outputs["output"]).all()
    said = failures(spec, tensors, outputs)
    assert len(said) == 1 and "output: 33 of 33 rows are not finite in the reference" in said[0]
    assert check(spec, tensors, outputs, weights_are_finite=False).ok


@pytest.mark.parametrize("name", ["hidden_states", "topk_weights"])
def test_rows_whose_inputs_are_not_finite(name):
    spec, tensors, _ = case(entry="ids", routing={})
    tensors[name][4, 0] = np.inf
    outputs = results(spec, tensors)
    assert not np.isfinite(outputs["output"][4]).all()
    assert check(spec, tensors, outputs).ok


def test_padding_rows():
    spec, tensors, _ = case(num_valid_tokens=True)
    tensors["num_valid_tokens"][0] = 10
    outputs = results(spec, tensors)
    outputs["topk_ids"][10:] = -1
    outputs["topk_ids"][20] = [3, 3]
    assert check(spec, tensors, outputs).ok
    outputs["output"][12, 3] = 1e-20
    assert "row 12 must be exactly zero" in failures(spec, tensors, outputs)[0]


def test_no_tokens():
    spec, tensors, outputs = case(tokens=0)
    report = check(spec, tensors, outputs)
    assert report.ok and "no rows" in report.summary()


# -- files and the command line


@pytest.fixture
def files(tmp_path):
    spec, tensors, outputs = case()
    paths = {name: tmp_path / name for name in ("spec.json", "in", "out")}
    paths["spec.json"].write_text(json.dumps(SPEC))
    save_file(tensors, paths["in"])
    save_file(outputs, paths["out"])
    return paths, tensors, outputs


def run_check(paths, *options):
    arguments = ["check", "--spec", str(paths["spec.json"])]
    arguments += ["--inputs", str(paths["in"]), "--outputs", str(paths["out"])]
    return main([*arguments, *options])


def test_command_passes(files, capsys):
    assert run_check(files[0]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and out.startswith("ok: ")
    assert "near ties 0 of 33 rows (0.00 %)" in out


def test_command_fails(files, capsys):
    paths, _, outputs = files
    outputs["output"][2] += 1
    save_file(outputs, paths["out"])
    assert run_check(paths) == 1
    out = capsys.readouterr().out
    assert out.startswith("FAILED: ") and "row 2" in out


def test_module_command(files):
    paths, *_ = files
    command = [sys.executable, "-m", "moec.reference", "check"]
    command += ["--spec", paths["spec.json"], "--inputs", paths["in"]]
    done = subprocess.run(
        [*command, "--outputs", paths["out"]],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stdout.startswith("ok: "), done.stderr


def expect_bad(paths, capsys, *parts, options=()):
    assert run_check(paths, *options) == 2
    error = capsys.readouterr().err
    for part in parts:
        assert str(part) in error, error


def test_missing_tensor(files, capsys):
    paths, tensors, _ = files
    del tensors["experts.w2"]
    save_file(tensors, paths["in"])
    expect_bad(paths, capsys, paths["in"], "'experts.w2' is missing")


def test_unknown_tensor(files, capsys):
    paths, tensors, _ = files
    save_file(tensors | {"experts.w4": tensors["experts.w2"]}, paths["in"])
    expect_bad(paths, capsys, paths["in"], "'experts.w4' is not in the signature")


def test_wrong_shape(files, capsys):
    paths, tensors, outputs = files
    tensors["experts.w2"] = tensors["experts.w2"][:, :, :5]
    save_file({n: np.ascontiguousarray(t) for n, t in tensors.items()}, paths["in"])
    expect_bad(paths, capsys, "'experts.w2' has shape [8, 12, 5]", "[8, 12, 6]")


def test_wrong_token_count(files, capsys):
    paths, _, outputs = files
    outputs["output"] = outputs["output"][:5]
    save_file(outputs, paths["out"])
    expect_bad(paths, capsys, paths["out"], "'output' has shape [5, 12]", "[33, 12]")


def test_wrong_dtype(files, capsys):
    paths, tensors, _ = files
    tensors["hidden_states"] = tensors["hidden_states"].astype(np.float16)
    save_file(tensors, paths["in"])
    expect_bad(paths, capsys, "'hidden_states' has dtype F16, expected F32")


def test_missing_output(files, capsys):
    paths, _, outputs = files
    del outputs["output"]
    save_file(outputs, paths["out"])
    expect_bad(paths, capsys, paths["out"], "'output' is missing")


def test_broken_files(files, capsys, tmp_path):
    paths, *_ = files
    paths["in"].write_bytes(paths["in"].read_bytes()[:-7])
    expect_bad(paths, capsys, paths["in"])
    paths["in"] = tmp_path / "nowhere"
    expect_bad(paths, capsys, paths["in"])
    paths["spec.json"].write_text('{"moec_spec": 1,\n "dtype": }')
    expect_bad(paths, capsys, "spec.json:2:11:")
    paths["spec.json"].write_text("[" * 100_000)
    expect_bad(paths, capsys, "nested too deeply")
    paths["spec.json"].write_text(json.dumps(SPEC | {"top_kk": 2}))
    expect_bad(paths, capsys, "spec.json: unknown field 'top_kk'")


def test_bad_override(files, capsys):
    expect_bad(files[0], capsys, "top_k", options=["--num-experts", "1"])


def test_generate_command(tmp_path, capsys):
    spec, out = tmp_path / "spec.json", tmp_path / "in"
    spec.write_text(json.dumps(SPEC))
    command = ["generate", "--spec", str(spec), "--tokens", "5", "-o", str(out)]
    assert main([*command, "--seed", "7", "--num-experts", "4"]) == 0
    tensors = load_file(out)
    assert tensors["experts.w13"].shape == (4, 12, 12)
    assert main([*command, "--seed", "7", "--hard", "nan_logits"]) == 0
    assert np.isnan(load_file(out)["router_logits"]).any()
    assert main([*command, "--hard", "minus_one_ids"]) == 2
    assert "minus_one_ids" in capsys.readouterr().err
    command[4] = "-1"
    assert main(command) == 2


def test_run_command_agrees_with_check(files, tmp_path):
    paths, *_ = files
    paths["out"] = tmp_path / "run"
    arguments = ["run", "--spec", str(paths["spec.json"]), "--inputs", str(paths["in"])]
    assert main([*arguments, "-o", str(paths["out"])]) == 0
    assert len(load_file(paths["out"])) == 5
    assert run_check(paths) == 0
