//===- Instructions.h - which instruction multiplies ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_CPU_INSTRUCTIONS_H
#define MOEC_LIB_SCHEDULES_CPU_INSTRUCTIONS_H

#include "Shape.h"
#include "moec/Schedules/Schedules.h"

#include <algorithm>

namespace moec::cpu {

/// Elements of K that an instruction of a gemm multiplies: an FMA, VDPBF16PS,
/// VPDPBUSD, TDPBF16PS, TDPBSSD.
enum InstructionK : int64_t {
  kFma = 1,
  kPairs = 2,
  kQuads = 4,
  kTiles = 32,
  kByteTiles = 64
};
inline int64_t getInstructionK(tile::CpuGemmAttr config) {
  return std::max<int64_t>(config.getInstructionK(), kFma);
}

/// Whether the config's instruction multiplies AMX tiles.
inline bool usesTiles(tile::CpuGemmAttr config) {
  return config.getInstructionK() >= kTiles;
}

/// Rows of an AMX tile, each with as many words of 32 bits.
constexpr int64_t kTileSize = 16;

/// Input rows whose copies for AMX take at most 256 KiB: 16, 32, 48 or 64, or 0
/// if not even 16 do. They lie on a thread's stack and in the core's L2 cache.
int64_t getMaxTileRows(tile::GemmOp op);

/// Whether operands are decoded to f32, which FMAs multiply.
inline bool decodesForFmas(tile::GemmOp op, tile::CpuGemmAttr config) {
  return decodesOperands(op) && getInstructionK(config) == kFma;
}

/// Whether both operands are int8 with scales of whole rows, symmetric about 0.
bool hasInt8Products(tile::GemmOp op);

/// Reason why VPDPBUSD cannot multiply such rows of `lanes`; empty if it can.
std::string whyNotQuads(tile::GemmOp op, int64_t lanes);

/// Whether both operands are bf16.
bool hasBF16Products(tile::GemmOp op);

/// `instruction_k` of the tiles that multiply the gemm's elements as they are
/// stored: bf16, or int8 with scales of whole rows. 0 if none do.
int64_t getTileK(tile::GemmOp op);

/// Reason why the gemm cannot use the config's instruction on the target; empty
/// if it can.
std::string whyNotInstruction(tile::GemmOp op, tile::CpuGemmAttr config,
                              const Target &target);

/// Reason why the config does not fit AMX tiles: up to two of each operand, and
/// their sums. Empty if it does.
std::string whyNotTiles(tile::GemmOp op, tile::CpuGemmAttr config);

} // namespace moec::cpu

#endif // MOEC_LIB_SCHEDULES_CPU_INSTRUCTIONS_H
