// RUN: not moe-opt %s --tile-assign-config="target=sm_90" 2>&1 | FileCheck %s --check-prefix=TARGET
// RUN: not moe-opt %s --tile-assign-config="lanes=5" 2>&1 | FileCheck %s --check-prefix=LANES
// RUN: not moe-opt %s --tile-assign-config="products=sse" 2>&1 | FileCheck %s --check-prefix=PRODUCTS

// TARGET: tile-assign-config: target 'sm_90' is unknown; accepted are cpu, sm_80, sm_90a, sm_100a
// LANES: tile-assign-config: lanes = 5; 4, 8, 16, or 0 for the host's lanes are accepted
// PRODUCTS: tile-assign-config: products 'sse' are unknown; accepted are fma, vnni, bf16, amx
module {
}
