// Configs of quantization and of e4m3 gemms on GPUs.
// RUN: moe-opt %s --tile-assign-config=target=sm_80 | FileCheck %s
// RUN: moe-opt %s --tile-assign-config=target=sm_80 | moe-opt --tile-to-nvvm=target=sm_80 | FileCheck %s --check-prefix=ARITHMETIC
// RUN: moe-opt %s --tile-assign-config=target=sm_90a | FileCheck %s --check-prefix=HOPPER
// RUN: moe-opt %s --tile-assign-config=target=sm_90a | moe-opt --tile-to-nvvm=target=sm_90a | FileCheck %s --check-prefix=CONVERT

// Two groups of 128 per warp, four vectors per thread.
// CHECK-LABEL: tile.kernel @quantize
// CHECK-SAME: block = 128 : i64
// CHECK-SAME: grid = #plan.expr<"ceildiv(tokens * 56, 32)">
// CHECK-SAME: shared = 0 : i64
// CHECK: #tile.gpu_quantize<elements_per_cta = 4096, vector_width = 8>
// ARITHMETIC-LABEL: llvm.func @quantize
// ARITHMETIC-NOT: convert.f32x2
// CONVERT-LABEL: llvm.func @quantize
// CONVERT: nvvm.convert.f32x2.to.f8x2 {{.*}}rnd = #nvvm.fp_rnd_mode<rn>, sat = #nvvm.sat_mode<satfinite>{{.*}}f8E4M3FN
tile.kernel @quantize(%x: memref<?x7168xbf16>, %q: memref<?x7168xf8E4M3FN>, %s: memref<?x56xf32>,
    %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%x : memref<?x7168xbf16>)
      outs(%q, %s : memref<?x7168xf8E4M3FN>, memref<?x56xf32>)
  tile.return
}

// Rows of positions; the last group has 72 columns.
// CHECK-LABEL: tile.kernel @quantize_positions
// CHECK-SAME: grid = #plan.expr<"ceildiv(tokens * 16, 32)">
// CHECK: #tile.gpu_quantize<elements_per_cta = 4096, vector_width = 8>
tile.kernel @quantize_positions(%x: memref<?x200xbf16>, %o: memref<9xi32>,
    %q: memref<?x200xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%x : memref<?x200xbf16>) offsets(%o : memref<9xi32>)
      outs(%q, %s : memref<?x200xf8E4M3FN>, memref<?x2xf32>) {top_k = 8 : i64}
  tile.return
}

// Odd rows: elements one by one, a warp per group.
// CHECK-LABEL: tile.kernel @quantize_odd
// CHECK: #tile.gpu_quantize<elements_per_cta = 512, vector_width = 1>
tile.kernel @quantize_odd(%x: memref<?x37xbf16>, %q: memref<?x37xf8E4M3FN>, %s: memref<?x1xf32>,
    %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%x : memref<?x37xbf16>)
      outs(%q, %s : memref<?x37xf8E4M3FN>, memref<?x1xf32>)
  tile.return
}

// CHECK-LABEL: tile.kernel @odd_rows
// CHECK: #tile.sm80_gemm<block_m = 64, block_n = 32, block_k = 128, vector_width = 1>
// ARITHMETIC-LABEL: llvm.func @odd_rows
// ARITHMETIC-NOT: convert.f8x2
// ARITHMETIC: nvvm.mma.sync {{.*}}(vector<2xf16>, vector<2xf16>, f32)
// CONVERT-LABEL: llvm.func @odd_rows
// CONVERT: nvvm.convert.f8x2.to.f16x2 {{.*}}(f8E4M3FN)
// CONVERT: nvvm.mma.sync {{.*}}(vector<2xf16>, vector<2xf16>, f32)
tile.kernel @odd_rows(%x: memref<?x200xf8E4M3FN>, %w: memref<37x200xf8E4M3FN>, %a: memref<?x2xf32>,
    %b: memref<1x2xf32>, %y: memref<?x37xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x200xf8E4M3FN>, memref<37x200xf8E4M3FN>)
      input_scale(%a : memref<?x2xf32>) weight_scale(%b : memref<1x2xf32>) outs(%y : memref<?x37xf32>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>}
  tile.return
}

// A k tile has 128 elements; its sums take as many registers as a block of weights, so BLOCK_M is smaller. Sums of
// each k tile start from 0. Scales are copied four bytes at a time.
// HOPPER-LABEL: tile.kernel @gate_up
// HOPPER-SAME: tensor_maps = [#tile.tensor_map<argument = 1, sizes = [4, 96, 2, 8, 2048], along = [0, 1, 1, 1, 2], steps = [1, 8, 768, 1, 1], box = [1, 16, 2, 8, 128], swizzle = 128>]
// HOPPER: #tile.sm90_gemm<block_m = [16, 32, 64, 112], block_n = 128, block_k = 128, stages = 4>
// CONVERT-LABEL: llvm.func @gate_up
// CONVERT-DAG: nvvm.cp.async.shared.global {{.*}}, 4, cache = {{ *}}ca
// CONVERT-DAG: wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3
tile.kernel @gate_up(%x: memref<?x2048xf8E4M3FN>, %w: memref<4x1536x2048xf8E4M3FN>,
    %a: memref<?x16xf32>, %b: memref<4x12x16xf32>, %o: memref<5xi32>, %s: memref<?xi32>,
    %y: memref<?x768xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x2048xf8E4M3FN>, memref<4x1536x2048xf8E4M3FN>)
      input_scale(%a : memref<?x16xf32>) weight_scale(%b : memref<4x12x16xf32>) offsets(%o : memref<5xi32>)
      source(%s : memref<?xi32>) outs(%y : memref<?x768xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %1 = arith.mulf %g, %u : f32
        tile.yield %1 : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, layout = #moe.weight_layout<order = gate_up>}
  tile.return
}

// A CTA quantizes one row at a time.
// CHECK-LABEL: tile.kernel @quantize_tokens
// CHECK-SAME: grid = #plan.expr<"tokens">
// CHECK: #tile.gpu_quantize<elements_per_cta = 1024, vector_width = 8>
tile.kernel @quantize_tokens(%x: memref<?x7168xbf16>, %q: memref<?x7168xf8E4M3FN>, %s: memref<?x1xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true> tokens(%t) ins(%x : memref<?x7168xbf16>)
      outs(%q, %s : memref<?x7168xf8E4M3FN>, memref<?x1xf32>)
  tile.return
}

// Scales of whole rows use tensor cores on Hopper, too. A tensor has one scale per half.
// CHECK-LABEL: tile.kernel @whole_rows
// CHECK: #tile.sm80_gemm<block_m = 64, block_n = 64, block_k = 128, vector_width = 8>
// HOPPER-LABEL: tile.kernel @whole_rows
// HOPPER: #tile.sm90_gemm<block_m = [{{.*}}], block_n = 128, block_k = 128
tile.kernel @whole_rows(%x: memref<?x256xf8E4M3FN>, %w: memref<4x512x256xf8E4M3FN>, %a: memref<?x1xf32>, %b: memref<4x2x1xf32>,
    %o: memref<5xi32>, %y: memref<?x256xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<4x512x256xf8E4M3FN>)
      input_scale(%a : memref<?x1xf32>) weight_scale(%b : memref<4x2x1xf32>) offsets(%o : memref<5xi32>) outs(%y : memref<?x256xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %1 = arith.mulf %g, %u : f32
        tile.yield %1 : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>, layout = #moe.weight_layout<order = gate_up>}
  tile.return
}

// Only weights are dequantized. With scales of columns inside the loop, BLOCK_M is smaller.
// CHECK-LABEL: tile.kernel @weights_alone
// CHECK: #tile.sm80_gemm<block_m = 32, block_n = 64, block_k = 64, vector_width = 8>
// HOPPER-LABEL: tile.kernel @weights_alone
// HOPPER: #tile.sm80_gemm<block_m = 32, block_n = 64, block_k = 64, vector_width = 8>
tile.kernel @weights_alone(%x: memref<?x256xbf16>, %w: memref<4x512x256xf8E4M3FN>, %b: memref<4x512x8xf32>,
    %o: memref<5xi32>, %y: memref<?x256xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<4x512x256xf8E4M3FN>)
      weight_scale(%b : memref<4x512x8xf32>) offsets(%o : memref<5xi32>) outs(%y : memref<?x256xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %1 = arith.mulf %g, %u : f32
        tile.yield %1 : f32
      } {weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 32]>, layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
