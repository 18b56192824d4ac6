//===- Instructions.cpp - which instruction multiplies ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Instructions.h"

#include "Schedules/Interface/ScheduleTables.h"
#include "Shape.h"

using namespace mlir;
using namespace moec;

static MemRefType getWeightType(tile::GemmOp op) {
  return cast<MemRefType>(op.getWeight().getType());
}

static int64_t getSizeK(tile::GemmOp op) {
  return getWeightType(op).getShape().back();
}

int64_t cpu::getMaxTileRows(tile::GemmOp op) {
  constexpr int64_t bytes = 256 * 1024, mostTiles = 4;
  int64_t rowBytes =
      getSizeK(op) * getWeightType(op).getElementTypeBitWidth() / 8;
  return std::min(bytes / rowBytes / kTileSize, mostTiles) * kTileSize;
}

bool cpu::hasBF16Products(tile::GemmOp op) {
  return getWeightType(op).getElementType().isBF16() && !decodesOperands(op);
}

/// int8 symmetric about 0, with scales of whole rows.
static bool isInt8ByRow(moe::QuantAttr quant) {
  return quant && quant.getStorage().isInteger(8) && !moe::hasZeros(quant) &&
         !quant.getSecondScale() && !moe::areKeptAsBF16(quant) &&
         quant.getPacking() == moe::Packing::None &&
         moe::getScaleGroup(quant).columns == moe::ScaleGroup::kAll;
}

bool cpu::hasInt8Products(tile::GemmOp op) {
  return isInt8ByRow(op.getInputQuantAttr()) &&
         isInt8ByRow(op.getWeightQuantAttr());
}

std::string cpu::whyNotQuads(tile::GemmOp op, int64_t lanes) {
  // Sums of u8 x s8 stay below 2^31.
  constexpr int64_t mostK = 65536;
  int64_t k = getSizeK(op), step = kQuads * lanes;
  if (lanes < 8)
    return "lanes = " + number(lanes) + "; give 8 or 16 with instruction_k = 4";
  if (k % step == 0 && k <= mostK)
    return {};
  return "instruction_k = 4 needs rows of a multiple of " + number(step) +
         " elements, up to " + number(mostK) + ", and they have " + number(k) +
         "; give 1";
}

int64_t cpu::getTileK(tile::GemmOp op) {
  if (hasInt8Products(op))
    return kByteTiles;
  return hasBF16Products(op) ? kTiles : 0;
}

std::string cpu::whyNotInstruction(tile::GemmOp op, tile::CpuGemmAttr config,
                                   const Target &target) {
  int64_t k = getInstructionK(config);
  if (k == kFma)
    return {};
  std::string text = "instruction_k = " + number(k);
  if (k != kPairs && k != kQuads && k != kTiles && k != kByteTiles)
    return text + "; give 1, 2, 4, 32 or 64";
  bool multipliesInt8 = k == kQuads || k == kByteTiles;
  if (multipliesInt8 ? !hasInt8Products(op) : !hasBF16Products(op))
    return text +
           (multipliesInt8 ? " multiplies int8 with scales of whole rows"
                           : " multiplies bf16") +
           "; give 1 for other operands";
  auto [needed, name] =
      k == kPairs   ? std::pair(CpuProducts::Bf16, "AVX512_BF16")
      : k == kQuads ? std::pair(CpuProducts::Vnni, "AVX512_VNNI or AVX_VNNI")
                    : std::pair(CpuProducts::Amx, "AMX");
  if (target.products >= needed)
    return k == kQuads ? whyNotQuads(op, config.getLanes()) : std::string();
  return text + " needs a CPU with " + name + "; give 1" +
         (k == kTiles && target.products == CpuProducts::Bf16 ? " or 2" : "") +
         " for the target";
}

std::string cpu::whyNotTiles(tile::GemmOp op, tile::CpuGemmAttr config) {
  int64_t step = getInstructionK(config);
  auto refuse = [&](StringRef field, int64_t value, const std::string &remedy) {
    return field.str() + " = " + number(value) + "; give " + remedy +
           " with instruction_k = " + number(step);
  };
  auto isOneOrTwoTiles = [](int64_t rows) {
    return rows == kTileSize || rows == 2 * kTileSize;
  };
  int64_t perColumn = op.getLayout() ? 2 : 1;
  int64_t columns =
      getWeightType(op).getDimSize(getWeightType(op).getRank() - 2) / perColumn;
  int64_t most = getMaxTileRows(op);
  if (!most)
    return "16 input rows of " + number(getSizeK(op)) +
           " elements exceed the 256 KiB that instruction_k = " + number(step) +
           " copies; give instruction_k = 1";
  if (!isOneOrTwoTiles(config.getRegisterRows()))
    return refuse("register_rows", config.getRegisterRows(), "16 or 32");
  int64_t n = config.getRegisterColumns();
  if (n % kTileSize || !isOneOrTwoTiles(n * perColumn))
    return refuse("register_columns", n, perColumn == 1 ? "16 or 32" : "16");
  if (columns % n)
    return refuse("register_columns", n,
                  "a divisor of the " + number(columns) + " columns");
  int64_t k = config.getBlockK();
  if (k < kTiles || k % kTiles || getSizeK(op) % k)
    return refuse("block_k", k,
                  "a multiple of 32 that divides the " + number(getSizeK(op)) +
                      " elements of K");
  if (config.getLanes() != kTileSize)
    return refuse("lanes", config.getLanes(), "16");
  int64_t rows = config.getRowsPerCta();
  if (rows % kTileSize || rows > most)
    return refuse("rows_per_cta", rows,
                  "a multiple of 16 up to " + number(most));
  return {};
}
