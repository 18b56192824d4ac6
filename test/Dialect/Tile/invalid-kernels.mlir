// RUN: moe-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{has results; a kernel writes to memrefs: make them arguments}}
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

// expected-error@+1 {{argument 0 is 'i32'; a kernel takes ranked memrefs, then the first column if a launch computes some columns, then the token count}}
tile.kernel @k(%n: i32, %tokens: i64) {
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
  // expected-error@+1 {{'tile.yield' op expects parent op to be one of 'tile.top_k, tile.gemm, tile.row_map'}}
  tile.yield %v : f32
}

// -----

// expected-error@+1 {{tensor_maps[0] is of argument 1, and the kernel has 1 memrefs}}
tile.kernel @k(%w: memref<4x8xbf16>, %tokens: i64) attributes {tensor_maps = [
    #tile.tensor_map<argument = 1, sizes = [4, 8], along = [0, 1], steps = [1, 1], box = [4, 8], swizzle = 0>]} {
  tile.return
}

// -----

// expected-error@+1 {{tensor_maps[0] is of argument 0, a 'i64'; it must be of a memref}}
tile.kernel @k(%w: i64, %tokens: i64) attributes {tensor_maps = [
    #tile.tensor_map<argument = 0, sizes = [4, 8], along = [0, 1], steps = [1, 1], box = [4, 8], swizzle = 0>]} {
  tile.return
}

// -----

// expected-error@+1 {{tensor_maps[0] goes along dimension 2 at index 0; argument 0 has 2 dimensions}}
tile.kernel @k(%w: memref<4x8xbf16>, %tokens: i64) attributes {tensor_maps = [
    #tile.tensor_map<argument = 0, sizes = [4, 8], along = [2, 1], steps = [1, 1], box = [4, 8], swizzle = 0>]} {
  tile.return
}

// -----

// expected-error@+1 {{tensor_maps[0] needs the size '?' exactly where it goes along a dimension that is not constant}}
tile.kernel @k(%w: memref<?x8xbf16>, %tokens: i64) attributes {tensor_maps = [
    #tile.tensor_map<argument = 0, sizes = [4, 8], along = [0, 1], steps = [1, 1], box = [4, 8], swizzle = 0>]} {
  tile.return
}

// -----

// expected-error@+1 {{tensor_maps[0] needs the size '?' exactly where it goes along a dimension that is not constant}}
tile.kernel @k(%w: memref<4x8xbf16>, %tokens: i64) attributes {tensor_maps = [
    #tile.tensor_map<argument = 0, sizes = [?, 8], along = [0, 1], steps = [1, 1], box = [4, 8], swizzle = 0>]} {
  tile.return
}

// -----

// expected-error@+1 {{tensor_maps[0] reaches index 4 of dimension 0 of argument 0, which has 4}}
tile.kernel @k(%w: memref<4x8xbf16>, %tokens: i64) attributes {tensor_maps = [
    #tile.tensor_map<argument = 0, sizes = [5, 8], along = [0, 1], steps = [1, 1], box = [4, 8], swizzle = 0>]} {
  tile.return
}

// -----

// expected-error@+1 {{tensor_maps[0] reaches index 2303 of dimension 2 of argument 0, which has 64}}
tile.kernel @k(%w: memref<4x128x64xi8>, %tokens: i64) attributes {tensor_maps = [
    #tile.tensor_map<argument = 0, sizes = [4, 2, 2, 9, 256], along = [0, 1, 1, 2, 2], steps = [1, 64, 32, 256, 1], box = [1, 2, 2, 4, 256], swizzle = 0>]} {
  tile.return
}

// -----

// expected-error@+1 {{tensor_maps[0] reaches index 12 of dimension 1 of argument 0, which has 12}}
tile.kernel @k(%w: memref<4x12x8xbf16>, %tokens: i64) attributes {tensor_maps = [
    #tile.tensor_map<argument = 0, sizes = [4, 2, 6, 8], along = [0, 1, 1, 2], steps = [1, 7, 1, 1], box = [1, 2, 6, 8], swizzle = 0>]} {
  tile.return
}

// -----

// expected-error@+1 {{tensor_maps[0] must go in steps of 1 along the argument's last dimension at its own last one}}
tile.kernel @k(%w: memref<4x8xbf16>, %tokens: i64) attributes {tensor_maps = [
    #tile.tensor_map<argument = 0, sizes = [8, 4], along = [1, 0], steps = [1, 1], box = [4, 8], swizzle = 0>]} {
  tile.return
}

// -----

// expected-error@+1 {{tensor_maps[0] goes 24 bytes at index 0; a multiple of 16 below 2^40 is accepted}}
tile.kernel @k(%w: memref<4x12xbf16>, %tokens: i64) attributes {tensor_maps = [
    #tile.tensor_map<argument = 0, sizes = [4, 12], along = [0, 1], steps = [1, 1], box = [4, 8], swizzle = 0>]} {
  tile.return
}

// -----

// expected-error@+1 {{tensor_maps[0] has a box of 8 bytes in its last dimension; a multiple of 16 is accepted}}
tile.kernel @k(%w: memref<4x8xbf16>, %tokens: i64) attributes {tensor_maps = [
    #tile.tensor_map<argument = 0, sizes = [4, 8], along = [0, 1], steps = [1, 1], box = [4, 4], swizzle = 0>]} {
  tile.return
}

// -----

// expected-error@+1 {{tensor_maps[0] has a box of 128 bytes in its last dimension; at most the swizzle's 64 are accepted}}
tile.kernel @k(%w: memref<4x8xbf16>, %tokens: i64) attributes {tensor_maps = [
    #tile.tensor_map<argument = 0, sizes = [4, 8], along = [0, 1], steps = [1, 1], box = [4, 64], swizzle = 64>]} {
  tile.return
}
