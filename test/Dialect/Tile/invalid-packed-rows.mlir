// Errors in the phases of an all-to-all, and what to write instead.
// RUN: moe-opt %s --split-input-file --verify-diagnostics

tile.kernel @ids(%ids: memref<?xi32>, %destinations: memref<64xi32>, %p: memref<?xi32>, %c: memref<4xi32>, %t: i64) {
  // expected-error @below {{has 'ids' of type 'memref<?xi32>'; give tokens x top_k of i32}}
  tile.route_rows tokens(%t) ids(%ids : memref<?xi32>) destinations(%destinations : memref<64xi32>)
      outs(%p, %c : memref<?xi32>, memref<4xi32>)
  tile.return
}

// -----

tile.kernel @destinations(%ids: memref<?x2xi32>, %destinations: memref<64x2xi32>, %p: memref<?xi32>, %c: memref<4xi32>, %t: i64) {
  // expected-error @below {{has 'destinations' of type 'memref<64x2xi32>'; give one i32 per expert}}
  tile.route_rows tokens(%t) ids(%ids : memref<?x2xi32>) destinations(%destinations : memref<64x2xi32>)
      outs(%p, %c : memref<?xi32>, memref<4xi32>)
  tile.return
}

// -----

tile.kernel @valid(%ids: memref<?x2xi32>, %destinations: memref<64xi32>, %v: memref<2xi32>, %p: memref<?xi32>, %c: memref<4xi32>, %t: i64) {
  // expected-error @below {{has 'num_valid_tokens' of type 'memref<2xi32>'; memref<1xi32> is accepted}}
  tile.route_rows tokens(%t) ids(%ids : memref<?x2xi32>) destinations(%destinations : memref<64xi32>) num_valid_tokens(%v : memref<2xi32>)
      outs(%p, %c : memref<?xi32>, memref<4xi32>)
  tile.return
}

// -----

tile.kernel @positions(%ids: memref<?x2xi32>, %destinations: memref<64xi32>, %p: memref<8xi32>, %c: memref<4xi32>, %t: i64) {
  // expected-error @below {{has 'positions' of type 'memref<8xi32>'; memref<?xi32> is accepted}}
  tile.route_rows tokens(%t) ids(%ids : memref<?x2xi32>) destinations(%destinations : memref<64xi32>)
      outs(%p, %c : memref<8xi32>, memref<4xi32>)
  tile.return
}

// -----

tile.kernel @counts(%ids: memref<?x2xi32>, %destinations: memref<64xi32>, %p: memref<?xi32>, %c: memref<1xi32>, %t: i64) {
  // expected-error @below {{has 'counts' of type 'memref<1xi32>'; give one i32 per rank, 2 or more}}
  tile.route_rows tokens(%t) ids(%ids : memref<?x2xi32>) destinations(%destinations : memref<64xi32>)
      outs(%p, %c : memref<?xi32>, memref<1xi32>)
  tile.return
}

// -----

tile.kernel @twice(%ids: memref<?x2xi32>, %destinations: memref<64xi32>, %p: memref<?xi32>, %c: memref<4xi32>, %t: i64) {
  // expected-error @below {{uses one memref twice; give each operand its own memref}}
  tile.route_rows tokens(%t) ids(%ids : memref<?x2xi32>) destinations(%c : memref<4xi32>)
      outs(%p, %c : memref<?xi32>, memref<4xi32>)
  tile.return
}

// -----

tile.kernel @pairs(%x: memref<?x8xbf16>, %y: memref<?x8xbf16>, %z: memref<?x8xbf16>, %p: memref<?xi32>, %c: memref<4xi32>, %h: memref<3xi64>, %t: i64) {
  // expected-error @below {{has 1 ins, 1 outs and 0 packed; give one or more ins and as many outs and packed}}
  "tile.pack_rows"(%t, %x, %y, %p, %c, %h) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1>}>
      : (i64, memref<?x8xbf16>, memref<?x8xbf16>, memref<?xi32>, memref<4xi32>, memref<3xi64>) -> ()
  tile.return
}

// -----

tile.kernel @other(%x: memref<?x8xbf16>, %y: memref<?x8xbf16>, %z: memref<?x16xbf16>, %p: memref<?xi32>, %c: memref<4xi32>, %h: memref<3xi64>, %t: i64) {
  // expected-error @below {{has 'packed' of type 'memref<?x16xbf16>' for 'ins' of type 'memref<?x8xbf16>'; give both the same type}}
  tile.pack_rows tokens(%t) ins(%x : memref<?x8xbf16>) outs(%y : memref<?x8xbf16>) packed(%z : memref<?x16xbf16>)
      by(%p, %c, %h : memref<?xi32>, memref<4xi32>, memref<3xi64>)
  tile.return
}

// -----

tile.kernel @rows(%x: memref<8xbf16>, %y: memref<8xbf16>, %z: memref<8xbf16>, %p: memref<?xi32>, %c: memref<4xi32>, %h: memref<3xi64>, %t: i64) {
  // expected-error @below {{has 'ins' of type 'memref<8xbf16>'; give a row of whole bytes per token}}
  tile.pack_rows tokens(%t) ins(%x : memref<8xbf16>) outs(%y : memref<8xbf16>) packed(%z : memref<8xbf16>)
      by(%p, %c, %h : memref<?xi32>, memref<4xi32>, memref<3xi64>)
  tile.return
}

// -----

tile.kernel @header(%x: memref<?x8xbf16>, %y: memref<?x8xbf16>, %z: memref<?x8xbf16>, %p: memref<?xi32>, %c: memref<4xi32>, %h: memref<2xi64>, %t: i64) {
  // expected-error @below {{has a header of type 'memref<2xi64>'; give 3 words}}
  tile.pack_rows tokens(%t) ins(%x : memref<?x8xbf16>) outs(%y : memref<?x8xbf16>) packed(%z : memref<?x8xbf16>)
      by(%p, %c, %h : memref<?xi32>, memref<4xi32>, memref<2xi64>)
  tile.return
}

// -----

tile.kernel @summed(%x: memref<?x8xi32>, %y: memref<?x8xi32>, %z: memref<?x8xi32>, %p: memref<?xi32>, %c: memref<4xi32>, %h: memref<3xi64>, %t: i64) {
  // expected-error @below {{has elements of type 'i32', which cannot be summed; f32, bf16 and f16 can}}
  tile.sum_packed_rows tokens(%t) input(%x : memref<?x8xi32>) packed(%y : memref<?x8xi32>)
      by(%p, %c, %h : memref<?xi32>, memref<4xi32>, memref<3xi64>) outs(%z : memref<?x8xi32>)
  tile.return
}
