// Errors name the formats, the op and the target; the CPU dequantizes formats that GPUs do not support.

// RUN: not moe-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(moe-decompose,moe-legalize-quant{target=sm_90a}))' 2>&1 | FileCheck %s --check-prefix=GPU
// RUN: moe-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(moe-decompose,moe-legalize-quant))' | FileCheck %s --check-prefix=CPU

// Activations in the layer's type.
// GPU: 'moe.grouped_matmul' op cannot be lowered: an input that is not quantized with a weight quantized #moe.quant<storage = i4, scale = f32, granularity = group, block = [1, 16], packing = pairs> and K = 256 is not supported on target sm_90a, which supports f8E4M3FN or i8 for both operands with one scale per row; f8E4M3FN with weights in blocks of [128, 128] and inputs in dynamic groups of [1, 128], f32 input scales, and weight scales of f32, bf16, f16 or f8E8M0FNU; or f8E4M3FN or i8 for either operand or both, or i4, f4E2M1FN or code books for weights in rows of multiples of 32, with scales per row or in groups of a multiple of 32 (groups of 16 for 8-bit weights and for f4E2M1FN with f8E4M3FN scales); target cpu supports other granularities too
// CPU-LABEL: func.func @weights_only
//   CPU-NOT: moe.quantize
//       CPU: moe.grouped_matmul {{.*}} : tensor<?x256xbf16>, tensor<4x256x128xi8> weight_scale(
//       CPU: strategy = #moe.strategy<dequantize>
func.func @weights_only(%x: tensor<?x256xbf16>, %ids: tensor<?x2xi32>, %wt: tensor<?x2xf32>,
    %w13: tensor<4x256x128xi8>, %s13: tensor<4x256x16xf32>, %w2: tensor<4x256x128xi8>, %s2: tensor<4x256x16xf32>) -> tensor<?x256xbf16> {
  %0 = moe.layer %x : tensor<?x256xbf16> ids(%ids : tensor<?x2xi32>) weights(%wt : tensor<?x2xf32>)
      w13_scale(%s13 : tensor<4x256x16xf32>) w2_scale(%s2 : tensor<4x256x16xf32>)
      experts(%w13, %w2 : tensor<4x256x128xi8>, tensor<4x256x128xi8>)
      activation {
      ^bb0(%a: f32):
        moe.yield %a : f32
      } {weight_quant = #moe.quant<storage = i4, scale = f32, granularity = group, block = [1, 16], packing = pairs>}
      -> tensor<?x256xbf16>
  return %0 : tensor<?x256xbf16>
}

// -----

// Blocks of another size, and groups of another length of the inputs.
// GPU: 'moe.quantize' op cannot be lowered: rows quantized #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 256], dynamic = true> are not supported on target sm_90a, which supports f8E4M3FN with scales in groups of [1, 32], [1, 64] or [1, 128] or per row; i8 with scales per row
// CPU-LABEL: func.func @small_blocks
//       CPU: moe.quantize
//       CPU: moe.grouped_matmul {{.*}} input_scale({{.*}}) weight_scale(
//       CPU: strategy = #moe.strategy<dequantize>
func.func @small_blocks(%x: tensor<?x256xbf16>, %ids: tensor<?x2xi32>, %wt: tensor<?x2xf32>,
    %w13: tensor<4x256x256xf8E4M3FN>, %s13: tensor<4x4x4xf32>, %w2: tensor<4x256x256xf8E4M3FN>, %s2: tensor<4x4x4xf32>) -> tensor<?x256xbf16> {
  %0 = moe.layer %x : tensor<?x256xbf16> ids(%ids : tensor<?x2xi32>) weights(%wt : tensor<?x2xf32>)
      w13_scale(%s13 : tensor<4x4x4xf32>) w2_scale(%s2 : tensor<4x4x4xf32>)
      experts(%w13, %w2 : tensor<4x256x256xf8E4M3FN>, tensor<4x256x256xf8E4M3FN>)
      activation {
      ^bb0(%a: f32):
        moe.yield %a : f32
      } {weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [64, 64]>,
         activation_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 256], dynamic = true>}
      -> tensor<?x256xbf16>
  return %0 : tensor<?x256xbf16>
}

// -----

// A scale shared by all rows, and scales of whole rows.
// CPU-LABEL: func.func @by_tensor
//       CPU: moe.tensor_scale
//       CPU: moe.grouped_matmul
//  CPU-SAME: strategy = #moe.strategy<dequantize>
func.func @by_tensor(%x: tensor<?x256xbf16>, %w: tensor<64x256xf8E4M3FN>, %s: tensor<64x1xf32>) -> tensor<?x64xbf16> {
  %t = moe.tensor_scale <storage = f8E4M3FN, scale = f32, granularity = tensor, dynamic = true> %x : tensor<?x256xbf16> -> tensor<1xf32>
  %q = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = tensor> %x tensor_scale(%t : tensor<1xf32>)
      : tensor<?x256xbf16> -> tensor<?x256xf8E4M3FN>
  %y = moe.grouped_matmul %q, %w : tensor<?x256xf8E4M3FN>, tensor<64x256xf8E4M3FN>
      input_scale(%t : tensor<1xf32>) weight_scale(%s : tensor<64x1xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>,
       weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>} -> tensor<?x64xbf16>
  return %y : tensor<?x64xbf16>
}

// -----

// Rows of pairs that are not dequantized as a whole.
// GPU: weight quantized #moe.quant<storage = i4, scale = f32, granularity = channel, packing = pairs> and K = 48 is not supported on target sm_90a, which supports {{.*}}in rows of multiples of 32,
// CPU-LABEL: func.func @odd_pairs
//       CPU: strategy = #moe.strategy<dequantize>
func.func @odd_pairs(%x: tensor<?x48xbf16>, %w: tensor<64x24xi8>, %s: tensor<64x1xf32>) -> tensor<?x64xbf16> {
  %y = moe.grouped_matmul %x, %w : tensor<?x48xbf16>, tensor<64x24xi8> weight_scale(%s : tensor<64x1xf32>)
      {weight_quant = #moe.quant<storage = i4, packing = pairs, scale = f32, granularity = channel>} -> tensor<?x64xbf16>
  return %y : tensor<?x64xbf16>
}
