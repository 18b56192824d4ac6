// RUN: moe-opt %s --convert-plan-to-tile | FileCheck %s

// Launches stay; kernels take memrefs, results become memrefs that they write,
// and the token count comes last. One op, one phase.
// CHECK: plan.launch @route ins(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : {{.*}}) outs(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : {{.*}})
// CHECK-NOT: plan.kernel
plan.program @layer max_tokens 16 {
  %l = plan.tensor input "router_logits" rows <"tokens"> : memref<?x4xf32>
  %n = plan.tensor input "num_valid_tokens" : memref<1xi32>
  %i = plan.tensor input "input_ids" rows <"tokens"> : memref<?xi32>
  %t = plan.tensor weight "gate.hash_table" : memref<9x2xi32>
  %ids = plan.buffer "topk_ids" rows <"tokens"> : memref<?x2xi32>
  %wt = plan.buffer "topk_weights" rows <"tokens"> : memref<?x2xf32>
  %off = plan.buffer "expert_offsets" : memref<4xi32>
  %pos = plan.buffer "position" rows <"tokens"> : memref<?x2xi32>
  %src = plan.buffer "source" rows <"tokens * 2"> : memref<?xi32>
  %rw = plan.buffer "row_weight" rows <"tokens * 2"> : memref<?x1xf32>
  plan.prepare {
  }
  plan.variant tokens 0 to 16 {
    plan.launch @route ins(%l, %n, %i, %t : memref<?x4xf32>, memref<1xi32>, memref<?xi32>, memref<9x2xi32>) outs(%ids, %wt, %off, %pos, %src, %rw : memref<?x2xi32>, memref<?x2xf32>, memref<4xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
  }
}

// CHECK-LABEL: tile.kernel @route(
// CHECK-SAME: %[[L:.*]]: memref<?x4xf32>, %[[N:.*]]: memref<1xi32>, %[[I:.*]]: memref<?xi32>, %[[TAB:.*]]: memref<9x2xi32>, %[[IDS:.*]]: memref<?x2xi32>, %[[WT:.*]]: memref<?x2xf32>, %[[OFF:.*]]: memref<4xi32>, %[[POS:.*]]: memref<?x2xi32>, %[[SRC:.*]]: memref<?xi32>, %[[RW:.*]]: memref<?x1xf32>, %[[T:.*]]: i64) {
// CHECK-NEXT: tile.top_k tokens(%[[T]]) logits(%[[L]] : memref<?x4xf32>) input_ids(%[[I]] : memref<?xi32>) hash_table(%[[TAB]] : memref<9x2xi32>) num_valid_tokens(%[[N]] : memref<1xi32>) outs(%[[IDS]], %[[WT]] : memref<?x2xi32>, memref<?x2xf32>) <top_k = 2, select = hash> score {
// CHECK-NEXT: ^bb0(%[[A:.*]]: f32):
// CHECK-NEXT: %[[B:.*]] = math.exp %[[A]] : f32
// CHECK-NEXT: tile.yield %[[B]] : f32
// CHECK-NEXT: } weight {
// CHECK: tile.yield
// CHECK-NEXT: } {moe.name = ["topk_ids", "topk_weights"]}
// CHECK-NEXT: tile.sort_by_expert tokens(%[[T]]) ids(%[[IDS]], %[[WT]] : memref<?x2xi32>, memref<?x2xf32>) num_valid_tokens(%[[N]] : memref<1xi32>) outs(%[[OFF]], %[[POS]], %[[SRC]], %[[RW]] : memref<4xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) {local_experts = array<i64: 0, 2, 3>, num_experts = 4 : i64}
// CHECK-NEXT: tile.return
plan.kernel @route(%l: tensor<?x4xf32>, %n: tensor<1xi32>, %i: tensor<?xi32>, %t: tensor<9x2xi32>)
    -> (tensor<?x2xi32>, tensor<?x2xf32>, tensor<4xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>) {
  %ids, %wt = moe.route %l : tensor<?x4xf32> input_ids(%i : tensor<?xi32>) hash_table(%t : tensor<9x2xi32>) num_valid_tokens(%n : tensor<1xi32>) <top_k = 2, select = hash> score {
  ^bb0(%a: f32):
    %b = math.exp %a : f32
    moe.yield %b : f32
  } weight {
  ^bb0(%a: f32):
    moe.yield %a : f32
  } {moe.name = ["topk_ids", "topk_weights"]} -> tensor<?x2xi32>, tensor<?x2xf32>
  %off, %pos, %src, %rw = moe.permute %ids, %wt num_valid_tokens(%n : tensor<1xi32>) {local_experts = array<i64: 0, 2, 3>, num_experts = 4 : i64}
    : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<4xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  plan.return %ids, %wt, %off, %pos, %src, %rw : tensor<?x2xi32>, tensor<?x2xf32>, tensor<4xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
}

// CHECK-LABEL: tile.kernel @selection_inputs(
// CHECK: tile.top_k {{.*}} selection_bias(%{{.*}} : memref<4xf32>) expert_scale(%{{.*}} : memref<4xf32>) outs
plan.kernel @selection_inputs(%l: tensor<?x4xf32>, %sb: tensor<4xf32>, %es: tensor<4xf32>) -> (tensor<?x2xi32>, tensor<?x2xf32>) {
  %ids, %wt = moe.route %l : tensor<?x4xf32> selection_bias(%sb : tensor<4xf32>) expert_scale(%es : tensor<4xf32>) <top_k = 2> -> tensor<?x2xi32>, tensor<?x2xf32>
  plan.return %ids, %wt : tensor<?x2xi32>, tensor<?x2xf32>
}

// The results stand in the order of plan.return, whatever that of the ops.
// CHECK-LABEL: tile.kernel @experts(
// CHECK-SAME: %[[X:.*]]: memref<?x8xbf16>, %[[W13:.*]]: memref<2x12x8xbf16>, %[[W2:.*]]: memref<2x8x6xbf16>, %[[OFF:.*]]: memref<3xi32>, %[[SRC:.*]]: memref<?xi32>, %[[RW:.*]]: memref<?x1xf32>, %[[B13:.*]]: memref<2x12xbf16>, %[[Y:.*]]: memref<?x8xbf16>, %[[H:.*]]: memref<?x6xbf16>, %[[T:.*]]: i64) {
// CHECK-NEXT: tile.gemm tokens(%[[T]]) ins(%[[X]], %[[W13]] : memref<?x8xbf16>, memref<2x12x8xbf16>) offsets(%[[OFF]] : memref<3xi32>) source(%[[SRC]] : memref<?xi32>) columns(%[[B13]] : memref<2x12xbf16>) outs(%[[H]] : memref<?x6xbf16>) epilogue {
// CHECK-NEXT: ^bb0(%{{.*}}: f32, %{{.*}}: f32, %{{.*}}: f32, %{{.*}}: f32):
// CHECK: tile.yield
// CHECK-NEXT: } {layout = #moe.weight_layout<order = up_gate>}
// CHECK-NEXT: tile.gemm tokens(%[[T]]) ins(%[[H]], %[[W2]] : memref<?x6xbf16>, memref<2x8x6xbf16>) offsets(%[[OFF]] : memref<3xi32>) rows(%[[RW]] : memref<?x1xf32>) outs(%[[Y]] : memref<?x8xbf16>) epilogue {
plan.kernel @experts(%x: tensor<?x8xbf16>, %w13: tensor<2x12x8xbf16>, %w2: tensor<2x8x6xbf16>, %off: tensor<3xi32>,
    %src: tensor<?xi32>, %rw: tensor<?x1xf32>, %b13: tensor<2x12xbf16>) -> (tensor<?x8xbf16>, tensor<?x6xbf16>) {
  %h = moe.grouped_matmul %x, %w13 : tensor<?x8xbf16>, tensor<2x12x8xbf16> offsets(%off : tensor<3xi32>) source(%src : tensor<?xi32>) columns(%b13 : tensor<2x12xbf16>) epilogue {
  ^bb0(%g: f32, %u: f32, %gb: f32, %ub: f32):
    %y = arith.mulf %g, %ub : f32
    moe.yield %y : f32
  } {layout = #moe.weight_layout<order = up_gate>} -> tensor<?x6xbf16>
  %y = moe.grouped_matmul %h, %w2 : tensor<?x6xbf16>, tensor<2x8x6xbf16> offsets(%off : tensor<3xi32>) rows(%rw : tensor<?x1xf32>) epilogue {
  ^bb0(%a: f32, %w: f32):
    %m = arith.mulf %a, %w : f32
    moe.yield %m : f32
  } -> tensor<?x8xbf16>
  plan.return %y, %h : tensor<?x8xbf16>, tensor<?x6xbf16>
}

// CHECK-LABEL: tile.kernel @dense(
// CHECK: tile.gemm {{.*}} num_valid_tokens(%{{.*}} : memref<1xi32>) elementwise(%{{.*}} : memref<?x4xf16>) outs
plan.kernel @dense(%x: tensor<?x8xf16>, %w: tensor<4x8xf16>, %e: tensor<?x4xf16>, %n: tensor<1xi32>) -> tensor<?x4xf16> {
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf16>, tensor<4x8xf16> num_valid_tokens(%n : tensor<1xi32>) elementwise(%e : tensor<?x4xf16>) epilogue {
  ^bb0(%a: f32, %b: f32):
    %c = arith.addf %a, %b : f32
    moe.yield %c : f32
  } -> tensor<?x4xf16>
  plan.return %0 : tensor<?x4xf16>
}

// CHECK-LABEL: tile.kernel @weighted_input(
// CHECK: tile.row_map tokens(%{{.*}}) ins(%{{.*}} : memref<?x8xf16>) rows(%{{.*}} : memref<?x1xf32>) outs(%{{.*}} : memref<?x8xf16>) {
// CHECK: tile.yield
plan.kernel @weighted_input(%x: tensor<?x8xf16>, %w: tensor<?x1xf32>) -> tensor<?x8xf16> {
  %0 = moe.row_map %x : tensor<?x8xf16> rows(%w : tensor<?x1xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.mulf %a, %b : f32
    moe.yield %c : f32
  } -> tensor<?x8xf16>
  plan.return %0 : tensor<?x8xf16>
}

// CHECK-LABEL: tile.kernel @sum(
// CHECK: tile.gather_reduce tokens(%{{.*}}) ins(%{{.*}}, %{{.*}} : memref<?x8xf32>, memref<?x2xi32>) identity(%{{.*}}, %{{.*}} : memref<?x8xf32>, memref<?x2xf32>) addend(%{{.*}} : memref<?x8xf32>) num_valid_tokens(%{{.*}} : memref<1xi32>) outs(%{{.*}} : memref<?x8xf32>)
plan.kernel @sum(%y: tensor<?x8xf32>, %pos: tensor<?x2xi32>, %x: tensor<?x8xf32>, %wt: tensor<?x2xf32>, %s: tensor<?x8xf32>, %n: tensor<1xi32>) -> tensor<?x8xf32> {
  %0 = moe.unpermute %y, %pos : tensor<?x8xf32>, tensor<?x2xi32> identity(%x, %wt : tensor<?x8xf32>, tensor<?x2xf32>) addend(%s : tensor<?x8xf32>) num_valid_tokens(%n : tensor<1xi32>) -> tensor<?x8xf32>
  plan.return %0 : tensor<?x8xf32>
}

// Weights that may have gaps between their rows.
// CHECK-LABEL: tile.kernel @strided(
// CHECK-SAME: %{{.*}}: memref<?x8xf32>, %[[W:.*]]: memref<8x8xf32, strided<[?, 1]>>, %{{.*}}: memref<?x8xf32>, %{{.*}}: i64)
// CHECK: tile.gemm {{.*}} ins(%{{.*}}, %[[W]] : memref<?x8xf32>, memref<8x8xf32, strided<[?, 1]>>)
plan.kernel @strided(%x: tensor<?x8xf32>, %w: tensor<8x8xf32> {moe.strided}) -> tensor<?x8xf32> {
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  plan.return %0 : tensor<?x8xf32>
}

// A scale that all rows share, computed in a separate kernel; gemms keep `way`.
// CHECK-LABEL: tile.kernel @hidden_scale(
// CHECK: tile.tensor_scale <{{.*}}dynamic = true> tokens(%{{.*}}) ins(%{{.*}} : memref<?x8xf16>) num_valid_tokens(%{{.*}} : memref<1xi32>) outs(%{{.*}} : memref<1xf32>)
plan.kernel @hidden_scale(%x: tensor<?x8xf16>, %n: tensor<1xi32>) -> tensor<1xf32> {
  %0 = moe.tensor_scale <storage = f8E4M3FN, scale = f32, granularity = tensor, dynamic = true> %x num_valid_tokens(%n : tensor<1xi32>) : tensor<?x8xf16> -> tensor<1xf32>
  plan.return %0 : tensor<1xf32>
}

// CHECK-LABEL: tile.kernel @hidden_quantized(
// CHECK: tile.quantize <storage = f8E4M3FN, scale = f32, granularity = tensor> tokens(%{{.*}}) ins(%{{.*}} : memref<?x8xf16>) tensor_scale(%{{.*}} : memref<1xf32>) outs(%{{.*}} : memref<?x8xf8E4M3FN>)
plan.kernel @hidden_quantized(%x: tensor<?x8xf16>, %s: tensor<1xf32>) -> tensor<?x8xf8E4M3FN> {
  %0 = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = tensor> %x tensor_scale(%s : tensor<1xf32>) : tensor<?x8xf16> -> tensor<?x8xf8E4M3FN>
  plan.return %0 : tensor<?x8xf8E4M3FN>
}

// CHECK-LABEL: tile.kernel @quantized_product(
// CHECK: tile.gemm {{.*}} input_scale(%{{.*}} : memref<1xf32>) {{.*}}strategy = #moe.strategy<dequantize>
plan.kernel @quantized_product(%x: tensor<?x8xf8E4M3FN>, %w: tensor<4x8xf8E4M3FN>, %s: tensor<1xf32>, %ws: tensor<4x1xf32>) -> tensor<?x4xf16> {
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf8E4M3FN>, tensor<4x8xf8E4M3FN> input_scale(%s : tensor<1xf32>) weight_scale(%ws : tensor<4x1xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>,
       weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>, strategy = #moe.strategy<dequantize>} -> tensor<?x4xf16>
  plan.return %0 : tensor<?x4xf16>
}
