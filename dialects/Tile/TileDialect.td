//===- TileDialect.td - the tile dialect -----------------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECTS_TILE_TILEDIALECT_TD
#define MOEC_DIALECTS_TILE_TILEDIALECT_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "MoeAttrs.td"
include "PlanDialect.td"

def Tile_Dialect : Dialect {
  let name = "tile";
  let cppNamespace = "::moec::tile";
  let summary = "how one kernel computes";
  let description = [{
    The level `tile` answers HOW, per kernel: a `tile.kernel` is a short sequence of phases, each one
    coarse op over memrefs. There are no tile-typed values and no load, store or dot ops; values
    exist only as scalars inside regions. How a phase is cut into CTAs and registers is one
    `#tile.config` attribute on its op, chosen by `tile-assign-config`; emission decides nothing, so
    a config edited by hand replays. The same kernels lower to every target.
  }];
  let useDefaultAttributePrinterParser = 1;
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::moec::moe::MoeDialect", "::moec::plan::PlanDialect"];
}

def Tile_ConfigAttr : AttrDef<Tile_Dialect, "Config"> {
  let mnemonic = "config";
  let summary = "how a schedule runs an op";
  let description = [{
    `schedule` names the lowering, `target.name`; the rest are its parameters, 0 where it has none:

    | parameter | |
    |---|---|
    | `m` | rows of the innermost tile (registers on a CPU) |
    | `n` | columns of the innermost tile |
    | `k` | contracted elements of the innermost tile |
    | `panel` | columns of weights that one CTA owns |
    | `lanes` | f32 elements of a vector |
    | `rows` | rows that one CTA owns |

    The dialect checks that the numbers are not negative; whether they suit the op is checked by the
    schedule itself, in `tile-assign-config` and again when it emits code.

    ```mlir
    #tile.config<schedule = "cpu.contract", m = 4, n = 4, panel = 32, lanes = 16>
    ```
  }];
  let parameters = (ins
    StringRefParameter<"schedule">:$schedule,
    DefaultValuedParameter<"int64_t", "0">:$m,
    DefaultValuedParameter<"int64_t", "0">:$n,
    DefaultValuedParameter<"int64_t", "0">:$k,
    DefaultValuedParameter<"int64_t", "0">:$panel,
    DefaultValuedParameter<"int64_t", "0">:$lanes,
    DefaultValuedParameter<"int64_t", "0">:$rows);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

#endif
