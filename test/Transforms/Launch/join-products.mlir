// Gemms that are joined into one kernel.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --tile-rewrite-launches="only=join-products target=sm_90a" | FileCheck %s --check-prefixes=CHECK,CHOICE
// RUN: moe-opt %s --split-input-file --tile-assign-config="target=sm_90a configs={hidden:block_m=16 block_n=64 stages=5,out:block_m=16 block_n=256 stages=5}" --tile-rewrite-launches="only=join-products target=sm_90a configs={hidden:block_m=16 block_n=64 stages=5,out:block_m=16 block_n=256 stages=5}" | FileCheck %s --check-prefixes=CHECK,FORCED
// Gemms with forced, different BLOCK_M or stages are not joined.
// RUN: moe-opt %s --split-input-file --tile-assign-config="target=sm_90a configs={hidden:block_m=16 stages=4,out:block_m=32 stages=4}" -o %t.blockm
// RUN: moe-opt %t.blockm --split-input-file --tile-rewrite-launches="only=join-products target=sm_90a configs={hidden:block_m=16 stages=4,out:block_m=32 stages=4}" | diff - %t.blockm
// RUN: moe-opt %s --split-input-file --tile-assign-config="target=sm_90a configs={hidden:block_m=16 stages=4,out:block_m=16 stages=5}" -o %t.stages
// RUN: moe-opt %t.stages --split-input-file --tile-rewrite-launches="only=join-products target=sm_90a configs={hidden:block_m=16 stages=4,out:block_m=16 stages=5}" | diff - %t.stages
// Gemms with permuted rows are not joined: the first of joined gemms uses no tensor maps of rows.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --tile-rewrite-launches="only=permute-rows target=sm_90a set=permute-rows.always" -o %t.permuted
// RUN: moe-opt %t.permuted --split-input-file --tile-rewrite-launches="only=join-products target=sm_90a" | diff - %t.permuted
// RUN: grep -c gather_rows %t.permuted
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_80 -o %t.sm80
// RUN: moe-opt %t.sm80 --split-input-file --tile-rewrite-launches="only=join-products target=sm_80" | diff - %t.sm80
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=cpu -o %t.cpu
// RUN: moe-opt %t.cpu --split-input-file --tile-rewrite-launches="only=join-products" | diff - %t.cpu
// RUN: not moe-opt %s --split-input-file --tile-rewrite-launches="only=join-products target=sm_70" 2>&1 | FileCheck %s --check-prefix=TARGET
// TARGET: tile-rewrite-launches: target 'sm_70' is unknown; accepted are cpu, sm_80, sm_90a, sm_100a
// RUN: not moe-opt %s --split-input-file --tile-rewrite-launches="only=join-products target=sm_90a configs=hidden" 2>&1 | FileCheck %s --check-prefix=CONFIG
// CONFIG: tile-rewrite-launches: config 'hidden': write KERNEL:TEXT

// The launches of both variants share one kernel. All launches of the sort write the counter.
//  CHECK-LABEL: plan.program @layer
//        CHECK: plan.buffer "experts_hidden" slot 4
//   CHECK-NEXT: %[[COUNTER:[a-z_]+]] = plan.buffer "rank_counter" slot 5 : memref<1xi32>
//        CHECK: plan.variant tokens 0 to 8 {
//   CHECK-NEXT: plan.launch @rank ins({{.*}}) outs(%expert_offsets, %position, %source, %row_weight, %[[COUNTER]] :
//   CHECK-NEXT: plan.launch @hidden_out ins(%hidden_states, %experts.w13, %expert_offsets, %source, %experts.w2, %row_weight :
//   CHECK-SAME: outs(%experts_hidden, %output, %[[COUNTER]] :
//   CHECK-NEXT: }
//        CHECK: plan.variant tokens 9 to 16 {
//   CHECK-NEXT: plan.launch @rank ins({{.*}}) outs(%expert_offsets, %position, %source, %row_weight, %[[COUNTER]] :
//   CHECK-NEXT: plan.launch @hidden_out ins({{.*}}) outs(%experts_hidden, %output, %[[COUNTER]] :
//   CHECK-NEXT: }
//        CHECK: tile.kernel @rank(
//        CHECK: outs({{.*}}) counter(%arg6 : memref<1xi32>) {
//    CHECK-NOT: tile.kernel @hidden(
//        CHECK: tile.kernel @hidden_out(%[[X:arg0]]: memref<?x64xbf16>, %[[W13:arg1]]: memref<8x128x64xbf16>, %[[O:arg2]]: memref<9xi32>,
//   CHECK-SAME:     %[[S:arg3]]: memref<?xi32>, %[[W2:arg4]]: memref<8x64x64xbf16>, %[[V:arg5]]: memref<?x1xf32>,
//   CHECK-SAME:     %[[H:arg6]]: memref<?x64xbf16>, %[[Y:arg7]]: memref<?x64xbf16>, %[[C:arg8]]: memref<1xi32>, %[[T:tokens]]: i64)
//   CHECK-SAME: form = #tile.kernel_form<resident = true>, grid = #plan.expr<"132">, load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>, shared =
//   CHECK-NEXT: tile.gemm tokens(%[[T]]) ins(%[[X]], %[[W13]] : {{.*}}) offsets(%[[O]] : {{.*}}) source(%[[S]] :
//   CHECK-SAME:     schedule(signals = %[[C]] : memref<1xi32>) outs(%[[H]] :
//        CHECK: #tile.sm90_gemm<block_m = [16], block_n =
//  FORCED-SAME: 64, block_k = 64
//   CHECK-SAME: stages = [[#STAGES:]]>, layout
//   CHECK-NEXT: tile.gemm tokens(%[[T]]) ins(%[[H]], %[[W2]] : {{.*}}) offsets(%[[O]] :
//   CHECK-SAME:     schedule(awaits = %[[C]] : memref<1xi32>) rows(%[[V]] : {{.*}}) outs(%[[Y]] :
//        CHECK: #tile.sm90_gemm<block_m = [16], block_n =
//  FORCED-SAME: 256, block_k = 64
//   CHECK-SAME: stages = [[#STAGES]], map_rows>
//   CHECK-NEXT: tile.return
//    CHECK-NOT: tile.kernel
plan.program @layer max_tokens 16 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x64xbf16>
  %i = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x2xi32>
  %r = plan.tensor input "topk_weights" rows <"tokens"> : memref<?x2xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<8x128x64xbf16>
  %w2 = plan.tensor weight "experts.w2" : memref<8x64x64xbf16>
  %y = plan.tensor output "output" rows <"tokens * 2"> : memref<?x64xbf16>
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
        outs(%y : memref<?x64xbf16>)
  }
  plan.variant tokens 9 to 16 {
    plan.launch @rank ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%offsets, %position, %source, %weight : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @hidden ins(%x, %w13, %offsets, %source : memref<?x64xbf16>, memref<8x128x64xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x64xbf16>)
    plan.launch @out ins(%h, %w2, %offsets, %weight : memref<?x64xbf16>, memref<8x64x64xbf16>, memref<9xi32>, memref<?x1xf32>)
        outs(%y : memref<?x64xbf16>)
  }
}
tile.kernel @rank(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<9xi32>, %p: memref<?x2xi32>, %s: memref<?xi32>,
    %w: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) {num_experts = 8 : i64}
  tile.return
}
tile.kernel @hidden(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %s: memref<?xi32>,
    %h: memref<?x64xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>)
      source(%s : memref<?xi32>) outs(%h : memref<?x64xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @out(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %o: memref<9xi32>, %v: memref<?x1xf32>,
    %y: memref<?x64xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>)
      rows(%v : memref<?x1xf32>) outs(%y : memref<?x64xbf16>) epilogue {
      ^bb0(%a: f32, %b: f32):
        %z = arith.mulf %a, %b : f32
        tile.yield %z : f32
      }
  tile.return
}

// -----

// The second gemm would overwrite `source`, which the first reads: it gets its own memory.
//  CHECK-LABEL: plan.program @overwritten
//        CHECK: plan.buffer "source" slot 6
//        CHECK: plan.buffer "expert_rows" slot 2
//        CHECK: plan.buffer "rank_counter" slot 5
//        CHECK: plan.launch @hidden_out ins(%hidden_states, %experts.w13, %expert_offsets, %source,
//   CHECK-SAME: outs(%experts_hidden, %expert_rows, %rank_counter :
plan.program @overwritten max_tokens 16 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x64xbf16>
  %i = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x2xi32>
  %r = plan.tensor input "topk_weights" rows <"tokens"> : memref<?x2xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<8x128x64xbf16>
  %w2 = plan.tensor weight "experts.w2" : memref<8x64x64xbf16>
  %offsets = plan.buffer "expert_offsets" slot 0 : memref<9xi32>
  %position = plan.buffer "position" slot 1 rows <"tokens"> : memref<?x2xi32>
  %source = plan.buffer "source" slot 2 rows <"tokens * 2"> : memref<?xi32>
  %weight = plan.buffer "row_weight" slot 3 rows <"tokens * 2"> : memref<?x1xf32>
  %h = plan.buffer "experts_hidden" slot 4 rows <"tokens * 2"> : memref<?x64xbf16>
  %y = plan.buffer "expert_rows" slot 2 rows <"tokens * 2"> : memref<?x64xbf16>
  plan.variant tokens 0 to 16 {
    plan.launch @rank ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%offsets, %position, %source, %weight : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @hidden ins(%x, %w13, %offsets, %source : memref<?x64xbf16>, memref<8x128x64xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x64xbf16>)
    plan.launch @out ins(%h, %w2, %offsets, %weight : memref<?x64xbf16>, memref<8x64x64xbf16>, memref<9xi32>, memref<?x1xf32>)
        outs(%y : memref<?x64xbf16>)
  }
}
tile.kernel @rank(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<9xi32>, %p: memref<?x2xi32>, %s: memref<?xi32>,
    %w: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) {num_experts = 8 : i64}
  tile.return
}
tile.kernel @hidden(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %s: memref<?xi32>,
    %h: memref<?x64xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>)
      source(%s : memref<?xi32>) outs(%h : memref<?x64xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @out(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %o: memref<9xi32>, %v: memref<?x1xf32>,
    %y: memref<?x64xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>)
      rows(%v : memref<?x1xf32>) outs(%y : memref<?x64xbf16>) epilogue {
      ^bb0(%a: f32, %b: f32):
        %z = arith.mulf %a, %b : f32
        tile.yield %z : f32
      }
  tile.return
}

// -----

// Another launch is between them.
//  CHECK-LABEL: plan.program @apart
//    CHECK-NOT: rank_counter
//        CHECK: plan.launch @hidden ins(
//   CHECK-NEXT: plan.launch @rank ins(
//   CHECK-NEXT: plan.launch @out ins(
//    CHECK-NOT: awaits
plan.program @apart max_tokens 16 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x64xbf16>
  %i = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x2xi32>
  %r = plan.tensor input "topk_weights" rows <"tokens"> : memref<?x2xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<8x128x64xbf16>
  %w2 = plan.tensor weight "experts.w2" : memref<8x64x64xbf16>
  %y = plan.tensor output "output" rows <"tokens * 2"> : memref<?x64xbf16>
  %offsets = plan.buffer "expert_offsets" slot 0 : memref<9xi32>
  %position = plan.buffer "position" slot 1 rows <"tokens"> : memref<?x2xi32>
  %source = plan.buffer "source" slot 2 rows <"tokens * 2"> : memref<?xi32>
  %weight = plan.buffer "row_weight" slot 3 rows <"tokens * 2"> : memref<?x1xf32>
  %h = plan.buffer "experts_hidden" slot 4 rows <"tokens * 2"> : memref<?x64xbf16>
  plan.variant tokens 0 to 16 {
    plan.launch @rank ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%offsets, %position, %source, %weight : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @hidden ins(%x, %w13, %offsets, %source : memref<?x64xbf16>, memref<8x128x64xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x64xbf16>)
    plan.launch @rank ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%offsets, %position, %source, %weight : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @out ins(%h, %w2, %offsets, %weight : memref<?x64xbf16>, memref<8x64x64xbf16>, memref<9xi32>, memref<?x1xf32>)
        outs(%y : memref<?x64xbf16>)
  }
}
tile.kernel @rank(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<9xi32>, %p: memref<?x2xi32>, %s: memref<?xi32>,
    %w: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) {num_experts = 8 : i64}
  tile.return
}
tile.kernel @hidden(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %s: memref<?xi32>,
    %h: memref<?x64xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>)
      source(%s : memref<?xi32>) outs(%h : memref<?x64xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @out(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %o: memref<9xi32>, %v: memref<?x1xf32>,
    %y: memref<?x64xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>)
      rows(%v : memref<?x1xf32>) outs(%y : memref<?x64xbf16>) epilogue {
      ^bb0(%a: f32, %b: f32):
        %z = arith.mulf %a, %b : f32
        tile.yield %z : f32
      }
  tile.return
}

// -----

// With the caller's offsets, no launch clears the counter.
//  CHECK-LABEL: plan.program @no_ranking
//    CHECK-NOT: rank_counter
//        CHECK: plan.launch @hidden ins(
//   CHECK-NEXT: plan.launch @out ins(
//    CHECK-NOT: awaits
plan.program @no_ranking max_tokens 16 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x64xbf16>
  %i = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x2xi32>
  %r = plan.tensor input "topk_weights" rows <"tokens"> : memref<?x2xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<8x128x64xbf16>
  %w2 = plan.tensor weight "experts.w2" : memref<8x64x64xbf16>
  %offsets = plan.tensor input "offsets" : memref<9xi32>
  %source = plan.tensor input "source" rows <"tokens * 2"> : memref<?xi32>
  %weight = plan.tensor input "row_weight" rows <"tokens * 2"> : memref<?x1xf32>
  %y = plan.tensor output "output" rows <"tokens * 2"> : memref<?x64xbf16>
  %h = plan.buffer "experts_hidden" slot 4 rows <"tokens * 2"> : memref<?x64xbf16>
  plan.variant tokens 0 to 16 {
    plan.launch @hidden ins(%x, %w13, %offsets, %source : memref<?x64xbf16>, memref<8x128x64xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x64xbf16>)
    plan.launch @out ins(%h, %w2, %offsets, %weight : memref<?x64xbf16>, memref<8x64x64xbf16>, memref<9xi32>, memref<?x1xf32>)
        outs(%y : memref<?x64xbf16>)
  }
}
tile.kernel @rank(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<9xi32>, %p: memref<?x2xi32>, %s: memref<?xi32>,
    %w: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) {num_experts = 8 : i64}
  tile.return
}
tile.kernel @hidden(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %s: memref<?xi32>,
    %h: memref<?x64xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>)
      source(%s : memref<?xi32>) outs(%h : memref<?x64xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @out(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %o: memref<9xi32>, %v: memref<?x1xf32>,
    %y: memref<?x64xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>)
      rows(%v : memref<?x1xf32>) outs(%y : memref<?x64xbf16>) epilogue {
      ^bb0(%a: f32, %b: f32):
        %z = arith.mulf %a, %b : f32
        tile.yield %z : f32
      }
  tile.return
}

// -----

// Without a load there is no prediction; forced configs are kept.
//  CHECK-LABEL: plan.program @no_load
//       CHOICE: plan.launch @hidden ins(
//  CHOICE-NEXT: plan.launch @out ins(
//   CHOICE-NOT: awaits
//       FORCED: plan.launch @hidden_out ins(
plan.program @no_load max_tokens 16 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x64xbf16>
  %i = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x2xi32>
  %r = plan.tensor input "topk_weights" rows <"tokens"> : memref<?x2xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<8x128x64xbf16>
  %w2 = plan.tensor weight "experts.w2" : memref<8x64x64xbf16>
  %y = plan.tensor output "output" rows <"tokens * 2"> : memref<?x64xbf16>
  %offsets = plan.buffer "expert_offsets" slot 0 : memref<9xi32>
  %position = plan.buffer "position" slot 1 rows <"tokens"> : memref<?x2xi32>
  %source = plan.buffer "source" slot 2 rows <"tokens * 2"> : memref<?xi32>
  %weight = plan.buffer "row_weight" slot 3 rows <"tokens * 2"> : memref<?x1xf32>
  %h = plan.buffer "experts_hidden" slot 4 rows <"tokens * 2"> : memref<?x64xbf16>
  plan.variant tokens 0 to 16 {
    plan.launch @rank ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%offsets, %position, %source, %weight : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @hidden ins(%x, %w13, %offsets, %source : memref<?x64xbf16>, memref<8x128x64xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x64xbf16>)
    plan.launch @out ins(%h, %w2, %offsets, %weight : memref<?x64xbf16>, memref<8x64x64xbf16>, memref<9xi32>, memref<?x1xf32>)
        outs(%y : memref<?x64xbf16>)
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
