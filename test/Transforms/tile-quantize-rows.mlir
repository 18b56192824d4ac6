// Scales of whole rows: no gemm quantizes its results by row, and such a quantization is not fused with routing.

// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a -o %t.before
// RUN: moe-opt %t.before --split-input-file --tile-rewrite-launches="only=quantize-results target=sm_90a" --tile-rewrite-launches="only=quantize-ahead target=sm_90a" | diff - %t.before

plan.program @results max_tokens 64 {
  %x = plan.tensor input "hidden_quantized" rows <"tokens"> : memref<?x256xf8E4M3FN>
  %xs = plan.tensor input "hidden_scale" rows <"tokens"> : memref<?x1xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<8x512x256xf8E4M3FN>
  %ws = plan.tensor weight "experts.w13_scale" : memref<8x512x1xf32>
  %offsets = plan.tensor input "expert_offsets" : memref<9xi32>
  %source = plan.tensor input "source" rows <"tokens * 2"> : memref<?xi32>
  %q = plan.tensor output "quantized" rows <"tokens * 2"> : memref<?x256xf8E4M3FN>
  %s = plan.tensor output "scale" rows <"tokens * 2"> : memref<?x1xf32>
  %h = plan.buffer "hidden" slot 0 rows <"tokens * 2"> : memref<?x256xbf16>
  plan.variant tokens 0 to 64 {
    plan.launch @hidden ins(%x, %w13, %xs, %ws, %offsets, %source : memref<?x256xf8E4M3FN>, memref<8x512x256xf8E4M3FN>, memref<?x1xf32>, memref<8x512x1xf32>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x256xbf16>)
    plan.launch @quantized ins(%h, %offsets : memref<?x256xbf16>, memref<9xi32>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x1xf32>)
  }
}
tile.kernel @hidden(%x: memref<?x256xf8E4M3FN>, %w: memref<8x512x256xf8E4M3FN>, %xs: memref<?x1xf32>, %ws: memref<8x512x1xf32>,
    %o: memref<9xi32>, %s: memref<?xi32>, %h: memref<?x256xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 64, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<8x512x256xf8E4M3FN>)
      input_scale(%xs : memref<?x1xf32>) weight_scale(%ws : memref<8x512x1xf32>) offsets(%o : memref<9xi32>) source(%s : memref<?xi32>)
      outs(%h : memref<?x256xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>, layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @quantized(%h: memref<?x256xbf16>, %o: memref<9xi32>, %q: memref<?x256xf8E4M3FN>, %s: memref<?x1xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true> tokens(%t) ins(%h : memref<?x256xbf16>) offsets(%o : memref<9xi32>)
      outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x1xf32>) {top_k = 2 : i64}
  tile.return
}

// -----

plan.program @ahead max_tokens 16 {
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
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true> tokens(%t) ins(%x : memref<?x128xbf16>) outs(%q, %c : memref<?x128xf8E4M3FN>, memref<?x1xf32>)
  tile.return
}
