// Every attribute, through the printer and back.
// RUN: moe-opt %s | moe-opt | FileCheck %s

// CHECK-LABEL: module @expr
// CHECK-SAME: ceildiv = #plan.expr<"ceildiv(tokens, 16) * 4">
// CHECK-SAME: constant = #plan.expr<"42">
// CHECK-SAME: min = #plan.expr<"min(tokens * 8, 1024) + 1">
// CHECK-SAME: parentheses = #plan.expr<"(tokens + 3) * max(tokens, 2)">
// CHECK-SAME: tokens = #plan.expr<"tokens">
module @expr attributes {test.values = {
  tokens = #plan.expr<"tokens">,
  constant = #plan.expr<"42">,
  ceildiv = #plan.expr<"ceildiv(tokens, 16) * 4">,
  min = #plan.expr<"min(tokens * 8, 1024) + 1">,
  parentheses = #plan.expr<"(tokens + 3) * max(tokens, 2)">
}} {}

// CHECK-LABEL: module @role
// CHECK-SAME: input = #plan<role input>
// CHECK-SAME: output = #plan<role output>
// CHECK-SAME: weight = #plan<role weight>
module @role attributes {test.values = {
  input = #plan<role input>,
  weight = #plan<role weight>,
  output = #plan<role output>
}} {}
