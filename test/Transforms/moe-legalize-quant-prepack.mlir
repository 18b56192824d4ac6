// Weights of 4 or 8 bits are prepacked for Hopper if they are whole tiles of 64 x 64 and the input is bf16 or f16, or
// e4m3 by row with weights of 4 bits or e4m3; otherwise, and on other targets, they are dequantized directly.

// RUN: moe-opt %s --pass-pipeline='builtin.module(func.func(moe-legalize-quant{target=sm_90a}))' | FileCheck %s
// RUN: moe-opt %s --pass-pipeline='builtin.module(func.func(moe-legalize-quant{target=sm_80}))' | FileCheck %s --check-prefix=SM80
// RUN: moe-opt %s --pass-pipeline='builtin.module(func.func(moe-legalize-quant{target=sm_90a}),convert-moe-to-plan)' | FileCheck %s --check-prefix=PLAN
// RUN: moe-opt %s --pass-pipeline='builtin.module(func.func(moe-legalize-quant{target=sm_90a}),convert-moe-to-plan,convert-plan-to-tile)' | FileCheck %s --check-prefix=TILE

#mxfp4 = #moe.quant<storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs>

// SM80-NOT: moe.prepack

// CHECK-LABEL: func.func @whole
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?x128xbf16> {moe.name = "x", moe.role = "input"}
// CHECK-SAME:    %[[W:[^:]*]]: tensor<192x64xi8> {moe.name = "w", moe.role = "weight"}
// CHECK:         %[[P:.*]], %[[PS:.*]], %[[R:.*]] = moe.prepack <storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs> %[[W]], %{{.*}} {moe.name = ["w_prepacked", "w_prepacked_scale", "w_row_scale"]}
// CHECK-SAME:      : tensor<192x64xi8>, tensor<192x4xf8E8M0FNU> -> tensor<192x64xi8>, tensor<192x4xi8>, tensor<192xf32>
// CHECK:         moe.grouped_matmul %[[X]], %[[P]] : {{.*}} weight_scale(%[[PS]] : tensor<192x4xi8>) weight_global_scale(%[[R]] : tensor<192xf32>)
// CHECK-SAME:      strategy = #moe.strategy<prepack>, weight_quant = #moe.quant<{{.*}}packing = prepacked, second_scale = f32>

// The plan prepacks once, before all runs, into prepared tensors.
// PLAN:      plan.program @whole
// PLAN:        %[[P:.*]] = plan.tensor prepared "w_prepacked" : memref<192x64xi8>
// PLAN:        %[[S:.*]] = plan.tensor prepared "w_prepacked_scale" : memref<192x4xi8>
// PLAN:        %[[R:.*]] = plan.tensor prepared "w_row_scale" : memref<192xf32>
// PLAN:        plan.prepare {
// PLAN-NEXT:     plan.launch @repack ins(%{{.*}}, %{{.*}} : memref<192x64xi8>, memref<192x4xf8E8M0FNU>) outs(%[[P]], %[[S]], %[[R]] :
// PLAN:        plan.variant
// PLAN-NEXT:     plan.launch @y ins(%{{.*}}, %[[P]], %[[S]], %[[R]] :
// PLAN:      plan.kernel @repack(

// TILE:      tile.kernel @repack
// TILE:        tile.prepack <{{.*}}> tokens(%{{.*}}) ins(%{{.*}}, %{{.*}} : memref<192x64xi8>, memref<192x4xf8E8M0FNU>) outs(
// TILE:      tile.kernel @y
// TILE:        tile.gemm
// TILE-SAME:     weight_global_scale(%{{.*}} : memref<192xf32>)
func.func @whole(%x: tensor<?x128xbf16> {moe.name = "x", moe.role = "input"},
    %w: tensor<192x64xi8> {moe.name = "w", moe.role = "weight", moe.strided},
    %s: tensor<192x4xf8E8M0FNU> {moe.name = "s", moe.role = "weight"}) -> (tensor<?x192xbf16> {moe.name = "output"}) {
  %y = moe.grouped_matmul %x, %w : tensor<?x128xbf16>, tensor<192x64xi8> weight_scale(%s : tensor<192x4xf8E8M0FNU>)
      {weight_quant = #mxfp4, moe.name = ["y"]} -> tensor<?x192xbf16>
  return %y : tensor<?x192xbf16>
}

// Zero points are stored beside scales, and the gemm has no zero points.
// CHECK-LABEL: func.func @zero_points
// CHECK:         %[[P:.*]], %[[PS:.*]], %[[R:.*]] = moe.prepack {{.*}} zero_point(%{{.*}} : tensor<192x1xi8>) {{.*}} -> tensor<192x64xi8>, tensor<192x4xi8>, tensor<192xf32>
// CHECK:         moe.grouped_matmul {{.*}} weight_scale(%[[PS]] : tensor<192x4xi8>) weight_global_scale(%[[R]] : tensor<192xf32>)
// CHECK-NOT:       weight_zero_point
// CHECK-SAME:      strategy = #moe.strategy<prepack>, weight_quant = #moe.quant<storage = i4, scale = bf16, granularity = group, block = [1, 128], zero_point = true, packing = prepacked, second_scale = f32>
func.func @zero_points(%x: tensor<?x128xbf16> {moe.name = "x", moe.role = "input"},
    %w: tensor<192x64xi8> {moe.name = "w", moe.role = "weight"},
    %s: tensor<192x1xbf16> {moe.name = "s", moe.role = "weight"},
    %z: tensor<192x1xi8> {moe.name = "z", moe.role = "weight"}) -> (tensor<?x192xbf16> {moe.name = "output"}) {
  %y = moe.grouped_matmul %x, %w : tensor<?x128xbf16>, tensor<192x64xi8> weight_scale(%s : tensor<192x1xbf16>)
      weight_zero_point(%z : tensor<192x1xi8>)
      {weight_quant = #moe.quant<storage = i4, scale = bf16, granularity = group, block = [1, 128], zero_point = true, packing = pairs>,
       moe.name = ["y"]} -> tensor<?x192xbf16>
  return %y : tensor<?x192xbf16>
}

// A global scale becomes part of each row's factor.
// CHECK-LABEL: func.func @global_scale
// CHECK:         moe.prepack {{.*}} global_scale(%{{.*}} : tensor<1xf32>) {{.*}} -> tensor<192x64xi8>, tensor<192x8xi8>, tensor<192xf32>
// CHECK:         strategy = #moe.strategy<prepack>
func.func @global_scale(%x: tensor<?x128xbf16> {moe.name = "x", moe.role = "input"},
    %w: tensor<192x64xi8> {moe.name = "w", moe.role = "weight"},
    %s: tensor<192x8xf8E4M3FN> {moe.name = "s", moe.role = "weight"},
    %g: tensor<1xf32> {moe.name = "g", moe.role = "weight"}) -> (tensor<?x192xbf16> {moe.name = "output"}) {
  %y = moe.grouped_matmul %x, %w : tensor<?x128xbf16>, tensor<192x64xi8> weight_scale(%s : tensor<192x8xf8E4M3FN>)
      weight_global_scale(%g : tensor<1xf32>)
      {weight_quant = #moe.quant<storage = f4E2M1FN, scale = f8E4M3FN, granularity = group, block = [1, 16], packing = pairs, second_scale = f32>,
       moe.name = ["y"]} -> tensor<?x192xbf16>
  return %y : tensor<?x192xbf16>
}

// Scales of f32 have zero points beside them, too.
// CHECK-LABEL: func.func @single_zero_points
// CHECK:         moe.prepack {{.*}} zero_point(%{{.*}} : tensor<192x1xi8>) {{.*}} -> tensor<192x64xi8>, tensor<192x6xi8>, tensor<192xf32>
// CHECK:         strategy = #moe.strategy<prepack>
func.func @single_zero_points(%x: tensor<?x128xbf16> {moe.name = "x", moe.role = "input"},
    %w: tensor<192x64xi8> {moe.name = "w", moe.role = "weight"},
    %s: tensor<192x1xf32> {moe.name = "s", moe.role = "weight"},
    %z: tensor<192x1xi8> {moe.name = "z", moe.role = "weight"}) -> (tensor<?x192xbf16> {moe.name = "output"}) {
  %y = moe.grouped_matmul %x, %w : tensor<?x128xbf16>, tensor<192x64xi8> weight_scale(%s : tensor<192x1xf32>)
      weight_zero_point(%z : tensor<192x1xi8>)
      {weight_quant = #moe.quant<storage = i4, scale = f32, granularity = group, block = [1, 128], zero_point = true, packing = pairs>,
       moe.name = ["y"]} -> tensor<?x192xbf16>
  return %y : tensor<?x192xbf16>
}

// Scales of f16 stay f16.
// CHECK-LABEL: func.func @half_scales
// CHECK:         moe.prepack {{.*}} {moe.name = [{{.*}}]} : tensor<192x64xi8>, tensor<192x1xf16> -> tensor<192x64xi8>, tensor<192x2xi8>, tensor<192xf32>
// CHECK:         strategy = #moe.strategy<prepack>, weight_quant = #moe.quant<storage = i4, scale = f16, granularity = group, block = [1, 128], packing = prepacked, second_scale = f32>
func.func @half_scales(%x: tensor<?x128xbf16> {moe.name = "x", moe.role = "input"},
    %w: tensor<192x64xi8> {moe.name = "w", moe.role = "weight"},
    %s: tensor<192x1xf16> {moe.name = "s", moe.role = "weight"}) -> (tensor<?x192xbf16> {moe.name = "output"}) {
  %y = moe.grouped_matmul %x, %w : tensor<?x128xbf16>, tensor<192x64xi8> weight_scale(%s : tensor<192x1xf16>)
      {weight_quant = #moe.quant<storage = i4, scale = f16, granularity = group, block = [1, 128], packing = pairs>,
       moe.name = ["y"]} -> tensor<?x192xbf16>
  return %y : tensor<?x192xbf16>
}

// Inputs of f16 have another packing, which the plan's launch and the phase carry.
// CHECK-LABEL: func.func @halves
// CHECK:         moe.prepack {{.*}} {moe.name = [{{.*}}], packing = #moe.packing<prepacked_f16>} : tensor<192x64xi8>, tensor<192x1xf16> -> tensor<192x64xi8>, tensor<192x2xi8>, tensor<192xf32>
// CHECK:         strategy = #moe.strategy<prepack>, weight_quant = #moe.quant<storage = i4, scale = f16, granularity = group, block = [1, 128], packing = prepacked_f16, second_scale = f32>
// TILE-LABEL: plan.program @halves
// TILE:         tile.prepack <{{.*}}> {{.*}}, packing = #moe.packing<prepacked_f16>}
func.func @halves(%x: tensor<?x128xf16> {moe.name = "x", moe.role = "input"},
    %w: tensor<192x64xi8> {moe.name = "w", moe.role = "weight"},
    %s: tensor<192x1xf16> {moe.name = "s", moe.role = "weight"}) -> (tensor<?x192xf16> {moe.name = "output"}) {
  %y = moe.grouped_matmul %x, %w : tensor<?x128xf16>, tensor<192x64xi8> weight_scale(%s : tensor<192x1xf16>)
      {weight_quant = #moe.quant<storage = i4, scale = f16, granularity = group, block = [1, 128], packing = pairs>,
       moe.name = ["y"]} -> tensor<?x192xf16>
  return %y : tensor<?x192xf16>
}

// Inputs of e4m3 with a scale for each row, too.
// CHECK-LABEL: func.func @bytes
// CHECK:         moe.prepack {{.*}} {moe.name = [{{.*}}], packing = #moe.packing<prepacked_e4m3>} : tensor<192x64xi8>, tensor<192x4xf8E8M0FNU> -> tensor<192x64xi8>, tensor<192x4xi8>, tensor<192xf32>
// CHECK:         input_scale(%{{.*}} : tensor<?x1xf32>)
// CHECK-SAME:    strategy = #moe.strategy<prepack>, weight_quant = #moe.quant<storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = prepacked_e4m3, second_scale = f32>
// TILE-LABEL: plan.program @bytes
// TILE:         tile.prepack <{{.*}}> {{.*}}, packing = #moe.packing<prepacked_e4m3>}
func.func @bytes(%x: tensor<?x128xf8E4M3FN> {moe.name = "x", moe.role = "input"},
    %xs: tensor<?x1xf32> {moe.name = "xs", moe.role = "input"},
    %w: tensor<192x64xi8> {moe.name = "w", moe.role = "weight"},
    %s: tensor<192x4xf8E8M0FNU> {moe.name = "s", moe.role = "weight"}) -> (tensor<?x192xbf16> {moe.name = "output"}) {
  %y = moe.grouped_matmul %x, %w : tensor<?x128xf8E4M3FN>, tensor<192x64xi8> input_scale(%xs : tensor<?x1xf32>)
      weight_scale(%s : tensor<192x4xf8E8M0FNU>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>, weight_quant = #mxfp4,
       moe.name = ["y"]} -> tensor<?x192xbf16>
  return %y : tensor<?x192xbf16>
}

// Inputs with scales by group, not by row.
// CHECK-LABEL: func.func @groups
// CHECK-NOT:     moe.prepack
// CHECK:         strategy = #moe.strategy<dequantize>
func.func @groups(%x: tensor<?x128xf8E4M3FN> {moe.name = "x", moe.role = "input"},
    %xs: tensor<?x1xf32> {moe.name = "xs", moe.role = "input"},
    %w: tensor<192x64xi8> {moe.name = "w", moe.role = "weight"},
    %s: tensor<192x4xf8E8M0FNU> {moe.name = "s", moe.role = "weight"}) -> (tensor<?x192xbf16> {moe.name = "output"}) {
  %y = moe.grouped_matmul %x, %w : tensor<?x128xf8E4M3FN>, tensor<192x64xi8> input_scale(%xs : tensor<?x1xf32>)
      weight_scale(%s : tensor<192x4xf8E8M0FNU>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #mxfp4,
       moe.name = ["y"]} -> tensor<?x192xbf16>
  return %y : tensor<?x192xbf16>
}

// Scales of f32 become f16 in this packing.
// CHECK-LABEL: func.func @digits
// CHECK:         moe.prepack {{.*}} packing = #moe.packing<prepacked_f16>} : tensor<192x64xi8>, tensor<192x1xf32> -> tensor<192x64xi8>, tensor<192x2xi8>, tensor<192xf32>
// CHECK:         strategy = #moe.strategy<prepack>
func.func @digits(%x: tensor<?x128xf16> {moe.name = "x", moe.role = "input"},
    %w: tensor<192x64xi8> {moe.name = "w", moe.role = "weight"},
    %s: tensor<192x1xf32> {moe.name = "s", moe.role = "weight"}) -> (tensor<?x192xf16> {moe.name = "output"}) {
  %y = moe.grouped_matmul %x, %w : tensor<?x128xf16>, tensor<192x64xi8> weight_scale(%s : tensor<192x1xf32>)
      {weight_quant = #moe.quant<storage = i4, scale = f32, granularity = group, block = [1, 128], packing = pairs>,
       moe.name = ["y"]} -> tensor<?x192xf16>
  return %y : tensor<?x192xf16>
}

// Minima, as in GGUF's q4_K, are stored beside scales too, and their phase takes values of the scales' type.
// CHECK-LABEL: func.func @minima
// CHECK:         %[[P:.*]], %[[PS:.*]], %[[R:.*]] = moe.prepack {{.*}} zero_point(%{{.*}} : tensor<192x4xf32>) {{.*}} -> tensor<192x64xi8>, tensor<192x32xi8>, tensor<192xf32>
// CHECK:         moe.grouped_matmul {{.*}} weight_scale(%[[PS]] : tensor<192x32xi8>) weight_global_scale(%[[R]] : tensor<192xf32>)
// CHECK-NOT:       weight_zero_point
// CHECK-SAME:      strategy = #moe.strategy<prepack>, weight_quant = #moe.quant<storage = i4, scale = f32, granularity = group, block = [1, 32], packing = prepacked, second_scale = f32, minimum = true>
// TILE-LABEL: plan.program @minima
// TILE:         tile.prepack <{{.*}}> {{.*}} zero_point(%{{.*}} : memref<192x4xf32>)
func.func @minima(%x: tensor<?x128xbf16> {moe.name = "x", moe.role = "input"},
    %w: tensor<192x64xi8> {moe.name = "w", moe.role = "weight"},
    %s: tensor<192x4xf32> {moe.name = "s", moe.role = "weight"},
    %m: tensor<192x4xf32> {moe.name = "m", moe.role = "weight"}) -> (tensor<?x192xbf16> {moe.name = "output"}) {
  %y = moe.grouped_matmul %x, %w : tensor<?x128xbf16>, tensor<192x64xi8> weight_scale(%s : tensor<192x4xf32>)
      weight_zero_point(%m : tensor<192x4xf32>)
      {weight_quant = #moe.quant<storage = i4, scale = f32, granularity = group, block = [1, 32], packing = pairs, minimum = true>,
       moe.name = ["y"]} -> tensor<?x192xbf16>
  return %y : tensor<?x192xbf16>
}

// Minima of few elements.
// CHECK-LABEL: func.func @few_minima
// CHECK:         moe.prepack {{.*}} zero_point(%{{.*}} : tensor<192x8xbf16>) {{.*}} -> tensor<192x128xi8>, tensor<192x64xi8>, tensor<192xf32>
// CHECK:         strategy = #moe.strategy<prepack>
func.func @few_minima(%x: tensor<?x128xbf16> {moe.name = "x", moe.role = "input"},
    %w: tensor<192x128xi8> {moe.name = "w", moe.role = "weight"},
    %s: tensor<192x8xbf16> {moe.name = "s", moe.role = "weight"},
    %m: tensor<192x8xbf16> {moe.name = "m", moe.role = "weight"}) -> (tensor<?x192xbf16> {moe.name = "output"}) {
  %y = moe.grouped_matmul %x, %w : tensor<?x128xbf16>, tensor<192x128xi8> weight_scale(%s : tensor<192x8xbf16>)
      weight_zero_point(%m : tensor<192x8xbf16>)
      {weight_quant = #moe.quant<storage = i8, scale = bf16, granularity = group, block = [1, 16], minimum = true>,
       moe.name = ["y"]} -> tensor<?x192xbf16>
  return %y : tensor<?x192xbf16>
}

// Groups of 16 with f32 scales, as in q6_K; a code book.
// CHECK-LABEL: func.func @few
// CHECK:         moe.prepack {{.*}} -> tensor<192x128xi8>, tensor<192x32xi8>, tensor<192xf32>
// CHECK:         strategy = #moe.strategy<prepack>
func.func @few(%x: tensor<?x128xbf16> {moe.name = "x", moe.role = "input"},
    %w: tensor<192x128xi8> {moe.name = "w", moe.role = "weight"},
    %s: tensor<192x8xf32> {moe.name = "s", moe.role = "weight"}) -> (tensor<?x192xbf16> {moe.name = "output"}) {
  %y = moe.grouped_matmul %x, %w : tensor<?x128xbf16>, tensor<192x128xi8> weight_scale(%s : tensor<192x8xf32>)
      {weight_quant = #moe.quant<storage = i8, scale = f32, granularity = group, block = [1, 16]>,
       moe.name = ["y"]} -> tensor<?x192xbf16>
  return %y : tensor<?x192xbf16>
}

// CHECK-LABEL: func.func @book
// CHECK:         moe.prepack {{.*}} -> tensor<192x64xi8>, tensor<192x8xi8>, tensor<192xf32>
// CHECK:         strategy = #moe.strategy<prepack>, weight_quant = #moe.quant<storage = !moe.nf4, {{.*}}packing = prepacked,
func.func @book(%x: tensor<?x128xbf16> {moe.name = "x", moe.role = "input"},
    %w: tensor<192x64xi8> {moe.name = "w", moe.role = "weight"},
    %s: tensor<192x2xf32> {moe.name = "s", moe.role = "weight"}) -> (tensor<?x192xbf16> {moe.name = "output"}) {
  %y = moe.grouped_matmul %x, %w : tensor<?x128xbf16>, tensor<192x64xi8> weight_scale(%s : tensor<192x2xf32>)
      {weight_quant = #moe.quant<storage = !moe.nf4, scale = f32, granularity = group, block = [1, 64], packing = pairs>,
       moe.name = ["y"]} -> tensor<?x192xbf16>
  return %y : tensor<?x192xbf16>
}

// Rows of 8-bit values may be longer than a CTA can hold when it prepacks them.
// CHECK-LABEL: func.func @long
// CHECK:         moe.prepack {{.*}} : tensor<192x7168xf8E4M3FN>, tensor<2x56xf32> -> tensor<192x7168xi8>, tensor<192x448xi8>, tensor<192xf32>
// CHECK:         strategy = #moe.strategy<prepack>
func.func @long(%x: tensor<?x7168xbf16> {moe.name = "x", moe.role = "input"},
    %w: tensor<192x7168xf8E4M3FN> {moe.name = "w", moe.role = "weight"},
    %s: tensor<2x56xf32> {moe.name = "s", moe.role = "weight"}) -> (tensor<?x192xbf16> {moe.name = "output"}) {
  %y = moe.grouped_matmul %x, %w : tensor<?x7168xbf16>, tensor<192x7168xf8E4M3FN> weight_scale(%s : tensor<2x56xf32>)
      {weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>,
       moe.name = ["y"]} -> tensor<?x192xbf16>
  return %y : tensor<?x192xbf16>
}

// K is not a multiple of a packed tile.
// CHECK-LABEL: func.func @depth
// CHECK-NOT:     moe.prepack
// CHECK:         strategy = #moe.strategy<dequantize>
func.func @depth(%x: tensor<?x96xbf16> {moe.name = "x", moe.role = "input"},
    %w: tensor<192x48xi8> {moe.name = "w", moe.role = "weight"},
    %s: tensor<192x3xf8E8M0FNU> {moe.name = "s", moe.role = "weight"}) -> (tensor<?x192xbf16> {moe.name = "output"}) {
  %y = moe.grouped_matmul %x, %w : tensor<?x96xbf16>, tensor<192x48xi8> weight_scale(%s : tensor<192x3xf8E8M0FNU>)
      {weight_quant = #mxfp4, moe.name = ["y"]} -> tensor<?x192xbf16>
  return %y : tensor<?x192xbf16>
}

// Float values become f16, too.
// CHECK-LABEL: func.func @half
// CHECK:         moe.prepack {{.*}} packing = #moe.packing<prepacked_f16>} : tensor<192x64xi8>, tensor<192x4xf8E8M0FNU> -> tensor<192x64xi8>, tensor<192x4xi8>, tensor<192xf32>
// CHECK:         strategy = #moe.strategy<prepack>
func.func @half(%x: tensor<?x128xf16> {moe.name = "x", moe.role = "input"},
    %w: tensor<192x64xi8> {moe.name = "w", moe.role = "weight"},
    %s: tensor<192x4xf8E8M0FNU> {moe.name = "s", moe.role = "weight"}) -> (tensor<?x192xf16> {moe.name = "output"}) {
  %y = moe.grouped_matmul %x, %w : tensor<?x128xf16>, tensor<192x64xi8> weight_scale(%s : tensor<192x4xf8E8M0FNU>)
      {weight_quant = #mxfp4, moe.name = ["y"]} -> tensor<?x192xf16>
  return %y : tensor<?x192xf16>
}

// Two int8 operands are multiplied natively if their sums fit 32 bits.
// CHECK-LABEL: func.func @int8
// CHECK:         strategy = #moe.strategy<native>
// SM80-LABEL:  func.func @int8
// SM80:          strategy = #moe.strategy<dequantize>
func.func @int8(%x: tensor<?x131056xi8> {moe.name = "x", moe.role = "input"}, %a: tensor<?x1xf32> {moe.name = "a", moe.role = "input"},
    %w: tensor<64x131056xi8> {moe.name = "w", moe.role = "weight"}, %s: tensor<64x1xf32> {moe.name = "s", moe.role = "weight"})
    -> (tensor<?x64xbf16> {moe.name = "output"}) {
  %y = moe.grouped_matmul %x, %w : tensor<?x131056xi8>, tensor<64x131056xi8> input_scale(%a : tensor<?x1xf32>) weight_scale(%s : tensor<64x1xf32>)
      {input_quant = #moe.quant<storage = i8, scale = f32, granularity = token, dynamic = true>,
       weight_quant = #moe.quant<storage = i8, scale = f32, granularity = channel>, moe.name = ["int8"]} -> tensor<?x64xbf16>
  return %y : tensor<?x64xbf16>
}

// CHECK-LABEL: func.func @long_int8
// CHECK:         strategy = #moe.strategy<dequantize>
func.func @long_int8(%x: tensor<?x131072xi8> {moe.name = "x", moe.role = "input"}, %a: tensor<?x1xf32> {moe.name = "a", moe.role = "input"},
    %w: tensor<64x131072xi8> {moe.name = "w", moe.role = "weight"}, %s: tensor<64x1xf32> {moe.name = "s", moe.role = "weight"})
    -> (tensor<?x64xbf16> {moe.name = "output"}) {
  %y = moe.grouped_matmul %x, %w : tensor<?x131072xi8>, tensor<64x131072xi8> input_scale(%a : tensor<?x1xf32>) weight_scale(%s : tensor<64x1xf32>)
      {input_quant = #moe.quant<storage = i8, scale = f32, granularity = token, dynamic = true>,
       weight_quant = #moe.quant<storage = i8, scale = f32, granularity = channel>, moe.name = ["long_int8"]} -> tensor<?x64xbf16>
  return %y : tensor<?x64xbf16>
}

// Block fp8 and e4m3 by channel are native, with any type of weight scales that f32 represents exactly.
// CHECK-LABEL: func.func @powers_of_blocks
// CHECK:         strategy = #moe.strategy<native>
func.func @powers_of_blocks(%x: tensor<?x256xf8E4M3FN> {moe.name = "x", moe.role = "input"}, %a: tensor<?x2xf32> {moe.name = "a", moe.role = "input"},
    %w: tensor<128x256xf8E4M3FN> {moe.name = "w", moe.role = "weight"}, %s: tensor<1x2xf8E8M0FNU> {moe.name = "s", moe.role = "weight"})
    -> (tensor<?x128xbf16> {moe.name = "output"}) {
  %y = moe.grouped_matmul %x, %w : tensor<?x256xf8E4M3FN>, tensor<128x256xf8E4M3FN> input_scale(%a : tensor<?x2xf32>) weight_scale(%s : tensor<1x2xf8E8M0FNU>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>,
       weight_quant = #moe.quant<storage = f8E4M3FN, scale = f8E8M0FNU, granularity = block, block = [128, 128]>, moe.name = ["powers"]} -> tensor<?x128xbf16>
  return %y : tensor<?x128xbf16>
}

// CHECK-LABEL: func.func @bf16_of_channels
// CHECK:         strategy = #moe.strategy<native>
func.func @bf16_of_channels(%x: tensor<?x256xf8E4M3FN> {moe.name = "x", moe.role = "input"}, %a: tensor<?x1xf32> {moe.name = "a", moe.role = "input"},
    %w: tensor<128x256xf8E4M3FN> {moe.name = "w", moe.role = "weight"}, %s: tensor<128x1xbf16> {moe.name = "s", moe.role = "weight"})
    -> (tensor<?x128xbf16> {moe.name = "output"}) {
  %y = moe.grouped_matmul %x, %w : tensor<?x256xf8E4M3FN>, tensor<128x256xf8E4M3FN> input_scale(%a : tensor<?x1xf32>) weight_scale(%s : tensor<128x1xbf16>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>,
       weight_quant = #moe.quant<storage = f8E4M3FN, scale = bf16, granularity = channel>, moe.name = ["channels"]} -> tensor<?x128xbf16>
  return %y : tensor<?x128xbf16>
}
