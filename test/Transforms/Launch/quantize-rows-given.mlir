// Gemms that quantize rows by one given scale as they copy them.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --tile-rewrite-launches="only=quantize-rows set=quantize-rows.most=16384 target=sm_90a" | FileCheck %s
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --tile-rewrite-launches="only=quantize-rows set=quantize-rows.most=16384 target=sm_90a" --remarks-filter=tile-rewrite-launches 2>&1 | FileCheck %s --check-prefix=WHY
// WHY: [Missed] quantize-rows | {{.*}}"rows that are quantized as they are copied need a given scale or scales of 128 elements, those of a k tile"

// A given scale stays an operand.
//  CHECK-LABEL: plan.program @given
//        CHECK: plan.variant
//   CHECK-NEXT: plan.launch @out ins(%hidden_states, %experts, %scale, %experts_scale, %expert_offsets, %source :
//        CHECK: tile.gemm {{.*}} input_scale(%{{.*}} : memref<1xf32>)
//   CHECK-SAME: quantizes_input
plan.program @given max_tokens 16 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x256xbf16>
  %w = plan.tensor weight "experts" : memref<8x256x256xf8E4M3FN>
  %ws = plan.tensor weight "experts_scale" : memref<8x256x1xf32>
  %offsets = plan.tensor input "expert_offsets" : memref<9xi32>
  %source = plan.tensor input "source" rows <"tokens * 2"> : memref<?xi32>
  %y = plan.tensor output "output" rows <"tokens * 2"> : memref<?x256xbf16>
  %s = plan.tensor weight "scale" : memref<1xf32>
  %q = plan.buffer "hidden_quantized" slot 0 rows <"tokens"> : memref<?x256xf8E4M3FN>
  plan.variant tokens 0 to 16 {
    plan.launch @hidden_quantized ins(%x, %s : memref<?x256xbf16>, memref<1xf32>) outs(%q : memref<?x256xf8E4M3FN>)
    plan.launch @out ins(%q, %w, %s, %ws, %offsets, %source : memref<?x256xf8E4M3FN>, memref<8x256x256xf8E4M3FN>, memref<1xf32>, memref<8x256x1xf32>, memref<9xi32>, memref<?xi32>)
        outs(%y : memref<?x256xbf16>)
  }
}
tile.kernel @hidden_quantized(%x: memref<?x256xbf16>, %s: memref<1xf32>, %q: memref<?x256xf8E4M3FN>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = tensor> tokens(%t) ins(%x : memref<?x256xbf16>) tensor_scale(%s : memref<1xf32>) outs(%q : memref<?x256xf8E4M3FN>)
  tile.return
}
tile.kernel @out(%x: memref<?x256xf8E4M3FN>, %w: memref<8x256x256xf8E4M3FN>, %xs: memref<1xf32>, %ws: memref<8x256x1xf32>,
    %o: memref<9xi32>, %s: memref<?xi32>, %y: memref<?x256xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<8x256x256xf8E4M3FN>)
      input_scale(%xs : memref<1xf32>) weight_scale(%ws : memref<8x256x1xf32>) offsets(%o : memref<9xi32>) source(%s : memref<?xi32>)
      outs(%y : memref<?x256xbf16>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>}
  tile.return
}

// -----

// A scale of a row is known when all of the row is.
//  CHECK-LABEL: plan.program @by_row
//        CHECK: plan.launch @hidden_quantized
//   CHECK-NEXT: plan.launch @out ins(%hidden_quantized,
plan.program @by_row max_tokens 16 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x256xbf16>
  %w = plan.tensor weight "experts" : memref<8x256x256xf8E4M3FN>
  %ws = plan.tensor weight "experts_scale" : memref<8x256x1xf32>
  %offsets = plan.tensor input "expert_offsets" : memref<9xi32>
  %source = plan.tensor input "source" rows <"tokens * 2"> : memref<?xi32>
  %y = plan.tensor output "output" rows <"tokens * 2"> : memref<?x256xbf16>
  %s = plan.buffer "hidden_scale" slot 1 rows <"tokens"> : memref<?x1xf32>
  %q = plan.buffer "hidden_quantized" slot 0 rows <"tokens"> : memref<?x256xf8E4M3FN>
  plan.variant tokens 0 to 16 {
    plan.launch @hidden_quantized ins(%x : memref<?x256xbf16>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x1xf32>)
    plan.launch @out ins(%q, %w, %s, %ws, %offsets, %source : memref<?x256xf8E4M3FN>, memref<8x256x256xf8E4M3FN>, memref<?x1xf32>, memref<8x256x1xf32>, memref<9xi32>, memref<?xi32>)
        outs(%y : memref<?x256xbf16>)
  }
}
tile.kernel @hidden_quantized(%x: memref<?x256xbf16>, %q: memref<?x256xf8E4M3FN>, %s: memref<?x1xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true> tokens(%t) ins(%x : memref<?x256xbf16>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x1xf32>)
  tile.return
}
tile.kernel @out(%x: memref<?x256xf8E4M3FN>, %w: memref<8x256x256xf8E4M3FN>, %xs: memref<?x1xf32>, %ws: memref<8x256x1xf32>,
    %o: memref<9xi32>, %s: memref<?xi32>, %y: memref<?x256xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<8x256x256xf8E4M3FN>)
      input_scale(%xs : memref<?x1xf32>) weight_scale(%ws : memref<8x256x1xf32>) offsets(%o : memref<9xi32>) source(%s : memref<?xi32>)
      outs(%y : memref<?x256xbf16>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>}
  tile.return
}
