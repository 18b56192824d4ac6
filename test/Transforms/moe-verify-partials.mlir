// Partials that are used before their reduction, or added twice, and ids in the wrong id space.
// RUN: moe-opt %s -split-input-file -verify-diagnostics --moe-verify-partials

// Legal functions pass, with and without a mesh.

func.func @right(%x: tensor<?x8xf32> {moe.name = "hidden_states"}, %w: tensor<8x8xf32> {moe.name = "shared_experts.w2"},
                 %g: tensor<?x1xf32>) -> tensor<?x8xf32> attributes {moe.mesh = #moe.mesh<tp = 2>} {
  %y = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> rows(%g : tensor<?x1xf32>) epilogue {
  ^bb0(%v: f32, %r: f32):
    %scale = arith.constant 2.0 : f32
    %zero = arith.constant 0.0 : f32
    %a = arith.mulf %v, %r : f32
    %b = arith.divf %a, %scale : f32
    %c = arith.cmpf une, %r, %zero : f32
    %d = arith.select %c, %b, %zero : f32
    moe.yield %d : f32
  } {moe.name = ["part"]} -> tensor<?x8xf32>
  %z = moe.row_map %y : tensor<?x8xf32> elementwise(%y : tensor<?x8xf32>) {
  ^bb0(%v: f32, %e: f32):
    %s = arith.subf %v, %e : f32
    moe.yield %s : f32
  } -> tensor<?x8xf32>
  %sum = moe.combine <tp> %z : tensor<?x8xf32>
  return %sum : tensor<?x8xf32>
}

func.func @one_rank(%x: tensor<?x8xf32>, %w: tensor<8x8xf32> {moe.name = "shared_experts.w2"}) -> tensor<?x8xf32> {
  %y = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

func.func @output(%x: tensor<?x8xf32>, %w: tensor<8x8xf32> {moe.name = "shared_experts.w2"}) -> tensor<?x8xf32>
    attributes {moe.mesh = #moe.mesh<tp = 2>} {
  %y = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> {moe.name = ["part"]} -> tensor<?x8xf32>
  // expected-error@+1 {{takes 'part', a partial over tp, where a reduced value is needed; put a moe.combine before it}}
  return %y : tensor<?x8xf32>
}

// -----

func.func @activation(%x: tensor<?x8xf32>, %w: tensor<8x8xf32> {moe.name = "shared_experts.w2"}) -> tensor<?x8xf32>
    attributes {moe.mesh = #moe.mesh<tp = 2>} {
  // expected-error@+1 {{is not linear in a value computed from 'shared_experts.w2', a partial over tp, so the partials would not sum to its result; put a moe.combine before it}}
  %y = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> epilogue {
  ^bb0(%v: f32):
    %zero = arith.constant 0.0 : f32
    // expected-note@+1 {{by 'arith.maximumf'}}
    %m = arith.maximumf %v, %zero : f32
    moe.yield %m : f32
  } -> tensor<?x8xf32>
  %sum = moe.combine <tp> %y : tensor<?x8xf32>
  return %sum : tensor<?x8xf32>
}

// -----

func.func @square(%x: tensor<?x8xf32>, %w: tensor<8x8xf32> {moe.name = "shared_experts.w2"}) -> tensor<?x8xf32>
    attributes {moe.mesh = #moe.mesh<tp = 2>} {
  %y = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> {moe.name = ["part"]} -> tensor<?x8xf32>
  // expected-error@+1 {{is not linear in a value computed from 'part'}}
  %z = moe.row_map %y : tensor<?x8xf32> {
  ^bb0(%v: f32):
    // expected-note@+1 {{by 'arith.mulf'}}
    %m = arith.mulf %v, %v : f32
    moe.yield %m : f32
  } -> tensor<?x8xf32>
  return %z : tensor<?x8xf32>
}

// -----

func.func @router(%x: tensor<?x8xf32>, %w: tensor<8x8xf32> {moe.name = "shared_experts.w2"}) -> tensor<?x2xi32>
    attributes {moe.mesh = #moe.mesh<tp = 2>} {
  %y = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> {moe.name = ["part"]} -> tensor<?x8xf32>
  // expected-error@+1 {{takes 'part', a partial over tp, where a reduced value is needed}}
  %ids, %weights = moe.route %y : tensor<?x8xf32> <top_k = 2> -> tensor<?x2xi32>, tensor<?x2xf32>
  return %ids : tensor<?x2xi32>
}

// -----

func.func @next_product(%x: tensor<?x8xf32>, %w: tensor<8x8xf32> {moe.name = "shared_experts.w2"}) -> tensor<?x8xf32>
    attributes {moe.mesh = #moe.mesh<tp = 2>} {
  %y = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> {moe.name = ["part"]} -> tensor<?x8xf32>
  // expected-error@+1 {{takes 'part', a partial over tp, where a reduced value is needed; a gemm with a slice of a weight yields a partial itself}}
  %z = moe.grouped_matmul %y, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  return %z : tensor<?x8xf32>
}

// -----

func.func @quantized(%x: tensor<?x128xbf16>, %w: tensor<128x128xbf16> {moe.name = "shared_experts.w2"}) -> tensor<?x128xf8E4M3FN>
    attributes {moe.mesh = #moe.mesh<tp = 2>} {
  %y = moe.grouped_matmul %x, %w : tensor<?x128xbf16>, tensor<128x128xbf16> {moe.name = ["part"]} -> tensor<?x128xbf16>
  // expected-error@+1 {{takes 'part', a partial over tp, where a reduced value is needed}}
  %q, %s = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> %y
      : tensor<?x128xbf16> -> tensor<?x128xf8E4M3FN>, tensor<?x1xf32>
  return %q : tensor<?x128xf8E4M3FN>
}

// -----

func.func @bias(%x: tensor<?x8xf32>, %w: tensor<8x8xf32> {moe.name = "shared_experts.w2"}, %b: tensor<8xf32>) -> tensor<?x8xf32>
    attributes {moe.mesh = #moe.mesh<tp = 2>} {
  // expected-error@+1 {{adds a reduced value to a value computed from 'shared_experts.w2', a partial over tp, so each rank would add it; put a moe.combine before it}}
  %y = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> columns(%b : tensor<8xf32>) epilogue {
  ^bb0(%v: f32, %c: f32):
    // expected-note@+1 {{by 'arith.addf'}}
    %s = arith.addf %v, %c : f32
    moe.yield %s : f32
  } -> tensor<?x8xf32>
  %sum = moe.combine <tp> %y : tensor<?x8xf32>
  return %sum : tensor<?x8xf32>
}

// -----

// The shared expert's result is a partial over tp, that of the routed experts over dp, too.
func.func @addend(%y: tensor<?x8xf32>, %w2: tensor<4x8x8xf32> {moe.name = "experts.w2"}, %offsets: tensor<5xi32>,
                  %position: tensor<?x2xi32>, %x: tensor<?x8xf32>, %w: tensor<8x8xf32> {moe.name = "shared_experts.w2"})
    -> tensor<?x8xf32> attributes {moe.mesh = #moe.mesh<dp = 2, tp = 2>} {
  %e = moe.grouped_matmul %y, %w2 : tensor<?x8xf32>, tensor<4x8x8xf32> offsets(%offsets : tensor<5xi32>)
      {moe.name = ["experts_out"]} -> tensor<?x8xf32>
  %s = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> {moe.name = ["shared_out"]} -> tensor<?x8xf32>
  // expected-error@+1 {{adds 'shared_out', a partial over tp, to 'experts_out', a partial over dp and tp, so one of them would be counted once per rank}}
  %r = moe.unpermute %e, %position : tensor<?x8xf32>, tensor<?x2xi32> addend(%s : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// -----

func.func @whole(%x: tensor<?x8xf32> {moe.name = "hidden_states"}) -> tensor<?x8xf32> attributes {moe.mesh = #moe.mesh<dp = 2, tp = 2>} {
  // expected-error@+1 {{sums 'hidden_states' over tp, over which it is reduced already, so that it would count once per rank; remove one of the sums}}
  %y = moe.combine <tp> %x : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

func.func @other_axis(%x: tensor<?x8xf32>, %w: tensor<8x8xf32> {moe.name = "shared_experts.w2"}) -> tensor<?x8xf32>
    attributes {moe.mesh = #moe.mesh<dp = 2, tp = 2>} {
  %y = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> {moe.name = ["part"]} -> tensor<?x8xf32>
  // expected-error@+1 {{sums 'part' over dp, over which it is reduced already}}
  %z = moe.combine <dp> %y : tensor<?x8xf32>
  return %z : tensor<?x8xf32>
}

// -----

func.func @twice(%x: tensor<?x8xf32>, %w: tensor<8x8xf32> {moe.name = "shared_experts.w2"}) -> tensor<?x8xf32>
    attributes {moe.mesh = #moe.mesh<tp = 2>} {
  %y = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  // expected-note@+1 {{here}}
  %sum = moe.combine <tp> %y {moe.name = ["sum"]} : tensor<?x8xf32>
  %z = moe.row_map %sum : tensor<?x8xf32> {
  ^bb0(%v: f32):
    moe.yield %v : f32
  } {moe.name = ["same"]} -> tensor<?x8xf32>
  // expected-error@+1 {{sums 'same' over tp, over which it has been summed already, so that it would count once per rank; remove one of the sums}}
  %again = moe.combine <tp> %z : tensor<?x8xf32>
  return %again : tensor<?x8xf32>
}

// -----

func.func @two_of_one(%x: tensor<?x8xf32>, %w: tensor<8x8xf32> {moe.name = "shared_experts.w2"}) -> (tensor<?x8xf32>, tensor<?x8xf32>)
    attributes {moe.mesh = #moe.mesh<tp = 2>} {
  %y = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> {moe.name = ["part"]} -> tensor<?x8xf32>
  // expected-note@+1 {{here}}
  %sum = moe.combine <tp> %y : tensor<?x8xf32>
  // expected-error@+1 {{sums 'part' over tp, over which it has been summed already}}
  %again = moe.combine <tp> %y : tensor<?x8xf32>
  return %sum, %again : tensor<?x8xf32>, tensor<?x8xf32>
}

// -----

func.func @dispatched_part(%x: tensor<?x8xf32>, %w: tensor<8x8xf32> {moe.name = "shared_experts.w2"}) -> tensor<?x8xf32>
    attributes {moe.mesh = #moe.mesh<tp = 2>} {
  %y = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> {moe.name = ["part"]} -> tensor<?x8xf32>
  // expected-error@+1 {{takes 'part', a partial over tp, where a reduced value is needed}}
  %z = moe.dispatch <tp> %y : tensor<?x8xf32> -> tensor<?x8xf32>
  return %z : tensor<?x8xf32>
}

// -----

func.func @placed_twice(%ids: tensor<?x2xi32> {moe.name = "topk_ids"}, %t: tensor<8xi32>) -> tensor<?x2xi32>
    attributes {moe.mesh = #moe.mesh<dp = 2, num_experts = 8>} {
  %local = moe.place_ids %ids : tensor<?x2xi32> table(%t : tensor<8xi32>) {moe.name = ["local_ids"]} -> tensor<?x2xi32>
  // expected-error@+1 {{takes 'local_ids', ids of a rank's own experts, where ids of the layer's experts are needed; give the ids that the router chose}}
  %again = moe.place_ids %local : tensor<?x2xi32> table(%t : tensor<8xi32>) -> tensor<?x2xi32>
  return %again : tensor<?x2xi32>
}

// -----

func.func @returned_ids(%ids: tensor<?x2xi32> {moe.name = "topk_ids"}, %t: tensor<8xi32>) -> tensor<?x2xi32>
    attributes {moe.mesh = #moe.mesh<dp = 2, num_experts = 8>} {
  %local = moe.place_ids %ids : tensor<?x2xi32> table(%t : tensor<8xi32>) {moe.name = ["local_ids"]} -> tensor<?x2xi32>
  // expected-error@+1 {{takes 'local_ids', ids of a rank's own experts, where ids of the layer's experts are needed; return the ids that the router chose}}
  return %local : tensor<?x2xi32>
}

// -----

func.func @dispatched_ids(%ids: tensor<?x2xi32> {moe.name = "topk_ids"}, %t: tensor<8xi32>) -> tensor<?x2xi32>
    attributes {moe.mesh = #moe.mesh<dp = 2, num_experts = 8>} {
  %local = moe.place_ids %ids : tensor<?x2xi32> table(%t : tensor<8xi32>) {moe.name = ["local_ids"]} -> tensor<?x2xi32>
  // expected-error@+1 {{takes 'local_ids', ids of a rank's own experts, where ids of the layer's experts are needed; other ranks have other experts}}
  %all = moe.dispatch <dp> %local : tensor<?x2xi32> -> tensor<?x2xi32>
  return %all : tensor<?x2xi32>
}

// -----

func.func @replicas(%ids: tensor<?x2xi32> {moe.name = "topk_ids"}, %t: tensor<8xi32>, %places: tensor<8x3xi32>, %counts: tensor<8xi32>)
    -> tensor<?x2xi32> attributes {moe.mesh = #moe.mesh<dp = 2, num_experts = 8>} {
  %physical = moe.place_ids %ids : tensor<?x2xi32> table(%places : tensor<8x3xi32>) replica_counts(%counts : tensor<8xi32>)
      {moe.name = ["physical_ids"]} -> tensor<?x2xi32>
  %local = moe.place_ids %physical : tensor<?x2xi32> table(%t : tensor<8xi32>) -> tensor<?x2xi32>
  // expected-error@+1 {{takes 'physical_ids', ids of replicas, where ids of the layer's experts are needed; give the ids that the router chose}}
  %again = moe.place_ids %physical : tensor<?x2xi32> table(%places : tensor<8x3xi32>) replica_counts(%counts : tensor<8xi32>) -> tensor<?x2xi32>
  return %again : tensor<?x2xi32>
}

// -----

func.func @not_placed(%ids: tensor<?x2xi32> {moe.name = "topk_ids"}, %weights: tensor<?x2xf32>) -> tensor<5xi32>
    attributes {moe.mesh = #moe.mesh<dp = 2, num_experts = 8>} {
  // expected-error@+1 {{takes 'topk_ids', ids of the layer's experts, where ids of a rank's own experts are needed; put a moe.place_ids with the rank's table before it}}
  %offsets, %position, %source, %row_weight = moe.permute %ids, %weights {num_experts = 4 : i64}
      : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<5xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  return %offsets : tensor<5xi32>
}

// -----

func.func @placed_for_nothing(%ids: tensor<?x2xi32> {moe.name = "topk_ids"}, %weights: tensor<?x2xf32>, %t: tensor<8xi32>) -> tensor<9xi32>
    attributes {moe.mesh = #moe.mesh<dp = 2>} {
  %local = moe.place_ids %ids : tensor<?x2xi32> table(%t : tensor<8xi32>) {moe.name = ["local_ids"]} -> tensor<?x2xi32>
  // expected-error@+1 {{takes 'local_ids', ids of a rank's own experts, where ids of the layer's experts are needed; each rank has a slice of every expert: remove the table}}
  %offsets, %position, %source, %row_weight = moe.permute %local, %weights {num_experts = 8 : i64}
      : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<9xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  return %offsets : tensor<9xi32>
}

// -----

// Sums of zero experts are reduced values on each rank.
func.func @zeros_of_a_part(%rows: tensor<?x8xf32>, %x: tensor<?x8xf32>, %ids: tensor<?x2xi32> {moe.name = "topk_ids"},
    %weights: tensor<?x2xf32>, %position: tensor<?x2xi32>, %w2: tensor<4x8x8xf32> {moe.name = "experts.w2"}, %offsets: tensor<5xi32>)
    -> tensor<?x8xf32> attributes {moe.mesh = #moe.mesh<tp = 2>} {
  %y = moe.grouped_matmul %rows, %w2 : tensor<?x8xf32>, tensor<4x8x8xf32> offsets(%offsets : tensor<5xi32>)
      {moe.name = ["experts_out"]} -> tensor<?x8xf32>
  // expected-error@+1 {{adds a value without a name, which is reduced, to 'experts_out', a partial over tp, so one of them would be counted once per rank}}
  %z = moe.unpermute %y, %position : tensor<?x8xf32>, tensor<?x2xi32> identity(%x, %weights : tensor<?x8xf32>, tensor<?x2xf32>)
      -> tensor<?x8xf32>
  return %z : tensor<?x8xf32>
}

// -----

func.func @zeros_twice(%x: tensor<?x8xf32>, %rows: tensor<?x8xf32>, %weights: tensor<?x2xf32>, %ids: tensor<?x2xi32> {moe.name = "topk_ids"})
    -> tensor<?x8xf32> attributes {moe.mesh = #moe.mesh<dp = 2>} {
  %position = moe.place_ids %ids : tensor<?x2xi32> {zero_experts = array<i64: 8, 2>} -> tensor<?x2xi32>
  // expected-note@+1 {{here}}
  %y = moe.unpermute %rows, %position : tensor<?x8xf32>, tensor<?x2xi32> identity(%x, %weights : tensor<?x8xf32>, tensor<?x2xf32>)
      addend(%rows : tensor<?x8xf32>) {moe.name = ["output"]} -> tensor<?x8xf32>
  // expected-error@+1 {{adds zero experts to 'output', which already includes them; remove one of the sums}}
  %z = moe.unpermute %y, %position : tensor<?x8xf32>, tensor<?x2xi32> identity(%x, %weights : tensor<?x8xf32>, tensor<?x2xf32>)
      addend(%y : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %z : tensor<?x8xf32>
}

// -----

func.func @zeros_by_placed_ids(%ids: tensor<?x2xi32> {moe.name = "topk_ids"}, %t: tensor<8xi32>) -> tensor<?x2xi32>
    attributes {moe.mesh = #moe.mesh<dp = 2, num_experts = 8>} {
  %local = moe.place_ids %ids : tensor<?x2xi32> table(%t : tensor<8xi32>) {moe.name = ["local_ids"]} -> tensor<?x2xi32>
  // expected-error@+1 {{takes 'local_ids', ids of a rank's own experts, where ids of the layer's experts are needed; give the ids that the router chose}}
  %position = moe.place_ids %local : tensor<?x2xi32> {zero_experts = array<i64: 8, 2>} -> tensor<?x2xi32>
  return %position : tensor<?x2xi32>
}
