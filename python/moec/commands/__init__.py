# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `moec` (or `python -m moec`), and the compiler's commands, which are in libmoec.so.1."""

from __future__ import annotations

import argparse
import ctypes
import os
import pathlib
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

#: Commands of include/moec/Tools/Tools.def, by what follows `moec`.
TOOLS = {
    "compile": "moe-compile",
    "run": "moe-run",
    "extract": "moe-extract",
    "opt": "moe-opt",
}
_TOOL_HELP = {
    "compile": "compile a layer and explain it (moe-compile)",
    "run": "run and check a layer (moe-run)",
    "extract": "copy a layer's weights out of a checkpoint (moe-extract)",
    "opt": "run passes on IR (moe-opt)",
}


def get_library() -> pathlib.Path:
    """Returns the path of libmoec.so.1, which is beside moec._core."""
    from .. import _core

    return pathlib.Path(_core.__file__).parent / "libmoec.so.1"


def run_tool(name: str, arguments: Sequence[str]) -> int:
    """Runs a command of libmoec.so.1 in this process and returns its exit status."""
    # The command, not Python, ends on Ctrl-C and on a closed pipe.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    words = [os.fsencode(word) for word in (name, *arguments)]
    main = ctypes.CDLL(os.fspath(get_library())).moec_tool_main
    main.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    main.restype = ctypes.c_int
    return main(words[0], len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None))


def _run_script(name: str) -> NoReturn:
    sys.exit(run_tool(name, sys.argv[1:]))


def moe_compile() -> NoReturn:
    """The script moe-compile."""
    _run_script("moe-compile")


def moe_run() -> NoReturn:
    """The script moe-run."""
    _run_script("moe-run")


def moe_extract() -> NoReturn:
    """The script moe-extract."""
    _run_script("moe-extract")


def moe_opt() -> NoReturn:
    """The script moe-opt."""
    _run_script("moe-opt")


class _Version(argparse.Action):
    """Prints the version; the library is loaded only for that."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, **options)

    def __call__(self, *_: Any) -> NoReturn:
        from .. import _core

        print(f"moec {_core.version}")
        sys.exit(0)


def _make_parser() -> argparse.ArgumentParser:
    from . import bench, cache, fit, info, tune

    parser = argparse.ArgumentParser(
        prog="moec", description="Compiles Mixture-of-Experts layers for the machine that runs them.",
        epilog="`moec COMMAND --help` lists a command's options.",
    )
    parser.add_argument("--version", action=_Version, help="print version and commit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    info.add_parser(commands)
    fit.add_parser(commands)
    bench.add_parser(commands)
    tune.add_parser(commands)
    cache.add_parser(commands)
    for command, text in _TOOL_HELP.items():
        commands.add_parser(command, help=text, add_help=False)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The command `moec`; returns its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in TOOLS:
        return run_tool(TOOLS[words[0]], words[1:])
    parsed = _make_parser().parse_args(words)
    from .._core import Error
    from ..argument_names import options_of_commands

    try:
        with options_of_commands():
            return parsed.run(parsed)
    except BrokenPipeError:
        # The reader of a pipe, such as `head`, has ended.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        # The status of a program that SIGINT has ended.
        return 128 + signal.SIGINT
    except (Error, OSError) as error:
        print(f"moec {parsed.command}: error: {error}", file=sys.stderr)
        return 1
