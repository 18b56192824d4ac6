// RUN: moe-opt %s -o %t.expected
// RUN: moe-compile %models/glm-4.5-air.json --emit=moe | moe-opt - -o %t.actual
// RUN: diff %t.expected %t.actual

// 128 experts of 1408, the 8 best by sigmoid plus bias; n_group = 1 is no grouping. The weights are the
// sigmoids without the bias, over their sum + 1e-20; routed_scaling_factor is 1. One shared expert.

func.func @"glm-4.5-air"(
    %hidden_states: tensor<?x4096xbf16> {moe.name = "hidden_states", moe.role = "input"},
    %gate_weight: tensor<128x4096xbf16> {moe.name = "gate.weight", moe.role = "weight"},
    %selection_bias: tensor<128xf32> {moe.name = "gate.selection_bias", moe.role = "weight"},
    %w13: tensor<128x2816x4096xbf16> {moe.name = "experts.w13", moe.role = "weight"},
    %w2: tensor<128x4096x1408xbf16> {moe.name = "experts.w2", moe.role = "weight"},
    %shared_w13: tensor<2816x4096xbf16> {moe.name = "shared_experts.w13", moe.role = "weight"},
    %shared_w2: tensor<4096x1408xbf16> {moe.name = "shared_experts.w2", moe.role = "weight"})
    -> (tensor<?x4096xbf16> {moe.name = "output"}) {
  %output = moe.layer %hidden_states : tensor<?x4096xbf16>
      gate(%gate_weight : tensor<128x4096xbf16>)
      selection_bias(%selection_bias : tensor<128xf32>)
      shared_w13(%shared_w13 : tensor<2816x4096xbf16>)
      shared_w2(%shared_w2 : tensor<4096x1408xbf16>)
      experts(%w13, %w2 : tensor<128x2816x4096xbf16>, tensor<128x4096x1408xbf16>)
      score {
      ^bb0(%logit: f32):
        %bound = arith.constant -64.0 : f32
        %is_far = arith.cmpf ogt, %bound, %logit : f32
        %negated = arith.negf %logit : f32
        %argument = arith.select %is_far, %logit, %negated : f32
        %power = math.exp %argument : f32
        %one = arith.constant 1.0 : f32
        %sum = arith.addf %one, %power : f32
        %near = arith.divf %one, %sum : f32
        %sigmoid = arith.select %is_far, %power, %near : f32
        moe.yield %sigmoid : f32
      }
      activation {
      ^bb0(%gate: f32, %up: f32):
        %one = arith.constant 1.0 : f32
        %negated = arith.negf %gate : f32
        %exp = math.exp %negated : f32
        %sum = arith.addf %one, %exp : f32
        %sigmoid = arith.divf %one, %sum : f32
        %silu = arith.mulf %gate, %sigmoid : f32
        %product = arith.mulf %silu, %up : f32
        moe.yield %product : f32
      }
      {layout = #moe.weight_layout<order = gate_up>,
       routing = #moe.routing<top_k = 8, renormalize = true, renormalize_epsilon = 1.0e-20 : f32>}
      -> tensor<?x4096xbf16>
  return %output : tensor<?x4096xbf16>
}
