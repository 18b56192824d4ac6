// RUN: moe-opt %s --moe-to-plan | FileCheck %s --check-prefix=PLAN
// RUN: moe-opt %s --moe-to-plan="keep-all=true" | FileCheck %s --check-prefix=KEEP
// RUN: moe-opt %s --pass-pipeline='builtin.module(canonicalize,cse,moe-to-plan,canonicalize,cse,plan-to-tile{lanes=8},canonicalize,cse)' | FileCheck %s --check-prefix=TILE

// Two layers with shared experts in one function: names stay unique, each has
// its fork, and the second starts when the first is done.
// PLAN: plan.program @stack max_tokens 32 {
// PLAN: plan.buffer "output_1" slot
// PLAN: plan.variant tokens 0 to 32 {
// PLAN-NEXT: plan.record event 0 stream 0
// PLAN-NEXT: plan.wait event 0 stream 1
// PLAN-NEXT: plan.launch @shared_hidden stream 1
// PLAN-NEXT: plan.launch @shared_out stream 1
// PLAN-NEXT: plan.record event 1 stream 1
// PLAN-NEXT: plan.launch @permute ins
// PLAN-NEXT: plan.launch @experts_hidden ins
// PLAN-NEXT: plan.launch @experts_out ins
// PLAN-NEXT: plan.wait event 1 stream 0
// PLAN-NEXT: plan.launch @output ins
// PLAN-NEXT: plan.record event 2 stream 0
// PLAN-NEXT: plan.wait event 2 stream 1
// PLAN-NEXT: plan.launch @shared_hidden_{{[0-9]+}} stream 1
// PLAN-NEXT: plan.launch @shared_out_{{[0-9]+}} stream 1
// PLAN-NEXT: plan.record event 3 stream 1
// PLAN-NEXT: plan.launch @permute_{{[0-9]+}} ins
// PLAN-NEXT: plan.launch @experts_hidden_{{[0-9]+}} ins
// PLAN-NEXT: plan.launch @experts_out_{{[0-9]+}} ins
// PLAN-NEXT: plan.wait event 3 stream 0
// PLAN-NEXT: plan.launch @output_{{[0-9]+}} ins
// PLAN-NEXT: }

// KEEP: plan.buffer "expert_offsets" slot 0
// KEEP: plan.buffer "position" slot 1
// KEEP: plan.buffer "source" slot 2

// TILE-NOT: plan.kernel
// TILE-COUNT-12: tile.kernel @{{.*}} attributes {grid = #plan.expr<
// TILE-NOT: tile.kernel
func.func @stack(
    %x: tensor<?x32xf32> {moe.name = "hidden_states", moe.role = "input"},
    %ids: tensor<?x2xi32> {moe.name = "topk_ids", moe.role = "input"},
    %wt: tensor<?x2xf32> {moe.name = "topk_weights", moe.role = "input"},
    %w13: tensor<3x16x32xf32> {moe.name = "experts.w13", moe.role = "weight"},
    %w2: tensor<3x32x16xf32> {moe.name = "experts.w2", moe.role = "weight"},
    %s13: tensor<8x32xf32> {moe.name = "shared_experts.w13", moe.role = "weight"},
    %s2: tensor<32x8xf32> {moe.name = "shared_experts.w2", moe.role = "weight"})
    -> (tensor<?x32xf32> {moe.name = "output"}) {
  %0 = moe.layer %x : tensor<?x32xf32> ids(%ids : tensor<?x2xi32>) weights(%wt : tensor<?x2xf32>)
      shared_w13(%s13 : tensor<8x32xf32>) shared_w2(%s2 : tensor<32x8xf32>)
      experts(%w13, %w2 : tensor<3x16x32xf32>, tensor<3x32x16xf32>)
      activation {
      ^bb0(%a: f32):
        %two = arith.constant 2.0 : f32
        %b = arith.mulf %a, %two : f32
        moe.yield %b : f32
      } {max_tokens = 32 : i64} -> tensor<?x32xf32>
  %1 = moe.layer %0 : tensor<?x32xf32> ids(%ids : tensor<?x2xi32>) weights(%wt : tensor<?x2xf32>)
      shared_w13(%s13 : tensor<8x32xf32>) shared_w2(%s2 : tensor<32x8xf32>)
      experts(%w13, %w2 : tensor<3x16x32xf32>, tensor<3x32x16xf32>)
      activation {
      ^bb0(%a: f32):
        %two = arith.constant 2.0 : f32
        %b = arith.mulf %a, %two : f32
        moe.yield %b : f32
      } {max_tokens = 32 : i64} -> tensor<?x32xf32>
  return %1 : tensor<?x32xf32>
}
