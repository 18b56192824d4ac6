//===- ResultsExchangeTest.cpp - results that are written again -----------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Ranks are kernels side by side in one simulator, which sees who writes what
// others may still read. Each rank gathers ids and rows to results, has a
// launch read the rows, and sums what it has for the rows of all, whose
// destination ranks its kernel finds by the gathered ids: again and again in
// one place, with more tokens and with fewer in turns.

#include "ExchangeRig.h"

#include "moert/PeerHeap.h"

#include <cstring>
#include <limits>

using namespace moec;
using namespace moec::exchanges;
using moert::PeerHeap;
using moert::Status;

namespace {

constexpr int64_t kRows = 8, kSums = 44, kRounds = 4, kMostTokens = 9;

/// The mutant that all ranks run.
enum class Mistake {
  None,
  /// Mutant: rows are read behind the sums, which tell other ranks that they
  /// have been read.
  ReadsLate,
  /// Mutant: no sums, so no rank knows when rows have been read.
  NoRelease,
  /// The ids of own rows, which are read behind flags, are gathered ones.
  OwnIdsOfResults
};

class Results {
public:
  Results(int64_t ranks, uint64_t seed, Mistake mistake)
      : ranks(ranks), mistake(mistake), simulator(makeOptions(seed)) {
    gathered.toResults = true;
    summed.spread = Spread::Even;
    for (int64_t rank = 0; rank < ranks; ++rank)
      makeHeap(rank);
    std::vector<int32_t> table;
    for (int64_t expert = 0; expert < summed.numExperts(); ++expert)
      table.push_back(destinationOf(expert));
    destinations = allocate(table);
  }

  Status run();
  bool isRight() const;

private:
  static int64_t tokensOf(int64_t round) {
    return round % 2 == 0 ? kMostTokens : 4;
  }
  static int64_t roundUp(int64_t bytes) { return (bytes + 255) / 256 * 256; }
  int64_t getBufferBytes() const {
    return roundUp(PeerHeap::partBytes(ranks, kMostTokens * kSums * 4));
  }
  /// Offsets of a rank's gathered ids, and of the rows behind them.
  uint64_t getIds(int64_t rank) const {
    return heaps[size_t(rank)] + PeerHeap::kBuffers + 2 * getBufferBytes();
  }
  uint64_t getRows(int64_t rank, int64_t tokens) const {
    return getIds(rank) + roundUp(ranks * tokens * kTopK * 4);
  }

  int32_t destinationOf(int64_t expert) const {
    int64_t place = expert / kExpertsPerRank;
    return place < ranks ? int32_t(place) : -1;
  }
  /// Ids may also name no expert.
  int32_t idOf(int64_t rank, int64_t round, int64_t i) const {
    int64_t number = i * 11 + rank * 5 + round * 3 + i / 7;
    return int32_t(number % (summed.numExperts() + 2)) - 1;
  }
  /// Whether a rank contributes to that row of another rank.
  bool adds(int64_t rank, int64_t to, int64_t round, int64_t row) const {
    if (rank == to)
      return true;
    for (int64_t i = 0; i < kTopK; ++i)
      if (int32_t expert = idOf(to, round, row * kTopK + i);
          expert >= 0 && expert < summed.numExperts() &&
          destinationOf(expert) == rank)
        return true;
    return false;
  }
  static int32_t rowOf(int64_t rank, int64_t round, int64_t i) {
    return int32_t(rank * 100003 + round * 10007 + i);
  }
  static float partOf(int64_t rank, int64_t to, int64_t round, int64_t i) {
    return float((i * 7 + rank * 13 + to * 31 + round * 29) % 997);
  }

  template <typename T>
  uint64_t allocate(const std::vector<T> &values) {
    uint64_t address = allocate(int64_t(values.size() * sizeof(T)));
    EXPECT_TRUE(
        simulator.write(address, values.data(), values.size() * sizeof(T)));
    return address;
  }
  uint64_t allocate(int64_t bytes) {
    auto address = simulator.allocate(size_t(bytes), 256, "memory");
    EXPECT_TRUE(address);
    return *address;
  }
  template <typename T>
  std::vector<T> read(uint64_t address, int64_t count) const {
    std::vector<T> values(static_cast<size_t>(count));
    EXPECT_TRUE(
        simulator.read(values.data(), address, values.size() * sizeof(T)));
    return values;
  }
  void makeHeap(int64_t rank);
  Status load();
  /// Enqueues the launches of a round on a rank.
  Status giveRound(int64_t rank, int64_t round);
  Status give(int64_t rank, const ptx::LoadedModule &module, const char *name,
              const moert::LaunchDims &dims,
              const std::vector<uint64_t> &slots);
  Status giveExchange(int64_t rank, int64_t tokens, const Case &what,
                      const ptx::LoadedModule &module,
                      std::vector<uint64_t> slots);

  const int64_t ranks;
  const Mistake mistake;
  Case gathered = {"all_gather", ranks, kMostTokens, {{kTopK}, {kRows}}};
  Case summed = {"reduce_scatter", ranks, kMostTokens, {{kSums, true, true}}};
  ptx::Simulator simulator;
  std::vector<uint64_t> heaps;
  uint64_t destinations = 0;
  ptx::LoadedModule *gather = nullptr, *sum = nullptr, *reader = nullptr;
  /// Per rank.
  std::map<int64_t, ptx::WorkId> last;
  /// Per rank and round.
  std::map<std::pair<int64_t, int64_t>, uint64_t> reads, sums;
};

void Results::makeHeap(int64_t rank) {
  std::vector<char> bytes(static_cast<size_t>(PeerHeap::kBuffers));
  auto set = [&](int64_t offset, int64_t value) {
    std::memcpy(&bytes[size_t(offset)], &value, sizeof(value));
  };
  set(PeerHeap::kIndex, rank);
  set(PeerHeap::kLimit, int64_t(1) << 40);
  set(PeerHeap::kBufferBytes, getBufferBytes());
  bytes.resize(size_t(PeerHeap::kBuffers + 2 * getBufferBytes() +
                      roundUp(ranks * kMostTokens * kTopK * 4) +
                      roundUp(ranks * kMostTokens * kRows * 4)),
               char(0xff));
  heaps.push_back(allocate(bytes));
}

Status Results::load() {
  for (auto [text, name, module] :
       {std::tuple(compile(gathered).ptx, "gather.ptx", &gather),
        {compile(summed).ptx, "sum.ptx", &sum},
        {std::string(kReader), "reader.ptx", &reader}}) {
    auto loaded = simulator.load(text, name);
    if (!loaded)
      return loaded.status();
    *module = *loaded;
  }
  return Status::ok();
}

Status Results::give(int64_t rank, const ptx::LoadedModule &module,
                     const char *name, const moert::LaunchDims &dims,
                     const std::vector<uint64_t> &slots) {
  auto params = ptx::packParams(*module.find(name), slots);
  if (!params)
    return params.status();
  std::vector<ptx::WorkId> after;
  if (auto before = last.find(rank); before != last.end())
    after.push_back(before->second);
  auto work = simulator.submit(module, name, dims, *params, after);
  if (work)
    last[rank] = *work;
  return work.status();
}

Status Results::giveExchange(int64_t rank, int64_t tokens, const Case &what,
                             const ptx::LoadedModule &module,
                             std::vector<uint64_t> slots) {
  for (int64_t distance = 0; distance < ranks; ++distance)
    slots.push_back(heaps[size_t((rank + distance) % ranks)]);
  slots.push_back(uint64_t(tokens));
  moert::LaunchDims dims = compile(what).dims;
  dims.grid = *compile(what).grid->evaluate(tokens);
  return give(rank, module, "kernel", dims, slots);
}

Status Results::giveRound(int64_t rank, int64_t round) {
  int64_t tokens = tokensOf(round);
  std::vector<int32_t> ids, rows;
  std::vector<float> parts;
  for (int64_t i = 0; i < tokens * kTopK; ++i)
    ids.push_back(idOf(rank, round, i));
  for (int64_t i = 0; i < tokens * kRows; ++i)
    rows.push_back(rowOf(rank, round, i));
  for (int64_t to = 0; to < ranks; ++to)
    for (int64_t i = 0; i < tokens * kSums; ++i)
      parts.push_back(adds(rank, to, round, i / kSums)
                          ? partOf(rank, to, round, i)
                          : std::numeric_limits<float>::quiet_NaN());
  uint64_t ownIds = allocate(ids);
  uint64_t allIds = getIds(rank), allRows = getRows(rank, tokens);
  auto gives = [&] {
    return giveExchange(rank, tokens, gathered, *gather,
                        {ownIds, allocate(rows), allIds, allRows});
  };
  auto readsRows = [&] {
    moert::LaunchDims dims;
    dims.grid = 1;
    dims.block = kReaderThreads;
    int64_t count = ranks * tokens * kRows;
    reads[{rank, round}] = allocate(count * 4);
    return give(rank, *reader, "reader", dims,
                {allRows, reads[{rank, round}], uint64_t(count)});
  };
  auto releases = [&] {
    sums[{rank, round}] = allocate(tokens * kSums * 4);
    uint64_t own = mistake == Mistake::OwnIdsOfResults
                       ? allIds + uint64_t(rank * tokens * kTopK * 4)
                       : ownIds;
    return giveExchange(
        rank, tokens, summed, *sum,
        {allocate(parts), sums[{rank, round}], own, allIds, destinations});
  };
  Status status = gives();
  if (status && mistake != Mistake::ReadsLate)
    status = readsRows();
  if (status && mistake != Mistake::NoRelease)
    status = releases();
  if (status && mistake == Mistake::ReadsLate)
    status = readsRows();
  return status;
}

Status Results::run() {
  Status status = load();
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (int64_t round = 0; status && round < kRounds; ++round)
      status = giveRound(rank, round);
  return status ? simulator.run() : status;
}

bool Results::isRight() const {
  for (const auto &[where, address] : reads) {
    auto [rank, round] = where;
    int64_t own = tokensOf(round) * kRows;
    auto rows = read<int32_t>(address, ranks * own);
    for (int64_t i = 0; i < ranks * own; ++i)
      if (rows[size_t(i)] != rowOf(i / own, round, i % own))
        return false;
  }
  for (const auto &[where, address] : sums) {
    auto [rank, round] = where;
    auto made = read<float>(address, tokensOf(round) * kSums);
    for (int64_t i = 0; i < int64_t(made.size()); ++i) {
      float sum = 0;
      for (int64_t other = 0; other < ranks; ++other)
        if (adds(other, rank, round, i / kSums))
          sum += partOf(other, rank, round, i);
      if (made[size_t(i)] != sum)
        return false;
    }
  }
  return true;
}

} // namespace

TEST(ResultsExchange, AreReadBeforeTheyAreWrittenAgain) {
  for (int64_t ranks : {2, 3, 4, 8})
    for (uint64_t seed = 0; seed < 6; ++seed) {
      Results results(ranks, seed, Mistake::None);
      Status status = results.run();
      ASSERT_TRUE(status) << ranks << " ranks, seed " << seed << ": "
                          << status.message();
      EXPECT_TRUE(results.isRight()) << ranks << " ranks, seed " << seed;
    }
}

TEST(ResultsExchange, MistakesAreNoticed) {
  constexpr uint64_t seeds = 8;
  for (auto [name, mistake] :
       {std::pair("rows read behind the sums", Mistake::ReadsLate),
        {"no sums", Mistake::NoRelease},
        {"own ids of the results", Mistake::OwnIdsOfResults}})
    for (int64_t ranks : {2, 4}) {
      int numNoticed = 0;
      for (uint64_t seed = 0; seed < seeds; ++seed) {
        Results results(ranks, seed, mistake);
        numNoticed += !results.run() || !results.isRight();
      }
      EXPECT_GT(numNoticed, 0) << name;
      printf("%s, %d ranks: noticed with %d of %d seeds\n", name, int(ranks),
             numNoticed, int(seeds));
    }
}
