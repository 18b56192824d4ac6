// RUN: moe-opt %s --pass-pipeline='builtin.module(llvm.func(verify-gpu-multicast))' --split-input-file --verify-diagnostics

llvm.func @good(%to: !llvm.ptr<7>, %map: !llvm.ptr, %bar: !llvm.ptr<3>, %c: i32) attributes {nvvm.kernel} {
  nvvm.cp.async.bulk.tensor.shared.cluster.global %to, %map, %bar, box[%c, %c] : !llvm.ptr<7>, !llvm.ptr
  llvm.return
}

// -----

llvm.func @cluster(%to: !llvm.ptr<7>, %map: !llvm.ptr, %bar: !llvm.ptr<3>, %c: i32) attributes {nvvm.kernel, nvvm.cluster_dim = array<i32: 2, 1, 1>} {
  %both = llvm.mlir.constant(3 : i16) : i16
  nvvm.cp.async.bulk.tensor.shared.cluster.global %to, %map, %bar, box[%c, %c] multicast_mask = %both : !llvm.ptr<7>, !llvm.ptr
  %other = nvvm.mapa %bar, %c : !llvm.ptr<3> -> !llvm.ptr<7>
  nvvm.mbarrier.arrive %other {scope = #nvvm.mem_scope<cluster>} : !llvm.ptr<7>
  nvvm.cluster.arrive
  nvvm.cluster.wait
  llvm.return
}

// -----

llvm.func @mask(%to: !llvm.ptr<7>, %map: !llvm.ptr, %bar: !llvm.ptr<3>, %c: i32, %mask: i16) attributes {nvvm.kernel} {
  // expected-error@+1 {{is a multicast, but the kernel declares no cluster; give it 'nvvm.cluster_dim', or start one copy per CTA, without 'multicast_mask'}}
  nvvm.cp.async.bulk.tensor.shared.cluster.global %to, %map, %bar, box[%c, %c] multicast_mask = %mask : !llvm.ptr<7>, !llvm.ptr
  llvm.return
}

// -----

llvm.func @bulk(%to: !llvm.ptr<7>, %from: !llvm.ptr<1>, %bar: !llvm.ptr<3>, %size: i32, %mask: i16) attributes {nvvm.kernel, nvvm.cluster_dim = array<i32: 2, 1, 1>} {
  // expected-error@+1 {{has a 'multicast_mask' that is no constant, so that it may name CTAs outside of the cluster}}
  nvvm.cp.async.bulk.shared.cluster.global %to, %from, %bar, %size multicast_mask = %mask : !llvm.ptr<7>, !llvm.ptr<1>
  nvvm.cluster.arrive
  nvvm.cluster.wait
  llvm.return
}

// -----

llvm.func @wide(%to: !llvm.ptr<7>, %from: !llvm.ptr<1>, %bar: !llvm.ptr<3>, %size: i32) attributes {nvvm.kernel, nvvm.cluster_dim = array<i32: 2, 1, 1>} {
  %three = llvm.mlir.constant(7 : i16) : i16
  // expected-error@+1 {{has the 'multicast_mask' 7; give the bits of 1 to 2 CTAs of the cluster}}
  nvvm.cp.async.bulk.shared.cluster.global %to, %from, %bar, %size multicast_mask = %three : !llvm.ptr<7>, !llvm.ptr<1>
  nvvm.cluster.arrive
  nvvm.cluster.wait
  llvm.return
}

// -----

// A wait for the launches before, with the text that renews memory, may follow.
llvm.func @waits(%bar: !llvm.ptr<3>, %c: i32) attributes {nvvm.kernel, nvvm.cluster_dim = array<i32: 2, 1, 1>} {
  %other = nvvm.mapa %bar, %c : !llvm.ptr<3> -> !llvm.ptr<7>
  nvvm.mbarrier.arrive %other {scope = #nvvm.mem_scope<cluster>} : !llvm.ptr<7>
  nvvm.cluster.arrive
  nvvm.cluster.wait
  nvvm.griddepcontrol wait
  llvm.inline_asm has_side_effects "", "" : () -> ()
  llvm.return
}

// -----

llvm.func @end(%bar: !llvm.ptr<3>, %c: i32) attributes {nvvm.kernel, nvvm.cluster_dim = array<i32: 2, 1, 1>} {
  nvvm.cluster.arrive
  nvvm.cluster.wait
  %other = nvvm.mapa %bar, %c : !llvm.ptr<3> -> !llvm.ptr<7>
  nvvm.mbarrier.arrive %other {scope = #nvvm.mem_scope<cluster>} : !llvm.ptr<7>
  // expected-error@+1 {{ends a CTA of a cluster, whose shared memory others may access; put nvvm.cluster.arrive and nvvm.cluster.wait ahead of it}}
  llvm.return
}

// -----

llvm.func @address(%bar: !llvm.ptr<3>, %c: i32) attributes {nvvm.kernel} {
  // expected-error@+1 {{maps an address to another CTA, but the kernel declares no cluster; give it 'nvvm.cluster_dim'}}
  %other = nvvm.mapa %bar, %c : !llvm.ptr<3> -> !llvm.ptr<7>
  llvm.return
}

// -----

llvm.func @text(%p: !llvm.ptr<1>, %x: f32) attributes {nvvm.kernel} {
  // expected-error@+1 {{is a multicast as text, which no kernel may use; inside a cluster, use an op with 'multicast_mask'}}
  nvvm.inline_ptx "multimem.red.relaxed.sys.global.add.f32 [$0], $1;" ro(%p, %x : !llvm.ptr<1>, f32)
  llvm.return
}

// -----

// expected-error@+1 {{has clusters of array<i32: 2, 2, 1> CTAs; give 2 to 8 in one dimension}}
llvm.func @flat() attributes {nvvm.kernel, nvvm.cluster_dim = array<i32: 2, 2, 1>} {
  llvm.return
}

// -----

// expected-error@+1 {{has the attribute 'nvvm.cluster_max_blocks', but the size of a cluster is declared by 'nvvm.cluster_dim'}}
llvm.func @clusters() attributes {nvvm.kernel, nvvm.cluster_max_blocks = 8 : i32} {
  llvm.return
}
