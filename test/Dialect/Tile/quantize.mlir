// RUN: moe-opt %s | moe-opt | FileCheck %s
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | FileCheck %s

// CHECK-LABEL: tile.kernel @quantize
tile.kernel @quantize(%x: memref<?x200xbf16>, %q: memref<?x200xf8E4M3FN>, %s: memref<?x2xf32>,
    %offsets: memref<5xi32>, %h: memref<?x256xf16>, %r: memref<?x256xf8E4M3FN>, %t: memref<?x2xf32>,
    %tokens: i64) {
  // CHECK: tile.quantize <{{.*}}> tokens(%tokens) ins(%{{[a-z0-9]+}} : memref<?x200xbf16>) outs(%{{[a-z0-9]+}}, %{{[a-z0-9]+}} : memref<?x200xf8E4M3FN>, memref<?x2xf32>){{$}}
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%tokens) ins(%x : memref<?x200xbf16>)
      outs(%q, %s : memref<?x200xf8E4M3FN>, memref<?x2xf32>)
  // CHECK: tile.quantize <{{.*}}> tokens(%tokens) ins(%{{[a-z0-9]+}} : memref<?x256xf16>) offsets(%{{[a-z0-9]+}} : memref<5xi32>)
  // CHECK-SAME: {config = #tile.cpu_quantize<lanes = 8, rows_per_cta = 4>, top_k = 2 : i64}
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%tokens) ins(%h : memref<?x256xf16>) offsets(%offsets : memref<5xi32>)
      outs(%r, %t : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
      {top_k = 2 : i64, config = #tile.cpu_quantize<lanes = 8, rows_per_cta = 4>}
  tile.return
}

// CHECK-LABEL: tile.kernel @one_scale
tile.kernel @one_scale(%x: memref<?x200xbf16>, %q: memref<?x200xf8E4M3FN>, %s: memref<1xf32>,
    %offsets: memref<5xi32>, %n: memref<1xi32>, %w: memref<160x200xf8E4M3FN>, %b: memref<160x1xf32>,
    %y: memref<?x160xbf16>, %tokens: i64) {
  // CHECK: tile.tensor_scale <{{.*}}> tokens(%tokens) ins(%{{[a-z0-9]+}} : memref<?x200xbf16>) offsets(%{{[a-z0-9]+}} : memref<5xi32>) outs(%{{[a-z0-9]+}} : memref<1xf32>)
  // CHECK-SAME: {config = #tile.cpu_tensor_scale<lanes = 8>, top_k = 2 : i64}
  tile.tensor_scale <storage = f8E4M3FN, scale = f32, granularity = tensor, dynamic = true> tokens(%tokens)
      ins(%x : memref<?x200xbf16>) offsets(%offsets : memref<5xi32>) outs(%s : memref<1xf32>)
      {top_k = 2 : i64, config = #tile.cpu_tensor_scale<lanes = 8>}
  // CHECK: tile.tensor_scale {{.*}} num_valid_tokens(%{{[a-z0-9]+}} : memref<1xi32>) outs(
  tile.tensor_scale <storage = f8E4M3FN, scale = f32, granularity = tensor, dynamic = true> tokens(%tokens)
      ins(%x : memref<?x200xbf16>) num_valid_tokens(%n : memref<1xi32>) outs(%s : memref<1xf32>)
  // CHECK: tile.quantize <{{.*}}> tokens(%tokens) ins(%{{[a-z0-9]+}} : memref<?x200xbf16>) tensor_scale(%{{[a-z0-9]+}} : memref<1xf32>) outs(%{{[a-z0-9]+}} : memref<?x200xf8E4M3FN>){{$}}
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = tensor> tokens(%tokens) ins(%x : memref<?x200xbf16>)
      tensor_scale(%s : memref<1xf32>) outs(%q : memref<?x200xf8E4M3FN>)
  // CHECK: input_scale(%{{[a-z0-9]+}} : memref<1xf32>)
  // CHECK-SAME: strategy = #moe.strategy<dequantize>
  tile.gemm tokens(%tokens) ins(%q, %w : memref<?x200xf8E4M3FN>, memref<160x200xf8E4M3FN>)
      input_scale(%s : memref<1xf32>) weight_scale(%b : memref<160x1xf32>)
      outs(%y : memref<?x160xbf16>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>,
       weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>, strategy = #moe.strategy<dequantize>}
  tile.return
}

// CHECK-LABEL: tile.kernel @contract
tile.kernel @contract(%q: memref<?x200xf8E4M3FN>, %s: memref<?x2xf32>,
    %w: memref<4x160x200xf8E4M3FN, strided<[?, ?, 1]>>, %b: memref<4x2x2xf32>, %offsets: memref<5xi32>,
    %source: memref<?xi32>, %y: memref<?x160xbf16>, %tokens: i64) {
  // CHECK: tile.gemm tokens(%tokens) ins(%{{[a-z0-9]+}}, %{{[a-z0-9]+}} : memref<?x200xf8E4M3FN>, memref<4x160x200xf8E4M3FN, strided<[?, ?, 1]>>)
  // CHECK-SAME: input_scale(%{{[a-z0-9]+}} : memref<?x2xf32>) weight_scale(%{{[a-z0-9]+}} : memref<4x2x2xf32>)
  // CHECK-SAME: offsets(%{{[a-z0-9]+}} : memref<5xi32>) source(%{{[a-z0-9]+}} : memref<?xi32>)
  tile.gemm tokens(%tokens)
      ins(%q, %w : memref<?x200xf8E4M3FN>, memref<4x160x200xf8E4M3FN, strided<[?, ?, 1]>>)
      input_scale(%s : memref<?x2xf32>) weight_scale(%b : memref<4x2x2xf32>)
      offsets(%offsets : memref<5xi32>) source(%source : memref<?xi32>)
      outs(%y : memref<?x160xbf16>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>}
  tile.return
}

// A gemm that quantizes its result.
// CHECK-LABEL: tile.kernel @quantized_result
tile.kernel @quantized_result(%q: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %w: memref<4x300x256xf8E4M3FN>,
    %b: memref<4x4x2xf32>, %offsets: memref<5xi32>, %y: memref<?x150xf8E4M3FN>, %z: memref<?x2xf32>, %tokens: i64) {
  // CHECK: outs(%{{[a-z0-9]+}} : memref<?x150xf8E4M3FN>) result_scale(%{{[a-z0-9]+}} : memref<?x2xf32>) epilogue {
  // CHECK: rounded_to = bf16
  tile.gemm tokens(%tokens) ins(%q, %w : memref<?x256xf8E4M3FN>, memref<4x300x256xf8E4M3FN>)
      input_scale(%s : memref<?x2xf32>) weight_scale(%b : memref<4x4x2xf32>) offsets(%offsets : memref<5xi32>)
      outs(%y : memref<?x150xf8E4M3FN>) result_scale(%z : memref<?x2xf32>) epilogue {
      ^bb0(%gate: f32, %up: f32):
        %p = arith.mulf %gate, %up : f32
        tile.yield %p : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, layout = #moe.weight_layout<order = gate_up>, result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, rounded_to = bf16}
  tile.return
}

// A gemm that quantizes its result by a given scale.
// CHECK-LABEL: tile.kernel @given_scale
tile.kernel @given_scale(%q: memref<?x256xi8>, %s: memref<1xf32>, %w: memref<4x256x256xi8>,
    %b: memref<4x256x1xf32>, %offsets: memref<5xi32>, %g: memref<1xf32>, %y: memref<?x256xi8>, %tokens: i64) {
  // CHECK: result_tensor_scale(%{{[a-z0-9]+}} : memref<1xf32>) outs(%{{[a-z0-9]+}} : memref<?x256xi8>)
  // CHECK-SAME: rounded_to = f16
  tile.gemm tokens(%tokens) ins(%q, %w : memref<?x256xi8>, memref<4x256x256xi8>)
      input_scale(%s : memref<1xf32>) weight_scale(%b : memref<4x256x1xf32>) offsets(%offsets : memref<5xi32>)
      result_tensor_scale(%g : memref<1xf32>) outs(%y : memref<?x256xi8>) {input_quant = #moe.quant<storage = i8, scale = f32, granularity = tensor>, weight_quant = #moe.quant<storage = i8, scale = f32, granularity = channel>, result_quant = #moe.quant<storage = i8, scale = f32, granularity = tensor>, rounded_to = f16}
  tile.return
}

// CHECK-LABEL: tile.kernel @rows_of_a_gemm
tile.kernel @rows_of_a_gemm(%x: memref<?x256xf16>, %w: memref<256x256xf8E4M3FN>, %b: memref<2x2xf32>, %y: memref<?x256xf16>, %tokens: i64) {
  // CHECK: tile.gemm tokens(%tokens) ins(%{{[a-z0-9]+}}, %{{[a-z0-9]+}} : memref<?x256xf16>, memref<256x256xf8E4M3FN>) weight_scale(
  // CHECK-SAME: input_quant = #moe.quant<{{[^>]*}}dynamic = true>, quantizes_input, weight_quant
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x256xf16>, memref<256x256xf8E4M3FN>)
      weight_scale(%b : memref<2x2xf32>)
      outs(%y : memref<?x256xf16>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, quantizes_input}
  tile.return
}
