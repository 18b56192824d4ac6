// Gemms that quantize rows as they copy them.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --tile-rewrite-launches="only=quantize-rows set=quantize-rows.most=16384 target=sm_90a" | FileCheck %s
// A second run changes nothing.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --tile-rewrite-launches="only=quantize-rows set=quantize-rows.most=16384 target=sm_90a" -o %t.once
// RUN: moe-opt %t.once --split-input-file --tile-rewrite-launches="only=quantize-rows set=quantize-rows.most=16384 target=sm_90a" | diff - %t.once
// With many tokens the rows of several tiles along N are quantized once, unless that is asked for; tiles stay low.
// RUN: sed -e "s/max_tokens = 16,/max_tokens = 16384,/; s/min_tokens = 0/min_tokens = 4096/; s/tokens 0 to 16/tokens 0 to 16384/; s/max_tokens 16/max_tokens 16384/" %s > %t.many.mlir
// RUN: moe-opt %t.many.mlir --split-input-file --tile-assign-config=target=sm_90a --tile-rewrite-launches="only=quantize-rows set=quantize-rows.most=16384 target=sm_90a" | FileCheck %s --check-prefix=MANY
// MANY: plan.launch @hidden_quantized
// MANY-NEXT: plan.launch @hidden ins(%hidden_quantized,
// RUN: moe-opt %t.many.mlir --split-input-file --tile-assign-config=target=sm_90a --tile-rewrite-launches="only=quantize-rows set=quantize-rows.always target=sm_90a" | FileCheck %s --check-prefix=ALWAYS
// ALWAYS: plan.launch @hidden ins(%hidden_states,
// ALWAYS: block_m = [{{((8|16|24|32)(, )?)+}}],{{.*}}quantizes_input
// A forced config that copies rows by tensor maps, and one that can quantize.
// RUN: moe-opt %s --split-input-file --tile-assign-config="target=sm_90a configs={out:block_m=16 block_n=128 stages=4 map_rows}" --tile-rewrite-launches="only=quantize-rows set=quantize-rows.most=16384 target=sm_90a configs={out:block_m=16 block_n=128 stages=4 map_rows}" --remarks-filter=tile-rewrite-launches 2>&1 | FileCheck %s --check-prefix=WHY
// WHY: [Passed] quantize-rows | {{.*}}Function=hidden_quantized
// WHY: [Missed] quantize-rows | {{.*}}Function=quantized {{.*}}"map_rows = true, but a tensor map cannot quantize rows"
// RUN: moe-opt %s --split-input-file --tile-assign-config="target=sm_90a configs={hidden:block_m=24 block_n=64 stages=3}" --tile-rewrite-launches="only=quantize-rows set=quantize-rows.most=16384 target=sm_90a configs={hidden:block_m=24 block_n=64 stages=3}" | FileCheck %s --check-prefix=FORCED
// FORCED: tile.kernel @hidden(
// FORCED: block_m = [24], block_n = 64, block_k = 128, stages = 3{{.*}}quantizes_input
// A quantization with a forced config stays.
// RUN: moe-opt %s --split-input-file --tile-assign-config="target=sm_90a configs={hidden_quantized:elements_per_cta=2048}" --tile-rewrite-launches="only=quantize-rows set=quantize-rows.most=16384 target=sm_90a configs={hidden_quantized:elements_per_cta=2048}" | FileCheck %s --check-prefix=KEPT
// KEPT: plan.launch @hidden_quantized
// KEPT-NOT: plan.launch @quantized
// Ranges of more tokens than `most` stay.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a -o %t.assigned
// RUN: moe-opt %t.assigned --split-input-file --tile-rewrite-launches="only=quantize-rows set=quantize-rows.most=15,quantize-rows.always target=sm_90a" | diff - %t.assigned
// RUN: moe-opt %t.assigned --split-input-file --tile-rewrite-launches="only=quantize-rows target=sm_90a" | diff - %t.assigned
// RUN: moe-opt %t.assigned --split-input-file --tile-rewrite-launches="only=quantize-rows set=quantize-rows.most=16 target=sm_90a" | FileCheck %s
// Other targets quantize apart.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_80 -o %t.sm80
// RUN: moe-opt %t.sm80 --split-input-file --tile-rewrite-launches="only=quantize-rows target=sm_80" | diff - %t.sm80
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=cpu -o %t.cpu
// RUN: moe-opt %t.cpu --split-input-file --tile-rewrite-launches="only=quantize-rows" | diff - %t.cpu

// Both quantizations, their buffers and kernels are erased; operands keep their order.
//  CHECK-LABEL: plan.program @layer
//    CHECK-NOT: _scale" rows
//        CHECK: plan.buffer "experts_hidden" slot 0
//    CHECK-NOT: plan.buffer
//        CHECK: plan.variant tokens 0 to 16 {
//   CHECK-NEXT: plan.launch @hidden ins(%hidden_states, %experts.w13, %experts.w13_scale, %expert_offsets, %source :
//   CHECK-SAME: outs(%experts_hidden :
//   CHECK-NEXT: plan.launch @out ins(%experts.w2, %experts.w2_scale, %experts_hidden, %expert_offsets :
//   CHECK-NEXT: }
//        CHECK: tile.kernel @hidden(%[[X:arg0]]: memref<?x256xbf16>, {{.*}} attributes {block = 384
//   CHECK-NEXT: tile.gemm {{.*}} ins(%[[X]], {{.*}} weight_scale(
//        CHECK: #tile.sm90_gemm<block_m = [{{8|16}}], {{.*}}quantizes_input
//        CHECK: tile.kernel @out({{.*}}, %[[H:arg2]]: memref<?x256xbf16>, {{.*}} attributes {block = 384
//   CHECK-NEXT: tile.gemm {{.*}} ins(%[[H]], {{.*}} weight_scale(
//    CHECK-NOT: map_rows
//        CHECK: quantizes_input
//    CHECK-NOT: tile.kernel
plan.program @layer max_tokens 16 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x256xbf16>
  %w13 = plan.tensor weight "experts.w13" : memref<8x512x256xf8E4M3FN>
  %s13 = plan.tensor weight "experts.w13_scale" : memref<8x4x2xf32>
  %w2 = plan.tensor weight "experts.w2" : memref<8x256x256xf8E4M3FN>
  %s2 = plan.tensor weight "experts.w2_scale" : memref<8x2x2xf32>
  %offsets = plan.tensor input "expert_offsets" : memref<9xi32>
  %source = plan.tensor input "source" rows <"tokens * 2"> : memref<?xi32>
  %y = plan.tensor output "output" rows <"tokens * 2"> : memref<?x256xbf16>
  %q = plan.buffer "hidden_quantized" slot 0 rows <"tokens"> : memref<?x256xf8E4M3FN>
  %s = plan.buffer "hidden_scale" slot 1 rows <"tokens"> : memref<?x2xf32>
  %h = plan.buffer "experts_hidden" slot 2 rows <"tokens * 2"> : memref<?x256xbf16>
  %hq = plan.buffer "experts_hidden_quantized" slot 3 rows <"tokens * 2"> : memref<?x256xf8E4M3FN>
  %hs = plan.buffer "experts_hidden_scale" slot 4 rows <"tokens * 2"> : memref<?x2xf32>
  plan.variant tokens 0 to 16 {
    plan.launch @hidden_quantized ins(%x : memref<?x256xbf16>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
    plan.launch @hidden ins(%q, %w13, %s, %s13, %offsets, %source : memref<?x256xf8E4M3FN>, memref<8x512x256xf8E4M3FN>, memref<?x2xf32>, memref<8x4x2xf32>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x256xbf16>)
    plan.launch @quantized ins(%h, %offsets : memref<?x256xbf16>, memref<9xi32>) outs(%hq, %hs : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
    plan.launch @out ins(%w2, %s2, %hs, %hq, %offsets : memref<8x256x256xf8E4M3FN>, memref<8x2x2xf32>, memref<?x2xf32>, memref<?x256xf8E4M3FN>, memref<9xi32>)
        outs(%y : memref<?x256xbf16>)
  }
}
tile.kernel @hidden_quantized(%x: memref<?x256xbf16>, %q: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%x : memref<?x256xbf16>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
  tile.return
}
tile.kernel @hidden(%x: memref<?x256xf8E4M3FN>, %w: memref<8x512x256xf8E4M3FN>, %xs: memref<?x2xf32>, %ws: memref<8x4x2xf32>,
    %o: memref<9xi32>, %s: memref<?xi32>, %h: memref<?x256xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>} {
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
tile.kernel @out(%w: memref<8x256x256xf8E4M3FN>, %ws: memref<8x2x2xf32>, %xs: memref<?x2xf32>, %x: memref<?x256xf8E4M3FN>,
    %o: memref<9xi32>, %y: memref<?x256xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<8x256x256xf8E4M3FN>)
      input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<8x2x2xf32>) offsets(%o : memref<9xi32>)
      outs(%y : memref<?x256xbf16>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>}
  tile.return
}

// -----

// All gemms that read the values take the rows.
//  CHECK-LABEL: plan.program @shared_expert
//        CHECK: plan.variant
//   CHECK-NEXT: plan.launch @shared ins(%hidden_states, %shared, %shared_scale :
//   CHECK-NEXT: plan.launch @hidden ins(%hidden_states,
//   CHECK-NEXT: plan.launch @out
//   CHECK-NEXT: }
plan.program @shared_expert max_tokens 16 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x256xbf16>
  %w13 = plan.tensor weight "experts.w13" : memref<8x512x256xf8E4M3FN>
  %s13 = plan.tensor weight "experts.w13_scale" : memref<8x4x2xf32>
  %w2 = plan.tensor weight "experts.w2" : memref<8x256x256xf8E4M3FN>
  %s2 = plan.tensor weight "experts.w2_scale" : memref<8x2x2xf32>
  %offsets = plan.tensor input "expert_offsets" : memref<9xi32>
  %source = plan.tensor input "source" rows <"tokens * 2"> : memref<?xi32>
  %y = plan.tensor output "output" rows <"tokens * 2"> : memref<?x256xbf16>
  %w = plan.tensor weight "shared" : memref<256x256xf8E4M3FN>
  %ws = plan.tensor weight "shared_scale" : memref<2x2xf32>
  %z = plan.tensor output "shared_out" rows <"tokens"> : memref<?x256xbf16>
  %q = plan.buffer "hidden_quantized" slot 0 rows <"tokens"> : memref<?x256xf8E4M3FN>
  %s = plan.buffer "hidden_scale" slot 1 rows <"tokens"> : memref<?x2xf32>
  %h = plan.buffer "experts_hidden" slot 2 rows <"tokens * 2"> : memref<?x256xbf16>
  %hq = plan.buffer "experts_hidden_quantized" slot 3 rows <"tokens * 2"> : memref<?x256xf8E4M3FN>
  %hs = plan.buffer "experts_hidden_scale" slot 4 rows <"tokens * 2"> : memref<?x2xf32>
  plan.variant tokens 0 to 16 {
    plan.launch @hidden_quantized ins(%x : memref<?x256xbf16>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
    plan.launch @shared ins(%q, %s, %w, %ws : memref<?x256xf8E4M3FN>, memref<?x2xf32>, memref<256x256xf8E4M3FN>, memref<2x2xf32>)
        outs(%z : memref<?x256xbf16>)
    plan.launch @hidden ins(%q, %w13, %s, %s13, %offsets, %source : memref<?x256xf8E4M3FN>, memref<8x512x256xf8E4M3FN>, memref<?x2xf32>, memref<8x4x2xf32>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x256xbf16>)
    plan.launch @quantized ins(%h, %offsets : memref<?x256xbf16>, memref<9xi32>) outs(%hq, %hs : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
    plan.launch @out ins(%w2, %s2, %hs, %hq, %offsets : memref<8x256x256xf8E4M3FN>, memref<8x2x2xf32>, memref<?x2xf32>, memref<?x256xf8E4M3FN>, memref<9xi32>)
        outs(%y : memref<?x256xbf16>)
  }
}
tile.kernel @hidden_quantized(%x: memref<?x256xbf16>, %q: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%x : memref<?x256xbf16>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
  tile.return
}
tile.kernel @hidden(%x: memref<?x256xf8E4M3FN>, %w: memref<8x512x256xf8E4M3FN>, %xs: memref<?x2xf32>, %ws: memref<8x4x2xf32>,
    %o: memref<9xi32>, %s: memref<?xi32>, %h: memref<?x256xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>} {
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
tile.kernel @out(%w: memref<8x256x256xf8E4M3FN>, %ws: memref<8x2x2xf32>, %xs: memref<?x2xf32>, %x: memref<?x256xf8E4M3FN>,
    %o: memref<9xi32>, %y: memref<?x256xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<8x256x256xf8E4M3FN>)
      input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<8x2x2xf32>) offsets(%o : memref<9xi32>)
      outs(%y : memref<?x256xbf16>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>}
  tile.return
}
tile.kernel @shared(%x: memref<?x256xf8E4M3FN>, %xs: memref<?x2xf32>, %w: memref<256x256xf8E4M3FN>, %ws: memref<2x2xf32>,
    %y: memref<?x256xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 1, experts = 1>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<256x256xf8E4M3FN>)
      input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<2x2xf32>)
      outs(%y : memref<?x256xbf16>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>}
  tile.return
}

// -----

// A gemm reads the quantized values with other scales.
//  CHECK-LABEL: plan.program @other_user
//        CHECK: plan.launch @hidden_quantized
//   CHECK-NEXT: plan.launch @shared ins(%hidden_quantized, %other_scale,
//   CHECK-NEXT: plan.launch @hidden ins(%hidden_quantized,
//   CHECK-NEXT: plan.launch @out ins(%experts.w2, %experts.w2_scale, %experts_hidden, %expert_offsets :
plan.program @other_user max_tokens 16 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x256xbf16>
  %w13 = plan.tensor weight "experts.w13" : memref<8x512x256xf8E4M3FN>
  %s13 = plan.tensor weight "experts.w13_scale" : memref<8x4x2xf32>
  %w2 = plan.tensor weight "experts.w2" : memref<8x256x256xf8E4M3FN>
  %s2 = plan.tensor weight "experts.w2_scale" : memref<8x2x2xf32>
  %offsets = plan.tensor input "expert_offsets" : memref<9xi32>
  %source = plan.tensor input "source" rows <"tokens * 2"> : memref<?xi32>
  %y = plan.tensor output "output" rows <"tokens * 2"> : memref<?x256xbf16>
  %w = plan.tensor weight "shared" : memref<256x256xf8E4M3FN>
  %ws = plan.tensor weight "shared_scale" : memref<2x2xf32>
  %xs = plan.tensor input "other_scale" rows <"tokens"> : memref<?x2xf32>
  %z = plan.tensor output "shared_out" rows <"tokens"> : memref<?x256xbf16>
  %q = plan.buffer "hidden_quantized" slot 0 rows <"tokens"> : memref<?x256xf8E4M3FN>
  %s = plan.buffer "hidden_scale" slot 1 rows <"tokens"> : memref<?x2xf32>
  %h = plan.buffer "experts_hidden" slot 2 rows <"tokens * 2"> : memref<?x256xbf16>
  %hq = plan.buffer "experts_hidden_quantized" slot 3 rows <"tokens * 2"> : memref<?x256xf8E4M3FN>
  %hs = plan.buffer "experts_hidden_scale" slot 4 rows <"tokens * 2"> : memref<?x2xf32>
  plan.variant tokens 0 to 16 {
    plan.launch @hidden_quantized ins(%x : memref<?x256xbf16>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
    plan.launch @shared ins(%q, %xs, %w, %ws : memref<?x256xf8E4M3FN>, memref<?x2xf32>, memref<256x256xf8E4M3FN>, memref<2x2xf32>)
        outs(%z : memref<?x256xbf16>)
    plan.launch @hidden ins(%q, %w13, %s, %s13, %offsets, %source : memref<?x256xf8E4M3FN>, memref<8x512x256xf8E4M3FN>, memref<?x2xf32>, memref<8x4x2xf32>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x256xbf16>)
    plan.launch @quantized ins(%h, %offsets : memref<?x256xbf16>, memref<9xi32>) outs(%hq, %hs : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
    plan.launch @out ins(%w2, %s2, %hs, %hq, %offsets : memref<8x256x256xf8E4M3FN>, memref<8x2x2xf32>, memref<?x2xf32>, memref<?x256xf8E4M3FN>, memref<9xi32>)
        outs(%y : memref<?x256xbf16>)
  }
}
tile.kernel @hidden_quantized(%x: memref<?x256xbf16>, %q: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%x : memref<?x256xbf16>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
  tile.return
}
tile.kernel @hidden(%x: memref<?x256xf8E4M3FN>, %w: memref<8x512x256xf8E4M3FN>, %xs: memref<?x2xf32>, %ws: memref<8x4x2xf32>,
    %o: memref<9xi32>, %s: memref<?xi32>, %h: memref<?x256xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>} {
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
tile.kernel @out(%w: memref<8x256x256xf8E4M3FN>, %ws: memref<8x2x2xf32>, %xs: memref<?x2xf32>, %x: memref<?x256xf8E4M3FN>,
    %o: memref<9xi32>, %y: memref<?x256xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<8x256x256xf8E4M3FN>)
      input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<8x2x2xf32>) offsets(%o : memref<9xi32>)
      outs(%y : memref<?x256xbf16>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>}
  tile.return
}
tile.kernel @shared(%x: memref<?x256xf8E4M3FN>, %xs: memref<?x2xf32>, %w: memref<256x256xf8E4M3FN>, %ws: memref<2x2xf32>,
    %y: memref<?x256xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 16, top_k = 1, experts = 1>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<256x256xf8E4M3FN>)
      input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<2x2xf32>)
      outs(%y : memref<?x256xbf16>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>}
  tile.return
}
