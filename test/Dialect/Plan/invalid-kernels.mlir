// RUN: moe-opt %s --split-input-file --verify-diagnostics

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %w = plan.tensor weight "w" : memref<8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{launches 'missing', which is not a kernel of the module}}
    plan.launch @missing ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
plan.kernel @k(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %0 = moe.row_map %x : tensor<?x8xf32> {
  ^bb0(%v: f32):
    moe.yield %v : f32
  } -> tensor<?x8xf32>
  plan.return %0 : tensor<?x8xf32>
}

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %w = plan.tensor weight "w" : memref<8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{launches 'other', which is not a kernel of the module}}
    plan.launch @other ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
module @other {
}

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %w = plan.tensor weight "w" : memref<8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{gives 2 ins, but k takes 1}}
    plan.launch @k ins(%x, %w : memref<?x8xf32>, memref<8xf32>) outs(%y : memref<?x8xf32>)
  }
}
plan.kernel @k(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %0 = moe.row_map %x : tensor<?x8xf32> {
  ^bb0(%v: f32):
    moe.yield %v : f32
  } -> tensor<?x8xf32>
  plan.return %0 : tensor<?x8xf32>
}

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %w = plan.tensor weight "w" : memref<8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{ins[0] is 'memref<8xf32>', but k takes 'tensor<?x8xf32>'}}
    plan.launch @k ins(%w : memref<8xf32>) outs(%y : memref<?x8xf32>)
  }
}
plan.kernel @k(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %0 = moe.row_map %x : tensor<?x8xf32> {
  ^bb0(%v: f32):
    moe.yield %v : f32
  } -> tensor<?x8xf32>
  plan.return %0 : tensor<?x8xf32>
}

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
    // expected-error@+1 {{gives 0 outs, but k takes 1}}
    plan.launch @k ins(%x : memref<?x8xf32>) outs()
  }
}
plan.kernel @k(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %0 = moe.row_map %x : tensor<?x8xf32> {
  ^bb0(%v: f32):
    moe.yield %v : f32
  } -> tensor<?x8xf32>
  plan.return %0 : tensor<?x8xf32>
}

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %w = plan.tensor weight "w" : memref<8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{gives 1 tensors, but k takes 2 and the token count}}
    plan.launch @k ins() outs(%y : memref<?x8xf32>)
  }
}
tile.kernel @k(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %tokens: i64) {
  tile.return
}

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %w = plan.tensor weight "w" : memref<8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{ins[0] is 'memref<8xf32>', but k takes 'memref<?x8xf32>'}}
    plan.launch @k ins(%w : memref<8xf32>) outs(%y : memref<?x8xf32>)
  }
}
tile.kernel @k(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %tokens: i64) {
  tile.return
}

// -----

plan.program @layer max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %w = plan.tensor weight "w" : memref<8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{outs[0] is 'memref<?x8xf32>', but k takes 'memref<?x4xf32>'}}
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
tile.kernel @k(%x: memref<?x8xf32>, %y: memref<?x4xf32>, %tokens: i64) {
  tile.return
}

// -----

// expected-error@+1 {{argument 0 is 'i64'; a kernel's arguments and results are ranked tensors}}
plan.kernel @k(%x: i64) {
  plan.return
}

// -----

// expected-error@+1 {{result 0 is 'f32'; a kernel's arguments and results are ranked tensors}}
"plan.kernel"() ({
^bb0:
  "plan.return"() : () -> ()
}) {sym_name = "k", function_type = () -> f32} : () -> ()

// -----

// expected-error@+1 {{must have one block: moe ops and a 'plan.return'}}
plan.kernel @k() {
  cf.br ^bb1
^bb1:
  plan.return
}

// -----

plan.kernel @k() {
  // expected-error@+1 {{is not allowed in a 'plan.kernel'; its body holds moe ops and a 'plan.return'}}
  %c = arith.constant 0 : i64
  plan.return
}

// -----

plan.kernel @k(%x: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  // expected-error@+1 {{returns ('tensor<?x8xf32>'), but k has the results ('tensor<?x8xf32>', 'tensor<?x8xf32>')}}
  plan.return %x : tensor<?x8xf32>
}

// -----

func.func @f() {
  // expected-error@+1 {{'plan.return' op expects parent op 'plan.kernel'}}
  plan.return
}
