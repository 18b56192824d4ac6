//===- ExchangeTest.cpp - kernels that several ranks run --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExchangeRig.h"

#include "moec/Dialect/Tile/Exchange.h"
#include "moert/PeerHeap.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

using namespace moec;
using namespace moec::exchanges;
using moert::PeerHeap;
using moert::Status;

namespace {

/// Rows of several chunks, of as many as a warp has lanes, and of fewer, which
/// go to all ranks.
const std::vector<PartShape> kRouted = {
    {3}, {44, true, true}, {128, true, true}, {4, true, true}, {1, false}};
const std::vector<PartShape> kSummed = {{44, true, true}, {132, true, true}};

Case makeRouted(Case what, Spread spread = Spread::Even) {
  what.parts = what.gathers() ? kRouted : kSummed;
  what.spread = spread;
  return what;
}

Case withReplicas(Case what) {
  what.hasReplicas = true;
  return what;
}

Case makeReplicated(Case what) { return withReplicas(makeRouted(what)); }

Case makeToResults(Case what) {
  what.toResults = true;
  return what;
}

Case makeSums(Case what, PartShape part, Spread spread = Spread::None) {
  what.parts = {part};
  what.makesSums = true;
  what.spread = spread;
  return what;
}

/// Rows of this number of groups, which the kernel quantizes, beside other
/// parts.
Case makeQuantized(Case what, int64_t groups, int64_t group = 128,
                   Spread spread = Spread::None) {
  bool routed = spread != Spread::None;
  what.parts = {{groups * group / 4, true, routed},
                {groups, true, routed},
                {3},
                {1, false}};
  what.group = group;
  what.spread = spread;
  return what;
}

/// Likewise with one scale per row of this number of values, e4m3 or int8.
Case makeQuantizedRows(Case what, int64_t columns, Spread spread = Spread::None,
                       bool areIntegers = false) {
  what = makeQuantized(what, 1, columns, spread);
  what.hasRowScales = true;
  what.areIntegers = areIntegers;
  return what;
}

/// Several such rows of several warps are in one CTA.
Case withThreads(Case what, int64_t threads) {
  what.threads = threads;
  return what;
}

Case makeWhole(Case what, int64_t numValid) {
  what.hasAddend = true;
  what.numValid = numValid;
  return what;
}

Case makeChunks(Case what, int64_t chunks) {
  what.chunks = chunks;
  return what;
}

const Case kCases[] = {
    {"all_gather", 2, 1},
    {"all_gather", 2, 200},
    {"all_gather", 4, 37},
    {"all_gather", 8, 16},
    {"reduce_scatter", 2, 1},
    {"reduce_scatter", 2, 200},
    {"reduce_scatter", 4, 37},
    {"reduce_scatter", 8, 16},
    {"all_reduce", 2, 200},
    {"all_reduce", 4, 37},
    {"all_gather", 16, 3},
    {"reduce_scatter", 16, 3},
    makeRouted({"all_gather", 2, 40}),
    makeRouted({"all_gather", 4, 9}),
    makeRouted({"all_gather", 4, 9}, Spread::OneRank),
    makeRouted({"all_gather", 8, 5}),
    makeRouted({"all_gather", 16, 2}),
    makeRouted({"all_gather", 3, 1}),
    makeToResults({"all_gather", 2, 1}),
    makeToResults({"all_gather", 2, 200}),
    makeToResults({"all_gather", 4, 37}),
    makeToResults({"all_gather", 8, 16}),
    makeToResults({"all_gather", 16, 3}),
    makeToResults(makeRouted({"all_gather", 4, 9})),
    makeToResults(makeRouted({"all_gather", 4, 9}, Spread::OneRank)),
    makeToResults(makeRouted({"all_gather", 16, 2})),
    makeToResults(makeReplicated({"all_gather", 8, 5})),
    makeRouted({"reduce_scatter", 2, 40}),
    makeRouted({"reduce_scatter", 4, 9}),
    makeRouted({"reduce_scatter", 4, 9}, Spread::OneRank),
    makeRouted({"reduce_scatter", 8, 5}),
    makeRouted({"reduce_scatter", 16, 2}),
    makeReplicated({"all_gather", 4, 9}),
    makeReplicated({"all_gather", 8, 5}),
    makeReplicated({"reduce_scatter", 4, 9}),
    makeReplicated({"reduce_scatter", 8, 5}),
    // Groups of 8, 4 and 2 lanes, with more and with fewer chunks than a round.
    makeQuantized({"all_gather", 2, 1}, 2),
    makeQuantized({"all_gather", 2, 40}, 3),
    makeQuantized({"all_gather", 4, 9}, 5, 64),
    makeQuantized({"all_gather", 8, 5}, 7, 32),
    makeQuantized({"all_gather", 16, 2}, 2),
    makeQuantized({"all_gather", 4, 9}, 2, 128, Spread::Even),
    makeToResults(makeQuantized({"all_gather", 2, 1}, 2)),
    makeToResults(makeQuantized({"all_gather", 2, 40}, 3)),
    makeToResults(makeQuantized({"all_gather", 4, 9}, 5, 64)),
    makeToResults(makeQuantized({"all_gather", 8, 5}, 7, 32)),
    makeToResults(makeQuantized({"all_gather", 2, 40}, 2, 128, Spread::Even)),
    makeToResults(makeQuantized({"all_gather", 4, 9}, 5, 128, Spread::OneRank)),
    makeToResults(makeQuantized({"all_gather", 16, 2}, 4, 128, Spread::Even)),
    makeToResults(withReplicas(
        makeQuantized({"all_gather", 8, 5}, 2, 128, Spread::Even))),
    // Rows for part of a warp, for one warp with one or two chunks per lane,
    // and for two warps, full and not.
    makeQuantizedRows({"all_gather", 2, 1}, 128),
    makeQuantizedRows({"all_gather", 2, 20}, 1024),
    makeQuantizedRows({"all_gather", 4, 9}, 1040),
    makeQuantizedRows({"all_gather", 3, 9}, 512, Spread::None, true),
    makeQuantizedRows({"all_gather", 16, 2}, 2048),
    makeQuantizedRows({"all_gather", 4, 9}, 192, Spread::Even),
    makeQuantizedRows({"all_gather", 4, 9}, 1536, Spread::Even, true),
    makeToResults(makeQuantizedRows({"all_gather", 2, 1}, 2048)),
    makeToResults(makeQuantizedRows({"all_gather", 2, 15}, 1536)),
    makeToResults(
        makeQuantizedRows({"all_gather", 3, 9}, 2000, Spread::None, true)),
    makeToResults(makeQuantizedRows({"all_gather", 8, 5}, 720)),
    makeToResults(makeQuantizedRows({"all_gather", 2, 40}, 208, Spread::Even)),
    makeToResults(
        makeQuantizedRows({"all_gather", 4, 9}, 1040, Spread::OneRank)),
    makeToResults(makeQuantizedRows({"all_gather", 16, 2}, 1536, Spread::Even)),
    makeToResults(withReplicas(
        makeQuantizedRows({"all_gather", 8, 5}, 512, Spread::Even))),
    withThreads(makeQuantizedRows({"all_gather", 2, 30}, 2048), 256),
    makeToResults(
        withThreads(makeQuantizedRows({"all_gather", 2, 9}, 4096), 256)),
    makeToResults(withThreads(
        makeQuantizedRows({"all_gather", 2, 30}, 1040, Spread::Even, true),
        256)),
    // Rows for part of a warp, for one warp and for several, and chunks of 4
    // bytes.
    makeSums({"reduce_scatter", 2, 1}, {44}),
    makeSums({"reduce_scatter", 2, 40}, {132}),
    makeSums({"reduce_scatter", 4, 9}, {600}),
    makeSums({"reduce_scatter", 3, 9}, {3}),
    makeSums({"reduce_scatter", 8, 5}, {256}),
    makeSums({"reduce_scatter", 16, 2}, {44}),
    makeSums({"reduce_scatter", 2, 40}, {132, true, true}, Spread::Even),
    makeSums({"reduce_scatter", 4, 9}, {44, true, true}, Spread::Even),
    makeSums({"reduce_scatter", 4, 9}, {600, true, true}, Spread::OneRank),
    makeSums({"reduce_scatter", 16, 2}, {132, true, true}, Spread::Even),
    makeSums({"all_reduce", 2, 40}, {132}),
    makeSums({"all_reduce", 8, 9}, {256}),
    makeWhole(makeSums({"all_reduce", 2, 40}, {44}), 17),
    makeWhole(makeSums({"reduce_scatter", 4, 9}, {132}), 20),
    makeWhole(makeSums({"reduce_scatter", 3, 9}, {3}), 0),
    // Some columns at a time, in as many launches.
    makeChunks(makeSums({"reduce_scatter", 2, 40}, {256}), 2),
    makeChunks(makeSums({"reduce_scatter", 3, 9}, {9}), 3),
    makeChunks(makeSums({"reduce_scatter", 8, 5}, {256}), 4),
    makeChunks(
        makeSums({"reduce_scatter", 4, 9}, {176, true, true}, Spread::Even), 4),
    makeChunks(makeSums({"all_reduce", 2, 40}, {264}), 2),
    makeChunks(makeWhole(makeSums({"reduce_scatter", 4, 9}, {264}), 20), 2),
    makeChunks(makeWhole(makeSums({"all_reduce", 3, 9}, {132}), 7), 3),
};

std::string describe(const Case &what, uint64_t seed) {
  return what.kind.str() + " of " + std::to_string(what.ranks) + " ranks, " +
         std::to_string(what.tokens) + " tokens, " +
         (what.spread == Spread::None ? "all rows"
          : what.hasReplicas          ? "rows of destination ranks of replicas"
          : what.spread == Spread::OneRank ? "rows of one rank's experts"
                                           : "rows of destination ranks") +
         (what.makesSums
              ? ", sums of " + std::to_string(what.parts.front().columns) +
                    " columns"
              : "") +
         (what.group == 0
              ? ""
              : std::string(", ") + (what.areIntegers ? "int8" : "e4m3") +
                    " quantized in " + (what.hasRowScales ? "rows" : "groups") +
                    " of " + std::to_string(what.group)) +
         (what.toResults ? ", to results" : "") +
         (what.chunks > 1 ? " in " + std::to_string(what.chunks) + " chunks"
                          : "") +
         (what.threads > 64 ? ", " + std::to_string(what.threads) + " threads"
                            : "") +
         ", seed " + std::to_string(seed);
}

} // namespace

TEST(Exchange, AllRanksGetWhatTheyShould) {
  // A change runs each case under one schedule of six, every night under all.
  constexpr uint64_t seeds = 6;
  const bool runsAll = std::getenv("MOEC_ALL_CASES");
  for (const auto &[index, what] : llvm::enumerate(kCases))
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      if (!runsAll && seed != index % seeds)
        continue;
      Rig rig(what, seed);
      Status status = rig.run();
      ASSERT_TRUE(status) << describe(what, seed) << ": " << status.message();
      EXPECT_TRUE(rig.isRight()) << describe(what, seed);
      EXPECT_EQ(rig.countLeftOut() > 0,
                what.gathers() && what.spread != Spread::None)
          << describe(what, seed);
      for (int64_t rank = 0; rank < what.ranks; ++rank) {
        int64_t exchanges = what.exchanges * what.chunks;
        EXPECT_EQ(rig.readWord(rank, PeerHeap::kEpochs), exchanges);
        EXPECT_EQ(rig.readWord(rank, PeerHeap::kEpochs +
                                         8 * (PeerHeap::kMaxCtas - 1)),
                  exchanges);
        EXPECT_EQ(rig.readWord(rank, PeerHeap::kFailure), 0);
      }
    }
}

TEST(Exchange, FewRowsGoToAllRanks) {
  for (int64_t leastRows : {9, 10}) {
    Case what = makeRouted({"all_gather", 4, 9});
    what.leastRows = leastRows;
    Rig rig(what, 1);
    Status status = rig.run();
    ASSERT_TRUE(status) << status.message();
    EXPECT_TRUE(rig.isRight());
    EXPECT_EQ(rig.countLeftOut() > 0, leastRows == 9);
  }
}

/// Ranks that do not send a row count as +0.0, so -0.0 remains only if all
/// send.
TEST(Exchange, SignsOfZerosAreThoseOfAllParts) {
  for (Spread spread : {Spread::Even, Spread::OneRank}) {
    Case what = makeRouted({"reduce_scatter", 2, 40}, spread);
    what.isZero = true;
    Rig rig(what, 1);
    Status status = rig.run();
    ASSERT_TRUE(status) << status.message();
    EXPECT_TRUE(rig.isRight());
  }
}

TEST(Exchange, SomeoneWhoDoesNotComeIsNamed) {
  for (auto [exchange, toResults] :
       {std::pair(0, false), {2, false}, {0, true}, {2, true}}) {
    Case what = {"all_gather", 3, 37};
    what.toResults = toResults;
    what.limit = 3000;
    what.missing = {100 + exchange};
    Rig rig(what, 1);
    Status status = rig.run();
    ASSERT_TRUE(status) << status.message();
    int64_t mask = (int64_t(1) << PeerHeap::kReasonShift) - 1;
    for (int64_t rank : {0, 2}) {
      int64_t failure = rig.readWord(rank, PeerHeap::kFailure);
      EXPECT_NE(failure >> PeerHeap::kReasonShift, PeerHeap::None);
      EXPECT_EQ(failure & mask, 1);
    }
    // Later ranks do not wait.
    EXPECT_EQ(rig.readWord(1, PeerHeap::kAbort), 2);
  }
}

namespace {

std::string replaceAll(std::string text, llvm::StringRef from,
                       llvm::StringRef to) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(from.str(), at)) != std::string::npos;
       at += to.size()) {
    text.replace(at, from.size(), to.str());
    ++count;
  }
  EXPECT_GT(count, 0U) << from.str();
  return text;
}

std::string dropRelease(std::string text) {
  return replaceAll(std::move(text), "st.release.sys", "st.relaxed.sys");
}

std::string dropAcquire(std::string text) {
  return replaceAll(std::move(text), "ld.acquire.sys", "ld.relaxed.sys");
}

/// Mutant: the flag is that of the exchange before.
std::string awaitFormerExchange(std::string text) {
  size_t load = text.find("ld.acquire.sys");
  size_t end = text.find('\n', load);
  size_t name = text.find("%rd", load);
  std::string word = text.substr(name, text.find(',', name) - name);
  return text.insert(
      end + 1, "\tadd.s64 " + word + ", " + word + ", " +
                   std::to_string(int64_t(1) << PeerHeap::kRoundBits) + ";\n");
}

/// Threads set flags before all others have pushed.
std::string dropBarrierBeforeFlag(std::string text) {
  size_t flag = text.find("st.release.sys");
  size_t barrier = text.rfind("bar.sync", flag);
  if (barrier == std::string::npos)
    barrier = text.rfind("barrier.sync", flag);
  EXPECT_NE(barrier, std::string::npos);
  return text.erase(barrier, text.find('\n', barrier) - barrier);
}

/// Mutant: lanes read data before another lane has found the flag.
std::string dropBarrierBehindFlag(std::string text) {
  size_t barrier = text.find("bar.warp.sync", text.find("ld.acquire.sys"));
  EXPECT_NE(barrier, std::string::npos);
  return text.erase(barrier, text.find('\n', barrier) - barrier);
}

/// Mutant: the reduction misses half of the lanes of a group or row.
std::string meetFewerLanes(std::string text) {
  size_t count = 0;
  for (size_t at = 0;
       (at = text.find("shfl.sync.bfly.b32", at)) != std::string::npos; ++at) {
    size_t mask = text.find(", 4, 31", at);
    if (mask == std::string::npos || mask > text.find('\n', at))
      continue;
    text[mask + 2] = '1';
    ++count;
  }
  EXPECT_GT(count, 0U);
  return text;
}

/// Mutant: warps of a row do not wait for each other. Removes barrier number
/// `which` of each pair that is not the CTA's.
std::string dropBarrierOfRow(std::string text, size_t which) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find("bar", at)) != std::string::npos; ++at) {
    size_t end = text.find('\n', at);
    llvm::StringRef line = llvm::StringRef(text).slice(at, end);
    // The CTA's barrier has no thread count.
    if (!line.contains(".sync") || line.contains("warp") ||
        !line.contains(", "))
      continue;
    if (count++ % 2 == which)
      text.erase(at, end - at);
  }
  EXPECT_GT(count, 1U);
  return text;
}

std::string dropBarrierAheadOfRow(std::string text) {
  return dropBarrierOfRow(std::move(text), 0);
}

std::string dropBarrierBehindRow(std::string text) {
  return dropBarrierOfRow(std::move(text), 1);
}

/// All exchanges use the same buffer.
std::string useOneBuffer(std::string text) {
  // The code in which the parity of the epoch selects a buffer.
  std::string buffers = std::to_string(PeerHeap::kBuffers);
  size_t count = 0;
  for (size_t at = 0;
       (at = text.find(", " + buffers + ", ", at)) != std::string::npos; ++at) {
    size_t name = text.find("%rd", text.rfind("selp.b64", at));
    std::string word = text.substr(name, text.find(',', name) - name);
    text.insert(text.find('\n', at) + 1,
                "\tmov.b64 " + word + ", " + buffers + ";\n");
    ++count;
  }
  EXPECT_GT(count, 0U);
  return text;
}

/// Expects that the kernels go wrong under one of eight schedules. A change
/// stops at the first such one; every night all are counted.
void expectNoticed(const Case &what, Mutation mutation,
                   const std::string &name) {
  constexpr uint64_t seeds = 8;
  const bool runsAll = std::getenv("MOEC_ALL_CASES");
  uint64_t noticed = 0;
  for (uint64_t seed = 0; seed < seeds && (runsAll || noticed == 0); ++seed) {
    Rig rig(what, seed, mutation);
    noticed += !rig.run() || !rig.isRight();
  }
  EXPECT_GT(noticed, 0U) << name;
  if (runsAll)
    llvm::outs() << name << ": noticed with " << noticed << " of " << seeds
                 << " seeds\n";
}

} // namespace

TEST(Exchange, MistakesAreNoticed) {
  const std::pair<const char *, Mutation> mutations[] = {
      {"no release", dropRelease},
      {"no acquire", dropAcquire},
      {"waits for the exchange before", awaitFormerExchange},
      {"no barrier before the flag", dropBarrierBeforeFlag},
      {"no barrier behind the flag", dropBarrierBehindFlag},
      {"one buffer for all exchanges", useOneBuffer},
  };
  for (const Case &what :
       {Case{"all_gather", 2, 200}, Case{"all_reduce", 4, 37},
        Case{"reduce_scatter", 4, 37},
        // Many ranks, in loops.
        Case{"all_gather", 8, 30}, Case{"reduce_scatter", 8, 30},
        makeRouted({"all_gather", 4, 20}),
        makeRouted({"reduce_scatter", 4, 20}),
        makeToResults({"all_gather", 2, 200}),
        makeToResults(makeRouted({"all_gather", 4, 20})),
        makeQuantized({"all_gather", 4, 37}, 3),
        makeToResults(
            makeQuantized({"all_gather", 2, 80}, 3, 128, Spread::Even)),
        makeQuantizedRows({"all_gather", 4, 17}, 1040),
        makeToResults(
            makeQuantizedRows({"all_gather", 2, 33}, 1040, Spread::Even)),
        makeSums({"reduce_scatter", 4, 37}, {132}),
        makeSums({"reduce_scatter", 2, 40}, {132, true, true}, Spread::Even),
        makeSums({"all_reduce", 2, 80}, {132}),
        makeChunks(makeSums({"reduce_scatter", 4, 37}, {264}), 2)}) {
    Rig right(what, 0);
    EXPECT_TRUE(right.run() && right.isRight()) << describe(what, 0);
    for (auto [name, mutation] : mutations) {
      // Gathers to results have none of these.
      if (what.toResults &&
          (mutation == dropBarrierBehindFlag || mutation == useOneBuffer))
        continue;
      // With many rounds one buffer suffices: flags of later rounds show that
      // earlier rounds have been read.
      Case tried = what;
      if (mutation == useOneBuffer)
        tried.tokens = 5;
      std::string kind =
          what.kind.str() + " of " + std::to_string(what.ranks) +
          (what.spread == Spread::None ? "" : " to destination ranks") +
          (what.makesSums ? " of its sums" : "") +
          (what.group == 0     ? ""
           : what.hasRowScales ? " of its quantized rows"
                               : " of its quantized groups") +
          (what.toResults ? " to results" : "") +
          (what.chunks > 1 ? " in chunks" : "");
      expectNoticed(tried, mutation, name + (", " + kind));
    }
  }
}

/// Each lane finds the largest magnitude in its group.
TEST(Exchange, LanesOfAGroupMeet) {
  Case what = makeToResults(makeQuantized({"all_gather", 2, 9}, 3));
  Rig rig(what, 1, meetFewerLanes);
  Status status = rig.run();
  ASSERT_TRUE(status) << status.message();
  EXPECT_FALSE(rig.isRight());
}

/// All lanes and warps of a row do too: the warps' maxima are in shared memory,
/// and no warp overwrites a value that others have yet to read.
TEST(Exchange, WarpsOfARowMeet) {
  Case what = makeToResults(
      withThreads(makeQuantizedRows({"all_gather", 2, 40}, 2048), 128));
  for (auto [name, mutation] :
       {std::pair<const char *, Mutation>("fewer lanes", meetFewerLanes),
        {"no barrier ahead of what is found", dropBarrierAheadOfRow},
        {"no barrier behind it", dropBarrierBehindRow}}) {
    expectNoticed(what, mutation, name);
  }
}
