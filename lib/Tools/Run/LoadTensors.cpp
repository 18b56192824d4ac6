//===- LoadTensors.cpp - tensors from a safetensors file --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HostTensor.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

#include <algorithm>
#include <cstring>
#include <optional>

using namespace moec;
using ElementType = moert::DType;
using moert::SafetensorsEntry;
using moert::Status;

namespace {

std::string printShape(llvm::ArrayRef<int64_t> shape) {
  std::string text = "[";
  for (auto [i, size] : llvm::enumerate(shape))
    text += (i ? ", " : "") + std::to_string(size);
  return text + "]";
}

/// Shapes are the same tensor when they differ in dimensions of size 1 alone.
bool isSameShape(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b) {
  auto squeeze = [](llvm::ArrayRef<int64_t> shape) {
    std::vector<int64_t> sizes;
    llvm::copy_if(shape, std::back_inserter(sizes),
                  [](int64_t size) { return size != 1; });
    return sizes;
  };
  return squeeze(a) == squeeze(b);
}

/// Whether values of `from` become values of `to` without loss.
bool canWiden(ElementType from, ElementType to) {
  return from == to || (to == ElementType::F32 && (from == ElementType::BF16 ||
                                                   from == ElementType::F16));
}

/// Copies elements from a file into tensors; a failure names file and tensor.
class Loader {
public:
  Loader(const moert::SafetensorsFile &file, const std::string &path,
         llvm::ArrayRef<int64_t> expertIds)
      : file(file), path(path), expertIds(expertIds) {}

  Status load(const HostTensor &tensor, const TensorInfo *info) {
    if (const SafetensorsEntry *entry = file.find(tensor.name)) {
      used.insert(entry->name);
      if (Status status = check(*entry, tensor, tensor.shape); !status)
        return status;
      copyRow(*entry, 0, tensor, 0, tensor.getNumElements());
      return Status::ok();
    }
    std::string accepted = "'" + tensor.name + "'";
    if (info && !expertIds.empty())
      for (const CheckpointForm &form : info->checkpointForms) {
        for (const CheckpointPart &part : form)
          accepted += ", '*." + part.name + "'";
        if (isPresent(form))
          return loadForm(form, tensor);
      }
    return moert::notFound(path + ": no tensor for '" + tensor.name +
                           "'; accepted names: " + accepted);
  }

  void skip(const HostTensor &tensor) { used.insert(tensor.name); }

  /// Fails on a tensor of the file that nobody has asked for, if its name is in
  /// the layer's own place: a weight that the layer does not have is a sign of
  /// a wrong description. Other modules of a checkpoint are left alone.
  /// `takesRouting` says that a router has no place in the layer.
  Status checkRest(bool takesRouting) const {
    for (const SafetensorsEntry &entry : file.entries()) {
      if (used.contains(entry.name))
        continue;
      llvm::StringRef name = entry.name;
      bool isOurs = prefix ? name.consume_front(*prefix) : true;
      llvm::StringRef module = name.split('.').first;
      bool isRouter = module == "gate" || module == "router";
      if ((isOurs || isCanonical(module)) && !(isRouter && takesRouting))
        return moert::invalidArgument(
            path + ": tensor '" + entry.name +
            "' is none of this layer's; correct its name or the layer's "
            "description, or leave it out (--signature lists the layer's)");
    }
    return Status::ok();
  }

private:
  /// Whether canonical names begin so.
  static bool isCanonical(llvm::StringRef module) {
    constexpr llvm::StringLiteral modules[] = {
        "hidden_states",    "router_logits", "topk_ids", "topk_weights",
        "num_valid_tokens", "input_ids",     "gate",     "experts",
        "shared_experts",   "latent"};
    return llvm::is_contained(modules, module);
  }

  /// The names in the file that the part could have.
  std::vector<const SafetensorsEntry *>
  findAll(const CheckpointPart &part) const {
    std::vector<const SafetensorsEntry *> found;
    for (const SafetensorsEntry &entry : file.entries())
      if (part.matches(entry.name, expertIds.front()))
        found.push_back(&entry);
    return found;
  }

  bool isPresent(const CheckpointForm &form) const {
    return llvm::any_of(form, [&](const CheckpointPart &part) {
      return !findAll(part).empty();
    });
  }

  /// Sets what stands before the names of all parts of the layer. A file with
  /// several layers is ambiguous.
  Status findPrefix(const CheckpointPart &part) {
    if (prefix)
      return Status::ok();
    auto found = findAll(part);
    std::string name = part.getName(expertIds.front());
    if (found.empty())
      return moert::notFound(path + ": no tensor '*." + name + "'");
    if (found.size() > 1)
      return moert::invalidArgument(
          path + ": '" + found[0]->name + "' and '" + found[1]->name +
          "' both end in '" + name +
          "'; give a file with the tensors of one layer");
    prefix = found[0]->name.substr(0, found[0]->name.size() - name.size());
    return Status::ok();
  }

  Status loadForm(const CheckpointForm &form, const HostTensor &tensor) {
    for (const CheckpointPart &part : form) {
      if (Status status = findPrefix(part); !status)
        return status;
      int64_t count = part.isPerExpert() ? tensor.shape[0] : 1;
      for (int64_t slot = 0; slot < count; ++slot) {
        std::string name =
            *prefix + part.getName(part.isPerExpert() ? expertIds[slot] : 0);
        const SafetensorsEntry *entry = file.find(name);
        if (!entry)
          return moert::notFound(path + ": no tensor '" + name + "' for '" +
                                 tensor.name + "'");
        used.insert(entry->name);
        if (Status status = loadPart(part, *entry, tensor, slot); !status)
          return status;
      }
    }
    return Status::ok();
  }

  Status loadPart(const CheckpointPart &part, const SafetensorsEntry &entry,
                  const HostTensor &tensor, int64_t slot) {
    // What the destination holds per expert: rows x columns, a bias one column.
    bool isStacked =
        part.isPerExpert() || tensor.name.rfind("experts.", 0) == 0;
    bool isVector = tensor.shape.size() == (isStacked ? 2 : 1);
    int64_t columns = isVector ? 1 : tensor.shape.back();
    int64_t rows =
        isVector ? tensor.shape.back() : tensor.shape[tensor.shape.size() - 2];
    bool hasBlocks = isStacked && !part.isPerExpert();
    int64_t blocks = hasBlocks ? tensor.shape.front() : 1;
    std::vector<int64_t> expected = {part.numRows};
    if (!isVector)
      expected.insert(part.transposed ? expected.begin() : expected.end(),
                      columns);
    if (hasBlocks)
      expected.insert(expected.begin(), blocks);
    if (Status status = check(entry, tensor, expected); !status)
      return status;
    for (int64_t block = 0; block < blocks; ++block) {
      int64_t from = block * part.numRows * columns;
      int64_t to = ((slot + block) * rows + part.firstRow) * columns;
      int64_t step = part.rowStride * columns;
      if (part.transposed)
        copyTransposed(entry, from, tensor, to, part.numRows, columns, step);
      else
        for (int64_t row = 0; row < part.numRows; ++row)
          copyRow(entry, from + row * columns, tensor, to + row * step,
                  columns);
    }
    return Status::ok();
  }

  Status check(const SafetensorsEntry &entry, const HostTensor &tensor,
               llvm::ArrayRef<int64_t> shape) const {
    std::string where = path + ": tensor '" + entry.name + "': ";
    if (!canWiden(entry.dtype, tensor.dtype))
      return moert::invalidArgument(
          where + "dtype is " + moert::dtypeName(entry.dtype) + ", expected " +
          moert::dtypeName(tensor.dtype));
    if (!isSameShape(entry.shape, shape))
      return moert::invalidArgument(where + "shape is " +
                                    printShape(entry.shape) + ", expected " +
                                    printShape(shape));
    return Status::ok();
  }

  static void copyRow(const SafetensorsEntry &entry, int64_t from,
                      const HostTensor &tensor, int64_t to, int64_t count) {
    if (entry.dtype == tensor.dtype) {
      int64_t bits = moert::dtypeBits(entry.dtype);
      if (count > 0)
        std::memcpy(tensor.data() + to * bits / 8, entry.data + from * bits / 8,
                    size_t(count * bits / 8));
      return;
    }
    for (int64_t i = 0; i < count; ++i)
      copy(entry, from + i, tensor, to + i);
  }

  /// Row r of the destination begins at `to + r * step` and is column r of the
  /// source. Goes by squares, because one of the two sides jumps in memory.
  static void copyTransposed(const SafetensorsEntry &entry, int64_t from,
                             const HostTensor &tensor, int64_t to, int64_t rows,
                             int64_t columns, int64_t step) {
    constexpr int64_t side = 32;
    for (int64_t row = 0; row < rows; row += side)
      for (int64_t column = 0; column < columns; column += side)
        for (int64_t r = row; r < std::min(row + side, rows); ++r)
          for (int64_t c = column; c < std::min(column + side, columns); ++c)
            copy(entry, from + c * rows + r, tensor, to + r * step + c);
  }

  static void copy(const SafetensorsEntry &entry, int64_t from,
                   const HostTensor &tensor, int64_t to) {
    size_t size = size_t(moert::dtypeBits(entry.dtype)) / 8;
    const uint8_t *source = entry.data + size_t(from) * size;
    if (entry.dtype == tensor.dtype) {
      std::memcpy(tensor.data() + size_t(to) * size, source, size);
      return;
    }
    uint16_t half;
    std::memcpy(&half, source, 2);
    float value;
    if (entry.dtype == ElementType::BF16) {
      uint32_t bits = uint32_t(half) << 16;
      std::memcpy(&value, &bits, 4);
    } else {
      value = toFloat(half);
    }
    std::memcpy(tensor.data() + size_t(to) * 4, &value, 4);
  }

  static float toFloat(uint16_t half) {
    llvm::APFloat wide(llvm::APFloat::IEEEhalf(), llvm::APInt(16, half));
    bool lost;
    wide.convert(llvm::APFloat::IEEEsingle(),
                 llvm::APFloat::rmNearestTiesToEven, &lost);
    return wide.convertToFloat();
  }

  const moert::SafetensorsFile &file;
  const std::string &path;
  llvm::ArrayRef<int64_t> expertIds;
  /// What stands before the names of a checkpoint, once it is known.
  std::optional<std::string> prefix;
  llvm::StringSet<> used;
};

} // namespace

Status moec::loadTensors(std::vector<HostTensor> &tensors,
                         const moert::SafetensorsFile &file,
                         const std::string &path,
                         const std::vector<TensorInfo> &signature,
                         llvm::ArrayRef<int64_t> expertIds) {
  Loader loader(file, path, expertIds);
  bool takesRouting = false;
  for (const HostTensor &tensor : tensors) {
    takesRouting |= tensor.name == "router_logits" || tensor.name == "topk_ids";
    if (tensor.role == moert::TensorRole::Output)
      continue;
    if (tensor.isGiven) {
      loader.skip(tensor);
      continue;
    }
    auto info = llvm::find_if(signature, [&](const TensorInfo &candidate) {
      return candidate.name == tensor.name;
    });
    const TensorInfo *forms = info == signature.end() ? nullptr : &*info;
    if (Status status = loader.load(tensor, forms); !status)
      return status;
  }
  return loader.checkRest(takesRouting);
}
