//===- PackageFile.cpp - packages as bytes ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../support/AtomicFile.h"
#include "../support/Check.h"
#include "../support/RegularFile.h"
#include "../support/Sha256.h"
#include "../support/Text.h"
#include "PackageSchema.h"
#include "moert/Package.h"

#include <cerrno>
#include <cstring>

#include <unistd.h>

namespace moert {

namespace fb = flatbuffers;

/// Far larger than any layer's code.
static constexpr size_t kMaxPackageBytes = size_t(1) << 30;
static constexpr size_t kDigestBytes = sizeof(Sha256Digest);
/// Bytes of the root's offset and the identifier.
static constexpr size_t kIdentifierEnd = 8;

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

static fb::Offset<fb::Vector<fb::Offset<schema::Step>>>
packSteps(fb::FlatBufferBuilder &builder, const std::vector<Step> &steps) {
  std::vector<fb::Offset<schema::Step>> packed;
  for (const Step &step : steps) {
    std::vector<fb::Offset<schema::Argument>> args;
    for (const Argument &arg : step.args)
      args.push_back(
          arg.kind == Argument::Kind::Tensor
              ? schema::CreateArgument(builder, arg.tensor)
              : schema::CreateArgument(builder, -1,
                                       builder.CreateString(arg.scalar.str())));
    packed.push_back(schema::CreateStep(
        builder, static_cast<schema::StepKind>(step.kind), step.stream,
        step.kernel, builder.CreateVector(args), step.event, step.dependent,
        static_cast<schema::CollectiveKind>(step.collectiveKind),
        static_cast<schema::MeshAxis>(step.axis), step.numKernelArgs,
        step.replacedStep, step.firstColumn, step.numColumns, step.toResults,
        step.routeKernel, step.packKernel,
        builder.CreateVector(step.routedPairs)));
  }
  return builder.CreateVector(packed);
}

static fb::Offset<schema::Plan> packPlan(fb::FlatBufferBuilder &builder,
                                         const Plan &plan) {
  std::vector<fb::Offset<schema::Tensor>> tensors;
  for (const TensorDecl &tensor : plan.tensors) {
    std::vector<std::string> shape;
    for (const Expr &size : tensor.shape)
      shape.push_back(size.str());
    tensors.push_back(schema::CreateTensor(
        builder, builder.CreateString(tensor.name),
        builder.CreateString(dtypeName(tensor.dtype)),
        builder.CreateVectorOfStrings(shape),
        static_cast<schema::Role>(tensor.role), tensor.slot, tensor.alignment,
        tensor.strided, tensor.inPlaceOf));
  }
  std::vector<fb::Offset<schema::Kernel>> kernels;
  for (const KernelDecl &kernel : plan.kernels) {
    std::vector<fb::Offset<schema::TensorMap>> maps;
    for (const TensorMapDecl &map : kernel.tensorMaps)
      maps.push_back(schema::CreateTensorMap(
          builder, map.argument, builder.CreateVector(map.sizes),
          builder.CreateVector(map.along), builder.CreateVector(map.steps),
          builder.CreateVector(map.box), map.swizzleBytes));
    kernels.push_back(schema::CreateKernel(
        builder, builder.CreateString(kernel.name),
        builder.CreateString(kernel.grid.str()), kernel.block, kernel.shared,
        builder.CreateVector(maps), kernel.resident));
  }
  std::vector<fb::Offset<schema::Variant>> variants;
  for (const Variant &variant : plan.variants)
    variants.push_back(
        schema::CreateVariant(builder, variant.minTokens, variant.maxTokens,
                              packSteps(builder, variant.steps)));
  std::vector<fb::Offset<schema::SumOrder>> orders;
  for (const SumOrder &order : plan.sumOrders)
    orders.push_back(schema::CreateSumOrder(builder,
                                            builder.CreateString(order.gemm),
                                            builder.CreateString(order.order)));
  return schema::CreatePlan(
      builder, builder.CreateString(plan.target), plan.maxTokens, plan.numSlots,
      plan.numStreams, plan.numEvents, builder.CreateVector(tensors),
      builder.CreateVector(kernels), builder.CreateVector(variants),
      packSteps(builder, plan.prepare), plan.mesh.dp, plan.mesh.tp,
      plan.mesh.sp, builder.CreateVector(orders));
}

static fb::Offset<schema::Program> packProgram(fb::FlatBufferBuilder &builder,
                                               const PackageProgram &program) {
  std::vector<fb::Offset<schema::Image>> images;
  for (const PackageImage &image : program.images) {
    std::vector<fb::Offset<schema::Module>> modules;
    for (const std::vector<uint8_t> &bytes : image.modules)
      modules.push_back(
          schema::CreateModule(builder, builder.CreateVector(bytes)));
    images.push_back(schema::CreateImage(
        builder, builder.CreateString(image.target),
        image.kind == ModuleImage::Kind::Cubin ? schema::ImageKind::Cubin
                                               : schema::ImageKind::Ptx,
        builder.CreateVector(modules)));
  }
  return schema::CreateProgram(builder, packPlan(builder, program.plan),
                               builder.CreateVector(images));
}

Result<std::vector<uint8_t>> packPackage(const Package &package) {
  MOERT_CHECK(verifyPackage(package));
  size_t imageBytes = 0;
  for (const PackageProgram &program : package.programs)
    for (const PackageImage &image : program.images)
      for (const std::vector<uint8_t> &bytes : image.modules)
        imageBytes += bytes.size();
  // The builder aborts beyond 2 GiB.
  if (imageBytes > kMaxPackageBytes / 2)
    return invalidArgument("package: images of " + std::to_string(imageBytes) +
                           " bytes; at most " +
                           std::to_string(kMaxPackageBytes / 2) +
                           " are accepted, so give fewer targets");
  fb::FlatBufferBuilder builder;
  std::vector<fb::Offset<schema::Program>> programs;
  for (const PackageProgram &program : package.programs)
    programs.push_back(packProgram(builder, program));
  auto producer = builder.CreateString(package.producer);
  fb::Offset<fb::String> spec;
  if (!package.spec.empty())
    spec = builder.CreateString(package.spec);
  fb::Offset<fb::String> cacheKey;
  if (!package.cacheKey.empty())
    cacheKey = builder.CreateString(package.cacheKey);
  fb::Offset<fb::String> modelType;
  if (!package.modelType.empty())
    modelType = builder.CreateString(package.modelType);
  schema::FinishPackageBuffer(
      builder, schema::CreatePackage(builder, Package::kFormatVersion, producer,
                                     spec, builder.CreateVector(programs),
                                     cacheKey, modelType));
  const uint8_t *data = builder.GetBufferPointer();
  std::vector<uint8_t> bytes(data, data + builder.GetSize());
  Sha256Digest digest = sha256(bytes.data(), bytes.size());
  bytes.insert(bytes.end(), digest.begin(), digest.end());
  return bytes;
}

Status writePackage(const std::string &path, const Package &package) {
  Result<std::vector<uint8_t>> bytes = packPackage(package);
  if (!bytes)
    return bytes.status().withContext(path);
  return writeFileWhole(path, {{bytes->data(), bytes->size()}});
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// Checks the first kIdentifierEnd bytes of a file of `size` bytes.
static Status checkHeader(const uint8_t *start, uint64_t size) {
  if (size > kMaxPackageBytes)
    return invalidArgument("no package: " + std::to_string(size) +
                           " bytes are more than the largest, " +
                           std::to_string(kMaxPackageBytes));
  if (size < kIdentifierEnd + kDigestBytes)
    return invalidArgument("no package: " + std::to_string(size) +
                           " bytes are less than a package has; it may be cut "
                           "off");
  if (!schema::PackageBufferHasIdentifier(start))
    return invalidArgument(
        std::string("no package: bytes 4 to 7 are not its identifier, '") +
        schema::PackageIdentifier() + "'; give a file written by moe-compile");
  return Status::ok();
}

Result<Package> Package::fromMemory(const void *data, size_t size) {
  auto *begin = static_cast<const uint8_t *>(data);
  MOERT_CHECK(checkHeader(begin, size));
  // Copy: for alignment, and so that the data cannot change after verification.
  std::vector<uint8_t> file(begin, begin + size);
  size_t bufferBytes = size - kDigestBytes;
  Sha256Digest digest = sha256(file.data(), bufferBytes);
  if (memcmp(digest.data(), file.data() + bufferBytes, kDigestBytes) != 0)
    return invalidArgument("package: the checksum differs; the file is damaged "
                           "or cut off, so copy or compile it again");
  fb::Verifier header(file.data(), bufferBytes);
  if (!header.VerifyBuffer<schema::Header>(schema::PackageIdentifier()))
    return invalidArgument("package: format_version cannot be read; compile "
                           "the layer again");
  uint32_t version = fb::GetRoot<schema::Header>(file.data())->format_version();
  if (version != kFormatVersion)
    return invalidArgument(
        "package: format_version is " + std::to_string(version) +
        ", this runtime reads " + std::to_string(kFormatVersion) +
        (version > kFormatVersion ? "; use a newer runtime"
                                  : "; compile the layer again"));
  fb::Verifier verifier(file.data(), bufferBytes);
  if (!schema::VerifyPackageBuffer(verifier))
    return invalidArgument("package: an offset or a size of the FlatBuffer "
                           "lies outside, or a field is missing; compile the "
                           "layer again");
  const schema::Package &contents = *schema::GetPackage(file.data());
  if (!fitsInto(contents, bufferBytes))
    return invalidArgument("package: fields share bytes of the FlatBuffer; "
                           "compile the layer again");
  Result<Package> package = readPackage(contents);
  Status status = package ? verifyPackage(*package) : package.status();
  // Messages may contain names from the file.
  if (!status)
    return Status(status.code(), printable(status.message(), /*most=*/1000));
  return package;
}

/// Checks the first bytes before reading all.
static Result<std::string> readPackageFile(const RegularFile &file) {
  uint8_t start[kIdentifierEnd] = {};
  if (pread(file.descriptor.get(), start, sizeof(start), 0) < 0)
    return unavailable(std::string("cannot be read: ") + strerror(errno));
  MOERT_CHECK(checkHeader(start, file.bytes()));
  return readAtMost(file.descriptor.get(), kMaxPackageBytes);
}

Result<Package> Package::open(const std::string &path) {
  Result<RegularFile> file = openRegularFile(path);
  if (!file)
    return file.status();
  Result<std::string> bytes = readPackageFile(*file);
  if (!bytes)
    return bytes.status().withContext(path);
  Result<Package> package = fromMemory(bytes->data(), bytes->size());
  if (!package)
    return package.status().withContext(path);
  return package;
}

} // namespace moert
