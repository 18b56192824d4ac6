//===- BulkCopy.cpp - a copy by the copy engine -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BulkCopy.h"

#include "../Machine/TensorMap.h"
#include "Cluster.h"

#include <algorithm>
#include <cstring>
#include <tuple>

using namespace moec::ptx;

/// Granularity of swizzling, in bytes.
static constexpr uint32_t kChunk = 16;

BulkCopy::BulkCopy(Warp &warp, const Instruction &instruction, unsigned lane)
    : warp(warp), source(instruction), lane(lane) {
  cta = &warp.cta;
  this->instruction = instruction.id;
  std::tie(readUnit, readTick) = cta->newAsyncUnit();
  std::tie(writeUnit, writeTick) = cta->newAsyncUnit();
}

bool BulkCopy::report(const std::string &text) {
  warp.fail(source, lane, text);
  return false;
}

Accessor BulkCopy::accessor(bool isShared, bool isWrite) const {
  const Engine &engine = *cta->launch.engine;
  Accessor made;
  made.oracle = &engine;
  made.clock = clock.get();
  made.finished = finished.get();
  made.horizon = isShared ? cta->cluster->firstSerial : engine.horizon;
  made.access.who = Access::pack(cta->serial, isWrite ? writeUnit : readUnit,
                                 /*isStrong=*/false);
  made.access.tick = isWrite ? writeTick : readTick;
  made.access.lanes = 1;
  made.access.id = instruction;
  return made;
}

bool BulkCopy::check(Region &region, uint64_t address, uint64_t size,
                     bool isWrite) {
  const Engine &engine = *cta->launch.engine;
  bool isShared = region.shadow.isOfCta();
  if (engine.options.checkRaces) {
    Accessor now = accessor(isShared, isWrite);
    uint64_t offset = address - region.address;
    Conflict conflict = isWrite ? region.shadow.write(offset, size, now)
                                : region.shadow.read(offset, size, now);
    if (conflict)
      return report(engine.describeConflict(conflict, isWrite,
                                            /*isAsync=*/true) +
                    ": " + std::to_string(size) + " bytes of " + region.name +
                    " at offset " + std::to_string(offset));
  }
  if (isWrite)
    region.markInitialized(address, size);
  else if (isShared && engine.options.checkInitialized &&
           !region.isInitialized(address, size))
    return report("reads memory that was never written: " +
                  std::to_string(size) + " bytes of " + region.name +
                  " at offset " + std::to_string(address - region.address));
  return true;
}

Region *BulkCopy::findGlobal(uint64_t address, uint64_t size) {
  Region *region = cta->launch.engine->memory.find(address, source.regionHint);
  if (region && region->contains(address, size))
    return region;
  report("out of bounds: " + std::to_string(size) + " bytes of global memory" +
         (region ? " at offset " + std::to_string(address - region->address) +
                       " of " + region->name + ", which has " +
                       std::to_string(region->size) + " bytes"
                 : " where no memory is allocated"));
  return nullptr;
}

bool BulkCopy::knowsMbarriers(const std::vector<Cta *> &owners) {
  constexpr uint64_t kBytes = 8;
  const Engine &engine = *cta->launch.engine;
  for (Cta *owner : owners) {
    auto barrier = owner->mbarriers.find(mbarrier);
    if (barrier == owner->mbarriers.end())
      return report("there is no mbarrier at shared address " +
                    std::to_string(mbarrier) + " of cta " +
                    std::to_string(owner->index));
    if (!engine.options.checkRaces)
      continue;
    Region &shared = owner->shared;
    Conflict conflict =
        shared.shadow.checkWrite(mbarrier - shared.address, kBytes,
                                 accessor(/*isShared=*/true, /*isWrite=*/true));
    bool isFenced =
        conflict.kind == Conflict::Kind::Unfenced && barrier->second.isFenced;
    if (conflict && !isFenced)
      return report("the mbarrier: " +
                    engine.describeConflict(conflict, /*isWrite=*/true,
                                            /*isAsync=*/true));
  }
  return true;
}

bool BulkCopy::usesShared(const Cta &owner) const {
  return std::any_of(pieces.begin(), pieces.end(),
                     [&](const Piece &piece) { return piece.owner == &owner; });
}

uint64_t BulkCopy::chunkAddress(const Piece &piece, uint32_t offset) const {
  return swizzleAddress(piece.shared + offset, swizzleBytes);
}

//===----------------------------------------------------------------------===//
// Chunks
//===----------------------------------------------------------------------===//

bool BulkCopy::advance(Engine &engine) {
  bool isWrite = pieces.empty() || (!held.empty() && engine.random.oneIn(2));
  std::vector<Piece> &from = isWrite ? held : pieces;
  std::swap(from[engine.random.below(from.size())], from.back());
  Piece piece = std::move(from.back());
  from.pop_back();
  if (isWrite)
    return write(piece);
  return loads ? load(piece) : read(piece);
}

bool BulkCopy::load(Piece &piece) {
  Region *region = nullptr;
  uint32_t size = piece.end - piece.begin;
  if (size > 0 && (!(region = findGlobal(piece.global, size)) ||
                   !check(*region, piece.global, size, /*isWrite=*/false)))
    return false;
  std::vector<uint8_t> row(piece.bytes, 0);
  if (size > 0)
    std::memcpy(&row[piece.begin], region->at(piece.global), size);
  for (uint32_t offset = 0; offset < piece.bytes; offset += kChunk) {
    Region &shared = piece.owner->shared;
    if (!shared.contains(chunkAddress(piece, offset), kChunk))
      return report("the swizzled address is outside shared memory");
    if (!check(shared, chunkAddress(piece, offset), kChunk, /*isWrite=*/true))
      return false;
    std::memcpy(chunk(piece, offset), &row[offset], kChunk);
    // Rows of a box past the valid ones may be uninitialized. The readers of
    // the box must not use them, so this is no error here.
    uint32_t begin = std::max(offset, piece.begin);
    uint32_t end = std::min(offset + kChunk, piece.end);
    if (begin < end && !region->isInitialized(
                           piece.global + (begin - piece.begin), end - begin))
      shared.markUninitialized(chunkAddress(piece, offset), kChunk);
  }
  if (piece.owner != cta)
    piece.owner->noteOutsider(
        accessor(/*isShared=*/true, /*isWrite=*/true).access);
  auto barrier = piece.owner->mbarriers.find(mbarrier);
  if (barrier == piece.owner->mbarriers.end())
    return report("the mbarrier on which it completes does not exist any more");
  barrier->second.filledPhases = barrier->second.phase + 1;
  barrier->second.filler = {instruction, warp.index * kWarpLanes + lane};
  piece.owner->completeTransaction(barrier->second, piece.bytes, *cta,
                                   writeUnit, writeTick);
  return true;
}

bool BulkCopy::read(Piece &piece) {
  piece.held.resize(piece.bytes);
  for (uint32_t offset = 0; offset < piece.bytes; offset += kChunk) {
    // Bytes outside of the tensor are not read.
    if (offset + kChunk <= piece.begin || offset >= piece.end)
      continue;
    if (!cta->shared.contains(chunkAddress(piece, offset), kChunk))
      return report("the swizzled address is outside shared memory");
    uint32_t size = std::min(kChunk, piece.end - offset);
    if (!check(cta->shared, chunkAddress(piece, offset), size,
               /*isWrite=*/false))
      return false;
    std::memcpy(&piece.held[offset], chunk(piece, offset), size);
  }
  if (piece.end > piece.begin)
    held.push_back(std::move(piece));
  return true;
}

bool BulkCopy::write(Piece &piece) {
  uint32_t size = piece.end - piece.begin;
  Region *region = findGlobal(piece.global, size);
  if (!region || !check(*region, piece.global, size, /*isWrite=*/true))
    return false;
  std::memcpy(region->at(piece.global), &piece.held[piece.begin], size);
  cta->launch.engine->noteProgress();
  return true;
}
