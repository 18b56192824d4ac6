"""The GoogleTest programs, each in shards of which one runs on each core."""

import os

import lit.formats

config.name = "moec-unit"
config.test_format = lit.formats.GoogleTest(".", "Tests")
config.test_source_root = config.test_exec_root = config.moec_unittests_dir
for name, value in os.environ.items():
    if name == "HOME" or name.startswith(("MOEC_", "ASAN_", "UBSAN_", "LSAN_")):
        config.environment[name] = value
if config.moec_sanitize:
    # What ptxas makes of kernels has nothing to do with our memory, and takes several times as long there.
    config.environment["GTEST_FILTER"] = "-Nvptx/*:PtxasLimits.*:GpuFormats.FitInRegisters:Models/*"
