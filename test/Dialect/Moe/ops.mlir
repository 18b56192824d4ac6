// Every op of the dialect with every operand, through the printer and back.
// RUN: moe-opt %s | moe-opt | FileCheck %s
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | FileCheck %s

// CHECK-LABEL: func.func @gate
func.func @gate(%x: tensor<?x16xbf16>, %gate: tensor<6x16xbf16>, %bias: tensor<6xf32>,
    %selection: tensor<6xf32>, %scale: tensor<6xf32>, %valid: tensor<1xi32>,
    %down: tensor<8x16xbf16>, %up: tensor<16x8xbf16>,
    %w13: tensor<4x24x8xbf16>, %b13: tensor<4x24xbf16>,
    %w2: tensor<4x8x12xbf16>, %b2: tensor<4x8xbf16>,
    %s13: tensor<20x16xbf16>, %s2: tensor<16x10xbf16>, %sg: tensor<1x16xbf16>)
    -> tensor<?x16xbf16> {
  // CHECK: moe.layer %{{[a-z0-9]+}} : tensor<?x16xbf16>
  // CHECK-SAME: gate(%{{[a-z0-9]+}} : tensor<6x16xbf16>)
  // CHECK-SAME: gate_bias(%{{[a-z0-9]+}} : tensor<6xf32>)
  // CHECK-SAME: selection_bias(%{{[a-z0-9]+}} : tensor<6xf32>)
  // CHECK-SAME: expert_scale(%{{[a-z0-9]+}} : tensor<6xf32>)
  // CHECK-SAME: num_valid_tokens(%{{[a-z0-9]+}} : tensor<1xi32>)
  // CHECK-SAME: latent_down(%{{[a-z0-9]+}} : tensor<8x16xbf16>)
  // CHECK-SAME: latent_up(%{{[a-z0-9]+}} : tensor<16x8xbf16>)
  // CHECK-SAME: w13_bias(%{{[a-z0-9]+}} : tensor<4x24xbf16>)
  // CHECK-SAME: w2_bias(%{{[a-z0-9]+}} : tensor<4x8xbf16>)
  // CHECK-SAME: shared_w13(%{{[a-z0-9]+}} : tensor<20x16xbf16>)
  // CHECK-SAME: shared_w2(%{{[a-z0-9]+}} : tensor<16x10xbf16>)
  // CHECK-SAME: shared_gate(%{{[a-z0-9]+}} : tensor<1x16xbf16>)
  // CHECK-SAME: experts(%{{[a-z0-9]+}}, %{{[a-z0-9]+}} : tensor<4x24x8xbf16>, tensor<4x8x12xbf16>)
  // CHECK-SAME: score {
  // CHECK: } weight {
  // CHECK: } activation {
  // CHECK-NEXT: ^bb0(%{{[a-z0-9]+}}: f32, %{{[a-z0-9]+}}: f32):
  // CHECK-NEXT: moe.param "limit"
  // CHECK: moe.yield %{{[a-z0-9]+}} : f32
  // CHECK: } {activation_params = {limit = 7.000000e+00 : f32},
  // CHECK-SAME: layout = #moe.weight_layout<order = up_gate>, max_tokens = 512 : i64,
  // CHECK-SAME: num_zero_experts = 2 : i64,
  // CHECK-SAME: routing = #moe.routing<top_k = 2, renormalize = true>} -> tensor<?x16xbf16>
  %0 = moe.layer %x : tensor<?x16xbf16> gate(%gate : tensor<6x16xbf16>)
      gate_bias(%bias : tensor<6xf32>) selection_bias(%selection : tensor<6xf32>)
      expert_scale(%scale : tensor<6xf32>) num_valid_tokens(%valid : tensor<1xi32>)
      latent_down(%down : tensor<8x16xbf16>) latent_up(%up : tensor<16x8xbf16>)
      w13_bias(%b13 : tensor<4x24xbf16>) w2_bias(%b2 : tensor<4x8xbf16>)
      shared_w13(%s13 : tensor<20x16xbf16>) shared_w2(%s2 : tensor<16x10xbf16>)
      shared_gate(%sg : tensor<1x16xbf16>)
      experts(%w13, %w2 : tensor<4x24x8xbf16>, tensor<4x8x12xbf16>)
      score {
      ^bb0(%l: f32):
        %one = arith.constant 1.0 : f32
        %n = arith.negf %l : f32
        %e = math.exp %n : f32
        %d = arith.addf %e, %one : f32
        %s = arith.divf %one, %d : f32
        moe.yield %s : f32
      } weight {
      ^bb0(%s: f32):
        moe.yield %s : f32
      } activation {
      ^bb0(%g: f32, %u: f32):
        %limit = moe.param "limit"
        %h = arith.minimumf %g, %limit : f32
        %y = arith.mulf %h, %u : f32
        moe.yield %y : f32
      } {activation_params = {limit = 7.0 : f32}, layout = #moe.weight_layout<order = up_gate>,
         max_tokens = 512 : i64, num_zero_experts = 2 : i64,
         routing = #moe.routing<top_k = 2, renormalize = true>} -> tensor<?x16xbf16>
  return %0 : tensor<?x16xbf16>
}

// CHECK-LABEL: func.func @logits_hash
func.func @logits_hash(%x: tensor<?x16xf32>, %logits: tensor<?x4xf32>, %ids: tensor<?xi32>,
    %table: tensor<100x2xi32>, %w13: tensor<4x12x16xf32>, %w2: tensor<4x16x12xf32>)
    -> tensor<?x16xf32> {
  // CHECK: moe.layer %{{[a-z0-9]+}} : tensor<?x16xf32>
  // CHECK-SAME: logits(%{{[a-z0-9]+}} : tensor<?x4xf32>)
  // CHECK-SAME: input_ids(%{{[a-z0-9]+}} : tensor<?xi32>)
  // CHECK-SAME: hash_table(%{{[a-z0-9]+}} : tensor<100x2xi32>)
  // CHECK-SAME: activation {
  // CHECK-NEXT: ^bb0(%{{[a-z0-9]+}}: f32):
  // The defaults are not printed.
  // CHECK: } {routing = #moe.routing<top_k = 2, select = hash>} -> tensor<?x16xf32>
  %0 = moe.layer %x : tensor<?x16xf32> logits(%logits : tensor<?x4xf32>)
      input_ids(%ids : tensor<?xi32>) hash_table(%table : tensor<100x2xi32>)
      experts(%w13, %w2 : tensor<4x12x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {routing = #moe.routing<top_k = 2, select = hash>} -> tensor<?x16xf32>
  return %0 : tensor<?x16xf32>
}

// CHECK-LABEL: func.func @ids
func.func @ids(%x: tensor<?x16xf16>, %ids: tensor<?x1xi32>, %weights: tensor<?x1xf32>,
    %w13: tensor<2x24x16xf16>, %w2: tensor<2x16x12xf16>, %local: tensor<8xi32>) -> tensor<?x16xf16> {
  // CHECK: moe.layer %{{[a-z0-9]+}} : tensor<?x16xf16>
  // CHECK-SAME: ids(%{{[a-z0-9]+}} : tensor<?x1xi32>)
  // CHECK-SAME: weights(%{{[a-z0-9]+}} : tensor<?x1xf32>)
  // CHECK: } {format = #moe.activation_format<format = standard>,
  // CHECK-SAME: layout = #moe.weight_layout<order = interleaved>,
  // CHECK-SAME: placement = #moe.placement<8, local = [5, 2]>, weight_on_input}
  %0 = moe.layer %x : tensor<?x16xf16> ids(%ids : tensor<?x1xi32>)
      weights(%weights : tensor<?x1xf32>)
      experts(%w13, %w2 : tensor<2x24x16xf16>, tensor<2x16x12xf16>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {format = #moe.activation_format<format = standard>,
         layout = #moe.weight_layout<order = interleaved>, placement = #moe.placement<8, local = [5, 2]>, weight_on_input} -> tensor<?x16xf16>
  // CHECK: moe.layer
  // CHECK-SAME: local_ids(%{{[a-z0-9]+}} : tensor<8xi32>)
  // CHECK: mesh = #moe.mesh<dp = 2, tp = 2, num_experts = 8>
  %1 = moe.layer %x : tensor<?x16xf16> ids(%ids : tensor<?x1xi32>)
      weights(%weights : tensor<?x1xf32>) local_ids(%local : tensor<8xi32>)
      experts(%w13, %w2 : tensor<2x24x16xf16>, tensor<2x16x12xf16>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = interleaved>,
         mesh = #moe.mesh<dp = 2, tp = 2, num_experts = 8>} -> tensor<?x16xf16>
  return %0 : tensor<?x16xf16>
}

// Scales of blocks: gate and up rows have separate blocks (130 rows are 2 blocks each).
// CHECK-LABEL: func.func @fp8
func.func @fp8(%x: tensor<?x200xbf16>, %gate: tensor<4x200xbf16>,
    %w13: tensor<4x260x200xf8E4M3FN>, %s13: tensor<4x4x2xf32>,
    %w2: tensor<4x200x130xf8E4M3FN>, %s2: tensor<4x2x2xf32>,
    %h13: tensor<256x200xf8E4M3FN>, %hs13: tensor<2x2xf32>,
    %h2: tensor<200x128xf8E4M3FN>, %hs2: tensor<2x1xf32>) -> tensor<?x200xbf16> {
  // CHECK: moe.layer
  // CHECK-SAME: w13_scale(%{{[a-z0-9]+}} : tensor<4x4x2xf32>)
  // CHECK-SAME: w2_scale(%{{[a-z0-9]+}} : tensor<4x2x2xf32>)
  // CHECK-SAME: shared_w13_scale(%{{[a-z0-9]+}} : tensor<2x2xf32>)
  // CHECK-SAME: shared_w2_scale(%{{[a-z0-9]+}} : tensor<2x1xf32>)
  // CHECK: activation_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>
  // CHECK-SAME: weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>
  %0 = moe.layer %x : tensor<?x200xbf16> gate(%gate : tensor<4x200xbf16>)
      w13_scale(%s13 : tensor<4x4x2xf32>) w2_scale(%s2 : tensor<4x2x2xf32>)
      shared_w13(%h13 : tensor<256x200xf8E4M3FN>) shared_w13_scale(%hs13 : tensor<2x2xf32>)
      shared_w2(%h2 : tensor<200x128xf8E4M3FN>) shared_w2_scale(%hs2 : tensor<2x1xf32>)
      experts(%w13, %w2 : tensor<4x260x200xf8E4M3FN>, tensor<4x200x130xf8E4M3FN>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>,
         activation_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>,
         weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>}
      -> tensor<?x200xbf16>
  return %0 : tensor<?x200xbf16>
}

// Interleaved rows share blocks: 260 rows are 3.
func.func @fp8_interleaved(%x: tensor<?x200xbf16>, %gate: tensor<4x200xbf16>,
    %w13: tensor<4x260x200xf8E4M3FN>, %s13: tensor<4x3x2xf32>,
    %w2: tensor<4x200x130xf8E4M3FN>, %s2: tensor<4x2x2xf32>) -> tensor<?x200xbf16> {
  %0 = moe.layer %x : tensor<?x200xbf16> gate(%gate : tensor<4x200xbf16>)
      w13_scale(%s13 : tensor<4x3x2xf32>) w2_scale(%s2 : tensor<4x2x2xf32>)
      experts(%w13, %w2 : tensor<4x260x200xf8E4M3FN>, tensor<4x200x130xf8E4M3FN>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = interleaved>, routing = #moe.routing<top_k = 2>,
         weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>}
      -> tensor<?x200xbf16>
  return %0 : tensor<?x200xbf16>
}

// CHECK-LABEL: func.func @mxfp4
func.func @mxfp4(%x: tensor<?x64xbf16>, %gate: tensor<4x64xbf16>,
    %w13: tensor<4x32x32xi8>, %s13: tensor<4x32x2xf8E8M0FNU>,
    %w2: tensor<4x64x16xi8>, %s2: tensor<4x64x1xf8E8M0FNU>) -> tensor<?x64xbf16> {
  // CHECK: weight_quant = #moe.quant<storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs>
  %0 = moe.layer %x : tensor<?x64xbf16> gate(%gate : tensor<4x64xbf16>)
      w13_scale(%s13 : tensor<4x32x2xf8E8M0FNU>) w2_scale(%s2 : tensor<4x64x1xf8E8M0FNU>)
      experts(%w13, %w2 : tensor<4x32x32xi8>, tensor<4x64x16xi8>)
      activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {routing = #moe.routing<top_k = 2>,
         weight_quant = #moe.quant<storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs>}
      -> tensor<?x64xbf16>
  return %0 : tensor<?x64xbf16>
}

// One scale for each expert of w13, one for each row of w2.
func.func @tensor_scales(%x: tensor<?x64xbf16>, %gate: tensor<4x64xbf16>,
    %w13: tensor<4x32x64xf8E5M2>, %s13: tensor<4x1x1xf32>,
    %w2: tensor<4x64x32xf8E5M2>, %s2: tensor<4x1x1xf32>,
    %h13: tensor<8x64xf8E5M2>, %hs13: tensor<1x1xf32>,
    %h2: tensor<64x8xf8E5M2>, %hs2: tensor<1x1xf32>) -> tensor<?x64xbf16> {
  %0 = moe.layer %x : tensor<?x64xbf16> gate(%gate : tensor<4x64xbf16>)
      w13_scale(%s13 : tensor<4x1x1xf32>) w2_scale(%s2 : tensor<4x1x1xf32>)
      shared_w13(%h13 : tensor<8x64xf8E5M2>) shared_w13_scale(%hs13 : tensor<1x1xf32>)
      shared_w2(%h2 : tensor<64x8xf8E5M2>) shared_w2_scale(%hs2 : tensor<1x1xf32>)
      experts(%w13, %w2 : tensor<4x32x64xf8E5M2>, tensor<4x64x32xf8E5M2>)
      activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {routing = #moe.routing<top_k = 2>,
         weight_quant = #moe.quant<storage = f8E5M2, scale = f32, granularity = tensor>}
      -> tensor<?x64xbf16>
  return %0 : tensor<?x64xbf16>
}

func.func @channel_scales(%x: tensor<?x64xbf16>, %gate: tensor<4x64xbf16>,
    %w13: tensor<4x32x64xf8E4M3FN>, %s13: tensor<4x32x1xbf16>,
    %w2: tensor<4x64x32xf8E4M3FN>, %s2: tensor<4x64x1xbf16>) -> tensor<?x64xbf16> {
  %0 = moe.layer %x : tensor<?x64xbf16> gate(%gate : tensor<4x64xbf16>)
      w13_scale(%s13 : tensor<4x32x1xbf16>) w2_scale(%s2 : tensor<4x64x1xbf16>)
      experts(%w13, %w2 : tensor<4x32x64xf8E4M3FN>, tensor<4x64x32xf8E4M3FN>)
      activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {routing = #moe.routing<top_k = 2>,
         weight_quant = #moe.quant<storage = f8E4M3FN, scale = bf16, granularity = channel>}
      -> tensor<?x64xbf16>
  return %0 : tensor<?x64xbf16>
}

// CHECK-LABEL: func.func @route
func.func @route(%logits: tensor<?x8xf32>, %bias: tensor<8xf32>, %scale: tensor<8xf32>,
    %ids: tensor<?xi32>, %table: tensor<10x2xi32>, %valid: tensor<1xi32>) {
  // CHECK: moe.route %{{[a-z0-9]+}} : tensor<?x8xf32>
  // CHECK-SAME: selection_bias(%{{[a-z0-9]+}} : tensor<8xf32>)
  // CHECK-SAME: expert_scale(%{{[a-z0-9]+}} : tensor<8xf32>)
  // CHECK-SAME: num_valid_tokens(%{{[a-z0-9]+}} : tensor<1xi32>)
  // CHECK-SAME: <top_k = 4, num_groups = 2> score {
  // CHECK: } weight {
  // CHECK: } {moe.name = ["topk_ids", "topk_weights"]} -> tensor<?x4xi32>, tensor<?x4xf32>
  %0:2 = moe.route %logits : tensor<?x8xf32> selection_bias(%bias : tensor<8xf32>)
      expert_scale(%scale : tensor<8xf32>) num_valid_tokens(%valid : tensor<1xi32>)
      <top_k = 4, num_groups = 2> score {
      ^bb0(%l: f32):
        %t = math.tanh %l : f32
        moe.yield %t : f32
      } weight {
      ^bb0(%s: f32):
        moe.yield %s : f32
      } {moe.name = ["topk_ids", "topk_weights"]} -> tensor<?x4xi32>, tensor<?x4xf32>
  // CHECK: moe.route %{{[a-z0-9]+}} : tensor<?x8xf32>
  // CHECK-SAME: input_ids(%{{[a-z0-9]+}} : tensor<?xi32>)
  // CHECK-SAME: hash_table(%{{[a-z0-9]+}} : tensor<10x2xi32>)
  // CHECK-SAME: <top_k = 2, select = hash, softmax = all> -> tensor<?x2xi32>, tensor<?x2xf32>
  %1:2 = moe.route %logits : tensor<?x8xf32> input_ids(%ids : tensor<?xi32>)
      hash_table(%table : tensor<10x2xi32>) <top_k = 2, select = hash, softmax = all>
      -> tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// CHECK-LABEL: func.func @permute
func.func @permute(%ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %valid: tensor<1xi32>) {
  // CHECK: moe.permute %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {num_experts = 8 : i64} :
  // CHECK-SAME: tensor<?x2xi32>, tensor<?x2xf32> -> tensor<9xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  %0:4 = moe.permute %ids, %weights {num_experts = 8 : i64}
      : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<9xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  // CHECK: moe.permute %{{[a-z0-9]+}}, %{{[a-z0-9]+}} num_valid_tokens(%{{[a-z0-9]+}} : tensor<1xi32>)
  // CHECK-SAME: {local_experts = array<i64: 7, 0, 3>, num_experts = 8 : i64, num_zero_experts = 1 : i64}
  %1:4 = moe.permute %ids, %weights num_valid_tokens(%valid : tensor<1xi32>)
      {num_experts = 8 : i64, num_zero_experts = 1 : i64, local_experts = array<i64: 7, 0, 3>}
      : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<4xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  return
}

// CHECK-LABEL: func.func @grouped_matmul
func.func @grouped_matmul(%x: tensor<?x16xbf16>, %w: tensor<4x24x16xbf16>, %offsets: tensor<5xi32>,
    %source: tensor<?xi32>, %rows: tensor<?x1xf32>, %columns: tensor<4x24xbf16>,
    %dense: tensor<8x16xbf16>, %bias: tensor<8xf32>, %addend: tensor<?x8xbf16>,
    %valid: tensor<1xi32>) {
  // CHECK: moe.grouped_matmul %{{[a-z0-9]+}}, %{{[a-z0-9]+}} : tensor<?x16xbf16>, tensor<4x24x16xbf16>
  // CHECK-SAME: offsets(%{{[a-z0-9]+}} : tensor<5xi32>)
  // CHECK-SAME: source(%{{[a-z0-9]+}} : tensor<?xi32>)
  // CHECK-SAME: rows(%{{[a-z0-9]+}} : tensor<?x1xf32>)
  // CHECK-SAME: columns(%{{[a-z0-9]+}} : tensor<4x24xbf16>)
  // CHECK-SAME: epilogue {
  // CHECK-NEXT: ^bb0(%{{[a-z0-9]+}}: f32, %{{[a-z0-9]+}}: f32, %{{[a-z0-9]+}}: f32, %{{[a-z0-9]+}}: f32, %{{[a-z0-9]+}}: f32):
  // CHECK: } {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x12xbf16>
  %0 = moe.grouped_matmul %x, %w : tensor<?x16xbf16>, tensor<4x24x16xbf16>
      offsets(%offsets : tensor<5xi32>) source(%source : tensor<?xi32>)
      rows(%rows : tensor<?x1xf32>) columns(%columns : tensor<4x24xbf16>)
      epilogue {
      ^bb0(%gate: f32, %up: f32, %row: f32, %gateBias: f32, %upBias: f32):
        %a = arith.addf %gate, %gateBias : f32
        %b = arith.addf %up, %upBias : f32
        %y = arith.mulf %a, %b : f32
        moe.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x12xbf16>
  // CHECK: moe.grouped_matmul %{{[a-z0-9]+}}, %{{[a-z0-9]+}} : tensor<?x16xbf16>, tensor<8x16xbf16>
  // CHECK-SAME: num_valid_tokens(%{{[a-z0-9]+}} : tensor<1xi32>)
  // CHECK-SAME: columns(%{{[a-z0-9]+}} : tensor<8xf32>)
  // CHECK-SAME: elementwise(%{{[a-z0-9]+}} : tensor<?x8xbf16>)
  %1 = moe.grouped_matmul %x, %dense : tensor<?x16xbf16>, tensor<8x16xbf16>
      num_valid_tokens(%valid : tensor<1xi32>) columns(%bias : tensor<8xf32>)
      elementwise(%addend : tensor<?x8xbf16>)
      epilogue {
      ^bb0(%acc: f32, %b: f32, %e: f32):
        %s = arith.addf %acc, %b : f32
        %y = arith.addf %s, %e : f32
        moe.yield %y : f32
      } -> tensor<?x8xbf16>
  // CHECK: moe.grouped_matmul %{{[a-z0-9]+}}, %{{[a-z0-9]+}} : tensor<?x16xbf16>, tensor<8x16xbf16> -> tensor<?x8xf32>
  %2 = moe.grouped_matmul %x, %dense : tensor<?x16xbf16>, tensor<8x16xbf16> -> tensor<?x8xf32>
  return
}

// CHECK-LABEL: func.func @gather_rows
func.func @gather_rows(%x: tensor<?x16xf16>, %o: tensor<5xi32>, %s: tensor<?xi32>, %c: tensor<4x16xi32>) {
  // CHECK: moe.gather_rows %{{.*}} : tensor<?x16xf16> offsets(%{{.*}} : tensor<5xi32>) source(%{{.*}} : tensor<?xi32>)
  // CHECK-SAME: columns(%{{.*}} : tensor<4x16xi32>) {top_k = 2 : i64} -> tensor<?x16xf16>
  %0 = moe.gather_rows %x : tensor<?x16xf16> offsets(%o : tensor<5xi32>) source(%s : tensor<?xi32>)
      columns(%c : tensor<4x16xi32>) {top_k = 2 : i64} -> tensor<?x16xf16>
  return
}

// CHECK-LABEL: func.func @rows_as_they_are
func.func @rows_as_they_are(%x: tensor<?x16xf16>, %c: tensor<1x16xi32>) {
  // CHECK: moe.gather_rows %{{.*}} : tensor<?x16xf16> columns(%{{.*}} : tensor<1x16xi32>) -> tensor<?x16xf16>
  %0 = moe.gather_rows %x : tensor<?x16xf16> columns(%c : tensor<1x16xi32>) -> tensor<?x16xf16>
  return
}

// CHECK-LABEL: func.func @row_map
func.func @row_map(%x: tensor<?x16xf16>, %w: tensor<?x1xf32>) {
  // CHECK: moe.row_map %{{[a-z0-9]+}} : tensor<?x16xf16> rows(%{{[a-z0-9]+}} : tensor<?x1xf32>) {
  // CHECK: } -> tensor<?x16xf16>
  %0 = moe.row_map %x : tensor<?x16xf16> rows(%w : tensor<?x1xf32>) {
  ^bb0(%v: f32, %r: f32):
    %y = arith.mulf %v, %r : f32
    moe.yield %y : f32
  } -> tensor<?x16xf16>
  // The name in the op's attribute is the name of its result.
  // CHECK: %weighted_input = moe.row_map %{{[a-z0-9]+}} : tensor<?x16xf16> {
  %1 = moe.row_map %x : tensor<?x16xf16> {
  ^bb0(%v: f32):
    moe.yield %v : f32
  } {moe.name = ["weighted_input"]} -> tensor<?x16xf16>
  // CHECK: moe.row_map %{{[a-z0-9]+}} : tensor<?x16xf16> elementwise(%{{[a-z0-9]+}} : tensor<?x16xf16>) {
  %2 = moe.row_map %x : tensor<?x16xf16> elementwise(%x : tensor<?x16xf16>) {
  ^bb0(%v: f32, %e: f32):
    %y = arith.addf %v, %e : f32
    moe.yield %y : f32
  } -> tensor<?x16xf16>
  return
}

// CHECK-LABEL: func.func @ranks
func.func @ranks(%x: tensor<?x16xf16>, %ids: tensor<?x2xi32>, %valid: tensor<1xi32>, %table: tensor<8xi32>) {
  // CHECK: %[[D:.*]]:3 = moe.dispatch <dp> %{{[a-z0-9]+}}, %{{[a-z0-9]+}}, %{{[a-z0-9]+}} : tensor<?x16xf16>, tensor<?x2xi32>, tensor<1xi32> -> tensor<?x16xf16>, tensor<?x2xi32>, tensor<4xi32>
  %all:3 = moe.dispatch <dp> %x, %ids, %valid : tensor<?x16xf16>, tensor<?x2xi32>, tensor<1xi32>
      -> tensor<?x16xf16>, tensor<?x2xi32>, tensor<4xi32>
  // CHECK: moe.place_ids %[[D]]#1 : tensor<?x2xi32> table(%{{[a-z0-9]+}} : tensor<8xi32>) num_valid_tokens(%[[D]]#2 : tensor<4xi32>) -> tensor<?x2xi32>
  %0 = moe.place_ids %all#1 : tensor<?x2xi32> table(%table : tensor<8xi32>) num_valid_tokens(%all#2 : tensor<4xi32>)
      -> tensor<?x2xi32>
  // CHECK: moe.place_ids %{{[a-z0-9]+}} : tensor<?x2xi32> {zero_experts = array<i64: 8, 2>} -> tensor<?x2xi32>
  %zeros = moe.place_ids %ids : tensor<?x2xi32> {zero_experts = array<i64: 8, 2>} -> tensor<?x2xi32>
  // CHECK: moe.combine <dp> %[[D]]#0 : tensor<?x16xf16>
  %1 = moe.combine <dp> %all#0 : tensor<?x16xf16>
  // CHECK: moe.combine <tp>
  %2 = moe.combine <tp> %1 : tensor<?x16xf16>
  return
}

// CHECK-LABEL: func.func @destinations_of_replicas
func.func @destinations_of_replicas(%x: tensor<?x16xf16>, %ids: tensor<?x2xi32>, %destinations: tensor<8x3xi32>) {
  // CHECK: moe.dispatch <dp> {{.*}} routed [0] {experts_per_rank = 6 : i64} :
  %all:2 = moe.dispatch <dp> %x, %ids destinations(%destinations : tensor<8x3xi32>) ids(%ids : tensor<?x2xi32>) routed [0]
      {experts_per_rank = 6 : i64} : tensor<?x16xf16>, tensor<?x2xi32> -> tensor<?x16xf16>, tensor<?x2xi32>
  // CHECK: moe.combine <dp> {{.*}} destinations(%{{[a-z0-9]+}} : tensor<8x3xi32>) {{.*}} {experts_per_rank = 6 : i64} :
  %0 = moe.combine <dp> %all#0 destinations(%destinations : tensor<8x3xi32>) ids(%ids, %all#1 : tensor<?x2xi32>, tensor<?x2xi32>)
      {experts_per_rank = 6 : i64} : tensor<?x16xf16>
  return
}

// CHECK-LABEL: func.func @destinations(
func.func @destinations(%x: tensor<?x16xf16>, %ids: tensor<?x2xi32>, %destinations: tensor<8xi32>) {
  // CHECK: %[[D:.*]]:2 = moe.dispatch <dp> %{{[a-z0-9]+}}, %{{[a-z0-9]+}} destinations(%{{[a-z0-9]+}} : tensor<8xi32>) ids(%{{[a-z0-9]+}} : tensor<?x2xi32>) routed [0] : tensor<?x16xf16>, tensor<?x2xi32> -> tensor<?x16xf16>, tensor<?x2xi32>
  %all:2 = moe.dispatch <dp> %x, %ids destinations(%destinations : tensor<8xi32>) ids(%ids : tensor<?x2xi32>) routed [0]
      : tensor<?x16xf16>, tensor<?x2xi32> -> tensor<?x16xf16>, tensor<?x2xi32>
  // CHECK: moe.combine <dp> %[[D]]#0 destinations(%{{[a-z0-9]+}} : tensor<8xi32>) ids(%{{[a-z0-9]+}}, %[[D]]#1 : tensor<?x2xi32>, tensor<?x2xi32>) : tensor<?x16xf16>
  %0 = moe.combine <dp> %all#0 destinations(%destinations : tensor<8xi32>) ids(%ids, %all#1 : tensor<?x2xi32>, tensor<?x2xi32>)
      : tensor<?x16xf16>
  return
}

// CHECK-LABEL: func.func @unpermute
func.func @unpermute(%rows: tensor<?x16xbf16>, %position: tensor<?x2xi32>, %x: tensor<?x16xbf16>,
    %weights: tensor<?x2xf32>, %addend: tensor<?x16xbf16>, %valid: tensor<1xi32>) {
  // CHECK: moe.unpermute %{{[a-z0-9]+}}, %{{[a-z0-9]+}} : tensor<?x16xbf16>, tensor<?x2xi32>
  // CHECK-SAME: identity(%{{[a-z0-9]+}}, %{{[a-z0-9]+}} : tensor<?x16xbf16>, tensor<?x2xf32>)
  // CHECK-SAME: addend(%{{[a-z0-9]+}} : tensor<?x16xbf16>)
  // CHECK-SAME: num_valid_tokens(%{{[a-z0-9]+}} : tensor<1xi32>) -> tensor<?x16xbf16>
  %0 = moe.unpermute %rows, %position : tensor<?x16xbf16>, tensor<?x2xi32>
      identity(%x, %weights : tensor<?x16xbf16>, tensor<?x2xf32>)
      addend(%addend : tensor<?x16xbf16>) num_valid_tokens(%valid : tensor<1xi32>)
      -> tensor<?x16xbf16>
  // CHECK: moe.unpermute %{{[a-z0-9]+}}, %{{[a-z0-9]+}} : tensor<?x16xbf16>, tensor<?x2xi32> -> tensor<?x16xbf16>
  %1 = moe.unpermute %rows, %position : tensor<?x16xbf16>, tensor<?x2xi32> -> tensor<?x16xbf16>
  return
}
