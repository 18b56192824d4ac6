// Sums of k tiles are added in f32 for long rows, with scales of whole rows too: with many rows, input rows are the
// instruction's M side.
// RUN: moe-opt %s --tile-assign-config=target=sm_90a | FileCheck %s

// CHECK-LABEL: tile.kernel @long(
// CHECK: block_m = [{{.*}}, 128], block_n = 128, block_k = 128, {{.*}} no_swap_ab, dynamic_scheduler>
tile.kernel @long(%x: memref<?x7168xf8E4M3FN>, %w: memref<256x4096x7168xf8E4M3FN>, %xs: memref<?x1xf32>, %ws: memref<256x4096x1xf32>,
    %o: memref<257xi32>, %s: memref<?xi32>, %h: memref<?x2048xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 2049, max_tokens = 16384, top_k = 8, experts = 256>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x7168xf8E4M3FN>, memref<256x4096x7168xf8E4M3FN>)
      input_scale(%xs : memref<?x1xf32>) weight_scale(%ws : memref<256x4096x1xf32>) offsets(%o : memref<257xi32>) source(%s : memref<?xi32>)
      outs(%h : memref<?x2048xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>, layout = #moe.weight_layout<order = gate_up>}
  tile.return
}

// CHECK-LABEL: tile.kernel @short(
// CHECK: #tile.sm90_gemm<
// CHECK-NOT: no_swap_ab
tile.kernel @short(%x: memref<?x2048xf8E4M3FN>, %w: memref<256x4096x2048xf8E4M3FN>, %xs: memref<?x1xf32>, %ws: memref<256x4096x1xf32>,
    %o: memref<257xi32>, %s: memref<?xi32>, %h: memref<?x2048xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 2049, max_tokens = 16384, top_k = 8, experts = 256>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x2048xf8E4M3FN>, memref<256x4096x2048xf8E4M3FN>)
      input_scale(%xs : memref<?x1xf32>) weight_scale(%ws : memref<256x4096x1xf32>) offsets(%o : memref<257xi32>) source(%s : memref<?xi32>)
      outs(%h : memref<?x2048xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>, layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
