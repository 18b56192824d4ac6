//===- Wgmma.cpp - wgmma by four warps --------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Wgmma.h"

#include "../Machine/TensorMap.h"
#include "../Program/WgmmaForms.h"
#include "Cluster.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <tuple>

using namespace moec::ptx;

//===----------------------------------------------------------------------===//
// Descriptors
//===----------------------------------------------------------------------===//

static constexpr unsigned kChunk = 16, kAtom = 8;

unsigned MatrixDescriptor::swizzleBytes() const {
  constexpr unsigned modes[] = {0, 128, 64, 32};
  return modes[bits >> 62];
}

std::string MatrixDescriptor::verify() const {
  if (bits >> 49 & 7)
    return "a base offset is not supported: patterns must begin at a multiple "
           "of 1024 bytes";
  return "";
}

uint64_t MatrixDescriptor::depthChunk(unsigned row, unsigned chunk) const {
  unsigned swizzle = swizzleBytes();
  uint64_t pitch = swizzle ? swizzle : kChunk;
  uint64_t address = start() + row / kAtom * stride() + row % kAtom * pitch +
                     chunk * (swizzle ? kChunk : leading());
  return swizzleAddress(address, swizzle);
}

uint64_t MatrixDescriptor::rowChunk(unsigned row, unsigned depth) const {
  unsigned swizzle = swizzleBytes();
  unsigned chunk = row / kAtom;
  if (swizzle == 0)
    return start() + chunk * stride() + depth / kAtom * leading() +
           depth % kAtom * kChunk;
  unsigned chunks = swizzle / kChunk;
  uint64_t address = start() + chunk / chunks * leading() +
                     depth / kAtom * stride() + depth % kAtom * swizzle +
                     chunk % chunks * kChunk;
  return swizzleAddress(address, swizzle);
}

//===----------------------------------------------------------------------===//
// MMAs
//===----------------------------------------------------------------------===//

ProductGroup::ProductGroup(Cta &cta, unsigned warpgroup)
    : warpgroup(warpgroup) {
  this->cta = &cta;
  std::tie(unit, tick) = cta.newAsyncUnit();
}

bool ProductGroup::advance(Engine &) {
  // The accumulators depend on earlier groups.
  for (const std::shared_ptr<ProductGroup> &group :
       cta->warpgroups[warpgroup]->committed)
    if (!group->isDone())
      return group->run(group->products[group->next++]);
  return true;
}

/// Reads 16 bytes of an operand. Rows that feed only unused sums may be
/// uninitialized, so initialization is not checked.
const uint8_t *ProductGroup::readChunk(const AsyncProduct &product,
                                       uint64_t address) {
  Engine &engine = *cta->launch.engine;
  Warp &first = *cta->warps[warpgroup * kWarpgroupWarps];
  // The descriptor has 18 bits of an address.
  if (!cta->shared.contains(address, kChunk)) {
    first.fail(*product.instruction, 0,
               "a descriptor points outside shared memory, to " +
                   std::to_string(address));
    return nullptr;
  }
  if (engine.options.checkRaces) {
    Accessor now;
    now.oracle = &engine;
    now.clock = clock.get();
    now.horizon = cta->cluster->firstSerial;
    now.access.who = Access::pack(cta->serial, unit, /*isStrong=*/false);
    now.access.tick = tick;
    now.access.lanes = 1;
    now.access.id = product.instruction->id;
    Conflict conflict =
        cta->shared.shadow.readBlock(address - cta->shared.address, now);
    if (conflict) {
      first.fail(*product.instruction, 0,
                 engine.describeConflict(conflict, /*isWrite=*/false,
                                         /*isAsync=*/true) +
                     ": 16 bytes at shared address " + std::to_string(address));
      return nullptr;
    }
  }
  return cta->shared.at(address);
}

/// Layout: elements[row * depth + k].
bool ProductGroup::gather(const AsyncProduct &product,
                          const MatrixDescriptor &matrix, bool isTransposed,
                          MatrixType type, unsigned rows,
                          std::vector<float> &elements) {
  unsigned bytes = product.instruction->width;
  unsigned perChunk = kChunk / bytes, depth = 2 * perChunk;
  elements.resize(size_t(rows) * depth);
  auto element = [&](const uint8_t *chunk, unsigned i) {
    uint32_t bits = 0;
    std::memcpy(&bits, chunk + i * bytes, bytes);
    return matrixElement(type, bits);
  };
  if (isTransposed) {
    for (unsigned k = 0; k < depth; ++k)
      for (unsigned row = 0; row < rows; row += kAtom) {
        const uint8_t *chunk = readChunk(product, matrix.rowChunk(row, k));
        if (!chunk)
          return false;
        for (unsigned i = 0; i < kAtom; ++i)
          elements[(row + i) * depth + k] = element(chunk, i);
      }
    return true;
  }
  for (unsigned row = 0; row < rows; ++row)
    for (unsigned half = 0; half < 2; ++half) {
      const uint8_t *chunk = readChunk(product, matrix.depthChunk(row, half));
      if (!chunk)
        return false;
      for (unsigned i = 0; i < perChunk; ++i)
        elements[row * depth + half * perChunk + i] = element(chunk, i);
    }
  return true;
}

/// A in registers has the layout of mma's A.
void ProductGroup::gatherFromRegisters(const AsyncProduct &product,
                                       std::vector<float> &elements) {
  const Instruction &instruction = *product.instruction;
  unsigned bytes = instruction.width, perRegister = 4 / bytes;
  unsigned depth = 8 * perRegister;
  auto type = MatrixType(instruction.flags & 0xFF);
  elements.resize(size_t(kWgmmaRows) * depth);
  uint32_t mask = bytes == 4 ? ~0u : (1u << (8 * bytes)) - 1;
  for (unsigned w = 0; w < kWarpgroupWarps; ++w)
    for (unsigned j = 0; j < 4; ++j) {
      const uint32_t *bits =
          cta->warps[warpgroup * kWarpgroupWarps + w]->lanes<uint32_t>(
              instruction.operands[instruction.count + j]);
      for (unsigned lane = 0; lane < kWarpLanes; ++lane)
        for (unsigned e = 0; e < perRegister; ++e) {
          unsigned row = 16 * w + lane / 4 + 8 * (j & 1);
          unsigned k =
              perRegister * (lane % 4) + e + 4 * perRegister * (j >> 1);
          elements[row * depth + k] =
              matrixElement(type, bits[lane] >> (8 * bytes * e) & mask);
        }
    }
}

/// Integer counterpart of `addProducts`, into i32 registers. The sums of an
/// MMA of 8-bit integers are whole numbers below 2^24, which f32 holds exactly.
static void addWholeProducts(uint32_t *const *registers, unsigned numRegisters,
                             const float *rows, const float *const *columns,
                             unsigned depth) {
  float sums[4][kWarpLanes] = {};
  float *pointers[] = {sums[0], sums[1], sums[2], sums[3]};
  addProducts(pointers, numRegisters, rows, columns, depth);
  for (unsigned i = 0; i < numRegisters; ++i)
    for (unsigned lane = 0; lane < kWarpLanes; ++lane)
      registers[i][lane] += uint32_t(int32_t(sums[i][lane]));
}

bool ProductGroup::run(const AsyncProduct &product) {
  const Instruction &instruction = *product.instruction;
  uint32_t flags = instruction.flags;
  unsigned numRegisters = instruction.count;
  unsigned columns = 2 * numRegisters;
  std::vector<float> a, b;
  auto typeA = MatrixType(flags & 0xFF), typeB = MatrixType(flags >> 8 & 0xFF);
  if (flags & kWgmmaRegisterA)
    gatherFromRegisters(product, a);
  else if (!gather(product, product.a, flags & kWgmmaTransposedA, typeA,
                   kWgmmaRows, a))
    return false;
  if (!gather(product, product.b, flags & kWgmmaTransposedB, typeB, columns, b))
    return false;
  if (flags & kWgmmaNegativeA)
    std::transform(a.begin(), a.end(), a.begin(), std::negate<float>());
  if (flags & kWgmmaNegativeB)
    std::transform(b.begin(), b.end(), b.begin(), std::negate<float>());
  unsigned depth = 2 * kChunk / instruction.width;
  // Layout: columnsOf[2 * block + odd][k][lane % 4].
  std::vector<float> columnsOf(b.size());
  for (unsigned column = 0; column < columns; ++column)
    for (unsigned k = 0; k < depth; ++k)
      columnsOf[((column / 8 * 2 + column % 2) * depth + k) * 4 +
                column % 8 / 2] = b[column * depth + k];
  std::vector<float> rows(size_t(depth) * kWarpLanes);
  for (unsigned w = 0; w < kWarpgroupWarps; ++w) {
    Warp &warp = *cta->warps[warpgroup * kWarpgroupWarps + w];
    auto sums = [&](unsigned i) {
      return warp.lanes<float>(instruction.operands[i]);
    };
    if (!product.keepsSums)
      for (unsigned i = 0; i < numRegisters; ++i)
        std::fill_n(sums(i), kWarpLanes, 0.0f);
    for (unsigned half = 0; half < 2; ++half) {
      for (unsigned k = 0; k < depth; ++k)
        for (unsigned lane = 0; lane < kWarpLanes; ++lane)
          rows[k * kWarpLanes + lane] =
              a[(16 * w + 8 * half + lane / 4) * depth + k];
      for (unsigned i = 0; i < numRegisters; i += 8) {
        // Registers of this half of two column blocks.
        unsigned numbers[4];
        const float *columnPointers[4];
        unsigned count = 0;
        for (unsigned j = i; j < std::min(i + 8, numRegisters); ++j) {
          if ((j >> 1 & 1) != half)
            continue;
          numbers[count] = j;
          columnPointers[count++] =
              &columnsOf[size_t(j / 4 * 2 + j % 2) * depth * 4];
        }
        if (typeA == MatrixType::Int8) {
          uint32_t *registers[4];
          for (unsigned j = 0; j < count; ++j)
            registers[j] =
                warp.lanes<uint32_t>(instruction.operands[numbers[j]]);
          addWholeProducts(registers, count, rows.data(), columnPointers,
                           depth);
          continue;
        }
        float *registers[4];
        for (unsigned j = 0; j < count; ++j)
          registers[j] = sums(numbers[j]);
        addProducts(registers, count, rows.data(), columnPointers, depth);
      }
    }
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Registers
//===----------------------------------------------------------------------===//

bool moec::ptx::checkAccumulators(Warp &warp, const Instruction &instruction,
                                  LaneMask mask) {
  // Moves are exempt: compilers place constant initialization of accumulators
  // after the fence.
  warp.needsProductFence |= !instruction.isMove;
  if (warp.productsInFlight == 0)
    return true;
  auto isUsed = [&](const std::vector<std::shared_ptr<ProductGroup>> &groups) {
    for (const std::shared_ptr<ProductGroup> &group : groups)
      for (const AsyncProduct &product : group->products) {
        const std::vector<Slot> &slots = product.instruction->operands;
        for (size_t i = 0; i < getNumWgmmaRegisters(*product.instruction); ++i)
          for (const Slot &slot : instruction.operands)
            if (slot.bits == slots[i].bits)
              return true;
      }
    return false;
  };
  const Warpgroup &warpgroup =
      *warp.cta.warpgroups[warp.index / kWarpgroupWarps];
  std::vector<std::shared_ptr<ProductGroup>> groups;
  if (warpgroup.open)
    groups.push_back(warpgroup.open);
  uint64_t first = warpgroup.numCommitted - warpgroup.committed.size();
  for (size_t i = 0; i < warpgroup.committed.size(); ++i)
    if (first + i >= warpgroup.waited[warp.index % kWarpgroupWarps])
      groups.push_back(warpgroup.committed[i]);
  if (!isUsed(groups))
    return true;
  warp.fail(instruction, unsigned(__builtin_ctz(mask | 1u << 31)),
            "a register of a wgmma in flight; execute wgmma.wait_group first");
  return false;
}
