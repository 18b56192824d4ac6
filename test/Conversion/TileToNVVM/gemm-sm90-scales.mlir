// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --convert-tile-to-nvvm=target=sm_90a --cse | FileCheck %s

// Block fp8 with rows on M: two chains of four wgmmas per k tile, one per block of 128 weight rows.
// CHECK-LABEL: func.func @no_swap_ab
// CHECK: nvvm.setmaxregister increase
// The thread's index is read before the loop, not in each k tile.
// CHECK: %tid.x
// The next stage, its parity, both descriptors, and whether it is full.
// CHECK: scf.for {{.*}} iter_args(%[[STAGE:[a-z0-9]+]] = {{[^,]*}}, %[[PARITY:[a-z0-9]+]] = {{[^,]*}}, %{{[a-z0-9]+}} = {{[^,]*}}, %{{[a-z0-9]+}} = {{[^,]*}}, %[[FULL:[a-z0-9]+]] = %false{{[_0-9]*}},
// CHECK-NOT: %tid.x
// CHECK: %[[EMPTY:.*]] = arith.xori %[[FULL]], %true
// CHECK-NEXT: scf.if %[[EMPTY]] {
// CHECK: nvvm.mbarrier.try_wait {{.*}}, %[[PARITY]]
// No instruction between the stage's index and the first wgmma.
// CHECK-NOT: %[[STAGE]],
// CHECK: wgmma.fence.sync.aligned;\0Awgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3
// CHECK-COUNT-3: nvvm.wgmma.mma_async
// CHECK: nvvm.wgmma.commit.group.sync.aligned
// Scales are loaded while wgmmas run.
// CHECK-COUNT-3: -> f32
// CHECK-NOT: -> f32
// CHECK: nvvm.wgmma.wait.group.sync.aligned 0
// CHECK: math.fma
// CHECK: wgmma.fence.sync.aligned
// CHECK: nvvm.wgmma.commit.group.sync.aligned
// Operands of the next k tile are too.
// CHECK: nvvm.mbarrier.test.wait
// CHECK: llvm.inline_asm has_side_effects "", "=r,=r,0,1"
// CHECK: nvvm.wgmma.wait.group.sync.aligned 0
// CHECK: nvvm.mbarrier.arrive
// CHECK: math.fma
// CHECK: scf.yield
// A warp without valid rows skips the work, all lanes together.
// CHECK: nvvm.vote.sync ballot
// CHECK-NEXT: %[[LANES:.*]] = math.ctpop
// CHECK-NEXT: %[[SOME:.*]] = arith.cmpi slt, %c0_i32{{.*}}, %[[LANES]]
// CHECK-NEXT: scf.if %[[SOME]] {
// CHECK: nvvm.stmatrix
tile.kernel @no_swap_ab(%x: memref<?x256xf8E4M3FN>, %w: memref<6x256x256xf8E4M3FN>, %xs: memref<?x2xf32>,
    %ws: memref<6x2x2xf32>, %o: memref<7xi32>, %y: memref<?x256xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<6x256x256xf8E4M3FN>)
      input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<6x2x2xf32>)
      offsets(%o : memref<7xi32>) outs(%y : memref<?x256xbf16>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, config = #tile.sm90_gemm<block_m = [128], block_n = 256, block_k = 128, stages = 4, map_rows, no_swap_ab>}
  tile.return
}

// -----

// With weights there, too.
// CHECK-LABEL: func.func @weights_on_m
// CHECK: nvvm.setmaxregister increase
// CHECK: scf.for {{.*}} iter_args({{.*}} = %false{{[_0-9]*}},
// CHECK: nvvm.mbarrier.try_wait
// CHECK: nvvm.wgmma.fence.aligned
// CHECK: nvvm.wgmma.mma_async {{.*}} <m = 64, n = 16, k = 32>, D[<f32>, <zero>]
// CHECK-COUNT-3: nvvm.wgmma.mma_async
// CHECK: nvvm.wgmma.commit.group.sync.aligned
// Two rows of every 8.
// CHECK-COUNT-2: -> vector<2xf32>
// CHECK: nvvm.mbarrier.test.wait
// CHECK: nvvm.wgmma.wait.group.sync.aligned 0
// CHECK: math.fma
tile.kernel @weights_on_m(%x: memref<?x256xf8E4M3FN>, %w: memref<6x256x256xf8E4M3FN>, %xs: memref<?x2xf32>,
    %ws: memref<6x2x2xf32>, %o: memref<7xi32>, %y: memref<?x256xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<6x256x256xf8E4M3FN>)
      input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<6x2x2xf32>)
      offsets(%o : memref<7xi32>) outs(%y : memref<?x256xbf16>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 128, stages = 4, map_rows>}
  tile.return
}
