// Gaps between rows of weights change neither schedules nor maps, which are encoded with the strides.
// RUN: moe-opt %s --tile-assign-config=target=sm_90a | FileCheck %s

// CHECK-LABEL: tile.kernel @strided
// CHECK-SAME: tensor_maps = [#tile.tensor_map<argument = 1, sizes = [128, 2048, 768], along = [0, 1, 2], steps = [1, 1, 1], box = [1, 256, 64], swizzle = 128>
// CHECK: #tile.sm90_gemm<
tile.kernel @strided(%x: memref<?x768xbf16>, %w: memref<128x2048x768xbf16, strided<[?, ?, 1]>>, %o: memref<129xi32>,
    %y: memref<?x2048xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x768xbf16>, memref<128x2048x768xbf16, strided<[?, ?, 1]>>)
      offsets(%o : memref<129xi32>) outs(%y : memref<?x2048xbf16>)
  tile.return
}

// CHECK-LABEL: tile.kernel @odd
// CHECK: #tile.sm80_gemm<
tile.kernel @odd(%x: memref<?x511xbf16>, %w: memref<64x511xbf16, strided<[?, 1]>>, %y: memref<?x64xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x511xbf16>, memref<64x511xbf16, strided<[?, 1]>>)
      outs(%y : memref<?x64xbf16>)
  tile.return
}
