//===- SharedMemory.cpp - what kernels do to shared memory ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SharedMemory.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/TypeSwitch.h"

#include <optional>

using namespace mlir;
using namespace moec;

static constexpr unsigned kGlobalSpace = 1;

//===----------------------------------------------------------------------===//
// Addresses
//===----------------------------------------------------------------------===//

void SharedAddresses::append(const SharedAddresses &other) {
  isUnknown |= other.isUnknown;
  llvm::append_range(list, other.list);
}

namespace {

/// Follows pointers to their origin.
class AddressTracer {
public:
  SharedAddresses trace(Value value) {
    // The back edge of a loop adds no origin; additions in the loop mark the
    // address as moved at the block's argument.
    if (!active.insert(value).second)
      return {};
    SharedAddresses addresses = traceNew(value);
    active.erase(value);
    return addresses;
  }

private:
  static SharedAddresses unknown() { return {/*isUnknown=*/true, {}}; }

  SharedAddresses traceNew(Value value) {
    auto type = dyn_cast<LLVM::LLVMPointerType>(value.getType());
    if (type && type.getAddressSpace() == kGlobalSpace)
      return {};
    if (auto argument = dyn_cast<BlockArgument>(value))
      return traceArgument(argument);
    return llvm::TypeSwitch<Operation *, SharedAddresses>(value.getDefiningOp())
        .Case([](LLVM::AddressOfOp op) {
          return SharedAddresses{
              false, {{op.getGlobalNameAttr().getAttr(), 0, false}}};
        })
        .Case([&](LLVM::GEPOp op) { return traceElement(op); })
        // The CTAs of a cluster use equal addresses alike.
        .Case<LLVM::AddrSpaceCastOp, LLVM::BitcastOp, LLVM::PtrToIntOp,
              NVVM::MapaOp, UnrealizedConversionCastOp>(
            [&](Operation *op) { return trace(op->getOperand(0)); })
        .Case([&](LLVM::ExtractValueOp op) { return traceMember(op); })
        .Case([&](LLVM::SelectOp op) {
          SharedAddresses addresses = trace(op.getTrueValue());
          addresses.append(trace(op.getFalseValue()));
          return addresses;
        })
        .Case<LLVM::PoisonOp, LLVM::UndefOp, LLVM::ZeroOp, LLVM::AllocaOp>(
            [](Operation *) { return SharedAddresses(); })
        .Default([](Operation *) { return unknown(); });
  }

  /// Traces one member of a memref's descriptor; its other pointer may be
  /// unknown.
  SharedAddresses traceMember(LLVM::ExtractValueOp op) {
    Value container = op.getContainer();
    while (auto insert = container.getDefiningOp<LLVM::InsertValueOp>()) {
      if (insert.getPosition() == op.getPosition())
        return trace(insert.getValue());
      container = insert.getContainer();
    }
    return unknown();
  }

  static std::optional<int64_t> getConstantBytes(LLVM::GEPOp op) {
    auto indices = op.getIndices();
    if (indices.size() != 1)
      return std::nullopt;
    llvm::PointerUnion<IntegerAttr, Value> index = indices[0];
    APInt count;
    if (auto constant = dyn_cast<IntegerAttr>(index))
      count = constant.getValue();
    else if (!matchPattern(cast<Value>(index), m_ConstantInt(&count)))
      return std::nullopt;
    int64_t size = DataLayout::closest(op).getTypeSize(op.getElemType());
    return size * count.getSExtValue();
  }

  SharedAddresses traceElement(LLVM::GEPOp op) {
    SharedAddresses addresses = trace(op.getBase());
    std::optional<int64_t> bytes = getConstantBytes(op);
    for (SharedAddress &address : addresses.list) {
      if (!address.isMoved)
        address.offset += bytes.value_or(0);
      address.isMoved |= !bytes;
    }
    return addresses;
  }

  SharedAddresses traceArgument(BlockArgument argument) {
    Block *block = argument.getOwner();
    // A kernel's parameters point to global memory unless their type says
    // otherwise.
    if (block->isEntryBlock()) {
      auto type = dyn_cast<LLVM::LLVMPointerType>(argument.getType());
      return type && type.getAddressSpace() != 0 ? unknown()
                                                 : SharedAddresses();
    }
    SharedAddresses addresses;
    for (auto it = block->pred_begin(), end = block->pred_end(); it != end;
         ++it) {
      auto branch = dyn_cast<BranchOpInterface>((*it)->getTerminator());
      Value value = branch
                        ? branch.getSuccessorOperands(
                              it.getSuccessorIndex())[argument.getArgNumber()]
                        : Value();
      if (!value)
        return unknown();
      addresses.append(trace(value));
    }
    for (SharedAddress &address : addresses.list)
      address.isMoved = true;
    return addresses;
  }

  llvm::SmallPtrSet<Value, 8> active;
};

} // namespace

SharedAddresses moec::findSharedAddresses(Value pointer) {
  return AddressTracer().trace(pointer);
}

SharedAddresses moec::findDescribed(LLVM::LLVMFuncOp func) {
  SharedAddresses addresses;
  func.walk([&](LLVM::PtrToIntOp op) {
    addresses.append(findSharedAddresses(op.getArg()));
  });
  addresses.isUnknown |= addresses.empty();
  return addresses;
}

//===----------------------------------------------------------------------===//
// Sections
//===----------------------------------------------------------------------===//

void SharedParts::beginPart(const SharedAddress &address) {
  begins[address.variable].insert(address.offset);
}

int64_t SharedParts::getBegin(const SharedAddress &address) const {
  auto found = begins.find(address.variable);
  if (found == begins.end())
    return 0;
  auto next = found->second.upper_bound(address.offset);
  return next == found->second.begin() ? 0 : *std::prev(next);
}

bool SharedParts::overlap(const SharedAddresses &some,
                          const SharedAddresses &others) const {
  if (some.empty() || others.empty())
    return false;
  if (some.isUnknown || others.isUnknown)
    return true;
  return llvm::any_of(some.list, [&](const SharedAddress &address) {
    return llvm::any_of(others.list, [&](const SharedAddress &other) {
      return address.variable == other.variable &&
             getBegin(address) == getBegin(other);
    });
  });
}

//===----------------------------------------------------------------------===//
// Effects
//===----------------------------------------------------------------------===//

/// Inline PTX has the effects that its instructions' names say, on all of
/// shared memory; a lone st.async, on memory at its first operand.
static SharedAccess getTextAccess(StringRef text, ValueRange operands,
                                  const SharedAddresses &described) {
  auto has = [&](StringRef part) { return text.contains(part); };
  SharedAddresses all{/*isUnknown=*/true, {}};
  if (text.starts_with("st.async") && text.count(';') == 1 && has(" [$0]"))
    return {SharedEffect::Write, findSharedAddresses(operands.front())};
  if (has("fence.proxy.async"))
    return {SharedEffect::FenceProxy, {}};
  if (has("fence.mbarrier_init"))
    return {SharedEffect::FenceBarrierInit, {}};
  if (has("wgmma.mma_async") || has("tcgen05.mma") || has("tcgen05.cp"))
    return {SharedEffect::AsyncAccess, described};
  if (has("cp.async.bulk.tensor") || has("cp.async.bulk.global") ||
      has("cp.async.bulk.shared") || has("cp.reduce.async.bulk"))
    return {SharedEffect::AsyncAccess, all};
  if (has("cp.async.mbarrier.arrive"))
    return {SharedEffect::PublishCopies, {}};
  if (has("mbarrier.init"))
    return {SharedEffect::InitBarrier, {}};
  if (has("mbarrier.arrive") || has("bar.sync") || has("barrier.sync") ||
      has("bar.arrive") || has("barrier.arrive") || has("bar.warp.sync") ||
      has("cluster.arrive"))
    return {SharedEffect::Publish, {}};
  if (has("cp.async.ca.shared") || has("cp.async.cg.shared"))
    return {SharedEffect::Copy, all};
  if (has("st.shared") || has("st.volatile.shared") || has("stmatrix") ||
      has("red.shared") || has("atom.shared") || has("st.async"))
    return {SharedEffect::Write, all};
  return {};
}

static bool isFence(NVVM::FenceProxyOp op) {
  return op.getKind() == NVVM::ProxyKind::async ||
         op.getKind() == NVVM::ProxyKind::async_shared;
}

SharedAccess moec::getSharedAccess(Operation *op,
                                   const SharedAddresses &described) {
  auto about = [](SharedEffect effect, Value pointer) {
    SharedAccess access{effect, findSharedAddresses(pointer)};
    return access.addresses.empty() ? SharedAccess() : access;
  };
  auto write = [&](Value pointer) {
    return about(SharedEffect::Write, pointer);
  };
  auto async = [&](Value pointer) {
    return about(SharedEffect::AsyncAccess, pointer);
  };
  return llvm::TypeSwitch<Operation *, SharedAccess>(op)
      .Case([&](LLVM::StoreOp op) { return write(op.getAddr()); })
      .Case([&](LLVM::AtomicRMWOp op) { return write(op.getPtr()); })
      .Case([&](LLVM::AtomicCmpXchgOp op) { return write(op.getPtr()); })
      .Case<LLVM::MemcpyOp, LLVM::MemcpyInlineOp, LLVM::MemmoveOp,
            LLVM::MemsetOp, LLVM::MemsetInlineOp>(
          [&](auto op) { return write(op.getDst()); })
      .Case([&](LLVM::MaskedStoreOp op) { return write(op.getData()); })
      .Case([&](NVVM::StMatrixOp op) { return write(op.getPtr()); })
      .Case([&](NVVM::BulkStoreOp op) { return write(op.getAddr()); })
      .Case([&](NVVM::CpAsyncOp op) {
        return about(SharedEffect::Copy, op.getDst());
      })
      .Case([&](NVVM::CpAsyncCommitGroupOp) {
        return SharedAccess{SharedEffect::CommitCopies, {}};
      })
      .Case([&](NVVM::CpAsyncWaitGroupOp op) {
        return SharedAccess{
            SharedEffect::WaitCopies, {}, static_cast<int64_t>(op.getN())};
      })
      .Case([&](NVVM::MBarrierInitOp) {
        return SharedAccess{SharedEffect::InitBarrier, {}};
      })
      .Case<NVVM::WgmmaMmaAsyncOp, NVVM::Tcgen05CpOp>([&](Operation *) {
        return SharedAccess{SharedEffect::AsyncAccess, described};
      })
      .Case<NVVM::CpAsyncBulkTensorSharedCTAToGlobalOp,
            NVVM::CpAsyncBulkTensorReduceOp,
            NVVM::CpAsyncBulkSharedCTAToGlobalOp,
            NVVM::CpAsyncBulkSharedCTAToSharedClusterOp>(
          [&](auto op) { return async(op.getSrcMem()); })
      .Case<NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp,
            NVVM::CpAsyncBulkGlobalToSharedClusterOp>(
          [&](auto op) { return async(op.getDstMem()); })
      .Case([&](NVVM::FenceProxyOp op) {
        return SharedAccess{
            isFence(op) ? SharedEffect::FenceProxy : SharedEffect::None, {}};
      })
      .Case([&](NVVM::FenceMbarrierInitOp) {
        return SharedAccess{SharedEffect::FenceBarrierInit, {}};
      })
      .Case([&](NVVM::CpAsyncMBarrierArriveOp) {
        return SharedAccess{SharedEffect::PublishCopies, {}};
      })
      .Case<NVVM::Barrier0Op, NVVM::BarrierOp, NVVM::BarrierArriveOp,
            NVVM::SyncWarpOp, NVVM::MBarrierArriveOp,
            NVVM::MBarrierArriveDropOp, NVVM::MBarrierArriveNocompleteOp,
            NVVM::MBarrierArriveDropNocompleteOp,
            NVVM::MBarrierArriveExpectTxOp, NVVM::MBarrierArriveDropExpectTxOp,
            NVVM::ClusterArriveOp, NVVM::ClusterArriveRelaxedOp>(
          [&](Operation *) { return SharedAccess{SharedEffect::Publish, {}}; })
      .Case([&](NVVM::InlinePtxOp op) {
        return getTextAccess(op.getPtxCode(), op->getOperands(), described);
      })
      .Case([&](LLVM::InlineAsmOp op) {
        return getTextAccess(op.getAsmString(), op.getOperands(), described);
      })
      .Default([](Operation *) { return SharedAccess(); });
}
