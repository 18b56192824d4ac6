// RUN: moe-opt %s --split-input-file --convert-tile-to-vector --verify-diagnostics

tile.kernel @no_config(%x: memref<?x8xf32>, %w: memref<4x8xf32>, %y: memref<?x4xf32>, %t: i64) {
  // expected-error@+1 {{has no config; run tile-assign-config first}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x8xf32>, memref<4x8xf32>) outs(%y : memref<?x4xf32>)
  tile.return
}

// -----

tile.kernel @other_target(%x: memref<?x8xf32>, %w: memref<4x8xf32>, %y: memref<?x4xf32>, %t: i64) {
  // expected-error@+1 {{has the schedule 'sm90.ws', and on the CPU it needs 'cpu.contract'}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x8xf32>, memref<4x8xf32>) outs(%y : memref<?x4xf32>)
      {config = #tile.config<schedule = "sm90.ws">}
  tile.return
}

// -----

tile.kernel @lanes(%x: memref<?x8xf32>, %w: memref<4x8xf32>, %y: memref<?x4xf32>, %t: i64) {
  // expected-error@+1 {{needs a config with lanes = 4, 8 or 16, got 6}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x8xf32>, memref<4x8xf32>) outs(%y : memref<?x4xf32>)
      {config = #tile.config<schedule = "cpu.contract", m = 1, n = 4, panel = 4, lanes = 6, rows = 1>}
  tile.return
}

// -----

tile.kernel @rows(%x: memref<?x8xf32>, %w: memref<4x8xf32>, %y: memref<?x4xf32>, %t: i64) {
  // expected-error@+1 {{needs a config with rows > 0, got 0}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x8xf32>, memref<4x8xf32>) outs(%y : memref<?x4xf32>)
      {config = #tile.config<schedule = "cpu.contract", m = 1, n = 4, panel = 4, lanes = 4>}
  tile.return
}

// -----

tile.kernel @quads(%x: memref<?x8xf32>, %w: memref<4x8xf32>, %y: memref<?x4xf32>, %t: i64) {
  // expected-error@+1 {{takes 6 weight rows at a time; change n so that they are a multiple of 4}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x8xf32>, memref<4x8xf32>) outs(%y : memref<?x4xf32>)
      {config = #tile.config<schedule = "cpu.contract", m = 1, n = 6, panel = 6, lanes = 4, rows = 1>}
  tile.return
}

// -----

tile.kernel @panel(%x: memref<?x8xf32>, %w: memref<4x8xf32>, %y: memref<?x4xf32>, %t: i64) {
  // expected-error@+1 {{has panel = 6, which is no multiple of n = 4}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x8xf32>, memref<4x8xf32>) outs(%y : memref<?x4xf32>)
      {config = #tile.config<schedule = "cpu.contract", m = 1, n = 4, panel = 6, lanes = 4, rows = 1>}
  tile.return
}

// -----

tile.kernel @scratch(%x: memref<?x8xf32>, %w: memref<4x8xf32>, %y: memref<?x4xf32>, %t: i64) {
  // expected-error@+1 {{asks for 131072 bytes of accumulators, and 65536 is the bound; lower rows or panel}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x8xf32>, memref<4x8xf32>) outs(%y : memref<?x4xf32>)
      {config = #tile.config<schedule = "cpu.contract", m = 1, n = 4, panel = 32, lanes = 4, rows = 1024>}
  tile.return
}

// -----

tile.kernel @reduce_tile(%r: memref<?x16xf32>, %p: memref<?x3xi32>, %y: memref<?x16xf32>, %t: i64) {
  // expected-error@+1 {{has a config whose n = 12 is not a multiple of lanes = 8}}
  tile.gather_reduce tokens(%t) ins(%r, %p : memref<?x16xf32>, memref<?x3xi32>) outs(%y : memref<?x16xf32>)
      {config = #tile.config<schedule = "cpu.gather_reduce", n = 12, lanes = 8, rows = 2>}
  tile.return
}

// -----

tile.kernel @two_phases(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.row_map tokens(%t) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
  ^bb0(%a: f32):
    tile.yield %a : f32
  } {config = #tile.config<schedule = "cpu.row_map", lanes = 8, rows = 2>}
  // expected-error@+1 {{is a second phase of its kernel; run tile-split-phases first}}
  tile.row_map tokens(%t) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
  ^bb0(%a: f32):
    tile.yield %a : f32
  } {config = #tile.config<schedule = "cpu.row_map", lanes = 8, rows = 2>}
  tile.return
}

// -----

// expected-error@+1 {{has no phase}}
tile.kernel @empty(%t: i64) {
  tile.return
}

// -----

tile.kernel @math(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.row_map tokens(%t) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
  ^bb0(%a: f32):
    // expected-error@+1 {{has no form in kernels; of the transcendental functions there are exp, tanh, erf, log and log1p on f32}}
    %b = math.cos %a : f32
    tile.yield %b : f32
  } {config = #tile.config<schedule = "cpu.row_map", lanes = 8, rows = 2>}
  tile.return
}
