//===- SharedMemory.h - effects of kernels on shared memory -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Effects of ops in the llvm and nvvm dialects on shared memory through its two
// proxies: the generic proxy of loads and stores, and the async proxy of bulk
// copies and of tensor cores that read shared memory.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TRANSFORMS_GPU_SHAREDMEMORY_H
#define MOEC_LIB_TRANSFORMS_GPU_SHAREDMEMORY_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/DenseMap.h"

#include <set>

namespace moec {

/// An address in shared memory: a variable (dynamic shared memory is one) and
/// the sum in bytes of the constants that are added to it first. `isMoved`:
/// something that is not constant is added after them.
struct SharedAddress {
  mlir::StringAttr variable;
  int64_t offset;
  bool isMoved;
};

/// The addresses that a pointer may have.
struct SharedAddresses {
  /// Whether the pointer is of unknown origin; else `list` has all addresses,
  /// none for a pointer into global memory.
  bool isUnknown = false;
  llvm::SmallVector<SharedAddress> list;

  bool empty() const { return !isUnknown && list.empty(); }
  void append(const SharedAddresses &other);
};

SharedAddresses findSharedAddresses(mlir::Value pointer);

/// Variables split into sections. A section begins at an address that is moved
/// or accessed asynchronously, and ends where the next one begins: additions to
/// an address are assumed to stay within its section.
class SharedParts {
public:
  void beginPart(const SharedAddress &address);
  /// Whether some section may contain addresses of both.
  bool overlap(const SharedAddresses &some,
               const SharedAddresses &others) const;

private:
  /// The begin of the section that contains the address.
  int64_t getBegin(const SharedAddress &address) const;

  llvm::DenseMap<mlir::StringAttr, std::set<int64_t>> begins;
};

/// The effect of an op in the rules of proxies.
enum class SharedEffect {
  None,
  /// Writes through the generic proxy.
  Write,
  /// Starts a copy that writes through the generic proxy, and arrives later.
  Copy,
  CommitCopies,
  /// Waits until at most `numGroups` groups of copies are open.
  WaitCopies,
  /// Initializes a barrier that bulk copies complete on.
  InitBarrier,
  /// Accesses memory through the async proxy.
  AsyncAccess,
  /// Publishes writes to other threads: a barrier or an arrival.
  Publish,
  /// Publishes as soon as all open copies are done.
  PublishCopies,
  FenceProxy,
  FenceBarrierInit,
};

struct SharedAccess {
  SharedEffect effect = SharedEffect::None;
  /// Addresses of a write, a copy or an access.
  SharedAddresses addresses;
  int64_t numGroups = 0;
};

/// `described`: the addresses that tensor cores may read, since their
/// descriptor operands do not tell.
SharedAccess getSharedAccess(mlir::Operation *op,
                             const SharedAddresses &described);

/// Addresses that are converted to integers anywhere in a function, as
/// descriptors for tensor cores need; unknown if there are none.
SharedAddresses findDescribed(mlir::LLVM::LLVMFuncOp func);

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_GPU_SHAREDMEMORY_H
