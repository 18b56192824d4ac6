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
    per op (`moe.route` and the `moe.permute` after it share one). Requires decomposed layers;
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
    Each `tile.kernel` becomes a func.func with the same arguments and the CTA's index, in
    scf, arith, math, memref and vector, with the attribute `moec.kernel`. Requires one phase per
    kernel with a `cpu.*` config; fails with the schedule's reason if it cannot emit the config.
  }];
  let dependentDialects = ["::mlir::func::FuncDialect", "::mlir::scf::SCFDialect",
    "::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::vector::VectorDialect", "::mlir::LLVM::LLVMDialect"];
}

def CpuKernelEntryPass : Pass<"cpu-kernel-entry", "::mlir::ModuleOp"> {
  let summary = "make the functions that the runtime calls for CPU kernels";
  let description = [{
    Each func.func with `moec.kernel` becomes the private function `@name__body` and an
    `llvm.func @name(!llvm.ptr, i64)`. The first argument points to 64-bit slots: slot i is the address
    of memref i or the value of a scalar. The second is the CTA's index. Ensures that kernels can be
    called without MLIR's memref descriptors.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::func::FuncDialect"];
}

def ConvertTileToNVVMPass : Pass<"convert-tile-to-nvvm", "::mlir::ModuleOp"> {
  let summary = "tile kernels to the code of one GPU thread";
  let description = [{
    Each `tile.kernel` becomes a func.func with the same arguments, in scf, arith, math, memref, vector,
    llvm and nvvm: the code of one thread of a CTA. Its attributes are `moec.kernel`, `moec.block` (threads
    of a CTA) and, unless it is an ordinary kernel, `moec.form` (a `#tile.kernel_form`).

    Requires one phase per kernel, or several, each of which can follow the one before according to its
    schedule. Requires configs of the target's schedules, and `block` and `shared` as set by
    tile-assign-config. Fails with the schedule's reason if it cannot emit a config.
  }];
  let options = [Option<"target", "target", "std::string", "\"sm_80\"",
                        "the target: sm_80, sm_90a or sm_100a">];
  let dependentDialects = ["::mlir::func::FuncDialect", "::mlir::scf::SCFDialect",
    "::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::vector::VectorDialect", "::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect"];
}

def GpuKernelEntryPass : Pass<"gpu-kernel-entry", "::mlir::ModuleOp"> {
  let summary = "make the kernels that the driver launches";
  let description = [{
    Each func.func with `moec.kernel` becomes an `llvm.func` of the same name that is a kernel
    (`nvvm.kernel`, `nvvm.reqntid`; `nvvm.maxnreg` as `moec.form` says, else all registers for one
    CTA). Arguments are a global address per memref and i64 scalars: one slot of 64 bits each.
    Ensures that kernels can be launched without MLIR's memref descriptors.

    On targets with dependent launches (sm_90 and later), a kernel lets the next launch begin at its
    entry, and waits there for the launch before it, unless it already has an `nvvm.griddepcontrol wait`.
  }];
  let options = [Option<"target", "target", "std::string", "\"sm_80\"",
                        "the target: sm_80, sm_90a or sm_100a">];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect"];
}

#endif
