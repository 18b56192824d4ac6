//===- ExchangeRig.h - ranks in one simulator -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Ranks are kernels side by side in one simulator, whose memory holds a heap
// for each.

#ifndef MOEC_UNITTESTS_TARGET_EXCHANGERIG_H
#define MOEC_UNITTESTS_TARGET_EXCHANGERIG_H

#include "moec/PtxSim/Simulator.h"
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

/// One part: f32 or i32 rows with this number of columns, or one row whatever
/// the tokens. Parts that go only to destination ranks are f32, in chunks of 16
/// bytes.
struct PartShape {
  int64_t columns;
  bool perToken = true;
  bool routed = false;
};

/// Distribution of rows over experts.
enum class Spread {
  /// All rows go to all ranks.
  None,
  /// Any expert, some of which no rank has, and invalid ids.
  Even,
  /// Only experts of one rank.
  OneRank,
};

/// Experts of the participating ranks, and some experts that none of these has.
constexpr int64_t kExpertsPerRank = 3, kTopK = 3;
/// Physical experts of a rank, and the most replicas of an expert in the table.
constexpr int64_t kPhysicalPerRank = 2 * kExpertsPerRank, kReplicas = 3;

/// Slots of a row whose sum the kernel computes itself: in some rows none
/// contributes, in others all do.
constexpr int64_t kSlots = 5;

struct Case {
  llvm::StringRef kind;
  int64_t ranks;
  int64_t tokens;
  std::vector<PartShape> parts = {{8}, {3}, {1, false}};
  int64_t exchanges = 4;
  int64_t limit = int64_t(1) << 40;
  /// Ranks that skip an exchange, as rank * 100 + exchange.
  std::vector<int64_t> missing = {};
  Spread spread = Spread::None;
  /// All summands are -0.0.
  bool isZero = false;
  /// Field of the config.
  int64_t leastRows = 0, threads = 64;
  /// Whether experts have replicas: on their rank and, the odd ones, on the
  /// next one too.
  bool hasReplicas = false;
  /// The kernel computes the sums of one part, which it moves.
  bool makesSums = false;
  /// With these sums: an addend, and the number of valid rows; -1: all.
  bool hasAddend = false;
  int64_t numValid = -1;
  /// With these sums: the number of launches per exchange, each of some
  /// columns.
  int64_t chunks = 1;
  /// The kernel quantizes the rows of a gather whose first two parts are
  /// quantized values, four per element, and scales: this number of values per
  /// scale.
  int64_t group = 0;
  /// With these: one scale per row, for quantized values of this type.
  bool hasRowScales = false;
  bool areIntegers = false;
  /// A gather writes directly to the memory that other ranks read, another part
  /// for each exchange; a kernel behind it reads it.
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

/// A kernel `reader` of one CTA that copies words. Arguments: from, to, number
/// of words.
extern const char *const kReader;
constexpr int64_t kReaderThreads = 64;

/// Changes the text of a kernel.
using Mutation = std::string (*)(std::string);

/// Limit for concurrent kernels, none of which may run forever.
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
  /// Whether all ranks have the right values in the rows that they need.
  bool isRight() const;
  /// Gathered rows that a rank does not need and that were not sent to it.
  int64_t countLeftOut() const;
  int64_t readWord(int64_t rank, int64_t offset) const {
    int64_t word = 0;
    EXPECT_TRUE(simulator.read(&word, heaps[rank] + offset, sizeof(word)));
    return word;
  }

private:
  /// Elements of a part that one rank sends, or receives of a sum.
  int64_t count(const PartShape &part) const {
    return part.columns * (part.perToken ? what.tokens : 1);
  }
  int64_t sent(const PartShape &part) const {
    return count(part) * (what.scatters() ? what.ranks : 1);
  }
  int64_t received(const PartShape &part) const {
    return count(part) * (what.gathers() ? what.ranks : 1);
  }
  /// The id of a slot of a row of `rank`.
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
  int32_t destination(int64_t expert) const {
    int64_t index = expert / kExpertsPerRank;
    return index < what.ranks ? int32_t(index) : -1;
  }
  /// Physical numbers of an expert.
  std::vector<int32_t> replicas(int64_t expert) const {
    std::vector<int32_t> made(kReplicas, -1);
    int32_t index = destination(expert);
    if (index < 0)
      return made;
    int64_t number = expert % kExpertsPerRank;
    made[0] = int32_t(index * kPhysicalPerRank + number);
    if (expert % 2 != 0)
      made[1] = int32_t((index + 1) % what.ranks * kPhysicalPerRank +
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
               : destination(expert) == rank;
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
    return !shape.routed || rank == sender ||
           owns(rank, sender, exchange, element / shape.columns);
  }
  static int32_t value(int64_t rank, int64_t exchange, size_t part, int64_t i) {
    return int32_t((i * 7 + rank * 13 + exchange * 29 + int64_t(part) * 5) %
                   997);
  }
  /// Whether a slot of a row that a rank sums contributes.
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
  /// A rank's value of an element: given, or the sum that its kernel computes.
  int32_t part(int64_t rank, int64_t exchange, size_t part, int64_t i) const {
    if (!what.makesSums)
      return value(rank, exchange, part, i);
    int32_t sum = addendOf(rank, exchange, i);
    for (int64_t slot = 0; slot < kSlots; ++slot)
      if (hasSlot(rank, exchange, i / what.parts[part].columns, slot))
        sum += value(rank, exchange, size_t(slot), i);
    return sum;
  }
  /// An element of the rows that the kernel quantizes; exact in bf16.
  float unquantized(int64_t rank, int64_t exchange, int64_t i) const;
  /// A rank's quantized values and scales, as bits.
  using Rounded = std::array<std::vector<int32_t>, 2>;
  const Rounded &rounded(int64_t rank, int64_t exchange) const;
  bool areMade(size_t part) const { return what.group > 0 && part < 2; }
  int32_t expected(int64_t rank, int64_t exchange, size_t part,
                   int64_t i) const {
    int64_t own = count(what.parts[part]);
    if (areMade(part))
      return rounded(i / own, exchange)[part][size_t(i % own)];
    if (what.gathers())
      return value(i / own, exchange, part, i % own);
    int64_t offset = what.scatters() ? rank * own : 0;
    int32_t sum = 0;
    for (int64_t other = 0; other < what.ranks; ++other)
      if (!what.scatters() || needs(other, rank, exchange, part, i))
        sum += this->part(other, exchange, part, offset + i);
    return sum;
  }
  /// Each rank's summand of that row is -0.0.
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
  uint64_t allocateUnquantized(int64_t rank, int64_t exchange);
  uint64_t allocate(int64_t bytes, const std::string &name) {
    auto address =
        simulator.allocate(size_t(std::max<int64_t>(bytes, 16)), 256, name);
    EXPECT_TRUE(address);
    return *address;
  }
  void makeHeap(int64_t rank);
  /// Bytes of all parts in a receive buffer, and in the results of one
  /// exchange.
  int64_t getBufferBytes() const;
  int64_t getResultBytes() const;
  /// Offset of the rank's results of an exchange.
  uint64_t getResults(int64_t rank, int64_t exchange) const;

  const Case what;
  const Compiled &compiled;
  const std::string text;
  ptx::Simulator simulator;
  std::vector<uint64_t> heaps;
  mutable std::map<std::pair<int64_t, int64_t>, Rounded> knownCodes;
  /// Per rank, exchange and part.
  std::map<std::tuple<int64_t, int64_t, size_t>, uint64_t> outs;
};

} // namespace moec::exchanges

#endif // MOEC_UNITTESTS_TARGET_EXCHANGERIG_H
