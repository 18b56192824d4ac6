"""Rows that go only to their destination ranks: in the simulator, kernels pack them for each rank and sum the
returned rows. Bits are those of ranks that copy all rows."""

import pytest
from runs import ALL_CASES
from test_ranks import LAYERS, OWNED, OWNED_FP8, Ranks, replica_lists, replicas_of, run, spec_of, spread_ids, verify

from moec.reference import LayerSpec, generate

SHARED = spec_of(entry="ids", top_k=2, hidden_size=256, intermediate_size=64, dtype="bf16",
                 shared_experts={"intermediate_size": 64})
BLOCKS = spec_of(entry="ids", top_k=2, hidden_size=512, intermediate_size=256, dtype="bf16",
                 quantization="fp8_block128")
LIMITS = ("--max-tokens=16", "--rank-limit=60")
OPTIONS = ("--target=sm_90a", *LIMITS)


def bits_of(folder, model, ranks, tokens, ids, *options) -> bytes:
    folder.mkdir()
    options = options if any("--target" in option for option in options) else ("--target=sm_90a", *options)
    verify(folder, model, ranks, tokens=tokens, ids=ids, options=(*LIMITS, *options))
    return (folder / "out.safetensors").read_bytes()


@pytest.mark.one_of(3)
@pytest.mark.parametrize(("dp", "tp", "sp", "tokens", "kind", "model"), [
    (4, 1, False, 9, "any", OWNED), (4, 1, False, 9, "last rank", OWNED), (4, 1, False, 5, "own rank", OWNED),
    (4, 1, False, 9, "nobody", OWNED), (2, 2, False, 9, "any", OWNED), (2, 2, True, 3, "any", OWNED),
    (8, 1, False, 3, "any", OWNED), (4, 1, False, 0, "any", OWNED), (4, 1, False, 5, "any", OWNED_FP8),
    (4, 1, False, 7, "any", BLOCKS), (4, 1, False, 5, "any", SHARED),
], ids=lambda value: {id(OWNED): "bf16", id(OWNED_FP8): "fp8", id(BLOCKS): "blocks", id(SHARED): "shared"}.get(
    id(value), str(value)))
def test_bits(dp, tp, sp, tokens, kind, model, tmp_path):
    ids = spread_ids(kind, tokens * dp * (tp if sp else 1), dp) if tokens else None
    ranks = Ranks(dp, tp, "round_robin" if kind == "any" else "linear", sp)
    device = f"--device=sim:{dp}"
    copied = bits_of(tmp_path / "copied", model, ranks, tokens, ids, device)
    ways = {"exact": (), "padded": ("--all-to-all-capacity=1",)}
    if not ALL_CASES and (dp, tp, kind) not in ((4, 1, "any"), (4, 1, "nobody")):
        del ways["padded"]
    for name, options in ways.items():
        assert bits_of(tmp_path / name, model, ranks, tokens, ids, device, "--exchange=all-to-all",
                       *options) == copied, name


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_other_kernels(dtype, tmp_path):
    """Of another target, and rows of other elements."""
    model, ids = OWNED | {"dtype": dtype}, spread_ids("any", 20, 4)
    options = ("--target=sm_80", "--device=sim:3")
    assert bits_of(tmp_path / "copied", model, Ranks(4, 1, "linear"), 5, ids, *options) == bits_of(
        tmp_path / "packed", model, Ranks(4, 1, "linear"), 5, ids, *options, "--exchange=all-to-all")


def test_router_s_ids(tmp_path):
    """Ids of a router; more ranks than peer-memory kernels support."""
    model = spec_of(**LAYERS["logits"]) | {"num_experts": 40, "top_k": 2}
    ranks = Ranks(20, 1, "linear")
    assert bits_of(tmp_path / "copied", model, ranks, 3, None, "--device=sim:1") == bits_of(
        tmp_path / "packed", model, ranks, 3, None, "--device=sim:1", "--exchange=all-to-all")


def test_several_runs(tmp_path):
    """Runs with other inputs and counts in sequence, padding rows, and ranks without tokens."""
    model = OWNED | {"num_valid_tokens": True}
    inputs = generate(LayerSpec.from_json(model), 24, 3)
    done = run(tmp_path, model, Ranks(4, 1, "linear"), inputs, 6, "--rank-tokens=0,3,6,1", "--check",
               "--device=sim:2", *OPTIONS, "--exchange=all-to-all", "--compare=3")
    assert done.returncode == 0, done.stdout
    assert "equal bits in 3 more runs" in done.stdout


@pytest.mark.parametrize("capacity", ["0", "1"])
def test_micro_batches(capacity, tmp_path):
    """Both halves of a batch pack their rows in the same memory, one after the other."""
    ids = spread_ids("any", 36, 4)
    made = [bits_of(tmp_path / str(least), OWNED, Ranks(4, 1, "linear"), 9, ids, "--device=sim:3",
                    "--exchange=all-to-all", f"--all-to-all-capacity={capacity}", f"--micro-batches-from={least}")
            for least in (0, 1)]
    assert made[0] == made[1]


def test_few_rows_go_to_all(tmp_path):
    """The threshold of tokens: with fewer the base moves all rows without these kernels."""
    trace = tmp_path / "trace.json"
    ids = spread_ids("any", 20, 4)
    for least in (5, 6):
        bits_of(tmp_path / str(least), OWNED, Ranks(4, 1, "linear"), 5, ids, "--device=sim:1",
                "--exchange=all-to-all", f"--all-to-all-from={least}", f"--trace={trace}")


@pytest.mark.parametrize(("capacity", "rows"), [(0.5, 3), (0.01, 1)])
def test_rows_beyond_the_capacity(capacity, rows, tmp_path):
    """Every row goes to the last rank: rows beyond the capacity are an error, not a wrong result."""
    inputs = generate(LayerSpec.from_json(OWNED), 20, 1)
    inputs["topk_ids"] = spread_ids("last rank", 20, 4).astype("int32")
    done = run(tmp_path, OWNED, Ranks(4, 1, "linear"), inputs, 5, "--device=sim:1", *OPTIONS,
               "--exchange=all-to-all", f"--all-to-all-capacity={capacity}")
    assert done.returncode == 1
    message = f"an all-to-all over dp has 5 rows for one rank, more than the capacity of {rows}"
    assert message in done.stdout, done.stdout
    assert not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize(("options", "message"), [
    (("--device=host",),
     "--exchange=all-to-all: no collective in the layer's plan for 'cpu' dispatches rows to destination ranks"),
    (("--device=sim", "--all-to-all-capacity=2", *OPTIONS),
     "--all-to-all-capacity must lie between 0 and 1"),
    (("--device=sim", "--all-to-all-from=0", *OPTIONS),
     "an all-to-all from 0 rows on was requested; 1 or more is accepted"),
], ids=["host", "capacity", "rows"])
def test_refused(options, message, tmp_path):
    inputs = generate(LayerSpec.from_json(OWNED), 8, 1)
    done = run(tmp_path, OWNED, Ranks(4, 1, "linear"), inputs, 2, *options, "--exchange=all-to-all")
    assert done.returncode == 1
    assert message in done.stdout, done.stdout


def test_replicas_are_refused(tmp_path):
    """The replica of a row follows from its index among all rows."""
    lists = replica_lists(4, 16, 20)
    model = replicas_of(OWNED, 20, 4)
    inputs = generate(LayerSpec.from_json(OWNED), 8, 1)
    done = run(tmp_path, model, Ranks(4, 1, lists), inputs, 2, "--device=sim", *OPTIONS, "--exchange=all-to-all")
    assert done.returncode == 1
    assert "without replicas" in done.stdout, done.stdout
