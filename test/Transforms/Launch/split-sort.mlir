// Sorts whose slots are counted before.
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=split-sort target=sm_90a set=split-sort.most=16,split-sort.most-routed=2048" | FileCheck %s
// A second run does not split again.
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=split-sort target=sm_90a set=split-sort.most=16,split-sort.most-routed=2048" -o %t.once
// RUN: moe-opt %t.once --split-input-file --tile-rewrite-launches="only=split-sort target=sm_90a set=split-sort.most=16,split-sort.most-routed=2048" | diff - %t.once
// Few slots are sorted in one launch unless an option says otherwise, and any number on the CPU.
// RUN: moe-opt %s --split-input-file -o %t.before
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=split-sort target=sm_90a" | diff - %t.before
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=split-sort set=split-sort.most=0" | diff - %t.before
// RUN: not moe-opt %s --split-input-file --tile-rewrite-launches="only=split-sort target=sm_70" 2>&1 | FileCheck %s --check-prefix=TARGET
// TARGET: tile-rewrite-launches: target 'sm_70' is unknown; accepted are cpu, sm_80, sm_90a, sm_100a
// RUN: not moe-opt %s --split-input-file --tile-rewrite-launches="only=split-sort target=sm_80 set=split-sort.most=-1" 2>&1 | FileCheck %s --check-prefix=MOST
// MOST: tile-rewrite-launches: 'split-sort.most=-1': give an integer of at least 0
// RUN: not moe-opt %s --split-input-file --tile-rewrite-launches="only=split-sort target=sm_80 set=split-sort.most-routed=-1" 2>&1 | FileCheck %s --check-prefix=ROUTED
// ROUTED: tile-rewrite-launches: 'split-sort.most-routed=-1': give an integer of at least 0

// More than 8 tokens with two slots each: a range ends there, and later ones have other kernels and
// share one buffer.
//  CHECK-LABEL: plan.program @layer
//        CHECK: plan.buffer "row_weight" slot 3
//   CHECK-NEXT: %[[COUNTS:[a-z_]+]] = plan.buffer "rank_counts" slot 4 : memref<128x3xi32>
//   CHECK-NEXT: plan.variant tokens 0 to 4 {
//   CHECK-NEXT: plan.launch @rank ins(%{{[a-z_]+}}, %{{[a-z_]+}}, %{{[a-z_]+}} :
//   CHECK-NEXT: }
//   CHECK-NEXT: plan.variant tokens 5 to 8 {
//   CHECK-NEXT: plan.launch @rank ins(%{{[a-z_]+}}, %{{[a-z_]+}}, %{{[a-z_]+}} :
//   CHECK-NEXT: }
//   CHECK-NEXT: plan.variant tokens 9 to 12 {
//   CHECK-NEXT: plan.launch @rank_counts ins(%topk_ids, %num_valid_tokens : memref<?x2xi32>, memref<1xi32>) outs(%[[COUNTS]] : memref<128x3xi32>)
//   CHECK-NEXT: plan.launch @rank_by_counts ins(%topk_ids, %topk_weights, %num_valid_tokens, %[[COUNTS]] :
//   CHECK-NEXT: }
//   CHECK-NEXT: plan.variant tokens 13 to 16 {
//   CHECK-NEXT: plan.launch @rank_counts ins(%topk_ids, %num_valid_tokens : {{.*}}) outs(%[[COUNTS]] :
//   CHECK-NEXT: plan.launch @rank_by_counts ins(%topk_ids, %topk_weights, %num_valid_tokens, %[[COUNTS]] :
//   CHECK-NEXT: }
// The chunks are those of the sort.
//        CHECK: tile.kernel @rank_counts(%[[I:.*]]: memref<?x2xi32>, %[[V:.*]]: memref<1xi32>, %[[C:.*]]: memref<128x3xi32>, %tokens: i64)
//   CHECK-SAME: block = 512 : i64, grid = #plan.expr<"min(ceildiv(tokens, 4), 128)">, shared = 0 : i64
//   CHECK-NEXT: tile.count_slots tokens(%tokens) ids(%[[I]] : memref<?x2xi32>) num_valid_tokens(%[[V]] : memref<1xi32>) outs(%[[C]] : memref<128x3xi32>)
//   CHECK-SAME: {chunk_tokens = 4 : i64, config = #tile.gpu_count_slots<threads = 512, experts_at_once = 3>, local_experts = array<i64: 7, 0, 3>, num_experts = 8 : i64}
//   CHECK-NEXT: tile.return
//        CHECK: tile.kernel @rank(
//    CHECK-NOT: counts
//        CHECK: tile.kernel @rank_by_counts(%arg0: memref<?x2xi32>, %arg1: memref<?x2xf32>, %arg2: memref<1xi32>, %[[C:arg3]]: memref<128x3xi32>, %arg4: memref<4xi32>,
//   CHECK-NEXT: tile.sort_by_expert {{.*}} num_valid_tokens(%arg2 : memref<1xi32>) counts(%[[C]] : memref<128x3xi32>) outs(%arg4,
//   CHECK-SAME: counter(%arg8 : memref<1xi32>) {chunk_tokens = 4 : i64, config = #tile.gpu_sort_by_expert<threads = 64, tokens_per_cta = 4, experts_at_once = 3>, local_experts = array<i64: 7, 0, 3>,
plan.program @layer max_tokens 16 {
  %i = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x2xi32>
  %r = plan.tensor input "topk_weights" rows <"tokens"> : memref<?x2xf32>
  %v = plan.tensor input "num_valid_tokens" : memref<1xi32>
  %p = plan.tensor output "position" rows <"tokens"> : memref<?x2xi32>
  %o = plan.buffer "expert_offsets" slot 0 : memref<4xi32>
  %c = plan.buffer "counter" slot 1 : memref<1xi32>
  %s = plan.buffer "source" slot 2 rows <"tokens * 2"> : memref<?xi32>
  %w = plan.buffer "row_weight" slot 3 rows <"tokens * 2"> : memref<?x1xf32>
  plan.variant tokens 0 to 4 {
    plan.launch @rank ins(%i, %r, %v : memref<?x2xi32>, memref<?x2xf32>, memref<1xi32>)
        outs(%o, %p, %s, %w, %c : memref<4xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>, memref<1xi32>)
  }
  plan.variant tokens 5 to 12 {
    plan.launch @rank ins(%i, %r, %v : memref<?x2xi32>, memref<?x2xf32>, memref<1xi32>)
        outs(%o, %p, %s, %w, %c : memref<4xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>, memref<1xi32>)
  }
  plan.variant tokens 13 to 16 {
    plan.launch @rank ins(%i, %r, %v : memref<?x2xi32>, memref<?x2xf32>, memref<1xi32>)
        outs(%o, %p, %s, %w, %c : memref<4xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>, memref<1xi32>)
  }
}
tile.kernel @rank(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %v: memref<1xi32>, %o: memref<4xi32>,
    %p: memref<?x2xi32>, %s: memref<?xi32>, %w: memref<?x1xf32>, %c: memref<1xi32>, %t: i64)
    attributes {block = 64 : i64, grid = #plan.expr<"max(min(ceildiv(tokens, 4), 128), 1)">, shared = 0 : i64} {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>) num_valid_tokens(%v : memref<1xi32>)
      outs(%o, %p, %s, %w : memref<4xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) counter(%c : memref<1xi32>)
      {config = #tile.gpu_sort_by_expert<threads = 64, tokens_per_cta = 4, experts_at_once = 3>, num_experts = 8 : i64,
       local_experts = array<i64: 7, 0, 3>}
  tile.return
}

// -----

// All launches have many slots: the kernel itself gets the counts. Two sorts with different limits split a range
// twice; launches on another stream have other counts.
//  CHECK-LABEL: plan.program @twice
//        CHECK: %[[COUNTS:[a-z_]+]] = plan.buffer "always_counts" : memref<128x8xi32>
//   CHECK-NEXT: %[[OTHER:[a-z_0-9]+]] = plan.buffer "always_counts_stream1" : memref<128x8xi32>
//   CHECK-NEXT: %[[LATER:[a-z_]+]] = plan.buffer "later_counts" : memref<128x8xi32>
//        CHECK: plan.variant tokens 0 to 0 {
//   CHECK-NEXT: }
//   CHECK-NEXT: plan.variant tokens 1 to 4 {
//   CHECK-NEXT: plan.launch @always_counts ins(%{{[a-z_]+}} : memref<?x20xi32>) outs(%[[COUNTS]] : memref<128x8xi32>)
//   CHECK-NEXT: plan.launch @always ins({{.*}}, %[[COUNTS]] :
//   CHECK-NEXT: plan.record
//   CHECK-NEXT: plan.wait
//   CHECK-NEXT: plan.launch @always_counts stream 1 ins(%{{[a-z_]+}} : memref<?x20xi32>) outs(%[[OTHER]] : memref<128x8xi32>)
//   CHECK-NEXT: plan.launch @always stream 1 ins({{.*}}, %[[OTHER]] :
//   CHECK-NEXT: plan.record
//   CHECK-NEXT: plan.wait
//   CHECK-NEXT: plan.launch @later ins(%{{[a-z_]+}}, %{{[a-z_]+}} : memref<?x4xi32>, memref<?x4xf32>)
//   CHECK-NEXT: }
//   CHECK-NEXT: plan.variant tokens 5 to 16 {
//        CHECK: plan.launch @later_counts
//   CHECK-NEXT: plan.launch @later_by_counts ins({{.*}}, %[[LATER]] :
//        CHECK: tile.kernel @always_counts(
//        CHECK: tile.kernel @always(
//   CHECK-NEXT: tile.sort_by_expert {{.*}} counts(
//        CHECK: tile.kernel @later_counts(
//        CHECK: tile.kernel @later(
//    CHECK-NOT: counts(
//        CHECK: tile.kernel @later_by_counts(
//   CHECK-NEXT: tile.sort_by_expert {{.*}} counts(
plan.program @twice max_tokens 16 {
  %i = plan.tensor input "ids" rows <"tokens"> : memref<?x20xi32>
  %r = plan.tensor input "weights" rows <"tokens"> : memref<?x20xf32>
  %j = plan.tensor input "later_ids" rows <"tokens"> : memref<?x4xi32>
  %q = plan.tensor input "later_weights" rows <"tokens"> : memref<?x4xf32>
  %o = plan.buffer "o" : memref<9xi32>
  %p = plan.buffer "p" rows <"tokens"> : memref<?x20xi32>
  %s = plan.buffer "s" rows <"tokens * 20"> : memref<?xi32>
  %w = plan.buffer "w" rows <"tokens * 20"> : memref<?x1xf32>
  %o1 = plan.buffer "o1" : memref<9xi32>
  %p1 = plan.buffer "p1" rows <"tokens"> : memref<?x20xi32>
  %s1 = plan.buffer "s1" rows <"tokens * 20"> : memref<?xi32>
  %w1 = plan.buffer "w1" rows <"tokens * 20"> : memref<?x1xf32>
  %p2 = plan.buffer "p2" rows <"tokens"> : memref<?x4xi32>
  plan.variant tokens 0 to 0 {
  }
  plan.variant tokens 1 to 16 {
    plan.launch @always ins(%i, %r : memref<?x20xi32>, memref<?x20xf32>)
        outs(%o, %p, %s, %w : memref<9xi32>, memref<?x20xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.record event 0 stream 0
    plan.wait event 0 stream 1
    plan.launch @always stream 1 ins(%i, %r : memref<?x20xi32>, memref<?x20xf32>)
        outs(%o1, %p1, %s1, %w1 : memref<9xi32>, memref<?x20xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.record event 1 stream 1
    plan.wait event 1 stream 0
    plan.launch @later ins(%j, %q : memref<?x4xi32>, memref<?x4xf32>)
        outs(%o, %p2, %s, %w : memref<9xi32>, memref<?x4xi32>, memref<?xi32>, memref<?x1xf32>)
  }
}
tile.kernel @always(%i: memref<?x20xi32>, %r: memref<?x20xf32>, %o: memref<9xi32>,
    %p: memref<?x20xi32>, %s: memref<?xi32>, %w: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x20xi32>, memref<?x20xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x20xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 1024, tokens_per_cta = 51, experts_at_once = 8>, num_experts = 8 : i64}
  tile.return
}
tile.kernel @later(%i: memref<?x4xi32>, %r: memref<?x4xf32>, %o: memref<9xi32>,
    %p: memref<?x4xi32>, %s: memref<?xi32>, %w: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x4xi32>, memref<?x4xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x4xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 1024, tokens_per_cta = 256, experts_at_once = 8>, num_experts = 8 : i64}
  tile.return
}

// -----

// More counts than slots: one launch sorts any number.
//  CHECK-LABEL: plan.program @many_experts
//    CHECK-NOT: counts
plan.program @many_experts max_tokens 16 {
  %i = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x2xi32>
  %r = plan.tensor input "topk_weights" rows <"tokens"> : memref<?x2xf32>
  %p = plan.tensor output "position" rows <"tokens"> : memref<?x2xi32>
  %o = plan.buffer "expert_offsets" slot 0 : memref<1026xi32>
  %s = plan.buffer "source" slot 1 rows <"tokens * 2"> : memref<?xi32>
  %w = plan.buffer "row_weight" slot 2 rows <"tokens * 2"> : memref<?x1xf32>
  plan.variant tokens 0 to 16 {
    plan.launch @rank ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%o, %p, %s, %w : memref<1026xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
  }
}
tile.kernel @rank(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<1026xi32>, %p: memref<?x2xi32>,
    %s: memref<?xi32>, %w: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %w : memref<1026xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 1024, tokens_per_cta = 512, experts_at_once = 1025>, num_experts = 1025 : i64}
  tile.return
}

// -----

// The launch before routes the tokens and can count their slots: the limit is lower, and chunks are
// smaller.
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=split-sort target=sm_90a set=split-sort.most=1000,split-sort.most-routed=16" | FileCheck %s --check-prefix=FUSABLE
// A forced config keeps its chunks.
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=split-sort target=sm_90a configs=rank:tokens_per_cta=512 set=split-sort.most=16,split-sort.most-routed=0" | FileCheck %s --check-prefix=FORCED
//   FORCED-LABEL: plan.program @routed
//         FORCED: plan.variant tokens 9 to 16 {
//         FORCED: chunk_tokens = 512 : i64, config = #tile.gpu_sort_by_expert<threads = 1024, tokens_per_cta = 512, experts_at_once = 8>
//  FUSABLE-LABEL: plan.program @routed
//        FUSABLE: plan.variant tokens 0 to 8 {
//        FUSABLE: plan.launch @rank ins(
//        FUSABLE: plan.variant tokens 9 to 16 {
//   FUSABLE-NEXT: plan.launch @route ins(
//   FUSABLE-NEXT: plan.launch @rank_counts ins(
//   FUSABLE-NEXT: plan.launch @rank_by_counts ins(
//        FUSABLE: tile.kernel @rank_counts(
//        FUSABLE: chunk_tokens = 16 : i64
//        FUSABLE: tile.kernel @rank_by_counts(
//        FUSABLE: chunk_tokens = 16 : i64, config = #tile.gpu_sort_by_expert<threads = 512, tokens_per_cta = 16, experts_at_once = 8>
plan.program @routed max_tokens 16 {
  %l = plan.tensor input "router_logits" rows <"tokens"> : memref<?x8xf32>
  %p = plan.tensor output "position" rows <"tokens"> : memref<?x2xi32>
  %i = plan.buffer "topk_ids" slot 0 rows <"tokens"> : memref<?x2xi32>
  %r = plan.buffer "topk_weights" slot 1 rows <"tokens"> : memref<?x2xf32>
  %o = plan.buffer "expert_offsets" slot 2 : memref<9xi32>
  %s = plan.buffer "source" slot 3 rows <"tokens * 2"> : memref<?xi32>
  %w = plan.buffer "row_weight" slot 4 rows <"tokens * 2"> : memref<?x1xf32>
  plan.variant tokens 0 to 16 {
    plan.launch @route ins(%l : memref<?x8xf32>) outs(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
    plan.launch @rank ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
  }
}
tile.kernel @route(%l: memref<?x8xf32>, %i: memref<?x2xi32>, %r: memref<?x2xf32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x8xf32>) outs(%i, %r : memref<?x2xi32>, memref<?x2xf32>) <top_k = 2>
      {config = #tile.gpu_top_k<threads = 128, tokens_per_cta = 4>}
  tile.return
}
tile.kernel @rank(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<9xi32>, %p: memref<?x2xi32>,
    %s: memref<?xi32>, %w: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 1024, tokens_per_cta = 512, experts_at_once = 8>, num_experts = 8 : i64}
  tile.return
}
