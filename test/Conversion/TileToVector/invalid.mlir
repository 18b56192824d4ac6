// RUN: moe-opt %s --split-input-file --convert-tile-to-vector --verify-diagnostics

tile.kernel @no_config(%x: memref<?x8xf32>, %w: memref<4x8xf32>, %y: memref<?x4xf32>, %t: i64) {
  // expected-error@+1 {{has no config; run tile-assign-config first}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x8xf32>, memref<4x8xf32>) outs(%y : memref<?x4xf32>)
  tile.return
}

// -----

tile.kernel @other_target(%x: memref<?x8xf32>, %w: memref<4x8xf32>, %y: memref<?x4xf32>, %t: i64) {
  // expected-error@+1 {{has the schedule 'sm90.gemm', and on the CPU it needs 'cpu.gemm'}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x8xf32>, memref<4x8xf32>) outs(%y : memref<?x4xf32>)
      {config = #tile.sm90_gemm}
  tile.return
}

// -----

tile.kernel @lanes(%x: memref<?x8xf32>, %w: memref<4x8xf32>, %y: memref<?x4xf32>, %t: i64) {
  // expected-error@+1 {{needs a config with lanes = 4, 8 or 16, got 6}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x8xf32>, memref<4x8xf32>) outs(%y : memref<?x4xf32>)
      {config = #tile.cpu_gemm<register_rows = 1, register_columns = 4, columns_per_cta = 4, lanes = 6, rows_per_cta = 1>}
  tile.return
}

// -----

tile.kernel @rows(%x: memref<?x8xf32>, %w: memref<4x8xf32>, %y: memref<?x4xf32>, %t: i64) {
  // expected-error@+1 {{needs a config with rows_per_cta > 0, got 0}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x8xf32>, memref<4x8xf32>) outs(%y : memref<?x4xf32>)
      {config = #tile.cpu_gemm<register_rows = 1, register_columns = 4, columns_per_cta = 4, lanes = 4>}
  tile.return
}

// -----

tile.kernel @quads(%x: memref<?x8xf32>, %w: memref<4x8xf32>, %y: memref<?x4xf32>, %t: i64) {
  // expected-error@+1 {{takes 6 weight rows at a time, which must be a multiple of 4; change register_columns}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x8xf32>, memref<4x8xf32>) outs(%y : memref<?x4xf32>)
      {config = #tile.cpu_gemm<register_rows = 1, register_columns = 6, columns_per_cta = 6, lanes = 4, rows_per_cta = 1>}
  tile.return
}

// -----

tile.kernel @n_tile(%x: memref<?x8xf32>, %w: memref<4x8xf32>, %y: memref<?x4xf32>, %t: i64) {
  // expected-error@+1 {{has columns_per_cta = 6, which is not a multiple of register_columns = 4}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x8xf32>, memref<4x8xf32>) outs(%y : memref<?x4xf32>)
      {config = #tile.cpu_gemm<register_rows = 1, register_columns = 4, columns_per_cta = 6, lanes = 4, rows_per_cta = 1>}
  tile.return
}

// -----

tile.kernel @scratch(%x: memref<?x8xf32>, %w: memref<4x8xf32>, %y: memref<?x4xf32>, %t: i64) {
  // expected-error@+1 {{needs 131072 bytes of accumulators, more than 65536; reduce rows_per_cta or columns_per_cta}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x8xf32>, memref<4x8xf32>) outs(%y : memref<?x4xf32>)
      {config = #tile.cpu_gemm<register_rows = 1, register_columns = 4, columns_per_cta = 32, lanes = 4, rows_per_cta = 1024>}
  tile.return
}

// -----

tile.kernel @reduce_tile(%r: memref<?x16xf32>, %p: memref<?x3xi32>, %y: memref<?x16xf32>, %t: i64) {
  // expected-error@+1 {{has a config whose register_columns = 12 is not a multiple of lanes = 8}}
  tile.gather_reduce tokens(%t) ins(%r, %p : memref<?x16xf32>, memref<?x3xi32>) outs(%y : memref<?x16xf32>)
      {config = #tile.cpu_gather_reduce<register_columns = 12, lanes = 8, rows_per_cta = 2>}
  tile.return
}

// -----

tile.kernel @two_phases(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.row_map tokens(%t) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
  ^bb0(%a: f32):
    tile.yield %a : f32
  } {config = #tile.cpu_row_map<lanes = 8, rows_per_cta = 2>}
  // expected-error@+1 {{is the second phase of its kernel; run tile-split-phases first}}
  tile.row_map tokens(%t) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
  ^bb0(%a: f32):
    tile.yield %a : f32
  } {config = #tile.cpu_row_map<lanes = 8, rows_per_cta = 2>}
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
    // expected-error@+1 {{cannot be lowered in kernels; the supported transcendental functions are exp, tanh, erf, log and log1p on f32}}
    %b = math.cos %a : f32
    tile.yield %b : f32
  } {config = #tile.cpu_row_map<lanes = 8, rows_per_cta = 2>}
  tile.return
}

// -----

tile.kernel @tiles(%x: memref<?x48xbf16>, %w: memref<16x48xbf16>, %y: memref<?x16xf32>, %t: i64) {
  // expected-error@+1 {{has a config with block_k = 32; give a multiple of 32 that divides the 48 elements of K with instruction_k = 32}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x48xbf16>, memref<16x48xbf16>) outs(%y : memref<?x16xf32>)
      {config = #tile.cpu_gemm<register_rows = 16, register_columns = 16, block_k = 32, columns_per_cta = 16, lanes = 16, rows_per_cta = 16, instruction_k = 32>}
  tile.return
}
