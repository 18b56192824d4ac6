// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @layer(%hidden: tensor<8x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'hidden' must be of shape tokens x hidden_size = ?x*, not 8x16 (* is any size above 0) (the number of tokens is known only at run time: write '?')}}
  %0 = moe.layer %hidden : tensor<8x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<8x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x?xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'hidden' must be of shape tokens x hidden_size = ?x*, not ?x?}}
  %0 = moe.layer %hidden : tensor<?x?xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x?xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x4x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'hidden' must be of shape tokens x hidden_size = ?x*, not ?x4x16}}
  %0 = moe.layer %hidden : tensor<?x4x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x4x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{the output must have the type 'tensor<?x16xf32>' of 'hidden', not 'tensor<?x16xbf16>'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xbf16>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %latent_down: tensor<8x16xf32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{takes 'latent_down' and 'latent_up' together}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) latent_down(%latent_down : tensor<8x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %latent_down: tensor<8x8xf32>,
    %latent_up: tensor<16x8xf32>, %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'latent_down' must be of shape latent_size x hidden_size = *x16, not 8x8}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) latent_down(%latent_down : tensor<8x8xf32>)
      latent_up(%latent_up : tensor<16x8xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %latent_down: tensor<8x16xf32>,
    %latent_up: tensor<8x16xf32>, %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'latent_up' must be of shape hidden_size x latent_size = 16x8, not 8x16}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) latent_down(%latent_down : tensor<8x16xf32>)
      latent_up(%latent_up : tensor<8x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %latent_down: tensor<8x16xf32>,
    %latent_up: tensor<16x8xf32>, %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'w13' must be of shape num_experts x (2 * intermediate_size) x latent_size = *x*x8, not 4x24x16}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) latent_down(%latent_down : tensor<8x16xf32>)
      latent_up(%latent_up : tensor<16x8xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x16x24xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'w13' must be of shape num_experts x (2 * intermediate_size) x hidden_size = *x*x16, not 4x16x24}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x16x24xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'w13' must be of shape local experts x (2 * intermediate_size) x hidden_size = 2x*x16, not 4x24x16}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, placement = #moe.placement<4, local = [1, 3]>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x25x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'w13' has 25 rows; with a gate they must be pairs (gate, up)}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x25x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xbf16>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'w13' must have elements of type 'f32', like the output, not 'bf16'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xbf16>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x12x16xf32>) {
  // expected-error@+1 {{'w2' must be of shape num_experts x hidden_size x intermediate_size = 4x16x12, not 4x12x16}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x12x16xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'w2' must be of shape num_experts x hidden_size x intermediate_size = 4x16x24, not 4x16x12}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13_bias: tensor<4x12xf32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'w13_bias' must be of shape num_experts x (2 * intermediate_size) = 4x24, not 4x12}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_bias(%w13_bias : tensor<4x12xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w2_bias: tensor<16xf32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'w2_bias' must be of shape num_experts x hidden_size = 4x16, not 16}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w2_bias(%w2_bias : tensor<16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w2_bias: tensor<4x16xf16>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'w2_bias' must have elements of type 'f32', like the output, not 'f16'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w2_bias(%w2_bias : tensor<4x16xf16>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %shared_w13: tensor<20x16xf32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{takes 'shared_w13' and 'shared_w2' together}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) shared_w13(%shared_w13 : tensor<20x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %shared_gate: tensor<1x16xf32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{takes 'shared_gate', 'shared_w13_columns' and the shared expert's biases with 'shared_w13' and 'shared_w2' only}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) shared_gate(%shared_gate : tensor<1x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %shared_w13: tensor<20x10xf32>,
    %shared_w2: tensor<16x10xf32>, %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'shared_w13' must be of shape (2 * shared intermediate_size) x hidden_size = *x16, not 20x10}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) shared_w13(%shared_w13 : tensor<20x10xf32>)
      shared_w2(%shared_w2 : tensor<16x10xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %shared_w13: tensor<21x16xf32>,
    %shared_w2: tensor<16x10xf32>, %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'shared_w13' has 21 rows; with a gate they must be pairs (gate, up)}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) shared_w13(%shared_w13 : tensor<21x16xf32>)
      shared_w2(%shared_w2 : tensor<16x10xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %shared_w13: tensor<20x16xf32>,
    %shared_w2: tensor<16x20xf32>, %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'shared_w2' must be of shape hidden_size x shared intermediate_size = 16x10, not 16x20}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) shared_w13(%shared_w13 : tensor<20x16xf32>)
      shared_w2(%shared_w2 : tensor<16x20xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %shared_w13: tensor<20x16xf32>,
    %shared_w2: tensor<16x10xf32>, %shared_gate: tensor<16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'shared_gate' must be of shape 1 x hidden_size = 1x16, not 16}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) shared_w13(%shared_w13 : tensor<20x16xf32>)
      shared_w2(%shared_w2 : tensor<16x10xf32>) shared_gate(%shared_gate : tensor<16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}
