// RUN: moe-opt %s --convert-tile-to-nvvm --split-input-file --verify-diagnostics
// RUN: not moe-opt %s --convert-tile-to-nvvm=target=cpu 2>&1 | FileCheck %s
// CHECK: convert-tile-to-nvvm: target 'cpu' is no GPU; accepted are sm_80, sm_90a, sm_100a

tile.kernel @no_config(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  // expected-error@+1 {{has no config; run tile-assign-config first}}
  tile.row_map tokens(%t) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
    ^bb0(%v: f32):
      tile.yield %v : f32
    }
  tile.return
}

// -----

tile.kernel @cpu(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  // expected-error@+1 {{has the schedule 'cpu.row_map', and on this target it needs 'sm80.row_map'}}
  tile.row_map tokens(%t) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
    ^bb0(%v: f32):
      tile.yield %v : f32
    } {config = #tile.config<schedule = "cpu.row_map", lanes = 8, rows = 4>}
  tile.return
}

// -----

tile.kernel @illegal(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  // expected-error@+1 {{panel = 7; give a multiple of 128}}
  tile.row_map tokens(%t) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
    ^bb0(%v: f32):
      tile.yield %v : f32
    } {config = #tile.config<schedule = "sm80.row_map", panel = 7, lanes = 4>}
  tile.return
}

// -----

// expected-error@+1 {{must have block = 32 and shared = 0, which follow from its config; run tile-assign-config}}
tile.kernel @launch(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) attributes {block = 64 : i64} {
  tile.row_map tokens(%t) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
    ^bb0(%v: f32):
      tile.yield %v : f32
    } {config = #tile.config<schedule = "sm80.row_map", panel = 128, lanes = 4>}
  tile.return
}
