//===- ExchangeTest.cpp - kernels that several ranks run --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Ranks are kernels side by side in one simulator, whose memory holds a heap
// for each.

#include "moec/Dialect/Tile/Exchange.h"
#include "moec/Conversion/Passes.h"
#include "moec/Ptx/Sim/Simulator.h"
#include "moec/Target/NVPTX.h"
#include "moec/Transforms/Passes.h"
#include "moert/PeerHeap.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>

using namespace mlir;
using namespace moec;
using moert::PeerHeap;
using moert::Status;

namespace {

/// One part: f32 or i32 rows of so many columns, or one row whatever the
/// tokens. Those of owners alone are f32, in pieces of 16 bytes.
struct PartShape {
  int64_t columns;
  bool perToken = true;
  bool owned = false;
};

struct Compiled {
  std::string ptx;
  std::optional<moert::Expr> grid;
  moert::LaunchDims dims;
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
  int64_t leastRows = 0;
  /// Whether experts have replicas: on their rank and, the odd ones, on the
  /// next one too.
  bool hasReplicas = false;
  /// The kernel makes the sums that it moves, of one part.
  bool makesSums = false;
  /// With those an addend, and so many rows that count; -1: all.
  bool hasAddend = false;
  int64_t numValid = -1;

  bool gathers() const { return kind == "all_gather"; }
  bool scatters() const { return kind == "reduce_scatter"; }
  int64_t numExperts() const { return (ranks + 1) * kExpertsPerRank; }
};

std::string makeKernel(const Case &what) {
  std::string kind = what.kind.str();
  int64_t ranks = what.ranks;
  std::string arguments, ins, inTypes, outs, outTypes, heaps, heapTypes, ids,
      idTypes, owners, ownerType, owned;
  auto add = [&](std::string &names, std::string &types,
                 const std::string &name, const std::string &type) {
    names += (names.empty() ? "" : ", ") + name;
    types += (types.empty() ? "" : ", ") + type;
    arguments += name + ": " + type + ", ";
  };
  auto type = [&](const PartShape &part, int64_t rows) {
    return "memref<" + (part.perToken ? "?" : std::to_string(rows)) + "x" +
           std::to_string(part.columns) + "x" +
           (what.gathers() && !part.owned ? "i32" : "f32") + ">";
  };
  int64_t toAll = what.gathers() ? ranks : 1;
  int64_t toOne = what.scatters() ? ranks : 1;
  for (auto [i, part] : llvm::enumerate(what.parts)) {
    add(ins, inTypes, "%in" + std::to_string(i), type(part, toOne));
    if (part.owned)
      owned += (owned.empty() ? "" : ", ") + std::to_string(i);
  }
  for (auto [i, part] : llvm::enumerate(what.parts))
    add(outs, outTypes, "%out" + std::to_string(i), type(part, toAll));
  std::string whose;
  if (what.spread != Spread::None) {
    for (int64_t i = 0; i < (what.scatters() ? 2 : 1); ++i)
      add(ids, idTypes, "%ids" + std::to_string(i),
          "memref<?x" + std::to_string(kTopK) + "xi32>");
    add(owners, ownerType, "%owners",
        "memref<" + std::to_string(what.numExperts()) +
            (what.hasReplicas ? "x" + std::to_string(kReplicas) : "") +
            "xi32>");
    whose = " owners(" + owners + " : " + ownerType + ") ids(" + ids + " : " +
            idTypes + ") owned [" + owned + "]";
  }
  if (what.makesSums) {
    std::string sums, sumTypes, addend, addendType, valid, validType;
    add(sums, sumTypes, "%rows", type(what.parts.front(), 0));
    add(sums, sumTypes, "%position",
        "memref<?x" + std::to_string(kSlots) + "xi32>");
    whose += " sums_of(" + sums + " : " + sumTypes + ")";
    if (what.hasAddend) {
      add(addend, addendType, "%addend", type(what.parts.front(), 0));
      whose += " addend(" + addend + " : " + addendType + ")";
    }
    if (what.numValid >= 0) {
      add(valid, validType, "%valid", "memref<1xi32>");
      whose += " num_valid_tokens(" + valid + " : " + validType + ")";
    }
  }
  for (int64_t i = 0; i < ranks; ++i)
    add(heaps, heapTypes, "%heap" + std::to_string(i), "memref<?xi64>");
  // Several rounds for a few hundred rows.
  return "tile.kernel @kernel(" + arguments +
         "%tokens: i64) attributes {form = #tile.kernel_form<resident = "
         "true>} {\n  tile.exchange " +
         kind + " tokens(%tokens) ins(" + ins + " : " + inTypes + ") outs(" +
         outs + " : " + outTypes + ")" + whose + " heaps(" + heaps + " : " +
         heapTypes +
         ") {config = #tile.sm80_exchange<ctas = 3, threads = 64, pieces = 2" +
         (what.leastRows > 0
              ? ", least_rows = " + std::to_string(what.leastRows)
              : "") +
         ">" +
         (what.hasReplicas ? ", experts_per_owner = " +
                                 std::to_string(kPhysicalPerRank) + " : i64"
                           : "") +
         "}\n  tile.return\n}\n";
}

/// Kernels are compiled once.
const Compiled &compile(const std::string &text) {
  static std::map<std::string, Compiled> known;
  auto [it, isNew] = known.try_emplace(text);
  Compiled &made = it->second;
  if (!isNew)
    return made;
  MLIRContext context;
  context.loadDialect<tile::TileDialect>();
  context.disableMultithreading();
  auto module = parseSourceString<ModuleOp>(text, &context);
  EXPECT_TRUE(module) << text;
  if (!module)
    return made;
  PassManager lower(&context);
  TileAssignConfigPassOptions options;
  options.target = "sm_90a";
  lower.addPass(createTileAssignConfigPass(options));
  EXPECT_TRUE(succeeded(lower.run(*module)));
  auto kernel = *module->getOps<tile::KernelOp>().begin();
  made.grid = kernel.getGrid()->getExpr();
  made.dims.block = kernel.getBlockAttr().getInt();
  made.dims.resident = kernel.getResident();
  PassManager convert(&context);
  buildTileToNVVMPipeline(convert, "sm_90a");
  EXPECT_TRUE(succeeded(convert.run(*module)));
  if (auto ptx = emitPTX(*module, {"sm_90a"}); succeeded(ptx))
    made.ptx = *ptx;
  return made;
}

/// Changes the text of a kernel.
using Mutation = std::string (*)(std::string);

class Rig {
public:
  Rig(const Case &what, uint64_t seed, Mutation mutation = nullptr)
      : what(what), compiled(compile(makeKernel(what))),
        text(mutation ? mutation(compiled.ptx) : compiled.ptx),
        simulator(makeOptions(seed)) {
    for (int64_t rank = 0; rank < what.ranks; ++rank)
      makeHeap(rank);
  }

  Status run();
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
  static ptx::SimulatorOptions makeOptions(uint64_t seed) {
    ptx::SimulatorOptions options;
    options.seed = seed;
    options.maxWarpInstructions = 20000000;
    return options;
  }

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
  int32_t expected(int64_t rank, int64_t exchange, size_t part,
                   int64_t i) const {
    int64_t own = count(what.parts[part]);
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
  uint64_t allocate(int64_t bytes, const std::string &name) {
    auto address =
        simulator.allocate(size_t(std::max<int64_t>(bytes, 16)), 256, name);
    EXPECT_TRUE(address);
    return *address;
  }
  void makeHeap(int64_t rank);

  const Case what;
  const Compiled &compiled;
  const std::string text;
  ptx::Simulator simulator;
  std::vector<uint64_t> heaps;
  /// Per rank, exchange and part.
  std::map<std::tuple<int64_t, int64_t, size_t>, uint64_t> outs;
};

void Rig::makeHeap(int64_t rank) {
  int64_t place = 0;
  for (const PartShape &part : what.parts)
    place += PeerHeap::partBytes(what.ranks, count(part) * 4);
  place = (place + 255) / 256 * 256;
  std::vector<char> bytes(static_cast<size_t>(PeerHeap::kPlaces));
  auto set = [&](int64_t offset, int64_t value) {
    std::memcpy(&bytes[size_t(offset)], &value, sizeof(value));
  };
  set(PeerHeap::kIndex, rank);
  set(PeerHeap::kLimit, what.limit);
  set(PeerHeap::kPlaceBytes, place);
  // What no rank sends may be read, and is NaN.
  bytes.resize(size_t(PeerHeap::kPlaces + 2 * place), char(0xff));
  heaps.push_back(
      allocate(int64_t(bytes.size()), "heap " + std::to_string(rank)));
  EXPECT_TRUE(simulator.write(heaps.back(), bytes.data(), bytes.size()));
}

/// What a rank gives to a sum: nothing that may be read where it is no owner of
/// another rank's row.
float Rig::summed(int64_t rank, int64_t exchange, size_t part,
                  int64_t i) const {
  int64_t own = count(what.parts[part]);
  int64_t to = what.scatters() ? i / own : rank;
  if (what.makesSums || !needs(rank, to, exchange, part, i % own))
    return std::numeric_limits<float>::quiet_NaN();
  if (what.isZero)
    return owns(rank, to, exchange, i % own / what.parts[part].columns) ? -0.0F
                                                                        : 0.0F;
  return float(value(rank, exchange, part, i));
}

uint64_t Rig::allocateIds(int64_t firstRank, int64_t numRanks,
                          int64_t exchange) {
  std::vector<int32_t> ids;
  for (int64_t rank = firstRank; rank < firstRank + numRanks; ++rank)
    for (int64_t i = 0; i < what.tokens * kTopK; ++i)
      ids.push_back(id(rank, exchange, i));
  return allocateFilled(ids, "ids");
}

/// Rows of slots lie in another order than the slots, and those of slots that
/// add nothing, or of rows that the rank does not own, are NaN.
std::vector<uint64_t> Rig::allocateSums(int64_t rank, int64_t exchange) {
  const PartShape &shape = what.parts.front();
  int64_t elements = sent(shape), numRows = elements / shape.columns;
  std::vector<float> rows(size_t(elements * kSlots),
                          std::numeric_limits<float>::quiet_NaN());
  std::vector<int32_t> positions(size_t(numRows * kSlots), -1);
  std::vector<float> addends;
  for (int64_t i = 0; i < elements; ++i) {
    int64_t row = i / shape.columns, own = count(shape);
    int64_t to = what.scatters() ? i / own : rank;
    addends.push_back(float(addendOf(rank, exchange, i)));
    for (int64_t slot = 0; slot < kSlots; ++slot) {
      int64_t number = row * kSlots + slot;
      int64_t position = numRows * kSlots - 1 - number;
      // Slots of rows that do not count may have anything.
      if (hasSlot(rank, exchange, row, slot) ||
          (what.numValid >= 0 && row >= what.numValid))
        positions[size_t(number)] = int32_t(position);
      if (hasSlot(rank, exchange, row, slot) &&
          needs(rank, to, exchange, 0, i % own))
        rows[size_t(position * shape.columns + i % shape.columns)] =
            float(value(rank, exchange, size_t(slot), i));
    }
  }
  std::vector<uint64_t> made{allocateFilled(rows, "rows"),
                             allocateFilled(positions, "positions")};
  if (what.hasAddend)
    made.push_back(allocateFilled(addends, "addend"));
  if (what.numValid >= 0)
    made.push_back(
        allocateFilled(std::vector<int32_t>{int32_t(what.numValid)}, "valid"));
  return made;
}

Status Rig::run() {
  auto loaded = simulator.load(text, "kernel.ptx");
  if (!loaded)
    return loaded.status();
  moert::LaunchDims dims = compiled.dims;
  dims.grid = *compiled.grid->evaluate(what.tokens);
  struct Launch {
    int64_t rank, exchange;
    std::vector<uint8_t> params;
  };
  std::vector<Launch> launches;
  for (int64_t rank = 0; rank < what.ranks; ++rank)
    for (int64_t exchange = 0; exchange < what.exchanges; ++exchange) {
      std::vector<uint64_t> slots;
      for (auto [part, shape] : llvm::enumerate(what.parts)) {
        std::vector<int32_t> values(size_t(sent(shape)));
        for (size_t i = 0; i < values.size(); ++i) {
          int32_t number = value(rank, exchange, part, int64_t(i));
          float real = summed(rank, exchange, part, int64_t(i));
          std::memcpy(&values[i],
                      what.gathers() ? static_cast<void *>(&number) : &real,
                      sizeof(number));
        }
        slots.push_back(allocate(int64_t(values.size()) * 4, "in"));
        EXPECT_TRUE(
            simulator.write(slots.back(), values.data(), values.size() * 4));
      }
      for (auto [part, shape] : llvm::enumerate(what.parts)) {
        slots.push_back(allocate(received(shape) * 4, "out"));
        outs[{rank, exchange, part}] = slots.back();
      }
      if (what.spread != Spread::None) {
        slots.push_back(allocateIds(rank, 1, exchange));
        if (what.scatters())
          slots.push_back(allocateIds(0, what.ranks, exchange));
        std::vector<int32_t> table;
        for (int64_t expert = 0; expert < what.numExperts(); ++expert)
          llvm::append_range(table, what.hasReplicas
                                        ? replicas(expert)
                                        : std::vector<int32_t>{owner(expert)});
        slots.push_back(allocateFilled(table, "owners"));
      }
      if (what.makesSums)
        llvm::append_range(slots, allocateSums(rank, exchange));
      for (int64_t distance = 0; distance < what.ranks; ++distance)
        slots.push_back(heaps[size_t((rank + distance) % what.ranks)]);
      slots.push_back(uint64_t(what.tokens));
      if (llvm::is_contained(what.missing, rank * 100 + exchange))
        break;
      auto params = ptx::packParams(*(*loaded)->find("kernel"), slots);
      if (!params)
        return params.status();
      launches.push_back({rank, exchange, *params});
    }
  std::map<int64_t, ptx::WorkId> last;
  for (const Launch &launch : launches) {
    std::vector<ptx::WorkId> after;
    if (launch.exchange > 0)
      after.push_back(last[launch.rank]);
    auto work =
        simulator.submit(**loaded, "kernel", dims, launch.params, after);
    if (!work)
      return work.status();
    last[launch.rank] = *work;
  }
  return simulator.run();
}

bool Rig::isRight() const {
  for (const auto &[where, address] : outs) {
    auto [rank, exchange, part] = where;
    std::vector<int32_t> values(size_t(received(what.parts[part])));
    if (!simulator.read(values.data(), address, values.size() * 4))
      return false;
    for (size_t i = 0; i < values.size(); ++i) {
      int32_t wanted = expected(rank, exchange, part, int64_t(i));
      if (!what.gathers()) {
        float real = 0;
        std::memcpy(&real, &values[i], sizeof(real));
        if (what.isZero
                ? real != 0 || std::signbit(real) !=
                                   allOwn(rank, exchange, part, int64_t(i))
                : real != float(wanted))
          return false;
        continue;
      }
      int64_t own = count(what.parts[part]);
      bool isNeeded =
          needs(rank, int64_t(i) / own, exchange, part, int64_t(i) % own);
      if (isNeeded && values[i] != wanted)
        return false;
    }
  }
  return true;
}

int64_t Rig::countLeftOut() const {
  int64_t count = 0;
  for (const auto &[where, address] : outs) {
    auto [rank, exchange, part] = where;
    // Later ones find in the heap what came before.
    if (exchange > 1 || !what.gathers() || !what.parts[part].owned)
      continue;
    int64_t own = this->count(what.parts[part]);
    for (int64_t i = 0; i < own * what.ranks; ++i) {
      int32_t value = 0;
      EXPECT_TRUE(
          simulator.read(&value, address + uint64_t(i) * 4, sizeof(value)));
      bool isNeeded = needs(rank, i / own, exchange, part, i % own);
      EXPECT_TRUE(!isNeeded || value != -1);
      count += !isNeeded && value == -1;
    }
  }
  return count;
}

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

Case makeReplicated(Case what) {
  what = makeOwned(what);
  what.hasReplicas = true;
  return what;
}

Case makeSums(Case what, PartShape part, Spread spread = Spread::None) {
  what.parts = {part};
  what.makesSums = true;
  what.spread = spread;
  return what;
}

Case makeWhole(Case what, int64_t numValid) {
  what.hasAddend = true;
  what.numValid = numValid;
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
    makeOwned({"reduce_scatter", 2, 40}),
    makeOwned({"reduce_scatter", 4, 9}),
    makeOwned({"reduce_scatter", 4, 9}, Spread::OneRank),
    makeOwned({"reduce_scatter", 8, 5}),
    makeOwned({"reduce_scatter", 16, 2}),
    makeReplicated({"all_gather", 4, 9}),
    makeReplicated({"all_gather", 8, 5}),
    makeReplicated({"reduce_scatter", 4, 9}),
    makeReplicated({"reduce_scatter", 8, 5}),
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
         ", seed " + std::to_string(seed);
}

} // namespace

TEST(Exchange, AllRanksGetWhatTheyShould) {
  for (const Case &what : kCases)
    for (uint64_t seed = 0; seed < 6; ++seed) {
      Rig rig(what, seed);
      Status status = rig.run();
      ASSERT_TRUE(status) << describe(what, seed) << ": " << status.message();
      EXPECT_TRUE(rig.isRight()) << describe(what, seed);
      EXPECT_EQ(rig.countLeftOut() > 0,
                what.gathers() && what.spread != Spread::None)
          << describe(what, seed);
      for (int64_t rank = 0; rank < what.ranks; ++rank) {
        EXPECT_EQ(rig.readWord(rank, PeerHeap::kEpochs), what.exchanges);
        EXPECT_EQ(rig.readWord(rank, PeerHeap::kEpochs +
                                         8 * (PeerHeap::kMaxCtas - 1)),
                  what.exchanges);
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
  for (int64_t exchange : {0, 2}) {
    Case what = {"all_gather", 3, 37};
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
        makeSums({"reduce_scatter", 4, 37}, {132}),
        makeSums({"reduce_scatter", 2, 40}, {132, true, true}, Spread::Even),
        makeSums({"all_reduce", 2, 80}, {132})}) {
    Rig right(what, 0);
    EXPECT_TRUE(right.run() && right.isRight()) << describe(what, 0);
    for (auto [name, mutation] : mutations) {
      uint64_t noticed = 0;
      for (uint64_t seed = 0; seed < seeds; ++seed) {
        Rig rig(what, seed, mutation);
        noticed += !rig.run() || !rig.isRight();
      }
      std::string kind = what.kind.str() + " of " + std::to_string(what.ranks) +
                         (what.spread == Spread::None ? "" : " to owners") +
                         (what.makesSums ? " of its sums" : "");
      EXPECT_GT(noticed, 0U) << name << ", " << kind;
      RecordProperty(kind + ": " + name, int(noticed));
      llvm::outs() << kind << ", " << name << ": noticed with " << noticed
                   << " of " << seeds << " seeds\n";
    }
  }
}
