// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x12x16xf8E4M3FN>,
    %s13: tensor<4x12x1xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{has 'quants' beside 'weight_quant' or 'activation_quant'; keep 'quants' or the other two}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%s13 : tensor<4x12x1xf32>)
      experts(%w13, %w2 : tensor<4x12x16xf8E4M3FN>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%x: f32):
        moe.yield %x : f32
      } {routing = #moe.routing<top_k = 2>,
         weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>,
         quants = {w13 = #moe.product_quant<weight = <storage = f8E4M3FN, scale = f32, granularity = channel>>}} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x12x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{entry 'shared_w2' of 'quants' is not a weight of this layer; the names are 'w13', 'w2', and with a shared expert 'shared_w13' and 'shared_w2'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) experts(%w13, %w2 : tensor<4x12x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%x: f32):
        moe.yield %x : f32
      } {routing = #moe.routing<top_k = 2>,
         quants = {shared_w2 = #moe.product_quant<weight = <storage = f8E4M3FN, scale = f32, granularity = channel>>}} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x12x16xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{entry 'w2' of 'quants' is #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>, but must be a '#moe.product_quant<...>'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) experts(%w13, %w2 : tensor<4x12x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%x: f32):
        moe.yield %x : f32
      } {routing = #moe.routing<top_k = 2>,
         quants = {w2 = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>}} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x12x16xf8E4M3FN>,
    %s13: tensor<4x12x1xf32>, %w2: tensor<4x16x12xf8E4M3FN>) {
  // expected-error@+1 {{'w2' must have elements of type 'f32', like the output, not 'f8E4M3FN'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%s13 : tensor<4x12x1xf32>)
      experts(%w13, %w2 : tensor<4x12x16xf8E4M3FN>, tensor<4x16x12xf8E4M3FN>)
      activation {
      ^bb0(%x: f32):
        moe.yield %x : f32
      } {routing = #moe.routing<top_k = 2>,
         quants = {w13 = #moe.product_quant<weight = <storage = f8E4M3FN, scale = f32, granularity = channel>>}} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x12x16xf32>, %s13: tensor<4x12x1xf32>,
    %w2: tensor<4x16x12xf8E4M3FN>, %s2: tensor<4x16x1xf32>) {
  // expected-error@+1 {{has scales of 'w13', but 'quants' has no 'w13' that describes them; write 'w13 = #moe.product_quant<...>'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w13_scale(%s13 : tensor<4x12x1xf32>) w2_scale(%s2 : tensor<4x16x1xf32>)
      experts(%w13, %w2 : tensor<4x12x16xf32>, tensor<4x16x12xf8E4M3FN>)
      activation {
      ^bb0(%x: f32):
        moe.yield %x : f32
      } {routing = #moe.routing<top_k = 2>,
         quants = {w2 = #moe.product_quant<weight = <storage = f8E4M3FN, scale = f32, granularity = channel>>}} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x12x16xf32>,
    %w2: tensor<4x16x12xf8E4M3FN>) {
  // expected-error@+1 {{takes 'w2' and 'w2_scale' together with 'weight' of 'quants'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) experts(%w13, %w2 : tensor<4x12x16xf32>, tensor<4x16x12xf8E4M3FN>)
      activation {
      ^bb0(%x: f32):
        moe.yield %x : f32
      } {routing = #moe.routing<top_k = 2>,
         quants = {w2 = #moe.product_quant<weight = <storage = f8E4M3FN, scale = f32, granularity = channel>>}} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x12x16xf32>,
    %w2: tensor<4x16x12xi8>, %s2: tensor<4x16x1xf32>) {
  // expected-error@+1 {{has an 'activation' of 'quants' that is not dynamic; give 'w2_input_scale', the scale of the inputs of 'w2'}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w2_scale(%s2 : tensor<4x16x1xf32>)
      experts(%w13, %w2 : tensor<4x12x16xf32>, tensor<4x16x12xi8>)
      activation {
      ^bb0(%x: f32):
        moe.yield %x : f32
      } {routing = #moe.routing<top_k = 2>,
         quants = {w2 = #moe.product_quant<weight = <storage = i8, scale = f32, granularity = channel>,
                                           activation = <storage = i8, scale = f32, granularity = tensor>>}} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf32>, %gate: tensor<4x16xf32>, %w13: tensor<4x12x16xf32>,
    %w2: tensor<4x16x12xi8>, %s2: tensor<4x16x1xf32>) {
  // expected-error@+1 {{'activation' of 'quants' is of granularity 'token' and needs 'dynamic = true'; only granularity 'tensor' can have a given scale}}
  %0 = moe.layer %hidden : tensor<?x16xf32>
      gate(%gate : tensor<4x16xf32>) w2_scale(%s2 : tensor<4x16x1xf32>)
      experts(%w13, %w2 : tensor<4x12x16xf32>, tensor<4x16x12xi8>)
      activation {
      ^bb0(%x: f32):
        moe.yield %x : f32
      } {routing = #moe.routing<top_k = 2>,
         quants = {w2 = #moe.product_quant<weight = <storage = i8, scale = f32, granularity = channel>,
                                           activation = <storage = i8, scale = f32, granularity = token>>}} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xf8E4M3FN>, %ids: tensor<?x2xi32>, %w: tensor<?x2xf32>, %w13: tensor<4x12x16xf8E4M3FN>,
    %s13: tensor<4x12x1xf32>, %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{has quantized rows as 'hidden'; give their 'hidden_scale'}}
  %0 = moe.layer %hidden : tensor<?x16xf8E4M3FN>
      ids(%ids : tensor<?x2xi32>) weights(%w : tensor<?x2xf32>) w13_scale(%s13 : tensor<4x12x1xf32>)
      experts(%w13, %w2 : tensor<4x12x16xf8E4M3FN>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%x: f32):
        moe.yield %x : f32
      } {quants = {w13 = #moe.product_quant<
           weight = <storage = f8E4M3FN, scale = f32, granularity = channel>,
           activation = <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>>}} -> tensor<?x16xf32>
  return
}

// -----

func.func @layer(%hidden: tensor<?x16xi8>, %ids: tensor<?x2xi32>, %w: tensor<?x2xf32>, %w13: tensor<4x12x16xf32>,
    %w2: tensor<4x16x12xf32>) {
  // expected-error@+1 {{'hidden' is of 'i8', but the activations of 'w13' are not quantized to it; give f32, bf16 or f16}}
  %0 = moe.layer %hidden : tensor<?x16xi8>
      ids(%ids : tensor<?x2xi32>) weights(%w : tensor<?x2xf32>)
      experts(%w13, %w2 : tensor<4x12x16xf32>, tensor<4x16x12xf32>)
      activation {
      ^bb0(%x: f32):
        moe.yield %x : f32
      } -> tensor<?x16xf32>
  return
}
