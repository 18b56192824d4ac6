# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""python -m moec: the command `moec`."""

import sys

from .commands import main

sys.exit(main())
