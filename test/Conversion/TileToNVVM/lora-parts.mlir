// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --convert-tile-to-nvvm --cse | FileCheck %s

// CHECK-LABEL: func.func @parts
// CHECK-SAME: moec.block = 256
// CHECK-SAME: moec.form = #tile.kernel_form<registers = 128>
// Up to 128 positions, a CTA has 8 columns of one row: the token's load waits for no other. The warp's two blocks of 32
// of K are loaded at once.
// CHECK: %[[FEW:.*]] = arith.cmpi sle, %{{.*}}, %c128
// CHECK: scf.if %[[FEW]]
// CHECK: memref.load %{{.*}} : memref<?xi32>
// CHECK-COUNT-3: memref.load %{{.*}} : memref<41xi32>
// CHECK: memref.load %{{.*}} : memref<?xi32>
// CHECK-NOT: llvm.load {{.*}} -> vector<4xi32>
// CHECK-COUNT-4: llvm.load {{.*}} -> vector<4xi32>
// CHECK-NOT: llvm.load {{.*}} -> vector<4xi32>
// CHECK-COUNT-4: nvvm.mma.sync
// CHECK-NOT: nvvm.mma.sync
// Else the group of a CTA is found from offsets, two groups to a lane; then all threads look at its rows, two each,
// before any of these loads is used.
// CHECK-COUNT-3: memref.load %{{.*}} : memref<41xi32>
// CHECK: nvvm.shfl.sync up
// CHECK: nvvm.vote.sync ballot
// CHECK: nvvm.barrier
// CHECK: scf.for
// CHECK-COUNT-4: memref.load %{{.*}} : memref<?xi32>
// CHECK-COUNT-2: nvvm.match.sync any
// Adapters of the group's rows have been counted; the rows of the part are found once more in the same way.
// CHECK: nvvm.barrier
// CHECK: scf.while
// CHECK-COUNT-4: memref.load %{{.*}} : memref<?xi32>
// CHECK: nvvm.vote.sync ballot
// CHECK: nvvm.barrier
// Two tiles of rows by four of columns.
// CHECK-NOT: llvm.load {{.*}} -> vector<4xi32>
// CHECK-COUNT-16: llvm.load {{.*}} -> vector<4xi32>
// CHECK-NOT: llvm.load {{.*}} -> vector<4xi32>
// CHECK-COUNT-32: nvvm.mma.sync
// CHECK-NOT: nvvm.mma.sync
// One tile of rows.
// CHECK-COUNT-12: llvm.load {{.*}} -> vector<4xi32>
// CHECK-NOT: llvm.load {{.*}} -> vector<4xi32>
// CHECK-COUNT-16: nvvm.mma.sync
// CHECK-NOT: nvvm.mma.sync
tile.kernel @parts(%x: memref<?x512xbf16>, %a: memref<2x40x16x512xbf16>, %c: memref<2x40x16x512xbf16>,
    %o: memref<41xi32>, %s: memref<?xi32>, %i: memref<?xi32>, %y: memref<?x32xbf16>, %z: memref<?x1xi32>, %t: i64) {
  tile.lora_shrink gather tokens(%t) ins(%x : memref<?x512xbf16>)
      a(%a, %c : memref<2x40x16x512xbf16>, memref<2x40x16x512xbf16>) offsets(%o : memref<41xi32>)
      source(%s : memref<?xi32>) adapter_ids(%i : memref<?xi32>) outs(%y, %z : memref<?x32xbf16>, memref<?x1xi32>)
      {top_k = 2 : i64, config = #tile.gpu_lora_parts<warps = 8, column_tiles = 4>}
  tile.return
}
