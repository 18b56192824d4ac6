// RUN: moe-opt %S/../../Transforms/Launch/join-products.mlir --split-input-file --tile-assign-config=target=sm_90a --tile-rewrite-launches="only=join-products target=sm_90a" --convert-tile-to-nvvm=target=sm_90a --cse | FileCheck %s
// RUN: moe-opt %S/../../Transforms/Launch/join-products.mlir --split-input-file --tile-assign-config=target=sm_90a --convert-tile-to-nvvm=target=sm_90a --cse | FileCheck %s --check-prefix=APART

// CTAs take tiles in an order that spreads the CTAs with one tile more.
// CHECK-LABEL: func.func @hidden_out
// CHECK: %[[ID:.*]] = nvvm.read.ptx.sreg.ctaid.x : i32
// CHECK: %[[CTA:.*]] = arith.index_castui %[[ID]] : i32 to index
// CHECK: nvvm.barrier
// CHECK: %[[CTAS:.*]] = nvvm.read.ptx.sreg.nctaid.x : i32
// CHECK: %[[NUMBER:.*]] = arith.index_cast %[[CTA]] : index to i32
// CHECK: %[[SCALED:.*]] = arith.muli %[[NUMBER]], %c59_i32 : i32
// CHECK: %[[SWIZZLED:.*]] = arith.remui %[[SCALED]], %c132_i32 : i32
// CHECK: %[[PLANNED:.*]] = arith.cmpi eq, %{{.*}}, %c132_i32 : i32
// CHECK: %[[PLACE:.*]] = arith.select %[[PLANNED]], %[[SWIZZLED]], %[[NUMBER]] : i32
// CHECK: %[[END:.*]] = arith.muli %{{.*}}, %c2_i32 : i32
// CHECK: scf.for %{{.*}} = %[[PLACE]] to %[[END]] step %[[CTAS]]
// Tiles of the second gemm continue the round-robin order of the first.
// CHECK: %[[LAST:.*]] = arith.remui %{{.*}}, %[[CTAS]] : i32
// CHECK: %[[BEHIND:.*]] = arith.addi %[[PLACE]], %[[CTAS]] : i32
// CHECK: %[[TURNED:.*]] = arith.subi %[[BEHIND]], %[[LAST]] : i32
// CHECK: %[[NEXT:.*]] = arith.remui %[[TURNED]], %[[CTAS]] : i32
// CHECK: scf.for %{{.*}} = %[[NEXT]] to %{{.*}} step %[[CTAS]]

// In a gemm that is not joined, the first CTAs have the first tiles.
// APART-LABEL: func.func @hidden(
// APART-NOT: %c59_i32
