// RUN: moe-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'max_tokens' is 0; 1 to 2147483647 is accepted}}
plan.program @layer max_tokens 0 {
}

// -----

// expected-error@+1 {{'max_tokens' is 2147483648; 1 to 2147483647 is accepted}}
plan.program @layer max_tokens 2147483648 {
}

// -----

// expected-error@+1 {{has no 'plan.variant'; write 'plan.variant tokens 0 to 64'}}
plan.program @layer max_tokens 64 {
}

// -----

// expected-error@+1 {{has variants for 0 to 8 tokens only; the last variant must reach 'max_tokens' = 64}}
plan.program @layer max_tokens 64 {
  plan.variant tokens 0 to 8 {
  }
}

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  // expected-error@+1 {{starts at 1 tokens, but must start at 0: variants follow each other without gap or overlap}}
  plan.variant tokens 1 to 64 {
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 8 {
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
  // expected-error@+1 {{starts at 8 tokens, but must start at 9}}
  plan.variant tokens 8 to 64 {
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  // expected-error@+1 {{reaches 65 tokens; 'max_tokens' of the program is 64}}
  plan.variant tokens 0 to 65 {
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  // expected-error@+1 {{serves 3 to 2 tokens; write an ascending range, as in '0 to 16384'}}
  plan.variant tokens 3 to 2 {
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  // expected-error@+1 {{is not allowed in a 'plan.program'; it holds 'plan.tensor', 'plan.buffer', 'plan.prepare' and 'plan.variant'}}
  %c = arith.constant 0 : i64
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
  // expected-error@+1 {{is out of order; a 'plan.program' holds tensors and buffers, then at most one 'plan.prepare', then variants}}
  plan.buffer "b" : memref<8xf32>
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
  // expected-error@+1 {{is out of order}}
  plan.prepare {
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.prepare {
  }
  // expected-error@+1 {{is the second 'plan.prepare'; put all launches into one}}
  plan.prepare {
  }
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  // expected-note@+1 {{the other one is here}}
  plan.buffer "a" : memref<8xf32>
  // expected-error@+1 {{'a' also names another tensor or buffer; use distinct names}}
  plan.tensor weight "a" : memref<8xf32>
  plan.variant tokens 0 to 64 {
  }
}

// -----

plan.program @layer max_tokens 64 {
  // expected-error@+1 {{rows of 'a' are 'tokens - 8', which is -8 for some token count up to 64; a size of at least 0 is accepted}}
  plan.buffer "a" rows <"tokens - 8"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
  }
}

// -----

plan.program @layer max_tokens 64 {
  // expected-error@+1 {{rows of 'a': }}
  plan.buffer "a" rows <"ceildiv(8, tokens)"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
  }
}

// -----

plan.program @layer max_tokens 64 {
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  // expected-note@+1 {{the memory is here}}
  %b = plan.buffer "b" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{reads memory that no step has written yet}}
    plan.launch @k ins(%b : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{writes 'x', the caller's input; write to a buffer or an output}}
    plan.launch @k ins() outs(%x : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  // expected-error@+1 {{never writes the output 'y'; launch a kernel with it in 'outs'}}
  plan.variant tokens 0 to 64 {
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.prepare {
    // expected-error@+1 {{prepares weights before any run, so it reads only weights and prepared tensors, not the input 'x'}}
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %w = plan.tensor weight "w" : memref<8xf32>
  %b = plan.buffer "b" : memref<8xf32>
  plan.prepare {
    // expected-error@+1 {{prepares weights before any run, so it reads only weights and prepared tensors, not the buffer 'b'}}
    plan.launch @k ins(%w : memref<8xf32>) outs(%b : memref<8xf32>)
  }
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %w = plan.tensor weight "w" : memref<8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %p = plan.tensor prepared "p" in_place "w" : memref<2x4xf32>
  plan.prepare {
    // expected-error@+1 {{reads a weight that 'p' overwrites; read 'p'}}
    plan.launch @k ins(%w : memref<8xf32>) outs(%p : memref<2x4xf32>)
  }
  plan.variant tokens 0 to 64 {
    plan.launch @k ins() outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %w = plan.tensor weight "w" : memref<8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %p = plan.tensor prepared "p" in_place "w" : memref<2x4xf32>
  plan.prepare {
    plan.launch @k ins() outs(%p : memref<2x4xf32>)
    // expected-error@+1 {{reads a weight that 'p' overwrites; read 'p'}}
    plan.launch @k ins(%w : memref<8xf32>) outs()
  }
  plan.variant tokens 0 to 64 {
    plan.launch @k ins() outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %w = plan.tensor weight "w" : memref<8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %p = plan.tensor prepared "p" in_place "w" : memref<2x4xf32>
  plan.prepare {
    plan.launch @k ins() outs(%p : memref<2x4xf32>)
  }
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{reads a weight that 'p' overwrites; read 'p'}}
    plan.launch @k ins(%w : memref<8xf32>) outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %w = plan.tensor weight "w" : memref<8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  // expected-note@+1 {{the memory is here}}
  %p = plan.tensor prepared "p" in_place "w" : memref<2x4xf32>
  plan.prepare {

  }
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{reads memory that no step has written yet}}
    plan.launch @k ins(%p : memref<2x4xf32>) outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %w = plan.tensor weight "w" : memref<8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %p = plan.tensor prepared "p" : memref<2x4xf32>
  plan.prepare {

  }
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{writes 'p', which is prepared once for all runs; write to a buffer}}
    plan.launch @k ins() outs(%p : memref<2x4xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %w = plan.tensor weight "w" : memref<8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  // expected-error@+1 {{'p' has 'in_place' 'y', which is not a weight above it}}
  %p = plan.tensor prepared "p" in_place "y" : memref<2x4xf32>
  plan.prepare {

  }
  plan.variant tokens 0 to 64 {
    plan.launch @k ins() outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %w = plan.tensor weight "w" : memref<8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  // expected-error@+1 {{'p' of type 'memref<2x5xf32>' does not fill 'w' of type 'memref<8xf32>'; remove 'in_place'}}
  %p = plan.tensor prepared "p" in_place "w" : memref<2x5xf32>
  plan.prepare {

  }
  plan.variant tokens 0 to 64 {
    plan.launch @k ins() outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %w = plan.tensor weight "w" : memref<8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %p = plan.tensor prepared "p" in_place "w" : memref<2x4xf32>
  // expected-error@+1 {{'q' is the second tensor in the memory of 'w'; remove 'in_place'}}
  %q = plan.tensor prepared "q" in_place "w" : memref<2x4xf32>
  plan.prepare {

  }
  plan.variant tokens 0 to 64 {
    plan.launch @k ins() outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()
