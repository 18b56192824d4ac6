//===- TensorMemory.h - tcgen05 and tensor memory ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// tcgen05 after the PTX ISA, "TensorCore 5th Generation Family Instructions":
// copies of scales, block-scaled MMAs of one CTA, and loads by warps.

#ifndef MOEC_VERIFY_PTXSIM_ENGINE_TENSORMEMORY_H
#define MOEC_VERIFY_PTXSIM_ENGINE_TENSORMEMORY_H

#include "Engine.h"

#include <deque>

namespace moec::ptx {

/// A tcgen05 descriptor of a matrix or of scales in shared memory. wgmma
/// descriptors have another bit layout.
struct SharedDescriptor {
  uint64_t bits;

  /// Why the descriptor is invalid; empty if it is valid.
  std::string verify(unsigned swizzleBytes) const;
  /// Address of 16 bytes of a row, where rows have `pitch` bytes and 8 rows are
  /// adjacent.
  uint64_t chunk(unsigned row, unsigned pitch, unsigned number) const;
};

/// The instruction descriptor of kind::mxf8f6f4.
struct ProductDescriptor {
  uint32_t bits;

  std::string verify() const;
  unsigned rows() const { return (bits >> 17 & 0x3F) * 8; }
  unsigned typeA() const { return bits >> 7 & 7; }
  unsigned typeB() const { return bits >> 10 & 7; }
  unsigned scaleA() const { return bits >> 29 & 3; }
  unsigned scaleB() const { return bits >> 4 & 3; }
};

/// One tcgen05.cp, .mma or .commit.
struct TensorOperation {
  enum class Kind : uint8_t { Copy, Product, Commit };

  Kind kind = Kind::Commit;
  const Instruction *instruction = nullptr;
  /// Clock that the operation is ordered after; for a commit, what it
  /// publishes.
  ClockRef clock;
  unsigned unit = 0;
  uint32_t tick = 0;

  /// Tensor memory addresses: destination, and scales of an MMA.
  uint32_t target = 0, scaleA = 0, scaleB = 0;
  SharedDescriptor a{0}, b{0};
  ProductDescriptor product{0};
  bool keepsSums = false;
  uint64_t mbarrier = 0;
};

/// The tcgen05 operations that a thread has issued. MMAs and commits run in
/// order, after the copies before them; copies may overtake earlier operations.
class TensorQueue : public AsyncOperation {
public:
  TensorQueue(Warp &warp, unsigned lane);

  bool advance(Engine &engine) override;
  bool isDone() const override { return pending.empty(); }
  bool usesShared(const Cta &owner) const override {
    return &owner == cta && (!pending.empty());
  }

  /// Adds an operation of the thread.
  void add(TensorOperation operation);

private:
  bool run(const TensorOperation &operation);
  bool copy(const TensorOperation &operation);
  bool multiply(const TensorOperation &operation);
  bool commit(const TensorOperation &operation);
  bool gather(const TensorOperation &operation, const SharedDescriptor &matrix,
              unsigned type, unsigned rows, std::vector<float> &elements);
  bool readScales(const TensorOperation &operation, uint32_t address,
                  unsigned rows, unsigned byte, std::vector<float> &scales);
  const uint8_t *readChunk(const TensorOperation &operation, uint64_t address);
  /// Checks an access to columns of a lane of tensor memory; null after an
  /// error.
  uint32_t *access(const TensorOperation &operation, unsigned lane,
                   unsigned column, unsigned count, bool isWrite);
  Accessor accessor(const TensorOperation &operation) const;
  bool report(const TensorOperation &operation, const std::string &text);

  Warp &warp;
  const unsigned lane;
  std::deque<TensorOperation> pending;
  /// Joined clocks of all operations that the thread has issued.
  ClockRef started;
};

/// Tensor memory: 128 lanes x 512 columns of 32 bits, some columns of which the
/// CTA has allocated.
struct TensorMemory {
  static constexpr unsigned kLanes = 128, kColumns = 512, kCellBytes = 4;
  static constexpr unsigned kLaneBytes = kColumns * kCellBytes;
  static constexpr unsigned kLaneBit = 16;

  TensorMemory(unsigned first, unsigned columns, Visit taker);

  bool has(unsigned column, unsigned count) const {
    return column >= first && column + count <= first + columns;
  }
  static uint64_t address(unsigned lane, unsigned column) {
    return uint64_t(lane) * kLaneBytes + uint64_t(column) * kCellBytes;
  }

  Region cells;
  const unsigned first, columns;
  const Visit taker;
  /// Operation queues, by thread.
  std::unordered_map<unsigned, std::shared_ptr<TensorQueue>> queues;
  /// Registers that tcgen05.ld has loaded without a wait, and their values.
  struct Load {
    std::vector<Slot> registers;
    std::vector<uint32_t> values;
  };
  std::unordered_map<unsigned, std::vector<Load>> loads;
};

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_ENGINE_TENSORMEMORY_H
