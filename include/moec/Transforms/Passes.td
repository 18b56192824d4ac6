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
    "the model of GPU that configs are chosen for, such as h100-sxm; empty: the target's default">;
def ProductsOption : Option<"products", "products", "std::string", "\"\"",
    "the CPU's instructions for products: fma, vnni, bf16 or amx; empty: those of the host without 'lanes', else fma">;
def DependentLaunchesOption : Option<"dependentLaunches", "dependent-launches", "bool", "true",
    "whether a launch may begin before the one ahead of it has ended">;
def KeepAllOption : Option<"keepAll", "keep-all", "bool", "false", "one slot per buffer">;

def MoeDecomposePass : Pass<"moe-decompose", "::mlir::func::FuncOp"> {
  let summary = "rewrite moe.layer into the pipeline ops";
  let description = [{
    Rewrites each `moe.layer` into `moe.route`, `moe.permute`, `moe.tensor_scale`, `moe.quantize`,
    `moe.grouped_matmul`, `moe.row_map` and `moe.unpermute`, in the order of docs/design/architecture.md, and replaces
    `moe.param` by constants. Each gemm and each `moe.quantize` gets the layer's quantization unchanged, except that a
    dynamic scale of a tensor becomes a `moe.tensor_scale` followed by a static quantization; `moe-legalize-quant`
    checks whether a target supports it. Ensures that no `moe.layer` is left and that each op names its results in
    `moe.name`.
  }];
  let dependentDialects = ["::moec::moe::MoeDialect", "::mlir::arith::ArithDialect",
                           "::mlir::math::MathDialect"];
}

def MoeParallelizePass : Pass<"moe-parallelize", "::mlir::func::FuncOp"> {
  let summary = "spread a layer over the ranks of its mesh";
  let description = [{
    Parallelizes a function with `moe.mesh` (from `moe-decompose`) by the rules of docs/use/parallel.md. Over `dp`: a
    `moe.dispatch` before everything that runs on the rows of all ranks, from the permutation to the sum over a
    token's experts, and a `moe.combine` after it. Over `tp`: a `moe.combine` of the returned value. Bounds of tokens
    are multiplied by `dp`. With `sp`, a `moe.dispatch` over `tp` comes first, before everything that runs on the rows
    of a group, and the last `moe.combine` leaves each rank its own rows. The sums of zero experts are added after it,
    to the rank's own rows. In a function with `moe.batch_invariant` the `moe.combine` over `dp` moves the row of each
    slot (`moe.unpermute unreduced`), and a token's rows are added on its own rank (`from_unreduced`); partials of gemms
    are refused. Does nothing without a mesh of several ranks, or if there is a `moe.dispatch` or `moe.combine` already
    (docs/design/parts.md).
  }];
  let dependentDialects = ["::moec::moe::MoeDialect", "::mlir::arith::ArithDialect"];
}

def MoeVerifyPartialsPass : Pass<"moe-verify-partials", "::mlir::func::FuncOp"> {
  let summary = "refuse partials that are used before their reduction, or added twice";
  let description = [{
    Computes, for every value of a function with `moe.mesh`, the axes over which it is a partial: gemms with
    `experts.w2` over all axes of several ranks, gemms with `shared_experts.w2` over `tp`, and everything that depends
    on them. For every tensor of expert ids it computes what the ids count: experts of the layer (`logical`), replicas
    of the layer (`physical`), or a rank's own experts (`local`). Inputs with `moe.partial` are partials, and results
    must be what theirs says (docs/design/parts.md). A scalar region that is linear in a partial yields a
    partial. Refuses, with the value and its use:

    - a partial where a reduced value is needed: in the router, a quantization, an activation, a product of two
      partials, another kind of sum, the function's results;
    - a sum of a partial and a reduced value, which each rank would add;
    - a `moe.combine` of a value that is reduced along its axis, which would count it once per rank, or of a combined
      value;
    - zero experts that are added twice;
    - local ids where ids of the layer are needed (placed once more, dispatched, returned), and ids of the layer where
      local ones are needed, if ranks hold whole experts;
    - `destinations` if ranks do not hold whole experts, or by other ids than those chosen for the exchanged rows;
      rows sent only to destination ranks with another use than the input of a gemm with a `source`; a `moe.combine`
      with `destinations` of more than the sum of a row's experts, which would lose the partials of other ranks.

    Changes nothing, and checks nothing without a mesh of several ranks. Runs after `moe-parallelize`.
  }];
}

def MoeLegalizeQuantPass : Pass<"moe-legalize-quant", "::mlir::func::FuncOp"> {
  let summary = "choose the target's strategy for quantized operands";
  let description = [{
    Checks whether the target supports the `#moe.quant`s of each `moe.grouped_matmul`, `moe.quantize` and
    `moe.tensor_scale`, by the tables of `QuantSupport.cpp`: the CPU dequantizes to f32, GPUs dequantize to 16 bits,
    and Hopper also multiplies e4m3 natively. Sets `strategy` on each gemm with quantized operands. For
    `repack`, i.e. weights of 4 or 8 bits on Hopper, a `moe.prepack` before the gemm prepacks its weights. Quantized
    rows are kept as bf16 (`packing = bf16`), for the gemms concerned, if a gemm would be `decode` with them but is
    `repack` by bf16, or would be `repack` but slower. Ensures that the remaining ops can be lowered; an error names
    the op, the formats and the target, and what to use instead.
  }];
  let options = [Option<"target", "target", "std::string", "\"cpu\"", "the target">];
}

def PlanAssignSlotsPass : Pass<"plan-assign-slots", "::moec::plan::ProgramOp"> {
  let summary = "give every buffer of a plan a workspace slot";
  let description = [{
    Buffers share a slot if their lifetimes do not overlap in any variant. A lifetime reaches from the first to the
    last step that uses the buffer; steps on streams that may run at the same time count as simultaneous. Buffers are
    assigned, largest first, to the first free slot. The results of a launch that reads no buffer get no slot that the
    launch before it uses, since both may overlap. Ensures that each `plan.buffer` has a `slot`. With `keep-all`, each
    buffer has its own slot.
  }];
  let options = [KeepAllOption];
}

def TileSplitPhasesPass : Pass<"tile-split-phases", "::mlir::ModuleOp"> {
  let summary = "one kernel and one launch per phase";
  let description = [{
    Splits each `tile.kernel` of several phases into kernels `@name_0`, `@name_1`, ... of one phase each, with only
    the arguments that the phase uses, and each of its launches into launches in that order on the same stream. For
    targets that cannot order phases inside one launch.
  }];
}

def TileSpecializePass : Pass<"tile-specialize", "::mlir::ModuleOp"> {
  let summary = "specialize kernels for ranges of token counts";
  let description = [{
    Splits the variant of a program into ranges of token counts and copies each kernel for each range in which the
    cost model of its schedule prefers another config (`@experts_hidden_t8`, `@experts_hidden_t256`). A kernel has at
    most `max-ranges` ranges, split at powers of two; adjacent ranges with the same best config share a kernel. `load`
    on a kernel holds its range, and `tile-assign-config` chooses configs by it. The experts' gemms are split together
    and each other kernel by itself, so that splitting one kernel does not copy others; the program's ranges end
    wherever a range of a kernel does.

    A split must save more time over all kernels, summed over the powers of two, than the penalty of its kernels
    (docs/design/lowering-to-gpu.md). The program has at most `max-kernels` kernels; beyond that, adjacent ranges share one
    where this loses least. Ranges also begin and end at those of `configs`, which are those of `tile-assign-config`.
    With `few-tokens` the experts' gemms then have kernels of their own up to so many tokens; others stay as they are.
    Unchanged: targets whose schedules have no cost model (`cpu`), kernels with a `config` or a `load`, and programs
    of several variants.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target: cpu, sm_80, sm_90a or sm_100a">,
    PartOption,
    Option<"maxRanges", "max-ranges", "int64_t", "7", "largest number of ranges per kernel; 1: no split">,
    Option<"maxKernels", "max-kernels", "int64_t", "::moec::kMaxKernels",
           "largest number of kernels per program, including those that other passes have added">,
    Option<"fewTokens", "few-tokens", "int64_t", "0",
           "a range that begins with at most so many tokens is split behind them; 0: none">,
    ListOption<"configs", "configs", "std::string", "forced configs: KERNEL[@MIN-MAX]:TEXT">];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def TileAssignConfigPass : Pass<"tile-assign-config", "::mlir::ModuleOp"> {
  let summary = "choose a schedule and a config for each phase";
  let description = [{
    Sets `config` on each phase op without one and `grid` on each kernel (on a GPU `block`, `shared` and `tensor_maps`
    too), for the given target. Takes the first of the target's schedules that can run the op. A remark gives the
    reason of each choice and of each schedule that declines (`--remarks-filter=tile-assign-config`). An existing
    config is checked by its schedule and kept. Emission decides nothing later.

    `configs` forces configs; the last one that matches a kernel wins. `KERNEL:TEXT` matches by name,
    `KERNEL@MIN-MAX:TEXT` also requires `load` to lie within these token counts. KERNEL is a name with or without the
    range (`experts_hidden` for `experts_hidden_t8` and all others). TEXT has the fields that differ from the choice,
    such as `block_m=16+32 block_n=64 stages=12`, optionally after a schedule's name. `map_rows` of a gemm that
    reads its rows by `source` is left to `permute-rows` (`tile-rewrite-launches`), which permutes them.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target: cpu, sm_80, sm_90a or sm_100a">,
    PartOption,
    Option<"lanes", "lanes", "int64_t", "0", "f32 elements of a vector; 0: as on the host">, ProductsOption,
    ListOption<"configs", "configs", "std::string", "forced configs: KERNEL[@MIN-MAX]:TEXT">];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def TileRewriteLaunchesPass : Pass<"tile-rewrite-launches", "::mlir::ModuleOp"> {
  let summary = "rewrite launches where that saves time";
  let description = [{
    Runs the rewrites below, in this order (docs/design/lowering-to-gpu.md). For each legal match, a rewrite builds the new
    launches and predicts their time. It keeps them if the saved time at each token point, relative to that of all
    launches there and summed over the points, exceeds the penalty of the added kernels. Without a cost model for the
    device, every legal rewrite is applied. A remark gives the reason of each decision
    (`--remarks-filter=tile-rewrite-launches`). Unused kernels and buffers are erased, and slots are reassigned where
    needed (`plan-assign-slots`). Requires a `config` on each phase; does not change results.

    `configs` are the forced ones (`tile-assign-config`). `disable` excludes rewrites; `only` excludes all others.
    A rewrite whose requirements (LaunchRewrites.def) `dependent-launches` or `keep-all` exclude does not run either.
    `set` changes a parameter, as in `set=split-sort.most=2048,permute-rows.always`.
  }] # !foldl("", LaunchRewrites, text, rewrite,
              text # "\n    **`" # rewrite.name # "`**: " # rewrite.summary # "\n\n" # rewrite.description);
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target: cpu, sm_80, sm_90a or sm_100a">,
    PartOption,
    ListOption<"configs", "configs", "std::string", "forced configs: KERNEL[@MIN-MAX]:TEXT">,
    DependentLaunchesOption, KeepAllOption,
    ListOption<"disable", "disable", "std::string", "rewrites to disable">,
    ListOption<"only", "only", "std::string", "the only rewrites to run; empty: all">,
    ListOption<"set", "set", "std::string", "parameters of rewrites: REWRITE.NAME[=VALUE]">];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def TileFixSumOrdersPass : Pass<"tile-fix-sum-orders", "::mlir::ModuleOp"> {
  let summary = "give each gemm of a batch-invariant program one order of sums";
  let description = [{
    Sets `sum_order` on each gemm of programs with `batch_invariant`, so that `tile-specialize`, `tile-assign-config`
    and `tile-rewrite-launches` accept only configs that add in this order, whatever the number of tokens. Takes the
    order whose best configs have the least predicted time, relative to the best of all orders and summed over the
    powers of two; without a cost model, the order of the schedule's choice. Refuses programs in which a row depends on
    others anyway (one dynamic scale for all rows) or ranks add partials. Leaves other programs as they are.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target: cpu, sm_80, sm_90a or sm_100a">,
    PartOption,
    Option<"lanes", "lanes", "int64_t", "0", "f32 elements of a vector; 0: as on the host">, ProductsOption];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def TileCertifySumOrdersPass : Pass<"tile-certify-sum-orders", "::mlir::ModuleOp"> {
  let summary = "state the order of sums of each gemm on the program";
  let description = [{
    Sets `sum_orders` on each program in which all kernels of a gemm add in one order: then the bits of a row depend on
    this row and the weights alone. Everything else that adds, such as the softmax of the router and the sum of a
    token's experts, adds in one order by construction. A remark names the kernels that differ
    (`--remarks-filter=tile-certify-sum-orders`); in a program with `batch_invariant` that is an error. Other programs
    of several ranks get no certificate.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target: cpu, sm_80, sm_90a or sm_100a">,
    PartOption,
    Option<"lanes", "lanes", "int64_t", "0", "f32 elements of a vector; 0: as on the host">, ProductsOption];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def TileChooseKernelsPass : Pass<"tile-choose-kernels", "::mlir::ModuleOp"> {
  let summary = "choose ranges, configs and rewrites within a limit of kernels";
  let description = [{
    Runs `tile-specialize`, `tile-assign-config` and `tile-rewrite-launches`. If the module then has more than
    `max-kernels` kernels, runs them again from the beginning with fewer kernels for token ranges, until it fits or no
    ranges are left. Then runs them with `few-tokens=1`, and keeps that if the time at one token is expected to fall by
    3.5 %, and the sum over the token counts by more than the penalty of the added kernels. Other options are those of
    the three passes.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target: cpu, sm_80, sm_90a or sm_100a">,
    PartOption,
    Option<"lanes", "lanes", "int64_t", "0", "f32 elements of a vector; 0: as on the host">, ProductsOption,
    Option<"maxKernels", "max-kernels", "int64_t", "::moec::kMaxKernels", "largest number of kernels per module">,
    ListOption<"configs", "configs", "std::string", "forced configs: KERNEL[@MIN-MAX]:TEXT">,
    DependentLaunchesOption, KeepAllOption,
    ListOption<"disable", "disable", "std::string", "rewrites to disable">,
    ListOption<"set", "set", "std::string", "parameters of rewrites: REWRITE.NAME[=VALUE]">];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def PlanOverlapLaunchesPass : Pass<"plan-overlap-launches", "::moec::plan::ProgramOp"> {
  let summary = "let launches begin before the launch ahead of them has ended";
  let description = [{
    Marks a launch `dependent` if the step before it on its stream is a launch too, so neither the first of a run nor
    one after a `plan.record` or `plan.wait`. Marks nothing on targets whose kernels cannot wait for the launch before
    them: the CPU and GPUs before sm_90. Runs after the passes that make launches.
  }];
  let options = [Option<"target", "target", "std::string", "\"cpu\"",
                        "the target: cpu, sm_80, sm_90a or sm_100a">];
}

def TileFindIndependentPass : Pass<"tile-find-independent", "::mlir::ModuleOp"> {
  let summary = "find kernels that need not wait for the launches before them";
  let description = [{
    Marks a kernel `independent` if it has a dependent launch and each of these may overlap all launches that may
    still run when it begins: those before it on its stream, back to the last one that is not dependent. It must not
    read memory that a step of the run has written, nor write memory or a workspace slot that these launches use, nor
    a tensor of the caller. Such a kernel waits at its end, because later launches that wait for it rely on all
    launches before it to have ended. In a kernel that quantizes and then routes, the quantization runs `ahead` if
    that much is independent. Runs after `plan-overlap-launches`.
  }];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def TileMakeExchangesPass : Pass<"tile-make-exchanges", "::mlir::ModuleOp"> {
  let summary = "make the kernels that run collectives through peer memory";
  let description = [{
    On a GPU, makes a kernel with a `tile.exchange` for each `plan.collective`, which names it in
    `plan.exchange_kernel`; equal ones share a kernel. The plan keeps the collectives, since the engine that moves
    rows is chosen at run time (docs/use/parallel.md). No kernel is made if the axis has more ranks than a heap supports,
    or if the row counts of the pairs depend on different sizes.

    If the only tensor to be summed is the result of the launch right before, with one `tile.gather_reduce` and no
    other use, the kernel makes these sums itself: the collective gets `sums_of`, and slots are reassigned since its
    operands live longer. If two gathered tensors are the results of a launch with one `tile.quantize` and no other
    use, the kernel quantizes the rows itself (`unquantized`). Supported are f8E4M3FN with an f32 for each group of a
    row, f8E4M3FN with an f32 for each row (on targets with conversion instructions to it), and int8 with an f32 for
    each row. A gather of buffers that other ranks may write at once is marked `to_results`.

    A gather with `destinations` and one destination rank per expert, and the sum that returns its rows, also name the
    kernels of an all-to-all (`plan.route_kernel`, `plan.pack_kernel`; docs/design/runtime.md), for any number of ranks,
    unless another collective moves the gathered rows. Runs after the passes that make variants. `configs` are those of
    `tile-assign-config`; a kernel has the name of its collective's kind, and configs use this name or, to distinguish
    several of a kind, the name with the axis (`all_gather_dp`).
  }];
  let options = [Option<"target", "target", "std::string", "\"cpu\"",
                        "the target: cpu, sm_80, sm_90a or sm_100a">,
                 ListOption<"configs", "configs", "std::string", "forced configs: KERNEL[@MIN-MAX]:TEXT">];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def VerifyGpuFencesPass : Pass<"verify-gpu-fences", "::mlir::LLVM::LLVMFuncOp"> {
  let summary = "check fences between loads and stores and asynchronous accesses";
  let description = [{
    Bulk copies and tensor cores (wgmma) access shared memory through the async proxy, all other instructions through
    the generic proxy. Fails on a kernel in the llvm and nvvm dialects in which a thread writes shared memory that the
    async proxy accesses (a store, an stmatrix, a cp.async that a wait has ended, mbarrier.init) and then, on some
    path, reaches a barrier, an arrival or such an access without a fence.proxy.async in between; mbarrier.init
    requires a fence.mbarrier.init too.

    Assumptions: a variable in shared memory (dynamic shared memory is one) has sections, which begin at the constants
    that are added to its address before anything that is not constant. Later additions do not lead into another
    section, and an access touches all of its section. Tensor cores read the sections whose address is converted to an
    integer in the kernel. A pointer of unknown origin may point anywhere. A copy that no wait has ended is not
    published, except by cp.async.mbarrier.arrive, which publishes all copies without a fence. Inline PTX does what
    the names of its instructions say. Global memory that a kernel both writes and copies asynchronously is not
    checked.
  }];
}

def VerifyGpuAddressesPass : Pass<"verify-gpu-addresses", "::mlir::LLVM::LLVMFuncOp"> {
  let summary = "check that global addresses are formed in 64 bits";
  let description = [{
    Fails on a kernel, as gpu-kernel-entry leaves it, in which a multiplication that is part of a global address (a
    dynamic index of a getelementptr, an index of a memref that is not in shared memory) may overflow: one in less
    than 64 bits, or one that is truncated later. Multiplications pass if the ranges of their factors, from thread
    indices and loops with constant bounds, exclude overflow. Values that are loaded or passed to the kernel have any
    value.
  }];
}

def VerifyGpuDependentsPass : Pass<"verify-gpu-dependents", "::mlir::LLVM::LLVMFuncOp"> {
  let summary = "check that kernels wait for the launch before them";
  let description = [{
    A dependent launch may begin before the launch ahead of it has ended. Fails on a kernel in the llvm and nvvm
    dialects in which a thread, on some path, reaches an access to global memory, or its return, without an earlier
    `nvvm.griddepcontrol wait`. The wait before the return matters to later kernels: they wait for this kernel alone,
    and rely on it not to end before the launches that it depends on.

    An access is an op with a memory effect and a pointer that may lead into global memory, as a pointer of unknown
    origin may. Exempt are constants of the module, prefetched tensor maps, and ops with the attribute `moec.weights`,
    which asserts that no launch of a run writes the memory that the op reads. In a kernel whose `moec.form` is
    `independent` every access passes; in one that is `ahead`, every access before the barrier with `moec.ends_ahead`.
  }];
}

def VerifyGpuMulticastPass : Pass<"verify-gpu-multicast", "::mlir::LLVM::LLVMFuncOp"> {
  let summary = "check that multicast stays in a cluster";
  let description = [{
    Fails on a multicast mask or `nvvm.mapa` in a kernel without `nvvm.cluster_dim`, on a mask that is no constant or
    names CTAs outside of the cluster, on a kernel with a cluster that returns without `nvvm.cluster.wait` ahead, on
    clusters of several dimensions or more than 8 CTAs, and on multicast in inline PTX, which may be that of several
    GPUs (`multimem`).
  }];
}

#endif
