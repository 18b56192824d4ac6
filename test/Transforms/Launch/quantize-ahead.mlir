// Launches that quantize while they wait for logits.
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=quantize-ahead target=sm_90a" | FileCheck %s
// A second run changes nothing.
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=quantize-ahead target=sm_90a" -o %t.once
// RUN: moe-opt %t.once --split-input-file --tile-rewrite-launches="only=quantize-ahead target=sm_90a" | diff - %t.once
// A phase with a forced config is not fused, nor any on the CPU.
// RUN: moe-opt %s --split-input-file -o %t.before
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=quantize-ahead target=sm_90a configs=quantize:elements_per_cta=1024" | diff - %t.before
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=quantize-ahead" | diff - %t.before
// RUN: not moe-opt %s --split-input-file --tile-rewrite-launches="only=quantize-ahead target=sm_70" 2>&1 | FileCheck %s --check-prefix=TARGET
// TARGET: tile-rewrite-launches: target 'sm_70' is unknown; accepted are cpu, sm_80, sm_90a, sm_100a
// The quantized tensor does not depend on an earlier launch: the wait follows the quantization.
// RUN: moe-opt %t.once --split-input-file \
// RUN:   --pass-pipeline="builtin.module(plan.program(plan-overlap-launches{target=sm_90a}),tile-find-independent)" \
// RUN:   | FileCheck %s --check-prefix=AHEAD

//  CHECK-LABEL: plan.program @layer
//        CHECK: plan.variant tokens 0 to 16 {
//   CHECK-NEXT: plan.launch @logits
//   CHECK-NEXT: plan.launch @quantize_route_rank ins(%hidden_states, %router_logits :
//   CHECK-SAME: outs(%hidden_quantized, %hidden_scale, %topk_ids, %topk_weights, %expert_offsets, %position, %source, %row_weight :
//   CHECK-NEXT: }
// The separate kernel has no launches any more.
//    CHECK-NOT: tile.kernel @quantize(
//        CHECK: tile.kernel @quantize_route_rank(
//   CHECK-SAME: block = 512 : i64, grid = #plan.expr<"max(max(min(ceildiv(tokens, 8), 2112), ceildiv(tokens, 16)), max(min(ceildiv(tokens, 16), 128), 1))">
//   CHECK-SAME: load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>
//   CHECK-NEXT: tile.quantize {{.*}}config = #tile.gpu_quantize<elements_per_cta = 1024, vector_width = 8>
//   CHECK-NEXT: tile.top_k {{.*}}config = #tile.gpu_top_k<threads = 512, tokens_per_cta = 16>
//   CHECK-NEXT: tile.sort_by_expert {{.*}}config = #tile.gpu_sort_by_expert<threads = 512, tokens_per_cta = 16, experts_at_once = 8>
//   CHECK-NEXT: tile.return
//  AHEAD-LABEL: plan.program @layer
//        AHEAD: plan.launch @quantize_route_rank dependent
//        AHEAD: tile.kernel @quantize_route_rank(
//   AHEAD-SAME: form = #tile.kernel_form<ahead = true>
plan.program @layer max_tokens 16 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x128xbf16>
  %g = plan.tensor weight "gate" : memref<8x128xbf16>
  %p = plan.buffer "position" slot 6 rows <"tokens"> : memref<?x2xi32>
  %l = plan.buffer "router_logits" slot 4 rows <"tokens"> : memref<?x8xf32>
  %i = plan.buffer "topk_ids" slot 0 rows <"tokens"> : memref<?x2xi32>
  %r = plan.buffer "topk_weights" slot 1 rows <"tokens"> : memref<?x2xf32>
  %o = plan.buffer "expert_offsets" slot 2 : memref<9xi32>
  %s = plan.buffer "source" slot 3 rows <"tokens * 2"> : memref<?xi32>
  %w = plan.buffer "row_weight" slot 5 rows <"tokens * 2"> : memref<?x1xf32>
  %q = plan.buffer "hidden_quantized" slot 7 rows <"tokens"> : memref<?x128xf8E4M3FN>
  %c = plan.buffer "hidden_scale" slot 8 rows <"tokens"> : memref<?x1xf32>
  plan.variant tokens 0 to 16 {
    plan.launch @logits ins(%x, %g : memref<?x128xbf16>, memref<8x128xbf16>) outs(%l : memref<?x8xf32>)
    plan.launch @route_rank ins(%l : memref<?x8xf32>)
        outs(%i, %r, %o, %p, %s, %w : memref<?x2xi32>, memref<?x2xf32>, memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @quantize ins(%x : memref<?x128xbf16>) outs(%q, %c : memref<?x128xf8E4M3FN>, memref<?x1xf32>)
  }
}
tile.kernel @logits(%x: memref<?x128xbf16>, %g: memref<8x128xbf16>, %l: memref<?x8xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %g : memref<?x128xbf16>, memref<8x128xbf16>) outs(%l : memref<?x8xf32>)
  tile.return
}
tile.kernel @route_rank(%l: memref<?x8xf32>, %i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<9xi32>,
    %p: memref<?x2xi32>, %s: memref<?xi32>, %w: memref<?x1xf32>, %t: i64)
    attributes {load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>} {
  tile.top_k tokens(%t) logits(%l : memref<?x8xf32>) outs(%i, %r : memref<?x2xi32>, memref<?x2xf32>) <top_k = 2>
      {config = #tile.gpu_top_k<threads = 512, tokens_per_cta = 16>}
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 512, tokens_per_cta = 16, experts_at_once = 8>, num_experts = 8 : i64}
  tile.return
}
tile.kernel @quantize(%x: memref<?x128xbf16>, %q: memref<?x128xf8E4M3FN>, %c: memref<?x1xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%x : memref<?x128xbf16>) outs(%q, %c : memref<?x128xf8E4M3FN>, memref<?x1xf32>)
      {config = #tile.gpu_quantize<elements_per_cta = 1024, vector_width = 8>}
  tile.return
}

// -----

// Not fused: the result shares a slot with the logits, which are still read.
//  CHECK-LABEL: plan.program @slot
//    CHECK-NOT: @quantize_route_rank
plan.program @slot max_tokens 16 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x128xbf16>
  %g = plan.tensor weight "gate" : memref<8x128xbf16>
  %p = plan.buffer "position" slot 6 rows <"tokens"> : memref<?x2xi32>
  %l = plan.buffer "router_logits" slot 4 rows <"tokens"> : memref<?x8xf32>
  %i = plan.buffer "topk_ids" slot 0 rows <"tokens"> : memref<?x2xi32>
  %r = plan.buffer "topk_weights" slot 1 rows <"tokens"> : memref<?x2xf32>
  %o = plan.buffer "expert_offsets" slot 2 : memref<9xi32>
  %s = plan.buffer "source" slot 3 rows <"tokens * 2"> : memref<?xi32>
  %w = plan.buffer "row_weight" slot 5 rows <"tokens * 2"> : memref<?x1xf32>
  %q = plan.buffer "hidden_quantized" slot 4 rows <"tokens"> : memref<?x128xf8E4M3FN>
  %c = plan.buffer "hidden_scale" slot 8 rows <"tokens"> : memref<?x1xf32>
  plan.variant tokens 0 to 16 {
    plan.launch @logits ins(%x, %g : memref<?x128xbf16>, memref<8x128xbf16>) outs(%l : memref<?x8xf32>)
    plan.launch @route_rank ins(%l : memref<?x8xf32>)
        outs(%i, %r, %o, %p, %s, %w : memref<?x2xi32>, memref<?x2xf32>, memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @quantize ins(%x : memref<?x128xbf16>) outs(%q, %c : memref<?x128xf8E4M3FN>, memref<?x1xf32>)
  }
}
tile.kernel @logits(%x: memref<?x128xbf16>, %g: memref<8x128xbf16>, %l: memref<?x8xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %g : memref<?x128xbf16>, memref<8x128xbf16>) outs(%l : memref<?x8xf32>)
  tile.return
}
tile.kernel @route_rank(%l: memref<?x8xf32>, %i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<9xi32>,
    %p: memref<?x2xi32>, %s: memref<?xi32>, %w: memref<?x1xf32>, %t: i64)
    attributes {load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>} {
  tile.top_k tokens(%t) logits(%l : memref<?x8xf32>) outs(%i, %r : memref<?x2xi32>, memref<?x2xf32>) <top_k = 2>
      {config = #tile.gpu_top_k<threads = 512, tokens_per_cta = 16>}
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 512, tokens_per_cta = 16, experts_at_once = 8>, num_experts = 8 : i64}
  tile.return
}
tile.kernel @quantize(%x: memref<?x128xbf16>, %q: memref<?x128xf8E4M3FN>, %c: memref<?x1xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%x : memref<?x128xbf16>) outs(%q, %c : memref<?x128xf8E4M3FN>, memref<?x1xf32>)
      {config = #tile.gpu_quantize<elements_per_cta = 1024, vector_width = 8>}
  tile.return
}

// -----

// Not fused: the routing has fewer threads than the quantization.
//  CHECK-LABEL: plan.program @threads
//    CHECK-NOT: @quantize_route_rank
plan.program @threads max_tokens 16 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x128xbf16>
  %g = plan.tensor weight "gate" : memref<8x128xbf16>
  %p = plan.buffer "position" slot 6 rows <"tokens"> : memref<?x2xi32>
  %l = plan.buffer "router_logits" slot 4 rows <"tokens"> : memref<?x8xf32>
  %i = plan.buffer "topk_ids" slot 0 rows <"tokens"> : memref<?x2xi32>
  %r = plan.buffer "topk_weights" slot 1 rows <"tokens"> : memref<?x2xf32>
  %o = plan.buffer "expert_offsets" slot 2 : memref<9xi32>
  %s = plan.buffer "source" slot 3 rows <"tokens * 2"> : memref<?xi32>
  %w = plan.buffer "row_weight" slot 5 rows <"tokens * 2"> : memref<?x1xf32>
  %q = plan.buffer "hidden_quantized" slot 7 rows <"tokens"> : memref<?x128xf8E4M3FN>
  %c = plan.buffer "hidden_scale" slot 8 rows <"tokens"> : memref<?x1xf32>
  plan.variant tokens 0 to 16 {
    plan.launch @logits ins(%x, %g : memref<?x128xbf16>, memref<8x128xbf16>) outs(%l : memref<?x8xf32>)
    plan.launch @route_rank ins(%l : memref<?x8xf32>)
        outs(%i, %r, %o, %p, %s, %w : memref<?x2xi32>, memref<?x2xf32>, memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @quantize ins(%x : memref<?x128xbf16>) outs(%q, %c : memref<?x128xf8E4M3FN>, memref<?x1xf32>)
  }
}
tile.kernel @logits(%x: memref<?x128xbf16>, %g: memref<8x128xbf16>, %l: memref<?x8xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %g : memref<?x128xbf16>, memref<8x128xbf16>) outs(%l : memref<?x8xf32>)
  tile.return
}
tile.kernel @route_rank(%l: memref<?x8xf32>, %i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<9xi32>,
    %p: memref<?x2xi32>, %s: memref<?xi32>, %w: memref<?x1xf32>, %t: i64)
    attributes {load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>} {
  tile.top_k tokens(%t) logits(%l : memref<?x8xf32>) outs(%i, %r : memref<?x2xi32>, memref<?x2xf32>) <top_k = 2>
      {config = #tile.gpu_top_k<threads = 64, tokens_per_cta = 16>}
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      {config = #tile.gpu_sort_by_expert<threads = 64, tokens_per_cta = 16, experts_at_once = 8>, num_experts = 8 : i64}
  tile.return
}
tile.kernel @quantize(%x: memref<?x128xbf16>, %q: memref<?x128xf8E4M3FN>, %c: memref<?x1xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%x : memref<?x128xbf16>) outs(%q, %c : memref<?x128xf8E4M3FN>, memref<?x1xf32>)
      {config = #tile.gpu_quantize<elements_per_cta = 1024, vector_width = 8>}
  tile.return
}
