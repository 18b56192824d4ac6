//===- TileBase.td - the tile dialect itself -------------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECTS_TILE_TILEBASE_TD
#define MOEC_DIALECTS_TILE_TILEBASE_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "MoeAttrs.td"
include "PlanDialect.td"

def Tile_Dialect : Dialect {
  let name = "tile";
  let cppNamespace = "::moec::tile";
  let summary = "phases and configs of one kernel";
  let description = [{
    The level `tile` says how each kernel computes: a `tile.kernel` is a short sequence of phases, each one coarse op
    over memrefs. There are no tile-typed values and no load, store or dot ops; values exist only as scalars inside
    regions. The attribute `config` of a phase says how it is split over CTAs and registers. Each schedule has its own
    config attribute (`#tile.cpu_gemm`), and `tile-assign-config` chooses its values. Emission decides nothing, so
    a config edited by hand replays. The same kernels lower to every target.
  }];
  let extraClassDeclaration = [{
    ::mlir::Attribute parseAttribute(::mlir::DialectAsmParser &parser, ::mlir::Type type) const override;
    void printAttribute(::mlir::Attribute attribute, ::mlir::DialectAsmPrinter &printer) const override;
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::moec::moe::MoeDialect", "::moec::plan::PlanDialect"];
}

class Tile_Op<string mnemonic, list<Trait> traits = []> : Op<Tile_Dialect, mnemonic, traits>;

/// An op of a kernel's body. `tokens` is its first operand; all others are memrefs.
class Tile_Phase<string mnemonic, list<Trait> traits = []>
    : Tile_Op<mnemonic, !listconcat(traits, [HasParent<"KernelOp">])>;

#endif
