// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @layer(%hidden: tensor<?x16xf32>, %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{needs exactly one of 'gate', 'logits' and 'ids', but has 0}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %logits: tensor<?x4xf32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{needs exactly one of 'gate', 'logits' and 'ids', but has 2}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) logits(%logits : tensor<?x4xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %ids: tensor<?x2xi32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{takes 'ids' together with 'weights', or with 'gate' or 'logits', which weigh them}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      ids(%ids : tensor<?x2xi32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %weights: tensor<?x2xf32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{takes 'ids' and 'weights' together}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) weights(%weights : tensor<?x2xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate_bias: tensor<4xf32>, %logits: tensor<?x4xf32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{takes 'gate_bias' with 'gate' only; router logits include the bias already}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate_bias(%gate_bias : tensor<4xf32>) logits(%logits : tensor<?x4xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'gate' must be of shape num_routed x hidden_size = 5x16, not 4x16}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, num_zero_experts = 1 : i64, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'gate' must be of shape num_routed x hidden_size = 8x16, not 4x16}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, placement = #moe.placement<8, local = [0, 1, 2, 3]>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %gate_bias: tensor<3xf32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'gate_bias' must be of shape num_routed = 4, not 3}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) gate_bias(%gate_bias : tensor<3xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %logits: tensor<?x5xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'logits' must be of shape tokens x num_routed = ?x4, not ?x5}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      logits(%logits : tensor<?x5xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %ids: tensor<2xi32>, %weights: tensor<?x2xf32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'ids' must be of shape tokens x top_k = ?x*, not 2}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      ids(%ids : tensor<2xi32>) weights(%weights : tensor<?x2xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x3xf32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'weights' must be of shape tokens x top_k = ?x2, not ?x3}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      ids(%ids : tensor<?x2xi32>) weights(%weights : tensor<?x3xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %ids: tensor<?x5xi32>, %weights: tensor<?x2xf32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'ids' has 5 experts per token, but there are only 4 experts}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      ids(%ids : tensor<?x5xi32>) weights(%weights : tensor<?x2xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{has the entry 'ids', which replaces routing; remove the attribute 'routing'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      ids(%ids : tensor<?x2xi32>) weights(%weights : tensor<?x2xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>,
    %selection_bias: tensor<4xf32>, %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{has the entry 'ids', which replaces routing; remove the operand 'selection_bias'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      ids(%ids : tensor<?x2xi32>) weights(%weights : tensor<?x2xf32>)
      selection_bias(%selection_bias : tensor<4xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>,
    %expert_scale: tensor<4xf32>, %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{has the entry 'ids', which replaces routing; remove the operand 'expert_scale'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      ids(%ids : tensor<?x2xi32>) weights(%weights : tensor<?x2xf32>)
      expert_scale(%expert_scale : tensor<4xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>,
    %input_ids: tensor<?xi32>, %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{has the entry 'ids', which replaces routing; remove the operand 'input_ids'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      ids(%ids : tensor<?x2xi32>) weights(%weights : tensor<?x2xf32>)
      input_ids(%input_ids : tensor<?xi32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>,
    %hash_table: tensor<8x2xi32>, %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{has the entry 'ids', which replaces routing; remove the operand 'hash_table'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      ids(%ids : tensor<?x2xi32>) weights(%weights : tensor<?x2xf32>)
      hash_table(%hash_table : tensor<8x2xi32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{has the entry 'ids', which replaces routing; remove the region 'score'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      ids(%ids : tensor<?x2xi32>) weights(%weights : tensor<?x2xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      score {
      ^bb0(%v: f32):
        moe.yield %v : f32
      }
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{has the entry 'ids', which replaces routing; remove the region 'weight'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      ids(%ids : tensor<?x2xi32>) weights(%weights : tensor<?x2xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      weight {
      ^bb0(%v: f32):
        moe.yield %v : f32
      }
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'max_tokens' is 0; 1 to 1073741823 is accepted with top_k = 2, so that positions fit 32 bits}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, max_tokens = 0 : i64, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----
// field-bug: vllm#45884

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'max_tokens' is 1073741824; 1 to 1073741823 is accepted with top_k = 2, so that positions fit 32 bits}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, max_tokens = 1073741824 : i64, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'weight_on_input' needs one expert per token, but top_k is 2}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>, weight_on_input} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>,
    %num_valid_tokens: tensor<?xi32>, %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'num_valid_tokens' must be of shape 1, not ?}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) num_valid_tokens(%num_valid_tokens : tensor<?xi32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}
