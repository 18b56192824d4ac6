// RUN: moe-opt %s -o %t.expected
// RUN: moe-compile %models/deepseek-v3.json --emit=moe | moe-opt - -o %t.actual
// RUN: diff %t.expected %t.actual

// 256 experts of 2048 in 8 groups of 32; the 4 groups with the largest sum of their two best keys
// (sigmoid plus bias), then the 8 best of those. Weights are the sigmoids without the bias, over their
// sum + 1e-20, times 2.5. One shared expert. Expert weights in e4m3 with a scale for each block of
// 128 x 128: 4096 / 128 = 32, 7168 / 128 = 56, 2048 / 128 = 16.

func.func @"deepseek-v3"(
    %hidden_states: tensor<?x7168xbf16> {moe.name = "hidden_states", moe.role = "input"},
    %gate_weight: tensor<256x7168xbf16> {moe.name = "gate.weight", moe.role = "weight"},
    %selection_bias: tensor<256xf32> {moe.name = "gate.selection_bias", moe.role = "weight"},
    %w13: tensor<256x4096x7168xf8E4M3FN> {moe.name = "experts.w13", moe.role = "weight"},
    %w13_scale: tensor<256x32x56xf32> {moe.name = "experts.w13_scale", moe.role = "weight"},
    %w2: tensor<256x7168x2048xf8E4M3FN> {moe.name = "experts.w2", moe.role = "weight"},
    %w2_scale: tensor<256x56x16xf32> {moe.name = "experts.w2_scale", moe.role = "weight"},
    %shared_w13: tensor<4096x7168xf8E4M3FN> {moe.name = "shared_experts.w13", moe.role = "weight"},
    %shared_w13_scale: tensor<32x56xf32> {moe.name = "shared_experts.w13_scale", moe.role = "weight"},
    %shared_w2: tensor<7168x2048xf8E4M3FN> {moe.name = "shared_experts.w2", moe.role = "weight"},
    %shared_w2_scale: tensor<56x16xf32> {moe.name = "shared_experts.w2_scale", moe.role = "weight"})
    -> (tensor<?x7168xbf16> {moe.name = "output"}) {
  %output = moe.layer %hidden_states : tensor<?x7168xbf16>
      gate(%gate_weight : tensor<256x7168xbf16>)
      selection_bias(%selection_bias : tensor<256xf32>)
      w13_scale(%w13_scale : tensor<256x32x56xf32>)
      w2_scale(%w2_scale : tensor<256x56x16xf32>)
      shared_w13(%shared_w13 : tensor<4096x7168xf8E4M3FN>)
      shared_w13_scale(%shared_w13_scale : tensor<32x56xf32>)
      shared_w2(%shared_w2 : tensor<7168x2048xf8E4M3FN>)
      shared_w2_scale(%shared_w2_scale : tensor<56x16xf32>)
      experts(%w13, %w2 : tensor<256x4096x7168xf8E4M3FN>, tensor<256x7168x2048xf8E4M3FN>)
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
       routing = #moe.routing<top_k = 8, num_groups = 8, topk_groups = 4, group_score = top2_sum, renormalize = true, renormalize_epsilon = 1.0e-20 : f32, scale = 2.5 : f32, nonfinite = neg_inf>,
       weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>,
       activation_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>}
      -> tensor<?x7168xbf16>
  return %output : tensor<?x7168xbf16>
}
