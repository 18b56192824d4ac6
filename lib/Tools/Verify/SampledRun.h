//===- SampledRun.h - rows of a run, and what they should be ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_VERIFY_SAMPLEDRUN_H
#define MOEC_LIB_TOOLS_VERIFY_SAMPLEDRUN_H

#include "moec/Reference/Layer.h"
#include "moert/Executor.h"

namespace moec {

/// A copy of an input or of the output: sampled rows, or all of it.
struct SampledTensor {
  moert::DType dtype = moert::DType::F32;
  /// Without the dimension of tokens if `isInRows`.
  std::vector<int64_t> shape;
  bool isInRows = false;
  /// The number in a row, or in all of it.
  int64_t numElements = 1;
  std::vector<uint8_t> bytes;

  /// The bytes of the sampled row at `index`.
  const uint8_t *row(size_t index) const;
};

/// The data that a run read and wrote, for some of its rows.
struct SampledRun {
  /// From 1, among the runs of the layer.
  int64_t number = 0;
  int64_t tokens = 0;
  std::vector<int64_t> rows;
  std::map<std::string, SampledTensor> inputs;
  SampledTensor output;
};

/// Copies the rows of the executor's latest run, which must be complete.
moert::Result<SampledRun> sampleRun(const moert::Executor &executor,
                                    moert::Device &device, int64_t tokens,
                                    std::vector<int64_t> rows);

/// A bound weight, in the checkpoint's form. Memory of a GPU is copied when it
/// is read, an expert at a time.
class BoundWeight : public reference::Source {
public:
  /// `isOfExperts`: the first dimension counts experts.
  BoundWeight(moert::Device &device, const moert::TensorView &view,
              bool isOfExperts);

  void read(int64_t first, int64_t count, double *to) const override;
  /// The bytes of a slice of the first dimension, or of all of it.
  moert::Result<const std::vector<uint8_t> *> getSlice(int64_t index) const;

  const moert::TensorView &getView() const { return view; }
  bool isOfExperts() const { return isSliced; }
  /// The first failure to copy, after which values are NaN.
  moert::Status getStatus() const;

private:
  moert::Status copy(int64_t index, std::vector<uint8_t> &bytes) const;

  moert::Device &device;
  moert::TensorView view;
  bool isSliced;
  /// Set if the host reads the memory as it is.
  std::unique_ptr<reference::Source> direct;
  int64_t sliceElements = 1;
  mutable std::mutex mutex;
  mutable std::map<int64_t, std::vector<uint8_t>> slices;
  mutable moert::Status status = moert::Status::ok();
};

/// A sampled row against the reference.
struct CheckedRow {
  int64_t row = 0;
  std::vector<int64_t> ids;
  std::vector<double> weights;
  /// The index of the weights of each slot; -1 for none.
  std::vector<int64_t> places;
  reference::Matrix expected, found;
  double error = 0, bound = 0;
  /// Empty if the row is right, or if its experts depend on a near tie, which
  /// kernels may decide otherwise.
  std::vector<std::string> failures;
};

using BoundWeights = std::map<std::string, std::shared_ptr<BoundWeight>>;

/// Evaluates the sampled rows in float64 over the weights that are bound, on
/// this number of threads.
moert::Result<std::vector<CheckedRow>> checkRows(const LayerSpec &spec,
                                                 const SampledRun &run,
                                                 const BoundWeights &weights,
                                                 int threads);

/// All weights of an executor.
moert::Result<BoundWeights> findWeights(const moert::Executor &executor,
                                        moert::Device &device);

} // namespace moec

#endif // MOEC_LIB_TOOLS_VERIFY_SAMPLEDRUN_H
