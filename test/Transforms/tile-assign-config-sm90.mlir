// Ops that sm90.gemm is chosen for, and reasons for others.
// RUN: moe-opt %s --tile-assign-config=target=sm_90a --remarks-filter=tile-assign-config --remark-format=emitRemark --remark-policy=all 2> %t | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK --input-file %t

// Gate, then up rows of every 8 columns, in the order of the map; one CTA per multiprocessor.
// CHECK-LABEL: tile.kernel @gate_up
// CHECK-SAME: block = 384 : i64
// CHECK-SAME: grid = #plan.expr<"132">
// CHECK-SAME: shared = 204880 : i64
// CHECK-SAME: tensor_maps = [#tile.tensor_map<argument = 1, sizes = [128, 96, 2, 8, 2048], along = [0, 1, 1, 1, 2], steps = [1, 8, 768, 1, 1], box = [1, 16, 2, 8, 64], swizzle = 128>]
// CHECK: #tile.sm90_gemm<block_m = [16, 32, 64, 96, 128], block_n = 128, block_k = 64, stages = 4>
// REMARK: Passed{{.*}}sm90.gemm{{.*}}Function=gate_up
tile.kernel @gate_up(%x: memref<?x2048xbf16>, %w: memref<128x1536x2048xbf16>, %o: memref<129xi32>,
    %s: memref<?xi32>, %y: memref<?x768xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x2048xbf16>, memref<128x1536x2048xbf16>)
      offsets(%o : memref<129xi32>) source(%s : memref<?xi32>) outs(%y : memref<?x768xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %1 = arith.mulf %g, %u : f32
        tile.yield %1 : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}

// CHECK-LABEL: tile.kernel @interleaved
// CHECK-SAME: tensor_maps = [#tile.tensor_map<argument = 1, sizes = [8, 2, 8, 64], along = [0, 0, 0, 1], steps = [16, 1, 2, 1], box = [16, 2, 8, 64], swizzle = 128>]
tile.kernel @interleaved(%x: memref<?x64xf16>, %w: memref<128x64xf16>, %y: memref<?x64xf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xf16>, memref<128x64xf16>)
      outs(%y : memref<?x64xf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %1 = arith.mulf %g, %u : f32
        tile.yield %1 : f32
      } {layout = #moe.weight_layout<order = interleaved>}
  tile.return
}

// Without gate and up a CTA has twice as many columns.
// CHECK-LABEL: tile.kernel @down
// CHECK-SAME: tensor_maps = [#tile.tensor_map<argument = 1, sizes = [128, 2048, 768], along = [0, 1, 2], steps = [1, 1, 1], box = [1, 256, 64], swizzle = 128>]
// CHECK: #tile.sm90_gemm<block_m = [16, 32, 64, 96, 128], block_n = 256, block_k = 64, stages = 4>
tile.kernel @down(%x: memref<?x768xbf16>, %w: memref<128x2048x768xbf16>, %o: memref<129xi32>,
    %y: memref<?x2048xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x768xbf16>, memref<128x2048x768xbf16>)
      offsets(%o : memref<129xi32>) outs(%y : memref<?x2048xbf16>)
  tile.return
}

// Rows from a workspace buffer are loaded by tensor maps, one per BLOCK_M.
// CHECK-LABEL: tile.kernel @from_buffer
// CHECK-SAME: tensor_maps = [#tile.tensor_map<argument = 1,
// CHECK-SAME: #tile.tensor_map<argument = 0, sizes = [?, 64], along = [0, 1], steps = [1, 1], box = [16, 64], swizzle = 128>, #tile.tensor_map<argument = 0, sizes = [?, 64], along = [0, 1], steps = [1, 1], box = [32, 64], swizzle = 128>]
// CHECK: map_rows
tile.kernel @from_buffer(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>)
  tile.return
}
tile.kernel @copy(%x: memref<?x64xbf16>, %y: memref<?x64xbf16>, %t: i64) {
  tile.row_map tokens(%t) ins(%x : memref<?x64xbf16>) outs(%y : memref<?x64xbf16>) {
    ^bb0(%v: f32):
      tile.yield %v : f32
    }
  tile.return
}
plan.program @layer max_tokens 64 {
  %w = plan.tensor weight "w" : memref<128x64xbf16>
  %in = plan.tensor input "in" rows <"tokens"> : memref<?x64xbf16>
  %x = plan.buffer "x" rows <"tokens"> : memref<?x64xbf16>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x128xbf16>
  plan.variant tokens 0 to 64 {
    plan.launch @copy ins(%in : memref<?x64xbf16>) outs(%x : memref<?x64xbf16>)
    plan.launch @from_buffer ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
        outs(%y : memref<?x128xbf16>)
  }
}

// A dense gemm with few columns has a small BLOCK_M, and no more CTAs than tiles.
// CHECK-LABEL: tile.kernel @router
// CHECK-SAME: grid = #plan.expr<"min(ceildiv(tokens, 32), 132)">
// CHECK-SAME: sizes = [128, 2048], along = [0, 1], steps = [1, 1], box = [128, 64]
// CHECK: #tile.sm90_gemm<block_m = [16, 32], block_n = 128, block_k = 64, stages = 8>
tile.kernel @router(%x: memref<?x2048xbf16>, %w: memref<128x2048xbf16>, %y: memref<?x128xf32>,
    %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x2048xbf16>, memref<128x2048xbf16>)
      outs(%y : memref<?x128xf32>)
  tile.return
}

// CHECK-LABEL: tile.kernel @f32
// CHECK-NOT: tensor_maps
// CHECK: #tile.sm80_gemm<
// REMARK: Missed{{.*}}sm90.gemm{{.*}}Function=f32{{.*}}tensor cores do not multiply f32 exactly; weights must have 8 or 16 bits
// REMARK: Passed{{.*}}sm80.gemm{{.*}}Function=f32
tile.kernel @f32(%x: memref<?x64xf32>, %w: memref<128x64xf32>, %y: memref<?x128xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xf32>, memref<128x64xf32>)
      outs(%y : memref<?x128xf32>)
  tile.return
}

// CHECK-LABEL: tile.kernel @odd_k
// CHECK: #tile.sm80_gemm<
// REMARK: Missed{{.*}}Function=odd_k{{.*}}a row of weights has 1022 bytes, but tensor maps need a multiple of 16
tile.kernel @odd_k(%x: memref<?x511xbf16>, %w: memref<128x511xbf16>, %y: memref<?x128xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x511xbf16>, memref<128x511xbf16>)
      outs(%y : memref<?x128xf32>)
  tile.return
}

// CHECK-LABEL: tile.kernel @odd_columns
// CHECK: #tile.sm80_gemm<
// REMARK: Missed{{.*}}Function=odd_columns{{.*}}a row of the result has 74 bytes, but rows are copied in multiples of 16
tile.kernel @odd_columns(%x: memref<?x64xbf16>, %w: memref<37x64xbf16>, %y: memref<?x37xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<37x64xbf16>)
      outs(%y : memref<?x37xbf16>)
  tile.return
}
