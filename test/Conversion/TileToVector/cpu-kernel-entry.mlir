// RUN: moe-opt %s --cpu-kernel-entry | FileCheck %s

// CHECK-LABEL: llvm.func @k(
// CHECK-SAME: %[[ARGS:[^:]*]]: !llvm.ptr, %[[CTA:[^:]*]]: i64)
// CHECK: %[[SLOT0:.*]] = llvm.getelementptr %[[ARGS]][0] : (!llvm.ptr) -> !llvm.ptr, i64
// CHECK: %[[P:.*]] = llvm.load %[[SLOT0]] : !llvm.ptr -> !llvm.ptr
// CHECK: %[[SLOT1:.*]] = llvm.getelementptr %[[ARGS]][1] : (!llvm.ptr) -> !llvm.ptr, i64
// CHECK: %[[T:.*]] = llvm.load %[[SLOT1]] : !llvm.ptr -> i64
// CHECK: %[[I:.*]] = arith.index_cast %[[CTA]] : i64 to index
// CHECK: call @k__body(%[[P]], %[[T]], %[[I]])
// CHECK: llvm.return

// CHECK-LABEL: func.func private @k__body(
// CHECK-SAME: %[[Q:[^:]*]]: !llvm.ptr {llvm.noalias}, %{{[^:]*}}: i64, %{{[^:]*}}: index) {
// CHECK: llvm.insertvalue %[[Q]]
// CHECK: %[[M:.*]] = builtin.unrealized_conversion_cast %{{.*}} : !llvm.struct<{{.*}}> to memref<?x4x8xf32>
// CHECK: memref.load %[[M]]
func.func @k(%x: memref<?x4x8xf32>, %tokens: i64, %cta: index) attributes {moec.kernel} {
  %0 = memref.load %x[%cta, %cta, %cta] : memref<?x4x8xf32>
  memref.store %0, %x[%cta, %cta, %cta] : memref<?x4x8xf32>
  return
}

// Strides that are not constant follow the address.
// CHECK-LABEL: llvm.func @strided(
// CHECK: call @strided__body(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) : (!llvm.ptr, i64, i64, i64, index) -> ()
// CHECK-LABEL: func.func private @strided__body(
// CHECK-SAME: %{{[^:]*}}: !llvm.ptr {llvm.noalias}, %[[S0:[^:]*]]: i64, %[[S1:[^:]*]]: i64, %{{[^:]*}}: i64, %{{[^:]*}}: index) {
// CHECK-DAG: llvm.insertvalue %[[S0]], %{{.*}}[4, 0]
// CHECK-DAG: llvm.insertvalue %[[S1]], %{{.*}}[4, 1]
// CHECK: memref.load
func.func @strided(%x: memref<2x4x8xf32, strided<[?, ?, 1]>>, %tokens: i64, %cta: index) attributes {moec.kernel} {
  %0 = memref.load %x[%cta, %cta, %cta] : memref<2x4x8xf32, strided<[?, ?, 1]>>
  memref.store %0, %x[%cta, %cta, %cta] : memref<2x4x8xf32, strided<[?, ?, 1]>>
  return
}

// Functions that are not kernels stay.
// CHECK-LABEL: func.func @other(%{{.*}}: memref<4xf32>)
func.func @other(%x: memref<4xf32>) {
  return
}
