# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a call with tensors of PyTorch takes that does nothing, by what takes them in.

    pip install torch nanobind apache-tvm-ffi
    python benchmarks/binding_overhead.py [--library=build-release/lib] [--blocks=4000] [--output=FILE.json]

A function gets five tensors on the CPU, as many as a layer of entry "ids" with an output, and answers the sum of their
addresses, so that none is left out. `moec` is made of python/src/Tensor.cpp, the code of moec._core, `nanobind` of
nb::ndarray, `tvm_ffi` of TensorView; `python` is a function of Python that takes no address. Each is built here. Blocks
of calls alternate between them; of each the best block counts, in nanoseconds per call, since others may run on the
machine.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import platform
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nanobind
import torch
import tvm_ffi

ROOT = Path(__file__).resolve().parents[1]
#: Calls per block: few, so that some blocks are not interrupted.
BLOCK = 50

MOEC = """
#include "Errors.h"
#include "Tensor.h"
using namespace moec::python;
static PyObject *sum(PyObject *, PyObject *const *arguments, Py_ssize_t count) {
  Tensor tensors[5];
  size_t total = 0;
  for (Py_ssize_t i = 0; i < count && i < 5; ++i) {
    if (!tensors[i].read(arguments[i], Asking{"argument"}))
      return nullptr;
    total += reinterpret_cast<size_t>(tensors[i].data());
  }
  return PyLong_FromSize_t(total);
}
static PyMethodDef methods[] = {
    {"sum", reinterpret_cast<PyCFunction>(sum), METH_FASTCALL, nullptr}, {}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "sum_moec", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_sum_moec() {
  PyObject *module = PyModule_Create(&definition);
  return addErrors(module) ? module : nullptr;
}
"""
NANOBIND = """
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
namespace nb = nanobind;
using Any = nb::ndarray<>;
NB_MODULE(sum_nanobind, module) {
  module.def("sum", [](const Any &a, const Any &b, const Any &c, const Any &d, const Any &e) {
    size_t total = 0;
    for (const Any *each : {&a, &b, &c, &d, &e})
      total += reinterpret_cast<size_t>(each->data());
    return total;
  });
}
"""
TVM_FFI = """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
using tvm::ffi::TensorView;
static int64_t Sum(TensorView a, TensorView b, TensorView c, TensorView d, TensorView e) {
  int64_t total = 0;
  for (const TensorView *each : {&a, &b, &c, &d, &e})
    total += reinterpret_cast<int64_t>(each->data_ptr());
  return total;
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(sum, Sum);
"""


def build(folder: Path, name: str, text: str, *flags: Any) -> Path:
    source, made = folder / f"{name}.cpp", folder / f"{name}.so"
    source.write_text(text)
    subprocess.run(["c++", "-std=c++17", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", source, "-o", made,
                    f"-I{sysconfig.get_path('include')}", *map(str, flags)], check=True)
    return made


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_rows(folder: Path, library: Path) -> dict[str, Callable[..., Any]]:
    sources = [ROOT / "python/src" / f"{name}.cpp" for name in ("Tensor", "TensorType", "Errors", "Python")]
    moec = build(folder, "sum_moec", MOEC, *sources, f"-I{ROOT / 'python/src'}", f"-I{ROOT / 'runtime/include'}",
                 f"-I{ROOT / 'include'}", "-DPy_LIMITED_API=0x030A0000", library / "libmoec.so.1",
                 f"-Wl,-rpath,{library}")
    nano = build(folder, "sum_nanobind", NANOBIND, Path(nanobind.source_dir()) / "nb_combined.cpp",
                 f"-I{nanobind.include_dir()}", f"-I{Path(nanobind.source_dir()).parent / 'ext/robin_map/include'}",
                 "-fno-strict-aliasing")
    paths = tvm_ffi.libinfo
    tvm = build(folder, "sum_tvm_ffi", TVM_FFI, f"-I{paths.find_include_path()}",
                f"-I{paths.find_dlpack_include_path()}", paths.find_libtvm_ffi())
    return {
        "python": lambda a, b, c, d, e: 0,
        "moec": load(moec).sum,
        "nanobind": load(nano).sum,
        "tvm_ffi": tvm_ffi.load_module(str(tvm)).sum,
    }


def measure(rows: dict[str, Callable[..., Any]], blocks: int) -> dict[str, float]:
    tensors = [torch.zeros(4, 64), torch.zeros(4, 2, dtype=torch.int32), torch.zeros(4, 2), torch.zeros(4, 64),
               torch.zeros(1, dtype=torch.int32)]
    wanted = sum(each.data_ptr() for each in tensors)
    assert all(row(*tensors) == wanted for name, row in rows.items() if name != "python")
    best = dict.fromkeys(rows, float("inf"))
    a, b, c, d, e = tensors
    for _ in range(blocks):
        for name, row in rows.items():
            begin = time.perf_counter_ns()
            for _ in range(BLOCK):
                row(a, b, c, d, e)
            best[name] = min(best[name], (time.perf_counter_ns() - begin) / BLOCK)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, default=ROOT / "build-release/lib",
                        help="the folder of libmoec.so.1, whose statuses messages come from")
    parser.add_argument("--blocks", type=int, default=4000)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        best = measure(make_rows(Path(folder), options.library.resolve()), options.blocks)
    result = {
        "benchmark": "binding_overhead",
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "nanobind": nanobind.__version__,
        "tvm_ffi": tvm_ffi.__version__,
        "tensors": 5,
        "best_block_ns": {name: round(each, 1) for name, each in best.items()},
    }
    text = json.dumps(result, indent=1) + "\n"
    print(text, end="")
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
