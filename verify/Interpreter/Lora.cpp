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

float multiplyAdapter(const TensorRef &matrix, int64_t adapter, int64_t group,
                      int64_t n, ArrayRef<float> x) {
  int64_t rows = matrix.shape[2], columns = matrix.shape[3];
  std::vector<float> row(columns);
  load(matrix, ((adapter * matrix.shape[1] + group) * rows + n) * columns,
       MutableArrayRef<float>(row));
  double sum = 0;
  for (int64_t k = 0; k < columns; ++k)
    sum += double(x[k]) * double(row[k]);
  return float(sum);
}

/// Computes the row of a position, whose token has the adapter (-1 for none).
static void shrinkRow(const LoraShrinkArguments &arguments, int64_t position,
                      int64_t token, int64_t group, int64_t adapter) {
  int64_t width = arguments.input.rowSize();
  std::vector<float> x(width), sums;
  load(arguments.input, (arguments.gathers ? token : position) * width,
       MutableArrayRef<float>(x));
  for (const TensorRef &matrix : arguments.matrices)
    for (int64_t j = 0; j < matrix.shape[2]; ++j)
      sums.push_back(
          adapter < 0 ? 0.0F : multiplyAdapter(matrix, adapter, group, j, x));
  store(arguments.result, position * int64_t(sums.size()), sums);
  arguments.adapter.as<int32_t>()[position] = int32_t(adapter);
}

/// Calls `run(position, token, group, adapter)` for each slot; its adapter is
/// -1 for none.
template <typename ArgumentsT, typename Run>
static Status forSlots(const ArgumentsT &arguments, int64_t adapters, Run run) {
  auto *offsets = arguments.offsets.template as<int32_t>();
  int64_t groups = arguments.offsets.numElements() - 1;
  int64_t positions = arguments.source.numElements();
  int64_t tokens = arguments.adapterIds.numElements();
  for (int64_t group = 0; group < groups; ++group) {
    if (offsets[group] < 0 || offsets[group + 1] > positions)
      return invalidArgument("offsets of group " + std::to_string(group) +
                             " are not in 0 to " + std::to_string(positions));
    for (int64_t p = offsets[group]; p < offsets[group + 1]; ++p) {
      int64_t token = arguments.source.template as<int32_t>()[p];
      if (token < 0 || token >= tokens)
        return invalidArgument("source[" + std::to_string(p) + "] is " +
                               std::to_string(token) + ", but there are " +
                               std::to_string(tokens) + " tokens");
      int64_t adapter = arguments.adapterIds.template as<int32_t>()[token];
      bool isThere = adapter >= 0 && adapter < adapters;
      run(p, token, group, isThere ? adapter : -1);
    }
  }
  return Status::ok();
}

Status shrinkLora(const LoraShrinkArguments &arguments) {
  return forSlots(
      arguments, arguments.matrices.front().shape[0],
      [&](int64_t position, int64_t token, int64_t group, int64_t adapter) {
        shrinkRow(arguments, position, token, group, adapter);
      });
}

Status updateLora(const LoraUpdateArguments &arguments) {
  int64_t width = arguments.input.rowSize();
  auto updateRow = [&](int64_t position, int64_t token, int64_t group,
                       int64_t adapter) {
    std::vector<float> x(width);
    load(arguments.input, (arguments.gathers ? token : position) * width,
         MutableArrayRef<float>(x));
    for (auto [first, second, result] :
         llvm::zip(arguments.first, arguments.second, arguments.results)) {
      std::vector<float> shrunk(first.shape[2], 0), sums(second.shape[2], 0);
      if (adapter >= 0) {
        for (auto [j, sum] : llvm::enumerate(shrunk))
          sum = multiplyAdapter(first, adapter, group, int64_t(j), x);
        for (auto [n, sum] : llvm::enumerate(sums))
          sum = multiplyAdapter(second, adapter, group, int64_t(n), shrunk);
      }
      store(result, position * int64_t(sums.size()), sums);
    }
  };
  return forSlots(arguments, arguments.first.front().shape[0], updateRow);
}

} // namespace moec::interpreter
