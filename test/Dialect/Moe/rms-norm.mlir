// The norm of rows: its forms, and what its verifier refuses.

// RUN: moe-opt %s --split-input-file --verify-diagnostics | FileCheck %s

// CHECK-LABEL: @forms
func.func @forms(%x: tensor<?x8xbf16>, %w: tensor<8xbf16>, %r: tensor<?x1xf32>, %o: tensor<3xi32>) {
  // CHECK: moe.rms_norm <epsilon = 9.99999974E-6 : f32> %{{.*}} weight(%{{.*}} : tensor<8xbf16>) : tensor<?x8xbf16> -> tensor<?x8xbf16>
  %0 = moe.rms_norm <epsilon = 1.0e-5 : f32> %x weight(%w : tensor<8xbf16>) : tensor<?x8xbf16> -> tensor<?x8xbf16>
  // CHECK: moe.rms_norm <epsilon = 5.000000e-01 : f32, offset = 1.000000e+00 : f32, weight_first = true> %{{.*}} weight(%{{.*}} : tensor<8xbf16>) rows(%{{.*}} : tensor<?x1xf32>) offsets(%{{.*}} : tensor<3xi32>) {top_k = 2 : i64}
  %1 = moe.rms_norm <epsilon = 0.5 : f32, offset = 1.0 : f32, weight_first = true> %x weight(%w : tensor<8xbf16>)
      rows(%r : tensor<?x1xf32>) offsets(%o : tensor<3xi32>) {top_k = 2 : i64} : tensor<?x8xbf16> -> tensor<?x8xbf16>
  return
}

// -----

func.func @epsilon(%x: tensor<?x8xbf16>, %w: tensor<8xbf16>) {
  // expected-error @+1 {{'epsilon' must be greater than 0}}
  %0 = moe.rms_norm <epsilon = 0.0 : f32> %x weight(%w : tensor<8xbf16>) : tensor<?x8xbf16> -> tensor<?x8xbf16>
  return
}

// -----

func.func @type(%x: tensor<?x8xbf16>, %w: tensor<8xf32>) {
  // expected-error @+1 {{'weight' must have elements of type 'bf16', like 'input', not 'f32'}}
  %0 = moe.rms_norm <epsilon = 1.0 : f32> %x weight(%w : tensor<8xf32>) : tensor<?x8xbf16> -> tensor<?x8xbf16>
  return
}

// -----

func.func @width(%x: tensor<?x8xbf16>, %w: tensor<4xbf16>) {
  // expected-error @+1 {{'weight'}}
  %0 = moe.rms_norm <epsilon = 1.0 : f32> %x weight(%w : tensor<4xbf16>) : tensor<?x8xbf16> -> tensor<?x8xbf16>
  return
}

// -----

func.func @offsets(%x: tensor<?x8xbf16>, %w: tensor<8xbf16>, %o: tensor<3xi32>) {
  // expected-error @+1 {{'top_k'}}
  %0 = moe.rms_norm <epsilon = 1.0 : f32> %x weight(%w : tensor<8xbf16>) offsets(%o : tensor<3xi32>)
      : tensor<?x8xbf16> -> tensor<?x8xbf16>
  return
}

// -----

func.func @layer(%x: tensor<?x8xf32>, %g: tensor<4x8xf32>, %a: tensor<4x8x8xf32>, %b: tensor<4x8x4xf32>, %w: tensor<8xf32>) {
  // expected-error @+1 {{takes 'experts_norm' if and only if 'norms' has a #moe.norm<...> of this name}}
  %0 = moe.layer %x : tensor<?x8xf32> gate(%g : tensor<4x8xf32>) experts_norm(%w : tensor<8xf32>)
      experts(%a, %b : tensor<4x8x8xf32>, tensor<4x8x4xf32>) activation {
      ^bb0(%gate: f32, %up: f32):
        moe.yield %up : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x8xf32>
  return
}

// -----

func.func @latent(%x: tensor<?x8xf32>, %g: tensor<4x8xf32>, %a: tensor<4x8x8xf32>, %b: tensor<4x8x4xf32>, %w: tensor<8xf32>) {
  // expected-error @+1 {{takes 'latent_out_norm' beside 'latent_down' and 'latent_up' only}}
  %0 = moe.layer %x : tensor<?x8xf32> gate(%g : tensor<4x8xf32>) latent_out_norm(%w : tensor<8xf32>)
      experts(%a, %b : tensor<4x8x8xf32>, tensor<4x8x4xf32>) activation {
      ^bb0(%gate: f32, %up: f32):
        moe.yield %up : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>,
         norms = {latent_out_norm = #moe.norm<epsilon = 1.0 : f32>}} -> tensor<?x8xf32>
  return
}

// -----

func.func @name(%x: tensor<?x8xf32>, %g: tensor<4x8xf32>, %a: tensor<4x8x8xf32>, %b: tensor<4x8x4xf32>) {
  // expected-error @+1 {{has 'norms' with 'other_norm'}}
  %0 = moe.layer %x : tensor<?x8xf32> gate(%g : tensor<4x8xf32>)
      experts(%a, %b : tensor<4x8x8xf32>, tensor<4x8x4xf32>) activation {
      ^bb0(%gate: f32, %up: f32):
        moe.yield %up : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>,
         norms = {other_norm = #moe.norm<epsilon = 1.0 : f32>}} -> tensor<?x8xf32>
  return
}
