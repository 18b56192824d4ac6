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
    // CHECK: plan.collective all_gather dp ins({{.*}}) outs({{.*}}) codes_of(%x : memref<?x256xbf16>) coded [0, 1]
    plan.collective all_gather dp ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%y, %z : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        codes_of(%x : memref<?x256xbf16>) coded [0, 1]
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
    // expected-error@+1 {{has one of 'codes_of' and 'coded'; give both, or drop them}}
    plan.collective all_gather dp ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%y, %z : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        codes_of(%x : memref<?x256xbf16>)
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
    // expected-error@+1 {{has [0, 2] as 'coded'; give the numbers of the codes and of their scales among 2 'ins'}}
    plan.collective all_gather dp ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%y, %z : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        codes_of(%x : memref<?x256xbf16>) coded [0, 2]
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
    // expected-error@+1 {{has codes of type 'memref<?x2xf32>' with scales of type 'memref<?x256xf8E4M3FN>'; give any number of rows of f8E4M3FN, with an f32 for each 32, 64 or 128 of a row, or of f8E4M3FN or i8 with an f32 for each row of a multiple of 16}}
    plan.collective all_gather dp ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%y, %z : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        codes_of(%x : memref<?x256xbf16>) coded [1, 0]
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
    // expected-error@+1 {{has codes of type 'memref<?x256xi8>' with scales of type 'memref<?x2xf32>'}}
    plan.collective all_gather dp ins(%q, %s : memref<?x256xi8>, memref<?x2xf32>)
        outs(%y, %z : memref<?x256xi8>, memref<?x2xf32>)
        codes_of(%x : memref<?x256xbf16>) coded [0, 1]
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
    // expected-error@+1 {{has codes of type 'memref<?x264xf8E4M3FN>' with scales of type 'memref<?x1xf32>'}}
    plan.collective all_gather dp ins(%q, %s : memref<?x264xf8E4M3FN>, memref<?x1xf32>)
        outs(%y, %z : memref<?x264xf8E4M3FN>, memref<?x1xf32>)
        codes_of(%x : memref<?x264xbf16>) coded [0, 1]
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
    // expected-error@+1 {{has rows of type 'memref<?x256xf32>' for codes of type 'memref<?x256xf8E4M3FN>'; give as many bf16 or f16}}
    plan.collective all_gather dp ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%y, %z : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        codes_of(%x : memref<?x256xf32>) coded [0, 1]
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
    // expected-error@+1 {{has one of 'coded' in 'owned'; give both or none, since scales go where their codes do}}
    plan.collective all_gather dp ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%y, %z : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        owners(%o : memref<4xi32>) ids(%i : memref<?x2xi32>) owned [0]
        codes_of(%x : memref<?x256xbf16>) coded [0, 1]
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
    // expected-error@+1 {{has 'codes_of' tokens rows for ceildiv(tokens, 2) rows of codes; give the rows of these}}
    plan.collective all_gather dp ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%y, %z : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        codes_of(%x : memref<?x256xbf16>) coded [0, 1]
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
    // expected-error@+1 {{has 'codes_of', but no launch before it makes the codes; drop 'codes_of'}}
    plan.collective all_gather dp ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%y, %z : memref<?x256xf8E4M3FN>, memref<?x2xf32>) codes_of(%x : memref<?x256xbf16>) coded [0, 1]
  }
}

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{sums rows and gathers none; drop 'codes_of'}}
    plan.collective all_reduce dp ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) codes_of(%x : memref<?x8xf32>) coded [0, 1]
  }
}
