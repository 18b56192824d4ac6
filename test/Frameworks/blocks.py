# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model's own MoE blocks: built small, saved as the model saves itself, and run."""

from __future__ import annotations

import importlib
import inspect
import json
import pathlib
import re
import warnings
from dataclasses import dataclass, field

import numpy as np
import table
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

warnings.filterwarnings("ignore")
torch.set_grad_enabled(False)
torch.set_num_threads(1)

_LAYER = re.compile(r"(?:^|\.)(?:layers|blocks|h)\.(\d+)(?:\.|$)")


class NotBuilt(Exception):
    """Transformers itself refuses the configuration."""


@dataclass
class Block:
    """One block: inputs of a call beside the weights on disk, and its outputs."""

    layer: int
    inputs: dict[str, np.ndarray]
    output: np.ndarray
    ids: np.ndarray | None = None
    #: Options of moe-run, for one of several layers of a module.
    options: list[str] = field(default_factory=list)


@dataclass
class Model:
    folder: pathlib.Path
    blocks: list[Block]


def _candidates(config_class: type) -> list[type]:
    """Model classes for the configuration, those with a head first."""
    from transformers import PreTrainedModel

    name = config_class.__module__.replace("configuration_", "modeling_")
    code = importlib.import_module(name)
    found = []
    for name, value in vars(code).items():
        if not inspect.isclass(value) or not issubclass(value, PreTrainedModel):
            continue
        if value.__module__ != code.__name__ or name.endswith("PreTrainedModel"):
            continue
        if not (name.endswith("Model") or "ForCausalLM" in name):
            continue
        wanted = value.__init__.__annotations__.get("config")
        wanted = wanted if isinstance(wanted, str) else getattr(wanted, "__name__", None)
        if wanted in (None, config_class.__name__):
            found.append(value)
    return sorted(found, key=lambda value: "ForCausalLM" not in value.__name__)


def randomize(model: torch.nn.Module, seed: int) -> None:
    """Random weights, biases of the router among them, which start as zeros."""
    generator = torch.Generator().manual_seed(seed)

    def normal(shape, scale):
        return torch.randn(shape, generator=generator) * scale

    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if "tid2eid" in name:
            rows = [torch.randperm(8, generator=generator) for _ in range(value.shape[0])]
            value.data = torch.stack([row[: value.shape[1]] for row in rows])
        elif not value.is_floating_point() or "inv_freq" in name:
            continue
        elif "per_expert_scale" in name:
            value.data = 1 + normal(value.shape, 0.2)
        elif "bias" in name:
            value.data = normal(value.shape, 0.1)
        elif value.dim() >= 2:
            value.data = normal(value.shape, value.shape[-1] ** -0.5)


def make(config) -> torch.nn.Module:
    errors = []
    for candidate in _candidates(type(config)):
        try:
            return candidate(config).float().eval()
        except Exception as error:  # A model's code may raise anything about a configuration.
            errors.append(f"{candidate.__name__}: {type(error).__name__}: {error}")
    raise NotBuilt("; ".join(errors) or "no class of a model takes this configuration")


class _Ids:
    """Remembers the ids that a router inside a module has given."""

    def __init__(self, module: torch.nn.Module):
        self.ids = None
        for child in module.modules():
            if child is not module:
                child.register_forward_hook(self._look)

    def _look(self, module, args, result):
        for value in result if isinstance(result, tuple) else ():
            if torch.is_tensor(value) and value.dtype == torch.int64 and value.dim() == 2:
                self.ids = value.numpy()


def _run(block: torch.nn.Module, parent: torch.nn.Module, layer: int, width: int,
         tokens: int, generator: torch.Generator) -> Block:
    states = torch.randn(1, tokens, width, generator=generator)
    inputs = {"hidden_states": states[0].numpy()}
    arguments = {}
    if "input_ids" in inspect.signature(block.forward).parameters:
        arguments["input_ids"] = torch.randint(0, 128, (1, tokens), generator=generator)
    # Only layers with hash routing take ids.
    if arguments and getattr(block, "is_hash", True):
        inputs["input_ids"] = arguments["input_ids"][0].numpy().astype(np.int32)
    # The router of ZAYA is a network outside the layer, which begins at its logits.
    if type(block).__name__ == "ZayaSparseMoeBlock":
        inputs["router_logits"] = block.gate(states)[0].numpy()
    # A.X K1's files have this norm in the decoder layer.
    if hasattr(block, "post_mlp_layernorm"):
        block.post_mlp_layernorm = torch.nn.Identity()
    ids = _Ids(block)
    output = block(states, **arguments)
    output = output[0] if isinstance(output, tuple) else output
    # Granite keeps the shared expert beside the block and adds the two.
    if getattr(parent, "shared_mlp", None) is not None and not hasattr(block, "shared_mlp"):
        output = output + parent.shared_mlp(states)
    if type(block).__name__ == "InklingMoE":
        # Every token has the shared experts, numbered behind the others.
        last = np.arange(block.gate.num_experts, block.gate.n_total_experts)
        ids.ids = np.concatenate([ids.ids, np.tile(last, (tokens, 1))], 1)
    if "router_logits" in inputs:
        # The skip has the last logit; its id is that of expert 0, its weight 0.
        weights, chosen = (value.numpy() for value in block.gate(states)[1:3])
        ids.ids = np.where(weights == 0, block.gate.num_experts, chosen)
    return Block(layer, inputs, output.reshape(tokens, -1).numpy(), ids.ids)


def _run_parts(module, layer: int, width: int, tokens: int, generator) -> list[Block]:
    """A router and experts for tokens of text, and others for those of images."""
    states = torch.randn(1, tokens, width, generator=generator)
    results = []
    for part, kind, options in (module.text_moe, 0, []), (module.vision_moe, 1, ["--part=vision"]):
        ids = _Ids(part)
        output = module(states, torch.full((1, tokens), kind, dtype=torch.int32))[0]
        results.append(Block(layer, {"hidden_states": states[0].numpy()}, output[0].numpy(), ids.ids, options))
    return results


def _run_gemma(layer_module, layer: int, width: int, tokens: int, generator) -> Block:
    """Router and experts are in the decoder layer and read different states."""
    states, routed = (torch.randn(tokens, width, generator=generator) for _ in range(2))
    router = layer_module.router
    normed = router.norm(routed) * router.scale * router.scalar_root_size
    logits = router.proj(normed)
    _, weights, ids = router(routed)
    output = layer_module.experts(states, ids, weights)
    inputs = {"hidden_states": states.numpy(), "router_logits": logits.numpy()}
    return Block(layer, inputs, output.numpy(), ids.numpy())


def _build_dbrx(config, folder: pathlib.Path, tokens: int, generator) -> Model:
    """The model cannot be built from a default configuration, but its block can."""
    from transformers.models.dbrx.modeling_dbrx import DbrxFFN

    block = DbrxFFN(config).float().eval()
    randomize(block, 1)
    result = _run(block, block, 0, config.d_model, tokens, generator)
    tensors = {
        f"transformer.blocks.0.ffn.{name}": value.numpy().copy()
        for name, value in block.state_dict().items()
    }
    save_file(tensors, folder / "model.safetensors")
    config.dtype = "float32"
    config.save_pretrained(folder)
    return Model(folder, [result])


def _publish_inkling(folder: pathlib.Path) -> None:
    """Gives the tensors of the text model alone their published names: gate and up rows in turn."""

    def interleave(first, second):
        return np.stack([first, second], 2).reshape(len(first), -1, first.shape[-1])

    tensors = {name: value for path in folder.glob("*.safetensors") for name, value in load_file(path).items()}
    for name in [name for name in tensors if name.endswith("mlp.gate.weight")]:
        prefix = name.removesuffix("gate.weight")
        take = lambda part, prefix=prefix: tensors.pop(prefix + part)
        tensors[prefix + "experts.w13_weight"] = interleave(*np.split(take("experts.gate_up_proj"), 2, 1))
        tensors[prefix + "experts.w2_weight"] = take("experts.down_proj")
        shared = interleave(take("shared_experts.gate_proj"), take("shared_experts.up_proj"))
        tensors[prefix + "shared_experts.shared_w13_weight"] = shared
        tensors[prefix + "shared_experts.shared_w2_weight"] = take("shared_experts.down_proj")
    for path in [*folder.glob("*.safetensors"), *folder.glob("*.index.json")]:
        path.unlink()
    save_file(tensors, folder / "model.safetensors")


def build(config, folder: pathlib.Path, tokens: int = 7, max_blocks: int = 2) -> Model:
    """Builds the model of a configuration, saves it and runs its blocks."""
    generator = torch.Generator().manual_seed(tokens)
    folder.mkdir(parents=True, exist_ok=True)
    if config.model_type == "dbrx":
        return _build_dbrx(config, folder, tokens, generator)
    model = make(config)
    randomize(model, 1)
    config._experts_implementation = "eager"
    model.save_pretrained(folder, max_shard_size="100KB")
    if config.model_type == "inkling_text":
        _publish_inkling(folder)
    modules = dict(model.named_modules())
    blocks = []
    for name, module in modules.items():
        where = _LAYER.search(name)
        if where is None or len(blocks) == max_blocks:
            continue
        layer = int(where.group(1))
        if hasattr(module, "router") and hasattr(module, "experts") and name.endswith(where.group(1)):
            blocks.append(_run_gemma(module, layer, config.hidden_size, tokens, generator))
        elif hasattr(module, "vision_moe"):
            blocks += _run_parts(module, layer, config.hidden_size, tokens, generator)
        elif _is_block(module):
            parent = modules[name.rpartition(".")[0]]
            blocks.append(_run(module, parent, layer, config.hidden_size, tokens, generator))
    if not blocks:
        raise NotBuilt("the model has no block with experts")
    return Model(folder, blocks)


def _is_block(module: torch.nn.Module) -> bool:
    name = type(module).__name__
    # The experts of JetMoE's attention are no layer, and the parts of ERNIE's block are none alone.
    others = ("xperts", "MoA", "Attention", "VLMoeSparseMoe")
    if any(word in name for word in others) or "Layer" in name.replace("MoELayer", ""):
        return False
    return hasattr(module, "experts") or hasattr(module, "vision_moe") or name == "JetMoeMoE"


def read_tensors(folder: pathlib.Path, layer: int) -> dict[str, np.ndarray]:
    """The tensors of one decoder layer under the names that the model saved them by."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "np") as file:
            for name in file.keys():
                where = _LAYER.search(name)
                if where and int(where.group(1)) == layer:
                    tensors[name] = file.get_tensor(name)
    return tensors


def read_config(folder: pathlib.Path) -> dict:
    return json.loads((folder / "config.json").read_text())


def run_first(model: torch.nn.Module, tokens: int) -> Block:
    """Runs the first block of a model; its weights do not depend on other modules."""
    model.config._experts_implementation = "eager"
    modules = dict(model.named_modules())
    for name, module in modules.items():
        if _LAYER.search(name) and _is_block(module):
            parent = modules[name.rpartition(".")[0]]
            randomize(module, 1)
            if getattr(parent, "shared_mlp", None) is not None:
                randomize(parent.shared_mlp, 2)
            generator = torch.Generator().manual_seed(tokens)
            return _run(module, parent, 0, model.config.hidden_size, tokens, generator)
    raise NotBuilt("the model has no block with experts")
