// Groups with too few or too many rows for a gemm have no tiles.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --convert-tile-to-nvvm=target=sm_90a --cse | FileCheck %s

// The number of tiles is 0 for groups with more rows; offsets and rows in the table do not change.
// CHECK-LABEL: func.func @up_to
// If no group of the warp's lanes has more rows than the largest tile, each has one tile or none, without divisions by
// run-time values.
//       CHECK: %[[ROWS:.*]] = arith.subi
//       CHECK: %[[IS_HIGHER:.*]] = arith.cmpi slt, %c16_i32, %[[ROWS]]
//  CHECK-NEXT: %[[LANES:.*]] = nvvm.vote.sync ballot %{{.*}}, %[[IS_HIGHER]]
//  CHECK-NEXT: %[[HIGHER:.*]] = math.ctpop %[[LANES]]
//  CHECK-NEXT: %[[ARE_SINGLE:.*]] = arith.cmpi eq, %[[HIGHER]], %c0_i32
//  CHECK-NEXT: %[[CUTS:.*]]:2 = scf.if %[[ARE_SINGLE]]
//       CHECK:   %[[HEIGHT8:.*]] = arith.maxui %{{.*}}, %c8_i32
//  CHECK-NEXT:   %[[ONE:.*]] = arith.minsi %[[ROWS]], %c1_i32
//       CHECK:   %[[TAKES:.*]] = arith.cmpi sle, %[[ROWS]], %c64_i32
//  CHECK-NEXT:   %[[TILES:.*]] = arith.select %[[TAKES]], %[[ONE]], %c0_i32
//  CHECK-NEXT:   scf.yield %[[HEIGHT8]], %[[TILES]]
//       CHECK: else
//       CHECK:   %[[HEIGHT:.*]] = arith.maxui %{{.*}}, %c8_i32
//       CHECK:   %[[ALL:.*]] = arith.divui %{{.*}}, %[[HEIGHT]]
//       CHECK:   %[[TAKES2:.*]] = arith.cmpi sle, %[[ROWS]], %c64_i32
//  CHECK-NEXT:   %[[TILES2:.*]] = arith.select %[[TAKES2]], %[[ALL]], %c0_i32
//  CHECK-NEXT:   scf.yield %[[HEIGHT]], %[[TILES2]]
//       CHECK: nvvm.shfl.sync up %{{.*}}, %[[CUTS]]#1, %c1_i32
//       CHECK: vector.from_elements %{{.*}}, %{{.*}}, %[[ROWS]], %[[CUTS]]#0 : vector<4xi32>
tile.kernel @up_to(%x: memref<?x64xbf16>, %w: memref<6x128x64xbf16>, %o: memref<7xi32>, %s: memref<?xi32>,
    %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<6x128x64xbf16>) offsets(%o : memref<7xi32>)
      source(%s : memref<?xi32>) outs(%y : memref<?x128xbf16>)
      {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4>,
       group_rows = #tile.group_rows<max = 64>}
  tile.return
}

// -----

// With few ids no slot of such a group starts a tile; with more ids the rows are counted. Numbers of rows fit an i32.
// CHECK-LABEL: func.func @between
//       CHECK: %[[SAME:.*]] = nvvm.match.sync any
//       CHECK: %[[BEGINS:.*]] = arith.andi %{{.*}} : i1
//  CHECK-NEXT: %[[ROWS:.*]] = math.ctpop %[[SAME]]
//       CHECK: %[[LEAST:.*]] = arith.cmpi sge, %[[ROWS]], %c3_i32
//  CHECK-NEXT: %[[MOST:.*]] = arith.cmpi sle, %[[ROWS]], %c2147483647_i32
//  CHECK-NEXT: %[[TAKES:.*]] = arith.andi %[[LEAST]], %[[MOST]]
//  CHECK-NEXT: arith.andi %[[BEGINS]], %[[TAKES]]
//       CHECK: llvm.atomicrmw add
//       CHECK: %[[ALL:.*]] = arith.divui
//       CHECK: arith.cmpi sge, %{{.*}}, %c3_i32
//       CHECK: %[[TAKES2:.*]] = arith.andi
//  CHECK-NEXT: arith.select %[[TAKES2]], %{{.*}}, %c0_i32
//       CHECK: nvvm.shfl.sync up
tile.kernel @between(%x: memref<?x64xbf16>, %w: memref<6x128x64xbf16>, %o: memref<7xi32>, %s: memref<?xi32>,
    %i: memref<?x4xi32>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<6x128x64xbf16>) offsets(%o : memref<7xi32>)
      source(%s : memref<?xi32>) schedule(ids = %i : memref<?x4xi32>) outs(%y : memref<?x128xbf16>)
      {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4>,
       num_experts = 6 : i64, group_rows = #tile.group_rows<min = 3, max = 9000000000>}
  tile.return
}

// -----

// CHECK-LABEL: func.func @single
//       CHECK: %[[ROWS:.*]] = memref.load %{{.*}}[%{{.*}}] : memref<2xi32>
//       CHECK: %[[TAKES:.*]] = arith.cmpi sge, %[[ROWS]], %c65_i32
//  CHECK-NEXT: %[[TILES:.*]] = arith.select %[[TAKES]], %{{.*}}, %c0_i32
//       CHECK: vector.from_elements %{{.*}}, %[[TILES]], %{{.*}} : vector<4xi32>
tile.kernel @single(%x: memref<?x64xbf16>, %w: memref<1x128x64xbf16>, %o: memref<2xi32>, %s: memref<?xi32>,
    %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<1x128x64xbf16>) offsets(%o : memref<2xi32>)
      source(%s : memref<?xi32>) outs(%y : memref<?x128xbf16>)
      {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4>,
       group_rows = #tile.group_rows<min = 65>}
  tile.return
}
