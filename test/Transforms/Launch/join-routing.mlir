// Routings that each CTA of the gemms behind them makes for itself.
// RUN: moe-opt %s --tile-specialize=target=sm_90a --tile-assign-config=target=sm_90a -o %t.apart
// RUN: moe-opt %t.apart --tile-rewrite-launches="only=join-products,join-sums,fuse-routing,join-routing target=sm_90a set=join-products.most=8,join-sums.always,join-routing.always" -o %t.once
// RUN: FileCheck %s --input-file=%t.once
// A second run changes nothing.
// RUN: moe-opt %t.once --tile-rewrite-launches="only=join-routing target=sm_90a set=join-routing.always" | diff - %t.once
// Not without the parameter, nor if each buffer keeps its slot.
// RUN: moe-opt %t.apart --tile-rewrite-launches="only=join-products,fuse-routing,join-routing target=sm_90a set=join-products.most=8" --remarks-filter=tile-rewrite-launches -o %t.off 2>&1 | FileCheck %s --check-prefix=WHY
// WHY: [Missed] join-routing | {{.*}} Reason="the time of routing in the gemm's kernel has not been measured; the parameter 'always' joins them"
// RUN: moe-opt %t.apart --tile-rewrite-launches="only=join-products,fuse-routing,join-routing target=sm_90a keep-all set=join-products.most=8,join-routing.always" | FileCheck %s --check-prefix=KEPT
// KEPT-NOT: private_rows
// The counter needs a launch that clears it, which no other schedule of gemms does.
// RUN: moe-opt %s --tile-specialize=target=sm_90a --tile-assign-config="target=sm_90a configs={logits:sm90.gemm block_m=8 block_n=128 stages=4}" --tile-rewrite-launches="only=join-products,fuse-routing,join-routing target=sm_90a set=join-products.most=8,join-routing.always" --remarks-filter=tile-rewrite-launches -o %t.tiles 2>&1 | FileCheck %s --check-prefix=CLEAR
// CLEAR: [Missed] join-routing | {{.*}} Reason="no launch before the routing can clear the counter"
// Sums may stay apart: one CTA stores what they read.
// RUN: moe-opt %t.apart --tile-rewrite-launches="only=join-products,fuse-routing,join-routing target=sm_90a set=join-products.most=8,join-routing.always" | FileCheck %s --check-prefix=APART
// APART: plan.launch @logits
// APART-NEXT: plan.launch @route_0_rank_hidden_out ins
// APART-NEXT: plan.launch @sum ins(%experts_out, %position :

// Memory of each CTA: ids, weights, offsets, position, source, weights of rows; none for the counter.
//  CHECK-LABEL: plan.program @layer
//        CHECK: plan.variant tokens 0 to 2 {
//   CHECK-NEXT: plan.launch @logits_t2 ins(%hidden_states, %gate : {{.*}}) outs(%router_logits, %[[COUNTER:rank_counter]] :
//   CHECK-NEXT: plan.launch @route_0_rank_hidden_out_sum ins(%router_logits, %hidden_states, %experts.w13, %experts.w2 :
//   CHECK-SAME: outs(%topk_ids, %topk_weights, %expert_offsets, %position, %source, %row_weight, %[[COUNTER]], %experts_hidden, %experts_out, %output :
//   CHECK-NEXT: }
//   CHECK-NEXT: plan.variant tokens 3 to 8 {
//   CHECK-NEXT: plan.launch @logits_t8 ins
//   CHECK-NEXT: plan.launch @route_0_rank_hidden_out_sum_0 ins
//   CHECK-NEXT: }
//        CHECK: tile.kernel @logits_t2({{.*}} grid = #plan.expr<"max(
//        CHECK: tile.gemm {{.*}} schedule(cleared = %arg3 : memref<1xi32>)
//        CHECK: tile.kernel @route_0_rank_hidden_out_sum(
//   CHECK-SAME: form = #tile.kernel_form<resident = true>, grid = #plan.expr<"132">
//   CHECK-SAME: load = #tile.load<min_tokens = 0, max_tokens = 2, top_k = 8, experts = 128>
//   CHECK-SAME: private_rows = array<i64: 0, 0, 0, 0, 2, 2, 129, 2, 16, 16, 0, 0, 0, 0>
//   CHECK-NEXT: tile.top_k {{.*}} outs(%arg4, %arg5 : {{.*}}config = #tile.gpu_top_k<threads = 384, tokens_per_cta = 2>
//   CHECK-NEXT: tile.sort_by_expert
//    CHECK-NOT: counter(
//   CHECK-SAME: config = #tile.gpu_sort_by_expert<threads = 384, tokens_per_cta = 2, experts_at_once = 128>
//   CHECK-NEXT: tile.gemm {{.*}} offsets(%arg6 : memref<129xi32>) source(%arg8 : memref<?xi32>) schedule(signals = %arg10 : memref<1xi32>)
//        CHECK: tile.gemm {{.*}} schedule(signals = %arg10 : memref<1xi32>, awaits = %arg10 : memref<1xi32>) rows(%arg9 :
//        CHECK: tile.gather_reduce {{.*}} awaits(%arg10 : memref<1xi32>)
plan.program @layer max_tokens 8 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x4096xbf16>
  %g = plan.tensor weight "gate" : memref<128x4096xbf16>
  %w13 = plan.tensor weight "experts.w13" : memref<128x3072x4096xbf16>
  %w2 = plan.tensor weight "experts.w2" : memref<128x4096x1536xbf16>
  %output = plan.tensor output "output" rows <"tokens"> : memref<?x4096xbf16>
  %l = plan.buffer "router_logits" slot 5 rows <"tokens"> : memref<?x128xf32>
  %i = plan.buffer "topk_ids" slot 4 rows <"tokens"> : memref<?x8xi32>
  %r = plan.buffer "topk_weights" slot 6 rows <"tokens"> : memref<?x8xf32>
  %offsets = plan.buffer "expert_offsets" slot 0 : memref<129xi32>
  %position = plan.buffer "position" slot 1 rows <"tokens"> : memref<?x8xi32>
  %source = plan.buffer "source" slot 2 rows <"tokens * 8"> : memref<?xi32>
  %weight = plan.buffer "row_weight" slot 3 rows <"tokens * 8"> : memref<?x1xf32>
  %h = plan.buffer "experts_hidden" slot 4 rows <"tokens * 8"> : memref<?x1536xbf16>
  %y = plan.buffer "experts_out" slot 5 rows <"tokens * 8"> : memref<?x4096xbf16>
  plan.variant tokens 0 to 8 {
    plan.launch @logits ins(%x, %g : memref<?x4096xbf16>, memref<128x4096xbf16>) outs(%l : memref<?x128xf32>)
    plan.launch @route_0 ins(%l : memref<?x128xf32>) outs(%i, %r : memref<?x8xi32>, memref<?x8xf32>)
    plan.launch @rank ins(%i, %r : memref<?x8xi32>, memref<?x8xf32>)
        outs(%offsets, %position, %source, %weight : memref<129xi32>, memref<?x8xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @hidden ins(%x, %w13, %offsets, %source : memref<?x4096xbf16>, memref<128x3072x4096xbf16>, memref<129xi32>, memref<?xi32>)
        outs(%h : memref<?x1536xbf16>)
    plan.launch @out ins(%h, %w2, %offsets, %weight : memref<?x1536xbf16>, memref<128x4096x1536xbf16>, memref<129xi32>, memref<?x1xf32>)
        outs(%y : memref<?x4096xbf16>)
    plan.launch @sum ins(%y, %position : memref<?x4096xbf16>, memref<?x8xi32>) outs(%output : memref<?x4096xbf16>)
  }
}
tile.kernel @logits(%x: memref<?x4096xbf16>, %g: memref<128x4096xbf16>, %l: memref<?x128xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %g : memref<?x4096xbf16>, memref<128x4096xbf16>) outs(%l : memref<?x128xf32>)
  tile.return
}
tile.kernel @route_0(%l: memref<?x128xf32>, %i: memref<?x8xi32>, %r: memref<?x8xf32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x128xf32>) outs(%i, %r : memref<?x8xi32>, memref<?x8xf32>)
      <top_k = 8, softmax = all, renormalize = true>
  tile.return
}
tile.kernel @rank(%i: memref<?x8xi32>, %r: memref<?x8xf32>, %o: memref<129xi32>, %p: memref<?x8xi32>, %s: memref<?xi32>,
    %w: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x8xi32>, memref<?x8xf32>)
      outs(%o, %p, %s, %w : memref<129xi32>, memref<?x8xi32>, memref<?xi32>, memref<?x1xf32>) {num_experts = 128 : i64}
  tile.return
}
tile.kernel @hidden(%x: memref<?x4096xbf16>, %w: memref<128x3072x4096xbf16>, %o: memref<129xi32>, %s: memref<?xi32>,
    %y: memref<?x1536xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x4096xbf16>, memref<128x3072x4096xbf16>)
      offsets(%o : memref<129xi32>) source(%s : memref<?xi32>) outs(%y : memref<?x1536xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %1 = arith.mulf %g, %u : f32
        tile.yield %1 : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @out(%x: memref<?x1536xbf16>, %w: memref<128x4096x1536xbf16>, %o: memref<129xi32>, %r: memref<?x1xf32>,
    %y: memref<?x4096xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x1536xbf16>, memref<128x4096x1536xbf16>)
      offsets(%o : memref<129xi32>) rows(%r : memref<?x1xf32>) outs(%y : memref<?x4096xbf16>) epilogue {
      ^bb0(%a: f32, %b: f32):
        %1 = arith.mulf %a, %b : f32
        tile.yield %1 : f32
      }
  tile.return
}
tile.kernel @sum(%x: memref<?x4096xbf16>, %p: memref<?x8xi32>, %y: memref<?x4096xbf16>, %t: i64) {
  tile.gather_reduce tokens(%t) ins(%x, %p : memref<?x4096xbf16>, memref<?x8xi32>) outs(%y : memref<?x4096xbf16>)
  tile.return
}
