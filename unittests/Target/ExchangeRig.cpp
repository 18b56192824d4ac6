//===- ExchangeRig.cpp - ranks in one simulator -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExchangeRig.h"

#include "moert/PeerHeap.h"
#include "llvm/ADT/APFloat.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

using namespace moec;
using namespace moec::exchanges;
using moert::PeerHeap;
using moert::Status;

const char *const exchanges::kReader = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry reader(.param .u64 from, .param .u64 to, .param .u64 count)
{
  .reg .pred %p;
  .reg .b32 %r, %i;
  .reg .b64 %from, %to, %count, %index, %at;
  ld.param.u64 %from, [from];
  ld.param.u64 %to, [to];
  ld.param.u64 %count, [count];
  mov.u32 %i, %tid.x;
  cvt.u64.u32 %index, %i;
again:
  setp.ge.u64 %p, %index, %count;
  @%p bra done;
  shl.b64 %at, %index, 2;
  add.s64 %at, %from, %at;
  ld.global.u32 %r, [%at];
  shl.b64 %at, %index, 2;
  add.s64 %at, %to, %at;
  st.global.u32 [%at], %r;
  add.s64 %index, %index, 64;
  bra again;
done:
  ret;
}
)";

int64_t Rig::getBufferBytes() const {
  int64_t buffer = 0;
  for (const PartShape &part : what.parts)
    buffer += PeerHeap::partBytes(what.ranks, count(part) * 4);
  return (buffer + 255) / 256 * 256;
}

int64_t Rig::getResultBytes() const {
  return what.toResults ? getBufferBytes() : 0;
}

uint64_t Rig::getResults(int64_t rank, int64_t exchange) const {
  return heaps[size_t(rank)] + PeerHeap::kBuffers + 2 * getBufferBytes() +
         exchange * getResultBytes();
}

void Rig::makeHeap(int64_t rank) {
  int64_t buffer = getBufferBytes();
  std::vector<char> bytes(static_cast<size_t>(PeerHeap::kBuffers));
  auto set = [&](int64_t offset, int64_t value) {
    std::memcpy(&bytes[size_t(offset)], &value, sizeof(value));
  };
  set(PeerHeap::kIndex, rank);
  set(PeerHeap::kLimit, what.limit);
  set(PeerHeap::kBufferBytes, buffer);
  // Rows that no rank sends may be read, and are NaN.
  bytes.resize(size_t(PeerHeap::kBuffers + 2 * buffer +
                      what.exchanges * getResultBytes()),
               char(0xff));
  heaps.push_back(
      allocate(int64_t(bytes.size()), "heap " + std::to_string(rank)));
  EXPECT_TRUE(simulator.write(heaps.back(), bytes.data(), bytes.size()));
}

/// A rank's summand. Rows of other ranks for which it has no expert must not be
/// read.
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

/// Rows of slots are in another order than the slots. Rows of slots that
/// contribute nothing, or of rows for which the rank has no expert, are NaN.
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
      // Slots of invalid rows may have any value.
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

float Rig::unquantized(int64_t rank, int64_t exchange, int64_t i) const {
  int64_t columns = 4 * what.parts.front().columns;
  int64_t group = i % columns / what.group + i / columns;
  // One element determines the row's scale, in any lane and warp; in some rows
  // it is NaN.
  if (what.hasRowScales && i / columns % 7 == 3 &&
      i % columns == i / columns * 41 % columns)
    return std::numeric_limits<float>::quiet_NaN();
  if (what.hasRowScales && i % columns == (i / columns * 37 + 5) % columns)
    return std::ldexp(i % 2 == 0 ? 255.0F : -255.0F, int(group % 9));
  // Some groups are all zeros.
  if (group % 5 == 3)
    return 0;
  // Eight bits and a sign, with another magnitude for each group.
  int32_t digits = value(rank, exchange, 0, i * 3 + i / 11) % 256;
  return std::ldexp(float(i % 3 == 0 ? -digits : digits), int(group % 9) - 4);
}

const Rig::Rounded &Rig::rounded(int64_t rank, int64_t exchange) const {
  auto [it, isNew] = knownCodes.try_emplace({rank, exchange});
  Rounded &made = it->second;
  if (!isNew)
    return made;
  bool areRounded = what.hasRowScales && !what.areIntegers;
  float least = areRounded ? 1.0F / 512 : 1e-10F;
  float greatest = what.areIntegers ? 127 : 448;
  std::vector<uint8_t> bytes;
  for (int64_t first = 0; first < 4 * count(what.parts.front());
       first += what.group) {
    float largest = least;
    bool isNumber = true;
    for (int64_t i = first; i < first + what.group; ++i) {
      float value = unquantized(rank, exchange, i);
      isNumber &= !std::isnan(value);
      largest = std::max(largest, std::fabs(value));
    }
    if (!isNumber) {
      made[1].push_back(std::numeric_limits<int32_t>::max());
      bytes.insert(bytes.end(), size_t(what.group),
                   what.areIntegers ? 0 : 0x7F);
      continue;
    }
    float scale = largest / greatest;
    int32_t bits = 0;
    std::memcpy(&bits, &scale, sizeof(bits));
    made[1].push_back(bits);
    for (int64_t i = first; i < first + what.group; ++i) {
      float quotient = unquantized(rank, exchange, i) / scale;
      if (what.areIntegers) {
        bytes.push_back(uint8_t(int8_t(std::nearbyint(quotient))));
        continue;
      }
      llvm::APFloat code(quotient);
      bool losesInfo = false;
      code.convert(llvm::APFloat::Float8E4M3FN(),
                   llvm::APFloat::rmNearestTiesToEven, &losesInfo);
      bytes.push_back(uint8_t(code.bitcastToAPInt().getZExtValue()));
    }
  }
  made[0].resize(bytes.size() / sizeof(int32_t));
  std::memcpy(made[0].data(), bytes.data(), bytes.size());
  return made;
}

uint64_t Rig::allocateUnquantized(int64_t rank, int64_t exchange) {
  std::vector<uint16_t> rows;
  for (int64_t i = 0; i < 4 * count(what.parts.front()); ++i)
    rows.push_back(uint16_t(llvm::APFloat(unquantized(rank, exchange, i))
                                .bitcastToAPInt()
                                .getZExtValue() >>
                            16));
  return allocateFilled(rows, "unquantized");
}

Status Rig::run() {
  auto loaded = simulator.load(text, "kernel.ptx");
  if (!loaded)
    return loaded.status();
  moert::LaunchDims dims = compiled.dims;
  dims.grid = *compiled.grid->evaluate(what.tokens);
  auto reader = simulator.load(kReader, "reader.ptx");
  if (!reader)
    return reader.status();
  struct Launch {
    int64_t rank;
    std::vector<uint8_t> params;
    bool isReader = false;
  };
  std::vector<Launch> launches;
  for (int64_t rank = 0; rank < what.ranks; ++rank)
    for (int64_t exchange = 0; exchange < what.exchanges; ++exchange) {
      std::vector<uint64_t> slots;
      for (auto [part, shape] : llvm::enumerate(what.parts)) {
        std::vector<int32_t> values(size_t(sent(shape)));
        for (size_t i = 0; i < values.size(); ++i) {
          // The kernel's results are not in memory before it runs.
          int32_t number =
              areMade(part) ? -1 : value(rank, exchange, part, int64_t(i));
          float real = summed(rank, exchange, part, int64_t(i));
          std::memcpy(&values[i],
                      what.gathers() ? static_cast<void *>(&number) : &real,
                      sizeof(number));
        }
        slots.push_back(allocate(int64_t(values.size()) * 4, "in"));
        EXPECT_TRUE(
            simulator.write(slots.back(), values.data(), values.size() * 4));
      }
      std::vector<std::vector<uint64_t>> reads;
      uint64_t result = getResults(rank, exchange);
      for (auto [part, shape] : llvm::enumerate(what.parts)) {
        uint64_t out = allocate(received(shape) * 4, "out");
        outs[{rank, exchange, part}] = out;
        slots.push_back(what.toResults ? result : out);
        if (what.toResults)
          reads.push_back({result, out, uint64_t(received(shape))});
        result += PeerHeap::partBytes(what.ranks, count(shape) * 4);
      }
      if (what.spread != Spread::None) {
        slots.push_back(allocateIds(rank, 1, exchange));
        if (what.scatters())
          slots.push_back(allocateIds(0, what.ranks, exchange));
        std::vector<int32_t> table;
        for (int64_t expert = 0; expert < what.numExperts(); ++expert)
          llvm::append_range(table,
                             what.hasReplicas
                                 ? replicas(expert)
                                 : std::vector<int32_t>{destination(expert)});
        slots.push_back(allocateFilled(table, "destinations"));
      }
      if (what.makesSums)
        llvm::append_range(slots, allocateSums(rank, exchange));
      if (what.group > 0)
        slots.push_back(allocateUnquantized(rank, exchange));
      for (int64_t distance = 0; distance < what.ranks; ++distance)
        slots.push_back(heaps[size_t((rank + distance) % what.ranks)]);
      if (llvm::is_contained(what.missing, rank * 100 + exchange))
        break;
      for (int64_t chunk = 0; chunk < what.chunks; ++chunk) {
        std::vector<uint64_t> all = slots;
        if (what.chunks > 1)
          all.push_back(
              uint64_t(chunk * what.parts.front().columns / what.chunks));
        all.push_back(uint64_t(what.tokens));
        auto params = ptx::packParams(*(*loaded)->find("kernel"), all);
        if (!params)
          return params.status();
        launches.push_back({rank, *params});
      }
      for (const std::vector<uint64_t> &read : reads) {
        auto params = ptx::packParams(*(*reader)->find("reader"), read);
        if (!params)
          return params.status();
        launches.push_back({rank, *params, /*isReader=*/true});
      }
    }
  std::map<int64_t, ptx::WorkId> last;
  for (const Launch &launch : launches) {
    std::vector<ptx::WorkId> after;
    if (auto before = last.find(launch.rank); before != last.end())
      after.push_back(before->second);
    moert::LaunchDims readerDims;
    readerDims.grid = 1;
    readerDims.block = kReaderThreads;
    auto work =
        launch.isReader
            ? simulator.submit(**reader, "reader", readerDims, launch.params,
                               after)
            : simulator.submit(**loaded, "kernel", dims, launch.params, after);
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
    // Later exchanges find data of earlier ones in the heap.
    if (exchange > 1 || !what.gathers() || !what.parts[part].routed)
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
