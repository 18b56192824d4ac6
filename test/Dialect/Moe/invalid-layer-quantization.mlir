// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13_scale: tensor<4xf32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{has scales of weights, but no 'weight_quant' that describes them; write 'weight_quant = #moe.quant<...>'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%w13_scale : tensor<4xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'w13' must have elements of type 'f8E4M3FN', as required by 'weight_quant', not 'f32'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13_scale: tensor<4x2x1xf32>,
    %w13: tensor<4x24x16xf8E4M3FN>, %w2: tensor<4x16x12xf8E4M3FN>) {
  // expected-error@+1 {{takes 'w2' and 'w2_scale' together with 'weight_quant'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%w13_scale : tensor<4x2x1xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf8E4M3FN>, tensor<4x16x12xf8E4M3FN>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13_scale: tensor<4xf32>,
    %w2_scale: tensor<4xf32>, %w13: tensor<4x24x16xf8E4M3FN>, %w2: tensor<4x16x12xf8E4M3FN>) {
  // expected-error@+1 {{'weight_quant' must not be 'dynamic' or of granularity 'token'; weights are quantized in advance}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%w13_scale : tensor<4xf32>)
      w2_scale(%w2_scale : tensor<4xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf8E4M3FN>, tensor<4x16x12xf8E4M3FN>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13_scale: tensor<4x2x1xf32>,
    %w2_scale: tensor<4x1x1xf32>, %w13: tensor<4x24x16xf8E4M3FN>, %w2: tensor<4x16x12xf8E4M3FN>) {
  // expected-error@+1 {{'weight_quant' must not be 'dynamic' or of granularity 'token'; weights are quantized in advance}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%w13_scale : tensor<4x2x1xf32>)
      w2_scale(%w2_scale : tensor<4x1x1xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf8E4M3FN>, tensor<4x16x12xf8E4M3FN>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor, dynamic = true>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13_scale: tensor<4x24xf32>,
    %w2_scale: tensor<4xf32>, %w13: tensor<4x24x16xf8E4M3FN>, %w2: tensor<4x16x12xf8E4M3FN>) {
  // expected-error@+1 {{'w13_scale' must be of shape num_experts x (scales along rows) x (scales of a row) = 4x2x1, not 4x24}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%w13_scale : tensor<4x24xf32>)
      w2_scale(%w2_scale : tensor<4xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf8E4M3FN>, tensor<4x16x12xf8E4M3FN>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13_scale: tensor<4xf32>,
    %w2_scale: tensor<4x16xf32>, %w13: tensor<4x24x16xf8E4M3FN>, %w2: tensor<4x16x12xf8E4M3FN>) {
  // expected-error@+1 {{'w13_scale' must be of shape num_experts x (scales along rows) x (scales of a row) = 4x24x1, not 4}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%w13_scale : tensor<4xf32>)
      w2_scale(%w2_scale : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf8E4M3FN>, tensor<4x16x12xf8E4M3FN>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13_scale: tensor<4x24x2xf32>,
    %w2_scale: tensor<4x16x2xf32>, %w13: tensor<4x24x16xf8E4M3FN>, %w2: tensor<4x16x12xf8E4M3FN>) {
  // expected-error@+1 {{'w2' has rows of 12 elements, which must be a multiple of the group of 8}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%w13_scale : tensor<4x24x2xf32>)
      w2_scale(%w2_scale : tensor<4x16x2xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf8E4M3FN>, tensor<4x16x12xf8E4M3FN>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 8]>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13_scale: tensor<4x24x4xf32>,
    %w2_scale: tensor<4x16x4xf32>, %w13: tensor<4x24x16xf8E4M3FN>, %w2: tensor<4x16x12xf8E4M3FN>) {
  // expected-error@+1 {{'w2_scale' must be of shape num_experts x (scales along rows) x (scales of a row) = 4x16x3, not 4x16x4}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%w13_scale : tensor<4x24x4xf32>)
      w2_scale(%w2_scale : tensor<4x16x4xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf8E4M3FN>, tensor<4x16x12xf8E4M3FN>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 4]>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13_scale: tensor<4x3x2xf32>,
    %w2_scale: tensor<4x2x2xf32>, %w13: tensor<4x24x16xf8E4M3FN>, %w2: tensor<4x16x12xf8E4M3FN>) {
  // expected-error@+1 {{'w13_scale' must be of shape num_experts x (scales along rows) x (scales of a row) = 4x4x2, not 4x3x2}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%w13_scale : tensor<4x3x2xf32>)
      w2_scale(%w2_scale : tensor<4x2x2xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf8E4M3FN>, tensor<4x16x12xf8E4M3FN>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [8, 8]>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13_scale: tensor<4x4x2xf32>,
    %w2_scale: tensor<4x2x1xf32>, %w13: tensor<4x24x16xf8E4M3FN>, %w2: tensor<4x16x12xf8E4M3FN>) {
  // expected-error@+1 {{'w2_scale' must be of shape num_experts x (scales along rows) x (scales of a row) = 4x2x2, not 4x2x1}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%w13_scale : tensor<4x4x2xf32>)
      w2_scale(%w2_scale : tensor<4x2x1xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf8E4M3FN>, tensor<4x16x12xf8E4M3FN>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [8, 8]>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13_scale: tensor<4x2x1xbf16>,
    %w2_scale: tensor<4x1x1xf32>, %w13: tensor<4x24x16xf8E4M3FN>, %w2: tensor<4x16x12xf8E4M3FN>) {
  // expected-error@+1 {{'w13_scale' must have elements of type 'f32', the scale of 'weight_quant', not 'bf16'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%w13_scale : tensor<4x2x1xbf16>)
      w2_scale(%w2_scale : tensor<4x1x1xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf8E4M3FN>, tensor<4x16x12xf8E4M3FN>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13_scale: tensor<4x2x1xf32>,
    %w2_scale: tensor<4x1x1xf32>, %shared_w13: tensor<20x16xf32>, %shared_w2: tensor<16x10xf32>,
    %w13: tensor<4x24x16xf8E4M3FN>, %w2: tensor<4x16x12xf8E4M3FN>) {
  // expected-error@+1 {{'shared_w13' must have elements of type 'f8E4M3FN', as required by 'weight_quant', not 'f32'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%w13_scale : tensor<4x2x1xf32>)
      w2_scale(%w2_scale : tensor<4x1x1xf32>) shared_w13(%shared_w13 : tensor<20x16xf32>)
      shared_w2(%shared_w2 : tensor<16x10xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf8E4M3FN>, tensor<4x16x12xf8E4M3FN>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13_scale: tensor<4x2x1xf32>,
    %w2_scale: tensor<4x1x1xf32>, %shared_w13: tensor<20x16xf8E4M3FN>, %shared_w13_scale: tensor<2x1xf32>,
    %shared_w2: tensor<16x10xf8E4M3FN>, %shared_w2_scale: tensor<16xf32>,
    %w13: tensor<4x24x16xf8E4M3FN>, %w2: tensor<4x16x12xf8E4M3FN>) {
  // expected-error@+1 {{'shared_w2_scale' must be of shape (scales along rows) x (scales of a row) = 1x1, not 16}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%w13_scale : tensor<4x2x1xf32>)
      w2_scale(%w2_scale : tensor<4x1x1xf32>) shared_w13(%shared_w13 : tensor<20x16xf8E4M3FN>)
      shared_w13_scale(%shared_w13_scale : tensor<2x1xf32>)
      shared_w2(%shared_w2 : tensor<16x10xf8E4M3FN>)
      shared_w2_scale(%shared_w2_scale : tensor<16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf8E4M3FN>, tensor<4x16x12xf8E4M3FN>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13_scale: tensor<4x2x1xf32>,
    %w2_scale: tensor<4x1x1xf32>, %w13: tensor<4x24x16xi8>, %w2: tensor<4x16x12xi8>) {
  // expected-error@+1 {{takes 'w13' and 'w13_zero_point' together with the 'zero_point' or 'minimum' of 'weight_quant'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%w13_scale : tensor<4x2x1xf32>)
      w2_scale(%w2_scale : tensor<4x1x1xf32>)
      experts(%w13, %w2 : tensor<4x24x16xi8>, tensor<4x16x12xi8>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>, weight_quant = #moe.quant<storage = i8, scale = f32, granularity = tensor, zero_point = true>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13_scale: tensor<4x2x1xf32>,
    %w2_scale: tensor<4x1x1xf32>, %w13: tensor<4x24x16xf8E4M3FN>, %w2: tensor<4x16x12xf8E4M3FN>) {
  // expected-error@+1 {{'activation_quant' is of granularity 'token' and needs 'dynamic = true'; only granularity 'tensor' can have a given scale}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%w13_scale : tensor<4x2x1xf32>)
      w2_scale(%w2_scale : tensor<4x1x1xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf8E4M3FN>, tensor<4x16x12xf8E4M3FN>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {activation_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token>, layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'activation_quant' needs 'weight_quant': activations are quantized only for gemms with quantized weights}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {activation_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>, layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %s13: tensor<4x2x1xf32>,
    %s2: tensor<4x1x1xf32>, %i13: tensor<1xf32>, %i2: tensor<1xf32>, %w13: tensor<4x24x16xf8E4M3FN>, %w2: tensor<4x16x12xf8E4M3FN>) {
  // expected-error@+1 {{has an 'activation_quant' that is not dynamic; give 'w2_input_scale', the scale of the inputs of 'w2'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%s13 : tensor<4x2x1xf32>) w2_scale(%s2 : tensor<4x1x1xf32>)
      w13_input_scale(%i13 : tensor<1xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf8E4M3FN>, tensor<4x16x12xf8E4M3FN>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {activation_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>, layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %s13: tensor<4x2x1xf32>,
    %s2: tensor<4x1x1xf32>, %i13: tensor<4xf32>, %i2: tensor<1xf32>, %w13: tensor<4x24x16xf8E4M3FN>, %w2: tensor<4x16x12xf8E4M3FN>) {
  // expected-error@+1 {{'w13_input_scale' must be of shape 1, not 4}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%s13 : tensor<4x2x1xf32>) w2_scale(%s2 : tensor<4x1x1xf32>)
      w13_input_scale(%i13 : tensor<4xf32>) w2_input_scale(%i2 : tensor<1xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf8E4M3FN>, tensor<4x16x12xf8E4M3FN>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {activation_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>, layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %s13: tensor<4x2x1xf32>,
    %s2: tensor<4x1x1xf32>, %i13: tensor<1xf32>, %i2: tensor<1xf32>, %w13: tensor<4x24x16xf8E4M3FN>, %w2: tensor<4x16x12xf8E4M3FN>) {
  // expected-error@+1 {{takes 'w13_input_scale' only with 'w13' and a static 'activation_quant'; remove it, or 'dynamic'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%s13 : tensor<4x2x1xf32>) w2_scale(%s2 : tensor<4x1x1xf32>)
      w13_input_scale(%i13 : tensor<1xf32>) w2_input_scale(%i2 : tensor<1xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf8E4M3FN>, tensor<4x16x12xf8E4M3FN>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {activation_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor, dynamic = true>, layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %s13: tensor<4x24x2xf32>,
    %s2: tensor<4x16x3xf32>, %w13: tensor<4x24x16xf8E4M3FN>, %w2: tensor<4x16x24xf8E4M3FN>) {
  // expected-error@+1 {{takes 'w13' and 'w13_global_scale' together with the 'second_scale' of 'weight_quant'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%s13 : tensor<4x24x2xf32>) w2_scale(%s2 : tensor<4x16x3xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf8E4M3FN>, tensor<4x16x24xf8E4M3FN>)
      activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {routing = #moe.routing<top_k = 2>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 8], second_scale = f32>} -> tensor<?x16xf32>
  return
}

// -----

// Minima are of the scales' type.
func.func @minima(%x: tensor<?x64xf32>, %w: tensor<32x64xi8>, %s: tensor<32x2xf32>, %m: tensor<32x2xi8>) {
  // expected-error@+1 {{'weight_zero_point' must have elements of type 'f32', as required by 'weight_quant', not 'i8'}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x64xf32>, tensor<32x64xi8> weight_scale(%s : tensor<32x2xf32>)
      weight_zero_point(%m : tensor<32x2xi8>)
      {weight_quant = #moe.quant<storage = i8, scale = f32, granularity = group, block = [1, 32], minimum = true>} -> tensor<?x32xf32>
  return
}
