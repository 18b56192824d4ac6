//===- TestModule.cpp - parses IR and makes tensors for tests ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestModule.h"

#include "mlir/Parser/Parser.h"

using namespace mlir;

namespace moec::interpreter {

TestModule::TestModule(const std::string &text) {
  context.loadDialect<arith::ArithDialect, func::FuncDialect, math::MathDialect,
                      memref::MemRefDialect, moe::MoeDialect, plan::PlanDialect,
                      tile::TileDialect>();
  module = parseSourceString<ModuleOp>(text, &context);
  EXPECT_TRUE(module) << text;
}

std::vector<Tensor> TestModule::run(ArrayRef<TensorRef> inputs) {
  moert::Result<std::vector<Tensor>> results =
      interpretFunction(function(), inputs);
  EXPECT_TRUE(results.isOk()) << results.status().message();
  return results ? std::move(*results) : std::vector<Tensor>();
}

std::string TestModule::failure(ArrayRef<TensorRef> inputs) {
  moert::Result<std::vector<Tensor>> results =
      interpretFunction(function(), inputs);
  EXPECT_FALSE(results.isOk());
  return results.status().message();
}

} // namespace moec::interpreter
