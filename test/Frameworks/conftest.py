# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Collects the results of each family, and the configurations that tools write; MOEC_FRAMEWORKS_RECORD and
MOEC_TOOLS_RECORD name the files to write."""

from __future__ import annotations

import json
import os
import pathlib
import re
import tempfile

import pytest

_SEEN: list[dict] = []
_VARIANTS: list[dict] = []


@pytest.fixture
def record():
    def add(name: str, changes: dict, result: str, error: float | None = None) -> None:
        _SEEN.append({"config": name, "changes": changes, "result": result, "error": error})

    return add


@pytest.fixture
def variant():
    def add(tool: str, version: str, name: str, config: dict) -> None:
        _VARIANTS.append({"tool": f"{tool} {version}", "variant": name, "config": config})

    return add


def write_variants(path: str) -> None:
    """Writes the configurations. A tool that is not installed here keeps those that the file has."""
    file = pathlib.Path(path)
    before = json.loads(file.read_text()) if file.exists() else []
    tools = {each["tool"].split()[0] for each in _VARIANTS}
    kept = [each for each in before if each["tool"].split()[0] not in tools]
    lines = [json.dumps(each, default=str) for each in sorted(kept + _VARIANTS, key=lambda each: each["tool"].lower())]
    # A folder that a tool made for its own files has another name in each run.
    text = re.sub(rf"{re.escape(tempfile.gettempdir())}/(\w+)_\w{{8}}\b", r"/tmp/\1", ",\n".join(lines))
    file.write_text(f"[\n{text}\n]\n")


def pytest_sessionfinish(session):
    if os.environ.get("MOEC_TOOLS_RECORD") and _VARIANTS:
        write_variants(os.environ["MOEC_TOOLS_RECORD"])
    path = os.environ.get("MOEC_FRAMEWORKS_RECORD")
    if not path or not _SEEN:
        return
    import table
    import transformers

    types = {
        config_class.__name__: config_class.model_type
        for module in table.discover()
        if module not in table.UNCOVERED
        for config_class in table.config_classes(module)
    }
    families: dict[str, dict] = {}
    for seen in _SEEN:
        family = families.setdefault(types[seen["config"]], {
            "class": seen["config"], "agree": 0, "refused": [], "not_built": 0, "error": 0.0,
        })
        if seen["result"] == "agrees":
            family["agree"] += 1
            # The page shows one digit; others differ by machine.
            family["error"] = max(family["error"], float(f"{seen['error']:.0e}"))
        elif seen["result"] == "refused":
            family["refused"] += [f"{key} = {json.dumps(value)}" for key, value in seen["changes"].items()]
        else:
            family["not_built"] += 1
    with open(path, "w") as file:
        json.dump({
            "transformers": transformers.__version__,
            "families": dict(sorted(families.items())),
            "uncovered": table.UNCOVERED,
        }, file, indent=1)
        file.write("\n")
