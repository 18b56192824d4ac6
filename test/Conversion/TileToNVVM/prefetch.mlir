// Weights of a launch to come, in chunks of 8192 bytes.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --convert-tile-to-nvvm=target=sm_90a --cse | FileCheck %s

// One warp of each CTA but the first, of 1 to 64 slots.
// CHECK-LABEL: func.func @rank
// CHECK-SAME: %[[AHEAD:[a-z0-9]+]]: memref<8x192x256xbf16>
// CHECK-DAG: arith.cmpi slt, %c0, %{{.*}} : index
// CHECK-DAG: arith.cmpi slt, %{{.*}}, %c65 : index
// CHECK: scf.if
// The experts that two slots per lane have chosen: the budget reaches three.
// CHECK: memref.load %{{.*}} : memref<?xi32>
// CHECK: memref.load %{{.*}} : memref<?xi32>
// CHECK: scf.for %{{.*}} = %c0 to %c3 step
// CHECK: nvvm.redux.sync min
// If that is more than one, every second chunk of 25.
// CHECK: arith.cmpi sle, %{{.*}}, %c1_i32
// CHECK: arith.select %{{.*}}, %c1, %c2 : index
// CHECK: arith.minsi %{{.*}}, %c25 : index
// CHECK: scf.for
// CHECK: nvvm.shfl.sync idx
// CHECK: scf.if
// CHECK: nvvm.cp.async.bulk.prefetch %{{.*}}, %c8192_i32 {moec.weights} : <1>
tile.kernel @rank(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %a: memref<8x192x256xbf16>, %o: memref<9xi32>,
    %p: memref<?x2xi32>, %s: memref<?xi32>, %w: memref<?x1xf32>, %t: i64) {
  tile.rank tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>) prefetch(%a : memref<8x192x256xbf16>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      {num_experts = 8 : i64, prefetch_bytes = 100000 : i64}
  tile.return
}

// -----

// Behind the copies of the warp that starts them, group after group.
// CHECK-LABEL: func.func @grouped
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global
// CHECK: arith.select %{{.*}}, %c1, %c2 : index
// CHECK: scf.for
// CHECK: nvvm.vote.sync ballot
// CHECK: scf.for
// The last chunk of a matrix of 9 KiB is not whole.
// CHECK: arith.subi %c9216,
// CHECK: arith.minsi %{{.*}}, %c8192 : index
// CHECK: nvvm.cp.async.bulk.prefetch
// CHECK: } else {
tile.kernel @grouped(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %o: memref<9xi32>, %a: memref<8x72x64xbf16>,
    %y: memref<?x64xbf16>, %t: i64) {
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>)
      prefetch(%a : memref<8x72x64xbf16>) outs(%y : memref<?x64xbf16>) {prefetch_bytes = 20000 : i64}
  tile.return
}

// -----

// Nothing is to be found out for one matrix.
// CHECK-LABEL: func.func @dense
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global
// CHECK-NOT: nvvm.vote.sync
// CHECK: scf.for
// CHECK-NOT: scf.if
// CHECK: nvvm.cp.async.bulk.prefetch
tile.kernel @dense(%x: memref<?x64xbf16>, %w: memref<64x64xbf16>, %a: memref<64x64xbf16>, %y: memref<?x64xbf16>, %t: i64) {
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<64x64xbf16>) prefetch(%a : memref<64x64xbf16>)
      outs(%y : memref<?x64xbf16>) {prefetch_bytes = 8192 : i64}
  tile.return
}
