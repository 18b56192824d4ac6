// RUN: moe-opt %s --split-input-file --verify-diagnostics

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.prepare {
    // expected-error@+1 {{'plan.record' op expects parent op 'plan.variant'}}
    plan.record event 0 stream 0
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
  plan.prepare {
    // expected-error@+1 {{is not allowed in a 'plan.prepare'; it holds launches only}}
    %c = arith.constant 0 : i64
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
  %b = plan.tensor prepared "b" : memref<8xf32>
  plan.prepare {
    // expected-error@+1 {{is on stream 1; a 'plan.prepare' has stream 0 only}}
    plan.launch @k stream 1 ins(%w : memref<8xf32>) outs(%b : memref<8xf32>)
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
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{is not allowed in a 'plan.variant'; it holds 'plan.launch', 'plan.collective', 'plan.record' and 'plan.wait'}}
    %c = arith.constant 0 : i64
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{waits for event 3, which no earlier 'plan.record' of the variant records}}
    plan.wait event 3 stream 1
    plan.record event 3 stream 0
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{is the first step of stream 1; put a 'plan.wait' on that stream first}}
    plan.launch @k stream 1 ins() outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{is the first step of stream 2; put a 'plan.wait' on that stream first}}
    plan.record event 0 stream 2
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{has event -1; events are numbered from 0}}
    plan.record event -1 stream 0
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{has stream -1; streams are numbered from 0}}
    plan.wait event 0 stream -1
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{stream -1 is not a stream; they are numbered from 0}}
    plan.launch @k stream -1 ins() outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{reads and writes the same tensor; a kernel's 'outs' must not be among its 'ins'}}
    plan.launch @k ins(%x, %y : memref<?x8xf32>, memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

// expected-error@+1 {{'plan.tensor' op expects parent op 'plan.program'}}
plan.tensor weight "w" : memref<8xf32>

// -----

// expected-error@+1 {{'plan.buffer' op expects parent op 'plan.program'}}
plan.buffer "w" : memref<8xf32>

// -----

// expected-error@+1 {{'plan.launch' op expects parent op to be one of 'plan.prepare, plan.variant'}}
plan.launch @k ins() outs()

// -----

// expected-error@+1 {{'plan.wait' op expects parent op 'plan.variant'}}
plan.wait event 0 stream 0

// -----

plan.program @layer max_tokens 64 {
  // expected-error@+1 {{needs a name that is not empty}}
  plan.tensor weight "" : memref<8xf32>
}

// -----

plan.program @layer max_tokens 64 {
  // expected-error@+1 {{'w' must be row-major without gaps; remove the layout of 'memref<4x8xf32, strided<[16, 1]>>'}}
  plan.tensor weight "w" : memref<4x8xf32, strided<[16, 1]>>
}

// -----

plan.program @layer max_tokens 64 {
  // expected-error@+1 {{'w' has the dynamic dimension 1 in 'memref<4x?xf32>'; only the first one may be '?'}}
  plan.buffer "w" : memref<4x?xf32>
}

// -----

plan.program @layer max_tokens 64 {
  // expected-error@+1 {{'x' has a dynamic first dimension; say how large it is: 'rows <"tokens">'}}
  plan.tensor input "x" : memref<?x8xf32>
}

// -----

plan.program @layer max_tokens 64 {
  // expected-error@+1 {{'x' takes no 'rows': its shape 'memref<4x8xf32>' is static}}
  plan.tensor input "x" rows <"tokens"> : memref<4x8xf32>
}

// -----

plan.program @layer max_tokens 64 {
  // expected-error@+1 {{'w' is a weight, whose shape must be static; make it an 'input'}}
  plan.tensor weight "w" rows <"tokens"> : memref<?x8xf32>
}

// -----

plan.program @layer max_tokens 64 {
  // expected-error@+1 {{'b' has slot -1; slots are numbered from 0 and assigned by plan-assign-slots}}
  plan.buffer "b" slot -1 : memref<8xf32>
}

// -----

plan.program @layer max_tokens 64 {
  // expected-error@+1 {{'x' has gaps between its rows, which only weights may have; remove the layout}}
  plan.tensor input "x" : memref<4x8xf32, strided<[?, 1]>>
}

// -----

plan.program @layer max_tokens 64 {
  // expected-error@+1 {{'b' has gaps between its rows, which only weights may have; remove the layout}}
  plan.buffer "b" : memref<4x8xf32, strided<[?, 1]>>
}

// -----

plan.program @layer max_tokens 64 {
  %w = plan.tensor weight "w" : memref<4x8xf32, strided<[?, 1]>>
  plan.prepare {
  }
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{ins[0] is 'memref<4x8xf32, strided<[?, 1]>>', but k takes 'tensor<4x8xf32>'}}
    plan.launch @k ins(%w : memref<4x8xf32, strided<[?, 1]>>) outs()
  }
}
plan.kernel @k(%w: tensor<4x8xf32>) {
  plan.return
}

// -----

plan.program @layer max_tokens 64 {
  %w = plan.tensor weight "w" : memref<4x8xf32>
  plan.prepare {
  }
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{but k takes 'tensor<4x8xf32>' with gaps between the rows}}
    plan.launch @k ins(%w : memref<4x8xf32>) outs()
  }
}
plan.kernel @k(%w: tensor<4x8xf32> {moe.strided}) {
  plan.return
}

// -----

plan.program @layer max_tokens 64 {
  %w = plan.tensor weight "w" : memref<8xf32>
  // expected-error@+1 {{'x' takes no 'in_place': only prepared tensors take the memory of a weight}}
  plan.tensor input "x" in_place "w" : memref<8xf32>
}

// -----

plan.program @layer max_tokens 64 {
  // expected-error@+1 {{'p' is prepared before any run, so its shape must be static; make it a 'plan.buffer'}}
  plan.tensor prepared "p" rows <"tokens"> : memref<?x8xf32>
}

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{is dependent, but the step before it on stream 0 is not a launch; remove 'dependent'}}
    plan.launch @k dependent ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
    plan.record event 0 stream 0
    // expected-error@+1 {{is dependent, but the step before it on stream 0 is not a launch; remove 'dependent'}}
    plan.launch @k dependent ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
    plan.record event 0 stream 0
    plan.wait event 0 stream 1
    // expected-error@+1 {{is dependent, but the step before it on stream 1 is not a launch; remove 'dependent'}}
    plan.launch @k stream 1 dependent ins() outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %w = plan.tensor weight "w" : memref<8xf32>
  %p = plan.tensor prepared "p" : memref<8xf32>
  plan.prepare {
    // expected-error@+1 {{is dependent, but the step before it on stream 0 is not a launch; remove 'dependent'}}
    plan.launch @k dependent ins(%w : memref<8xf32>) outs(%p : memref<8xf32>)
  }
  plan.variant tokens 0 to 64 {
  }
}
func.func private @k()
