// RUN: moe-opt %s -o %t.expected
// RUN: moe-compile %models/ernie-4.5-21b-a3b.json --emit=moe | moe-opt - -o %t.actual
// RUN: diff %t.expected %t.actual

// 64 experts of 1536, the 6 best by softmax plus bias; weights without the bias, over their sum + 1e-12.
// 2 shared experts as one of 3072.

func.func @"ernie-4.5-21b-a3b"(
    %hidden_states: tensor<?x2560xbf16> {moe.name = "hidden_states", moe.role = "input"},
    %gate_weight: tensor<64x2560xbf16> {moe.name = "gate.weight", moe.role = "weight"},
    %selection_bias: tensor<64xf32> {moe.name = "gate.selection_bias", moe.role = "weight"},
    %w13: tensor<64x3072x2560xbf16> {moe.name = "experts.w13", moe.role = "weight"},
    %w2: tensor<64x2560x1536xbf16> {moe.name = "experts.w2", moe.role = "weight"},
    %shared_w13: tensor<6144x2560xbf16> {moe.name = "shared_experts.w13", moe.role = "weight"},
    %shared_w2: tensor<2560x3072xbf16> {moe.name = "shared_experts.w2", moe.role = "weight"})
    -> (tensor<?x2560xbf16> {moe.name = "output"}) {
  %output = moe.layer %hidden_states : tensor<?x2560xbf16>
      gate(%gate_weight : tensor<64x2560xbf16>)
      selection_bias(%selection_bias : tensor<64xf32>)
      shared_w13(%shared_w13 : tensor<6144x2560xbf16>)
      shared_w2(%shared_w2 : tensor<2560x3072xbf16>)
      experts(%w13, %w2 : tensor<64x3072x2560xbf16>, tensor<64x2560x1536xbf16>)
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
       routing = #moe.routing<top_k = 6, softmax = all, renormalize = true, renormalize_epsilon = 1.0e-12 : f32>}
      -> tensor<?x2560xbf16>
  return %output : tensor<?x2560xbf16>
}
