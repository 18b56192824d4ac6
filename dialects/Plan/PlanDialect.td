//===- PlanDialect.td - the plan dialect -----------------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECTS_PLAN_PLANDIALECT_TD
#define MOEC_DIALECTS_PLAN_PLANDIALECT_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

def Plan_Dialect : Dialect {
  let name = "plan";
  let cppNamespace = "::moec::plan";
  let summary = "order, streams and memory of a layer's launches";
  let description = [{
    The level `plan` says when and where: which kernels are launched, in which order, on which stream, over which
    tensors, and where these lie in one packed workspace. It has no formulas and no tile decisions. A `plan.program`
    is data that the runtime's executor walks on every device. The code of a kernel is a symbol beside it:
    `plan.kernel` (tensors and `moe` ops), later `tile.kernel` (memrefs and coarse tile ops).
  }];
  let useDefaultAttributePrinterParser = 1;
}

def Plan_ExprAttr : AttrDef<Plan_Dialect, "Expr"> {
  let mnemonic = "expr";
  let summary = "a size as an expression of the token count";
  let description = [{
    Text of integers, `tokens`, `+`, `-`, `*`, `ceildiv(a, b)`, `min(a, b)`, `max(a, b)` and parentheses. The
    runtime's evaluator (`moert/Expr.h`), the only one, parses and evaluates it in int64; an overflow is an error. The
    text is canonical (one blank around operators, no needless parentheses, constants folded), so that equal sizes are
    equal attributes; the verifier's message gives the canonical form.

    ```mlir
    #plan.expr<"ceildiv(tokens * 8, 16)">
    ```
  }];
  let parameters = (ins StringRefParameter<"canonical text">:$text);
  let assemblyFormat = "`<` $text `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The parsed text.
    ::moert::Expr getExpr() const;
  }];
}

def Plan_Role : I32Enum<"Role", "origin of a tensor", [
  I32EnumCase<"Input", 0, "input">,
  I32EnumCase<"Weight", 1, "weight">,
  I32EnumCase<"Output", 2, "output">,
  I32EnumCase<"Prepared", 3, "prepared">]> {
  let cppNamespace = "::moec::plan";
}

def Plan_RoleAttr : EnumAttr<Plan_Dialect, Plan_Role, "role"> {
  let assemblyFormat = "$value";
}

def Plan_CollectiveKind : I32Enum<"CollectiveKind", "kind of a collective", [
  I32EnumCase<"AllGather", 0, "all_gather">,
  I32EnumCase<"ReduceScatter", 1, "reduce_scatter">,
  I32EnumCase<"AllReduce", 2, "all_reduce">]> {
  let cppNamespace = "::moec::plan";
}

def Plan_CollectiveKindAttr : EnumAttr<Plan_Dialect, Plan_CollectiveKind, "collective_kind"> {
  let assemblyFormat = "$value";
}

def Plan_MeshAttr : AttrDef<Plan_Dialect, "Mesh"> {
  let mnemonic = "mesh";
  let summary = "the ranks that share a program";
  let description = [{
    `dp * tp` ranks; with `sp` each has its own tokens. As in `#moe.mesh`, whose `pcp` is part of `dp` here.

    ```mlir
    #plan.mesh<dp = 4, tp = 2>
    ```
  }];
  let parameters = (ins DefaultValuedParameter<"int64_t", "1">:$dp, DefaultValuedParameter<"int64_t", "1">:$tp,
                        DefaultValuedParameter<"bool", "false">:$sp);
  let extraClassDeclaration = [{
    /// Number of ranks (with `sp`) or groups with their own tokens.
    int64_t getTokenRanks() const { return getSp() ? getDp() * getTp() : getDp(); }
  }];
  let assemblyFormat = "`<` struct(params) `>`";
}

def Plan_Axis : I32Enum<"Axis", "an axis of the mesh", [
  I32EnumCase<"Dp", 0, "dp">,
  I32EnumCase<"Tp", 1, "tp">]> {
  let cppNamespace = "::moec::plan";
}

def Plan_AxisAttr : EnumAttr<Plan_Dialect, Plan_Axis, "axis"> {
  let assemblyFormat = "$value";
}

#endif
