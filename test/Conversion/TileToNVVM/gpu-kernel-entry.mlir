// RUN: moe-opt %s --gpu-kernel-entry --split-input-file --verify-diagnostics | FileCheck %s
// RUN: moe-opt %s --gpu-kernel-entry=target=sm_90a --split-input-file --verify-diagnostics | FileCheck %s --check-prefix=SM90

// Kernels of sm_90 and later wait for the previous launch. Memory behind their arguments may have changed after that.
// CHECK-NOT: griddepcontrol
// SM90-LABEL: llvm.func @kernel
// SM90-SAME: (%[[X:[a-z0-9]+]]: !llvm.ptr<1> {llvm.noalias}, %[[T:[a-z0-9]+]]: i64)
// SM90: nvvm.griddepcontrol launch_dependents
// SM90-NEXT: nvvm.griddepcontrol wait
// SM90-NEXT: llvm.inline_asm has_side_effects "", "l,~{memory}" %[[X]] : (!llvm.ptr<1>) -> ()
// SM90: memref.load

// CHECK-LABEL: llvm.func @kernel
// CHECK-SAME: (%[[X:[a-z0-9]+]]: !llvm.ptr<1> {llvm.noalias}, %[[T:[a-z0-9]+]]: i64)
// CHECK-SAME: nvvm.kernel
// CHECK-SAME: nvvm.reqntid = array<i32: 96>
// CHECK: %[[G:.*]] = llvm.addrspacecast %[[X]] : !llvm.ptr<1> to !llvm.ptr
// CHECK: llvm.insertvalue %[[G]]
// CHECK: %[[M:.*]] = builtin.unrealized_conversion_cast {{.*}} to memref<?x8xf32>
// CHECK: memref.load %[[M]]
// CHECK: llvm.return
func.func @kernel(%x: memref<?x8xf32>, %t: i64) attributes {moec.kernel, moec.block = 96 : i64} {
  %i = arith.index_cast %t : i64 to index
  %0 = memref.load %x[%i, %i] : memref<?x8xf32>
  memref.store %0, %x[%i, %i] : memref<?x8xf32>
  return
}

// After the barrier between two phases, memory that threads of the CTA have written is read again.
// CHECK-LABEL: llvm.func @phases
// CHECK: nvvm.barrier0{{$}}
// CHECK-NEXT: llvm.inline_asm has_side_effects "", "l,~{memory}"
func.func @phases(%x: memref<?x8xf32>, %t: i64) attributes {moec.kernel, moec.block = 96 : i64} {
  %i = arith.index_cast %t : i64 to index
  %0 = memref.load %x[%i, %i] : memref<?x8xf32>
  memref.store %0, %x[%i, %i] : memref<?x8xf32>
  nvvm.barrier0 {moec.between_phases}
  %1 = memref.load %x[%i, %i] : memref<?x8xf32>
  memref.store %1, %x[%i, %i] : memref<?x8xf32>
  return
}

// Strides that are not constant follow the address.
// CHECK-LABEL: llvm.func @gaps
// CHECK-SAME: (%{{[a-z0-9]+}}: !llvm.ptr<1> {llvm.noalias}, %[[S0:[a-z0-9]+]]: i64, %[[S1:[a-z0-9]+]]: i64, %{{[a-z0-9]+}}: i64)
// CHECK-DAG: llvm.insertvalue %[[S0]], %{{.*}}[4, 0]
// CHECK-DAG: llvm.insertvalue %[[S1]], %{{.*}}[4, 1]
func.func @gaps(%x: memref<2x4x8xf32, strided<[?, ?, 1]>>, %t: i64) attributes {moec.kernel, moec.block = 96 : i64} {
  %i = arith.index_cast %t : i64 to index
  %0 = memref.load %x[%i, %i, %i] : memref<2x4x8xf32, strided<[?, ?, 1]>>
  memref.store %0, %x[%i, %i, %i] : memref<2x4x8xf32, strided<[?, ?, 1]>>
  return
}

// A kernel may start with reduced registers; else it has the registers of a single CTA per multiprocessor.
// CHECK-LABEL: llvm.func @few_registers
// CHECK-NOT: nvvm.minctasm
// CHECK-SAME: nvvm.maxnreg = 80 : i32
// CHECK-LABEL: llvm.func @all_registers
// CHECK-SAME: nvvm.minctasm = 1 : i32
func.func @few_registers(%t: i64) attributes {moec.kernel, moec.block = 384 : i64, moec.form = #tile.kernel_form<registers = 80>} {
  return
}
func.func @all_registers(%t: i64) attributes {moec.kernel, moec.block = 384 : i64} {
  return
}

// Tensor maps come by value.
// CHECK-LABEL: llvm.func @maps
// CHECK-SAME: (%{{[a-z0-9]+}}: !llvm.ptr<1> {llvm.noalias}, %{{[a-z0-9]+}}: i64, %{{[a-z0-9]+}}: !llvm.ptr {llvm.align = 64 : i64, llvm.byval = !llvm.array<128 x i8>, nvvm.grid_constant})
func.func @maps(%x: memref<?x8xf32>, %t: i64, %m: !llvm.ptr) attributes {moec.kernel, moec.block = 96 : i64} {
  nvvm.prefetch tensormap, %m : !llvm.ptr
  return
}

// Emission may place the wait.
// SM90-LABEL: llvm.func @waits
// SM90: nvvm.griddepcontrol launch_dependents
// SM90-NOT: nvvm.griddepcontrol wait
// SM90: nvvm.barrier0
// SM90-NEXT: nvvm.griddepcontrol wait
// SM90-NEXT: llvm.inline_asm has_side_effects "", "l,l,~{memory}"
// SM90-NOT: nvvm.griddepcontrol wait
// SM90: llvm.return
func.func @waits(%x: memref<?x8xf32>, %y: memref<4xf32>, %t: i64) attributes {moec.kernel, moec.block = 96 : i64} {
  nvvm.barrier0
  nvvm.griddepcontrol wait
  return
}

// An independent kernel waits for earlier launches at its end.
// SM90-LABEL: llvm.func @independent
// SM90: nvvm.griddepcontrol launch_dependents
// SM90-NOT: nvvm.griddepcontrol wait
// SM90: memref.load
// SM90: nvvm.griddepcontrol wait
// SM90-NEXT: llvm.inline_asm has_side_effects "", "l,~{memory}"
// SM90-NEXT: llvm.return
func.func @independent(%x: memref<?x8xf32>, %t: i64) attributes {moec.kernel, moec.form = #tile.kernel_form<independent = true>, moec.block = 96 : i64} {
  %i = arith.index_cast %t : i64 to index
  %0 = memref.load %x[%i, %i] : memref<?x8xf32>
  memref.store %0, %x[%i, %i] : memref<?x8xf32>
  return
}

// A late kernel lets the next launch begin behind its wait.
// SM90-LABEL: llvm.func @late
// SM90-NOT: nvvm.griddepcontrol launch_dependents
// SM90: nvvm.griddepcontrol wait
// SM90-NEXT: nvvm.griddepcontrol launch_dependents
// SM90: memref.load
// SM90-NOT: nvvm.griddepcontrol
// SM90: llvm.return
func.func @late(%x: memref<?x8xf32>, %t: i64) attributes {moec.kernel, moec.form = #tile.kernel_form<late = true>, moec.block = 96 : i64} {
  %i = arith.index_cast %t : i64 to index
  %0 = memref.load %x[%i, %i] : memref<?x8xf32>
  memref.store %0, %x[%i, %i] : memref<?x8xf32>
  return
}

// CHECK-LABEL: func.func @other
func.func @other() {
  return
}

// -----

func.func @dim(%x: memref<?x8xf32>, %t: i64) attributes {moec.kernel, moec.block = 32 : i64} {
  %c0 = arith.constant 0 : index
  // expected-error@+1 {{reads an extent that a kernel does not have; derive it from the token count}}
  %d = memref.dim %x, %c0 : memref<?x8xf32>
  return
}

// -----

// expected-error@+1 {{a kernel takes row-major memrefs of which at most the first dimension is dynamic}}
func.func @strided(%x: memref<?x?xf32>, %t: i64) attributes {moec.kernel, moec.block = 32 : i64} {
  return
}
