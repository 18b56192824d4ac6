// RUN: moe-opt %s --split-input-file --convert-moe-to-plan | FileCheck %s

// A router, one kernel for route and permute, and the shared expert on a separate stream that starts at once and is
// joined before the sum.
// CHECK-NOT: func.func
// CHECK: plan.program @layer max_tokens 64 {
// CHECK-DAG: %[[X:.*]] = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x32xbf16>
// CHECK-DAG: %[[N:.*]] = plan.tensor input "num_valid_tokens" : memref<1xi32>
// CHECK-DAG: %[[G:.*]] = plan.tensor weight "gate.weight" : memref<4x32xbf16>
// CHECK-DAG: %[[W13:.*]] = plan.tensor weight "experts.w13" : memref<4x16x32xbf16>
// CHECK-DAG: %[[W2:.*]] = plan.tensor weight "experts.w2" : memref<4x32x16xbf16>
// CHECK-DAG: %[[S13:.*]] = plan.tensor weight "shared_experts.w13" : memref<8x32xbf16>
// CHECK-DAG: %[[S2:.*]] = plan.tensor weight "shared_experts.w2" : memref<32x8xbf16>
// CHECK-DAG: %[[OUT:.*]] = plan.tensor output "output" rows <"tokens"> : memref<?x32xbf16>
// CHECK-DAG: %[[L:.*]] = plan.buffer "router_logits" rows <"tokens"> : memref<?x4xf32>
// CHECK-DAG: %[[IDS:.*]] = plan.buffer "topk_ids" rows <"tokens"> : memref<?x2xi32>
// CHECK-DAG: %[[WT:.*]] = plan.buffer "topk_weights" rows <"tokens"> : memref<?x2xf32>
// CHECK-DAG: %[[OFF:.*]] = plan.buffer "expert_offsets" : memref<5xi32>
// CHECK-DAG: %[[POS:.*]] = plan.buffer "position" rows <"tokens"> : memref<?x2xi32>
// CHECK-DAG: %[[SRC:.*]] = plan.buffer "source" rows <"tokens * 2"> : memref<?xi32>
// CHECK-DAG: %[[RW:.*]] = plan.buffer "row_weight" rows <"tokens * 2"> : memref<?x1xf32>
// CHECK-DAG: %[[H:.*]] = plan.buffer "experts_hidden" rows <"tokens * 2"> : memref<?x16xbf16>
// CHECK-DAG: %[[O:.*]] = plan.buffer "experts_out" rows <"tokens * 2"> : memref<?x32xbf16>
// CHECK-DAG: %[[SH:.*]] = plan.buffer "shared_hidden" rows <"tokens"> : memref<?x8xbf16>
// CHECK-DAG: %[[S:.*]] = plan.buffer "shared_out" rows <"tokens"> : memref<?x32xbf16>
// CHECK: plan.prepare {
// CHECK-NEXT: }
// CHECK-NEXT: plan.variant tokens 0 to 64 {
// CHECK-NEXT: plan.record event 0 stream 0
// CHECK-NEXT: plan.wait event 0 stream 1
// CHECK-NEXT: plan.launch @shared_hidden stream 1 ins(%[[X]], %[[S13]] : {{.*}}) outs(%[[SH]] : memref<?x8xbf16>)
// CHECK-NEXT: plan.launch @shared_out stream 1 ins(%[[SH]], %[[S2]] : {{.*}}) outs(%[[S]] : memref<?x32xbf16>)
// CHECK-NEXT: plan.record event 1 stream 1
// CHECK-NEXT: plan.launch @router_logits ins(%[[X]], %[[G]] : {{.*}}) outs(%[[L]] : memref<?x4xf32>)
// CHECK-NEXT: plan.launch @route ins(%[[L]], %[[N]] : {{.*}}) outs(%[[IDS]], %[[WT]], %[[OFF]], %[[POS]], %[[SRC]], %[[RW]] : {{.*}})
// CHECK-NEXT: plan.launch @experts_hidden ins(%[[X]], %[[W13]], %[[OFF]], %[[SRC]] : {{.*}}) outs(%[[H]] : memref<?x16xbf16>)
// CHECK-NEXT: plan.launch @experts_out ins(%[[H]], %[[W2]], %[[OFF]], %[[RW]] : {{.*}}) outs(%[[O]] : memref<?x32xbf16>)
// CHECK-NEXT: plan.wait event 1 stream 0
// CHECK-NEXT: plan.launch @output ins(%[[O]], %[[POS]], %[[S]], %[[N]] : {{.*}}) outs(%[[OUT]] : memref<?x32xbf16>)
// CHECK-NEXT: }
// CHECK-NEXT: }
// CHECK: plan.kernel @router_logits(%{{.*}}: tensor<?x32xbf16>, %{{.*}}: tensor<4x32xbf16>) -> tensor<?x4xf32>
// CHECK: plan.kernel @route(%[[KL:.*]]: tensor<?x4xf32>, %[[KN:.*]]: tensor<1xi32>) -> (tensor<?x2xi32>, tensor<?x2xf32>, tensor<5xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>)
// CHECK: %[[KIDS:.*]], %[[KWT:.*]] = moe.route %[[KL]]
// CHECK: ^bb0(%[[LG:.*]]: f32):
// CHECK-NEXT: %[[TWO:.*]] = arith.constant 2.000000e+00 : f32
// CHECK-NEXT: %[[MUL:.*]] = arith.mulf %[[LG]], %[[TWO]] : f32
// CHECK-NEXT: moe.yield %[[MUL]] : f32
// CHECK: moe.permute %[[KIDS]], %[[KWT]]
// CHECK-NEXT: plan.return %[[KIDS]], %[[KWT]], %{{.*}}
// CHECK: plan.kernel @experts_hidden
// CHECK: plan.kernel @experts_out
// CHECK: plan.kernel @shared_hidden
// CHECK: plan.kernel @shared_out
// CHECK: plan.kernel @output
// CHECK: %[[U:.*]] = moe.unpermute
// CHECK-NEXT: plan.return %[[U]]
func.func @layer(
    %x: tensor<?x32xbf16> {moe.name = "hidden_states", moe.role = "input"},
    %n: tensor<1xi32> {moe.name = "num_valid_tokens", moe.role = "input"},
    %g: tensor<4x32xbf16> {moe.name = "gate.weight", moe.role = "weight"},
    %w13: tensor<4x16x32xbf16> {moe.name = "experts.w13", moe.role = "weight"},
    %w2: tensor<4x32x16xbf16> {moe.name = "experts.w2", moe.role = "weight"},
    %s13: tensor<8x32xbf16> {moe.name = "shared_experts.w13", moe.role = "weight"},
    %s2: tensor<32x8xbf16> {moe.name = "shared_experts.w2", moe.role = "weight"})
    -> (tensor<?x32xbf16> {moe.name = "output"}) attributes {moe.max_tokens = 64 : i64} {
  %l = moe.grouped_matmul %x, %g : tensor<?x32xbf16>, tensor<4x32xbf16> {moe.name = ["router_logits"]} -> tensor<?x4xf32>
  %ids, %wt = moe.route %l : tensor<?x4xf32> num_valid_tokens(%n : tensor<1xi32>) <top_k = 2> score {
  ^bb0(%a: f32):
    %two = arith.constant 2.0 : f32
    %b = arith.mulf %a, %two : f32
    moe.yield %b : f32
  } {moe.name = ["topk_ids", "topk_weights"]} -> tensor<?x2xi32>, tensor<?x2xf32>
  %off, %pos, %src, %rw = moe.permute %ids, %wt num_valid_tokens(%n : tensor<1xi32>)
    {moe.name = ["expert_offsets", "position", "source", "row_weight"], num_experts = 4 : i64}
    : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<5xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  %h = moe.grouped_matmul %x, %w13 : tensor<?x32xbf16>, tensor<4x16x32xbf16> offsets(%off : tensor<5xi32>) source(%src : tensor<?xi32>)
    {moe.name = ["experts_hidden"]} -> tensor<?x16xbf16>
  %o = moe.grouped_matmul %h, %w2 : tensor<?x16xbf16>, tensor<4x32x16xbf16> offsets(%off : tensor<5xi32>) rows(%rw : tensor<?x1xf32>) epilogue {
  ^bb0(%acc: f32, %w: f32):
    %y = arith.mulf %acc, %w : f32
    moe.yield %y : f32
  } {moe.name = ["experts_out"]} -> tensor<?x32xbf16>
  %sh = moe.grouped_matmul %x, %s13 : tensor<?x32xbf16>, tensor<8x32xbf16> {moe.name = ["shared_hidden"]} -> tensor<?x8xbf16>
  %s = moe.grouped_matmul %sh, %s2 : tensor<?x8xbf16>, tensor<32x8xbf16> {moe.name = ["shared_out"]} -> tensor<?x32xbf16>
  %out = moe.unpermute %o, %pos : tensor<?x32xbf16>, tensor<?x2xi32> addend(%s : tensor<?x32xbf16>) num_valid_tokens(%n : tensor<1xi32>) {moe.name = ["output"]} -> tensor<?x32xbf16>
  return %out : tensor<?x32xbf16>
}

// -----

// Entry with ids: permute is a separate kernel, and nothing forks. A program without a token limit takes the default.
// Ops without names get names.
// CHECK: plan.program @ids max_tokens 16384 {
// CHECK: plan.buffer "permute" : memref<3xi32>
// CHECK: plan.buffer "permute_1" rows <"tokens"> : memref<?x3xi32>
// CHECK: plan.buffer "permute_2" rows <"tokens * 3"> : memref<?xi32>
// CHECK: plan.buffer "grouped_matmul" rows <"tokens * 3"> : memref<?x16xf32>
// CHECK: plan.variant tokens 0 to 16384 {
// CHECK-NEXT: plan.launch @permute ins
// CHECK-NEXT: plan.launch @grouped_matmul ins
// CHECK-NEXT: plan.launch @grouped_matmul_0 ins
// CHECK-NEXT: plan.launch @unpermute ins
// CHECK-NEXT: }
func.func @ids(
    %x: tensor<?x8xf32> {moe.name = "hidden_states", moe.role = "input"},
    %ids: tensor<?x3xi32> {moe.name = "topk_ids", moe.role = "input"},
    %wt: tensor<?x3xf32> {moe.name = "topk_weights", moe.role = "input"},
    %w13: tensor<2x16x8xf32> {moe.name = "experts.w13", moe.role = "weight"},
    %w2: tensor<2x8x16xf32> {moe.name = "experts.w2", moe.role = "weight"})
    -> (tensor<?x8xf32> {moe.name = "output"}) {
  %off, %pos, %src, %rw = moe.permute %ids, %wt {num_experts = 2 : i64}
    : tensor<?x3xi32>, tensor<?x3xf32> -> tensor<3xi32>, tensor<?x3xi32>, tensor<?xi32>, tensor<?x1xf32>
  %h = moe.grouped_matmul %x, %w13 : tensor<?x8xf32>, tensor<2x16x8xf32> offsets(%off : tensor<3xi32>) source(%src : tensor<?xi32>) -> tensor<?x16xf32>
  %o = moe.grouped_matmul %h, %w2 : tensor<?x16xf32>, tensor<2x8x16xf32> offsets(%off : tensor<3xi32>) -> tensor<?x8xf32>
  %out = moe.unpermute %o, %pos : tensor<?x8xf32>, tensor<?x3xi32> -> tensor<?x8xf32>
  return %out : tensor<?x8xf32>
}

// -----

// With a latent path the shared expert is an elementwise operand of the last gemm. Values with other readers too (here
// latent_in, read by the experts) stay on the main stream, and the fork comes behind them.
// CHECK: plan.program @late_fork
// CHECK: plan.variant
// CHECK-NEXT: plan.launch @latent_in ins
// CHECK-NEXT: plan.record event 0 stream 0
// CHECK-NEXT: plan.wait event 0 stream 1
// CHECK-NEXT: plan.launch @shared_out stream 1 ins
// CHECK-NEXT: plan.record event 1 stream 1
// CHECK-NEXT: plan.launch @permute ins
// CHECK-NEXT: plan.launch @experts_out ins
// CHECK-NEXT: plan.launch @routed_out ins
// CHECK-NEXT: plan.wait event 1 stream 0
// CHECK-NEXT: plan.launch @output_0 ins
// CHECK-NEXT: }
// Names that are taken by a program or another kernel.
// CHECK: plan.program @output
// CHECK: plan.launch @output_1
// CHECK: plan.kernel @output_1
func.func @late_fork(
    %x: tensor<?x16xf32> {moe.name = "hidden_states", moe.role = "input"},
    %ids: tensor<?x2xi32> {moe.name = "topk_ids", moe.role = "input"},
    %wt: tensor<?x2xf32> {moe.name = "topk_weights", moe.role = "input"},
    %down: tensor<8x16xf32> {moe.name = "latent.down", moe.role = "weight"},
    %up: tensor<16x8xf32> {moe.name = "latent.up", moe.role = "weight"},
    %sw: tensor<16x8xf32> {moe.name = "shared", moe.role = "weight"},
    %w: tensor<2x8x8xf32> {moe.name = "experts", moe.role = "weight"})
    -> (tensor<?x16xf32> {moe.name = "output"}) {
  %lx = moe.grouped_matmul %x, %down : tensor<?x16xf32>, tensor<8x16xf32> {moe.name = ["latent_in"]} -> tensor<?x8xf32>
  %off, %pos, %src, %rw = moe.permute %ids, %wt {num_experts = 2 : i64}
    : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<3xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  %o = moe.grouped_matmul %lx, %w : tensor<?x8xf32>, tensor<2x8x8xf32> offsets(%off : tensor<3xi32>) source(%src : tensor<?xi32>) {moe.name = ["experts_out"]} -> tensor<?x8xf32>
  %r = moe.unpermute %o, %pos : tensor<?x8xf32>, tensor<?x2xi32> {moe.name = ["routed_out"]} -> tensor<?x8xf32>
  %s = moe.grouped_matmul %lx, %sw : tensor<?x8xf32>, tensor<16x8xf32> {moe.name = ["shared_out"]} -> tensor<?x16xf32>
  %out = moe.grouped_matmul %r, %up : tensor<?x8xf32>, tensor<16x8xf32> elementwise(%s : tensor<?x16xf32>) epilogue {
  ^bb0(%a: f32, %b: f32):
    %c = arith.addf %a, %b : f32
    moe.yield %c : f32
  } {moe.name = ["output"]} -> tensor<?x16xf32>
  return %out : tensor<?x16xf32>
}

func.func @output(
    %x: tensor<?x16xf32> {moe.name = "hidden_states", moe.role = "input"},
    %w: tensor<?x1xf32> {moe.name = "weights", moe.role = "input"}) -> (tensor<?x16xf32> {moe.name = "output"}) {
  %0 = moe.row_map %x : tensor<?x16xf32> rows(%w : tensor<?x1xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.mulf %a, %b : f32
    moe.yield %c : f32
  } {moe.name = ["output"]} -> tensor<?x16xf32>
  return %0 : tensor<?x16xf32>
}

// -----

// An addend without concurrent work stays on the main stream.
// CHECK: plan.program @routed_addend
// CHECK-NOT: stream 1
// CHECK: plan.kernel
func.func @routed_addend(
    %x: tensor<?x8xf32> {moe.name = "hidden_states", moe.role = "input"},
    %ids: tensor<?x1xi32> {moe.name = "topk_ids", moe.role = "input"},
    %wt: tensor<?x1xf32> {moe.name = "topk_weights", moe.role = "input"},
    %w: tensor<2x8x8xf32> {moe.name = "experts", moe.role = "weight"})
    -> (tensor<?x8xf32> {moe.name = "output"}) {
  %off, %pos, %src, %rw = moe.permute %ids, %wt {num_experts = 2 : i64}
    : tensor<?x1xi32>, tensor<?x1xf32> -> tensor<3xi32>, tensor<?x1xi32>, tensor<?xi32>, tensor<?x1xf32>
  %o = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<2x8x8xf32> offsets(%off : tensor<3xi32>) source(%src : tensor<?xi32>) -> tensor<?x8xf32>
  %first = moe.unpermute %o, %pos : tensor<?x8xf32>, tensor<?x1xi32> -> tensor<?x8xf32>
  %out = moe.unpermute %o, %pos : tensor<?x8xf32>, tensor<?x1xi32> addend(%first : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %out : tensor<?x8xf32>
}

// -----

// Functions without moe ops stay.
// CHECK: func.func @other
func.func @other(%x: f32) -> f32 {
  return %x : f32
}

// -----

// Weights that may have gaps between their rows.
// CHECK-LABEL: plan.program @strided
// CHECK: plan.tensor weight "w" : memref<8x8xf32, strided<[?, 1]>>
// CHECK: plan.launch @experts_hidden ins(%{{.*}}, %{{.*}} : memref<?x8xf32>, memref<8x8xf32, strided<[?, 1]>>)
// CHECK: plan.kernel @experts_hidden(%{{.*}}: tensor<?x8xf32>, %{{.*}}: tensor<8x8xf32> {moe.strided})
func.func @strided(%x: tensor<?x8xf32> {moe.name = "x", moe.role = "input"},
    %w: tensor<8x8xf32> {moe.name = "w", moe.role = "weight", moe.strided}) -> (tensor<?x8xf32> {moe.name = "output"}) {
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> {moe.name = ["experts_hidden"]} -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}
