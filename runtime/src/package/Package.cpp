//===- Package.cpp - verification and choice of packages --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Package.h"
#include "../support/Check.h"
#include "../support/RapidJson.h"
#include "moert/GpuTarget.h"

#include <cctype>
#include <cstring>

namespace moert {

static std::string at(const std::string &list, size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

static Status wrong(const std::string &field, const std::string &found,
                    const std::string &accepted) {
  return invalidArgument("package: " + field + " is " + found + "; " +
                         accepted + " is accepted");
}

//===----------------------------------------------------------------------===//
// Verification
//===----------------------------------------------------------------------===//

static Status verifyJson(const std::string &text) {
  if (text.empty())
    return Status::ok();
  rapidjson::MemoryStream stream(text.data(), text.size());
  rapidjson::Reader reader;
  rapidjson::BaseReaderHandler<> ignore;
  constexpr unsigned flags =
      rapidjson::kParseIterativeFlag | rapidjson::kParseValidateEncodingFlag;
  if (rapidjson::ParseResult parsed = reader.Parse<flags>(stream, ignore);
      parsed.IsError())
    return wrong("spec",
                 "no JSON at byte " + std::to_string(parsed.Offset()) + " (" +
                     rapidjson::GetParseError_En(parsed.Code()) + ")",
                 "JSON or nothing");
  return Status::ok();
}

static Status verifyCubin(const std::vector<uint8_t> &bytes,
                          const std::string &field) {
  if (bytes.size() < 64 || memcmp(bytes.data(), "\177ELF", 4) != 0)
    return wrong(field, "no ELF file", "a cubin");
  return Status::ok();
}

static Status verifyPtx(const std::vector<uint8_t> &bytes,
                        const std::string &target, const std::string &field) {
  std::string text(bytes.begin(), bytes.end());
  if (text.find('\0') != std::string::npos ||
      text.find(".version") == std::string::npos)
    return wrong(field, "no PTX", "text with a .version");
  std::string directive = ".target " + target;
  size_t found = text.find(directive);
  if (found == std::string::npos ||
      isalnum(
          static_cast<unsigned char>(text.c_str()[found + directive.size()])))
    return wrong(field, "PTX for another target",
                 "PTX with '.target " + target + "'");
  return Status::ok();
}

static Status verifyImage(const PackageImage &image, const GpuTarget &target,
                          const std::string &where) {
  std::optional<GpuTarget> own = GpuTarget::parse(image.target);
  if (!own || !target.runsOn(*own) ||
      (target.suffix && own->suffix != target.suffix))
    return wrong(where + ".target", "'" + image.target + "'",
                 "a GPU that runs code of the plan's target, '" + target.str() +
                     "',");
  if (image.kind == ModuleImage::Kind::HostFunctions)
    return wrong(where + ".kind", moduleImageKindName(image.kind),
                 "cubin or PTX");
  if (image.modules.empty())
    return wrong(where + ".modules", "empty", "at least one module");
  for (size_t i = 0; i < image.modules.size(); ++i) {
    std::string field = at(where + ".modules", i) + ".bytes";
    MOERT_CHECK(image.kind == ModuleImage::Kind::Cubin
                    ? verifyCubin(image.modules[i], field)
                    : verifyPtx(image.modules[i], image.target, field));
  }
  return Status::ok();
}

static Status verifyProgram(const PackageProgram &program,
                            const std::string &where) {
  if (Status status = verifyPlan(program.plan); !status)
    return status.withContext("package: " + where);
  std::optional<GpuTarget> target = GpuTarget::parse(program.plan.target);
  if (!target)
    return wrong(where + ".plan.target", "'" + program.plan.target + "'",
                 "a GPU, such as sm_80 or sm_90a, (kernels for the host cannot "
                 "be packed)");
  for (size_t i = 0; i < program.plan.kernels.size(); ++i)
    if (program.plan.kernels[i].block < 1)
      return wrong(at(where + ".plan.kernels", i) + ".block", "0",
                   "1 to " + std::to_string(kMaxBlock));
  if (program.images.empty())
    return wrong(where + ".images", "empty", "at least one image");
  for (size_t i = 0; i < program.images.size(); ++i) {
    const PackageImage &image = program.images[i];
    std::string field = at(where + ".images", i);
    MOERT_CHECK(verifyImage(image, *target, field));
    for (size_t j = 0; j < i; ++j)
      if (program.images[j].target == image.target &&
          program.images[j].kind == image.kind)
        return wrong(field,
                     std::string(moduleImageKindName(image.kind)) + " for '" +
                         image.target + "', as is " + at(where + ".images", j),
                     "one of a kind and target");
  }
  return Status::ok();
}

static bool isBound(const TensorDecl &tensor) {
  return tensor.role == TensorRole::Input ||
         tensor.role == TensorRole::Weight || tensor.role == TensorRole::Output;
}

/// Success if two programs of a package have the same input and output tensors.
static Status verifySameTensors(const Plan &first, const Plan &other,
                                const std::string &where) {
  if (first.maxTokens != other.maxTokens)
    return wrong(where + ".max_tokens", std::to_string(other.maxTokens),
                 std::to_string(first.maxTokens) + ", as in programs[0],");
  auto isIn = [](const TensorDecl &tensor, const Plan &plan) {
    int64_t index = plan.findTensor(tensor.name);
    if (index < 0)
      return false;
    const TensorDecl &found = plan.tensors[index];
    return found.role == tensor.role && found.dtype == tensor.dtype &&
           found.shape == tensor.shape;
  };
  for (const Plan *plan : {&first, &other})
    for (const TensorDecl &tensor : plan->tensors)
      if (isBound(tensor) && !isIn(tensor, plan == &first ? other : first))
        return wrong(where + ".tensors",
                     "not as in programs[0]: '" + tensor.name + "' differs",
                     "the same inputs, weights and outputs");
  return Status::ok();
}

Status verifyPackage(const Package &package) {
  MOERT_CHECK(verifyJson(package.spec));
  if (package.programs.empty())
    return wrong("programs", "empty", "at least one program");
  for (size_t i = 0; i < package.programs.size(); ++i) {
    MOERT_CHECK(verifyProgram(package.programs[i], at("programs", i)));
    MOERT_CHECK(verifySameTensors(package.programs[0].plan,
                                  package.programs[i].plan,
                                  at("programs", i) + ".plan"));
  }
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Choice
//===----------------------------------------------------------------------===//

/// Rates how well an image suits a device; 0 if it does not run there.
static int rankImage(const PackageImage &image, const GpuTarget &device) {
  std::optional<GpuTarget> target = GpuTarget::parse(image.target);
  if (!target)
    return 0;
  if (image.kind == ModuleImage::Kind::Cubin)
    return target->number() == device.number() ? 3000 + (target->suffix != 0)
                                               : 0;
  if (image.kind != ModuleImage::Kind::Ptx || !target->runsOn(device))
    return 0;
  return target->suffix ? 1000 : 2000 + target->number();
}

ModuleImage PackageImage::load() const {
  ModuleImage image;
  image.kind = kind;
  image.modules = modules;
  return image;
}

Result<PackageChoice> chooseImage(const Package &package,
                                  const std::string &architecture,
                                  bool takesMachineCode) {
  std::optional<GpuTarget> device = GpuTarget::parse(architecture);
  PackageChoice best;
  int bestRank = 0;
  std::string found;
  for (size_t i = 0; i < package.programs.size(); ++i)
    for (size_t j = 0; j < package.programs[i].images.size(); ++j) {
      const PackageImage &image = package.programs[i].images[j];
      found += (found.empty() ? "" : ", ") +
               std::string(moduleImageKindName(image.kind)) + " for " +
               image.target;
      bool isTaken = takesMachineCode || image.kind != ModuleImage::Kind::Cubin;
      int rank = device && isTaken ? rankImage(image, *device) : 0;
      if (rank > bestRank) {
        best = {i, j};
        bestRank = rank;
      }
    }
  if (bestRank > 0)
    return best;
  return invalidArgument(
      "the package has " + found + ", none of which runs on " +
      (device ? "architecture " + architecture : "a device that is no GPU") +
      "; compile for the target of the device");
}

Result<std::unique_ptr<Executor>> createExecutor(const Package &package,
                                                 Device &device,
                                                 ExecutorOptions options) {
  Result<PackageChoice> choice =
      chooseImage(package, device.architecture(), device.takesMachineCode());
  if (!choice)
    return choice.status().withContext(device.name());
  const PackageProgram &program = package.programs[choice->program];
  options.description = package.spec;
  return Executor::create(program.plan, device,
                          program.images[choice->image].load(),
                          std::move(options));
}

} // namespace moert
