//===- KernelHarness.h - one kernel through the JIT -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_TARGET_KERNELHARNESS_H
#define MOEC_UNITTESTS_TARGET_KERNELHARNESS_H

#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "moec/Target/CPU.h"
#include "moert/DType.h"
#include "moert/HostDevice.h"

#include <memory>
#include <string>
#include <vector>

namespace moec::test {

/// A tensor on the host that ends at an inaccessible page, so that accesses
/// past the end fault.
class Array {
public:
  Array(moert::DType dtype, std::vector<int64_t> shape);
  ~Array();
  Array(Array &&other);
  Array &operator=(Array &&) = delete;

  moert::DType getDType() const { return dtype; }
  const std::vector<int64_t> &getShape() const { return shape; }
  int64_t size() const { return count; }
  /// The type as a memref, the first dimension dynamic or not.
  std::string getType(bool dynamic = false) const;
  void *data() const { return base; }

  double get(int64_t i) const;
  double get(int64_t i, int64_t j) const { return get(i * shape.back() + j); }
  /// Rounds to nearest even.
  void set(int64_t i, double value);
  void fill(double value);
  /// Values of about unit size, reproducible by seed.
  void randomize(unsigned seed);
  /// The bits that `set` would store.
  static double round(moert::DType dtype, double value);

private:
  moert::DType dtype;
  std::vector<int64_t> shape;
  int64_t count;
  void *mapping;
  size_t mapped;
  void *base;
};

/// IR of level tile, compiled for a CPU.
class CompiledKernels {
public:
  explicit CompiledKernels(const std::string &text,
                           const std::string &cpu = "host");

  /// Whether it compiled; the reason otherwise.
  bool isOk() const { return errors.empty(); }
  const std::string &getErrors() const { return errors; }
  std::string getAssembly();
  /// Runs `grid` CTAs of a kernel on the arrays and the token count.
  void run(const std::string &name, int64_t grid,
           const std::vector<const Array *> &arrays, int64_t tokens);

private:
  std::string cpu, errors;
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::unique_ptr<moert::Device> device;
  std::unique_ptr<moert::Module> loaded;
};

/// Compares with relative tolerance on the whole and on each element's scale.
void expectClose(const Array &actual, const std::vector<double> &expected,
                 double tolerance);

} // namespace moec::test

#endif // MOEC_UNITTESTS_TARGET_KERNELHARNESS_H
