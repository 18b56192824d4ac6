// RUN: moe-opt %s --split-input-file --verify-diagnostics

tile.kernel @k(%x: memref<?x200xbf16>, %q: memref<?x200xf8E4M3FN>, %s: memref<?x1xf32>, %tokens: i64) {
  // expected-error@+1 {{'scale' must be of shape tokens x (scales of a row) = ?x2, not ?x1}}
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%tokens) ins(%x : memref<?x200xbf16>) outs(%q, %s : memref<?x200xf8E4M3FN>, memref<?x1xf32>)
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x200xbf16>, %q: memref<?x200xf8E4M3FN>, %s: memref<?x2xf32>, %o: memref<3xi32>, %tokens: i64) {
  // expected-error@+1 {{takes 'offsets' and the attribute 'top_k' together}}
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%tokens) ins(%x : memref<?x200xbf16>) offsets(%o : memref<3xi32>)
      outs(%q, %s : memref<?x200xf8E4M3FN>, memref<?x2xf32>)
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x1xf32>, %q: memref<?x1xf8E4M3FN>, %tokens: i64) {
  // expected-error@+1 {{has outs[1] also among its other operands; a phase must not read or write one memref twice}}
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%tokens) ins(%x : memref<?x1xf32>) outs(%q, %x : memref<?x1xf8E4M3FN>, memref<?x1xf32>)
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x200xf8E4M3FN>, %w: memref<160x200xf8E4M3FN>, %y: memref<?x160xf32>, %tokens: i64) {
  // expected-error@+1 {{has 'input' of 'f8E4M3FN', which needs 'input_quant'; add input_quant = #moe.quant<...> and the scales}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x200xf8E4M3FN>, memref<160x200xf8E4M3FN>) outs(%y : memref<?x160xf32>)
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x200xf8E4M3FN>, %w: memref<160x200xf8E4M3FN>, %s: memref<?x2xf32>, %t: memref<1x2xf32>, %y: memref<?x160xf32>, %tokens: i64) {
  // expected-error@+1 {{'weight_scale' must be of shape (scales along n) x (scales along k) = 2x2, not 1x2}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x200xf8E4M3FN>, memref<160x200xf8E4M3FN>)
      input_scale(%s : memref<?x2xf32>) weight_scale(%t : memref<1x2xf32>) outs(%y : memref<?x160xf32>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x200xf32>, %w: memref<160x200xf32>, %s: memref<?x2xf32>, %t: memref<2x2xf32>, %y: memref<?x160xf32>, %tokens: i64) {
  // expected-error@+1 {{has 'input_quant' that stores 'f8E4M3FN', but 'input' has elements of 'f32'}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x200xf32>, memref<160x200xf32>)
      input_scale(%s : memref<?x2xf32>) weight_scale(%t : memref<2x2xf32>) outs(%y : memref<?x160xf32>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xf8E4M3FN>, %w: memref<4x256x256xf8E4M3FN>, %s: memref<?x2xf32>, %b: memref<4x2x2xf32>,
    %o: memref<5xi32>, %y: memref<?x256xf8E4M3FN>, %z: memref<?x2xf32>, %tokens: i64) {
  // expected-error@+1 {{has a result of 'f8E4M3FN', which needs a scale; give 'result_scale' or 'result_tensor_scale'}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<4x256x256xf8E4M3FN>)
      input_scale(%s : memref<?x2xf32>) weight_scale(%b : memref<4x2x2xf32>) offsets(%o : memref<5xi32>)
      outs(%y : memref<?x256xf8E4M3FN>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xf8E4M3FN>, %w: memref<4x256x256xf8E4M3FN>, %s: memref<?x2xf32>, %b: memref<4x2x2xf32>,
    %o: memref<5xi32>, %y: memref<?x256xbf16>, %z: memref<?x2xf32>, %tokens: i64) {
  // expected-error@+1 {{has 'rounded_to' or 'result_quant', which belong to 'result_scale'; give 'result_scale' too}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<4x256x256xf8E4M3FN>)
      input_scale(%s : memref<?x2xf32>) weight_scale(%b : memref<4x2x2xf32>) offsets(%o : memref<5xi32>)
      outs(%y : memref<?x256xbf16>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, rounded_to = bf16}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xf8E4M3FN>, %w: memref<4x256x256xf8E4M3FN>, %s: memref<?x2xf32>, %b: memref<4x2x2xf32>,
    %o: memref<5xi32>, %y: memref<?x256xbf16>, %z: memref<?x2xf32>, %tokens: i64) {
  // expected-error@+1 {{has 'result_scale' and a result of 'bf16'; make the result f8E4M3FN}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<4x256x256xf8E4M3FN>)
      input_scale(%s : memref<?x2xf32>) weight_scale(%b : memref<4x2x2xf32>) offsets(%o : memref<5xi32>)
      outs(%y : memref<?x256xbf16>) result_scale(%z : memref<?x2xf32>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, rounded_to = bf16}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xf8E4M3FN>, %w: memref<4x256x256xf8E4M3FN>, %s: memref<?x2xf32>, %b: memref<4x2x2xf32>,
    %o: memref<5xi32>, %y: memref<?x256xf8E4M3FN>, %z: memref<?x2xf32>, %tokens: i64) {
  // expected-error@+1 {{has 'result_scale'; give 'rounded_to', the type (bf16 or f16) that results are rounded to before quantization}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<4x256x256xf8E4M3FN>)
      input_scale(%s : memref<?x2xf32>) weight_scale(%b : memref<4x2x2xf32>) offsets(%o : memref<5xi32>)
      outs(%y : memref<?x256xf8E4M3FN>) result_scale(%z : memref<?x2xf32>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xf8E4M3FN>, %w: memref<4x256x256xf8E4M3FN>, %s: memref<?x2xf32>, %b: memref<4x2x2xf32>,
    %o: memref<5xi32>, %y: memref<?x256xf8E4M3FN>, %z: memref<?x2xf32>, %tokens: i64) {
  // expected-error@+1 {{has 'result_scale'; give 'rounded_to', the type (bf16 or f16) that results are rounded to before quantization}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<4x256x256xf8E4M3FN>)
      input_scale(%s : memref<?x2xf32>) weight_scale(%b : memref<4x2x2xf32>) offsets(%o : memref<5xi32>)
      outs(%y : memref<?x256xf8E4M3FN>) result_scale(%z : memref<?x2xf32>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, rounded_to = f32}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xf8E4M3FN>, %w: memref<256x256xf8E4M3FN>, %s: memref<?x2xf32>, %b: memref<2x2xf32>,
    %o: memref<5xi32>, %y: memref<?x256xf8E4M3FN>, %z: memref<?x2xf32>, %tokens: i64) {
  // expected-error@+1 {{has 'result_scale', which needs a gemm with 'offsets'; quantize other results by a 'tile.quantize'}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<256x256xf8E4M3FN>)
      input_scale(%s : memref<?x2xf32>) weight_scale(%b : memref<2x2xf32>)
      outs(%y : memref<?x256xf8E4M3FN>) result_scale(%z : memref<?x2xf32>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, rounded_to = bf16}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xf8E4M3FN>, %w: memref<4x256x256xf8E4M3FN>, %s: memref<?x2xf32>, %b: memref<4x2x2xf32>,
    %o: memref<5xi32>, %y: memref<?x256xf8E4M3FN>, %z: memref<?x1xf32>, %tokens: i64) {
  // expected-error@+1 {{'result_scale' must be of shape positions x (scales of a row) = ?x2, not ?x1}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<4x256x256xf8E4M3FN>)
      input_scale(%s : memref<?x2xf32>) weight_scale(%b : memref<4x2x2xf32>) offsets(%o : memref<5xi32>)
      outs(%y : memref<?x256xf8E4M3FN>) result_scale(%z : memref<?x1xf32>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, rounded_to = bf16}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xf8E4M3FN>, %w: memref<4x256x256xf8E4M3FN>, %s: memref<?x2xf32>, %b: memref<4x2x2xf32>,
    %o: memref<5xi32>, %y: memref<?x256xf8E4M3FN>, %z: memref<?x2xf32>, %tokens: i64) {
  // expected-error@+1 {{has outs[1] also among its other operands; a phase must not read or write one memref twice}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<4x256x256xf8E4M3FN>)
      input_scale(%s : memref<?x2xf32>) weight_scale(%b : memref<4x2x2xf32>) offsets(%o : memref<5xi32>)
      outs(%y : memref<?x256xf8E4M3FN>) result_scale(%s : memref<?x2xf32>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, rounded_to = bf16}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xi8>, %w: memref<4x256x256xi8>, %s: memref<1xf32>, %b: memref<4x256x1xf32>,
    %o: memref<5xi32>, %y: memref<?x256xf16>, %g: memref<1xf32>, %z: memref<?x2xf32>, %tokens: i64) {
  // expected-error@+1 {{has 'result_tensor_scale' and a result of 'f16'; make the result f8E4M3FN or i8}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x256xi8>, memref<4x256x256xi8>)
      input_scale(%s : memref<1xf32>) weight_scale(%b : memref<4x256x1xf32>) offsets(%o : memref<5xi32>)
      result_tensor_scale(%g : memref<1xf32>) outs(%y : memref<?x256xf16>) {input_quant = #moe.quant<storage = i8, scale = f32, granularity = tensor>, weight_quant = #moe.quant<storage = i8, scale = f32, granularity = channel>, result_quant = #moe.quant<storage = i8, scale = f32, granularity = tensor>, rounded_to = f16}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xi8>, %w: memref<4x256x256xi8>, %s: memref<1xf32>, %b: memref<4x256x1xf32>,
    %o: memref<5xi32>, %y: memref<?x256xf8E4M3FN>, %g: memref<1xf32>, %z: memref<?x2xf32>, %tokens: i64) {
  // expected-error@+1 {{has 'result_tensor_scale'; give a static 'result_quant' of granularity 'tensor' that stores 'f8E4M3FN'}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x256xi8>, memref<4x256x256xi8>)
      input_scale(%s : memref<1xf32>) weight_scale(%b : memref<4x256x1xf32>) offsets(%o : memref<5xi32>)
      result_tensor_scale(%g : memref<1xf32>) outs(%y : memref<?x256xf8E4M3FN>) {input_quant = #moe.quant<storage = i8, scale = f32, granularity = tensor>, weight_quant = #moe.quant<storage = i8, scale = f32, granularity = channel>, result_quant = #moe.quant<storage = i8, scale = f32, granularity = tensor>, rounded_to = f16}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xi8>, %w: memref<4x256x256xi8>, %s: memref<1xf32>, %b: memref<4x256x1xf32>,
    %o: memref<5xi32>, %y: memref<?x256xi8>, %g: memref<2xf32>, %z: memref<?x2xf32>, %tokens: i64) {
  // expected-error@+1 {{'result_tensor_scale' must be of shape (scales of a tensor) = 1, not 2}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x256xi8>, memref<4x256x256xi8>)
      input_scale(%s : memref<1xf32>) weight_scale(%b : memref<4x256x1xf32>) offsets(%o : memref<5xi32>)
      result_tensor_scale(%g : memref<2xf32>) outs(%y : memref<?x256xi8>) {input_quant = #moe.quant<storage = i8, scale = f32, granularity = tensor>, weight_quant = #moe.quant<storage = i8, scale = f32, granularity = channel>, result_quant = #moe.quant<storage = i8, scale = f32, granularity = tensor>, rounded_to = f16}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xi8>, %w: memref<4x256x256xi8>, %s: memref<1xf32>, %b: memref<4x256x1xf32>,
    %o: memref<5xi32>, %y: memref<?x256xi8>, %g: memref<1xf32>, %z: memref<?x2xf32>, %tokens: i64) {
  // expected-error@+1 {{has 'result_scale' and 'result_tensor_scale'; give the first for a dynamic scale, or the second for a given one}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x256xi8>, memref<4x256x256xi8>)
      input_scale(%s : memref<1xf32>) weight_scale(%b : memref<4x256x1xf32>) offsets(%o : memref<5xi32>)
      result_tensor_scale(%g : memref<1xf32>) outs(%y : memref<?x256xi8>) result_scale(%z : memref<?x2xf32>) {input_quant = #moe.quant<storage = i8, scale = f32, granularity = tensor>, weight_quant = #moe.quant<storage = i8, scale = f32, granularity = channel>, result_quant = #moe.quant<storage = i8, scale = f32, granularity = tensor>, rounded_to = f16}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xf32>, %w: memref<256x256xf8E4M3FN>, %s: memref<?x2xf32>, %b: memref<2x2xf32>,
    %y: memref<?x256xbf16>, %tokens: i64) {
  // expected-error@+1 {{has 'quantizes_input' and 'input' of 'f32'; make the input bf16 or f16}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x256xf32>, memref<256x256xf8E4M3FN>)
      weight_scale(%b : memref<2x2xf32>)
      outs(%y : memref<?x256xbf16>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, quantizes_input}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xbf16>, %w: memref<256x256xf8E4M3FN>, %s: memref<?x2xf32>, %b: memref<2x2xf32>,
    %y: memref<?x256xbf16>, %tokens: i64) {
  // expected-error@+1 {{takes 'quantizes_input' with 'input_scale' if and only if 'input_quant' has one scale for all rows; the gemm computes others}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x256xbf16>, memref<256x256xf8E4M3FN>)
      input_scale(%s : memref<?x2xf32>) weight_scale(%b : memref<2x2xf32>)
      outs(%y : memref<?x256xbf16>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, quantizes_input}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xbf16>, %w: memref<256x256xf8E4M3FN>, %s: memref<?x2xf32>, %b: memref<2x2xf32>,
    %y: memref<?x256xbf16>, %tokens: i64) {
  // expected-error@+1 {{has 'quantizes_input'; give an 'input_quant' of granularity 'tensor', or a dynamic one, without 'packing'}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x256xbf16>, memref<256x256xf8E4M3FN>)
      weight_scale(%b : memref<2x2xf32>)
      outs(%y : memref<?x256xbf16>) {weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, quantizes_input}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xbf16>, %w: memref<256x256xf8E4M3FN>, %s: memref<?x2xf32>, %b: memref<2x2xf32>,
    %y: memref<?x256xbf16>, %tokens: i64) {
  // expected-error@+1 {{takes 'quantizes_input' with 'input_scale' if and only if 'input_quant' has one scale for all rows; the gemm computes others}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x256xbf16>, memref<256x256xf8E4M3FN>)
      weight_scale(%b : memref<2x2xf32>)
      outs(%y : memref<?x256xbf16>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, quantizes_input}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xbf16>, %w: memref<256x256xf8E4M3FN>, %s: memref<?x2xf32>, %b: memref<2x2xf32>,
    %y: memref<?x256xbf16>, %tokens: i64) {
  // expected-error@+1 {{has 'quantizes_input'; give an 'input_quant' of granularity 'tensor', or a dynamic one, without 'packing'}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x256xbf16>, memref<256x256xf8E4M3FN>)
      weight_scale(%b : memref<2x2xf32>)
      outs(%y : memref<?x256xbf16>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128]>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, quantizes_input}
  tile.return
}
