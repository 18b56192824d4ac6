//===- Compiler.cpp - the Python type of the compiler ---------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Errors.h"
#include "Layer.h"
#include "Listener.h"
#include "moejit/moejit.h"

#include <memory>
#include <utility>
#include <vector>

using namespace moec::python;

namespace {

struct CompilerState {
  explicit CompilerState(PyObject *message) : listener(message) {}
  CompilerState(const CompilerState &) = delete;
  CompilerState &operator=(const CompilerState &) = delete;
  ~CompilerState() { moejit_compiler_free(compiler); }

  moejit_compiler *compiler = nullptr;
  Listener listener;
};

/// Memory that the library has allocated.
struct Free {
  void operator()(void *memory) const { moejit_free(memory); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

struct CompilerObject {
  PyObject base;
  CompilerState *state;
};

/// A moejit_source and its storage. Made from the tuple (path, text or None,
/// max_tokens, num_experts, entry or None, num_valid_tokens, layer or None,
/// parallel in JSON or None, tuple of ignored fields, batch_invariant,
/// round_weights, part or None).
class Source {
public:
  bool read(PyObject *tuple);
  const moejit_source *get() const { return &source; }

private:
  moejit_source source = {};
  int64_t layer = 0;
  std::vector<const char *> ignoredFields;
};

} // namespace

static PyTypeObject *compilerType = nullptr;

static CompilerState &getCompilerState(PyObject *self) {
  return *reinterpret_cast<CompilerObject *>(self)->state;
}

bool Source::read(PyObject *tuple) {
  long long maxTokens, numExperts;
  PyObject *layerObject, *ignored;
  Py_ssize_t size = 0;
  const char *text = nullptr;
  source.size = sizeof(source);
  if (!PyTuple_Check(tuple))
    return fail(Kind::Type, "source: a tuple expected");
  if (!PyArg_ParseTuple(
          tuple, "sz#LLzpOzO!ppz:source", &source.path, &text, &size,
          &maxTokens, &numExperts, &source.entry, &source.num_valid_tokens,
          &layerObject, &source.parallel, &PyTuple_Type, &ignored,
          &source.batch_invariant, &source.round_weights, &source.part))
    return false;
  for (Py_ssize_t i = 0; i < PyTuple_Size(ignored); ++i) {
    ignoredFields.push_back(
        getText(PyTuple_GetItem(ignored, i), "ignore_fields"));
    if (!ignoredFields.back())
      return false;
  }
  source.ignored_fields = ignoredFields.data();
  source.num_ignored_fields = ignoredFields.size();
  source.text = text;
  source.text_bytes = size_t(size);
  source.max_tokens = maxTokens;
  source.num_experts = numExperts;
  if (layerObject != Py_None) {
    if (!getInt(layerObject, "layer", 0, INT32_MAX, layer))
      return false;
    source.layer = &layer;
  }
  return true;
}

/// Compiler(message, target, device_part, cache_directory, cache, cache_bytes,
/// threads, ptxas, use_ptxas, configs).
static PyObject *makeCompiler(PyTypeObject *type, PyObject *arguments,
                              PyObject *) {
  moejit_options options = {};
  PyObject *message, *configs;
  int cache, usePtxas;
  unsigned long long bytes;
  options.size = sizeof(options);
  if (!PyArg_ParseTuple(
          arguments, "OzzzpKIzpO!:Compiler", &message, &options.target,
          &options.device_part, &options.cache_directory, &cache, &bytes,
          &options.threads, &options.ptxas, &usePtxas, &PyTuple_Type, &configs))
    return nullptr;
  options.cache_bytes = bytes;
  options.no_cache = !cache;
  options.no_ptxas = !usePtxas;
  std::vector<const char *> texts;
  for (Py_ssize_t i = 0; i < PyTuple_Size(configs); ++i) {
    texts.push_back(getText(PyTuple_GetItem(configs, i), "configs"));
    if (!texts.back())
      return nullptr;
  }
  options.configs = texts.data();
  options.num_configs = texts.size();
  auto state = std::make_unique<CompilerState>(message);
  options.message = Listener::tell;
  options.message_user = &state->listener;
  moert_status *status;
  {
    Unlocked unlocked;
    status = moejit_compiler_create(&options, &state->compiler);
  }
  if (!state->listener.check(status))
    return nullptr;
  auto *self = allocate<CompilerObject>(type);
  if (self)
    self->state = state.release();
  return reinterpret_cast<PyObject *>(self);
}

static void freeCompiler(PyObject *self) {
  delete reinterpret_cast<CompilerObject *>(self)->state;
  deallocate(self);
}

/// compile(source) -> (bytes of a package, from the cache, seconds).
static PyObject *compile(PyObject *self, PyObject *tuple) {
  CompilerState &state = getCompilerState(self);
  Source source;
  if (!source.read(tuple))
    return nullptr;
  void *data = nullptr;
  size_t size = 0;
  moejit_report report = {};
  moert_status *status;
  {
    Unlocked unlocked;
    status =
        moejit_compile(state.compiler, source.get(), &data, &size, &report);
  }
  Owned<void> owned(data);
  if (!state.listener.check(status))
    return nullptr;
  return Py_BuildValue("(y#Od)", static_cast<const char *>(data),
                       Py_ssize_t(size), report.from_cache ? Py_True : Py_False,
                       report.seconds);
}

/// Lets MOEC_VERIFY decide which runs are compared; frees the layer if that is
/// wrong.
static moert_status *verifyByEnvironment(moert_layer *&layer) {
  moert_status *status = moejit_layer_verify(layer, nullptr);
  if (status)
    moert_layer_free(std::exchange(layer, nullptr));
  return status;
}

/// load(class, source, device) -> (layer, from the cache, seconds).
static PyObject *load(PyObject *self, PyObject *const *arguments,
                      Py_ssize_t count) {
  CompilerState &state = getCompilerState(self);
  Source source;
  if (!checkCount("load", count, 3, 3) || !source.read(arguments[1]))
    return nullptr;
  DeviceObject *device = getDevice(arguments[2]);
  if (!device)
    return nullptr;
  moert_layer *layer = nullptr;
  moejit_report report = {};
  moert_status *status;
  {
    Unlocked unlocked;
    status = moejit_load_layer(state.compiler, source.get(), device->device,
                               nullptr, &layer, &report);
    if (!status)
      status = verifyByEnvironment(layer);
  }
  if (!state.listener.check(status)) {
    moert_layer_free(layer);
    return nullptr;
  }
  Ref made = Ref::take(makeLayer(arguments[0], layer, device));
  if (!made)
    return nullptr;
  return Py_BuildValue("(OOd)", made.get(),
                       report.from_cache ? Py_True : Py_False, report.seconds);
}

/// print(source, device or None, form) -> text.
static PyObject *print(PyObject *self, PyObject *const *arguments,
                       Py_ssize_t count) {
  CompilerState &state = getCompilerState(self);
  Source source;
  int64_t form = 0;
  if (!checkCount("print", count, 3, 3) || !source.read(arguments[0]) ||
      !getInt(arguments[2], "form", 0, MOEJIT_FULL_EXPLANATION, form))
    return nullptr;
  DeviceObject *device = nullptr;
  if (arguments[1] != Py_None && !(device = getDevice(arguments[1])))
    return nullptr;
  char *text = nullptr;
  moert_status *status;
  {
    Unlocked unlocked;
    status = moejit_print(state.compiler, source.get(),
                          device ? device->device : nullptr,
                          static_cast<moejit_form>(form), &text);
  }
  Owned<char> owned(text);
  return state.listener.check(status) ? PyUnicode_FromString(text) : nullptr;
}

/// print_report(source, device or None, results in JSON or None) -> text.
static PyObject *printReport(PyObject *self, PyObject *const *arguments,
                             Py_ssize_t count) {
  CompilerState &state = getCompilerState(self);
  Source source;
  if (!checkCount("print_report", count, 3, 3) || !source.read(arguments[0]))
    return nullptr;
  DeviceObject *device = nullptr;
  if (arguments[1] != Py_None && !(device = getDevice(arguments[1])))
    return nullptr;
  char *results = nullptr;
  if (arguments[2] != Py_None &&
      PyBytes_AsStringAndSize(arguments[2], &results, nullptr) < 0)
    return nullptr;
  char *page = nullptr;
  moert_status *status;
  {
    Unlocked unlocked;
    status =
        moejit_print_report(state.compiler, source.get(),
                            device ? device->device : nullptr, results, &page);
  }
  Owned<char> owned(page);
  return state.listener.check(status) ? PyUnicode_FromString(page) : nullptr;
}

/// expect(source, device or None, tuple of token counts) -> JSON.
static PyObject *expect(PyObject *self, PyObject *const *arguments,
                        Py_ssize_t count) {
  CompilerState &state = getCompilerState(self);
  Source source;
  if (!checkCount("expect", count, 3, 3) || !source.read(arguments[0]))
    return nullptr;
  DeviceObject *device = nullptr;
  if (arguments[1] != Py_None && !(device = getDevice(arguments[1])))
    return nullptr;
  if (!PyTuple_Check(arguments[2]))
    return fail(Kind::Type, "tokens: a tuple expected"), nullptr;
  std::vector<int64_t> tokens(size_t(PyTuple_Size(arguments[2])));
  for (size_t i = 0; i < tokens.size(); ++i)
    if (!getInt(PyTuple_GetItem(arguments[2], Py_ssize_t(i)), "tokens", 1,
                INT32_MAX, tokens[i]))
      return nullptr;
  char *json = nullptr;
  moert_status *status;
  {
    Unlocked unlocked;
    status = moejit_print_expectation(state.compiler, source.get(),
                                      device ? device->device : nullptr,
                                      tokens.data(), tokens.size(), &json);
  }
  Owned<char> owned(json);
  return state.listener.check(status) ? PyUnicode_FromString(json) : nullptr;
}

/// find_layers(source) -> tuple of the decoder layers with experts.
static PyObject *findLayers(PyObject *, PyObject *const *arguments,
                            Py_ssize_t count) {
  Source source;
  if (!checkCount("find_layers", count, 1, 1) || !source.read(arguments[0]))
    return nullptr;
  int64_t *layers = nullptr;
  size_t numLayers = 0;
  moert_status *status;
  {
    Unlocked unlocked;
    status = moejit_find_layers(source.get(), &layers, &numLayers);
  }
  if (!check(status))
    return nullptr;
  Ref answer = Ref::take(PyTuple_New(Py_ssize_t(numLayers)));
  for (size_t i = 0; answer && i < numLayers; ++i) {
    PyObject *layer = PyLong_FromLongLong(layers[i]);
    if (!layer || PyTuple_SetItem(answer.get(), Py_ssize_t(i), layer) < 0)
      answer = Ref();
  }
  moejit_free(layers);
  return answer.release();
}

/// measure_weights(source) -> bytes of the layers with experts, and of all.
static PyObject *measureWeights(PyObject *, PyObject *const *arguments,
                                Py_ssize_t count) {
  Source source;
  if (!checkCount("measure_weights", count, 1, 1) || !source.read(arguments[0]))
    return nullptr;
  int64_t ofLayers = 0, ofAll = 0;
  moert_status *status;
  {
    Unlocked unlocked;
    status = moejit_measure_weights(source.get(), &ofLayers, &ofAll);
  }
  if (!check(status))
    return nullptr;
  return Py_BuildValue("LL", static_cast<long long>(ofLayers),
                       static_cast<long long>(ofAll));
}

/// load_package(class, bytes, device) -> layer.
static PyObject *loadPackage(PyObject *, PyObject *const *arguments,
                             Py_ssize_t count) {
  char *data = nullptr;
  Py_ssize_t size = 0;
  if (!checkCount("load_package", count, 3, 3) ||
      PyBytes_AsStringAndSize(arguments[1], &data, &size) < 0)
    return nullptr;
  DeviceObject *device = getDevice(arguments[2]);
  if (!device)
    return nullptr;
  moert_layer *layer = nullptr;
  moert_status *status;
  {
    Unlocked unlocked;
    moert_package *package = nullptr;
    status = moert_package_from_memory(data, size_t(size), &package);
    if (!status)
      status = moert_layer_create(package, device->device, nullptr, &layer);
    if (!status)
      status = verifyByEnvironment(layer);
    moert_package_free(package);
  }
  if (!check(status, "package"))
    return nullptr;
  return makeLayer(arguments[0], layer, device);
}

bool moec::python::addCompiler(PyObject *module) {
  static PyMethodDef functions[] = {
      makeMethod("load_package", loadPackage),
      makeMethod("find_layers", findLayers),
      makeMethod("measure_weights", measureWeights),
      {}};
  static PyMethodDef methods[] = {{"compile", compile, METH_O, nullptr},
                                  makeMethod("load", load),
                                  makeMethod("print", print),
                                  makeMethod("print_report", printReport),
                                  makeMethod("expect", expect),
                                  {}};
  static PyType_Slot slots[] = {
      {Py_tp_new, reinterpret_cast<void *>(makeCompiler)},
      {Py_tp_dealloc, reinterpret_cast<void *>(freeCompiler)},
      {Py_tp_methods, methods},
      {}};
  static PyType_Spec spec = {"moec._core.Compiler", sizeof(CompilerObject), 0,
                             Py_TPFLAGS_DEFAULT, slots};
  compilerType = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&spec));
  return compilerType && PyModule_AddType(module, compilerType) == 0 &&
         PyModule_AddFunctions(module, functions) == 0;
}
