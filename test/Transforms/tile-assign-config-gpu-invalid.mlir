// RUN: moe-opt %s --tile-assign-config=target=sm_80 --split-input-file --verify-diagnostics

tile.kernel @cpu(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  // expected-error@+1 {{has the schedule "cpu.row_map", which the target sm_80 does not have; there are sm80.contract, sm80.gemv, sm80.top_k, sm80.count_slots, sm80.rank, sm80.row_map, sm80.quantize, sm80.gather_rows, sm80.gather_reduce}}
  tile.row_map tokens(%t) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
    ^bb0(%v: f32):
      tile.yield %v : f32
    } {config = #tile.config<schedule = "cpu.row_map", lanes = 8, rows = 4>}
  tile.return
}

// -----

tile.kernel @lanes(%x: memref<?x12xf32>, %y: memref<?x12xf32>, %t: i64) {
  // expected-error@+1 {{lanes = 8; give a divisor of 4}}
  tile.row_map tokens(%t) ins(%x : memref<?x12xf32>) outs(%y : memref<?x12xf32>) {
    ^bb0(%v: f32):
      tile.yield %v : f32
    } {config = #tile.config<schedule = "sm80.row_map", panel = 256, lanes = 8>}
  tile.return
}

// -----

tile.kernel @panel(%x: memref<?x12xf32>, %y: memref<?x12xf32>, %t: i64) {
  // expected-error@+1 {{panel = 100; give a multiple of 128 up to 4096}}
  tile.row_map tokens(%t) ins(%x : memref<?x12xf32>) outs(%y : memref<?x12xf32>) {
    ^bb0(%v: f32):
      tile.yield %v : f32
    } {config = #tile.config<schedule = "sm80.row_map", panel = 100, lanes = 4>}
  tile.return
}

// -----

tile.kernel @tile(%x: memref<?x64xbf16>, %w: memref<64x64xbf16>, %y: memref<?x64xf32>, %t: i64) {
  // expected-error@+1 {{n = 48; give a multiple of 32}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<64x64xbf16>) outs(%y : memref<?x64xf32>)
      {config = #tile.config<schedule = "sm80.contract", m = 64, n = 48, k = 64, lanes = 4>}
  tile.return
}

// -----

tile.kernel @depth(%x: memref<?x64xbf16>, %w: memref<64x64xbf16>, %y: memref<?x64xf32>, %t: i64) {
  // expected-error@+1 {{k = 16 is 32 bytes of a row; give 64 or 128 bytes}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<64x64xbf16>) outs(%y : memref<?x64xf32>)
      {config = #tile.config<schedule = "sm80.contract", m = 64, n = 64, k = 16, lanes = 4>}
  tile.return
}

// -----

tile.kernel @registers(%x: memref<?x64xbf16>, %w: memref<64x64xbf16>, %y: memref<?x64xf32>, %t: i64) {
  // expected-error@+1 {{m = 256, n = 128 needs 256 accumulators per thread; give at most 128}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<64x64xbf16>) outs(%y : memref<?x64xf32>)
      {config = #tile.config<schedule = "sm80.contract", m = 256, n = 128, k = 32, lanes = 4>}
  tile.return
}

// -----

tile.kernel @shared(%x: memref<?x64xbf16>, %w: memref<64x64xbf16>, %y: memref<?x64xf32>, %t: i64) {
  // expected-error@+1 {{m = 128, n = 128, k = 64 needs 110592 bytes of shared memory; give at most 101376}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<64x64xbf16>) outs(%y : memref<?x64xf32>)
      {config = #tile.config<schedule = "sm80.contract", m = 128, n = 128, k = 64, lanes = 4>}
  tile.return
}

// -----

tile.kernel @warps(%l: memref<?x128xf32>, %i: memref<?x8xi32>, %w: memref<?x8xf32>, %t: i64) {
  // expected-error@+1 {{lanes = 48; give a multiple of 32 up to 1024}}
  tile.top_k tokens(%t) logits(%l : memref<?x128xf32>) outs(%i, %w : memref<?x8xi32>, memref<?x8xf32>)
      <top_k = 8> {config = #tile.config<schedule = "sm80.top_k", lanes = 48, rows = 4>}
  tile.return
}

// -----

tile.kernel @no_tokens(%l: memref<?x128xf32>, %i: memref<?x8xi32>, %w: memref<?x8xf32>, %t: i64) {
  // expected-error@+1 {{rows = 0; give 1 to 1048576 tokens}}
  tile.top_k tokens(%t) logits(%l : memref<?x128xf32>) outs(%i, %w : memref<?x8xi32>, memref<?x8xf32>)
      <top_k = 8> {config = #tile.config<schedule = "sm80.top_k", lanes = 32>}
  tile.return
}

// -----

tile.kernel @rows_of_warps(%l: memref<?x4096xf32>, %i: memref<?x8xi32>, %w: memref<?x8xf32>, %t: i64) {
  // expected-error@+1 {{lanes = 64 needs 66048 bytes of shared memory; there are 49152}}
  tile.top_k tokens(%t) logits(%l : memref<?x4096xf32>) outs(%i, %w : memref<?x8xi32>, memref<?x8xf32>)
      <top_k = 8> {config = #tile.config<schedule = "sm80.top_k", lanes = 64, rows = 4>}
  tile.return
}

// -----

tile.kernel @many(%i: memref<?x8xi32>, %w: memref<?x8xf32>, %o: memref<20001xi32>, %p: memref<?x8xi32>,
    %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64) {
  // expected-error@+1 {{panel = 20000; give 1 to 4096 local experts}}
  tile.rank tokens(%t) ids(%i, %w : memref<?x8xi32>, memref<?x8xf32>)
      outs(%o, %p, %s, %r : memref<20001xi32>, memref<?x8xi32>, memref<?xi32>, memref<?x1xf32>)
      {num_experts = 20000 : i64,
       config = #tile.config<schedule = "sm80.rank", panel = 20000, lanes = 32, rows = 1>}
  tile.return
}

// -----

tile.kernel @chunks(%i: memref<?x8xi32>, %w: memref<?x8xf32>, %o: memref<5xi32>, %p: memref<?x8xi32>,
    %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64) {
  // expected-error@+1 {{rows = 0; give 1 to 1048576 tokens}}
  tile.rank tokens(%t) ids(%i, %w : memref<?x8xi32>, memref<?x8xf32>)
      outs(%o, %p, %s, %r : memref<5xi32>, memref<?x8xi32>, memref<?xi32>, memref<?x1xf32>)
      {num_experts = 4 : i64, config = #tile.config<schedule = "sm80.rank", panel = 4, lanes = 32>}
  tile.return
}

// -----

tile.kernel @other_chunks(%i: memref<?x8xi32>, %w: memref<?x8xf32>, %c: memref<128x4xi32>, %o: memref<5xi32>,
    %p: memref<?x8xi32>, %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64) {
  // expected-error@+1 {{rows = 64; give the 128 tokens of the chunks that 'counts' are of}}
  tile.rank tokens(%t) ids(%i, %w : memref<?x8xi32>, memref<?x8xf32>) counts(%c : memref<128x4xi32>)
      outs(%o, %p, %s, %r : memref<5xi32>, memref<?x8xi32>, memref<?xi32>, memref<?x1xf32>)
      {num_experts = 4 : i64, chunk_tokens = 128 : i64,
       config = #tile.config<schedule = "sm80.rank", panel = 4, lanes = 32, rows = 64>}
  tile.return
}

// -----

tile.kernel @counters(%i: memref<?x8xi32>, %c: memref<128x20000xi32>, %t: i64) {
  // expected-error@+1 {{panel = 20000; give 1 to 8192 local experts}}
  tile.count_slots tokens(%t) ids(%i : memref<?x8xi32>) outs(%c : memref<128x20000xi32>)
      {num_experts = 20000 : i64, chunk_tokens = 128 : i64,
       config = #tile.config<schedule = "sm80.count_slots", panel = 20000, lanes = 32>}
  tile.return
}

// -----

tile.kernel @threads(%i: memref<?x8xi32>, %c: memref<128x4xi32>, %t: i64) {
  // expected-error@+1 {{lanes = 48; give a multiple of 32 up to 1024}}
  tile.count_slots tokens(%t) ids(%i : memref<?x8xi32>) outs(%c : memref<128x4xi32>)
      {num_experts = 4 : i64, chunk_tokens = 128 : i64,
       config = #tile.config<schedule = "sm80.count_slots", panel = 4, lanes = 48>}
  tile.return
}

// -----

tile.kernel @no_tokens_at_a_time(%x: memref<?x16xf32>, %p: memref<?x2xi32>, %y: memref<?x16xf32>, %t: i64) {
  // expected-error@+1 {{rows = 0; give 1 or more tokens at a time}}
  tile.gather_reduce tokens(%t) ins(%x, %p : memref<?x16xf32>, memref<?x2xi32>) outs(%y : memref<?x16xf32>)
      {config = #tile.config<schedule = "sm80.gather_reduce", panel = 128, lanes = 4>}
  tile.return
}

// -----

tile.kernel @some_groups(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{groups are told apart by their rows in sm90.contract alone; give neither 'min_group_rows' nor 'max_group_rows'}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>) outs(%y : memref<?x128xbf16>)
      {max_group_rows = 64 : i64, config = #tile.config<schedule = "sm80.contract", m = 32, n = 32, k = 64, lanes = 8>}
  tile.return
}
