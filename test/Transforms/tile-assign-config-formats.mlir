// Schedules and BLOCK_K of weights of few bits: a row of the wider operand has 128 bytes per k tile, or 256 of f32,
// so that all threads have weights to copy.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a | FileCheck %s
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_80 | FileCheck %s

// Scales inside the loop leave registers for half the rows.
// CHECK-LABEL: tile.kernel @mxfp4
// CHECK: config = #tile.sm80_gemm<block_m = 32, block_n = 64, block_k = 64, vector_width = 8>
tile.kernel @mxfp4(%x: memref<?x2880xbf16>, %w: memref<32x5760x1440xi8>, %b: memref<32x5760x90xf8E8M0FNU>,
    %o: memref<33xi32>, %s: memref<?xi32>, %y: memref<?x2880xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x2880xbf16>, memref<32x5760x1440xi8>)
      weight_scale(%b : memref<32x5760x90xf8E8M0FNU>) offsets(%o : memref<33xi32>) source(%s : memref<?xi32>)
      outs(%y : memref<?x2880xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %0 = arith.mulf %g, %u : f32
        tile.yield %0 : f32
      } {layout = #moe.weight_layout<order = interleaved>,
         weight_quant = #moe.quant<storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs>}
  tile.return
}

// -----

// CHECK-LABEL: tile.kernel @nvfp4
// CHECK: config = #tile.sm80_gemm<block_m = 64, block_n = 64, block_k = 64, vector_width = 8>
tile.kernel @nvfp4(%x: memref<?x256xbf16>, %w: memref<4x96x128xi8>, %b: memref<4x96x16xf8E4M3FN>, %e: memref<4x1xf32>,
    %o: memref<5xi32>, %y: memref<?x96xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<4x96x128xi8>)
      weight_scale(%b : memref<4x96x16xf8E4M3FN>) weight_global_scale(%e : memref<4x1xf32>)
      offsets(%o : memref<5xi32>) outs(%y : memref<?x96xbf16>)
      {weight_quant = #moe.quant<storage = f4E2M1FN, scale = f8E4M3FN, granularity = group, block = [1, 16], packing = pairs, second_scale = f32>}
  tile.return
}

// -----

// CHECK-LABEL: tile.kernel @int4_f32
// CHECK: config = #tile.sm80_gemm<block_m = 64, block_n = 64, block_k = 64, vector_width = 4>
tile.kernel @int4_f32(%x: memref<?x256xf32>, %w: memref<2048x128xi8>, %b: memref<2048x1xf32>, %y: memref<?x2048xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf32>, memref<2048x128xi8>) weight_scale(%b : memref<2048x1xf32>)
      outs(%y : memref<?x2048xf32>)
      {weight_quant = #moe.quant<storage = i4, scale = f32, granularity = channel, packing = pairs>}
  tile.return
}

// -----

// Both operands quantized, with 8 and 4 bits.
// CHECK-LABEL: tile.kernel @int8_int4
// CHECK: config = #tile.sm80_gemm<block_m = 64, block_n = 64, block_k = 128, vector_width = 4>
tile.kernel @int8_int4(%x: memref<?x256xi8>, %w: memref<4x2048x128xi8>, %a: memref<?x1xf32>, %b: memref<4x2048x1xf32>,
    %o: memref<5xi32>, %y: memref<?x2048xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xi8>, memref<4x2048x128xi8>) input_scale(%a : memref<?x1xf32>)
      weight_scale(%b : memref<4x2048x1xf32>) offsets(%o : memref<5xi32>) outs(%y : memref<?x2048xf32>)
      {input_quant = #moe.quant<storage = i8, scale = f32, granularity = token, dynamic = true>,
       weight_quant = #moe.quant<storage = i4, scale = f32, granularity = channel, packing = pairs>}
  tile.return
}
