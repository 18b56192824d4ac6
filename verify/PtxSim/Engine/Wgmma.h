//===- Wgmma.h - wgmma by four warps ----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXSIM_ENGINE_WGMMA_H
#define MOEC_VERIFY_PTXSIM_ENGINE_WGMMA_H

#include "../Numbers/Product.h"
#include "Engine.h"

namespace moec::ptx {

inline constexpr unsigned kWarpgroupWarps = 4;

/// A wgmma descriptor of a matrix in shared memory, which is read in chunks of
/// 16 bytes.
struct MatrixDescriptor {
  explicit MatrixDescriptor(uint64_t bits) : bits(bits) {}

  /// Why the descriptor is invalid; empty if it is valid.
  std::string verify() const;
  unsigned swizzleBytes() const;
  /// Address of an 8-row x 16-byte chunk along K, row by row; `row` counts from
  /// the first, `chunk` is 0 or 1.
  uint64_t depthChunk(unsigned row, unsigned chunk) const;
  /// Address of 8 rows (the first a multiple of 8) at one k, in a matrix whose
  /// rows are adjacent in memory.
  uint64_t rowChunk(unsigned row, unsigned depth) const;

  uint64_t bits;

private:
  uint64_t start() const { return (bits & 0x3FFF) << 4; }
  uint64_t leading() const { return (bits >> 16 & 0x3FFF) << 4; }
  uint64_t stride() const { return (bits >> 32 & 0x3FFF) << 4; }
};

/// One wgmma.mma_async.
struct AsyncProduct {
  const Instruction *instruction = nullptr;
  MatrixDescriptor a{0}, b{0};
  bool keepsSums = false;
};

/// MMAs of one wgmma commit group, which complete together. MMAs run in
/// order, as late as waits allow or whenever the schedule chooses.
class ProductGroup : public AsyncOperation {
public:
  ProductGroup(Cta &cta, unsigned warpgroup);

  bool advance(Engine &engine) override;
  bool isDone() const override { return next == products.size(); }
  bool usesShared(const Cta &owner) const override {
    return &owner == cta && (next < products.size());
  }

  std::vector<AsyncProduct> products;
  /// Knowledge common to all of its threads at the start of the last MMA.
  ClockRef clock;
  unsigned unit;
  uint32_t tick;

private:
  bool run(const AsyncProduct &product);
  bool gather(const AsyncProduct &product, const MatrixDescriptor &matrix,
              bool isTransposed, MatrixType type, unsigned rows,
              std::vector<float> &elements);
  void gatherFromRegisters(const AsyncProduct &product,
                           std::vector<float> &elements);
  const uint8_t *readChunk(const AsyncProduct &product, uint64_t address);

  const unsigned warpgroup;
  size_t next = 0;
};

/// State of the wgmma operations of four warps.
struct Warpgroup {
  std::shared_ptr<ProductGroup> open;
  /// Groups whose end not all warps know of.
  std::vector<std::shared_ptr<ProductGroup>> committed;
  /// Number of committed groups, and how many of them each warp has waited for.
  uint64_t numCommitted = 0, waited[kWarpgroupWarps] = {};
  /// Clocks of the threads at the last MMA, and their common knowledge.
  std::vector<ClockRef> lastClocks;
  ClockRef commonClock;
};

/// Whether no MMA in flight uses the registers of an instruction; reports
/// an error otherwise. Notes that a fence is needed.
bool checkAccumulators(Warp &warp, const Instruction &instruction,
                       LaneMask mask);

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_ENGINE_WGMMA_H
