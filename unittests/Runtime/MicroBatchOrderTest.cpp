//===- MicroBatchOrderTest.cpp - order of calls of two halves ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs one rank alone and logs its calls: their order on the device, the memory
// of both halves, and queries about such runs.
//
//===----------------------------------------------------------------------===//

#include "MicroBatchesTesting.h"

#include <algorithm>
#include <set>

using namespace moert;
using namespace moert::halves;

namespace {

/// The order of calls by streams and events.
struct Order {
  explicit Order(const std::vector<Call> &log) {
    std::map<const void *, std::set<size_t>> streams, events;
    for (size_t i = 0; i < log.size(); ++i) {
      std::set<size_t> &known = streams[log[i].stream];
      if (log[i].kind == Call::Wait)
        known.insert(events[log[i].event].begin(), events[log[i].event].end());
      before.push_back(known);
      known.insert(i);
      if (log[i].kind == Call::Record)
        events[log[i].event] = known;
    }
  }

  std::vector<std::set<size_t>> before;
};

/// Whether all collectives are ordered, and their number.
bool areOrdered(const std::vector<Call> &log, size_t &count) {
  Order order(log);
  count = 0;
  bool ordered = true;
  for (size_t i = 0; i < log.size(); ++i) {
    if (log[i].kind != Call::Meet)
      continue;
    ++count;
    for (size_t j = 0; j < i; ++j)
      if (log[j].kind == Call::Meet && order.before[i].count(j) == 0)
        ordered = false;
  }
  return ordered;
}

/// Whether all calls are between the caller's first and last one.
bool isBetween(const std::vector<Call> &log) {
  Order order(log);
  for (size_t i = 1; i + 1 < log.size(); ++i)
    if (order.before[i].count(0) == 0 || order.before.back().count(i) == 0)
      return false;
  return true;
}

/// One rank alone.
class LoggedRank : public ::testing::Test {
protected:
  void start(const Plan &plan, int64_t least = 1,
             int64_t leastCopied = Communicator::kNeverCopied) {
    auto made = std::make_shared<LoggedCommunicator>(plan.mesh, 0);
    communicator = made;
    communicator->leastBytes = leastCopied;
    communicator->makesSums = leastCopied != Communicator::kNeverCopied;
    device = std::make_unique<LoggedDevice>(communicator->log);
    Status status = rank.start(plan, *device, 0, least);
    if (status)
      status = rank.executor->useCommunicator(made);
    ASSERT_TRUE(status) << status.toString();
  }

  /// The calls of a run, between two calls on the caller's stream.
  std::vector<Call> run(int64_t tokens) {
    std::unique_ptr<Stream> stream = *device->createStream();
    communicator->received.clear();
    EXPECT_TRUE(rank.executor->run(tokens, stream.get()));
    communicator->log.clear();
    communicator->received.clear();
    communicator->log.push_back({Call::Launch, stream.get()});
    Status status = rank.executor->run(tokens, stream.get());
    EXPECT_TRUE(status) << status.toString();
    communicator->log.push_back({Call::Launch, stream.get()});
    return communicator->log;
  }

  std::shared_ptr<LoggedCommunicator> communicator;
  std::unique_ptr<LoggedDevice> device;
  Rank rank;
};

/// The collectives of a log, by half and step.
std::string turnsOf(const std::vector<Call> &log) {
  std::string turns;
  for (const Call &call : log)
    if (call.kind == Call::Meet)
      turns += (turns.empty() ? "" : " ") + call.what.substr(0, 1) +
               call.what.substr(call.what.rfind('['));
  return turns;
}

} // namespace

//===----------------------------------------------------------------------===//
// Order of calls
//===----------------------------------------------------------------------===//

TEST_F(LoggedRank, CollectivesTakeTurns) {
  start(makePlan({2, 2}));
  EXPECT_EQ(turnsOf(run(2 * 8)), "a[4] b[4] a[6] a[7] b[6] b[7]");
  // The first half uses the variant that gathers twice.
  EXPECT_EQ(turnsOf(run(2 * 9)), "a[4] a[5] b[4] a[7] a[8] b[6] b[7]");
  EXPECT_EQ(turnsOf(run(2)), "a[4] b[4] a[6] a[7] b[6] b[7]");
}

TEST_F(LoggedRank, HalvesWithoutADispatchTakeTurnsToo) {
  start(makePlan({1, 2}));
  EXPECT_EQ(turnsOf(run(8)), "a[5] b[5]");
}

/// Without the waits ahead of turns ranks might begin with different
/// collectives.
TEST_F(LoggedRank, CollectivesFollowEachOther) {
  for (const Mesh &mesh : makeMeshes())
    for (int64_t own : {1, 8, 9, 16}) {
      start(makePlan(mesh));
      std::vector<Call> log = run(own * mesh.tokenRanks());
      size_t count = 0;
      EXPECT_TRUE(areOrdered(log, count)) << mesh.str();
      EXPECT_GE(count, 2U);
      std::vector<Call> mutant;
      for (size_t i = 0; i < log.size(); ++i)
        if (log[i].kind != Call::Wait || log[i + 1].kind != Call::Meet)
          mutant.push_back(log[i]);
      EXPECT_LT(mutant.size(), log.size());
      EXPECT_FALSE(areOrdered(mutant, count)) << mesh.str();
    }
}

TEST_F(LoggedRank, AllIsBetweenWhatTheCallerGives) {
  start(makePlan({2, 2}));
  std::vector<Call> log = run(2 * 8);
  EXPECT_TRUE(isBetween(log));
  // Two waits belong to neither plan nor turn: the first of the second half,
  // and the caller's last. Without either the order must break.
  for (bool first : {true, false}) {
    std::vector<Call> mutant = log;
    auto isWait = [](const Call &call) { return call.kind == Call::Wait; };
    if (first)
      mutant.erase(std::find_if(mutant.begin(), mutant.end(), isWait));
    else
      mutant.erase(
          std::next(std::find_if(mutant.rbegin(), mutant.rend(), isWait))
              .base());
    EXPECT_FALSE(isBetween(mutant));
  }
}

TEST_F(LoggedRank, HalvesHaveNoOtherOrder) {
  start(makePlan({2, 1}));
  std::vector<Call> log = run(2 * 8);
  Order order(log);
  // The first half's last collective overlaps with the second half's launches
  // before its own.
  size_t combine = 0;
  for (size_t i = 0; i < log.size(); ++i)
    if (log[i].kind == Call::Meet && log[i].what.substr(0, 1) == "a")
      combine = i;
  size_t beside = combine;
  while (log[beside].kind != Call::Launch)
    ++beside;
  ASSERT_GT(beside, combine);
  EXPECT_EQ(order.before[beside].count(combine), 0U);
}

/// A gemm that began sooner would occupy the GPU and delay the exchange that it
/// is to overlap with.
TEST_F(LoggedRank, LaunchesFollowThoseAheadOfTheGroupBefore) {
  start(makePlan({2, 1}));
  std::vector<Call> log = run(2 * 8);
  auto isMeet = [](char half) {
    return [half](const Call &call) {
      return call.kind == Call::Meet && call.what[0] == half;
    };
  };
  auto isLaunch = [](const Call &call) { return call.kind == Call::Launch; };
  auto combine = std::find_if(log.rbegin(), log.rend(), isMeet('a')).base() - 1;
  auto first =
      std::find_if(std::reverse_iterator(combine), log.rend(), isLaunch);
  size_t firsts = first.base() - 1 - log.begin();
  size_t seconds = std::find_if(combine, log.end(), isLaunch) - log.begin();
  EXPECT_EQ(Order(log).before[seconds].count(firsts), 1U);
  ASSERT_EQ(log[seconds - 1].kind, Call::Wait);
  log.erase(log.begin() + static_cast<ptrdiff_t>(seconds) - 1);
  EXPECT_EQ(Order(log).before[seconds - 1].count(firsts), 0U);
}

/// Each half would keep CTAs of the other from starting, forever.
TEST_F(LoggedRank, BatchesWithLaunchesOfAllCtasAreWhole) {
  Plan plan = makePlan({2, 1});
  plan.kernels.push_back({"joined", Expr::tokens()});
  plan.kernels.back().resident = true;
  for (Step &step : plan.variants[0].steps)
    if (step.kind == Step::Kind::Launch && step.kernel == 0)
      step.kernel = int64_t(plan.kernels.size()) - 1;
  start(plan);
  EXPECT_EQ(turnsOf(run(2 * 8)).find('a'), std::string::npos);
  EXPECT_NE(turnsOf(run(2 * 12)).find('a'), std::string::npos);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

TEST_F(LoggedRank, WorkspacesOfCallersHoldBothHalves) {
  start(makePlan({2, 1}), /*least=*/8);
  int64_t bytes = *rank.executor->workspaceBytes(2 * 8);
  EXPECT_GE(bytes, *workspaceBytes(rank.executor->plan(), 2 * 8));
  std::vector<char> memory(static_cast<size_t>(bytes) + 512, 0x55);
  char *aligned = memory.data();
  while (reinterpret_cast<uintptr_t>(aligned) % kWorkspaceAlignment != 0)
    ++aligned;
  EXPECT_TRUE(rank.executor->run(2 * 8, {aligned, bytes}));
  for (char *past = aligned + bytes; past < &memory.back(); ++past)
    ASSERT_EQ(*past, 0x55);
  const Plan &plan = rank.executor->plan();
  int64_t one = layoutWorkspace(plan, plan.variants[0], 2 * 4)->bytes;
  std::string half = std::to_string(one);
  int64_t few = one + kWorkspaceAlignment;
  Status status = rank.executor->run(2 * 8, {aligned, few});
  EXPECT_EQ(status.message(),
            "run: the workspace has " + std::to_string(few) +
                " bytes, 16 tokens in two micro-batches need " + half +
                " and " + half + "; allocate what workspaceBytes() returns");
  EXPECT_FALSE(rank.executor->run(2 * 8, {aligned + 1, bytes}));
  // For fewer tokens one batch's workspace suffices.
  EXPECT_TRUE(rank.executor->run(2 * 4, {aligned, few}));
  EXPECT_FALSE(rank.executor->run(2 * 8, {aligned, few}));
  EXPECT_TRUE(rank.executor->run(2 * 8, {aligned, bytes}));
}

TEST_F(LoggedRank, SharedSlotsAreCutInTwo) {
  start(makePlan({2, 1}), /*least=*/8);
  int64_t bytes = *rank.executor->workspaceBytes(2 * 16);
  auto shared = SharedWorkspace::create(*device, bytes);
  ASSERT_TRUE(shared);
  ASSERT_TRUE(rank.executor->useWorkspace(*shared, 1));
  int before = device->numAllocations;
  run(2 * 16);
  EXPECT_EQ(device->numAllocations, before);
  char *slot = static_cast<char *>((*shared)->slot(1).data);
  std::set<char *> places;
  for (auto [received, count] : communicator->received)
    places.insert(received);
  // Per half: its gathered rows, once more for the second gather, and its
  // scattered rows.
  EXPECT_EQ(places.size(), 6U);
  EXPECT_GE(*places.begin(), slot);
  EXPECT_LT(*places.rbegin(), slot + bytes);
  ASSERT_TRUE(rank.executor->useWorkspace(nullptr, 0));
  run(2 * 16);
  EXPECT_EQ(device->numAllocations, before + 1);
}

/// Both halves' results are separate and fit in the memory for one batch.
TEST_F(LoggedRank, RowsAreCopiedToPlacesOfBothHalves) {
  start(makePlan({2, 1}), /*least=*/1, /*leastCopied=*/80);
  std::vector<char> &memory = communicator->memory;
  // Longer variants gather twice.
  EXPECT_EQ(memory.size(), size_t(2 * kMostOwn * kColumns * 4) * 2);
  for (int64_t own = 2; own <= 8; ++own) {
    run(2 * own);
    auto [first, firstBytes] = communicator->received[0];
    auto [second, secondBytes] = communicator->received[1];
    EXPECT_EQ(first, memory.data()) << own;
    EXPECT_GE(second, first + firstBytes) << own;
    EXPECT_LE(second + secondBytes, memory.data() + memory.size()) << own;
    auto traced = rank.executor->trace(2 * own);
    ASSERT_TRUE(traced);
    int64_t numCopied = 0;
    for (const TracedStep &step : *traced)
      numCopied += step.name.find("(rows copied)") != std::string::npos;
    // Fewer bytes are moved by the kernel, to the same offsets.
    constexpr int64_t ownBytes = kColumns * 4, least = 80;
    int64_t halves[] = {own - own / 2, own / 2};
    EXPECT_EQ(numCopied, std::count_if(std::begin(halves), std::end(halves),
                                       [&](int64_t rows) {
                                         return rows * ownBytes >= least;
                                       }))
        << own;
  }
  // An empty half receives nothing.
  run(2);
  EXPECT_EQ(communicator->received[0].first, memory.data());
}

/// Another layer has since reserved larger results. A rank that kept using the
/// old ones would never meet a rank that had to resolve its run anew.
TEST_F(LoggedRank, ResultsAreTheNewestOnes) {
  for (int64_t least : {1, 9}) {
    start(makePlan({2, 1}), least, /*leastCopied=*/80);
    std::vector<char> former;
    for (int64_t own : {8, 8, 6}) {
      run(2 * own);
      const std::vector<char> &memory = communicator->memory;
      // A whole batch gathers twice, each half once.
      for (size_t i = 0; i < 2; ++i) {
        char *received = communicator->received[i].first;
        EXPECT_TRUE(received >= memory.data() &&
                    received < memory.data() + memory.size())
            << least << " " << own;
      }
      former.swap(communicator->memory);
      communicator->memory.assign(former.size(), 0x55);
    }
  }
}

/// Each result is padded, so two halves may need more than a whole batch.
TEST_F(LoggedRank, HalvesHaveRoomForWhatIsRoundedUp) {
  Plan plan = makePlan({2, 1});
  plan.maxTokens = plan.variants[0].maxTokens = 2 * 3;
  plan.variants.pop_back();
  start(plan, /*least=*/1, /*leastCopied=*/80);
  std::vector<char> &memory = communicator->memory;
  run(2 * 3);
  auto [first, firstBytes] = communicator->received[0];
  auto [second, secondBytes] = communicator->received[1];
  EXPECT_EQ(first, memory.data());
  EXPECT_EQ(second,
            memory.data() +
                kWorkspaceAlignment * ((firstBytes + kWorkspaceAlignment - 1) /
                                       kWorkspaceAlignment));
  EXPECT_LE(second + secondBytes, memory.data() + memory.size());
}

//===----------------------------------------------------------------------===//
// Queries about runs
//===----------------------------------------------------------------------===//

TEST_F(LoggedRank, TracesSayWhichHalf) {
  start(makePlan({2, 1}), /*least=*/8);
  auto traced = rank.executor->trace(2 * 8);
  ASSERT_TRUE(traced) << traced.status().toString();
  std::string names;
  for (const TracedStep &step : *traced)
    names += step.name + "@" + std::to_string(step.stream) + "\n";
  EXPECT_EQ(names, "a: beside@1\na: all_gather dp@0\n"
                   "b: beside@3\nb: all_gather dp@2\n"
                   "a: experts@0\na: reduce_scatter dp@0\n"
                   "b: experts@2\nb: reduce_scatter dp@2\n"
                   "a: add@0\nb: add@2\n");
  traced = rank.executor->trace(2 * 7);
  ASSERT_TRUE(traced);
  EXPECT_EQ(traced->front().name, "beside");
}

TEST_F(LoggedRank, WorkspaceTensorsOfTwoAreNotShown) {
  start(makePlan({2, 1}), /*least=*/8);
  run(2 * 8);
  EXPECT_EQ(rank.executor->view("sums").status().message(),
            "view 'sums': the latest run was two micro-batches, each with its "
            "own tensor; run fewer tokens, or disable micro-batches");
  auto y = rank.executor->view("y");
  ASSERT_TRUE(y) << y.status().toString();
  EXPECT_EQ(y->data, rank.y.data());
  EXPECT_EQ(y->shape, std::vector<int64_t>({8, kColumns}));
  run(2 * 7);
  EXPECT_TRUE(rank.executor->view("sums"));
}

/// Kernels of collectives compute the sums of both halves, or of none.
TEST_F(LoggedRank, SumsAreThoseOfBothHalves) {
  Plan plan = makePlan({2, 1});
  plan.tensors[Sums].slot = 1;
  for (Variant &variant : plan.variants) {
    size_t experts = 0;
    for (size_t i = 0; i < variant.steps.size(); ++i) {
      Step &step = variant.steps[i];
      if (step.kind == Step::Kind::Launch && step.kernel == 0)
        experts = i;
      if (step.kind != Step::Kind::Collective ||
          step.collectiveKind != CollectiveKind::ReduceScatter)
        continue;
      step.replacedStep = int64_t(experts);
      // The kernel reads gathered rows before it signals its arrival.
      step.args.push_back(Argument::ofTensor(Factor));
      step.args.push_back(Argument::ofTensor(All));
      step.numKernelArgs = 2;
    }
  }
  start(plan);
  size_t launched = run(2 * 8).size();
  EXPECT_TRUE(rank.executor->hasReplaced(Replaced::Sums));
  communicator->makesSums = true;
  EXPECT_EQ(run(2 * 8).size(), launched - 2);
  communicator->log.clear();
  std::unique_ptr<Stream> stream = *device->createStream();
  ASSERT_TRUE(rank.executor->runReplaced(Replaced::Sums, *stream));
  EXPECT_EQ(communicator->log.size(), 2U);
}
