//===- TestModule.h - parses IR and makes tensors for tests -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_INTERPRETER_TESTMODULE_H
#define MOEC_UNITTESTS_INTERPRETER_TESTMODULE_H

#include "moec/Dialect/Moe/Moe.h"
#include "moec/Dialect/Plan/Plan.h"
#include "moec/Dialect/Tile/Tile.h"
#include "moec/Interpreter/Interpreter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <vector>

namespace moec::interpreter {

/// A context and a module parsed from text; a test that asks for more fails if
/// the text is wrong.
struct TestModule {
  explicit TestModule(const std::string &text);

  mlir::func::FuncOp function() {
    return *module->getOps<mlir::func::FuncOp>().begin();
  }

  /// The results of the only function; fails the test if the run fails.
  std::vector<Tensor> run(llvm::ArrayRef<TensorRef> inputs);
  /// The message of the failure that the only function gives.
  std::string failure(llvm::ArrayRef<TensorRef> inputs);

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

/// A view of a vector that outlives it; 16-bit elements are bf16.
template <typename T>
TensorRef view(std::vector<T> &values, llvm::ArrayRef<int64_t> shape) {
  TensorRef tensor;
  tensor.data = values.data();
  tensor.shape.assign(shape.begin(), shape.end());
  tensor.dtype = std::is_same_v<T, float>     ? moert::DType::F32
                 : std::is_same_v<T, int32_t> ? moert::DType::I32
                                              : moert::DType::BF16;
  return tensor;
}

template <typename T>
std::vector<T> valuesOf(const Tensor &tensor) {
  auto *begin = reinterpret_cast<const T *>(tensor.data());
  size_t count = tensor.size() / sizeof(T);
  return std::vector<T>(begin, begin + count);
}

} // namespace moec::interpreter

#endif // MOEC_UNITTESTS_INTERPRETER_TESTMODULE_H
