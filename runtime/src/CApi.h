//===- CApi.h - handles of the C API ----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_CAPI_H
#define MOERT_SRC_CAPI_H

#include "RunWatch.h"
#include "moert/Executor.h"
#include "moert/Package.h"
#include "moert/moert.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace moert {
/// Most dimensions of a caller's tensor.
constexpr int kMaxDimensions = 8;
} // namespace moert

struct moert_status {
  moert::Status status;
};

struct moert_package {
  moert::Package package;
};

struct moert_device {
  std::unique_ptr<moert::Device> device;
  /// Guards `memory`.
  std::mutex mutex;
  std::map<void *, std::unique_ptr<moert::Buffer>> memory;
};

struct moert_workspace {
  std::shared_ptr<moert::SharedWorkspace> workspace;
};

struct moert_communicator {
  std::shared_ptr<moert::Communicator> communicator;
};

struct moert_layer {
  moert_layer(moert::Device &device, std::unique_ptr<moert::Executor> executor,
              std::string spec, std::string modelType);

  moert::Device &device;
  std::unique_ptr<moert::Executor> executor;
  /// Copies of the package's fields.
  const std::string spec, modelType;
  const std::string planText;
  /// The layer's index in its model, if its description has one.
  std::optional<int64_t> decoderLayer;
  /// Index of the decoder layer whose weights were loaded, if from a model.
  std::optional<int64_t> loadedLayer;
  /// The compiler's description of a layer that was compiled in this process,
  /// a moec::LayerSpec; it knows how checkpoints store the weights.
  std::shared_ptr<const void> description;
  /// Memory of loaded weights by name; shared with clones.
  std::map<std::string, std::shared_ptr<moert::Buffer>> loaded;
  /// The compiler's map from weights to the prefixes of their names in the
  /// checkpoint that they were loaded from.
  std::shared_ptr<const void> prefixes;
  /// The compiler's index of the names of weights; null until it is needed.
  std::shared_ptr<const void> names;
  /// The compiler's state while weights arrive in several calls; null if they
  /// do not.
  std::shared_ptr<void> arriving;
  std::vector<moert_tensor_info> infos;
  /// Prepared tensors that may be bound.
  std::vector<moert_tensor_info> preparedInfos;

  /// Token count of a group of ranks with `tokens` tokens each, as the executor
  /// counts them. On overflow a count above every layer's maximum.
  int64_t getGroupTokens(int64_t tokens) const;

  /// Memory of the shapes of `infos` and `preparedInfos`.
  std::vector<std::vector<int64_t>> shapes;
  /// The stream of the latest run, wrapped.
  std::unique_ptr<moert::Stream> stream;
  void *native = MOERT_LAYER_STREAM;
  /// Null if nothing looks at runs. Destroyed first, since it reads the rest.
  std::unique_ptr<moert::RunWatch> watch;
};

/// Reads a caller's tensor, whose name and dtype are not null.
moert::Result<moert::TensorView> readTensor(const moert_tensor &tensor);

/// Conversions of results to return values of the C API.
namespace moert::answers {

inline moert_status *answer(Status status) {
  return status ? nullptr : new moert_status{std::move(status)};
}

inline moert_status *missing(const char *call, const char *argument) {
  return answer(invalidArgument(std::string(call) + ": the argument '" +
                                argument + "' is NULL"));
}

} // namespace moert::answers

/// Returns an error if `argument` is null.
#define NEEDED(argument)                                                       \
  if (!(argument))                                                             \
  return missing(__func__, #argument)

#endif // MOERT_SRC_CAPI_H
