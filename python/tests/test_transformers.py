# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec.transformers: random Transformers models with moec's experts compared with their own, on the CPU and, if there
is one, on a GPU."""

from __future__ import annotations

import copy
import gc
import itertools
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import moec

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")
transformers = pytest.importorskip(
    "transformers", reason="Transformers is not installed (pip install transformers)"
)
import moec.transformers as moec_transformers  # noqa: E402
from moec import module_experts  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
DEVICES = ["cpu"] + ["cuda:0"] * torch.cuda.is_available()
SIZES = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 32,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
#: Additional config fields of each family, with experts in every layer.
FAMILIES: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen3_moe": {"num_experts": 8, "num_experts_per_tok": 4, "norm_topk_prob": True},
    "deepseek_v3": {
        "n_routed_experts": 8, "num_experts_per_tok": 4, "n_group": 4, "topk_group": 2,
        "first_k_dense_replace": 0, "n_shared_experts": 1, "q_lora_rank": 32, "kv_lora_rank": 16,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16, "num_key_value_heads": 4,
    },
    "gpt_oss": {"num_local_experts": 8, "num_experts_per_tok": 4, "swiglu_limit": 1.0},
    "olmoe": {"num_experts": 8, "num_experts_per_tok": 4},
    "glm4_moe": {
        "n_routed_experts": 8, "num_experts_per_tok": 4, "n_group": 1, "topk_group": 1,
        "first_k_dense_replace": 0, "n_shared_experts": 1,
    },
    "llama4_text": {
        "num_local_experts": 8, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1,
        "intermediate_size_mlp": 32,
    },
}
#: Largest difference of logits, relative to the largest logit.
TOLERANCES = {torch.float32: 2e-5, torch.bfloat16: 2.0**-5}


@pytest.fixture(autouse=True)
def registered() -> None:
    moec_transformers.register()
    torch.manual_seed(0)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param


def make_model(family: str, dtype: torch.dtype = torch.float32, device: str = "cpu", **changes: Any):
    config = transformers.AutoConfig.for_model(family, **(SIZES | FAMILIES[family] | changes))
    config._attn_implementation = "eager"
    config.experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    generator = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        # As large as the residual stream, so that experts affect the logits.
        width = 0.25 if "experts" in name else 0.1
        if parameter.dim() > 1:
            parameter.data.normal_(0, width, generator=generator)
        elif "bias" in name:
            parameter.data.normal_(0, 0.5, generator=generator)
    model.set_experts_implementation("eager")
    return model.to(dtype).to(device)


def use_moec(model: Any) -> None:
    if model.config.model_type == "llama4_text":
        assert moec_transformers.replace(model) == 2
    moec_transformers.transpose_weights(model)
    model.set_experts_implementation("moec")


def list_experts(model: Any) -> list[Any]:
    return [each for each in model.modules() if type(each).__name__.endswith("Experts")]


def make_block(dtype: torch.dtype = torch.float32, family: str = "qwen3_moe", **changes: Any):
    """Returns the experts of a model and the arguments of a call."""
    model = make_model(family, dtype, **changes)
    hidden = torch.randn(6, 64).to(dtype)
    ids = torch.stack([torch.randperm(8)[:4] for _ in range(6)])
    return list_experts(model)[0], (hidden, ids, torch.rand(6, 4).to(dtype))


def run_eagerly(block: Any, arguments: tuple) -> Any:
    block.config._experts_implementation = "eager"
    try:
        with torch.no_grad():
            return block(*arguments)
    finally:
        block.config._experts_implementation = "moec"


def run(block: Any, arguments: tuple) -> Any:
    block.config._experts_implementation = "moec"
    with torch.no_grad():
        return block(*arguments)


def assert_near(found: torch.Tensor, wanted: torch.Tensor, share: float = 1.0) -> None:
    """Asserts that this share of the slices along dimension 0 is near."""
    found, wanted, tolerance = found.float(), wanted.float(), TOLERANCES[wanted.dtype]
    errors = (found - wanted).abs().flatten(1).amax(1) / wanted.abs().max()
    assert (errors <= tolerance).float().mean() >= share, f"errors {errors}"


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_eager(family: str, dtype: torch.dtype, device: str) -> None:
    model = make_model(family, dtype, device)
    tokens = torch.randint(1, 128, (32, 3), device=device)
    with torch.no_grad():
        wanted = model(tokens).logits
        use_moec(model)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            found = model(tokens).logits
        # In bf16 a router may resolve a near tie differently for some sequence.
        assert_near(found, wanted, 1.0 if dtype == torch.float32 else 7 / 8)
        for block in list_experts(model):
            block.down_proj.zero_()
        without = (model(tokens).logits.float() - wanted.float()).abs().max()
    assert without > 8 * TOLERANCES[dtype] * wanted.float().abs().max(), "experts are not seen"


def decode(model: Any, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Decodes 64 tokens greedily; returns them, [64], and the logits of each choice, [64, V]."""
    made = model.generate(tokens, max_new_tokens=64, do_sample=False, use_cache=True,
                          return_dict_in_generate=True, output_logits=True)
    assert made.sequences.shape == (1, 72)
    return made.sequences[0, 8:], torch.cat(made.logits).float()


def assert_decodes_alike(model: Any, tokens: torch.Tensor, chosen: torch.Tensor,
                         logits: torch.Tensor) -> None:
    """Asserts that a model chooses another model's tokens wherever that one was not near a tie. Each of two logits may
    be off by the tolerance, so a token must stay the best if it leads by twice the tolerance.

    The model gets the other's tokens as input, so that a different choice at a tie does not excuse later ones. Decoding
    by itself, it must agree up to the first tie."""
    best = logits.topk(2, dim=-1).values
    bound = TOLERANCES[torch.float32] * logits.abs().max()
    is_decided = best[:, 0] - best[:, 1] > 2 * bound
    assert is_decided.float().mean() >= 0.9, "near ties too often to tell anything"
    given = torch.cat([tokens[0], chosen[:-1]])[None]
    with torch.no_grad():
        found = model(given).logits[0, tokens.shape[1] - 1:].float()
    wrong = is_decided & (found.argmax(-1) != chosen)
    assert not wrong.any(), (
        f"steps {wrong.nonzero().flatten().tolist()}: other tokens though they lead by "
        f"{(best[:, 0] - best[:, 1])[wrong].tolist()}, and {bound} is the tolerance; logits differ by "
        f"{(found - logits).abs().amax(-1)[wrong].tolist()}")
    alone, _ = decode(model, tokens)
    differ = (alone != chosen).nonzero().flatten().tolist()
    assert not differ or not is_decided[differ[0]], (
        f"step {differ[0]} is decided and another by itself")


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_decoding_is_that_of_eager(family: str, device: str) -> None:
    """In f32: in bf16, half of the choices of random models are ties within the tolerance."""
    model = make_model(family, device=device)
    tokens = torch.randint(1, 128, (1, 8), device=device)
    chosen, logits = decode(model, tokens)
    use_moec(model)
    assert_decodes_alike(model, tokens, chosen, logits)


def test_another_model_does_not_decode_alike() -> None:
    """The test above fails for experts that are slightly wrong."""
    model = make_model("qwen3_moe")
    tokens = torch.randint(1, 128, (1, 8))
    chosen, logits = decode(model, tokens)
    use_moec(model)
    with torch.no_grad():
        for block in list_experts(model):
            block.down_proj *= 1.05
    with pytest.raises(AssertionError, match="other tokens though they lead by"):
        assert_decodes_alike(model, tokens, chosen, logits)


@pytest.mark.parametrize("family", ["qwen3_moe", "gpt_oss"])
@pytest.mark.parametrize("tokens", [0, 1, 6])
def test_experts_are_those_of_eager(family: str, tokens: int) -> None:
    block, arguments = make_block(family=family)
    arguments = tuple(each[:tokens] for each in arguments)
    moec_transformers.transpose_weights(block)
    found = run(block, arguments)
    assert found.shape == (tokens, 64)
    if tokens:
        assert_near(found, run_eagerly(block, arguments))


def test_many_tokens_are_several_runs() -> None:
    moec_transformers.register(max_tokens=4)
    block, arguments = make_block()
    assert_near(run(block, arguments), run_eagerly(block, arguments))
    with pytest.raises(ValueError, match="max_tokens: 0 found, at least 1 expected"):
        moec_transformers.register(max_tokens=0)
    with pytest.raises(TypeError, match="max_tokens: an int expected, str found"):
        moec_transformers.register(max_tokens="8")


def test_ids_of_other_ranks_contribute_nothing() -> None:
    block, (hidden, ids, weights) = make_block()
    block._is_expert_parallel = True
    ids[0], ids[1, 2:], ids[2, 0] = 8, 1000, 8
    kept = torch.where(ids < 8, weights, 0.0)
    wanted = run_eagerly(block, (hidden, ids.clamp(max=7), kept))
    for others in (0.0, torch.nan):
        found = run(block, (hidden, ids, torch.where(ids < 8, weights, others)))
        assert not found[0].any()
        assert_near(found, wanted)


def test_parameters_are_bound_without_copies() -> None:
    block, arguments = make_block()
    with torch.no_grad():
        first = run(block, arguments)
        # A write is seen by the next call.
        block.down_proj *= 2
        assert_near(run(block, arguments), 2 * first)
        # New storage is noticed, even with the same contents at first.
        block.down_proj.data = block.down_proj.data / 2
        assert_near(run(block, arguments), first)
        block.gate_up_proj = torch.nn.Parameter(torch.zeros_like(block.gate_up_proj))
        assert not run(block, arguments).any()
    # NumPy's writes have no version, so only shared memory shows them.
    block, arguments = make_block()
    first = run(block, arguments)
    block.down_proj.detach().numpy()[:] *= 2
    assert_near(run(block, arguments), 2 * first)


def write_all(block: Any) -> list[Any]:
    """Ways to write to parameters; PyTorch's version counters see only some of them."""
    other = {name: each * 1.5 for name, each in block.state_dict().items()}
    return [
        lambda: block.down_proj.mul_(2.0),
        lambda: block.down_proj.data.mul_(0.25),
        lambda: block.gate_up_proj.data.mul_(0.5),
        lambda: block.gate_up_proj.detach().numpy().__imul__(3.0),
        lambda: block.gate_up_proj_bias.data.add_(1.0),
        lambda: block.down_proj_bias.detach().numpy().__iadd__(2.0),
        lambda: block.load_state_dict(other),
        lambda: block.load_state_dict({name: each * 2 for name, each in other.items()}, assign=True),
        lambda: block.down_proj.data.neg_(),
        lambda: setattr(block.down_proj, "data", block.down_proj.data + 0.5),
    ]


@pytest.mark.filterwarnings("error:moec")
def test_every_write_to_transposed_weights_is_seen() -> None:
    """A layer reads the memory of gpt-oss's parameters, which is moved to the layer's layout by the first call."""
    block, arguments = make_block(family="gpt_oss")
    values = {name: each.clone() for name, each in block.state_dict().items()}
    found = run(block, arguments)
    assert_near(found, run_eagerly(block, arguments))
    assert moec_transformers.transpose_weights(block) == 0
    for name, each in block.state_dict().items():
        assert torch.equal(each, values[name]) and each.shape == values[name].shape
    writes = write_all(block)
    with torch.no_grad():
        for write in writes:
            write()
            before, found = found, run(block, arguments)
            assert_near(found, run_eagerly(block, arguments))
            assert (found - before).abs().max() > 0.01 * before.abs().max(), "the write shows nowhere"
        other = copy.deepcopy(block)
        other.down_proj.data.mul_(2.0)
        assert_near(run(other, arguments), run_eagerly(other, arguments))
        assert torch.equal(run(block, arguments), found)
        half = other.bfloat16(), tuple(each.bfloat16() if each.is_floating_point() else each for each in arguments)
        assert_near(run(*half), run_eagerly(*half))
        other.down_proj.data.mul_(2.0)
        assert_near(run(*half), run_eagerly(*half))
    # Memory allocated in inference mode works like any other.
    block, arguments = make_block(family="gpt_oss")
    block.config._experts_implementation = "moec"
    with torch.inference_mode():
        block(*arguments)
    block.down_proj.requires_grad_(False).mul_(2.0)
    assert_near(run(block, arguments), run_eagerly(block, arguments))


def test_transposed_weights_with_shared_memory_are_copied_by_each_call() -> None:
    """Memory that other tensors share is not moved."""
    block, arguments = make_block(family="gpt_oss")
    array, alias = block.gate_up_proj.requires_grad_(False).numpy(), block.down_proj.detach()
    size = (block.gate_up_proj.nbytes + block.down_proj.nbytes) / 2**20
    with pytest.warns(UserWarning, match=f"is shared with other tensors, so each call copies {size:.1f} MiB"):
        assert_near(run(block, arguments), run_eagerly(block, arguments))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for write in (lambda: array.__imul__(2.0), lambda: alias.mul_(0.5), lambda: alias.data.neg_()):
            write()
            assert_near(run(block, arguments), run_eagerly(block, arguments))
    assert moec_transformers.transpose_weights(block) == size * 2**20
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_near(run(block, arguments), run_eagerly(block, arguments))


def test_models_are_saved_after_calls(tmp_path: Path) -> None:
    model = make_model("gpt_oss")
    tokens = torch.randint(1, 128, (1, 8))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        wanted = model(tokens).logits
        model.set_experts_implementation("moec")
        assert_near(model(tokens).logits, wanted)
        model.save_pretrained(tmp_path)
        loaded = type(model).from_pretrained(tmp_path, dtype=torch.float32).eval()
        for (name, each), other in zip(model.state_dict().items(), loaded.state_dict().values()):
            assert torch.equal(each, other), name
        loaded.set_experts_implementation("moec")
        assert_near(loaded(tokens).logits, wanted)


# A program exported with silu runs in another process whose first module has gelu.
def test_exported_programs_have_their_description(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_experts, "_numbers", itertools.count(1))
    cases = {}
    for family in ("qwen3_moe", "gpt_oss"):
        block, arguments = make_block(family=family)
        block.requires_grad_(False)
        wanted = run_eagerly(block, arguments)
        block.config._experts_implementation = "moec"
        program = torch.export.export(block, arguments)
        assert_near(program.module()(*arguments), wanted)
        torch.export.save(program, tmp_path / f"{family}.pt2")
        cases[family] = arguments, wanted
    torch.save(cases, tmp_path / "cases.pt")
    code = """if True:
        import sys, torch
        from test_transformers import assert_near, make_block, moec_transformers, run, run_eagerly
        moec_transformers.register()
        block, arguments = make_block(hidden_act="gelu")
        assert_near(run(block, arguments), run_eagerly(block, arguments))
        for family, (arguments, wanted) in torch.load(f"{sys.argv[1]}/cases.pt").items():
            program = torch.export.load(f"{sys.argv[1]}/{family}.pt2").module()
            for _ in range(2):
                assert_near(program(*arguments), wanted)
            with torch.no_grad():
                for name, each in program.named_parameters():
                    if "down_proj" in name:
                        each.data.mul_(2.0)
            assert_near(program(*arguments), 2 * wanted)
        print("right")
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, tmp_path], text=True,
                          capture_output=True, env=environment)
    assert done.returncode == 0 and done.stdout.endswith("right\n"), done.stderr


def _clamped(self: Any, gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return self.act_fn(gate.clamp(max=self.limit)) * up.clamp(-self.limit, self.limit)


def _swapped(self: Any, gate_up: torch.Tensor) -> torch.Tensor:
    up, gate = gate_up.chunk(2, dim=-1)
    return self.act_fn(gate) * up


def _quick(self: Any, gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return gate * torch.sigmoid(1.702 * gate) * up


def _soft(self: Any, gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    gate_part = self.gate_softcap * torch.tanh(gate / self.gate_softcap) * torch.sigmoid(gate)
    return gate_part * self.up_softcap * torch.tanh(up / self.up_softcap)


def override_gate(block: Any, monkeypatch: pytest.MonkeyPatch, gate: Any, **numbers: float) -> None:
    monkeypatch.setattr(type(block), "_apply_gate", gate)
    for name, value in numbers.items():
        setattr(block, name, value)


@pytest.mark.parametrize("gate", [_clamped, _swapped, _quick, _soft], ids=lambda each: each.__name__)
def test_known_gates_are_honoured(gate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    block, arguments = make_block()
    plain = run(block, arguments)
    block, _ = make_block()
    override_gate(block, monkeypatch, gate, limit=0.5, gate_softcap=2.0, up_softcap=3.0)
    block.config._experts_implementation = "batched_mm"
    with torch.no_grad():
        wanted = block(*arguments)
    assert (wanted - plain).abs().max() > 0.01 * plain.abs().max()
    assert_near(run(block, arguments), wanted)


def test_unknown_gates_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def bent(self: Any, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return self.act_fn(gate) * (up + 0.01)

    def hidden_limit(self: Any, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return self.act_fn(gate.clamp(max=7.0)) * up

    def normalized(self: Any, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return torch.nn.functional.layer_norm(self.act_fn(gate) * up, up.shape[-1:])

    def wide(self: Any, gate_up: torch.Tensor) -> torch.Tensor:
        return gate_up[..., :32] * torch.ones(32)

    for gate in (bent, hidden_limit, normalized, wide):
        block, arguments = make_block()
        override_gate(block, monkeypatch, gate)
        with pytest.raises(moec.InvalidArgument, match="experts: Qwen3MoeExperts: _apply_gate"):
            run(block, arguments)


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_pytorch_tanh", "relu", "relu2"])
def test_activations_of_configs(name: str) -> None:
    block, arguments = make_block(hidden_act=name)
    assert_near(run(block, arguments), run_eagerly(block, arguments))


@pytest.mark.parametrize("name", ["leaky_relu", "gelu_10", "mish", "tanh"])
def test_activations_without_a_form_are_refused(name: str) -> None:
    block, arguments = make_block(hidden_act=name)
    with pytest.raises(moec.InvalidArgument, match="is not an activation of docs/use/layers.md; choose"):
        run(block, arguments)


def test_experts_without_a_gate() -> None:
    config = transformers.AutoConfig.for_model(
        "nemotron_h", hidden_size=64, moe_intermediate_size=32, n_routed_experts=8,
        num_experts_per_tok=4, mlp_hidden_act="relu2",
    )
    from transformers.models.nemotron_h import modeling_nemotron_h

    block = modeling_nemotron_h.NemotronHExperts(config)
    for parameter in block.parameters():
        parameter.data.normal_(0, 0.25)
    _, arguments = make_block()
    assert_near(run(block, arguments), run_eagerly(block, arguments))


def test_what_has_no_form_is_refused() -> None:
    block, (hidden, ids, weights) = make_block()
    for change, message in (
        ({"has_post_expert_norm": True}, "has_post_expert_norm: a layer cannot have a norm after an expert"),
        ({"num_experts": 9}, "num_experts is 9, and the weights have 8"),
    ):
        before = {name: getattr(block, name) for name in change}
        vars(block).update(change)
        with pytest.raises(moec.InvalidArgument, match=message):
            run(block, (hidden, ids, weights))
        vars(block).update(before)
    with pytest.raises(moec.InvalidArgument, match="of torch.float32 and hidden_states of torch.bf"):
        run(block, (hidden.bfloat16(), ids, weights))
    with pytest.raises(moec.InvalidArgument, match="hidden_states of torch.float64 are not supp"):
        run(block.double(), (hidden.double(), ids, weights))


def test_gradients_are_refused() -> None:
    block, (hidden, ids, weights) = make_block()
    block.config._experts_implementation = "moec"
    with pytest.raises(moec.InvalidArgument, match="a gradient of the weights is wanted.*no_grad"):
        block(hidden, ids, weights)
    block.requires_grad_(False)
    block(hidden, ids, weights)
    for name, arguments in (
        ("hidden_states", (hidden.requires_grad_(), ids, weights)),
        ("top_k_weights", (hidden.detach(), ids, weights.requires_grad_())),
    ):
        with pytest.raises(moec.InvalidArgument, match=f"a gradient of {name} is wanted"):
            block(*arguments)
    with torch.inference_mode():
        block(hidden, ids, weights)


def test_operator_passes_opcheck() -> None:
    block, (hidden, ids, weights) = make_block()
    block.requires_grad_(False)
    wanted = run(block, (hidden, ids, weights))
    number = module_experts._find_number(block, False)
    description = module_experts._find_description(block, False, torch.float32)
    arguments = [hidden, ids.int(), weights, [block.gate_up_proj, block.down_proj], number, description]
    torch.library.opcheck(torch.ops.moec.experts.default, tuple(arguments))
    assert torch.equal(torch.ops.moec.experts(*arguments), wanted)
    # The call contains the description, so that no module is needed.
    assert not module_experts._of_program
    arguments[4] = number + 1000
    assert torch.equal(torch.ops.moec.experts(*arguments), wanted)
    arguments[4:] = number, description.replace("silu", "gelu")
    assert not torch.allclose(torch.ops.moec.experts(*arguments), wanted)
    assert len(module_experts._of_program) == 2
    del block, arguments
    gc.collect()
    assert not module_experts._of_program


def test_tracers_see_an_operator() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    block, (hidden, ids, weights) = make_block()
    block.requires_grad_(False)
    block.config._experts_implementation = "moec"
    graph = make_fx(block)(hidden, ids, weights)
    assert torch.ops.moec.experts.default in {node.target for node in graph.graph.nodes}
    assert_near(graph(hidden.flip(0), ids, weights), run_eagerly(block, (hidden.flip(0), ids, weights)))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_models_compile_as_one_graph(backend: str) -> None:
    model = make_model("qwen3_moe")
    tokens = torch.randint(1, 128, (2, 8))
    with torch.no_grad():
        wanted = model(tokens, use_cache=False).logits
        use_moec(model)
        compiled = torch.compile(model, fullgraph=True, backend=backend)
        assert_near(compiled(tokens, use_cache=False).logits, wanted)
        for block in list_experts(model):
            block.down_proj.data = torch.zeros_like(block.down_proj)
        changed = model(tokens, use_cache=False).logits
        assert (changed - wanted).abs().max() > 0.1
        assert_near(compiled(tokens, use_cache=False).logits, changed)


def test_modules_share_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    from moec import layer_pool

    compile = layer_pool.compile
    monkeypatch.setattr(
        layer_pool, "compile", lambda *args, **kw: compiled.append(1) or compile(*args, **kw)
    )
    moec_transformers.register(max_tokens=17)
    model = make_model("olmoe", num_hidden_layers=3)
    tokens = torch.randint(1, 128, (1, 8))
    with torch.no_grad():
        wanted = model(tokens).logits
        use_moec(model)
        assert_near(model(tokens).logits, wanted)
        other = copy.deepcopy(model)
        for parameter in other.parameters():
            parameter *= 1.5
        found = other(tokens).logits
        other.set_experts_implementation("eager")
        assert_near(found, other(tokens).logits)
        assert_near(model(tokens).logits, wanted)
    assert len(compiled) == 1
    gc.collect()
    count = len(module_experts._of_module)
    del model, other
    gc.collect()
    assert len(module_experts._of_module) == count - 6


def test_llama4_with_several_experts_per_token_is_refused() -> None:
    model = make_model("llama4_text", num_experts_per_tok=2)
    with pytest.raises(moec.InvalidArgument, match="Llama4TextMoe: top_k is 2"):
        moec_transformers.replace(model)


def make_float8(scheme: str = "dynamic", block: Any = (128, 128), width: int = 128):
    from transformers.integrations import finegrained_fp8

    config = transformers.AutoConfig.for_model(
        "qwen3_moe", hidden_size=256, moe_intermediate_size=width, num_experts=4
    )
    made = transformers.integrations.moe.use_experts_implementation(
        type("Experts", (finegrained_fp8.FP8Experts,), {}),
        experts_interface=finegrained_fp8.ALL_FP8_EXPERTS_FUNCTIONS,
    )(config, block_size=block, activation_scheme=scheme)
    for name, parameter in made.named_parameters():
        if "scale" in name:
            parameter.data.uniform_(0.001, 0.002)
        else:
            parameter.data.copy_(torch.randn(parameter.shape).mul(64).to(parameter.dtype))
    return made.requires_grad_(False)


def multiply_float8(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Computes x @ weight^T in float64, with x rounded to float8 in groups of 128 as in Transformers' kernels."""
    groups = x.float().unflatten(-1, (-1, 128))
    steps = groups.abs().amax(-1, keepdim=True) / 448
    rounded = ((groups / steps).to(torch.float8_e4m3fn).double() * steps).flatten(-2)
    spread = scale.double().repeat_interleave(128, 0).repeat_interleave(128, 1)
    return rounded @ (weight.double() * spread).T


def test_float8_experts() -> None:
    block = make_float8()
    hidden = torch.randn(5, 256).bfloat16()
    ids = torch.tensor([[0, 1], [1, 2], [3, 0], [2, 3], [4, 9]])
    weights = torch.rand(5, 2)
    wanted = torch.zeros(5, 256, dtype=torch.float64)
    for token, chosen in enumerate(ids.tolist()):
        for slot, expert in enumerate(chosen):
            if expert < 4:
                up = multiply_float8(
                    hidden[token], block.gate_up_proj[expert], block.gate_up_proj_scale_inv[expert]
                )
                middle = block._apply_gate(up).bfloat16()
                down = multiply_float8(
                    middle, block.down_proj[expert], block.down_proj_scale_inv[expert]
                )
                wanted[token] += weights[token, slot] * down
    assert_near(run(block, (hidden, ids, weights)), wanted.bfloat16())


def test_float8_without_a_form_is_refused() -> None:
    arguments = torch.randn(2, 256).bfloat16(), torch.tensor([[0, 1]] * 2), torch.rand(2, 2)
    for options, message in (
        ({"scheme": "static"}, 'activation_scheme .static. found, "dynamic" is supported'),
        ({"block": None}, r"block_size None found, \(128, 128\) is supported"),
        ({"width": 192}, "192 rows of the gate are no multiple"),
    ):
        with pytest.raises(moec.InvalidArgument, match=message):
            run(make_float8(**options), arguments)


def test_benchmark_measures_every_implementation(tmp_path: Path) -> None:
    output = tmp_path / "forward.json"
    subprocess.run(
        [sys.executable, ROOT / "benchmarks/transformers_forward.py", "--device=cpu", "--repeat=2",
         "--num-experts=8", "--top-k=2", "--hidden-size=64", "--intermediate-size=32",
         "--tokens=1,16", f"--output={output}"],
        check=True, capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
    )
    result = json.loads(output.read_text())
    assert [row["tokens"] for row in result["rows"]] == [1, 16]
    for row in result["rows"]:
        assert set(row["median_us"]) == {"moec", "eager", "batched_mm", "grouped_mm"}
        assert row["difference"]["moec"] < TOLERANCES[torch.bfloat16]


#: Options that make a small block of each family.
SMALL = {
    "mixtral": "num_local_experts=8", "gpt_oss": "num_local_experts=8,num_attention_heads=4",
    "deepseek_v3": "n_routed_experts=8,n_group=2,topk_group=1,num_experts_per_tok=2,q_lora_rank=32",
    "olmoe": "num_experts=8", "glm4_moe": "n_routed_experts=8,num_attention_heads=4",
    "llama4_text": "num_local_experts=8,intermediate_size_mlp=32",
}


@pytest.mark.parametrize("family", SMALL)
def test_benchmark_has_the_families(family: str, tmp_path: Path) -> None:
    output = tmp_path / "forward.json"
    subprocess.run(
        [sys.executable, ROOT / "benchmarks/transformers_forward.py", "--device=cpu", "--repeat=1",
         f"--model={family}", f"--config={SMALL[family]},hidden_size=64,intermediate_size=32,"
         "moe_intermediate_size=32", "--tokens=5", f"--output={output}"],
        check=True, capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT / "python")})
    result = json.loads(output.read_text())
    row, = result["rows"]
    assert result["layer"] == family and {"moec", "eager"} <= set(row["median_us"]), row
    assert ("errors" in row) == (family == "llama4_text")
    assert 0 < row["difference"]["moec"] < TOLERANCES[torch.bfloat16]


def test_lines_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code in docs/use/python.md works as printed."""
    page = (ROOT / "docs/use/python.md").read_text()
    section = page[page.index("## Transformers"):]
    lines = section.split("```python\n")[1].split("```")[0]
    model = make_model("mixtral")
    inputs = {"input_ids": torch.randint(1, 128, (1, 4)), "max_new_tokens": 4, "do_sample": False}
    wanted = model.generate(**inputs)
    names = {"model": model, "inputs": inputs}
    exec(lines, names)
    assert torch.equal(names["output"], wanted)
    assert model.get_experts_implementation()[""] == "moec"
