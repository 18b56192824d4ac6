// Weights of a launch to come.
// RUN: moe-opt %s --split-input-file --verify-diagnostics | moe-opt --split-input-file | FileCheck %s

// CHECK-LABEL: tile.kernel @rank
// CHECK: num_valid_tokens(%{{.*}} : memref<1xi32>) prefetch(%{{.*}} : memref<3x24x16xbf16>) outs(
// CHECK-SAME: prefetch_bytes = 1000 : i64}
tile.kernel @rank(%ids: memref<?x2xi32>, %weights: memref<?x2xf32>, %valid: memref<1xi32>, %next: memref<3x24x16xbf16>,
    %offsets: memref<4xi32>, %position: memref<?x2xi32>, %source: memref<?xi32>, %row_weight: memref<?x1xf32>, %tokens: i64) {
  tile.rank tokens(%tokens) ids(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>)
      prefetch(%next : memref<3x24x16xbf16>) num_valid_tokens(%valid : memref<1xi32>)
      outs(%offsets, %position, %source, %row_weight
           : memref<4xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      {num_experts = 8 : i64, local_experts = array<i64: 7, 0, 3>, prefetch_bytes = 1000 : i64}
  tile.return
}

// Of the same groups, or one matrix.
// CHECK-LABEL: tile.kernel @grouped
// CHECK: offsets(%{{.*}} : memref<5xi32>) prefetch(%{{.*}} : memref<4x16x24xf8E4M3FN>) outs(
// CHECK: offsets(%{{.*}} : memref<5xi32>) prefetch(%{{.*}} : memref<8x24xf32>) outs(
tile.kernel @grouped(%x: memref<?x16xbf16>, %w: memref<4x24x16xbf16>, %offsets: memref<5xi32>,
    %next: memref<4x16x24xf8E4M3FN>, %one: memref<8x24xf32>, %y: memref<?x24xbf16>, %tokens: i64) {
  tile.contract tokens(%tokens) ins(%x, %w : memref<?x16xbf16>, memref<4x24x16xbf16>) offsets(%offsets : memref<5xi32>)
      prefetch(%next : memref<4x16x24xf8E4M3FN>) outs(%y : memref<?x24xbf16>) {prefetch_bytes = 1000 : i64}
  tile.contract tokens(%tokens) ins(%x, %w : memref<?x16xbf16>, memref<4x24x16xbf16>) offsets(%offsets : memref<5xi32>)
      prefetch(%one : memref<8x24xf32>) outs(%y : memref<?x24xbf16>) {prefetch_bytes = 1000 : i64}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xbf16>, %w: memref<24x16xbf16>, %next: memref<16x24xbf16>, %y: memref<?x24xbf16>, %tokens: i64) {
  // expected-error@+1 {{has one of 'prefetch' and 'prefetch_bytes'; give both or none}}
  tile.contract tokens(%tokens) ins(%x, %w : memref<?x16xbf16>, memref<24x16xbf16>) prefetch(%next : memref<16x24xbf16>)
      outs(%y : memref<?x24xbf16>)
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xbf16>, %w: memref<24x16xbf16>, %next: memref<16x24xbf16>, %y: memref<?x24xbf16>, %tokens: i64) {
  // expected-error@+1 {{has 'prefetch_bytes' 0; at least 1 is accepted}}
  tile.contract tokens(%tokens) ins(%x, %w : memref<?x16xbf16>, memref<24x16xbf16>) prefetch(%next : memref<16x24xbf16>)
      outs(%y : memref<?x24xbf16>) {prefetch_bytes = 0 : i64}
  tile.return
}

// -----

// Without groups nobody knows which of them will be read.
tile.kernel @k(%x: memref<?x16xbf16>, %w: memref<24x16xbf16>, %next: memref<4x16x24xbf16>, %y: memref<?x24xbf16>, %tokens: i64) {
  // expected-error@+1 {{has 'prefetch' of type 'memref<4x16x24xbf16>'; it must be one matrix, of constant size and without gaps}}
  tile.contract tokens(%tokens) ins(%x, %w : memref<?x16xbf16>, memref<24x16xbf16>) prefetch(%next : memref<4x16x24xbf16>)
      outs(%y : memref<?x24xbf16>) {prefetch_bytes = 8 : i64}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xbf16>, %w: memref<4x24x16xbf16>, %o: memref<5xi32>, %next: memref<3x16x24xbf16>, %y: memref<?x24xbf16>, %tokens: i64) {
  // expected-error@+1 {{has 'prefetch' of type 'memref<3x16x24xbf16>'; it must be 4 matrices or one, of constant size and without gaps}}
  tile.contract tokens(%tokens) ins(%x, %w : memref<?x16xbf16>, memref<4x24x16xbf16>) offsets(%o : memref<5xi32>)
      prefetch(%next : memref<3x16x24xbf16>) outs(%y : memref<?x24xbf16>) {prefetch_bytes = 8 : i64}
  tile.return
}

// -----

tile.kernel @k(%ids: memref<?x2xi32>, %weights: memref<?x2xf32>, %next: memref<24x16xbf16>,
    %offsets: memref<4xi32>, %position: memref<?x2xi32>, %source: memref<?xi32>, %row_weight: memref<?x1xf32>, %tokens: i64) {
  // expected-error@+1 {{has 'prefetch' of type 'memref<24x16xbf16>'; it must be 3 matrices, of constant size and without gaps}}
  tile.rank tokens(%tokens) ids(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) prefetch(%next : memref<24x16xbf16>)
      outs(%offsets, %position, %source, %row_weight
           : memref<4xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      {num_experts = 3 : i64, prefetch_bytes = 8 : i64}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xbf16>, %w: memref<24x16xbf16>, %next: memref<3x4xbf16>, %y: memref<?x24xbf16>, %tokens: i64) {
  // expected-error@+1 {{has 'prefetch' with matrices of 24 bytes; a multiple of 16 is accepted}}
  tile.contract tokens(%tokens) ins(%x, %w : memref<?x16xbf16>, memref<24x16xbf16>) prefetch(%next : memref<3x4xbf16>)
      outs(%y : memref<?x24xbf16>) {prefetch_bytes = 8 : i64}
  tile.return
}
