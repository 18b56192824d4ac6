// RUN: moe-opt %s -o %t.expected
// RUN: moe-compile %models/gpt-oss-20b.json --emit=moe | moe-opt - -o %t.actual
// RUN: diff %t.expected %t.actual

// 32 experts of 2880, the 4 with the largest logits (the router has a bias), weights by softmax over
// these 4; a logit that is not finite counts as -inf then. Gate and up rows alternate; both products
// have a bias; the activation clamps at swiglu_limit = 7. mxfp4: 2880 / 32 = 90 scales for a row.

func.func @"gpt-oss-20b"(
    %hidden_states: tensor<?x2880xbf16> {moe.name = "hidden_states", moe.role = "input"},
    %gate_weight: tensor<32x2880xbf16> {moe.name = "gate.weight", moe.role = "weight"},
    %gate_bias: tensor<32xf32> {moe.name = "gate.bias", moe.role = "weight"},
    %w13: tensor<32x5760x1440xi8> {moe.name = "experts.w13", moe.role = "weight"},
    %w13_scale: tensor<32x5760x90xf8E8M0FNU> {moe.name = "experts.w13_scale", moe.role = "weight"},
    %w13_bias: tensor<32x5760xbf16> {moe.name = "experts.w13_bias", moe.role = "weight"},
    %w2: tensor<32x2880x1440xi8> {moe.name = "experts.w2", moe.role = "weight"},
    %w2_scale: tensor<32x2880x90xf8E8M0FNU> {moe.name = "experts.w2_scale", moe.role = "weight"},
    %w2_bias: tensor<32x2880xbf16> {moe.name = "experts.w2_bias", moe.role = "weight"})
    -> (tensor<?x2880xbf16> {moe.name = "output"}) {
  %output = moe.layer %hidden_states : tensor<?x2880xbf16>
      gate(%gate_weight : tensor<32x2880xbf16>)
      gate_bias(%gate_bias : tensor<32xf32>)
      w13_bias(%w13_bias : tensor<32x5760xbf16>)
      w13_scale(%w13_scale : tensor<32x5760x90xf8E8M0FNU>)
      w2_bias(%w2_bias : tensor<32x2880xbf16>)
      w2_scale(%w2_scale : tensor<32x2880x90xf8E8M0FNU>)
      experts(%w13, %w2 : tensor<32x5760x1440xi8>, tensor<32x2880x1440xi8>)
      activation {
      ^bb0(%gate: f32, %up: f32):
        %limit = moe.param "limit"
        %g = arith.minimumf %gate, %limit : f32
        %below = arith.minimumf %up, %limit : f32
        %minus_limit = arith.negf %limit : f32
        %u = arith.maximumf %below, %minus_limit : f32
        %alpha = moe.param "alpha"
        %scaled = arith.mulf %alpha, %g : f32
        %one = arith.constant 1.0 : f32
        %negated = arith.negf %scaled : f32
        %exp = math.exp %negated : f32
        %sum = arith.addf %one, %exp : f32
        %sigmoid = arith.divf %one, %sum : f32
        %activated = arith.mulf %g, %sigmoid : f32
        %one_more = arith.constant 1.0 : f32
        %shifted = arith.addf %u, %one_more : f32
        %product = arith.mulf %shifted, %activated : f32
        moe.yield %product : f32
      }
      {activation_params = {alpha = 1.702 : f32, limit = 7.0 : f32},
       layout = #moe.weight_layout<order = interleaved>,
       routing = #moe.routing<top_k = 4, softmax = selected, nonfinite = neg_inf>,
       weight_quant = #moe.quant<storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs>}
      -> tensor<?x2880xbf16>
  return %output : tensor<?x2880xbf16>
}
