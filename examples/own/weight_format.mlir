// A layer with a custom weight format: moe-run weight_format.mlir --tokens=16 (docs/howto/add-a-format.md). Elements have
// 4 bits and are packed two to a byte, the first in the low half. A code book gives the value of each index; here bits
// 0 to 2 are a power of two and bit 3 is the sign. Groups of 32 consecutive elements share a scale. Weights are
// dequantized in registers.
!log4 = !moe.code_book<[0.0, 0.015625, 0.03125, 0.0625, 0.125, 0.25, 0.5, 1.0,
                                  -0.0, -0.015625, -0.03125, -0.0625, -0.125, -0.25, -0.5, -1.0]>
func.func @layer(
    %x: tensor<?x64xbf16> {moe.name = "hidden_states", moe.role = "input"},
    %gate: tensor<8x64xbf16> {moe.name = "gate.weight", moe.role = "weight"},
    %w13: tensor<8x192x32xi8> {moe.name = "experts.w13", moe.role = "weight"},
    %w13_scale: tensor<8x192x2xbf16> {moe.name = "experts.w13_scale", moe.role = "weight"},
    %w2: tensor<8x64x48xi8> {moe.name = "experts.w2", moe.role = "weight"},
    %w2_scale: tensor<8x64x3xbf16> {moe.name = "experts.w2_scale", moe.role = "weight"})
    -> (tensor<?x64xbf16> {moe.name = "output"}) {
  %y = moe.layer %x : tensor<?x64xbf16> gate(%gate : tensor<8x64xbf16>)
      w13_scale(%w13_scale : tensor<8x192x2xbf16>) w2_scale(%w2_scale : tensor<8x64x3xbf16>)
      experts(%w13, %w2 : tensor<8x192x32xi8>, tensor<8x64x48xi8>)
      activation {
      ^bb0(%g: f32, %u: f32):
        %one = arith.constant 1.0 : f32
        %less = arith.negf %g : f32
        %exp = math.exp %less : f32
        %sum = arith.addf %one, %exp : f32
        %silu = arith.divf %g, %sum : f32
        %a = arith.mulf %silu, %u : f32
        moe.yield %a : f32
      } {layout = #moe.weight_layout<order = gate_up>, max_tokens = 256 : i64,
         routing = #moe.routing<top_k = 2, softmax = all, renormalize = true>,
         weight_quant = #moe.quant<storage = !log4, scale = bf16, granularity = group, block = [1, 32],
                                   packing = pairs>}
      -> tensor<?x64xbf16>
  return %y : tensor<?x64xbf16>
}
