// Rows that the copying warps quantize, a k tile per warp in turn.
// RUN: moe-opt %s --tile-assign-config=target=sm_90a --convert-tile-to-nvvm=target=sm_90a --cse | FileCheck %s

// CHECK-LABEL: func.func @rows
// CHECK: nvvm.setmaxregister decrease 64
// Every third k tile; the next stage of the warp is three further.
// CHECK: scf.for {{.*}} to %c3_i32 step %c3_i32 iter_args(
// CHECK: nvvm.mbarrier.test.wait
// Copies in flight are quantized when no stage is empty: 16 elements of a row per lane, eight lanes per scale.
// CHECK: nvvm.cp.async.wait.group 0
// CHECK-COUNT-2: llvm.load {{.*}} : !llvm.ptr<3> -> vector<8xbf16>
// CHECK-COUNT-3: nvvm.shfl.sync  bfly
// CHECK-NOT: nvvm.shfl.sync
// CHECK-COUNT-2: llvm.store {{.*}} {alignment = 8 : i64} : vector<2xi32>, !llvm.ptr<3>
// The scale of the row, then those of rows past the end.
// CHECK-COUNT-2: llvm.store {{.*}} : f32, !llvm.ptr<3>
// A lane arrives for the other two warps too.
// CHECK: nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>
// CHECK: nvvm.mbarrier.arrive %{{.*}}, %c3_i32 :
// CHECK: nvvm.mbarrier.try_wait
// Elements past the end of a row of 272 are zeros. Only scales of weights are copied.
// CHECK: nvvm.shfl.sync  idx
// CHECK-COUNT-2: nvvm.cp.async.shared.global {{.*}}, 16, cache =  cg, %
// CHECK: nvvm.cp.async.shared.global {{.*}}, 4, cache =  ca
// CHECK-NOT: nvvm.cp.async.shared.global
// CHECK: nvvm.cp.async.wait.group 1
// CHECK: nvvm.setmaxregister increase 88
tile.kernel @rows(%x: memref<?x272xbf16>, %w: memref<6x128x272xf8E4M3FN>, %ws: memref<6x1x3xf32>, %o: memref<7xi32>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x272xbf16>, memref<6x128x272xf8E4M3FN>)
      weight_scale(%ws : memref<6x1x3xf32>) offsets(%o : memref<7xi32>) outs(%y : memref<?x128xbf16>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, quantizes_input,
       config = #tile.sm90_gemm<block_m = [8, 16], block_n = 128, block_k = 128, stages = 6>}
  tile.return
}
