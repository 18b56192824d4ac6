//===- TileCertifySumOrders.cpp - what the bits depend on -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Launches.h"
#include "PassInputs.h"
#include "mlir/IR/Remarks.h"
#include "moec/Dialect/Names.h"
#include "moec/Schedules/SumOrder.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"

namespace moec {
#define GEN_PASS_DEF_TILECERTIFYSUMORDERSPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

/// Collects the orders of a program's gemms.
class Certifier {
public:
  Certifier(plan::ProgramOp program, const Target &target, SymbolTable &symbols)
      : program(program), target(target), symbols(symbols) {}

  LogicalResult run() {
    // Ranks of other programs add partials, in no order that a program states.
    if (program.getMesh() && !program.getBatchInvariant())
      return success();
    bool isCertain = true;
    program.walk([&](plan::LaunchOp launch) {
      if (tile::KernelOp kernel = getKernel(launch, symbols))
        kernel.walk([&](Operation *phase) { isCertain &= add(phase); });
    });
    if (!isCertain)
      return refusal;
    NamedAttrList orders;
    for (auto &[name, entry] : found)
      orders.append(name, entry.first);
    program.setSumOrdersAttr(orders.getDictionary(program.getContext()));
    return success();
  }

private:
  /// Adds a phase; false if it makes rows depend on each other's presence.
  bool add(Operation *phase) {
    if (isa<tile::TensorScaleOp>(phase)) {
      refuse(phase, "computes one scale from all rows");
      return false;
    }
    auto gemm = dyn_cast<tile::GemmOp>(phase);
    if (!gemm)
      return true;
    if (!gemm.getConfigAttr()) {
      gemm.emitOpError(
          "has no config; run tile-assign-config before this pass");
      refusal = failure();
      return false;
    }
    tile::SumOrderAttr order = getSumOrder(gemm, gemm.getConfigAttr(), target);
    if (!order) {
      refuse(phase, "has a schedule that states no order of sums");
      return false;
    }
    auto [at, isNew] = found.insert({getName(gemm), {order, gemm}});
    // A launch ahead of the gemm adds a LoRA update in another order.
    if (!isNew &&
        bool(at->second.second.getShrunk()) != bool(gemm.getShrunk())) {
      refuse(phase, "adds LoRA updates in another order than kernel '" +
                        getKernelName(at->second.second) +
                        "' of the same gemm");
      return false;
    }
    if (isNew || at->second.first == order)
      return true;
    std::string text;
    llvm::raw_string_ostream(text)
        << "adds in the order " << order << ", but kernel '"
        << getKernelName(at->second.second) << "' of the same gemm adds in "
        << at->second.first;
    refuse(phase, text);
    return false;
  }

  void refuse(Operation *phase, const Twine &reason) {
    if (program.getBatchInvariant()) {
      phase->emitOpError(reason)
          << ", although the program is batch-invariant; run "
             "tile-fix-sum-orders before configs are chosen";
      refusal = failure();
      return;
    }
    remark::missed(phase->getLoc(), remark::RemarkOpts::name("sum orders")
                                        .category("tile-certify-sum-orders")
                                        .function(getKernelName(phase)))
        << remark::reason("{0}", reason.str());
  }

  static StringRef getKernelName(Operation *phase) {
    return phase->getParentOfType<tile::KernelOp>().getSymName();
  }

  /// The name of the result, which kernels of all token counts share.
  static StringAttr getName(tile::GemmOp gemm) {
    if (auto names = gemm->getAttrOfType<ArrayAttr>(kNameAttr);
        names && !names.empty())
      return cast<StringAttr>(names[0]);
    return gemm->getParentOfType<tile::KernelOp>().getSymNameAttr();
  }

  plan::ProgramOp program;
  const Target &target;
  SymbolTable &symbols;
  llvm::MapVector<StringAttr, std::pair<tile::SumOrderAttr, tile::GemmOp>>
      found;
  LogicalResult refusal = success();
};

struct TileCertifySumOrders
    : moec::impl::TileCertifySumOrdersPassBase<TileCertifySumOrders> {
  using TileCertifySumOrdersPassBase::TileCertifySumOrdersPassBase;

  void runOnOperation() override {
    std::optional<PassInputs> inputs =
        PassInputs::read(getOperation(), "tile-certify-sum-orders", target,
                         part, /*configs=*/{}, lanes, products);
    if (!inputs)
      return signalPassFailure();
    SymbolTable symbols(getOperation());
    for (auto program : getOperation().getOps<plan::ProgramOp>())
      if (failed(Certifier(program, inputs->target, symbols).run()))
        signalPassFailure();
  }
};

} // namespace
