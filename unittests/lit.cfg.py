"""The GoogleTest programs, each in shards of which one runs on each core."""

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
from lit_shards import Shards  # noqa: E402

config.name = "moec-unit"
config.test_format = Shards(".", "Tests")
config.test_source_root = config.test_exec_root = config.moec_unittests_dir
for name, value in os.environ.items():
    if name == "HOME" or name.startswith(("MOEC_", "ASAN_", "UBSAN_", "LSAN_", "TSAN_")):
        config.environment[name] = value
if config.moec_sanitize == "thread":
    # Ranks that are processes have no threads in common, and readers of files have none at all.
    config.environment["GTEST_FILTER"] = "-ProcessDrillTest.*:PackageTest.*:GgufTest.*:SafetensorsTest.*"
elif config.moec_sanitize:
    # Left to the release build, for time: what ptxas, LLVM and the simulator make of whole kernels of many formats,
    # which is not about our memory (the code that emits them runs in lit's tests too), rows that a simulated device
    # multiplies, tables of many rows and configs, every code of each format, and layers that are compiled again and
    # again.
    slow = ("Nvptx/*", "PtxasLimits.*", "GpuFormats.*", "GpuQuant.*", "CpuFormats.*", "QuantGranularity.*", "Models/*",
            "Families/SimulatorTest.AnswersAsRecorded/wgmma", "RowRunTest.ChecksAndTimes",
            "RowRunTest.ProfilesEachLaunch", "RowTable.FitsThePartToTimes", "RowTable.RecordsTimes",
            "CostTest.ChoicesOfNeighboursAgree", "Exchange.AllRanksGetWhatTheyShould", "Exchange.MistakesAreNoticed",
            "CopiedExchange.*", "ResultsExchange.AreReadBeforeTheyAreWrittenAgain", "CpuGemmE4M3.*",
            "CpuQuantize.*", "CpuTopK.*", "GpuSortByExpert.*", "Sm100/*", "Float8/*",
            "PrepackedFormatTest.CodesFillTheirMemory", "JitTest.WhatMattersIsPartOfTheKey", "JitTest.ThreadsDoNotMatter")
    config.environment["GTEST_FILTER"] = "-" + ":".join(slow)
