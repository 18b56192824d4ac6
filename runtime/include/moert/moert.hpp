//===- moert.hpp - the C API for C++ ----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A wrapper of moert.h in C++17: handles that free themselves, and an Error for
// each failed call. Exceptions are neither thrown nor needed. Rules for
// threads, contexts and lifetimes are those of moert.h.
//
//   moert::capi::Package package;
//   if (moert::capi::Error error = package.open("layer.moepkg"))
//     fprintf(stderr, "%s\n", error.message());
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_MOERT_HPP
#define MOERT_MOERT_HPP

#include "moert/moert.h"

#include <memory>
#include <vector>

namespace moert::capi {

/// A failure, or none; true if the call has failed.
class [[nodiscard]] Error {
public:
  /// Takes ownership of the status.
  Error(moert_status *status) : status(status, &moert_status_free) {}

  /// Whether the call failed.
  explicit operator bool() const { return status != nullptr; }
  moert_code code() const { return moert_status_code(status.get()); }
  const char *message() const { return moert_status_message(status.get()); }

private:
  std::unique_ptr<moert_status, void (*)(moert_status *)> status;
};

/// An owning handle of the C API, null before it is made.
template <typename T, void (*Free)(T *)>
class Handle {
public:
  /// The raw handle for calls of the C API; null before it is made.
  T *get() const { return handle.get(); }
  /// Whether the handle is made.
  explicit operator bool() const { return handle != nullptr; }
  /// Frees the handle.
  void reset() { handle.reset(); }

  /// Sets the handle by `make`, a call of the C API that takes a pointer to it.
  template <typename Make>
  Error set(Make make) {
    T *made = nullptr;
    Error error = make(&made);
    handle.reset(made);
    return error;
  }

protected:
  struct Deleter {
    void operator()(T *made) const { Free(made); }
  };
  std::unique_ptr<T, Deleter> handle;
};

/// A compiled layer, from a file or from memory.
class Package : public Handle<moert_package, &moert_package_free> {
public:
  Error open(const char *path) {
    return set([&](auto made) { return moert_package_open(path, made); });
  }
  Error fromMemory(const void *data, size_t size) {
    return set(
        [&](auto made) { return moert_package_from_memory(data, size, made); });
  }
  const char *spec() const { return moert_package_spec(get()); }
};

/// A GPU, or the host (moejit.hpp).
class Device : public Handle<moert_device, &moert_device_free> {
public:
  Error createCuda(int ordinal) {
    return set(
        [&](auto made) { return moert_device_create_cuda(ordinal, made); });
  }
  const char *name() const { return moert_device_name(get()); }
  Error allocate(size_t bytes, void **memory) {
    return moert_device_allocate(get(), bytes, memory);
  }
  void release(void *memory) { moert_device_release(get(), memory); }
  Error copyIn(void *to, const void *from, size_t bytes) {
    return moert_device_copy_in(get(), to, from, bytes);
  }
  Error copyOut(void *to, const void *from, size_t bytes) {
    return moert_device_copy_out(get(), to, from, bytes);
  }
  Error synchronize(void *stream) {
    return moert_device_synchronize(get(), stream);
  }
};

/// Workspace that layers share.
class Workspace : public Handle<moert_workspace, &moert_workspace_free> {
public:
  /// `bytes` per slot.
  Error create(const Device &device, int64_t bytes) {
    return set([&](auto made) {
      return moert_workspace_create(device.get(), bytes, made);
    });
  }
};

/// One rank's connection to the others.
class Communicator
    : public Handle<moert_communicator, &moert_communicator_free> {
public:
  Error fromEnvironment(const moert_communicator_options &options) {
    return set([&](auto made) {
      return moert_communicator_from_environment(&options, made);
    });
  }
  Error adoptNccl(const moert_communicator_options &options, int64_t rank,
                  int ordinal, void *ncclComm) {
    return set([&](auto made) {
      return moert_communicator_adopt_nccl(&options, rank, ordinal, ncclComm,
                                           made);
    });
  }
  /// Ranks as threads of this process: `made` has dp * tp elements afterwards,
  /// none after a failure.
  static Error createLocal(const moert_communicator_options &options,
                           const Device &device,
                           std::vector<Communicator> &made) {
    // Ranks that the call refuses need no room.
    bool isMesh = options.dp > 0 && options.tp > 0 &&
                  options.dp <= MOERT_MOST_RANKS / options.tp;
    std::vector<moert_communicator *> handles(
        isMesh ? static_cast<size_t>(options.dp * options.tp) : 1);
    Error error =
        moert_communicator_create_local(&options, device.get(), handles.data());
    made.clear();
    if (error)
      return error;
    for (moert_communicator *handle : handles)
      made.emplace_back().handle.reset(handle);
    return error;
  }
  Error check() const { return moert_communicator_check(get()); }
};

/// A layer on a device.
class Layer : public Handle<moert_layer, &moert_layer_free> {
public:
  Error create(const Package &package, const Device &device,
               bool poison = false) {
    moert_layer_options options = {sizeof(options), poison};
    return set([&](auto made) {
      return moert_layer_create(package.get(), device.get(), &options, made);
    });
  }
  Error cloneFrom(const Layer &other) {
    return set([&](auto made) { return moert_layer_clone(other.get(), made); });
  }

  int64_t maxTokens() const { return moert_layer_max_tokens(get()); }
  const char *plan() const { return moert_layer_plan(get()); }
  const char *spec() const { return moert_layer_spec(get()); }
  int numTensors() const { return moert_layer_num_tensors(get()); }
  const moert_tensor_info *tensor(int index) const {
    return moert_layer_tensor(get(), index);
  }
  int numPrepared() const { return moert_layer_num_prepared(get()); }
  const moert_tensor_info *prepared(int index) const {
    return moert_layer_prepared(get(), index);
  }

  /// `strides`, in elements, may be left out for a contiguous tensor.
  Error bind(const char *name, const char *dtype, void *data,
             const std::vector<int64_t> &shape,
             const std::vector<int64_t> &strides = {}) {
    moert_tensor tensor = {
        name,         dtype,
        data,         static_cast<int>(shape.size()),
        shape.data(), strides.empty() ? nullptr : strides.data()};
    return moert_layer_bind(get(), &tensor);
  }
  Error prepareWeights(moert_prepare_report *report = nullptr) {
    return moert_layer_prepare_weights(get(), report);
  }
  Error prepareAgain(moert_prepare_report *report = nullptr) {
    return moert_layer_prepare_again(get(), report);
  }
  Error releaseWeights() { return moert_layer_release_weights(get()); }
  Error writePrepared(const char *path,
                      const moert_prepared_options *options = nullptr) {
    return moert_layer_write_prepared(get(), path, options);
  }
  Error bindPrepared(const char *path,
                     const moert_prepared_options *options = nullptr) {
    return moert_layer_bind_prepared(get(), path, options);
  }
  Error workspaceBytes(int64_t tokens, int64_t &bytes) const {
    return moert_layer_workspace_bytes(get(), tokens, &bytes);
  }
  Error useWorkspace(const Workspace &workspace, int slot) {
    return moert_layer_use_workspace(get(), workspace.get(), slot);
  }
  Error useMicroBatches(int64_t tokens) {
    return moert_layer_use_micro_batches(get(), tokens);
  }
  Error useCommunicator(const Communicator &communicator) {
    return moert_layer_use_communicator(get(), communicator.get());
  }
  /// `loads` has one element per expert.
  Error sumLoads(const Communicator &communicator,
                 const std::vector<int64_t> &own,
                 const std::vector<int64_t> &map, std::vector<int64_t> &loads) {
    return moert_layer_sum_loads(get(), communicator.get(), own.data(),
                                 static_cast<int64_t>(own.size()), map.data(),
                                 static_cast<int64_t>(map.size()), loads.data(),
                                 static_cast<int64_t>(loads.size()));
  }
  Error run(int64_t tokens, void *stream = MOERT_LAYER_STREAM,
            void *workspace = nullptr, int64_t workspaceBytes = 0) {
    return moert_layer_run(get(), tokens, stream, workspace, workspaceBytes);
  }
  Error synchronize(void *stream = MOERT_LAYER_STREAM) {
    return moert_layer_synchronize_stream(get(), stream);
  }
};

/// A move of experts to where another map has them.
class ExpertMove : public Handle<moert_expert_move, &moert_expert_move_free> {
public:
  /// Both maps have the same size.
  Error begin(const Layer &layer, const Communicator &communicator,
              const std::vector<int64_t> &from, const std::vector<int64_t> &to,
              const std::vector<moert_tensor> &spare) {
    return set([&](auto made) {
      return moert_expert_move_begin(
          layer.get(), communicator.get(), from.data(), to.data(),
          static_cast<int64_t>(from.size()), spare.data(),
          static_cast<int>(spare.size()), made);
    });
  }
  int64_t numSteps() const { return moert_expert_move_num_steps(get()); }
  Error step() { return moert_expert_move_step(get()); }
  Error switchOver() { return moert_expert_move_switch(get()); }
};

} // namespace moert::capi

#endif // MOERT_MOERT_HPP
