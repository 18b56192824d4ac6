//===- SharedMemory.h - what kernels do to shared memory --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the ops of a kernel in the llvm and nvvm dialects mean for the two ways
// to shared memory: the generic proxy of loads and stores, and the async proxy
// of bulk copies and of tensor cores that read shared memory.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TRANSFORMS_GPU_SHAREDMEMORY_H
#define MOEC_LIB_TRANSFORMS_GPU_SHAREDMEMORY_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/DenseMap.h"

#include <set>

namespace moec {

/// Where an address in shared memory begins: a variable (dynamic shared memory
/// is one) and the sum of the constants that are added to it first, in bytes.
/// `isMoved` if something that is not constant comes after them.
struct SharedAddress {
  mlir::StringAttr variable;
  int64_t offset;
  bool isMoved;
};

/// The addresses that a pointer may have.
struct SharedAddresses {
  /// If it is of unknown origin; else `list` has all of them, which is none for
  /// a pointer into global memory.
  bool isUnknown = false;
  llvm::SmallVector<SharedAddress> list;

  bool empty() const { return !isUnknown && list.empty(); }
  void append(const SharedAddresses &other);
};

SharedAddresses findSharedAddresses(mlir::Value pointer);

/// Variables in parts. A part begins where an address is moved, or accessed
/// asynchronously, and ends where the next one begins: what is added to an
/// address is taken not to lead into another part.
class SharedParts {
public:
  void beginPart(const SharedAddress &address);
  /// Some part may have both an address of the one and of the other.
  bool overlap(const SharedAddresses &some,
               const SharedAddresses &others) const;

private:
  /// Where the part begins that has the address.
  int64_t getBegin(const SharedAddress &address) const;

  llvm::DenseMap<mlir::StringAttr, std::set<int64_t>> begins;
};

/// What an op does that the rules of proxies are about.
enum class SharedEffect {
  None,
  /// Writes through the generic proxy.
  Write,
  /// Starts a copy that writes through the generic proxy, and arrives later.
  Copy,
  CommitCopies,
  /// Waits until at most `numGroups` groups of copies are open.
  WaitCopies,
  /// Makes a barrier that bulk copies complete on.
  InitBarrier,
  /// Accesses memory through the async proxy.
  AsyncAccess,
  /// Tells other threads that something was written: a barrier or an arrival.
  Publish,
  /// Tells them as soon as all open copies are done.
  PublishCopies,
  FenceProxy,
  FenceBarrierInit,
};

struct SharedAccess {
  SharedEffect effect = SharedEffect::None;
  /// What a write, a copy or an access is about.
  SharedAddresses addresses;
  int64_t numGroups = 0;
};

/// `described` says what tensor cores may read: their operands are descriptors,
/// which do not tell.
SharedAccess getSharedAccess(mlir::Operation *op,
                             const SharedAddresses &described);

/// What is made a number somewhere in a function, as a descriptor for tensor
/// cores needs it; unknown if there is none.
SharedAddresses findDescribed(mlir::LLVM::LLVMFuncOp func);

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_GPU_SHAREDMEMORY_H
