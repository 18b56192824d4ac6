// RUN: moe-opt %s --split-input-file --tile-assign-config='target=sm_80 configs="router:gpu.gemv block_m=2 block_n=1 threads=64"' --convert-tile-to-nvvm --cse | FileCheck %s
// RUN: not moe-opt %s --split-input-file --tile-assign-config='target=sm_80 configs="router:gpu.gemv block_m=3"' 2>&1 | FileCheck %s --check-prefix=ROWS
// RUN: not moe-opt %s --split-input-file --tile-assign-config='target=sm_80 configs="router:gpu.gemv block_m=8 block_n=8"' 2>&1 | FileCheck %s --check-prefix=SUMS
// RUN: not moe-opt %s --split-input-file --tile-assign-config='target=sm_80 configs="router:gpu.gemv threads=1024"' 2>&1 | FileCheck %s --check-prefix=LANES

// RUN: moe-opt %s --split-input-file --tile-assign-config='target=sm_80 configs="router:gpu.gemv block_m=16 block_n=8 block_k=32 threads=96"' --convert-tile-to-nvvm --cse | FileCheck %s --check-prefix=TENSOR
// RUN: not moe-opt %s --split-input-file --tile-assign-config='target=sm_80 configs="router:gpu.gemv block_m=8 block_n=8 block_k=32"' 2>&1 | FileCheck %s --check-prefix=TENSOR-ROWS
// RUN: not moe-opt %s --split-input-file --tile-assign-config='target=sm_80 configs="router:gpu.gemv block_m=16 block_n=4 block_k=32"' 2>&1 | FileCheck %s --check-prefix=TENSOR-COLUMNS
// RUN: not moe-opt %s --split-input-file --tile-assign-config='target=sm_80 configs="router:gpu.gemv block_m=16 block_n=8 block_k=64"' 2>&1 | FileCheck %s --check-prefix=STEP
// RUN: not moe-opt %s --split-input-file --tile-assign-config='target=sm_80 configs="router:gpu.gemv block_m=32 block_n=64 block_k=32 threads=256"' 2>&1 | FileCheck %s --check-prefix=MEMORY

// TENSOR-ROWS: cannot run as {{.*}}: block_m = 8; give 16 or 32 with block_k = 32
// TENSOR-COLUMNS: cannot run as {{.*}}: block_n = 4; give 8, 16, 32 or 64 with block_k = 32
// STEP: cannot run as {{.*}}: block_k = 64; give 32 for tensor cores, or 0
// MEMORY: cannot run as {{.*}}: block_m = 32, block_n = 64, threads = 256 needs 73728 bytes of shared memory; there are 49152
// ROWS: cannot run as {{.*}}: block_m = 3; give a power of two up to 32
// SUMS: cannot run as {{.*}}: block_m = 8, block_n = 8 needs 64 sums per thread; give at most 32
// LANES: cannot run as {{.*}}: threads = 1024; give a multiple of 32 up to 512

// 80 chunks of 16 bytes for 64 threads: one each, then 16 threads have one more. Two sums per warp, for two rows.
// CHECK: memref.global "private" @router_0 : memref<4xf32, 3 : i32>
// CHECK-LABEL: func.func @router
// CHECK-SAME: moec.block = 64
// A single row: all lanes add up its sum.
// CHECK: arith.cmpi eq
// CHECK: scf.if
// CHECK: vector.load %arg1{{.*}} {alignment = 16 : i64} : memref<24x640xbf16>, vector<8xbf16>
// CHECK: vector.load %arg0{{.*}} {alignment = 16 : i64} : memref<?x640xbf16>, vector<8xbf16>
// CHECK-COUNT-8: math.fma
// CHECK: %[[REST:.*]] = arith.constant 16 : i32
// CHECK: %[[HAS_MORE:.*]] = arith.cmpi slt, %{{.*}}, %[[REST]] : i32
// CHECK: scf.if %[[HAS_MORE]] -> (f32)
// CHECK-COUNT-8: math.fma
// CHECK-COUNT-5: nvvm.shfl.sync bfly
// CHECK: nvvm.barrier0
// Sums of warps, in order; then the bias.
// CHECK: %[[W0:.*]] = memref.load {{.*}} : memref<4xf32, 3 : i32>
// CHECK: %[[W1:.*]] = memref.load {{.*}} : memref<4xf32, 3 : i32>
// CHECK: %[[SUM:.*]] = arith.addf %[[W0]], %[[W1]]
// CHECK: %[[BIAS:.*]] = memref.load %arg2{{.*}} : memref<24xf32>
// CHECK: %[[RESULT:.*]] = arith.addf %[[SUM]], %[[BIAS]]
// CHECK: memref.store %[[RESULT]], {{.*}} : memref<?x24xf32>
// Two rows: lanes keep one of the two sums, then each half of the warp adds its
// own.
// CHECK: } else {
// CHECK: vector.load %arg1
// CHECK-COUNT-2: vector.load %arg0
// CHECK-COUNT-16: math.fma
// CHECK: scf.if %{{.*}} -> (f32, f32)
// CHECK: arith.select
// CHECK-COUNT-5: nvvm.shfl.sync bfly
// CHECK-NOT: nvvm.shfl.sync
// CHECK: arith.remui %{{.*}}, %[[REST]]
// CHECK: scf.if
// CHECK: memref.store
// CHECK: nvvm.barrier0
// 20 k tiles for three warps: six each, five at a time, and one more for two of them. A k tile is two chunks of rows
// and one of weights.
// TENSOR: memref.global "private" @router_0 : memref<768xf32, 3 : i32>
// TENSOR-LABEL: func.func @router
// TENSOR-SAME: moec.block = 96
// TENSOR-COUNT-15: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
// The next ones are loaded before these are multiplied.
// TENSOR: scf.for
// TENSOR-COUNT-15: llvm.load {{.*}} -> vector<4xi32>
// TENSOR-COUNT-10: nvvm.mma.sync
// TENSOR: scf.yield
// TENSOR-COUNT-10: nvvm.mma.sync
// TENSOR-COUNT-3: llvm.load
// TENSOR-COUNT-2: nvvm.mma.sync
// TENSOR: %[[REST:.*]] = arith.constant 2 : i32
// TENSOR: arith.cmpi slt, %{{.*}}, %[[REST]] : i32
// TENSOR: scf.if
// TENSOR-COUNT-2: nvvm.mma.sync
// TENSOR-COUNT-2: vector.store {{.*}} {alignment = 8 : i64} : memref<768xf32, 3 : i32>, vector<2xf32>
// TENSOR: nvvm.barrier0
// TENSOR: scf.for
// TENSOR-COUNT-3: memref.load {{.*}} : memref<768xf32, 3 : i32>
// TENSOR: memref.load %arg2{{.*}} : memref<24xf32>
// TENSOR: memref.store {{.*}} : memref<?x24xf32>
tile.kernel @router(%x: memref<?x640xbf16>, %w: memref<24x640xbf16>, %b: memref<24xf32>,
    %y: memref<?x24xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x640xbf16>, memref<24x640xbf16>)
      columns(%b : memref<24xf32>) outs(%y : memref<?x24xf32>) epilogue {
    ^bb0(%sum: f32, %bias: f32):
      %0 = arith.addf %sum, %bias : f32
      tile.yield %0 : f32
    }
  tile.return
}
