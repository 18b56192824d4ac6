// Quantized operands that are decoded on their way to the tensor cores, and when their scales are applied.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_80 --convert-tile-to-nvvm=target=sm_80 --cse | FileCheck %s

// Only weights, with one scale per row: e4m3 becomes bf16, and the sums are scaled ahead of the epilogue.
// CHECK-LABEL: func.func @channels
// A k tile, in parts that are dequantized at once.
// CHECK: scf.for
// CHECK: scf.for
// Inputs are loaded as quads, weights as matrices.
// CHECK: llvm.load {{.*}} -> vector<2xi32>
// CHECK: nvvm.ldmatrix
// CHECK: math.fma {{.*}} : vector<2xbf16>
// CHECK: nvvm.mma.sync {{.*}}multiplicandBPtxType = #nvvm.mma_type<bf16>
// CHECK: scf.yield
// No scale in the loop.
// CHECK-NOT: math.fma {{.*}} : f32
// CHECK: memref.load %{{.*}} : memref<4x96x1xf32
// CHECK: %[[FACTOR:.*]] = vector.from_elements {{.*}} : vector<4xf32>
// CHECK-NEXT: arith.mulf %{{.*}}, %[[FACTOR]] : vector<4xf32>
tile.kernel @channels(%x: memref<?x256xbf16>, %w: memref<4x96x256xf8E4M3FN>, %b: memref<4x96x1xf32>, %o: memref<5xi32>,
    %y: memref<?x96xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<4x96x256xf8E4M3FN>) weight_scale(%b : memref<4x96x1xf32>)
      offsets(%o : memref<5xi32>) outs(%y : memref<?x96xf32>)
      {weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>}
  tile.return
}

// -----

// Both operands. A row of the input has several scales, applied to the sums of a k tile; a weight row has one, applied
// later.
// CHECK-LABEL: func.func @mixed
// CHECK: scf.for
// CHECK: %[[SCALE:.*]] = llvm.load {{.*}} -> f32
// CHECK: scf.for
// CHECK: nvvm.mma.sync {{.*}}(vector<2xf16>, vector<2xf16>, f32)
// CHECK: scf.yield
// CHECK: math.fma %{{.*}}, %[[SCALE]], %{{.*}} : f32
// CHECK: scf.yield
// CHECK: memref.load %{{.*}} : memref<96x1xf32
// CHECK: arith.mulf {{.*}} : vector<4xf32>
tile.kernel @mixed(%x: memref<?x256xf8E4M3FN>, %w: memref<96x256xf8E4M3FN>, %a: memref<?x2xf32>, %b: memref<96x1xf32>,
    %y: memref<?x96xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<96x256xf8E4M3FN>) input_scale(%a : memref<?x2xf32>)
      weight_scale(%b : memref<96x1xf32>) outs(%y : memref<?x96xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>}
  tile.return
}

// -----

// Two groups in a k tile, next to f32 operands, which use no tensor cores.
// CHECK-LABEL: func.func @groups
// CHECK-NOT: nvvm.mma.sync
// CHECK: scf.for
// CHECK: arith.extf {{.*}} : f16 to f32
// CHECK: scf.yield
tile.kernel @groups(%x: memref<?x256xf32>, %w: memref<96x256xf8E4M3FN>, %b: memref<96x8xf32>, %y: memref<?x96xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf32>, memref<96x256xf8E4M3FN>)
      weight_scale(%b : memref<96x8xf32>) outs(%y : memref<?x96xf32>)
      {weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 32]>}
  tile.return
}
