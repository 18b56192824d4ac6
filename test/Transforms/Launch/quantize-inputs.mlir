// Gemms that quantize the rows that they multiply.
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=quantize-inputs set=quantize-inputs.always target=sm_90a" | FileCheck %s
// A second run changes nothing.
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=quantize-inputs set=quantize-inputs.always target=sm_90a" -o %t.once
// RUN: moe-opt %t.once --split-input-file --tile-rewrite-launches="only=quantize-inputs set=quantize-inputs.always target=sm_90a" | diff - %t.once
// Launches of few CTAs stay, since they delay no others: 128 rows, not 32,768.
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=quantize-inputs target=sm_90a" | FileCheck %s --check-prefix=FEW --implicit-check-not=awaits
// FEW: plan.launch @quantized ins
// RUN: sed -e "s/max_tokens = 64/max_tokens = 16384/; s/min_tokens = 0/min_tokens = 4096/; s/tokens 0 to 64/tokens 0 to 16384/; s/max_tokens 64/max_tokens 16384/" %s > %t.many.mlir
// RUN: moe-opt %t.many.mlir --split-input-file --tile-rewrite-launches="only=quantize-inputs target=sm_90a" | FileCheck %s --check-prefix=MANY
// MANY: tile.gemm {{.*}} schedule(awaits =
// A quantization with a forced config stays.
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=quantize-inputs set=quantize-inputs.always target=sm_90a configs={quantized:elements_per_cta=1024}" | FileCheck %s --check-prefix=KEPT
// KEPT-NOT: awaits
// RUN: moe-opt %s --split-input-file --tile-rewrite-launches="only=quantize-inputs set=quantize-inputs.always target=sm_90a" --remarks-filter=tile-rewrite-launches -o %t.mlir 2>&1 | FileCheck %s --check-prefix=WHY
// WHY: [Passed] quantize-inputs | {{.*}}Function=quantized
// WHY: [Missed] quantize-inputs | {{.*}} Reason="a warp cannot hold a row in registers, or a row has several scales"
// WHY: [Missed] quantize-inputs | {{.*}} Reason="no earlier sort can clear a counter for this gemm"
// RUN: not moe-opt %s --split-input-file --tile-rewrite-launches="only=quantize-inputs set=quantize-inputs.always target=sm_70" 2>&1 | FileCheck %s --check-prefix=TARGET
// TARGET: tile-rewrite-launches: target 'sm_70' is unknown; accepted are cpu, sm_80, sm_90a, sm_100a

// The counter is that of the tile scheduler, which stays; the CTAs are the gemm's.
//  CHECK-LABEL: plan.program @layer
//        CHECK: plan.variant tokens 0 to 64 {
//   CHECK-NEXT: plan.launch @rank
//   CHECK-NEXT: plan.launch @quantized_out ins(%hidden, %expert_offsets, %experts.w2, %experts.w2_scale, %row_weight :
//   CHECK-SAME: outs(%quantized, %scale, %output, %counter :
//   CHECK-NEXT: }
//        CHECK: tile.kernel @quantized_out({{.*}}, %[[Q:arg5]]: memref<?x256xf8E4M3FN>, %[[S:arg6]]: memref<?x1xf32>, {{.*}}, %[[C:arg8]]: memref<1xi32>, %tokens: i64)
//   CHECK-SAME: form = #tile.kernel_form<{{.*}}resident{{.*}}>, grid = #plan.expr<"132">
//   CHECK-NEXT: tile.quantize {{.*}} outs(%[[Q]], %[[S]] :
//   CHECK-NEXT: tile.gemm {{.*}} ins(%[[Q]], {{.*}} input_scale(%[[S]] : {{.*}} schedule(awaits = %[[C]] : memref<1xi32>, tile_counter = %[[C]] : memref<1xi32>)
//        CHECK: map_rows, dynamic_scheduler>
//    CHECK-NOT: tile.quantize
plan.program @layer max_tokens 64 {
  %i = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x2xi32>
  %r = plan.tensor input "topk_weights" rows <"tokens"> : memref<?x2xf32>
  %w2 = plan.tensor weight "experts.w2" : memref<8x128x256xf8E4M3FN>
  %ws = plan.tensor weight "experts.w2_scale" : memref<8x128x1xf32>
  %h = plan.tensor input "hidden" rows <"tokens * 2"> : memref<?x256xbf16>
  %y = plan.tensor output "output" rows <"tokens * 2"> : memref<?x128xbf16>
  %offsets = plan.buffer "expert_offsets" slot 0 : memref<9xi32>
  %position = plan.buffer "position" slot 1 rows <"tokens"> : memref<?x2xi32>
  %source = plan.buffer "source" slot 2 rows <"tokens * 2"> : memref<?xi32>
  %weight = plan.buffer "row_weight" slot 3 rows <"tokens * 2"> : memref<?x1xf32>
  %q = plan.buffer "quantized" slot 4 rows <"tokens * 2"> : memref<?x256xf8E4M3FN>
  %s = plan.buffer "scale" slot 5 rows <"tokens * 2"> : memref<?x1xf32>
  %c = plan.buffer "counter" slot 6 : memref<1xi32>
  plan.variant tokens 0 to 64 {
    plan.launch @rank ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%offsets, %source, %weight, %position, %c : memref<9xi32>, memref<?xi32>, memref<?x1xf32>, memref<?x2xi32>, memref<1xi32>)
    plan.launch @quantized ins(%h, %offsets : memref<?x256xbf16>, memref<9xi32>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x1xf32>)
    plan.launch @out ins(%q, %w2, %s, %ws, %offsets, %weight : memref<?x256xf8E4M3FN>, memref<8x128x256xf8E4M3FN>, memref<?x1xf32>, memref<8x128x1xf32>, memref<9xi32>, memref<?x1xf32>)
        outs(%y, %c : memref<?x128xbf16>, memref<1xi32>)
  }
}
tile.kernel @rank(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<9xi32>, %s: memref<?xi32>,
    %w: memref<?x1xf32>, %p: memref<?x2xi32>, %c: memref<1xi32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) counter(%c : memref<1xi32>)
      {config = #tile.gpu_sort_by_expert<threads = 1024, tokens_per_cta = 128, experts_at_once = 8>, num_experts = 8 : i64}
  tile.return
}
tile.kernel @quantized(%h: memref<?x256xbf16>, %o: memref<9xi32>, %q: memref<?x256xf8E4M3FN>, %s: memref<?x1xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true> tokens(%t) ins(%h : memref<?x256xbf16>) offsets(%o : memref<9xi32>)
      outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x1xf32>)
      {config = #tile.gpu_quantize<elements_per_cta = 1024, vector_width = 8>, top_k = 2 : i64}
  tile.return
}
tile.kernel @out(%x: memref<?x256xf8E4M3FN>, %w: memref<8x128x256xf8E4M3FN>, %xs: memref<?x1xf32>, %ws: memref<8x128x1xf32>,
    %o: memref<9xi32>, %v: memref<?x1xf32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 64, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<8x128x256xf8E4M3FN>)
      input_scale(%xs : memref<?x1xf32>) weight_scale(%ws : memref<8x128x1xf32>) offsets(%o : memref<9xi32>)
      schedule(tile_counter = %c : memref<1xi32>) rows(%v : memref<?x1xf32>) outs(%y : memref<?x128xbf16>) epilogue {
      ^bb0(%a: f32, %b: f32):
        %z = arith.mulf %a, %b : f32
        tile.yield %z : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>,
         config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 128, stages = 4, map_rows, dynamic_scheduler>}
  tile.return
}

// -----

// A warp holds rows of up to 2048 elements.
//  CHECK-LABEL: plan.program @long_rows
//        CHECK: plan.launch @quantized ins
//    CHECK-NOT: awaits
plan.program @long_rows max_tokens 64 {
  %i = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x2xi32>
  %r = plan.tensor input "topk_weights" rows <"tokens"> : memref<?x2xf32>
  %w2 = plan.tensor weight "experts.w2" : memref<8x128x2176xf8E4M3FN>
  %ws = plan.tensor weight "experts.w2_scale" : memref<8x128x1xf32>
  %h = plan.tensor input "hidden" rows <"tokens * 2"> : memref<?x2176xbf16>
  %y = plan.tensor output "output" rows <"tokens * 2"> : memref<?x128xbf16>
  %offsets = plan.buffer "expert_offsets" slot 0 : memref<9xi32>
  %position = plan.buffer "position" slot 1 rows <"tokens"> : memref<?x2xi32>
  %source = plan.buffer "source" slot 2 rows <"tokens * 2"> : memref<?xi32>
  %weight = plan.buffer "row_weight" slot 3 rows <"tokens * 2"> : memref<?x1xf32>
  %q = plan.buffer "quantized" slot 4 rows <"tokens * 2"> : memref<?x2176xf8E4M3FN>
  %s = plan.buffer "scale" slot 5 rows <"tokens * 2"> : memref<?x1xf32>
  %c = plan.buffer "counter" slot 6 : memref<1xi32>
  plan.variant tokens 0 to 64 {
    plan.launch @rank ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%offsets, %source, %weight, %position, %c : memref<9xi32>, memref<?xi32>, memref<?x1xf32>, memref<?x2xi32>, memref<1xi32>)
    plan.launch @quantized ins(%h, %offsets : memref<?x2176xbf16>, memref<9xi32>) outs(%q, %s : memref<?x2176xf8E4M3FN>, memref<?x1xf32>)
    plan.launch @out ins(%q, %w2, %s, %ws, %offsets, %weight : memref<?x2176xf8E4M3FN>, memref<8x128x2176xf8E4M3FN>, memref<?x1xf32>, memref<8x128x1xf32>, memref<9xi32>, memref<?x1xf32>)
        outs(%y, %c : memref<?x128xbf16>, memref<1xi32>)
  }
}
tile.kernel @rank(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<9xi32>, %s: memref<?xi32>,
    %w: memref<?x1xf32>, %p: memref<?x2xi32>, %c: memref<1xi32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) counter(%c : memref<1xi32>)
      {config = #tile.gpu_sort_by_expert<threads = 1024, tokens_per_cta = 128, experts_at_once = 8>, num_experts = 8 : i64}
  tile.return
}
tile.kernel @quantized(%h: memref<?x2176xbf16>, %o: memref<9xi32>, %q: memref<?x2176xf8E4M3FN>, %s: memref<?x1xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true> tokens(%t) ins(%h : memref<?x2176xbf16>) offsets(%o : memref<9xi32>)
      outs(%q, %s : memref<?x2176xf8E4M3FN>, memref<?x1xf32>)
      {config = #tile.gpu_quantize<elements_per_cta = 1024, vector_width = 8>, top_k = 2 : i64}
  tile.return
}
tile.kernel @out(%x: memref<?x2176xf8E4M3FN>, %w: memref<8x128x2176xf8E4M3FN>, %xs: memref<?x1xf32>, %ws: memref<8x128x1xf32>,
    %o: memref<9xi32>, %v: memref<?x1xf32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 64, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x2176xf8E4M3FN>, memref<8x128x2176xf8E4M3FN>)
      input_scale(%xs : memref<?x1xf32>) weight_scale(%ws : memref<8x128x1xf32>) offsets(%o : memref<9xi32>)
      schedule(tile_counter = %c : memref<1xi32>) rows(%v : memref<?x1xf32>) outs(%y : memref<?x128xbf16>) epilogue {
      ^bb0(%a: f32, %b: f32):
        %z = arith.mulf %a, %b : f32
        tile.yield %z : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>,
         config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 128, stages = 4, map_rows, dynamic_scheduler>}
  tile.return
}

// -----

// A later user of the counter would not find 0.
//  CHECK-LABEL: plan.program @counted_behind
//        CHECK: plan.launch @quantized ins
//    CHECK-NOT: awaits
plan.program @counted_behind max_tokens 64 {
  %i = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x2xi32>
  %r = plan.tensor input "topk_weights" rows <"tokens"> : memref<?x2xf32>
  %w2 = plan.tensor weight "experts.w2" : memref<8x128x256xf8E4M3FN>
  %ws = plan.tensor weight "experts.w2_scale" : memref<8x128x1xf32>
  %h = plan.tensor input "hidden" rows <"tokens * 2"> : memref<?x256xbf16>
  %y = plan.tensor output "output" rows <"tokens * 2"> : memref<?x128xbf16>
  %offsets = plan.buffer "expert_offsets" slot 0 : memref<9xi32>
  %position = plan.buffer "position" slot 1 rows <"tokens"> : memref<?x2xi32>
  %source = plan.buffer "source" slot 2 rows <"tokens * 2"> : memref<?xi32>
  %weight = plan.buffer "row_weight" slot 3 rows <"tokens * 2"> : memref<?x1xf32>
  %q = plan.buffer "quantized" slot 4 rows <"tokens * 2"> : memref<?x256xf8E4M3FN>
  %s = plan.buffer "scale" slot 5 rows <"tokens * 2"> : memref<?x1xf32>
  %c = plan.buffer "counter" slot 6 : memref<1xi32>
  plan.variant tokens 0 to 64 {
    plan.launch @rank ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%offsets, %source, %weight, %position, %c : memref<9xi32>, memref<?xi32>, memref<?x1xf32>, memref<?x2xi32>, memref<1xi32>)
    plan.launch @quantized ins(%h, %offsets : memref<?x256xbf16>, memref<9xi32>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x1xf32>)
    plan.launch @out ins(%q, %w2, %s, %ws, %offsets, %weight : memref<?x256xf8E4M3FN>, memref<8x128x256xf8E4M3FN>, memref<?x1xf32>, memref<8x128x1xf32>, memref<9xi32>, memref<?x1xf32>)
        outs(%y, %c : memref<?x128xbf16>, memref<1xi32>)
    plan.launch @behind ins(%q, %w2, %s, %ws, %offsets, %weight : memref<?x256xf8E4M3FN>, memref<8x128x256xf8E4M3FN>, memref<?x1xf32>, memref<8x128x1xf32>, memref<9xi32>, memref<?x1xf32>)
        outs(%y, %c : memref<?x128xbf16>, memref<1xi32>)
  }
}
tile.kernel @rank(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<9xi32>, %s: memref<?xi32>,
    %w: memref<?x1xf32>, %p: memref<?x2xi32>, %c: memref<1xi32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) counter(%c : memref<1xi32>)
      {config = #tile.gpu_sort_by_expert<threads = 1024, tokens_per_cta = 128, experts_at_once = 8>, num_experts = 8 : i64}
  tile.return
}
tile.kernel @quantized(%h: memref<?x256xbf16>, %o: memref<9xi32>, %q: memref<?x256xf8E4M3FN>, %s: memref<?x1xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true> tokens(%t) ins(%h : memref<?x256xbf16>) offsets(%o : memref<9xi32>)
      outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x1xf32>)
      {config = #tile.gpu_quantize<elements_per_cta = 1024, vector_width = 8>, top_k = 2 : i64}
  tile.return
}
tile.kernel @out(%x: memref<?x256xf8E4M3FN>, %w: memref<8x128x256xf8E4M3FN>, %xs: memref<?x1xf32>, %ws: memref<8x128x1xf32>,
    %o: memref<9xi32>, %v: memref<?x1xf32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 64, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<8x128x256xf8E4M3FN>)
      input_scale(%xs : memref<?x1xf32>) weight_scale(%ws : memref<8x128x1xf32>) offsets(%o : memref<9xi32>)
      schedule(tile_counter = %c : memref<1xi32>) rows(%v : memref<?x1xf32>) outs(%y : memref<?x128xbf16>) epilogue {
      ^bb0(%a: f32, %b: f32):
        %z = arith.mulf %a, %b : f32
        tile.yield %z : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>,
         config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 128, stages = 4, map_rows, dynamic_scheduler>}
  tile.return
}
tile.kernel @behind(%x: memref<?x256xf8E4M3FN>, %w: memref<8x128x256xf8E4M3FN>, %xs: memref<?x1xf32>, %ws: memref<8x128x1xf32>,
    %o: memref<9xi32>, %v: memref<?x1xf32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<8x128x256xf8E4M3FN>)
      input_scale(%xs : memref<?x1xf32>) weight_scale(%ws : memref<8x128x1xf32>) offsets(%o : memref<9xi32>)
      schedule(tile_counter = %c : memref<1xi32>) rows(%v : memref<?x1xf32>) outs(%y : memref<?x128xbf16>) epilogue {
      ^bb0(%a: f32, %b: f32):
        %z = arith.mulf %a, %b : f32
        tile.yield %z : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>,
         config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 128, stages = 4, map_rows, dynamic_scheduler>}
  tile.return
}
