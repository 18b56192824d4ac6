// Phases for some columns of their results, in kernels that take the first one as an argument.
// RUN: moe-opt %s --split-input-file --verify-diagnostics | moe-opt --split-input-file | FileCheck %s

// CHECK-LABEL: tile.kernel @product(
//  CHECK-SAME: %first_column: i64, %tokens: i64)
//       CHECK: tile.gemm tokens(%tokens) {{.*}} first_column(%first_column) outs({{.*}} {num_columns = 64 : i64}
tile.kernel @product(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %c: i64, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>) first_column(%c)
      outs(%y : memref<?x128xbf16>) {num_columns = 64 : i64}
  tile.return
}

// -----

// CHECK-LABEL: tile.kernel @exchange(
//       CHECK: tile.exchange reduce_scatter tokens(%tokens) {{.*}} heaps({{.*}}) first_column(%first_column) {num_columns = 4 : i64}
tile.kernel @exchange(%a: memref<?x8xf32>, %y: memref<?x8xf32>, %r: memref<?x8xf32>, %p: memref<?x2xi32>,
    %h: memref<?xi64>, %g: memref<?xi64>, %c: i64, %t: i64) {
  tile.exchange reduce_scatter tokens(%t) ins(%a : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
      sums_of(%r, %p : memref<?x8xf32>, memref<?x2xi32>) heaps(%h, %g : memref<?xi64>, memref<?xi64>)
      first_column(%c) {num_columns = 4 : i64}
  tile.return
}

// -----

tile.kernel @count(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %c: i64, %t: i64) {
  // expected-error@+1 {{has num_columns = 48 of 'memref<?x128xbf16>'; give a divisor of the number of columns}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>) first_column(%c)
      outs(%y : memref<?x128xbf16>) {num_columns = 48 : i64}
  tile.return
}

// -----

tile.kernel @alone(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %c: i64, %t: i64) {
  // expected-error@+1 {{needs both 'first_column' and 'num_columns', or neither; 'first_column' must be the kernel's argument before the token count}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>) outs(%y : memref<?x128xbf16>)
      {num_columns = 64 : i64}
  tile.return
}

// -----

tile.kernel @other(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %c: i64, %t: i64) {
  // expected-error@+1 {{is in a kernel with a first column; only gemms and exchanges compute some columns}}
  tile.row_map tokens(%t) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
      ^bb0(%v: f32):
        tile.yield %v : f32
      }
  tile.return
}

// -----

tile.kernel @gathers(%a: memref<?x8xf32>, %y: memref<?x8xf32>, %h: memref<?xi64>, %g: memref<?xi64>, %c: i64, %t: i64) {
  // expected-error@+1 {{has 'first_column' without 'sums_of'; give 'sums_of' too, or remove 'first_column'}}
  tile.exchange reduce_scatter tokens(%t) ins(%a : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
      heaps(%h, %g : memref<?xi64>, memref<?xi64>) first_column(%c) {num_columns = 4 : i64}
  tile.return
}
