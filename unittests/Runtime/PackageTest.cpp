//===- PackageTest.cpp - tests of packages ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Package.h"
#include "../../runtime/src/support/Sha256.h"
#include "CudaTesting.h"
#include "TestPlan.h"
#include "moert/CudaDevice.h"
#include "moert/HostDevice.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include <unistd.h>

using namespace moert;
using namespace moert::test;

namespace {

std::vector<uint8_t> toBytes(const std::string &text) {
  return {text.begin(), text.end()};
}

PackageImage ptx(const std::string &target) {
  return {target, ModuleImage::Kind::Ptx, makePtxModules(target)};
}

PackageImage cubin(const std::string &target) {
  return {target,
          ModuleImage::Kind::Cubin,
          {toBytes("\177ELF" + std::string(100, 'x'))}};
}

Package makePackage() {
  Package package;
  package.producer = "moec 0.1.0";
  package.spec = "{\"hidden_size\": 4}";
  package.programs = {{makeGpuPlan(), {ptx("sm_80"), cubin("sm_80")}}};
  return package;
}

std::vector<uint8_t> packed(const Package &package) {
  Result<std::vector<uint8_t>> bytes = packPackage(package);
  EXPECT_TRUE(bytes) << bytes.status().toString();
  return bytes ? *bytes : std::vector<uint8_t>();
}

Result<Package> unpacked(const std::vector<uint8_t> &bytes) {
  return Package::fromMemory(bytes.data(), bytes.size());
}

/// Updates the digest after changes.
void seal(std::vector<uint8_t> &bytes) {
  Sha256Digest digest = sha256(bytes.data(), bytes.size() - 32);
  std::copy(digest.begin(), digest.end(), bytes.end() - 32);
}

uint32_t load(const std::vector<uint8_t> &bytes, size_t at) {
  uint32_t value;
  memcpy(&value, bytes.data() + at, 4);
  return value;
}

std::string hex(const Sha256Digest &digest) {
  std::string text;
  for (uint8_t byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

} // namespace

TEST(PackageTest, DigestsAreThoseOfTheStandard) {
  EXPECT_EQ(hex(sha256("", 0)),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc", 3)),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  EXPECT_EQ(hex(sha256(two, 56)),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  std::string million(1000000, 'a');
  EXPECT_EQ(hex(sha256(million.data(), million.size())),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, IsTheSameByInstructions) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(sha256(bytes.data(), bytes.size()),
              sha256(bytes.data(), bytes.size(), /*mayUseInstructions=*/false))
        << i;
    bytes.push_back(static_cast<char>(i * i + 7));
  }
}

TEST(PackageTest, KeepsEverythingOfALayer) {
  Package package = makePackage();
  package.cacheKey = "c0ffee";
  package.programs.push_back({makeGpuPlan(), {ptx("sm_90a"), cubin("sm_90a")}});
  package.programs[1].plan.target = "sm_90a";
  package.modelType = "qwen3_moe";
  package.programs[1].plan.variants[0].steps[2].dependent = true;
  TensorDecl strided = {"strided", DType::BF16, {2, 8}, TensorRole::Weight};
  strided.strided = true;
  TensorDecl weight = {"weight", DType::F32, {kWidth}, TensorRole::Weight};
  TensorDecl inPlace = {"in_place", DType::F32, {kWidth}, TensorRole::Prepared};
  inPlace.inPlaceOf = 10;
  for (PackageProgram &program : package.programs)
    program.plan.tensors.insert(program.plan.tensors.end(),
                                {strided, weight, inPlace});
  for (PackageProgram &program : package.programs)
    program.plan.prepare.push_back(Step::launch(0, {Argument::ofTensor(11)}));
  std::vector<uint8_t> bytes = packed(package);
  Result<Package> read = unpacked(bytes);
  ASSERT_TRUE(read) << read.status().toString();
  EXPECT_EQ(read->producer, package.producer);
  EXPECT_EQ(read->spec, package.spec);
  EXPECT_EQ(read->modelType, "qwen3_moe");
  EXPECT_EQ(read->cacheKey, package.cacheKey);
  ASSERT_EQ(read->programs.size(), 2u);
  EXPECT_EQ(read->programs[1].images[1].modules,
            package.programs[1].images[1].modules);
  EXPECT_EQ(read->programs[0].images[0].modules, makePtxModules("sm_80"));
  const Plan &plan = read->programs[0].plan, &wrote = package.programs[0].plan;
  EXPECT_EQ(plan.target, "sm_80");
  EXPECT_EQ(plan.kernels[3].shared, 200 * 1024);
  EXPECT_EQ(plan.kernels[3].block, 128);
  EXPECT_FALSE(plan.kernels[3].resident);
  EXPECT_TRUE(plan.kernels[5].resident);
  ASSERT_EQ(plan.kernels[1].tensorMaps.size(), 2u);
  EXPECT_EQ(plan.kernels[1].tensorMaps[0].sizes,
            (std::vector<int64_t>{TensorMapDecl::kOwnRows, kWidth}));
  EXPECT_EQ(plan.kernels[1].tensorMaps[0].swizzleBytes, 32);
  EXPECT_EQ(plan.kernels[1].tensorMaps[1].argument, 2);
  EXPECT_EQ(plan.kernels[1].grid, wrote.kernels[1].grid);
  EXPECT_EQ(plan.tensors[H].shape, wrote.tensors[H].shape);
  EXPECT_EQ(plan.tensors[Y].alignment, 16);
  EXPECT_EQ(plan.tensors[Offset].dtype, DType::I32);
  EXPECT_FALSE(plan.tensors[Y].strided);
  EXPECT_TRUE(plan.tensors[9].strided);
  EXPECT_EQ(plan.tensors[10].inPlaceOf, -1);
  EXPECT_EQ(plan.tensors[11].inPlaceOf, 10);
  EXPECT_EQ(plan.variants[1].steps.size(), wrote.variants[1].steps.size());
  EXPECT_EQ(plan.variants[0].steps[3].args[4].scalar, Expr(0));
  EXPECT_EQ(plan.prepare.size(), 2u);
  const Variant &variant = read->programs[1].plan.variants[0];
  EXPECT_FALSE(variant.steps[1].dependent);
  EXPECT_TRUE(variant.steps[2].dependent);
  // Packing the read package gives the same bytes, so nothing was lost.
  EXPECT_EQ(packed(*read), bytes);
}

TEST(PackageTest, ReadsTheFixtureOfTheCurrentVersion) {
  std::vector<uint8_t> bytes = packed(makePackage());
  if (getenv("MOEC_UPDATE_FIXTURES")) {
    ASSERT_TRUE(writePackage(PACKAGE_FIXTURE, makePackage()));
  }
  Result<Package> read = Package::open(PACKAGE_FIXTURE);
  ASSERT_TRUE(read) << read.status().toString();
  EXPECT_EQ(packed(*read), bytes)
      << "the format has changed; raise the version and keep this file";
}

TEST(PackageTest, NamesTheVersionOfAnOldFile) {
  EXPECT_EQ(Package::open(OLD_PACKAGE_FIXTURE).status().message(),
            std::string(OLD_PACKAGE_FIXTURE) +
                ": package: format_version is 1, this runtime reads " +
                std::to_string(Package::kFormatVersion) +
                "; compile the layer again");
}

TEST(PackageTest, EveryChangedByteAndEveryTruncationIsFound) {
  const std::vector<uint8_t> bytes = packed(makePackage());
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::vector<uint8_t> changed = bytes;
    changed[i] ^= static_cast<uint8_t>(1 << i % 8);
    ASSERT_FALSE(unpacked(changed)) << "byte " << i;
  }
  for (size_t size = 0; size < bytes.size(); ++size)
    ASSERT_FALSE(Package::fromMemory(bytes.data(), size)) << size;
  std::vector<uint8_t> longer = bytes;
  longer.push_back(0);
  EXPECT_EQ(unpacked(longer).status().message(),
            "package: the checksum differs; the file is damaged or cut off, so "
            "copy or compile it again");
  EXPECT_FALSE(Package::fromMemory(nullptr, 0));
}

TEST(PackageTest, ForgedContentsAreReadSafely) {
  const std::vector<uint8_t> bytes = packed(makePackage());
  int refused = 0;
  for (size_t i = 0; i + 32 < bytes.size(); ++i)
    // Offsets off by 4 lead to misaligned 8-byte numbers.
    for (int value : {0x00, 0x7f, 0xff, bytes[i] - 4, bytes[i] + 4}) {
      std::vector<uint8_t> forged = bytes;
      forged[i] = static_cast<uint8_t>(value);
      seal(forged);
      // Any accepted package can be written again.
      if (Result<Package> read = unpacked(forged))
        EXPECT_TRUE(packPackage(*read));
      else
        ++refused;
    }
  EXPECT_GT(refused, 1000);
}

TEST(PackageTest, FieldsThatShareBytesAreRefused) {
  Package package = makePackage();
  package.spec = "[" + std::string(5000, ' ') + "]";
  std::vector<uint8_t> bytes = packed(package);
  size_t table = load(bytes, 0);
  size_t fields = table - load(bytes, table);
  auto place = [&](size_t field) {
    return table + (load(bytes, fields + 4 + 2 * field) & 0xffff);
  };
  // Make `producer` share the string of `spec`.
  size_t spec = place(2) + load(bytes, place(2));
  auto offset = static_cast<uint32_t>(spec - place(1));
  memcpy(bytes.data() + place(1), &offset, sizeof(offset));
  seal(bytes);
  EXPECT_EQ(unpacked(bytes).status().message(),
            "package: fields share bytes of the FlatBuffer; compile the layer "
            "again");
}

TEST(PackageTest, NamesTheVersionThatItDoesNotKnow) {
  std::vector<uint8_t> bytes = packed(makePackage());
  // Root table, its table of fields, the first field.
  size_t table = load(bytes, 0);
  size_t fields = table - load(bytes, table);
  size_t version = table + (load(bytes, fields + 4) & 0xffff);
  ASSERT_EQ(load(bytes, version), Package::kFormatVersion);
  bytes[version] = Package::kFormatVersion + 1;
  seal(bytes);
  EXPECT_EQ(unpacked(bytes).status().message(),
            "package: format_version is " +
                std::to_string(Package::kFormatVersion + 1) +
                ", this runtime reads " +
                std::to_string(Package::kFormatVersion) +
                "; use a newer runtime");
  bytes[version] = 0;
  seal(bytes);
  EXPECT_EQ(unpacked(bytes).status().message(),
            "package: format_version is 0, this runtime reads " +
                std::to_string(Package::kFormatVersion) +
                "; compile the layer again");
}

TEST(PackageTest, RefusesWhatNoLoaderCouldUse) {
  struct Case {
    void (*change)(Package &);
    const char *message;
  } cases[] = {
      {[](Package &p) { p.programs.clear(); },
       "package: programs is empty; at least one program is accepted"},
      {[](Package &p) { p.spec = "{\"a\": }"; },
       "package: spec is no JSON at "},
      {[](Package &p) { p.programs[0].plan.maxTokens = 0; },
       "package: programs[0]: plan: max_tokens is 0;"},
      {[](Package &p) { p.programs[0].plan.target = "cpu"; },
       "package: programs[0].plan.target is 'cpu'; a GPU, such as sm_80 or "
       "sm_90a, (kernels for the host cannot be packed) is accepted"},
      {[](Package &p) { p.programs[0].plan.kernels[2].block = 0; },
       "programs[0].plan.kernels[2].block is 0; 1 to 1024"},
      {[](Package &p) { p.programs[0].images.clear(); },
       "programs[0].images is empty"},
      {[](Package &p) { p.programs[0].images[1].modules.clear(); },
       "programs[0].images[1].modules is empty; at least one module"},
      {[](Package &p) { p.programs[0].images[1].target = "sm_75"; },
       "programs[0].images[1].target is 'sm_75'; a GPU that runs code of the "
       "plan's target, 'sm_80', is accepted"},
      {[](Package &p) { p.programs[0].images[0].modules[1].clear(); },
       "programs[0].images[0].modules[1].bytes is no PTX"},
      {[](Package &p) { p.programs[0].images[0].modules[0][3] = 0; },
       "programs[0].images[0].modules[0].bytes is no PTX"},
      {[](Package &p) {
         p.programs[0].images[0] = ptx("sm_80a");
         p.programs[0].images[0].target = "sm_80";
       },
       "programs[0].images[0].modules[0].bytes is PTX for another target"},
      {[](Package &p) { p.programs[0].images[1].modules[0][0] = 0; },
       "programs[0].images[1].modules[0].bytes is no ELF file"},
      {[](Package &p) { p.programs[0].images[1] = ptx("sm_80"); },
       "programs[0].images[1] is PTX for 'sm_80', as is programs[0].images[0]"},
      {[](Package &p) {
         p.programs[0].images[0] = ptx("sm_90a");
         p.programs[0].plan.target = "sm_90";
       },
       "programs[0].images[1].target is 'sm_80'"},
      {[](Package &p) {
         p.programs.push_back(p.programs[0]);
         p.programs[1].plan.tensors[Y].dtype = DType::BF16;
       },
       "programs[1].plan.tensors is not as in programs[0]: 'y' differs"},
  };
  for (const Case &c : cases) {
    Package package = makePackage();
    c.change(package);
    Status status = packPackage(package).status();
    EXPECT_NE(status.message().find(c.message), std::string::npos)
        << c.message << "\n  found: " << status.message();
  }
}

TEST(PackageTest, ChoosesTheImageOfTheDevice) {
  Package package = makePackage();
  package.programs[0].images = {ptx("sm_80"), cubin("sm_80"), ptx("sm_86"),
                                cubin("sm_90")};
  package.programs.push_back({makeGpuPlan(), {ptx("sm_90a"), cubin("sm_90a")}});
  package.programs[1].plan.target = "sm_90a";
  ASSERT_TRUE(verifyPackage(package));
  auto chosen = [&](const std::string &architecture) -> std::string {
    Result<PackageChoice> choice = chooseImage(package, architecture);
    if (!choice)
      return choice.status().message();
    const PackageImage &image =
        package.programs[choice->program].images[choice->image];
    return std::string(moduleImageKindName(image.kind)) + " " + image.target;
  };
  EXPECT_EQ(chosen("sm_80"), "cubin sm_80");
  EXPECT_EQ(chosen("sm_86"), "PTX sm_86");
  EXPECT_EQ(chosen("sm_89"), "PTX sm_86");
  EXPECT_EQ(chosen("sm_90"), "cubin sm_90a");
  EXPECT_EQ(chosen("sm_100"), "PTX sm_86");
  package.programs[1].images.pop_back();
  EXPECT_EQ(chosen("sm_90"), "cubin sm_90");
  package.programs[0].images.pop_back();
  EXPECT_EQ(chosen("sm_90"), "PTX sm_86");
  package.programs.erase(package.programs.begin());
  EXPECT_EQ(chosen("sm_90"), "PTX sm_90a");
  EXPECT_EQ(chosen("sm_100"),
            "the package has PTX for sm_90a, none of which runs on "
            "architecture sm_100; compile for the target of the device");
  EXPECT_EQ(chosen(""),
            "the package has PTX for sm_90a, none of which runs on a device "
            "that is no GPU; compile for the target of the device");
}

TEST(PackageTest, FilesAreWrittenWholeAndReadBack) {
  std::string path = testing::TempDir() + "package-test-" +
                     std::to_string(getpid()) + ".moepkg";
  ASSERT_TRUE(writePackage(path, makePackage()));
  EXPECT_TRUE(Package::open(path));
  // A refused package leaves the file unchanged.
  EXPECT_EQ(writePackage(path, Package()).message(),
            path + ": package: programs is empty; at least one program is "
                   "accepted");
  EXPECT_TRUE(Package::open(path));
  std::ofstream(path) << "{\"hidden_size\": 4, \"this is\": \"a spec\" }\n"
                      << std::string(40, ' ');
  EXPECT_EQ(Package::open(path).status().message(),
            path + ": no package: bytes 4 to 7 are not its identifier, 'MOEP'; "
                   "give a file written by moe-compile");
  unlink(path.c_str());
  EXPECT_EQ(Package::open(path).status().code(), StatusCode::NotFound);
  EXPECT_EQ(Package::open("/dev/null").status().message(),
            "/dev/null: is a device, not a regular file");
  EXPECT_FALSE(Package::open("/"));
}

TEST(PackageTest, RunsOnTheDeviceOfItsImages) {
  FakeCuda &fake = resetFakeCuda();
  {
    auto device = createCudaDevice(0, kFakeDriver);
    ASSERT_TRUE(device);
    auto executor = createExecutor(makePackage(), **device);
    ASSERT_TRUE(executor) << executor.status().toString();
    EXPECT_EQ((*executor)->plan().target, "sm_80");
    fake.major = 7;
    auto old = createCudaDevice(0, kFakeDriver);
    ASSERT_TRUE(old);
    EXPECT_EQ(createExecutor(makePackage(), **old).status().message(),
              "cuda:0 (Fake GPU): the package has PTX for sm_80, cubin for "
              "sm_80, none of which runs on architecture sm_70; compile for "
              "the target of the device");
  }
  EXPECT_EQ(fake.leaks(), "");
  auto host = createHostDevice(1);
  ASSERT_TRUE(host);
  EXPECT_FALSE(createExecutor(makePackage(), **host));
}
