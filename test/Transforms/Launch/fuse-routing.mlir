// Routings that count or sort the slots that they choose.
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=fuse-routing target=sm_90a set=fuse-routing.most=32" | FileCheck %s
// A second run changes nothing.
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=fuse-routing target=sm_90a set=fuse-routing.most=32" -o %t.once
// RUN: moe-opt %t.once --split-input-file --tile-rewrite-launches="only=fuse-routing target=sm_90a set=fuse-routing.most=32" | diff - %t.once
// Phases with forced configs are not fused, nor any on the CPU.
// RUN: moe-opt %s --split-input-file -o %t.before
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=fuse-routing target=sm_90a configs=route_0:tokens_per_cta=4,rank:tokens_per_cta=8" | diff - %t.before
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=fuse-routing" | diff - %t.before
// RUN: not moe-opt %s --split-input-file --tile-rewrite-launches="only=fuse-routing target=sm_70" 2>&1 | FileCheck %s --check-prefix=TARGET
// TARGET: tile-rewrite-launches: target 'sm_70' is unknown; accepted are cpu, sm_80, sm_90a, sm_100a
// RUN: not moe-opt %s --split-input-file --tile-rewrite-launches="only=fuse-routing target=sm_80 set=fuse-routing.most=-1" 2>&1 | FileCheck %s --check-prefix=MOST
// MOST: tile-rewrite-launches: 'fuse-routing.most=-1': give an integer of at least 0

// Up to 32 slots are sorted by the CTA that routes: 16 tokens with two each. A range ends there.
// The logits get another slot than the results of the sort, which is written while they are read.
//  CHECK-LABEL: plan.program @layer
//        CHECK: plan.buffer "router_logits" slot 6
//        CHECK: plan.buffer "row_weight" slot 4
//        CHECK: plan.variant tokens 0 to 16 {
//   CHECK-NEXT: plan.launch @logits
//   CHECK-NEXT: plan.launch @route_0_rank ins(%router_logits, %num_valid_tokens : memref<?x8xf32>, memref<1xi32>)
//   CHECK-SAME: outs(%topk_ids, %topk_weights, %expert_offsets, %position, %source, %row_weight :
//   CHECK-NEXT: }
//   CHECK-NEXT: plan.variant tokens 17 to 48 {
//   CHECK-NEXT: plan.launch @logits
//   CHECK-NEXT: plan.launch @route_0 ins(%router_logits, %num_valid_tokens :
//   CHECK-NEXT: plan.launch @rank ins(%topk_ids, %topk_weights, %num_valid_tokens :
//   CHECK-NEXT: }
// Slots that are counted before their sort are counted by the CTA that routes, too.
//   CHECK-NEXT: plan.variant tokens 49 to 64 {
//   CHECK-NEXT: plan.launch @logits
//   CHECK-NEXT: plan.launch @route_0_rank_counts ins(%router_logits, %num_valid_tokens : memref<?x8xf32>, memref<1xi32>)
//   CHECK-SAME: outs(%topk_ids, %topk_weights, %rank_counts :
//   CHECK-NEXT: plan.launch @rank_by_counts
//   CHECK-NEXT: }
// All warps of the single CTA route, for the most tokens of the load.
//        CHECK: tile.kernel @route_0_rank(%arg0: memref<?x8xf32>, %arg1: memref<1xi32>, %arg2: memref<?x2xi32>, %arg3: memref<?x2xf32>, %arg4: memref<9xi32>, %arg5: memref<?x2xi32>, %arg6: memref<?xi32>, %arg7: memref<?x1xf32>, %tokens: i64)
//   CHECK-SAME: block = 512 : i64
//   CHECK-SAME: load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>
//   CHECK-NEXT: tile.top_k tokens(%tokens) logits(%arg0 : memref<?x8xf32>) num_valid_tokens(%arg1 : memref<1xi32>) outs(%arg2, %arg3 :
//   CHECK-SAME: config = #tile.gpu_top_k<threads = 512, tokens_per_cta = 16>
//   CHECK-NEXT: tile.sort_by_expert tokens(%tokens) ids(%arg2, %arg3 : memref<?x2xi32>, memref<?x2xf32>) num_valid_tokens(%arg1 : memref<1xi32>)
//   CHECK-SAME: outs(%arg4, %arg5, %arg6, %arg7 :
//   CHECK-SAME: config = #tile.gpu_sort_by_expert<threads = 512, tokens_per_cta = 16, experts_at_once = 8>
//   CHECK-NEXT: tile.return
// Both phases have equal chunks.
//        CHECK: tile.kernel @route_0_rank_counts(
//   CHECK-SAME: block = 1024 : i64, grid = #plan.expr<"min(ceildiv(tokens, 4), 128)">
//   CHECK-NEXT: tile.top_k {{.*}}config = #tile.gpu_top_k<threads = 1024, tokens_per_cta = 4, max_ctas = 128>
//   CHECK-NEXT: tile.count_slots {{.*}} {chunk_tokens = 4 : i64, config = #tile.gpu_count_slots<threads = 1024, experts_at_once = 8>
// Kernels without launches are erased.
//        CHECK: tile.kernel @route_0(
//    CHECK-NOT: tile.kernel @rank_counts(
//        CHECK: tile.kernel @rank(
//        CHECK: tile.kernel @rank_by_counts(
plan.program @layer max_tokens 64 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x64xbf16>
  %g = plan.tensor weight "gate" : memref<8x64xbf16>
  %v = plan.tensor input "num_valid_tokens" : memref<1xi32>
  %p = plan.tensor output "position" rows <"tokens"> : memref<?x2xi32>
  %l = plan.buffer "router_logits" slot 4 rows <"tokens"> : memref<?x8xf32>
  %i = plan.buffer "topk_ids" slot 0 rows <"tokens"> : memref<?x2xi32>
  %r = plan.buffer "topk_weights" slot 1 rows <"tokens"> : memref<?x2xf32>
  %o = plan.buffer "expert_offsets" slot 2 : memref<9xi32>
  %s = plan.buffer "source" slot 3 rows <"tokens * 2"> : memref<?xi32>
  %w = plan.buffer "row_weight" slot 4 rows <"tokens * 2"> : memref<?x1xf32>
  %c = plan.buffer "rank_counts" slot 5 : memref<128x8xi32>
  plan.variant tokens 0 to 48 {
    plan.launch @logits ins(%x, %g : memref<?x64xbf16>, memref<8x64xbf16>) outs(%l : memref<?x8xf32>)
    plan.launch @route_0 ins(%l, %v : memref<?x8xf32>, memref<1xi32>) outs(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
    plan.launch @rank ins(%i, %r, %v : memref<?x2xi32>, memref<?x2xf32>, memref<1xi32>)
        outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
  }
  plan.variant tokens 49 to 64 {
    plan.launch @logits ins(%x, %g : memref<?x64xbf16>, memref<8x64xbf16>) outs(%l : memref<?x8xf32>)
    plan.launch @route_0 ins(%l, %v : memref<?x8xf32>, memref<1xi32>) outs(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
    plan.launch @rank_counts ins(%i, %v : memref<?x2xi32>, memref<1xi32>) outs(%c : memref<128x8xi32>)
    plan.launch @rank_by_counts ins(%i, %r, %v, %c : memref<?x2xi32>, memref<?x2xf32>, memref<1xi32>, memref<128x8xi32>)
        outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
  }
}
tile.kernel @logits(%x: memref<?x64xbf16>, %g: memref<8x64xbf16>, %l: memref<?x8xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %g : memref<?x64xbf16>, memref<8x64xbf16>) outs(%l : memref<?x8xf32>)
  tile.return
}
tile.kernel @route_0(%l: memref<?x8xf32>, %v: memref<1xi32>, %i: memref<?x2xi32>, %r: memref<?x2xf32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x8xf32>) num_valid_tokens(%v : memref<1xi32>)
      outs(%i, %r : memref<?x2xi32>, memref<?x2xf32>) <top_k = 2>
      {config = #tile.gpu_top_k<threads = 128, tokens_per_cta = 4>}
  tile.return
}
tile.kernel @rank_counts(%i: memref<?x2xi32>, %v: memref<1xi32>, %c: memref<128x8xi32>, %t: i64) {
  tile.count_slots tokens(%t) ids(%i : memref<?x2xi32>) num_valid_tokens(%v : memref<1xi32>) outs(%c : memref<128x8xi32>)
      {config = #tile.gpu_count_slots<threads = 256, experts_at_once = 8>, chunk_tokens = 4 : i64, num_experts = 8 : i64}
  tile.return
}
tile.kernel @rank(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %v: memref<1xi32>, %o: memref<9xi32>,
    %p: memref<?x2xi32>, %s: memref<?xi32>, %w: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>) num_valid_tokens(%v : memref<1xi32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 1024, tokens_per_cta = 8, experts_at_once = 8>, num_experts = 8 : i64}
  tile.return
}
tile.kernel @rank_by_counts(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %v: memref<1xi32>, %c: memref<128x8xi32>,
    %o: memref<9xi32>, %p: memref<?x2xi32>, %s: memref<?xi32>, %w: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>) num_valid_tokens(%v : memref<1xi32>)
      counts(%c : memref<128x8xi32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      {chunk_tokens = 4 : i64, config = #tile.gpu_sort_by_expert<threads = 1024, tokens_per_cta = 4, experts_at_once = 8>, num_experts = 8 : i64}
  tile.return
}

// -----

// Not fused: with a launch in between, on different streams, of other ids, or of the caller's ids.
//  CHECK-LABEL: plan.program @apart
//    CHECK-NOT: @route_0_
plan.program @apart max_tokens 4 {
  %l = plan.tensor input "router_logits" rows <"tokens"> : memref<?x8xf32>
  %j = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x2xi32>
  %p = plan.tensor output "position" rows <"tokens"> : memref<?x2xi32>
  %i = plan.buffer "ids" slot 0 rows <"tokens"> : memref<?x2xi32>
  %r = plan.buffer "weights" slot 1 rows <"tokens"> : memref<?x2xf32>
  %o = plan.buffer "expert_offsets" slot 2 : memref<9xi32>
  %s = plan.buffer "source" slot 3 rows <"tokens * 2"> : memref<?xi32>
  %w = plan.buffer "row_weight" slot 4 rows <"tokens * 2"> : memref<?x1xf32>
  %k = plan.buffer "others" slot 5 rows <"tokens"> : memref<?x2xi32>
  %q = plan.buffer "other_weights" slot 6 rows <"tokens"> : memref<?x2xf32>
  plan.variant tokens 0 to 4 {
    plan.launch @route_0 ins(%l : memref<?x8xf32>) outs(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
    plan.launch @rank ins(%j, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @route_0 ins(%l : memref<?x8xf32>) outs(%k, %q : memref<?x2xi32>, memref<?x2xf32>)
    plan.launch @rank ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @route_0 ins(%l : memref<?x8xf32>) outs(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
    plan.record event 0 stream 0
    plan.wait event 0 stream 1
    plan.launch @rank stream 1 ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.record event 1 stream 1
    plan.wait event 1 stream 0
  }
}
tile.kernel @route_0(%l: memref<?x8xf32>, %i: memref<?x2xi32>, %r: memref<?x2xf32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x8xf32>)
      outs(%i, %r : memref<?x2xi32>, memref<?x2xf32>) <top_k = 2>
      {config = #tile.gpu_top_k<threads = 128, tokens_per_cta = 4>}
  tile.return
}
tile.kernel @rank(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<9xi32>,
    %p: memref<?x2xi32>, %s: memref<?xi32>, %w: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 1024, tokens_per_cta = 8, experts_at_once = 8>, num_experts = 8 : i64}
  tile.return
}

// -----

// One token has more slots than a CTA sorts: no range is split.
//  CHECK-LABEL: plan.program @wide
//        CHECK: plan.variant tokens 0 to 4 {
//   CHECK-NEXT: plan.launch @route_0 ins(
//   CHECK-NEXT: plan.launch @rank ins(
//   CHECK-NEXT: }
//   CHECK-NEXT: }
plan.program @wide max_tokens 4 {
  %l = plan.tensor input "router_logits" rows <"tokens"> : memref<?x64xf32>
  %p = plan.tensor output "position" rows <"tokens"> : memref<?x40xi32>
  %i = plan.buffer "ids" slot 0 rows <"tokens"> : memref<?x40xi32>
  %r = plan.buffer "weights" slot 1 rows <"tokens"> : memref<?x40xf32>
  %o = plan.buffer "expert_offsets" slot 2 : memref<65xi32>
  %s = plan.buffer "source" slot 3 rows <"tokens * 40"> : memref<?xi32>
  %w = plan.buffer "row_weight" slot 4 rows <"tokens * 40"> : memref<?x1xf32>
  plan.variant tokens 0 to 4 {
    plan.launch @route_0 ins(%l : memref<?x64xf32>) outs(%i, %r : memref<?x40xi32>, memref<?x40xf32>)
    plan.launch @rank ins(%i, %r : memref<?x40xi32>, memref<?x40xf32>)
        outs(%o, %p, %s, %w : memref<65xi32>, memref<?x40xi32>, memref<?xi32>, memref<?x1xf32>)
  }
}
tile.kernel @route_0(%l: memref<?x64xf32>, %i: memref<?x40xi32>, %r: memref<?x40xf32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x64xf32>)
      outs(%i, %r : memref<?x40xi32>, memref<?x40xf32>) <top_k = 40>
      {config = #tile.gpu_top_k<threads = 128, tokens_per_cta = 4>}
  tile.return
}
tile.kernel @rank(%i: memref<?x40xi32>, %r: memref<?x40xf32>, %o: memref<65xi32>,
    %p: memref<?x40xi32>, %s: memref<?xi32>, %w: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x40xi32>, memref<?x40xf32>)
      outs(%o, %p, %s, %w : memref<65xi32>, memref<?x40xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 1024, tokens_per_cta = 25, experts_at_once = 64>, num_experts = 64 : i64}
  tile.return
}
