//===- PlanOps.td - operations of the plan dialect -------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECTS_PLAN_PLANOPS_TD
#define MOEC_DIALECTS_PLAN_PLANOPS_TD

include "PlanDialect.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/FunctionInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Plan_Op<string mnemonic, list<Trait> traits = []> : Op<Plan_Dialect, mnemonic, traits>;

def Plan_ProgramOp : Plan_Op<"program", [Symbol, NoTerminator, SingleBlock, IsolatedFromAbove]> {
  let summary = "the launches of a layer";
  let description = [{
    One block, in this order: the memory (`plan.tensor`, `plan.buffer`, each with a name of its own),
    at most one `plan.prepare`, then one `plan.variant` or more, whose token ranges cover `0 ..
    max_tokens` in ascending order without gap or overlap. `max_tokens` bounds the token count T of a
    run, `1 .. 2^31 - 1`; T = 0 is legal.

    With a `mesh` all its ranks run the program, and `tokens` are the rows that experts see: `dp` times the tokens of a
    rank, which are the same on all (docs/parallel.md).

    The verifier checks what needs no device: order, names, ranges, that `rows` are never negative,
    that every launch reads what the caller bound or an earlier launch wrote, that inputs and weights
    are not written and that every variant writes every output. That steps on several streams are
    ordered and joined, and that buffers in one slot are not alive at once, is checked by the runtime
    on the plan as data (`moert::verifyPlan`).

    ```mlir
    plan.program @layer max_tokens 16384 {
      %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x2048xf32>
      %w = plan.tensor weight "gate.weight" : memref<128x2048xf32>
      %y = plan.tensor output "output" rows <"tokens"> : memref<?x128xf32>
      plan.prepare {
      }
      plan.variant tokens 0 to 16384 {
        plan.launch @router ins(%x, %w : memref<?x2048xf32>, memref<128x2048xf32>)
            outs(%y : memref<?x128xf32>)
      }
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$max_tokens, OptionalAttr<Plan_MeshAttr>:$mesh);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name `max_tokens` $max_tokens (`mesh` $mesh^)? attr-dict-with-keyword $body";
  let hasRegionVerifier = 1;
}

def Plan_TensorOp : Plan_Op<"tensor", [HasParent<"ProgramOp">,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "a tensor bound by the caller, or made from weights";
  let description = [{
    `role` is `input`, `weight`, `output` or `prepared`; `name` is the canonical name of docs/layers.md. The memref
    is row-major without gaps (the identity layout); only its first dimension may be dynamic, and then
    `rows` says how large it is. The shape of a weight is static; a weight that may be bound with gaps
    between its rows has the layout `strided<[?, ..., 1]>`, and launches pass its strides too.

    A `prepared` tensor of static shape is written by launches of `plan.prepare` and read by variants.
    With `in_place` it takes the memory of a weight of as many bytes, whose values it has at first:
    the first launch that writes it overwrites the weight, which nobody reads in it or afterwards.

    ```mlir
    %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x2048xbf16>
    %w = plan.tensor weight "gate.weight" : memref<128x2048xbf16>
    %p = plan.tensor prepared "gate.packed" in_place "gate.weight" : memref<16x2048x8xbf16>
    ```
  }];
  let arguments = (ins StrAttr:$name, Plan_RoleAttr:$role, OptionalAttr<Plan_ExprAttr>:$rows,
                       OptionalAttr<StrAttr>:$in_place);
  let results = (outs AnyMemRef:$tensor);
  let assemblyFormat = [{
    `` $role $name (`rows` $rows^)? (`in_place` $in_place^)? attr-dict `:` type($tensor)
  }];
  let hasVerifier = 1;
}

def Plan_BufferOp : Plan_Op<"buffer", [HasParent<"ProgramOp">,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "a tensor in the workspace";
  let description = [{
    Lives in workspace slot `slot`, together with other buffers whose lives do not overlap;
    `plan-assign-slots` sets it, and until then it is absent. A slot is as large as its largest member,
    slots follow each other at 256-byte boundaries, and the runtime evaluates both for the token count
    of a run. `name` is for people and for reading a buffer after a run (`topk_ids`,
    `expert_offsets`). Memref and `rows` are as for `plan.tensor`.

    ```mlir
    %l = plan.buffer "router_logits" slot 0 rows <"tokens"> : memref<?x128xf32>
    ```
  }];
  let arguments = (ins StrAttr:$name, OptionalAttr<Plan_ExprAttr>:$rows, OptionalAttr<I64Attr>:$slot);
  let results = (outs AnyMemRef:$buffer);
  let assemblyFormat = "$name (`slot` $slot^)? (`rows` $rows^)? attr-dict `:` type($buffer)";
  let hasVerifier = 1;
}

def Plan_PrepareOp : Plan_Op<"prepare", [HasParent<"ProgramOp">, NoTerminator, SingleBlock]> {
  let summary = "what is done to the weights once, at load";
  let description = [{
    Launches, on stream 0, that turn the checkpoint's weights into the layout that the kernels read.
    They run once, after weights are bound, and know no token count: they read weights and write
    prepared tensors. Empty is the identity: the kernels read the weights as they were bound.

    ```mlir
    plan.prepare {
      plan.launch @interleave ins(%w13 : memref<8x64x32xf32>) outs(%packed : memref<8x64x32xf32>)
    }
    ```
  }];
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "attr-dict-with-keyword $body";
  let hasRegionVerifier = 1;
}

def Plan_VariantOp : Plan_Op<"variant", [HasParent<"ProgramOp">, NoTerminator, SingleBlock]> {
  let summary = "the steps for a range of token counts";
  let description = [{
    Chosen by the runtime when `min_tokens <= T <= max_tokens`. The block holds `plan.launch`,
    `plan.record` and `plan.wait` in program order; steps on one stream run in that order. Stream 0 is
    the caller's: another stream starts with a `plan.wait`, and stream 0 waits for what it did before
    the block ends.

    ```mlir
    plan.variant tokens 0 to 16384 {
      plan.record event 0 stream 0
      plan.wait event 0 stream 1
      plan.launch @shared stream 1 ins(%x : memref<?x8xf32>) outs(%s : memref<?x8xf32>)
      plan.record event 1 stream 1
      plan.launch @experts ins(%x : memref<?x8xf32>) outs(%h : memref<?x8xf32>)
      plan.wait event 1 stream 0
      plan.launch @sum ins(%h, %s : memref<?x8xf32>, memref<?x8xf32>) outs(%y : memref<?x8xf32>)
    }
    ```
  }];
  let arguments = (ins I64Attr:$min_tokens, I64Attr:$max_tokens);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "`tokens` $min_tokens `to` $max_tokens attr-dict-with-keyword $body";
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Plan_LaunchOp : Plan_Op<"launch", [AttrSizedOperandSegments,
    ParentOneOf<["PrepareOp", "VariantOp"]>,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "one launch of a kernel";
  let description = [{
    `kernel` names a `plan.kernel` (its arguments are `ins`, its results `outs`) or a `tile.kernel`
    (its arguments are `ins`, `outs`, then the token count as i64): shapes and element types must be
    the same. Below level tile kernels are functions, whose types are not compared. `ins` are only
    read; `outs` are written, in whole or in the part that their readers look at, and are not among
    the `ins`. `stream` is 0 if unsaid.

    `tokens` is what the kernel is told, where it is not the token count of the run.

    A launch of `columns`, the first of them and how many, computes these of its result alone: its `tile.kernel` is told the
    first one, an i64 ahead of the token count, and has the others from launches of its own. So a `plan.collective` of the
    same columns may follow before the others are there (`cut-columns`).

    A `dependent` launch may begin before the step before it on its stream, which is a launch too, has
    ended: its kernel waits for that end itself, and with it for all that is before (docs/gpu.md).
    `plan-overlap-launches` says so where the target's kernels can.

    ```mlir
    plan.launch @router stream 1 ins(%x, %w : memref<?x8xf32>, memref<4x8xf32>)
        outs(%l : memref<?x4xf32>)
    plan.launch @route stream 1 dependent ins(%l : memref<?x4xf32>) outs(%i : memref<?x2xi32>)
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel, DefaultValuedAttr<I64Attr, "0">:$stream,
                       Variadic<AnyMemRef>:$ins, Variadic<AnyMemRef>:$outs, UnitAttr:$dependent,
                       OptionalAttr<Plan_ExprAttr>:$tokens, OptionalAttr<DenseI64ArrayAttr>:$columns);
  let assemblyFormat = [{
    $kernel (`tokens` $tokens^)? (`columns` $columns^)? (`stream` $stream^)? (`dependent` $dependent^)? `ins` `(` ($ins^ `:` type($ins))? `)`
    `outs` `(` ($outs^ `:` type($outs))? `)` attr-dict
  }];
  let hasVerifier = 1;
}

def Plan_CollectiveOp : Plan_Op<"collective", [AttrSizedOperandSegments, HasParent<"VariantOp">]> {
  let summary = "what all ranks of an axis do together";
  let description = [{
    With n ranks on `axis`, each of `outs` is made from the one of `ins` at its place, in one call: `all_gather` has n
    times as many rows, those of rank 0 first; `reduce_scatter` the sums of this rank's n-th of the rows; `all_reduce`
    the sums of all. `stream` is 0 if unsaid. All ranks walk the same variant, so that they order collectives alike;
    those of different streams are ordered by events (`moert::verifyPlan`).

    With `owners` the pairs that `owned` numbers are for the owners of each row alone, the ranks that have an expert of
    its `ids` (of an `all_gather` one tensor, the ids of the rank's own rows; of a `reduce_scatter` these and those of
    all). On other ranks a gathered row is anything, and to a sum these add +0.0. Who moves all rows does that, too.
    `experts_per_owner` is that of `moe.dispatch`.

    With `sums_of` the one of `ins` is what an earlier launch of the stream sums, a `gather_reduce` of these `rows` by
    `position`, with the `addend` and the `num_valid_tokens` that it has. Who moves rows by the kernel of the collective
    leaves that launch out, for the kernel makes the sums itself; for all others both are there. Nothing else reads them.

    With `codes_of` the pairs that `coded` numbers, codes and then their scales, are what an earlier launch of the stream
    quantizes of these rows. The kernel of such an `all_gather` quantizes them itself, and the launch is left out there, as with `sums_of`.

    An `all_gather` `to_results` makes buffers that lie where other ranks write them, where the collective's kernel moves
    rows: at the same place of each rank's results (`moert::Communicator::results`), with nothing in between. So they may be
    written before this rank's step begins. Nothing else of the variant uses them but between it and a later collective of
    the axis, by which all ranks know that all are done with them (`moert::verifyPlan`). Who runs no kernels has them in the workspace.

    A collective may name kernels as attributes: `plan.exchange_kernel`, which does it through the memory of other ranks
    (`tile.exchange`), and `plan.route_kernel` with `plan.pack_kernel`, which an all-to-all has beside messages (`tile.route_rows`, and
    `tile.pack_rows` of a gather, `tile.sum_packed_rows` of a sum). Where rows went that way, those of each rank are in another order
    in all that was gathered, as their ids say, and the sum by which they go back has these kernels too.

    A collective of `columns`, the first of them and how many, with `sums_of`, is a piece of a whole: collectives that differ
    in nothing but stream and columns follow one another in their variant, each with as many columns, from the first ones to the
    last. Who runs kernels moves these columns of each row. Who does not moves all of the rows with the last piece,
    ahead of which stands the launch that makes the sums, and nothing with the others.

    ```mlir
    plan.collective all_gather dp ins(%x : memref<?x8xbf16>) outs(%all : memref<?x8xbf16>)
        owners(%o : memref<64xi32>) ids(%ids : memref<?x2xi32>) owned [0]
    plan.collective reduce_scatter dp ins(%sums : memref<?x8xbf16>) outs(%y : memref<?x8xbf16>)
        sums_of(%rows, %position : memref<?x8xbf16>, memref<?x2xi32>)
    plan.collective all_gather dp ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%all, %scales : memref<?x256xf8E4M3FN>, memref<?x2xf32>) codes_of(%x : memref<?x256xbf16>) coded [0, 1]
    ```
  }];
  let arguments = (ins Plan_CollectiveKindAttr:$kind, Plan_AxisAttr:$axis, DefaultValuedAttr<I64Attr, "0">:$stream,
                       Variadic<AnyMemRef>:$ins, Variadic<AnyMemRef>:$outs, Optional<MemRefOf<[I32]>>:$owners,
                       Variadic<MemRefOf<[I32]>>:$ids, OptionalAttr<DenseI64ArrayAttr>:$owned,
                       OptionalAttr<I64Attr>:$experts_per_owner,
                       Optional<AnyMemRef>:$rows, Optional<MemRefOf<[I32]>>:$position, Optional<AnyMemRef>:$addend,
                       Optional<MemRefOf<[I32]>>:$num_valid_tokens, Optional<AnyMemRef>:$uncoded,
                       OptionalAttr<DenseI64ArrayAttr>:$coded, OptionalAttr<DenseI64ArrayAttr>:$columns,
                       UnitAttr:$to_results);
  let assemblyFormat = [{
    `` $kind `` $axis (`to_results` $to_results^)? (`columns` $columns^)? (`stream` $stream^)? `ins` `(` $ins `:` type($ins) `)` `outs` `(` $outs `:` type($outs) `)`
    (`owners` `(` $owners^ `:` type($owners) `)`)? (`ids` `(` $ids^ `:` type($ids) `)`)? (`owned` $owned^)?
    (`sums_of` `(` $rows^ `,` $position `:` type($rows) `,` type($position) `)`)?
    (`addend` `(` $addend^ `:` type($addend) `)`)?
    (`num_valid_tokens` `(` $num_valid_tokens^ `:` type($num_valid_tokens) `)`)?
    (`codes_of` `(` $uncoded^ `:` type($uncoded) `)`)? (`coded` $coded^)? attr-dict
  }];
  let extraClassDeclaration = [{
    /// How many `ids` a collective of that kind has where it has owners.
    static size_t getNumIds(::moec::plan::CollectiveKind kind);
    /// Everything beside `outs` that the collective reads; behind `ins` what its
    /// kernel alone does.
    ::mlir::SmallVector<::mlir::Value> getRead();
    /// Whether others do the rest of the same behind it.
    bool isFollowed();
    /// The launch before it that makes the sums of `sums_of`, or the codes of
    /// `codes_of`, which its kernel replaces; null without these, and of a
    /// piece that others follow.
    ::moec::plan::LaunchOp getReplacedLaunch();
  }];
  let hasVerifier = 1;
}

def Plan_RecordOp : Plan_Op<"record", [HasParent<"VariantOp">]> {
  let summary = "marks a point of a stream";
  let description = [{
    Event `event` is complete when everything before it on `stream` is. Events are numbered from 0; a
    later record of the same event replaces the earlier one for the waits that follow it.

    ```mlir
    plan.record event 0 stream 0
    ```
  }];
  let arguments = (ins I64Attr:$event, I64Attr:$stream);
  let assemblyFormat = "`event` $event `stream` $stream attr-dict";
  let hasVerifier = 1;
}

def Plan_WaitOp : Plan_Op<"wait", [HasParent<"VariantOp">]> {
  let summary = "a stream waits for a mark";
  let description = [{
    Later steps of `stream` start after `event`, which a step earlier in the block records.

    ```mlir
    plan.wait event 0 stream 1
    ```
  }];
  let arguments = (ins I64Attr:$event, I64Attr:$stream);
  let assemblyFormat = "`event` $event `stream` $stream attr-dict";
  let hasVerifier = 1;
}

def Plan_KernelOp : Plan_Op<"kernel", [FunctionOpInterface, IsolatedFromAbove]> {
  let summary = "what one kernel computes, on tensors";
  let description = [{
    A symbol with a function type on ranked tensors; its body is one block of `moe` ops in value
    semantics that ends in `plan.return`. An argument with `moe.strided` is for a weight with gaps
    between its rows. `convert-plan-to-tile` turns it into a `tile.kernel` of one phase per op.

    ```mlir
    plan.kernel @router(%x: tensor<?x8xf32>, %w: tensor<4x8xf32>) -> tensor<?x4xf32> {
      %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<4x8xf32> -> tensor<?x4xf32>
      plan.return %0 : tensor<?x4xf32>
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<FunctionType>:$function_type,
                       OptionalAttr<DictArrayAttr>:$arg_attrs, OptionalAttr<DictArrayAttr>:$res_attrs);
  let regions = (region MinSizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "::llvm::StringRef":$name, "::mlir::FunctionType":$type)>];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::llvm::ArrayRef<::mlir::Type> getArgumentTypes() { return getFunctionType().getInputs(); }
    ::llvm::ArrayRef<::mlir::Type> getResultTypes() { return getFunctionType().getResults(); }
    ::mlir::Region *getCallableRegion() { return &getBody(); }
  }];
}

def Plan_ReturnOp : Plan_Op<"return", [HasParent<"KernelOp">, Pure, Terminator, ReturnLike]> {
  let summary = "the results of a plan.kernel";
  let description = [{
    One value per result of the kernel's type.

    ```mlir
    plan.return %ids, %weights : tensor<?x8xi32>, tensor<?x8xf32>
    ```
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
  let hasVerifier = 1;
}

#endif
