//===- Parts.h - published facts about supported GPUs -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A target ("sm_90a") is an instruction set; a part ("h100-sxm") is a device
// with a number of multiprocessors and a memory bandwidth. This table holds
// facts from data sheets and the programming guide. Rates fitted to measured
// times are in Device.h.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SUPPORT_PARTS_H
#define MOEC_SUPPORT_PARTS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <string>

namespace moec {

/// Registers of 32 bits: per multiprocessor, and at most per thread. Equal on
/// all parts; CUDA C++ Programming Guide, technical specifications of compute
/// capabilities from 8.0 on.
inline constexpr int64_t kRegistersPerMultiprocessor = 64 << 10,
                         kRegistersPerThread = 255;
/// Allocation granularity of registers per thread.
inline constexpr int64_t kRegisterUnit = 8;

/// The most registers per thread with which `ctas` CTAs of `threads` threads
/// fit on a multiprocessor.
constexpr int64_t getRegisterShare(int64_t ctas, int64_t threads) {
  return kRegistersPerMultiprocessor / (ctas * threads) / kRegisterUnit *
         kRegisterUnit;
}

/// Published facts about a part.
struct PartFacts {
  /// The name in `--device-part`: "h100-sxm".
  llvm::StringLiteral name = "";
  /// The name in a sentence: "an H100 SXM".
  llvm::StringLiteral phrase = "";
  /// The most capable target that the part runs: "sm_90a".
  llvm::StringLiteral architecture = "";
  /// False for the generic part of an architecture, whose facts are copied from
  /// a known part.
  bool isKnown;

  int64_t multiprocessors;
  /// Memory in bytes as the driver reports it: slightly less than installed.
  int64_t memoryBytes;
  /// Size of the L2 cache in bytes.
  int64_t l2Bytes;
  /// Shared memory in bytes, per CTA and per multiprocessor.
  int64_t sharedBytesPerCta, sharedBytesPerMultiprocessor;

  // Data-sheet rates per second: memory bytes read; dense tensor-core
  // operations by element type (a multiply-add is two; 0 without such
  // instructions); f32 operations without tensor cores.
  double sheetReadBytes;
  double sheetBf16Operations, sheetFp8Operations, sheetFp4Operations;
  double sheetF32Operations;
  /// Board power limit in W.
  double sheetPower;
  /// Bytes per second to other GPUs of the host, in each direction.
  double sheetLinkBytes;

  // Rates per clock and multiprocessor, by design.
  /// Dense tensor-core operations on 16-bit elements.
  double operationsPerClk;
  /// Shared memory bytes.
  double sharedBytesPerClk;
  /// L2 bytes.
  double smL2BytesPerClk;
  /// Thread instructions: four schedulers, one warp each.
  double instructionsPerClk;

  // Available instructions.
  /// Conversions from and to 8-bit floats.
  bool convertsFloat8;
  /// Waiting for the preceding launch (griddepcontrol).
  bool hasDependentLaunches;
  /// Bulk copies with tensor maps.
  bool hasBulkCopies;
  /// Warpgroup matrix multiplication (wgmma).
  bool hasWarpgroupProducts;
  /// Matrix multiplication into tensor memory (tcgen05).
  bool hasTensorMemory;
};

/// All parts. The last one of each architecture is its generic part, named like
/// the architecture.
llvm::ArrayRef<PartFacts> getParts();

/// The part called `name`, in full ("h100-sxm") or up to the dash ("h100"); or
/// null.
const PartFacts *findPart(llvm::StringRef name);

/// The default part for code of a target; null if the target's choices depend
/// on no part.
const PartFacts *getDefaultPart(llvm::StringRef target);

/// The generic part of the architecture of `target`; null if there is none.
const PartFacts *getUnknownPart(llvm::StringRef target);

/// Whether the part runs code for `target`.
bool runsOn(llvm::StringRef target, const PartFacts &part);

/// Reason why the part named `part` cannot be chosen for `target`, and what to
/// do instead. Empty if it can, or if `part` is empty.
std::string whyNotPart(llvm::StringRef target, llvm::StringRef part);

/// The part of a device that runs code for `target`: the known part of the
/// architecture with this number of multiprocessors and this memory size within
/// 6 %, else the generic one. Null for a target without a default part.
const PartFacts *findPartOfDevice(llvm::StringRef target,
                                  int64_t multiprocessors, int64_t memoryBytes);

} // namespace moec

#endif // MOEC_SUPPORT_PARTS_H
