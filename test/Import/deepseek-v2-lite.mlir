// RUN: moe-opt %s -o %t.expected
// RUN: moe-compile %models/deepseek-v2-lite.json --emit=moe | moe-opt - -o %t.actual
// RUN: diff %t.expected %t.actual

// 64 experts of 1408, the 6 most probable by softmax (greedy: no groups), not renormalized, scale 1;
// 2 shared experts of 1408 as one of 2816.

func.func @"deepseek-v2-lite"(
    %hidden_states: tensor<?x2048xbf16> {moe.name = "hidden_states", moe.role = "input"},
    %gate_weight: tensor<64x2048xbf16> {moe.name = "gate.weight", moe.role = "weight"},
    %w13: tensor<64x2816x2048xbf16> {moe.name = "experts.w13", moe.role = "weight"},
    %w2: tensor<64x2048x1408xbf16> {moe.name = "experts.w2", moe.role = "weight"},
    %shared_w13: tensor<5632x2048xbf16> {moe.name = "shared_experts.w13", moe.role = "weight"},
    %shared_w2: tensor<2048x2816xbf16> {moe.name = "shared_experts.w2", moe.role = "weight"})
    -> (tensor<?x2048xbf16> {moe.name = "output"}) {
  %output = moe.layer %hidden_states : tensor<?x2048xbf16>
      gate(%gate_weight : tensor<64x2048xbf16>)
      shared_w13(%shared_w13 : tensor<5632x2048xbf16>)
      shared_w2(%shared_w2 : tensor<2048x2816xbf16>)
      experts(%w13, %w2 : tensor<64x2816x2048xbf16>, tensor<64x2048x1408xbf16>)
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
       routing = #moe.routing<top_k = 6, softmax = all>}
      -> tensor<?x2048xbf16>
  return %output : tensor<?x2048xbf16>
}
