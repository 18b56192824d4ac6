//===- NvptxTesting.h - kernels of level tile for ptxas ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_TARGET_NVPTXTESTING_H
#define MOEC_UNITTESTS_TARGET_NVPTXTESTING_H

#include "QuantFormat.h"

#include "mlir/IR/MLIRContext.h"

#include <vector>

namespace moec::test {

/// Compiles kernels of level tile; diagnostics go to `errors`.
struct Compilation {
  Compilation(const std::string &text, const std::string &chip,
              bool assignConfig = true);

  mlir::MLIRContext context;
  std::string errors, ptx;
};

std::string memrefOf(const std::string &shape, const std::string &element);

/// A kernel with those arguments, given as `%name: type`, and one phase.
std::string kernel(const std::vector<std::string> &arguments,
                   const std::string &phase);

/// A gemm with all optional operands. `order` is that of gate and up, "" for
/// single columns. `config`: `sm90_gemm<...>`, or "" for the chosen one.
std::string gemm(const std::string &dtype, int64_t sizeK, int64_t columns,
                 bool isGrouped, const std::string &order,
                 const std::string &config = "");

/// A gemm with one or both operands quantized, block fp8 by default; an
/// unquantized one has elements of type `plain`.
std::string scaled(int64_t sizeK, int64_t columns, bool isGrouped,
                   const std::string &order, const std::string &result,
                   const Format &input = kGroup128,
                   const Format &weight = kBlock,
                   const std::string &plain = "bf16",
                   const std::string &config = "");

/// `routing`: attributes, of which the first value is that of `top_k`.
std::string topK(int64_t experts, const std::string &routing,
                 const std::string &operands = "",
                 const std::vector<std::string> &more = {});

} // namespace moec::test

#endif // MOEC_UNITTESTS_TARGET_NVPTXTESTING_H
