// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @quantize(%x: tensor<?x200xbf16>) {
  // expected-error@+1 {{'group' is 64; scales of 128 neighbours are accepted}}
  %q, %s = moe.quantize %x {group = 64 : i64} : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x4xf32>
  return
}

// -----

func.func @quantize(%x: tensor<?x200xbf16>) {
  // expected-error@+1 {{'scale' must be of shape tokens x (groups of width) = ?x2, not ?x1}}
  %q, %s = moe.quantize %x : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x1xf32>
  return
}

// -----

func.func @quantize(%x: tensor<?x200xbf16>) {
  // expected-error@+1 {{'quantized' must be of shape tokens x width = ?x200, not ?x100}}
  %q, %s = moe.quantize %x : tensor<?x200xbf16> -> tensor<?x100xf8E4M3FN>, tensor<?x2xf32>
  return
}

// -----

func.func @quantize(%x: tensor<8x200xbf16>) {
  // expected-error@+1 {{'input' must be of shape tokens x width = ?x*, not 8x200}}
  %q, %s = moe.quantize %x : tensor<8x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x2xf32>
  return
}

// -----

func.func @quantize(%x: tensor<?x200xbf16>, %o: tensor<5xi32>) {
  // expected-error@+1 {{takes 'offsets' and the attribute 'top_k' together: there are at most tokens * top_k positions}}
  %q, %s = moe.quantize %x offsets(%o : tensor<5xi32>) : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x2xf32>
  return
}

// -----

func.func @quantize(%x: tensor<?x200xbf16>) {
  // expected-error@+1 {{takes 'offsets' and the attribute 'top_k' together}}
  %q, %s = moe.quantize %x {top_k = 2 : i64} : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x2xf32>
  return
}

// -----

func.func @quantize(%x: tensor<?x200xbf16>, %o: tensor<5xi32>) {
  // expected-error@+1 {{'top_k' is 0; at least 1 is accepted}}
  %q, %s = moe.quantize %x offsets(%o : tensor<5xi32>) {top_k = 0 : i64} : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x2xf32>
  return
}

// -----

func.func @quantize(%x: tensor<?x200xbf16>, %o: tensor<1xi32>) {
  // expected-error@+1 {{'offsets' must have at least 2 entries: the begin and the end of one group}}
  %q, %s = moe.quantize %x offsets(%o : tensor<1xi32>) {top_k = 2 : i64} : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x2xf32>
  return
}

// -----

func.func @quantize(%x: tensor<?x200xbf16>) {
  // expected-error@+1 {{result #0 must be ranked tensor of f8E4M3FN type values, but got 'tensor<?x200xf8E5M2>'}}
  %q, %s = moe.quantize %x : tensor<?x200xbf16> -> tensor<?x200xf8E5M2>, tensor<?x2xf32>
  return
}

// -----

func.func @matmul(%x: tensor<?x200xf8E4M3FN>, %w: tensor<160x200xf8E4M3FN>) {
  // expected-error@+1 {{has operands of f8E4M3FN, which mean nothing without 'scales'; add 'scales(%input_scale, %weight_scale)', the first of them made by 'quantize'}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x200xf8E4M3FN>, tensor<160x200xf8E4M3FN> -> tensor<?x160xbf16>
  return
}

// -----

func.func @matmul(%x: tensor<?x200xbf16>, %w: tensor<160x200xbf16>, %s: tensor<?x2xf32>, %t: tensor<2x2xf32>) {
  // expected-error@+1 {{takes 'scales' with an 'input' and a 'weight' of f8E4M3FN only, not 'bf16'; remove them}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x200xbf16>, tensor<160x200xbf16>
      scales(%s, %t : tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x160xbf16>
  return
}

// -----

func.func @matmul(%x: tensor<?x200xbf16>, %w: tensor<160x200xf8E4M3FN>, %s: tensor<?x2xf32>, %t: tensor<2x2xf32>) {
  // expected-error@+1 {{'weight' must have elements of type 'bf16', like 'input', not 'f8E4M3FN'}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x200xbf16>, tensor<160x200xf8E4M3FN>
      scales(%s, %t : tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x160xbf16>
  return
}

// -----

func.func @matmul(%x: tensor<?x200xf8E4M3FN>, %w: tensor<160x200xf8E4M3FN>, %s: tensor<?x1xf32>, %t: tensor<2x2xf32>) {
  // expected-error@+1 {{'input_scale' must be of shape tokens x (blocks of k) = ?x2, not ?x1}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x200xf8E4M3FN>, tensor<160x200xf8E4M3FN>
      scales(%s, %t : tensor<?x1xf32>, tensor<2x2xf32>) -> tensor<?x160xbf16>
  return
}

// -----

// 160 gate rows and 160 up rows: two blocks each.
func.func @matmul(%x: tensor<?x200xf8E4M3FN>, %w: tensor<4x320x200xf8E4M3FN>, %s: tensor<?x2xf32>, %t: tensor<4x3x2xf32>, %o: tensor<5xi32>) {
  // expected-error@+1 {{'weight_scale' must be of shape groups x (blocks of n) x (blocks of k) = 4x4x2, not 4x3x2}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x200xf8E4M3FN>, tensor<4x320x200xf8E4M3FN>
      scales(%s, %t : tensor<?x2xf32>, tensor<4x3x2xf32>) offsets(%o : tensor<5xi32>)
      epilogue {
      ^bb0(%gate: f32, %up: f32):
        moe.yield %gate : f32
      } {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x160xbf16>
  return
}

// -----

func.func @matmul(%x: tensor<?x200xf8E4M3FN>, %w: tensor<160x200xf8E4M3FN>, %s: tensor<?x2xf32>, %t: tensor<2x2xf32>) {
  // expected-error@+1 {{takes 'input_scale' and 'weight_scale' together}}
  %0 = "moe.grouped_matmul"(%x, %w, %s) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0>}> ({})
      : (tensor<?x200xf8E4M3FN>, tensor<160x200xf8E4M3FN>, tensor<?x2xf32>) -> tensor<?x160xbf16>
  return
}
