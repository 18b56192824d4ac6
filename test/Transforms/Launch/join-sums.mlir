// Sums that become a phase of the kernel of the gemm before them.
// RUN: moe-opt %s --tile-specialize=target=sm_90a --tile-assign-config=target=sm_90a -o %t.apart
// RUN: moe-opt %t.apart --tile-rewrite-launches="only=join-products,join-sums target=sm_90a set=join-products.most=8,join-sums.always" -o %t.once
// RUN: FileCheck %s --input-file=%t.once
// A second run changes nothing.
// RUN: moe-opt %t.once --tile-rewrite-launches="only=join-sums target=sm_90a set=join-sums.always" | diff - %t.once
// Without the parameter no sums are joined.
// RUN: moe-opt %t.apart --tile-rewrite-launches="only=join-sums target=sm_90a" --remarks-filter=tile-rewrite-launches -o %t.off 2>&1 | FileCheck %s --check-prefix=WHY
// WHY: [Missed] join-sums | {{.*}} Reason="the time of sums in the gemm's kernel has not been measured; the parameter 'always' joins them"
// RUN: diff %t.off %t.apart
// A gemm alone signals by the tile scheduler's counter, or by its own.
// RUN: moe-opt %t.apart --tile-rewrite-launches="only=dynamic-scheduler,join-sums target=sm_90a set=join-sums.always" | FileCheck %s --check-prefix=ALONE
// ALONE: plan.launch @out_{{.*}}sum ins
// ALONE: tile.kernel @out_{{.*}}form = #tile.kernel_form<resident = true>, grid = #plan.expr<"132">
// ALONE-NEXT: tile.gemm {{.*}} schedule(signals = %[[C:arg[0-9]+]] : memref<1xi32>
// ALONE: tile.gather_reduce {{.*}} awaits(%[[C]] : memref<1xi32>)
// More sums than a warpgroup has threads stay.
// RUN: moe-opt %t.apart --tile-rewrite-launches="only=join-sums target=sm_90a set=join-sums.always" -o %t.joined
// RUN: sed "s/gpu_gather_reduce<columns_per_cta = 1024/gpu_gather_reduce<columns_per_cta = 2048/" %t.apart > %t.wide
// RUN: moe-opt %t.wide --tile-rewrite-launches="only=join-sums target=sm_90a set=join-sums.always" --remarks-filter=tile-rewrite-launches -o %t.left 2>&1 | FileCheck %s --check-prefix=WIDE
// WIDE: [Missed] join-sums | {{.*}} Reason="the sums have more threads than a warpgroup"

//  CHECK-LABEL: plan.program @layer
//        CHECK: %[[COUNTER:route_counter]] = plan.buffer "route_counter"
//        CHECK: plan.launch @route ins
//   CHECK-NEXT: plan.launch @hidden_out_sum ins(%hidden_states, %experts.w13, %expert_offsets, %source, %experts.w2, %row_weight, %position :
//   CHECK-SAME: outs(%experts_hidden, %experts_out, %[[COUNTER]], %output :
//   CHECK-NEXT: }
//        CHECK: tile.kernel @hidden_out_sum({{.*}}, %[[Y:arg8]]: memref<?x4096xbf16>, %[[C:arg9]]: memref<1xi32>, %arg10: memref<?x4096xbf16>, %tokens: i64)
//   CHECK-SAME: form = #tile.kernel_form<resident = true>, grid = #plan.expr<"132">
//        CHECK: tile.gemm {{.*}} schedule(signals = %[[C]] : memref<1xi32>)
//        CHECK: tile.gemm {{.*}} schedule(signals = %[[C]] : memref<1xi32>, awaits = %[[C]] : memref<1xi32>)
//        CHECK: tile.gather_reduce tokens(%tokens) ins(%[[Y]], {{.*}} awaits(%[[C]] : memref<1xi32>) outs(%arg10 :
//    CHECK-NOT: tile.kernel @sum
plan.program @layer max_tokens 8 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x4096xbf16>
  %i = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x8xi32>
  %r = plan.tensor input "topk_weights" rows <"tokens"> : memref<?x8xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<128x3072x4096xbf16>
  %w2 = plan.tensor weight "experts.w2" : memref<128x4096x1536xbf16>
  %output = plan.tensor output "output" rows <"tokens"> : memref<?x4096xbf16>
  %offsets = plan.buffer "expert_offsets" slot 0 : memref<129xi32>
  %position = plan.buffer "position" slot 1 rows <"tokens"> : memref<?x8xi32>
  %source = plan.buffer "source" slot 2 rows <"tokens * 8"> : memref<?xi32>
  %weight = plan.buffer "row_weight" slot 3 rows <"tokens * 8"> : memref<?x1xf32>
  %h = plan.buffer "experts_hidden" slot 4 rows <"tokens * 8"> : memref<?x1536xbf16>
  %y = plan.buffer "experts_out" slot 5 rows <"tokens * 8"> : memref<?x4096xbf16>
  plan.variant tokens 0 to 8 {
    plan.launch @route ins(%i, %r : memref<?x8xi32>, memref<?x8xf32>)
        outs(%offsets, %position, %source, %weight : memref<129xi32>, memref<?x8xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @hidden ins(%x, %w13, %offsets, %source : memref<?x4096xbf16>, memref<128x3072x4096xbf16>, memref<129xi32>, memref<?xi32>)
        outs(%h : memref<?x1536xbf16>)
    plan.launch @out ins(%h, %w2, %offsets, %weight : memref<?x1536xbf16>, memref<128x4096x1536xbf16>, memref<129xi32>, memref<?x1xf32>)
        outs(%y : memref<?x4096xbf16>)
    plan.launch @sum ins(%y, %position : memref<?x4096xbf16>, memref<?x8xi32>) outs(%output : memref<?x4096xbf16>)
  }
}
tile.kernel @route(%i: memref<?x8xi32>, %r: memref<?x8xf32>, %o: memref<129xi32>, %p: memref<?x8xi32>, %s: memref<?xi32>,
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
