// RUN: moe-opt %s -split-input-file -verify-diagnostics

func.func @layer(%x: tensor<?x16xf32>, %logits: tensor<?x4xf32>, %bias: tensor<4xf32>, %mask: tensor<?xi8>,
    %mask2: tensor<?x2xi8>, %physical: tensor<4x3xi32>, %counts: tensor<4xi32>, %ids: tensor<?x2xi32>,
    %weights: tensor<?x2xf32>, %input_ids: tensor<?xi32>, %table: tensor<9x2xi32>, %w13: tensor<4x12x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'is_padding' must be of shape tokens}}
  %y = moe.layer %x : tensor<?x16xf32> logits(%logits : tensor<?x4xf32>) is_padding(%mask2 : tensor<?x2xi8>)
      experts(%w13, %w2 : tensor<4x12x16xf32>, tensor<4x16x12xf32>) activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%x: tensor<?x16xf32>, %logits: tensor<?x4xf32>, %bias: tensor<4xf32>, %mask: tensor<?xi8>,
    %mask2: tensor<?x2xi8>, %physical: tensor<4x3xi32>, %counts: tensor<4xi32>, %ids: tensor<?x2xi32>,
    %weights: tensor<?x2xf32>, %input_ids: tensor<?xi32>, %table: tensor<9x2xi32>, %w13: tensor<4x12x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{takes 'physical_ids' and 'replica_counts' together}}
  %y = moe.layer %x : tensor<?x16xf32> logits(%logits : tensor<?x4xf32>) physical_ids(%physical : tensor<4x3xi32>)
      experts(%w13, %w2 : tensor<4x12x16xf32>, tensor<4x16x12xf32>) activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%x: tensor<?x16xf32>, %logits: tensor<?x4xf32>, %bias: tensor<4xf32>, %mask: tensor<?xi8>,
    %mask2: tensor<?x2xi8>, %physical: tensor<4x3xi32>, %counts: tensor<4xi32>, %ids: tensor<?x2xi32>,
    %weights: tensor<?x2xf32>, %input_ids: tensor<?xi32>, %table: tensor<9x2xi32>, %w13: tensor<4x12x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'replica_counts' must be of shape num_experts = 4, not 4x3}}
  %y = moe.layer %x : tensor<?x16xf32> logits(%logits : tensor<?x4xf32>) physical_ids(%physical : tensor<4x3xi32>) replica_counts(%physical : tensor<4x3xi32>)
      experts(%w13, %w2 : tensor<4x12x16xf32>, tensor<4x16x12xf32>) activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%x: tensor<?x16xf32>, %logits: tensor<?x4xf32>, %bias: tensor<4xf32>, %mask: tensor<?xi8>,
    %mask2: tensor<?x2xi8>, %physical: tensor<4x3xi32>, %counts: tensor<4xi32>, %ids: tensor<?x2xi32>,
    %weights: tensor<?x2xf32>, %input_ids: tensor<?xi32>, %table: tensor<9x2xi32>, %w13: tensor<4x12x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{takes 'ids' and has a 'record', which would only return the caller's ids: remove the 'record'}}
  %y, %i, %w = moe.layer %x : tensor<?x16xf32> ids(%ids : tensor<?x2xi32>) weights(%weights : tensor<?x2xf32>)
      experts(%w13, %w2 : tensor<4x12x16xf32>, tensor<4x16x12xf32>) activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {max_tokens = 9 : i64} -> tensor<?x16xf32> record(tensor<?x2xi32>, tensor<?x2xf32>)
  return
}

// -----

func.func @layer(%x: tensor<?x16xf32>, %logits: tensor<?x4xf32>, %bias: tensor<4xf32>, %mask: tensor<?xi8>,
    %mask2: tensor<?x2xi8>, %physical: tensor<4x3xi32>, %counts: tensor<4xi32>, %ids: tensor<?x2xi32>,
    %weights: tensor<?x2xf32>, %input_ids: tensor<?xi32>, %table: tensor<9x2xi32>, %w13: tensor<4x12x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'record' must be of shape tokens x top_k = ?x2, not ?x3}}
  %y, %i, %w = moe.layer %x : tensor<?x16xf32> logits(%logits : tensor<?x4xf32>)
      experts(%w13, %w2 : tensor<4x12x16xf32>, tensor<4x16x12xf32>) activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32> record(tensor<?x3xi32>, tensor<?x3xf32>)
  return
}

// -----

func.func @layer(%x: tensor<?x16xf32>, %logits: tensor<?x4xf32>, %bias: tensor<4xf32>, %mask: tensor<?xi8>,
    %mask2: tensor<?x2xi8>, %physical: tensor<4x3xi32>, %counts: tensor<4xi32>, %ids: tensor<?x2xi32>,
    %weights: tensor<?x2xf32>, %input_ids: tensor<?xi32>, %table: tensor<9x2xi32>, %w13: tensor<4x12x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'load' must be of shape (local experts + 1) = 5, not 4}}
  %y, %o = moe.layer %x : tensor<?x16xf32> logits(%logits : tensor<?x4xf32>)
      experts(%w13, %w2 : tensor<4x12x16xf32>, tensor<4x16x12xf32>) activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32> load(tensor<4xi32>)
  return
}

// -----

func.func @layer(%x: tensor<?x16xf32>, %logits: tensor<?x4xf32>, %bias: tensor<4xf32>, %mask: tensor<?xi8>,
    %mask2: tensor<?x2xi8>, %physical: tensor<4x3xi32>, %counts: tensor<4xi32>, %ids: tensor<?x2xi32>,
    %weights: tensor<?x2xf32>, %input_ids: tensor<?xi32>, %table: tensor<9x2xi32>, %w13: tensor<4x12x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{region 'key' must take (score, selection_bias), each f32, but takes 1 argument}}
  %y = moe.layer %x : tensor<?x16xf32> logits(%logits : tensor<?x4xf32>) selection_bias(%bias : tensor<4xf32>)
      experts(%w13, %w2 : tensor<4x12x16xf32>, tensor<4x16x12xf32>) key {
      ^bb0(%s: f32):
        moe.yield %s : f32
      } activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%x: tensor<?x16xf32>, %logits: tensor<?x4xf32>, %bias: tensor<4xf32>, %mask: tensor<?xi8>,
    %mask2: tensor<?x2xi8>, %physical: tensor<4x3xi32>, %counts: tensor<4xi32>, %ids: tensor<?x2xi32>,
    %weights: tensor<?x2xf32>, %input_ids: tensor<?xi32>, %table: tensor<9x2xi32>, %w13: tensor<4x12x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{takes no region 'key' with select 'hash', which compares no keys}}
  %y = moe.layer %x : tensor<?x16xf32> logits(%logits : tensor<?x4xf32>) input_ids(%input_ids : tensor<?xi32>) hash_table(%table : tensor<9x2xi32>)
      experts(%w13, %w2 : tensor<4x12x16xf32>, tensor<4x16x12xf32>) key {
      ^bb0(%s: f32):
        moe.yield %s : f32
      } activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {routing = #moe.routing<top_k = 2, select = hash>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%x: tensor<?x16xf32>, %logits: tensor<?x4xf32>, %bias: tensor<4xf32>, %mask: tensor<?xi8>,
    %mask2: tensor<?x2xi8>, %physical: tensor<4x3xi32>, %counts: tensor<4xi32>, %ids: tensor<?x2xi32>,
    %weights: tensor<?x2xf32>, %input_ids: tensor<?xi32>, %table: tensor<9x2xi32>, %w13: tensor<4x12x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{has the entry 'ids', which replaces routing; remove the region 'key'}}
  %y = moe.layer %x : tensor<?x16xf32> ids(%ids : tensor<?x2xi32>) weights(%weights : tensor<?x2xf32>)
      experts(%w13, %w2 : tensor<4x12x16xf32>, tensor<4x16x12xf32>) key {
      ^bb0(%s: f32):
        moe.yield %s : f32
      } activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {max_tokens = 9 : i64} -> tensor<?x16xf32>
  return
}
