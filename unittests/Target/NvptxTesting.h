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

/// Compiles kernels of level tile; the text of what went wrong is in `errors`.
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

/// A product with everything that a product can have; `order` is that of gate
/// and up, "" for single columns. `config`: as `sm90_contract<...>`, or "" for
/// that of choice.
std::string contract(const std::string &dtype, int64_t depth, int64_t columns,
                     bool isGrouped, const std::string &order,
                     const std::string &config = "");

/// A product of which one or both operands are quantized, block fp8 unless
/// others are given; one that is not has elements of type `plain`.
std::string scaled(int64_t depth, int64_t columns, bool isGrouped,
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
