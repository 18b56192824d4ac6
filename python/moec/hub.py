# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models in the local cache of the Hugging Face hub. Nothing is downloaded."""

from __future__ import annotations

import os
import pathlib
import re

from . import _core
from .argument_names import name_argument

#: The name of a model on the hub. Paths of descriptions end in .json, .mlir or .gguf.
_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(?<!\.json)(?<!\.mlir)(?<!\.gguf)")


def find_cache() -> pathlib.Path:
    """Returns the cache folder of the hub, by the variables that huggingface_hub reads: HF_HUB_CACHE, HF_HOME and
    XDG_CACHE_HOME."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if named:
        return pathlib.Path(named).expanduser()
    home = os.environ.get("HF_HOME")
    if home:
        return pathlib.Path(home).expanduser() / "hub"
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "huggingface" / "hub"


def _find_snapshot(name: str) -> pathlib.Path | None:
    """Returns the newest snapshot of a model's branch `main` (or of any, if there is no such branch) with a config.json
    or a GGUF file."""
    model = find_cache() / ("models--" + name.replace("/", "--"))
    snapshots = model / "snapshots"
    try:
        revisions = [(model / "refs" / "main").read_text().strip()]
    except OSError:
        try:
            found = sorted(snapshots.iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True)
        except OSError:
            return None
        revisions = [folder.name for folder in found]
    for revision in revisions:
        if (snapshots / revision / "config.json").is_file() or any((snapshots / revision).glob("*.gguf")):
            return snapshots / revision
    return None


def resolve(path: str) -> str:
    """Returns the folder in the hub's cache if the path is the name of a model there ("org/name") and no file or folder;
    else the path unchanged."""
    if not _NAME.fullmatch(path) or os.path.exists(path):
        return path
    return os.fspath(_find_snapshot(path) or path)


def find_model(path: str) -> str:
    """Returns resolve() of the path of a description. Raises NotFound, with the command that downloads a model, if there
    is nothing of that name; names of files (.json, .mlir, .gguf) are returned unchanged."""
    found = resolve(path)
    if found.endswith((".json", ".mlir", ".gguf")) or os.path.exists(found):
        return found
    if _NAME.fullmatch(path):
        raise _core.NotFound(
            f"{name_argument('source')}: there is no file or folder {path!r}, and no such model in {find_cache()}; "
            f"`hf download {path}` puts it there"
        )
    raise _core.NotFound(
        f"{name_argument('source')}: there is no file or folder {path!r}; give a model's folder, its config.json, the name of a model in "
        'the cache of the Hugging Face hub ("org/name"), a GGUF file, a spec (.json) or IR (.mlir)'
    )
