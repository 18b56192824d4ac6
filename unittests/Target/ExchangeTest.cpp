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

/// Rows of several pieces, of as many as a warp has, and of fewer, which go to
/// all.
const std::vector<PartShape> kOwned = {
    {3}, {44, true, true}, {128, true, true}, {4, true, true}, {1, false}};
const std::vector<PartShape> kSummed = {{44, true, true}, {132, true, true}};

Case makeOwned(Case what, Spread spread = Spread::Even) {
  what.parts = what.gathers() ? kOwned : kSummed;
  what.spread = spread;
  return what;
}

Case withReplicas(Case what) {
  what.hasReplicas = true;
  return what;
}

Case makeReplicated(Case what) { return withReplicas(makeOwned(what)); }

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

/// Rows of so many groups that the kernel quantizes, beside others.
Case makeCodes(Case what, int64_t groups, int64_t group = 128,
               Spread spread = Spread::None) {
  bool owned = spread != Spread::None;
  what.parts = {{groups * group / 4, true, owned},
                {groups, true, owned},
                {3},
                {1, false}};
  what.group = group;
  what.spread = spread;
  return what;
}

/// The same with one scale for each row of so many codes, e4m3 or int8.
Case makeCodesOfRows(Case what, int64_t columns, Spread spread = Spread::None,
                     bool areIntegers = false) {
  what = makeCodes(what, 1, columns, spread);
  what.hasCodesOfRows = true;
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

Case makePieces(Case what, int64_t pieces) {
  what.pieces = pieces;
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
    makeOwned({"all_gather", 2, 40}),
    makeOwned({"all_gather", 4, 9}),
    makeOwned({"all_gather", 4, 9}, Spread::OneRank),
    makeOwned({"all_gather", 8, 5}),
    makeOwned({"all_gather", 16, 2}),
    makeOwned({"all_gather", 3, 1}),
    makeToResults({"all_gather", 2, 1}),
    makeToResults({"all_gather", 2, 200}),
    makeToResults({"all_gather", 4, 37}),
    makeToResults({"all_gather", 8, 16}),
    makeToResults({"all_gather", 16, 3}),
    makeToResults(makeOwned({"all_gather", 4, 9})),
    makeToResults(makeOwned({"all_gather", 4, 9}, Spread::OneRank)),
    makeToResults(makeOwned({"all_gather", 16, 2})),
    makeToResults(makeReplicated({"all_gather", 8, 5})),
    makeOwned({"reduce_scatter", 2, 40}),
    makeOwned({"reduce_scatter", 4, 9}),
    makeOwned({"reduce_scatter", 4, 9}, Spread::OneRank),
    makeOwned({"reduce_scatter", 8, 5}),
    makeOwned({"reduce_scatter", 16, 2}),
    makeReplicated({"all_gather", 4, 9}),
    makeReplicated({"all_gather", 8, 5}),
    makeReplicated({"reduce_scatter", 4, 9}),
    makeReplicated({"reduce_scatter", 8, 5}),
    // Groups of 8, 4 and 2 lanes, of more and of fewer pieces than a round has.
    makeCodes({"all_gather", 2, 1}, 2),
    makeCodes({"all_gather", 2, 40}, 3),
    makeCodes({"all_gather", 4, 9}, 5, 64),
    makeCodes({"all_gather", 8, 5}, 7, 32),
    makeCodes({"all_gather", 16, 2}, 2),
    makeCodes({"all_gather", 4, 9}, 2, 128, Spread::Even),
    makeToResults(makeCodes({"all_gather", 2, 1}, 2)),
    makeToResults(makeCodes({"all_gather", 2, 40}, 3)),
    makeToResults(makeCodes({"all_gather", 4, 9}, 5, 64)),
    makeToResults(makeCodes({"all_gather", 8, 5}, 7, 32)),
    makeToResults(makeCodes({"all_gather", 2, 40}, 2, 128, Spread::Even)),
    makeToResults(makeCodes({"all_gather", 4, 9}, 5, 128, Spread::OneRank)),
    makeToResults(makeCodes({"all_gather", 16, 2}, 4, 128, Spread::Even)),
    makeToResults(
        withReplicas(makeCodes({"all_gather", 8, 5}, 2, 128, Spread::Even))),
    // Rows of a part of a warp, of one that each lane has one or two pieces of,
    // and of two warps, whole and not.
    makeCodesOfRows({"all_gather", 2, 1}, 128),
    makeCodesOfRows({"all_gather", 2, 20}, 1024),
    makeCodesOfRows({"all_gather", 4, 9}, 1040),
    makeCodesOfRows({"all_gather", 3, 9}, 512, Spread::None, true),
    makeCodesOfRows({"all_gather", 16, 2}, 2048),
    makeCodesOfRows({"all_gather", 4, 9}, 192, Spread::Even),
    makeCodesOfRows({"all_gather", 4, 9}, 1536, Spread::Even, true),
    makeToResults(makeCodesOfRows({"all_gather", 2, 1}, 2048)),
    makeToResults(makeCodesOfRows({"all_gather", 2, 15}, 1536)),
    makeToResults(
        makeCodesOfRows({"all_gather", 3, 9}, 2000, Spread::None, true)),
    makeToResults(makeCodesOfRows({"all_gather", 8, 5}, 720)),
    makeToResults(makeCodesOfRows({"all_gather", 2, 40}, 208, Spread::Even)),
    makeToResults(makeCodesOfRows({"all_gather", 4, 9}, 1040, Spread::OneRank)),
    makeToResults(makeCodesOfRows({"all_gather", 16, 2}, 1536, Spread::Even)),
    makeToResults(
        withReplicas(makeCodesOfRows({"all_gather", 8, 5}, 512, Spread::Even))),
    withThreads(makeCodesOfRows({"all_gather", 2, 30}, 2048), 256),
    makeToResults(
        withThreads(makeCodesOfRows({"all_gather", 2, 9}, 4096), 256)),
    makeToResults(withThreads(
        makeCodesOfRows({"all_gather", 2, 30}, 1040, Spread::Even, true), 256)),
    // Rows of a part of a warp's pieces, of one, of several warps, and pieces
    // of 4 bytes.
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
    makePieces(makeSums({"reduce_scatter", 2, 40}, {256}), 2),
    makePieces(makeSums({"reduce_scatter", 3, 9}, {9}), 3),
    makePieces(makeSums({"reduce_scatter", 8, 5}, {256}), 4),
    makePieces(
        makeSums({"reduce_scatter", 4, 9}, {176, true, true}, Spread::Even), 4),
    makePieces(makeSums({"all_reduce", 2, 40}, {264}), 2),
    makePieces(makeWhole(makeSums({"reduce_scatter", 4, 9}, {264}), 20), 2),
    makePieces(makeWhole(makeSums({"all_reduce", 3, 9}, {132}), 7), 3),
};

std::string describe(const Case &what, uint64_t seed) {
  return what.kind.str() + " of " + std::to_string(what.ranks) + " ranks, " +
         std::to_string(what.tokens) + " tokens, " +
         (what.spread == Spread::None      ? "all rows"
          : what.hasReplicas               ? "rows of owners of replicas"
          : what.spread == Spread::OneRank ? "rows of one rank's experts"
                                           : "rows of owners") +
         (what.makesSums
              ? ", sums of " + std::to_string(what.parts.front().columns) +
                    " columns"
              : "") +
         (what.group == 0
              ? ""
              : std::string(", ") + (what.areIntegers ? "int8" : "e4m3") +
                    " codes in " + (what.hasCodesOfRows ? "rows" : "groups") +
                    " of " + std::to_string(what.group)) +
         (what.toResults ? ", to results" : "") +
         (what.pieces > 1 ? " in " + std::to_string(what.pieces) + " pieces"
                          : "") +
         (what.threads > 64 ? ", " + std::to_string(what.threads) + " threads"
                            : "") +
         ", seed " + std::to_string(seed);
}

} // namespace

TEST(Exchange, AllRanksGetWhatTheyShould) {
  // Every night under more schedules.
  const uint64_t seeds = std::getenv("MOEC_ALL_CASES") ? 6 : 2;
  for (const Case &what : kCases)
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      Rig rig(what, seed);
      Status status = rig.run();
      ASSERT_TRUE(status) << describe(what, seed) << ": " << status.message();
      EXPECT_TRUE(rig.isRight()) << describe(what, seed);
      EXPECT_EQ(rig.countLeftOut() > 0,
                what.gathers() && what.spread != Spread::None)
          << describe(what, seed);
      for (int64_t rank = 0; rank < what.ranks; ++rank) {
        int64_t exchanges = what.exchanges * what.pieces;
        EXPECT_EQ(rig.readWord(rank, PeerHeap::kEpochs), exchanges);
        EXPECT_EQ(rig.readWord(rank, PeerHeap::kEpochs +
                                         8 * (PeerHeap::kMaxCtas - 1)),
                  exchanges);
        EXPECT_EQ(rig.readWord(rank, PeerHeap::kFailure), 0);
      }
    }
}

TEST(Exchange, WithFewRowsNobodyAsksForOwners) {
  for (int64_t leastRows : {9, 10}) {
    Case what = makeOwned({"all_gather", 4, 9});
    what.leastRows = leastRows;
    Rig rig(what, 1);
    Status status = rig.run();
    ASSERT_TRUE(status) << status.message();
    EXPECT_TRUE(rig.isRight());
    EXPECT_EQ(rig.countLeftOut() > 0, leastRows == 9);
  }
}

/// Who is no owner adds +0.0, so that -0.0 is left where all are owners alone.
TEST(Exchange, SignsOfZerosAreThoseOfAllParts) {
  for (Spread spread : {Spread::Even, Spread::OneRank}) {
    Case what = makeOwned({"reduce_scatter", 2, 40}, spread);
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
    // Whoever comes later does not wait.
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

/// The flag is found to be that of the next exchange.
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

/// Lanes take what has come before another one has found the flag.
std::string dropBarrierBehindFlag(std::string text) {
  size_t barrier = text.find("bar.warp.sync", text.find("ld.acquire.sys"));
  EXPECT_NE(barrier, std::string::npos);
  return text.erase(barrier, text.find('\n', barrier) - barrier);
}

/// Lanes do not meet half of those that have the rest of their group or row.
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

/// Warps of a row do not wait for each other: all barriers that are not the
/// CTA's with the number `which` of each two.
std::string dropBarrierOfRow(std::string text, size_t which) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find("bar", at)) != std::string::npos; ++at) {
    size_t end = text.find('\n', at);
    llvm::StringRef line = llvm::StringRef(text).slice(at, end);
    // That of the CTA has no number of threads.
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

/// All exchanges take the same place.
std::string useOnePlace(std::string text) {
  // Where the parity of the epoch chooses one of them.
  std::string places = std::to_string(PeerHeap::kPlaces);
  size_t count = 0;
  for (size_t at = 0;
       (at = text.find(", " + places + ", ", at)) != std::string::npos; ++at) {
    size_t name = text.find("%rd", text.rfind("selp.b64", at));
    std::string word = text.substr(name, text.find(',', name) - name);
    text.insert(text.find('\n', at) + 1,
                "\tmov.b64 " + word + ", " + places + ";\n");
    ++count;
  }
  EXPECT_GT(count, 0U);
  return text;
}

} // namespace

TEST(Exchange, MistakesAreNoticed) {
  const std::pair<const char *, Mutation> mutations[] = {
      {"no release", dropRelease},
      {"no acquire", dropAcquire},
      {"waits for the exchange before", awaitFormerExchange},
      {"no barrier before the flag", dropBarrierBeforeFlag},
      {"no barrier behind the flag", dropBarrierBehindFlag},
      {"one place for all exchanges", useOnePlace},
  };
  constexpr uint64_t seeds = 8;
  for (const Case &what :
       {Case{"all_gather", 2, 200}, Case{"all_reduce", 4, 37},
        Case{"reduce_scatter", 4, 37},
        // Of many ranks, in loops.
        Case{"all_gather", 8, 30}, Case{"reduce_scatter", 8, 30},
        makeOwned({"all_gather", 4, 20}), makeOwned({"reduce_scatter", 4, 20}),
        makeToResults({"all_gather", 2, 200}),
        makeToResults(makeOwned({"all_gather", 4, 20})),
        makeCodes({"all_gather", 4, 37}, 3),
        makeToResults(makeCodes({"all_gather", 2, 80}, 3, 128, Spread::Even)),
        makeCodesOfRows({"all_gather", 4, 17}, 1040),
        makeToResults(
            makeCodesOfRows({"all_gather", 2, 33}, 1040, Spread::Even)),
        makeSums({"reduce_scatter", 4, 37}, {132}),
        makeSums({"reduce_scatter", 2, 40}, {132, true, true}, Spread::Even),
        makeSums({"all_reduce", 2, 80}, {132}),
        makePieces(makeSums({"reduce_scatter", 4, 37}, {264}), 2)}) {
    Rig right(what, 0);
    EXPECT_TRUE(right.run() && right.isRight()) << describe(what, 0);
    for (auto [name, mutation] : mutations) {
      // Nothing of these is done by who pushes to results.
      if (what.toResults &&
          (mutation == dropBarrierBehindFlag || mutation == useOnePlace))
        continue;
      // Of many rounds one place does: flags of the later ones say that the
      // first ones have been taken.
      Case tried = what;
      if (mutation == useOnePlace)
        tried.tokens = 5;
      uint64_t noticed = 0;
      for (uint64_t seed = 0; seed < seeds; ++seed) {
        Rig rig(tried, seed, mutation);
        noticed += !rig.run() || !rig.isRight();
      }
      std::string kind = what.kind.str() + " of " + std::to_string(what.ranks) +
                         (what.spread == Spread::None ? "" : " to owners") +
                         (what.makesSums ? " of its sums" : "") +
                         (what.group == 0       ? ""
                          : what.hasCodesOfRows ? " of its codes of rows"
                                                : " of its codes") +
                         (what.toResults ? " to results" : "") +
                         (what.pieces > 1 ? " in pieces" : "");
      EXPECT_GT(noticed, 0U) << name << ", " << kind;
      RecordProperty(kind + ": " + name, int(noticed));
      llvm::outs() << kind << ", " << name << ": noticed with " << noticed
                   << " of " << seeds << " seeds\n";
    }
  }
}

/// Each lane finds the largest magnitude of all lanes of its group.
TEST(Exchange, LanesOfAGroupMeet) {
  Case what = makeToResults(makeCodes({"all_gather", 2, 9}, 3));
  Rig rig(what, 1, meetFewerLanes);
  Status status = rig.run();
  ASSERT_TRUE(status) << status.message();
  EXPECT_FALSE(rig.isRight());
}

/// All lanes of a row too, and all of its warps: what these found is there, and
/// nobody writes what others have still to read.
TEST(Exchange, WarpsOfARowMeet) {
  Case what = makeToResults(
      withThreads(makeCodesOfRows({"all_gather", 2, 40}, 2048), 128));
  for (auto [name, mutation] :
       {std::pair<const char *, Mutation>("fewer lanes", meetFewerLanes),
        {"no barrier ahead of what is found", dropBarrierAheadOfRow},
        {"no barrier behind it", dropBarrierBehindRow}}) {
    constexpr uint64_t seeds = 8;
    uint64_t noticed = 0;
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      Rig rig(what, seed, mutation);
      noticed += !rig.run() || !rig.isRight();
    }
    EXPECT_GT(noticed, 0U) << name;
    llvm::outs() << name << ": noticed with " << noticed << " of " << seeds
                 << " seeds\n";
  }
}
