// RUN: moe-opt %s --moe-decompose | FileCheck %s

// Block fp8: hidden states are quantized once for both experts, before the gather; what lies between
// two gemms once more. Positions past the last offset are excluded.
// CHECK-LABEL: func.func @block_fp8
// CHECK-SAME: (%[[X:.*]]: tensor<?x200xbf16>, %[[IDS:.*]]: tensor<?x2xi32>, %[[WT:.*]]: tensor<?x2xf32>, %[[W13:.*]]: tensor<4x288x200xf8E4M3FN>, %[[S13:.*]]: tensor<4x4x2xf32>, %[[W2:.*]]: tensor<4x200x144xf8E4M3FN>, %[[S2:.*]]: tensor<4x2x2xf32>, %[[V13:.*]]: tensor<80x200xf8E4M3FN>, %[[T13:.*]]: tensor<2x2xf32>, %[[V2:.*]]: tensor<200x40xf8E4M3FN>, %[[T2:.*]]: tensor<2x1xf32>)
// CHECK: %[[OFF:.*]], %[[POS:.*]], %[[SRC:.*]], %[[RW:.*]] = moe.permute
// CHECK: %[[Q:.*]], %[[S:.*]] = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> %[[X]] {moe.name = ["hidden_quantized", "hidden_scale"]} : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x2xf32>
// CHECK: %[[H:.*]] = moe.grouped_matmul %[[Q]], %[[W13]] : tensor<?x200xf8E4M3FN>, tensor<4x288x200xf8E4M3FN> input_scale(%[[S]] : tensor<?x2xf32>) weight_scale(%[[S13]] : tensor<4x4x2xf32>) offsets(%[[OFF]] : tensor<5xi32>) source(%[[SRC]] : tensor<?xi32>) epilogue
// CHECK: input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>
// CHECK-SAME: moe.name = ["experts_hidden"], weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>} -> tensor<?x144xbf16>
// CHECK: %[[HQ:.*]], %[[HS:.*]] = moe.quantize <{{.*}}> %[[H]] offsets(%[[OFF]] : tensor<5xi32>) {moe.name = ["experts_hidden_quantized", "experts_hidden_scale"], top_k = 2 : i64} : tensor<?x144xbf16> -> tensor<?x144xf8E4M3FN>, tensor<?x2xf32>
// CHECK: moe.grouped_matmul %[[HQ]], %[[W2]] {{.*}} input_scale(%[[HS]] : tensor<?x2xf32>) weight_scale(%[[S2]] : tensor<4x2x2xf32>) offsets(%[[OFF]] : tensor<5xi32>) rows(%[[RW]] : tensor<?x1xf32>)
// CHECK-NOT: moe.quantize <{{.*}}> %[[X]] 
// CHECK: %[[U:.*]] = moe.grouped_matmul %[[Q]], %[[V13]] {{.*}} input_scale(%[[S]] : tensor<?x2xf32>) weight_scale(%[[T13]] : tensor<2x2xf32>) epilogue
// CHECK: %[[UQ:.*]], %[[US:.*]] = moe.quantize <{{.*}}> %[[U]] {moe.name = ["shared_hidden_quantized", "shared_hidden_scale"]} : tensor<?x40xbf16> -> tensor<?x40xf8E4M3FN>, tensor<?x1xf32>
// CHECK: moe.grouped_matmul %[[UQ]], %[[V2]] {{.*}} input_scale(%[[US]] : tensor<?x1xf32>) weight_scale(%[[T2]] : tensor<2x1xf32>) {{.*}}moe.name = ["shared_out"]{{.*}} -> tensor<?x200xbf16>
func.func @block_fp8(%x: tensor<?x200xbf16>, %ids: tensor<?x2xi32>, %wt: tensor<?x2xf32>,
    %w13: tensor<4x288x200xf8E4M3FN>, %s13: tensor<4x4x2xf32>,
    %w2: tensor<4x200x144xf8E4M3FN>, %s2: tensor<4x2x2xf32>,
    %v13: tensor<80x200xf8E4M3FN>, %t13: tensor<2x2xf32>,
    %v2: tensor<200x40xf8E4M3FN>, %t2: tensor<2x1xf32>) -> tensor<?x200xbf16> {
  %0 = moe.layer %x : tensor<?x200xbf16> ids(%ids : tensor<?x2xi32>) weights(%wt : tensor<?x2xf32>)
      w13_scale(%s13 : tensor<4x4x2xf32>) w2_scale(%s2 : tensor<4x2x2xf32>)
      shared_w13(%v13 : tensor<80x200xf8E4M3FN>) shared_w13_scale(%t13 : tensor<2x2xf32>)
      shared_w2(%v2 : tensor<200x40xf8E4M3FN>) shared_w2_scale(%t2 : tensor<2x1xf32>)
      experts(%w13, %w2 : tensor<4x288x200xf8E4M3FN>, tensor<4x200x144xf8E4M3FN>)
      activation {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        moe.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>,
         weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>,
         activation_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>}
      -> tensor<?x200xbf16>
  return %0 : tensor<?x200xbf16>
}

// Routed and shared experts have different inputs: both are quantized.
// CHECK-LABEL: func.func @weight_on_input
// CHECK: %[[M:.*]] = moe.row_map
// CHECK: moe.quantize <{{.*}}> %[[M]] {moe.name = ["weighted_input_quantized", "weighted_input_scale"]}
// CHECK: moe.quantize <{{.*}}> %{{.*}} offsets(%{{.*}} : tensor<5xi32>) {moe.name = ["experts_hidden_quantized", "experts_hidden_scale"], top_k = 1 : i64}
func.func @weight_on_input(%x: tensor<?x128xbf16>, %ids: tensor<?x1xi32>, %wt: tensor<?x1xf32>,
    %w13: tensor<4x64x128xf8E4M3FN>, %s13: tensor<4x1x1xf32>,
    %w2: tensor<4x128x64xf8E4M3FN>, %s2: tensor<4x1x1xf32>) -> tensor<?x128xbf16> {
  %0 = moe.layer %x : tensor<?x128xbf16> ids(%ids : tensor<?x1xi32>) weights(%wt : tensor<?x1xf32>)
      w13_scale(%s13 : tensor<4x1x1xf32>) w2_scale(%s2 : tensor<4x1x1xf32>)
      experts(%w13, %w2 : tensor<4x64x128xf8E4M3FN>, tensor<4x128x64xf8E4M3FN>)
      activation {
      ^bb0(%a: f32):
        moe.yield %a : f32
      } {weight_on_input,
         weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>,
         activation_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>}
      -> tensor<?x128xbf16>
  return %0 : tensor<?x128xbf16>
}

// A dynamic scale shared by all rows: of tokens, then of positions.
// CHECK-LABEL: func.func @by_tensor
// CHECK-SAME: (%[[X:.*]]: tensor<?x64xbf16>, %{{.*}}: tensor<?x2xi32>, %{{.*}}: tensor<?x2xf32>, %[[N:.*]]: tensor<1xi32>,
// CHECK: %[[S:.*]] = moe.tensor_scale <storage = f8E4M3FN, scale = f32, granularity = tensor, dynamic = true> %[[X]] num_valid_tokens(%[[N]] : tensor<1xi32>) {moe.name = ["hidden_scale"]} : tensor<?x64xbf16> -> tensor<1xf32>
// CHECK: %[[Q:.*]] = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = tensor> %[[X]] tensor_scale(%[[S]] : tensor<1xf32>) {moe.name = ["hidden_quantized"]} : tensor<?x64xbf16> -> tensor<?x64xf8E4M3FN>
// CHECK: %[[H:.*]] = moe.grouped_matmul %[[Q]], {{.*}} input_scale(%[[S]] : tensor<1xf32>) weight_scale(%{{.*}} : tensor<4x1x1xf32>)
// CHECK: input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>
// CHECK: %[[HS:.*]] = moe.tensor_scale <{{.*}}> %[[H]] offsets(%{{.*}} : tensor<5xi32>) {moe.name = ["experts_hidden_scale"], top_k = 2 : i64}
// CHECK: %[[HQ:.*]] = moe.quantize <{{.*}}> %[[H]] offsets(%{{.*}} : tensor<5xi32>) tensor_scale(%[[HS]] : tensor<1xf32>) {moe.name = ["experts_hidden_quantized"], top_k = 2 : i64}
// CHECK: moe.grouped_matmul %[[HQ]], {{.*}} input_scale(%[[HS]] : tensor<1xf32>)
func.func @by_tensor(%x: tensor<?x64xbf16>, %ids: tensor<?x2xi32>, %wt: tensor<?x2xf32>, %n: tensor<1xi32>,
    %w13: tensor<4x32x64xf8E4M3FN>, %s13: tensor<4x1x1xf32>, %w2: tensor<4x64x32xf8E4M3FN>, %s2: tensor<4x1x1xf32>) -> tensor<?x64xbf16> {
  %0 = moe.layer %x : tensor<?x64xbf16> ids(%ids : tensor<?x2xi32>) weights(%wt : tensor<?x2xf32>)
      num_valid_tokens(%n : tensor<1xi32>) w13_scale(%s13 : tensor<4x1x1xf32>) w2_scale(%s2 : tensor<4x1x1xf32>)
      experts(%w13, %w2 : tensor<4x32x64xf8E4M3FN>, tensor<4x64x32xf8E4M3FN>)
      activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>,
         activation_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor, dynamic = true>}
      -> tensor<?x64xbf16>
  return %0 : tensor<?x64xbf16>
}

// Static scales: none is computed, and the shared expert, which has its own, has a separate quantization.
// CHECK-LABEL: func.func @given
// CHECK-SAME: %[[I13:[a-z0-9]+]]: tensor<1xf32>, %[[I2:[a-z0-9]+]]: tensor<1xf32>, %[[J13:[a-z0-9]+]]: tensor<1xf32>, %[[J2:[a-z0-9]+]]: tensor<1xf32>)
// CHECK-NOT: moe.tensor_scale
// CHECK: moe.quantize <storage = f8E4M3FN, scale = f32, granularity = tensor> %[[X:.*]] tensor_scale(%[[I13]] : tensor<1xf32>)
// CHECK: moe.quantize <{{.*}}> %{{.*}} offsets(%{{.*}}) tensor_scale(%[[I2]] : tensor<1xf32>)
// CHECK: moe.quantize <{{.*}}> %[[X]] tensor_scale(%[[J13]] : tensor<1xf32>)
// CHECK: moe.grouped_matmul {{.*}} input_scale(%[[J13]] : tensor<1xf32>)
// CHECK: moe.quantize <{{.*}}> %{{.*}} tensor_scale(%[[J2]] : tensor<1xf32>)
// CHECK-NOT: moe.tensor_scale
func.func @given(%x: tensor<?x64xbf16>, %ids: tensor<?x2xi32>, %wt: tensor<?x2xf32>,
    %w13: tensor<4x32x64xf8E4M3FN>, %s13: tensor<4x32x1xf32>, %w2: tensor<4x64x32xf8E4M3FN>, %s2: tensor<4x64x1xf32>,
    %v13: tensor<16x64xf8E4M3FN>, %t13: tensor<16x1xf32>, %v2: tensor<64x16xf8E4M3FN>, %t2: tensor<64x1xf32>,
    %i13: tensor<1xf32>, %i2: tensor<1xf32>, %j13: tensor<1xf32>, %j2: tensor<1xf32>) -> tensor<?x64xbf16> {
  %0 = moe.layer %x : tensor<?x64xbf16> ids(%ids : tensor<?x2xi32>) weights(%wt : tensor<?x2xf32>)
      w13_scale(%s13 : tensor<4x32x1xf32>) w13_input_scale(%i13 : tensor<1xf32>)
      w2_scale(%s2 : tensor<4x64x1xf32>) w2_input_scale(%i2 : tensor<1xf32>)
      shared_w13(%v13 : tensor<16x64xf8E4M3FN>) shared_w13_scale(%t13 : tensor<16x1xf32>)
      shared_w13_input_scale(%j13 : tensor<1xf32>)
      shared_w2(%v2 : tensor<64x16xf8E4M3FN>) shared_w2_scale(%t2 : tensor<64x1xf32>)
      shared_w2_input_scale(%j2 : tensor<1xf32>)
      experts(%w13, %w2 : tensor<4x32x64xf8E4M3FN>, tensor<4x64x32xf8E4M3FN>)
      activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>,
         activation_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>}
      -> tensor<?x64xbf16>
  return %0 : tensor<?x64xbf16>
}
