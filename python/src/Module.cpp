//===- Module.cpp - the module moec._core -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Device.h"
#include "Errors.h"
#include "Layer.h"
#include "moejit/moejit.h"

using namespace moec::python;

/// The library beside the module may be from another release.
static bool checkVersions() {
  struct Version {
    const char *header;
    int found, needed;
  };
  for (Version version :
       {Version{"moert.h", moert_api_version(), MOERT_API_VERSION},
        Version{"moejit.h", moejit_api_version(), MOEJIT_API_VERSION}})
    if (version.found != version.needed) {
      PyErr_Format(PyExc_ImportError,
                   "libmoec.so.1 has version %d of %s, moec needs %d; install "
                   "the library that came with this package",
                   version.found, version.header, version.needed);
      return false;
    }
  return true;
}

/// read_int(name, value) -> int.
static PyObject *readInt(PyObject *, PyObject *const *arguments,
                         Py_ssize_t count) {
  const char *name = checkCount("read_int", count, 2, 2)
                         ? getText(arguments[0], "name")
                         : nullptr;
  return name ? moec::python::readInt(arguments[1], name) : nullptr;
}

PyMODINIT_FUNC __attribute__((visibility("default"))) PyInit__core(void) {
  static PyMethodDef functions[] = {makeMethod("read_int", readInt), {}};
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                   "_core",
                                   "Compiler and runtime as Python objects, on "
                                   "which the package moec is built.",
                                   -1,
                                   functions,
                                   nullptr,
                                   nullptr,
                                   nullptr,
                                   nullptr};
  if (!checkVersions())
    return nullptr;
  Ref module = Ref::take(PyModule_Create(&definition));
  if (!module || !addErrors(module.get()) || !addDevice(module.get()) ||
      !addBuffer(module.get()) || !addLayer(module.get()) ||
      !addCommunicator(module.get()) || !addExpertMove(module.get()) ||
      !addCompiler(module.get()) || !addTorch(module.get()) ||
      PyModule_AddStringConstant(module.get(), "version", moejit_version()) < 0)
    return nullptr;
  return module.release();
}
