// The two halves of an update by adapters, and what their verifiers refuse.

// RUN: moe-opt %s --split-input-file --verify-diagnostics | FileCheck %s

// CHECK-LABEL: @forms
func.func @forms(%x: tensor<?x64xbf16>, %a: tensor<4x3x16x64xbf16>, %b: tensor<4x3x48x16xbf16>, %o: tensor<4xi32>,
                 %s: tensor<?xi32>, %i: tensor<?xi32>) {
  // CHECK: moe.lora_shrink gather %{{.*}} a(%{{.*}}, %{{.*}} : tensor<4x3x16x64xbf16>, tensor<4x3x16x64xbf16>) offsets(%{{.*}} : tensor<4xi32>) source(%{{.*}} : tensor<?xi32>) adapter_ids(%{{.*}} : tensor<?xi32>) {top_k = 2 : i64} : tensor<?x64xbf16> -> tensor<?x32xf32>
  %0 = moe.lora_shrink gather %x a(%a, %a : tensor<4x3x16x64xbf16>, tensor<4x3x16x64xbf16>)
      offsets(%o : tensor<4xi32>) source(%s : tensor<?xi32>) adapter_ids(%i : tensor<?xi32>) {top_k = 2 : i64}
      : tensor<?x64xbf16> -> tensor<?x32xf32>
  // CHECK: moe.lora_expand %{{.*}} b(%{{.*}}, %{{.*}} : tensor<4x3x48x16xbf16>, tensor<4x3x48x16xbf16>) {{.*}} {top_k = 2 : i64} : tensor<?x32xf32> -> tensor<?x48xf32>, tensor<?x48xf32>
  %1:2 = moe.lora_expand %0 b(%b, %b : tensor<4x3x48x16xbf16>, tensor<4x3x48x16xbf16>)
      offsets(%o : tensor<4xi32>) source(%s : tensor<?xi32>) adapter_ids(%i : tensor<?xi32>) {top_k = 2 : i64}
      : tensor<?x32xf32> -> tensor<?x48xf32>, tensor<?x48xf32>
  return
}

// -----

func.func @top_k(%x: tensor<?x8xf32>, %a: tensor<4x3x2x8xf32>, %o: tensor<4xi32>, %s: tensor<?xi32>) {
  // expected-error @+1 {{'top_k' is 0; at least 1 is accepted}}
  %0 = moe.lora_shrink %x a(%a : tensor<4x3x2x8xf32>) offsets(%o : tensor<4xi32>) source(%s : tensor<?xi32>)
      adapter_ids(%s : tensor<?xi32>) {top_k = 0 : i64} : tensor<?x8xf32> -> tensor<?x2xf32>
  return
}

// -----

func.func @groups(%x: tensor<?x8xf32>, %a: tensor<4x2x2x8xf32>, %o: tensor<4xi32>, %s: tensor<?xi32>) {
  // expected-error @+1 {{'a[0]' must be of shape adapters x groups x rank x width = *x3x*x*, not 4x2x2x8}}
  %0 = moe.lora_shrink %x a(%a : tensor<4x2x2x8xf32>) offsets(%o : tensor<4xi32>) source(%s : tensor<?xi32>)
      adapter_ids(%s : tensor<?xi32>) {top_k = 1 : i64} : tensor<?x8xf32> -> tensor<?x2xf32>
  return
}

// -----

func.func @ranks(%x: tensor<?x8xf32>, %a: tensor<4x3x2x8xf32>, %b: tensor<4x3x4x8xf32>, %o: tensor<4xi32>,
                 %s: tensor<?xi32>) {
  // expected-error @+1 {{'a[1]' must be of shape adapters x groups x rank x width = 4x3x2x8, not 4x3x4x8}}
  %0 = moe.lora_shrink %x a(%a, %b : tensor<4x3x2x8xf32>, tensor<4x3x4x8xf32>) offsets(%o : tensor<4xi32>)
      source(%s : tensor<?xi32>) adapter_ids(%s : tensor<?xi32>) {top_k = 1 : i64} : tensor<?x8xf32> -> tensor<?x6xf32>
  return
}

// -----

func.func @element(%x: tensor<?x8xbf16>, %a: tensor<4x3x2x8xf32>, %o: tensor<4xi32>, %s: tensor<?xi32>) {
  // expected-error @+1 {{like a[0]}}
  %0 = moe.lora_shrink %x a(%a : tensor<4x3x2x8xf32>) offsets(%o : tensor<4xi32>) source(%s : tensor<?xi32>)
      adapter_ids(%s : tensor<?xi32>) {top_k = 1 : i64} : tensor<?x8xbf16> -> tensor<?x2xf32>
  return
}

// -----

func.func @width(%x: tensor<?x3xf32>, %b: tensor<4x3x8x2xf32>, %o: tensor<4xi32>, %s: tensor<?xi32>) {
  // expected-error @+1 {{'input' must be of shape positions x (matrices * rank) = ?x2, not ?x3}}
  %0 = moe.lora_expand %x b(%b : tensor<4x3x8x2xf32>) offsets(%o : tensor<4xi32>) source(%s : tensor<?xi32>)
      adapter_ids(%s : tensor<?xi32>) {top_k = 1 : i64} : tensor<?x3xf32> -> tensor<?x8xf32>
  return
}

// -----

func.func @results(%x: tensor<?x2xf32>, %b: tensor<4x3x8x2xf32>, %o: tensor<4xi32>, %s: tensor<?xi32>) {
  // expected-error @+1 {{has 2 results, but 1 matrices; give as many results}}
  %0:2 = moe.lora_expand %x b(%b : tensor<4x3x8x2xf32>) offsets(%o : tensor<4xi32>) source(%s : tensor<?xi32>)
      adapter_ids(%s : tensor<?xi32>) {top_k = 1 : i64} : tensor<?x2xf32> -> tensor<?x8xf32>, tensor<?x8xf32>
  return
}
