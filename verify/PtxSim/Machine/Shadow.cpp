//===- Shadow.cpp - race detection by cells of memory -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Shadow.h"

#include <algorithm>

using namespace moec::ptx;

OrderOracle::~OrderOracle() = default;

namespace {

/// `Access::who` of a read that stands for several: either kMany, and `tick` is
/// the index of their set; or the last read with a bit that no serial has.
constexpr uint32_t kMany = ~uint32_t(0), kLastOfMany = 1u << 31;
static_assert(Access::pack(kMaxSerial, kNumUnits - 1, true) < kLastOfMany);
/// Number of readers recorded one by one. Beyond it, shared memory keeps some
/// of them. Global memory keeps the last and that there were many, unless all
/// are of one CTA.
constexpr size_t kMaxReadersShared = 12, kMaxReadersGlobal = 4;

bool isSet(const Access &read) { return read.who == kMany; }
bool isLastOfMany(const Access &read) {
  return (read.who & kLastOfMany) != 0 && !isSet(read);
}

Access makeLastOfMany(Access read) {
  read.who |= kLastOfMany;
  return read;
}
Access getLastOfMany(Access many) {
  many.who &= ~kLastOfMany;
  return many;
}

} // namespace

//===----------------------------------------------------------------------===//
// Cells
//===----------------------------------------------------------------------===//

Shadow::Page &Shadow::makePage(uint64_t page) {
  if (page >= pages.size())
    pages.resize((bytes >> shift) / kPageCells + 1);
  if (!pages[page])
    pages[page] = std::make_unique<Page>();
  return *pages[page];
}

inline Shadow::Cell &Shadow::cell(uint64_t index) {
  uint64_t page = index / kPageCells;
  if (page < pages.size() && pages[page])
    return (*pages[page])[index % kPageCells];
  return makePage(page)[index % kPageCells];
}

void Shadow::refine(uint64_t offset, uint64_t size) {
  unsigned wanted = (offset | size) & 1 ? 0 : 1;
  if (wanted >= shift)
    return;
  Shadow fine(bytes, isShared);
  fine.shift = wanted;
  unsigned pieces = 1u << (shift - wanted);
  for (size_t page = 0; page < pages.size(); ++page) {
    if (!pages[page])
      continue;
    for (unsigned i = 0; i < kPageCells; ++i) {
      const Cell &old = (*pages[page])[i];
      if (old.write.isNone() && old.read.isNone())
        continue;
      for (unsigned piece = 0; piece < pieces; ++piece) {
        Cell &made = fine.cell((page * kPageCells + i) * pieces + piece);
        made = old;
        if (!isSet(old.read))
          continue;
        made.read.tick = uint32_t(fine.sets.size());
        fine.sets.push_back(sets[old.read.tick]);
      }
    }
  }
  fine.blocks = std::move(blocks);
  *this = std::move(fine);
}

void Shadow::dropReads(Cell &cell) {
  if (isSet(cell.read))
    freeSets.push_back(cell.read.tick);
  cell.read = Access();
}

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

inline bool Shadow::isOrdered(const Access &earlier,
                              const Accessor &now) const {
  if ((earlier.who ^ now.access.who) >> 8 == 0) {
    if (earlier.tick <= now.clock->own.units[earlier.unit()])
      return true;
    if (earlier.who >> 1 == now.own && earlier.lanes == now.ownLanes)
      return true;
  } else if (earlier.serial() < now.horizon) {
    return true;
  }
  return isOrderedSlowly(earlier, now);
}

/// Whether `earlier` is ordered before a write by `now`.
bool Shadow::isOrderedForWrite(const Access &earlier,
                               const Accessor &now) const {
  return isOrdered(earlier, now) ||
         (!isAsyncUnit(now.access.unit()) && earlier.serial() != now.serial() &&
          now.oracle->isBehind(earlier.serial(), now.serial()));
}

/// True if `earlier`, a read or a copy, had ended before another CTA arrived
/// where the thread of a write `now` has waited.
static bool isFinished(const Access &earlier, const Accessor &now) {
  if (!now.finished)
    return false;
  const CtaKnowledge *known = earlier.serial() == now.finished->serial
                                  ? &now.finished->own
                                  : now.finished->findForeign(earlier.serial());
  return known &&
         known->knowsLanes(earlier.unit(), earlier.lanes, earlier.tick);
}

bool Shadow::isReadOrderedForWrite(const Access &read,
                                   const Accessor &now) const {
  return isOrderedForWrite(read, now) || isFinished(read, now);
}

bool Shadow::isOrderedSlowly(const Access &earlier, const Accessor &now) const {
  if (earlier.serial() == now.serial()) {
    // An operation does not race with itself.
    if (!isWarpUnit(earlier.unit()))
      return earlier.unit() == now.access.unit() &&
             earlier.tick == now.access.tick && isAsyncUnit(earlier.unit());
    LaneMask others = earlier.lanes;
    // A lane's own accesses are ordered. An access of the whole warp is not one
    // lane's own.
    if (earlier.who >> 1 == now.own && (now.ownLanes & (now.ownLanes - 1)) == 0)
      others &= ~now.ownLanes;
    return others == 0 ||
           now.clock->own.knowsLanes(earlier.unit(), others, earlier.tick);
  }
  const CtaKnowledge *known = now.clock->findForeign(earlier.serial());
  return (known &&
          known->knowsLanes(earlier.unit(), earlier.lanes, earlier.tick)) ||
         now.oracle->isBefore(earlier, *now.clock);
}

/// Fast path of most writes.
inline bool Shadow::isFineAfterWrite(const Cell &cell,
                                     const Accessor &now) const {
  return cell.write.isNone() ||
         (!isAsyncUnit(now.access.unit()) && isOrdered(cell.write, now));
}

/// If several lanes accessed the cell, the report names an unordered one.
static Conflict makeRace(Access earlier, const Accessor &now, bool isWrite) {
  if (earlier.who >> 1 == now.own && (earlier.lanes & ~now.ownLanes))
    earlier.lanes &= ~now.ownLanes;
  return {Conflict::Kind::Race, earlier, isWrite};
}

Conflict Shadow::conflictWithWrite(const Cell &cell,
                                   const Accessor &now) const {
  const Access &write = cell.write;
  if (write.isNone())
    return {};
  if (!isOrdered(write, now) && !(write.isStrong() && now.access.isStrong()))
    return makeRace(write, now, true);
  if (isAsyncUnit(now.access.unit()) && !isAsyncUnit(write.unit()) &&
      write.serial() >= now.horizon &&
      !now.oracle->isFenced(write, isShared, *now.clock))
    return {Conflict::Kind::Unfenced, write, true};
  return {};
}

Conflict Shadow::conflictWithReads(Cell &cell, const Accessor &now) {
  const Access &read = cell.read;
  if (read.isNone())
    return {};
  auto races = [&](const Access &earlier) {
    return !isReadOrderedForWrite(earlier, now) &&
           !(earlier.isStrong() && now.access.isStrong());
  };
  if (isLastOfMany(read)) {
    Access last = getLastOfMany(read);
    if (races(last))
      return makeRace(last, now, false);
    // Several CTAs have read. A thread without knowledge of other CTAs cannot
    // be ordered after all of them.
    bool areStrong = last.isStrong() && now.access.isStrong();
    if (last.serial() == now.serial() && !areStrong &&
        now.clock->foreign.empty())
      return makeRace(last, now, false);
    return {};
  }
  if (!isSet(read))
    return races(read) ? makeRace(read, now, false) : Conflict{};
  for (const Access &earlier : sets[read.tick])
    if (races(earlier))
      return makeRace(earlier, now, false);
  return {};
}

//===----------------------------------------------------------------------===//
// Reads
//===----------------------------------------------------------------------===//

/// Whether `now` makes `earlier` redundant: anything ordered after `now` is
/// ordered after `earlier`.
static bool isSameWarpAfter(const Access &earlier, const Access &now) {
  return earlier.who == now.who && (earlier.lanes & ~now.lanes) == 0;
}

void Shadow::addRead(Cell &cell, const Accessor &now) {
  Access &read = cell.read;
  const Access &access = now.access;
  if (read.who == access.who && read.tick == access.tick) {
    read.lanes |= access.lanes;
    return;
  }
  if (isSet(read)) {
    addToSet(cell, now);
    return;
  }
  if (isLastOfMany(read)) {
    addToMany(cell, now);
    return;
  }
  if (read.isNone() || isSameWarpAfter(read, access) || isOrdered(read, now)) {
    read = access;
    return;
  }
  uint32_t index;
  if (freeSets.empty()) {
    index = uint32_t(sets.size());
    sets.emplace_back();
  } else {
    index = freeSets.back();
    freeSets.pop_back();
  }
  sets[index].assign({read, access});
  read = Access();
  read.who = kMany;
  read.tick = index;
}

void Shadow::addToMany(Cell &cell, const Accessor &now) {
  Access last = getLastOfMany(cell.read);
  bool isOver =
      last.serial() < now.horizon ||
      (last.serial() != now.serial() && now.oracle->isBefore(last, *now.clock));
  if (isOver)
    cell.read = now.access;
  else if (!now.access.isStrong())
    cell.read = makeLastOfMany(now.access);
}

void Shadow::addToSet(Cell &cell, const Accessor &now) {
  std::vector<Access> &set = sets[cell.read.tick];
  for (Access &earlier : set)
    if (earlier.who == now.access.who && earlier.tick == now.access.tick) {
      earlier.lanes |= now.access.lanes;
      return;
    }
  set.erase(std::remove_if(set.begin(), set.end(),
                           [&](const Access &earlier) {
                             return isSameWarpAfter(earlier, now.access) ||
                                    isOrdered(earlier, now);
                           }),
            set.end());
  auto isOfSameCta = [&](const Access &earlier) {
    return earlier.serial() == now.access.serial();
  };
  size_t most = isShared ? kMaxReadersShared
                : std::all_of(set.begin(), set.end(), isOfSameCta)
                    ? kMaxWarps
                    : kMaxReadersGlobal;
  if (set.size() < most) {
    set.push_back(now.access);
    return;
  }
  if (isShared) {
    set[now.access.tick % set.size()] = now.access;
    return;
  }
  // One non-atomic read stands for all.
  Access last = now.access;
  for (const Access &earlier : set)
    if (!earlier.isStrong())
      last = earlier;
  dropReads(cell);
  cell.read = makeLastOfMany(last);
}

//===----------------------------------------------------------------------===//
// Entry points
//===----------------------------------------------------------------------===//

Conflict Shadow::read(uint64_t offset, uint64_t size, const Accessor &now) {
  if ((offset | size) & ((1u << shift) - 1))
    refine(offset, size);
  uint64_t end = (offset + size - 1) >> shift;
  for (uint64_t i = offset >> shift; i <= end; ++i) {
    Cell &touched = cell(i);
    if (!isFineAfterWrite(touched, now))
      if (Conflict conflict = conflictWithWrite(touched, now))
        return conflict;
    // Most cells have no reader, or only this thread.
    if (touched.read.isNone())
      touched.read = now.access;
    else
      addRead(touched, now);
  }
  return {};
}

Conflict Shadow::write(uint64_t offset, uint64_t size, const Accessor &now) {
  if ((offset | size) & ((1u << shift) - 1))
    refine(offset, size);
  if (!blocks.empty())
    if (Conflict conflict = conflictWithBlocks(offset, size, now))
      return conflict;
  uint64_t end = (offset + size - 1) >> shift;
  for (uint64_t i = offset >> shift; i <= end; ++i) {
    Cell &touched = cell(i);
    if (!isFineAfterWrite(touched, now) &&
        (isAsyncUnit(now.access.unit()) ||
         !isOrderedForWrite(touched.write, now)) &&
        (isWarpUnit(touched.write.unit()) || !isFinished(touched.write, now)))
      if (Conflict conflict = conflictWithWrite(touched, now))
        return conflict;
    if (!touched.read.isNone()) {
      if (Conflict conflict = conflictWithReads(touched, now))
        return conflict;
      dropReads(touched);
    }
    touched.write = now.access;
  }
  return {};
}

Conflict Shadow::readBlock(uint64_t offset, const Accessor &now) {
  uint64_t end = (offset + kBlockBytes - 1) >> shift;
  for (uint64_t i = offset >> shift; i <= end; ++i)
    if (Conflict conflict = conflictWithWrite(cell(i), now))
      return conflict;
  if (blocks.empty())
    blocks.resize(bytes / kBlockBytes + 1);
  Block &block = blocks[offset / kBlockBytes];
  for (unsigned i = 0; i < block.count; ++i) {
    Access &earlier = block.reads[i];
    if (earlier.who == now.access.who && earlier.tick == now.access.tick)
      return {};
    if (isOrdered(earlier, now)) {
      earlier = now.access;
      return {};
    }
  }
  if (block.count < Block::kMost)
    block.reads[block.count++] = now.access;
  else
    block.reads[now.access.tick % Block::kMost] = now.access;
  return {};
}

Conflict Shadow::conflictWithBlocks(uint64_t offset, uint64_t size,
                                    const Accessor &now) {
  uint64_t end = (offset + size - 1) / kBlockBytes;
  for (uint64_t i = offset / kBlockBytes; i <= end; ++i) {
    Block &block = blocks[i];
    for (unsigned j = 0; j < block.count; ++j)
      if (!isReadOrderedForWrite(block.reads[j], now))
        return makeRace(block.reads[j], now, false);
  }
  return {};
}

Conflict Shadow::checkWrite(uint64_t offset, uint64_t size,
                            const Accessor &now) {
  uint64_t end = (offset + size - 1) >> shift;
  for (uint64_t i = offset >> shift; i <= end; ++i)
    if (Conflict conflict = conflictWithWrite(cell(i), now))
      return conflict;
  return {};
}

void Shadow::settle(uint64_t offset, uint64_t size, const Access &from,
                    const Access &to) {
  uint64_t end = (offset + size - 1) >> shift;
  for (uint64_t i = offset >> shift; i <= end; ++i) {
    Access &write = cell(i).write;
    if (write.who == from.who && write.tick == from.tick &&
        write.lanes == from.lanes)
      write = to;
  }
}

void Shadow::clear(uint64_t offset, uint64_t size) {
  if (size == 0)
    return;
  uint64_t end = (offset + size - 1) >> shift;
  for (uint64_t i = offset >> shift; i <= end;) {
    uint64_t page = i / kPageCells;
    if (page >= pages.size())
      return;
    if (!pages[page]) {
      i = (page + 1) * kPageCells;
      continue;
    }
    Cell &touched = (*pages[page])[i % kPageCells];
    dropReads(touched);
    touched.write = Access();
    ++i;
  }
}
