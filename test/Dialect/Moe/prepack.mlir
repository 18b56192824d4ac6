// RUN: moe-opt %s --split-input-file --verify-diagnostics | moe-opt | FileCheck %s

// CHECK-LABEL: func.func @repack
// CHECK:         moe.prepack <storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs> %{{.*}}, %{{.*}} {layout = #moe.weight_layout<order = gate_up>}
func.func @repack(%w: tensor<2x128x32xi8>, %s: tensor<2x128x2xf8E8M0FNU>) -> tensor<2x128xf32> {
  %p, %ps, %r = moe.prepack <storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs> %w, %s
      {layout = #moe.weight_layout<order = gate_up>}
      : tensor<2x128x32xi8>, tensor<2x128x2xf8E8M0FNU> -> tensor<2x128x32xi8>, tensor<2x128x2xi8>, tensor<2x128xf32>
  return %r : tensor<2x128xf32>
}

// -----

func.func @storage(%w: tensor<128x32xi8>, %s: tensor<128x2xf8E8M0FNU>) {
  // expected-error@+1 {{'quant' is #moe.quant<storage = i4, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs>, which cannot be prepacked: i4 needs scales of f32, bf16 or f16, not f8E8M0FNU}}
  %p, %ps, %r = moe.prepack <storage = i4, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs> %w, %s
      : tensor<128x32xi8>, tensor<128x2xf8E8M0FNU> -> tensor<128x32xi8>, tensor<128x2xi8>, tensor<128xf32>
  return
}

// -----

func.func @depth(%w: tensor<128x48xi8>, %s: tensor<128x3xf8E8M0FNU>) {
  // expected-error@+1 {{cannot prepack 'weight': K = 96 is not a multiple of 64}}
  %p, %ps, %r = moe.prepack <storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs> %w, %s
      : tensor<128x48xi8>, tensor<128x3xf8E8M0FNU> -> tensor<128x48xi8>, tensor<128x3xi8>, tensor<128xf32>
  return
}

// -----

func.func @rows(%w: tensor<96x32xi8>, %s: tensor<96x2xf8E8M0FNU>) {
  // expected-error@+1 {{cannot prepack 'weight': N = 96 is not a multiple of 64}}
  %p, %ps, %r = moe.prepack <storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs> %w, %s
      : tensor<96x32xi8>, tensor<96x2xf8E8M0FNU> -> tensor<96x32xi8>, tensor<96x2xi8>, tensor<96xf32>
  return
}

// -----

func.func @results(%w: tensor<128x32xi8>, %s: tensor<128x2xf8E8M0FNU>) {
  // expected-error@+1 {{'row_scale' must be of shape n = 128, not 64}}
  %p, %ps, %r = moe.prepack <storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs> %w, %s
      : tensor<128x32xi8>, tensor<128x2xf8E8M0FNU> -> tensor<128x32xi8>, tensor<128x2xi8>, tensor<64xf32>
  return
}

// -----

// CHECK-LABEL: func.func @zero_points
// CHECK:         moe.prepack {{.*}} zero_point(%{{.*}} : tensor<128x1xi8>) : tensor<128x64xi8>, tensor<128x1xbf16> -> tensor<128x64xi8>, tensor<128x4xi8>, tensor<128xf32>
func.func @zero_points(%w: tensor<128x64xi8>, %s: tensor<128x1xbf16>, %z: tensor<128x1xi8>) -> tensor<128xf32> {
  %p, %ps, %r = moe.prepack <storage = i4, scale = bf16, granularity = group, block = [1, 128], zero_point = true, packing = pairs> %w, %s
      zero_point(%z : tensor<128x1xi8>) : tensor<128x64xi8>, tensor<128x1xbf16> -> tensor<128x64xi8>, tensor<128x4xi8>, tensor<128xf32>
  return %r : tensor<128xf32>
}

// -----

// CHECK-LABEL: func.func @global_scale
// CHECK:         moe.prepack {{.*}} global_scale(%{{.*}} : tensor<2x2xf32>) {layout
func.func @global_scale(%w: tensor<2x128x32xi8>, %s: tensor<2x128x4xf8E4M3FN>, %g: tensor<2x2xf32>) -> tensor<2x128xf32> {
  %p, %ps, %r = moe.prepack <storage = f4E2M1FN, scale = f8E4M3FN, granularity = group, block = [1, 16], packing = pairs, second_scale = f32> %w, %s
      global_scale(%g : tensor<2x2xf32>) {layout = #moe.weight_layout<order = gate_up>}
      : tensor<2x128x32xi8>, tensor<2x128x4xf8E4M3FN> -> tensor<2x128x32xi8>, tensor<2x128x4xi8>, tensor<2x128xf32>
  return %r : tensor<2x128xf32>
}

// -----

func.func @no_zero_point(%w: tensor<128x64xi8>, %s: tensor<128x1xbf16>) {
  // expected-error@+1 {{takes 'zero_point' and 'global_scale' if and only if 'quant' requires them}}
  %p, %ps, %r = moe.prepack <storage = i4, scale = bf16, granularity = group, block = [1, 128], zero_point = true, packing = pairs> %w, %s
      : tensor<128x64xi8>, tensor<128x1xbf16> -> tensor<128x64xi8>, tensor<128x4xi8>, tensor<128xf32>
  return
}

// -----

func.func @scale_bytes(%w: tensor<128x64xi8>, %s: tensor<128x1xbf16>) {
  // expected-error@+1 {{'packed_scale' must be of shape n x (bytes of a row's scales) = 128x2, not 128x4}}
  %p, %ps, %r = moe.prepack <storage = i4, scale = bf16, granularity = group, block = [1, 128], packing = pairs> %w, %s
      : tensor<128x64xi8>, tensor<128x1xbf16> -> tensor<128x64xi8>, tensor<128x4xi8>, tensor<128xf32>
  return
}

// -----

// expected-error@+1 {{'packing' is 'prepacked', but i4 needs scales of f32, bf16 or f16, not f8E8M0FNU; write 'packing = pairs'}}
func.func private @quant() attributes {quant = #moe.quant<storage = i4, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = prepacked, second_scale = f32>}

// -----

// Scales of f32 stay f32, with zero points as bf16 beside them.
// CHECK-LABEL: func.func @single_zero_points
// CHECK:         moe.prepack {{.*}} zero_point(%{{.*}} : tensor<128x4xi8>) : tensor<128x64xi8>, tensor<128x4xf32> -> tensor<128x64xi8>, tensor<128x24xi8>, tensor<128xf32>
func.func @single_zero_points(%w: tensor<128x64xi8>, %s: tensor<128x4xf32>, %z: tensor<128x4xi8>) -> tensor<128xf32> {
  %p, %ps, %r = moe.prepack <storage = i4, scale = f32, granularity = group, block = [1, 32], zero_point = true, packing = pairs> %w, %s
      zero_point(%z : tensor<128x4xi8>) : tensor<128x64xi8>, tensor<128x4xf32> -> tensor<128x64xi8>, tensor<128x24xi8>, tensor<128xf32>
  return %r : tensor<128xf32>
}

// -----

// For f16, scales of f32 become f16, and so do rests.
// CHECK-LABEL: func.func @minima_f16
// CHECK:         moe.prepack {{.*}} {packing = #moe.packing<prepacked_f16>} : tensor<128x64xi8>, tensor<128x4xf32> -> tensor<128x64xi8>, tensor<128x24xi8>, tensor<128xf32>
func.func @minima_f16(%w: tensor<128x64xi8>, %s: tensor<128x4xf32>, %m: tensor<128x4xf32>) -> tensor<128xf32> {
  %p, %ps, %r = moe.prepack <storage = i4, scale = f32, granularity = group, block = [1, 32], packing = pairs, minimum = true> %w, %s
      zero_point(%m : tensor<128x4xf32>) {packing = #moe.packing<prepacked_f16>}
      : tensor<128x64xi8>, tensor<128x4xf32> -> tensor<128x64xi8>, tensor<128x24xi8>, tensor<128xf32>
  return %r : tensor<128xf32>
}

// -----

// Minima become a zero point and a rest beside each scale, which stays f32.
// CHECK-LABEL: func.func @minima
// CHECK:         moe.prepack {{.*}}minimum = true> %{{.*}}, %{{.*}} zero_point(%{{.*}} : tensor<128x4xf16>) : tensor<128x64xi8>, tensor<128x4xf16> -> tensor<128x64xi8>, tensor<128x32xi8>, tensor<128xf32>
func.func @minima(%w: tensor<128x64xi8>, %s: tensor<128x4xf16>, %m: tensor<128x4xf16>) -> tensor<128xf32> {
  %p, %ps, %r = moe.prepack <storage = i4, scale = f16, granularity = group, block = [1, 32], packing = pairs, minimum = true> %w, %s
      zero_point(%m : tensor<128x4xf16>) : tensor<128x64xi8>, tensor<128x4xf16> -> tensor<128x64xi8>, tensor<128x32xi8>, tensor<128xf32>
  return %r : tensor<128xf32>
}

// -----

// A row of a packed tile has four groups of 16.
// CHECK-LABEL: func.func @few_minima
// CHECK:         moe.prepack {{.*}}minimum = true> %{{.*}}, %{{.*}} zero_point(%{{.*}} : tensor<128x8xbf16>) : tensor<128x128xi8>, tensor<128x8xbf16> -> tensor<128x128xi8>, tensor<128x64xi8>, tensor<128xf32>
func.func @few_minima(%w: tensor<128x128xi8>, %s: tensor<128x8xbf16>, %m: tensor<128x8xbf16>) -> tensor<128xf32> {
  %p, %ps, %r = moe.prepack <storage = i8, scale = bf16, granularity = group, block = [1, 16], minimum = true> %w, %s
      zero_point(%m : tensor<128x8xbf16>) : tensor<128x128xi8>, tensor<128x8xbf16> -> tensor<128x128xi8>, tensor<128x64xi8>, tensor<128xf32>
  return %r : tensor<128xf32>
}

// -----

func.func @type_of_minima(%w: tensor<128x64xi8>, %s: tensor<128x4xf16>, %m: tensor<128x4xf32>) {
  // expected-error@+1 {{'zero_point' must have elements of type 'f16', as required by 'quant', not 'f32'}}
  %p, %ps, %r = moe.prepack <storage = i4, scale = f16, granularity = group, block = [1, 32], packing = pairs, minimum = true> %w, %s
      zero_point(%m : tensor<128x4xf32>) : tensor<128x64xi8>, tensor<128x4xf16> -> tensor<128x64xi8>, tensor<128x32xi8>, tensor<128xf32>
  return
}

// -----

// Indices into a code book keep their bits, in another order.
// CHECK-LABEL: func.func @book
// CHECK:         moe.prepack <storage = !moe.nf4, {{.*}} : tensor<128x64xi8>, tensor<128x2xf32> -> tensor<128x64xi8>, tensor<128x8xi8>, tensor<128xf32>
func.func @book(%w: tensor<128x64xi8>, %s: tensor<128x2xf32>) -> tensor<128xf32> {
  %p, %ps, %r = moe.prepack <storage = !moe.nf4, scale = f32, granularity = group, block = [1, 64], packing = pairs> %w, %s
      : tensor<128x64xi8>, tensor<128x2xf32> -> tensor<128x64xi8>, tensor<128x8xi8>, tensor<128xf32>
  return %r : tensor<128xf32>
}

// -----

// expected-error@+1 {{'packing' is 'prepacked_f16', but f4E2M1FN needs f8E8M0FNU scales in groups of 32 or f8E4M3FN scales in groups of 16; write 'packing = pairs'}}
func.func private @quant_f16() attributes {quant = #moe.quant<storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 64], packing = prepacked_f16, second_scale = f32>}

// -----

// Scales of e2m1 for f16 take one byte, too.
// CHECK-LABEL: func.func @floats_f16
// CHECK:         moe.prepack {{.*}} {packing = #moe.packing<prepacked_f16>} : tensor<128x64xi8>, tensor<128x4xf8E8M0FNU> -> tensor<128x64xi8>, tensor<128x4xi8>, tensor<128xf32>
func.func @floats_f16(%w: tensor<128x64xi8>, %s: tensor<128x4xf8E8M0FNU>) -> tensor<128xf32> {
  %p, %ps, %r = moe.prepack <storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs> %w, %s
      {packing = #moe.packing<prepacked_f16>}
      : tensor<128x64xi8>, tensor<128x4xf8E8M0FNU> -> tensor<128x64xi8>, tensor<128x4xi8>, tensor<128xf32>
  return %r : tensor<128xf32>
}

// -----

// Scales of f16 take two bytes in both packings.
// CHECK-LABEL: func.func @packing
// CHECK:         moe.prepack {{.*}} {packing = #moe.packing<prepacked_f16>} : tensor<128x64xi8>, tensor<128x1xf16> -> tensor<128x64xi8>, tensor<128x2xi8>, tensor<128xf32>
// CHECK:         moe.prepack {{.*}} packing = pairs> %{{.*}}, %{{.*}} : tensor<128x64xi8>, tensor<128x1xf16> -> tensor<128x64xi8>, tensor<128x2xi8>, tensor<128xf32>
func.func @packing(%w: tensor<128x64xi8>, %s: tensor<128x1xf16>) -> (tensor<128xf32>, tensor<128xf32>) {
  %p, %ps, %r = moe.prepack <storage = i4, scale = f16, granularity = group, block = [1, 128], packing = pairs> %w, %s
      {packing = #moe.packing<prepacked_f16>}
      : tensor<128x64xi8>, tensor<128x1xf16> -> tensor<128x64xi8>, tensor<128x2xi8>, tensor<128xf32>
  %q, %qs, %t = moe.prepack <storage = i4, scale = f16, granularity = group, block = [1, 128], packing = pairs> %w, %s
      : tensor<128x64xi8>, tensor<128x1xf16> -> tensor<128x64xi8>, tensor<128x2xi8>, tensor<128xf32>
  return %r, %t : tensor<128xf32>, tensor<128xf32>
}

// -----

func.func @no_order(%w: tensor<128x64xi8>, %s: tensor<128x1xf16>) {
  // expected-error@+1 {{which cannot be prepacked: 'pairs' is not a prepacked layout; 'prepacked', 'prepacked_f16' and 'prepacked_e4m3' are}}
  %p, %ps, %r = moe.prepack <storage = i4, scale = f16, granularity = group, block = [1, 128], packing = pairs> %w, %s
      {packing = #moe.packing<pairs>}
      : tensor<128x64xi8>, tensor<128x1xf16> -> tensor<128x64xi8>, tensor<128x2xi8>, tensor<128xf32>
  return
}

// -----

func.func @input(%x: tensor<?x128xbf16>, %w: tensor<128x64xi8>, %s: tensor<128x4xi8>, %r: tensor<128xf32>) -> tensor<?x128xbf16> {
  // expected-error@+1 {{has 'weight_quant' in 'packing = prepacked_f16', which is prepacked for inputs of f16, but 'input' has elements of 'bf16'}}
  %y = moe.grouped_matmul %x, %w : tensor<?x128xbf16>, tensor<128x64xi8> weight_scale(%s : tensor<128x4xi8>)
      weight_global_scale(%r : tensor<128xf32>)
      {weight_quant = #moe.quant<storage = i4, scale = f16, granularity = group, block = [1, 128], packing = prepacked_f16, second_scale = f32>} -> tensor<?x128xbf16>
  return %y : tensor<?x128xbf16>
}

// -----

// expected-error@+1 {{'packing' is 'prepacked', which has a factor per row; write 'second_scale = f32'}}
func.func private @row_scale() attributes {quant = #moe.quant<storage = i4, scale = f16, granularity = channel, packing = prepacked>}
