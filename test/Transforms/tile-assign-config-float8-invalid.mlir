// RUN: moe-opt %s --tile-assign-config=target=sm_90a --split-input-file --verify-diagnostics

tile.kernel @panel(%x: memref<?x256xbf16>, %q: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  // expected-error @+1 {{panel = 1000; give a multiple of 1024 up to 8192}}
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%x : memref<?x256xbf16>)
      outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
      {config = #tile.config<schedule = "sm80.quantize", panel = 1000, lanes = 8>}
  tile.return
}

// -----

tile.kernel @lanes(%x: memref<?x260xbf16>, %q: memref<?x260xf8E4M3FN>, %s: memref<?x3xf32>, %t: i64) {
  // expected-error @+1 {{lanes = 8; give a divisor of 4}}
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%x : memref<?x260xbf16>)
      outs(%q, %s : memref<?x260xf8E4M3FN>, memref<?x3xf32>)
      {config = #tile.config<schedule = "sm80.quantize", panel = 1024, lanes = 8>}
  tile.return
}

// -----

tile.kernel @depth(%x: memref<?x256xf8E4M3FN>, %w: memref<256x256xf8E4M3FN>, %a: memref<?x2xf32>,
    %b: memref<2x2xf32>, %y: memref<?x256xf32>, %t: i64) {
  // expected-error @+1 {{k = 32 is 32 bytes of a row; give 64 or 128 bytes}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<256x256xf8E4M3FN>)
      input_scale(%a : memref<?x2xf32>) weight_scale(%b : memref<2x2xf32>) outs(%y : memref<?x256xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, config = #tile.config<schedule = "sm80.contract", m = 32, n = 32, k = 32, lanes = 4>}
  tile.return
}

// -----

// Elements of 1 byte next to elements of 4: in a step of 16 a row of weights is one piece.
tile.kernel @pieces(%x: memref<?x256xf32>, %w: memref<256x256xf8E4M3FN>, %b: memref<256x1xf32>,
    %y: memref<?x256xf32>, %t: i64) {
  // expected-error @+1 {{n = 32 with k = 16; give a multiple of the 128 rows that are copied at a time}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x256xf32>, memref<256x256xf8E4M3FN>)
      weight_scale(%b : memref<256x1xf32>) outs(%y : memref<?x256xf32>)
      {weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>,
       config = #tile.config<schedule = "sm80.contract", m = 32, n = 32, k = 16, lanes = 4>}
  tile.return
}

// -----

tile.kernel @parts(%x: memref<?x256xf32>, %w: memref<256x256xf8E4M3FN>, %b: memref<256x1xf32>,
    %y: memref<?x256xf32>, %t: i64) {
  // expected-error @+1 {{k = 16; give a multiple of the 32 elements that are decoded at once}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x256xf32>, memref<256x256xf8E4M3FN>)
      weight_scale(%b : memref<256x1xf32>) outs(%y : memref<?x256xf32>)
      {weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>,
       config = #tile.config<schedule = "sm80.contract", m = 32, n = 128, k = 16, lanes = 4>}
  tile.return
}

// -----

tile.kernel @groups(%x: memref<?x256xbf16>, %w: memref<256x256xf8E4M3FN>, %b: memref<256x16xf32>,
    %y: memref<?x256xf32>, %t: i64) {
  // expected-error @+1 {{the weight is quantized otherwise than is decoded: f8E4M3FN with f32 scales of whole rows, or of multiples of 32 neighbours}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<256x256xf8E4M3FN>)
      weight_scale(%b : memref<256x16xf32>) outs(%y : memref<?x256xf32>)
      {weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 16]>,
       config = #tile.config<schedule = "sm80.contract", m = 32, n = 32, k = 64, lanes = 4>}
  tile.return
}

// -----

tile.kernel @registers(%x: memref<?x256xf8E4M3FN>, %w: memref<256x256xf8E4M3FN>, %a: memref<?x2xf32>,
    %b: memref<2x2xf32>, %y: memref<?x256xf32>, %t: i64) {
  // expected-error @+1 {{m = 128, n = 128 needs 256 accumulators per thread; give at most 128}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<256x256xf8E4M3FN>)
      input_scale(%a : memref<?x2xf32>) weight_scale(%b : memref<2x2xf32>) outs(%y : memref<?x256xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, config = #tile.config<schedule = "sm80.contract", m = 128, n = 128, k = 128, lanes = 4>}
  tile.return
}

// -----

tile.kernel @step(%x: memref<?x256xf8E4M3FN>, %w: memref<256x256xf8E4M3FN>, %a: memref<?x2xf32>,
    %b: memref<2x2xf32>, %y: memref<?x256xf32>, %t: i64) {
  // expected-error @+1 {{k = 64; give 128}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<256x256xf8E4M3FN>)
      input_scale(%a : memref<?x2xf32>) weight_scale(%b : memref<2x2xf32>) outs(%y : memref<?x256xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, config = #tile.config<schedule = "sm90.contract", n = 256, k = 64, stages = 4, bodies = [64]>}
  tile.return
}

// -----

tile.kernel @bodies(%x: memref<?x256xf8E4M3FN>, %w: memref<256x256xf8E4M3FN>, %a: memref<?x2xf32>,
    %b: memref<2x2xf32>, %y: memref<?x256xf32>, %t: i64) {
  // expected-error @+1 {{n = 256, bodies up to 128 needs 192 accumulators per thread; give at most 168}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<256x256xf8E4M3FN>)
      input_scale(%a : memref<?x2xf32>) weight_scale(%b : memref<2x2xf32>) outs(%y : memref<?x256xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, config = #tile.config<schedule = "sm90.contract", n = 256, k = 128, stages = 4, bodies = [128]>}
  tile.return
}

// -----

tile.kernel @quantized_columns(%x: memref<?x256xf8E4M3FN>, %w: memref<4x256x256xf8E4M3FN>, %a: memref<?x2xf32>, %b: memref<4x2x2xf32>,
    %o: memref<5xi32>, %y: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  // expected-error @+1 {{n = 256, but the columns that share a scale of the result are those of a CTA; give 128}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<4x256x256xf8E4M3FN>)
      input_scale(%a : memref<?x2xf32>) weight_scale(%b : memref<4x2x2xf32>) offsets(%o : memref<5xi32>)
      outs(%y : memref<?x256xf8E4M3FN>) result_scale(%s : memref<?x2xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, rounded_to = bf16, config = #tile.config<schedule = "sm90.contract", n = 256, k = 128, stages = 3, bodies = [16]>}
  tile.return
}

// -----

tile.kernel @half_a_group(%x: memref<?x256xf8E4M3FN>, %w: memref<4x192x256xf8E4M3FN>, %a: memref<?x2xf32>, %b: memref<4x2x2xf32>,
    %o: memref<5xi32>, %y: memref<?x192xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  // expected-error @+1 {{the result has 192 columns, and a CTA quantizes whole groups of 128}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<4x192x256xf8E4M3FN>)
      input_scale(%a : memref<?x2xf32>) weight_scale(%b : memref<4x2x2xf32>) offsets(%o : memref<5xi32>)
      outs(%y : memref<?x192xf8E4M3FN>) result_scale(%s : memref<?x2xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, rounded_to = bf16, config = #tile.config<schedule = "sm90.contract", n = 128, k = 128, stages = 3, bodies = [16]>}
  tile.return
}

// -----

tile.kernel @quantized_elsewhere(%x: memref<?x256xf8E4M3FN>, %w: memref<4x256x256xf8E4M3FN>, %a: memref<?x2xf32>, %b: memref<4x2x2xf32>,
    %o: memref<5xi32>, %y: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  // expected-error @+1 {{'result_scale' is written by sm90.contract alone; give a tile.quantize of the result}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<4x256x256xf8E4M3FN>)
      input_scale(%a : memref<?x2xf32>) weight_scale(%b : memref<4x2x2xf32>) offsets(%o : memref<5xi32>)
      outs(%y : memref<?x256xf8E4M3FN>) result_scale(%s : memref<?x2xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, rounded_to = bf16, config = #tile.config<schedule = "sm80.contract", m = 32, n = 32, k = 128, lanes = 8>}
  tile.return
}
