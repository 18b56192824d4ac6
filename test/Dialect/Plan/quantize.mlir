// RUN: moe-opt %s | moe-opt | FileCheck %s

// Block fp8: buffers of e4m3 and of scales, a kernel that makes both.
// CHECK-LABEL: plan.program @layer
plan.program @layer max_tokens 8 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x200xbf16>
  %w = plan.tensor weight "experts.w2" : memref<160x200xf8E4M3FN>
  %b = plan.tensor weight "experts.w2_scale" : memref<2x2xf32>
  %y = plan.tensor output "output" rows <"tokens"> : memref<?x160xbf16>
  // CHECK: plan.buffer "hidden_quantized" rows <"tokens"> : memref<?x200xf8E4M3FN>
  %q = plan.buffer "hidden_quantized" rows <"tokens"> : memref<?x200xf8E4M3FN>
  // CHECK: plan.buffer "hidden_scale" rows <"tokens"> : memref<?x2xf32>
  %s = plan.buffer "hidden_scale" rows <"tokens"> : memref<?x2xf32>
  plan.prepare {
  }
  plan.variant tokens 0 to 8 {
    // CHECK: plan.launch @hidden_quantized ins({{.*}} : memref<?x200xbf16>) outs({{.*}} : memref<?x200xf8E4M3FN>, memref<?x2xf32>)
    plan.launch @hidden_quantized ins(%x : memref<?x200xbf16>)
        outs(%q, %s : memref<?x200xf8E4M3FN>, memref<?x2xf32>)
    plan.launch @output ins(%q, %w, %s, %b : memref<?x200xf8E4M3FN>, memref<160x200xf8E4M3FN>, memref<?x2xf32>, memref<2x2xf32>)
        outs(%y : memref<?x160xbf16>)
  }
}

// CHECK-LABEL: plan.kernel @hidden_quantized
plan.kernel @hidden_quantized(%x: tensor<?x200xbf16>) -> (tensor<?x200xf8E4M3FN>, tensor<?x2xf32>) {
  // CHECK: moe.quantize <{{.*}}> %{{[a-z0-9]+}} : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x2xf32>
  %q, %s = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> %x : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x2xf32>
  plan.return %q, %s : tensor<?x200xf8E4M3FN>, tensor<?x2xf32>
}

plan.kernel @output(%q: tensor<?x200xf8E4M3FN>, %w: tensor<160x200xf8E4M3FN>, %s: tensor<?x2xf32>, %b: tensor<2x2xf32>) -> tensor<?x160xbf16> {
  // CHECK: moe.grouped_matmul %{{[a-z0-9]+}}, %{{[a-z0-9]+}} : tensor<?x200xf8E4M3FN>, tensor<160x200xf8E4M3FN> input_scale(%{{[a-z0-9]+}} : tensor<?x2xf32>) weight_scale(%{{[a-z0-9]+}} : tensor<2x2xf32>) {input_quant = {{.*}}, weight_quant = {{.*}}} -> tensor<?x160xbf16>
  %y = moe.grouped_matmul %q, %w : tensor<?x200xf8E4M3FN>, tensor<160x200xf8E4M3FN>
      input_scale(%s : tensor<?x2xf32>) weight_scale(%b : tensor<2x2xf32>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>} -> tensor<?x160xbf16>
  plan.return %y : tensor<?x160xbf16>
}
