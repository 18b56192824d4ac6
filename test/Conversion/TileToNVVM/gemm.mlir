// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_80 --convert-tile-to-nvvm --cse | FileCheck %s

// CHECK: llvm.mlir.global external @moec_shared() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
// CHECK-LABEL: func.func @dense
// CHECK-SAME: attributes {moec.block = 128 : i64, moec.kernel}
// CHECK-DAG: %[[CTA:.*]] = nvvm.read.ptx.sreg.ctaid.x
// CHECK-DAG: nvvm.read.ptx.sreg.tid.x
// CHECK: llvm.mlir.addressof @moec_shared
// Two k tiles are in flight before the loop.
// CHECK-COUNT-6: nvvm.cp.async.shared.global {{.*}}, 16, cache = cg :
// CHECK: nvvm.cp.async.commit.group
// CHECK-COUNT-6: nvvm.cp.async.shared.global
// CHECK: nvvm.cp.async.commit.group
// CHECK: scf.for
// CHECK-NEXT: nvvm.cp.async.wait.group 1
// CHECK-NEXT: nvvm.barrier0
// CHECK: scf.if
// CHECK-COUNT-6: nvvm.cp.async.shared.global
// CHECK: nvvm.cp.async.commit.group
// CHECK: nvvm.ldmatrix
// CHECK: nvvm.mma.sync
// CHECK-SAME: multiplicandAPtxType = #nvvm.mma_type<bf16>
// CHECK-SAME: (i32, i32, f32)
// CHECK: scf.yield
// Sums are in shared memory; the epilogue is one loop over them.
// CHECK: nvvm.cp.async.wait.group 0
// CHECK-NEXT: nvvm.barrier0
// CHECK: llvm.store {{.*}} : vector<2xf32>, !llvm.ptr<3>
// CHECK: nvvm.barrier0
// CHECK: scf.for
// CHECK: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xf32>
// CHECK: vector.store {{.*}} {alignment = 16 : i64} : memref<?x128xf32>
// CHECK: nvvm.barrier0
tile.kernel @dense(%x: memref<?x2048xbf16>, %w: memref<128x2048xbf16>, %y: memref<?x128xf32>,
    %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x2048xbf16>, memref<128x2048xbf16>)
      outs(%y : memref<?x128xf32>)
  tile.return
}

// -----

// The CTA loops over the rows of its group, gathered by `source`; gate and up are projections of one tile.
// CHECK-LABEL: func.func @grouped
// CHECK-SAME: %[[X:[a-z0-9]+]]: memref<?x64xf16>, %[[W:[a-z0-9]+]]: memref<6x256x64xf16>, %[[O:[a-z0-9]+]]: memref<7xi32>, %[[S:[a-z0-9]+]]: memref<?xi32>
// CHECK: memref.load %[[O]]
// CHECK: memref.load %[[O]]
// CHECK: scf.for
// CHECK: memref.load %[[S]]
// CHECK: nvvm.mma.sync
// CHECK-SAME: (vector<2xf16>, vector<2xf16>, f32)
// CHECK: llvm.load {{.*}} -> vector<8xf32>
// CHECK: llvm.load {{.*}} -> vector<8xf32>
// CHECK: arith.mulf {{.*}} : vector<8xf32>
// CHECK: arith.truncf {{.*}} : vector<8xf32> to vector<8xf16>
tile.kernel @grouped(%x: memref<?x64xf16>, %w: memref<6x256x64xf16>, %o: memref<7xi32>,
    %s: memref<?xi32>, %y: memref<?x128xf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xf16>, memref<6x256x64xf16>)
      offsets(%o : memref<7xi32>) source(%s : memref<?xi32>) outs(%y : memref<?x128xf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %1 = arith.mulf %g, %u : f32
        tile.yield %1 : f32
      } {layout = #moe.weight_layout<order = interleaved>}
  tile.return
}

// -----

// f32 is multiplied by FMAs.
// CHECK-LABEL: func.func @f32
// CHECK-NOT: nvvm.mma
// CHECK: math.fma {{.*}} : f32
// CHECK-NOT: nvvm.mma
// CHECK: return
tile.kernel @f32(%x: memref<?x64xf32>, %w: memref<32x64xf32>, %y: memref<?x32xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xf32>, memref<32x64xf32>)
      outs(%y : memref<?x32xf32>)
  tile.return
}

// -----

// A k tile past the end of a row is filled with zeros.
// CHECK-LABEL: func.func @tail
// CHECK: %[[BYTES:.*]] = arith.select %{{.*}}, %c16_i32{{.*}}, %c0_i32{{.*}} : i32
// CHECK: nvvm.cp.async.shared.global {{.*}}, 16, cache = cg, %[[BYTES]]
tile.kernel @tail(%x: memref<?x72xbf16>, %w: memref<32x72xbf16>, %y: memref<?x32xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x72xbf16>, memref<32x72xbf16>)
      outs(%y : memref<?x32xf32>)
  tile.return
}

// -----

// Rows that are not aligned to 16 bytes are copied element by element.
// CHECK-LABEL: func.func @odd
// CHECK-NOT: nvvm.cp.async.shared
// CHECK: llvm.load {{.*}} {alignment = 2 : i64} : !llvm.ptr<1> -> i16
// CHECK: llvm.store {{.*}} {alignment = 16 : i64} : vector<8xi16>, !llvm.ptr<3>
// CHECK-NOT: nvvm.cp.async.shared
// CHECK: return
tile.kernel @odd(%x: memref<?x71xbf16>, %w: memref<32x71xbf16>, %y: memref<?x32xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x71xbf16>, memref<32x71xbf16>)
      outs(%y : memref<?x32xf32>)
  tile.return
}

// -----

// Rows from num_valid_tokens on are zeros and not computed.
// CHECK-LABEL: func.func @valid
// CHECK: memref.load %{{.*}} : memref<1xi32>
// CHECK: scf.if
// CHECK: nvvm.mma.sync
// CHECK: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : vector<4xf32>
// CHECK: vector.store %[[ZERO]]
tile.kernel @valid(%x: memref<?x64xbf16>, %w: memref<32x64xbf16>, %v: memref<1xi32>,
    %y: memref<?x32xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<32x64xbf16>)
      num_valid_tokens(%v : memref<1xi32>) outs(%y : memref<?x32xf32>)
  tile.return
}
