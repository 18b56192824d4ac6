# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers over several ranks, which are threads of one process, against the layer on one rank.

Tensors are those of all groups of ranks together, so that the reference does not need to know ranks.
"""

import dataclasses
import json
import re
import subprocess
from dataclasses import dataclass

import numpy as np
import pytest
from cases import BASE
from runs import ALL_CASES, TIMEOUT, binary

from moec.reference import LayerSpec, TensorFile, check, generate, signature, write_tensors


def read_spec(model: dict) -> LayerSpec:
    """The whole layer of `model`, whose rows ranks add up."""
    return dataclasses.replace(LayerSpec.from_json(model), adds_over_ranks=True)


#: Ranks with tokens of their own, ranks with the same ones.
MESHES = [(2, 1), (1, 2), (4, 1), (2, 2), (1, 4), (8, 1), (4, 2), (2, 4), (1, 8), (16, 1), (4, 4), (1, 16)]
LAYERS = {
    "logits": {},
    "gate_shared_bias": {
        "dtype": "bf16", "entry": "gate", "expert_bias": True,
        "shared_experts": {"intermediate_size": 64, "gate": "sigmoid", "scale": 0.5, "bias": True},
    },
    "latent_shared": {"entry": "gate", "latent_size": 32, "shared_experts": {"intermediate_size": 32}},
    "interleaved": {"gate_up_order": "interleaved", "expert_bias": True},
    "weight_on_input": {"top_k": 1, "routing": {"score": "sigmoid", "weight_on_input": True}},
    "columns": {
        "dtype": "bf16", "entry": "gate", "expert_columns": True, "expert_bias": True,
        "shared_experts": {"intermediate_size": 64, "columns": True},
    },
    "lora": {"dtype": "bf16", "entry": "gate", "lora": {"adapters": 3, "rank": 8}},
    "fp8_block": {"dtype": "bf16", "hidden_size": 256, "intermediate_size": 256, "quantization": "fp8_block128"},
    "columns_fp8_block": {
        "dtype": "bf16", "hidden_size": 256, "intermediate_size": 256, "quantization": "fp8_block128",
        "expert_columns": True, "shared_experts": {"intermediate_size": 256, "columns": True},
    },
    "int4": {"dtype": "bf16", "quantization": {"weight": {"dtype": "int4", "scale": {"group": 16}}}},
    "fp8_channel": {
        "dtype": "bf16",
        "quantization": {"weight": {"dtype": "fp8_e4m3", "scale": "channel"},
                         "activation": {"dtype": "fp8_e4m3", "scale": "token"}},
    },
}


@dataclass(frozen=True)
class Ranks:
    dp: int
    tp: int
    experts: object = None
    sp: bool = False
    pcp: int = 1

    @property
    def field(self) -> dict:
        field = {"dp": self.dp, "tp": self.tp} | ({"sp": True} if self.sp else {})
        field |= {"pcp": self.pcp} if self.pcp > 1 else {}
        return field if self.experts is None else field | {"experts": self.experts}

    @property
    def token_ranks(self) -> int:
        """Ranks, or groups of ranks, with tokens of their own."""
        return self.dp * self.pcp * (self.tp if self.sp else 1)


def spec_of(**fields) -> dict:
    model = BASE | {"num_experts": 16, "intermediate_size": 64, "max_tokens": 512} | fields
    if model["entry"] == "ids":
        model["routing"] = {}
    return model


def run(folder, model: dict, ranks: Ranks, inputs, tokens: int, *options: str) -> subprocess.CompletedProcess:
    """Runs the ranks; `tokens` are those of one."""
    spec, given = folder / "ranks.json", folder / "in.safetensors"
    spec.write_text(json.dumps(model | {"parallel": ranks.field}))
    write_tensors(given, inputs)
    command = [str(binary("moe-run")), str(spec), f"--inputs={given}", f"--outputs={folder}/out.safetensors",
               f"--tokens={tokens}", *options]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT)


def verify(
    folder, model: dict, ranks: Ranks, tokens: int = 5, seed: int = 1, ids=None, options=(), change=None
) -> None:
    """change: called with the inputs ahead of the run."""
    spec = read_spec(model)
    inputs = generate(spec, tokens * ranks.token_ranks, seed)
    if change is not None:
        change(inputs)
    if ids is not None:
        inputs["topk_ids"] = ids.astype(np.int32)
    done = run(folder, model, ranks, inputs, tokens, *options)
    assert done.returncode == 0, done.stdout
    given, made = TensorFile(folder / "in.safetensors"), TensorFile(folder / "out.safetensors")
    made.require(signature.outputs(spec), given.require(signature.inputs(spec)), optional=True)
    report = check(spec, given, made)
    assert report.ok, "\n".join([report.summary(), *report.failures, done.stdout])


@pytest.mark.pairs
@pytest.mark.parametrize("experts", ["linear", "round_robin", None], ids=str)
@pytest.mark.parametrize(("dp", "tp"), MESHES)
def test_meshes(dp, tp, experts, tmp_path):
    verify(tmp_path, spec_of(shared_experts={"intermediate_size": 32}), Ranks(dp, tp, experts))


#: Blocks of 128 divide the two slices of 256 rows. Each rank computes token scales for its own slice, unlike the
#: reference.
SPLIT = {"fp8_block": Ranks(2, 1), "columns_fp8_block": Ranks(2, 1), "fp8_channel": None}


# field-bug: ktransformers#2076, intel/llm-scaler#633
# parity: R9
@pytest.mark.parametrize(("layer", "ranks"), [
    pytest.param(layer, ranks, id=f"{layer}-{ranks.dp}x{ranks.tp}-{ranks.experts}")
    for layer in LAYERS
    for ranks in (Ranks(2, 2, "linear"), Ranks(4, 1, "round_robin"), SPLIT.get(layer, Ranks(2, 2))) if ranks
])
def test_layers(layer, ranks, tmp_path):
    verify(tmp_path, spec_of(**LAYERS[layer]), ranks)


def test_blocks_of_a_whole_shared_expert(tmp_path):
    """Two of its 18 columns are in the second block, and no rank has fewer."""
    weight = {"dtype": "int4", "scale": {"block": [16, 32]}}
    shared = {"intermediate_size": 18, "quantization": {"weight": weight}}
    verify(tmp_path, spec_of(dtype="f32", shared_experts=shared), Ranks(2, 1), options=("--target=cpu",))


def test_biases_of_the_shared_expert(tmp_path):
    """One rank of a group adds the bias of the second gemm."""
    shared = {"intermediate_size": 72, "bias": True, "scale": 0.5}
    options = ("--device=sim:1", "--target=sm_90a", "--max-tokens=8", "--rank-limit=60")
    verify(tmp_path, spec_of(dtype="bf16", gate_up_order="up_gate", shared_experts=shared), Ranks(1, 2), options=options)


# parity: N18
@pytest.mark.parametrize(("ranks", "options"), [
    (Ranks(2, 1, "linear"), ()), (Ranks(2, 2, "round_robin"), ()), (Ranks(2, 2), ()), (Ranks(1, 2, sp=True), ()),
    (Ranks(2, 2, "linear", sp=True), ()),
    (Ranks(2, 1, "linear"), ("--device=sim:1", "--target=sm_90a", "--max-tokens=8", "--rank-limit=60"))])
def test_one_scale_for_the_rows_of_all_ranks(ranks, options, tmp_path):
    """The rows of all ranks but the first are so small that by a scale of their own they would be other numbers."""
    def shrink(inputs) -> None:
        inputs["hidden_states"][5:] *= 2.0**-15

    # Each rank has a scale of its own for the rows of the second product, unlike the reference.
    weight = {"dtype": "fp8_e4m3", "scale": "channel"}
    quantization = {
        "weight": weight, "activation": {"dtype": "fp8_e4m3", "scale": "tensor"}, "w2": {"weight": weight}}
    verify(tmp_path, spec_of(dtype="bf16", quantization=quantization), ranks, options=options, change=shrink)


@pytest.mark.parametrize("experts", ["linear", None], ids=str)
def test_columns_of_a_group_s_rows(experts, tmp_path):
    """Behind the dispatch over tp, whose rows routed experts read too."""
    verify(tmp_path, spec_of(**LAYERS["columns"]), Ranks(2, 2, experts, sp=True))


@pytest.mark.pairs
@pytest.mark.parametrize("experts", ["round_robin", None], ids=str)
@pytest.mark.parametrize(("dp", "pcp", "tp", "sp"),
                         [(1, 2, 1, False), (1, 2, 2, False), (2, 2, 2, True), (2, 4, 1, False)])
def test_prefill_context_parallel(dp, pcp, tp, sp, experts, tmp_path):
    """Ranks that share a prompt have separate tokens, and the bits of as many groups that share none."""
    model = spec_of(shared_experts={"intermediate_size": 32})
    made = []
    for name, ranks in (("pcp", Ranks(dp, tp, experts, sp, pcp)), ("dp", Ranks(dp * pcp, tp, experts, sp))):
        folder = tmp_path / name
        folder.mkdir()
        verify(folder, model, ranks)
        made.append((folder / "out.safetensors").read_bytes())
    assert made[0] == made[1]


#: Fields of layers with zero experts, which read rows in many ways.
ZEROS = {
    "logits": {},
    "ids": {"entry": "ids", "dtype": "bf16"},
    "shared": {"entry": "gate", "shared_experts": {"intermediate_size": 32, "gate": "sigmoid"}},
    "shares": {"entry": "gate", "shared_experts": {"intermediate_size": 32, "gate": "softmax"}},
    "latent": {"entry": "gate", "latent_size": 32},
    "latent_shared": {"entry": "gate", "latent_size": 32, "shared_experts": {"intermediate_size": 32}},
    "weight_on_input": {"top_k": 1, "routing": {"score": "sigmoid", "weight_on_input": True}},
    "fp8_channel": LAYERS["fp8_channel"],
}
#: Every mesh of 2 and of 4 ranks.
FEW_RANKS = [(2, 1, False), (1, 2, False), (1, 2, True), (4, 1, False), (2, 2, False), (2, 2, True), (1, 4, False),
             (1, 4, True)]


def with_zeros(fields: dict) -> dict:
    return spec_of(**{"num_zero_experts": 8, "top_k": 4} | fields)


#: With fp8_channel, ranks with slices of each expert have separate scales for their slices of a row, unlike a single
#: rank.
@pytest.mark.pairs
@pytest.mark.parametrize(("layer", "experts"), [
    *((layer, "linear") for layer in ZEROS), *((layer, None) for layer in ZEROS if layer != "fp8_channel")])
@pytest.mark.parametrize(("dp", "tp", "sp"), FEW_RANKS)
def test_zero_experts(dp, tp, sp, layer, experts, tmp_path):
    """Each token's zero experts count once, by its own row."""
    verify(tmp_path, with_zeros(ZEROS[layer]), Ranks(dp, tp, experts, sp))


@pytest.mark.pairs
@pytest.mark.parametrize("layer", ["logits", "shared", "latent_shared"])
@pytest.mark.parametrize("entry", ["gate", "ids"])
@pytest.mark.parametrize(("dp", "tp", "sp"), FEW_RANKS)
def test_zero_experts_of_padding(dp, tp, sp, entry, layer, tmp_path):
    """Padding rows are zero, whatever their ids are: by a number, and by a mask."""
    model = with_zeros(ZEROS[layer] | {"entry": entry, "num_valid_tokens": True, "padding_mask": True})
    ranks = Ranks(dp, tp, "round_robin", sp)
    rows = 5
    counts = [5, 3, 0, 4][: ranks.token_ranks]
    inputs = generate(read_spec(model), rows * ranks.token_ranks, 3)
    hidden = inputs["hidden_states"].reshape(ranks.token_ranks, rows, -1)
    for part, count in zip(hidden, counts):
        part[count:] = np.nan
    done = run(tmp_path, model, ranks, inputs, rows, f"--rank-tokens={','.join(map(str, counts))}", "--check")
    assert done.returncode == 0, done.stdout
    made = TensorFile(tmp_path / "out.safetensors")
    made.require(signature.outputs(read_spec(model)), rows * ranks.token_ranks, optional=True)
    output = np.asarray(made["output"][...]).reshape(ranks.token_ranks, rows, -1)
    masks = inputs["is_padding"].reshape(ranks.token_ranks, rows)
    for part, count, mask in zip(output, counts, masks):
        assert np.isfinite(part).all() and not part[count:].any() and not part[mask != 0].any()
        assert part[:count][mask[:count] == 0].any() or not (mask[:count] == 0).any()


@pytest.mark.parametrize("spread", ["all", "none", "odd", "wrong"])
def test_zero_experts_of_some_tokens(spread, tmp_path):
    """All slots, none, every second, and invalid ids behind those of zero experts."""
    model = with_zeros({"entry": "ids"})
    rng = np.random.default_rng(1)
    real, zero = rng.integers(0, 16, (24, 4)), rng.integers(16, 24, (24, 4))
    odd = np.arange(4) % 2 == 1
    ids = {"all": zero, "none": real, "odd": np.where(odd, zero, real), "wrong": np.where(odd, 24, zero)}[spread]
    verify(tmp_path, model, Ranks(2, 2, "linear"), tokens=12, ids=ids)


@pytest.mark.parametrize("level", ["plan", "tile"])
def test_zero_experts_at_levels(level, tmp_path):
    verify(tmp_path, with_zeros(ZEROS["latent_shared"]), Ranks(2, 2, "linear"), options=(f"--level={level}",))
    verify(tmp_path, with_zeros(ZEROS["shared"]), Ranks(2, 2, None, sp=True), options=(f"--level={level}",))


@pytest.mark.pairs
@pytest.mark.parametrize("layer", ["logits", "shared", "latent_shared"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("dp", "tp", "sp"), [(2, 1, False), (4, 1, False), (2, 2, False), (2, 2, True)])
def test_zero_experts_simulated(dp, tp, sp, target, layer, tmp_path):
    """The kernels for GPUs, with an exchange through the memory of other ranks and without: the same bits."""
    model = with_zeros(ZEROS[layer] | {"dtype": "bf16"})
    options = ("--device=sim:1", f"--target={target}", "--max-tokens=8", "--rank-limit=60")
    made = []
    for exchange in ("peer", "default"):
        folder = tmp_path / exchange
        folder.mkdir()
        verify(folder, model, Ranks(dp, tp, "linear", sp), tokens=3, options=(*options, f"--exchange={exchange}"))
        made.append((folder / "out.safetensors").read_bytes())
    assert made[0] == made[1]


def distributions(rng: np.random.Generator, tokens: int, experts: int, top_k: int, ranks: int):
    """Routings of 40 batches."""
    def draw(weights):
        return np.stack([rng.choice(experts, top_k, replace=False, p=weights / weights.sum()) for _ in range(tokens)])

    per_rank = experts // ranks
    for exponent in np.linspace(0, 3, 24):
        yield draw(rng.permutation(np.arange(1, experts + 1) ** -exponent))
    for rank in range(4):
        # One rank has all the work.
        first = rank * ranks // 4 * per_rank
        yield first + rng.integers(0, per_rank, (tokens, top_k))
    for expert in (0, experts - 1):
        yield np.full((tokens, top_k), expert)
    for share in (0.25, 0.5, 0.75, 1.0):
        # Slots without an expert.
        ids = draw(np.ones(experts))
        yield np.where(rng.random(ids.shape) < share, -1, ids)
    for bad in (experts, 2**31 - 1, -(2**31)):
        ids = draw(np.ones(experts))
        ids[:, 0] = bad
        yield ids
    for first in (0, 1, 2):
        # Every token goes to all ranks, or as many as it can.
        yield (first + np.arange(top_k) * per_rank + np.zeros((tokens, 1), int)) % experts


#: Each batch runs on one number of ranks, in the nightly run on all.
BATCHES = [(ranks, number) for i, ranks in enumerate((2, 4, 8, 16)) for number in range(40)
           if ALL_CASES or number % 4 == i]


@pytest.mark.parametrize(("ranks", "number"), BATCHES)
def test_distributions(ranks, number, tmp_path):
    model = spec_of(entry="ids", top_k=4)
    rng = np.random.default_rng(number)
    batches = list(distributions(rng, 3 * ranks, 16, 4, ranks))
    assert len(batches) == 40
    verify(tmp_path, model, Ranks(ranks, 1, "linear"), tokens=3, seed=number, ids=batches[number])


@pytest.mark.parametrize("tokens", [0, 1])
@pytest.mark.parametrize("ranks", [Ranks(4, 1, "linear"), Ranks(2, 2), Ranks(1, 4, "linear")], ids=str)
def test_few_tokens(tokens, ranks, tmp_path):
    verify(tmp_path, spec_of(), ranks, tokens=tokens)


# field-bug: DeepEP#374, DeepEP#208, DeepEP#604, DeepEP#744
@pytest.mark.parametrize("entry", ["gate", "ids"])
@pytest.mark.parametrize("counts", ["0,3,7,1", "0,0,0,0", "7,0,0,0"])
def test_ranks_with_fewer_tokens(entry, counts, tmp_path):
    """Rows of ranks with fewer tokens are padding: zero and not computed."""
    model = spec_of(entry=entry, num_valid_tokens=True, shared_experts={"intermediate_size": 32})
    inputs = generate(read_spec(model), 28, 3)
    if entry == "gate":
        # The option is enough.
        del inputs["num_valid_tokens"]
    done = run(tmp_path, model, Ranks(4, 1, "linear"), inputs, 7, f"--rank-tokens={counts}", "--check")
    assert done.returncode == 0, done.stdout
    made = TensorFile(tmp_path / "out.safetensors")
    made.require(signature.outputs(read_spec(model)), 28, optional=True)
    output = np.asarray(made["output"][...]).reshape(4, 7, -1)
    for rows, count in zip(output, map(int, counts.split(","))):
        assert not rows[count:].any() and (count == 0 or rows[:count].any())


@pytest.mark.parametrize(("dp", "tp"), [(2, 2), (4, 1)])
def test_many_runs_and_times_of_parts(dp, tp, tmp_path):
    """Four inputs alternate in 230 runs, and kernels measured alone use the data gathered before."""
    model = spec_of(**LAYERS["fp8_block"])
    inputs = generate(read_spec(model), 6 * dp, 3)
    done = run(tmp_path, model, Ranks(dp, tp, "linear"), inputs, 6, "--check", "--compare=230", "--repeat=3",
               "--times-at=1,6")
    assert done.returncode == 0, done.stdout
    assert "equal bits in 230 more runs" in done.stdout
    rows = re.findall(r"^ +(\d)  (\w+) +3 +(\d+\.\d+) +(\d+\.\d+)$", done.stdout, re.MULTILINE)
    parts = ["layer", "compute", "exchange", "dispatch", "combine"]
    assert [(tokens, name) for tokens, name, *_ in rows] == [(tokens, name) for tokens in "16" for name in parts]
    assert all(0 < float(median) <= float(p99) for *_, median, p99 in rows)


@pytest.mark.pairs
@pytest.mark.parametrize("experts", ["linear", None], ids=str)
@pytest.mark.parametrize(("dp", "tp"), [(1, 2), (1, 4), (2, 2), (1, 8), (2, 4), (4, 2)])
def test_parts_of_a_groups_tokens(dp, tp, experts, tmp_path):
    verify(tmp_path, spec_of(shared_experts={"intermediate_size": 32}), Ranks(dp, tp, experts, sp=True))


@pytest.mark.parametrize(("layer", "ranks"), [
    pytest.param(layer, ranks, id=f"{layer}-{ranks.dp}x{ranks.tp}-{ranks.experts}")
    for layer in LAYERS
    for ranks in (Ranks(1, 2, "round_robin", sp=True), Ranks(2, 2, "linear", sp=True))
])
def test_layers_with_parts_of_tokens(layer, ranks, tmp_path):
    verify(tmp_path, spec_of(**LAYERS[layer]), ranks)


@pytest.mark.parametrize("tokens", [0, 1])
def test_few_tokens_in_parts(tokens, tmp_path):
    verify(tmp_path, spec_of(), Ranks(2, 2, "linear", sp=True), tokens=tokens)


def split(tokens: int, parts: int, rows: int) -> str:
    """Valid tokens of each part; all but the last parts are full."""
    return ",".join(str(min(max(tokens - part * rows, 0), rows)) for part in range(parts))


@pytest.mark.pairs
@pytest.mark.parametrize("layer", ["routed", "shared", "latent"])
@pytest.mark.parametrize("entry", ["gate", "ids"])
@pytest.mark.parametrize(("dp", "tp", "tokens"), [(1, 2, 5), (1, 4, 5), (2, 2, 7), (1, 8, 9), (2, 4, 3)])
def test_tokens_that_do_not_divide(dp, tp, tokens, entry, layer, tmp_path):
    """Each group has this number of tokens, in parts of equal size; remaining rows are padding."""
    fields = {"routed": {}, "shared": {"shared_experts": {"intermediate_size": 32, "gate": "sigmoid"}},
              "latent": {"latent_size": 32, "shared_experts": {"intermediate_size": 32}}}[layer]
    model = spec_of(entry=entry, num_valid_tokens=True, **fields)
    rows = -(-tokens // tp)
    counts = ",".join([split(tokens, tp, rows)] * dp)
    inputs = generate(read_spec(model), rows * dp * tp, 3)
    # Rows that no rank may read.
    hidden = inputs["hidden_states"].reshape(dp * tp, rows, -1)
    for part, count in zip(hidden, map(int, counts.split(","))):
        part[count:] = np.nan
    done = run(tmp_path, model, Ranks(dp, tp, "linear", sp=True), inputs, rows, f"--rank-tokens={counts}", "--check")
    assert done.returncode == 0, done.stdout
    made = TensorFile(tmp_path / "out.safetensors")
    made.require(signature.outputs(read_spec(model)), rows * dp * tp, optional=True)
    output = np.asarray(made["output"][...]).reshape(dp * tp, rows, -1)
    for part, count in zip(output, map(int, counts.split(","))):
        assert not part[count:].any() and np.isfinite(part).all() and (count == 0 or part[:count].any())


def test_padding_mask_in_parts(tmp_path):
    model = spec_of(entry="gate", padding_mask=True, shared_experts={"intermediate_size": 32})
    verify(tmp_path, model, Ranks(2, 2, "linear", sp=True))


# field-bug: vllm#52639
def test_experts_by_list(tmp_path):
    lists = [[5, 0, 9, 12], [1, 15, 2, 3], [4, 6, 7, 8], [10, 11, 13, 14]]
    verify(tmp_path, spec_of(), Ranks(4, 1, lists))


#: Options of a run on the simulator.
SIM_80, SIM_90 = (("--device=sim:0", f"--target={target}", "--max-tokens=8") for target in ("sm_80", "sm_90a"))
#: 13 experts: as vLLM places them (the first ranks have one more), and lists of other lengths.
UNEVEN = [
    (Ranks(4, 1, "linear"), {}, ()),
    (Ranks(2, 2, "round_robin"), {"entry": "gate", "shared_experts": {"intermediate_size": 32}}, ()),
    (Ranks(2, 2, "linear", sp=True), {"expert_bias": True, "num_zero_experts": 3}, ()),
    (Ranks(3, 1, [[12, 0], [1, 3, 2, 5, 4, 6, 7, 8, 9, 10], [11]]), {"entry": "ids"}, ()),
    (Ranks(1, 5, "round_robin"), LAYERS["fp8_block"], ()),
    (Ranks(8, 1, "round_robin"), {"top_k": 1, "entry": "ids"}, (*SIM_80, "--exchange=all-to-all")),
    (Ranks(2, 1, "linear"), LAYERS["fp8_block"], (*SIM_90, "--exchange=peer")),
    (Ranks(1, 4, "linear"), {"record_load": True, "dtype": "bf16", "quantization": "mxfp4"}, SIM_80),
]


# field-bug: vllm#52639
# parity: L5
@pytest.mark.parametrize(("ranks", "fields", "options"), UNEVEN, ids=lambda value: str(value)[:40])
def test_experts_that_ranks_do_not_divide(ranks, fields, options, tmp_path):
    verify(tmp_path, spec_of(num_experts=13, **fields), ranks, tokens=3, options=options)


#: Ranks have whole blocks of scales, and zeros where these do not divide: of 768 elements 256, 256, 256 and none.
PADDED = [
    (4, 768, LAYERS["fp8_block"], ()),
    (2, 320, {"shared_experts": {"intermediate_size": 320}} | LAYERS["fp8_block"], ()),
    (4, 96, {"expert_bias": True} | LAYERS["int4"], ()),
    (2, 96, {"dtype": "bf16", "quantization": "mxfp4", "gate_up_order": "interleaved"}, ()),
    (4, 96, {"dtype": "bf16", "quantization": "nvfp4"}, SIM_80),
    (2, 384, LAYERS["fp8_block"], SIM_90),
    (4, 96, {"dtype": "bf16", "quantization": "mxfp4"}, SIM_90),
]


# field-bug: vllm#48173, vllm#39046, vllm#52997
# parity: L21
@pytest.mark.parametrize(("tp", "size", "fields", "options"), PADDED, ids=lambda value: str(value)[:40])
def test_blocks_that_ranks_do_not_divide(tp, size, fields, options, tmp_path):
    verify(tmp_path, spec_of(**fields | {"intermediate_size": size}), Ranks(1, tp), tokens=3, options=options)


def replicas_of(model: dict, physical: int, most: int) -> dict:
    return model | {"replicas": {"num_physical_experts": physical, "max_replicas": most}}


def replica_lists(ranks: int, experts: int, physical: int) -> list[list[int]]:
    """Each expert on some rank, the first ones on several, in no order."""
    each = physical // ranks
    lists = [[] for _ in range(ranks)]
    for number in range(physical):
        expert = number if number < experts else (number - experts) % experts
        free = [rank for rank in range(ranks) if len(lists[rank]) < each and expert not in lists[rank]]
        lists[min(free, key=lambda rank: (len(lists[rank]), (rank * 7 + number) % ranks))].insert(0, expert)
    assert all(len(rank) == each for rank in lists)
    return lists


def of_logical(inputs: dict, logical) -> dict:
    """Tensors of a layer without replicas as one with them: physical experts are copies."""
    return {name: value[logical] if name.startswith("experts.") and value.shape[0] == 16 else value
            for name, value in inputs.items()}


#: dp, tp, physical experts, replicas of each at most.
REPLICAS = [(2, 1, 20, 4), (1, 2, 20, 2), (4, 1, 24, 4), (2, 2, 32, 2), (8, 1, 24, 8), (4, 2, 32, 3), (1, 8, 32, 4)]


@pytest.mark.pairs
@pytest.mark.parametrize(("dp", "tp", "physical", "most"), REPLICAS)
@pytest.mark.parametrize("entry", ["gate", "ids"])
def test_replicas(entry, dp, tp, physical, most, tmp_path):
    """Every physical expert has different weights here, so that the output shows which one a token uses: it follows
    from the token's index among all groups' tokens."""
    model = replicas_of(spec_of(entry=entry, shared_experts={"intermediate_size": 32}), physical, most)
    verify(tmp_path, model, Ranks(dp, tp, "linear"), tokens=7)


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("dp", "tp", "physical", "most"), REPLICAS)
def test_replicas_by_list(dp, tp, physical, most, tmp_path):
    """The lists of the spec say which experts physical ones are of, where the tables are not given: the output is that
    of the layer without replicas. With one expert for each token there is one sum, and the bits are the same."""
    lists = replica_lists(dp * tp, 16, physical)
    ranks = Ranks(dp, tp, lists)
    most = max(most, *np.bincount(np.concatenate(lists)).tolist())
    for top_k in (1, 4):
        plain = spec_of(entry="logits", top_k=top_k, expert_bias=True, dtype="bf16")
        inputs = generate(read_spec(plain), 6 * dp, 5)
        made = []
        for name, model, given, placed in (
            ("plain", plain, inputs, Ranks(dp, tp, "linear")),
            ("replicas", replicas_of(plain, physical, most), of_logical(inputs, np.concatenate(lists)), ranks),
        ):
            folder = tmp_path / f"{name}{top_k}"
            folder.mkdir()
            done = run(folder, model, placed, given, 6, "--check")
            assert done.returncode == 0, done.stdout
            made.append((folder / "out.safetensors").read_bytes())
        assert top_k > 1 or made[0] == made[1]


@pytest.mark.parametrize("entry", ["gate", "ids"])
@pytest.mark.parametrize(("dp", "tp"), [(1, 2), (2, 2)])
def test_replicas_of_parts(dp, tp, entry, tmp_path):
    """Replicas are chosen for the rows of all ranks, with sequence parallelism."""
    model = replicas_of(spec_of(entry=entry, num_valid_tokens=True, shared_experts={"intermediate_size": 32}), 24, 3)
    inputs = generate(read_spec(model), 4 * dp * tp, 3)
    counts = ",".join([split(5, tp, 4)] * dp)
    done = run(tmp_path, model, Ranks(dp, tp, "linear", sp=True), inputs, 4, f"--rank-tokens={counts}", "--check")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("layer", ["fp8_block", "int4", "fp8_channel", "latent_shared", "weight_on_input"])
def test_replicas_of_layers(layer, tmp_path):
    fields = LAYERS[layer] | {"record_load": True}
    verify(tmp_path, replicas_of(spec_of(**fields), 24, 4), Ranks(2, 2, "linear"))


@pytest.mark.parametrize("entry", ["gate", "ids"])
def test_replicas_with_padding(entry, tmp_path):
    """Padding is excluded on its own rank, before replicas are chosen."""
    model = replicas_of(spec_of(entry=entry, num_valid_tokens=True, padding_mask=True), 24, 3)
    inputs = generate(read_spec(model), 28, 3)
    done = run(tmp_path, model, Ranks(4, 1, "linear"), inputs, 7, "--rank-tokens=0,3,7,1", "--check")
    assert done.returncode == 0, done.stdout


@pytest.mark.pairs
@pytest.mark.parametrize("layer", ["logits", "shared", "latent_shared"])
@pytest.mark.parametrize("entry", ["gate", "ids"])
@pytest.mark.parametrize(("dp", "tp", "sp"), FEW_RANKS)
def test_replicas_and_zero_experts(dp, tp, sp, entry, layer, tmp_path):
    """Zero experts have no replicas: their ids belong to no rank and count once."""
    model = replicas_of(with_zeros(ZEROS[layer] | {"entry": entry, "record_load": True}), 24, 3)
    verify(tmp_path, model, Ranks(dp, tp, "linear", sp))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_replicas_and_zero_experts_simulated(target, tmp_path):
    model = replicas_of(with_zeros(ZEROS["shared"] | {"dtype": "bf16"}), 24, 3)
    verify(tmp_path, model, Ranks(2, 2, "linear"), tokens=8, options=(
        "--device=sim:1", f"--target={target}", "--max-tokens=8", "--rank-limit=60", "--exchange=peer"))


@pytest.mark.parametrize("level", ["plan", "tile"])
def test_replicas_at_levels(level, tmp_path):
    model = replicas_of(spec_of(entry="ids", padding_mask=True), 24, 3)
    verify(tmp_path, model, Ranks(2, 2, "linear"), options=(f"--level={level}",))


@pytest.mark.parametrize(("dp", "tp", "target"), [(2, 1, "sm_80"), (4, 1, "sm_90a"), (2, 2, "sm_90a"), (8, 1, "sm_80")])
def test_replicas_simulated(dp, tp, target, tmp_path):
    model = replicas_of(spec_of(**LAYERS["gate_shared_bias"]), 24, 4)
    verify(tmp_path, model, Ranks(dp, tp, "linear"), tokens=3,
           options=("--device=sim:0", f"--target={target}", "--max-tokens=8"))


@pytest.mark.parametrize("level", ["plan", "tile"])
def test_levels(level, tmp_path):
    model = spec_of(**LAYERS["gate_shared_bias"])
    verify(tmp_path, model, Ranks(2, 2, "linear"), options=(f"--level={level}",))
    verify(tmp_path, model, Ranks(2, 2, "linear", sp=True), options=(f"--level={level}",))


@pytest.mark.parametrize("level", ["plan", "tile"])
def test_levels_of_parts(level, tmp_path):
    model = spec_of(**LAYERS["gate_shared_bias"], num_valid_tokens=True)
    inputs = generate(read_spec(model), 12, 3)
    done = run(tmp_path, model, Ranks(2, 2, "linear", sp=True), inputs, 3, "--rank-tokens=3,2,3,2", "--check",
               f"--level={level}")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("layer", ["gate_shared_bias", "fp8_block"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_simulated(target, layer, tmp_path):
    """The kernels for GPUs, with collectives that move their results."""
    model = spec_of(**LAYERS[layer])
    ranks = Ranks(2, 2, "linear")
    verify(tmp_path, model, ranks, options=("--device=sim:0", f"--target={target}", "--max-tokens=16"))


@pytest.mark.pairs
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("dp", "tp"), [(1, 2), (2, 2), (2, 4)])
def test_simulated_parts_of_tokens(dp, tp, target, tmp_path):
    """The last kernel skips the padding among 5 tokens of each group."""
    model = spec_of(**LAYERS["gate_shared_bias"], num_valid_tokens=True)
    rows = -(-5 // tp)
    inputs = generate(read_spec(model), rows * dp * tp, 3)
    counts = ",".join([split(5, tp, rows)] * dp)
    done = run(tmp_path, model, Ranks(dp, tp, "linear", sp=True), inputs, rows, f"--rank-tokens={counts}", "--check",
               "--device=sim:0", f"--target={target}", "--max-tokens=4")
    assert done.returncode == 0, done.stdout


def test_peer_exchange_of_parts(tmp_path):
    """Gathers and sums over both axes, through the memory of other ranks."""
    model = spec_of(**LAYERS["gate_shared_bias"])
    options = ("--device=sim:1", "--target=sm_90a", "--max-tokens=4")
    made = []
    for exchange in ("peer", "default"):
        folder = tmp_path / exchange
        folder.mkdir()
        verify(folder, model, Ranks(2, 2, "linear", sp=True), tokens=3,
               options=(*options, f"--exchange={exchange}", "--rank-limit=20"))
        made.append((folder / "out.safetensors").read_bytes())
    assert made[0] == made[1]


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("dp", "tp", "tokens"), [(2, 1, 5), (2, 1, 0), (4, 1, 1), (2, 2, 5), (1, 4, 5), (8, 1, 2)])
def test_peer_exchange(dp, tp, tokens, tmp_path):
    """Kernels that write to the memory of other ranks, in one simulator: right, and with the bits of ranks that copy."""
    model = spec_of(**LAYERS["gate_shared_bias"])
    options = (f"--device=sim:{dp}", "--target=sm_90a", "--max-tokens=16")
    made = []
    for exchange in ("peer", "default"):
        folder = tmp_path / exchange
        folder.mkdir()
        verify(folder, model, Ranks(dp, tp, "linear"), tokens=tokens,
               options=(*options, f"--exchange={exchange}", "--rank-limit=20"))
        made.append((folder / "out.safetensors").read_bytes())
    assert made[0] == made[1]


@pytest.mark.parametrize(("dp", "tp", "layer"), [(2, 1, "logits"), (1, 2, "logits"), (2, 1, "fp8_block")])
def test_times_of_what_kernels_make(dp, tp, layer, tmp_path):
    """Sums and quantized values are computed by separate kernels or by the exchange: each part's time counts once."""
    model = spec_of(**LAYERS[layer])
    inputs = generate(read_spec(model), 2 * dp, 3)
    done = run(tmp_path, model, Ranks(dp, tp, "linear"), inputs, 2, "--device=sim:1", "--target=sm_90a",
               "--max-tokens=2", "--exchange=peer", "--rank-limit=60", "--repeat=2", "--times-at=2")
    assert done.returncode == 0, done.stdout
    rows = re.findall(r"^ +2  (\w+(?: \w+)?) +2 +(-?\d+\.\d+) ", done.stdout, re.MULTILINE)
    gathers = ["dispatch"] if dp > 1 else []
    quantization = ["quantization"] if layer == "fp8_block" else []
    parts = ["layer", "compute", "sums", *quantization, "exchange", *gathers, "combine", *(f"copy {name}" for name in gathers),
             "copy combine"]
    assert [name for name, _ in rows] == parts, done.stdout
    # The time of the sums and the quantization has been subtracted.
    assert all(float(median) > 0 for name, median in rows if name not in ("exchange", "dispatch", "combine"))


#: Layers whose last gemm has several N tiles, and its config with a dynamic tile scheduler.
CUT = spec_of(entry="ids", top_k=2, hidden_size=256, dtype="bf16")
CUT_FP8 = CUT | {"hidden_size": 512, "intermediate_size": 256, "quantization": "fp8_block128"}
DYNAMIC = {
    256: "--config=experts_out:sm90.gemm block_m=16 block_n=64 stages=8 dynamic_scheduler=true",
    512: "--config=experts_out:sm90.gemm block_m=16 block_n=128 stages=4 dynamic_scheduler=true",
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("dp", "tp", "tokens", "chunks", "model"), [
    (2, 1, 9, 2, CUT), (4, 1, 5, 4, CUT), (2, 2, 3, 2, CUT), (1, 2, 9, 2, CUT), (2, 1, 0, 2, CUT),
    (2, 1, 7, 4, CUT_FP8), (4, 1, 3, 2, CUT_FP8),
    (2, 1, 5, 2, CUT | {"entry": "gate", "routing": {"score": "softmax"}, "shared_experts": {"intermediate_size": 64}}),
], ids=lambda value: value.get("quantization", "shared" if "shared_experts" in value else "bf16")
    if isinstance(value, dict) else str(value))
def test_combine_by_columns(dp, tp, tokens, chunks, model, tmp_path):
    """The last gemm and the combine in chunks of columns: the bits of whole ones, for ranks that run kernels and
    ranks that copy."""
    options = (f"--device=sim:{dp}", "--target=sm_90a", "--max-tokens=16", "--rank-limit=60",
               DYNAMIC[model["hidden_size"]])
    made = []
    for exchange, rewrites in (("peer", (f"--set=split-columns.chunks={chunks}", "--disable=join-products")),
                               ("default", (f"--set=split-columns.chunks={chunks}", "--disable=join-products")),
                               ("peer", ("--disable=join-products,split-columns",))):
        folder = tmp_path / str(len(made))
        folder.mkdir()
        verify(folder, model, Ranks(dp, tp, "linear"), tokens=tokens,
               options=(*options, *rewrites, f"--exchange={exchange}"))
        made.append((folder / "out.safetensors").read_bytes())
    assert made[0] == made[1] == made[2]


def test_combine_by_columns_with_fewer_tokens(tmp_path):
    """Padding rows; several runs, whose chunks are exchanged in sequence."""
    model = CUT | {"num_valid_tokens": True}
    inputs = generate(read_spec(model), 20, 3)
    done = run(tmp_path, model, Ranks(4, 1, "linear"), inputs, 5, "--rank-tokens=0,3,5,1", "--check", DYNAMIC[256],
               "--device=sim:2", "--target=sm_90a", "--max-tokens=8", "--exchange=peer", "--compare=3", "--graph",
               "--rank-limit=60", "--disable=join-products", "--set=split-columns.chunks=4", *ASKING)
    assert done.returncode == 0, done.stdout


#: Rows of several chunks, quantized and not, where few ranks have an expert of a row.
OWNED = spec_of(entry="ids", top_k=2, hidden_size=256, intermediate_size=32, dtype="bf16")
OWNED_FP8 = OWNED | {"intermediate_size": 256, "quantization": {
    "weight": {"dtype": "fp8_e4m3", "scale": "channel"}, "activation": {"dtype": "fp8_e4m3", "scale": "token"}}}
#: Destination ranks are used with any number of rows.
ASKING = ("--config=all_gather:least_rows=1", "--config=reduce_scatter:least_rows=1")


def spread_ids(kind: str, tokens: int, ranks: int) -> np.ndarray:
    rng = np.random.default_rng(tokens + ranks)
    ids = np.stack([rng.permutation(16)[:2] for _ in range(tokens)])
    if kind == "last rank":
        ids = 15 - ids % (16 // ranks)
    elif kind == "own rank":
        ids = np.arange(tokens)[:, None] * ranks // tokens * (16 // ranks) + ids % (16 // ranks)
    elif kind == "nobody":
        ids[::2] = [-1, 16]
        ids[1::4, 0] = 2**31 - 1
    return ids


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("dp", "tp", "tokens", "kind", "model"), [
    (4, 1, 9, "any", OWNED), (4, 1, 9, "last rank", OWNED), (4, 1, 5, "own rank", OWNED), (4, 1, 9, "nobody", OWNED),
    (2, 2, 9, "any", OWNED), (8, 1, 3, "any", OWNED), (4, 1, 5, "any", OWNED_FP8),
], ids=lambda value: "fp8" if value is OWNED_FP8 else "bf16" if value is OWNED else str(value))
def test_rows_of_destinations(dp, tp, tokens, kind, model, tmp_path):
    """A row is not sent to ranks without an expert of it: bits are those of ranks that copy all rows."""
    ids = spread_ids(kind, tokens * dp, dp)
    options = (f"--device=sim:{dp}", "--target=sm_90a", "--max-tokens=16", "--rank-limit=20")
    made = []
    for exchange in ("peer", "default"):
        folder = tmp_path / exchange
        folder.mkdir()
        verify(folder, model, Ranks(dp, tp, "round_robin" if kind == "any" else "linear"), tokens=tokens, ids=ids,
               options=(*options, *ASKING, f"--exchange={exchange}"))
        made.append((folder / "out.safetensors").read_bytes())
    assert made[0] == made[1]


#: Rows that are quantized only for the experts.
CODED = spec_of(entry="ids", top_k=2, hidden_size=512, intermediate_size=256, dtype="bf16", quantization="fp8_block128")
#: By one scale each.
BY_TOKEN, INT8_BY_TOKEN = ({"quantization": {
    "weight": {"dtype": dtype, "scale": "channel"}, "activation": {"dtype": dtype, "scale": "token"}}}
    for dtype in ("fp8_e4m3", "int8"))


#: Meshes, tokens and formats of rows that a gather pushes; the second part is for the nightly run.
CODES = [
    (2, 1, False, 5, {}), (2, 1, False, 0, {}), (8, 1, False, 2, {}), (2, 2, True, 3, {}),
    (4, 1, False, 5, {"dtype": "f16"}), (2, 1, False, 7, {"hidden_size": 128}),
    (2, 1, False, 0, BY_TOKEN), (2, 2, True, 3, BY_TOKEN), (2, 1, False, 7, BY_TOKEN | {"hidden_size": 1040}),
    (4, 1, False, 9, INT8_BY_TOKEN | {"hidden_size": 720}),
]
MORE_CODES = [
    (4, 1, False, 9, {}), (2, 2, False, 5, {}), (4, 1, False, 3, {"hidden_size": 896}),
    (2, 1, False, 5, BY_TOKEN), (4, 1, False, 9, BY_TOKEN), (4, 1, False, 5, BY_TOKEN | {"dtype": "f16"}),
    (8, 1, False, 2, BY_TOKEN | {"hidden_size": 128}), (2, 2, False, 5, INT8_BY_TOKEN),
]


@pytest.mark.one_of(3)
@pytest.mark.parametrize(("dp", "tp", "sp", "tokens", "fields"), CODES + (MORE_CODES if ALL_CASES else []), ids=str)
def test_values_that_kernels_quantize(dp, tp, sp, tokens, fields, tmp_path):
    """The kernel of a gather quantizes the rows that it pushes, also to destination ranks only: bits are those of a
    launch ahead."""
    ids = spread_ids("any", tokens * dp * (tp if sp else 1), dp) if tokens else None
    asking = ("--config=all_gather_dp:least_rows=1", "--config=reduce_scatter_dp:least_rows=1") if sp else ASKING
    made = []
    for exchange in ("peer", "default"):
        folder = tmp_path / exchange
        folder.mkdir()
        trace = folder / "trace.json"
        verify(folder, CODED | fields, Ranks(dp, tp, "round_robin", sp), tokens=tokens, ids=ids,
               options=(f"--device=sim:{dp}", "--target=sm_90a", "--max-tokens=16", "--rank-limit=60", *asking,
                        f"--exchange={exchange}", f"--trace={trace}"))
        assert ('"hidden_quantized' in trace.read_text()) == (exchange == "default" and tokens > 0)
        made.append((folder / "out.safetensors").read_bytes())
    assert made[0] == made[1]


@pytest.mark.one_of(3)
@pytest.mark.parametrize(("dp", "tp", "sp", "physical"), [(4, 1, False, 20), (2, 2, False, 24), (4, 2, True, 24)])
def test_rows_of_destinations_of_replicas(dp, tp, sp, physical, tmp_path):
    """The replica of a token is known only behind the dispatch: rows go to all ranks with one."""
    lists = replica_lists(dp * tp, 16, physical)
    most = max(np.bincount(np.concatenate(lists)).tolist())
    token_ranks = dp * (tp if sp else 1)
    inputs = generate(read_spec(OWNED), 5 * token_ranks, 7)
    inputs["topk_ids"] = spread_ids("any", 5 * token_ranks, dp).astype(np.int32)
    options = (f"--device=sim:{dp}", "--target=sm_90a", "--max-tokens=16", "--rank-limit=60",
               "--config=all_gather_dp:least_rows=1", "--config=reduce_scatter_dp:least_rows=1")
    made = []
    for exchange in ("peer", "default"):
        folder = tmp_path / exchange
        folder.mkdir()
        done = run(folder, replicas_of(OWNED, physical, most), Ranks(dp, tp, lists, sp),
                   of_logical(inputs, np.concatenate(lists)), 5, *options, f"--exchange={exchange}", "--check")
        assert done.returncode == 0, done.stdout
        made.append((folder / "out.safetensors").read_bytes())
    assert made[0] == made[1]


@pytest.mark.one_of(3)
@pytest.mark.parametrize(("dp", "tp", "sp", "tokens", "model"), [
    pytest.param(2, 1, False, 5, {}, id="shared"), pytest.param(4, 1, False, 5, OWNED_FP8, id="fp8"),
    pytest.param(2, 2, True, 3, OWNED, id="parts"),
    *([pytest.param(8, 1, False, 2, OWNED, id="many")] if ALL_CASES else []),
])
def test_rows_that_are_copied(dp, tp, sp, tokens, model, tmp_path):
    """Copies, some of them late, move gathered rows, and the kernel moves the rest: bits are those of the kernel
    alone, in runs with other inputs too. Shared experts run concurrently."""
    model = (model or spec_of(**LAYERS["gate_shared_bias"])) | {"shared_experts": {"intermediate_size": 256}}
    inputs = generate(read_spec(model), tokens * dp * (tp if sp else 1), 3)
    made = []
    for least in (0, 1, 500):
        for seed in (1, 2) if ALL_CASES else (1 + least,):
            folder = tmp_path / f"{least}-{seed}"
            folder.mkdir()
            trace = folder / "trace.json"
            done = run(folder, model, Ranks(dp, tp, "linear", sp), inputs, tokens, f"--device=sim:{seed}", "--check",
                       "--target=sm_90a", "--max-tokens=8", "--exchange=peer", "--compare=3", "--graph",
                       "--rank-limit=60", f"--copy-rows-from={least}", f"--trace={trace}")
            assert done.returncode == 0, done.stdout
            assert "equal bits in 3 more runs" in done.stdout
            copied = set(re.findall(r"(\w+) \wp \(rows copied\)", trace.read_text()))
            assert copied == ({"all_gather"} if least else set())
            made.append((folder / "out.safetensors").read_bytes())
    assert all(output == made[0] for output in made)


def rows_of_ranks(inputs: dict, token_ranks: int, first: int, last: int) -> dict:
    """The tensors of some rows of each rank; weights as they are."""
    calls = ("hidden_states", "router_logits", "topk_ids", "topk_weights", "is_padding", "input_ids")
    return {name: np.concatenate([part[first:last] for part in np.split(value, token_ranks)]) if name in calls else value
            for name, value in inputs.items()}


def output_of(folder, model: dict, ranks: Ranks, tokens: int) -> np.ndarray:
    """By rank or group of ranks."""
    made = TensorFile(folder / "out.safetensors")
    made.require(signature.outputs(read_spec(model)), tokens * ranks.token_ranks, optional=True)
    return np.asarray(made["output"][...]).reshape(ranks.token_ranks, tokens, -1)


def verify_halves(folder, model: dict, ranks: Ranks, tokens: int, options=(), halved=("--check",)) -> None:
    """Two micro-batches have the bits of separate batches with their rows."""
    inputs = generate(read_spec(model), tokens * ranks.token_ranks, 3)
    first = -(-tokens // 2)
    made = []
    for begin, end in ((0, first), (first, tokens)):
        if begin == end:
            continue
        part = folder / f"rows{begin}"
        part.mkdir()
        done = run(part, model, ranks, rows_of_ranks(inputs, ranks.token_ranks, begin, end), end - begin, *options)
        assert done.returncode == 0, done.stdout
        made.append(output_of(part, model, ranks, end - begin))
    done = run(folder, model, ranks, inputs, tokens, *options, "--micro-batches-from=1", f"--trace={folder}/trace.json",
               *halved)
    assert done.returncode == 0, done.stdout
    # Both halves communicate, alternately, if there are other ranks.
    trace = json.loads((folder / "trace.json").read_text())["traceEvents"]
    turns = [event["name"] for event in trace if event["pid"] == 0 and re.match(r"[ab]: (all|reduce)_", event["name"])]
    assert {turn[0] for turn in turns} == {"a", "b"} and turns[0][0] == "a" and turns[-1][0] == "b"
    assert np.concatenate(made, axis=1).tobytes() == output_of(folder, model, ranks, tokens).tobytes()


@pytest.mark.parametrize(("ranks", "tokens", "fields"), [
    (Ranks(2, 1, "linear"), 9, {"entry": "ids"}),
    (Ranks(2, 2, "round_robin"), 8, {"entry": "gate", "shared_experts": {"intermediate_size": 32}}),
    (Ranks(4, 1, "linear"), 1, {"entry": "gate"}),
    (Ranks(4, 2, "round_robin"), 5, {"entry": "ids", "padding_mask": True}),
    (Ranks(8, 1, None), 7, {"shared_experts": {"intermediate_size": 32}}),
    (Ranks(1, 4, "linear"), 6, {"entry": "gate", "latent_size": 32, "shared_experts": {"intermediate_size": 32}}),
    (Ranks(2, 2, "linear", sp=True), 5, LAYERS["gate_shared_bias"]),
    (Ranks(4, 1, "linear"), 6, LAYERS["fp8_block"]),
], ids=str)
def test_micro_batches(ranks, tokens, fields, tmp_path):
    verify_halves(tmp_path, spec_of(**fields), ranks, tokens, halved=("--check", "--compare=60"))


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("dp", "tp", "tokens", "copied", "fields"), [
    (2, 1, 5, 0, LAYERS["gate_shared_bias"]), (2, 1, 6, 1, LAYERS["gate_shared_bias"]),
    (4, 1, 4, 1, {"entry": "ids", "dtype": "bf16", "shared_experts": {"intermediate_size": 64}}),
    (2, 2, 1, 1, LAYERS["gate_shared_bias"]), (4, 1, 5, 0, LAYERS["fp8_block"]),
], ids=lambda value: "" if isinstance(value, dict) else str(value))
def test_micro_batches_simulated(dp, tp, tokens, copied, fields, tmp_path):
    """Kernels that write to the memory of other ranks, concurrent with the other half's launches; replays too."""
    options = (f"--device=sim:{tokens}", "--target=sm_90a", "--max-tokens=8", "--exchange=peer", "--rank-limit=60",
               f"--copy-rows-from={copied}", "--disable=join-products,quantize-inputs")
    verify_halves(tmp_path, spec_of(**fields), Ranks(dp, tp, "linear"), tokens, options,
                  halved=("--check", "--compare=3", "--graph"))
    assert ("(rows copied)" in (tmp_path / "trace.json").read_text()) == (copied > 0)


def test_times_of_micro_batches(tmp_path):
    model = spec_of(**LAYERS["fp8_block"])
    inputs = generate(read_spec(model), 12, 3)
    done = run(tmp_path, model, Ranks(2, 1, "linear"), inputs, 6, "--repeat=3", "--times-at=1,6",
               "--micro-batches-from=6")
    assert done.returncode == 0, done.stdout
    rows = re.findall(r"^ +(\d)  (\w+) +3 +(\d+\.\d+) ", done.stdout, re.MULTILINE)
    parts = ["layer", "compute", "exchange", "dispatch", "combine"]
    assert [(tokens, name) for tokens, name, _ in rows] == [(tokens, name) for tokens in "16" for name in parts]
    assert all(float(median) > 0 for *_, median in rows)


@pytest.mark.parametrize(("fields", "options", "text"), [
    ({"record_load": True}, [], "useMicroBatches: output 'expert_offsets' belongs to the whole batch"),
    ({"num_valid_tokens": True}, ["--rank-tokens=1,1"], "useMicroBatches: input 'num_valid_tokens' belongs to the whole batch"),
    ({}, ["--micro-batches-from=-1"], "--micro-batches-from must not be negative"),
], ids=["load", "valid", "negative"])
def test_micro_batches_that_cannot_be(fields, options, text, tmp_path):
    model = spec_of(entry="gate", **fields)
    inputs = generate(read_spec(model), 4, 3)
    done = run(tmp_path, model, Ranks(2, 1, "linear"), inputs, 2, *([] if text.startswith("--") else
               ["--micro-batches-from=1"]), *options)
    assert done.returncode != 0 and text in done.stdout, done.stdout


def test_hidden_states_of_all_groups(tmp_path):
    """Activations of a file of their own, for the tokens of all groups: what one file with weights gives."""
    model = spec_of(entry="ids")
    inputs = generate(read_spec(model), 12, 3)
    call = {name: inputs.pop(name) for name in ("hidden_states", "topk_ids", "topk_weights")}
    made = []
    for name, weights, options in (("apart", inputs, (f"--hidden-states={tmp_path}/call.safetensors",)),
                                   ("together", inputs | call, ())):
        folder = tmp_path / name
        folder.mkdir()
        write_tensors(tmp_path / "call.safetensors", call)
        done = run(folder, model, Ranks(2, 2, "linear"), weights, 6, *options, "--check")
        assert done.returncode == 0, done.stdout
        made.append((folder / "out.safetensors").read_bytes())
    assert made[0] == made[1]


def test_rows_of_destinations_of_parts(tmp_path):
    """Sequence parallelism: destination ranks apply to sums over dp, for the rows of a group."""
    model = OWNED | {"shared_experts": {"intermediate_size": 32}}
    # A config named by kind applies to the first collective: among gathers the one over tp, which has no destination
    # ranks.
    options = ("--device=sim:4", "--target=sm_90a", "--max-tokens=8", "--rank-limit=60",
               "--config=all_gather_dp:least_rows=1", "--config=reduce_scatter_dp:least_rows=1")
    made = []
    for exchange in ("peer", "default"):
        folder = tmp_path / exchange
        folder.mkdir()
        verify(folder, model, Ranks(4, 2, "round_robin", sp=True), tokens=3, ids=spread_ids("any", 24, 8),
               options=(*options, f"--exchange={exchange}"))
        made.append((folder / "out.safetensors").read_bytes())
    assert made[0] == made[1]


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("entry", "counts"), [("ids", "0,3,5,1"), ("gate", "5,0,0,0")])
def test_rows_of_destinations_with_fewer_tokens(entry, counts, tmp_path):
    """Padding rows have the caller's ids too; several runs find other ranks' rows in the heaps."""
    model = OWNED | {"entry": entry, "num_valid_tokens": True, "routing": {} if entry == "ids" else {"score": "softmax"}}
    inputs = generate(read_spec(model), 20, 3)
    done = run(tmp_path, model, Ranks(4, 1, "linear"), inputs, 5, f"--rank-tokens={counts}", "--check", *ASKING,
               "--device=sim:2", "--target=sm_90a", "--max-tokens=8", "--exchange=peer", "--compare=2", "--graph")
    assert done.returncode == 0, done.stdout
    assert "equal bits in 2 more runs" in done.stdout


@pytest.mark.one_of(2)
@pytest.mark.parametrize("counts", ["0,3,5,1", "0,0,0,0", "5,0,0,0"])
def test_peer_exchange_with_fewer_tokens(counts, tmp_path):
    model = spec_of(**LAYERS["fp8_block"], entry="ids", num_valid_tokens=True)
    inputs = generate(read_spec(model), 20, 3)
    done = run(tmp_path, model, Ranks(4, 1, "linear"), inputs, 5, f"--rank-tokens={counts}", "--check",
               "--device=sim:2", "--target=sm_90a", "--max-tokens=8", "--exchange=peer", "--compare=3", "--graph")
    assert done.returncode == 0, done.stdout
    assert "equal bits in 3 more runs" in done.stdout


@pytest.mark.parametrize(("options", "text"), [
    (["--exchange=peer"],
     "--exchange=peer: ranks on 'host' cannot write to each other's memory; give --device=cuda or sim"),
    (["--exchange=nccl", "--device=sim", "--target=sm_90a"], "--exchange=nccl needs --device=cuda"),
])
def test_exchanges_that_cannot_be(options, text, tmp_path):
    model = spec_of()
    inputs = generate(read_spec(model), 2, 3)
    done = run(tmp_path, model, Ranks(2, 1, "linear"), inputs, 1, *options)
    assert done.returncode != 0 and text in done.stdout
