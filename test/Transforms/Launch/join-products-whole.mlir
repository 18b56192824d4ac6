// Gemms that take a little less time joined for all tokens of a range, but much less for two: those get a range.
// RUN: moe-opt %s --tile-specialize=target=sm_90a --tile-assign-config=target=sm_90a -o %t.apart
// RUN: FileCheck %s --input-file=%t.apart --check-prefix=APART
// RUN: moe-opt %t.apart --tile-rewrite-launches="only=join-products target=sm_90a" | FileCheck %s

//       APART: plan.variant tokens 0 to 256 {

// CHECK-LABEL: plan.program @layer
//       CHECK: plan.variant tokens 0 to 2 {
//       CHECK: plan.launch @hidden_out ins
//       CHECK: plan.variant tokens 3 to 256 {
//       CHECK: plan.launch @hidden ins
//  CHECK-NEXT: plan.launch @out ins
plan.program @layer max_tokens 256 {
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
  plan.variant tokens 0 to 256 {
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
