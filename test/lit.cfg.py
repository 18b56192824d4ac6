"""The lit suite: IR before and after each pass, goldens and error messages."""

import os
import sys

import lit.formats

config.name = "moec"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Numeric", "models", "Inputs"]
config.test_source_root = os.path.dirname(__file__)
if config.moec_sanitize:
    # Only in the release build, because of their time: tests of whole layers with a search for kernels or long
    # simulations. Other tests cover each of their passes, commands and readers.
    config.excludes += [
        "bisect.test", "check.test", "checkpoint-names.test", "device-part.test", "dump-pipeline.test", "emit.test",
        "explain.test", "explain-ranks.test", "explain-times.test", "forced-configs.test", "independent.test",
        "jit.test", "moe-run.test", "packed-checkpoints.test", "ptx-conform.test", "ranges.test",
        "several-targets.test", "simulated.test", "strided.test", "tile-choose-kernels.test",
    ]

config.environment["PATH"] = os.pathsep.join(
    [config.moec_bin_dir, config.llvm_bin_dir, os.environ.get("PATH", "")]
)
config.environment["FILECHECK_OPTS"] = "--enable-var-scope"
for name in ("HOME", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
    if name in os.environ:
        config.environment[name] = os.environ[name]

# The tests use a separate cache.
config.environment["MOEC_CACHE_DIR"] = os.path.join(config.moec_bin_dir, "..", "test", "cache")

# For moe-run --check. (lit's own diff and cat take PYTHONPATH away from the lines that follow.)
python = os.environ.get("MOEC_PYTHON", sys.executable)
config.environment["MOEC_PYTHON"] = python
config.environment["PYTHONPATH"] = os.path.join(config.moec_source_root, "python")

config.substitutions.append(("%models", os.path.join(config.test_source_root, "models")))
config.substitutions.append(
    ("%fakecuda", os.path.join(config.moec_bin_dir, "..", "unittests", "libfakecuda.so"))
)
config.substitutions.append(("%python", python))
