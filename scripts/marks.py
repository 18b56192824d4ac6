# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Marks in comments above tests, which name what a test shows; scripts/field-bugs and scripts/parity-table read them."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Functions that add a numeric case, and the prefix that they add to its name, their first argument.
CASE_MAKERS = {"case": "", "config": "family_", "fp8": "fp8_", "formed": "{form}_", "decoded": "{form}_"}


def name_of_call(call: ast.Call) -> str:
    """The name of a numeric case, with the names of a loop's variables in it."""
    name = CASE_MAKERS[call.func.id]
    for argument in call.args[:2]:
        for part in argument.values if isinstance(argument, ast.JoinedStr) else [argument]:
            value = part.value if isinstance(part, ast.FormattedValue) else part
            name += value.value if isinstance(value, ast.Constant) else f"{{{ast.unparse(value)}}}"
    return name


def python_test(text: str, line: int) -> str | None:
    """The test or numeric case that begins in a line."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.stmt):
            continue
        if line != min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))]):
            continue
        if isinstance(node, ast.FunctionDef):
            return node.name if node.name.startswith("test_") else None
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in CASE_MAKERS:
                return name_of_call(call)
    return None


def cpp_test(text: str, line: int) -> str | None:
    rest = "\n".join(text.splitlines()[line - 1:])
    found = re.match(r"TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\s*\)", rest)
    return ".".join(found.groups()) if found else None


def find_marks(label: str, pattern: str, form: str) -> tuple[dict[str, list[str]], list[str]]:
    """Returns the tests of each name that a mark has, and errors in marks.

    label: what a mark begins with, as in `label: name, name` in a comment directly above a test.
    pattern: a name's form, which `form` says in words."""
    comment = re.compile(rf"\s*(?:#|//) {label}: (.*)")
    grep = subprocess.run(["git", "grep", "--untracked", "-lE", rf"^\s*(#|//) {label}: ", "--", "*.py", "*.cpp", "*.mlir",
                           "*.test"], cwd=ROOT, text=True, capture_output=True)
    tests: dict[str, list[str]] = {}
    errors = []
    for path in grep.stdout.split():
        text = (ROOT / path).read_text()
        lines = text.splitlines()
        for number, line in enumerate(lines, 1):
            mark = comment.fullmatch(line)
            if not mark:
                continue
            named, at = mark[1].strip(), number
            while at < len(lines) and lines[at].lstrip().startswith(("#", "//")):
                # A list that continues in the next line ends with a comma.
                if named.endswith(","):
                    named += lines[at].lstrip("#/ ")
                at += 1
            name = path
            if path.endswith((".py", ".cpp")):
                test = (python_test if path.endswith(".py") else cpp_test)(text, at + 1)
                if not test:
                    errors.append(f"{path}:{number}: the mark stands above no test")
                    continue
                name = f"{path}::{test}"
            for each in re.split(r",\s*", named):
                tests.setdefault(each, []).append(name)
                if not re.fullmatch(pattern, each):
                    errors.append(f"{path}:{number}: '{each}' is no {form}")
    return tests, errors
