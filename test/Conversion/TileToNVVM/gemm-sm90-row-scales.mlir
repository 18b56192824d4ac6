// Scales of whole rows on Hopper: none is copied with a k tile.
// RUN: moe-opt %s --tile-assign-config=target=sm_90a --convert-tile-to-nvvm=target=sm_90a --cse | FileCheck %s

// Tensor cores sum all of a short row, as with 16-bit elements. Scales are loaded before, rows by their source.
// CHECK-LABEL: func.func @short
// No scales are copied.
// CHECK-NOT: cp.async.shared.global {{.*}}, 4
// CHECK: nvvm.setmaxregister increase
// CHECK: memref.load %{{.*}} : memref<?xi32
// CHECK: memref.load %{{.*}} : memref<?x1xf32
// CHECK: memref.load %{{.*}} : memref<6x256x1xf32
// CHECK: scf.for
// CHECK: nvvm.wgmma.mma_async {{.*}}A[<e4m3>
// CHECK-NOT: arith.addf
// CHECK: scf.yield
// CHECK: nvvm.wgmma.wait.group.sync.aligned 0
// CHECK: arith.mulf {{.*}} : vector
// CHECK: arith.mulf {{.*}} : vector
tile.kernel @short(%x: memref<?x256xf8E4M3FN>, %w: memref<6x256x256xf8E4M3FN>, %xs: memref<?x1xf32>,
    %ws: memref<6x256x1xf32>, %o: memref<7xi32>, %s: memref<?xi32>, %y: memref<?x256xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<6x256x256xf8E4M3FN>)
      input_scale(%xs : memref<?x1xf32>) weight_scale(%ws : memref<6x256x1xf32>)
      offsets(%o : memref<7xi32>) source(%s : memref<?xi32>) outs(%y : memref<?x256xbf16>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>, config = #tile.sm90_gemm<block_m = [64], block_n = 256, block_k = 128, stages = 4>}
  tile.return
}

// Tensor cores accumulate an int8 row of any length in i32. Consumers that share a block of weights add their sums,
// which are then converted to f32.
// CHECK-LABEL: func.func @int8
// CHECK: nvvm.setmaxregister increase
// CHECK: memref.load %{{.*}} : memref<?x1xf32
// CHECK: scf.for
// CHECK: nvvm.wgmma.mma_async {{.*}} D[<s32>, <one>], A[<s8>, {{.*}}], B[<s8>, {{.*}}
// CHECK-NOT: arith.sitofp
// CHECK: scf.yield
// CHECK: nvvm.wgmma.wait.group.sync.aligned 0
// CHECK: arith.addi {{.*}} : i32
// CHECK: arith.sitofp {{.*}} : i32 to f32
// CHECK: arith.mulf {{.*}} : vector
// CHECK: arith.mulf {{.*}} : vector
tile.kernel @int8(%x: memref<?x4096xi8>, %w: memref<6x256x4096xi8>, %xs: memref<?x1xf32>,
    %ws: memref<6x256x1xf32>, %o: memref<7xi32>, %s: memref<?xi32>, %y: memref<?x256xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x4096xi8>, memref<6x256x4096xi8>)
      input_scale(%xs : memref<?x1xf32>) weight_scale(%ws : memref<6x256x1xf32>)
      offsets(%o : memref<7xi32>) source(%s : memref<?xi32>) outs(%y : memref<?x256xbf16>)
      {input_quant = #moe.quant<storage = i8, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = i8, scale = f32, granularity = channel>, config = #tile.sm90_gemm<block_m = [48], block_n = 64, block_k = 128, stages = 4>}
  tile.return
}
