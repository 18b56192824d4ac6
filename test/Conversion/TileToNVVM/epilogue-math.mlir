// RUN: moe-opt %s --tile-assign-config=target=sm_80 --convert-tile-to-nvvm | FileCheck %s

// What is rounded to 16 bits may come from the machine's approximations.
// CHECK-LABEL: func.func @rounded
// CHECK: arith.mulf {{.*}} : vector<[[N:[0-9]+]]xf32>
// CHECK: math.exp2 {{.*}} fastmath<afn> : vector<[[N]]xf32>
// CHECK: arith.divf {{.*}} fastmath<afn> : vector<[[N]]xf32>
tile.kernel @rounded(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x64xbf16>,
    %t: i64) {
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
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

// What stays f32 does not.
// CHECK-LABEL: func.func @exact
// CHECK-NOT: math.exp2
// CHECK-NOT: fastmath
// CHECK: return
tile.kernel @exact(%x: memref<?x64xf32>, %w: memref<64x64xf32>, %y: memref<?x64xf32>, %t: i64) {
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xf32>, memref<64x64xf32>)
      outs(%y : memref<?x64xf32>) epilogue {
  ^bb0(%v: f32):
    %one = arith.constant 1.0 : f32
    %e = math.exp %v : f32
    %z = arith.divf %one, %e : f32
    tile.yield %z : f32
  }
  tile.return
}
