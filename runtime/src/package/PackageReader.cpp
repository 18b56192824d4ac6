//===- PackageReader.cpp - converts a FlatBuffer to a package ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../support/Check.h"
#include "PackageSchema.h"

#include <cstring>

namespace moert {

namespace fb = flatbuffers;

static std::string at(const std::string &list, size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

static Status wrong(const std::string &field, const std::string &found,
                    const std::string &accepted) {
  return invalidArgument("package: " + field + " is " + found + "; " +
                         accepted + " is accepted");
}

static Status readExpr(const fb::String &text, const std::string &field,
                       Expr &expr) {
  Result<Expr> parsed = Expr::parse(text.string_view());
  if (!parsed)
    return parsed.status().withContext("package: " + field);
  expr = std::move(*parsed);
  return Status::ok();
}

static std::vector<int64_t> readList(const fb::Vector<int64_t> &from) {
  // FlatBuffers' verifier checks the alignment of the count, not of the
  // elements.
  std::vector<int64_t> list(from.size());
  if (!list.empty())
    memcpy(list.data(), from.Data(), list.size() * sizeof(int64_t));
  return list;
}

static Status readTensor(const schema::Tensor &from, const std::string &where,
                         TensorDecl &tensor) {
  tensor.name = from.name()->str();
  std::optional<DType> dtype = parseDType(from.dtype()->string_view());
  if (!dtype)
    return wrong(where + ".dtype", "'" + from.dtype()->str() + "'",
                 "the name of an element type, such as bf16,");
  tensor.dtype = *dtype;
  if (from.role() > schema::Role::MAX)
    return wrong(where + ".role", std::to_string(static_cast<int>(from.role())),
                 "0 to 4");
  tensor.role = static_cast<TensorRole>(from.role());
  for (fb::uoffset_t i = 0; i < from.shape()->size(); ++i)
    MOERT_CHECK(readExpr(*from.shape()->Get(i), at(where + ".shape", i),
                         tensor.shape.emplace_back()));
  tensor.slot = from.slot();
  tensor.alignment = from.alignment();
  tensor.strided = from.strided();
  tensor.inPlaceOf = from.in_place_of();
  return Status::ok();
}

static Status readStep(const schema::Step &from, const std::string &where,
                       Step &step) {
  if (from.kind() > schema::StepKind::MAX)
    return wrong(where + ".kind", std::to_string(static_cast<int>(from.kind())),
                 "0 to 3");
  if (from.collective() > schema::CollectiveKind::MAX)
    return wrong(where + ".collective",
                 std::to_string(static_cast<int>(from.collective())), "0 to 2");
  if (from.axis() > schema::MeshAxis::MAX)
    return wrong(where + ".axis", std::to_string(static_cast<int>(from.axis())),
                 "0 to 1");
  step.kind = static_cast<Step::Kind>(from.kind());
  step.collectiveKind = static_cast<CollectiveKind>(from.collective());
  step.axis = static_cast<MeshAxis>(from.axis());
  step.stream = from.stream();
  step.kernel = from.kernel();
  step.event = from.event();
  step.dependent = from.dependent();
  step.numKernelArgs = from.kernel_args();
  step.replacedStep = from.replaced_step();
  step.firstColumn = from.first_column();
  step.numColumns = from.num_columns();
  step.toResults = from.to_results();
  step.routeKernel = from.route_kernel();
  step.packKernel = from.pack_kernel();
  if (from.routed_pairs())
    step.routedPairs = readList(*from.routed_pairs());
  if (!from.args())
    return Status::ok();
  for (fb::uoffset_t i = 0; i < from.args()->size(); ++i) {
    const schema::Argument &arg = *from.args()->Get(i);
    if (!arg.scalar()) {
      step.args.push_back(Argument::ofTensor(arg.tensor()));
      continue;
    }
    Expr scalar;
    MOERT_CHECK(
        readExpr(*arg.scalar(), at(where + ".args", i) + ".scalar", scalar));
    step.args.push_back(Argument::ofScalar(std::move(scalar)));
  }
  return Status::ok();
}

using StepVector = fb::Vector<fb::Offset<schema::Step>>;

static Status readSteps(const StepVector *from, const std::string &where,
                        std::vector<Step> &steps) {
  if (from)
    for (fb::uoffset_t i = 0; i < from->size(); ++i)
      MOERT_CHECK(readStep(*from->Get(i), at(where, i), steps.emplace_back()));
  return Status::ok();
}

static Status readPlan(const schema::Plan &from, const std::string &where,
                       Plan &plan) {
  plan.target = from.target()->str();
  plan.maxTokens = from.max_tokens();
  plan.numSlots = from.num_slots();
  plan.numStreams = from.num_streams();
  plan.numEvents = from.num_events();
  plan.mesh = {from.dp(), from.tp(), from.sp()};
  for (fb::uoffset_t i = 0; i < from.tensors()->size(); ++i)
    MOERT_CHECK(readTensor(*from.tensors()->Get(i), at(where + ".tensors", i),
                           plan.tensors.emplace_back()));
  for (fb::uoffset_t i = 0; i < from.kernels()->size(); ++i) {
    const schema::Kernel &kernel = *from.kernels()->Get(i);
    KernelDecl &decl = plan.kernels.emplace_back();
    decl.name = kernel.name()->str();
    MOERT_CHECK(readExpr(*kernel.grid(), at(where + ".kernels", i) + ".grid",
                         decl.grid));
    decl.block = kernel.block();
    decl.shared = kernel.shared();
    decl.resident = kernel.resident();
    if (kernel.tensor_maps())
      for (const schema::TensorMap *map : *kernel.tensor_maps())
        decl.tensorMaps.push_back(
            {map->argument(), readList(*map->sizes()), readList(*map->along()),
             readList(*map->steps()), readList(*map->box()), map->swizzle()});
  }
  for (fb::uoffset_t i = 0; i < from.variants()->size(); ++i) {
    const schema::Variant &variant = *from.variants()->Get(i);
    Variant &made = plan.variants.emplace_back();
    made.minTokens = variant.min_tokens();
    made.maxTokens = variant.max_tokens();
    MOERT_CHECK(readSteps(variant.steps(),
                          at(where + ".variants", i) + ".steps", made.steps));
  }
  if (from.sum_orders())
    for (const schema::SumOrder *order : *from.sum_orders())
      plan.sumOrders.push_back({order->gemm()->str(), order->order()->str()});
  return readSteps(from.prepare(), where + ".prepare", plan.prepare);
}

Result<Package> readPackage(const schema::Package &from) {
  Package package;
  if (from.producer())
    package.producer = from.producer()->str();
  if (from.cache_key())
    package.cacheKey = from.cache_key()->str();
  if (from.model_type())
    package.modelType = from.model_type()->str();
  if (from.spec())
    package.spec = from.spec()->str();
  for (fb::uoffset_t i = 0; i < from.programs()->size(); ++i) {
    const schema::Program &program = *from.programs()->Get(i);
    std::string where = at("programs", i);
    PackageProgram &made = package.programs.emplace_back();
    MOERT_CHECK(readPlan(*program.plan(), where + ".plan", made.plan));
    for (fb::uoffset_t j = 0; j < program.images()->size(); ++j) {
      const schema::Image &image = *program.images()->Get(j);
      if (image.kind() > schema::ImageKind::MAX)
        return wrong(at(where + ".images", j) + ".kind",
                     std::to_string(static_cast<int>(image.kind())), "0 or 1");
      PackageImage &read = made.images.emplace_back();
      read.target = image.target()->str();
      read.kind = image.kind() == schema::ImageKind::Cubin
                      ? ModuleImage::Kind::Cubin
                      : ModuleImage::Kind::Ptx;
      for (fb::uoffset_t k = 0; k < image.modules()->size(); ++k) {
        const auto &bytes = *image.modules()->Get(k)->bytes();
        read.modules.emplace_back(bytes.begin(), bytes.end());
      }
    }
  }
  return package;
}

} // namespace moert
