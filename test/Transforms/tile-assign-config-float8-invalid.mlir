// RUN: moe-opt %s --tile-assign-config=target=sm_90a --split-input-file --verify-diagnostics

tile.kernel @n_tile(%x: memref<?x256xbf16>, %q: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  // expected-error @+1 {{elements_per_cta = 1000; give a multiple of 1024 up to 8192}}
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%x : memref<?x256xbf16>)
      outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
      {config = #tile.gpu_quantize<elements_per_cta = 1000, vector_width = 8>}
  tile.return
}

// -----

tile.kernel @lanes(%x: memref<?x260xbf16>, %q: memref<?x260xf8E4M3FN>, %s: memref<?x3xf32>, %t: i64) {
  // expected-error @+1 {{vector_width = 8; give a divisor of 4}}
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%x : memref<?x260xbf16>)
      outs(%q, %s : memref<?x260xf8E4M3FN>, memref<?x3xf32>)
      {config = #tile.gpu_quantize<elements_per_cta = 1024, vector_width = 8>}
  tile.return
}

// -----

tile.kernel @depth(%x: memref<?x256xf8E4M3FN>, %w: memref<256x256xf8E4M3FN>, %a: memref<?x2xf32>,
    %b: memref<2x2xf32>, %y: memref<?x256xf32>, %t: i64) {
  // expected-error @+1 {{block_k = 32 is 32 bytes per row; give 64 or 128 bytes}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<256x256xf8E4M3FN>)
      input_scale(%a : memref<?x2xf32>) weight_scale(%b : memref<2x2xf32>) outs(%y : memref<?x256xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, config = #tile.sm80_gemm<block_m = 32, block_n = 32, block_k = 32, vector_width = 4>}
  tile.return
}

// -----

// Elements of 1 byte next to elements of 4: in a step of 16 a row of weights is one chunk.
tile.kernel @chunks(%x: memref<?x256xf32>, %w: memref<256x256xf8E4M3FN>, %b: memref<256x1xf32>,
    %y: memref<?x256xf32>, %t: i64) {
  // expected-error @+1 {{block_n = 32 with block_k = 16; give a multiple of the 128 rows that are copied at once}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf32>, memref<256x256xf8E4M3FN>)
      weight_scale(%b : memref<256x1xf32>) outs(%y : memref<?x256xf32>)
      {weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>,
       config = #tile.sm80_gemm<block_m = 32, block_n = 32, block_k = 16, vector_width = 4>}
  tile.return
}

// -----

tile.kernel @parts(%x: memref<?x256xf32>, %w: memref<256x256xf8E4M3FN>, %b: memref<256x1xf32>,
    %y: memref<?x256xf32>, %t: i64) {
  // expected-error @+1 {{block_k = 16; give a multiple of the 32 elements that are dequantized at once}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf32>, memref<256x256xf8E4M3FN>)
      weight_scale(%b : memref<256x1xf32>) outs(%y : memref<?x256xf32>)
      {weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>,
       config = #tile.sm80_gemm<block_m = 32, block_n = 128, block_k = 16, vector_width = 4>}
  tile.return
}

// -----

tile.kernel @groups(%x: memref<?x256xbf16>, %w: memref<256x256xf8E4M3FN>, %b: memref<256x32xf32>,
    %y: memref<?x256xf32>, %t: i64) {
  // expected-error @+1 {{the weight is quantized in a way that is not dequantized here; supported are f8E4M3FN or i8, or f4E2M1FN, code books or i4 in pairs, with scales per row or in groups of a multiple of 32 (groups of 16 for 8-bit weights and for f4E2M1FN with f8E4M3FN scales)}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<256x256xf8E4M3FN>)
      weight_scale(%b : memref<256x32xf32>) outs(%y : memref<?x256xf32>)
      {weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 8]>,
       config = #tile.sm80_gemm<block_m = 32, block_n = 32, block_k = 64, vector_width = 4>}
  tile.return
}

// -----

tile.kernel @registers(%x: memref<?x256xf8E4M3FN>, %w: memref<256x256xf8E4M3FN>, %a: memref<?x2xf32>,
    %b: memref<2x2xf32>, %y: memref<?x256xf32>, %t: i64) {
  // expected-error @+1 {{block_m = 128, block_n = 128 needs 256 accumulators per thread; give at most 128}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<256x256xf8E4M3FN>)
      input_scale(%a : memref<?x2xf32>) weight_scale(%b : memref<2x2xf32>) outs(%y : memref<?x256xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, config = #tile.sm80_gemm<block_m = 128, block_n = 128, block_k = 128, vector_width = 4>}
  tile.return
}

// -----

tile.kernel @step(%x: memref<?x256xf8E4M3FN>, %w: memref<256x256xf8E4M3FN>, %a: memref<?x2xf32>,
    %b: memref<2x2xf32>, %y: memref<?x256xf32>, %t: i64) {
  // expected-error @+1 {{block_k = 64; give 128}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<256x256xf8E4M3FN>)
      input_scale(%a : memref<?x2xf32>) weight_scale(%b : memref<2x2xf32>) outs(%y : memref<?x256xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, config = #tile.sm90_gemm<block_m = [64], block_n = 256, block_k = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @block_ms(%x: memref<?x256xf8E4M3FN>, %w: memref<256x256xf8E4M3FN>, %a: memref<?x2xf32>,
    %b: memref<2x2xf32>, %y: memref<?x256xf32>, %t: i64) {
  // expected-error @+1 {{block_n = 256, block_m up to 128 needs 192 accumulators per thread; give at most 168}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<256x256xf8E4M3FN>)
      input_scale(%a : memref<?x2xf32>) weight_scale(%b : memref<2x2xf32>) outs(%y : memref<?x256xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, config = #tile.sm90_gemm<block_m = [128], block_n = 256, block_k = 128, stages = 4>}
  tile.return
}

// -----

tile.kernel @quantized_columns(%x: memref<?x256xf8E4M3FN>, %w: memref<4x256x256xf8E4M3FN>, %a: memref<?x2xf32>, %b: memref<4x2x2xf32>,
    %o: memref<5xi32>, %y: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  // expected-error @+1 {{block_n = 256, but a CTA that quantizes needs the columns of one group; give 128}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<4x256x256xf8E4M3FN>)
      input_scale(%a : memref<?x2xf32>) weight_scale(%b : memref<4x2x2xf32>) offsets(%o : memref<5xi32>)
      outs(%y : memref<?x256xf8E4M3FN>) result_scale(%s : memref<?x2xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, rounded_to = bf16, config = #tile.sm90_gemm<block_m = [16], block_n = 256, block_k = 128, stages = 3>}
  tile.return
}

// -----

tile.kernel @half_a_group(%x: memref<?x256xf8E4M3FN>, %w: memref<4x192x256xf8E4M3FN>, %a: memref<?x2xf32>, %b: memref<4x2x2xf32>,
    %o: memref<5xi32>, %y: memref<?x192xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  // expected-error @+1 {{the result has 192 columns, but a CTA quantizes whole groups of 128}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<4x192x256xf8E4M3FN>)
      input_scale(%a : memref<?x2xf32>) weight_scale(%b : memref<4x2x2xf32>) offsets(%o : memref<5xi32>)
      outs(%y : memref<?x192xf8E4M3FN>) result_scale(%s : memref<?x2xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, rounded_to = bf16, config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 128, stages = 3>}
  tile.return
}

// -----

tile.kernel @quantized_elsewhere(%x: memref<?x256xf8E4M3FN>, %w: memref<4x256x256xf8E4M3FN>, %a: memref<?x2xf32>, %b: memref<4x2x2xf32>,
    %o: memref<5xi32>, %y: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  // expected-error @+1 {{this schedule quantizes no results; use a tile.quantize of the result}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<4x256x256xf8E4M3FN>)
      input_scale(%a : memref<?x2xf32>) weight_scale(%b : memref<4x2x2xf32>) offsets(%o : memref<5xi32>)
      outs(%y : memref<?x256xf8E4M3FN>) result_scale(%s : memref<?x2xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, rounded_to = bf16, config = #tile.sm80_gemm<block_m = 32, block_n = 32, block_k = 128, vector_width = 8>}
  tile.return
}
