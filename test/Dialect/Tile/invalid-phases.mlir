// RUN: moe-opt %s --split-input-file --verify-diagnostics

tile.kernel @k(%l: memref<8x4xf32>, %b: memref<4xf32>, %i: memref<?x2xi32>, %w: memref<?x2xf32>, %tokens: i64) {
  // expected-error@+1 {{'logits' must be of shape tokens x num_routed = ?x*, not 8x4 (* is any size above 0) (the number of tokens is known only at run time: write '?')}}
  tile.top_k tokens(%tokens) logits(%l : memref<8x4xf32>) outs(%i, %w : memref<?x2xi32>, memref<?x2xf32>) <top_k = 2>
  tile.return
}

// -----

tile.kernel @k(%l: memref<?x4xf32>, %b: memref<4xf32>, %i: memref<?x2xi32>, %w: memref<?x2xf32>, %tokens: i64) {
  // expected-error@+1 {{'top_k' is 5, but there are only 4 experts to choose from}}
  tile.top_k tokens(%tokens) logits(%l : memref<?x4xf32>) outs(%i, %w : memref<?x2xi32>, memref<?x2xf32>) <top_k = 5>
  tile.return
}

// -----

tile.kernel @k(%l: memref<?x4xf32>, %b: memref<4xf32>, %i: memref<?x2xi32>, %w: memref<?x2xf32>, %tokens: i64) {
  // expected-error@+1 {{'ids' must be of shape tokens x top_k = ?x3, not ?x2}}
  tile.top_k tokens(%tokens) logits(%l : memref<?x4xf32>) outs(%i, %w : memref<?x2xi32>, memref<?x2xf32>) <top_k = 3>
  tile.return
}

// -----

tile.kernel @k(%l: memref<?x4xf32>, %b: memref<4xf32>, %i: memref<?x2xi32>, %w: memref<?x2xf32>, %tokens: i64) {
  // expected-error@+1 {{needs 'input_ids' and 'hash_table' with select 'hash'}}
  tile.top_k tokens(%tokens) logits(%l : memref<?x4xf32>) outs(%i, %w : memref<?x2xi32>, memref<?x2xf32>) <top_k = 2, select = hash>
  tile.return
}

// -----

tile.kernel @k(%l: memref<?x4xf32>, %b: memref<5xf32>, %i: memref<?x2xi32>, %w: memref<?x2xf32>, %tokens: i64) {
  // expected-error@+1 {{'selection_bias' must be of shape num_routed = 4, not 5}}
  tile.top_k tokens(%tokens) logits(%l : memref<?x4xf32>) selection_bias(%b : memref<5xf32>) outs(%i, %w : memref<?x2xi32>, memref<?x2xf32>) <top_k = 2>
  tile.return
}

// -----

tile.kernel @k(%l: memref<?x4xf32>, %b: memref<4xf32>, %i: memref<?x2xi32>, %w: memref<?x2xf32>, %tokens: i64) {
  // expected-error@+1 {{region 'score' must take (logit), each f32, but takes 0 arguments}}
  tile.top_k tokens(%tokens) logits(%l : memref<?x4xf32>) outs(%i, %w : memref<?x2xi32>, memref<?x2xf32>) <top_k = 2> score {
  ^bb0:
    %z = arith.constant 0.0 : f32
    tile.yield %z : f32
  }
  tile.return
}

// -----

tile.kernel @k(%l: memref<?x4xf32>, %b: memref<4xf32>, %i: memref<?x2xi32>, %w: memref<?x2xf32>, %tokens: i64) {
  // expected-error@+1 {{region 'weight' must end in 'tile.yield'}}
  tile.top_k tokens(%tokens) logits(%l : memref<?x4xf32>) outs(%i, %w : memref<?x2xi32>, memref<?x2xf32>) <top_k = 2> weight {
  ^bb0(%v: f32):
    llvm.unreachable
  }
  tile.return
}

// -----

tile.kernel @k(%l: memref<?x4xf32>, %b: memref<4xf32>, %i: memref<?x2xi32>, %w: memref<?x2xf32>, %tokens: i64) {
  tile.top_k tokens(%tokens) logits(%l : memref<?x4xf32>) outs(%i, %w : memref<?x2xi32>, memref<?x2xf32>) <top_k = 2> score {
  ^bb0(%v: f32):
    // expected-error@+1 {{'moe.param' op is only allowed in the region 'activation' of a 'moe.layer'}}
    %p = moe.param "limit"
    tile.yield %p : f32
  }
  tile.return
}

// -----

tile.kernel @k(%i: memref<?x2xi32>, %w: memref<?x2xf32>, %o: memref<5xi32>, %p: memref<?x2xi32>, %s: memref<?xi32>, %r: memref<?x1xf32>, %tokens: i64) {
  // expected-error@+1 {{'offsets' must be of shape (local experts + 1) = 9, not 5}}
  tile.sort_by_expert tokens(%tokens) ids(%i, %w : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %r : memref<5xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) {num_experts = 8 : i64}
  tile.return
}

// -----

tile.kernel @k(%i: memref<?x2xi32>, %w: memref<?x2xf32>, %o: memref<5xi32>, %p: memref<?x2xi32>, %s: memref<?xi32>, %r: memref<?x1xf32>, %tokens: i64) {
  // expected-error@+1 {{'num_experts' is 0; 1 to 2147483647 is accepted}}
  tile.sort_by_expert tokens(%tokens) ids(%i, %w : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %r : memref<5xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) {num_experts = 0 : i64}
  tile.return
}

// -----

tile.kernel @k(%i: memref<?x2xi32>, %w: memref<?x2xf32>, %o: memref<5xi32>, %p: memref<?x2xi32>, %s: memref<?xi32>, %r: memref<?x1xf32>, %tokens: i64) {
  // expected-error@+1 {{local expert 4 is out of range; ids are 0 to 3}}
  tile.sort_by_expert tokens(%tokens) ids(%i, %w : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %r : memref<5xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) {num_experts = 4 : i64, local_experts = array<i64: 4>}
  tile.return
}

// -----

tile.kernel @k(%i: memref<?x2xi32>, %w: memref<?x2xf32>, %o: memref<5xi32>, %p: memref<?x2xi32>, %s: memref<?xi32>, %r: memref<?x1xf32>, %tokens: i64) {
  // expected-error@+1 {{has outs[1] also among its other operands; a phase must not read or write one memref twice}}
  tile.sort_by_expert tokens(%tokens) ids(%i, %w : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %i, %s, %r : memref<5xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) {num_experts = 4 : i64}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<8x16xf32>, %o: memref<3xi32>, %y: memref<?x8xf32>, %z: memref<?x16xf32>, %tokens: i64) {
  // expected-error@+1 {{'weight' must be of shape groups x n x k = 2x*x16, not 8x16}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<8x16xf32>) offsets(%o : memref<3xi32>) outs(%y : memref<?x8xf32>)
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<8x16xf32>, %o: memref<3xi32>, %y: memref<?x8xf32>, %z: memref<?x16xf32>, %tokens: i64) {
  // expected-error@+1 {{'result' must be of shape tokens x n = ?x8, not ?x16}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<8x16xf32>) outs(%z : memref<?x16xf32>)
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<8x16xf32>, %o: memref<3xi32>, %y: memref<?x4xf32>, %z: memref<?x16xf32>, %tokens: i64) {
  // expected-error@+1 {{has a 'layout', hence two accumulators; add an epilogue that combines them into one value}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<8x16xf32>) outs(%y : memref<?x4xf32>) {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<8x16xf32>, %o: memref<3xi32>, %y: memref<?x8xf32>, %z: memref<?x16xf32>, %tokens: i64) {
  // expected-error@+1 {{has outs[0] also among its other operands; a phase must not read or write one memref twice}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<8x16xf32>) elementwise(%y : memref<?x8xf32>) outs(%y : memref<?x8xf32>) epilogue {
  ^bb0(%a: f32, %e: f32):
    tile.yield %a : f32
  }
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<8x16xf32>, %o: memref<3xi32>, %y: memref<?x8xf32>, %z: memref<?x16xf32>, %tokens: i64) {
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<8x16xf32>) outs(%y : memref<?x8xf32>) epilogue {
  ^bb0(%a: f32):
    // expected-error@+1 {{'arith.constant' op works on 'vector<4xf32>' in the scalar region 'epilogue'; use scalars, which the lowering vectorizes}}
    %c = arith.constant dense<0.0> : vector<4xf32>
    tile.yield %a : f32
  }
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %r: memref<?xf32>, %y: memref<?x8xf32>, %z: memref<?x16xf32>, %tokens: i64) {
  // expected-error@+1 {{'result' must be of shape tokens x width = ?x16, not ?x8}}
  tile.row_map tokens(%tokens) ins(%x : memref<?x16xf32>) outs(%y : memref<?x8xf32>) {
  ^bb0(%v: f32):
    tile.yield %v : f32
  }
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %r: memref<?xf32>, %y: memref<?x8xf32>, %z: memref<?x16xf32>, %tokens: i64) {
  // expected-error@+1 {{'rows[0]' must be of shape tokens x 1 = ?x1, not ?}}
  tile.row_map tokens(%tokens) ins(%x : memref<?x16xf32>) rows(%r : memref<?xf32>) outs(%z : memref<?x16xf32>) {
  ^bb0(%v: f32):
    tile.yield %v : f32
  }
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %r: memref<?xf32>, %y: memref<?x8xf32>, %z: memref<?x16xf32>, %tokens: i64) {
  // expected-error@+1 {{region 'body' must take (x), each f32, but takes 2 arguments}}
  tile.row_map tokens(%tokens) ins(%x : memref<?x16xf32>) outs(%z : memref<?x16xf32>) {
  ^bb0(%v: f32, %u: f32):
    tile.yield %v : f32
  }
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %r: memref<?xf32>, %y: memref<?x8xf32>, %z: memref<?x16xf32>, %tokens: i64) {
  // expected-error@+1 {{has outs[0] also among its other operands; a phase must not read or write one memref twice}}
  tile.row_map tokens(%tokens) ins(%x : memref<?x16xf32>) outs(%x : memref<?x16xf32>) {
  ^bb0(%v: f32):
    tile.yield %v : f32
  }
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %r: memref<?xf32>, %y: memref<?x8xf32>, %z: memref<?x16xf32>, %tokens: i64) {
  tile.row_map tokens(%tokens) ins(%x : memref<?x16xf32>) outs(%z : memref<?x16xf32>) {
  ^bb0(%v: f32):
    // expected-error@+1 {{'memref.alloc' op is not allowed in the scalar region 'body'}}
    %m = memref.alloc() : memref<4xf32>
    tile.yield %v : f32
  }
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %p: memref<?x2xi32>, %y: memref<?x16xf32>, %z: memref<?x16xbf16>, %tokens: i64) {
  // expected-error@+1 {{'result' must have elements of type 'f32', like 'rows', not 'bf16'}}
  tile.gather_reduce tokens(%tokens) ins(%x, %p : memref<?x16xf32>, memref<?x2xi32>) outs(%z : memref<?x16xbf16>)
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %p: memref<?xi32>, %y: memref<?x16xf32>, %z: memref<?x16xbf16>, %tokens: i64) {
  // expected-error@+1 {{'position' must be of shape tokens x top_k = ?x*, not ?}}
  tile.gather_reduce tokens(%tokens) ins(%x, %p : memref<?x16xf32>, memref<?xi32>) outs(%y : memref<?x16xf32>)
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %p: memref<?x2xi32>, %y: memref<?x16xf32>, %z: memref<?x16xbf16>, %tokens: i64) {
  // expected-error@+1 {{has outs[0] also among its other operands; a phase must not read or write one memref twice}}
  tile.gather_reduce tokens(%tokens) ins(%x, %p : memref<?x16xf32>, memref<?x2xi32>) addend(%y : memref<?x16xf32>) outs(%y : memref<?x16xf32>)
  tile.return
}

// -----

"tile.kernel"() ({
^bb0(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %tokens: i64):
  // expected-error@+1 {{must take the kernel's last argument as 'tokens'}}
  tile.row_map tokens(%n) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
  ^bb0(%v: f32):
    tile.yield %v : f32
  }
  %n = arith.addi %tokens, %tokens : i64
  tile.return
}) {sym_name = "k", function_type = (memref<?x8xf32>, memref<?x8xf32>, i64) -> ()} : () -> ()

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<2x8x16xf32>, %o: memref<3xi32>, %i: memref<?x2xi32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{has 'num_experts' or 'local_experts', which belong to 'ids'; give 'ids' too}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<2x8x16xf32>) offsets(%o : memref<3xi32>) outs(%y : memref<?x8xf32>) {num_experts = 2 : i64}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<2x8x16xf32>, %o: memref<3xi32>, %i: memref<?x2xi32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{has 'ids'; give 'num_experts' and the 'offsets' made from the ids too}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<2x8x16xf32>) offsets(%o : memref<3xi32>) schedule(ids = %i : memref<?x2xi32>) outs(%y : memref<?x8xf32>)
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<8x16xf32>, %o: memref<3xi32>, %i: memref<?x2xi32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{has 'ids'; give 'num_experts' and the 'offsets' made from the ids too}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<8x16xf32>) schedule(ids = %i : memref<?x2xi32>) outs(%y : memref<?x8xf32>) {num_experts = 2 : i64}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<2x8x16xf32>, %o: memref<3xi32>, %i: memref<?x2xi32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{has 'ids' of 3 local experts, but 2 groups}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<2x8x16xf32>) offsets(%o : memref<3xi32>) schedule(ids = %i : memref<?x2xi32>) outs(%y : memref<?x8xf32>) {num_experts = 3 : i64}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<2x8x16xf32>, %o: memref<3xi32>, %i: memref<?x2xi32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{has 'ids' of 1 local experts, but 2 groups}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<2x8x16xf32>) offsets(%o : memref<3xi32>) schedule(ids = %i : memref<?x2xi32>) outs(%y : memref<?x8xf32>) {local_experts = array<i64: 2>, num_experts = 3 : i64}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<2x8x16xf32>, %o: memref<3xi32>, %i: memref<?x2xi32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{local expert 3 is out of range; ids are 0 to 2}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<2x8x16xf32>) offsets(%o : memref<3xi32>) schedule(ids = %i : memref<?x2xi32>) outs(%y : memref<?x8xf32>) {local_experts = array<i64: 2, 3>, num_experts = 3 : i64}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<2x8x16xf32>, %o: memref<3xi32>, %i: memref<4x2xi32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{'ids' must be of shape tokens x top_k}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<2x8x16xf32>) offsets(%o : memref<3xi32>) schedule(ids = %i : memref<4x2xi32>) outs(%y : memref<?x8xf32>) {num_experts = 2 : i64}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<8x16xf32>, %c: memref<2xi32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{'signals' must be of shape 1, not 2}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<8x16xf32>) schedule(signals = %c : memref<2xi32>) outs(%y : memref<?x8xf32>)
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<8x16xf32>, %c: memref<?xi32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{'awaits' must be of shape 1}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<8x16xf32>) schedule(awaits = %c : memref<?xi32>) outs(%y : memref<?x8xf32>)
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<2x8x16xf32>, %o: memref<3xi32>, %c: memref<2xi32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{'tile_counter' must be of shape 1, not 2}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<2x8x16xf32>) offsets(%o : memref<3xi32>) schedule(tile_counter = %c : memref<2xi32>) outs(%y : memref<?x8xf32>)
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<8x16xf32>, %c: memref<1xi32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{has 'tile_counter', which needs a grouped gemm; give 'offsets' too}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<8x16xf32>) schedule(tile_counter = %c : memref<1xi32>) outs(%y : memref<?x8xf32>)
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<2x8x16xf32>, %o: memref<3xi32>, %c: memref<1xi32>, %d: memref<1xi32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{has 'tile_counter' and 'signals' or 'awaits'; joined gemms take tiles in a fixed order}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<2x8x16xf32>) offsets(%o : memref<3xi32>) schedule(awaits = %d : memref<1xi32>, tile_counter = %c : memref<1xi32>)  outs(%y : memref<?x8xf32>)
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<8x16xf32>, %c: memref<1xi32>, %d: memref<1xi32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{has 'signals' and 'awaits'; a gemm is either the first or the second of its kernel}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<8x16xf32>) schedule(signals = %c : memref<1xi32>, awaits = %d : memref<1xi32>)  outs(%y : memref<?x8xf32>)
  tile.return
}

// -----

// expected-error@+1 {{has private_rows[1] = 4; give the rows of a memref argument, or 0}}
tile.kernel @k(%x: memref<?x16xf32>, %w: memref<8x16xf32>, %y: memref<?x8xf32>, %tokens: i64) attributes {private_rows = array<i64: 2, 4>} {
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<8x16xf32>) outs(%y : memref<?x8xf32>)
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<8x16xf32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{has 'group_rows', but no groups; give 'offsets' too}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<8x16xf32>) outs(%y : memref<?x8xf32>) {group_rows = #tile.group_rows<max = 8>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<2x8x16xf32>, %o: memref<3xi32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{goes from 'min' -3 to 'max' 9223372036854775807; both ends must be at least 1}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<2x8x16xf32>) offsets(%o : memref<3xi32>) outs(%y : memref<?x8xf32>) {group_rows = #tile.group_rows<min = -3>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<2x8x16xf32>, %o: memref<3xi32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{goes from 'min' 1 to 'max' 0; both ends must be at least 1}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<2x8x16xf32>) offsets(%o : memref<3xi32>) outs(%y : memref<?x8xf32>) {group_rows = #tile.group_rows<max = 0>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<2x8x16xf32>, %o: memref<3xi32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{goes from 'min' 9 to 'max' 8, an empty range; give a 'max' of at least 'min'}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<2x8x16xf32>) offsets(%o : memref<3xi32>) outs(%y : memref<?x8xf32>) {group_rows = #tile.group_rows<min = 9, max = 8>}
  tile.return
}

// -----

tile.kernel @k(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<9xi32>, %p: memref<?x2xi32>, %s: memref<?xi32>, %w: memref<?x1xf32>, %c: memref<9xi32>, %tokens: i64) {
  // expected-error@+1 {{'counter' must be of shape 1}}
  tile.sort_by_expert tokens(%tokens) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>) outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) counter(%c : memref<9xi32>) {num_experts = 8 : i64}
  tile.return
}

// -----

tile.kernel @k(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %c: memref<16x8xi32>, %o: memref<9xi32>, %p: memref<?x2xi32>, %s: memref<?xi32>, %w: memref<?x1xf32>, %tokens: i64) {
  // expected-error@+1 {{has only one of 'counts' and 'chunk_tokens'; give both or neither}}
  tile.sort_by_expert tokens(%tokens) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>) counts(%c : memref<16x8xi32>) outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) {num_experts = 8 : i64}
  tile.return
}

// -----

tile.kernel @k(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %c: memref<16x9xi32>, %o: memref<9xi32>, %p: memref<?x2xi32>, %s: memref<?xi32>, %w: memref<?x1xf32>, %tokens: i64) {
  // expected-error@+1 {{'counts' must be of shape chunks x (local experts) = *x8, not 16x9 (* is any size above 0)}}
  tile.sort_by_expert tokens(%tokens) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>) counts(%c : memref<16x9xi32>) outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) {num_experts = 8 : i64, chunk_tokens = 4 : i64}
  tile.return
}

// -----

tile.kernel @k(%i: memref<?x2xi32>, %c: memref<16x8xi32>, %tokens: i64) {
  // expected-error@+1 {{'chunk_tokens' is 0; give 1 or more tokens}}
  tile.count_slots tokens(%tokens) ids(%i : memref<?x2xi32>) outs(%c : memref<16x8xi32>) {num_experts = 8 : i64, chunk_tokens = 0 : i64}
  tile.return
}

// -----

tile.kernel @k(%i: memref<?x2xi32>, %c: memref<?x8xi32>, %tokens: i64) {
  // expected-error@+1 {{'counts' must be of shape chunks x (local experts) = *x2, not ?x8 (* is any size above 0)}}
  tile.count_slots tokens(%tokens) ids(%i : memref<?x2xi32>) outs(%c : memref<?x8xi32>) {num_experts = 8 : i64, chunk_tokens = 4 : i64, local_experts = array<i64: 3, 1>}
  tile.return
}

// -----

tile.kernel @k(%i: memref<?x2xi32>, %c: memref<16x8xi32>, %tokens: i64) {
  // expected-error@+1 {{local expert 8 is out of range; ids are 0 to 7}}
  tile.count_slots tokens(%tokens) ids(%i : memref<?x2xi32>) outs(%c : memref<16x8xi32>) {num_experts = 8 : i64, chunk_tokens = 4 : i64, local_experts = array<i64: 3, 8>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %o: memref<3xi32>, %s: memref<?xi32>, %y: memref<?x16xf32>, %tokens: i64) {
  // expected-error@+1 {{has 0 ins and 0 outs; give one or more ins and as many outs}}
  "tile.gather_rows"(%tokens, %o, %s) <{operandSegmentSizes = array<i32: 1, 0, 1, 1, 0, 0>, top_k = 2 : i64}>
      : (i64, memref<3xi32>, memref<?xi32>) -> ()
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %o: memref<3xi32>, %s: memref<?xi32>, %y: memref<?x16xf32>, %z: memref<?x16xf32>, %tokens: i64) {
  // expected-error@+1 {{has 1 ins and 2 outs; give one or more ins and as many outs}}
  tile.gather_rows tokens(%tokens) ins(%x : memref<?x16xf32>) offsets(%o : memref<3xi32>) source(%s : memref<?xi32>)
      outs(%y, %z : memref<?x16xf32>, memref<?x16xf32>) {top_k = 2 : i64}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %o: memref<3xi32>, %s: memref<?xi32>, %y: memref<?x16xf32>, %tokens: i64) {
  // expected-error@+1 {{'top_k' is 0; give at least 1}}
  tile.gather_rows tokens(%tokens) ins(%x : memref<?x16xf32>) offsets(%o : memref<3xi32>) source(%s : memref<?xi32>)
      outs(%y : memref<?x16xf32>) {top_k = 0 : i64}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %o: memref<3xi32>, %s: memref<?xi32>, %y: memref<?x16xf32>, %tokens: i64) {
  // expected-error@+1 {{takes 'offsets', 'source' and the attribute 'top_k' together: there are at most tokens * top_k positions}}
  tile.gather_rows tokens(%tokens) ins(%x : memref<?x16xf32>) offsets(%o : memref<3xi32>) source(%s : memref<?xi32>)
      outs(%y : memref<?x16xf32>)
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %y: memref<?x16xf32>, %tokens: i64) {
  // expected-error@+1 {{defines no order; give 'offsets' and 'source' for an order of rows, or 'columns'}}
  tile.gather_rows tokens(%tokens) ins(%x : memref<?x16xf32>) outs(%y : memref<?x16xf32>)
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %o: memref<3x1xi32>, %s: memref<?xi32>, %y: memref<?x16xf32>, %tokens: i64) {
  // expected-error@+1 {{'offsets' must be of shape (groups + 1) = *, not 3x1 (* is any size above 0)}}
  tile.gather_rows tokens(%tokens) ins(%x : memref<?x16xf32>) offsets(%o : memref<3x1xi32>) source(%s : memref<?xi32>)
      outs(%y : memref<?x16xf32>) {top_k = 2 : i64}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %o: memref<?xi32>, %s: memref<?xi32>, %y: memref<?x16xf32>, %tokens: i64) {
  // expected-error@+1 {{'offsets' must be of shape (groups + 1) = *, not ? (* is any size above 0)}}
  tile.gather_rows tokens(%tokens) ins(%x : memref<?x16xf32>) offsets(%o : memref<?xi32>) source(%s : memref<?xi32>)
      outs(%y : memref<?x16xf32>) {top_k = 2 : i64}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %o: memref<1xi32>, %s: memref<?xi32>, %y: memref<?x16xf32>, %tokens: i64) {
  // expected-error@+1 {{'offsets' must have at least 2 entries: the begin and the end of one group}}
  tile.gather_rows tokens(%tokens) ins(%x : memref<?x16xf32>) offsets(%o : memref<1xi32>) source(%s : memref<?xi32>)
      outs(%y : memref<?x16xf32>) {top_k = 2 : i64}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %o: memref<3xi32>, %s: memref<8xi32>, %y: memref<?x16xf32>, %tokens: i64) {
  // expected-error@+1 {{'source' must be of shape positions = ?, not 8}}
  tile.gather_rows tokens(%tokens) ins(%x : memref<?x16xf32>) offsets(%o : memref<3xi32>) source(%s : memref<8xi32>)
      outs(%y : memref<?x16xf32>) {top_k = 2 : i64}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %o: memref<3xi32>, %s: memref<?xi32>, %y: memref<?x16xbf16>, %tokens: i64) {
  // expected-error@+1 {{copies 'memref<?x16xf32>' to 'memref<?x16xbf16>'; give both the same element type}}
  tile.gather_rows tokens(%tokens) ins(%x : memref<?x16xf32>) offsets(%o : memref<3xi32>) source(%s : memref<?xi32>)
      outs(%y : memref<?x16xbf16>) {top_k = 2 : i64}
  tile.return
}

// -----

tile.kernel @k(%x: memref<8x16xf32>, %o: memref<3xi32>, %s: memref<?xi32>, %y: memref<?x16xf32>, %tokens: i64) {
  // expected-error@+1 {{'ins' must be of shape tokens x width = ?x*, not 8x16}}
  tile.gather_rows tokens(%tokens) ins(%x : memref<8x16xf32>) offsets(%o : memref<3xi32>) source(%s : memref<?xi32>)
      outs(%y : memref<?x16xf32>) {top_k = 2 : i64}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %o: memref<3xi32>, %s: memref<?xi32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{'outs' must be of shape positions x width = ?x16, not ?x8}}
  tile.gather_rows tokens(%tokens) ins(%x : memref<?x16xf32>) offsets(%o : memref<3xi32>) source(%s : memref<?xi32>)
      outs(%y : memref<?x8xf32>) {top_k = 2 : i64}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %o: memref<3xi32>, %s: memref<?xi32>, %y: memref<?x16xf32>, %tokens: i64) {
  // expected-error@+1 {{has outs[0] also among its other operands; a phase must not read or write one memref twice}}
  tile.gather_rows tokens(%tokens) ins(%x : memref<?x16xf32>) offsets(%o : memref<3xi32>) source(%s : memref<?xi32>)
      outs(%x : memref<?x16xf32>) {top_k = 2 : i64}
  tile.return
}

// -----

// expected-error@+1 {{is 'ahead', which needs a 'tile.quantize' as its first phase and other phases after it; remove 'ahead'}}
tile.kernel @ahead_alone(%x: memref<?x128xbf16>, %q: memref<?x128xf8E4M3FN>, %c: memref<?x1xf32>, %t: i64) attributes {form = #tile.kernel_form<ahead = true>} {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%x : memref<?x128xbf16>) outs(%q, %c : memref<?x128xf8E4M3FN>, memref<?x1xf32>)
  tile.return
}

// -----

// expected-error@+1 {{is 'ahead', which needs a 'tile.quantize' as its first phase and other phases after it; remove 'ahead'}}
tile.kernel @ahead_of_nothing(%t: i64) attributes {form = #tile.kernel_form<ahead = true>} {
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<8x16xf32>, %c: memref<1xi32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{'counter' is not an operand of 'schedule'; there are ids, signals, awaits, tile_counter, cleared}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<8x16xf32>) schedule(counter = %c : memref<1xi32>) outs(%y : memref<?x8xf32>)
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<8x16xf32>, %c: memref<1xi32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{'awaits' is given twice}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<8x16xf32>) schedule(awaits = %c : memref<1xi32>, awaits = %c : memref<1xi32>) outs(%y : memref<?x8xf32>)
  tile.return
}

// -----

// expected-error@+1 {{has 'resident' as a separate attribute; give form = #tile.kernel_form<resident = true>}}
tile.kernel @k(%tokens: i64) attributes {resident} {
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16xf32>, %w: memref<2x8x16xf32>, %o: memref<3xi32>, %y: memref<?x8xf32>, %tokens: i64) {
  // expected-error@+1 {{has 'min_group_rows' as a separate attribute; give group_rows = #tile.group_rows<min = ...>}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<2x8x16xf32>) offsets(%o : memref<3xi32>) outs(%y : memref<?x8xf32>) {min_group_rows = 3 : i64}
  tile.return
}
