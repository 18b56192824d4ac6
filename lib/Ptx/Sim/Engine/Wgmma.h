//===- Wgmma.h - matrix products of four warps ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_PTX_SIM_ENGINE_WGMMA_H
#define MOEC_LIB_PTX_SIM_ENGINE_WGMMA_H

#include "../Numbers/Product.h"
#include "Engine.h"

namespace moec::ptx {

inline constexpr unsigned kWarpgroupWarps = 4;

/// A matrix in shared memory as a descriptor says it: 16 bytes of it at a time.
struct MatrixDescriptor {
  explicit MatrixDescriptor(uint64_t bits) : bits(bits) {}

  /// What is wrong with it; empty if nothing is.
  std::string verify() const;
  unsigned swizzleBytes() const;
  /// Where 8 rows times 16 bytes of depth are, row by row; `row` counts from
  /// the first, `chunk` is 0 or 1.
  uint64_t depthChunk(unsigned row, unsigned chunk) const;
  /// Where 8 rows (a multiple of 8 is the first) of one depth are, in a matrix
  /// whose rows are neighbours.
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

/// Products that were committed together, which end together. They are done in
/// order, as late as the waits allow or whenever the schedule likes.
class ProductGroup : public AsyncOperation {
public:
  ProductGroup(Cta &cta, unsigned warpgroup);

  bool advance(Engine &engine) override;
  bool isDone() const override { return next == products.size(); }
  bool usesShared() const override { return next < products.size(); }

  std::vector<AsyncProduct> products;
  /// What all of its threads knew when they began the last product.
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

/// What four warps have begun.
struct Warpgroup {
  std::shared_ptr<ProductGroup> open;
  /// Not known to be over to all of them.
  std::vector<std::shared_ptr<ProductGroup>> committed;
  /// Groups that were committed, and those of them that a warp has waited for.
  uint64_t numCommitted = 0, waited[kWarpgroupWarps] = {};
  /// Clocks of the threads at the last product, and what was common to them.
  std::vector<ClockRef> lastClocks;
  ClockRef commonClock;
};

/// Whether the registers of an instruction are free of products in flight; else
/// reports an error. Notes that a fence is needed.
bool checkAccumulators(Warp &warp, const Instruction &instruction,
                       LaneMask mask);

} // namespace moec::ptx

#endif // MOEC_LIB_PTX_SIM_ENGINE_WGMMA_H
