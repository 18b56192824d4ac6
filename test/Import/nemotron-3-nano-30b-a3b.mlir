// RUN: moe-opt %s -o %t.expected
// RUN: moe-compile %models/nemotron-3-nano-30b-a3b.json --emit=moe | moe-opt - -o %t.actual
// RUN: diff %t.expected %t.actual

// 128 experts of 1856 without a gate (relu squared between two products), the 6 best by sigmoid plus
// bias, no groups; weights over their sum + 1e-20, times 2.5. One shared expert of 3712, likewise.

func.func @"nemotron-3-nano-30b-a3b"(
    %hidden_states: tensor<?x2688xbf16> {moe.name = "hidden_states", moe.role = "input"},
    %gate_weight: tensor<128x2688xbf16> {moe.name = "gate.weight", moe.role = "weight"},
    %selection_bias: tensor<128xf32> {moe.name = "gate.selection_bias", moe.role = "weight"},
    %w13: tensor<128x1856x2688xbf16> {moe.name = "experts.w13", moe.role = "weight"},
    %w2: tensor<128x2688x1856xbf16> {moe.name = "experts.w2", moe.role = "weight"},
    %shared_w13: tensor<3712x2688xbf16> {moe.name = "shared_experts.w13", moe.role = "weight"},
    %shared_w2: tensor<2688x3712xbf16> {moe.name = "shared_experts.w2", moe.role = "weight"})
    -> (tensor<?x2688xbf16> {moe.name = "output"}) {
  %output = moe.layer %hidden_states : tensor<?x2688xbf16>
      gate(%gate_weight : tensor<128x2688xbf16>)
      selection_bias(%selection_bias : tensor<128xf32>)
      shared_w13(%shared_w13 : tensor<3712x2688xbf16>)
      shared_w2(%shared_w2 : tensor<2688x3712xbf16>)
      experts(%w13, %w2 : tensor<128x1856x2688xbf16>, tensor<128x2688x1856xbf16>)
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
      ^bb0(%x: f32):
        %zero = arith.constant 0.0 : f32
        %relu = arith.maximumf %x, %zero : f32
        %square = arith.mulf %relu, %relu : f32
        moe.yield %square : f32
      }
      {routing = #moe.routing<top_k = 6, renormalize = true, renormalize_epsilon = 1.0e-20 : f32, scale = 2.5 : f32>}
      -> tensor<?x2688xbf16>
  return %output : tensor<?x2688xbf16>
}
