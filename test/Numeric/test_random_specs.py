# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A few random specs (scripts/random-specs draws more), and tests of drawing and shrinking."""

import random
import types
from importlib.machinery import SourceFileLoader

import pytest
from cases import BASE, Case
from features import FEATURES, FORMATS, features
from random_specs import NOT_DRAWN, draw, mutate
from readers import SCHEMA, judge_readers
from runs import ALL_CASES, ROOT, Run
from shrink import shrink
from verdicts import TARGETS, Verdict, find_changed, judge, options_for

from moec.reference import LayerSpec, decide, evaluate, generate, write_tensors

SEED = 29
DRAWS = [draw(SEED, index) for index in range(60 if ALL_CASES else 24)]
#: Every other draw runs on a simulated GPU, with alternating targets.
RUNS = [(case, "cpu") for case in DRAWS] + [
    (case, TARGETS[1 + index % 2]) for index, case in enumerate(DRAWS[::2])]

@pytest.mark.parametrize(
    ("case", "target", "options"),
    [pytest.param(case, target, options_for(target), id=f"{target}-{case.name}")
     for case, target in RUNS])
def test_random_spec(case, target, options, runs):
    verdict = judge(case, target, runs)
    assert verdict.is_good, f"{case}\n{verdict.text}"


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_not_compiled_is_refused(target, runs):
    weight = {"dtype": "int8", "scale": {"group": 1}, "scale_dtype": "bf16"}
    case = Case("refused", BASE | {"entry": "logits", "quantization": {"weight": weight}}, 1)
    verdict = judge(case, target, runs)
    assert verdict.kind == "refused", verdict.text


@pytest.mark.parametrize("index", range(len(DRAWS)))
def test_readers(index):
    """Legal specs are accepted by all readers; illegal ones are refused by all but the schema."""
    case, rng = DRAWS[index], random.Random(f"{SEED} {index}")
    verdict = judge_readers(case.model, legal=True)
    assert verdict.is_good, f"{case.model}\n{verdict.text}"
    mutant = mutate(rng, case.model, SCHEMA)
    verdict = judge_readers(mutant)
    assert verdict.is_good, f"{mutant}\n{verdict.text}"


def test_draws_are_the_same():
    assert draw(SEED, 7) == DRAWS[7] != draw(SEED + 1, 7)


def test_draws_are_legal():
    # Number 614 has a bias of the output, and was given ranks once.
    for seed, first in ((SEED, 24), (7301, 600)):
        for index in range(first, first + 40):
            LayerSpec.from_json(draw(seed, index).model)


def test_no_rows_with_scales_of_the_caller():
    sizes = {"hidden_size": 64, "num_experts": 4, "top_k": 2, "intermediate_size": 64, "activation": {"kind": "silu"}}
    form = {"dtype": "bf16", "entry": "ids", "quantization": "fp8_block128", "quantized_input": True}
    model = {"moec_spec": 1, "max_tokens": 4} | sizes | form
    spec = LayerSpec.from_json(model)
    tensors = generate(spec, 0, seed=1)
    assert evaluate(spec, tensors, decide(spec, tensors)).shape == (0, spec.hidden_size)


def test_rare_features_are_drawn():
    drawn = set().union(*(features(draw(SEED, index)) for index in range(600)))
    sections = FEATURES.keys() - {"model family"}
    wanted = {(section, name) for section in sections for name in FEATURES[section]
              # Operands are one of very many combinations.
              if name not in NOT_DRAWN and name not in FORMATS}
    assert sorted(wanted - drawn) == []
    assert not {name for _, name in drawn} & NOT_DRAWN.keys()


def test_how_layers_run_is_drawn():
    drawn = [draw(SEED, index).model for index in range(100)]
    assert any(model.get("batch_invariant") for model in drawn)
    assert any("parallel" in model for model in drawn)


@pytest.mark.parametrize("changed", [None, 4])
def test_bits_of_smaller_calls_are_compared(changed, tmp_path):
    """The outputs are the hidden states, of which a smaller call changes one row."""
    case = Case("rows", BASE | {"entry": "logits", "max_tokens": 9, "batch_invariant": True}, 9)

    class Echo:
        def get(self, case, *options, tensors=None):
            tensors = tensors or generate(LayerSpec.from_json(case.model), case.tokens, case.seed)
            output = tensors["hidden_states"].copy()
            if changed is not None and 1 < case.tokens < 9:
                output[changed - 3, 5] += 1
            path = tmp_path / f"{case.name}.safetensors"
            write_tensors(path, {"output": output})
            return Run(case, [], 0, "", path, path)

        def forget(self, run):
            pass

    found = find_changed(case, "cpu", Echo(), Echo().get(case))
    assert found == ("" if changed is None else "row 4 has other bits in a call with rows 3 to 6")


def test_what_does_not_fail_again_is_reported_as_it_failed(monkeypatch):
    loader = SourceFileLoader("random_specs_script", str(ROOT / "scripts" / "random-specs"))
    script = types.ModuleType(loader.name)
    script.__file__ = loader.path
    loader.exec_module(script)
    verdicts = iter([Verdict("hangs", "timed out after 300 seconds")])
    monkeypatch.setattr(script, "judge", lambda *_: next(verdicts, Verdict("ok")))
    counts, failures = script.judge_index(SEED, 7, ["cpu"], readers=False, runs=None)
    assert counts["cpu", "hangs"] == 1
    assert len(failures) == 1 and "cpu: hangs" in failures[0] and "timed out" in failures[0]


def test_shrink():
    """A shrunk case keeps only the fields that make it fail."""
    case = next(case for case in map(lambda index: draw(SEED, index), range(1000))
                if case.model.get("expert_bias") and "shared_experts" in case.model and case.tokens > 8)
    small = shrink(case, lambda trial: trial.model.get("expert_bias", False) and trial.tokens > 2)
    assert small.tokens == 3 and small.hard is None
    assert small.model.keys() - {"max_tokens"} == {
        "moec_spec", "dtype", "hidden_size", "num_experts", "top_k", "intermediate_size",
        "activation", "expert_bias"}
