//===- Shadow.h - race detection by cells of memory -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Race detection in the style of FastTrack: a cell records its last write, and
// the reads since then that are not ordered before a later read.

#ifndef MOEC_VERIFY_PTXSIM_MACHINE_SHADOW_H
#define MOEC_VERIFY_PTXSIM_MACHINE_SHADOW_H

#include "Clock.h"

#include <array>

namespace moec::ptx {

/// Decides how accesses of former CTAs and kernels are ordered. Used only when
/// the fast paths fail.
class OrderOracle {
public:
  virtual ~OrderOracle();
  /// Whether another CTA's access is ordered before `reader`: its kernel ended
  /// before the reader's began, or the reader waited for that end, or a kernel
  /// that is ordered so had acquired the access.
  virtual bool isBefore(const Access &earlier, const Clock &reader) const = 0;
  /// Whether the kernel of CTA `earlier` had ended when that of `later` could
  /// begin. Its writes may not be visible there, but a write by `later` is
  /// ordered after them.
  virtual bool isBehind(uint32_t earlier, uint32_t later) const = 0;
  /// Whether a lane had executed a proxy fence after `tick` and before `until`.
  virtual bool isFenced(const Access &write, bool isShared,
                        const Clock &reader) const = 0;
};

/// The thread or operation that accesses memory now.
struct Accessor {
  const OrderOracle *oracle = nullptr;
  const Clock *clock = nullptr;
  /// Orders reads and copies before a write, see Warp::finished; may be null.
  const Clock *finished = nullptr;
  /// CTAs with smaller serials are ordered before all others.
  uint32_t horizon = 0;
  Access access;
  /// `who >> 1` and lanes of the thread whose accesses are ordered by its own
  /// program; all ones if there is none.
  uint32_t own = ~uint32_t(0);
  LaneMask ownLanes = 0;

  uint32_t serial() const { return access.serial(); }
};

/// An earlier access that conflicts with this one.
struct Conflict {
  enum class Kind : uint8_t { None, Race, Unfenced };
  Kind kind = Kind::None;
  Access other;
  bool isOtherWrite = false;

  explicit operator bool() const { return kind != Kind::None; }
};

/// The cells of one region of memory, created on first use.
class Shadow {
public:
  /// `isShared`: memory of one CTA, where few threads read a cell.
  Shadow(uint64_t bytes, bool isShared) : bytes(bytes), isShared(isShared) {}

  bool isOfCta() const { return isShared; }

  Conflict read(uint64_t offset, uint64_t size, const Accessor &accessor);
  Conflict write(uint64_t offset, uint64_t size, const Accessor &accessor);
  /// Checks that the last write of the range is ordered before `accessor` and,
  /// for an asynchronous one, fenced. Records nothing.
  Conflict checkWrite(uint64_t offset, uint64_t size, const Accessor &accessor);

  /// A read of 16 aligned bytes by an asynchronous operation. Faster than
  /// read(), and recorded by block.
  Conflict readBlock(uint64_t offset, const Accessor &accessor);

  /// Replaces writes of `from` by writes of `to`: a copy in flight has arrived.
  void settle(uint64_t offset, uint64_t size, const Access &from,
              const Access &to);
  /// Forgets the range, which the host wrote.
  void clear(uint64_t offset, uint64_t size);

private:
  struct Cell {
    Access write, read;
  };
  static constexpr unsigned kPageCells = 256;
  using Page = std::array<Cell, kPageCells>;

  /// The `count` reads of a block of kBlockBytes.
  struct Block {
    static constexpr unsigned kMost = 4;
    Access reads[kMost];
    unsigned count = 0;
  };
  static constexpr unsigned kBlockBytes = 16;

  Cell &cell(uint64_t index);
  Page &makePage(uint64_t page);
  /// Splits cells so that none is larger than the accesses.
  void refine(uint64_t offset, uint64_t size);
  bool isOrdered(const Access &earlier, const Accessor &accessor) const;
  bool isOrderedForWrite(const Access &earlier, const Accessor &accessor) const;
  bool isReadOrderedForWrite(const Access &read,
                             const Accessor &accessor) const;
  bool isOrderedSlowly(const Access &earlier, const Accessor &accessor) const;
  bool isFineAfterWrite(const Cell &cell, const Accessor &accessor) const;
  Conflict conflictWithWrite(const Cell &cell, const Accessor &accessor) const;
  Conflict conflictWithReads(Cell &cell, const Accessor &accessor);
  Conflict conflictWithBlocks(uint64_t offset, uint64_t size,
                              const Accessor &accessor);
  void addRead(Cell &cell, const Accessor &accessor);
  void addToSet(Cell &cell, const Accessor &accessor);
  void addToMany(Cell &cell, const Accessor &accessor);
  void dropReads(Cell &cell);

  uint64_t bytes;
  bool isShared;
  /// A cell covers 1 << shift bytes.
  unsigned shift = 2;
  std::vector<std::unique_ptr<Page>> pages;
  /// Empty unless readBlock() was called.
  std::vector<Block> blocks;
  /// Reads of cells that several units have read.
  std::vector<std::vector<Access>> sets;
  std::vector<uint32_t> freeSets;
};

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_MACHINE_SHADOW_H
