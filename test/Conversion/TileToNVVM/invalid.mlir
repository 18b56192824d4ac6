// RUN: moe-opt %s --convert-tile-to-nvvm --split-input-file --verify-diagnostics
// RUN: not moe-opt %s --convert-tile-to-nvvm=target=cpu 2>&1 | FileCheck %s
// CHECK: convert-tile-to-nvvm: target 'cpu' is not a GPU; accepted are sm_80, sm_90a, sm_100a

tile.kernel @no_config(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  // expected-error@+1 {{has no config; run tile-assign-config first}}
  tile.row_map tokens(%t) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
    ^bb0(%v: f32):
      tile.yield %v : f32
    }
  tile.return
}

// -----

tile.kernel @cpu(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  // expected-error@+1 {{has the schedule 'cpu.row_map', and on this target it needs 'gpu.row_map'}}
  tile.row_map tokens(%t) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
    ^bb0(%v: f32):
      tile.yield %v : f32
    } {config = #tile.cpu_row_map<lanes = 8, rows_per_cta = 4>}
  tile.return
}

// -----

tile.kernel @illegal(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  // expected-error@+1 {{columns_per_cta = 7; give a multiple of 128}}
  tile.row_map tokens(%t) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
    ^bb0(%v: f32):
      tile.yield %v : f32
    } {config = #tile.gpu_row_map<columns_per_cta = 7, vector_width = 4>}
  tile.return
}

// -----

// expected-error@+1 {{must have block = 32 and shared = 0, as its config requires; run tile-assign-config}}
tile.kernel @launch(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) attributes {block = 64 : i64} {
  tile.row_map tokens(%t) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
    ^bb0(%v: f32):
      tile.yield %v : f32
    } {config = #tile.gpu_row_map<columns_per_cta = 128, vector_width = 4>}
  tile.return
}

// -----

tile.kernel @rank_of_many(%l: memref<?x32xf32>, %i: memref<?x4xi32>, %w: memref<?x4xf32>, %o: memref<33xi32>, %p: memref<?x4xi32>,
    %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x32xf32>) outs(%i, %w : memref<?x4xi32>, memref<?x4xf32>) <top_k = 4>
      {config = #tile.gpu_top_k<threads = 512, tokens_per_cta = 16>}
  // expected-error@+1 {{cannot follow the phase before it in one kernel: one CTA sorts the slots that all CTAs have routed; give the kernel a 'load' of at most the 8 tokens that one CTA routes; or run tile-split-phases}}
  tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x4xi32>, memref<?x4xf32>)
      outs(%o, %p, %s, %r : memref<33xi32>, memref<?x4xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 512, tokens_per_cta = 8, experts_at_once = 32>, num_experts = 32 : i64}
  tile.return
}

// -----

tile.kernel @rank_by_others(%l: memref<?x32xf32>, %i: memref<?x4xi32>, %w: memref<?x4xf32>, %o: memref<33xi32>, %p: memref<?x4xi32>,
    %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 8>} {
  tile.top_k tokens(%t) logits(%l : memref<?x32xf32>) outs(%i, %w : memref<?x4xi32>, memref<?x4xf32>) <top_k = 4>
      {config = #tile.gpu_top_k<threads = 256, tokens_per_cta = 8>}
  // expected-error@+1 {{cannot follow the phase before it in one kernel: threads = 256 and 512; give both the same threads}}
  tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x4xi32>, memref<?x4xf32>)
      outs(%o, %p, %s, %r : memref<33xi32>, memref<?x4xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 512, tokens_per_cta = 8, experts_at_once = 32>, num_experts = 32 : i64}
  tile.return
}

// -----

tile.kernel @other_chunks(%l: memref<?x32xf32>, %i: memref<?x4xi32>, %w: memref<?x4xf32>, %c: memref<128x32xi32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x32xf32>) outs(%i, %w : memref<?x4xi32>, memref<?x4xf32>) <top_k = 4>
      {config = #tile.gpu_top_k<threads = 512, tokens_per_cta = 16>}
  // expected-error@+1 {{cannot follow the phase before it in one kernel: a CTA routes tokens_per_cta = 16, of max_ctas = 0, but counts chunks of 16, 128 at most; give both the same}}
  tile.count_slots tokens(%t) ids(%i : memref<?x4xi32>) outs(%c : memref<128x32xi32>)
      {config = #tile.gpu_count_slots<threads = 512, experts_at_once = 32>, chunk_tokens = 16 : i64, num_experts = 32 : i64}
  tile.return
}

// -----

tile.kernel @no_room(%l: memref<?x128xf32>, %i: memref<?x40xi32>, %w: memref<?x40xf32>, %c: memref<128x8192xi32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x128xf32>) outs(%i, %w : memref<?x40xi32>, memref<?x40xf32>) <top_k = 40>
      {config = #tile.gpu_top_k<threads = 512, tokens_per_cta = 16, max_ctas = 128>}
  // expected-error@+1 {{cannot follow the phase before it in one kernel: both need 57348 bytes of shared memory; there are 49152}}
  tile.count_slots tokens(%t) ids(%i : memref<?x40xi32>) outs(%c : memref<128x8192xi32>)
      {config = #tile.gpu_count_slots<threads = 512, experts_at_once = 8192>, chunk_tokens = 16 : i64, num_experts = 8192 : i64}
  tile.return
}

// -----

tile.kernel @few_threads(%x: memref<?x256xbf16>, %q: memref<?x256xf8E4M3FN>, %c: memref<?x2xf32>, %l: memref<?x32xf32>,
    %i: memref<?x4xi32>, %w: memref<?x4xf32>, %o: memref<33xi32>, %p: memref<?x4xi32>, %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64)
    attributes {load = #tile.load<min_tokens = 0, max_tokens = 4>} {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%x : memref<?x256xbf16>) outs(%q, %c : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
      {config = #tile.gpu_quantize<elements_per_cta = 1024, vector_width = 8>}
  // expected-error@+1 {{cannot follow the phase before it in one kernel: threads = 64; give at least the 128 threads that quantize; or run tile-split-phases}}
  tile.top_k tokens(%t) logits(%l : memref<?x32xf32>) outs(%i, %w : memref<?x4xi32>, memref<?x4xf32>) <top_k = 4>
      {config = #tile.gpu_top_k<threads = 64, tokens_per_cta = 4>}
  tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x4xi32>, memref<?x4xf32>)
      outs(%o, %p, %s, %r : memref<33xi32>, memref<?x4xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 64, tokens_per_cta = 4, experts_at_once = 32>, num_experts = 32 : i64}
  tile.return
}

// -----

tile.kernel @rows(%x: memref<?x256xbf16>, %q: memref<?x256xf8E4M3FN>, %c: memref<?x1xf32>, %l: memref<?x32xf32>,
    %i: memref<?x4xi32>, %w: memref<?x4xf32>, %o: memref<33xi32>, %p: memref<?x4xi32>, %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64)
    attributes {load = #tile.load<min_tokens = 0, max_tokens = 4>} {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true> tokens(%t) ins(%x : memref<?x256xbf16>) outs(%q, %c : memref<?x256xf8E4M3FN>, memref<?x1xf32>)
      {config = #tile.gpu_quantize<elements_per_cta = 1024, vector_width = 8>}
  // expected-error@+1 {{cannot follow the phase before it in one kernel: a scale per row needs a barrier of the whole CTA; groups of [1, 128] need none; or run tile-split-phases}}
  tile.top_k tokens(%t) logits(%l : memref<?x32xf32>) outs(%i, %w : memref<?x4xi32>, memref<?x4xf32>) <top_k = 4>
      {config = #tile.gpu_top_k<threads = 128, tokens_per_cta = 4>}
  tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x4xi32>, memref<?x4xf32>)
      outs(%o, %p, %s, %r : memref<33xi32>, memref<?x4xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 128, tokens_per_cta = 4, experts_at_once = 32>, num_experts = 32 : i64}
  tile.return
}

// -----

tile.kernel @touched(%x: memref<?x32xf32>, %q: memref<?x32xf8E4M3FN>, %c: memref<?x1xf32>,
    %i: memref<?x4xi32>, %w: memref<?x4xf32>, %o: memref<33xi32>, %p: memref<?x4xi32>, %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64)
    attributes {load = #tile.load<min_tokens = 0, max_tokens = 4>} {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%x : memref<?x32xf32>) outs(%q, %c : memref<?x32xf8E4M3FN>, memref<?x1xf32>)
      {config = #tile.gpu_quantize<elements_per_cta = 1024, vector_width = 4>}
  // expected-error@+1 {{cannot follow the phase before it in one kernel: a phase of the same kernel uses the memory of the quantization; or run tile-split-phases}}
  tile.top_k tokens(%t) logits(%x : memref<?x32xf32>) outs(%i, %w : memref<?x4xi32>, memref<?x4xf32>) <top_k = 4>
      {config = #tile.gpu_top_k<threads = 128, tokens_per_cta = 4>}
  tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x4xi32>, memref<?x4xf32>)
      outs(%o, %p, %s, %r : memref<33xi32>, memref<?x4xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 128, tokens_per_cta = 4, experts_at_once = 32>, num_experts = 32 : i64}
  tile.return
}

// -----

// The schedule of a sort decides which phases it can follow.
tile.kernel @rank_of_others(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %i: memref<?x4xi32>, %w: memref<?x4xf32>, %o: memref<33xi32>,
    %p: memref<?x4xi32>, %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 8>} {
  tile.row_map tokens(%t) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
    ^bb0(%v: f32):
      tile.yield %v : f32
    } {config = #tile.gpu_row_map<columns_per_cta = 128, vector_width = 4>}
  // expected-error@+1 {{cannot follow the phase before it in one kernel: only a 'tile.top_k' may precede it in a kernel, since a CTA continues with the tokens that it routed; or run tile-split-phases}}
  tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x4xi32>, memref<?x4xf32>)
      outs(%o, %p, %s, %r : memref<33xi32>, memref<?x4xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 512, tokens_per_cta = 8, experts_at_once = 32>, num_experts = 32 : i64}
  tile.return
}

// -----

tile.kernel @counts_first(%i: memref<?x4xi32>, %w: memref<?x4xf32>, %c: memref<128x32xi32>, %o: memref<33xi32>, %p: memref<?x4xi32>,
    %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64) {
  tile.count_slots tokens(%t) ids(%i : memref<?x4xi32>) outs(%c : memref<128x32xi32>)
      {config = #tile.gpu_count_slots<threads = 512, experts_at_once = 32>, chunk_tokens = 16 : i64, num_experts = 32 : i64}
  // expected-error@+1 {{cannot follow the phase before it in one kernel: only a 'tile.top_k' may precede it in a kernel, since a CTA continues with the tokens that it routed; or run tile-split-phases}}
  tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x4xi32>, memref<?x4xf32>)
      outs(%o, %p, %s, %r : memref<33xi32>, memref<?x4xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 512, tokens_per_cta = 8, experts_at_once = 32>, num_experts = 32 : i64}
  tile.return
}
