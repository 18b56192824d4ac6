//===- TensorMemory.cpp - tcgen05 and tensor memory -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TensorMemory.h"

#include "../Machine/TensorMap.h"
#include "../Numbers/Product.h"
#include "Cluster.h"

#include <cmath>
#include <cstring>
#include <tuple>

using namespace moec::ptx;

static constexpr unsigned kChunk = 16, kAtom = 8, kSwizzle = 128;
/// Extent of an MMA's operands: 128 rows of A, and 32 elements of K.
static constexpr unsigned kRows = 128, kDepth = 32;
/// Lanes that one warp can load. Each quarter has a copy of all scales.
static constexpr unsigned kQuarter = 32;

//===----------------------------------------------------------------------===//
// Descriptors
//===----------------------------------------------------------------------===//

/// PTX ISA, "Shared memory descriptor": addresses in units of 16 bytes, 1 at
/// bit 46, a base offset at bit 49, the swizzle at bit 61.
std::string SharedDescriptor::verify(unsigned swizzleBytes) const {
  if ((bits >> 46 & 7) != 1)
    return "bits 46 to 48 of the descriptor must be 1";
  if (bits >> 49 & 7)
    return "a base offset is not supported: patterns must begin at a multiple "
           "of 1024 bytes";
  if (bits >> 52 & 0x1FF)
    return "bits 52 to 60 of the descriptor must be 0";
  constexpr unsigned plain = 0, swizzled = 2;
  if (bits >> 61 != (swizzleBytes ? swizzled : plain))
    return "only matrices with the 128-byte swizzle and scales without a "
           "swizzle are supported";
  return "";
}

uint64_t SharedDescriptor::chunk(unsigned row, unsigned pitch,
                                 unsigned number) const {
  uint64_t start = (bits & 0x3FFF) << 4, stride = (bits >> 32 & 0x3FFF) << 4;
  uint64_t address = start + row / kAtom * stride +
                     uint64_t(row % kAtom) * pitch + uint64_t(number) * kChunk;
  return swizzleAddress(address, pitch == kSwizzle ? kSwizzle : 0);
}

/// PTX ISA, "Instruction descriptor", kind::mxf8f6f4: types of three bits,
/// where 0 is e4m3 and 5 is e2m1; rows of B / 8; 1 for e8m0 scales; the
/// 128 rows of A / 16.
std::string ProductDescriptor::verify() const {
  auto isKnown = [](unsigned type) { return type == 0 || type == 5; };
  if (!isKnown(typeA()) || !isKnown(typeB()))
    return "only e4m3 and e2m1 are supported";
  if (bits & 0x4F)
    return "bits 0 to 3 and 6 of the instruction descriptor must be 0";
  if (bits >> 13 & 0xF)
    return "negated and transposed matrices are not supported";
  if (rows() < 8 || rows() > 256)
    return std::to_string(rows()) + " rows of B; 8 to 256 are accepted";
  if (!(bits >> 23 & 1))
    return "the scales of kind::mxf8f6f4 must be ue8m0";
  if ((bits >> 24 & 0x1F) != kRows / 16)
    return "A of block-scaled products of one CTA must have 128 rows";
  return bits >> 31 ? "bit 31 of the instruction descriptor must be 0" : "";
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

TensorMemory::TensorMemory(unsigned first, unsigned columns, Visit taker)
    : cells("tensor memory", 0, uint64_t(kLanes) * kLaneBytes,
            /*isShared=*/true),
      first(first), columns(columns), taker(taker) {}

TensorQueue::TensorQueue(Warp &warp, unsigned lane) : warp(warp), lane(lane) {
  cta = &warp.cta;
}

void TensorQueue::add(TensorOperation operation) {
  std::tie(operation.unit, operation.tick) = cta->newAsyncUnit();
  if (!started)
    started = ClockRef(new Clock(cta->serial, unsigned(cta->warps.size())));
  if (operation.kind == TensorOperation::Kind::Commit) {
    operation.clock = started;
  } else {
    // A thread that acquires an operation's end also acquires what was known at
    // its start, because the operation's inputs were ready.
    join(started, warp.clocks[lane]);
    // A copy is ordered after what the thread knows to be complete; an MMA
    // also after all operations before it.
    operation.clock = warp.release(1u << lane);
    if (operation.kind == TensorOperation::Kind::Product)
      join(operation.clock, started);
    unshare(started).own.set(operation.unit, 1, operation.tick);
  }
  instruction = operation.instruction->id;
  pending.push_back(std::move(operation));
}

bool TensorQueue::report(const TensorOperation &operation,
                         const std::string &text) {
  warp.fail(*operation.instruction, lane, text);
  return false;
}

Accessor TensorQueue::accessor(const TensorOperation &operation) const {
  Accessor now;
  now.oracle = cta->launch.engine;
  now.clock = operation.clock.get();
  now.horizon = cta->cluster->firstSerial;
  now.access.who = Access::pack(cta->serial, operation.unit,
                                /*isStrong=*/false);
  now.access.tick = operation.tick;
  now.access.lanes = 1;
  now.access.id = operation.instruction->id;
  return now;
}

const uint8_t *TensorQueue::readChunk(const TensorOperation &operation,
                                      uint64_t address) {
  Region &shared = cta->shared;
  if (!shared.contains(address, kChunk)) {
    report(operation, "a descriptor points outside shared memory, to " +
                          std::to_string(address));
    return nullptr;
  }
  const Engine &engine = *cta->launch.engine;
  if (engine.options.checkRaces)
    if (Conflict conflict = shared.shadow.readBlock(address - shared.address,
                                                    accessor(operation))) {
      report(operation, engine.describeConflict(conflict, /*isWrite=*/false,
                                                /*isAsync=*/true) +
                            ": 16 bytes at shared address " +
                            std::to_string(address));
      return nullptr;
    }
  return shared.at(address);
}

uint32_t *TensorQueue::access(const TensorOperation &operation, unsigned lane,
                              unsigned column, unsigned count, bool isWrite) {
  TensorMemory &memory = *cta->tensor;
  if (!memory.has(column, count)) {
    report(operation, "columns " + std::to_string(column) + " to " +
                          std::to_string(column + count - 1) +
                          " of tensor memory are not allocated by the CTA");
    return nullptr;
  }
  Region &cells = memory.cells;
  uint64_t at = TensorMemory::address(lane, column);
  uint64_t size = uint64_t(count) * TensorMemory::kCellBytes;
  const Engine &engine = *cta->launch.engine;
  if (engine.options.checkRaces) {
    Accessor now = accessor(operation);
    Conflict conflict = isWrite ? cells.shadow.write(at, size, now)
                                : cells.shadow.read(at, size, now);
    if (conflict) {
      report(operation, engine.describeConflict(conflict, isWrite,
                                                /*isAsync=*/true) +
                            ": lane " + std::to_string(lane) +
                            " of tensor memory, from column " +
                            std::to_string(column) + " on");
      return nullptr;
    }
  }
  if (isWrite)
    cells.markInitialized(at, size);
  return reinterpret_cast<uint32_t *>(cells.at(at));
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

bool TensorQueue::advance(Engine &engine) {
  size_t chosen = 0;
  // Copies may complete in any order.
  if (size_t other = engine.random.below(pending.size());
      pending[other].kind == TensorOperation::Kind::Copy)
    chosen = other;
  TensorOperation operation = std::move(pending[chosen]);
  pending.erase(pending.begin() + long(chosen));
  return run(operation);
}

bool TensorQueue::run(const TensorOperation &operation) {
  switch (operation.kind) {
  case TensorOperation::Kind::Copy:
    return copy(operation);
  case TensorOperation::Kind::Product:
    return multiply(operation);
  case TensorOperation::Kind::Commit:
    return commit(operation);
  }
  return false;
}

/// 32 rows of 16 bytes go to four columns of 32 lanes, replicated in all four
/// quarters.
bool TensorQueue::copy(const TensorOperation &operation) {
  Region &cells = cta->tensor->cells;
  constexpr unsigned columns = kChunk / TensorMemory::kCellBytes;
  for (unsigned row = 0; row < kQuarter; ++row) {
    uint64_t address = operation.a.chunk(row, kChunk, 0);
    const uint8_t *from = readChunk(operation, address);
    if (!from)
      return false;
    for (unsigned to = row; to < TensorMemory::kLanes; to += kQuarter) {
      uint32_t *cell = access(operation, to, operation.target, columns,
                              /*isWrite=*/true);
      if (!cell)
        return false;
      std::memcpy(cell, from, kChunk);
      // Scales of unused rows may be uninitialized; the readers of those rows
      // must not use them.
      for (unsigned i = 0; i < columns; ++i)
        if (!cta->shared.isInitialized(address + i * TensorMemory::kCellBytes,
                                       TensorMemory::kCellBytes))
          cells.markUninitialized(
              TensorMemory::address(to, operation.target + i),
              TensorMemory::kCellBytes);
    }
  }
  return true;
}

bool TensorQueue::commit(const TensorOperation &operation) {
  auto barrier = cta->mbarriers.find(operation.mbarrier);
  if (barrier == cta->mbarriers.end())
    return report(operation,
                  "the mbarrier at which it arrives does not exist any more");
  if (!cta->arrive(barrier->second, 1, operation.clock, *cta,
                   /*isOfCluster=*/false))
    return report(operation, "more arrivals than the " +
                                 std::to_string(barrier->second.expected) +
                                 " that the mbarrier expects");
  return true;
}

/// Layout: elements[row * 32 + k]. For e2m1, 16 elements fill the first half of
/// 16 bytes.
bool TensorQueue::gather(const TensorOperation &operation,
                         const SharedDescriptor &matrix, unsigned type,
                         unsigned rows, std::vector<float> &elements) {
  constexpr unsigned perChunk = 16, nibbleBits = 4;
  constexpr float nibbles[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  elements.resize(size_t(rows) * kDepth);
  for (unsigned row = 0; row < rows; ++row)
    for (unsigned half = 0; half < kDepth / perChunk; ++half) {
      const uint8_t *chunk =
          readChunk(operation, matrix.chunk(row, kSwizzle, half));
      if (!chunk)
        return false;
      float *to = &elements[row * kDepth + half * perChunk];
      for (unsigned i = 0; i < perChunk; ++i) {
        if (type == 0) {
          to[i] = matrixElement(MatrixType::E4M3, chunk[i]);
          continue;
        }
        unsigned code = chunk[i / 2] >> (i % 2 * nibbleBits) & 0xF;
        to[i] = code & 8 ? -nibbles[code & 7] : nibbles[code & 7];
      }
    }
  return true;
}

/// Scales of row r are in lane r % 32 of each quarter, column r / 32. The
/// descriptor selects a byte of that word.
bool TensorQueue::readScales(const TensorOperation &operation, uint32_t address,
                             unsigned rows, unsigned byte,
                             std::vector<float> &scales) {
  Region &cells = cta->tensor->cells;
  unsigned columns = (rows + kQuarter - 1) / kQuarter;
  scales.assign(rows, NAN);
  for (unsigned lane = 0; lane < TensorMemory::kLanes; ++lane) {
    const uint32_t *words =
        access(operation, lane, address, columns, /*isWrite=*/false);
    if (!words)
      return false;
    for (unsigned column = 0; column < columns; ++column) {
      unsigned row = column * kQuarter + lane % kQuarter;
      if (row >= rows ||
          !cells.isInitialized(TensorMemory::address(lane, address + column),
                               TensorMemory::kCellBytes))
        continue;
      constexpr int bias = 127;
      unsigned exponent = words[column] >> (8 * byte) & 0xFF;
      float scale =
          exponent == 0xFF ? NAN : std::ldexp(1.0f, int(exponent) - bias);
      bool isSame = scales[row] == scale || (scale != scale);
      if (lane >= kQuarter && !isSame)
        return report(operation, "the quarters of the lanes have different "
                                 "scales of row " +
                                     std::to_string(row));
      scales[row] = scale;
    }
  }
  return true;
}

bool TensorQueue::multiply(const TensorOperation &operation) {
  ProductDescriptor product = operation.product;
  unsigned columns = product.rows();
  std::vector<float> a, b, scaleA, scaleB;
  if (!gather(operation, operation.a, product.typeA(), kRows, a) ||
      !gather(operation, operation.b, product.typeB(), columns, b) ||
      !readScales(operation, operation.scaleA, kRows, product.scaleA(),
                  scaleA) ||
      !readScales(operation, operation.scaleB, columns, product.scaleB(),
                  scaleB))
    return false;
  // Layout: transposed[k * columns + column].
  std::vector<float> transposed(b.size()), sums(columns);
  for (unsigned column = 0; column < columns; ++column)
    for (unsigned k = 0; k < kDepth; ++k)
      transposed[k * columns + column] = b[column * kDepth + k];
  for (unsigned row = 0; row < kRows; ++row) {
    if (operation.keepsSums &&
        !access(operation, row, operation.target, columns, /*isWrite=*/false))
      return false;
    uint32_t *cells =
        access(operation, row, operation.target, columns, /*isWrite=*/true);
    if (!cells)
      return false;
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (unsigned k = 0; k < kDepth; ++k)
      for (unsigned column = 0; column < columns; ++column)
        sums[column] += a[row * kDepth + k] * transposed[k * columns + column];
    for (unsigned column = 0; column < columns; ++column) {
      float scaled = float(double(sums[column]) * scaleA[row] * scaleB[column]);
      float old = 0;
      if (operation.keepsSums)
        std::memcpy(&old, &cells[column], sizeof(old));
      scaled += old;
      std::memcpy(&cells[column], &scaled, sizeof(scaled));
    }
  }
  return true;
}
