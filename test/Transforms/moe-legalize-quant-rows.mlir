// Rows of e4m3 or int8 are kept as bf16 if tensor cores multiply them with some weights only, or faster, as bf16.
// Other targets use the quantized rows.

// RUN: moe-opt %s --pass-pipeline='builtin.module(func.func(moe-legalize-quant{target=sm_90a}))' | FileCheck %s
// RUN: moe-opt %s --pass-pipeline='builtin.module(func.func(moe-legalize-quant{target=sm_80}))' | FileCheck %s --check-prefix=OTHERS
// RUN: moe-opt %s --pass-pipeline='builtin.module(func.func(moe-legalize-quant))' | FileCheck %s --check-prefix=OTHERS
// RUN: moe-opt %s --pass-pipeline='builtin.module(func.func(moe-legalize-quant{target=sm_90a}),convert-moe-to-plan,convert-plan-to-tile)' | FileCheck %s --check-prefix=TILE

// OTHERS-NOT: packing = bf16

#token = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>
#int8 = #moe.quant<storage = i8, scale = f32, granularity = token, dynamic = true>
#given = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>
#mxfp8 = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 32], dynamic = true, power_of_two = true>
#group = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>
#nvfp4 = #moe.quant<storage = f4E2M1FN, scale = f8E4M3FN, granularity = group, block = [1, 16], packing = pairs, second_scale = f32>
#mxfp4 = #moe.quant<storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs>
#int4 = #moe.quant<storage = i4, scale = bf16, granularity = group, block = [1, 128], packing = pairs>
#points = #moe.quant<storage = i4, scale = bf16, granularity = group, block = [1, 128], zero_point = true, packing = pairs>
#slow = #moe.quant<storage = i4, scale = bf16, granularity = group, block = [1, 32], packing = pairs>
#halves = #moe.quant<storage = i4, scale = f16, granularity = group, block = [1, 32], packing = pairs>
#bytes = #moe.quant<storage = f8E4M3FN, scale = f8E8M0FNU, granularity = group, block = [1, 32]>
#channel = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>

// CHECK-LABEL: func.func @nvfp4
// CHECK:         %[[Q:.*]], %[[QS:.*]] = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true, packing = bf16> %{{.*}} {moe.name = ["x_quantized", "x_scale"]}
// CHECK-SAME:      : tensor<?x128xbf16> -> tensor<?x128xbf16>, tensor<?x1xf32>
// CHECK-NOT:     moe.quantize
// CHECK:         moe.prepack {{.*}}-> tensor<192x64xi8>, tensor<192x8xi8>, tensor<192xf32>
// CHECK-NOT:     moe.quantize
// CHECK:         moe.grouped_matmul %[[Q]], %{{.*}} : tensor<?x128xbf16>, tensor<192x64xi8> input_scale(%[[QS]] : tensor<?x1xf32>)
// CHECK-SAME:      input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true, packing = bf16>
// CHECK-SAME:      strategy = #moe.strategy<prepack>, weight_quant = #moe.quant<{{.*}}packing = prepacked, second_scale = f32>
// TILE-LABEL: plan.program @nvfp4
// TILE:         plan.buffer "x_quantized" {{.*}} : memref<?x128xbf16>
// TILE:       tile.quantize <{{.*}}packing = bf16> {{.*}} outs(%{{.*}}, %{{.*}} : memref<?x128xbf16>, memref<?x1xf32>)
func.func @nvfp4(%x: tensor<?x128xbf16> {moe.name = "x", moe.role = "input"},
    %w: tensor<192x64xi8> {moe.name = "w", moe.role = "weight"},
    %s: tensor<192x8xf8E4M3FN> {moe.name = "s", moe.role = "weight"},
    %g: tensor<1xf32> {moe.name = "g", moe.role = "weight"}) -> (tensor<?x192xbf16> {moe.name = "output"}) {
  %q, %a = moe.quantize #token %x {moe.name = ["x_quantized", "x_scale"]} : tensor<?x128xbf16> -> tensor<?x128xf8E4M3FN>, tensor<?x1xf32>
  %y = moe.grouped_matmul %q, %w : tensor<?x128xf8E4M3FN>, tensor<192x64xi8> input_scale(%a : tensor<?x1xf32>)
      weight_scale(%s : tensor<192x8xf8E4M3FN>) weight_global_scale(%g : tensor<1xf32>)
      {input_quant = #token, weight_quant = #nvfp4, moe.name = ["y"]} -> tensor<?x192xbf16>
  return %y : tensor<?x192xbf16>
}

// Integers too, which as e4m3 would take A from registers.
// CHECK-LABEL: func.func @int8
// CHECK:         moe.quantize <storage = i8, scale = f32, granularity = token, dynamic = true, packing = bf16>
// CHECK:         strategy = #moe.strategy<prepack>
func.func @int8(%x: tensor<?x128xbf16> {moe.name = "x", moe.role = "input"},
    %w: tensor<192x64xi8> {moe.name = "w", moe.role = "weight"},
    %s: tensor<192x1xbf16> {moe.name = "s", moe.role = "weight"}) -> (tensor<?x192xbf16> {moe.name = "output"}) {
  %q, %a = moe.quantize #int8 %x : tensor<?x128xbf16> -> tensor<?x128xi8>, tensor<?x1xf32>
  %y = moe.grouped_matmul %q, %w : tensor<?x128xi8>, tensor<192x64xi8> input_scale(%a : tensor<?x1xf32>)
      weight_scale(%s : tensor<192x1xbf16>) {input_quant = #int8, weight_quant = #int4, moe.name = ["y"]} -> tensor<?x192xbf16>
  return %y : tensor<?x192xbf16>
}

// With groups of 32 in e4m3, each instruction has a separate sum: int4 is faster in bf16, unless a scale is the sum
// of two bf16; 8-bit values are not.
// CHECK-LABEL: func.func @sums
// CHECK-DAG:     %[[B:.*]], %[[BS:.*]] = moe.quantize {{.*}}packing = bf16> %{{.*}} -> tensor<?x128xbf16>, tensor<?x1xf32>
// CHECK-DAG:     %[[Q:.*]], %[[QS:.*]] = moe.quantize {{.*}}dynamic = true> %{{.*}} -> tensor<?x128xf8E4M3FN>, tensor<?x1xf32>
// CHECK:         moe.grouped_matmul %[[B]], %{{.*}} input_scale(%[[BS]] : {{.*}}moe.name = ["one"], {{.*}}packing = prepacked,
// CHECK:         moe.grouped_matmul %[[Q]], %{{.*}} input_scale(%[[QS]] : {{.*}}moe.name = ["two"], {{.*}}packing = prepacked_e4m3,
// CHECK:         moe.grouped_matmul %[[Q]], %{{.*}} input_scale(%[[QS]] : {{.*}}moe.name = ["three"], {{.*}}packing = prepacked_e4m3,
func.func @sums(%x: tensor<?x128xbf16> {moe.name = "x", moe.role = "input"},
    %u: tensor<192x64xi8> {moe.name = "u", moe.role = "weight"}, %us: tensor<192x4xbf16> {moe.name = "us", moe.role = "weight"},
    %v: tensor<192x64xi8> {moe.name = "v", moe.role = "weight"}, %vs: tensor<192x4xf16> {moe.name = "vs", moe.role = "weight"},
    %w: tensor<192x128xf8E4M3FN> {moe.name = "w", moe.role = "weight"},
    %ws: tensor<192x4xf8E8M0FNU> {moe.name = "ws", moe.role = "weight"})
    -> (tensor<?x192xbf16> {moe.name = "one"}, tensor<?x192xbf16> {moe.name = "two"}, tensor<?x192xbf16> {moe.name = "three"}) {
  %q, %a = moe.quantize #token %x {moe.name = ["x_quantized", "x_scale"]} : tensor<?x128xbf16> -> tensor<?x128xf8E4M3FN>, tensor<?x1xf32>
  %0 = moe.grouped_matmul %q, %u : tensor<?x128xf8E4M3FN>, tensor<192x64xi8> input_scale(%a : tensor<?x1xf32>)
      weight_scale(%us : tensor<192x4xbf16>) {input_quant = #token, weight_quant = #slow, moe.name = ["one"]} -> tensor<?x192xbf16>
  %1 = moe.grouped_matmul %q, %v : tensor<?x128xf8E4M3FN>, tensor<192x64xi8> input_scale(%a : tensor<?x1xf32>)
      weight_scale(%vs : tensor<192x4xf16>) {input_quant = #token, weight_quant = #halves, moe.name = ["two"]} -> tensor<?x192xbf16>
  %2 = moe.grouped_matmul %q, %w : tensor<?x128xf8E4M3FN>, tensor<192x128xf8E4M3FN> input_scale(%a : tensor<?x1xf32>)
      weight_scale(%ws : tensor<192x4xf8E8M0FNU>) {input_quant = #token, weight_quant = #bytes, moe.name = ["three"]} -> tensor<?x192xbf16>
  return %0, %1, %2 : tensor<?x192xbf16>, tensor<?x192xbf16>, tensor<?x192xbf16>
}

// A static scale, in a layer of f16.
// CHECK-LABEL: func.func @given
// CHECK:         %[[Q:.*]] = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = tensor, packing = bf16> %{{.*}} tensor_scale(%[[S:.*]] : tensor<1xf32>) : tensor<?x128xf16> -> tensor<?x128xbf16>
// CHECK:         moe.grouped_matmul %[[Q]], %{{.*}} input_scale(%[[S]] : tensor<1xf32>)
// CHECK-SAME:      packing = prepacked, {{.*}} -> tensor<?x192xf16>
func.func @given(%x: tensor<?x128xf16> {moe.name = "x", moe.role = "input"}, %a: tensor<1xf32> {moe.name = "a", moe.role = "weight"},
    %w: tensor<192x64xi8> {moe.name = "w", moe.role = "weight"},
    %s: tensor<192x1xbf16> {moe.name = "s", moe.role = "weight"},
    %z: tensor<192x1xi8> {moe.name = "z", moe.role = "weight"}) -> (tensor<?x192xf16> {moe.name = "output"}) {
  %q = moe.quantize #given %x tensor_scale(%a : tensor<1xf32>) : tensor<?x128xf16> -> tensor<?x128xf8E4M3FN>
  %y = moe.grouped_matmul %q, %w : tensor<?x128xf8E4M3FN>, tensor<192x64xi8> input_scale(%a : tensor<1xf32>)
      weight_scale(%s : tensor<192x1xbf16>) weight_zero_point(%z : tensor<192x1xi8>)
      {input_quant = #given, weight_quant = #points, moe.name = ["y"]} -> tensor<?x192xf16>
  return %y : tensor<?x192xf16>
}

// A power-of-two scale multiplies the values of its group, which are still exact in bf16.
// CHECK-LABEL: func.func @powers
// CHECK:         %[[Q:.*]] = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 32], dynamic = true, packing = bf16, power_of_two = true> %{{.*}} {moe.name = ["x_quantized"]} : tensor<?x128xbf16> -> tensor<?x128xbf16>
// CHECK:         moe.grouped_matmul %[[Q]], %{{.*}} : tensor<?x128xbf16>, tensor<192x128xi8> weight_scale(
// CHECK-NOT:       input_quant
// CHECK-SAME:      strategy = #moe.strategy<prepack>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f8E8M0FNU, {{.*}}packing = prepacked, second_scale = f32>
// TILE-LABEL: plan.program @powers
// TILE:       tile.quantize <{{.*}}packing = bf16, power_of_two = true> {{.*}} outs(%{{.*}} : memref<?x128xbf16>)
func.func @powers(%x: tensor<?x128xbf16> {moe.name = "x", moe.role = "input"},
    %w: tensor<192x128xf8E4M3FN> {moe.name = "w", moe.role = "weight"},
    %s: tensor<192x4xf8E8M0FNU> {moe.name = "s", moe.role = "weight"}) -> (tensor<?x192xbf16> {moe.name = "output"}) {
  %q, %a = moe.quantize #mxfp8 %x {moe.name = ["x_quantized", "x_scale"]} : tensor<?x128xbf16> -> tensor<?x128xf8E4M3FN>, tensor<?x4xf32>
  %y = moe.grouped_matmul %q, %w : tensor<?x128xf8E4M3FN>, tensor<192x128xf8E4M3FN> input_scale(%a : tensor<?x4xf32>)
      weight_scale(%s : tensor<192x4xf8E8M0FNU>)
      {input_quant = #mxfp8, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f8E8M0FNU, granularity = group, block = [1, 32]>,
       moe.name = ["y"]} -> tensor<?x192xbf16>
  return %y : tensor<?x192xbf16>
}

// Three gemms of the same rows: one reads the quantized rows, both others share the bf16 rows.
// CHECK-LABEL: func.func @shared
// CHECK-DAG:     %[[Q:.*]], %[[QS:.*]] = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true> %{{.*}} -> tensor<?x128xf8E4M3FN>, tensor<?x1xf32>
// CHECK-DAG:     %[[B:.*]], %[[BS:.*]] = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true, packing = bf16> %{{.*}} -> tensor<?x128xbf16>, tensor<?x1xf32>
// CHECK-NOT:     moe.quantize
// CHECK:         moe.grouped_matmul %[[Q]], %{{.*}} input_scale(%[[QS]] : {{.*}}strategy = #moe.strategy<native>
// CHECK:         moe.grouped_matmul %[[B]], %{{.*}} input_scale(%[[BS]] : {{.*}}strategy = #moe.strategy<prepack>
// CHECK:         moe.grouped_matmul %[[B]], %{{.*}} input_scale(%[[BS]] : {{.*}}strategy = #moe.strategy<prepack>
func.func @shared(%x: tensor<?x128xbf16> {moe.name = "x", moe.role = "input"},
    %v: tensor<192x128xf8E4M3FN> {moe.name = "v", moe.role = "weight"}, %c: tensor<192x1xf32> {moe.name = "c", moe.role = "weight"},
    %w: tensor<192x64xi8> {moe.name = "w", moe.role = "weight"},
    %s: tensor<192x1xbf16> {moe.name = "s", moe.role = "weight"}, %z: tensor<192x1xi8> {moe.name = "z", moe.role = "weight"},
    %w2: tensor<192x64xi8> {moe.name = "w2", moe.role = "weight"})
    -> (tensor<?x192xbf16> {moe.name = "one"}, tensor<?x192xbf16> {moe.name = "two"}, tensor<?x192xbf16> {moe.name = "three"}) {
  %q, %a = moe.quantize #token %x {moe.name = ["x_quantized", "x_scale"]} : tensor<?x128xbf16> -> tensor<?x128xf8E4M3FN>, tensor<?x1xf32>
  %0 = moe.grouped_matmul %q, %v : tensor<?x128xf8E4M3FN>, tensor<192x128xf8E4M3FN> input_scale(%a : tensor<?x1xf32>)
      weight_scale(%c : tensor<192x1xf32>) {input_quant = #token, weight_quant = #channel, moe.name = ["one"]} -> tensor<?x192xbf16>
  %1 = moe.grouped_matmul %q, %w : tensor<?x128xf8E4M3FN>, tensor<192x64xi8> input_scale(%a : tensor<?x1xf32>)
      weight_scale(%s : tensor<192x1xbf16>) weight_zero_point(%z : tensor<192x1xi8>)
      {input_quant = #token, weight_quant = #points, moe.name = ["two"]} -> tensor<?x192xbf16>
  %2 = moe.grouped_matmul %q, %w2 : tensor<?x128xf8E4M3FN>, tensor<192x64xi8> input_scale(%a : tensor<?x1xf32>)
      weight_scale(%s : tensor<192x1xbf16>) weight_zero_point(%z : tensor<192x1xi8>)
      {input_quant = #token, weight_quant = #points, moe.name = ["three"]} -> tensor<?x192xbf16>
  return %0, %1, %2 : tensor<?x192xbf16>, tensor<?x192xbf16>, tensor<?x192xbf16>
}

// Rows stay quantized if there is a native instruction, if group scales are not powers of two, or if the caller
// quantized them.
// CHECK-LABEL: func.func @codes
// CHECK-NOT:     packing = bf16
// CHECK:         strategy = #moe.strategy<prepack>, weight_quant = {{.*}} packing = prepacked_e4m3
// CHECK-NOT:     packing = bf16
// CHECK:         strategy = #moe.strategy<dequantize>
// CHECK-NOT:     packing = bf16
// CHECK:         strategy = #moe.strategy<dequantize>
// CHECK-NOT:     packing = bf16
// CHECK:       return
func.func @codes(%x: tensor<?x128xbf16> {moe.name = "x", moe.role = "input"},
    %c: tensor<?x128xf8E4M3FN> {moe.name = "c", moe.role = "input"}, %cs: tensor<?x1xf32> {moe.name = "cs", moe.role = "input"},
    %v: tensor<192x64xi8> {moe.name = "v", moe.role = "weight"}, %vs: tensor<192x4xf8E8M0FNU> {moe.name = "vs", moe.role = "weight"},
    %w: tensor<192x64xi8> {moe.name = "w", moe.role = "weight"},
    %s: tensor<192x1xbf16> {moe.name = "s", moe.role = "weight"}, %z: tensor<192x1xi8> {moe.name = "z", moe.role = "weight"})
    -> (tensor<?x192xbf16> {moe.name = "one"}, tensor<?x192xbf16> {moe.name = "two"}, tensor<?x192xbf16> {moe.name = "three"}) {
  %q, %a = moe.quantize #token %x : tensor<?x128xbf16> -> tensor<?x128xf8E4M3FN>, tensor<?x1xf32>
  %0 = moe.grouped_matmul %q, %v : tensor<?x128xf8E4M3FN>, tensor<192x64xi8> input_scale(%a : tensor<?x1xf32>)
      weight_scale(%vs : tensor<192x4xf8E8M0FNU>) {input_quant = #token, weight_quant = #mxfp4, moe.name = ["one"]} -> tensor<?x192xbf16>
  %r, %b = moe.quantize #group %x : tensor<?x128xbf16> -> tensor<?x128xf8E4M3FN>, tensor<?x1xf32>
  %1 = moe.grouped_matmul %r, %w : tensor<?x128xf8E4M3FN>, tensor<192x64xi8> input_scale(%b : tensor<?x1xf32>)
      weight_scale(%s : tensor<192x1xbf16>) weight_zero_point(%z : tensor<192x1xi8>)
      {input_quant = #group, weight_quant = #points, moe.name = ["two"]} -> tensor<?x192xbf16>
  %2 = moe.grouped_matmul %c, %w : tensor<?x128xf8E4M3FN>, tensor<192x64xi8> input_scale(%cs : tensor<?x1xf32>)
      weight_scale(%s : tensor<192x1xbf16>) weight_zero_point(%z : tensor<192x1xi8>)
      {input_quant = #token, weight_quant = #points, moe.name = ["three"]} -> tensor<?x192xbf16>
  return %0, %1, %2 : tensor<?x192xbf16>, tensor<?x192xbf16>, tensor<?x192xbf16>
}
