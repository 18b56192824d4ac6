// Gemms that quantize their results.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --tile-rewrite-launches="only=quantize-results target=sm_90a" | FileCheck %s
// A forced config that cannot quantize, and one that can.
// RUN: moe-opt %s --split-input-file --tile-assign-config="target=sm_90a configs={hidden:block_m=16 block_n=64 stages=4}" -o %t.narrow
// RUN: moe-opt %t.narrow --split-input-file --tile-rewrite-launches="only=quantize-results target=sm_90a configs={hidden:block_m=16 block_n=64 stages=4}" | diff - %t.narrow
// RUN: moe-opt %s --split-input-file --tile-assign-config="target=sm_90a configs={hidden:block_m=24 block_n=128 stages=3}" --tile-rewrite-launches="only=quantize-results target=sm_90a configs={hidden:block_m=24 block_n=128 stages=3}" | FileCheck %s --check-prefix=FORCED
// FORCED-LABEL: tile.kernel @hidden
// FORCED: result_scale(
// FORCED: block_m = [24], block_n = 128, block_k = 128, stages = 3
// A quantization with a forced config stays.
// RUN: moe-opt %s --split-input-file --tile-assign-config="target=sm_90a configs={quantized:elements_per_cta=2048}" -o %t.kept
// RUN: moe-opt %t.kept --split-input-file --tile-rewrite-launches="only=quantize-results target=sm_90a configs={quantized:elements_per_cta=2048}" | diff - %t.kept
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_80 -o %t.sm80
// RUN: moe-opt %t.sm80 --split-input-file --tile-rewrite-launches="only=quantize-results target=sm_80" | diff - %t.sm80
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=cpu -o %t.cpu
// RUN: moe-opt %t.cpu --split-input-file --tile-rewrite-launches="only=quantize-results" | diff - %t.cpu
// RUN: not moe-opt %s --split-input-file --tile-rewrite-launches="only=quantize-results target=sm_70" 2>&1 | FileCheck %s --check-prefix=TARGET
// TARGET: tile-rewrite-launches: target 'sm_70' is unknown; accepted are cpu, sm_80, sm_90a, sm_100a
// RUN: not moe-opt %s --split-input-file --tile-rewrite-launches="only=quantize-results target=sm_90a configs=hidden" 2>&1 | FileCheck %s --check-prefix=CONFIG
// CONFIG: tile-rewrite-launches: config 'hidden': write KERNEL:TEXT

// The buffer and the kernel are erased.
//  CHECK-LABEL: plan.program @layer
//    CHECK-NOT: plan.buffer
//        CHECK: plan.variant tokens 0 to 64 {
//   CHECK-NEXT: plan.launch @hidden ins(%hidden_quantized, %experts.w13, %hidden_scale, %experts.w13_scale, %expert_offsets, %source :
//   CHECK-SAME: outs(%quantized, %scale : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
//   CHECK-NEXT: }
//        CHECK: tile.kernel @hidden({{.*}}, %[[Q:arg6]]: memref<?x256xf8E4M3FN>, %[[S:arg7]]: memref<?x2xf32>, %tokens: i64) attributes {block = 384
//   CHECK-NEXT: tile.gemm {{.*}} outs(%[[Q]] : memref<?x256xf8E4M3FN>) result_scale(%[[S]] : memref<?x2xf32>) epilogue {
//        CHECK: #tile.sm90_gemm<{{.*}}, block_n = 128, block_k = 128
//   CHECK-SAME: rounded_to = bf16
//    CHECK-NOT: tile.kernel
plan.program @layer max_tokens 64 {
  %x = plan.tensor input "hidden_quantized" rows <"tokens"> : memref<?x256xf8E4M3FN>
  %xs = plan.tensor input "hidden_scale" rows <"tokens"> : memref<?x2xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<8x512x256xf8E4M3FN>
  %ws = plan.tensor weight "experts.w13_scale" : memref<8x4x2xf32>
  %offsets = plan.tensor input "expert_offsets" : memref<9xi32>
  %others = plan.tensor input "other_offsets" : memref<9xi32>
  %source = plan.tensor input "source" rows <"tokens * 2"> : memref<?xi32>
  %q = plan.tensor output "quantized" rows <"tokens * 2"> : memref<?x256xf8E4M3FN>
  %s = plan.tensor output "scale" rows <"tokens * 2"> : memref<?x2xf32>
  %h = plan.buffer "hidden" slot 0 rows <"tokens * 2"> : memref<?x256xbf16>
  plan.variant tokens 0 to 64 {
    plan.launch @hidden ins(%x, %w13, %xs, %ws, %offsets, %source : memref<?x256xf8E4M3FN>, memref<8x512x256xf8E4M3FN>, memref<?x2xf32>, memref<8x4x2xf32>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x256xbf16>)
    plan.launch @quantized ins(%h, %offsets : memref<?x256xbf16>, memref<9xi32>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
  }
}
tile.kernel @hidden(%x: memref<?x256xf8E4M3FN>, %w: memref<8x512x256xf8E4M3FN>, %xs: memref<?x2xf32>, %ws: memref<8x4x2xf32>,
    %o: memref<9xi32>, %s: memref<?xi32>, %h: memref<?x256xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 64, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<8x512x256xf8E4M3FN>)
      input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<8x4x2xf32>) offsets(%o : memref<9xi32>) source(%s : memref<?xi32>)
      outs(%h : memref<?x256xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @quantized(%h: memref<?x256xbf16>, %o: memref<9xi32>, %q: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%h : memref<?x256xbf16>) offsets(%o : memref<9xi32>)
      outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>) {top_k = 2 : i64}
  tile.return
}

// -----

// A CTA does not quantize half a group of columns.
//  CHECK-LABEL: plan.program @columns
//        CHECK: plan.launch @hidden
//        CHECK: plan.launch @quantized
//    CHECK-NOT: result_scale
plan.program @columns max_tokens 64 {
  %x = plan.tensor input "hidden_quantized" rows <"tokens"> : memref<?x256xf8E4M3FN>
  %xs = plan.tensor input "hidden_scale" rows <"tokens"> : memref<?x2xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<8x384x256xf8E4M3FN>
  %ws = plan.tensor weight "experts.w13_scale" : memref<8x4x2xf32>
  %offsets = plan.tensor input "expert_offsets" : memref<9xi32>
  %others = plan.tensor input "other_offsets" : memref<9xi32>
  %source = plan.tensor input "source" rows <"tokens * 2"> : memref<?xi32>
  %q = plan.tensor output "quantized" rows <"tokens * 2"> : memref<?x192xf8E4M3FN>
  %s = plan.tensor output "scale" rows <"tokens * 2"> : memref<?x2xf32>
  %h = plan.buffer "hidden" slot 0 rows <"tokens * 2"> : memref<?x192xbf16>
  plan.variant tokens 0 to 64 {
    plan.launch @hidden ins(%x, %w13, %xs, %ws, %offsets, %source : memref<?x256xf8E4M3FN>, memref<8x384x256xf8E4M3FN>, memref<?x2xf32>, memref<8x4x2xf32>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x192xbf16>)
    plan.launch @quantized ins(%h, %offsets : memref<?x192xbf16>, memref<9xi32>) outs(%q, %s : memref<?x192xf8E4M3FN>, memref<?x2xf32>)
  }
}
tile.kernel @hidden(%x: memref<?x256xf8E4M3FN>, %w: memref<8x384x256xf8E4M3FN>, %xs: memref<?x2xf32>, %ws: memref<8x4x2xf32>,
    %o: memref<9xi32>, %s: memref<?xi32>, %h: memref<?x192xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 64, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<8x384x256xf8E4M3FN>)
      input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<8x4x2xf32>) offsets(%o : memref<9xi32>) source(%s : memref<?xi32>)
      outs(%h : memref<?x192xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @quantized(%h: memref<?x192xbf16>, %o: memref<9xi32>, %q: memref<?x192xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%h : memref<?x192xbf16>) offsets(%o : memref<9xi32>)
      outs(%q, %s : memref<?x192xf8E4M3FN>, memref<?x2xf32>) {top_k = 2 : i64}
  tile.return
}

// -----

// The quantization has other offsets.
//  CHECK-LABEL: plan.program @offsets
//        CHECK: plan.launch @hidden
//        CHECK: plan.launch @quantized
//    CHECK-NOT: result_scale
plan.program @offsets max_tokens 64 {
  %x = plan.tensor input "hidden_quantized" rows <"tokens"> : memref<?x256xf8E4M3FN>
  %xs = plan.tensor input "hidden_scale" rows <"tokens"> : memref<?x2xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<8x512x256xf8E4M3FN>
  %ws = plan.tensor weight "experts.w13_scale" : memref<8x4x2xf32>
  %offsets = plan.tensor input "expert_offsets" : memref<9xi32>
  %others = plan.tensor input "other_offsets" : memref<9xi32>
  %source = plan.tensor input "source" rows <"tokens * 2"> : memref<?xi32>
  %q = plan.tensor output "quantized" rows <"tokens * 2"> : memref<?x256xf8E4M3FN>
  %s = plan.tensor output "scale" rows <"tokens * 2"> : memref<?x2xf32>
  %h = plan.buffer "hidden" slot 0 rows <"tokens * 2"> : memref<?x256xbf16>
  plan.variant tokens 0 to 64 {
    plan.launch @hidden ins(%x, %w13, %xs, %ws, %offsets, %source : memref<?x256xf8E4M3FN>, memref<8x512x256xf8E4M3FN>, memref<?x2xf32>, memref<8x4x2xf32>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x256xbf16>)
    plan.launch @quantized ins(%h, %others : memref<?x256xbf16>, memref<9xi32>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
  }
}
tile.kernel @hidden(%x: memref<?x256xf8E4M3FN>, %w: memref<8x512x256xf8E4M3FN>, %xs: memref<?x2xf32>, %ws: memref<8x4x2xf32>,
    %o: memref<9xi32>, %s: memref<?xi32>, %h: memref<?x256xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 64, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<8x512x256xf8E4M3FN>)
      input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<8x4x2xf32>) offsets(%o : memref<9xi32>) source(%s : memref<?xi32>)
      outs(%h : memref<?x256xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @quantized(%h: memref<?x256xbf16>, %o: memref<9xi32>, %q: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%h : memref<?x256xbf16>) offsets(%o : memref<9xi32>)
      outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>) {top_k = 2 : i64}
  tile.return
}

// -----

// Another launch reads the results.
//  CHECK-LABEL: plan.program @readers
//        CHECK: plan.launch @hidden
//        CHECK: plan.launch @quantized
//    CHECK-NOT: result_scale
plan.program @readers max_tokens 64 {
  %x = plan.tensor input "hidden_quantized" rows <"tokens"> : memref<?x256xf8E4M3FN>
  %xs = plan.tensor input "hidden_scale" rows <"tokens"> : memref<?x2xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<8x512x256xf8E4M3FN>
  %ws = plan.tensor weight "experts.w13_scale" : memref<8x4x2xf32>
  %offsets = plan.tensor input "expert_offsets" : memref<9xi32>
  %others = plan.tensor input "other_offsets" : memref<9xi32>
  %source = plan.tensor input "source" rows <"tokens * 2"> : memref<?xi32>
  %q = plan.tensor output "quantized" rows <"tokens * 2"> : memref<?x256xf8E4M3FN>
  %s = plan.tensor output "scale" rows <"tokens * 2"> : memref<?x2xf32>
  %h = plan.buffer "hidden" slot 0 rows <"tokens * 2"> : memref<?x256xbf16>
  %r = plan.tensor output "copy" rows <"tokens * 2"> : memref<?x256xf8E4M3FN>
  %z = plan.tensor output "copied" rows <"tokens * 2"> : memref<?x2xf32>
  plan.variant tokens 0 to 64 {
    plan.launch @hidden ins(%x, %w13, %xs, %ws, %offsets, %source : memref<?x256xf8E4M3FN>, memref<8x512x256xf8E4M3FN>, memref<?x2xf32>, memref<8x4x2xf32>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x256xbf16>)
    plan.launch @quantized ins(%h, %offsets : memref<?x256xbf16>, memref<9xi32>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
    plan.launch @quantized ins(%h, %offsets : memref<?x256xbf16>, memref<9xi32>) outs(%r, %z : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
  }
}
tile.kernel @hidden(%x: memref<?x256xf8E4M3FN>, %w: memref<8x512x256xf8E4M3FN>, %xs: memref<?x2xf32>, %ws: memref<8x4x2xf32>,
    %o: memref<9xi32>, %s: memref<?xi32>, %h: memref<?x256xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 64, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<8x512x256xf8E4M3FN>)
      input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<8x4x2xf32>) offsets(%o : memref<9xi32>) source(%s : memref<?xi32>)
      outs(%h : memref<?x256xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @quantized(%h: memref<?x256xbf16>, %o: memref<9xi32>, %q: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%h : memref<?x256xbf16>) offsets(%o : memref<9xi32>)
      outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>) {top_k = 2 : i64}
  tile.return
}

// -----

// f32 results are not rounded before the quantization.
//  CHECK-LABEL: plan.program @wide
//        CHECK: plan.launch @hidden
//        CHECK: plan.launch @quantized
//    CHECK-NOT: result_scale
plan.program @wide max_tokens 64 {
  %x = plan.tensor input "hidden_quantized" rows <"tokens"> : memref<?x256xf8E4M3FN>
  %xs = plan.tensor input "hidden_scale" rows <"tokens"> : memref<?x2xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<8x512x256xf8E4M3FN>
  %ws = plan.tensor weight "experts.w13_scale" : memref<8x4x2xf32>
  %offsets = plan.tensor input "expert_offsets" : memref<9xi32>
  %others = plan.tensor input "other_offsets" : memref<9xi32>
  %source = plan.tensor input "source" rows <"tokens * 2"> : memref<?xi32>
  %q = plan.tensor output "quantized" rows <"tokens * 2"> : memref<?x256xf8E4M3FN>
  %s = plan.tensor output "scale" rows <"tokens * 2"> : memref<?x2xf32>
  %h = plan.buffer "hidden" slot 0 rows <"tokens * 2"> : memref<?x256xf32>
  plan.variant tokens 0 to 64 {
    plan.launch @hidden ins(%x, %w13, %xs, %ws, %offsets, %source : memref<?x256xf8E4M3FN>, memref<8x512x256xf8E4M3FN>, memref<?x2xf32>, memref<8x4x2xf32>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x256xf32>)
    plan.launch @quantized ins(%h, %offsets : memref<?x256xf32>, memref<9xi32>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
  }
}
tile.kernel @hidden(%x: memref<?x256xf8E4M3FN>, %w: memref<8x512x256xf8E4M3FN>, %xs: memref<?x2xf32>, %ws: memref<8x4x2xf32>,
    %o: memref<9xi32>, %s: memref<?xi32>, %h: memref<?x256xf32>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 64, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<8x512x256xf8E4M3FN>)
      input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<8x4x2xf32>) offsets(%o : memref<9xi32>) source(%s : memref<?xi32>)
      outs(%h : memref<?x256xf32>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @quantized(%h: memref<?x256xf32>, %o: memref<9xi32>, %q: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%h : memref<?x256xf32>) offsets(%o : memref<9xi32>)
      outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>) {top_k = 2 : i64}
  tile.return
}

// -----

// Without a load there is no prediction.
//  CHECK-LABEL: plan.program @unknown
//        CHECK: plan.launch @hidden
//        CHECK: plan.launch @quantized
//    CHECK-NOT: result_scale
plan.program @unknown max_tokens 64 {
  %x = plan.tensor input "hidden_quantized" rows <"tokens"> : memref<?x256xf8E4M3FN>
  %xs = plan.tensor input "hidden_scale" rows <"tokens"> : memref<?x2xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<8x512x256xf8E4M3FN>
  %ws = plan.tensor weight "experts.w13_scale" : memref<8x4x2xf32>
  %offsets = plan.tensor input "expert_offsets" : memref<9xi32>
  %others = plan.tensor input "other_offsets" : memref<9xi32>
  %source = plan.tensor input "source" rows <"tokens * 2"> : memref<?xi32>
  %q = plan.tensor output "quantized" rows <"tokens * 2"> : memref<?x256xf8E4M3FN>
  %s = plan.tensor output "scale" rows <"tokens * 2"> : memref<?x2xf32>
  %h = plan.buffer "hidden" slot 0 rows <"tokens * 2"> : memref<?x256xbf16>
  plan.variant tokens 0 to 64 {
    plan.launch @hidden ins(%x, %w13, %xs, %ws, %offsets, %source : memref<?x256xf8E4M3FN>, memref<8x512x256xf8E4M3FN>, memref<?x2xf32>, memref<8x4x2xf32>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x256xbf16>)
    plan.launch @quantized ins(%h, %offsets : memref<?x256xbf16>, memref<9xi32>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
  }
}
tile.kernel @hidden(%x: memref<?x256xf8E4M3FN>, %w: memref<8x512x256xf8E4M3FN>, %xs: memref<?x2xf32>, %ws: memref<8x4x2xf32>,
    %o: memref<9xi32>, %s: memref<?xi32>, %h: memref<?x256xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<8x512x256xf8E4M3FN>)
      input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<8x4x2xf32>) offsets(%o : memref<9xi32>) source(%s : memref<?xi32>)
      outs(%h : memref<?x256xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @quantized(%h: memref<?x256xbf16>, %o: memref<9xi32>, %q: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%h : memref<?x256xbf16>) offsets(%o : memref<9xi32>)
      outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>) {top_k = 2 : i64}
  tile.return
}

// -----

// One of two variants does not allow it, and the kernel has one signature.
//  CHECK-LABEL: plan.program @variants
//        CHECK: plan.variant tokens 0 to 64
//        CHECK: plan.launch @quantized
//    CHECK-NOT: result_scale
plan.program @variants max_tokens 128 {
  %x = plan.tensor input "hidden_quantized" rows <"tokens"> : memref<?x256xf8E4M3FN>
  %xs = plan.tensor input "hidden_scale" rows <"tokens"> : memref<?x2xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<8x512x256xf8E4M3FN>
  %ws = plan.tensor weight "experts.w13_scale" : memref<8x4x2xf32>
  %offsets = plan.tensor input "expert_offsets" : memref<9xi32>
  %others = plan.tensor input "other_offsets" : memref<9xi32>
  %source = plan.tensor input "source" rows <"tokens * 2"> : memref<?xi32>
  %q = plan.tensor output "quantized" rows <"tokens * 2"> : memref<?x256xf8E4M3FN>
  %s = plan.tensor output "scale" rows <"tokens * 2"> : memref<?x2xf32>
  %h = plan.buffer "hidden" slot 0 rows <"tokens * 2"> : memref<?x256xbf16>
  plan.variant tokens 0 to 64 {
    plan.launch @hidden ins(%x, %w13, %xs, %ws, %offsets, %source : memref<?x256xf8E4M3FN>, memref<8x512x256xf8E4M3FN>, memref<?x2xf32>, memref<8x4x2xf32>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x256xbf16>)
    plan.launch @quantized ins(%h, %offsets : memref<?x256xbf16>, memref<9xi32>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
  }
  plan.variant tokens 65 to 128 {
    plan.launch @hidden ins(%x, %w13, %xs, %ws, %offsets, %source : memref<?x256xf8E4M3FN>, memref<8x512x256xf8E4M3FN>, memref<?x2xf32>, memref<8x4x2xf32>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x256xbf16>)
    plan.launch @quantized ins(%h, %others : memref<?x256xbf16>, memref<9xi32>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
  }
}
tile.kernel @hidden(%x: memref<?x256xf8E4M3FN>, %w: memref<8x512x256xf8E4M3FN>, %xs: memref<?x2xf32>, %ws: memref<8x4x2xf32>,
    %o: memref<9xi32>, %s: memref<?xi32>, %h: memref<?x256xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 64, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<8x512x256xf8E4M3FN>)
      input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<8x4x2xf32>) offsets(%o : memref<9xi32>) source(%s : memref<?xi32>)
      outs(%h : memref<?x256xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @quantized(%h: memref<?x256xbf16>, %o: memref<9xi32>, %q: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%h : memref<?x256xbf16>) offsets(%o : memref<9xi32>)
      outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>) {top_k = 2 : i64}
  tile.return
}

// -----

// The gemm's input would be dead at a separate quantization: slots are reassigned.
//  CHECK-LABEL: plan.program @slots
//        CHECK: plan.buffer "hidden_quantized" slot [[#READ:]]
//    CHECK-NOT: plan.buffer "quantized" slot [[#READ]]
//        CHECK: plan.buffer "quantized"
//        CHECK: plan.launch @hidden ins({{.*}}) outs(%quantized, %scale :
plan.program @slots max_tokens 64 {
  %states = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x256xbf16>
  %w13 = plan.tensor weight "experts.w13" : memref<8x512x256xf8E4M3FN>
  %ws = plan.tensor weight "experts.w13_scale" : memref<8x4x2xf32>
  %offsets = plan.tensor input "expert_offsets" : memref<9xi32>
  %others = plan.tensor input "other_offsets" : memref<9xi32>
  %source = plan.tensor input "source" rows <"tokens * 2"> : memref<?xi32>
  %s = plan.buffer "scale" slot 3 rows <"tokens * 2"> : memref<?x2xf32>
  %xs = plan.buffer "hidden_scale" slot 2 rows <"tokens"> : memref<?x2xf32>
  %x = plan.buffer "hidden_quantized" slot 1 rows <"tokens"> : memref<?x256xf8E4M3FN>
  %q = plan.buffer "quantized" slot 1 rows <"tokens * 2"> : memref<?x256xf8E4M3FN>
  %y = plan.tensor output "output" rows <"tokens * 2"> : memref<?x128xbf16>
  %w2 = plan.tensor weight "experts.w2" : memref<8x128x256xf8E4M3FN>
  %w2s = plan.tensor weight "experts.w2_scale" : memref<8x1x2xf32>
  %h = plan.buffer "hidden" slot 0 rows <"tokens * 2"> : memref<?x256xbf16>
  plan.variant tokens 0 to 64 {
    plan.launch @inputs ins(%states : memref<?x256xbf16>) outs(%x, %xs : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
    plan.launch @hidden ins(%x, %w13, %xs, %ws, %offsets, %source : memref<?x256xf8E4M3FN>, memref<8x512x256xf8E4M3FN>, memref<?x2xf32>, memref<8x4x2xf32>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x256xbf16>)
    plan.launch @quantized ins(%h, %offsets : memref<?x256xbf16>, memref<9xi32>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
    plan.launch @out ins(%q, %w2, %s, %w2s, %offsets : memref<?x256xf8E4M3FN>, memref<8x128x256xf8E4M3FN>, memref<?x2xf32>, memref<8x1x2xf32>, memref<9xi32>)
        outs(%y : memref<?x128xbf16>)
  }
}
tile.kernel @hidden(%x: memref<?x256xf8E4M3FN>, %w: memref<8x512x256xf8E4M3FN>, %xs: memref<?x2xf32>, %ws: memref<8x4x2xf32>,
    %o: memref<9xi32>, %s: memref<?xi32>, %h: memref<?x256xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 64, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<8x512x256xf8E4M3FN>)
      input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<8x4x2xf32>) offsets(%o : memref<9xi32>) source(%s : memref<?xi32>)
      outs(%h : memref<?x256xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @quantized(%h: memref<?x256xbf16>, %o: memref<9xi32>, %q: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%h : memref<?x256xbf16>) offsets(%o : memref<9xi32>)
      outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>) {top_k = 2 : i64}
  tile.return
}
tile.kernel @inputs(%h: memref<?x256xbf16>, %q: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%h : memref<?x256xbf16>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
  tile.return
}
tile.kernel @out(%x: memref<?x256xf8E4M3FN>, %w: memref<8x128x256xf8E4M3FN>, %xs: memref<?x2xf32>, %ws: memref<8x1x2xf32>,
    %o: memref<9xi32>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<8x128x256xf8E4M3FN>)
      input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<8x1x2xf32>) offsets(%o : memref<9xi32>) outs(%y : memref<?x128xbf16>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>}
  tile.return
}
