// RUN: moe-opt %s --split-input-file --verify-diagnostics --moe-decompose

func.func @two_bounds(%x: tensor<?x32xf32>, %ids: tensor<?x2xi32>, %wt: tensor<?x2xf32>,
    %w13: tensor<3x16x32xf32>, %w2: tensor<3x32x16xf32>) -> tensor<?x32xf32> {
  %0 = moe.layer %x : tensor<?x32xf32> ids(%ids : tensor<?x2xi32>) weights(%wt : tensor<?x2xf32>)
      experts(%w13, %w2 : tensor<3x16x32xf32>, tensor<3x32x16xf32>)
      activation {
      ^bb0(%a: f32):
        moe.yield %a : f32
      } {max_tokens = 64 : i64} -> tensor<?x32xf32>
  // expected-error @below {{has max_tokens = 128, but function @two_bounds is bounded by 64 tokens; give all its layers the same bound}}
  %1 = moe.layer %0 : tensor<?x32xf32> ids(%ids : tensor<?x2xi32>) weights(%wt : tensor<?x2xf32>)
      experts(%w13, %w2 : tensor<3x16x32xf32>, tensor<3x32x16xf32>)
      activation {
      ^bb0(%a: f32):
        moe.yield %a : f32
      } {max_tokens = 128 : i64} -> tensor<?x32xf32>
  return %1 : tensor<?x32xf32>
}
