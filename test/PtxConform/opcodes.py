# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fails if PTX has an instruction that no form supported by the simulator contains.

opcodes.py KERNELS NOT_MODELLED FILE...: a folder of ptx-conform --kernels, the names of forms that
the simulator does not know, and PTX."""

import re
import sys
from pathlib import Path

#: Instructions only of sm_100a, which an H200 does not run.
NEWER = {"add.rn.f32x2", "sub.rn.f32x2", "mul.rn.f32x2", "fma.rn.f32x2", "add.rn.f32.bf16"}

#: Other spellings of one instruction.
SAME = [
    (r"^bra\.uni$", "bra"),
    (r"^ret\.uni$", "ret"),
    (r"^trap$", "exit"),
    (r"^prefetch\.param\.tensormap$", "prefetch.tensormap"),
]


def opcodes(text: str) -> set[str]:
    found = set()
    for line in re.sub(r"//.*", "", text).splitlines():
        for statement in line.split(";"):
            match = re.match(r"\s*(?:@!?[%\w]+\s+)?([a-z][\w.:]*)(?=\s|$)", statement)
            # No directives, labels or lines in the middle of a list.
            if match and not match[1].endswith(":") and "%" not in match[1]:
                name = match[1]
                for pattern, same in SAME:
                    name = re.sub(pattern, same, name)
                found.add(name)
    return found


def main(kernels: str, not_modelled: str, *files: str) -> int:
    unknown = set(Path(not_modelled).read_text().splitlines())
    shown = set()
    for kernel in Path(kernels).glob("*.ptx"):
        text = kernel.read_text()
        # The first line is a comment with the form's name.
        if text.splitlines()[0].removeprefix("// ") not in unknown:
            shown |= opcodes(text)
    emitted = set()
    for file in files:
        emitted |= opcodes(Path(file).read_text())
    missing = sorted(emitted - shown - NEWER)
    for name in missing:
        print(f"no form that the simulator knows shows {name}")
    print(f"{len(emitted)} instructions, {len(missing)} without a form")
    return 1 if missing or not emitted else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
