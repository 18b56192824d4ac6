// RUN: moe-opt %s --split-input-file --convert-tile-to-nvvm=target=sm_90a --canonicalize --cse | FileCheck %s

// One CTA routes 16 tokens, a warp each, and sorts their slots without counters, since there are never more.
// CHECK: memref.global "private" @ranked_0 : memref<256xi32, 3 : i32>
// CHECK-LABEL: func.func @ranked
// CHECK: scf.for
// CHECK: nvvm.redux.sync max
// CHECK: }
// CHECK: nvvm.barrier0 {moec.between_phases}
// CHECK-NOT: arith.constant 256 : index
// CHECK: memref.load
// CHECK: nvvm.barrier0
// CHECK: vector.load {{.*}} vector<4xi32>
// CHECK-NOT: llvm.atomicrmw
// CHECK: return
tile.kernel @ranked(%l: memref<?x32xf32>, %i: memref<?x4xi32>, %w: memref<?x4xf32>, %o: memref<33xi32>, %p: memref<?x4xi32>,
    %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64)
    attributes {block = 512 : i64, shared = 0 : i64, grid = #plan.expr<"1">, load = #tile.load<min_tokens = 0, max_tokens = 16>} {
  tile.top_k tokens(%t) logits(%l : memref<?x32xf32>) outs(%i, %w : memref<?x4xi32>, memref<?x4xf32>) <top_k = 4>
      {config = #tile.gpu_top_k<threads = 512, tokens_per_cta = 16>}
  tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x4xi32>, memref<?x4xf32>)
      outs(%o, %p, %s, %r : memref<33xi32>, memref<?x4xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 512, tokens_per_cta = 16, experts_at_once = 32>, num_experts = 32 : i64}
  tile.return
}

// -----

// A warp routes every 16th token of the chunk; then the CTA counts the chunk's slots.
// CHECK-LABEL: func.func @counted
// CHECK: %[[C16:.*]] = arith.constant 16 : index
// CHECK: scf.for %{{.*}} = %{{.*}} to %{{.*}} step %[[C16]]
// CHECK: nvvm.barrier0 {moec.between_phases}
// CHECK: llvm.atomicrmw add
// CHECK: memref.store %{{.*}} : memref<128x32xi32>
tile.kernel @counted(%l: memref<?x32xf32>, %i: memref<?x4xi32>, %w: memref<?x4xf32>, %c: memref<128x32xi32>, %t: i64)
    attributes {block = 512 : i64, shared = 0 : i64, grid = #plan.expr<"min(ceildiv(tokens, 16), 128)">} {
  tile.top_k tokens(%t) logits(%l : memref<?x32xf32>) outs(%i, %w : memref<?x4xi32>, memref<?x4xf32>) <top_k = 4>
      {config = #tile.gpu_top_k<threads = 512, tokens_per_cta = 16, max_ctas = 128>}
  tile.count_slots tokens(%t) ids(%i : memref<?x4xi32>) outs(%c : memref<128x32xi32>)
      {config = #tile.gpu_count_slots<threads = 512, experts_at_once = 32>, chunk_tokens = 16 : i64, num_experts = 32 : i64}
  tile.return
}

// -----

// 128 of the 512 threads quantize before that, ahead of the wait; the first CTA sorts.
// CHECK-LABEL: func.func @quantized(
// CHECK-SAME: moec.form = #tile.kernel_form<ahead = true>
// CHECK: %[[C128:.*]] = arith.constant 128 : i32
// CHECK: %[[THREAD:.*]] = nvvm.read.ptx.sreg.tid.x
// CHECK: arith.cmpi slt, %[[THREAD]], %[[C128]]
// CHECK: nvvm.barrier0 {moec.ends_ahead}
// CHECK: nvvm.griddepcontrol wait
// CHECK: nvvm.barrier0 {moec.between_phases}
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %{{.*}}, %c0
// CHECK: scf.if %[[FIRST]]
// If the quantized tensor may still be in use, the kernel waits first.
// CHECK-LABEL: func.func @behind(
// CHECK-NOT: memref.load
// CHECK: nvvm.griddepcontrol wait
// CHECK: nvvm.barrier0 {moec.ends_ahead}
tile.kernel @quantized(%x: memref<?x256xbf16>, %q: memref<?x256xf8E4M3FN>, %c: memref<?x2xf32>, %l: memref<?x32xf32>,
    %i: memref<?x4xi32>, %w: memref<?x4xf32>, %o: memref<33xi32>, %p: memref<?x4xi32>, %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64)
    attributes {form = #tile.kernel_form<ahead = true>, block = 512 : i64, shared = 0 : i64, grid = #plan.expr<"tokens">, load = #tile.load<min_tokens = 0, max_tokens = 16>} {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%x : memref<?x256xbf16>) outs(%q, %c : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
      {config = #tile.gpu_quantize<elements_per_cta = 1024, vector_width = 8>}
  tile.top_k tokens(%t) logits(%l : memref<?x32xf32>) outs(%i, %w : memref<?x4xi32>, memref<?x4xf32>) <top_k = 4>
      {config = #tile.gpu_top_k<threads = 512, tokens_per_cta = 16>}
  tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x4xi32>, memref<?x4xf32>)
      outs(%o, %p, %s, %r : memref<33xi32>, memref<?x4xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 512, tokens_per_cta = 16, experts_at_once = 32>, num_experts = 32 : i64}
  tile.return
}
tile.kernel @behind(%x: memref<?x256xbf16>, %q: memref<?x256xf8E4M3FN>, %c: memref<?x2xf32>, %l: memref<?x32xf32>,
    %i: memref<?x4xi32>, %w: memref<?x4xf32>, %o: memref<33xi32>, %p: memref<?x4xi32>, %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64)
    attributes {block = 512 : i64, shared = 0 : i64, grid = #plan.expr<"tokens">, load = #tile.load<min_tokens = 0, max_tokens = 16>} {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%x : memref<?x256xbf16>) outs(%q, %c : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
      {config = #tile.gpu_quantize<elements_per_cta = 1024, vector_width = 8>}
  tile.top_k tokens(%t) logits(%l : memref<?x32xf32>) outs(%i, %w : memref<?x4xi32>, memref<?x4xf32>) <top_k = 4>
      {config = #tile.gpu_top_k<threads = 512, tokens_per_cta = 16>}
  tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x4xi32>, memref<?x4xf32>)
      outs(%o, %p, %s, %r : memref<33xi32>, memref<?x4xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 512, tokens_per_cta = 16, experts_at_once = 32>, num_experts = 32 : i64}
  tile.return
}
