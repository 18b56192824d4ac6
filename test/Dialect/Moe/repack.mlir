// RUN: moe-opt %s --split-input-file --verify-diagnostics | moe-opt | FileCheck %s

// CHECK-LABEL: func.func @repack
// CHECK:         moe.repack <storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs> %{{.*}}, %{{.*}} {layout = #moe.weight_layout<order = gate_up>}
func.func @repack(%w: tensor<2x128x32xi8>, %s: tensor<2x128x2xf8E8M0FNU>) -> tensor<2x128xf32> {
  %p, %ps, %r = moe.repack <storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs> %w, %s
      {layout = #moe.weight_layout<order = gate_up>}
      : tensor<2x128x32xi8>, tensor<2x128x2xf8E8M0FNU> -> tensor<2x128x32xi8>, tensor<2x128x2xf8E8M0FNU>, tensor<2x128xf32>
  return %r : tensor<2x128xf32>
}

// -----

func.func @storage(%w: tensor<128x32xi8>, %s: tensor<128x2xf8E8M0FNU>) {
  // expected-error@+1 {{'quant' is #moe.quant<storage = i4, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs>; f4E2M1FN in pairs with f8E8M0FNU scales of groups of [1, 32] and no second scale is accepted}}
  %p, %ps, %r = moe.repack <storage = i4, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs> %w, %s
      : tensor<128x32xi8>, tensor<128x2xf8E8M0FNU> -> tensor<128x32xi8>, tensor<128x2xf8E8M0FNU>, tensor<128xf32>
  return
}

// -----

func.func @depth(%w: tensor<128x48xi8>, %s: tensor<128x3xf8E8M0FNU>) {
  // expected-error@+1 {{cannot pack 'weight': K = 96 is no multiple of 64}}
  %p, %ps, %r = moe.repack <storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs> %w, %s
      : tensor<128x48xi8>, tensor<128x3xf8E8M0FNU> -> tensor<128x48xi8>, tensor<128x3xf8E8M0FNU>, tensor<128xf32>
  return
}

// -----

func.func @rows(%w: tensor<96x32xi8>, %s: tensor<96x2xf8E8M0FNU>) {
  // expected-error@+1 {{cannot pack 'weight': N = 96 is no multiple of 64}}
  %p, %ps, %r = moe.repack <storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs> %w, %s
      : tensor<96x32xi8>, tensor<96x2xf8E8M0FNU> -> tensor<96x32xi8>, tensor<96x2xf8E8M0FNU>, tensor<96xf32>
  return
}

// -----

func.func @results(%w: tensor<128x32xi8>, %s: tensor<128x2xf8E8M0FNU>) {
  // expected-error@+1 {{'row_scale' must be of shape n = 128, not 64}}
  %p, %ps, %r = moe.repack <storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs> %w, %s
      : tensor<128x32xi8>, tensor<128x2xf8E8M0FNU> -> tensor<128x32xi8>, tensor<128x2xf8E8M0FNU>, tensor<64xf32>
  return
}

// -----

// expected-error@+1 {{'packing' is 'fragments', which is of storage f4E2M1FN with scales f8E8M0FNU of groups of [1, 32] and a second scale of f32; write 'packing = pairs' for others}}
func.func private @quant() attributes {quant = #moe.quant<storage = i4, scale = f16, granularity = group, block = [1, 32], packing = fragments, second_scale = f32>}
