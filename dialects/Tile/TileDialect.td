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

/// Integers in brackets, `?` for a size that is not known.
def Tile_IntegerList : ArrayRefParameter<"int64_t"> {
  let parser = "::moec::tile::parseIntegerList($_parser)";
  let printer = "::moec::tile::printIntegerList($_printer, $_self)";
}
def Tile_OptionalIntegerList : OptionalArrayRefParameter<"int64_t"> {
  let parser = "::moec::tile::parseIntegerList($_parser)";
  let printer = "::moec::tile::printIntegerList($_printer, $_self)";
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
    | `panel` | columns of weights that one CTA owns; of `sm80.top_k` the most CTAs, 0 for any number |
    | `lanes` | f32 elements of a vector; of `sm80.top_k` and what ranks, threads of a CTA |
    | `rows` | rows that one CTA owns; of a schedule with `bodies`, those of a group that meet all columns before others do, 0 for all |
    | `stages` | buffers of the pipeline between memory and tensor cores |
    | `bodies` | heights of a tile of rows, ascending; code exists for each |
    | `map_rows` | whether rows of the input come by tensor maps |
    | `rows_on_m` | whether rows of the input are on the side of tensor cores whose width is fixed, in bodies that are one or two such sides high |
    | `queue` | whether CTAs take tiles one after another from a queue, not in a fixed order |

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
    DefaultValuedParameter<"int64_t", "0">:$rows,
    DefaultValuedParameter<"int64_t", "0">:$stages,
    Tile_OptionalIntegerList:$bodies,
    DefaultValuedParameter<"bool", "false">:$map_rows,
    DefaultValuedParameter<"bool", "false">:$rows_on_m,
    DefaultValuedParameter<"bool", "false">:$queue);
  let builders = [AttrBuilder<(ins "::llvm::StringRef":$schedule, "int64_t":$m, "int64_t":$n,
      "int64_t":$k, "int64_t":$panel, "int64_t":$lanes, "int64_t":$rows), [{
    return $_get($_ctxt, schedule, m, n, k, panel, lanes, rows, /*stages=*/0,
                 ::llvm::ArrayRef<int64_t>(), /*map_rows=*/false, /*rows_on_m=*/false,
                 /*queue=*/false);
  }]>];
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The same for tiles from a queue, or in a fixed order.
    ConfigAttr withQueue(bool queue) const;
    /// The same for rows that come by tensor maps, or not.
    ConfigAttr withMapRows(bool mapRows) const;
  }];
}

def Tile_TensorMapAttr : AttrDef<Tile_Dialect, "TensorMap"> {
  let mnemonic = "tensor_map";
  let summary = "a recipe of a tensor map over a kernel's argument";
  let description = [{
    What the copy engine of a GPU (TMA) has to know of a tensor, but for its address. The map views the
    kernel's argument number `argument` with dimensions of its own, outermost first as everywhere in
    MLIR (the driver wants them innermost first): dimension `i` has `sizes[i]` indices and goes
    `steps[i]` times the stride of the argument's dimension `along[i]`. A size of `?` is the argument's
    own number of rows at the capacity of the workspace. One copy moves `box` elements of each
    dimension; what lies outside of `sizes` is read as zeros. `swizzle` is the width in bytes (32, 64,
    128) of the pattern in shared memory, 0 for none.

    ```mlir
    #tile.tensor_map<argument = 1, sizes = [128, 2, 768, 2048], along = [0, 1, 1, 2],
                     steps = [1, 768, 1, 1], box = [1, 2, 64, 64], swizzle = 128>
    ```
  }];
  let parameters = (ins
    "int64_t":$argument,
    Tile_IntegerList:$sizes,
    Tile_IntegerList:$along,
    Tile_IntegerList:$steps,
    Tile_IntegerList:$box,
    DefaultValuedParameter<"int64_t", "0">:$swizzle);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Tile_LoadAttr : AttrDef<Tile_Dialect, "Load"> {
  let mnemonic = "load";
  let summary = "how much work a kernel gets";
  let description = [{
    What is known of the rows of a kernel before it runs: the token counts that it is launched for, and
    how they spread over groups. Each token picks `top_k` of `experts`, of which a grouped product may
    have some; a dense one has one row per token, the default. Schedules choose configs by it.

    ```mlir
    #tile.load<min_tokens = 0, max_tokens = 8, top_k = 8, experts = 128>
    ```
  }];
  let parameters = (ins
    "int64_t":$min_tokens,
    "int64_t":$max_tokens,
    DefaultValuedParameter<"int64_t", "1">:$top_k,
    DefaultValuedParameter<"int64_t", "1">:$experts);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

#endif
