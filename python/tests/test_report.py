# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moe-compile --report and Layer.report(): one page with all sections and valid links and, in Chromium, a working
script."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

import pytest
from conftest import BINARIES
from report_page import Page
from small_layer import SPEC

import moec

#: Compiles in a second and shows all features of a page: two streams, groups, fp8.
LAYER = {
    "moec_spec": 1,
    "name": "made-up",
    "dtype": "bf16",
    "hidden_size": 256,
    "num_experts": 8,
    "top_k": 2,
    "intermediate_size": 256,
    "max_tokens": 64,
    "activation": {"kind": "silu"},
    "routing": {"num_groups": 4, "topk_groups": 2, "renormalize": True, "scale": 2.5},
    "quantization": "fp8_block128",
    "shared_experts": {"intermediate_size": 256},
}


def compile_page(folder, *options, layer=LAYER, target="sm_90a"):
    source, page = folder / "layer.json", folder / "out" / "layer.html"
    source.write_text(json.dumps(layer))
    subprocess.run(
        [BINARIES / "moe-compile", source, f"--target={target}", f"--report={page}", *options],
        check=True,
    )
    return page


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    results = folder / "results.json"
    rows = [
        {"layer": "other", "tokens": 64, "us": 1.0},
        {"layer": "this", "tokens": 64, "us": 123.4,
         "kernels": [{"kernel": "output", "us": 7.77}, {"kernel": "gone", "us": 1}]},
        {"layer": "this", "tokens": 1, "graph_us": 45.6,
         "launches": [{"kernel": "output", "us": 6.66}]},
        {"layer": "this", "tokens": 64, "us": 9999.0, "routing": "zipf"},
    ]
    results.write_text(json.dumps({"device": "a <GPU>", "rows": rows}))
    return compile_page(folder, f"--measured={results}:this")


@pytest.fixture(scope="module")
def page(page_file):
    return Page(page_file.read_text())


def test_is_one_well_formed_page(page):
    assert page.errors == []
    assert not [tag for tag, _ in page.tags if tag in ("b", "link", "img", "gpu")]


def test_layer_is_drawn(page):
    text = page.sections["layer"]
    for part in ("hidden states", "router", "top 2", "dispatch", "8 experts", "combine",
                 "shared expert", "[8, 512, 256] f8e4m3", "2 of 4 groups", "fp8_block128",
                 "gemm of f8E4M3FN"):
        assert part in text, part
    assert page.drawings()[0] == "the layer"
    assert LAYER["name"] in page.sections[""]


def test_first_screen(page, page_file, tmp_path):
    assert list(page.sections)[:2] == ["", "glance"]
    assert re.search(r"moec \d+\.\d+\.\d+.*, 20\d\d-\d\d-\d\d \d\d:\d\d UTC: moe-compile .*layer\.json --target=sm_90a --report=",
                     page.sections[""])
    text = page.sections["glance"]
    # 8 experts of 512 x 256 and 256 x 256 bytes, the shared expert, their scales and the router.
    assert re.search(r"weights\s*1\.7 MiB", text), text
    assert "expected time, 1 token" in text and "workspace for 64 tokens" in text
    assert "all 0 layers" not in text
    model = {"model_type": "qwen3_moe", "hidden_size": 64, "moe_intermediate_size": 32, "num_experts": 4,
             "num_experts_per_tok": 2, "num_hidden_layers": 3, "hidden_act": "silu", "norm_topk_prob": True,
             "torch_dtype": "bfloat16"}
    whole = Page(compile_page(tmp_path, "--max-tokens=64", layer=model).read_text())
    assert "all 3 layers with experts" in whole.sections["glance"]


def test_times_expected_and_measured(page):
    text = page.sections["times"]
    assert "Expected on an H200" in text
    assert "a <GPU>" in text
    for time in ("123.4 us", "7.8 us", "45.6 us", "6.7 us"):
        assert time in text, time
    # Rows of another layer, of another routing, and of an unknown kernel are left out.
    assert "9999" not in text and "gone" not in text and text.count("123.4 us") == 1


def test_roofline_has_each_product(page):
    tips = page.sections["roofline"]
    for product in ("router_logits", "experts_hidden", "experts_out", "shared_hidden"):
        assert re.search(rf"{product}, T=\d+: [\d.]+ operations per byte, .* expected", tips), product
    assert re.search(r"fp8 \d{4} TFLOP/s", tips)


def test_plan_has_streams_slots_kernels_and_choices(page):
    text = page.sections["plan"]
    ends = [[int(end) for end in tokens.split(" to ")] for tokens in page.ranges]
    assert ends[0][0] == 0 and ends[-1][-1] == 64
    assert page.drawings().count("launches by time") == len(ends)
    assert page.drawings().count("launches and workspace in order") == len(ends)
    for part in ("stream 1", "slot 0", "experts_hidden", "sm90.gemm block_m=",
                 "by shared memory", "considered and rejected", "illegal: "):
        assert part in text, part


def test_levels_are_linked(page):
    assert list(page.lines) == ["spec", "moe", "steps", "plan", "tile"]
    assert list(page.code) == ["llvm", "ptx"]
    # Results of the pipeline's ops are on every level below, and together form the layer.
    steps = {name for name in page.names("steps") if name in page.names("plan")}
    assert {"router_logits", "experts_hidden", "experts_out", "shared_out", "output"} <= steps
    assert steps <= page.names("tile") and {"experts_out", "shared_out"} <= page.names("moe")
    kernels = {name for name in page.names("tile") if name[0] == "@"}
    entries = set(re.findall(r"\.visible \.entry (\w+)\(", page.code["ptx"]))
    assert {name[1:] for name in kernels} >= entries and entries
    # Locations in PTX are lines of level tile with ops of the same kernel.
    about = dict(page.lines["tile"])
    kernel, lines = None, 0
    for line in page.code["ptx"].splitlines():
        if entry := re.match(r"\.visible \.entry (\w+)\(", line):
            kernel = entry[1]
        elif location := re.match(r"\s*\.loc\s+1 ([1-9]\d*) ", line):
            lines += 1
            inside = max(at for at, names in page.lines["tile"]
                         if at <= int(location[1]) and any(n[0] == "@" for n in names))
            assert "@" + kernel in about[inside]
    assert lines > 10


def test_times_of_this_cpu(tmp_path):
    text = compile_page(tmp_path, layer=SPEC, target="cpu").read_text()
    page = Page(text)
    assert page.errors == [] and "Expected on" in page.sections["times"]
    assert "TFLOP/s" in page.sections["roofline"] and "bound by" in page.sections["times"]
    assert "launches by time" in page.drawings() and "configs chosen for" not in text


def test_another_cpu_has_no_times_and_says_so(tmp_path):
    page = Page(compile_page(tmp_path, "--cpu=x86-64-v3", layer=SPEC, target="cpu").read_text())
    assert page.errors == []
    assert "no expected times: rates are those of one rank on an x86-64 CPU at hand; give --cpu=host" in page.sections["times"]
    assert "launches by time" not in page.drawings()
    # No column and no section is empty.
    assert "roofline" not in page.sections
    assert "expected" not in page.sections["plan"] and "bound by" not in page.sections["times"]
    assert "define void @output" in page.code["llvm"] and "ptx" not in page.code


def test_ir_has_no_spec(tmp_path):
    source = tmp_path / "layer.mlir"
    subprocess.run([BINARIES / "moe-compile", "--emit=plan", "-o", source, "-"],
                   input=json.dumps(SPEC), text=True, check=True)
    subprocess.run([BINARIES / "moe-compile", source, f"--report={tmp_path}/a.html"], check=True)
    page = Page((tmp_path / "a.html").read_text())
    assert page.errors == [] and "The input was IR" in page.sections["layer"]
    assert list(page.lines) == ["plan", "tile"]


@pytest.mark.parametrize("options, message", [
    (["--explain"], "--report writes a page; leave out"),
    (["--measured=none.json"], "--measured: none.json"),
    (["--measured={two}"], "has rows of the layers a, b; give those of one, as --measured="),
    (["--measured={two}:c"], "has no rows of layer 'c' with 'tokens' and times; its layers are a, b"),
])
def test_errors(tmp_path, options, message):
    (tmp_path / "layer.json").write_text(json.dumps(SPEC))
    two = tmp_path / "two.json"
    two.write_text(json.dumps({"rows": [{"layer": name, "tokens": 1, "us": 1} for name in "ab"]}))
    run = subprocess.run(
        [BINARIES / "moe-compile", tmp_path / "layer.json", f"--report={tmp_path}/a.html",
         *[option.format(two=two) for option in options]], capture_output=True, text=True)
    assert run.returncode == 1 and message in run.stderr, run.stderr
    assert not (tmp_path / "a.html").exists()


def test_report_of_a_layer(tmp_path):
    layer = moec.compile(SPEC, device="cpu")
    text = layer.report(tmp_path / "a.html", measured={4: 5e-6})
    assert text == (tmp_path / "a.html").read_text()
    page = Page(text)
    assert page.errors == [] and "5.0 us" in page.sections["times"]
    with pytest.raises(moec.InvalidArgument, match="measured: .* at 4 tokens, 'fast' found"):
        layer.report(measured={4: "fast"})
    with pytest.raises(moec.NotFound, match="measured: cannot be read"):
        layer.report(measured=tmp_path / "none.json")
    with pytest.raises(moec.NotFound, match="path: cannot be written"):
        layer.report(tmp_path)
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(moec.InvalidArgument, match="has no array 'rows'"):
        layer.report(measured=tmp_path / "bad.json")


#: Opens the code of kernels, then selects a line of level tile.
CLICK = """<script>
document.getElementById("level-ptx").open = true;
setTimeout(() => document.querySelector('.l[id^="tile-"][data-keys~="@output"]').click(), 1500);
</script></body>"""


def test_in_chromium(page_file, page, tmp_path):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    assert browser, "no Chromium; scripts/setup installs it"
    opened = tmp_path / "opened.html"
    opened.write_text(page_file.read_text().replace("</body>", CLICK))
    run = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000",
         f"--user-data-dir={tmp_path}/profile", "--dump-dom", opened.as_uri()],
        capture_output=True, text=True, check=True, timeout=120,
        env={**os.environ, "HOME": str(tmp_path)})
    shown = Page(run.stdout)
    # A button per range of token counts, and one visible range.
    ranges = [named for tag, named in shown.tags if tag == "section"]
    assert len([tag for tag, _ in shown.tags if tag == "button"]) == len(ranges)
    assert [named["class"] for named in ranges].count("range off") == len(ranges) - 1
    # PTX with links to lines of level tile.
    links = [named["href"] for tag, named in shown.tags
             if tag == "a" and named.get("href", "").startswith("#tile-")]
    assert len(links) > 10 and all(link[1:] in page.ids for link in links)
    # The selected line's kernel on all levels, including the launch at level plan and the code.
    hits = {named["id"] for _, named in shown.tags
            if "hit" in named.get("class", "").split() and "id" in named}
    assert {hit.split("-")[0] for hit in hits} == {"moe", "steps", "plan", "tile", "ptx"}


#: Writes what does not fit the window to the page's title.
MEASURE = """<script>
const wide = [...document.querySelectorAll("body *")].filter((node) =>
  !node.closest(".wide, .ir, pre") && node.getBoundingClientRect().right > innerWidth + 1);
const colors = getComputedStyle(document.body);
document.title = JSON.stringify({
  width: innerWidth, scrolls: document.documentElement.scrollWidth > innerWidth + 1,
  wide: wide.map((node) => node.tagName), ink: colors.color, paper: colors.backgroundColor});
</script></body>"""


@pytest.mark.parametrize("width", [420, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_the_window(page_file, tmp_path, width, scheme):
    """Only drawings, tables and code scroll, each by itself; text differs from the background."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    assert browser, "no Chromium; scripts/setup --dev installs it"
    # A headless window has a least width, so the page is in a frame.
    inner, outer = tmp_path / "inner.html", tmp_path / "outer.html"
    inner.write_text(page_file.read_text().replace("</body>", MEASURE))
    outer.write_text(f"""<iframe id="frame" src="inner.html" style="border: 0; width: {width}px; height: 900px"></iframe>
<script>document.getElementById("frame").addEventListener("load", (event) => {{
  document.body.append(event.target.contentDocument.title); }});</script>""")
    options = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if scheme == "dark" else [
        "--blink-settings=preferredColorScheme=1"]
    run = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
         "--virtual-time-budget=5000", *options, f"--user-data-dir={tmp_path}/profile", "--dump-dom", outer.as_uri()],
        capture_output=True, text=True, check=True, timeout=120, env={**os.environ, "HOME": str(tmp_path)})
    found = json.loads(re.search(r"\{.*\}", run.stdout)[0].replace("&quot;", '"'))
    assert found["width"] == width and not found["scrolls"] and found["wide"] == [], found

    def brightness(color: str) -> int:
        return sum(map(int, re.findall(r"\d+", color)[:3]))

    assert (brightness(found["ink"]) > brightness(found["paper"])) == (scheme == "dark"), found
