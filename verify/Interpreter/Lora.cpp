//===- Lora.cpp - rows times matrices of adapters ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Formulas.h"

using namespace moert;
using llvm::ArrayRef;
using llvm::MutableArrayRef;

namespace moec::interpreter {

namespace {

/// A slot whose token has an adapter, or has none (below 0).
struct Slot {
  int64_t position, token, group, adapter;
};

} // namespace

/// Calls `body` for each position up to the last offset.
static Status forSlots(const LoraArguments &arguments,
                       llvm::function_ref<Status(const Slot &)> body) {
  auto *offsets = arguments.offsets.as<int32_t>();
  int64_t groups = arguments.offsets.numElements() - 1;
  int64_t positions = arguments.source.numElements();
  int64_t tokens = arguments.adapterIds.numElements();
  int64_t adapters = arguments.matrices.front().shape[0];
  for (int64_t group = 0; group < groups; ++group) {
    if (offsets[group] < 0 || offsets[group + 1] > positions)
      return invalidArgument("offsets of group " + std::to_string(group) +
                             " are not in 0 to " + std::to_string(positions));
    for (int64_t p = offsets[group]; p < offsets[group + 1]; ++p) {
      int64_t token = arguments.source.as<int32_t>()[p];
      if (token < 0 || token >= tokens)
        return invalidArgument("source[" + std::to_string(p) + "] is " +
                               std::to_string(token) + ", but there are " +
                               std::to_string(tokens) + " tokens");
      int64_t adapter = arguments.adapterIds.as<int32_t>()[token];
      if (Status status = body(
              {p, token, group, adapter < adapters ? adapter : int64_t(-1)});
          !status)
        return status;
    }
  }
  return Status::ok();
}

/// Row n of the adapter's matrix for the expert of a slot, times x.
static float multiplyRow(const TensorRef &matrix, const Slot &slot, int64_t n,
                         ArrayRef<float> x) {
  int64_t rows = matrix.shape[2], columns = matrix.shape[3];
  std::vector<float> row(columns);
  load(matrix,
       ((slot.adapter * matrix.shape[1] + slot.group) * rows + n) * columns,
       MutableArrayRef<float>(row));
  double sum = 0;
  for (int64_t k = 0; k < columns; ++k)
    sum += double(x[k]) * double(row[k]);
  return float(sum);
}

Status shrinkLora(const LoraArguments &arguments) {
  int64_t width = arguments.input.rowSize();
  std::vector<float> x(width);
  return forSlots(arguments, [&](const Slot &slot) {
    load(arguments.input,
         (arguments.gathers ? slot.token : slot.position) * width,
         MutableArrayRef<float>(x));
    std::vector<float> sums;
    for (const TensorRef &matrix : arguments.matrices)
      for (int64_t j = 0; j < matrix.shape[2]; ++j)
        sums.push_back(slot.adapter < 0 ? 0.0F
                                        : multiplyRow(matrix, slot, j, x));
    store(arguments.results.front(), slot.position * int64_t(sums.size()),
          sums);
    return Status::ok();
  });
}

Status expandLora(const LoraArguments &arguments) {
  int64_t width = arguments.input.rowSize();
  std::vector<float> x(width);
  return forSlots(arguments, [&](const Slot &slot) {
    load(arguments.input, slot.position * width, MutableArrayRef<float>(x));
    for (auto [i, matrix] : llvm::enumerate(arguments.matrices)) {
      int64_t columns = matrix.shape[2], rank = matrix.shape[3];
      ArrayRef<float> part = ArrayRef(x).slice(i * size_t(rank), rank);
      std::vector<float> sums(columns);
      if (slot.adapter >= 0)
        for (int64_t n = 0; n < columns; ++n)
          sums[n] = multiplyRow(matrix, slot, n, part);
      store(arguments.results[i], slot.position * columns, sums);
    }
    return Status::ok();
  });
}

} // namespace moec::interpreter
