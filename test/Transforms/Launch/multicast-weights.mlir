// Gemms whose CTAs share weights in clusters.
// RUN: moe-opt %s --tile-rewrite-launches="only=multicast-weights target=sm_90a set=multicast-weights.always" -o %t.once
// RUN: FileCheck %s --input-file=%t.once
// A second run changes nothing.
// RUN: moe-opt %t.once --tile-rewrite-launches="only=multicast-weights target=sm_90a set=multicast-weights.always" | diff - %t.once
// RUN: moe-opt %s -o %t.plain
// RUN: moe-opt %s --tile-rewrite-launches="only=multicast-weights target=sm_90a" --remarks-filter=tile-rewrite-launches -o %t.off 2>&1 | FileCheck %s --check-prefix=WHY
// WHY: [Missed] multicast-weights | {{.*}}Function=hidden | Reason="clusters gain nothing where power bounds the gemm; the parameter 'always' uses them"
// RUN: diff %t.off %t.plain
// RUN: moe-opt %s --tile-rewrite-launches="only=multicast-weights target=sm_90a set=multicast-weights.always" --remarks-filter=tile-rewrite-launches -o %t.on 2>&1 | FileCheck %s --check-prefix=FEW
// FEW: [Missed] multicast-weights | {{.*}}Function=few | Reason="groups have fewer than four tiles at 32 tokens, the middle of the range"

// The box of weights has half of the rows.
//  CHECK-LABEL: tile.kernel @hidden(
//   CHECK-SAME: grid = #plan.expr<"132">
//   CHECK-SAME: box = [1, 8, 2, 8, 64]
//        CHECK: block_m = [128], block_n = 128, block_k = 64, stages = 4, no_swap_ab, multicast_weights>
//  CHECK-LABEL: tile.kernel @few(
//    CHECK-NOT: multicast_weights
plan.program @layer max_tokens 8192 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x1024xbf16>
  %w = plan.tensor weight "experts.w13" : memref<8x2048x1024xbf16>
  %offsets = plan.tensor input "expert_offsets" : memref<9xi32>
  %source = plan.tensor input "source" rows <"tokens * 2"> : memref<?xi32>
  %y = plan.tensor output "output" rows <"tokens * 2"> : memref<?x1024xbf16>
  plan.variant tokens 0 to 1023 {
    plan.launch @few ins(%x, %w, %offsets, %source : memref<?x1024xbf16>, memref<8x2048x1024xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%y : memref<?x1024xbf16>)
  }
  plan.variant tokens 1024 to 8192 {
    plan.launch @hidden ins(%x, %w, %offsets, %source : memref<?x1024xbf16>, memref<8x2048x1024xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%y : memref<?x1024xbf16>)
  }
}
tile.kernel @hidden(%x: memref<?x1024xbf16>, %w: memref<8x2048x1024xbf16>, %o: memref<9xi32>, %s: memref<?xi32>, %y: memref<?x1024xbf16>, %t: i64)
    attributes {load = #tile.load<min_tokens = 1024, max_tokens = 8192, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x1024xbf16>, memref<8x2048x1024xbf16>) offsets(%o : memref<9xi32>) source(%s : memref<?xi32>)
      outs(%y : memref<?x1024xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %p = arith.mulf %g, %u : f32
        tile.yield %p : f32
      } {layout = #moe.weight_layout<order = gate_up>, config = #tile.sm90_gemm<block_m = [128], block_n = 128, block_k = 64, stages = 4, no_swap_ab>}
  tile.return
}
tile.kernel @few(%x: memref<?x1024xbf16>, %w: memref<8x2048x1024xbf16>, %o: memref<9xi32>, %s: memref<?xi32>, %y: memref<?x1024xbf16>, %t: i64)
    attributes {load = #tile.load<min_tokens = 1, max_tokens = 1023, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x1024xbf16>, memref<8x2048x1024xbf16>) offsets(%o : memref<9xi32>) source(%s : memref<?xi32>)
      outs(%y : memref<?x1024xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %p = arith.mulf %g, %u : f32
        tile.yield %p : f32
      } {layout = #moe.weight_layout<order = gate_up>, config = #tile.sm90_gemm<block_m = [128], block_n = 128, block_k = 64, stages = 4, no_swap_ab>}
  tile.return
}
