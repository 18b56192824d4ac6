//===- PlanText.cpp - a plan as JSON ----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/PlanText.h"
#include "../support/RapidJson.h"

namespace moert {

namespace {

class Printer {
public:
  explicit Printer(const Plan &plan) : plan(plan), writer(buffer) {}

  std::string print() {
    writer.StartObject();
    field("target", plan.target);
    field("max_tokens", plan.maxTokens);
    if (plan.mesh.numRanks() > 1) {
      field("dp", plan.mesh.dp);
      field("tp", plan.mesh.tp);
      if (plan.mesh.sp)
        field("sp", int64_t(1));
    }
    field("streams", plan.numStreams);
    if (!plan.sumOrders.empty()) {
      writer.Key("sum_orders");
      writer.StartObject();
      for (const SumOrder &order : plan.sumOrders)
        field(order.gemm.c_str(), order.order);
      writer.EndObject();
    }
    list("variants", plan.variants, [&](const Variant &variant) {
      field("min_tokens", variant.minTokens);
      field("max_tokens", variant.maxTokens);
      list("steps", variant.steps, [&](const Step &step) { print(step); });
    });
    list("prepare", plan.prepare, [&](const Step &step) { print(step); });
    list("kernels", plan.kernels, [&](const KernelDecl &kernel) {
      field("name", kernel.name);
      field("grid", kernel.grid.str());
      field("block", kernel.block);
      field("shared", kernel.shared);
    });
    list("tensors", plan.tensors,
         [&](const TensorDecl &tensor) { print(tensor); });
    writer.EndObject();
    return {buffer.GetString(), buffer.GetSize()};
  }

private:
  void text(const std::string &value) {
    writer.String(value.data(), static_cast<rapidjson::SizeType>(value.size()));
  }
  void field(const char *name, const std::string &value) {
    writer.Key(name);
    text(value);
  }
  void field(const char *name, int64_t value) {
    writer.Key(name);
    writer.Int64(value);
  }

  template <typename T, typename Body>
  void list(const char *name, const std::vector<T> &items, Body body) {
    writer.Key(name);
    writer.StartArray();
    for (const T &item : items) {
      writer.StartObject();
      body(item);
      writer.EndObject();
    }
    writer.EndArray();
  }

  void print(const Step &step) {
    field("stream", step.stream);
    switch (step.kind) {
    case Step::Kind::Launch:
      field("kernel", plan.kernels[static_cast<size_t>(step.kernel)].name);
      writer.Key("dependent");
      writer.Bool(step.dependent);
      return;
    case Step::Kind::RecordEvent:
      field("record", step.event);
      return;
    case Step::Kind::WaitEvent:
      field("wait", step.event);
      return;
    case Step::Kind::Collective:
      field("collective", std::string(collectiveKindName(step.collectiveKind)));
      field("axis", std::string(meshAxisName(step.axis)));
      if (step.numKernelArgs > 0)
        field("kernel_args", step.numKernelArgs);
      if (step.toResults) {
        writer.Key("to_results");
        writer.Bool(true);
      }
      if (step.isPacked()) {
        field("route_kernel",
              plan.kernels[static_cast<size_t>(step.routeKernel)].name);
        field("pack_kernel",
              plan.kernels[static_cast<size_t>(step.packKernel)].name);
        writer.Key("routed_pairs");
        writer.StartArray();
        for (int64_t pair : step.routedPairs)
          writer.Int64(pair);
        writer.EndArray();
      }
      if (step.replacedStep >= 0)
        field("replaced_step", step.replacedStep);
      if (step.numColumns > 0) {
        field("first_column", step.firstColumn);
        field("num_columns", step.numColumns);
      }
      return;
    }
  }

  void print(const TensorDecl &tensor) {
    field("name", tensor.name);
    field("role", std::string(tensorRoleName(tensor.role)));
    field("dtype", std::string(dtypeName(tensor.dtype)));
    writer.Key("shape");
    writer.StartArray();
    for (const Expr &size : tensor.shape)
      text(size.str());
    writer.EndArray();
    if (tensor.slot >= 0)
      field("slot", tensor.slot);
  }

  const Plan &plan;
  rapidjson::StringBuffer buffer;
  rapidjson::Writer<rapidjson::StringBuffer> writer;
};

} // namespace

std::string printPlan(const Plan &plan) { return Printer(plan).print(); }

} // namespace moert
