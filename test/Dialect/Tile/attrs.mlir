// Every attribute with every parameter, through the printer and back.
// RUN: moe-opt %s | moe-opt | FileCheck %s

// CHECK-LABEL: module @config
// CHECK-SAME: all = #tile.config<schedule = "cpu.contract", m = 4, n = 6, k = 8, panel = 32, lanes = 16, rows = 128>
// CHECK-SAME: dots = #tile.config<schedule = "sm_90a.contract.ws">
// CHECK-SAME: zeros = #tile.config<schedule = "cpu.rank">
module @config attributes {test.values = {
  all = #tile.config<schedule = "cpu.contract", m = 4, n = 6, k = 8, panel = 32, lanes = 16, rows = 128>,
  dots = #tile.config<schedule = "sm_90a.contract.ws">,
  // A parameter of 0 is one that the schedule does not have.
  zeros = #tile.config<schedule = "cpu.rank", m = 0, n = 0, k = 0, panel = 0, lanes = 0, rows = 0>
}} {}
