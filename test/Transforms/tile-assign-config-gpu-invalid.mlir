// RUN: moe-opt %s --tile-assign-config=target=sm_80 --split-input-file --verify-diagnostics

tile.kernel @cpu(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  // expected-error@+1 {{has the schedule "cpu.row_map", which the target sm_80 does not have; there are sm80.gemm, gpu.gemv, gpu.top_k, gpu.count_slots, gpu.sort_by_expert, gpu.place_ids, gpu.row_map, gpu.rms_norm, gpu.lora_tile, gpu.lora_parts, gpu.lora_shrink, gpu.lora_update, gpu.tensor_scale, gpu.quantize, gpu.gather_rows, gpu.gather_reduce}}
  tile.row_map tokens(%t) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
    ^bb0(%v: f32):
      tile.yield %v : f32
    } {config = #tile.cpu_row_map<lanes = 8, rows_per_cta = 4>}
  tile.return
}

// -----

tile.kernel @lanes(%x: memref<?x12xf32>, %y: memref<?x12xf32>, %t: i64) {
  // expected-error@+1 {{vector_width = 8; give a divisor of 4}}
  tile.row_map tokens(%t) ins(%x : memref<?x12xf32>) outs(%y : memref<?x12xf32>) {
    ^bb0(%v: f32):
      tile.yield %v : f32
    } {config = #tile.gpu_row_map<columns_per_cta = 256, vector_width = 8>}
  tile.return
}

// -----

tile.kernel @n_tile(%x: memref<?x12xf32>, %y: memref<?x12xf32>, %t: i64) {
  // expected-error@+1 {{columns_per_cta = 100; give a multiple of 128 up to 4096}}
  tile.row_map tokens(%t) ins(%x : memref<?x12xf32>) outs(%y : memref<?x12xf32>) {
    ^bb0(%v: f32):
      tile.yield %v : f32
    } {config = #tile.gpu_row_map<columns_per_cta = 100, vector_width = 4>}
  tile.return
}

// -----

tile.kernel @norm(%x: memref<?x12xf32>, %w: memref<12xf32>, %y: memref<?x12xf32>, %t: i64) {
  // expected-error@+1 {{threads = 48; give a multiple of 32 up to 512}}
  tile.rms_norm <epsilon = 1.0 : f32> tokens(%t) ins(%x : memref<?x12xf32>) weight(%w : memref<12xf32>)
      outs(%y : memref<?x12xf32>) {config = #tile.gpu_rms_norm<threads = 48, vector_width = 4>}
  tile.return
}

// -----

tile.kernel @odd(%x: memref<?x12xbf16>, %a: memref<2x3x16x12xbf16>, %o: memref<4xi32>, %s: memref<?xi32>,
    %i: memref<?xi32>, %y: memref<?x16xf32>, %z: memref<?x1xi32>, %t: i64) {
  // expected-error@+1 {{rows of 12 elements are no multiples of 16 bytes; use gpu.lora_shrink}}
  tile.lora_shrink gather tokens(%t) ins(%x : memref<?x12xbf16>) a(%a : memref<2x3x16x12xbf16>)
      offsets(%o : memref<4xi32>) source(%s : memref<?xi32>) adapter_ids(%i : memref<?xi32>)
      outs(%y, %z : memref<?x16xf32>, memref<?x1xi32>)
      {top_k = 2 : i64, config = #tile.gpu_lora_tile<warps = 4, column_tiles = 1>}
  tile.return
}

// -----

tile.kernel @parts(%x: memref<?x64xbf16>, %a: memref<2x3x16x64xbf16>, %o: memref<4xi32>, %s: memref<?xi32>,
    %i: memref<?xi32>, %y: memref<?x16xbf16>, %z: memref<?x1xi32>, %t: i64) {
  // expected-error@+1 {{column_tiles = 5; give 1 to 4}}
  tile.lora_shrink gather tokens(%t) ins(%x : memref<?x64xbf16>) a(%a : memref<2x3x16x64xbf16>)
      offsets(%o : memref<4xi32>) source(%s : memref<?xi32>) adapter_ids(%i : memref<?xi32>)
      outs(%y, %z : memref<?x16xbf16>, memref<?x1xi32>)
      {top_k = 2 : i64, config = #tile.gpu_lora_parts<warps = 4, column_tiles = 5>}
  tile.return
}

// -----

tile.kernel @counted(%x: memref<?x64xbf16>, %a: memref<1024x3x16x64xbf16>, %o: memref<4xi32>, %s: memref<?xi32>,
    %i: memref<?xi32>, %y: memref<?x16xbf16>, %z: memref<?x1xi32>, %t: i64) {
  // expected-error@+1 {{CTAs count the rows of up to 1023 adapters, not of 1024}}
  tile.lora_shrink gather tokens(%t) ins(%x : memref<?x64xbf16>) a(%a : memref<1024x3x16x64xbf16>)
      offsets(%o : memref<4xi32>) source(%s : memref<?xi32>) adapter_ids(%i : memref<?xi32>)
      outs(%y, %z : memref<?x16xbf16>, memref<?x1xi32>)
      {top_k = 2 : i64, config = #tile.gpu_lora_parts<warps = 4, column_tiles = 2>}
  tile.return
}

// -----

tile.kernel @sums(%x: memref<?x64xbf16>, %a: memref<2x3x32x64xbf16>, %o: memref<4xi32>, %s: memref<?xi32>,
    %i: memref<?xi32>, %y: memref<?x32xbf16>, %z: memref<?x1xi32>, %t: i64) {
  // expected-error@+1 {{warps * column_tiles = 64; give up to 32}}
  tile.lora_shrink gather tokens(%t) ins(%x : memref<?x64xbf16>) a(%a : memref<2x3x32x64xbf16>)
      offsets(%o : memref<4xi32>) source(%s : memref<?xi32>) adapter_ids(%i : memref<?xi32>)
      outs(%y, %z : memref<?x32xbf16>, memref<?x1xi32>)
      {top_k = 2 : i64, config = #tile.gpu_lora_parts<warps = 16, column_tiles = 4>}
  tile.return
}

// -----

tile.kernel @shrink(%x: memref<?x64xbf16>, %a: memref<2x3x16x64xbf16>, %o: memref<4xi32>, %s: memref<?xi32>,
    %i: memref<?xi32>, %y: memref<?x16xf32>, %z: memref<?x1xi32>, %t: i64) {
  // expected-error@+1 {{vector_width = 3; give a divisor of 8}}
  tile.lora_shrink gather tokens(%t) ins(%x : memref<?x64xbf16>) a(%a : memref<2x3x16x64xbf16>)
      offsets(%o : memref<4xi32>) source(%s : memref<?xi32>) adapter_ids(%i : memref<?xi32>)
      outs(%y, %z : memref<?x16xf32>, memref<?x1xi32>)
      {top_k = 2 : i64, config = #tile.gpu_lora_shrink<warps = 4, columns_per_warp = 1, vector_width = 3>}
  tile.return
}

// -----

tile.kernel @update(%x: memref<?x64xbf16>, %a: memref<2x3x6x64xbf16>, %b: memref<2x3x32x6xbf16>, %o: memref<4xi32>,
    %s: memref<?xi32>, %i: memref<?xi32>, %y: memref<?x32xf32>, %t: i64) {
  // expected-error@+1 {{a rank of 6 is no multiple of 4}}
  tile.lora_update gather tokens(%t) ins(%x : memref<?x64xbf16>) a(%a : memref<2x3x6x64xbf16>)
      b(%b : memref<2x3x32x6xbf16>) offsets(%o : memref<4xi32>) source(%s : memref<?xi32>)
      adapter_ids(%i : memref<?xi32>) outs(%y : memref<?x32xf32>)
      {top_k = 2 : i64, config = #tile.gpu_lora_update<warps = 2>}
  tile.return
}

// -----

tile.kernel @tile(%x: memref<?x64xbf16>, %w: memref<64x64xbf16>, %y: memref<?x64xf32>, %t: i64) {
  // expected-error@+1 {{block_n = 48; give a multiple of 32}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<64x64xbf16>) outs(%y : memref<?x64xf32>)
      {config = #tile.sm80_gemm<block_m = 64, block_n = 48, block_k = 64, vector_width = 4>}
  tile.return
}

// -----

tile.kernel @depth(%x: memref<?x64xbf16>, %w: memref<64x64xbf16>, %y: memref<?x64xf32>, %t: i64) {
  // expected-error@+1 {{block_k = 16 is 32 bytes per row; give 64 or 128 bytes}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<64x64xbf16>) outs(%y : memref<?x64xf32>)
      {config = #tile.sm80_gemm<block_m = 64, block_n = 64, block_k = 16, vector_width = 4>}
  tile.return
}

// -----

tile.kernel @registers(%x: memref<?x64xbf16>, %w: memref<64x64xbf16>, %y: memref<?x64xf32>, %t: i64) {
  // expected-error@+1 {{block_m = 256, block_n = 128 needs 256 accumulators per thread; give at most 128}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<64x64xbf16>) outs(%y : memref<?x64xf32>)
      {config = #tile.sm80_gemm<block_m = 256, block_n = 128, block_k = 32, vector_width = 4>}
  tile.return
}

// -----

tile.kernel @shared(%x: memref<?x64xbf16>, %w: memref<64x64xbf16>, %y: memref<?x64xf32>, %t: i64) {
  // expected-error@+1 {{block_m = 128, block_n = 128, block_k = 64 needs 110592 bytes of shared memory; give at most 101376}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<64x64xbf16>) outs(%y : memref<?x64xf32>)
      {config = #tile.sm80_gemm<block_m = 128, block_n = 128, block_k = 64, vector_width = 4>}
  tile.return
}

// -----

tile.kernel @warps(%l: memref<?x128xf32>, %i: memref<?x8xi32>, %w: memref<?x8xf32>, %t: i64) {
  // expected-error@+1 {{threads = 48; give a multiple of 32 up to 1024}}
  tile.top_k tokens(%t) logits(%l : memref<?x128xf32>) outs(%i, %w : memref<?x8xi32>, memref<?x8xf32>)
      <top_k = 8> {config = #tile.gpu_top_k<threads = 48, tokens_per_cta = 4>}
  tile.return
}

// -----

tile.kernel @no_tokens(%l: memref<?x128xf32>, %i: memref<?x8xi32>, %w: memref<?x8xf32>, %t: i64) {
  // expected-error@+1 {{tokens_per_cta = 0; give 1 to 1048576}}
  tile.top_k tokens(%t) logits(%l : memref<?x128xf32>) outs(%i, %w : memref<?x8xi32>, memref<?x8xf32>)
      <top_k = 8> {config = #tile.gpu_top_k<threads = 32>}
  tile.return
}

// -----

tile.kernel @rows_of_warps(%l: memref<?x4096xf32>, %i: memref<?x8xi32>, %w: memref<?x8xf32>, %t: i64) {
  // expected-error@+1 {{threads = 64 needs 66048 bytes of shared memory; there are 49152}}
  tile.top_k tokens(%t) logits(%l : memref<?x4096xf32>) outs(%i, %w : memref<?x8xi32>, memref<?x8xf32>)
      <top_k = 8> {config = #tile.gpu_top_k<threads = 64, tokens_per_cta = 4>}
  tile.return
}

// -----

tile.kernel @many(%i: memref<?x8xi32>, %w: memref<?x8xf32>, %o: memref<20001xi32>, %p: memref<?x8xi32>,
    %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64) {
  // expected-error@+1 {{experts_at_once = 20000; give 1 to 4096}}
  tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x8xi32>, memref<?x8xf32>)
      outs(%o, %p, %s, %r : memref<20001xi32>, memref<?x8xi32>, memref<?xi32>, memref<?x1xf32>)
      {num_experts = 20000 : i64,
       config = #tile.gpu_sort_by_expert<threads = 32, tokens_per_cta = 1, experts_at_once = 20000>}
  tile.return
}

// -----

tile.kernel @chunks(%i: memref<?x8xi32>, %w: memref<?x8xf32>, %o: memref<5xi32>, %p: memref<?x8xi32>,
    %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64) {
  // expected-error@+1 {{tokens_per_cta = 0; give 1 to 1048576}}
  tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x8xi32>, memref<?x8xf32>)
      outs(%o, %p, %s, %r : memref<5xi32>, memref<?x8xi32>, memref<?xi32>, memref<?x1xf32>)
      {num_experts = 4 : i64, config = #tile.gpu_sort_by_expert<threads = 32, experts_at_once = 4>}
  tile.return
}

// -----

tile.kernel @other_chunks(%i: memref<?x8xi32>, %w: memref<?x8xf32>, %c: memref<128x4xi32>, %o: memref<5xi32>,
    %p: memref<?x8xi32>, %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64) {
  // expected-error@+1 {{tokens_per_cta = 64; give the 128 tokens of a chunk of 'counts'}}
  tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x8xi32>, memref<?x8xf32>) counts(%c : memref<128x4xi32>)
      outs(%o, %p, %s, %r : memref<5xi32>, memref<?x8xi32>, memref<?xi32>, memref<?x1xf32>)
      {num_experts = 4 : i64, chunk_tokens = 128 : i64,
       config = #tile.gpu_sort_by_expert<threads = 32, tokens_per_cta = 64, experts_at_once = 4>}
  tile.return
}

// -----

tile.kernel @counters(%i: memref<?x8xi32>, %c: memref<128x20000xi32>, %t: i64) {
  // expected-error@+1 {{experts_at_once = 20000; give 1 to 8192}}
  tile.count_slots tokens(%t) ids(%i : memref<?x8xi32>) outs(%c : memref<128x20000xi32>)
      {num_experts = 20000 : i64, chunk_tokens = 128 : i64,
       config = #tile.gpu_count_slots<threads = 32, experts_at_once = 20000>}
  tile.return
}

// -----

tile.kernel @threads(%i: memref<?x8xi32>, %c: memref<128x4xi32>, %t: i64) {
  // expected-error@+1 {{threads = 48; give a multiple of 32 up to 1024}}
  tile.count_slots tokens(%t) ids(%i : memref<?x8xi32>) outs(%c : memref<128x4xi32>)
      {num_experts = 4 : i64, chunk_tokens = 128 : i64,
       config = #tile.gpu_count_slots<threads = 48, experts_at_once = 4>}
  tile.return
}

// -----

tile.kernel @no_tokens_at_a_time(%x: memref<?x16xf32>, %p: memref<?x2xi32>, %y: memref<?x16xf32>, %t: i64) {
  // expected-error@+1 {{token_stride = 0; give at least 1}}
  tile.gather_reduce tokens(%t) ins(%x, %p : memref<?x16xf32>, memref<?x2xi32>) outs(%y : memref<?x16xf32>)
      {config = #tile.gpu_gather_reduce<columns_per_cta = 128, vector_width = 4>}
  tile.return
}

// -----

tile.kernel @some_groups(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{this schedule does not select groups by their rows; remove 'group_rows'}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>) outs(%y : memref<?x128xbf16>)
      {group_rows = #tile.group_rows<max = 64>, config = #tile.sm80_gemm<block_m = 32, block_n = 32, block_k = 64, vector_width = 8>}
  tile.return
}

// -----

// Rounding to e4m3 does not fit in registers beside a row.
tile.kernel @quantized_rows(%q: memref<?x48xf8E4M3FN>, %s: memref<?x1xf32>, %y: memref<?x48xf8E4M3FN>, %z: memref<?x1xf32>,
    %x: memref<?x48xf16>, %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) attributes {form = #tile.kernel_form<resident = true>} {
  // expected-error @+1 {{quantization to e4m3 with one scale per row needs conversion instructions that the target lacks; quantize in an earlier launch}}
  tile.exchange all_gather to_results tokens(%tokens) ins(%s, %q : memref<?x1xf32>, memref<?x48xf8E4M3FN>)
      outs(%z, %y : memref<?x1xf32>, memref<?x48xf8E4M3FN>) unquantized(%x : memref<?x48xf16>) quantized [1, 0]
      by <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>
      heaps(%a, %b : memref<?xi64>, memref<?xi64>)
  tile.return
}
