//===- ExchangeRig.h - ranks in one simulator ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Ranks are kernels side by side in one simulator, whose memory holds a heap
// for each.

#ifndef MOEC_UNITTESTS_TARGET_EXCHANGERIG_H
#define MOEC_UNITTESTS_TARGET_EXCHANGERIG_H

#include "moec/Ptx/Sim/Simulator.h"
#include "moert/Device.h"
#include "moert/Expr.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace moec::exchanges {

/// One part: f32 or i32 rows of so many columns, or one row whatever the
/// tokens. Those of owners alone are f32, in pieces of 16 bytes.
struct PartShape {
  int64_t columns;
  bool perToken = true;
  bool owned = false;
};

/// Which experts rows have.
enum class Spread {
  /// All rows go to all ranks, whoever needs them.
  None,
  /// Any of the experts, of which some are nowhere, and ids that are none.
  Even,
  /// Those of one rank alone.
  OneRank,
};

/// Experts of the ranks that meet, and one more for every so many, which none
/// of these has.
constexpr int64_t kExpertsPerRank = 3, kTopK = 3;
/// Physical ones of a rank, and replicas that the table has room for.
constexpr int64_t kPhysicalPerRank = 2 * kExpertsPerRank, kReplicas = 3;

/// Slots of a row whose sum the kernel makes itself: of some rows none has
/// anything to add, of others all have.
constexpr int64_t kSlots = 5;

struct Case {
  llvm::StringRef kind;
  int64_t ranks;
  int64_t tokens;
  std::vector<PartShape> parts = {{8}, {3}, {1, false}};
  int64_t exchanges = 4;
  int64_t limit = int64_t(1) << 40;
  /// Ranks that do not come to an exchange, as rank * 100 + exchange.
  std::vector<int64_t> missing = {};
  Spread spread = Spread::None;
  /// Everything that is summed is -0.0.
  bool isZero = false;
  /// Of the config.
  int64_t leastRows = 0, threads = 64;
  /// Whether experts have replicas: on their rank and, the odd ones, on the
  /// next one too.
  bool hasReplicas = false;
  /// The kernel makes the sums that it moves, of one part.
  bool makesSums = false;
  /// With those an addend, and so many rows that count; -1: all.
  bool hasAddend = false;
  int64_t numValid = -1;
  /// With those each exchange is so many launches, of some columns each.
  int64_t pieces = 1;
  /// The kernel quantizes the rows that it moves, of a gather whose first two
  /// parts are codes, four to an element, and scales: so many codes to each.
  int64_t group = 0;
  /// With those one scale for each row, of codes of this type.
  bool hasCodesOfRows = false;
  bool areIntegers = false;
  /// A gather writes to where other ranks read, each exchange elsewhere; a
  /// kernel behind it reads that.
  bool toResults = false;

  bool gathers() const { return kind == "all_gather"; }
  bool scatters() const { return kind == "reduce_scatter"; }
  int64_t numExperts() const { return (ranks + 1) * kExpertsPerRank; }
};

struct Compiled {
  std::string ptx;
  std::optional<moert::Expr> grid;
  moert::LaunchDims dims;
};

/// The kernel of a case. Each is compiled once.
const Compiled &compile(const Case &what);

/// A kernel `reader` of one CTA that stores what it loads of so many words:
/// from, to, words.
extern const char *const kReader;
constexpr int64_t kReaderThreads = 64;

/// Changes the text of a kernel.
using Mutation = std::string (*)(std::string);

/// Of kernels side by side, none of which may go on for ever.
inline ptx::SimulatorOptions makeOptions(uint64_t seed) {
  ptx::SimulatorOptions options;
  options.seed = seed;
  options.maxWarpInstructions = 20000000;
  return options;
}

class Rig {
public:
  Rig(const Case &what, uint64_t seed, Mutation mutation = nullptr)
      : what(what), compiled(compile(what)),
        text(mutation ? mutation(compiled.ptx) : compiled.ptx),
        simulator(makeOptions(seed)) {
    for (int64_t rank = 0; rank < what.ranks; ++rank)
      makeHeap(rank);
  }

  moert::Status run();
  /// Whether all ranks have what they should, in what they need.
  bool isRight() const;
  /// Gathered rows that their rank does not need, and has not been sent.
  int64_t countLeftOut() const;
  int64_t readWord(int64_t rank, int64_t offset) const {
    int64_t word = 0;
    EXPECT_TRUE(simulator.read(&word, heaps[rank] + offset, sizeof(word)));
    return word;
  }

private:
  /// Elements of a part that one rank sends, or gets of what is summed.
  int64_t count(const PartShape &part) const {
    return part.columns * (part.perToken ? what.tokens : 1);
  }
  int64_t sent(const PartShape &part) const {
    return count(part) * (what.scatters() ? what.ranks : 1);
  }
  int64_t received(const PartShape &part) const {
    return count(part) * (what.gathers() ? what.ranks : 1);
  }
  /// An id of a row of `rank`.
  int32_t id(int64_t rank, int64_t exchange, int64_t i) const {
    int64_t number = (i * 11 + rank * 5 + exchange * 3 + i / 7) % 101;
    if (what.spread == Spread::OneRank)
      return int32_t(number % kExpertsPerRank);
    if (number < 4)
      return number < 2 ? int32_t(-1) : int32_t(what.numExperts() + number);
    // Rows of one expert, and of several.
    return int32_t((i / kTopK % 3 == 0 ? i / kTopK : number) %
                   what.numExperts());
  }
  int32_t owner(int64_t expert) const {
    int64_t place = expert / kExpertsPerRank;
    return place < what.ranks ? int32_t(place) : -1;
  }
  /// Physical numbers of an expert.
  std::vector<int32_t> replicas(int64_t expert) const {
    std::vector<int32_t> made(kReplicas, -1);
    int32_t place = owner(expert);
    if (place < 0)
      return made;
    int64_t number = expert % kExpertsPerRank;
    made[0] = int32_t(place * kPhysicalPerRank + number);
    if (expert % 2 != 0)
      made[1] = int32_t((place + 1) % what.ranks * kPhysicalPerRank +
                        kExpertsPerRank + number);
    return made;
  }
  bool has(int64_t rank, int64_t expert) const {
    return what.hasReplicas
               ? llvm::any_of(replicas(expert),
                              [&](int32_t number) {
                                return number >= 0 &&
                                       number / kPhysicalPerRank == rank;
                              })
               : owner(expert) == rank;
  }
  /// Whether `rank` has an expert of that row of `sender`.
  bool owns(int64_t rank, int64_t sender, int64_t exchange, int64_t row) const {
    for (int64_t i = 0; i < kTopK; ++i)
      if (int32_t expert = id(sender, exchange, row * kTopK + i);
          expert >= 0 && expert < what.numExperts() && has(rank, expert))
        return true;
    return false;
  }
  bool needs(int64_t rank, int64_t sender, int64_t exchange, size_t part,
             int64_t element) const {
    const PartShape &shape = what.parts[part];
    return !shape.owned || rank == sender ||
           owns(rank, sender, exchange, element / shape.columns);
  }
  static int32_t value(int64_t rank, int64_t exchange, size_t part, int64_t i) {
    return int32_t((i * 7 + rank * 13 + exchange * 29 + int64_t(part) * 5) %
                   997);
  }
  /// Whether a slot of a row that a rank sums has something to add.
  bool hasSlot(int64_t rank, int64_t exchange, int64_t row,
               int64_t slot) const {
    if (what.numValid >= 0 && row >= what.numValid)
      return false;
    int64_t number = (row * 5 + rank * 3 + exchange) % 9;
    return number < kSlots + 1 ? slot < number : (slot + number + row) % 3 == 0;
  }
  int32_t addendOf(int64_t rank, int64_t exchange, int64_t i) const {
    int64_t row = i / what.parts.front().columns;
    bool counts = what.numValid < 0 || row < what.numValid;
    return what.hasAddend && counts ? value(rank, exchange, kSlots, i) : 0;
  }
  /// What a rank has of an element: given, or the sum that its kernel makes.
  int32_t part(int64_t rank, int64_t exchange, size_t part, int64_t i) const {
    if (!what.makesSums)
      return value(rank, exchange, part, i);
    int32_t sum = addendOf(rank, exchange, i);
    for (int64_t slot = 0; slot < kSlots; ++slot)
      if (hasSlot(rank, exchange, i / what.parts[part].columns, slot))
        sum += value(rank, exchange, size_t(slot), i);
    return sum;
  }
  /// An element of the rows that the kernel quantizes, which bf16 has.
  float uncoded(int64_t rank, int64_t exchange, int64_t i) const;
  /// What it makes of a rank's: codes and scales, as bits.
  using Codes = std::array<std::vector<int32_t>, 2>;
  const Codes &codes(int64_t rank, int64_t exchange) const;
  bool areMade(size_t part) const { return what.group > 0 && part < 2; }
  int32_t expected(int64_t rank, int64_t exchange, size_t part,
                   int64_t i) const {
    int64_t own = count(what.parts[part]);
    if (areMade(part))
      return codes(i / own, exchange)[part][size_t(i % own)];
    if (what.gathers())
      return value(i / own, exchange, part, i % own);
    int64_t offset = what.scatters() ? rank * own : 0;
    int32_t sum = 0;
    for (int64_t other = 0; other < what.ranks; ++other)
      if (!what.scatters() || needs(other, rank, exchange, part, i))
        sum += this->part(other, exchange, part, offset + i);
    return sum;
  }
  /// Each of them has that row's part of the sum as -0.0.
  bool allOwn(int64_t rank, int64_t exchange, size_t part, int64_t i) const {
    for (int64_t other = 0; other < what.ranks; ++other)
      if (!owns(other, rank, exchange, i / what.parts[part].columns))
        return false;
    return true;
  }
  float summed(int64_t rank, int64_t exchange, size_t part, int64_t i) const;
  uint64_t allocateIds(int64_t firstRank, int64_t numRanks, int64_t exchange);
  template <typename T>
  uint64_t allocateFilled(const std::vector<T> &values,
                          const std::string &name) {
    auto bytes = int64_t(values.size() * sizeof(T));
    uint64_t address = allocate(bytes, name);
    EXPECT_TRUE(simulator.write(address, values.data(), size_t(bytes)));
    return address;
  }
  std::vector<uint64_t> allocateSums(int64_t rank, int64_t exchange);
  uint64_t allocateUncoded(int64_t rank, int64_t exchange);
  uint64_t allocate(int64_t bytes, const std::string &name) {
    auto address =
        simulator.allocate(size_t(std::max<int64_t>(bytes, 16)), 256, name);
    EXPECT_TRUE(address);
    return *address;
  }
  void makeHeap(int64_t rank);
  /// What all parts take in a place, and as results of one exchange.
  int64_t getPlaceBytes() const;
  int64_t getResultBytes() const;
  /// Where rank's results of an exchange begin.
  uint64_t getResults(int64_t rank, int64_t exchange) const;

  const Case what;
  const Compiled &compiled;
  const std::string text;
  ptx::Simulator simulator;
  std::vector<uint64_t> heaps;
  mutable std::map<std::pair<int64_t, int64_t>, Codes> knownCodes;
  /// Per rank, exchange and part.
  std::map<std::tuple<int64_t, int64_t, size_t>, uint64_t> outs;
};

} // namespace moec::exchanges

#endif // MOEC_UNITTESTS_TARGET_EXCHANGERIG_H
