// Gathers whose kernel quantizes the rows itself.
// RUN: moe-opt %s --split-input-file --verify-diagnostics | moe-opt --split-input-file | FileCheck %s

// Rows that a kernel quantizes itself.
plan.program @layer max_tokens 64 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x256xbf16>
  %i = plan.tensor input "i" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %o = plan.tensor weight "o" : memref<4xi32>
  %q = plan.buffer "q" rows <"ceildiv(tokens, 2)"> : memref<?x256xf8E4M3FN>
  %s = plan.buffer "s" rows <"ceildiv(tokens, 2)"> : memref<?x2xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x256xf8E4M3FN>
  %z = plan.tensor output "z" rows <"tokens"> : memref<?x2xf32>
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%x : memref<?x256xbf16>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
    // CHECK: plan.collective all_gather dp ins({{.*}}) outs({{.*}}) unquantized(%x : memref<?x256xbf16>) quantized [0, 1]
    plan.collective all_gather dp ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%y, %z : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        unquantized(%x : memref<?x256xbf16>) quantized [0, 1]
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x256xbf16>
  %i = plan.tensor input "i" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %o = plan.tensor weight "o" : memref<4xi32>
  %q = plan.buffer "q" rows <"ceildiv(tokens, 2)"> : memref<?x256xf8E4M3FN>
  %s = plan.buffer "s" rows <"ceildiv(tokens, 2)"> : memref<?x2xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x256xf8E4M3FN>
  %z = plan.tensor output "z" rows <"tokens"> : memref<?x2xf32>
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%x : memref<?x256xbf16>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
    // expected-error@+1 {{has only one of 'unquantized' and 'quantized'; give both or neither}}
    plan.collective all_gather dp ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%y, %z : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        unquantized(%x : memref<?x256xbf16>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x256xbf16>
  %i = plan.tensor input "i" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %o = plan.tensor weight "o" : memref<4xi32>
  %q = plan.buffer "q" rows <"ceildiv(tokens, 2)"> : memref<?x256xf8E4M3FN>
  %s = plan.buffer "s" rows <"ceildiv(tokens, 2)"> : memref<?x2xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x256xf8E4M3FN>
  %z = plan.tensor output "z" rows <"tokens"> : memref<?x2xf32>
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%x : memref<?x256xbf16>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
    // expected-error@+1 {{has [0, 2] as 'quantized'; give the indices of the quantized values and of their scales among 2 'ins'}}
    plan.collective all_gather dp ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%y, %z : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        unquantized(%x : memref<?x256xbf16>) quantized [0, 2]
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x256xbf16>
  %i = plan.tensor input "i" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %o = plan.tensor weight "o" : memref<4xi32>
  %q = plan.buffer "q" rows <"ceildiv(tokens, 2)"> : memref<?x256xf8E4M3FN>
  %s = plan.buffer "s" rows <"ceildiv(tokens, 2)"> : memref<?x2xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x256xf8E4M3FN>
  %z = plan.tensor output "z" rows <"tokens"> : memref<?x2xf32>
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%x : memref<?x256xbf16>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
    // expected-error@+1 {{has quantized values of type 'memref<?x2xf32>' with scales of type 'memref<?x256xf8E4M3FN>'; give rows of f8E4M3FN with an f32 scale for each 32, 64 or 128 elements, or rows of f8E4M3FN or i8 with an f32 scale for each row of a multiple of 16}}
    plan.collective all_gather dp ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%y, %z : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        unquantized(%x : memref<?x256xbf16>) quantized [1, 0]
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x256xbf16>
  %i = plan.tensor input "i" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %o = plan.tensor weight "o" : memref<4xi32>
  %q = plan.buffer "q" rows <"ceildiv(tokens, 2)"> : memref<?x256xi8>
  %s = plan.buffer "s" rows <"ceildiv(tokens, 2)"> : memref<?x2xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x256xi8>
  %z = plan.tensor output "z" rows <"tokens"> : memref<?x2xf32>
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%x : memref<?x256xbf16>) outs(%q, %s : memref<?x256xi8>, memref<?x2xf32>)
    // expected-error@+1 {{has quantized values of type 'memref<?x256xi8>' with scales of type 'memref<?x2xf32>'}}
    plan.collective all_gather dp ins(%q, %s : memref<?x256xi8>, memref<?x2xf32>)
        outs(%y, %z : memref<?x256xi8>, memref<?x2xf32>)
        unquantized(%x : memref<?x256xbf16>) quantized [0, 1]
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x264xbf16>
  %i = plan.tensor input "i" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %o = plan.tensor weight "o" : memref<4xi32>
  %q = plan.buffer "q" rows <"ceildiv(tokens, 2)"> : memref<?x264xf8E4M3FN>
  %s = plan.buffer "s" rows <"ceildiv(tokens, 2)"> : memref<?x1xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x264xf8E4M3FN>
  %z = plan.tensor output "z" rows <"tokens"> : memref<?x1xf32>
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%x : memref<?x264xbf16>) outs(%q, %s : memref<?x264xf8E4M3FN>, memref<?x1xf32>)
    // expected-error@+1 {{has quantized values of type 'memref<?x264xf8E4M3FN>' with scales of type 'memref<?x1xf32>'}}
    plan.collective all_gather dp ins(%q, %s : memref<?x264xf8E4M3FN>, memref<?x1xf32>)
        outs(%y, %z : memref<?x264xf8E4M3FN>, memref<?x1xf32>)
        unquantized(%x : memref<?x264xbf16>) quantized [0, 1]
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x256xf32>
  %i = plan.tensor input "i" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %o = plan.tensor weight "o" : memref<4xi32>
  %q = plan.buffer "q" rows <"ceildiv(tokens, 2)"> : memref<?x256xf8E4M3FN>
  %s = plan.buffer "s" rows <"ceildiv(tokens, 2)"> : memref<?x2xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x256xf8E4M3FN>
  %z = plan.tensor output "z" rows <"tokens"> : memref<?x2xf32>
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%x : memref<?x256xf32>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
    // expected-error@+1 {{has rows of type 'memref<?x256xf32>' for quantized values of type 'memref<?x256xf8E4M3FN>'; give rows of bf16 or f16 of the same shape}}
    plan.collective all_gather dp ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%y, %z : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        unquantized(%x : memref<?x256xf32>) quantized [0, 1]
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x256xbf16>
  %i = plan.tensor input "i" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %o = plan.tensor weight "o" : memref<4xi32>
  %q = plan.buffer "q" rows <"ceildiv(tokens, 2)"> : memref<?x256xf8E4M3FN>
  %s = plan.buffer "s" rows <"ceildiv(tokens, 2)"> : memref<?x2xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x256xf8E4M3FN>
  %z = plan.tensor output "z" rows <"tokens"> : memref<?x2xf32>
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%x : memref<?x256xbf16>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
    // expected-error@+1 {{has only one of 'quantized' in 'routed'; give both or neither, since quantized values and their scales go to the same ranks}}
    plan.collective all_gather dp ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%y, %z : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        destinations(%o : memref<4xi32>) ids(%i : memref<?x2xi32>) routed [0]
        unquantized(%x : memref<?x256xbf16>) quantized [0, 1]
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x256xbf16>
  %i = plan.tensor input "i" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %o = plan.tensor weight "o" : memref<4xi32>
  %q = plan.buffer "q" rows <"ceildiv(tokens, 2)"> : memref<?x256xf8E4M3FN>
  %s = plan.buffer "s" rows <"ceildiv(tokens, 2)"> : memref<?x2xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x256xf8E4M3FN>
  %z = plan.tensor output "z" rows <"tokens"> : memref<?x2xf32>
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%x : memref<?x256xbf16>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
    // expected-error@+1 {{has 'unquantized' with tokens rows for ceildiv(tokens, 2) rows of quantized values; give the rows that these come from}}
    plan.collective all_gather dp ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%y, %z : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        unquantized(%x : memref<?x256xbf16>) quantized [0, 1]
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x256xbf16>
  %q = plan.tensor input "q" rows <"ceildiv(tokens, 2)"> : memref<?x256xf8E4M3FN>
  %s = plan.tensor input "s" rows <"ceildiv(tokens, 2)"> : memref<?x2xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x256xf8E4M3FN>
  %z = plan.tensor output "z" rows <"tokens"> : memref<?x2xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{has 'unquantized', but no earlier launch makes the quantized values; remove 'unquantized'}}
    plan.collective all_gather dp ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%y, %z : memref<?x256xf8E4M3FN>, memref<?x2xf32>) unquantized(%x : memref<?x256xbf16>) quantized [0, 1]
  }
}

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{sums rows, which cannot be quantized; remove 'unquantized'}}
    plan.collective all_reduce dp ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) unquantized(%x : memref<?x8xf32>) quantized [0, 1]
  }
}
