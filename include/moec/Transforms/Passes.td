//===- Passes.td - passes inside one level ---------------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_TRANSFORMS_PASSES_TD
#define MOEC_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"
include "LaunchRewrites.td"

def PartOption : Option<"part", "part", "std::string", "\"\"",
    "the part that configs are chosen for, as in h100-sxm; empty: the target's default">;

def MoeDecomposePass : Pass<"moe-decompose", "::mlir::func::FuncOp"> {
  let summary = "rewrite moe.layer into the pipeline ops";
  let description = [{
    Rewrites each `moe.layer` into `moe.route`, `moe.permute`, `moe.tensor_scale`, `moe.quantize`,
    `moe.grouped_matmul`, `moe.row_map` and `moe.unpermute`, in the order of docs/architecture.md, and replaces `moe.param` by
    constants. What the layer says of quantization comes with each product and each `moe.quantize`, whatever it
    is; a dynamic scale of a tensor becomes a `moe.tensor_scale`, behind which it is one that is given; `moe-legalize-quant` asks whether a target can do it. Ensures that no `moe.layer` is left and that each op names its results in `moe.name`.
  }];
  let dependentDialects = ["::moec::moe::MoeDialect", "::mlir::arith::ArithDialect",
                           "::mlir::math::MathDialect"];
}

def MoeParallelizePass : Pass<"moe-parallelize", "::mlir::func::FuncOp"> {
  let summary = "spread a layer over the ranks of its mesh";
  let description = [{
    Of a function with `moe.mesh` (which `moe-decompose` takes from the layer), by the rules of docs/parallel.md: over
    `dp` a `moe.dispatch` ahead of what is done for the rows of all ranks, from the permutation to the sum over a
    token's experts, and a `moe.combine` behind it; over `tp` a `moe.combine` of what is returned. Bounds of tokens are
    multiplied by `dp`. With `sp` a `moe.dispatch` over `tp` comes first, ahead of what is done for the rows of a group,
    and the last `moe.combine` leaves each rank its own rows. What zero experts add is added behind it, to the rank's own
    rows. Nothing without a mesh of several ranks, or where there is a
    `moe.combine` already.
  }];
  let dependentDialects = ["::moec::moe::MoeDialect", "::mlir::arith::ArithDialect"];
}

def MoeVerifyPartialsPass : Pass<"moe-verify-partials", "::mlir::func::FuncOp"> {
  let summary = "refuse sums over ranks that are used before they are whole, or added twice";
  let description = [{
    Of a function with `moe.mesh`, computes for every value over which axes it is a part of a sum (the products with
    `experts.w2` over all of several ranks, those with `shared_experts.w2` over `tp`, and what follows from them), and for
    every tensor of experts' ids which experts they count: those of the layer (`logical`), replicas of the layer
    (`physical`), or a rank's own (`local`). A scalar region passes a part of a sum on as long as it is linear in it.
    Refuses, with the value and where it is used:

    - a part of a sum where a whole one is needed: in the router, a quantization, an activation, a product of two of
      them, another kind of sum, what the function returns;
    - a sum of a part with what is whole, which each rank would add;
    - a `moe.combine` of what is whole along its axis, which counts it once per rank, and of what was combined before;
    - zero experts that are added to what has them;
    - ids of a rank's own experts where those of the layer are needed: placed once more, dispatched, returned; and the
      other way round, where ranks have whole experts;
    - owners of rows where ranks have no whole experts, or by other ids than those chosen for the rows that go over the
      axis; rows for owners alone that are read but as the input of a product with a `source`, and a `moe.combine` with
      owners of more than the sum of a row's experts, of which the parts of other ranks would be lost.

    Changes nothing. Nothing is checked without a mesh of several ranks; runs behind `moe-parallelize`.
  }];
}

def MoeLegalizeQuantPass : Pass<"moe-legalize-quant", "::mlir::func::FuncOp"> {
  let summary = "choose how the target multiplies quantized operands";
  let description = [{
    Asks of each `moe.grouped_matmul`, `moe.quantize` and `moe.tensor_scale` whether the target has a way for its
    `#moe.quant`s, by the tables of `QuantSupport.cpp`: the CPU decodes to f32; GPUs decode to 16 bits, and
    Hopper multiplies e4m3 as it is. Sets the `way` of each product with quantized operands. Where that is `repack`,
    weights of 4 or 8 bits on Hopper, a `moe.repack` before the product brings its weights into the order of tensor cores. Rows of
    codes with which a product would be `decode`, and is `repack` by bf16, or `repack` too and slower, are kept as bf16 (`packing = bf16`), for these products
    alone. Ensures that what is left can be lowered; an error names the op, the formats and the target, and what to use instead.
  }];
  let options = [Option<"target", "target", "std::string", "\"cpu\"", "what is compiled for">];
}

def PlanAssignSlotsPass : Pass<"plan-assign-slots", "::moec::plan::ProgramOp"> {
  let summary = "give every buffer of a plan a workspace slot";
  let description = [{
    Two buffers share a slot if their lives do not overlap in any variant; a life reaches from the
    first to the last step that touches the buffer, and steps on streams that may run at the same
    time count as simultaneous. Buffers are placed largest first into the first slot that is free. What
    a launch makes that reads no buffer gets no slot that a launch before it touches: it may run beside
    that one. Ensures that each `plan.buffer` has a `slot`. The option `keep-all` gives each its own.
  }];
  let options = [Option<"keepAll", "keep-all", "bool", "false", "one slot per buffer">];
}

def TileSplitPhasesPass : Pass<"tile-split-phases", "::mlir::ModuleOp"> {
  let summary = "one kernel and one launch per phase";
  let description = [{
    Cuts each `tile.kernel` of several phases into kernels `@name_0`, `@name_1`, ... of one phase each,
    with just the arguments that the phase uses, and each launch of it into launches in that order
    on the same stream. For targets that cannot order phases inside one launch.
  }];
}

def TileSpecializePass : Pass<"tile-specialize", "::mlir::ModuleOp"> {
  let summary = "kernels of their own for ranges of token counts";
  let description = [{
    Splits the variant of a program into ranges of token counts (each kernel has at most `max-ranges`, cut
    at powers of two), and makes a copy of each kernel per range in which another config is best by the
    model of its schedule (`@experts_hidden_t8`, `@experts_hidden_t256`); ranges side by side with the
    same best config share a kernel. `load` on a kernel says what the range is, and `tile-assign-config`
    chooses by it. The products of experts are cut together, each other kernel by itself, so that its cuts
    cost no kernels of theirs; a range of the program ends wherever one of a kernel does. A cut has to save
    the price of its kernels (docs/launch-rewrites.md) in time of all kernels, summed over the powers of two, and
    the program has at most `max-kernels` kernels: of more, ranges side by side share one where that loses least. Targets whose schedules have no model of their time (`cpu`), kernels with a `config`
    or a `load` and programs of several variants stay as they are.
    Ranges are also cut where those of `configs`, which are those of `tile-assign-config`, begin and end.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target: cpu, sm_80, sm_90a or sm_100a">,
    PartOption,
    Option<"maxRanges", "max-ranges", "int64_t", "7", "ranges of a kernel at most; 1 for none but the whole">,
    Option<"maxKernels", "max-kernels", "int64_t", "::moec::kMaxKernels",
           "kernels of a program at most, with those of other passes that are there already">,
    ListOption<"configs", "configs", "std::string", "configs to take: KERNEL[@MIN-MAX]:TEXT">];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def TileAssignConfigPass : Pass<"tile-assign-config", "::mlir::ModuleOp"> {
  let summary = "choose how each phase runs";
  let description = [{
    Sets `config` on each phase op without one and `grid` on each kernel (on a GPU `block`, `shared` and
    `tensor_maps` too), for the target given. The first of the target's schedules that can run the op is
    chosen. Each choice is remarked with its reason, and each schedule that declines with its own
    (`--remarks-filter=tile-assign-config`). A config that is already there is kept after its schedule
    has checked it. Emission decides nothing later.

    `configs` has configs to take instead, the last one that is for a kernel: `KERNEL:TEXT`, or
    `KERNEL@MIN-MAX:TEXT` for kernels whose `load` is within these token counts. KERNEL is a name with
    or without the range (`experts_hidden` for `experts_hidden_t8` and all others). TEXT has the fields
    that differ from the choice, as in `tile_rows=16+32 tile_columns=64 stages=12`, maybe after a schedule's name. `map_rows` of
    a product that reads its rows by `source` is left to `permute-rows` (`tile-rewrite-launches`), which brings them into order.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target: cpu, sm_80, sm_90a or sm_100a">,
    PartOption,
    Option<"lanes", "lanes", "int64_t", "0", "f32 elements of a vector; 0: those of the host">,
    ListOption<"configs", "configs", "std::string", "configs to take: KERNEL[@MIN-MAX]:TEXT">];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def TileRewriteLaunchesPass : Pass<"tile-rewrite-launches", "::mlir::ModuleOp"> {
  let summary = "rewrite launches where that saves time";
  let description = [{
    Runs the rewrites below, in this order (docs/launch-rewrites.md). For each site that a rewrite matches and may
    legally rewrite it builds what would be, and predicts what that takes; it stays if the time that it saves at each
    token point, relative to that of all launches there and summed over the points, is more than the price of the
    kernels that it adds. Where a device's times are not known, whatever is legal is done. Each decision is
    remarked with its reason (`--remarks-filter=tile-rewrite-launches`). Kernels that nobody launches any more and
    buffers that nobody uses are erased; slots are assigned anew where that is needed (`plan-assign-slots`).
    Requires a `config` on each phase; changes no number.

    `configs` are those that were forced (`tile-assign-config`). `disable` leaves rewrites out; with `only`, others
    than these. `set` gives a parameter another value, as in `set=split-ranking.most=2048,permute-rows.always`.
  }] # !foldl("", LaunchRewrites, text, rewrite,
              text # "\n    **`" # rewrite.name # "`**: " # rewrite.summary # "\n\n" # rewrite.description);
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target: cpu, sm_80, sm_90a or sm_100a">,
    PartOption,
    ListOption<"configs", "configs", "std::string", "configs that were forced: KERNEL[@MIN-MAX]:TEXT">,
    ListOption<"disable", "disable", "std::string", "rewrites that do not run">,
    ListOption<"only", "only", "std::string", "the rewrites that run; none: all">,
    ListOption<"set", "set", "std::string", "parameters: REWRITE.NAME[=VALUE]">];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def TileChooseKernelsPass : Pass<"tile-choose-kernels", "::mlir::ModuleOp"> {
  let summary = "choose ranges, configs and rewrites within a number of kernels";
  let description = [{
    Runs `tile-specialize`, `tile-assign-config` and `tile-rewrite-launches`. Where the module then has more than
    `max-kernels` kernels, they run again from the beginning with fewer kernels for ranges of tokens, until it has
    not or until there are no ranges left. `configs`, `disable` and `set` are as those passes have them.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target: cpu, sm_80, sm_90a or sm_100a">,
    PartOption,
    Option<"lanes", "lanes", "int64_t", "0", "f32 elements of a vector; 0: those of the host">,
    Option<"maxKernels", "max-kernels", "int64_t", "::moec::kMaxKernels", "kernels of a module at most">,
    ListOption<"configs", "configs", "std::string", "configs to take: KERNEL[@MIN-MAX]:TEXT">,
    ListOption<"disable", "disable", "std::string", "rewrites that do not run">,
    ListOption<"set", "set", "std::string", "parameters of rewrites: REWRITE.NAME[=VALUE]">];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def PlanOverlapLaunchesPass : Pass<"plan-overlap-launches", "::moec::plan::ProgramOp"> {
  let summary = "let launches begin before the launch before them has ended";
  let description = [{
    Marks each launch `dependent` whose step before it on its stream is a launch too, so neither the
    first of a run nor one after a `plan.record` or `plan.wait`. Marks nothing where kernels of the
    target cannot wait for the launch before them: on the CPU and on GPUs before sm_90. Runs after
    the passes that make launches.
  }];
  let options = [Option<"target", "target", "std::string", "\"cpu\"",
                        "the target: cpu, sm_80, sm_90a or sm_100a">];
}

def TileFindIndependentPass : Pass<"tile-find-independent", "::mlir::ModuleOp"> {
  let summary = "find kernels that need not wait for the launches before them";
  let description = [{
    Marks a kernel `independent` if each of its dependent launches (there is one at least) may run beside
    those that may still run when it begins: the launches before it on its stream, back to the last one
    that is not dependent. It reads nothing that a step of the run has written, and writes nothing that they touch, nor a
    slot of the workspace that they use, nor a tensor of the caller's. Such a kernel waits at its end:
    who waits for it relies on all before it to have ended. A kernel that quantizes and then routes does the
    first `ahead` if that much is independent. Runs after `plan-overlap-launches`.
  }];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def TileMakeExchangesPass : Pass<"tile-make-exchanges", "::mlir::ModuleOp"> {
  let summary = "make the kernels that do collectives through the memory of other ranks";
  let description = [{
    For a GPU: a kernel with a `tile.exchange` for each `plan.collective`, which names it as `plan.exchange_kernel`; alike
    ones share it. Which engine moves rows is chosen when a layer is run, so the steps stay (docs/parallel.md). None is
    made for an axis of more ranks than have room in a heap, nor where parts differ in what their rows follow
    from. Where the one tensor that is summed over ranks is what a launch with one `tile.gather_reduce` makes for it alone, just before,
    the kernel makes these sums itself: the collective says of what as `sums_of`, and slots are assigned anew, since that is
    read later then. Where two tensors that are gathered are what a launch with one `tile.quantize` makes for the gather alone, codes of
    f8E4M3FN and an f32 for each group of a row, or of f8E4M3FN (where the target has instructions that make it) or int8 and an f32 for each row, the
    kernel quantizes these rows itself (`codes_of`). A gather of buffers that other ranks may write at once is marked `to_results`.
    A gather with owners, of which one expert has one, and the sum by which its rows go back name the kernels of an all-to-all too (`plan.route_kernel`,
    `plan.pack_kernel`; docs/all-to-all.md), for any number of ranks, unless another collective moves what was gathered. Runs after the passes that make variants. `configs` are those of `tile-assign-config`; kernels are called as
    the kind of their collective, and configs name them so or, where there are several of a kind, with the axis
    (`all_gather_dp`).
  }];
  let options = [Option<"target", "target", "std::string", "\"cpu\"",
                        "the target: cpu, sm_80, sm_90a or sm_100a">,
                 ListOption<"configs", "configs", "std::string", "configs to take: KERNEL[@MIN-MAX]:TEXT">];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def VerifyGpuFencesPass : Pass<"verify-gpu-fences", "::mlir::LLVM::LLVMFuncOp"> {
  let summary = "check fences between loads and stores and asynchronous accesses";
  let description = [{
    Bulk copies and tensor cores (wgmma) access shared memory through the async proxy, all else through
    the generic one. Fails on a kernel in the llvm and nvvm dialects in which a thread writes shared
    memory that the async proxy accesses (a store, an stmatrix, a cp.async that a wait has ended,
    mbarrier.init), and reaches, on some path, a barrier, an arrival or such an access with no
    fence.proxy.async since; after mbarrier.init a fence.mbarrier.init must be there too.

    What is assumed: a variable in shared memory (dynamic shared memory is one) has parts, which begin
    at the constants that are added to its address before anything that is not constant; what is added
    then does not lead into another part, and an access is one to all of its part. Tensor cores read
    the parts whose address is made a number in the kernel. A pointer of unknown origin may point
    anywhere. Of a copy that no wait has ended, nothing is published, but cp.async.mbarrier.arrive
    publishes all copies, without a fence. PTX as text does what the names of its instructions say.
    Global memory that a kernel both writes and copies asynchronously is not looked at.
  }];
}

def VerifyGpuAddressesPass : Pass<"verify-gpu-addresses", "::mlir::LLVM::LLVMFuncOp"> {
  let summary = "check that global addresses are formed in 64 bits";
  let description = [{
    Fails on a kernel, as gpu-kernel-entry leaves it, in which a product that is part of a global address
    (a dynamic index of a getelementptr, an index of a memref that is not in shared memory) may
    overflow: one of less than 64 bits, or one that is truncated on its way. Products whose factors
    have ranges that rule it out, from thread numbers and loops with constant bounds, pass. Values that
    are loaded or passed to the kernel can be any.
  }];
}

def VerifyGpuDependentsPass : Pass<"verify-gpu-dependents", "::mlir::LLVM::LLVMFuncOp"> {
  let summary = "check that kernels wait for the launch before them";
  let description = [{
    A dependent launch begins before the launch before it has ended. Fails on a kernel in the llvm and
    nvvm dialects in which a thread, on some path, reaches an access to global memory, or its return,
    with no `nvvm.griddepcontrol wait` before. The wait before the return is for those who wait for this
    kernel: they wait for it alone, and rely on it not to end before what it depends on.

    An access is an op with a memory effect and a pointer that may lead into global memory; a pointer of
    unknown origin may. Constants of the module, tensor maps that are prefetched, and ops with the
    attribute `moec.weights` pass: who sets that says that no launch of a run writes what the op reads.
    In a kernel whose `moec.form` is `independent` every access passes; in one that is `ahead` those do
    that come before the barrier with `moec.ends_ahead`.
  }];
}

def VerifyGpuMulticastPass : Pass<"verify-gpu-multicast", "::mlir::LLVM::LLVMFuncOp"> {
  let summary = "check that no kernel uses multicast or clusters";
  let description = [{
    Fails on a copy with a multicast mask, on PTX as text that is a multicast, and on a kernel with
    attributes that launch it in clusters.
  }];
}

#endif
