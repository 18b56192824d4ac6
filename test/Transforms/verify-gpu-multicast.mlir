// RUN: moe-opt %s --pass-pipeline='builtin.module(llvm.func(verify-gpu-multicast))' --split-input-file --verify-diagnostics

llvm.func @good(%to: !llvm.ptr<7>, %map: !llvm.ptr, %bar: !llvm.ptr<3>, %c: i32) attributes {nvvm.kernel} {
  nvvm.cp.async.bulk.tensor.shared.cluster.global %to, %map, %bar, box[%c, %c] : !llvm.ptr<7>, !llvm.ptr
  llvm.return
}

// -----

llvm.func @mask(%to: !llvm.ptr<7>, %map: !llvm.ptr, %bar: !llvm.ptr<3>, %c: i32, %mask: i16) attributes {nvvm.kernel} {
  // expected-error@+1 {{is a multicast, which no kernel may use; start one copy per CTA, without 'multicast_mask'}}
  nvvm.cp.async.bulk.tensor.shared.cluster.global %to, %map, %bar, box[%c, %c] multicast_mask = %mask : !llvm.ptr<7>, !llvm.ptr
  llvm.return
}

// -----

llvm.func @bulk(%to: !llvm.ptr<7>, %from: !llvm.ptr<1>, %bar: !llvm.ptr<3>, %size: i32, %mask: i16) attributes {nvvm.kernel} {
  // expected-error@+1 {{is a multicast}}
  nvvm.cp.async.bulk.shared.cluster.global %to, %from, %bar, %size multicast_mask = %mask : !llvm.ptr<7>, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @text(%p: !llvm.ptr<1>, %x: f32) attributes {nvvm.kernel} {
  // expected-error@+1 {{is a multicast}}
  nvvm.inline_ptx "multimem.red.relaxed.sys.global.add.f32 [$0], $1;" ro(%p, %x : !llvm.ptr<1>, f32)
  llvm.return
}

// -----

// expected-error@+1 {{has the attribute 'nvvm.cluster_dim', but CTAs are launched without clusters; remove it}}
llvm.func @cluster() attributes {nvvm.kernel, nvvm.cluster_dim = array<i32: 2, 1, 1>} {
  llvm.return
}

// -----

// expected-error@+1 {{has the attribute 'nvvm.cluster_max_blocks'}}
llvm.func @clusters() attributes {nvvm.kernel, nvvm.cluster_max_blocks = 8 : i32} {
  llvm.return
}
