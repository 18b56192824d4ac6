// RUN: moe-opt %s | moe-opt | FileCheck %s
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | FileCheck %s

// CHECK-LABEL: func.func @quantize
func.func @quantize(%x: tensor<?x200xbf16>, %h: tensor<?x256xf32>, %offsets: tensor<5xi32>) {
  // CHECK: moe.quantize <{{.*}}> %{{[a-z0-9]+}} : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x2xf32>
  %q, %s = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> %x : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x2xf32>
  // CHECK: moe.quantize <{{.*}}> %{{[a-z0-9]+}} offsets(%{{[a-z0-9]+}} : tensor<5xi32>) {top_k = 2 : i64} : tensor<?x256xf32> -> tensor<?x256xf8E4M3FN>, tensor<?x2xf32>
  %r, %t = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> %h offsets(%offsets : tensor<5xi32>) {top_k = 2 : i64}
      : tensor<?x256xf32> -> tensor<?x256xf8E4M3FN>, tensor<?x2xf32>
  // Quantized values that are kept as bf16.
  // CHECK: moe.quantize <storage = i8, scale = f32, granularity = token, dynamic = true, packing = bf16> %{{[a-z0-9]+}} : tensor<?x200xbf16> -> tensor<?x200xbf16>, tensor<?x1xf32>
  %i, %j = moe.quantize <storage = i8, scale = f32, granularity = token, dynamic = true, packing = bf16> %x : tensor<?x200xbf16> -> tensor<?x200xbf16>, tensor<?x1xf32>
  // Names in the op's attribute are the names of its results.
  // CHECK: %hidden_quantized, %hidden_scale = moe.quantize <{{.*}}> %{{[a-z0-9]+}} {moe.name = ["hidden_quantized", "hidden_scale"]}
  %u, %v = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> %x {moe.name = ["hidden_quantized", "hidden_scale"]}
      : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x2xf32>
  return
}

// Gate and up halves have separate blocks of scales; interleaved rows share them.
// CHECK-LABEL: func.func @grouped_matmul
func.func @grouped_matmul(%q: tensor<?x200xf8E4M3FN>, %s: tensor<?x2xf32>, %w13: tensor<4x160x200xf8E4M3FN>,
    %halves: tensor<4x2x2xf32>, %shared: tensor<160x200xf8E4M3FN>, %mixed: tensor<2x2xf32>,
    %offsets: tensor<5xi32>, %source: tensor<?xi32>) {
  // CHECK: moe.grouped_matmul %{{[a-z0-9]+}}, %{{[a-z0-9]+}} : tensor<?x200xf8E4M3FN>, tensor<4x160x200xf8E4M3FN>
  // CHECK-SAME: input_scale(%{{[a-z0-9]+}} : tensor<?x2xf32>) weight_scale(%{{[a-z0-9]+}} : tensor<4x2x2xf32>)
  // CHECK-SAME: offsets(%{{[a-z0-9]+}} : tensor<5xi32>) source(%{{[a-z0-9]+}} : tensor<?xi32>)
  // CHECK: -> tensor<?x80xbf16>
  %0 = moe.grouped_matmul %q, %w13 : tensor<?x200xf8E4M3FN>, tensor<4x160x200xf8E4M3FN>
      input_scale(%s : tensor<?x2xf32>) weight_scale(%halves : tensor<4x2x2xf32>)
      offsets(%offsets : tensor<5xi32>) source(%source : tensor<?xi32>)
      epilogue {
      ^bb0(%gate: f32, %up: f32):
        %y = arith.mulf %gate, %up : f32
        moe.yield %y : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, layout = #moe.weight_layout<order = up_gate>} -> tensor<?x80xbf16>
  // CHECK: input_scale(%{{[a-z0-9]+}} : tensor<?x2xf32>) weight_scale(%{{[a-z0-9]+}} : tensor<2x2xf32>)
  // CHECK: -> tensor<?x80xf16>
  %1 = moe.grouped_matmul %q, %shared : tensor<?x200xf8E4M3FN>, tensor<160x200xf8E4M3FN>
      input_scale(%s : tensor<?x2xf32>) weight_scale(%mixed : tensor<2x2xf32>)
      epilogue {
      ^bb0(%gate: f32, %up: f32):
        %y = arith.mulf %gate, %up : f32
        moe.yield %y : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, layout = #moe.weight_layout<order = interleaved>} -> tensor<?x80xf16>
  // CHECK: moe.grouped_matmul %{{[a-z0-9]+}}, %{{[a-z0-9]+}} : tensor<?x200xf8E4M3FN>, tensor<160x200xf8E4M3FN>
  // CHECK-SAME: input_scale(%{{[a-z0-9]+}} : tensor<?x2xf32>) weight_scale(%{{[a-z0-9]+}} : tensor<2x2xf32>) {input_quant = {{.*}}, weight_quant = {{.*}}} -> tensor<?x160xf32>
  %2 = moe.grouped_matmul %q, %shared : tensor<?x200xf8E4M3FN>, tensor<160x200xf8E4M3FN>
      input_scale(%s : tensor<?x2xf32>) weight_scale(%mixed : tensor<2x2xf32>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>} -> tensor<?x160xf32>
  return
}

// A scale shared by all rows is static, or dynamic from an earlier op.
// CHECK-LABEL: func.func @one_scale
func.func @one_scale(%x: tensor<?x200xbf16>, %h: tensor<?x256xf32>, %given: tensor<1xf32>, %offsets: tensor<5xi32>,
    %valid: tensor<1xi32>, %w: tensor<160x200xf8E4M3FN>, %ws: tensor<160x1xf32>) {
  // CHECK: moe.quantize <storage = f8E4M3FN, scale = f32, granularity = tensor> %{{[a-z0-9]+}} tensor_scale(%{{[a-z0-9]+}} : tensor<1xf32>) : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>{{$}}
  %q = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = tensor> %x tensor_scale(%given : tensor<1xf32>)
      : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>
  // CHECK: moe.tensor_scale <{{.*}}dynamic = true> %{{[a-z0-9]+}} num_valid_tokens(%{{[a-z0-9]+}} : tensor<1xi32>) : tensor<?x200xbf16> -> tensor<1xf32>
  %s = moe.tensor_scale <storage = f8E4M3FN, scale = f32, granularity = tensor, dynamic = true> %x
      num_valid_tokens(%valid : tensor<1xi32>) : tensor<?x200xbf16> -> tensor<1xf32>
  // CHECK: %hidden_scale = moe.tensor_scale <{{.*}}> %{{[a-z0-9]+}} offsets(%{{[a-z0-9]+}} : tensor<5xi32>) {moe.name = ["hidden_scale"], top_k = 2 : i64} : tensor<?x256xf32> -> tensor<1xf32>
  %t = moe.tensor_scale <storage = f8E4M3FN, scale = f32, granularity = tensor, dynamic = true> %h
      offsets(%offsets : tensor<5xi32>) {moe.name = ["hidden_scale"], top_k = 2 : i64} : tensor<?x256xf32> -> tensor<1xf32>
  // CHECK: moe.quantize <{{.*}}> %{{[a-z0-9]+}} offsets(%{{[a-z0-9]+}} : tensor<5xi32>) tensor_scale(%hidden_scale : tensor<1xf32>) {top_k = 2 : i64} : tensor<?x256xf32> -> tensor<?x256xf8E4M3FN>
  %r = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = tensor> %h offsets(%offsets : tensor<5xi32>)
      tensor_scale(%t : tensor<1xf32>) {top_k = 2 : i64} : tensor<?x256xf32> -> tensor<?x256xf8E4M3FN>
  // CHECK: moe.grouped_matmul {{.*}} input_scale(%{{[a-z0-9]+}} : tensor<1xf32>) weight_scale(%{{[a-z0-9]+}} : tensor<160x1xf32>)
  // CHECK-SAME: strategy = #moe.strategy<native>
  %0 = moe.grouped_matmul %q, %w : tensor<?x200xf8E4M3FN>, tensor<160x200xf8E4M3FN>
      input_scale(%s : tensor<1xf32>) weight_scale(%ws : tensor<160x1xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>,
       weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>, strategy = #moe.strategy<native>} -> tensor<?x160xbf16>
  return
}
