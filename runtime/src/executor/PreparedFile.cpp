//===- PreparedFile.cpp - files of prepared weights -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A safetensors file of the tensors that runs read, by their names in the plan,
// followed by a tensor of digests: of the header, then of each tensor in the
// order of the data. docs/design/runtime.md describes the metadata.
//
//===----------------------------------------------------------------------===//

#include "PreparedFile.h"
#include "../plan/LayerDescription.h"
#include "../plan/ReadTensors.h"
#include "../support/AtomicFile.h"
#include "../support/Check.h"
#include "../support/ChunkDigest.h"
#include "../support/Text.h"
#include "../tensors/SafetensorsHeader.h"
#include "Bindings.h"
#include "moert/Safetensors.h"
#include "moert/Workspace.h"

#include <algorithm>
#include <cstring>

namespace moert {

/// Raised whenever an older reader would misinterpret a file.
static constexpr char kVersion[] = "2";
static constexpr char kFormat[] = "moec prepared weights";
/// The name of the tensor of digests.
static constexpr char kDigests[] = "sha256";

//===----------------------------------------------------------------------===//
// Contents of the file
//===----------------------------------------------------------------------===//

static Result<std::vector<PreparedTensor>> listPrepared(const Plan &plan) {
  std::vector<bool> isRead = findReadByRuns(plan);
  std::vector<PreparedTensor> list;
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const TensorDecl &decl = plan.tensors[i];
    if (!isRead[i] ||
        (decl.role != TensorRole::Weight && decl.role != TensorRole::Prepared))
      continue;
    PreparedTensor &tensor = list.emplace_back();
    tensor.index = i;
    for (const Expr &size : decl.shape) {
      Result<int64_t> value = size.evaluate(/*tokens=*/0);
      if (!value)
        return value.status();
      tensor.shape.push_back(*value);
    }
    Result<uint64_t> bytes = safetensorsBytes(decl.dtype, tensor.shape);
    if (!bytes)
      return bytes.status().withContext("tensor '" + decl.name + "'");
    tensor.bytes = static_cast<size_t>(*bytes);
  }
  // The order of writeSafetensors(), in which all tensors are aligned to their
  // elements.
  std::stable_sort(list.begin(), list.end(), [&](const auto &a, const auto &b) {
    return dtypeBits(plan.tensors[a.index].dtype) >
           dtypeBits(plan.tensors[b.index].dtype);
  });
  return list;
}

/// Metadata that name the decoder layer of the weights; not in every file.
static constexpr char kDecoderLayer[] = "decoder_layer";

/// Metadata that identify files of this layer.
static std::map<std::string, std::string>
describePrepared(const LoadedLayer &layer, std::optional<int64_t> rank) {
  const Plan &plan = layer.plan;
  std::map<std::string, std::string> metadata = {{"format", kFormat},
                                                 {"version", kVersion},
                                                 {"target", plan.target},
                                                 {"layer", layer.identity}};
  if (!layer.options.description.empty())
    metadata["description"] = layer.options.description;
  if (plan.mesh.numRanks() > 1) {
    metadata["mesh"] = plan.mesh.str();
    if (rank)
      metadata["rank"] = std::to_string(*rank);
  }
  return metadata;
}

static SafetensorsTensor describeDigests(size_t count) {
  SafetensorsTensor tensor;
  tensor.name = kDigests;
  tensor.dtype = DType::U8;
  tensor.bytes = count * sizeof(Sha256Digest);
  tensor.shape = {static_cast<int64_t>(count), sizeof(Sha256Digest)};
  return tensor;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

namespace {

/// Reads a tensor on the device that may have gaps as if it had none.
class DeviceReader {
public:
  DeviceReader(Device &device, const void *data, DType dtype,
               const std::vector<int64_t> &shape,
               const std::vector<int64_t> &strides)
      : device(device), data(static_cast<const uint8_t *>(data)),
        elementBits(dtypeBits(dtype)) {
    // Count the innermost dimensions that are contiguous.
    size_t inner = shape.size();
    int64_t packed = 1;
    while (inner > 0 && (strides.empty() || strides[inner - 1] == packed))
      packed *= shape[--inner];
    runBytes = static_cast<size_t>(packed * elementBits / 8);
    outer.assign(shape.begin(), shape.begin() + inner);
    if (!strides.empty())
      steps.assign(strides.begin(), strides.begin() + inner);
  }

  /// Reads `bytes` from `offset` on, in the numbering without gaps.
  Status read(size_t offset, size_t bytes, uint8_t *to) const {
    while (bytes > 0) {
      size_t within = offset % runBytes;
      size_t count = std::min(bytes, runBytes - within);
      MOERT_CHECK(
          device.copyOut(to, findRun(offset / runBytes) + within, count));
      to += count;
      offset += count;
      bytes -= count;
    }
    return Status::ok();
  }

private:
  const uint8_t *findRun(size_t number) const {
    int64_t at = 0;
    for (size_t i = outer.size(); i-- > 0;) {
      at += static_cast<int64_t>(number % outer[i]) * steps[i];
      number /= outer[i];
    }
    return data + at * elementBits / 8;
  }

  Device &device;
  const uint8_t *data;
  int64_t elementBits;
  /// Dimensions outside the contiguous runs, and their strides in elements.
  std::vector<int64_t> outer, steps;
  size_t runBytes = 0;
};

} // namespace

/// Copies a tensor from the device to the file in chunks.
static Result<Sha256Digest>
writeTensor(AtomicFile &file, const DeviceReader &reader, size_t bytes,
            std::vector<uint8_t> &chunk, const std::function<void()> &step,
            uint64_t &done) {
  std::vector<Sha256Digest> digests;
  for (size_t begin = 0; begin < bytes; begin += kDigestChunkBytes) {
    size_t size = std::min(kDigestChunkBytes, bytes - begin);
    MOERT_CHECK(reader.read(begin, size, chunk.data()));
    digests.push_back(sha256(chunk.data(), size));
    MOERT_CHECK(file.write(chunk.data(), size));
    done += size;
    step();
  }
  return digestChunks(digests);
}

/// Describes the tensors for a file's header. `bytes`: the sum of their sizes.
static Result<std::vector<SafetensorsTensor>>
describeTensors(const Plan &plan, const Bindings &bindings,
                const std::vector<PreparedTensor> &list, int64_t &bytes) {
  std::vector<SafetensorsTensor> tensors;
  for (const PreparedTensor &tensor : list) {
    const TensorDecl &decl = plan.tensors[tensor.index];
    if (decl.name == kDigests)
      return invalidArgument(
          "writePrepared: a tensor of the layer is called '" + decl.name +
          "', the name of the digests; rename it");
    if (tensor.bytes > 0 && !bindings.addressOf(tensor.index))
      return invalidArgument("writePrepared: weight '" + decl.name +
                             "' is not bound; bind it first");
    SafetensorsTensor &entry = tensors.emplace_back();
    entry.name = decl.name;
    entry.dtype = decl.dtype;
    entry.shape = tensor.shape;
    entry.bytes = tensor.bytes;
    bytes += static_cast<int64_t>(tensor.bytes);
  }
  tensors.push_back(describeDigests(tensors.size() + 1));
  return tensors;
}

Result<int64_t> writePreparedFile(const LoadedLayer &layer,
                                  const Bindings &bindings,
                                  std::optional<int64_t> rank,
                                  const std::string &path,
                                  const PreparedFileOptions &options) {
  Result<std::vector<PreparedTensor>> list = listPrepared(layer.plan);
  if (!list)
    return list.status();
  int64_t bytes = 0;
  Result<std::vector<SafetensorsTensor>> tensors =
      describeTensors(layer.plan, bindings, *list, bytes);
  if (!tensors)
    return tensors.status();
  std::map<std::string, std::string> metadata = describePrepared(layer, rank);
  if (options.decoderLayer)
    metadata[kDecoderLayer] = std::to_string(*options.decoderLayer);
  std::string header = printSafetensorsHeader(*tensors, metadata);
  std::vector<Sha256Digest> digests = {sha256(header.data(), header.size())};

  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file)
    return file.status();
  MOERT_CHECK(file->write(header.data(), header.size()));
  std::vector<uint8_t> chunk(kDigestChunkBytes);
  uint64_t done = 0;
  auto step = [&] {
    if (options.step)
      options.step(done, static_cast<uint64_t>(bytes));
  };
  for (const PreparedTensor &tensor : *list) {
    const TensorDecl &decl = layer.plan.tensors[tensor.index];
    DeviceReader reader(layer.device, bindings.addressOf(tensor.index),
                        decl.dtype, tensor.shape,
                        decl.role == TensorRole::Weight
                            ? bindings[tensor.index].strides
                            : std::vector<int64_t>());
    Result<Sha256Digest> digest =
        writeTensor(*file, reader, tensor.bytes, chunk, step, done);
    if (!digest)
      return digest.status().withContext("writePrepared: tensor '" + decl.name +
                                         "'");
    digests.push_back(*digest);
  }
  MOERT_CHECK(file->write(digests.data(), tensors->back().bytes));
  MOERT_CHECK(file->commit(/*isDurable=*/true));
  return bytes;
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// Remedy in messages about an unusable file.
static constexpr char kRemedy[] =
    "; read the checkpoint instead, and write the file again";

static Status wrong(const std::string &path, const std::string &what) {
  return invalidArgument(path + ": " + what + kRemedy);
}

/// Success if both descriptions give the weights the same meaning.
static Status checkDescription(const std::string &path,
                               const std::string &written,
                               const std::string &own) {
  if (written.empty() != own.empty())
    return wrong(path, written.empty()
                           ? "was written by a layer without a description"
                           : "was written by a layer with a description, but "
                             "this layer has none");
  if (own.empty())
    return Status::ok();
  Result<DescribedFields> found = readDescription(written);
  if (!found)
    return wrong(path, found.status().message());
  Result<DescribedFields> expected = readDescription(own);
  if (!expected)
    return expected.status();
  std::string difference = compareDescriptions(*found, *expected);
  return difference.empty()
             ? Status::ok()
             : wrong(path, "was written for a layer whose " + difference);
}

/// Success if a layer of this description has written the file; the result is
/// the rank that wrote it, for several ranks.
static Result<std::optional<int64_t>> checkMetadata(
    const std::string &path, const std::map<std::string, std::string> &found,
    const std::map<std::string, std::string> &expected, const Mesh &mesh) {
  auto get = [&](const char *key) {
    auto it = found.find(key);
    return it == found.end() ? std::string() : it->second;
  };
  auto getExpected = [&](const char *key) {
    auto it = expected.find(key);
    return it == expected.end() ? std::string() : it->second;
  };
  if (get("format") != kFormat)
    return wrong(path, "has no prepared weights (their files say \"" +
                           std::string(kFormat) +
                           "\" for \"format\" in their metadata)");
  if (get("version") != kVersion)
    return wrong(path, "is of version " + printable(get("version")) +
                           " of its format, and version " + kVersion +
                           " is read");
  if (get("target") != getExpected("target"))
    return wrong(path, "was written for " + printable(get("target")) +
                           ", but the layer is for " + getExpected("target"));
  auto showMesh = [](const std::string &mesh) {
    return mesh.empty() ? std::string("one rank") : "the ranks of " + mesh;
  };
  if (get("mesh") != getExpected("mesh"))
    return wrong(path, "was written for " + showMesh(printable(get("mesh"))) +
                           ", but the layer is for " +
                           showMesh(getExpected("mesh")));
  if (expected.count("rank") > 0 && get("rank") != getExpected("rank"))
    return invalidArgument(path + ": has the weights of rank " +
                           printable(get("rank")) + ", but this is rank " +
                           getExpected("rank") +
                           "; give the file of this rank");
  MOERT_CHECK(
      checkDescription(path, get("description"), getExpected("description")));
  if (get("layer") != getExpected("layer"))
    return wrong(path, "was written by another layer, or by another compiler "
                       "from the same description");
  if (mesh.numRanks() == 1)
    return std::optional<int64_t>();
  for (int64_t rank = 0; rank < mesh.numRanks(); ++rank)
    if (get("rank") == std::to_string(rank))
      return std::optional<int64_t>(rank);
  return wrong(path, "does not name the layer of its weights");
}

/// Success unless the file has the weights of another decoder layer than
/// `expected`, where both are known.
static Status checkDecoderLayer(const std::string &path,
                                const SafetensorsFile &file,
                                std::optional<int64_t> expected) {
  auto found = file.metadata().find(kDecoderLayer);
  if (!expected || found == file.metadata().end() ||
      found->second == std::to_string(*expected))
    return Status::ok();
  return invalidArgument(path + ": has the weights of decoder layer " +
                         printable(found->second) + ", but this is layer " +
                         std::to_string(*expected) +
                         "; give each layer a file of its own");
}

/// Compares the digests in the file with those of its data.
static Status verifyDigests(const std::string &path,
                            const SafetensorsFile &file,
                            const std::function<void(uint64_t)> &step) {
  const SafetensorsEntry &digests = file.entries().back();
  std::vector<SafetensorsTensor> tensors;
  std::vector<Bytes> contents;
  for (const SafetensorsEntry &entry : file.entries()) {
    tensors.push_back(
        {entry.name, entry.dtype, entry.shape, entry.data, entry.bytes});
    contents.push_back({entry.data, entry.bytes});
  }
  contents.pop_back();
  auto isRight = [&](size_t number, const Sha256Digest &digest) {
    return memcmp(digests.data + number * sizeof(digest), digest.data(),
                  sizeof(digest)) == 0;
  };
  std::string header = printSafetensorsHeader(tensors, file.metadata());
  if (!isRight(0, sha256(header.data(), header.size())))
    return wrong(path, "the header differs from the written one (SHA-256)");
  std::vector<Sha256Digest> found = digestInChunks(contents, step);
  for (size_t i = 0; i < found.size(); ++i)
    if (!isRight(i + 1, found[i]))
      return wrong(path, "tensor '" + printable(tensors[i].name) +
                             "' differs from the written bytes (SHA-256)");
  return Status::ok();
}

static Result<std::vector<const SafetensorsEntry *>>
findPrepared(const std::string &path, const SafetensorsFile &file,
             const Plan &plan, const std::vector<PreparedTensor> &list) {
  std::vector<const SafetensorsEntry *> entries;
  for (const PreparedTensor &tensor : list) {
    const TensorDecl &decl = plan.tensors[tensor.index];
    const SafetensorsEntry *entry = file.find(decl.name);
    if (!entry)
      return wrong(path, "has no tensor '" + decl.name + "'");
    if (entry->dtype != decl.dtype || entry->shape != tensor.shape)
      return wrong(path, "tensor '" + decl.name + "' is " +
                             dtypeName(entry->dtype) + " of shape " +
                             listText(entry->shape) + ", expected " +
                             dtypeName(decl.dtype) + " of shape " +
                             listText(tensor.shape));
    entries.push_back(entry);
  }
  for (const SafetensorsEntry &entry : file.entries()) {
    bool isKnown =
        entry.name == kDigests ||
        std::find(entries.begin(), entries.end(), &entry) != entries.end();
    if (!isKnown)
      return wrong(path, "tensor '" + printable(entry.name) +
                             "' is not a tensor of the layer");
  }
  SafetensorsTensor digests = describeDigests(list.size() + 1);
  if (file.entries().empty() || file.entries().back().name != kDigests ||
      file.entries().back().shape != digests.shape ||
      file.entries().back().dtype != digests.dtype)
    return wrong(path, std::string("does not end in a tensor '") + kDigests +
                           "' of " + listText(digests.shape) + " bytes");
  return entries;
}

/// Copies a tensor to new memory of the device.
static Result<std::shared_ptr<Buffer>>
copyToDevice(Device &device, const SafetensorsEntry &entry,
             const std::function<void(uint64_t)> &copied) {
  Result<std::unique_ptr<Buffer>> buffer =
      device.allocate(entry.bytes, kWorkspaceAlignment);
  if (!buffer)
    return buffer.status();
  auto *to = static_cast<uint8_t *>((*buffer)->data());
  for (size_t begin = 0; begin < entry.bytes; begin += kDigestChunkBytes) {
    size_t size = std::min(kDigestChunkBytes, entry.bytes - begin);
    MOERT_CHECK(device.copyIn(to + begin, entry.data + begin, size));
    copied(size);
  }
  return std::shared_ptr<Buffer>(std::move(*buffer));
}

Result<PreparedWeights> readPreparedFile(const LoadedLayer &layer,
                                         std::optional<int64_t> rank,
                                         const std::string &path,
                                         const PreparedFileOptions &options) {
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file)
    return file.status().code() == StatusCode::InvalidArgument
               ? invalidArgument(file.status().message() + kRemedy)
               : file.status();
  Result<std::optional<int64_t>> writer = checkMetadata(
      path, file->metadata(), describePrepared(layer, rank), layer.plan.mesh);
  if (!writer)
    return writer.status();
  MOERT_CHECK(checkDecoderLayer(path, *file, options.decoderLayer));
  Result<std::vector<PreparedTensor>> list = listPrepared(layer.plan);
  if (!list)
    return list.status();
  auto entries = findPrepared(path, *file, layer.plan, *list);
  if (!entries)
    return entries.status();

  uint64_t bytes = 0;
  for (const PreparedTensor &tensor : *list)
    bytes += tensor.bytes;
  uint64_t all = options.verify ? 2 * bytes : bytes, done = all - bytes;
  auto step = [&](uint64_t now) {
    if (options.step)
      options.step(now, all);
  };
  if (options.verify)
    MOERT_CHECK(verifyDigests(path, *file, step));
  for (size_t i = 0; i < list->size(); ++i) {
    const SafetensorsEntry &entry = *(*entries)[i];
    auto buffer = copyToDevice(layer.device, entry,
                               [&](uint64_t size) { step(done += size); });
    if (!buffer)
      return buffer.status().withContext("bindPrepared: tensor '" +
                                         printable(entry.name) + "'");
    (*list)[i].buffer = std::move(*buffer);
  }
  return PreparedWeights{*writer, std::move(*list),
                         static_cast<int64_t>(bytes)};
}

} // namespace moert
