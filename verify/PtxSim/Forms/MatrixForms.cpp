//===- MatrixForms.cpp - ldmatrix, stmatrix, mma ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Engine/Engine.h"
#include "../Numbers/Product.h"
#include "MemoryForms.h"
#include "WarpForms.h"

#include <cstring>

using namespace moec::ptx;

namespace {

//===----------------------------------------------------------------------===//
// ldmatrix, stmatrix
//===----------------------------------------------------------------------===//

constexpr unsigned kRows = 8, kRowBytes = 16;
constexpr uint32_t kTransposed = 1;

/// An 8x8 matrix of 16-bit elements, by rows as in memory.
struct Tile {
  uint16_t elements[kRows][kRows];

  /// The pair of elements that a lane holds.
  uint32_t pair(unsigned lane, bool isTransposed) const {
    unsigned row = lane / 4, column = lane % 4 * 2;
    uint16_t low = isTransposed ? elements[column][row] : elements[row][column];
    uint16_t high =
        isTransposed ? elements[column + 1][row] : elements[row][column + 1];
    return uint32_t(high) << 16 | low;
  }
  void setPair(unsigned lane, bool isTransposed, uint32_t pair) {
    unsigned row = lane / 4, column = lane % 4 * 2;
    (isTransposed ? elements[column][row] : elements[row][column]) =
        uint16_t(pair);
    (isTransposed ? elements[column + 1][row] : elements[row][column + 1]) =
        uint16_t(pair >> 16);
  }
};

/// All lanes access each row, whichever lane supplied its address.
template <bool Stores>
Step moveTiles(Warp &warp, const Instruction &instruction, LaneMask mask) {
  if (Step step = gatherWarp(warp, instruction, mask); step != Step::Next)
    return step;
  bool isTransposed = instruction.flags & kTransposed;
  for (unsigned i = 0; i < instruction.count; ++i) {
    uint32_t *values = warp.lanes<uint32_t>(instruction.operands[i]);
    Tile tile;
    if (Stores)
      for (unsigned lane = 0; lane < kWarpLanes; ++lane)
        tile.setPair(lane, isTransposed, values[lane]);
    for (unsigned row = 0; row < kRows; ++row) {
      unsigned lane = i * kRows + row;
      Warp::Place place =
          warp.locate(instruction, lane, instruction.space,
                      addressOf(warp, instruction.addresses[0], lane),
                      kRowBytes, kRowBytes);
      if (!place.bytes)
        return Step::Failed;
      if (!place.region || place.region != &warp.cta.shared)
        return warp.fail(instruction, lane, "the row is not in shared memory");
      bool isFine =
          Stores
              ? warp.checkWrite(instruction, lane, kAllLanes, place, kRowBytes)
              : warp.checkRead(instruction, lane, kAllLanes, place, kRowBytes);
      if (!isFine)
        return Step::Failed;
      void *elements = tile.elements[row];
      Stores ? std::memcpy(place.bytes, elements, kRowBytes)
             : std::memcpy(elements, place.bytes, kRowBytes);
    }
    if (!Stores)
      for (unsigned lane = 0; lane < kWarpLanes; ++lane)
        values[lane] = tile.pair(lane, isTransposed);
  }
  return Step::Next;
}

void decodeTiles(Decoder &d, bool stores) {
  if (!d.take("sync") || !d.take("aligned") || !d.take("m8n8"))
    return;
  std::string count = d.takeOneOf({"x1", "x2", "x4"});
  if (d.take("trans"))
    d.instruction.flags = kTransposed;
  d.instruction.space = takeSpace(d);
  if (count.empty() || d.takeType() != "b16" || !d.expectOperands(2, 2))
    return;
  const RawOperand &values = d.operand(stores ? 1 : 0);
  d.instruction.count = uint8_t(count[1] - '0');
  if (values.parts.size() != d.instruction.count)
    return d.fail("expected " + std::to_string(d.instruction.count) +
                  " registers in braces");
  for (const RawOperand &value : values.parts)
    stores ? d.value(value, 4) : d.result(value, 4);
  d.address(stores ? 0 : 1);
  d.instruction.isCollective = true;
  d.instruction.handler = stores ? moveTiles<true> : moveTiles<false>;
}

//===----------------------------------------------------------------------===//
// mma
//===----------------------------------------------------------------------===//

constexpr unsigned kMaxDepth = 32;

/// Operands: 4 results, the registers of A and of B, 4 of C. `width` is the
/// number of bytes of an element, `immediate` is K.
Step multiply(Warp &warp, const Instruction &instruction, LaneMask mask) {
  if (Step step = gatherWarp(warp, instruction, mask); step != Step::Next)
    return step;
  unsigned bytes = instruction.width, perRegister = 4 / bytes;
  unsigned depth = unsigned(instruction.immediate);
  auto typeA = MatrixType(instruction.flags & 0xFF);
  auto typeB = MatrixType(instruction.flags >> 8);
  unsigned numB = depth / (4 * perRegister), numA = 2 * numB;
  // Layouts: rows[half][k][lane] and columns[odd][k][lane % 4].
  float rows[2][kMaxDepth * kWarpLanes], columns[2][kMaxDepth * 4];
  const Slot *operands = instruction.operands.data();
  float elements[4][kWarpLanes];
  for (unsigned j = 0; j < numA; ++j) {
    matrixElements(typeA, bytes, warp.lanes<uint32_t>(operands[4 + j]),
                   elements);
    for (unsigned e = 0; e < perRegister; ++e)
      for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
        unsigned k = perRegister * (lane % 4) + e + 4 * perRegister * (j >> 1);
        float *row = &rows[j & 1][k * kWarpLanes + lane / 4 * 4];
        row[0] = row[1] = row[2] = row[3] = elements[e][lane];
      }
  }
  for (unsigned j = 0; j < numB; ++j) {
    matrixElements(typeB, bytes, warp.lanes<uint32_t>(operands[4 + numA + j]),
                   elements);
    for (unsigned e = 0; e < perRegister; ++e)
      for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
        unsigned k = perRegister * (lane % 4) + e + 4 * perRegister * j;
        unsigned column = lane / 4;
        columns[column % 2][k * 4 + column / 2] = elements[e][lane];
      }
  }
  constexpr uint64_t numRows = 16, numColumns = 8;
  warp.cta.launch.engine->statistics.work.products +=
      numRows * numColumns * depth;
  float sums[4][kWarpLanes];
  for (unsigned i = 0; i < 4; ++i)
    std::memcpy(sums[i], warp.lanes<float>(operands[4 + numA + numB + i]),
                sizeof(sums[i]));
  const float *columnPointers[2] = {columns[0], columns[1]};
  for (unsigned half = 0; half < 2; ++half) {
    float *registers[2] = {sums[2 * half], sums[2 * half + 1]};
    addProducts(registers, 2, rows[half], columnPointers, depth);
  }
  for (unsigned i = 0; i < 4; ++i)
    for (unsigned lane = 0; lane < kWarpLanes; ++lane)
      warp.lanes<float>(operands[i])[lane] = canonical(sums[i][lane]);
  return Step::Next;
}

void decodeMma(Decoder &d) {
  if (!d.take("sync") || !d.take("aligned"))
    return;
  std::string shape = d.takeOneOf({"m16n8k8", "m16n8k16", "m16n8k32"});
  if (shape.empty() || !d.take("row") || !d.take("col"))
    return;
  std::string result = d.takeNext(), typeA = d.takeNext(), typeB = d.takeNext(),
              typeC = d.takeNext();
  MatrixType a, b;
  unsigned bytes = parseMatrixType(typeA, a);
  unsigned depth = unsigned(std::stoi(shape.substr(6)));
  if (result != "f32" || typeC != "f32" || bytes == 0 ||
      parseMatrixType(typeB, b) != bytes || !d.expectOperands(4, 4) ||
      (depth * bytes != 32 && depth * bytes != 16))
    return;
  unsigned numB = depth * bytes / 16;
  const size_t counts[] = {4, 2 * numB, numB, 4};
  for (size_t i = 0; i < 4; ++i) {
    std::vector<RawOperand> parts = d.operand(i).parts;
    if (parts.empty())
      parts.push_back(d.operand(i));
    if (parts.size() != counts[i])
      return d.fail("operand " + std::to_string(i) + " has " +
                    std::to_string(parts.size()) + " registers, expected " +
                    std::to_string(counts[i]));
    for (const RawOperand &part : parts)
      i == 0 ? d.result(part, 4) : d.value(part, 4);
  }
  d.instruction.width = uint8_t(bytes);
  d.instruction.immediate = depth;
  d.instruction.flags = uint32_t(a) | uint32_t(b) << 8;
  d.instruction.isCollective = true;
  d.instruction.handler = multiply;
}

} // namespace

void moec::ptx::addMatrixForms(FormTable &table) {
  table["ldmatrix"] = [](Decoder &d) { decodeTiles(d, false); };
  table["stmatrix"] = [](Decoder &d) { decodeTiles(d, true); };
  table["mma"] = decodeMma;
}
