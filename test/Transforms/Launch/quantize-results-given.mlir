// A gemm that quantizes its results by a static scale.
// RUN: moe-opt %s --tile-assign-config=target=sm_90a --tile-rewrite-launches="only=quantize-results target=sm_90a" | FileCheck %s
// RUN: moe-opt %s --tile-assign-config=target=sm_80 -o %t.sm80
// RUN: moe-opt %t.sm80 --tile-rewrite-launches="only=quantize-results target=sm_80" | diff - %t.sm80

//  CHECK-LABEL: plan.program @given
//    CHECK-NOT: plan.buffer
//        CHECK: plan.launch @hidden ins(%hidden_quantized, %experts.w13, %hidden_scale, %experts.w13_scale, %expert_offsets, %source, %down_scale :
//   CHECK-SAME: outs(%quantized : memref<?x256xi8>)
//   CHECK-NEXT: }
//        CHECK: tile.kernel @hidden({{.*}}, %[[G:arg6]]: memref<1xf32>, %[[Q:arg7]]: memref<?x256xi8>, %tokens: i64)
//   CHECK-NEXT: tile.gemm {{.*}} result_tensor_scale(%[[G]] : memref<1xf32>) outs(%[[Q]] : memref<?x256xi8>) epilogue {
//        CHECK: result_quant = #moe.quant<storage = i8, scale = f32, granularity = tensor>, rounded_to = bf16
//    CHECK-NOT: tile.kernel
plan.program @given max_tokens 64 {
  %x = plan.tensor input "hidden_quantized" rows <"tokens"> : memref<?x256xi8>
  %xs = plan.tensor input "hidden_scale" : memref<1xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<8x512x256xi8>
  %ws = plan.tensor weight "experts.w13_scale" : memref<8x512x1xf32>
  %offsets = plan.tensor input "expert_offsets" : memref<9xi32>
  %source = plan.tensor input "source" rows <"tokens * 2"> : memref<?xi32>
  %g = plan.tensor input "down_scale" : memref<1xf32>
  %q = plan.tensor output "quantized" rows <"tokens * 2"> : memref<?x256xi8>
  %h = plan.buffer "hidden" slot 0 rows <"tokens * 2"> : memref<?x256xbf16>
  plan.variant tokens 0 to 64 {
    plan.launch @hidden ins(%x, %w13, %xs, %ws, %offsets, %source : memref<?x256xi8>, memref<8x512x256xi8>, memref<1xf32>, memref<8x512x1xf32>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x256xbf16>)
    plan.launch @quantized ins(%h, %offsets, %g : memref<?x256xbf16>, memref<9xi32>, memref<1xf32>) outs(%q : memref<?x256xi8>)
  }
}
tile.kernel @hidden(%x: memref<?x256xi8>, %w: memref<8x512x256xi8>, %xs: memref<1xf32>, %ws: memref<8x512x1xf32>,
    %o: memref<9xi32>, %s: memref<?xi32>, %h: memref<?x256xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 64, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xi8>, memref<8x512x256xi8>)
      input_scale(%xs : memref<1xf32>) weight_scale(%ws : memref<8x512x1xf32>) offsets(%o : memref<9xi32>) source(%s : memref<?xi32>)
      outs(%h : memref<?x256xbf16>) epilogue {
      ^bb0(%a: f32, %u: f32):
        %y = arith.mulf %a, %u : f32
        tile.yield %y : f32
      } {input_quant = #moe.quant<storage = i8, scale = f32, granularity = tensor>, weight_quant = #moe.quant<storage = i8, scale = f32, granularity = channel>, layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @quantized(%h: memref<?x256xbf16>, %o: memref<9xi32>, %g: memref<1xf32>, %q: memref<?x256xi8>, %t: i64) {
  tile.quantize <storage = i8, scale = f32, granularity = tensor> tokens(%t) ins(%h : memref<?x256xbf16>) offsets(%o : memref<9xi32>)
      tensor_scale(%g : memref<1xf32>) outs(%q : memref<?x256xi8>) {top_k = 2 : i64}
  tile.return
}
