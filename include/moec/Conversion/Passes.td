//===- Passes.td - passes from one level to the next -----------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_CONVERSION_PASSES_TD
#define MOEC_CONVERSION_PASSES_TD

include "mlir/Pass/PassBase.td"

def ConvertMoeToPlanPass : Pass<"convert-moe-to-plan", "::mlir::ModuleOp"> {
  let summary = "pipeline ops to a program of launches over buffers";
  let description = [{
    Each func.func of pipeline ops becomes a `plan.program` of the same name and one `plan.kernel`
    per op (`moe.route` and the `moe.permute` behind it share one). Requires decomposed layers;
    ensures that no func.func with `moe` ops is left. Buffers have no slot yet.
  }];
  let dependentDialects = ["::moec::plan::PlanDialect", "::mlir::memref::MemRefDialect"];
}

def ConvertPlanToTilePass : Pass<"convert-plan-to-tile", "::mlir::ModuleOp"> {
  let summary = "kernels on tensors to kernels on memrefs";
  let description = [{
    Each `plan.kernel` becomes a `tile.kernel` whose arguments are the kernel's arguments and results
    as memrefs and the token count, with one phase per `moe` op. Launches stay as they are. Ensures
    that no `plan.kernel` is left.
  }];
  let dependentDialects = ["::moec::tile::TileDialect", "::mlir::memref::MemRefDialect"];
}

def ConvertTileToVectorPass : Pass<"convert-tile-to-vector", "::mlir::ModuleOp"> {
  let summary = "tile kernels to loops and vectors for the CPU";
  let description = [{
    Each `tile.kernel` becomes a func.func with the same arguments and one more, the CTA's index, in
    scf, arith, math, memref and vector; the function carries `moec.kernel`. Requires one phase per
    kernel, each with a `cpu.*` config; fails with the schedule's reason if it cannot obey.
  }];
  let dependentDialects = ["::mlir::func::FuncDialect", "::mlir::scf::SCFDialect",
    "::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::vector::VectorDialect"];
}

def CpuKernelEntryPass : Pass<"cpu-kernel-entry", "::mlir::ModuleOp"> {
  let summary = "the function that the runtime calls, per kernel";
  let description = [{
    For each func.func with `moec.kernel` makes the private function `@name__body` of it and an
    `llvm.func @name(!llvm.ptr, i64)`: slot i (64 bits) of the first argument is the address of memref
    i or the value of a scalar, the second is the CTA. Ensures that kernels can be called with no
    knowledge of MLIR's descriptors.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::func::FuncDialect"];
}

def ConvertTileToNVVMPass : Pass<"convert-tile-to-nvvm", "::mlir::ModuleOp"> {
  let summary = "tile kernels to what one thread of a GPU does";
  let description = [{
    Each `tile.kernel` becomes a func.func with the same arguments, in scf, arith, math, memref, vector,
    llvm and nvvm, which says what one thread of a CTA does; the function carries `moec.kernel`,
    `moec.block`, the threads of a CTA, and, where it is no ordinary one, `moec.form`, a `#tile.kernel_form`.
    Requires one phase per kernel, or several of which each can follow the one before as their schedules know,
    with configs that the target has, and `block` and `shared` as tile-assign-config sets them; fails with the schedule's reason if
    it cannot obey.
  }];
  let options = [Option<"target", "target", "std::string", "\"sm_80\"",
                        "the target: sm_80, sm_90a or sm_100a">];
  let dependentDialects = ["::mlir::func::FuncDialect", "::mlir::scf::SCFDialect",
    "::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::vector::VectorDialect", "::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect"];
}

def GpuKernelEntryPass : Pass<"gpu-kernel-entry", "::mlir::ModuleOp"> {
  let summary = "the kernel that the driver launches";
  let description = [{
    Each func.func with `moec.kernel` becomes an `llvm.func` of the same name that is a kernel
    (`nvvm.kernel`, `nvvm.reqntid`; `nvvm.maxnreg` as `moec.form` says, else all registers for one
    CTA) and takes a global address per memref and i64 scalars: one slot of 64 bits per argument.
    Ensures that kernels can be launched with no knowledge of MLIR's descriptors.

    On a target that has dependent launches (sm_90 and later) a kernel lets the next launch begin at its
    entry, and waits there for the launch before it, unless it has an `nvvm.griddepcontrol wait` already.
  }];
  let options = [Option<"target", "target", "std::string", "\"sm_80\"",
                        "the target: sm_80, sm_90a or sm_100a">];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect"];
}

#endif
