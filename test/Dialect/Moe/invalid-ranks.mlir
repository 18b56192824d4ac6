// RUN: moe-opt %s -split-input-file -verify-diagnostics

func.func @dispatch(%x: tensor<?x8xf32>, %ids: tensor<?x2xi32>) {
  // expected-error@+1 {{has 2 inputs and 1 results; give one result for each input, at least one}}
  %0 = moe.dispatch <dp> %x, %ids : tensor<?x8xf32>, tensor<?x2xi32> -> tensor<?x8xf32>
  return
}

// -----

func.func @dispatch(%x: tensor<?x8xf32>) {
  // expected-error@+1 {{input 0 is 'tensor<?x8xf32>' and its result 'tensor<?x16xf32>'; give them one type, which may differ only in a static number of rows}}
  %0 = moe.dispatch <dp> %x : tensor<?x8xf32> -> tensor<?x16xf32>
  return
}

// -----

func.func @combine(%x: tensor<?x8xf32>) {
  // expected-error@+1 {{over 'dp' always leaves each rank its own rows; remove 'own_rows'}}
  %0 = moe.combine <dp> own_rows %x : tensor<?x8xf32>
  return
}

// -----

func.func @place(%ids: tensor<?x2xi32>) {
  // expected-error@+1 {{changes nothing; give a 'table', 'num_valid_tokens', 'is_padding' or 'zero_experts'}}
  %0 = moe.place_ids %ids : tensor<?x2xi32> -> tensor<?x2xi32>
  return
}

// -----

func.func @zeros(%ids: tensor<?x2xi32>, %table: tensor<8xi32>) {
  // expected-error@+1 {{has 'zero_experts', which turns the result into positions, and a 'table', which gives ids; give one of them}}
  %0 = moe.place_ids %ids : tensor<?x2xi32> table(%table : tensor<8xi32>) {zero_experts = array<i64: 8, 2>} -> tensor<?x2xi32>
  return
}

// -----

func.func @zeros(%ids: tensor<?x2xi32>) {
  // expected-error@+1 {{has 1 numbers in 'zero_experts'; give the numbers of experts and zero experts}}
  %0 = moe.place_ids %ids : tensor<?x2xi32> {zero_experts = array<i64: 8>} -> tensor<?x2xi32>
  return
}

// -----

func.func @zeros(%ids: tensor<?x2xi32>) {
  // expected-error@+1 {{'num_zero_experts' is -1; 0 to 2147483639 is accepted, so that ids fit 32 bits}}
  %0 = moe.place_ids %ids : tensor<?x2xi32> {zero_experts = array<i64: 8, -1>} -> tensor<?x2xi32>
  return
}

// -----

func.func @zeros(%ids: tensor<?x2xi32>, %table: tensor<8x3xi32>, %counts: tensor<8xi32>) {
  // expected-error@+1 {{has 2 numbers in 'zero_experts'; give the numbers of experts, zero experts and physical experts}}
  %0 = moe.place_ids %ids : tensor<?x2xi32> table(%table : tensor<8x3xi32>) replica_counts(%counts : tensor<8xi32>)
      {zero_experts = array<i64: 8, 2>} -> tensor<?x2xi32>
  return
}

// -----

func.func @zeros(%ids: tensor<?x2xi32>, %table: tensor<8x3xi32>, %counts: tensor<8xi32>) {
  // expected-error@+1 {{has 'zero_experts' behind 9 experts and a 'table' of 8; give the table's number}}
  %0 = moe.place_ids %ids : tensor<?x2xi32> table(%table : tensor<8x3xi32>) replica_counts(%counts : tensor<8xi32>)
      {zero_experts = array<i64: 9, 2, 12>} -> tensor<?x2xi32>
  return
}

// -----

func.func @zeros(%ids: tensor<?x2xi32>, %table: tensor<8x3xi32>, %counts: tensor<8xi32>) {
  // expected-error@+1 {{'num_experts' is 0; 1 to}}
  %0 = moe.place_ids %ids : tensor<?x2xi32> table(%table : tensor<8x3xi32>) replica_counts(%counts : tensor<8xi32>)
      {zero_experts = array<i64: 8, 2, 0>} -> tensor<?x2xi32>
  return
}

// -----

func.func @place(%ids: tensor<?x2xi32>, %table: tensor<8x1xi32>) {
  // expected-error@+1 {{'table'}}
  %0 = moe.place_ids %ids : tensor<?x2xi32> table(%table : tensor<8x1xi32>) -> tensor<?x2xi32>
  return
}

// -----

func.func @replicas(%ids: tensor<?x2xi32>, %counts: tensor<8xi32>, %mask: tensor<?xi8>) {
  // expected-error@+1 {{takes 'replica_counts' with a 'table' only, which maps the replicas}}
  %0 = moe.place_ids %ids : tensor<?x2xi32> replica_counts(%counts : tensor<8xi32>)
      is_padding(%mask : tensor<?xi8>) -> tensor<?x2xi32>
  return
}

// -----

func.func @replicas(%ids: tensor<?x2xi32>, %table: tensor<8x3xi32>, %counts: tensor<7xi32>) {
  // expected-error@+1 {{'replica_counts' must be of shape num_experts = 8, not 7}}
  %0 = moe.place_ids %ids : tensor<?x2xi32> table(%table : tensor<8x3xi32>)
      replica_counts(%counts : tensor<7xi32>) -> tensor<?x2xi32>
  return
}

// -----

func.func @replicas(%ids: tensor<?x2xi32>, %table: tensor<8xi32>, %counts: tensor<8xi32>) {
  // expected-error@+1 {{'table' must be of shape num_experts x max_replicas}}
  %0 = moe.place_ids %ids : tensor<?x2xi32> table(%table : tensor<8xi32>)
      replica_counts(%counts : tensor<8xi32>) -> tensor<?x2xi32>
  return
}

// -----

func.func @padding(%ids: tensor<?x2xi32>, %mask: tensor<?x2xi8>) {
  // expected-error@+1 {{'is_padding' must be of shape tokens}}
  %0 = moe.place_ids %ids : tensor<?x2xi32> is_padding(%mask : tensor<?x2xi8>) -> tensor<?x2xi32>
  return
}

// -----

func.func @map(%x: tensor<?x16xf16>, %n: tensor<2xi32>) {
  // expected-error@+1 {{'num_valid_tokens'}}
  %0 = moe.row_map %x : tensor<?x16xf16> num_valid_tokens(%n : tensor<2xi32>) {
  ^bb0(%v: f32):
    moe.yield %v : f32
  } -> tensor<?x16xf16>
  return
}

// -----

func.func @map(%x: tensor<?x16xf16>, %y: tensor<?x8xf16>) {
  // expected-error@+1 {{'elementwise[0]'}}
  %0 = moe.row_map %x : tensor<?x16xf16> elementwise(%y : tensor<?x8xf16>) {
  ^bb0(%v: f32, %e: f32):
    moe.yield %v : f32
  } -> tensor<?x16xf16>
  return
}

// -----

func.func @destinations(%x: tensor<?x8xf32>, %destinations: tensor<4xi32>) {
  // expected-error@+1 {{has 'destinations', 0 'ids' and 1 'routed'; give 'destinations', 1 'ids' and one or more indices in 'routed', or none of these}}
  %0 = moe.dispatch <dp> %x destinations(%destinations : tensor<4xi32>) routed [0] : tensor<?x8xf32> -> tensor<?x8xf32>
  return
}

// -----

func.func @destinations(%x: tensor<?x8xf32>, %ids: tensor<?x2xi32>) {
  // expected-error@+1 {{has no 'destinations', 1 'ids' and 1 'routed'; give 'destinations', 2 'ids'}}
  %0 = moe.combine <dp> %x ids(%ids : tensor<?x2xi32>) : tensor<?x8xf32>
  return
}

// -----

func.func @destinations(%x: tensor<?x8xf32>, %ids: tensor<?x2xi32>, %destinations: tensor<4xi32>) {
  // expected-error@+1 {{gives all ranks the same sums; remove 'destinations', 'ids' and 'routed'}}
  %0 = moe.combine <tp> %x destinations(%destinations : tensor<4xi32>) ids(%ids : tensor<?x2xi32>) : tensor<?x8xf32>
  return
}

// -----

func.func @destinations(%x: tensor<?x8xf32>, %ids: tensor<?x2xi32>, %destinations: tensor<4x1xi32>) {
  // expected-error@+1 {{has 'destinations' of type 'tensor<4x1xi32>'; give one i32 per expert}}
  %0 = moe.dispatch <dp> %x destinations(%destinations : tensor<4x1xi32>) ids(%ids : tensor<?x2xi32>) routed [0]
      : tensor<?x8xf32> -> tensor<?x8xf32>
  return
}

// -----

func.func @destinations(%x: tensor<?x8xf32>, %ids: tensor<?x2xi32>, %destinations: tensor<4xi32>) {
  // expected-error@+1 {{has 'destinations' of type 'tensor<4xi32>'; give one i32 per expert and replica, because of 'experts_per_rank'}}
  %0 = moe.dispatch <dp> %x destinations(%destinations : tensor<4xi32>) ids(%ids : tensor<?x2xi32>) routed [0] {experts_per_rank = 2 : i64}
      : tensor<?x8xf32> -> tensor<?x8xf32>
  return
}

// -----

func.func @destinations(%x: tensor<?x8xf32>, %ids: tensor<?x2xi32>, %destinations: tensor<4x2xi32>) {
  // expected-error@+1 {{has 0 as 'experts_per_rank'; give 1 or more}}
  %0 = moe.combine <dp> %x destinations(%destinations : tensor<4x2xi32>) ids(%ids, %ids : tensor<?x2xi32>, tensor<?x2xi32>)
      {experts_per_rank = 0 : i64} : tensor<?x8xf32>
  return
}

// -----

func.func @destinations(%x: tensor<?x8xf32>, %ids: tensor<?xi32>, %destinations: tensor<4xi32>) {
  // expected-error@+1 {{has 'ids' of type 'tensor<?xi32>'; give i32 of shape tokens x top_k, all of one type}}
  %0 = moe.dispatch <dp> %x destinations(%destinations : tensor<4xi32>) ids(%ids : tensor<?xi32>) routed [0]
      : tensor<?x8xf32> -> tensor<?x8xf32>
  return
}

// -----

func.func @destinations(%x: tensor<?x8xf32>, %n: tensor<1xi32>, %ids: tensor<?x2xi32>, %destinations: tensor<4xi32>) {
  // expected-error@+1 {{has 1 in 'routed', which is 'tensor<1xi32>' and has no row per token}}
  %0:2 = moe.dispatch <dp> %x, %n destinations(%destinations : tensor<4xi32>) ids(%ids : tensor<?x2xi32>) routed [0, 1]
      : tensor<?x8xf32>, tensor<1xi32> -> tensor<?x8xf32>, tensor<2xi32>
  return
}

// -----

func.func @destinations(%x: tensor<?x8xf32>, %ids: tensor<?x2xi32>, %destinations: tensor<4xi32>) {
  // expected-error@+1 {{has 0 in 'routed'; give indices of the moved tensors, ascending from 0 to 0}}
  %0 = moe.dispatch <dp> %x destinations(%destinations : tensor<4xi32>) ids(%ids : tensor<?x2xi32>) routed [0, 0]
      : tensor<?x8xf32> -> tensor<?x8xf32>
  return
}
