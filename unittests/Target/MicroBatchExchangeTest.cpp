//===- MicroBatchExchangeTest.cpp - exchanges of two micro-batches --------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Ranks are threads with a device each, in one simulator, which runs kernels
// side by side that nothing orders. Each rank gathers to results, which a
// launch reads, and scatters, run after run, in two micro-batches and as a
// whole in turns, with nobody waiting in between.

#include "ExchangeRig.h"
#include "SimRanks.h"

#include "moec/PtxSim/SimDevice.h"
#include "moert/Executor.h"

using namespace moec;
using namespace moec::exchanges;
using moert::Argument;
using moert::DType;
using moert::Result;
using moert::Status;
using moert::TensorRole;

namespace {

constexpr int64_t kColumns = 8, kOwn = 5, kRuns = 4;
/// Least tokens per rank of a batch that runs as two halves, the first with as
/// many tokens as the second or one more.
constexpr int64_t kHalvedFrom = 4;

int64_t ownOf(int64_t run) { return run % 2 == 0 ? kOwn : 2; }
int64_t countFirst(int64_t own) {
  return own < kHalvedFrom ? own : (own + 1) / 2;
}

/// A simulated device without the order between the halves' collectives: it
/// does not wait for the event created last but one.
class Device : public moert::DeviceWithoutGraphs {
public:
  Device(moert::Device &inner, bool orders) : inner(inner), orders(orders) {}

  const std::string &name() const override { return inner.name(); }
  std::string architecture() const override { return inner.architecture(); }
  bool takesMachineCode() const override { return false; }
  Status checkTarget(const std::string &target) const override {
    return inner.checkTarget(target);
  }
  Result<std::unique_ptr<moert::Buffer>> allocate(size_t bytes,
                                                  size_t alignment) override {
    return inner.allocate(bytes, alignment);
  }
  Status copyIn(void *dst, const void *src, size_t bytes) override {
    return inner.copyIn(dst, src, bytes);
  }
  Status copyOut(void *dst, const void *src, size_t bytes) override {
    return inner.copyOut(dst, src, bytes);
  }
  Status fill(moert::Stream &stream, void *dst, uint8_t value,
              size_t bytes) override {
    return inner.fill(stream, dst, value, bytes);
  }
  Result<std::unique_ptr<moert::Module>>
  loadModule(const moert::ModuleImage &image) override {
    return inner.loadModule(image);
  }
  Result<std::unique_ptr<moert::Stream>> createStream() override {
    return inner.createStream();
  }
  Result<std::unique_ptr<moert::Event>> createEvent() override {
    auto made = inner.createEvent();
    if (made)
      events.push_back(made->get());
    return made;
  }
  Status launch(moert::Stream &stream, moert::Kernel &kernel,
                const moert::LaunchDims &dims,
                const moert::LaunchArgs &args) override {
    return inner.launch(stream, kernel, dims, args);
  }
  Status record(moert::Stream &stream, moert::Event &event) override {
    return inner.record(stream, event);
  }
  Status wait(moert::Stream &stream, moert::Event &event) override {
    bool isTurn = events.size() > 1 && &event == events[events.size() - 2];
    numTurns += isTurn;
    return isTurn && !orders ? Status::ok() : inner.wait(stream, event);
  }
  Status synchronize(moert::Stream &stream) override {
    return inner.synchronize(stream);
  }
  Result<moert::TensorMap>
  encodeTensorMap(const moert::TensorMapRecipe &recipe) override {
    return inner.encodeTensorMap(recipe);
  }

  int64_t numTurns = 0;

private:
  moert::Device &inner;
  const bool orders;
  std::vector<moert::Event *> events;
};

Case makeCase(llvm::StringRef kind, int64_t ranks) {
  Case what = {kind, ranks, kOwn, {{kColumns}}};
  what.toResults = what.gathers();
  return what;
}

/// The kernel of a case, under a unique name.
std::string getPtx(const Case &what, const std::string &name) {
  std::string ptx = compile(what).ptx;
  const std::string entry = ".entry kernel";
  size_t at = ptx.find(entry);
  EXPECT_NE(at, std::string::npos);
  return ptx.replace(at, entry.size(), ".entry " + name);
}

/// A gather of i32, which a reader copies to an output, and a reduce-scatter of
/// f32 of an input.
moert::Plan makePlan(int64_t ranks) {
  moert::Plan plan;
  plan.target = "sm_90a";
  plan.mesh = {ranks, 1};
  plan.maxTokens = kOwn * ranks;
  plan.numSlots = 1;
  moert::Expr all = moert::Expr::tokens();
  moert::Expr own = moert::Expr::ceilDiv(all, ranks);
  plan.tensors = {
      {"sent", DType::I32, {own, kColumns}, TensorRole::Input},
      {"seen", DType::I32, {all, kColumns}, TensorRole::Output},
      {"parts", DType::F32, {all, kColumns}, TensorRole::Input},
      {"sums", DType::F32, {own, kColumns}, TensorRole::Output},
      {"gathered", DType::I32, {all, kColumns}, TensorRole::Workspace, 0},
  };
  moert::Variant variant{0, plan.maxTokens, {}};
  for (auto [kind, name, in, out] :
       {std::tuple(moert::CollectiveKind::AllGather, "all_gather", 0, 4),
        {moert::CollectiveKind::ReduceScatter, "reduce_scatter", 2, 3}}) {
    const Compiled &compiled = compile(makeCase(name, ranks));
    moert::KernelDecl kernel{name, *compiled.grid, compiled.dims.block};
    kernel.resident = true;
    variant.steps.push_back(moert::Step::collective(
        kind, moert::MeshAxis::Data,
        {Argument::ofTensor(in), Argument::ofTensor(out)}));
    variant.steps.back().kernel = int64_t(plan.kernels.size());
    plan.kernels.push_back(kernel);
  }
  variant.steps[0].toResults = true;
  plan.kernels.push_back({"reader", 1, kReaderThreads});
  variant.steps.insert(
      variant.steps.begin() + 1,
      moert::Step::launch(2, {Argument::ofTensor(4), Argument::ofTensor(1),
                              Argument::ofScalar(all * kColumns)}));
  plan.variants = {variant};
  return plan;
}

int32_t sentOf(int64_t rank, int64_t run, int64_t row, int64_t column) {
  return int32_t(rank * 100003 + run * 10007 + row * 101 + column);
}

/// The value that a rank adds to a row, which rowIndex() numbers.
float partOf(int64_t rank, int64_t run, int64_t row, int64_t column) {
  return float((rank * 7 + run * 13 + row * 29 + column * 5) % 997);
}

/// Index of a rank's row, one of `own`, among the rows of all ranks.
int64_t rowIndex(int64_t ranks, int64_t rank, int64_t own, int64_t row) {
  int64_t first = countFirst(own);
  return row < first ? rank * first + row
                     : ranks * first + rank * (own - first) + row - first;
}

class Rank {
public:
  Rank(const SimRank &rank, int64_t ranks, bool orders)
      : rank(rank), device(rank.device, orders), ranks(ranks),
        index(rank.index) {}

  Status start() {
    moert::PeerOptions options;
    // A rank that waits in vain gives up.
    options.limitSeconds = 0.01;
    auto communicator =
        connect(rank, ptx::createSimPeerDevice(rank.device), options);
    if (!communicator)
      return communicator.status();
    ranksOf = std::move(*communicator);
    std::vector<std::string> texts{kReader};
    for (const char *name : {"all_gather", "reduce_scatter"})
      texts.push_back(getPtx(makeCase(name, ranks), name));
    auto made =
        moert::Executor::create(makePlan(ranks), device, makeImage(texts));
    if (!made)
      return made.status();
    executor = std::move(*made);
    if (Status status = executor->useMicroBatches(kHalvedFrom); !status)
      return status;
    if (Status status = executor->useCommunicator(ranksOf); !status)
      return status;
    Status prepared = executor->prepareWeights().status();
    return prepared ? allocate() : prepared;
  }

  /// Enqueues a run on the device.
  Status run(int64_t number) {
    for (size_t i = 0; i < 4; ++i) {
      const moert::TensorDecl &decl = executor->plan().tensors[i];
      int64_t rows = *decl.shape[0].evaluate(ranks * ownOf(number));
      if (Status status = executor->bind(
              decl.name,
              {find(number, i).data(), decl.dtype, {rows, kColumns}, {}});
          !status)
        return status;
    }
    return executor->run(ranks * ownOf(number));
  }

  Status synchronize() { return executor->synchronize(); }

  Result<bool> isRight(int64_t run) {
    int64_t own = ownOf(run);
    auto seen = copyOut<int32_t>(device, find(run, 1), ranks * own * kColumns);
    auto sums = copyOut<float>(device, find(run, 3), own * kColumns);
    if (!seen || !sums)
      return (seen ? sums.status() : seen.status());
    bool right = true;
    for (int64_t row = 0; row < own; ++row)
      for (int64_t column = 0; column < kColumns; ++column) {
        float sum = 0;
        for (int64_t rank = 0; rank < ranks; ++rank) {
          sum += partOf(rank, run, rowIndex(ranks, index, own, row), column);
          right &= (*seen)[size_t(rowIndex(ranks, rank, own, row) * kColumns +
                                  column)] == sentOf(rank, run, row, column);
        }
        right &= (*sums)[size_t(row * kColumns + column)] == sum;
      }
    return right;
  }

  /// All ranks have arrived.
  Status meet(const std::string &where) {
    return ranksOf->agree("test", where);
  }
  void leave(const Status &why) { ranksOf->abort(why.message()); }
  int64_t countTurns() const { return device.numTurns; }

private:
  /// Separate inputs and outputs for each run.
  Status allocate() {
    for (int64_t run = 0; run < kRuns; ++run) {
      int64_t own = ownOf(run);
      std::vector<int32_t> sent, nothing(size_t(ranks * own * kColumns));
      std::vector<float> parts, none(size_t(own * kColumns));
      for (int64_t row = 0; row < own; ++row)
        for (int64_t column = 0; column < kColumns; ++column)
          sent.push_back(sentOf(index, run, row, column));
      for (int64_t row = 0; row < ranks * own; ++row)
        for (int64_t column = 0; column < kColumns; ++column)
          parts.push_back(partOf(index, run, row, column));
      Status status = add(sent);
      if (status)
        status = add(nothing);
      if (status)
        status = add(parts);
      if (status)
        status = add(none);
      if (!status)
        return status;
    }
    return Status::ok();
  }

  template <typename T>
  Status add(const std::vector<T> &values) {
    auto buffer = device.allocate(values.size() * sizeof(T), 256);
    if (!buffer)
      return buffer.status();
    buffers.push_back(std::move(*buffer));
    return copyIn(device, *buffers.back(), values);
  }

  moert::Buffer &find(int64_t run, size_t tensor) {
    return *buffers[size_t(run) * 4 + tensor];
  }

  const SimRank rank;
  Device device;
  const int64_t ranks, index;
  std::shared_ptr<moert::Communicator> ranksOf;
  std::unique_ptr<moert::Executor> executor;
  /// Per run and tensor, except the last one.
  std::vector<std::unique_ptr<moert::Buffer>> buffers;
};

/// Whether all ranks have the right values after each run, without failures.
bool isRight(int64_t ranks, uint64_t seed, bool orders) {
  // A failed rank makes no further calls.
  const double limitSeconds = orders ? 60 : 5;
  // Once, ahead of threads that ask for them.
  for (const char *kind : {"all_gather", "reduce_scatter"})
    compile(makeCase(kind, ranks));
  return areRight(ranks, seed, limitSeconds, [&](const SimRank &own) {
    Rank rank(own, ranks, orders);
    Status status = rank.start();
    EXPECT_TRUE(status) << status.message();
    for (int64_t run = 0; status && run < kRuns; ++run)
      status = rank.run(run);
    if (status)
      status = rank.synchronize();
    bool right = true;
    for (int64_t run = 0; status && run < kRuns; ++run) {
      Result<bool> isRight = rank.isRight(run);
      status = isRight.status();
      right &= isRight && *isRight;
    }
    if (status)
      status = rank.meet("the end");
    if (!status) {
      rank.leave(status);
      EXPECT_FALSE(orders) << status.message();
      return false;
    }
    // For runs as two halves.
    EXPECT_EQ(rank.countTurns(), 3 * kRuns / 2);
    return right;
  });
}

} // namespace

TEST(MicroBatchExchange, HalvesGetWhatTheirRanksHave) {
  for (int64_t ranks : {2, 4})
    for (uint64_t seed : {0, 1, 2, 3})
      EXPECT_TRUE(isRight(ranks, seed, /*orders=*/true))
          << ranks << " ranks, seed " << seed;
}

/// Two concurrent exchanges would have the same epochs and buffers.
TEST(MicroBatchExchange, TurnsWithoutAnOrderAreNoticed) {
  constexpr uint64_t kSchedules = 6;
  int numWrong = 0;
  for (uint64_t seed = 1; seed <= kSchedules; ++seed)
    numWrong += !isRight(2, seed, /*orders=*/false);
  EXPECT_GT(numWrong, 0);
  printf("turns without an order: wrong under %d of %d schedules\n", numWrong,
         int(kSchedules));
}
