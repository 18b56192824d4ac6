//===- BulkForms.cpp - cp.async.bulk ----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Engine/BulkCopy.h"
#include "../Engine/Cluster.h"
#include "../Engine/Engine.h"
#include "../Machine/TensorMap.h"
#include "CopyForms.h"
#include "MbarrierForms.h"
#include "MemoryForms.h"

#include <algorithm>
#include <cstring>

using namespace moec::ptx;

namespace {

//===----------------------------------------------------------------------===//
// Boxes of tensors
//===----------------------------------------------------------------------===//

constexpr uint32_t kLoads = 1, kTensor = 2, kMulticasts = 4;
constexpr uint64_t kChunk = 16, kTensorAlignment = 128;

bool readTensorMap(Warp &warp, const Instruction &instruction, unsigned lane,
                   const AddressOperand &operand, TensorMapBits &map) {
  constexpr uint64_t alignment = 64;
  Warp::Place place =
      warp.locate(instruction, lane, Space::Generic,
                  addressOf(warp, operand, lane), sizeof(map), alignment);
  if (!place.bytes)
    return false;
  std::memcpy(&map, place.bytes, sizeof(map));
  size_t rank =
      instruction.operands.size() - (instruction.flags & kMulticasts ? 1 : 0);
  if (map.magic == TensorMapBits::kMagic && map.rank == rank)
    return true;
  warp.fail(instruction, lane,
            map.magic == TensorMapBits::kMagic
                ? "the tensor map has rank " + std::to_string(map.rank)
                : "no tensor map was encoded there");
  return false;
}

/// Adds one chunk per row of the box's innermost dimension, with the bytes of
/// it that are inside of the tensor.
void addRows(BulkCopy &copy, const TensorMapBits &map, const int32_t *origin,
             uint64_t sharedAddress) {
  uint64_t rowBytes = uint64_t(map.box[0]) * map.elementBytes;
  int64_t innerSize = int64_t(map.sizes[0]) + 1;
  int64_t begin = std::max<int64_t>(0, -int64_t(origin[0]));
  int64_t end = std::min<int64_t>(map.box[0], innerSize - int64_t(origin[0]));
  uint32_t index[kMaxRank] = {};
  while (true) {
    BulkCopy::Piece piece;
    piece.shared = sharedAddress;
    piece.bytes = uint32_t(rowBytes);
    bool isInside = begin < end;
    uint64_t address = map.address;
    for (unsigned i = 1; i < map.rank; ++i) {
      int64_t at = int64_t(origin[i]) + index[i];
      isInside &= at >= 0 && at <= int64_t(map.sizes[i]);
      address += uint64_t(at) * map.strides[i - 1];
    }
    if (isInside) {
      piece.begin = uint32_t(begin) * map.elementBytes;
      piece.end = uint32_t(end) * map.elementBytes;
      piece.global =
          address + uint64_t((origin[0] + begin) * int64_t(map.elementBytes));
    }
    copy.pieces.push_back(piece);
    sharedAddress += rowBytes;
    unsigned dimension = 1;
    while (dimension < map.rank && ++index[dimension] == map.box[dimension])
      index[dimension++] = 0;
    if (dimension >= map.rank)
      return;
  }
}

//===----------------------------------------------------------------------===//
// The instruction
//===----------------------------------------------------------------------===//

/// Fills in what is copied; addresses[0] is the destination, [1] the source,
/// [2] the mbarrier of a load. Operands: coordinates, or the number of bytes.
/// `owners` becomes the CTA that has the shared memory.
bool fillChunks(Warp &warp, const Instruction &instruction, unsigned lane,
                BulkCopy &copy, std::vector<Cta *> &owners) {
  bool loads = instruction.flags & kLoads,
       isTensor = instruction.flags & kTensor;
  const AddressOperand &shared = instruction.addresses[loads ? 0 : 1];
  const AddressOperand &global = instruction.addresses[loads ? 1 : 0];
  uint64_t bytes = 0, alignment = kChunk;
  TensorMapBits map;
  int32_t origin[kMaxRank] = {};
  if (isTensor) {
    if (!readTensorMap(warp, instruction, lane, global, map))
      return false;
    alignment = kTensorAlignment;
    bytes = map.elementBytes;
    for (unsigned i = 0; i < map.rank; ++i) {
      bytes *= map.box[i];
      origin[i] = warp.lanes<int32_t>(instruction.operands[i])[lane];
    }
  } else {
    bytes = warp.lanes<uint32_t>(instruction.operands[0])[lane];
    if (bytes == 0 || bytes % kChunk != 0) {
      warp.fail(instruction, lane,
                "copies " + std::to_string(bytes) +
                    " bytes; a multiple of 16 is needed");
      return false;
    }
  }
  Warp::Place inShared =
      warp.locate(instruction, lane, instruction.space,
                  addressOf(warp, shared, lane), bytes, alignment);
  if (!inShared.bytes)
    return false;
  copy.bytes = bytes;
  owners = {inShared.owner};
  if (isTensor) {
    copy.swizzleBytes = map.swizzleBytes;
    addRows(copy, map, origin, inShared.address);
    return true;
  }
  uint64_t address = addressOf(warp, global, lane);
  for (uint64_t done = 0; done < bytes;) {
    uint64_t size = std::min<uint64_t>(bytes - done, 64);
    BulkCopy::Piece piece;
    piece.shared = inShared.address + done;
    piece.global = address + done;
    piece.bytes = piece.end = uint32_t(size);
    copy.pieces.push_back(piece);
    done += size;
  }
  return warp.locate(instruction, lane, Space::Global, address, bytes, kChunk)
      .bytes;
}

/// Operand: the number of bytes. The range must exist, but its values do not
/// matter, so a prefetch races with nothing.
Step bulkPrefetch(Warp &warp, const Instruction &instruction, LaneMask mask) {
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    unsigned lane = unsigned(__builtin_ctz(rest));
    uint64_t bytes = warp.lanes<uint32_t>(instruction.operands[0])[lane];
    if (bytes == 0 || bytes % kChunk != 0)
      return warp.fail(instruction, lane,
                       "prefetches " + std::to_string(bytes) +
                           " bytes; a multiple of 16 is needed");
    uint64_t address = addressOf(warp, instruction.addresses[0], lane);
    if (!warp.locate(instruction, lane, Space::Global, address, bytes, kChunk)
             .bytes)
      return Step::Failed;
  }
  return Step::Next;
}

/// Replaces the CTA of a load by all that the mask names: each gets the bytes
/// at the same address of its own memory. False after an error.
bool addMulticast(Warp &warp, const Instruction &instruction, unsigned lane,
                  std::vector<Cta *> &owners) {
  const std::vector<Cta *> &ctas = warp.cta.cluster->ctas;
  uint32_t targets = warp.lanes<uint16_t>(instruction.operands.back())[lane];
  auto reject = [&](const std::string &text) {
    warp.fail(instruction, lane, text);
    return false;
  };
  if (owners.front() != &warp.cta)
    return reject("a multicast names memory of the thread's own CTA, and the "
                  "mask names the others");
  if (targets == 0 || targets >> ctas.size())
    return reject("the multicast mask " + std::to_string(targets) +
                  " names no CTAs, or others than the " +
                  std::to_string(ctas.size()) + " of the cluster");
  owners.clear();
  for (size_t rank = 0; rank < ctas.size(); ++rank) {
    if (!(targets >> rank & 1))
      continue;
    if (!ctas[rank])
      return reject("copies to CTA " + std::to_string(rank) +
                    " of the cluster, which has ended");
    owners.push_back(ctas[rank]);
  }
  return true;
}

/// Sets the CTAs to which the pieces of a copy go, or from which they come.
void setOwners(BulkCopy &copy, const std::vector<Cta *> &owners) {
  std::vector<BulkCopy::Piece> pieces;
  for (Cta *owner : owners)
    for (BulkCopy::Piece &piece : copy.pieces) {
      pieces.push_back(piece);
      pieces.back().owner = owner;
    }
  copy.pieces = std::move(pieces);
}

Step bulkCopy(Warp &warp, const Instruction &instruction, LaneMask mask) {
  Engine &engine = *warp.cta.launch.engine;
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    unsigned lane = unsigned(__builtin_ctz(rest));
    auto copy = std::make_shared<BulkCopy>(warp, instruction, lane);
    copy->loads = instruction.flags & kLoads;
    std::vector<Cta *> owners;
    if (!fillChunks(warp, instruction, lane, *copy, owners))
      return Step::Failed;
    if (copy->loads) {
      const Mbarrier *barrier = findMbarrier(warp, instruction, lane, 2);
      if (!barrier)
        return Step::Failed;
      if (barrier->cta != owners.front())
        return warp.fail(instruction, lane,
                         "the mbarrier is in another CTA than the bytes");
      copy->mbarrier = addressOf(warp, instruction.addresses[2], lane) &
                       ((uint64_t(1) << kClusterRankShift) - 1);
    }
    if (instruction.flags & kMulticasts &&
        !addMulticast(warp, instruction, lane, owners))
      return Step::Failed;
    setOwners(*copy, owners);
    copy->clock = warp.release(1u << lane);
    copy->finished = warp.finished[lane];
    if (copy->loads && !copy->knowsMbarriers(owners))
      return Step::Failed;
    if (!copy->loads)
      warp.bulkOf(lane).open.push_back(copy);
    ++engine.statistics.work.copies;
    engine.statistics.work.copiedBytes += copy->bytes;
    engine.start(copy);
  }
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

Step commit(Warp &warp, const Instruction &, LaneMask mask) {
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    BulkGroups &groups = warp.bulkOf(unsigned(__builtin_ctz(rest)));
    groups.committed.push_back(std::move(groups.open));
    groups.open.clear();
  }
  return Step::Next;
}

bool areDone(const std::vector<std::shared_ptr<BulkCopy>> &group) {
  return std::all_of(group.begin(), group.end(),
                     [](const auto &copy) { return copy->isDone(); });
}

/// `flags`: waits only for the reads.
Step waitGroup(Warp &warp, const Instruction &instruction, LaneMask mask) {
  Engine &engine = *warp.cta.launch.engine;
  bool onlyReads = instruction.flags;
  auto kept = size_t(instruction.immediate);
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    unsigned lane = unsigned(__builtin_ctz(rest));
    LaneMask self = 1u << lane;
    BulkGroups &groups = warp.bulkOf(lane);
    size_t over = groups.committed.size();
    over -= std::min(over, kept);
    for (size_t i = 0; i < over; ++i)
      for (const std::shared_ptr<BulkCopy> &copy : groups.committed[i]) {
        while (!(onlyReads ? copy->hasReadAll() : copy->isDone()))
          if (!copy->advance(engine))
            return Step::Failed;
        copy->isReadAwaited = true;
        warp.acquireUnit(self, copy->readUnit, copy->readTick);
      }
    // Completed groups leave the list; their writes are acquired by a wait that
    // asks for them.
    for (; over > 0 && areDone(groups.committed.front()); --over) {
      for (const std::shared_ptr<BulkCopy> &copy : groups.committed.front())
        groups.written[copy->writeUnit] = copy->writeTick;
      groups.committed.erase(groups.committed.begin());
    }
    if (onlyReads)
      continue;
    for (const auto &[unit, tick] : groups.written)
      warp.acquireUnit(self, unit, tick);
    groups.written.clear();
  }
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// Forms
//===----------------------------------------------------------------------===//

void decodeGroup(Decoder &d, bool waits) {
  if (!waits) {
    d.instruction.handler = commit;
    return;
  }
  d.instruction.flags = d.take("read");
  if (!d.expectOperands(1, 1))
    return;
  d.instruction.immediate = d.constant(0);
  d.instruction.handler = waitGroup;
}

/// The prefetch of a tensor box is an ordinary hint.
void decodePrefetch(Decoder &d) {
  if (d.take("tensor"))
    return decodeHint(d);
  bool isGlobal = d.take("L2") && d.take("global");
  bool hints = d.take("L2::cache_hint");
  if (!isGlobal || !d.expectOperands(size_t(2) + hints, size_t(2) + hints))
    return;
  d.address(size_t(0));
  d.value(1, 4);
  d.instruction.space = Space::Global;
  d.instruction.handler = bulkPrefetch;
}

/// Decodes the map and the coordinates of `[map, {x, y}]`.
void tensorOperand(Decoder &d, const RawOperand &operand, unsigned rank) {
  d.address(operand);
  if (operand.parts.size() != 2 || operand.parts[1].parts.size() != rank)
    return d.fail("expected a tensor map and " + std::to_string(rank) +
                  " coordinates");
  for (const RawOperand &coordinate : operand.parts[1].parts)
    d.value(coordinate, 4);
}

} // namespace

void moec::ptx::decodeBulk(Decoder &d) {
  if (d.take("commit_group"))
    return decodeGroup(d, false);
  if (d.take("wait_group"))
    return decodeGroup(d, true);
  if (d.take("prefetch"))
    return decodePrefetch(d);
  bool isTensor = d.take("tensor");
  std::string rank =
      isTensor ? d.takeOneOf({"1d", "2d", "3d", "4d", "5d"}) : "";
  std::string to = d.takeOneOf({"shared::cluster", "shared::cta", "global"});
  std::string from = d.takeOneOf({"global", "shared::cta"});
  if (isTensor)
    d.take("tile");
  bool loads = from == "global";
  bool hints = d.take("L2::cache_hint");
  bool multicasts = loads && d.take("multicast::cluster");
  if (to.empty() || from.empty() || loads == (to == "global") ||
      (isTensor && rank.empty()) ||
      !d.take(loads ? "mbarrier::complete_tx::bytes" : "bulk_group"))
    return;
  size_t expected = size_t(isTensor ? 2 : 3) + loads + multicasts + hints;
  if (!d.expectOperands(expected, expected))
    return;
  for (size_t i = 0; i < 2; ++i)
    if (isTensor && i == (loads ? 1 : 0))
      tensorOperand(d, d.operand(i), unsigned(rank[0] - '0'));
    else
      d.address(i);
  if (!isTensor)
    d.value(2, 4);
  if (loads)
    d.address(isTensor ? 2 : 3);
  if (multicasts)
    d.value(isTensor ? 3 : 4, 2);
  d.instruction.space =
      to == "shared::cluster" ? Space::Cluster : Space::Shared;
  d.instruction.flags = (loads ? kLoads : 0) | (isTensor ? kTensor : 0) |
                        (multicasts ? kMulticasts : 0);
  d.instruction.handler = bulkCopy;
}
