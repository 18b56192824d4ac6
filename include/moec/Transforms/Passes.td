//===- Passes.td - passes inside one level ---------------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_TRANSFORMS_PASSES_TD
#define MOEC_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

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

def MoeLegalizeQuantPass : Pass<"moe-legalize-quant", "::mlir::func::FuncOp"> {
  let summary = "choose how the target multiplies quantized operands";
  let description = [{
    Asks of each `moe.grouped_matmul`, `moe.quantize` and `moe.tensor_scale` whether the target has a way for its
    `#moe.quant`s, by the tables of `QuantSupport.cpp`: the CPU decodes e4m3 of every granularity to f32, GPUs
    multiply block fp8. Sets the `way` of each product with quantized operands, and changes nothing else. Ensures
    that what is left can be lowered; an error names the op, the formats and the target, and what to use instead.
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
    1.05 % of the time of all modelled kernels, summed over the powers of two, or 0.2 % where it is of one
    other kernel, and the program has at most `max-kernels` kernels: of more, ranges side by side share one
    where that loses least. Targets whose schedules have no model of their time (`cpu`), kernels with a `config`
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
    that differ from the choice, as in `n=64 stages=12 bodies=16+32`, maybe after a schedule's name. `map_rows` of
    a product that reads its rows by `source` is left to `tile-permute-rows`, which brings them into order.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target: cpu, sm_80, sm_90a or sm_100a">,
    PartOption,
    Option<"lanes", "lanes", "int64_t", "0", "f32 elements of a vector; 0: those of the host">,
    ListOption<"configs", "configs", "std::string", "configs to take: KERNEL[@MIN-MAX]:TEXT">];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def TileQuantizeResultsPass : Pass<"tile-quantize-results", "::mlir::ModuleOp"> {
  let summary = "let products quantize their results";
  let description = [{
    Gives a grouped product `result_scale`, so that it writes e4m3 and scales itself, where each of its
    launches is followed by one of a `tile.quantize` of its results, on the same stream and with the same
    offsets, and nothing else reads these: there is one launch less, and less to write and read. The product's
    schedule says whether it can, in which config, and whether that is expected to take less time. Buffers that
    nobody uses any more are erased, and slots assigned anew (`plan-assign-slots`). Kernels keep their names.
    Requires a `config` on each phase; changes no number.

    `configs` are those that were forced (`tile-assign-config`): a product that has one keeps it, and quantizes
    if it can; a quantization that has one stays.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target: cpu, sm_80, sm_90a or sm_100a">,
    PartOption,
    ListOption<"configs", "configs", "std::string", "configs that were forced: KERNEL[@MIN-MAX]:TEXT">];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def TilePermuteRowsPass : Pass<"tile-permute-rows", "::mlir::ModuleOp"> {
  let summary = "bring rows into order ahead of a product";
  let description = [{
    Where a grouped product reads its rows by `source`, each of its launches may get one of a `tile.gather_rows`
    in front, which copies them (and their scales) into a buffer in the order of their groups; the product then
    has no `source`, and its config `map_rows`. The product's schedule says whether it can, in which config, and
    whether both together are expected to take less time: a copy of a row is little beside a wide product.
    Kernels keep their names; slots are assigned anew (`plan-assign-slots`). Requires a `config` on each phase
    and a `load` on the kernel; changes no number.

    `configs` are those that were forced (`tile-assign-config`): a product that has one keeps it, and its
    `source` unless the config says `map_rows`; with `always` it gets `map_rows` if that is legal. With
    `always` all products that can have their rows in order.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target: cpu, sm_80, sm_90a or sm_100a">,
    PartOption,
    Option<"always", "always", "bool", "false", "wherever it can be, whatever it takes">,
    ListOption<"configs", "configs", "std::string", "configs that were forced: KERNEL[@MIN-MAX]:TEXT">];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def TileSplitHeavyPass : Pass<"tile-split-heavy", "::mlir::ModuleOp"> {
  let summary = "a launch of their own for groups with many rows";
  let description = [{
    A config that suits experts which are about equally likely may have low tiles; where most tokens go to a few
    experts, those want high ones. Each launch of such a grouped product gets one behind it, of a copy of its
    kernel (`@experts_hidden_heavy_t8192`), for the groups with `min_group_rows` or more, and keeps the others
    (`max_group_rows`). The product's schedule says from how many rows on, in which config, and whether that pays:
    whether the model expects such groups to take less time, and a launch that finds none little beside the
    product at the fewest tokens of its `load`. Both launches write rows of one result. Requires a `config` on
    each phase and a `load` on the kernel; changes no number.

    `configs` are those that were forced (`tile-assign-config`): a product that has one keeps all groups, unless
    one is forced under the name of the copy, with the range or without; then it is split in any case.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target: cpu, sm_80, sm_90a or sm_100a">,
    PartOption,
    ListOption<"configs", "configs", "std::string", "configs that were forced: KERNEL[@MIN-MAX]:TEXT">];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def TileCountIdsPass : Pass<"tile-count-ids", "::mlir::ModuleOp"> {
  let summary = "let products count ids instead of reading offsets";
  let description = [{
    Gives grouped products `ids`, so that they know their groups and can copy weights before the launches
    before them have ended: a product's schedule has to emit that, and in all of its launches its offsets
    come from a `tile.rank` over the same ids, which are an input of the caller's that no launch writes,
    without `num_valid_tokens`. Each CTA reads all ids, so there may be `most` of them, at the highest
    token count of a variant. The launches get the ids as one more of their `ins`. A product of groups with
    `min_group_rows` alone gets none: mostly it has nothing to copy early. Requires a `config` on each phase;
    changes no number.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target: cpu, sm_80, sm_90a or sm_100a">,
    PartOption,
    Option<"most", "most", "int64_t", "8192", "the most ids that each CTA counts">];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def TileJoinProductsPass : Pass<"tile-join-products", "::mlir::ModuleOp"> {
  let summary = "let two products be one kernel";
  let description = [{
    Makes one `resident` kernel and launch of two grouped products that follow each other, the second on the
    results of the first and with the same offsets: weights of the second arrive while the last tiles of the
    first are multiplied, and there is one launch less. Their schedule chooses configs that go together, and
    says whether that is expected to take less time than two launches do. The first `signals` and the second
    `awaits`, by a counter that the `tile.rank` before them sets to 0 (one more of its launches' `outs`, in a
    slot of its own). What the first reads gets a slot of its own too, if the second would write there.
    Where that is so of one or two tokens, but not of all that the variant is for, and saves 1.05 % of their
    time, the variant is cut there.
    Where `tile-permute-rows` has brought the first one's rows into order, both stay apart: such rows are for tensor
    maps, which the first one of a kernel has none of; so do products of some groups alone (`tile-split-heavy`).
    Requires a `config` on each phase; changes no number.

    `configs` are those that were forced (`tile-assign-config`): products that have one keep it, and are
    joined if they can be.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target: cpu, sm_80, sm_90a or sm_100a">,
    PartOption,
    ListOption<"configs", "configs", "std::string", "configs that were forced: KERNEL[@MIN-MAX]:TEXT">];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def TileQueueTilesPass : Pass<"tile-queue-tiles", "::mlir::ModuleOp"> {
  let summary = "give products a counter of the tiles to take next";
  let description = [{
    Gives products whose `config` says `queue` their `tickets`: a counter that the `tile.rank` that writes
    their offsets sets to 0 (one more of its launches' `outs`, in a slot of its own, the same for all
    products of a run), as one more of the `outs` of their launches. Where no such launch comes before on
    the same stream, the `config` says `queue` no more, so that heights of tiles suit a fixed order. Runs
    after `tile-join-products`, whose kernels have no queue. Changes no number.
  }];
  let options = [Option<"target", "target", "std::string", "\"cpu\"",
                        "the target: cpu, sm_80, sm_90a or sm_100a">,
                 PartOption];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def TileSplitRankingPass : Pass<"tile-split-ranking", "::mlir::ModuleOp"> {
  let summary = "let a launch count slots before they are ranked";
  let description = [{
    Puts a launch of a `tile.count_slots` in front of those of a `tile.rank` that have more than `most` slots, and
    gives the ranking its `counts`: CTAs that rank many slots then need not count all of them each. A variant
    whose token counts lie on both sides is split in two; if the ranking's kernel is launched with fewer slots
    too, those with more have a copy (`@permute_by_counts`). The counts (`permute_counts`, as the kernel that
    makes them) are one more buffer, in a slot of its own, and one more of the launches' `ins`. The chunks are
    those that the config of the ranking has; fewer tokens each where the launch before routes them, which can
    count them too (`tile-fuse-routing`), unless the config is among the `configs` that were forced. The
    ranking's schedule has to read counts, and says whether that can pay (not of more experts than a chunk has
    slots). Requires a `config` on each phase; changes no number. Runs after the passes that look for rankings.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target: cpu, sm_80, sm_90a or sm_100a">,
    PartOption,
    Option<"most", "most", "int64_t", "::moec::kSplitRankingSlots",
           "the most slots that one launch ranks">,
    Option<"mostRouted", "most-routed", "int64_t", "::moec::kSplitRoutedSlots",
           "the same where the launch before routes their tokens">,
    ListOption<"configs", "configs", "std::string", "configs that were forced: KERNEL[@MIN-MAX]:TEXT">];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def TileFuseRoutingPass : Pass<"tile-fuse-routing", "::mlir::ModuleOp"> {
  let summary = "let the launch that routes tokens count or rank their slots";
  let description = [{
    Makes a launch of a `tile.top_k` and the one behind it one launch, of a kernel with both phases
    (`@route_0_route_1`), if a CTA needs just its own share of the first for its share of the second: where
    that is a `tile.count_slots`, each CTA counts the slots of the tokens that it routes; where it is a
    `tile.rank` of up to `most` slots, and of 32 tokens, one CTA does both. A variant whose token counts lie on
    both sides of that is split in two; such a kernel has a `load` that says so. The phases get configs that
    agree (docs/gpu.md). `configs` are those that were forced (`tile-assign-config`): a phase that has one stays alone.
    Requires a `config` on each phase; changes no number. Runs after `tile-split-ranking`.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target: cpu, sm_80, sm_90a or sm_100a">,
    PartOption,
    Option<"most", "most", "int64_t", "::moec::kFusedRankingSlots",
           "the most slots that a CTA ranks whose tokens it routes">,
    ListOption<"configs", "configs", "std::string", "configs that were forced: KERNEL[@MIN-MAX]:TEXT">];
  let dependentDialects = ["::moec::tile::TileDialect", "::moec::plan::PlanDialect"];
}

def TileQuantizeAheadPass : Pass<"tile-quantize-ahead", "::mlir::ModuleOp"> {
  let summary = "let the launch that routes few tokens quantize them while it waits";
  let description = [{
    Makes a launch that quantizes what no launch before it touches, such as hidden states, and the one right
    before it, which routes and ranks in one CTA (`tile-fuse-routing`), one launch, of a kernel that quantizes
    first (`@hidden_quantized_route_0_route_1`): CTAs do that while others still make logits, the first one then
    waits for these, and the product behind waits for one launch less. Only where the schedule that routes waits by itself, not at
    the kernel's entry (docs/gpu.md). `configs` are those that were forced (`tile-assign-config`): what has one
    stays alone. Requires a `config` on each phase; changes no number. Runs after `tile-fuse-routing`.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"",
           "the target: cpu, sm_80, sm_90a or sm_100a">,
    PartOption,
    ListOption<"configs", "configs", "std::string", "configs that were forced: KERNEL[@MIN-MAX]:TEXT">];
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
    that is not dependent. It reads nothing that they write, and writes nothing that they touch, nor a
    slot of the workspace that they use, nor a tensor of the caller's. Such a kernel waits at its end:
    who waits for it relies on all before it to have ended. A kernel that quantizes and then routes does the
    first `ahead` if that much is independent. Runs after `plan-overlap-launches`.
  }];
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
    In a kernel with the attribute `moec.independent` every access passes; in one with `moec.ahead` those do
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
