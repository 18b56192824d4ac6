// RUN: moe-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{has results; a kernel writes memrefs: make them arguments}}
tile.kernel @k(%tokens: i64) -> memref<?x8xf32> {
  tile.return
}

// -----

// expected-error@+1 {{must have the token count, an i64, as its last argument}}
tile.kernel @k() {
  tile.return
}

// -----

// expected-error@+1 {{must have the token count, an i64, as its last argument}}
tile.kernel @k(%x: memref<?x8xf32>, %y: memref<?x8xf32>) {
  tile.return
}

// -----

// expected-error@+1 {{argument 0 is 'i64'; a kernel takes ranked memrefs and, last, the token count}}
tile.kernel @k(%n: i64, %tokens: i64) {
  tile.return
}

// -----

// expected-error@+1 {{argument 1 must be row-major without gaps; remove the layout of 'memref<4x8xf32, strided<[16, 1]>>'}}
tile.kernel @k(%x: memref<8xf32>, %y: memref<4x8xf32, strided<[16, 1]>>, %tokens: i64) {
  tile.return
}

// -----

// expected-error@+1 {{argument 0 has the dynamic dimension 1 in 'memref<4x?xf32>'; only the first one may be '?'}}
tile.kernel @k(%x: memref<4x?xf32>, %tokens: i64) {
  tile.return
}

// -----

// expected-error@+1 {{must have one block: phases and a 'tile.return'}}
tile.kernel @k(%tokens: i64) {
  cf.br ^bb1
^bb1:
  tile.return
}

// -----

tile.kernel @k(%tokens: i64) {
  // expected-error@+1 {{is not allowed in a 'tile.kernel'; its body holds phases (tile ops on memrefs) and a 'tile.return'}}
  %c = arith.constant 0 : i64
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %tokens: i64) attributes {grid = #plan.expr<"1">} {
  // expected-error@+1 {{has no 'config', but its kernel has a 'grid', which follows from it; run 'tile-assign-config' or remove the 'grid'}}
  tile.row_map tokens(%tokens) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
  ^bb0(%v: f32):
    tile.yield %v : f32
  }
  tile.return
}

// -----

func.func @f(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{'tile.row_map' op expects parent op 'tile.kernel'}}
  tile.row_map tokens(%tokens) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
  ^bb0(%v: f32):
    tile.yield %v : f32
  }
  return
}

// -----

func.func @f() {
  // expected-error@+1 {{'tile.return' op expects parent op 'tile.kernel'}}
  tile.return
}

// -----

func.func @f(%v: f32) {
  // expected-error@+1 {{'tile.yield' op expects parent op to be one of 'tile.top_k, tile.contract, tile.row_map'}}
  tile.yield %v : f32
}
