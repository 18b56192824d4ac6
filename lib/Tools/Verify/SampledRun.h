//===- SampledRun.h - rows of a run, and what they should be ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_VERIFY_SAMPLEDRUN_H
#define MOEC_LIB_TOOLS_VERIFY_SAMPLEDRUN_H

#include "moec/Reference/Layer.h"
#include "moert/Device.h"
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

/// A run whose rows are copied to the host in two steps: on the device behind
/// the run, then from there. Nobody waits for the run itself.
class RunSample {
public:
  /// Lists the rows of the executor's latest run.
  static moert::Result<std::unique_ptr<RunSample>>
  create(const moert::Executor &executor, int64_t tokens,
         std::vector<int64_t> rows);

  /// Copies the rows at once; the run must be complete.
  moert::Status copyOut(moert::Device &device);

  const SampledRun &get() const { return run; }
  SampledRun &get() { return run; }

private:
  friend class RowStaging;

  /// Bytes of the run, and their places on the host and in a staging buffer.
  struct Piece {
    SampledTensor *to;
    size_t offset;
    const uint8_t *from;
    size_t bytes;
    size_t staged;
  };

  RunSample() = default;
  void addTensor(const moert::TensorDecl &tensor, const moert::TensorView &view,
                 SampledTensor &result);
  void addPiece(SampledTensor &to, size_t offset, const void *from,
                size_t bytes);

  SampledRun run;
  std::vector<Piece> pieces;
  size_t stagedBytes = 0;
};

/// Memory of a GPU for rows on their way to the host, kept from run to run.
class RowStaging {
public:
  explicit RowStaging(moert::Device &device) : device(device) {}

  /// Copies the rows behind the run on its stream. The host does not wait.
  moert::Status enqueue(const RunSample &sample, moert::Stream &stream);
  /// Waits for these copies, and takes the rows to the host.
  moert::Status fetch(RunSample &sample);

private:
  moert::Device &device;
  std::unique_ptr<moert::Buffer> memory;
  size_t capacity = 0;
  std::unique_ptr<moert::Event> copied;
  /// Waits for `copied` alone, not for later runs.
  std::unique_ptr<moert::Stream> waiting;
};

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
