// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{needs 'routing' with the entries 'gate' and 'logits'; write 'routing = #moe.routing<top_k = ...>'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'top_k' is 5, but there are only 4 experts to choose from}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 5>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'num_groups' is 3, which must divide the number of experts, 4}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2, num_groups = 3>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'top_k' is 3, but the selected groups ('topk_groups' = 1) have only 2 experts}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 3, num_groups = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'group_score' is 'top2_sum', but groups have only 1 expert; write 'max' or fewer groups}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2, num_groups = 4, topk_groups = 2, group_score = top2_sum>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{needs 'input_ids' and 'hash_table' with select 'hash'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2, select = hash>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %input_ids: tensor<?xi32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{takes 'input_ids' and 'hash_table' with select 'hash' only}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) input_ids(%input_ids : tensor<?xi32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %selection_bias: tensor<4xf32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{takes no 'selection_bias' with select 'sparsemixer', which compares no keys}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) selection_bias(%selection_bias : tensor<4xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2, select = sparsemixer, nonfinite = neg_inf>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{takes no region 'score' or 'weight' with select 'sparsemixer', which defines the weights itself}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      score {
      ^bb0(%v: f32):
        moe.yield %v : f32
      }
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2, select = sparsemixer, nonfinite = neg_inf>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %selection_bias: tensor<8xf32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'selection_bias' must be of shape num_routed = 4, not 8}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) selection_bias(%selection_bias : tensor<8xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %expert_scale: tensor<4x1xf32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'expert_scale' must be of shape num_routed = 4, not 4x1}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) expert_scale(%expert_scale : tensor<4x1xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %input_ids: tensor<8xi32>,
    %hash_table: tensor<9x2xi32>, %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'input_ids' must be of shape tokens = ?, not 8 (the number of tokens is known only at run time: write '?')}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) input_ids(%input_ids : tensor<8xi32>)
      hash_table(%hash_table : tensor<9x2xi32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2, select = hash>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %input_ids: tensor<?xi32>,
    %hash_table: tensor<9x3xi32>, %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'hash_table' must be of shape vocabulary x top_k = *x2, not 9x3}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) input_ids(%input_ids : tensor<?xi32>)
      hash_table(%hash_table : tensor<9x3xi32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2, select = hash>} -> tensor<?x16xf32>
  return
}
