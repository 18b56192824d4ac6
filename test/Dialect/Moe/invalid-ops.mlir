// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @param() {
  // expected-error@+1 {{'moe.param' op is only allowed in the region 'activation' of a 'moe.layer'}}
  %0 = moe.param "limit"
  return
}

// -----

func.func @yield(%v: f32) {
  // expected-error@+1 {{'moe.yield' op expects parent op to be one of 'moe.layer, moe.route, moe.grouped_matmul, moe.row_map'}}
  moe.yield %v : f32
}

// -----

func.func @route(%logits: tensor<8x4xf32>) {
  // expected-error@+1 {{'logits' must be of shape tokens x num_routed = ?x*, not 8x4 (* is any size above 0) (the number of tokens is known only at run time: write '?')}}
  %0:2 = moe.route %logits : tensor<8x4xf32> <top_k = 2> -> tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @route(%logits: tensor<?x4xf32>) {
  // expected-error@+1 {{'ids' must be of shape tokens x top_k = ?x2, not ?x3}}
  %0:2 = moe.route %logits : tensor<?x4xf32> <top_k = 2> -> tensor<?x3xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @route(%logits: tensor<?x4xf32>) {
  // expected-error@+1 {{'weights' must be of shape tokens x top_k = ?x2, not ?}}
  %0:2 = moe.route %logits : tensor<?x4xf32> <top_k = 2> -> tensor<?x2xi32>, tensor<?xf32>
  return
}

// -----

func.func @route(%logits: tensor<?x4xf32>, %valid: tensor<2xi32>) {
  // expected-error@+1 {{'num_valid_tokens' must be of shape 1, not 2}}
  %0:2 = moe.route %logits : tensor<?x4xf32> num_valid_tokens(%valid : tensor<2xi32>)
      <top_k = 2> -> tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @route(%logits: tensor<?x4xf32>, %bias: tensor<5xf32>) {
  // expected-error@+1 {{'selection_bias' must be of shape num_routed = 4, not 5}}
  %0:2 = moe.route %logits : tensor<?x4xf32> selection_bias(%bias : tensor<5xf32>)
      <top_k = 2> -> tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @route(%logits: tensor<?x4xf32>) {
  // expected-error@+1 {{'top_k' is 5, but there are only 4 experts to choose from}}
  %0:2 = moe.route %logits : tensor<?x4xf32> <top_k = 5> -> tensor<?x5xi32>, tensor<?x5xf32>
  return
}

// -----

func.func @route(%logits: tensor<?x4xf32>) {
  // expected-error@+1 {{region 'score' must take 'logit' as f32, not as 'f64'; operands are converted to f32 before the region}}
  %0:2 = moe.route %logits : tensor<?x4xf32> <top_k = 2> score {
  ^bb0(%l: f64):
    %s = arith.truncf %l : f64 to f32
    moe.yield %s : f32
  } -> tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @route(%logits: tensor<?x4xf32>) {
  // expected-error@+1 {{region 'weight' must take (score), each f32, but takes 2 arguments}}
  %0:2 = moe.route %logits : tensor<?x4xf32> <top_k = 2> weight {
  ^bb0(%l: f32, %m: f32):
    moe.yield %l : f32
  } -> tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @permute(%ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>) {
  // expected-error@+1 {{'num_experts' is 0; 1 to 2147483647 is accepted}}
  %0:4 = moe.permute %ids, %weights {num_experts = 0 : i64}
      : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<1xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  return
}

// -----

func.func @permute(%ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>) {
  // expected-error@+1 {{'num_zero_experts' is -1; 0 to}}
  %0:4 = moe.permute %ids, %weights {num_experts = 8 : i64, num_zero_experts = -1 : i64}
      : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<9xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  return
}

// -----

func.func @permute(%ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>) {
  // expected-error@+1 {{local experts must name at least one expert}}
  %0:4 = moe.permute %ids, %weights {num_experts = 8 : i64, local_experts = array<i64>}
      : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<1xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  return
}

// -----

func.func @permute(%ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>) {
  // expected-error@+1 {{local expert -1 is out of range; ids are 0 to 7}}
  %0:4 = moe.permute %ids, %weights {num_experts = 8 : i64, local_experts = array<i64: 0, -1>}
      : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<3xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  return
}

// -----

func.func @permute(%ids: tensor<?x2xi32>, %weights: tensor<?x3xf32>) {
  // expected-error@+1 {{'weights' must be of shape tokens x top_k = ?x2, not ?x3}}
  %0:4 = moe.permute %ids, %weights {num_experts = 8 : i64}
      : tensor<?x2xi32>, tensor<?x3xf32> -> tensor<9xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  return
}

// -----

func.func @permute(%ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>) {
  // expected-error@+1 {{'offsets' must be of shape (local experts + 1) = 3, not 9}}
  %0:4 = moe.permute %ids, %weights {num_experts = 8 : i64, local_experts = array<i64: 0, 3>}
      : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<9xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  return
}

// -----

func.func @permute(%ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>) {
  // expected-error@+1 {{'source' must be of shape positions = ?, not 16 (the number of positions is known only at run time: write '?')}}
  %0:4 = moe.permute %ids, %weights {num_experts = 8 : i64}
      : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<9xi32>, tensor<?x2xi32>, tensor<16xi32>, tensor<?x1xf32>
  return
}

// -----

func.func @permute(%ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>) {
  // expected-error@+1 {{'row_weight' must be of shape positions x 1 = ?x1, not ?}}
  %0:4 = moe.permute %ids, %weights {num_experts = 8 : i64}
      : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<9xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?xf32>
  return
}

// -----

func.func @matmul(%x: tensor<?x16xf32>, %w: tensor<8x16xf32>, %source: tensor<?xi32>) {
  // expected-error@+1 {{takes 'source' with 'offsets' only; a dense gemm reads its rows in order}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x16xf32>, tensor<8x16xf32>
      source(%source : tensor<?xi32>) -> tensor<?x8xf32>
  return
}

// -----

func.func @matmul(%x: tensor<?x16xf32>, %w: tensor<4x8x16xf32>, %offsets: tensor<5xi32>, %valid: tensor<1xi32>) {
  // expected-error@+1 {{takes 'num_valid_tokens' without 'offsets' only; offsets already cover only valid rows}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x16xf32>, tensor<4x8x16xf32>
      offsets(%offsets : tensor<5xi32>) num_valid_tokens(%valid : tensor<1xi32>) -> tensor<?x8xf32>
  return
}

// -----

func.func @matmul(%x: tensor<?x16xf32>, %w: tensor<4x8x16xf32>, %offsets: tensor<1xi32>) {
  // expected-error@+1 {{'offsets' must have at least 2 entries: the begin and the end of one group}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x16xf32>, tensor<4x8x16xf32>
      offsets(%offsets : tensor<1xi32>) -> tensor<?x8xf32>
  return
}

// -----

func.func @matmul(%x: tensor<?x16xf32>, %w: tensor<4x8x16xf32>, %offsets: tensor<4xi32>) {
  // expected-error@+1 {{'weight' must be of shape groups x n x k = 3x*x16, not 4x8x16}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x16xf32>, tensor<4x8x16xf32>
      offsets(%offsets : tensor<4xi32>) -> tensor<?x8xf32>
  return
}

// -----

func.func @matmul(%x: tensor<?x16xf32>, %w: tensor<4x8x16xf32>) {
  // expected-error@+1 {{'weight' must be of shape n x k = *x16, not 4x8x16}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x16xf32>, tensor<4x8x16xf32> -> tensor<?x8xf32>
  return
}

// -----

func.func @matmul(%x: tensor<?x16xf32>, %w: tensor<8x16xbf16>) {
  // expected-error@+1 {{'weight' must have elements of type 'f32', like 'input', not 'bf16'}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x16xf32>, tensor<8x16xbf16> -> tensor<?x8xf32>
  return
}

// -----

func.func @matmul(%x: tensor<?x16xf32>, %w: tensor<7x16xf32>) {
  // expected-error@+1 {{has a 'layout', so the rows of 'weight' must be pairs (gate, up), but there are 7}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x16xf32>, tensor<7x16xf32>
      {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x7xf32>
  return
}

// -----

func.func @matmul(%x: tensor<?x16xf32>, %w: tensor<8x16xf32>) {
  // expected-error@+1 {{'result' must be of shape tokens x (n / 2) = ?x4, not ?x8}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x16xf32>, tensor<8x16xf32>
      {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x8xf32>
  return
}

// -----

func.func @matmul(%x: tensor<?x16xf32>, %w: tensor<4x8x16xf32>, %offsets: tensor<5xi32>, %rows: tensor<?xf32>) {
  // expected-error@+1 {{'rows[0]' must be of shape positions x 1 = ?x1, not ?}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x16xf32>, tensor<4x8x16xf32>
      offsets(%offsets : tensor<5xi32>) rows(%rows : tensor<?xf32>) -> tensor<?x8xf32>
  return
}

// -----

func.func @matmul(%x: tensor<?x16xf32>, %w: tensor<4x8x16xf32>, %offsets: tensor<5xi32>, %a: tensor<4x8xf32>, %b: tensor<8xf32>) {
  // expected-error@+1 {{'columns[1]' must be of shape groups x n = 4x8, not 8}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x16xf32>, tensor<4x8x16xf32>
      offsets(%offsets : tensor<5xi32>) columns(%a, %b : tensor<4x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
  return
}

// -----

func.func @matmul(%x: tensor<?x16xf32>, %w: tensor<8x16xf32>, %e: tensor<?x16xf32>) {
  // expected-error@+1 {{'elementwise[0]' must be of shape tokens x n = ?x8, not ?x16}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x16xf32>, tensor<8x16xf32>
      elementwise(%e : tensor<?x16xf32>) -> tensor<?x8xf32>
  return
}

// -----

func.func @matmul(%x: tensor<?x16xf32>, %w: tensor<8x16xf32>) {
  // expected-error@+1 {{has a 'layout', hence two accumulators; add an epilogue that combines them into one value}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x16xf32>, tensor<8x16xf32>
      {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x4xf32>
  return
}

// -----

func.func @matmul(%x: tensor<?x16xf32>, %w: tensor<8x16xf32>, %b: tensor<8xf32>) {
  // expected-error@+1 {{has operands 'rows', 'columns', 'elementwise' or 'b', but no epilogue that reads them; add one}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x16xf32>, tensor<8x16xf32>
      columns(%b : tensor<8xf32>) -> tensor<?x8xf32>
  return
}

// -----

func.func @matmul(%x: tensor<?x16xf32>, %w: tensor<8x16xf32>, %r: tensor<?x1xf32>, %c: tensor<8xf32>, %e: tensor<?x4xf32>) {
  // expected-error@+1 {{region 'epilogue' must take (acc.gate, acc.up, rows[0], columns[0].gate, columns[0].up, elementwise[0]), each f32, but takes 1 argument}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x16xf32>, tensor<8x16xf32>
      rows(%r : tensor<?x1xf32>) columns(%c : tensor<8xf32>) elementwise(%e : tensor<?x4xf32>) epilogue {
      ^bb0(%a: f32):
        moe.yield %a : f32
      } {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x4xf32>
  return
}

// -----

func.func @matmul(%x: tensor<?x16xf32>, %w: tensor<8x16xf32>, %t: tensor<f32>) {
  %0 = moe.grouped_matmul %x, %w : tensor<?x16xf32>, tensor<8x16xf32> epilogue {
      ^bb0(%a: f32):
        %c = arith.cmpf ogt, %a, %a : f32
        // expected-error@+1 {{'scf.if' op is not allowed in the scalar region 'epilogue'}}
        scf.if %c {
        }
        moe.yield %a : f32
      } -> tensor<?x8xf32>
  return
}

// -----

func.func @gather_rows(%x: tensor<?x16xf16>, %o: tensor<5xi32>, %s: tensor<?xi32>, %c: tensor<4x15xi32>) {
  // expected-error@+1 {{'columns'}}
  %0 = moe.gather_rows %x : tensor<?x16xf16> offsets(%o : tensor<5xi32>) source(%s : tensor<?xi32>)
      columns(%c : tensor<4x15xi32>) {top_k = 2 : i64} -> tensor<?x16xf16>
  return
}

// -----

func.func @gather_rows(%x: tensor<?x16xf16>, %o: tensor<5xi32>, %s: tensor<?xi32>, %c: tensor<4x16xi32>) {
  // expected-error@+1 {{'top_k' is 0; give at least 1}}
  %0 = moe.gather_rows %x : tensor<?x16xf16> offsets(%o : tensor<5xi32>) source(%s : tensor<?xi32>)
      columns(%c : tensor<4x16xi32>) {top_k = 0 : i64} -> tensor<?x16xf16>
  return
}

// -----

func.func @gather_rows(%x: tensor<?x16xf16>, %c: tensor<1x16xi32>) {
  // expected-error@+1 {{takes 'offsets', 'source' and the attribute 'top_k' together: there are at most tokens * top_k positions}}
  %0 = moe.gather_rows %x : tensor<?x16xf16> columns(%c : tensor<1x16xi32>) {top_k = 2 : i64} -> tensor<?x16xf16>
  return
}

// -----

func.func @gather_rows(%x: tensor<?x16xf16>, %c: tensor<4x16xi32>) {
  // expected-error@+1 {{'columns' must be of shape groups x width = 1x16, not 4x16}}
  %0 = moe.gather_rows %x : tensor<?x16xf16> columns(%c : tensor<4x16xi32>) -> tensor<?x16xf16>
  return
}

// -----

func.func @row_map(%x: tensor<?x16xf32>) {
  // expected-error@+1 {{'result' must be of shape tokens x width = ?x16, not ?x8}}
  %0 = moe.row_map %x : tensor<?x16xf32> {
  ^bb0(%v: f32):
    moe.yield %v : f32
  } -> tensor<?x8xf32>
  return
}

// -----

func.func @row_map(%x: tensor<?x16xf32>) {
  // expected-error@+1 {{'result' must have elements of type 'f32', like 'input', not 'bf16'}}
  %0 = moe.row_map %x : tensor<?x16xf32> {
  ^bb0(%v: f32):
    moe.yield %v : f32
  } -> tensor<?x16xbf16>
  return
}

// -----

func.func @row_map(%x: tensor<?x16xf32>, %w: tensor<?x2xf32>) {
  // expected-error@+1 {{'rows[0]' must be of shape tokens x 1 = ?x1, not ?x2}}
  %0 = moe.row_map %x : tensor<?x16xf32> rows(%w : tensor<?x2xf32>) {
  ^bb0(%v: f32, %r: f32):
    moe.yield %v : f32
  } -> tensor<?x16xf32>
  return
}

// -----

func.func @row_map(%x: tensor<?x16xf32>, %w: tensor<?x1xf32>) {
  // expected-error@+1 {{region 'body' must take (x, rows[0]), each f32, but takes 1 argument}}
  %0 = moe.row_map %x : tensor<?x16xf32> rows(%w : tensor<?x1xf32>) {
  ^bb0(%v: f32):
    moe.yield %v : f32
  } -> tensor<?x16xf32>
  return
}

// -----

func.func @row_map(%x: tensor<?x16xf32>) {
  %0 = moe.row_map %x : tensor<?x16xf32> {
  ^bb0(%v: f32):
    // expected-error@+1 {{'func.call' op is not allowed in the scalar region 'body'}}
    %y = func.call @f(%v) : (f32) -> f32
    moe.yield %y : f32
  } -> tensor<?x16xf32>
  return
}
func.func private @f(f32) -> f32

// -----

func.func @unpermute(%rows: tensor<?x16xf32>, %position: tensor<?x2xi32>) {
  // expected-error@+1 {{'result' must be of shape tokens x width = ?x16, not ?x8}}
  %0 = moe.unpermute %rows, %position : tensor<?x16xf32>, tensor<?x2xi32> -> tensor<?x8xf32>
  return
}

// -----

func.func @unpermute(%rows: tensor<?x16xf32>, %position: tensor<?x2xi32>) {
  // expected-error@+1 {{'result' must have elements of type 'f32', like 'rows', not 'bf16'}}
  %0 = moe.unpermute %rows, %position : tensor<?x16xf32>, tensor<?x2xi32> -> tensor<?x16xbf16>
  return
}

// -----

func.func @unpermute(%rows: tensor<?x16xf32>, %position: tensor<?xi32>) {
  // expected-error@+1 {{'position' must be of shape tokens x top_k = ?x*, not ?}}
  %0 = moe.unpermute %rows, %position : tensor<?x16xf32>, tensor<?xi32> -> tensor<?x16xf32>
  return
}

// -----

func.func @unpermute(%rows: tensor<?x16xf32>, %position: tensor<?x2xi32>, %x: tensor<?x16xf32>, %w: tensor<?x3xf32>) {
  // expected-error@+1 {{'identity_weights' must be of shape tokens x top_k = ?x2, not ?x3}}
  %0 = moe.unpermute %rows, %position : tensor<?x16xf32>, tensor<?x2xi32>
      identity(%x, %w : tensor<?x16xf32>, tensor<?x3xf32>) -> tensor<?x16xf32>
  return
}

// -----

func.func @unpermute(%rows: tensor<?x16xf32>, %position: tensor<?x2xi32>, %x: tensor<?x16xf32>) {
  // The custom syntax cannot express this.
  // expected-error@+1 {{takes 'identity' and 'identity_weights' together}}
  %0 = "moe.unpermute"(%rows, %position, %x) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>}
      : (tensor<?x16xf32>, tensor<?x2xi32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return
}

// -----

func.func @unpermute(%rows: tensor<?x16xf32>, %position: tensor<?x2xi32>, %s: tensor<?x16xbf16>) {
  // expected-error@+1 {{'addend' must have elements of type 'f32', like 'rows', not 'bf16'}}
  %0 = moe.unpermute %rows, %position : tensor<?x16xf32>, tensor<?x2xi32>
      addend(%s : tensor<?x16xbf16>) -> tensor<?x16xf32>
  return
}

// -----

func.func @permute(%ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>) {
  // expected-error@+1 {{'num_experts' is 9223372036854775807; 1 to 2147483647 is accepted}}
  %0:4 = moe.permute %ids, %weights {num_experts = 9223372036854775807 : i64}
      : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<1xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  return
}

// -----

func.func @permute(%ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>) {
  // expected-error@+1 {{'num_zero_experts' is 2147483640; 0 to 2147483639 is accepted, so that ids fit 32 bits}}
  %0:4 = moe.permute %ids, %weights {num_experts = 8 : i64, num_zero_experts = 2147483640 : i64}
      : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<9xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  return
}

// -----

func.func @unpermute(%rows: tensor<?x16xf32>, %position: tensor<?x2xi32>, %s: tensor<?x32xf32>) {
  // expected-error@+1 {{adds nothing with 'unreduced', so it takes neither 'from_unreduced' nor 'identity' nor 'addend'}}
  %0 = moe.unpermute unreduced %rows, %position : tensor<?x16xf32>, tensor<?x2xi32>
      addend(%s : tensor<?x32xf32>) -> tensor<?x32xf32>
  return
}

// -----

func.func @unpermute(%rows: tensor<?x16xf32>, %position: tensor<?x2xi32>) {
  // expected-error@+1 {{'result' must be of shape tokens x top_k * width = ?x32, not ?x16}}
  %0 = moe.unpermute unreduced %rows, %position : tensor<?x16xf32>, tensor<?x2xi32> -> tensor<?x16xf32>
  return
}

// -----

func.func @unpermute(%rows: tensor<?x16xf32>, %position: tensor<?x2xi32>) {
  // expected-error@+1 {{'rows' must be of shape tokens x top_k * width = ?x32, not ?x16}}
  %0 = moe.unpermute from_unreduced %rows, %position : tensor<?x16xf32>, tensor<?x2xi32> -> tensor<?x16xf32>
  return
}

// -----

func.func @unpermute(%rows: tensor<?x32xf32>, %position: tensor<?x2xi32>) {
  // expected-error@+1 {{'result' must be of shape tokens x width = ?x*, not ?}}
  %0 = moe.unpermute from_unreduced %rows, %position : tensor<?x32xf32>, tensor<?x2xi32> -> tensor<?xf32>
  return
}
