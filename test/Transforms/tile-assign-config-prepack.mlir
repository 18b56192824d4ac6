// A CTA of sm90.prepack holds 64 rows in shared memory, up to 3584 bytes of each; longer rows are split into about
// equal sections of whole packed tiles.

// RUN: moe-opt %s --tile-assign-config=target=sm_90a | FileCheck %s

// CHECK-LABEL: tile.kernel @whole
// CHECK-SAME:    shared = 229632
// CHECK:         config = #tile.sm90_prepack<threads = 512>
tile.kernel @whole(%w: memref<64x3584xi8>, %s: memref<64x1xf32>, %p: memref<64x3584xi8>, %ps: memref<64x112xi8>,
    %r: memref<64xf32>, %t: i64) {
  tile.prepack <storage = i8, scale = f32, granularity = channel> tokens(%t) ins(%w, %s : memref<64x3584xi8>, memref<64x1xf32>)
      outs(%p, %ps, %r : memref<64x3584xi8>, memref<64x112xi8>, memref<64xf32>)
  tile.return
}

// 57 packed tiles: 29 and 28.
// CHECK-LABEL: tile.kernel @two_parts
// CHECK-SAME:    shared = 119040
tile.kernel @two_parts(%w: memref<64x3648xi8>, %s: memref<64x1xf32>, %p: memref<64x3648xi8>, %ps: memref<64x114xi8>,
    %r: memref<64xf32>, %t: i64) {
  tile.prepack <storage = i8, scale = f32, granularity = channel> tokens(%t) ins(%w, %s : memref<64x3648xi8>, memref<64x1xf32>)
      outs(%p, %ps, %r : memref<64x3648xi8>, memref<64x114xi8>, memref<64xf32>)
  tile.return
}

// 4 bits: 171 packed tiles, of which a part has 86.
// CHECK-LABEL: tile.kernel @pairs
// CHECK-SAME:    shared = 176384
tile.kernel @pairs(%w: memref<64x5472xi8>, %s: memref<64x342xf8E8M0FNU>, %p: memref<64x5472xi8>, %ps: memref<64x342xi8>,
    %r: memref<64xf32>, %t: i64) {
  tile.prepack <storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs> tokens(%t)
      ins(%w, %s : memref<64x5472xi8>, memref<64x342xf8E8M0FNU>) outs(%p, %ps, %r : memref<64x5472xi8>, memref<64x342xi8>, memref<64xf32>)
  tile.return
}
