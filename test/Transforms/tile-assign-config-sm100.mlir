// Ops that sm100.gemm is chosen for, and reasons for others.
// RUN: moe-opt %s --tile-assign-config=target=sm_100a --remarks-filter=tile-assign-config --remark-format=emitRemark --remark-policy=all 2> %t | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK --input-file %t

#rows = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 32], dynamic = true, power_of_two = true>
#floats = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 32], dynamic = true>
#weights = #moe.quant<storage = f8E4M3FN, scale = f8E8M0FNU, granularity = group, block = [1, 32]>

// A box has 128 rows of gate or of up: two accumulators and four stages of scales take 496 columns of tensor memory.
// CHECK-LABEL: tile.kernel @gate_up
// CHECK-SAME: block = 320 : i64
// CHECK-SAME: grid = #plan.expr<"768">
// CHECK-SAME: tensor_maps = [#tile.tensor_map<argument = 1, sizes = [128, 2, 768, 2048], along = [0, 1, 1, 2], steps = [1, 768, 1, 1], box = [1, 1, 128, 128], swizzle = 128>]
// CHECK: #tile.sm100_gemm<block_m = 112, block_n = 128, stages = 4>
// REMARK: Passed{{.*}}sm100.gemm{{.*}}Function=gate_up
tile.kernel @gate_up(%x: memref<?x2048xf8E4M3FN>, %w: memref<128x1536x2048xf8E4M3FN>, %a: memref<?x64xf32>,
    %b: memref<128x1536x64xf8E8M0FNU>, %o: memref<129xi32>, %s: memref<?xi32>, %y: memref<?x768xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x2048xf8E4M3FN>, memref<128x1536x2048xf8E4M3FN>)
      input_scale(%a : memref<?x64xf32>) weight_scale(%b : memref<128x1536x64xf8E8M0FNU>)
      offsets(%o : memref<129xi32>) source(%s : memref<?xi32>) outs(%y : memref<?x768xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %1 = arith.mulf %g, %u : f32
        tile.yield %1 : f32
      } {layout = #moe.weight_layout<order = gate_up>, input_quant = #rows, weight_quant = #weights}
  tile.return
}

// Without gate and up a CTA has two blocks of neighbours.
// CHECK-LABEL: tile.kernel @down
// CHECK-SAME: grid = #plan.expr<"1024">
// CHECK-SAME: tensor_maps = [#tile.tensor_map<argument = 1, sizes = [128, 2048, 768], along = [0, 1, 2], steps = [1, 1, 1], box = [1, 128, 128], swizzle = 128>]
// CHECK: #tile.sm100_gemm<block_m = 112, block_n = 256, stages = 4>
tile.kernel @down(%x: memref<?x768xf8E4M3FN>, %w: memref<128x2048x768xf8E4M3FN>, %a: memref<?x24xf32>,
    %b: memref<128x2048x24xf8E8M0FNU>, %o: memref<129xi32>, %y: memref<?x2048xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x768xf8E4M3FN>, memref<128x2048x768xf8E4M3FN>)
      input_scale(%a : memref<?x24xf32>) weight_scale(%b : memref<128x2048x24xf8E8M0FNU>)
      offsets(%o : memref<129xi32>) outs(%y : memref<?x2048xbf16>) {input_quant = #rows, weight_quant = #weights}
  tile.return
}

// Few columns are one block, with which more rows and stages fit.
// CHECK-LABEL: tile.kernel @dense
// CHECK-SAME: grid = #plan.expr<"ceildiv(tokens, 128)">
// CHECK-SAME: tensor_maps = [#tile.tensor_map<argument = 1, sizes = [96, 256], along = [0, 1], steps = [1, 1], box = [128, 128], swizzle = 128>]
// CHECK: #tile.sm100_gemm<block_m = 128, block_n = 128, stages = 6>
tile.kernel @dense(%x: memref<?x256xf8E4M3FN>, %w: memref<96x256xf8E4M3FN>, %a: memref<?x8xf32>,
    %b: memref<96x8xf8E8M0FNU>, %y: memref<?x96xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<96x256xf8E4M3FN>)
      input_scale(%a : memref<?x8xf32>) weight_scale(%b : memref<96x8xf8E8M0FNU>)
      outs(%y : memref<?x96xf32>) {input_quant = #rows, weight_quant = #weights}
  tile.return
}

// CHECK-LABEL: tile.kernel @interleaved
// CHECK-SAME: tensor_maps = [#tile.tensor_map<argument = 1, sizes = [2, 128, 128], along = [0, 0, 1], steps = [1, 2, 1], box = [1, 128, 128], swizzle = 128>]
// CHECK: #tile.sm100_gemm
tile.kernel @interleaved(%x: memref<?x128xf8E4M3FN>, %w: memref<256x128xf8E4M3FN>, %a: memref<?x4xf32>,
    %b: memref<256x4xf8E8M0FNU>, %y: memref<?x128xf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x128xf8E4M3FN>, memref<256x128xf8E4M3FN>)
      input_scale(%a : memref<?x4xf32>) weight_scale(%b : memref<256x4xf8E8M0FNU>)
      outs(%y : memref<?x128xf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %1 = arith.mulf %g, %u : f32
        tile.yield %1 : f32
      } {layout = #moe.weight_layout<order = interleaved>, input_quant = #rows, weight_quant = #weights}
  tile.return
}

// CHECK-LABEL: tile.kernel @no_powers
// CHECK: #tile.sm80_gemm
// REMARK: Missed{{.*}}sm100.gemm{{.*}}Function=no_powers{{.*}}block-scaled tensor cores multiply f8E4M3FN inputs with f8E4M3FN or f4E2M1FN weights in groups of [1, 32]
tile.kernel @no_powers(%x: memref<?x256xf8E4M3FN>, %w: memref<96x256xf8E4M3FN>, %a: memref<?x8xf32>,
    %b: memref<96x8xf8E8M0FNU>, %y: memref<?x96xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<96x256xf8E4M3FN>)
      input_scale(%a : memref<?x8xf32>) weight_scale(%b : memref<96x8xf8E8M0FNU>)
      outs(%y : memref<?x96xf32>) {input_quant = #floats, weight_quant = #weights}
  tile.return
}

// CHECK-LABEL: tile.kernel @plain
// CHECK: #tile.sm80_gemm
tile.kernel @plain(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>) outs(%y : memref<?x128xbf16>)
  tile.return
}
