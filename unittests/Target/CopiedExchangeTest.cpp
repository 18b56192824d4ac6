//===- CopiedExchangeTest.cpp - gathers whose rows are copied -------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Ranks are threads with a device each, in one simulator. Exchange after
// exchange a rank gathers into results(), one part by copies and the others by
// the kernel, or all by the kernel, lets copies read what has come, and joins a
// gather to elsewhere, behind which results may be written again.

#include "ExchangeRig.h"
#include "SimRanks.h"

#include "moec/PtxSim/SimDevice.h"
#include "moert/PeerHeap.h"

#include <chrono>
#include <thread>

using namespace moec;
using namespace moec::exchanges;
using moert::PeerCopy;
using moert::Result;
using moert::Status;

namespace {

constexpr int64_t kExchanges = 3;

/// The step that a rank omits.
enum class Mistake { None, Join, Release };

/// Copies of a rank; unless they are joined, the stream does not wait for them.
class Copier : public moert::PeerDevice {
public:
  Copier(moert::Device &device, bool joins)
      : device(device), inner(ptx::createSimPeerDevice(device)), joins(joins),
        beside(*device.createStream()), fork(*device.createEvent()) {}

  Result<std::unique_ptr<moert::Buffer>> allocate(size_t bytes) override {
    return inner->allocate(bytes);
  }
  Result<moert::PeerHandle> share(const moert::Buffer &buffer) override {
    return inner->share(buffer);
  }
  Result<std::unique_ptr<moert::Buffer>>
  open(const moert::PeerHandle &handle) override {
    return inner->open(handle);
  }
  Status launch(moert::Stream &stream, moert::Kernel &kernel,
                const moert::LaunchDims &dims,
                const moert::LaunchArgs &args) override {
    return inner->launch(stream, kernel, dims, args);
  }
  Status prepareCopies(size_t lanes) override {
    return inner->prepareCopies(lanes);
  }
  Status copy(moert::Stream &stream,
              const std::vector<PeerCopy> &copies) override {
    if (joins)
      return inner->copy(stream, copies);
    Status status = device.record(stream, *fork);
    if (status)
      status = device.wait(*beside, *fork);
    return status ? inner->copy(*beside, copies) : status;
  }

private:
  moert::Device &device;
  std::unique_ptr<moert::PeerDevice> inner;
  const bool joins;
  std::unique_ptr<moert::Stream> beside;
  std::unique_ptr<moert::Event> fork;
};

/// Bytes of a part that one rank sends.
int64_t countBytes(const Case &what, const PartShape &part) {
  return part.columns * (part.perToken ? what.tokens : 1) * 4;
}

int32_t valueOf(int64_t rank, int64_t round, int64_t part, int64_t i) {
  return int32_t(rank * 1000003 + round * 10007 + part * 101 + i);
}

/// Data of one run of a case.
struct How {
  Mistake mistake = Mistake::None;
  /// The second run replays a graph of the first.
  bool replays = false;
  /// Copies move the first part if there are any, else the kernel does.
  bool copies = true;
};

/// One rank; `parts` of each exchange have inputs and outputs of their own.
class Rank {
public:
  Rank(const Case &what, const SimRank &rank, How how)
      : what(what), rank(rank), device(rank.device), index(rank.index),
        how(how), stream(*device.createStream()) {
    toResults.toResults = true;
  }

  Status start() {
    moert::PeerOptions options;
    options.leastCopiedBytes = 1;
    auto made = connect(
        rank, std::make_shared<Copier>(device, how.mistake != Mistake::Join),
        options);
    if (!made)
      return made.status();
    ranks = std::move(*made);
    for (const Case &each : {what, toResults}) {
      auto loaded = device.loadModule(makeImage({compile(each).ptx}));
      if (!loaded)
        return loaded.status();
      modules.push_back(std::move(*loaded));
    }
    return allocate();
  }

  /// Enqueues all exchanges of a run, with separate inputs.
  Status give() {
    for (int64_t exchange = 0; exchange < kExchanges; ++exchange) {
      if (Status status = gather(toResults, exchange); !status)
        return status;
      if (Status status = read(exchange); !status)
        return status;
      if (how.mistake == Mistake::Release)
        continue;
      if (Status status = gather(what, exchange); !status)
        return status;
    }
    return Status::ok();
  }

  Status write(int64_t run) {
    for (int64_t exchange = 0; exchange < kExchanges; ++exchange)
      for (size_t part = 0; part < what.parts.size(); ++part) {
        std::vector<int32_t> values(
            size_t(countBytes(what, what.parts[part]) / 4));
        for (size_t i = 0; i < values.size(); ++i)
          values[i] = valueOf(index, run * kExchanges + exchange, int64_t(part),
                              int64_t(i));
        if (Status status =
                copyIn(device, *sends[size_t(exchange)][part], values);
            !status)
          return status;
      }
    return Status::ok();
  }

  /// Whether the data read after each exchange equals the data that all ranks
  /// sent.
  Result<bool> isRight(int64_t run) {
    for (int64_t exchange = 0; exchange < kExchanges; ++exchange)
      for (size_t part = 0; part < what.parts.size(); ++part) {
        int64_t own = countBytes(what, what.parts[part]) / 4;
        auto values = copyOut<int32_t>(device, *reads[size_t(exchange)][part],
                                       own * what.ranks);
        if (!values)
          return values.status();
        for (int64_t i = 0; i < own * what.ranks; ++i)
          if ((*values)[size_t(i)] != valueOf(i / own,
                                              run * kExchanges + exchange,
                                              int64_t(part), i % own))
            return false;
      }
    return true;
  }

  moert::Device &getDevice() { return device; }
  moert::Stream &getStream() { return *stream; }
  moert::Communicator &getRanks() { return *ranks; }

private:
  /// Offset of a part in the results of a gather, after the earlier parts.
  void *getResult(size_t part) {
    auto *results = static_cast<char *>(ranks->results(moert::MeshAxis::Data));
    for (size_t i = 0; i < part; ++i)
      results += moert::PeerHeap::partBytes(what.ranks,
                                            countBytes(what, what.parts[i]));
    return results;
  }

  Status allocate() {
    int64_t place = 0;
    for (const PartShape &part : what.parts)
      place += moert::PeerHeap::partBytes(what.ranks, countBytes(what, part));
    if (Status status = ranks->reserve(moert::MeshAxis::Data, place, place);
        !status)
      return status;
    sends.resize(kExchanges);
    reads.resize(kExchanges);
    for (const PartShape &part : what.parts) {
      auto bytes = size_t(countBytes(what, part));
      receives.push_back(*device.allocate(bytes * size_t(what.ranks), 256));
      for (int64_t i = 0; i < kExchanges; ++i) {
        sends[size_t(i)].push_back(*device.allocate(bytes, 256));
        reads[size_t(i)].push_back(
            *device.allocate(bytes * size_t(what.ranks), 256));
      }
    }
    return Status::ok();
  }

  Status gather(const Case &gathered, int64_t exchange) {
    std::vector<moert::CollectivePart> parts;
    for (size_t part = 0; part < what.parts.size(); ++part)
      parts.push_back(
          {sends[size_t(exchange)][part]->data(),
           gathered.toResults ? getResult(part) : receives[part]->data(),
           moert::DType::I32, countBytes(what, what.parts[part]) / 4,
           gathered.toResults && how.copies && part == 0});
    moert::Collective collective;
    collective.parts = parts.data();
    collective.numParts = parts.size();
    collective.where = "gather";
    collective.kernel = *modules[gathered.toResults]->kernel("kernel");
    collective.dims = compile(gathered).dims;
    collective.dims.grid = *compile(gathered).grid->evaluate(what.tokens);
    collective.rows = what.tokens;
    collective.toResults = gathered.toResults;
    return ranks->run(*stream, collective);
  }

  /// Not by a Copier, whose copies may come too late.
  Status read(int64_t exchange) {
    std::vector<PeerCopy> copies;
    for (size_t part = 0; part < what.parts.size(); ++part)
      copies.push_back({reads[size_t(exchange)][part]->data(), getResult(part),
                        size_t(what.ranks * countBytes(what, what.parts[part])),
                        part});
    return ptx::createSimPeerDevice(device)->copy(*stream, copies);
  }

  const Case what;
  Case toResults = what;
  const SimRank rank;
  moert::Device &device;
  const int64_t index;
  const How how;
  std::unique_ptr<moert::Stream> stream;
  /// Kernels of an ordinary gather, and of a gather to results.
  std::vector<std::unique_ptr<moert::Module>> modules;
  std::unique_ptr<moert::Communicator> ranks;
  using Buffers = std::vector<std::unique_ptr<moert::Buffer>>;
  /// Per exchange and part.
  std::vector<Buffers> sends, reads;
  Buffers receives;
};

/// Makes two runs, the second possibly as a replay of a graph of the first, and
/// returns whether all ranks have read the right data.
bool isRight(const Case &what, uint64_t seed, How how = {}) {
  // A failed rank makes no further calls.
  const double limitSeconds = how.mistake == Mistake::None ? 60 : 5;
  // Once, ahead of threads that ask for it.
  compile(what);
  Case toResults = what;
  toResults.toResults = true;
  compile(toResults);
  return areRight(what.ranks, seed, limitSeconds, [&](const SimRank &own) {
    Rank rank(what, own, how);
    Status status = rank.start();
    std::unique_ptr<moert::Graph> graph;
    bool right = true;
    for (int64_t run = 0; status && run < 2; ++run) {
      status = rank.write(run);
      // Ranks arrive at different times.
      if (own.index == run)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (status && how.replays && !graph) {
        auto made = moert::captureGraph(rank.getDevice(), rank.getStream(),
                                        [&] { return rank.give(); });
        status = made.status();
        if (made)
          graph = std::move(*made);
      }
      if (status)
        status = graph ? rank.getDevice().launchGraph(rank.getStream(), *graph)
                       : rank.give();
      if (status)
        status = rank.getRanks().synchronize(rank.getStream());
      Result<bool> isRight = status ? rank.isRight(run) : Result<bool>(status);
      status = isRight.status();
      right &= isRight && *isRight;
      // No rank writes new inputs while copies of another rank are pending.
      if (status)
        status = rank.getRanks().agree("test", "run " + std::to_string(run));
    }
    if (!status) {
      EXPECT_NE(how.mistake, Mistake::None) << status.message();
      rank.getRanks().abort(status.message());
    }
    return status && right;
  });
}

std::vector<Case> makeCases() {
  std::vector<Case> cases;
  for (int64_t ranks : {2, 3, 4, 5, 8, 16})
    cases.push_back({"all_gather", ranks, 7, {{64}, {3}, {1, false}}});
  // The kernel only sets flags.
  cases.push_back({"all_gather", 3, 5, {{16}}});
  return cases;
}

} // namespace

TEST(CopiedExchange, AllRanksReadWhatWasSent) {
  constexpr int64_t fewRanks = 4;
  for (const Case &what : makeCases())
    for (bool copies : {true, false})
      for (uint64_t seed : {1, 0, 2}) {
        How how = {Mistake::None, /*replays=*/seed > 0, copies};
        EXPECT_TRUE(isRight(what, seed, how))
            << what.ranks << " ranks, seed " << seed
            << (how.replays ? ", replayed" : "")
            << (copies ? ", copied" : ", by the kernel");
        if (what.ranks > fewRanks)
          break;
      }
}

/// Missing order: flags before copies; copies and pushes before readers on
/// other ranks have finished.
TEST(CopiedExchange, MistakesAreNoticed) {
  Case what{"all_gather", 3, 7, {{64}, {3}, {1, false}}};
  for (How how : {How{Mistake::Join}, How{Mistake::Release},
                  How{Mistake::Release, false, /*copies=*/false}}) {
    int numWrong = 0;
    for (uint64_t seed = 1; seed <= 12; ++seed)
      numWrong += !isRight(what, seed, how);
    const char *name = how.mistake == Mistake::Join ? "the join"
                       : how.copies ? "the release"
                                    : "the release of what is pushed";
    EXPECT_GT(numWrong, 0) << name;
    printf("%s left out: wrong under %d of 12 schedules\n", name, numWrong);
  }
}
