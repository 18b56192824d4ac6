//===- Weights.cpp - changed weights, and weights in graphs ---------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels that read weights as bound see later writes. Prepared weights are
// copies; PyTorch's version counters tell when their sources have changed.
//
//===----------------------------------------------------------------------===//

#include "Errors.h"
#include "Layer.h"

using namespace moec::python;

static PyObject *versionName = nullptr;

bool moec::python::addWeights() {
  versionName = PyUnicode_InternFromString("_version");
  return versionName != nullptr;
}

/// PyTorch's write counter of a tensor; -1 if it has none, as under
/// torch.inference_mode().
static int64_t readVersion(PyObject *tensor) {
  Ref version = Ref::take(PyObject_GetAttr(tensor, versionName));
  int64_t value = version ? PyLong_AsLongLong(version.get()) : -1;
  PyErr_Clear();
  return value;
}

void Weight::watch(PyObject *tensor) {
  if (findTensorType(tensor)->framework == Framework::Torch &&
      readVersion(tensor) >= 0)
    counted = Ref::share(tensor);
}

/// Checks that the memory that kernels will read and write still exists.
static bool checkMemory(const LayerState &state) {
  constexpr const char *lost =
      ": its storage was released or moved since it was bound; ";
  for (size_t i = 0; i < state.weights.size(); ++i)
    if (state.weights[i] &&
        (!state.isPrepared || state.operands[i].isReadByRuns) &&
        state.weights[i]->hasLostMemory())
      return fail(Kind::Value,
                  state.operands[i].text + lost + "bind the weight again");
  return !state.workspace || !state.workspace->hasLostMemory() ||
         fail(Kind::Value,
              std::string("workspace") + lost + "call use_workspace() again");
}

/// A prepared weight that was written to since; null for none.
static const Operand *findChanged(const LayerState &state) {
  for (int i : state.preparedWeights) {
    const Weight *weight = state.weights[size_t(i)].get();
    if (weight && weight->counted &&
        readVersion(weight->counted.get()) != state.versions[size_t(i)])
      return &state.operands[size_t(i)];
  }
  return nullptr;
}

bool moec::python::prepare(LayerState &state, void *stream, bool again) {
  if (!checkMemory(state))
    return false;
  const Operand *changed = state.isPrepared ? findChanged(state) : nullptr;
  if (state.isPrepared && !changed && !again)
    return true;
  moert_status *status;
  {
    Unlocked unlocked;
    status = moert_device_synchronize(state.getDevice().device, stream);
    if (!status)
      status = state.isPrepared
                   ? moert_layer_prepare_again(state.layer, nullptr)
                   : moert_layer_prepare_weights(state.layer, nullptr);
  }
  if (status && changed)
    return check(status, (changed->text + ": was written to after it was "
                                          "prepared")
                             .c_str());
  if (!check(status))
    return false;
  state.isPrepared = true;
  for (int i : state.preparedWeights) {
    const Weight *weight = state.weights[size_t(i)].get();
    if (weight && weight->counted)
      state.versions[size_t(i)] = readVersion(weight->counted.get());
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

namespace {

/// Python objects whose memory a captured run uses.
struct Kept {
  std::vector<std::shared_ptr<Weight>> weights;
  std::shared_ptr<Tensor> workspace;
};

} // namespace

static void release(void *object) {
  // The memory is freed by process exit anyway.
  if (!Py_IsInitialized())
    return;
  Held held;
  delete static_cast<Kept *>(object);
}

moert_status *moec::python::keepForGraph(LayerState &state, void *stream) {
  auto *kept = new Kept{{}, state.workspace};
  for (size_t i = 0; i < state.weights.size(); ++i)
    if (state.operands[i].isReadByRuns)
      kept->weights.push_back(state.weights[i]);
  return moert_device_retain(state.getDevice().device, stream, kept, release);
}
