// Rows times first matrices, in f32 or rounded.
// RUN: moe-opt %s --split-input-file --verify-diagnostics

tile.kernel @rounded(%x: memref<?x64xbf16>, %a: memref<2x3x16x64xbf16>, %o: memref<4xi32>, %s: memref<?xi32>,
    %i: memref<?xi32>, %y: memref<?x16xbf16>, %z: memref<?x1xi32>, %t: i64) {
  tile.lora_shrink tokens(%t) ins(%x : memref<?x64xbf16>) a(%a : memref<2x3x16x64xbf16>)
      offsets(%o : memref<4xi32>) source(%s : memref<?xi32>) adapter_ids(%i : memref<?xi32>)
      outs(%y, %z : memref<?x16xbf16>, memref<?x1xi32>) {top_k = 2 : i64}
  tile.return
}

// -----

tile.kernel @wide(%x: memref<?x64xbf16>, %a: memref<2x3x16x64xbf16>, %o: memref<4xi32>, %s: memref<?xi32>,
    %i: memref<?xi32>, %y: memref<?x32xbf16>, %z: memref<?x1xi32>, %t: i64) {
  // expected-error@+1 {{'result' must be of shape positions x (matrices * rank) = ?x16, not ?x32}}
  tile.lora_shrink tokens(%t) ins(%x : memref<?x64xbf16>) a(%a : memref<2x3x16x64xbf16>)
      offsets(%o : memref<4xi32>) source(%s : memref<?xi32>) adapter_ids(%i : memref<?xi32>)
      outs(%y, %z : memref<?x32xbf16>, memref<?x1xi32>) {top_k = 2 : i64}
  tile.return
}

// -----

tile.kernel @other(%x: memref<?x64xbf16>, %w: memref<3x128x64xbf16>, %o: memref<4xi32>, %s: memref<?x16xf16>,
    %i: memref<?x1xi32>, %b: memref<2x3x128x16xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{'shrunk' must have elements of type 'bf16', like the matrices, or f32, not 'f16'}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<3x128x64xbf16>) offsets(%o : memref<4xi32>)
      shrunk(%s : memref<?x16xf16>) adapters(%i : memref<?x1xi32>) b(%b : memref<2x3x128x16xbf16>)
      outs(%y : memref<?x128xbf16>) epilogue {
    ^bb0(%sum: f32, %update: f32):
      %v = arith.addf %sum, %update : f32
      tile.yield %v : f32
    }
  tile.return
}
