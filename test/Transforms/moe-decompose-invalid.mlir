// RUN: moe-opt %s --split-input-file --verify-diagnostics --moe-decompose

// Activations in the layer's type.
func.func @weights_only(%x: tensor<?x256xbf16>, %ids: tensor<?x2xi32>, %wt: tensor<?x2xf32>,
    %w13: tensor<4x256x256xf8E4M3FN>, %s13: tensor<4x2x2xf32>, %w2: tensor<4x256x256xf8E4M3FN>, %s2: tensor<4x2x2xf32>) -> tensor<?x256xbf16> {
  // expected-error @below {{block = [128, 128]>) and no activation_quant, which the level moe describes but nothing lowers yet}}
  %0 = moe.layer %x : tensor<?x256xbf16> ids(%ids : tensor<?x2xi32>) weights(%wt : tensor<?x2xf32>)
      w13_scale(%s13 : tensor<4x2x2xf32>) w2_scale(%s2 : tensor<4x2x2xf32>)
      experts(%w13, %w2 : tensor<4x256x256xf8E4M3FN>, tensor<4x256x256xf8E4M3FN>)
      activation {
      ^bb0(%a: f32):
        moe.yield %a : f32
      } {weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>}
      -> tensor<?x256xbf16>
  return %0 : tensor<?x256xbf16>
}

// -----

// Blocks of another size.
func.func @small_blocks(%x: tensor<?x256xbf16>, %ids: tensor<?x2xi32>, %wt: tensor<?x2xf32>,
    %w13: tensor<4x256x256xf8E4M3FN>, %s13: tensor<4x4x4xf32>, %w2: tensor<4x256x256xf8E4M3FN>, %s2: tensor<4x4x4xf32>) -> tensor<?x256xbf16> {
  // expected-error @below {{granularity = group, block = [1, 128], dynamic = true>, which the level moe describes but nothing lowers yet; lowered are f8E4M3FN weights in blocks of [128, 128] with dynamic f8E4M3FN activations in groups of [1, 128], each with f32 scales: write that, or give weights of the layer's type and drop 'weight_quant' and the scales}}
  %0 = moe.layer %x : tensor<?x256xbf16> ids(%ids : tensor<?x2xi32>) weights(%wt : tensor<?x2xf32>)
      w13_scale(%s13 : tensor<4x4x4xf32>) w2_scale(%s2 : tensor<4x4x4xf32>)
      experts(%w13, %w2 : tensor<4x256x256xf8E4M3FN>, tensor<4x256x256xf8E4M3FN>)
      activation {
      ^bb0(%a: f32):
        moe.yield %a : f32
      } {weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [64, 64]>,
         activation_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>}
      -> tensor<?x256xbf16>
  return %0 : tensor<?x256xbf16>
}

// -----

func.func @two_bounds(%x: tensor<?x32xf32>, %ids: tensor<?x2xi32>, %wt: tensor<?x2xf32>,
    %w13: tensor<3x16x32xf32>, %w2: tensor<3x32x16xf32>) -> tensor<?x32xf32> {
  %0 = moe.layer %x : tensor<?x32xf32> ids(%ids : tensor<?x2xi32>) weights(%wt : tensor<?x2xf32>)
      experts(%w13, %w2 : tensor<3x16x32xf32>, tensor<3x32x16xf32>)
      activation {
      ^bb0(%a: f32):
        moe.yield %a : f32
      } {max_tokens = 64 : i64} -> tensor<?x32xf32>
  // expected-error @below {{has max_tokens = 128, but function @two_bounds is bounded by 64 tokens; give all its layers one bound}}
  %1 = moe.layer %0 : tensor<?x32xf32> ids(%ids : tensor<?x2xi32>) weights(%wt : tensor<?x2xf32>)
      experts(%w13, %w2 : tensor<3x16x32xf32>, tensor<3x32x16xf32>)
      activation {
      ^bb0(%a: f32):
        moe.yield %a : f32
      } {max_tokens = 128 : i64} -> tensor<?x32xf32>
  return %1 : tensor<?x32xf32>
}
