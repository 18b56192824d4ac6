//===- Clock.h - vector clocks ----------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Vector clocks. A *unit* is a warp of a CTA or one of its asynchronous
// operations. Each unit counts *ticks*, which advance when it releases. A clock
// holds, for each lane of each unit, the tick up to which that lane's accesses
// are ordered before the clock's thread.

#ifndef MOEC_VERIFY_PTXSIM_MACHINE_CLOCK_H
#define MOEC_VERIFY_PTXSIM_MACHINE_CLOCK_H

#include "../Program/Program.h"

#include <utility>

namespace moec::ptx {

//===----------------------------------------------------------------------===//
// Units
//===----------------------------------------------------------------------===//

inline constexpr unsigned kMaxWarps = 32;
/// Unit kCopyUnit + w: cp.async copies of warp w, which use the generic proxy.
inline constexpr unsigned kCopyUnit = kMaxWarps;
/// Units from here on are operations of the async proxy.
inline constexpr unsigned kAsyncUnit = 2 * kMaxWarps;
/// Units from here on are st.async, which uses the generic proxy.
inline constexpr unsigned kStoreUnit = 120;
inline constexpr unsigned kNumUnits = 128;

inline bool isWarpUnit(unsigned unit) { return unit < kMaxWarps; }
inline bool isAsyncUnit(unsigned unit) {
  return unit >= kAsyncUnit && unit < kStoreUnit;
}
inline bool isStoreUnit(unsigned unit) { return unit >= kStoreUnit; }

//===----------------------------------------------------------------------===//
// Clocks
//===----------------------------------------------------------------------===//

/// Number of pointers to an object; a copy of the object starts at none.
struct RefCount {
  RefCount() = default;
  RefCount(const RefCount &) {}
  RefCount &operator=(const RefCount &) { return *this; }

  unsigned count = 0;
};

/// A reference-counted pointer, for use within one thread.
template <typename T>
class Ref {
public:
  Ref() = default;
  explicit Ref(T *made) : pointer(made) { retain(); }
  Ref(const Ref &other) : pointer(other.pointer) { retain(); }
  Ref(Ref &&other) noexcept : pointer(other.pointer) {
    other.pointer = nullptr;
  }
  Ref &operator=(Ref other) noexcept {
    std::swap(pointer, other.pointer);
    return *this;
  }
  ~Ref() {
    if (pointer && --pointer->references.count == 0)
      delete pointer;
  }

  T *get() const { return pointer; }
  T &operator*() const { return *pointer; }
  T *operator->() const { return pointer; }
  explicit operator bool() const { return pointer; }
  bool operator==(const Ref &other) const { return pointer == other.pointer; }
  bool operator!=(const Ref &other) const { return pointer != other.pointer; }

private:
  void retain() {
    if (pointer)
      ++pointer->references.count;
  }
  T *pointer = nullptr;
};

/// Per-thread free lists for clocks, which each synchronization creates and
/// drops.
void *takeMemory(size_t bytes);
void giveBack(void *memory, size_t bytes);

template <typename T>
struct Recycler {
  using value_type = T;
  Recycler() = default;
  template <typename U>
  Recycler(const Recycler<U> &) {}
  T *allocate(size_t count) {
    return static_cast<T *>(takeMemory(count * sizeof(T)));
  }
  void deallocate(T *memory, size_t count) {
    giveBack(memory, count * sizeof(T));
  }
  bool operator==(const Recycler &) const { return true; }
  bool operator!=(const Recycler &) const { return false; }
};

/// Base of types whose `new` uses that memory.
struct Recycled {
  static void *operator new(size_t bytes) { return takeMemory(bytes); }
  static void operator delete(void *memory, size_t bytes) {
    giveBack(memory, bytes);
  }
};

/// Known ticks of one CTA.
struct CtaKnowledge : Recycled {
  explicit CtaKnowledge(unsigned numWarps)
      : lanes(size_t(numWarps) * kWarpLanes, 0) {}

  bool knowsLanes(unsigned unit, LaneMask mask, uint32_t tick) const;
  void join(const CtaKnowledge &other);
  void meet(const CtaKnowledge &other);
  void set(unsigned unit, LaneMask mask, uint32_t tick);

  RefCount references;
  /// Ticks that are known for all lanes of a unit.
  uint32_t units[kNumUnits] = {};
  std::vector<uint32_t, Recycler<uint32_t>> lanes;
};

/// A vector clock of a thread of one CTA, shared by threads with equal
/// knowledge.
struct Clock : Recycled {
  Clock(uint32_t serial, unsigned numWarps) : serial(serial), own(numWarps) {}

  void join(const Clock &other);
  /// Keeps the common knowledge. `other` is of the same CTA.
  void meet(const Clock &other);
  /// Known ticks of another CTA; null if there are none.
  const CtaKnowledge *findForeign(uint32_t serial) const;
  void joinForeign(uint32_t serial, const Ref<CtaKnowledge> &other);

  RefCount references;
  uint32_t serial;
  CtaKnowledge own;
  /// Known ticks of other CTAs, by ascending serial.
  std::vector<std::pair<uint32_t, Ref<CtaKnowledge>>> foreign;
  /// Ascending Launch::id of the launches that were waited for. All that they
  /// did, and all that had ended before their end, is known.
  std::vector<uint64_t> launches;
};

using ClockRef = Ref<Clock>;

/// Makes `clock` the only reference to its object, so that it can be changed.
Clock &unshare(ClockRef &clock);

/// Adds the knowledge of `from` to `into`. Equal and null clocks cost nothing.
void join(ClockRef &into, const ClockRef &from);

//===----------------------------------------------------------------------===//
// Accesses
//===----------------------------------------------------------------------===//

/// One access, as a memory cell records it.
struct Access {
  /// 23 bits of CTA serial, 7 of unit, 1 for atomic accesses. Shadow uses the
  /// bit above them.
  uint32_t who = 0;
  uint32_t tick = 0;
  LaneMask lanes = 0;
  /// Index of the instruction among those of all modules.
  uint32_t id = 0;

  static constexpr uint32_t pack(uint32_t serial, unsigned unit,
                                 bool isStrong) {
    return serial << 8 | unit << 1 | uint32_t(isStrong);
  }
  bool isNone() const { return who == 0; }
  uint32_t serial() const { return who >> 8; }
  unsigned unit() const { return who >> 1 & 0x7F; }
  bool isStrong() const { return who & 1; }
};

inline constexpr uint32_t kMaxSerial = (1u << 23) - 1;

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_MACHINE_CLOCK_H
