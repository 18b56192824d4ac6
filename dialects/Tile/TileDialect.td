//===- TileDialect.td - attributes of the tile dialect ---------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECTS_TILE_TILEDIALECT_TD
#define MOEC_DIALECTS_TILE_TILEDIALECT_TD

include "TileBase.td"
include "TileEnums.td"

/// Integers in brackets, `?` for an unknown size.
def Tile_IntegerList : ArrayRefParameter<"int64_t"> {
  let parser = "::moec::tile::parseIntegerList($_parser)";
  let printer = "::moec::tile::printIntegerList($_printer, $_self)";
}

def Tile_TensorMapAttr : AttrDef<Tile_Dialect, "TensorMap"> {
  let mnemonic = "tensor_map";
  let summary = "description of a tensor map over a kernel's argument";
  let description = [{
    Everything that the copy engine of a GPU (TMA) needs about a tensor, except its address. The map views the
    kernel's argument number `argument` with its own dimensions, outermost first as everywhere in MLIR (the driver
    takes them innermost first): dimension `i` has `sizes[i]` indices, and its stride is `steps[i]` times the stride
    of the argument's dimension `along[i]`. A size of `?` is the argument's number of rows at the capacity of the
    workspace. One copy moves `box` elements of each dimension and reads zeros outside of `sizes`. `swizzle` is the
    width in bytes (32, 64, 128) of the pattern in shared memory, 0 for none.

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

def Tile_KernelFormAttr : AttrDef<Tile_Dialect, "KernelForm"> {
  let mnemonic = "kernel_form";
  let summary = "how a kernel's CTAs run beside other kernels and each other";
  let description = [{
    A kernel without this attribute waits for earlier launches at its entry, and its CTAs run in any order.

    ```mlir
    #tile.kernel_form<resident = true>
    ```
  }];
  let parameters = (ins
    DefaultValuedParameter<"bool", "false", "it shares no memory with launches that it may overlap, so it waits for "
                           "them only at its end">:$independent,
    DefaultValuedParameter<"bool", "false", "its first phase is independent, and the wait follows this phase">:$ahead,
    DefaultValuedParameter<"bool", "false", "its CTAs wait for each other, so all of them must run at once">:$resident,
    DefaultValuedParameter<"bool", "false", "it lets the next launch begin behind its own wait: when that one begins, the "
                           "launches before this one have ended">:$late,
    DefaultValuedParameter<"int64_t", "0", "registers of a thread when a CTA begins, if fewer than ptxas would "
                           "allocate; 0: as ptxas allocates">:$registers,
    DefaultValuedParameter<"int64_t", "0", "CTAs of a cluster, which access each other's shared memory; 0: none does">:$cluster);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Tile_GroupRowsAttr : AttrDef<Tile_Dialect, "GroupRows"> {
  let mnemonic = "group_rows";
  let summary = "bounds on the rows of the groups that a gemm computes";
  let description = [{
    Groups with `min` to `max` rows. Without this attribute a gemm computes all groups.

    ```mlir
    #tile.group_rows<min = 128>
    ```
  }];
  let parameters = (ins
    DefaultValuedParameter<"int64_t", "1">:$min,
    DefaultValuedParameter<"int64_t", "std::numeric_limits<int64_t>::max()">:$max);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Tile_SumOrderAttr : AttrDef<Tile_Dialect, "SumOrder"> {
  let mnemonic = "sum_order";
  let summary = "the order in which a gemm adds the products of a row along K";
  let description = [{
    Two configs with equal orders give a row the same bits, whatever other rows there are. The sum of a result is
    made as follows. K is split into `splits` parts, which take turns of `adjacent` elements. Within a part, each
    instruction of the `unit` adds the products of `k` elements to its accumulator; they follow each other in memory,
    or are chosen in a fixed way within every `shuffled` elements. After `promoted` elements of K the accumulator is
    added to an f32 sum and starts again from 0. The sums of the parts are added last, by a fixed tree; with `joined`
    the parts of `promoted` elements are, and the result goes to one f32 sum.

    How a tensor core adds the `k` products of one instruction is the device's: the order says nothing about it.
    Warp and warpgroup instructions of the same `k` are one unit. A CPU's `dot` instruction adds by FMAs that flush
    subnormal numbers: the second product of a pair, then the first (`k = 2`, VDPBF16PS); or those of the even and of
    the odd elements from 0, then both sums, then the result to its accumulator (`k = 32`, AMX). Sums of
    int8 are exact (`k = 4`, VPDPBUSD, and `k = 64`, AMX).

    ```mlir
    #tile.sum_order<unit = tensor_core, k = 16>
    #tile.sum_order<unit = tensor_core, k = 32, promoted = 128>
    #tile.sum_order<unit = fma, k = 1, splits = 512, adjacent = 8>
    ```
  }];
  let parameters = (ins
    EnumParameter<Tile_SumUnit>:$unit,
    "int64_t":$k,
    DefaultValuedParameter<"int64_t", "0", "elements within which those of an instruction are chosen; 0: adjacent "
                           "ones">:$shuffled,
    DefaultValuedParameter<"int64_t", "1", "parts of K with sums of their own">:$splits,
    DefaultValuedParameter<"int64_t", "0", "elements of K that a part has before the next part's; 0: all of the "
                           "part">:$adjacent,
    DefaultValuedParameter<"int64_t", "0", "elements of K after which an accumulator is added to an f32 sum; 0: all "
                           "of K">:$promoted,
    DefaultValuedParameter<"bool", "false", "whether parts are added before each promotion, not last">:$joined);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Tile_LoadAttr : AttrDef<Tile_Dialect, "Load"> {
  let mnemonic = "load";
  let summary = "token counts and routing sizes of a kernel";
  let description = [{
    The token counts that a kernel is launched for, and how its rows spread over groups. Each token picks `top_k` of
    `experts`; a grouped gemm may hold some of these. A dense gemm has one row per token, the default. Schedules
    choose configs by it.

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
