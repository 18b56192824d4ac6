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

/// A rank's communicator that can keep what a run gives to it, to be given once
/// more, and leave it out.
class RecordingCommunicator : public moert::Communicator {
public:
  /// A collective with parts of its own.
  struct Recorded {
    moert::Collective collective;
    std::vector<moert::CollectivePart> parts;
  };
  enum class Mode {
    /// Gives collectives on.
    Pass,
    /// The same, and keeps them.
    Record,
    /// Does nothing in place of a collective, on all ranks at a time.
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
  /// Those of the latest run in mode Record.
  const std::vector<Recorded> &getRecorded() const { return recorded; }
  /// Gives a recorded one to the stream.
  moert::Status repeat(moert::Stream &stream, const Recorded &from);
  /// Null where NCCL does not move the rows.
  moert::NcclCommunicator *getNccl() const { return nccl; }
  /// Null where ranks do not write to each other's memory.
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
                const std::vector<moert::PackedRoom> &rooms) override {
    return inner->reservePacked(axis, rooms);
  }
  int64_t leastCopiedBytes() const override {
    return inner->leastCopiedBytes();
  }
  void *results(moert::MeshAxis axis) override { return inner->results(axis); }
  /// Nobody makes sums or codes in place of a collective that is left out.
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

/// Times a layer that has run once at `options.timesAt` tokens each, and where
/// it has a recorder its parts:
///
///   layer           runs of the layer
///   compute         the same without its collectives, on the rows that the run
///                   before has moved
///   sums            the launches that collectives do as part of themselves
///                   and that sum, alone; they are part of `compute`
///   codes           those that quantize
///   exchange        its collectives alone, one after the other
///   dispatch        those that gather rows
///   combine         those that sum rows
///   gather bytes    with NCCL: a gather of as many bytes as `dispatch`
///   blocks dispatch with NCCL: ncclSend and ncclRecv of the rows that have an
///                   expert on the rank that they go to, on average
///   blocks combine  the same of the rows of `combine`
///   copy dispatch   through the memory of other ranks: copies of as many bytes
///                   as each rank gives to each rank, its own too, in
///                   `dispatch`; in one piece, by copy engines
///   copy combine    the same of `combine`
///
/// All ranks call this. All but the first two are times of one in ten that
/// follow each other, with graphs in one graph. What `sums` takes, the median,
/// is taken off `exchange` and `combine`, and what `codes` takes off `exchange`
/// and `dispatch`, so that `compute` and `exchange` are the layer's work once.
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
  /// Times launches that kernels of collectives do, under that name: the
  /// median, in seconds, 0 without such.
  moert::Result<double> timeReplaced(moert::Replaced made,
                                     llvm::StringRef part);
  /// Takes so many seconds from the latest times.
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
  /// Those of a rank, at present.
  int64_t tokens = 0;
  std::vector<PartTimes> times;
};

/// Lets `slowest` have the larger of both times of each place.
void keepSlowest(std::vector<PartTimes> &slowest,
                 llvm::ArrayRef<PartTimes> others);

/// A line for each part: tokens, name, number of times, median, p99.
void printPartTimes(llvm::ArrayRef<PartTimes> times, llvm::raw_ostream &os);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_PARTTIMES_H
