//===- Tensors.h - tensors and calls of the reference -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_REFERENCE_TENSORS_H
#define MOEC_REFERENCE_TENSORS_H

#include "moec/Generator/Generator.h"
#include "moec/Import/LayerSpec.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace moec::reference {

/// The elements of a tensor as doubles, in row-major order. `read` is
/// thread-safe.
class Source {
public:
  virtual ~Source();
  virtual void read(int64_t first, int64_t count, double *to) const = 0;
};

/// Elements in memory, which must outlive the source: F32, BF16, F16, F8E4M3,
/// F8E8M0, I32, I8 or U8.
std::unique_ptr<Source> makeSource(const void *data, moert::DType dtype);
/// Generated elements, which are not in memory.
std::unique_ptr<Source> makeSource(const RandomTensor &tensor);

/// A call of a layer: its inputs and weights by canonical name.
struct Call {
  LayerSpec spec;
  int64_t tokens = 0;
  std::map<std::string, std::unique_ptr<Source>> tensors;
  /// Number of threads; 0: all cores.
  int threads = 0;

  bool has(const std::string &name) const { return tensors.count(name) > 0; }
  const Source &get(const std::string &name) const { return *tensors.at(name); }
  std::vector<double> read(const std::string &name, int64_t first,
                           int64_t count) const;
  /// The number of valid tokens by `num_valid_tokens`.
  int64_t getNumValid() const;
  /// Whether each token is valid, by that number and the padding mask.
  std::vector<bool> getPresent() const;
};

moert::DType getRuntimeType(DType dtype);

/// Rounds once, to nearest even.
double roundTo(double value, DType dtype);

/// Calls `body` with 0 .. count-1 from several threads.
void parallelFor(int threads, int64_t count,
                 const std::function<void(int64_t)> &body);

/// A row-major matrix, zero-padded to whole vectors in both dimensions for
/// matrix products.
class Matrix {
public:
  Matrix() = default;
  Matrix(int64_t rows, int64_t columns);

  int64_t getNumRows() const { return rows; }
  int64_t getNumColumns() const { return columns; }
  int64_t getStride() const { return stride; }
  double *row(int64_t i) { return values.data() + i * stride; }
  const double *row(int64_t i) const { return values.data() + i * stride; }

private:
  int64_t rows = 0, columns = 0, stride = 0;
  std::vector<double> values;
};

} // namespace moec::reference

#endif // MOEC_REFERENCE_TENSORS_H
