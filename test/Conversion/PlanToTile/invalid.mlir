// RUN: moe-opt %s --split-input-file --verify-diagnostics --convert-plan-to-tile

plan.kernel @hidden_value(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>) -> tensor<?x8xf32> {
  // expected-error @below {{'moe.grouped_matmul' op has a result that the kernel does not return; return it, since a phase writes memory that the plan provides}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  %1 = moe.grouped_matmul %0, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  plan.return %1 : tensor<?x8xf32>
}

// -----

plan.kernel @argument(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // expected-error @below {{returns an argument of the kernel; a result must be written by a phase}}
  plan.return %x : tensor<?x8xf32>
}

// -----

plan.kernel @twice(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  // expected-error @below {{returns one value twice; return each value once}}
  plan.return %0, %0 : tensor<?x8xf32>, tensor<?x8xf32>
}

// -----

plan.kernel @layer(%x: tensor<?x8xf32>, %ids: tensor<?x1xi32>, %wt: tensor<?x1xf32>, %w13: tensor<2x4x8xf32>, %w2: tensor<2x8x4xf32>) -> tensor<?x8xf32> {
  // expected-error @below {{'moe.layer' op has no phase at level tile; a plan.kernel holds only moe.route}}
  %0 = moe.layer %x : tensor<?x8xf32> ids(%ids : tensor<?x1xi32>) weights(%wt : tensor<?x1xf32>)
      experts(%w13, %w2 : tensor<2x4x8xf32>, tensor<2x8x4xf32>)
      activation {
      ^bb0(%a: f32):
        moe.yield %a : f32
      } -> tensor<?x8xf32>
  plan.return %0 : tensor<?x8xf32>
}
