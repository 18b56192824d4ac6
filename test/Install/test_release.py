# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/release: a dry run with the finished build, and a tag in a repository made here."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import subprocess
from pathlib import Path

import pytest

import moec

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MOEC_BIN_DIR", ROOT / "build-release" / "bin")).parent
CHANGELOG = """# Changelog

## [Unreleased]

- Something new.

## [1.2.0] - 2026-11-29

### Added

- A release.

## [1.1.0] - 2026-10-01

- Something old.
"""


def load_script():
    loader = importlib.machinery.SourceFileLoader("release", str(ROOT / "scripts" / "release"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("release", loader))
    loader.exec_module(module)
    return module


release = load_script()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"],
                    ["config", "user.name", "a"], ["config", "user.email", "a@b"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def run(*arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run([ROOT / "scripts/release", *map(str, arguments)], text=True, capture_output=True)


@pytest.mark.skipif(not list(BUILD.glob("moec-*.whl")), reason="there is no wheel; scripts/wheel makes it")
@pytest.mark.skipif(not list(BUILD.glob("moec-*.tar.xz")), reason="there is no bundle; the target bundle makes it")
def test_dry_run(tmp_path: Path) -> None:
    tags = release.git(ROOT, "tag")
    target = tmp_path / "made"
    done = run(moec.__version__, "--dry-run", f"--build={BUILD}", f"--output={target}")
    assert done.returncode == 0, done.stderr
    names = {path.name for path in target.iterdir()}
    assert names == {"SHA256SUMS", "NOTES.md", f"moec-{moec.__version__}-cp310-abi3-manylinux_2_28_x86_64.whl",
                     f"moec_reference-{moec.__version__}-py3-none-any.whl",
                     f"moec-{moec.__version__}-linux-x86_64.tar.xz"}
    subprocess.run(["sha256sum", "--strict", "--quiet", "-c", "SHA256SUMS"], cwd=target, check=True)
    assert (target / "SHA256SUMS").read_text().count("\n") == 3
    assert (target / "NOTES.md").read_text().startswith("### Added\n")
    assert release.git(ROOT, "tag") == tags
    done = run(moec.__version__, "--dry-run", f"--build={BUILD}", f"--output={target}")
    assert done.returncode == 1 and "exists: remove it" in done.stderr


@pytest.mark.parametrize(("version", "message"), [
    ("1.2", "'1.2' is no version: write three numbers, such as 0.2.0"),
    ("99.0.0", "write 99.0.0 into python/moec/__init__.py"),
])
def test_other_versions_are_refused(version: str, message: str) -> None:
    done = run(version, "--dry-run")
    assert done.returncode == 1 and message in done.stderr


def test_a_build_without_wheels_is_refused(tmp_path: Path) -> None:
    done = run(moec.__version__, "--dry-run", f"--build={tmp_path}", f"--output={tmp_path / 'made'}")
    assert done.returncode == 1 and "run scripts/wheel" in done.stderr
    assert not (tmp_path / "made").exists()


def test_tag_has_the_notes(repository: Path) -> None:
    release.check(repository, "1.2.0", "1.2.0", dry_run=False)
    notes = release.read_notes(repository, "1.2.0", dry_run=False)
    assert notes == "### Added\n\n- A release.\n"
    release.tag(repository, "1.2.0", notes)
    assert release.git(repository, "cat-file", "-t", "v1.2.0") == "tag"
    assert "moec 1.2.0\n\n### Added\n\n- A release." in release.git(repository, "cat-file", "tag", "v1.2.0")
    with pytest.raises(release.Refused, match="the tag v1.2.0 exists"):
        release.check(repository, "1.2.0", "1.2.0", dry_run=False)


def test_a_changed_tree_is_refused(repository: Path) -> None:
    (repository / "left").touch()
    with pytest.raises(release.Refused, match="left"):
        release.check(repository, "1.2.0", "1.2.0", dry_run=False)


def test_a_version_without_a_section_is_refused(repository: Path) -> None:
    with pytest.raises(release.Refused, match=re.escape("rename '## [Unreleased]' to '## [1.3.0] - YYYY-MM-DD'")):
        release.read_notes(repository, "1.3.0", dry_run=False)
    assert release.read_notes(repository, "1.3.0", dry_run=True) == "- Something new.\n"
    (repository / "CHANGELOG.md").write_text(CHANGELOG.replace("[1.2.0] - 2026-11-29", "[1.2.0]"))
    with pytest.raises(release.Refused, match="no date"):
        release.read_notes(repository, "1.2.0", dry_run=False)
