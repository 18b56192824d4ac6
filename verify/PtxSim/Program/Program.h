//===- Program.h - PTX decoded for execution --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXSIM_PROGRAM_PROGRAM_H
#define MOEC_VERIFY_PTXSIM_PROGRAM_PROGRAM_H

#include "PtxText.h"

#include <memory>
#include <unordered_map>

namespace moec::ptx {

class Warp;
struct Instruction;

inline constexpr unsigned kWarpLanes = 32;
/// Bit i stands for lane i.
using LaneMask = uint32_t;
inline constexpr LaneMask kAllLanes = ~LaneMask(0);

/// Shared: memory of the thread's own CTA; Cluster: of any CTA of its cluster.
enum class Space : uint8_t { Generic, Global, Shared, Cluster, Local, Param };

/// Location of the 32 lanes of a value: an offset in the warp's registers or in
/// the program's constants. A predicate is one LaneMask.
struct Slot {
  static constexpr uint32_t kConstant = 1u << 31;
  static constexpr uint32_t kNone = ~uint32_t(0);

  uint32_t bits = kNone;

  explicit operator bool() const { return bits != kNone; }
};

/// Effect of an instruction on the program counter of its lanes.
enum class Step : uint8_t {
  /// Continue with the next instruction.
  Next,
  /// The handler has set the program counters.
  Jumped,
  /// The lanes stay, and retry after an event. Does not count as retired.
  Blocked,
  /// As Next, but other warps should run.
  Yield,
  /// As Yield, but not counted: a wait has failed.
  Poll,
  /// As Poll, and the warp sleeps until another warp writes something that
  /// waits poll.
  Sleep,
  /// An error was reported.
  Failed,
};

/// Executes an instruction for the lanes of `mask`: those of a converged group
/// whose guard holds.
using Handler = Step (*)(Warp &warp, const Instruction &instruction,
                         LaneMask mask);

/// `[slot + offset]`.
struct AddressOperand {
  Slot slot;
  /// The register has 32 bits.
  bool is32 = false;
  int64_t offset = 0;
};

/// A decoded instruction. Each handler defines the meaning of most fields.
struct Instruction {
  Handler handler = nullptr;
  Slot guard;
  bool isGuardNegated = false;
  /// Reads or writes registers that a wgmma may have in flight.
  bool touchesAccumulators = false;
  /// A move between registers, which the assembler may reorder.
  bool isMove = false;
  /// The handler runs once for the whole group, including lanes whose guard
  /// does not hold.
  bool isCollective = false;
  /// The state space that a memory instruction names.
  Space space = Space::Generic;
  /// Bytes of an element in memory and in its register, and the number of
  /// elements.
  uint8_t width = 0, registerWidth = 0, count = 0;
  uint32_t flags = 0;
  /// A jump's target, or a number.
  int64_t immediate = 0;
  std::vector<Slot> operands;
  std::vector<AddressOperand> addresses;
  unsigned line = 0;
  SourceLocation location;
  /// Index among the instructions of all modules.
  uint32_t id = 0;
  /// The region of the last access, which speeds up the next search.
  mutable uint32_t regionHint = 0;
};

enum class SpecialRegister : uint8_t {
  TidX,
  TidY,
  TidZ,
  NtidX,
  NtidY,
  NtidZ,
  CtaidX,
  CtaidY,
  CtaidZ,
  NctaidX,
  NctaidY,
  NctaidZ,
  LaneId,
  WarpId,
  DynamicSharedSize,
  ClusterCtaRank,
  ClusterNctaRank,
  LanemaskLt,
  LanemaskLe,
  LanemaskEq,
  LanemaskGt,
  LanemaskGe,
};

/// A register that holds a special value from the warp's start on.
struct SpecialSlot {
  SpecialRegister which;
  Slot slot;
};

struct Param {
  uint64_t offset = 0, size = 0;
};

struct Kernel {
  std::string name;
  std::vector<Param> params;
  uint64_t paramBytes = 0;
  unsigned requiredThreads = 0, maxThreads = 0, maxRegisters = 0;
  unsigned clusterCtas = 1;
  std::vector<Instruction> code;
  /// Register bytes of a warp, and the constants of the kernel.
  uint32_t registerBytes = 0;
  std::vector<uint8_t> constants;
  std::vector<SpecialSlot> specials;
  uint64_t localBytes = 0;
  /// Bytes of declared shared memory, and the offset of its dynamic part.
  uint64_t staticShared = 0;
  /// Index of its first instruction among all of the module.
  uint32_t firstId = 0;
};

struct Program {
  std::string target, fileName;
  std::map<unsigned, std::string> files;
  std::vector<std::string> lines;
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::unordered_map<std::string, Kernel *> kernelByName;
};

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_PROGRAM_PROGRAM_H
