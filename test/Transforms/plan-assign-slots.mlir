// RUN: moe-opt %s --split-input-file --pass-pipeline='builtin.module(plan.program(plan-assign-slots))' | FileCheck %s
// RUN: moe-opt %s --split-input-file --pass-pipeline='builtin.module(plan.program(plan-assign-slots{keep-all=true}))' | FileCheck %s --check-prefix=KEEP

// A chain: a step's inputs and outputs need different slots; two suffice. The largest buffer has slot 0.
// CHECK-LABEL: plan.program @chain
// CHECK: plan.buffer "a" slot 1
// CHECK: plan.buffer "b" slot 0
// CHECK: plan.buffer "c" slot 1
// CHECK: plan.buffer "d" slot 0
// KEEP-LABEL: plan.program @chain
// KEEP: plan.buffer "a" slot 0
// KEEP: plan.buffer "b" slot 1
// KEEP: plan.buffer "c" slot 2
// KEEP: plan.buffer "d" slot 3
plan.program @chain max_tokens 8 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %a = plan.buffer "a" rows <"tokens"> : memref<?x8xf32>
  %b = plan.buffer "b" rows <"tokens * 2"> : memref<?x8xf32>
  %c = plan.buffer "c" rows <"tokens"> : memref<?x8xf32>
  %d = plan.buffer "d" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 8 {
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%a : memref<?x8xf32>)
    plan.launch @k ins(%a : memref<?x8xf32>) outs(%b : memref<?x8xf32>)
    plan.launch @k ins(%b : memref<?x8xf32>) outs(%c : memref<?x8xf32>)
    plan.launch @k ins(%c : memref<?x8xf32>) outs(%d : memref<?x8xf32>)
    plan.launch @k ins(%d : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
plan.kernel @k(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %0 = moe.row_map %x : tensor<?x8xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  } -> tensor<?x8xf32>
  plan.return %0 : tensor<?x8xf32>
}

// -----

// A side stream runs beside everything until it is joined: "s" and "t" meet neither "a" nor "b", though in the list
// they come after them. After the join "u" may use the slot of "t" or "a".
// CHECK-LABEL: plan.program @streams
// CHECK: plan.buffer "a" slot 0
// CHECK: plan.buffer "b" slot 1
// CHECK: plan.buffer "s" slot 2
// CHECK: plan.buffer "t" slot 3
// CHECK: plan.buffer "u" slot 0
plan.program @streams max_tokens 8 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %a = plan.buffer "a" rows <"tokens"> : memref<?x8xf32>
  %b = plan.buffer "b" rows <"tokens"> : memref<?x8xf32>
  %s = plan.buffer "s" rows <"tokens"> : memref<?x8xf32>
  %t = plan.buffer "t" rows <"tokens"> : memref<?x8xf32>
  %u = plan.buffer "u" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 8 {
    plan.record event 0 stream 0
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%a : memref<?x8xf32>)
    plan.launch @k ins(%a : memref<?x8xf32>) outs(%b : memref<?x8xf32>)
    plan.wait event 0 stream 1
    plan.launch @k stream 1 ins(%x : memref<?x8xf32>) outs(%s : memref<?x8xf32>)
    plan.launch @k stream 1 ins(%s : memref<?x8xf32>) outs(%t : memref<?x8xf32>)
    plan.record event 1 stream 1
    plan.wait event 1 stream 0
    plan.launch @k ins(%b : memref<?x8xf32>) outs(%u : memref<?x8xf32>)
    plan.launch @add ins(%u, %t : memref<?x8xf32>, memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
plan.kernel @k(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %0 = moe.row_map %x : tensor<?x8xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  } -> tensor<?x8xf32>
  plan.return %0 : tensor<?x8xf32>
}
plan.kernel @add(%x: tensor<?x8xf32>, %w: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %0 = moe.row_map %x : tensor<?x8xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  } -> tensor<?x8xf32>
  plan.return %0 : tensor<?x8xf32>
}

// -----

// Disjoint in one variant, overlapping in the other: no slot is shared. A buffer without uses takes any slot.
// CHECK-LABEL: plan.program @variants
// CHECK: plan.buffer "a" slot 0
// CHECK: plan.buffer "b" slot 1
// CHECK: plan.buffer "unused" slot 0
plan.program @variants max_tokens 8 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %a = plan.buffer "a" rows <"tokens"> : memref<?x8xf32>
  %b = plan.buffer "b" rows <"tokens"> : memref<?x8xf32>
  %c = plan.buffer "unused" : memref<4xi32>
  plan.variant tokens 0 to 4 {
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%a : memref<?x8xf32>)
    plan.launch @k ins(%a : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%b : memref<?x8xf32>)
  }
  plan.variant tokens 5 to 8 {
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%a : memref<?x8xf32>)
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%b : memref<?x8xf32>)
    plan.launch @k ins(%a : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
plan.kernel @k(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %0 = moe.row_map %x : tensor<?x8xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  } -> tensor<?x8xf32>
  plan.return %0 : tensor<?x8xf32>
}

// -----

// A launch that reads no buffer may overlap those before it, so it writes to none of their slots; one that reads
// their results waits for them anyway.
// CHECK-LABEL: plan.program @from_inputs
// CHECK: plan.buffer "logits" slot 1
// CHECK: plan.buffer "ids" slot 2
// CHECK: plan.buffer "quantized" slot 0
// CHECK: plan.buffer "hidden" slot 1
plan.program @from_inputs max_tokens 16 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x64xf32>
  %w = plan.tensor weight "w" : memref<8x64xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x64xf32>
  %l = plan.buffer "logits" rows <"tokens"> : memref<?x8xf32>
  %i = plan.buffer "ids" rows <"tokens"> : memref<?x1xi32>
  %q = plan.buffer "quantized" rows <"tokens"> : memref<?x64xf32>
  %h = plan.buffer "hidden" rows <"tokens"> : memref<?x16xf32>
  plan.variant tokens 0 to 16 {
    plan.launch @router ins(%x, %w : memref<?x64xf32>, memref<8x64xf32>) outs(%l : memref<?x8xf32>)
    plan.launch @route ins(%l : memref<?x8xf32>) outs(%i : memref<?x1xi32>)
    plan.launch @quantize ins(%x : memref<?x64xf32>) outs(%q : memref<?x64xf32>)
    plan.launch @first ins(%q, %i : memref<?x64xf32>, memref<?x1xi32>) outs(%h : memref<?x16xf32>)
    plan.launch @second ins(%h : memref<?x16xf32>) outs(%y : memref<?x64xf32>)
  }
}
tile.kernel @router(%x: memref<?x64xf32>, %w: memref<8x64xf32>, %l: memref<?x8xf32>, %t: i64) {
  tile.return
}
tile.kernel @route(%l: memref<?x8xf32>, %i: memref<?x1xi32>, %t: i64) {
  tile.return
}
tile.kernel @quantize(%x: memref<?x64xf32>, %q: memref<?x64xf32>, %t: i64) {
  tile.return
}
tile.kernel @first(%q: memref<?x64xf32>, %i: memref<?x1xi32>, %h: memref<?x16xf32>, %t: i64) {
  tile.return
}
tile.kernel @second(%h: memref<?x16xf32>, %y: memref<?x64xf32>, %t: i64) {
  tile.return
}
