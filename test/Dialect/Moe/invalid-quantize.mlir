// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @quantize(%x: tensor<?x200xbf16>) {
  // expected-error@+1 {{'scale' must be of shape tokens x (scales of a row) = ?x4, not ?x3}}
  %q, %s = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 64], dynamic = true> %x : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x3xf32>
  return
}

// -----

func.func @quantize(%x: tensor<?x200xbf16>) {
  // expected-error@+1 {{'scale' must be of shape tokens x (scales of a row) = ?x2, not ?x1}}
  %q, %s = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> %x : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x1xf32>
  return
}

// -----

func.func @quantize(%x: tensor<?x200xbf16>) {
  // expected-error@+1 {{'quantized' must be of shape tokens x width = ?x200, not ?x100}}
  %q, %s = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> %x : tensor<?x200xbf16> -> tensor<?x100xf8E4M3FN>, tensor<?x2xf32>
  return
}

// -----

func.func @quantize(%x: tensor<8x200xbf16>) {
  // expected-error@+1 {{'input' must be of shape tokens x width = ?x*, not 8x200}}
  %q, %s = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> %x : tensor<8x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x2xf32>
  return
}

// -----

func.func @quantize(%x: tensor<?x200xbf16>, %o: tensor<5xi32>) {
  // expected-error@+1 {{takes 'offsets' and the attribute 'top_k' together: there are at most tokens * top_k positions}}
  %q, %s = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> %x offsets(%o : tensor<5xi32>) : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x2xf32>
  return
}

// -----

func.func @quantize(%x: tensor<?x200xbf16>) {
  // expected-error@+1 {{takes 'offsets' and the attribute 'top_k' together}}
  %q, %s = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> %x {top_k = 2 : i64} : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x2xf32>
  return
}

// -----

func.func @quantize(%x: tensor<?x200xbf16>, %o: tensor<5xi32>) {
  // expected-error@+1 {{'top_k' is 0; at least 1 is accepted}}
  %q, %s = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> %x offsets(%o : tensor<5xi32>) {top_k = 0 : i64} : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x2xf32>
  return
}

// -----

func.func @quantize(%x: tensor<?x200xbf16>, %o: tensor<1xi32>) {
  // expected-error@+1 {{'offsets' must have at least 2 entries: the begin and the end of one group}}
  %q, %s = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> %x offsets(%o : tensor<1xi32>) {top_k = 2 : i64} : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x2xf32>
  return
}

// -----

func.func @quantize(%x: tensor<?x200xbf16>) {
  // expected-error@+1 {{result #0 must be ranked tensor of f8E4M3FN type or 8-bit signless integer or bfloat16 type values, but got 'tensor<?x200xf8E5M2>'}}
  %q, %s = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> %x : tensor<?x200xbf16> -> tensor<?x200xf8E5M2>, tensor<?x2xf32>
  return
}

// -----

func.func @matmul(%x: tensor<?x200xf8E4M3FN>, %w: tensor<160x200xf8E4M3FN>) {
  // expected-error@+1 {{has 'input' of 'f8E4M3FN', which needs 'input_quant'; add input_quant = #moe.quant<...> and the scales}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x200xf8E4M3FN>, tensor<160x200xf8E4M3FN> -> tensor<?x160xbf16>
  return
}

// -----

func.func @matmul(%x: tensor<?x200xbf16>, %w: tensor<160x200xbf16>, %s: tensor<?x2xf32>, %t: tensor<2x2xf32>) {
  // expected-error@+1 {{has 'input_quant' that stores 'f8E4M3FN', but 'input' has elements of 'bf16'}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x200xbf16>, tensor<160x200xbf16>
      input_scale(%s : tensor<?x2xf32>) weight_scale(%t : tensor<2x2xf32>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>} -> tensor<?x160xbf16>
  return
}

// -----

func.func @matmul(%x: tensor<?x200xbf16>, %w: tensor<160x200xf8E4M3FN>, %s: tensor<?x2xf32>, %t: tensor<2x2xf32>) {
  // expected-error@+1 {{has 'input_quant' that stores 'f8E4M3FN', but 'input' has elements of 'bf16'}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x200xbf16>, tensor<160x200xf8E4M3FN>
      input_scale(%s : tensor<?x2xf32>) weight_scale(%t : tensor<2x2xf32>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>} -> tensor<?x160xbf16>
  return
}

// -----

func.func @matmul(%x: tensor<?x200xf8E4M3FN>, %w: tensor<160x200xf8E4M3FN>, %s: tensor<?x1xf32>, %t: tensor<2x2xf32>) {
  // expected-error@+1 {{'input_scale' must be of shape tokens x (scales of a row) = ?x2, not ?x1}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x200xf8E4M3FN>, tensor<160x200xf8E4M3FN>
      input_scale(%s : tensor<?x1xf32>) weight_scale(%t : tensor<2x2xf32>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>} -> tensor<?x160xbf16>
  return
}

// -----

// 160 gate rows and 160 up rows: two blocks each.
func.func @matmul(%x: tensor<?x200xf8E4M3FN>, %w: tensor<4x320x200xf8E4M3FN>, %s: tensor<?x2xf32>, %t: tensor<4x3x2xf32>, %o: tensor<5xi32>) {
  // expected-error@+1 {{'weight_scale' must be of shape groups x (scales along n) x (scales along k) = 4x4x2, not 4x3x2}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x200xf8E4M3FN>, tensor<4x320x200xf8E4M3FN>
      input_scale(%s : tensor<?x2xf32>) weight_scale(%t : tensor<4x3x2xf32>) offsets(%o : tensor<5xi32>)
      epilogue {
      ^bb0(%gate: f32, %up: f32):
        moe.yield %gate : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, layout = #moe.weight_layout<order = gate_up>} -> tensor<?x160xbf16>
  return
}

// -----

func.func @scale_without_quant(%x: tensor<?x200xbf16>, %w: tensor<160x200xbf16>, %s: tensor<?x2xf32>) {
  // expected-error@+1 {{takes 'input_scale' with 'input_quant' only, which describes the scales; add it, or remove the scales}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x200xbf16>, tensor<160x200xbf16> input_scale(%s : tensor<?x2xf32>) -> tensor<?x160xbf16>
  return
}

// -----

func.func @quant_without_scale(%x: tensor<?x200xbf16>, %w: tensor<160x200xf8E4M3FN>) {
  // expected-error@+1 {{has 'weight_quant'; give 'weight_scale' too}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x200xbf16>, tensor<160x200xf8E4M3FN>
      {weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>} -> tensor<?x160xbf16>
  return
}

// -----

// A scale for each of 160 rows.
func.func @channel(%x: tensor<?x200xbf16>, %w: tensor<160x200xf8E4M3FN>, %t: tensor<2x2xf32>) {
  // expected-error@+1 {{'weight_scale' must be of shape (scales along n) x (scales along k) = 160x1, not 2x2}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x200xbf16>, tensor<160x200xf8E4M3FN> weight_scale(%t : tensor<2x2xf32>)
      {weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>} -> tensor<?x160xbf16>
  return
}

// -----

func.func @dynamic_tensor(%x: tensor<?x200xbf16>) {
  // expected-error@+1 {{or static of granularity 'tensor' with the scale in 'tensor_scale'}}
  %q, %s = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = tensor, dynamic = true> %x
      : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x1xf32>
  return
}

// -----

func.func @no_given_scale(%x: tensor<?x200xbf16>) {
  // expected-error@+1 {{takes 'tensor_scale' if and only if 'quant' has granularity 'tensor'}}
  %q = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = tensor> %x : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>
  return
}

// -----

func.func @scales_of_a_given_one(%x: tensor<?x200xbf16>, %s: tensor<1xf32>) {
  // expected-error@+1 {{has a 'scale' result if and only if 'quant' is dynamic}}
  %q, %t = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = tensor> %x tensor_scale(%s : tensor<1xf32>)
      : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x1xf32>
  return
}

// -----

func.func @given_scales(%x: tensor<?x200xbf16>, %s: tensor<2xf32>) {
  // expected-error@+1 {{'tensor_scale' must be of shape 1, not 2}}
  %q = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = tensor> %x tensor_scale(%s : tensor<2xf32>)
      : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>
  return
}

// -----

func.func @scale_by_token(%x: tensor<?x200xbf16>) {
  // expected-error@+1 {{a dynamic quantization of granularity 'tensor' to f8E4M3FN or i8 with an f32 scale is accepted}}
  %s = moe.tensor_scale <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true> %x : tensor<?x200xbf16> -> tensor<1xf32>
  return
}

// -----

func.func @positions_and_tokens(%x: tensor<?x200xbf16>, %offsets: tensor<5xi32>, %n: tensor<1xi32>) {
  // expected-error@+1 {{takes 'num_valid_tokens' and 'is_padding' without 'offsets' only; offsets already cover only valid rows}}
  %s = moe.tensor_scale <storage = f8E4M3FN, scale = f32, granularity = tensor, dynamic = true> %x
      offsets(%offsets : tensor<5xi32>) num_valid_tokens(%n : tensor<1xi32>) {top_k = 2 : i64} : tensor<?x200xbf16> -> tensor<1xf32>
  return
}

// -----

func.func @offsets_alone(%x: tensor<?x200xbf16>, %offsets: tensor<5xi32>) {
  // expected-error@+1 {{takes 'offsets' and the attribute 'top_k' together}}
  %s = moe.tensor_scale <storage = f8E4M3FN, scale = f32, granularity = tensor, dynamic = true> %x
      offsets(%offsets : tensor<5xi32>) : tensor<?x200xbf16> -> tensor<1xf32>
  return
}

// -----

func.func @rows_by_channel(%x: tensor<?x200xf8E4M3FN>, %w: tensor<160x200xbf16>, %s: tensor<1xf32>) {
  // expected-error@+1 {{has 'input_quant' of granularity 'channel'; give 'group', 'token' or 'tensor'}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x200xf8E4M3FN>, tensor<160x200xbf16> input_scale(%s : tensor<1xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>} -> tensor<?x160xbf16>
  return
}

// -----

func.func @scale_of_a_row(%x: tensor<?x200xf8E4M3FN>, %w: tensor<160x200xbf16>, %s: tensor<?x1xf32>) {
  // expected-error@+1 {{'input_scale' must be of shape 1, not ?x1}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x200xf8E4M3FN>, tensor<160x200xbf16> input_scale(%s : tensor<?x1xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>} -> tensor<?x160xbf16>
  return
}

// -----

func.func @way_of_plain(%x: tensor<?x200xbf16>, %w: tensor<160x200xbf16>) {
  // expected-error@+1 {{has 'strategy' without quantized operands; remove it}}
  %0 = moe.grouped_matmul %x, %w : tensor<?x200xbf16>, tensor<160x200xbf16> {strategy = #moe.strategy<native>} -> tensor<?x160xbf16>
  return
}

// -----

func.func @quantize(%x: tensor<?x200xbf16>) {
  // expected-error@+1 {{'quant' stores 'bf16', but 'quantized' has elements of 'f8E4M3FN'}}
  %q, %s = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true, packing = bf16> %x : tensor<?x200xbf16> -> tensor<?x200xf8E4M3FN>, tensor<?x1xf32>
  return
}

// -----

func.func @weights(%x: tensor<?x64xbf16>, %w: tensor<64x64xbf16>, %s: tensor<1x1xf32>) {
  // expected-error@+1 {{has 'weight_quant' with 'packing = bf16', which only inputs may have; remove it}}
  %y = moe.grouped_matmul %x, %w : tensor<?x64xbf16>, tensor<64x64xbf16> weight_scale(%s : tensor<1x1xf32>)
      {weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor, packing = bf16>} -> tensor<?x64xbf16>
  return
}

// -----

func.func @quantize(%x: tensor<?x256xbf16>) {
  // expected-error@+1 {{has a 'scale' result if and only if 'quant' is dynamic, except with 'packing = bf16' in groups, whose values include their scales}}
  %q, %s = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true, packing = bf16, power_of_two = true> %x
      : tensor<?x256xbf16> -> tensor<?x256xbf16>, tensor<?x2xf32>
  return
}

// -----

func.func @scaled(%x: tensor<?x128xbf16>, %a: tensor<?x1xf32>, %w: tensor<64x128xbf16>) {
  // expected-error@+1 {{has 'input_quant' with 'packing = bf16' in groups, whose values include their scales already; remove it}}
  %y = moe.grouped_matmul %x, %w : tensor<?x128xbf16>, tensor<64x128xbf16> input_scale(%a : tensor<?x1xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true, packing = bf16, power_of_two = true>} -> tensor<?x64xbf16>
  return
}
