//===- Parts.h - the GPUs that code is made for -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A target ("sm_90a") says what instructions there are; a part ("h100-sxm") is
// a device that runs them, with so many multiprocessors and so fast a memory.
// What data sheets and the programming guide say of a part is here; what is
// fitted to times that were measured is in Device.h.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SUPPORT_PARTS_H
#define MOEC_SUPPORT_PARTS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <string>

namespace moec {

/// Registers of 32 bits, alike on all parts: of a multiprocessor, and the most
/// of a thread. CUDA C++ Programming Guide, technical specifications of compute
/// capabilities from 8.0 on.
inline constexpr int64_t kRegistersPerMultiprocessor = 64 << 10,
                         kRegistersPerThread = 255;
/// A warp has a multiple of so many for each thread.
inline constexpr int64_t kRegisterUnit = 8;

/// The most registers of a thread of which so many CTAs of `threads` each fit
/// in a multiprocessor.
constexpr int64_t getRegisterShare(int64_t ctas, int64_t threads) {
  return kRegistersPerMultiprocessor / (ctas * threads) / kRegisterUnit *
         kRegisterUnit;
}

/// What is published of a part.
struct PartFacts {
  /// As `--device-part` has it: "h100-sxm".
  llvm::StringLiteral name;
  /// In a sentence: "an H100 SXM".
  llvm::StringLiteral phrase;
  /// The target with the most that it can do: "sm_90a".
  llvm::StringLiteral architecture;
  /// Not for a device of the architecture of which nothing else is known: what
  /// stands here then is that of a part that is known.
  bool isKnown;

  int64_t multiprocessors;
  /// Bytes, as the driver tells them: a little less than what is built in.
  int64_t memoryBytes;
  /// Bytes of the second-level cache.
  int64_t l2Bytes;
  /// Bytes of shared memory of a CTA, and of a multiprocessor.
  int64_t sharedBytesPerCta, sharedBytesPerMultiprocessor;

  // Per second, by the data sheet: bytes of memory; dense operations of tensor
  // cores (a multiplication and an addition are two) by the elements that are
  // multiplied, 0 where there are no such instructions; operations on f32
  // without tensor cores.
  double sheetReadBytes;
  double sheetBf16Operations, sheetFp8Operations, sheetFp4Operations;
  double sheetF32Operations;
  /// W that the board may draw.
  double sheetPower;
  /// Bytes per second to other GPUs of a host, and as many from them.
  double sheetLinkBytes;

  // Per clock of one multiprocessor, by design.
  /// Dense operations of tensor cores with elements of 16 bits.
  double operationsPerClk;
  /// Bytes of shared memory.
  double sharedBytesPerClk;
  /// Bytes from the second-level cache.
  double smL2BytesPerClk;
  /// Instructions of a thread: four schedulers, a warp each.
  double instructionsPerClk;

  // What there are instructions for.
  /// Converting to and from floats of 8 bits.
  bool convertsFloat8;
  /// Waiting for the launch before (griddepcontrol).
  bool hasDependentLaunches;
  /// Bulk copies by tensor maps.
  bool hasBulkCopies;
  /// Products of a warpgroup (wgmma).
  bool hasWarpgroupProducts;
  /// Products into tensor memory (tcgen05).
  bool hasTensorMemory;
};

/// All parts; of each architecture the last one is a part of which nothing else
/// is known, called like the architecture.
llvm::ArrayRef<PartFacts> getParts();

/// The part called `name`, or null.
const PartFacts *findPart(llvm::StringRef name);

/// The part that code for a target is chosen for where none is named; null for
/// targets whose choices depend on no part.
const PartFacts *getDefaultPart(llvm::StringRef target);

/// The part of an architecture, given as a target, of which nothing else is
/// known; null for no such target.
const PartFacts *getUnknownPart(llvm::StringRef target);

/// Whether code for `target` runs on the part.
bool runsOn(llvm::StringRef target, const PartFacts &part);

/// Why no code for `target` is chosen for the part called `part`, and what to
/// do; empty if it can be, or if `part` is.
std::string whyNotPart(llvm::StringRef target, llvm::StringRef part);

/// The part that a device is which runs code for `target`: the known one of the
/// target's architecture with so many multiprocessors and, within 6 %, so much
/// memory in bytes, else the unknown one. Null for a target without a default.
const PartFacts *findPartOfDevice(llvm::StringRef target,
                                  int64_t multiprocessors, int64_t memoryBytes);

} // namespace moec

#endif // MOEC_SUPPORT_PARTS_H
