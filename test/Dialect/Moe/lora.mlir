// The two halves of a LoRA update, and what their verifiers refuse.

// RUN: moe-opt %s --split-input-file --verify-diagnostics | FileCheck %s

// CHECK-LABEL: @forms
func.func @forms(%x: tensor<?x64xbf16>, %a: tensor<4x3x16x64xbf16>, %w: tensor<3x96x64xbf16>,
                 %b: tensor<4x3x48x16xbf16>, %o: tensor<4xi32>, %s: tensor<?xi32>, %i: tensor<?xi32>) {
  // CHECK: moe.lora_shrink gather %{{.*}} a(%{{.*}}, %{{.*}} : tensor<4x3x16x64xbf16>, tensor<4x3x16x64xbf16>) offsets(%{{.*}} : tensor<4xi32>) source(%{{.*}} : tensor<?xi32>) adapter_ids(%{{.*}} : tensor<?xi32>) {top_k = 2 : i64} : tensor<?x64xbf16> -> tensor<?x32xf32>, tensor<?x1xi32>
  %0:2 = moe.lora_shrink gather %x a(%a, %a : tensor<4x3x16x64xbf16>, tensor<4x3x16x64xbf16>)
      offsets(%o : tensor<4xi32>) source(%s : tensor<?xi32>) adapter_ids(%i : tensor<?xi32>) {top_k = 2 : i64}
      : tensor<?x64xbf16> -> tensor<?x32xf32>, tensor<?x1xi32>
  // CHECK: moe.grouped_matmul
  // CHECK-SAME: shrunk(%{{.*}} : tensor<?x32xf32>) adapters(%{{.*}} : tensor<?x1xi32>) b(%{{.*}}, %{{.*}} : tensor<4x3x48x16xbf16>, tensor<4x3x48x16xbf16>) epilogue
  %1 = moe.grouped_matmul %x, %w : tensor<?x64xbf16>, tensor<3x96x64xbf16> offsets(%o : tensor<4xi32>)
      source(%s : tensor<?xi32>) shrunk(%0#0 : tensor<?x32xf32>) adapters(%0#1 : tensor<?x1xi32>)
      b(%b, %b : tensor<4x3x48x16xbf16>, tensor<4x3x48x16xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32, %dg: f32, %du: f32):
        %y = arith.addf %g, %dg : f32
        %z = arith.addf %u, %du : f32
        %m = arith.mulf %y, %z : f32
        moe.yield %m : f32
      } {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x48xbf16>
  return
}

// -----

func.func @top_k(%x: tensor<?x8xf32>, %a: tensor<4x3x2x8xf32>, %o: tensor<4xi32>, %s: tensor<?xi32>) {
  // expected-error @+1 {{'top_k' is 0; at least 1 is accepted}}
  %0:2 = moe.lora_shrink %x a(%a : tensor<4x3x2x8xf32>) offsets(%o : tensor<4xi32>) source(%s : tensor<?xi32>)
      adapter_ids(%s : tensor<?xi32>) {top_k = 0 : i64} : tensor<?x8xf32> -> tensor<?x2xf32>, tensor<?x1xi32>
  return
}

// -----

func.func @groups(%x: tensor<?x8xf32>, %a: tensor<4x2x2x8xf32>, %o: tensor<4xi32>, %s: tensor<?xi32>) {
  // expected-error @+1 {{'a[0]' must be of shape adapters x groups x rank x width = *x3x*x*, not 4x2x2x8}}
  %0:2 = moe.lora_shrink %x a(%a : tensor<4x2x2x8xf32>) offsets(%o : tensor<4xi32>) source(%s : tensor<?xi32>)
      adapter_ids(%s : tensor<?xi32>) {top_k = 1 : i64} : tensor<?x8xf32> -> tensor<?x2xf32>, tensor<?x1xi32>
  return
}

// -----

func.func @ranks(%x: tensor<?x8xf32>, %a: tensor<4x3x2x8xf32>, %b: tensor<4x3x4x8xf32>, %o: tensor<4xi32>,
                 %s: tensor<?xi32>) {
  // expected-error @+1 {{'a[1]' must be of shape adapters x groups x rank x width = 4x3x2x8, not 4x3x4x8}}
  %0:2 = moe.lora_shrink %x a(%a, %b : tensor<4x3x2x8xf32>, tensor<4x3x4x8xf32>) offsets(%o : tensor<4xi32>)
      source(%s : tensor<?xi32>) adapter_ids(%s : tensor<?xi32>) {top_k = 1 : i64}
      : tensor<?x8xf32> -> tensor<?x6xf32>, tensor<?x1xi32>
  return
}

// -----

func.func @element(%x: tensor<?x8xbf16>, %a: tensor<4x3x2x8xf32>, %o: tensor<4xi32>, %s: tensor<?xi32>) {
  // expected-error @+1 {{like a[0]}}
  %0:2 = moe.lora_shrink %x a(%a : tensor<4x3x2x8xf32>) offsets(%o : tensor<4xi32>) source(%s : tensor<?xi32>)
      adapter_ids(%s : tensor<?xi32>) {top_k = 1 : i64} : tensor<?x8xbf16> -> tensor<?x2xf32>, tensor<?x1xi32>
  return
}

// -----

func.func @width(%x: tensor<?x8xf32>, %w: tensor<3x8x8xf32>, %o: tensor<4xi32>, %s: tensor<?x3xf32>,
                 %i: tensor<?x1xi32>, %b: tensor<4x3x8x2xf32>) {
  // expected-error @+1 {{'shrunk' must be of shape positions x (matrices * rank) = ?x2, not ?x3}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<3x8x8xf32> offsets(%o : tensor<4xi32>)
      shrunk(%s : tensor<?x3xf32>) adapters(%i : tensor<?x1xi32>) b(%b : tensor<4x3x8x2xf32>) epilogue {
      ^bb0(%y: f32, %d: f32):
        moe.yield %y : f32
      } -> tensor<?x8xf32>
  return
}

// -----

func.func @together(%x: tensor<?x8xf32>, %w: tensor<3x8x8xf32>, %o: tensor<4xi32>, %b: tensor<4x3x8x2xf32>) {
  // expected-error @+1 {{takes 'shrunk', 'adapters' and 'b' together}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<3x8x8xf32> offsets(%o : tensor<4xi32>)
      b(%b : tensor<4x3x8x2xf32>) epilogue {
      ^bb0(%y: f32, %d: f32):
        moe.yield %y : f32
      } -> tensor<?x8xf32>
  return
}

// -----

func.func @matrices(%x: tensor<?x8xf32>, %w: tensor<3x16x8xf32>, %o: tensor<4xi32>, %s: tensor<?x2xf32>,
                    %i: tensor<?x1xi32>, %b: tensor<4x3x8x2xf32>) {
  // expected-error @+1 {{has 1 matrices in 'b'; give 2, for gate and up}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<3x16x8xf32> offsets(%o : tensor<4xi32>)
      shrunk(%s : tensor<?x2xf32>) adapters(%i : tensor<?x1xi32>) b(%b : tensor<4x3x8x2xf32>) epilogue {
      ^bb0(%y: f32, %u: f32, %d: f32):
        moe.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x8xf32>
  return
}

// -----

func.func @dense(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>, %s: tensor<?x2xf32>, %i: tensor<?x1xi32>,
                 %b: tensor<4x3x8x2xf32>) {
  // expected-error @+1 {{takes 'shrunk' with 'offsets' only, whose groups have adapters}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> shrunk(%s : tensor<?x2xf32>)
      adapters(%i : tensor<?x1xi32>) b(%b : tensor<4x3x8x2xf32>) epilogue {
      ^bb0(%y: f32, %d: f32):
        moe.yield %y : f32
      } -> tensor<?x8xf32>
  return
}
