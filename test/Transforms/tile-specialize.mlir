// Kernels for ranges of token counts: the best config depends on the number of rows.
// RUN: moe-opt %s --tile-specialize=target=sm_90a | FileCheck %s
// RUN: moe-opt %s --tile-specialize=target=sm_90a --tile-assign-config=target=sm_90a | FileCheck %s --check-prefix=CONFIG
// RUN: moe-opt %s --tile-specialize="target=sm_90a max-ranges=2" | FileCheck %s --check-prefix=TWO
// RUN: moe-opt %s --tile-specialize="target=sm_90a max-ranges=1" | FileCheck %s --check-prefix=ONE
// RUN: moe-opt %s --tile-specialize="target=sm_90a max-kernels=5" | FileCheck %s --check-prefix=FEW
// RUN: moe-opt %s --tile-specialize="target=sm_90a configs={hidden@1-16:block_m=16 block_n=64,out:block_n=64}" | FileCheck %s --check-prefix=FORCED
// RUN: not moe-opt %s --tile-specialize="target=sm_90a configs=hidden" 2>&1 | FileCheck %s --check-prefix=BAD
// BAD: tile-specialize: config 'hidden': write KERNEL:TEXT or KERNEL@MIN-MAX:TEXT
// RUN: moe-opt %s --tile-specialize=target=sm_90a --tile-specialize=target=sm_90a -o %t.twice
// RUN: moe-opt %s --tile-specialize=target=sm_90a -o %t.once && diff %t.once %t.twice
// RUN: moe-opt %s -o %t.same
// RUN: moe-opt %s --tile-specialize=target=cpu | diff - %t.same
// RUN: moe-opt %s --tile-specialize=target=sm_80 | diff - %t.same
// RUN: not moe-opt %s --tile-specialize=target=sm_70 2>&1 | FileCheck %s --check-prefix=TARGET
// TARGET: tile-specialize: target 'sm_70' is unknown; accepted are cpu, sm_80, sm_90a, sm_100a

// Ranges are adjacent. A kernel has a copy per config, for one range or several; buffers and kernels without a choice
// are shared.
//  CHECK-LABEL: plan.program @layer
//        CHECK: plan.variant tokens 0 to [[#FIRST:]] {
//   CHECK-NEXT: plan.launch @route
//   CHECK-NEXT: plan.launch @hidden_t[[#HIDDEN:]] ins
//        CHECK: plan.launch @out
//   CHECK-NEXT: plan.launch @sum ins
//        CHECK: plan.variant tokens [[#FIRST+1]] to
//        CHECK: plan.launch @hidden_t16384 ins
//        CHECK: plan.launch @out_t16384 ins
//    CHECK-NOT: plan.variant
// Each copy has a load.
//        CHECK: tile.kernel @hidden_t[[#HIDDEN]](
//   CHECK-SAME: load = #tile.load<min_tokens = 0, max_tokens = [[#HIDDEN]], top_k = 8, experts = 128>
//        CHECK: tile.kernel @hidden_t16384(
//   CHECK-SAME: max_tokens = 16384, top_k = 8, experts = 128>
//    CHECK-NOT: tile.kernel @hidden(
// Configs of the copies differ: one row for each of few experts needs no large BLOCK_M.
//       CONFIG: tile.kernel @hidden_t
//       CONFIG: block_m = [{{[0-9]{1,2}(, [0-9]{1,2})*}}],
//       CONFIG: tile.kernel @hidden_t16384
//       CONFIG: block_m = [{{[^]]*(128|144|160)}}], {{.*}}, dynamic_scheduler>

//          TWO: plan.variant tokens 0 to
//          TWO: plan.variant tokens {{.*}} to 16384
//      TWO-NOT: plan.variant

// A single range: kernels stay, with a load.
//          ONE: plan.variant tokens 0 to 16384
//          ONE: plan.launch @hidden ins
//      ONE-NOT: plan.variant
//          ONE: tile.kernel @hidden(
//     ONE-SAME: load = #tile.load<min_tokens = 0, max_tokens = 16384, top_k = 8, experts = 128>

// With five kernels, one more than without ranges, the gemm that loses most gets a second range.
//          FEW: plan.variant tokens 0 to [[#FIRST:]] {
//          FEW: plan.launch @hidden_t[[#FIRST]] ins
//          FEW: plan.launch @out ins
//          FEW: plan.variant tokens [[#FIRST+1]] to 16384 {
//          FEW: plan.launch @hidden_t16384 ins
//          FEW: plan.launch @out ins
//      FEW-NOT: plan.variant
//          FEW: tile.kernel @out({{.*}}load = #tile.load<min_tokens = 0, max_tokens = 16384,
// A config forced for a range makes it a range, with any bounds; one forced for all token counts does not split the
// kernel.
//       FORCED: plan.variant tokens {{[0-9]+}} to 16 {
//       FORCED: plan.launch @hidden_t16 ins
//       FORCED: plan.launch @out ins
//       FORCED: plan.variant tokens 17 to
//       FORCED: tile.kernel @hidden_t16({{.*}}min_tokens = 0, max_tokens = 16, top_k
//       FORCED: tile.kernel @out(
plan.program @layer max_tokens 16384 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x2048xbf16>
  %i = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x8xi32>
  %r = plan.tensor input "topk_weights" rows <"tokens"> : memref<?x8xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<128x1536x2048xbf16>
  %w2 = plan.tensor weight "experts.w2" : memref<128x2048x768xbf16>
  %output = plan.tensor output "output" rows <"tokens"> : memref<?x2048xbf16>
  %offsets = plan.buffer "expert_offsets" slot 0 : memref<129xi32>
  %position = plan.buffer "position" slot 1 rows <"tokens"> : memref<?x8xi32>
  %source = plan.buffer "source" slot 2 rows <"tokens * 8"> : memref<?xi32>
  %weight = plan.buffer "row_weight" slot 3 rows <"tokens * 8"> : memref<?x1xf32>
  %h = plan.buffer "experts_hidden" slot 4 rows <"tokens * 8"> : memref<?x768xbf16>
  %y = plan.buffer "experts_out" slot 5 rows <"tokens * 8"> : memref<?x2048xbf16>
  plan.variant tokens 0 to 16384 {
    plan.launch @route ins(%i, %r : memref<?x8xi32>, memref<?x8xf32>)
        outs(%offsets, %position, %source, %weight : memref<129xi32>, memref<?x8xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @hidden ins(%x, %w13, %offsets, %source : memref<?x2048xbf16>, memref<128x1536x2048xbf16>, memref<129xi32>, memref<?xi32>)
        outs(%h : memref<?x768xbf16>)
    plan.launch @out ins(%h, %w2, %offsets, %weight : memref<?x768xbf16>, memref<128x2048x768xbf16>, memref<129xi32>, memref<?x1xf32>)
        outs(%y : memref<?x2048xbf16>)
    plan.launch @sum ins(%y, %position : memref<?x2048xbf16>, memref<?x8xi32>) outs(%output : memref<?x2048xbf16>)
  }
}
tile.kernel @route(%i: memref<?x8xi32>, %r: memref<?x8xf32>, %o: memref<129xi32>, %p: memref<?x8xi32>, %s: memref<?xi32>,
    %w: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x8xi32>, memref<?x8xf32>)
      outs(%o, %p, %s, %w : memref<129xi32>, memref<?x8xi32>, memref<?xi32>, memref<?x1xf32>) {num_experts = 128 : i64}
  tile.return
}
tile.kernel @hidden(%x: memref<?x2048xbf16>, %w: memref<128x1536x2048xbf16>, %o: memref<129xi32>, %s: memref<?xi32>,
    %y: memref<?x768xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x2048xbf16>, memref<128x1536x2048xbf16>)
      offsets(%o : memref<129xi32>) source(%s : memref<?xi32>) outs(%y : memref<?x768xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %1 = arith.mulf %g, %u : f32
        tile.yield %1 : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @out(%x: memref<?x768xbf16>, %w: memref<128x2048x768xbf16>, %o: memref<129xi32>, %r: memref<?x1xf32>,
    %y: memref<?x2048xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x768xbf16>, memref<128x2048x768xbf16>)
      offsets(%o : memref<129xi32>) rows(%r : memref<?x1xf32>) outs(%y : memref<?x2048xbf16>) epilogue {
      ^bb0(%a: f32, %b: f32):
        %1 = arith.mulf %a, %b : f32
        tile.yield %1 : f32
      }
  tile.return
}
tile.kernel @sum(%x: memref<?x2048xbf16>, %p: memref<?x8xi32>, %y: memref<?x2048xbf16>, %t: i64) {
  tile.gather_reduce tokens(%t) ins(%x, %p : memref<?x2048xbf16>, memref<?x8xi32>) outs(%y : memref<?x2048xbf16>)
  tile.return
}
