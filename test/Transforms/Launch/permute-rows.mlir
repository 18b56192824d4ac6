// Gemms whose rows are permuted.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --tile-rewrite-launches="only=permute-rows target=sm_90a" | FileCheck %s
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --tile-rewrite-launches="only=permute-rows target=sm_90a set=permute-rows.always" | FileCheck %s --check-prefix=ALWAYS
// A gemm with a forced config keeps it and its source; with `always` it keeps all other fields.
// DEFINE: %{forced} = configs={hidden:block_m=16+64 block_n=64 stages=4 no_swap_ab=false}
// RUN: moe-opt %s --split-input-file --tile-assign-config="target=sm_90a %{forced}" --tile-rewrite-launches="only=permute-rows target=sm_90a %{forced}" | FileCheck %s --check-prefix=KEPT
// RUN: moe-opt %s --split-input-file --tile-assign-config="target=sm_90a %{forced}" --tile-rewrite-launches="only=permute-rows target=sm_90a set=permute-rows.always %{forced}" | FileCheck %s --check-prefix=FORCED
// Other targets have no tensor maps.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_80 -o %t.sm80
// RUN: moe-opt %t.sm80 --split-input-file --tile-rewrite-launches="only=permute-rows target=sm_80 set=permute-rows.always" | diff - %t.sm80
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=cpu -o %t.cpu
// RUN: moe-opt %t.cpu --split-input-file --tile-rewrite-launches="only=permute-rows set=permute-rows.always" | diff - %t.cpu
// Rows of a gemm without a source are permuted already.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --tile-rewrite-launches="only=permute-rows target=sm_90a set=permute-rows.always" -o %t.once
// RUN: moe-opt %t.once --split-input-file --tile-rewrite-launches="only=permute-rows target=sm_90a set=permute-rows.always" | diff - %t.once
// Gemms without permuted rows can get them in a later run.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --tile-rewrite-launches="only=permute-rows target=sm_90a" --tile-rewrite-launches="only=permute-rows target=sm_90a set=permute-rows.always" | FileCheck %s --check-prefix=LATER
// RUN: not moe-opt %s --split-input-file --tile-rewrite-launches="only=permute-rows target=sm_70" 2>&1 | FileCheck %s --check-prefix=TARGET
// TARGET: tile-rewrite-launches: target 'sm_70' is unknown; accepted are cpu, sm_80, sm_90a, sm_100a
// RUN: not moe-opt %s --split-input-file --tile-rewrite-launches="only=permute-rows target=sm_90a configs=hidden" 2>&1 | FileCheck %s --check-prefix=CONFIG
// CONFIG: tile-rewrite-launches: config 'hidden': write KERNEL:TEXT

// A wide gemm with many tokens, in two variants: one buffer and one kernel. Few tokens do not pay.
//  CHECK-LABEL: plan.program @wide
//        CHECK: plan.buffer "hidden_states_in_order" slot 0 rows <"tokens * 2"> : memref<?x4096xbf16>
//        CHECK: plan.variant tokens 0 to 64 {
//   CHECK-NEXT: plan.launch @hidden_t64 ins(%hidden_states, %experts.w13, %expert_offsets, %source :
//        CHECK: plan.variant tokens 65 to 8192 {
//   CHECK-NEXT: plan.launch @gather_rows ins(%hidden_states, %expert_offsets, %source : memref<?x4096xbf16>, memref<9xi32>, memref<?xi32>) outs(%hidden_states_in_order :
//   CHECK-NEXT: plan.launch @hidden_t16384 ins(%hidden_states_in_order, %experts.w13, %expert_offsets : memref<?x4096xbf16>, memref<8x28672x4096xbf16>, memref<9xi32>) outs(%experts_hidden :
//        CHECK: plan.variant tokens 8193 to 16384 {
//   CHECK-NEXT: plan.launch @gather_rows ins(
//   CHECK-NEXT: plan.launch @hidden_t16384 ins(%hidden_states_in_order,
//        CHECK: tile.kernel @hidden_t64(
//        CHECK: source(
//    CHECK-NOT: map_rows
//        CHECK: tile.kernel @hidden_t16384(%[[X:arg0]]: memref<?x4096xbf16>, %{{arg1}}: memref<8x28672x4096xbf16>, %{{arg2}}: memref<9xi32>, %[[H:arg3]]: memref<?x14336xbf16>, %tokens: i64)
//   CHECK-SAME: tensor_maps = [{{.*}}#tile.tensor_map<argument = 0,
//   CHECK-NEXT: tile.gemm tokens(%tokens) ins(%[[X]], %arg1 : {{.*}}) offsets(%arg2 : memref<9xi32>) outs(%[[H]] : {{.*}}) epilogue {
//        CHECK: map_rows
//        CHECK: tile.kernel @gather_rows(%arg0: memref<?x4096xbf16>, %arg1: memref<9xi32>, %arg2: memref<?xi32>, %arg3: memref<?x4096xbf16>, %tokens: i64)
//   CHECK-SAME: block = 256 : i64, grid = #plan.expr<"ceildiv(tokens * 2, 8)">
//   CHECK-NEXT: tile.gather_rows tokens(%tokens) ins(%arg0 : memref<?x4096xbf16>) offsets(%arg1 : memref<9xi32>) source(%arg2 : memref<?xi32>)
//   CHECK-SAME: outs(%arg3 : memref<?x4096xbf16>) {config = #tile.gpu_gather_rows<warps = 8>, top_k = 2 : i64}
//    CHECK-NOT: tile.kernel
//  ALWAYS-LABEL: plan.program @wide
//        ALWAYS: plan.variant tokens 0 to 64 {
//   ALWAYS-NEXT: plan.launch @gather_rows
//   ALWAYS-NEXT: plan.launch @hidden_t64 ins(%hidden_states_in_order,
//        ALWAYS: tile.kernel @hidden_t64(
//        ALWAYS: map_rows
//   LATER-LABEL: plan.program @wide
//         LATER: plan.launch @hidden_t64 ins(%hidden_states_in_order_2,
//         LATER: plan.launch @hidden_t16384 ins(%hidden_states_in_order,
//    KEPT-LABEL: plan.program @wide
//      KEPT-NOT: gather_rows
//          KEPT: tile.kernel @hidden_t16384(
//          KEPT: source(
//          KEPT: block_m = [16, 64], block_n = 64, block_k = 64, stages = 4, l2_rows = 2440, dynamic_scheduler>
//      KEPT-NOT: gather_rows
//  FORCED-LABEL: plan.program @wide
//        FORCED: tile.kernel @hidden_t16384(
//    FORCED-NOT: source(
//        FORCED: block_m = [16, 64], block_n = 64, block_k = 64, stages = 4, l2_rows = 2440, map_rows, dynamic_scheduler>
plan.program @wide max_tokens 16384 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x4096xbf16>
  %w13 = plan.tensor weight "experts.w13" : memref<8x28672x4096xbf16>
  %offsets = plan.tensor input "expert_offsets" : memref<9xi32>
  %source = plan.tensor input "source" rows <"tokens * 2"> : memref<?xi32>
  %h = plan.tensor output "experts_hidden" rows <"tokens * 2"> : memref<?x14336xbf16>
  plan.variant tokens 0 to 64 {
    plan.launch @hidden_t64 ins(%x, %w13, %offsets, %source : memref<?x4096xbf16>, memref<8x28672x4096xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x14336xbf16>)
  }
  plan.variant tokens 65 to 8192 {
    plan.launch @hidden_t16384 ins(%x, %w13, %offsets, %source : memref<?x4096xbf16>, memref<8x28672x4096xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x14336xbf16>)
  }
  plan.variant tokens 8193 to 16384 {
    plan.launch @hidden_t16384 ins(%x, %w13, %offsets, %source : memref<?x4096xbf16>, memref<8x28672x4096xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x14336xbf16>)
  }
}
tile.kernel @hidden_t64(%x: memref<?x4096xbf16>, %w: memref<8x28672x4096xbf16>, %o: memref<9xi32>,
    %s: memref<?xi32>, %h: memref<?x14336xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 64, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x4096xbf16>, memref<8x28672x4096xbf16>)
      offsets(%o : memref<9xi32>) source(%s : memref<?xi32>) outs(%h : memref<?x14336xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @hidden_t16384(%x: memref<?x4096xbf16>, %w: memref<8x28672x4096xbf16>, %o: memref<9xi32>,
    %s: memref<?xi32>, %h: memref<?x14336xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 65, max_tokens = 16384, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x4096xbf16>, memref<8x28672x4096xbf16>)
      offsets(%o : memref<9xi32>) source(%s : memref<?xi32>) outs(%h : memref<?x14336xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}

// -----

// A narrow gemm is faster without the copy. Rows are copied on the gemm's stream.
//  CHECK-LABEL: plan.program @narrow_layer
//    CHECK-NOT: gather_rows
//        CHECK: plan.launch @hidden stream 1 ins(%hidden_states, %experts.w13, %expert_offsets, %source :
//    CHECK-NOT: gather_rows
//  ALWAYS-LABEL: plan.program @narrow_layer
//        ALWAYS: plan.launch @gather_rows stream 1
//   ALWAYS-NEXT: plan.launch @hidden stream 1 ins(%hidden_states_in_order, %experts.w13, %expert_offsets :
//    KEPT-LABEL: plan.program @narrow_layer
//      KEPT-NOT: gather_rows
//          KEPT: block_m = [16, 64], block_n = 64, block_k = 64, stages = 4, l2_rows = 4880, dynamic_scheduler>
//      KEPT-NOT: gather_rows
//  FORCED-LABEL: plan.program @narrow_layer
//        FORCED: block_m = [16, 64], block_n = 64, block_k = 64, stages = 4, l2_rows = 4880, map_rows, dynamic_scheduler>
plan.program @narrow_layer max_tokens 16384 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x2048xbf16>
  %w13 = plan.tensor weight "experts.w13" : memref<128x1536x2048xbf16>
  %offsets = plan.tensor input "expert_offsets" : memref<129xi32>
  %source = plan.tensor input "source" rows <"tokens * 8"> : memref<?xi32>
  %h = plan.tensor output "experts_hidden" rows <"tokens * 8"> : memref<?x768xbf16>
  plan.variant tokens 0 to 16384 {
    plan.record event 0 stream 0
    plan.wait event 0 stream 1
    plan.launch @hidden stream 1 ins(%x, %w13, %offsets, %source : memref<?x2048xbf16>, memref<128x1536x2048xbf16>, memref<129xi32>, memref<?xi32>)
        outs(%h : memref<?x768xbf16>)
    plan.record event 1 stream 1
    plan.wait event 1 stream 0
  }
}
tile.kernel @hidden(%x: memref<?x2048xbf16>, %w: memref<128x1536x2048xbf16>, %o: memref<129xi32>,
    %s: memref<?xi32>, %h: memref<?x768xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 16384, top_k = 8, experts = 128>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x2048xbf16>, memref<128x1536x2048xbf16>)
      offsets(%o : memref<129xi32>) source(%s : memref<?xi32>) outs(%h : memref<?x768xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}

// -----

// Quantized rows are copied with their scales.
// CHECK-LABEL: plan.program @scaled_layer
//       CHECK: %[[S:[a-z_]+]] = plan.buffer "hidden_scale_in_order" slot [[#]] rows <"tokens * 2"> : memref<?x32xf32>
//       CHECK: plan.launch @gather_rows ins(%hidden_states, %hidden_scale, %expert_offsets, %source :
//  CHECK-SAME: outs(%hidden_states_in_order, %[[S]] : memref<?x4096xf8E4M3FN>, memref<?x32xf32>)
//  CHECK-NEXT: plan.launch @hidden ins(%hidden_states_in_order, %experts.w13, %[[S]], %experts.w13_scale, %expert_offsets :
//       CHECK: tile.kernel @hidden(
//       CHECK: input_scale(%arg2 : memref<?x32xf32>) weight_scale(%arg3 : memref<8x224x32xf32>) offsets(%arg4 : memref<9xi32>) outs(%arg5 :
//       CHECK: map_rows
//       CHECK: tile.kernel @gather_rows(
//       CHECK: tile.gather_rows tokens(%tokens) ins(%arg0, %arg1 : memref<?x4096xf8E4M3FN>, memref<?x32xf32>)
//  CHECK-SAME: outs(%arg4, %arg5 : memref<?x4096xf8E4M3FN>, memref<?x32xf32>)
plan.program @scaled_layer max_tokens 16384 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x4096xf8E4M3FN>
  %w13 = plan.tensor weight "experts.w13" : memref<8x28672x4096xf8E4M3FN>
  %xs = plan.tensor input "hidden_scale" rows <"tokens"> : memref<?x32xf32>
  %ws = plan.tensor weight "experts.w13_scale" : memref<8x224x32xf32>
  %offsets = plan.tensor input "expert_offsets" : memref<9xi32>
  %source = plan.tensor input "source" rows <"tokens * 2"> : memref<?xi32>
  %h = plan.tensor output "experts_hidden" rows <"tokens * 2"> : memref<?x14336xbf16>
  plan.variant tokens 0 to 16384 {
    plan.launch @hidden ins(%x, %w13, %xs, %ws, %offsets, %source : memref<?x4096xf8E4M3FN>, memref<8x28672x4096xf8E4M3FN>, memref<?x32xf32>, memref<8x224x32xf32>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x14336xbf16>)
  }
}
tile.kernel @hidden(%x: memref<?x4096xf8E4M3FN>, %w: memref<8x28672x4096xf8E4M3FN>, %xs: memref<?x32xf32>, %ws: memref<8x224x32xf32>, %o: memref<9xi32>,
    %s: memref<?xi32>, %h: memref<?x14336xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 4097, max_tokens = 16384, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x4096xf8E4M3FN>, memref<8x28672x4096xf8E4M3FN>)
      input_scale(%xs : memref<?x32xf32>) weight_scale(%ws : memref<8x224x32xf32>)
      offsets(%o : memref<9xi32>) source(%s : memref<?xi32>) outs(%h : memref<?x14336xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, layout = #moe.weight_layout<order = gate_up>}
  tile.return
}

// -----

// Gemms with equal inputs: another order shares the kernel and buffer; more rows need another
// buffer. New buffers follow the existing ones.
// CHECK-LABEL: plan.program @several
//       CHECK: plan.buffer "first" slot
//  CHECK-NEXT: %[[TWO:[a-z0-9_]+]] = plan.buffer "hidden_states_in_order" slot [[#]] rows <"tokens * 2">
//  CHECK-NEXT: %[[FOUR:[a-z0-9_]+]] = plan.buffer "hidden_states_in_order_2" slot [[#]] rows <"tokens * 4">
//       CHECK: plan.launch @gather_rows ins(%hidden_states, %expert_offsets, %source : {{.*}}) outs(%[[TWO]] :
//  CHECK-NEXT: plan.launch @hidden ins(%[[TWO]], {{.*}}) outs(%first :
//  CHECK-NEXT: plan.launch @gather_rows ins(%hidden_states, %expert_offsets, %other : {{.*}}) outs(%[[TWO]] :
//  CHECK-NEXT: plan.launch @hidden ins(%[[TWO]], {{.*}}) outs(%experts_hidden :
//  CHECK-NEXT: plan.launch @[[MORE:gather_rows_[0-9]+]] ins(%hidden_states, %expert_offsets, %four : {{.*}}) outs(%[[FOUR]] :
//  CHECK-NEXT: plan.launch @hidden_t16384 ins(%[[FOUR]], {{.*}}) outs(%fours :
//       CHECK: tile.kernel @gather_rows(
//       CHECK: top_k = 2
//       CHECK: tile.kernel @[[MORE]](
//       CHECK: top_k = 4
plan.program @several max_tokens 16384 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x4096xbf16>
  %w13 = plan.tensor weight "experts.w13" : memref<8x28672x4096xbf16>
  %offsets = plan.tensor input "expert_offsets" : memref<9xi32>
  %source = plan.tensor input "source" rows <"tokens * 2"> : memref<?xi32>
  %other = plan.tensor input "other" rows <"tokens * 2"> : memref<?xi32>
  %four = plan.tensor input "four" rows <"tokens * 4"> : memref<?xi32>
  %fours = plan.tensor output "fours" rows <"tokens * 4"> : memref<?x14336xbf16>
  %h = plan.tensor output "experts_hidden" rows <"tokens * 2"> : memref<?x14336xbf16>
  %first = plan.buffer "first" slot 0 rows <"tokens * 2"> : memref<?x14336xbf16>
  plan.variant tokens 0 to 16384 {
    plan.launch @hidden ins(%x, %w13, %offsets, %source : memref<?x4096xbf16>, memref<8x28672x4096xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%first : memref<?x14336xbf16>)
    plan.launch @hidden ins(%x, %w13, %offsets, %other : memref<?x4096xbf16>, memref<8x28672x4096xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x14336xbf16>)
    plan.launch @hidden_t16384 ins(%x, %w13, %offsets, %four : memref<?x4096xbf16>, memref<8x28672x4096xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%fours : memref<?x14336xbf16>)
  }
}
tile.kernel @hidden(%x: memref<?x4096xbf16>, %w: memref<8x28672x4096xbf16>, %o: memref<9xi32>,
    %s: memref<?xi32>, %h: memref<?x14336xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 4097, max_tokens = 16384, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x4096xbf16>, memref<8x28672x4096xbf16>)
      offsets(%o : memref<9xi32>) source(%s : memref<?xi32>) outs(%h : memref<?x14336xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @hidden_t16384(%x: memref<?x4096xbf16>, %w: memref<8x28672x4096xbf16>, %o: memref<9xi32>,
    %s: memref<?xi32>, %h: memref<?x14336xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 4097, max_tokens = 16384, top_k = 4, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x4096xbf16>, memref<8x28672x4096xbf16>)
      offsets(%o : memref<9xi32>) source(%s : memref<?xi32>) outs(%h : memref<?x14336xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}

// -----

// Without a load, the number of rows of a gemm is unknown; rows that are not a multiple of 16 bytes
// need a schedule without tensor maps.
// ALWAYS-LABEL: plan.program @unknown_layer
//   ALWAYS-NOT: gather_rows
plan.program @unknown_layer max_tokens 64 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x256xbf16>
  %w13 = plan.tensor weight "experts.w13" : memref<8x512x256xbf16>
  %offsets = plan.tensor input "expert_offsets" : memref<9xi32>
  %source = plan.tensor input "source" rows <"tokens * 2"> : memref<?xi32>
  %y = plan.tensor input "others" rows <"tokens"> : memref<?x250xbf16>
  %w = plan.tensor weight "others.w13" : memref<8x512x250xbf16>
  %z = plan.tensor output "others_hidden" rows <"tokens * 2"> : memref<?x256xbf16>
  %h = plan.tensor output "experts_hidden" rows <"tokens * 2"> : memref<?x256xbf16>
  plan.variant tokens 0 to 64 {
    plan.launch @hidden ins(%x, %w13, %offsets, %source : memref<?x256xbf16>, memref<8x512x256xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x256xbf16>)
    plan.launch @odd ins(%y, %w, %offsets, %source : memref<?x250xbf16>, memref<8x512x250xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%z : memref<?x256xbf16>)
  }
}
tile.kernel @hidden(%x: memref<?x256xbf16>, %w: memref<8x512x256xbf16>, %o: memref<9xi32>,
    %s: memref<?xi32>, %h: memref<?x256xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<8x512x256xbf16>)
      offsets(%o : memref<9xi32>) source(%s : memref<?xi32>) outs(%h : memref<?x256xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @odd(%x: memref<?x250xbf16>, %w: memref<8x512x250xbf16>, %o: memref<9xi32>,
    %s: memref<?xi32>, %h: memref<?x256xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 64, top_k = 2, experts = 8>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x250xbf16>, memref<8x512x250xbf16>)
      offsets(%o : memref<9xi32>) source(%s : memref<?xi32>) outs(%h : memref<?x256xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
