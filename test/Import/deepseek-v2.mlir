// RUN: moe-opt %s -o %t.expected
// RUN: moe-compile %models/deepseek-v2.json --emit=moe | moe-opt - -o %t.actual
// RUN: diff %t.expected %t.actual

// 160 experts of 1536 in 8 groups of 20; the 3 groups with the best expert (group_limited_greedy: no
// bias, so the key of a group is its maximum), then the 6 best of those, by softmax, not renormalized,
// times 16. With groups a score that is not finite counts as -inf. 2 shared experts as one of 3072.

func.func @"deepseek-v2"(
    %hidden_states: tensor<?x5120xbf16> {moe.name = "hidden_states", moe.role = "input"},
    %gate_weight: tensor<160x5120xbf16> {moe.name = "gate.weight", moe.role = "weight"},
    %w13: tensor<160x3072x5120xbf16> {moe.name = "experts.w13", moe.role = "weight"},
    %w2: tensor<160x5120x1536xbf16> {moe.name = "experts.w2", moe.role = "weight"},
    %shared_w13: tensor<6144x5120xbf16> {moe.name = "shared_experts.w13", moe.role = "weight"},
    %shared_w2: tensor<5120x3072xbf16> {moe.name = "shared_experts.w2", moe.role = "weight"})
    -> (tensor<?x5120xbf16> {moe.name = "output"}) {
  %output = moe.layer %hidden_states : tensor<?x5120xbf16>
      gate(%gate_weight : tensor<160x5120xbf16>)
      shared_w13(%shared_w13 : tensor<6144x5120xbf16>)
      shared_w2(%shared_w2 : tensor<5120x3072xbf16>)
      experts(%w13, %w2 : tensor<160x3072x5120xbf16>, tensor<160x5120x1536xbf16>)
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
       routing = #moe.routing<top_k = 6, num_groups = 8, topk_groups = 3, softmax = all, scale = 16.0 : f32, nonfinite = neg_inf>}
      -> tensor<?x5120xbf16>
  return %output : tensor<?x5120xbf16>
}
