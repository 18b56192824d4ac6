// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'format' is 'batched_experts'; only 'standard' is supported: remove 'format'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {format = #moe.activation_format<format = batched_experts>, layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{takes 'local_ids' if and only if 'mesh' has 'num_experts'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, mesh = #moe.mesh<dp = 2, num_experts = 4>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<9x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>, %ids: tensor<9xi32>) {
  // expected-error@+1 {{has 4 experts in 'w13' on each of 2 ranks, fewer than the 'num_experts' of 'mesh', 9; give each rank more experts, or reduce 'num_experts'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<9x16xf32>)
      local_ids(%ids : tensor<9xi32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, mesh = #moe.mesh<dp = 2, num_experts = 9>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'num_zero_experts' is -1; 0 to}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, num_zero_experts = -1 : i64, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{needs a region 'activation'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{region 'activation' must take (gate, up) or (x), each f32, but takes 3 arguments}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%a: f32, %b: f32, %c: f32):
        moe.yield %a : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{region 'activation' must take 'up' as f32, not as 'bf16'; operands are converted to f32 before the region}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: bf16):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{region 'activation' must be one block without branches}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        cf.br ^bb1
      ^bb1:
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{needs 'layout' to find the gate and up rows of 'w13'; write 'layout = #moe.weight_layout<order = gate_up>'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'layout' has no meaning with an activation of one argument, which has no gate; remove it}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{entry 'limit' of 'activation_params' is 7 : i64, but must be a number like '1.0 : f32'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {activation_params = {limit = 7 : i64}, layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{entry 'limit' of 'activation_params' is 7.000000e+00 : f64, but must be a number like '1.0 : f32'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {activation_params = {limit = 7.0}, layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{entry 'alpha' of 'activation_params' is never read; read it by 'moe.param' or remove it}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {activation_params = {alpha = 1.0 : f32}, layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        // expected-error@+1 {{'moe.param' op reads 'beta', which 'activation_params' of the layer does not have; it has 'alpha', 'limit'}}
        %p = moe.param "beta"
        moe.yield %p : f32
      } {activation_params = {alpha = 1.0 : f32, limit = 7.0 : f32}, layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        // expected-error@+1 {{'moe.param' op reads 'beta', which 'activation_params' of the layer does not have}}
        %p = moe.param "beta"
        moe.yield %p : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      score {
      ^bb0(%l: f32):
        // expected-error@+1 {{'moe.param' op is only allowed in the region 'activation' of a 'moe.layer', since it reads 'activation_params'; write a constant instead}}
        %p = moe.param "beta"
        moe.yield %p : f32
      }
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        // expected-error@+1 {{'vector.broadcast' op is not allowed in the scalar region 'activation'; use ops of arith and math on scalars, and attributes of the op for anything that involves other elements}}
        %v = vector.broadcast %g : f32 to vector<4xf32>
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        // expected-error@+1 {{'arith.constant' op works on 'vector<4xf32>' in the scalar region 'activation'; use scalars, which the lowering vectorizes}}
        %v = arith.constant dense<0.0> : vector<4xf32>
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      score {
      ^bb0(%l: f32):
        %t = arith.constant true
        // expected-error@+1 {{'scf.if' op is not allowed in the scalar region 'score'}}
        scf.if %t {
        }
        moe.yield %l : f32
      }
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{region 'weight' must end in 'moe.yield'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      weight {
      ^bb0(%s: f32):
        llvm.unreachable
      }
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{region 'score' must take (logit), each f32, but takes 2 arguments}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      score {
      ^bb0(%a: f32, %b: f32):
        moe.yield %a : f32
      }
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{region 'weight' must take (score), each f32, but takes 0 arguments}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      weight {
      ^bb0():
        %z = arith.constant 0.0 : f32
        moe.yield %z : f32
      }
      activation {
      ^bb0(%g: f32, %u: f32):
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @captured(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>,
    %w13: tensor<4x24x16xf32>, %w2: tensor<4x16x12xf32>, %limit: f32) {
  %0 = moe.layer %hidden : tensor<?x16xf32> gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        // expected-error@+1 {{use of undeclared SSA value name}}
        %y = arith.minimumf %g, %limit : f32
        moe.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>}
      -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        // expected-error@+1 {{'arith.bitcast' op works on 'i32' in the scalar region 'activation'; use f32, bf16 and f16, and i1 for conditions}}
        %i = arith.bitcast %u : f32 to i32
        %d = arith.divsi %i, %i : i32
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        // expected-error@+1 {{'arith.extf' op works on 'f64' in the scalar region 'activation'; use f32, bf16 and f16, and i1 for conditions}}
        %d = arith.extf %g : f32 to f64
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        %c = arith.cmpf olt, %g, %u : f32
        // expected-error@+1 {{'arith.divui' op works on conditions in the scalar region 'activation'; use arith.andi, ori, xori, select and uitofp for these}}
        %d = arith.divui %c, %c : i1
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x24x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>)
      experts(%w13, %w2 : tensor<4x24x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%g: f32, %u: f32):
        // expected-error@+1 {{'arith.fptosi' op works on conditions in the scalar region 'activation'; use arith.andi}}
        %d = arith.fptosi %g : f32 to i1
        moe.yield %g : f32
      } {layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32>
  return
}
