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
    One block, in this order: the memory (`plan.tensor`, `plan.buffer`, with distinct names), at most one
    `plan.prepare`, then one or more `plan.variant`, whose token ranges cover `0 .. max_tokens` in ascending order
    without gap or overlap. `max_tokens` (`1 .. 2^31 - 1`) bounds the token count T of a run; T = 0 is legal.

    With a `mesh`, all its ranks run the program, and `tokens` is the number of rows that experts see: `dp` times the
    tokens of a rank, which are equal on all ranks (docs/use/parallel.md).

    In a `batch_invariant` program the bits of a row depend on this row and the weights alone. `sum_orders` is the
    certificate: per gemm, by the name of its result, the one order in which all its kernels add along K. A program
    without it has gemms that add in several orders. `tile-certify-sum-orders` sets it.

    The verifier checks everything that needs no device: order, names, ranges, that `rows` are never negative, that
    every launch reads memory which the caller bound or an earlier launch wrote, that inputs and weights are not
    written, and that every variant writes every output. The runtime checks the plan as data (`moert::verifyPlan`):
    that steps on several streams are ordered and joined, and that buffers of one slot are not alive at once.

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
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$max_tokens, OptionalAttr<Plan_MeshAttr>:$mesh,
                       UnitAttr:$batch_invariant, OptionalAttr<DictionaryAttr>:$sum_orders);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name `max_tokens` $max_tokens (`mesh` $mesh^)? attr-dict-with-keyword $body";
  let hasRegionVerifier = 1;
}

def Plan_TensorOp : Plan_Op<"tensor", [HasParent<"ProgramOp">,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "a tensor bound by the caller, or prepared from weights";
  let description = [{
    `role` is `input`, `weight`, `output` or `prepared`; `name` is the canonical name of docs/use/layers.md. The memref is
    row-major without gaps (the identity layout). Only its first dimension may be dynamic, with the size `rows`. The
    shape of a weight is static; a weight that may be bound with gaps between its rows has the layout
    `strided<[?, ..., 1]>`, and launches pass its strides too.

    A `prepared` tensor has a static shape, is written by launches of `plan.prepare` and read by variants. With
    `in_place` it takes the memory of a weight of equal size and holds its values at first: the first launch that
    writes it overwrites the weight, which neither this launch nor later ones read.

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
    Lies in workspace slot `slot`, which it shares with buffers of disjoint lifetimes. `plan-assign-slots` sets
    `slot`; it is absent before. A slot is as large as its largest buffer, slots follow each other at 256-byte
    boundaries, and the runtime evaluates both for the token count of a run. `name` is for people and to read a buffer
    after a run (`topk_ids`, `expert_offsets`). The memref and `rows` are as for `plan.tensor`.

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
  let summary = "launches that run once, on weights, at load";
  let description = [{
    Launches on stream 0 that bring the checkpoint's weights into the layout that kernels read. They run once, after
    weights are bound, and have no token count: they read weights and write prepared tensors. If empty, kernels read
    the weights as they were bound.

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
  let summary = "the launches for a range of token counts";
  let description = [{
    The runtime runs the variant with `min_tokens <= T <= max_tokens`. The block holds `plan.launch`,
    `plan.collective`, `plan.record` and `plan.wait` in program order; steps on one stream run in that order. Stream 0
    is the caller's. Another stream starts with a `plan.wait`, and stream 0 waits for its last step before the block
    ends.

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
    `kernel` names a `plan.kernel` (arguments `ins`, results `outs`) or a `tile.kernel` (arguments `ins`, `outs`, then
    the token count as i64) with equal shapes and element types. Below level tile, kernels are functions, whose types
    are not compared. `ins` are only read. `outs` are written, entirely or in the part that later steps read, and are
    disjoint from `ins`. `stream` defaults to 0.

    `tokens` is the token count passed to the kernel, if it differs from that of the run.

    A launch with `columns` (the first one and their number) computes only these columns of its result. Its
    `tile.kernel` takes the first column as an i64 before the token count; further launches compute the other columns.
    So a `plan.collective` of the same columns may follow before the others are complete (`split-columns`).

    A `dependent` launch may start before the launch ahead of it on its stream has ended: its kernel itself waits for
    that end, and so for all steps before it (docs/design/lowering-to-gpu.md). `plan-overlap-launches` sets it if the target's kernels
    support it.

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
  let summary = "a collective over the ranks of an axis";
  let description = [{
    With n ranks on `axis`, each of `outs` is made from the corresponding one of `ins`, all in one call: `all_gather`
    concatenates the rows of all ranks, those of rank 0 first; `reduce_scatter` gives each rank the sums of its n-th
    of the rows; `all_reduce` gives the sums of all rows. `stream` defaults to 0. All ranks run the same variant and
    so order collectives alike; events order collectives on different streams (`moert::verifyPlan`).

    With `destinations`, the pairs numbered by `routed` go only to the destination ranks of each row, i.e. those that
    hold an expert of its `ids` (for an `all_gather` one tensor, the ids of the rank's own rows; for a `reduce_scatter`
    these and those of all rows). On other ranks a gathered row is undefined, and other ranks add +0.0 to a sum. Moving
    all rows is correct too. `experts_per_rank` is that of `moe.dispatch`.

    With `sums_of`, the only one of `ins` is the result of an earlier `gather_reduce` launch on the stream, of these
    `rows` by `position`, with its `addend` and `num_valid_tokens`. A runtime that uses the collective's kernel skips
    that launch, since the kernel makes the sums itself; other runtimes run both. No other step reads the sums.

    With `unquantized`, the pairs numbered by `quantized`, quantized values and then their scales, are the results of an
    earlier launch on the stream that quantizes these rows. The kernel of such an `all_gather` quantizes them itself,
    and the launch is skipped, as with `sums_of`.

    An `all_gather` with `to_results` makes buffers that lie where other ranks write them, if the collective's kernel
    moves rows: at equal offsets in each rank's results (`moert::Communicator::results`), without a copy in between.
    So other ranks may write them before this rank's step begins. Other steps of the variant use them only between
    this collective and a later one of the axis, by which all ranks know that all others have read them
    (`moert::verifyPlan`). Without kernels, the buffers are in the workspace.

    A collective may name kernels as attributes: `plan.exchange_kernel`, which does it through the memory of other
    ranks (`tile.exchange`), and `plan.route_kernel` with `plan.pack_kernel`, which an all-to-all runs beside messages
    (`tile.route_rows`, and `tile.pack_rows` for a gather, `tile.sum_packed_rows` for a sum). An all-to-all gathers
    the rows of each rank in another order, in all gathered tensors alike, ids included, and the sum that returns them
    names these kernels too.

    A collective with `columns` (the first one and their number) and `sums_of` is one chunk of a whole. The chunks
    follow one another in their variant, from the first to the last columns, and differ only in stream and columns,
    which are equally many. A runtime that uses kernels moves these columns of each row. Without kernels, it moves
    whole rows with the last chunk, after the launch that makes the sums, and nothing with the other chunks.

    ```mlir
    plan.collective all_gather dp ins(%x : memref<?x8xbf16>) outs(%all : memref<?x8xbf16>)
        destinations(%o : memref<64xi32>) ids(%ids : memref<?x2xi32>) routed [0]
    plan.collective reduce_scatter dp ins(%sums : memref<?x8xbf16>) outs(%y : memref<?x8xbf16>)
        sums_of(%rows, %position : memref<?x8xbf16>, memref<?x2xi32>)
    plan.collective all_gather dp ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%all, %scales : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        unquantized(%x : memref<?x256xbf16>) quantized [0, 1]
    ```
  }];
  let arguments = (ins Plan_CollectiveKindAttr:$kind, Plan_AxisAttr:$axis, DefaultValuedAttr<I64Attr, "0">:$stream,
                       Variadic<AnyMemRef>:$ins, Variadic<AnyMemRef>:$outs, Optional<MemRefOf<[I32]>>:$destinations,
                       Variadic<MemRefOf<[I32]>>:$ids, OptionalAttr<DenseI64ArrayAttr>:$routed,
                       OptionalAttr<I64Attr>:$experts_per_rank,
                       Optional<AnyMemRef>:$rows, Optional<MemRefOf<[I32]>>:$position, Optional<AnyMemRef>:$addend,
                       Optional<MemRefOf<[I32]>>:$num_valid_tokens, Optional<AnyMemRef>:$unquantized,
                       OptionalAttr<DenseI64ArrayAttr>:$quantized, OptionalAttr<DenseI64ArrayAttr>:$columns,
                       UnitAttr:$to_results);
  let assemblyFormat = [{
    `` $kind `` $axis (`to_results` $to_results^)? (`columns` $columns^)? (`stream` $stream^)? `ins` `(` $ins `:` type($ins) `)` `outs` `(` $outs `:` type($outs) `)`
    (`destinations` `(` $destinations^ `:` type($destinations) `)`)? (`ids` `(` $ids^ `:` type($ids) `)`)?
    (`routed` $routed^)?
    (`sums_of` `(` $rows^ `,` $position `:` type($rows) `,` type($position) `)`)?
    (`addend` `(` $addend^ `:` type($addend) `)`)?
    (`num_valid_tokens` `(` $num_valid_tokens^ `:` type($num_valid_tokens) `)`)?
    (`unquantized` `(` $unquantized^ `:` type($unquantized) `)`)? (`quantized` $quantized^)? attr-dict
  }];
  let extraClassDeclaration = [{
    /// Number of `ids` of a collective of this kind with `destinations`.
    static size_t getNumIds(::moec::plan::CollectiveKind kind);
    /// Everything that the collective reads; after `ins` the operands that only its kernel reads.
    ::mlir::SmallVector<::mlir::Value> getRead();
    /// Whether later chunks of the same collective follow.
    bool isFollowed();
    /// The earlier launch that makes the sums of `sums_of` or quantizes `unquantized`, which the collective's kernel
    /// replaces; null without these, and for a chunk that is not the last.
    ::moec::plan::LaunchOp getReplacedLaunch();
  }];
  let hasVerifier = 1;
}

def Plan_RecordOp : Plan_Op<"record", [HasParent<"VariantOp">]> {
  let summary = "marks a point of a stream";
  let description = [{
    Event `event` completes with all steps before it on `stream`. Events are numbered from 0; a later record of the
    same event replaces the earlier one for the waits after it.

    ```mlir
    plan.record event 0 stream 0
    ```
  }];
  let arguments = (ins I64Attr:$event, I64Attr:$stream);
  let assemblyFormat = "`event` $event `stream` $stream attr-dict";
  let hasVerifier = 1;
}

def Plan_WaitOp : Plan_Op<"wait", [HasParent<"VariantOp">]> {
  let summary = "makes a stream wait for an event";
  let description = [{
    Later steps of `stream` start after `event`, which an earlier step of the block records.

    ```mlir
    plan.wait event 0 stream 1
    ```
  }];
  let arguments = (ins I64Attr:$event, I64Attr:$stream);
  let assemblyFormat = "`event` $event `stream` $stream attr-dict";
  let hasVerifier = 1;
}

def Plan_KernelOp : Plan_Op<"kernel", [FunctionOpInterface, IsolatedFromAbove]> {
  let summary = "the computation of one kernel, on tensors";
  let description = [{
    A symbol with a function type on ranked tensors; its body is one block of `moe` ops in value semantics that ends
    in `plan.return`. An argument with `moe.strided` takes a weight with gaps between its rows. `convert-plan-to-tile`
    turns it into a `tile.kernel` with one phase per op.

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
