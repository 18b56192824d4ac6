//===- BulkCopy.cpp - a copy by the copy engine -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BulkCopy.h"

#include "../Machine/TensorMap.h"

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
  made.horizon = isShared ? cta->serial : engine.horizon;
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
  bool isShared = &region == &cta->shared;
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

bool BulkCopy::knowsMbarrier() {
  constexpr uint64_t kBytes = 8;
  Region &shared = cta->shared;
  const Engine &engine = *cta->launch.engine;
  if (!engine.options.checkRaces)
    return true;
  Conflict conflict =
      shared.shadow.checkWrite(mbarrier - shared.address, kBytes,
                               accessor(/*isShared=*/true, /*isWrite=*/true));
  auto barrier = cta->mbarriers.find(mbarrier);
  if (conflict.kind == Conflict::Kind::Unfenced &&
      barrier != cta->mbarriers.end() && barrier->second.isFenced)
    return true;
  return !conflict || report("the mbarrier: " +
                             engine.describeConflict(conflict, /*isWrite=*/true,
                                                     /*isAsync=*/true));
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
    if (!cta->shared.contains(chunkAddress(piece, offset), kChunk))
      return report("the swizzled address is outside shared memory");
    if (!check(cta->shared, chunkAddress(piece, offset), kChunk,
               /*isWrite=*/true))
      return false;
    std::memcpy(chunk(piece, offset), &row[offset], kChunk);
    // Rows of a box past the valid ones may be uninitialized. The readers of
    // the box must not use them, so this is no error here.
    uint32_t begin = std::max(offset, piece.begin);
    uint32_t end = std::min(offset + kChunk, piece.end);
    if (begin < end && !region->isInitialized(
                           piece.global + (begin - piece.begin), end - begin))
      cta->shared.markUninitialized(chunkAddress(piece, offset), kChunk);
  }
  auto barrier = cta->mbarriers.find(mbarrier);
  if (barrier == cta->mbarriers.end())
    return report("the mbarrier on which it completes does not exist any more");
  barrier->second.filledPhases = barrier->second.phase + 1;
  barrier->second.filler = {instruction, warp.index * kWarpLanes + lane};
  cta->completeTransaction(barrier->second, piece.bytes, writeUnit, writeTick);
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
