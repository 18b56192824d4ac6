// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @bytes(%logits: tensor<?x257xf32>) {
  // expected-error@+1 {{has ids of 'i8', which can name 256 experts, and routes to 257; give ids of more bits}}
  %ids, %weights, %recorded = moe.route %logits : tensor<?x257xf32> <top_k = 2>
      -> tensor<?x2xi32>, tensor<?x2xf32> record(tensor<?x2xi8>)
  return
}

// -----

func.func @padding(%logits: tensor<?x256xf32>, %mask: tensor<?xi8>) {
  // expected-error@+1 {{has ids of 'i8', which can name 255 experts beside -1, and routes to 256; give ids of more bits}}
  %ids, %weights, %recorded = moe.route %logits : tensor<?x256xf32> is_padding(%mask : tensor<?xi8>) <top_k = 2>
      -> tensor<?x2xi32>, tensor<?x2xf32> record(tensor<?x2xi8>)
  return
}

// -----

func.func @shape(%logits: tensor<?x8xf32>, %given: tensor<?x3xi16>) {
  // expected-error@+1 {{'given' must be of shape tokens x top_k = ?x2, not ?x3}}
  %ids, %weights = moe.route %logits : tensor<?x8xf32> given(%given : tensor<?x3xi16>) <top_k = 2>
      -> tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @mixer(%logits: tensor<?x8xf32>, %given: tensor<?x2xi32>) {
  // expected-error@+1 {{takes no ids to replay with select 'sparsemixer', whose weights follow from its own selection}}
  %ids, %weights = moe.route %logits : tensor<?x8xf32> given(%given : tensor<?x2xi32>)
      <top_k = 2, select = sparsemixer, nonfinite = neg_inf> -> tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @hash(%logits: tensor<?x8xf32>, %given: tensor<?x2xi32>, %inputs: tensor<?xi32>, %table: tensor<9x2xi32>) {
  // expected-error@+1 {{takes no ids to replay with select 'hash', whose table gives the same ids again}}
  %ids, %weights = moe.route %logits : tensor<?x8xf32> input_ids(%inputs : tensor<?xi32>)
      hash_table(%table : tensor<9x2xi32>) given(%given : tensor<?x2xi32>) <top_k = 2, select = hash>
      -> tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @weights(%x: tensor<?x16xf32>, %ids: tensor<?x2xi16>, %weights: tensor<?x2xf32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{takes 'ids' of i32 beside 'weights'}}
  %y = moe.layer %x : tensor<?x16xf32> ids(%ids : tensor<?x2xi16>) weights(%weights : tensor<?x2xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x16xf32>
  return
}

// -----

func.func @both(%x: tensor<?x16xf32>, %logits: tensor<?x4xf32>, %ids: tensor<?x2xi16>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{takes 'ids' and has a 'record', which would only return the caller's ids: remove the 'record'}}
  %y, %i, %w = moe.layer %x : tensor<?x16xf32> logits(%logits : tensor<?x4xf32>) ids(%ids : tensor<?x2xi16>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>}
      -> tensor<?x16xf32> record(tensor<?x2xi16>, tensor<?x2xf32>)
  return
}
