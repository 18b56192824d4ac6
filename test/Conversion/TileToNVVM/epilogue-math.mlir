// RUN: moe-opt %s --tile-assign-config=target=sm_80 --convert-tile-to-nvvm | FileCheck %s

// Results rounded to 16 bits may use the GPU's approximate instructions.
// CHECK-LABEL: func.func @rounded
// CHECK: %[[X:.*]] = arith.mulf {{.*}} : vector<[[N:[0-9]+]]xf32>
// CHECK: %[[XS:.*]]:[[N]] = vector.to_elements %[[X]]
// CHECK: %[[E:.*]] = llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f32"(%[[XS]]#0)
// CHECK: vector.from_elements %[[E]]
// CHECK: %[[SUM:.*]] = arith.addf {{.*}} : vector<[[N]]xf32>
// CHECK: %[[SUMS:.*]]:[[N]] = vector.to_elements %[[SUM]]
// CHECK: %[[R:.*]] = nvvm.rcp.approx.ftz.f %[[SUMS]]#0
// CHECK: %[[RS:.*]] = vector.from_elements %[[R]]
// CHECK: arith.mulf %{{.*}}, %[[RS]] : vector<[[N]]xf32>
// CHECK-NOT: arith.divf
// CHECK-NOT: ex2.approx.f
// CHECK: return
tile.kernel @rounded(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x64xbf16>,
    %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x64xbf16>) epilogue {
  ^bb0(%gate: f32, %up: f32):
    %one = arith.constant 1.0 : f32
    %minus = arith.negf %gate : f32
    %e = math.exp %minus : f32
    %sum = arith.addf %e, %one : f32
    %silu = arith.divf %gate, %sum : f32
    %z = arith.mulf %silu, %up : f32
    tile.yield %z : f32
  } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}

// tanh uses both, and division by a constant is one multiplication.
// CHECK-LABEL: func.func @tanh
// CHECK: %[[TENTH:.*]] = arith.constant dense<1.000000e-01> : vector<
// CHECK: arith.mulf %{{.*}}, %[[TENTH]]
// CHECK: llvm.nvvm.ex2.approx.ftz.f32
// CHECK: nvvm.rcp.approx.ftz.f
// CHECK-NOT: arith.divf
// CHECK: return
tile.kernel @tanh(%x: memref<?x64xbf16>, %w: memref<64x64xbf16>, %y: memref<?x64xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<64x64xbf16>)
      outs(%y : memref<?x64xbf16>) epilogue {
  ^bb0(%v: f32):
    %ten = arith.constant 10.0 : f32
    %part = arith.divf %v, %ten : f32
    %z = math.tanh %part : f32
    tile.yield %z : f32
  }
  tile.return
}

// Results in f32 are exact.
// CHECK-LABEL: func.func @exact
// CHECK-NOT: approx
// CHECK-NOT: fastmath
// CHECK: arith.divf
// CHECK-NOT: approx
// CHECK: return
tile.kernel @exact(%x: memref<?x64xf32>, %w: memref<64x64xf32>, %y: memref<?x64xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xf32>, memref<64x64xf32>)
      outs(%y : memref<?x64xf32>) epilogue {
  ^bb0(%v: f32):
    %two = arith.constant 2.0 : f32
    %e = math.exp %v : f32
    %z = arith.divf %two, %e : f32
    tile.yield %z : f32
  }
  tile.return
}

// Except reciprocals, which avoid a branch: the approximate instruction and its correction.
// CHECK-LABEL: func.func @reciprocal
// CHECK-NOT: arith.divf
// CHECK: %[[SCALED:.*]] = arith.mulf %[[X:.*]], %[[SCALE:.*]] : vector
// CHECK: nvvm.rcp.approx.ftz.f
// CHECK: %[[NEAR:.*]] = vector.from_elements
// CHECK: %[[MINUS:.*]] = arith.negf %[[SCALED]]
// CHECK: %[[ERROR:.*]] = math.fma %[[MINUS]], %[[NEAR]], %{{.*}}
// CHECK: %[[CORRECTED:.*]] = math.fma %[[NEAR]], %[[ERROR]], %[[NEAR]]
// CHECK: %[[R:.*]] = arith.select %{{.*}}, %[[NEAR]], %[[CORRECTED]]
// CHECK: arith.mulf %[[R]], %[[SCALE]]
// CHECK-NOT: arith.divf
// CHECK: return
tile.kernel @reciprocal(%x: memref<?x64xf32>, %w: memref<64x64xf32>, %y: memref<?x64xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xf32>, memref<64x64xf32>)
      outs(%y : memref<?x64xf32>) epilogue {
  ^bb0(%v: f32):
    %one = arith.constant 1.0 : f32
    %z = arith.divf %one, %v : f32
    tile.yield %z : f32
  }
  tile.return
}
