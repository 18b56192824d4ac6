// Tiles of the dynamic scheduler have two neighbouring values of BLOCK_M, as many of the higher one as it takes.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --convert-tile-to-nvvm=target=sm_90a --cse --canonicalize | FileCheck %s

// So many tiles of 16 rows would hold count - missing; each of 24 holds 8 more. The word has both values of BLOCK_M, in eighths, and how
// many tiles have the higher one: 2 + 1 * 64 + higher * 4096.
// CHECK-LABEL: func.func @neighbours
//       CHECK: %[[ROWS:.*]] = arith.subi
//       CHECK: %[[CUT:.*]]:2 = scf.if
//       CHECK: } else {
//       CHECK:   %[[TILES:.*]] = arith.maxui %{{.*}}, %c1_i32
//       CHECK:   %[[MEAN:.*]] = arith.divui %{{.*}}, %[[TILES]]
//       CHECK:   arith.cmpi sgt, %[[MEAN]], %c16_i32
//       CHECK:   arith.cmpi slt, %[[MEAN]], %c25_i32
//       CHECK:   %[[LOW:.*]] = arith.muli %[[TILES]], %c16_i32
//  CHECK-NEXT:   %[[MISSING:.*]] = arith.subi %[[ROWS]], %[[LOW]]
//  CHECK-NEXT:   %[[UP:.*]] = arith.addi %[[MISSING]], %c7_i32
//  CHECK-NEXT:   %[[HIGHER:.*]] = arith.divui %[[UP]], %c8_i32
//  CHECK-NEXT:   %[[PLACED:.*]] = arith.muli %[[HIGHER]], %c4096_i32
//  CHECK-NEXT:   %[[WORD:.*]] = arith.addi %[[PLACED]], %c66_i32
//       CHECK: vector.from_elements %{{.*}}, %{{.*}}, %[[ROWS]], %[[CUT]]#0 : vector<4xi32>
// A tile begins behind those before it, which may be higher.
//       CHECK: %[[HEIGHTS:.*]] = vector.extract %{{.*}}[3] : i32 from vector<4xi32>
//       CHECK: %[[OTHERS:.*]] = arith.divui %[[HEIGHTS]], %c64_i32
//  CHECK-NEXT: %[[EIGHTHS:.*]] = arith.remui %[[HEIGHTS]], %c64_i32
//  CHECK-NEXT: %[[LOW2:.*]] = arith.muli %[[EIGHTHS]], %c8_i32
//  CHECK-NEXT: %[[MORE_EIGHTHS:.*]] = arith.remui %[[OTHERS]], %c64_i32
//  CHECK-NEXT: %[[MORE:.*]] = arith.muli %[[MORE_EIGHTHS]], %c8_i32
//  CHECK-NEXT: %[[COUNT:.*]] = arith.divui %[[OTHERS]], %c64_i32
//  CHECK-NEXT: %[[FIRST_LOW:.*]] = arith.muli %[[TILE:.*]], %[[LOW2]]
//  CHECK-NEXT: %[[BEFORE:.*]] = arith.minsi %[[TILE]], %[[COUNT]]
//  CHECK-NEXT: %[[FIRST_MORE:.*]] = arith.muli %[[BEFORE]], %[[MORE]]
//  CHECK-NEXT: %[[FIRST:.*]] = arith.addi %[[FIRST_LOW]], %[[FIRST_MORE]]
//  CHECK-NEXT: %[[IS_HIGHER:.*]] = arith.cmpi slt, %[[TILE]], %[[COUNT]]
//  CHECK-NEXT: %[[OWN_MORE:.*]] = arith.select %[[IS_HIGHER]], %[[MORE]], %c0_i32
//  CHECK-NEXT: %[[HEIGHT:.*]] = arith.addi %[[LOW2]], %[[OWN_MORE]]
tile.kernel @neighbours(%x: memref<?x64xbf16>, %w: memref<6x128x64xbf16>, %o: memref<7xi32>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<6x128x64xbf16>) offsets(%o : memref<7xi32>)
      outs(%y : memref<?x128xbf16>)
      {config = #tile.sm90_gemm<block_m = [16, 24], block_n = 128, block_k = 64, stages = 4, map_rows, dynamic_scheduler>}
  tile.return
}

// -----

// In a fixed order all have one BLOCK_M but the last; it is the entry's word. So it is where one BLOCK_M is more than twice the
// other, which could leave a tile without rows.
// CHECK-LABEL: func.func @fixed
//   CHECK-NOT: c4096_i32
//       CHECK: %[[CUT:.*]]:2 = scf.if
//       CHECK:   %[[HEIGHT8:.*]] = arith.maxui %{{.*}}, %c8_i32
//       CHECK:   scf.yield %[[HEIGHT8]]
// CHECK-LABEL: func.func @apart
//   CHECK-NOT: c4096_i32
//       CHECK: %[[CUT:.*]]:2 = scf.if
//       CHECK:   %[[HEIGHT8:.*]] = arith.maxui %{{.*}}, %c8_i32
//       CHECK:   scf.yield %[[HEIGHT8]]
tile.kernel @fixed(%x: memref<?x64xbf16>, %w: memref<6x128x64xbf16>, %o: memref<7xi32>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<6x128x64xbf16>) offsets(%o : memref<7xi32>)
      outs(%y : memref<?x128xbf16>)
      {config = #tile.sm90_gemm<block_m = [16, 24], block_n = 128, block_k = 64, stages = 4, map_rows>}
  tile.return
}
tile.kernel @apart(%x: memref<?x64xbf16>, %w: memref<6x128x64xbf16>, %o: memref<7xi32>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<6x128x64xbf16>) offsets(%o : memref<7xi32>)
      outs(%y : memref<?x128xbf16>)
      {config = #tile.sm90_gemm<block_m = [16, 40], block_n = 128, block_k = 64, stages = 4, map_rows, dynamic_scheduler>}
  tile.return
}

// -----

// Three groups per lane, and so four, are cut two at a time, in a loop; numbers of tiles and values of BLOCK_M go through the table. Of
// two per lane or one there is none.
// CHECK-LABEL: func.func @many
//       CHECK: nvvm.vote.sync ballot
//       CHECK: %[[CUTS:.*]]:8 = scf.if
//       CHECK: } else {
//       CHECK:   scf.for %{{.*}} = %c0 to %c4 step %c2
//       CHECK:     %[[END0:.*]] = memref.load %arg2
//       CHECK:     %[[BEGIN0:.*]] = memref.load %arg2
//  CHECK-NEXT:     arith.subi %[[END0]], %[[BEGIN0]]
//       CHECK:     memref.load %arg2
//       CHECK:     memref.load %arg2
//       CHECK:     scf.if
// CHECK-COUNT-2:     llvm.store {{.*}} : i32, !llvm.ptr<3>
//       CHECK:     scf.if
// CHECK-COUNT-2:     llvm.store {{.*}} : i32, !llvm.ptr<3>
//       CHECK:   nvvm.bar.warp.sync
// CHECK-COUNT-8:   llvm.load {{.*}} : !llvm.ptr<3> -> i32
//       CHECK:   scf.yield
// CHECK-LABEL: func.func @some
//       CHECK: nvvm.vote.sync ballot
//       CHECK: scf.if
//   CHECK-NOT: scf.for
//       CHECK: nvvm.shfl.sync up
tile.kernel @many(%x: memref<?x64xbf16>, %w: memref<70x128x64xbf16>, %o: memref<71xi32>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<70x128x64xbf16>) offsets(%o : memref<71xi32>)
      outs(%y : memref<?x128xbf16>)
      {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4, map_rows>}
  tile.return
}
tile.kernel @some(%x: memref<?x64xbf16>, %w: memref<64x128x64xbf16>, %o: memref<65xi32>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<64x128x64xbf16>) offsets(%o : memref<65xi32>)
      outs(%y : memref<?x128xbf16>)
      {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4, map_rows>}
  tile.return
}
