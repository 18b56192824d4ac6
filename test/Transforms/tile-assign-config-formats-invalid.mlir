// Configs that weights of few bits cannot have.
// RUN: moe-opt %s --split-input-file --verify-diagnostics --tile-assign-config=target=sm_80

tile.kernel @rows(%x: memref<?x48xbf16>, %w: memref<256x24xi8>, %b: memref<256x1xf32>, %y: memref<?x256xf32>, %t: i64) {
  // expected-error @+1 {{a row has 48 4-bit elements; give a multiple of 32}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x48xbf16>, memref<256x24xi8>) weight_scale(%b : memref<256x1xf32>)
      outs(%y : memref<?x256xf32>)
      {weight_quant = #moe.quant<storage = i4, scale = f32, granularity = channel, packing = pairs>,
       config = #tile.sm80_gemm<block_m = 32, block_n = 64, block_k = 64, vector_width = 4>}
  tile.return
}

// -----

tile.kernel @step(%x: memref<?x256xf32>, %w: memref<256x128xi8>, %b: memref<256x1xf32>, %y: memref<?x256xf32>, %t: i64) {
  // expected-error @+1 {{block_k = 32 is 128 bytes per row; give 256 bytes}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf32>, memref<256x128xi8>) weight_scale(%b : memref<256x1xf32>)
      outs(%y : memref<?x256xf32>)
      {weight_quant = #moe.quant<storage = i4, scale = f32, granularity = channel, packing = pairs>,
       config = #tile.sm80_gemm<block_m = 32, block_n = 64, block_k = 32, vector_width = 4>}
  tile.return
}

// -----

// Values times 16 must be exact in 16 bits.
tile.kernel @groups(%x: memref<?x256xbf16>, %w: memref<256x128xi8>, %b: memref<256x16xf32>, %y: memref<?x256xf32>, %t: i64) {
  // expected-error @+1 {{the weight is quantized in a way that is not dequantized here; supported are f8E4M3FN or i8, or f4E2M1FN, code books or i4 in pairs, with scales per row or in groups of a multiple of 32 (groups of 16 for 8-bit weights and for f4E2M1FN with f8E4M3FN scales)}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<256x128xi8>) weight_scale(%b : memref<256x16xf32>)
      outs(%y : memref<?x256xf32>)
      {weight_quant = #moe.quant<storage = f4E2M1FN, scale = f32, granularity = group, block = [1, 16], packing = pairs>,
       config = #tile.sm80_gemm<block_m = 32, block_n = 64, block_k = 64, vector_width = 4>}
  tile.return
}
