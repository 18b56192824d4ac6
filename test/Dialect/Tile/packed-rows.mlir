// The phases of an all-to-all.
// RUN: moe-opt %s | moe-opt | FileCheck %s

// CHECK-LABEL: tile.kernel @route
//       CHECK: tile.route_rows tokens(%{{[a-z0-9]+}}) ids(%{{[a-z0-9]+}} : memref<?x2xi32>) destinations(%{{[a-z0-9]+}} : memref<64xi32>)
//  CHECK-SAME: outs(%{{[a-z0-9]+}}, %{{[a-z0-9]+}} : memref<?xi32>, memref<4xi32>)
tile.kernel @route(%ids: memref<?x2xi32>, %destinations: memref<64xi32>, %positions: memref<?xi32>, %counts: memref<4xi32>, %t: i64) {
  tile.route_rows tokens(%t) ids(%ids : memref<?x2xi32>) destinations(%destinations : memref<64xi32>)
      outs(%positions, %counts : memref<?xi32>, memref<4xi32>)
  tile.return
}

// CHECK-LABEL: tile.kernel @route_valid
//       CHECK: tile.route_rows {{.*}} num_valid_tokens(%{{[a-z0-9]+}} : memref<1xi32>) outs
//  CHECK-SAME: {config = #tile.gpu_route_rows<threads = 1024>}
tile.kernel @route_valid(%ids: memref<?x2xi32>, %destinations: memref<64xi32>, %valid: memref<1xi32>, %positions: memref<?xi32>, %counts: memref<4xi32>, %t: i64) {
  tile.route_rows tokens(%t) ids(%ids : memref<?x2xi32>) destinations(%destinations : memref<64xi32>)
      num_valid_tokens(%valid : memref<1xi32>) outs(%positions, %counts : memref<?xi32>, memref<4xi32>)
      {config = #tile.gpu_route_rows<threads = 1024>}
  tile.return
}

// CHECK-LABEL: tile.kernel @pack
//       CHECK: tile.pack_rows tokens(%{{[a-z0-9]+}}) ins(%{{[a-z0-9]+}}, %{{[a-z0-9]+}} : memref<?x2xi32>, memref<?x8xbf16>)
//  CHECK-SAME: outs(%{{[a-z0-9]+}}, %{{[a-z0-9]+}} : memref<?x2xi32>, memref<?x8xbf16>)
//  CHECK-SAME: packed(%{{[a-z0-9]+}}, %{{[a-z0-9]+}} : memref<?x2xi32>, memref<?x8xbf16>)
//  CHECK-SAME: by(%{{[a-z0-9]+}}, %{{[a-z0-9]+}}, %{{[a-z0-9]+}} : memref<?xi32>, memref<4xi32>, memref<3xi64>)
//  CHECK-SAME: {config = #tile.gpu_pack_rows<warps = 8>}
tile.kernel @pack(%i: memref<?x2xi32>, %x: memref<?x8xbf16>, %ii: memref<?x2xi32>, %xx: memref<?x8xbf16>, %pi: memref<?x2xi32>, %px: memref<?x8xbf16>, %positions: memref<?xi32>, %counts: memref<4xi32>, %header: memref<3xi64>, %t: i64) {
  tile.pack_rows tokens(%t) ins(%i, %x : memref<?x2xi32>, memref<?x8xbf16>) outs(%ii, %xx : memref<?x2xi32>, memref<?x8xbf16>)
      packed(%pi, %px : memref<?x2xi32>, memref<?x8xbf16>)
      by(%positions, %counts, %header : memref<?xi32>, memref<4xi32>, memref<3xi64>) {config = #tile.gpu_pack_rows<warps = 8>}
  tile.return
}

// CHECK-LABEL: tile.kernel @sum
//       CHECK: tile.sum_packed_rows tokens(%{{[a-z0-9]+}}) input(%{{[a-z0-9]+}} : memref<?x8xbf16>) packed(%{{[a-z0-9]+}} : memref<?x8xbf16>)
//  CHECK-SAME: by(%{{[a-z0-9]+}}, %{{[a-z0-9]+}}, %{{[a-z0-9]+}} : memref<?xi32>, memref<4xi32>, memref<3xi64>) outs(%{{[a-z0-9]+}} : memref<?x8xbf16>)
//  CHECK-SAME: {config = #tile.gpu_sum_packed_rows<threads = 256>}
tile.kernel @sum(%x: memref<?x8xbf16>, %p: memref<?x8xbf16>, %positions: memref<?xi32>, %counts: memref<4xi32>, %header: memref<3xi64>, %y: memref<?x8xbf16>, %t: i64) {
  tile.sum_packed_rows tokens(%t) input(%x : memref<?x8xbf16>) packed(%p : memref<?x8xbf16>)
      by(%positions, %counts, %header : memref<?xi32>, memref<4xi32>, memref<3xi64>) outs(%y : memref<?x8xbf16>)
      {config = #tile.gpu_sum_packed_rows<threads = 256>}
  tile.return
}
