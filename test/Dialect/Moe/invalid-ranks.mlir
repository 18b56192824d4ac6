// RUN: moe-opt %s -split-input-file -verify-diagnostics

func.func @dispatch(%x: tensor<?x8xf32>, %ids: tensor<?x2xi32>) {
  // expected-error@+1 {{has 2 inputs and 1 results; give one result for each input, at least one}}
  %0 = moe.dispatch <dp> %x, %ids : tensor<?x8xf32>, tensor<?x2xi32> -> tensor<?x8xf32>
  return
}

// -----

func.func @dispatch(%x: tensor<?x8xf32>) {
  // expected-error@+1 {{input 0 is 'tensor<?x8xf32>' and its result 'tensor<?x16xf32>'; give them one type, but for the rows where those are static}}
  %0 = moe.dispatch <dp> %x : tensor<?x8xf32> -> tensor<?x16xf32>
  return
}

// -----

func.func @place(%ids: tensor<?x2xi32>) {
  // expected-error@+1 {{changes nothing; give a 'table', 'num_valid_tokens' or both}}
  %0 = moe.place_ids %ids : tensor<?x2xi32> -> tensor<?x2xi32>
  return
}

// -----

func.func @place(%ids: tensor<?x2xi32>, %table: tensor<8x1xi32>) {
  // expected-error@+1 {{'table'}}
  %0 = moe.place_ids %ids : tensor<?x2xi32> table(%table : tensor<8x1xi32>) -> tensor<?x2xi32>
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
