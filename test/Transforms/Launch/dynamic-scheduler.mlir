// Gemms that get a counter for the dynamic tile scheduler.
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=dynamic-scheduler target=sm_90a" | FileCheck %s
// A second run changes nothing.
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=dynamic-scheduler target=sm_90a" -o %t.once
// RUN: moe-opt %t.once --split-input-file --tile-rewrite-launches="only=dynamic-scheduler target=sm_90a" | diff - %t.once
// RUN: not moe-opt %s --split-input-file --tile-rewrite-launches="only=dynamic-scheduler target=sm_70" 2>&1 | FileCheck %s --check-prefix=TARGET
// TARGET: tile-rewrite-launches: target 'sm_70' is unknown; accepted are cpu, sm_80, sm_90a, sm_100a

// Both gemms share one counter, in all variants. All launches of the sort clear it.
//  CHECK-LABEL: plan.program @layer
//        CHECK: plan.buffer "experts_hidden" slot 4
//   CHECK-NEXT: %[[COUNTER:[a-z_]+]] = plan.buffer "rank_counter" slot 5 : memref<1xi32>
//        CHECK: plan.variant tokens 0 to 8 {
//   CHECK-NEXT: plan.launch @rank ins({{.*}}) outs(%expert_offsets, %source, %row_weight, %position, %[[COUNTER]] :
//   CHECK-NEXT: plan.launch @hidden ins({{.*}}) outs(%experts_hidden, %[[COUNTER]] :
//   CHECK-NEXT: plan.launch @out ins({{.*}}) outs(%output, %[[COUNTER]] :
//   CHECK-NEXT: }
//        CHECK: plan.variant tokens 9 to 16 {
//   CHECK-NEXT: plan.launch @rank ins({{.*}}) outs(%expert_offsets, %source, %row_weight, %position, %[[COUNTER]] :
//   CHECK-NEXT: plan.launch @hidden ins({{.*}}) outs(%experts_hidden, %[[COUNTER]] :
// A gemm without `dynamic_scheduler` does not change.
//   CHECK-NEXT: plan.launch @ordered ins({{.*}}) outs(%output :
//   CHECK-NEXT: }
//        CHECK: tile.kernel @rank(
//        CHECK: outs({{.*}}) counter(%arg6 : memref<1xi32>) {
//        CHECK: tile.kernel @hidden({{.*}}, %[[C:arg5]]: memref<1xi32>, %tokens: i64)
//   CHECK-NEXT: tile.gemm {{.*}} schedule(tile_counter = %[[C]] : memref<1xi32>) outs(%arg4 :
//        CHECK: block_m = [16], {{.*}}, dynamic_scheduler>
//        CHECK: tile.kernel @out({{.*}}, %[[C:arg5]]: memref<1xi32>, %tokens: i64)
//   CHECK-NEXT: tile.gemm {{.*}} schedule(tile_counter = %[[C]] : memref<1xi32>) rows(
//        CHECK: tile.kernel @ordered(
//   CHECK-NEXT: tile.gemm
//    CHECK-NOT: tile_counter
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
        outs(%offsets, %source, %weight, %position : memref<9xi32>, memref<?xi32>, memref<?x1xf32>, memref<?x2xi32>)
    plan.launch @hidden ins(%x, %w13, %offsets, %source : memref<?x64xbf16>, memref<8x128x64xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x64xbf16>)
    plan.launch @out ins(%h, %w2, %offsets, %weight : memref<?x64xbf16>, memref<8x64x64xbf16>, memref<9xi32>, memref<?x1xf32>)
        outs(%y : memref<?x64xbf16>)
  }
  plan.variant tokens 9 to 16 {
    plan.launch @rank ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%offsets, %source, %weight, %position : memref<9xi32>, memref<?xi32>, memref<?x1xf32>, memref<?x2xi32>)
    plan.launch @hidden ins(%x, %w13, %offsets, %source : memref<?x64xbf16>, memref<8x128x64xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x64xbf16>)
    plan.launch @ordered ins(%h, %w2, %offsets, %weight : memref<?x64xbf16>, memref<8x64x64xbf16>, memref<9xi32>, memref<?x1xf32>)
        outs(%y : memref<?x64xbf16>)
  }
}
tile.kernel @rank(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<9xi32>, %s: memref<?xi32>,
    %w: memref<?x1xf32>, %p: memref<?x2xi32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 1024, tokens_per_cta = 128, experts_at_once = 8>, num_experts = 8 : i64}
  tile.return
}
tile.kernel @hidden(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %s: memref<?xi32>,
    %h: memref<?x64xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>)
      source(%s : memref<?xi32>) outs(%h : memref<?x64xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>,
         config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4, dynamic_scheduler>}
  tile.return
}
tile.kernel @out(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %o: memref<9xi32>, %v: memref<?x1xf32>,
    %y: memref<?x64xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>)
      rows(%v : memref<?x1xf32>) outs(%y : memref<?x64xbf16>) epilogue {
      ^bb0(%a: f32, %b: f32):
        %z = arith.mulf %a, %b : f32
        tile.yield %z : f32
      } {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4, map_rows, dynamic_scheduler>}
  tile.return
}
tile.kernel @ordered(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %o: memref<9xi32>, %v: memref<?x1xf32>,
    %y: memref<?x64xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>)
      rows(%v : memref<?x1xf32>) outs(%y : memref<?x64xbf16>) epilogue {
      ^bb0(%a: f32, %b: f32):
        %z = arith.mulf %a, %b : f32
        tile.yield %z : f32
      } {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4, map_rows>}
  tile.return
}

// -----

// With the caller's offsets no launch clears a counter: `dynamic_scheduler` is removed from the config.
//  CHECK-LABEL: plan.program @given_offsets
//    CHECK-NOT: counter
//        CHECK: tile.kernel @alone(
//    CHECK-NOT: tile_counter
//        CHECK: #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4>
plan.program @given_offsets max_tokens 16 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x64xbf16>
  %w2 = plan.tensor weight "w2" : memref<8x64x64xbf16>
  %offsets = plan.tensor input "offsets" : memref<9xi32>
  %y = plan.tensor output "output" rows <"tokens"> : memref<?x64xbf16>
  plan.variant tokens 0 to 16 {
    plan.launch @alone ins(%x, %w2, %offsets : memref<?x64xbf16>, memref<8x64x64xbf16>, memref<9xi32>)
        outs(%y : memref<?x64xbf16>)
  }
}
tile.kernel @alone(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %o: memref<9xi32>,
    %y: memref<?x64xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>)
      outs(%y : memref<?x64xbf16>)
      {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4, dynamic_scheduler>}
  tile.return
}

// -----

// Joined gemms do not reset the counter: `dynamic_scheduler` is removed.
//  CHECK-LABEL: plan.program @behind_joined
//        CHECK: plan.launch @last ins({{.*}}) outs(%output :
//        CHECK: tile.kernel @last(
//    CHECK-NOT: tile_counter
//        CHECK: #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4>
plan.program @behind_joined max_tokens 16 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x64xbf16>
  %i = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x2xi32>
  %r = plan.tensor input "topk_weights" rows <"tokens"> : memref<?x2xf32>
  %w = plan.tensor weight "w" : memref<8x64x64xbf16>
  %y = plan.tensor output "output" rows <"tokens * 2"> : memref<?x64xbf16>
  %offsets = plan.buffer "expert_offsets" : memref<9xi32>
  %position = plan.buffer "position" rows <"tokens"> : memref<?x2xi32>
  %source = plan.buffer "source" rows <"tokens * 2"> : memref<?xi32>
  %weight = plan.buffer "row_weight" rows <"tokens * 2"> : memref<?x1xf32>
  %h = plan.buffer "h" rows <"tokens * 2"> : memref<?x64xbf16>
  %z = plan.buffer "z" rows <"tokens * 2"> : memref<?x64xbf16>
  %counter = plan.buffer "counter" : memref<1xi32>
  plan.variant tokens 0 to 16 {
    plan.launch @rank ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>) outs(%offsets, %source, %weight, %position, %counter :
        memref<9xi32>, memref<?xi32>, memref<?x1xf32>, memref<?x2xi32>, memref<1xi32>)
    plan.launch @both ins(%x, %w, %offsets : memref<?x64xbf16>, memref<8x64x64xbf16>, memref<9xi32>)
        outs(%h, %z, %counter : memref<?x64xbf16>, memref<?x64xbf16>, memref<1xi32>)
    plan.launch @last ins(%z, %w, %offsets : memref<?x64xbf16>, memref<8x64x64xbf16>, memref<9xi32>)
        outs(%y : memref<?x64xbf16>)
  }
}
tile.kernel @rank(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<9xi32>, %s: memref<?xi32>,
    %w: memref<?x1xf32>, %p: memref<?x2xi32>, %c: memref<1xi32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) counter(%c : memref<1xi32>)
      {config = #tile.gpu_sort_by_expert<threads = 1024, tokens_per_cta = 128, experts_at_once = 8>, num_experts = 8 : i64}
  tile.return
}
tile.kernel @both(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %o: memref<9xi32>,
    %h: memref<?x64xbf16>, %z: memref<?x64xbf16>, %c: memref<1xi32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>)
      schedule(signals = %c : memref<1xi32>) outs(%h : memref<?x64xbf16>)
      {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4>}
  tile.gemm tokens(%t) ins(%h, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>)
      schedule(awaits = %c : memref<1xi32>) outs(%z : memref<?x64xbf16>)
      {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4>}
  tile.return
}
tile.kernel @last(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %o: memref<9xi32>,
    %y: memref<?x64xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>)
      outs(%y : memref<?x64xbf16>)
      {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4, dynamic_scheduler>}
  tile.return
}

// -----

// With a load, the scheduler must save time: with 8 tokens no CTA has a second tile. The config
// then has a fixed order.
//  CHECK-LABEL: plan.program @by_load
//        CHECK: plan.variant tokens 0 to 8 {
//        CHECK: plan.launch @few ins({{.*}}) outs(%output :
//        CHECK: plan.variant tokens 9 to 4096 {
//        CHECK: plan.launch @many ins({{.*}}) outs(%output, %rank_counter :
//        CHECK: tile.kernel @few(
//    CHECK-NOT: tile_counter
//        CHECK: #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4>
//        CHECK: tile.kernel @many(
//        CHECK: schedule(tile_counter =
//        CHECK: #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4, dynamic_scheduler>
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=dynamic-scheduler target=sm_90a" --remarks-filter=tile-rewrite-launches -o %t.remarks.mlir 2>&1 | FileCheck %s --check-prefix=WHY
//   WHY: [Missed] dynamic-scheduler | {{.*}}Function=alone | Reason="no earlier sort can clear a counter"
//   WHY: [Missed] dynamic-scheduler | {{.*}}Function=few | Reason="saves 0.00 % of the time of all launches, summed over 4 token counts, with a penalty for kernels of 0.00 %"
//   WHY: [Passed] dynamic-scheduler | {{.*}}Function=many | Reason="saves {{[1-9][0-9.]*}} % of the time of all launches, summed over 9 token counts, with a penalty for kernels of 0.00 %"
// A forced config keeps its `dynamic_scheduler`.
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=dynamic-scheduler target=sm_90a configs=few:dynamic_scheduler" --remarks-filter=tile-rewrite-launches -o %t.forced.mlir 2>&1 | FileCheck %s --check-prefix=FORCED
// FORCED: [Passed] dynamic-scheduler | {{.*}}Function=few | Reason="legal, regardless of the time"
plan.program @by_load max_tokens 4096 {
  %x = plan.tensor input "x" rows <"tokens * 2"> : memref<?x64xbf16>
  %i = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x2xi32>
  %r = plan.tensor input "topk_weights" rows <"tokens"> : memref<?x2xf32>
  %w = plan.tensor weight "w" : memref<8x512x64xbf16>
  %y = plan.tensor output "output" rows <"tokens * 2"> : memref<?x512xbf16>
  %offsets = plan.buffer "expert_offsets" slot 0 : memref<9xi32>
  %position = plan.buffer "position" slot 1 rows <"tokens"> : memref<?x2xi32>
  %source = plan.buffer "source" slot 2 rows <"tokens * 2"> : memref<?xi32>
  %weight = plan.buffer "row_weight" slot 3 rows <"tokens * 2"> : memref<?x1xf32>
  plan.variant tokens 0 to 8 {
    plan.launch @rank ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%offsets, %source, %weight, %position : memref<9xi32>, memref<?xi32>, memref<?x1xf32>, memref<?x2xi32>)
    plan.launch @few ins(%x, %w, %offsets : memref<?x64xbf16>, memref<8x512x64xbf16>, memref<9xi32>)
        outs(%y : memref<?x512xbf16>)
  }
  plan.variant tokens 9 to 4096 {
    plan.launch @rank ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%offsets, %source, %weight, %position : memref<9xi32>, memref<?xi32>, memref<?x1xf32>, memref<?x2xi32>)
    plan.launch @many ins(%x, %w, %offsets : memref<?x64xbf16>, memref<8x512x64xbf16>, memref<9xi32>)
        outs(%y : memref<?x512xbf16>)
  }
}
tile.kernel @rank(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<9xi32>, %s: memref<?xi32>,
    %w: memref<?x1xf32>, %p: memref<?x2xi32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 1024, tokens_per_cta = 128, experts_at_once = 8>, num_experts = 8 : i64}
  tile.return
}
tile.kernel @few(%x: memref<?x64xbf16>, %w: memref<8x512x64xbf16>, %o: memref<9xi32>,
    %y: memref<?x512xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 8, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x512x64xbf16>) offsets(%o : memref<9xi32>)
      outs(%y : memref<?x512xbf16>)
      {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4, dynamic_scheduler>}
  tile.return
}
tile.kernel @many(%x: memref<?x64xbf16>, %w: memref<8x512x64xbf16>, %o: memref<9xi32>,
    %y: memref<?x512xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 9, max_tokens = 4096, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x512x64xbf16>) offsets(%o : memref<9xi32>)
      outs(%y : memref<?x512xbf16>)
      {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4, dynamic_scheduler>}
  tile.return
}
