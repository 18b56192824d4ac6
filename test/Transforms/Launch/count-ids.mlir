// Gemms that count ids instead of reading offsets.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --tile-rewrite-launches="only=count-ids target=sm_90a" | FileCheck %s
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --tile-rewrite-launches="only=count-ids target=sm_90a set=count-ids.most=31" | FileCheck %s --check-prefix=FEW
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_80 -o %t.sm80
// RUN: moe-opt %t.sm80 --split-input-file --tile-rewrite-launches="only=count-ids target=sm_80" | diff - %t.sm80
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=cpu -o %t.cpu
// RUN: moe-opt %t.cpu --split-input-file --tile-rewrite-launches="only=count-ids" | diff - %t.cpu
// RUN: not moe-opt %s --split-input-file --tile-rewrite-launches="only=count-ids target=sm_70" 2>&1 | FileCheck %s --check-prefix=TARGET
// TARGET: tile-rewrite-launches: target 'sm_70' is unknown; accepted are cpu, sm_80, sm_90a, sm_100a

// The ids follow the other inputs of both gemms, in all launches. A bound of 31 is too small for
// the 32 ids of 16 tokens.
// CHECK-LABEL: plan.program @layer
//       CHECK: plan.variant tokens 0 to 8
//  CHECK-NEXT: plan.launch @rank ins(%topk_ids, %{{[a-z_]+}} :
//  CHECK-NEXT: plan.launch @hidden ins(%{{.*}}, %experts.w13, %expert_offsets, %source, %topk_ids : {{.*}}) outs(
//  CHECK-NEXT: plan.launch @out ins(%{{.*}}, %experts.w2, %expert_offsets, %row_weight, %topk_ids : {{.*}}) outs(
//       CHECK: plan.variant tokens 9 to 16
//       CHECK: plan.launch @hidden ins(%{{.*}}, %experts.w13, %expert_offsets, %source, %topk_ids :
// CHECK-LABEL: tile.kernel @hidden(
//  CHECK-SAME: %[[IDS:[a-z0-9]+]]: memref<?x2xi32>, %{{[a-z0-9]+}}: memref<?x64xbf16>, %{{[a-z0-9]+}}: i64)
//       CHECK: source(%{{.*}} : memref<?xi32>) schedule(ids = %[[IDS]] : memref<?x2xi32>)
//       CHECK: num_experts = 8 : i64
// CHECK-LABEL: tile.kernel @out(
//       CHECK: schedule(ids = %{{.*}} : memref<?x2xi32>)
//   FEW-LABEL: plan.program @layer
//     FEW-NOT: schedule(ids = %{{.*}} : memref<?x2xi32>)
//   FEW-LABEL: plan.program @declined
plan.program @layer max_tokens 16 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x64xbf16>
  %i = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x2xi32>
  %r = plan.tensor input "topk_weights" rows <"tokens"> : memref<?x2xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<8x128x64xbf16>
  %w2 = plan.tensor weight "experts.w2" : memref<8x64x64xbf16>
  %output = plan.tensor output "output" rows <"tokens * 2"> : memref<?x64xbf16>
  %offsets = plan.buffer "expert_offsets" slot 0 : memref<9xi32>
  %position = plan.buffer "position" slot 1 rows <"tokens"> : memref<?x2xi32>
  %source = plan.buffer "source" slot 2 rows <"tokens * 2"> : memref<?xi32>
  %weight = plan.buffer "row_weight" slot 3 rows <"tokens * 2"> : memref<?x1xf32>
  %h = plan.buffer "experts_hidden" slot 4 rows <"tokens * 2"> : memref<?x64xbf16>
  plan.variant tokens 0 to 8 {
    plan.launch @rank ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%offsets, %position, %source, %weight : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @hidden ins(%x, %w13, %offsets, %source : memref<?x64xbf16>, memref<8x128x64xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x64xbf16>)
    plan.launch @out ins(%h, %w2, %offsets, %weight : memref<?x64xbf16>, memref<8x64x64xbf16>, memref<9xi32>, memref<?x1xf32>)
        outs(%output : memref<?x64xbf16>)
  }
  plan.variant tokens 9 to 16 {
    plan.launch @rank ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%offsets, %position, %source, %weight : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @hidden ins(%x, %w13, %offsets, %source : memref<?x64xbf16>, memref<8x128x64xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x64xbf16>)
    plan.launch @out ins(%h, %w2, %offsets, %weight : memref<?x64xbf16>, memref<8x64x64xbf16>, memref<9xi32>, memref<?x1xf32>)
        outs(%output : memref<?x64xbf16>)
  }
}
tile.kernel @rank(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<9xi32>, %p: memref<?x2xi32>, %s: memref<?xi32>,
    %w: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) {num_experts = 8 : i64}
  tile.return
}
tile.kernel @hidden(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %s: memref<?xi32>,
    %h: memref<?x64xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>)
      source(%s : memref<?xi32>) outs(%h : memref<?x64xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @out(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %o: memref<9xi32>, %v: memref<?x1xf32>,
    %y: memref<?x64xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>)
      rows(%v : memref<?x1xf32>) outs(%y : memref<?x64xbf16>) epilogue {
      ^bb0(%a: f32, %b: f32):
        %z = arith.mulf %a, %b : f32
        tile.yield %z : f32
      }
  tile.return
}

// -----

// Local experts: their attributes are copied along with the ids. The second gemm has launches with
// other ids.
// CHECK-LABEL: plan.program @declined
//       CHECK: plan.launch @hidden ins(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %topk_ids :
//       CHECK: plan.launch @out ins(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : memref<?x64xbf16>, memref<8x64x64xbf16>, memref<9xi32>, memref<?x1xf32>) outs(
// CHECK-LABEL: tile.kernel @hidden(
//       CHECK: local_experts = array<i64: 3, 1, 4, 0, 5, 9, 2, 6>, num_experts = 12 : i64
// CHECK-LABEL: tile.kernel @out(
//   CHECK-NOT: schedule(ids = %{{.*}} : memref<?x2xi32>)
// CHECK-LABEL: tile.kernel @hidden_other(
//       CHECK: schedule(ids = %{{.*}} : memref<?x2xi32>)
plan.program @declined max_tokens 16 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x64xbf16>
  %i = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x2xi32>
  %j = plan.tensor input "other_ids" rows <"tokens"> : memref<?x2xi32>
  %r = plan.tensor input "topk_weights" rows <"tokens"> : memref<?x2xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<8x128x64xbf16>
  %w2 = plan.tensor weight "experts.w2" : memref<8x64x64xbf16>
  %output = plan.tensor output "output" rows <"tokens * 2"> : memref<?x64xbf16>
  %offsets = plan.buffer "expert_offsets" slot 0 : memref<9xi32>
  %position = plan.buffer "position" slot 1 rows <"tokens"> : memref<?x2xi32>
  %source = plan.buffer "source" slot 2 rows <"tokens * 2"> : memref<?xi32>
  %weight = plan.buffer "row_weight" slot 3 rows <"tokens * 2"> : memref<?x1xf32>
  %h = plan.buffer "experts_hidden" slot 4 rows <"tokens * 2"> : memref<?x64xbf16>
  plan.variant tokens 0 to 8 {
    plan.launch @rank ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%offsets, %position, %source, %weight : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @hidden ins(%x, %w13, %offsets, %source : memref<?x64xbf16>, memref<8x128x64xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x64xbf16>)
    plan.launch @out ins(%h, %w2, %offsets, %weight : memref<?x64xbf16>, memref<8x64x64xbf16>, memref<9xi32>, memref<?x1xf32>)
        outs(%output : memref<?x64xbf16>)
  }
  plan.variant tokens 9 to 16 {
    plan.launch @rank ins(%j, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%offsets, %position, %source, %weight : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @hidden_other ins(%x, %w13, %offsets, %source : memref<?x64xbf16>, memref<8x128x64xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x64xbf16>)
    plan.launch @out ins(%h, %w2, %offsets, %weight : memref<?x64xbf16>, memref<8x64x64xbf16>, memref<9xi32>, memref<?x1xf32>)
        outs(%output : memref<?x64xbf16>)
  }
}
tile.kernel @rank(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<9xi32>, %p: memref<?x2xi32>, %s: memref<?xi32>,
    %w: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) 
      {local_experts = array<i64: 3, 1, 4, 0, 5, 9, 2, 6>, num_experts = 12 : i64}
  tile.return
}
tile.kernel @hidden(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %s: memref<?xi32>,
    %h: memref<?x64xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>)
      source(%s : memref<?xi32>) outs(%h : memref<?x64xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @out(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %o: memref<9xi32>, %v: memref<?x1xf32>,
    %y: memref<?x64xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>)
      rows(%v : memref<?x1xf32>) outs(%y : memref<?x64xbf16>) epilogue {
      ^bb0(%a: f32, %b: f32):
        %z = arith.mulf %a, %b : f32
        tile.yield %z : f32
      }
  tile.return
}
tile.kernel @hidden_other(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %s: memref<?xi32>,
    %h: memref<?x64xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>)
      source(%s : memref<?xi32>) outs(%h : memref<?x64xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}

// -----

// Ids written by a launch are not counted, nor ids with a number of valid tokens.
// CHECK-LABEL: plan.program @made
//   CHECK-NOT: schedule(ids = %{{.*}} : memref<?x2xi32>)
plan.program @made max_tokens 16 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x64xbf16>
  %i = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x2xi32>
  %n = plan.tensor input "num_valid_tokens" : memref<1xi32>
  %l = plan.tensor input "router_logits" rows <"tokens"> : memref<?x8xf32>
  %r = plan.tensor input "topk_weights" rows <"tokens"> : memref<?x2xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<8x128x64xbf16>
  %w2 = plan.tensor weight "experts.w2" : memref<8x64x64xbf16>
  %output = plan.tensor output "output" rows <"tokens * 2"> : memref<?x64xbf16>
  %j = plan.buffer "made_ids" slot 5 rows <"tokens"> : memref<?x2xi32>
  %q = plan.buffer "made_weights" slot 6 rows <"tokens"> : memref<?x2xf32>
  %offsets = plan.buffer "expert_offsets" slot 0 : memref<9xi32>
  %position = plan.buffer "position" slot 1 rows <"tokens"> : memref<?x2xi32>
  %source = plan.buffer "source" slot 2 rows <"tokens * 2"> : memref<?xi32>
  %weight = plan.buffer "row_weight" slot 3 rows <"tokens * 2"> : memref<?x1xf32>
  %h = plan.buffer "experts_hidden" slot 4 rows <"tokens * 2"> : memref<?x64xbf16>
  plan.variant tokens 0 to 16 {
    plan.launch @top_k ins(%l : memref<?x8xf32>) outs(%j, %q : memref<?x2xi32>, memref<?x2xf32>)
    plan.launch @rank ins(%j, %q : memref<?x2xi32>, memref<?x2xf32>)
        outs(%offsets, %position, %source, %weight : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @hidden ins(%x, %w13, %offsets, %source : memref<?x64xbf16>, memref<8x128x64xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x64xbf16>)
    plan.launch @rank_valid ins(%i, %r, %n : memref<?x2xi32>, memref<?x2xf32>, memref<1xi32>)
        outs(%offsets, %position, %source, %weight : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @out ins(%h, %w2, %offsets, %weight : memref<?x64xbf16>, memref<8x64x64xbf16>, memref<9xi32>, memref<?x1xf32>)
        outs(%output : memref<?x64xbf16>)
  }
}
tile.kernel @top_k(%l: memref<?x8xf32>, %i: memref<?x2xi32>, %r: memref<?x2xf32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x8xf32>) outs(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      <top_k = 2, softmax = all>
  tile.return
}
tile.kernel @rank_valid(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %n: memref<1xi32>, %o: memref<9xi32>,
    %p: memref<?x2xi32>, %s: memref<?xi32>, %w: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>) num_valid_tokens(%n : memref<1xi32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) {num_experts = 8 : i64}
  tile.return
}
tile.kernel @rank(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<9xi32>, %p: memref<?x2xi32>, %s: memref<?xi32>,
    %w: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) {num_experts = 8 : i64}
  tile.return
}
tile.kernel @hidden(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %s: memref<?xi32>,
    %h: memref<?x64xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>)
      source(%s : memref<?xi32>) outs(%h : memref<?x64xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @out(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %o: memref<9xi32>, %v: memref<?x1xf32>,
    %y: memref<?x64xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>)
      rows(%v : memref<?x1xf32>) outs(%y : memref<?x64xbf16>) epilogue {
      ^bb0(%a: f32, %b: f32):
        %z = arith.mulf %a, %b : f32
        tile.yield %z : f32
      }
  tile.return
}
