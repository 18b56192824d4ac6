// RUN: moe-opt %s --split-input-file --verify-diagnostics --convert-moe-to-plan

func.func @layer(%x: tensor<?x8xf32> {moe.name = "hidden_states", moe.role = "input"},
    %ids: tensor<?x1xi32> {moe.name = "topk_ids", moe.role = "input"},
    %wt: tensor<?x1xf32> {moe.name = "topk_weights", moe.role = "input"},
    %w13: tensor<2x4x8xf32> {moe.name = "experts.w13", moe.role = "weight"},
    %w2: tensor<2x8x4xf32> {moe.name = "experts.w2", moe.role = "weight"}) -> (tensor<?x8xf32> {moe.name = "output"}) {
  // expected-error @below {{'moe.layer' op cannot be converted to a plan as a whole; run moe-decompose first}}
  %0 = moe.layer %x : tensor<?x8xf32> ids(%ids : tensor<?x1xi32>) weights(%wt : tensor<?x1xf32>)
      experts(%w13, %w2 : tensor<2x4x8xf32>, tensor<2x8x4xf32>)
      activation {
      ^bb0(%a: f32):
        moe.yield %a : f32
      } -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

func.func @other_op(%x: tensor<?x8xf32> {moe.name = "x", moe.role = "input"},
    %w: tensor<8x8xf32> {moe.name = "w", moe.role = "weight"}) -> (tensor<?x8xf32> {moe.name = "output"}) {
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  // expected-error @below {{'arith.negf' op cannot be converted to a kernel; a layer's function holds only moe.route}}
  %1 = arith.negf %0 : tensor<?x8xf32>
  return %1 : tensor<?x8xf32>
}

// -----

// expected-error @below {{argument 0 has no name; add {moe.name = "hidden_states"} or another tensor name of docs/use/layers.md}}
func.func @no_name(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>) -> (tensor<?x8xf32> {moe.name = "output"}) {
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

// expected-error @below {{argument 1 ('w') has no role; add moe.role = "input" or "weight"}}
func.func @no_role(%x: tensor<?x8xf32> {moe.name = "x", moe.role = "input"},
    %w: tensor<8x8xf32> {moe.name = "w"}) -> (tensor<?x8xf32> {moe.name = "output"}) {
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

// expected-error @below {{argument 1 is the second argument with moe.name = "x"; give each tensor its own name}}
func.func @same_name(%x: tensor<?x8xf32> {moe.name = "x", moe.role = "input"},
    %w: tensor<8x8xf32> {moe.name = "x", moe.role = "weight"}) -> (tensor<?x8xf32> {moe.name = "output"}) {
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

// expected-error @below {{argument 2 must be a ranked tensor with at most its first dimension dynamic}}
func.func @scalar(%x: tensor<?x8xf32> {moe.name = "x", moe.role = "input"},
    %w: tensor<8x8xf32> {moe.name = "w", moe.role = "weight"},
    %s: f32 {moe.name = "s", moe.role = "input"}) -> (tensor<?x8xf32> {moe.name = "output"}) {
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

// expected-error @below {{argument 1 ('w') is a weight with a dynamic dimension; weights have constant shapes}}
func.func @dynamic_weight(%x: tensor<?x8xf32> {moe.name = "x", moe.role = "input"},
    %w: tensor<?x1xf32> {moe.name = "w", moe.role = "weight"}) -> (tensor<?x8xf32> {moe.name = "output"}) {
  %0 = moe.row_map %x : tensor<?x8xf32> rows(%w : tensor<?x1xf32>) {
  ^bb0(%a: f32, %b: f32):
    moe.yield %a : f32
  } -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

// expected-error @below {{result 0 has no name; add {moe.name = "output"}}}
func.func @unnamed_result(%x: tensor<?x8xf32> {moe.name = "x", moe.role = "input"},
    %w: tensor<8x8xf32> {moe.name = "w", moe.role = "weight"}) -> tensor<?x8xf32> {
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

// expected-error @below {{result 1 returns the same value as an earlier result; return each value once}}
func.func @twice(%x: tensor<?x8xf32> {moe.name = "x", moe.role = "input"},
    %w: tensor<8x8xf32> {moe.name = "w", moe.role = "weight"})
    -> (tensor<?x8xf32> {moe.name = "output"}, tensor<?x8xf32> {moe.name = "again"}) {
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  return %0, %0 : tensor<?x8xf32>, tensor<?x8xf32>
}

// -----

// expected-error @below {{result 0 is not the result of a moe op; return results of moe ops}}
func.func @identity(%x: tensor<?x8xf32> {moe.name = "x", moe.role = "input"},
    %w: tensor<8x8xf32> {moe.name = "w", moe.role = "weight"}) -> (tensor<?x8xf32> {moe.name = "output"}) {
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  return %x : tensor<?x8xf32>
}

// -----

// expected-error @below {{result 0 has the name "w" of another tensor; give each tensor its own name}}
func.func @result_name(%x: tensor<?x8xf32> {moe.name = "x", moe.role = "input"},
    %w: tensor<8x8xf32> {moe.name = "w", moe.role = "weight"}) -> (tensor<?x8xf32> {moe.name = "w"}) {
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

func.func @constant_tensor(%x: tensor<?x2xf32> {moe.name = "x", moe.role = "input"}) -> (tensor<?x1xf32> {moe.name = "output"}) {
  %w = arith.constant dense<1.0> : tensor<1x2xf32>
  // expected-error @below {{reads a constant tensor; make it an argument of the function with moe.role = "weight"}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x2xf32>, tensor<1x2xf32> -> tensor<?x1xf32>
  return %0 : tensor<?x1xf32>
}

// -----

// expected-error @below {{has moe.max_tokens = 0; give at least 1}}
func.func @no_tokens(%x: tensor<?x8xf32> {moe.name = "x", moe.role = "input"},
    %w: tensor<8x8xf32> {moe.name = "w", moe.role = "weight"}) -> (tensor<?x8xf32> {moe.name = "output"})
    attributes {moe.max_tokens = 0 : i64} {
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

// expected-error @below {{argument 0 ('x') has moe.strided, which only weights of rank 2 or more may have; remove it}}
func.func @strided_input(%x: tensor<?x8xf32> {moe.name = "x", moe.role = "input", moe.strided},
    %w: tensor<8x8xf32> {moe.name = "w", moe.role = "weight"}) -> (tensor<?x8xf32> {moe.name = "output"}) {
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

func.func @rows_of_tokens(%x: tensor<?x8xf32> {moe.name = "x", moe.role = "input"},
    %ids: tensor<?x2xi32> {moe.name = "topk_ids", moe.role = "input"},
    %wt: tensor<?x2xf32> {moe.name = "topk_weights", moe.role = "input"},
    %w: tensor<2x8x8xf32> {moe.name = "w", moe.role = "weight"}) -> (tensor<?x8xf32> {moe.name = "output"}) {
  %offsets, %position, %source, %row_weight = moe.permute %ids, %wt {num_experts = 2 : i64}
      : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<3xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  // expected-error @below {{operand 'input' has tokens rows, but the moe.permute of its offsets has tokens * 2; give both rows of the same tokens or slots}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<2x8x8xf32> offsets(%offsets : tensor<3xi32>) -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

func.func @source_of_positions(%x: tensor<?x8xf32> {moe.name = "x", moe.role = "input"},
    %ids: tensor<?x2xi32> {moe.name = "topk_ids", moe.role = "input"},
    %wt: tensor<?x2xf32> {moe.name = "topk_weights", moe.role = "input"},
    %w: tensor<2x8x8xf32> {moe.name = "w", moe.role = "weight"}) -> (tensor<?x8xf32> {moe.name = "output"}) {
  %offsets, %position, %source, %row_weight = moe.permute %ids, %wt {num_experts = 2 : i64}
      : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<3xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<2x8x8xf32> offsets(%offsets : tensor<3xi32>)
      source(%source : tensor<?xi32>) -> tensor<?x8xf32>
  // expected-error @below {{operand 'input' has tokens * 2 rows, but the tensor of ids behind its source has tokens}}
  %1 = moe.grouped_matmul %0, %w : tensor<?x8xf32>, tensor<2x8x8xf32> offsets(%offsets : tensor<3xi32>)
      source(%source : tensor<?xi32>) -> tensor<?x8xf32>
  return %1 : tensor<?x8xf32>
}

// -----

func.func @row_operand(%x: tensor<?x8xf32> {moe.name = "x", moe.role = "input"},
    %ids: tensor<?x2xi32> {moe.name = "topk_ids", moe.role = "input"},
    %wt: tensor<?x2xf32> {moe.name = "topk_weights", moe.role = "input"},
    %s: tensor<?x1xf32> {moe.name = "s", moe.role = "input"},
    %w: tensor<2x8x8xf32> {moe.name = "w", moe.role = "weight"}) -> (tensor<?x8xf32> {moe.name = "output"}) {
  %offsets, %position, %source, %row_weight = moe.permute %ids, %wt {num_experts = 2 : i64}
      : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<3xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  // expected-error @below {{operand 'rows[0]' has tokens rows, but 'source' has tokens * 2}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x8xf32>, tensor<2x8x8xf32> offsets(%offsets : tensor<3xi32>)
      source(%source : tensor<?xi32>) rows(%s : tensor<?x1xf32>) epilogue {
  ^bb0(%a: f32, %b: f32):
    %c = arith.mulf %a, %b : f32
    moe.yield %c : f32
  } -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

func.func @sum_of_tokens(%x: tensor<?x8xf32> {moe.name = "x", moe.role = "input"},
    %ids: tensor<?x2xi32> {moe.name = "topk_ids", moe.role = "input"},
    %wt: tensor<?x2xf32> {moe.name = "topk_weights", moe.role = "input"}) -> (tensor<?x8xf32> {moe.name = "output"}) {
  %offsets, %position, %source, %row_weight = moe.permute %ids, %wt {num_experts = 2 : i64}
      : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<3xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  // expected-error @below {{operand 'rows' has tokens rows, but the moe.permute of its positions has tokens * 2}}
  %0 = moe.unpermute %x, %position : tensor<?x8xf32>, tensor<?x2xi32> -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

func.func @slots(%x: tensor<?x8xf32> {moe.name = "x", moe.role = "input"},
    %ids: tensor<?x2xi32> {moe.name = "topk_ids", moe.role = "input"},
    %wt: tensor<?x2xf32> {moe.name = "topk_weights", moe.role = "input"},
    %order: tensor<2x8xi32> {moe.name = "order", moe.role = "weight"}) -> (tensor<?x8xf32> {moe.name = "output"}) {
  %offsets, %position, %source, %row_weight = moe.permute %ids, %wt {num_experts = 2 : i64}
      : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<3xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  // expected-error @below {{has top_k = 1 for tokens * 2 positions of tokens tokens; give the number of slots of a token}}
  %0 = moe.gather_rows %x : tensor<?x8xf32> offsets(%offsets : tensor<3xi32>) source(%source : tensor<?xi32>)
      columns(%order : tensor<2x8xi32>) {top_k = 1 : i64} -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}
