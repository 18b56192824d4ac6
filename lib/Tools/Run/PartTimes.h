//===- PartTimes.h - times of a layer and its exchange ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_PARTTIMES_H
#define MOEC_LIB_TOOLS_RUN_PARTTIMES_H

#include "RunLevel.h"
#include "moert/PeerCommunicator.h"
#include "llvm/Support/raw_ostream.h"

namespace moec {

/// A rank's communicator that can record the collectives of a run, to repeat
/// them, and skip them.
class RecordingCommunicator : public moert::Communicator {
public:
  /// A collective with a copy of its parts.
  struct Recorded {
    moert::Collective collective;
    std::vector<moert::CollectivePart> parts;
  };
  enum class Mode {
    /// Forwards collectives.
    Pass,
    /// Forwards and records collectives.
    Record,
    /// Skips collectives; must be set on all ranks alike.
    Skip
  };

  explicit RecordingCommunicator(std::unique_ptr<moert::Communicator> inner)
      : inner(std::move(inner)) {}
  explicit RecordingCommunicator(std::unique_ptr<moert::NcclCommunicator> inner)
      : nccl(inner.get()), inner(std::move(inner)) {}
  explicit RecordingCommunicator(std::unique_ptr<moert::PeerCommunicator> inner)
      : peer(inner.get()), inner(std::move(inner)) {}

  void setMode(Mode to) {
    mode = to;
    if (to == Mode::Record)
      recorded.clear();
  }
  /// The collectives of the latest run in mode `Record`.
  const std::vector<Recorded> &getRecorded() const { return recorded; }
  /// Enqueues a recorded collective on the stream.
  moert::Status repeat(moert::Stream &stream, const Recorded &from);
  /// Null if NCCL does not move the rows.
  moert::NcclCommunicator *getNccl() const { return nccl; }
  /// Null if ranks do not write to each other's memory.
  moert::PeerCommunicator *getPeer() const { return peer; }

  const moert::Mesh &mesh() const override { return inner->mesh(); }
  int64_t rank() const override { return inner->rank(); }
  moert::Status agree(const std::string &subject,
                      const std::string &what) override {
    return inner->agree(subject, what);
  }
  moert::Status reserve(moert::MeshAxis axis, int64_t bytes,
                        int64_t resultBytes) override {
    return inner->reserve(axis, bytes, resultBytes);
  }
  moert::Status
  reservePacked(moert::MeshAxis axis,
                const std::vector<moert::PackedSizes> &sizes) override {
    return inner->reservePacked(axis, sizes);
  }
  int64_t leastCopiedBytes() const override {
    return inner->leastCopiedBytes();
  }
  void *results(moert::MeshAxis axis) override { return inner->results(axis); }
  /// A skipped collective makes no sums and quantizes nothing.
  bool runsKernels() const override {
    return mode != Mode::Skip && inner->runsKernels();
  }
  moert::Status run(moert::Stream &stream,
                    const moert::Collective &collective) override;
  moert::Status transfer(moert::Stream &stream,
                         const moert::Transfer &transfer) override {
    return inner->transfer(stream, transfer);
  }
  moert::Status synchronize(moert::Stream &stream) override {
    return inner->synchronize(stream);
  }
  moert::Status check() override { return inner->check(); }
  void abort(const std::string &reason) override { inner->abort(reason); }

private:
  moert::NcclCommunicator *nccl = nullptr;
  moert::PeerCommunicator *peer = nullptr;
  std::unique_ptr<moert::Communicator> inner;
  Mode mode = Mode::Pass;
  std::vector<Recorded> recorded;
};

/// Times a layer that has run once, at each token count of `options.timesAt`;
/// with a recorder also its parts:
///
///   layer           runs of the layer
///   compute         runs without collectives, on rows that an earlier run has
///                   moved
///   sums            the sums that collectives do themselves, as launches of
///                   their own; included in `compute`
///   quantization    likewise the quantization
///   exchange        its collectives in sequence, without launches
///   dispatch        the collectives that gather rows
///   combine         the collectives that sum rows
///   gather bytes    with NCCL: a gather of as many bytes as `dispatch`
///   blocks dispatch with NCCL: ncclSend and ncclRecv of the rows that have an
///                   expert on the receiving rank, on average
///   blocks combine  the same for the rows of `combine`
///   copy dispatch   through the memory of other ranks: copies by copy engines
///                   of the bytes that each rank gives to each rank, itself
///                   included, in `dispatch`, as one copy each
///   copy combine    the same for `combine`
///
/// All ranks must call this. All parts but the first two are timed ten at a
/// time, in one graph if graphs are used. The median of `sums` is subtracted
/// from `exchange` and `combine`, and that of `quantization` from `exchange`
/// and `dispatch`, so that `compute` plus `exchange` counts the layer's work
/// once.
class PartTimer {
public:
  PartTimer(moert::Device &device, moert::Executor &executor,
            moert::Stream &stream, const RunOptions &options)
      : device(device), executor(executor), stream(stream), options(options) {}

  moert::Result<std::vector<PartTimes>> run();

private:
  using Run = llvm::function_ref<moert::Status()>;

  moert::Status timeParts();
  moert::Status timeExchange();
  /// Times launches whose work kernels of collectives do, under the name
  /// `part`; returns the median in seconds, 0 if there are none.
  moert::Result<double> timeReplaced(moert::Replaced made,
                                     llvm::StringRef part);
  void takeOff(double replaced);
  moert::Status timeRecorded(llvm::StringRef part,
                             llvm::ArrayRef<moert::CollectiveKind> kinds);
  moert::Status timeBytes(llvm::StringRef part, moert::CollectiveKind kind);
  moert::Status timeBlocks(llvm::StringRef part, moert::CollectiveKind kind);
  moert::Status timeCopies(llvm::StringRef part,
                           llvm::ArrayRef<moert::CollectiveKind> kinds);
  /// Bytes of a rank in the recorded collectives of a kind over dp.
  int64_t countBytes(moert::CollectiveKind kind) const;
  moert::Status runLayer();
  moert::Status time(llvm::StringRef part, int64_t perSample, Run once);
  moert::Status warmUp(Run once);

  moert::Device &device;
  moert::Executor &executor;
  moert::Stream &stream;
  const RunOptions &options;
  int64_t tokens = 0;
  std::vector<PartTimes> times;
};

/// Updates each entry of `slowest` with the larger of both times.
void keepSlowest(std::vector<PartTimes> &slowest,
                 llvm::ArrayRef<PartTimes> others);

/// Prints a line for each part: tokens, name, number of times, median, p99.
void printPartTimes(llvm::ArrayRef<PartTimes> times, llvm::raw_ostream &os);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_PARTTIMES_H
