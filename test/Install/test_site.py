# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/site: links of the pages, and the navigation. `scripts/test --frameworks` builds the site itself."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load_script():
    loader = importlib.machinery.SourceFileLoader("site_script", str(ROOT / "scripts" / "site"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("site_script", loader))
    loader.exec_module(module)
    return module


site = load_script()


def test_every_link_leads_to_a_file(tmp_path: Path) -> None:
    # The one page that git ignores and another page links to.
    subprocess.run([sys.executable, ROOT / "scripts/python-reference"], check=True)
    stage = site.Stage(tmp_path)
    for name in site.PAGES:
        stage.add(ROOT / name)
    for page in (ROOT / "docs").rglob("*.md"):
        if page.parent.name != "reference":
            stage.add(page)
    assert stage.wrong == []
    # A page that is linked from another folder, and a link rewritten for its new place.
    assert (tmp_path / "sources/lib/Schedules/Sm90Gemm/README.md").is_file()
    assert "../use/tutorial.md" in (tmp_path / "sources/README.md").read_text()


def test_a_link_to_nothing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs/index.md"
    page.write_text("[a](none.md) [b](https://moec.example) `[c](code.md)`\n```\n[d](code.md)\n```\n[e](index.md#top)\n")
    stage = site.Stage(tmp_path / "stage")
    stage.add(page)
    assert stage.wrong == ["docs/index.md: none.md is no file of the sources"]
    assert (tmp_path / "stage/index.md").read_text() == page.read_text()


@pytest.mark.skipif(not site.PYTHON.exists(), reason="there is no .venv-site; scripts/site makes it")
def test_an_anchor_that_is_not_there_is_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# Top\n\n[a](#top) [b](#none)\n")
    text = (ROOT / "site/mkdocs.yml").read_text()
    (tmp_path / "mkdocs.yml").write_text(text[:text.index("nav:\n")])
    with pytest.raises(SystemExit, match="#none"):
        site.build_pages(tmp_path / "mkdocs.yml", tmp_path / "html")
    (tmp_path / "docs/index.md").write_text("# Top\n\n[a](#top)\n")
    site.build_pages(tmp_path / "mkdocs.yml", tmp_path / "html")
    assert (tmp_path / "html/index.html").is_file()


def test_the_navigation_names_pages_that_are_made() -> None:
    text = (ROOT / "site/mkdocs.yml").read_text()
    made = {"c", "cpp", "moe", "plan", "tile", "passes"}
    notebooks = {f"notebooks/{path.stem}.md" for path in (ROOT / "examples/notebooks").glob("*.ipynb")}
    named = re.findall(r"^ +- (\S+\.md)$", text, re.MULTILINE)
    for page in named:
        assert (page in site.PAGES.values() or page in notebooks or (ROOT / "docs" / page).is_file()
                or (page.startswith("reference/") and Path(page).stem in made)), page
    assert notebooks <= set(named)
