// RUN: moe-opt %s --tile-to-llvm | FileCheck %s

// The pipeline leaves only the llvm dialect, without casts or other dialects.
// CHECK-NOT: unrealized_conversion_cast
// CHECK-NOT: {{(arith|memref|vector|scf|cf|func|math)\.}}
// CHECK: llvm.func @map(%{{.*}}: !llvm.ptr, %{{.*}}: i64) {
// CHECK: llvm.call @map__body
// CHECK-NOT: {{(arith|memref|vector|scf|cf|func|math)\.}}
// CHECK: llvm.func @map__body(%{{.*}}: !llvm.ptr {llvm.noalias}, %{{.*}}: !llvm.ptr {llvm.noalias}, %{{.*}}: i64, %{{.*}}: i64)
// Rounding to bf16 is integer arithmetic.
// CHECK-NOT: llvm.fptrunc
// CHECK: llvm.lshr
// CHECK-NOT: {{(arith|memref|vector|scf|cf|func|math)\.}}
tile.kernel @map(%x: memref<?x8xbf16>, %y: memref<?x8xbf16>, %t: i64) {
  tile.row_map tokens(%t) ins(%x : memref<?x8xbf16>) outs(%y : memref<?x8xbf16>) {
  ^bb0(%a: f32):
    %s = math.sqrt %a : f32
    tile.yield %s : f32
  } {config = #tile.cpu_row_map<lanes = 8, rows_per_cta = 2>}
  tile.return
}
